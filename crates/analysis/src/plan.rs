//! What is computed of the samples of a stream.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use fullbore_formats::hint::Hint;
use fullbore_formats::samples::SampleLayout;

use crate::window::Window;

/// The smallest number of spectral channels. With 16 real samples of one bit, a segment has whole bytes.
pub const FEWEST_CHANNELS: usize = 8;
/// The largest number of spectral channels.
pub const MOST_CHANNELS: usize = 1 << 20;
/// The most values of all bins together: 1 GiB of sums for each thread that computes.
pub const MOST_VALUES: u64 = 1 << 27;

/// The most values of the spectra of one thread that is watched: 8 MiB.
pub const MOST_OF_THREAD: u64 = 1 << 20;

/// The sums to compute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The power in each spectral channel.
    pub spectra: bool,
    /// The mean and the mean square of the samples.
    pub power: bool,
    /// The number of samples at each level, of encodings up to 8 bits.
    pub levels: bool,
    /// The cross-power of two lines.
    pub cross: Option<[LineId; 2]>,
}

/// The name of a line: a channel of a thread, `THREAD:CHANNEL`, or `CHANNEL` of the first thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LineId {
    /// The thread. `None`: that of the first frame.
    pub thread: Option<u16>,
    /// The channel of the thread, from 0.
    pub channel: usize,
}

impl LineId {
    /// Reads a pair of lines, as in `0,1` or `1:0,2:0`.
    pub fn pair(text: &str) -> Result<[Self; 2], LineIdError> {
        let (one, other) = text.split_once(',').unwrap_or((text, ""));
        Ok([one.trim().parse()?, other.trim().parse()?])
    }
}

/// A text does not name a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` does not name a channel: write CHANNEL or THREAD:CHANNEL, numbered from 0, for example 3 or 1:0"
)]
pub struct LineIdError {
    /// The text, at most its first 32 characters.
    text: String,
}

impl FromStr for LineId {
    type Err = LineIdError;

    fn from_str(text: &str) -> Result<Self, LineIdError> {
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let read = || match text.split_once(':') {
            _ if !digits(&text.replacen(':', "", 1)) => None,
            Some((thread, channel)) => {
                Some(Self { thread: Some(thread.parse().ok()?), channel: channel.parse().ok()? })
            }
            None => Some(Self { thread: None, channel: text.parse().ok()? }),
        };
        read().ok_or_else(|| LineIdError { text: text.chars().take(32).collect() })
    }
}

impl fmt::Display for LineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.thread {
            Some(thread) => write!(f, "{thread}:{}", self.channel),
            None => write!(f, "{}", self.channel),
        }
    }
}

/// A plan of an analysis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Spectral channels.
    pub channels: usize,
    /// The window.
    pub window: Window,
    /// The duration of each bin. `None`: one bin.
    pub bin: Option<Duration>,
    /// The sums.
    pub wanted: Wanted,
}

/// A plan cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The number of channels is not allowed.
    #[error(
        "{channels} channels: the number is a multiple of 8, from {FEWEST_CHANNELS} to {MOST_CHANNELS}"
    )]
    Channels {
        /// The number.
        channels: usize,
    },
    /// A bin is shorter than a segment.
    #[error(
        "bins of {bin:?} are shorter than a Fourier transform of {channels} channels, which takes {segment:?}"
    )]
    Bin {
        /// The duration of a bin.
        bin: Duration,
        /// The number of channels.
        channels: usize,
        /// The duration of a segment.
        segment: Duration,
    },
    /// Bins need a sample rate.
    #[error("the sample rate of the stream is not known, so its samples have no bins of time")]
    NoRate,
    /// Levels are counted of short codes only.
    #[error("levels are counted of integers up to 8 bits, and the samples are {layout}")]
    Levels {
        /// The samples.
        layout: String,
    },
    /// A line does not exist.
    #[error("there is no channel {channel}: the stream has {count}, numbered from 0")]
    Line {
        /// The number.
        channel: usize,
        /// The number of channels.
        count: u32,
    },
    /// The sums need too much memory.
    #[error("the result has more than {MOST_VALUES} values")]
    TooLarge,
    /// The sums of one thread need too much memory.
    #[error("the spectra of all channels of a thread have more than {most} values")]
    Live {
        /// The most values.
        most: u64,
    },
}

impl Hint for PlanError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            PlanError::Bin { .. } => Some("use a longer --average, or fewer --channels".into()),
            PlanError::NoRate => Some("give it with --sample-rate, for example 32MHz".into()),
            PlanError::TooLarge => {
                Some("use a longer --average, fewer --channels, or a shorter --length".into())
            }
            PlanError::Live { .. } => Some("ask for fewer spectral channels".into()),
            PlanError::Channels { .. } | PlanError::Levels { .. } | PlanError::Line { .. } => None,
        }
    }
}

impl Plan {
    /// Samples of a segment.
    pub fn segment(&self, layout: &SampleLayout) -> usize {
        if layout.encoding.complex { self.channels } else { 2 * self.channels }
    }

