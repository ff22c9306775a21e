//! The result document of a benchmark: source of `--json`, the history and the report.
//!
//! All benchmarks use the same structure. Rates are bytes per second, sizes bytes, MB = 10⁶. Times are seconds since
//! the beginning of the benchmark, or of the part that contains them, unless the name says otherwise.
//! `docs/reference/bench.schema.json` describes the same in JSON Schema.

use std::collections::BTreeMap;

use fullbore_core::units::{ByteRate, ByteSize};
use fullbore_linux::clock::Clock;
use fullbore_time::Tai;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The version of the document; a reader refuses later ones.
pub const VERSION: u32 = 1;

/// The largest document that is read. The document of a full drive with a point per second is far smaller.
pub const LARGEST_DOCUMENT_BYTES: u64 = 64 << 20;

/// The results of one benchmark.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BenchResult {
    /// [`VERSION`] at the time of writing.
    pub fullbore_bench: u32,
    /// The kind of benchmark.
    pub kind: Kind,
    /// The identity of the result, used in its file name in the history.
    pub id: Uuid,
    /// The start time, as `2026-11-22T04:00:00Z`.
    pub started: String,
    /// The total duration.
    pub seconds: f64,
    /// The command of the benchmark as typed.
    pub command: Vec<String>,
    /// True if it was stopped early; results so far are included.
    pub interrupted: bool,
    /// The machine.
    pub environment: Environment,
    /// The targets; empty for memory and ring.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<Target>,
    /// The stages of the path, each alone and, in `all`, the whole path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<Stage>,
    /// Peak rates by size, depth, mode and direction.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sweep: Vec<SweepPoint>,
    /// The long run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continuous: Option<Continuous>,
    /// The results of other programs with the same job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub comparisons: Vec<Comparison>,
    /// The comparison with the data sheet's write rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<Spec>,
    /// The comparison with the data sheet's read rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec_read: Option<Spec>,
    /// The lifetime of the drive at the rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endurance: Option<Endurance>,
    /// The verdict on the requirement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Notes that are needed to interpret the figures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<Note>,
    /// Commands of other programs that were run, or could have been.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<CommandRun>,
}

impl BenchResult {
    /// An empty result of a benchmark that begins now.
    pub fn new(kind: Kind, environment: Environment) -> Self {
        Self {
            fullbore_bench: VERSION,
            kind,
            id: Uuid::now_v7(),
            started: seconds_of(Clock::new().now()),
            seconds: 0.0,
            command: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
            interrupted: false,
            environment,
            targets: vec![],
            stages: vec![],
            sweep: vec![],
            continuous: None,
            comparisons: vec![],
            spec: None,
            spec_read: None,
            endurance: None,
            verdict: None,
            notes: vec![],
            commands: vec![],
        }
    }

    /// Adds a note unless it exists already.
    pub fn note(&mut self, level: Level, text: impl Into<String>) {
        let note = Note { level, text: text.into() };
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}

/// `2026-11-22T04:00:00Z`.
fn seconds_of(time: Tai) -> String {
    let text = format!("{time:.1}");
    text.split_once('.').map_or(text.clone(), |(whole, _)| format!("{whole}Z"))
}

/// The kind of benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Disks, files and block devices.
    Disk,
    /// Copy, checksum and pattern.
    Memory,
    /// Blocks between threads.
    Ring,
    /// Packets.
    Net,
    /// Every stage, and the whole path.
    All,
}

/// The machine and the program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// `fullbore 0.1.0`.
    pub program: String,
    /// Name of the host.
    pub host: String,
    /// Release of the kernel.
    pub kernel: String,
    /// `x86_64`, `aarch64`.
    pub architecture: String,
    /// Model of the processor.
    pub cpu: String,
    /// Processors that this process may use.
    pub cpus: u32,
    /// Memory of the machine.
    pub memory: ByteSize,
    /// `always`, `madvise` or `never`: the availability of 2 MiB pages for blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub huge_pages: Option<String>,
    /// Bytes that may be locked in memory; absent if unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memlock: Option<ByteSize>,
    /// `none`, `kvm` and so on, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub virtualization: Option<String>,
    /// True for an optimised build of the program.
    pub optimised: bool,
}

