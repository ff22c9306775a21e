//! `fullbore bench memory`: what the memory of this machine carries.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args as Arguments;
use fullbore_survey::bench::memory::{self, Kernel, Settings, doubling};
use fullbore_survey::bench::result::Kind;
use fullbore_survey::report;

use super::leave::{self, Leave};
use crate::hint::explained;
use crate::output::Output;
use crate::signals;
use crate::verbs::sending::duration;

/// Measure memory: copy, CRC32C, a pattern made and checked, on one core and over several.
///
///   fullbore bench memory --require 5GB/s
///
/// Each is what the path does to every byte it carries. --require judges by the slowest of them on one core.
#[derive(Arguments)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Numbers of threads, one after the other [default: 1, 2, 4 … up to all cores]
    #[arg(long, value_name = "N[,N…]", value_delimiter = ',')]
    threads: Vec<usize>,
    /// How long each run
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = duration)]
    time: Duration,
    /// How often each
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    #[command(flatten)]
    leave: Leave,
}

/// Measures.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    args.leave.try_out()?;
    let stop = signals::stop_flag()?;
    let mut result = leave::begun(Kind::Memory);
    let began = Instant::now();
    let cores = result.environment.cpus as usize;
    let settings = Settings {
        kernels: Kernel::ALL.to_vec(),
        threads: if args.threads.is_empty() { doubling(cores) } else { args.threads },
        runs: args.runs as usize,
        time: args.time,
    };
    leave::progress(output, "memory …");
    result.stages = memory::measure(&settings, &stop, |stage| {
        let rate = report::spread(&stage.rate);
        leave::progress(output, &format!("{} on {}: {rate}", stage.name, stage.threads));
    })
    .map_err(explained)?;
    leave::progress(output, "");
    result.seconds = began.elapsed().as_secs_f64();
    result.interrupted = stop.load(std::sync::atomic::Ordering::Relaxed);
    let single = result.stages.iter().filter(|stage| stage.threads == 1);
    let slowest = single.min_by(|a, b| a.rate.mean.total_cmp(&b.rate.mean));
    let slowest = slowest.or(report::slowest(&result.stages));
    let (what, rate) = slowest.map_or(("nothing that was measured".into(), 0.0), |stage| {
        (format!("{} on one core", stage.name), stage.rate.mean)
    });
    leave::judge(&mut result, args.leave.require, &what, rate);
    leave::leave(&result, &args.leave, output)
}
