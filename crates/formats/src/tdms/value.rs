//! Types of values, and properties.

use fullbore_time::Tai;

use super::TdmsError;
use super::bytes::{Fields, put_text};

/// Seconds from 1904-01-01, TDMS's epoch, to 1970-01-01.
const EPOCH: i64 = 2_082_844_800;

/// The type of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[expect(missing_docs, reason = "they say what they are")]
pub enum DataType {
    I8 = 1,
    I16 = 2,
    I32 = 3,
    I64 = 4,
    U8 = 5,
    U16 = 6,
    U32 = 7,
    U64 = 8,
    F32 = 9,
    F64 = 10,
    /// A float with a unit in `unit_string`.
    F32WithUnit = 0x19,
    F64WithUnit = 0x1A,
    Text = 0x20,
    Boolean = 0x21,
    Timestamp = 0x44,
    ComplexF32 = 0x08_000C,
    ComplexF64 = 0x10_000D,
}

impl DataType {
    const ALL: [Self; 17] = [
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::F32,
        Self::F64,
        Self::F32WithUnit,
        Self::F64WithUnit,
        Self::Text,
        Self::Boolean,
        Self::Timestamp,
        Self::ComplexF32,
        Self::ComplexF64,
    ];

    /// The type of a code.
    pub fn of_code(code: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.code() == code)
    }

    /// Its code.
    pub fn code(self) -> u32 {
        self as u32
    }

    /// Bytes of a value; `None` of text.
    pub fn bytes(self) -> Option<u32> {
        Some(match self {
            Self::I8 | Self::U8 | Self::Boolean => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 | Self::U32 | Self::F32 | Self::F32WithUnit => 4,
            Self::I64 | Self::U64 | Self::F64 | Self::F64WithUnit | Self::ComplexF32 => 8,
            Self::Timestamp | Self::ComplexF64 => 16,
            Self::Text => return None,
        })
    }

    /// Bytes that have a byte order: a value, or each part of a complex one.
    pub fn part_bytes(self) -> Option<u32> {
        match self {
            Self::ComplexF32 => Some(4),
            Self::ComplexF64 => Some(8),
            _ => self.bytes(),
        }
    }
}

/// An instant, of UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamp {
    /// Seconds since 1904-01-01 00:00:00 UTC, without leap seconds.
    pub seconds: i64,
    /// Fraction of a second, in 2⁻⁶⁴ s.
    pub fraction: u64,
}

impl Timestamp {
    /// The instant as TAI, rounded to nanoseconds; `None` beyond the range.
    pub fn tai(self) -> Option<Tai> {
        let unix = self.seconds.checked_sub(EPOCH)?;
        let ns = (u128::from(self.fraction) * 1_000_000_000 + (1 << 63)) >> 64;
        let unix_ns = i128::from(unix) * 1_000_000_000 + ns as i128;
        let in_range = unix_ns.abs() < i128::from(i64::MAX) / 2;
        in_range.then(|| Tai::from_unix_ns(unix_ns))
    }
}

impl From<Tai> for Timestamp {
    fn from(time: Tai) -> Self {
        let ns = time.unix_ns();
        let fraction = (ns.rem_euclid(1_000_000_000) as u128) << 64;
        let seconds = ns.div_euclid(1_000_000_000) as i64;
        // Rounded up, so that a reader that cuts the fraction to nanoseconds finds the same instant.
        Self { seconds: seconds + EPOCH, fraction: fraction.div_ceil(1_000_000_000) as u64 }
    }
}

/// The value of a property.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "they are the types of the same name")]
pub enum Value {
    I8(i8),
    I16(i16),
    I32(i32),
    I64(i64),
    U8(u8),
    U16(u16),
    U32(u32),
    U64(u64),
    F32(f32),
    F64(f64),
    F32WithUnit(f32),
    F64WithUnit(f64),
    /// Text, UTF-8 if the writer kept to the format.
    Text(Vec<u8>),
    Boolean(bool),
    Timestamp(Timestamp),
    ComplexF32([f32; 2]),
    ComplexF64([f64; 2]),
}

