//! Decodes payloads: bytes in, values of one type out.
//!
//! Integers stay as they are. Packed codes become the levels that VLBI programs agree on:
//!
//! ```text
//! bits    as integers               as floats
//! 1       −1 +1                     the same
//! 2       −3 −1 +1 +3               −3.3165 −1 +1 +3.3165: the levels that lose least of a Gaussian signal (baseband)
//! 4 to 16 code − half of the codes  the same
//! ```
//!
//! Codes of fewer than eight bits go through a table with an entry for each byte. The other loops have no branch, so
//! that the compiler uses vector instructions.

use super::{Code, Encoding};

/// The higher level of two-bit samples, in units of the lower one.
pub const HIGH_LEVEL: f32 = 3.316505;

/// The type of decoded values.
pub trait Output: Copy + Default + Send + Sync + 'static {
    /// Its name, as on the command line.
    const NAME: &'static str;
    /// Bits of the integers that it holds; `None` of a float, which takes every encoding.
    const INTEGER_BITS: Option<u32>;
    /// The value of an integer that fits.
    fn of_integer(value: i32) -> Self;
    /// The nearest value of a float. Only decoders into floats call it.
    fn of_float(value: f64) -> Self;
}

macro_rules! output {
    ($type:ident, $bits:expr) => {
        impl Output for $type {
            const NAME: &'static str = stringify!($type);
            const INTEGER_BITS: Option<u32> = $bits;
            #[inline(always)]
            fn of_integer(value: i32) -> Self {
                value as $type
            }
            #[inline(always)]
            fn of_float(value: f64) -> Self {
                value as $type
            }
        }
    };
}

output!(i8, Some(8));
output!(i16, Some(16));
output!(i32, Some(32));
output!(f32, None);

/// Values of an encoding do not fit a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("samples of {encoding} do not fit {output}")]
pub struct DoesNotFit {
    /// The encoding.
    pub encoding: Encoding,
    /// The type.
    pub output: &'static str,
}

/// The values of each byte.
enum Table<T> {
    OneBit(Box<[[T; 8]; 256]>),
    TwoBits(Box<[[T; 4]; 256]>),
    FourBits(Box<[[T; 2]; 256]>),
    /// Values have whole bytes.
    None,
}

/// A decoder of one encoding.
pub struct Decoder<T> {
    encoding: Encoding,
    table: Table<T>,
}

impl<T: Output> Decoder<T> {
    /// A decoder, if the type holds every value of the encoding.
    pub fn new(encoding: Encoding) -> Result<Self, DoesNotFit> {
        let needed = match encoding.code {
            Code::Signed { bytes, .. } => u32::from(bytes) * 8,
            Code::Unsigned { bytes, .. } => u32::from(bytes) * 8 + 1,
            Code::Offset { bits } => bits.into(),
            Code::SignMagnitude => 2,
            Code::Float { .. } => u32::MAX,
        };
        if T::INTEGER_BITS.is_some_and(|bits| bits < needed) {
            return Err(DoesNotFit { encoding, output: T::NAME });
        }
        let table = match encoding.code {
            Code::Offset { bits: 1 } => Table::OneBit(table(level::<T>)),
            Code::Offset { bits: 2 } => Table::TwoBits(table(level::<T>)),
            Code::Offset { bits: 4 } => Table::FourBits(table(level::<T>)),
            // The sign is the lower bit. The codes in order are −high, +low, −low, +high.
            Code::SignMagnitude => {
                Table::TwoBits(table(|_, code| level::<T>(2, [0, 2, 1, 3][usize::from(code)])))
            }
            _ => Table::None,
        };
        Ok(Self { encoding, table })
    }

    /// The values in this number of bytes, a complex one counted twice.
    pub fn values_in(&self, bytes: usize) -> usize {
        match self.encoding.code.bits() {
            bits @ 1..8 => bytes * (8 / bits as usize),
            bits => bytes / (bits as usize / 8),
        }
    }

    /// Decodes whole values.
    ///
    /// # Panics
    ///
    /// If `values` has not the length [`values_in`](Self::values_in) these bytes.
    pub fn decode(&self, bytes: &[u8], values: &mut [T]) {
        assert_eq!(values.len(), self.values_in(bytes.len()), "one place for each value");
        match &self.table {
            Table::OneBit(table) => look_up(table, bytes, values),
            Table::TwoBits(table) => look_up(table, bytes, values),
            Table::FourBits(table) => look_up(table, bytes, values),
            Table::None => self.convert(bytes, values),
        }
    }