/// A target of the benchmark.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// The path as typed, resolved.
    pub path: String,
    /// The kind of target.
    pub kind: TargetKind,
    /// Its file system, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_system: Option<String>,
    /// The mount options.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount_options: Option<String>,
    /// The block device below, if there is one: `nvme0n1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The model that the device reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The firmware that the device reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<String>,
    /// `8.0 GT/s PCIe`, the current state of its link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_speed: Option<String>,
    /// Lanes, the current state of its link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_width: Option<u32>,
    /// Its NUMA node, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<i32>,
    /// True for a rotating disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotational: Option<bool>,
    /// `write back`, `write through`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_cache: Option<String>,
    /// The scheduler of its queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<String>,
    /// Logical sector: the smallest direct write.
    pub sector_bytes: u32,
    /// Physical sector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub physical_sector_bytes: Option<u32>,
    /// Capacity of the file system or device.
    pub capacity: ByteSize,
    /// Free bytes of it at the start of the benchmark.
    pub free: ByteSize,
    /// True if writes bypass the page cache.
    pub direct: bool,
    /// An earlier target on the same file system: capacity and free space are shared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shares_with: Option<String>,
}

/// The kind of target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TargetKind {
    /// A directory of a mounted file system.
    #[default]
    Directory,
    /// One file.
    File,
    /// A block device.
    BlockDevice,
    /// Another host.
    Host,
}

/// A stage of the path: its operation, rate and CPU use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// Name of the stage for machines: `copy`, `crc32c`, `ring-handover`, `receive`, `disk`, `path`.
    pub name: String,
    /// The operation in words.
    pub what: String,
    /// The rate in bytes per second.
    pub rate: Spread,
    /// CPU seconds per 10⁹ bytes, of all threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_s_per_gb: Option<f64>,
    /// The number of threads.
    pub threads: u32,
    /// Other figures by name, with the unit at the end: `packets_per_s`, `lost_packets`, `handover_p99_ns`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub figures: BTreeMap<String, f64>,
}

/// Several runs of one measurement, in bytes per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The number of runs.
    pub runs: u32,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation (of a sample); 0 for one run.
    pub deviation: f64,
    /// The slowest.
    pub least: f64,
    /// The fastest.
    pub most: f64,
}

impl Spread {
    /// The spread of these values; zeros if there are none.
    pub fn of(values: &[f64]) -> Self {
        if values.is_empty() {
            return Self::default();
        }
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Self {
            runs: values.len() as u32,
            mean,
            deviation: if values.len() > 1 { (squares / (count - 1.0)).sqrt() } else { 0.0 },
            least: values.iter().copied().fold(f64::INFINITY, f64::min),
            most: values.iter().copied().fold(0.0, f64::max),
        }
    }
}

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// To the target.
    Write,
    /// From the target.
    Read,
}

/// The mode of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Bypassing the page cache (`O_DIRECT`).
    Direct,
    /// Through the page cache, with a sync at the end that counts in the time.
    Buffered,
    /// Through the page cache without remaining there (`RWF_DONTCACHE`), with a sync at the end.
    Uncached,
}

/// One point of the peak sweep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SweepPoint {
    /// The curves that contain the point.
    pub curves: Vec<Curve>,
    /// The direction.
    pub direction: Direction,
    /// The mode.
    pub mode: Mode,
    /// Bytes per session: written or read from the start, and again for each run.
    pub session_bytes: u64,
    /// Bytes per request.
    pub block_bytes: u64,
    /// Concurrent requests.
    pub depth: u32,
    /// The number of files of the session.
    pub files: u32,
    /// Bytes moved by all runs.
    pub moved_bytes: u64,
    /// Bytes per second over the runs.
    pub rate: Spread,
    /// Bytes per second of each run, if requested (`--iterations`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub iterations: Vec<f64>,
    /// CPU seconds per 10⁹ bytes, of the whole process.
    pub cpu_s_per_gb: f64,
    /// The duration of the slowest request of all runs, in milliseconds.
    pub slowest_ms: f64,
    /// The cost of a block that is no multiple of the sector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_modify_write: Option<ReadModifyWrite>,
    /// True if a run ended by time before its session was complete.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut_by_time: bool,
}

/// The curves of the sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Curve {
    /// Rate by size of the session.
    Session,
    /// Rate by size of a block.
    Block,
    /// Rate by concurrent requests.
    Depth,
    /// A comparison of modes.
    Mode,
    /// Rate by number of files.
    Files,
}

