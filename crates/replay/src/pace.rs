//! Packet pacing: due times, group sizes, catch-up after a stall, and release statistics.
//!
//! ```text
//! due      |    |    |    |    |    |    |    |    |    |    |
//! released |    |    |    . stall  ......||||| |    |    |    |
//!                                        └── at most 5 % faster than nominal until caught up
//! ```
//!
//! No packet is released before its due time. A group is released when its last packet is due. After a stall, packets
//! go out at a second, bounded rate until the stream has caught up, so that a receiver never sees an unexpected burst.
//! All of this is arithmetic on nanoseconds; only [`Monotonic`] reads a real clock.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;

/// Default speed of a late stream, as a multiple of the nominal rate.
pub const CATCH_UP: f64 = 1.05;

/// Binary places below the nanosecond. At 10⁷ packets per second a stream drifts by 10 ns in a day.
const PLACES: u32 = 40;

/// Above this number of packets, a product with a period could overflow. At 10⁷ packets per second that takes a year.
const MOST_PACKETS: u64 = 1 << 48;

/// The time from one packet to the next, with a resolution far below a nanosecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period(u128);

impl Period {
    /// The period of this number of packets per second; 0 is taken as 1.
    pub fn per_second(packets: u64) -> Self {
        Period((1_000_000_000 << PLACES) / u128::from(packets.max(1)))
    }

    /// The period of packets of `bytes` each at `bytes_per_second`.
    pub fn of_rate(bytes: u64, bytes_per_second: u64) -> Self {
        let product = u128::from(bytes.clamp(1, 1 << 40)) * (1_000_000_000 << PLACES);
        Period((product / u128::from(bytes_per_second.max(1))).min(1 << 79))
    }

    /// The length of this number of periods.
    #[inline]
    pub fn times_ns(self, packets: u64) -> u64 {
        ((self.0 * u128::from(packets.min(MOST_PACKETS))) >> PLACES) as u64
    }
}

/// Returns the number of packets of a stream to release at once on a thread that sends `bytes_per_second`: the smallest
/// number that one core sustains.
pub fn group_size(bytes_per_second: u64) -> usize {
    const GBIT: u64 = 1_000_000_000 / 8;
    match bytes_per_second {
        rate if rate < 8 * GBIT => 1,
        // 16 Gbit/s of payload, with headers.
        rate if rate < 17 * GBIT => 2,
        _ => 8,
    }
}

/// The release time: the time up to which due packets are released. It equals the clock, but falls behind after a stall
/// and then runs faster until it has caught up. All streams of a thread share one and stay in step.
#[derive(Clone, Copy, Debug)]
pub struct Released {
    /// The speed while behind, as a multiple of the clock's.
    speed: f64,
    /// Lateness that is made up for at once: the cost of a group or a sleep.
    slack_ns: u64,
    /// While behind: a time of the clock and the release time that belongs to it.
    behind: Option<(u64, u64)>,
}

impl Released {
    /// Catches up `catch_up` times as fast (faster by at least one in a thousand) when late by more than `slack_ns`.
    pub fn new(catch_up: f64, slack_ns: u64) -> Self {
        Released { speed: if catch_up >= 1.001 { catch_up } else { 1.001 }, slack_ns, behind: None }
    }

    /// Returns the due time up to which packets may go when the clock reads `now_ns`.
    #[inline]
    pub fn at(&self, now_ns: u64) -> u64 {
        match self.behind {
            None => now_ns,
            Some((clock, taken_for)) => {
                let since = now_ns.saturating_sub(clock) as f64 * self.speed;
                taken_for.saturating_add(since as u64).min(now_ns)
            }
        }
    }

    /// Returns the clock's reading at which packets due at `due_ns` may go.
    #[inline]
    pub fn clock_ns(&self, due_ns: u64) -> u64 {
        match self.behind {
            None => due_ns,
            Some((clock, taken_for)) => {
                let left = due_ns.saturating_sub(taken_for) as f64 / self.speed;
                clock.saturating_add(left.ceil() as u64).max(due_ns)
            }
        }
    }

