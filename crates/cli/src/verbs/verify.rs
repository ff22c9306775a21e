//! `fullbore verify`: compares every block, chunk, index and account of a scan.

use std::cmp::Reverse;
use std::process::ExitCode;
use std::time::Instant;

use clap::Args as ClapArgs;
use fullbore_care::redundancy::check::RedundancyStatus;
use fullbore_care::verify::{self, Checked, StreamResult, Verification};
use fullbore_core::completeness::{counted, grouped};
use fullbore_core::manifest::State;
use fullbore_core::name::ScanName;
use fullbore_core::redundancy::Scheme;
use fullbore_core::units::ByteSize;
use fullbore_store::catalogue::{self, Entry};
use fullbore_store::diagnostics::{Diagnostic, DiagnosticKind};
use fullbore_store::follow::{FollowCursor, FollowState, Follower};
use fullbore_store::read::Settings;
use fullbore_store::reader::Item;
use fullbore_transfer::objects::Address;
use indicatif::ProgressBar;
use serde::Serialize;

pub(super) mod findings;

use crate::glance::{self, Paper, Tone};
use crate::hint::explained;
use crate::output::{self, Output, count};
use crate::store_arg::StoreArg;
use crate::verbs::{live_scan, scan_arg};

/// Verify scans: read every stored byte, and check it against checksums and account.
///
/// The first line says whether the recording is complete, in the words of
/// `record`: COMPLETE, LOST (how many frames, and why), INCOMPLETE, UNKNOWN. If
/// recorded data is not there any more, it says DAMAGED instead, or NOT ALL HERE if
/// a member is not attached. NOT SEALED means that its recorder died, and NOT INTACT
/// that something else is wrong and every frame can be read. `intact` means that the
/// stored data is as it was written.
///
///   blocks      match the checksums they were written with
///   chunks      are all there, of the right size, each once
///   streams     continue from block to block without a hole that is not in a gap
///   frames      are in the place that their own time says (VDIF); fill is fill
///   account     agrees with index and data when they are counted again
///   manifests   agree on every member
///   parity      is there and matches its checksums: how many more members can fail
///
/// verify names each problem: stream, file, blocks, frames. It sums up many
/// findings of one kind; --verbose lists them all.
///
/// For a device without a file system, give device:PATH?scan=SCAN, or device:PATH
/// for all its scans: verify checks every block against its checksum. It checks
/// bare chunks against a pattern: device:PATH?first=0&last=0xfffe0000&pattern=prbs31.
///
/// For a copy in an object store, give its address, s3://bucket/prefix/SCAN: verify
/// reads every block there, by ranges, and checks it against its checksum.
///
/// For a scan that is being recorded, verify checks the blocks that are durable
/// now. With --follow it also checks new blocks as they become durable, reports
/// problems at once, and verifies the rest when the scan is sealed, without reading
/// all of it again.
///
/// Exit codes: 0 the stored data is intact, and the recording is complete (or, if
/// that cannot be known, no loss is known); 3 the stored data is intact, but the
/// recording is not complete: frames were lost, or the plan is not covered; 1 stored
/// data is damaged or not attached, or the recorder of a scan that was followed died;
/// 2 a scan could not be verified. With several scans the worst counts: 2, 1, 3, 0.
#[derive(ClapArgs)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The scans: `session_scan`, or an unambiguous beginning of the name; or devices; or copies in object
    /// stores.
    #[arg(value_name = "SCAN", required_unless_present = "all")]
    scan: Vec<String>,
    /// All scans of the store that are not being recorded.
    #[arg(long, conflicts_with = "scan")]
    all: bool,
    /// Concurrent reads on each device.
    #[arg(long, value_name = "N", default_value_t = Settings::default().reads_per_device)]
    reads: usize,
    /// Verify a scan as it grows, until it is sealed.
    #[arg(long, conflicts_with = "all")]
    follow: bool,
    /// List every finding, even if many are of one kind.
    #[arg(long)]
    verbose: bool,
    #[command(flatten)]
    store: StoreArg,
}

