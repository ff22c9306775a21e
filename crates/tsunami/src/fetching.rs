//! Which blocks of a file a client has, and what it asks for, as a pure machine.

use std::time::Duration;

use crate::codec::{Feedback, Kind};
use crate::{REPORT, SILENCE};

/// The most blocks of a file, so that the list of those that are here takes 32 MiB.
pub const MOST_BLOCKS: u32 = 1 << 28;

/// Blocks asked for in one report, at most.
const MOST_ASKED: usize = 2048;

/// From so many missing blocks on, the server is asked to go back to the first of them.
const RESTART_FROM: u32 = 32_768;

/// The least time between two requests for the same blocks at the end of a file.
const SOON: Duration = Duration::from_millis(20);

/// The state of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Blocks are missing.
    Going,
    /// All blocks are here.
    Whole,
    /// The server is gone.
    Silent,
}

/// A file that arrives. Times count from its beginning.
#[derive(Debug)]
pub struct Fetching {
    blocks: u32,
    /// A bit for each block up to the highest that came.
    have: Vec<u64>,
    left: u32,
    /// All blocks below it are here.
    first_missing: u32,
    /// The block after the highest that came in order.
    front: u32,
    /// Blocks of `have` below the front.
    below: u32,
    /// The front when the server was asked to go back, until it does.
    restarted: Option<u32>,
    /// The last block came: nothing new follows.
    ended: bool,
    round_trip: Duration,
    reported: Duration,
    asked: Duration,
    heard: Duration,
    /// Blocks that came, and that were asked for, since the last report.
    came: u32,
    requested: u32,
    error_rate: f64,
    twice: u64,
    resends: u64,
}

impl Fetching {
    /// A file of at most [`MOST_BLOCKS`] blocks.
    pub fn new(blocks: u32, round_trip: Duration) -> Self {
        Self {
            blocks,
            have: Vec::new(),
            left: blocks,
            first_missing: 1,
            front: 1,
            below: 0,
            restarted: None,
            ended: false,
            round_trip,
            reported: Duration::ZERO,
            asked: Duration::ZERO,
            heard: Duration::ZERO,
            came: 0,
            requested: 0,
            error_rate: 0.0,
            twice: 0,
            resends: 0,
        }
    }

    /// Blocks that came more than once.
    pub fn twice(&self) -> u64 {
        self.twice
    }

    /// Blocks that were asked for again.
    pub fn resends(&self) -> u64 {
        self.resends
    }

    /// Blocks that are missing.
    pub fn left(&self) -> u32 {
        self.left
    }

    /// Takes a block. True if its bytes are to be written: it exists and is new.
    pub fn take(&mut self, at: Duration, number: u32, kind: Kind) -> bool {
        if number == 0 || number > self.blocks {
            return false;
        }
        self.heard = at;
        self.came += 1;
        self.move_front(number, kind);
        if self.has(number) {
            self.twice += u64::from(kind != Kind::Last);
            return false;
        }
        let word = (number - 1) as usize / 64;
        if word >= self.have.len() {
            self.have.resize(word + 1, 0);
        }
        self.have[word] |= 1 << ((number - 1) % 64);
        self.left -= 1;
        self.below += u32::from(number < self.front);
        while self.first_missing <= self.blocks && self.has(self.first_missing) {
            self.first_missing += 1;
        }
        true
    }

    /// Blocks before one that came in order are lost, unless they are here.
    fn move_front(&mut self, number: u32, kind: Kind) {
        if let Some(before) = self.restarted {
            // What was on the way when the server was asked has higher numbers.
            if kind == Kind::Resent || number >= before {
                return;
            }
            self.restarted = None;
        }
        self.ended |= kind == Kind::Last;
        if kind != Kind::Resent && number >= self.front {
            self.below += self.count(self.front, number);
            self.front = number + 1;
            // `take` counts the block itself only if it is new.
            self.below += u32::from(self.has(number));
        }
    }

    /// Blocks of `from..until` that are here.
    fn count(&self, from: u32, until: u32) -> u32 {
        // Blocks above the front came before a restart, or out of order: hardly ever, unless all of them are new.
        let highest = (self.have.len() as u32).saturating_mul(64).saturating_add(1);
        (from..until.min(highest)).filter(|number| self.has(*number)).count() as u32
    }

    fn has(&self, number: u32) -> bool {
        let word = self.have.get((number - 1) as usize / 64);
        word.is_some_and(|word| word >> ((number - 1) % 64) & 1 == 1)
    }

    /// Blocks below the front that are missing.
    fn missing(&self) -> u32 {
        self.front - 1 - self.below
    }

    /// The state now.
    pub fn state(&self, at: Duration) -> State {
        match self.left {
            0 => State::Whole,
            _ if at.saturating_sub(self.heard) >= SILENCE => State::Silent,
            _ => State::Going,
        }
    }

    /// What to tell the server now, if anything is due. `waiting` is the share of the receive buffer in use, 0 to 1.
    pub fn report(&mut self, at: Duration, waiting: f64) -> Vec<Feedback> {
        let mut told = Vec::new();
        let due = at.saturating_sub(self.reported) >= REPORT;
        let again = self.round_trip.saturating_mul(2).max(SOON);
        let soon = self.ended && at.saturating_sub(self.asked) >= again;
        if due || soon {
            self.ask(at, &mut told);
        }
        if due {
            self.reported = at;
            let (came, requested) = (f64::from(self.came), f64::from(self.requested));
            let share = requested / (1.0 + requested + came);
            self.error_rate =
                0.25 * self.error_rate + 0.75 * 50_000.0 * (share + waiting.clamp(0.0, 1.0));
            told.push(Feedback::ErrorRate(self.error_rate as u32));
            (self.came, self.requested) = (0, 0);
        }
        told
    }

