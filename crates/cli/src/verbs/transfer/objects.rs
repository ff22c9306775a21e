//! `send` to an object store, and `receive` from one.

use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::{Duration, Instant};

use fullbore_core::hint;
use fullbore_core::name::ScanName;
use fullbore_core::units::{ByteRate, ByteSize};
use fullbore_linux::stop_handle::StopHandle;
use fullbore_recording::transfers::carrier;
use fullbore_transfer::connect::Link;
use fullbore_transfer::governor::{Governor, Limits};
use fullbore_transfer::identity::Destination;
use fullbore_transfer::objects::copy::{self, RemoteScan};
use fullbore_transfer::objects::receive::{self, Received};
use fullbore_transfer::objects::send::{Progress, Sender, Sent};
use fullbore_transfer::objects::{Address, Bucket, ObjectError};
use fullbore_transfer::queue;
use fullbore_transfer::receive::open_members;
use serde::Serialize;

use super::ProgressLine;
use super::etransfer::Place;
use crate::hint::explained;
use crate::output::{self, FOUND, GOOD, Output};
use crate::verbs::objects;

/// The other end of a transfer.
#[derive(Clone, Debug)]
pub enum Target {
    /// A site that runs fullbore.
    Site(Destination),
    /// A place in an object store.
    Objects(Address),
    /// A directory of a server that speaks etransfer.
    Etransfer(Place),
}

impl Target {
    /// The same for the queue, which refuses what it does not take.
    pub fn queued(&self) -> queue::job::Target {
        match self {
            Self::Etransfer(place) => queue::job::Target { to: place.to_string(), secret: None },
            Self::Objects(address) => carrier::of_objects(address),
            Self::Site(site) => carrier::of_site(site),
        }
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with(Place::SCHEME) {
            return text.parse().map(Self::Etransfer);
        }
        match Address::is_meant(text) {
            true => text.parse().map(Self::Objects).map_err(|it| hint::with_causes(&it)),
            false => text.parse().map(Self::Site).map_err(|it| hint::with_causes(&it)),
        }
    }
}

/// Scans that go to an object store.
pub struct Sending {
    pub address: Address,
    pub members: Vec<PathBuf>,
    pub limits: Limits,
    pub patience: Duration,
    pub read_back: bool,
}

#[derive(Serialize)]
struct SentJson {
    scan: String,
    complete: bool,
    host: String,
    blocks: u64,
    bytes: u64,
    carried_bytes: u64,
    read_back: bool,
    seconds: f64,
}

/// Sends the scans, one after the other.
pub fn send(sending: Sending, scans: &[ScanName], output: Output) -> anyhow::Result<ExitCode> {
    let stop = crate::signals::stop_handle()?;
    let governor = Governor::start_on(sending.limits.clone(), &sending.members);
    let bucket = Bucket::open(sending.address.clone(), sending.patience).map_err(explained)?;
    let (bucket, governor, read_back) = (&bucket, &governor, sending.read_back);
    let sender = Sender { bucket, governor, stop: &stop, read_back };
    each(scans, &stop, output, |scan, draw| {
        let begun = Instant::now();
        let sent = sender.send(&sending.members, scan, draw)?;
        Ok(sent_json(scan, &sent, begun.elapsed().as_secs_f64()))
    })
}

/// A result that is told.
trait Told: Serialize {
    fn text(&self) -> String;
}

/// Does the same for each scan, with a progress line. A failure that is about one scan does not stop the others.
fn each<T: Told>(
    scans: &[ScanName],
    stop: &StopHandle,
    output: Output,
    work: impl Fn(&ScanName, &mut dyn FnMut(&Progress)) -> Result<T, ObjectError>,
) -> anyhow::Result<ExitCode> {
    let mut code = GOOD;
    for scan in scans {
        let mut line = ProgressLine::new(output);
        let result = work(scan, &mut |it| {
            let name = it.scan.to_string();
            line.draw(&name, it.done, it.all, Some(&it.allowance), &Link::default());
        });
        drop(line);
        match result {
            Ok(told) => output.tell(&told, || told.text())?,
            Err(error) if error.is_about_the_store() => return Err(explained(error)),
            Err(error) => {
                output::complain(Some(&scan.to_string()), &hint::explained(&error));
                code = FOUND;
            }
        }
        if stop.is_requested() {
            break;
        }
    }
    Ok(ExitCode::from(code))
}

