//! `fullbore bench link`: the rate to another site, before anything is sent.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args as Arguments;
use fullbore_core::units::{ByteRate, ByteSize};
use fullbore_store::catalogue;
use fullbore_transfer::channel::{LinkSettings, Path, WAN};
use fullbore_transfer::connect::{
    Client, ClientSettings, FIRST_ON_WAN, LinkRate, MOST_CONNECTIONS,
};
use fullbore_transfer::governor::Limits;
use fullbore_transfer::identity::{self, Destination};
use serde::Serialize;

use crate::hint::explained;
use crate::output::{FOUND, GOOD, Output};
use crate::store_arg::StoreArg;
use crate::verbs::sending;

/// Measure the link to another site, and predict how long a transfer takes.
///
///   fullbore bench link fullbore://correlator --size 20TB
///
/// The other site runs `fullbore receive`, which discards what the benchmark sends.
/// It measures the rate, the round trip and the share of segments that TCP sent
/// again, with 1, 2, 4, 8 … connections, until more of them do not help. On a WAN it
/// also measures with BBR, which transfers take where losses hold CUBIC down. Nothing
/// is read from a disk and nothing is written: `bench disk` measures the disks.
///
/// The exit code is 1 if the rate is below --require.
#[derive(Arguments)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The other site: fullbore://HOST[:PORT], or an invitation.
    #[arg(value_name = "DESTINATION")]
    destination: Destination,
    /// The time of each measurement.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = sending::some_time)]
    time: Duration,
    /// Measure with these numbers of connections, separated by commas.
    #[arg(long, value_name = "N[,N…]", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=32))]
    connections: Vec<u16>,
    /// Congestion control of the connections.
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Predict the time for this many bytes.
    #[arg(long, value_name = "SIZE", conflicts_with = "session")]
    size: Option<ByteSize>,
    /// Predict the time for all scans of this session of the store.
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    /// The rate that is needed.
    #[arg(long, value_name = "RATE")]
    require: Option<ByteRate>,
    #[command(flatten)]
    store: StoreArg,
}

#[derive(Serialize)]
struct LinkJson {
    host: String,
    measurements: Vec<LinkRate>,
    best_rate: u64,
    best_connections: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    predicted_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sufficient: Option<bool>,
}

/// A further measurement must be better by this factor to be followed by another.
const BETTER: f64 = 1.05;

/// Runs the benchmark.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    let bytes = bytes(&args)?;
    let host = args.destination.address.clone();
    let settings = ClientSettings {
        members: Vec::new(),
        config: identity::default_directory().map_err(explained)?,
        connections: None,
        limits: Limits::default(),
        link: LinkSettings { congestion: args.congestion.clone(), rate: None },
        patience: Duration::ZERO,
    };
    let client = Client::new(args.destination, settings).map_err(explained)?;
    let mut measurements = measure(&client, &args.connections, args.time)?;
    if args.congestion.is_none() && args.connections.is_empty() && measurements[0].round_trip > WAN
    {
        measurements.push(measure_lossy(&client, args.time)?);
    }
    let best = measurements.iter().max_by_key(|it| it.rate).expect("one is measured");
    let (best_rate, best_connections) = (best.rate, best.connections);
    let sufficient = args.require.map(|rate| best_rate >= rate.0);
    let predicted_seconds = bytes.map(|bytes| bytes as f64 / best_rate.max(1) as f64);
    let json = LinkJson {
        host,
        measurements,
        best_rate,
        best_connections,
        bytes,
        predicted_seconds,
        sufficient,
    };
    output.tell(&json, || text(&json))?;
    Ok(ExitCode::from(if sufficient == Some(false) { FOUND } else { GOOD }))
}

/// The size to predict for.
fn bytes(args: &Args) -> anyhow::Result<Option<u64>> {
    let Some(session) = &args.session else { return Ok(args.size.map(|size| size.0)) };
    let listed = catalogue::list(&args.store.members()?).map_err(explained)?;
    let of_session = |name: &str| name.split_once('_').is_some_and(|(it, _)| it == session);
    let entries = listed.entries.iter().filter(|entry| of_session(&entry.name));
    let bytes = entries.map(|entry| entry.bytes).sum();
    anyhow::ensure!(bytes > 0, "the store has no data of session {session}");
    Ok(Some(bytes))
}

/// Measures with the numbers given, or with more and more connections until they do not help.
fn measure(client: &Client, chosen: &[u16], time: Duration) -> anyhow::Result<Vec<LinkRate>> {
    let mut measurements: Vec<LinkRate> = Vec::new();
    let doubled = std::iter::successors(Some(1), |it| Some(it * 2));
    let numbers: Vec<u16> = match chosen.is_empty() {
        true => doubled.take_while(|it| *it <= MOST_CONNECTIONS).collect(),
        false => chosen.to_vec(),
    };
    let path = Path::default();
    for number in numbers {
        let measured = client.measure(number, time, &path).map_err(explained)?;
        let before = measurements.iter().map(|it| it.rate).max().unwrap_or(0);
        let helps = measured.rate as f64 > before as f64 * BETTER;
        measurements.push(measured);
        if chosen.is_empty() && !helps {
            break;
        }
    }
    Ok(measurements)
}

/// Measures as a transfer sends that is held down by losses.
fn measure_lossy(client: &Client, time: Duration) -> anyhow::Result<LinkRate> {
    let path = Path::default();
    path.set_lossy();
    client.measure(FIRST_ON_WAN, time, &path).map_err(explained)
}

fn text(link: &LinkJson) -> String {
    let mut text =
        String::from("connections          rate  round trip  sent again  congestion control\n");
    for it in &link.measurements {
        let (rate, ms) = (ByteRate(it.rate).to_string(), it.round_trip.as_secs_f64() * 1e3);
        let share = it.resent_share * 100.0;
        text += &format!(
            "{:>11}  {rate:>12}  {ms:>7.1} ms  {share:>8.3} %  {}\n",
            it.connections, it.congestion
        );
    }
    text += &format!(
        "{}: {} with {} connections\n",
        link.host,
        ByteRate(link.best_rate),
        link.best_connections
    );
    if let (Some(bytes), Some(seconds)) = (link.bytes, link.predicted_seconds) {
        let time = humantime::format_duration(Duration::from_secs(seconds.round() as u64));
        text += &format!("{} take {time}\n", ByteSize(bytes));
    }
    if link.sufficient == Some(false) {
        text += "NOT SUFFICIENT: the rate is below --require\n";
    }
    text
}
