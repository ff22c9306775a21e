//! The index of a packet: its place in its heap, after the packets of all heaps before.
//!
//! ```text
//! heap count   40              41        (lost)           43
//! packets      0 1 2 3 4 5     6 7 8     9 10 11 12 13 14 15 16 …
//!              data            3 items   as many as data
//! ```
//!
//! Heaps of a stream may differ in length: descriptions of the items come between the data. So each heap has its own
//! number of packets, and heaps that were lost wholly are taken for heaps of data. The counts of successive heaps differ
//! by a *step*, which is 1, or the number of senders that take turns.

use std::collections::VecDeque;

use super::packet::Packet;
use super::shape::Shape;

/// Heaps whose packets may still arrive.
const MOST_HEAPS: usize = 64;

/// Lengths of heaps whose shape is remembered.
const MOST_SHAPES: usize = 8;

/// The largest index.
const FURTHEST: i128 = 1 << 60;

/// A heap of which a packet was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Heap {
    count: u64,
    length: u64,
    /// The offset of the packet that was seen first, and its index. Its place may become known only later.
    seen: (u64, i64),
}

/// The heaps of one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeapCounter {
    /// The last heaps, in the order of their first packets.
    heaps: VecDeque<Heap>,
    shapes: VecDeque<Shape>,
    /// The difference of counts between successive heaps, once it is certain.
    step: Option<u64>,
    /// The newest difference.
    candidate: Option<u64>,
    /// The packets of most heaps, once two successive heaps agree.
    usual: Option<i64>,
    /// The packets of the newest complete heap.
    packets: Option<i64>,
}

/// The index of a packet by its heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located {
    /// The index.
    pub index: i64,
    /// True if the heap's count is none of the stream's steps.
    pub is_off_step: bool,
}

impl HeapCounter {
    /// Returns the index of a packet, without learning from it.
    #[inline]
    pub fn locate(&self, packet: &Packet<'_>) -> Located {
        let known = self.heaps.iter().rev().find(|heap| heap.count == packet.heap);
        let (index, is_off_step) = match known {
            Some(heap) => {
                let shape = self.shape(heap.length).unwrap_or_else(|| Shape::of(packet));
                (start(heap, &shape) + i128::from(shape.place(packet.offset)), false)
            }
            None => {
                let shape = self.shape(packet.heap_length).unwrap_or_else(|| Shape::of(packet));
                let (begin, is_off_step) = self.begin(packet, &shape);
                (begin + i128::from(shape.place(packet.offset)), is_off_step)
            }
        };
        Located { index: index.clamp(-FURTHEST, FURTHEST) as i64, is_off_step }
    }

    /// Learns from a packet. Returns true if its heap's count is none of the stream's steps.
    #[inline]
    pub fn learn(&mut self, packet: &Packet<'_>) -> bool {
        let is_known = self.heaps.iter().rev().any(|heap| heap.count == packet.heap);
        let located = self.locate(packet);
        if !is_known {
            self.learn_heap(packet);
            if self.heaps.len() == MOST_HEAPS {
                self.heaps.pop_front();
            }
            let (count, length) = (packet.heap, packet.heap_length);
            let seen = (packet.offset, located.index);
            self.heaps.push_back(Heap { count, length, seen });
        }
        self.learn_shape(packet);
        located.is_off_step
    }

    /// The index of the first packet of a heap of which none was seen.
    fn begin(&self, packet: &Packet<'_>, shape: &Shape) -> (i128, bool) {
        let all = || self.heaps.iter().map(|heap| (ahead(heap.count, packet), *heap));
        let before = all().filter(|(ahead, _)| *ahead > 0).min_by_key(|(ahead, _)| *ahead);
        let after = all().filter(|(ahead, _)| *ahead < 0).max_by_key(|(ahead, _)| *ahead);
        let usual = i128::from(self.usual.unwrap_or(shape.packets()));
        match (before, after) {
            (Some((ahead, heap)), _) => {
                let shape = self.shape(heap.length).unwrap_or(*shape);
                let (steps, is_off_step) = self.steps(ahead.unsigned_abs());
                let next = start(&heap, &shape) + i128::from(shape.packets());
                (next + (i128::from(steps) - 1) * usual, is_off_step)
            }
            (None, Some((ahead, heap))) => {
                let shape = self.shape(heap.length).unwrap_or(*shape);
                let (steps, is_off_step) = self.steps(ahead.unsigned_abs());
                (start(&heap, &shape) - i128::from(steps) * usual, is_off_step)
            }
            (None, None) => (0, false),
        }
    }

