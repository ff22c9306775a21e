//! A token bucket: how many bytes may be sent now under a cap.
//!
//! The bucket is small and fills a little slower than the cap, by its own size per second. So no second, wherever it
//! begins, has more bytes than the cap, even if the bucket was full.

use std::time::Duration;

/// The size of the bucket as a part of the bytes of a second.
const PART: u64 = 50;

/// Fewer bytes are not granted, if more are wanted: each grant is a TLS record, with 22 bytes and a system call of its own.
const LEAST: u64 = 16 << 10;

/// A token bucket.
#[derive(Clone, Debug)]
pub struct Bucket {
    size: u64,
    /// Bytes per second.
    filling: u64,
    /// Billionths of a byte.
    tokens: u128,
    at: Duration,
}

impl Bucket {
    /// A full bucket for a cap in bytes per second.
    pub fn new(cap: u64, at: Duration) -> Self {
        let cap = cap.max(2);
        let size = (cap / PART).max(1);
        Self { size, filling: cap - size, tokens: u128::from(size) * NANO, at }
    }

    /// Takes up to this many bytes, and returns how many may be sent.
    pub fn take(&mut self, wanted: u64, at: Duration) -> u64 {
        let passed = at.saturating_sub(self.at).as_nanos();
        self.at = self.at.max(at);
        let full = u128::from(self.size) * NANO;
        self.tokens = (self.tokens + passed * u128::from(self.filling)).min(full);
        let granted = ((self.tokens / NANO) as u64).min(wanted);
        if granted < wanted.min(LEAST).min(self.size.div_ceil(2)) {
            return 0;
        }
        self.tokens -= u128::from(granted) * NANO;
        granted
    }

    /// Time until half of the bucket, or as many bytes as wanted, are there.
    pub fn wait_for(&self, wanted: u64) -> Duration {
        let enough = u128::from(wanted.min(self.size.div_ceil(2))) * NANO;
        let ns = enough.saturating_sub(self.tokens).div_ceil(u128::from(self.filling));
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }
}

const NANO: u128 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_second_has_more_bytes_than_the_cap(
            cap in 2u64..2_000_000_000,
            steps in prop::collection::vec((0u64..300_000_000, 0u64..100_000_000), 1..200),
        ) {
            let mut bucket = Bucket::new(cap, Duration::ZERO);
            let mut now = Duration::ZERO;
            let mut sent: Vec<(Duration, u64)> = Vec::new();
            for (wait, wanted) in steps {
                now += Duration::from_nanos(wait);
                let granted = bucket.take(wanted, now);
                prop_assert!(granted <= wanted);
                sent.push((now, granted));
            }
            for (from, _) in &sent {
                let end = *from + Duration::from_secs(1);
                let second = sent.iter().filter(|(at, _)| at >= from && *at < end);
                let total: u64 = second.map(|(_, bytes)| bytes).sum();
                prop_assert!(total <= cap, "{total} bytes in a second with a cap of {cap}");
            }
        }

        #[test]
        fn senders_that_ask_all_the_time_get_no_slivers(cap in 2_000_000u64..2_000_000_000) {
            let mut bucket = Bucket::new(cap, Duration::ZERO);
            for step in 0..10_000 {
                let granted = bucket.take(1 << 20, Duration::from_micros(step));
                prop_assert!(granted == 0 || granted >= LEAST, "{granted} bytes");
            }
        }

        #[test]
        fn a_sender_that_waits_as_told_uses_nearly_all_of_the_cap(cap in 100_000u64..2_000_000_000) {
            let mut bucket = Bucket::new(cap, Duration::ZERO);
            let (mut now, mut sent) = (Duration::ZERO, 0);
            while now < Duration::from_secs(5) {
                sent += bucket.take(1 << 20, now);
                now += bucket.wait_for(1 << 20);
            }
            prop_assert!(sent > cap * 5 * 9 / 10, "{sent} of {}", cap * 5);
        }
    }
}
