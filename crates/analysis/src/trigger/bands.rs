//! The power of a channel within bands of its spectrum.
//!
//! Segments begin with the bin and follow each other. With the window *w*, segments of *L* samples and *n* of them, the
//! power of a band is the sum of `P[k]` over the frequencies in it, in the scale of [`analysis`](crate::analysis):
//!
//! ```text
//! P[k] = Σ |X[k]|² / (n · L · Σw²)      of complex samples
//! P[k] = 2 Σ |X[k]|² / (n · L · Σw²)    of real samples, k from 0 to L/2 − 1; without the 2 for k = 0
//! ```

use std::ops::RangeInclusive;
use std::sync::Arc;

use fullbore_formats::samples::SampleLayout;
use rustfft::num_complex::Complex;
use rustfft::{Fft, FftPlanner};

use crate::content::query::Band;
use crate::window::Window;

/// The fewest frequencies of a band.
const FEWEST_FREQUENCIES: f64 = 4.0;
/// The shortest and the longest segment, in samples.
const SEGMENTS: RangeInclusive<usize> = 16..=65_536;

/// A band that is not in the spectrum of a stream.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BandError {
    /// The sample rate is too high for it, or it lies outside.
    #[error(
        "no frequency of a transform of {segment} samples is between {from_hz} Hz and {to_hz} Hz; the spectrum is \
         {lowest_hz} Hz to {highest_hz} Hz"
    )]
    Outside {
        /// The lower edge of the band.
        from_hz: f64,
        /// The upper edge.
        to_hz: f64,
        /// The lower edge of the spectrum.
        lowest_hz: f64,
        /// The upper edge.
        highest_hz: f64,
        /// The length of the transform.
        segment: usize,
    },
}

/// The transform of all bands of a stream.
pub struct Bands {
    segment: usize,
    complex: bool,
    /// The places in a transform of each band.
    places: Vec<Vec<usize>>,
    weights: Vec<f32>,
    /// `L · Σw²`.
    divisor: f64,
    fft: Arc<dyn Fft<f32>>,
    buffer: Vec<Complex<f32>>,
    scratch: Vec<Complex<f32>>,
}

/// The samples of one channel in one bin.
#[derive(Clone, Debug, Default)]
pub struct BandSums {
    /// The samples of a segment that is not complete.
    pending: Vec<Complex<f32>>,
    segments: u64,
    /// Sums of `|X[k]|²` in each band.
    sums: Vec<f64>,
}

impl Bands {
    /// The transform for bands in a stream of this rate.
    ///
    /// # Errors
    ///
    /// A band has no frequency of the spectrum.
    pub fn new(bands: &[Band], layout: &SampleLayout, rate_hz: f64) -> Result<Self, BandError> {
        let complex = layout.encoding.complex;
        let centre = if complex { layout.frequency_hz.map_or(0.0, |it| it.get()) } else { 0.0 };
        let narrowest = bands.iter().map(|band| band.to_hz - band.from_hz);
        let narrowest = narrowest.fold(rate_hz, f64::min);
        let wanted = (FEWEST_FREQUENCIES * rate_hz / narrowest).ceil();
        let segment = (wanted.min(*SEGMENTS.end() as f64) as usize).next_power_of_two();
        let segment = segment.clamp(*SEGMENTS.start(), *SEGMENTS.end());
        let frequency = |k: usize| {
            let signed = if k < segment / 2 { k as f64 } else { k as f64 - segment as f64 };
            centre + signed / segment as f64 * rate_hz
        };
        let all = if complex { 0..segment } else { 0..segment / 2 };
        let places = bands.iter().map(|band| {
            let is_in = |k: &usize| (band.from_hz..=band.to_hz).contains(&frequency(*k));
            let found: Vec<usize> = all.clone().filter(is_in).collect();
            let (lowest_hz, highest_hz) = match complex {
                true => (centre - rate_hz / 2.0, centre + rate_hz / 2.0),
                false => (0.0, rate_hz / 2.0),
            };
            let Band { from_hz, to_hz } = *band;
            let outside = BandError::Outside { from_hz, to_hz, lowest_hz, highest_hz, segment };
            if found.is_empty() { Err(outside) } else { Ok(found) }
        });
        let places = places.collect::<Result<Vec<_>, _>>()?;
        let weights = Window::Hann.weights(segment);
        let squares: f64 = weights.iter().map(|weight| f64::from(*weight).powi(2)).sum();
        let fft = FftPlanner::new().plan_fft_forward(segment);
        let scratch = vec![Complex::default(); fft.get_inplace_scratch_len()];
        let buffer = vec![Complex::default(); segment];
        let divisor = segment as f64 * squares;
        Ok(Self { segment, complex, places, weights, divisor, fft, buffer, scratch })
    }

