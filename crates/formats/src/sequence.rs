//! Counters in datagrams: their position, and the conversion of a wrapping counter to an index.
//!
//! A VTP or `udps` datagram begins with a 64-bit packet sequence number ([`Field::PSN`]). Any other format can be
//! counted too if the position of its counter is known.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::hint::Hint;

/// The position of a counter in a datagram. Written `0:8:le`: offset, width, byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Field {
    /// Bytes before it, up to [`Field::FURTHEST`].
    pub offset: usize,
    /// Its bytes, 1 to 8.
    pub width: usize,
    /// True if the highest byte comes first.
    pub big_endian: bool,
}

/// The reason why a text is not a counter position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// The text has the wrong form.
    #[error("`{text}` is not a position of a sequence number")]
    Form {
        /// The given text.
        text: String,
    },
    /// The width is invalid.
    #[error("a sequence number has 1 to 8 bytes, not {width}")]
    Width {
        /// The given width.
        width: usize,
    },
    /// The offset is after the end of any datagram.
    #[error("a sequence number begins within {} bytes, not at byte {offset}", Field::FURTHEST)]
    Offset {
        /// The given offset.
        offset: usize,
    },
}

impl Hint for FieldError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some("write offset, width in bytes and byte order, for example 0:8:le or 42:4:be".into())
    }
}

impl Field {
    /// The packet sequence number of VTP and `udps`: eight bytes, the lowest first.
    pub const PSN: Field = Field { offset: 0, width: 8, big_endian: false };

    /// The positions of the packet number in the 8 bytes before a VDIF frame: all eight bytes, as VTP defines it, or
    /// four of them while the others are constant. FiLa10G counts in bytes 4 to 7. Eight bytes with the highest first
    /// are recognised by their last four, which wrap as often.
    pub const PACKET_NUMBERS: [Field; 4] = [
        Field::PSN,
        Field { offset: 4, width: 4, big_endian: false },
        Field { offset: 4, width: 4, big_endian: true },
        Field { offset: 0, width: 4, big_endian: true },
    ];

    /// The greatest length of a datagram.
    pub const FURTHEST: usize = 65_535;

    /// Returns the counter of this datagram, or `None` if the datagram ends before it.
    #[inline]
    pub fn read(&self, datagram: &[u8]) -> Option<u64> {
        if self.width == 0 {
            return None;
        }
        let field = datagram.get(self.offset..)?.get(..self.width)?;
        let mut bytes = [0; 8];
        if self.big_endian {
            bytes.get_mut(8usize.checked_sub(self.width)?..)?.copy_from_slice(field);
            Some(u64::from_be_bytes(bytes))
        } else {
            bytes.get_mut(..self.width)?.copy_from_slice(field);
            Some(u64::from_le_bytes(bytes))
        }
    }

    /// Writes a counter, cut to the field's width; false if the datagram ends before it.
    pub fn write(&self, datagram: &mut [u8], value: u64) -> bool {
        let width = self.width;
        let place = datagram.get_mut(self.offset..).and_then(|rest| rest.get_mut(..width));
        match place {
            Some(place) if (1..=8).contains(&width) => {
                if self.big_endian {
                    place.copy_from_slice(&value.to_be_bytes()[8 - width..]);
                } else {
                    place.copy_from_slice(&value.to_le_bytes()[..width]);
                }
                true
            }
            _ => false,
        }
    }

    /// Returns the offset of the first byte after the field.
    pub fn end(&self) -> usize {
        self.offset.saturating_add(self.width)
    }
}

impl FromStr for Field {
    type Err = FieldError;

    fn from_str(text: &str) -> Result<Self, FieldError> {
        let form = || FieldError::Form { text: text.chars().take(64).collect() };
        let parts: Vec<&str> = text.trim().split(':').collect();
        let &[offset, width, order] = parts.as_slice() else { return Err(form()) };
        let offset = offset.parse().map_err(|_| form())?;
        let width = width.parse().map_err(|_| form())?;
        let big_endian = match order.to_ascii_lowercase().as_str() {
            "be" => true,
            "le" => false,
            _ => return Err(form()),
        };
        if !(1..=8).contains(&width) {
            return Err(FieldError::Width { width });
        }
        if offset > Field::FURTHEST {
            return Err(FieldError::Offset { offset });
        }
        Ok(Field { offset, width, big_endian })
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = if self.big_endian { "be" } else { "le" };
        f.pad(&format!("{}:{}:{order}", self.offset, self.width))
    }
}

impl TryFrom<String> for Field {
    type Error = FieldError;

    fn try_from(text: String) -> Result<Self, FieldError> {
        text.parse()
    }
}

impl From<Field> for String {
    fn from(field: Field) -> String {
        field.to_string()
    }
}

/// Converts a counter of a few bytes to a long index.
///
/// Each value is unwrapped to the one nearest to the last observed value, so a counter of `width` bytes may jump or
/// fall back by less than half its range. The first value is its own index. A 64-bit counter that starts so high that
/// an `i64` would overflow loses its upper three bits, and still counts by ones. Indices stay within
/// ±[`Unwrapper::FURTHEST`], so the difference of any two of them is an `i64` too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unwrapper {
    width: usize,
    last: Option<Observed>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Observed {
    raw: u64,
    index: i64,
}

impl Unwrapper {
    /// The limit to which invalid data can push a 64-bit counter.
    pub const FURTHEST: i64 = i64::MAX / 2;

    /// Returns an unwrapper for a counter of `width` bytes; more than 8 are taken as 8, none as 1.
    pub fn new(width: usize) -> Self {
        Unwrapper { width: width.clamp(1, 8), last: None }
    }

