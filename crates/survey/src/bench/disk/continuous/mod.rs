//! The long run: blocks of a pattern through the writers that record, for a time or to the end.
//!
//! ```text
//!          ┌──────────── pool: the ring ◄───────────────┐
//! pattern ─┴► block ──► outlet: the store's writers, ───┘ completed
//!                               or a file or device
//!                         │
//!                         └──► trace: when each block was completed, and how long it took
//! ```
//!
//! As fast as blocks come back, or at a rate: then a block is due whether one is free or not, and what
//! had none is overrun, as in a recording.

pub mod analysis;
pub mod cliff;
pub mod duty;
mod plain;
pub mod read_back;
mod store;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use fullbore_core::duty::Duty;
use fullbore_core::pattern::Pattern;
use fullbore_core::units::{ByteRate, ByteSize};
use fullbore_engine::checksum;
use fullbore_engine::ring::{Block, Pool};
use fullbore_engine::sys::memory::Region;

use super::error::Error;
use super::target::{Place, PlaceKind};
use super::{Watcher, cpu_seconds};

/// So much of a block is made at a time: its checksum is taken while it is in the cache, as that of a frame is.
const PIECE: usize = 256 << 10;

/// A wait for blocks ends after this, to look at signals and at what went wrong.
const PATIENCE: Duration = Duration::from_millis(5);

/// How often progress is told.
const TELLING: Duration = Duration::from_millis(200);

/// What to write.
#[derive(Clone, Debug)]
pub struct Wish {
    /// At most so many bytes …
    pub bytes: u64,
    /// … and no longer than this.
    pub time: Option<Duration>,
    /// So many bytes lie on each target at once: then writing goes on from the start, over the oldest.
    pub wrap: Option<u64>,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Bytes of a chunk file, in directories.
    pub chunk_bytes: u64,
    /// Bytes of writes under way at once, for each target.
    pub depth_bytes: u64,
    /// Blocks are due at this rate, not as fast as they can be had.
    pub pace: Option<ByteRate>,
    /// Blocks are due in scans only, with pauses between them.
    pub duty: Option<Duty>,
    /// At full speed, so many bytes more are written in each pause: what a ring may hold when it begins.
    pub drain_bytes: u64,
    /// Bytes of all blocks.
    pub ring_bytes: u64,
    /// What is written …
    pub pattern: Pattern,
    /// … from where in it: another place in each run, so that what an earlier one left is told apart.
    pub base: u64,
}

/// Where a block went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Laid {
    /// Which target.
    pub member: usize,
    /// Chunk file, in directories.
    pub chunk: u32,
    /// Where in the chunk, or in the file or device.
    pub offset: u64,
    /// Where in the stream.
    pub position: u64,
    /// How many bytes.
    pub bytes: u32,
    /// CRC32C of them.
    pub crc: u32,
}

/// A block that was completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Which target.
    pub member: usize,
    /// Chunk file; 0 for files and devices.
    pub chunk: u32,
    /// Where in it.
    pub offset: u64,
    /// How many bytes.
    pub bytes: u32,
    /// When, in nanoseconds since the first block was given.
    pub at_ns: u64,
    /// From submission to completion, in nanoseconds.
    pub took_ns: u64,
}

/// All that the writing left.
pub struct Written {
    /// Every block that is still there, in the order of the stream.
    pub laid: Vec<Laid>,
    /// Every completion, in the order of time.
    pub trace: Vec<Done>,
    /// Bytes written.
    pub bytes: u64,
    /// Bytes that were due while no block was free.
    pub overrun_bytes: u64,
    /// From the first block to the last sync.
    pub elapsed: Duration,
    /// CPU time of the process.
    pub cpu_seconds: f64,
    /// Of that, on the pattern and its checksum.
    pub filling: Duration,
    /// Whether blocks are given back only in the order of their chunk.
    pub in_order: bool,
    /// Keeps what was written, and knows where it is.
    outlet: Box<dyn Outlet>,
}

impl Written {
    /// The path that reads where a block lies.
    fn path(&self, laid: &Laid) -> Option<Arc<PathBuf>> {
        self.outlet.path(laid)
    }
}

