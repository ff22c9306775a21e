//! A scan that is being recorded, as far as it is durable: for everybody who reads along.
//!
//! ```text
//! index of member 0  ──► records, marks ──┐  durable blocks                       Flow of each reader
//! index of member 1  ──► records, marks ──┼─────────────────► in order, to the ──► read ahead, checked,
//! index of member 2  ──► records, marks ──┘                   first hole           one after the other
//! manifest, its lock ──► being recorded, being sealed, over
//! ```
//!
//! Indexes are read on from where they ended the last time, so a look costs what is new. A block counts once a mark of its
//! member covers it. Blocks of several members come in the order of the stream: one that is not durable yet is waited
//! for, unless gaps tell that there is none, or so much lies behind it that it is not to be expected any more.
//!
//! A chunk's file moves while it is read: once from its working name into its place, where readers find it, and, if a
//! member died, once more when the scan is sealed (`renumber`). So what cannot be read is looked at again before it is
//! believed, and while a scan is sealed nothing new is begun. Once that is over the scan is opened like any other, and each
//! reader goes on where it was.

mod progress;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fullbore_core::layout::chunk_file;
use fullbore_core::manifest::{INDEX_FILE, MANIFEST_FILE, Manifest, State};
use fullbore_core::name::ScanName;
use serde::Serialize;

pub use self::progress::{Durable, Share};
use super::gaps::Gaps;
use super::inventory::{
    self, BlockRecord, Copy, Growing, Holding, Inventory, PART_SUFFIX, side_file,
};
use super::read::{Settings, StartError};
use super::reader::{Absent, Cursor, Item, Placed, Presence, Scan, Stream};
use super::renumber::is_to_be_renamed;

/// Time between two looks.
pub const LOOK: Duration = Duration::from_millis(100);

/// A block is not waited for any more once blocks behind it came so much later.
const OVERDUE_NS: i64 = 20_000_000_000;

/// The same where a member is not among those given, or has failed.
const OVERDUE_WITHOUT_MEMBER_NS: i64 = 2_000_000_000;

/// Between two second looks at what cannot be read, at least.
const SECOND_LOOKS: Duration = Duration::from_secs(1);

/// How a scan stands for those who follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// More may come.
    Recording,
    /// Its last frame has come, and its files are being put in order.
    Sealing,
    /// It is whole, and its account is written.
    Sealed,
    /// Whoever recorded it is gone, and has not sealed it.
    Died,
}

impl Standing {
    /// Whether nothing will come any more.
    pub fn is_over(self) -> bool {
        matches!(self, Standing::Sealed | Standing::Died)
    }
}

/// A scan that cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be opened.
    #[error(transparent)]
    Inventory(#[from] inventory::Error),
    /// It was there.
    #[error("{scan} was removed while it was read")]
    Removed {
        /// Its name.
        scan: ScanName,
    },
    /// Another scan has its name now.
    #[error("{scan} was removed while it was read, and another scan has its name")]
    Another {
        /// The name.
        scan: ScanName,
    },
    /// What reading needs cannot be had.
    #[error(transparent)]
    Start(#[from] StartError),
}

impl Error {
    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Error::Inventory(error) => error.hint(),
            Error::Removed { .. } => {
                Some("`fullbore protect SCAN` keeps a scan from `rm` and from `--keep`")
            }
            Error::Another { .. } | Error::Start(_) => None,
        }
    }
}

/// A scan that is followed.
#[derive(Debug)]
pub struct Follower {
    roots: Vec<PathBuf>,
    scan: Scan,
    streams: Vec<Series>,
    stamps: Vec<Option<Stamp>>,
    standing: Standing,
    /// How often the scan was opened anew: places in it may have changed.
    epoch: u64,
    looked_again: Option<Instant>,
}

/// What a manifest file is told apart by: it is never written in place.
type Stamp = (u64, u64, std::time::SystemTime);

