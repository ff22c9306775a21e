//! The ring: what it costs to hand a block to another thread and to get it back.
//!
//! ```text
//! feeder ──Command::Write──► taker        the queues, handles and wake-ups of a recording,
//!    ▲                          │         with nothing done to the bytes
//!    └──────Returned::Written───┘
//! ```
//!
//! Handed over as fast as blocks come back, it says how many blocks a second the ring carries; with a
//! pause between blocks, so that the taker sleeps, how long it takes to wake. Both are far from a limit
//! on a healthy machine: if they are not, the machine's scheduler or its power saving is the bottleneck.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fullbore_core::layout::Geometry;
use fullbore_core::time::Tai;
use fullbore_engine::ring::{Block, Command, Filled, Gauge, Pool, Returned, Track, Wake};
use fullbore_engine::sys::memory::Region;
use fullbore_engine::{source, store};
use hdrhistogram::Histogram;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use uuid::Uuid;

use super::memory::process_cpu_seconds;
use super::result::{Spread, Stage};

/// Bytes of a block, as a recording has them.
pub const BLOCK_BYTES: u32 = 4 << 20;

/// The pool that goes round. The memory is never touched but when it is mapped.
const BLOCKS: usize = 16;

/// The pause before which the taker has fallen asleep.
const PAUSE: Duration = Duration::from_micros(500);

/// A taker looks by itself so often, if nobody wakes it.
const IDLE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// How it is measured.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How often.
    pub runs: usize,
    /// How long each run.
    pub time: Duration,
}

/// What kept it from being measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Memory, a descriptor or a thread.
    #[error("setting up the ring: {0}")]
    SetUp(#[source] io::Error),
    /// The taker did not come to its end.
    #[error("the thread that takes blocks failed")]
    Failed,
}

/// Both ends of the way to one writer.
pub struct Way {
    /// The end of whoever fills blocks.
    pub feeder: source::Lane,
    /// The end of whoever empties them.
    pub taker: store::Lane,
    /// The counters between.
    pub gauge: Arc<Gauge>,
    /// Wakes the taker.
    pub wake: Arc<Wake>,
}

impl Way {
    /// A way with room for so many blocks, and for what ends a stream.
    pub fn new(blocks: usize) -> io::Result<Self> {
        let (commands, asked) = rtrb::RingBuffer::new(blocks + source::Lane::FINISHES);
        let (returned, answers) = rtrb::RingBuffer::new(blocks);
        let gauge = Arc::new(Gauge::default());
        let wake = Arc::new(Wake::new()?);
        let feeder = source::Lane::new(commands, answers, gauge.clone(), wake.clone(), blocks);
        let taker = store::Lane { commands: asked, returned };
        Ok(Self { feeder, taker, gauge, wake })
    }
}

/// Starts a thread that gives every block back untouched. `seen` is told of each when it is taken. It
/// ends when the other end of the way is gone.
pub fn spawn_taker(
    mut lane: store::Lane,
    gauge: Arc<Gauge>,
    wake: Arc<Wake>,
    mut seen: impl FnMut(&Filled) + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let take = move || {
        loop {
            while let Ok(command) = lane.commands.pop() {
                let Command::Write(filled) = command else { continue };
                seen(&filled);
                gauge.backlog_bytes.fetch_sub(filled.bytes.into(), Ordering::Relaxed);
                gauge.written_bytes.fetch_add(filled.bytes.into(), Ordering::Relaxed);
                let Filled { block, track, bytes, .. } = filled;
                // Whoever is gone wants no block back.
                let _ = lane.returned.push(Returned::Written { block, track, bytes });
            }
            if lane.commands.is_abandoned() && lane.commands.is_empty() {
                return;
            }
            wake.about_to_sleep();
            if lane.commands.is_empty() {
                // Interrupted or not, the queue is looked at again.
                let _ = poll(&mut [PollFd::new(&*wake, PollFlags::IN)], Some(&IDLE));
            }
            wake.awake();
        }
    };
    std::thread::Builder::new().name("taker".into()).spawn(take)
}

/// Hands blocks of one stream over, and takes them back.
pub struct Feeder {
    lane: source::Lane,
    pool: Pool,
    track: Arc<Track>,
    sequence: u64,
}

