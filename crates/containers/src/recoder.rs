//! Recodes samples: bytes of one encoding in, bytes of another out.

use std::str::FromStr;

use fullbore_formats::samples::decode::{Decoder, DoesNotFit, Output};
use fullbore_formats::samples::{Code, Encoding};
use zerocopy::{Immutable, IntoBytes};

/// Bytes that are recoded at once, so that they stay in the cache. They are whole values of any encoding of one byte or
/// more, and any number of bytes is whole codes of a packed one.
const PIECE: usize = 24 << 10;

/// The type of the values in a file of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleType {
    /// Integers of 8 bits.
    I8,
    /// Integers of 16 bits.
    I16,
    /// Integers of 32 bits.
    I32,
    /// Floats of 32 bits.
    F32,
}

impl FromStr for SampleType {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "i8" => Self::I8,
            "i16" => Self::I16,
            "i32" => Self::I32,
            "f32" => Self::F32,
            _ => return Err("it is i8, i16, i32 or f32"),
        })
    }
}

/// Turns samples of one encoding into another.
pub struct Recoder(Way);

enum Way {
    Same,
    I8(Values<i8>),
    I16(Values<i16>),
    I32(Values<i32>),
    F32(Values<f32>),
}

struct Values<T> {
    decoder: Decoder<T>,
    values: Vec<T>,
}

impl Recoder {
    /// The encoding of values that are stored as a type: in the byte order of this machine.
    pub fn encoding(from: Encoding, wanted: SampleType) -> Result<Encoding, DoesNotFit> {
        let to = Encoding { complex: from.complex, code: wanted.code() };
        Self::new(from, to).map(|_| to)
    }

    /// A recoder. Besides the same encoding, it makes those of [`encoding`](Self::encoding).
    pub fn new(from: Encoding, to: Encoding) -> Result<Self, DoesNotFit> {
        Ok(Self(match SampleType::of(to.code) {
            _ if from == to => Way::Same,
            Some(SampleType::I8) => Way::I8(Values::new(from)?),
            Some(SampleType::I16) => Way::I16(Values::new(from)?),
            Some(SampleType::I32) => Way::I32(Values::new(from)?),
            Some(SampleType::F32) => Way::F32(Values::new(from)?),
            None => return Err(DoesNotFit { encoding: from, output: "this encoding" }),
        }))
    }

    /// Recodes whole values, and passes them on in pieces.
    pub fn recode<E>(
        &mut self,
        bytes: &[u8],
        put: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut put = put;
        match &mut self.0 {
            Way::Same => put(bytes),
            Way::I8(values) => values.recode(bytes, put),
            Way::I16(values) => values.recode(bytes, put),
            Way::I32(values) => values.recode(bytes, put),
            Way::F32(values) => values.recode(bytes, put),
        }
    }
}

impl SampleType {
    fn code(self) -> Code {
        let big_endian = cfg!(target_endian = "big");
        match self {
            Self::I8 => Code::Signed { bytes: 1, big_endian: false },
            Self::I16 => Code::Signed { bytes: 2, big_endian },
            Self::I32 => Code::Signed { bytes: 4, big_endian },
            Self::F32 => Code::Float { bytes: 4, big_endian },
        }
    }

    /// The smallest integers for packed codes; `None` of values that have bytes of their own.
    pub(crate) fn of_packed(from: Encoding) -> Option<Self> {
        match from.code {
            Code::Offset { bits: 16 } => Some(Self::I16),
            Code::Offset { .. } | Code::SignMagnitude => Some(Self::I8),
            Code::Signed { .. } | Code::Unsigned { .. } | Code::Float { .. } => None,
        }
    }

    fn of(code: Code) -> Option<Self> {
        [Self::I8, Self::I16, Self::I32, Self::F32].into_iter().find(|it| it.code() == code)
    }
}

impl<T: Output + IntoBytes + Immutable> Values<T> {
    fn new(from: Encoding) -> Result<Self, DoesNotFit> {
        Ok(Self { decoder: Decoder::new(from)?, values: Vec::new() })
    }

    fn recode<E>(
        &mut self,
        bytes: &[u8],
        mut put: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        for bytes in bytes.chunks(PIECE) {
            self.values.resize(self.decoder.values_in(bytes.len()), T::default());
            self.decoder.decode(bytes, &mut self.values);
            put(self.values.as_bytes())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recoded(from: &str, to: &str, bytes: &[u8]) -> Vec<u8> {
        let mut recoder = Recoder::new(from.parse().unwrap(), to.parse().unwrap()).unwrap();
        let mut made = Vec::new();
        let put = |bytes: &[u8]| {
            made.extend(bytes);
            Ok::<(), ()>(())
        };
        recoder.recode(bytes, put).unwrap();
        made
    }

    #[test]
    fn values_change_their_type_or_stay() {
        assert_eq!(recoded("ri16_be", "ri16_be", &[1, 2]), [1, 2]);
        assert_eq!(recoded("ru8", "ri16_le", &[200]), [200, 0]);
        assert_eq!(recoded("ci16_be", "ci16_le", &[1, 2, 3, 4]), [2, 1, 4, 3]);
        let wide = vec![0u8; 3 * PIECE];
        assert_eq!(recoded("ro2", "rf32_le", &wide).len(), 3 * PIECE * 16);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let new = |from: &str, to: &str| Recoder::new(from.parse().unwrap(), to.parse().unwrap());
        assert!(new("ri16_le", "ri8").is_err());
        assert!(new("ri8", "rf64_le").is_err());
    }
}