fn sent_json(scan: &ScanName, sent: &Sent, seconds: f64) -> SentJson {
    SentJson {
        scan: scan.to_string(),
        complete: true,
        host: sent.receipt.host.clone(),
        blocks: sent.receipt.blocks,
        bytes: sent.receipt.bytes,
        carried_bytes: sent.carried_bytes,
        read_back: sent.read_back,
        seconds,
    }
}

impl Told for SentJson {
    fn text(&self) -> String {
        let Self { scan, host, bytes, carried_bytes, seconds, .. } = self;
        let rate = ByteRate((*carried_bytes as f64 / seconds.max(1e-3)) as u64);
        let checked = if self.read_back { ", and read back" } else { "" };
        format!(
            "{scan} is complete at {host}: {}, {} sent in {seconds:.1} s ({rate}){checked}\n",
            ByteSize(*bytes),
            ByteSize(*carried_bytes)
        )
    }
}

/// Scans that come from an object store.
pub struct Receiving {
    pub address: Address,
    pub limits: Limits,
    pub patience: Duration,
}

#[derive(Serialize)]
struct ReceivedJson {
    scan: String,
    blocks: u64,
    bytes: u64,
    carried_bytes: u64,
    seconds: f64,
}

impl Told for ReceivedJson {
    fn text(&self) -> String {
        let Self { scan, bytes, carried_bytes, seconds, .. } = self;
        let rate = ByteRate((*carried_bytes as f64 / seconds.max(1e-3)) as u64);
        let (bytes, carried) = (ByteSize(*bytes), ByteSize(*carried_bytes));
        format!("{scan} is complete: {bytes}, {carried} received in {seconds:.1} s ({rate})\n")
    }
}

impl Receiving {
    fn bucket(&self) -> anyhow::Result<Bucket> {
        Bucket::open(self.address.clone(), self.patience).map_err(explained)
    }

    /// Lists the copies.
    pub fn list(&self, output: Output) -> anyhow::Result<ExitCode> {
        objects::list(&self.bucket()?, output)
    }

    /// Receives the scans of these names, or unambiguous beginnings of them.
    pub fn receive(
        &self,
        members: &[PathBuf],
        names: &[String],
        output: Output,
    ) -> anyhow::Result<ExitCode> {
        let stop = crate::signals::stop_handle()?;
        let bucket = self.bucket()?;
        let governor = Governor::start_on(self.limits.clone(), members);
        let opened = open_members(members).map_err(explained)?;
        let scans = find(&bucket, names)?;
        each(&scans, &stop, output, |scan, draw| {
            let begun = Instant::now();
            let remote = RemoteScan::open(&bucket, scan)?;
            let received = receive::receive(&remote, &opened, &governor, &stop, draw)?;
            Ok(received_json(scan, &received, begun.elapsed().as_secs_f64()))
        })
    }
}

/// The scans of these names. Only names that are not whole need a list.
fn find(bucket: &Bucket, names: &[String]) -> anyhow::Result<Vec<ScanName>> {
    let mut scans = Vec::new();
    for name in names {
        match name.parse::<ScanName>() {
            Ok(scan) => scans.push(scan),
            Err(_) => {
                let copies = copy::list(bucket).map_err(explained)?;
                let mut found = copies.iter().filter(|it| it.scan.starts_with(name.as_str()));
                let (Some(one), None) = (found.next(), found.next()) else {
                    anyhow::bail!(
                        "`{name}` is not the beginning of one name there\n  --list shows the copies"
                    )
                };
                scans.push(one.scan.parse().map_err(|error| anyhow::anyhow!("{name}: {error}"))?);
            }
        }
    }
    Ok(scans)
}

fn received_json(scan: &ScanName, received: &Received, seconds: f64) -> ReceivedJson {
    ReceivedJson {
        scan: scan.to_string(),
        blocks: received.sealed.blocks,
        bytes: received.sealed.bytes,
        carried_bytes: received.carried_bytes,
        seconds,
    }
}
