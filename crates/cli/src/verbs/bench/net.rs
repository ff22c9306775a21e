//! `fullbore bench net`: the highest rate of packets without loss.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Args as Arguments;
use fullbore_core::units::{ByteRate, ByteSize};
use fullbore_survey::bench::net::pair::Pair;
use fullbore_survey::bench::net::search::Range;
use fullbore_survey::bench::net::wire::{self, PORT, Remote};
use fullbore_survey::bench::net::{self, Receiver, Settings};
use fullbore_survey::bench::result::{Kind, Target, TargetKind};

use super::result_output::{self, ResultOutput};
use crate::hint::explained;
use crate::output::{self, GOOD, Output};
use crate::signals;
use crate::verbs::sending::some_time;

/// Measure the network: the highest rate without loss, and where packets are lost above it.
///
///   fullbore bench net               over loopback
///   fullbore bench net --namespace   into a network namespace (as root)
///   fullbore bench net --serve       on the receiving host; then on the sender:
///   fullbore bench net host.example --require 16Gbit/s
///
/// The paced generator sends VDIF frames to the ports and the capture thread of a recording, which frees blocks at
/// once. The benchmark finds the rate by bisection and confirms it several times.
#[derive(Arguments)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The receiving host, which runs `fullbore bench net --serve` [default: this one, over loopback]
    #[arg(value_name = "HOST", conflicts_with_all = ["serve", "namespace"])]
    host: Option<String>,
    /// Receive from every host that connects, until Ctrl-C
    #[arg(long, conflicts_with_all = ["namespace", "require", "html", "output"])]
    serve: bool,
    /// Address to listen on; the UDP ports after it are used too
    #[arg(long, value_name = "ADDRESS", default_value_t = SocketAddr::from(([0, 0, 0, 0], PORT)), requires = "serve")]
    listen: SocketAddr,
    /// Serve a single client
    #[arg(long, requires = "serve")]
    once: bool,
    /// Use a separate network namespace: the kernel's whole receive path
    #[arg(long)]
    namespace: bool,
    #[command(flatten)]
    pub stream: StreamArgs,
    #[command(flatten)]
    leave: ResultOutput,
}

/// The streams, and the range of rates.
#[derive(Arguments)]
pub struct StreamArgs {
    /// Streams, each to its own port
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=64))]
    streams: u16,
    /// Bytes of each datagram
    #[arg(long, value_name = "BYTES", default_value_t = 8032)]
    frame: u32,
    /// First rate, of all streams together
    #[arg(long, value_name = "RATE", default_value = "2Gbit/s")]
    from: ByteRate,
    /// Highest rate to try
    #[arg(long, value_name = "RATE", default_value = "400Gbit/s")]
    up_to: ByteRate,
    /// Length of a trial; trials that confirm a rate are twice as long [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = some_time)]
    trial: Option<Duration>,
    /// Smallest step, in percent of the rate
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0)]
    precision: f64,
    /// Trials that confirm the rate found [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    confirm: Option<u32>,
    /// Block memory of the receiver
    #[arg(long, value_name = "SIZE", default_value = "512MiB")]
    buffer: ByteSize,
}

/// The default effort of a search for a rate.
#[derive(Clone, Copy)]
pub enum Effort {
    /// Three trials of two seconds confirm a rate.
    Usual,
    /// One trial of half a second confirms a rate.
    Quick,
}

impl Effort {
    /// The duration of a trial, and the number of confirmations.
    fn trials(self) -> (Duration, u32) {
        match self {
            Effort::Usual => (Duration::from_secs(1), 3),
            Effort::Quick => (Duration::from_millis(250), 1),
        }
    }
}

impl StreamArgs {
    /// The settings from the arguments.
    pub fn settings(&self, effort: Effort) -> anyhow::Result<Settings> {
        let (trial, confirmations) = effort.trials();
        let trial = self.trial.unwrap_or(trial);
        ensure!(
            (0.1..=50.0).contains(&self.precision),
            "--precision is 0.1 to 50 percent, not {}",
            self.precision
        );
        ensure!(
            trial >= Duration::from_millis(50) && trial <= Duration::from_secs(3600),
            "--trial is 50ms to 1h"
        );
        Ok(Settings {
            streams: self.streams,
            frame_bytes: self.frame,
            pool_bytes: self.buffer.0,
            reached: net::REACHED,
            range: Range {
                start: self.from.0 as f64,
                most: self.up_to.0 as f64,
                precision: self.precision / 100.0,
                time: trial,
                confirmations: self.confirm.unwrap_or(confirmations) as usize,
            },
        })
    }
}

/// Runs the benchmark, or serves.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    let stop = signals::stop_handle()?;
    if args.serve {
        wire::serve(args.listen, args.once, &stop, |told| say(output, &told)).map_err(explained)?;
        return Ok(ExitCode::from(GOOD));
    }
    args.leave.try_out()?;
    let settings = args.stream.settings(Effort::Usual)?;
    let mut result = result_output::begun(Kind::Net);
    let began = Instant::now();
    // The namespace must outlive the connection to its server.
    let pair = match args.namespace {
        true => {
            let program = std::env::current_exe().context("finding this program")?;
            Some(Pair::make(&program).map_err(net::Error::from).map_err(explained)?)
        }
        false => None,
    };
    let host = args.host.clone().or(pair.as_ref().map(Pair::address));
    let (mut receiver, way) = match &host {
        None => (Receiver::Loopback, "over loopback".to_owned()),
        Some(host) => {
            let (remote, who) = Remote::call(host).map_err(explained)?;
            let way = match args.namespace {
                true => "through a network namespace".to_owned(),
                false => format!("by {who}"),
            };
            (Receiver::Far(Box::new(remote)), way)
        }
    };
    if let Some(host) = args.host {
        result.targets.push(Target { path: host, kind: TargetKind::Host, ..Target::default() });
    }
    result_output::progress(output, "network …");
    let found = net::measure(&settings, &mut receiver, &way, &stop, |trial| {
        result_output::progress(output, &trial.told());
    })
    .map_err(explained)?;
    result_output::progress(output, "");
    result.seconds = began.elapsed().as_secs_f64();
    result.interrupted = stop.is_requested();
    let rate = found.stage.rate.mean;
    result.stages.push(found.stage);
    found.notes.into_iter().for_each(|note| result.note(note.level, note.text));
    result_output::judge(&mut result, args.leave.require, "the network", rate);
    drop(receiver);
    drop(pair);
    result_output::leave(&result, &args.leave, output)
}

/// Prints an event of a serving host on a line.
fn say(output: Output, told: &str) {
    let line = match output.json {
        true => serde_json::json!({ "event": told }).to_string() + "\n",
        false => format!("{told}\n"),
    };
    // The output may be closed: clients are served all the same.
    output::print_on(&line);
}
