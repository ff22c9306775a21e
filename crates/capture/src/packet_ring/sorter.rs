//! The datagrams in the blocks of a packet ring, sorted by the source that takes them.
//!
//! One block is sorted at a time. It goes back to the kernel when every datagram in it was taken, so datagrams stay where
//! the kernel put them until their source copies them to their slots.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::ops::Range;

use fullbore_formats::pcap::{
    Content, Datagram, Fragments, LinkType, ipv4_header_holds, parse, udp_checksum_holds,
};
use fullbore_formats::tpacket::{Packets, RingPacket, Segments};

use crate::packet_filter::PortRule;
use crate::takers::Takers;

/// A datagram that waits for its source.
#[derive(Debug)]
pub struct Waiting {
    place: Place,
    /// Who sent it.
    pub sender: IpAddr,
}

/// Where the payload is.
#[derive(Debug)]
enum Place {
    /// In the block.
    Block(Range<usize>),
    /// In memory of its own: it came in fragments, perhaps of several blocks.
    Joined(Vec<u8>),
}

impl Waiting {
    /// Returns its payload. `block` is the block that was sorted last.
    pub fn payload<'a>(&'a self, block: &'a [u8]) -> &'a [u8] {
        match &self.place {
            Place::Block(range) => &block[range.clone()],
            Place::Joined(payload) => payload,
        }
    }
}

/// What was in the ring and goes to no source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// Packets with wrong checksums. The kernel counts them too, as `InCsumErrors`.
    pub checksums: u64,
    /// Packets that contradict themselves, were cut, or cannot be divided.
    pub damaged: u64,
}

/// Sorts datagrams.
pub struct Sorter {
    takers: Takers,
    queues: Vec<VecDeque<Waiting>>,
    /// Datagrams in queues that are in the block.
    in_block: usize,
    fragments: Fragments,
    refused: Refused,
    merged: bool,
}

impl Sorter {
    /// Sorts by these rules. Each has a queue with its number.
    pub fn new(rules: Vec<PortRule>) -> Self {
        let queues = rules.iter().map(|_| VecDeque::new()).collect();
        Self {
            takers: Takers::new(rules),
            queues,
            in_block: 0,
            fragments: Fragments::default(),
            refused: Refused::default(),
            merged: false,
        }
    }

    /// The number of sources.
    pub fn sources(&self) -> usize {
        self.takers.count()
    }

    /// True if no datagram in a queue is in the block: another one may be sorted.
    pub fn is_done(&self) -> bool {
        self.in_block == 0
    }

    /// True if a queue is empty.
    pub fn is_empty(&self, queue: usize) -> bool {
        self.queues[queue].is_empty()
    }

    /// True if a packet was seen that stands for several datagrams.
    pub fn has_merged(&self) -> bool {
        self.merged
    }

    /// What went to no source.
    pub fn refused(&self) -> Refused {
        self.refused
    }

    /// Datagrams whose fragments are not all there.
    pub fn unjoined(&self) -> u64 {
        self.fragments.unjoined()
    }

    /// Takes the next datagram of a queue.
    pub fn take(&mut self, queue: usize) -> Option<Waiting> {
        let taken = self.queues[queue].pop_front()?;
        self.in_block -= usize::from(matches!(taken.place, Place::Block(_)));
        Some(taken)
    }

    /// Forgets all datagrams, and fragments of some.
    pub fn clear(&mut self) {
        self.queues.iter_mut().for_each(VecDeque::clear);
        (self.in_block, self.fragments) = (0, Fragments::default());
    }

    /// Puts the datagrams of a block into the queues, without those that arrived before `since`, in nanoseconds of Unix
    /// time. No datagram of the block before may be left.
    pub fn sort(&mut self, block: &[u8], since: i64) {
        assert!(self.is_done(), "datagrams of another block wait");
        for packet in Packets::of(block) {
            match packet {
                Ok(packet) if packet.unix_ns < since => {}
                Ok(packet) => self.sort_packet(block, &packet),
                Err(_) => self.refused.damaged += 1,
            }
        }
    }