/// A stream's indexes, and what of them is not in the stream yet.
#[derive(Debug, Default)]
struct Series {
    /// By root.
    tails: Vec<Tail>,
    /// Durable blocks behind one that is not, by sequence.
    waiting: BTreeMap<u64, Placed>,
    /// Gap records that have been painted.
    gaps: usize,
}

#[derive(Debug)]
struct Tail {
    index: Growing,
    /// Blocks that have been taken.
    taken: usize,
    bytes: u64,
}

/// One reader's place in a stream.
#[derive(Debug)]
pub struct Flow {
    /// The stream's number.
    pub number: usize,
    settings: Settings,
    cursor: Option<Cursor>,
    epoch: u64,
    position: usize,
    absent: usize,
    /// Sequence of the next block.
    next: u64,
    /// The block that was looked at again.
    doubted: Option<u64>,
}

impl Flow {
    /// From the beginning of a stream.
    pub fn new(number: usize, settings: Settings) -> Self {
        let (position, absent, next) = (0, 0, 0);
        Self { number, settings, cursor: None, epoch: 0, position, absent, next, doubted: None }
    }

    /// How many blocks have been given, lost ones included: the position of the next.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Passes over the blocks before a position.
    pub fn skip_to(&mut self, stream: &Stream, position: usize) {
        self.position = position.min(stream.blocks.len());
        self.absent = stream.absent.partition_point(|it| it.position < self.position);
        self.next = match stream.blocks.get(self.position) {
            Some(placed) => placed.block.sequence,
            None => stream.blocks.last().map_or(0, |placed| placed.block.sequence + 1),
        };
        self.cursor = None;
    }

    /// Its cursor over all that the stream has; none before it has anything.
    fn take_cursor(&mut self, stream: &Stream) -> Result<Option<Cursor>, StartError> {
        let mut cursor = match self.cursor.take() {
            Some(cursor) => cursor,
            None if self.position < stream.blocks.len() || self.absent < stream.absent.len() => {
                Cursor::growing(stream, self.position, self.absent, self.settings)?
            }
            None => return Ok(None),
        };
        cursor.extend(stream)?;
        Ok(Some(cursor))
    }
}

impl Follower {
    /// Opens a scan: what of it is durable, or all of it if it is not being recorded.
    pub fn open(roots: &[PathBuf], name: &ScanName) -> Result<Self, Error> {
        let mut inventory = Inventory::take(roots, name)?;
        let held = inventory.is_being_recorded();
        if !held {
            // Its recorder may have sealed it in between.
            inventory = Inventory::take(roots, name)?;
        }
        let standing = standing(held, &inventory);
        let mut follower = Self {
            roots: roots.to_vec(),
            // What was written since it was read is found by the first look.
            stamps: Vec::new(),
            scan: so_far(inventory),
            streams: Vec::new(),
            standing,
            epoch: 0,
            looked_again: None,
        };
        follower.take_on_streams();
        follower.go_by_standing()?;
        Ok(follower)
    }

    /// The scan: its streams hold the blocks that are durable and follow one another.
    pub fn scan(&self) -> &Scan {
        &self.scan
    }

    /// The scan, not followed any more.
    pub fn into_scan(self) -> Scan {
        self.scan
    }

    /// How it stands.
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// Looks what has become durable, and how the scan stands.
    pub fn look(&mut self) -> Result<Standing, Error> {
        if self.standing.is_over() {
            return Ok(self.standing);
        }
        // In this order: what is read after the recorder has gone is all there is.
        let held = self.scan.inventory.is_being_recorded();
        self.read_manifest()?;
        self.standing = standing(held, &self.scan.inventory);
        self.go_by_standing()?;
        Ok(self.standing)
    }

    fn go_by_standing(&mut self) -> Result<(), Error> {
        match self.standing {
            Standing::Recording => self.read_indexes(),
            Standing::Sealing => {}
            Standing::Sealed | Standing::Died => self.open_whole()?,
        }
        Ok(())
    }

