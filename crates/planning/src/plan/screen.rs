//! The answer as text for a terminal.

use std::fmt::Write;

use fullbore_survey::report;

use super::answer::Answer;
use super::rules::{Finding, State, Volume};

/// The whole answer. `all` shows rules that hold, too.
pub fn screen(answer: &Answer, all: bool) -> String {
    let mut text = format!("{}: {}\n", answer.machine, answer.verdict.text());
    if let Some(about) = &answer.about {
        let _ = writeln!(text, "  {about}");
    }
    for stream in &answer.streams {
        let at = match stream.at.as_slice() {
            [] => "a place that is not known".to_owned(),
            names => names.join(", "),
        };
        let whole = report::rate(stream.rate.value * f64::from(stream.count));
        let what = match stream.count {
            1 => stream.name.clone(),
            count => format!("{count} × {}", stream.name),
        };
        let _ = writeln!(text, "  {what}: {whole} at {at} ({})", stream.rate.source);
    }
    let of = |chosen: fn(&Finding) -> bool| answer.findings.iter().filter(move |it| chosen(it));
    section(&mut text, "Refused", of(Finding::refuses));
    section(&mut text, "Warnings", of(Finding::warns));
    section(&mut text, "Not known", of(|it| it.state == State::NotKnown));
    let rest = |it: &&Finding| !it.refuses() && !it.warns() && it.state != State::NotKnown;
    if all {
        section(&mut text, "Holds", answer.findings.iter().filter(rest));
    } else {
        let holds = answer.findings.iter().filter(rest).count();
        let _ = writeln!(text, "\n{holds} other checks hold (--all shows them)");
    }
    capacity(&mut text, answer);
    text
}

fn section<'a>(text: &mut String, title: &str, findings: impl Iterator<Item = &'a Finding>) {
    let mut groups: Vec<(Vec<&str>, &Finding)> = Vec::new();
    for finding in findings {
        match groups.iter_mut().find(|(_, first)| is_alike(first, finding)) {
            Some((subjects, _)) => subjects.push(&finding.subject),
            None => groups.push((vec![&finding.subject], finding)),
        }
    }
    if !groups.is_empty() {
        let _ = writeln!(text, "\n{title}");
    }
    for (subjects, finding) in groups {
        one(text, &subjects.join(", "), finding);
    }
}

/// True if two results differ in the part of the machine only, as those of equal disk sets.
fn is_alike(one: &Finding, other: &Finding) -> bool {
    let sides = |it: &Finding| {
        [&it.need, &it.have]
            .map(|side| side.as_ref().map(|side| (side.text.clone(), side.figure.source.clone())))
    };
    one.id == other.id
        && one.rule == other.rule
        && one.state == other.state
        && one.because == other.because
        && one.advice == other.advice
        && one.need.is_some()
        && sides(one) == sides(other)
}

fn one(text: &mut String, subject: &str, finding: &Finding) {
    let _ = writeln!(text, "  {} {}: {}", finding.id, finding.rule, sentence(subject, finding));
    for (word, side) in [("need", &finding.need), ("have", &finding.have)] {
        let Some(side) = side else { continue };
        let sum = side.sum.as_ref().map_or(String::new(), |sum| format!(" = {sum}"));
        let from = format!("{}: {}", side.figure.origin, side.figure.source);
        let _ = writeln!(text, "      {word} {}{sum} [{from}]", side.text);
    }
    if let Some(advice) = &finding.advice {
        let _ = writeln!(text, "      next: {advice}");
    }
}

/// The result of a rule in one line.
fn sentence(subject: &str, finding: &Finding) -> String {
    let mut told = subject.to_owned();
    if let Some(margin) = finding.margin_percent {
        told += &format!(", margin {}", report::share(margin / 100.0));
    }
    if let Some(because) = &finding.because {
        told += &format!("; {because}");
    }
    told
}

fn capacity(text: &mut String, answer: &Answer) {
    let _ = writeln!(text, "\nCapacity");
    if let Some(link) = &answer.narrowest {
        let _ = writeln!(
            text,
            "  narrowest link: {} ({}), {}: {} of {}, {} full",
            link.node,
            link.link,
            link.direction,
            report::rate(link.rate),
            report::rate(link.usable),
            report::share(link.fill)
        );
    }
    if let Some(memory) = &answer.memory {
        let size = report::size(memory.bytes as f64);
        let _ = writeln!(text, "  block memory: {size}, for a stall of {} ms", memory.stall.ms);
    }
    for volume in &answer.volumes {
        let _ = writeln!(text, "  {}", told(volume));
    }
    if !answer.one_more.is_empty() {
        let _ = writeln!(text, "\nOne more");
    }
    for variant in &answer.one_more {
        let full =
            variant.full_after_s.map(|full| format!("; full after {}", report::seconds(full)));
        let _ = writeln!(
            text,
            "  {}: {} ({}{})",
            variant.what,
            variant.verdict.text(),
            variant.because,
            full.unwrap_or_default()
        );
    }
}

/// The time until disks are full and worn, in one line.
pub fn told(volume: &Volume) -> String {
    let full = match (&volume.capacity, volume.full_after_s) {
        (Some(capacity), Some(full)) => {
            format!("{capacity} free, full after {}", report::seconds(full))
        }
        _ => "free space not known".to_owned(),
    };
    let worn = match (&volume.endurance, volume.worn_after_days) {
        (Some(endurance), Some(days)) => {
            format!("; {endurance} may be written in all, in {}", report::seconds(days * 86_400.0))
        }
        _ => "; endurance not known".to_owned(),
    };
    format!("{}: {full}{worn}", volume.name)
}
