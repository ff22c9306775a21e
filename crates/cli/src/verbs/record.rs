//! `fullbore record`: records streams from the network into a store, with an account.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Args as ClapArgs;
use fullbore_core::affinity::{AffinityPolicy, SchedulingPolicy};
use fullbore_core::completeness::Planned;
use fullbore_core::device::{BytesStream, DeviceEnd};
use fullbore_core::endpoint::{FileTarget, Parameter, UdpSource};
use fullbore_core::format::panda::PandaSource;
use fullbore_core::manifest::State;
use fullbore_core::name::{Name, ScanName};
use fullbore_core::redundancy::Scheme;
use fullbore_core::retention::Retention;
use fullbore_core::time::Tai;
use fullbore_core::units::ByteSize;
use fullbore_engine::clock::Clock;
use fullbore_engine::recorder::{
    Event, EventHandler, Limit, PandaConfig, RecordError, Recorder, RecordingConfig, Sealed,
    SealedSink, SourceConfig, StopHandle,
};
use fullbore_engine::ring::Taps;
use fullbore_engine::sink::device::DeviceResult;
use fullbore_engine::sink::{SinkConfig, StoreConfig};
use fullbore_recording::RetentionThread;

mod clock;
mod device;
pub mod into;
mod panda;
mod schedule;
mod several;
mod stall;

#[cfg(feature = "hdf5")]
use into::container as record_to;

use crate::hint::{explained, explained_of};
use crate::output::{self, Output};
use crate::screen::Screen;
use crate::signals;
use crate::store_arg::StoreArg;

