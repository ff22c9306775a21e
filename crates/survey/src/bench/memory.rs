//! Memory: the rates of copying, checksums, and generating and checking a pattern, on one core and on several.
//!
//! ```text
//! thread 0 │ its own memory, in pieces of 4 MiB ─► kernel ─► bytes, CPU time
//! thread 1 │ …                                               all for the same time
//! ```
//!
//! Every thread processes its own memory, which is larger than its cache, in blocks like those of the pool: 2 MiB pages
//! if available. These rates limit the work of the path per byte.

use std::borrow::Cow;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};
use std::{fmt, io};

use fullbore_core::hint::Hint;
use fullbore_core::pattern::{Pattern, Prbs};
use fullbore_linux::ring::{Block, Pool};
use fullbore_linux::stop_handle::StopHandle;
use fullbore_linux::sys::memory::Region;
use rustix::time::{ClockId, clock_gettime};

use super::result::{Spread, Stage};

/// Size of the piece that a kernel processes at once: a block.
const PIECE: usize = 4 << 20;

/// Memory per thread, twice for a copy: more than the private caches of a core.
const EACH: usize = 64 << 20;

/// The most threads: more than the cores of any supported machine.
const MOST_THREADS: usize = 1024;

/// An operation on memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// A copy from one place to another.
    Copy,
    /// A CRC32C checksum.
    Checksum,
    /// Generation of a PRBS-31.
    Make,
    /// Comparison with a PRBS-31.
    Check,
}

impl Kernel {
    /// All operations, in the order of the path.
    pub const ALL: [Kernel; 4] = [Self::Copy, Self::Checksum, Self::Make, Self::Check];

    /// Its name in the document.
    pub fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Checksum => "crc32c",
            Self::Make => "pattern-make",
            Self::Check => "pattern-check",
        }
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Copy => "bytes copied from memory to memory",
            Self::Checksum => "CRC32C over blocks in memory",
            Self::Make => "pattern PRBS-31 made into memory",
            Self::Check => "pattern PRBS-31 in memory compared",
        })
    }
}

/// The settings of the benchmark.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The operations.
    pub kernels: Vec<Kernel>,
    /// The numbers of threads, measured in sequence.
    pub threads: Vec<usize>,
    /// The number of runs.
    pub runs: usize,
    /// The duration of each run.
    pub time: Duration,
}

/// An error of the benchmark.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No memory for a thread.
    #[error("allocating {bytes} bytes of memory for each of {threads} threads: {source}")]
    Memory {
        /// Bytes per thread.
        bytes: usize,
        /// The number of threads.
        threads: usize,
        /// The kernel's error.
        source: io::Error,
    },
    /// An invalid number of threads.
    #[error("{threads} threads are out of range (1 to {MOST_THREADS})")]
    Threads {
        /// The requested number.
        threads: usize,
    },
    /// A thread did not end normally.
    #[error("a thread that measured memory failed")]
    Failed,
}

impl Hint for Error {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Memory { .. } => "measure with fewer threads (--threads)",
            Self::Threads { .. } => "for example --threads 1,2,4",
            Self::Failed => return None,
        }))
    }
}

/// 1, 2, 4 … up to the number of cores.
pub fn doubling(cores: usize) -> Vec<usize> {
    let mut threads: Vec<usize> =
        std::iter::successors(Some(1), |n| Some(n * 2)).take_while(|n| *n < cores).collect();
    threads.push(cores.clamp(1, MOST_THREADS));
    threads
}

/// Measures all settings; `heard` is called after each stage.
pub fn measure(
    settings: &Settings,
    stop: &StopHandle,
    mut heard: impl FnMut(&Stage),
) -> Result<Vec<Stage>, Error> {
    let mut stages = Vec::new();
    for &threads in &settings.threads {
        if !(1..=MOST_THREADS).contains(&threads) {
            return Err(Error::Threads { threads });
        }
        let mut places = (0..threads)
            .map(|_| Place::new())
            .collect::<io::Result<Vec<Place>>>()
            .map_err(|source| Error::Memory { bytes: 2 * EACH, threads, source })?;
        for &kernel in &settings.kernels {
            let mut rates = Vec::new();
            let (mut cpu, mut bytes) = (0.0, 0.0);
            for _ in 0..settings.runs.max(1) {
                if stop.is_requested() {
                    break;
                }
                let run = run(kernel, &mut places, settings.time)?;
                rates.push(run.rate);
                cpu += run.cpu_seconds;
                bytes += run.bytes as f64;
            }
            if rates.is_empty() {
                return Ok(stages);
            }
            let stage = Stage {
                name: kernel.name().into(),
                what: kernel.to_string(),
                rate: Spread::of(&rates),
                cpu_s_per_gb: (bytes > 0.0).then(|| cpu * 1e9 / bytes),
                threads: threads as u32,
                figures: Default::default(),
            };
            heard(&stage);
            stages.push(stage);
        }
    }
    Ok(stages)
}

