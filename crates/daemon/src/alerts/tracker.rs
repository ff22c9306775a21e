//! Which problems are new, last, or are over. Pure: the time is passed in.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::Kind;
use super::problems::Problem;

/// The most problems that are tracked at once. Further ones are not told.
pub const MOST_PROBLEMS: usize = 1000;

/// A problem that is gone for less than this is not over: it comes and goes.
pub const STEADY: Duration = Duration::from_secs(5);

/// What happened to a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// It is new.
    Begins,
    /// It lasts.
    Lasts,
    /// It is over.
    Ends,
}

/// The problems that were told.
#[derive(Debug, Default)]
pub struct Tracker(BTreeMap<(Kind, String), Told>);

#[derive(Debug)]
struct Told {
    problem: Problem,
    /// When it was told last.
    told: Instant,
    /// When it was there last.
    seen: Instant,
}

impl Tracker {
    /// Takes the problems of now, and returns what is to be told.
    pub fn step(
        &mut self,
        now: Instant,
        problems: impl Iterator<Item = Problem>,
        repeat: Option<Duration>,
    ) -> Vec<(Change, Problem)> {
        let mut changes = Vec::new();
        for problem in problems {
            let key = (problem.kind, problem.subject.clone());
            let is_full = self.0.len() >= MOST_PROBLEMS;
            match self.0.get_mut(&key) {
                Some(told) => {
                    told.seen = now;
                    told.problem = problem;
                    if repeat
                        .is_some_and(|repeat| now.saturating_duration_since(told.told) >= repeat)
                    {
                        told.told = now;
                        changes.push((Change::Lasts, told.problem.clone()));
                    }
                }
                None if !is_full => {
                    changes.push((Change::Begins, problem.clone()));
                    self.0.insert(key, Told { problem, told: now, seen: now });
                }
                None => {}
            }
        }
        self.0.retain(|_, told| {
            let lasts = now.saturating_duration_since(told.seen) < STEADY;
            if !lasts {
                changes.push((Change::Ends, told.problem.clone()));
            }
            lasts
        });
        changes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn problem(subject: u8) -> Problem {
        Problem { kind: Kind::Loss, subject: subject.to_string(), text: String::new() }
    }

    #[test]
    fn a_problem_is_told_when_it_begins_lasts_and_ends() {
        let (mut tracker, start) = (Tracker::default(), Instant::now());
        let minute = Some(Duration::from_secs(60));
        let mut step = |seconds: f64, there: bool| {
            let now = start + Duration::from_secs_f64(seconds);
            let told = tracker.step(now, there.then(|| problem(1)).into_iter(), minute);
            told.into_iter().map(|it| it.0).collect::<Vec<_>>()
        };
        assert_eq!(step(0.0, true), [Change::Begins]);
        assert_eq!(step(1.0, true), []);
        assert_eq!(step(2.0, false), []);
        assert_eq!(step(3.0, true), []);
        assert_eq!(step(60.0, true), [Change::Lasts]);
        assert_eq!(step(64.9, false), []);
        assert_eq!(step(65.0, false), [Change::Ends]);
        assert_eq!(step(66.0, true), [Change::Begins]);
    }

    proptest! {
        #[test]
        fn begins_and_ends_alternate(
            steps in prop::collection::vec((0_u8..4, any::<bool>(), 0_u64..10), 0..200)
        ) {
            let (mut tracker, mut now) = (Tracker::default(), Instant::now());
            let mut open = std::collections::BTreeSet::new();
            for (subject, there, seconds) in steps {
                now += Duration::from_secs(seconds);
                let current = there.then(|| problem(subject));
                for (change, problem) in tracker.step(now, current.into_iter(), None) {
                    match change {
                        Change::Begins => prop_assert!(open.insert(problem.subject)),
                        Change::Ends => prop_assert!(open.remove(&problem.subject)),
                        Change::Lasts => prop_assert!(false, "it is told once"),
                    }
                }
            }
        }
    }
}
