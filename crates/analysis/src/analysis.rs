//! Results: powers, levels and cross-power of an analysis, with their scales.
//!
//! With the window *w*, segments of *L* samples and *n* of them, the power in channel *k* is
//!
//! ```text
//! P[k] = Σ |X[k]|² / (n · L · Σw²)      of complex samples, k from −N/2 to N/2 − 1
//! P[k] = 2 Σ |X[k]|² / (n · L · Σw²)    of real samples, k from 0 to N − 1; without the 2 for k = 0
//! ```
//!
//! so that the sum over all channels is the mean square of the samples, in squares of levels (for real samples without
//! the half channel at the upper edge). Decibels refer to full scale: the square of the largest level of the encoding.

use std::collections::BTreeSet;
use std::sync::Arc;

use fullbore_formats::samples::decode::HIGH_LEVEL;
use fullbore_formats::samples::{Code, SampleLayout};
use fullbore_time::Tai;

use crate::accumulate::{LineSums, Sums};
use crate::plan::{LineId, Plan};

/// A finished analysis.
#[derive(Clone, Debug)]
pub struct Analysis {
    /// The file or stream.
    pub name: String,
    /// The plan.
    pub plan: Arc<Plan>,
    /// The samples.
    pub layout: Arc<SampleLayout>,
    /// The time of the first sample.
    pub start: Option<Tai>,
    /// The sums.
    pub sums: Sums,
    /// Segments that are in the sums, of all threads.
    pub segments: u64,
    /// Segments that are not, because samples of them are absent.
    pub segments_left_out: u64,
    /// Frames that were invalid, fill or of another kind.
    pub frames_left_out: u64,
    /// Notes on data that could not be read.
    pub losses: Vec<String>,
}

/// The cross-power of two lines.
#[derive(Clone, Debug, PartialEq)]
pub struct Cross {
    /// The absolute value of the mean product, in the scale of spectra.
    pub power: Vec<f64>,
    /// The phase of the first against the second, in degrees.
    pub phase_degrees: Vec<f64>,
    /// `|⟨A·B*⟩|² / (⟨|A|²⟩⟨|B|²⟩)`: 1 for signals that differ by a filter only.
    pub coherence: Vec<f64>,
}

impl Analysis {
    /// An analysis of `extent` whole segments of each thread.
    pub fn new(
        name: &str,
        plan: Arc<Plan>,
        layout: Arc<SampleLayout>,
        start: Option<Tai>,
        sums: Sums,
        extent: u64,
    ) -> Self {
        let threads: BTreeSet<u16> = sums.bins.keys().map(|(_, thread)| *thread).collect();
        let (segments, all) = match &sums.cross {
            Some(cross) => (cross.segments, extent),
            None => {
                let segments = sums.bins.values().map(|bin| bin.segments).sum();
                (segments, extent.saturating_mul(threads.len() as u64))
            }
        };
        Self {
            name: name.to_owned(),
            plan,
            layout,
            start,
            sums,
            segments,
            segments_left_out: all.saturating_sub(segments),
            frames_left_out: 0,
            losses: Vec::new(),
        }
    }

    /// The same with what was lost.
    pub fn with_losses(self, frames_left_out: u64, losses: Vec<String>) -> Self {
        Self { frames_left_out, losses, ..self }
    }

    /// The lines: the channels of each thread.
    pub fn lines(&self) -> Vec<LineId> {
        let of_bins = self.sums.bins.keys().map(|(_, thread)| *thread);
        let threads: BTreeSet<u16> = of_bins.chain(self.sums.levels.keys().copied()).collect();
        let channels = self.layout.channels as usize;
        let lines =
            |thread| (0..channels).map(move |channel| LineId { thread: Some(thread), channel });
        threads.into_iter().flat_map(lines).collect()
    }

    /// The name of a line: that of its channel, or its number, with the thread if there are several.
    pub fn line_name(&self, line: LineId) -> String {
        let several = self.lines().iter().any(|other| other.thread != line.thread);
        match self.layout.channel_names.get(line.channel) {
            Some(name) => name.clone(),
            None if several => line.to_string(),
            None => line.channel.to_string(),
        }
    }

    /// The bins that have any samples.
    pub fn bins(&self) -> Vec<u64> {
        let bins: BTreeSet<u64> = self.sums.bins.keys().map(|(bin, _)| *bin).collect();
        bins.into_iter().collect()
    }

    /// Seconds from the start to the start of a bin.
    pub fn seconds(&self, bin: u64) -> f64 {
        bin as f64 * self.plan.bin.map_or(0.0, |bin| bin.as_secs_f64())
    }

    /// The frequencies of the channels: in Hz, or in cycles per sample if no rate is known. Of complex samples, around
    /// the centre frequency.
    pub fn frequencies(&self) -> Vec<f64> {
        let channels = self.plan.channels;
        let rate = self.layout.sample_rate.map_or(1.0, |rate| rate.hertz());
        let centre = self.layout.frequency_hz.map_or(0.0, |frequency| frequency.get());
        let place = |k: usize| match self.layout.encoding.complex {
            true => centre + (k as f64 / channels as f64 - 0.5) * rate,
            false => k as f64 / (2 * channels) as f64 * rate,
        };
        (0..channels).map(place).collect()
    }