    /// Lets time pass before the next look. `false`: an end was asked for.
    pub fn wait(&self, stop: &AtomicBool) -> bool {
        if !stop.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK);
        }
        !stop.load(Ordering::Relaxed)
    }

    /// What comes next of a stream, as far as it is durable. What cannot be read is looked at a second time first.
    pub fn next(&mut self, flow: &mut Flow) -> Result<Option<Item>, Error> {
        loop {
            let Some(stream) = self.scan.streams.get(flow.number) else { return Ok(None) };
            if self.standing == Standing::Sealing {
                return Ok(None);
            }
            if flow.epoch != self.epoch {
                flow.epoch = self.epoch;
                let before = |placed: &Placed| placed.block.sequence < flow.next;
                let position = stream.blocks.partition_point(before);
                flow.skip_to(stream, position);
            }
            let Some(mut cursor) = flow.take_cursor(stream)? else { return Ok(None) };
            let Some(item) = cursor.next(stream) else {
                flow.cursor = Some(cursor);
                return Ok(None);
            };
            let of_block = cursor.position() > flow.position;
            let sequence = of_block.then(|| stream.blocks[flow.position].block.sequence);
            if let Some(sequence) = sequence {
                if item.fault().is_some() && !self.is_believed(flow, sequence)? {
                    continue;
                }
                flow.next = sequence + 1;
            }
            (flow.position, flow.absent) = (cursor.position(), cursor.absent());
            flow.cursor = Some(cursor);
            return Ok(Some(item));
        }
    }

    /// Whether what could not be read is lost. Else it is to be read once more: its file may have been moved, or parity may
    /// help.
    fn is_believed(&mut self, flow: &mut Flow, sequence: u64) -> Result<bool, Error> {
        if self.standing.is_over() {
            return Ok(true);
        }
        self.read_manifest()?;
        if self.scan.manifest.state != State::Recording {
            // It is read when the files have come to rest.
            self.standing = Standing::Sealing;
            return Ok(false);
        }
        if flow.doubted == Some(sequence) {
            return Ok(true);
        }
        flow.doubted = Some(sequence);
        self.look_again(flow.number)?;
        Ok(false)
    }

    /// Finds out anew where the blocks of a stream lie, and which stripes they are in.
    fn look_again(&mut self, number: usize) -> Result<(), Error> {
        if self.looked_again.is_some_and(|at| at.elapsed() < SECOND_LOOKS) {
            return Ok(());
        }
        let fresh = self.opened()?;
        let Some(fresh) = fresh.streams.into_iter().nth(number) else { return Ok(()) };
        let stream = &mut self.scan.streams[number];
        for placed in &mut stream.blocks {
            let found =
                fresh.blocks.binary_search_by_key(&placed.block.sequence, |it| it.block.sequence);
            if let Some(found) = found.ok().map(|at| &fresh.blocks[at])
                && found.block == placed.block
            {
                placed.path = found.path.clone();
                placed.presence = found.presence;
                placed.stripe = found.stripe.clone();
            }
        }
        self.looked_again = Some(Instant::now());
        Ok(())
    }

    /// Reads the manifest again if any copy of it is another one.
    fn read_manifest(&mut self) -> Result<(), Error> {
        // Before what they stamp: one that is replaced in between is read again.
        let stamps = stamps(&self.scan.inventory);
        if stamps == self.stamps && copies_agree(&self.scan.inventory) {
            return Ok(());
        }
        let (uuid, name) = (self.scan.manifest.uuid, self.scan.manifest.scan.clone());
        let inventory = match Inventory::take(&self.roots, &name) {
            Err(inventory::Error::NoScan { .. } | inventory::Error::NoManifest { .. }) => {
                return Err(Error::Removed { scan: name });
            }
            taken => taken?,
        };
        if inventory.manifest.uuid != uuid {
            return Err(Error::Another { scan: name });
        }
        self.stamps = stamps;
        self.scan.manifest = inventory.manifest.clone();
        self.take_on_inventory(inventory);
        self.take_on_streams();
        Ok(())
    }

    /// What files there are was found out anew: blocks and indexes that are known keep their places.
    fn take_on_inventory(&mut self, inventory: Inventory) {
        let before = std::mem::replace(&mut self.scan.inventory, inventory);
        let now = &self.scan.inventory;
        let place = |known: &Holding| {
            let path = &before.roots[known.root].path;
            let is_it = |it: &Holding| now.roots[it.root].path == *path && it.name == known.name;
            now.holdings.iter().position(is_it).unwrap_or(0)
        };
        let places: Vec<usize> = before.holdings.iter().map(place).collect();
        let blocks = self.scan.streams.iter_mut().flat_map(|stream| &mut stream.blocks);
        let waiting = self.streams.iter_mut().flat_map(|series| series.waiting.values_mut());
        for placed in blocks.chain(waiting) {
            placed.holding = places.get(placed.holding).copied().unwrap_or(0);
        }
        // A member that went, or came back, changes the numbers of the others.
        if now.roots != before.roots {
            for (number, series) in self.streams.iter_mut().enumerate() {
                let mut tails: Vec<Option<Tail>> = series.tails.drain(..).map(Some).collect();
                let known = |root: &inventory::Root| {
                    before.roots.iter().position(|it| it.path == root.path)
                };
                let tail = |root| {
                    let tail = known(root).and_then(|at| tails.get_mut(at)?.take());
                    tail.unwrap_or_else(|| Tail::new(root, &self.scan.manifest, number))
                };
                series.tails = now.roots.iter().map(tail).collect();
            }
        }
    }

    /// Takes on streams that the manifest tells of, and what it tells more of those that are known.
    fn take_on_streams(&mut self) {
        let Self { scan, streams, .. } = self;
        for (number, told) in scan.manifest.streams.iter().enumerate() {
            match scan.streams.get_mut(number) {
                Some(stream) => stream.describe(told),
                None => scan.streams.push(Stream::beginning(number, told)),
            }
            if streams.len() <= number {
                let tail = |root| Tail::new(root, &scan.manifest, number);
                let tails = scan.inventory.roots.iter().map(tail).collect();
                streams.push(Series { tails, ..Series::default() });
            }
        }
    }

    /// Takes what has become durable since the last look.
    fn read_indexes(&mut self) {
        let overdue_ns = match self.lacks_member() {
            true => OVERDUE_WITHOUT_MEMBER_NS,
            false => OVERDUE_NS,
        };
        for series in &mut self.streams {
            series.read_indexes();
        }
        if self.lacks_holding()
            && let Ok(inventory) = Inventory::take(&self.roots, &self.scan.manifest.scan)
        {
            self.take_on_inventory(inventory);
        }
        for (stream, series) in self.scan.streams.iter_mut().zip(&mut self.streams) {
            let directory = &self.scan.manifest.streams[stream.number].directory;
            let place = Place { inventory: &self.scan.inventory, directory };
            series.take_durable(stream, &place);
            series.hand_on(stream, &place, overdue_ns);
        }
    }

    /// Whether a member holds a part of a stream in a directory that was not there before.
    fn lacks_holding(&self) -> bool {
        let inventory = &self.scan.inventory;
        let told = self.scan.manifest.streams.iter().zip(&self.streams);
        told.into_iter().any(|(told, series)| {
            let begun = |tail: &Tail| tail.taken == 0 && tail.index.index().durable > 0;
            let is_there = |root| {
                inventory.holdings.iter().any(|it| it.root == root && it.name == told.directory)
            };
            let tails = series.tails.iter().enumerate();
            tails.into_iter().any(|(root, tail)| begun(tail) && !is_there(root))
        })
    }

    /// Whether a member is not among those given, or has failed.
    fn lacks_member(&self) -> bool {
        let failed = self.scan.manifest.members.iter().any(|member| member.failure.is_some());
        failed || !self.scan.inventory.absent_members().is_empty()
    }

    /// Opens the scan as any other: nobody changes it any more.
    fn open_whole(&mut self) -> Result<(), Error> {
        self.scan = self.opened()?;
        self.streams.clear();
        self.epoch += 1;
        Ok(())
    }

    /// Whether its files were taken away.
    pub fn is_removed(&self) -> bool {
        matches!(self.opened(), Err(Error::Removed { .. } | Error::Another { .. }))
    }

    fn opened(&self) -> Result<Scan, Error> {
        let name = &self.scan.manifest.scan;
        let opened = match Scan::open(&self.roots, name) {
            Err(inventory::Error::NoScan { .. } | inventory::Error::NoManifest { .. }) => {
                return Err(Error::Removed { scan: name.clone() });
            }
            opened => opened?,
        };
        match opened.manifest.uuid == self.scan.manifest.uuid {
            true => Ok(opened),
            false => Err(Error::Another { scan: name.clone() }),
        }
    }
}