/// Record streams into a store, with an account of every frame.
///
///   fullbore record 'udp://0.0.0.0:46220-46235?format=vdif' \
///     --store /mnt/disk0,/mnt/disk1 --session r1234 --scan no0001 --duration 40s
///
/// records sixteen ports into the scan r1234_no0001 on two disks for forty
/// seconds. It shows the state of each stream and each disk meanwhile, and prints
/// the account at the end. Quote sources: a shell would interpret ? and &.
///
/// Each SOURCE is a port, or a range of ports, that receives datagrams:
///
///   udp://0.0.0.0:46220?format=vdif                 a VDIF stream
///   udp://0.0.0.0:46220-46235?format=vdif           sixteen of them
///   udp://0.0.0.0:46220?format=vdif&threads=split   a stream for each thread
///   udp://0.0.0.0:46220?format=vtp                  VDIF behind a packet number
///   udp://239.1.1.1:5000?interface=eth0             a multicast group
///   udp://[::]:5000?format=raw&seq=0:4:be           anything with a counter
///   panda://172.23.252.201                          a PandA: its acquisitions
///   pattern:prbs31?rate=2Gbit/s                     a test pattern
///   file:x.vdif                                     a file, or a named pipe
///   device:/dev/nvme0n1?scan=r1_a                   the contents of a device
///   -                                               standard input
///
/// The last four are bytes without frames: they are recorded as they come, and the
/// account counts bytes. These sources wait while the sink is busy, and the
/// recording ends when all sources have ended.
///
/// Several sources become streams of one scan. With PandAs, a scan is one
/// acquisition of each PandA, and ends when all of them have ended; --duration then
/// ends the recording.
///
/// With --to device:PATH, one stream goes directly to a drive without a file
/// system: as a scan of its index with --session and --scan, else as bare chunks:
///
///   fullbore record pattern:prbs31 --to 'device:/dev/nvme0n1?first=0&last=0x40000'
///
/// With --to file:PATH, or --to - for standard output, the bytes of one stream go into
/// a plain file or a pipe, in order. The account is then printed on standard error:
///
///   fullbore record 'udp://0.0.0.0:46220?format=vdif' --to - | m5spec …
///
/// Several sinks take the same blocks, one after the other, and each loses nothing as
/// long as all keep up: repeat --to, and combine it with --store (or --to store:DIR).
/// If one fails, the others go on, and the account of each says what it has:
///
///   fullbore record 'udp://0.0.0.0:46220?format=vdif' --store /data \
///     --session r1234 --scan no0001 --to hdf5:x.h5 --to file:x.raw
///
/// record prints `armed` when all memory is mapped and all ports listen. Data sent
/// before that is not recorded. Ctrl-C stops: record writes the data it holds and
/// seals the scan. A second Ctrl-C aborts. A third one does not wait for disks that
/// do not respond, and leaves the scan for `fullbore recover`. If its terminal goes
/// away, record stops too, unless it was started with nohup.
/// A process whose disk does not respond stays in the list of processes until the
/// disk responds: the kernel does not end a thread that waits for it.
///
/// To record into an HDF5 file that readers can follow (SWMR):
///
///   fullbore record 'udp://0.0.0.0:46220?format=vdif' --to hdf5:now.h5
///
/// A VDIF stream becomes its frames, one per row, and the time of each. Other
/// streams become their bytes, with the arrival time of each block. With several
/// streams, each gets its own file, now_46220.h5, and now.h5 shows all of them.
/// ?existing=append adds the scan to existing files; /acquisitions in each says
/// which rows belong to which scan. PandAs are recorded in the same way, one or
/// several, alone or beside datagrams (see `fullbore panda record --help`):
///
///   fullbore record panda://A panda://B --arm --to hdf5:scan-%d.h5
///
/// --scans records several scans without losing a frame between them: --scan no,
/// --scans 10 and --duration 40s make no0001 to no0010.
///
/// At the end, the first line says whether the recording is complete: COMPLETE,
/// LOST (how many frames, and why), INCOMPLETE (a stream never came, began late or
/// ended early, or does not cover the plan) or UNKNOWN (the frames cannot show a
/// loss). Streams that are not complete follow, the worst first, then the verdict,
/// the state of the recorder, and the next step. A planned scan that was over
/// before it could begin is MISSED.
///
/// Exit codes: 0 nothing is lost, and the plan (--start, --until, a schedule) is
/// covered; 1 frames are missing, overrun, damaged or late, explained or not, or
/// arrived and were not kept; a stream never came, began late or ended early, or
/// does not cover the plan; a planned scan was missed; a sender restarted its count; a PandA could not be asked
/// how many samples it took; a member failed or was away, or the requested
/// redundancy is incomplete; or the recording was aborted; 2 the recording could not
/// be made, or could not end properly. If frames carry nothing to count by, 0 says
/// that no loss is known.
#[derive(ClapArgs, Clone)]
#[command(verbatim_doc_comment, after_help = parameters())]
pub struct Args {
    /// The sources of frames.
    #[arg(required = true, value_name = "SOURCE")]
    source: Vec<String>,
    #[command(flatten)]
    store: StoreArg,
    /// Name of the session, such as that of the experiment: letters, digits, `-` and `+`.
    #[arg(
        long,
        value_name = "NAME",
        required_unless_present_any = ["to", "schedule"],
        default_value = "",
        hide_default_value = true
    )]
    session: String,
    /// Name of the scan: letters, digits, `-`, `+` and `_`. --scans appends a number. Other commands call the scan
    /// SESSION_SCAN.
    #[arg(
        long,
        value_name = "NAME",
        required_unless_present_any = ["to", "schedule"],
        default_value = "",
        hide_default_value = true
    )]
    scan: String,
    /// Record the scans of this schedule, each at its time: TOML, CSV or a VEX file (see docs/howto).
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["scan", "scans", "duration", "bytes", "until", "to"]
    )]
    schedule: Option<PathBuf>,
    /// For a VEX file: the station whose scans are recorded.
    #[arg(long, value_name = "CODE")]
    station: Option<String>,
    /// For a schedule: how long before its start a scan is armed [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = crate::verbs::sending::duration)]
    lead: Option<Duration>,
    /// Record this many scans one after the other, without losing a frame between them.
    #[arg(long, value_name = "N", default_value_t = 1)]
    scans: u32,
    /// Begin at this time, in UTC: `2026-11-21T18:00:00`. With --duration or --until this is a plan: record reports the
    /// seconds and frames of it that a stream does not cover, and the exit code is 1.
    #[arg(long, value_name = "UTC", conflicts_with_all = ["schedule"])]
    start: Option<Tai>,
    /// End each scan after this time, for example `40s` or `2h 30m` [default: at Ctrl-C]. Without --start, this is only a
    /// limit: senders may start and stop at any time
    #[arg(long, value_name = "TIME", value_parser = crate::verbs::sending::duration)]
    duration: Option<Duration>,
    /// End each scan once so many bytes have been received, for example `10GB`. With --scans, each but the
    /// first lasts 400 ms at least.
    #[arg(long, value_name = "SIZE")]
    bytes: Option<ByteSize>,
    /// End at this time, in UTC: `2026-11-21T18:00:00`. This is a plan: a stream that ends earlier does not cover the
    /// scan.
    #[arg(long, value_name = "UTC")]
    until: Option<Tai>,
    /// Block memory for all sources together [default: if every source gives its rate (fps= and frame=), the sum of
    /// blocks being filled, blocks being written, and blocks queued while a member stalls for twice the longest stall
    /// that `fullbore bench disk` measured, or 1 s; without a rate 2 GiB, or a quarter of the free memory]
    #[arg(long, value_name = "SIZE")]
    buffer: Option<ByteSize>,
    /// The size of chunk files, rounded down to whole blocks [default: 256 MB]. May be larger than the disk: with 10GB, a
    /// scan of up to 10 GB is one file for each stream
    #[arg(long, value_name = "SIZE")]
    chunk: Option<ByteSize>,
    /// Capture threads, at most one for each source [default: one for every four cores]
    #[arg(long, value_name = "N")]
    capture_threads: Option<usize>,
    /// Cores to run on: first those of the capture threads, then those of the writers.
    #[arg(long, value_name = "CPU[,CPU…]", value_delimiter = ',')]
    cpus: Vec<usize>,
    /// Cores of capture threads and writers: `auto` chooses by the machine's cores, nodes and interrupts, and pins nothing
    /// if there are too few cores; `off`; or cores for either: capture=2-3,writers=4-7
    #[arg(
        long,
        value_name = "auto|off|capture=CPUS,writers=CPUS",
        default_value = "auto",
        conflicts_with = "cpus"
    )]
    place: AffinityPolicy,
    /// Priority of these threads: `auto` uses SCHED_FIFO if capture threads have their own cores, else a lower nice value;
    /// `off`; or `fifo:N` on any machine, with N from 1 to 49
    #[arg(long, value_name = "auto|off|fifo:N", default_value = "auto")]
    priority: SchedulingPolicy,
    /// Longest time until written data is durable [default: 250ms]. A block is written when it is full. Once a second, the
    /// unfinished blocks of slow streams are saved for `recover`
    #[arg(long, value_name = "TIME", value_parser = crate::verbs::sending::duration)]
    sync: Option<Duration>,
    /// Record to a device, device:PATH, into a container, for example hdf5:capture-%d.h5, into a plain file, file:PATH, to
    /// standard output, -, or into a store, store:DIR[,DIR…]. Without --store there is no other store. Repeat it for
    /// several sinks of the same data. A container takes PandAs and any number of other sources, in the layout of
    /// `convert`. A file takes one stream, and so does each of several devices (one --to each, or device:A,device:B)
    #[arg(long, value_name = "DEVICE|HDF5|FILE|STORE|-")]
    to: Vec<String>,
    #[command(flatten)]
    device: device::Options,
    /// For a PandA: arm it when all is ready, and again after each acquisition.
    #[arg(long)]
    arm: bool,
    /// For a PandA: how long to retry a lost connection [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = crate::verbs::sending::duration)]
    reconnect: Option<Duration>,
    /// After each scan, remove the oldest ones, to keep no more than a size or an age: 500GB, 2d. The newest scan always
    /// stays, and so do scans that are unsealed, protected, or partly on a member that is away; no newer scan is removed in
    /// their place.
    #[arg(long, value_name = "SIZE|AGE")]
    keep: Option<Retention>,
    /// Protect against the loss of members: `mirror`, a copy of each chunk on another member, or `parity:K+M`, M parity
    /// chunks for K chunks, all on different members, so that any M of these can fail. Chunks stay plain files. Parity
    /// follows as chunks are complete, and is complete when the scan is sealed.
    #[arg(long, value_name = "mirror|parity:K+M")]
    redundancy: Option<Scheme>,
    /// Directories of --store that become new members although the store had others there before, because a new disk is
    /// mounted in place of an old one. Without this, such a directory counts as a mount point without its disk, and is left
    /// out.
    #[arg(long, value_name = "DIR[,DIR…]", value_delimiter = ',')]
    new_member: Vec<PathBuf>,
    #[command(flatten)]
    clock: clock::ClockArgs,
    /// Draw no live screen.
    #[arg(long)]
    quiet: bool,
}

