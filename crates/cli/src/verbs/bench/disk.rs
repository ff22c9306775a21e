//! `fullbore bench disk`: the sustained rate of a target, over time and by ring size.

use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{Args as Arguments, ValueEnum};
use fullbore_core::duty::Duty;
use fullbore_core::hint::Hint;
use fullbore_core::memory_budget::FILLING;
use fullbore_core::pattern::Pattern;
use fullbore_core::units::{ByteRate, ByteSize, RequestedRate};
use fullbore_survey::bench::disk::{self, Long, Settings, Watcher, fio, sweep};
use fullbore_survey::bench::environment::Roots;
use fullbore_survey::bench::history;
use fullbore_survey::bench::result::{BenchResult, Direction, Mode};
use fullbore_survey::bench::sets::{self, NamedTargets, SetResult, SetsResult, Unmeasured};
use fullbore_survey::report;
use indicatif::{ProgressBar, ProgressStyle};

use super::result_output;
use crate::hint::explained;
use crate::output::{self, Output};
use crate::signals;
use crate::verbs::sending;

/// Measure which rate a disk sustains, and the ring it needs: peak, continuous, stalls.
///
///   fullbore bench disk /mnt/disk0                      in a few minutes
///   fullbore bench disk /mnt/d0 /mnt/d1 --seconds 10m   a disk set, for longer
///   fullbore bench disk /mnt/disk0 --full               all but a reserve
///   fullbore bench disk /dev/nvme1n1 --full --overwrite /dev/nvme1n1
///                                                       all of a drive
///   fullbore bench disk /mnt/disk0 --require 16Gbit/s --quick
///   fullbore bench disk /mnt/disk0 --rate 2GB/s --ring 512MiB
///                                                       as a recording does
///   fullbore bench disk /mnt/disk0 --duty 40s/20s --require 180MB/s
///                                                       scans with pauses
///   fullbore bench disk /mnt/ram --wrap --seconds 1m    a small RAM disk
///   fullbore bench disk /mnt/disk0 --blocks powers --iterations
///                                                       512 B, 513 B, 1 KiB …
///   fullbore bench disk --set A=/mnt/a,/mnt/b --set B=/mnt/c --require 16Gbit/s
///
/// However the benchmark ends, a directory stays as it was: the benchmark's files have no names. It overwrites a
/// file or block device only if --overwrite repeats its name. It refuses a device in use.
///
///   peak        short sessions of many sizes, blocks, depths and access modes
///   continuous  a pattern through the writers of the store, read back and compared
///   stalls      every block write is timed, and the trace replayed through a ring
///   fio         the same job, alternating with ours, if fio is installed
///
/// Rates are in MB/s (10⁶ bytes). If the rate drops for good, the rate after the drop counts.
///
/// Exit codes: 0 the disk sustains the rate of --require, or none was given; 1 it does not (with several
/// sets: one of them does not), the run was too short to show it, or data read back differs from the data
/// written; 2 the target could not be measured, or the benchmark ended before it had a result.
#[derive(Arguments)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// A directory on each disk of a set, or one file or block device.
    #[arg(required_unless_present = "set", value_name = "TARGET")]
    targets: Vec<PathBuf>,
    /// A named disk set, for example A=/mnt/a,/mnt/b; once for each. They are measured one after the other, with the same
    /// settings, and shown in one table.
    #[arg(long, value_name = "NAME=DIR[,DIR…]", conflicts_with = "targets")]
    set: Vec<NamedTargets>,
    /// Measure fewer points, each once, and a continuous run of three seconds.
    #[arg(long)]
    quick: bool,
    /// Parts to leave out.
    #[arg(long, value_name = "PART[,PART…]", value_delimiter = ',')]
    skip: Vec<Part>,
    /// The name of a file or block device again, to allow overwriting it; once for each.
    #[arg(long, value_name = "TARGET")]
    overwrite: Vec<PathBuf>,
    /// Space to leave free in each directory [default: a twentieth, at least 64 MiB]
    #[arg(long, value_name = "SIZE")]
    reserve: Option<ByteSize>,
    #[command(flatten)]
    peak: Peak,
    #[command(flatten)]
    long: LongArgs,
    #[command(flatten)]
    judge: Judge,
    /// Write the result to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write a self-contained page with charts.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Do not keep the result in the history.
    #[arg(long)]
    no_history: bool,
    /// Read /sys of the machine from this directory.
    #[arg(long, value_name = "DIR", default_value = "/sys", hide = true)]
    sysfs_root: PathBuf,
}

