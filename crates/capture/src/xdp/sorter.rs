//! The datagrams among the pieces of one batch of an AF_XDP socket, sorted by the source that takes them.
//!
//! ```text
//! pieces   | 0: headers, payload | 1: payload … | 2: … payload | 3: headers, payload |
//! packets  |                     A                             |          B          |
//! ```
//!
//! A batch goes back to the kernel when every datagram in it was taken, so datagrams stay where they are until their
//! source copies them to their slots.

use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fullbore_formats::pcap::{
    Content, Datagram, LinkType, UdpChecksum, ipv4_header_holds, parse, udp_checksum_of_parts,
};

use super::program::ETHERNET;
use crate::packet_filter::PortRule;
use crate::takers::Takers;

/// The pieces of a batch.
pub trait Pieces {
    /// Their number.
    fn count(&self) -> usize;

    /// The bytes of a piece, and whether its packet goes on in the next one.
    fn piece(&self, number: usize) -> (&[u8], bool);
}

/// A datagram that waits for its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The piece with its headers.
    piece: usize,
    /// The place of its payload in that piece.
    start: usize,
    /// The length of its payload.
    pub bytes: usize,
    /// Who sent it.
    pub sender: IpAddr,
}

impl Waiting {
    /// Copies its payload to these slices, as far as they go.
    pub fn scatter(&self, pieces: &impl Pieces, slices: &mut [IoSliceMut<'_>]) {
        let mut slices = slices.iter_mut().map(|slice| &mut slice[..]);
        let mut room: &mut [u8] = &mut [];
        for mut part in self.parts(pieces) {
            while !part.is_empty() {
                if room.is_empty() {
                    match slices.next() {
                        Some(next) => room = next,
                        None => return,
                    }
                }
                let count = part.len().min(room.len());
                let (now, later) = std::mem::take(&mut room).split_at_mut(count);
                now.copy_from_slice(&part[..count]);
                (part, room) = (&part[count..], later);
            }
        }
    }

    /// Its payload.
    fn parts<'a>(&self, pieces: &'a impl Pieces) -> impl Iterator<Item = &'a [u8]> {
        let (mut number, mut start, mut left) = (self.piece, self.start, self.bytes);
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let (bytes, _) = pieces.piece(number);
            let part = &bytes[start..];
            let part = &part[..part.len().min(left)];
            (number, start, left) = (number + 1, 0, left - part.len());
            Some(part)
        })
    }
}

/// What came to our flows and goes to no source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// Packets with wrong checksums. The kernel has not seen them.
    pub checksums: u64,
    /// Packets that contradict themselves.
    pub damaged: u64,
}

/// Sorts datagrams.
pub struct Sorter {
    takers: Takers,
    queues: Vec<VecDeque<Waiting>>,
    /// Datagrams in all queues.
    waiting: usize,
    /// For each source.
    refused: Vec<Refused>,
}

impl Sorter {
    /// Sorts by these rules. Each has a queue with its number.
    pub fn new(rules: Vec<PortRule>) -> Self {
        let queues = rules.iter().map(|_| VecDeque::new()).collect();
        let refused = vec![Refused::default(); rules.len()];
        Self { takers: Takers::new(rules), queues, waiting: 0, refused }
    }

    /// The number of sources.
    pub fn sources(&self) -> usize {
        self.takers.count()
    }

    /// True if all datagrams were taken: another batch may be sorted.
    pub fn is_done(&self) -> bool {
        self.waiting == 0
    }

    /// True if a queue is empty.
    pub fn is_empty(&self, queue: usize) -> bool {
        self.queues[queue].is_empty()
    }

    /// What came for a source and was refused.
    pub fn refused(&self, queue: usize) -> Refused {
        self.refused[queue]
    }

    /// Takes the next datagram of a queue.
    pub fn take(&mut self, queue: usize) -> Option<Waiting> {
        let taken = self.queues[queue].pop_front()?;
        self.waiting -= 1;
        Some(taken)
    }

    /// Forgets all datagrams.
    pub fn clear(&mut self) {
        self.queues.iter_mut().for_each(VecDeque::clear);
        self.waiting = 0;
    }

    /// Puts the datagrams of a batch, which came through this interface, into the queues. None of the batch before may be
    /// left.
    pub fn sort(&mut self, pieces: &impl Pieces, interface: u32) {
        assert!(self.is_done(), "datagrams of another batch wait");
        let mut number = 0;
        while number < pieces.count() {
            let first = number;
            let (head, mut more) = pieces.piece(first);
            let mut behind = 0;
            number += 1;
            while more && number < pieces.count() {
                let (bytes, goes_on) = pieces.piece(number);
                (behind, more, number) = (behind + bytes.len(), goes_on, number + 1);
            }
            self.sort_packet(pieces, first, head, behind, interface);
        }
    }

