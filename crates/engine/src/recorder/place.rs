//! Where the threads of a recording run and how urgently, on what pages its memory is, and how many files it may
//! open: asked for before it is armed, read back, and told.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use fullbore_core::completeness::counted;
use fullbore_core::endpoint::{Threads, UdpSource};
use fullbore_core::manifest::{Pages, Rig, Thread};
use fullbore_core::place::{Inlet, Outlet, Placement, Urgency, Wish, group};
use fullbore_core::units::ByteSize;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::arm::Running;
use super::error::RecordError;
use super::event::{Event, Tell};
use super::plan::Plan;
use crate::posting::{Autogroup, Posting, Standing};
use crate::ring::pages_of;
use crate::store::Member;
use crate::sys::memory::{HUGE_PAGE, Region};
use crate::sys::sched;
use crate::topology;

/// Files that a stream has open on a member: the chunk, the next one, the index, and one that is being closed.
const FILES_OF_A_STREAM: u64 = 4;

/// Files that are open whatever is recorded, twice over.
const FILES_BESIDES: u64 = 128;

/// Streams that a port is reckoned with that is split into its threads.
const SPLIT_INTO: u64 = 16;

/// More files than any recording opens.
const MOST_FILES: u64 = 1 << 20;

/// What the niceness of capture threads is worth where sessions are groups of their own.
const GROUP_NICE: i32 = -10;

/// Where everything runs.
pub(super) struct Places {
    /// The seat of each thread.
    pub placement: Placement,
    /// The capture thread of each port.
    pub of_port: Vec<usize>,
    urgency: Urgency,
}

impl Places {
    /// By what the machine is, and what is wished.
    pub fn plan(plan: &Plan, members: &[Member]) -> Result<Self, RecordError> {
        let root = Path::new("/");
        let mut cpus = sched::allowed().map_err(RecordError::Thread)?;
        // Those that are asked for were tried: a cpuset may allow them though the process is kept off them.
        cpus.extend(plan.place.cpus());
        cpus.sort_unstable();
        cpus.dedup();
        let machine = topology::machine(root, &cpus);
        let nodes = nodes(root, &plan.sources);
        let of_port = group(&nodes, plan.threads());
        let of_thread = |thread: usize| {
            let sources = plan.sources.iter().zip(&of_port).filter(move |(_, it)| **it == thread);
            sources.map(|(source, _)| source)
        };
        let mut inlets = vec![Inlet::default(); plan.captures()];
        let mut outlets = vec![Outlet::default(); members.len()];
        if plan.place == Wish::Auto {
            for (thread, inlet) in inlets.iter_mut().take(plan.threads()).enumerate() {
                *inlet = topology::inlet(root, of_thread(thread));
            }
            for (outlet, member) in outlets.iter_mut().zip(members) {
                let device = std::fs::metadata(member.root()).map_or(0, |it| it.dev());
                *outlet = topology::outlet(root, (major(device), minor(device)));
            }
        }
        let placement = Placement::plan(&machine, &inlets, &outlets, &plan.place);
        Ok(Self { placement, of_port, urgency: plan.priority })
    }

    /// The node that the memory of a port is to be on: that of its capture thread.
    pub fn node_of_port(&self, port: usize) -> Option<u32> {
        self.of_port.get(port).and_then(|&thread| self.placement.captures.get(thread)?.node)
    }

    /// What a capture thread asks for.
    pub fn capture(&self, number: usize) -> Posting {
        let rank = self.urgency.of_capture(self.placement.apart);
        Posting::in_seat(&self.placement.captures[number], rank)
    }

    /// What a writer asks for.
    pub fn writer(&self, number: usize) -> Posting {
        let rank = self.urgency.of_writer(self.placement.apart);
        Posting::in_seat(&self.placement.writers[number], rank)
    }

    /// Raises the session's group, if a niceness is all that a capture thread has: it counts for nothing against
    /// other groups.
    pub fn raise_group(&self, running: &Running) -> Option<Autogroup> {
        let nice = running.captures.iter().any(|it| {
            let standing = it.standing();
            standing.priority == 0 && standing.nice < 0
        });
        let wanted = nice && self.urgency != Urgency::Off;
        // Refused: niceness then counts within the session, which is told.
        wanted.then(|| Autogroup::raise(GROUP_NICE).ok().flatten()).flatten()
    }

    /// A warning of what was asked for by name and refused.
    pub fn judge(&self, threads: &[Standing], tell: &mut Tell<'_>) {
        let Urgency::Fifo(priority) = self.urgency else { return };
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

/// The memory node of each port's card, if it is known. Ports of one address are looked up once.
fn nodes(root: &Path, sources: &[UdpSource]) -> Vec<Option<u32>> {
    let mut known: BTreeMap<(Option<&str>, IpAddr), Option<u32>> = BTreeMap::new();
    let mut nodes = Vec::with_capacity(sources.len());
    for source in sources {
        let key = (source.interface.as_deref(), source.address.ip());
        nodes.push(*known.entry(key).or_insert_with(|| topology::inlet(root, [source]).node));
    }
    nodes
}

fn major(device: u64) -> u32 {
    rustix::fs::major(device)
}

fn minor(device: u64) -> u32 {
    rustix::fs::minor(device)
}

/// How all threads of a recording stand, capture threads first.
pub(super) fn standings(running: &Running) -> Vec<Standing> {
    let captures = running.captures.iter().map(|it| it.standing().clone());
    captures.chain(running.writers.iter().map(|it| it.standing().clone())).collect()
}

/// How the recorder stands, for the manifests of its scans.
pub(super) fn rig(placement: &Placement, threads: &[Standing], pages: Option<Pages>) -> Rig {
    let thread = |it: &Standing| Thread {
        name: it.thread.clone(),
        cpus: it.cpus.clone(),
        policy: it.policy.to_owned(),
        priority: it.priority,
        nice: it.nice,
    };
    Rig { why: placement.why.clone(), threads: threads.iter().map(thread).collect(), pages }
}

/// Says what block memory lacks: huge pages, locking, and being pinned for the members' rings.
pub(super) fn judge_memory(
    memory: &[Arc<Region>],
    running: &Running,
    tell: &mut Tell<'_>,
) -> Option<Pages> {
    let pages = pages_of(memory.iter().map(AsRef::as_ref))?;
    let bytes = pages.bytes;
    if pages.huge_bytes() < bytes / 2 {
        let transparent = topology::text(Path::new("/sys/kernel/mm/transparent_hugepage/enabled"));
        let never = transparent.is_none_or(|choices| choices.contains("[never]"));
        let why =
            if never { "the kernel makes none of ordinary memory" } else { "memory is in pieces" };
        let text = format!(
            "{} of {} of block memory are in huge pages, and direct I/O from others is slower: {why}; set some aside \
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

/// Allows as many open files as may be needed, as far as the limit that no process can pass by itself; a warning if
/// that is not enough.
pub(super) fn raise_files(plan: &Plan, members: usize, tell: &mut Tell<'_>) {
    let streams = plan.sources.iter().map(|source| match source.threads {
        Threads::Split => SPLIT_INTO,
        _ => 1,
    });
    let streams = streams.sum::<u64>() + plan.pandas.len() as u64;
    let needed = FILES_BESIDES + streams * (1 + FILES_OF_A_STREAM * members as u64);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let allowed = maximum.unwrap_or(MOST_FILES).min(MOST_FILES);
    if current.is_none_or(|current| current >= allowed) {
        // As many as there may be.
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
