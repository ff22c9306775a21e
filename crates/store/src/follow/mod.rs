//! Follows a scan that is being recorded, as far as it is durable, for any number of readers.
//!
//! ```text
//! index of member 0  ──► records, marks ──┐  durable blocks                       Flow of each reader
//! index of member 1  ──► records, marks ──┼─────────────────► in order, to the ──► read ahead, checked,
//! index of member 2  ──► records, marks ──┘                   first hole           one after the other
//! manifest, its lock ──► being recorded, being sealed, over
//! ```
//!
//! Each look continues to read the indexes where the last look ended, so its cost depends on new records only. A block
//! counts once a mark of its member covers it.
//! Blocks of several members are given in stream order. The follower waits for a block that is not durable yet, unless
//! gap records show that there is none, or so much data follows it that it is overdue.
//!
//! A chunk's file is renamed while it is read: once from its working name to its final name, where readers find it,
//! and, if a member died, once more when the scan is sealed (`renumber`). So a failed read is repeated before a loss is
//! reported, and no new read starts while a scan is being sealed.
//! After that the scan is opened like any other, and each reader continues at its position.

mod progress;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fullbore_core::hint::Hint;
use fullbore_core::layout::chunk_file;
use fullbore_core::manifest::{INDEX_FILE, MANIFEST_FILE, Manifest, State};
use fullbore_core::name::ScanName;
use fullbore_linux::stop_handle::StopHandle;
use serde::Serialize;

pub use self::progress::{Durable, Share};
use super::gaps::Gaps;
use super::inventory::{
    self, BlockRecord, Copy, Growing, Inventory, MemberFiles, PART_SUFFIX, side_file,
};
use super::read::{Settings, StartError};
use super::reader::{Absent, BlockLocation, Cursor, Item, Presence, Scan, StoredStream};
use super::renumber::is_to_be_renamed;

/// Time between two looks at the indexes: less than the time between two syncs of the recorder. It is another process,
/// perhaps on another host, whose writes wake nobody here.
pub const LOOK: Duration = Duration::from_millis(100);

/// A block is overdue once blocks behind it arrived this much later.
pub const OVERDUE_NS: i64 = 20_000_000_000;

/// The same limit if a member is not among the roots or has failed.
const OVERDUE_WITHOUT_MEMBER_NS: i64 = 2_000_000_000;

/// Minimum time between two repeated looks at unreadable blocks.
const SECOND_LOOKS: Duration = Duration::from_secs(1);

/// The state of a scan for its followers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FollowState {
    /// More data may arrive.
    Recording,
    /// The last frame has arrived, and the recorder is sealing the scan.
    Sealing,
    /// The scan is complete, and its account is written.
    Sealed,
    /// The recorder is gone and has not sealed the scan.
    Died,
}

impl FollowState {
    /// Returns true if no more data can arrive.
    pub fn is_over(self) -> bool {
        matches!(self, FollowState::Sealed | FollowState::Died)
    }
}

