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
//! answered by one [`Report::Finished`]; what could not be made durable was named as suspect before.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use fullbore_core::gap::Gap;
use fullbore_core::index::Entry;
use fullbore_core::layout::ALIGNMENT;
use rustix::thread::{CpuSet, sched_setaffinity};
use uuid::Uuid;

use super::chunk::{Chunk, Flight, Job, Leaving, Stage};
use super::disk::{Completion, Disk, Local, Operation};
use super::journal::{Action, Event, Landed, Part};
use super::member::Member;
use super::pages::{BUFFER_BYTES, PageWrite};
use super::stream::{INDEX_STEP_BYTES, Key, Phase, Spare, Stream};
use crate::ring::{Command, Filled, Gauge, Pool, Report, Returned, Track, Wake};
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
    /// Bytes of writes under way at once: more is slower, and adds latency.
    pub depth_bytes: u64,
    /// A round of syncs starts after so many bytes …
    pub round_bytes: u64,
    /// … or after this time.
    pub round_interval: Duration,
    /// The CPU to run on, if it is to be one.
    pub cpu: Option<usize>,
}

impl Settings {
    /// What is recommended, for the member at this place of the disk set.
    pub fn of_member(member: usize) -> Self {
        Self {
            member,
            depth_bytes: 16 << 20,
            round_bytes: 256 << 20,
            round_interval: Duration::from_millis(250),
            cpu: None,
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
}

impl Writer {
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
    let run = move || {
        pin(&settings);
        // The ring belongs to the thread that makes it.
        let disk = match Local::new(owner.root(), owner.access(), waker) {
            Ok(disk) => disk,
            Err(error) => return drop(ready.send(Err(error))),
        };
        if ready.send(Ok(())).is_ok() {
            let root = owner.root().to_owned();
            Engine::new(disk, owner.uuid(), root, lanes, gauge, reports, settings).run();
        }
    };
    let name = format!("fb-write-{}", member_name(member));
    let thread = std::thread::Builder::new().name(name).spawn(run).map_err(thread_error)?;
    match answer.recv() {
        Ok(Ok(())) => Ok(Writer { thread, wake }),
        Ok(Err(source)) => Err(WriterError::Ring { root, source }),
        Err(_) => Err(thread_error(io::Error::other("it died at once"))),
    }
}

/// The last part of the member's path: a thread's name has 15 bytes.
fn member_name(member: &Member) -> String {
    let name = member.root().file_name().unwrap_or_default().to_string_lossy();
    name.chars().filter(char::is_ascii_graphic).take(6).collect()
}

fn pin(settings: &Settings) {
    if let Some(cpu) = settings.cpu.filter(|&cpu| cpu < CpuSet::MAX_CPU) {
        let mut set = CpuSet::new();
        set.set(cpu);
        // A CPU that this process may not use: the writer then runs where the scheduler puts it.
        let _ = sched_setaffinity(None, &set);
    }
}

/// What went wrong on a member.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("making {path} in {}: {source}", root.display())]
    Make { root: PathBuf, path: String, source: io::Error },
    #[error("putting {path} in its place in {}: {source}", root.display())]
    Settle { root: PathBuf, path: String, source: io::Error },
    #[error("writing {bytes} bytes at {offset} of {path} in {}: {source}", root.display())]
    Write { root: PathBuf, path: String, offset: u64, bytes: u32, source: io::Error },
    #[error("syncing {path} in {}: {source}", root.display())]
    Sync { root: PathBuf, path: String, source: io::Error },
    #[error("the ring of {} failed: {source}", root.display())]
    Ring { root: PathBuf, source: io::Error },
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

/// The loop and all its state.
pub(super) struct Engine<D: Disk> {
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
        Self {
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
        self.take_commands();
        self.send_ready();
        self.start_rounds();
        self.finish_drained();
        let gone = self.gates.iter().all(Gate::is_gone);
        if gone && self.streams.is_empty() {
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
}

/// Blocks coming in and going to the disk.
impl<D: Disk> Engine<D> {
    fn take_commands(&mut self) {
        for lane in 0..self.gates.len() {
            self.gates[lane].flush();
            while let Ok(command) = self.gates[lane].lane.commands.pop() {
                match command {
                    Command::Write(filled) => self.accept(lane, filled),
                    Command::Finish { track, gaps } => self.end(track, gaps),
                }
            }
        }
        if self.gates.iter().all(Gate::is_gone) {
            for stream in self.streams.values_mut() {
                stream.ending.get_or_insert_default();
            }
        }
    }

    fn accept(&mut self, lane: usize, filled: Filled) {
        let key = key(&filled.track);
        let number = filled.chunk;
        if !self.takes(key, &filled) {
            return self.refuse(lane, filled);
        }
        if !self.streams.contains_key(&key) {
            self.begin(key, filled.track.clone());
        }
        let stream = self.streams.get_mut(&key).expect("begun above");
        let is_new = !stream.chunks.contains_key(&number);
        let chunk =
            stream.chunks.entry(number).or_insert_with(|| Chunk::new(number, filled.offset));
        match chunk.push(lane, filled) {
            Ok(ordinal) if matches!(chunk.stage, Stage::Open(_)) => {
                self.ready.push_back((key, number, ordinal));
            }
            Ok(_) => {}
            Err(filled) => self.refuse(lane, filled),
        }
        if is_new {
            self.make_wanted(key);
        }
        self.make_spare(key, number);
    }

    /// Whether a block can be taken at all, as the member and its stream stand.
    fn takes(&self, key: Key, filled: &Filled) -> bool {
        let stream = self.streams.get(&key);
        let willing = stream.is_none_or(|stream| {
            let closed = matches!(stream.phase, Phase::Trimming(_) | Phase::Syncing(_));
            let over = closed || matches!(stream.phase, Phase::Dead | Phase::Closing);
            !over && stream.ending.is_none() && !stream.journal.broken()
        });
        let has_space = stream.is_some_and(|stream| {
            let spare = matches!(stream.spare, Spare::Ready(_)) && filled.offset == 0;
            stream.chunks.contains_key(&filled.chunk) || spare
        });
        let standing = match self.standing {
            Standing::Taking => true,
            Standing::Full => has_space,
            Standing::Failed => false,
        };
        willing && standing && filled.offset.is_multiple_of(ALIGNMENT)
    }

    /// Keeps the disk busy to its depth, and the next block checksummed.
    fn send_ready(&mut self) {
        while let Some(&(key, number, ordinal)) = self.ready.front() {
            let chunk = self.streams.get_mut(&key).and_then(|s| s.chunks.get_mut(&number));
            let waiting = chunk.and_then(|chunk| Some((chunk.waiting_bytes(ordinal)?, chunk)));
            let Some((bytes, chunk)) = waiting else {
                // It was refused while it waited.
                self.ready.pop_front();
                continue;
            };
            if self.flying_bytes > 0
                && self.flying_bytes + u64::from(bytes) > self.settings.depth_bytes
            {
                chunk.prepare(ordinal);
                return;
            }
            let file = chunk.file().expect("only blocks of open chunks are ready");
            let Job { block, offset, bytes } = chunk.send(ordinal).expect("looked at above");
            let since = self.desk.disk.now();
            let flight = Flight { ordinal, offset, bytes, written: 0, since };
            let write = Operation::Write { file, offset, block, part: (0, bytes) };
            self.desk.submit(Purpose::Write(key, number, flight), write);
            self.flying_bytes += u64::from(bytes);
            self.ready.pop_front();
        }
    }

    fn refuse(&mut self, lane: usize, filled: Filled) {
        self.gauge.backlog_bytes.fetch_sub(filled.bytes.into(), Relaxed);
        self.gates[lane].give_back(Returned::Refused(filled));
    }

    /// Lets go of what is written or refused in a chunk, and puts it in place when it is complete.
    fn release(&mut self, key: Key, number: u32) {
        let Some(stream) = self.streams.get_mut(&key) else { return };
        let owner = stream.track.clone();
        let Some(chunk) = stream.chunks.get_mut(&number) else { return };
        for leaving in chunk.release() {
            match leaving {
                Leaving::Refused { lane, filled } => self.refuse(lane, filled),
                Leaving::Written { lane, block, landed, entries } => {
                    let bytes = u64::from(landed.bytes);
                    self.gauge.backlog_bytes.fetch_sub(bytes, Relaxed);
                    self.gauge.written_bytes.fetch_add(bytes, Relaxed);
                    self.fresh_bytes += bytes;
                    let (track, bytes) = (owner.clone(), landed.bytes);
                    self.gates[lane].give_back(Returned::Written { block, track, bytes });
                    self.tell(key, Event::Landed(landed, entries));
                }
            }
        }
        self.place(key, number);
    }
}

/// Files being made, named and put in place.
impl<D: Disk> Engine<D> {
    fn begin(&mut self, key: Key, track: Arc<Track>) {
        let directory = track.directory.clone();
        let stream = Stream::new(track, self.member, self.take_buffer());
        self.streams.insert(key, stream);
        self.chore(key, Purpose::Directories(key), Operation::MakeDirectories { directory });
    }

    fn take_buffer(&mut self) -> crate::ring::Block {
        if let Some(buffer) = self.buffers.iter_mut().find_map(Pool::take) {
            return buffer;
        }
        // 32 streams fit in one region, so this happens once, with the first stream.
        let region = Region::new(1).expect("2 MiB of memory for indices");
        let mut pool = Pool::new(Arc::new(region), BUFFER_BYTES, 0);
        let buffer = pool.take().expect("a new pool has free blocks");
        self.buffers.push(pool);
        buffer
    }

    fn chore(&mut self, key: Key, purpose: Purpose, operation: Operation<D::File>) {
        if let Some(stream) = self.streams.get_mut(&key) {
            stream.chores += 1;
        }
        self.desk.submit(purpose, operation);
    }

    fn open_parts(&mut self, key: Key) {
        let Some(stream) = self.streams.get_mut(&key) else { return };
        stream.phase = Phase::Opening(4);
        let directories = [Part::Root, Part::Directory, Part::Side];
        let paths = directories.map(|part| (part, stream.path_of(part)));
        let index = stream.index_path();
        for (part, path) in paths {
            self.chore(key, Purpose::Open(key, part), Operation::OpenDirectory { path });
        }
        let create = Operation::Create { path: index, offset: 0, bytes: INDEX_STEP_BYTES };
        self.chore(key, Purpose::Open(key, Part::Index), create);
    }

    /// Gives files to chunks that have none: the spare to one, new ones to the others.
    fn make_wanted(&mut self, key: Key) {
        let Some(stream) = self.streams.get_mut(&key) else { return };
        if stream.phase != Phase::Open || matches!(stream.spare, Spare::Making) {
            return;
        }
        let chunk_bytes = stream.track.geometry.chunk_bytes();
        let wanted =
            |chunk: &Chunk<_>| matches!(chunk.stage, Stage::Wanted).then_some(chunk.number);
        let numbers: Vec<u32> = stream.chunks.values().filter_map(wanted).collect();
        for number in numbers {
            self.make(key, number, chunk_bytes);
        }
    }

    fn make(&mut self, key: Key, number: u32, chunk_bytes: u64) {
        let Some(stream) = self.streams.get_mut(&key) else { return };
        let (path, spare_path) = (stream.filling_path(number), stream.spare_path());
        let Some(chunk) = stream.chunks.get_mut(&number) else { return };
        let (base, whole) = (chunk.base, chunk.base == 0);
        chunk.stage = Stage::Making;
        if whole && let Spare::Ready(file) = &stream.spare {
            let file = file.clone();
            stream.spare = Spare::Leaving(file.clone());
            let rename = Some((spare_path, path));
            let settle = Operation::Settle { file: file.clone(), bytes: None, rename };
            chunk.stage = Stage::Open(file);
            self.ready.extend(chunk.waiting().map(|ordinal| (key, number, ordinal)));
            return self.chore(key, Purpose::Name(key, number), settle);
        }
        if self.standing != Standing::Taking {
            return self.lose_chunk(key, number);
        }
        let bytes = chunk_bytes.saturating_sub(base).max(ALIGNMENT);
        let create = Operation::Create { path, offset: base, bytes };
        self.chore(key, Purpose::Make(key, number), create);
    }

    fn make_spare(&mut self, key: Key, number: u32) {
        let taking = self.standing == Standing::Taking;
        let Some(stream) = self.streams.get_mut(&key) else { return };
        if taking && stream.wants_spare(number) {
            stream.spare = Spare::Making;
            let (path, bytes) = (stream.spare_path(), stream.track.geometry.chunk_bytes());
            let create = Operation::Create { path, offset: 0, bytes };
            self.chore(key, Purpose::Spare(key), create);
        }
    }

    /// A chunk has its file: what waited for it can be written.
    fn opened(&mut self, key: Key, number: u32, file: D::File) {
        let Some(stream) = self.streams.get_mut(&key) else { return };
        let Some(chunk) = stream.chunks.get_mut(&number) else { return };
        chunk.stage = Stage::Open(file);
        self.ready.extend(chunk.waiting().map(|ordinal| (key, number, ordinal)));
        self.named(key, number);
    }

    /// A chunk's file bears its number: what is written of it counts once that name is safe, too.
    fn named(&mut self, key: Key, number: u32) {
        let Some(stream) = self.streams.get_mut(&key) else { return };
        if let Some(chunk) = stream.chunks.get_mut(&number) {
            chunk.named = true;
        }
        self.tell(key, Event::Touched(Part::Side));
        self.release(key, number);
    }

    /// A chunk gets no file: what waited for it goes elsewhere.
    fn lose_chunk(&mut self, key: Key, number: u32) {
        let Some(stream) = self.streams.get_mut(&key) else { return };
        let Some(chunk) = stream.chunks.get_mut(&number) else { return };
        chunk.stage = Stage::Dead;
        chunk.cut_all();
        self.release(key, number);
    }

    /// Puts a chunk in place once all of it is written.
    fn place(&mut self, key: Key, number: u32) {
        let Some(stream) = self.streams.get_mut(&key) else { return };
        let end = stream.track.geometry.chunk_bytes();
        let (from, to) = (stream.filling_path(number), stream.place_path(number));
        let Some(chunk) = stream.chunks.get_mut(&number) else { return };
        let complete = chunk.is_idle() && chunk.written() == end;
        let Stage::Open(file) = &chunk.stage else { return };
        // After a failure it waits for the end, where it is tried once more.
        if !complete || stream.phase != Phase::Open || self.standing == Standing::Failed {
            return;
        }
        let file = file.clone();
        if chunk.base > 0 {
            chunk.stage = Stage::Placed(file);
            return stream.retire(number);
        }
        chunk.stage = Stage::Placing(file.clone());
        let settle = Operation::Settle { file, bytes: None, rename: Some((from, to)) };
        self.chore(key, Purpose::Place(key, number), settle);
    }
}

/// Completions.
impl<D: Disk> Engine<D> {
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

    fn block_written(
        &mut self,
        key: Key,
        number: u32,
        flight: Flight,
        result: io::Result<u32>,
        block: crate::ring::Block,
    ) {
        let stream = self.streams.get_mut(&key).expect("a stream stays while it has writes");
        let path = stream.path_of(Part::Chunk(number));
        let chunk = stream.chunks.get_mut(&number).expect("a chunk stays while it has writes");
        let outcome = progress(flight, result);
        if let Ok(Some(flight)) = outcome {
            let file = chunk.file().expect("it was written to");
            let write = rest_of(file, flight, block);
            return self.desk.submit(Purpose::Write(key, number, flight), write);
        }
        self.flying_bytes -= u64::from(flight.bytes);
        let took = self.desk.disk.now().saturating_sub(flight.since);
        self.gauge.longest_write_ns.fetch_max(took.as_nanos() as u64, Relaxed);
        match outcome {
            Err(source) => {
                chunk.fail(flight.ordinal, block);
                let (root, offset) = (self.root.clone(), flight.offset);
                let failure = Failure::Write { root, path, offset, bytes: flight.bytes, source };
                self.fail(&failure, vec![]);
            }
            Ok(_) => chunk.land(flight.ordinal, block),
        }
        self.release(key, number);
    }

    fn chore_done(&mut self, chore: Purpose, result: io::Result<Option<D::File>>) {
        let key = match &chore {
            Purpose::Directories(key) | Purpose::Spare(key) | Purpose::Grow(key) => *key,
            Purpose::Open(key, _) => *key,
            Purpose::Make(key, _) | Purpose::Name(key, _) | Purpose::Place(key, _) => *key,
            other => unreachable!("{other:?} is no chore"),
        };
        let stream = self.streams.get_mut(&key).expect("a stream stays while it has chores");
        stream.chores -= 1;
        match (chore, result) {
            (Purpose::Directories(_), Ok(_)) => self.open_parts(key),
            (Purpose::Directories(_), Err(source)) => {
                let path = stream.track.directory.clone();
                self.lose_stream(key, path, source);
            }
            (Purpose::Open(_, part), Ok(file)) => self.part_opened(key, part, file),
            (Purpose::Open(_, part), Err(source)) => {
                let path = stream.path_of(part);
                self.lose_stream(key, path, source);
            }
            (Purpose::Make(_, number), Ok(file)) => {
                self.opened(key, number, file.expect("a file that was made"));
            }
            (Purpose::Make(_, number), Err(source)) => {
                let path = stream.filling_path(number);
                self.lose_chunk(key, number);
                self.not_made(path, source);
            }
            (Purpose::Name(_, number), Ok(_)) => {
                stream.spare = Spare::None;
                self.named(key, number);
                self.make_wanted(key);
                self.make_spare(key, number);
            }
            (Purpose::Name(_, number) | Purpose::Place(_, number), Err(source)) => {
                let path = stream.path_of(Part::Chunk(number));
                self.not_settled(key, number, path, source);
            }
            (Purpose::Place(_, number), Ok(_)) => self.placed(key, number),
            (Purpose::Spare(_), Ok(file)) => {
                stream.spare = Spare::Ready(file.expect("a file that was made"));
                self.make_wanted(key);
            }
            (Purpose::Spare(_), Err(source)) => {
                stream.spare = Spare::None;
                let path = stream.spare_path();
                self.not_made(path, source);
                self.make_wanted(key);
            }
            (Purpose::Grow(_), Ok(_)) => {
                stream.index_growing = false;
                stream.index_space += INDEX_STEP_BYTES;
            }
            (Purpose::Grow(_), Err(source)) => {
                let path = stream.index_path();
                self.not_made(path, source);
            }
            (other, _) => unreachable!("{other:?} is no chore"),
        }
    }

    fn part_opened(&mut self, key: Key, part: Part, file: Option<D::File>) {
        let Some(stream) = self.streams.get_mut(&key) else { return };
        stream.parts.insert(part, file.expect("a file that was made or opened"));
        match stream.phase {
            Phase::Opening(1) => stream.phase = Phase::Open,
            Phase::Opening(left) => stream.phase = Phase::Opening(left - 1),
            // Another part failed.
            _ => return,
        }
        if stream.phase == Phase::Open {
            for part in [Part::Root, Part::Directory, Part::Side] {
                self.tell(key, Event::Touched(part));
            }
            self.make_wanted(key);
        }
    }

    fn placed(&mut self, key: Key, number: u32) {
        let Some(stream) = self.streams.get_mut(&key) else { return };
        if let Some(chunk) = stream.chunks.get_mut(&number)
            && let Some(file) = chunk.file()
        {
            // Found after a crash under either name, so these names need no sync before the last one.
            chunk.stage = Stage::Placed(file);
        }
        stream.retire(number);
    }
}

/// Rounds, and the end of streams.
impl<D: Disk> Engine<D> {
    fn start_rounds(&mut self) {
        let now = self.desk.disk.now();
        let waited = now.saturating_sub(self.tick) >= self.settings.round_interval;
        if waited || self.fresh_bytes >= self.settings.round_bytes {
            (self.tick, self.fresh_bytes) = (now, 0);
            for stream in self.streams.values_mut() {
                stream.due |= stream.journal.has_news();
            }
        }
        let startable = |(key, stream): (&Key, &Stream<_>)| {
            (stream.due && !stream.journal.in_round()).then_some(*key)
        };
        let keys: Vec<Key> = self.streams.iter().filter_map(startable).collect();
        for key in keys {
            if let Some(stream) = self.streams.get_mut(&key) {
                stream.due = false;
            }
            self.tell(key, Event::Due);
        }
    }

    fn tell(&mut self, key: Key, event: Event) {
        let Some(stream) = self.streams.get_mut(&key) else { return };
        for action in stream.journal.step(event) {
            match action {
                Action::Record(entries) => self.record(key, &entries),
                Action::Sync(parts) => self.sync(key, parts),
                Action::Publish(blocks) => self.publish(key, &blocks),
                // The failure that caused it reports them.
                Action::Suspect(_) => unreachable!("only `break_journal` tells of failures"),
                Action::Closed => self.trim(key),
            }
        }
    }

    fn record(&mut self, key: Key, entries: &[Entry]) {
        let now = self.desk.disk.now();
        let Some(stream) = self.streams.get_mut(&key) else { return };
        stream.round_since = now;
        for entry in entries {
            stream.record(entry);
        }
        self.write_pages(key);
    }

    fn write_pages(&mut self, key: Key) {
        let Some(stream) = self.streams.get_mut(&key) else { return };
        let Some(PageWrite { offset, block, bytes }) = stream.pages.next_write() else {
            return self.tell(key, Event::Recorded);
        };
        let file = stream
            .file_of(Part::Index)
            .expect("records are of blocks, and those of an open stream");
        let (ordinal, since) = (0, self.desk.disk.now());
        let flight = Flight { ordinal, offset, bytes, written: 0, since };
        let grow = (!stream.index_growing
            && self.standing == Standing::Taking
            && offset + u64::from(bytes) + INDEX_STEP_BYTES / 2 > stream.index_space)
            .then(|| Operation::Extend {
                file: file.clone(),
                offset: stream.index_space,
                bytes: INDEX_STEP_BYTES,
            });
        let write = Operation::Write { file, offset, block, part: (0, bytes) };
        if let Some(grow) = grow {
            stream.index_growing = true;
            self.chore(key, Purpose::Grow(key), grow);
        }
        self.desk.submit(Purpose::Records(key, flight), write);
    }

    fn records_written(
        &mut self,
        key: Key,
        flight: Flight,
        result: io::Result<u32>,
        block: crate::ring::Block,
    ) {
        let stream = self.streams.get_mut(&key).expect("a stream stays while it has writes");
        match progress(flight, result) {
            Ok(Some(flight)) => {
                let file = stream.file_of(Part::Index).expect("it was written to");
                let write = rest_of(file, flight, block);
                self.desk.submit(Purpose::Records(key, flight), write);
            }
            Ok(None) => {
                stream.pages.completed(block);
                self.write_pages(key);
            }
            Err(source) => {
                stream.pages.failed(block);
                let (root, path) = (self.root.clone(), stream.index_path());
                let (offset, bytes) = (flight.offset, flight.bytes);
                self.break_journal(key, &Failure::Write { root, path, offset, bytes, source });
            }
        }
    }

    fn sync(&mut self, key: Key, parts: Vec<Part>) {
        let Some(stream) = self.streams.get(&key) else { return };
        let file = |part| {
            let file = stream.file_of(part);
            (part, file.unwrap_or_else(|| unreachable!("{part:?} is synced and not open")))
        };
        let files: Vec<_> = parts.into_iter().map(file).collect();
        for (part, file) in files {
            let metadata = !matches!(part, Part::Index | Part::Chunk(_));
            self.desk.submit(Purpose::Sync(key, part), Operation::Sync { file, metadata });
        }
    }

    fn synced(&mut self, key: Key, part: Part, result: io::Result<u32>) {
        match result {
            Ok(_) => {
                let at = self.desk.disk.clock();
                self.tell(key, Event::Synced(part, at));
            }
            Err(source) => {
                let path = self.streams.get(&key).map(|s| s.path_of(part)).unwrap_or_default();
                let root = self.root.clone();
                self.break_journal(key, &Failure::Sync { root, path, source });
            }
        }
    }

    fn publish(&mut self, key: Key, blocks: &[Landed]) {
        let Some(stream) = self.streams.get_mut(&key) else { return };
        let took = self.desk.disk.now().saturating_sub(stream.round_since);
        self.gauge.longest_sync_ns.fetch_max(took.as_nanos() as u64, Relaxed);
        for block in blocks {
            if let Some(chunk) = stream.chunks.get_mut(&block.chunk) {
                chunk.unpublished -= 1;
            }
            stream.retire(block.chunk);
        }
        let report = Report::Durable {
            track: stream.track.clone(),
            sequences: blocks.iter().map(|block| block.sequence).collect(),
            bytes: blocks.iter().map(|block| u64::from(block.bytes)).sum(),
        };
        self.report(report);
    }

    fn end(&mut self, track: Arc<Track>, gaps: Vec<Gap>) {
        match self.streams.get_mut(&key(&track)) {
            Some(stream) => stream.ending = Some(gaps),
            // Not a block of it came here: there is nothing to close.
            None => self.report(Report::Finished { member: self.settings.member, track }),
        }
    }

    /// Begins the last rounds of streams of which nothing is waiting or under way any more.
    fn finish_drained(&mut self) {
        let drained = |(key, stream): (&Key, &Stream<_>)| {
            let open = matches!(stream.phase, Phase::Open | Phase::Dead);
            (open && stream.ending.is_some() && stream.is_drained()).then_some(*key)
        };
        let keys: Vec<Key> = self.streams.iter().filter_map(drained).collect();
        for key in keys {
            let Some(stream) = self.streams.get_mut(&key) else { continue };
            if stream.phase == Phase::Dead {
                self.close(key);
                continue;
            }
            stream.phase = Phase::Closing;
            for gap in stream.ending.iter_mut().flat_map(std::mem::take) {
                // No round begins by a note, so there is nothing to do about it yet.
                let actions = stream.journal.step(Event::Noted(Entry::Gap(gap)));
                assert!(actions.is_empty(), "{actions:?} for a note");
            }
            self.tell(key, Event::Finish);
        }
    }

    /// After the last round: gives every file its true length and its place.
    fn trim(&mut self, key: Key) {
        let Some(stream) = self.streams.get_mut(&key) else { return };
        let end = stream.track.geometry.chunk_bytes();
        let mut jobs = Vec::new();
        for chunk in stream.chunks.values() {
            let number = chunk.number;
            let (from, to) = (stream.filling_path(number), stream.place_path(number));
            let Stage::Open(file) = &chunk.stage else { continue };
            if !chunk.named {
                // Its file is the spare still.
                continue;
            }
            let operation = if chunk.holds_data() {
                let bytes = (chunk.written() < end).then_some(chunk.written());
                let rename = (chunk.base == 0).then_some((from, to));
                Operation::Settle { file: file.clone(), bytes, rename }
            } else {
                Operation::Remove { path: from }
            };
            jobs.push((Part::Chunk(number), operation));
        }
        if let Spare::Ready(_) = stream.spare {
            jobs.push((Part::Side, Operation::Remove { path: stream.spare_path() }));
        }
        if let Some(file) = stream.file_of(Part::Index) {
            let bytes = Some(stream.pages.length());
            jobs.push((Part::Index, Operation::Settle { file, bytes, rename: None }));
        }
        stream.phase = Phase::Trimming(jobs.len());
        for (part, operation) in jobs {
            self.desk.submit(Purpose::Trim(key, part), operation);
        }
        self.sync_last(key);
    }

    fn trimmed(&mut self, key: Key, part: Part, result: io::Result<u32>) {
        let stream = self.streams.get_mut(&key).expect("a stream stays until it is closed");
        let path = stream.path_of(part);
        if let Phase::Trimming(left) = &mut stream.phase {
            *left -= 1;
        }
        if let Err(source) = result {
            let root = self.root.clone();
            self.fail(&Failure::Settle { root, path, source }, vec![]);
        }
        self.sync_last(key);
    }

    /// Once all is trimmed: syncs lengths and names. A stream whose sync has failed is not synced again.
    fn sync_last(&mut self, key: Key) {
        let Some(stream) = self.streams.get_mut(&key) else { return };
        if stream.phase != Phase::Trimming(0) {
            return;
        }
        let chunks = stream.chunks.values().filter(|chunk| chunk.holds_data());
        let chunks = chunks.map(|chunk| Part::Chunk(chunk.number));
        let parts = [Part::Index, Part::Side, Part::Directory, Part::Root].into_iter();
        let file = |part| Some((part, stream.file_of(part)?));
        let files: Vec<_> = chunks.chain(parts).filter_map(file).collect();
        if stream.unsyncable {
            return self.close(key);
        }
        stream.phase = Phase::Syncing(files.len());
        for (part, file) in files {
            let sync = Operation::Sync { file, metadata: true };
            self.desk.submit(Purpose::LastSync(key, part), sync);
        }
    }

    fn last_synced(&mut self, key: Key, part: Part, result: io::Result<u32>) {
        let stream = self.streams.get_mut(&key).expect("a stream stays until it is closed");
        let path = stream.path_of(part);
        let mut left = 0;
        if let Phase::Syncing(syncs) = &mut stream.phase {
            *syncs -= 1;
            left = *syncs;
        }
        if let Err(source) = result {
            let root = self.root.clone();
            self.fail(&Failure::Sync { root, path, source }, vec![]);
        }
        if left == 0 {
            self.close(key);
        }
    }

    fn close(&mut self, key: Key) {
        let Some(stream) = self.streams.remove(&key) else { return };
        let member = self.settings.member;
        let track = stream.track.clone();
        if let Some(buffer) = stream.pages.into_buffer() {
            let (region, _) = buffer.place();
            let home = self.buffers.iter_mut().find(|pool| pool.is_home_of(region));
            if let Some(pool) = home {
                pool.put(buffer);
            }
        }
        self.desk.disk.tidy();
        self.report(Report::Finished { member, track });
    }

    fn report(&self, report: Report) {
        // A supervisor that is gone has no use for reports; the index says the same.
        let _ = self.reports.send(report);
    }
}

/// What goes wrong.
impl<D: Disk> Engine<D> {
    /// The member takes nothing any more. What it has not begun to write goes back.
    fn fail(&mut self, failure: &Failure, suspect: Vec<(Arc<Track>, Vec<u64>)>) {
        let news = self.standing != Standing::Failed || !suspect.is_empty();
        self.standing = Standing::Failed;
        self.gauge.refusing.store(true, Relaxed);
        let mut cut = Vec::new();
        for (key, stream) in &mut self.streams {
            for (number, chunk) in &mut stream.chunks {
                chunk.cut_waiting();
                cut.push((*key, *number));
            }
        }
        self.release_all(cut);
        if news {
            let (member, why) = (self.settings.member, failure.to_string());
            self.report(Report::Failed { member, why, suspect });
        }
    }

    /// The member has no room for another chunk. Chunks that have their space go on.
    fn fill_up(&mut self, failure: &Failure) {
        if self.standing != Standing::Taking {
            return;
        }
        self.standing = Standing::Full;
        self.gauge.refusing.store(true, Relaxed);
        let (member, why) = (self.settings.member, failure.to_string());
        self.report(Report::Failed { member, why, suspect: vec![] });
    }

    /// A file could not be made: for want of space, or because the member is broken.
    fn not_made(&mut self, path: String, source: io::Error) {
        let full = is_full(&source);
        let failure = Failure::Make { root: self.root.clone(), path, source };
        match full {
            true => self.fill_up(&failure),
            false => self.fail(&failure, vec![]),
        }
    }

    /// A chunk could not be given its name. It stays where it is and takes no more.
    fn not_settled(&mut self, key: Key, number: u32, path: String, source: io::Error) {
        let Some(stream) = self.streams.get_mut(&key) else { return };
        let Some(chunk) = stream.chunks.get_mut(&number) else { return };
        match (chunk.file(), chunk.named) {
            (Some(file), true) => chunk.stage = Stage::Open(file),
            (_, _) => {
                // It was to get the spare, which is still where it was.
                if let Spare::Leaving(file) = &stream.spare {
                    stream.spare = Spare::Ready(file.clone());
                }
                chunk.cut_all();
                self.release(key, number);
            }
        }
        let root = self.root.clone();
        self.fail(&Failure::Settle { root, path, source }, vec![]);
    }

    /// A stream's directories or index could not be made.
    fn lose_stream(&mut self, key: Key, path: String, source: io::Error) {
        if let Some(stream) = self.streams.get_mut(&key) {
            stream.phase = Phase::Dead;
            let numbers: Vec<u32> = stream.chunks.keys().copied().collect();
            for number in numbers {
                self.lose_chunk(key, number);
            }
        }
        self.not_made(path, source);
    }

    /// Records or a sync failed: nothing of the stream becomes durable any more, and it is never
    /// tried again. What is still held goes back; what is not is suspect.
    fn break_journal(&mut self, key: Key, failure: &Failure) {
        let Some(stream) = self.streams.get_mut(&key) else { return };
        stream.unsyncable = true;
        let actions = stream.journal.step(Event::Failed);
        let mut cut = Vec::new();
        for (number, chunk) in &mut stream.chunks {
            chunk.cut_all();
            cut.push((key, *number));
        }
        let track = stream.track.clone();
        let mut sequences = Vec::new();
        let mut closed = false;
        for action in actions {
            match action {
                Action::Suspect(blocks) => {
                    sequences.extend(blocks.iter().map(|block| block.sequence));
                }
                Action::Closed => closed = true,
                other => unreachable!("{other:?} after a failure"),
            }
        }
        self.release_all(cut);
        let suspect = if sequences.is_empty() { vec![] } else { vec![(track, sequences)] };
        self.fail(failure, suspect);
        if closed {
            self.trim(key);
        }
    }

    fn release_all(&mut self, chunks: Vec<(Key, u32)>) {
        for (key, number) in chunks {
            self.release(key, number);
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
fn rest_of<F>(file: F, flight: Flight, block: crate::ring::Block) -> Operation<F> {
    let part = (flight.written, flight.bytes - flight.written);
    let offset = flight.offset + u64::from(flight.written);
    Operation::Write { file, offset, block, part }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