/// The peak sweep.
#[derive(Arguments)]
#[command(next_help_heading = "Peak sweep")]
struct Peak {
    /// Sizes of sessions: numbers of chunks of 128 KiB (1 to 32768, and any other), or sizes.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    sessions: Vec<Chunks>,
    /// Sizes of blocks, up to 64 MiB. A size that is not a multiple of the sector shows the cost of that. `powers` means the
    /// powers of two from 512 B to 4 MiB, each with the next byte (512, 513, 1024, 1025 …), and `powers+8` the same with one
    /// 8-byte element more.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    blocks: Vec<Blocks>,
    /// Concurrent requests.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    depths: Vec<u32>,
    /// Files on each target.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    files: Vec<u32>,
    /// Access modes; the first one applies to all curves but that of the modes.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    modes: Vec<ModeArg>,
    /// Directions to measure.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    directions: Vec<DirectionArg>,
    /// Runs of each point [default: 3, with --quick 1]
    #[arg(long, value_name = "N")]
    runs: Option<u32>,
    /// List the rate of each run, in addition to mean and standard deviation.
    #[arg(long)]
    iterations: bool,
    /// A run ends after this time, and its point says so [default: 1s, with --quick 300ms]
    #[arg(long, value_name = "TIME", value_parser = sending::some_time)]
    run_time: Option<Duration>,
}

/// The long run.
#[derive(Arguments)]
#[command(next_help_heading = "Continuous")]
struct LongArgs {
    /// Time to write [default: 30s, with --quick 3s; at most until half the free space is written]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    seconds: Option<Duration>,
    /// Amount to write.
    #[arg(long, value_name = "SIZE")]
    bytes: Option<ByteSize>,
    /// Write all free space but the reserve; a file or block device completely.
    #[arg(long)]
    full: bool,
    /// When the target is full, continue from its start (removing the oldest chunk files) until --seconds are over; then
    /// read for as long. This writes and reads a RAM disk of 2 GB for a minute.
    #[arg(long, conflicts_with = "full")]
    wrap: bool,
    /// Bytes of a block.
    #[arg(long, value_name = "SIZE", default_value = "4MiB")]
    block: ByteSize,
    /// Bytes of concurrent writes on each target.
    #[arg(long, value_name = "SIZE", default_value = "32MiB")]
    depth_bytes: ByteSize,
    /// Approximate size of chunk files.
    #[arg(long, value_name = "SIZE", default_value = "256MB")]
    chunk: ByteSize,
    /// Make blocks at this rate; data that finds no free block counts as overrun, as in a recording.
    #[arg(long, value_name = "RATE")]
    rate: Option<ByteRate>,
    /// Write in a duty cycle of scans and pauses, for example 40s/20s. The ring drains in the pause; the rates are those of
    /// the scans. Only whole cycles of scan and pause are judged: if --bytes or the space ends the run before the first one
    /// is over, --require is NOT SHOWN [default of --seconds: three cycles, with --quick one; always whole cycles]
    #[arg(long, value_name = "SCAN/PAUSE")]
    duty: Option<Duty>,
    /// Block memory of the recording [default: 2 GiB, or a quarter of the free memory]
    #[arg(long, value_name = "SIZE")]
    ring: Option<ByteSize>,
    /// The data: prbs7, prbs15, prbs23, prbs31, counter, random:SEED, noise:SEED or a word (0x…).
    #[arg(long, value_name = "PATTERN", default_value = "prbs31")]
    pattern: Pattern,
}