/// The most concurrent reads on one device: each needs a thread and a block of memory.
const MOST_READS: usize = 64;

/// Runs the command.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    if super::device::are_meant(&args.scan)? {
        return super::device::verify(&args.scan, output);
    }
    if args.scan.iter().any(|text| Address::is_meant(text)) {
        anyhow::ensure!(!args.follow, "--follow is for a scan of a store");
        return super::objects::verify(&args.scan, output);
    }
    let roots = args.store.members()?;
    anyhow::ensure!((1..=MOST_READS).contains(&args.reads), "--reads is 1 to {MOST_READS}");
    let settled = |entry: &Entry| entry.state != catalogue::ScanState::Recording;
    let scans = scan_arg::find_all(&roots, &args.scan, "verified", settled)?;
    let settings = Settings { reads_per_device: args.reads, ..Settings::default() };
    if scans.is_empty() && !output.json {
        output::print("no scans\n")?;
    }
    let work = |scan: &ScanName| one(&roots, scan, args.follow, settings, output);
    let text = |it: &Verification| text(it, args.verbose, Paper::of_stdout());
    scan_arg::each(&scans, output, work, text, judge)
}

/// The exit code: first by the integrity of the stored data, then by the completeness of the recording.
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
    live_scan::settle(&mut follower)?;
    let mut checked = Checked::default();
    if !follower.status().is_over() {
        let begun = Instant::now();
        let bar = scan_arg::meter(output, name);
        let over = along(&mut follower, &mut checked, follow, &bar, output);
        bar.finish_and_clear();
        if !over? {
            return Ok(checked.so_far(follower.scan(), begun.elapsed().as_secs_f64()));
        }
    }
    if follow && follower.status() == FollowState::Died && !output.json {
        output::note(format_args!("{}", live_scan::died(&follower.scan().manifest)));
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

/// Checks the durable data of a scan that is being recorded; with `follow`, until it is over. Returns true if it is
/// over.
fn along(
    follower: &mut Follower,
    checked: &mut Checked,
    follow: bool,
    bar: &ProgressBar,
    output: Output,
) -> anyhow::Result<bool> {
    let mut flows: Vec<FollowCursor> = Vec::new();
    loop {
        let streams = flows.len()..follower.scan().streams.len();
        flows
            .extend(streams.map(|number| FollowCursor::new(number, Settings::beside_a_recorder())));
        for flow in &mut flows {
            while let Some(item) = follower.next(flow).map_err(explained)? {
                if let Item::Block(block) = &item {
                    bar.inc(block.location.block.bytes.into());
                }
                let stream = &follower.scan().streams[flow.number];
                if let Some(finding) = checked.take(stream, item) {
                    tell(finding, follower, bar, output);
                }
            }
        }
        // A scan that has ended now is verified like any other.
        if follower.status() == FollowState::Recording && !follow {
            return Ok(false);
        }
        live_scan::pause(follower)?;
        if follower.status().is_over() {
            return Ok(true);
        }
    }
}

/// A finding on a scan that is being recorded.
#[derive(Serialize)]
struct DiagnosticJson<'a> {
    event: &'static str,
    scan: &'a ScanName,
    finding: &'a Diagnostic,
}

fn tell(finding: &Diagnostic, follower: &Follower, bar: &ProgressBar, output: Output) {
    let scan = &follower.scan().manifest.scan;
    if !output.event(&DiagnosticJson { event: "found", scan, finding }) {
        bar.suspend(|| output::note(format_args!("{scan}: {finding}")));
    }
}

