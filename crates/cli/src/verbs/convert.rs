//! `fullbore convert`: recordings into other containers.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Args as ClapArgs;
use fullbore_core::account::Verdict;
use fullbore_core::container::Hdf5Target;
use fullbore_core::endpoint;
use fullbore_core::format::panda::{self, Closed, Header, PandaSource};
use fullbore_core::manifest::Format;
use fullbore_core::time::Tai;
use fullbore_core::units::{ByteRate, ByteSize};
use fullbore_engine::panda::capture::Dump;
use fullbore_engine::panda::live;
use fullbore_engine::panda::record::{Event, record_from};
use fullbore_engine::recorder::Control;
use fullbore_engine::sink::hdf5::{self, BytesFile, Ending, PandaFile, Shape};
use fullbore_engine::store::read::Settings;
use fullbore_engine::store::reader::{Delivered, Item, Scan, Stream};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::hint::explained;
use crate::output::{self, Output};
use crate::store_arg::StoreArg;
use crate::verbs::panda::record::{options, plan, target};
use crate::verbs::scan_arg;

/// Write a recording into another container.
///
///   fullbore convert file:dump.bin capture-%d.h5          the bytes of a PandA's data port
///   fullbore convert store:r1234_no0001/46220 out.h5      one stream of a scan
///   fullbore convert store:r1234_no0001 out.h5            all of them
///
/// Of several streams each becomes a file of its own, out_46220.h5, and out.h5 shows all of them side by
/// side without holding a byte of them (virtual datasets). A VDIF stream becomes its frames, one a row,
/// and the time of each; other streams become their bytes.
///
/// Exit codes: 0 all of it is there; 1 blocks are missing or damaged, or the account is in doubt; 2 it could
/// not be converted.
#[derive(ClapArgs)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// What is converted: store:SCAN, store:SCAN/STREAM or file:DUMP.
    #[arg(value_name = "FROM")]
    from: String,
    /// Where to: a file, or an hdf5: endpoint, such as hdf5:out.h5?scaled=false&compression=gzip:1
    #[arg(value_name = "TO")]
    to: String,
    #[command(flatten)]
    store: StoreArg,
    /// Go on over damaged and missing blocks: what is there is written.
    #[arg(long)]
    allow_damaged: bool,
    /// Draw no progress.
    #[arg(long)]
    quiet: bool,
}

/// A stream that was converted.
#[derive(Serialize)]
struct Converted {
    stream: String,
    file: PathBuf,
    rows: u64,
    bytes: u64,
    file_bytes: u64,
    verdict: Option<Verdict>,
    whole: bool,
}

/// All that was converted.
#[derive(Serialize)]
struct Told {
    scan: String,
    streams: Vec<Converted>,
    /// The file that shows several streams side by side.
    joined: Option<PathBuf>,
    seconds: f64,
}

/// Converts.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    let mut target = target(&args.to)?;
    if let Some(path) = args.from.strip_prefix("file:") {
        return dump(Path::new(path), &target, output);
    }
    // Nobody follows a file that is made from what is there already.
    target.flush = target.flush.max(Duration::from_secs(1));
    scan(&args, &target, output)
}

/// The bytes of a data port, taken as if they came now.
fn dump(path: &Path, target: &Hdf5Target, output: Output) -> anyhow::Result<ExitCode> {
    ensure!(path.is_file(), "{}: there is no such file", path.display());
    let source = PandaSource::parse("panda://dump").context("the source of a recorded stream")?;
    let device = Dump::new(path.to_owned());
    let count = device.acquisitions().map_err(explained)?;
    // Without any, it is read all the same, and says why there is none.
    let plan = plan(source, target, count.max(1), false, Duration::ZERO, None);
    let mut failed = None;
    let mut tell = |event: &Event| {
        if let Event::Ended(recorded) = event {
            let text = || {
                format!(
                    "acquisition {}: {} samples in {}, {}, {}\n",
                    recorded.number,
                    recorded.samples,
                    recorded.file.display(),
                    recorded.reason,
                    recorded.verdict
                )
            };
            failed = output.tell(recorded, text).err().or(failed.take());
        }
    };
    let outcome =
        record_from(device, plan, &Arc::new(Control::default()), &mut tell).map_err(explained)?;
    if let Some(error) = failed {
        return Err(error);
    }
    // The end of the file is the end of what there is, and no failure once something came of it.
    match outcome.error {
        Some(error) if outcome.recorded.is_empty() => return Err(explained(error)),
        Some(error @ fullbore_engine::panda::record::RecordError::File { .. }) => {
            return Err(explained(error));
        }
        _ => {}
    }
    let good = outcome.recorded.iter().all(|it| it.verdict == Verdict::Proven);
    Ok(ExitCode::from(if good { output::GOOD } else { output::FOUND }))
}

