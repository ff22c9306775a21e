//! R13: the work per byte, within the cores and the memory of the machine.

use super::{Finding, Severity, Side, State};
use crate::plan::Plan;
use crate::plan::figure::{Figure, Origin, Unit};

/// Copies of each byte: the kernel copies a packet into a block; what the card and the disk do without the processor
/// reads or writes memory once each, which is as much as another copy.
const COPIES: f64 = 2.0;

/// Applies R13.
pub fn check(plan: &Plan) -> Vec<Finding> {
    let streamed = plan.streams.iter().filter(|stream| !stream.peer);
    let rate: f64 = streamed.map(|stream| stream.total()).sum();
    let rate = rate + plan.run.send.as_ref().map_or(0.0, |send| send.value);
    if rate <= 0.0 {
        return vec![];
    }
    vec![cores(plan, rate), copies(plan, rate)]
}

fn cores(plan: &Plan, rate: f64) -> Finding {
    let cost = plan.machine.cost();
    let mut busy = rate / 1e9 * cost.value;
    let rate_text = Unit::Rate.text(rate);
    let mut sum = format!("{rate_text} × {cost}");
    if let Some(hash) = plan.run.hash {
        busy += rate / hash.rate().value;
        sum += &format!(" + {rate_text} ÷ {} of {} on one core", hash.rate(), hash.name());
    }
    let need = Side::sum(Figure::new(busy, Unit::Cores, cost.origin, cost.source.clone()), sum);
    let rule = Finding::new("R13", "processor", Severity::Error, "cores".into());
    let Some(cores) = &plan.machine.cores else {
        let mut finding =
            rule.not_known("the number of cores is not known", "give `cores` of the machine");
        finding.need = Some(need);
        return finding;
    };
    let have = Figure { unit: Unit::Cores, ..cores.clone() };
    rule.compare(need, Side::new(have), plan.settings.headroom)
        .advise("use more or faster cores, or record fewer streams")
}

fn copies(plan: &Plan, rate: f64) -> Finding {
    let need = Figure::new(rate * COPIES, Unit::Rate, Origin::Table, "copies on the path");
    let sum = format!("{COPIES} copies of {}", Unit::Rate.text(rate));
    let need = Side::sum(need, sum);
    let rule = Finding::new("R13", "memory bandwidth", Severity::Warning, "memory".into());
    let Some(copy) = &plan.machine.copy_rate else {
        let mut finding = rule.not_known(
            "the rate at which this machine copies memory is not known",
            "`fullbore bench memory` measures it, as does `copy-rate` of the machine",
        );
        finding.need = Some(need);
        return finding;
    };
    let mut finding = rule.compare(need, Side::new(copy.clone()), plan.settings.headroom);
    if finding.state == State::Broken {
        finding.severity = Severity::Error;
    }
    finding.advise("use memory on more channels, or record fewer streams")
}
