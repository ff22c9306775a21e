//! Results of a self test: lines during the run, and a summary at the end.

use fullbore_core::pattern::Pattern;
use fullbore_core::units::ByteSize;
use serde::Serialize;

use super::link::ExpectedLink;
use super::medium::Look;

/// An event during the tests.
#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    /// A test begins.
    Begin {
        /// Its number.
        number: u8,
        /// Its name.
        title: &'static str,
        /// Its description, and the condition for passing.
        about: &'static str,
    },
    /// Information.
    Info(String),
    /// The number of further bytes moved.
    Moved(u64),
    /// A test has ended.
    End(TestResult),
}

/// The outcome of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// All checks passed.
    Pass,
    /// A check failed.
    Fail,
    /// All observable properties passed, but the subject of the test is not observable.
    Unknown,
}

/// The result of a test.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TestResult {
    /// 0 to 11.
    pub number: u8,
    /// Its name.
    pub title: &'static str,
    /// The outcome.
    pub outcome: Outcome,
    /// The reason of a failure, or the unknown property.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The duration in seconds.
    pub seconds: f64,
    /// The information it reported.
    pub told: Vec<String>,
}

/// Rates of several runs, bytes per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// The number of runs.
    pub runs: usize,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation; 0 for one run.
    pub deviation: f64,
    /// The slowest.
    pub least: f64,
    /// The fastest.
    pub most: f64,
}

impl Spread {
    /// The spread of these rates.
    pub fn of(rates: &[f64]) -> Self {
        let runs = rates.len();
        if runs == 0 {
            return Self::default();
        }
        let mean = rates.iter().sum::<f64>() / runs as f64;
        let squares: f64 = rates.iter().map(|rate| (rate - mean).powi(2)).sum();
        let deviation = if runs > 1 { (squares / (runs - 1) as f64).sqrt() } else { 0.0 };
        let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
        let most = rates.iter().copied().fold(0.0, f64::max);
        Self { runs, mean, deviation, least, most }
    }
}

/// A row of the peak table: sessions of one length.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Peak {
    /// Chunks of a session.
    pub chunks: u64,
    /// Bytes of a session.
    pub bytes: u64,
    /// The rates of writing.
    pub write: Spread,
    /// The rates of reading, with the pattern checked.
    pub read: Spread,
}

/// The results of writing and reading the whole target, once or several times.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Continuous {
    /// Bytes written and read by each pass.
    pub bytes: u64,
    /// Mean duration of writing, including the final sync.
    pub write_seconds: f64,
    /// Mean duration of reading and checking.
    pub read_seconds: f64,
    /// Each pass.
    pub passes: Vec<FullPass>,
    /// The rates of writing.
    pub write: Spread,
    /// The rates of reading, with the pattern checked.
    pub read: Spread,
}

/// One pass that writes and reads the whole target.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct FullPass {
    /// Duration of writing, including the final sync.
    pub write_seconds: f64,
    /// Duration of reading and checking.
    pub read_seconds: f64,
}

impl Continuous {
    /// The summary of these passes.
    pub fn of(bytes: u64, passes: &[FullPass]) -> Self {
        let seconds = |of: fn(&FullPass) -> f64| passes.iter().map(of).collect::<Vec<f64>>();
        let rates = |seconds: &[f64]| {
            let rates: Vec<f64> = seconds.iter().map(|it| bytes as f64 / it.max(1e-9)).collect();
            Spread::of(&rates)
        };
        let (write, read) = (seconds(|it| it.write_seconds), seconds(|it| it.read_seconds));
        Self {
            bytes,
            write_seconds: Spread::of(&write).mean,
            read_seconds: Spread::of(&read).mean,
            passes: passes.to_vec(),
            write: rates(&write),
            read: rates(&read),
        }
    }
}

/// The summary of a self test.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Version of this document.
    pub fullbore_selftest: u32,
    /// The target.
    pub target: Look,
    /// The tested bytes.
    pub tested: ByteSize,
    /// The pattern.
    pub pattern: Pattern,
    /// True for the quick form.
    pub quick: bool,
    /// The expected link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_expected: Option<ExpectedLink>,
    /// The tests, in their order.
    pub tests: Vec<TestResult>,
    /// Peak rates, from test 08.
    pub peaks: Vec<Peak>,
    /// Continuous rates, from test 10.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub continuous: Option<Continuous>,
    /// The number of failed tests.
    pub failed: usize,
    /// The number of tests whose subject is not observable.
    pub unknown: usize,
    /// True if all requested tests ran and none failed. `unknown` tests do not count.
    pub passed: bool,
    /// True if the user stopped it early.
    pub interrupted: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_passes_come_to_their_mean_and_its_spread() {
        let pass = |write_seconds, read_seconds| FullPass { write_seconds, read_seconds };
        let told = Continuous::of(600, &[pass(2.0, 1.0), pass(3.0, 1.0), pass(6.0, 1.0)]);
        assert_eq!((told.write_seconds, told.read_seconds), (11.0 / 3.0, 1.0));
        assert_eq!((told.write.runs, told.write.mean), (3, 200.0));
        assert!((told.write.deviation - 100.0).abs() < 1e-9, "of 300, 200 and 100: {told:?}");
        assert_eq!((told.read.mean, told.read.deviation), (600.0, 0.0));
    }

    #[test]
    fn the_spread_of_some_runs_is_that_of_the_textbook() {
        let spread = Spread::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        assert_eq!((spread.mean, spread.least, spread.most), (5.0, 2.0, 9.0));
        assert!((spread.deviation - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
        assert_eq!(Spread::of(&[3.0]).deviation, 0.0);
        assert_eq!(Spread::of(&[]), Spread::default());
    }
}
