//! The document that a benchmark leaves: `--json`, the history and the report are all made of it.
//!
//! One shape for every benchmark. Rates are bytes per second, sizes bytes, MB = 10⁶; times are seconds
//! since the benchmark (or the part of it that holds them) began, unless the name says otherwise.
//! `docs/reference/bench.schema.json` is the same in JSON Schema.

use std::collections::BTreeMap;

use fullbore_core::time::Tai;
use fullbore_core::units::{ByteRate, ByteSize};
use fullbore_engine::clock::Clock;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The version of the document; a reader refuses a later one.
pub const VERSION: u32 = 1;

/// The largest document that is read: a full drive with a point each second stays far below.
pub const LARGEST_DOCUMENT_BYTES: u64 = 64 << 20;

/// All that one benchmark found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BenchResult {
    /// [`VERSION`] when it was written.
    pub fullbore_bench: u32,
    /// Which benchmark.
    pub kind: Kind,
    /// Its own identity, the name of its file in the history.
    pub id: Uuid,
    /// When it began, as `2026-11-22T04:00:00Z`.
    pub started: String,
    /// How long all of it took.
    pub seconds: f64,
    /// Our own command, as it was typed.
    pub command: Vec<String>,
    /// Whether it was ended before it was done; what it holds was measured nevertheless.
    pub interrupted: bool,
    /// The machine.
    pub environment: Environment,
    /// What was measured on; empty for memory and ring.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<Target>,
    /// Stages of the path, each alone and, in `all`, the path whole; the slowest first is for the reader to find.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<Stage>,
    /// Peak rates by size, depth, mode and direction.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sweep: Vec<SweepPoint>,
    /// The long run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continuous: Option<Continuous>,
    /// What others reach with the same job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub comparisons: Vec<Comparison>,
    /// What the data sheet says of writing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<Spec>,
    /// What it says of reading.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec_read: Option<Spec>,
    /// How long the drive lives at the rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endurance: Option<Endurance>,
    /// Whether it holds what was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// What a reader must know to trust the figures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<Note>,
    /// Other programs that were run, or could have been, with the exact words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<CommandRun>,
}

impl BenchResult {
    /// A benchmark that begins now and has found nothing yet.
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

    /// Adds what a reader must know, once.
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

/// Which benchmark.
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
    /// Every stage, and the path whole.
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
    /// `always`, `madvise` or `never`: whether blocks can lie in 2 MiB pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub huge_pages: Option<String>,
    /// Bytes that may be locked in memory; absent when there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memlock: Option<ByteSize>,
    /// `none`, `kvm` and so on, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub virtualization: Option<String>,
    /// Whether this build of the program has its optimisations.
    pub optimised: bool,
}

/// One thing that was written to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// As it was typed, resolved.
    pub path: String,
    /// What it is.
    pub kind: TargetKind,
    /// Its file system, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_system: Option<String>,
    /// How that is mounted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount_options: Option<String>,
    /// The block device below, if there is one: `nvme0n1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Model, as the device says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Firmware, as the device says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<String>,
    /// `8.0 GT/s PCIe`, as its link is now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_speed: Option<String>,
    /// Lanes, as its link is now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_width: Option<u32>,
    /// Its NUMA node, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<i32>,
    /// Whether it turns.
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
    /// Of that, free when the benchmark began.
    pub free: ByteSize,
    /// Whether writes go past the page cache.
    pub direct: bool,
    /// The target before it that lies on the same file system: capacity and free space are those of both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shares_with: Option<String>,
}

/// What a target is.
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

/// A stage of the path: what it does, how fast, for how much CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// Name of the stage for machines: `copy`, `crc32c`, `ring-handover`, `receive`, `disk`, `path`.
    pub name: String,
    /// What was done, in words.
    pub what: String,
    /// How fast, in bytes per second.
    pub rate: Spread,
    /// CPU seconds for each 10⁹ bytes, of all threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_s_per_gb: Option<f64>,
    /// Threads that worked.
    pub threads: u32,
    /// Other figures by name, the unit last in it: `packets_per_s`, `lost_packets`, `handover_p99_ns`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub figures: BTreeMap<String, f64>,
}

/// Several runs of one thing, in bytes per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// How many.
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
    /// Of these values; none of them gives zeros.
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

/// Whether bytes go to the target or come from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// To it.
    Write,
    /// From it.
    Read,
}

