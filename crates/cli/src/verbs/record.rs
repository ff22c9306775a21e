//! `fullbore record`: streams from the network into a store, with an account.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Args as ClapArgs;
use fullbore_core::account::{Account, Terms, Verdict};
use fullbore_core::endpoint::UdpSource;
use fullbore_core::format::panda::PandaSource;
use fullbore_core::manifest::State;
use fullbore_core::name::{Name, ScanName};
use fullbore_core::time::Tai;
use fullbore_core::units::ByteSize;
use fullbore_engine::recorder::{Control, Event, Limit, PandaPlan, Plan, Recorder, Sealed};

use crate::hint::{explained, explained_of};
use crate::output::{self, Output};
use crate::screen::Screen;
use crate::signals;
use crate::store_arg::StoreArg;

/// Record streams into a store, with an account of every frame.
///
/// Each SOURCE is a port, or a range of ports, that datagrams come to:
///
///   udp://0.0.0.0:46220?format=vdif                  one VDIF stream, counted by its own time
///   udp://0.0.0.0:46220-46235?format=vdif            sixteen of them
///   udp://0.0.0.0:46220?format=vdif&threads=split    a stream for each thread
///   udp://0.0.0.0:46220?format=vtp                   a packet number before each frame
///   udp://239.1.1.1:5000?interface=eth0              a multicast group
///   udp://[::]:5000?format=raw&seq=0:4:be            anything with a counter in it
///   panda://172.23.252.201                           a PandA: each acquisition is a scan
///
/// It says `armed` once everything is mapped and listening. Ctrl-C stops: what is held is written and
/// the scan is sealed. A second Ctrl-C aborts. A terminal that goes away stops too, unless it was started
/// with nohup.
///
/// Exit codes: 0 nothing was lost that this host could have kept, and what is missing is explained; 1 frames
/// were overrun, damaged or late, or are missing and no counter of this host explains it, or a member
/// failed, or it was aborted; 2 the recording could not be made.
#[derive(ClapArgs)]
#[command(verbatim_doc_comment, after_help = parameters())]
pub struct Args {
    /// Where frames come from.
    #[arg(required = true, value_name = "SOURCE")]
    source: Vec<String>,
    #[command(flatten)]
    store: StoreArg,
    /// Name of the session: letters, digits, `-` and `+`.
    #[arg(
        long,
        value_name = "NAME",
        required_unless_present = "to",
        default_value = "",
        hide_default_value = true
    )]
    session: String,
    /// Name of the scan: letters, digits, `-`, `+` and `_`. With --scans, a number is put behind it.
    #[arg(
        long,
        value_name = "NAME",
        required_unless_present = "to",
        default_value = "",
        hide_default_value = true
    )]
    scan: String,
    /// Record so many scans one after the other, without losing a frame between them.
    #[arg(long, value_name = "N", default_value_t = 1)]
    scans: u32,
    /// End each scan after this time, for example `40s` or `2h 30m`.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    duration: Option<Duration>,
    /// End each scan once so many bytes have been received, for example `10GB`. With --scans, each but the
    /// first lasts 400 ms at least.
    #[arg(long, value_name = "SIZE")]
    bytes: Option<ByteSize>,
    /// End at this time, in UTC: `2026-11-21T18:00:00`.
    #[arg(long, value_name = "UTC")]
    until: Option<Tai>,
    /// Block memory for all sources together [default: 2 GiB, or a quarter of what is free]
    #[arg(long, value_name = "SIZE")]
    buffer: Option<ByteSize>,
    /// About how large chunk files are: so many whole blocks as fit [default: 256 MB]
    #[arg(long, value_name = "SIZE")]
    chunk: Option<ByteSize>,
    /// Capture threads, at most one for each source [default: one for every four cores]
    #[arg(long, value_name = "N")]
    capture_threads: Option<usize>,
    /// Cores to stay on: first those of the capture threads, then those of the writers.
    #[arg(long, value_name = "CPU[,CPU…]", value_delimiter = ',')]
    cpus: Vec<usize>,
    /// How often what was written is made durable at the latest [default: 250ms]. A block is written when it is
    /// full: for slow streams make blocks smaller, with block=64KiB in the source
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    sync: Option<Duration>,
    /// Of a PandA: record into this container instead of a store, for example hdf5:capture-%d.h5
    #[arg(long, value_name = "HDF5", conflicts_with_all = ["store", "session", "scan"])]
    to: Option<String>,
    /// Of a PandA: arm it when all is ready, and again after each acquisition.
    #[arg(long)]
    arm: bool,
    /// Of a PandA: how long a connection that was lost is tried again.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, default_value = "30s")]
    reconnect: Duration,
    /// Draw no live screen.
    #[arg(long)]
    quiet: bool,
}

/// What a source's endpoint may say, for the help.
fn parameters() -> String {
    let mut text = String::from("What may follow the `?` of a source:\n");
    for parameter in UdpSource::PARAMETERS {
        text += &format!(
            "  {:<10} {}  (e.g. {})\n",
            parameter.name, parameter.meaning, parameter.example
        );
    }
    text
}

