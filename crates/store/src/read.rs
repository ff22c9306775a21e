//! Reads blocks from chunk files: with direct I/O where supported, and ahead of the consumer.
//!
//! ```text
//! device 0   thread ─ read ─ check ─┐
//!            thread ─ read ─ check ─┤  by position
//! device 1   thread ─ read ─ check ─┼──► ready ──► next() ──► Delivered ──┐
//!            thread ─ read ─ check ─┘                                     │
//!                 ▲ pool of blocks in 2 MiB pages ◄───────────────────────┘ dropped
//! ```
//!
//! A thread reads one block and checks it while the other threads of the device keep the disk busy. So neither waits
//! for the other, and the core that requested a block also checks it.
//!
//! The list of extents may grow: a reader that follows a recording adds extents as they become durable. Such readers
//! are *quiet*: the disk serves the recorder first.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

use fullbore_core::layout::ALIGNMENT;
use fullbore_core::manifest::SIDE_DIRECTORY;
use fullbore_linux::regular_file;
use fullbore_linux::ring::{Block, Pool};
use fullbore_linux::sys::memory::Region;
use fullbore_linux::sys::sched;
use rustix::fs::{Advice, OFlags, fadvise};

use super::inventory::PART_SUFFIX;
use super::redundancy::{InStripe, RowReconstructor};

/// The use of memory and disks by a reader.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Threads for each device, which is the number of concurrent reads. More is slower.
    pub reads_per_device: usize,
    /// The approximate size of the read-ahead memory.
    pub ahead_bytes: usize,
    /// Deliver blocks whose checksum is wrong, too, marked as damaged.
    pub allow_damaged: bool,
    /// Give other processes priority on the disks, where the I/O scheduler supports it.
    pub quiet: bool,
}

impl Settings {
    /// Returns settings for reading a scan that is being recorded: few reads, little memory, and lower priority than
    /// the recorder.
    pub fn beside_a_recorder() -> Self {
        Self { reads_per_device: 1, ahead_bytes: 16 << 20, allow_damaged: false, quiet: true }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self { reads_per_device: 3, ahead_bytes: 48 << 20, allow_damaged: false, quiet: false }
    }
}

/// Blocks that a consumer may hold while it requests the next.
const HELD: usize = 2;

/// The location of some bytes and their checksum.
#[derive(Clone, Debug)]
pub struct BlockExtent {
    /// The chunk file.
    pub path: Arc<PathBuf>,
    /// The device of the file.
    pub device: u64,
    /// Offset in the file.
    pub offset: u64,
    /// The number of bytes.
    pub bytes: u32,
    /// The CRC32C of the bytes.
    pub crc: u32,
    /// The stripe that the bytes can be restored from if they are damaged or missing.
    pub stripe: Option<InStripe>,
}

/// The reason why an extent's bytes differ from what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The checksum differs; it is reported so that misplaced blocks can be found.
    Checksum {
        /// The checksum of the bytes found.
        found: u32,
    },
    /// The file ends before the end of the extent.
    Short {
        /// Bytes that exist.
        got: u32,
    },
    /// The system returned an error.
    System(String),
}

/// Reads extents one after the other, and keeps the last file open.
#[derive(Debug, Default)]
pub struct ExtentReader {
    open: Option<Opened>,
}

#[derive(Debug)]
struct Opened {
    path: Arc<PathBuf>,
    file: File,
    direct: bool,
}

impl ExtentReader {
    /// Reads an extent into the start of `block`, which is aligned and long enough, and checks it.
    pub fn read(&mut self, extent: &BlockExtent, block: &mut [u8]) -> Result<(), Fault> {
        let wanted = extent.bytes as usize;
        let got = self
            .read_at(&extent.path, extent.offset, &mut block[..aligned(wanted)])
            .map_err(|error| Fault::System(error.to_string()))?;
        if got < wanted {
            return Err(Fault::Short { got: got as u32 });
        }
        match crc32c::crc32c(&block[..wanted]) {
            found if found == extent.crc => Ok(()),
            found => Err(Fault::Checksum { found }),
        }
    }

