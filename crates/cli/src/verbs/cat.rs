//! `fullbore cat`: a stream's bytes in order, to a pipe or a file.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::ops::Range;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args as ClapArgs;
use fullbore_core::device::DeviceEnd;
use fullbore_core::index::Block;
use fullbore_core::manifest::Manifest;
use fullbore_core::name::{Name, ScanName};
use fullbore_core::units::ByteSize;
use fullbore_store::diagnostics::Diagnostic;
use fullbore_store::follow::{FollowCursor, FollowState, Follower};
use fullbore_store::read::Settings;
use fullbore_store::reader::{Delivered, Item, Scan, StoredStream};
use fullbore_transfer::objects::Address;
use indicatif::ProgressBar;
use rustix::event::{PollFd, PollFlags, poll};
use serde::Serialize;

use crate::hint::explained;
use crate::output::{self, Output};
use crate::store_arg::StoreArg;
use crate::verbs::{live_scan, scan_arg};
use fullbore_replay::position::Position;

/// Write a stream's bytes, in order, to standard output.
///
/// cat checks every block before it writes the block. At a damaged or missing
/// block it stops with exit code 1. With --allow-damaged it continues, and reports
/// the problems on standard error. With --json, the report is on standard error
/// too, because standard output carries the stream.
///
///   fullbore cat r1234_no0001 > no0001.vdif
///   fullbore cat r1234_no0001/46220 --from +10s --until +12s | vsum /dev/stdin
///   fullbore cat device:/dev/nvme0n1?scan=r1234_no0001 > no0001.vdif
///   fullbore cat device:/dev/nvme0n1?first=0x20000&last=0x40000 > two-chunks
///   fullbore cat s3://bucket/prefix/r1234_no0001 > no0001.vdif
///
/// If the scan is still being recorded, cat writes the data that is durable now,
/// and says so on standard error. --follow continues as the scan grows, like
/// `tail -f`. It ends when the scan is sealed, or with exit code 1 if the recorder
/// dies:
///
///   fullbore cat r1234_no0001/46220 --follow | my-quicklook
///
/// The recorder does not wait for cat: a slow reader falls behind, and loses nothing.
#[derive(ClapArgs)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The scan: `session_scan`, or `session_scan/stream`; or a device; or a copy in an object store.
    #[arg(value_name = "SCAN")]
    pub(super) scan: String,
    /// The stream, if the scan has several.
    #[arg(long, value_name = "NAME")]
    pub(super) stream: Option<Name>,
    /// Start at this frame: a UTC time, an offset from the start (`+2.5s`), or an index.
    #[arg(long, value_name = "TIME|FRAME")]
    pub(super) from: Option<Position>,
    /// Stop before this frame.
    #[arg(long, value_name = "TIME|FRAME", alias = "to")]
    pub(super) until: Option<Position>,
    /// Leave out fill: write only frames that were received.
    #[arg(long)]
    pub(super) no_fill: bool,
    /// Continue past damaged and missing blocks, and write damaged bytes too.
    #[arg(long)]
    pub(super) allow_damaged: bool,
    /// Continue as the scan grows, until it is sealed.
    #[arg(long)]
    pub(super) follow: bool,
    #[command(flatten)]
    store: StoreArg,
}

impl Args {
    /// The arguments for a part of a stream that may still be recorded.
    pub(super) fn of_part(scan: String, from: Position, until: Position, store: StoreArg) -> Self {
        let (from, until) = (Some(from), Some(until));
        let (stream, no_fill, allow_damaged, follow) = (None, false, false, true);
        Self { scan, stream, from, until, no_fill, allow_damaged, follow, store }
    }
}

/// Runs the command.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    run_into(args, output, None)
}

