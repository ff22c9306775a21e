//! The index of a packet: its place in its block, after the packets of all blocks before.
//!
//! ```text
//! block    7             8             (lost)        10
//! packets  0 1 2 3 4     5 6 7 8 9     10 … 14       15 16 17 …
//! ```
//!
//! Blocks may differ in length, as those of compressed images do. A block whose length is not known, and one that was
//! lost wholly, is taken to be as long as the newest block whose length is known.

use std::collections::VecDeque;

use super::leader::Leader;
use super::packet::{Content, Packet};

/// Blocks whose packets may still arrive.
const MOST_BLOCKS: usize = 16;

/// The largest index.
const FURTHEST: i128 = 1 << 60;

/// The values of a block id of 16 bits.
const CYCLE: i64 = 1 << 16;

/// A block of which a packet was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    /// The number of the block, which does not wrap.
    number: i64,
    /// The index of its leader.
    start: i64,
    /// Its packets, by its trailer.
    packets: Option<i64>,
    /// Bytes of its image, by its leader.
    image: Option<u64>,
    /// Bytes of the payload of its first payload packet, which all have but the last.
    payload: Option<u64>,
    /// The packets up to the last one that was seen.
    seen: i64,
}

impl Block {
    /// Its packets, if they are known.
    fn known(&self) -> Option<i64> {
        let by_image = || {
            let packets = self.image?.div_ceil(self.payload.filter(|bytes| *bytes > 0)?);
            i64::try_from(packets).ok()?.checked_add(2)
        };
        self.packets.or_else(by_image)
    }
}

/// The blocks of one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockCounter {
    /// The last blocks, in order.
    blocks: VecDeque<Block>,
    /// The packets of the newest block whose length is known.
    usual: Option<i64>,
    /// The newest block id with its number.
    newest: Option<(u64, i64)>,
    /// True if the camera uses the block id 0 as any other.
    uses_zero: bool,
}

impl BlockCounter {
    /// Returns the index of a packet, without learning from it.
    #[inline]
    pub fn locate(&self, packet: &Packet) -> i64 {
        let number = self.number(packet);
        let index = i128::from(self.start(number)) + i128::from(packet.packet);
        index.clamp(-FURTHEST, FURTHEST) as i64
    }

    /// Learns from a packet with these bytes.
    #[inline]
    pub fn learn(&mut self, packet: &Packet, bytes: &[u8]) {
        self.take(packet, bytes, bytes.len());
    }

    /// Learns from a payload packet of `length` bytes, of which only the header is known.
    pub fn learn_length(&mut self, packet: &Packet, length: usize) {
        self.take(packet, &[], length);
    }

    fn take(&mut self, packet: &Packet, bytes: &[u8], length: usize) {
        self.uses_zero |= packet.block == 0 && !packet.extended;
        let number = self.number(packet);
        if self.newest.is_none_or(|(_, newest)| number > newest) {
            self.newest = Some((packet.block, number));
        }
        let Some(place) = self.place(number) else { return };
        let block = &mut self.blocks[place];
        block.seen = block.seen.max(i64::from(packet.packet) + 1);
        match packet.content {
            Content::Leader => {
                let layout = Leader::read(bytes).and_then(|leader| leader.layout);
                block.image = layout.and_then(|layout| layout.bytes());
            }
            Content::Payload(3) if packet.packet == 1 => {
                block.payload = Some(length.saturating_sub(packet.header_bytes()) as u64);
            }
            Content::Payload(_) => return,
            Content::Trailer => block.packets = Some(i64::from(packet.packet) + 1),
            Content::AllIn => block.packets = Some(1),
        }
        if let Some(known) = block.known() {
            self.usual = Some(known);
        }
    }

    /// The packets of the newest block whose length is known.
    pub fn usual(&self) -> Option<i64> {
        self.usual
    }

    /// The packets of a block, if they are known.
    pub fn packets_of(&self, number: i64) -> Option<u32> {
        let block = self.blocks.iter().rev().find(|block| block.number == number)?;
        u32::try_from(block.known()?).ok()
    }

    /// The number of a packet's block.
    pub fn number(&self, packet: &Packet) -> i64 {
        let Some((id, number)) = self.newest else { return 0 };
        let ahead = if packet.extended {
            packet.block.wrapping_sub(id).cast_signed()
        } else {
            self.short_distance((id & 0xFFFF) as i64, (packet.block & 0xFFFF) as i64)
        };
        number.saturating_add(ahead).clamp(-FURTHEST as i64, FURTHEST as i64)
    }

    /// The blocks from one id of 16 bits to another, at most half a cycle.
    fn short_distance(&self, from: i64, to: i64) -> i64 {
        let ahead = (to - from).rem_euclid(CYCLE);
        let ahead = if ahead > CYCLE / 2 { ahead - CYCLE } else { ahead };
        // The id 0 lies between.
        let skips = !self.uses_zero && from != 0 && to != 0;
        match (skips, (to - from).signum() == ahead.signum()) {
            (true, false) => ahead - ahead.signum(),
            _ => ahead,
        }
    }

    /// The index of the leader of a block.
    fn start(&self, number: i64) -> i64 {
        let before = self.blocks.iter().rev().find(|block| block.number <= number);
        let clamp = |index: i128| index.clamp(-FURTHEST, FURTHEST) as i64;
        match (before, self.blocks.front()) {
            (Some(block), _) if block.number == number => block.start,
            (Some(block), _) => {
                let usual = self.usual.unwrap_or(block.seen);
                let own = block.known().unwrap_or(usual).max(block.seen);
                let lost = i128::from(number - block.number - 1);
                clamp(i128::from(block.start) + i128::from(own) + lost * i128::from(usual))
            }
            (None, Some(first)) => {
                let usual = i128::from(self.usual.unwrap_or(first.seen));
                clamp(i128::from(first.start) - i128::from(first.number - number) * usual)
            }
            (None, None) => 0,
        }
    }

