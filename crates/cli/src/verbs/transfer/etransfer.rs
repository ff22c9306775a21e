//! `receive --etransfer`, and files to and from `etransfer://…`: programs that speak etransfer.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use fullbore_core::hint;
use fullbore_core::name::ScanName;
use fullbore_core::units::{ByteRate, ByteSize};
use fullbore_etransfer::client::{Client, Done};
use fullbore_etransfer::error::EtransferError;
use fullbore_etransfer::server::{Event, Server, Settings};
use fullbore_linux::stop_handle::StopHandle;
use fullbore_transfer::connect::Link;
use fullbore_transfer::files::{AllowList, ServedFiles};
use fullbore_transfer::governor::{Governor, Limits};
use serde::Serialize;

use super::ProgressLine;
use crate::hint::explained;
use crate::output::{self, FOUND, GOOD, Output};

/// A server, and a directory or a pattern there: `etransfer://HOST[:PORT][/PATH]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    host: String,
    /// With its slash; empty if the address has none.
    path: String,
}

impl Place {
    /// The scheme of its addresses.
    pub const SCHEME: &str = "etransfer://";
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no address: write etransfer://HOST[:PORT]/PATH/");
        let rest = text.strip_prefix(Self::SCHEME).ok_or_else(wrong)?;
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if host.is_empty() || rest.contains(char::is_control) {
            return Err(wrong());
        }
        Ok(Self { host: host.to_owned(), path: path.to_owned() })
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}{}", Self::SCHEME, self.host, self.path)
    }
}

/// A server that was asked for.
pub struct Offer {
    address: SocketAddr,
    settings: Settings,
}

impl Offer {
    /// Checks who may connect. Without a list, only this host may.
    pub fn new(
        address: SocketAddr,
        allow: Option<&AllowList>,
        incoming: Option<&Path>,
        members: Vec<PathBuf>,
    ) -> anyhow::Result<Self> {
        anyhow::ensure!(
            allow.is_some() || address.ip().is_loopback(),
            "--etransfer {address} would give every sealed scan to anybody who can reach it\n  \
             say with --allow which addresses may connect: --allow 192.0.2.0/24,2001:db8::7"
        );
        if let Some(directory) = incoming {
            std::fs::create_dir_all(directory)
                .with_context(|| format!("--incoming {}", directory.display()))?;
        }
        let allow = allow.cloned().unwrap_or_else(AllowList::this_host);
        let incoming = incoming.map(Path::to_owned);
        let settings = Settings { files: ServedFiles::of(members), allow, incoming };
        Ok(Self { address, settings })
    }

    /// Listens.
    pub fn start(
        &self,
        governor: Arc<Governor>,
        stop: Arc<StopHandle>,
        output: Output,
    ) -> anyhow::Result<Arc<Server>> {
        let tell = Box::new(move |event: Event| show(&event, output));
        let server = Server::bind(self.address, self.settings.clone(), governor, stop, tell)
            .map_err(explained)?;
        let address = server.address()?;
        if !output.event(&OfferJson::Listening { address }) {
            output::print_on(&format!("listening at {address} for etransfer\n"));
        }
        Ok(server)
    }
}

#[derive(Serialize)]
#[serde(tag = "event")]
enum OfferJson<'a> {
    #[serde(rename = "etransfer-listening")]
    Listening { address: SocketAddr },
    #[serde(rename = "etransfer-refused")]
    Refused { address: SocketAddr, why: &'a str },
    #[serde(rename = "etransfer-sent")]
    Sent { address: SocketAddr, name: &'a str, bytes: u64, seconds: f64 },
    #[serde(rename = "etransfer-received")]
    Received { address: SocketAddr, path: &'a Path, bytes: u64, seconds: f64 },
}

fn show(event: &Event, output: Output) {
    let json = match event {
        Event::Refused { address, why } => OfferJson::Refused { address: *address, why },
        Event::Sent { address, name, bytes, seconds } => {
            OfferJson::Sent { address: *address, name, bytes: *bytes, seconds: *seconds }
        }
        Event::Received { address, path, bytes, seconds } => {
            OfferJson::Received { address: *address, path, bytes: *bytes, seconds: *seconds }
        }
    };
    if output.event(&json) {
        return;
    }
    output::print_on(&match event {
        Event::Refused { address, why } => format!("{address} (etransfer): {why}\n"),
        Event::Sent { address, name, bytes, seconds } => {
            format!("{name} is at {address}: {}\n", carried(*bytes, *seconds))
        }
        Event::Received { address, path, bytes, seconds } => {
            format!("{} from {address} is here: {}\n", path.display(), carried(*bytes, *seconds))
        }
    });
}

fn carried(bytes: u64, seconds: f64) -> String {
    let rate = ByteRate((bytes as f64 / seconds.max(1e-3)) as u64);
    format!("{} in {seconds:.1} s ({rate})", ByteSize(bytes))
}

/// How to transfer.
pub struct Wishes {
    /// The limits of the user.
    pub limits: Limits,
    /// The time for which the server may pause.
    pub patience: Duration,
}

#[derive(Serialize)]
struct DoneJson {
    path: PathBuf,
    bytes: u64,
    carried_bytes: u64,
    seconds: f64,
}

/// Files, one after the other, each over a connection of its own.
struct Batch<'a> {
    host: &'a str,
    governor: Governor,
    patience: Duration,
    stop: Arc<StopHandle>,
    output: Output,
}

impl Batch<'_> {
    /// Carries a file. Returns true if all of it arrived.
    fn carry(
        &self,
        name: &str,
        work: impl FnOnce(
            &mut Client,
            &Governor,
            &mut dyn FnMut(u64, u64),
        ) -> Result<Done, EtransferError>,
    ) -> anyhow::Result<bool> {
        let mut line = ProgressLine::new(self.output);
        let mut draw = |done: u64, all: u64| {
            let allowance = self.governor.now();
            line.draw(name, done, all, Some(&allowance), &Link::default());
        };
        // After a file that failed, a connection is in no known state.
        let mut client =
            Client::connect(self.host, self.patience, self.stop.clone()).map_err(explained)?;
        let result = work(&mut client, &self.governor, &mut draw);
        drop(line);
        match result {
            Ok(Done { path, bytes, carried: now, seconds }) => {
                let json = DoneJson { path, bytes, carried_bytes: now, seconds };
                self.output.tell(&json, || {
                    let (path, size) = (json.path.display(), ByteSize(bytes));
                    format!("{path}: {size}, of which now {}\n", carried(now, seconds))
                })?;
                Ok(true)
            }
            Err(error) => {
                output::complain(Some(name), &hint::explained(&error));
                Ok(false)
            }
        }
    }
}

