//! Sums against slow ones, computed by the definitions.

use std::f64::consts::TAU;

use fullbore_formats::samples::decode::Decoder;
use fullbore_formats::vdif::{Header, SampleStatistics};
use proptest::prelude::*;

use super::*;
use crate::analysis::Analysis;
use crate::plan::{LineId, Wanted};
use crate::window::Window;

const CHANNELS: usize = 8;

fn analysis(encoding: &str, channels: u32, wanted: Wanted, bytes: &[u8], whole: u64) -> Analysis {
    let layout = Arc::new(SampleLayout::new(encoding.parse().unwrap(), channels));
    let plan = Plan { channels: CHANNELS, window: Window::Hann, bin: None, wanted };
    plan.check(&layout).unwrap();
    let plan = Arc::new(plan);
    let mut accumulator = Accumulator::new(&plan, &layout);
    let batch = Batch { thread: 2, first: 0, whole, bytes: bytes.to_vec() };
    match wanted.cross {
        Some([one, other]) => {
            accumulator.add_cross((&batch, one.channel), (&batch, other.channel));
        }
        None => accumulator.add(&batch).unwrap(),
    }
    let sums = accumulator.take();
    Analysis::new("test", plan, layout, None, sums, 64)
}

/// The samples of a channel, by whole segment.
fn samples(of: &Analysis, channel: usize, bytes: &[u8], whole: u64) -> Vec<Vec<Complex<f64>>> {
    let decoder: Decoder<f32> = Decoder::new(of.layout.encoding).unwrap();
    let mut values = vec![0.0; decoder.values_in(bytes.len())];
    decoder.decode(bytes, &mut values);
    let parts = of.layout.encoding.parts() as usize;
    let channels = of.layout.channels as usize;
    let sample = |value: &[f32]| {
        Complex::new(f64::from(value[0]), value.get(1).map_or(0.0, |imaginary| (*imaginary).into()))
    };
    let all: Vec<_> =
        values.chunks_exact(parts).skip(channel).step_by(channels).map(sample).collect();
    let segments = all.chunks_exact(of.plan.segment(&of.layout)).enumerate();
    segments.filter(|(k, _)| whole >> k & 1 == 1).map(|(_, it)| it.to_vec()).collect()
}

/// One value of the transform of a weighed segment.
fn transform(segment: &[Complex<f64>], k: i64) -> Complex<f64> {
    let weights = Window::Hann.weights(segment.len());
    let angle = |n: usize| -TAU * k as f64 * n as f64 / segment.len() as f64;
    let terms = segment.iter().zip(weights).enumerate();
    terms.map(|(n, (x, w))| x * f64::from(w) * Complex::from_polar(1.0, angle(n))).sum()
}

/// The divisor of all spectra: `n · L · Σw²`.
fn divisor(segments: usize, length: usize) -> f64 {
    let weights = Window::Hann.weights(length);
    let squares: f64 = weights.iter().map(|w| f64::from(*w).powi(2)).sum();
    (segments * length) as f64 * squares
}

