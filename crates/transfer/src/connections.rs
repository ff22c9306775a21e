//! How many connections a transfer uses, as a pure state machine: more as long as more help.
//!
//! One connection carries at most its window per round trip, and a loss on it slows down only its share. Each further
//! connection costs memory and a thread, so none is added that does not raise the rate.

use std::time::Duration;

/// Round trips above this are those of a WAN.
pub const WAN: Duration = Duration::from_millis(2);

/// A further step must raise the rate by this factor to be kept.
const WORTH: f64 = 1.05;

/// Periods after which the number is tried again.
const AGAIN: u32 = 30;

/// The number of connections.
#[derive(Clone, Debug)]
pub struct Connections {
    now: u16,
    most: u16,
    /// The best rate so far, and the number of connections that had it.
    best: (f64, u16),
    /// Periods since the last step, or since the number settled.
    settled: Option<u32>,
}

impl Connections {
    /// Begins with few connections.
    pub fn new(round_trip: Duration, most: u16) -> Self {
        let begin = if round_trip > WAN { 4 } else { 2 };
        let now = begin.min(most).max(1);
        Self { now, most: most.max(1), best: (0.0, now), settled: None }
    }

    /// A number that the user chose.
    pub fn fixed(number: u16) -> Self {
        let number = number.max(1);
        Self { now: number, most: number, best: (0.0, number), settled: Some(0) }
    }

    /// The number of connections to use.
    pub fn number(&self) -> u16 {
        self.now
    }

    /// Takes the rate of a period of about two seconds, in which the link and nothing else was the limit. Returns the
    /// number of connections for the next one.
    pub fn step(&mut self, rate: f64) -> u16 {
        if let Some(periods) = &mut self.settled {
            *periods += 1;
            if *periods < AGAIN || self.now == self.most {
                return self.now;
            }
            self.best = (rate, self.now);
            self.settled = None;
            return self.more();
        }
        if rate < self.best.0 * WORTH {
            self.now = self.best.1;
            self.settled = Some(0);
            return self.now;
        }
        self.best = (rate, self.now);
        self.more()
    }

    fn more(&mut self) -> u16 {
        self.now = (self.now + self.now.div_ceil(2)).min(self.most);
        if self.now == self.best.1 {
            self.settled = Some(0);
        }
        self.now
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A link on which each connection carries `each`, and all together `limit`.
    fn settle(round_trip: Duration, most: u16, each: f64, limit: f64) -> u16 {
        let mut connections = Connections::new(round_trip, most);
        for _ in 0..20 {
            let rate = (f64::from(connections.number()) * each).min(limit);
            connections.step(rate);
        }
        connections.number()
    }

    #[test]
    fn a_fast_lan_keeps_two() {
        assert_eq!(settle(Duration::from_micros(100), 16, 2e9, 1.2e9), 2);
    }

    #[test]
    fn a_window_per_connection_takes_as_many_as_help() {
        let number = settle(Duration::from_millis(100), 32, 26e6, 330e6);
        assert!((13..=20).contains(&number), "{number} connections for 13 windows");
    }

    #[test]
    fn a_chosen_number_stays() {
        let mut connections = Connections::fixed(3);
        for period in 0..100 {
            assert_eq!(connections.step(f64::from(period)), 3);
        }
    }

    proptest! {
        #[test]
        fn the_number_stays_in_bounds(most in 1_u16..64, rates in prop::collection::vec(0.0..1e10_f64, 0..200)) {
            let mut connections = Connections::new(Duration::from_millis(50), most);
            for rate in rates {
                let number = connections.step(rate);
                prop_assert!((1..=most).contains(&number));
            }
        }
    }
}
