//! What is to be done for a schedule now. Pure: the time, and what is known of its recorder, are passed in.

use std::time::Duration;

use fullbore_time::Tai;

/// The pause after the first recorder that died, and after each further one twice as long.
pub const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// The longest pause.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A recorder that ran so long was not refused: the next pause is short again.
pub const RAN_WELL: Duration = Duration::from_secs(60);

/// What is known of the recorder of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorder {
    /// None was started by this daemon, or found.
    None,
    /// It runs.
    Runs,
    /// It closed the account of its session: all scans are over, or somebody has stopped it.
    Finished,
    /// It died, or was refused.
    Died,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// Nothing, or nothing yet.
    Nothing,
    /// Start a recorder.
    Start,
    /// Somebody else has stopped the recorder: the schedule counts as cancelled.
    Cancel,
    /// The last scan is over, and no recorder runs: the schedule is done.
    Forget,
}

/// The starts of the recorder of one schedule.
#[derive(Clone, Copy, Debug, Default)]
pub struct Starts {
    /// The last start.
    last: Option<Tai>,
    /// Starts one after the other that did not run well.
    failed: u32,
}

impl Starts {
    /// Decides. `end` is the end of the last scan.
    pub fn duty(&self, now: Tai, end: Tai, cancelled: bool, recorder: Recorder) -> Duty {
        match recorder {
            Recorder::Runs => Duty::Nothing,
            Recorder::None | Recorder::Finished | Recorder::Died if now >= end => Duty::Forget,
            Recorder::None | Recorder::Finished | Recorder::Died if cancelled => Duty::Nothing,
            Recorder::Finished => Duty::Cancel,
            Recorder::None | Recorder::Died => match self.may_start(now) {
                true => Duty::Start,
                false => Duty::Nothing,
            },
        }
    }

    fn may_start(&self, now: Tai) -> bool {
        let Some(last) = self.last else { return true };
        // A clock that was set back does not keep the recorder from starting.
        let passed = now.since(last);
        passed < 0 || u128::from(passed.unsigned_abs()) >= self.pause().as_nanos()
    }

    fn pause(&self) -> Duration {
        match self.failed {
            0 => Duration::ZERO,
            failed => FIRST_PAUSE.saturating_mul(1 << (failed - 1).min(16)).min(LONGEST_PAUSE),
        }
    }

    /// A recorder is started.
    pub fn started(&mut self, now: Tai) {
        let ran = self.last.map(|last| now.since(last).unsigned_abs());
        let well = ran.is_none_or(|ran| u128::from(ran) >= RAN_WELL.as_nanos());
        self.failed = if well { 1 } else { self.failed.saturating_add(1) };
        self.last = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: f64) -> Tai {
        let start: Tai = "2026-11-22T18:00:00Z".parse().unwrap();
        start.plus_ns((seconds * 1e9) as i64)
    }

    #[test]
    fn a_recorder_that_dies_is_started_again_and_soon_less_often() {
        let mut starts = Starts::default();
        let (end, mut now, mut begun) = (at(1000.0), 0.0, Vec::new());
        while now < 200.0 {
            if starts.duty(at(now), end, false, Recorder::Died) == Duty::Start {
                starts.started(at(now));
                begun.push(now);
            }
            now += 0.1;
        }
        let pauses: Vec<f64> = begun.windows(2).map(|two| two[1] - two[0]).collect();
        assert!(pauses[0] < 1.0, "{pauses:?}");
        assert!(pauses.windows(2).all(|two| two[1] > two[0] - 0.2), "{pauses:?}");
        assert!(pauses.iter().all(|it| *it < LONGEST_PAUSE.as_secs_f64() + 0.2), "{pauses:?}");
    }

    #[test]
    fn a_recorder_that_ran_well_is_started_again_soon() {
        let mut starts = Starts::default();
        (0..10).for_each(|second| starts.started(at(f64::from(second))));
        starts.started(at(500.0));
        assert_eq!(starts.duty(at(500.6), at(1000.0), false, Recorder::Died), Duty::Start);
    }

    #[test]
    fn a_session_that_was_stopped_from_elsewhere_is_not_started_again() {
        let starts = Starts::default();
        assert_eq!(starts.duty(at(0.0), at(9.0), false, Recorder::Finished), Duty::Cancel);
        assert_eq!(starts.duty(at(0.0), at(9.0), true, Recorder::Finished), Duty::Nothing);
        assert_eq!(starts.duty(at(9.0), at(9.0), true, Recorder::None), Duty::Forget);
    }

    proptest! {
        /// Recorders die at any moment, the daemon looks at any moment, and the clock is set now and then.
        #[test]
        fn one_recorder_runs_at_most_and_none_for_a_cancelled_or_finished_schedule(
            steps in prop::collection::vec((0_u8..6, 0.0..20.0_f64), 0..200)
        ) {
            let (mut starts, mut recorder, mut cancelled) = (Starts::default(), Recorder::None, false);
            let (mut now, end) = (0.0, 600.0);
            for (step, time) in steps {
                match step {
                    0 if recorder == Recorder::Runs => recorder = Recorder::Died,
                    1 if recorder == Recorder::Runs => recorder = Recorder::Finished,
                    2 => now = (now - time).max(0.0),
                    3 if time < 1.0 => cancelled = true,
                    _ => now += time,
                }
                match starts.duty(at(now), at(end), cancelled, recorder) {
                    Duty::Start => {
                        prop_assert!(recorder != Recorder::Runs && !cancelled && now < end);
                        starts.started(at(now));
                        recorder = Recorder::Runs;
                    }
                    Duty::Forget => prop_assert!(recorder != Recorder::Runs && now >= end),
                    Duty::Cancel => { cancelled = true; }
                    Duty::Nothing => {}
                }
            }
            // Left alone, a schedule with scans ahead has a recorder in the end.
            let later = now + LONGEST_PAUSE.as_secs_f64() + RAN_WELL.as_secs_f64();
            if recorder == Recorder::Died && !cancelled && later < end {
                prop_assert_eq!(starts.duty(at(later), at(end), cancelled, recorder), Duty::Start);
            }
        }
    }
}