    /// Detects stalls: at `now_ns`, the earliest unsent packet is due at `due_ns`.
    #[inline]
    pub fn next_is(&mut self, due_ns: u64, now_ns: u64) {
        let at_once = due_ns.saturating_add(self.slack_ns);
        if self.at(now_ns) > at_once {
            self.behind = Some((now_ns, at_once));
        } else if self.behind.is_some() && self.at(now_ns) == now_ns {
            self.behind = None;
        }
    }
}

/// The way a thread waits for the next release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Waiting {
    /// Spins on the clock, and sleeps only during long waits. Needs a core of its own.
    Exact,
    /// Sleeps, and sends all due packets when it wakes. Leaves the core to other threads.
    Gentle,
}

impl Waiting {
    /// The shortest time between two wake-ups.
    pub fn nap_ns(self) -> u64 {
        match self {
            Waiting::Exact => 0,
            Waiting::Gentle => 250_000,
        }
    }

    /// Lateness that is made up for at once.
    pub fn slack_ns(self) -> u64 {
        match self {
            Waiting::Exact => 50_000,
            Waiting::Gentle => 4 * self.nap_ns(),
        }
    }
}

/// A clock with a wait function.
pub trait Clock {
    /// Nanoseconds since some instant.
    fn now_ns(&self) -> u64;
    /// Waits until `ns` or later.
    fn wait_until(&mut self, ns: u64);
}

/// The host's monotonic clock, which starts at 0.
#[derive(Clone, Copy, Debug)]
pub struct Monotonic {
    origin: Instant,
    waiting: Waiting,
}

impl Monotonic {
    /// A wait longer than this sleeps first,
    const SLEEP_NS: u64 = 200_000;
    /// and spins for this long at the end.
    const SPIN_NS: u64 = 100_000;

    /// Starts the clock. Shortens the calling thread's timer slack, so that short sleeps end in time.
    pub fn start(waiting: Waiting) -> Self {
        // No known kernel refuses this. Without it, sleeps last 50 µs longer.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        Monotonic { origin: Instant::now(), waiting }
    }

    /// Waits for an instant, spinning at the end regardless of the way to wait later, and starts the clock at it.
    pub fn start_at(waiting: Waiting, origin: Instant) -> Self {
        let this = Monotonic { origin, ..Self::start(waiting) };
        loop {
            let left = origin.saturating_duration_since(Instant::now()).as_nanos() as u64;
            match left {
                0 => return this,
                left if left > Self::SLEEP_NS => {
                    std::thread::sleep(Duration::from_nanos(left - Self::SPIN_NS));
                }
                _ => std::hint::spin_loop(),
            }
        }
    }
}

impl Clock for Monotonic {
    #[inline]
    fn now_ns(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    #[inline]
    fn wait_until(&mut self, ns: u64) {
        loop {
            let left = ns.saturating_sub(self.now_ns());
            match self.waiting {
                _ if left == 0 => return,
                Waiting::Gentle => std::thread::sleep(Duration::from_nanos(left)),
                Waiting::Exact if left > Self::SLEEP_NS => {
                    std::thread::sleep(Duration::from_nanos(left - Self::SPIN_NS));
                }
                Waiting::Exact => std::hint::spin_loop(),
            }
        }
    }
}

/// A gate that holds packets until they may go. Packets that are due when the wait ends go together. Packets that
/// become due during that send wait for the next round, so that a gentle thread gets its sleep.
#[derive(Clone, Copy, Debug)]
pub struct Gate<C> {
    clock: C,
    released: Released,
    nap_ns: u64,
    /// Packets due up to this time may go.
    open_until_ns: u64,
    /// No wait ends before this time.
    awake_ns: u64,
}

impl<C: Clock> Gate<C> {
    /// A gate that is closed until the first packet is due.
    pub fn new(clock: C, waiting: Waiting, catch_up: f64) -> Self {
        let released = Released::new(catch_up, waiting.slack_ns());
        Gate { clock, released, nap_ns: waiting.nap_ns(), open_until_ns: 0, awake_ns: 0 }
    }

