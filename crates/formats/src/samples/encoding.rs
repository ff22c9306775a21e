//! Encodings of values, by name: SigMF's datatypes, and the packed codes of VLBI.
//!
//! ```text
//! ri16_le  cf32_be  ru8  ci8 …            SigMF 1.2, core:datatype
//! ro1 ro2 ro4 ro8 ro16   co1 … co16       offset binary, the first value in the lowest bits (VDIF 1.1.1, section 8)
//! rm2                                     sign in the lower bit, magnitude in the higher one (Mark 5B, 2 bits)
//! ```

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The encoding of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Encoding {
    /// True if a value is a real and an imaginary part.
    pub complex: bool,
    /// The encoding of a real value, or of each part.
    pub code: Code,
}

/// The encoding of a real value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// A signed integer of 1, 2 or 4 bytes.
    Signed {
        /// Bytes.
        bytes: u8,
        /// True if the highest byte comes first.
        big_endian: bool,
    },
    /// An unsigned integer of 1, 2 or 4 bytes.
    Unsigned {
        /// Bytes.
        bytes: u8,
        /// True if the highest byte comes first.
        big_endian: bool,
    },
    /// A float of 4 or 8 bytes.
    Float {
        /// Bytes.
        bytes: u8,
        /// True if the highest byte comes first.
        big_endian: bool,
    },
    /// Offset binary of 1, 2, 4, 8 or 16 bits, packed from the lowest bit on.
    Offset {
        /// Bits.
        bits: u8,
    },
    /// A sign bit and, above it, a magnitude bit.
    SignMagnitude,
}

impl Code {
    /// Offset binary of this many bits, if they divide a word of 32 bits and are at most 16.
    pub fn offset(bits: u8) -> Option<Self> {
        matches!(bits, 1 | 2 | 4 | 8 | 16).then_some(Code::Offset { bits })
    }

    /// Bits of a value.
    pub fn bits(self) -> u32 {
        match self {
            Code::Signed { bytes, .. }
            | Code::Unsigned { bytes, .. }
            | Code::Float { bytes, .. } => u32::from(bytes) * 8,
            Code::Offset { bits } => bits.into(),
            Code::SignMagnitude => 2,
        }
    }
}

/// A text is not an encoding.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not an encoding: it is r or c, then i8, u8, i16_le, u16_le, i32_le, u32_le, f32_le, f64_le (or _be), \
     o1, o2, o4, o8 or o16; or rm2"
)]
pub struct EncodingError {
    /// The text, at most its first 32 characters.
    text: String,
}

impl Encoding {
    /// Bits of a value, both parts together.
    pub fn bits(self) -> u32 {
        self.code.bits() * self.parts()
    }

    /// 2 if values are complex, else 1.
    pub fn parts(self) -> u32 {
        if self.complex { 2 } else { 1 }
    }

    /// The datatype of SigMF, if it is one.
    pub fn sigmf_name(self) -> Option<String> {
        match self.code {
            Code::Signed { .. } | Code::Unsigned { .. } | Code::Float { .. } => {
                Some(self.to_string())
            }
            Code::Offset { .. } | Code::SignMagnitude => None,
        }
    }
}

impl FromStr for Encoding {
    type Err = EncodingError;

    fn from_str(text: &str) -> Result<Self, EncodingError> {
        let complex = text.starts_with('c');
        let code = text.strip_prefix(['c', 'r']).and_then(code);
        match code {
            Some(Code::SignMagnitude) if complex => None,
            code => code.map(|code| Encoding { complex, code }),
        }
        .ok_or_else(|| EncodingError { text: text.chars().take(32).collect() })
    }
}

fn code(text: &str) -> Option<Code> {
    if text == "m2" {
        return Some(Code::SignMagnitude);
    }
    if let Some(bits) = text.strip_prefix('o') {
        return ["1", "2", "4", "8", "16"]
            .contains(&bits)
            .then(|| bits.parse().ok())?
            .and_then(Code::offset);
    }
    let (plain, big_endian) = match (text.strip_suffix("_le"), text.strip_suffix("_be")) {
        (Some(plain), _) => (plain, false),
        (None, Some(plain)) => (plain, true),
        // A single byte has no order.
        (None, None) if text.ends_with('8') => (text, false),
        (None, None) => return None,
    };
    let single = plain.len() == text.len();
    Some(match (plain, single) {
        ("i8", true) => Code::Signed { bytes: 1, big_endian },
        ("u8", true) => Code::Unsigned { bytes: 1, big_endian },
        ("i16", false) => Code::Signed { bytes: 2, big_endian },
        ("u16", false) => Code::Unsigned { bytes: 2, big_endian },
        ("i32", false) => Code::Signed { bytes: 4, big_endian },
        ("u32", false) => Code::Unsigned { bytes: 4, big_endian },
        ("f32", false) => Code::Float { bytes: 4, big_endian },
        ("f64", false) => Code::Float { bytes: 8, big_endian },
        _ => return None,
    })
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = if self.complex { 'c' } else { 'r' };
        let (kind, bytes, big_endian) = match self.code {
            Code::Signed { bytes, big_endian } => ('i', bytes, big_endian),
            Code::Unsigned { bytes, big_endian } => ('u', bytes, big_endian),
            Code::Float { bytes, big_endian } => ('f', bytes, big_endian),
            Code::Offset { bits } => return write!(f, "{letter}o{bits}"),
            Code::SignMagnitude => return write!(f, "{letter}m2"),
        };
        let order = match (bytes, big_endian) {
            (1, _) => "",
            (_, false) => "_le",
            (_, true) => "_be",
        };
        write!(f, "{letter}{kind}{}{order}", bytes * 8)
    }
}

impl TryFrom<String> for Encoding {
    type Error = EncodingError;

    fn try_from(text: String) -> Result<Self, EncodingError> {
        text.parse()
    }
}

impl From<Encoding> for String {
    fn from(encoding: Encoding) -> String {
        encoding.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_back() {
        let mut names = vec!["rm2".to_owned()];
        for letter in ["r", "c"] {
            for code in ["i8", "u8", "o1", "o2", "o4", "o8", "o16"] {
                names.push(format!("{letter}{code}"));
            }
            for code in ["i16", "u16", "i32", "u32", "f32", "f64"] {
                names.extend(["le", "be"].map(|order| format!("{letter}{code}_{order}")));
            }
        }
        for name in names {
            assert_eq!(name.parse::<Encoding>().unwrap().to_string(), name);
        }
    }

    #[test]
    fn other_names_are_refused() {
        for name in [
            "",
            "r",
            "i16_le",
            "ri16",
            "ri8_le",
            "ri64_le",
            "ro3",
            "ro32",
            "ro+2",
            "cm2",
            "cf32_lexyz",
            "ré",
        ] {
            assert!(name.parse::<Encoding>().is_err(), "{name}");
        }
    }

    #[test]
    fn a_complex_value_has_twice_the_bits() {
        let bits = |name: &str| name.parse::<Encoding>().unwrap().bits();
        assert_eq!((bits("ri16_le"), bits("cf32_be"), bits("co2"), bits("rm2")), (16, 64, 4, 2));
    }
}
