//! What is looked at while a recording is armed: the quick part of `doctor`, and the plan of its own streams.
//!
//! Both take milliseconds and start no program.

use std::path::PathBuf;

use fullbore_core::manifest::HostFinding;
use fullbore_engine::recorder::RecordingConfig;
use fullbore_survey::bench::environment::Roots;

use crate::doctor::{self, Grade, Host};
use crate::plan::description::RunText;
use crate::plan::figure::Origin;
use crate::plan::rules::{Finding, Side, State};
use crate::plan::{Plan, Request, answer};

/// The rules that only a plan checks. The recorder itself compares its disks, its memory and the free space (R9 to R11).
const OF_THE_PLAN: [&str; 2] = ["R1", "R13"];

/// Returns the settings of this host that can cost frames, or could be better. What could not be read is left out.
pub fn findings(members: &[PathBuf]) -> Vec<HostFinding> {
    let host = Host {
        roots: Roots::default(),
        is_this: true,
        quick: true,
        interfaces: Vec::new(),
        store: members.to_vec(),
    };
    kept(doctor::examine(&host).findings)
}

fn kept(findings: Vec<doctor::Finding>) -> Vec<HostFinding> {
    let bad = findings.into_iter().filter(|it| it.grade >= Grade::Advice);
    bad.map(|it| HostFinding {
        check: it.id.to_owned(),
        subject: it.subject,
        costs_frames: it.grade == Grade::Problem,
        found: it.found,
    })
    .collect()
}

/// Returns a sentence for each part of this machine that cannot take the streams, by numbers that are known. Without
/// the rate of every source, or without a store, there is no plan and no sentence.
pub fn doubts(config: &RecordingConfig) -> Vec<String> {
    let Some(request) = request(config) else { return Vec::new() };
    // A machine that cannot be read is no reason not to record: `fullbore plan` says why.
    let Ok(plan) = Plan::read(&request) else { return Vec::new() };
    let broken = answer(&plan).findings.into_iter().filter(is_doubt);
    broken.map(|finding| in_words(&finding)).collect()
}

/// Whether a rule is broken by numbers of this machine: none is assumed, or from a table of others.
fn is_doubt(finding: &Finding) -> bool {
    let is_known = |side: &Option<Side>| {
        let origin = side.as_ref().map(|side| side.figure.origin);
        matches!(origin, Some(Origin::Measured | Origin::Read | Origin::Given))
    };
    finding.state == State::Broken
        && OF_THE_PLAN.contains(&finding.id)
        && is_known(&finding.need)
        && is_known(&finding.have)
}

fn in_words(finding: &Finding) -> String {
    let text = |side: &Option<Side>| side.as_ref().map_or("?".to_owned(), |it| it.text.clone());
    let (need, have) = (text(&finding.need), text(&finding.have));
    format!(
        "frames will be lost: the streams need {need}, and {have} are there ({}, {}: {}); `fullbore plan` shows the sum",
        finding.id, finding.rule, finding.subject
    )
}

/// The plan of a recording whose sources all state their rate.
fn request(config: &RecordingConfig) -> Option<Request> {
    let store = config.store()?.members.clone();
    let rates: Option<Vec<u64>> = config.sources.iter().map(|source| source.rate()).collect();
    let streams: Vec<String> = rates?.iter().map(|rate| format!("{rate}B/s")).collect();
    let duration = config.limit.duration.map(|it| format!("{}ms", it.as_millis().max(1)));
    let buffer = config.buffer.map(|it| format!("{}B", it.0));
    let run = RunText { duration, buffer, ..RunText::default() };
    (!streams.is_empty()).then(|| Request { streams, store, run, ..Request::default() })
}

#[cfg(test)]
mod tests {
    use fullbore_core::endpoint::UdpSource;
    use fullbore_engine::sink::{SinkConfig, StoreConfig};
    use fullbore_survey::bench::environment::Roots;

    use super::*;

    fn recording(parameters: &str) -> RecordingConfig {
        let text = format!("udp://127.0.0.1:46220-46221?format=vdif{parameters}");
        let store = SinkConfig::Store(StoreConfig::new(vec!["/a".into()]));
        let sources = UdpSource::parse(&text).unwrap();
        RecordingConfig::new(sources, store, vec!["s_a".parse().unwrap()])
    }

    #[test]
    fn a_plan_needs_the_rate_of_every_source() {
        assert!(request(&recording("")).is_none());
        let mut config = recording("&frame=8032&fps=32000");
        config.limit.duration = Some(std::time::Duration::from_secs(40));
        let request = request(&config).unwrap();
        assert_eq!(request.streams, ["257024000B/s", "257024000B/s"]);
        assert_eq!(request.run.duration.as_deref(), Some("40000ms"));
        assert_eq!(request.store, [PathBuf::from("/a")]);
    }

    fn doubts_of(machine: &str) -> Vec<String> {
        let text = format!("[machine]\n{machine}\n[[stream]]\nrate = '2Gbit/s'\ncount = 16\n");
        let description = Some(("test".to_owned(), text));
        let plan = Plan::read(&Request { description, ..Request::default() }).unwrap();
        answer(&plan).findings.iter().filter(|it| is_doubt(it)).map(in_words).collect()
    }

    #[test]
    fn only_known_numbers_are_a_reason_to_warn() {
        let doubts = doubts_of("cores = 1\ncpu-per-gb = 1.0");
        assert_eq!(doubts.len(), 1, "{doubts:?}");
        assert!(doubts[0].contains("need 4.00 cores, and 1.00 cores"), "{doubts:?}");
        assert!(doubts_of("cores = 16\ncpu-per-gb = 0.5").is_empty());
        // The cost of a byte is then that of another machine.
        assert!(doubts_of("cores = 1").is_empty());
    }

    #[test]
    fn only_what_is_not_good_is_kept() {
        let roots = Roots { sysfs: "/nowhere".into(), procfs: "/nowhere".into() };
        let host = Host {
            roots,
            is_this: false,
            quick: true,
            interfaces: vec!["a/b".into()],
            store: vec![],
        };
        let kept = kept(doctor::examine(&host).findings);
        assert_eq!(kept.len(), 1, "{kept:?}");
        assert!(kept[0].costs_frames && kept[0].subject == "a/b" && kept[0].check == "interface");
    }
}
