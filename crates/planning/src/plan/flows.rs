//! Streams as flows over the tree of links.
//!
//! ```text
//! record        instrument or network ──► memory ──► disks
//! replay        disks ──► memory ──► instrument or network
//! send          memory ──► network       what is recorded is still in the ring
//! peer to peer  instrument ──► disks     past memory, through the switches between them
//! ```

use serde::Serialize;

use super::demand::Stream;
use super::instruments::Direction;
use super::machine::{Machine, NodeId, NodeKind};
use super::{Plan, machine::DiskSet};

/// A flow from one place to another; `None` is memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// What it is, for messages.
    pub name: String,
    /// Its source.
    pub from: Option<NodeId>,
    /// Its sink.
    pub to: Option<NodeId>,
    /// Bytes per second.
    pub rate: f64,
}

/// A flow on a link.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Share {
    /// What it is.
    pub flow: String,
    /// Bytes per second.
    pub rate: f64,
}

/// The flows of a link, in both directions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Load {
    /// Towards memory.
    pub up: Vec<Share>,
    /// Away from memory.
    pub down: Vec<Share>,
}

impl Load {
    /// The fuller direction: its name, its rate and its flows.
    pub fn fuller(&self) -> (&'static str, f64, &[Share]) {
        let sum = |shares: &[Share]| shares.iter().map(|share| share.rate).sum::<f64>();
        let (up, down) = (sum(&self.up), sum(&self.down));
        match up >= down {
            true => ("towards memory", up, &self.up),
            false => ("from memory", down, &self.down),
        }
    }
}

/// All flows of a plan.
#[derive(Clone, Debug, Default)]
pub struct Flows {
    /// Those whose two ends are known.
    pub flows: Vec<Flow>,
    /// Ends that are not known, in words.
    pub unplaced: Vec<String>,
}

/// The flows of a plan.
pub fn flows(plan: &Plan) -> Flows {
    let mut all = Flows::default();
    for stream in &plan.streams {
        ends(plan, stream, &mut all);
    }
    for direction in [Direction::In, Direction::Out] {
        for (set, rate) in plan.machine.sets.iter().zip(set_rates(plan, direction)) {
            storage(&plan.machine, set, rate, direction, &mut all);
        }
    }
    if let Some(send) = &plan.run.send {
        let count = plan.run.send_at.len() as f64;
        for node in &plan.run.send_at {
            let name = "sent elsewhere".to_owned();
            all.flows.push(Flow { name, from: None, to: Some(*node), rate: send.value / count });
        }
        if plan.run.send_at.is_empty() {
            all.unplaced.push("the place where recordings are sent from".to_owned());
        }
    }
    all
}

/// The flows between the instruments of a stream and memory, or disks.
fn ends(plan: &Plan, stream: &Stream, all: &mut Flows) {
    if stream.at.is_empty() {
        all.unplaced.push(format!("the place where {} enters", stream.name));
        return;
    }
    let places = stream.at.len();
    for (number, node) in stream.at.iter().enumerate() {
        let count =
            stream.count as usize / places + usize::from(number < stream.count as usize % places);
        if count == 0 {
            continue;
        }
        let rate = stream.rate.value * count as f64;
        let name = match count {
            1 => stream.name.clone(),
            count => format!("{count} × {}", stream.name),
        };
        let ends = match stream.peer {
            true => peers(plan, stream),
            false => vec![(None, 1.0)],
        };
        for (end, share) in ends {
            let (from, to) = match stream.direction {
                Direction::In => (Some(*node), end),
                Direction::Out => (end, Some(*node)),
            };
            all.flows.push(Flow { name: name.clone(), from, to, rate: rate * share });
        }
    }
}

/// The disks that a stream reaches without memory, with the share of each.
fn peers(plan: &Plan, stream: &Stream) -> Vec<(Option<NodeId>, f64)> {
    let sets: Vec<&DiskSet> = match stream.set {
        Some(set) => vec![&plan.machine.sets[set]],
        None => plan.machine.sets.iter().collect(),
    };
    let nodes: Vec<NodeId> = sets.iter().flat_map(|set| set.at.iter().copied()).collect();
    let share = 1.0 / nodes.len().max(1) as f64;
    nodes.into_iter().map(|node| (Some(node), share)).collect()
}

/// The flows between memory and the disks of a set, without those of peers.
fn storage(machine: &Machine, set: &DiskSet, rate: f64, direction: Direction, all: &mut Flows) {
    if rate <= 0.0 {
        return;
    }
    if set.at.is_empty() {
        all.unplaced.push(format!("the place of the disks `{}`", set.name));
        return;
    }
    // A controller makes copies and parity itself, so data cross its link once.
    let by_controller = set.at.iter().all(|node| machine.nodes[*node].kind == NodeKind::Controller);
    let amplified = match direction {
        Direction::In if !by_controller => set.amplification(),
        _ => 1.0,
    };
    let each = rate * amplified / set.at.len() as f64;
    for node in &set.at {
        let (name, from, to) = match direction {
            Direction::In => (format!("written to {}", set.name), None, Some(*node)),
            Direction::Out => (format!("read from {}", set.name), Some(*node), None),
        };
        all.flows.push(Flow { name, from, to, rate: each });
    }
}

