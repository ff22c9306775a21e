//! How much ring a recording needs, reckoned from what a disk was seen to do.
//!
//! A disk that always has writes to do is watched: so many bytes were completed at such a time. Data that
//! come in at a steady rate would have waited behind that very service, and the most that ever waits,
//! with what is being filled and what is in the kernel's hands, is the ring that loses nothing:
//!
//! ```text
//! waiting    ╱╲    ╱╲╱╲           ╱│  a stall: the rate times its length …
//!           ╱  ╲╱╲╱    ╲        ╱  │
//!    ──────╱             ╲────╱    └╲   … worked off by what the disk is faster
//! ```
//!
//! Nothing here is an average: stalls that follow one another closely add up as they did. It is a safe
//! upper bound for rates well below what the disk does, and pessimistic near that, since a disk that
//! is not kept busy stalls less.

use serde::{Deserialize, Serialize};

use crate::units::ByteRate;

const NS_PER_S: u128 = 1_000_000_000;

/// Bytes that a disk had taken by a time, all of one block or several at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completion {
    /// When, in nanoseconds since the disk was first given something to do.
    pub at_ns: u64,
    /// How many bytes more.
    pub bytes: u64,
}

/// A disk that was kept busy, and what a recorder has in its hands besides the data that wait.
#[derive(Clone, Debug)]
pub struct Service {
    completions: Vec<Completion>,
    in_hand: u64,
    bytes: u64,
    /// When the disk was done with all of it.
    end_ns: u64,
}

/// Data that wait, in bytes times nanoseconds per second: rates are integers, and so is every sum here.
#[derive(Clone, Copy, Default)]
struct Backlog {
    scaled: u128,
    at_ns: u64,
}

impl Backlog {
    /// What has come in until a completion.
    fn grown(self, rate: ByteRate, until_ns: u64) -> u128 {
        self.scaled + u128::from(rate.0) * u128::from(until_ns.saturating_sub(self.at_ns))
    }

    fn served(scaled: u128, completion: &Completion) -> Self {
        let taken = u128::from(completion.bytes) * NS_PER_S;
        Self { scaled: scaled.saturating_sub(taken), at_ns: completion.at_ns }
    }
}

impl Service {
    /// What was completed while the disk had `in_hand` bytes to do or to be filled, in any order.
    pub fn new(mut completions: Vec<Completion>, in_hand: u64) -> Self {
        completions.sort_by_key(|completion| completion.at_ns);
        let bytes = completions.iter().map(|completion| completion.bytes).sum();
        let end_ns = completions.last().map_or(0, |last| last.at_ns);
        Self { completions, in_hand, bytes, end_ns }
    }

    /// The same disk, which was done only then: the sync that makes all of it safe ends behind the last
    /// completion, and what a cache has taken quickly is paid for in it.
    pub fn synced_at(self, at_ns: u64) -> Self {
        Self { end_ns: self.end_ns.max(at_ns), ..self }
    }

    /// Completions in the order of time.
    pub fn completions(&self) -> &[Completion] {
        &self.completions
    }

    /// Bytes being filled or in the kernel's hands.
    pub fn in_hand(&self) -> u64 {
        self.in_hand
    }

    /// Bytes per second from the beginning to the last completion, or to the sync behind it: no steady rate
    /// above this was served.
    pub fn mean(&self) -> ByteRate {
        let rate = u128::from(self.bytes) * NS_PER_S;
        ByteRate(rate.checked_div(self.end_ns.into()).unwrap_or(0).try_into().unwrap_or(u64::MAX))
    }

    /// The ring that would have lost nothing at a rate.
    pub fn ring_for(&self, rate: ByteRate) -> u64 {
        let most = self.most_waiting(rate).div_ceil(NS_PER_S);
        self.in_hand.saturating_add(u64::try_from(most).unwrap_or(u64::MAX))
    }

    /// The same, had every stall been `times` as bad: data that wait, times that.
    pub fn ring_with_margin(&self, rate: ByteRate, times: u64) -> u64 {
        let waiting = self.ring_for(rate) - self.in_hand;
        self.in_hand.saturating_add(waiting.saturating_mul(times))
    }

    /// The highest rate at which `ring` bytes would have lost nothing, and never more than the mean.
    pub fn rate_for(&self, ring: u64) -> ByteRate {
        self.highest(|rate| self.ring_for(rate) <= ring)
    }

    /// The highest rate at which `ring` bytes would have lost nothing had every stall been `times` as bad.
    pub fn rate_with_margin(&self, ring: u64, times: u64) -> ByteRate {
        self.highest(|rate| self.ring_with_margin(rate, times) <= ring)
    }

