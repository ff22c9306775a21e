//! `fullbore info`: describes a scan, its places, and its account.

mod context;

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args as ClapArgs;
use fullbore_care::verify;
use fullbore_core::account::Account;
use fullbore_core::completeness::{Completeness, counted, grouped};
use fullbore_core::device::DeviceEnd;
use fullbore_core::manifest::{
    AbsentMember, Copied, Fill, Format, Forwarded, Manifest, State, Stream, Times,
};
use fullbore_core::marker::{Marker, Position};
use fullbore_core::name::{Name, ScanName};
use fullbore_core::redundancy::{Followed, Redundancy};
use fullbore_core::units::{ByteRate, ByteSize};
use fullbore_formats::panda::control::Settings;
use fullbore_linux::clock::Clock;
use fullbore_recording::options::packet_files;
use fullbore_store::copies::{self, Copies, Digest, Receipt};
use fullbore_store::diagnostics::Diagnostic;
use fullbore_store::follow::{Durable, FollowState, Follower, Share};
use fullbore_store::markers;
use fullbore_store::reader::{Scan, StoredStream as Stored};
use fullbore_transfer::objects::Address;
use serde::Serialize;

use crate::account_table::{self, columns};
use crate::glance::{self, Glance, Paper, Tone};
use crate::output::{self, Output, count};
use crate::store_arg::StoreArg;
use crate::verbs::verify::findings;
use crate::verbs::{live_scan, packets, scan_arg};

/// Show a scan: whether it is complete, when and where it was recorded, its account.
///
/// The first line says whether the recording is complete: COMPLETE, LOST (how many
/// frames, and why), INCOMPLETE (a stream never came, began late or ended early, or
/// does not cover the plan), or UNKNOWN (the frames cannot show a loss). Streams
/// that are not complete follow, the worst first, each with its first gaps. The
/// other streams share a line. --full prints everything.
///
/// If files are missing, the first line says NOT ALL HERE and how many blocks cannot
/// be found, and the next one what was recorded. info reads no data: verify does.
///
/// The account balances: expected = written + missing + overrun + damaged + late,
/// in frames.
///
///   missing     did not reach this host
///   overrun     arrived when no block was free, or no member took its block
///   damaged     failed its own check
///   late        arrived after it was counted as missing
///   filled      fill frames in place of frames that are not recorded
///
/// The verdict says how well the account is explained:
///
///   proven        nothing is missing, and no loss counter of this host moved
///   consistent    every frame that is not recorded is counted with its cause, or
///                 nothing is missing although a loss counter moved
///   unexplained   frames are missing, and no counter of this host explains it
///   unproven      the frames carry nothing to count by
///
/// For a packet capture, file:x.pcapng, info lists the UDP ports of its datagrams,
/// with the format of their frames.
///
/// For a device without a file system, give device:PATH?scan=SCAN, or device:PATH
/// for all its scans: info shows their entries in its index.
///
/// For a scan that is being recorded, info shows the durable data and the rate of
/// each stream, the running time, and the data on each member. --follow prints this
/// again at every change (with --json, one line per change) until the scan is
/// sealed.
///
/// Exit codes: 0 the scan was shown, whatever its verdict; 1 the recorder of a scan
/// that was followed died; 2 the scan could not be shown.
#[derive(ClapArgs)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The scan: `session_scan`, or an unambiguous beginning of the name; or one stream of it,
    /// `session_scan/stream`; or a device; or a copy in an object store (`s3://bucket/prefix/SCAN`).
    #[arg(value_name = "SCAN")]
    pub(super) scan: String,
    /// Print everything: each stream's counters, clock, gaps and directories.
    #[arg(long)]
    full: bool,
    /// Number of gaps of each stream to print [default: 10]. Implies --full
    #[arg(long, value_name = "N")]
    gaps: Option<usize>,
    /// Print again as the scan grows, until it is sealed.
    #[arg(long)]
    pub(super) follow: bool,
    #[command(flatten)]
    store: StoreArg,
}