fn scan(args: &Args, target: &Hdf5Target, output: Output) -> anyhow::Result<ExitCode> {
    let name = args.from.strip_prefix("store:").unwrap_or(&args.from);
    let parsed = args.from.parse::<endpoint::Endpoint>();
    ensure!(
        parsed.as_ref().map_or(true, |from| from.scheme == "store"),
        "{}: what is converted is store:SCAN, store:SCAN/STREAM or file:DUMP",
        args.from
    );
    let begun = Instant::now();
    let (scan, named) = scan_arg::open(&args.store.members()?, name)?;
    let streams: Vec<&Stream> = match &named {
        None => scan.streams.iter().collect(),
        Some(name) => {
            let known: Vec<&str> = scan.streams.iter().map(|s| s.name.as_str()).collect();
            let stream = scan.stream(name.as_str()).with_context(|| {
                format!("{} has no stream {name}; it has {}", scan.manifest.scan, known.join(", "))
            })?;
            vec![stream]
        }
    };
    ensure!(!streams.is_empty(), "{} has no streams", scan.manifest.scan);
    let single = streams.len() == 1;
    let path_of = |stream: &Stream| match single {
        true => hdf5::numbered(&target.path, 1),
        false => beside(&target.path, &stream.name),
    };
    if !single {
        ensure!(!target.path.exists(), "{} is there already", target.path.display());
    }
    let bar = bar(streams.iter().map(|stream| stream.bytes()).sum(), output, args.quiet);
    let mut converted = Vec::new();
    for stream in &streams {
        let path = path_of(stream);
        converted.push(match &stream.format {
            Format::Panda { .. } => panda_of(&scan, stream, &path, target, args, &bar)?,
            _ => bytes_of(&scan, stream, &path, target, args, &bar)?,
        });
    }
    bar.finish_and_clear();
    let mut joined = None;
    if !single {
        let files: Vec<(&str, &Path)> =
            converted.iter().map(|it| (it.stream.as_str(), it.file.as_path())).collect();
        hdf5::join(&target.path, &files).map_err(explained)?;
        joined = Some(target.path.clone());
    }
    let whole = converted.iter().all(|it| it.whole);
    let told = Told {
        scan: scan.manifest.scan.to_string(),
        streams: converted,
        joined,
        seconds: begun.elapsed().as_secs_f64(),
    };
    output.tell(&told, || text(&told))?;
    Ok(ExitCode::from(if whole { output::GOOD } else { output::FOUND }))
}

/// `out.h5` and `46220` give `out_46220.h5`.
fn beside(path: &Path, stream: &str) -> PathBuf {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy()).unwrap_or_default();
    let ending = path.extension().map(|ending| format!(".{}", ending.to_string_lossy()));
    path.with_file_name(format!("{stem}_{stream}{}", ending.unwrap_or_default()))
}

/// A stream's frames with their times, or its bytes.
fn bytes_of(
    scan: &Scan,
    stream: &Stream,
    path: &Path,
    target: &Hdf5Target,
    args: &Args,
    bar: &ProgressBar,
) -> anyhow::Result<Converted> {
    let frame_bytes = stream.geometry.map_or(0, |geometry| geometry.frame_bytes) as usize;
    let has_times = frame_bytes > 0 && matches!(stream.format, Format::Vdif { .. });
    let shape = if has_times { Shape::Frames { frame_bytes } } else { Shape::Bytes };
    let format = serde_json::to_string(&stream.format)?;
    let name = scan.manifest.scan.to_string();
    let attributes =
        [("scan", name.as_str()), ("stream", stream.name.as_str()), ("format", format.as_str())];
    let mut file =
        BytesFile::create(path, shape, &attributes, &options(target)).map_err(explained)?;
    let (mut rows, mut times) = (0u64, Vec::<Tai>::new());
    let append = |file: &mut BytesFile, block: &Delivered<'_>| {
        times.clear();
        if has_times {
            times_of(stream, &block.placed.block, block.bytes(), &mut times);
        }
        rows += block.bytes().len() as u64 / frame_bytes.max(1) as u64;
        file.append(block.bytes(), &times)
    };
    let (whole, bytes) = pour(stream, &mut file, append, BytesFile::flush, target, args, bar)?;
    let account = stream.account.as_ref();
    let verdict = account.map(|account| account.verdict);
    let state = format!("{:?}", scan.manifest.state).to_lowercase();
    let ending = Ending {
        reason: state,
        missed: account.map_or(0, |account| account.terms.missing),
        verdict,
        account: account.and_then(|account| serde_json::to_string(account).ok()),
    };
    let report = file.finish(&ending).map_err(explained)?;
    Ok(Converted {
        stream: stream.name.clone(),
        file: report.path,
        rows,
        bytes,
        file_bytes: report.file_bytes,
        verdict,
        whole: whole && stream.absent.is_empty(),
    })
}

