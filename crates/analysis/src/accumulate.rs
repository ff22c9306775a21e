//! Sums over segments: power in spectral channels, mean squares, levels and cross-power.
//!
//! Two real segments are the real and the imaginary part of one complex transform *Z*. The sum of their powers in
//! channel *k* is `(|Z[k]|² + |Z[L−k]|²) / 2`, so only `|Z|²` is added up, and the halves are joined at the end.

use std::collections::BTreeMap;
use std::sync::Arc;

use fullbore_formats::samples::SampleLayout;
use fullbore_formats::samples::decode::Decoder;
use rustfft::num_complex::Complex;
use rustfft::{Fft, FftPlanner};

use crate::batch::Batch;
use crate::plan::{MOST_VALUES, Plan, PlanError};

/// The sums of one line: a channel of a thread.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LineSums {
    /// Sum of `|Z[k]|²`, as long as a segment; empty if no spectra are wanted.
    pub spectrum: Vec<f64>,
    /// The number of values, a complex one counted twice.
    pub values: u64,
    /// Their sum, in levels.
    pub sum: f64,
    /// The sum of their squares.
    pub squares: f64,
}

/// The sums of one thread in one bin.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BinSums {
    /// Whole segments.
    pub segments: u64,
    /// The lines: the channels of the thread.
    pub lines: Vec<LineSums>,
}

/// The sum of products of two lines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CrossSums {
    /// Segments that are whole in both.
    pub segments: u64,
    /// Power of the first in each channel.
    pub first: Vec<f64>,
    /// Power of the second.
    pub second: Vec<f64>,
    /// The first times the conjugate of the second.
    pub product: Vec<Complex<f64>>,
}

/// All sums.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sums {
    /// By bin and thread.
    pub bins: BTreeMap<(u64, u16), BinSums>,
    /// The number of values at each level by thread: one row for each channel.
    pub levels: BTreeMap<u16, Vec<Vec<u64>>>,
    /// The cross-power.
    pub cross: Option<CrossSums>,
}

impl Sums {
    /// Adds other sums of the same plan.
    pub fn add(&mut self, other: Sums) {
        for (key, bin) in other.bins {
            let sums = self.bins.entry(key).or_default();
            sums.segments += bin.segments;
            sums.lines.resize_with(bin.lines.len(), LineSums::default);
            for (line, other) in sums.lines.iter_mut().zip(&bin.lines) {
                add(&mut line.spectrum, &other.spectrum);
                line.values += other.values;
                line.sum += other.sum;
                line.squares += other.squares;
            }
        }
        for (thread, rows) in other.levels {
            let sums = self.levels.entry(thread).or_default();
            sums.resize_with(rows.len(), Vec::new);
            sums.iter_mut().zip(&rows).for_each(|(sums, row)| add(sums, row));
        }
        if let Some(other) = other.cross {
            let cross = self.cross.get_or_insert_default();
            cross.segments += other.segments;
            add(&mut cross.first, &other.first);
            add(&mut cross.second, &other.second);
            add(&mut cross.product, &other.product);
        }
    }
}

fn add<T: Copy + Default + std::ops::AddAssign>(sums: &mut Vec<T>, other: &[T]) {
    sums.resize(other.len().max(sums.len()), T::default());
    sums.iter_mut().zip(other).for_each(|(sum, other)| *sum += *other);
}

/// Computes sums on one thread.
pub struct Accumulator {
    plan: Arc<Plan>,
    layout: Arc<SampleLayout>,
    segment: usize,
    segment_bytes: usize,
    decoder: Decoder<f32>,
    fft: Arc<dyn Fft<f32>>,
    weights: Vec<f32>,
    /// Decoded values of two segments.
    values: [Vec<f32>; 2],
    buffer: Vec<Complex<f32>>,
    second: Vec<Complex<f32>>,
    scratch: Vec<Complex<f32>>,
    /// The number of each byte at each position of a group of whole samples and bytes.
    bytes: Vec<[u32; 256]>,
    sums: Sums,
    values_held: u64,
}

impl Accumulator {
    /// An accumulator of a plan that was checked.
    pub fn new(plan: &Arc<Plan>, layout: &Arc<SampleLayout>) -> Self {
        let decoder = Decoder::new(layout.encoding).expect("floats hold every encoding");
        let segment = plan.segment(layout);
        let fft = FftPlanner::new().plan_fft_forward(segment);
        let scratch = vec![Complex::default(); fft.get_inplace_scratch_len()];
        let bits = layout.sample_bits();
        let group = (bits >> bits.trailing_zeros().min(3)) as usize;
        let counted = plan.wanted.levels || (plan.wanted.power && short(layout));
        Self {
            plan: plan.clone(),
            layout: layout.clone(),
            segment,
            segment_bytes: segment * bits as usize / 8,
            decoder,
            fft,
            weights: plan.window.weights(segment),
            values: Default::default(),
            buffer: vec![Complex::default(); segment],
            second: vec![Complex::default(); if plan.wanted.cross.is_some() { segment } else { 0 }],
            scratch,
            bytes: vec![[0; 256]; if counted { group } else { 0 }],
            sums: Sums::default(),
            values_held: 0,
        }
    }

