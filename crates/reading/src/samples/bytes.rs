//! Samples in bytes without frames: those that cross two blocks are joined.

use std::ops::Range;

use super::rows::Unit;

/// Cuts a stream of bytes into whole samples.
#[derive(Debug)]
pub struct Joiner {
    sample_bits: u64,
    /// The fewest bytes that are whole samples.
    unit: u64,
    /// The start of a unit, whose rest is in the next block.
    carried: Vec<u8>,
    /// The place of the next byte.
    next: u64,
}

impl Joiner {
    /// Samples of this many bits.
    pub fn new(sample_bits: u64) -> Self {
        let sample_bits = sample_bits.max(1);
        let unit = Unit::new(sample_bits).bytes as u64;
        Self { sample_bits, unit, carried: Vec::new(), next: 0 }
    }

    /// The bytes of a range of samples, in whole units, of a stream of this many bytes.
    pub fn bytes_of(&self, samples: &Range<u64>, bytes: u64) -> Range<u64> {
        let bits = |samples: u64| u128::from(samples) * u128::from(self.sample_bits);
        let unit = u128::from(self.unit);
        let start = bits(samples.start) / 8 / unit * unit;
        let end = bits(samples.end).div_ceil(8).div_ceil(unit) * unit;
        let start = u64::try_from(start).unwrap_or(u64::MAX).min(bytes);
        start..u64::try_from(end).unwrap_or(u64::MAX).min(bytes)
    }

    /// Takes the bytes at a place, and gives whole samples with the number of the first. Bytes before a hole that are no
    /// whole unit are dropped.
    pub fn take(&mut self, at: u64, mut bytes: &[u8], give: &mut impl FnMut(u64, &[u8])) {
        let unit = self.unit as usize;
        let mut at = at;
        let sample = |at: u64| (u128::from(at) * 8 / u128::from(self.sample_bits)) as u64;
        if at != self.next {
            self.carried.clear();
        }
        self.next = at + bytes.len() as u64;
        if !self.carried.is_empty() {
            let count = (unit - self.carried.len()).min(bytes.len());
            self.carried.extend(&bytes[..count]);
            (at, bytes) = (at + count as u64, &bytes[count..]);
            if self.carried.len() < unit {
                return;
            }
            give(sample(at - self.unit), &self.carried);
            self.carried.clear();
        } else {
            let behind = at.next_multiple_of(self.unit) - at;
            let count = (behind as usize).min(bytes.len());
            (at, bytes) = (at + count as u64, &bytes[count..]);
        }
        let whole = bytes.len() / unit * unit;
        if whole > 0 {
            give(sample(at), &bytes[..whole]);
        }
        self.carried.extend(&bytes[whole..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cut_gives_the_same_samples() {
        // Three channels of 16 bits: units of 6 bytes.
        let bytes: Vec<u8> = (0..64).collect();
        for size in 1..=bytes.len() {
            let mut joiner = Joiner::new(48);
            let mut joined = vec![0; 60];
            for (number, piece) in bytes.chunks(size).enumerate() {
                joiner.take((number * size) as u64, piece, &mut |sample, whole| {
                    let at = sample as usize * 6;
                    joined[at..at + whole.len()].copy_from_slice(whole);
                });
            }
            assert_eq!(joined, bytes[..60], "pieces of {size}");
        }
    }

    #[test]
    fn behind_a_hole_only_whole_samples_count() {
        let bytes: Vec<u8> = (0..64).collect();
        let mut joiner = Joiner::new(48);
        let mut given = Vec::new();
        for range in [0..10, 20..40, 41..45] {
            joiner.take(range.start as u64, &bytes[range], &mut |sample, whole| {
                given.push((sample, whole.to_vec()));
            });
        }
        let whole = |samples: Range<u64>| {
            (samples.start, bytes[samples.start as usize * 6..samples.end as usize * 6].to_vec())
        };
        assert_eq!(given, [whole(0..1), whole(4..6)]);
    }

    #[test]
    fn a_range_of_samples_has_whole_units_inside_the_stream() {
        let joiner = Joiner::new(6);
        assert_eq!(joiner.bytes_of(&(1..2), 100), 0..3);
        assert_eq!(joiner.bytes_of(&(4..9), 100), 3..9);
        assert_eq!(joiner.bytes_of(&(4..9), 7), 3..7);
    }
}
