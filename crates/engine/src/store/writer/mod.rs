//! The writer of a member: one thread that turns blocks into chunks, an index, and durable marks.
//!
//! ```text
//! lanes ──Write──► chunk ──► disk ──completed──► released in order ──► Returned::Written
//!                                                      │
//!                                     journal: records ──► syncs ──► Report::Durable
//! ```
//!
//! The loop takes commands, keeps [`Settings::depth_bytes`] of writes under way, starts rounds when
//! they are due, and sleeps on nothing but its ring. It is written against [`Disk`], so the same code
//! runs on a real directory and on a disk that fails by a seed.
//!
//! What goes wrong is told once per member, in [`Report::Failed`]; the member then takes no new data,
//! gives back what it has not written, and still finishes what it has. Every [`Command::Finish`] is
//! answered by one [`Report::Finished`]; what could not be made durable was named as suspect before. A writer
//! that cannot go on at all says [`Report::Gone`], and nobody waits for it.

mod blocks;
mod ending;
mod failure;
mod files;
mod rounds;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fullbore_core::layout::ALIGNMENT;
use uuid::Uuid;

use self::failure::Failure;
use super::chunk::Flight;
use super::disk::{Completion, Disk, Local, Operation};
use super::journal::Part;
use super::member::Member;
use super::stream::{Key, Stream};
use crate::posting::{self, Posting};
use crate::ring::{Block, Command, Gauge, Pool, Report, Returned, Track, Wake};
use crate::sys::memory::Region;
use crate::sys::uring::RingError;

/// The queues between a writer and one capture thread.
pub struct Lane {
    /// What the capture thread asks for.
    pub commands: rtrb::Consumer<Command>,
    /// What it gets back. Best with room for every block of the thread's pools.
    pub returned: rtrb::Producer<Returned>,
}

/// How a writer works.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The member's place in the disk set, for reports.
    pub member: usize,
    /// Bytes of writes under way at once. More adds latency and blocks to the pool; with less, a disk
    /// waits whenever the kernel threads that complete its writes wait for a CPU.
    pub depth_bytes: u64,
    /// Space for a chunk is taken in steps of so many bytes, before blocks need it. Streams with large chunks then
    /// share a disk that cannot hold a whole chunk of each.
    pub step_bytes: u64,
    /// A round of syncs starts after so many bytes …
    pub round_bytes: u64,
    /// … or after this time.
    pub round_interval: Duration,
    /// Where to run, and how urgently.
    pub posting: Posting,
    /// Memory that blocks will come from: pinned by the kernel before the first of them, if it does that.
    pub memory: Vec<Arc<Region>>,
    /// Where to tell how long each block took, for whoever measures.
    pub timings: Option<mpsc::Sender<Timing>>,
}

/// How long the write of a block took.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// The member's place in the disk set.
    pub member: usize,
    /// The chunk.
    pub chunk: u32,
    /// Where in the chunk.
    pub offset: u64,
    /// How many bytes.
    pub bytes: u32,
    /// When it was completed.
    pub at: Instant,
    /// From submission to completion.
    pub took: Duration,
}

impl Settings {
    /// What is recommended, for the member at this place of the disk set.
    pub fn of_member(member: usize) -> Self {
        Self {
            member,
            depth_bytes: 32 << 20,
            step_bytes: u64::MAX,
            round_bytes: 256 << 20,
            round_interval: Duration::from_millis(250),
            posting: Posting::default(),
            memory: Vec::new(),
            timings: None,
        }
    }
}

/// Why a writer did not start.
#[derive(Debug, thiserror::Error)]
pub enum WriterError {
    /// It has no ring.
    #[error("{}: its writer cannot start: {source}", root.display())]
    Ring {
        /// The member.
        root: PathBuf,
        /// What is missing.
        source: RingError,
    },
    /// It has no thread.
    #[error("{}: no thread for its writer: {source}", root.display())]
    Thread {
        /// The member.
        root: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

impl WriterError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Ring { source, .. } => source.hint(),
            Self::Thread { .. } => "raise the limit of threads (`ulimit -u`)",
        }
    }
}

/// A running writer. It ends when the capture end of every lane is gone and all streams are closed.
pub struct Writer {
    thread: JoinHandle<()>,
    wake: Arc<Wake>,
    standing: posting::Standing,
    unpinned: Option<io::Error>,
}

impl Writer {
    /// Where its thread runs, and how urgently.
    pub fn standing(&self) -> &posting::Standing {
        &self.standing
    }

    /// Why the kernel has not pinned all of the memory that it was told of, if it has not.
    pub fn unpinned(&self) -> Option<&io::Error> {
        self.unpinned.as_ref()
    }

    /// Waits for its end. The lanes' capture ends must have been dropped.
    pub fn join(self) -> std::thread::Result<()> {
        self.wake.wake();
        self.thread.join()
    }
}