    /// Returns the index of this value, without learning from it.
    #[inline]
    pub fn index(&self, raw: u64) -> i64 {
        let raw = raw & self.mask();
        let Some(last) = self.last else { return first_index(raw) };
        let index = last.index.saturating_add(self.nearest(raw.wrapping_sub(last.raw)));
        index.clamp(-Self::FURTHEST, Self::FURTHEST)
    }

    /// Returns the index of this value, and makes it the reference for the next values.
    #[inline]
    pub fn observe(&mut self, raw: u64) -> i64 {
        let raw = raw & self.mask();
        let index = self.index(raw);
        self.last = Some(Observed { raw, index });
        index
    }

    /// Returns the counter's value at an index, as the datagram carries it (or would carry it).
    pub fn raw(&self, index: i64) -> u64 {
        let (raw, from) = self.last.map_or((0, 0), |last| (last.raw, last.index));
        raw.wrapping_add(index.wrapping_sub(from).cast_unsigned()) & self.mask()
    }

    fn mask(&self) -> u64 {
        u64::MAX >> (64 - self.bits())
    }

    fn bits(&self) -> usize {
        self.width * 8
    }

    /// Returns a difference of the counter as a step up or down, whichever is shorter.
    fn nearest(&self, difference: u64) -> i64 {
        let unused = 64 - self.bits();
        (difference << unused).cast_signed() >> unused
    }
}

/// Leaves room for 2^61 further values.
fn first_index(raw: u64) -> i64 {
    (raw & (u64::MAX >> 3)).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_counter_is_read_where_the_text_says() {
        let datagram = [0x11, 0x22, 0x33, 0x44, 0x55];
        let read = |text: &str| text.parse::<Field>().unwrap().read(&datagram);
        assert_eq!(read("0:1:le"), Some(0x11));
        assert_eq!(read("1:3:le"), Some(0x44_33_22));
        assert_eq!(read("1:3:be"), Some(0x22_33_44));
        assert_eq!(read("0:8:le"), None);
        assert_eq!(read("4:2:be"), None);
        assert_eq!(read("65535:1:be"), None);
    }

    #[test]
    fn a_place_that_cannot_be_is_refused_with_the_reason() {
        let error = |text: &str| text.parse::<Field>().unwrap_err();
        assert_eq!(error("0:9:le"), FieldError::Width { width: 9 });
        assert_eq!(error("0:0:le"), FieldError::Width { width: 0 });
        assert_eq!(error("65536:8:le"), FieldError::Offset { offset: 65_536 });
        for text in ["", "0", "0:8", "0:8:xe", "-1:8:le", "0:8:le:4", "a:b:c"] {
            assert!(matches!(error(text), FieldError::Form { .. }), "{text}");
            assert!(error(text).hint().unwrap().contains("0:8:le"));
        }
    }

    #[test]
    fn a_field_made_by_hand_with_an_absurd_width_reads_nothing() {
        for width in [0, 9, usize::MAX] {
            for big_endian in [false, true] {
                let field = Field { offset: 0, width, big_endian };
                assert_eq!(field.read(&[0; 64]), None);
                assert!(!field.write(&mut [0; 64], 1));
            }
        }
    }

    #[test]
    fn a_psn_may_start_anywhere_even_at_the_very_end() {
        for start in [0, 1, 1 << 31, 1 << 62, 1 << 63, u64::MAX] {
            let mut psn = Unwrapper::new(8);
            let first = psn.observe(start);
            for step in 1..5u64 {
                let raw = start.wrapping_add(step);
                assert_eq!(psn.observe(raw), first + step as i64, "from {start}");
                assert_eq!(psn.raw(first), start);
            }
        }
        assert_eq!(Unwrapper::new(8).observe(12_345), 12_345);
    }

    #[test]
    fn bits_above_the_counter_are_not_looked_at() {
        let mut counter = Unwrapper::new(2);
        assert_eq!(counter.observe(0xABCD_0005), 5);
        assert_eq!(counter.index(6), 6);
    }

    proptest! {
        #[test]
        fn a_field_reads_what_was_written_there(
            offset in 0usize..16,
            width in 1usize..=8,
            big_endian: bool,
            value: u64,
        ) {
            let field = Field { offset, width, big_endian };
            let mut datagram = [0xEE; 24];
            prop_assert!(field.write(&mut datagram, value));
            prop_assert_eq!(field.read(&datagram), Some(value & (u64::MAX >> (64 - 8 * width))));
            let others = datagram[..offset].iter().chain(&datagram[field.end()..]);
            prop_assert!(others.copied().all(|byte| byte == 0xEE));
            prop_assert_eq!(field.to_string().parse::<Field>(), Ok(field));
        }

        #[test]
        fn a_counter_that_wraps_counts_on_while_it_jumps_by_less_than_half(
            width in 1usize..=4,
            start: u32,
            jumps in prop::collection::vec(-126i64..127, 0..200),
        ) {
            let mask = u64::MAX >> (64 - 8 * width);
            let first = i64::from(start) & mask.cast_signed();
            let mut counter = Unwrapper::new(width);
            prop_assert_eq!(counter.observe(u64::from(start)), first);
            let mut truth = first;
            for jump in jumps {
                truth += jump;
                let raw = truth.cast_unsigned() & mask;
                prop_assert_eq!(counter.index(raw), truth);
                prop_assert_eq!(counter.observe(raw), truth);
                prop_assert_eq!(counter.raw(truth), raw);
            }
        }
    }
}
