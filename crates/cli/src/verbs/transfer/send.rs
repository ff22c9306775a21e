//! `fullbore send`: sends scans to another site, or to an object store.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args as Arguments;
use fullbore_core::hint;
use fullbore_core::name::ScanName;
use fullbore_core::units::{ByteRate, ByteSize};
use fullbore_linux::stop_handle::StopHandle;
use fullbore_store::catalogue;
use fullbore_transfer::connect::{Client, ClientSettings, Event, Outcome};
use fullbore_transfer::identity;
use serde::Serialize;

use super::objects::{self, Target};
use super::{LinkArgs, ProgressLine, carrier, etransfer, is_about_this_scan, transfers};
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
    let scans = scans(&members, &args.scan)?;
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
        return transfers::add(
            members,
            scans,
            carrier::of_destination(&args.destination),
            wishes,
            output,
        );
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
    let mut code = GOOD;
    for scan in scans {
        if stop.is_requested() || !send(&client, &scan, &stop, output)? {
            code = FOUND;
        }
    }
    Ok(ExitCode::from(code))
}

/// The scans of the names given: a session stands for all of its scans.
pub(super) fn scans(members: &[PathBuf], names: &[String]) -> anyhow::Result<Vec<ScanName>> {
    let listed = catalogue::list(members).map_err(explained)?;
    let mut scans = Vec::new();
    for name in names {
        let all = listed.entries.iter().filter_map(|entry| entry.name.parse::<ScanName>().ok());
        let mut found: Vec<ScanName> = all.filter(|it| it.session.as_str() == name).collect();
        if found.is_empty() {
            found.push(scan_arg::find_whole(members, name, "sent")?);
        }
        scans.extend(found);
    }
    Ok(scans)
}

/// Sends a scan. Returns true if all of it is at the other end.
fn send(
    client: &Client,
    scan: &ScanName,
    stop: &StopHandle,
    output: Output,
) -> anyhow::Result<bool> {
    let begun = std::time::Instant::now();
    let mut line = ProgressLine::new(output);
    let result = client.send(scan, stop, &mut |event| match event {
        Event::Sending(state, link) => {
            let progress = &state.progress;
            let (done, all) = (progress.durable_bytes, progress.bytes);
            line.draw(&scan.to_string(), done, all, Some(&state.allowance), link);
        }
        Event::Receiving(..) => {}
        Event::Retry { why, pause } => {
            let pause = pause.as_secs_f64();
            line.say(format_args!("fullbore: {scan}: {why}; trying again in {pause:.1} s"));
        }
    });
    drop(line);
    let seconds = begun.elapsed().as_secs_f64();
    match result {
        Ok(outcome) => {
            let told = sent_json(scan, &outcome, seconds);
            output.tell(&told, || text(&told))?;
            Ok(outcome.missing_blocks == 0)
        }
        Err(error) if is_about_this_scan(&error) => {
            let why = hint::explained(&error);
            output::say(format_args!("fullbore: {scan}: {why}"));
            Ok(false)
        }
        Err(error) => Err(explained(error)),
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