    /// Fills `buffer` from a file up to the end of the file, and returns the number of bytes read.
    pub fn read_at(
        &mut self,
        path: &Arc<PathBuf>,
        at: u64,
        buffer: &mut [u8],
    ) -> io::Result<usize> {
        if self.open.as_ref().is_none_or(|open| open.path != *path) {
            self.open = Some(open(path)?);
        }
        let open = self.open.as_mut().expect("opened above");
        match fill(&open.file, at, buffer) {
            // Some file systems accept the flag and refuse the read.
            Err(error) if open.direct && error.raw_os_error() == Some(libc::EINVAL) => {
                (open.file, open.direct) = (open_with(OFlags::empty(), path)?, false);
            }
            Ok(got) if !open.direct => {
                // Data that is read once only would push more useful data out of the page cache.
                let _ = fadvise(&open.file, at, None, Advice::DontNeed);
                return Ok(got);
            }
            result => return result,
        }
        fill(&open.file, at, buffer)
    }

    /// Returns true if the last read came from the device, and not from the page cache.
    pub fn is_direct(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.direct)
    }
}

/// A whole file, read from its beginning in the same way as extents.
#[derive(Debug)]
pub struct WholeFile<'a> {
    reader: &'a mut ExtentReader,
    path: Arc<PathBuf>,
    /// Aligned memory, whole pages.
    memory: &'a mut [u8],
    at: u64,
    left: Range<usize>,
    ended: bool,
}

impl<'a> WholeFile<'a> {
    /// Reads through the given memory, which blocks are also read into.
    pub fn new(reader: &'a mut ExtentReader, path: Arc<PathBuf>, memory: &'a mut [u8]) -> Self {
        Self { reader, path, memory, at: 0, left: 0..0, ended: false }
    }
}

impl io::Read for WholeFile<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.left.is_empty() && !self.ended {
            let got = self.reader.read_at(&self.path, self.at, self.memory)?;
            self.at += got as u64;
            (self.left, self.ended) = (0..got, got < self.memory.len());
        }
        let count = into.len().min(self.left.len());
        let from = self.left.start;
        into[..count].copy_from_slice(&self.memory[from..from + count]);
        self.left.start += count;
        Ok(count)
    }
}

/// Returns the length that direct I/O needs for this many bytes.
pub fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGNMENT as usize)
}

fn open(path: &Arc<PathBuf>) -> io::Result<Opened> {
    let (file, direct) = match open_file(path) {
        // A chunk is renamed into place once it is full, and never renamed back.
        Err(error) if error.kind() == io::ErrorKind::NotFound => match place_of_part(path) {
            Some(place) => open_file(&place)?,
            None => return Err(error),
        },
        opened => opened?,
    };
    Ok(Opened { path: path.clone(), file, direct })
}

fn open_file(path: &Path) -> io::Result<(File, bool)> {
    match open_with(OFlags::DIRECT, path) {
        Ok(file) => Ok((file, true)),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok((buffered(path)?, false)),
        Err(error) => Err(error),
    }
}

/// Opens a chunk, or a drive without a file system.
fn open_with(flags: OFlags, path: &Path) -> io::Result<File> {
    regular_file::open_file_or_drive(OpenOptions::new().read(true), flags, path)
}

/// Returns the final path of a chunk that was being filled.
fn place_of_part(path: &Path) -> Option<PathBuf> {
    let side = path.parent().filter(|it| it.ends_with(SIDE_DIRECTORY))?;
    let name = path.file_name()?.to_str()?.strip_suffix(PART_SUFFIX)?;
    Some(side.parent()?.join(name))
}

fn buffered(path: &Path) -> io::Result<File> {
    let file = open_with(OFlags::empty(), path)?;
    // Advice only: a refusal affects only the speed.
    let _ = fadvise(&file, 0, None, Advice::Sequential);
    Ok(file)
}