impl Args {
    fn lead(&self) -> Duration {
        self.lead.unwrap_or(Duration::from_secs(5))
    }

    fn sources(&self) -> anyhow::Result<Vec<SourceConfig>> {
        sources_of(&self.source, self.arm, self.reconnect())
    }

    fn reconnect(&self) -> Duration {
        self.reconnect.unwrap_or(Duration::from_secs(30))
    }

    /// Refuses options of another kind of recording, which would have no effect. (The parser does not enforce their
    /// requirement of --schedule if an argument conflicts with --schedule.)
    fn refuse_idle(&self) -> anyhow::Result<()> {
        let (schedule, panda) =
            (self.schedule.is_some(), self.source.iter().any(|it| is_panda(it)));
        let no_store = !self.to.is_empty() && self.store.store.is_empty();
        let of_store = "it is for a store, and the recording goes into none";
        let idle = [
            ("--chunk", of_store, self.chunk.is_some() && no_store),
            ("--keep", of_store, self.keep.is_some() && no_store),
            ("--redundancy", of_store, self.redundancy.is_some() && no_store),
            ("--new-member", of_store, !self.new_member.is_empty() && no_store),
            ("--lead", "it is for --schedule", self.lead.is_some() && !schedule),
            ("--station", "it is for --schedule", self.station.is_some() && !schedule),
            ("--arm", "it is for a PandA, and none is a source", self.arm && !panda),
            (
                "--reconnect",
                "it is for a PandA, and none is a source",
                self.reconnect.is_some() && !panda,
            ),
        ];
        match idle.into_iter().find(|(.., idle)| *idle) {
            Some((option, why, _)) => anyhow::bail!("{option}: {why}"),
            None => Ok(()),
        }
    }
}