    /// The number of heaps by which counts are apart, and whether that is no whole number.
    fn steps(&self, apart: u64) -> (u64, bool) {
        // Without a step, no heap is known to be lost.
        let step = self.step.unwrap_or(apart).max(1);
        (((apart + step / 2) / step).max(1), !apart.is_multiple_of(step))
    }

    /// Learns the step, and the packets of the heap before.
    fn learn_heap(&mut self, packet: &Packet<'_>) {
        let Some(last) = self.heaps.back().copied() else { return };
        if let Some(shape) = self.shape(last.length) {
            let packets = Some(shape.packets());
            if self.packets == packets {
                self.usual = packets;
            }
            self.packets = packets;
        }
        let ahead = self.heaps.iter().map(|heap| ahead(heap.count, packet)).min();
        let Some(apart) = ahead.filter(|ahead| *ahead > 0).map(i64::unsigned_abs) else { return };
        let agrees = self.candidate == Some(apart);
        if apart == 1 || agrees && self.step.is_none_or(|step| !apart.is_multiple_of(step)) {
            self.step = Some(apart);
        }
        self.candidate = Some(apart);
    }

    fn learn_shape(&mut self, packet: &Packet<'_>) {
        let known = self.shapes.iter_mut().find(|it| it.heap_length == packet.heap_length);
        match known {
            Some(shape) => shape.learn(packet),
            None => {
                if self.shapes.len() == MOST_SHAPES {
                    self.shapes.pop_front();
                }
                self.shapes.push_back(Shape::of(packet));
            }
        }
    }

    fn shape(&self, heap_length: u64) -> Option<Shape> {
        self.shapes.iter().find(|shape| shape.heap_length == heap_length).copied()
    }
}

/// The index of a heap's first packet.
fn start(heap: &Heap, shape: &Shape) -> i128 {
    let (offset, index) = heap.seen;
    i128::from(index) - i128::from(shape.place(offset))
}