    fn sort_packet(&mut self, block: &[u8], packet: &RingPacket) {
        let network = &block[packet.network.clone()];
        if packet.is_cut {
            self.refused.damaged += 1;
        } else if !ipv4_header_holds(network) {
            self.refused.checksums += 1;
        } else {
            match parse(LinkType::RawIp, network) {
                Content::Datagram(datagram) if datagram.is_cut() => self.refused.damaged += 1,
                Content::Datagram(datagram) => self.sort_datagram(block, packet, &datagram),
                Content::Fragment(part) => {
                    if let Some(joined) = self.fragments.take(&part) {
                        self.sort_joined(joined.udp(), joined.datagram(), packet.interface);
                    }
                }
                Content::Damaged => self.refused.damaged += 1,
                Content::Other => {}
            }
        }
    }

    fn sort_datagram(&mut self, block: &[u8], packet: &RingPacket, datagram: &Datagram<'_>) {
        // The payload is a part of the block.
        let start = datagram.payload.as_ptr() as usize - block.as_ptr() as usize;
        let end = start + datagram.payload.len();
        if packet.is_unchecked && !udp_checksum_holds(&datagram.addresses, &block[start - 8..end]) {
            self.refused.checksums += 1;
            return;
        }
        let step = match packet.segments {
            Segments::One => usize::MAX,
            Segments::Udp(0) | Segments::Other => {
                self.refused.damaged += 1;
                return;
            }
            Segments::Udp(bytes) => {
                self.merged = true;
                bytes.into()
            }
        };
        let (to, sender) = (datagram.addresses.destination, datagram.addresses.source);
        for queue in self.takers.of(datagram.port, to, packet.interface) {
            let mut at = start;
            loop {
                let next = end.min(at.saturating_add(step));
                self.queues[queue].push_back(Waiting { place: Place::Block(at..next), sender });
                self.in_block += 1;
                at = next;
                if at == end {
                    break;
                }
            }
        }
    }

    fn sort_joined(&mut self, udp: &[u8], datagram: Option<Datagram<'_>>, interface: u32) {
        let Some(datagram) = datagram else {
            self.refused.damaged += 1;
            return;
        };
        let addresses = &datagram.addresses;
        let whole = udp.get(..datagram.bytes + 8);
        if !whole.is_some_and(|udp| udp_checksum_holds(addresses, udp)) {
            self.refused.checksums += 1;
            return;
        }
        let (port, to, sender) = (datagram.port, addresses.destination, addresses.source);
        for queue in self.takers.of(port, to, interface) {
            let place = Place::Joined(datagram.payload.to_vec());
            self.queues[queue].push_back(Waiting { place, sender });
        }
    }
}

#[cfg(test)]
mod tests {
    use fullbore_formats::pcap::udp_packet;
    use fullbore_formats::tpacket::{Composed, compose};
    use proptest::prelude::*;

    use super::*;

    const VALID: u32 = 1 << 7;

    fn rule(text: &str) -> PortRule {
        PortRule { address: text.parse().unwrap(), interface: None }
    }

    fn packet(to: &str, payload: &[u8]) -> Vec<u8> {
        let to: std::net::SocketAddr = to.parse().unwrap();
        let from = if to.is_ipv4() { "10.0.0.9:77" } else { "[fd00::9]:77" };
        udp_packet(from.parse().unwrap(), to, &[payload]).unwrap()
    }

