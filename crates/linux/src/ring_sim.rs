//! Simulates a ring on the measured service times of a disk: the ring that a rate needs, the rate that a ring holds.
//!
//! A disk that always has writes to do is observed: the submission and completion time of each block. Each block is a
//! *turn* that a recording at a steady rate would have had. The turn takes the data received by its start, up to its
//! size, and holds it until its end. The ring without loss is the maximum of held data plus the blocks that are being
//! filled:
//!
//! ```text
//! held       ╱╲    ╱╲╱╲           ╱│  a stall: the rate times its length …
//!           ╱  ╲╱╲╱    ╲        ╱  │
//!    ──────╱             ╲────╱    └╲   … worked off by what the disk is faster
//! ```
//!
//! No value is an average: consecutive stalls add up as they did. A slow disk with many writes in flight is charged for
//! the service time of a block, not for all writes in flight. The result is a safe upper bound for rates well below the
//! disk's own rate, and pessimistic near it, because a disk that is not kept busy stalls less.

use serde::{Deserialize, Serialize};

use fullbore_core::duty::Duty;
use fullbore_core::units::ByteRate;

const NS_PER_S: u128 = 1_000_000_000;

/// One block, or several at once, that a disk has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// Submission time, in nanoseconds since the first submission.
    pub from_ns: u64,
    /// Completion time, when its memory is free again.
    pub to_ns: u64,
    /// Its size in bytes.
    pub bytes: u64,
}

/// A disk that was kept busy, and the memory that a recorder holds beside waiting data.
#[derive(Clone, Debug)]
pub struct Service {
    turns: Vec<Turn>,
    /// Starts and ends of turns, in the order of time.
    events: Vec<Event>,
    filling: u64,
    bytes: u64,
    /// Completion time of all turns.
    end_ns: u64,
    /// The duty cycle, if data do not arrive all the time.
    duty: Option<Duty>,
}

/// A turn begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    at_ns: u64,
    /// A turn that ends at its start time begins first.
    ends: bool,
    turn: usize,
}

/// Data in the ring, in bytes times nanoseconds per second: rates are integers, and so is every sum here.
#[derive(Default)]
struct Held {
    waiting: u128,
    under_way: u128,
    most: u128,
    lost: u128,
}

impl Service {
    /// Returns the service of an observed disk, while a recorder has `filling` bytes being filled.
    pub fn new(mut turns: Vec<Turn>, filling: u64) -> Self {
        turns.sort_by_key(|turn| turn.to_ns);
        let bytes = turns.iter().map(|turn| turn.bytes).sum();
        let end_ns = turns.last().map_or(0, |last| last.to_ns);
        let ends = turns.iter().enumerate();
        let ends = ends.map(|(turn, it)| Event { at_ns: it.to_ns, ends: true, turn });
        let begins = turns.iter().enumerate();
        let begins = begins.map(|(turn, it)| {
            let at_ns = it.from_ns.min(it.to_ns);
            Event { at_ns, ends: false, turn }
        });
        let mut events: Vec<Event> = begins.chain(ends).collect();
        events.sort_unstable();
        Self { turns, events, filling, bytes, end_ns, duty: None }
    }

    /// Sets the end of the sync, after the last completion. Data that a cache accepted quickly is paid for there.
    pub fn synced_at(self, at_ns: u64) -> Self {
        Self { end_ns: self.end_ns.max(at_ns), ..self }
    }

    /// Sets the duty cycle: data arrive in scans with pauses between them. The first scan begins with the observation.
    /// In each pause the ring drains as far as the disk was seen to write then.
    pub fn in_duty(self, duty: Option<Duty>) -> Self {
        Self { duty, ..self }
    }

    /// Returns the time in which data arrived, up to a time.
    fn recorded_ns(&self, at_ns: u64) -> u64 {
        self.duty.map_or(at_ns, |duty| duty.recorded_ns(at_ns))
    }

