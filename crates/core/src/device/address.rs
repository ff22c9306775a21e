//! Chunk addresses: the first and the last chunk of a session, with bounds checks.

use std::borrow::Cow;
use std::fmt;
use std::num::IntErrorKind;

use serde::Serialize;

use crate::hint::Hint;
use crate::layout::ALIGNMENT;
use crate::units::ByteSize;

/// The chunk size of the hardware recorders.
pub const CHUNK_BYTES: u32 = 128 << 10;

/// The smallest chunk: the alignment that direct I/O needs on any drive.
pub const LEAST_CHUNK_BYTES: u64 = ALIGNMENT;

/// The largest chunk.
pub const LARGEST_CHUNK_BYTES: u64 = 1 << 30;

/// The value of an address that does not fit 64 bits: no medium has it.
const TOO_LARGE: u64 = u64::MAX;

/// The chunks of a session, first and last included.
///
/// A `Span` always is within the medium that it was made for: its constructor is the only way to make one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Span {
    first: u64,
    last: u64,
    chunk_bytes: u32,
}

/// Addresses that a session cannot have. Each error has a stable name for scripts: [`AddressError::name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The address is not the start of a chunk.
    #[error(
        "address unaligned: {which} address {address:#x} is not a multiple of the chunk size {chunk_bytes:#x}"
    )]
    Unaligned {
        /// `first` or `last`.
        which: &'static str,
        /// The address given.
        address: u64,
        /// Bytes of a chunk.
        chunk_bytes: u32,
    },
    /// The last address is before the first.
    #[error("address first greater than address last: {first:#x} and {last:#x}")]
    Reversed {
        /// The first address given.
        first: u64,
        /// The last address given.
        last: u64,
    },
    /// The chunk is not, or not wholly, on the medium.
    #[error(
        "address range greater than media size: the last whole chunk begins at {greatest:#x}, \
         and {} was given",
        Given(*address)
    )]
    BeyondMedia {
        /// The address given.
        address: u64,
        /// The greatest valid address.
        greatest: u64,
    },
    /// The chunk size does not suit direct I/O, or is too large.
    #[error(
        "chunk size: {chunk_bytes} bytes is invalid; valid sizes are multiples of \
         {LEAST_CHUNK_BYTES}, up to {LARGEST_CHUNK_BYTES}"
    )]
    Chunk {
        /// The requested chunk size.
        chunk_bytes: u64,
    },
    /// The medium is smaller than one chunk.
    #[error(
        "media smaller than chunk: the medium has {media_bytes} bytes, a chunk has {chunk_bytes}"
    )]
    NoChunk {
        /// Bytes of the medium.
        media_bytes: u64,
        /// Bytes of a chunk.
        chunk_bytes: u32,
    },
}

/// An address in the notation that the user gave.
struct Given(u64);

impl fmt::Display for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            TOO_LARGE => f.write_str("a number above 64 bits"),
            address => write!(f, "{address:#x}"),
        }
    }
}

impl AddressError {
    /// Returns the word for this error in a status.
    pub fn name(&self) -> &'static str {
        match self {
            AddressError::Unaligned { .. } => "address-unaligned",
            AddressError::Reversed { .. } => "address-first-greater-than-last",
            AddressError::BeyondMedia { .. } => "address-range-greater-than-media",
            AddressError::Chunk { .. } => "chunk-size",
            AddressError::NoChunk { .. } => "media-smaller-than-chunk",
        }
    }
}

impl Hint for AddressError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(match *self {
            AddressError::Unaligned { address, chunk_bytes, .. } => {
                let below = address / u64::from(chunk_bytes) * u64::from(chunk_bytes);
                match below.checked_add(u64::from(chunk_bytes)) {
                    Some(above) => {
                        Cow::Owned(format!("the nearest chunks begin at {below:#x} and {above:#x}"))
                    }
                    None => Cow::Owned(format!("the chunk before it begins at {below:#x}")),
                }
            }
            AddressError::Reversed { .. } => {
                "both are addresses of chunks; one chunk alone has the same first and last".into()
            }
            AddressError::BeyondMedia { greatest, .. } => Cow::Owned(format!(
                "`last` is the start address of the last chunk: at most {greatest:#x}"
            )),
            AddressError::Chunk { .. } => "write for example chunk=128KiB".into(),
            AddressError::NoChunk { .. } => "give a smaller chunk, or a larger medium".into(),
        })
    }
}