    /// Counts a packet whose headers contradict themselves for the sources to which it is addressed, or for all.
    fn refuse_damaged(&mut self, head: &[u8], interface: u32) {
        match addressed_to(head) {
            Some((to, port)) => {
                self.takers.of(port, to, interface).for_each(|it| self.refused[it].damaged += 1);
            }
            None => self.refused.iter_mut().for_each(|of| of.damaged += 1),
        }
    }

    /// Sorts one packet: its first piece, and the number of bytes in those behind it.
    fn sort_packet(
        &mut self,
        pieces: &impl Pieces,
        piece: usize,
        head: &[u8],
        behind: usize,
        interface: u32,
    ) {
        let datagram = match parse(LinkType::Ethernet, head) {
            Content::Datagram(datagram) => datagram,
            // The program lets nothing else through than a UDP header with one of our ports.
            Content::Fragment(_) | Content::Other | Content::Damaged => {
                return self.refuse_damaged(head, interface);
            }
        };
        let Datagram { addresses, port, payload, bytes, .. } = datagram;
        let start = payload.as_ptr() as usize - head.as_ptr() as usize;
        let waiting = Waiting { piece, start, bytes, sender: addresses.source };
        // Short packets are padded, so the rest may be longer.
        let is_whole = payload.len() + behind >= bytes;
        let checksum = || {
            let header = &head[start - 8..start];
            let field = u16::from_be_bytes([header[6], header[7]]);
            let parts = std::iter::once(header).chain(waiting.parts(pieces));
            udp_checksum_of_parts(&addresses, field, bytes as u32 + 8, parts)
        };
        let is_good =
            is_whole && ipv4_header_holds(&head[ETHERNET..]) && checksum() != UdpChecksum::Wrong;
        for queue in self.takers.of(port, addresses.destination, interface) {
            if is_good {
                self.queues[queue].push_back(waiting);
                self.waiting += 1;
            } else if is_whole {
                self.refused[queue].checksums += 1;
            } else {
                self.refused[queue].damaged += 1;
            }
        }
    }
}