/// Records.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    let quiet = args.quiet;
    if let Some(to) = &args.to {
        return record_to(to, &args, output);
    }
    let plan = resolve(args)?;
    let control = Arc::new(Control::default());
    signals::stop_recording(&control)?;
    let mut screen = Screen::new(output, quiet);
    let mut code = output::GOOD;
    let mut tell = |event: &Event| {
        if let Event::Sealed(sealed) = event {
            code = code.max(judge(sealed));
        }
        screen.event(event);
    };
    let recorder = Recorder::arm(plan, &mut tell).map_err(explained)?;
    let ended = recorder.run(&control, &mut tell);
    screen.end();
    ended.map_err(explained)?;
    Ok(ExitCode::from(code))
}

/// A PandA into a container, as `panda record` does it.
#[cfg(feature = "hdf5")]
fn record_to(to: &str, args: &Args, output: Output) -> anyhow::Result<ExitCode> {
    use crate::verbs::panda::record;
    let Some(source) = panda_of(&args.source)? else {
        anyhow::bail!("--to takes what a PandA sends; other streams are converted from a store");
    };
    let target = record::target(to)?;
    let scans = u64::from(args.scans);
    let plan = record::plan(source, &target, scans, args.arm, args.reconnect, args.buffer);
    record::run_plan(plan, output, args.quiet)
}

#[cfg(not(feature = "hdf5"))]
fn record_to(_: &str, _: &Args, _: Output) -> anyhow::Result<ExitCode> {
    anyhow::bail!("--to: this program was built without HDF5")
}

/// The PandA among the sources, which then is the only one.
fn panda_of(sources: &[String]) -> anyhow::Result<Option<PandaSource>> {
    let is_panda = |text: &&String| text.trim_start().starts_with("panda:");
    let Some(text) = sources.iter().find(is_panda) else { return Ok(None) };
    anyhow::ensure!(
        sources.len() == 1,
        "a PandA is recorded by itself: its acquisitions are the scans\n  \
         start one recording for each source"
    );
    PandaSource::parse(text).map(Some).map_err(|error| explained_of(text, error))
}

/// Syncing more often is all that a disk would do.
const SHORTEST_SYNC: Duration = Duration::from_millis(1);

/// Data that is never synced is no recording.
const LONGEST_SYNC: Duration = Duration::from_secs(3600);

/// Scans of one series: a day of a scan every second.
const MOST_SCANS: u32 = 86_400;

/// From what was typed to what was meant.
fn resolve(args: Args) -> anyhow::Result<Plan> {
    let panda = panda_of(&args.source)?;
    let mut sources = Vec::new();
    for text in args.source.iter().filter(|_| panda.is_none()) {
        let ports = UdpSource::parse(text).map_err(|error| explained_of(text, error))?;
        sources.extend(ports);
    }
    let session = Name::session(&args.session).context("--session")?;
    let scans = scan_names(&session, &args.scan, args.scans)?;
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
    if args.scans > 1 && panda.is_none() {
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
    Ok(Plan {
        sources,
        panda: panda.map(|source| PandaPlan { source, arm: args.arm, reconnect: args.reconnect }),
        members: args.store.members_to_write()?,
        scans,
        limit: Limit {
            duration: args.duration,
            bytes: args.bytes.map(|size| size.0),
            until: args.until,
        },
        buffer: args.buffer,
        chunk: args.chunk,
        capture_threads: args.capture_threads,
        cpus: args.cpus,
        sync_interval: args.sync,
    })
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

/// Good unless something was found: frames that came and are not there, or are missing and nothing explains it,
/// a member that failed, an abort.
fn judge(sealed: &Sealed) -> u8 {
    let lost = |account: &Account| {
        let Terms { overrun, damaged, late, .. } = account.terms;
        account.verdict == Verdict::Unexplained || overrun + damaged + late + account.astray > 0
    };
    let found = sealed.accounts.iter().any(lost)
        || sealed.manifest.members.iter().any(|member| member.failure.is_some())
        || sealed.manifest.state == State::Aborted;
    if found { output::FOUND } else { output::GOOD }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NIL: &str = "00000000-0000-0000-0000-000000000000";

    #[test]
    fn frames_that_came_and_are_not_there_are_something_found() {
        let judged = |terms: Terms, failure: Option<&str>, state: &str| {
            let mut account = Account::new(fullbore_core::account::CountedBy::FrameTime);
            (account.terms, account.verdict) = (terms, Verdict::Consistent);
            let manifest = serde_json::json!({
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
            let manifest = serde_json::from_value(manifest).unwrap();
            judge(&Sealed { manifest, accounts: vec![account] })
        };
        let none = Terms::default();
        assert_eq!(judged(none, None, "sealed"), output::GOOD);
        assert_eq!(judged(Terms { missing: 1, ..none }, None, "sealed"), output::GOOD, "explained");
        for lost in
            [Terms { overrun: 1, ..none }, Terms { damaged: 1, ..none }, Terms { late: 1, ..none }]
        {
            assert_eq!(judged(lost, None, "sealed"), output::FOUND, "{lost:?}");
        }
        assert_eq!(judged(none, Some("the disk is full"), "sealed"), output::FOUND);
        assert_eq!(judged(none, None, "aborted"), output::FOUND);
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
