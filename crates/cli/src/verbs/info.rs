//! `fullbore info`: what a scan is, where it lies, and what its account says.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args as ClapArgs;
use fullbore_core::account::Account;
use fullbore_core::completeness::Completeness;
use fullbore_core::device::DeviceEnd;
use fullbore_core::format::panda::control::Settings;
use fullbore_core::manifest::{Away, Fill, Format, Manifest, State, Stream, Times};
use fullbore_core::marker::{Marker, Position};
use fullbore_core::name::{Name, ScanName};
use fullbore_core::redundancy::{Followed, Redundancy};
use fullbore_core::units::{ByteRate, ByteSize};
use fullbore_engine::clock::Clock;
use fullbore_engine::store::finding::Finding;
use fullbore_engine::store::follow::{Durable, Follower, Share, Standing};
use fullbore_engine::store::markers;
use fullbore_engine::store::reader::{Scan, Stream as Stored};
use fullbore_engine::store::verify;
use serde::Serialize;

use crate::account_table::{self, columns};
use crate::output::{self, Output, count};
use crate::store_arg::StoreArg;
use crate::verbs::{following, scan_arg};

/// Tell what a scan is, when it was, where it lies, and what its account says.
///
/// The account balances: expected = written + missing + overrun + damaged + late,
/// in frames.
///
///   missing     never reached this host
///   overrun     reached it with no block free, or no member would take its block
///   damaged     failed its own check
///   late        came after its place was written
///   filled      in the recording, in the place of those that are not there
///
/// Of each stream it also tells which counters of this host moved, how full the
/// block memory was at most, the longest write, the gaps with their cause, and
/// whether the stream was there all the time.
///
/// The first line says whether the recording is complete: COMPLETE, LOST so many
/// frames and why, INCOMPLETE (a stream never came, lacks an end, or does not cover
/// what was planned), or UNKNOWN (nobody can say). The second line says how well
/// that is explained:
///
///   proven        nothing is missing, and no loss counter of this host moved
///   consistent    each frame that is not recorded is counted with its cause, or
///                 none is missing and a loss counter moved all the same
///   unexplained   something is missing, and nothing on this host says why
///   unproven      there is nothing to count by
///
/// Of a device without a file system, device:PATH?scan=SCAN or all scans of device:PATH, what its index says.
///
/// Of a scan that is being recorded it tells what of each stream is durable, at which rate it comes, for how long it
/// has been running, and what each member has got. --follow tells it again whenever it has changed (with --json, a
/// line for each change), until the scan is sealed.
///
/// Exit codes: 0 it was told, whatever the verdict; 1 it was followed, and its recorder died; 2 it could not be.
#[derive(ClapArgs)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The scan: `session_scan`, or as much of its name as tells it from others; or one stream of it,
    /// `session_scan/stream`; or a device.
    #[arg(value_name = "SCAN")]
    scan: String,
    /// How many gaps of each stream to show.
    #[arg(long, value_name = "N", default_value_t = 10)]
    gaps: usize,
    /// Tell it again as a scan that is being recorded grows, until it is sealed.
    #[arg(long)]
    follow: bool,
    #[command(flatten)]
    store: StoreArg,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Info<'a> {
    manifest: &'a Manifest,
    accounts: Vec<Option<&'a Account>>,
    /// Whether it is complete, once each stream has an account.
    #[serde(flatten)]
    completeness: Option<Completeness>,
    places: Vec<Place>,
    recording: bool,
    /// What was marked, also what is not yet in the manifest, with where the streams were.
    markers: &'a [Marker],
    /// What is durable, while it is recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    live: Option<Live>,
    /// Where the members were that are not given.
    absent: Vec<&'a PathBuf>,
    findings: &'a [Finding],
}