/// How the kernel was asked to move them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Past the page cache (`O_DIRECT`).
    Direct,
    /// Through the page cache, with a sync at the end inside the time.
    Buffered,
    /// Through the page cache without staying there (`RWF_DONTCACHE`), with a sync at the end.
    Uncached,
}

/// One point of the peak sweep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SweepPoint {
    /// Which of the curves it belongs to; a point may be part of several.
    pub curves: Vec<Curve>,
    /// Where the bytes went.
    pub direction: Direction,
    /// How.
    pub mode: Mode,
    /// Bytes of one session: written or read from the start, then over again for the next run.
    pub session_bytes: u64,
    /// Bytes of each request.
    pub block_bytes: u64,
    /// Requests under way at once.
    pub depth: u32,
    /// Files that the session was dealt over.
    pub files: u32,
    /// Bytes really moved by all runs.
    pub moved_bytes: u64,
    /// Bytes per second over the runs.
    pub rate: Spread,
    /// Bytes per second of each run, where they were asked for (`--iterations`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub iterations: Vec<f64>,
    /// CPU seconds for each 10⁹ bytes, of the whole process.
    pub cpu_s_per_gb: f64,
    /// The slowest request of all runs, in milliseconds.
    pub slowest_ms: f64,
    /// Set where the block is no multiple of the sector: what that cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_modify_write: Option<ReadModifyWrite>,
    /// Whether a run ended by time before its session was moved whole.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut_by_time: bool,
}

/// The curves of the sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Curve {
    /// Rate against the size of the session.
    Session,
    /// Rate against the size of a block.
    Block,
    /// Rate against requests under way.
    Depth,
    /// One mode beside the other.
    Mode,
    /// Rate against the number of files.
    Files,
}

/// What a block that ends within a sector costs: the sectors at its ends are read, changed, written.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadModifyWrite {
    /// Who did it: we, sector by sector, or the kernel in its page cache.
    pub by: Modifier,
    /// Bytes that were read only to be written back; 0 where the kernel does not say.
    pub extra_read_bytes: u64,
    /// Bytes that were written beyond those of the blocks; 0 where the kernel does not say.
    pub extra_written_bytes: u64,
    /// Rate over that of the same block rounded down to whole pages (whole sectors, if it is smaller than a
    /// page), all else being equal; absent where that was not measured too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio_to_aligned: Option<f64>,
}

/// Who reads, changes and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Modifier {
    /// This program: direct I/O takes whole sectors only.
    Program,
    /// The page cache.
    Kernel,
}

/// The long run, written by the code that records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Continuous {
    /// Bytes of each block.
    pub block_bytes: u64,
    /// Bytes of writes under way at once, for each member.
    pub depth_bytes: u64,
    /// What was written, as `prbs31`; what lies at a place depends on the run as well.
    pub pattern: String,
    /// The rate that was held back to, if it was not as fast as possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paced: Option<ByteRate>,
    /// Bytes that came while no block was free, where it was held back to a rate.
    pub overrun_bytes: u64,
    /// Bytes that lay on the targets at once, if writing went on from the start when they were full (`--wrap`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wrap: Option<ByteSize>,
    /// The scans and pauses in which blocks came, if they did not come all the time (`--duty`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duty: Option<DutyRun>,
    /// The writing.
    pub write: Pass,
    /// The reading back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<Pass>,
    /// What the comparison with the pattern found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verification: Option<Verification>,
    /// Bytes of blocks that went round.
    pub ring: ByteSize,
    /// Where the rate changed for good, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cliffs: Vec<Cliff>,
    /// The stretch that all rates and rings below are taken from, if there is a cliff: behind the last one, or where the
    /// capacity asked for ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<Settled>,
    /// Worst rate in any window of a length, the shortest window first.
    pub worst_windows: Vec<Window>,
    /// How long block writes took.
    pub stalls: Stalls,
    /// For each rate, the ring that would have lost nothing.
    pub ring_for_rate: Vec<RingForRate>,
    /// For each ring, the highest rate that would have lost nothing.
    pub rate_for_ring: Vec<RateForRing>,
    /// What we would record on it.
    pub recommended: Recommendation,
    /// Temperatures, against time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub temperatures: Vec<Temperature>,
    /// Counters of throttling that moved, or could have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub throttling: Vec<Throttling>,
    /// What each member took, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<MemberShare>,
}