fn text(verification: &Verification, verbose: bool, paper: Paper) -> String {
    let rate = verification.bytes as f64 / verification.seconds.max(1e-9);
    let read = format!(
        "{} in {} of {}, {:.1} s, {}/s",
        ByteSize(verification.bytes),
        count(verification.blocks as usize, "block"),
        count(verification.streams.len(), "stream"),
        verification.seconds,
        ByteSize(rate as u64),
    );
    let scan = &verification.scan;
    let recorded = verification.completeness.as_ref();
    let head = match (verification.good, is_recording(verification), recorded) {
        (true, true, _) => vec![format!("{scan}: being recorded, intact so far: {read}")],
        (false, true, _) => vec![format!("{scan}: being recorded, and NOT INTACT: {read}")],
        (true, false, Some(recorded)) => {
            glance::headline(paper, recorded, &format!("{scan} intact: {read}"))
        }
        (true, false, None) => {
            let title = "UNKNOWN: the scan has no account";
            glance::titled(paper, title, Tone::Doubt, &format!("{scan} intact: {read}"))
        }
        (false, false, recorded) => {
            let recorded =
                recorded.map_or("UNKNOWN: the scan has no account", |it| it.headline.as_str());
            let (title, tone) = harm(verification);
            glance::harmed(paper, &title, tone, recorded, &format!("{scan} read: {read}"))
        }
    };
    let mut text: String = head.into_iter().map(|line| line + "\n").collect();
    text += &streams(&verification.streams, paper);
    text += &verification.redundancy.as_ref().map_or(String::new(), left);
    let blocks = verification.streams.iter().map(|stream| stream.blocks).sum();
    for finding in findings::lines(&verification.findings, Some(blocks), verbose) {
        // Paths and numbers of findings may be copied: they are not wrapped.
        text += &format!("! {finding}\n");
    }
    text + &advice(verification)
}

/// The streams: first those with damaged or absent data, then those that lost frames during recording, then the others.
/// Streams with equal texts share a line.
fn streams(streams: &[StreamResult], paper: Paper) -> String {
    let mut sorted: Vec<&StreamResult> = streams.iter().collect();
    let absent =
        |it: &StreamResult| it.stored.map_or(0, |it| it.expected - it.written.min(it.expected));
    sorted.sort_by_key(|it| Reverse((!it.good, it.lost, absent(it))));
    let told: Vec<(&str, String)> =
        sorted.iter().map(|stream| (stream.name.as_str(), of_stream(stream))).collect();
    let lines = glance::folded(&told).into_iter();
    let lines = lines.flat_map(|line| paper.fact(&line));
    lines.map(|line| line + "\n").collect()
}

/// The first line: the state of the stored data.
fn harm(verification: &Verification) -> (String, Tone) {
    let away = |it: &&Diagnostic| matches!(it.what, DiagnosticKind::MemberAbsent { .. });
    let absent = verification.findings.iter().filter(away).count();
    let lost: u64 = verification.streams.iter().map(|stream| stream.lost).sum();
    let recorded = verification.completeness.as_ref().map_or(0, |it| it.recorded);
    let recorded = counted(recorded, "frame");
    let unreadable = format!("{} of {recorded} recorded cannot be read", grouped(lost));
    let away = count(absent, "member");
    let is = if absent == 1 { "is" } else { "are" };
    match (absent, lost) {
        (0, 0) if verification.state == State::Recording && sender(verification).is_some() => {
            let text = "NOT COMPLETE: a part of this copy has not arrived; what has can be read";
            (text.to_owned(), Tone::Doubt)
        }
        (0, 0) if verification.state == State::Recording => {
            let text = "NOT SEALED: its recorder died; all frames with an index record can be read";
            (text.to_owned(), Tone::Doubt)
        }
        (0, 0) => {
            let text = "NOT INTACT: all recorded frames can be read, but the scan has other damage";
            (text.to_owned(), Tone::Doubt)
        }
        (0, _) => (format!("DAMAGED: {unreadable}"), Tone::Bad),
        (_, 0) => {
            let text = format!(
                "NOT ALL HERE: {away} {is} not attached; all recorded frames can be read without"
            );
            (text, Tone::Doubt)
        }
        (..) => (format!("NOT ALL HERE: {away} {is} not attached; {unreadable}"), Tone::Bad),
    }
}

