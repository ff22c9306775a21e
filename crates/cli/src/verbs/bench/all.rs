//! `fullbore bench all`: each stage of the path alone, then the path whole.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args as Arguments;
use fullbore_survey::bench::all::{self, Heard, Settings};
use fullbore_survey::bench::result::Kind;
use fullbore_survey::report::{self, WHOLE_PATH};

use super::leave::{self, Leave};
use super::net::StreamArgs;
use crate::hint::explained;
use crate::output::Output;
use crate::signals;
use crate::verbs::sending::duration;

/// Measure each stage of the path alone, then the path whole: the slowest stage has a name.
///
///   fullbore bench all /mnt/disk0 /mnt/disk1 --require 16Gbit/s --html all.html
///
/// Memory, ring, network over loopback and disks have the machine to themselves; then a recording of all of
/// it is tried at rising rates until something is lost. Nothing is left in the directories.
#[derive(Arguments)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// A directory of each disk of a set
    #[arg(required = true, value_name = "DIR")]
    targets: Vec<PathBuf>,
    /// How long each run of memory, ring and disks
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration)]
    time: Duration,
    /// How often those
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    #[command(flatten)]
    stream: StreamArgs,
    #[command(flatten)]
    leave: Leave,
}

/// Measures.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    args.leave.try_out()?;
    let stop = signals::stop_flag()?;
    let mut result = leave::begun(Kind::All);
    let began = Instant::now();
    let settings = Settings {
        targets: args.targets,
        runs: args.runs as usize,
        time: args.time,
        net: args.stream.settings()?,
    };
    let found = all::measure(&settings, &stop, |heard| match heard {
        Heard::Now(what) => leave::progress(output, &format!("{what} …")),
        Heard::Stage(stage) => {
            leave::progress(output, &format!("{}: {}", stage.name, report::spread(&stage.rate)));
        }
        Heard::Trial(trial) => leave::progress(output, &trial.told()),
    })
    .map_err(explained)?;
    leave::progress(output, "");
    result.seconds = began.elapsed().as_secs_f64();
    result.interrupted = stop.load(std::sync::atomic::Ordering::Relaxed);
    (result.stages, result.targets) = (found.stages, found.targets);
    found.notes.into_iter().for_each(|note| result.note(note.level, note.text));
    let whole = result.stages.iter().find(|stage| stage.name == WHOLE_PATH);
    let rate = whole.map_or(0.0, |stage| stage.rate.mean);
    leave::judge(&mut result, args.leave.require, "the path whole", rate);
    leave::leave(&result, &args.leave, output)
}