/// A run in scans with pauses between them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DutyRun {
    /// Seconds of a scan.
    pub record_s: f64,
    /// Seconds of the pause behind each.
    pub pause_s: f64,
    /// Every scan that was begun.
    pub scans: Vec<ScanRun>,
}

/// One scan of a duty cycle, and its pause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ScanRun {
    /// When it began, in seconds since the pass did.
    pub at_s: f64,
    /// Bytes completed while it lasted.
    pub bytes: u64,
    /// Bytes per second while it lasted.
    pub rate: f64,
    /// Bytes completed in the pause behind it: at full speed as much as the ring holds, at a rate what the ring held.
    pub pause_bytes: u64,
    /// Seconds of the pause until the last of them was completed.
    pub drained_s: f64,
}

/// One way over the target, from its first block to its last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pass {
    /// Bytes moved.
    pub bytes: u64,
    /// How long that took, the last sync included; in a duty cycle, without the time in which there was nothing to write.
    pub seconds: f64,
    /// Bytes per second over all of it.
    pub rate: f64,
    /// CPU seconds for each 10⁹ bytes, pattern and checksum included.
    pub cpu_s_per_gb: f64,
    /// Rate against time, in bins of equal length.
    pub over_time: Vec<Bin>,
    /// Rate against position, in bins of equal size.
    pub over_position: Vec<Bin>,
}

/// A stretch of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bin {
    /// When it began, in seconds since the pass did.
    pub at_s: f64,
    /// How long it lasted.
    pub seconds: f64,
    /// Where it began: bytes of the pass before it.
    pub position: u64,
    /// Bytes moved in it.
    pub bytes: u64,
    /// Bytes per second.
    pub rate: f64,
    /// The slowest block that was completed in it, in milliseconds.
    pub slowest_ms: f64,
}

/// What reading back found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verification {
    /// Bytes compared.
    pub compared_bytes: u64,
    /// Blocks that differ.
    pub wrong_blocks: u64,
    /// Where the first of them lies, and how it differs, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<String>,
}

/// A change of the rate for good.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cliff {
    /// Bytes written before it.
    pub position: u64,
    /// When, in seconds since the pass began.
    pub at_s: f64,
    /// Bytes per second before it.
    pub before: f64,
    /// Bytes per second after it.
    pub after: f64,
    /// What it coincides with, in words: a throttle counter that moved, a temperature, nothing known.
    pub likely: String,
}

/// The stretch of a run that counts where the rate has a cliff.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settled {
    /// Bytes written before it.
    pub position: u64,
    /// When it began, in seconds since the pass did.
    pub at_s: f64,
    /// Bytes written in it.
    pub bytes: u64,
    /// How long it lasted.
    pub seconds: f64,
    /// Bytes per second over it.
    pub rate: f64,
    /// Whether it ends at a cliff: the capacity asked for ends before that.
    pub before_cliff: bool,
}

/// The worst that any window of a length showed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// Length of the window.
    pub seconds: f64,
    /// Bytes per second in the worst one.
    pub rate: f64,
    /// When that one began.
    pub at_s: f64,
}

/// How long block writes took, from submission to completion.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stalls {
    /// Block writes behind these figures.
    pub writes: u64,
    /// Milliseconds by percentile, in rising order.
    pub percentiles: Vec<Percentile>,
    /// The longest, in milliseconds.
    pub longest_ms: f64,
    /// When the longest was completed.
    pub longest_at_s: f64,
    /// How many lie in each range, in rising order; ranges are wider the higher they are.
    pub histogram: Vec<Bucket>,
    /// How often a write took longer than so many milliseconds, for each hour of writing.
    pub per_hour: Vec<PerHour>,
    /// The longest time in which no block was completed at all, in milliseconds.
    pub longest_silence_ms: f64,
    /// When that began.
    pub longest_silence_at_s: f64,
}

/// A point of a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Percentile {
    /// 50, 90, 99, 99.9 …
    pub percent: f64,
    /// Milliseconds below which that share of the writes lies.
    pub ms: f64,
}

/// A range of times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bucket {
    /// Milliseconds from …
    pub from_ms: f64,
    /// … to, this not included.
    pub to_ms: f64,
    /// Writes in it.
    pub writes: u64,
}

/// How often something took longer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PerHour {
    /// Longer than so many milliseconds.
    pub over_ms: f64,
    /// Times that it did.
    pub seen: u64,
    /// For each hour of writing, on this evidence.
    pub per_hour: f64,
}

