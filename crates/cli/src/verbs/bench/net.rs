//! `fullbore bench net`: the highest rate at which packets are received without loss.

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

use super::leave::{self, Leave};
use crate::hint::explained;
use crate::output::{GOOD, Output};
use crate::signals;
use crate::verbs::sending::duration;

/// Measure the network: the highest rate that is received without loss, and where packets are lost above it.
///
///   fullbore bench net               over loopback
///   fullbore bench net --namespace   into a network namespace (as root)
///   fullbore bench net --serve       on the receiving host; then on the sender:
///   fullbore bench net host.example --require 16Gbit/s
///
/// The paced generator sends VDIF frames to the ports and the capture thread of a recording, behind which
/// blocks come back at once. The rate is found by halving steps and confirmed several times.
#[derive(Arguments)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The receiving host, where `fullbore bench net --serve` runs [default: this one, over loopback]
    #[arg(value_name = "HOST", conflicts_with_all = ["serve", "namespace"])]
    host: Option<String>,
    /// Receive from every host that connects, until Ctrl-C
    #[arg(long, conflicts_with_all = ["namespace", "require", "html", "output"])]
    serve: bool,
    /// Where to listen; UDP ports behind it are used too
    #[arg(long, value_name = "ADDRESS", default_value_t = SocketAddr::from(([0, 0, 0, 0], PORT)), requires = "serve")]
    listen: SocketAddr,
    /// Serve one caller only
    #[arg(long, requires = "serve")]
    once: bool,
    /// Through a network namespace of its own: the kernel's whole receive path
    #[arg(long)]
    namespace: bool,
    #[command(flatten)]
    pub stream: StreamArgs,
    #[command(flatten)]
    leave: Leave,
}

/// What is sent, and where to look for the rate.
#[derive(Arguments)]
pub struct StreamArgs {
    /// Streams, each to a port of its own
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=64))]
    streams: u16,
    /// Bytes of each datagram
    #[arg(long, value_name = "BYTES", default_value_t = 8032)]
    frame: u32,
    /// The rate of all streams together to begin with
    #[arg(long, value_name = "RATE", default_value = "2Gbit/s")]
    from: ByteRate,
    /// Try no rate above this
    #[arg(long, value_name = "RATE", default_value = "400Gbit/s")]
    up_to: ByteRate,
    /// How long a trial; those that confirm a rate are twice as long
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    trial: Duration,
    /// Steps end when they are this small, in percent of the rate
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0)]
    precision: f64,
    /// Trials that confirm the rate found
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    confirm: u32,
    /// Block memory of the receiver
    #[arg(long, value_name = "SIZE", default_value = "512MiB")]
    buffer: ByteSize,
}

impl StreamArgs {
    /// What was meant.
    pub fn settings(&self) -> anyhow::Result<Settings> {
        ensure!(
            (0.1..=50.0).contains(&self.precision),
            "--precision is 0.1 to 50 percent, not {}",
            self.precision
        );
        ensure!(
            self.trial >= Duration::from_millis(50) && self.trial <= Duration::from_secs(3600),
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
                time: self.trial,
                confirmations: self.confirm as usize,
            },
        })
    }
}

/// Measures, or serves.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    let stop = signals::stop_flag()?;
    if args.serve {
        wire::serve(args.listen, args.once, &stop, |told| say(output, &told)).map_err(explained)?;
        return Ok(ExitCode::from(GOOD));
    }
    args.leave.try_out()?;
    let settings = args.stream.settings()?;
    let mut result = leave::begun(Kind::Net);
    let began = Instant::now();
    // The namespace must outlive the conversation with whoever is in it.
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
    leave::progress(output, "network …");
    let found = net::measure(&settings, &mut receiver, &way, &stop, |trial| {
        leave::progress(output, &trial.told());
    })
    .map_err(explained)?;
    leave::progress(output, "");
    result.seconds = began.elapsed().as_secs_f64();
    result.interrupted = stop.load(std::sync::atomic::Ordering::Relaxed);
    let rate = found.stage.rate.mean;
    result.stages.push(found.stage);
    found.notes.into_iter().for_each(|note| result.note(note.level, note.text));
    leave::judge(&mut result, args.leave.require, "the network", rate);
    drop(receiver);
    drop(pair);
    leave::leave(&result, &args.leave, output)
}

/// What a serving host has to say: a line each.
fn say(output: Output, told: &str) {
    use std::io::Write;
    let line = match output.json {
        true => serde_json::json!({ "event": told }).to_string(),
        false => told.to_owned(),
    };
    // Nobody may listen any more: callers are served nevertheless.
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}
