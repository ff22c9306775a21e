//! R2 to R6: devices that stream below one switch.

use std::collections::BTreeMap;

use super::{Finding, Severity, Side, State};
use crate::plan::Plan;
use crate::plan::figure::{Figure, Origin, Unit};
use crate::plan::flows;
use crate::plan::instruments::Direction;
use crate::plan::machine::{Machine, NodeId, NodeKind};

/// A device that streams.
#[derive(Clone, Debug, Default)]
struct Streamer {
    name: String,
    nodes: Vec<NodeId>,
    is_storage: bool,
    is_input: bool,
    is_output: bool,
    rate: f64,
    fifo: Option<f64>,
}

/// Applies R2 to R6.
pub fn check(plan: &Plan) -> Vec<Finding> {
    let streamers = streamers(plan);
    let whole: f64 = plan.streams.iter().map(|stream| stream.total()).sum();
    let small = whole < plan.settings.small_flows;
    let severity = if small { Severity::Info } else { Severity::Warning };
    let mut findings = Vec::new();
    for (node, here) in shared(&plan.machine, &streamers) {
        let name = &plan.machine.nodes[node].name;
        let shared = Shared { plan, name, here: &here, severity };
        findings.extend(shared.own_link());
        findings.extend(shared.storage_alone());
        findings.extend(shared.mixed());
        findings.extend(here.iter().filter(|it| !it.is_storage).filter_map(|it| shared.buffer(it)));
    }
    if plan.machine.nodes.is_empty() {
        let new = |id, rule| Finding::new(id, rule, severity, "switches".into());
        for (id, rule) in [("R2", "own link"), ("R3", "storage alone")] {
            let because = "the places of cards and disks are not known";
            findings
                .push(new(id, rule).not_known(because, "describe the machine, or read its sysfs"));
        }
    }
    findings.push(small_flows(plan, whole, small));
    findings
}

fn small_flows(plan: &Plan, whole: f64, small: bool) -> Finding {
    let side =
        |value, origin, source: &str| Side::new(Figure::new(value, Unit::Rate, origin, source));
    let mut finding = Finding::new("R6", "small flows", Severity::Info, "all streams".into());
    finding.need = Some(side(whole, Origin::Given, "the streams"));
    finding.have = Some(side(plan.settings.small_flows, Origin::Table, "a threshold of 2009"));
    finding.because(match small {
        true => "below this sum, devices disturb each other little: R2 to R5 are for information",
        false => "above this sum, R2 to R5 are warnings",
    })
}

/// The devices that stream, with their directions and rates.
fn streamers(plan: &Plan) -> Vec<Streamer> {
    let machine = &plan.machine;
    let mut by_device: BTreeMap<String, Streamer> = BTreeMap::new();
    for stream in &plan.streams {
        for place in &stream.at {
            let device = device(machine, *place);
            // Functions of one card are one device.
            let name = machine.nodes[device].name.split('.').next().unwrap_or_default().to_owned();
            let entry = by_device.entry(name.clone()).or_default();
            entry.name = name;
            entry.nodes.push(device);
            entry.is_input |= stream.direction == Direction::In;
            entry.is_output |= stream.direction == Direction::Out;
            entry.rate += stream.total() / stream.at.len() as f64;
            let fifo = machine.nodes[*place].fifo.or(stream.fifo);
            entry.fifo = fifo.map(|fifo| fifo.0 as f64).or(entry.fifo);
        }
    }
    let written = flows::set_rates_with_peers(plan, Direction::In);
    let read = flows::set_rates_with_peers(plan, Direction::Out);
    let sets =
        machine.sets.iter().zip(written.iter().zip(&read)).map(|(set, (write, read))| Streamer {
            name: format!("the disks `{}`", set.name),
            nodes: set.at.clone(),
            is_storage: true,
            rate: write + read,
            ..Streamer::default()
        });
    by_device.into_values().chain(sets.filter(|set| set.rate > 0.0)).collect()
}

/// The card of a network or an instrument behind it.
fn device(machine: &Machine, place: NodeId) -> NodeId {
    let path = machine.up(place);
    let is_card = |node: &&NodeId| machine.nodes[**node].kind == NodeKind::Nic;
    path.iter().find(is_card).copied().unwrap_or(place)
}