/// The cost of a block that ends within a sector: the sectors at its ends are read, changed, written.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadModifyWrite {
    /// The program that did it: fullbore, sector by sector, or the kernel in its page cache.
    pub by: Modifier,
    /// Bytes that were read only to be written back; 0 if the kernel does not report them.
    pub extra_read_bytes: u64,
    /// Bytes that were written beyond those of the blocks; 0 if the kernel does not report them.
    pub extra_written_bytes: u64,
    /// Ratio to the rate of the same block rounded down to whole pages (whole sectors, if it is smaller than a page),
    /// all else being equal; absent if that was not measured too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio_to_aligned: Option<f64>,
}

/// The program that reads, changes and writes sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Modifier {
    /// This program: direct I/O takes whole sectors only.
    Program,
    /// The page cache.
    Kernel,
}

/// The long run, written by the recorder's code.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Continuous {
    /// Bytes per block.
    pub block_bytes: u64,
    /// Bytes of concurrent writes, for each member.
    pub depth_bytes: u64,
    /// The pattern, as `prbs31`; the data at a place depends on the run as well.
    pub pattern: String,
    /// The rate limit, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paced: Option<ByteRate>,
    /// Bytes that were due while no block was free, with a rate limit.
    pub overrun_bytes: u64,
    /// Bytes on the targets at once, if writing continued from the start when they were full (`--wrap`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wrap: Option<ByteSize>,
    /// The scans and pauses in which blocks were due, if not always (`--duty`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duty: Option<DutyRun>,
    /// The write pass.
    pub write: Pass,
    /// The read pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<Pass>,
    /// The result of the comparison with the pattern.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verification: Option<Verification>,
    /// Bytes of the blocks in circulation.
    pub ring: ByteSize,
    /// The permanent changes of the rate, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cliffs: Vec<Cliff>,
    /// The stretch from which all rates and rings below are taken, if there is a cliff: after the last one, or the one
    /// in which the given capacity ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<Settled>,
    /// Worst rate in any window of a length, shortest window first.
    pub worst_windows: Vec<Window>,
    /// The durations of block writes.
    pub stalls: Stalls,
    /// For each rate, the smallest ring without loss.
    pub ring_for_rate: Vec<RingForRate>,
    /// For each ring, the highest rate without loss.
    pub rate_for_ring: Vec<RateForRing>,
    /// The recommended rate for recordings on it.
    pub recommended: Recommendation,
    /// Temperatures over time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub temperatures: Vec<Temperature>,
    /// Throttling counters that moved, or could have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub throttling: Vec<Throttling>,
    /// The share of each member, if there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<MemberShare>,
}

/// A run in scans with pauses between them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DutyRun {
    /// Seconds of a scan.
    pub record_s: f64,
    /// Seconds of the pause after each scan.
    pub pause_s: f64,
    /// Seconds from the start of the first scan to the end of the run; 0 in a document of an earlier version.
    #[serde(default)]
    pub lasted_s: f64,
    /// Whole cycles, each a scan and its pause, by which the run is judged; absent in a document of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycles: Option<u64>,
    /// Every scan that began.
    pub scans: Vec<ScanRun>,
}

/// One scan of a duty cycle, and its pause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ScanRun {
    /// Its start, in seconds since the start of the pass.
    pub at_s: f64,
    /// Bytes completed during the scan.
    pub bytes: u64,
    /// Bytes per second during the scan.
    pub rate: f64,
    /// Bytes completed in the pause after it: at full speed as much as a ring may hold; at a rate, the contents of the
    /// ring.
    pub pause_bytes: u64,
    /// Seconds of the pause until the last of those was completed.
    pub drained_s: f64,
}

/// One pass over the target, from its first block to its last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pass {
    /// Bytes moved.
    pub bytes: u64,
    /// Duration, including the last sync; in a duty cycle, without the time in which no block was due.
    pub seconds: f64,
    /// Bytes per second over the pass.
    pub rate: f64,
    /// CPU seconds per 10⁹ bytes, including pattern and checksum.
    pub cpu_s_per_gb: f64,
    /// Rate over time, in bins of equal length; the last one may be shorter or a quarter longer.
    pub over_time: Vec<Bin>,
    /// Rate over position, in bins of equal size.
    pub over_position: Vec<Bin>,
}

