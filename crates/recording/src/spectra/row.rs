//! A row of a live spectrum: one byte for each spectral channel, behind a head of 64 bytes.
//!
//! ```text
//! offset  type     meaning (all little-endian)
//!      0  4 bytes  `FBS1`
//!      4  u32      spectral channels N
//!      8  i64      time of the first sample: nanoseconds of Unix time, UTC
//!     16  f64      frequency of channel 0, in Hz (bit 0 of the flags) or in cycles per sample
//!     24  f64      distance of two channels
//!     32  f32      level of the value 0, in dB of full scale
//!     36  f32      dB of one step
//!     40  f32      mean square of the samples, in dB of full scale
//!     44  f32      mean of the samples, in levels
//!     48  u32      transforms in the row
//!     52  u32      written blocks of the stream that were passed over since the last row
//!     56  u16      thread
//!     58  u16      channel of the thread
//!     60  u16      sample states L: 0 of samples longer than 8 bits
//!     62  u16      flags: 1 the sample rate is known, 2 complex samples, 4 the time is that of the frames (else that of arrival)
//!     64  L × f32  fraction of the samples at each state, from the lowest level to the highest
//!      …  L × f32  the fractions of a Gaussian signal
//!      …  N × u8   power of each channel: level of 0 + value × step
//! ```
//!
//! The scale is that of [`Analysis::spectrum`]: the sum of all channels is the mean square. The value 0 also stands for
//! channels that are weaker.

use fullbore_analysis::analysis::Analysis;
use fullbore_analysis::levels;
use fullbore_analysis::plan::LineId;
use fullbore_time::Tai;

/// The bytes before the fractions.
pub const HEAD_BYTES: usize = 64;

/// The range of levels below the highest that a row shows, in dB.
const RANGE: f64 = 120.0;

/// The level of the value 0 if no channel has any power, in dB.
const NOTHING: f64 = -200.0;

/// Facts about a row that its analysis does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The time of the first sample.
    pub time: Tai,
    /// True if the frames say so.
    pub of_frames: bool,
    /// Blocks that were passed over.
    pub skipped: u64,
}

/// The row of a line. `None` if the line has no whole segment.
pub fn encode(analysis: &Analysis, line: LineId, moment: Moment) -> Option<Vec<u8>> {
    let powers = analysis.spectrum(line, 0)?;
    let sums = analysis.whole(line);
    let decibels: Vec<f64> = powers.iter().map(|power| analysis.decibels(*power)).collect();
    let (floor, step) = scale(&decibels);
    let (measured, expected) = states(analysis, line);
    let frequencies = analysis.frequencies();
    let first = frequencies.first().copied().unwrap_or(0.0);
    let spacing = frequencies.get(1).map_or(0.0, |second| second - first);
    let layout = &analysis.layout;
    let flags = u16::from(layout.sample_rate.is_some())
        | u16::from(layout.encoding.complex) << 1
        | u16::from(moment.of_frames) << 2;
    let unix = moment.time.unix_ns().clamp(i64::MIN.into(), i64::MAX.into()) as i64;
    let mut row = Vec::with_capacity(HEAD_BYTES + 8 * measured.len() + decibels.len());
    row.extend(b"FBS1");
    row.extend((decibels.len() as u32).to_le_bytes());
    row.extend(unix.to_le_bytes());
    row.extend(first.to_le_bytes());
    row.extend(spacing.to_le_bytes());
    row.extend((floor as f32).to_le_bytes());
    row.extend((step as f32).to_le_bytes());
    row.extend((analysis.decibels(analysis.mean_square(&sums)) as f32).to_le_bytes());
    row.extend(((sums.sum / sums.values.max(1) as f64) as f32).to_le_bytes());
    row.extend(u32::try_from(analysis.segments).unwrap_or(u32::MAX).to_le_bytes());
    row.extend(u32::try_from(moment.skipped).unwrap_or(u32::MAX).to_le_bytes());
    row.extend(line.thread.unwrap_or(0).to_le_bytes());
    row.extend(u16::try_from(line.channel).unwrap_or(u16::MAX).to_le_bytes());
    row.extend((measured.len() as u16).to_le_bytes());
    row.extend(flags.to_le_bytes());
    for fraction in measured.into_iter().chain(expected) {
        row.extend((fraction as f32).to_le_bytes());
    }
    let value = |level: &f64| match step > 0.0 {
        // A channel without power is minus infinity, which becomes 0.
        true => ((level - floor) / step).round().clamp(0.0, 255.0) as u8,
        false => 0,
    };
    row.extend(decibels.iter().map(value));
    Some(row)
}

/// The level of the value 0 and the step, so that 255 is the highest level.
fn scale(decibels: &[f64]) -> (f64, f64) {
    let finite = || decibels.iter().copied().filter(|level| level.is_finite());
    let Some(highest) = finite().reduce(f64::max) else { return (NOTHING, 0.0) };
    let lowest = finite().fold(highest, f64::min).max(highest - RANGE);
    // The numbers as the row has them, so that both ends convert values alike.
    let floor = f64::from(lowest as f32);
    (floor, f64::from(((highest - floor) / 255.0) as f32))
}

/// The fraction of samples at each state, and those of a Gaussian signal; empty of long samples.
fn states(analysis: &Analysis, line: LineId) -> (Vec<f64>, Vec<f64>) {
    let counts = line.thread.and_then(|thread| analysis.sums.levels.get(&thread));
    let Some(counts) = counts.and_then(|rows| rows.get(line.channel)) else {
        return (Vec::new(), Vec::new());
    };
    let encoding = analysis.layout.encoding;
    let all = counts.iter().sum::<u64>().max(1) as f64;
    let codes = levels::order(encoding).into_iter();
    let measured = codes.map(|code| counts[code] as f64 / all).collect();
    let sums = analysis.whole(line);
    let values = sums.values.max(1) as f64;
    let mean = sums.sum / values;
    let deviation = (sums.squares / values - mean * mean).max(0.0).sqrt();
    (measured, levels::expected(encoding, mean, deviation))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_reaches_from_the_lowest_to_the_highest_level() {
        let (floor, step) = scale(&[-60.0, -9.0, f64::NEG_INFINITY, -30.0]);
        assert_eq!(floor, -60.0);
        assert!((step - 0.2).abs() < 1e-6);
        assert_eq!(scale(&[f64::NEG_INFINITY; 3]), (NOTHING, 0.0));
        assert_eq!(scale(&[-3.0; 2]), (-3.0, 0.0));
        assert_eq!(scale(&[0.0, -300.0]).0, -RANGE);
    }
}
