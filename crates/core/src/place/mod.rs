//! Which thread runs where: from what a machine has and what is to run on it, to a plan with its reasons.
//!
//! ```text
//! machine   cores, their siblings, caches, nodes ─┐
//! inlets    node and interrupts of each card ─────┼──► a seat for each thread: cores, memory, why
//! outlets   node of each disk ────────────────────┘
//! ```
//!
//! A capture thread gets a core that nobody else of ours runs on, siblings included: on the node of its card,
//! under the cache that its interrupts fill, and not on a core that takes interrupts, where softirq would
//! run above it and starve it. Writers are cheap and wait for disks: they share what is left near their disk, and
//! the scheduler deals it out.
//!
//! Where there are fewer whole cores than threads that matter, no thread is pinned. A thread that has to stay on
//! a core waits whenever somebody else has it, while the next core may be idle: that has lost frames.

mod cpu_list;
mod machine;
#[cfg(test)]
mod tests;
mod urgency;
mod wish;

use std::collections::BTreeSet;

use serde::Serialize;

pub use cpu_list::{MOST_CPUS, in_words, parse};
pub use machine::{Core, Cpu, Machine};
pub use urgency::{BadUrgency, HIGHEST, Rank, Urgency};
pub use wish::{BadWish, Wish};

/// Writers that one core has time for: a disk of 2 GB/s costs a writer a fifth of one.
const WRITERS_OF_A_CORE: usize = 4;

/// What a capture thread receives from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inlet {
    /// The interfaces, for people; empty: not known, or the loopback.
    pub cards: Vec<String>,
    /// The node that they hang on, if that is known and one.
    pub node: Option<u32>,
    /// Cores that take their interrupts, or their packets by receive packet steering.
    pub interrupts: BTreeSet<usize>,
}

/// What a writer writes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outlet {
    /// The node that the disk hangs on, if that is known and one.
    pub node: Option<u32>,
}

/// Where all threads of a recording run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Placement {
    /// Whether any thread is pinned to cores.
    pub pinned: bool,
    /// Whether each capture thread has a core that no other thread of the recording runs on, and there are others.
    pub apart: bool,
    /// Why all of it is as it is.
    pub why: String,
    /// Capture threads, in their order.
    pub captures: Vec<Seat>,
    /// Writers, in the order of the members.
    pub writers: Vec<Seat>,
}

/// Where a thread runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Seat {
    /// Cores that it stays on; none: wherever the scheduler wants it.
    pub cpus: Vec<usize>,
    /// The node that its memory is on, if there are several and it is kept to one.
    pub node: Option<u32>,
    /// Why there.
    pub why: String,
}

impl Placement {
    /// Where threads run on this machine, by what is wished.
    pub fn plan(machine: &Machine, inlets: &[Inlet], outlets: &[Outlet], wish: &Wish) -> Self {
        match wish {
            Wish::Off => Self::nowhere(
                "as asked, threads are not pinned to cores",
                inlets.len(),
                outlets.len(),
            ),
            Wish::InTurn(cpus) => in_turn(machine, cpus, inlets.len(), outlets.len()),
            Wish::Given { captures, writers } => {
                given(machine, (captures, writers), inlets.len(), outlets.len())
            }
            Wish::Auto => match too_few(machine, inlets.len(), outlets.len()) {
                Some(why) => Self::nowhere(&why, inlets.len(), outlets.len()),
                None => Seats::new(machine, inlets).deal(inlets, outlets),
            },
        }
    }

    fn nowhere(why: &str, captures: usize, writers: usize) -> Self {
        Self {
            pinned: false,
            apart: false,
            why: why.to_owned(),
            captures: vec![Seat::default(); captures],
            writers: vec![Seat::default(); writers],
        }
    }
}

/// Which capture thread each port goes to: those of one node to the same threads, as far as there are threads
/// enough, and in turn among them.
pub fn group(nodes: &[Option<u32>], threads: usize) -> Vec<usize> {
    let distinct: BTreeSet<Option<u32>> = nodes.iter().copied().collect();
    if threads <= 1 || distinct.len() > threads || distinct.len() < 2 {
        return (0..nodes.len()).map(|port| port % threads.max(1)).collect();
    }
    // Each node has one thread at first, and the next is for whoever has the most ports for each of its threads.
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

/// Why no thread is pinned, where cores do not suffice.
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
    let seat = |cpu: Option<&usize>| match cpu {
        Some(&cpu) => machine.seat(vec![cpu], "as asked".to_owned()),
        None => Seat::default(),
    };
    let seats = (0..captures).map(|number| seat(cpus.get(number))).collect();
    let writers = (0..writers).map(|_| seat(of_writers.next())).collect();
    asked(machine, "cores as asked, in turn", seats, writers)
}

