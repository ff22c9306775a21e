//! The settings of a host that cost a recorder frames.
//!
//! ```text
//! /sys, /proc, ethtool, nvme, smartctl ──► findings ──► text, JSON
//!                                             │
//!                                             └─► settings ──► undo file, changes ──► undo
//! ```
//!
//! Each finding says what it is, what it costs, and the command that changes it. A file that is missing, or that may
//! not be read, is *unknown* and never good. Nothing is changed unless [`fix::apply`] is called, which first writes what
//! is needed to [put everything back](fix::undo).

pub mod disks;
pub mod fix;
pub mod health;
pub mod lasting;
pub mod memory;
pub mod network;
pub mod processor;
pub mod screen;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use fullbore_linux::sys::ethtool::Cards;
use fullbore_survey::bench::environment::Roots;
use serde::Serialize;

use fix::Setting;

/// The version of the document.
pub const VERSION: u32 = 1;

/// What a finding means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Grade {
    /// As it should be.
    Good,
    /// It could not be read.
    Unknown,
    /// Another value is better.
    Advice,
    /// It can cost frames.
    Problem,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Its name for programs, as `rx-ring`.
    pub id: &'static str,
    /// The part of the host: an interface, a disk, `kernel`.
    pub subject: String,
    /// The grade.
    pub grade: Grade,
    /// What was found.
    pub found: String,
    /// What it costs a recorder, and how that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<&'static str>,
    /// The command that changes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// What `--fix` changes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<Setting>,
}

impl Finding {
    fn new(id: &'static str, subject: &str, grade: Grade, found: impl Into<String>) -> Self {
        let (subject, found) = (subject.to_owned(), found.into());
        Self { id, subject, grade, found, cost: None, command: None, settings: vec![] }
    }

    fn unknown(id: &'static str, subject: &str, why: impl Into<String>) -> Self {
        Self::new(id, subject, Grade::Unknown, why)
    }

    /// Adds the cost.
    fn cost(mut self, cost: &'static str) -> Self {
        if self.grade > Grade::Unknown {
            self.cost = Some(cost);
        }
        self
    }

    /// Adds a command that the user runs, unless it is good.
    fn command(mut self, command: impl Into<String>) -> Self {
        if self.grade > Grade::Unknown {
            self.command = Some(command.into());
        }
        self
    }

    /// Adds what `--fix` changes, unless it is good.
    fn fix(mut self, settings: Vec<Setting>) -> Self {
        if self.grade > Grade::Unknown && !settings.is_empty() {
            let commands: Vec<String> = settings.iter().map(Setting::command).collect();
            self.command = Some(commands.join("; "));
            self.settings = settings;
        }
        self
    }
}

/// The host, and what it is to record.
#[derive(Debug)]
pub struct Host {
    /// `/sys` and `/proc`.
    pub roots: Roots,
    /// True if these are of this host, so that programs and ioctls tell of it too.
    pub is_this: bool,
    /// Runs no other programs, as those that ask a drive for its health: it takes milliseconds.
    pub quick: bool,
    /// The interfaces that receive; empty: all cards that are up.
    pub interfaces: Vec<String>,
    /// Members of the store.
    pub store: Vec<PathBuf>,
}

/// The result.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// [`VERSION`].
    pub fullbore_doctor: u32,
    /// The name of the host.
    pub host: String,
    /// The worst grade.
    pub grade: Grade,
    /// Everything that was looked at.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Adds findings that were made elsewhere.
    pub fn add(&mut self, findings: impl IntoIterator<Item = Finding>) {
        self.findings.extend(findings);
        self.grade = worst(&self.findings);
    }

    /// Keeps the findings with these names, all if there is none. Returns a name that no finding has.
    pub fn keep(&mut self, names: &[String]) -> Result<(), String> {
        let is_of = |finding: &Finding, name: &String| finding.id == name.as_str();
        let unknown = names.iter().find(|name| !self.findings.iter().any(|it| is_of(it, name)));
        if let Some(unknown) = unknown {
            return Err(unknown.clone());
        }
        self.findings.retain(|it| names.is_empty() || names.iter().any(|name| is_of(it, name)));
        self.grade = worst(&self.findings);
        Ok(())
    }
}

fn worst(findings: &[Finding]) -> Grade {
    findings.iter().map(|it| it.grade).max().unwrap_or(Grade::Unknown)
}

/// Looks at the host, and changes nothing.
pub fn examine(host: &Host) -> Report {
    let mut findings = network::check(host, cards(host).as_ref());
    findings.extend(network::kernel(&host.roots));
    findings.extend(processor::check(host));
    findings.extend(memory::check(&host.roots));
    findings.extend(disks::check(host));
    Report {
        fullbore_doctor: VERSION,
        host: host.roots.proc("sys/kernel/hostname").unwrap_or_else(|| "this host".into()),
        grade: worst(&findings),
        findings,
    }
}

/// The ioctl of cards, if they are those of this host.
fn cards(host: &Host) -> Option<Cards> {
    if host.is_this { Cards::open().ok() } else { None }
}

/// Reads a number below `/proc` and judges it.
fn proc_number(roots: &Roots, id: &'static str, path: &str, wanted: u64, grade: Grade) -> Finding {
    match roots.proc(path).and_then(|text| text.parse::<u64>().ok()) {
        None => Finding::unknown(id, "kernel", format!("/proc/{path} cannot be read")),
        Some(now) if now >= wanted => {
            Finding::new(id, "kernel", Grade::Good, format!("{} = {now}", sysctl(path)))
        }
        Some(now) => {
            let found = format!("{} = {now}, better at least {wanted}", sysctl(path));
            Finding::new(id, "kernel", grade, found).fix(vec![Setting::proc(path, wanted)])
        }
    }
}

/// The name of a file below `/proc/sys` for `sysctl`.
fn sysctl(path: &str) -> String {
    path.trim_start_matches("sys/").replace('/', ".")
}