impl Value {
    /// A text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into().into_bytes())
    }

    /// The text of a text.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => std::str::from_utf8(text).ok(),
            _ => None,
        }
    }

    /// The number of an integer or a float.
    pub fn number(&self) -> Option<f64> {
        Some(match *self {
            Self::I8(value) => value.into(),
            Self::I16(value) => value.into(),
            Self::I32(value) => value.into(),
            Self::I64(value) => value as f64,
            Self::U8(value) => value.into(),
            Self::U16(value) => value.into(),
            Self::U32(value) => value.into(),
            Self::U64(value) => value as f64,
            Self::F32(value) | Self::F32WithUnit(value) => value.into(),
            Self::F64(value) | Self::F64WithUnit(value) => value,
            _ => return None,
        })
    }

    /// Its type.
    pub fn data_type(&self) -> DataType {
        match self {
            Self::I8(_) => DataType::I8,
            Self::I16(_) => DataType::I16,
            Self::I32(_) => DataType::I32,
            Self::I64(_) => DataType::I64,
            Self::U8(_) => DataType::U8,
            Self::U16(_) => DataType::U16,
            Self::U32(_) => DataType::U32,
            Self::U64(_) => DataType::U64,
            Self::F32(_) => DataType::F32,
            Self::F64(_) => DataType::F64,
            Self::F32WithUnit(_) => DataType::F32WithUnit,
            Self::F64WithUnit(_) => DataType::F64WithUnit,
            Self::Text(_) => DataType::Text,
            Self::Boolean(_) => DataType::Boolean,
            Self::Timestamp(_) => DataType::Timestamp,
            Self::ComplexF32(_) => DataType::ComplexF32,
            Self::ComplexF64(_) => DataType::ComplexF64,
        }
    }

    /// Reads the type and the value of a property.
    pub(super) fn read(fields: &mut Fields<'_>, name: &[u8]) -> Result<Self, TdmsError> {
        const WHAT: &str = "a property";
        let code = fields.u32(WHAT)?;
        let shown = || format!("property `{}`", String::from_utf8_lossy(name));
        let data_type = DataType::of_code(code).ok_or_else(|| TdmsError::DataType {
            what: shown().chars().take(100).collect(),
            code,
        })?;
        Ok(match data_type {
            DataType::I8 => Self::I8(i8::from_le_bytes(fields.array(WHAT)?)),
            DataType::I16 => Self::I16(i16::from_le_bytes(fields.array(WHAT)?)),
            DataType::I32 => Self::I32(i32::from_le_bytes(fields.array(WHAT)?)),
            DataType::I64 => Self::I64(i64::from_le_bytes(fields.array(WHAT)?)),
            DataType::U8 => Self::U8(fields.u8(WHAT)?),
            DataType::U16 => Self::U16(u16::from_le_bytes(fields.array(WHAT)?)),
            DataType::U32 => Self::U32(fields.u32(WHAT)?),
            DataType::U64 => Self::U64(fields.u64(WHAT)?),
            DataType::F32 => Self::F32(f32::from_le_bytes(fields.array(WHAT)?)),
            DataType::F64 => Self::F64(f64::from_le_bytes(fields.array(WHAT)?)),
            DataType::F32WithUnit => Self::F32WithUnit(f32::from_le_bytes(fields.array(WHAT)?)),
            DataType::F64WithUnit => Self::F64WithUnit(f64::from_le_bytes(fields.array(WHAT)?)),
            DataType::Text => Self::Text(fields.text(WHAT)?.to_vec()),
            DataType::Boolean => Self::Boolean(fields.u8(WHAT)? != 0),
            DataType::Timestamp => Self::Timestamp(timestamp(fields.array(WHAT)?)),
            DataType::ComplexF32 => Self::ComplexF32([
                f32::from_le_bytes(fields.array(WHAT)?),
                f32::from_le_bytes(fields.array(WHAT)?),
            ]),
            DataType::ComplexF64 => Self::ComplexF64([
                f64::from_le_bytes(fields.array(WHAT)?),
                f64::from_le_bytes(fields.array(WHAT)?),
            ]),
        })
    }

    /// Appends the type and the value, little-endian.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.extend(self.data_type().code().to_le_bytes());
        match self {
            Self::I8(value) => out.extend(value.to_le_bytes()),
            Self::I16(value) => out.extend(value.to_le_bytes()),
            Self::I32(value) => out.extend(value.to_le_bytes()),
            Self::I64(value) => out.extend(value.to_le_bytes()),
            Self::U8(value) => out.push(*value),
            Self::U16(value) => out.extend(value.to_le_bytes()),
            Self::U32(value) => out.extend(value.to_le_bytes()),
            Self::U64(value) => out.extend(value.to_le_bytes()),
            Self::F32(value) | Self::F32WithUnit(value) => out.extend(value.to_le_bytes()),
            Self::F64(value) | Self::F64WithUnit(value) => out.extend(value.to_le_bytes()),
            Self::Text(text) => put_text(out, text),
            Self::Boolean(value) => out.push((*value).into()),
            Self::Timestamp(time) => {
                out.extend(time.fraction.to_le_bytes());
                out.extend(time.seconds.to_le_bytes());
            }
            Self::ComplexF32(parts) => parts.iter().for_each(|it| out.extend(it.to_le_bytes())),
            Self::ComplexF64(parts) => parts.iter().for_each(|it| out.extend(it.to_le_bytes())),
        }
    }
}

