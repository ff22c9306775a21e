//! One packet: its header, its items and its payload.

/// The first two bytes: the magic number and the version.
const START: [u8; 2] = [0x53, 4];

/// Bytes of the header, and of an item.
pub const WORD: usize = 8;

/// The item with the count of the heap.
pub const HEAP_COUNT: u64 = 1;

/// The item with the length of the heap's payload.
pub const HEAP_LENGTH: u64 = 2;

/// The item with the offset of the packet's payload in that of the heap.
pub const PAYLOAD_OFFSET: u64 = 3;

/// The item with the length of the packet's payload.
pub const PAYLOAD_LENGTH: u64 = 4;

/// The most packets of a heap. A header that leads to more is wrong.
pub const MOST_PACKETS: u64 = 1 << 20;

/// The reason why bytes are no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// The bytes end within header or items.
    #[error("{is} bytes are fewer than the {needs} bytes of header and items")]
    TooShort {
        /// Bytes of header and items.
        needs: usize,
        /// Bytes there.
        is: usize,
    },
    /// Another magic number or version.
    #[error("the packet begins with {0:02x?} instead of [53, 04]")]
    Start([u8; 2]),
    /// The widths of id and address are not 8 bytes together.
    #[error("items of {id} bytes of id and {address} of address are not 8 bytes")]
    Widths {
        /// Bytes of an id.
        id: u8,
        /// Bytes of an address.
        address: u8,
    },
    /// An item that each packet needs is not there.
    #[error(
        "item {0} is missing: 1 is the heap count, 2 its length, 3 the payload's offset, 4 its length"
    )]
    Missing(u64),
    /// The payload does not lie within the heap.
    #[error("{length} bytes at offset {offset} are not within a heap of {heap} bytes")]
    Outside {
        /// The offset of the payload.
        offset: u64,
        /// Bytes of the payload.
        length: u64,
        /// Bytes of the heap.
        heap: u64,
    },
    /// The pieces are too small for the heap.
    #[error("a heap of {heap} bytes in pieces of {length} has more than {MOST_PACKETS} packets")]
    Pieces {
        /// Bytes of the heap.
        heap: u64,
        /// Bytes of the payload.
        length: u64,
    },
    /// The packet is longer or shorter than its items say.
    #[error("the items state {says} bytes, but {is} were received")]
    Length {
        /// Bytes of the packet, by its items.
        says: u64,
        /// Bytes received.
        is: usize,
    },
}

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The count of its heap.
    pub heap: u64,
    /// Bytes of the heap's payload.
    pub heap_length: u64,
    /// The offset of its payload in that of the heap.
    pub offset: u64,
    /// Bytes of its payload.
    pub length: u64,
    /// Bits of the heap count and of all values.
    pub bits: u32,
    /// The items, 8 bytes each.
    items: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Reads a whole packet.
    #[inline]
    pub fn read(bytes: &'a [u8]) -> Result<Self, PacketError> {
        let packet = Self::read_head(bytes)?;
        let says = (packet.head_bytes() as u64).saturating_add(packet.length);
        match says == bytes.len() as u64 {
            true => Ok(packet),
            false => Err(PacketError::Length { says, is: bytes.len() }),
        }
    }

    /// Reads header and items. The payload may be cut, or longer than they say.
    #[inline]
    pub fn read_head(bytes: &'a [u8]) -> Result<Self, PacketError> {
        let is = bytes.len();
        let head: &[u8; WORD] =
            bytes.first_chunk().ok_or(PacketError::TooShort { needs: WORD, is })?;
        if head[..2] != START {
            return Err(PacketError::Start([head[0], head[1]]));
        }
        let (id, address) = (head[2], head[3]);
        if !(1..=7).contains(&id) || address != 8 - id {
            return Err(PacketError::Widths { id, address });
        }
        let needs = WORD * (1 + usize::from(u16::from_be_bytes([head[6], head[7]])));
        let items = bytes.get(WORD..needs).ok_or(PacketError::TooShort { needs, is })?;
        let mut packet = Self {
            heap: 0,
            heap_length: 0,
            offset: 0,
            length: 0,
            bits: 8 * u32::from(address),
            items,
        };
        let mut seen = 0_u8;
        for (item, value) in packet.immediates() {
            let place = match item {
                HEAP_COUNT => &mut packet.heap,
                HEAP_LENGTH => &mut packet.heap_length,
                PAYLOAD_OFFSET => &mut packet.offset,
                PAYLOAD_LENGTH => &mut packet.length,
                _ => continue,
            };
            *place = value;
            seen |= 1 << item;
        }
        let missing = (HEAP_COUNT..=PAYLOAD_LENGTH).find(|item| seen >> item & 1 == 0);
        missing.map_or(Ok(()), |item| Err(PacketError::Missing(item)))?;
        packet.check()?;
        Ok(packet)
    }

    fn check(&self) -> Result<(), PacketError> {
        let Self { heap_length: heap, offset, length, .. } = *self;
        if length > heap || offset > heap - length {
            return Err(PacketError::Outside { offset, length, heap });
        }
        // The last piece may be short.
        let is_last = offset + length == heap;
        if length > 0 && !is_last && heap / length >= MOST_PACKETS {
            return Err(PacketError::Pieces { heap, length });
        }
        Ok(())
    }

    /// Ids and values of the items that have their value in themselves.
    pub fn immediates(&self) -> impl Iterator<Item = (u64, u64)> + use<'a> {
        let bits = self.bits;
        self.items.as_chunks::<WORD>().0.iter().filter_map(move |item| {
            let word = u64::from_be_bytes(*item);
            (word >> 63 == 1).then_some((word << 1 >> (bits + 1), word & (u64::MAX >> (64 - bits))))
        })
    }

    /// Bytes of header and items.
    pub fn head_bytes(&self) -> usize {
        WORD + self.items.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spead::write::{Head, item};

    fn packet() -> Vec<u8> {
        let items = [item(0x1600, 77), item(0x4101, 3)];
        let head = Head { heap: 0xABCD_EF01_2345, heap_length: 3000, offset: 1000, length: 16 };
        let mut bytes = vec![0; 8 * 7 + 16];
        assert_eq!(head.write(&items, &mut bytes), Some(56));
        bytes
    }

    #[test]
    fn packet_of_64_48_is_read() {
        let bytes = packet();
        assert_eq!(bytes[..16], *b"S\x04\x02\x06\0\0\0\x06\x80\x01\xAB\xCD\xEF\x01\x23\x45");
        let packet = Packet::read(&bytes).unwrap();
        assert_eq!((packet.heap, packet.heap_length), (0xABCD_EF01_2345, 3000));
        assert_eq!((packet.offset, packet.length, packet.bits), (1000, 16, 48));
        let items: Vec<_> = packet.immediates().skip(4).collect();
        assert_eq!(items, [(0x1600, 77), (0x4101, 3)]);
    }

    #[test]
    fn packet_of_64_40_is_read() {
        let mut bytes = packet();
        (bytes[2], bytes[3]) = (3, 5);
        for (number, value) in [3_u64, 3000, 1000, 16].into_iter().enumerate() {
            let word = 1 << 63 | (number as u64 + 1) << 40 | value;
            bytes[8 * (number + 1)..][..8].copy_from_slice(&word.to_be_bytes());
        }
        let packet = Packet::read(&bytes).unwrap();
        assert_eq!((packet.heap, packet.heap_length, packet.bits), (3, 3000, 40));
    }

    #[test]
    fn damage_at_any_place_is_told() {
        let whole = packet();
        for length in 0..whole.len() {
            let error = Packet::read(&whole[..length]).unwrap_err();
            let readable = Packet::read_head(&whole[..length]).is_ok();
            assert_eq!(readable, length >= 56, "{length}: {error}");
        }
        let with = |at: usize, byte: u8| {
            let mut bytes = whole.clone();
            bytes[at] = byte;
            Packet::read(&bytes).unwrap_err()
        };
        assert_eq!(with(0, 0x54), PacketError::Start([0x54, 4]));
        assert_eq!(with(2, 3), PacketError::Widths { id: 3, address: 6 });
        assert_eq!(with(3, 8), PacketError::Widths { id: 2, address: 8 });
        assert_eq!(with(8, 0), PacketError::Missing(1), "an address is no count");
        assert!(matches!(with(7, 200), PacketError::TooShort { needs: 1608, .. }));
        assert!(matches!(with(26, 1), PacketError::Outside { .. }), "an offset beyond the heap");
        assert!(matches!(with(39, 17), PacketError::Length { says: 73, is: 72 }));
        assert!(matches!(with(18, 1), PacketError::Pieces { .. }), "a heap of 1 TB");
    }
}