/// The parameters of a source's endpoint, for the help.
fn parameters() -> String {
    let udp = parameters_of("udp://", UdpSource::PARAMETERS);
    let panda = parameters_of("panda://", PandaSource::PARAMETERS);
    udp + "\n" + &panda + "\n" + &device::parameters()
}

fn parameters_of(scheme: &str, parameters: &[Parameter]) -> String {
    let mut text = format!("What may follow the `?` of a {scheme} source, joined by `&`:\n");
    for Parameter { name, example, meaning } in parameters {
        let mut example = format!("{name}={example}");
        for line in output::wrapped(meaning, 50) {
            text += &format!("  {example:<26}  {line}\n");
            example.clear();
        }
    }
    text
}

/// Runs the command.
pub fn run(mut args: Args, output: Output) -> anyhow::Result<ExitCode> {
    let quiet = args.quiet;
    several::take_store(&mut args)?;
    args.refuse_idle()?;
    if several::is_meant(&args) {
        return several::run(args, output);
    }
    if args.to.iter().any(|to| DeviceEnd::is_meant(to)) {
        let ends = crate::verbs::device::ends(&args.to);
        return device::run(args, ends, output);
    }
    if let [to] = args.to.as_slice() {
        if FileTarget::is_meant(to) {
            device::refuse_options(&args, "a file", false)?;
            let target = FileTarget::parse(to).map_err(|error| explained_of(to, error))?;
            return into::file(&args, target, output);
        }
        device::refuse_options(&args, "a container", true)?;
        return record_to(&args, to, output);
    }
    if let Some(file) = args.schedule.clone() {
        return schedule::run(&args, &file, output);
    }
    let keep = args.keep;
    let plan = resolve(args)?;
    let retention =
        keep.map(|keep| RetentionThread::start(plan.members().to_vec(), keep)).transpose();
    let retention = retention.context("starting the retention thread")?;
    record(plan, retention, output, quiet, |_| ())
}

