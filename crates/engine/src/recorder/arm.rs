//! Everything that can fail, before anything is promised.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU16;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use fullbore_core::endpoint::{Threads, UdpSource};
use fullbore_core::layout::{BLOCK_BYTES, CHUNK_BYTES};
use fullbore_core::manifest;
use fullbore_core::name::{Name, ScanName};
use fullbore_core::time::Tai;
use fullbore_core::units::{ByteRate, ByteSize};
use rustix::thread::CpuSet;

use super::event::{Armed, Event, MemberState, Tell};
use super::scan::Scan;
use super::scribe::{Answers, Scribes};
use super::supervise::Supervisor;
use crate::clock::Clock;
use crate::panda::capture::Panda;
use crate::ring::{Gauge, Pool, Report, Wake};
use crate::source::{
    Capture, Lane, Notice, Port, PortError, Scratch, Settings, wanted_block_bytes,
};
use crate::store::{self, Member, MemberError, WriterError};
use crate::witness;

/// Block memory if nothing is said, for all sources together.
const POOL_BYTES: u64 = 2 << 30;

/// Block memory of a PandA if nothing is said: two seconds at the rate of its link.
const PANDA_POOL_BYTES: u64 = 256 << 20;

/// The least of it: the largest frame of today's servers, the one before it, and what is written.
const LEAST_PANDA_POOL_BYTES: u64 = 32 << 20;

/// The least block memory a source works with.
const LEAST_POOL_BYTES: u64 = 16 << 20;

/// Receive buffer of each socket if nothing is said: doubled by the kernel, 30 ms at 16 Gbit/s.
const RECEIVE_BUFFER: u64 = 64 << 20;

/// No scan is begun with less room than this on any member.
const LEAST_FREE_BYTES: u64 = 16 << 20;

/// Chunk files larger than this take their space at once, and leave none to others.
const LARGEST_CHUNK_BYTES: u64 = 64 << 30;

/// What is to be recorded.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where frames come from.
    pub sources: Vec<UdpSource>,
    /// PandAs, alone or beside them: an acquisition of each is a scan.
    pub pandas: Vec<PandaPlan>,
    /// Directories of the disk set.
    pub members: Vec<PathBuf>,
    /// Names of the scans, one after the other without a pause.
    pub scans: Vec<ScanName>,
    /// When the first scan begins, if not at once: what comes before is thrown away.
    pub start: Option<Tai>,
    /// When each scan ends.
    pub limit: Limit,
    /// Block memory for all sources together.
    pub buffer: Option<ByteSize>,
    /// About how large chunk files are.
    pub chunk: Option<ByteSize>,
    /// Capture threads; by default as many as the machine carries.
    pub capture_threads: Option<usize>,
    /// Cores for the capture threads and then the writers, if they are to stay on some.
    pub cpus: Vec<usize>,
    /// How often data is made durable at least.
    pub sync_interval: Option<Duration>,
}

/// A PandA that is to be recorded.
#[derive(Clone, Debug)]
pub struct PandaPlan {
    /// Which one.
    pub source: fullbore_core::format::panda::PandaSource,
    /// Arm it at the beginning, and after each acquisition.
    pub arm: bool,
    /// How long a connection that was lost is tried again.
    pub reconnect: Duration,
}

impl PandaPlan {
    /// Whether the recorder arms it.
    pub fn arms(&self) -> bool {
        self.source.arm.unwrap_or(self.arm)
    }
}

impl Plan {
    /// Capture threads of datagrams: never more than sources.
    pub fn threads(&self) -> usize {
        let sources = self.sources.len();
        self.capture_threads.unwrap_or_else(default_threads).clamp(sources.min(1), sources)
    }

    /// All capture threads: each PandA has one of its own.
    pub fn captures(&self) -> usize {
        self.threads() + self.pandas.len()
    }

    /// Places of the PandAs in the manifest: after the streams that are known beforehand.
    pub fn panda_numbers(&self) -> Range<u16> {
        let single = |source: &&UdpSource| source.threads != Threads::Split;
        let first = self.sources.iter().filter(single).count();
        first as u16..(first + self.pandas.len()) as u16
    }

