//! Power, level and band power of each channel in short bins of a stream.
//!
//! ```text
//! payloads of a thread   │ 0      │ 1      │   absent   │ 4      │
//! bins                   │ 0   │ 1   │ 2   │      │ 5   │ 6   │      a bin counts the samples that are there
//! ```
//!
//! Encodings of at most 8 bits are counted by their bytes where that is faster than to decode each.

use std::collections::BTreeMap;
use std::sync::Arc;

use fullbore_formats::samples::SampleLayout;
use fullbore_formats::samples::decode::Decoder;
use rustfft::num_complex::Complex;

use super::bands::{BandSums, Bands};
use crate::accumulate::count;

/// Counting bytes pays if a bin has this many times as many bytes as there are counters.
const COUNTED: u64 = 4;

/// Bytes that are decoded at a time, so that their values stay in the cache of a core.
const DECODED_BYTES: usize = 1 << 14;

/// The quantities of one channel in one bin.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LineValues {
    /// The mean square; of complex samples, of their absolute values.
    pub power: f64,
    /// The largest absolute value of a sample, or of a part of a complex one.
    pub level: f64,
    /// The power of each band; empty if no segment was complete.
    pub bands: Vec<f64>,
}

/// The channels of one thread in one bin.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The thread.
    pub thread: u16,
    /// The number of the bin.
    pub bin: u64,
    /// The channels.
    pub lines: Vec<LineValues>,
}

/// Adds up the samples of each bin.
pub struct Meter {
    layout: Arc<SampleLayout>,
    decoder: Decoder<f32>,
    bin_bytes: u64,
    bands: Option<Bands>,
    /// The bytes of the smallest group of whole samples and bytes.
    group: usize,
    /// True if bytes are counted, and not decoded.
    counted: bool,
    open: BTreeMap<u16, Open>,
    values: Vec<f32>,
    /// Bytes that came too late.
    left_out: u64,
}

/// The bin of a thread that is being added up.
#[derive(Default)]
struct Open {
    bin: u64,
    /// The byte behind the last one, from the start of the thread.
    next: u64,
    sums: Vec<Sums>,
    /// How often each byte came at each position of a group; empty if samples are decoded.
    counts: Vec<[u32; 256]>,
}

#[derive(Clone, Default)]
struct Sums {
    values: u64,
    squares: f64,
    level: f32,
    bands: BandSums,
}

impl Meter {
    /// A meter of bins of this many samples, a multiple of 8.
    pub fn new(layout: &Arc<SampleLayout>, bin_samples: u64, bands: Option<Bands>) -> Self {
        let bits = layout.sample_bits();
        assert!(bin_samples > 0 && bin_samples.is_multiple_of(8), "a bin has whole bytes");
        let bin_bytes = bin_samples / 8 * bits;
        let group = bits >> bits.trailing_zeros().min(3);
        let counted = bands.is_none()
            && layout.encoding.code.bits() <= 8
            && bin_bytes >= COUNTED * 256 * group;
        Self {
            layout: layout.clone(),
            decoder: Decoder::new(layout.encoding).expect("floats hold every encoding"),
            bin_bytes,
            bands,
            group: group as usize,
            counted,
            open: BTreeMap::new(),
            values: Vec::new(),
            left_out: 0,
        }
    }

    /// Takes bytes of whole samples of a thread that begin at byte `at` of it. Complete bins go to `cells`. Bytes of an
    /// earlier bin are left out.
    pub fn take(&mut self, thread: u16, at: u64, mut bytes: &[u8], cells: &mut Vec<Cell>) {
        let mut position = at;
        while !bytes.is_empty() {
            let (bin, into) = (position / self.bin_bytes, position % self.bin_bytes);
            let room = usize::try_from(self.bin_bytes - into).unwrap_or(usize::MAX);
            let (here, rest) = bytes.split_at(bytes.len().min(room));
            let behind = position.saturating_add(here.len() as u64);
            let known = self.open.get(&thread).map(|open| open.bin);
            if known.is_none_or(|known| known < bin) {
                self.close(thread, cells);
                let sums = vec![Sums::default(); self.layout.channels as usize];
                let counts = vec![[0; 256]; if self.counted { self.group } else { 0 }];
                self.open.insert(thread, Open { bin, next: position, sums, counts });
            }
            if known.is_none_or(|known| known <= bin) {
                self.add(thread, position, here);
            } else {
                self.left_out += here.len() as u64;
            }
            (bytes, position) = (rest, behind);
        }
    }

