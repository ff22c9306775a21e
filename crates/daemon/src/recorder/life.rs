//! The life of one recording, as a station knows it: a pure machine, fed with the recorder's lines and the operator's
//! requests.
//!
//! ```text
//! starting ──► armed ──► recording ──► stopping ──► ended
//!     └──────────┴───────────┴────────────┴───────────▲   the process is gone
//! ```
//!
//! The recorder of a schedule is *waiting* between two scans, and then armed again.

use fullbore_core::name::ScanName;
use fullbore_time::Tai;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::report::{Finished, Progress, Report, Said};

/// Warnings that are kept of a recording: the newest.
pub const MOST_WARNINGS: usize = 20;

/// Finished scans that are kept of a recording: the newest.
pub const MOST_FINISHED: usize = 100;

/// The phase of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// The recorder maps its memory and opens its sources.
    Starting,
    /// The next scan of the schedule is awaited.
    Waiting,
    /// All is open. Datagrams that arrive are recorded, or the planned start is awaited.
    Armed,
    /// Data is recorded.
    Recording,
    /// It was asked to end, or a limit was reached: held data is written, and scans are sealed.
    Stopping,
    /// The recorder's process is gone.
    Ended,
}

/// What happens to a recording.
#[derive(Clone, Debug)]
pub enum Input {
    /// The recorder printed a line.
    Said(Report),
    /// An operator asked it to stop or to abort.
    Asked,
    /// The process is gone.
    Gone {
        /// Its exit code, if this daemon started it.
        code: Option<i32>,
        /// Its last error.
        complaint: Option<Complaint>,
    },
}

/// An error of a recorder, as it prints it with `--json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Complaint {
    /// What happened.
    pub error: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

/// The last line for those who follow a recorder: it is gone.
#[derive(Clone, Debug, Serialize)]
pub struct Ended<'a> {
    /// `ended`.
    pub event: &'static str,
    /// The exit code, if this daemon started it.
    pub exit_code: Option<i32>,
    /// Its last error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complaint: Option<&'a Complaint>,
}

impl Complaint {
    /// Of a recorder that was killed.
    pub fn of_signal(signal: i32) -> Self {
        Self {
            error: format!("the recorder was killed by signal {signal}"),
            advice: Some("`fullbore recover` seals its scan with all durable data".to_owned()),
        }
    }
}

/// A scan that is finished.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct FinishedScan {
    /// Its name.
    pub scan: String,
    /// Whether it is complete; null if its frames cannot show a loss.
    pub complete: Option<bool>,
    /// The first line of its account.
    pub headline: String,
    /// Why it is not sealed, if no member took its manifest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsealed: Option<String>,
}

/// What is known of a recording.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Life {
    /// Its phase.
    pub phase: Phase,
    /// The scan that is being recorded, or is the first to be.
    #[schema(value_type = Option<crate::http::schema::ScanName>)]
    pub scan: Option<ScanName>,
    /// The planned start of the first scan.
    #[schema(value_type = Option<String>)]
    pub begins: Option<Tai>,
    /// The newest state that the recorder reported.
    pub progress: Option<Progress>,
    /// The newest warnings.
    pub warnings: Vec<String>,
    /// The newest finished scans.
    pub finished: Vec<FinishedScan>,
    /// The exit code of `fullbore record`. Null while it runs, and if it ended while another daemon, or none, was its
    /// parent.
    pub exit_code: Option<i32>,
    /// The error because of which it ended.
    pub complaint: Option<Complaint>,
    /// It was asked to end.
    #[serde(skip)]
    asked: bool,
    /// The account of the session of a schedule is closed.
    #[serde(skip)]
    session_over: bool,
}

impl Default for Life {
    fn default() -> Self {
        Self {
            phase: Phase::Starting,
            scan: None,
            begins: None,
            progress: None,
            warnings: Vec::new(),
            finished: Vec::new(),
            exit_code: None,
            complaint: None,
            asked: false,
            session_over: false,
        }
    }
}

