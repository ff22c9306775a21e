//! The pieces into which heaps of one length are cut.
//!
//! ```text
//! heap    | first | each | each | each | last |
//! offset    0       first  first + each …       length - last
//! ```
//!
//! All pieces but the last have one length, or the first is shorter, because only its packet has all items. So one
//! piece from the middle tells the shape, and so does the first one if all are equal.

use super::packet::{MOST_PACKETS, Packet};

/// The pieces of heaps of one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of the payload of a heap.
    pub heap_length: u64,
    /// Bytes of the first piece, if known.
    first: Option<u64>,
    /// Bytes of the pieces from the middle, if known.
    each: Option<u64>,
    /// Bytes of the piece that was seen first.
    any: u64,
}

impl Shape {
    /// Returns the shape of a heap, as far as a packet tells it.
    pub fn of(packet: &Packet<'_>) -> Self {
        let mut shape =
            Self { heap_length: packet.heap_length, first: None, each: None, any: packet.length };
        shape.learn(packet);
        shape
    }

    /// Learns from a packet of a heap of this length.
    pub fn learn(&mut self, packet: &Packet<'_>) {
        let Packet { offset, length, .. } = *packet;
        let is_last = offset + length == self.heap_length;
        match (offset, is_last) {
            _ if length == 0 => {}
            (0, _) => {
                if self.first.is_some_and(|first| first != length) {
                    // The sender cuts otherwise now.
                    self.each = None;
                }
                self.first = Some(length);
            }
            (_, false) => {
                self.each = Some(length);
                self.first = Some((offset - 1) % length + 1);
            }
            (_, true) => {
                // The second of two pieces.
                if self.each.is_none() && self.first == Some(offset) {
                    self.each = Some(length.max(offset));
                }
            }
        }
    }

    /// Bytes of most pieces.
    fn usual(&self) -> u64 {
        self.each.or(self.first).unwrap_or(self.any).max(1)
    }

    /// The number of the piece at an offset.
    pub fn place(&self, offset: u64) -> i64 {
        offset.div_ceil(self.usual()).min(MOST_PACKETS) as i64
    }

    /// The number of packets of a heap.
    pub fn packets(&self) -> i64 {
        let first = self.first.unwrap_or_else(|| self.usual());
        let rest = self.heap_length.saturating_sub(first).div_ceil(self.usual());
        1 + rest.min(MOST_PACKETS) as i64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::spead::write::Head;

    /// The offsets and lengths of the pieces of a heap.
    fn pieces(heap: u64, first: u64, each: u64) -> Vec<(u64, u64)> {
        let mut pieces = vec![(0, first.min(heap))];
        while let Some((offset, length)) = pieces.last().copied()
            && offset + length < heap
        {
            pieces.push((offset + length, each.min(heap - offset - length)));
        }
        pieces
    }

    fn learnt(heap_length: u64, pieces: &[(u64, u64)]) -> Shape {
        let mut shape = None;
        for &(offset, length) in pieces {
            let mut bytes = vec![0; 40 + length as usize];
            Head { heap: 1, heap_length, offset, length }.write(&[], &mut bytes).unwrap();
            let packet = Packet::read(&bytes).unwrap();
            shape.get_or_insert_with(|| Shape::of(&packet)).learn(&packet);
        }
        shape.unwrap()
    }

    #[test]
    fn a_heap_without_payload_is_one_packet() {
        assert_eq!((learnt(0, &[(0, 0)]).packets(), learnt(50, &[(0, 50)]).packets()), (1, 1));
    }

    #[test]
    fn both_of_two_pieces_tell_that_there_are_two() {
        let shape = learnt(2810, &[(0, 1400), (1400, 1410)]);
        assert_eq!((shape.packets(), shape.place(1400)), (2, 1));
    }

    proptest! {
        #[test]
        fn one_piece_from_the_middle_tells_all_places(
            each in 1u64..200, fewer in 0u64..100, heap in 1u64..5000, which in any::<prop::sample::Index>(),
        ) {
            let first = each.saturating_sub(fewer).max(1);
            let pieces = pieces(heap, first, each);
            prop_assume!(pieces.len() > 2);
            let middle = &pieces[1..pieces.len() - 1];
            let shape = learnt(heap, &[middle[which.index(middle.len())]]);
            prop_assert_eq!(shape.packets(), pieces.len() as i64);
            for (number, (offset, _)) in pieces.iter().enumerate() {
                prop_assert_eq!(shape.place(*offset), number as i64);
            }
        }

        #[test]
        fn the_first_of_equal_pieces_tells_all_places(each in 1u64..200, heap in 1u64..5000) {
            let pieces = pieces(heap, each, each);
            let shape = learnt(heap, &pieces[..1]);
            prop_assert_eq!(shape.packets(), pieces.len() as i64);
            for (number, (offset, _)) in pieces.iter().enumerate() {
                prop_assert_eq!(shape.place(*offset), number as i64);
            }
        }
    }
}
