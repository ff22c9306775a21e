//! The packets of one stream, and their index.

use super::divide::Divide;
use super::heaps::HeapCounter;
use super::packet::Packet;
use crate::packets::PacketReading;
use crate::vdif::Found;

/// Counts the packets of one stream.
#[derive(Clone, Debug)]
pub struct SpeadIndexer {
    divide: Divide,
    value: Option<u64>,
    heaps: HeapCounter,
    found: Found,
}

impl SpeadIndexer {
    /// Returns an indexer for packets with a value of what divides them.
    pub fn new(divide: Divide, value: Option<u64>) -> Self {
        Self { divide, value, heaps: HeapCounter::default(), found: Found::default() }
    }

    /// The value of its packets.
    pub fn value(&self) -> Option<u64> {
        self.value
    }

    fn head<'a>(&self, packet: &'a [u8]) -> Option<Packet<'a>> {
        let packet = Packet::read_head(packet).ok()?;
        (self.divide.value(&packet) == self.value).then_some(packet)
    }

    /// True if a packet belongs to the stream.
    #[inline]
    pub fn owns(&self, packet: &[u8]) -> bool {
        self.head(packet).is_some()
    }

    /// Reads a packet of `length` bytes, of which `bytes` were received.
    #[inline]
    pub fn read(&self, bytes: &[u8], length: usize) -> PacketReading {
        let Some(packet) = self.head(bytes) else { return PacketReading::Foreign };
        let index = self.heaps.locate(&packet).index;
        let is_whole = packet.head_bytes() as u64 + packet.length == length as u64;
        match is_whole && length == bytes.len() {
            true => PacketReading::Whole { index, invalid: false },
            false => PacketReading::Damaged { index },
        }
    }

    /// Learns from a packet.
    #[inline]
    pub fn learn(&mut self, packet: &[u8]) {
        let Some(packet) = self.head(packet) else { return };
        self.found.disagreements += u64::from(self.heaps.learn(&packet));
    }

    /// Returns the findings since the last call.
    pub fn found(&mut self) -> Found {
        std::mem::take(&mut self.found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spead::write::{Head, item};

    fn packet(heap: u64, offset: u64, antenna: u64) -> Vec<u8> {
        let mut bytes = vec![0; 48 + 100];
        let head = Head { heap, heap_length: 300, offset, length: 100 };
        head.write(&[item(0x4101, antenna)], &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn packets_of_one_value_are_counted_and_others_are_foreign() {
        let mut indexer = SpeadIndexer::new(Divide::Item(0x4101), Some(2));
        for (heap, offset, index) in [(5, 0, 0), (5, 200, 2), (6, 0, 3), (8, 100, 10)] {
            let bytes = packet(heap, offset, 2);
            let reading = PacketReading::Whole { index, invalid: false };
            assert_eq!(indexer.read(&bytes, bytes.len()), reading);
            indexer.learn(&bytes);
        }
        let bytes = packet(8, 200, 2);
        assert_eq!(indexer.read(&bytes[..90], 90), PacketReading::Damaged { index: 11 });
        let other = packet(8, 200, 3);
        assert_eq!(indexer.read(&other, other.len()), PacketReading::Foreign);
        let by_count = Divide::HeapCount(4);
        let value = |heap| by_count.value(&Packet::read(&packet(heap, 0, 0)).unwrap());
        assert_eq!((value(6), value(9)), (Some(2), Some(1)));
    }
}