    /// Restricts the observation to a period (up to the end if there is no second moment): blocks completed in it
    /// count. In a duty cycle the first moment is the start of a scan.
    pub fn between(&self, from_ns: u64, to_ns: Option<u64>) -> Self {
        let end_ns = to_ns.unwrap_or(self.end_ns.max(from_ns));
        let inside = |turn: &&Turn| from_ns < turn.to_ns && turn.to_ns <= end_ns;
        let shifted = |turn: &Turn| Turn {
            from_ns: turn.from_ns.saturating_sub(from_ns),
            to_ns: turn.to_ns - from_ns,
            ..*turn
        };
        let turns = self.turns.iter().filter(inside).map(shifted).collect();
        let watched = Self::new(turns, self.filling).synced_at(end_ns.saturating_sub(from_ns));
        watched.in_duty(self.duty)
    }

    /// Restricts the observation to the time before a moment. The sync after the last completion is charged to it.
    pub fn before(&self, at_ns: u64) -> Self {
        let last_ns = self.turns.last().map_or(0, |turn| turn.to_ns);
        let sync_ns = self.end_ns.saturating_sub(last_ns);
        self.between(0, Some(at_ns)).synced_at(at_ns.saturating_add(sync_ns))
    }

    /// Returns the bytes that were written.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the time when all data was durable, in nanoseconds.
    pub fn end_ns(&self) -> u64 {
        self.end_ns
    }

    /// Returns the bytes that are being filled.
    pub fn filling(&self) -> u64 {
        self.filling
    }

    /// Returns the bytes per second from the start to the last completion, or to the sync after it, without pauses. It
    /// is an upper bound of the steady rates that were served.
    pub fn mean(&self) -> ByteRate {
        let rate = u128::from(self.bytes) * NS_PER_S;
        ByteRate(
            rate.checked_div(self.recorded_ns(self.end_ns).into())
                .unwrap_or(0)
                .try_into()
                .unwrap_or(u64::MAX),
        )
    }

    /// Returns the ring without loss at a rate.
    pub fn ring_for(&self, rate: ByteRate) -> u64 {
        let most = self.replayed(rate, u128::MAX).most.div_ceil(NS_PER_S);
        self.filling.saturating_add(u64::try_from(most).unwrap_or(u64::MAX))
    }

    /// Returns the ring if every stall were `times` as bad: the held data is multiplied by that.
    pub fn ring_with_margin(&self, rate: ByteRate, times: u64) -> u64 {
        let held = self.ring_for(rate) - self.filling;
        self.filling.saturating_add(held.saturating_mul(times))
    }

    /// Returns the highest rate without loss with a ring of `ring` bytes; at most the mean.
    pub fn rate_for(&self, ring: u64) -> ByteRate {
        self.highest(|rate| self.ring_for(rate) <= ring)
    }

    /// Returns the highest rate without loss with a ring of `ring` bytes if every stall were `times` as bad.
    pub fn rate_with_margin(&self, ring: u64, times: u64) -> ByteRate {
        self.highest(|rate| self.ring_with_margin(rate, times) <= ring)
    }

    /// Returns the bytes for which a ring would have had no room.
    pub fn overrun(&self, rate: ByteRate, ring: u64) -> u64 {
        let room = u128::from(ring.saturating_sub(self.filling)) * NS_PER_S;
        let lost = self.replayed(rate, room).lost.div_ceil(NS_PER_S);
        u64::try_from(lost).unwrap_or(u64::MAX)
    }

    /// Simulates a recording at a steady rate in the turns of the disk, with this much room.
    fn replayed(&self, rate: ByteRate, room: u128) -> Held {
        let mut held = Held::default();
        let mut taken = vec![0; self.turns.len()];
        let mut last_ns = 0;
        for event in &self.events {
            let recorded_ns = self.recorded_ns(event.at_ns);
            let came = u128::from(rate.0) * u128::from(recorded_ns - last_ns);
            last_ns = recorded_ns;
            held.come(came, room);
            if event.ends {
                held.under_way -= taken[event.turn];
            } else {
                let turn = u128::from(self.turns[event.turn].bytes) * NS_PER_S;
                taken[event.turn] = held.begin(turn);
            }
        }
        held
    }

    /// Returns the highest rate that satisfies a condition that all lower rates satisfy too.
    fn highest(&self, holds: impl Fn(ByteRate) -> bool) -> ByteRate {
        let (mut good, mut bad) = (0, self.mean().0.saturating_add(1));
        while bad - good > 1 {
            let middle = good + (bad - good) / 2;
            if holds(ByteRate(middle)) { good = middle } else { bad = middle }
        }
        ByteRate(good)
    }
}