impl Life {
    /// Takes an input. What comes after the end changes nothing.
    pub fn step(&mut self, input: Input) {
        if self.phase == Phase::Ended {
            return;
        }
        match input {
            Input::Said(report) => self.hear(report),
            Input::Asked => {
                self.asked = true;
                self.reach(Phase::Stopping);
            }
            Input::Gone { code, complaint } => {
                self.exit_code = code;
                self.complaint = complaint;
                self.reach(Phase::Ended);
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn in_phase(phase: Phase) -> Self {
        Self { phase, ..Self::default() }
    }

    /// True if the recorder runs.
    pub fn is_active(&self) -> bool {
        self.phase != Phase::Ended
    }

    /// True if the recorder of a schedule has closed its account: all scans are over, or it was stopped.
    pub fn is_session_over(&self) -> bool {
        self.session_over
    }

    fn hear(&mut self, report: Report) {
        match report {
            Report::Waiting { start } => self.wait(start),
            Report::Session => {
                self.session_over = true;
                self.reach(Phase::Stopping);
            }
            Report::Armed { scan, begins } => {
                (self.scan, self.begins) = (Some(scan), begins);
                self.reach(Phase::Armed);
            }
            Report::Awaiting { scan, begins } => {
                (self.scan, self.begins) = (Some(scan), Some(begins));
                self.reach(Phase::Armed);
            }
            Report::Progress(progress) => {
                self.reach(match progress.phase {
                    Said::Recording => Phase::Recording,
                    Said::Stopping | Said::Aborting => Phase::Stopping,
                });
                self.scan = Some(progress.scan.clone());
                self.progress = Some(progress);
            }
            Report::Warning { text } => push(&mut self.warnings, text, MOST_WARNINGS),
            Report::Sealed(finished) => self.finish(finished, None),
            Report::Unsealed { why, finished } => self.finish(finished, Some(why)),
            Report::Other => {}
        }
    }

    fn finish(&mut self, finished: Finished, unsealed: Option<String>) {
        let scan = finished.scan().to_string();
        let Finished { complete, headline, .. } = finished;
        let finished = FinishedScan { scan, complete, headline, unsealed };
        push(&mut self.finished, finished, MOST_FINISHED);
    }

    /// Between two scans of a schedule.
    fn wait(&mut self, begins: Tai) {
        if !self.asked {
            self.phase = Phase::Waiting;
            (self.scan, self.progress, self.begins) = (None, None, Some(begins));
        }
    }

    /// A phase does not go back, except between two scans of a schedule.
    fn reach(&mut self, phase: Phase) {
        self.phase = self.phase.max(phase);
    }
}

fn push<T>(list: &mut Vec<T>, item: T, most: usize) {
    if list.len() == most {
        list.remove(0);
    }
    list.push(item);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::report::tests::PROGRESS;
    use super::*;

    fn progress(phase: Said) -> Input {
        let Some(Report::Progress(progress)) = Report::of_line(PROGRESS.as_bytes()) else {
            panic!()
        };
        Input::Said(Report::Progress(Progress { phase, ..progress }))
    }

    fn any_input() -> impl Strategy<Value = Input> {
        let armed = Report::Armed { scan: "s_a".parse().unwrap(), begins: None };
        let sealed = r#"{"event":"sealed","manifest":{"scan":{"session":"s","scan":"a"}},"complete":null,"headline":"h"}"#;
        prop_oneof![
            Just(Input::Said(armed)),
            Just(progress(Said::Recording)),
            Just(progress(Said::Stopping)),
            Just(Input::Said(Report::Warning { text: "w".into() })),
            Just(Input::Said(Report::of_line(sealed.as_bytes()).unwrap())),
            Just(Input::Said(Report::Other)),
            Just(Input::Said(Report::Waiting { start: fullbore_time::Tai::from_unix_ns(0) })),
            Just(Input::Said(Report::Session)),
            Just(Input::Asked),
            any::<Option<i32>>().prop_map(|code| Input::Gone { code, complaint: None }),
        ]
    }

    proptest! {
        #[test]
        fn phases_only_advance_and_nothing_grows_without_end(
            inputs in prop::collection::vec(any_input(), 0..300)
        ) {
            let (mut life, mut asked) = (Life::default(), false);
            for input in inputs {
                let before = life.clone();
                let is_gone = matches!(input, Input::Gone { .. });
                let waits = matches!(input, Input::Said(Report::Waiting { .. }));
                asked |= matches!(input, Input::Asked);
                life.step(input);
                prop_assert!(life.phase >= before.phase || (waits && !asked));
                prop_assert!(!asked || life.phase >= Phase::Stopping);
                prop_assert_eq!(life.phase == Phase::Ended, is_gone || before.phase == Phase::Ended);
                prop_assert!(life.warnings.len() <= MOST_WARNINGS && life.finished.len() <= MOST_FINISHED);
                if before.phase == Phase::Ended {
                    prop_assert_eq!(before.exit_code, life.exit_code);
                }
            }
        }
    }

    #[test]
    fn a_recorder_that_is_found_again_is_known_by_its_next_progress() {
        let mut life = Life::default();
        life.step(progress(Said::Recording));
        assert_eq!((life.phase, life.scan.unwrap().to_string()), (Phase::Recording, "s_a".into()));
    }

    #[test]
    fn the_recorder_of_a_schedule_waits_between_its_scans() {
        let mut life = Life::default();
        let heard = |life: &mut Life, line: &str| {
            life.step(Input::Said(Report::of_line(line.as_bytes()).unwrap()));
        };
        let waiting =
            r#"{"event":"waiting","scan":"a","start":"2026-11-22T18:00:00Z","seconds":5}"#;
        heard(&mut life, waiting);
        assert!(life.phase == Phase::Waiting && life.begins.is_some());
        life.step(progress(Said::Recording));
        life.step(progress(Said::Stopping));
        assert_eq!(life.phase, Phase::Stopping);
        heard(&mut life, waiting);
        assert!(life.phase == Phase::Waiting && life.scan.is_none() && !life.is_session_over());
        heard(&mut life, r#"{"event":"session","session":"s","scans":[]}"#);
        assert!(life.is_session_over());
    }

    #[test]
    fn a_stop_is_shown_before_the_recorder_says_so() {
        let mut life = Life::default();
        life.step(progress(Said::Recording));
        life.step(Input::Asked);
        life.step(progress(Said::Recording));
        assert_eq!(life.phase, Phase::Stopping);
    }
}
