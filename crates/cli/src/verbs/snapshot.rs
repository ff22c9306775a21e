//! `fullbore snapshot`: a short part of a stream in a file, also while it is recorded.

use std::fs::OpenOptions;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args as ClapArgs;
use fullbore_replay::position::Position;

use crate::output::Output;
use crate::store_arg::StoreArg;
use crate::verbs::cat;

use crate::verbs::sending::duration;

/// Write a part of a stream to a file, also while it is recorded.
///
/// snapshot reads blocks that are durable, checks each, and waits for those that are not there yet. The recorder
/// does not wait for it.
#[derive(ClapArgs)]
pub struct Args {
    /// The scan: `session_scan`, or `session_scan/stream` if it has several streams.
    #[arg(value_name = "SCAN")]
    scan: String,
    /// The begin: a UTC time, or an offset from the start of the scan (`+2.5s`).
    #[arg(long, value_name = "TIME")]
    at: Position,
    /// The length.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "1s")]
    length: Duration,
    /// The file, which must not exist.
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    store: StoreArg,
}

/// Runs the command.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    let Args { scan, at, length, output: path, store } = args;
    let until = match at {
        Position::Time(time) => {
            Position::Time(time.plus_ns(i64::try_from(length.as_nanos()).unwrap_or(i64::MAX)))
        }
        Position::After(offset) => Position::After(offset.saturating_add(length)),
        Position::Frame(_) => bail!("--at: give a time, such as 2026-11-21T18:00:00 or +2.5s"),
    };
    let file = OpenOptions::new().write(true).create_new(true).open(&path);
    let file = file.with_context(|| format!("making {}", path.display()))?;
    let written = cat::run_into(cat::Args::of_part(scan, at, until, store), output, Some(file));
    if written.is_err() {
        // It has a part at most. What cannot be removed is reported with the error above.
        let _ = std::fs::remove_file(&path);
    }
    written
}
