//! `fullbore record`: records streams from the network into a store, with an account.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::{Arg, Args as ClapArgs, Command};
use fullbore_containers::SampleTarget;
use fullbore_core::affinity::{AffinityPolicy, SchedulingPolicy};
use fullbore_core::endpoint::{FileTarget, Parameter, SAMPLE_PARAMETERS, UdpSource};
use fullbore_core::panda::PandaSource;
use fullbore_core::redundancy::Scheme;
use fullbore_core::retention::{Retention, RetentionRule};
use fullbore_core::units::ByteSize;
use fullbore_engine::recorder::{Event, RecordingConfig};
use fullbore_engine::sink::SinkConfig;
use fullbore_engine::sink::file::FileConfig;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_planning::arming;
use fullbore_recording::circular::InMemory;
use fullbore_recording::options::{ClockDrift, ClockOffset};
use fullbore_recording::{CameraConfig, OptionError, RecordingOptions, RetentionThread, store};
use fullbore_survey::bench::measured::measured;
use fullbore_time::Tai;

mod device;
pub mod panda;
mod schedule;

use crate::config::RecordFile;
use crate::help;
use crate::hint::{explained, with_advice};
use crate::output::{self, Output};
use crate::screen::Screen;
use crate::signals;
use crate::store_arg::StoreArg;
use crate::verbs::station;

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
///   udp://239.1.1.1:7148?format=spead               SPEAD; also vita49, rtp, gvsp
///   tcp://rp-f0a1b2:8900?frame=16384&seq=0:8:le     a digitiser with a TCP server
///   gvsp://192.0.2.7                                a GigE Vision camera
///   panda://172.23.252.201                          a PandA: its acquisitions
///   file:x.sigmf-meta, file:x.npy, file:x.wav       samples of other programs
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
/// Repeat --to, and combine it with --store, to record into several of them at once.
/// Each gets every frame. One that fails does not end the others, and the account says
/// what each has:
///
///   fullbore record 'udp://0.0.0.0:46220?format=vdif' --store /mnt/disk0 \
///     --session r1234 --scan no0001 --to hdf5:now.h5 --to file:/mnt/usb/now.vdif
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
/// To record the samples alone, as an array for numpy, or for SigMF, TDMS or Digital RF
/// (see `fullbore convert --help`):
///
///   fullbore record 'udp://0.0.0.0:46220?format=vdif' --to npy:now.npy
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
    #[arg(value_name = "SOURCE")]
    source: Vec<String>,
    #[command(flatten)]
    store: StoreArg,
    /// Name of the session, such as that of the experiment: letters, digits, `-` and `+`.
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    /// Name of the scan: letters, digits, `-`, `+` and `_`. --scans appends a number. Other commands call the scan
    /// SESSION_SCAN.
    #[arg(long, value_name = "NAME")]
    scan: Option<String>,
    /// Record the scans of this schedule, each at its time: TOML, CSV or a VEX file (see docs/howto).
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["scan", "scans", "duration", "bytes", "until", "to"]
    )]
    schedule: Option<PathBuf>,
    /// For a VEX file: the station whose scans are recorded; or URL|PATH of a daemon that records.
    #[arg(long, value_name = "CODE|URL|PATH")]
    station: Option<String>,
    /// For a schedule: how long before its start a scan is armed [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = crate::verbs::sending::duration)]
    lead: Option<Duration>,
    /// Record this many scans one after the other, without losing a frame between them [default: 1]
    #[arg(long, value_name = "N")]
    scans: Option<u32>,
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
    /// if there are too few cores; `off`; or cores for either: capture=2-3,writers=4-7 [default: auto]
    #[arg(long, value_name = "auto|off|capture=CPUS,writers=CPUS", conflicts_with = "cpus")]
    place: Option<AffinityPolicy>,
    /// Priority of these threads: `auto` uses SCHED_FIFO if capture threads have their own cores, else a lower nice value;
    /// `off`; or `fifo:N` on any machine, with N from 1 to 49 [default: auto]
    #[arg(long, value_name = "auto|off|fifo:N")]
    priority: Option<SchedulingPolicy>,
    /// Longest time until written data is durable [default: 250ms]. A block is written when it is full. Once a second, the
    /// unfinished blocks of slow streams are saved for `recover`
    #[arg(long, value_name = "TIME", value_parser = crate::verbs::sending::duration)]
    sync: Option<Duration>,
    /// Record to a device, device:PATH, into a container, for example hdf5:capture-%d.h5, npy:out.npy, sigmf:out,
    /// tdms:out.tdms, wav:out.wav, zarr:out.zarr or drf:top/channel, into a plain file, file:PATH, to standard output, -, or into one more store,
    /// store:DIR[,DIR…]; once for each. Without --store, nothing else goes into a store. An HDF5 container takes PandAs and
    /// any number of other sources, in the layout of `convert`. A file takes one stream, and so does each of several devices
    /// (one --to each, or device:A,device:B)
    #[arg(long, value_name = "DEVICE|HDF5|FILE|-|STORE")]
    to: Vec<String>,
    /// Send the frames of each stream on while they are recorded, best effort, with what is skipped counted. Stream n goes
    /// to the n-th port: udp://HOST:PORT[-PORT][?ttl=N&interface=NAME&format=vtp], tcp://HOST:PORT[-PORT], or with TLS
    /// tcp+tls://HOST:PORT[-PORT][?pin=SHA256|ca=FILE]; may be given several times.
    #[arg(long, value_name = "ENDPOINT")]
    forward: Vec<String>,
    /// Make a socket here, at which programs of this user see live spectra. It costs nothing while none is connected, and
    /// then only time that no other thread wants.
    #[arg(long, value_name = "SOCKET")]
    spectra: Option<PathBuf>,
    /// The name of a device whose data may be overwritten; once for each such device
    #[arg(long, value_name = "DEVICE")]
    overwrite: Vec<PathBuf>,
    /// For a device: read and discard the rest of the source after the last chunk, or after a stop.
    #[arg(long)]
    flush: bool,
    /// For a PandA: arm it when all is ready, and again after each acquisition.
    #[arg(long)]
    arm: bool,
    /// For a PandA: how long to retry a lost connection [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = crate::verbs::sending::duration)]
    reconnect: Option<Duration>,
    /// After each scan, remove the oldest ones, to keep no more than a size or an age: 500GB, 2d. The newest scan always
    /// stays, and so do scans that are unsealed, protected, or partly on a member that is away; no newer scan is removed in
    /// their place. With `,copied` (500GB,copied), only scans go that a receipt proves to be on another host.
    #[arg(long, value_name = "SIZE|AGE[,copied]")]
    keep: Option<RetentionRule>,
    /// Keep only the newest data, of a time or a size: 30min, 100GB. The recording is a series of short scans, its pieces,
    /// whose oldest are removed. What a trigger names stays as a scan of its own: see --trigger and `fullbore trigger`.
    #[arg(long, value_name = "TIME|SIZE")]
    circular: Option<Retention>,
    /// For --circular: keep the newest data in memory alone, at most this much, for rates above that of the disks. The
    /// store gets only what triggers keep.
    #[arg(long, value_name = "ram:SIZE")]
    circular_in: Option<InMemory>,
    /// For --circular: let a datagram to a port, udp://HOST:PORT[?before=10s&after=5s], or a marker of `fullbore mark`,
    /// marker:[?before=10s&after=5s], keep the data from before until after it; may be given several times.
    #[arg(long, value_name = "ENDPOINT")]
    trigger: Vec<String>,
    /// For --circular: keep the data around a time at which samples fulfil a condition, such as 'power(ch3) > -20 dB for
    /// 10 ms', 'power(any, 10MHz..12MHz) > -40 dB' or 'level(ch0) > 12000'; may be given several times.
    #[arg(long, value_name = "CONDITION")]
    trigger_on: Vec<String>,
    /// The time before a trigger that is kept, if --trigger does not state it. [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = crate::verbs::sending::duration)]
    before: Option<Duration>,
    /// The time after a trigger that is kept, if --trigger does not state it. [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = crate::verbs::sending::duration)]
    after: Option<Duration>,
    /// The time for which the condition of --trigger-on is not fulfilled before it can trigger again. [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = crate::verbs::sending::duration)]
    hold_off: Option<Duration>,
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
    /// Warn if the time stamps of a stream differ from the host's clock by more than this on arrival; `off`: never. The
    /// account always has the difference. [default: 100ms]
    #[arg(long, value_name = "TIME|off")]
    clock_offset: Option<ClockOffset>,
    /// Warn if the rate of a stream differs from the nominal rate by more than this many parts per million of the host's
    /// clock; `off`: never. [default: 100]
    #[arg(long, value_name = "PPM|off")]
    clock_drift: Option<ClockDrift>,
    /// Draw no live screen.
    #[arg(long)]
    quiet: bool,
    /// With a daemon as --station: do not follow the recording.
    #[arg(long)]
    detach: bool,
}