/// Runs the command with a file in place of standard output.
pub(super) fn run_into(args: Args, output: Output, file: Option<File>) -> anyhow::Result<ExitCode> {
    if DeviceEnd::is_meant(&args.scan) {
        let part = args.from.is_some() || args.until.is_some() || args.no_fill;
        anyhow::ensure!(
            !part && args.stream.is_none(),
            "a scan of a device is written whole: --stream, --from, --until and --no-fill are for a store"
        );
        anyhow::ensure!(!args.follow, "only a scan of a store can be read while it is recorded");
        return super::device::cat(&args.scan, args.allow_damaged, output);
    }
    anyhow::ensure!(
        file.is_some() || !io::stdout().is_terminal(),
        "refusing to write a stream's bytes to a terminal: use a pipe or a file"
    );
    if Address::is_meant(&args.scan) {
        anyhow::ensure!(file.is_none(), "a copy in an object store is not being recorded: use cat");
        return super::objects::cat(&args, output);
    }
    let (follower, named) = live_scan::open(&args.store.members()?, &args.scan)?;
    let named = args.stream.clone().or(named);
    let bar = match args.follow {
        true => scan_arg::meter(output, &follower.scan().manifest.scan),
        false => scan_arg::bar(output, &follower.scan().manifest.scan),
    };
    let mut writing = Writing {
        frames: i64::MIN..i64::MAX,
        no_fill: args.no_fill,
        allow_damaged: args.allow_damaged,
        json: output.json,
        is_piped: file.is_none(),
        out: Counted { out: file.map_or_else(stdout, |it| Box::new(BufWriter::new(it))), bytes: 0 },
        wrong: Vec::new(),
        bar,
    };
    let lives = !follower.status().is_over();
    let written = match lives || args.follow {
        true => while_recorded(&args, follower, named.as_ref(), &mut writing),
        false => whole(&args, follower, named.as_ref(), &mut writing),
    };
    writing.bar.finish_and_clear();
    let Some(Written { manifest, stream, status }) = written? else {
        return Ok(ExitCode::from(output::FOUND));
    };
    let Writing { wrong, out, .. } = writing;
    if !output.json && !wrong.is_empty() && !args.allow_damaged {
        output::say("  --allow-damaged continues without it");
    }
    // A part of a copy is never what was asked for. A scan whose recorder died has all there is.
    let died = status == FollowState::Died && (args.follow || manifest.incomplete_copy().is_some());
    if !output.json {
        if died {
            output::note(format_args!("{}", live_scan::died(&manifest)));
        } else if !status.is_over() && !args.follow {
            let (scan, growing) = (&manifest.scan, live_scan::growing(&manifest));
            output::note(format_args!(
                "{scan} {growing}: {} were durable, and are written\n  \
                 --follow goes on as it grows",
                ByteSize(out.bytes)
            ));
        }
    }
    let found = if wrong.is_empty() && !died { output::GOOD } else { output::FOUND };
    if output.json {
        let told = CatJson { scan: manifest.scan, stream, status, bytes: out.bytes, wrong };
        output::say(serde_json::to_string(&told)?);
    }
    Ok(ExitCode::from(found))
}

/// The report on the bytes written, for scripts.
#[derive(Serialize)]
struct CatJson {
    scan: ScanName,
    stream: String,
    status: FollowState,
    bytes: u64,
    /// Blocks that are damaged or missing.
    wrong: Vec<Diagnostic>,
}

/// The stream that was written, and its current state.
struct Written {
    manifest: Manifest,
    stream: String,
    status: FollowState,
}

/// The state of writing a stream.
struct Writing<'a> {
    frames: Range<i64>,
    no_fill: bool,
    allow_damaged: bool,
    json: bool,
    /// True if the output is standard output, whose reader may go.
    is_piped: bool,
    out: Counted<Box<dyn Write + 'a>>,
    wrong: Vec<Diagnostic>,
    bar: ProgressBar,
}

impl Writing<'_> {
    /// Writes the next item. `false`: the end.
    fn take(&mut self, stream: &StoredStream, item: Item) -> anyhow::Result<bool> {
        let finding = match item {
            Item::Block(block) => {
                let record = &block.location.block;
                write_block(
                    &mut self.out,
                    stream,
                    record,
                    block.bytes(),
                    &self.frames,
                    self.no_fill,
                )?;
                self.bar.inc(block.location.block.bytes.into());
                block.damage
            }
            Item::Lost(finding) => Some(finding),
        };
        let Some(finding) = finding else { return Ok(true) };
        if !self.json {
            self.bar.suspend(|| output::note(format_args!("{finding}")));
        }
        self.wrong.push(finding);
        Ok(self.allow_damaged)
    }
}

/// Writes a scan that is not being recorded. A stream that never came gives no bytes.
fn whole(
    args: &Args,
    follower: Follower,
    named: Option<&Name>,
    writing: &mut Writing<'_>,
) -> anyhow::Result<Option<Written>> {
    let (scan, status) = (follower.scan(), follower.status());
    let stream = choose(scan, named)?;
    if scan_arg::never_came(scan, stream) {
        return Ok(None);
    }
    writing.frames = range(stream, args.from, args.until)?;
    ensure_fillable(args, stream)?;
    let settings = Settings { allow_damaged: args.allow_damaged, ..Settings::default() };
    let positions = positions(stream, &writing.frames);
    let blocks = stream.blocks.get(positions.clone()).unwrap_or_default();
    writing.bar.set_length(blocks.iter().map(|location| u64::from(location.block.bytes)).sum());
    for item in stream.read(positions, settings)? {
        if !writing.take(stream, item)? {
            break;
        }
    }
    writing.out.flush()?;
    let (manifest, stream) = (scan.manifest.clone(), stream.name.clone());
    Ok(Some(Written { manifest, stream, status }))
}