    /// Waits until packets due at `due_ns`, the earliest of the unsent packets, may go. Returns the due time up to
    /// which others may go with them, and the clock's reading.
    #[inline]
    pub fn pass(&mut self, due_ns: u64) -> (u64, u64) {
        let mut now_ns = self.clock.now_ns();
        if due_ns >= self.open_until_ns {
            let release_ns = self.released.clock_ns(due_ns).max(self.awake_ns);
            if release_ns > now_ns {
                self.clock.wait_until(release_ns);
                now_ns = self.clock.now_ns();
            }
            self.awake_ns = now_ns + self.nap_ns;
            self.released.next_is(due_ns, now_ns);
            self.open_until_ns = self.released.at(now_ns).max(due_ns) + 1;
        }
        (self.open_until_ns - 1, now_ns)
    }

    /// Returns the clock's reading.
    pub fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }
}

/// A histogram of the delay between due time and release.
#[derive(Clone, Debug)]
pub struct Lateness {
    histogram: Histogram<u64>,
}

/// The longest lateness that the histogram resolves: one minute.
const LATEST_NS: u64 = 60_000_000_000;

/// A packet later than this is a late release.
pub const LATE_NS: u64 = 1_000_000;

impl Default for Lateness {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, LATEST_NS, 2);
        Lateness { histogram: histogram.expect("the bounds are constants in order") }
    }
}

impl Lateness {
    /// Records a packet that went out `ns` after it was due.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.histogram.saturating_record(ns);
    }

    /// Returns the statistics for the report.
    pub fn summary(&self) -> LatenessSummary {
        let at = |quantile| self.histogram.value_at_quantile(quantile);
        let late = self.histogram.count_between(LATE_NS, LATEST_NS);
        let mut buckets = Vec::new();
        let mut low = 0;
        let mut high = 1000;
        while low <= self.histogram.max() && !self.histogram.is_empty() {
            buckets.push((high, self.histogram.count_between(low, high - 1)));
            (low, high) = (high, high * 2);
        }
        LatenessSummary {
            packets: self.histogram.len(),
            median_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            max_ns: self.histogram.max(),
            late,
            buckets,
        }
    }
}