impl Tail {
    fn new(root: &inventory::Root, manifest: &Manifest, number: usize) -> Self {
        let directory = root.path.join(&manifest.streams[number].directory);
        let index = Growing::new(side_file(&directory, INDEX_FILE), manifest.uuid, number as u16);
        Self { index, taken: 0, bytes: 0 }
    }
}

impl Series {
    /// Reads its indexes on.
    fn read_indexes(&mut self) {
        for tail in &mut self.tails {
            // One that cannot be read tells of nothing: what it knows is waited for.
            let _ = tail.index.look();
        }
    }

    /// Takes the blocks that have become durable, and all gaps.
    fn take_durable(&mut self, stream: &mut Stream, place: &Place<'_>) {
        for (root, tail) in self.tails.iter_mut().enumerate() {
            let index = tail.index.index();
            if stream.geometry.is_none() {
                stream.geometry = index.geometry;
            }
            let new = index.blocks.get(tail.taken..index.durable).unwrap_or_default();
            for record in new {
                tail.bytes += u64::from(record.block.bytes);
                self.waiting.entry(record.block.sequence).or_insert_with(|| place.of(root, record));
            }
            tail.taken = tail.taken.max(index.durable);
        }
        let gaps = || self.tails.iter().flat_map(|tail| &tail.index.index().gaps);
        let told = gaps().count();
        if told != self.gaps {
            stream.gaps = Gaps::paint(gaps().copied());
            self.gaps = told;
        }
    }

