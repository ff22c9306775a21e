//! Which block a server sends next, and when, as a pure machine.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::SILENCE;
use crate::codec::{Feedback, Kind, Parameters};

/// The longest gap between two blocks, in µs.
const LONGEST_GAP: f64 = 10_000.0;

/// The gap after which the last block is repeated, at least, in µs.
const REPEAT_GAP: f64 = 10_000.0;

/// A client without a word for this long counts as one that loses everything.
const UNHEARD: Duration = Duration::from_millis(500);

/// All blocks are lost, as an error rate.
const EVERYTHING: u32 = 100_000;

/// Blocks that wait to be sent again, at most. A client that misses more asks again, or for a restart.
const MOST_RESENT: usize = 65_536;

/// Blocks that are late are made up for up to this time.
const MOST_LATE: Duration = Duration::from_millis(2);

/// The next step of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Send this block now.
    Send(u32, Kind),
    /// Nothing is due for this long.
    Wait(Duration),
    /// The client has all of it.
    Stopped,
    /// The client is gone.
    Silent,
}

/// A transfer of a file. Times count from its beginning.
#[derive(Debug)]
pub struct Pace {
    blocks: u32,
    parameters: Parameters,
    /// The block that follows.
    next: u32,
    resend: BTreeSet<u32>,
    /// Between two blocks, in µs.
    gap: f64,
    least_gap: f64,
    due: Duration,
    heard: Duration,
    /// The time for which silence was counted as loss.
    counted: Duration,
    stopped: bool,
    resent: u64,
}

impl Pace {
    /// A file of this many blocks, with parameters without a [fault](Parameters::fault).
    pub fn new(blocks: u32, parameters: Parameters) -> Self {
        let least_gap = 8e6 * f64::from(parameters.block) / f64::from(parameters.rate);
        Self {
            blocks,
            parameters,
            next: 1,
            resend: BTreeSet::new(),
            gap: (3.0 * least_gap).clamp(least_gap, LONGEST_GAP.max(least_gap)),
            least_gap,
            due: Duration::ZERO,
            heard: Duration::ZERO,
            counted: Duration::ZERO,
            stopped: false,
            resent: 0,
        }
    }

    /// Blocks that were sent again.
    pub fn resent(&self) -> u64 {
        self.resent
    }

    /// The gap between two blocks, in µs.
    pub fn gap(&self) -> f64 {
        self.gap
    }

    /// Takes a message of the client, whose numbers were checked.
    pub fn hear(&mut self, at: Duration, feedback: Feedback) {
        (self.heard, self.counted) = (at, at);
        match feedback {
            Feedback::Resend(block) => {
                if self.resend.len() < MOST_RESENT {
                    self.resend.insert(block);
                }
            }
            Feedback::Restart(block) => {
                self.next = block;
                self.resend.clear();
            }
            Feedback::Stop => self.stopped = true,
            Feedback::ErrorRate(rate) => self.adjust(rate),
        }
    }

    /// Widens or narrows the gap after a report of lost blocks.
    fn adjust(&mut self, rate: u32) {
        let Parameters { error_rate, slower, faster, .. } = self.parameters;
        let target = f64::from(error_rate.min(EVERYTHING - 1));
        let rate = f64::from(rate.min(EVERYTHING));
        self.gap *= if rate > target {
            let slower = f64::from(slower.0) / f64::from(slower.1) - 1.0;
            1.0 + slower * (1.0 + rate - target) / (f64::from(EVERYTHING) - target)
        } else {
            f64::from(faster.0) / f64::from(faster.1)
        };
        // A rate so low that its gap is longer than the longest is kept.
        self.gap = self.gap.min(LONGEST_GAP).max(self.least_gap);
    }

    /// The next step. After [`Next::Send`], the block counts as sent.
    pub fn next(&mut self, at: Duration) -> Next {
        if self.stopped {
            return Next::Stopped;
        }
        if at.saturating_sub(self.heard) >= SILENCE {
            return Next::Silent;
        }
        if at.saturating_sub(self.counted) >= UNHEARD {
            self.counted = at;
            self.adjust(EVERYTHING);
        }
        if at < self.due {
            return Next::Wait(self.due - at);
        }
        self.due = self.due.max(at.saturating_sub(MOST_LATE));
        let mut gap = self.gap;
        let next = match self.resend.pop_first() {
            Some(block) => {
                self.resent += 1;
                Next::Send(block, Kind::Resent)
            }
            None if self.next < self.blocks => {
                self.next += 1;
                Next::Send(self.next - 1, Kind::Original)
            }
            None => {
                gap = gap.max(REPEAT_GAP);
                Next::Send(self.blocks, Kind::Last)
            }
        };
        self.due += Duration::from_nanos((gap * 1000.0) as u64);
        next
    }

