//! `fullbore receive`: takes scans from other sites, or fetches them from sites and object stores.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Args as Arguments;
use fullbore_core::hint;
use fullbore_core::name::ScanName;
use fullbore_core::units::{ByteRate, ByteSize};
use fullbore_etransfer::server::Server as EtransferServer;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_recording::transfers::events::ListenerEvent;
use fullbore_transfer::connect::{Client, ClientSettings, Event, Fetched, Link, MOST_CONNECTIONS};
use fullbore_transfer::files::AllowList;
use fullbore_transfer::governor::{Allowance, Governor};
use fullbore_transfer::identity::{self, DEFAULT_PORT, Destination};
use fullbore_transfer::objects::Address;
use fullbore_transfer::server::{Server, ServerEvent, ServerSettings};
use fullbore_tsunami::server::Server as TsunamiServer;
use serde::Serialize;

use super::objects::{self, Target};
use super::{LinkArgs, ProgressLine, etransfer, is_about_this_scan, tsunami};
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
/// fetches a scan from a site that runs receive; --list shows the scans there. The
/// name of a session fetches all of its scans.
///
///   fullbore receive --from s3://bucket/prefix r1234_no0001
///
/// fetches a copy from an object store.
///
///   fullbore receive --tsunami 0.0.0.0:46224 --allow 192.0.2.0/24
///   fullbore receive --from tsunami://station NAME --to DIR
///
/// offers the sealed scans as files to the program tsunami, or fetches files from
/// tsunamid. That protocol has no encryption, no checksums, and no resume.
///
///   fullbore receive --etransfer 0.0.0.0:4004 --allow 192.0.2.0/24 --incoming DIR
///   fullbore receive --from etransfer://station/data/ NAME --to DIR
///
/// offers the sealed scans to the program etc, and takes files from it; or fetches
/// files from etd. That protocol resumes, but has no encryption and no checksums.
///
/// Each block is checked when it arrives and is durable before it is acknowledged.
/// A scan that arrives is a scan from its first block on; it is sealed when all of it
/// is here. An interrupted transfer continues where it was.
///
/// While it listens, a line on standard output says who connects, which scan begins,
/// which is complete, and who is refused and why; with --json, the same as events.
///
/// Exit codes: 0 the scans are complete, or Ctrl-C ended the listening; 1 some scans
/// are not complete, also after Ctrl-C; 2 receive could not run.
#[derive(Arguments, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The scans to fetch: a name, or an unambiguous beginning of it; or a session, for all of its scans. From tsunami:// and etransfer://, the names of files.
    #[arg(value_name = "SCAN", requires = "from")]
    scan: Vec<String>,
    #[command(flatten)]
    store: StoreArg,
    /// The address to listen at [default: 127.0.0.1:4780, or not at all with --tsunami or --etransfer].
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = address)]
    listen: Option<SocketAddr>,
    /// Exit after this many scans.
    #[arg(long, value_name = "N", conflicts_with = "from")]
    scans: Option<u64>,
    /// Fetch from this site: fullbore://HOST[:PORT], an invitation, tsunami://HOST[:PORT], or
    /// etransfer://HOST[:PORT]/DIRECTORY/; or from an object store: s3://BUCKET/PREFIX.
    #[arg(long, value_name = "SITE", conflicts_with = "listen")]
    from: Option<Origin>,
    /// List the scans of the site or the object store. With etransfer://HOST/PATTERN, list the files that match.
    #[arg(long, requires = "from", conflicts_with = "scan")]
    list: bool,
    /// The directory for files from tsunami:// or etransfer://.
    #[arg(long, value_name = "DIR", requires = "from")]
    to: Option<PathBuf>,
    /// Offer the sealed scans to programs that speak Tsunami, at this address.
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        conflicts_with = "from",
        help_heading = "Other protocols"
    )]
    tsunami: Option<SocketAddr>,
    /// Offer the sealed scans to programs that speak etransfer, at this address.
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        conflicts_with = "from",
        help_heading = "Other protocols"
    )]
    etransfer: Option<SocketAddr>,
    /// Take files that programs send by etransfer, into this directory.
    #[arg(long, value_name = "DIR", requires = "etransfer", help_heading = "Other protocols")]
    incoming: Option<PathBuf>,
    /// The networks that may connect with another protocol; needed unless it listens on this host alone.
    #[arg(long, value_name = "CIDR[,CIDR…]", help_heading = "Other protocols")]
    allow: Option<AllowList>,
    /// The file with the secret of Tsunami's handshake [default: the secret that everybody knows].
    #[arg(long, value_name = "FILE", help_heading = "Other protocols")]
    tsunami_secret_file: Option<PathBuf>,
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
        Some(Origin::Scans(target)) => {
            anyhow::ensure!(
                args.to.is_none(),
                "--to is for files from tsunami:// and etransfer://\n  scans go into the store: --store"
            );
            match target {
                Target::Site(site) => fetch(&args, site, output),
                Target::Objects(address) => fetch_copies(&args, address, output),
                Target::Etransfer(_) => unreachable!("it is an origin of its own"),
            }
        }
        Some(Origin::Etransfer(place)) if args.list => {
            etransfer::list(&place, args.patience, output)
        }
        Some(Origin::Etransfer(place)) => {
            let wishes = etransfer::Wishes { limits: args.link.limits(), patience: args.patience };
            etransfer::fetch(&place, &args.scan, args.to.as_deref(), wishes, output)
        }
        Some(Origin::Tsunami(host)) => tsunami::fetch(&wanted(&args), &host, output),
        None => listen(&args, output),
    }
}

