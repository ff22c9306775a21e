//! `receive --tsunami` and `receive --from tsunami://…`: files to and from programs that speak Tsunami-UDP.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use fullbore_core::hint;
use fullbore_core::units::{ByteRate, ByteSize};
use fullbore_linux::stop_handle::StopHandle;
use fullbore_transfer::connect::Link;
use fullbore_transfer::files::{AllowList, ServedFiles};
use fullbore_transfer::governor::Governor;
use fullbore_tsunami::client::{Client, Fetched};
use fullbore_tsunami::server::{Event, Server, Settings};
use fullbore_tsunami::{DEFAULT_RATE, DEFAULT_SECRET};
use serde::Serialize;

use super::ProgressLine;
use crate::hint::explained;
use crate::output::{self, FOUND, GOOD, Output};

/// The longest secret that is read from a file.
const LONGEST_SECRET: u64 = 1024;

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
        secret: Option<&Path>,
        members: Vec<PathBuf>,
    ) -> anyhow::Result<Self> {
        anyhow::ensure!(
            allow.is_some() || address.ip().is_loopback(),
            "--tsunami {address} would give every sealed scan to anybody who can reach it\n  \
             say with --allow which addresses may connect: --allow 192.0.2.0/24,2001:db8::7"
        );
        let allow = allow.cloned().unwrap_or_else(AllowList::this_host);
        let settings = Settings { files: ServedFiles::of(members), allow, secret: read(secret)? };
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
            output::print_on(&format!("listening at {address} for Tsunami\n"));
        }
        Ok(server)
    }
}

fn read(secret: Option<&Path>) -> anyhow::Result<Vec<u8>> {
    let Some(path) = secret else { return Ok(DEFAULT_SECRET.into()) };
    let told = || format!("--tsunami-secret-file {}", path.display());
    let length = std::fs::metadata(path).with_context(told)?.len();
    anyhow::ensure!(length <= LONGEST_SECRET, "{}: longer than {LONGEST_SECRET} bytes", told());
    let bytes = std::fs::read(path).with_context(told)?;
    let secret = bytes.trim_ascii_end().to_vec();
    anyhow::ensure!(!secret.is_empty(), "{}: it is empty\n  write the secret into it", told());
    Ok(secret)
}

#[derive(Serialize)]
#[serde(tag = "event")]
enum OfferJson<'a> {
    #[serde(rename = "tsunami-listening")]
    Listening { address: SocketAddr },
    #[serde(rename = "tsunami-refused")]
    Refused { address: SocketAddr, why: &'a str },
    #[serde(rename = "tsunami-sent")]
    Sent { address: SocketAddr, name: &'a str, bytes: u64, resent_blocks: u64, seconds: f64 },
}

fn show(event: &Event, output: Output) {
    let json = match event {
        Event::Refused { address, why } => OfferJson::Refused { address: *address, why },
        Event::Sent { address, name, bytes, resent, seconds } => OfferJson::Sent {
            address: *address,
            name,
            bytes: *bytes,
            resent_blocks: *resent,
            seconds: *seconds,
        },
    };
    if output.event(&json) {
        return;
    }
    output::print_on(&match event {
        Event::Refused { address, why } => format!("{address} (Tsunami): {why}\n"),
        Event::Sent { address, name, bytes, resent, seconds } => {
            let rate = rate(*bytes, *seconds);
            let (size, again) = (ByteSize(*bytes), output::count(*resent as usize, "block"));
            format!(
                "{name} is at {address}: {size} in {seconds:.1} s ({rate}), {again} sent again\n"
            )
        }
    });
}

/// What to fetch.
pub struct Wanted<'a> {
    /// The names of files.
    pub names: &'a [String],
    /// List the names instead.
    pub list: bool,
    /// The directory here.
    pub to: Option<&'a Path>,
    /// The file with the secret.
    pub secret: Option<&'a Path>,
    /// The rate to ask for.
    pub rate: Option<ByteRate>,
}

#[derive(Serialize)]
struct ListedJson {
    name: String,
    bytes: u64,
}

#[derive(Serialize)]
struct FetchedJson {
    path: PathBuf,
    bytes: u64,
    resent_blocks: u64,
    seconds: f64,
}

/// Lists or fetches files of a server.
pub fn fetch(wanted: &Wanted<'_>, host: &str, output: Output) -> anyhow::Result<ExitCode> {
    let rate = match wanted.rate {
        None => DEFAULT_RATE,
        Some(rate) => u32::try_from(rate.0.saturating_mul(8)).map_err(|_| {
            anyhow::anyhow!(
                "--rate {rate}: Tsunami counts to 4.29 Gbit/s\n  ask for at most 4.29Gbit/s"
            )
        })?,
    };
    anyhow::ensure!(rate > 0, "--rate 0 fetches nothing");
    let secret = read(wanted.secret)?;
    let connect = || Client::connect(host, &secret, rate).map_err(explained);
    if wanted.list {
        let files = connect()?.list().map_err(explained)?;
        let json = files.into_iter().map(|it| ListedJson { name: it.name, bytes: it.bytes });
        let json: Vec<ListedJson> = json.collect();
        let line = |it: &ListedJson| format!("{}  {}\n", it.name, ByteSize(it.bytes));
        output.tell(&json, || json.iter().map(line).collect())?;
        return Ok(ExitCode::from(GOOD));
    }
    let Some(directory) = wanted.to.filter(|_| !wanted.names.is_empty()) else {
        anyhow::bail!(
            "name the files to fetch, and a directory for them: --to DIR\n  --list shows the files that the site offers"
        )
    };
    std::fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    let stop = crate::signals::stop_handle()?;
    let mut code = GOOD;
    for name in wanted.names {
        let mut line = ProgressLine::new(output);
        let mut draw = |done: u64, all: u64| line.draw(name, done, all, None, &Link::default());
        // After a file that failed, the connection is in no known state: each file has its own.
        let fetched = connect()?.fetch(name, directory, &stop, &mut draw);
        drop(line);
        match fetched {
            Ok(fetched) => tell(fetched, output)?,
            Err(error) => {
                output::complain(Some(name), &hint::explained(&error));
                code = FOUND;
            }
        }
        if stop.is_requested() {
            break;
        }
    }
    Ok(ExitCode::from(code))
}

fn tell(fetched: Fetched, output: Output) -> anyhow::Result<()> {
    let Fetched { path, bytes, resends, seconds } = fetched;
    let json = FetchedJson { path, bytes, resent_blocks: resends, seconds };
    output.tell(&json, || {
        let (size, rate) = (ByteSize(bytes), rate(bytes, seconds));
        let again = output::count(resends as usize, "block");
        let path = json.path.display();
        format!("{path}: {size} in {seconds:.1} s ({rate}), {again} asked for again\n")
    })
}

fn rate(bytes: u64, seconds: f64) -> ByteRate {
    ByteRate((bytes as f64 / seconds.max(1e-3)) as u64)
}
