//! The value that divides the packets of a port into streams.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use super::packet::Packet;
use crate::hint::Hint;

/// The most streams by heap count.
pub const MOST_SENDERS: u32 = 1024;

/// The rule that divides the packets of a port into streams.
///
/// Packets of SPEAD name no stream. Senders that share a port are known by an item, such as the number of an antenna,
/// or by their heap counts: sender *i* of *n* sends the heaps *i*, *i* + *n*, *i* + 2*n* …
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Divide {
    /// All heaps are one stream.
    #[default]
    Not,
    /// By the value of the item with this id.
    Item(u16),
    /// By the heap count modulo this number.
    HeapCount(u32),
}

impl Divide {
    /// Returns the value of a packet; `None` if it has none.
    #[inline]
    pub fn value(self, packet: &Packet<'_>) -> Option<u64> {
        match self {
            Self::Not => None,
            Self::Item(id) => {
                packet.immediates().find(|(item, _)| *item == u64::from(id)).map(|it| it.1)
            }
            Self::HeapCount(senders) => Some(packet.heap % u64::from(senders.max(1))),
        }
    }
}

/// A text that names no rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no item, and no number of senders")]
pub struct DivideError(String);

impl Hint for DivideError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(
            format!(
                "write the id of an item, such as item:0x4101, or the number of senders that take turns in the heap \
                 count, such as heaps:16 (2 to {MOST_SENDERS})"
            )
            .into(),
        )
    }
}

impl FromStr for Divide {
    type Err = DivideError;

    fn from_str(text: &str) -> Result<Self, DivideError> {
        let bad = || DivideError(text.chars().take(64).collect());
        let (by, number) = text.split_once(':').ok_or_else(bad)?;
        let parsed = match number.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16),
            None => number.parse(),
        };
        match (by, parsed) {
            // The first items are not of the sender.
            ("item", Ok(id @ 7..=0x7FFF)) => Ok(Self::Item(id as u16)),
            ("heaps", Ok(senders @ 2..=MOST_SENDERS)) => Ok(Self::HeapCount(senders)),
            _ => Err(bad()),
        }
    }
}

impl fmt::Display for Divide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Not => write!(f, "none"),
            Self::Item(id) => write!(f, "item:{id:#x}"),
            Self::HeapCount(senders) => write!(f, "heaps:{senders}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_and_written() {
        for (text, rule) in
            [("item:0x4101", Divide::Item(0x4101)), ("heaps:16", Divide::HeapCount(16))]
        {
            assert_eq!(text.parse(), Ok(rule));
            assert_eq!(rule.to_string(), text);
        }
        for text in ["", "item", "item:", "item:6", "item:0x8000", "heaps:1", "heaps:1025", "x:9"] {
            assert!(text.parse::<Divide>().is_err(), "{text}");
        }
    }
}