/// The document of `--json`.
#[derive(Serialize)]
struct Info<'a> {
    manifest: &'a Manifest,
    accounts: Vec<Option<&'a Account>>,
    /// The completeness, once each stream has an account.
    #[serde(flatten)]
    completeness: Option<Completeness>,
    places: Vec<Place>,
    recording: bool,
    /// All markers, including those not yet in the manifest, with the positions of the streams.
    markers: &'a [Marker],
    /// Receipts of copies at other sites.
    copies: &'a [CopyJson],
    /// The durable data of a scan that is being recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    live: Option<Live>,
    /// The former directories of members that are not given.
    absent: Vec<&'a PathBuf>,
    findings: &'a [Diagnostic],
}

/// A receipt of a copy.
#[derive(Serialize)]
struct CopyJson {
    #[serde(flatten)]
    receipt: Receipt,
    /// True if it proves the copy to be whole, and equal to the blocks here.
    proven: bool,
    /// The reason why it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// A scan that is being recorded.
#[derive(Clone, Serialize)]
struct Live {
    status: FollowState,
    /// The running time in seconds.
    running_seconds: f64,
    streams: Vec<Durable>,
    members: Vec<Share>,
}

impl Live {
    fn of(follower: &Follower, only: Option<&Name>) -> Self {
        let mut streams = follower.durable();
        streams.retain(|it| only.is_none_or(|name| it.stream == name.as_str()));
        let running = Clock::new().now().since(follower.scan().manifest.armed);
        Self {
            status: follower.status(),
            running_seconds: running as f64 / 1e9,
            streams,
            members: follower.shares(),
        }
    }

    /// True if anything other than the running time has changed.
    fn differs(&self, before: &Live) -> bool {
        self.status != before.status || self.streams != before.streams
    }
}

/// The data of a stream on a member.
#[derive(Serialize)]
struct Place {
    stream: String,
    directory: PathBuf,
    chunks: usize,
    bytes: u64,
}

/// Runs the command.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    if DeviceEnd::is_meant(&args.scan) {
        return super::device::info(&args.scan, output);
    }
    if packet_files::is_meant(&args.scan) {
        return packets::info(&args.scan, output);
    }
    if Address::is_meant(&args.scan) {
        return super::objects::info(&args, output);
    }
    show(&args, &args.store.members()?, &args.scan, None, output)
}

/// Shows a scan under these roots. Files of a copy in an object store are shown with its address in place of the root.
pub(super) fn show(
    args: &Args,
    roots: &[PathBuf],
    scan: &str,
    address: Option<&str>,
    output: Output,
) -> anyhow::Result<ExitCode> {
    let (mut follower, stream) = live_scan::open(roots, scan)?;
    if args.follow {
        follow(&mut follower, stream.as_ref(), output)?;
    }
    let status = follower.status();
    let live = (!status.is_over()).then(|| Live::of(&follower, stream.as_ref()));
    let mut scan = follower.into_scan();
    let copies = copies_of(&mut scan);
    if let Some(stream) = stream {
        keep_only(&mut scan, stream.as_str())?;
    }
    let markers = placed(&scan, live.is_some());
    let info = Info {
        manifest: &scan.manifest,
        accounts: scan.streams.iter().map(|stream| stream.account.as_ref()).collect(),
        completeness: verify::completeness(&scan),
        places: places(&scan, address),
        recording: live.is_some(),
        live,
        markers: &markers,
        copies: &copies,
        absent: scan.inventory.absent_members().into_iter().map(|member| &member.path).collect(),
        findings: &scan.findings,
    };
    let full = args.full || args.gaps.is_some();
    output.tell(&info, || {
        let text = match full {
            true => in_full(&scan, &info, args.gaps.unwrap_or(GAPS)),
            false => in_short(&scan, &info, Paper::of_stdout()),
        };
        match (address, roots) {
            (Some(address), [root]) => text.replace(&root.display().to_string(), address),
            _ => text,
        }
    })?;
    if args.follow && status == FollowState::Died {
        output::note(format_args!("{}", live_scan::died(&scan.manifest)));
        return Ok(ExitCode::from(output::FOUND));
    }
    Ok(ExitCode::from(output::GOOD))
}

/// A change, as a line of JSON.
#[derive(Serialize)]
struct Change<'a> {
    event: &'static str,
    scan: &'a ScanName,
    #[serde(flatten)]
    live: &'a Live,
}