impl Feeder {
    /// A feeder with blocks of its own.
    pub fn new(lane: source::Lane, blocks: usize, geometry: Geometry) -> io::Result<Self> {
        let region = Region::new(blocks * geometry.block_bytes as usize)?;
        let pool = Pool::new(Arc::new(region), geometry.block_bytes as usize, 0);
        let directory = "bench_ring".to_owned();
        let track = Arc::new(Track { scan: Uuid::now_v7(), number: 0, directory, geometry });
        Ok(Self { lane, pool, track, sequence: 0 })
    }

    /// The stream.
    pub fn track(&self) -> &Arc<Track> {
        &self.track
    }

    /// Takes back what was emptied. Gives the number of blocks; refused ones are an error of the writer.
    pub fn take_back(&mut self) -> Result<usize, Error> {
        let mut taken = 0;
        while let Some(returned) = self.lane.take_returned() {
            match returned {
                Returned::Written { block, .. } => self.pool.put(block),
                Returned::Refused(filled) => {
                    self.pool.put(filled.block);
                    return Err(Error::Failed);
                }
            }
            taken += 1;
        }
        Ok(taken)
    }

    /// Whether every block is here.
    pub fn is_whole(&self) -> bool {
        self.pool.free() == self.pool.blocks()
    }

    /// Hands over a free block, if there is one. `fill` may write to it; `stamp` goes along as the index of
    /// its first frame.
    pub fn hand_over(&mut self, stamp: i64, fill: impl FnOnce(&mut Block, u64)) -> bool {
        let Some(mut block) = self.pool.take() else { return false };
        let geometry = self.track.geometry;
        let sequence = self.sequence;
        fill(&mut block, sequence);
        self.sequence += 1;
        let filled = Filled {
            block,
            track: self.track.clone(),
            sequence,
            chunk: (sequence / u64::from(geometry.chunk_blocks)) as u32,
            offset: sequence % u64::from(geometry.chunk_blocks) * u64::from(geometry.block_bytes),
            bytes: geometry.block_bytes,
            frames: 1,
            present: 1,
            invalid: 0,
            first: stamp,
            time: None,
            seen: Tai(0),
            gaps: Vec::new(),
            lengths: Vec::new(),
            crc: None,
        };
        self.lane.write(filled);
        true
    }

    /// Says that nothing more comes of the stream.
    pub fn finish(&mut self) {
        self.lane.finish(self.track.clone(), Vec::new());
    }
}

/// Measures; `heard` is told when a run is done.
pub fn measure(
    settings: &Settings,
    stop: &AtomicBool,
    mut heard: impl FnMut(usize),
) -> Result<Option<Stage>, Error> {
    let mut rates = Vec::new();
    let (mut handed, mut cpu) = (0u64, 0.0);
    for run in 0..settings.runs.max(1) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let saturated = saturate(settings.time)?;
        rates.push(saturated.blocks as f64 / saturated.seconds);
        handed += saturated.blocks;
        cpu += saturated.cpu_seconds;
        heard(run + 1);
    }
    if rates.is_empty() {
        return Ok(None);
    }
    let waking = wake_times(settings.time)?;
    let blocks = Spread::of(&rates);
    let bytes = f64::from(BLOCK_BYTES);
    let as_bytes: Vec<f64> = rates.iter().map(|rate| rate * bytes).collect();
    let mut figures = BTreeMap::new();
    figures.insert("blocks_per_s".to_owned(), blocks.mean);
    figures.insert("cpu_per_block_ns".to_owned(), cpu * 1e9 / handed.max(1) as f64);
    figures.insert("block_bytes".to_owned(), bytes);
    figures.insert("wake_ups".to_owned(), waking.len() as f64);
    for (name, quantile) in [("wake_p50_ns", 0.5), ("wake_p99_ns", 0.99)] {
        figures.insert(name.to_owned(), waking.value_at_quantile(quantile) as f64);
    }
    figures.insert("wake_longest_ns".to_owned(), waking.max() as f64);
    Ok(Some(Stage {
        name: "ring-handover".into(),
        what: "blocks of 4 MiB handed to another thread and back, untouched".into(),
        rate: Spread::of(&as_bytes),
        cpu_s_per_gb: Some(cpu * 1e9 / (handed.max(1) as f64 * bytes)),
        threads: 2,
        figures,
    }))
}