/// The remaining redundancy.
pub(super) fn left(left: &RedundancyStatus) -> String {
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

/// Advice on the findings.
fn advice(verification: &Verification) -> String {
    let scan = &verification.scan;
    let unsealed = verification.state == State::Recording;
    if is_recording(verification) {
        "  --follow also verifies new blocks, and the account when the scan is sealed\n".to_owned()
    } else if let Some(host) = sender(verification) {
        format!("  `fullbore send` on {host} continues the copy\n")
    } else if unsealed {
        format!("  `fullbore recover {scan}` seals it\n")
    } else if verification.findings.iter().any(Diagnostic::is_of_index) {
        format!("  `fullbore recover {scan} --reindex` rebuilds a lost index from the chunks\n")
    } else if is_behind(&verification.findings) {
        format!("  `fullbore recover {scan}` completes the member that was away\n")
    } else if verification.redundancy.as_ref().is_some_and(is_to_be_rebuilt) {
        format!("  `fullbore rebuild {scan}` restores the lost data from redundancy\n")
    } else {
        String::new()
    }
}

/// True if the scan is still being recorded; otherwise being unsealed is a finding.
fn is_recording(verification: &Verification) -> bool {
    let unsealed = |finding: &Diagnostic| finding.what == DiagnosticKind::Unsealed;
    verification.state == State::Recording
        && !verification.findings.iter().any(unsealed)
        && sender(verification).is_none()
}

/// The host that an incomplete copy comes from.
fn sender(verification: &Verification) -> Option<&str> {
    verification.findings.iter().find_map(|finding| match &finding.what {
        DiagnosticKind::CopyIncomplete { host } => Some(host.as_str()),
        _ => None,
    })
}

/// True if a member was away when the scan was sealed: its manifest is an earlier one, and it has no account.
fn is_behind(findings: &[Diagnostic]) -> bool {
    let lacks_its_account = |member| {
        let mut others = findings.iter().filter(|it| it.member == member);
        others.any(|it| it.what == DiagnosticKind::AccountMissing)
    };
    let differs = |it: &&Diagnostic| matches!(it.what, DiagnosticKind::ManifestDiffers { .. });
    findings.iter().filter(differs).any(|it| lacks_its_account(it.member.clone()))
}

fn is_to_be_rebuilt(left: &RedundancyStatus) -> bool {
    left.lost > 0 || left.unprotected > 0
}

/// A stream: the current state of its blocks, and the recorded frames.
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
        "{} of {} good; recorded {}{of_expected} {}s{lost}{overrun}{unlisted}, {verdict}",
        stream.good_blocks,
        count(stream.blocks as usize, "block"),
        grouped(written),
        stream.unit,
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
            unit: "frame",
        };
        let text = "11 of 11 blocks good; recorded 1000 frames, proven";
        assert_eq!(of_stream(&whole), text);
        let cut = StreamResult { good_blocks: 9, good: false, lost: 180, written: 820, ..whole };
        let text =
            "9 of 11 blocks good; recorded 1000 frames, 180 of them cannot be read now, proven";
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
            unit: "frame",
        };
        let text = "11 of 11 blocks good; recorded 993 of 1000 frames, 7 overrun (the disk is full), \
                    3 gaps counted and not listed, consistent";
        assert_eq!(of_stream(&full), text);
    }

    #[test]
    fn a_member_that_was_away_at_the_seal_is_known_by_its_manifest_and_its_account() {
        let of = |member: &str, what| Diagnostic {
            stream: None,
            member: Some(member.into()),
            file: None,
            frames: None,
            what,
        };
        let differs =
            |member| of(member, DiagnosticKind::ManifestDiffers { believed: "/m0".into() });
        let lacks = |member| of(member, DiagnosticKind::AccountMissing);
        assert!(is_behind(&[differs("/m1"), lacks("/m1")]));
        assert!(!is_behind(&[differs("/m1")]) && !is_behind(&[lacks("/m1")]));
        assert!(!is_behind(&[differs("/m1"), lacks("/m2")]));
    }
}
