//! Statistics of the samples in VDIF payloads: whether levels are set well, and whether a channel is dead.
//!
//! A payload is a sequence of 32-bit little-endian words. Each holds whole elements, the first in the lowest bits; an
//! element does not cross words. A complete sample has one element for each channel, or two (real, imaginary) if it is
//! complex. Elements are offset binary: with two bits, 0 to 3 are the levels −1.5, −0.5, +0.5 and +1.5
//! (VDIF specification 1.1.1, section 8).

use super::Header;

/// Up to this many bits per element the number of samples at each level is counted.
const MOST_BITS_COUNTED: u32 = 4;

/// The statistics of one or more frames of the same kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SampleStatistics {
    /// The number of elements at each level, from the lowest to the highest. Empty with more than four bits.
    pub levels: Vec<u64>,
    /// The statistics of each channel.
    pub channels: Vec<ChannelStatistics>,
}

/// The statistics of a channel, in units of one level.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ChannelStatistics {
    /// Elements: samples, or twice as many if they are complex.
    pub elements: u64,
    /// Elements at the lowest or highest level.
    pub extreme: u64,
    sum: f64,
    squares: f64,
}

impl ChannelStatistics {
    /// The mean; 0 without elements.
    pub fn mean(&self) -> f64 {
        self.sum / self.elements.max(1) as f64
    }

    /// The standard deviation; 0 without elements.
    pub fn deviation(&self) -> f64 {
        let mean = self.mean();
        (self.squares / self.elements.max(1) as f64 - mean * mean).max(0.0).sqrt()
    }

    fn add(&mut self, other: &Self) {
        self.elements += other.elements;
        self.extreme += other.extreme;
        self.sum += other.sum;
        self.squares += other.squares;
    }
}

impl SampleStatistics {
    /// The statistics of all channels together.
    pub fn all(&self) -> ChannelStatistics {
        let mut all = ChannelStatistics::default();
        self.channels.iter().for_each(|channel| all.add(channel));
        all
    }

    /// Adds the payload of a frame with this header. Frames with other bits or channels than the first are left out.
    pub fn take(&mut self, header: &Header, payload: &[u8]) {
        let (bits, channels) = (header.bits_per_sample(), header.channels() as usize);
        let levels = if bits <= MOST_BITS_COUNTED { 1 << bits } else { 0 };
        if self.channels.is_empty() {
            self.channels = vec![ChannelStatistics::default(); channels];
            self.levels = vec![0; levels];
        }
        if (self.channels.len(), self.levels.len()) != (channels, levels) {
            return;
        }
        let parts = if header.complex() { 2 } else { 1 };
        let highest = u32::MAX >> (32 - bits);
        let middle = f64::from(highest) / 2.0;
        let mut element = 0;
        for word in payload.chunks_exact(4) {
            let mut word = u32::from_le_bytes(word.try_into().expect("it has four bytes"));
            for _ in 0..32 / bits {
                let level = word & highest;
                word = word.checked_shr(bits).unwrap_or(0);
                if let Some(count) = self.levels.get_mut(level as usize) {
                    *count += 1;
                }
                let (value, channel) =
                    (f64::from(level) - middle, &mut self.channels[element / parts]);
                channel.elements += 1;
                channel.extreme += u64::from(level == 0 || level == highest);
                channel.sum += value;
                channel.squares += value * value;
                element = (element + 1) % (channels * parts);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statistics(header: Header, payload: &[u8]) -> SampleStatistics {
        let mut statistics = SampleStatistics::default();
        statistics.take(&header, payload);
        statistics
    }

    #[test]
    fn two_bit_samples_are_counted_by_level() {
        // 0b11_10_01_00: the levels 0, 1, 2, 3 in this order.
        let header = Header::default().with_bits_per_sample(2);
        let told = statistics(header, &[0b1110_0100; 8]);
        assert_eq!(told.levels, [8, 8, 8, 8]);
        let all = told.all();
        assert_eq!((all.elements, all.extreme, all.mean()), (32, 16, 0.0));
        assert!((all.deviation() - 1.25f64.sqrt()).abs() < 1e-12);
    }

    #[test]
    fn channels_alternate_and_complex_samples_have_two_elements() {
        let header = Header::default().with_bits_per_sample(8).with_log2_channels(1);
        let real = statistics(header, &[0, 255, 0, 255, 0, 255, 0, 255]);
        let means: Vec<f64> = real.channels.iter().map(ChannelStatistics::mean).collect();
        assert_eq!((means, real.levels.len()), (vec![-127.5, 127.5], 0));
        let complex = statistics(header.with_complex(true), &[0, 255, 10, 10, 0, 255, 10, 10]);
        let means: Vec<f64> = complex.channels.iter().map(ChannelStatistics::mean).collect();
        assert_eq!(means, [0.0, -117.5]);
    }

    #[test]
    fn elements_of_five_bits_do_not_cross_words_and_those_of_32_fill_them() {
        let five = statistics(Header::default().with_bits_per_sample(5), &[0xFF; 8]);
        assert_eq!((five.all().elements, five.all().extreme), (12, 12));
        let whole = statistics(Header::default().with_bits_per_sample(32), &[0xFF; 8]);
        assert_eq!((whole.all().elements, whole.all().extreme), (2, 2));
    }

    #[test]
    fn frames_of_another_kind_are_left_out_and_an_empty_payload_has_no_statistics() {
        let header = Header::default().with_bits_per_sample(2);
        let mut told = statistics(header, &[0; 8]);
        told.take(&header.with_bits_per_sample(1), &[0; 8]);
        assert_eq!(told.all().elements, 32);
        let none = statistics(header, &[]).all();
        assert_eq!((none.elements, none.mean(), none.deviation()), (0, 0.0, 0.0));
    }
}
