//! The index of a packet: its count, which wraps, extended by its time.
//!
//! The count alone does not show that a whole cycle of packets is lost: 16 of VITA-49, 65 536 of RTP. The time between
//! two packets does, once the duration of a packet is known: two steps that agree tell it. All times are reckoned as
//! differences of whole picoseconds, so that nothing adds up over a scan.

use crate::vita49::packet::{Epoch, Fraction, PICOSECONDS};

/// The part of a step by which two equal steps may differ: the clock of a sender is adjusted.
const TOLERANCE: i128 = 100_000;

/// Units by which a rounded time may differ from the exact one, on each side.
const ROUNDING: i128 = 2;

/// The largest distance that a time can put between two packets. Wrong times put them further.
const FURTHEST: i64 = 1 << 60;

/// The time of a packet within a second, or on a clock without seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// None.
    None,
    /// Samples since the last whole second, or since any start if there is no second.
    Samples(u64),
    /// Picoseconds since the last whole second.
    Picoseconds(u64),
    /// A count that runs freely.
    Free(u64),
    /// A count of 32 bits that runs freely.
    Wrapping(u32),
}

impl From<Fraction> for Clock {
    fn from(fraction: Fraction) -> Self {
        match fraction {
            Fraction::None => Self::None,
            Fraction::Samples(samples) => Self::Samples(samples),
            Fraction::Picoseconds(picoseconds) => Self::Picoseconds(picoseconds),
            Fraction::Free(count) => Self::Free(count),
        }
    }
}

/// What a packet says about its place in its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The count, below the cycle.
    pub count: u16,
    /// Whole seconds and their origin, if given.
    pub seconds: Option<(Epoch, u32)>,
    /// The time within the second, or another clock.
    pub clock: Clock,
    /// Bytes of the payload.
    pub payload_bytes: usize,
    /// True if the payload is as long as the time to the next packet.
    pub is_timed: bool,
}

/// The state of one stream's count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketCounter {
    /// Packets of a count.
    cycle: i64,
    last: Option<Seen>,
    /// True if packets in a row have had one time: their time does not number them.
    in_groups: bool,
    /// The duration of a packet, once two steps agree.
    step: Option<Step>,
    /// The newest step of one packet.
    candidate: Option<Step>,
    /// Samples per second, if the time is seconds and samples.
    samples_per_second: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    index: i64,
    count: u16,
    seconds: Option<(Epoch, u32)>,
    clock: Clock,
    payload: usize,
}

/// The duration of a payload of this many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    units: i128,
    payload: usize,
}

/// The index of a packet by its count and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The index.
    pub index: i64,
    /// True if the time puts the packet at another index than the count, by more than half a packet.
    pub disagrees: bool,
}

impl PacketCounter {
    /// Returns a counter for packets whose count has so many values, a power of two.
    pub fn new(cycle: u32) -> Self {
        Self {
            cycle: cycle.into(),
            last: None,
            in_groups: false,
            step: None,
            candidate: None,
            samples_per_second: None,
        }
    }

    /// True if packets are counted by their time too: a lost cycle of packets is noticed.
    pub fn has_step(&self) -> bool {
        self.step.is_some()
    }

    /// Returns the index of a packet, without learning from it.
    #[inline]
    pub fn index(&self, place: &Place) -> Counted {
        let Some(last) = self.last else {
            return Counted { index: i64::from(place.count), disagrees: false };
        };
        let cycle = self.cycle;
        let by_count = (i64::from(place.count) - i64::from(last.count)).rem_euclid(cycle);
        let nearest = |to: i64| {
            let off = (by_count - to).rem_euclid(cycle);
            to.saturating_add(if off > cycle / 2 { off - cycle } else { off })
        };
        let (step, disagrees) = match self.steps(&last, place) {
            // Packets may overtake others by less than half a cycle.
            None => (nearest(0), false),
            Some(steps) => {
                let step = nearest(steps);
                (step, step != steps)
            }
        };
        Counted { index: last.index.saturating_add(step).clamp(-FURTHEST, FURTHEST), disagrees }
    }

    /// Returns the index of a packet, and learns from it.
    #[inline]
    pub fn observe(&mut self, place: &Place) -> Counted {
        let counted = self.index(place);
        let seen = Seen::of(counted.index, place);
        if let Some(last) = self.last {
            if counted.index < last.index {
                return counted;
            }
            // Context comes when it likes: no duration follows from it.
            if place.is_timed {
                self.learn(&last, &seen);
            }
        }
        self.last = Some(seen);
        counted
    }