    /// The power in each channel of a line in one bin. `None` if it has no whole segment.
    pub fn spectrum(&self, line: LineId, bin: u64) -> Option<Vec<f64>> {
        let sums = self.sums.bins.get(&(bin, line.thread?))?;
        let line = sums.lines.get(line.channel)?;
        Some(self.scaled(&line.spectrum, sums.segments))
    }

    /// The power in each channel of a line in all bins.
    pub fn whole_spectrum(&self, line: LineId) -> Vec<f64> {
        let mut sum = vec![0.0; self.plan.segment(&self.layout)];
        let mut segments = 0;
        for ((_, thread), bin) in &self.sums.bins {
            if Some(*thread) == line.thread {
                sum.iter_mut().zip(&bin.lines[line.channel].spectrum).for_each(|(a, b)| *a += b);
                segments += bin.segments;
            }
        }
        self.scaled(&sum, segments)
    }

    /// Sums of `|Z|²` in the scale of spectra, and in the order of frequencies.
    fn scaled(&self, sum: &[f64], segments: u64) -> Vec<f64> {
        let (length, scale) = (sum.len(), 1.0 / self.divisor(segments));
        match self.layout.encoding.complex {
            true => (0..length).map(|k| sum[(k + length / 2) % length] * scale).collect(),
            false => {
                let fold = |k: usize| if k == 0 { sum[0] } else { sum[k] + sum[length - k] };
                (0..self.plan.channels).map(|k| fold(k) * scale).collect()
            }
        }
    }

    /// `n · L · Σw²`.
    fn divisor(&self, segments: u64) -> f64 {
        let length = self.plan.segment(&self.layout);
        let weights = self.plan.window.weights(length);
        let squares: f64 = weights.iter().map(|weight| f64::from(*weight).powi(2)).sum();
        segments.max(1) as f64 * length as f64 * squares
    }

    /// The sums of a line over all bins, without spectra.
    pub fn whole(&self, line: LineId) -> LineSums {
        let mut whole = LineSums::default();
        for ((_, thread), bin) in &self.sums.bins {
            if Some(*thread) == line.thread {
                let of_bin = &bin.lines[line.channel];
                whole.values += of_bin.values;
                whole.sum += of_bin.sum;
                whole.squares += of_bin.squares;
            }
        }
        whole
    }

    /// The mean square of a line in one bin; of complex samples, of their absolute values.
    pub fn power(&self, line: LineId, bin: u64) -> Option<f64> {
        let sums = self.sums.bins.get(&(bin, line.thread?))?;
        Some(self.mean_square(sums.lines.get(line.channel)?))
    }

    /// The mean square of sums; of complex samples, of their absolute values.
    pub fn mean_square(&self, sums: &LineSums) -> f64 {
        sums.squares / sums.values.max(1) as f64 * f64::from(self.layout.encoding.parts())
    }

    /// The cross-power.
    pub fn cross(&self) -> Option<Cross> {
        let sums = self.sums.cross.as_ref()?;
        let (length, complex) = (sums.product.len(), self.layout.encoding.complex);
        let scale = 1.0 / self.divisor(sums.segments);
        let (mut power, mut phase_degrees, mut coherence) = (Vec::new(), Vec::new(), Vec::new());
        for place in 0..length {
            let k = if complex { (place + length / 2) % length } else { place };
            let twice = if complex || k == 0 { 1.0 } else { 2.0 };
            let product = sums.product[k];
            power.push(product.norm() * scale * twice);
            phase_degrees.push(product.arg().to_degrees());
            let both = sums.first[k] * sums.second[k];
            coherence.push(if both > 0.0 { product.norm_sqr() / both } else { 0.0 });
        }
        Some(Cross { power, phase_degrees, coherence })
    }

    /// The values of the levels, from the lowest code to the highest.
    pub fn level_values(&self) -> Vec<f64> {
        crate::levels::values(self.layout.encoding)
    }

    /// A power in decibels relative to full scale.
    pub fn decibels(&self, power: f64) -> f64 {
        10.0 * (power / full_scale(self.layout.encoding.code)).log10()
    }
}

/// The square of the largest level of an encoding; 1 of floats.
pub fn full_scale(code: Code) -> f64 {
    let level = match code {
        Code::Float { .. } | Code::Offset { bits: 1 } => 1.0,
        Code::Offset { bits: 2 } | Code::SignMagnitude => f64::from(HIGH_LEVEL),
        Code::Offset { bits } => 2f64.powi(i32::from(bits) - 1),
        Code::Signed { bytes, .. } => 2f64.powi(8 * i32::from(bytes) - 1),
        Code::Unsigned { bytes, .. } => 2f64.powi(8 * i32::from(bytes)),
    };
    level * level
}