/// The ring that would have lost nothing at a rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RingForRate {
    /// Bytes per second that come in.
    pub rate: ByteRate,
    /// Bytes of blocks that would have been needed, those in the kernel's hands and being filled included.
    pub ring: ByteSize,
    /// Whether that is more than the run allows to say: the target is slower than the rate, and a longer
    /// run would ask for more.
    pub unbounded: bool,
}

/// The highest rate that a ring would have held.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RateForRing {
    /// Bytes of blocks.
    pub ring: ByteSize,
    /// Bytes per second; never more than the mean of the run.
    pub rate: ByteRate,
}

/// What we would record on the target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recommendation {
    /// Bytes per second.
    pub rate: ByteRate,
    /// With a ring of so many bytes.
    pub ring: ByteSize,
    /// The highest rate that this ring would have held in this run, and never more than the mean of it with
    /// the last sync: the sustained rate.
    pub sustained: ByteRate,
    /// What lies between the two, in words.
    pub margin: String,
}

/// A sensor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Temperature {
    /// `nvme0 Composite`.
    pub sensor: String,
    /// When the device throttles or warns, in °C, if it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_c: Option<f64>,
    /// Seconds since the write pass began, and °C.
    pub readings: Vec<(f64, f64)>,
}

/// A counter of throttling, before and after.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Throttling {
    /// `nvme0 warning_temp_time`.
    pub counter: String,
    /// Before the run.
    pub before: u64,
    /// After it.
    pub after: u64,
}

/// What one member took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemberShare {
    /// Its path, as among the targets.
    pub path: String,
    /// Bytes that it took.
    pub bytes: u64,
    /// Bytes per second over the run.
    pub rate: f64,
    /// Its slowest block write, in milliseconds.
    pub longest_ms: f64,
}

/// What another program reaches with the same job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// `fio 3.33`.
    pub program: String,
    /// Which way.
    pub direction: Direction,
    /// Whether its buffers lay in huge pages, as ours do.
    pub huge_pages: bool,
    /// Bytes of each request.
    pub block_bytes: u64,
    /// Requests under way at once.
    pub depth: u32,
    /// What it reached, in bytes per second; absent where it was not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// CPU seconds for each 10⁹ bytes, of the whole process tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_s_per_gb: Option<f64>,
    /// Its longest request, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_ms: Option<f64>,
    /// What we reached with the same job.
    pub ours: f64,
    /// CPU seconds of ours for each 10⁹ bytes.
    pub ours_cpu_s_per_gb: f64,
    /// Ours over theirs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// The exact command.
    pub command: String,
    /// Why there is no figure, if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
}

/// The data sheet.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// What it promises.
    pub rate: ByteRate,
    /// The fastest point of the sweep over that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_ratio: Option<f64>,
    /// The mean of the continuous pass over that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continuous_ratio: Option<f64>,
    /// The fastest run of the system's own benchmark (fio) over that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_ratio: Option<f64>,
    /// The mean of the continuous pass over the system's own benchmark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continuous_over_system: Option<f64>,
}

/// How long the drive lives.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Endurance {
    /// Bytes per second that are reckoned with.
    pub rate: ByteRate,
    /// The share of the time in which it is written, in a duty cycle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recording_share: Option<f64>,
    /// Terabytes (10¹²) in a day of 24 hours at that rate, pauses left out.
    pub tb_per_day: f64,
    /// Terabytes that the maker warrants: given, or from drive writes per day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tbw: Option<f64>,
    /// Days of 24 hours until they are written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub days: Option<f64>,
    /// Drive writes per day at that rate, where the capacity is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drive_writes_per_day: Option<f64>,
}

/// Whether it holds what was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// What was asked for (`--require`).
    pub required: ByteRate,
    /// Whether that was typed in bits per second.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_bits: bool,
    /// What it holds.
    pub sustained: ByteRate,
    /// Whether that is enough.
    pub holds: bool,
    /// `sustained` over `required`, less 1.
    pub margin: f64,
    /// In a sentence.
    pub sentence: String,
}

/// What a reader must know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// How much it matters.
    pub level: Level,
    /// The sentence.
    pub text: String,
}

/// How much a note matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Good to know.
    Info,
    /// The figures are not what they seem.
    Warning,
}

/// Another program's run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandRun {
    /// The exact words, as a shell takes them.
    pub command: String,
    /// Whether it was run; if not, it is there to be repeated.
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
