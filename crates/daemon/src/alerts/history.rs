//! The problems of the station that last, and those that are over, whether or not anybody is told of them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use fullbore_time::Tai;
use serde::Serialize;
use utoipa::ToSchema;

use super::Kind;
use super::problems::Problem;
use super::tracker::{Change, Tracker};

/// Problems that are kept after their end: the newest.
pub const MOST_ENDED: usize = 500;

/// A problem, and for how long it was there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Alert {
    /// When it was first seen.
    #[schema(value_type = String)]
    pub begun: Tai,
    /// When it was over. Null while it lasts.
    #[schema(value_type = Option<String>)]
    pub ended: Option<Tai>,
    /// The problem, as a notice has it.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    pub problem: Problem,
}

/// All that are known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Alerts)]
pub struct Told {
    /// Those that last, the newest first.
    pub open: Vec<Alert>,
    /// Those that are over: the last one first.
    pub ended: Vec<Alert>,
}

/// The history. Clones are handles of the same.
#[derive(Clone, Debug, Default)]
pub struct History(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    tracker: Tracker,
    open: BTreeMap<(Kind, String), Alert>,
    ended: VecDeque<Alert>,
}

impl History {
    /// Takes the problems of now, and logs those that begin and end.
    pub(super) fn step(&self, now: Instant, time: Tai, problems: &[Problem]) {
        let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Kept { tracker, open, ended } = &mut *guard;
        for (change, problem) in tracker.step(now, problems.iter().cloned(), None) {
            let key = (problem.kind, problem.subject.clone());
            match change {
                Change::Begins => {
                    tracing::warn!("alert: {}", problem.text);
                    open.insert(key, Alert { begun: time, ended: None, problem });
                }
                Change::Lasts => {}
                Change::Ends => {
                    tracing::info!("over: {}", problem.text);
                    let Some(alert) = open.remove(&key) else { continue };
                    if ended.len() == MOST_ENDED {
                        ended.pop_back();
                    }
                    ended.push_front(Alert { ended: Some(time), problem, ..alert });
                }
            }
        }
        // Its text tells how much it is by now.
        for problem in problems {
            if let Some(alert) = open.get_mut(&(problem.kind, problem.subject.clone())) {
                alert.problem.clone_from(problem);
            }
        }
    }

    /// All that are known.
    pub fn all(&self) -> Told {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut open: Vec<Alert> = kept.open.values().cloned().collect();
        open.sort_by_key(|it| std::cmp::Reverse(it.begun));
        Told { open, ended: kept.ended.iter().cloned().collect() }
    }

    /// The number of those that last.
    pub fn open(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).open.len()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_alert_is_open_while_its_problem_lasts_and_then_in_the_history() {
        let (history, start) = (History::default(), Instant::now());
        let lost = |frames: u32| Problem {
            kind: Kind::Loss,
            subject: "s_a/x".into(),
            text: format!("{frames} frames lost"),
        };
        let step = |seconds: u64, problems: &[Problem]| {
            let now = start + Duration::from_secs(seconds);
            history.step(now, Tai(seconds as i64), problems);
            history.all()
        };
        assert_eq!(step(0, &[]), Told::default());
        step(1, &[lost(1)]);
        let told = step(2, &[lost(7)]);
        assert_eq!((told.open.len(), history.open()), (1, 1));
        assert_eq!(
            (told.open[0].begun, told.open[0].problem.text.as_str()),
            (Tai(1), "7 frames lost")
        );
        assert_eq!(step(4, &[]).open.len(), 1, "it may come again");
        let told = step(20, &[]);
        assert_eq!((told.open.len(), told.ended[0].ended), (0, Some(Tai(20))));
        assert_eq!(told.ended[0].problem.text, "7 frames lost");
    }

    #[test]
    fn the_history_stays_bounded() {
        let (history, start) = (History::default(), Instant::now());
        for number in 0..MOST_ENDED as u64 + 9 {
            let text = String::new();
            let problem = Problem { kind: Kind::Space, subject: number.to_string(), text };
            history.step(start + Duration::from_secs(10 * number), Tai(0), &[problem]);
        }
        assert_eq!(history.all().ended.len(), MOST_ENDED);
    }
}
