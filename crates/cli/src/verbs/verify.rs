//! `fullbore verify`: every block, chunk, index and account of a scan held against the others.

use std::process::ExitCode;
use std::time::Instant;

use clap::Args as ClapArgs;
use fullbore_core::completeness::{counted, grouped};
use fullbore_core::manifest::State;
use fullbore_core::name::ScanName;
use fullbore_core::redundancy::Scheme;
use fullbore_core::units::ByteSize;
use fullbore_engine::store::catalogue::{self, Entry};
use fullbore_engine::store::finding::{Finding, What};
use fullbore_engine::store::follow::{Flow, Follower, Standing};
use fullbore_engine::store::read::Settings;
use fullbore_engine::store::reader::Item;
use fullbore_engine::store::redundancy::check::Left;
use fullbore_engine::store::verify::{self, Checked, StreamResult, Verification};
use indicatif::ProgressBar;
use serde::Serialize;

mod findings;

use crate::hint::explained;
use crate::output::{self, Output, count};
use crate::store_arg::StoreArg;
use crate::verbs::{following, scan_arg};

/// Verify scans: read every stored byte again, and compare it with checksums,
/// index, account and manifest.
///
/// The first line says whether the recording is complete, in the words of
/// `record`: COMPLETE, LOST so many frames and why, INCOMPLETE, UNKNOWN; or
/// that what was recorded is not there any more: DAMAGED, or NOT ALL HERE where
/// a member is not attached. The second line says whether what is stored is
/// intact: as it was written.
///
///   blocks      have the checksums they were written with
///   chunks      are all there, of the right size, each once
///   streams     go on from block to block without a hole that no gap tells of
///   frames      are where their own time says (VDIF); what is called fill is fill
///   account     says what index and data say when they are counted again
///   manifests   agree on every member
///   parity      is there and has its checksums: how many more members may be lost
///
/// What is wrong is named: stream, file, blocks, frames. Many findings of one
/// kind are summed up; --verbose lists them.
///
/// Of a device without a file system, device:PATH?scan=SCAN or all scans of
/// device:PATH, every block is held against its checksum; bare chunks against a
/// pattern, device:PATH?first=0&last=0xfffe0000&pattern=prbs31.
///
/// Of a scan that is being recorded, the blocks that are durable until now are
/// held against their checksums. With --follow so are those that come, as soon
/// as they are durable; what is wrong is told at once, and when the scan is
/// sealed the rest is verified without reading all of it again.
///
/// Exit codes: 0 what is stored is intact, and the recording is complete (or
/// nothing is known to be lost, where nobody can say more); 3 what is stored is
/// intact, and the recording is not complete: frames were lost when it was
/// made, or what was planned is not covered; 1 what is stored is damaged or not
/// all here, or the recorder of a scan that was followed died; 2 a scan could
/// not be verified. Of several scans the worst counts: 2, then 1, then 3.
#[derive(ClapArgs)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The scans: `session_scan`, or as much of each name as tells it from others; or devices.
    #[arg(value_name = "SCAN", required_unless_present = "all")]
    scan: Vec<String>,
    /// Every scan of the store but those being recorded.
    #[arg(long, conflicts_with = "scan")]
    all: bool,
    /// Reads under way at once on each device.
    #[arg(long, value_name = "N", default_value_t = Settings::default().reads_per_device)]
    reads: usize,
    /// Verify a scan that is being recorded as it grows, until it is sealed.
    #[arg(long, conflicts_with = "all")]
    follow: bool,
    /// List every finding, also where many are of one kind.
    #[arg(long)]
    verbose: bool,
    #[command(flatten)]
    store: StoreArg,
}

/// Reads on one device: each has a thread and a block of memory.
const MOST_READS: usize = 64;

/// Verifies.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    if super::device::are_meant(&args.scan)? {
        return super::device::verify(&args.scan, output);
    }
    let roots = args.store.members()?;
    anyhow::ensure!((1..=MOST_READS).contains(&args.reads), "--reads is 1 to {MOST_READS}");
    let settled = |entry: &Entry| entry.state != catalogue::Standing::Recording;
    let scans = scan_arg::find_all(&roots, &args.scan, "verified", settled)?;
    let settings = Settings { reads_per_device: args.reads, ..Settings::default() };
    if scans.is_empty() && !output.json {
        println!("no scans");
    }
    let work = |scan: &ScanName| one(&roots, scan, args.follow, settings, output);
    let text = |it: &Verification| text(it, args.verbose);
    scan_arg::each(&scans, output, work, text, judge)
}

/// Whether what is stored is intact, and then whether it is all that should have been recorded.
fn judge(it: &Verification) -> u8 {
    let incomplete = it.completeness.as_ref().is_some_and(|it| it.complete == Some(false));
    match (it.good, incomplete) {
        (false, _) => output::FOUND,
        (true, true) => output::INCOMPLETE,
        (true, false) => output::GOOD,
    }
}