/// Records, and shows the events. `armed` is called with the handler of events when the recording is armed.
pub fn record(
    plan: RecordingConfig,
    retention: Option<RetentionThread>,
    output: Output,
    quiet: bool,
    armed: impl FnOnce(&mut EventHandler<'_>),
) -> anyhow::Result<ExitCode> {
    let control = Arc::new(StopHandle::default());
    signals::stop_recording(&control)?;
    let mut screen = Screen::new(output, quiet)?;
    let (mut code, mut sealed_scans) = (output::GOOD, 0);
    let (wanted, of_pandas) = (plan.scan_count(), plan.has_acquisitions());
    let mut advice = panda::OverrunAdvice::default();
    let mut tell = |event: &Event| {
        match event {
            Event::Sealed(sealed) => {
                code = code.max(judge(sealed));
                sealed_scans += 1;
            }
            Event::Missed { .. } => code = code.max(output::FOUND),
            Event::Source(report) if panda::is_loss(&report.event) => {
                code = code.max(output::FOUND);
            }
            _ => {}
        }
        screen.event(event);
        advice.after(event).iter().for_each(|event| screen.event(event));
        tell_of(retention.as_ref(), event, &mut screen);
    };
    let recorder = match Recorder::arm(plan, &mut tell) {
        Ok(recorder) => recorder,
        Err(error) => {
            screen.end();
            device::tell_of_addresses(&error, output);
            return Err(explained(error));
        }
    };
    armed(&mut tell);
    let ended = recorder.run(&control, &mut tell);
    if !matches!(ended, Err(RecordError::Left { .. })) {
        finish(retention, &mut screen);
    }
    if ended.is_ok() && of_pandas && sealed_scans < wanted.unwrap_or(1) {
        let text = match wanted {
            None => "ended before any acquisition came: nothing is recorded".to_owned(),
            Some(wanted) => {
                format!("ended before its time: {sealed_scans} of {wanted} acquisitions came")
            }
        };
        screen.event(&Event::Warning { text });
        code = code.max(output::FOUND);
    }
    screen.end();
    ended.map_err(explained)?;
    Ok(ExitCode::from(code))
}

/// Notifies the retention thread of a sealed scan, and shows its events.
fn tell_of(retention: Option<&RetentionThread>, event: &Event, screen: &mut Screen) {
    let Some(retention) = retention else { return };
    if matches!(event, Event::Sealed(_)) {
        retention.scan_sealed();
    }
    retention.told().iter().for_each(|event| screen.event(event));
}

fn finish(retention: Option<RetentionThread>, screen: &mut Screen) {
    let told = retention.map_or(Vec::new(), RetentionThread::finish);
    told.iter().for_each(|event| screen.event(event));
}

#[cfg(not(feature = "hdf5"))]
fn record_to(_: &Args, _: &str, _: Output) -> anyhow::Result<ExitCode> {
    anyhow::bail!("--to: this program was built without HDF5")
}

fn is_panda(text: &str) -> bool {
    text.trim_start().starts_with("panda:")
}

/// The sources in the order of the arguments.
pub fn sources_of(
    texts: &[String],
    arm: bool,
    reconnect: Duration,
) -> anyhow::Result<Vec<SourceConfig>> {
    let mut pandas = pandas_of(texts)?.into_iter();
    let mut sources = Vec::new();
    for text in texts {
        if is_panda(text) {
            let panda = |source| PandaConfig { source, arm, reconnect, dump: None };
            sources.extend(pandas.next().map(panda).map(SourceConfig::Panda));
        } else if BytesStream::is_meant(text) {
            let stream = BytesStream::parse(text).map_err(|error| explained_of(text, error))?;
            sources.push(SourceConfig::from(stream));
        } else {
            let ports = UdpSource::parse(text).map_err(|error| explained_of(text, error))?;
            sources.extend(ports.into_iter().map(SourceConfig::from));
        }
    }
    Ok(sources)
}

/// The cores of --cpus, else of --place.
fn place_of(cpus: Vec<usize>, place: AffinityPolicy) -> AffinityPolicy {
    if cpus.is_empty() { place } else { AffinityPolicy::InTurn(cpus) }
}

/// The PandAs among the sources. If several have no name, they are numbered.
fn pandas_of(sources: &[String]) -> anyhow::Result<Vec<PandaSource>> {
    let parse = |text: &String| PandaSource::parse(text).map_err(|error| explained_of(text, error));
    let texts = sources.iter().filter(|text| is_panda(text));
    told_apart(texts.map(parse).collect::<anyhow::Result<Vec<_>>>()?)
}

/// Numbers the PandAs without names, if there are several.
pub fn told_apart(mut pandas: Vec<PandaSource>) -> anyhow::Result<Vec<PandaSource>> {
    let unnamed: Vec<&mut PandaSource> =
        pandas.iter_mut().filter(|panda| panda.name.as_str() == "panda").collect();
    if unnamed.len() > 1 {
        for (number, panda) in (1..).zip(unnamed) {
            panda.name = format!("panda{number}").parse().context("the name of a stream")?;
        }
    }
    Ok(pandas)
}

/// The shortest sync interval: more frequent syncs would occupy the disk completely.
const SHORTEST_SYNC: Duration = Duration::from_millis(1);

/// The longest sync interval.
const LONGEST_SYNC: Duration = Duration::from_secs(3600);

/// The most scans of one series: a day with a scan every second.
const MOST_SCANS: u32 = 86_400;

/// Converts arguments to a recording's configuration.
fn resolve(args: Args) -> anyhow::Result<RecordingConfig> {
    let sources = args.sources()?;
    let without_pandas = !args.source.iter().any(|text| is_panda(text));
    let session = Name::session(&args.session).context("--session")?;
    let scans = scan_names(&session, &args.scan, args.scans)?;
    check_limits(&args)?;
    if args.scans > 1 && without_pandas {
        if let Some(duration) = args.duration {
            check_series(duration)?;
        }
        let ends = args.duration.is_some() || args.bytes.is_some();
        anyhow::ensure!(ends, "--scans needs --duration or --bytes, to know where a scan ends");
        anyhow::ensure!(
            args.until.is_none(),
            "--until ends all scans: use --duration with --scans"
        );
    }
    let (limit, planned) = when(&args, without_pandas)?;
    let members = args.store.members_to_write()?;
    if let Some(other) = args.new_member.iter().find(|path| !members.contains(path)) {
        anyhow::bail!("--new-member {} is not a member in --store", other.display());
    }
    let stall::Measured { stall, disk_rate } = stall::measured(&members);
    Ok(RecordingConfig {
        sources,
        sinks: vec![SinkConfig::Store(StoreConfig {
            members,
            chunk: args.chunk,
            redundancy: args.redundancy,
            stall,
            disk_rate,
            degraded_start: None,
            new_members: args.new_member,
        })],
        scans,
        further_scans: 0,
        start: args.start,
        limit,
        planned,
        pause: None,
        buffer: args.buffer,
        capture_threads: args.capture_threads,
        place: place_of(args.cpus, args.place),
        priority: args.priority,
        sync_interval: args.sync,
        taps: Taps::default(),
        clock: args.clock.limits(),
    })
}

/// The end of a scan, and the plan that its streams have to cover.
fn when(args: &Args, without_pandas: bool) -> anyhow::Result<(Limit, Planned)> {
    let mut limit =
        Limit { duration: args.duration, bytes: args.bytes.map(|size| size.0), until: args.until };
    if let Some(start) = args.start {
        anyhow::ensure!(without_pandas, "--start: a PandA's acquisitions begin when it is armed");
        anyhow::ensure!(start > Clock::new().now(), "--start {start:.1} is past");
        anyhow::ensure!(
            args.until.is_none_or(|until| until > start),
            "--until is before --start: there would be nothing to record"
        );
        // The end of a single scan is a time; consecutive scans have durations.
        if let (Some(duration), 1) = (limit.duration, args.scans) {
            let end = start.plus_ns(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX));
            limit.until = Some(limit.until.map_or(end, |until| until.min(end)));
            limit.duration = None;
        }
    }
    let planned = match without_pandas {
        true => Planned { begin: args.start, end: limit.until },
        false => Planned::default(),
    };
    Ok((limit, planned))
}

