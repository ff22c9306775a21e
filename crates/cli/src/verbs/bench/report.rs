//! `fullbore bench report`: a result told again, on the screen or as a page.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args as Arguments;
use fullbore_survey::bench::history;

use super::leave;
use crate::hint::explained;
use crate::output::{GOOD, Output};

/// Tell a result again: as tables on the screen, or as one page with charts.
///
///   fullbore bench report result.json --html result.html
///
/// The page is complete in itself: it can be mailed, printed, and read in ten years.
#[derive(Arguments)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// What a benchmark has written with --output [default: the last one of the history]
    #[arg(value_name = "RESULT")]
    result: Option<PathBuf>,
    /// Write the page here
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Tells it.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    let path = match args.result {
        Some(path) => path,
        None => {
            let directory = history::directory().map_err(explained)?;
            let mut all = history::list(&directory).map_err(explained)?;
            all.pop().with_context(|| {
                format!("there is no result in the history ({})", directory.display())
            })?
        }
    };
    let result = history::read(&path).map_err(explained)?;
    match &args.html {
        Some(page) => leave::write_page(&result, page)?,
        None => output.tell(&result, || leave::told(&result))?,
    }
    Ok(ExitCode::from(GOOD))
}
