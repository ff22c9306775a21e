//! The next step of a schedule: wait, arm the next scan, or report a missed one.
//!
//! ```text
//!           start − lead         start                 end
//!  ── Wait ──────┼────── Arm ──────┼──── Arm, late ─────┼──── Missed ──
//! ```
//!
//! The clock may jump either way between two calls. A scan that was armed or missed is never returned again, and a scan
//! that the clock has jumped over is reported as missed.
//!
//! The agenda also tracks the running scan. If a reloaded schedule puts another scan into its time, the running scan
//! ends early enough to arm the other one.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use fullbore_time::Tai;

use super::{Planned, Schedule};
use crate::name::Name;

/// A schedule in progress.
#[derive(Clone, Debug)]
pub struct Agenda {
    /// Future scans, in the order of their starts.
    ahead: VecDeque<Planned>,
    /// Scans that were armed or missed, by name.
    behind: BTreeMap<Name, Planned>,
    /// The armed scan, until it is over.
    running: Option<Planned>,
    /// The time before its start at which a scan is armed.
    lead: Duration,
}

/// The end time of the running scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The running scan.
    pub scan: Planned,
    /// Its end time.
    pub until: Tai,
    /// The next scan that begins within its time, for which it must make room.
    pub before: Option<Planned>,
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Wait, at most until this time, when `scan` is to be armed.
    Wait {
        /// Time of the next call.
        until: Tai,
        /// The next scan.
        scan: Planned,
    },
    /// Arm this scan now; it begins at its start, or at once if that has passed.
    Arm {
        /// The scan.
        scan: Planned,
        /// The part of it that has already passed.
        late: Duration,
    },
    /// This scan ended before it could be armed.
    Missed {
        /// The scan.
        scan: Planned,
    },
    /// No scan is left.
    Finished,
}

/// The changes by a reloaded schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Scans that are new or have another time.
    pub added: Vec<Name>,
    /// Scans that were removed.
    pub removed: Vec<Name>,
    /// Scans that were already armed or missed and have another time in the new text: they stay unchanged.
    pub too_late: Vec<Name>,
}

impl Agenda {
    /// Returns an agenda that begins with the first scan. Each scan is armed `lead` before its start.
    pub fn new(schedule: Schedule, lead: Duration) -> Self {
        Self { ahead: schedule.scans.into(), behind: BTreeMap::new(), running: None, lead }
    }

    /// Returns the future scans.
    pub fn ahead(&self) -> impl ExactSizeIterator<Item = &Planned> {
        self.ahead.iter()
    }

    /// True if a scan of this name is planned, or was.
    pub fn knows(&self, name: &Name) -> bool {
        self.behind.contains_key(name) || self.ahead.iter().any(|scan| scan.name == *name)
    }

    /// Returns the step at `now`. A scan that is returned as armed or missed is not returned again.
    pub fn step(&mut self, now: Tai) -> Step {
        let Some(next) = self.ahead.front() else { return Step::Finished };
        let arm_at = self.arm_at(next);
        if now < arm_at {
            return Step::Wait { until: arm_at, scan: next.clone() };
        }
        let scan = self.ahead.pop_front().expect("it was looked at above");
        self.behind.insert(scan.name.clone(), scan.clone());
        if now >= scan.end {
            return Step::Missed { scan };
        }
        let late = Duration::from_nanos(now.since(scan.start).max(0) as u64);
        self.running = Some(scan.clone());
        Step::Arm { scan, late }
    }

    fn arm_at(&self, scan: &Planned) -> Tai {
        scan.start.plus_ns(-(self.lead.as_nanos().min(i64::MAX as u128) as i64))
    }

    /// Returns the time from the end of a scan until the next one is armed; `None` if no scan follows.
    pub fn pause_after(&self, scan: &Planned) -> Option<Duration> {
        let next = self.ahead.iter().find(|next| next.start > scan.start)?;
        let pause_ns = self.arm_at(next).since(scan.end).max(0);
        Some(Duration::from_nanos(pause_ns.unsigned_abs()))
    }

    /// Marks the armed scan as over.
    pub fn over(&mut self) {
        self.running = None;
    }