impl Span {
    /// Returns the chunks from `first` to `last` of a medium. The defaults are its first and its last chunk.
    pub fn new(
        first: Option<u64>,
        last: Option<u64>,
        chunk_bytes: u32,
        media_bytes: u64,
    ) -> Result<Self, AddressError> {
        checked_chunk(chunk_bytes.into())?;
        let chunk = u64::from(chunk_bytes);
        let Some(greatest) = (media_bytes / chunk).checked_sub(1).map(|chunks| chunks * chunk)
        else {
            return Err(AddressError::NoChunk { media_bytes, chunk_bytes });
        };
        for (which, address) in [("first", first), ("last", last)] {
            match address {
                Some(TOO_LARGE) => {
                    return Err(AddressError::BeyondMedia { address: TOO_LARGE, greatest });
                }
                Some(address) if !address.is_multiple_of(chunk) => {
                    return Err(AddressError::Unaligned { which, address, chunk_bytes });
                }
                _ => {}
            }
        }
        if let (Some(first), Some(last)) = (first, last)
            && first > last
        {
            return Err(AddressError::Reversed { first, last });
        }
        let (first, last) = (first.unwrap_or(0), last.unwrap_or(greatest));
        match [first, last].into_iter().find(|&address| address > greatest) {
            Some(address) => Err(AddressError::BeyondMedia { address, greatest }),
            None => Ok(Self { first, last, chunk_bytes }),
        }
    }

    /// Address of the first chunk.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Address of the last chunk.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Bytes of a chunk.
    pub fn chunk_bytes(&self) -> u32 {
        self.chunk_bytes
    }

    /// Address of the first byte after the span.
    pub fn end(&self) -> u64 {
        self.last + u64::from(self.chunk_bytes)
    }

    /// Bytes in the span.
    pub fn bytes(&self) -> u64 {
        self.end() - self.first
    }

    /// Chunks in the span.
    pub fn chunks(&self) -> u64 {
        self.bytes() / u64::from(self.chunk_bytes)
    }

    /// Returns the address of `bytes` bytes at `offset` from the start; `None` if any of them is outside.
    pub fn place(&self, offset: u64, bytes: u64) -> Option<u64> {
        let end = offset.checked_add(bytes)?;
        (end <= self.bytes()).then(|| self.first + offset)
    }

    /// Returns the address of the chunk with the last of `bytes` bytes, counted from the start.
    pub fn last_of(&self, bytes: u64) -> Option<u64> {
        let chunk = u64::from(self.chunk_bytes);
        let last = bytes.min(self.bytes()).checked_sub(1)?;
        Some(self.first + last / chunk * chunk)
    }

    /// Returns the span shortened to the whole chunks that `bytes` bytes need, or unchanged if they need more.
    pub fn shortened(&self, bytes: u64) -> Self {
        let last = self.last_of(bytes.max(1)).unwrap_or(self.last);
        Self { last, ..*self }
    }
}

/// Returns the chunk size; refuses sizes that direct I/O does not accept.
pub(super) fn checked_chunk(chunk_bytes: u64) -> Result<u32, AddressError> {
    let fits = (LEAST_CHUNK_BYTES..=LARGEST_CHUNK_BYTES).contains(&chunk_bytes)
        && chunk_bytes.is_multiple_of(LEAST_CHUNK_BYTES);
    // The largest is 1 GiB.
    if fits { Ok(chunk_bytes as u32) } else { Err(AddressError::Chunk { chunk_bytes }) }
}

