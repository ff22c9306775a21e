//! Ends the start of BBR, which lasts as long as its sender has pauses.
//!
//! ```text
//! first second ──► BBR still starts: at most 1.05 of the best rate so far ──► it has ended: no limit
//! ```
//!
//! BBR begins with 2.89 times the rate that it measures, until that rate stops rising. Measurements with a pause in them
//! do not count, and a sender that reads from a disk and encrypts has pauses: it seldom manages 2.89 times the rate of
//! the path. BBR then keeps this gain, and the bottleneck drops up to half of what was sent. Under the limit, data waits
//! in the kernel, BBR sees no pauses, and its start ends.

use std::collections::VecDeque;
use std::time::Duration;

/// Time between two measurements.
pub const PERIOD: Duration = Duration::from_millis(500);

/// The first periods, in which BBR may look for the rate alone.
const ALONE: u32 = 2;

/// The best rate is that of so many periods. The rate of the path may have fallen since an earlier one.
const WINDOW: usize = 20;

/// The start of one connection.
#[derive(Clone, Debug, Default)]
pub struct Start {
    periods: u32,
    /// Bytes per second in the last periods.
    rates: VecDeque<u64>,
}

impl Start {
    /// Takes the bytes per second acknowledged in a period, if there was something to send, and whether BBR still starts.
    /// Returns the most bytes per second in the next one. A connection that had nothing to send has no limit: it leaves
    /// no queue, and the rate of its next block is not known.
    pub fn step(&mut self, rate: Option<u64>, is_starting: bool) -> Option<u64> {
        let rate = rate?;
        self.periods = self.periods.saturating_add(1);
        self.rates.push_back(rate);
        if self.rates.len() > WINDOW {
            self.rates.pop_front();
        }
        let best = self.rates.iter().copied().max().filter(|&best| best > 0)?;
        (is_starting && self.periods > ALONE).then(|| best.saturating_add(best / 20))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(start: &mut Start, periods: u32, rate: u64, is_starting: bool) -> Option<u64> {
        let mut limit = None;
        for _ in 0..periods {
            limit = start.step(Some(rate), is_starting);
        }
        limit
    }

    #[test]
    fn the_first_second_and_a_start_that_has_ended_have_no_limit() {
        let mut start = Start::default();
        assert_eq!(run(&mut start, ALONE, 1000, true), None);
        assert_eq!(run(&mut start, 1, 1000, true), Some(1050));
        assert_eq!(run(&mut start, 1, 1000, false), None);
    }

    #[test]
    fn a_pause_does_not_lower_the_limit_and_a_slower_path_does() {
        let mut start = Start::default();
        run(&mut start, 5, 1000, true);
        assert_eq!(run(&mut start, 10, 0, true), Some(1050));
        assert_eq!(run(&mut start, WINDOW as u32, 400, true), Some(420));
    }

    #[test]
    fn a_connection_with_nothing_to_send_has_no_limit() {
        let mut start = Start::default();
        assert_eq!(run(&mut start, 10, 1000, true), Some(1050));
        assert_eq!(start.step(None, true), None);
        assert_eq!(run(&mut start, 1, 1000, true), Some(1050));
    }

    #[test]
    fn a_connection_that_has_sent_nothing_has_no_limit() {
        assert_eq!(run(&mut Start::default(), 50, 0, true), None);
    }
}
