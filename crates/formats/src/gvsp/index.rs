//! The packets of one camera, and their index.

use super::blocks::BlockCounter;
use super::packet::Packet;
use crate::packets::PacketReading;
use crate::vdif::Found;

/// Counts the packets of one stream.
#[derive(Clone, Debug, Default)]
pub struct GvspIndexer {
    blocks: BlockCounter,
}

impl GvspIndexer {
    /// Returns the header of a packet of the stream. An error of the camera in place of a packet is none.
    #[inline]
    pub fn header(packet: &[u8]) -> Option<Packet> {
        Packet::read(packet).ok().filter(|packet| !packet.is_error())
    }

    /// True if the bytes are a packet.
    #[inline]
    pub fn owns(&self, packet: &[u8]) -> bool {
        Self::header(packet).is_some()
    }

    /// Reads a packet of `length` bytes, of which `packet` was received.
    #[inline]
    pub fn read(&self, packet: &[u8], length: usize) -> PacketReading {
        let Some(header) = Self::header(packet) else { return PacketReading::Foreign };
        let index = self.blocks.locate(&header);
        match length == packet.len() {
            true => PacketReading::Whole { index, invalid: false },
            false => PacketReading::Damaged { index },
        }
    }

    /// Learns from a packet.
    #[inline]
    pub fn learn(&mut self, packet: &[u8]) {
        if let Some(header) = Self::header(packet) {
            self.blocks.learn(&header, packet);
        }
    }

    /// Forgets the blocks before a restart of the camera: those behind it may have another length.
    pub fn restart(&mut self) {
        self.blocks = BlockCounter::default();
    }

    /// Returns the findings since the last call. Nothing in a packet can disagree with its ids.
    pub fn found(&mut self) -> Found {
        Found::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gvsp::write::{Images, LONGEST_HEAD};

    #[test]
    fn packets_are_counted_and_errors_of_the_camera_are_foreign() {
        let images = Images { payload_packets: 3, payload_bytes: 50, extended: false };
        let packet = |number| {
            let mut bytes = vec![0; LONGEST_HEAD + 50];
            let (head, payload) = images.write(number, &mut bytes).unwrap();
            bytes.truncate(head + payload);
            bytes
        };
        let mut indexer = GvspIndexer::default();
        for number in [0, 1, 2, 3, 4, 5, 8, 15] {
            let bytes = packet(number);
            let reading = PacketReading::Whole { index: number as i64, invalid: false };
            assert_eq!(indexer.read(&bytes, bytes.len()), reading);
            indexer.learn(&bytes);
        }
        let mut bytes = packet(7);
        assert_eq!(indexer.read(&bytes, bytes.len() + 1), PacketReading::Damaged { index: 7 });
        bytes[..2].copy_from_slice(&0x800Cu16.to_be_bytes());
        assert_eq!(indexer.read(&bytes[..8], 8), PacketReading::Foreign);
        assert!(!indexer.owns(&bytes));
        bytes[..2].copy_from_slice(&0x0100u16.to_be_bytes());
        let again = PacketReading::Whole { index: 7, invalid: false };
        assert_eq!(indexer.read(&bytes, bytes.len()), again);
    }

    #[test]
    fn images_after_a_restart_may_have_another_length() {
        let packets = |payload_packets: u32, numbers: std::ops::Range<u64>| {
            let images = Images { payload_packets, payload_bytes: 50, extended: true };
            numbers.map(move |number| {
                let mut bytes = vec![0; LONGEST_HEAD + 50];
                let (head, payload) = images.write(number, &mut bytes).unwrap();
                bytes.truncate(head + payload);
                bytes
            })
        };
        let mut indexer = GvspIndexer::default();
        packets(3, 500..600).for_each(|bytes| indexer.learn(&bytes));
        indexer.restart();
        for (index, bytes) in (0..).zip(packets(9, 0..300)) {
            let reading = PacketReading::Whole { index, invalid: false };
            assert_eq!(indexer.read(&bytes, bytes.len()), reading);
            indexer.learn(&bytes);
        }
    }
}