/// How a run went.
struct Saturated {
    blocks: u64,
    seconds: f64,
    cpu_seconds: f64,
}

fn feeder_and_taker(
    seen: impl FnMut(&Filled) + Send + 'static,
) -> Result<(Feeder, JoinHandle<()>), Error> {
    let way = Way::new(BLOCKS).map_err(Error::SetUp)?;
    let taker = spawn_taker(way.taker, way.gauge, way.wake, seen).map_err(Error::SetUp)?;
    let geometry = Geometry::of_bytes(BLOCK_BYTES.into(), 64 * u64::from(BLOCK_BYTES));
    let feeder = Feeder::new(way.feeder, BLOCKS, geometry).map_err(Error::SetUp)?;
    Ok((feeder, taker))
}

fn saturate(time: Duration) -> Result<Saturated, Error> {
    let (mut feeder, taker) = feeder_and_taker(|_| ())?;
    let (began, cpu) = (Instant::now(), process_cpu_seconds());
    let mut blocks = 0u64;
    while began.elapsed() < time {
        let mut handed = 0;
        while feeder.hand_over(0, |_, _| ()) {
            handed += 1;
        }
        blocks += handed;
        // With one core the taker needs it now.
        if feeder.take_back()? == 0 && handed == 0 {
            std::thread::yield_now();
        }
    }
    let (seconds, cpu_seconds) = (began.elapsed().as_secs_f64(), process_cpu_seconds() - cpu);
    drop(feeder);
    taker.join().map_err(|_| Error::Failed)?;
    Ok(Saturated { blocks, seconds, cpu_seconds })
}

/// The longest wake-up told apart.
const LONGEST_NS: u64 = 10_000_000_000;

/// Nanoseconds from handing a block over until the taker, asleep before, has it.
fn wake_times(time: Duration) -> Result<Histogram<u64>, Error> {
    let (times, measured) = std::sync::mpsc::channel();
    let origin = Instant::now();
    let (mut feeder, taker) = feeder_and_taker(move |filled: &Filled| {
        let now = origin.elapsed().as_nanos() as u64;
        // Whoever measured may have seen enough.
        let _ = times.send(now.saturating_sub(filled.first as u64));
    })?;
    let began = Instant::now();
    while began.elapsed() < time {
        std::thread::sleep(PAUSE);
        feeder.take_back()?;
        feeder.hand_over(origin.elapsed().as_nanos() as i64, |_, _| ());
    }
    drop(feeder);
    taker.join().map_err(|_| Error::Failed)?;
    let mut all = Histogram::<u64>::new_with_bounds(1, LONGEST_NS, 3).expect("bounds in order");
    measured.try_iter().for_each(|took| all.saturating_record(took.max(1)));
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_go_round_and_wake_ups_are_timed() {
        let settings = Settings { runs: 2, time: Duration::from_millis(30) };
        let stage = measure(&settings, &AtomicBool::new(false), |_| ()).unwrap().unwrap();
        assert_eq!(stage.rate.runs, 2);
        assert!(stage.figures["blocks_per_s"] > 1000.0, "{stage:?}");
        assert!(stage.figures["wake_ups"] >= 5.0, "{stage:?}");
        assert!(stage.figures["wake_p50_ns"] <= stage.figures["wake_longest_ns"], "{stage:?}");
    }

    #[test]
    fn every_block_comes_back() {
        let (mut feeder, taker) = feeder_and_taker(|_| ()).unwrap();
        let mut handed = 0;
        while feeder.hand_over(7, |block, sequence| block[0] = sequence as u8) {
            handed += 1;
        }
        assert_eq!((handed, feeder.is_whole()), (BLOCKS, false));
        let until = Instant::now() + Duration::from_secs(10);
        while !feeder.is_whole() && Instant::now() < until {
            feeder.take_back().unwrap();
        }
        assert!(feeder.is_whole());
        drop(feeder);
        taker.join().unwrap();
    }
}
