//! CPU affinity: plans the CPUs of all threads from the machine and the work, with reasons.
//!
//! ```text
//! machine   cores, their siblings, caches, nodes ─┐
//! inlets    node and interrupts of each NIC ──────┼──► CPUs, memory node and reason for each thread
//! outlets   node of each disk ────────────────────┘
//! ```
//!
//! A capture thread gets a core without other threads of the recording, siblings included. The core is on the node of
//! its NIC and under the cache that the NIC's interrupts fill. It takes no interrupts itself, because softirq has
//! precedence and would starve the thread. Writers need little CPU time and mostly wait for disks: they share the
//! remaining cores near their disk, and the scheduler chooses among these.
//!
//! If there are fewer whole cores than such threads, no thread is pinned. A pinned thread waits whenever another
//! thread occupies its core, even if the next core is idle. This has caused frame loss.

mod cpu_list;
mod machine;
mod policy;
mod priority;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use serde::Serialize;

pub use cpu_list::{MOST_CPUS, in_words, parse};
pub use machine::{Core, Cpu, Machine};
pub use policy::{AffinityPolicy, InvalidAffinity};
pub use priority::{HIGHEST, InvalidPriority, SchedulingPolicy, ThreadPriority};

/// Writers per core: a disk of 2 GB/s uses a fifth of a core for its writer.
const WRITERS_OF_A_CORE: usize = 4;

/// The network interfaces of a capture thread and their topology.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NicTopology {
    /// The names of the interfaces, for people; empty: unknown, or the loopback.
    pub cards: Vec<String>,
    /// The node of the interfaces, if it is known and the same for all.
    pub node: Option<u32>,
    /// Cores that take their interrupts, or their packets by receive packet steering.
    pub interrupts: BTreeSet<usize>,
}

/// The topology of the disk of a writer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskTopology {
    /// The node of the disk, if it is known and the same for all its devices.
    pub node: Option<u32>,
}

/// The CPU assignments of all threads of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Placement {
    /// True if any thread is pinned to cores.
    pub pinned: bool,
    /// True if each capture thread has a core that no other thread of the recording runs on, and other cores exist.
    pub apart: bool,
    /// The reason for this placement.
    pub why: String,
    /// The assignments of the capture threads, in their order.
    pub captures: Vec<CpuAssignment>,
    /// The assignments of the writers, in the order of the members.
    pub writers: Vec<CpuAssignment>,
}

/// The CPUs of one thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CpuAssignment {
    /// Cores that the thread is pinned to; empty: the scheduler chooses.
    pub cpus: Vec<usize>,
    /// The memory node, if there are several and the memory is bound to one.
    pub node: Option<u32>,
    /// The reason for this assignment.
    pub why: String,
}

impl Placement {
    /// Plans the placement of threads on this machine, according to the policy.
    pub fn plan(
        machine: &Machine,
        nics: &[NicTopology],
        disks: &[DiskTopology],
        policy: &AffinityPolicy,
    ) -> Self {
        match policy {
            AffinityPolicy::Off => Self::nowhere(
                "threads are not pinned to cores, as requested",
                nics.len(),
                disks.len(),
            ),
            AffinityPolicy::InTurn(cpus) => in_turn(machine, cpus, nics.len(), disks.len()),
            AffinityPolicy::Given { captures, writers } => {
                given(machine, (captures, writers), nics.len(), disks.len())
            }
            AffinityPolicy::Auto => match too_few(machine, nics.len(), disks.len()) {
                Some(why) => Self::nowhere(&why, nics.len(), disks.len()),
                None => CpuAllocator::new(machine, nics).deal(nics, disks),
            },
        }
    }

    fn nowhere(why: &str, captures: usize, writers: usize) -> Self {
        Self {
            pinned: false,
            apart: false,
            why: why.to_owned(),
            captures: vec![CpuAssignment::default(); captures],
            writers: vec![CpuAssignment::default(); writers],
        }
    }
}

/// Returns the capture thread of each port. Ports of one node share threads if there are enough threads; ports take
/// turns within them.
pub fn group(nodes: &[Option<u32>], threads: usize) -> Vec<usize> {
    let distinct: BTreeSet<Option<u32>> = nodes.iter().copied().collect();
    if threads <= 1 || distinct.len() > threads || distinct.len() < 2 {
        return (0..nodes.len()).map(|port| port % threads.max(1)).collect();
    }
    // Each node gets one thread first. The next thread goes to the node with the most ports per thread.
    let ports = |node: &Option<u32>| nodes.iter().filter(|it| *it == node).count();
    let mut shares: Vec<(Option<u32>, usize)> = distinct.iter().map(|node| (*node, 1)).collect();
    for _ in distinct.len()..threads {
        let busiest = shares.iter_mut().max_by_key(|(node, share)| ports(node) * 1000 / *share);
        busiest.expect("there are nodes").1 += 1;
    }
    let mut first = 0;
    let mut spans = Vec::new();
    for (node, share) in shares {
        spans.push((node, first, share));
        first += share;
    }
    let mut next = vec![0; spans.len()];
    nodes
        .iter()
        .map(|node| {
            let place =
                spans.iter().position(|(it, ..)| it == node).expect("every node has a span");
            let (_, first, share) = spans[place];
            next[place] += 1;
            first + (next[place] - 1) % share
        })
        .collect()
}

