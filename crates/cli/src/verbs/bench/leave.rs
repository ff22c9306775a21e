//! What becomes of a result: told, kept, written to files, judged.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args as Arguments;
use fullbore_core::units::ByteRate;
use fullbore_survey::bench::result::{BenchResult, Kind, Level, Verdict};
use fullbore_survey::bench::{environment, history};
use fullbore_survey::report;

use crate::hint::explained;
use crate::output::{FOUND, GOOD, Output};

/// Where a result goes.
#[derive(Arguments)]
pub struct Leave {
    /// The rate that must be held; exit code 1 says that it is not
    #[arg(long, value_name = "RATE")]
    pub require: Option<ByteRate>,
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

/// Judges by a rate: `what` holds `sustained`.
pub fn judge(result: &mut BenchResult, required: Option<ByteRate>, what: &str, sustained: f64) {
    let Some(required) = required else { return };
    let margin = if required.0 > 0 { sustained / required.0 as f64 - 1.0 } else { 0.0 };
    let holds = sustained >= required.0 as f64 && sustained > 0.0;
    let (told, asked) = (report::rate(sustained), report::rate(required.0 as f64));
    let sentence = match holds {
        true => format!("{what} holds {told}, and {asked} were asked for."),
        false => format!("{what} holds {told} only; {asked} were asked for."),
    };
    let sustained = ByteRate(sustained as u64);
    result.verdict = Some(Verdict { required, sustained, holds, margin, sentence });
}

/// Writes, keeps and tells a result.
pub fn leave(result: &BenchResult, leave: &Leave, output: Output) -> anyhow::Result<ExitCode> {
    if let Some(path) = &leave.output {
        history::write(path, result).map_err(explained)?;
    }
    if let Some(path) = &leave.html {
        write_page(result, path)?;
    }
    output.tell(result, || told(result))?;
    if !leave.no_history {
        let kept = history::directory().and_then(|place| history::keep(&place, result));
        if let Err(error) = kept {
            // What was measured has been told: that it is not kept is no failure of the benchmark.
            eprintln!("fullbore: {error}");
        }
    }
    let missed = result.verdict.as_ref().is_some_and(|verdict| !verdict.holds);
    Ok(ExitCode::from(if missed { FOUND } else { GOOD }))
}

/// A result as text.
pub fn told(result: &BenchResult) -> String {
    match result.kind {
        Kind::Disk => super::table::text(result),
        Kind::Memory | Kind::Ring | Kind::Net | Kind::All => report::screen(result),
    }
}

/// Writes the page.
pub fn write_page(result: &BenchResult, path: &std::path::Path) -> anyhow::Result<()> {
    std::fs::write(path, report::html(result))
        .with_context(|| format!("writing the report {}", path.display()))
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