    /// Takes all sums, and begins anew.
    pub fn take(&mut self) -> Sums {
        self.values_held = 0;
        std::mem::take(&mut self.sums)
    }

    /// Adds the whole segments of a batch.
    pub fn add(&mut self, batch: &Batch) -> Result<(), PlanError> {
        let segments: Vec<(u64, &[u8])> = batch.segments(self.segment_bytes).collect();
        let bin = |number: u64| {
            self.plan.bin_of(&self.layout, number.saturating_mul(self.segment as u64))
        };
        let bins: Vec<u64> = segments.iter().map(|(number, _)| bin(*number)).collect();
        let mut rest = &segments[..];
        for run in bins.chunk_by(|one, other| one == other) {
            let (here, behind) = rest.split_at(run.len());
            rest = behind;
            self.add_run(batch.thread, run[0], here)?;
        }
        Ok(())
    }

    /// Adds segments of one bin.
    fn add_run(
        &mut self,
        thread: u16,
        bin: u64,
        segments: &[(u64, &[u8])],
    ) -> Result<(), PlanError> {
        let wanted = self.plan.wanted;
        let channels = self.layout.channels as usize;
        let each = if wanted.spectra { self.segment } else { 0 };
        let mut sums = match self.sums.bins.remove(&(bin, thread)) {
            Some(sums) => sums,
            None => {
                self.values_held += ((each + 4) * channels) as u64;
                if self.values_held > MOST_VALUES {
                    return Err(PlanError::TooLarge);
                }
                let line = LineSums { spectrum: vec![0.0; each], ..LineSums::default() };
                BinSums { segments: 0, lines: vec![line; channels] }
            }
        };
        sums.segments += segments.len() as u64;
        if !self.bytes.is_empty() {
            segments.iter().for_each(|(_, bytes)| count(&mut self.bytes, bytes));
            self.settle_levels(thread, &mut sums);
        }
        if wanted.spectra || (wanted.power && !short(&self.layout)) {
            let real = !self.layout.encoding.complex;
            // Complex segments have no other part to share a transform with.
            for pair in segments.chunks(if real { 2 } else { 1 }) {
                self.decode(0, pair[0].1);
                if let Some((_, bytes)) = pair.get(1) {
                    self.decode(1, bytes);
                }
                if wanted.power && !short(&self.layout) {
                    self.add_power(pair.len(), &mut sums);
                }
                if wanted.spectra {
                    self.add_spectra(pair.len(), &mut sums);
                }
            }
        }
        self.sums.bins.insert((bin, thread), sums);
        Ok(())
    }

    fn decode(&mut self, place: usize, bytes: &[u8]) {
        let values = &mut self.values[place];
        values.resize(self.decoder.values_in(bytes.len()), 0.0);
        self.decoder.decode(bytes, values);
    }

    fn add_power(&mut self, decoded: usize, sums: &mut BinSums) {
        let (parts, channels) = (self.layout.encoding.parts() as usize, sums.lines.len());
        for values in &self.values[..decoded] {
            for (channel, line) in sums.lines.iter_mut().enumerate() {
                let of_channel = values.chunks_exact(parts).skip(channel).step_by(channels);
                let (mut sum, mut squares) = (0.0, 0.0);
                for value in of_channel.flatten() {
                    let value = f64::from(*value);
                    sum += value;
                    squares += value * value;
                }
                line.values += (self.segment * parts) as u64;
                line.sum += sum;
                line.squares += squares;
            }
        }
    }

    fn add_spectra(&mut self, decoded: usize, sums: &mut BinSums) {
        let channels = sums.lines.len();
        for (channel, line) in sums.lines.iter_mut().enumerate() {
            let [one, other] = &self.values;
            if self.layout.encoding.complex {
                weigh_complex(one, channel, channels, &self.weights, &mut self.buffer);
            } else {
                let other = (decoded == 2).then_some(other.as_slice());
                weigh(one, other, channel, channels, &self.weights, &mut self.buffer);
            }
            self.fft.process_with_scratch(&mut self.buffer, &mut self.scratch);
            for (sum, value) in line.spectrum.iter_mut().zip(&self.buffer) {
                *sum += f64::from(value.norm_sqr());
            }
        }
    }

