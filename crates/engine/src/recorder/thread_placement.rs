//! Thread placement and priority of a recording, the pages of its memory, and its limit of open files: requested before
//! arming, read back, and reported.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use fullbore_core::affinity::{
    AffinityPolicy, DiskTopology, NicTopology, Placement, SchedulingPolicy, group,
};
use fullbore_core::completeness::counted;
use fullbore_core::manifest::{HostFinding, HostSetup, Pages, SourceEngine, Thread};
use fullbore_core::units::ByteSize;
use fullbore_linux::ring::pages_of;
use fullbore_linux::sys::memory::{HUGE_PAGE, Region};
use fullbore_linux::sys::sched;
use fullbore_linux::thread_config::{ThreadConfig, ThreadStatus, sessions_are_groups};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::arm::Running;
use super::config::RecordingConfig;
use crate::error::RecordError;
use crate::event::{Event, EventHandler};
use crate::sink::Target;
use crate::source::{SourceConfig, Streams};
use crate::topology::{self, NetworkPath};

/// Files that a stream has open on a member: the chunk, the next one, the index, and one that is being closed.
const FILES_OF_A_STREAM: u64 = 4;

/// Files that are open in every recording, with a margin of two.
const FILES_BESIDES: u64 = 128;

/// The upper bound of open files in a recording.
const MOST_FILES: u64 = 1 << 20;

/// The placement and priority of all threads.
pub(super) struct ThreadPlacement {
    /// The CPU assignment of each thread.
    pub placement: Placement,
    /// The capture thread of each source.
    pub of_source: Vec<usize>,
    urgency: SchedulingPolicy,
}

impl ThreadPlacement {
    /// Plans the placement from the machine's topology and the policy.
    pub fn plan(plan: &RecordingConfig, targets: &[Target]) -> Result<Self, RecordError> {
        let root = Path::new("/");
        let mut cpus = sched::allowed().map_err(RecordError::Thread)?;
        // Requested cores were tried already: a cpuset may allow them although the process is kept off them.
        cpus.extend(plan.place.cpus());
        cpus.sort_unstable();
        cpus.dedup();
        let machine = topology::machine(root, &cpus);
        let of_source = threads_of_sources(root, plan);
        let paths_of = |thread: usize| {
            let sources = plan.sources.iter().zip(&of_source).filter(move |(_, it)| **it == thread);
            sources.filter_map(|(source, _)| source.network())
        };
        let mut inlets = vec![NicTopology::default(); plan.captures()];
        let mut outlets = vec![DiskTopology::default(); targets.len()];
        if plan.place == AffinityPolicy::Auto {
            for (thread, inlet) in inlets.iter_mut().enumerate() {
                *inlet = topology::nic_topology(root, paths_of(thread));
            }
            for (outlet, target) in outlets.iter_mut().zip(targets) {
                let device = target.device.unwrap_or(0);
                *outlet = topology::disk_topology(root, (major(device), minor(device)));
            }
        }
        let placement = Placement::plan(&machine, &inlets, &outlets, &plan.place);
        Ok(Self { placement, of_source, urgency: plan.priority })
    }

    /// Returns the memory node for the memory of a source: the node of its capture thread.
    pub fn node_of_source(&self, source: usize) -> Option<u32> {
        self.of_source.get(source).and_then(|&thread| self.placement.captures.get(thread)?.node)
    }

    /// The configuration of a capture thread.
    pub fn capture(&self, number: usize) -> ThreadConfig {
        let rank = self.urgency.of_capture(self.placement.apart);
        ThreadConfig::assigned(&self.placement.captures[number], rank)
    }

    /// The configuration of a writer.
    pub fn writer(&self, number: usize) -> ThreadConfig {
        let rank = self.urgency.of_writer(self.placement.apart);
        ThreadConfig::assigned(&self.placement.writers[number], rank)
    }

    /// Warns of an explicit request that was refused.
    pub fn judge(&self, threads: &[ThreadStatus], tell: &mut EventHandler<'_>) {
        let by_nice = threads.iter().any(|thread| thread.priority == 0 && thread.nice < 0);
        if by_nice && sessions_are_groups() {
            let text = "nice values count only within this login session, because autogroup scheduling is on; to run \
                        before programs of other sessions, use --priority fifo:N, or run fullbore as a service";
            tell(&Event::Note { text: text.to_owned() });
        }
        let SchedulingPolicy::Fifo(priority) = self.urgency else { return };
        if let Some(thread) = threads.iter().find(|thread| thread.policy != "fifo") {
            let why = thread.refused.first().map_or("", String::as_str);
            let text = format!(
                "{} does not run at --priority fifo:{priority} ({why}); allow it with CAP_SYS_NICE \
                 (`setcap cap_sys_nice+ep` on the program), `ulimit -r {priority}`, or LimitRTPRIO={priority} in the \
                 unit of a service",
                thread.thread
            );
            tell(&Event::Warning { text });
        }
    }
}

