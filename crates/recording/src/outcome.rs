//! The outcome of a recording: what a command line turns into an exit code, and a daemon into a state.

use fullbore_core::account::Verdict;
use fullbore_core::completeness::Completeness;
use fullbore_core::manifest::State;
use fullbore_core::panda::SourceEvent;
use fullbore_engine::recorder::{Event, Sealed, SealedSink};
use fullbore_engine::sink::device::DeviceResult;
use serde::Serialize;

/// True or false of a whole recording: everything that was to be recorded is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Nothing is lost, and the plan is covered.
    #[default]
    Good,
    /// Frames are missing, a stream or a part of the plan is missing, a member failed or was away, the redundancy is
    /// incomplete, or the recording was aborted.
    Problem,
}

impl Outcome {
    /// The outcome of a sealed scan.
    pub fn of_scan(sealed: &Sealed) -> Self {
        Self::of(
            sealed.completeness.is_good()
                && sealed.manifest.wanting().is_empty()
                && sealed.devices.iter().all(DeviceResult::is_whole)
                && sealed.sinks.iter().all(SealedSink::is_whole)
                && sealed.manifest.state != State::Aborted,
        )
    }

    /// The outcome of what an event reports.
    pub fn of_event(event: &Event) -> Self {
        match event {
            Event::Sealed(sealed) => Self::of_scan(sealed),
            Event::Missed { .. } => Self::Problem,
            // Samples that no scan holds.
            Event::Source(report) => Self::of(!matches!(report.event, SourceEvent::Unseen { .. })),
            _ => Self::Good,
        }
    }

    pub(crate) fn of(is_good: bool) -> Self {
        if is_good { Self::Good } else { Self::Problem }
    }

    /// True if there is no problem.
    pub fn is_good(self) -> bool {
        self == Self::Good
    }
}

/// The outcome of a recording, with the reasons that its scans give.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RecordingOutcome {
    /// The outcome of the recording.
    pub outcome: Outcome,
    /// The number of sealed scans.
    pub sealed: u64,
    /// The least certain verdict of all sealed scans.
    pub verdict: Option<Verdict>,
    /// The completeness of the least complete scan.
    #[serde(flatten)]
    pub completeness: Option<Completeness>,
}