    /// Asks for what is missing.
    fn ask(&mut self, at: Duration, told: &mut Vec<Feedback>) {
        let stuck = self.restarted.is_some();
        if stuck && at.saturating_sub(self.asked) < self.round_trip.saturating_mul(2) {
            return;
        }
        self.asked = at;
        if stuck || self.missing() >= RESTART_FROM {
            let high = self.restarted.unwrap_or(self.front - 1);
            self.restarted = Some(high.max(self.first_missing + 1));
            self.ended = false;
            self.front = self.first_missing;
            self.below = self.first_missing - 1;
            self.requested += 2048;
            return told.push(Feedback::Restart(self.first_missing));
        }
        let lost = (self.first_missing..self.front).filter(|number| !self.has(*number));
        told.extend(lost.take(MOST_ASKED).map(Feedback::Resend));
        self.requested += told.len() as u32;
        self.resends += told.len() as u64;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::Parameters;
    use crate::pace::{Next, Pace};

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn lost_blocks_are_asked_for_and_the_rest_is_not() {
        let mut fetching = Fetching::new(10, MS);
        for number in [1, 2, 5, 6] {
            assert!(fetching.take(MS, number, Kind::Original), "{number}");
        }
        assert!(!fetching.take(MS, 6, Kind::Original), "it is here");
        assert_eq!(fetching.report(100 * MS, 0.0), [], "nothing is due");
        let told = fetching.report(350 * MS, 0.0);
        assert_eq!(told[..2], [Feedback::Resend(3), Feedback::Resend(4)]);
        // ¾ × 50000 × 2 ÷ (1 + 2 + 5)
        assert_eq!(told[2..], [Feedback::ErrorRate(9375)]);
        assert!(fetching.take(360 * MS, 3, Kind::Resent));
        assert!(fetching.take(360 * MS, 10, Kind::Last));
        let told = fetching.report(381 * MS, 0.0);
        assert_eq!(told, [4, 7, 8, 9].map(Feedback::Resend), "soon after the end");
        for number in [4, 7, 8, 9] {
            fetching.take(390 * MS, number, Kind::Resent);
        }
        assert_eq!(fetching.state(390 * MS), State::Whole);
        assert_eq!((fetching.twice(), fetching.resends()), (1, 6));
    }

    #[test]
    fn blocks_that_do_not_exist_are_ignored() {
        let mut fetching = Fetching::new(10, MS);
        for number in [0, 11, u32::MAX] {
            assert!(!fetching.take(MS, number, Kind::Original));
        }
        assert!(fetching.have.is_empty());
        assert_eq!(fetching.state(15_000 * MS), State::Silent);
    }

    #[test]
    fn after_many_losses_the_server_goes_back_once() {
        let mut fetching = Fetching::new(200_000, MS);
        fetching.take(MS, 1, Kind::Original);
        fetching.take(MS, 100_000, Kind::Original);
        let told = fetching.report(350 * MS, 0.0);
        assert_eq!(told[0], Feedback::Restart(2));
        // A block that was on the way does not count as the new flow.
        assert!(fetching.take(351 * MS, 100_001, Kind::Original));
        assert_eq!(fetching.missing(), 0);
        for number in 2..=1000 {
            assert!(fetching.take(360 * MS, number, Kind::Original));
        }
        let told = fetching.report(700 * MS, 0.0);
        assert!(matches!(told[..], [Feedback::ErrorRate(_)]), "{told:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Both machines together, over a path that loses and delays: everything arrives, in bounded time.
        #[test]
        fn everything_arrives_over_any_path(
            blocks in 1u32..3000,
            lost in 0u32..400,
            delay in 0u64..100,
            mut seed in any::<u64>(),
        ) {
            let parameters = Parameters::usual(1000, 80_000_000);
            let mut pace = Pace::new(blocks, parameters);
            let round_trip = Duration::from_millis(2 * delay);
            let mut fetching = Fetching::new(blocks, round_trip);
            let mut wire = std::collections::VecDeque::new();
            let mut back = std::collections::VecDeque::new();
            let mut seen = std::collections::BTreeSet::new();
            for tick in 0..200_000u64 {
                let at = Duration::from_micros(500 * tick);
                while back.front().is_some_and(|(due, _)| *due <= at) {
                    let (_, feedback) = back.pop_front().unwrap();
                    pace.hear(at, feedback);
                    pace.hurry(at);
                }
                while let Next::Send(number, kind) = pace.next(at) {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    if (seed >> 33) % 1000 >= u64::from(lost) {
                        wire.push_back((at + Duration::from_millis(delay), number, kind));
                    }
                }
                prop_assert!(pace.next(at) != Next::Silent);
                while wire.front().is_some_and(|(due, ..)| *due <= at) {
                    let (_, number, kind) = wire.pop_front().unwrap();
                    if fetching.take(at, number, kind) {
                        prop_assert!(seen.insert(number), "block {} twice", number);
                    }
                }
                if fetching.state(at) == State::Whole {
                    break;
                }
                for feedback in fetching.report(at, 0.0) {
                    back.push_back((at + Duration::from_millis(delay), feedback));
                }
            }
            prop_assert_eq!(fetching.left(), 0);
            prop_assert_eq!(seen.len() as u32, blocks);
        }
    }
}
