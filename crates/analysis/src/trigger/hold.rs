//! When a trigger begins and how long it lasts: a state machine over times at which a condition is fulfilled or not.
//!
//! ```text
//!             fulfilled: begin                      not fulfilled for the hold-off, or the trigger is full
//! Armed ───────────────────────► Triggered ──────┐
//!   ▲                            fulfilled: extend │
//!   │      not fulfilled for the hold-off          ▼
//!   └──────────────────────────────────────────── Full
//! ```
//!
//! While it is triggered, the condition is the relaxed one, so that noise around the threshold is one trigger. Time without
//! samples fulfils no condition, so a pause of the hold-off arms it again.

/// Times of a stream, in nanoseconds.
pub type StreamNs = i64;

/// The times of a hold, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldTimes {
    /// The condition is not fulfilled for this long before another trigger can begin.
    pub off_ns: i64,
    /// A trigger is extended for at most this long.
    pub longest_ns: i64,
}

/// What becomes of the trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A trigger begins at this time.
    Begin(StreamNs),
    /// The condition is still fulfilled at this time.
    Extend(StreamNs),
}

/// The state of a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The condition begins a trigger.
    Armed,
    /// It began one.
    Triggered {
        since: StreamNs,
        /// The latest time at which it was fulfilled.
        last: StreamNs,
    },
    /// It has extended the trigger to its longest length.
    Full {
        /// The latest time at which it was fulfilled.
        last: StreamNs,
    },
}

/// Decides when a trigger begins, and when it is extended.
#[derive(Clone, Debug)]
pub struct Hold {
    times: HoldTimes,
    state: State,
}

impl Hold {
    /// A hold that is armed.
    pub fn new(times: HoldTimes) -> Self {
        Self { times, state: State::Armed }
    }

    /// A hold of the same times that is armed.
    pub fn anew(&self) -> Self {
        Self::new(self.times)
    }

    /// True if a trigger can begin: the condition counts as it is, and is not relaxed.
    pub fn is_armed(&self) -> bool {
        self.state == State::Armed
    }

    /// Takes a time of this length of which nothing is known: samples did not come, or were not looked at.
    pub fn pause(&mut self, length_ns: i64) {
        if length_ns > 0 && length_ns >= self.times.off_ns {
            self.state = State::Armed;
        }
    }

    /// Takes whether the condition was fulfilled at a time. Times do not decrease.
    pub fn step(&mut self, at: StreamNs, fulfilled: bool) -> Option<Change> {
        match (self.state, fulfilled) {
            (State::Armed, false) => None,
            (State::Armed, true) => {
                self.state = State::Triggered { since: at, last: at };
                Some(Change::Begin(at))
            }
            (State::Triggered { since, .. }, true) if at - since > self.times.longest_ns => {
                self.state = State::Full { last: at };
                None
            }
            (State::Triggered { since, .. }, true) => {
                self.state = State::Triggered { since, last: at };
                Some(Change::Extend(at))
            }
            (State::Full { .. }, true) => {
                self.state = State::Full { last: at };
                None
            }
            (State::Triggered { last, .. } | State::Full { last }, false) => {
                if at - last >= self.times.off_ns {
                    self.state = State::Armed;
                }
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn changes(times: HoldTimes, steps: &[(StreamNs, bool)]) -> Vec<Change> {
        let mut hold = Hold::new(times);
        steps.iter().filter_map(|(at, fulfilled)| hold.step(*at, *fulfilled)).collect()
    }

    #[test]
    fn a_trigger_is_extended_until_the_hold_off_and_not_beyond_its_longest_length() {
        let times = HoldTimes { off_ns: 3, longest_ns: 5 };
        let at = |fulfilled: &str| -> Vec<(StreamNs, bool)> {
            (0..).zip(fulfilled.chars()).map(|(at, sign)| (at, sign == '#')).collect()
        };
        use Change::{Begin, Extend};
        assert_eq!(changes(times, &at("..#.#..#..")), [Begin(2), Extend(4), Extend(7)]);
        assert_eq!(changes(times, &at("#...#")), [Begin(0), Begin(4)]);
        let full = changes(times, &at("#########...#"));
        let extended = (1..=5).map(Extend);
        let wanted: Vec<Change> =
            [Begin(0)].into_iter().chain(extended).chain([Begin(12)]).collect();
        assert_eq!(full, wanted);
    }

    #[test]
    fn a_pause_of_the_hold_off_arms_it_again() {
        // A sender that is silent except in events: every sample fulfils the condition.
        let mut hold = Hold::new(HoldTimes { off_ns: 10, longest_ns: 5 });
        let all: Vec<_> = (0..10).filter_map(|at| hold.step(at, true)).collect();
        assert_eq!((all[0], all.len()), (Change::Begin(0), 6));
        hold.pause(9);
        assert_eq!(hold.step(19, true), None, "the pause is shorter");
        hold.pause(10);
        assert_eq!(hold.step(30, true), Some(Change::Begin(30)));
        let mut at_once = Hold::new(HoldTimes { off_ns: 0, longest_ns: 5 });
        assert_eq!(at_once.step(0, true), Some(Change::Begin(0)));
        at_once.pause(0);
        assert_eq!(at_once.step(1, true), Some(Change::Extend(1)), "bins in a row are no pause");
    }

    proptest! {
        /// Every fulfilled time is covered by a trigger, except those behind its longest length. Two triggers have a pause
        /// between them that is as long as the hold-off.
        #[test]
        fn triggers_cover_what_is_fulfilled(
            steps in prop::collection::vec((1i64..4, any::<bool>()), 0..200),
            off_ns in 0i64..12,
            longest_ns in 0i64..40,
        ) {
            let times = HoldTimes { off_ns, longest_ns };
            let mut at = 0;
            let steps: Vec<(StreamNs, bool)> = steps
                .into_iter()
                .map(|(pause, fulfilled)| { at += pause; (at, fulfilled) })
                .collect();
            let mut hold = Hold::new(times);
            let (mut begun, mut covered_to, mut last) = (None, None, None);
            for (at, fulfilled) in steps {
                match hold.step(at, fulfilled) {
                    Some(Change::Begin(begin)) => {
                        prop_assert_eq!(begin, at);
                        prop_assert!(fulfilled);
                        prop_assert!(last.is_none_or(|last| at - last > off_ns));
                        (begun, covered_to) = (Some(at), Some(at));
                    }
                    Some(Change::Extend(to)) => {
                        prop_assert_eq!(to, at);
                        prop_assert!(fulfilled && at - begun.unwrap() <= longest_ns);
                        covered_to = Some(at);
                    }
                    None if fulfilled => prop_assert!(at - begun.unwrap() > longest_ns),
                    None => {}
                }
                if fulfilled {
                    prop_assert!(covered_to == Some(at) || at - begun.unwrap() > longest_ns);
                    last = Some(at);
                }
            }
        }
    }
}
