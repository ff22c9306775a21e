//! `fullbore play`: sends a recording to the network again.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail, ensure};
use clap::Args as Arguments;
use fullbore_core::device::DeviceEnd;
use fullbore_core::endpoint::{self, Endpoint, UdpTarget};
use fullbore_core::name::{Name, ScanName};
use fullbore_core::units::{ByteRate, ByteSize};
use fullbore_recording::options::packet_files;
use fullbore_replay::pace::{CATCH_UP, LatenessSummary, Waiting};
use fullbore_replay::playlist::{self, Entry};
use fullbore_replay::underrun::short_time;
use fullbore_replay::{
    FrameFile, FrameSource, Lag, Looking, PacketFrames, PlaybackStream, Progress, Replay, Report,
    Segment, Settings, Speed, StoredFrames, wait_for_delay,
};
use fullbore_store::catalogue::Selected;
use fullbore_store::follow::{FollowState, Follower};
use fullbore_store::read;
use fullbore_store::reader::{Scan, StoredStream};
use fullbore_time::Tai;

use super::device::{self, Part};
use super::simulate::{self, Pace};
use super::{live_scan, scan_arg, sending};
use crate::hint::{explained, explained_of};
use crate::output::{self, FOUND, GOOD, Output, count};
use crate::store_arg::StoreArg;
use fullbore_replay::position::Position;