/// A scan that is being recorded.
#[derive(Clone, Serialize)]
struct Live {
    standing: Standing,
    /// For how long.
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
            standing: follower.standing(),
            running_seconds: running as f64 / 1e9,
            streams,
            members: follower.shares(),
        }
    }

    /// Whether something is another than it was; that time goes by is none.
    fn differs(&self, before: &Live) -> bool {
        self.standing != before.standing || self.streams != before.streams
    }
}

/// What a member holds of a stream.
#[derive(Serialize)]
struct Place {
    stream: String,
    directory: PathBuf,
    chunks: usize,
    bytes: u64,
}

/// Tells.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    if DeviceEnd::is_meant(&args.scan) {
        return super::device::info(&args.scan, output);
    }
    let (mut follower, stream) = following::open(&args.store.members()?, &args.scan)?;
    if args.follow {
        follow(&mut follower, stream.as_ref(), output)?;
    }
    let standing = follower.standing();
    let live = (!standing.is_over()).then(|| Live::of(&follower, stream.as_ref()));
    let mut scan = follower.into_scan();
    if let Some(stream) = stream {
        keep_only(&mut scan, stream.as_str())?;
    }
    let markers = placed(&scan, live.is_some());
    let info = Info {
        manifest: &scan.manifest,
        accounts: scan.streams.iter().map(|stream| stream.account.as_ref()).collect(),
        completeness: verify::completeness(&scan),
        places: places(&scan),
        recording: live.is_some(),
        live,
        markers: &markers,
        absent: scan.inventory.absent_members().into_iter().map(|member| &member.path).collect(),
        findings: &scan.findings,
    };
    output.tell(&info, || text(&scan, &info, args.gaps))?;
    if args.follow && standing == Standing::Died {
        eprintln!("fullbore: {}", following::died(&scan.manifest.scan));
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

/// Tells how a scan grows, until it is over: on a terminal in one place, else one text behind the other.
fn follow(follower: &mut Follower, only: Option<&Name>, output: Output) -> anyhow::Result<()> {
    let in_place = io::stdout().is_terminal() && !output.json;
    let (mut told, mut lines): (Option<Live>, usize) = (None, 0);
    while !follower.standing().is_over() {
        let live = Live::of(follower, only);
        let since = told.as_ref().map_or(f64::MAX, |it| live.running_seconds - it.running_seconds);
        let changed = told.as_ref().is_none_or(|it| live.differs(it));
        if (changed && since >= REFRESH_SECONDS) || (in_place && since >= 1.0) {
            let scan = &follower.scan().manifest.scan;
            let change = Change { event: "durable", scan, live: &live };
            let above = if in_place && lines > 0 { back_over(lines) } else { String::new() };
            let text = format!("{scan} {}\n", growing(&live));
            lines = text.lines().count();
            output.tell(&change, || above + &text)?;
            told = Some(live);
        }
        following::pause(follower)?;
    }
    if in_place && lines > 0 {
        print!("{}", back_over(lines));
    }
    Ok(())
}

/// Changes are told so far apart at least.
const REFRESH_SECONDS: f64 = 0.2;

/// Takes the cursor back to where so many lines began, and wipes them.
fn back_over(lines: usize) -> String {
    format!("\x1b[{lines}F\x1b[J")
}

/// How far a scan is that is being recorded.
fn growing(live: &Live) -> String {
    let what =
        if live.standing == Standing::Sealing { "is being sealed" } else { "is being recorded" };
    let bytes: u64 = live.streams.iter().map(|it| it.bytes).sum();
    let rate: u64 = live.streams.iter().filter_map(|it| it.rate).map(|it| it.0).sum();
    let mut text = format!(
        "{what} for {:.1} s: {} durable, {}\n",
        live.running_seconds,
        ByteSize(bytes),
        ByteRate(rate)
    );
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

/// Leaves out all streams but one. The manifest's list and the scan's are of one order.
fn keep_only(scan: &mut Scan, name: &str) -> anyhow::Result<()> {
    scan_arg::stream(scan, name)?;
    scan.manifest.streams.retain(|stream| stream.name.as_str() == name);
    scan.streams.retain(|stream| stream.name == name);
    scan.findings.retain(|finding| finding.stream.as_ref().is_none_or(|of| of == name));
    Ok(())
}

fn places(scan: &Scan) -> Vec<Place> {
    let place = |stream: &Stored| {
        let name = stream.name.clone();
        scan.inventory.of_stream(stream.number).map(move |holding| Place {
            stream: name.clone(),
            directory: holding.path.clone(),
            chunks: holding.chunks.len(),
            bytes: holding.chunks.iter().map(|(_, file)| file.bytes).sum(),
        })
    };
    scan.streams.iter().flat_map(place).collect()
}

fn text(scan: &Scan, info: &Info<'_>, gaps: usize) -> String {
    let manifest = &scan.manifest;
    let mut text = String::new();
    if let Some(completeness) = info.completeness.as_ref() {
        let Completeness { headline, explanation, .. } = completeness;
        text += &format!("{}: {headline}\n  {explanation}\n", manifest.scan);
    }
    text += &match &info.live {
        Some(live) => format!("{} {}", manifest.scan, growing(live)),
        None => format!("{} {}\n", manifest.scan, standing(info)),
    };
    let stopped = manifest.stopped.map_or("(not stopped)".into(), |time| format!("{time:.3}"));
    let by = manifest.times.map_or("", times);
    text += &format!("  recorded  {:.3} – {stopped} on {}{by}\n", manifest.armed, manifest.host);
    text += &format!("  software  {}\n", manifest.software);
    text += &format!("  identity  {}\n", manifest.uuid);
    let streams = count(manifest.streams.len(), "stream");
    let bytes: u64 = info.places.iter().map(|place| place.bytes).sum();
    text += &match &info.live {
        // Chunk files have their full size from the beginning.
        Some(live) => {
            let durable: u64 = live.streams.iter().map(|it| it.bytes).sum();
            let (durable, bytes) = (ByteSize(durable), ByteSize(bytes));
            format!("  size      {durable} durable in {streams}, {bytes} of disk space set aside\n")
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
    for Away { path, why, .. } in &manifest.away {
        text += &format!("  away      {}: {why}\n", path.display());
    }
    text += &manifest.redundancy.map_or(String::new(), |it| redundancy(&it, manifest.bytes()));
    text.push('\n');
    for stream in &manifest.streams {
        text += &described(stream);
        text += &scan.stream(stream.name.as_str()).map_or_else(String::new, came);
    }
    text.push('\n');
    text += &columns(&places_table(&info.places), 2);
    text.push('\n');
    text += &info.markers.iter().map(marked).collect::<String>();
    text += &accounts(scan, gaps);
    for finding in &scan.findings {
        text += &format!("! {finding}\n");
    }
    text
}

/// All markers, with where the streams were as far as that is known by now; of the streams that are shown.
fn placed(scan: &Scan, recording: bool) -> Vec<Marker> {
    let mut markers = scan.inventory.markers.clone();
    for marker in &mut markers {
        markers::place(scan, marker, recording);
        let shown = |position: &Position| scan.stream(position.stream.as_str()).is_some();
        marker.positions.retain(shown);
    }
    markers
}

/// A marker: when, what, and where each stream was.
fn marked(marker: &Marker) -> String {
    let mut text = format!("mark {:.3} {}\n", marker.time, marker.text);
    for Position { stream, frame, byte } in &marker.positions {
        text += &format!("  {stream}: frame {frame}, byte {byte}\n");
    }
    text
}

fn standing(info: &Info<'_>) -> &'static str {
    match info.manifest.state {
        State::Recording if info.recording => "is being recorded",
        State::Recording => "was never sealed: run `fullbore recover`",
        State::Sealed => "is sealed",
        State::Aborted => "is sealed, by an abort",
        State::Recovered => "is sealed, by recover",
    }
}

/// What stands in for members that are lost.
fn redundancy(redundancy: &Redundancy, data_bytes: u64) -> String {
    let scheme = redundancy.scheme();
    let Some(followed) = redundancy.followed else {
        return format!(
            "  parity    {scheme}, not complete: `fullbore verify` tells how much there is\n"
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

/// What tells when it was recorded, where its recorder's word of it is lost.
fn times(times: Times) -> &'static str {
    match times {
        Times::Received => ", when its first frame and its last were received",
        Times::Frames => ", by the times in its first frame and its last",
        Times::Files => ", by the times of its chunk files: nothing else tells",
    }
}

fn described(stream: &Stream) -> String {
    let frames = match stream.geometry.map(|geometry| geometry.frame_bytes) {
        None => "no frames".to_owned(),
        Some(0) => "frames of varying length".to_owned(),
        Some(bytes) => format!("frames of {bytes} bytes"),
    };
    let format = match &stream.format {
        Format::Vdif { frames_per_second, derived, threads } => {
            let rate = match frames_per_second {
                Some(rate) if *derived => format!(", {rate} a second (derived)"),
                Some(rate) => format!(", {rate} a second"),
                None => String::new(),
            };
            let threads: Vec<String> = threads.iter().map(u16::to_string).collect();
            let threads = match threads.is_empty() {
                true => "threads as they came".to_owned(),
                false => format!("threads {}", threads.join(" ")),
            };
            format!("VDIF, {frames}{rate}, {threads}")
        }
        Format::Panda { ending, captured, .. } => {
            let samples = stream.geometry.map_or(0, |geometry| geometry.frame_bytes);
            let ending =
                ending.as_ref().map_or_else(|| "not ended".to_owned(), ToString::to_string);
            let captured = captured.map_or_else(String::new, |n| format!(", {n} taken by it"));
            format!("PandA, samples of {samples} bytes, {ending}{captured}")
        }
        Format::Raw => format!("raw, {frames}"),
    };
    let fill = match stream.fill {
        Fill::Invalid => "filled with invalid frames".to_owned(),
        Fill::Pattern(word) => format!("filled with 0x{word:08x}"),
        Fill::Omit => "as they came, nothing filled".to_owned(),
    };
    let settings = match &stream.format {
        Format::Panda { settings: Some(settings), .. } => set_to(settings),
        _ => String::new(),
    };
    format!("  {}: {format}, {fill}\n    from {}\n{settings}", stream.name, stream.source)
}

/// When its first frame and its last one reached this host: beside the times of the scan they show a stream that came
/// late or went early.
fn came(stream: &Stored) -> String {
    let account = stream.account.as_ref();
    match account.and_then(|it| Some((it.first?.seen, it.last?.seen))) {
        Some((first, last)) => format!("    came {first:.3} – {last:.3}\n"),
        None => String::new(),
    }
}

/// The settings in short: who it is, what it captures, and how much there is to know.
fn set_to(settings: &Settings) -> String {
    let Settings { identity, capture, config, attributes, tables, left_out, .. } = settings;
    let left_out = match left_out.as_slice() {
        [] => String::new(),
        names => format!("; {} were too long to be kept", names.join(", ")),
    };
    let text = format!(
        "    {identity}\n    captures {}\n    {} and {} of it are kept{left_out}: --json tells them\n",
        capture.join(", "),
        count(config.len() + attributes.len(), "setting"),
        count(tables.len(), "table")
    );
    // Whatever a PandA says of itself, it moves no cursor.
    text.chars().filter(|c| *c == '\n' || !c.is_control()).collect()
}

fn places_table(places: &[Place]) -> Vec<Vec<String>> {
    let heading = ["stream", "directory", "chunks", "size"].map(str::to_owned).to_vec();
    let row = |place: &Place| {
        let directory = place.directory.display().to_string();
        let size = ByteSize(place.bytes).to_string();
        vec![place.stream.clone(), directory, place.chunks.to_string(), size]
    };
    std::iter::once(heading).chain(places.iter().map(row)).collect()
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
