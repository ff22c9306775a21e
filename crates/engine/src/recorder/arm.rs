//! Everything that can fail, before anything is promised.

use std::path::Path;
use std::sync::atomic::AtomicU16;
use std::sync::{Arc, mpsc};

use fullbore_core::endpoint::{Threads, UdpSource};
use fullbore_core::layout::CHUNK_BYTES;
use fullbore_core::manifest::{self, Rig};
use fullbore_core::name::ScanName;
use fullbore_core::time::Tai;
use fullbore_core::units::ByteSize;

use super::check::{
    check, check_chunk, check_space, chunk_step, fit_chunk, judge_redundancy, judge_space,
};
use super::error::RecordError;
use super::event::{Armed, Event, MemberState, Tell};
use super::memory::{least_share, panda_pool_bytes, tell_of_it, wanted};
use super::panda::Ways;
use super::place::{Places, judge_memory, raise_files, rig, standings};
use super::plan::Plan;
use super::scan::{DiskSet, Scan};
use super::scribe::{Answers, Scribes};
use super::set;
use super::supervise::Supervisor;
use crate::clock::Clock;
use crate::panda::capture::Panda;
use crate::posting::Autogroup;
use crate::ring::{Gauge, Pool, Report, Wake};
use crate::source::{Capture, Lane, Notice, Port, Scratch, Settings, Sizes};
use crate::store::tails::Tails;
use crate::store::{self, Member};
use crate::sys::memory::Region;
use crate::witness;

/// The least of it: the largest frame of today's servers, the one before it, and what is written.
const LEAST_PANDA_POOL_BYTES: u64 = 32 << 20;

/// Receive buffer of each socket if nothing is said: doubled by the kernel, 30 ms at 16 Gbit/s.
const RECEIVE_BUFFER: u64 = 64 << 20;

/// A recording that is armed.
pub struct Recorder {
    pub(super) supervisor: Supervisor,
}