/// The distance between due and actual release, all packets of a run together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LatenessSummary {
    /// The number of packets that had a due time.
    pub packets: u64,
    /// The median lateness.
    pub median_ns: u64,
    /// The 90th percentile.
    pub p90_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
    /// The 99.9th percentile.
    pub p999_ns: u64,
    /// The largest lateness.
    pub max_ns: u64,
    /// The number of packets more than a millisecond late.
    pub late: u64,
    /// The histogram: an upper bound in nanoseconds (the lower bound is that of the row before), and the number of
    /// packets.
    pub buckets: Vec<(u64, u64)>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_day_of_frames_ends_on_the_nanosecond() {
        let period = Period::per_second(32_000);
        assert_eq!(period.times_ns(32_000 * 86_400), 86_400_000_000_000);
        // 10⁷ packets per second for a day, and a rate whose period is not a whole number of nanoseconds.
        assert!(
            86_400_000_000_000 - Period::per_second(9_999_991).times_ns(9_999_991 * 86_400) < 20
        );
        assert_eq!(Period::of_rate(8032, 8032 * 1000).times_ns(1), 1_000_000);
    }

    #[test]
    fn groups_are_the_smallest_that_hold_the_rate() {
        let gbit = |n: u64| n * 125_000_000;
        assert_eq!([2, 7, 8, 16, 20].map(|n| group_size(gbit(n))), [1, 1, 2, 2, 8]);
        assert_eq!(group_size(8 * 257_024_000), 2);
    }

    /// Sends packets over a clock that jumps forward before some of them. Returns due times and release times.
    fn releases(period_ns: u64, stalls: &[(u64, u64)], count: u64) -> Vec<(u64, u64)> {
        let mut released = Released::new(CATCH_UP, 0);
        let mut now = 0;
        (0..count)
            .map(|n| {
                let due = n * period_ns;
                now = now.max(released.clock_ns(due));
                now += stalls.iter().filter(|(at, _)| *at == n).map(|(_, ns)| ns).sum::<u64>();
                released.next_is(due, now);
                assert!(released.at(now) >= due, "released before its time");
                (due, now)
            })
            .collect()
    }

    #[test]
    fn a_stall_of_a_millisecond_is_made_up_for_in_twenty() {
        let all = releases(10_000, &[(100, 1_000_000)], 3000);
        assert_eq!(all[99], (990_000, 990_000));
        let caught_up = all.iter().position(|(due, at)| *due > 1_000_000 && due == at).unwrap();
        let took = all[caught_up].1 - all[100].1;
        assert!((19_000_000..22_000_000).contains(&took), "{took}");
    }

    proptest! {
        #[test]
        fn nothing_goes_early_and_catching_up_is_bounded(
            period in 100u64..1_000_000,
            stalls in prop::collection::vec((0u64..200, 0u64..50_000_000), 0..5),
        ) {
            let all = releases(period, &stalls, 300);
            for (due, at) in &all {
                prop_assert!(at >= due);
            }
            for pair in all.windows(2) {
                let gap = pair[1].1 - pair[0].1;
                prop_assert!(gap as f64 >= period as f64 / CATCH_UP - 2.0, "{pair:?}");
            }
        }
    }

    /// A clock that moves only during waits.
    struct Fake(std::cell::Cell<u64>);

    impl Clock for Fake {
        fn now_ns(&self) -> u64 {
            self.0.get()
        }
        fn wait_until(&mut self, ns: u64) {
            assert!(ns > self.0.get(), "there is nothing to wait for");
            self.0.set(ns);
        }
    }

    #[test]
    fn a_gentle_gate_naps_and_lets_through_what_became_due() {
        let mut gate = Gate::new(Fake(0.into()), Waiting::Gentle, CATCH_UP);
        assert_eq!(gate.pass(10), (10, 10));
        // A packet that becomes due during a send waits for the end of the sleep.
        gate.clock.0.set(50_000);
        assert_eq!(gate.pass(20_000), (250_010, 250_010));
        assert_eq!(gate.pass(240_000), (250_010, 250_010));
        gate.clock.0.set(300_000);
        assert_eq!(gate.pass(250_010), (250_010, 300_000));
        assert_eq!(gate.pass(250_011), (500_010, 500_010));
        assert_eq!(gate.pass(900_000), (900_000, 900_000));
    }

    #[test]
    fn an_exact_gate_lets_each_through_when_it_is_due() {
        let mut gate = Gate::new(Fake(0.into()), Waiting::Exact, CATCH_UP);
        assert_eq!(gate.pass(0), (0, 0));
        assert_eq!(gate.pass(1000), (1000, 1000));
        gate.clock.0.set(2500);
        assert_eq!(gate.pass(2000), (2500, 2500));
        // A stall of 10 ms: the slack at once, the rest 5 % faster.
        gate.clock.0.set(10_002_500);
        assert_eq!(gate.pass(3000), (53_000, 10_002_500));
        assert_eq!(gate.pass(53_000), (53_000, 10_002_500));
        assert_eq!(gate.pass(53_000 + 1_050_000), (1_103_000, 11_002_500));
    }

    #[test]
    fn lateness_is_told_by_quantiles_and_buckets() {
        let mut lateness = Lateness::default();
        for n in 0..1000 {
            lateness.record(if n < 990 { 1500 } else { 3_000_000 });
        }
        let summary = lateness.summary();
        assert_eq!((summary.packets, summary.late), (1000, 10));
        assert!((1490..1520).contains(&summary.median_ns), "{summary:?}");
        assert!(summary.max_ns >= 3_000_000);
        assert_eq!(summary.buckets.iter().map(|(_, count)| count).sum::<u64>(), 1000);
        assert_eq!(summary.buckets[1], (2000, 990));
        assert!(Lateness::default().summary().buckets.is_empty());
    }

    #[test]
    fn waiting_ends_at_or_after_the_time_asked_for() {
        for waiting in [Waiting::Exact, Waiting::Gentle] {
            let mut clock = Monotonic::start(waiting);
            let until = clock.now_ns() + 500_000;
            clock.wait_until(until);
            assert!(clock.now_ns() >= until);
        }
    }
}
