//! The rates of the data connections, so that a slow one does not hold the last blocks.
//!
//! Connections share a bottleneck unevenly: one may have a twentieth of the rate of another. A block that it takes when
//! few are left is the last one to arrive, seconds after all others. Another connection that has nothing to send sends it,
//! too.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::schedule::BlockId;

/// A rate that was measured longer ago is that of a connection that rests or hangs. It counts no more.
const FRESH: Duration = Duration::from_secs(2);

/// No block is overdue before.
const OVERDUE: Duration = Duration::from_millis(500);

/// A block may arrive so much later than all others.
const LATER: f64 = 0.1;

/// The rates of the connections of a transfer, in bytes per second, and what each sends now.
#[derive(Debug, Default)]
pub struct Rates {
    rates: BTreeMap<u32, (Instant, f64)>,
    sending: BTreeMap<u32, (Instant, BlockId)>,
}

impl Rates {
    /// Keeps the bytes per second of a connection. One that has sent nothing keeps its last rate.
    pub fn measured(&mut self, connection: u32, rate: u64, now: Instant) {
        if rate > 0 {
            self.rates.insert(connection, (now, rate as f64));
        }
    }

    /// The connection sends this block from now on.
    pub fn began(&mut self, connection: u32, block: BlockId, now: Instant) {
        self.sending.insert(connection, (now, block));
    }

    /// The connection has given its block to the kernel.
    pub fn ended(&mut self, connection: u32) {
        self.sending.remove(&connection);
    }

    /// Forgets a connection.
    pub fn remove(&mut self, connection: u32) {
        self.rates.remove(&connection);
        self.sending.remove(&connection);
    }

    /// The block that another connection has been sending for so long that this one, which has nothing to send, is likely
    /// to deliver it first.
    pub fn overdue(&self, connection: u32, block: u64, now: Instant) -> Option<BlockId> {
        let (_, own) = self.rates.get(&connection)?;
        let limit = OVERDUE.max(Duration::from_secs_f64((4.0 * block as f64 / own).min(1e6)));
        let others = self.sending.iter().filter(|(of, _)| **of != connection);
        let (_, (since, id)) = others.min_by_key(|(_, (since, _))| *since)?;
        (now - *since > limit).then_some(*id)
    }

    /// True if the others carry the blocks that are left, and this one too, before the connection carries it. The fastest
    /// connection is never too slow, and neither is one whose rate is not known.
    pub fn is_too_slow(&self, connection: u32, block: u64, left: u64, now: Instant) -> bool {
        let is_fresh = |(since, _): &&(Instant, f64)| now - *since < FRESH;
        let Some((_, own)) = self.rates.get(&connection).filter(is_fresh) else { return false };
        let fresh = || self.rates.values().filter(is_fresh).map(|(_, rate)| *rate);
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

    #[test]
    fn a_block_is_overdue_when_another_connection_would_have_sent_it_long_ago() {
        let (mut rates, now) = (Rates::default(), Instant::now());
        let after = |ms| now + Duration::from_millis(ms);
        rates.measured(0, 10_000_000, now);
        rates.began(1, (3, 7), now);
        assert_eq!(rates.overdue(0, 4_000_000, after(1600)), None);
        assert_eq!(rates.overdue(0, 4_000_000, after(1601)), Some((3, 7)));
        assert_eq!(rates.overdue(0, 1, after(500)), None);
        assert_eq!(rates.overdue(0, 1, after(501)), Some((3, 7)));
        assert_eq!(rates.overdue(1, 1, after(9000)), None, "it is its own block");
        rates.ended(1);
        assert_eq!(rates.overdue(0, 1, after(9000)), None);
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
