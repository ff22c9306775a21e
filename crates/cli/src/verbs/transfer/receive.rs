//! `fullbore receive`: takes scans from other sites, or fetches them.

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Args as Arguments;
use fullbore_core::hint;
use fullbore_core::units::{ByteRate, ByteSize};
use fullbore_transfer::connect::{Client, ClientSettings, Event, Fetched, Link, MOST_CONNECTIONS};
use fullbore_transfer::identity::{self, DEFAULT_PORT, Destination};
use fullbore_transfer::server::{Server, ServerEvent, ServerSettings};
use serde::Serialize;

use super::{LinkArgs, ProgressLine, is_about_this_scan};
use crate::hint::explained;
use crate::output::{self, FOUND, GOOD, Output};
use crate::store_arg::StoreArg;
use crate::verbs::sending;

/// Take scans from other sites, or fetch them.
///
///   fullbore receive --listen 0.0.0.0
///
/// lets known sites send scans into this store, and fetch scans from it, until
/// Ctrl-C. `fullbore peers invite` makes a site known. Without --listen, receive
/// listens on this host alone.
///
///   fullbore receive --from fullbore://station r1234_no0001
///
/// fetches a scan from a site that runs receive; --list shows the scans there.
///
/// Each block is checked when it arrives and is durable before it is acknowledged.
/// A scan that arrives is a scan from its first block on; it is sealed when all of it
/// is here. An interrupted transfer continues where it was.
///
/// Exit codes: 0 the scans are complete, or Ctrl-C ended the listening; 1 some scans
/// are not complete; 2 receive could not run.
#[derive(Arguments, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The scans to fetch: a name, or an unambiguous beginning of it.
    #[arg(value_name = "SCAN", requires = "from")]
    scan: Vec<String>,
    #[command(flatten)]
    store: StoreArg,
    /// The address to listen at [default port: 4780].
    #[arg(long, value_name = "ADDRESS[:PORT]", default_value = "127.0.0.1", value_parser = address)]
    listen: SocketAddr,
    /// Exit after this many scans.
    #[arg(long, value_name = "N", conflicts_with = "from")]
    scans: Option<u64>,
    /// Fetch from this site: fullbore://HOST[:PORT], or an invitation.
    #[arg(long, value_name = "SITE", conflicts_with = "listen")]
    from: Option<Destination>,
    /// List the scans of the site.
    #[arg(long, requires = "from", conflicts_with = "scan")]
    list: bool,
    #[command(flatten)]
    link: LinkArgs,
    /// The number of data connections of a transfer [default: as many as raise the rate].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=32), help_heading = "Link")]
    connections: Option<u16>,
    /// Time without progress after which a fetch gives up.
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = sending::duration, help_heading = "Link")]
    patience: Duration,
}

/// `0.0.0.0`, `[::]:4780`: an address with or without a port.
fn address(text: &str) -> Result<SocketAddr, String> {
    let parsed = text.parse::<SocketAddr>().ok();
    let alone =
        || text.trim_matches(['[', ']']).parse().ok().map(|ip: IpAddr| (ip, DEFAULT_PORT).into());
    parsed.or_else(alone).ok_or_else(|| {
        "an IP address of this host, with or without a port: 0.0.0.0, 192.0.2.7:4780, [::]:4780"
            .to_owned()
    })
}

/// Listens, or fetches.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    match args.from.clone() {
        Some(site) => fetch(&args, site, output),
        None => listen(&args, output),
    }
}

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
enum ServerJson<'a> {
    Listening { address: SocketAddr, key: String },
    Connected { peer: &'a str, address: SocketAddr },
    Refused { address: SocketAddr, why: &'a str },
    Received { peer: &'a str, scan: String, bytes: u64 },
    Sent { peer: &'a str, scan: String, bytes: u64 },
    Failed { peer: &'a str, scan: Option<String>, why: &'a str },
}

fn listen(args: &Args, output: Output) -> anyhow::Result<ExitCode> {
    let settings = ServerSettings {
        members: args.store.members()?,
        config: identity::default_directory().map_err(explained)?,
        connections: args.connections.unwrap_or(MOST_CONNECTIONS),
        limits: args.link.limits(),
        link: args.link.settings(),
    };
    let stop = crate::signals::stop_handle()?;
    let line = Mutex::new(ProgressLine::new(output));
    let left = Mutex::new(args.scans);
    let ending = stop.clone();
    let tell = move |event: ServerEvent| {
        let done = matches!(event, ServerEvent::Received { .. } | ServerEvent::Sent { .. });
        show(&event, &mut line.lock().unwrap_or_else(PoisonError::into_inner), output);
        let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
        if let (true, Some(count)) = (done, left.as_mut()) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                ending.stop();
            }
        }
    };
    let server = Server::bind(args.listen, settings, stop, Box::new(tell)).map_err(explained)?;
    let (address, key) = (server.address()?, server.fingerprint().to_string());
    if !output.event(&ServerJson::Listening { address, key: key.clone() }) {
        output::print_on(&format!("listening at {address}, key {key}\n"));
    }
    server.run().map_err(explained)?;
    Ok(ExitCode::from(GOOD))
}

fn show(event: &ServerEvent, line: &mut ProgressLine, output: Output) {
    match event {
        ServerEvent::Receiving { state, .. } => {
            let scan = state.scan.to_string();
            return line.draw(&scan, state.bytes, state.expected, None, &Link::default());
        }
        ServerEvent::Sending { state, .. } => {
            let (scan, progress) = (state.scan.to_string(), &state.progress);
            let (done, all) = (progress.durable_bytes, progress.bytes);
            return line.draw(&scan, done, all, Some(&state.allowance), &Link::default());
        }
        _ => line.clear(),
    }
    if !output.event(&json(event)) {
        output::print_on(&(text(event) + "\n"));
    }
}

fn json(event: &ServerEvent) -> Option<ServerJson<'_>> {
    let scan = |scan: &fullbore_core::name::ScanName| scan.to_string();
    Some(match event {
        ServerEvent::Connected { peer, address } => {
            ServerJson::Connected { peer, address: *address }
        }
        ServerEvent::Refused { address, why } => ServerJson::Refused { address: *address, why },
        ServerEvent::Received { peer, scan: name, bytes } => {
            ServerJson::Received { peer, scan: scan(name), bytes: *bytes }
        }
        ServerEvent::Sent { peer, scan: name, bytes } => {
            ServerJson::Sent { peer, scan: scan(name), bytes: *bytes }
        }
        ServerEvent::Failed { peer, scan: name, why } => {
            ServerJson::Failed { peer, scan: name.as_ref().map(scan), why }
        }
        ServerEvent::Receiving { .. } | ServerEvent::Sending { .. } => return None,
    })
}