/// Returns the reason why no thread is pinned, if there are too few cores.
fn too_few(machine: &Machine, captures: usize, writers: usize) -> Option<String> {
    let needed = captures + writers.div_ceil(WRITERS_OF_A_CORE) + 1;
    let cores = machine.cores().len();
    let have = machine.quota.map_or(cores, |quota| quota.min(cores));
    if have >= needed {
        return None;
    }
    let of_which = match have < cores {
        true => format!("the cgroup quota (cpu.max) allows {have} of {cores} cores"),
        false if cores == 1 => "this machine has 1 whole core".to_owned(),
        false => format!("this machine has {cores} whole cores"),
    };
    Some(format!(
        "threads are not pinned to cores: {of_which}, and pinning needs {needed} ({captures} for capture, {} for \
         writers, 1 for interrupts and everything else)",
        writers.div_ceil(WRITERS_OF_A_CORE)
    ))
}

/// `--cpus`: a core for each capture thread, then one for each writer, in turn.
fn in_turn(machine: &Machine, cpus: &[usize], captures: usize, writers: usize) -> Placement {
    let mut of_writers = cpus.iter().skip(captures).cycle();
    let assignment = |cpu: Option<&usize>| match cpu {
        Some(&cpu) => machine.assignment(vec![cpu], "as asked".to_owned()),
        None => CpuAssignment::default(),
    };
    let assignments = (0..captures).map(|number| assignment(cpus.get(number))).collect();
    let writers = (0..writers).map(|_| assignment(of_writers.next())).collect();
    requested(machine, "cores as requested, in turn", assignments, writers)
}

/// `--place`: a core of the first list for each capture thread, in turn, and the whole second list for every writer.
fn given(
    machine: &Machine,
    (of_captures, of_writers): (&[usize], &[usize]),
    captures: usize,
    writers: usize,
) -> Placement {
    let mut cores = of_captures.iter().cycle();
    let assignment = |cpus: Vec<usize>| match cpus.is_empty() {
        true => CpuAssignment::default(),
        false => machine.assignment(cpus, "as asked".to_owned()),
    };
    let assignments =
        (0..captures).map(|_| assignment(cores.next().copied().into_iter().collect())).collect();
    let writers = (0..writers).map(|_| assignment(of_writers.to_vec())).collect();
    requested(machine, "cores as asked", assignments, writers)
}

fn requested(
    machine: &Machine,
    why: &str,
    captures: Vec<CpuAssignment>,
    writers: Vec<CpuAssignment>,
) -> Placement {
    let cores = machine.cores();
    let cores_of = |assignment: &CpuAssignment| -> BTreeSet<usize> {
        let cpus = assignment.cpus.iter().copied().collect();
        cores.iter().filter(|core| core.has_any(&cpus)).map(|core| core.cpus[0]).collect()
    };
    let mut taken = BTreeSet::new();
    let mut alone = true;
    for mine in captures.iter().map(cores_of) {
        alone &= mine.len() == 1 && taken.is_disjoint(&mine);
        taken.extend(mine);
    }
    let clear = writers
        .iter()
        .all(|assignment| !assignment.cpus.is_empty() && cores_of(assignment).is_disjoint(&taken));
    Placement {
        pinned: captures.iter().chain(&writers).any(|assignment| !assignment.cpus.is_empty()),
        apart: alone && clear && too_few(machine, captures.len(), writers.len()).is_none(),
        why: why.to_owned(),
        captures,
        writers,
    }
}

/// Allocates cores to threads.
struct CpuAllocator<'a> {
    machine: &'a Machine,
    free: Vec<Core>,
    /// Cores that take interrupts of any interface of the recording.
    interrupted: BTreeSet<usize>,
    /// True if every core takes interrupts, so that none can be avoided.
    everywhere: bool,
}

impl<'a> CpuAllocator<'a> {
    fn new(machine: &'a Machine, nics: &[NicTopology]) -> Self {
        let free = machine.cores();
        let interrupted: BTreeSet<usize> =
            nics.iter().flat_map(|nic| nic.interrupts.iter().copied()).collect();
        let everywhere = free.iter().all(|core| core.has_any(&interrupted));
        Self { machine, free, interrupted, everywhere }
    }