fn one(
    roots: &[std::path::PathBuf],
    name: &ScanName,
    follow: bool,
    settings: Settings,
    output: Output,
) -> anyhow::Result<Verification> {
    let mut follower = Follower::open(roots, name).map_err(explained)?;
    following::settle(&mut follower)?;
    let mut checked = Checked::default();
    if !follower.standing().is_over() {
        let begun = Instant::now();
        let bar = scan_arg::meter(output, name);
        let over = along(&mut follower, &mut checked, follow, &bar, output);
        bar.finish_and_clear();
        if !over? {
            return Ok(checked.so_far(follower.scan(), begun.elapsed().as_secs_f64()));
        }
    }
    if follow && follower.standing() == Standing::Died && !output.json {
        eprintln!("fullbore: {}", following::died(name));
    }
    let bar = scan_arg::bar(output, name);
    let scan = follower.into_scan();
    let verification = verify::verify_rest(&scan, checked, settings, &|done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    Ok(verification?)
}

/// Checks what is durable of a scan that is being recorded; followed, until it is over. Gives whether it is.
fn along(
    follower: &mut Follower,
    checked: &mut Checked,
    follow: bool,
    bar: &ProgressBar,
    output: Output,
) -> anyhow::Result<bool> {
    let mut flows: Vec<Flow> = Vec::new();
    loop {
        let streams = flows.len()..follower.scan().streams.len();
        flows.extend(streams.map(|number| Flow::new(number, Settings::beside_a_recorder())));
        for flow in &mut flows {
            while let Some(item) = follower.next(flow).map_err(explained)? {
                if let Item::Block(block) = &item {
                    bar.inc(block.placed.block.bytes.into());
                }
                let stream = &follower.scan().streams[flow.number];
                if let Some(finding) = checked.take(stream, item) {
                    tell(finding, follower, bar, output);
                }
            }
        }
        // What has come to rest now is verified as any other scan.
        if follower.standing() == Standing::Recording && !follow {
            return Ok(false);
        }
        following::pause(follower)?;
        if follower.standing().is_over() {
            return Ok(true);
        }
    }
}

/// Something that was found while the scan is recorded.
#[derive(Serialize)]
struct Found<'a> {
    event: &'static str,
    scan: &'a ScanName,
    finding: &'a Finding,
}

fn tell(finding: &Finding, follower: &Follower, bar: &ProgressBar, output: Output) {
    let scan = &follower.scan().manifest.scan;
    if !output.event(&Found { event: "found", scan, finding }) {
        bar.suspend(|| eprintln!("fullbore: {scan}: {finding}"));
    }
}

fn text(verification: &Verification, verbose: bool) -> String {
    let rate = verification.bytes as f64 / verification.seconds.max(1e-9);
    let read = format!(
        "{} in {} of {}, {:.1} s, {}/s",
        ByteSize(verification.bytes),
        count(verification.blocks as usize, "block"),
        count(verification.streams.len(), "stream"),
        verification.seconds,
        ByteSize(rate as u64),
    );
    let recorded = verification.completeness.as_ref().map(|it| it.headline.as_str());
    let mut text = format!("{}: ", verification.scan);
    text += &match (verification.good, is_recording(verification), recorded) {
        (true, true, _) => format!("being recorded, intact so far: {read}\n"),
        (false, true, _) => format!("being recorded, and NOT INTACT: {read}\n"),
        (true, false, Some(recorded)) => format!("{recorded}\n  intact: {read}\n"),
        (true, false, None) => format!("UNKNOWN: it has no account\n  intact: {read}\n"),
        (false, false, recorded) => {
            let recorded = recorded.unwrap_or("it has no account");
            format!("{}\n  read: {read}\n  recorded as: {recorded}\n", harm(verification))
        }
    };
    verification.streams.iter().for_each(|stream| text += &of_stream(stream));
    text += &verification.redundancy.as_ref().map_or(String::new(), left);
    let listed = findings::lines(&verification.findings, verbose);
    listed.iter().for_each(|line| text += &format!("! {line}\n"));
    text + &advice(verification)
}

/// What became of what was recorded, in the first line.
fn harm(verification: &Verification) -> String {
    let away = |it: &&Finding| matches!(it.what, What::MemberAbsent { .. });
    let absent = verification.findings.iter().filter(away).count();
    let lost: u64 = verification.streams.iter().map(|stream| stream.lost).sum();
    let recorded = verification.completeness.as_ref().map_or(0, |it| it.recorded);
    let recorded = counted(recorded, "frame");
    let unreadable = format!("{} of {recorded} recorded cannot be read", grouped(lost));
    let away = count(absent, "member");
    let is = if absent == 1 { "is" } else { "are" };
    match (absent, lost) {
        (0, 0) => {
            "NOT INTACT: every frame that was recorded can be read, and something else is wrong"
                .to_owned()
        }
        (0, _) => format!("DAMAGED: {unreadable}"),
        (_, 0) => format!(
            "NOT ALL HERE: {away} {is} not attached; every frame that was recorded can be read without"
        ),
        (..) => format!("NOT ALL HERE: {away} {is} not attached; {unreadable}"),
    }
}