/// Requirements to judge the result by.
#[derive(Arguments)]
#[command(next_help_heading = "Held against")]
struct Judge {
    /// The rate that the disk must sustain; else the exit code is 1.
    #[arg(long, value_name = "RATE")]
    require: Option<RequestedRate>,
    /// Size of one recording. If the rate of a disk drops for good, the rate after the last drop counts; with this option,
    /// the rate at this size.
    #[arg(long, value_name = "SIZE")]
    capacity: Option<ByteSize>,
    /// Write rate of the data sheet, for example 3.1GiB/s. Peak, continuous and fio results are also shown as shares of
    /// it.
    #[arg(long, value_name = "RATE")]
    spec: Option<ByteRate>,
    /// Read rate of the data sheet.
    #[arg(long, value_name = "RATE")]
    spec_read: Option<ByteRate>,
    /// Warranted terabytes written (TBW).
    #[arg(long, value_name = "TB")]
    tbw: Option<f64>,
    /// Warranted drive writes per day (DWPD).
    #[arg(long, value_name = "N", conflicts_with = "tbw")]
    dwpd: Option<f64>,
    /// Years of the warranty of the drive writes per day.
    #[arg(long, value_name = "YEARS", default_value_t = 5.0)]
    warranty: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The peak sweep.
    Peak,
    /// The long run.
    Continuous,
    /// Reading back.
    Read,
    /// The comparison with fio.
    Fio,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ModeArg {
    /// Past the page cache.
    Direct,
    /// Through the page cache without staying there (RWF_DONTCACHE).
    Uncached,
    /// Through the page cache.
    Buffered,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DirectionArg {
    /// To the target.
    Write,
    /// From it.
    Read,
}

/// A number of chunks of 128 KiB, or a size.
#[derive(Clone, Copy, Debug)]
struct Chunks(u64);

impl FromStr for Chunks {
    type Err = fullbore_core::units::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bytes = match text.trim().parse::<u64>() {
            Ok(chunks) => chunks.saturating_mul(sweep::CHUNK_BYTES),
            Err(_) => text.parse::<ByteSize>()?.0,
        };
        Ok(Self(bytes))
    }
}

/// One block size, or a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blocks {
    Size(u64),
    /// Powers of two, each also with this number of bytes added.
    Powers {
        more: u64,
    },
}

/// The smallest and the largest of the powers, as exponents of two.
const POWERS: std::ops::RangeInclusive<u32> = 9..=22;

impl Blocks {
    fn sizes(&self) -> Vec<u64> {
        match *self {
            Self::Size(bytes) => vec![bytes],
            Self::Powers { more } => {
                POWERS.flat_map(|power| [1 << power, (1 << power) + more]).collect()
            }
        }
    }
}

impl FromStr for Blocks {
    type Err = fullbore_core::units::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.trim().strip_prefix("powers") {
            Some("") => Ok(Self::Powers { more: 1 }),
            Some(rest) if rest.starts_with('+') => {
                Ok(Self::Powers { more: rest[1..].parse::<ByteSize>()?.0 })
            }
            _ => Ok(Self::Size(text.parse::<ByteSize>()?.0)),
        }
    }
}

/// `30`, `30s`, `10m`.
fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<u32>() {
        Ok(seconds) => sending::lasting(Duration::from_secs(seconds.into())),
        Err(_) => sending::some_time(text),
    }
}

/// The largest block that is measured.
const LARGEST_BLOCK_BYTES: u64 = 64 << 20;

/// The smallest block of the long run: each block leaves a record in memory.
const SMALLEST_LONG_BLOCK_BYTES: u64 = 64 << 10;

/// The smallest unit of a disk.
const SMALLEST_BLOCK_BYTES: u64 = 64;

/// The most concurrent requests.
const MOST_DEPTH: u32 = 1024;

/// The most files on one target.
const MOST_FILES: u32 = 256;

/// The most runs of a point.
const MOST_RUNS: u32 = 1000;

/// The highest accepted warranty in terabytes, writes per day, or years.
const MOST_WARRANTED: f64 = 1e6;

/// The default ring of a recording.
const RING_BYTES: u64 = 2 << 30;

impl Args {
    fn has(&self, part: Part) -> bool {
        !self.skip.contains(&part)
    }

