//! `fullbore send`: sends scans to another site, or to an object store.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clap::Args as Arguments;
use fullbore_core::hint;
use fullbore_core::name::ScanName;
use fullbore_core::units::{ByteRate, ByteSize};
use fullbore_linux::stop_handle::StopHandle;
use fullbore_store::catalogue::{self, Entry, ScanState};
use fullbore_transfer::connect::{Client, ClientSettings, Event, Outcome};
use fullbore_transfer::identity;
use serde::Serialize;

use super::objects::{self, Target};
use super::{LinkArgs, ProgressLine, etransfer, is_about_this_scan, transfers};
use crate::hint::explained;
use crate::output::{self, FOUND, GOOD, Output};
use crate::store_arg::StoreArg;
use crate::verbs::{scan_arg, sending};

/// Send scans to another site, also while they are recorded; or to an object store.
///
///   fullbore send r1234_no0001 fullbore://correlator
///
/// The other site runs `fullbore receive`. The first time, it gives you an
/// invitation (`fullbore peers invite` there), which you use as the destination
/// once; after that, its name is enough:
///
///   fullbore send r1234_no0001 'fullbore://correlator:4780/…'
///
/// A scan that is being recorded is sent as it becomes durable, until it is sealed.
/// The name of a session sends all of its scans. The data is encrypted, and each
/// block is checked at the other end.
///
/// You can interrupt send and run it again: blocks that are durable at the other end
/// are not sent again. It continues by itself after the network or the other end was
/// away, for as long as --patience says. Recording comes first: while a recorder on
/// this host falls behind, send pauses.
///
/// When the other end has sealed its copy, its receipt is kept beside the scan:
/// `fullbore info` shows it, and `fullbore rm --copied` removes only scans that have
/// one.
///
///   fullbore send r1234_no0001 s3://bucket/prefix
///
/// copies a sealed scan to an object store: s3://, gs://, az://, http(s):// (WebDAV), or
/// file:///directory. Credentials and endpoint come from the environment
/// (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, …). The chunk files are plain objects there.
/// `fullbore verify`, `info`, `ls` and `cat` read the copy in place, and `fullbore
/// receive --from s3://bucket/prefix` brings it back.
///
///   fullbore send r1234_no0001 etransfer://correlator/data/
///
/// sends each stream of a sealed scan as a file SCAN_STREAM.vdif to etd, and resumes.
/// That protocol has no encryption and no checksums, so there is no receipt.
///
/// With --queue, the scans are added to the queue of `fullbore transfers`, whose
/// runner sends them, and send returns at once.
///
/// Exit codes: 0 all scans are complete at the other end; 1 some are not, or blocks
/// could not be read here; 2 send could not run.
#[derive(Arguments, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The scans (SESSION_SCAN, or an unambiguous beginning of it), or a session for all of its scans.
    #[arg(required = true, value_name = "SCAN")]
    scan: Vec<String>,
    /// The other site: fullbore://HOST[:PORT], or an invitation; an object store: s3://BUCKET/PREFIX; or a
    /// directory of an etransfer server: etransfer://HOST[:PORT]/DIRECTORY/.
    #[arg(required = true, value_name = "DESTINATION")]
    destination: Target,
    /// Read everything back from the object store, and compare it with the index, before the receipt is kept. Where the
    /// store checks no checksums itself (all but S3), this is done in any case.
    #[arg(long, help_heading = "Link")]
    read_back: bool,
    /// Replace files at an etransfer server, instead of sending the rest of them.
    #[arg(long, help_heading = "Link")]
    overwrite: bool,
    #[command(flatten)]
    store: StoreArg,
    #[command(flatten)]
    link: LinkArgs,
    /// The number of data connections to a site [default: as many as raise the rate].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=32), help_heading = "Link")]
    connections: Option<u16>,
    /// Time without progress after which send gives up.
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = sending::duration, help_heading = "Link")]
    patience: Duration,
    /// Add the scans to the queue instead, as `fullbore transfers add` does.
    #[arg(long, conflicts_with_all = ["connections", "congestion", "patience"], help_heading = "Queue")]
    queue: bool,
    /// Transfers of the queue with a higher number go first [default: 0]
    #[arg(
        long,
        value_name = "N",
        requires = "queue",
        allow_negative_numbers = true,
        help_heading = "Queue"
    )]
    priority: Option<i32>,
}

