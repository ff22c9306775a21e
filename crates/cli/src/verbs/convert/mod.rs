//! `fullbore convert`: converts recordings into other containers.

mod dump;
mod export;
mod losses;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::Args as ClapArgs;
use fullbore_core::account::{Account, Verdict};
use fullbore_core::completeness::{Completeness, StreamCompleteness};
use fullbore_core::container::{Existing, Hdf5Target};
use fullbore_core::device::DeviceEnd;
use fullbore_core::endpoint;
use fullbore_core::manifest::{Manifest, State};
use fullbore_core::name::Name;
use fullbore_core::units::{ByteRate, ByteSize};
use fullbore_engine::sink::hdf5;
use fullbore_engine::store::follow::{FollowState, Follower};
use fullbore_engine::store::read::Settings;
use fullbore_engine::store::reader::{Scan, StoredStream};
use fullbore_recording::options::target::container_options as options;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::hint::explained;
use crate::output::{self, Output};
use crate::store_arg::StoreArg;
use crate::verbs::{live_scan, scan_arg};
use export::Exporter;

/// Write a recording into another container.
///
///   fullbore convert file:dump.bin capture-%d.h5      a PandA's raw data
///   fullbore convert store:r1234_no0001/46220 out.h5  one stream of a scan
///   fullbore convert store:r1234_no0001 out.h5        all of them
///   fullbore convert device:/dev/sdb?scan=r1_a file:a.vdif    a scan of a device
///
/// With several streams, each gets its own file, out_46220.h5, and out.h5 shows all
/// of them side by side without a copy of the data (virtual datasets). A VDIF
/// stream becomes its frames, one per row, and the time of each. Other streams
/// become their bytes, with the arrival time of each block (blocks/row,
/// blocks/time).
///
/// With --follow, the files of a scan that is being recorded grow as its data
/// becomes durable, for readers to see (SWMR), and end when it is sealed. The
/// recorder does not wait for convert. Without --follow, convert takes the data
/// that is durable now.
///
/// With ?existing=append, several scans follow one another in one file:
/// /acquisitions says which rows belong to which scan, how sure each account is,
/// and how a PandA was set up. With several streams, convert appends to each file
/// and renews the file that shows them all. To get a file per scan, run a command
/// for each. Appended data must fit the file: the same PandA columns, with the same
/// units, scale, offset and ?scaled; the same frame length. The file's compression
/// applies; a different ?compression is refused.
///
///   fullbore convert store:r1234_no0001 hdf5:all.h5?existing=append
///   fullbore convert store:r1234_no0002 hdf5:all.h5?existing=append
///
/// Exit codes: 0 the file holds everything that was to be recorded; 1 it does not:
/// blocks are missing or damaged, the account counts lost frames or is in doubt,
/// or the recorder was killed or aborted; 2 the recording could not be converted.
#[derive(ClapArgs)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The recording: store:SCAN, store:SCAN/STREAM, file:DUMP or device:PATH?scan=SCAN.
    #[arg(value_name = "FROM")]
    from: String,
    /// The output: an HDF5 file (.h5, .hdf5, .hdf, .he5, .nxs or .nx5), or hdf5:NAME with any name and
    /// with options, for example hdf5:out?scaled=false&compression=gzip:1
    #[arg(value_name = "TO")]
    to: String,
    #[command(flatten)]
    store: StoreArg,
    /// Continue past damaged and missing blocks.
    #[arg(long)]
    allow_damaged: bool,
    /// Follow a scan that is being recorded until it is sealed.
    #[arg(long)]
    follow: bool,
    /// Show no progress.
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
    /// The account of the file's content.
    #[serde(skip)]
    account: Option<Account>,
    /// True if all recorded data is in the file.
    whole: bool,
    /// True if the recording was complete, by state and account of the scan.
    recorded_whole: bool,
}

/// The report of a conversion.
#[derive(Serialize)]
struct ConvertJson {
    scan: String,
    /// The completeness of the files, if the scan is over and each stream has an account.
    #[serde(flatten)]
    completeness: Option<Completeness>,
    streams: Vec<Converted>,
    /// The file that shows several streams side by side.
    joined: Option<PathBuf>,
    seconds: f64,
}

/// Runs the command.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    if DeviceEnd::is_meant(&args.from) {
        let Args { from, to, allow_damaged, quiet, .. } = args;
        return super::device::convert(&from, &to, allow_damaged, quiet, output);
    }
    let mut target = Hdf5Target::parse(&args.to).map_err(explained)?;
    if let Some(path) = args.from.strip_prefix("file:") {
        return dump::convert(Path::new(path), &target, output);
    }
    if !args.follow {
        // No reader follows a file that is made from existing data.
        target.flush = target.flush.max(Duration::from_secs(1));
    }
    scan(&args, &target, output)
}

