//! `fullbore selftest`: twelve tests of a target as a recorder.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args as Arguments;
use fullbore_core::pattern::Pattern;
use fullbore_core::units::ByteSize;
use fullbore_survey::bench::environment::Roots;
use fullbore_survey::selftest::{
    self, ExpectedLink, Line, Local, Outcome, Peak, Settings, Spread, Summary, Wanted,
};
use indicatif::{ProgressBar, ProgressStyle};

use crate::hint::explained;
use crate::output::{FOUND, GOOD, Output, REFUSED};
use crate::signals;

/// Test a disk as a recorder: twelve tests, each PASS, FAIL or UNKNOWN, with details.
///
///   fullbore selftest /mnt/disk0              all free space but a twentieth
///   fullbore selftest /mnt/disk0 --quick      half a minute
///   fullbore selftest /dev/nvme1n1 --overwrite /dev/nvme1n1 --link gen3x4
///                                             a whole drive
///
///   00  target and link                  06  stop: held data is written
///   01  flush of leftover data           07  nothing written outside the addresses
///   02  the pattern checker itself       08  rate: sessions of 1 to 32768 chunks
///   03  flush after write, and sync      09  wrong addresses are refused by name
///   04  early end of data                10  whole target written and read back
///   05  abort: held data is dropped      11  target and link, once more
///
/// A chunk is 128 KiB. Wrong data is named: damage, a stale block and the seed that wrote it, a shift, a
/// repeated or missing block, a torn write, zeros.
///
/// In a directory, selftest overwrites no file. It writes to a drive or file only if --overwrite repeats its name, and
/// never if it is in use.
///
/// If the kernel reports no PCI link, tests 00 and 11 are UNKNOWN: neither passed nor failed. With --link they fail in
/// that case, and if the link has a lower generation or fewer lanes.
///
/// A file must exist and have at least 8 MiB: fallocate -l 64M disk.img
///
/// Exit codes: 0 no test failed (the summary names those that are UNKNOWN); 1 a test failed; 2 the target could not
/// be tested, or the tests were interrupted before one failed.
#[derive(Arguments)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// A directory on the disk, a block device, or a file that serves as one.
    #[arg(value_name = "TARGET")]
    target: PathBuf,
    /// Short sessions, and no more than 256 MiB of the target.
    #[arg(long)]
    quick: bool,
    /// Use no more than this, from the beginning.
    #[arg(long, value_name = "SIZE")]
    size: Option<ByteSize>,
    /// Space to leave free in a directory. [default: a twentieth of the free space]
    #[arg(long, value_name = "SIZE")]
    reserve: Option<ByteSize>,
    /// Run only these tests, for example 5,6.
    #[arg(long = "tests", value_name = "LIST", value_delimiter = ',')]
    only: Vec<u8>,
    /// Number of runs of the sessions of test 08. [default: 3, and 1 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    runs: Option<u16>,
    /// Number of times that test 10 writes and reads the whole target; the summary prints the mean and the standard
    /// deviation of the rates.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    passes: u16,
    /// The PCI link that the drive must have, for example gen3x4: tests 00 and 11 fail with less, or without one.
    #[arg(long, value_name = "LINK")]
    link: Option<ExpectedLink>,
    /// The data pattern: prbs31, prbs23 or random, optionally with a first seed (prbs31:7). Without a seed, one that
    /// no earlier run used.
    #[arg(long, value_name = "PATTERN", default_value = "prbs31")]
    pattern: Pattern,
    /// The name of the target again: all data on it may be overwritten.
    #[arg(long, value_name = "TARGET")]
    overwrite: Option<PathBuf>,
    /// Read /sys of the machine from this directory.
    #[arg(long, value_name = "DIR", default_value = "/sys", hide = true)]
    sysfs_root: PathBuf,
}