    fn convert(&self, bytes: &[u8], values: &mut [T]) {
        let int = T::of_integer;
        match self.encoding.code {
            Code::Signed { bytes: 1, .. } => each(bytes, values, |[b]| int((b as i8).into())),
            Code::Unsigned { bytes: 1, .. } => each(bytes, values, |[b]| int(b.into())),
            Code::Signed { bytes: 2, big_endian: false } => {
                each(bytes, values, |b| int(i16::from_le_bytes(b).into()));
            }
            Code::Signed { bytes: 2, .. } => {
                each(bytes, values, |b| int(i16::from_be_bytes(b).into()));
            }
            Code::Unsigned { bytes: 2, big_endian: false } => {
                each(bytes, values, |b| int(u16::from_le_bytes(b).into()));
            }
            Code::Unsigned { bytes: 2, .. } => {
                each(bytes, values, |b| int(u16::from_be_bytes(b).into()));
            }
            Code::Signed { big_endian: false, .. } => {
                each(bytes, values, |b| int(i32::from_le_bytes(b)));
            }
            Code::Signed { .. } => each(bytes, values, |b| int(i32::from_be_bytes(b))),
            Code::Unsigned { big_endian: false, .. } => {
                each(bytes, values, |b| T::of_float(u32::from_le_bytes(b).into()));
            }
            Code::Unsigned { .. } => {
                each(bytes, values, |b| T::of_float(u32::from_be_bytes(b).into()));
            }
            Code::Float { bytes: 4, big_endian: false } => {
                each(bytes, values, |b| T::of_float(f32::from_le_bytes(b).into()));
            }
            Code::Float { bytes: 4, .. } => {
                each(bytes, values, |b| T::of_float(f32::from_be_bytes(b).into()));
            }
            Code::Float { big_endian: false, .. } => {
                each(bytes, values, |b| T::of_float(f64::from_le_bytes(b)));
            }
            Code::Float { .. } => each(bytes, values, |b| T::of_float(f64::from_be_bytes(b))),
            Code::Offset { bits: 8 } => each(bytes, values, |[b]| int(i32::from(b) - 128)),
            Code::Offset { .. } => {
                each(bytes, values, |b| int(i32::from(u16::from_le_bytes(b)) - 32_768));
            }
            Code::SignMagnitude => unreachable!("it has a table"),
        }
    }
}

/// The level of a code of 1, 2 or 4 bits.
fn level<T: Output>(bits: usize, code: u8) -> T {
    match (bits, code) {
        (1, _) => T::of_integer(2 * i32::from(code) - 1),
        (2, 0) if T::INTEGER_BITS.is_none() => T::of_float((-HIGH_LEVEL).into()),
        (2, 3) if T::INTEGER_BITS.is_none() => T::of_float(HIGH_LEVEL.into()),
        (2, _) => T::of_integer(2 * i32::from(code) - 3),
        _ => T::of_integer(i32::from(code) - (1 << (bits - 1))),
    }
}

/// The values of each byte, that in the lowest bits first.
fn table<T: Output, const N: usize>(level: impl Fn(usize, u8) -> T) -> Box<[[T; N]; 256]> {
    let bits = 8 / N;
    let mut table = Box::new([[T::default(); N]; 256]);
    for (byte, values) in (0..=u8::MAX).zip(table.iter_mut()) {
        for (place, value) in values.iter_mut().enumerate() {
            *value = level(bits, (byte >> (place * bits)) & (u8::MAX >> (8 - bits)));
        }
    }
    table
}

fn look_up<T: Copy, const N: usize>(table: &[[T; N]; 256], bytes: &[u8], values: &mut [T]) {
    for (values, &byte) in values.chunks_exact_mut(N).zip(bytes) {
        values.copy_from_slice(&table[usize::from(byte)]);
    }
}