/// Scans of at most this size are sent several at a time.
const SMALL: u64 = 16 << 20;

/// Small scans that are sent at a time.
const AT_A_TIME: usize = 6;

#[derive(Serialize)]
struct SentJson {
    scan: String,
    complete: bool,
    host: String,
    blocks: u64,
    bytes: u64,
    carried_bytes: u64,
    missing_blocks: u64,
    attempts: u32,
    seconds: f64,
}

/// Sends the scans, one after the other.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    let members = args.store.members()?;
    let found = found(&members, &args.scan)?;
    let scans: Vec<ScanName> = found.iter().map(|it| it.scan.clone()).collect();
    let by_etransfer = matches!(args.destination, Target::Etransfer(_));
    anyhow::ensure!(
        by_etransfer || !args.overwrite,
        "--overwrite is for etransfer://: elsewhere, scans are never overwritten"
    );
    if args.queue {
        anyhow::ensure!(
            !by_etransfer,
            "the queue has no transfers by etransfer: send without --queue"
        );
        let wishes = args.link.wishes(args.priority.unwrap_or(0));
        return transfers::add(members, scans, args.destination.queued(), wishes, output);
    }
    let destination = match args.destination {
        Target::Objects(address) => {
            let sending = objects::Sending {
                address,
                members,
                limits: args.link.limits(),
                patience: args.patience,
                read_back: args.read_back,
            };
            return objects::send(sending, &scans, output);
        }
        Target::Etransfer(_) if args.read_back => {
            anyhow::bail!("--read-back is for object stores: etransfer has no checksums")
        }
        Target::Etransfer(place) => {
            let wishes = etransfer::Wishes { limits: args.link.limits(), patience: args.patience };
            return etransfer::send(&place, members, &scans, args.overwrite, wishes, output);
        }
        Target::Site(_) if args.read_back => {
            anyhow::bail!("--read-back is for object stores: a site checks every block itself")
        }
        Target::Site(site) => site,
    };
    let settings = ClientSettings {
        members,
        config: identity::default_directory().map_err(explained)?,
        connections: args.connections,
        limits: args.link.limits(),
        link: args.link.settings(),
        patience: args.patience,
    };
    let stop = crate::signals::stop_handle()?;
    let client = Client::new(destination, settings).map_err(explained)?;
    let line = Mutex::new(ProgressLine::new(output));
    let sending = ToSite { client: &client, stop: &stop, line: &line, output };
    sending.send_all(&found).map(ExitCode::from)
}

/// A scan to send.
struct Found {
    scan: ScanName,
    /// True if it is over, and waits for syncs take longer than its data.
    small: bool,
}

/// The scans of the names given: a session stands for all of its scans.
pub(super) fn scans(members: &[PathBuf], names: &[String]) -> anyhow::Result<Vec<ScanName>> {
    Ok(found(members, names)?.into_iter().map(|it| it.scan).collect())
}

fn found(members: &[PathBuf], names: &[String]) -> anyhow::Result<Vec<Found>> {
    let listed = catalogue::list(members).map_err(explained)?;
    let is_small = |entry: &Entry| entry.bytes <= SMALL && entry.state != ScanState::Recording;
    let mut scans = Vec::new();
    for name in names {
        let of_session = |entry: &Entry| {
            let scan = entry.name.parse::<ScanName>().ok()?;
            let small = is_small(entry);
            (scan.session.as_str() == name).then_some(Found { scan, small })
        };
        let mut found: Vec<Found> = listed.entries.iter().filter_map(of_session).collect();
        if found.is_empty() {
            let scan = scan_arg::find_whole(members, name, "sent")?;
            found.push(Found { scan, small: false });
        }
        scans.extend(found);
    }
    Ok(scans)
}