/// Starts the writer of a member. `wake` is what capture threads call after they have pushed.
pub fn spawn(
    member: &Member,
    lanes: Vec<Lane>,
    gauge: Arc<Gauge>,
    reports: mpsc::Sender<Report>,
    wake: Arc<Wake>,
    settings: Settings,
) -> Result<Writer, WriterError> {
    let (ready, answer) = mpsc::channel();
    let (owner, waker, root) = (member.clone(), wake.clone(), member.root().to_owned());
    let thread_error = |source| WriterError::Thread { root: root.clone(), source };
    let mut settings = settings;
    let run = move || {
        let standing = settings.posting.take_up();
        // The ring belongs to the thread that makes it.
        let mut disk = match Local::new(&owner, waker) {
            Ok(disk) => disk,
            Err(error) => return drop(ready.send(Err(error))),
        };
        let unpinned = disk.pin(&std::mem::take(&mut settings.memory)).err();
        if ready.send(Ok((standing, unpinned))).is_ok() {
            let root = owner.root().to_owned();
            Engine::new(disk, owner.uuid(), root, lanes, gauge, reports, settings).run();
        }
    };
    let name = format!("fb-write-{}", member_name(member));
    let thread = std::thread::Builder::new().name(name).spawn(run).map_err(thread_error)?;
    match answer.recv() {
        Ok(Ok((standing, unpinned))) => Ok(Writer { thread, wake, standing, unpinned }),
        Ok(Err(source)) => Err(WriterError::Ring { root, source }),
        Err(_) => Err(thread_error(io::Error::other("it died at once"))),
    }
}

/// The last part of the member's path: a thread's name has 15 bytes.
fn member_name(member: &Member) -> String {
    let name = member.root().file_name().unwrap_or_default().to_string_lossy();
    name.chars().filter(char::is_ascii_graphic).take(6).collect()
}

/// What a member still takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Everything.
    Taking,
    /// Blocks of chunks that have their space.
    Full,
    /// Nothing.
    Failed,
}

/// What an operation under way was for.
#[derive(Debug)]
enum Purpose {
    Write(Key, u32, Flight),
    Records(Key, Flight),
    Sync(Key, Part),
    Directories(Key),
    Open(Key, Part),
    Make(Key, u32),
    Name(Key, u32),
    Spare(Key),
    Grow(Key),
    Extend(Key, u32, u64),
    Place(Key, u32),
    Trim(Key, Part),
    LastSync(Key, Part),
}

/// The disk, and what each operation under way was for.
struct Desk<D: Disk> {
    disk: D,
    purposes: Vec<Option<Purpose>>,
    vacant: Vec<usize>,
}

impl<D: Disk> Desk<D> {
    fn submit(&mut self, purpose: Purpose, operation: Operation<D::File>) {
        let token = self.vacant.pop().unwrap_or_else(|| {
            self.purposes.push(None);
            self.purposes.len() - 1
        });
        self.purposes[token] = Some(purpose);
        self.disk.submit(token as u64, operation);
    }

    fn purpose_of(&mut self, token: u64) -> Purpose {
        let token = token as usize;
        self.vacant.push(token);
        self.purposes[token].take().expect("an operation completes once")
    }
}

/// A lane, and what its queue had no room for.
struct Gate {
    lane: Lane,
    overflow: VecDeque<Returned>,
}

impl Gate {
    fn give_back(&mut self, returned: Returned) {
        self.overflow.push_back(returned);
        self.flush();
    }

    fn flush(&mut self) {
        while let Some(returned) = self.overflow.pop_front() {
            if let Err(rtrb::PushError::Full(returned)) = self.lane.returned.push(returned) {
                self.overflow.push_front(returned);
                break;
            }
        }
        if self.lane.returned.is_abandoned() {
            self.overflow.clear();
        }
    }

    fn is_gone(&self) -> bool {
        self.lane.commands.is_abandoned() && self.lane.commands.is_empty()
    }
}

/// Says that a writer has ended before its time, by a ring that failed or a panic: before its lanes are seen to be
/// abandoned.
struct Farewell {
    member: usize,
    reports: mpsc::Sender<Report>,
    in_time: bool,
}

impl Drop for Farewell {
    fn drop(&mut self) {
        if !self.in_time {
            // Without a supervisor there is nobody to tell.
            let _ = self.reports.send(Report::Gone { member: self.member });
        }
    }
}