    fn settings(&self) -> anyhow::Result<Settings> {
        let roots = Roots { sysfs: self.sysfs_root.clone(), ..Roots::default() };
        let ring_bytes = self.long.ring.map_or_else(|| usual_ring(&roots), |ring| ring.0);
        let peak = self.sweep()?;
        let fio = fio::FioRequest {
            session_bytes: if self.quick { 256 << 20 } else { 1 << 30 },
            block_bytes: peak.block_bytes,
            depth: peak.depth,
            runs: peak.runs,
            run_time: Duration::from_secs(10),
            run: self.has(Part::Fio),
        };
        ensure!(
            self.judge.require.is_none() || self.has(Part::Continuous),
            "--require needs the continuous run, which --skip leaves out"
        );
        ensure!(
            [Part::Peak, Part::Continuous, Part::Fio].iter().any(|part| self.has(*part)),
            "--skip leaves nothing that could be measured"
        );
        let rates = [
            ("--rate", self.long.rate),
            ("--require", self.judge.require.map(|requested| requested.rate)),
            ("--spec", self.judge.spec),
            ("--spec-read", self.judge.spec_read),
        ];
        for (option, rate) in rates {
            ensure!(rate.is_none_or(|rate| rate.0 > 0), "{option} is a rate above 0");
        }
        self.judge.check()?;
        Ok(Settings {
            targets: self.targets.clone(),
            overwrite: named_among(&self.overwrite, &self.targets),
            reserve: self.reserve.map(|size| size.0),
            sweep: self.has(Part::Peak).then_some(peak),
            continuous: match self.has(Part::Continuous) {
                true => Some(self.long(ring_bytes)?),
                false => None,
            },
            fio: Some(fio),
            spec: self.judge.spec,
            spec_read: self.judge.spec_read,
            require: self.judge.require.map(|requested| requested.rate),
            in_bits: self.judge.require.is_some_and(|requested| requested.in_bits),
            capacity: self.judge.capacity.map(|size| size.0),
            tbw: self.judge.tbw,
            drive_writes: self.judge.dwpd.map(|writes| (writes, self.judge.warranty)),
            roots,
        })
    }

    fn sweep(&self) -> anyhow::Result<sweep::SweepRequest> {
        let peak = &self.peak;
        let modes = [Mode::Direct, Mode::Uncached, Mode::Buffered];
        let given = |list: &[u32], usual: &[u32]| {
            if list.is_empty() { usual.to_vec() } else { list.to_vec() }
        };
        let sessions: &[u64] =
            if self.quick { &[1, 64, 512] } else { &[1, 8, 64, 512, 4096, 32768] };
        let blocks: &[u64] = match self.quick {
            true => &[4096, 5000, 1 << 20, 4 << 20],
            false => &[
                512,
                4096,
                5000,
                64 << 10,
                256 << 10,
                1_000_000,
                1 << 20,
                2 << 20,
                4 << 20,
                16 << 20,
            ],
        };
        let wish = sweep::SweepRequest {
            sessions: match peak.sessions.is_empty() {
                true => sessions.iter().map(|chunks| chunks * sweep::CHUNK_BYTES).collect(),
                false => peak.sessions.iter().map(|chunks| chunks.0).collect(),
            },
            blocks: match peak.blocks.is_empty() {
                true => blocks.to_vec(),
                false => peak.blocks.iter().flat_map(Blocks::sizes).collect(),
            },
            depths: given(&peak.depths, if self.quick { &[1, 8] } else { &[1, 2, 4, 8, 16] }),
            files: given(&peak.files, if self.quick { &[1] } else { &[1, 4] }),
            modes: match peak.modes.is_empty() {
                true => modes.to_vec(),
                false => peak.modes.iter().map(|mode| mode.meant()).collect(),
            },
            directions: match peak.directions.is_empty() {
                true => vec![Direction::Write, Direction::Read],
                false => peak.directions.iter().map(|direction| direction.meant()).collect(),
            },
            iterations: peak.iterations,
            runs: peak.runs.unwrap_or(if self.quick { 1 } else { 3 }),
            run_time: peak.run_time.unwrap_or(match self.quick {
                true => Duration::from_millis(300),
                false => Duration::from_secs(1),
            }),
            session_bytes: if self.quick { 64 << 20 } else { 512 << 20 },
            block_bytes: 4 << 20,
            depth: 8,
        };
        check(&wish)?;
        Ok(wish)
    }