/// A scan that cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The scan cannot be opened.
    #[error(transparent)]
    Inventory(#[from] inventory::Error),
    /// The scan was removed.
    #[error("{scan} was removed while it was read")]
    Removed {
        /// The name.
        scan: ScanName,
    },
    /// Another scan has the name now.
    #[error("{scan} was removed while it was read, and another scan has its name")]
    Another {
        /// The name.
        scan: ScanName,
    },
    /// Memory or threads for reading are not available.
    #[error(transparent)]
    Start(#[from] StartError),
}

impl Hint for Error {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Error::Inventory(error) => error.hint(),
            Error::Removed { .. } => {
                Some("`fullbore protect SCAN` keeps a scan from `rm` and from `--keep`".into())
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
    status: FollowState,
    /// The number of times that the scan was opened again: positions in it may have changed.
    epoch: u64,
    looked_again: Option<Instant>,
}

/// The identity of a manifest file, which is never written in place.
type Stamp = (u64, u64, std::time::SystemTime);

/// The indexes of a stream, and their blocks that are not in the stream yet.
#[derive(Debug, Default)]
struct Series {
    /// By root.
    tails: Vec<IndexTail>,
    /// Durable blocks behind one that is not, by sequence.
    waiting: BTreeMap<u64, BlockLocation>,
    /// The number of gap records applied.
    gaps: usize,
}

#[derive(Debug)]
struct IndexTail {
    index: Growing,
    /// The number of blocks taken.
    taken: usize,
    bytes: u64,
}

/// A reader's position in a stream.
#[derive(Debug)]
pub struct FollowCursor {
    /// The stream's number.
    pub number: usize,
    settings: Settings,
    cursor: Option<Cursor>,
    epoch: u64,
    position: usize,
    absent: usize,
    /// Sequence of the next block.
    next: u64,
    /// The block that was read a second time.
    doubted: Option<u64>,
}

impl FollowCursor {
    /// Returns a cursor at the beginning of a stream.
    pub fn new(number: usize, settings: Settings) -> Self {
        let (position, absent, next) = (0, 0, 0);
        Self { number, settings, cursor: None, epoch: 0, position, absent, next, doubted: None }
    }

    /// Returns the number of blocks given, lost ones included: the position of the next.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Skips the blocks before a position.
    pub fn skip_to(&mut self, stream: &StoredStream, position: usize) {
        self.position = position.min(stream.blocks.len());
        self.absent = stream.absent.partition_point(|it| it.position < self.position);
        self.next = match stream.blocks.get(self.position) {
            Some(location) => location.block.sequence,
            None => stream.blocks.last().map_or(0, |location| location.block.sequence + 1),
        };
        self.cursor = None;
    }

    /// Returns the cursor with all blocks of the stream added; `None` before the first block.
    fn take_cursor(&mut self, stream: &StoredStream) -> Result<Option<Cursor>, StartError> {
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
    /// Opens a scan: its durable part, or all of it if it is not being recorded.
    pub fn open(roots: &[PathBuf], name: &ScanName) -> Result<Self, Error> {
        let mut inventory = Inventory::take(roots, name)?;
        let held = inventory.is_being_recorded();
        if !held {
            // The recorder may have sealed the scan since the manifest was read.
            inventory = Inventory::take(roots, name)?;
        }
        let status = status(held, &inventory);
        let mut follower = Self {
            roots: roots.to_vec(),
            // The first look finds everything written since the manifest was read.
            stamps: Vec::new(),
            scan: so_far(inventory),
            streams: Vec::new(),
            status,
            epoch: 0,
            looked_again: None,
        };
        follower.take_on_streams();
        follower.go_by_status()?;
        Ok(follower)
    }

    /// The scan: its streams hold the blocks that are durable and follow one another.
    pub fn scan(&self) -> &Scan {
        &self.scan
    }

    /// Ends the following and returns the scan.
    pub fn into_scan(self) -> Scan {
        self.scan
    }

    /// The state of the scan.
    pub fn status(&self) -> FollowState {
        self.status
    }

    /// Finds new durable blocks and updates the state of the scan.
    pub fn look(&mut self) -> Result<FollowState, Error> {
        if self.status.is_over() {
            return Ok(self.status);
        }
        // The order matters: what is read after the recorder has released its lock is complete.
        let held = self.scan.inventory.is_being_recorded();
        self.read_manifest()?;
        self.status = status(held, &self.scan.inventory);
        self.go_by_status()?;
        Ok(self.status)
    }

    fn go_by_status(&mut self) -> Result<(), Error> {
        match self.status {
            FollowState::Recording => self.read_indexes(),
            FollowState::Sealing => {}
            FollowState::Sealed | FollowState::Died => self.open_whole()?,
        }
        Ok(())
    }

    /// Waits until the next look. Returns `false` if `stop` was set.
    pub fn wait(&self, stop: &StopHandle) -> bool {
        !stop.wait(LOOK)
    }

    /// Returns the next item of a stream, as far as it is durable. A failed read is repeated before a loss is reported.
    pub fn next(&mut self, flow: &mut FollowCursor) -> Result<Option<Item>, Error> {
        loop {
            let Some(stream) = self.scan.streams.get(flow.number) else { return Ok(None) };
            if self.status == FollowState::Sealing {
                return Ok(None);
            }
            if flow.epoch != self.epoch {
                flow.epoch = self.epoch;
                let before = |location: &BlockLocation| location.block.sequence < flow.next;
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

    /// Returns true if the unreadable block is lost. If not, it must be read again: its file may have been renamed, or
    /// parity may help.
    fn is_believed(&mut self, flow: &mut FollowCursor, sequence: u64) -> Result<bool, Error> {
        if self.status.is_over() {
            return Ok(true);
        }
        self.read_manifest()?;
        if self.scan.manifest.state != State::Recording {
            // The block is read when no more files are renamed.
            self.status = FollowState::Sealing;
            return Ok(false);
        }
        if flow.doubted == Some(sequence) {
            return Ok(true);
        }
        flow.doubted = Some(sequence);
        self.look_again(flow.number)?;
        Ok(false)
    }

    /// Determines again the locations and stripes of a stream's blocks, at most once a second: a file may have been
    /// renamed, or parity may help.
    pub fn look_again(&mut self, number: usize) -> Result<(), Error> {
        if self.looked_again.is_some_and(|at| at.elapsed() < SECOND_LOOKS) {
            return Ok(());
        }
        let fresh = self.opened()?;
        let Some(fresh) = fresh.streams.into_iter().nth(number) else { return Ok(()) };
        let stream = &mut self.scan.streams[number];
        for location in &mut stream.blocks {
            let found =
                fresh.blocks.binary_search_by_key(&location.block.sequence, |it| it.block.sequence);
            if let Some(found) = found.ok().map(|at| &fresh.blocks[at])
                && found.block == location.block
            {
                location.path = found.path.clone();
                location.presence = found.presence;
                location.stripe = found.stripe.clone();
            }
        }
        self.looked_again = Some(Instant::now());
        Ok(())
    }

    /// Reads the manifest again if any copy of it has changed.
    fn read_manifest(&mut self) -> Result<(), Error> {
        // The stamps are taken before the files are read: a file that is replaced in between is read again.
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

    /// Takes a new inventory: known blocks and indexes keep their positions.
    fn take_on_inventory(&mut self, inventory: Inventory) {
        let before = std::mem::replace(&mut self.scan.inventory, inventory);
        let now = &self.scan.inventory;
        let place = |known: &MemberFiles| {
            let path = &before.roots[known.root].path;
            let is_it =
                |it: &MemberFiles| now.roots[it.root].path == *path && it.name == known.name;
            now.holdings.iter().position(is_it).unwrap_or(0)
        };
        let places: Vec<usize> = before.holdings.iter().map(place).collect();
        let blocks = self.scan.streams.iter_mut().flat_map(|stream| &mut stream.blocks);
        let waiting = self.streams.iter_mut().flat_map(|series| series.waiting.values_mut());
        for location in blocks.chain(waiting) {
            location.holding = places.get(location.holding).copied().unwrap_or(0);
        }
        // A member that was detached or attached changes the numbers of the others.
        if now.roots != before.roots {
            for (number, series) in self.streams.iter_mut().enumerate() {
                let mut tails: Vec<Option<IndexTail>> = series.tails.drain(..).map(Some).collect();
                let known = |root: &inventory::Root| {
                    before.roots.iter().position(|it| it.path == root.path)
                };
                let tail = |root| {
                    let tail = known(root).and_then(|at| tails.get_mut(at)?.take());
                    tail.unwrap_or_else(|| IndexTail::new(root, &self.scan.manifest, number))
                };
                series.tails = now.roots.iter().map(tail).collect();
            }
        }
    }

    /// Adds new streams of the manifest and updates the description of known ones.
    fn take_on_streams(&mut self) {
        let Self { scan, streams, .. } = self;
        let armed = scan.manifest.armed;
        for (number, told) in scan.manifest.streams.iter().enumerate() {
            match scan.streams.get_mut(number) {
                Some(stream) => stream.describe(told, armed),
                None => scan.streams.push(StoredStream::beginning(number, told, armed)),
            }
            if streams.len() <= number {
                let tail = |root| IndexTail::new(root, &scan.manifest, number);
                let tails = scan.inventory.roots.iter().map(tail).collect();
                streams.push(Series { tails, ..Series::default() });
            }
        }
    }

    /// Takes all blocks that have become durable since the last look.
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

    /// Returns true if a member has a new directory of a stream.
    fn lacks_holding(&self) -> bool {
        let inventory = &self.scan.inventory;
        let told = self.scan.manifest.streams.iter().zip(&self.streams);
        told.into_iter().any(|(told, series)| {
            let begun = |tail: &IndexTail| tail.taken == 0 && tail.index.index().durable > 0;
            let is_there = |root| {
                inventory.holdings.iter().any(|it| it.root == root && it.name == told.directory)
            };
            let tails = series.tails.iter().enumerate();
            tails.into_iter().any(|(root, tail)| begun(tail) && !is_there(root))
        })
    }

    /// Returns true if a member is not among the roots or has failed.
    fn lacks_member(&self) -> bool {
        let failed = self.scan.manifest.members.iter().any(|member| member.failure.is_some());
        failed || !self.scan.inventory.absent_members().is_empty()
    }

    /// Opens the scan like any other: it does not change any more.
    fn open_whole(&mut self) -> Result<(), Error> {
        self.scan = self.opened()?;
        self.streams.clear();
        self.epoch += 1;
        Ok(())
    }

    /// Returns true if the files of the scan were removed.
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

impl IndexTail {
    fn new(root: &inventory::Root, manifest: &Manifest, number: usize) -> Self {
        let directory = root.path.join(&manifest.streams[number].directory);
        let index = Growing::new(side_file(&directory, INDEX_FILE), manifest.uuid, number as u16);
        Self { index, taken: 0, bytes: 0 }
    }
}

impl Series {
    /// Continues to read the indexes.
    fn read_indexes(&mut self) {
        for tail in &mut self.tails {
            // An unreadable index yields nothing: the follower waits for its blocks.
            let _ = tail.index.look();
        }
    }

    /// Takes the blocks that have become durable, and all gaps.
    fn take_durable(&mut self, stream: &mut StoredStream, place: &Place<'_>) {
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

    /// Appends to the stream the blocks that directly follow its last one.
    fn hand_on(&mut self, stream: &mut StoredStream, place: &Place<'_>, overdue_ns: i64) {
        let before = stream.blocks.len();
        while let Some((&sequence, location)) = self.waiting.first_key_value() {
            let last = stream.blocks.last().map(|location| location.block);
            let next = last.map_or(0, |block| block.sequence + 1);
            if sequence < next {
                // The block was written to a member that failed, and again to another.
                self.waiting.pop_first();
                continue;
            }
            if sequence > next {
                let frames = last.map(|block| stream.end_of(&block)..location.block.first);
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
            stream.blocks.extend(self.waiting.pop_first().map(|(_, location)| location));
        }
        if stream.blocks.len() != before {
            stream.forget_clock();
        }
    }

    /// Returns true if so much data follows the awaited block that it will not arrive.
    fn is_overdue(&self, overdue_ns: i64) -> bool {
        let seen =
            |entry: Option<(&u64, &BlockLocation)>| entry.map(|(_, location)| location.block.seen);
        let ends = seen(self.waiting.first_key_value()).zip(seen(self.waiting.last_key_value()));
        ends.is_some_and(|(first, last)| last.since(first) >= overdue_ns)
    }

    /// Returns a block that has a record but no mark that covers it: its checksum decides.
    fn undurable(&self, sequence: u64, place: &Place<'_>) -> Option<BlockLocation> {
        let find = |(root, tail): (usize, &IndexTail)| {
            let blocks = tail.index.index().blocks.get(tail.taken..)?;
            let record = blocks.iter().find(|record| record.block.sequence == sequence)?;
            Some(place.of(root, record))
        };
        self.tails.iter().enumerate().find_map(find)
    }
}

/// The locations of a stream's blocks.
struct Place<'a> {
    inventory: &'a Inventory,
    directory: &'a str,
}

impl Place<'_> {
    /// Returns a block on a member: its chunk has its working name, or already its final name, where readers look next.
    fn of(&self, root: usize, record: &BlockRecord) -> BlockLocation {
        let Self { inventory, directory } = *self;
        let at = &inventory.roots[root];
        let file = format!("{}{PART_SUFFIX}", chunk_file(directory, record.block.chunk));
        let is_its = |it: &MemberFiles| it.root == root && it.name == directory;
        BlockLocation {
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

/// Returns a scan of which only the manifest is known.
fn so_far(inventory: Inventory) -> Scan {
    let manifest = inventory.manifest.clone();
    let findings = super::reader::findings_of_members(&inventory);
    Scan { manifest, inventory, streams: Vec::new(), findings }
}

/// Returns the state of a scan; `held` is the state of its lock before the manifest was read.
fn status(held: bool, inventory: &Inventory) -> FollowState {
    let manifest = &inventory.manifest;
    match (held, manifest.state) {
        (true, State::Recording) => FollowState::Recording,
        // Not every member has the last manifest yet.
        (true, _) if !copies_agree(inventory) => FollowState::Sealing,
        _ if is_settled(manifest) => FollowState::Sealed,
        (true, _) => FollowState::Sealing,
        (false, State::Recording) => FollowState::Died,
        // The recorder left some renumbering or redundancy undone, which other commands report.
        (false, _) => FollowState::Sealed,
    }
}

/// Returns true if all readable copies of the manifest agree.
fn copies_agree(inventory: &Inventory) -> bool {
    let mut holdings = inventory.holdings.iter();
    holdings.all(|it| !matches!(&it.manifest, Copy::Read(copy) if *copy != inventory.manifest))
}

/// Returns true if the recorder has finished with the files of the scan.
fn is_settled(manifest: &Manifest) -> bool {
    let follows = manifest.redundancy.is_some_and(|it| it.followed.is_none());
    let moves = manifest.streams.iter().any(is_to_be_renamed);
    manifest.state != State::Recording && !follows && !moves
}

/// Returns the stamps of the manifest copies in the first stream's directory on every member.
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
