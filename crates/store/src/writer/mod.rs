//! The writer of a member: one thread that turns blocks into chunks, an index, and durable marks.
//!
//! ```text
//! queues ──Write──► chunk ──► disk ──completed──► released in order ──► WriterReply::Written
//!                                                      │
//!                                     journal: records ──► syncs ──► WriterEvent::Durable
//! ```
//!
//! The loop takes commands, keeps [`Settings::depth_bytes`] of writes in flight, starts rounds when they are due, and
//! sleeps only on its ring. It is written against [`Disk`], so the same code runs on a real directory and on a
//! simulated disk that fails by a seed.
//!
//! A failure is reported once per member, in [`WriterEvent::Failed`]. The member then accepts no new data, returns
//! unwritten blocks, and still finishes what it has. Every [`WriterCommand::Finish`] is answered by one
//! [`WriterEvent::Finished`]; blocks that could not be made durable were reported as suspect before. A writer that
//! cannot continue at all reports [`WriterEvent::Gone`], and no other thread waits for it.

mod blocks;
mod ending;
mod failure;
mod files;
mod rounds;

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use fullbore_core::hint::Hint;
use fullbore_core::layout::ALIGNMENT;
use fullbore_linux::ring::{
    Block, Notifier, Pool, ReplySender, StreamRef, WriterCommand, WriterEvent, WriterMetrics,
    WriterReply,
};
use fullbore_linux::sys::memory::Region;
use fullbore_linux::sys::uring::RingError;
use fullbore_linux::thread_config::ThreadConfig;
use fullbore_linux::writer_thread::WriterThread;
use uuid::Uuid;

use self::failure::Failure;
use super::chunk::Flight;
use super::disk::{Completion, Disk, Local, Operation};
use super::journal::SyncTarget;
use super::stream::{Key, MemberStream};
use crate::Member;

/// The queues between a writer and one capture thread.
pub struct CaptureQueue {
    /// The commands from the capture thread.
    pub commands: rtrb::Consumer<WriterCommand>,
    /// The replies to the capture thread. The queue should have room for every block of the thread's pools.
    pub returned: ReplySender,
}

impl CaptureQueue {
    /// True if the capture thread has ended, and all of its commands were taken.
    pub fn is_over(&self) -> bool {
        self.commands.is_abandoned() && self.commands.is_empty()
    }
}

/// The settings of a writer.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The index of the member in the disk set, for reports.
    pub member: usize,
    /// Bytes of writes in flight at once. More adds latency and blocks to the pool; with less, a disk idles whenever
    /// the kernel threads that complete its writes wait for a CPU.
    pub depth_bytes: u64,
    /// A round of syncs starts after this many bytes …
    pub round_bytes: u64,
    /// … or after this time.
    pub round_interval: Duration,
    /// The CPU assignment and priority of the thread.
    pub thread_config: ThreadConfig,
    /// Memory that blocks will come from: registered with the kernel before the first block, if supported.
    pub memory: Vec<Arc<Region>>,
    /// The channel for the time that each block took, for measurements.
    pub timings: Option<mpsc::Sender<Timing>>,
}

/// The duration of a block's write.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// The index of the member in the disk set.
    pub member: usize,
    /// The chunk.
    pub chunk: u32,
    /// The offset in the chunk.
    pub offset: u64,
    /// The number of bytes.
    pub bytes: u32,
    /// The time of completion.
    pub at: Instant,
    /// The time from submission to completion.
    pub took: Duration,
}

impl Settings {
    /// Returns the recommended settings for the member at this index of the disk set.
    pub fn of_member(member: usize) -> Self {
        Self {
            member,
            depth_bytes: 32 << 20,
            round_bytes: 256 << 20,
            round_interval: Duration::from_millis(250),
            thread_config: ThreadConfig::default(),
            memory: Vec::new(),
            timings: None,
        }
    }
}

/// The reason why a writer did not start.
#[derive(Debug, thiserror::Error)]
pub enum WriterError {
    /// The ring could not be made.
    #[error("{}: the writer cannot start: {source}", root.display())]
    Ring {
        /// The member.
        root: PathBuf,
        /// The missing feature.
        source: RingError,
    },
    /// The thread could not be started.
    #[error("{}: cannot start the writer thread: {source}", root.display())]
    Thread {
        /// The member.
        root: PathBuf,
        /// The error from the kernel.
        source: io::Error,
    },
}

impl Hint for WriterError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Ring { source, .. } => return source.hint(),
            Self::Thread { .. } => "raise the limit of threads (`ulimit -u`)",
        }))
    }
}

/// Starts the writer of a member. Capture threads call `wake` after they have pushed.
pub fn spawn(
    member: &Member,
    lanes: Vec<CaptureQueue>,
    metrics: Arc<WriterMetrics>,
    reports: mpsc::Sender<WriterEvent>,
    wake: Arc<Notifier>,
    settings: Settings,
) -> Result<WriterThread, WriterError> {
    let (ready, answer) = mpsc::channel();
    let (owner, waker, root) = (member.clone(), wake.clone(), member.root().to_owned());
    let thread_error = |source| WriterError::Thread { root: root.clone(), source };
    let mut settings = settings;
    let run = move || {
        let state = settings.thread_config.apply();
        // The ring belongs to the thread that makes it.
        let mut disk = match Local::new(&owner, waker) {
            Ok(disk) => disk,
            Err(error) => return drop(ready.send(Err(error))),
        };
        let unpinned = disk.pin(&std::mem::take(&mut settings.memory)).err();
        if ready.send(Ok((state, unpinned))).is_ok() {
            let root = owner.root().to_owned();
            Engine::new(disk, owner.uuid(), root, lanes, metrics, reports, settings).run();
        }
    };
    let name = format!("fb-write-{}", member_name(member));
    let thread = std::thread::Builder::new().name(name).spawn(run).map_err(thread_error)?;
    match answer.recv() {
        Ok(Ok((state, unpinned))) => Ok(WriterThread::new(thread, wake, state, unpinned)),
        Ok(Err(source)) => Err(WriterError::Ring { root, source }),
        Err(_) => Err(thread_error(io::Error::other("it died at once"))),
    }
}