/// How much redundancy is left.
pub(super) fn left(left: &Left) -> String {
    let scheme = Scheme { data: left.data, parity: left.parity };
    let may_lose = match (left.beyond, left.may_lose) {
        (0, 0) => "no member may be lost".to_owned(),
        (0, 1) => "may lose 1 more member, whichever it is".to_owned(),
        (0, more) => format!("may lose {more} more members, whichever they are"),
        (beyond, _) => format!("{} cannot be read any more", count(beyond as usize, "chunk")),
    };
    let lost = match left.lost {
        0 => String::new(),
        lost => format!(", {} damaged or lost", count(lost as usize, "chunk")),
    };
    let unprotected = match left.unprotected {
        0 => String::new(),
        chunks => format!(", {} without parity", count(chunks as usize, "chunk")),
    };
    format!(
        "  {scheme}: {} in {}{lost}{unprotected}: {may_lose}\n",
        count(left.chunks as usize, "chunk"),
        count(left.stripes as usize, "stripe"),
    )
}

/// What can be done about what was found.
fn advice(verification: &Verification) -> String {
    let scan = &verification.scan;
    let unsealed = verification.state == State::Recording;
    if is_recording(verification) {
        "  --follow verifies what comes, and the account when it is sealed\n".to_owned()
    } else if unsealed {
        format!("  `fullbore recover {scan}` seals it\n")
    } else if verification.findings.iter().any(Finding::is_of_index) {
        format!("  `fullbore recover {scan} --reindex` builds a lost index anew from the chunks\n")
    } else if verification.redundancy.as_ref().is_some_and(is_to_be_rebuilt) {
        format!("  `fullbore rebuild {scan}` restores what redundancy makes up for\n")
    } else {
        String::new()
    }
}

/// Whether somebody records it still: else that it is not sealed was found.
fn is_recording(verification: &Verification) -> bool {
    let unsealed = |finding: &Finding| finding.what == What::Unsealed;
    verification.state == State::Recording && !verification.findings.iter().any(unsealed)
}

fn is_to_be_rebuilt(left: &Left) -> bool {
    left.lost > 0 || left.unprotected > 0
}

/// A stream: its blocks as they are now, and its frames as they were recorded.
fn of_stream(stream: &StreamResult) -> String {
    let verdict = stream.verdict.map_or("no account".into(), |verdict| verdict.to_string());
    let written = stream.stored.map_or(stream.written, |terms| terms.written);
    let of_expected = stream
        .stored
        .filter(|terms| terms.expected != terms.written)
        .map_or(String::new(), |terms| format!(" of {}", grouped(terms.expected)));
    let overrun = match stream.stored.map_or(0, |terms| terms.overrun) {
        0 => String::new(),
        frames => {
            let why = stream.why_overrun.as_ref().map_or(String::new(), |why| format!(" ({why})"));
            format!(", {} overrun{why}", grouped(frames))
        }
    };
    let unlisted = match stream.gaps_unlisted {
        0 => String::new(),
        gaps => format!(", {} counted and not listed", count(gaps as usize, "gap")),
    };
    let lost = match stream.lost {
        0 => String::new(),
        lost => format!(", {} of them cannot be read now", grouped(lost)),
    };
    format!(
        "  {}: {} of {} good; recorded {}{of_expected} frames{lost}{overrun}{unlisted}, {verdict}\n",
        stream.name,
        stream.good_blocks,
        count(stream.blocks as usize, "block"),
        grouped(written),
    )
}

#[cfg(test)]
mod tests {
    use fullbore_core::account::{Terms, Verdict};

    use super::*;

    #[test]
    fn a_stream_that_lost_blocks_says_how_many_frames_cannot_be_read() {
        let terms = Terms { expected: 1000, written: 1000, ..Terms::default() };
        let whole = StreamResult {
            name: "a".into(),
            good_blocks: 11,
            blocks: 11,
            good: true,
            lost: 0,
            written: 1000,
            absent: Some(0),
            stored: Some(terms),
            verdict: Some(Verdict::Proven),
            why_overrun: None,
            gaps_unlisted: 0,
        };
        let text = "  a: 11 of 11 blocks good; recorded 1000 frames, proven\n";
        assert_eq!(of_stream(&whole), text);
        let cut = StreamResult { good_blocks: 9, good: false, lost: 180, written: 820, ..whole };
        let text = "  a: 9 of 11 blocks good; recorded 1000 frames, 180 of them cannot be read now, proven\n";
        assert_eq!(of_stream(&cut), text);
    }

    #[test]
    fn frames_that_were_overrun_say_why() {
        let terms = Terms { expected: 1000, written: 993, overrun: 7, ..Terms::default() };
        let full = StreamResult {
            name: "a".into(),
            good_blocks: 11,
            blocks: 11,
            good: true,
            lost: 0,
            written: 993,
            absent: Some(7),
            stored: Some(terms),
            verdict: Some(Verdict::Consistent),
            why_overrun: Some("the disk is full".into()),
            gaps_unlisted: 3,
        };
        let text = "  a: 11 of 11 blocks good; recorded 993 of 1000 frames, 7 overrun (the disk is full), \
                    3 gaps counted and not listed, consistent\n";
        assert_eq!(of_stream(&full), text);
    }
}