/// The rate into or out of each set through memory. Streams without a set of their own are dealt over all sets, in
/// proportion to their rates, as the recorder does: the next free member takes the next chunk.
pub fn set_rates(plan: &Plan, direction: Direction) -> Vec<f64> {
    rates(plan, direction, false)
}

/// The same with the streams that go past memory.
pub fn set_rates_with_peers(plan: &Plan, direction: Direction) -> Vec<f64> {
    rates(plan, direction, true)
}

fn rates(plan: &Plan, direction: Direction, with_peers: bool) -> Vec<f64> {
    let sets = &plan.machine.sets;
    let writes: Option<Vec<f64>> = sets.iter().map(|set| Some(set.continuous()?.0.value)).collect();
    let weights = writes.unwrap_or_else(|| vec![1.0; sets.len()]);
    let whole: f64 = weights.iter().sum();
    let mut rates = vec![0.0; sets.len()];
    let streams = plan
        .streams
        .iter()
        .filter(|stream| stream.direction == direction && (with_peers || !stream.peer));
    for stream in streams {
        match stream.set {
            Some(set) => rates[set] += stream.total(),
            None if whole > 0.0 => {
                for (rate, weight) in rates.iter_mut().zip(&weights) {
                    *rate += stream.total() * weight / whole;
                }
            }
            None => {}
        }
    }
    rates
}

/// The load of the link of each node.
pub fn loads(machine: &Machine, flows: &[Flow]) -> Vec<Load> {
    let mut loads = vec![Load::default(); machine.nodes.len()];
    for flow in flows {
        let path = |end: Option<NodeId>| end.map_or_else(Vec::new, |node| machine.up(node));
        let (up, down) = (path(flow.from), path(flow.to));
        let share = || Share { flow: flow.name.clone(), rate: flow.rate };
        for node in up.iter().filter(|node| !down.contains(node)) {
            loads[*node].up.push(share());
        }
        for node in down.iter().filter(|node| !up.contains(node)) {
            loads[*node].down.push(share());
        }
    }
    loads
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::machine::Node;
    use super::*;

    /// A machine in which each node hangs below an earlier one, or memory.
    fn tree(parents: &[usize]) -> Machine {
        let node = |(number, parent): (usize, &usize)| Node {
            name: number.to_string(),
            parent: (*parent).checked_rem(number + 1).and_then(|it| it.checked_sub(1)),
            ..Node::default()
        };
        Machine { nodes: parents.iter().enumerate().map(node).collect(), ..Machine::default() }
    }

    #[test]
    fn a_flow_between_neighbours_does_not_reach_memory() {
        // Memory ─ 0 ─┬─ 1
        //             └─ 2
        let machine = tree(&[0, 1, 1]);
        let flow = Flow { name: "p2p".into(), from: Some(1), to: Some(2), rate: 5.0 };
        let loads = loads(&machine, &[flow]);
        assert_eq!(loads[0], Load::default());
        assert_eq!((loads[1].fuller().1, loads[1].up.len()), (5.0, 1));
        assert_eq!((loads[2].fuller().1, loads[2].down.len()), (5.0, 1));
    }

    proptest! {
        #[test]
        fn what_enters_a_bridge_leaves_it(
            parents in prop::collection::vec(0usize..50, 1..20),
            ends in prop::collection::vec((0usize..40, 0usize..40, 1u32..100), 0..20),
        ) {
            let machine = tree(&parents);
            let end = |number: usize| (number < machine.nodes.len()).then_some(number);
            let flows: Vec<Flow> = ends.iter().map(|(from, to, rate)| Flow {
                name: "f".into(), from: end(*from), to: end(*to), rate: f64::from(*rate),
            }).collect();
            let loads = loads(&machine, &flows);
            let sum = |shares: &[Share]| shares.iter().map(|share| share.rate).sum::<f64>();
            for (id, load) in loads.iter().enumerate() {
                // Balance of node `id`: all that comes in goes out.
                let below: Vec<&Load> = machine.nodes.iter().zip(&loads)
                    .filter(|(node, _)| node.parent == Some(id)).map(|(_, load)| load).collect();
                let made: f64 = flows.iter().filter(|it| it.from == Some(id)).map(|it| it.rate).sum();
                let taken: f64 = flows.iter().filter(|it| it.to == Some(id)).map(|it| it.rate).sum();
                let enters = sum(&load.down) + made + below.iter().map(|it| sum(&it.up)).sum::<f64>();
                let leaves = sum(&load.up) + taken + below.iter().map(|it| sum(&it.down)).sum::<f64>();
                prop_assert!((enters - leaves).abs() < 1e-6, "{id}: {enters} {leaves}");
            }
        }
    }
}