/// Returns the last part of the member's path: a thread's name has 15 bytes.
fn member_name(member: &Member) -> String {
    let name = member.root().file_name().unwrap_or_default().to_string_lossy();
    name.chars().filter(char::is_ascii_graphic).take(6).collect()
}

/// The state of a member: the writes that it still accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MemberState {
    /// All writes.
    Taking,
    /// Blocks of chunks with reserved space.
    Full,
    /// No writes.
    Failed,
}

/// The purpose of an operation in flight.
#[derive(Debug)]
enum Purpose {
    Write(Key, u32, Flight),
    Records(Key, Flight),
    Sync(Key, SyncTarget),
    Directories(Key),
    Open(Key, SyncTarget),
    Make(Key, u32),
    Name(Key, u32),
    Spare(Key),
    Grow(Key),
    Extend(Key, u32),
    Place(Key, u32),
    Trim(Key, SyncTarget),
    LastSync(Key, SyncTarget),
}

/// The disk, and the purpose of each operation in flight.
struct PendingOperations<D: Disk> {
    disk: D,
    purposes: Vec<Option<Purpose>>,
    vacant: Vec<usize>,
}

impl<D: Disk> PendingOperations<D> {
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

/// A queue, and the replies that it had no room for.
struct Gate {
    lane: CaptureQueue,
    overflow: VecDeque<WriterReply>,
}

impl Gate {
    fn give_back(&mut self, returned: WriterReply) {
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
}

/// Reports that a writer has ended early, by a failed ring or a panic, before its queues are seen as abandoned.
pub struct Farewell {
    /// The writer's place in the sink.
    pub member: usize,
    /// The channel to the recorder.
    pub reports: mpsc::Sender<WriterEvent>,
    /// True if the writer has ended in time, so that there is nothing to report.
    pub in_time: bool,
}

impl Drop for Farewell {
    fn drop(&mut self) {
        if !self.in_time {
            // The supervisor is gone; ignore the error.
            let _ = self.reports.send(WriterEvent::Gone { member: self.member });
        }
    }
}

/// The loop and all its state. The fields are dropped in this order.
pub(super) struct Engine<D: Disk> {
    farewell: Farewell,
    desk: PendingOperations<D>,
    member: Uuid,
    root: PathBuf,
    settings: Settings,
    gates: Vec<Gate>,
    metrics: Arc<WriterMetrics>,
    reports: mpsc::Sender<WriterEvent>,
    streams: BTreeMap<Key, MemberStream<D::File>>,
    /// Blocks that wait for the disk, in the order of arrival.
    ready: VecDeque<(Key, u32, u64)>,
    flying_bytes: u64,
    state: MemberState,
    /// The time when rounds were last due, and the bytes written since.
    tick: Duration,
    fresh_bytes: u64,
    /// Memory that indexes are written from.
    buffers: Vec<Pool>,
    completions: Vec<Completion<D::File>>,
}

impl<D: Disk> Engine<D> {
    pub(super) fn new(
        disk: D,
        member: Uuid,
        root: PathBuf,
        lanes: Vec<CaptureQueue>,
        metrics: Arc<WriterMetrics>,
        reports: mpsc::Sender<WriterEvent>,
        settings: Settings,
    ) -> Self {
        let tick = disk.now();
        let gates = lanes.into_iter().map(|lane| Gate { lane, overflow: VecDeque::new() });
        let farewell =
            Farewell { member: settings.member, reports: reports.clone(), in_time: false };
        Self {
            farewell,
            desk: PendingOperations { disk, purposes: vec![], vacant: vec![] },
            member,
            root,
            settings,
            gates: gates.collect(),
            metrics,
            reports,
            streams: BTreeMap::new(),
            ready: VecDeque::new(),
            flying_bytes: 0,
            state: MemberState::Taking,
            tick,
            fresh_bytes: 0,
            buffers: vec![],
            completions: vec![],
        }
    }

    pub(super) fn run(mut self) {
        while self.turn() {}
    }

    /// Runs one pass of the loop; returns `false` when no work can come any more.
    pub(super) fn turn(&mut self) -> bool {
        self.come_back();
        self.take_commands();
        self.send_ready();
        self.start_rounds();
        self.finish_drained();
        let gone = self.gates.iter().all(|gate| gate.lane.is_over());
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
        let Completion { token, result, reserved, file, block } = completion;
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
            chore => self.chore_done(chore, result.map(|_| (file, reserved))),
        }
    }
}

fn key(stream_ref: &StreamRef) -> Key {
    (stream_ref.scan, stream_ref.number)
}

/// Returns the rest of a write: `None` if it is done, a flight if more must be written, or the error.
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
    // Direct I/O can continue only from a whole page.
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

/// Returns the write of the rest.
fn rest_of<F>(file: F, flight: Flight, block: Block) -> Operation<F> {
    let part = (flight.written, flight.bytes - flight.written);
    let offset = flight.offset + u64::from(flight.written);
    Operation::Write { file, offset, block, part }
}
