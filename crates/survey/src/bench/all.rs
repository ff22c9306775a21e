//! Measures every stage of the path alone, then the whole path, to identify the slowest stage.
//!
//! ```text
//! memory ─ ring ─ receive ─ disk        each alone, as fast as it goes
//! udp ──► ring ──► store                all of it: a recording, at the highest rate without loss
//! ```
//!
//! A stage alone has the machine to itself; in the path all stages share cores and memory. The whole path is therefore
//! slower than its slowest stage.

use std::borrow::Cow;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use fullbore_core::hint::Hint;
use fullbore_core::layout::Geometry;
use fullbore_core::name::ScanName;
use fullbore_core::pattern::{Pattern, Prbs};
use fullbore_core::units::ByteSize;
use fullbore_engine::recorder::{Event, RecordError, Recorder, RecordingConfig};
use fullbore_engine::sink::{SinkConfig, StoreConfig};
use fullbore_linux::ring::WriterEvent;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_replay::Progress;
use fullbore_simulators::generate::{self, Generator};
use fullbore_store::{self as store, Member, MemberError, WriterError};
use rustix::fs::{FlockOperation, flock};

use super::disk;
use super::disk::target::{self as place, Place};
use super::environment::Roots;
use super::memory::{self, Kernel, process_cpu_seconds};
use super::net::receive::{self, Caught};
use super::net::search::{Range, search};
use super::net::{self, Receiver, Trial};
use super::result::{Level, Note, Spread, Stage, Target, TargetKind};
use super::ring::{self, BLOCK_BYTES, Feeder, Way};

/// Blocks in circulation while a disk is measured alone.
const BLOCKS: usize = 32;

/// The share of the free space that may be used at once.
const SHARE_OF_FREE: f64 = 0.5;

/// The fewest blocks of free space that a measurement needs.
const FEWEST_BLOCKS: u64 = 16;

/// Prefix of the benchmark's directories on a target; the process number follows. No other program uses this prefix.
const PREFIX: &str = ".fullbore-bench-work-";

/// The settings of the benchmark.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The directories, one for each disk.
    pub targets: Vec<PathBuf>,
    /// The number of runs of memory, ring and disks.
    pub runs: usize,
    /// The duration of each run.
    pub time: Duration,
    /// The settings of the network benchmark. The whole path gets the same streams.
    pub net: net::Settings,
}