    /// What each source gets of the block memory that was asked for.
    fn share(&self) -> Option<u64> {
        let sources = self.sources.len() + self.pandas.len();
        self.buffer.map(|size| size.0 / sources.max(1) as u64)
    }

    /// How long all scans last together, where that is said.
    fn lasts(&self, now: Tai) -> Option<Duration> {
        let scans = u32::try_from(self.scans.len()).unwrap_or(u32::MAX);
        let all = self.limit.duration.map(|duration| duration.saturating_mul(scans));
        let left = |until: Tai| Duration::from_nanos(until.since(now).max(0).unsigned_abs());
        [all, self.limit.until.map(left)].into_iter().flatten().min()
    }
}

/// When a scan ends by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    /// After this time from when it was armed.
    pub duration: Option<Duration>,
    /// After so many bytes received in all streams.
    pub bytes: Option<u64>,
    /// At this instant.
    pub until: Option<Tai>,
}

/// A recording that could not be armed.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Nothing to record from.
    #[error("no source was given")]
    NoSource,
    /// Nothing to record to.
    #[error("no member of the disk set was given")]
    NoMember,
    /// Two sources of one name.
    #[error("two sources are named `{name}`")]
    SameName {
        /// The name.
        name: Name,
    },
    /// One PandA given twice: an acquisition is recorded once.
    #[error("{first} and {second} are one PandA")]
    SamePanda {
        /// As given.
        first: String,
        /// As given.
        second: String,
    },
    /// Two members are one directory.
    #[error("{} is given twice", path.display())]
    SameMember {
        /// The directory.
        path: PathBuf,
    },
    /// Two directories of one identity.
    #[error("{} and {} are one member: {uuid}", first.display(), second.display())]
    SameIdentity {
        /// As given.
        first: PathBuf,
        /// As given.
        second: PathBuf,
        /// The identity of both.
        uuid: uuid::Uuid,
    },
    /// A core that threads cannot be kept on.
    #[error("core {cpu} is none that this process may run on; those are {allowed}")]
    Cpu {
        /// Asked for.
        cpu: usize,
        /// What the kernel allows.
        allowed: String,
    },
    /// Chunks that hold no block, or too many.
    #[error("chunk files of {chunk} cannot be: they are {least} to {most} here")]
    Chunk {
        /// Asked for.
        chunk: ByteSize,
        /// A block of the source.
        least: ByteSize,
        /// The largest that are allowed.
        most: ByteSize,
    },
    /// A time that has passed.
    #[error("the recording is to end at {until}, which has passed")]
    Past {
        /// The time asked for.
        until: Tai,
    },
    /// A member.
    #[error(transparent)]
    Member(#[from] MemberError),
    /// A scan of this name exists.
    #[error("{} exists: the scan {scan} has been recorded already", path.display())]
    ScanExists {
        /// The scan.
        scan: ScanName,
        /// What is there.
        path: PathBuf,
    },
    /// Not enough room on any member to begin.
    #[error("{}: {free} free, and {needed} are needed", path.display())]
    NoSpace {
        /// The roomiest member.
        path: PathBuf,
        /// What is free.
        free: ByteSize,
        /// What is needed at least.
        needed: ByteSize,
    },
    /// Not enough room on all members together for what is to be recorded.
    #[error("{}: {free} free in all, and {needed} are needed", listed(members))]
    NoRoom {
        /// The disk set.
        members: Vec<PathBuf>,
        /// What is free.
        free: ByteSize,
        /// What is needed, over all scans.
        needed: ByteSize,
    },
    /// A socket or its memory.
    #[error(transparent)]
    Port(#[from] PortError),
    /// More block memory than the machine has.
    #[error("{wanted} of block memory were asked for, and {available} are available")]
    Memory {
        /// Asked for.
        wanted: ByteSize,
        /// By the kernel's count.
        available: ByteSize,
    },
    /// Less block memory than the sources need.
    #[error("{given} of block memory for {sources} sources; each needs {least} at least")]
    SmallBuffer {
        /// Asked for.
        given: ByteSize,
        /// How many sources.
        sources: usize,
        /// The least for each.
        least: ByteSize,
    },
    /// A PandA.
    #[error(transparent)]
    Panda(#[from] crate::panda::Error),
    /// A container.
    #[cfg(feature = "hdf5")]
    #[error("{}", crate::sink::hdf5::in_full(.0))]
    Container(crate::sink::hdf5::Error),
    /// A writer.
    #[error(transparent)]
    Writer(#[from] WriterError),
    /// Something that was to be recorded was not; what was is sealed.
    #[error("not everything was recorded: {why}")]
    Broken {
        /// What happened first.
        why: String,
    },
    /// It was left before all scans were sealed, because a member did not answer.
    #[error("{} not sealed: it was left while a member did not answer", in_a_row(scans))]
    Left {
        /// The scans.
        scans: Vec<ScanName>,
    },
    /// Every member of the disk set has failed.
    #[error("no member of the disk set takes data any more")]
    NoMemberLeft,
    /// A thread.
    #[error("starting a capture thread: {0}")]
    Thread(#[source] io::Error),
    /// The manifest of the new scan.
    #[error(transparent)]
    Manifest(#[from] store::lock::Error),
    /// Copies of the manifest, or directories.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

#[cfg(feature = "hdf5")]
impl From<crate::sink::hdf5::Error> for RecordError {
    fn from(error: crate::sink::hdf5::Error) -> Self {
        // With all its causes it is told in one line, so it is no cause itself.
        RecordError::Container(error)
    }
}

impl RecordError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            RecordError::NoSource => "give one, for example udp://0.0.0.0:46220?format=vdif".into(),
            RecordError::NoMember => "give a directory with --store".into(),
            RecordError::SameName { .. } => "tell them apart with name=… in the endpoint".into(),
            RecordError::SamePanda { .. } => {
                "give each PandA once; its samples can go into one stream of a recording".into()
            }
            RecordError::SameMember { .. } => "name each directory of the disk set once".into(),
            RecordError::SameIdentity { .. } => {
                "one directory mounted twice is given once; of a copied disk, remove \
                 .fullbore/member.json"
                    .into()
            }
            RecordError::Cpu { .. } => "`taskset -cp $$` shows them, and `lscpu -e` all".into(),
            RecordError::Chunk { .. } => {
                "smaller chunks need smaller blocks: block=64KiB in the source".into()
            }
            RecordError::Past { .. } => "give a time to come, in UTC".into(),
            RecordError::Member(error) => return error.hint(),
            RecordError::ScanExists { .. } => {
                "choose another --scan, or remove the old one with `fullbore rm`".into()
            }
            RecordError::NoSpace { .. } | RecordError::NoRoom { .. } => {
                "free some space (`fullbore ls` shows what is there), or record less".into()
            }
            RecordError::Port(PortError::Listen(error)) => match error.source.kind() {
                io::ErrorKind::AddrInUse => {
                    "another program listens there; `ss -ulnp` shows which".into()
                }
                io::ErrorKind::AddrNotAvailable => {
                    "no interface of this host has that address; `ip addr` lists them".into()
                }
                io::ErrorKind::PermissionDenied => {
                    "ports below 1024 need the right to bind them".into()
                }
                _ => return None,
            },
            RecordError::Memory { .. } | RecordError::Port(PortError::Memory { .. }) => {
                "ask for less with --buffer".into()
            }
            RecordError::SmallBuffer { .. } => "give more with --buffer, or fewer sources".into(),
            RecordError::Panda(error) => return error.hint().map(str::to_owned),
            #[cfg(feature = "hdf5")]
            RecordError::Container(error) => return error.hint().map(str::to_owned),
            RecordError::Writer(error) => error.hint().into(),
            RecordError::Left { .. } => {
                "once the member answers again, `fullbore recover --all` seals what was written"
                    .into()
            }
            _ => return None,
        })
    }
}

fn listed(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn in_a_row(scans: &[ScanName]) -> String {
    let names = scans.iter().map(ScanName::to_string).collect::<Vec<_>>().join(", ");
    names + if scans.len() == 1 { " is" } else { " are" }
}

/// A recording that is armed.
pub struct Recorder {
    pub(super) supervisor: Supervisor,
}

impl Recorder {
    /// Opens, maps and faults in everything, makes the first scan's directories, and begins to listen.
    pub fn arm(plan: Plan, tell: &mut Tell<'_>) -> Result<Self, RecordError> {
        check(&plan)?;
        let members = open_members(&plan.members)?;
        let mut plan = plan;
        check_space(&plan, &members)?;
        plan.chunk = Some(fit_chunk(&plan, &members, tell)?);
        judge_space(&plan, &members, Clock::new().now(), tell);
        for member in &members {
            for text in member.warnings() {
                tell(&Event::Warning { text: text.clone() });
            }
        }
        let pandas = super::panda::reach(&plan.pandas)?;
        let mut ports = open_ports(&plan)?;
        judge_buffers(&plan, &ports, tell);
        for text in ports.iter().filter_map(Port::warning) {
            tell(&Event::Warning { text });
        }
        let clock = Clock::new();
        let first = plan.scans.first().expect("checked: there is a scan").clone();
        let scribes = Scribes::start(&members).map_err(RecordError::Thread)?;
        let mut scan = open_first(first, &plan, &members, &scribes, clock.now(), tell)?;
        let armed = Armed {
            scan: scan.manifest.scan.clone(),
            at: scan.manifest.armed,
            begins: plan.start,
            sources: ports
                .iter()
                .map(|port| (port.source().endpoint.to_string(), port.receiver().buffer_bytes()))
                .chain(plan.pandas.iter().map(|panda| (panda.source.to_string(), 0)))
                .collect(),
            pool_bytes: ports.iter().map(|port| port.region().bytes() as u64).sum::<u64>()
                + plan.pandas.len() as u64 * panda_pool_bytes(&plan),
            locked: ports.iter().all(|port| port.region().locked()),
            members: members
                .iter()
                .map(|member| member_state(member, None, member.free_bytes().unwrap_or(0)))
                .collect(),
        };
        let threads =
            start(&plan, &members, &mut ports, pandas).inspect_err(|_| undone(scan.discard()))?;
        scan.shared = witness::Reading::take(Path::new("/"));
        let supervisor = Supervisor::new(plan, members, threads, scribes, scan, clock);
        supervisor.begin_unless_it_waits();
        tell(&Event::Armed(armed));
        Ok(Self { supervisor })
    }
}

/// Makes the directories of the first scan on every member, with its manifest. If one cannot be made, none is left.
fn open_first(
    name: ScanName,
    plan: &Plan,
    members: &[Member],
    scribes: &Scribes,
    armed: Tai,
    tell: &mut Tell<'_>,
) -> Result<Scan, RecordError> {
    let failures = vec![None; members.len()];
    let mut scan = Scan::plan(name, plan, members, &failures, scribes, armed)?;
    let mut claimed = scan.claim();
    claimed.wait_for_all();
    // A member on which no directory can be made is no member to begin with.
    let begun = claimed.all_made().and_then(|claimed| scan.begin(claimed));
    match begun {
        Ok(warnings) => {
            warnings.into_iter().for_each(|text| tell(&Event::Warning { text }));
            Ok(scan)
        }
        Err(error) => {
            undone(scan.discard());
            Err(error)
        }
    }
}

/// Waits until what was made is taken away again.
pub(super) fn undone(mut discarded: Answers) {
    discarded.wait_for_all();
}

/// What the threads of a recording are reached by.
pub(super) struct Running {
    pub captures: Vec<Capture>,
    pub writers: Vec<store::Writer>,
    pub gauges: Vec<Arc<Gauge>>,
    pub notices: mpsc::Receiver<Notice>,
    pub reports: mpsc::Receiver<Report>,
}

fn check(plan: &Plan) -> Result<(), RecordError> {
    if plan.sources.is_empty() && plan.pandas.is_empty() {
        return Err(RecordError::NoSource);
    }
    if plan.members.is_empty() {
        return Err(RecordError::NoMember);
    }
    check_inputs(plan)
}

/// What can be said of a plan whatever it is recorded into.
pub(super) fn check_inputs(plan: &Plan) -> Result<(), RecordError> {
    let mut names: BTreeSet<&Name> = BTreeSet::new();
    let pandas = plan.pandas.iter().map(|panda| &panda.source.name);
    for name in plan.sources.iter().map(|source| &source.name).chain(pandas) {
        if !names.insert(name) {
            return Err(RecordError::SameName { name: name.clone() });
        }
    }
    check_cpus(&plan.cpus)?;
    if let Some(until) = plan.limit.until
        && until <= Clock::new().now()
    {
        return Err(RecordError::Past { until });
    }
    Ok(())
}

/// Refuses cores that the machine does not have, or that this process may not use.
fn check_cpus(cpus: &[usize]) -> Result<(), RecordError> {
    let allowed = rustix::thread::sched_getaffinity(None)
        .map_err(|error| RecordError::Thread(error.into()))?;
    let may = |cpu: usize| cpu < CpuSet::MAX_CPU && allowed.is_set(cpu);
    match cpus.iter().find(|&&cpu| !may(cpu)) {
        None => Ok(()),
        Some(&cpu) => {
            let all: Vec<String> =
                (0..CpuSet::MAX_CPU).filter(|&cpu| may(cpu)).map(|cpu| cpu.to_string()).collect();
            Err(RecordError::Cpu { cpu, allowed: all.join(", ") })
        }
    }
}

/// Refuses chunks that are smaller than a block of any source, or absurdly large.
fn check_chunk(plan: &Plan, share: u64) -> Result<(), RecordError> {
    let Some(chunk) = plan.chunk else { return Ok(()) };
    let block = |source: &UdpSource| wanted_block_bytes(source, share as usize, None);
    let least = plan.sources.iter().map(block).max().unwrap_or(0);
    if (least..=LARGEST_CHUNK_BYTES).contains(&chunk.0) {
        return Ok(());
    }
    Err(RecordError::Chunk { chunk, least: ByteSize(least), most: ByteSize(LARGEST_CHUNK_BYTES) })
}

fn open_members(paths: &[PathBuf]) -> Result<Vec<Member>, RecordError> {
    let mut members: Vec<Member> = Vec::with_capacity(paths.len());
    for path in paths {
        let member = Member::open(path)?;
        if members.iter().any(|other| other.root() == member.root()) {
            return Err(RecordError::SameMember { path: path.clone() });
        }
        if let Some(twin) = members.iter().find(|other| other.uuid() == member.uuid()) {
            let (first, second) = (twin.root().to_owned(), member.root().to_owned());
            return Err(RecordError::SameIdentity { first, second, uuid: member.uuid() });
        }
        members.push(member);
    }
    Ok(members)
}

/// Refuses a recording for which the disk set has no room from the start.
fn check_space(plan: &Plan, members: &[Member]) -> Result<(), RecordError> {
    let mut free = Vec::with_capacity(members.len());
    let mut most = (0, members[0].root());
    for member in members {
        let bytes = member.free_bytes()?;
        free.push((device(member), bytes));
        if bytes >= most.0 {
            most = (bytes, member.root());
        }
    }
    let total = in_all(free);
    if most.0 < LEAST_FREE_BYTES {
        let (path, needed) = (most.1.to_owned(), ByteSize(LEAST_FREE_BYTES));
        return Err(RecordError::NoSpace { path, free: ByteSize(most.0), needed });
    }
    let needed = plan.limit.bytes.unwrap_or(0).saturating_mul(plan.scans.len() as u64);
    if needed > total {
        let members = members.iter().map(|member| member.root().to_owned()).collect();
        let (free, needed) = (ByteSize(total), ByteSize(needed));
        return Err(RecordError::NoRoom { members, free, needed });
    }
    Ok(())
}

/// Warns of a recording that lasts longer than there is room for, by the rates that its sources are known to have. It
/// is no refusal, since nobody has to send all the time.
fn judge_space(plan: &Plan, members: &[Member], now: Tai, tell: &mut Tell<'_>) {
    let rate: u64 = plan.sources.iter().filter_map(known_rate).sum();
    let Some(lasts) = plan.lasts(now).filter(|_| rate > 0) else { return };
    let needed = u128::from(rate).saturating_mul(lasts.as_millis()) / 1000;
    let needed = u64::try_from(needed).unwrap_or(u64::MAX);
    let free = in_all(members.iter().map(|it| (device(it), it.free_bytes().unwrap_or(0))));
    if needed > free {
        let text = format!(
            "{} at {} are {}, and the disk set has {} free: it is full after {}",
            in_words(lasts),
            ByteRate(rate),
            ByteSize(needed),
            ByteSize(free),
            in_words(Duration::from_secs(free / rate)),
        );
        tell(&Event::Warning { text });
    }
}

/// The file system that a member lies on.
pub(super) fn device(member: &Member) -> Option<u64> {
    std::fs::metadata(member.root()).ok().map(|metadata| metadata.dev())
}

/// Bytes free on all members together; those of one file system have the same room.
pub(super) fn in_all(free: impl IntoIterator<Item = (Option<u64>, u64)>) -> u64 {
    let mut devices: BTreeMap<u64, u64> = BTreeMap::new();
    let mut alone = 0u64;
    for (device, bytes) in free {
        match device {
            Some(device) => {
                let most = devices.entry(device).or_default();
                *most = bytes.max(*most);
            }
            None => alone = alone.saturating_add(bytes),
        }
    }
    devices.into_values().fold(alone, u64::saturating_add)
}

/// Bytes per second of a source that says so beforehand; of several threads that are not listed, those of one.
pub(super) fn known_rate(source: &UdpSource) -> Option<u64> {
    let threads = match &source.threads {
        Threads::Listed(threads) => threads.len() as u64,
        Threads::Together | Threads::Split => 1,
    };
    let of_thread = source.frames_per_second?.checked_mul(source.frame_bytes?.into())?;
    of_thread.checked_mul(threads)
}

/// A time as people say it: hours, minutes and seconds, as many of them as matter.
pub(super) fn in_words(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, _) => format!("{} s", time.as_millis() as f64 / 1000.0),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

/// Chunks take their space at once. Where none are asked for, they are so small that every source finds room
/// for four on the roomiest member; a member without room for one is named, since it will get nothing.
fn fit_chunk(
    plan: &Plan,
    members: &[Member],
    tell: &mut Tell<'_>,
) -> Result<ByteSize, RecordError> {
    let free = members.iter().map(Member::free_bytes).collect::<Result<Vec<u64>, _>>()?;
    let most = free.iter().copied().max().unwrap_or(0);
    let fitting = most / (4 * (plan.sources.len() + plan.pandas.len()).max(1) as u64);
    let block = plan.sources.iter().map(|source| source.block.map_or(BLOCK_BYTES, |size| size.0));
    let default = fitting.min(CHUNK_BYTES).max(block.max().unwrap_or(BLOCK_BYTES));
    let chunk = plan.chunk.unwrap_or(ByteSize(default));
    if chunk.0 > most && chunk.0 <= LARGEST_CHUNK_BYTES {
        let roomiest = members.iter().zip(&free).max_by_key(|(_, free)| **free);
        let path = roomiest.map(|(member, _)| member.root().to_owned()).unwrap_or_default();
        return Err(RecordError::NoSpace { path, free: ByteSize(most), needed: chunk });
    }
    for (member, &free) in members.iter().zip(&free).filter(|(_, free)| **free < chunk.0) {
        let text = format!(
            "{} has {} free, less than a chunk of {chunk}: nothing will be recorded on it; \
             smaller chunks (--chunk) would use it",
            member.root().display(),
            ByteSize(free),
        );
        tell(&Event::Warning { text });
    }
    Ok(chunk)
}

/// Opens every socket and maps its share of the block memory.
pub(super) fn open_ports(plan: &Plan) -> Result<Vec<Port>, RecordError> {
    if plan.sources.is_empty() {
        return Ok(Vec::new());
    }
    let sources = plan.sources.len() as u64;
    let available = available_memory();
    let wanted = plan.share().map_or_else(
        || POOL_BYTES.min(available / 4).max(sources * LEAST_POOL_BYTES),
        |share| share * sources,
    );
    let share = wanted / sources;
    if share < LEAST_POOL_BYTES {
        return Err(RecordError::SmallBuffer {
            given: ByteSize(wanted),
            sources: plan.sources.len(),
            least: ByteSize(LEAST_POOL_BYTES),
        });
    }
    if wanted > available {
        let (wanted, available) = (ByteSize(wanted), ByteSize(available));
        return Err(RecordError::Memory { wanted, available });
    }
    check_chunk(plan, share)?;
    let single = |source: &UdpSource| source.threads != Threads::Split;
    // Streams that are known beforehand come first in the manifest; threads that are split off follow.
    let next_number = Arc::new(AtomicU16::new(plan.panda_numbers().end));
    let mut number = 0;
    let mut ports = Vec::with_capacity(plan.sources.len());
    for source in &plan.sources {
        let own = if single(source) { number } else { u16::MAX };
        number += u16::from(single(source));
        let chunk = plan.chunk.map_or(CHUNK_BYTES, |size| size.0);
        let buffer = source.receive_buffer.map_or(RECEIVE_BUFFER, |size| size.0);
        let port = Port::open(
            source.clone(),
            own,
            next_number.clone(),
            share as usize,
            chunk,
            buffer as usize,
        )?;
        ports.push(port);
    }
    Ok(ports)
}

/// How much block memory a PandA gets.
fn panda_pool_bytes(plan: &Plan) -> u64 {
    plan.share().unwrap_or(PANDA_POOL_BYTES)
}

/// The block memory of a PandA.
fn open_pool(plan: &Plan) -> Result<Pool, RecordError> {
    let wanted = panda_pool_bytes(plan);
    if wanted < LEAST_PANDA_POOL_BYTES {
        return Err(RecordError::SmallBuffer {
            given: ByteSize(wanted),
            sources: plan.pandas.len(),
            least: ByteSize(LEAST_PANDA_POOL_BYTES),
        });
    }
    let available = available_memory();
    if wanted > available {
        let (wanted, available) = (ByteSize(wanted), ByteSize(available));
        return Err(RecordError::Memory { wanted, available });
    }
    super::panda::pool(wanted).map_err(RecordError::Thread)
}

/// `MemAvailable`, or no limit where the kernel does not say.
fn available_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.map_or(u64::MAX, |kib| kib * 1024)
}

/// Warns of sockets whose buffer holds less than 50 ms of their stream, or is small where no rate is known.
pub(super) fn judge_buffers(plan: &Plan, ports: &[Port], tell: &mut Tell<'_>) {
    for (port, source) in ports.iter().zip(&plan.sources) {
        let held = port.receiver().buffer_bytes() as u64 / 2;
        let rate = source.frames_per_second.zip(source.frame_bytes);
        let needed = rate.map_or(16 << 20, |(fps, bytes)| fps * u64::from(bytes) / 20);
        if held < needed {
            let text = format!(
                "the receive buffer of {} holds {}, and 50 ms of its stream are {}; \
                 allow more with `sysctl net.core.rmem_max={}`, or run with CAP_NET_ADMIN",
                source.endpoint,
                ByteSize(held),
                ByteSize(needed),
                RECEIVE_BUFFER,
            );
            tell(&Event::Warning { text });
        }
    }
}

/// Starts the writers and the capture threads, with a queue from each of these to each of those.
fn start(
    plan: &Plan,
    members: &[Member],
    ports: &mut Vec<Port>,
    pandas: Vec<Panda>,
) -> Result<Running, RecordError> {
    let count = plan.threads();
    let pools = pandas.iter().map(|_| open_pool(plan)).collect::<Result<Vec<_>, _>>()?;
    let mut groups: Vec<Vec<Port>> = (0..count).map(|_| Vec::new()).collect();
    let mut scratch = Scratch::new();
    for (number, mut port) in ports.drain(..).enumerate() {
        port.drain(&mut scratch).map_err(RecordError::Thread)?;
        groups[number % count].push(port);
    }
    let (reports, report_receiver) = mpsc::channel();
    let (notices, notice_receiver) = mpsc::channel();
    let blocks = groups.iter().map(|group| group.iter().map(Port::most_blocks).sum::<usize>());
    let blocks: Vec<usize> = blocks.chain(pools.iter().map(Pool::blocks)).collect();
    let mut lanes: Vec<Vec<Lane>> = blocks.iter().map(|_| Vec::new()).collect();
    let (mut writers, mut gauges) = (Vec::new(), Vec::new());
    let mut cpus = plan.cpus.iter().copied().skip(plan.captures()).cycle();
    for (number, member) in members.iter().enumerate() {
        let gauge = Arc::new(Gauge::default());
        let wake = Arc::new(Wake::new().map_err(RecordError::Thread)?);
        let mut sides = Vec::new();
        for (&most_blocks, lanes) in blocks.iter().zip(&mut lanes) {
            let room = most_blocks + Lane::FINISHES;
            let (commands, from_capture) = rtrb::RingBuffer::new(room);
            let (to_capture, returned) = rtrb::RingBuffer::new(room);
            sides.push(store::Lane { commands: from_capture, returned: to_capture });
            lanes.push(Lane::new(commands, returned, gauge.clone(), wake.clone(), most_blocks));
        }
        let mut settings = store::Settings::of_member(number);
        settings.cpu = cpus.next();
        if let Some(interval) = plan.sync_interval {
            settings.round_interval = interval;
        }
        let writer = store::spawn(member, sides, gauge.clone(), reports.clone(), wake, settings)?;
        writers.push(writer);
        gauges.push(gauge);
    }
    let mut captures = Vec::new();
    let lanes_of_pandas = lanes.split_off(count);
    for (place, ((device, pool), lanes)) in
        pandas.into_iter().zip(pools).zip(lanes_of_pandas).enumerate()
    {
        captures.push(super::panda::start(plan, place, device, pool, lanes, notices.clone())?);
    }
    for (number, (group, lanes)) in groups.into_iter().zip(lanes).enumerate() {
        let settings = Settings { cpu: plan.cpus.get(number).copied(), hold: plan.start.is_some() };
        let capture = Capture::start(number, group, lanes, notices.clone(), settings);
        captures.push(capture.map_err(RecordError::Thread)?);
    }
    Ok(Running { captures, writers, gauges, notices: notice_receiver, reports: report_receiver })
}

/// One capture thread serves many sockets; more pay on machines that have cores to spare.
fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| (cores.get() / 4).max(1))
}

