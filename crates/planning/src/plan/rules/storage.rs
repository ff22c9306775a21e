//! R9 to R12: the rate, the stalls, the capacity and the redundancy of disks.

use std::time::Duration;

use fullbore_core::memory_budget::{Backlog, BudgetInputs, DiskRate, MemoryBudget, Stall};
use fullbore_core::units::ByteRate;
use fullbore_survey::report;
use serde::Serialize;

use super::{Finding, Severity, Side, State};
use crate::plan::Plan;
use crate::plan::figure::{Figure, Origin, Unit};
use crate::plan::flows::{set_rates, set_rates_with_peers};
use crate::plan::instruments::Direction;
use crate::plan::machine::DiskSet;

/// The usual size of a block, in bytes.
const BLOCK_BYTES: u64 = 4 << 20;

/// Bytes of writes in flight on each member.
const DEPTH_BYTES: u64 = 16 << 20;

/// The longest pause or scan that a backlog is computed for.
const LONGEST_SCAN_S: f64 = 7.0 * 86_400.0;

/// Applies R9 to R12.
pub fn check(plan: &Plan) -> Vec<Finding> {
    let mut findings = sustained(plan);
    findings.extend(stall(plan));
    findings.extend(volumes(plan).iter().filter_map(|volume| duration(plan, volume)));
    findings.extend(plan.machine.sets.iter().filter_map(redundancy));
    findings
}

/// R9, for each set and direction with a rate.
fn sustained(plan: &Plan) -> Vec<Finding> {
    let rule = |subject: &str| {
        Finding::new("R9", "sustained storage", Severity::Error, subject.to_owned())
    };
    if plan.machine.sets.is_empty() {
        let finding = rule("disks").not_known("no disks are given", "name them with --store");
        return vec![finding];
    }
    let mut findings = Vec::new();
    for direction in [Direction::In, Direction::Out] {
        for (set, rate) in plan.machine.sets.iter().zip(set_rates_with_peers(plan, direction)) {
            if rate > 0.0 {
                findings.push(of_set(plan, set, rate, direction, rule(&set.name)));
            }
        }
    }
    findings
}

fn of_set(plan: &Plan, set: &DiskSet, rate: f64, direction: Direction, rule: Finding) -> Finding {
    let need = Figure::new(rate, Unit::Rate, Origin::Given, "the streams");
    let (rate_there, sum) = match direction {
        Direction::Out => match &set.read {
            Some(read) => (read.clone(), format!("{read} read")),
            None => {
                let because = format!("the rate at which `{}` is read is not known", set.name);
                return rule.not_known(because, "give `read` of the disks in the description");
            }
        },
        Direction::In => match set.continuous() {
            Some(there) => there,
            None => {
                let because = format!("the continuous write rate of `{}` is not known", set.name);
                return rule.not_known(
                    because,
                    "`fullbore bench disk` measures it, as does `write` in the description",
                );
            }
        },
    };
    let sum = match &set.peak {
        Some(peak) if peak.value > rate_there.value => {
            let times = peak.value / rate_there.value;
            format!(
                "{sum}, continuous; its peak of {peak} is {times:.1} times that, and does not count"
            )
        }
        _ => format!("{sum}, continuous"),
    };
    let finding =
        rule.compare(Side::new(need), Side::sum(rate_there.clone(), sum), plan.settings.headroom);
    let drains = rate * plan.run.share() <= rate_there.value;
    if finding.state == State::Broken
        && direction == Direction::In
        && plan.run.pause_s > 0.0
        && drains
    {
        return in_pauses(plan, finding, rate, rate_there.value);
    }
    finding.advise("add disks, use faster ones, or record fewer streams")
}

/// A set that is too slow in a scan, but writes the rest in the pause: the ring must hold the rest.
fn in_pauses(plan: &Plan, mut finding: Finding, rate: f64, there: f64) -> Finding {
    let record = plan.run.record_s.unwrap_or(0.0);
    let waiting = (rate - there) * record;
    let text = format!(
        "in a scan of {}, {} wait in memory, and are written in the pause of {}",
        report::seconds(record),
        report::size(waiting),
        report::seconds(plan.run.pause_s)
    );
    finding.state = match memory(plan) {
        Some(memory) if memory.value >= waiting => State::Tight,
        Some(_) => State::Broken,
        None => State::NotKnown,
    };
    finding.because(text).advise("add memory or disks (R10 has the sum)")
}