/// True if two powers of a signal of this power are the same to the precision of floats of 32 bits.
fn close(one: f64, other: f64, signal: f64) -> bool {
    (one - other).abs() <= 1e-5 * one.abs().max(other.abs()) + 1e-6 * signal
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn spectra_are_those_of_the_definition(
        seed in prop::collection::vec(any::<u8>(), 4096),
        whole in 1u64..16,
    ) {
        for (encoding, channels) in [("ro1", 1), ("ro2", 1), ("ro2", 3), ("ro8", 4), ("co2", 2), ("ci8", 1), ("ri16_be", 2)] {
            let wanted = Wanted { spectra: true, power: true, ..Wanted::default() };
            let layout = SampleLayout::new(encoding.parse().unwrap(), channels);
            let length = if layout.encoding.complex { CHANNELS } else { 2 * CHANNELS };
            let bytes = &seed[..length * layout.sample_bits() as usize / 8 * 4];
            let of = analysis(encoding, channels, wanted, bytes, whole);
            for channel in 0..channels as usize {
                let segments = samples(&of, channel, bytes, whole);
                let line = LineId { thread: Some(2), channel };
                let spectrum = of.whole_spectrum(line);
                prop_assert_eq!(&of.spectrum(line, 0).unwrap(), &spectrum);
                let count = (segments.len() * length) as f64;
                let power = segments.iter().flatten().map(|x| x.norm_sqr()).sum::<f64>() / count;
                prop_assert!(close(of.power(line, 0).unwrap(), power, power), "{} {}", encoding, channel);
                for (place, found) in spectrum.iter().enumerate() {
                    let complex = of.layout.encoding.complex;
                    let k = if complex { place as i64 - CHANNELS as i64 / 2 } else { place as i64 };
                    let sum: f64 = segments.iter().map(|it| transform(it, k).norm_sqr()).sum();
                    let twice = if complex || k == 0 { 1.0 } else { 2.0 };
                    let slow = twice * sum / divisor(segments.len(), length);
                    prop_assert!(close(*found, slow, power), "{} {} {}: {} {}", encoding, channel, k, found, slow);
                }
            }
        }
    }

    #[test]
    fn cross_power_is_that_of_the_definition(seed in prop::collection::vec(any::<u8>(), 512)) {
        for (encoding, complex) in [("ro8", false), ("ci8", true)] {
            let lines = [0, 1].map(|channel| LineId { thread: None, channel });
            let wanted = Wanted { cross: Some(lines), ..Wanted::default() };
            let length = if complex { CHANNELS } else { 2 * CHANNELS };
            let bytes = &seed[..length * 2 * if complex { 2 } else { 1 } * 4];
            let of = analysis(encoding, 2, wanted, bytes, 0b1011);
            let cross = of.cross().unwrap();
            let [one, other] = [0, 1].map(|channel| samples(&of, channel, bytes, 0b1011));
            for place in 0..CHANNELS {
                let k = if complex { place as i64 - CHANNELS as i64 / 2 } else { place as i64 };
                let pairs = one.iter().zip(&other);
                let products = pairs.map(|(a, b)| transform(a, k) * transform(b, k).conj());
                let slow: Complex<f64> = products.sum();
                let twice = if complex || k == 0 { 1.0 } else { 2.0 };
                let power = twice * slow.norm() / divisor(3, length);
                prop_assert!(close(cross.power[place], power, 128.0 * 128.0), "{} {}", cross.power[place], power);
                let turned = (cross.phase_degrees[place].to_radians() - slow.arg()).cos();
                prop_assert!(turned > 0.999 || slow.norm() < 10.0, "{} {}", k, turned);
                prop_assert!((0.0..=1.0 + 1e-9).contains(&cross.coherence[place]));
            }
        }
    }
}

#[test]
fn levels_are_counted_as_the_statistics_of_vdif_count_them() {
    let bytes: Vec<u8> = (0..256u32).flat_map(|n| [n as u8, (n * 7) as u8]).collect();
    for (bits, log2_channels, complex) in
        [(1, 3, false), (2, 0, false), (2, 2, true), (4, 1, false)]
    {
        let header = Header::default()
            .with_bits_per_sample(bits)
            .with_log2_channels(log2_channels)
            .with_complex(complex);
        let letter = if complex { 'c' } else { 'r' };
        let encoding = format!("{letter}o{bits}");
        let wanted = Wanted { levels: true, power: true, ..Wanted::default() };
        let layout = SampleLayout::new(encoding.parse().unwrap(), header.channels());
        let length = if complex { CHANNELS } else { 2 * CHANNELS };
        let segment = length * layout.sample_bits() as usize / 8;
        let used = &bytes[..bytes.len().min(segment * 64)];
        let of = analysis(&encoding, header.channels(), wanted, used, u64::MAX);
        let mut told = SampleStatistics::default();
        told.take(&header, used);
        let rows = &of.sums.levels[&2];
        let sums: Vec<u64> =
            (0..1 << bits).map(|code| rows.iter().map(|row| row[code]).sum()).collect();
        assert_eq!(sums, told.levels, "{encoding}");
        for (row, channel) in rows.iter().zip(&told.channels) {
            assert_eq!(row.iter().sum::<u64>(), channel.elements);
            assert_eq!(row[0] + row[row.len() - 1], channel.extreme);
        }
    }
}
