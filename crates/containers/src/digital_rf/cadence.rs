//! Which file a sample is in: exact arithmetic on the sample number, the rate and the lengths of files.
//!
//! ```text
//! sample n is the one at n / rate seconds of Unix time
//! file k has the samples of the k-th interval of `file_ms`, the first one at or after its start
//! ```

use std::ops::Range;

use fullbore_formats::samples::SampleRate;
use fullbore_time::Tai;

/// The lengths of files and directories, at a sample rate.
#[derive(Clone, Copy, Debug)]
pub struct Cadence {
    numerator: u128,
    denominator: u128,
    file_ms: u64,
    subdir_secs: u64,
}

/// The interval of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its start in milliseconds of Unix time.
    pub ms: u64,
    /// The samples in it.
    pub samples: Range<u64>,
}

impl Cadence {
    /// Files of `file_ms` milliseconds in directories of `subdir_secs` seconds.
    pub fn new(rate: SampleRate, file_ms: u64, subdir_secs: u64) -> Self {
        let (numerator, denominator) = rate.ratio();
        let (numerator, denominator) = (numerator.into(), denominator.into());
        Self { numerator, denominator, file_ms, subdir_secs }
    }

    /// The sample nearest to an instant; `None` before 1970, or if the number is too large.
    pub fn sample_at(&self, time: Tai) -> Option<u64> {
        let ns = u128::try_from(time.unix_ns()).ok()?;
        let (scaled, unit) = (ns.checked_mul(self.numerator)?, self.denominator * 1_000_000_000);
        u64::try_from((scaled + unit / 2) / unit).ok()
    }

    /// The first sample at or after an instant in milliseconds.
    fn first_at(&self, ms: u128) -> u64 {
        let first = (ms * self.numerator).div_ceil(1000 * self.denominator);
        u64::try_from(first).unwrap_or(u64::MAX)
    }

    /// The file that a sample is in.
    pub fn span_of(&self, sample: u64) -> Span {
        let ms = u128::from(sample) * 1000 * self.denominator / self.numerator;
        let file_ms = u128::from(self.file_ms);
        let begin = ms / file_ms * file_ms;
        let samples = self.first_at(begin)..self.first_at(begin + file_ms);
        Span { ms: u64::try_from(begin).unwrap_or(u64::MAX), samples }
    }

    /// The directory and the name of a file that begins at an instant in milliseconds.
    pub fn place(&self, ms: u64) -> (String, String) {
        let (secs, ms) = (ms / 1000, ms % 1000);
        (self.folder(secs), format!("rf@{secs}.{ms:03}.h5"))
    }

    /// The directory of files that begin in a second.
    pub fn folder(&self, secs: u64) -> String {
        let begin = secs / self.subdir_secs * self.subdir_secs;
        let text = Tai::from_unix_ns(i128::from(begin) * 1_000_000_000).to_string();
        // The time in whole seconds, with dashes.
        text.chars().take(19).map(|c| if c == ':' { '-' } else { c }).collect()
    }

    /// The second of Unix time in which a sample is.
    pub fn second_of(&self, sample: u64) -> u64 {
        let second = u128::from(sample) * self.denominator / self.numerator;
        u64::try_from(second).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cadence(numerator: u64, denominator: u64, file_ms: u64) -> Cadence {
        Cadence::new(SampleRate::new(numerator, denominator).unwrap(), file_ms, 3600)
    }

    #[test]
    fn a_rate_that_is_no_whole_number_puts_samples_where_digital_rf_does() {
        // From the files that digital_rf 2.6.14 writes from sample 340000000030 on, at 200/3 Hz.
        let thirds = cadence(200, 3, 1000);
        let span = |ms, samples| Span { ms, samples };
        let first = thirds.span_of(340_000_000_030);
        assert_eq!(first, span(5_100_000_000_000, 340_000_000_000..340_000_000_067));
        let later = thirds.span_of(340_000_000_334);
        assert_eq!(later, span(5_100_000_005_000, 340_000_000_334..340_000_000_400));
        let place = thirds.place(first.ms);
        assert_eq!(place, ("2131-08-12T18-00-00".into(), "rf@5100000000.000.h5".into()));
        assert_eq!(cadence(1000, 1, 250).place(1_700_000_000_250).1, "rf@1700000000.250.h5");
    }

    #[test]
    fn the_start_of_a_recording_is_the_nearest_sample() {
        let at = |ns: i128| cadence(1000, 1, 1000).sample_at(Tai::from_unix_ns(ns));
        assert_eq!(at(1_700_000_000_000_400_000), Some(1_700_000_000_000));
        assert_eq!(at(1_700_000_000_000_600_000), Some(1_700_000_000_001));
        assert_eq!(at(-1), None);
    }

    proptest! {
        #[test]
        fn every_sample_is_in_one_file(
            numerator in 1u64..1 << 40, denominator in 1u64..1000, file_ms in 1u64..10_000,
            sample in 0u64..1 << 50
        ) {
            let cadence = cadence(numerator, denominator, file_ms);
            let span = cadence.span_of(sample);
            prop_assert!(span.samples.contains(&sample));
            prop_assert!(span.ms.is_multiple_of(file_ms));
            prop_assert_eq!(cadence.span_of(span.samples.start), span.clone());
            prop_assert_eq!(cadence.span_of(span.samples.end - 1), span.clone());
            prop_assert_ne!(cadence.span_of(span.samples.end), span);
        }
    }
}