    fn long(&self, ring_bytes: u64) -> anyhow::Result<Long> {
        let long = &self.long;
        let blocks = SMALLEST_LONG_BLOCK_BYTES..=LARGEST_BLOCK_BYTES;
        ensure!(blocks.contains(&long.block.0), "--block is 64 KiB to 64 MiB");
        ensure!(long.block.0.is_multiple_of(4096), "--block is a multiple of 4096 bytes");
        ensure!(long.depth_bytes.0 >= long.block.0, "--depth-bytes is one block at least");
        ensure!(
            ring_bytes >= FILLING * long.block.0,
            "--ring holds the {FILLING} blocks of {} that are being filled at least",
            long.block
        );
        let limited = long.bytes.is_some() && !long.wrap || long.full;
        let usual = if self.quick { Duration::from_secs(3) } else { Duration::from_secs(30) };
        let time = match long.duty {
            Some(duty) => self.cycles(duty, limited)?,
            None => long.seconds.or((!limited).then_some(usual)),
        };
        Ok(Long {
            time,
            bytes: long.bytes.map(|size| size.0),
            full: long.full,
            wrap: long.wrap,
            read_back: self.has(Part::Read),
            block_bytes: u32::try_from(long.block.0).context("the block's size")?,
            chunk_bytes: long.chunk.0,
            depth_bytes: long.depth_bytes.0,
            pace: long.rate,
            duty: long.duty,
            ring_bytes,
            pattern: long.pattern,
        })
    }
}

impl Args {
    /// The duration of a run in a duty cycle: whole cycles.
    fn cycles(&self, duty: Duty, limited: bool) -> anyhow::Result<Option<Duration>> {
        let usual = if self.quick { 1 } else { 3 };
        let Some(wanted) = self.long.seconds else {
            return Ok((!limited).then(|| duty.cycle() * usual));
        };
        ensure!(
            wanted >= duty.record(),
            "--seconds {:.0} is shorter than one scan of --duty {duty}",
            wanted.as_secs_f64()
        );
        let cycles = (wanted.as_nanos() / duty.cycle().as_nanos()).max(1);
        Ok(Some(duty.cycle() * u32::try_from(cycles).unwrap_or(u32::MAX)))
    }
}

/// Checks the typed values.
fn check(wish: &sweep::SweepRequest) -> anyhow::Result<()> {
    let block = SMALLEST_BLOCK_BYTES..=LARGEST_BLOCK_BYTES;
    ensure!(wish.blocks.iter().all(|size| block.contains(size)), "--blocks are 64 B to 64 MiB");
    ensure!(
        wish.sessions.iter().all(|size| *size >= sweep::CHUNK_BYTES),
        "--sessions are one chunk of 128 KiB at least"
    );
    ensure!(wish.depths.iter().all(|n| (1..=MOST_DEPTH).contains(n)), "--depths are 1 to 1024");
    ensure!(wish.files.iter().all(|n| (1..=MOST_FILES).contains(n)), "--files are 1 to 256");
    ensure!((1..=MOST_RUNS).contains(&wish.runs), "--runs is 1 to 1000");
    let deepest = u64::from(wish.depths.iter().copied().max().unwrap_or(1).max(wish.depth));
    let largest = wish.blocks.iter().copied().max().unwrap_or(0);
    let memory = (deepest * wish.block_bytes).max(largest * u64::from(wish.depth));
    ensure!(memory <= 8 << 30, "--depths and --blocks ask for {} of memory", ByteSize(memory));
    Ok(())
}

/// The block memory that `record` uses by default.
fn usual_ring(roots: &Roots) -> u64 {
    let meminfo = roots.proc("meminfo").unwrap_or_default();
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kilobytes.map_or(RING_BYTES, |free| RING_BYTES.min(free * 1024 / 4)).max(64 << 20)
}

impl Judge {
    /// Refuses impossible warranties.
    fn check(&self) -> anyhow::Result<()> {
        let numbers =
            [("--tbw", self.tbw), ("--dwpd", self.dwpd), ("--warranty", Some(self.warranty))];
        for (option, number) in numbers {
            let Some(number) = number else { continue };
            ensure!(
                number.is_finite() && number > 0.0 && number <= MOST_WARRANTED,
                "{option} is a number above 0, and at most a million, not {number}"
            );
        }
        Ok(())
    }
}

impl ModeArg {
    fn meant(self) -> Mode {
        match self {
            Self::Direct => Mode::Direct,
            Self::Uncached => Mode::Uncached,
            Self::Buffered => Mode::Buffered,
        }
    }
}