/// Returns the capture thread of each source. The threads that sources share come first.
fn threads_of_sources(root: &Path, plan: &RecordingConfig) -> Vec<usize> {
    let sharing = plan.sources.iter().filter(|source| source.shares_thread());
    let shared = plan.shared_threads();
    let mut grouped = group(&nodes(root, sharing), shared).into_iter();
    let mut alone = shared..;
    let of_source = |source: &SourceConfig| match source.shares_thread() {
        true => grouped.next(),
        false => alone.next(),
    };
    plan.sources.iter().filter_map(of_source).collect()
}

/// Returns the memory node of each source's network card, if known. Sources with the same address are looked up once.
fn nodes<'a>(root: &Path, sources: impl Iterator<Item = &'a SourceConfig>) -> Vec<Option<u32>> {
    let mut known: BTreeMap<Option<NetworkPath<'a>>, Option<u32>> = BTreeMap::new();
    let mut nodes = Vec::new();
    for path in sources.map(|source| source.network()) {
        let node = known.entry(path).or_insert_with(|| topology::nic_topology(root, path).node);
        nodes.push(*node);
    }
    nodes
}

fn major(device: u64) -> u32 {
    rustix::fs::major(device)
}

fn minor(device: u64) -> u32 {
    rustix::fs::minor(device)
}

/// Returns the status of all threads of a recording, capture threads first.
pub(super) fn states(running: &Running) -> Vec<ThreadStatus> {
    let captures = running.captures.iter().map(|it| it.status().clone());
    captures.chain(running.writers.iter().map(|it| it.status().clone())).collect()
}

/// Returns the state of the recorder's threads for the manifests of its scans.
pub(super) fn host_setup(
    placement: &Placement,
    threads: &[ThreadStatus],
    pages: Option<Pages>,
    engines: Vec<SourceEngine>,
    findings: Vec<HostFinding>,
) -> HostSetup {
    let thread = |it: &ThreadStatus| Thread {
        name: it.thread.clone(),
        cpus: it.cpus.clone(),
        policy: it.policy.to_owned(),
        priority: it.priority,
        nice: it.nice,
    };
    let threads = threads.iter().map(thread).collect();
    HostSetup { why: placement.why.clone(), threads, pages, engines, findings }
}

/// Warns of block memory that is not in huge pages, not locked, or not registered with the members' rings.
pub(super) fn judge_memory(
    memory: &[Arc<Region>],
    running: &Running,
    tell: &mut EventHandler<'_>,
) -> Option<Pages> {
    let pages = pages_of(memory.iter().map(AsRef::as_ref))?;
    let bytes = pages.bytes;
    if pages.huge_bytes() < bytes / 2 {
        let transparent = topology::text(Path::new("/sys/kernel/mm/transparent_hugepage/enabled"));
        let never = transparent.is_none_or(|choices| choices.contains("[never]"));
        let why =
            if never { "transparent huge pages are switched off" } else { "memory is fragmented" };
        let text = format!(
            "{} of {} of block memory are in huge pages; direct I/O from other pages is slower: {why}; set some aside \
             with `sysctl vm.nr_hugepages={}`{}",
            ByteSize(pages.huge_bytes()),
            ByteSize(bytes),
            bytes.div_ceil(HUGE_PAGE as u64),
            if never {
                ", or write madvise to /sys/kernel/mm/transparent_hugepage/enabled"
            } else {
                ""
            }
        );
        tell(&Event::Warning { text });
    }
    let limit = getrlimit(Resource::Memlock)
        .current
        .map_or("none".to_owned(), |it| ByteSize(it).to_string());
    let unlocked = memory.iter().filter(|region| !region.locked()).count();
    let unpinned = running.writers.iter().find_map(|writer| writer.unpinned());
    let lacks = [
        (unlocked > 0).then(|| "block memory is not locked, so it could be swapped out".to_owned()),
        unpinned.map(|why| {
            format!("the kernel looks up block memory with each write instead of once, for some more CPU time ({why})")
        }),
    ];
    for lack in lacks.into_iter().flatten() {
        let text = format!(
            "{lack}: the limit of locked memory is {limit}; raise it with `ulimit -l`, LimitMEMLOCK=infinity in the \
             unit of a service, or CAP_IPC_LOCK"
        );
        tell(&Event::Note { text });
    }
    Some(pages)
}

/// Raises the limit of open files as far as needed, at most to the hard limit. Warns if that is not enough.
pub(super) fn raise_files(plan: &RecordingConfig, members: usize, tell: &mut EventHandler<'_>) {
    let streams = plan.sources.iter().map(|source| match source.streams() {
        Streams::One => 1,
        Streams::Discovered(about) => about,
    });
    let streams: u64 = streams.sum();
    let needed = FILES_BESIDES + streams * (1 + FILES_OF_A_STREAM * members as u64);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let allowed = maximum.unwrap_or(MOST_FILES).min(MOST_FILES);
    if current.is_none_or(|current| current >= allowed) {
        // Takes the hard limit.
    } else if setrlimit(Resource::Nofile, Rlimit { current: Some(allowed), maximum }).is_ok()
        && allowed >= needed
    {
        return;
    }
    let current = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if current < needed {
        let text = format!(
            "{current} files may be open, and {} on {} may need {needed}: raise the \
             limit with `ulimit -n`, or LimitNOFILE={needed} in the unit of a service",
            counted(streams, "stream"),
            counted(members as u64, "member")
        );
        tell(&Event::Warning { text });
    }
}