/// Send a recording to the network again, with its timing.
///
///   fullbore play r1234_no0001 --to udp://192.0.2.7:46220-46227
///
/// sends each stream of a scan to its own port, in the order of the stream names,
/// at the recorded rate, with the streams in step. With a single port, all
/// streams go to that port. play also accepts a plain file of VDIF frames
/// (file:x.vdif), a packet capture (file:x.pcapng, each UDP port in it or those
/// of ?port=, with the times in the capture), and data on a device without a file system:
/// device:/dev/nvme0n1?scan=r1234_no0001, or its bare chunks.
///
///   fullbore play r1234_no0002 --to panda://127.0.0.1:8888
///
/// acts as the PandA that was recorded, for any PandA client, until Ctrl-C. Each
/// time a client arms it, it sends the recording again.
///
/// play spins to be exact. With --gentle it sleeps instead, which works better on
/// machines with few cores.
///
/// Streams are staggered: with eight of them, each sends an eighth of a frame
/// time after the one before, because frames with the same time cannot all be on
/// the wire at once. --at-once sends them together.
///
/// --loop plays again without a gap: each pass begins at the frame after the last
/// one, and seconds and frame numbers in the frames go on, so that the account of
/// a receiver is complete. --as-recorded leaves them unchanged. Segments are
/// played one after the other in the same way:
///
///   fullbore play 'r1234_no0001*3' 'r1234_no0002*1' --to udp://192.0.2.7:46220
///
/// plays the first scan three times and then the second. --playlist reads
/// segments, with the times between which to play them, from a file.
///
/// If the scan is still being recorded, play sends the data that is durable now.
/// With --follow it continues as the scan grows, --delay behind the newest data,
/// until the scan is sealed:
///
///   fullbore play r1234_no0001 --follow --to udp://127.0.0.1:50000-50007
///
/// Lost frames are stored as invalid frames; play skips them unless --fills is
/// given. Ctrl-C ends it early and prints the report. Its first lines are the
/// account: the datagrams sent on time, late, and not sent, with the cause of each
/// gap. The exit code is 1 if data could not be read or sent, or if the timing was missed: more than one frame in
/// a hundred was more than 1 ms late, or the total time was that much too long.
/// With --strict it is 1 if a single datagram was late or not sent.
/// It is also 1 if the scan has no frames, and 2 if none is between --from and
/// --until.
#[derive(Arguments, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The recording: a scan (SESSION_SCAN, or an unambiguous beginning of it), one of its streams
    /// (SESSION_SCAN/STREAM), a file or packet capture (file:PATH), or a device (device:PATH?scan=SESSION_SCAN);
    /// several are played in step, and several written SCAN*N one after the other, N times each.
    #[arg(required_unless_present = "playlist", value_name = "SCAN")]
    scan: Vec<String>,
    /// The destination: udp://HOST:PORT[-PORT][?ttl=N&interface=NAME]; may be given several times.
    #[arg(long, required = true, value_name = "ENDPOINT")]
    to: Vec<String>,
    /// A TOML file of segments that are played one after the other: `[[segment]]` with `play`, `times`, `from`, `until`.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["scan", "from", "until", "follow"])]
    playlist: Option<PathBuf>,
    #[command(flatten)]
    store: StoreArg,
    /// Only these streams of a scan, separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    stream: Vec<String>,

    /// Multiply the recorded speed by this factor.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = factor, help_heading = "Speed")]
    factor: f64,
    /// The rate of all streams together, for example 2Gbit/s.
    #[arg(long, value_name = "RATE", conflicts_with = "factor", help_heading = "Speed")]
    rate: Option<ByteRate>,
    /// As fast as possible.
    #[arg(long, conflicts_with_all = ["factor", "rate"], help_heading = "Speed")]
    flat_out: bool,
    /// Frames per second of each thread, if the file does not contain it.
    #[arg(long, value_name = "N", help_heading = "Speed")]
    fps: Option<u64>,
    /// A UTC time within 500 days of the frames of a Mark 5B file, whose headers have no year. [default: the last change
    /// of the file]
    #[arg(long, value_name = "TIME")]
    near: Option<Tai>,
    /// Sleep between bursts of a quarter of a millisecond instead of spinning, to leave the core to others.
    #[arg(long, conflicts_with = "flat_out", help_heading = "Speed")]
    gentle: bool,
    /// Send frames of the same time in a burst, instead of spreading streams over the time of a frame.
    #[arg(long, help_heading = "Speed")]
    at_once: bool,
    /// Factor over the nominal rate after a stall.
    #[arg(long, value_name = "SPEED", default_value_t = CATCH_UP, help_heading = "Speed")]
    catch_up: f64,

    /// Start at this frame: a UTC time, an offset from the start (`+2.5s`), or, for a single stream, the index of a
    /// frame.
    #[arg(long, value_name = "TIME|FRAME", help_heading = "What to send")]
    from: Option<Position>,
    /// Stop before this frame.
    #[arg(long, value_name = "TIME|FRAME", help_heading = "What to send")]
    until: Option<Position>,
    /// Number of passes, or `forever`: until Ctrl-C.
    #[arg(long = "loop", value_name = "TIMES|forever", default_value = "1", num_args = 0..=1, default_missing_value = "forever", value_parser = passes, help_heading = "What to send")]
    times: u64,
    /// In a loop, keep the recorded times in the frames.
    #[arg(long, help_heading = "What to send")]
    as_recorded: bool,
    /// Also send the fill frames of lost frames.
    #[arg(long, help_heading = "What to send")]
    fills: bool,
    /// Put a packet number of 8 bytes before each frame (VTP).
    #[arg(long, help_heading = "What to send")]
    vtp: bool,

    #[command(flatten)]
    timing: sending::TimingArgs,

    /// Play a scan while it is recorded, until it is sealed. Waits for data to become durable.
    #[arg(long, conflicts_with_all = ["times", "flat_out", "rate"], help_heading = "While it is recorded")]
    follow: bool,
    /// Time to stay behind the newest data. It must cover the time of a block and of a sync.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = sending::duration, requires = "follow", help_heading = "While it is recorded")]
    delay: std::time::Duration,
    /// Start --delay behind the newest data instead of at the first frame.
    #[arg(
        long,
        requires = "follow",
        conflicts_with = "from",
        help_heading = "While it is recorded"
    )]
    live: bool,
}