/// A stretch of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bin {
    /// Its start, in seconds since the start of the pass.
    pub at_s: f64,
    /// The duration.
    pub seconds: f64,
    /// The position of its start: bytes of the pass before it.
    pub position: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Bytes per second.
    pub rate: f64,
    /// The duration of the slowest block completed in it, in milliseconds.
    pub slowest_ms: f64,
}

/// The result of reading back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verification {
    /// Bytes compared.
    pub compared_bytes: u64,
    /// Blocks that differ.
    pub wrong_blocks: u64,
    /// The place of the first wrong block and its difference, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<String>,
}

/// A permanent change of the rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cliff {
    /// Bytes written before it.
    pub position: u64,
    /// Its time, in seconds since the start of the pass.
    pub at_s: f64,
    /// Bytes per second before it.
    pub before: f64,
    /// Bytes per second after it.
    pub after: f64,
    /// The coinciding cause in words: a throttle counter that moved, a temperature, or none known.
    pub likely: String,
}

/// The selected stretch of a run with a cliff.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settled {
    /// Bytes written before it.
    pub position: u64,
    /// Its start, in seconds since the start of the pass.
    pub at_s: f64,
    /// Bytes written.
    pub bytes: u64,
    /// The duration.
    pub seconds: f64,
    /// Bytes per second.
    pub rate: f64,
    /// True if it ends at a cliff: the given capacity ends before that.
    pub before_cliff: bool,
}

/// The worst of all windows of a length.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// Length of the window.
    pub seconds: f64,
    /// Bytes per second in the worst one.
    pub rate: f64,
    /// Its start.
    pub at_s: f64,
}

/// The durations of block writes, from submission to completion.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stalls {
    /// The number of block writes.
    pub writes: u64,
    /// Milliseconds by percentile, in ascending order.
    pub percentiles: Vec<Percentile>,
    /// The longest, in milliseconds.
    pub longest_ms: f64,
    /// The completion time of the longest.
    pub longest_at_s: f64,
    /// The number of writes in each range, in ascending order; higher ranges are wider.
    pub histogram: Vec<Bucket>,
    /// The number of writes longer than given limits in milliseconds, per hour of writing.
    pub per_hour: Vec<PerHour>,
    /// The longest time without a completion, in milliseconds.
    pub longest_silence_ms: f64,
    /// Its start.
    pub longest_silence_at_s: f64,
}

/// A point of a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Percentile {
    /// 50, 90, 99, 99.9 …
    pub percent: f64,
    /// The upper limit in milliseconds of that share of the writes.
    pub ms: f64,
}

/// A range of times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bucket {
    /// The lower limit in milliseconds …
    pub from_ms: f64,
    /// … and the upper limit, exclusive.
    pub to_ms: f64,
    /// The number of writes.
    pub writes: u64,
}

/// The frequency of long writes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PerHour {
    /// The limit in milliseconds.
    pub over_ms: f64,
    /// The number of longer writes.
    pub seen: u64,
    /// The number per hour of writing.
    pub per_hour: f64,
}

/// The smallest ring without loss at a rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RingForRate {
    /// The incoming rate in bytes per second.
    pub rate: ByteRate,
    /// Bytes of blocks needed, including those being written and filled.
    pub ring: ByteSize,
    /// True if the ring has no limit: the target is slower than the rate, and a longer run would need more.
    pub unbounded: bool,
}

/// The highest rate without loss with a ring.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RateForRing {
    /// Bytes of blocks.
    pub ring: ByteSize,
    /// Bytes per second; at most the mean of the run.
    pub rate: ByteRate,
}

/// The recommended rate for recordings on the target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recommendation {
    /// Bytes per second.
    pub rate: ByteRate,
    /// The size of the ring.
    pub ring: ByteSize,
    /// The sustained rate: the highest rate that this ring would have held in this run, at most the mean including the
    /// last sync.
    pub sustained: ByteRate,
    /// The margin between the two, in words.
    pub margin: String,
}

/// A sensor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Temperature {
    /// `nvme0 Composite`.
    pub sensor: String,
    /// The limit in °C at which the device throttles or warns, if it reports one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_c: Option<f64>,
    /// Seconds since the start of the write pass, and °C.
    pub readings: Vec<(f64, f64)>,
}