fn scan(args: &Args, target: &Hdf5Target, output: Output) -> anyhow::Result<ExitCode> {
    let name = args.from.strip_prefix("store:").unwrap_or(&args.from);
    let parsed = args.from.parse::<endpoint::Endpoint>();
    ensure!(
        parsed.as_ref().map_or(true, |from| from.scheme == "store"),
        "{}: the input must be store:SCAN, store:SCAN/STREAM, device:PATH?scan=SCAN, or file:DUMP of a PandA",
        args.from
    );
    let begun = Instant::now();
    let members = args.store.members()?;
    let (mut follower, named) = live_scan::open(&members, name)?;
    live_scan::settle(&mut follower)?;
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
    if follower.standing() == FollowState::Recording && !args.follow {
        let bytes: u64 = converted.iter().map(|it: &Converted| it.bytes).sum();
        output::say(format_args!(
            "fullbore: {} is still being recorded: converting the {} that are durable now\n  \
             --follow goes on as it grows",
            scan.manifest.scan,
            ByteSize(bytes)
        ));
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
    let told = ConvertJson {
        scan: scan.manifest.scan.to_string(),
        completeness: completeness(&scan.manifest, &converted),
        streams: converted,
        joined,
        seconds: begun.elapsed().as_secs_f64(),
    };
    output.tell(&told, || text(&told))?;
    Ok(ExitCode::from(if whole { output::GOOD } else { output::FOUND }))
}

/// The completeness of the files, by their accounts.
fn completeness(manifest: &Manifest, converted: &[Converted]) -> Option<Completeness> {
    let part =
        |it: &Converted| Some(StreamCompleteness::of_account(&it.stream, it.account.as_ref()?));
    let parts = converted.iter().map(part).collect::<Option<Vec<_>>>()?;
    let is_over = manifest.state != State::Recording;
    is_over
        .then(|| Completeness::judged(parts, manifest.planned, manifest.state, &manifest.wanting()))
}

/// Exports a scan while it is recorded, until it has been sealed, or a stop is requested.
fn follow(
    args: &Args,
    follower: &mut Follower,
    named: Option<&Name>,
    target: &Hdf5Target,
    pourings: &mut Vec<Exporter>,
) -> anyhow::Result<()> {
    let stop = crate::signals::stop_flag()?;
    let mut flushed = Instant::now();
    while !follower.standing().is_over() && !stop.load(Ordering::Relaxed) {
        if follower.standing() == FollowState::Recording && flushed.elapsed() >= target.flush {
            flushed = Instant::now();
            let scan = follower.scan();
            let single = is_single(args, scan, scan.streams.len(), named.is_some());
            let wanted =
                |stream: &&StoredStream| named.is_none_or(|name| stream.name == name.as_str());
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
    live_scan::settle(follower)
}

/// The selected streams, at least one.
fn chosen<'a>(scan: &'a Scan, named: Option<&Name>) -> anyhow::Result<Vec<&'a StoredStream>> {
    let streams = match named {
        None => scan.streams.iter().collect(),
        Some(name) => vec![scan_arg::stream(scan, name.as_str())?],
    };
    ensure!(!streams.is_empty(), "{} has no streams", scan.manifest.scan);
    Ok(streams)
}

/// True if there is a single file, and no master file. While a scan is followed, more streams may appear; its
/// directories show them.
fn is_single(args: &Args, scan: &Scan, streams: usize, named: bool) -> bool {
    let name = scan.manifest.scan.to_string();
    match args.follow {
        true => named || scan.manifest.streams.iter().any(|stream| stream.directory == name),
        false => streams == 1,
    }
}

/// The result of a stream's file so far.
fn taken(
    args: &Args,
    pourings: &mut Vec<Exporter>,
    stream: &StoredStream,
    target: &Hdf5Target,
    single: bool,
) -> Exporter {
    if let Some(at) = pourings.iter().position(|pouring| pouring.stream == stream.name) {
        return pourings.swap_remove(at);
    }
    let settings = match args.follow {
        true => Settings::beside_a_recorder(),
        false => Settings::default(),
    };
    let settings = Settings { allow_damaged: args.allow_damaged, ..settings };
    Exporter::new(stream, settings, file_of(stream, target, single), options(target))
}

/// The file of a stream.
fn file_of(stream: &StoredStream, target: &Hdf5Target, single: bool) -> PathBuf {
    let path = hdf5::numbered(&target.path, 1);
    if single { path } else { hdf5::beside(&path, &stream.name) }
}

/// Refuses files that cannot be created or continued before any export begins, so that all streams are exported or
/// none.
fn check_files(
    streams: &[&StoredStream],
    target: &Hdf5Target,
    single: bool,
    begun: &[Exporter],
) -> Result<(), hdf5::Error> {
    let new = |stream: &&&StoredStream| !begun.iter().any(|pouring| pouring.stream == stream.name);
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

fn text(told: &ConvertJson) -> String {
    let mut text = match &told.completeness {
        Some(it) => format!("{}: {}\n  {}\n", told.scan, it.headline, it.explanation),
        None => String::new(),
    };
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