    fn learn(&mut self, last: &Seen, seen: &Seen) {
        if self.in_groups || seen.index != last.index.saturating_add(1) || last.payload == 0 {
            return;
        }
        self.learn_second(last, seen);
        let elapsed = self.elapsed(last, seen);
        if elapsed == Some(0) {
            (self.in_groups, self.step) = (true, None);
            return;
        }
        let Some(units) = elapsed.filter(|units| *units > 0) else { return };
        let step = Step { units, payload: last.payload };
        if self.candidate.is_some_and(|candidate| candidate.agrees(step)) {
            self.step = Some(step);
        }
        self.candidate = Some(step);
    }

    /// Learns the samples per second from two packets around the start of a second.
    fn learn_second(&mut self, last: &Seen, seen: &Seen) {
        let (Some((_, before)), Some((_, after))) = (last.seconds, seen.seconds) else { return };
        let (Clock::Samples(from), Clock::Samples(to)) = (last.clock, seen.clock) else {
            return;
        };
        let step = self.step.filter(|step| step.payload == last.payload);
        if let Some(step) = step.and_then(|step| u64::try_from(step.units).ok())
            && after == before.wrapping_add(1)
        {
            self.samples_per_second = from.checked_add(step).and_then(|sum| sum.checked_sub(to));
        }
    }

    /// Returns the packets between two of them, by their times and the duration of a packet.
    fn steps(&self, last: &Seen, place: &Place) -> Option<i64> {
        let step = self.step?;
        let seen = Seen::of(0, place);
        let units = self.elapsed(last, &seen)?;
        // Each packet up to this one is taken to be as long as the last one; one before it is as long as itself.
        let payload = if units > 0 { last.payload } else { seen.payload };
        let of_one = step.units.checked_mul(payload as i128)?;
        let all = units.checked_mul(step.payload as i128)?;
        if of_one == 0 {
            return None;
        }
        let rounded = (2 * all + of_one).div_euclid(2 * of_one);
        Some(rounded.clamp(-i128::from(FURTHEST), i128::from(FURTHEST)) as i64)
    }

    /// Returns the time between two packets: picoseconds, samples, or steps of a free count.
    fn elapsed(&self, from: &Seen, to: &Seen) -> Option<i128> {
        let seconds = match (from.seconds, to.seconds) {
            (None, None) => 0,
            (Some((of, before)), Some((epoch, after))) if of == epoch => {
                i128::from(after) - i128::from(before)
            }
            _ => return None,
        };
        match (from.clock, to.clock) {
            (Clock::Picoseconds(before), Clock::Picoseconds(after)) => {
                let part = i128::from(after) - i128::from(before);
                Some(seconds * i128::from(PICOSECONDS) + part)
            }
            (Clock::Samples(before), Clock::Samples(after)) => {
                let part = i128::from(after) - i128::from(before);
                match (seconds, self.samples_per_second) {
                    (0, _) => Some(part),
                    (_, rate) => Some(seconds * i128::from(rate?) + part),
                }
            }
            (Clock::Free(before), Clock::Free(after)) => {
                Some(i128::from(after.wrapping_sub(before).cast_signed()))
            }
            (Clock::Wrapping(before), Clock::Wrapping(after)) => {
                Some(i128::from(after.wrapping_sub(before).cast_signed()))
            }
            _ => None,
        }
    }
}

impl Seen {
    fn of(index: i64, place: &Place) -> Self {
        let Place { count, seconds, clock, payload_bytes: payload, .. } = *place;
        Self { index, count, seconds, clock, payload }
    }
}