/// Plays, and prints the report.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    let entries = entries(&args)?;
    if let ([to], [scan]) = (args.to.as_slice(), args.scan.as_slice())
        && to.starts_with("panda:")
    {
        ensure!(
            args.from.is_none() && args.until.is_none() && args.times == 1 && !args.vtp,
            "a PandA sends all of its recording each time it is armed: --from, --until, --loop and --vtp \
             are for datagrams"
        );
        return simulate::play(scan, &args.store, to, pace(&args), output);
    }
    let targets = sending::targets(&args.to)?;
    let mut settings = settings(&args)?;
    let read = |entry: &Entry| -> anyhow::Result<Vec<Input>> {
        entry.play.iter().map(|text| input(&args, text)).collect()
    };
    let inputs = entries.iter().map(read).collect::<anyhow::Result<Vec<_>>>()?;
    let all = inputs.concat();
    refuse_useless(&args, &all, &entries)?;
    // The times in a capture are those of the network: no two streams need to take turns.
    settings.spread &= !all.iter().all(|input| matches!(input, Input::Capture(..)));
    if args.follow {
        let [Input::Scan(selected)] = all.as_slice() else {
            bail!("--follow plays one scan of a store, or one stream of it");
        };
        let mut follower =
            Follower::open(&args.store.members()?, &selected.scan).map_err(explained)?;
        live_scan::settle(&mut follower)?;
        if !follower.status().is_over() {
            return follow(&args, follower, selected.stream.as_ref(), targets, settings, output);
        }
    }
    let scans = open_scans(&args, &all)?;
    let (mut outputs, mut segments) = (Vec::new(), Vec::new());
    for (entry, inputs) in entries.iter().zip(&inputs) {
        let sources = sources(&args, inputs, &scans)?;
        // Streams that never came are named; the others are played.
        let silent = sources.iter().filter(|(_, source)| source.never_came()).count();
        if silent == sources.len() {
            return Ok(ExitCode::from(FOUND));
        }
        let (from, to) = span(&args, range(&args, entry)?, &sources)?;
        if outputs.is_empty() {
            outputs = destinations(&sources, &targets)?;
        }
        let streams = sources.len();
        let mut opened = Vec::with_capacity(streams);
        for (_, source) in sources {
            opened.push(source.open(&args, streams, (from, to))?);
        }
        segments.push(Segment { sources: opened, from, to, times: entry.times });
    }
    let stop = crate::signals::stop_handle()?;
    let progress = Progress::default();
    let replay = Replay::playlist(outputs, segments, settings).map_err(explained)?;
    let report = sending::with_progress(output, &progress, || replay.run(&stop, &progress))
        .map_err(explained)?;
    output.tell(&report, || told(&report, stop.is_requested()))?;
    if !report.in_time() {
        output::note(format_args!("{}", out_of_time(&report, args.gentle)));
    }
    let parts = scans.values().filter(|scan| scan.manifest.incomplete_copy().is_some());
    let parts: Vec<String> = parts.map(|scan| live_scan::died(&scan.manifest)).collect();
    parts.iter().for_each(|part| output::note(format_args!("{part}")));
    Ok(ExitCode::from(if is_good(&args, &report) && parts.is_empty() { GOOD } else { FOUND }))
}

/// What is played one after the other: the playlist, or the arguments.
fn entries(args: &Args) -> anyhow::Result<Vec<Entry>> {
    if let Some(path) = &args.playlist {
        return playlist::load(path).with_context(|| path.display().to_string());
    }
    let once = || vec![Entry { play: args.scan.clone(), times: 1, from: None, until: None }];
    Ok(playlist::of_arguments(&args.scan)?.unwrap_or_else(once))
}

/// The positions between which a segment is played.
fn range(args: &Args, entry: &Entry) -> anyhow::Result<(Option<Position>, Option<Position>)> {
    let position = |text: &Option<String>, given: Option<Position>| match text {
        Some(text) => text.parse().map(Some).map_err(anyhow::Error::msg),
        None => Ok(given),
    };
    Ok((position(&entry.from, args.from)?, position(&entry.until, args.until)?))
}

fn is_good(args: &Args, report: &Report) -> bool {
    report.sent.refused == 0
        && args.timing.is_met(&report.sent)
        && report.in_time()
        && report.streams.iter().all(|it| it.losses.is_empty())
}