/// Refuses impossible sizes and times.
fn check_limits(args: &Args) -> anyhow::Result<()> {
    for (name, size) in
        [("--bytes", args.bytes), ("--buffer", args.buffer), ("--chunk", args.chunk)]
    {
        anyhow::ensure!(size != Some(ByteSize(0)), "{name} is zero");
    }
    anyhow::ensure!(args.duration != Some(Duration::ZERO), "--duration is zero");
    anyhow::ensure!(
        args.capture_threads != Some(0),
        "--capture-threads is zero: nothing would listen"
    );
    if let Some(sync) = args.sync {
        anyhow::ensure!(
            (SHORTEST_SYNC..=LONGEST_SYNC).contains(&sync),
            "--sync {} cannot be: it is 1ms to 1h",
            humantime::format_duration(sync)
        );
    }
    Ok(())
}

/// The shortest scan of a series: after this time, every stream has continued from one scan to the next.
const SHORTEST_OF_SERIES: Duration = Duration::from_millis(400);

fn check_series(duration: Duration) -> anyhow::Result<()> {
    anyhow::ensure!(
        duration >= SHORTEST_OF_SERIES,
        "--duration {} is too short for scans one after the other: each lasts 400ms at least",
        humantime::format_duration(duration)
    );
    Ok(())
}

