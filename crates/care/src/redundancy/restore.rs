//! Restores lost chunks of a scan with redundancy, onto the remaining members or onto others.
//!
//! ```text
//! check    every block and every row of parity is read
//! restore  each damaged or missing chunk, data or parity: in its place if its member is there, else on a
//!          member that holds nothing of its stripe; then its records in that member's index
//! compose  parity for chunks that have none
//! publish  manifests and accounts beside every stream; absent members with no data left to restore are removed
//! tidy     if all is whole: duplicates are removed, except for the file that was read
//! ```
//!
//! A chunk is restored whole or not at all, so `rebuild` can be interrupted at any time and run again.
//!
//! A rebuild that could not restore all removes no member. If an absent member comes back after it, it is a member as
//! before: its data counts, and chunks that were restored elsewhere in the meantime are read from one of both places.
//! The next rebuild that finds the scan whole removes the other copy.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fullbore_core::hint::Hint;
use fullbore_core::index::{Codec, Entry, RECORD_BYTES};
use fullbore_core::layout::chunk_file;
use fullbore_core::manifest::{
    ACCOUNT_FILE, INDEX_FILE, MANIFEST_FILE, Manifest, Member as Listed, SIDE_DIRECTORY, State,
};
use fullbore_core::name::ScanName;
use fullbore_core::redundancy::{Followed, Scheme};
use fullbore_linux::regular_file;
use fullbore_store::inventory::{self, Index, Inventory, MemberFiles, side_file};
use fullbore_store::lock::{self, ScanLock, put_file, sync_directory};
use fullbore_store::read::{Settings, StartError};
use fullbore_store::reader::Scan;
use fullbore_store::redundancy::stripe::{Rows, Stripe};
use fullbore_store::redundancy::stripe_builder::{Place, StripeBuilder};
use fullbore_store::redundancy::stripe_writer::{
    ChunkOutput, OutputFile, StripeWriteError, finish, pour,
};
use fullbore_store::redundancy::{StripeRecord, is_unfinished, stripes_of};
use fullbore_store::{Member, MemberError, renumber};
use serde::Serialize;

use super::check::{StripeStatus, check, parity_bytes};
use super::duplicates;
use crate::verify;

/// This many restored chunks may wait for their index records.
const MOST_UNRECORDED: usize = 32;

/// The result of restoring a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Restored {
    /// The scan.
    pub scan: String,
    /// Data chunks of lost members, restored onto others.
    pub restored: u64,
    /// Data chunks that were damaged or missing, restored in their places.
    pub mended: u64,
    /// Parity chunks written again.
    pub parity: u64,
    /// Stripes made of chunks that had none.
    pub stripes: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Duplicate files removed: on a member that came back, or parity that was made again elsewhere.
    pub removed: u64,
    /// The chunks that could not be restored, with the reasons.
    pub left: Vec<String>,
    /// Absent members that the scan no longer has.
    pub gone: Vec<PathBuf>,
    /// Members that the scan now has and did not have before.
    pub joined: Vec<PathBuf>,
    /// Former members that still hold their old files, which are not part of the scan.
    pub leftover: Vec<PathBuf>,
    /// True if it was interrupted; another run continues.
    pub interrupted: bool,
}

impl Restored {
    /// Returns true if no work is left.
    pub fn is_whole(&self) -> bool {
        self.left.is_empty() && !self.interrupted
    }

    /// Returns true if anything was done.
    pub fn is_something(&self) -> bool {
        self.restored + self.mended + self.parity + self.stripes > 0 || !self.gone.is_empty()
    }
}