/// Gives every block of a stream to a file, which is flushed from time to time. Whether nothing was wrong, and
/// the bytes taken.
fn pour<F>(
    stream: &Stream,
    file: &mut F,
    mut append: impl FnMut(&mut F, &Delivered<'_>) -> Result<(), hdf5::Error>,
    flush: impl Fn(&mut F) -> Result<(), hdf5::Error>,
    target: &Hdf5Target,
    args: &Args,
    bar: &ProgressBar,
) -> anyhow::Result<(bool, u64)> {
    let settings = Settings { allow_damaged: args.allow_damaged, ..Settings::default() };
    let (mut whole, mut bytes) = (true, 0u64);
    let mut flushed = Instant::now();
    for item in stream.read(0..stream.blocks.len(), settings)? {
        let wrong = match item {
            Item::Lost(finding) => Some(finding),
            Item::Block(block) => {
                append(file, &block).map_err(explained)?;
                let taken = block.bytes().len() as u64;
                bytes += taken;
                bar.inc(taken);
                block.damage
            }
        };
        if flushed.elapsed() >= target.flush {
            flushed = Instant::now();
            flush(file).map_err(explained)?;
        }
        if let Some(finding) = wrong {
            bar.suspend(|| eprintln!("fullbore: {finding}"));
            whole = false;
            if !args.allow_damaged {
                bar.suspend(|| eprintln!("  --allow-damaged goes on without it"));
                break;
            }
        }
    }
    Ok((whole, bytes))
}

/// A PandA's samples, taken apart into columns as they would have been live.
fn panda_of(
    scan: &Scan,
    stream: &Stream,
    path: &Path,
    target: &Hdf5Target,
    args: &Args,
    bar: &ProgressBar,
) -> anyhow::Result<Converted> {
    let Format::Panda { header, ending, captured, connections, notes, settings } = &stream.format
    else {
        unreachable!("the caller looked at the format");
    };
    let name = || format!("{}/{}", scan.manifest.scan, stream.name);
    let header =
        Header::of_recording(header).with_context(|| format!("the header of {}", name()))?;
    let mut file = PandaFile::create_with(path, &header, settings.as_deref(), &options(target))
        .map_err(explained)?;
    let append = |file: &mut PandaFile, block: &Delivered<'_>| file.append(block.bytes());
    let (whole, bytes) = pour(stream, &mut file, append, PandaFile::flush, target, args, bar)?;
    let account = stream.account.clone();
    let verdict = account.as_ref().map(|account| account.verdict);
    let closed = account.map(|account| {
        let ending = ending.clone().unwrap_or(panda::Ending::ConnectionLost);
        Closed::restored(account, ending, *captured, connections.clone(), notes.clone())
    });
    let ending = closed.as_ref().map(live::ending).unwrap_or_default();
    let rows = file.rows();
    let report = file.finish(&ending).map_err(explained)?;
    Ok(Converted {
        stream: stream.name.clone(),
        file: report.path,
        rows,
        bytes,
        file_bytes: report.file_bytes,
        verdict,
        whole: whole && stream.absent.is_empty(),
    })
}

/// The time of every frame of a block: by its place, else that of its block.
fn times_of(
    stream: &Stream,
    block: &fullbore_core::index::Block,
    bytes: &[u8],
    times: &mut Vec<Tai>,
) {
    let of_block = stream.time_of_block(block);
    let first = stream.time_of(block.first);
    times.extend(
        stream
            .frames(block, bytes)
            .map(|frame| first.and_then(|_| stream.time_of(frame.index)).unwrap_or(of_block)),
    );
}

fn bar(bytes: u64, output: Output, quiet: bool) -> ProgressBar {
    if quiet || !output.progress() {
        return ProgressBar::hidden();
    }
    let style =
        ProgressStyle::with_template("{bytes} of {total_bytes}, {bytes_per_sec} {wide_bar} {eta}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(bytes).with_style(style)
}

fn text(told: &Told) -> String {
    let mut text = String::new();
    for it in &told.streams {
        let verdict = it.verdict.map_or_else(|| "no account".to_owned(), |v| v.to_string());
        text += &format!(
            "{}/{}: {} rows, {} in {}, {verdict}{}\n",
            told.scan,
            it.stream,
            it.rows,
            ByteSize(it.bytes),
            it.file.display(),
            if it.whole { "" } else { ", not whole" }
        );
    }
    if let Some(joined) = &told.joined {
        text += &format!("all of them: {}\n", joined.display());
    }
    let bytes: u64 = told.streams.iter().map(|it| it.bytes).sum();
    let rate = ByteRate((bytes as f64 / told.seconds.max(1e-3)) as u64);
    text + &format!("{:.1} s, {rate}\n", told.seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stream_has_a_file_beside_the_one_that_shows_them() {
        assert_eq!(beside(Path::new("/d/out.h5"), "46220"), PathBuf::from("/d/out_46220.h5"));
        assert_eq!(beside(Path::new("out"), "a"), PathBuf::from("out_a"));
    }
}