impl Args {
    /// The options that are typed.
    fn options(self) -> RecordingOptions {
        let Self { source, store, session, scan, schedule, station, lead, scans, .. } = self;
        let Self { start, duration, bytes, until, buffer, chunk, capture_threads, .. } = self;
        let Self {
            cpus,
            place,
            priority,
            sync,
            to,
            forward,
            spectra,
            overwrite,
            flush,
            arm,
            reconnect,
            ..
        } = self;
        let Self {
            keep, circular, circular_in, trigger, trigger_on, before, after, hold_off, ..
        } = self;
        let Self { redundancy, new_member, .. } = self;
        let Self { clock_offset, clock_drift, quiet: _, detach: _, .. } = self;
        RecordingOptions {
            source,
            store: store.store,
            to,
            forward,
            spectra,
            overwrite,
            flush,
            session,
            scan,
            schedule,
            station,
            lead,
            scans,
            start,
            duration,
            bytes,
            until,
            buffer,
            chunk,
            capture_threads,
            cpus,
            place,
            priority,
            sync,
            arm,
            reconnect,
            keep,
            circular,
            circular_in,
            trigger,
            trigger_on,
            before,
            after,
            hold_off,
            redundancy,
            new_member,
            clock_offset,
            clock_drift,
        }
    }
}