/// Plays a scan while it is recorded.
fn follow(
    args: &Args,
    mut follower: Follower,
    stream: Option<&Name>,
    targets: Vec<UdpTarget>,
    mut settings: Settings,
    output: Output,
) -> anyhow::Result<ExitCode> {
    let stop = crate::signals::stop_handle()?;
    let delay_ns = i64::try_from(args.delay.as_nanos()).unwrap_or(i64::MAX);
    settings.delay_ns = delay_ns.unsigned_abs();
    // The streams of a scan are known once it is armed; a PandA's stream is known once it has begun.
    while follower.scan().streams.is_empty() && !follower.status().is_over() {
        live_scan::pause(&mut follower)?;
    }
    let streams = chosen(args, follower.scan(), stream)?;
    let numbers: Vec<usize> = streams.iter().map(|stream| stream.number).collect();
    if !wait_for_delay(&mut follower, &numbers, delay_ns, &stop).map_err(explained)? {
        return Ok(ExitCode::from(GOOD));
    }
    let scan = follower.scan();
    let streams: Vec<&StoredStream> = numbers.iter().map(|number| &scan.streams[*number]).collect();
    let sources: Vec<(String, Source<'_>)> =
        streams.iter().map(|it| (it.name.clone(), Source::Stored(scan, it))).collect();
    (settings.from, settings.to) = span(args, (args.from, args.until), &sources)?;
    if args.live {
        let newest = streams.iter().filter_map(|stream| newest(scan, stream)).max();
        settings.from = newest.map(|newest| newest.plus_ns(-delay_ns));
    }
    let from: Vec<(usize, usize)> =
        streams.iter().map(|it| (it.number, position(scan, it, settings.from))).collect();
    let names: Vec<String> = streams.iter().map(|stream| stream.name.clone()).collect();
    let no_end = live_scan::died(&scan.manifest);
    drop(sources);
    ensure_ports(names.len(), targets.len())?;
    let ahead_bytes = (AHEAD_BYTES / names.len().max(1)).clamp(8 << 20, 16 << 20);
    let reading = read::Settings { ahead_bytes, ..read::Settings::beside_a_recorder() };
    let (looking, frames) = Looking::begin(follower, &from, settings.to, reading)
        .context("starting a thread that looks at the scan")?;
    let target = |n: usize| targets.get(n).unwrap_or(&targets[0]).clone();
    let tracks = names.into_iter().zip(frames).enumerate().map(|(n, (name, frames))| {
        PlaybackStream { name, source: Box::new(frames), target: target(n) }
    });
    let progress = Progress::default();
    let replay = Replay::prepare(tracks.collect(), settings).map_err(explained)?;
    let report = sending::with_progress(output, &progress, || replay.run(&stop, &progress))
        .map_err(explained)?;
    output.tell(&report, || told(&report, stop.is_requested()))?;
    if !report.in_time() {
        output::note(format_args!("{}", out_of_time(&report, args.gentle)));
    }
    let died = looking.status() == FollowState::Died;
    if died {
        output::note(format_args!("{no_end}"));
    }
    Ok(ExitCode::from(if is_good(args, &report) && !died { GOOD } else { FOUND }))
}

/// The time of the newest durable frames of a stream.
fn newest(scan: &Scan, stream: &StoredStream) -> Option<Tai> {
    let last = &stream.blocks.last()?.block;
    Some(stream.time_of_block(last).plus_ns(scan.ahead_ns(stream)))
}

/// The position of the block recorded at that time.
fn position(scan: &Scan, stream: &StoredStream, from: Option<Tai>) -> usize {
    let varying = stream.geometry.is_some_and(|geometry| geometry.frame_bytes == 0);
    // The first whole frame of a block can be located only with the blocks before it.
    let from = from.filter(|_| !varying && !stream.blocks.is_empty());
    let index = from.and_then(|from| stream.index_at(from.plus_ns(-scan.ahead_ns(stream))));
    index.and_then(|index| stream.position_of(index)).unwrap_or(0)
}

/// The pace of a PandA.
fn pace(args: &Args) -> Pace {
    match (args.flat_out, args.rate) {
        (true, _) => Pace::FlatOut,
        (false, Some(rate)) => Pace::Bytes(rate.0),
        (false, None) => Pace::Recorded(args.factor),
    }
}

/// Refuses options that would have no effect.
fn refuse_useless(args: &Args, inputs: &[Input], entries: &[Entry]) -> anyhow::Result<()> {
    let files = inputs.iter().any(|input| matches!(input, Input::File(_) | Input::Device(_)));
    let whole = |input: &Input| matches!(input, Input::Scan(Selected { stream: None, .. }));
    ensure!(files || args.fps.is_none(), "--fps is for a file: a scan knows its own");
    ensure!(files || args.near.is_none(), "--near is for a file: a scan knows its own");
    ensure!(
        args.stream.is_empty() || inputs.iter().any(whole),
        "--stream chooses among the streams of a scan, and none is played whole"
    );
    let again = args.times != 1 || entries.len() > 1 || entries.iter().any(|it| it.times > 1);
    ensure!(again || !args.as_recorded, "--as-recorded is for --loop and segments");
    ensure!(!again || !args.follow, "--follow plays one scan of a store, once");
    Ok(())
}

/// Above this factor, a stall is made up for at once.
const CATCH_UP_LIMIT: f64 = 1000.0;

/// The most frames per second that 24 bits can number.
const FPS_LIMIT: u64 = 1 << 24;

fn settings(args: &Args) -> anyhow::Result<Settings> {
    ensure!(
        (1.0..=CATCH_UP_LIMIT).contains(&args.catch_up),
        "--catch-up {} cannot be: it is 1 to {CATCH_UP_LIMIT} times the speed",
        args.catch_up
    );
    ensure!(args.fps.is_none_or(|fps| (1..=FPS_LIMIT).contains(&fps)), "--fps is 1 to {FPS_LIMIT}");
    let speed = match (args.flat_out, args.rate) {
        (true, _) => Speed::FlatOut,
        (false, Some(rate)) => Speed::Rate(rate),
        (false, None) => Speed::Recorded { factor: args.factor },
    };
    Ok(Settings {
        speed,
        waiting: if args.gentle { Waiting::Gentle } else { Waiting::Exact },
        catch_up: args.catch_up,
        times: (args.times > 0).then_some(args.times),
        from: None,
        to: None,
        fills: args.fills,
        packet_numbers: args.vtp,
        spread: !args.at_once,
        as_recorded: args.as_recorded,
        delay_ns: 0,
        timing: args.timing.timing(),
    })
}

/// An input to play.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Input {
    File(PathBuf),
    Capture(PathBuf, Vec<u16>),
    Device(Part),
    Scan(Selected),
}