fn text(event: &ServerEvent) -> String {
    match event {
        ServerEvent::Connected { peer, address } => format!("{peer} connects from {address}"),
        ServerEvent::Refused { address, why } => format!("{address} is refused: {why}"),
        ServerEvent::Received { peer, scan, bytes } => {
            format!("{scan} from {peer} is complete: {}", ByteSize(*bytes))
        }
        ServerEvent::Sent { peer, scan, bytes } => {
            format!("{scan} is complete at {peer}: {}", ByteSize(*bytes))
        }
        ServerEvent::Failed { peer, scan: Some(scan), why } => {
            format!("{scan} ({peer}) was interrupted: {why}")
        }
        ServerEvent::Failed { peer, scan: None, why } => format!("{peer}: {why}"),
        ServerEvent::Receiving { .. } | ServerEvent::Sending { .. } => String::new(),
    }
}

#[derive(Serialize)]
struct FetchedJson {
    scan: String,
    blocks: u64,
    bytes: u64,
    carried_bytes: u64,
    attempts: u32,
    seconds: f64,
}

fn fetch(args: &Args, site: Destination, output: Output) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(
        args.list || !args.scan.is_empty(),
        "name the scans to fetch\n  --list shows the scans of the site"
    );
    let settings = ClientSettings {
        members: args.store.members()?,
        config: identity::default_directory().map_err(explained)?,
        connections: args.connections,
        limits: args.link.limits(),
        link: args.link.settings(),
        patience: args.patience,
    };
    let stop: Arc<_> = crate::signals::stop_handle()?;
    let client = Client::new(site, settings).map_err(explained)?;
    if args.list {
        let names = client.list().map_err(explained)?;
        output.tell(&names, || names.iter().map(|name| format!("{name}\n")).collect())?;
        return Ok(ExitCode::from(GOOD));
    }
    let mut code = GOOD;
    for scan in &args.scan {
        if stop.is_requested() {
            code = FOUND;
            break;
        }
        let begun = Instant::now();
        let mut line = ProgressLine::new(output);
        let result = client.fetch(scan, &stop, &mut |event| match event {
            Event::Receiving(state, link) => {
                line.draw(&state.scan.to_string(), state.bytes, state.expected, None, link);
            }
            Event::Sending(..) => {}
            Event::Retry { why, pause } => {
                let pause = pause.as_secs_f64();
                line.say(format_args!("fullbore: {scan}: {why}; trying again in {pause:.1} s"));
            }
        });
        drop(line);
        match result {
            Ok(fetched) => tell(&fetched, begun.elapsed().as_secs_f64(), output)?,
            Err(error) if is_about_this_scan(&error) => {
                output::say(format_args!("fullbore: {scan}: {}", hint::explained(&error)));
                code = FOUND;
            }
            Err(error) => return Err(explained(error)),
        }
    }
    Ok(ExitCode::from(code))
}

fn tell(fetched: &Fetched, seconds: f64, output: Output) -> anyhow::Result<()> {
    let json = FetchedJson {
        scan: fetched.scan.to_string(),
        blocks: fetched.sealed.blocks,
        bytes: fetched.sealed.bytes,
        carried_bytes: fetched.carried_bytes,
        attempts: fetched.attempts,
        seconds,
    };
    output.tell(&json, || {
        let rate = ByteRate((json.carried_bytes as f64 / seconds.max(1e-3)) as u64);
        let (bytes, carried) = (ByteSize(json.bytes), ByteSize(json.carried_bytes));
        let scan = &json.scan;
        format!("{scan} is complete: {bytes}, {carried} received in {seconds:.1} s ({rate})\n")
    })
}
