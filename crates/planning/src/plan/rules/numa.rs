//! R8: cards and disks of a recording on one memory node.

use std::collections::BTreeMap;

use super::{Finding, Severity, Side, State};
use crate::plan::Plan;
use crate::plan::figure::{Figure, Origin, Unit};
use crate::plan::flows::Flows;

/// Applies R8 to all ends of flows.
pub fn check(plan: &Plan, flows: &Flows) -> Finding {
    let finding = Finding::new("R8", "NUMA", Severity::Warning, "cards and disks".into());
    if plan.machine.numa_nodes == Some(1) {
        return finding.because("the machine has one memory node");
    }
    let ends = flows.flows.iter().flat_map(|flow| [flow.from, flow.to]).flatten();
    let mut by_node: BTreeMap<Option<u32>, Vec<String>> = BTreeMap::new();
    for end in ends {
        // A device without a node of its own is on that of the device above it.
        let numa = plan.machine.up(end).into_iter().find_map(|node| plan.machine.nodes[node].numa);
        let names = by_node.entry(numa).or_default();
        let name = &plan.machine.nodes[end].name;
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    let unknown = by_node.remove(&None);
    let text = |(node, names): (&Option<u32>, &Vec<String>)| {
        format!("{} on node {}", names.join(", "), node.unwrap_or_default())
    };
    let told: Vec<String> = by_node.iter().map(text).collect();
    if by_node.len() > 1 {
        let count = |value: usize| {
            Side::new(Figure::new(value as f64, Unit::Count, Origin::Read, "memory nodes"))
        };
        let mut finding = finding.because(told.join("; "));
        finding.state = State::Broken;
        finding.need = Some(count(by_node.len()));
        finding.have = Some(count(1));
        return finding.advise(
            "use cards and disks of one node; `record` places threads and memory at their cards",
        );
    }
    match unknown {
        Some(names) => finding.not_known(
            format!("the memory node of {} is not known", names.join(", ")),
            "give `numa` of the nodes in the description",
        ),
        None if by_node.is_empty() => {
            let because = "the places of cards and disks are not known";
            finding.not_known(because, "add @PLACE to the streams, and name disks with --store")
        }
        None => finding.because(told.join("; ")),
    }
}