    fn deal(mut self, nics: &[NicTopology], disks: &[DiskTopology]) -> Placement {
        let captures: Vec<CpuAssignment> = nics.iter().map(|nic| self.capture(nic)).collect();
        // The scheduler does not move tasks to or from an isolated core, so a thread must be pinned to it.
        let apart = self.free.iter().all(|core| core.isolated);
        let writers = disks.iter().enumerate().map(|(number, disk)| match apart {
            true => self.alone(number),
            false => self.writer(disk),
        });
        let writers = writers.collect();
        let why = match self.everywhere && !self.interrupted.is_empty() {
            true => {
                "each capture thread has a core of its own, but every core takes interrupts of the cards: \
                     steer them to a few (see docs/howto/place-the-threads)"
            }
            false => "each capture thread has a core of its own, and writers share what is left",
        };
        Placement { pinned: true, apart: true, why: why.to_owned(), captures, writers }
    }

    /// Returns a core for a capture thread. No other thread gets it.
    fn capture(&mut self, nic: &NicTopology) -> CpuAssignment {
        let common = self.free.iter().filter(|core| !core.isolated).count();
        let caches: BTreeSet<u32> = self.machine.caches(&nic.interrupts);
        let far = |core: &Core| nic.node.is_some_and(|node| core.node != Some(node));
        let under = |core: &Core| caches.is_empty() || caches.contains(&core.cache);
        let clear = |core: &Core| !core.has_any(&self.interrupted);
        let best = (0..self.free.len())
            // The last core that the scheduler may use stays free for the unpinned threads.
            .filter(|&it| self.free[it].isolated || common > 1 || common == 0)
            .min_by_key(|&it| {
                let core = &self.free[it];
                let first = core.cpus.contains(&0);
                (far(core), !clear(core), !core.isolated, !under(core), first, core.cpus[0])
            })
            .expect("there are more cores than capture threads");
        let core = self.free.remove(best);
        let mut why = vec!["a core of its own".to_owned()];
        if core.isolated {
            why.push("isolated".to_owned());
        }
        let cards = if nic.cards.is_empty() { "its card".to_owned() } else { nic.cards.join(", ") };
        match (nic.node, core.node) {
            (Some(node), Some(other)) if node != other => {
                why.push(format!(
                    "on node {other}: node {node}, where {cards} is, has no free core"
                ));
            }
            (Some(node), _) if self.machine.nodes() > 1 => {
                why.push(format!("on node {node} as {cards}"));
            }
            _ => {}
        }
        if !nic.interrupts.is_empty() && !self.everywhere {
            why.push(match core.has_any(&self.interrupted) {
                true => "which also takes interrupts, because no other was free".to_owned(),
                false => format!(
                    "away from the interrupts of {cards} (on {})",
                    in_words(nic.interrupts.iter().copied())
                ),
            });
        }
        self.machine.assignment(vec![core.cpus[0]], why.join(", "))
    }

    /// Returns the remaining cores near a disk.
    fn writer(&self, disk: &DiskTopology) -> CpuAssignment {
        let common = || self.free.iter().filter(|core| !core.isolated);
        let near: Vec<&Core> =
            common().filter(|core| disk.node.is_none_or(|node| core.node == Some(node))).collect();
        let (near, far) = match near.is_empty() {
            true => (common().collect(), true),
            false => (near, false),
        };
        let clear: Vec<&Core> =
            near.iter().copied().filter(|core| !core.has_any(&self.interrupted)).collect();
        let (cores, away) = match clear.is_empty() || self.interrupted.is_empty() {
            true => (near, false),
            false => (clear, true),
        };
        let mut why = vec!["shared by writers".to_owned()];
        match disk.node {
            Some(node) if far => {
                why.push(format!("node {node}, where its disk is, has no free core"))
            }
            Some(node) if self.machine.nodes() > 1 => {
                why.push(format!("on node {node} as its disk"));
            }
            _ => {}
        }
        if away && !self.everywhere {
            why.push("away from interrupts".to_owned());
        }
        let mut cpus: Vec<usize> =
            cores.iter().flat_map(|core| core.cpus.iter().copied()).collect();
        cpus.sort_unstable();
        self.machine.assignment(cpus, why.join(", "))
    }

    /// Returns one of the remaining isolated cores, in turn.
    fn alone(&self, number: usize) -> CpuAssignment {
        let core = &self.free[number % self.free.len()];
        self.machine.assignment(vec![core.cpus[0]], "isolated, as all cores here are".to_owned())
    }
}