/// The command with the arguments that it requires if no file has them.
pub fn with_requirements(record: Command) -> Command {
    let named = |arg: Arg| arg.required_unless_present_any(["to", "schedule"]);
    let record = record.mut_arg("source", |arg| arg.required(true));
    record.mut_arg("session", named).mut_arg("scan", named)
}

/// The parameters of a source's endpoint, for the help.
fn parameters() -> String {
    let udp = parameters_of("udp://", UdpSource::PARAMETERS);
    let panda = parameters_of("panda://", PandaSource::PARAMETERS);
    let samples = parameters_of("udp://, file: or pattern:", SAMPLE_PARAMETERS);
    let target = |scheme, rows| parameters_of(scheme, rows).replace(" source,", ",");
    let camera = parameters_of("gvsp://", CameraConfig::PARAMETERS);
    let mut all = vec![udp, panda, camera, device::parameters(), samples];
    all.push(target("--to npy:, wav: or zarr:", SampleTarget::PARAMETERS));
    #[cfg(feature = "hdf5")]
    all.push(target("--to drf:", SampleTarget::DIGITAL_RF));
    all.push(target("--to sigmf:", SampleTarget::SIGMF));
    all.push(target("--to tdms:", SampleTarget::TDMS));
    all.join("\n")
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

/// Runs the command. Options of the file complete those that are typed.
pub fn run(args: Args, file: RecordFile, output: Output) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(
        !args.detach,
        "--detach is for a recording at a station: name it with --station"
    );
    let quiet = args.quiet || file.shown.quiet;
    let typed = args.options();
    let given = typed.given();
    let options = typed.or(file.options);
    let of_file: Vec<&str> =
        options.given().into_iter().filter(|key| !given.contains(key)).collect();
    let lines = file.lines.among(&of_file);
    run_with(options, quiet, output).map_err(|error| lines.blame(error))
}

fn run_with(options: RecordingOptions, quiet: bool, output: Output) -> anyhow::Result<ExitCode> {
    let (options, default) = in_some_store(options)?;
    let made = |path: &PathBuf| {
        std::fs::create_dir_all(path)
            .with_context(|| format!("making the default store {}", path.display()))
    };
    if options.schedule.is_some() {
        return schedule::run(options, default.as_ref().map(|path| || made(path)), quiet, output);
    }
    let config = match options.resolve() {
        Ok(config) => config,
        Err(OptionError::Missing { options }) => return Ok(help::missing("record", &options)),
        Err(error) => return Err(explained(error)),
    };
    default.as_ref().map(made).transpose()?;
    let members = config.members().to_vec();
    let retention = options.retention_thread(members).map_err(explained)?;
    record(with_measured(config), retention, output, quiet)
}

/// The options with the user's own store, if they name neither a store nor another target. Also returns the directory
/// that is to be made for it.
fn in_some_store(
    mut options: RecordingOptions,
) -> anyhow::Result<(RecordingOptions, Option<PathBuf>)> {
    let mut default = None;
    if options.store.is_empty() && options.to.is_empty() {
        options.store = store::of_environment();
        if options.store.is_empty() {
            default = Some(store::default_directory().map_err(explained)?);
            options.store.extend(default.clone());
        }
    }
    Ok((options, default))
}