/// Prints the state of a growing scan until it is over: in place on a terminal, else one text after another.
fn follow(follower: &mut Follower, only: Option<&Name>, output: Output) -> anyhow::Result<()> {
    let in_place = io::stdout().is_terminal() && !output.json;
    let (mut told, mut lines): (Option<Live>, usize) = (None, 0);
    while !follower.status().is_over() {
        let live = Live::of(follower, only);
        let since = told.as_ref().map_or(f64::MAX, |it| live.running_seconds - it.running_seconds);
        let changed = told.as_ref().is_none_or(|it| live.differs(it));
        if (changed && since >= REFRESH_SECONDS) || (in_place && since >= 1.0) {
            let scan = &follower.scan().manifest.scan;
            let change = Change { event: "durable", scan, live: &live };
            let above = if in_place && lines > 0 { back_over(lines) } else { String::new() };
            let text = format!("{scan} {}\n", growing(&live, &follower.scan().manifest));
            lines = text.lines().count();
            output.tell(&change, || above + &text)?;
            told = Some(live);
        }
        live_scan::pause(follower)?;
    }
    if in_place && lines > 0 {
        output::print(&back_over(lines))?;
    }
    Ok(())
}

/// The shortest time between two updates.
const REFRESH_SECONDS: f64 = 0.2;

/// The control sequence that moves the cursor up by this number of lines and erases them.
fn back_over(lines: usize) -> String {
    format!("\x1b[{lines}F\x1b[J")
}