impl Step {
    /// True if both are the same duration for each byte, but for rounding and the clock's adjustment.
    fn agrees(self, other: Step) -> bool {
        let [own, its] = [(self, other), (other, self)]
            .map(|(step, by)| step.units.saturating_mul(by.payload as i128));
        let rounding = ROUNDING * (self.payload.max(other.payload) as i128);
        (own - its).abs() <= rounding.saturating_add(own.abs() / TOLERANCE)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug)]
    enum Stamp {
        None,
        RealTime,
        Samples,
        SecondsAndSamples,
        Free,
    }

    const STAMPS: [Stamp; 4] =
        [Stamp::RealTime, Stamp::Samples, Stamp::SecondsAndSamples, Stamp::Free];

    /// The packet at an index: 360 samples each, at this rate.
    fn packet(index: u64, rate: u64, stamp: Stamp) -> Place {
        let samples = 1_000_000 * rate + 360 * index;
        let second = (samples / rate) as u32;
        let part = samples % rate;
        let ps = (u128::from(part) * u128::from(PICOSECONDS) / u128::from(rate)) as u64;
        let utc = Some((Epoch::Utc, second));
        let (seconds, clock) = match stamp {
            Stamp::None => (None, Clock::None),
            Stamp::RealTime => (utc, Clock::Picoseconds(ps)),
            Stamp::Samples => (None, Clock::Samples(samples)),
            Stamp::SecondsAndSamples => (utc, Clock::Samples(part)),
            Stamp::Free => (None, Clock::Free(samples.wrapping_sub(u64::from(u32::MAX) << 12))),
        };
        let count = (index % 16) as u16;
        Place { count, seconds, clock, payload_bytes: 4 * 360, is_timed: true }
    }

    /// Observes the packets with these indices, and returns the steps between them as counted.
    fn steps(indices: &[u64], rate: u64, stamp: Stamp) -> Vec<i64> {
        let mut counter = PacketCounter::new(16);
        let counted: Vec<i64> = indices
            .iter()
            .map(|index| {
                let counted = counter.observe(&packet(*index, rate, stamp));
                assert!(!counted.disagrees, "{stamp:?} {index}");
                counted.index
            })
            .collect();
        counted.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    #[test]
    fn time_shows_losses_of_whole_cycles() {
        for stamp in STAMPS {
            for lost in [1, 15, 16, 17, 32, 160, 16_000] {
                let indices = [0, 1, 2, 3, 4 + lost, 5 + lost];
                let expected = [1, 1, 1, 1 + lost as i64, 1];
                assert_eq!(steps(&indices, 61_440_000, stamp), expected, "{stamp:?} {lost}");
            }
        }
        // The count alone shows one packet less than half a cycle.
        assert_eq!(steps(&[0, 1, 2, 3, 20], 1_000_000, Stamp::None), [1, 1, 1, 1]);
    }

    #[test]
    fn a_second_of_samples_is_learnt_where_it_begins() {
        let mut indices: Vec<u64> = (0..6000).collect();
        indices.extend([9000, 9001]);
        let counted = steps(&indices, 1_000_000, Stamp::SecondsAndSamples);
        assert_eq!(counted.iter().sum::<i64>(), 9001);
    }

    #[test]
    fn a_time_that_contradicts_the_count_is_told() {
        let mut counter = PacketCounter::new(16);
        for index in 0..10 {
            assert!(!counter.observe(&packet(index, 1_000_000, Stamp::RealTime)).disagrees);
        }
        let mut wrong = packet(10, 1_000_000, Stamp::RealTime);
        wrong.count = 13;
        assert_eq!(counter.index(&wrong), Counted { index: 13, disagrees: true });
        assert_eq!(counter.index(&packet(4, 1_000_000, Stamp::RealTime)).index, 4, "overtaken");
    }

    #[test]
    fn a_first_loss_does_not_fix_a_wrong_duration() {
        let indices = [0, 17, 18, 19, 36, 37];
        assert_eq!(steps(&indices, 1_000_000, Stamp::RealTime), [1, 1, 1, 17, 1]);
    }

    #[test]
    fn a_short_packet_at_the_end_keeps_the_count() {
        let mut counter = PacketCounter::new(16);
        for index in 0..5 {
            counter.observe(&packet(index, 61_440_000, Stamp::RealTime));
        }
        let mut short = packet(5, 61_440_000, Stamp::RealTime);
        short.payload_bytes = 100;
        assert_eq!(counter.observe(&short), Counted { index: 5, disagrees: false });
    }

    proptest! {
        #[test]
        fn any_losses_are_counted_at_any_rate(
            rate in 1_000u64..4_000_000_000,
            losses in prop::collection::vec(0u64..400, 0..50),
            stamp in prop::sample::select(&[Stamp::RealTime, Stamp::Samples, Stamp::Free][..]),
        ) {
            let mut indices = vec![0, 1, 2, 3];
            for lost in losses {
                indices.push(indices.last().unwrap() + 1 + lost);
            }
            let counted = steps(&indices, rate, stamp);
            let truth: Vec<i64> = indices.windows(2).map(|pair| (pair[1] - pair[0]) as i64).collect();
            prop_assert_eq!(counted, truth);
        }

        #[test]
        fn any_packets_are_counted_without_overflow(
            packets in prop::collection::vec((any::<u32>(), any::<u64>(), 0u16..16, any::<u16>(), 0u8..5), 0..40),
        ) {
            let mut counter = PacketCounter::new(16);
            for (second, fraction, count, bytes, kind) in packets {
                let clock = match kind {
                    0 => Clock::None,
                    1 => Clock::Samples(fraction),
                    2 => Clock::Picoseconds(fraction % PICOSECONDS),
                    3 => Clock::Wrapping(fraction as u32),
                    _ => Clock::Free(fraction),
                };
                let seconds = Some((Epoch::Utc, second));
                let payload_bytes = bytes.into();
                let place = Place { count, seconds, clock, payload_bytes, is_timed: true };
                let index = counter.observe(&place).index;
                prop_assert!(index.abs() <= FURTHEST);
            }
        }
    }
}
