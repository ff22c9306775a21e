//! The answer to a plan: its verdict, the rules, the fullest link, memory, time and life of the disks, and what one more
//! stream, disk or card would change.

use fullbore_core::memory_budget::MemoryBudget;
use serde::Serialize;

use super::Plan;
use super::demand::Stream;
use super::figure::Figure;
use super::flows::{Flows, Load, Share, flows, loads};
use super::instruments::Direction;
use super::machine::{DiskSet, NodeId, NodeKind, Uplink};
use super::rules::{self, Finding, Narrowest, Severity, State, Volume};

/// The version of the document.
pub const VERSION: u32 = 1;

/// The most variants of each kind: one more stream, one more disk, one more card.
const MOST_VARIANTS: usize = 4;

/// The verdict, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Every rule that refuses holds, and no rule warns.
    Fits,
    /// Every rule that refuses holds, but at least one warns.
    FitsWithWarnings,
    /// No rule refuses, but one that could is not known.
    NotKnown,
    /// At least one rule refuses.
    DoesNotFit,
}

impl Verdict {
    /// The verdict in words.
    pub fn text(self) -> &'static str {
        match self {
            Self::Fits => "fits",
            Self::FitsWithWarnings => "fits, with warnings",
            Self::NotKnown => "not known",
            Self::DoesNotFit => "does not fit",
        }
    }
}

/// A stream of the answer.
#[derive(Clone, Debug, Serialize)]
pub struct StreamTold {
    /// Its name.
    pub name: String,
    /// The number.
    pub count: u32,
    /// The rate of each.
    pub rate: Figure,
    /// The direction.
    pub direction: Direction,
    /// The nodes where they enter or leave.
    pub at: Vec<String>,
}

/// A node and its link, with the load.
#[derive(Clone, Debug, Serialize)]
pub struct NodeTold {
    /// Its name.
    pub name: String,
    /// The kind.
    pub kind: NodeKind,
    /// The node above it; absent: memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The link; absent if it is not known, or has no limit of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// Usable bytes per second in one direction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usable: Option<f64>,
    /// True if the link has no limit of its own: a port.
    pub internal: bool,
    /// Flows towards memory.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub up: Vec<Share>,
    /// Flows from memory.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub down: Vec<Share>,
    /// The fuller direction as a share of the usable rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fill: Option<f64>,
}

/// The same plan with one thing more.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Variant {
    /// The addition.
    pub what: String,
    /// The verdict then.
    pub verdict: Verdict,
    /// The rules that then refuse, or that no longer do.
    pub because: String,
    /// Seconds until the first disks are full.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full_after_s: Option<f64>,
}

/// The answer.
#[derive(Clone, Debug, Serialize)]
pub struct Answer {
    /// [`VERSION`].
    pub fullbore_plan: u32,
    /// The machine.
    pub machine: String,
    /// A sentence about the plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// The verdict.
    pub verdict: Verdict,
    /// The streams.
    pub streams: Vec<StreamTold>,
    /// Bytes per second of all streams.
    pub rate: f64,
    /// The share of the time in which data arrive.
    pub recording_share: f64,
    /// All rules.
    pub findings: Vec<Finding>,
    /// The fullest link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub narrowest: Option<Narrowest>,
    /// Block memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryBudget>,
    /// Time until the disks are full, and their life.
    pub volumes: Vec<Volume>,
    /// One thing more.
    pub one_more: Vec<Variant>,
    /// The nodes that flows pass.
    pub nodes: Vec<NodeTold>,
}

/// Answers a plan.
pub fn answer(plan: &Plan) -> Answer {
    let judged = judge(plan);
    let told = |stream: &Stream| StreamTold {
        name: stream.name.clone(),
        count: stream.count,
        rate: stream.rate.clone(),
        direction: stream.direction,
        at: stream.at.iter().map(|node| plan.machine.nodes[*node].name.clone()).collect(),
    };
    Answer {
        fullbore_plan: VERSION,
        machine: plan.machine.name.clone(),
        about: plan.about.clone(),
        verdict: verdict(&judged.findings),
        streams: plan.streams.iter().map(told).collect(),
        rate: plan.streams.iter().map(Stream::total).sum(),
        recording_share: plan.run.share(),
        narrowest: rules::narrowest(plan, &judged.loads),
        memory: rules::budget(plan),
        volumes: rules::volumes(plan),
        one_more: variants(plan, &judged.findings),
        nodes: nodes(plan, &judged),
        findings: judged.findings,
    }
}

struct Judged {
    flows: Flows,
    loads: Vec<Load>,
    findings: Vec<Finding>,
}

