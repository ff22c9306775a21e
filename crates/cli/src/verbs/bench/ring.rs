//! `fullbore bench ring`: the cost of passing blocks between threads.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args as Arguments;
use fullbore_survey::bench::result::{Kind, Level};
use fullbore_survey::bench::ring::{self, Settings};

use super::result_output::{self, ResultOutput};
use crate::output::Output;
use crate::signals;
use crate::verbs::sending::some_time;

/// Measure the ring: blocks passed between threads, and the time a sleeping thread takes to wake.
///
///   fullbore bench ring
///
/// The rate is that of 4 MiB blocks whose bytes are not touched: it should be far above every other rate. The
/// wake-up times matter: milliseconds mean power saving or a busy machine.
#[derive(Arguments)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Length of each run
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = some_time)]
    time: Duration,
    /// Number of runs
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    #[command(flatten)]
    leave: ResultOutput,
}

/// Longer wake-ups cause a remark.
const SLOW_NS: f64 = 1e6;

/// Runs the benchmark.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    args.leave.try_out()?;
    let stop = signals::stop_handle()?;
    let mut result = result_output::begun(Kind::Ring);
    let began = Instant::now();
    let settings = Settings { runs: args.runs as usize, time: args.time };
    result_output::progress(output, "ring …");
    let stage = ring::measure(&settings, &stop, |run| {
        result_output::progress(output, &format!("ring: run {run} of {}", settings.runs));
    })?;
    result_output::progress(output, "");
    result.seconds = began.elapsed().as_secs_f64();
    result.interrupted = stop.is_requested();
    let slow = stage.as_ref().and_then(|stage| stage.figures.get("wake_p99_ns"));
    if slow.is_some_and(|ns| *ns > SLOW_NS) {
        let text = "one wake-up in a hundred takes longer than a millisecond: the machine is busy, or its \
                    processors fall into deep sleep (C-states)";
        result.note(Level::Warning, text);
    }
    let rate = stage.as_ref().map_or(0.0, |stage| stage.rate.mean);
    result.stages.extend(stage);
    result_output::judge(&mut result, args.leave.require, "the ring", rate);
    result_output::leave(&result, &args.leave, output)
}