/// Where blocks go.
trait Outlet {
    /// Takes a block; `laid` says all but where it will lie.
    fn give(&mut self, block: Block, bytes: u32, crc: u32) -> Result<Laid, Error>;

    /// Gives back what is written, waiting for it no longer than this.
    fn collect(&mut self, pool: &mut Pool, wait: Duration) -> Result<(), Error>;

    /// Waits until all is written and synced, and no thread of it is left.
    fn finish(&mut self, pool: &mut Pool) -> Result<(), Error>;

    /// All that was completed since `begun`.
    fn trace(&mut self, begun: Instant) -> Vec<Done>;

    /// The path that reads where a block lies, if it was not written over.
    fn path(&self, laid: &Laid) -> Option<Arc<PathBuf>>;

    /// Whether a block was written over.
    fn is_gone(&self, laid: &Laid) -> bool;
}

/// Writes.
pub fn write(places: &[Place], wish: &Wish, watcher: &mut Watcher) -> Result<Written, Error> {
    let blocks = (wish.ring_bytes / u64::from(wish.block_bytes)).max(2);
    let bytes = blocks * u64::from(wish.block_bytes);
    let region = Region::new(bytes as usize).map_err(|source| Error::Memory { bytes, source })?;
    let mut pool = Pool::new(Arc::new(region), wish.block_bytes as usize, 0);
    let mut outlet: Box<dyn Outlet> = match &places[0].kind {
        PlaceKind::Directory(_) => Box::new(store::Members::open(places, wish, pool.blocks())?),
        PlaceKind::Plain(path) => Box::new(plain::Plain::open(path, &places[0], wish)?),
    };
    let (begun, cpu) = (Instant::now(), cpu_seconds());
    let mut feeder = Feeder {
        wish,
        begun,
        told: begun,
        filling: Duration::ZERO,
        laid: vec![],
        written_bytes: 0,
        drained_bytes: 0,
    };
    let fed = feeder.feed(&mut *outlet, &mut pool, watcher);
    // Threads and kernel are let finish whatever happened, and the first error is the one to tell.
    let finished = outlet.finish(&mut pool);
    let overrun_bytes = fed?;
    finished?;
    let elapsed = begun.elapsed();
    feeder.laid.retain(|laid| !outlet.is_gone(laid));
    let mut trace = outlet.trace(begun);
    trace.sort_by_key(|done| done.at_ns);
    Ok(Written {
        bytes: feeder.written_bytes,
        filling: feeder.filling,
        laid: feeder.laid,
        trace,
        overrun_bytes,
        elapsed,
        cpu_seconds: cpu_seconds() - cpu,
        in_order: matches!(places[0].kind, PlaceKind::Directory(_)),
        outlet,
    })
}

/// Makes blocks and deals them out.
struct Feeder<'a> {
    wish: &'a Wish,
    begun: Instant,
    told: Instant,
    filling: Duration,
    laid: Vec<Laid>,
    written_bytes: u64,
    /// Bytes given in the pause that is.
    drained_bytes: u64,
}