/// Refuses --no-fill where there is no fill.
pub(super) fn ensure_fillable(args: &Args, stream: &StoredStream) -> anyhow::Result<()> {
    let fixed = stream.geometry.is_none_or(|geometry| geometry.frame_bytes > 0);
    anyhow::ensure!(!args.no_fill || fixed, "--no-fill: frames of varying length are never filled");
    Ok(())
}

/// Writes the durable data of a scan that is being recorded; with --follow, until it is sealed.
fn while_recorded(
    args: &Args,
    mut follower: Follower,
    named: Option<&Name>,
    writing: &mut Writing<'_>,
) -> anyhow::Result<Option<Written>> {
    let number = loop {
        // While a scan's files are being put in order, every reader waits.
        let waits = args.follow || follower.status() == FollowState::Sealing;
        let unnamed = follower.scan().streams.is_empty();
        match choose(follower.scan(), named) {
            Ok(stream) if follower.status() != FollowState::Sealing => break stream.number,
            Err(error) if !waits || follower.status().is_over() => return Err(error),
            Err(error) if named.is_none() && !unnamed => return Err(error),
            Ok(_) | Err(_) => live_scan::pause(&mut follower)?,
        }
    };
    let settings = Settings { allow_damaged: args.allow_damaged, ..Settings::beside_a_recorder() };
    let mut flow = FollowCursor::new(number, settings);
    let mut wanted = Wanted { from: args.from, until: args.until, start: None, end: None };
    loop {
        let status = follower.status();
        let stream = &follower.scan().streams[number];
        ensure_fillable(args, stream)?;
        if status.is_over() && scan_arg::never_came(follower.scan(), stream) {
            return Ok(None);
        }
        let ends = wanted.resolve(stream, status.is_over() || !args.follow)?;
        writing.frames = wanted.frames();
        if wanted.start.is_none() {
            // The wanted range begins after all of it.
            flow.skip_to(stream, stream.blocks.len());
        } else if flow.position() == 0 && wanted.start > Some(i64::MIN) {
            let first = positions(stream, &writing.frames).start;
            flow.skip_to(stream, first);
        }
        let mut goes_on = true;
        while goes_on && let Some(item) = follower.next(&mut flow).map_err(explained)? {
            let behind = |block: &Delivered| block.location.block.first >= writing.frames.end;
            goes_on = match &item {
                Item::Block(block) if behind(block) => false,
                _ => writing.take(&follower.scan().streams[number], item)?,
            };
        }
        writing.out.flush()?;
        if goes_on && follower.status() == FollowState::Sealing {
            live_scan::pause(&mut follower)?;
            continue;
        }
        let over = !goes_on || status.is_over() || !args.follow || ends;
        if over || (writing.is_piped && is_unread(&io::stdout())) {
            if !writing.wrong.is_empty() && follower.is_removed() {
                output::note(format_args!("{} was removed while it was read", args.scan));
            }
            let scan = follower.scan();
            let stream = scan.streams[number].name.clone();
            return Ok(Some(Written { manifest: scan.manifest.clone(), stream, status }));
        }
        live_scan::pause(&mut follower)?;
    }
}

fn stdout<'a>() -> Box<dyn Write + 'a> {
    Box::new(io::stdout().lock())
}