/// The lowest switches with more than one device below them, each with these devices.
fn shared(machine: &Machine, streamers: &[Streamer]) -> Vec<(NodeId, Vec<Streamer>)> {
    let mut found: Vec<(NodeId, Vec<Streamer>)> = Vec::new();
    for (id, node) in machine.nodes.iter().enumerate() {
        if !matches!(node.kind, NodeKind::Switch | NodeKind::RootPort) {
            continue;
        }
        let below = |it: &&Streamer| it.nodes.iter().any(|node| machine.up(*node).contains(&id));
        let here: Vec<Streamer> = streamers.iter().filter(below).cloned().collect();
        if here.len() > 1 {
            found.push((id, here));
        }
    }
    // A switch above another one with the same devices adds nothing.
    let names = |here: &[Streamer]| here.iter().map(|it| it.name.clone()).collect::<Vec<_>>();
    let all = found.clone();
    found.retain(|(id, here)| {
        let lower = |(other, there): &(NodeId, Vec<Streamer>)| {
            other != id && machine.up(*other).contains(id) && names(there) == names(here)
        };
        !all.iter().any(lower)
    });
    found
}

struct Shared<'a> {
    plan: &'a Plan,
    name: &'a str,
    here: &'a [Streamer],
    severity: Severity,
}

impl Shared<'_> {
    fn finding(&self, id: &'static str, rule: &'static str, flows: Vec<String>) -> Finding {
        let subject = format!("below {}", self.name);
        let mut finding = Finding::new(id, rule, self.severity, subject).flows(flows);
        finding.state = State::Broken;
        finding
    }

    fn names<'b>(&self, of: impl Iterator<Item = &'b Streamer>) -> Vec<String> {
        of.map(|it| it.name.clone()).collect()
    }

    fn own_link(&self) -> Option<Finding> {
        let devices: Vec<&Streamer> = self.here.iter().filter(|it| !it.is_storage).collect();
        let names = self.names(devices.iter().copied());
        (devices.len() > 1).then(|| {
            let count = |value: usize, source| {
                Side::new(Figure::new(value as f64, Unit::Count, Origin::Given, source))
            };
            let mut finding = self.finding("R2", "own link", names.clone());
            finding.need = Some(count(devices.len(), "devices that stream"));
            finding.have = Some(count(1, "links"));
            finding
                .because(format!("{} share one link to memory", names.join(", ")))
                .advise("give each its own link or switch, if there is one")
        })
    }

    fn storage_alone(&self) -> Option<Finding> {
        let storage = self.here.iter().find(|it| it.is_storage)?;
        let others = self.names(self.here.iter().filter(|it| it.name != storage.name));
        let because =
            format!("{} share a controller link with {}", storage.name, others.join(", "));
        let finding = self.finding("R3", "storage alone", others).because(because);
        Some(finding.advise("put the disks on a link of their own: nothing else streams there"))
    }

    fn mixed(&self) -> Option<Finding> {
        let devices = || self.here.iter().filter(|it| !it.is_storage);
        let inputs = self.names(devices().filter(|it| it.is_input));
        let outputs = self.names(devices().filter(|it| it.is_output));
        (!inputs.is_empty() && !outputs.is_empty()).then(|| {
            let because = format!(
                "{} is an input and {} an output: an output reads over PCI Express, and its reads wait behind writes",
                inputs.join(", "),
                outputs.join(", ")
            );
            let both = inputs.into_iter().chain(outputs).collect();
            let finding = self.finding("R4", "mixed directions", both).because(because);
            finding.advise("group devices of one direction below a switch")
        })
    }

    /// R5 for a device below a shared switch.
    fn buffer(&self, streamer: &Streamer) -> Option<Finding> {
        let subject = format!("{} below {}", streamer.name, self.name);
        let finding = Finding::new("R5", "small buffers", self.severity, subject);
        let Some(fifo) = streamer.fifo else {
            let because = "its onboard memory is not known";
            return Some(finding.not_known(because, "give `fifo` of its node in the description"));
        };
        let bridges =
            Figure::new(fifo / streamer.rate, Unit::Seconds, Origin::Given, "the description");
        let sum = format!("{} ÷ {}", Unit::Bytes.text(fifo), Unit::Rate.text(streamer.rate));
        let wanted = self.plan.settings.small_buffer_s;
        let need =
            Figure::new(wanted, Unit::Seconds, Origin::Assumed, "the threshold small-buffer");
        let finding = finding.compare(Side::new(need), Side::sum(bridges, sum), 0.0);
        Some(finding.advise("put devices with little memory on a switch of their own"))
    }
}
