//! The long run: blocks of a pattern through the recorder's writers, for a time or to the end.
//!
//! ```text
//!          ┌──────────── pool: the ring ◄───────────────┐
//! pattern ─┴► block ──► outlet: the store's writers, ───┘ completed
//!                               or a file or device
//!                         │
//!                         └──► trace: when each block was completed, and how long it took
//! ```
//!
//! Blocks are written as fast as they come back, or at a rate. At a rate, a block that is due while none is free counts
//! as overrun, as in a recording.

pub mod analysis;
pub mod cliff;
pub mod duty;
mod plain;
pub mod read_back;
mod store;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fullbore_capture::checksum;
use fullbore_core::duty::Duty;
use fullbore_core::pattern::Pattern;
use fullbore_core::units::{ByteRate, ByteSize};
use fullbore_linux::ring::{Block, Pool};
use fullbore_linux::sys::memory::Region;

use super::error::Error;
use super::target::{Place, PlaceKind};
use super::{Watcher, cpu_seconds};

/// The size of a piece. Its checksum is computed while it is in the cache, as that of a frame is.
const PIECE: usize = 256 << 10;

/// The longest wait for blocks before stop requests and errors are checked.
const PATIENCE: Duration = Duration::from_millis(5);

/// Time between two progress reports.
const TELLING: Duration = Duration::from_millis(200);

/// The settings of a long run.
#[derive(Clone, Debug)]
pub struct ContinuousRequest {
    /// The most bytes …
    pub bytes: u64,
    /// … and the longest duration.
    pub time: Option<Duration>,
    /// The most bytes on each target at once. Beyond this, writing continues from the start and overwrites the oldest.
    pub wrap: Option<u64>,
    /// Bytes per block.
    pub block_bytes: u32,
    /// Bytes per chunk file, in directories.
    pub chunk_bytes: u64,
    /// Bytes of concurrent writes, for each target.
    pub depth_bytes: u64,
    /// The rate at which blocks are due; `None`: as fast as possible.
    pub pace: Option<ByteRate>,
    /// The scans and pauses in which blocks are due; `None`: always.
    pub duty: Option<Duty>,
    /// Bytes written in each pause at full speed: those that a ring may hold at its beginning.
    pub drain_bytes: u64,
    /// Bytes of all blocks.
    pub ring_bytes: u64,
    /// The pattern …
    pub pattern: Pattern,
    /// … and the position in it. It differs between runs, so that data of an earlier run is detected.
    pub base: u64,
}

/// The position of a written block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Laid {
    /// The target.
    pub member: usize,
    /// Chunk file, in directories.
    pub chunk: u32,
    /// Offset in the chunk, or in the file or device.
    pub offset: u64,
    /// Offset in the stream.
    pub position: u64,
    /// The number of bytes.
    pub bytes: u32,
    /// The CRC32C.
    pub crc: u32,
}

/// A completed block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// The target.
    pub member: usize,
    /// Chunk file; 0 for files and devices.
    pub chunk: u32,
    /// Offset in it.
    pub offset: u64,
    /// The number of bytes.
    pub bytes: u32,
    /// The time of completion, in nanoseconds since the first block was passed to the target.
    pub at_ns: u64,
    /// Time from submission to completion, in nanoseconds.
    pub took_ns: u64,
}

/// The result of writing.
pub struct Written {
    /// Every block that was not overwritten, in the order of the stream.
    pub laid: Vec<Laid>,
    /// Every completion, in order of time.
    pub trace: Vec<Done>,
    /// Bytes written.
    pub bytes: u64,
    /// Bytes that were due while no block was free.
    pub overrun_bytes: u64,
    /// From the first block to the last sync.
    pub elapsed: Duration,
    /// The time during which blocks were passed to the target: not longer than requested, even if the last ones are
    /// written later.
    pub fed_for: Duration,
    /// The length of the run: the requested one, or shorter if all bytes were passed to the target before, or a stop
    /// was requested. At full speed, the feed ends with the last block that the last pause writes.
    pub lasted: Duration,
    /// CPU time of the process.
    pub cpu_seconds: f64,
    /// CPU time of pattern and checksum.
    pub filling: Duration,
    /// True if blocks are returned only in the order of their chunk.
    pub in_order: bool,
    /// Keeps the files open, and knows their paths.
    sink: Box<dyn BlockSink>,
}

