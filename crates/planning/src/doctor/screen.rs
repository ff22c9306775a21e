//! The report as text for a terminal.

use std::fmt::Write;

use super::fix::{Change, Setting};
use super::{Finding, Grade, Report};

/// The whole report. `all` shows what is good, too.
pub fn screen(report: &Report, all: bool) -> String {
    let count = |grade| report.findings.iter().filter(|it| it.grade == grade).count();
    let mut text = format!(
        "{}: {} that can cost frames, {} that could be better, {} not known, {} good\n",
        report.host,
        count(Grade::Problem),
        count(Grade::Advice),
        count(Grade::Unknown),
        count(Grade::Good)
    );
    let groups = [
        ("Can cost frames", Grade::Problem),
        ("Could be better", Grade::Advice),
        ("Not known", Grade::Unknown),
        ("Good", Grade::Good),
    ];
    for (title, grade) in groups {
        let mut findings = report.findings.iter().filter(|it| it.grade == grade).peekable();
        if findings.peek().is_none() || (grade == Grade::Good && !all) {
            continue;
        }
        let _ = writeln!(text, "\n{title}");
        findings.for_each(|finding| one(&mut text, finding));
    }
    if !settings(report).is_empty() {
        let _ = writeln!(
            text,
            "\nfullbore doctor --fix makes {} changes; --undo takes them back",
            settings(report).len()
        );
    }
    text
}

fn one(text: &mut String, finding: &Finding) {
    let _ = writeln!(text, "  {} ({}): {}", finding.subject, finding.id, finding.found);
    if let Some(cost) = finding.cost {
        let _ = writeln!(text, "      costs: {cost}");
    }
    if let Some(command) = &finding.command {
        let mark = if finding.settings.is_empty() { "do" } else { "--fix" };
        let shown: String = command.chars().take(400).collect();
        let more = if shown.len() < command.len() { " …" } else { "" };
        let _ = writeln!(text, "      {mark}: {shown}{more}");
    }
}

/// Everything that `--fix` changes.
pub fn settings(report: &Report) -> Vec<Setting> {
    report.findings.iter().flat_map(|finding| finding.settings.iter().cloned()).collect()
}

/// The changes in words.
pub fn changes(changes: &[Change]) -> String {
    let mut text = String::new();
    for change in changes {
        let _ = match &change.failed {
            None => writeln!(text, "done: {}", change.command),
            Some(error) => writeln!(text, "not done: {error}"),
        };
    }
    text
}