/// One name, or a name for each scan: `no0001`, `no0002`, …
fn scan_names(session: &Name, scan: &str, count: u32) -> anyhow::Result<Vec<ScanName>> {
    anyhow::ensure!(count > 0, "--scans is zero: there would be nothing to record");
    anyhow::ensure!(count <= MOST_SCANS, "--scans {count} are more than {MOST_SCANS}");
    let name = |text: String| -> anyhow::Result<ScanName> {
        Ok(ScanName { session: session.clone(), scan: text.parse().context("--scan")? })
    };
    if count == 1 {
        return Ok(vec![name(scan.to_owned())?]);
    }
    (1..=count).map(|number| name(format!("{scan}{number:04}"))).collect()
}

/// The exit code: not success for missing frames, a plan that is not covered, a degraded disk set, or an abort.
pub(super) fn judge(sealed: &Sealed) -> u8 {
    let found = !sealed.completeness.is_good()
        || !sealed.manifest.wanting().is_empty()
        || !sealed.devices.iter().all(DeviceResult::is_whole)
        || !sealed.sinks.iter().all(SealedSink::is_whole)
        || sealed.manifest.state == State::Aborted;
    if found { output::FOUND } else { output::GOOD }
}

#[cfg(test)]
mod tests {
    use fullbore_core::account::{Account, Terms, Verdict};
    use serde_json::{Value, json};

