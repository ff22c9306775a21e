//! The properties of a machine that matter for the placement of threads.

use std::collections::{BTreeMap, BTreeSet};

use super::CpuAssignment;

/// A logical processor that this process may run on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// The number of the processor.
    pub number: usize,
    /// The core of this hardware thread: the lowest number among the processors that share it.
    pub core: u32,
    /// The last-level cache: the lowest number among the processors that share it.
    pub cache: u32,
    /// The memory node, if the machine reports it.
    pub node: Option<u32>,
    /// True if the kernel's scheduler keeps other tasks off it (`isolcpus`).
    pub isolated: bool,
}

/// The part of a machine that this process may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// The processors that affinity and cpuset allow, by number.
    pub cpus: Vec<Cpu>,
    /// The CPU quota of the cgroup in cores, if there is one.
    pub quota: Option<usize>,
}

/// A whole core: its hardware threads share its execution units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Core {
    /// Its processors, in ascending order.
    pub cpus: Vec<usize>,
    /// Its last-level cache.
    pub cache: u32,
    /// Its memory node.
    pub node: Option<u32>,
    /// True if the scheduler keeps other tasks off it.
    pub isolated: bool,
}

impl Core {
    /// True if any of its processors is in `cpus`.
    pub fn has_any(&self, cpus: &BTreeSet<usize>) -> bool {
        self.cpus.iter().any(|cpu| cpus.contains(cpu))
    }
}

impl Machine {
    /// Returns the whole cores, ordered by their lowest processor.
    pub fn cores(&self) -> Vec<Core> {
        let mut cores: BTreeMap<u32, Core> = BTreeMap::new();
        for cpu in &self.cpus {
            let core = cores.entry(cpu.core).or_insert_with(|| Core {
                cpus: Vec::new(),
                cache: cpu.cache,
                node: cpu.node,
                isolated: cpu.isolated,
            });
            core.cpus.push(cpu.number);
            // A core with only some isolated processors is not isolated.
            core.isolated &= cpu.isolated;
        }
        let mut cores: Vec<Core> = cores.into_values().collect();
        cores.iter_mut().for_each(|core| core.cpus.sort_unstable());
        cores.sort_by_key(|core| core.cpus[0]);
        cores
    }

    /// Returns the number of memory nodes of its processors, as far as known.
    pub fn nodes(&self) -> usize {
        self.cpus.iter().filter_map(|cpu| cpu.node).collect::<BTreeSet<u32>>().len()
    }

    /// Returns the caches of these processors.
    pub(super) fn caches(&self, cpus: &BTreeSet<usize>) -> BTreeSet<u32> {
        self.cpus.iter().filter(|cpu| cpus.contains(&cpu.number)).map(|cpu| cpu.cache).collect()
    }

    /// Returns an assignment to these processors. Its memory is on their node if there are several nodes.
    pub(super) fn assignment(&self, cpus: Vec<usize>, why: String) -> CpuAssignment {
        let on = self.cpus.iter().filter(|cpu| cpus.contains(&cpu.number));
        let nodes: BTreeSet<Option<u32>> = on.map(|cpu| cpu.node).collect();
        let node = match nodes.len() {
            1 if self.nodes() > 1 => nodes.first().copied().flatten(),
            _ => None,
        };
        CpuAssignment { cpus, node, why }
    }
}
