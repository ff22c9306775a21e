//! `fullbore record`: streams from the network into a store, with an account.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Args as ClapArgs;
use fullbore_core::completeness::Planned;
use fullbore_core::device::DeviceEnd;
use fullbore_core::endpoint::{Parameter, UdpSource};
use fullbore_core::format::panda::PandaSource;
use fullbore_core::keep::Keep;
use fullbore_core::manifest::State;
use fullbore_core::name::{Name, ScanName};
use fullbore_core::place::{Urgency, Wish};
use fullbore_core::redundancy::Scheme;
use fullbore_core::time::Tai;
use fullbore_core::units::ByteSize;
use fullbore_engine::clock::Clock;
use fullbore_engine::recorder::{
    Control, Event, Limit, PandaPlan, Plan, RecordError, Recorder, Sealed,
};

mod clock;
mod device;
#[cfg(feature = "hdf5")]
mod into;
mod keeper;
mod schedule;
mod stall;

use keeper::Keeper;

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
/// seconds, shows meanwhile how each stream and each disk stands, and prints the
/// account. Quote sources: a shell would read the ? and the &.
///
/// Each SOURCE is a port, or a range of ports, that datagrams come to:
///
///   udp://0.0.0.0:46220?format=vdif                 a VDIF stream
///   udp://0.0.0.0:46220-46235?format=vdif           sixteen of them
///   udp://0.0.0.0:46220?format=vdif&threads=split   a stream for each thread
///   udp://0.0.0.0:46220?format=vtp                  VDIF behind a packet number
///   udp://239.1.1.1:5000?interface=eth0             a multicast group
///   udp://[::]:5000?format=raw&seq=0:4:be           anything with a counter
///   panda://172.23.252.201                          a PandA: its acquisitions
///
/// Several sources are streams of one scan. With PandAs among them a scan is one
/// acquisition of each, and ends when all of them have ended; --duration then ends
/// the recording.
///
/// With --to device:PATH, one stream goes straight onto a drive without a file
/// system: as a scan of its index with --session and --scan, else as bare chunks:
///
///   fullbore record pattern:prbs31 --to 'device:/dev/nvme0n1?first=0&last=0x40000'
///
/// Its source may also be a pattern, file:PATH, a device, or - for standard input.
///
/// It says `armed` once everything is mapped and listening: what is sent before
/// is not recorded. Ctrl-C stops: what is held is written and the scan is sealed.
/// A second Ctrl-C aborts. A third one waits for no disk that does not answer: the
/// scan is left for `fullbore recover`. A terminal that goes away stops too,
/// unless it was started with nohup.
///
/// Into an HDF5 file instead, for readers to see while it grows (SWMR):
///
///   fullbore record 'udp://0.0.0.0:46220?format=vdif' --to hdf5:now.h5
///
/// A VDIF stream becomes its frames, one a row, and the time of each; others
/// become their bytes, with the time at which each block came. Of several streams
/// each has a file of its own, now_46220.h5, and now.h5 shows all of them. With
/// ?existing=append the scan is added to those that the files have already, and
/// /acquisitions in each says which rows are whose. PandAs are recorded so too,
/// one or several (see `fullbore panda record --help`):
///
///   fullbore record panda://A panda://B --arm --to hdf5:scan-%d.h5
///
/// Several scans follow one another without a frame lost between them with
/// --scans: of --scan no, --scans 10 and --duration 40s come no0001 to no0010.
///
/// At the end the first line says whether the recording is complete: COMPLETE,
/// LOST so many frames and why, INCOMPLETE (a stream never came, lacks an end,
/// or does not cover what was planned) or UNKNOWN (nobody can say). The second
/// line says how well that is explained.
///
/// Exit codes: 0 nothing is lost, and what was planned (--start, --until, a
/// schedule) is covered; 1 frames are missing, overrun, damaged or late,
/// explained or not, or came and were not kept; a stream never came, lacks an
/// end that others have, or does not cover the plan; a sender restarted its
/// count; a PandA could not be asked how many samples it took; a member failed
/// or was away, or the redundancy that was asked for could not all be made; or
/// it was aborted; 2 the recording could not be made, or not be ended properly.
/// Where frames carry nothing to count by, 0 says that nothing is known to be
/// lost.
#[derive(ClapArgs, Clone)]
#[command(verbatim_doc_comment, after_help = parameters())]
pub struct Args {
    /// Where frames come from.
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
    /// Name of the scan: letters, digits, `-`, `+` and `_`. With --scans, a number is put behind it. Other
    /// commands know it as SESSION_SCAN.
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
    /// Of a VEX file: the station whose scans are recorded.
    #[arg(long, value_name = "CODE", requires = "schedule")]
    station: Option<String>,
    /// Of a schedule: how long before its start a scan is armed.
    #[arg(long, value_name = "TIME", value_parser = crate::verbs::sending::duration, default_value = "5s", requires = "schedule")]
    lead: Duration,
    /// Record so many scans one after the other, without losing a frame between them.
    #[arg(long, value_name = "N", default_value_t = 1)]
    scans: u32,
    /// Begin at this time, in UTC: `2026-11-21T18:00:00`. With --duration or --until the scan is planned: what its
    /// streams do not cover of it is told in seconds and frames, and the exit code is 1.
    #[arg(long, value_name = "UTC", conflicts_with_all = ["to", "schedule"])]
    start: Option<Tai>,
    /// End each scan after this time, for example `40s` or `2h 30m` [default: at Ctrl-C]. Without --start, this is only a
    /// limit: senders may start and stop at any time
    #[arg(long, value_name = "TIME", value_parser = crate::verbs::sending::duration)]
    duration: Option<Duration>,
    /// End each scan once so many bytes have been received, for example `10GB`. With --scans, each but the
    /// first lasts 400 ms at least.
    #[arg(long, value_name = "SIZE")]
    bytes: Option<ByteSize>,
    /// End at this time, in UTC: `2026-11-21T18:00:00`. It is a planned end: a stream that ends before it does not cover
    /// the scan.
    #[arg(long, value_name = "UTC")]
    until: Option<Tai>,
    /// Block memory for all sources together [default: where every source says its rate (fps= and frame=), the
    /// sum of what is being filled, in the kernel's hands, and queued while a member stands still for as long as
    /// `fullbore bench disk` has measured twice over, else 1 s; without a rate 2 GiB, or a quarter of what is free]
    #[arg(long, value_name = "SIZE")]
    buffer: Option<ByteSize>,
    /// The size of chunk files, rounded down to whole blocks [default: 256 MB]. May be larger than the disk: with 10GB, a
    /// scan of up to 10 GB is one file for each stream
    #[arg(long, value_name = "SIZE")]
    chunk: Option<ByteSize>,
    /// Capture threads, at most one for each source [default: one for every four cores]
    #[arg(long, value_name = "N")]
    capture_threads: Option<usize>,
    /// Cores to stay on: first those of the capture threads, then those of the writers.
    #[arg(long, value_name = "CPU[,CPU…]", value_delimiter = ',')]
    cpus: Vec<usize>,
    /// Where capture threads and writers run: `auto`, by the machine's cores, nodes and interrupts, and nowhere in
    /// particular where there are too few cores; `off`; or cores for either: capture=2-3,writers=4-7
    #[arg(
        long,
        value_name = "auto|off|capture=CPUS,writers=CPUS",
        default_value = "auto",
        conflicts_with_all = ["cpus", "to"]
    )]
    place: Wish,
    /// How urgently they run: `auto`, first (SCHED_FIFO) where capture threads have cores of their own, else with more
    /// than their share for these; `off`; or `fifo:N` on any machine, with N from 1 to 49
    #[arg(long, value_name = "auto|off|fifo:N", default_value = "auto", conflicts_with = "to")]
    priority: Urgency,
    /// How often what was written is made durable at the latest [default: 250ms]. A block is written when it is
    /// full; what a slow stream has in blocks that are not is kept beside them once a second, for `recover`
    #[arg(long, value_name = "TIME", value_parser = crate::verbs::sending::duration)]
    sync: Option<Duration>,
    /// Instead of into a store record onto a device, device:PATH, or into a container, for example
    /// hdf5:capture-%d.h5: what PandAs send, or datagrams of any number of ports, as `convert` lays them down.
    /// With several devices (--to once for each, or device:A,device:B) each takes one stream, in the order typed
    #[arg(long, value_name = "DEVICE|HDF5", conflicts_with = "chunk")]
    to: Vec<String>,
    #[command(flatten)]
    device: device::Options,
    /// Of a PandA: arm it when all is ready, and again after each acquisition.
    #[arg(long)]
    arm: bool,
    /// Of a PandA: how long a connection that was lost is tried again.
    #[arg(long, value_name = "TIME", value_parser = crate::verbs::sending::duration, default_value = "30s")]
    reconnect: Duration,
    /// After each scan remove the oldest ones, so that what is kept is not larger than a size or older than an
    /// age: 500GB, 2d. Scans that are not sealed, or protected, or partly on a member that is away, always stay, and
    /// no newer one goes in their place; so does the newest.
    #[arg(long, value_name = "SIZE|AGE", conflicts_with = "to")]
    keep: Option<Keep>,
    /// Make up for members that are lost: `mirror`, a copy of each chunk on another member, or `parity:K+M`, M parity
    /// chunks for K chunks, all on different members, so that any M of these can be lost. Chunks stay the plain files
    /// that they are; parity follows as they are complete, and all of it is there when a scan is sealed.
    #[arg(long, value_name = "mirror|parity:K+M", conflicts_with = "to")]
    redundancy: Option<Scheme>,
    /// Directories of --store that become new members, though this store had others there before: a new disk was mounted in
    /// the place of an old one. Without it, such a directory is taken for a mount point without its disk, and left out.
    #[arg(long, value_name = "DIR[,DIR…]", value_delimiter = ',', conflicts_with = "to")]
    new_member: Vec<PathBuf>,
    #[command(flatten)]
    clock: clock::ClockLimits,
    /// Draw no live screen.
    #[arg(long)]
    quiet: bool,
}

