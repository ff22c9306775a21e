//! `fullbore convert`: recordings into other containers.

mod lost;
mod pour;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::Args as ClapArgs;
use fullbore_core::account::Verdict;
use fullbore_core::container::{Existing, Hdf5Target};
use fullbore_core::device::DeviceEnd;
use fullbore_core::endpoint;
use fullbore_core::format::panda::PandaSource;
use fullbore_core::format::panda::codec;
use fullbore_core::name::Name;
use fullbore_core::units::{ByteRate, ByteSize};
use fullbore_engine::panda;
use fullbore_engine::panda::capture::Dump;
use fullbore_engine::panda::record::{Event, RecordError, check_names, record_from};
use fullbore_engine::recorder::Control;
use fullbore_engine::sink::hdf5;
use fullbore_engine::store::follow::{Follower, Standing};
use fullbore_engine::store::read::Settings;
use fullbore_engine::store::reader::{Scan, Stream};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::hint::{explained, explained_of};
use crate::output::{self, Output};
use crate::store_arg::StoreArg;
use crate::verbs::panda::record::{is_whole, options, plan, target};
use crate::verbs::{following, scan_arg};
use pour::Pouring;

/// Write a recording into another container.
///
///   fullbore convert file:dump.bin capture-%d.h5      what a PandA has sent
///   fullbore convert store:r1234_no0001/46220 out.h5  one stream of a scan
///   fullbore convert store:r1234_no0001 out.h5        all of them
///   fullbore convert device:/dev/sdb?scan=r1_a file:a.vdif    a scan of a device
///
/// Of several streams each becomes a file of its own, out_46220.h5, and out.h5
/// shows all of them side by side without holding a byte of them (virtual
/// datasets). A VDIF stream becomes its frames, one a row, and the time of each;
/// other streams become their bytes, with the time at which each block of them
/// came (blocks/row, blocks/time).
///
/// A scan that is being recorded can be followed (--follow): its files grow with
/// what has become durable, for readers to see (SWMR), and end when it is sealed.
/// Recording does not wait for them. Without --follow, what is durable until now
/// is converted.
///
/// Several scans follow one another in one file with ?existing=append:
/// /acquisitions says which rows are whose, how sure the account of each is, and
/// what a PandA was set to. Of several streams each one's file is continued, and
/// the file that shows them is renewed. A file of each scan is its own command.
/// What is added must be of the file's kind: the same columns of a PandA, with the
/// same units, scale, offset and ?scaled; frames of the same length. It is
/// compressed as the file is; a ?compression that is another one is refused.
///
///   fullbore convert store:r1234_no0001 hdf5:all.h5?existing=append
///   fullbore convert store:r1234_no0002 hdf5:all.h5?existing=append
///
/// Exit codes: 0 everything that was to be recorded is in the file; 1 it is not:
/// blocks are missing or damaged, the account says that frames are, or is in
/// doubt, or the recorder was killed or aborted; 2 it could not be converted.
#[derive(ClapArgs)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// What is converted: store:SCAN, store:SCAN/STREAM, file:DUMP or device:PATH?scan=SCAN.
    #[arg(value_name = "FROM")]
    from: String,
    /// Where to: an HDF5 file (.h5, .hdf5, .hdf, .he5, .nxs or .nx5), or hdf5:NAME with any name and
    /// with options, such as hdf5:out?scaled=false&compression=gzip:1
    #[arg(value_name = "TO")]
    to: String,
    #[command(flatten)]
    store: StoreArg,
    /// Go on over damaged and missing blocks: what is there is written.
    #[arg(long)]
    allow_damaged: bool,
    /// Follow a scan that is being recorded until it is sealed.
    #[arg(long)]
    follow: bool,
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
    /// Whether all that was recorded is in the file.
    whole: bool,
    /// Whether all that was to be recorded was, by state and account of the scan.
    recorded_whole: bool,
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
    if DeviceEnd::is_meant(&args.from) {
        let Args { from, to, allow_damaged, quiet, .. } = args;
        return super::device::convert(&from, &to, allow_damaged, quiet, output);
    }
    let mut target = target(&args.to)?;
    if let Some(path) = args.from.strip_prefix("file:") {
        return dump(Path::new(path), &target, output);
    }
    if !args.follow {
        // Nobody reads along with a file that is made from what is there already.
        target.flush = target.flush.max(Duration::from_secs(1));
    }
    scan(&args, &target, output)
}