/// Runs the command.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    let settings = Settings {
        limit: args.size.map(|size| size.0),
        quick: args.quick,
        runs: args.runs.map(usize::from),
        passes: args.passes.into(),
        link: args.link,
        pattern: unlike_earlier_runs(args.pattern),
        only: args.only,
    };
    let wanted =
        Wanted { most: selftest::needed(&settings), reserve: args.reserve.map(|size| size.0) };
    let overwrite = args.overwrite.as_deref();
    let roots = Roots { sysfs: args.sysfs_root, ..Roots::default() };
    let mut target = Local::open(&args.target, overwrite, wanted, roots).map_err(explained)?;
    let stop = signals::stop_handle()?;
    let mut screen = Screen::new(output);
    let told = selftest::run(&mut target, &settings, &stop, &mut |line| screen.tell(line));
    screen.bar.finish_and_clear();
    let summary = told.map_err(explained)?;
    output.tell(&summary, || ending(&summary))?;
    screen.broken.map_or(Ok(()), Err)?;
    Ok(ExitCode::from(match (summary.passed, summary.interrupted, summary.failed) {
        (true, ..) => GOOD,
        (_, true, 0) => REFUSED,
        _ => FOUND,
    }))
}

/// Gives a pattern without a seed one from the current time. Otherwise data of an earlier run could be taken for this
/// one's, on a drive that no longer writes.
fn unlike_earlier_runs(pattern: Pattern) -> Pattern {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    match pattern.seed() {
        Some(0) => pattern.with_seed(now.as_micros() as u64),
        _ => pattern,
    }
}

/// The console log, and a progress line below it.
struct Screen {
    output: Output,
    bar: ProgressBar,
    /// The error of writing output: most likely a closed pipe.
    broken: Option<anyhow::Error>,
}

impl Screen {
    fn new(output: Output) -> Self {
        let bar = match output.progress() {
            true => ProgressBar::no_length().with_style(
                ProgressStyle::with_template(
                    "{spinner} test {prefix}: {bytes} moved, {bytes_per_sec}",
                )
                .expect("the template is well-formed"),
            ),
            false => ProgressBar::hidden(),
        };
        Self { output, bar, broken: None }
    }

    fn tell(&mut self, line: Line) {
        match line {
            Line::Moved(bytes) => return self.bar.inc(bytes),
            Line::Begin { number, .. } => {
                self.bar.reset();
                self.bar.set_prefix(format!("{number:02}"));
            }
            Line::Info(_) | Line::End(_) => {}
        }
        if self.output.json || self.broken.is_some() {
            return;
        }
        let print = || -> anyhow::Result<()> {
            use std::io::Write;
            let mut out = std::io::stdout().lock();
            out.write_all(text(&line).as_bytes())?;
            Ok(out.flush()?)
        };
        self.broken = self.bar.suspend(print).err();
    }
}

const STARS: &str = "****************************************************************";

fn text(line: &Line) -> String {
    match line {
        Line::Begin { number, title, about } => {
            format!("{STARS}\nTEST #{number:02}: {title}\n{STARS}\n{about}\n********\n")
        }
        Line::Info(text) => format!("INFO: {text}\n"),
        Line::Moved(_) => String::new(),
        Line::End(result) => {
            let outcome = named(result.outcome);
            let word = if result.outcome == Outcome::Fail { "ERROR" } else { outcome };
            let why = result.why.as_ref().map_or(String::new(), |why| format!("{word}: {why}\n"));
            format!("{why}{STARS}\nTEST #{:02}: {outcome}\n{STARS}\n", result.number)
        }
    }
}

fn named(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Pass => "PASS",
        Outcome::Fail => "FAIL",
        Outcome::Unknown => "UNKNOWN",
    }
}

/// The lines after the log.
fn ending(summary: &Summary) -> String {
    let mut text = String::new();
    if !summary.peaks.is_empty() {
        text += &table(&summary.peaks);
    }
    if let Some(continuous) = &summary.continuous {
        let [write, read] = [&continuous.write, &continuous.read].map(cell);
        let passes = match continuous.passes.len() {
            1 => "1 pass".to_owned(),
            several => format!("{several} passes"),
        };
        text += &format!(
            "Continuous, {passes} of {} bytes: written at {write}, read at {read}\n\n",
            continuous.bytes
        );
    }
    let ran = summary.tests.len();
    let overall = match (summary.passed, summary.interrupted, summary.unknown) {
        (true, _, 0) => "PASS".to_owned(),
        (true, _, unknown) => format!("NO FAILURE, {unknown} UNKNOWN"),
        (false, true, _) if summary.failed == 0 => "INTERRUPTED".to_owned(),
        (false, ..) => "FAIL".to_owned(),
    };
    text += &format!("{STARS}\n\nOverall Test Summary: {overall}\n");
    text += &format!("{} of {ran} tests failed", summary.failed);
    if summary.unknown > 0 {
        text += &format!(", {} unknown", summary.unknown);
    }
    text += "\n";
    for test in summary.tests.iter().filter(|test| test.outcome != Outcome::Pass) {
        let why = test.why.as_deref().unwrap_or_default();
        let word = named(test.outcome);
        text += &format!("  #{:02} {}: {word}: {why}\n", test.number, test.title);
    }
    text + &format!("\n{STARS}\n")
}