impl DirectionArg {
    fn meant(self) -> Direction {
        match self {
            Self::Write => Direction::Write,
            Self::Read => Direction::Read,
        }
    }
}

/// The repeated name of one of these targets; else the first repeated name, so that the mistake is reported.
fn named_among(typed: &[PathBuf], targets: &[PathBuf]) -> Option<PathBuf> {
    typed.iter().find(|name| targets.contains(name)).or(typed.first()).cloned()
}

/// Runs the benchmark.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    let settings = args.settings()?;
    if !args.set.is_empty() {
        return run_sets(&args, &settings, output);
    }
    result_output::try_out(args.output.as_deref(), args.html.as_deref())?;
    let stop = signals::stop_handle()?;
    let bar = bar(output);
    let mut tell = |what: &str, share: f64| {
        if share.is_finite() {
            bar.set_position((share * 1000.0) as u64);
        }
        bar.set_message(what.to_owned());
    };
    let mut watcher = Watcher { stop: &stop, tell: &mut tell };
    let measured = disk::run(&settings, &mut watcher);
    bar.finish_and_clear();
    let result = measured.map_err(explained)?;
    let files = (args.output.as_deref(), args.html.as_deref());
    result_output::everywhere(&result, files, !args.no_history, output)?;
    Ok(ExitCode::from(code(&result, settings.require.is_some())))
}

/// Measures one set after another.
fn run_sets(args: &Args, settings: &Settings, output: Output) -> anyhow::Result<ExitCode> {
    ensure!(args.set.len() <= sets::MOST_SETS, "--set: no more than {} at once", sets::MOST_SETS);
    if let Some(name) = sets::named_twice(&args.set) {
        anyhow::bail!("--set: two sets are called {name}");
    }
    result_output::try_out(args.output.as_deref(), args.html.as_deref())?;
    let stop = signals::stop_handle()?;
    let (mut measured, mut unmeasured) = (Vec::new(), Vec::new());
    for set in &args.set {
        let name = set.name.clone();
        if stop.is_requested() {
            unmeasured.push(Unmeasured { name, why: "the benchmark was ended before".into() });
            continue;
        }
        let overwrite = named_among(&args.overwrite, &set.targets);
        let overwrite = overwrite.filter(|typed| set.targets.contains(typed));
        let settings = Settings { targets: set.targets.clone(), overwrite, ..settings.clone() };
        let bar = bar(output);
        let mut tell = |what: &str, share: f64| {
            if share.is_finite() {
                bar.set_position((share * 1000.0) as u64);
            }
            bar.set_message(format!("{name}: {what}"));
        };
        let result = disk::run(&settings, &mut Watcher { stop: &stop, tell: &mut tell });
        bar.finish_and_clear();
        match result {
            Ok(result) => {
                if !args.no_history {
                    result_output::keep_if_measured(&result);
                }
                measured.push(SetResult { name, result });
            }
            // The results of the other sets are useful all the same.
            Err(error) => {
                let hint = error.hint().map_or(String::new(), |hint| format!(" ({hint})"));
                unmeasured.push(Unmeasured { name, why: format!("{error}{hint}") });
            }
        }
    }
    let all = SetsResult::new(settings.require, measured, unmeasured);
    leave_sets(&all, args, output)?;
    Ok(ExitCode::from(code_of_sets(&all)))
}

/// Writes the result of several sets, and prints it.
fn leave_sets(all: &SetsResult, args: &Args, output: Output) -> anyhow::Result<()> {
    let drives = || {
        let named = all.sets.iter().map(|set| (Some(set.name.clone()), set.result.clone()));
        report::drives(named.collect())
    };
    let write = |path: &PathBuf| history::write(path, all).map_err(explained);
    let json = args.output.as_ref().map_or(Ok(()), write);
    let page = |path: &PathBuf| {
        history::write_text(path, &report::html_of_several(&drives())).map_err(explained)
    };
    let html = args.html.as_ref().map_or(Ok(()), page);
    let told = output.tell(all, || {
        let mut text = report::screen_of_several(&drives());
        for set in &all.unmeasured {
            text += &format!("{}: NOT MEASURED: {}\n", set.name, set.why);
        }
        text
    });
    json.and(html).and(told)
}