/// The memory of one thread.
struct Place {
    from: Vec<Block>,
    to: Vec<Block>,
}

impl Place {
    fn new() -> io::Result<Self> {
        let blocks = || -> io::Result<Vec<Block>> {
            let mut pool = Pool::new(Arc::new(Region::new(EACH)?), PIECE, 0);
            Ok(std::iter::from_fn(|| pool.take()).collect())
        };
        let (mut from, to) = (blocks()?, blocks()?);
        // The data for the check to compare with.
        for (number, block) in from.iter_mut().enumerate() {
            PATTERN.fill(block, (number * PIECE) as u64);
        }
        Ok(Self { from, to })
    }
}

const PATTERN: Pattern = Pattern::Prbs(Prbs::PRBS31);

/// The result of a run, over all threads.
struct Run {
    rate: f64,
    bytes: u64,
    cpu_seconds: f64,
}

fn run(kernel: Kernel, places: &mut [Place], time: Duration) -> Result<Run, Error> {
    let start = Barrier::new(places.len());
    let start = &start;
    let ran = std::thread::scope(|scope| {
        let threads: Vec<_> = places
            .iter_mut()
            .map(|place| scope.spawn(move || work(kernel, place, start, time)))
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join().map_err(|_| Error::Failed));
        joined.collect::<Result<Vec<(u64, f64, f64)>, Error>>()
    })?;
    Ok(Run {
        rate: ran.iter().map(|(bytes, seconds, _)| *bytes as f64 / seconds).sum(),
        bytes: ran.iter().map(|(bytes, ..)| bytes).sum(),
        cpu_seconds: ran.iter().map(|(_, _, cpu)| cpu).sum(),
    })
}

/// Bytes, seconds and CPU seconds of one thread.
fn work(kernel: Kernel, place: &mut Place, start: &Barrier, time: Duration) -> (u64, f64, f64) {
    start.wait();
    let (began, cpu) = (Instant::now(), thread_cpu_seconds());
    let (mut bytes, mut different) = (0u64, 0usize);
    'all: loop {
        for (number, (from, to)) in place.from.iter_mut().zip(&mut place.to).enumerate() {
            let offset = (number * PIECE) as u64;
            match kernel {
                Kernel::Copy => to.copy_from_slice(from),
                Kernel::Checksum => {
                    different += std::hint::black_box(crc32c::crc32c(from)) as usize & 1
                }
                Kernel::Make => PATTERN.fill(to, offset),
                Kernel::Check => {
                    different += PATTERN.first_difference(from, offset).map_or(0, |_| 1)
                }
            }
            bytes += PIECE as u64;
            if began.elapsed() >= time {
                break 'all;
            }
        }
    }
    std::hint::black_box(different);
    (bytes, began.elapsed().as_secs_f64(), thread_cpu_seconds() - cpu)
}

/// CPU time of the calling thread.
pub(super) fn thread_cpu_seconds() -> f64 {
    seconds(ClockId::ThreadCPUTime)
}

/// CPU time of the whole process.
pub(super) fn process_cpu_seconds() -> f64 {
    seconds(ClockId::ProcessCPUTime)
}

fn seconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kernel_is_measured_with_each_number_of_threads() {
        let settings = Settings {
            kernels: Kernel::ALL.to_vec(),
            threads: vec![1, 2],
            runs: 2,
            time: Duration::from_millis(5),
        };
        let mut heard = 0;
        let stages = measure(&settings, &StopHandle::default(), |_| heard += 1).unwrap();
        assert_eq!((stages.len(), heard), (8, 8));
        for stage in &stages {
            assert!(stage.rate.mean > 1e6 && stage.rate.runs == 2, "{stage:?}");
            assert!(stage.cpu_s_per_gb.is_some_and(|cost| cost > 0.0), "{stage:?}");
        }
    }

    #[test]
    fn a_stop_ends_it_with_what_was_measured() {
        let settings = Settings {
            kernels: Kernel::ALL.to_vec(),
            threads: vec![1],
            runs: 1,
            time: Duration::from_millis(1),
        };
        let stop = StopHandle::default();
        stop.stop();
        assert_eq!(measure(&settings, &stop, |_| ()).unwrap(), []);
    }

    #[test]
    fn threads_double_up_to_all_cores() {
        assert_eq!(doubling(1), [1]);
        assert_eq!(doubling(6), [1, 2, 4, 6]);
        assert_eq!(doubling(8), [1, 2, 4, 8]);
        let none = Settings { kernels: vec![], threads: vec![0], runs: 1, time: Duration::ZERO };
        assert!(matches!(
            measure(&none, &StopHandle::default(), |_| ()),
            Err(Error::Threads { .. })
        ));
    }
}