/// The loop and all its state. What it holds goes in this order.
pub(super) struct Engine<D: Disk> {
    farewell: Farewell,
    desk: Desk<D>,
    member: Uuid,
    root: PathBuf,
    settings: Settings,
    gates: Vec<Gate>,
    gauge: Arc<Gauge>,
    reports: mpsc::Sender<Report>,
    streams: BTreeMap<Key, Stream<D::File>>,
    /// Blocks that wait for the disk, in the order in which they came.
    ready: VecDeque<(Key, u32, u64)>,
    flying_bytes: u64,
    standing: Standing,
    /// When rounds were last due, and bytes written since.
    tick: Duration,
    fresh_bytes: u64,
    /// Memory that indices are written from.
    buffers: Vec<Pool>,
    completions: Vec<Completion<D::File>>,
}

impl<D: Disk> Engine<D> {
    pub(super) fn new(
        disk: D,
        member: Uuid,
        root: PathBuf,
        lanes: Vec<Lane>,
        gauge: Arc<Gauge>,
        reports: mpsc::Sender<Report>,
        settings: Settings,
    ) -> Self {
        let tick = disk.now();
        let gates = lanes.into_iter().map(|lane| Gate { lane, overflow: VecDeque::new() });
        let farewell =
            Farewell { member: settings.member, reports: reports.clone(), in_time: false };
        Self {
            farewell,
            desk: Desk { disk, purposes: vec![], vacant: vec![] },
            member,
            root,
            settings,
            gates: gates.collect(),
            gauge,
            reports,
            streams: BTreeMap::new(),
            ready: VecDeque::new(),
            flying_bytes: 0,
            standing: Standing::Taking,
            tick,
            fresh_bytes: 0,
            buffers: vec![],
            completions: vec![],
        }
    }

    pub(super) fn run(mut self) {
        while self.turn() {}
    }

    /// One pass of the loop; `false` when there is nothing left to do, ever.
    pub(super) fn turn(&mut self) -> bool {
        self.come_back();
        self.take_commands();
        self.send_ready();
        self.start_rounds();
        self.finish_drained();
        let gone = self.gates.iter().all(Gate::is_gone);
        if gone && self.streams.is_empty() {
            self.farewell.in_time = true;
            return false;
        }
        if let Err(source) = self.wait() {
            let root = self.root.clone();
            self.fail(&Failure::Ring { root, source }, vec![]);
            return false;
        }
        let mut completions = std::mem::take(&mut self.completions);
        for completion in completions.drain(..) {
            self.complete(completion);
        }
        self.completions = completions;
        true
    }

    fn wait(&mut self) -> io::Result<()> {
        let stuffed = self.gates.iter().any(|gate| !gate.overflow.is_empty());
        let news = self.streams.values().any(|stream| stream.journal.has_news());
        let elapsed = self.desk.disk.now().saturating_sub(self.tick);
        let timeout = match (stuffed, news) {
            (true, _) => Duration::from_millis(1),
            (false, true) => self.settings.round_interval.saturating_sub(elapsed),
            (false, false) => self.settings.round_interval,
        };
        let gates = &self.gates;
        let mut idle = || gates.iter().all(|gate| gate.lane.commands.is_empty());
        self.desk.disk.wait(timeout, &mut idle, &mut self.completions)
    }

    fn complete(&mut self, completion: Completion<D::File>) {
        let Completion { token, result, file, block } = completion;
        match self.desk.purpose_of(token) {
            Purpose::Write(key, number, flight) => {
                let block = block.expect("a write brings its block back");
                self.block_written(key, number, flight, result, block);
            }
            Purpose::Records(key, flight) => {
                let block = block.expect("a write brings its block back");
                self.records_written(key, flight, result, block);
            }
            Purpose::Sync(key, part) => self.synced(key, part, result),
            Purpose::Trim(key, part) => self.trimmed(key, part, result),
            Purpose::LastSync(key, part) => self.last_synced(key, part, result),
            chore => self.chore_done(chore, result.map(|_| file)),
        }
    }
}

fn key(track: &Track) -> Key {
    (track.scan, track.number)
}

/// What a write has come to: done, more to write, or failed.
fn progress(mut flight: Flight, result: io::Result<u32>) -> io::Result<Option<Flight>> {
    let written = match result {
        Ok(written) => written,
        Err(error)
            if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) =>
        {
            return Ok(Some(flight));
        }
        Err(error) => return Err(error),
    };
    if flight.written + written >= flight.bytes {
        return Ok(None);
    }
    // Direct I/O goes on from a whole page only.
    let whole = written / ALIGNMENT as u32 * ALIGNMENT as u32;
    if whole == 0 {
        let left = flight.bytes - flight.written;
        return Err(io::Error::new(
            io::ErrorKind::WriteZero,
            format!("{written} of {left} bytes were written"),
        ));
    }
    flight.written += whole;
    Ok(Some(flight))
}

/// The write of what is left.
fn rest_of<F>(file: F, flight: Flight, block: Block) -> Operation<F> {
    let part = (flight.written, flight.bytes - flight.written);
    let offset = flight.offset + u64::from(flight.written);
    Operation::Write { file, offset, block, part }
}