impl Feeder<'_> {
    /// Returns the bytes that had no block.
    fn feed(
        &mut self,
        outlet: &mut dyn Outlet,
        pool: &mut Pool,
        watcher: &mut Watcher,
    ) -> Result<u64, Error> {
        let (mut came, mut position, mut overrun) = (0, 0, 0);
        while came < self.wish.bytes && !self.is_over(watcher) {
            let bytes = (self.wish.bytes - came).min(self.wish.block_bytes.into()) as u32;
            self.tell(came, watcher);
            if !self.wait_until(came, outlet, pool, watcher)?
                || !self.rest(bytes, outlet, pool, watcher)?
            {
                break;
            }
            let block = match self.wish.pace {
                Some(_) => pool.take(),
                None => self.await_block(outlet, pool, watcher)?,
            };
            match block {
                Some(block) => {
                    let (block, crc) = self.fill(block, bytes, position);
                    if !self.wait_until(came + u64::from(bytes), outlet, pool, watcher)? {
                        pool.put(block);
                        break;
                    }
                    let laid = outlet.give(block, bytes, crc)?;
                    self.laid.push(Laid { position, ..laid });
                    position += u64::from(bytes);
                    self.written_bytes = position;
                }
                None if self.wish.pace.is_some() => overrun += u64::from(bytes),
                None => break,
            }
            came += u64::from(bytes);
        }
        Ok(overrun)
    }

    fn is_over(&self, watcher: &Watcher) -> bool {
        let late = self.wish.time.is_some_and(|time| self.begun.elapsed() >= time);
        late || watcher.stop.load(Relaxed)
    }

    fn fill(&mut self, mut block: Block, bytes: u32, position: u64) -> (Block, u32) {
        let begun = Instant::now();
        let mut crc = 0;
        let mut at = self.wish.base.wrapping_add(position);
        for piece in block[..bytes as usize].chunks_mut(PIECE) {
            self.wish.pattern.fill(piece, at);
            crc = checksum::append(crc, piece);
            at = at.wrapping_add(piece.len() as u64);
        }
        self.filling += begun.elapsed();
        (block, crc)
    }

    /// A free block, unless the run is over before there is one.
    fn await_block(
        &self,
        outlet: &mut dyn Outlet,
        pool: &mut Pool,
        watcher: &Watcher,
    ) -> Result<Option<Block>, Error> {
        loop {
            outlet.collect(pool, Duration::ZERO)?;
            if let Some(block) = pool.take() {
                return Ok(Some(block));
            }
            if self.is_over(watcher) {
                return Ok(None);
            }
            outlet.collect(pool, PATIENCE)?;
        }
    }

    /// Waits until so many bytes are due, if they are due at a rate. The run may be over before: then they are not.
    fn wait_until(
        &self,
        came: u64,
        outlet: &mut dyn Outlet,
        pool: &mut Pool,
        watcher: &Watcher,
    ) -> Result<bool, Error> {
        let Some(rate) = self.wish.pace else { return Ok(true) };
        let due = Duration::from_secs_f64(came as f64 / rate.0.max(1) as f64);
        let due = match self.wish.duty {
            Some(duty) => Duration::from_nanos(duty.time_of_ns(due.as_nanos() as u64)),
            None => due,
        };
        loop {
            let left = due.saturating_sub(self.begun.elapsed());
            outlet.collect(pool, left.min(PATIENCE))?;
            if left.is_zero() {
                return Ok(true);
            }
            if self.is_over(watcher) {
                return Ok(false);
            }
        }
    }

    /// At full speed, waits for the next scan once as much was written in the pause as a ring may hold. The run may be over
    /// before.
    fn rest(
        &mut self,
        bytes: u32,
        outlet: &mut dyn Outlet,
        pool: &mut Pool,
        watcher: &Watcher,
    ) -> Result<bool, Error> {
        let Some(duty) = self.wish.duty.filter(|_| self.wish.pace.is_none()) else {
            return Ok(true);
        };
        let now_ns = self.begun.elapsed().as_nanos() as u64;
        if duty.is_recording(now_ns) {
            self.drained_bytes = 0;
            return Ok(true);
        }
        self.drained_bytes += u64::from(bytes);
        if self.drained_bytes <= self.wish.drain_bytes {
            return Ok(true);
        }
        let next = Duration::from_nanos((now_ns / duty.cycle_ns() + 1) * duty.cycle_ns());
        if self.wish.time.is_some_and(|time| next >= time) {
            return Ok(false);
        }
        while self.begun.elapsed() < next {
            if self.is_over(watcher) {
                return Ok(false);
            }
            outlet.collect(pool, PATIENCE)?;
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
        let by_bytes = came as f64 / self.wish.bytes as f64;
        let by_time = self.wish.time.map_or(0.0, |time| elapsed.as_secs_f64() / time.as_secs_f64());
        let rate = came as f64 / elapsed.as_secs_f64();
        let rate = crate::report::text::rate(rate);
        let text = format!("continuous: {} written, {rate}", ByteSize(came));
        (watcher.tell)(&text, by_bytes.max(by_time).min(1.0));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use fullbore_core::pattern::Prbs;

    use super::*;
    use crate::bench::environment::Roots;

    fn wish(bytes: u64) -> Wish {
        Wish {
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

    fn run(places: &[Place], wish: &Wish) -> Written {
        let stop = AtomicBool::new(false);
        let mut tell = |_: &str, _: f64| {};
        write(places, wish, &mut Watcher { stop: &stop, tell: &mut tell }).unwrap()
    }

    fn check(written: &Written, wish: &Wish) -> crate::bench::result::Verification {
        let stop = AtomicBool::new(false);
        let mut tell = |_: &str, _: f64| {};
        let mut watcher = Watcher { stop: &stop, tell: &mut tell };
        read_back::read(written, wish, &mut watcher).unwrap().verification
    }

    #[test]
    fn members_are_written_read_back_and_left_as_they_were() {
        let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let places: Vec<Place> = directories
            .iter()
            .map(|directory| Place::open(directory.path(), None, &Roots::default()).unwrap())
            .collect();
        let wish = wish((22 << 20) + 4096);
        let written = run(&places, &wish);
        assert_eq!(written.bytes, wish.bytes);
        assert_eq!(written.trace.len(), 23);
        let members: std::collections::BTreeSet<usize> =
            written.laid.iter().map(|laid| laid.member).collect();
        assert!(!members.is_empty());
        let found = check(&written, &wish);
        assert_eq!((found.compared_bytes, found.wrong_blocks), (wish.bytes, 0), "{found:?}");
        let other = Wish { base: 0, ..wish };
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
        let wish = wish((5 << 20) + 8192);
        let written = run(&places, &wish);
        assert_eq!(written.bytes, wish.bytes);
        let mut bytes = std::fs::read(&path).unwrap();
        assert_eq!(wish.pattern.first_difference(&bytes, wish.base), None);
        bytes[3_000_000] ^= 8;
        std::fs::write(&path, bytes).unwrap();
        let found = check(&written, &wish);
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
            let round = Wish { wrap: Some(8 << 20), depth_bytes: 2 << 20, ..wish(100 << 20) };
            let written = run(&places, &round);
            assert_eq!((written.bytes, written.trace.len()), (100 << 20, 100));
            let left: u64 = written.laid.iter().map(|laid| u64::from(laid.bytes)).sum();
            assert!(left <= most && left >= 4 << 20, "{left} of {most}");
            let found = check(&written, &round);
            assert_eq!((found.compared_bytes, found.wrong_blocks), (left, 0), "{found:?}");
            let long = Duration::from_millis(300);
            let stop = AtomicBool::new(false);
            let mut watcher = Watcher { stop: &stop, tell: &mut |_, _| {} };
            let read = read_back::read(&written, &Wish { time: Some(long), ..round }, &mut watcher)
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
        let slow =
            Wish { duty: Some(duty), pace: Some(ByteRate(50_000_000)), time, ..wish(1 << 30) };
        let written = run(&places, &slow);
        assert_eq!(written.overrun_bytes, 0);
        // Three scans of 200 ms at 50 MB/s, in blocks of 1 MiB.
        assert!((28..=30).contains(&(written.bytes >> 20)), "{}", written.bytes);
        let wish = Wish { duty: Some(duty), drain_bytes: 3 << 20, time, ..wish(8 << 30) };
        let written = run(&places, &wish);
        let scans = duty::scans(&written.trace, duty);
        assert_eq!(scans.len(), 3);
        let given = |done: &Done| done.at_ns - done.took_ns;
        for number in 0..3u64 {
            // What a writer has in its hands when the pause begins was given before.
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
        let hours = Wish { pace: Some(ByteRate(300)), time, ..wish(2 << 20) };
        let written = run(&places, &hours);
        assert_eq!((written.bytes, written.overrun_bytes), (0, 0), "not one was due");
    }

    #[test]
    fn at_a_rate_that_holds_nothing_is_lost_and_beyond_it_what_had_no_block_is_counted() {
        let directory = tempfile::tempdir().unwrap();
        let places = [Place::open(directory.path(), None, &Roots::default()).unwrap()];
        let slow = Wish { pace: Some(ByteRate(50_000_000)), ..wish(10 << 20) };
        let written = run(&places, &slow);
        assert_eq!((written.bytes, written.overrun_bytes), (10 << 20, 0));
        assert!(written.elapsed >= Duration::from_millis(200));
        let absurd = Wish { pace: Some(ByteRate(u64::MAX / 4)), ..wish(200 << 20) };
        let written = run(&places, &absurd);
        assert!(written.overrun_bytes > 0);
        assert_eq!(written.bytes + written.overrun_bytes, 200 << 20);
    }
}