/// Scans to a site.
struct ToSite<'a> {
    client: &'a Client,
    stop: &'a StopHandle,
    line: &'a Mutex<ProgressLine>,
    output: Output,
}

impl ToSite<'_> {
    /// Sends the scans in order; several small ones at a time. Returns the exit code.
    fn send_all(&self, scans: &[Found]) -> anyhow::Result<u8> {
        let (mut rest, mut code) = (scans, GOOD);
        while !rest.is_empty() {
            let small = rest.iter().take_while(|it| it.small).count();
            let (now, later) = rest.split_at(small.max(1));
            if !self.send_together(now)? {
                code = FOUND;
            }
            rest = later;
        }
        Ok(code)
    }

    /// Sends these scans, as many at a time as there are threads. Returns true if all of them are at the other end.
    fn send_together(&self, scans: &[Found]) -> anyhow::Result<bool> {
        let next = AtomicUsize::new(0);
        let (whole, failed) = (AtomicBool::new(true), Mutex::new(None));
        let work = || {
            while let Some(it) = scans.get(next.fetch_add(1, Ordering::SeqCst)) {
                let is_over = self.stop.is_requested() || lock(&failed).is_some();
                let sent = if is_over { Ok(false) } else { self.send(&it.scan) };
                match sent {
                    Ok(true) => {}
                    Ok(false) => whole.store(false, Ordering::SeqCst),
                    Err(error) => drop(lock(&failed).get_or_insert(error)),
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..scans.len().min(AT_A_TIME) {
                scope.spawn(work);
            }
            work();
        });
        match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(whole.into_inner()),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ToSite<'_> {
    /// Sends a scan. Returns true if all of it is at the other end.
    fn send(&self, scan: &ScanName) -> anyhow::Result<bool> {
        let begun = std::time::Instant::now();
        let name = scan.to_string();
        let result = self.client.send(scan, self.stop, &mut |event| match event {
            Event::Sending(state, link) => {
                let progress = &state.progress;
                let (done, all) = (progress.durable_bytes, progress.bytes);
                lock(self.line).draw(&name, done, all, Some(&state.allowance), link);
            }
            Event::Receiving(..) | Event::Waiting(_) => {}
            Event::Retry { why, pause } => lock(self.line).retry(&name, why, *pause),
        });
        lock(self.line).clear();
        let seconds = begun.elapsed().as_secs_f64();
        match result {
            Ok(outcome) => {
                let told = sent_json(scan, &outcome, seconds);
                self.output.tell(&told, || text(&told))?;
                Ok(outcome.missing_blocks == 0)
            }
            Err(error) if is_about_this_scan(&error) => {
                output::complain(Some(&name), &hint::explained(&error));
                Ok(false)
            }
            Err(error) => Err(explained(error)),
        }
    }
}

fn sent_json(scan: &ScanName, outcome: &Outcome, seconds: f64) -> SentJson {
    SentJson {
        scan: scan.to_string(),
        complete: outcome.missing_blocks == 0,
        host: outcome.receipt.host.clone(),
        blocks: outcome.receipt.blocks,
        bytes: outcome.receipt.bytes,
        carried_bytes: outcome.carried_bytes,
        missing_blocks: outcome.missing_blocks,
        attempts: outcome.attempts,
        seconds,
    }
}

fn text(sent: &SentJson) -> String {
    let SentJson { scan, host, bytes, carried_bytes, seconds, missing_blocks, .. } = sent;
    let rate = ByteRate((*carried_bytes as f64 / seconds.max(1e-3)) as u64);
    let mut text = format!(
        "{scan} is complete at {host}: {}, {} sent in {seconds:.1} s ({rate})\n",
        ByteSize(*bytes),
        ByteSize(*carried_bytes)
    );
    if *missing_blocks > 0 {
        text = format!(
            "{scan} is at {host}, without {} that could not be read here: see `fullbore verify {scan}`\n",
            output::count(*missing_blocks as usize, "block")
        );
    }
    text
}