    /// The place of a block among the known ones. It is new there, if it is not older than all.
    fn place(&mut self, number: i64) -> Option<usize> {
        let start = self.start(number);
        let at = self.blocks.partition_point(|block| block.number < number);
        if self.blocks.get(at).is_some_and(|block| block.number == number) {
            return Some(at);
        }
        if self.blocks.len() == MOST_BLOCKS {
            if at == 0 {
                return None;
            }
            self.blocks.pop_front();
        }
        let at = self.blocks.partition_point(|block| block.number < number);
        let new = Block { number, start, packets: None, image: None, payload: None, seen: 0 };
        self.blocks.insert(at, new);
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::write::{Images, LONGEST_HEAD};
    use super::*;

    /// Packet `number` of a stream.
    fn packet(images: Images, number: u64) -> Vec<u8> {
        let mut bytes = vec![0; LONGEST_HEAD + images.payload_bytes as usize];
        let (head, payload) = images.write(number, &mut bytes).unwrap();
        bytes.truncate(head + payload);
        bytes
    }

    /// Checks that all packets are at their indices, but for one offset.
    fn check(packets: impl IntoIterator<Item = (u64, Vec<u8>)>) {
        let mut counter = BlockCounter::default();
        let mut off = None;
        for (number, bytes) in packets {
            let packet = Packet::read(&bytes).unwrap();
            let by = counter.locate(&packet) - number as i64;
            counter.learn(&packet, &bytes);
            assert_eq!(by, *off.get_or_insert(by), "{number}: {packet:?}");
        }
    }

    fn sent(images: Images, numbers: impl IntoIterator<Item = u64>) -> Vec<(u64, Vec<u8>)> {
        numbers.into_iter().map(|number| (number, packet(images, number))).collect()
    }

    #[test]
    fn ids_of_16_bits_go_around_without_zero() {
        for extended in [false, true] {
            let images = Images { payload_packets: 1, payload_bytes: 9, extended };
            check(sent(images, 3 * 65_530..3 * 65_540));
            // The last block before and the first one after are lost.
            check(sent(images, (3 * 65_530..3 * 65_534).chain(3 * 65_536..3 * 65_540)));
        }
    }

    #[test]
    fn a_camera_that_uses_the_id_zero_is_counted() {
        let images = Images { payload_packets: 1, payload_bytes: 9, extended: false };
        let with_zero = |number: u64| {
            let mut bytes = packet(images, number);
            bytes[2..4].copy_from_slice(&((number / 3) as u16).to_be_bytes());
            (number, bytes)
        };
        check((3 * 65_530..3 * 65_545).map(with_zero));
        // The blocks around the second zero are lost.
        let second = 3 * 131_070..3 * 131_075;
        let between = [90_000, 110_000].into_iter().flat_map(|block| 3 * block..3 * block + 6);
        check((3 * 65_530..3 * 65_545).chain(between).chain(second).map(with_zero));
    }

    #[test]
    fn a_lost_first_trailer_is_told_by_the_size_in_the_leader() {
        let images = Images { payload_packets: 4, payload_bytes: 100, extended: false };
        check(sent(images, [0, 1, 2, 6, 7, 8, 12, 13]));
    }

    #[test]
    fn a_packet_from_long_ago_is_placed_before_the_known_ones() {
        let images = Images { payload_packets: 2, payload_bytes: 10, extended: true };
        let numbers = (400..600).chain([402, 409]);
        check(sent(images, numbers));
    }

    proptest! {
        #[test]
        fn any_losses_and_overtaking_leave_the_indices(
            payload_packets in 1u32..20,
            extended: bool,
            from in 0u64..70_000,
            lost in prop::collection::vec(any::<prop::sample::Index>(), 0..60),
            swaps in prop::collection::vec((any::<prop::sample::Index>(), 1usize..6), 0..40),
            lost_images in prop::collection::vec(2u64..30, 0..6),
        ) {
            let images = Images { payload_packets, payload_bytes: 12, extended };
            let each = images.packets();
            // The first image tells the number of packets.
            let told = sent(images, from * each..(from + 1) * each);
            let kept = (1..30).filter(|image| !lost_images.contains(image));
            let numbers = kept.flat_map(|image| (from + image) * each..(from + image + 1) * each);
            let mut rest = sent(images, numbers);
            for hole in lost {
                if !rest.is_empty() {
                    rest.remove(hole.index(rest.len()));
                }
            }
            for (place, by) in swaps {
                if !rest.is_empty() {
                    let at = place.index(rest.len());
                    let to = (at + by).min(rest.len() - 1);
                    rest.swap(at, to);
                }
            }
            check(told.into_iter().chain(rest));
        }

        #[test]
        fn any_packets_are_located_without_overflow(
            packets in prop::collection::vec((any::<u64>(), any::<u32>(), any::<bool>(), 1u8..8), 0..80),
        ) {
            let mut counter = BlockCounter::default();
            for (block, packet, extended, content) in packets {
                let opens = matches!(content, 1 | 4);
                let mut bytes = vec![0xFF; 60];
                let content = match content {
                    1 => Content::Leader,
                    2 => Content::Trailer,
                    4 => Content::AllIn,
                    kind => Content::Payload(kind),
                };
                let packet = if opens { 0 } else { packet };
                Packet { status: 0, block, packet, extended, content }.write(&mut bytes).unwrap();
                if let Ok(packet) = Packet::read(&bytes) {
                    prop_assert!(i128::from(counter.locate(&packet)).abs() <= FURTHEST);
                    counter.learn(&packet, &bytes);
                }
            }
        }
    }
}