/// The bytes of a data port, taken as if they came now.
fn dump(path: &Path, target: &Hdf5Target, output: Output) -> anyhow::Result<ExitCode> {
    ensure!(path.is_file(), "{}: there is no such file", path.display());
    let source = PandaSource::parse("panda://dump").context("the source of a recorded stream")?;
    let device = Dump::new(path.to_owned());
    let count = device.acquisitions().map_err(explained)?;
    // Without any, it is read all the same, and says why there is none.
    let mut plan = plan(source, target, count.max(1), false, Duration::ZERO, None);
    plan.files.beside = false;
    check_names(&plan.files, plan.acquisitions).map_err(explained)?;
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
        Some(RecordError::Panda(
            panda::Error::Closed { .. }
            | panda::Error::Refused { .. }
            | panda::Error::Fruitless { .. },
        )) if outcome.recorded.is_empty() => {
            bail!(
                "{}: it ends before a header has come, so nothing can be made of it",
                path.display()
            );
        }
        Some(RecordError::Panda(panda::Error::Data(
            codec::Error::NoPanda { .. } | codec::Error::LongLine { what: "OK", .. },
        ))) if outcome.recorded.is_empty() => {
            bail!(
                "{}: this is not what a PandA's data port sends: it does not begin with OK\n  \
                 convert takes store:SCAN, store:SCAN/STREAM, device:PATH?scan=SCAN, or file:DUMP of a PandA",
                path.display()
            );
        }
        Some(error) if outcome.recorded.is_empty() => {
            return Err(explained_of(&path.display().to_string(), error));
        }
        Some(error @ RecordError::File { .. }) => {
            return Err(explained(error));
        }
        _ => {}
    }
    let whole = outcome.recorded.iter().all(is_whole);
    Ok(ExitCode::from(if whole { output::GOOD } else { output::FOUND }))
}

fn scan(args: &Args, target: &Hdf5Target, output: Output) -> anyhow::Result<ExitCode> {
    let name = args.from.strip_prefix("store:").unwrap_or(&args.from);
    let parsed = args.from.parse::<endpoint::Endpoint>();
    ensure!(
        parsed.as_ref().map_or(true, |from| from.scheme == "store"),
        "{}: what is converted is store:SCAN, store:SCAN/STREAM, device:PATH?scan=SCAN, or file:DUMP of a PandA",
        args.from
    );
    let begun = Instant::now();
    let members = args.store.members()?;
    let (mut follower, named) = following::open(&members, name)?;
    following::settle(&mut follower)?;
    let mut pourings = Vec::new();
    if args.follow {
        follow(args, &mut follower, named.as_ref(), target, &mut pourings)?;
    }
    let streams = chosen(follower.scan(), named.as_ref())?;
    let single = is_single(args, follower.scan(), streams.len(), named.is_some());
    check_files(&streams, target, single, &pourings).map_err(explained)?;
    let bar = bar(streams.iter().map(|stream| stream.bytes()).sum(), output, args.quiet);
    let numbers: Vec<usize> = streams.iter().map(|stream| stream.number).collect();
    let mut converted = Vec::new();
    for number in numbers {
        let stream = &follower.scan().streams[number];
        let mut pouring = taken(args, &mut pourings, stream, target, single);
        pouring.pour(&mut follower, &bar)?;
        converted.push(pouring.finish(follower.scan(), number)?);
    }
    bar.finish_and_clear();
    let scan = follower.scan();
    if follower.standing() == Standing::Recording && !args.follow {
        let bytes: u64 = converted.iter().map(|it: &Converted| it.bytes).sum();
        eprintln!(
            "fullbore: {} is still being recorded: {} were durable, and are converted\n  \
             --follow goes on as it grows",
            scan.manifest.scan,
            ByteSize(bytes)
        );
    }
    let mut joined = None;
    if !single {
        let files: Vec<(&str, &Path)> =
            converted.iter().map(|it| (it.stream.as_str(), it.file.as_path())).collect();
        let master = hdf5::numbered(&target.path, 1);
        match target.existing {
            Existing::Refuse => hdf5::join(&master, &files),
            Existing::Append | Existing::Overwrite => hdf5::join_anew(&master, &files),
        }
        .map_err(explained)?;
        joined = Some(master);
    }
    let whole = converted.iter().all(|it| it.whole && it.recorded_whole);
    let told = Told {
        scan: scan.manifest.scan.to_string(),
        streams: converted,
        joined,
        seconds: begun.elapsed().as_secs_f64(),
    };
    output.tell(&told, || text(&told))?;
    Ok(ExitCode::from(if whole { output::GOOD } else { output::FOUND }))
}