/// The progress of a scan that is being recorded, or received. How long a copy has been on its way, and the rate of
/// its frames, are unknown.
fn growing(live: &Live, manifest: &Manifest) -> String {
    let bytes = ByteSize(live.streams.iter().map(|it| it.bytes).sum());
    let rate = ByteRate(live.streams.iter().filter_map(|it| it.rate).map(|it| it.0).sum());
    let seconds = live.running_seconds;
    let mut text = match (manifest.incomplete_copy(), live.status) {
        (Some(copied), _) => {
            format!("is being received from {}: {bytes} durable\n", copied.host)
        }
        (None, FollowState::Sealing) => {
            format!("is being sealed after {seconds:.1} s: {bytes} durable, {rate}\n")
        }
        (None, _) => {
            format!("has been recorded for {seconds:.1} s: {bytes} durable, {rate}\n")
        }
    };
    let heading = ["stream", "blocks", "durable", "rate", "absent", "last block"];
    let row = |it: &Durable| {
        let unknown = || "–".to_owned();
        let absent = it.absent.map_or_else(unknown, |frames| frames.to_string());
        let rate = it.rate.map_or_else(unknown, |rate| rate.to_string());
        let last = it.last.map_or_else(unknown, |last| format!("{last:.3}"));
        vec![
            it.stream.clone(),
            it.blocks.to_string(),
            ByteSize(it.bytes).to_string(),
            rate,
            absent,
            last,
        ]
    };
    let heading = heading.map(str::to_owned).to_vec();
    let rows: Vec<_> = std::iter::once(heading).chain(live.streams.iter().map(row)).collect();
    text += &indented(&columns(&rows, 1));
    let heading = ["member", "blocks", "durable"].map(str::to_owned).to_vec();
    let row = |it: &Share| {
        vec![it.member.display().to_string(), it.blocks.to_string(), ByteSize(it.bytes).to_string()]
    };
    let rows: Vec<_> = std::iter::once(heading).chain(live.members.iter().map(row)).collect();
    text + &indented(&columns(&rows, 1))
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

/// Leaves out all streams but one. The lists of the manifest and of the scan have the same order.
fn keep_only(scan: &mut Scan, name: &str) -> anyhow::Result<()> {
    scan_arg::stream(scan, name)?;
    scan.manifest.streams.retain(|stream| stream.name.as_str() == name);
    scan.streams.retain(|stream| stream.name == name);
    scan.findings.retain(|finding| finding.stream.as_ref().is_none_or(|of| of == name));
    Ok(())
}

fn places(scan: &Scan, address: Option<&str>) -> Vec<Place> {
    let shown = |path: &Path| match (address, path.file_name()) {
        (Some(address), Some(name)) => Path::new(address).join(name),
        _ => path.to_owned(),
    };
    let place = |stream: &Stored| {
        let name = stream.name.clone();
        scan.inventory.of_stream(stream.number).map(move |holding| Place {
            stream: name.clone(),
            directory: shown(&holding.path),
            chunks: holding.chunks.len(),
            bytes: holding.chunks.iter().map(|(_, file)| file.bytes).sum(),
        })
    };
    scan.streams.iter().flat_map(place).collect()
}

/// The default number of gaps printed for each stream.
const GAPS: usize = 10;

/// Markers and findings printed; further ones are only counted.
const LISTED: usize = 5;

/// The short form: completeness, problems, place.
fn in_short(scan: &Scan, info: &Info<'_>, paper: Paper) -> String {
    let manifest = &scan.manifest;
    let facts = facts(scan, info);
    let listed = |facts: &[String]| -> String {
        let lines = facts.iter().flat_map(|fact| paper.fact(fact));
        lines.map(|line| line + "\n").collect()
    };
    let mut text = match (&info.live, &info.completeness) {
        (Some(live), _) => {
            format!("{} {}{}", manifest.scan, growing(live, manifest), listed(&facts))
        }
        (None, Some(completeness)) => {
            let streams = scan.streams.iter().filter_map(|stream| {
                let account = stream.account.as_ref()?;
                let time_of = Box::new(|index| stream.time_of(index));
                Some(glance::Stream { name: &stream.name, account, time_of })
            });
            let missing = missing(scan);
            let glance = Glance { manifest, completeness, missing, streams: streams.collect() };
            glance.text(paper, &facts)
        }
        (None, None) => format!("{} {}\n{}", manifest.scan, status(info), listed(&facts)),
    };
    let findings = findings::lines(&scan.findings, None, false);
    for finding in findings.iter().take(LISTED) {
        for line in paper.hanging("! ", finding, Tone::Doubt) {
            text += &format!("{line}\n");
        }
    }
    if findings.len() > LISTED {
        let more = count(findings.len() - LISTED, "more finding");
        text += &format!("! {more}: `fullbore verify {}` checks the scan\n", manifest.scan);
    }
    text
}

/// The blocks that are missing now, in words, if there are any: the account says only what was recorded.
fn missing(scan: &Scan) -> Option<String> {
    let streams = scan.streams.iter().filter(|stream| stream.missing_blocks() > 0).count();
    let sum = |of: fn(&Stored) -> u64| scan.streams.iter().map(of).sum::<u64>();
    (streams > 0).then(|| {
        let have = if streams == 1 { "has" } else { "have" };
        let of_streams = format!("{streams} of {}", count(scan.streams.len(), "stream"));
        let blocks = counted(sum(Stored::recorded_blocks), "block");
        let missing = grouped(sum(Stored::missing_blocks));
        format!(
            "NOT ALL HERE: {of_streams} {have} files missing, {missing} of {blocks} cannot be found"
        )
    })
}

/// The facts about streams, times, places and markers; equal facts are printed once.
fn facts(scan: &Scan, info: &Info<'_>) -> Vec<String> {
    let manifest = &scan.manifest;
    let each: Vec<(&str, String)> =
        manifest.streams.iter().map(|it| (it.name.as_str(), layout(it))).collect();
    let mut facts = glance::folded(&each);
    facts.extend(sources(manifest));
    facts.extend(engines(manifest));
    let stopped = manifest.stopped.map_or("(not stopped)".into(), |time| format!("{time:.3}"));
    let by = manifest.times.map_or("", times);
    facts.push(format!(
        "recorded {:.3} – {stopped} on {} by {}{by}",
        manifest.armed, manifest.host, manifest.software
    ));
    facts.extend(members(manifest, info));
    if info.live.is_some() {
        // Chunk files have their full size from the beginning, so sizes come from the index.
        let bytes: u64 = info.places.iter().map(|place| place.bytes).sum();
        facts.push(format!("{} of disk space set aside", ByteSize(bytes)));
    }
    facts.extend(manifest.away.iter().map(|it| format!("away: {}: {}", it.path.display(), it.why)));
    let parity = manifest.redundancy.map(|it| redundancy(&it, manifest.bytes()));
    facts.extend(parity.map(|it| it.split_whitespace().collect::<Vec<_>>().join(" ")));
    let marks = info.markers.iter().take(LISTED);
    facts.extend(marks.map(|it| format!("mark {:.3} {}", it.time, it.text)));
    if info.markers.len() > LISTED {
        facts.push(format!("{} are in --full", count(info.markers.len() - LISTED, "more mark")));
    }
    facts.extend(manifest.forwarded.iter().take(LISTED).map(forwarded));
    if manifest.forwarded.len() > LISTED {
        let more = count(manifest.forwarded.len() - LISTED, "more stream");
        facts.push(format!("{more} sent on are in --json"));
    }
    facts.extend(info.copies.iter().take(LISTED).map(copied));
    if info.copies.len() > LISTED {
        let more = info.copies.len() - LISTED;
        facts.push(format!("receipts of {more} more copies are in --full"));
    }
    facts
}

/// The sources of the streams; sources that differ only in the stream's name are printed once.
fn sources(manifest: &Manifest) -> Vec<String> {
    const NAME: char = '\u{0}';
    let mut alike: Vec<(String, Vec<&str>)> = Vec::new();
    for stream in &manifest.streams {
        let name = stream.name.as_str();
        let source = stream.source.replacen(name, &NAME.to_string(), 1);
        match alike.iter_mut().find(|(other, _)| *other == source) {
            Some((_, names)) => names.push(name),
            None => alike.push((source, vec![name])),
        }
    }
    let told = |(source, names): (String, Vec<&str>)| {
        format!("from {}", source.replace(NAME, &glance::ranges(&names, LISTED)))
    };
    alike.into_iter().map(told).collect()
}

/// How the sources were received, if not simply from their sockets: each way once.
fn engines(manifest: &Manifest) -> Vec<String> {
    let setup = manifest.host_setup.iter();
    let mut told: Vec<String> = setup.flat_map(|it| &it.engines).map(ToString::to_string).collect();
    told.dedup();
    told
}

/// The place of the data, and each member with a problem.
fn members(manifest: &Manifest, info: &Info<'_>) -> Vec<String> {
    let mut roots: Vec<(&Path, u64)> = Vec::new();
    for Place { directory, bytes, .. } in &info.places {
        let root = directory.parent().unwrap_or(directory);
        match roots.iter_mut().find(|(known, _)| *known == root) {
            Some((_, sum)) => *sum += bytes,
            None => roots.push((root, *bytes)),
        }
    }
    let size = |(root, bytes): &(&Path, u64)| format!("{} ({})", root.display(), ByteSize(*bytes));
    let each: Vec<String> = roots.iter().map(size).collect();
    let mut facts = vec![format!("on {}: {}", count(each.len(), "member"), each.join(", "))];
    for member in &manifest.members {
        let absent = info.absent.contains(&&member.path).then(|| "NOT ATTACHED".to_owned());
        let buffered = member.buffered.then(|| "through the page cache".to_owned());
        let problems: Vec<String> =
            absent.into_iter().chain(member.failure.clone()).chain(buffered).collect();
        if !problems.is_empty() {
            facts.push(format!("member {}: {}", member.path.display(), problems.join(", ")));
        }
    }
    facts
}

/// The full form: everything known about a scan.
fn in_full(scan: &Scan, info: &Info<'_>, gaps: usize) -> String {
    let manifest = &scan.manifest;
    let mut text = String::new();
    if let Some(missing) = missing(scan).filter(|_| info.live.is_none()) {
        text += &format!("{}\n", Paper::of_stdout().styled(&missing, Tone::Bad));
    }
    if let Some(completeness) = info.completeness.as_ref() {
        text += &glance::coloured(completeness);
        text += &format!("\n  {}\n", completeness.explanation);
    }
    text += &match &info.live {
        Some(live) => format!("{} {}", manifest.scan, growing(live, manifest)),
        None => format!("{} {}\n", manifest.scan, status(info)),
    };
    let stopped = manifest.stopped.map_or("(not stopped)".into(), |time| format!("{time:.3}"));
    let by = manifest.times.map_or("", times);
    text += &format!("  recorded  {:.3} – {stopped} on {}{by}\n", manifest.armed, manifest.host);
    text += &format!("  software  {}\n", manifest.software);
    text += &format!("  identity  {}\n", manifest.uuid);
    if let Some(Copied { host, completed: Some(completed), .. }) = &manifest.copied {
        text += &format!("  copied    from {host}, complete at {completed:.3}\n");
    }
    for engine in engines(manifest) {
        text += &format!("  engine    {engine}\n");
    }
    for finding in manifest.host_setup.iter().flat_map(|it| &it.findings) {
        if finding.costs_frames {
            text += &format!("  host      {}: {}\n", finding.subject, finding.found);
        }
    }
    let streams = count(manifest.streams.len(), "stream");
    let bytes: u64 = info.places.iter().map(|place| place.bytes).sum();
    text += &match &info.live {
        // Chunk files have their full size from the beginning.
        Some(live) => {
            let durable: u64 = live.streams.iter().map(|it| it.bytes).sum();
            let (durable, bytes) = (ByteSize(durable), ByteSize(bytes));
            format!("  size      {durable} durable in {streams}, {bytes} of disk space set aside\n")
        }
        None if manifest.state == State::Recording => {
            let written = ByteSize(scan.streams.iter().map(Stored::bytes).sum());
            let bytes = ByteSize(bytes);
            format!("  size      {written} written in {streams}, {bytes} of disk space set aside\n")
        }
        None => format!("  size      {} in {streams}\n", ByteSize(bytes)),
    };
    for member in &manifest.members {
        let failure = member.failure.as_ref().map_or(String::new(), |why| format!(", {why}"));
        let buffered = if member.buffered { ", through the page cache" } else { "" };
        let absent = if info.absent.contains(&&member.path) { ", ABSENT" } else { "" };
        text += &format!(
            "  member    {} at {}{buffered}{failure}{absent}\n",
            member.uuid,
            member.path.display()
        );
    }
    for AbsentMember { path, why, .. } in &manifest.away {
        text += &format!("  away      {}: {why}\n", path.display());
    }
    text += &manifest.redundancy.map_or(String::new(), |it| redundancy(&it, manifest.bytes()));
    text.push('\n');
    for stream in &manifest.streams {
        text += &described(stream);
        text += &scan.stream(stream.name.as_str()).map_or_else(String::new, came);
    }
    text += &context::changes(scan);
    text.push('\n');
    text += &columns(&places_table(&info.places), 2);
    text.push('\n');
    text += &info.markers.iter().map(marked).collect::<String>();
    for copy in info.copies {
        text += &format!(
            "  {}, key {}, digest {}\n",
            copied(copy),
            copy.receipt.key,
            copy.receipt.digest
        );
    }
    text += &accounts(scan, gaps);
    for finding in &scan.findings {
        text += &format!("! {finding}\n");
    }
    text
}

/// Returns the receipts beside a scan, each checked against its blocks. Files that cannot be read are added to the
/// findings.
fn copies_of(scan: &mut Scan) -> Vec<CopyJson> {
    let Copies { receipts, findings } = copies::of_scan(&scan.inventory);
    scan.findings.extend(findings);
    if receipts.is_empty() {
        return Vec::new();
    }
    let digest = Digest(copies::digest_of(scan));
    let check = |receipt: Receipt| {
        let why = copies::judge(scan, &digest, &receipt).err().map(|why| why.to_string());
        CopyJson { receipt, proven: why.is_none(), why }
    };
    receipts.into_iter().map(check).collect()
}

fn copied(copy: &CopyJson) -> String {
    let CopyJson { receipt, why, .. } = copy;
    let whether = match why {
        None => "proven".to_owned(),
        Some(why) => format!("NOT PROVEN: {why}"),
    };
    let (host, at, bytes) = (&receipt.host, receipt.at, ByteSize(receipt.bytes));
    format!("copy on {host} since {at:.3}, {bytes}, {whether}")
}

/// A stream that was sent on. The manifest of a copy may quote anything.
fn forwarded(it: &Forwarded) -> String {
    let Forwarded { stream, to, sent, skipped, refused, reconnects } = it;
    let again = match reconnects {
        0 => String::new(),
        times => format!(", connected again {}", count(*times as usize, "time")),
    };
    let line = format!(
        "{stream} sent on to {to}: {sent} frames sent, {skipped} skipped, {refused} refused{again}"
    );
    line.chars().map(|it| if it.is_control() { '\u{fffd}' } else { it }).collect()
}

/// All markers of the shown streams, with the positions of the streams as far as they are known.
fn placed(scan: &Scan, recording: bool) -> Vec<Marker> {
    let mut markers = scan.inventory.markers.clone();
    for marker in &mut markers {
        markers::place(scan, marker, recording);
        let shown = |position: &Position| scan.stream(position.stream.as_str()).is_some();
        marker.positions.retain(shown);
    }
    markers
}

/// A marker: time, text, and the position of each stream.
fn marked(marker: &Marker) -> String {
    let mut text = format!("mark {:.3} {}\n", marker.time, marker.text);
    for Position { stream, frame, byte } in &marker.positions {
        text += &format!("  {stream}: frame {frame}, byte {byte}\n");
    }
    text
}

fn status(info: &Info<'_>) -> String {
    if let Some(copied) = info.manifest.incomplete_copy() {
        let host = &copied.host;
        return match info.recording {
            true => format!("is being received from {host}"),
            false => {
                format!("is an incomplete copy from {host}: `fullbore send` there continues it")
            }
        };
    }
    match info.manifest.state {
        State::Recording if info.recording => "is being recorded",
        State::Recording => "was never sealed: run `fullbore recover`",
        State::Sealed => "is sealed",
        State::Aborted => "is sealed, by an abort",
        State::Recovered => "is sealed, by recover",
    }
    .to_owned()
}

/// The redundancy of a scan.
fn redundancy(redundancy: &Redundancy, data_bytes: u64) -> String {
    let scheme = redundancy.scheme();
    let Some(followed) = redundancy.followed else {
        return format!(
            "  parity    {scheme}, not complete: `fullbore verify` shows how much of it exists\n"
        );
    };
    let factor = followed.factor(data_bytes);
    let Followed { stripes, chunks, unprotected, narrow, bytes, most_behind, after_ms } = followed;
    let narrow = match narrow {
        0 => String::new(),
        stripes => format!(", {} TOO NARROW", count(stripes as usize, "stripe")),
    };
    let without = match unprotected {
        0 => String::new(),
        chunks => format!(", {} WITHOUT", count(chunks as usize, "chunk")),
    };
    let rebuilt = match redundancy.rebuilt {
        0 => String::new(),
        times => format!(", rebuilt {}", count(times as usize, "time")),
    };
    format!(
        "  parity    {scheme}: {} for {} ({factor:.2}×), {} in {}{narrow}{without}; at most {} behind, complete {:.1} s after the end{rebuilt}\n",
        ByteSize(bytes),
        ByteSize(data_bytes),
        count(chunks as usize, "chunk"),
        count(stripes as usize, "stripe"),
        count(most_behind as usize, "chunk"),
        after_ms as f64 / 1000.0,
    )
}

/// The origin of the recording times, if the recorder's own record is lost.
fn times(times: Times) -> &'static str {
    match times {
        Times::Received => ", times of arrival of the first and the last frame",
        Times::Frames => ", times in the first and the last frame",
        Times::Files => ", times of the chunk files (no other source)",
    }
}

