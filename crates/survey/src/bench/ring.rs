//! The ring: measures the cost of passing a block to another thread and back.
//!
//! ```text
//! feeder ──WriterCommand::Write──► taker        the queues, handles and wake-ups of a recording,
//!    ▲                                │         without work on the bytes
//!    └───────WriterReply::Written─────┘
//! ```
//!
//! Passing blocks as fast as they come back measures the blocks per second of the ring. With a pause between blocks,
//! the taker falls asleep, which measures the wake-up time. Both are far from a limit on a healthy machine. If they are
//! not, the scheduler or power saving is the bottleneck.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fullbore_capture::WriterQueue;
use fullbore_core::layout::Geometry;
use fullbore_linux::ring::{
    Block, FullBlock, Notifier, Pool, StreamRef, WriterCommand, WriterMetrics, WriterReply,
    reply_queue,
};
use fullbore_linux::stop_handle::StopHandle;
use fullbore_linux::sys::memory::Region;
use fullbore_store as store;
use fullbore_time::Tai;
use hdrhistogram::Histogram;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use uuid::Uuid;

use super::memory::process_cpu_seconds;
use super::result::{Spread, Stage};

/// Bytes per block, as in a recording.
pub const BLOCK_BYTES: u32 = 4 << 20;

/// The number of blocks in circulation. Their memory is touched only when it is mapped.
const BLOCKS: usize = 16;

/// A pause after which the taker is asleep.
const PAUSE: Duration = Duration::from_micros(500);

/// Time after which the taker checks without a wake-up.
const IDLE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// The settings of the benchmark.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The number of runs.
    pub runs: usize,
    /// The duration of each run.
    pub time: Duration,
}

/// An error of the benchmark.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No memory, descriptor or thread.
    #[error("setting up the ring: {0}")]
    SetUp(#[source] io::Error),
    /// The taker did not end normally.
    #[error("the thread that takes blocks failed")]
    Failed,
}

/// Both ends of the queue to one writer.
pub struct Way {
    /// The end of the thread that fills blocks.
    pub feeder: WriterQueue,
    /// The end of the thread that empties them.
    pub taker: store::CaptureQueue,
    /// The shared counters.
    pub metrics: Arc<WriterMetrics>,
    /// Wakes the taker.
    pub wake: Arc<Notifier>,
}

impl Way {
    /// A queue with room for this number of blocks, and for the end of a stream.
    pub fn new(blocks: usize) -> io::Result<Self> {
        let (commands, requested) = rtrb::RingBuffer::new(blocks + WriterQueue::FINISHES);
        let (returned, answers) = reply_queue(blocks);
        let metrics = Arc::new(WriterMetrics::default());
        let wake = Arc::new(Notifier::new()?);
        let feeder = WriterQueue::new(commands, answers, metrics.clone(), wake.clone(), blocks);
        let taker = store::CaptureQueue { commands: requested, returned };
        Ok(Self { feeder, taker, metrics, wake })
    }
}

/// Starts a thread that returns every block untouched. `seen` is called for each block taken. The thread ends when the
/// other end of the queue is dropped.
pub fn spawn_taker(
    mut lane: store::CaptureQueue,
    metrics: Arc<WriterMetrics>,
    wake: Arc<Notifier>,
    mut seen: impl FnMut(&FullBlock) + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let take = move || {
        loop {
            while let Ok(command) = lane.commands.pop() {
                let WriterCommand::Write(filled) = command else { continue };
                seen(&filled);
                metrics.backlog_bytes.fetch_sub(filled.bytes.into(), Ordering::Relaxed);
                metrics.written_bytes.fetch_add(filled.bytes.into(), Ordering::Relaxed);
                let FullBlock { block, stream_ref, bytes, .. } = filled;
                // If the feeder has gone, the block is dropped.
                let _ = lane.returned.push(WriterReply::Written { block, stream_ref, bytes });
            }
            if lane.commands.is_abandoned() && lane.commands.is_empty() {
                return;
            }
            wake.about_to_sleep();
            if lane.commands.is_empty() {
                // Interrupted or not, the queue is checked again.
                let _ = poll(&mut [PollFd::new(&*wake, PollFlags::IN)], Some(&IDLE));
            }
            wake.awake();
        }
    };
    std::thread::Builder::new().name("taker".into()).spawn(take)
}