/// Adds what benchmarks say of the disks, and what is found on the host.
fn with_measured(mut config: RecordingConfig) -> RecordingConfig {
    for sink in &mut config.sinks {
        let SinkConfig::Store(store) = sink else { continue };
        let disks = measured(&store.members);
        (store.stall, store.disk_rate) = (disks.stall, disks.disk_rate);
    }
    config.findings = arming::findings(config.members());
    config
}

/// Records, and shows the events.
pub fn record(
    config: RecordingConfig,
    retention: Option<RetentionThread>,
    output: Output,
    quiet: bool,
) -> anyhow::Result<ExitCode> {
    let is_standard = |sink: &SinkConfig| {
        matches!(sink, SinkConfig::File(FileConfig { target: FileTarget::Standard }))
    };
    if config.sinks.iter().any(is_standard) {
        output::leave_stdout_to_data();
    }
    let control = Arc::new(StopHandle::default());
    signals::stop_recording(&control)?;
    let forecast = panda::Forecasts::of(&config);
    let members = config.members().to_vec();
    let mut screen = Screen::new(output, quiet)?;
    for text in arming::doubts(&config) {
        screen.event(&Event::Warning { text });
    }
    let mut tell = |event: &Event| {
        screen.event(event);
        if matches!(event, Event::Armed(_)) {
            forecast.tell(output, &mut |event| screen.event(event));
        }
    };
    let ended = fullbore_recording::record(config, retention, &control, &mut tell);
    screen.end();
    match ended {
        Ok(outcome) => Ok(output::exit_code(outcome.outcome)),
        Err(error) => {
            device::tell_of_addresses(&error, output);
            let taken = is_taken(&error).then(|| station::here::advice_on_ports(&members));
            match taken.flatten() {
                Some(advice) => Err(with_advice(error.into(), Some(advice.into()))),
                None => Err(explained(error)),
            }
        }
    }
}

/// True if another program has a port of the recording.
fn is_taken(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    causes.any(|error| {
        let system = error.downcast_ref::<std::io::Error>();
        system.is_some_and(|it| it.kind() == std::io::ErrorKind::AddrInUse)
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// Every option of the library can be typed, and every typed one is one of the library's, except those that change
    /// what is shown.
    #[test]
    fn the_command_has_the_options_of_the_library() {
        let mut commands = crate::Arguments::command();
        commands.build();
        let record = commands.find_subcommand("record").unwrap();
        let name = |arg: &clap::Arg| match arg.is_positional() {
            true => Some(arg.get_id().to_string()),
            false => arg.get_long().map(str::to_owned),
        };
        let mut typed: Vec<String> = record.get_arguments().filter_map(name).collect();
        let shown = ["quiet", "detach", "json", "log", "config", "help", "version"];
        typed.retain(|name| !shown.contains(&name.as_str()));
        let mut known: Vec<&str> = RecordingOptions::KEYS.to_vec();
        typed.sort();
        known.sort();
        assert_eq!(typed, known);
    }

    #[test]
    fn what_is_required_may_stand_in_a_file() {
        let parse = |command: Command, words: &str| {
            let words = ["fullbore", "record"].into_iter().chain(words.split_whitespace());
            command.try_get_matches_from(words).is_ok()
        };
        let plain = crate::Arguments::command;
        assert!(parse(plain(), "") && parse(plain(), "--scan a"));
        let required = || plain().mut_subcommand("record", with_requirements);
        assert!(!parse(required(), "--session s --scan a") && !parse(required(), "- --scan a"));
        assert!(parse(required(), "- --session s --scan a") && parse(required(), "- --to -"));
    }

    #[test]
    fn what_is_typed_becomes_the_options() {
        let words = "udp://:1 --store /a,/b --session s --scan a --scans 2 --duration 2s --cpus 1,2 --clock-offset off \
                     --keep 2d";
        let args: Args = crate::verbs::typed(words).unwrap();
        let text = "[record]\nsource = 'udp://:1'\nstore = ['/a', '/b']\nsession = 's'\nscan = 'a'\nscans = 2\n\
                    duration = '2s'\ncpus = [1, 2]\nclock-offset = 'off'\nkeep = '2d'\n";
        let file = RecordingOptions::from_toml(text, "record", &[]).unwrap().unwrap();
        assert_eq!(args.options(), file.options);
    }
}
