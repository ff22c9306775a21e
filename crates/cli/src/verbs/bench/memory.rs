//! `fullbore bench memory`: the memory performance of this machine.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args as Arguments;
use fullbore_survey::bench::memory::{self, Kernel, Settings, doubling};
use fullbore_survey::bench::result::Kind;
use fullbore_survey::report;

use super::result_output::{self, ResultOutput};
use crate::hint::explained;
use crate::output::Output;
use crate::signals;
use crate::verbs::sending::some_time;

/// Measure memory: copy, CRC32C, making and checking a pattern, on one core and on several.
///
///   fullbore bench memory --require 5GB/s
///
/// The recording path does each of these to every byte. --require judges by the slowest of them on one core.
#[derive(Arguments)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Numbers of threads, one after the other [default: 1, 2, 4 … up to all cores]
    #[arg(long, value_name = "N[,N…]", value_delimiter = ',')]
    threads: Vec<usize>,
    /// Length of each run
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = some_time)]
    time: Duration,
    /// Number of runs of each
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    #[command(flatten)]
    leave: ResultOutput,
}

/// Runs the benchmark.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    args.leave.try_out()?;
    let stop = signals::stop_handle()?;
    let mut result = result_output::begun(Kind::Memory);
    let began = Instant::now();
    let cores = result.environment.cpus as usize;
    let settings = Settings {
        kernels: Kernel::ALL.to_vec(),
        threads: if args.threads.is_empty() { doubling(cores) } else { args.threads },
        runs: args.runs as usize,
        time: args.time,
    };
    result_output::progress(output, "memory …");
    result.stages = memory::measure(&settings, &stop, |stage| {
        let rate = report::spread(&stage.rate);
        result_output::progress(output, &format!("{} on {}: {rate}", stage.name, stage.threads));
    })
    .map_err(explained)?;
    result_output::progress(output, "");
    result.seconds = began.elapsed().as_secs_f64();
    result.interrupted = stop.is_requested();
    let single = result.stages.iter().filter(|stage| stage.threads == 1);
    let slowest = single.min_by(|a, b| a.rate.mean.total_cmp(&b.rate.mean));
    let slowest = slowest.or(report::slowest(&result.stages));
    let (what, rate) = slowest.map_or(("nothing that was measured".into(), 0.0), |stage| {
        (format!("{} on one core", stage.name), stage.rate.mean)
    });
    result_output::judge(&mut result, args.leave.require, &what, rate);
    result_output::leave(&result, &args.leave, output)
}