    /// Lets blocks that were asked for while the last block waits for its repetition go at once.
    pub fn hurry(&mut self, at: Duration) {
        let soon = at + Duration::from_nanos((self.gap * 1000.0) as u64);
        if !self.resend.is_empty() || self.next < self.blocks {
            self.due = self.due.min(soon);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn sent(pace: &mut Pace, at: Duration, most: usize) -> Vec<(u32, Kind)> {
        let mut all = Vec::new();
        while all.len() < most
            && let Next::Send(block, kind) = pace.next(at)
        {
            all.push((block, kind));
        }
        all
    }

    #[test]
    fn blocks_go_out_at_the_rate_and_the_last_is_repeated() {
        // 1000 bytes at 8 Mbit/s: a gap of 1 ms, three times that at first.
        let mut pace = Pace::new(3, Parameters::usual(1000, 8_000_000));
        assert_eq!(pace.next(Duration::ZERO), Next::Send(1, Kind::Original));
        assert_eq!(pace.next(Duration::ZERO), Next::Wait(3 * MS));
        assert_eq!(pace.next(3 * MS), Next::Send(2, Kind::Original));
        assert_eq!(pace.next(6 * MS), Next::Send(3, Kind::Last));
        assert_eq!(pace.next(6 * MS), Next::Wait(10 * MS));
        assert_eq!(pace.next(16 * MS), Next::Send(3, Kind::Last));
        pace.hear(16 * MS, Feedback::Resend(2));
        pace.hurry(16 * MS);
        assert_eq!(pace.next(19 * MS), Next::Send(2, Kind::Resent));
        pace.hear(20 * MS, Feedback::Restart(2));
        assert_eq!(sent(&mut pace, 30 * MS, 1), [(2, Kind::Original)]);
        pace.hear(30 * MS, Feedback::Stop);
        assert_eq!(pace.next(30 * MS), Next::Stopped);
        assert_eq!(pace.resent(), 1);
    }

    #[test]
    fn reports_change_the_gap_within_its_bounds() {
        let mut pace = Pace::new(1000, Parameters::usual(1000, 8_000_000));
        for _ in 0..20 {
            pace.hear(MS, Feedback::ErrorRate(7500));
        }
        assert_eq!(pace.gap(), 1000.0, "faster down to the rate asked for");
        pace.hear(MS, Feedback::ErrorRate(53_750));
        // 1 + (25/24 - 1) × (1 + 53750 - 7500) ÷ (100000 - 7500)
        assert!((pace.gap() - 1000.0 * (1.0 + 46_251.0 / 92_500.0 / 24.0)).abs() < 1e-9);
        for _ in 0..1000 {
            pace.hear(MS, Feedback::ErrorRate(u32::MAX));
        }
        assert_eq!(pace.gap(), LONGEST_GAP);
    }

    #[test]
    fn silence_slows_down_and_ends() {
        let mut pace = Pace::new(1_000_000, Parameters::usual(1000, 8_000_000));
        pace.next(Duration::ZERO);
        let before = pace.gap();
        pace.next(499 * MS);
        assert_eq!(pace.gap(), before);
        pace.next(500 * MS);
        assert!(pace.gap() > before);
        assert!(matches!(pace.next(14_999 * MS), Next::Send(..)));
        assert_eq!(pace.next(15_000 * MS), Next::Silent);
    }

    #[test]
    fn a_late_server_makes_up_for_little() {
        let mut pace = Pace::new(1_000_000, Parameters::usual(1000, 80_000_000));
        for _ in 0..20 {
            pace.hear(Duration::ZERO, Feedback::ErrorRate(0));
        }
        assert_eq!(sent(&mut pace, 400 * MS, 1000).len(), 21, "2 ms of blocks every 100 µs");
    }

    #[test]
    fn what_waits_to_be_sent_again_is_bounded_and_sent_once() {
        let mut pace = Pace::new(1_000_000, Parameters::usual(1000, 8_000_000));
        for block in 1..=200_000 {
            pace.hear(Duration::ZERO, Feedback::Resend(block));
            pace.hear(Duration::ZERO, Feedback::Resend(block));
        }
        assert_eq!(pace.resend.len(), MOST_RESENT);
    }
}