fn fill(file: &File, mut at: u64, mut buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while !buffer.is_empty() {
        match rustix::io::pread(file, &mut *buffer, at) {
            Ok(0) => break,
            Ok(got) => {
                filled += got;
                at += got as u64;
                buffer = &mut buffer[got..];
                // Direct reads return fewer bytes only at the end of the file.
                if !got.is_multiple_of(ALIGNMENT as usize) {
                    break;
                }
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(filled)
}

/// Memory or threads for reading are not available.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Memory is not available.
    #[error("cannot allocate {bytes} bytes of read memory: {source}")]
    Memory {
        /// The number of bytes requested.
        bytes: usize,
        /// The reason.
        source: io::Error,
    },
    /// Threads are not available.
    #[error("cannot start read threads: {source}")]
    Threads {
        /// The reason.
        source: io::Error,
    },
}

/// Makes a pool of `blocks` blocks to read into.
pub fn pool(blocks: usize, block_bytes: usize) -> Result<Pool, StartError> {
    let block_bytes = aligned(block_bytes.max(1));
    let bytes = blocks * block_bytes;
    let region = Region::new(bytes).map_err(|source| StartError::Memory { bytes, source })?;
    Ok(Pool::new(Arc::new(region), block_bytes, 0))
}

/// Reads extents in order, ahead of the consumer.
#[derive(Debug)]
pub struct Ahead {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// The number of threads of each device.
    reads: usize,
    block_bytes: usize,
    next: usize,
    end: usize,
}

struct Shared {
    allow_damaged: bool,
    quiet: bool,
    /// True if more extents may come.
    growing: bool,
    /// The number of blocks that may be read ahead of the consumer: each of them has memory.
    window: usize,
    state: Mutex<State>,
    /// A block was returned, the window moved, or more extents were added.
    room: Condvar,
    /// A block was read.
    ready: Condvar,
}

struct State {
    pool: Pool,
    /// The extents to read, from the first one not consumed.
    extents: VecDeque<BlockExtent>,
    lanes: Vec<Waiting>,
    consumed: usize,
    done: BTreeMap<usize, (Option<Block>, Option<Fault>)>,
    closed: bool,
}

/// Positions still to be read from one device, in order.
struct Waiting {
    device: u64,
    positions: VecDeque<usize>,
}

/// A block's memory on loan to the consumer.
#[derive(Debug)]
pub struct Loan {
    block: Option<Block>,
    bytes: usize,
    shared: Arc<Shared>,
}

impl Loan {
    /// The block's bytes.
    pub fn bytes(&self) -> &[u8] {
        let block = self.block.as_ref().expect("given back only when dropped");
        &block[..self.bytes]
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            self.shared.lock().pool.put(block);
            self.shared.room.notify_all();
        }
    }
}

/// The result of reading an extent: its bytes or the fault; both if damaged bytes are delivered.
pub type Outcome = (Option<Loan>, Option<Fault>);

impl Ahead {
    /// Starts to read `extents`, none of them longer than `block_bytes`.
    pub fn start(
        extents: Vec<BlockExtent>,
        block_bytes: usize,
        settings: Settings,
    ) -> Result<Self, StartError> {
        let most = extents.len();
        Self::of(extents, block_bytes, settings, most, false)
    }

    /// The same for extents that are read several times in a row, one turn [added](Self::extend) behind the other.
    pub fn start_in_turns(
        extents: Vec<BlockExtent>,
        block_bytes: usize,
        settings: Settings,
    ) -> Result<Self, StartError> {
        // A whole turn of a short stream can be ready while the last one is played.
        let most = 2 * extents.len();
        Self::of(extents, block_bytes, settings, most, true)
    }

    /// Starts a reader; at most `most` blocks are worth holding in memory at once.
    fn of(
        extents: Vec<BlockExtent>,
        block_bytes: usize,
        settings: Settings,
        most: usize,
        growing: bool,
    ) -> Result<Self, StartError> {
        let devices: BTreeSet<u64> = extents.iter().map(|extent| extent.device).collect();
        let reads = settings.reads_per_device.max(1);
        let least = reads * devices.len().max(1) + HELD + 1;
        let wanted = settings.ahead_bytes / aligned(block_bytes.max(1));
        let blocks = wanted.max(least).min(most + HELD);
        let mut ahead = Self::with(blocks, block_bytes, settings, growing)?;
        ahead.extend(extents)?;
        Ok(ahead)
    }

    /// Returns a reader without any extents yet.
    pub fn growing(block_bytes: usize, settings: Settings) -> Result<Self, StartError> {
        let wanted = settings.ahead_bytes / aligned(block_bytes.max(1));
        Self::with(wanted.max(HELD + 2), block_bytes, settings, true)
    }

    fn with(
        blocks: usize,
        block_bytes: usize,
        settings: Settings,
        growing: bool,
    ) -> Result<Self, StartError> {
        let pool = pool(blocks.max(1), block_bytes)?;
        let window = pool.blocks().saturating_sub(HELD).max(1);
        let shared = Arc::new(Shared {
            allow_damaged: settings.allow_damaged,
            quiet: settings.quiet,
            growing,
            window,
            state: Mutex::new(State {
                pool,
                extents: VecDeque::new(),
                lanes: Vec::new(),
                consumed: 0,
                done: BTreeMap::new(),
                closed: false,
            }),
            room: Condvar::new(),
            ready: Condvar::new(),
        });
        let (threads, reads) = (Vec::new(), settings.reads_per_device.max(1));
        Ok(Self { shared, threads, reads, block_bytes, next: 0, end: 0 })
    }

    /// Adds extents behind all that were added before.
    pub fn extend(
        &mut self,
        extents: impl IntoIterator<Item = BlockExtent>,
    ) -> Result<(), StartError> {
        let mut state = self.shared.lock();
        let known = state.lanes.len();
        for extent in extents {
            let (bytes, most) = (extent.bytes as usize, self.block_bytes);
            assert!(bytes <= most, "an extent of {bytes} bytes in blocks of {most}");
            state.add(self.end, extent);
            self.end += 1;
        }
        let lanes = state.lanes.len();
        drop(state);
        self.shared.room.notify_all();
        for number in 0..self.reads {
            for lane in known..lanes {
                match self.spawn(lane, number) {
                    Ok(thread) => self.threads.push(thread),
                    // Every device has a thread already; fewer threads than requested are only slower.
                    Err(_) if number > 0 => return Ok(()),
                    Err(source) => return Err(StartError::Threads { source }),
                }
            }
        }
        Ok(())
    }

    fn spawn(&self, lane: usize, number: usize) -> io::Result<JoinHandle<()>> {
        let shared = self.shared.clone();
        let thread = std::thread::Builder::new().name(format!("read {lane}.{number}"));
        thread.spawn(move || read_lane(&shared, lane))
    }
}

impl State {
    fn add(&mut self, position: usize, extent: BlockExtent) {
        let lane = self.lanes.iter().position(|lane| lane.device == extent.device);
        let lane = lane.unwrap_or_else(|| {
            let positions = VecDeque::new();
            self.lanes.push(Waiting { device: extent.device, positions });
            self.lanes.len() - 1
        });
        self.lanes[lane].positions.push_back(position);
        self.extents.push_back(extent);
    }
}

impl Iterator for Ahead {
    type Item = Outcome;

    /// The result of the next extent, in order.
    fn next(&mut self) -> Option<Outcome> {
        if self.next == self.end {
            return None;
        }
        let mut state = self.shared.lock();
        let (block, fault) = loop {
            if let Some(outcome) = state.done.remove(&self.next) {
                break outcome;
            }
            state = self.shared.ready.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        };
        state.consumed = self.next + 1;
        let extent = state.extents.pop_front().expect("what was read was to be read");
        drop(state);
        self.shared.room.notify_all();
        let bytes = extent.bytes as usize;
        self.next += 1;
        let loan =
            block.map(|block| Loan { block: Some(block), bytes, shared: self.shared.clone() });
        Some((loan, fault))
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.room.notify_all();
        for thread in self.threads.drain(..) {
            // A reader that panicked has printed its message on standard error.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Locks the state. A thread that panicked leaves it consistent, because every change is one statement.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shared({} ahead)", self.window)
    }
}

fn read_lane(shared: &Shared, lane: usize) {
    if shared.quiet {
        // A request: if it is refused, reads have normal priority.
        let _ = sched::use_disks_last();
    }
    let mut reader = ExtentReader::default();
    let mut mender = RowReconstructor::default();
    while let Some((position, extent, mut block)) = claim(shared, lane) {
        let mut fault = reader.read(&extent, &mut block).err();
        if fault.is_some() && mender.mend(&extent, &mut block) {
            fault = None;
        }
        let wanted = match &fault {
            None => true,
            Some(Fault::Checksum { .. }) => shared.allow_damaged,
            Some(Fault::Short { .. } | Fault::System(_)) => false,
        };
        let mut state = shared.lock();
        let block = if wanted {
            Some(block)
        } else {
            state.pool.put(block);
            None
        };
        state.done.insert(position, (block, fault));
        drop(state);
        shared.ready.notify_one();
    }
}

/// Returns the next position of a queue, once it is within the window, with memory for it.
fn claim(shared: &Shared, lane: usize) -> Option<(usize, BlockExtent, Block)> {
    let mut state = shared.lock();
    loop {
        if state.closed {
            return None;
        }
        match state.lanes[lane].positions.front().copied() {
            None if !shared.growing => return None,
            None => {}
            Some(position) => {
                if position < state.consumed + shared.window
                    && let Some(block) = state.pool.take()
                {
                    state.lanes[lane].positions.pop_front();
                    let extent = state.extents[position - state.consumed].clone();
                    return Some((position, extent, block));
                }
            }
        }
        state = shared.room.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const BLOCK: usize = 8192;

    fn file(directory: &Path, name: &str, blocks: u8) -> Vec<BlockExtent> {
        let path = Arc::new(directory.join(name));
        let bytes: Vec<u8> = (0..blocks).flat_map(|block| vec![block; BLOCK]).collect();
        std::fs::write(path.as_path(), &bytes).unwrap();
        (0..blocks)
            .map(|block| BlockExtent {
                path: path.clone(),
                device: u64::from(name.as_bytes()[0]),
                offset: u64::from(block) * BLOCK as u64,
                bytes: BLOCK as u32,
                crc: crc32c::crc32c(&vec![block; BLOCK]),
                stripe: None,
            })
            .collect()
    }

    /// Waits until this many blocks have been read that the consumer has not requested yet.
    fn wait_for_ready(ahead: &Ahead, blocks: usize) {
        let mut state = ahead.shared.lock();
        while state.done.len() < blocks {
            let (next, waited) =
                ahead.shared.ready.wait_timeout(state, Duration::from_secs(60)).unwrap();
            assert!(!waited.timed_out(), "{} of {blocks} blocks were read", next.done.len());
            state = next;
        }
    }

    #[test]
    fn the_next_turn_is_read_while_the_last_block_of_this_one_is_held() {
        let directory = tempfile::tempdir().unwrap();
        for blocks in [1, 2, 5, 40] {
            let extents = file(directory.path(), "a", blocks);
            let mut ahead =
                Ahead::start_in_turns(extents.clone(), BLOCK, Settings::default()).unwrap();
            for turn in 0..3 {
                ahead.extend(extents.clone()).unwrap();
                let mut held = None;
                for block in 0..blocks {
                    drop(held.take());
                    let (loan, fault) = ahead.next().unwrap();
                    assert_eq!(fault, None);
                    assert_eq!(loan.as_ref().unwrap().bytes()[0], block, "{blocks} in turn {turn}");
                    held = loan;
                }
                wait_for_ready(&ahead, usize::from(blocks.min(2)));
            }
        }
    }

    #[test]
    fn blocks_of_two_devices_come_in_the_order_asked_for_whatever_is_held() {
        let directory = tempfile::tempdir().unwrap();
        let (a, b) = (file(directory.path(), "a", 40), file(directory.path(), "b", 40));
        let extents: Vec<BlockExtent> =
            a.chunks(7).zip(b.chunks(7)).flat_map(|(a, b)| [a, b].concat()).collect();
        let expected: Vec<u8> = extents.iter().map(|e| (e.offset / BLOCK as u64) as u8).collect();
        let settings = Settings { ahead_bytes: 0, ..Settings::default() };
        let ahead = Ahead::start(extents, BLOCK, settings).unwrap();
        let mut held = VecDeque::new();
        let mut got = Vec::new();
        for (loan, fault) in ahead {
            assert_eq!(fault, None);
            let loan = loan.unwrap();
            got.push(loan.bytes()[BLOCK - 1]);
            held.push_back(loan);
            if held.len() > HELD - 1 {
                held.pop_front();
            }
        }
        assert_eq!(got, expected);
    }

    #[test]
    fn damaged_bytes_are_given_only_when_asked_for() {
        let directory = tempfile::tempdir().unwrap();
        let mut extents = file(directory.path(), "a", 3);
        extents[1].crc ^= 1;
        extents.push(BlockExtent { offset: 3 * BLOCK as u64 - 4096, ..extents[2].clone() });
        for allow_damaged in [false, true] {
            let settings = Settings { allow_damaged, ..Settings::default() };
            let mut ahead = Ahead::start(extents.clone(), BLOCK, settings).unwrap();
            let outcomes: Vec<(bool, Option<Fault>)> = std::iter::from_fn(|| ahead.next())
                .map(|(loan, fault)| (loan.is_some(), fault))
                .collect();
            assert_eq!(outcomes[0], (true, None));
            assert_eq!(outcomes[1].0, allow_damaged);
            assert!(matches!(outcomes[1].1, Some(Fault::Checksum { .. })));
            assert_eq!(outcomes[3], (false, Some(Fault::Short { got: 4096 })));
        }
    }

    #[test]
    fn a_reader_can_be_dropped_before_its_end() {
        let directory = tempfile::tempdir().unwrap();
        let extents = file(directory.path(), "a", 40);
        let mut ahead = Ahead::start(extents, BLOCK, Settings::default()).unwrap();
        assert!(ahead.next().is_some());
    }

    #[test]
    fn what_grows_is_read_as_it_comes_and_a_chunk_is_found_in_its_place() {
        let directory = tempfile::tempdir().unwrap();
        let side = directory.path().join(SIDE_DIRECTORY);
        std::fs::create_dir(&side).unwrap();
        let extents = file(&side, "a.00000000.part", 6);
        let mut ahead = Ahead::growing(BLOCK, Settings::beside_a_recorder()).unwrap();
        let mut got = Vec::new();
        let mut take = |ahead: &mut Ahead| {
            for (loan, fault) in ahead {
                assert_eq!(fault, None);
                got.push(loan.unwrap().bytes()[0]);
            }
        };
        ahead.extend(extents[..2].to_vec()).unwrap();
        take(&mut ahead);
        take(&mut ahead);
        let place = directory.path().join("a.00000000");
        std::fs::rename(side.join("a.00000000.part"), place).unwrap();
        ahead.extend(extents[2..5].to_vec()).unwrap();
        take(&mut ahead);
        // A reader that begins only now has no file open.
        let mut late = Ahead::growing(BLOCK, Settings::beside_a_recorder()).unwrap();
        late.extend(extents[5..].to_vec()).unwrap();
        take(&mut late);
        assert_eq!(got, [0, 1, 2, 3, 4, 5]);
    }
}