impl Written {
    /// The path for reading a block.
    fn path(&self, laid: &Laid) -> Option<Arc<PathBuf>> {
        self.sink.path(laid)
    }
}

/// A destination of blocks.
trait BlockSink {
    /// Takes a block; `laid` contains everything except its place.
    fn give(&mut self, block: Block, bytes: u32, crc: u32) -> Result<Laid, Error>;

    /// Returns written blocks to the pool, and waits for them at most `wait`.
    fn collect(&mut self, pool: &mut Pool, wait: Duration) -> Result<(), Error>;

    /// Waits until all blocks are written and synced, and all of its threads have ended.
    fn finish(&mut self, pool: &mut Pool) -> Result<(), Error>;

    /// All completions since `begun`.
    fn trace(&mut self, begun: Instant) -> Vec<Done>;

    /// The path for reading a block, unless it was overwritten.
    fn path(&self, laid: &Laid) -> Option<Arc<PathBuf>>;

    /// True if a block was overwritten.
    fn is_gone(&self, laid: &Laid) -> bool;
}

/// Writes.
pub fn write(
    places: &[Place],
    request: &ContinuousRequest,
    watcher: &mut Watcher,
) -> Result<Written, Error> {
    let blocks = (request.ring_bytes / u64::from(request.block_bytes)).max(2);
    let bytes = blocks * u64::from(request.block_bytes);
    let region = Region::new(bytes as usize).map_err(|source| Error::Memory { bytes, source })?;
    let mut pool = Pool::new(Arc::new(region), request.block_bytes as usize, 0);
    let mut sink: Box<dyn BlockSink> = match &places[0].kind {
        PlaceKind::Directory(_) => Box::new(store::Members::open(places, request, pool.blocks())?),
        PlaceKind::Plain(path) => Box::new(plain::Plain::open(path, &places[0], request)?),
    };
    let (begun, cpu) = (Instant::now(), cpu_seconds());
    let mut feeder = Feeder {
        request,
        begun,
        told: begun,
        filling: Duration::ZERO,
        laid: vec![],
        written_bytes: 0,
        drained_bytes: 0,
    };
    let fed = feeder.feed(&mut *sink, &mut pool, watcher);
    let fed_for = begun.elapsed().min(request.time.unwrap_or(Duration::MAX));
    let ended_by_time = matches!(fed, Ok(Fed { all: false, .. })) && !watcher.stop.is_requested();
    let lasted = request.time.filter(|_| ended_by_time).unwrap_or(fed_for);
    // Threads and kernel operations are finished in any case, and the first error is reported.
    let finished = sink.finish(&mut pool);
    let Fed { overrun_bytes, .. } = fed?;
    finished?;
    let elapsed = begun.elapsed();
    feeder.laid.retain(|laid| !sink.is_gone(laid));
    let mut trace = sink.trace(begun);
    trace.sort_by_key(|done| done.at_ns);
    Ok(Written {
        bytes: feeder.written_bytes,
        filling: feeder.filling,
        laid: feeder.laid,
        trace,
        overrun_bytes,
        elapsed,
        fed_for,
        lasted,
        cpu_seconds: cpu_seconds() - cpu,
        in_order: matches!(places[0].kind, PlaceKind::Directory(_)),
        sink,
    })
}

/// What was passed to the targets.
struct Fed {
    /// Bytes for which there was no block.
    overrun_bytes: u64,
    /// True if these are all bytes of the request.
    all: bool,
}

/// Makes blocks and passes them to the targets.
struct Feeder<'a> {
    request: &'a ContinuousRequest,
    begun: Instant,
    told: Instant,
    filling: Duration,
    laid: Vec<Laid>,
    written_bytes: u64,
    /// Bytes written in the current pause.
    drained_bytes: u64,
}