/// Reads an address: `0xfffe0000`, `4294836224`, or a size such as `4GiB`. A number above 64 bits is read as the
/// greatest 64-bit number. No medium has that address, so it is refused under the name for such addresses.
pub fn read_address(text: &str) -> Result<u64, String> {
    let read = |digits: &str, radix| match u64::from_str_radix(digits, radix) {
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => Some(TOO_LARGE),
        read => read.ok(),
    };
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    if let Some(digits) = hexadecimal {
        return read(digits, 16).ok_or("it is a byte address, such as 0xfffe0000".to_owned());
    }
    if let Some(address) = read(text, 10) {
        return Ok(address);
    }
    text.parse::<ByteSize>().map(|size| size.0).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MEDIA: u64 = 960_197_124_096;

    #[test]
    fn the_drive_of_the_brief_has_the_last_address_that_its_log_shows() {
        let span = Span::new(None, None, CHUNK_BYTES, MEDIA).unwrap();
        assert_eq!((span.chunks(), span.last()), (7_325_722, 0xdf_9032_0000));
        assert_eq!(span.bytes(), 960_197_033_984);
        let session = Span::new(Some(0), Some(0xfffe_0000), CHUNK_BYTES, MEDIA).unwrap();
        assert_eq!((session.chunks(), session.bytes()), (32768, 1 << 32));
        assert_eq!(session.last_of(session.bytes()), Some(0xfffe_0000));
    }

    #[test]
    fn every_wrong_address_is_refused_by_its_name() {
        let name = |first, last| Span::new(first, last, CHUNK_BYTES, 1 << 20).unwrap_err().name();
        assert_eq!(name(Some(512), None), "address-unaligned");
        assert_eq!(name(None, Some(0x20001)), "address-unaligned");
        assert_eq!(name(Some(0x40000), Some(0x20000)), "address-first-greater-than-last");
        assert_eq!(name(None, Some(1 << 20)), "address-range-greater-than-media");
        assert_eq!(name(Some(1 << 20), None), "address-range-greater-than-media");
        assert_eq!(name(Some(1 << 20), Some(1 << 21)), "address-range-greater-than-media");
        let huge = read_address("99999999999999999999").unwrap();
        assert_eq!(name(None, Some(huge)), "address-range-greater-than-media");
        assert_eq!(Span::new(None, None, 512, 1 << 20).unwrap_err().name(), "chunk-size");
        let small = Span::new(None, None, CHUNK_BYTES, 4096).unwrap_err();
        assert_eq!(small.name(), "media-smaller-than-chunk");
    }

    #[test]
    fn a_medium_that_is_no_whole_number_of_chunks_ends_with_the_last_whole_one() {
        let span = Span::new(None, None, CHUNK_BYTES, (1 << 20) + 4096).unwrap();
        assert_eq!(span.end(), 1 << 20);
    }

    #[test]
    fn addresses_are_read_as_engineers_write_them() {
        assert_eq!(read_address("0xfffe0000"), Ok(0xfffe_0000));
        assert_eq!(read_address("131072"), Ok(0x20000));
        assert_eq!(read_address("128KiB"), Ok(0x20000));
        assert_eq!(read_address("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(read_address("18446744073709551616"), Ok(u64::MAX));
        assert_eq!(read_address("0x10000000000000000"), Ok(u64::MAX));
        for text in ["", "0x", "0xg", "-1", "first"] {
            assert!(read_address(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn nothing_that_has_a_place_lies_outside(
            first in 0u64..64, last in 0u64..64, media in 1u64..(64 << 17),
            offset in any::<u64>(), near in 0u64..(70 << 17), bytes in 0u64..(3 << 17),
        ) {
            let (first, last) = (first << 17, last << 17);
            if let Ok(span) = Span::new(Some(first), Some(last), CHUNK_BYTES, media) {
                prop_assert!(first <= last && span.end() <= media);
                for offset in [offset, near] {
                    if let Some(at) = span.place(offset, bytes) {
                        prop_assert!(at >= span.first() && at + bytes <= span.end());
                    }
                }
                let last = span.last_of(near);
                prop_assert_eq!(last.is_none(), near == 0);
                if let Some(last) = last {
                    prop_assert!(last >= span.first() && last <= span.last());
                    prop_assert!(last.is_multiple_of(CHUNK_BYTES.into()));
                }
                let short = span.shortened(near);
                prop_assert!(short.bytes() >= near.min(span.bytes()) && short.end() <= span.end());
            } else {
                prop_assert!(first > last || last + (1 << 17) > media);
            }
        }
    }
}
