//! Reading blocks from chunk files: direct where the file system takes it, ahead of who wants them.
//!
//! ```text
//! device 0   thread ─ read ─ check ─┐
//!            thread ─ read ─ check ─┤  by position
//! device 1   thread ─ read ─ check ─┼──► ready ──► next() ──► Delivered ──┐
//!            thread ─ read ─ check ─┘                                     │
//!                 ▲ pool of blocks in 2 MiB pages ◄───────────────────────┘ dropped
//! ```
//!
//! A thread reads one block and checks it while the others of its device keep the disk busy, so
//! neither waits for the other, and a block is checked by the core that asked for it.
//!
//! What is read may grow: whoever follows a recording adds extents as they become durable. Such readers are
//! *quiet*: the disk serves the recorder first.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

use fullbore_core::layout::ALIGNMENT;
use fullbore_core::manifest::SIDE_DIRECTORY;
use rustix::fs::{Advice, OFlags, fadvise};

use super::inventory::PART_SUFFIX;
use super::redundancy::{InStripe, Mender};
use crate::ring::{Block, Pool};
use crate::sys::memory::Region;
use crate::sys::sched;

/// How a reader uses memory and disks.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Threads for each device: as many reads are under way at once. More is slower.
    pub reads_per_device: usize,
    /// About how much memory is read ahead into.
    pub ahead_bytes: usize,
    /// Deliver blocks whose checksum is wrong, too, marked as such.
    pub allow_damaged: bool,
    /// Let everybody else use the disks first, where their scheduler takes a wish.
    pub quiet: bool,
}

impl Settings {
    /// Of whoever reads what is being recorded: few reads, little memory, and after the recorder.
    pub fn beside_a_recorder() -> Self {
        Self { reads_per_device: 1, ahead_bytes: 16 << 20, allow_damaged: false, quiet: true }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self { reads_per_device: 3, ahead_bytes: 48 << 20, allow_damaged: false, quiet: false }
    }
}

/// Blocks that a consumer may hold while it asks for the next.
const HELD: usize = 2;

/// Where some bytes lie, and what their checksum is.
#[derive(Clone, Debug)]
pub struct Extent {
    /// The chunk file.
    pub path: Arc<PathBuf>,
    /// The device it lies on.
    pub device: u64,
    /// Offset in the file.
    pub offset: u64,
    /// How many bytes.
    pub bytes: u32,
    /// CRC32C of them.
    pub crc: u32,
    /// What they can be made of again if they are not there as they were written.
    pub stripe: Option<InStripe>,
}

/// Why an extent's bytes are not what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// They have another checksum; it is told so that misplaced blocks can be found.
    Checksum {
        /// That of the bytes found.
        found: u32,
    },
    /// The file ends before them.
    Short {
        /// Bytes that are there.
        got: u32,
    },
    /// The system refused.
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
    pub fn read(&mut self, extent: &Extent, block: &mut [u8]) -> Result<(), Fault> {
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

    /// Fills `buffer` from a file as far as the file goes, and says how far.
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
            // Some file systems take the flag and refuse the read.
            Err(error) if open.direct && error.raw_os_error() == Some(libc::EINVAL) => {
                (open.file, open.direct) = (File::open(path.as_path())?, false);
            }
            Ok(got) if !open.direct => {
                // What was read once is of no use in the page cache, and would push out what is.
                let _ = fadvise(&open.file, at, None, Advice::DontNeed);
                return Ok(got);
            }
            result => return result,
        }
        fill(&open.file, at, buffer)
    }

    /// Whether what was read last came from the device, and not from what the kernel remembers of it.
    pub fn is_direct(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.direct)
    }
}

/// A whole file, from its beginning on, in the way in which extents are read.
#[derive(Debug)]
pub struct WholeFile<'a> {
    reader: &'a mut ExtentReader,
    path: Arc<PathBuf>,
    /// Aligned, and whole pages.
    memory: &'a mut [u8],
    at: u64,
    left: Range<usize>,
    ended: bool,
}

impl<'a> WholeFile<'a> {
    /// By way of some memory that blocks are read into.
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

/// The length that direct I/O wants for so many bytes.
pub fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGNMENT as usize)
}

fn open(path: &Arc<PathBuf>) -> io::Result<Opened> {
    let (file, direct) = match open_file(path) {
        // A chunk is put in its place once it is full, and never taken back.
        Err(error) if error.kind() == io::ErrorKind::NotFound => match place_of_part(path) {
            Some(place) => open_file(&place)?,
            None => return Err(error),
        },
        opened => opened?,
    };
    Ok(Opened { path: path.clone(), file, direct })
}

fn open_file(path: &Path) -> io::Result<(File, bool)> {
    let direct =
        OpenOptions::new().read(true).custom_flags(OFlags::DIRECT.bits() as i32).open(path);
    match direct {
        Ok(file) => Ok((file, true)),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok((buffered(path)?, false)),
        Err(error) => Err(error),
    }
}