    fn composed(bytes: &[u8]) -> Composed<'_> {
        Composed { bytes, link_bytes: 14, interface: 2, status: 1, segment: None }
    }

    fn taken(sorter: &mut Sorter, queue: usize, block: &[u8]) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| sorter.take(queue)).map(|it| it.payload(block).to_vec()).collect()
    }

    #[test]
    fn each_source_gets_its_datagrams_in_order_and_the_block_is_done_when_all_are_taken() {
        let mut sorter =
            Sorter::new(vec![rule("10.0.0.1:5001"), rule("0.0.0.0:5000"), rule("[fd00::1]:5000")]);
        let packets = [
            packet("10.0.0.1:5000", b"a0"),
            packet("10.0.0.1:5001", b"b0"),
            packet("[fd00::1]:5000", b"c0"),
            packet("10.0.0.1:5000", b""),
            packet("10.0.0.1:5009", b"another"),
            packet("10.0.0.2:5001", b"another"),
        ];
        let block = compose(&packets.each_ref().map(|bytes| composed(bytes)));
        sorter.sort(&block, 0);
        assert_eq!(sorter.queues[1][0].sender, "10.0.0.9".parse::<IpAddr>().unwrap());
        assert_eq!(taken(&mut sorter, 1, &block), [b"a0".to_vec(), vec![]]);
        assert_eq!(taken(&mut sorter, 0, &block), [b"b0"]);
        assert!(!sorter.is_done());
        assert_eq!(taken(&mut sorter, 2, &block), [b"c0"]);
        assert!(sorter.is_done());
        assert_eq!(sorter.refused(), Refused::default());
    }

    #[test]
    fn a_packet_that_stands_for_several_datagrams_is_divided_and_never_taken_for_one() {
        let mut sorter = Sorter::new(vec![rule("10.0.0.1:5000")]);
        let several = packet("10.0.0.1:5000", b"aaaabbbbcc");
        let merged = |segment| Composed { segment: Some(segment), status: 9, ..composed(&several) };
        let block = compose(&[merged(4), composed(&several)]);
        sorter.sort(&block, 0);
        let expected: [&[u8]; 4] = [b"aaaa", b"bbbb", b"cc", b"aaaabbbbcc"];
        assert_eq!(taken(&mut sorter, 0, &block), expected);
        assert!(sorter.has_merged());
        let block = compose(&[merged(0)]);
        sorter.sort(&block, 0);
        assert_eq!((sorter.is_empty(0), sorter.refused().damaged), (true, 1));
    }

    #[test]
    fn a_wrong_checksum_is_counted_unless_the_kernel_vouches_for_the_packet() {
        let mut sorter = Sorter::new(vec![rule("10.0.0.1:5000")]);
        let mut wrong = packet("10.0.0.1:5000", b"data");
        wrong[45] ^= 1;
        let sent_here = Composed { status: 1 | 1 << 3, ..composed(&wrong) };
        let checked = Composed { status: 1 | VALID, ..composed(&wrong) };
        let mut wrong_header = packet("10.0.0.1:5000", b"data");
        wrong_header[22] ^= 1;
        let header = Composed { status: 1 | VALID, ..composed(&wrong_header) };
        let block = compose(&[composed(&wrong), sent_here, checked, header]);
        sorter.sort(&block, 0);
        assert_eq!(taken(&mut sorter, 0, &block).len(), 2);
        assert_eq!(sorter.refused(), Refused { checksums: 2, damaged: 0 });
    }

    #[test]
    fn what_arrived_before_the_recording_began_is_left_out() {
        let mut sorter = Sorter::new(vec![rule("10.0.0.1:5000")]);
        let packets = [b"early", b"later"].map(|payload| packet("10.0.0.1:5000", payload));
        let block = compose(&packets.each_ref().map(|bytes| composed(bytes)));
        // The second packet of a composed block is a nanosecond younger than the first.
        sorter.sort(&block, 1_700_000_000_000_000_006);
        assert_eq!(taken(&mut sorter, 0, &block), [b"later"]);
    }

    /// The fragments of a packet over IPv4, of `bytes` bytes each.
    fn fragments(packet: &[u8], bytes: usize) -> Vec<Vec<u8>> {
        let data = &packet[34..];
        let count = data.len().div_ceil(bytes);
        let fragment = |(number, part): (usize, &[u8])| {
            let mut fragment = [&packet[..34], part].concat();
            let more = if number + 1 < count { 0x2000 } else { 0 };
            let place = more | (number * bytes / 8) as u16;
            fragment[16..18].copy_from_slice(&(20 + part.len() as u16).to_be_bytes());
            fragment[18..20].copy_from_slice(&7u16.to_be_bytes());
            fragment[20..22].copy_from_slice(&place.to_be_bytes());
            fragment[24..26].copy_from_slice(&[0, 0]);
            let words = fragment[14..34].chunks(2);
            let sum: u32 = words.map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
            let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
            fragment[24..26].copy_from_slice(&sum.to_be_bytes());
            fragment
        };
        data.chunks(bytes).enumerate().map(fragment).collect()
    }

    #[test]
    fn fragments_of_several_blocks_are_joined_and_those_that_lack_one_are_counted() {
        let mut sorter = Sorter::new(vec![rule("10.0.0.1:5000")]);
        let payload: Vec<u8> = (0..4000u32).map(|n| n as u8).collect();
        let parts = fragments(&packet("10.0.0.1:5000", &payload), 1480);
        let blocks = [[&parts[2]], [&parts[0]], [&parts[1]]];
        for parts in blocks {
            let block = compose(&parts.map(|bytes| composed(bytes)));
            sorter.sort(&block, 0);
            assert!(sorter.is_done(), "nothing points into the block");
        }
        assert_eq!((taken(&mut sorter, 0, &[]), sorter.unjoined()), (vec![payload], 0));
        sorter.sort(&compose(&[composed(&parts[1])]), 0);
        assert_eq!(sorter.unjoined(), 1);
        let mut damaged = parts.clone();
        damaged[1][40] ^= 1;
        sorter.clear();
        let composed: Vec<_> = damaged.iter().map(|part| composed(part)).collect();
        sorter.sort(&compose(&composed), 0);
        assert_eq!((sorter.is_empty(0), sorter.refused().checksums), (true, 1));
    }

    proptest! {
        #[test]
        fn every_datagram_reaches_its_source_in_order_whatever_the_blocks(
            blocks in prop::collection::vec(
                prop::collection::vec((0u16..5, 1usize..4, any::<bool>()), 1..12), 1..6),
            order in prop::collection::vec(0usize..4, 64),
        ) {
            let addresses = [0, 1, 2, 3].map(|n| format!("10.0.0.1:{}", 5000 + n));
            let mut sorter = Sorter::new(addresses.iter().map(|it| rule(it)).collect());
            let (mut sent, mut got) = ([const { Vec::<Vec<u8>>::new() }; 5], [const { Vec::<Vec<u8>>::new() }; 4]);
            let (mut number, mut order) = (0u32, order.iter().cycle());
            for packets in blocks {
                let packets: Vec<_> = packets.into_iter().map(|(port, count, merged)| {
                    let count = if merged { count } else { 1 };
                    let several: Vec<Vec<u8>> = (0..count).map(|_| {
                        number += 1;
                        number.to_be_bytes().to_vec()
                    }).collect();
                    sent[usize::from(port)].extend(several.clone());
                    let to = format!("10.0.0.1:{}", 5000 + port);
                    (packet(&to, &several.concat()), merged.then_some(4))
                }).collect();
                let composed: Vec<_> = packets.iter().map(|(bytes, segment)| {
                    Composed { segment: *segment, ..composed(bytes) }
                }).collect();
                let block = compose(&composed);
                sorter.sort(&block, 0);
                while !sorter.is_done() {
                    let queue = *order.next().unwrap();
                    if let Some(next) = sorter.take(queue) {
                        got[queue].push(next.payload(&block).to_vec());
                    } else {
                        // Any queue that still has some, so that each order ends.
                        for (queue, got) in got.iter_mut().enumerate() {
                            got.extend(sorter.take(queue).map(|it| it.payload(&block).to_vec()));
                        }
                    }
                }
            }
            prop_assert_eq!(&sent[..4], &got[..]);
            prop_assert_eq!(sorter.refused(), Refused::default());
        }
    }
}