/// True if the reader of the output has closed the pipe, which is detected without writing.
fn is_unread(out: &io::Stdout) -> bool {
    let mut ends = [PollFd::new(out, PollFlags::empty())];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut ends, Some(&now)).is_ok_and(|ready| ready > 0)
        && ends[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

/// A range of a growing stream, whose ends may be known only later.
struct Wanted {
    from: Option<Position>,
    until: Option<Position>,
    /// Index of the first frame, once it is known.
    start: Option<i64>,
    /// Index after the last frame, once it is known.
    end: Option<i64>,
}

impl Wanted {
    /// Resolves the ends as far as possible. With `whole`, no more data follows. Returns true if the whole range is
    /// available.
    fn resolve(&mut self, stream: &StoredStream, whole: bool) -> anyhow::Result<bool> {
        if whole && (self.start.is_none() || self.end.is_none()) {
            if stream.blocks.is_empty() {
                (self.start, self.end) = (Some(i64::MIN), Some(i64::MAX));
                return Ok(true);
            }
            let requested = range(stream, self.from, self.until)?;
            self.start = self.start.or(Some(requested.start));
            self.end = self.end.or(Some(requested.end));
        }
        if self.start.is_none() {
            self.start = bound(stream, self.from, i64::MIN);
        }
        if self.end.is_none() && self.until.is_some() {
            self.end = bound(stream, self.until, i64::MAX);
        }
        let last = stream.blocks.last().map(|location| stream.end_of(&location.block));
        Ok(self.end.is_some_and(|end| last.is_some_and(|last| end <= last)))
    }

    fn frames(&self) -> Range<i64> {
        self.start.unwrap_or(i64::MIN)..self.end.unwrap_or(i64::MAX)
    }
}

/// The index of a frame, if it is certain while more data follows.
fn bound(stream: &StoredStream, at: Option<Position>, without: i64) -> Option<i64> {
    let (first, last) = match (at, stream.blocks.first(), stream.blocks.last()) {
        (None, ..) => return Some(without),
        (Some(Position::Frame(index)), ..) => return Some(index),
        (Some(_), Some(first), Some(last)) => (first, last),
        _ => return None,
    };
    let time = match at {
        Some(Position::After(offset)) => {
            let ns = i64::try_from(offset.as_nanos()).unwrap_or(i64::MAX);
            stream.time_of_block(&first.block).plus_ns(ns)
        }
        Some(Position::Time(time)) => time,
        _ => return None,
    };
    stream.index_at(time).filter(|index| *index < stream.end_of(&last.block))
}

/// Counts the bytes written.
struct Counted<W> {
    out: W,
    bytes: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Returns the stream that was named, or the only one.
pub(super) fn choose<'a>(scan: &'a Scan, name: Option<&Name>) -> anyhow::Result<&'a StoredStream> {
    let names: Vec<&str> = scan.streams.iter().map(|stream| stream.name.as_str()).collect();
    match (name, scan.streams.as_slice()) {
        (Some(name), _) => scan_arg::stream(scan, name.as_str()),
        (None, [only]) => Ok(only),
        (None, _) => anyhow::bail!(
            "{} has several streams: name one with --stream: {}",
            scan.manifest.scan,
            names.join(", ")
        ),
    }
}

/// The requested frames.
pub(super) fn range(
    stream: &StoredStream,
    from: Option<Position>,
    until: Option<Position>,
) -> anyhow::Result<Range<i64>> {
    if from.is_none() && until.is_none() {
        return Ok(i64::MIN..i64::MAX);
    }
    let (Some(first), Some(last)) = (stream.blocks.first(), stream.blocks.last()) else {
        anyhow::bail!("the stream has no blocks")
    };
    let index = |at: Position| -> anyhow::Result<i64> {
        let time = match at {
            Position::Frame(index) => return Ok(index),
            _ if !stream.is_timed() => anyhow::bail!(
                "nothing tells when the frames of {} were but that they came at once\n  \
                 --from and --until can name frames by their index",
                stream.name
            ),
            Position::Time(time) => time,
            Position::After(offset) => {
                let ns = i64::try_from(offset.as_nanos()).unwrap_or(i64::MAX);
                stream.time_of_block(&first.block).plus_ns(ns)
            }
        };
        stream.index_at(time).context("the stream has no blocks")
    };
    let start = from.map_or(Ok(i64::MIN), index)?;
    let end = until.map_or(Ok(i64::MAX), index)?;
    anyhow::ensure!(start <= end, "--until lies before --from");
    let (first, behind) = (first.block.first, stream.end_of(&last.block));
    anyhow::ensure!(
        from.is_none() || start < behind,
        "--from lies behind the last frame, {}",
        behind - 1
    );
    anyhow::ensure!(
        until.is_none() || end > first,
        "--until lies before the first frame, {first}: there is nothing before it"
    );
    anyhow::ensure!(start < end, "there is no frame between --from and --until");
    Ok(start..end)
}

/// The blocks that contain them.
pub(super) fn positions(stream: &StoredStream, frames: &Range<i64>) -> Range<usize> {
    if frames.is_empty() {
        return 0..0;
    }
    let start = match frames.start {
        i64::MIN => 0,
        index => stream.position_of(index).unwrap_or(0),
    };
    let end = match frames.end {
        i64::MAX => stream.blocks.len(),
        index => stream.position_of(index - 1).map_or(0, |at| at + 1),
    };
    start..end.max(start)
}

/// Writes the requested frames of a block.
pub(super) fn write_block(
    out: &mut impl Write,
    stream: &StoredStream,
    block: &Block,
    bytes: &[u8],
    frames: &Range<i64>,
    no_fill: bool,
) -> anyhow::Result<()> {
    let inside = frames.start <= block.first && stream.end_of(block) <= frames.end;
    let varying = stream.geometry.is_none_or(|geometry| geometry.frame_bytes == 0);
    let has_fill = block.present < block.frames;
    if varying || (inside && !(no_fill && has_fill)) {
        out.write_all(bytes)?;
        return Ok(());
    }
    for frame in stream.frames(block, bytes) {
        if frames.contains(&frame.index) && !(no_fill && frame.fill) {
            out.write_all(frame.bytes)?;
        }
    }
    Ok(())
}