/// A scan that could not be rebuilt.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The inventory could not be taken.
    #[error(transparent)]
    Inventory(#[from] inventory::Error),
    /// The scan is being recorded.
    #[error(transparent)]
    Lock(#[from] lock::Error),
    /// A member to rebuild onto is unusable.
    #[error(transparent)]
    Member(#[from] MemberError),
    /// Memory or threads for reading are not available.
    #[error(transparent)]
    Read(#[from] StartError),
    /// The scan has no redundancy to rebuild from.
    #[error("{scan} was recorded without redundancy")]
    None {
        /// The scan.
        scan: String,
    },
    /// A directory to restore onto holds leftover files of the scan.
    #[error("{} holds files of {scan} left over from before it was rebuilt", path.display())]
    LeftOver {
        /// The directory.
        path: PathBuf,
        /// The scan.
        scan: String,
    },
    /// A renumbering of the chunk files is unfinished.
    #[error("{scan}: the chunk files are not all renumbered")]
    Unordered {
        /// The scan.
        scan: String,
    },
    /// A file could not be written.
    #[error("{}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

impl Hint for Error {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Error::Inventory(error) => error.hint(),
            Error::Lock(error) => error.hint(),
            Error::Member(error) => error.hint(),
            Error::None { .. } => {
                Some("`fullbore record --redundancy` records a scan with redundancy".into())
            }
            Error::LeftOver { scan, .. } => Some(Cow::Owned(format!(
                "`fullbore rm --leftovers {scan}` removes them; then the directory can take chunks again"
            ))),
            Error::Unordered { scan } => Some(Cow::Owned(format!("run `fullbore recover {scan}`"))),
            Error::Read(_) => None,
            Error::Write { .. } => {
                Some("run the command again; chunks that are restored already are kept".into())
            }
        }
    }
}

/// Options of `rebuild`.
pub struct Options<'a> {
    /// Members to restore onto; if empty, the members that are given.
    pub onto: Vec<PathBuf>,
    /// Called with the bytes read so far and the total to read.
    pub progress: &'a (dyn Fn(u64, u64) + Sync),
    /// Polled; true stops the rebuild.
    pub stop: &'a (dyn Fn() -> bool + Sync),
}

/// Restores the lost data of a scan.
pub fn rebuild(
    roots: &[PathBuf],
    name: &ScanName,
    options: &Options<'_>,
) -> Result<Restored, Error> {
    refuse(&Inventory::take(roots, name)?)?;
    let mut all = roots.to_vec();
    for path in &options.onto {
        let member = Member::open(path)?;
        let same = |root: &PathBuf| {
            std::fs::canonicalize(root).is_ok_and(|root| root == *member.root())
                || root == member.root()
        };
        if !all.iter().any(same) {
            all.push(member.root().to_owned());
        }
    }
    let inventory = Inventory::take(&all, name)?;
    let readable = inventory.holdings.iter().filter(|it| it.manifest.get().is_some());
    let locks: Result<Vec<ScanLock>, lock::Error> =
        readable.map(|it| ScanLock::take(&it.side(MANIFEST_FILE))).collect();
    let locks = locks?;
    // The former owner of the lock may have changed the scan in the meantime.
    let inventory = Inventory::take(&all, name)?;
    refuse(&inventory)?;
    let leftover = leftover(&inventory, options)?;
    remove_unfinished(&inventory);
    let scan = Scan::of_inventory(inventory);
    let onto: BTreeSet<usize> = options
        .onto
        .iter()
        .filter_map(|path| {
            let path = std::fs::canonicalize(path).ok()?;
            let is = |root: &inventory::Root| {
                std::fs::canonicalize(&root.path).ok() == Some(path.clone())
            };
            scan.inventory.roots.iter().position(is)
        })
        .collect();
    Restoration {
        options,
        onto,
        locks,
        scan: &scan,
        restored: Restored { leftover, ..Restored::default() },
        unrecorded: BTreeMap::new(),
        bytes: BTreeMap::new(),
        refusing: BTreeSet::new(),
    }
    .carry_out()
}

fn refuse(inventory: &Inventory) -> Result<(), Error> {
    let scan = || inventory.manifest.scan.to_string();
    if inventory.manifest.redundancy.is_none() {
        return Err(Error::None { scan: scan() });
    }
    if renumber::is_unfinished(inventory) {
        return Err(Error::Unordered { scan: scan() });
    }
    Ok(())
}

/// Returns the former members of the rebuilt scan. Restored files would meet files of the same name there.
fn leftover(inventory: &Inventory, options: &Options<'_>) -> Result<Vec<PathBuf>, Error> {
    let leftover: Vec<PathBuf> =
        inventory.leftovers.iter().map(|it| it.root.path.clone()).collect();
    let real = |path: &PathBuf| std::fs::canonicalize(path).ok();
    let meant = leftover.iter().find(|path| options.onto.iter().any(|it| real(it) == real(path)));
    match meant {
        Some(path) => {
            Err(Error::LeftOver { path: path.clone(), scan: inventory.manifest.scan.to_string() })
        }
        None => Ok(leftover),
    }
}

/// Removes unfinished files. No other process writes here, because this one holds the locks.
fn remove_unfinished(inventory: &Inventory) {
    let all = inventory.holdings.iter().flat_map(|it| &it.redundant);
    for path in all.filter(|path| is_unfinished(path)) {
        // A file that cannot be removed does no harm.
        let _ = std::fs::remove_file(path);
    }
}

struct Restoration<'a> {
    options: &'a Options<'a>,
    /// Roots that may take restored chunks; if empty, all roots.
    onto: BTreeSet<usize>,
    locks: Vec<ScanLock>,
    scan: &'a Scan,
    restored: Restored,
    /// Records of chunks that were restored onto a root, by root and stream.
    unrecorded: BTreeMap<(usize, usize), Vec<Vec<u8>>>,
    /// Bytes written onto each root.
    bytes: BTreeMap<usize, u64>,
    /// Roots that could not take a chunk.
    refusing: BTreeSet<usize>,
}