fn table(peaks: &[Peak]) -> String {
    let runs = peaks.first().map_or(0, |peak| peak.write.runs);
    let mut text = format!("\n*** Performance Summary, peak, MiB/s, {runs} runs ***\n");
    text += &format!("| {:>6} | {:>20} | {:>20} |\n", "chunks", "write", "read");
    for peak in peaks {
        let [write, read] = [&peak.write, &peak.read].map(cell);
        text += &format!("| {:>6} | {write:>20} | {read:>20} |\n", peak.chunks);
    }
    text + "NOTE: sessions of few chunks are mostly set-up, and long ones may outrun a cache in the drive;\n\
            \x20     what a drive sustains is told below, and by `fullbore bench disk`.\n\n"
}

fn cell(spread: &Spread) -> String {
    match spread.runs {
        0 | 1 => format!("{:.0} MiB/s", mebibytes(spread.mean)),
        _ => format!("{:.0} ± {:.0} MiB/s", mebibytes(spread.mean), mebibytes(spread.deviation)),
    }
}

fn mebibytes(rate: f64) -> f64 {
    rate / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use fullbore_survey::selftest::{Continuous, FullPass, TestResult};

    use super::*;

    fn summary(outcome: Outcome) -> Summary {
        let spread = Spread::of(&[100.0 * 1048576.0, 120.0 * 1048576.0]);
        let failed = usize::from(outcome == Outcome::Fail);
        Summary {
            fullbore_selftest: selftest::VERSION,
            target: Default::default(),
            tested: ByteSize(1 << 30),
            pattern: "prbs31".parse().unwrap(),
            quick: false,
            link_expected: None,
            tests: vec![TestResult {
                number: 5,
                title: "abort",
                outcome,
                why: (outcome != Outcome::Pass).then(|| "wrong data".into()),
                seconds: 1.0,
                told: vec![],
            }],
            peaks: vec![Peak { chunks: 32768, bytes: 1 << 32, write: spread, read: spread }],
            continuous: Some(Continuous::of(
                1 << 30,
                &[FullPass { write_seconds: 1.0, read_seconds: 2.0 }],
            )),
            failed,
            unknown: usize::from(outcome == Outcome::Unknown),
            passed: failed == 0,
            interrupted: false,
        }
    }

    #[test]
    fn the_end_tells_the_tables_and_what_failed() {
        let good = ending(&summary(Outcome::Pass));
        assert!(
            good.contains("|  32768 |       110 ± 14 MiB/s |       110 ± 14 MiB/s |"),
            "{good}"
        );
        assert!(good.contains("written at 1024 MiB/s, read at 512 MiB/s"), "{good}");
        assert!(good.contains("Overall Test Summary: PASS\n0 of 1 tests failed"), "{good}");
        let bad = ending(&summary(Outcome::Fail));
        assert!(bad.contains(
            "Overall Test Summary: FAIL\n1 of 1 tests failed\n  #05 abort: FAIL: wrong data"
        ));
        let unknown = ending(&summary(Outcome::Unknown));
        assert!(
            unknown.contains("Overall Test Summary: NO FAILURE, 1 UNKNOWN\n0 of 1 tests failed, 1 unknown\n  #05 abort: UNKNOWN: "),
            "{unknown}"
        );
    }

    #[test]
    fn a_failed_test_says_why_above_its_frame() {
        let result = summary(Outcome::Fail).tests.remove(0);
        let told = text(&Line::End(result));
        assert!(
            told.starts_with("ERROR: wrong data\n***") && told.contains("TEST #05: FAIL"),
            "{told}"
        );
    }
}