/// `--place`: a core of the first list for each capture thread, in turn, and all of the second for every writer.
fn given(
    machine: &Machine,
    (of_captures, of_writers): (&[usize], &[usize]),
    captures: usize,
    writers: usize,
) -> Placement {
    let mut cores = of_captures.iter().cycle();
    let seat = |cpus: Vec<usize>| match cpus.is_empty() {
        true => Seat::default(),
        false => machine.seat(cpus, "as asked".to_owned()),
    };
    let seats = (0..captures).map(|_| seat(cores.next().copied().into_iter().collect())).collect();
    let writers = (0..writers).map(|_| seat(of_writers.to_vec())).collect();
    asked(machine, "cores as asked", seats, writers)
}

fn asked(machine: &Machine, why: &str, captures: Vec<Seat>, writers: Vec<Seat>) -> Placement {
    let cores = machine.cores();
    let cores_of = |seat: &Seat| -> BTreeSet<usize> {
        let cpus = seat.cpus.iter().copied().collect();
        cores.iter().filter(|core| core.has_any(&cpus)).map(|core| core.cpus[0]).collect()
    };
    let mut taken = BTreeSet::new();
    let mut alone = true;
    for mine in captures.iter().map(cores_of) {
        alone &= mine.len() == 1 && taken.is_disjoint(&mine);
        taken.extend(mine);
    }
    let clear =
        writers.iter().all(|seat| !seat.cpus.is_empty() && cores_of(seat).is_disjoint(&taken));
    Placement {
        pinned: captures.iter().chain(&writers).any(|seat| !seat.cpus.is_empty()),
        apart: alone && clear && too_few(machine, captures.len(), writers.len()).is_none(),
        why: why.to_owned(),
        captures,
        writers,
    }
}

/// Cores while they are dealt out.
struct Seats<'a> {
    machine: &'a Machine,
    free: Vec<Core>,
    /// Cores that take interrupts of any card that is recorded from.
    interrupted: BTreeSet<usize>,
    /// Whether every core takes them, so that none can be kept clear of them.
    everywhere: bool,
}

impl<'a> Seats<'a> {
    fn new(machine: &'a Machine, inlets: &[Inlet]) -> Self {
        let free = machine.cores();
        let interrupted: BTreeSet<usize> =
            inlets.iter().flat_map(|inlet| inlet.interrupts.iter().copied()).collect();
        let everywhere = free.iter().all(|core| core.has_any(&interrupted));
        Self { machine, free, interrupted, everywhere }
    }

    fn deal(mut self, inlets: &[Inlet], outlets: &[Outlet]) -> Placement {
        let captures: Vec<Seat> = inlets.iter().map(|inlet| self.capture(inlet)).collect();
        // Nobody else's tasks are moved onto or off a core that is kept apart, so a thread has to be put on it.
        let apart = self.free.iter().all(|core| core.isolated);
        let writers = outlets.iter().enumerate().map(|(number, outlet)| match apart {
            true => self.alone(number),
            false => self.writer(outlet),
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

    /// A core for a capture thread, which nobody else gets.
    fn capture(&mut self, inlet: &Inlet) -> Seat {
        let common = self.free.iter().filter(|core| !core.isolated).count();
        let caches: BTreeSet<u32> = self.machine.caches(&inlet.interrupts);
        let far = |core: &Core| inlet.node.is_some_and(|node| core.node != Some(node));
        let under = |core: &Core| caches.is_empty() || caches.contains(&core.cache);
        let clear = |core: &Core| !core.has_any(&self.interrupted);
        let best = (0..self.free.len())
            // The last core that the scheduler may use is for all that is kept nowhere.
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
        let cards =
            if inlet.cards.is_empty() { "its card".to_owned() } else { inlet.cards.join(", ") };
        match (inlet.node, core.node) {
            (Some(node), Some(other)) if node != other => {
                why.push(format!("on node {other}: node {node}, where {cards} is, has no more"));
            }
            (Some(node), _) if self.machine.nodes() > 1 => {
                why.push(format!("on node {node} as {cards}"));
            }
            _ => {}
        }
        if !inlet.interrupts.is_empty() && !self.everywhere {
            why.push(match core.has_any(&self.interrupted) {
                true => "where interrupts come too, as no other was left".to_owned(),
                false => format!(
                    "away from the interrupts of {cards} (on {})",
                    in_words(inlet.interrupts.iter().copied())
                ),
            });
        }
        self.machine.seat(vec![core.cpus[0]], why.join(", "))
    }

    /// What is left near a disk.
    fn writer(&self, outlet: &Outlet) -> Seat {
        let common = || self.free.iter().filter(|core| !core.isolated);
        let near: Vec<&Core> = common()
            .filter(|core| outlet.node.is_none_or(|node| core.node == Some(node)))
            .collect();
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
        match outlet.node {
            Some(node) if far => why.push(format!("node {node}, where its disk is, has no more")),
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
        self.machine.seat(cpus, why.join(", "))
    }

    /// One of the isolated cores that are left, in turn.
    fn alone(&self, number: usize) -> Seat {
        let core = &self.free[number % self.free.len()];
        self.machine.seat(vec![core.cpus[0]], "isolated, as all cores here are".to_owned())
    }
}