/// Sends every stream of the scans as a file `SCAN_STREAM.vdif`.
pub fn send(
    place: &Place,
    members: Vec<PathBuf>,
    scans: &[ScanName],
    overwrite: bool,
    wishes: Wishes,
    output: Output,
) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(
        place.path.ends_with('/'),
        "{place} is no directory: end it with a slash, as in etransfer://HOST/data/"
    );
    let governor = Governor::start_on(wishes.limits, &members);
    let (host, stop) = (place.host.as_str(), crate::signals::stop_handle()?);
    let batch = Batch { host, governor, patience: wishes.patience, stop, output };
    let files = ServedFiles::of(members);
    let mut code = GOOD;
    for scan in scans {
        let streams = match files.of_scan(scan) {
            Ok(streams) => streams,
            Err(error) => {
                output::complain(None, &hint::explained(&error));
                code = FOUND;
                continue;
            }
        };
        for name in streams.into_iter().map(|it| it.name) {
            let path = format!("{}{}", place.path, name.replace('/', "_"));
            let sent = !batch.stop.is_requested()
                && batch.carry(&name, |client, governor, draw| {
                    let mut file = files.open(&name)?;
                    client.send(&mut file, &path, overwrite, governor, draw)
                })?;
            if !sent {
                code = FOUND;
            }
        }
    }
    Ok(ExitCode::from(code))
}

/// Lists the files of a server that match.
pub fn list(place: &Place, patience: Duration, output: Output) -> anyhow::Result<ExitCode> {
    let stop = crate::signals::stop_handle()?;
    let pattern = if place.path.is_empty() { "/" } else { &place.path };
    let mut client = Client::connect(&place.host, patience, stop).map_err(explained)?;
    let names = client.list(pattern).map_err(explained)?;
    output.tell(&names, || names.iter().map(|name| format!("{name}\n")).collect())?;
    Ok(ExitCode::from(GOOD))
}

/// Fetches files of a server into a directory.
pub fn fetch(
    place: &Place,
    names: &[String],
    to: Option<&Path>,
    wishes: Wishes,
    output: Output,
) -> anyhow::Result<ExitCode> {
    let Some(directory) = to.filter(|_| !names.is_empty()) else {
        anyhow::bail!(
            "name the files to fetch, and a directory for them: --to DIR\n  --list shows the files of the server"
        )
    };
    anyhow::ensure!(
        place.path.is_empty() || place.path.ends_with('/'),
        "{place} is no directory: end it with a slash, and name the files behind it"
    );
    std::fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    let governor = Governor::start_on(wishes.limits, &[]);
    let (host, stop) = (place.host.as_str(), crate::signals::stop_handle()?);
    let batch = Batch { host, governor, patience: wishes.patience, stop, output };
    let mut code = GOOD;
    for name in names {
        let there =
            if name.starts_with('/') { name.clone() } else { format!("{}{name}", place.path) };
        let fetched = !batch.stop.is_requested()
            && batch.carry(name, |client, governor, draw| {
                client.fetch(&there, directory, governor, draw)
            })?;
        if !fetched {
            code = FOUND;
        }
    }
    Ok(ExitCode::from(code))
}