/// Where to fetch from.
#[derive(Clone, Debug)]
enum Origin {
    Scans(Target),
    Tsunami(String),
    Etransfer(etransfer::Place),
}

impl FromStr for Origin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with(etransfer::Place::SCHEME) {
            return text.parse().map(Self::Etransfer);
        }
        match text.strip_prefix("tsunami://") {
            Some(host) => Ok(Self::Tsunami(host.trim_end_matches('/').to_owned())),
            None => text.parse().map(Self::Scans),
        }
    }
}

fn fetch_copies(args: &Args, address: Address, output: Output) -> anyhow::Result<ExitCode> {
    let receiving =
        objects::Receiving { address, limits: args.link.limits(), patience: args.patience };
    if args.list {
        return receiving.list(output);
    }
    must_name_scans(args)?;
    receiving.receive(&args.store.members()?, &args.scan, output)
}

fn wanted(args: &Args) -> tsunami::Wanted<'_> {
    tsunami::Wanted {
        names: &args.scan,
        list: args.list,
        to: args.to.as_deref(),
        secret: args.tsunami_secret_file.as_deref(),
        rate: args.link.rate,
    }
}

fn listen(args: &Args, output: Output) -> anyhow::Result<ExitCode> {
    let members = args.store.members()?;
    let offers = Offers::new(args, &members)?;
    let stop = crate::signals::stop_handle()?;
    if offers.any() && args.listen.is_none() {
        let governor = Arc::new(Governor::start_on(args.link.limits(), &members));
        let beside = offers.start(&governor, &stop, output)?;
        std::thread::scope(|scope| beside.run(scope));
        return Ok(ExitCode::from(GOOD));
    }
    let settings = ServerSettings {
        members,
        config: identity::default_directory().map_err(explained)?,
        connections: args.connections.unwrap_or(MOST_CONNECTIONS),
        limits: args.link.limits(),
        link: args.link.settings(),
    };
    let line = Mutex::new(ProgressLine::on_terminal(output));
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
    let here = args.listen.unwrap_or_else(|| ([127, 0, 0, 1], DEFAULT_PORT).into());
    let server = Server::bind(here, settings, stop.clone(), Box::new(tell)).map_err(explained)?;
    let (address, key) = (server.address()?, server.fingerprint().to_string());
    print(&ListenerEvent::Listening { address, key }, output);
    let beside = offers.start(&server.governor(), &stop, output)?;
    std::thread::scope(|scope| {
        beside.run(scope);
        server.run().map_err(explained)
    })?;
    Ok(ExitCode::from(GOOD))
}