/// The format of a stream's frames, and of their fill.
fn layout(stream: &Stream) -> String {
    let frames = match stream.geometry.map(|geometry| geometry.frame_bytes) {
        None => "no frames".to_owned(),
        Some(0) => "frames of varying length".to_owned(),
        Some(1) if stream.is_of_bytes() => "bytes".to_owned(),
        Some(bytes) => format!("frames of {bytes} bytes"),
    };
    let format = match &stream.format {
        Format::Frames { kind, frames_per_second, derived, threads } => {
            let rate = match frames_per_second {
                Some(rate) if *derived => format!(", {rate} a second (derived)"),
                Some(rate) => format!(", {rate} a second"),
                None => String::new(),
            };
            let threads: Vec<String> = threads.iter().map(u16::to_string).collect();
            let threads = match threads.is_empty() {
                true => "threads in order of arrival".to_owned(),
                false => format!("threads {}", threads.join(" ")),
            };
            format!("{}, {frames}{rate}, {threads}", kind.title())
        }
        Format::Panda { ending, captured, .. } => {
            let samples = stream.geometry.map_or(0, |geometry| geometry.frame_bytes);
            let ending =
                ending.as_ref().map_or_else(|| "not ended".to_owned(), ToString::to_string);
            let captured =
                captured.map_or_else(String::new, |n| format!(", {n} taken by the PandA"));
            format!("PandA, samples of {samples} bytes, {ending}{captured}")
        }
        Format::Packets { kind } => format!("{}, packets of varying length", kind.title()),
        Format::Raw => format!("raw, {frames}"),
    };
    let fill = match stream.fill {
        Fill::Invalid => "filled with invalid frames".to_owned(),
        Fill::Pattern(word) => format!("filled with 0x{word:08x}"),
        Fill::Omit => "in order of arrival, not filled".to_owned(),
    };
    let samples =
        stream.samples.as_ref().map_or_else(String::new, |samples| format!(", {samples}"));
    format!("{format}, {fill}{samples}")
}