/// The memory that blocks may use.
fn memory(plan: &Plan) -> Option<&Figure> {
    plan.run.buffer.as_ref().or(plan.machine.memory.as_ref())
}

/// The memory budget of the recording, as `record` computes it; `None` if nothing is recorded through memory.
pub fn budget(plan: &Plan) -> Option<MemoryBudget> {
    let through_memory = |direction| set_rates(plan, direction).iter().sum::<f64>();
    let recorded: Vec<_> = plan
        .streams
        .iter()
        .filter(|stream| stream.direction == Direction::In && !stream.peer)
        .collect();
    let rate: f64 = recorded.iter().map(|stream| stream.total()).sum();
    if rate <= 0.0 || (through_memory(Direction::In) <= 0.0 && !plan.machine.sets.is_empty()) {
        return None;
    }
    let stall = match worst_stall(plan) {
        // The history's stall has its margin already.
        Some(stall) if stall.origin == Origin::Measured => {
            Stall { ms: (stall.value * 1000.0).ceil() as u64, measured: Some(stall.source.clone()) }
        }
        Some(stall) => {
            Stall::measured(stall.value * 1000.0, "the source of the description".into())
        }
        None => Stall::assumed(),
    };
    let inputs = BudgetInputs {
        sources: recorded.iter().map(|stream| u64::from(stream.count)).sum(),
        rate: ByteRate(rate as u64),
        block_bytes: BLOCK_BYTES,
        members: plan.machine.sets.len() as u64,
        depth_bytes: DEPTH_BYTES,
        stall,
        backlog: backlog(plan, rate),
    };
    Some(inputs.sum())
}

fn backlog(plan: &Plan, rate: f64) -> Option<Backlog> {
    let record = plan.run.record_s.filter(|record| *record <= LONGEST_SCAN_S)?;
    let pause = Some(plan.run.pause_s).filter(|pause| *pause > 0.0 && *pause <= LONGEST_SCAN_S)?;
    let mut there = 0.0;
    for set in &plan.machine.sets {
        there += set.continuous()?.0.value;
    }
    let disks = DiskRate { rate: ByteRate(there as u64), by: "the rates of the sets".into() };
    let seconds = Duration::from_secs_f64;
    Backlog::of(ByteRate(rate as u64), &disks, seconds(record), Some(seconds(pause)))
}

/// The longest stall, if it is known of every set.
fn worst_stall(plan: &Plan) -> Option<&Figure> {
    let all: Option<Vec<&Figure>> =
        plan.machine.sets.iter().map(|set| set.stall.as_ref()).collect();
    all?.into_iter().max_by(|one, other| one.value.total_cmp(&other.value))
}

/// R10.
fn stall(plan: &Plan) -> Option<Finding> {
    let budget = budget(plan)?;
    let (origin, source) = match worst_stall(plan) {
        Some(stall) => (stall.origin, format!("the longest write: {}", stall.source)),
        None => (Origin::Assumed, "a default stall".to_owned()),
    };
    let need = Figure::new(budget.bytes as f64, Unit::Bytes, origin, source);
    let sum: Vec<String> = budget
        .reasons
        .iter()
        .map(|it| format!("{} {}", report::size(it.bytes as f64), it.what))
        .collect();
    let need = Side::sum(need, sum.join(" + "));
    let rule = Finding::new("R10", "stall buffer", Severity::Error, "block memory".into());
    let Some(memory) = memory(plan) else {
        let mut finding = rule
            .not_known("the memory of the machine is not known", "give `memory` of the machine");
        finding.need = Some(need);
        return Some(finding);
    };
    let finding = rule.compare(need, Side::new(memory.clone()), plan.settings.headroom);
    Some(match &budget.stall.measured {
        Some(_) => finding.advise("add memory, or use disks with shorter stalls"),
        None => {
            let because = format!(
                "the longest write of the disks is not known; with the default of {} ms, {} are needed",
                budget.stall.ms,
                report::size(budget.bytes as f64)
            );
            finding.not_known(
                because,
                "`fullbore bench disk` measures it, as does `stall` of the disks",
            )
        }
    })
}