    /// Bytes for which a ring would have had no room.
    pub fn overrun(&self, rate: ByteRate, ring: u64) -> u64 {
        let room = u128::from(ring.saturating_sub(self.in_hand)) * NS_PER_S;
        let (mut backlog, mut lost) = (Backlog::default(), 0u128);
        for completion in &self.completions {
            let waiting = backlog.grown(rate, completion.at_ns);
            lost += waiting.saturating_sub(room);
            backlog = Backlog::served(waiting.min(room), completion);
        }
        u64::try_from(lost.div_ceil(NS_PER_S)).unwrap_or(u64::MAX)
    }

    fn most_waiting(&self, rate: ByteRate) -> u128 {
        let (mut backlog, mut most) = (Backlog::default(), 0);
        for completion in &self.completions {
            let waiting = backlog.grown(rate, completion.at_ns);
            most = most.max(waiting);
            backlog = Backlog::served(waiting, completion);
        }
        most
    }

    /// The highest rate for which something holds that holds for all lower ones.
    fn highest(&self, holds: impl Fn(ByteRate) -> bool) -> ByteRate {
        let (mut good, mut bad) = (0, self.mean().0.saturating_add(1));
        while bad - good > 1 {
            let middle = good + (bad - good) / 2;
            if holds(ByteRate(middle)) { good = middle } else { bad = middle }
        }
        ByteRate(good)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;
    const MB: u64 = 1_000_000;

    /// One block of 4 MB each 2 ms, and a stall.
    fn stalling(stall_ms: u64) -> Service {
        let at = |n: u64| 2 * MS * (n + 1) + if n >= 500 { stall_ms * MS } else { 0 };
        let completions = (0..1000).map(|n| Completion { at_ns: at(n), bytes: 4 * MB });
        Service::new(completions.collect(), 36 * MB)
    }

    #[test]
    fn a_stall_asks_for_the_rate_times_its_length() {
        let ring = stalling(539).ring_for(ByteRate(400 * MB)) - 36 * MB;
        assert_eq!(ring, 400 * (539 + 2) * MB / 1000);
    }

    #[test]
    fn rates_beyond_the_mean_hold_for_no_ring() {
        let service = stalling(200);
        assert_eq!(service.rate_for(u64::MAX), service.mean());
        assert!(service.overrun(ByteRate(service.mean().0 * 2), 1 << 30) > 0);
    }

    #[test]
    fn what_a_cache_took_at_once_is_paid_for_in_the_sync() {
        // 1000 blocks of 4 MB in 2 s, and 6 s more until all of it is on the disk.
        let service = stalling(0).synced_at(8000 * MS);
        assert_eq!(service.mean(), ByteRate(500 * MB));
        assert_eq!(service.rate_for(u64::MAX), service.mean());
        assert_eq!(service.synced_at(1).mean(), ByteRate(500 * MB), "it ends no earlier for that");
    }

    #[test]
    fn nothing_seen_is_no_rate() {
        let service = Service::new(vec![], 4096);
        assert_eq!((service.mean(), service.rate_for(1 << 30)), (ByteRate(0), ByteRate(0)));
        assert_eq!(service.ring_for(ByteRate(1)), 4096);
    }

    fn any_service() -> impl Strategy<Value = Service> {
        let steps = prop::collection::vec((0u64..40 * MS, 0u64..8 * MB), 0..60);
        (steps, 0u64..64 * MB, 0u64..500 * MS).prop_map(|(steps, in_hand, sync_ns)| {
            let mut at_ns = 0;
            let completions = steps.into_iter().map(|(wait, bytes)| {
                at_ns += wait;
                Completion { at_ns, bytes }
            });
            let completions = completions.collect();
            Service::new(completions, in_hand).synced_at(at_ns + sync_ns)
        })
    }

    /// The most that waits, by its definition: over every stretch, what came in less what was served.
    fn by_definition(service: &Service, rate: u64) -> u128 {
        let ends = service.completions();
        let starts = std::iter::once(0).chain(ends.iter().map(|completion| completion.at_ns));
        let mut most = 0;
        for (first, start) in starts.enumerate() {
            let mut served = 0u128;
            for end in &ends[first..] {
                let came = u128::from(rate) * u128::from(end.at_ns - start);
                most = most.max(came.saturating_sub(served * NS_PER_S));
                served += u128::from(end.bytes);
            }
        }
        most
    }

    /// A disk that serves blocks one after the other, each taking its time, and rests during its stalls.
    struct Disk {
        block_ns: u64,
        stalls: Vec<(u64, u64)>,
    }

    impl Disk {
        /// When a block that may begin at a time is done.
        fn done(&self, from_ns: u64) -> u64 {
            let mut at = from_ns;
            let mut left = self.block_ns;
            for &(begin, end) in &self.stalls {
                if at + left <= begin {
                    break;
                }
                if at < end {
                    left -= begin.saturating_sub(at);
                    at = end;
                }
            }
            at + left
        }

        fn busy(&self, blocks: u64, bytes: u64, in_hand: u64) -> Service {
            let mut at_ns = 0;
            let completions = (0..blocks).map(|_| {
                at_ns = self.done(at_ns);
                Completion { at_ns, bytes }
            });
            Service::new(completions.collect(), in_hand)
        }

        /// The most bytes that a recorder of this rate ever holds, from the first byte of a block that
        /// comes in to the block's completion.
        fn held(&self, blocks: u64, block_bytes: u64, rate: u64) -> u64 {
            let came = |n: u64| (u128::from(n * block_bytes) * NS_PER_S / u128::from(rate)) as u64;
            let (mut free_ns, mut done) = (0, Vec::new());
            for n in 0..blocks {
                free_ns = self.done(came(n + 1).max(free_ns));
                done.push(free_ns);
            }
            let held = |n: u64| {
                let gone = done.partition_point(|&at| at <= came(n)) as u64;
                n + 1 - gone
            };
            (0..blocks).map(held).max().unwrap_or(0) * block_bytes
        }
    }

    proptest! {
        #[test]
        fn the_smallest_ring_loses_nothing_and_one_byte_less_does(
            service in any_service(),
            rate in 1u64..2_000_000_000,
        ) {
            let rate = ByteRate(rate);
            let ring = service.ring_for(rate);
            prop_assert_eq!(service.overrun(rate, ring), 0);
            if ring > service.in_hand() {
                prop_assert!(service.overrun(rate, ring - 1) > 0);
            }
        }

        #[test]
        fn one_pass_finds_the_worst_stretch_of_all(
            service in any_service(),
            rate in 0u64..2_000_000_000,
        ) {
            prop_assert_eq!(service.most_waiting(ByteRate(rate)), by_definition(&service, rate));
        }

        #[test]
        fn the_rate_for_a_ring_holds_and_a_higher_one_does_not(
            service in any_service(),
            ring in 0u64..256 * MB,
        ) {
            let rate = service.rate_for(ring);
            if rate.0 > 0 {
                prop_assert!(service.ring_for(rate) <= ring);
            }
            if rate < service.mean() {
                prop_assert!(service.ring_for(ByteRate(rate.0 + 1)) > ring);
            }
            prop_assert!(service.rate_with_margin(ring, 2) <= rate);
        }

        #[test]
        fn a_recorder_on_the_same_disk_holds_no_more_than_was_predicted(
            block_us in 200u64..4000,
            stalls in prop::collection::vec((0u64..900, 1u64..300), 0..4),
            share in 20u64..95,
        ) {
            let (blocks, block_bytes) = (800, 4 * MB);
            let mut at = 0;
            let stalls = stalls.into_iter().map(|(gap, length)| {
                let begin = at + gap * MS;
                at = begin + length * MS;
                (begin, at)
            });
            let disk = Disk { block_ns: block_us * 1000, stalls: stalls.collect() };
            let service = disk.busy(blocks, block_bytes, 2 * block_bytes);
            let rate = service.mean().0 * share / 100;
            let predicted = service.ring_for(ByteRate(rate));
            // As many blocks come in as the disk was watched for.
            let end = service.completions().last().unwrap().at_ns;
            let came = (u128::from(rate) * u128::from(end) / NS_PER_S) as u64 / block_bytes;
            let held = disk.held(came, block_bytes, rate);
            prop_assert!(held <= predicted.next_multiple_of(block_bytes), "{held} > {predicted}");
        }
    }

    #[test]
    fn a_ring_a_fifth_smaller_loses_on_the_same_disk() {
        let (blocks, block_bytes) = (2000, 4 * MB);
        let disk = Disk { block_ns: 2 * MS, stalls: vec![(1000 * MS, 1500 * MS)] };
        let service = disk.busy(blocks, block_bytes, 2 * block_bytes);
        let rate = 400 * MB;
        let predicted = service.ring_for(ByteRate(rate));
        let held = disk.held(400, block_bytes, rate);
        assert!(held <= predicted && held > predicted * 8 / 10, "{held} for {predicted}");
    }
}