    /// Gives the stream the blocks that follow what it has.
    fn hand_on(&mut self, stream: &mut Stream, place: &Place<'_>, overdue_ns: i64) {
        let before = stream.blocks.len();
        while let Some((&sequence, placed)) = self.waiting.first_key_value() {
            let last = stream.blocks.last().map(|placed| placed.block);
            let next = last.map_or(0, |block| block.sequence + 1);
            if sequence < next {
                // Written to a member that failed, and again to another.
                self.waiting.pop_first();
                continue;
            }
            if sequence > next {
                let frames = last.map(|block| stream.end_of(&block)..placed.block.first);
                let told = frames.as_ref().is_some_and(|frames| {
                    frames.start <= frames.end && stream.gaps.uncovered(frames.clone()).is_empty()
                });
                if !told {
                    if !self.is_overdue(overdue_ns) {
                        break;
                    }
                    if let Some(undurable) = self.undurable(next, place) {
                        self.waiting.insert(next, undurable);
                        continue;
                    }
                    stream.absent.push(Absent {
                        position: stream.blocks.len(),
                        first: next,
                        count: sequence - next,
                        frames: frames.filter(|frames| frames.start <= frames.end),
                    });
                }
            }
            stream.blocks.extend(self.waiting.pop_first().map(|(_, placed)| placed));
        }
        if stream.blocks.len() != before {
            stream.forget_clock();
        }
    }

