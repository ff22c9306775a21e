//! Finds that losses hold a connection below the rate of its path. BBR carries more there.
//!
//! ```text
//! data waits to be sent, and no queue before the bottleneck, for most of 8 s ──► BBR
//! ```
//!
//! CUBIC takes each loss for a full queue. Where the path loses few packets, it fills the queue nevertheless, and several
//! connections keep the bottleneck busy; BBR carries less there, because all its connections pause together every ten
//! seconds to measure the round trip. Where the path loses many, CUBIC never gets as far as the queue: the round trips
//! stay the shortest ones although data waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The periods that are looked at, of half a second each. CUBIC needs some seconds after a loss to reach the queue again.
const WINDOW: u32 = 16;

/// So many of them without a queue are enough.
const MOST: u32 = 12;

/// A queue lengthens the round trip by this factor at least.
const QUEUED: f64 = 1.04;

/// What the connections of a transfer have found of their common path: what one finds, all act on.
#[derive(Clone, Debug, Default)]
pub struct Path(Arc<AtomicBool>);

impl Path {
    /// True if a connection found that losses hold it down.
    pub fn is_lossy(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Tells the other connections.
    pub fn set_lossy(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The last periods of one connection.
#[derive(Clone, Debug, Default)]
pub struct Losses {
    /// One bit for each period, the newest lowest: no queue although data waited.
    empty: u32,
}

impl Losses {
    /// Takes the round trips of a period, and whether data waited for the congestion control alone. Returns true if losses
    /// hold the connection down.
    pub fn step(&mut self, round_trip: Duration, least: Duration, waits: bool) -> bool {
        let is_empty = waits && round_trip < least.mul_f64(QUEUED);
        self.empty = (self.empty << 1 | u32::from(is_empty)) & ((1 << WINDOW) - 1);
        self.empty.count_ones() >= MOST
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LEAST: Duration = Duration::from_millis(100);

    fn run(losses: &mut Losses, periods: u32, round_trip_ms: u64, waits: bool) -> bool {
        (0..periods)
            .fold(false, |_, _| losses.step(Duration::from_millis(round_trip_ms), LEAST, waits))
    }

    #[test]
    fn a_path_without_a_queue_is_lossy_after_some_seconds() {
        let mut losses = Losses::default();
        assert!(!run(&mut losses, MOST - 1, 101, true));
        assert!(run(&mut losses, 1, 101, true));
    }

    #[test]
    fn a_queue_half_of_the_time_is_what_cubic_leaves() {
        let mut losses = Losses::default();
        for _ in 0..100 {
            assert!(!run(&mut losses, 8, 100, true));
            assert!(!run(&mut losses, 8, 130, true));
        }
    }

    #[test]
    fn a_sender_that_has_nothing_to_send_says_nothing_of_the_path() {
        assert!(!run(&mut Losses::default(), 1000, 100, false));
    }

    proptest! {
        #[test]
        fn a_connection_with_a_queue_in_each_third_period_stays(waits in prop::collection::vec(any::<bool>(), 0..200)) {
            let mut losses = Losses::default();
            for (period, waits) in (0_u64..).zip(waits) {
                let ms = if period % 3 == 0 { 120 } else { 100 };
                prop_assert!(!losses.step(Duration::from_millis(ms), LEAST, waits));
            }
        }
    }
}