fn judge(plan: &Plan) -> Judged {
    let flows = flows(plan);
    let loads = loads(&plan.machine, &flows.flows);
    let findings = rules::check(plan, &flows, &loads);
    Judged { findings, loads, flows }
}

fn verdict(findings: &[Finding]) -> Verdict {
    let is_open = |it: &Finding| it.severity == Severity::Error && it.state == State::NotKnown;
    if findings.iter().any(Finding::refuses) {
        Verdict::DoesNotFit
    } else if findings.iter().any(is_open) {
        Verdict::NotKnown
    } else if findings.iter().any(Finding::warns) {
        Verdict::FitsWithWarnings
    } else {
        Verdict::Fits
    }
}

/// The nodes on the paths of flows.
fn nodes(plan: &Plan, judged: &Judged) -> Vec<NodeTold> {
    let machine = &plan.machine;
    let mut used = vec![false; machine.nodes.len()];
    for flow in &judged.flows.flows {
        for end in [flow.from, flow.to].into_iter().flatten() {
            machine.up(end).into_iter().for_each(|node| used[node] = true);
        }
    }
    let told = |id: NodeId| {
        let (node, load) = (&machine.nodes[id], &judged.loads[id]);
        let link = match &node.link {
            Uplink::Known { link, .. } => Some(link),
            Uplink::Internal | Uplink::Unknown => None,
        };
        NodeTold {
            name: node.name.clone(),
            kind: node.kind,
            parent: node.parent.map(|parent| machine.nodes[parent].name.clone()),
            link: link.map(ToString::to_string),
            usable: link.map(super::link::Link::usable),
            internal: matches!(node.link, Uplink::Internal),
            up: load.up.clone(),
            down: load.down.clone(),
            fill: link.map(|link| load.fuller().1 / link.usable()),
        }
    };
    (0..machine.nodes.len()).filter(|id| used[*id]).map(told).collect()
}

/// The plan with one stream, one disk or one card more.
fn variants(plan: &Plan, now: &[Finding]) -> Vec<Variant> {
    let mut variants = Vec::new();
    for (number, stream) in plan.streams.iter().enumerate().take(MOST_VARIANTS) {
        let mut more = plan.clone();
        more.streams[number].count += 1;
        variants.push(variant(format!("one more stream `{}`", stream.name), &more, now));
    }
    let mut seen: Vec<&DiskSet> = Vec::new();
    for (number, set) in plan.machine.sets.iter().enumerate() {
        // A disk more in one of several equal sets changes the same in each.
        if seen.len() >= MOST_VARIANTS || seen.iter().any(|other| set.is_like(other)) {
            continue;
        }
        seen.push(set);
        let mut more = plan.clone();
        more.machine.sets[number] = set.with_one_more();
        variants.push(variant(format!("one more disk in `{}`", set.name), &more, now));
    }
    let with_card = |stream: &&Stream| {
        let is_card = |node: &NodeId| plan.machine.nodes[*node].kind == NodeKind::Nic;
        stream.at.first().is_some_and(|at| plan.machine.up(*at).iter().any(is_card))
    };
    if let Some(number) = plan.streams.iter().position(|stream| with_card(&stream)) {
        let mut more = plan.clone();
        let card = more.machine.add_card_like(plan.streams[number].at[0]);
        more.streams[number].at.push(card);
        let name = &plan.streams[number].name;
        variants.push(variant(format!("one more network card for `{name}`"), &more, now));
    }
    variants
}

fn variant(what: String, plan: &Plan, now: &[Finding]) -> Variant {
    let judged = judge(plan);
    let refusing = |all: &[Finding]| -> Vec<String> {
        all.iter()
            .filter(|it| it.refuses())
            .map(|it| format!("{} {} ({})", it.id, it.rule, it.subject))
            .collect()
    };
    let (before, after) = (refusing(now), refusing(&judged.findings));
    let new: Vec<&String> = after.iter().filter(|it| !before.contains(it)).collect();
    let gone: Vec<&String> = before.iter().filter(|it| !after.contains(it)).collect();
    let list = |all: &[&String]| all.iter().map(|it| it.as_str()).collect::<Vec<_>>().join(", ");
    let because = match (new.is_empty(), gone.is_empty()) {
        (true, true) => "no rule refuses more or less than now".to_owned(),
        (false, true) => format!("{} then refuse", list(&new)),
        (true, false) => format!("{} no longer refuse", list(&gone)),
        (false, false) => format!("{} then refuse, {} no longer", list(&new), list(&gone)),
    };
    let full = rules::volumes(plan).into_iter().filter_map(|volume| volume.full_after_s);
    let full_after_s = full.reduce(f64::min);
    Variant { what, verdict: verdict(&judged.findings), because, full_after_s }
}