impl Held {
    fn come(&mut self, bytes: u128, room: u128) {
        let free = room - self.waiting - self.under_way;
        self.lost += bytes.saturating_sub(free);
        self.waiting += bytes.min(free);
        self.most = self.most.max(self.waiting + self.under_way);
    }

    /// Removes from the waiting data as much as the turn takes.
    fn begin(&mut self, turn: u128) -> u128 {
        let taken = turn.min(self.waiting);
        self.waiting -= taken;
        self.under_way += taken;
        taken
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;
    const MB: u64 = 1_000_000;

    /// One block of 4 MB each 2 ms, eight in flight, and a stall.
    fn stalling(stall_ms: u64) -> Service {
        let at = |n: u64| 2 * MS * (n + 1) + if n >= 500 { stall_ms * MS } else { 0 };
        let from = |n: u64| if n < 8 { 0 } else { at(n - 8) };
        let turn = |n| Turn { from_ns: from(n), to_ns: at(n), bytes: 4 * MB };
        Service::new((0..1000).map(turn).collect(), 8 * MB)
    }

    #[test]
    fn a_stall_asks_for_the_rate_times_its_length() {
        // All data between the last turn before the stall and the first completed one after it: the turns in flight had
        // taken the earlier data, and each takes 16 ms.
        let ring = stalling(539).ring_for(ByteRate(400 * MB)) - 8 * MB;
        assert_eq!(ring, 400 * (539 + 16 + 2) * MB / 1000);
    }

    #[test]
    fn what_is_under_way_at_once_is_not_charged_to_a_rate_that_does_not_need_it() {
        let slow = stalling(0).ring_for(ByteRate(10 * MB)) - 8 * MB;
        // 18 ms at 10 MB/s, and not the 32 MB in flight.
        assert_eq!(slow, 180_000);
        let full = stalling(0).ring_for(stalling(0).mean()) - 8 * MB;
        assert!((32 * MB..=36 * MB).contains(&full), "at its full rate it had them: {full}");
    }

    #[test]
    fn rates_beyond_the_mean_hold_for_no_ring() {
        let service = stalling(200);
        assert_eq!(service.rate_for(u64::MAX), service.mean());
        assert!(service.overrun(ByteRate(service.mean().0 * 2), 1 << 30) > 0);
    }

    #[test]
    fn what_a_cache_took_at_once_is_paid_for_in_the_sync() {
        // 1000 blocks of 4 MB in 2 s, and 6 s more until all data is durable.
        let service = stalling(0).synced_at(8000 * MS);
        assert_eq!(service.mean(), ByteRate(500 * MB));
        assert_eq!(service.rate_for(u64::MAX), service.mean());
        assert_eq!(service.synced_at(1).mean(), ByteRate(500 * MB), "it ends no earlier for that");
    }

    #[test]
    fn part_of_a_run_is_charged_for_the_sync_at_its_end() {
        let service = stalling(0).synced_at(3000 * MS);
        let part = service.before(1000 * MS);
        assert_eq!((part.bytes(), part.end_ns()), (2000 * MB, 2000 * MS));
        assert_eq!(service.before(2000 * MS).mean(), service.mean());
    }

    #[test]
    fn nothing_seen_is_no_rate() {
        let service = Service::new(vec![], 4096);
        assert_eq!((service.mean(), service.rate_for(1 << 30)), (ByteRate(0), ByteRate(0)));
        assert_eq!(service.ring_for(ByteRate(1)), 4096);
    }

    fn any_service_that_takes(longest_ns: u64) -> impl Strategy<Value = Service> {
        let turn = (0u64..40 * MS, 0..=longest_ns, 0u64..8 * MB);
        let turns = prop::collection::vec(turn, 0..60);
        (turns, 0u64..64 * MB, 0u64..500 * MS).prop_map(|(turns, filling, sync_ns)| {
            let mut to_ns = 0;
            let turns = turns.into_iter().map(|(wait, took, bytes)| {
                to_ns += wait;
                Turn { from_ns: to_ns.saturating_sub(took), to_ns, bytes }
            });
            let turns: Vec<Turn> = turns.collect();
            Service::new(turns, filling).synced_at(to_ns + sync_ns)
        })
    }

    fn any_service() -> impl Strategy<Value = Service> {
        any_service_that_takes(200 * MS)
    }

    fn most_held(service: &Service, rate: u64) -> u128 {
        service.replayed(ByteRate(rate), u128::MAX).most
    }

    /// The largest amount held if every turn takes no time, by definition: over every interval, the data received minus
    /// the data served.
    fn by_definition(service: &Service, rate: u64) -> u128 {
        let ends = &service.turns;
        let starts = std::iter::once(0).chain(ends.iter().map(|turn| turn.to_ns));
        let mut most = 0;
        for (first, start) in starts.enumerate() {
            let mut served = 0u128;
            for end in &ends[first..] {
                let came = u128::from(rate) * u128::from(end.to_ns - start);
                most = most.max(came.saturating_sub(served * NS_PER_S));
                served += u128::from(end.bytes);
            }
        }
        most
    }

    /// The largest number of bytes in flight.
    fn most_under_way(service: &Service) -> u64 {
        let at = |time: u64| {
            let there = |turn: &&Turn| turn.from_ns <= time && time < turn.to_ns;
            service.turns.iter().filter(there).map(|turn| turn.bytes).sum()
        };
        service.turns.iter().map(|turn| at(turn.from_ns)).max().unwrap_or(0)
    }

    /// A disk that serves blocks one after the other, each with its own service time, and rests during its stalls.
    /// Completions are reported later, as for a disk behind a network.
    struct Disk {
        block_ns: u64,
        depth: usize,
        told_later_ns: u64,
        stalls: Vec<(u64, u64)>,
    }

    impl Disk {
        /// Returns the completion time of a block that may begin at a time.
        fn served(&self, from_ns: u64) -> u64 {
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

        /// Returns submission and completion of each block, if the blocks arrive at these times.
        fn turns(&self, came: impl Iterator<Item = u64>, bytes: u64) -> Vec<Turn> {
            let (mut free_ns, mut turns) = (0, Vec::<Turn>::new());
            for came_ns in came {
                let before = turns.len().checked_sub(self.depth).map(|n| turns[n].to_ns);
                let from_ns = came_ns.max(before.unwrap_or(0));
                free_ns = self.served(from_ns.max(free_ns));
                turns.push(Turn { from_ns, to_ns: free_ns + self.told_later_ns, bytes });
            }
            turns
        }

        fn busy(&self, blocks: usize, bytes: u64) -> Service {
            Service::new(self.turns(std::iter::repeat_n(0, blocks), bytes), 2 * bytes)
        }

        /// Returns the largest number of bytes that a recorder of this rate holds, from the arrival of a block's first
        /// byte to the block's completion.
        fn held(&self, blocks: u64, block_bytes: u64, rate: u64) -> u64 {
            let came = |n: u64| (u128::from(n * block_bytes) * NS_PER_S / u128::from(rate)) as u64;
            let turns = self.turns((0..blocks).map(|n| came(n + 1)), block_bytes);
            let held = |n: u64| {
                let gone = turns.partition_point(|turn| turn.to_ns <= came(n)) as u64;
                n + 1 - gone
            };
            (0..blocks).map(held).max().unwrap_or(0) * block_bytes
        }
    }

    /// The work of a disk in each cycle: turns by their end since the scan began, their durations, and their bytes.
    fn any_cycles() -> impl Strategy<Value = Vec<Vec<(f64, f64, u64)>>> {
        let turn = (0.0..1.0f64, 0.0..1.0f64, 0u64..8 * MB);
        prop::collection::vec(prop::collection::vec(turn, 0..20), 1..5)
    }

    /// Returns the same turns in each cycle, for any pause: a longer one adds time without service.
    fn in_cycles(cycles: &[Vec<(f64, f64, u64)>], busy_ns: u64, duty: Duty) -> Service {
        let turns = cycles.iter().zip(0u64..).flat_map(|(cycle, number)| {
            cycle.iter().map(move |&(end, begin, bytes)| {
                let to_ns = (busy_ns as f64 * end) as u64;
                let from_ns = (to_ns as f64 * begin) as u64;
                let start_ns = number * duty.cycle_ns();
                Turn { from_ns: start_ns + from_ns, to_ns: start_ns + to_ns, bytes }
            })
        });
        let end_ns = cycles.len() as u64 * duty.cycle_ns();
        Service::new(turns.collect(), 8 * MB).synced_at(end_ns).in_duty(Some(duty))
    }

    fn duty(record_ms: u64, pause_ms: u64) -> Duty {
        let ms = std::time::Duration::from_millis;
        Duty::new(ms(record_ms), ms(pause_ms)).unwrap()
    }

    #[test]
    fn a_pause_drains_the_ring() {
        // 100 MB/s for a cycle of 60 s: scans of 40 s can have 150 MB/s, if the ring holds the backlog of 2 GB.
        let turns = (1..=6000u64).map(|n| Turn {
            from_ns: (n - 1) * 10 * MS,
            to_ns: n * 10 * MS,
            bytes: MB,
        });
        let disk = Service::new(turns.collect(), 0).in_duty(Some(duty(40_000, 20_000)));
        assert_eq!(disk.mean(), ByteRate(150 * MB));
        let ring = disk.ring_for(ByteRate(150 * MB));
        assert!(ring.abs_diff(2000 * MB) < 10 * MB, "{ring}");
        let held = disk.rate_for(1000 * MB).0;
        assert!(held.abs_diff(125 * MB) < MB, "1 GB of ring carry 25 MB/s for 40 s: {held}");
        assert_eq!(disk.rate_for(u64::MAX), disk.mean());
    }

    proptest! {
        #[test]
        fn a_duty_cycle_without_a_pause_is_no_duty_cycle(
            service in any_service(),
            record_ms in 1u64..2000,
            ring in 0u64..256 * MB,
            rate in 1u64..2_000_000_000,
        ) {
            let paused = service.clone().in_duty(Some(duty(record_ms, 0)));
            prop_assert_eq!(paused.mean(), service.mean());
            prop_assert_eq!(paused.rate_for(ring), service.rate_for(ring));
            prop_assert_eq!(paused.ring_for(ByteRate(rate)), service.ring_for(ByteRate(rate)));
            prop_assert_eq!(paused.overrun(ByteRate(rate), ring), service.overrun(ByteRate(rate), ring));
        }

        #[test]
        fn a_longer_pause_never_lowers_the_rate_held(
            cycles in any_cycles(),
            record_ms in 1u64..500,
            pause_ms in 0u64..500,
            longer_ms in 0u64..500,
            ring in 0u64..64 * MB,
        ) {
            let busy_ns = (record_ms + pause_ms) * MS;
            let of = |pause_ms| in_cycles(&cycles, busy_ns, duty(record_ms, pause_ms));
            let (short, long) = (of(pause_ms), of(pause_ms + longer_ms));
            prop_assert!(long.rate_for(ring) >= short.rate_for(ring));
            prop_assert!(long.mean() >= short.mean());
        }

        /// The sum of `record` and the table of `bench disk --duty` agree on a disk without stalls.
        #[test]
        fn steady_disk_holds_the_backlog_of_its_duty_cycle(
            record_ms in 100u64..500,
            pause_ms in 0u64..500,
            disk in 50u64..500,
            rate in 1u64..1000,
        ) {
            let (rate, disk) = (ByteRate(rate * MB), ByteRate(disk * MB));
            let duty = duty(record_ms, pause_ms);
            let step_ns = MB * 1_000_000_000 / disk.0;
            let turn = |n: u64| Turn { from_ns: n * step_ns, to_ns: (n + 1) * step_ns, bytes: MB };
            let turns = 3 * duty.cycle_ns() / step_ns;
            let service = Service::new((0..turns).map(turn).collect(), 0).in_duty(Some(duty));
            let (held, backlog) = (service.ring_for(rate), duty.backlog(rate, disk));
            let slack = 3 * (MB + rate.0 * step_ns / 1_000_000_000);
            prop_assert!(held + slack >= backlog, "{held} where {backlog} wait");
            if duty.drains(rate, disk) {
                prop_assert!(held <= backlog + slack, "{held} where {backlog} wait");
            }
        }

        #[test]
        fn a_pause_in_which_the_same_disk_goes_on_never_lowers_the_rate_of_one_scan(
            service in any_service(),
            record_ms in 1u64..500,
            ring in 0u64..64 * MB,
        ) {
            // One scan as long as the whole observation, and a shorter one with the rest as its pause.
            let whole_ms = service.end_ns() / MS + 1;
            let record_ms = record_ms.min(whole_ms);
            let paused = service.clone().in_duty(Some(duty(record_ms, whole_ms - record_ms)));
            prop_assert!(paused.rate_for(ring) >= service.rate_for(ring));
        }

        #[test]
        fn the_smallest_ring_loses_nothing_and_one_byte_less_does(
            service in any_service(),
            rate in 1u64..2_000_000_000,
        ) {
            let rate = ByteRate(rate);
            let ring = service.ring_for(rate);
            prop_assert_eq!(service.overrun(rate, ring), 0);
            if ring > service.filling() {
                prop_assert!(service.overrun(rate, ring - 1) > 0);
            }
        }

        #[test]
        fn one_pass_finds_the_worst_stretch_of_all(
            service in any_service_that_takes(0),
            rate in 0u64..2_000_000_000,
        ) {
            prop_assert_eq!(most_held(&service, rate), by_definition(&service, rate));
        }

        #[test]
        fn what_blocks_take_adds_no_more_than_what_was_under_way(
            service in any_service(),
            rate in 0u64..2_000_000_000,
        ) {
            let at_once = |turn: &Turn| Turn { to_ns: turn.from_ns, ..*turn };
            let given = Service::new(service.turns.iter().map(at_once).collect(), 0);
            let end = |service: &Service| service.turns.last().map_or(0, |last| last.to_ns);
            let behind = u128::from(rate) * u128::from(end(&service) - end(&given));
            let under_way = u128::from(most_under_way(&service)) * NS_PER_S;
            let (most, waiting) = (most_held(&service, rate), most_held(&given, rate));
            prop_assert!((waiting..=waiting + behind + under_way).contains(&most));
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
        fn a_higher_rate_never_needs_less(
            service in any_service(),
            rate in 0u64..1_000_000_000,
            more in 0u64..1_000_000_000,
        ) {
            prop_assert!(service.ring_for(ByteRate(rate)) <= service.ring_for(ByteRate(rate + more)));
        }

        #[test]
        fn a_recorder_on_the_same_disk_holds_no_more_than_was_predicted(
            block_us in 200u64..4000,
            depth in 1usize..12,
            told_later_ms in 0u64..40,
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
            let (block_ns, told_later_ns) = (block_us * 1000, told_later_ms * MS);
            let disk = Disk { block_ns, depth, told_later_ns, stalls: stalls.collect() };
            let service = disk.busy(blocks, block_bytes);
            let rate = service.mean().0 * share / 100;
            let predicted = service.ring_for(ByteRate(rate));
            // As many blocks arrive as the disk was observed for.
            let end = service.turns.last().unwrap().to_ns;
            let came = (u128::from(rate) * u128::from(end) / NS_PER_S) as u64 / block_bytes;
            let held = disk.held(came, block_bytes, rate);
            prop_assert!(held <= predicted.next_multiple_of(block_bytes), "{held} > {predicted}");
        }
    }

    #[test]
    fn a_ring_a_fifth_smaller_loses_on_the_same_disk_however_much_it_has_under_way() {
        let (blocks, block_bytes) = (2000, 4 * MB);
        for depth in [1, 2, 8, 32] {
            let stalls = vec![(1000 * MS, 1500 * MS)];
            let disk = Disk { block_ns: 2 * MS, depth, told_later_ns: 0, stalls };
            let service = disk.busy(blocks, block_bytes);
            for rate in [100 * MB, 400 * MB] {
                let predicted = service.ring_for(ByteRate(rate));
                let held = disk.held(rate / MB, block_bytes, rate);
                let told = format!("{held} for {predicted} at a depth of {depth}");
                assert!(held <= predicted && held > predicted * 8 / 10, "{told}");
            }
        }
    }
}