impl Feeder<'_> {
    fn feed(
        &mut self,
        sink: &mut dyn BlockSink,
        pool: &mut Pool,
        watcher: &mut Watcher,
    ) -> Result<Fed, Error> {
        let (mut came, mut position, mut overrun_bytes) = (0, 0, 0);
        while came < self.request.bytes && !self.is_over(watcher) {
            let bytes = (self.request.bytes - came).min(self.request.block_bytes.into()) as u32;
            self.tell(came, watcher);
            if !self.wait_until(came, sink, pool, watcher)?
                || !self.rest(bytes, sink, pool, watcher)?
            {
                break;
            }
            let block = match self.request.pace {
                Some(_) => pool.take(),
                None => self.await_block(sink, pool, watcher)?,
            };
            match block {
                Some(block) => {
                    let (block, crc) = self.fill(block, bytes, position);
                    if !self.wait_until(came + u64::from(bytes), sink, pool, watcher)? {
                        pool.put(block);
                        break;
                    }
                    let laid = sink.give(block, bytes, crc)?;
                    self.laid.push(Laid { position, ..laid });
                    position += u64::from(bytes);
                    self.written_bytes = position;
                }
                None if self.request.pace.is_some() => overrun_bytes += u64::from(bytes),
                None => break,
            }
            came += u64::from(bytes);
        }
        Ok(Fed { overrun_bytes, all: came >= self.request.bytes })
    }

    fn is_over(&self, watcher: &Watcher) -> bool {
        let late = self.request.time.is_some_and(|time| self.begun.elapsed() >= time);
        late || watcher.stop.is_requested()
    }

    fn fill(&mut self, mut block: Block, bytes: u32, position: u64) -> (Block, u32) {
        let begun = Instant::now();
        let mut crc = 0;
        let mut at = self.request.base.wrapping_add(position);
        for piece in block[..bytes as usize].chunks_mut(PIECE) {
            self.request.pattern.fill(piece, at);
            crc = checksum::append(crc, piece);
            at = at.wrapping_add(piece.len() as u64);
        }
        self.filling += begun.elapsed();
        (block, crc)
    }

    /// A free block; `None` if the run ends first.
    fn await_block(
        &self,
        sink: &mut dyn BlockSink,
        pool: &mut Pool,
        watcher: &Watcher,
    ) -> Result<Option<Block>, Error> {
        loop {
            sink.collect(pool, Duration::ZERO)?;
            if let Some(block) = pool.take() {
                return Ok(Some(block));
            }
            if self.is_over(watcher) {
                return Ok(None);
            }
            sink.collect(pool, PATIENCE)?;
        }
    }

    /// Waits until this number of bytes is due at the given rate; `None` if the run ends first.
    fn wait_until(
        &self,
        came: u64,
        sink: &mut dyn BlockSink,
        pool: &mut Pool,
        watcher: &Watcher,
    ) -> Result<bool, Error> {
        let Some(rate) = self.request.pace else { return Ok(true) };
        let due = Duration::from_secs_f64(came as f64 / rate.0.max(1) as f64);
        let due = match self.request.duty {
            Some(duty) => Duration::from_nanos(duty.time_of_ns(due.as_nanos() as u64)),
            None => due,
        };
        loop {
            let left = due.saturating_sub(self.begun.elapsed());
            sink.collect(pool, left.min(PATIENCE))?;
            if left.is_zero() {
                return Ok(true);
            }
            if self.is_over(watcher) {
                return Ok(false);
            }
        }
    }

    /// At full speed, waits for the next scan after the pause has written as much as a ring may hold. The run may end
    /// first.
    fn rest(
        &mut self,
        bytes: u32,
        sink: &mut dyn BlockSink,
        pool: &mut Pool,
        watcher: &Watcher,
    ) -> Result<bool, Error> {
        let Some(duty) = self.request.duty.filter(|_| self.request.pace.is_none()) else {
            return Ok(true);
        };
        let now_ns = self.begun.elapsed().as_nanos() as u64;
        if duty.is_recording(now_ns) {
            self.drained_bytes = 0;
            return Ok(true);
        }
        self.drained_bytes += u64::from(bytes);
        if self.drained_bytes <= self.request.drain_bytes {
            return Ok(true);
        }
        let next = Duration::from_nanos((now_ns / duty.cycle_ns() + 1) * duty.cycle_ns());
        if self.request.time.is_some_and(|time| next >= time) {
            return Ok(false);
        }
        while self.begun.elapsed() < next {
            if self.is_over(watcher) {
                return Ok(false);
            }
            sink.collect(pool, PATIENCE)?;
        }
        self.drained_bytes = 0;
        Ok(true)
    }

    fn tell(&mut self, came: u64, watcher: &mut Watcher) {
        if self.told.elapsed() < TELLING {
            return;
        }
        self.told = Instant::now();
        let elapsed = self.begun.elapsed();
        let by_bytes = came as f64 / self.request.bytes as f64;
        let by_time =
            self.request.time.map_or(0.0, |time| elapsed.as_secs_f64() / time.as_secs_f64());
        let rate = came as f64 / elapsed.as_secs_f64();
        let rate = crate::report::text::rate(rate);
        let text = format!("continuous: {} written, {rate}", ByteSize(came));
        (watcher.tell)(&text, by_bytes.max(by_time).min(1.0));
    }
}

