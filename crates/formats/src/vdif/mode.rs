//! The text that describes a stream to a VLBI recorder: `VDIF_8000-2048-16-2`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use super::Header;
use crate::hint::Hint;

/// A parsed mode. Only [`Mode::parse`] creates one, so its frame rate is an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mode {
    /// Bytes of samples in a frame.
    pub payload: u32,
    /// Rate of the samples of all channels and threads together, without headers.
    pub mbits: u32,
    /// Channels, a power of two.
    pub channels: u32,
    /// Bits of one sample, or of each part of a complex one.
    pub bits: u32,
    /// True if headers have 16 bytes.
    pub legacy: bool,
    /// True if samples are pairs of a real and an imaginary part.
    pub complex: bool,
}

/// The reason why a text is not a mode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModeError {
    /// The text has the wrong form.
    #[error("`{text}` is not a VDIF mode")]
    Form {
        /// The given text.
        text: String,
    },
    /// A number is invalid.
    #[error("{what} is {value} in `{text}`, but must be {allowed}")]
    Number {
        /// The given text.
        text: String,
        /// The name of the number.
        what: &'static str,
        /// Its value.
        value: u32,
        /// The valid values.
        allowed: &'static str,
    },
    /// The number of frames per second is not an integer.
    #[error("{mbits} Mbit/s are not a whole number of frames of {payload} bytes a second")]
    FrameRate {
        /// Rate of all channels and threads together.
        mbits: u32,
        /// Bytes of samples in a frame.
        payload: u32,
    },
}

impl Hint for ModeError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            ModeError::Form { .. } => {
                "write VDIF_<payload bytes>-<Mbit/s in all>-<channels>-<bits>, for example \
                 VDIF_8000-2048-16-2; VDIFL_ for legacy headers, VDIFC_ for complex samples"
            }
            ModeError::Number { .. } => "the numbers are payload bytes, Mbit/s, channels and bits",
            ModeError::FrameRate { .. } => {
                "the payload includes neither header nor sequence number; check both numbers"
            }
        }))
    }
}

impl Mode {
    /// Parses `VDIF_<payload>-<Mbit/s>-<channels>-<bits>`, also `VDIFL_` and `VDIFC_`, in upper or lower case.
    pub fn parse(text: &str) -> Result<Mode, ModeError> {
        let form = || ModeError::Form { text: text.chars().take(64).collect() };
        let (prefix, numbers) = text.trim().split_once('_').ok_or_else(form)?;
        let (legacy, complex) = match prefix.to_ascii_uppercase().as_str() {
            "VDIF" => (false, false),
            "VDIFL" => (true, false),
            "VDIFC" => (false, true),
            _ => return Err(form()),
        };
        let numbers: Option<Vec<u32>> = numbers.split('-').map(digits).collect();
        let Some(&[payload, mbits, channels, bits]) = numbers.as_deref() else {
            return Err(form());
        };
        let mode = Mode { payload, mbits, channels, bits, legacy, complex };
        mode.checked(text)
    }

    fn checked(self, text: &str) -> Result<Mode, ModeError> {
        let longest = Header::LONGEST_FRAME - Header::BYTES as u32;
        let rules = [
            (
                "the payload",
                self.payload,
                (8..=longest).contains(&self.payload) && self.payload.is_multiple_of(8),
                "a multiple of 8 bytes, up to 134217688",
            ),
            ("the rate", self.mbits, self.mbits > 0, "at least 1 Mbit/s"),
            ("channels", self.channels, self.channels.is_power_of_two(), "a power of two"),
            ("bits", self.bits, (1..=32).contains(&self.bits), "1 to 32 per sample"),
        ];
        for (what, value, fine, allowed) in rules {
            if !fine {
                return Err(ModeError::Number { text: text.to_owned(), what, value, allowed });
            }
        }
        if !self.bits_per_second().is_multiple_of(u64::from(self.payload) * 8) {
            return Err(ModeError::FrameRate { mbits: self.mbits, payload: self.payload });
        }
        Ok(self)
    }

    /// Returns the bytes of header and payload together.
    pub fn frame_bytes(&self) -> u32 {
        self.payload + if self.legacy { Header::LEGACY_BYTES } else { Header::BYTES } as u32
    }

    /// Returns the frames per second of all threads together; each thread has an equal share.
    pub fn frames_per_second(&self) -> u64 {
        self.bits_per_second() / (u64::from(self.payload) * 8).max(1)
    }

    fn bits_per_second(&self) -> u64 {
        u64::from(self.mbits) * 1_000_000
    }
}

/// Parses decimal digits without a sign.
fn digits(text: &str) -> Option<u32> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

impl FromStr for Mode {
    type Err = ModeError;

    fn from_str(text: &str) -> Result<Self, ModeError> {
        Mode::parse(text)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match (self.legacy, self.complex) {
            (true, _) => "VDIFL",
            (false, true) => "VDIFC",
            (false, false) => "VDIF",
        };
        let Mode { payload, mbits, channels, bits, .. } = self;
        f.pad(&format!("{kind}_{payload}-{mbits}-{channels}-{bits}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_mode_is_32000_frames_of_8032_bytes() {
        let mode = Mode::parse("VDIF_8000-2048-16-2").unwrap();
        assert_eq!(mode.frames_per_second(), 32_000);
        assert_eq!(mode.frame_bytes(), 8032);
        assert_eq!((mode.channels, mode.bits), (16, 2));
        assert_eq!(mode.to_string(), "VDIF_8000-2048-16-2");
    }

    #[test]
    fn legacy_headers_are_shorter_and_complex_ones_are_not() {
        let legacy = Mode::parse("vdifl_5000-1024-8-2").unwrap();
        assert!(legacy.legacy && !legacy.complex);
        assert_eq!(legacy.frame_bytes(), 5016);
        let complex = Mode::parse("VDIFC_8192-2048-1-16").unwrap();
        assert!(complex.complex && !complex.legacy);
        assert_eq!((complex.frame_bytes(), complex.frames_per_second()), (8224, 31_250));
        for text in ["VDIFL_5000-1024-8-2", "VDIFC_8192-2048-1-16"] {
            assert_eq!(Mode::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn modes_that_cannot_be_are_refused_with_the_reason() {
        for text in ["", "VDIF", "VDIF_8000-2048-16", "VDIF_8000-2048-16-2-1", "Mark5B_8000-1-1-1"]
        {
            let error = Mode::parse(text).unwrap_err();
            assert!(matches!(error, ModeError::Form { .. }), "{text}: {error}");
            assert!(error.hint().unwrap().contains("VDIF_8000-2048-16-2"));
        }
        for text in ["VDIF_+8000-2048-16-2", "VDIF_8000-99999999999-16-2", "VDIF_--16-2"] {
            assert!(matches!(Mode::parse(text), Err(ModeError::Form { .. })), "{text}");
        }
        for (text, wrong) in [
            ("VDIF_8001-2048-16-2", "the payload"),
            ("VDIF_0-2048-16-2", "the payload"),
            ("VDIF_134217728-2048-16-2", "the payload"),
            ("VDIF_8000-0-16-2", "the rate"),
            ("VDIF_8000-2048-12-2", "channels"),
            ("VDIF_8000-2048-16-33", "bits"),
        ] {
            let error = Mode::parse(text).unwrap_err();
            assert!(matches!(error, ModeError::Number { what, .. } if what == wrong), "{error}");
        }
        let error = Mode::parse("VDIF_8032-2048-16-2").unwrap_err();
        assert_eq!(error, ModeError::FrameRate { mbits: 2048, payload: 8032 });
    }
}
