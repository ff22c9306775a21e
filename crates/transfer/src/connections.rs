//! How many connections a transfer uses, as a pure state machine: more as long as more help.
//!
//! One connection carries at most its window per round trip, and a loss on it slows down only its share. Each further
//! connection costs memory and a thread, so none is added that does not raise the rate.

/// The first number. Two connections of one thread each do not fill a fast LAN from a disk.
const FIRST: u16 = 4;

/// The first number on a WAN. There, CUBIC on one connection stays below the rate of the path for seconds after a loss, and
/// the others fill the gap.
pub const FIRST_ON_WAN: u16 = 16;

/// A further step must raise the rate by this factor to be kept.
const WORTH: f64 = 1.05;

/// Periods after which the number is tried again.
const AGAIN: u32 = 60;

/// The number of connections.
#[derive(Clone, Debug)]
pub struct Connections {
    now: u16,
    most: u16,
    /// The best rate so far, and the number of connections that had it.
    best: (f64, u16),
    /// The rate of the last period.
    last: f64,
    /// Periods since the number settled.
    settled: Option<u32>,
}

impl Connections {
    /// Begins with few connections on a LAN, and with more on a WAN.
    pub fn new(most: u16, is_wan: bool) -> Self {
        let now = if is_wan { FIRST_ON_WAN } else { FIRST }.min(most).max(1);
        Self { now, most: most.max(1), best: (0.0, now), last: 0.0, settled: None }
    }

    /// A number that the user chose.
    pub fn fixed(number: u16) -> Self {
        let number = number.max(1);
        Self { now: number, most: number, best: (0.0, number), last: 0.0, settled: Some(0) }
    }

    /// The number of connections to use.
    pub fn number(&self) -> u16 {
        self.now
    }

    /// Takes the rate of a period of about a second, in which the link and nothing else was the limit. Returns the
    /// number of connections for the next one.
    pub fn step(&mut self, rate: f64) -> u16 {
        if let Some(periods) = &mut self.settled {
            *periods += 1;
            if *periods < AGAIN || self.now == self.most {
                return self.now;
            }
            (self.best, self.last) = ((rate, self.now), rate);
            self.settled = None;
            return self.more();
        }
        // The rate still rises by itself: congestion control has not found that of the path yet.
        if rate > std::mem::replace(&mut self.last, rate) * WORTH {
            return self.now;
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
    fn settle(most: u16, each: f64, limit: f64) -> u16 {
        let mut connections = Connections::new(most, false);
        for _ in 0..25 {
            let rate = (f64::from(connections.number()) * each).min(limit);
            connections.step(rate);
        }
        connections.number()
    }

    #[test]
    fn a_fast_lan_keeps_the_first_number() {
        assert_eq!(settle(16, 2e9, 1.2e9), FIRST);
    }

    #[test]
    fn a_rate_that_rises_by_itself_adds_no_connections() {
        let mut connections = Connections::new(16, false);
        for rate in [1e8, 2e8, 3e8, 4e8] {
            assert_eq!(connections.step(rate), FIRST);
        }
    }

    #[test]
    fn a_window_per_connection_takes_as_many_as_help() {
        let number = settle(32, 26e6, 330e6);
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
        fn the_number_stays_in_bounds(most in 1_u16..64, is_wan in any::<bool>(), rates in prop::collection::vec(0.0..1e10_f64, 0..200)) {
            let mut connections = Connections::new(most, is_wan);
            for rate in rates {
                let number = connections.step(rate);
                prop_assert!((1..=most).contains(&number));
            }
        }
    }
}
