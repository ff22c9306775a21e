//! Packets of SPEAD-64-48.

use super::packet::{HEAP_COUNT, HEAP_LENGTH, PAYLOAD_LENGTH, PAYLOAD_OFFSET, WORD};

/// Bits of a value.
const BITS: u32 = 48;

/// What a packet says about its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The count of its heap.
    pub heap: u64,
    /// Bytes of the heap's payload.
    pub heap_length: u64,
    /// The offset of the packet's payload.
    pub offset: u64,
    /// Bytes of the packet's payload.
    pub length: u64,
}

/// Returns an item with an immediate value. Its upper bits are cut.
pub fn item(id: u16, value: u64) -> [u8; WORD] {
    let id = u64::from(id & 0x7FFF);
    (1 << 63 | id << BITS | value & (u64::MAX >> (64 - BITS))).to_be_bytes()
}

impl Head {
    /// Writes the header, the four items that each packet has, and more items. Returns their bytes; `None` if there is
    /// no room.
    pub fn write(&self, items: &[[u8; WORD]], packet: &mut [u8]) -> Option<usize> {
        let own = [
            item(HEAP_COUNT as u16, self.heap),
            item(HEAP_LENGTH as u16, self.heap_length),
            item(PAYLOAD_OFFSET as u16, self.offset),
            item(PAYLOAD_LENGTH as u16, self.length),
        ];
        let count = own.len() + items.len();
        let bytes = WORD * (1 + count);
        let head = packet.get_mut(..bytes)?;
        let [high, low] = u16::try_from(count).ok()?.to_be_bytes();
        head[..WORD].copy_from_slice(&[0x53, 4, 2, 6, 0, 0, high, low]);
        for (place, item) in head[WORD..].chunks_exact_mut(WORD).zip(own.iter().chain(items)) {
            place.copy_from_slice(item);
        }
        Some(bytes)
    }
}