/// The exit code: 1 for wrong data or a rate that is not sustained; 2 for a set without a result.
fn code_of_sets(all: &SetsResult) -> u8 {
    let missed = |set: &SetResult| set.result.verdict.as_ref().is_some_and(|it| !it.holds);
    if all.passed {
        output::GOOD
    } else if all.sets.iter().any(|set| missed(set) || sets::has_wrong_data(&set.result)) {
        output::FOUND
    } else {
        output::REFUSED
    }
}

fn code(result: &BenchResult, required: bool) -> u8 {
    let holds = result.verdict.as_ref().map_or(!required, |verdict| verdict.holds);
    if sets::has_wrong_data(result) {
        output::FOUND
    } else if result_output::is_without_answer(result) {
        output::REFUSED
    } else if holds {
        output::GOOD
    } else {
        output::FOUND
    }
}

fn bar(output: Output) -> ProgressBar {
    if !output.progress() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:24} {msg}").expect("a template that is known");
    ProgressBar::new(1000).with_style(style)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn settings(words: &[&str]) -> anyhow::Result<Settings> {
        let line = ["bench", "/x"].into_iter().chain(words.iter().copied());
        Line::try_parse_from(line)?.args.settings()
    }

    #[test]
    fn sessions_are_counted_in_chunks_or_given_as_sizes() {
        let wish = settings(&["--sessions", "1,32768,1GB"]).unwrap().sweep.unwrap();
        assert_eq!(wish.sessions, [128 << 10, 4 << 30, 1_000_000_000]);
    }

    #[test]
    fn a_preset_of_blocks_has_powers_of_two_and_one_element_more() {
        let blocks = |text| settings(&["--blocks", text]).map(|it| it.sweep.unwrap().blocks);
        let bytes = blocks("powers").unwrap();
        assert_eq!(bytes[..4], [512, 513, 1024, 1025]);
        assert_eq!((bytes.len(), bytes[26], bytes[27]), (28, 4 << 20, (4 << 20) + 1));
        assert_eq!(blocks("powers+8,5000").unwrap()[..2], [512, 520]);
        assert_eq!(blocks("powers+8,5000").unwrap().last(), Some(&5000));
        assert!(blocks("powers8").is_err() && blocks("powers+128MiB").is_err());
    }

    #[test]
    fn parts_are_left_out_and_what_needs_them_is_refused() {
        let some = settings(&["--skip", "peak,fio", "--seconds", "5"]).unwrap();
        assert!(some.sweep.is_none() && !some.fio.unwrap().run);
        let long = some.continuous.unwrap();
        assert_eq!((long.time, long.read_back), (Some(Duration::from_secs(5)), true));
        let error = settings(&["--skip", "continuous", "--require", "1GB/s"]).unwrap_err();
        assert!(error.to_string().contains("--require needs"), "{error}");
    }

    #[test]
    fn a_run_in_a_duty_cycle_takes_whole_cycles() {
        let time = |words: &[&str]| {
            let words = [&["--duty", "40s/20s"], words].concat();
            settings(&words).map(|it| it.continuous.unwrap().time.map(|time| time.as_secs()))
        };
        assert_eq!(time(&[]).unwrap(), Some(180));
        assert_eq!(time(&["--quick"]).unwrap(), Some(60));
        assert_eq!(time(&["--seconds", "1h"]).unwrap(), Some(3600));
        assert_eq!(time(&["--seconds", "170"]).unwrap(), Some(120));
        assert_eq!(time(&["--seconds", "40"]).unwrap(), Some(60));
        assert_eq!(time(&["--bytes", "1GB"]).unwrap(), None);
        assert!(time(&["--seconds", "39"]).is_err());
    }

    #[test]
    fn what_is_out_of_bounds_is_refused() {
        for words in [
            ["--blocks", "128MiB"],
            ["--blocks", "1"],
            ["--depths", "0"],
            ["--files", "1000"],
            ["--block", "5000"],
            ["--ring", "8MiB"],
            ["--sessions", "4KiB"],
            ["--runs", "0"],
            ["--tbw", "nan"],
            ["--tbw", "inf"],
            ["--tbw", "0"],
            ["--dwpd", "0"],
            ["--dwpd", "nan"],
            ["--warranty", "0"],
            ["--warranty", "inf"],
        ] {
            assert!(settings(&words).is_err(), "{words:?}");
        }
    }
}
