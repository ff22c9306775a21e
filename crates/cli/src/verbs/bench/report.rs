//! `fullbore bench report`: prints a result again, on the screen or as a page.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args as Arguments;
use fullbore_survey::bench::history;
use fullbore_survey::bench::result::BenchResult;
use fullbore_survey::report;

use super::result_output;
use crate::hint::explained;
use crate::output::{GOOD, Output};

/// Print a result again: as tables on the screen, or as one page with charts.
///
///   fullbore bench report result.json --html result.html
///   fullbore bench report ssd1.json ssd2.json --html drives.html   side by side
///   fullbore bench report 'SSD 1=mon.json' 'SSD 1=tue.json' 'SSD 2=ssd2.json'
///
/// The page is self-contained: you can mail, print and archive it.
#[derive(Arguments)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Results that a benchmark wrote with --output [default: the last one of the history]. With several, drives are shown
    /// side by side; results of the same target, or the same NAME=, count as runs of one drive and are averaged
    #[arg(value_name = "[NAME=]RESULT")]
    results: Vec<String>,
    /// Write the page here
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Prints the report.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    let results = named(&args.results)?;
    if results.len() > 1 {
        return several(results, args.html.as_deref(), output);
    }
    let result = match results.into_iter().next() {
        Some((_, result)) => result,
        None => {
            let directory = history::directory().map_err(explained)?;
            let mut all = history::list(&directory).map_err(explained)?;
            let last = all.pop().with_context(|| {
                format!("there is no result in the history ({})", directory.display())
            })?;
            history::read(&last).map_err(explained)?
        }
    };
    match &args.html {
        Some(page) => result_output::write_page(&result, page)?,
        None => output.tell(&result, || result_output::told(&result))?,
    }
    Ok(ExitCode::from(GOOD))
}

/// The results of files, each with the name that was typed or that is in the file.
fn named(texts: &[String]) -> anyhow::Result<Vec<(Option<String>, BenchResult)>> {
    let mut all = Vec::new();
    for text in texts {
        // A file name may contain =.
        let (name, path) = match text.split_once('=') {
            Some((name, path)) if !name.is_empty() && !Path::new(text).exists() => {
                (Some(name), path)
            }
            _ => (None, text.as_str()),
        };
        for (set, result) in history::read_any(Path::new(path)).map_err(explained)? {
            let name = match (name, set) {
                (Some(name), Some(set)) => Some(format!("{name} {set}")),
                (Some(name), None) => Some(name.to_owned()),
                (None, set) => set,
            };
            all.push((name, result));
        }
    }
    Ok(all)
}

/// Several results side by side.
fn several(
    results: Vec<(Option<String>, BenchResult)>,
    html: Option<&Path>,
    output: Output,
) -> anyhow::Result<ExitCode> {
    let drives = report::drives(results);
    match html {
        Some(page) => {
            history::write_text(page, &report::html_of_several(&drives)).map_err(explained)?;
        }
        None => {
            let results: Vec<&BenchResult> = drives.iter().flat_map(|it| &it.results).collect();
            output.tell(&results, || report::screen_of_several(&drives))?;
        }
    }
    Ok(ExitCode::from(GOOD))
}