/// A chunk of a stripe, and its destination.
struct Move {
    shard: usize,
    root: usize,
    in_place: bool,
}

impl Restoration<'_> {
    fn carry_out(mut self) -> Result<Restored, Error> {
        let scan = self.scan;
        self.restored.scan = scan.manifest.scan.to_string();
        let parity = parity_bytes(scan);
        let progress = self.options.progress;
        let bad = verify::bad_blocks(scan, Settings::default(), &|done, total| {
            progress(done, total + parity);
        })?;
        let data: u64 = scan.streams.iter().map(|stream| stream.bytes()).sum();
        let checked = check(scan, &bad, &|done| progress(data + done, data + parity))?;
        let statuses = checked.map(|it| it.stripes).unwrap_or_default();
        for (number, statuses) in statuses.iter().enumerate() {
            let told = stripes_of(&scan.inventory, number);
            for status in statuses.iter().filter(|it| !it.bad.is_empty()) {
                let told = told.iter().find(|it| it.stripe.number == status.stripe.number);
                if let Some(told) = told
                    && !self.restore(number, told, status)?
                {
                    self.restored.interrupted = true;
                    return self.tell(None);
                }
            }
            self.bad_without_stripe(number, &bad[number]);
        }
        self.record()?;
        // Data that is missing now may come back with a member, and with it stripes whose numbers are unknown here: no
        // number may be used twice.
        if !self.restored.left.is_empty() && !scan.inventory.absent_members().is_empty() {
            self.restored.left.push(
                "no new parity is made while blocks are lost and members are absent: give those members too"
                    .to_owned(),
            );
            let name = &scan.manifest.scan;
            if scan.manifest.state == State::Recording {
                self.restored.left.push(format!(
                    "{name} was never sealed: `fullbore recover {name} --without-absent-members` gives up the data on \
                     absent members that had no parity yet"
                ));
            }
            return self.tell(None);
        }
        let followed = self.compose()?;
        self.tell(Some(followed))
    }

    /// Reports chunks that are damaged or lost, and in no stripe.
    fn bad_without_stripe(&mut self, number: usize, bad: &BTreeSet<usize>) {
        let stream = &self.scan.streams[number];
        let alone = bad.iter().map(|at| &stream.blocks[*at]).filter(|it| it.stripe.is_none());
        let paths: BTreeSet<&Arc<PathBuf>> = alone.map(|placed| &placed.path).collect();
        for path in paths {
            self.restored.left.push(format!("{}: it was in no stripe", path.display()));
        }
        for absent in &stream.absent {
            self.restored.left.push(absent.finding(stream).to_string());
        }
    }

    /// Restores the bad chunks of a stripe. Returns false if it was interrupted.
    fn restore(
        &mut self,
        number: usize,
        told: &StripeRecord,
        status: &StripeStatus,
    ) -> Result<bool, Error> {
        let stripe = &*status.stripe;
        let directory = self.scan.manifest.streams[number].directory.clone();
        if !status.beyond.is_empty() {
            let lost = status.bad.iter().filter_map(|shard| stripe.data.get(*shard));
            let lost: Vec<String> = lost.map(|it| it.path.display().to_string()).collect();
            self.restored.left.push(format!(
                "stripe {} of {directory}: {} of {} chunks are damaged or lost, and parity makes up for {}: {}",
                stripe.number,
                status.bad.len(),
                stripe.shards(),
                stripe.parity.len(),
                lost.join(", ")
            ));
            return Ok(true);
        }
        let mut rows = Rows::of(stripe)?;
        loop {
            let moves = self.moves(number, stripe, &status.bad);
            if moves.is_empty() {
                break;
            }
            match self.write(number, told, stripe, &mut rows, &moves) {
                Ok(()) => break,
                Err(Failure::Interrupted) => return Ok(false),
                Err(Failure::Target(root, why)) => {
                    // Another member may take it.
                    self.restored.left.push(why);
                    self.refusing.insert(root);
                }
                Err(Failure::Stripe(why)) => {
                    self.restored
                        .left
                        .push(format!("stripe {} of {directory}: {why}", stripe.number));
                    break;
                }
            }
        }
        if self.unrecorded.values().map(Vec::len).sum::<usize>() >= MOST_UNRECORDED {
            self.record()?;
        }
        Ok(true)
    }

    /// Returns the destinations of the bad chunks of a stripe.
    fn moves(&mut self, number: usize, stripe: &Stripe, bad: &BTreeSet<usize>) -> Vec<Move> {
        let mut holding: BTreeSet<usize> = (0..stripe.shards())
            .filter(|shard| !bad.contains(shard))
            .filter_map(|shard| stripe.root_of(shard))
            .collect();
        let mut moves = Vec::new();
        let mut homeless = Vec::new();
        for &shard in bad {
            match self.home_of(number, stripe, shard) {
                Some(root) if !self.refusing.contains(&root) && holding.insert(root) => {
                    moves.push(Move { shard, root, in_place: true });
                }
                _ => homeless.push(shard),
            }
        }
        for shard in homeless {
            let roots = 0..self.scan.inventory.roots.len();
            let free =
                roots.filter(|root| !holding.contains(root) && !self.refusing.contains(root));
            // The roots named by the user come first; if none of them is left, redundancy is more important.
            let least = free.min_by_key(|root| {
                let named = self.onto.is_empty() || self.onto.contains(root);
                (!named, self.bytes.get(root).copied().unwrap_or(0))
            });
            match least {
                Some(root) => {
                    holding.insert(root);
                    moves.push(Move { shard, root, in_place: false });
                }
                None => {
                    let text = format!(
                        "{}: every usable member already holds chunks of the stripes to restore: name another one with --onto",
                        self.scan.manifest.streams[number].directory
                    );
                    if !self.restored.left.contains(&text) {
                        self.restored.left.push(text);
                    }
                }
            }
        }
        moves
    }

    /// Returns the root that a chunk belongs to, if it is given.
    fn home_of(&self, number: usize, stripe: &Stripe, shard: usize) -> Option<usize> {
        let Some(chunk) = stripe.data.get(shard) else { return stripe.root_of(shard) };
        let stream = &self.scan.streams[number];
        let placed = stream.blocks.iter().find(|it| it.block.chunk == chunk.chunk)?;
        // A chunk that an index lists is restored to the place in the index.
        let known = placed.records.is_none();
        known.then(|| self.scan.inventory.holdings[placed.holding].root)
    }

    fn write(
        &mut self,
        number: usize,
        told: &StripeRecord,
        stripe: &Stripe,
        rows: &mut Rows,
        moves: &[Move],
    ) -> Result<(), Failure> {
        let stream = &self.scan.manifest.streams[number];
        let name = stream.directory.clone();
        let codec = Codec::of_scan(self.scan.manifest.uuid);
        let place = Place { codec, stream: number as u16, name: &name };
        let mut into: Vec<ChunkOutput> = Vec::with_capacity(moves.len());
        for Move { shard, root, .. } in moves {
            let directory =
                self.prepare(number, *root).map_err(|error| Failure::of(*root, error))?;
            let begun = match shard.checked_sub(stripe.data.len()) {
                Some(parity) => place.begin_parity(stripe, parity, &directory),
                None => {
                    let chunk = stripe.data[*shard].chunk;
                    let file =
                        stream.renamed.as_ref().map_or(chunk, |it| it.in_sight().file_of(chunk));
                    let path = directory.join(chunk_file(&name, file));
                    let side = directory.join(SIDE_DIRECTORY);
                    OutputFile::begin(&side, &path, stripe.bytes_of(*shard))
                        .map(|output| ChunkOutput { shard: *shard, output, crcs: Vec::new() })
                        .map_err(|source| (path, source))
                }
            };
            into.push(begun.map_err(|(path, source)| Failure::of(*root, (path, source)))?);
        }
        let stop = self.options.stop;
        let failed = |trouble: StripeWriteError| match trouble {
            StripeWriteError::Stopped => Failure::Interrupted,
            StripeWriteError::Write { at, path, source } => {
                Failure::of(moves[at].root, (path, source))
            }
            other => Failure::Stripe(other.to_string()),
        };
        pour(stripe, rows, &mut into, &mut |_| !stop()).map_err(failed)?;
        let crcs = finish(stripe, into).map_err(failed)?;
        let raw: Vec<&[u8]> = told.chunks.iter().map(|it| it.raw.as_slice()).collect();
        for (Move { shard, root, in_place }, crcs) in moves.iter().zip(&crcs) {
            let bytes = stripe.bytes_of(*shard);
            *self.bytes.entry(*root).or_default() += bytes;
            self.restored.bytes += bytes;
            match shard.checked_sub(stripe.data.len()) {
                Some(parity) => {
                    let directory = self.directory(number, *root);
                    place
                        .put_records(stripe, parity, &directory, crcs, &raw)
                        .map_err(|error| Failure::of(*root, error))?;
                    self.restored.parity += 1;
                }
                None if *in_place => self.restored.mended += 1,
                None => {
                    let records = raw[*shard][RECORD_BYTES.min(raw[*shard].len())..].to_vec();
                    self.unrecorded.entry((*root, number)).or_default().push(records);
                    self.restored.restored += 1;
                }
            }
        }
        Ok(())
    }

    fn directory(&self, number: usize, root: usize) -> PathBuf {
        let directory = &self.scan.manifest.streams[number].directory;
        self.scan.inventory.roots[root].path.join(directory)
    }

    /// Makes a stream's directory on a root that has none, with the current manifest and account.
    fn prepare(&self, number: usize, root: usize) -> Result<PathBuf, (PathBuf, io::Error)> {
        let directory = self.directory(number, root);
        let side = directory.join(SIDE_DIRECTORY);
        if side.is_dir() {
            return Ok(directory);
        }
        std::fs::create_dir_all(&side).map_err(|source| (side.clone(), source))?;
        let manifest = side.join(MANIFEST_FILE);
        put_file(&manifest, &self.scan.manifest.to_json()).map_err(|source| (manifest, source))?;
        if let Some(account) = self.account_of(number) {
            let path = side.join(ACCOUNT_FILE);
            put_file(&path, &account).map_err(|source| (path, source))?;
        }
        let root = self.scan.inventory.roots[root].path.clone();
        for path in [directory.clone(), root] {
            sync_directory(&path).map_err(|source| (path, source))?;
        }
        Ok(directory)
    }

    fn account_of(&self, number: usize) -> Option<Vec<u8>> {
        let readable = |it: &&MemberFiles| it.account().get().is_some();
        let holding = self.scan.inventory.of_stream(number).find(readable)?;
        regular_file::read(&holding.side(ACCOUNT_FILE)).ok()
    }

    /// Appends the records of restored chunks to the indexes of their new members.
    fn record(&mut self) -> Result<(), Error> {
        let codec = Codec::of_scan(self.scan.manifest.uuid);
        for ((root, number), chunks) in std::mem::take(&mut self.unrecorded) {
            let path = side_file(&self.directory(number, root), INDEX_FILE);
            let failed = |source| Error::Write { path: path.clone(), source };
            let mut records = match Index::read(&path, self.scan.manifest.uuid, number as u16) {
                Ok(index) => {
                    let mut bytes = regular_file::read(&path).map_err(failed)?;
                    bytes.truncate(usize::try_from(index.trusted_bytes()).unwrap_or(usize::MAX));
                    bytes
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
                Err(error) => return Err(failed(error)),
            };
            if records.is_empty() {
                records.extend(codec.encode(number as u16, &self.header(number, root)));
            }
            chunks.iter().for_each(|chunk| records.extend(chunk));
            put_file(&path, &records).map_err(failed)?;
        }
        Ok(())
    }

    fn header(&self, number: usize, root: usize) -> Entry {
        let geometry = self.scan.streams[number].geometry;
        let (frame_bytes, block_bytes, chunk_blocks) =
            geometry.map_or((0, 0, 0), |it| (it.frame_bytes, it.block_bytes, it.chunk_blocks));
        let member = self.scan.inventory.roots[root].uuid.unwrap_or_default();
        Entry::Header { member, frame_bytes, block_bytes, chunk_blocks }
    }

    /// Makes stripes of chunks that have none.
    fn compose(&mut self) -> Result<Followed, Error> {
        let scan = self.scan;
        let Some(redundancy) = scan.manifest.redundancy else { return Ok(Followed::default()) };
        let roots: Vec<PathBuf> = scan.inventory.roots.iter().map(|it| it.path.clone()).collect();
        let mut builder =
            StripeBuilder::new(scan.manifest.uuid, redundancy.scheme(), roots.clone());
        let mut alone = false;
        for stream in &scan.streams {
            let told = stripes_of(&scan.inventory, stream.number);
            let done = told.iter().flat_map(|it| &it.chunks).map(|it| it.chunk).collect();
            let next = told.last().map_or(0, |it| it.stripe.number + 1);
            let listed = &scan.manifest.streams[stream.number];
            let is_alone = stream.blocks.iter().any(|it| it.stripe.is_none());
            if is_alone {
                alone = true;
                for root in 0..roots.len() {
                    // A root that cannot be written is reported when it refuses a chunk.
                    let _ = self.prepare(stream.number, root);
                }
                builder.add(
                    stream.number as u16,
                    &listed.directory,
                    done,
                    next,
                    listed.renamed.clone(),
                );
            }
        }
        let mut followed = Followed::default();
        if alone && scan.manifest.state == State::Recording {
            let name = &scan.manifest.scan;
            self.restored.left.push(format!(
                "{name} was never sealed: run `fullbore recover {name}`; then chunks without parity get it"
            ));
        } else if alone {
            builder.look(true);
            let stop = self.options.stop;
            self.restored.interrupted |= !builder.compose(true, &mut |_| !stop());
            let (made, told) = builder.end();
            followed = made;
            self.restored.stripes += made.stripes;
            self.restored.bytes += made.bytes;
            self.restored.left.extend(told);
        }
        Ok(followed)
    }

    /// Writes the new members of the scan into every manifest.
    fn tell(mut self, followed: Option<Followed>) -> Result<Restored, Error> {
        self.record()?;
        let mut manifest = self.scan.manifest.clone();
        manifest.markers.clone_from(&self.scan.inventory.markers);
        self.change_members(&mut manifest);
        if let Some(redundancy) = &mut manifest.redundancy {
            if self.restored.is_something() {
                redundancy.rebuilt += 1;
            }
            let before = redundancy.followed.unwrap_or_default();
            if let Some(made) = followed.filter(|_| !self.restored.interrupted) {
                let there = self.sums(redundancy.scheme())?;
                redundancy.followed = Some(Followed {
                    unprotected: made.unprotected,
                    most_behind: before.most_behind,
                    after_ms: before.after_ms,
                    ..there
                });
            }
        }
        // A member that came back has an old manifest.
        let mut copies = self.scan.inventory.holdings.iter().filter_map(|it| it.manifest.get());
        let stale = self.restored.is_whole() && copies.any(|copy| *copy != manifest);
        if manifest != self.scan.manifest || stale {
            self.put_manifests(&manifest)?;
        }
        if self.restored.is_whole() {
            self.tidy()?;
        }
        Ok(self.restored)
    }

    /// Returns the number of stripes now, of their chunks, and their parity.
    fn sums(&self, scheme: Scheme) -> Result<Followed, Error> {
        let roots: Vec<PathBuf> =
            self.scan.inventory.roots.iter().map(|it| it.path.clone()).collect();
        let inventory = Inventory::take(&roots, &self.scan.manifest.scan)?;
        let streams = 0..self.scan.manifest.streams.len();
        let mut sums = Followed::default();
        for told in streams.flat_map(|number| stripes_of(&inventory, number)) {
            let stripe = &told.stripe;
            let parity = stripe.parity.iter().flatten().count() as u64;
            sums.stripes += 1;
            sums.chunks += stripe.data.len() as u64;
            sums.narrow += u64::from(stripe.parity.len() < usize::from(scheme.parity));
            sums.bytes += parity * stripe.bytes_of(stripe.data.len());
        }
        Ok(sums)
    }

    /// Removes duplicates, while no other process may change the scan.
    fn tidy(&mut self) -> Result<(), Error> {
        let roots: Vec<PathBuf> =
            self.scan.inventory.roots.iter().map(|it| it.path.clone()).collect();
        let now = Scan::of_inventory(Inventory::take(&roots, &self.scan.manifest.scan)?);
        let (removed, left) = duplicates::remove(&duplicates::find(&now)?);
        self.restored.removed = removed;
        self.restored.left.extend(left);
        Ok(())
    }

    fn change_members(&mut self, manifest: &mut Manifest) {
        let roots = &self.scan.inventory.roots;
        for (root, at) in roots.iter().zip(0..) {
            let Some(uuid) = root.uuid else { continue };
            let lies_there = (0..manifest.streams.len())
                .any(|number| self.directory(number, at).join(SIDE_DIRECTORY).is_dir());
            if lies_there && manifest.members.iter().all(|member| member.uuid != uuid) {
                let path = root.path.clone();
                self.restored.joined.push(path.clone());
                manifest.members.push(Listed { uuid, path, failure: None, buffered: false });
            }
        }
        if self.restored.is_whole() {
            let absent = self.scan.inventory.absent_members();
            self.restored.gone = absent.iter().map(|member| member.path.clone()).collect();
            manifest.members.retain(|member| absent.iter().all(|it| it.uuid != member.uuid));
        }
    }

    fn put_manifests(&mut self, manifest: &Manifest) -> Result<(), Error> {
        let json = manifest.to_json();
        for number in 0..manifest.streams.len() {
            for root in 0..self.scan.inventory.roots.len() {
                let path = side_file(&self.directory(number, root), MANIFEST_FILE);
                if !path.parent().is_some_and(Path::is_dir) {
                    continue;
                }
                match self.locks.iter_mut().find(|lock| lock.path() == path) {
                    Some(lock) => lock.replace(&json)?,
                    None => {
                        put_file(&path, &json).map_err(|source| Error::Write { path, source })?
                    }
                }
            }
        }
        Ok(())
    }
}

/// The reason why the chunks of a stripe were not restored.
enum Failure {
    /// The stop was requested.
    Interrupted,
    /// A root cannot take a chunk.
    Target(usize, String),
    /// The chunk cannot be restored.
    Stripe(String),
}

impl Failure {
    fn of(root: usize, (path, source): (PathBuf, io::Error)) -> Self {
        Failure::Target(root, format!("{}: {source}", path.display()))
    }
}