#[inline(always)]
fn each<T, const N: usize>(bytes: &[u8], values: &mut [T], of: impl Fn([u8; N]) -> T) {
    for (value, bytes) in values.iter_mut().zip(bytes.chunks_exact(N)) {
        *value = of(bytes.try_into().expect("it has this length"));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded<T: Output>(name: &str, bytes: &[u8]) -> Vec<T> {
        let decoder = Decoder::<T>::new(name.parse().unwrap()).unwrap();
        let mut values = vec![T::default(); decoder.values_in(bytes.len())];
        decoder.decode(bytes, &mut values);
        values
    }

    #[test]
    fn packed_codes_have_the_levels_of_the_table_above() {
        assert_eq!(decoded::<i8>("ro1", &[0b0000_0101])[..4], [1, -1, 1, -1]);
        assert_eq!(decoded::<i8>("ro2", &[0b1110_0100]), [-3, -1, 1, 3]);
        assert_eq!(decoded::<f32>("ro2", &[0b1110_0100]), [-HIGH_LEVEL, -1.0, 1.0, HIGH_LEVEL]);
        assert_eq!(decoded::<f32>("rm2", &[0b1101_1000]), [-HIGH_LEVEL, -1.0, 1.0, HIGH_LEVEL]);
        assert_eq!(decoded::<i16>("ro4", &[0xF0]), [-8, 7]);
        assert_eq!(decoded::<i16>("ro8", &[0, 128, 255]), [-128, 0, 127]);
        assert_eq!(decoded::<f32>("ro16", &[0, 0, 0xFF, 0xFF]), [-32_768.0, 32_767.0]);
    }

    #[test]
    fn values_that_may_not_fit_are_refused() {
        fn fits<T: Output>(name: &str) -> bool {
            Decoder::<T>::new(name.parse().unwrap()).is_ok()
        }
        assert!(fits::<i8>("ri8") && fits::<i8>("co8") && !fits::<i8>("ru8"));
        assert!(fits::<i16>("ru8") && !fits::<i16>("ru16_le") && fits::<i32>("ru16_le"));
        assert!(!fits::<i32>("ru32_le") && !fits::<i32>("rf32_le") && fits::<f32>("rf64_be"));
    }

    /// Reads one value at a time, by the definition of its code.
    fn slowly(code: Code, bytes: &[u8]) -> Vec<f64> {
        let bits = code.bits() as usize;
        let value = |number: usize| -> f64 {
            let at = |bit: usize| u64::from(bytes[bit / 8] >> (bit % 8) & 1);
            let little = (0..bits).fold(0, |sum, bit| sum | at(number * bits + bit) << bit);
            let swapped = little.swap_bytes() >> ((64 - bits) % 64);
            let read = |big| if big && bits >= 8 { swapped } else { little };
            match code {
                Code::Unsigned { big_endian, .. } => read(big_endian) as f64,
                Code::Signed { big_endian, .. } => {
                    let (value, half) = (read(big_endian) as i64, 1i64 << (bits - 1));
                    (if value >= half { value - 2 * half } else { value }) as f64
                }
                Code::Float { bytes: 4, big_endian } => {
                    f32::from_bits(read(big_endian) as u32).into()
                }
                Code::Float { big_endian, .. } => f64::from_bits(read(big_endian)),
                Code::Offset { bits: 1 } => 2.0 * little as f64 - 1.0,
                Code::Offset { bits: 2 } => levels(little),
                Code::Offset { .. } => little as f64 - (1u64 << (bits - 1)) as f64,
                Code::SignMagnitude => {
                    let sign = if little & 1 == 0 { -1.0 } else { 1.0 };
                    let is_high = (little & 1 == 0) == (little & 2 == 0);
                    if is_high { sign * f64::from(HIGH_LEVEL) } else { sign }
                }
            }
        };
        (0..bytes.len() * 8 / bits).map(value).collect()
    }

    fn levels(code: u64) -> f64 {
        let high = f64::from(HIGH_LEVEL);
        [-high, -1.0, 1.0, high][code as usize]
    }

    proptest! {
        #[test]
        fn every_encoding_decodes_as_a_slow_reader_does(
            bytes in prop::collection::vec(any::<u8>(), 0..24).prop_map(|it| {
                let whole = it.len() / 8 * 8;
                it[..whole].to_vec()
            }),
        ) {
            for name in [
                "ri8", "ru8", "ri16_le", "ri16_be", "ru16_le", "ru16_be", "ri32_le", "ri32_be", "ru32_le",
                "ru32_be", "rf32_le", "rf32_be", "rf64_le", "rf64_be", "ro1", "ro2", "ro4", "ro8", "ro16", "rm2",
            ] {
                let encoding: Encoding = name.parse().unwrap();
                let fast: Vec<u32> =
                    decoded::<f32>(name, &bytes).into_iter().map(plain).collect();
                let slow: Vec<u32> =
                    slowly(encoding.code, &bytes).into_iter().map(|it| plain(it as f32)).collect();
                prop_assert_eq!(fast, slow, "{}", name);
            }
        }
    }

    /// The bits of a float; one number for every NaN.
    fn plain(value: f32) -> u32 {
        if value.is_nan() { u32::MAX } else { value.to_bits() }
    }
}