impl RecordingOutcome {
    /// Adds what an event reports.
    pub fn see(&mut self, event: &Event) {
        self.outcome = self.outcome.max(Outcome::of_event(event));
        if let Event::Sealed(sealed) = event {
            self.sealed += 1;
            self.verdict = self.verdict.max(sealed.manifest.verdict());
            let other = &sealed.completeness;
            let rank = |it: &Completeness| (it.status, it.lost);
            if self.completeness.as_ref().is_none_or(|worst| rank(other) > rank(worst)) {
                self.completeness = Some(other.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use fullbore_core::account::{Account, Terms};
    use fullbore_time::Tai;
    use serde_json::{Value, json};

    use super::*;

    const NIL: &str = "00000000-0000-0000-0000-000000000000";

    fn sealed(terms: Terms, failure: Option<&str>, state: &str, more: Value) -> Sealed {
        let mut account = Account::new(fullbore_core::account::CountedBy::FrameTime);
        account.terms = Terms { expected: terms.sum(), ..terms };
        account.verdict = Verdict::Consistent;
        let mut manifest = json!({
            "version": fullbore_core::manifest::VERSION,
            "uuid": NIL,
            "scan": { "session": "s", "scan": "a" },
            "state": state,
            "software": "",
            "host": "",
            "armed": "2026-11-21T18:00:00.000000000Z",
            "stopped": null,
            "members": [{
                "uuid": NIL, "path": "/data", "failure": failure, "buffered": false,
            }],
            "streams": [],
        });
        let more = more.as_object().unwrap().clone();
        manifest.as_object_mut().unwrap().extend(more);
        let manifest = serde_json::from_value(manifest).unwrap();
        Sealed::of(manifest, vec![account])
    }

    #[test]
    fn frames_that_are_not_there_are_a_problem() {
        let judged_with = |terms: Terms, failure: Option<&str>, state: &str, more: Value| {
            Outcome::of_scan(&sealed(terms, failure, state, more))
        };
        let judged = |terms, failure, state| judged_with(terms, failure, state, json!({}));
        let none = Terms::default();
        assert_eq!(judged(none, None, "sealed"), Outcome::Good);
        assert_eq!(judged(Terms { written: 1, ..none }, None, "sealed"), Outcome::Good);
        for lost in [
            Terms { missing: 1, ..none },
            Terms { overrun: 1, ..none },
            Terms { damaged: 1, ..none },
            Terms { late: 1, ..none },
        ] {
            assert_eq!(judged(lost, None, "sealed"), Outcome::Problem, "{lost:?}");
        }
        assert_eq!(judged(none, Some("the disk is full"), "sealed"), Outcome::Problem);
        assert_eq!(judged(none, None, "aborted"), Outcome::Problem);
        let with = |more| judged_with(none, None, "sealed", more);
        let away = json!({ "away": [{ "path": "/mnt/disk1", "why": "it is not mounted" }] });
        assert_eq!(with(away), Outcome::Problem);
        let parity = |narrow: u64, unprotected: u64| {
            let followed = json!({
                "stripes": 4, "chunks": 8, "unprotected": unprotected, "narrow": narrow,
                "bytes": 9, "most_behind": 0, "after_ms": 1,
            });
            json!({ "redundancy": { "data": 2, "parity": 2, "followed": followed } })
        };
        assert_eq!(with(parity(0, 0)), Outcome::Good);
        assert_eq!(with(parity(1, 0)), Outcome::Problem);
        assert_eq!(with(parity(0, 1)), Outcome::Problem);
    }

    #[test]
    fn a_sink_that_lacks_frames_or_failed_is_a_problem_though_another_has_all() {
        let whole = sealed(Terms { written: 9, ..Terms::default() }, None, "sealed", json!({}));
        let judged = |lacking: u64, failure: Option<&str>| {
            let sink = |lacking, failure: Option<&str>| SealedSink {
                place: "/data".to_owned(),
                uuid: whole.manifest.uuid,
                headline: String::new(),
                verdict: None,
                bytes: 9,
                lacking,
                accounts: Vec::new(),
                failure: failure.map(str::to_owned),
            };
            let sinks = vec![sink(0, None), sink(lacking, failure)];
            Outcome::of_scan(&Sealed { sinks, ..whole.clone() })
        };
        assert_eq!(judged(0, None), Outcome::Good);
        assert_eq!(judged(1, None), Outcome::Problem);
        assert_eq!(judged(0, Some("the reader closed the pipe")), Outcome::Problem);
    }

    #[test]
    fn the_worst_scan_gives_a_recording_its_outcome() {
        let event = |missing| {
            let terms = Terms { written: 9, missing, ..Terms::default() };
            Event::Sealed(Box::new(sealed(terms, None, "sealed", json!({}))))
        };
        let mut outcome = RecordingOutcome::default();
        outcome.see(&event(0));
        assert_eq!((outcome.outcome, outcome.sealed), (Outcome::Good, 1));
        outcome.see(&event(3));
        outcome.see(&event(0));
        assert_eq!((outcome.outcome, outcome.sealed), (Outcome::Problem, 3));
        assert_eq!(outcome.completeness.as_ref().unwrap().lost, 3);
        let json = serde_json::to_value(&outcome).unwrap();
        assert_eq!((&json["outcome"], &json["sealed"]), (&json!("problem"), &json!(3)));
    }

    #[test]
    fn a_missed_scan_is_a_problem_and_a_warning_is_none() {
        let (start, end) = (Tai(0), Tai(1));
        let missed = Event::Missed { scan: "s_a".parse().unwrap(), start, end };
        assert_eq!(Outcome::of_event(&missed), Outcome::Problem);
        assert!(Outcome::of_event(&Event::Warning { text: String::new() }).is_good());
    }
}