/// Where the file of a chunk that was being filled lies when it is complete.
fn place_of_part(path: &Path) -> Option<PathBuf> {
    let side = path.parent().filter(|it| it.ends_with(SIDE_DIRECTORY))?;
    let name = path.file_name()?.to_str()?.strip_suffix(PART_SUFFIX)?;
    Some(side.parent()?.join(name))
}

fn buffered(path: &Path) -> io::Result<File> {
    let file = File::open(path)?;
    // Advice only: a refusal changes nothing but the speed.
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
                // Direct reads stop short of their length only at the end of the file.
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

/// What reading needs could not be had.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Memory.
    #[error("taking {bytes} bytes of memory to read into: {source}")]
    Memory {
        /// What was asked for.
        bytes: usize,
        /// Why not.
        source: io::Error,
    },
    /// Threads.
    #[error("starting threads to read with: {source}")]
    Threads {
        /// Why not.
        source: io::Error,
    },
}

/// A pool of `blocks` blocks to read into.
pub fn pool(blocks: usize, block_bytes: usize) -> Result<Pool, StartError> {
    let block_bytes = aligned(block_bytes.max(1));
    let bytes = blocks * block_bytes;
    let region = Region::new(bytes).map_err(|source| StartError::Memory { bytes, source })?;
    Ok(Pool::new(Arc::new(region), block_bytes, 0))
}

/// Extents in order, read ahead.
#[derive(Debug)]
pub struct Ahead {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Threads of each device.
    reads: usize,
    block_bytes: usize,
    next: usize,
    end: usize,
}

struct Shared {
    allow_damaged: bool,
    quiet: bool,
    /// Whether more extents may come.
    growing: bool,
    /// How far ahead of the consumer a block may be read: all that are have memory.
    window: usize,
    state: Mutex<State>,
    /// A block came back, the window moved, or there is more to read.
    room: Condvar,
    /// A block was read.
    ready: Condvar,
}

struct State {
    pool: Pool,
    /// What is to be read, from the first that was not consumed on.
    extents: VecDeque<Extent>,
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

/// What became of one extent: its bytes, or why not; both if damaged bytes are wanted.
pub type Outcome = (Option<Loan>, Option<Fault>);

impl Ahead {
    /// Starts to read `extents`, none of them longer than `block_bytes`.
    pub fn start(
        extents: Vec<Extent>,
        block_bytes: usize,
        settings: Settings,
    ) -> Result<Self, StartError> {
        let most = extents.len();
        Self::of(extents, block_bytes, settings, most, false)
    }

    /// The same for what is read several times in a row, one turn [added](Self::extend) behind the other.
    pub fn start_in_turns(
        extents: Vec<Extent>,
        block_bytes: usize,
        settings: Settings,
    ) -> Result<Self, StartError> {
        // A whole turn of a short stream can be ready while the last one is played.
        let most = 2 * extents.len();
        Self::of(extents, block_bytes, settings, most, true)
    }

    /// Of which `most` can be worth having in memory.
    fn of(
        extents: Vec<Extent>,
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

    /// A reader that has nothing to read yet.
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

    /// Adds what is to be read behind all that was added before.
    pub fn extend(&mut self, extents: impl IntoIterator<Item = Extent>) -> Result<(), StartError> {
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
                    // Every device has a thread already; fewer than wished for are only slower.
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
    fn add(&mut self, position: usize, extent: Extent) {
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

    /// The next extent's outcome, in order.
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
            // A reader that panicked has said so on standard error.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// A thread that panicked left the state whole: every change of it is one statement.
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
        // A wish: where it is refused, reads are as urgent as others'.
        let _ = sched::use_disks_last();
    }
    let mut reader = ExtentReader::default();
    let mut mender = Mender::default();
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

/// The next position of a lane, once it is within the window, with memory for it.
fn claim(shared: &Shared, lane: usize) -> Option<(usize, Extent, Block)> {
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

    fn file(directory: &Path, name: &str, blocks: u8) -> Vec<Extent> {
        let path = Arc::new(directory.join(name));
        let bytes: Vec<u8> = (0..blocks).flat_map(|block| vec![block; BLOCK]).collect();
        std::fs::write(path.as_path(), &bytes).unwrap();
        (0..blocks)
            .map(|block| Extent {
                path: path.clone(),
                device: u64::from(name.as_bytes()[0]),
                offset: u64::from(block) * BLOCK as u64,
                bytes: BLOCK as u32,
                crc: crc32c::crc32c(&vec![block; BLOCK]),
                stripe: None,
            })
            .collect()
    }

    /// Until so many blocks have been read that nobody has asked for yet.
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
        let extents: Vec<Extent> =
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
        extents.push(Extent { offset: 3 * BLOCK as u64 - 4096, ..extents[2].clone() });
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