    /// Samples of a transform.
    pub fn segment(&self) -> usize {
        self.segment
    }

    /// Adds samples that follow those before in the same bin.
    pub fn add(&mut self, sums: &mut BandSums, samples: impl Iterator<Item = Complex<f32>>) {
        for sample in samples {
            sums.pending.push(sample);
            if sums.pending.len() == self.segment {
                self.transform(sums);
            }
        }
    }

    fn transform(&mut self, sums: &mut BandSums) {
        let places = self.buffer.iter_mut().zip(&sums.pending).zip(&self.weights);
        places.for_each(|((to, sample), weight)| *to = sample * weight);
        sums.pending.clear();
        self.fft.process_with_scratch(&mut self.buffer, &mut self.scratch);
        sums.segments += 1;
        sums.sums.resize(self.places.len(), 0.0);
        for (sum, places) in sums.sums.iter_mut().zip(&self.places) {
            for &k in places {
                let twice = if self.complex || k == 0 { 1.0 } else { 2.0 };
                *sum += twice * f64::from(self.buffer[k].norm_sqr());
            }
        }
    }

    /// The mean power of each band. `None` if no segment was complete.
    pub fn powers(&self, sums: &BandSums) -> Option<Vec<f64>> {
        let scale = 1.0 / (sums.segments as f64 * self.divisor);
        (sums.segments > 0).then(|| sums.sums.iter().map(|sum| sum * scale).collect())
    }
}

impl BandSums {
    /// Forgets the samples of a segment that is not complete: the next samples do not follow them.
    pub fn interrupt(&mut self) {
        self.pending.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::f64::consts::TAU;

    use super::*;

    fn layout(encoding: &str) -> SampleLayout {
        SampleLayout::new(encoding.parse().unwrap(), 1)
    }

    /// The powers of two bands, of a tone of amplitude 4.
    fn powers(encoding: &str, bands: [(f64, f64); 2], tone_hz: f64) -> Vec<f64> {
        let bands = bands.map(|(from_hz, to_hz)| Band { from_hz, to_hz });
        let mut bands = Bands::new(&bands, &layout(encoding), 1000.0).unwrap();
        let complex = encoding.starts_with('c');
        let tone = |n: usize| {
            let angle = TAU * tone_hz * n as f64 / 1000.0;
            let im = if complex { 4.0 * angle.sin() } else { 0.0 };
            Complex::new(4.0 * angle.cos() as f32, im as f32)
        };
        let mut sums = BandSums::default();
        assert_eq!(bands.powers(&sums), None);
        bands.add(&mut sums, (0..10 * bands.segment() + 7).map(tone));
        bands.powers(&sums).unwrap()
    }

    #[test]
    fn a_tone_has_its_mean_square_in_its_band_and_nothing_in_another() {
        for (encoding, tone_hz, square) in
            [("ri16_le", 210.0, 8.0), ("ci16_le", 210.0, 16.0), ("ci16_le", -300.0, 16.0)]
        {
            let around = (tone_hz - 40.0, tone_hz + 40.0);
            let powers = powers(encoding, [around, (100.0, 150.0)], tone_hz);
            assert!((powers[0] / square - 1.0).abs() < 0.01, "{encoding} {powers:?}");
            assert!(powers[1] < square * 1e-4, "{encoding} {powers:?}");
        }
    }

    #[test]
    fn a_band_outside_of_the_spectrum_is_refused() {
        let check = |encoding: &str, from_hz, to_hz| {
            Bands::new(&[Band { from_hz, to_hz }], &layout(encoding), 1000.0).map(|it| it.segment())
        };
        assert_eq!(check("ri16_le", 100.0, 200.0), Ok(64));
        assert!(check("ri16_le", -200.0, -100.0).is_err());
        assert_eq!(check("ci16_le", -200.0, -100.0), Ok(64));
        assert!(check("ci16_le", 600.0, 700.0).is_err());
        assert!(check("ri16_le", 100.001, 100.0012).is_err(), "it is too narrow");
    }
}