/// What a source's endpoint may say, for the help.
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

/// Records.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    let quiet = args.quiet;
    if !args.to.is_empty() {
        device::refuse_store(&args)?;
    }
    if args.to.iter().any(|to| DeviceEnd::is_meant(to)) {
        let ends = crate::verbs::device::ends(&args.to);
        let others = ends.iter().find(|end| !DeviceEnd::is_meant(end));
        anyhow::ensure!(
            others.is_none(),
            "--to: devices and containers are not recorded to together"
        );
        return device::run(args, ends, output);
    }
    if let [to, more @ ..] = args.to.as_slice() {
        anyhow::ensure!(more.is_empty(), "--to: a recording goes into one container");
        device::refuse_options(&args)?;
        return record_to(to, &args, output);
    }
    if let Some(file) = args.schedule.clone() {
        return schedule::run(&args, &file, output);
    }
    let keep = args.keep;
    let plan = resolve(args)?;
    let keeper = keep.map(|keep| Keeper::start(plan.members.clone(), keep)).transpose()?;
    let control = Arc::new(Control::default());
    signals::stop_recording(&control)?;
    let mut screen = Screen::new(output, quiet)?;
    let (mut code, mut sealed_scans) = (output::GOOD, 0);
    let (wanted, of_pandas) = (plan.scans.len(), !plan.pandas.is_empty());
    let mut tell = |event: &Event| {
        if let Event::Sealed(sealed) = event {
            code = code.max(judge(sealed));
            sealed_scans += 1;
        }
        screen.event(event);
        tell_of(keeper.as_ref(), event, &mut screen);
    };
    let recorder = Recorder::arm(plan, &mut tell).map_err(explained)?;
    let ended = recorder.run(&control, &mut tell);
    if !matches!(ended, Err(RecordError::Left { .. })) {
        finish(keeper, &mut screen);
    }
    if ended.is_ok() && sealed_scans < wanted && of_pandas {
        let text = format!("ended before its time: {sealed_scans} of {wanted} acquisitions came");
        screen.event(&Event::Warning { text });
        code = code.max(output::FOUND);
    }
    screen.end();
    ended.map_err(explained)?;
    Ok(ExitCode::from(code))
}