pub(super) fn member_state(member: &Member, failure: Option<&str>, free_bytes: u64) -> MemberState {
    MemberState {
        path: member.root().to_owned(),
        buffered: member.buffered(),
        written_bytes: 0,
        rate: 0,
        backlog_bytes: 0,
        free_bytes,
        longest_write_ns: 0,
        failure: failure.map(str::to_owned),
    }
}

pub(super) fn manifest_member(member: &Member, failure: Option<String>) -> manifest::Member {
    manifest::Member {
        uuid: member.uuid(),
        path: member.root().to_owned(),
        failure,
        buffered: member.buffered(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_known_beforehand_where_length_and_number_of_frames_are() {
        let rate = |query: &str| {
            let sources = UdpSource::parse(&format!("udp://0.0.0.0:46220?{query}")).unwrap();
            known_rate(&sources[0])
        };
        assert_eq!(rate("format=vdif&frame=8032&fps=32000"), Some(8032 * 32_000));
        assert_eq!(rate("format=vdif&frame=8032&fps=1000&threads=0-3"), Some(4 * 8032 * 1000));
        assert_eq!(rate("format=vdif&fps=32000"), None);
        assert_eq!(rate("format=vdif&frame=8032"), None);
    }

    #[test]
    fn members_of_one_file_system_have_the_same_room() {
        assert_eq!(in_all([(Some(1), 5), (Some(1), 5), (Some(2), 3), (None, 2)]), 10);
    }

    #[test]
    fn a_time_is_said_in_the_units_that_matter() {
        let said = |ms: u64| in_words(Duration::from_millis(ms));
        assert_eq!(said(2500), "2.5 s");
        assert_eq!(said(90_000), "1 min 30 s");
        assert_eq!(said(3_600_000 * 1000 + 120_000), "1000 h 2 min");
    }
}
