//! `fullbore bench all`: each stage of the path alone, then the whole path.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args as Arguments;
use fullbore_survey::bench::all::{self, Heard, Settings};
use fullbore_survey::bench::result::Kind;
use fullbore_survey::report::{self, WHOLE_PATH};

use super::net::{Effort, StreamArgs};
use super::result_output::{self, ResultOutput};
use crate::hint::explained;
use crate::output::Output;
use crate::signals;
use crate::verbs::sending::some_time;

/// Measure each stage of the path alone, then the whole path, and name the slowest stage.
///
///   fullbore bench all /mnt/disk0 /mnt/disk1 --require 16Gbit/s --html all.html
///   fullbore bench all /mnt/disk0 --quick
///
/// It measures memory, ring, network over loopback and disks one at a time. Then it records over the whole path at
/// rising rates until data is lost. It leaves nothing in the directories.
#[derive(Arguments)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// A directory on each disk of a set
    #[arg(required = true, value_name = "DIR")]
    targets: Vec<PathBuf>,
    /// One short run of each stage, trials of 250 ms, and one trial that confirms a rate
    #[arg(long)]
    quick: bool,
    /// Length of each run of memory, ring and disks [default: 2s, with --quick 300ms]
    #[arg(long, value_name = "TIME", value_parser = some_time)]
    time: Option<Duration>,
    /// Number of these runs [default: 3, with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: Option<u32>,
    #[command(flatten)]
    stream: StreamArgs,
    #[command(flatten)]
    leave: ResultOutput,
}

/// Runs the benchmark.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    args.leave.try_out()?;
    let stop = signals::stop_handle()?;
    let mut result = result_output::begun(Kind::All);
    let began = Instant::now();
    let settings = Settings {
        targets: args.targets,
        runs: args.runs.unwrap_or(if args.quick { 1 } else { 3 }) as usize,
        time: args.time.unwrap_or(Duration::from_millis(if args.quick { 300 } else { 2000 })),
        net: args.stream.settings(if args.quick { Effort::Quick } else { Effort::Usual })?,
    };
    let found = all::measure(&settings, &stop, |heard| match heard {
        Heard::Now(what) => result_output::progress(output, &format!("{what} …")),
        Heard::Stage(stage) => {
            result_output::progress(
                output,
                &format!("{}: {}", stage.name, report::spread(&stage.rate)),
            );
        }
        Heard::Trial(trial) => result_output::progress(output, &trial.told()),
    })
    .map_err(explained)?;
    result_output::progress(output, "");
    result.seconds = began.elapsed().as_secs_f64();
    result.interrupted = stop.is_requested();
    (result.stages, result.targets) = (found.stages, found.targets);
    found.notes.into_iter().for_each(|note| result.note(note.level, note.text));
    let whole = result.stages.iter().find(|stage| stage.name == WHOLE_PATH);
    let rate = whole.map_or(0.0, |stage| stage.rate.mean);
    result_output::judge(&mut result, args.leave.require, "the path whole", rate);
    result_output::leave(&result, &args.leave, output)
}