/// Passes blocks of one stream, and takes them back.
pub struct Feeder {
    lane: WriterQueue,
    pool: Pool,
    stream_ref: Arc<StreamRef>,
    sequence: u64,
}

impl Feeder {
    /// A feeder with its own blocks.
    pub fn new(lane: WriterQueue, blocks: usize, geometry: Geometry) -> io::Result<Self> {
        let region = Region::new(blocks * geometry.block_bytes as usize)?;
        let pool = Pool::new(Arc::new(region), geometry.block_bytes as usize, 0);
        let directory = "bench_ring".to_owned();
        let stream_ref =
            Arc::new(StreamRef { scan: Uuid::now_v7(), number: 0, directory, geometry });
        Ok(Self { lane, pool, stream_ref, sequence: 0 })
    }

    /// The stream.
    pub fn stream_ref(&self) -> &Arc<StreamRef> {
        &self.stream_ref
    }

    /// Takes back emptied blocks. Returns their number; refused ones are an error of the writer.
    pub fn take_back(&mut self) -> Result<usize, Error> {
        let mut taken = 0;
        while let Some(returned) = self.lane.take_returned() {
            match returned {
                WriterReply::Written { block, .. } => self.pool.put(block),
                WriterReply::Refused(filled) => {
                    self.pool.put(filled.block);
                    return Err(Error::Failed);
                }
            }
            taken += 1;
        }
        Ok(taken)
    }

    /// True if all blocks are back.
    pub fn is_whole(&self) -> bool {
        self.pool.free() == self.pool.blocks()
    }

    /// Passes a free block, if there is one. `fill` may write to it; `stamp` is sent as the index of its first frame.
    pub fn hand_over(&mut self, stamp: i64, fill: impl FnOnce(&mut Block, u64)) -> bool {
        let Some(mut block) = self.pool.take() else { return false };
        let geometry = self.stream_ref.geometry;
        let sequence = self.sequence;
        fill(&mut block, sequence);
        self.sequence += 1;
        let filled = FullBlock {
            block,
            stream_ref: self.stream_ref.clone(),
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

    /// Sends the end of the stream.
    pub fn finish(&mut self) {
        self.lane.finish(self.stream_ref.clone(), Vec::new());
    }
}

/// Runs the benchmark; `heard` is called after each run.
pub fn measure(
    settings: &Settings,
    stop: &StopHandle,
    mut heard: impl FnMut(usize),
) -> Result<Option<Stage>, Error> {
    let mut rates = Vec::new();
    let (mut handed, mut cpu) = (0u64, 0.0);
    for run in 0..settings.runs.max(1) {
        if stop.is_requested() {
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

/// The result of a run.
struct Saturated {
    blocks: u64,
    seconds: f64,
    cpu_seconds: f64,
}

fn feeder_and_taker(
    seen: impl FnMut(&FullBlock) + Send + 'static,
) -> Result<(Feeder, JoinHandle<()>), Error> {
    let way = Way::new(BLOCKS).map_err(Error::SetUp)?;
    let taker = spawn_taker(way.taker, way.metrics, way.wake, seen).map_err(Error::SetUp)?;
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
        // On a single core, the taker needs it now.
        if feeder.take_back()? == 0 && handed == 0 {
            std::thread::yield_now();
        }
    }
    let (seconds, cpu_seconds) = (began.elapsed().as_secs_f64(), process_cpu_seconds() - cpu);
    drop(feeder);
    taker.join().map_err(|_| Error::Failed)?;
    Ok(Saturated { blocks, seconds, cpu_seconds })
}

/// The upper limit of the histogram.
const LONGEST_NS: u64 = 10_000_000_000;

/// Nanoseconds from passing a block until the sleeping taker has it.
fn wake_times(time: Duration) -> Result<Histogram<u64>, Error> {
    let (times, measured) = std::sync::mpsc::channel();
    let origin = Instant::now();
    let (mut feeder, taker) = feeder_and_taker(move |filled: &FullBlock| {
        let now = origin.elapsed().as_nanos() as u64;
        // The measuring thread may have ended.
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
        let stage = measure(&settings, &StopHandle::default(), |_| ()).unwrap().unwrap();
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
