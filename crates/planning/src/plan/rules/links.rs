//! R1: the flows of each link within its usable rate. R7: links that run below what both ends can do.

use serde::Serialize;

use super::{Finding, Severity, Side, State};
use crate::plan::Plan;
use crate::plan::figure::{Figure, Origin, Unit};
use crate::plan::flows::{Flows, Load, Share};
use crate::plan::link::Link;
use crate::plan::machine::{Node, Uplink};

/// The most names in a list of links.
const MOST_NAMED: usize = 6;

/// R1 for each link with a flow, and for the places that are not known.
pub fn budget(plan: &Plan, flows: &Flows, loads: &[Load]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut unknown = Vec::new();
    for (node, load) in plan.machine.nodes.iter().zip(loads) {
        let (direction, rate, shares) = load.fuller();
        if rate <= 0.0 {
            continue;
        }
        match &node.link {
            Uplink::Internal => {}
            Uplink::Unknown => unknown.push(node.name.clone()),
            Uplink::Known { link, origin, .. } => {
                findings.push(of_link(plan, node, link, *origin, direction, rate, shares));
            }
        }
    }
    let new = |subject: String| Finding::new("R1", "link budget", Severity::Error, subject);
    if !unknown.is_empty() {
        let more = unknown.len().saturating_sub(MOST_NAMED);
        unknown.truncate(MOST_NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let because = format!("the rate of the links of {}{more} is not known", unknown.join(", "));
        let advice = "describe the machine in TOML, or give its topology (--hwloc)";
        findings.push(new("links without a rate".into()).not_known(because, advice));
    }
    if !flows.unplaced.is_empty() {
        let because = format!("not known: {}", flows.unplaced.join(", "));
        let advice =
            "add @PLACE to a stream, as --stream 8x2Gbit/s@ens1, and name disks with --store";
        findings.push(new("flows without a place".into()).not_known(because, advice));
    }
    findings
}

fn of_link(
    plan: &Plan,
    node: &Node,
    link: &Link,
    origin: Origin,
    direction: &str,
    rate: f64,
    shares: &[Share],
) -> Finding {
    let subject = format!("the link of {}, {direction}", node.name);
    let need = Figure::new(rate, Unit::Rate, Origin::Given, "the streams");
    let sum = shares.iter().map(|share| format!("{} {}", Unit::Rate.text(share.rate), share.flow));
    let sum: Vec<String> = sum.collect();
    let headroom = plan.settings.headroom;
    let usable = Figure::new(link.usable() * (1.0 - headroom), Unit::Rate, origin, "the link");
    let have = format!("{}, less {:.0} % headroom", link.sum(), headroom * 100.0);
    let finding = Finding::new("R1", "link budget", Severity::Error, subject)
        .flows(shares.iter().map(|share| share.flow.clone()))
        .compare(Side::sum(need, sum.join(" + ")), Side::sum(usable, have), 0.0);
    match (finding.state, origin) {
        (State::Holds, Origin::Assumed) => finding.not_known(
            "the device is on a root bus, where link values may mean nothing",
            "compare with the data sheet of the board, and describe the link",
        ),
        (_, _) => finding.advise(match shares.len() {
            1 => "use a wider or faster link, or fewer streams on it",
            _ => "move some of these flows to another link or switch",
        }),
    }
}

/// The fullest link.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Narrowest {
    /// The node that it belongs to.
    pub node: String,
    /// The link.
    pub link: String,
    /// `towards memory` or `from memory`.
    pub direction: &'static str,
    /// Bytes per second of all flows.
    pub rate: f64,
    /// Usable bytes per second.
    pub usable: f64,
    /// The ratio of both.
    pub fill: f64,
    /// The flows.
    pub flows: Vec<Share>,
}

/// The fullest link whose rate is known.
pub fn narrowest(plan: &Plan, loads: &[Load]) -> Option<Narrowest> {
    let all = plan.machine.nodes.iter().zip(loads).filter_map(|(node, load)| {
        let Uplink::Known { link, .. } = &node.link else { return None };
        let (direction, rate, shares) = load.fuller();
        (rate > 0.0).then(|| Narrowest {
            node: node.name.clone(),
            link: link.to_string(),
            direction,
            rate,
            usable: link.usable(),
            fill: rate / link.usable(),
            flows: shares.to_vec(),
        })
    });
    all.max_by(|one, other| one.fill.total_cmp(&other.fill))
}

/// R7 for each link with a flow.
pub fn trained(plan: &Plan, loads: &[Load]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut unknown = Vec::new();
    for (node, load) in plan.machine.nodes.iter().zip(loads) {
        let Uplink::Known { link: link @ Link::Pcie { .. }, most, origin } = &node.link else {
            continue;
        };
        if load.fuller().1 <= 0.0 {
            continue;
        }
        let subject = format!("the link of {}", node.name);
        let new = |subject| Finding::new("R7", "link trained low", Severity::Warning, subject);
        let Some(most) = most else {
            unknown.push(node.name.clone());
            continue;
        };
        let side = |link: &Link, source: &str| {
            Side::sum(Figure::new(link.raw(), Unit::Rate, *origin, source), link.to_string())
        };
        let need = side(most, "the slower of both ends");
        let finding = new(subject).compare(need, side(link, "the link now"), 0.0);
        findings.push(finding.advise(
            "look again under load (an idle link may save power), then reseat the card, or use another slot",
        ));
    }
    if !unknown.is_empty() {
        unknown.truncate(MOST_NAMED);
        let because =
            format!("what both ends of the links of {} can do is not known", unknown.join(", "));
        let new = Finding::new("R7", "link trained low", Severity::Warning, "links".into());
        findings.push(new.not_known(because, "`lspci -vv` as root shows LnkCap and LnkSta"));
    }
    findings
}