fn described(stream: &Stream) -> String {
    let settings = match &stream.format {
        Format::Panda { settings: Some(settings), .. } => set_to(settings),
        _ => String::new(),
    };
    let layout = layout(stream);
    format!("  {}: {layout}\n    from {}\n{settings}", stream.name, stream.source)
}

/// The arrival of its first and last frame at this host. Compared with the scan's times, they show a stream that came
/// late or ended early.
fn came(stream: &Stored) -> String {
    let account = stream.account.as_ref();
    match account.and_then(|it| Some((it.first?.seen, it.last?.seen))) {
        Some((first, last)) => format!("    came {first:.3} – {last:.3}\n"),
        None => String::new(),
    }
}

/// A summary of the settings: identity, captured fields, and the number of settings.
fn set_to(settings: &Settings) -> String {
    let Settings { identity, capture, config, attributes, tables, left_out, .. } = settings;
    let left_out = match left_out.as_slice() {
        [] => String::new(),
        names => format!("; {} were too long to keep", names.join(", ")),
    };
    let text = format!(
        "    {identity}\n    captures {}\n    {} and {} are kept{left_out}: --json lists them\n",
        capture.join(", "),
        count(config.len() + attributes.len(), "setting"),
        count(tables.len(), "table")
    );
    // Removes control characters from a PandA's text.
    text.chars().filter(|c| *c == '\n' || !c.is_control()).collect()
}

