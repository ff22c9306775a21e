//! The output of a result: printed, kept in the history, written to files, judged.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args as Arguments;
use fullbore_core::units::{ByteRate, RequestedRate};
use fullbore_survey::bench::result::{BenchResult, Kind, Level, Verdict};
use fullbore_survey::bench::{environment, history};
use fullbore_survey::report;

use crate::hint::explained;
use crate::output::{self, FOUND, GOOD, Output, REFUSED};

/// The destinations of a result.
#[derive(Arguments)]
pub struct ResultOutput {
    /// The rate that must be sustained; else the exit code is 1
    #[arg(long, value_name = "RATE")]
    pub require: Option<RequestedRate>,
    /// Write a self-contained page with charts
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write the result as JSON
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Do not keep the result in the history, which `fullbore bench compare` reads
    #[arg(long)]
    pub no_history: bool,
}

/// An empty result for this machine.
pub fn begun(kind: Kind) -> BenchResult {
    let mut result = BenchResult::new(kind, environment::Roots::default().environment());
    if !result.environment.optimised {
        let text = "this program was built without optimisation: its rates are too low to judge by";
        result.note(Level::Warning, text);
    }
    result
}

/// Adds a verdict: `what` sustains `sustained`. An interrupted result gets none.
pub fn judge(
    result: &mut BenchResult,
    required: Option<RequestedRate>,
    what: &str,
    sustained: f64,
) {
    let Some(RequestedRate { rate: required, in_bits }) = required.filter(|_| !result.interrupted)
    else {
        return;
    };
    let margin = if required.0 > 0 { sustained / required.0 as f64 - 1.0 } else { 0.0 };
    let holds = sustained >= required.0 as f64 && sustained > 0.0;
    let (told, requested) =
        (report::in_unit(sustained, in_bits), report::in_unit(required.0 as f64, in_bits));
    let sentence = match holds {
        true => format!("{what} sustains {told}; {requested} were required."),
        false => format!("{what} sustains only {told}; {requested} were required."),
    };
    let sustained = ByteRate(sustained as u64);
    let not_shown = false;
    result.verdict =
        Some(Verdict { required, in_bits, sustained, holds, not_shown, margin, sentence });
}

impl ResultOutput {
    /// Checks the destinations of a result before the measurement.
    pub fn try_out(&self) -> anyhow::Result<()> {
        try_out(self.output.as_deref(), self.html.as_deref())
    }
}

/// Checks that the files can be written, before the measurement.
pub fn try_out(output: Option<&Path>, html: Option<&Path>) -> anyhow::Result<()> {
    [output, html]
        .into_iter()
        .flatten()
        .try_for_each(|path| history::try_out(path).map_err(explained))
}

/// Writes a result, stores it in the history and prints it. The result is printed even if it cannot be written, because
/// the measurement is expensive.
pub fn everywhere(
    result: &BenchResult,
    (json, html): (Option<&Path>, Option<&Path>),
    in_history: bool,
    output: Output,
) -> anyhow::Result<()> {
    let json = json.map_or(Ok(()), |path| history::write(path, result).map_err(explained));
    let html = html.map_or(Ok(()), |path| write_page(result, path));
    let told = output.tell(result, || told(result));
    if in_history {
        keep_if_measured(result);
    }
    json.and(html).and(told)
}

/// Stores a result in the history, unless it is empty.
pub fn keep_if_measured(result: &BenchResult) {
    if has_figures(result) {
        keep(result);
    }
}

/// The result has been printed already, so a failure to store it is only a warning.
fn keep(result: &BenchResult) {
    let kept = history::directory().and_then(|directory| history::keep(&directory, result));
    match kept {
        Ok(path) => output::say(format_args!("kept as {}", path.display())),
        Err(error) => output::note(format_args!("not kept: {error}")),
    }
}

/// The same for results that are judged by a rate only.
pub fn leave(
    result: &BenchResult,
    leave: &ResultOutput,
    output: Output,
) -> anyhow::Result<ExitCode> {
    let files = (leave.output.as_deref(), leave.html.as_deref());
    everywhere(result, files, !leave.no_history, output)?;
    if is_without_answer(result) {
        return Ok(ExitCode::from(REFUSED));
    }
    let missed = result.verdict.as_ref().is_some_and(|verdict| !verdict.holds);
    Ok(ExitCode::from(if missed { FOUND } else { GOOD }))
}

/// True if the result was interrupted. Prints a message about it.
pub fn is_without_answer(result: &BenchResult) -> bool {
    if result.interrupted {
        let what = match has_figures(result) {
            true => "no verdict, for it was ended before it was done",
            false => "nothing was measured",
        };
        output::note(format_args!("interrupted: {what}"));
    }
    result.interrupted
}

/// True if the result has any measurement and is worth storing.
fn has_figures(result: &BenchResult) -> bool {
    result.stages.iter().any(|stage| stage.rate.mean > 0.0)
        || !result.sweep.is_empty()
        || !result.comparisons.is_empty()
        || result.continuous.as_ref().is_some_and(|run| run.write.bytes > 0)
}

/// A result as text.
pub fn told(result: &BenchResult) -> String {
    match result.kind {
        Kind::Disk => super::table::text(result),
        Kind::Memory | Kind::Ring | Kind::Net | Kind::All => report::screen(result),
    }
}

/// Writes the page.
pub fn write_page(result: &BenchResult, path: &Path) -> anyhow::Result<()> {
    history::write_text(path, &report::html(result)).map_err(explained)
}

/// Prints the current activity on a terminal.
pub fn progress(output: Output, text: &str) {
    if output.progress() {
        // A closed terminal ends nothing.
        use std::io::Write;
        let _ = write!(std::io::stderr(), "\r\x1b[K{text}");
        let _ = std::io::stderr().flush();
    }
}

#[cfg(test)]
mod tests {
    use fullbore_survey::bench::result::{Spread, Stage};

    use super::*;

    #[test]
    fn what_was_interrupted_is_neither_held_nor_missed() {
        let mut result = begun(Kind::Memory);
        assert!(!is_without_answer(&result));
        result.interrupted = true;
        judge(&mut result, Some("1B/s".parse().unwrap()), "the memory", 1e12);
        assert_eq!(result.verdict, None);
        assert!(is_without_answer(&result));
        result.stages.push(Stage {
            name: "copy".into(),
            what: "copied".into(),
            rate: Spread::of(&[1e9]),
            cpu_s_per_gb: None,
            threads: 1,
            figures: Default::default(),
        });
        assert!(is_without_answer(&result), "a part of what was asked for");
        result.interrupted = false;
        judge(&mut result, Some("1B/s".parse().unwrap()), "the memory", 1e12);
        assert!(result.verdict.is_some_and(|verdict| verdict.holds));
    }
}