    /// Returns the running scan, and its end time. A future scan that begins within its time is armed in time for its
    /// start, and ends the running scan by then. A scan with an earlier start is too late for that.
    pub fn run(&self) -> Option<Run> {
        let scan = self.running.clone()?;
        let before = self.ahead.iter().find(|next| next.start > scan.start);
        let before = before.filter(|next| next.start < scan.end).cloned();
        let until = before.as_ref().map_or(scan.end, |next| self.arm_at(next).max(scan.start));
        Some(Run { scan, until, before })
    }

    /// Replaces the future scans by those of a reloaded schedule. Armed and missed scans stay unchanged.
    pub fn replace(&mut self, schedule: Schedule) -> Changes {
        let mut changes = Changes::default();
        let mut before: BTreeMap<Name, Planned> =
            self.ahead.drain(..).map(|scan| (scan.name.clone(), scan)).collect();
        let starts: Vec<Tai> = schedule.scans.iter().map(|scan| scan.start).collect();
        for scan in schedule.scans {
            match self.behind.get(&scan.name) {
                Some(done) => {
                    // A scan that ends at the start of the next one was cut there: see `run`, if it is still running.
                    let cut = Planned { end: done.end.min(scan.end), ..done.clone() };
                    if *done != scan && !(cut == scan && starts.contains(&scan.end)) {
                        changes.too_late.push(scan.name);
                    }
                    continue;
                }
                None if before.remove(&scan.name).as_ref() != Some(&scan) => {
                    changes.added.push(scan.name.clone());
                }
                None => {}
            }
            self.ahead.push_back(scan);
        }
        changes.removed = before.into_keys().collect();
        changes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: i64 = 1_000_000_000;
    const LEAD: Duration = Duration::from_secs(5);

    /// Returns a schedule of scans with `(start, duration)` in seconds.
    fn schedule(scans: &[(i64, i64)]) -> Schedule {
        let planned = |(n, &(start, lasts)): (usize, &(i64, i64))| Planned {
            name: format!("no{n:04}").parse().unwrap(),
            start: Tai(start * SECOND),
            end: Tai((start + lasts) * SECOND),
            target: None,
        };
        Schedule { scans: scans.iter().enumerate().map(planned).collect(), ..Schedule::default() }
    }

    #[test]
    fn a_scan_is_armed_ahead_of_its_start() {
        let mut agenda = Agenda::new(schedule(&[(100, 40), (160, 40)]), LEAD);
        let Step::Wait { until, scan } = agenda.step(Tai(0)) else { panic!("it waits") };
        assert_eq!((until, scan.name.as_str()), (Tai(95 * SECOND), "no0000"));
        let Step::Arm { scan, late } = agenda.step(until) else { panic!("it arms") };
        assert_eq!((scan.name.as_str(), late), ("no0000", Duration::ZERO));
        assert!(matches!(agenda.step(Tai(140 * SECOND)), Step::Wait { .. }));
    }

    #[test]
    fn what_is_left_of_a_scan_is_recorded_and_what_is_over_is_missed() {
        let mut agenda = Agenda::new(schedule(&[(100, 40), (160, 40), (220, 40)]), LEAD);
        let now = Tai(170 * SECOND);
        assert!(
            matches!(agenda.step(now), Step::Missed { scan } if scan.name.as_str() == "no0000")
        );
        let Step::Arm { scan, late } = agenda.step(now) else { panic!("it arms") };
        assert_eq!((scan.name.as_str(), late), ("no0001", Duration::from_secs(10)));
        assert!(matches!(agenda.step(now), Step::Wait { .. }));
    }

    #[test]
    fn a_schedule_read_again_changes_only_what_lies_ahead() {
        let mut agenda = Agenda::new(schedule(&[(100, 40), (160, 40), (220, 40)]), LEAD);
        agenda.step(Tai(99 * SECOND));
        let changes = agenda.replace(schedule(&[(101, 40), (165, 40)]));
        let texts = |names: &[Name]| names.iter().map(Name::to_string).collect::<Vec<_>>();
        assert_eq!(texts(&changes.too_late), ["no0000"]);
        assert_eq!(texts(&changes.added), ["no0001"]);
        assert_eq!(texts(&changes.removed), ["no0002"]);
        assert_eq!(agenda.ahead().count(), 1);
        assert_eq!(agenda.replace(schedule(&[(101, 40), (165, 40)])).added, []);
    }

    #[test]
    fn a_scan_that_now_begins_within_the_one_that_runs_ends_it_in_time_to_be_armed() {
        let mut agenda = Agenda::new(schedule(&[(100, 40), (160, 40), (220, 40)]), LEAD);
        assert_eq!(agenda.run(), None);
        agenda.step(Tai(99 * SECOND));
        let until = |agenda: &Agenda| agenda.run().map(|run| run.until.0 / SECOND);
        assert_eq!(until(&agenda), Some(140));
        let changes = agenda.replace(schedule(&[(100, 20), (120, 40), (220, 40)]));
        assert_eq!(changes.too_late, [], "it is cut where the next begins");
        let run = agenda.run().unwrap();
        assert_eq!((run.scan.name.as_str(), run.until), ("no0000", Tai(115 * SECOND)));
        assert_eq!(run.before.unwrap().name.as_str(), "no0001");
        // Reloaded once more, with room for all of it: it continues.
        agenda.replace(schedule(&[(100, 40), (140, 40)]));
        assert_eq!((until(&agenda), agenda.run().unwrap().before), (Some(140), None));
        agenda.over();
        assert_eq!(agenda.run(), None);
    }

    proptest! {
        /// For any scans of a reloaded schedule, the running one ends in time for the next, and is not ended without
        /// need.
        #[test]
        fn the_scan_that_runs_makes_room_for_the_next(
            lasts in 1i64..100,
            scans in prop::collection::vec((1i64..100, 1i64..50), 0..5),
        ) {
            let mut agenda = Agenda::new(schedule(&[(100, lasts)]), LEAD);
            agenda.step(Tai(100 * SECOND));
            let mut at = 50;
            let mut placed = vec![(100, lasts)];
            for (pause, lasts) in scans {
                at += pause + lasts;
                placed.push((at - lasts, lasts));
            }
            agenda.replace(schedule(&placed));
            let run = agenda.run().unwrap();
            let next = agenda.ahead().find(|next| next.start > run.scan.start);
            prop_assert!(run.scan.start <= run.until && run.until <= run.scan.end);
            match next {
                Some(next) if next.start < run.scan.end => {
                    prop_assert_eq!(run.until, next.start.plus_ns(-5 * SECOND).max(run.scan.start));
                }
                _ => prop_assert_eq!(run.until, run.scan.end),
            }
        }

        /// For any clock, each scan is armed or missed once, in order, and never at a wrong time.
        #[test]
        fn each_scan_has_its_turn_once(
            scans in prop::collection::vec((0i64..50, 1i64..50), 1..12),
            clock in prop::collection::vec(-100i64..2_000, 0..200),
        ) {
            let mut at = 0;
            let mut placed = Vec::new();
            for (pause, lasts) in scans {
                placed.push((at + pause, lasts));
                at += pause + lasts;
            }
            let mut agenda = Agenda::new(schedule(&placed), LEAD);
            let mut given = Vec::new();
            for seconds in clock.into_iter().chain(std::iter::repeat_n(i64::from(i16::MAX), placed.len())) {
                let now = Tai(seconds * SECOND);
                match agenda.step(now) {
                    Step::Wait { until, scan } => {
                        prop_assert!(now < until && until < scan.start);
                    }
                    Step::Arm { scan, late } => {
                        prop_assert!(now >= scan.start.plus_ns(-5 * SECOND) && now < scan.end);
                        prop_assert_eq!(late.as_nanos() as i64, now.since(scan.start).max(0));
                        given.push(scan.name);
                    }
                    Step::Missed { scan } => {
                        prop_assert!(now >= scan.end);
                        given.push(scan.name);
                    }
                    Step::Finished => prop_assert_eq!(given.len(), placed.len()),
                }
            }
            let names: Vec<Name> = schedule(&placed).scans.into_iter().map(|scan| scan.name).collect();
            prop_assert_eq!(given, names);
        }
    }
}