fn places_table(places: &[Place]) -> Vec<Vec<String>> {
    let heading = ["stream", "directory", "chunks", "size"].map(str::to_owned).to_vec();
    let row = |place: &Place| {
        let directory = place.directory.display().to_string();
        let size = ByteSize(place.bytes).to_string();
        vec![place.stream.clone(), directory, place.chunks.to_string(), size]
    };
    let used = places.iter().filter(|place| place.chunks > 0);
    std::iter::once(heading).chain(used.map(row)).collect()
}

fn accounts(scan: &Scan, gaps: usize) -> String {
    let known: Vec<_> =
        scan.streams.iter().filter_map(|stream| Some((stream, stream.account.as_ref()?))).collect();
    if known.is_empty() {
        return "no account yet\n".into();
    }
    let named = known.iter().map(|(stream, account)| (stream.name.as_str(), *account));
    let mut text = account_table::table(named);
    for (stream, account) in &known {
        let time_of = |index: i64| stream.time_of(index);
        text += &account_table::details(&stream.name, account, time_of, gaps);
    }
    let mut counted: Vec<_> = known.iter().map(|(_, account)| account.counted_by).collect();
    counted.dedup();
    for by in counted {
        text += &format!("counted by {}\n", account_table::counted_by(by));
    }
    text
}