    /// Counts the bytes of a bin of a thread that nobody looked at.
    pub fn leave_out(&mut self) {
        self.left_out += self.bin_bytes;
    }

    /// The bytes that were left out since the last call.
    pub fn take_left_out(&mut self) -> u64 {
        std::mem::take(&mut self.left_out)
    }

    fn add(&mut self, thread: u16, at: u64, bytes: &[u8]) {
        let Some(open) = self.open.get_mut(&thread) else { return };
        if open.next != at {
            open.sums.iter_mut().for_each(|sums| sums.bands.interrupt());
        }
        open.next = at.saturating_add(bytes.len() as u64);
        if self.counted {
            count(&mut open.counts, bytes);
            return;
        }
        let step = (DECODED_BYTES / self.group).max(1) * self.group;
        let parts = self.layout.encoding.parts() as usize;
        for bytes in bytes.chunks(step) {
            self.values.resize(self.decoder.values_in(bytes.len()), 0.0);
            self.decoder.decode(bytes, &mut self.values);
            for (channel, sums) in open.sums.iter_mut().enumerate() {
                sums.add(&self.values, (channel, self.layout.channels as usize), parts);
                if let Some(bands) = &mut self.bands {
                    let of_channel = self.values.chunks_exact(parts).skip(channel);
                    let of_channel = of_channel.step_by(self.layout.channels as usize);
                    let complex =
                        |it: &[f32]| Complex::new(it[0], it.get(1).copied().unwrap_or(0.0));
                    bands.add(&mut sums.bands, of_channel.map(complex));
                }
            }
        }
    }

    /// Completes the bin of a thread.
    fn close(&mut self, thread: u16, cells: &mut Vec<Cell>) {
        let Some(mut open) = self.open.remove(&thread) else { return };
        self.settle(&mut open);
        let parts = f64::from(self.layout.encoding.parts());
        let line = |sums: &Sums| LineValues {
            power: sums.squares / sums.values.max(1) as f64 * parts,
            level: sums.level.into(),
            bands: self.bands.as_ref().and_then(|it| it.powers(&sums.bands)).unwrap_or_default(),
        };
        if open.sums.iter().any(|sums| sums.values > 0) {
            cells.push(Cell { thread, bin: open.bin, lines: open.sums.iter().map(line).collect() });
        }
    }

    /// Converts counts of bytes to sums.
    fn settle(&self, open: &mut Open) {
        let bits = self.layout.encoding.code.bits() as usize;
        let (parts, channels) = (self.layout.encoding.parts() as usize, open.sums.len());
        let mut values = vec![0.0f32; 8 / bits.clamp(1, 8)];
        let in_byte = values.len();
        for (position, counts) in open.counts.iter().enumerate() {
            for (byte, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
                self.decoder.decode(&[byte as u8], &mut values);
                for (place, value) in values.iter().enumerate() {
                    let channel = (position * in_byte + place) / parts % channels;
                    let sums = &mut open.sums[channel];
                    sums.values += u64::from(*count);
                    sums.squares += f64::from(value * value) * f64::from(*count);
                    sums.level = sums.level.max(value.abs());
                }
            }
        }
    }

    /// Completes the bins of all threads: nothing follows them for now.
    pub fn finish(&mut self, cells: &mut Vec<Cell>) {
        let threads: Vec<u16> = self.open.keys().copied().collect();
        threads.into_iter().for_each(|thread| self.close(thread, cells));
    }
}