/// Disks that fill together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Volume {
    /// Its name.
    pub name: String,
    /// Bytes per second while a scan is recorded.
    pub rate: f64,
    /// Free bytes, if known of every disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Figure>,
    /// Seconds until it is full, pauses included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full_after_s: Option<f64>,
    /// Bytes that its disks may take in their life.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endurance: Option<Figure>,
    /// Days of this use until its disks have taken that, pauses included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worn_after_days: Option<f64>,
}

/// All sets together, or each by itself if streams have sets of their own.
pub fn volumes(plan: &Plan) -> Vec<Volume> {
    let sets = &plan.machine.sets;
    let rates = set_rates_with_peers(plan, Direction::In);
    let apart = plan.streams.iter().any(|stream| stream.set.is_some());
    let all: Vec<(String, Vec<usize>)> = match apart || sets.len() < 2 {
        true => sets.iter().enumerate().map(|(id, set)| (set.name.clone(), vec![id])).collect(),
        false => vec![(format!("all {} sets", sets.len()), (0..sets.len()).collect())],
    };
    let used = all.into_iter().map(|(name, ids)| {
        let rate: f64 = ids.iter().map(|id| rates[*id]).sum();
        let sum = |part: fn(&DiskSet) -> Option<&Figure>| {
            let parts: Option<Vec<&Figure>> = ids.iter().map(|id| part(&sets[*id])).collect();
            let parts = parts?;
            let value = parts.iter().map(|figure| figure.value).sum();
            Some(parts.first()?.with(value))
        };
        let capacity = sum(|set| set.capacity.as_ref());
        let endurance = sum(|set| set.endurance.as_ref());
        let mean = rate * plan.run.share();
        let written: f64 =
            ids.iter().map(|id| rates[*id] * plan.run.share() * sets[*id].amplification()).sum();
        Volume {
            name,
            rate,
            full_after_s: capacity.as_ref().map(|capacity| capacity.value / mean),
            capacity,
            worn_after_days: endurance.as_ref().map(|bytes| bytes.value / written / 86_400.0),
            endurance,
        }
    });
    used.filter(|volume| volume.rate > 0.0).collect()
}

/// R11, if a duration is asked for.
fn duration(plan: &Plan, volume: &Volume) -> Option<Finding> {
    let recorded = plan.run.recorded_s()?;
    let need =
        Figure::new(volume.rate * recorded, Unit::Bytes, Origin::Given, "the streams and the time");
    let scan = report::seconds(plan.run.record_s?);
    let rate = report::rate(volume.rate);
    let sum = match plan.run.scans {
        1 => format!("{rate} × {scan}"),
        scans => format!("{scans} scans × {rate} × {scan}"),
    };
    let rule = Finding::new("R11", "duration", Severity::Error, volume.name.clone());
    let need = Side::sum(need, sum);
    let Some(capacity) = &volume.capacity else {
        let mut finding =
            rule.not_known("the free space is not known", "give `capacity` of the disks");
        finding.need = Some(need);
        return Some(finding);
    };
    let full =
        volume.full_after_s.map(|seconds| format!("full after {}", report::seconds(seconds)));
    let have = Side { sum: full, ..Side::new(capacity.clone()) };
    // A disk may be filled to its end.
    let finding = rule.compare(need, have, 0.0);
    Some(finding.advise("add disks, remove old scans, or record for a shorter time"))
}

/// R12, for a set of several disks.
fn redundancy(set: &DiskSet) -> Option<Finding> {
    let (sum, survives) = (set.continuous().map(|(_, sum)| sum), set.raid.survives(set.disks));
    let told = match survives {
        0 => "the loss of one disk loses its data".to_owned(),
        1 => "it survives the loss of one disk".to_owned(),
        more => format!("it survives the loss of any {more} disks"),
    };
    let rate = sum.map_or(String::new(), |sum| format!("; whole stripes are written at {sum}"));
    let finding = Finding::new("R12", "redundancy", Severity::Info, set.name.clone());
    let told = format!("{} disks in {}: {told}{rate}", set.disks, set.raid.name());
    (set.disks > 1).then(|| finding.because(told))
}