/// Lets the keeper know of a sealed scan, and shows what it has done.
fn tell_of(keeper: Option<&Keeper>, event: &Event, screen: &mut Screen) {
    let Some(keeper) = keeper else { return };
    if matches!(event, Event::Sealed(_)) {
        keeper.scan_sealed();
    }
    keeper.told().iter().for_each(|event| screen.event(event));
}

fn finish(keeper: Option<Keeper>, screen: &mut Screen) {
    let told = keeper.map_or(Vec::new(), Keeper::finish);
    told.iter().for_each(|event| screen.event(event));
}

/// What PandAs send into containers, as `panda record` does it, or datagrams.
#[cfg(feature = "hdf5")]
fn record_to(to: &str, args: &Args, output: Output) -> anyhow::Result<ExitCode> {
    use crate::verbs::panda::record;
    let target = record::target(to)?;
    if !args.source.iter().any(|text| is_panda(text)) {
        return into::run(args, &target, output);
    }
    let pandas = pandas_of(&args.source)?;
    anyhow::ensure!(
        pandas.len() == args.source.len(),
        "--to takes PandAs, or datagrams, and not both\n  \
         record both into a store, and `fullbore convert --follow` the scan"
    );
    for (option, given) in [
        ("--session", !args.session.is_empty()),
        ("--scan", !args.scan.is_empty()),
        ("--duration", args.duration.is_some()),
        ("--bytes", args.bytes.is_some()),
        ("--until", args.until.is_some()),
        ("--capture-threads", args.capture_threads.is_some()),
        ("--cpus", !args.cpus.is_empty()),
    ] {
        anyhow::ensure!(
            !given,
            "{option}: a container takes whole acquisitions of a PandA, and knows nothing of it"
        );
    }
    let scans = u64::from(args.scans);
    let buffer = args.buffer.map(|all| ByteSize(all.0 / pandas.len() as u64));
    let plan = |panda| record::plan(panda, &target, scans, args.arm, args.reconnect, buffer);
    record::run_plans(pandas.into_iter().map(plan).collect(), output, args.quiet)
}

