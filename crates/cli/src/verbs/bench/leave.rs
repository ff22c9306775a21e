//! What becomes of a result: told, kept, written to files, judged.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args as Arguments;
use fullbore_core::units::{AskedRate, ByteRate};
use fullbore_survey::bench::result::{BenchResult, Kind, Level, Verdict};
use fullbore_survey::bench::{environment, history};
use fullbore_survey::report;

use crate::hint::explained;
use crate::output::{FOUND, GOOD, Output, REFUSED};

/// Where a result goes.
#[derive(Arguments)]
pub struct Leave {
    /// The rate that must be held; exit code 1 says that it is not
    #[arg(long, value_name = "RATE")]
    pub require: Option<AskedRate>,
    /// Write a page with charts that can be read without anything else
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write the result as JSON
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Do not keep it in the history, of which `fullbore bench compare` takes the last two
    #[arg(long)]
    pub no_history: bool,
}

/// A result that has found nothing yet, of this machine.
pub fn begun(kind: Kind) -> BenchResult {
    let mut result = BenchResult::new(kind, environment::Roots::default().environment());
    if !result.environment.optimised {
        let text = "this program was built without optimisation: its rates are too low to judge by";
        result.note(Level::Warning, text);
    }
    result
}

/// Judges by a rate: `what` holds `sustained`. What was ended before it was done is not judged.
pub fn judge(result: &mut BenchResult, required: Option<AskedRate>, what: &str, sustained: f64) {
    let Some(AskedRate { rate: required, in_bits }) = required.filter(|_| !result.interrupted)
    else {
        return;
    };
    let margin = if required.0 > 0 { sustained / required.0 as f64 - 1.0 } else { 0.0 };
    let holds = sustained >= required.0 as f64 && sustained > 0.0;
    let (told, asked) =
        (report::in_unit(sustained, in_bits), report::in_unit(required.0 as f64, in_bits));
    let sentence = match holds {
        true => format!("{what} holds {told}, and {asked} were asked for."),
        false => format!("{what} holds {told} only; {asked} were asked for."),
    };
    let sustained = ByteRate(sustained as u64);
    result.verdict = Some(Verdict { required, in_bits, sustained, holds, margin, sentence });
}

impl Leave {
    /// Refuses what a result could not be left in, before anything is measured.
    pub fn try_out(&self) -> anyhow::Result<()> {
        try_out(self.output.as_deref(), self.html.as_deref())
    }
}

/// Refuses files that cannot be written, before anything is measured.
pub fn try_out(output: Option<&Path>, html: Option<&Path>) -> anyhow::Result<()> {
    [output, html]
        .into_iter()
        .flatten()
        .try_for_each(|path| history::try_out(path).map_err(explained))
}

/// Writes a result, keeps it in the history and tells it. What cannot be written is told nevertheless: to
/// measure it has cost more than anything that can be wrong now.
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

/// Keeps a result in the history, unless there is nothing in it.
pub fn keep_if_measured(result: &BenchResult) {
    if has_figures(result) {
        keep(result);
    }
}

/// What was measured has been told already, so a history that cannot be kept is only worth a word.
fn keep(result: &BenchResult) {
    let kept = history::directory().and_then(|directory| history::keep(&directory, result));
    match kept {
        Ok(path) => eprintln!("kept as {}", path.display()),
        Err(error) => eprintln!("fullbore: not kept: {error}"),
    }
}

/// The same for what is judged by a rate only.
pub fn leave(result: &BenchResult, leave: &Leave, output: Output) -> anyhow::Result<ExitCode> {
    let files = (leave.output.as_deref(), leave.html.as_deref());
    everywhere(result, files, !leave.no_history, output)?;
    if is_without_answer(result) {
        return Ok(ExitCode::from(REFUSED));
    }
    let missed = result.verdict.as_ref().is_some_and(|verdict| !verdict.holds);
    Ok(ExitCode::from(if missed { FOUND } else { GOOD }))
}

/// Whether it was ended before it was done. It says so.
pub fn is_without_answer(result: &BenchResult) -> bool {
    if result.interrupted {
        let what = match has_figures(result) {
            true => "no verdict, for it was ended before it was done",
            false => "nothing was measured",
        };
        eprintln!("fullbore: interrupted: {what}");
    }
    result.interrupted
}

/// Whether there is anything in it that was measured: else it is not worth keeping.
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

/// A line that says what is being measured, for whoever watches.
pub fn progress(output: Output, text: &str) {
    if output.progress() {
        // A terminal that has gone away ends nothing.
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
