//! `fullbore verify`: every block, chunk, index and account of a scan held against the others.

use std::process::ExitCode;

use clap::Args as ClapArgs;
use fullbore_core::manifest::State;
use fullbore_core::name::ScanName;
use fullbore_core::redundancy::Scheme;
use fullbore_core::units::ByteSize;
use fullbore_engine::store::catalogue::Standing;
use fullbore_engine::store::finding::Finding;
use fullbore_engine::store::lock;
use fullbore_engine::store::read::Settings;
use fullbore_engine::store::redundancy::check::Left;
use fullbore_engine::store::verify::{self, StreamResult, Verification};

use crate::output::{self, Output, count};
use crate::store_arg::StoreArg;
use crate::verbs::scan_arg;

/// Verify scans: read all of them, and hold what is stored against itself.
///
///   blocks      have the checksums they were written with
///   chunks      are all there, of the right size, each once
///   streams     go on from block to block without a hole that no gap tells of
///   frames      are where their own time says (VDIF); what is called fill is fill
///   account     says what index and data say when they are counted again
///   manifests   agree on every member
///   parity      is there and has its checksums: how many more members may be lost
///
/// What is wrong is named: stream, file, blocks, frames.
///
/// Of a device without a file system, device:PATH?scan=SCAN or all scans of device:PATH, every block is held
/// against its checksum; bare chunks against a pattern, device:PATH?first=0&last=0xfffe0000&pattern=prbs31.
///
/// Exit codes: 0 all is good; 1 something is not; 2 a scan could not be verified.
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
    let settled = |entry: &_| {
        let entry: &fullbore_engine::store::catalogue::Entry = entry;
        entry.state != Standing::Recording
    };
    let scans = scan_arg::find_all(&roots, &args.scan, "verified", settled)?;
    let settings = Settings { reads_per_device: args.reads, ..Settings::default() };
    if scans.is_empty() && !output.json {
        println!("no scans");
    }
    let judge = |it: &Verification| if it.good { output::GOOD } else { output::FOUND };
    let work = |scan: &ScanName| one(&roots, scan, settings, output);
    scan_arg::each(&scans, output, work, text, judge)
}

fn one(
    roots: &[std::path::PathBuf],
    name: &ScanName,
    settings: Settings,
    output: Output,
) -> anyhow::Result<Verification> {
    let scan = scan_arg::open_scan(roots, name)?;
    anyhow::ensure!(
        !lock::is_held(&scan.inventory.lock_path()),
        "{name} is being recorded\n  it can be verified once it is sealed"
    );
    let bar = scan_arg::bar(output, name);
    let verification = verify::verify(&scan, settings, &|done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    Ok(verification?)
}

fn text(verification: &Verification) -> String {
    let rate = verification.bytes as f64 / verification.seconds.max(1e-9);
    let mut text = format!(
        "{} {}: {} in {} blocks of {} streams, {:.1} s, {}/s\n",
        verification.scan,
        if verification.good { "is good" } else { "is NOT good" },
        ByteSize(verification.bytes),
        verification.blocks,
        verification.streams.len(),
        verification.seconds,
        ByteSize(rate as u64),
    );
    verification.streams.iter().for_each(|stream| text += &of_stream(stream));
    text += &verification.redundancy.as_ref().map_or(String::new(), left);
    for finding in &verification.findings {
        text += &format!("! {finding}\n");
    }
    text + &advice(verification)
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
    if unsealed {
        format!("  `fullbore recover {scan}` seals it\n")
    } else if verification.findings.iter().any(Finding::is_of_index) {
        format!("  `fullbore recover {scan} --reindex` builds a lost index anew from the chunks\n")
    } else if verification.redundancy.as_ref().is_some_and(is_to_be_rebuilt) {
        format!("  `fullbore rebuild {scan}` restores what redundancy makes up for\n")
    } else {
        String::new()
    }
}

fn is_to_be_rebuilt(left: &Left) -> bool {
    left.lost > 0 || left.unprotected > 0
}

fn of_stream(stream: &StreamResult) -> String {
    let recorded = stream.verdict.map_or("no account".into(), |verdict| verdict.to_string());
    let verdict = match stream.good {
        true => recorded,
        false => format!("NOT good (recorded as {recorded})"),
    };
    let absent = stream.absent.map_or(String::new(), |absent| format!(", {absent} absent"));
    let overrun = match stream.stored.map_or(0, |terms| terms.overrun) {
        0 => String::new(),
        frames => {
            let why = stream.why_overrun.as_ref().map_or(String::new(), |why| format!(" ({why})"));
            format!(", {frames} overrun{why}")
        }
    };
    let unlisted = match stream.gaps_unlisted {
        0 => String::new(),
        gaps => format!(", {} counted and not listed", count(gaps as usize, "gap")),
    };
    let lost = match stream.lost {
        0 => String::new(),
        lost => format!(", {lost} of those written cannot be read"),
    };
    format!(
        "  {}: {} of {} blocks good, {} frames written{absent}{overrun}{unlisted}{lost}, {verdict}\n",
        stream.name,
        stream.good_blocks,
        stream.blocks,
        stream.stored.map_or(stream.written, |terms| terms.written),
    )
}

#[cfg(test)]
mod tests {
    use fullbore_core::account::{Terms, Verdict};

    use super::*;

    #[test]
    fn a_stream_that_lost_blocks_is_not_called_what_it_was_recorded_as() {
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
        let text = "  a: 11 of 11 blocks good, 1000 frames written, 0 absent, proven\n";
        assert_eq!(of_stream(&whole), text);
        let cut = StreamResult { good_blocks: 9, good: false, lost: 180, written: 820, ..whole };
        let text = "  a: 9 of 11 blocks good, 1000 frames written, 0 absent, \
                    180 of those written cannot be read, NOT good (recorded as proven)\n";
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
            why_overrun: Some("no member took more: the disk is full".into()),
            gaps_unlisted: 3,
        };
        let text = "  a: 11 of 11 blocks good, 993 frames written, 7 absent, \
                    7 overrun (no member took more: the disk is full), 3 gaps counted and not listed, \
                    consistent\n";
        assert_eq!(of_stream(&full), text);
    }
}