#[cfg(not(feature = "hdf5"))]
fn record_to(_: &str, _: &Args, _: Output) -> anyhow::Result<ExitCode> {
    anyhow::bail!("--to: this program was built without HDF5")
}

fn is_panda(text: &str) -> bool {
    text.trim_start().starts_with("panda:")
}

/// The PandAs among the sources. Several that were given no name are numbered.
fn pandas_of(sources: &[String]) -> anyhow::Result<Vec<PandaSource>> {
    let parse = |text: &String| PandaSource::parse(text).map_err(|error| explained_of(text, error));
    let texts = sources.iter().filter(|text| is_panda(text));
    told_apart(texts.map(parse).collect::<anyhow::Result<Vec<_>>>()?)
}

/// PandAs, of which several that were given no name are numbered.
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

/// Syncing more often is all that a disk would do.
const SHORTEST_SYNC: Duration = Duration::from_millis(1);

/// Data that is never synced is no recording.
const LONGEST_SYNC: Duration = Duration::from_secs(3600);

/// Scans of one series: a day of a scan every second.
const MOST_SCANS: u32 = 86_400;

/// From what was typed to what was meant.
fn resolve(args: Args) -> anyhow::Result<Plan> {
    let pandas = pandas_of(&args.source)?;
    let mut sources = Vec::new();
    for text in args.source.iter().filter(|text| !is_panda(text)) {
        let ports = UdpSource::parse(text).map_err(|error| explained_of(text, error))?;
        sources.extend(ports);
    }
    let session = Name::session(&args.session).context("--session")?;
    let scans = scan_names(&session, &args.scan, args.scans)?;
    check_limits(&args)?;
    if args.scans > 1 && pandas.is_empty() {
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
    let (limit, planned) = when(&args, pandas.is_empty())?;
    let members = args.store.members_to_write()?;
    if let Some(other) = args.new_member.iter().find(|path| !members.contains(path)) {
        anyhow::bail!("--new-member {} is none of the members in --store", other.display());
    }
    let stall = stall::measured(&members);
    Ok(Plan {
        sources,
        pandas: pandas
            .into_iter()
            .map(|source| PandaPlan { source, arm: args.arm, reconnect: args.reconnect })
            .collect(),
        members,
        scans,
        start: args.start,
        limit,
        planned,
        buffer: args.buffer,
        chunk: args.chunk,
        capture_threads: args.capture_threads,
        place: if args.cpus.is_empty() { args.place } else { Wish::InTurn(args.cpus) },
        priority: args.priority,
        sync_interval: args.sync,
        redundancy: args.redundancy,
        stall,
        clock: args.clock.limits(),
        goes_on_without: None,
        new_members: args.new_member,
    })
}

/// When a scan ends, and what of that is a plan which its streams are to cover.
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
        // The end of a single scan is an instant; scans that follow one another are as long as they are to be.
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

/// Refuses sizes and times that cannot be.
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

/// By then every stream has gone on from one scan to the next.
const SHORTEST_OF_SERIES: Duration = Duration::from_millis(400);

fn check_series(duration: Duration) -> anyhow::Result<()> {
    anyhow::ensure!(
        duration >= SHORTEST_OF_SERIES,
        "--duration {} is too short for scans one after the other: each lasts 400ms at least",
        humantime::format_duration(duration)
    );
    Ok(())
}

/// One name, or as many as there are scans: `no0001`, `no0002`, …
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

/// Good unless something was found: frames that are not there, a plan that is not covered, a disk set that lacked
/// something, an abort.
pub(super) fn judge(sealed: &Sealed) -> u8 {
    let found = !sealed.completeness.is_good()
        || !sealed.manifest.wanting().is_empty()
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
