//! Finds the highest rate without loss by halving steps.
//!
//! ```text
//! rate ▲            ✗ lost
//!      │        ✗       ✗
//!      │    ✓       ✓ ──── confirmed: several trials in a row
//!      │ ✓                 with nothing lost
//!      └──────────────────────► trials
//! ```
//!
//! Confirmation detects a rate that held once by chance; then the next lower rate is tried.

use std::time::Duration;

/// The outcome of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All packets were received, at the requested rate.
    Held,
    /// Packets were lost.
    Lost,
    /// The sender did not reach the rate, so the trial does not test the receiver.
    NotReached,
}

/// The range of the search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// The first rate, in bytes per second.
    pub start: f64,
    /// The highest rate that is tried.
    pub most: f64,
    /// The smallest step, as a share of the rate.
    pub precision: f64,
    /// The duration of a trial; confirmations are twice as long.
    pub time: Duration,
    /// The number of trials that confirm a rate.
    pub confirmations: usize,
}

/// The result of the search.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The highest confirmed rate; 0 if even the lowest had losses.
    pub rate: f64,
    /// The lowest rate that did not hold, and its outcome, if there was one.
    pub above: Option<(f64, Outcome)>,
}

/// The lowest rate tried: 1 MB/s.
const LEAST: f64 = 1e6;

/// The most steps down during confirmation.
const MOST_STEPS_DOWN: usize = 12;

/// Runs the search. `trial` gets the rate, the time and the confirmation flag; `None` from it ends the search.
pub fn search<E>(
    range: &Range,
    mut trial: impl FnMut(f64, Duration, bool) -> Result<Option<Outcome>, E>,
) -> Result<Found, E> {
    let mut held = 0.0;
    let mut above: Option<(f64, Outcome)> = None;
    let mut rate = range.start.clamp(LEAST, range.most.max(LEAST));
    // Doubles, then halves, until one rate holds and another does not.
    loop {
        match trial(rate, range.time, false)? {
            None => return Ok(Found { rate: 0.0, above }),
            Some(Outcome::Held) => held = rate,
            Some(other) => above = Some((rate, other)),
        }
        rate = match above {
            None if rate >= range.most => break,
            None => (rate * 2.0).min(range.most),
            Some(_) if held > 0.0 => break,
            Some((failed, _)) if failed <= LEAST => return Ok(Found { rate: 0.0, above }),
            Some((failed, _)) => (failed / 2.0).max(LEAST),
        };
    }
    while let Some((failed, _)) = above
        && (failed - held) / held > range.precision
    {
        let middle = (failed + held) / 2.0;
        match trial(middle, range.time, false)? {
            None => return Ok(Found { rate: 0.0, above }),
            Some(Outcome::Held) => held = middle,
            Some(other) => above = Some((middle, other)),
        }
    }
    confirm(range, held, above, trial)
}

fn confirm<E>(
    range: &Range,
    mut held: f64,
    mut above: Option<(f64, Outcome)>,
    mut trial: impl FnMut(f64, Duration, bool) -> Result<Option<Outcome>, E>,
) -> Result<Found, E> {
    for _ in 0..MOST_STEPS_DOWN {
        let mut firm = true;
        for _ in 0..range.confirmations {
            match trial(held, range.time * 2, true)? {
                None => return Ok(Found { rate: 0.0, above }),
                Some(Outcome::Held) => {}
                Some(other) => {
                    above = Some((held, other));
                    firm = false;
                    break;
                }
            }
        }
        if firm {
            return Ok(Found { rate: held, above });
        }
        held *= 1.0 - range.precision.clamp(0.01, 0.5) * 2.0;
        if held < LEAST {
            break;
        }
    }
    Ok(Found { rate: 0.0, above })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range(start: f64) -> Range {
        Range { start, most: 1e11, precision: 0.05, time: Duration::from_secs(1), confirmations: 3 }
    }

    #[test]
    fn a_rate_that_held_by_luck_is_not_believed() {
        // Holds 1 GB/s for a second, but not for two.
        let found = search::<()>(&range(1e8), |rate, time, _| {
            let limit = if time > Duration::from_secs(1) { 7e8 } else { 1e9 };
            Ok(Some(if rate <= limit { Outcome::Held } else { Outcome::Lost }))
        })
        .unwrap();
        assert!(found.rate <= 7e8 && found.rate > 5e8, "{found:?}");
    }

    #[test]
    fn a_sender_that_is_too_slow_is_told_apart_from_loss() {
        let slow = |rate: f64, _, _| {
            Ok::<_, ()>(Some(if rate <= 3e8 { Outcome::Held } else { Outcome::NotReached }))
        };
        let found = search(&range(1e9), slow).unwrap();
        assert_eq!(found.above.map(|above| above.1), Some(Outcome::NotReached));
    }

    #[test]
    fn a_path_that_loses_everything_ends_with_nothing() {
        let found = search::<()>(&range(1e9), |_, _, _| Ok(Some(Outcome::Lost))).unwrap();
        assert_eq!(found.rate, 0.0);
        let stopped = search::<()>(&range(1e9), |_, _, _| Ok(None)).unwrap();
        assert_eq!(stopped.rate, 0.0);
    }

    proptest! {
        #[test]
        fn the_limit_is_found_from_wherever_it_begins(limit in 2e6f64..9e10, start in 1e6f64..9e10) {
            let mut trials = 0;
            let found = search::<()>(&range(start), |rate, _, _| {
                trials += 1;
                Ok(Some(if rate <= limit { Outcome::Held } else { Outcome::Lost }))
            })
            .unwrap();
            prop_assert!(found.rate <= limit && found.rate >= limit / 1.06, "{found:?} for {limit}");
            prop_assert!(trials < 40, "{trials} trials");
        }
    }
}
