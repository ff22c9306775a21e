//! `fullbore simulate`: simulated instruments for tests and demonstrations.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::{Args as Arguments, Subcommand};
use fullbore_core::manifest::Format;
use fullbore_core::panda::PandaSource;
use fullbore_core::units::ByteSize;
use fullbore_simulators::panda::{FIELDS, Fault, Plan, Replay, Server, ServerEvent};
use fullbore_store::reader::StoredStream;

use crate::hint::{explained, explained_of};
use crate::output::{GOOD, Output};
use crate::store_arg::StoreArg;
use crate::verbs::scan_arg;

/// Be an instrument that is not there.
#[derive(Arguments, Debug)]
pub struct Args {
    #[command(subcommand)]
    instrument: Instrument,
}

#[derive(Subcommand, Debug)]
enum Instrument {
    Panda(PandaArgs),
}

/// Simulate a PandA: control port, data port, samples of any fields at any rate.
///
/// Any PandA client can use it:
///
///   fullbore simulate panda --rate 1e6 --samples 5e6
///   pandablocks hdf --arm 127.0.0.1 capture-%d.h5
///
/// Every 32-bit word of raw sample i is i, so that a recording can be checked to
/// the last word. Scaled values follow from that (COUNTER2 has scale 0.5, offset 3
/// and mm). Clients change the captured fields through the control port, as on a
/// real PandA.
///
/// Without --rate, the simulator makes samples as fast as readers take them, and
/// none without a reader. With --rate, a reader that falls behind by more than the
/// ring gets `Data overrun`, and unscaled samples of its last frame may be
/// overwritten, as on a real PandA.
///
/// Faults happen once in every acquisition. A fault at a sample beyond --samples
/// is refused:
///
///   --fault overrun@1000000     the ring is overwritten at this sample, before the
///                               reader has it: END says `Data overrun`
///   --fault stall@1000000:500   the server stops within a frame for 500 ms
///   --fault empty@1000000       a legal frame without samples comes first
///   --fault drop                the connection dies between ARM and header
///   --fault die@1000000         the connection dies within this sample
///   --fault rubbish@1000000     rubbish follows the frame with this sample
///   --fault length@1000000      the length field of this frame is wrong
///   --fault count               the end counts samples that were not sent
///   --fault 'end@1000000:DMA data error'   it ends there, for this reason
///
/// The simulator can serve a recording instead of made-up samples: raw or scaled,
/// as the client asks, with its own header, each time it is armed:
///
///   fullbore simulate panda --replay r1234_no0001 --store /data
///   fullbore play r1234_no0001 --to panda://127.0.0.1:8888   at its own rate
#[derive(Arguments, Debug)]
#[command(verbatim_doc_comment)]
struct PandaArgs {
    /// Address of the control port; port 0 takes any free one. Use 0.0.0.0:8888 for clients on other hosts.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8888")]
    control: SocketAddr,
    /// Address of the data port; port 0 takes any free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8889")]
    data: SocketAddr,
    /// Samples per second, for example 1e6. [default: as fast as readers take them]
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// Samples of each acquisition, for example 5e6. [default: until it is disarmed]
    #[arg(long, value_name = "N", value_parser = count)]
    samples: Option<u64>,
    /// Captured fields at the start, each with its capture modes, separated by commas.
    #[arg(long, value_name = "LIST", default_value = FIELDS, hide_default_value = true)]
    fields: String,
    /// Memory for unsent samples, in 128 blocks.
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    ring: ByteSize,
    /// A fault to inject; may be given several times.
    #[arg(long, value_name = "FAULT")]
    fault: Vec<Fault>,
    /// Send everything in pieces of any size, down to single bytes.
    #[arg(long)]
    split: bool,
    /// Seed of the pieces and of the rubbish.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Send the bytes of this recorded stream to every client of the data port.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["rate", "samples", "fault"])]
    serve_dump: Option<PathBuf>,
    /// Send the samples of this scan, SESSION_SCAN or SESSION_SCAN/STREAM, which a PandA was recorded in.
    #[arg(long, value_name = "SCAN", conflicts_with_all = ["serve_dump", "fields"])]
    replay: Option<String>,
    /// With --replay: at the rate that it was recorded at.
    #[arg(long, requires = "replay", conflicts_with = "rate")]
    as_recorded: bool,
    #[command(flatten)]
    store: StoreArg,
}

/// Time between two checks for the end of an acquisition, which comes by the clock.
const LOOK: Duration = Duration::from_millis(50);

/// The largest recorded stream that is served.
const LARGEST_DUMP: u64 = 1 << 30;

/// The default ring of a PandA.
const RING_BYTES: u64 = 256 << 20;

/// Runs until Ctrl-C.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    match args.instrument {
        Instrument::Panda(args) => panda(args, output),
    }
}

fn panda(args: PandaArgs, output: Output) -> anyhow::Result<ExitCode> {
    serve(plan(args)?, output)
}