impl Recorder {
    /// Opens, maps and faults in everything, makes the first scan's directories, and begins to listen.
    pub fn arm(plan: Plan, tell: &mut Tell<'_>) -> Result<Self, RecordError> {
        check(&plan)?;
        let (members, away) = set::open(&plan, tell)?;
        let mut plan = plan;
        check_space(&plan, &members)?;
        plan.chunk = Some(fit_chunk(&plan, &members, tell)?);
        judge_space(&plan, &members, Clock::new().now(), tell);
        judge_redundancy(&plan, &members, tell);
        for member in &members {
            for text in member.warnings() {
                tell(&Event::Warning { text: text.clone() });
            }
        }
        tell_of_it(&plan, available_memory(), tell)?;
        raise_files(&plan, members.len(), tell);
        let places = Places::plan(&plan, &members)?;
        let pandas = super::panda::reach(&plan.pandas)?;
        let ports = open_ports(&plan, &places)?;
        let pools = open_pools(&plan, &places)?;
        judge_buffers(&plan, &ports, tell);
        for text in ports.iter().filter_map(Port::warning) {
            tell(&Event::Warning { text });
        }
        let clock = Clock::new();
        let first = plan.scans.first().expect("checked: there is a scan").clone();
        let scribes = Scribes::start(&members).map_err(RecordError::Thread)?;
        let failures = vec![None; members.len()];
        let set = DiskSet { members: &members, failures: &failures, away: &away };
        let mut scan = open_first(first, &plan, set, &scribes, clock.now(), tell)?;
        let memory: Vec<Arc<Region>> =
            ports.iter().map(Port::region).chain(pools.iter().map(Pool::region)).cloned().collect();
        let mut armed = Armed {
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
            locked: memory.iter().all(|region| region.locked()),
            pages: None,
            placement: places.placement.clone(),
            threads: Vec::new(),
            autogroup: None,
            members: members
                .iter()
                .map(|member| member_state(member, None, member.free_bytes().unwrap_or(0)))
                .collect(),
        };
        let pandas = pandas.into_iter().zip(pools).collect();
        let mut threads = start(&plan, &places, &members, ports, pandas, &memory)
            .inspect_err(|_| undone(scan.discard()))?;
        threads.autogroup = places.raise_group(&threads);
        armed.autogroup = threads.autogroup.as_ref().map(|it| it.nice);
        armed.threads = standings(&threads);
        places.judge(&armed.threads, tell);
        armed.pages = judge_memory(&memory, &threads, tell);
        drop(memory);
        let rig = rig(&armed.placement, &armed.threads, armed.pages);
        scan.manifest.rig = Some(rig.clone());
        threads.rig = Some(rig);
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
    set: DiskSet<'_>,
    scribes: &Scribes,
    armed: Tai,
    tell: &mut Tell<'_>,
) -> Result<Scan, RecordError> {
    let mut scan = Scan::plan(name, plan, set, scribes, armed)?;
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
    /// As long as these run.
    pub autogroup: Option<Autogroup>,
    /// How they stand, for manifests.
    pub rig: Option<Rig>,
    pub captures: Vec<Capture>,
    pub writers: Vec<store::Writer>,
    /// Who keeps the tails of slow streams, if there is a store to keep them in.
    pub tails: Option<Tails>,
    pub gauges: Vec<Arc<Gauge>>,
    /// Space that each writer takes for a chunk at a time.
    pub steps: Vec<u64>,
    pub notices: mpsc::Receiver<Notice>,
    pub reports: mpsc::Receiver<Report>,
}

/// Opens every socket and maps its share of the block memory.
pub(super) fn open_ports(plan: &Plan, places: &Places) -> Result<Vec<Port>, RecordError> {
    if plan.sources.is_empty() {
        return Ok(Vec::new());
    }
    let share = share_of(plan, available_memory())?;
    check_chunk(plan, share)?;
    let single = |source: &UdpSource| source.threads != Threads::Split;
    // Streams that are known beforehand come first in the manifest; threads that are split off follow.
    let next_number = Arc::new(AtomicU16::new(plan.panda_numbers().end));
    let mut number = 0;
    let mut ports = Vec::with_capacity(plan.sources.len());
    for (place, source) in plan.sources.iter().enumerate() {
        let own = if single(source) { number } else { u16::MAX };
        number += u16::from(single(source));
        let chunk = plan.chunk.map_or(CHUNK_BYTES, |size| size.0);
        let buffer = source.receive_buffer.map_or(RECEIVE_BUFFER, |size| size.0);
        let sizes =
            Sizes { pool_bytes: share as usize, chunk_bytes: chunk, buffer_bytes: buffer as usize };
        let (node, next) = (places.node_of_port(place), next_number.clone());
        ports.push(Port::open_near(node, source.clone(), own, next, sizes)?);
    }
    Ok(ports)
}

/// Block memory of each source, of which there is one at least.
pub(super) fn share_of(plan: &Plan, available: u64) -> Result<u64, RecordError> {
    let sources = plan.sources.len();
    let wanted = wanted(plan, available)?;
    let share = wanted / sources as u64;
    let least = least_share(plan);
    if share < least {
        let (given, least) = (ByteSize(wanted), ByteSize(least));
        return Err(RecordError::SmallBuffer { given, sources, least });
    }
    Ok(share)
}

/// The block memory of each PandA.
fn open_pools(plan: &Plan, places: &Places) -> Result<Vec<Pool>, RecordError> {
    let captures = &places.placement.captures[plan.threads()..];
    captures.iter().map(|seat| open_pool(plan, seat.node)).collect()
}

fn open_pool(plan: &Plan, node: Option<u32>) -> Result<Pool, RecordError> {
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
    super::panda::pool(wanted, node).map_err(RecordError::Thread)
}

/// `MemAvailable`, or no limit where the kernel does not say.
pub(super) fn available_memory() -> u64 {
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
    places: &Places,
    members: &[Member],
    ports: Vec<Port>,
    pandas: Vec<(Panda, Pool)>,
    memory: &[Arc<Region>],
) -> Result<Running, RecordError> {
    let count = plan.threads();
    let mut groups: Vec<Vec<Port>> = (0..count).map(|_| Vec::new()).collect();
    let mut scratch = Scratch::new();
    for (mut port, &thread) in ports.into_iter().zip(&places.of_port) {
        port.drain(&mut scratch).map_err(RecordError::Thread)?;
        groups[thread].push(port);
    }
    let (reports, report_receiver) = mpsc::channel();
    let (notices, notice_receiver) = mpsc::channel();
    let blocks = groups.iter().map(|group| group.iter().map(Port::most_blocks).sum::<usize>());
    let blocks: Vec<usize> = blocks.chain(pandas.iter().map(|(_, pool)| pool.blocks())).collect();
    let mut lanes: Vec<Vec<Lane>> = blocks.iter().map(|_| Vec::new()).collect();
    let (mut writers, mut gauges, mut steps) = (Vec::new(), Vec::new(), Vec::new());
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
        settings.posting = places.writer(number);
        settings.memory = memory.to_vec();
        settings.step_bytes = chunk_step(plan, member.free_bytes()?);
        steps.push(settings.step_bytes);
        if let Some(interval) = plan.sync_interval {
            settings.round_interval = interval;
        }
        let writer = store::spawn(member, sides, gauge.clone(), reports.clone(), wake, settings)?;
        writers.push(writer);
        gauges.push(gauge);
    }
    let tails = Tails::start(members).map_err(RecordError::Thread)?;
    let (mut captures, mut of_pandas) = (Vec::new(), Vec::new());
    let lanes_of_pandas = lanes.split_off(count);
    for (place, ((device, pool), lanes)) in pandas.into_iter().zip(lanes_of_pandas).enumerate() {
        let (posting, notices) = (places.capture(count + place), notices.clone());
        let ways = Ways { lanes, tails: tails.clone(), notices };
        of_pandas.push(super::panda::start(plan, place, device, pool, ways, posting)?);
    }
    for (number, (group, lanes)) in groups.into_iter().zip(lanes).enumerate() {
        let settings = Settings {
            posting: places.capture(number),
            hold: plan.start.is_some(),
            tails: Some(tails.clone()),
            redundancy: plan.redundancy,
        };
        let capture = Capture::start(number, group, lanes, notices.clone(), settings);
        captures.push(capture.map_err(RecordError::Thread)?);
    }
    captures.extend(of_pandas);
    let (notices, reports) = (notice_receiver, report_receiver);
    let tails = Some(tails);
    let (autogroup, rig) = (None, None);
    Ok(Running { autogroup, rig, captures, writers, tails, gauges, steps, notices, reports })
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
