//! `fullbore cat`: a stream's bytes in order, to a pipe or a file.

use std::io::{self, IsTerminal, Write};
use std::ops::Range;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args as ClapArgs;
use fullbore_core::device::DeviceEnd;
use fullbore_core::name::{Name, ScanName};
use fullbore_engine::store::finding::Finding;
use fullbore_engine::store::read::Settings;
use fullbore_engine::store::reader::{Delivered, Item, Scan, Stream};
use serde::Serialize;

use crate::output::{self, Output};
use crate::store_arg::StoreArg;
use crate::verbs::place::At;
use crate::verbs::scan_arg;

/// Write a stream's bytes, in order, to standard output.
///
/// Every block is checked before its bytes are written. A block that is damaged
/// or missing ends it with exit code 1, unless damage is allowed: then what is
/// there is written, and what is wrong is told on standard error. So is, with
/// `--json`, what was written, as standard output is taken by the stream.
///
///   fullbore cat r1234_no0001 > no0001.vdif
///   fullbore cat r1234_no0001/46220 --from +10s --until +12s | vsum /dev/stdin
///   fullbore cat device:/dev/nvme0n1?scan=r1234_no0001 > no0001.vdif
///   fullbore cat device:/dev/nvme0n1?first=0x20000&last=0x40000 > two-chunks
#[derive(ClapArgs)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The scan: `session_scan`, or `session_scan/stream`; or a device.
    #[arg(value_name = "SCAN")]
    scan: String,
    /// Which stream, of a scan of several.
    #[arg(long, value_name = "NAME")]
    stream: Option<Name>,
    /// Begin with this frame: a UTC time, an offset from the start (`+2.5s`), or an index.
    #[arg(long, value_name = "TIME|FRAME")]
    from: Option<At>,
    /// End before this frame.
    #[arg(long, value_name = "TIME|FRAME", alias = "to")]
    until: Option<At>,
    /// Leave out fill: only frames that were received.
    #[arg(long)]
    no_fill: bool,
    /// Go on over damaged and missing blocks, and write damaged bytes too.
    #[arg(long)]
    allow_damaged: bool,
    #[command(flatten)]
    store: StoreArg,
}

/// Writes.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    if DeviceEnd::is_meant(&args.scan) {
        let part = args.from.is_some() || args.until.is_some() || args.no_fill;
        anyhow::ensure!(
            !part && args.stream.is_none(),
            "a scan of a device is written whole: --stream, --from, --until and --no-fill are for a store"
        );
        return super::device::cat(&args.scan, args.allow_damaged, output);
    }
    anyhow::ensure!(
        !io::stdout().is_terminal(),
        "a stream's bytes are not for a terminal: send them to a pipe or a file"
    );
    let (scan, named) = scan_arg::open(&args.store.members()?, &args.scan)?;
    let stream = choose(&scan, args.stream.as_ref().or(named.as_ref()))?;
    if scan_arg::never_came(&scan, stream) {
        return Ok(ExitCode::from(output::FOUND));
    }
    let frames = range(stream, args.from, args.until)?;
    if args.no_fill {
        let fixed = stream.geometry.is_none_or(|geometry| geometry.frame_bytes > 0);
        anyhow::ensure!(fixed, "--no-fill: frames of varying length are never filled");
    }
    let settings = Settings { allow_damaged: args.allow_damaged, ..Settings::default() };
    let positions = positions(stream, &frames);
    let blocks = stream.blocks.get(positions.clone()).unwrap_or_default();
    let bar = scan_arg::bar(output, &scan.manifest.scan);
    bar.set_length(blocks.iter().map(|placed| u64::from(placed.block.bytes)).sum());
    let mut out = Counted { out: io::stdout().lock(), bytes: 0 };
    let pour = || -> anyhow::Result<Vec<Finding>> {
        let mut wrong = Vec::new();
        for item in stream.read(positions, settings)? {
            let finding = match item {
                Item::Block(block) => {
                    write_block(&mut out, stream, &block, &frames, args.no_fill)?;
                    bar.inc(block.placed.block.bytes.into());
                    block.damage
                }
                Item::Lost(finding) => Some(finding),
            };
            let Some(finding) = finding else { continue };
            if !output.json {
                bar.suspend(|| eprintln!("fullbore: {finding}"));
            }
            wrong.push(finding);
            if !args.allow_damaged {
                break;
            }
        }
        out.flush()?;
        Ok(wrong)
    };
    let poured = pour();
    bar.finish_and_clear();
    let wrong = poured?;
    if !output.json && !wrong.is_empty() && !args.allow_damaged {
        eprintln!("  --allow-damaged goes on without it");
    }
    let found = if wrong.is_empty() { output::GOOD } else { output::FOUND };
    if output.json {
        let (scan, stream) = (&scan.manifest.scan, stream.name.as_str());
        let told = Told { scan, stream, bytes: out.bytes, wrong };
        eprintln!("{}", serde_json::to_string(&told)?);
    }
    Ok(ExitCode::from(found))
}

/// What was written, for scripts.
#[derive(Serialize)]
struct Told<'a> {
    scan: &'a ScanName,
    stream: &'a str,
    bytes: u64,
    /// Blocks that are damaged or not there.
    wrong: Vec<Finding>,
}

/// Counts what goes through.
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

fn choose<'a>(scan: &'a Scan, name: Option<&Name>) -> anyhow::Result<&'a Stream> {
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

/// The frames that were asked for.
fn range(stream: &Stream, from: Option<At>, until: Option<At>) -> anyhow::Result<Range<i64>> {
    if from.is_none() && until.is_none() {
        return Ok(i64::MIN..i64::MAX);
    }
    let (Some(first), Some(last)) = (stream.blocks.first(), stream.blocks.last()) else {
        anyhow::bail!("the stream has no blocks")
    };
    let index = |at: At| -> anyhow::Result<i64> {
        let time = match at {
            At::Frame(index) => return Ok(index),
            _ if !stream.is_timed() => anyhow::bail!(
                "nothing tells when the frames of {} were but that they came at once\n  \
                 --from and --until can name frames by their index",
                stream.name
            ),
            At::Time(time) => time,
            At::After(offset) => {
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

/// The blocks that hold them.
fn positions(stream: &Stream, frames: &Range<i64>) -> Range<usize> {
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

fn write_block(
    out: &mut impl Write,
    stream: &Stream,
    delivered: &Delivered<'_>,
    frames: &Range<i64>,
    no_fill: bool,
) -> anyhow::Result<()> {
    let (block, bytes) = (&delivered.placed.block, delivered.bytes());
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
