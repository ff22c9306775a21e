//! The rates of the data connections, so that a slow one does not hold the last blocks.
//!
//! Connections share a bottleneck unevenly: one may have a twentieth of the rate of another. A block that it takes when
//! few are left is the last one to arrive, seconds after all others.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A rate that was measured longer ago is that of a connection that rests or hangs. It counts no more.
const FRESH: Duration = Duration::from_secs(2);

/// A block may arrive so much later than all others.
const LATER: f64 = 0.1;

/// The rates of the connections of a transfer.
#[derive(Debug, Default)]
pub struct Rates(BTreeMap<u32, (Instant, f64)>);

impl Rates {
    /// Keeps the bytes per second of a connection.
    pub fn measured(&mut self, connection: u32, rate: u64, now: Instant) {
        self.0.insert(connection, (now, rate as f64));
    }

    /// Forgets a connection.
    pub fn remove(&mut self, connection: u32) {
        self.0.remove(&connection);
    }

    /// True if the others carry the blocks that are left, and this one too, before the connection carries it. The fastest
    /// connection is never too slow, and neither is one whose rate is not known.
    pub fn is_too_slow(&self, connection: u32, block: u64, left: u64, now: Instant) -> bool {
        let is_fresh = |(since, rate): &&(Instant, f64)| now - *since < FRESH && *rate > 0.0;
        let Some((_, own)) = self.0.get(&connection).filter(is_fresh) else { return false };
        let fresh = || self.0.values().filter(is_fresh).map(|(_, rate)| *rate);
        let (all, best) = (fresh().sum::<f64>(), fresh().fold(0.0, f64::max));
        let (block, left) = (block as f64, left as f64);
        block / own > left / all + block / best + LATER
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_slow_connection_leaves_the_last_blocks_to_others() {
        let (mut rates, now) = (Rates::default(), Instant::now());
        rates.measured(0, 100_000_000, now);
        rates.measured(1, 1_000_000, now);
        assert!(!rates.is_too_slow(1, 4_000_000, 1_000_000_000, now), "there is enough for all");
        assert!(rates.is_too_slow(1, 4_000_000, 4_000_000, now));
        assert!(!rates.is_too_slow(0, 4_000_000, 4_000_000, now));
        assert!(!rates.is_too_slow(2, 4_000_000, 4_000_000, now), "its rate is not known");
        assert!(!rates.is_too_slow(1, 4_000_000, 4_000_000, now + FRESH), "nothing is known");
        rates.measured(1, 1_000_000, now + FRESH);
        assert!(!rates.is_too_slow(1, 4_000_000, 4_000_000, now + FRESH), "the other one hangs");
    }

    proptest! {
        #[test]
        fn one_connection_takes_each_block(
            all in prop::collection::vec(0_u64..10_000_000_000, 1..20),
            block in 1_u64..64_000_000,
            left in 0_u64..1_000_000_000_000,
        ) {
            let (mut rates, now) = (Rates::default(), Instant::now());
            for (number, rate) in (0..).zip(&all) {
                rates.measured(number, *rate, now);
            }
            let takes = |number| !rates.is_too_slow(number, block, left, now);
            prop_assert!((0..all.len() as u32).any(takes));
        }
    }
}
