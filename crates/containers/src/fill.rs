//! Values in the place of samples that are not there.

use std::io::{self, Write};

use fullbore_formats::samples::{Code, Encoding};

/// 4096 values that stand for those that are not there.
fn values(encoding: Encoding) -> Vec<u8> {
    let value = match encoding.code {
        Code::Float { bytes: 4, big_endian: false } => f32::NAN.to_le_bytes().to_vec(),
        Code::Float { bytes: 4, .. } => f32::NAN.to_be_bytes().to_vec(),
        Code::Float { big_endian: false, .. } => f64::NAN.to_le_bytes().to_vec(),
        Code::Float { .. } => f64::NAN.to_be_bytes().to_vec(),
        code => vec![0; code.bits() as usize / 8],
    };
    value.repeat(4096)
}

/// Writes values for absent samples: NaN, or 0 of integers.
pub struct Fill {
    values: Vec<u8>,
}

impl Fill {
    /// The fill of an encoding whose values have whole bytes.
    pub fn new(encoding: Encoding) -> Self {
        Self { values: values(encoding) }
    }

    /// Writes this many bytes.
    pub fn write(&self, to: &mut impl Write, bytes: u64) -> io::Result<()> {
        let mut left = bytes;
        while left > 0 {
            let some = left.min(self.values.len() as u64);
            to.write_all(&self.values[..some as usize])?;
            left -= some;
        }
        Ok(())
    }
}