impl Sums {
    /// Adds the values of one channel of several.
    fn add(&mut self, values: &[f32], (channel, channels): (usize, usize), parts: usize) {
        let mut add = |values: &[f32]| {
            let (mut squares, mut level) = (0.0f32, 0.0f32);
            for value in values {
                squares += value * value;
                level = level.max(value.abs());
            }
            self.values += values.len() as u64;
            self.squares += f64::from(squares);
            self.level = self.level.max(level);
        };
        match channels {
            1 => values.chunks(64).for_each(&mut add),
            _ => values.chunks_exact(parts).skip(channel).step_by(channels).for_each(&mut add),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn layout(encoding: &str, channels: u32) -> Arc<SampleLayout> {
        Arc::new(SampleLayout::new(encoding.parse().unwrap(), channels))
    }

    fn cells(meter: &mut Meter, payloads: &[(u16, u64, Vec<u8>)]) -> Vec<Cell> {
        let mut cells = Vec::new();
        for (thread, at, bytes) in payloads {
            meter.take(*thread, *at, bytes, &mut cells);
        }
        meter.finish(&mut cells);
        cells
    }

    #[test]
    fn each_channel_has_its_power_and_its_level() {
        let bytes: Vec<u8> = (0..64).flat_map(|n: u8| [3, if n == 40 { 156 } else { 4 }]).collect();
        let mut meter = Meter::new(&layout("ri8", 2), 32, None);
        let cells = cells(&mut meter, &[(7, 0, bytes)]);
        let told: Vec<_> = cells.iter().map(|it| (it.thread, it.bin)).collect();
        assert_eq!(told, [(7, 0), (7, 1)]);
        let levels = |cell: &Cell| cell.lines.iter().map(|it| it.level).collect::<Vec<_>>();
        assert_eq!([levels(&cells[0]), levels(&cells[1])], [[3.0, 4.0], [3.0, 100.0]]);
        assert_eq!(cells[0].lines[1].power, 16.0);
        assert_eq!(cells[1].lines[1].power, (31.0 * 16.0 + 10_000.0) / 32.0);
    }

    #[test]
    fn samples_of_an_earlier_bin_are_left_out() {
        let mut meter = Meter::new(&layout("ri8", 1), 8, None);
        let cells =
            cells(&mut meter, &[(0, 16, vec![1; 8]), (0, 0, vec![9; 8]), (0, 24, vec![2; 4])]);
        let told: Vec<_> = cells.iter().map(|it| (it.bin, it.lines[0].level)).collect();
        assert_eq!(told, [(2, 1.0), (3, 2.0)]);
        assert_eq!((meter.take_left_out(), meter.take_left_out()), (8, 0));
    }

    proptest! {
        /// Bytes that are counted and values that are decoded have the same sums, at every split of the stream.
        #[test]
        fn counted_bytes_are_the_decoded_values(
            encoding in prop::sample::select(vec!["ro1", "ro2", "rm2", "ro4", "ro8", "ri8", "ci8", "co2"]),
            channels in prop::sample::select(vec![1u32, 2, 3]),
            bytes in prop::collection::vec(any::<u8>(), 2500),
            cuts in prop::collection::vec(1usize..200, 1..40),
        ) {
            let layout = layout(encoding, channels);
            let bits = layout.sample_bits();
            let group = (bits >> bits.trailing_zeros().min(3)) as usize;
            let bin_samples = (1024 * 8 / bits).next_multiple_of(8);
            let mut decoding = Meter::new(&layout, bin_samples, None);
            decoding.counted = false;
            let mut counting = Meter::new(&layout, bin_samples, None);
            counting.counted = true;
            let mut payloads = Vec::new();
            let (mut at, mut cuts) = (0, cuts.iter().cycle());
            while at < bytes.len() / group * group {
                let length = cuts.next().unwrap() * group;
                let end = (at + length).min(bytes.len() / group * group);
                payloads.push((0, at as u64, bytes[at..end].to_vec()));
                at = end;
            }
            let one = cells(&mut counting, &payloads);
            let other = cells(&mut decoding, &[(0, 0, bytes[..at].to_vec())]);
            prop_assert_eq!(one.len(), other.len());
            for (one, other) in one.iter().zip(&other) {
                prop_assert_eq!((one.thread, one.bin), (other.thread, other.bin));
                for (one, other) in one.lines.iter().zip(&other.lines) {
                    prop_assert_eq!(one.level, other.level);
                    prop_assert!((one.power / other.power.max(1e-9) - 1.0).abs() < 1e-4, "{:?} {:?}", one, other);
                }
            }
        }
    }
}
