//! `fullbore bench ring`: what it costs to hand blocks from thread to thread.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args as Arguments;
use fullbore_survey::bench::result::{Kind, Level};
use fullbore_survey::bench::ring::{self, Settings};

use super::leave::{self, Leave};
use crate::output::Output;
use crate::signals;
use crate::verbs::sending::duration;

/// Measure the ring: blocks handed from thread to thread, and how long a sleeping thread takes to wake.
///
///   fullbore bench ring
///
/// The rate is that of blocks of 4 MiB that nobody touches: it is to be far above everything else. What
/// counts are the wake-ups: milliseconds there mean power saving or a busy machine.
#[derive(Arguments)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// How long each run
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    time: Duration,
    /// How often
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    #[command(flatten)]
    leave: Leave,
}

/// Wake-ups that take longer are worth a word.
const SLOW_NS: f64 = 1e6;

/// Measures.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    args.leave.try_out()?;
    let stop = signals::stop_flag()?;
    let mut result = leave::begun(Kind::Ring);
    let began = Instant::now();
    let settings = Settings { runs: args.runs as usize, time: args.time };
    leave::progress(output, "ring …");
    let stage = ring::measure(&settings, &stop, |run| {
        leave::progress(output, &format!("ring: run {run} of {}", settings.runs));
    })?;
    leave::progress(output, "");
    result.seconds = began.elapsed().as_secs_f64();
    result.interrupted = stop.load(std::sync::atomic::Ordering::Relaxed);
    let slow = stage.as_ref().and_then(|stage| stage.figures.get("wake_p99_ns"));
    if slow.is_some_and(|ns| *ns > SLOW_NS) {
        let text = "one wake-up in a hundred takes longer than a millisecond: the machine is busy, or its \
                    processors fall into deep sleep (C-states)";
        result.note(Level::Warning, text);
    }
    let rate = stage.as_ref().map_or(0.0, |stage| stage.rate.mean);
    result.stages.extend(stage);
    leave::judge(&mut result, args.leave.require, "the ring", rate);
    leave::leave(&result, &args.leave, output)
}