    /// Adds the products of two lines over segments that are whole in both: pairs of the same number.
    pub fn add_cross(&mut self, first: (&Batch, usize), second: (&Batch, usize)) {
        let (segment_bytes, channels) = (self.segment_bytes, self.layout.channels as usize);
        let others: BTreeMap<u64, &[u8]> = second.0.segments(segment_bytes).collect();
        let length = if self.layout.encoding.complex { self.segment } else { self.plan.channels };
        for (number, bytes) in first.0.segments(segment_bytes) {
            let Some(other) = others.get(&number) else { continue };
            self.decode(0, bytes);
            self.decode(1, other);
            let weights = &self.weights;
            let lines = [first.1, second.1];
            for ((values, buffer), channel) in
                self.values.iter().zip([&mut self.buffer, &mut self.second]).zip(lines)
            {
                match self.layout.encoding.complex {
                    true => weigh_complex(values, channel, channels, weights, buffer),
                    false => weigh(values, None, channel, channels, weights, buffer),
                }
                self.fft.process_with_scratch(buffer, &mut self.scratch);
            }
            let cross = self.sums.cross.get_or_insert_default();
            cross.segments += 1;
            cross.first.resize(length, 0.0);
            cross.second.resize(length, 0.0);
            cross.product.resize(length, Complex::default());
            let wide = |it: Complex<f32>| Complex::new(f64::from(it.re), f64::from(it.im));
            for k in 0..length {
                let (one, other) = (wide(self.buffer[k]), wide(self.second[k]));
                cross.first[k] += one.norm_sqr();
                cross.second[k] += other.norm_sqr();
                cross.product[k] += one * other.conj();
            }
        }
    }

    /// Converts the counts of bytes to counts and powers of levels, and begins anew.
    fn settle_levels(&mut self, thread: u16, sums: &mut BinSums) {
        let bits = self.layout.encoding.code.bits() as usize;
        let (parts, channels) = (self.layout.encoding.parts() as usize, sums.lines.len());
        let in_byte = 8 / bits;
        let mut values = vec![0.0f32; in_byte];
        let wanted = self.plan.wanted;
        let rows = wanted.levels.then(|| {
            let rows = self.sums.levels.entry(thread).or_default();
            rows.resize_with(channels, || vec![0; 1 << bits]);
            rows
        });
        let mut rows = rows;
        for (position, counts) in self.bytes.iter_mut().enumerate() {
            for (byte, count) in counts.iter_mut().enumerate().filter(|(_, count)| **count > 0) {
                let count = u64::from(std::mem::take(count));
                self.decoder.decode(&[byte as u8], &mut values);
                for (place, value) in values.iter().enumerate() {
                    let channel = (position * in_byte + place) / parts % channels;
                    let (line, value) = (&mut sums.lines[channel], f64::from(*value));
                    line.values += count;
                    line.sum += value * count as f64;
                    line.squares += value * value * count as f64;
                    if let Some(rows) = &mut rows {
                        let code = byte >> (place * bits) & ((1 << bits) - 1);
                        rows[channel][code] += count;
                    }
                }
            }
        }
    }
}

/// True if samples are counted by their bytes.
fn short(layout: &SampleLayout) -> bool {
    layout.encoding.code.bits() <= 8
}

/// Counts bytes by their position in groups.
pub(crate) fn count(counts: &mut [[u32; 256]], bytes: &[u8]) {
    match counts {
        [counts] => bytes.iter().for_each(|byte| counts[usize::from(*byte)] += 1),
        counts => {
            for group in bytes.chunks_exact(counts.len()) {
                for (counts, byte) in counts.iter_mut().zip(group) {
                    counts[usize::from(*byte)] += 1;
                }
            }
        }
    }
}

/// Weighs a channel of one real segment, or of two.
fn weigh(
    one: &[f32],
    other: Option<&[f32]>,
    channel: usize,
    channels: usize,
    weights: &[f32],
    buffer: &mut [Complex<f32>],
) {
    let places = buffer.iter_mut().zip(weights);
    match (other, channels) {
        (Some(other), 1) => {
            for (((to, weight), one), other) in places.zip(one).zip(other) {
                *to = Complex::new(one * weight, other * weight);
            }
        }
        (Some(other), _) => {
            let of = |values| <[f32]>::iter(values).skip(channel).step_by(channels);
            for (((to, weight), one), other) in places.zip(of(one)).zip(of(other)) {
                *to = Complex::new(one * weight, other * weight);
            }
        }
        (None, _) => {
            for ((to, weight), one) in places.zip(one.iter().skip(channel).step_by(channels)) {
                *to = Complex::new(one * weight, 0.0);
            }
        }
    }
}

/// Weighs a channel of a complex segment.
fn weigh_complex(
    values: &[f32],
    channel: usize,
    channels: usize,
    weights: &[f32],
    buffer: &mut [Complex<f32>],
) {
    let of_channel = values.chunks_exact(2).skip(channel).step_by(channels);
    for ((to, weight), value) in buffer.iter_mut().zip(weights).zip(of_channel) {
        *to = Complex::new(value[0] * weight, value[1] * weight);
    }
}

#[cfg(test)]
mod tests;
