//! The payload format of data packets: the encoding of their samples, as context packets state it (VITA 49.2, 9.13.3).
//!
//! ```text
//! word 0   31 packing · 30-29 real, complex, polar · 28-24 data item format · 23 repeat indicator · 22-20 event tag bits
//!          19-16 channel tag bits · 15-12 fraction bits · 11-6 bits of a packing field less 1 · 5-0 bits of an item less 1
//! word 1   31-16 repeat count less 1 · 15-0 vector size less 1
//! ```

use crate::samples::{Code, Encoding, MOST_CHANNELS, SampleLayout};

/// The reason why samples of a payload format are not decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// Complex samples as amplitude and phase.
    #[error("its samples are amplitude and phase")]
    Polar,
    /// The type 3 of samples is not defined.
    #[error("its samples are neither real nor complex")]
    Type,
    /// Samples stand with tags.
    #[error("its samples have {event} bits of event tags and {channel} bits of channel tags")]
    Tags {
        /// Bits of the event tag of each item.
        event: u8,
        /// Bits of the channel tag of each item.
        channel: u8,
    },
    /// Components of a sample stand several times.
    #[error("its samples are repeated")]
    Repeated,
    /// Items are narrower than the fields that they stand in.
    #[error("its items have {item} bits in fields of {field} bits")]
    Padded {
        /// Bits of an item.
        item: u32,
        /// Bits of a field.
        field: u32,
    },
    /// A data item format, or a size, that is not decoded.
    #[error("its items have the data item format {format} with {bits} bits")]
    Item {
        /// The number of the format.
        format: u8,
        /// Bits of an item.
        bits: u32,
    },
}

/// Returns the layout of samples of a payload format, without a rate.
pub fn layout(format: u64) -> Result<SampleLayout, FormatError> {
    let field = |from: u32, bits: u32| (format >> (32 + from) & ((1 << bits) - 1)) as u32;
    let (item, packing) = (field(0, 6) + 1, field(6, 6) + 1);
    let [channel, event] = [field(16, 4) as u8, field(20, 3) as u8];
    let complex = match field(29, 2) {
        0 => false,
        1 => true,
        2 => return Err(FormatError::Polar),
        _ => return Err(FormatError::Type),
    };
    if (event, channel) != (0, 0) {
        return Err(FormatError::Tags { event, channel });
    }
    if field(23, 1) == 1 || format >> 16 & 0xFFFF != 0 {
        return Err(FormatError::Repeated);
    }
    if item != packing {
        return Err(FormatError::Padded { item, field: packing });
    }
    let channels = (format & 0xFFFF) as u32 + 1;
    debug_assert!(channels <= MOST_CHANNELS);
    let (bytes, big_endian) = ((item / 8) as u8, item > 8);
    let code = match (field(24, 5), item) {
        (0 | 7, 8 | 16 | 32) => Code::Signed { bytes, big_endian },
        (16 | 23, 8 | 16 | 32) => Code::Unsigned { bytes, big_endian },
        (14, 32) | (15, 64) => Code::Float { bytes, big_endian },
        (format, bits) => return Err(FormatError::Item { format: format as u8, bits }),
    };
    Ok(SampleLayout::new(Encoding { complex, code }, channels))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::vita49::write::{COMPLEX_16, complex_format};

    #[test]
    fn formats_of_whole_bytes_are_layouts() {
        let said = |format| layout(format).unwrap().to_string();
        assert_eq!(said(COMPLEX_16), "1 channel of ci16_be");
        assert_eq!(said(complex_format(8)), "1 channel of ci8");
        assert_eq!(said(0x8000_03CF_0000_0003), "4 channels of ri16_be");
        assert_eq!(said(0x9000_07DF_0000_0000), "1 channel of ru32_be");
        assert_eq!(said(0x2E00_07DF_0000_0000), "1 channel of cf32_be");
        assert_eq!(said(0x8F00_0FFF_0000_0000), "1 channel of rf64_be");
    }

    #[test]
    fn other_formats_are_refused_with_the_reason() {
        for (format, error) in [
            (0xC000_03CF_0000_0000, FormatError::Polar),
            (0xE000_03CF_0000_0000, FormatError::Type),
            (0xA012_03CF_0000_0000, FormatError::Tags { event: 1, channel: 2 }),
            (0xA080_03CF_0000_0000, FormatError::Repeated),
            (0xA000_03CF_0001_0000, FormatError::Repeated),
            (0xA000_03CB_0000_0000, FormatError::Padded { item: 12, field: 16 }),
            (complex_format(12), FormatError::Item { format: 0, bits: 12 }),
            (0x8100_03CF_0000_0000, FormatError::Item { format: 1, bits: 16 }),
        ] {
            assert_eq!(layout(format), Err(error), "{format:016X}");
        }
    }

    proptest! {
        #[test]
        fn any_format_is_read_or_refused(format in any::<u64>()) {
            if let Ok(layout) = layout(format) {
                prop_assert!(layout.channels <= MOST_CHANNELS);
            }
        }
    }
}