/// A throttling counter, before and after the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Throttling {
    /// `nvme0 warning_temp_time`.
    pub counter: String,
    /// Before the run.
    pub before: u64,
    /// After it.
    pub after: u64,
}

/// The share of one member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemberShare {
    /// Its path, as in the targets.
    pub path: String,
    /// Bytes written to it.
    pub bytes: u64,
    /// Bytes per second over the run.
    pub rate: f64,
    /// The duration of its slowest block write, in milliseconds.
    pub longest_ms: f64,
}

/// The result of another program with the same job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// `fio 3.33`.
    pub program: String,
    /// The direction.
    pub direction: Direction,
    /// True if its buffers were in huge pages, like fullbore's.
    pub huge_pages: bool,
    /// Bytes per request.
    pub block_bytes: u64,
    /// Concurrent requests.
    pub depth: u32,
    /// Its rate in bytes per second; absent if it was not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// CPU seconds per 10⁹ bytes, of the whole process tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_s_per_gb: Option<f64>,
    /// The duration of its longest request, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_ms: Option<f64>,
    /// The rate of fullbore with the same job.
    pub ours: f64,
    /// CPU seconds per 10⁹ bytes of fullbore.
    pub ours_cpu_s_per_gb: f64,
    /// Ratio of fullbore's rate to the other program's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// The exact command.
    pub command: String,
    /// The reason why there is no figure, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
}

/// The comparison with the data sheet.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// The rate in the data sheet.
    pub rate: ByteRate,
    /// Ratio of the fastest point of the sweep to that rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_ratio: Option<f64>,
    /// Ratio of the mean of the continuous pass to that rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continuous_ratio: Option<f64>,
    /// Ratio of the fastest run of the system's own benchmark (fio) to that rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_ratio: Option<f64>,
    /// Ratio of the mean of the continuous pass to the system's own benchmark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continuous_over_system: Option<f64>,
}

/// The lifetime of the drive.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Endurance {
    /// The assumed rate in bytes per second.
    pub rate: ByteRate,
    /// The share of time in which the drive is written, in a duty cycle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recording_share: Option<f64>,
    /// Terabytes (10¹²) per day of 24 hours at that rate, without pauses.
    pub tb_per_day: f64,
    /// Terabytes that the manufacturer warrants: given, or from drive writes per day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tbw: Option<f64>,
    /// Days of 24 hours until they are written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub days: Option<f64>,
    /// Drive writes per day at that rate, if the capacity is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drive_writes_per_day: Option<f64>,
}

/// The verdict on the requirement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The required rate (`--require`).
    pub required: ByteRate,
    /// True if it was given in bits per second.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_bits: bool,
    /// The sustained rate.
    pub sustained: ByteRate,
    /// True if the sustained rate is sufficient.
    pub holds: bool,
    /// True if the run was too short to show whether it is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_shown: bool,
    /// The ratio of `sustained` to `required`, less 1.
    pub margin: f64,
    /// The verdict as a sentence.
    pub sentence: String,
}

impl Verdict {
    /// Returns the verdict as a word.
    pub fn word(&self) -> &'static str {
        match (self.holds, self.not_shown) {
            (true, _) => "HOLDS",
            (false, true) => "NOT SHOWN",
            (false, false) => "DOES NOT HOLD",
        }
    }

    /// Returns it as the word of a page of many kinds of tests.
    pub fn grade(&self) -> &'static str {
        match (self.holds, self.not_shown) {
            (true, _) => "PASS",
            (false, true) => "NOT SHOWN",
            (false, false) => "FAIL",
        }
    }
}

/// A note for the reader of the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The importance.
    pub level: Level,
    /// The sentence.
    pub text: String,
}

/// The importance of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Additional information.
    Info,
    /// The figures need care in their interpretation.
    Warning,
}

/// A command of another program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandRun {
    /// The exact command in shell syntax.
    pub command: String,
    /// True if it was run; otherwise it is listed for repetition by hand.
    pub ran: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_of_runs_has_the_deviation_of_a_sample() {
        let spread = Spread::of(&[2.0, 4.0, 6.0]);
        assert_eq!((spread.runs, spread.mean, spread.deviation), (3, 4.0, 2.0));
        assert_eq!((spread.least, spread.most), (2.0, 6.0));
        assert_eq!(Spread::of(&[7.0]).deviation, 0.0);
        assert_eq!(Spread::of(&[]), Spread::default());
    }
}
