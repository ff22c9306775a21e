//! What of a machine matters for where threads run.

use std::collections::{BTreeMap, BTreeSet};

use super::Seat;

/// A logical processor that this process may run on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// Its number.
    pub number: usize,
    /// The core that it is a thread of: the lowest number among those that share it.
    pub core: u32,
    /// The last-level cache that it is under: the lowest number among those that share it.
    pub cache: u32,
    /// Its memory node, if the machine says so.
    pub node: Option<u32>,
    /// Whether the kernel's scheduler keeps others away from it (`isolcpus`).
    pub isolated: bool,
}

/// A machine, as far as this process may use it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// The processors that affinity and cpuset allow, by number.
    pub cpus: Vec<Cpu>,
    /// How many cores' worth of time a cgroup leaves, if it sets a quota.
    pub quota: Option<usize>,
}

/// A whole core: its hardware threads share what it can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Core {
    /// Its processors, the lowest first.
    pub cpus: Vec<usize>,
    /// The cache that it is under.
    pub cache: u32,
    /// Its memory node.
    pub node: Option<u32>,
    /// Whether others are kept away from it.
    pub isolated: bool,
}

impl Core {
    /// Whether any of its processors is among these.
    pub fn has_any(&self, cpus: &BTreeSet<usize>) -> bool {
        self.cpus.iter().any(|cpu| cpus.contains(cpu))
    }
}

impl Machine {
    /// Whole cores, by the lowest of their processors.
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
            // One that is half isolated is not kept apart.
            core.isolated &= cpu.isolated;
        }
        let mut cores: Vec<Core> = cores.into_values().collect();
        cores.iter_mut().for_each(|core| core.cpus.sort_unstable());
        cores.sort_by_key(|core| core.cpus[0]);
        cores
    }

    /// How many memory nodes its processors are on, as far as is known.
    pub fn nodes(&self) -> usize {
        self.cpus.iter().filter_map(|cpu| cpu.node).collect::<BTreeSet<u32>>().len()
    }

    /// The caches over these processors.
    pub(super) fn caches(&self, cpus: &BTreeSet<usize>) -> BTreeSet<u32> {
        self.cpus.iter().filter(|cpu| cpus.contains(&cpu.number)).map(|cpu| cpu.cache).collect()
    }

    /// A seat on these processors; its memory is on their node where there is a choice.
    pub(super) fn seat(&self, cpus: Vec<usize>, why: String) -> Seat {
        let on = self.cpus.iter().filter(|cpu| cpus.contains(&cpu.number));
        let nodes: BTreeSet<Option<u32>> = on.map(|cpu| cpu.node).collect();
        let node = match nodes.len() {
            1 if self.nodes() > 1 => nodes.first().copied().flatten(),
            _ => None,
        };
        Seat { cpus, node, why }
    }
}