/// Parses an input: `file:` and a path, or a scan as for every verb.
fn input(args: &Args, text: &str) -> anyhow::Result<Input> {
    let scheme = text.split_once(':').map(|(scheme, _)| scheme);
    if scheme.is_none_or(|scheme| scheme == "store") {
        return Ok(Input::Scan(scan_arg::find(&args.store.members()?, text)?));
    }
    if DeviceEnd::is_meant(text) {
        return device::part(text).map(Input::Device);
    }
    let error = |error| explained_of(text, error);
    if packet_files::is_meant(text) {
        let (path, ports) = packet_files::played(text).map_err(error)?;
        return Ok(Input::Capture(path, ports));
    }
    let end: Endpoint = text.parse().map_err(error)?;
    Ok(Input::File(endpoint::file_path(&end).map_err(error)?))
}

/// Opens every scan to play, once.
fn open_scans(args: &Args, inputs: &[Input]) -> anyhow::Result<HashMap<ScanName, Scan>> {
    let mut scans = HashMap::new();
    for input in inputs {
        if let Input::Scan(Selected { scan: name, .. }) = input
            && !scans.contains_key(name)
        {
            let roots = args.store.members()?;
            let mut follower = Follower::open(&roots, name).map_err(explained)?;
            live_scan::settle(&mut follower)?;
            if !follower.status().is_over() {
                let growing = live_scan::growing(&follower.scan().manifest);
                output::note(format_args!(
                    "{name} {growing}: playing the data that is durable now\n  \
                     --follow goes on as it grows"
                ));
            }
            scans.insert(name.clone(), follower.into_scan());
        }
    }
    Ok(scans)
}