/// The address and the port of a packet at the places at which the program reads them.
fn addressed_to(head: &[u8]) -> Option<(IpAddr, u16)> {
    let word = |at: usize| head.get(at..)?.first_chunk().copied().map(u16::from_be_bytes);
    match word(12)? {
        0x0800 => {
            let to =
                head.get(30..)?.first_chunk().copied().map(<Ipv4Addr as From<[u8; 4]>>::from)?;
            Some((to.into(), word(36)?))
        }
        0x86dd => {
            let to =
                head.get(38..)?.first_chunk().copied().map(<Ipv6Addr as From<[u8; 16]>>::from)?;
            Some((to.into(), word(56)?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use fullbore_formats::pcap::udp_packet;
    use proptest::prelude::*;

    use super::*;

    struct Batch(Vec<(Vec<u8>, bool)>);

    impl Pieces for Batch {
        fn count(&self) -> usize {
            self.0.len()
        }

        fn piece(&self, number: usize) -> (&[u8], bool) {
            (&self.0[number].0, self.0[number].1)
        }
    }

    /// The pieces of these packets, of at most this many bytes.
    fn batch(packets: &[Vec<u8>], most: usize) -> Batch {
        let pieces = packets.iter().flat_map(|packet| {
            let count = packet.len().div_ceil(most);
            let parts = packet.chunks(most).enumerate();
            parts.map(move |(number, part)| (part.to_vec(), number + 1 < count))
        });
        Batch(pieces.collect())
    }

    fn rule(text: &str) -> PortRule {
        PortRule { address: text.parse().unwrap(), interface: None }
    }

    fn packet(to: &str, payload: &[u8]) -> Vec<u8> {
        let to: SocketAddr = to.parse().unwrap();
        let from = if to.is_ipv4() { "10.0.0.9:77" } else { "[fd00::9]:77" };
        udp_packet(from.parse().unwrap(), to, &[payload]).unwrap()
    }

    fn taken(sorter: &mut Sorter, queue: usize, batch: &Batch) -> Vec<Vec<u8>> {
        let read = |waiting: Waiting| {
            let mut payload = vec![0; waiting.bytes];
            let (one, two) = payload.split_at_mut(waiting.bytes / 3);
            waiting.scatter(batch, &mut [IoSliceMut::new(one), IoSliceMut::new(two)]);
            payload
        };
        std::iter::from_fn(|| sorter.take(queue)).map(read).collect()
    }

    #[test]
    fn each_source_gets_its_datagrams_and_the_batch_is_done_when_all_are_taken() {
        let mut sorter = Sorter::new(vec![rule("10.0.0.1:5001"), rule("[fd00::1]:5000")]);
        let packets = [
            packet("10.0.0.1:5001", b"a0"),
            packet("[fd00::1]:5000", b"b0"),
            [packet("10.0.0.1:5001", b""), vec![0; 18]].concat(),
        ];
        let batch = batch(&packets, 2000);
        sorter.sort(&batch, 1);
        assert_eq!(sorter.queues[0][0].sender, "10.0.0.9".parse::<IpAddr>().unwrap());
        assert_eq!(taken(&mut sorter, 0, &batch), [b"a0".to_vec(), vec![]]);
        assert!(!sorter.is_done());
        assert_eq!(taken(&mut sorter, 1, &batch), [b"b0"]);
        assert!(sorter.is_done());
        assert_eq!((sorter.refused(0), sorter.refused(1)), Default::default());
    }

    #[test]
    fn a_wrong_checksum_is_counted_for_its_source_and_one_left_to_the_interface_is_taken() {
        let mut sorter = Sorter::new(vec![rule("10.0.0.1:5000"), rule("10.0.0.1:5001")]);
        let good = packet("10.0.0.1:5000", b"data");
        let [mut wrong, mut header] = [good.clone(), good.clone()];
        wrong[45] ^= 1;
        header[22] ^= 1;
        let mut left = good.clone();
        // Addresses, protocol and length of the pseudo header.
        let words = [0x0a00u16, 9, 0x0a00, 1, 17, 12];
        left[40..42].copy_from_slice(&words.iter().sum::<u16>().to_be_bytes());
        let batch = batch(&[good, wrong, header, left], 2000);
        sorter.sort(&batch, 1);
        assert_eq!(taken(&mut sorter, 0, &batch), [b"data", b"data"]);
        assert_eq!(sorter.refused(0), Refused { checksums: 2, damaged: 0 });
        assert_eq!(sorter.refused(1), Refused::default());
    }

    #[test]
    fn a_packet_with_a_wrong_length_is_damaged_for_its_source_alone() {
        let rules = ["10.0.0.1:5000", "10.0.0.1:5001", "[fd00::1]:5000"].map(rule);
        let mut sorter = Sorter::new(rules.to_vec());
        for (to, length_at) in [("10.0.0.1:5001", 38), ("[fd00::1]:5000", 58)] {
            // The length of UDP is more than that of IP.
            let mut longer = packet(to, b"data");
            longer[length_at] = 0x7f;
            sorter.sort(&batch(&[longer], 2000), 1);
        }
        let damaged = [0, 1, 2].map(|queue| sorter.refused(queue).damaged);
        assert_eq!(damaged, [0, 1, 1]);
        sorter.sort(&batch(&[vec![0; 60]], 2000), 1);
        let damaged = [0, 1, 2].map(|queue| sorter.refused(queue).damaged);
        assert_eq!(damaged, [1, 2, 2], "it may be a packet of any");
    }

    #[test]
    fn a_packet_that_lacks_bytes_is_damaged() {
        let mut sorter = Sorter::new(vec![rule("10.0.0.1:5000")]);
        let whole = packet("10.0.0.1:5000", &[7; 100]);
        for length in 0..whole.len() {
            sorter.sort(&batch(&[whole[..length].to_vec()], 64), 1);
            assert!(sorter.is_done(), "{length}");
        }
        let none_is_empty = whole.len() - 1;
        assert_eq!(sorter.refused(0).damaged, none_is_empty as u64);
    }

    proptest! {
        #[test]
        fn every_datagram_reaches_its_source_whatever_the_pieces(
            sent in prop::collection::vec((0u16..4, 0usize..400), 1..20),
            most in 62usize..500,
        ) {
            let addresses = [0, 1, 2].map(|n| rule(&format!("10.0.0.1:{}", 5000 + n)));
            let mut sorter = Sorter::new(addresses.to_vec());
            let payload = |number: usize, bytes: usize| -> Vec<u8> {
                (0..bytes).map(|n| (7 * number + n) as u8).collect()
            };
            let packets: Vec<Vec<u8>> = sent.iter().enumerate().map(|(number, &(port, bytes))| {
                packet(&format!("10.0.0.1:{}", 5000 + port), &payload(number, bytes))
            }).collect();
            let batch = batch(&packets, most);
            sorter.sort(&batch, 1);
            for queue in 0..3 {
                let of_queue = sent.iter().enumerate().filter(|(_, it)| usize::from(it.0) == queue);
                let meant: Vec<_> = of_queue.map(|(number, it)| payload(number, it.1)).collect();
                prop_assert_eq!(taken(&mut sorter, queue, &batch), meant);
                prop_assert_eq!(sorter.refused(queue), Refused::default());
            }
            prop_assert!(sorter.is_done());
        }
    }
}