#[cfg(test)]
mod tests {
    use fullbore_core::pattern::Prbs;
    use fullbore_linux::stop_handle::StopHandle;

    use super::*;
    use crate::bench::environment::Roots;

    fn request(bytes: u64) -> ContinuousRequest {
        ContinuousRequest {
            bytes,
            time: None,
            wrap: None,
            block_bytes: 1 << 20,
            chunk_bytes: 4 << 20,
            depth_bytes: 4 << 20,
            pace: None,
            duty: None,
            drain_bytes: 0,
            ring_bytes: 8 << 20,
            pattern: Pattern::Prbs(Prbs::PRBS31),
            base: 12_345,
        }
    }

    fn run(places: &[Place], request: &ContinuousRequest) -> Written {
        let stop = StopHandle::default();
        let mut tell = |_: &str, _: f64| {};
        write(places, request, &mut Watcher { stop: &stop, tell: &mut tell }).unwrap()
    }

    fn check(written: &Written, request: &ContinuousRequest) -> crate::bench::result::Verification {
        let stop = StopHandle::default();
        let mut tell = |_: &str, _: f64| {};
        let mut watcher = Watcher { stop: &stop, tell: &mut tell };
        read_back::read(written, request, &mut watcher).unwrap().verification
    }

    #[test]
    fn members_are_written_read_back_and_left_as_they_were() {
        let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let places: Vec<Place> = directories
            .iter()
            .map(|directory| Place::open(directory.path(), None, &Roots::default()).unwrap())
            .collect();
        let request = request((22 << 20) + 4096);
        let written = run(&places, &request);
        assert_eq!(written.bytes, request.bytes);
        assert_eq!(written.trace.len(), 23);
        let members: std::collections::BTreeSet<usize> =
            written.laid.iter().map(|laid| laid.member).collect();
        assert!(!members.is_empty());
        let found = check(&written, &request);
        assert_eq!((found.compared_bytes, found.wrong_blocks), (request.bytes, 0), "{found:?}");
        let other = ContinuousRequest { base: 0, ..request };
        let found = check(&written, &other);
        assert_eq!(found.wrong_blocks, 23, "what another run has written is told apart");
        assert!(found.first.unwrap().contains("at byte 0"));
        drop(written);
        for directory in &directories {
            assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn a_file_is_written_to_its_last_byte_and_damage_is_found_where_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, vec![0; (5 << 20) + 8192]).unwrap();
        let places = [Place::open(&path, Some(&path), &Roots::default()).unwrap()];
        let request = request((5 << 20) + 8192);
        let written = run(&places, &request);
        assert_eq!(written.bytes, request.bytes);
        let mut bytes = std::fs::read(&path).unwrap();
        assert_eq!(request.pattern.first_difference(&bytes, request.base), None);
        bytes[3_000_000] ^= 8;
        std::fs::write(&path, bytes).unwrap();
        let found = check(&written, &request);
        assert_eq!(found.wrong_blocks, 1);
        assert!(found.first.unwrap().contains("at byte 3000000"));
    }