    use super::*;

    const NIL: &str = "00000000-0000-0000-0000-000000000000";

    #[test]
    fn frames_that_are_not_there_are_something_found() {
        let judged_with = |terms: Terms, failure: Option<&str>, state: &str, more: Value| {
            let mut account = Account::new(fullbore_core::account::CountedBy::FrameTime);
            account.terms = Terms { expected: terms.sum(), ..terms };
            account.verdict = Verdict::Consistent;
            let mut manifest = json!({
                "version": fullbore_core::manifest::VERSION,
                "uuid": NIL,
                "scan": { "session": "s", "scan": "a" },
                "state": state,
                "software": "",
                "host": "",
                "armed": "2026-11-21T18:00:00.000000000Z",
                "stopped": null,
                "members": [{
                    "uuid": NIL, "path": "/data", "failure": failure, "buffered": false,
                }],
                "streams": [],
            });
            let more = more.as_object().unwrap().clone();
            manifest.as_object_mut().unwrap().extend(more);
            let manifest = serde_json::from_value(manifest).unwrap();
            judge(&Sealed::of(manifest, vec![account]))
        };
        let judged = |terms, failure, state| judged_with(terms, failure, state, json!({}));
        let none = Terms::default();
        assert_eq!(judged(none, None, "sealed"), output::GOOD);
        assert_eq!(judged(Terms { written: 1, ..none }, None, "sealed"), output::GOOD);
        for lost in [
            Terms { missing: 1, ..none },
            Terms { overrun: 1, ..none },
            Terms { damaged: 1, ..none },
            Terms { late: 1, ..none },
        ] {
            assert_eq!(judged(lost, None, "sealed"), output::FOUND, "{lost:?}");
        }
        assert_eq!(judged(none, Some("the disk is full"), "sealed"), output::FOUND);
        assert_eq!(judged(none, None, "aborted"), output::FOUND);
        let with = |more| judged_with(none, None, "sealed", more);
        let away = json!({ "away": [{ "path": "/mnt/disk1", "why": "it is not mounted" }] });
        assert_eq!(with(away), output::FOUND);
        let parity = |narrow: u64, unprotected: u64| {
            let followed = json!({
                "stripes": 4, "chunks": 8, "unprotected": unprotected, "narrow": narrow,
                "bytes": 9, "most_behind": 0, "after_ms": 1,
            });
            json!({ "redundancy": { "data": 2, "parity": 2, "followed": followed } })
        };
        assert_eq!(with(parity(0, 0)), output::GOOD);
        assert_eq!(with(parity(1, 0)), output::FOUND);
        assert_eq!(with(parity(0, 1)), output::FOUND);
    }

    #[test]
    fn several_pandas_without_a_name_are_numbered() {
        let named = |texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(|text| text.to_string()).collect();
            let names = pandas_of(&texts).unwrap().into_iter().map(|panda| panda.name.to_string());
            names.collect::<Vec<_>>()
        };
        assert_eq!(named(&["panda://a"]), ["panda"]);
        let several = ["panda://a", "udp://:5000", "panda://b?name=left", "panda://c"];
        assert_eq!(named(&several), ["panda1", "left", "panda2"]);
    }

    #[test]
    fn scans_of_a_series_are_not_shorter_than_going_on_takes() {
        assert!(check_series(Duration::from_millis(400)).is_ok());
        let error = check_series(Duration::from_millis(399)).unwrap_err();
        assert!(error.to_string().contains("400ms"), "{error}");
    }

    #[test]
    fn several_scans_are_numbered() {
        let session = Name::session("s").unwrap();
        let names = scan_names(&session, "no", 3).unwrap();
        let texts: Vec<String> = names.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["s_no0001", "s_no0002", "s_no0003"]);
        assert!(scan_names(&session, "no", 0).is_err());
        assert!(scan_names(&session, "../x", 1).is_err());
    }
}
