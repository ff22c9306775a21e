//! What the bytes of a payload mean: encoding, channels, sample rate and scale.
//!
//! ```text
//! payload ──► SampleLayout   which value is where      c i16 le, 2 channels: re0 im0 re1 im1 │ re0 im0 …
//!         ──► Decoder        the values themselves     i8, i16, i32 or f32, without the scale
//! ```
//!
//! A scale stays apart from the values: it is a fact about a stream, and no decoder applies it.

pub mod decode;
mod encoding;
mod parameters;
mod rate;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use self::encoding::{Code, Encoding, EncodingError};
pub use self::parameters::{LayoutError, PARAMETERS};
pub use self::rate::{RateError, SampleRate};
use crate::vdif::Header;

/// The largest number of channels of a stream.
pub const MOST_CHANNELS: u32 = 65_536;

/// The samples of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleLayout {
    /// The encoding of each value.
    pub encoding: Encoding,
    /// Channels, one value of each after the other.
    pub channels: u32,
    /// Samples per second of each channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample_rate: Option<SampleRate>,
    /// The physical value of one step of the encoding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slope: Option<Finite>,
    /// The physical value of zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intercept: Option<Finite>,
    /// The unit of the physical value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// The centre frequency in Hz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frequency_hz: Option<Finite>,
    /// The names of the channels; empty, or one for each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub channel_names: Vec<String>,
}

impl SampleLayout {
    /// A layout without a rate or a scale.
    pub fn new(encoding: Encoding, channels: u32) -> Self {
        Self {
            encoding,
            channels,
            sample_rate: None,
            slope: None,
            intercept: None,
            unit: None,
            frequency_hz: None,
            channel_names: Vec::new(),
        }
    }

    /// The layout of the payload of a VDIF frame, at a rate of frames per second of its thread. `None` if its elements
    /// have a number of bits other than 1, 2, 4, 8 or 16, or its payload is not a whole number of samples.
    pub fn of_vdif(header: &Header, frames_per_second: Option<u64>) -> Option<Self> {
        let bits = u8::try_from(header.bits_per_sample()).ok()?;
        let encoding = Encoding { complex: header.complex(), code: Code::offset(bits)? };
        let layout = Self::new(encoding, header.channels());
        let samples = layout.samples_in(header.payload_bytes().into())?;
        let rate = frames_per_second.and_then(|frames| frames.checked_mul(samples));
        Some(Self { sample_rate: rate.and_then(|rate| SampleRate::new(rate, 1)), ..layout })
    }

    /// Bits of one sample of all channels.
    pub fn sample_bits(&self) -> u64 {
        u64::from(self.encoding.bits()) * u64::from(self.channels)
    }

    /// The samples of each channel in this number of bytes, if it is a whole number.
    pub fn samples_in(&self, bytes: u64) -> Option<u64> {
        let bits = bytes.checked_mul(8)?;
        bits.is_multiple_of(self.sample_bits().max(1)).then(|| bits / self.sample_bits().max(1))
    }
}

impl fmt::Display for SampleLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.channels == 1 { "channel" } else { "channels" };
        write!(f, "{} {plural} of {}", self.channels, self.encoding)?;
        if let Some(rate) = self.sample_rate {
            write!(f, " at {rate} Hz")?;
        }
        let unit = self.unit.as_deref().unwrap_or("units");
        match (self.slope, self.intercept) {
            (Some(slope), intercept) => {
                write!(f, ", {} {unit} per step", slope.get())?;
                if let Some(intercept) = intercept {
                    write!(f, " from {} {unit}", intercept.get())?;
                }
            }
            (None, _) if self.unit.is_some() => write!(f, ", in {unit}")?,
            (None, _) => {}
        }
        match self.frequency_hz {
            Some(frequency) => write!(f, ", around {} Hz", frequency.get()),
            None => Ok(()),
        }
    }
}

/// A number that is neither infinite nor NaN.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Finite(f64);

// Only NaN differs from itself.
impl Eq for Finite {}

impl Finite {
    /// The number.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Finite {
    type Error = &'static str;

    fn try_from(number: f64) -> Result<Self, &'static str> {
        number.is_finite().then_some(Self(number)).ok_or("it is not a finite number")
    }
}

impl From<Finite> for f64 {
    fn from(number: Finite) -> f64 {
        number.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vdif_header_and_a_frame_rate_give_the_layout() {
        let header =
            Header::default().with_frame_bytes(8032).with_bits_per_sample(2).with_log2_channels(4);
        let layout = SampleLayout::of_vdif(&header, Some(32_000)).unwrap();
        assert_eq!(layout.to_string(), "16 channels of ro2 at 64000000 Hz");
        assert_eq!(layout.samples_in(8000), Some(2000));
        assert_eq!(layout.samples_in(8001), None);
        let complex = SampleLayout::of_vdif(&header.with_complex(true), None).unwrap();
        assert_eq!(complex.to_string(), "16 channels of co2");
        assert_eq!(SampleLayout::of_vdif(&header.with_bits_per_sample(5), None), None);
    }

    #[test]
    fn a_layout_is_short_json_and_reads_back() {
        let layout = SampleLayout::new("ci16_le".parse().unwrap(), 2);
        let text = serde_json::to_string(&layout).unwrap();
        assert_eq!(text, r#"{"encoding":"ci16_le","channels":2}"#);
        assert_eq!(serde_json::from_str::<SampleLayout>(&text).unwrap(), layout);
        let rate = SampleRate::new(200, 3);
        let slope = Finite::try_from(0.5).ok();
        let scaled = SampleLayout { sample_rate: rate, slope, unit: Some("V".into()), ..layout };
        let text = serde_json::to_string(&scaled).unwrap();
        assert_eq!(serde_json::from_str::<SampleLayout>(&text).unwrap(), scaled);
        assert_eq!(scaled.to_string(), "2 channels of ci16_le at 200/3 Hz, 0.5 V per step");
        assert!(Finite::try_from(f64::NAN).is_err());
    }
}