/// A timestamp: the fraction in the lower half. A big-endian one is the same bytes in reverse.
fn timestamp(bytes: [u8; 16]) -> Timestamp {
    let both = u128::from_le_bytes(bytes);
    Timestamp { seconds: (both >> 64) as i64, fraction: both as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_keeps_every_nanosecond() {
        let start: Tai = "2026-11-27T10:35:00.123456789Z".parse().unwrap();
        for ns in [0, 1, 2, 499_999_999, 876_543_210] {
            let time = start.plus_ns(ns);
            assert_eq!(Timestamp::from(time).tai(), Some(time));
        }
        let epoch: Tai = "1970-01-01T00:00:00Z".parse().unwrap();
        assert_eq!(Timestamp::from(epoch), Timestamp { seconds: EPOCH, fraction: 0 });
        assert_eq!(Timestamp { seconds: i64::MAX, fraction: 0 }.tai(), None);
    }

    #[test]
    fn every_value_is_read_as_it_was_written() {
        for value in [
            Value::I8(-1),
            Value::I16(-2),
            Value::I32(-3),
            Value::I64(-4),
            Value::U8(5),
            Value::U16(6),
            Value::U32(7),
            Value::U64(8),
            Value::F32(1.5),
            Value::F64(2.5),
            Value::F32WithUnit(3.5),
            Value::F64WithUnit(4.5),
            Value::text("µV"),
            Value::Boolean(true),
            Value::Timestamp(Timestamp { seconds: 1, fraction: 2 }),
            Value::ComplexF32([1.0, -1.0]),
            Value::ComplexF64([2.0, -2.0]),
        ] {
            let mut bytes = Vec::new();
            value.put(&mut bytes);
            let mut fields = Fields::new(&bytes, 0, false);
            assert_eq!(Value::read(&mut fields, b"x"), Ok(value.clone()));
            assert_eq!(fields.left(), 0);
            for cut in 0..bytes.len() {
                let mut fields = Fields::new(&bytes[..cut], 0, false);
                assert!(Value::read(&mut fields, b"x").is_err(), "{value:?} cut at {cut}");
            }
        }
    }
}