/// An error of the benchmark.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No target was given.
    #[error("no directory to write to was given")]
    NoTarget,
    /// An error of the memory benchmark.
    #[error(transparent)]
    Memory(#[from] memory::Error),
    /// An error of the ring benchmark.
    #[error(transparent)]
    Ring(#[from] ring::Error),
    /// An error of the network benchmark.
    #[error(transparent)]
    Net(#[from] net::Error),
    /// A directory cannot be used.
    #[error(transparent)]
    Member(#[from] MemberError),
    /// A writer cannot start.
    #[error(transparent)]
    Writer(#[from] WriterError),
    /// The directories cannot be used together.
    #[error(transparent)]
    Place(#[from] disk::Error),
    /// The disk failed.
    #[error("{}: {why}", path.display())]
    Disk {
        /// The target.
        path: PathBuf,
        /// The writer's error.
        why: String,
    },
    /// Too little space for a trial.
    #[error("{}: {free} can be written there, and {needed} are needed", path.display())]
    NoSpace {
        /// The target.
        path: PathBuf,
        /// The available space.
        free: ByteSize,
        /// The needed space.
        needed: ByteSize,
    },
    /// The recording failed.
    #[error("recording: {0}")]
    Record(#[from] RecordError),
    /// A working directory cannot be created.
    #[error("{}: {source}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// A thread did not end normally.
    #[error("a thread of the benchmark failed")]
    Failed,
}

impl Hint for Error {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::NoTarget => Some("name a directory on each disk of the set".into()),
            Self::Memory(error) => error.hint(),
            Self::Net(error) => error.hint(),
            Self::Member(error) => error.hint(),
            Self::Writer(error) => error.hint(),
            Self::Place(error) => error.hint(),
            Self::NoSpace { .. } => Some("free some space, or measure for a shorter --time".into()),
            Self::Record(error) => error.hint(),
            Self::Ring(_) | Self::Disk { .. } | Self::Directory { .. } | Self::Failed => None,
        }
    }
}

impl From<generate::Error> for Error {
    fn from(error: generate::Error) -> Self {
        Self::Net(error.into())
    }
}

impl From<receive::Error> for Error {
    fn from(error: receive::Error) -> Self {
        Self::Net(error.into())
    }
}

/// An event of the benchmark.
pub enum Heard<'a> {
    /// The stage that is measured now.
    Now(&'static str),
    /// A completed stage.
    Stage(&'a Stage),
    /// A completed trial of a rate.
    Trial(&'a Trial),
}

/// The results.
#[derive(Default)]
pub struct Measured {
    /// The stages in the order of the path, the whole path last.
    pub stages: Vec<Stage>,
    /// Notes for the reader of the report.
    pub notes: Vec<Note>,
    /// The targets.
    pub targets: Vec<Target>,
}

/// Measures all stages. After `stop` it returns the results so far.
pub fn measure(
    settings: &Settings,
    stop: &StopHandle,
    mut heard: impl FnMut(Heard<'_>),
) -> Result<Measured, Error> {
    if settings.targets.is_empty() {
        return Err(Error::NoTarget);
    }
    let members = settings.targets.iter().map(|path| Member::nameless(path));
    let members = members.collect::<Result<Vec<Member>, _>>()?;
    let disks = Disk::all(members)?;
    disks.iter().try_for_each(Disk::has_room)?;
    let mut found = Measured {
        targets: disks.iter().map(|disk| target(&disk.member)).collect(),
        notes: disks.iter().flat_map(|disk| disk.notes.iter().cloned()).collect(),
        ..Measured::default()
    };
    heard(Heard::Now("memory"));
    let memory = memory::Settings {
        kernels: vec![Kernel::Copy, Kernel::Checksum],
        threads: vec![1],
        runs: settings.runs,
        time: settings.time,
    };
    found.stages = memory::measure(&memory, stop, |stage| heard(Heard::Stage(stage)))?;
    if stop.is_requested() {
        return Ok(found);
    }
    heard(Heard::Now("ring"));
    let ring = ring::Settings { runs: settings.runs, time: settings.time };
    let stage = ring::measure(&ring, stop, |_| ())?;
    stage.iter().for_each(|stage| heard(Heard::Stage(stage)));
    found.stages.extend(stage);
    if stop.is_requested() {
        return Ok(found);
    }
    heard(Heard::Now("network"));
    let mut receiver = Receiver::Loopback;
    let way = "over loopback, without a disk";
    let network =
        net::measure(&settings.net, &mut receiver, way, stop, |trial| heard(Heard::Trial(trial)))?;
    heard(Heard::Stage(&network.stage));
    let received = network.stage.rate.mean;
    found.stages.push(network.stage);
    found.notes.extend(network.notes);
    if stop.is_requested() {
        return Ok(found);
    }
    heard(Heard::Now("disk"));
    let disk = written_alone(settings, &disks, stop)?;
    heard(Heard::Stage(&disk));
    let written = disk.rate.mean;
    found.stages.push(disk);
    if stop.is_requested() || received <= 0.0 || written <= 0.0 {
        return Ok(found);
    }
    heard(Heard::Now("the path whole"));
    let least = received.min(written);
    let whole = path(settings, &disks, least, stop, |trial| heard(Heard::Trial(trial)))?;
    heard(Heard::Stage(&whole.stage));
    found.notes.extend(whole.notes);
    found.stages.push(whole.stage);
    Ok(found)
}

/// A member, and the number of members that share its free space.
struct Disk {
    member: Member,
    sharers: u64,
    notes: Vec<Note>,
}

impl Disk {
    fn all(members: Vec<Member>) -> Result<Vec<Self>, Error> {
        let open = |member: &Member| Place::open(member.root(), None, &Roots::default());
        let places = members.iter().map(open).collect::<Result<Vec<Place>, _>>()?;
        place::refuse_twice(&places)?;
        let sharers = place::sharers(&places);
        Ok(members
            .into_iter()
            .zip(sharers.into_iter().zip(places))
            .map(|(member, (sharers, place))| Self { member, sharers, notes: place.notes })
            .collect())
    }

    /// Bytes that may be written to it at once.
    fn room(&self) -> Result<u64, Error> {
        Ok(((self.member.free_bytes()? / self.sharers) as f64 * SHARE_OF_FREE) as u64)
    }

    /// Refuses, before any measurement, a member with space for only a few blocks.
    fn has_room(&self) -> Result<(), Error> {
        let (free, needed) = (self.room()?, FEWEST_BLOCKS * u64::from(BLOCK_BYTES));
        let path = || self.member.root().to_owned();
        let (free, needed) = (ByteSize(free), ByteSize(needed));
        match free < needed {
            true => Err(Error::NoSpace { path: path(), free, needed }),
            false => Ok(()),
        }
    }
}

fn target(member: &Member) -> Target {
    Target {
        path: member.root().display().to_string(),
        kind: TargetKind::Directory,
        free: ByteSize(member.free_bytes().unwrap_or(0)),
        direct: !member.buffered(),
        ..Target::default()
    }
}

/// Measures all disks at once through their writers. Each block goes to the disk with the fewest pending blocks.
fn written_alone(settings: &Settings, disks: &[Disk], stop: &StopHandle) -> Result<Stage, Error> {
    let mut rates = Vec::new();
    let (mut cpu, mut bytes, mut longest) = (0.0, 0u64, 0u64);
    for _ in 0..settings.runs.max(1) {
        if stop.is_requested() {
            break;
        }
        let run = write_all(settings.time, disks)?;
        rates.push(run.bytes as f64 / run.seconds);
        cpu += run.cpu_seconds;
        bytes += run.bytes;
        longest = longest.max(run.longest_write_ns);
    }
    let figures = [
        ("longest_write_ns", longest as f64),
        ("block_bytes", f64::from(BLOCK_BYTES)),
        ("members", disks.len() as f64),
    ];
    Ok(Stage {
        name: "disk".into(),
        what: "blocks of 4 MiB with their checksums written by the writers of a recording".into(),
        rate: Spread::of(&rates),
        cpu_s_per_gb: (bytes > 0).then(|| cpu * 1e9 / bytes as f64),
        threads: disks.len() as u32,
        figures: figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
    })
}

/// The result of a run.
struct Written {
    bytes: u64,
    seconds: f64,
    cpu_seconds: f64,
    longest_write_ns: u64,
}

/// Writes to all members at once, for a time or until half of the free space is used.
fn write_all(time: Duration, disks: &[Disk]) -> Result<Written, Error> {
    let failed = |path: &Path, why: String| Error::Disk { path: path.to_owned(), why };
    let geometry = Geometry::of_bytes(BLOCK_BYTES.into(), 64 * u64::from(BLOCK_BYTES));
    let (tell, reports) = mpsc::channel();
    let mut lanes = Vec::new();
    for (number, disk) in disks.iter().enumerate() {
        let member = &disk.member;
        let io = |source| Error::Directory { path: member.root().to_owned(), source };
        let way = Way::new(BLOCKS).map_err(io)?;
        let metrics = way.metrics.clone();
        let settings = store::Settings::of_member(number);
        let writer =
            store::spawn(member, vec![way.taker], way.metrics, tell.clone(), way.wake, settings)?;
        let feeder = Feeder::new(way.feeder, BLOCKS, geometry).map_err(io)?;
        let most = disk.room()? / u64::from(BLOCK_BYTES);
        lanes.push((feeder, writer, metrics, most, 0u64));
    }
    drop(tell);
    let (began, cpu) = (Instant::now(), process_cpu_seconds());
    let mut going = true;
    while going {
        let mut moved = 0;
        going = began.elapsed() < time && lanes.iter().any(|lane| lane.4 < lane.3);
        for ((feeder, _, _, most, handed), disk) in lanes.iter_mut().zip(disks) {
            moved += feeder
                .take_back()
                .map_err(|_| failed(disk.member.root(), "its writer refused blocks".into()))?;
            while going && *handed < *most && feeder.hand_over(0, unlike_the_last) {
                *handed += 1;
                moved += 1;
            }
        }
        if moved == 0 {
            // A block that comes back ends the pause.
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }
    lanes.iter_mut().for_each(|lane| lane.0.finish());
    let mut finished = 0;
    while finished < disks.len() {
        match reports.recv_timeout(Duration::from_secs(120)) {
            Ok(WriterEvent::Finished { .. }) => finished += 1,
            Ok(WriterEvent::Failed { member, why, .. }) => {
                return Err(failed(disks[member].member.root(), why));
            }
            Ok(
                WriterEvent::Durable { .. }
                | WriterEvent::Full { .. }
                | WriterEvent::Back { .. }
                | WriterEvent::Alternate { .. },
            ) => {}
            Ok(WriterEvent::Gone { .. }) | Err(_) => return Err(Error::Failed),
        }
    }
    let (seconds, cpu_seconds) = (began.elapsed().as_secs_f64(), process_cpu_seconds() - cpu);
    let mut written = Written { bytes: 0, seconds, cpu_seconds, longest_write_ns: 0 };
    for (feeder, writer, metrics, _, handed) in lanes {
        drop(feeder);
        writer.join().map_err(|_| Error::Failed)?;
        written.bytes += handed * u64::from(BLOCK_BYTES);
        written.longest_write_ns =
            written.longest_write_ns.max(metrics.longest_write_ns.load(Relaxed));
    }
    let files = disks.iter().filter_map(|disk| disk.member.nameless_files());
    files.for_each(|files| files.clear());
    Ok(written)
}

/// Fills the block with a pattern in the first round; later only changes its beginning, so that blocks differ.
fn unlike_the_last(block: &mut fullbore_linux::ring::Block, sequence: u64) {
    if sequence < BLOCKS as u64 {
        Pattern::Prbs(Prbs::PRBS31).fill(block, sequence * u64::from(BLOCK_BYTES));
    }
    block[..8].copy_from_slice(&sequence.to_le_bytes());
}

/// Measures the whole path: streams over loopback into a store on all targets.
fn path(
    settings: &Settings,
    disks: &[Disk],
    least: f64,
    stop: &StopHandle,
    mut heard: impl FnMut(&Trial),
) -> Result<net::Measured, Error> {
    let places = disks.iter().map(|disk| WorkPlace::make(disk.member.root(), disk.sharers));
    let places = places.collect::<Result<Vec<WorkPlace>, _>>()?;
    let mut net = settings.net.clone();
    net.range = Range { start: least * 0.5, most: least * 1.05, ..net.range };
    let mut trials: Vec<Trial> = Vec::new();
    let found = search(&net.range, |rate, time, confirms| {
        if stop.is_requested() {
            return Ok::<_, Error>(None);
        }
        let number = trials.len();
        let trial = record_once(&net, &places, rate, time, number, stop)?;
        let trial = Trial { confirms, ..trial };
        places.iter().for_each(WorkPlace::empty);
        heard(&trial);
        let outcome = trial.outcome();
        trials.push(trial);
        Ok((!stop.is_requested()).then_some(outcome))
    })?;
    let mut stage = net::stage(&net, &found, &trials, "over loopback, and written");
    stage.name = crate::report::WHOLE_PATH.into();
    stage.what = stage.what.replace("received into blocks", "recorded: received, checksummed");
    let mut notes = net::notes(&net, &found, &trials, 0);
    for note in &mut notes {
        note.text = format!("the path whole: {}", note.text);
        note.level = Level::Info;
    }
    Ok(net::Measured { stage, notes, trials })
}

/// Records frames sent at a rate for a time.
fn record_once(
    net: &net::Settings,
    places: &[WorkPlace],
    rate: f64,
    time: Duration,
    number: usize,
    stop: &StopHandle,
) -> Result<Trial, Error> {
    check_space(places, rate, time)?;
    let frames = net::frames_per_second(net, rate);
    let address = std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    let io = |source| Error::Net(receive::Error::Thread(source).into());
    let first = receive::free_ports(address, net::wire::PORT + 101, net.streams).map_err(io)?;
    let wanted = receive::Wanted {
        streams: net.streams,
        frame_bytes: net.frame_bytes,
        frames_per_second: frames,
        pool_bytes: net.pool_bytes,
    };
    let ports = first..first + net.streams;
    let sources = ports.clone().map(|port| receive::source(address, port, &wanted));
    let members = places.iter().map(|place| place.path.clone()).collect();
    let sink = SinkConfig::Store(StoreConfig { members, ..StoreConfig::default() });
    let sources = sources.collect::<Result<Vec<_>, _>>()?;
    let plan = RecordingConfig {
        buffer: Some(ByteSize(net.pool_bytes)),
        ..RecordingConfig::new(sources, sink, vec![scan_name(number)])
    };
    let targets: Vec<_> = ports.map(|port| net::target(address, port)).collect();
    let sending = net::plan(&targets, net.frame_bytes, frames, Some(time))?;
    let cpu = process_cpu_seconds();
    let recorder = Recorder::arm(plan, &mut |_: &Event| ())?;
    let generator = Generator::prepare(sending)?;
    let control = Arc::new(StopHandle::default());
    let mut caught = Caught::default();
    let (sent, recorded) = std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let sent = generator.run(stop, &Progress::default());
            std::thread::sleep(net::SETTLE);
            control.stop();
            sent
        });
        let recorded = recorder.run(&control, &mut |event: &Event| {
            if let Event::Sealed(sealed) = event {
                sealed.accounts.iter().for_each(|account| caught.add(account));
                let hosts = sealed.accounts.iter().filter_map(|account| account.host.as_ref());
                let marks = hosts.map(|host| (host.high_water, host.pool_blocks));
                caught.high_water = marks.max().unwrap_or((0, 0));
            }
        });
        (sender.join(), recorded)
    });
    recorded?;
    let sent = sent.map_err(|_| Error::Failed)??;
    caught.cpu_seconds = (process_cpu_seconds() - cpu - sent.sent.cpu_seconds).max(0.0);
    Ok(Trial::of(net, frames, &sent, caught, false))
}

fn scan_name(number: usize) -> ScanName {
    format!("bench_t{number:04}").parse().expect("letters and digits are a name")
}

fn check_space(places: &[WorkPlace], rate: f64, time: Duration) -> Result<(), Error> {
    // Space for chunks is allocated before they are filled, so each stream has one extra chunk.
    let needed = rate * time.as_secs_f64() * 1.2 + (1u64 << 30) as f64;
    let free = |place: &WorkPlace| {
        let status = rustix::fs::statvfs(&place.path);
        let free = status.map_or(u64::MAX, |it| it.f_bavail.saturating_mul(it.f_frsize));
        free / place.sharers
    };
    let total = places.iter().map(free).fold(0, u64::saturating_add);
    if total as f64 >= needed {
        return Ok(());
    }
    let path = places.first().map(|place| place.path.clone()).unwrap_or_default();
    Err(Error::NoSpace { path, free: ByteSize(total), needed: ByteSize(needed as u64) })
}

/// A working directory on a target, removed on drop.
struct WorkPlace {
    path: PathBuf,
    /// The number of working directories on its file system.
    sharers: u64,
    /// Locked while the directory is in use.
    _lock: File,
}

impl WorkPlace {
    fn make(target: &Path, sharers: u64) -> Result<Self, Error> {
        clear_of_the_dead(target);
        let path = target.join(format!("{PREFIX}{}", std::process::id()));
        let cannot = |source| Error::Directory { path: path.clone(), source };
        std::fs::create_dir(&path).map_err(cannot)?;
        let lock = File::open(&path).map_err(cannot)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|error| cannot(error.into()))?;
        Ok(Self { path, sharers, _lock: lock })
    }

    /// Removes the recorded scans, so that the next trial has the same space.
    fn empty(&self) {
        let Ok(entries) = std::fs::read_dir(&self.path) else { return };
        for entry in entries.flatten() {
            if !entry.file_name().to_string_lossy().starts_with('.') {
                // Anything that cannot be removed now is removed with the directory.
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
    }
}

impl Drop for WorkPlace {
    fn drop(&mut self) {
        // If this fails, the directory's name shows its origin.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Removes the unlocked directories that killed benchmarks have left.
fn clear_of_the_dead(target: &Path) {
    let Ok(entries) = std::fs::read_dir(target) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let ours = name.strip_prefix(PREFIX).is_some_and(|pid| pid.parse::<u32>().is_ok());
        let directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if ours
            && directory
            && let Ok(lock) = File::open(entry.path())
            && flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
        {
            // Directories that cannot be removed stay.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_benchmark_left_goes_and_what_is_in_use_stays() {
        let target = tempfile::tempdir().unwrap();
        let names = || {
            let entries = std::fs::read_dir(target.path()).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let dead = target.path().join(format!("{PREFIX}1"));
        std::fs::create_dir(&dead).unwrap();
        std::fs::write(dead.join("chunk"), "left").unwrap();
        std::fs::create_dir(target.path().join("mine")).unwrap();
        let first = WorkPlace::make(target.path(), 1).unwrap();
        let own = first.path.file_name().unwrap().to_owned();
        assert_eq!(names(), [own.clone(), "mine".into()]);
        clear_of_the_dead(target.path());
        assert_eq!(names(), [own, "mine".into()], "it is in use");
        drop(first);
        assert_eq!(names(), ["mine"]);
    }

    fn settings(targets: Vec<PathBuf>) -> Settings {
        Settings {
            targets,
            runs: 1,
            time: Duration::from_millis(50),
            net: net::Settings {
                streams: 1,
                frame_bytes: 8032,
                pool_bytes: 64 << 20,
                reached: 0.3,
                range: Range {
                    start: 5e6,
                    most: 1e7,
                    precision: 0.3,
                    time: Duration::from_millis(100),
                    confirmations: 1,
                },
            },
        }
    }

    #[test]
    fn every_stage_has_a_rate_and_nothing_is_left_behind() {
        let place = tempfile::tempdir().unwrap();
        let mut now = Vec::new();
        let found =
            measure(&settings(vec![place.path().into()]), &StopHandle::default(), |heard| {
                if let Heard::Now(what) = heard {
                    now.push(what);
                }
            })
            .unwrap();
        let names: Vec<&str> = found.stages.iter().map(|stage| stage.name.as_str()).collect();
        assert_eq!(names, ["copy", "crc32c", "ring-handover", "receive", "disk", "path"]);
        for stage in &found.stages {
            assert!(stage.rate.mean > 0.0, "{stage:?} {:?}", found.notes);
        }
        assert_eq!(now.len(), 5);
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0, "something was left");
    }

    #[test]
    fn two_disks_are_written_to_at_once() {
        let places = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let members: Vec<Member> =
            places.iter().map(|place| Member::nameless(place.path()).unwrap()).collect();
        let settings = settings(vec![]);
        let disks = Disk::all(members).unwrap();
        assert!(disks.iter().all(|disk| disk.sharers == 2));
        let stage = written_alone(&settings, &disks, &StopHandle::default()).unwrap();
        assert!(stage.rate.mean > 0.0 && stage.threads == 2, "{stage:?}");
    }

    #[test]
    fn a_directory_given_twice_is_refused_before_anything_is_measured() {
        let place = tempfile::tempdir().unwrap();
        let twice = settings(vec![place.path().into(), place.path().join(".")]);
        let mut heard = 0;
        let found = measure(&twice, &StopHandle::default(), |_| heard += 1);
        assert!(matches!(found.map(|_| ()), Err(Error::Place(disk::Error::Twice { .. }))));
        assert_eq!(heard, 0);
    }

    #[test]
    fn what_must_be_known_of_a_directory_is_told() {
        let Ok(memory) = tempfile::tempdir_in("/dev/shm") else { return };
        let settings = settings(vec![memory.path().into()]);
        let stop = StopHandle::default();
        stop.stop();
        let found = measure(&settings, &stop, |_| ()).unwrap();
        let told = |note: &Note| note.text.contains("page cache all the same");
        assert!(found.notes.iter().any(told), "{:?}", found.notes);
    }

    #[test]
    fn without_a_target_nothing_is_measured() {
        let none = measure(&settings(vec![]), &StopHandle::default(), |_| ());
        assert!(matches!(none.map(|_| ()), Err(Error::NoTarget)));
    }
}