/// Pours what comes of a scan while it is recorded, until it has been sealed, or an end was asked for.
fn follow(
    args: &Args,
    follower: &mut Follower,
    named: Option<&Name>,
    target: &Hdf5Target,
    pourings: &mut Vec<Pouring>,
) -> anyhow::Result<()> {
    let stop = crate::signals::stop_flag()?;
    let mut flushed = Instant::now();
    while !follower.standing().is_over() && !stop.load(Ordering::Relaxed) {
        if follower.standing() == Standing::Recording && flushed.elapsed() >= target.flush {
            flushed = Instant::now();
            let scan = follower.scan();
            let single = is_single(args, scan, scan.streams.len(), named.is_some());
            let wanted = |stream: &&Stream| named.is_none_or(|name| stream.name == name.as_str());
            let numbers: Vec<usize> =
                scan.streams.iter().filter(wanted).map(|stream| stream.number).collect();
            for number in numbers {
                let stream = &follower.scan().streams[number];
                let mut pouring = taken(args, pourings, stream, target, single);
                pouring.pour_so_far(follower)?;
                pourings.push(pouring);
            }
        }
        follower.wait(&stop);
        follower.look().map_err(explained)?;
    }
    following::settle(follower)
}

/// The streams that were meant, of which there must be one.
fn chosen<'a>(scan: &'a Scan, named: Option<&Name>) -> anyhow::Result<Vec<&'a Stream>> {
    let streams = match named {
        None => scan.streams.iter().collect(),
        Some(name) => vec![scan_arg::stream(scan, name.as_str())?],
    };
    ensure!(!streams.is_empty(), "{} has no streams", scan.manifest.scan);
    Ok(streams)
}

/// Whether there is one file, and no other that shows several. While a scan is followed, more streams may be
/// discovered in it: there its directories tell.
fn is_single(args: &Args, scan: &Scan, streams: usize, named: bool) -> bool {
    let name = scan.manifest.scan.to_string();
    match args.follow {
        true => named || scan.manifest.streams.iter().any(|stream| stream.directory == name),
        false => streams == 1,
    }
}

/// The stream's file as far as it has come.
fn taken(
    args: &Args,
    pourings: &mut Vec<Pouring>,
    stream: &Stream,
    target: &Hdf5Target,
    single: bool,
) -> Pouring {
    if let Some(at) = pourings.iter().position(|pouring| pouring.stream == stream.name) {
        return pourings.swap_remove(at);
    }
    let settings = match args.follow {
        true => Settings::beside_a_recorder(),
        false => Settings::default(),
    };
    let settings = Settings { allow_damaged: args.allow_damaged, ..settings };
    Pouring::new(stream, settings, file_of(stream, target, single), options(target))
}

/// The file of a stream.
fn file_of(stream: &Stream, target: &Hdf5Target, single: bool) -> PathBuf {
    let path = hdf5::numbered(&target.path, 1);
    if single { path } else { hdf5::beside(&path, &stream.name) }
}

/// Refuses what cannot be made or continued before anything is poured, so that no stream is left without the others.
fn check_files(
    streams: &[&Stream],
    target: &Hdf5Target,
    single: bool,
    begun: &[Pouring],
) -> Result<(), hdf5::Error> {
    let new = |stream: &&&Stream| !begun.iter().any(|pouring| pouring.stream == stream.name);
    let files = streams.iter().filter(new).map(|stream| file_of(stream, target, single));
    let files: Vec<PathBuf> = files.filter(|path| hdf5::is_there(path)).collect();
    let master = (!single).then(|| hdf5::numbered(&target.path, 1)).filter(|it| hdf5::is_there(it));
    match target.existing {
        Existing::Refuse => match files.into_iter().chain(master).next() {
            Some(path) => Err(hdf5::Error::Exists { path }),
            None => Ok(()),
        },
        Existing::Append | Existing::Overwrite => {
            if let Some(master) = &master {
                hdf5::check_master(master)?;
            }
            match target.existing {
                Existing::Append => {
                    let asked = options(target).compression;
                    files.iter().try_for_each(|path| hdf5::check_continuable(path, asked))
                }
                _ => files.iter().try_for_each(|path| hdf5::check_replaceable(path)),
            }
        }
    }
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
            "{}/{}: {} rows, {} in {}, {verdict}{}{}\n",
            told.scan,
            it.stream,
            it.rows,
            ByteSize(it.bytes),
            it.file.display(),
            if it.whole { "" } else { ", not all of the recording" },
            if it.recorded_whole { "" } else { ", and not all was recorded" },
        );
    }
    if let Some(joined) = &told.joined {
        text += &format!("all of them: {}\n", joined.display());
    }
    let bytes: u64 = told.streams.iter().map(|it| it.bytes).sum();
    let rate = ByteRate((bytes as f64 / told.seconds.max(1e-3)) as u64);
    text + &format!("{:.1} s, {rate}\n", told.seconds)
}
