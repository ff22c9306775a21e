//! The rules R1 to R13: each compares what a recording needs with what a part of the machine has.
//!
//! | rule | severity | compares |
//! |---|---|---|
//! | R1 link budget | error | the flows of each link, per direction, with its usable rate |
//! | R2 own link | warning | streaming devices below one switch, with one |
//! | R3 storage alone | warning | devices below the switch of disks, with none |
//! | R4 mixed directions | warning | inputs and outputs below one switch |
//! | R5 small buffers | warning | the time that the memory of an instrument bridges, if it shares a switch |
//! | R6 small flows | none | all flows with a threshold, below which R2 to R5 are information only |
//! | R7 link trained low | warning | a link with what both ends can do |
//! | R8 NUMA | warning | memory nodes of cards and disks, with one |
//! | R9 sustained storage | error | the rate of streams with the continuous rate of disks |
//! | R10 stall buffer | error | the ring that the worst stall needs, with the memory |
//! | R11 duration | error | the data of all scans with the capacity |
//! | R12 redundancy | information | disks whose loss a set survives |
//! | R13 processor and memory | error above 100 % | cores and copies with those of the machine |
//!
//! R2 to R6 are advice of *Architecting High-Speed Data Streaming Systems* (National Instruments, 2009).

mod links;
mod neighbours;
mod numa;
mod processor;
mod storage;

use serde::Serialize;

use super::Plan;
use super::figure::Figure;
use super::flows::{Flows, Load};

pub use links::{Narrowest, narrowest};
pub use storage::{Volume, budget, volumes};

/// What a broken rule means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// It is worth knowing.
    Info,
    /// Frames may be lost.
    Warning,
    /// Frames are lost, or the recording ends early.
    Error,
}

/// The result of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It holds.
    Holds,
    /// It holds with less headroom than asked for.
    Tight,
    /// It does not hold.
    Broken,
    /// A number that it needs is not known.
    NotKnown,
}

/// One side of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Side {
    /// The number.
    pub figure: Figure,
    /// The number with its unit, for people.
    pub text: String,
    /// The sum behind it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum: Option<String>,
}

impl Side {
    /// A number that needs no sum.
    pub fn new(figure: Figure) -> Self {
        Self { text: figure.to_string(), figure, sum: None }
    }

    /// A number with the sum behind it.
    pub fn sum(figure: Figure, sum: impl Into<String>) -> Self {
        Self { text: figure.to_string(), figure, sum: Some(sum.into()) }
    }
}

/// A rule, applied to one part of the machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// `R1` to `R13`.
    pub id: &'static str,
    /// Its name.
    pub rule: &'static str,
    /// What it means if it is broken.
    pub severity: Severity,
    /// The result.
    pub state: State,
    /// The part of the machine.
    pub subject: String,
    /// The flows concerned.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<String>,
    /// What is needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub need: Option<Side>,
    /// What is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub have: Option<Side>,
    /// How much of what is there stays free, in percent; below zero if it is too little.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub margin_percent: Option<f64>,
    /// The reason for the result, where two numbers do not tell it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// What to do next, unless it holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Finding {
    fn new(id: &'static str, rule: &'static str, severity: Severity, subject: String) -> Self {
        Self {
            id,
            rule,
            severity,
            state: State::Holds,
            subject,
            flows: vec![],
            need: None,
            have: None,
            margin_percent: None,
            because: None,
            advice: None,
        }
    }

    /// Compares both sides: `have` is to be at least `need`, with headroom.
    fn compare(mut self, need: Side, have: Side, headroom: f64) -> Self {
        let (needed, there) = (need.figure.value, have.figure.value);
        let margin = (there - needed) / there.max(f64::MIN_POSITIVE);
        self.margin_percent = Some((margin.max(-1e6) * 1000.0).round() / 10.0);
        self.state = match needed {
            needed if needed > there => State::Broken,
            needed if needed > there * (1.0 - headroom) => State::Tight,
            _ => State::Holds,
        };
        self.need = Some(need);
        self.have = Some(have);
        self
    }

    fn not_known(mut self, because: impl Into<String>, advice: impl Into<String>) -> Self {
        self.state = State::NotKnown;
        self.because = Some(because.into());
        self.advice = Some(advice.into());
        self
    }

    fn because(mut self, because: impl Into<String>) -> Self {
        self.because = Some(because.into());
        self
    }

    fn flows(mut self, flows: impl IntoIterator<Item = String>) -> Self {
        self.flows = flows.into_iter().collect();
        self
    }

    /// Adds advice unless the rule holds.
    fn advise(mut self, advice: impl Into<String>) -> Self {
        if self.state != State::Holds && self.advice.is_none() {
            self.advice = Some(advice.into());
        }
        self
    }

    /// True if a recorder refuses because of it.
    pub fn refuses(&self) -> bool {
        self.severity == Severity::Error && self.state == State::Broken
    }

    /// True if it does not refuse, and is worse than it should be.
    pub fn warns(&self) -> bool {
        let tight = self.severity == Severity::Error && self.state == State::Tight;
        let broken = self.severity == Severity::Warning
            && matches!(self.state, State::Broken | State::Tight);
        tight || broken
    }
}

/// Applies all rules.
pub fn check(plan: &Plan, flows: &Flows, loads: &[Load]) -> Vec<Finding> {
    let mut findings = links::budget(plan, flows, loads);
    findings.extend(neighbours::check(plan));
    findings.extend(links::trained(plan, loads));
    findings.push(numa::check(plan, flows));
    findings.extend(storage::check(plan));
    findings.extend(processor::check(plan));
    findings
}
