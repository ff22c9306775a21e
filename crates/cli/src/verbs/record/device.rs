//! `fullbore record --to device:…`: what was typed for a drive without a file system.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::ensure;
use fullbore_core::device::DeviceEnd;
use fullbore_core::pattern::PatternSource;
use fullbore_engine::clock::Clock;

use super::{Args, check_limits, parameters_of};
use crate::output::Output;
use crate::verbs::device::{Recording, record};

/// What is said of a device that is recorded onto.
#[derive(clap::Args, Clone)]
pub(super) struct Options {
    /// The very name of a device that may be overwritten, though it carries something; once for each such device
    #[arg(long, value_name = "DEVICE", requires = "to")]
    overwrite: Vec<PathBuf>,
    /// Onto a device: take and drop what the source still has after the last chunk, or after a stop.
    #[arg(long, requires = "to")]
    flush: bool,
}

/// Records one stream onto a device, or one onto each of several.
pub(super) fn run(args: Args, to: Vec<String>, output: Output) -> anyhow::Result<ExitCode> {
    check_limits(&args)?;
    ensure!(args.capture_threads.is_none(), "--capture-threads: a device takes one stream");
    ensure!(args.scans == 1, "--scans is for a store: a device takes one scan at a time");
    let now = Clock::new().now();
    let left =
        args.until.map(|until| Duration::from_nanos(until.since(now).max(0).cast_unsigned()));
    ensure!(left != Some(Duration::ZERO), "--until has passed");
    let typed = Recording {
        to,
        sources: args.source,
        name: (args.session, args.scan),
        overwrite: args.device.overwrite,
        flush: args.device.flush,
        duration: [args.duration, left].into_iter().flatten().min(),
        bytes: args.bytes,
        buffer: args.buffer,
        sync: args.sync,
        cpus: args.cpus,
        quiet: args.quiet,
    };
    record(typed, output)
}

/// What may follow the `?` of a device and of a pattern, for the help.
pub(super) fn parameters() -> String {
    let device = parameters_of("device:", DeviceEnd::PARAMETERS);
    device + "\n" + &parameters_of("pattern:", PatternSource::PARAMETERS)
}

/// A store that was typed. One of the environment is for those recordings that go into a store.
pub(super) fn refuse_store(args: &Args) -> anyhow::Result<()> {
    let typed = !args.store.store.is_empty();
    ensure!(!typed, "--store cannot be used with --to: a recording goes to one of them");
    Ok(())
}

/// Options that a container does not know.
pub(super) fn refuse_options(args: &Args) -> anyhow::Result<()> {
    let typed = [
        ("--sync", args.sync.is_some()),
        ("--overwrite", !args.device.overwrite.is_empty()),
        ("--flush", args.device.flush),
    ];
    match typed.into_iter().find(|(_, typed)| *typed) {
        Some((option, _)) => anyhow::bail!("{option} cannot be used with a container as --to"),
        None => Ok(()),
    }
}