    #[test]
    fn going_round_writes_over_the_oldest_and_what_is_left_is_read_for_as_long() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, vec![0; 8 << 20]).unwrap();
        let members = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let member = |at: &tempfile::TempDir| Place::open(at.path(), None, &Roots::default());
        let places = [
            vec![Place::open(&path, Some(&path), &Roots::default()).unwrap()],
            vec![member(&members[0]).unwrap()],
            members.iter().map(|at| member(at).unwrap()).collect(),
        ];
        for places in places {
            let most = places.len() as u64 * (8 << 20);
            let round = ContinuousRequest {
                wrap: Some(8 << 20),
                depth_bytes: 2 << 20,
                ..request(100 << 20)
            };
            let written = run(&places, &round);
            assert_eq!((written.bytes, written.trace.len()), (100 << 20, 100));
            let left: u64 = written.laid.iter().map(|laid| u64::from(laid.bytes)).sum();
            assert!(left <= most && left >= 4 << 20, "{left} of {most}");
            let found = check(&written, &round);
            assert_eq!((found.compared_bytes, found.wrong_blocks), (left, 0), "{found:?}");
            let long = Duration::from_millis(300);
            let stop = StopHandle::default();
            let mut watcher = Watcher { stop: &stop, tell: &mut |_, _| {} };
            let read = read_back::read(
                &written,
                &ContinuousRequest { time: Some(long), ..round },
                &mut watcher,
            )
            .unwrap();
            assert!(read.verification.compared_bytes > left && read.elapsed >= long);
            assert_eq!(read.verification.wrong_blocks, 0, "{:?}", read.verification);
        }
    }

    #[test]
    fn in_a_duty_cycle_a_pause_drains_the_ring_and_the_disk_rests() {
        let directory = tempfile::tempdir().unwrap();
        let places = [Place::open(directory.path(), None, &Roots::default()).unwrap()];
        let duty = "200ms/400ms".parse().unwrap();
        let time = Some(Duration::from_millis(1800));
        let slow = ContinuousRequest {
            duty: Some(duty),
            pace: Some(ByteRate(50_000_000)),
            time,
            ..request(1 << 30)
        };
        let written = run(&places, &slow);
        assert_eq!(written.overrun_bytes, 0);
        // Three scans of 200 ms at 50 MB/s, in blocks of 1 MiB.
        assert!((28..=30).contains(&(written.bytes >> 20)), "{}", written.bytes);
        let request =
            ContinuousRequest { duty: Some(duty), drain_bytes: 3 << 20, time, ..request(8 << 30) };
        let written = run(&places, &request);
        let scans = duty::scans(&written.trace, duty, written.fed_for);
        assert_eq!(scans.len(), 3);
        let given = |done: &Done| done.at_ns - done.took_ns;
        for number in 0..3u64 {
            // Blocks that a writer holds when the pause begins were passed to it before.
            let later = (number * 600 + 250) * 1_000_000..(number + 1) * 600_000_000;
            let rested = written.trace.iter().filter(|done| later.contains(&given(done)));
            assert!(rested.count() < 64, "the disk rests once the ring is empty");
        }
    }

    #[test]
    fn at_a_low_rate_the_run_ends_when_its_time_is_over() {
        let directory = tempfile::tempdir().unwrap();
        let places = [Place::open(directory.path(), None, &Roots::default()).unwrap()];
        let time = Some(Duration::from_millis(100));
        let hours = ContinuousRequest { pace: Some(ByteRate(300)), time, ..request(2 << 20) };
        let written = run(&places, &hours);
        assert_eq!((written.bytes, written.overrun_bytes), (0, 0), "not one was due");
    }

    #[test]
    fn at_a_rate_that_holds_nothing_is_lost_and_beyond_it_what_had_no_block_is_counted() {
        let directory = tempfile::tempdir().unwrap();
        let places = [Place::open(directory.path(), None, &Roots::default()).unwrap()];
        let slow = ContinuousRequest { pace: Some(ByteRate(50_000_000)), ..request(10 << 20) };
        let written = run(&places, &slow);
        assert_eq!((written.bytes, written.overrun_bytes), (10 << 20, 0));
        assert!(written.elapsed >= Duration::from_millis(200));
        let absurd = ContinuousRequest { pace: Some(ByteRate(u64::MAX / 4)), ..request(200 << 20) };
        let written = run(&places, &absurd);
        assert!(written.overrun_bytes > 0);
        assert_eq!(written.bytes + written.overrun_bytes, 200 << 20);
    }
}