/// The sources by name.
fn sources<'a>(
    args: &Args,
    inputs: &[Input],
    scans: &'a HashMap<ScanName, Scan>,
) -> anyhow::Result<Vec<(String, Source<'a>)>> {
    let mut sources: Vec<(String, Source<'a>)> = Vec::new();
    for input in inputs {
        match input {
            Input::File(path) => {
                sources.push((path.display().to_string(), Source::File(path.clone())))
            }
            Input::Capture(path, ports) => sources.extend(
                ports.iter().map(|port| (port.to_string(), Source::Capture(path.clone(), *port))),
            ),
            Input::Device(part) => sources.push((part.name.clone(), Source::Device(part.clone()))),
            Input::Scan(Selected { scan, stream }) => {
                let scan = &scans[scan];
                for stream in chosen(args, scan, stream.as_ref())? {
                    sources.push((stream.name.clone(), Source::Stored(scan, stream)));
                }
            }
        }
    }
    Ok(sources)
}

/// The time range, which is the same for all streams because they are played in step.
fn span(
    args: &Args,
    (from, until): (Option<Position>, Option<Position>),
    sources: &[(String, Source<'_>)],
) -> anyhow::Result<(Option<Tai>, Option<Tai>)> {
    if from.is_some() || until.is_some() {
        sources.iter().try_for_each(|(name, source)| source.ensure_timed(name))?;
    }
    let time = |at: Option<Position>| at.map(|at| time_of(at, args, sources)).transpose();
    let (from, until) = (time(from)?, time(until)?);
    if let (Some(from), Some(until)) = (from, until) {
        ensure!(from < until, "--from {from} is not before --until {until}");
    }
    Ok((from, until))
}

/// The time of a position in the inputs.
fn time_of(at: Position, args: &Args, sources: &[(String, Source<'_>)]) -> anyhow::Result<Tai> {
    match (at, sources) {
        (Position::Time(time), _) => Ok(time),
        (Position::After(offset), _) => {
            let mut first = None;
            for (_, source) in sources {
                first = [first, source.first(args)?].into_iter().flatten().min();
            }
            let ns = i64::try_from(offset.as_nanos()).unwrap_or(i64::MAX);
            Ok(first.context("no frame tells its time, to count an offset from")?.plus_ns(ns))
        }
        (Position::Frame(index), [(name, Source::Stored(scan, stream))]) => {
            let time = stream.time_near(index);
            let time = time.with_context(|| format!("{name} has no frame"))?;
            Ok(time.plus_ns(scan.ahead_ns(stream)))
        }
        (Position::Frame(index), _) => bail!(
            "frame {index} is a place in one stream of a scan\n  \
             name the stream, or give a time or an offset such as +2.5s"
        ),
    }
}

/// The streams with their targets: one target each, or one for all.
fn destinations(
    sources: &[(String, Source<'_>)],
    targets: &[UdpTarget],
) -> anyhow::Result<Vec<(String, UdpTarget)>> {
    ensure_ports(sources.len(), targets.len())?;
    let target = |n: usize| targets.get(n).unwrap_or(&targets[0]).clone();
    Ok(sources.iter().enumerate().map(|(n, (name, _))| (name.clone(), target(n))).collect())
}

fn ensure_ports(streams: usize, ports: usize) -> anyhow::Result<()> {
    ensure!(
        ports == streams || ports == 1,
        "{} to be played, and --to gives {}; give one port each, or one for all",
        count(streams, "stream"),
        count(ports, "port")
    );
    Ok(())
}

/// The streams of a scan to play.
fn chosen<'a>(
    args: &Args,
    scan: &'a Scan,
    stream: Option<&Name>,
) -> anyhow::Result<Vec<&'a StoredStream>> {
    let wanted: Vec<&str> = match stream {
        Some(stream) => vec![stream.as_str()],
        None if args.stream.is_empty() => return Ok(scan.streams.iter().collect()),
        None => args.stream.iter().map(String::as_str).collect(),
    };
    wanted.into_iter().map(|name| scan_arg::stream(scan, name)).collect()
}

/// A source of frames.
enum Source<'a> {
    File(PathBuf),
    Capture(PathBuf, u16),
    Device(Part),
    Stored(&'a Scan, &'a StoredStream),
}

/// Memory for the read-ahead of all streams of a replay.
const AHEAD_BYTES: usize = 128 << 20;

impl<'a> Source<'a> {
    fn never_came(&self) -> bool {
        matches!(self, Source::Stored(scan, stream) if scan_arg::never_came(scan, stream))
    }

    /// The time of its first frame, if known.
    fn first(&self, args: &Args) -> anyhow::Result<Option<Tai>> {
        Ok(match self {
            Source::File(path) => FrameFile::open(path, args.fps, args.near)?.first(),
            Source::Capture(path, port) => {
                let mut frames = PacketFrames::open(path, *port)?;
                let any = frames.advance().map_err(|error| anyhow!(error))?;
                any.then(|| frames.frame(0).time).flatten()
            }
            Source::Device(part) => device::frames(part, args.fps)?.first(),
            Source::Stored(scan, stream) => stream
                .blocks
                .first()
                .map(|placed| stream.time_of_block(&placed.block).plus_ns(scan.ahead_ns(stream))),
        })
    }

    /// Refuses a range of a stream whose frames have no times.
    fn ensure_timed(&self, name: &str) -> anyhow::Result<()> {
        if let Source::Stored(_, stream) = self {
            ensure!(
                stream.blocks.is_empty() || stream.is_timed(),
                "the frames of {name} have no time but that of their arrival, all at once\n  \
                 play all of it, without --from and --until"
            );
        }
        Ok(())
    }

    fn open(
        self,
        args: &Args,
        streams: usize,
        (from, to): (Option<Tai>, Option<Tai>),
    ) -> anyhow::Result<Box<dyn FrameSource + 'a>> {
        Ok(match self {
            Source::File(path) => Box::new(FrameFile::open(&path, args.fps, args.near)?),
            Source::Capture(path, port) => Box::new(PacketFrames::open(&path, port)?),
            Source::Device(part) => Box::new(device::frames(&part, args.fps)?),
            Source::Stored(scan, stream) => {
                let settings = read::Settings {
                    reads_per_device: if streams > 2 { 1 } else { 2 },
                    ahead_bytes: (AHEAD_BYTES / streams).max(8 << 20),
                    ..read::Settings::default()
                };
                Box::new(StoredFrames::open(scan, stream, from, to, settings)?)
            }
        })
    }
}

/// The message about a missed pace, with advice.
fn out_of_time(report: &Report, gentle: bool) -> String {
    let LatenessSummary { late, packets, .. } = report.sent.lateness;
    let advice = match gentle {
        true => "the machine is too busy, or the pace is more than it can send",
        false => {
            "other programs use this core too: --gentle sleeps between bursts, which is often more exact then"
        }
    };
    format!(
        "the timing was not kept: {late} of {packets} frames were sent more than 1 ms late{}\n  {advice}",
        total_time(report.sent.seconds, report.due_seconds),
    )
}

/// The duration, and the planned one if it differs.
fn total_time(took: f64, planned: Option<f64>) -> String {
    let (took, planned) = (format!("{took:.2}"), planned.map(|it| format!("{it:.2}")));
    match planned {
        Some(planned) if planned != took => {
            format!("; it took {took} s, and {planned} s were planned")
        }
        Some(_) => format!("; the total time was {took} s, as planned"),
        None => String::new(),
    }
}

/// The report as text.
fn told(report: &Report, stopped: bool) -> String {
    let done = if stopped { "stopped" } else { "played" };
    let what = format!("{} frames, {},", report.frames, ByteSize(report.sent.bytes));
    let mut text = sending::summary(done, &what, &report.sent, report.start.as_ref());
    if let Some(step) = report.step.filter(|step| step.rounds > 0) {
        let [median, p99, max] = [step.median_ns, step.p99_ns, step.max_ns].map(short_time);
        text +=
            &format!("in step  streams differ by {median} (median), p99 {p99}, at most {max}\n");
    }
    if report.waits > 0 {
        let waits = count(report.waits as usize, "time");
        text += &format!(
            "waited   {waits} for new data, {:.2} s in all: the rest was sent that much later\n",
            report.waited_seconds
        );
    }
    for stream in &report.streams {
        text +=
            &format!("stream   {:<12} to {}: {} frames", stream.name, stream.target, stream.frames);
        if stream.fills_left_out > 0 {
            text += &format!(", {} fill frames left out", stream.fills_left_out);
        }
        if let Some(Lag { least_seconds, most_seconds, last_seconds }) = stream.lag {
            text += &format!(
                ", {last_seconds:.2} s behind the durable data ({least_seconds:.2} to {most_seconds:.2})"
            );
        }
        text.push('\n');
        for loss in &stream.losses {
            text += &format!("  lost   {loss}\n");
        }
    }
    text
}

/// A number of passes; 0 is without end.
fn passes(text: &str) -> Result<u64, String> {
    match text {
        "forever" => Ok(0),
        text => text.parse().map_err(|_| "write a number of passes, or `forever`".to_owned()),
    }
}

/// A factor of the recorded speed.
fn factor(text: &str) -> Result<f64, String> {
    let factor: f64 = text.parse().map_err(|error: std::num::ParseFloatError| error.to_string())?;
    match factor.is_finite() && factor > 0.0 {
        true => Ok(factor),
        false => Err("a factor is a number above 0".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::typed as as_typed;

    fn typed(words: &str) -> anyhow::Result<Args> {
        Ok(as_typed(words)?)
    }

    #[test]
    fn what_is_to_be_played_is_a_scan_or_a_file() {
        let args = typed("a_b --to udp://[::1]:1 --store /nowhere").unwrap();
        assert_eq!(input(&args, "file:/x.vdif").unwrap(), Input::File("/x.vdif".into()));
        for text in ["", "../x", "r1_a", "store:r1_a/46220", "udp://a:1", "file:"] {
            assert!(input(&args, text).is_err(), "{text}");
        }
    }

    #[test]
    fn speeds_and_loops_are_read() {
        let of =
            |words: &str| settings(&typed(&format!("a_b --to udp://[::1]:1 {words}")).unwrap());
        assert_eq!(of("").unwrap().speed, Speed::Recorded { factor: 1.0 });
        assert_eq!(of("--rate 2Gbit/s").unwrap().speed, Speed::Rate(ByteRate(250_000_000)));
        assert_eq!(of("--flat-out").unwrap().speed, Speed::FlatOut);
        assert_eq!((of("--loop").unwrap().times, of("--loop 3").unwrap().times), (None, Some(3)));
        assert!(!of("").unwrap().as_recorded && of("--as-recorded").unwrap().as_recorded);
        assert!(of("--catch-up 0.5").is_err() && of("--catch-up inf").is_err());
        assert!(of("--fps 0").is_err());
        assert!(typed("a_b --to udp://[::1]:1 --flat-out --factor 2").is_err());
    }

    #[test]
    fn a_replay_out_of_time_says_how_far_and_what_may_help() {
        let sent = fullbore_replay::Sent {
            seconds: 12.5,
            lateness: LatenessSummary { packets: 1000, late: 40, ..LatenessSummary::default() },
            ..Default::default()
        };
        let report = Report {
            frames: 1000,
            sent,
            due_seconds: Some(10.0),
            times: 1,
            stopped: false,
            waits: 0,
            waited_seconds: 0.0,
            streams: vec![],
            start: None,
            step: None,
        };
        assert!(!report.in_time());
        let told = out_of_time(&report, false);
        assert!(told.contains("40 of 1000"), "{told}");
        assert!(told.contains("it took 12.50 s, and 10.00 s were planned"), "{told}");
        assert!(told.contains("--gentle") && !out_of_time(&report, true).contains("--gentle"));
    }

    #[test]
    fn a_total_time_is_compared_only_if_it_differs_as_printed() {
        assert_eq!(total_time(8.0, Some(8.0)), "; the total time was 8.00 s, as planned");
        assert_eq!(total_time(8.004, Some(7.996)), "; the total time was 8.00 s, as planned");
        assert_eq!(total_time(8.02, Some(8.0)), "; it took 8.02 s, and 8.00 s were planned");
        assert_eq!(total_time(8.0, None), "");
    }

    #[test]
    fn ports_and_streams_must_be_as_many() {
        let args = typed("file:/a file:/b --to udp://[::1]:1-3").unwrap();
        let inputs = [Input::File("/a".into()), Input::File("/b".into())];
        let targets = sending::targets(&args.to).unwrap();
        let scans = HashMap::new();
        let sources = sources(&args, &inputs, &scans).unwrap();
        let error = destinations(&sources, &targets).err().unwrap().to_string();
        assert!(error.contains("2 streams") && error.contains("3 ports"), "{error}");
    }
}