    /// Checks the plan, for samples of a layout.
    pub fn check(&self, layout: &SampleLayout) -> Result<(), PlanError> {
        let channels = self.channels;
        if !channels.is_multiple_of(8) || !(FEWEST_CHANNELS..=MOST_CHANNELS).contains(&channels) {
            return Err(PlanError::Channels { channels });
        }
        if self.wanted.levels && layout.encoding.code.bits() > 8 {
            return Err(PlanError::Levels { layout: layout.to_string() });
        }
        for LineId { channel, .. } in self.wanted.cross.into_iter().flatten() {
            if channel >= layout.channels as usize {
                return Err(PlanError::Line { channel, count: layout.channels });
            }
        }
        let segment = self.segment(layout) as u64;
        if segment.saturating_mul(layout.sample_bits()) > MOST_VALUES * 8 {
            return Err(PlanError::TooLarge);
        }
        if let Some(bin) = self.bin {
            let rate = layout.sample_rate.ok_or(PlanError::NoRate)?.hertz();
            let segment = Duration::try_from_secs_f64(segment as f64 / rate);
            let segment = segment.unwrap_or(Duration::MAX);
            if bin < segment {
                return Err(PlanError::Bin { bin, channels, segment });
            }
        }
        Ok(())
    }

    /// Checks that a line exists, and that the spectra of its thread take little memory.
    pub fn check_line(&self, layout: &SampleLayout, line: LineId) -> Result<(), PlanError> {
        let count = layout.channels;
        if line.channel >= count as usize {
            return Err(PlanError::Line { channel: line.channel, count });
        }
        match self.segment(layout) as u64 * u64::from(count) > MOST_OF_THREAD {
            true => Err(PlanError::Live { most: MOST_OF_THREAD }),
            false => Ok(()),
        }
    }

    /// Whether each bin is a whole number of segments.
    pub fn bin_is_whole(&self, layout: &SampleLayout) -> bool {
        let (Some(bin), Some(rate)) = (self.bin, layout.sample_rate) else { return false };
        let (above, below) = rate.ratio();
        let segment = u128::from(below) * 1_000_000_000 * self.segment(layout).max(1) as u128;
        bin.as_nanos() > 0 && (u128::from(above) * bin.as_nanos()).is_multiple_of(segment)
    }

    /// The bin of the segment that begins at this sample.
    pub fn bin_of(&self, layout: &SampleLayout, sample: u64) -> u64 {
        let (Some(bin), Some(rate)) = (self.bin, layout.sample_rate) else { return 0 };
        let (above, below) = rate.ratio();
        let ns = u128::from(sample) * u128::from(below) * 1_000_000_000;
        let bin = ns / (u128::from(above) * bin.as_nanos()).max(1);
        u64::try_from(bin).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(channels: usize, bin: Option<Duration>) -> Plan {
        Plan { channels, window: Window::Hann, bin, wanted: Wanted::default() }
    }

    fn layout(encoding: &str, rate: Option<&str>) -> SampleLayout {
        let sample_rate = rate.map(|rate| rate.parse().unwrap());
        SampleLayout { sample_rate, ..SampleLayout::new(encoding.parse().unwrap(), 1) }
    }

    #[test]
    fn plans_that_cannot_be_carried_out_are_refused() {
        let two_bits = layout("ro2", Some("32MHz"));
        for channels in [0, 7, 12, 4, MOST_CHANNELS + 8] {
            let told = plan(channels, None).check(&two_bits);
            assert_eq!(told, Err(PlanError::Channels { channels }));
        }
        let short = plan(1024, Some(Duration::from_micros(63))).check(&two_bits);
        assert!(matches!(short, Err(PlanError::Bin { .. })), "{short:?}");
        assert_eq!(plan(1024, Some(Duration::from_micros(64))).check(&two_bits), Ok(()));
        let unknown = plan(8, Some(Duration::from_secs(1))).check(&layout("ro2", None));
        assert_eq!(unknown, Err(PlanError::NoRate));
        let levels = Plan { wanted: Wanted { levels: true, ..Wanted::default() }, ..plan(8, None) };
        assert!(levels.check(&layout("ri16_le", None)).is_err());
        assert!(levels.check(&layout("ro8", None)).is_ok());
    }

    #[test]
    fn lines_are_named_by_numbers() {
        for text in ["3", "1:0", "1023:15"] {
            assert_eq!(text.parse::<LineId>().unwrap().to_string(), text);
        }
        for text in ["", ":", "1:", ":1", "+1", "1:2:3", "65536:0", "a", "-1"] {
            assert!(text.parse::<LineId>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_segment_is_in_the_bin_of_its_first_sample() {
        let layout = layout("ro2", Some("200/3"));
        let plan = plan(8, Some(Duration::from_secs(3)));
        let bins = [0, 199, 200, 399, 400].map(|sample| plan.bin_of(&layout, sample));
        assert_eq!(bins, [0, 0, 1, 1, 2]);
    }
}