/// The distance from a heap count to that of a packet. Counts wrap.
fn ahead(count: u64, packet: &Packet<'_>) -> i64 {
    let unused = 64 - packet.bits;
    (packet.heap.wrapping_sub(count) << unused).cast_signed() >> unused
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::spead::write::Head;

    /// A packet as sent, and its index by the sender.
    #[derive(Clone, Debug)]
    struct Sent {
        bytes: Vec<u8>,
        index: i64,
    }

    /// Packets of heaps with these lengths: counts begin at `from` and differ by `step`.
    fn heaps(lengths: &[u64], (first, each): (u64, u64), from: u64, step: u64) -> Vec<Vec<Sent>> {
        let mut index = 0;
        let mut sent = Vec::new();
        for (number, &heap_length) in lengths.iter().enumerate() {
            let heap = (from + step * number as u64) & 0xFFFF_FFFF_FFFF;
            let mut packets = Vec::new();
            let (mut offset, mut most) = (0, first);
            loop {
                let length = most.min(heap_length - offset);
                let mut bytes = vec![0; 40 + length as usize];
                Head { heap, heap_length, offset, length }.write(&[], &mut bytes).unwrap();
                packets.push(Sent { bytes, index });
                (index, offset, most) = (index + 1, offset + length, each);
                if offset == heap_length {
                    break;
                }
            }
            sent.push(packets);
        }
        sent
    }

    /// Checks that all packets are at their indices, but for one offset.
    fn check(packets: &[Sent]) {
        let mut counter = HeapCounter::default();
        let mut off = None;
        for sent in packets {
            let packet = Packet::read(&sent.bytes).unwrap();
            let located = counter.locate(&packet);
            counter.learn(&packet);
            let by = located.index - sent.index;
            assert_eq!(by, *off.get_or_insert(by), "{packet:?}");
            assert!(!located.is_off_step);
        }
    }

    #[test]
    fn lost_heaps_leave_the_indices_of_their_packets() {
        for step in [1, 4, 1 << 20] {
            let mut sent = heaps(&[5000; 20], (1000, 1024), (1 << 48) - 9 * step, step);
            sent.drain(10..15);
            sent.remove(4);
            check(&sent.concat());
        }
    }

    #[test]
    fn descriptions_between_data_have_their_own_number_of_packets() {
        let lengths = [700, 5000, 5000, 5000, 700, 5000, 5000, 0, 5000, 0];
        let mut sent = heaps(&lengths, (1000, 1024), 1, 1);
        sent.remove(5);
        check(&sent.concat());
    }

    #[test]
    fn a_recording_that_begins_with_the_last_packet_of_a_heap_counts_on() {
        for skipped in 0..5 {
            let sent = heaps(&[5000; 6], (1000, 1024), 7, 1).concat();
            check(&sent[skipped..]);
        }
    }

    #[test]
    fn a_count_between_the_steps_is_told() {
        let sent = heaps(&[2000; 6], (1000, 1000), 0, 8).concat();
        let mut counter = HeapCounter::default();
        for sent in &sent {
            assert!(!counter.learn(&Packet::read(&sent.bytes).unwrap()));
        }
        let mut bytes = sent[0].bytes.clone();
        Head { heap: 51, heap_length: 2000, offset: 0, length: 1000 }.write(&[], &mut bytes);
        let located = counter.locate(&Packet::read(&bytes).unwrap());
        assert_eq!(located, Located { index: 12, is_off_step: true });
    }

    proptest! {
        #[test]
        fn any_losses_among_heaps_of_one_length_leave_the_indices(
            heap_length in 1u64..3000,
            cut in (20u64..200, 0u64..19),
            step in prop::sample::select(&[1_u64, 3, 64][..]),
            from in 0u64..1 << 48,
            lost in prop::collection::vec(3usize..40, 0..30),
            holes in prop::collection::vec(any::<prop::sample::Index>(), 0..60),
        ) {
            let sent = heaps(&vec![heap_length; 40], (cut.0 - cut.1, cut.0), from, step);
            // The first heaps tell shape and step.
            let told = sent[..3].concat();
            let kept = (3..40).filter(|heap| !lost.contains(heap)).map(|heap| sent[heap].clone());
            let mut rest = kept.collect::<Vec<_>>().concat();
            for hole in holes {
                if !rest.is_empty() {
                    rest.remove(hole.index(rest.len()));
                }
            }
            check(&[told, rest].concat());
        }

        #[test]
        fn packets_of_heaps_of_any_length_may_be_lost_and_overtake(
            lengths in prop::collection::vec(prop::sample::select(&[90_u64, 800, 2345][..]), 0..30),
            cut in (20u64..200, 0u64..19),
            chances in prop::collection::vec(any::<u32>(), 1..200),
        ) {
            let lengths = [&[90, 800, 2345, 2345], &lengths[..]].concat();
            let sent = heaps(&lengths, (cut.0 - cut.1, cut.0), 1, 1);
            let mut chance = chances.iter().cycle();
            let mut arrived = sent[..4].concat();
            for heap in &sent[4..] {
                let mut packets: Vec<(u32, Sent)> =
                    heap.iter().map(|sent| (*chance.next().unwrap(), sent.clone())).collect();
                packets.sort_by_key(|(order, _)| *order);
                // One packet of each heap arrives in its turn: it tells the heap's length.
                let lost = packets.len() * (chance.next().unwrap() % 100) as usize / 100;
                arrived.extend(packets.into_iter().skip(lost).map(|(_, sent)| sent));
            }
            check(&arrived);
        }

        #[test]
        fn packets_of_heaps_that_are_sent_at_once_are_interleaved(
            order in prop::collection::vec(0usize..3, 0..120),
        ) {
            let sent = heaps(&[5000; 30], (1000, 1024), 9, 1);
            let mut arrived = sent[..3].concat();
            for senders in sent[3..].chunks(3) {
                let mut queues: Vec<VecDeque<Sent>> =
                    senders.iter().map(|heap| heap.iter().cloned().collect()).collect();
                let mut turns = order.iter().cycle();
                while queues.iter().any(|queue| !queue.is_empty()) {
                    let turn = turns.next().copied().unwrap_or(0);
                    let next = (turn..turn + 3).map(|at| at % 3).find(|at| !queues[*at].is_empty());
                    arrived.extend(queues[next.unwrap()].pop_front());
                }
            }
            check(&arrived);
        }

        #[test]
        fn any_packets_are_located_without_overflow(
            packets in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>(), 0u64..64), 0..80),
        ) {
            let mut counter = HeapCounter::default();
            for (heap, heap_length, offset, length) in packets {
                let mut bytes = vec![0; 40 + length as usize];
                Head { heap, heap_length, offset, length }.write(&[], &mut bytes).unwrap();
                if let Ok(packet) = Packet::read(&bytes) {
                    let located = counter.locate(&packet);
                    prop_assert!(i128::from(located.index).abs() <= FURTHEST);
                    counter.learn(&packet);
                }
            }
        }
    }
}
