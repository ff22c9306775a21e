//! The index of a packet: its count modulo 16, extended by its time.
//!
//! The count alone does not show that 16, 32 … packets are lost in a row. The time between two packets does, once the
//! duration of a packet is known: two steps that agree tell it. All times are reckoned as differences of whole
//! picoseconds, so that nothing adds up over a scan.

use super::packet::{Epoch, Fraction, PICOSECONDS, Prologue};

/// Packets of a count.
const CYCLE: i64 = 16;

/// The part of a step by which two equal steps may differ: the clock of a sender is adjusted.
const TOLERANCE: i128 = 100_000;

/// Units by which a rounded time may differ from the exact one, on each side.
const ROUNDING: i128 = 2;

/// The largest distance that a time can put between two packets. Wrong times put them further.
const FURTHEST: i64 = 1 << 60;

/// The state of one stream's count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketCounter {
    last: Option<Seen>,
    is_data: bool,
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
    count: u8,
    seconds: Option<(Epoch, u32)>,
    fraction: Fraction,
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
    /// True if packets are counted by their time too: 16 packets lost in a row are noticed.
    pub fn has_step(&self) -> bool {
        self.step.is_some()
    }

    /// Returns the index of a packet, without learning from it.
    #[inline]
    pub fn index(&self, prologue: &Prologue) -> Counted {
        let Some(last) = self.last else {
            return Counted { index: i64::from(prologue.count), disagrees: false };
        };
        let by_count = (i64::from(prologue.count) - i64::from(last.count)).rem_euclid(CYCLE);
        let nearest = |to: i64| {
            let off = (by_count - to).rem_euclid(CYCLE);
            to.saturating_add(if off > CYCLE / 2 { off - CYCLE } else { off })
        };
        let (step, disagrees) = match self.steps(&last, prologue) {
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
    pub fn observe(&mut self, prologue: &Prologue) -> Counted {
        let counted = self.index(prologue);
        self.is_data = prologue.kind.is_data();
        let payload = prologue.payload_bytes();
        let seen = Seen {
            index: counted.index,
            count: prologue.count,
            seconds: prologue.seconds,
            fraction: prologue.fraction,
            payload,
        };
        if let Some(last) = self.last {
            if counted.index < last.index {
                return counted;
            }
            self.learn(&last, &seen);
        }
        self.last = Some(seen);
        counted
    }

    fn learn(&mut self, last: &Seen, seen: &Seen) {
        // Context comes when it likes: no duration follows from it.
        if !self.is_data || seen.index != last.index.saturating_add(1) || last.payload == 0 {
            return;
        }
        self.learn_second(last, seen);
        let Some(units) = self.elapsed(last, seen).filter(|units| *units > 0) else { return };
        let step = Step { units, payload: last.payload };
        if self.candidate.is_some_and(|candidate| candidate.agrees(step)) {
            self.step = Some(step);
        }
        self.candidate = Some(step);
    }

    /// Learns the samples per second from two packets around the start of a second.
    fn learn_second(&mut self, last: &Seen, seen: &Seen) {
        let (Some((_, before)), Some((_, after))) = (last.seconds, seen.seconds) else { return };
        let (Fraction::Samples(from), Fraction::Samples(to)) = (last.fraction, seen.fraction)
        else {
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
    fn steps(&self, last: &Seen, prologue: &Prologue) -> Option<i64> {
        let step = self.step?;
        let seen = Seen {
            index: 0,
            count: prologue.count,
            seconds: prologue.seconds,
            fraction: prologue.fraction,
            payload: prologue.payload_bytes(),
        };
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
        match (from.fraction, to.fraction) {
            (Fraction::Picoseconds(before), Fraction::Picoseconds(after)) => {
                let part = i128::from(after) - i128::from(before);
                Some(seconds * i128::from(PICOSECONDS) + part)
            }
            (Fraction::Samples(before), Fraction::Samples(after)) => {
                let part = i128::from(after) - i128::from(before);
                match (seconds, self.samples_per_second) {
                    (0, _) => Some(part),
                    (_, rate) => Some(seconds * i128::from(rate?) + part),
                }
            }
            (Fraction::Free(before), Fraction::Free(after)) => {
                Some(i128::from(after.wrapping_sub(before).cast_signed()))
            }
            _ => None,
        }
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
    use crate::vita49::Kind;

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
    fn packet(index: u64, rate: u64, stamp: Stamp) -> Prologue {
        let samples = 1_000_000 * rate + 360 * index;
        let second = (samples / rate) as u32;
        let part = samples % rate;
        let ps = (u128::from(part) * u128::from(PICOSECONDS) / u128::from(rate)) as u64;
        let utc = Some((Epoch::Utc, second));
        let (seconds, fraction) = match stamp {
            Stamp::None => (None, Fraction::None),
            Stamp::RealTime => (utc, Fraction::Picoseconds(ps)),
            Stamp::Samples => (None, Fraction::Samples(samples)),
            Stamp::SecondsAndSamples => (utc, Fraction::Samples(part)),
            Stamp::Free => (None, Fraction::Free(samples.wrapping_sub(u64::from(u32::MAX) << 12))),
        };
        let bytes = 4 * (1 + 1 + usize::from(seconds.is_some()));
        let bytes = bytes + if fraction == Fraction::None { 0 } else { 8 };
        Prologue {
            kind: Kind::Data,
            stream: Some(1),
            class: None,
            seconds,
            fraction,
            has_trailer: false,
            count: (index % 16) as u8,
            words: (360 + bytes / 4) as u16,
        }
    }

    /// Observes the packets with these indices, and returns the steps between them as counted.
    fn steps(indices: &[u64], rate: u64, stamp: Stamp) -> Vec<i64> {
        let mut counter = PacketCounter::default();
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
        let mut counter = PacketCounter::default();
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
        let mut counter = PacketCounter::default();
        for index in 0..5 {
            counter.observe(&packet(index, 61_440_000, Stamp::RealTime));
        }
        let mut short = packet(5, 61_440_000, Stamp::RealTime);
        short.words = 100;
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
            packets in prop::collection::vec((any::<u32>(), any::<u64>(), 0u8..16, any::<u16>(), 0u8..4), 0..40),
        ) {
            let mut counter = PacketCounter::default();
            for (second, fraction, count, words, kind) in packets {
                let fraction = match kind {
                    0 => Fraction::None,
                    1 => Fraction::Samples(fraction),
                    2 => Fraction::Picoseconds(fraction % PICOSECONDS),
                    _ => Fraction::Free(fraction),
                };
                let mut prologue = packet(0, 1, Stamp::None);
                (prologue.seconds, prologue.fraction) = (Some((Epoch::Utc, second)), fraction);
                (prologue.count, prologue.words) = (count, words);
                let index = counter.observe(&prologue).index;
                prop_assert!(index.abs() <= FURTHEST);
            }
        }
    }
}