/// Serves until Ctrl-C.
fn serve(plan: Plan, output: Output) -> anyhow::Result<ExitCode> {
    let stop = crate::signals::stop_handle()?;
    let server = Server::start(plan, move |notice| {
        // A closed output does not stop the server.
        let _ = output.tell(&notice, || told(&notice));
    })
    .map_err(explained)?;
    while !stop.wait(LOOK) {
        server.look();
    }
    Ok(ExitCode::from(GOOD))
}

/// The pace of a replayed recording.
#[derive(Clone, Copy, Debug)]
pub enum Pace {
    /// A multiple of the recorded speed.
    Recorded(f64),
    /// Bytes per second.
    Bytes(u64),
    /// As fast as readers take it.
    FlatOut,
}

/// Plays a recording as the PandA at this endpoint.
pub fn play(
    scan: &str,
    store: &StoreArg,
    to: &str,
    pace: Pace,
    output: Output,
) -> anyhow::Result<ExitCode> {
    let end = PandaSource::parse(to).map_err(|error| explained_of(to, error))?;
    let host: IpAddr = end.host.parse().with_context(|| {
        format!("{to}: a recording is served at an address of this host, such as 127.0.0.1")
    })?;
    let replay = recorded(scan, store)?;
    let rate = match pace {
        Pace::Recorded(factor) => replay.rate().map(|rate| rate * factor),
        Pace::Bytes(bytes) => Some(bytes as f64 / f64::from(replay.sample_bytes().max(1))),
        Pace::FlatOut => None,
    };
    serve(
        Plan {
            control: SocketAddr::new(host, end.control_port),
            data: SocketAddr::new(host, end.data_port),
            fields: FIELDS.to_owned(),
            samples_per_second: rate,
            samples: None,
            ring_bytes: RING_BYTES,
            faults: Vec::new(),
            split: false,
            seed: 1,
            dump: None,
            replay: Some(Arc::new(replay)),
        },
        output,
    )
}

/// The PandA recording of a scan.
fn recorded(scan: &str, store: &StoreArg) -> anyhow::Result<Replay> {
    let (scan, named) = scan_arg::open(&store.members()?, scan)?;
    let of_panda = |stream: &&StoredStream| matches!(stream.format, Format::Panda { .. });
    let pandas: Vec<&str> =
        scan.streams.iter().filter(of_panda).map(|stream| stream.name.as_str()).collect();
    let stream = match (&named, pandas.as_slice()) {
        (Some(name), _) => scan_arg::stream(&scan, name.as_str())?.number,
        (None, [one]) => scan_arg::stream(&scan, one)?.number,
        (None, []) => bail!("{} holds no stream of a PandA", scan.manifest.scan),
        (None, several) => bail!(
            "{0} holds several streams of PandAs\n  name one of them: {0}/{1}",
            scan.manifest.scan,
            several.join(&format!(", {}/", scan.manifest.scan))
        ),
    };
    Replay::new(scan, stream).map_err(explained)
}

fn plan(args: PandaArgs) -> anyhow::Result<Plan> {
    let replay = args.replay.as_deref().map(|scan| recorded(scan, &args.store)).transpose()?;
    let rate = match &replay {
        Some(replay) if args.as_recorded => replay.rate(),
        _ => args.rate,
    };
    let dump = match &args.serve_dump {
        None => None,
        Some(path) => {
            let reading = || format!("reading {}", path.display());
            let bytes = std::fs::metadata(path).with_context(reading)?.len();
            ensure!(bytes <= LARGEST_DUMP, "{}: more than 1 GiB cannot be served", path.display());
            Some(std::fs::read(path).with_context(reading)?)
        }
    };
    Ok(Plan {
        control: args.control,
        data: args.data,
        fields: args.fields,
        samples_per_second: rate,
        samples: args.samples,
        ring_bytes: args.ring.0,
        faults: args.fault,
        split: args.split,
        seed: args.seed,
        dump,
        replay: replay.map(Arc::new),
    })
}

fn told(notice: &ServerEvent) -> String {
    match notice {
        ServerEvent::Listening { control, data } => {
            format!("a PandA that is made up: commands on {control}, data on {data}\n")
        }
        ServerEvent::Begun { number } => format!("acquisition {number} armed\n"),
        ServerEvent::Ended { number, captured, reason } => {
            format!("acquisition {number} ended: {captured} samples, {reason}\n")
        }
        ServerEvent::Reader { number, missed, samples, ending } => {
            format!(
                "  a reader of acquisition {number}: {samples} samples from {missed}, {ending}\n"
            )
        }
    }
}

/// A whole number, also as `5e6`.
fn count(text: &str) -> Result<u64, String> {
    let exact = |number: f64| number.fract() == 0.0 && (0.0..9e15).contains(&number);
    match (text.parse::<u64>(), text.parse::<f64>()) {
        (Ok(number), _) => Ok(number),
        (_, Ok(number)) if exact(number) => Ok(number as u64),
        _ => Err("it is a whole number, such as 5000000 or 5e6".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_may_be_written_short() {
        assert_eq!(
            (count("5000"), count("5e6"), count("1.5e3")),
            (Ok(5000), Ok(5_000_000), Ok(1500))
        );
        for text in ["", "-1", "0.5", "many", "1e300", "nan"] {
            assert!(count(text).is_err(), "{text}");
        }
    }
}