    /// Whether so much lies behind what is waited for that it will not come.
    fn is_overdue(&self, overdue_ns: i64) -> bool {
        let seen = |entry: Option<(&u64, &Placed)>| entry.map(|(_, placed)| placed.block.seen);
        let ends = seen(self.waiting.first_key_value()).zip(seen(self.waiting.last_key_value()));
        ends.is_some_and(|(first, last)| last.since(first) >= overdue_ns)
    }

    /// A block that was written and recorded, and of which nobody said that it is safe: its checksum will tell.
    fn undurable(&self, sequence: u64, place: &Place<'_>) -> Option<Placed> {
        let find = |(root, tail): (usize, &Tail)| {
            let blocks = tail.index.index().blocks.get(tail.taken..)?;
            let record = blocks.iter().find(|record| record.block.sequence == sequence)?;
            Some(place.of(root, record))
        };
        self.tails.iter().enumerate().find_map(find)
    }
}

/// Where the blocks of a stream lie.
struct Place<'a> {
    inventory: &'a Inventory,
    directory: &'a str,
}

impl Place<'_> {
    /// A block on a member: under its chunk's working name, or already in its place, where readers look next.
    fn of(&self, root: usize, record: &BlockRecord) -> Placed {
        let Self { inventory, directory } = *self;
        let at = &inventory.roots[root];
        let file = format!("{}{PART_SUFFIX}", chunk_file(directory, record.block.chunk));
        let is_its = |it: &Holding| it.root == root && it.name == directory;
        Placed {
            block: record.block,
            holding: inventory.holdings.iter().position(is_its).unwrap_or(0),
            path: Arc::new(side_file(&at.path.join(directory), &file)),
            device: at.device,
            presence: Presence::Whole,
            lengths: record.lengths,
            records: None,
            stripe: None,
        }
    }
}

/// A scan of which nothing is known but what its manifest says.
fn so_far(inventory: Inventory) -> Scan {
    let manifest = inventory.manifest.clone();
    let findings = super::reader::findings_of_members(&inventory);
    Scan { manifest, inventory, streams: Vec::new(), findings }
}

/// How a scan stands whose lock was held or not before its manifest was read.
fn standing(held: bool, inventory: &Inventory) -> Standing {
    let manifest = &inventory.manifest;
    match (held, manifest.state) {
        (true, State::Recording) => Standing::Recording,
        // Not every member has the last manifest yet.
        (true, _) if !copies_agree(inventory) => Standing::Sealing,
        _ if is_settled(manifest) => Standing::Sealed,
        (true, _) => Standing::Sealing,
        (false, State::Recording) => Standing::Died,
        // Its recorder left something of its order or its redundancy undone, which others tell of.
        (false, _) => Standing::Sealed,
    }
}

/// Whether all copies of the manifest that can be read say the same.
fn copies_agree(inventory: &Inventory) -> bool {
    let mut holdings = inventory.holdings.iter();
    holdings.all(|it| !matches!(&it.manifest, Copy::Read(copy) if *copy != inventory.manifest))
}

/// Whether its recorder has nothing to do with its files any more.
fn is_settled(manifest: &Manifest) -> bool {
    let follows = manifest.redundancy.is_some_and(|it| it.followed.is_none());
    let moves = manifest.streams.iter().any(is_to_be_renamed);
    manifest.state != State::Recording && !follows && !moves
}

/// The copies of the manifest beside the first stream, on every member.
fn stamps(inventory: &Inventory) -> Vec<Option<Stamp>> {
    use std::os::unix::fs::MetadataExt;
    let Some(first) = inventory.manifest.streams.first() else { return Vec::new() };
    let stamp = |root: &inventory::Root| {
        let path = side_file(&root.path.join(&first.directory), MANIFEST_FILE);
        let metadata = std::fs::metadata(path).ok()?;
        Some((metadata.ino(), metadata.len(), metadata.modified().ok()?))
    };
    inventory.roots.iter().map(stamp).collect()
}

#[cfg(test)]
mod tests;