/// The other protocols that were asked for.
struct Offers {
    tsunami: Option<tsunami::Offer>,
    etransfer: Option<etransfer::Offer>,
}

/// Their servers.
struct Beside {
    tsunami: Option<Arc<TsunamiServer>>,
    etransfer: Option<Arc<EtransferServer>>,
}

impl Offers {
    fn new(args: &Args, members: &[PathBuf]) -> anyhow::Result<Self> {
        let allow = args.allow.as_ref();
        let secret = args.tsunami_secret_file.as_deref();
        let tsunami = args.tsunami.map(|it| tsunami::Offer::new(it, allow, secret, members.into()));
        let incoming = args.incoming.as_deref();
        let etransfer =
            args.etransfer.map(|it| etransfer::Offer::new(it, allow, incoming, members.into()));
        Ok(Self { tsunami: tsunami.transpose()?, etransfer: etransfer.transpose()? })
    }

    fn any(&self) -> bool {
        self.tsunami.is_some() || self.etransfer.is_some()
    }

    fn start(
        &self,
        governor: &Arc<Governor>,
        stop: &Arc<StopHandle>,
        output: Output,
    ) -> anyhow::Result<Beside> {
        let common = || (governor.clone(), stop.clone());
        let tsunami = self.tsunami.as_ref().map(|it| {
            let (governor, stop) = common();
            it.start(governor, stop, output)
        });
        let etransfer = self.etransfer.as_ref().map(|it| {
            let (governor, stop) = common();
            it.start(governor, stop, output)
        });
        Ok(Beside { tsunami: tsunami.transpose()?, etransfer: etransfer.transpose()? })
    }
}

impl Beside {
    /// Serves, each in a thread of its own.
    fn run<'a>(&'a self, scope: &'a std::thread::Scope<'a, '_>) {
        if let Some(server) = &self.tsunami {
            scope.spawn(|| server.run());
        }
        if let Some(server) = &self.etransfer {
            scope.spawn(|| server.run());
        }
    }
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
    if let Some(event) = ListenerEvent::of(event) {
        print(&event, output);
    }
}

fn print(event: &ListenerEvent, output: Output) {
    if !output.event(event) {
        output::print_on(&(event.text() + "\n"));
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

fn must_name_scans(args: &Args) -> anyhow::Result<()> {
    anyhow::ensure!(
        args.list || !args.scan.is_empty(),
        "name the scans to fetch\n  --list shows the scans of the site"
    );
    Ok(())
}

fn fetch(args: &Args, site: Destination, output: Output) -> anyhow::Result<ExitCode> {
    must_name_scans(args)?;
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
    for scan in &wanted_there(&client, &args.scan)? {
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
            Event::Waiting(reason) => {
                let allowance = Allowance::Pause(*reason);
                line.draw(scan, 0, 0, Some(&allowance), &Link::default());
            }
            Event::Retry { why, pause } => line.retry(scan, why, *pause),
        });
        drop(line);
        match result {
            Ok(fetched) => tell(&fetched, begun.elapsed().as_secs_f64(), output)?,
            Err(error) if is_about_this_scan(&error) => {
                output::complain(Some(scan), &hint::explained(&error));
                code = FOUND;
            }
            Err(error) => return Err(explained(error)),
        }
    }
    Ok(ExitCode::from(code))
}

/// The scans of these names: a session stands for all of its scans there.
fn wanted_there(client: &Client, names: &[String]) -> anyhow::Result<Vec<String>> {
    let mut wanted = Vec::new();
    for name in names {
        // The name of a scan has a `_` after the session, whose name has none.
        let of_session: Vec<String> = match name.contains('_') {
            true => Vec::new(),
            false => {
                let there = client.list().map_err(explained)?;
                let is_its = |it: &ScanName| it.session.as_str() == name;
                let scans = there.iter().filter_map(|it| it.parse::<ScanName>().ok());
                scans.filter(is_its).map(|it| it.to_string()).collect()
            }
        };
        match of_session.is_empty() {
            true => wanted.push(name.clone()),
            false => wanted.extend(of_session),
        }
    }
    Ok(wanted)
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
