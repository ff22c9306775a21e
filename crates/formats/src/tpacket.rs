//! The packets in a block of a packet ring of Linux: `TPACKET_V3`, as `linux/if_packet.h` lays it out, with
//! `PACKET_VNET_HDR`. All numbers are in the byte order of the host.
//!
//! ```text
//! block    version 4 · offset 4 · status 4 · packets 4 · offset of the first 4 · bytes 4 · number 8 · times 16
//! packet   next 4 · seconds 4 · nanoseconds 4 · captured 4 · length 4 · status 4 · mac 2 · network 2 · hash 4
//!          · VLAN 8 · padding 8 ─ sockaddr_ll 20: family 2 · protocol 2 · interface 4 · …
//! at mac   virtio_net_hdr 10 before it: flags 1 · segmentation 1 · header 2 · segment 2 · checksum 4
//! ```

use std::ops::Range;

/// Bytes of a block's header.
pub const BLOCK_HEADER: usize = 48;

/// Bytes of a packet's header, without the address behind it.
const PACKET_HEADER: usize = 48;

/// Bytes of `virtio_net_hdr`.
const VNET_HEADER: usize = 10;

/// `TP_STATUS_CSUMNOTREADY`: a sender on this host left the checksum to its interface.
const CHECKSUM_NOT_READY: u32 = 1 << 3;

/// `TP_STATUS_CSUM_VALID`: the interface, or the kernel, has verified the checksum.
const CHECKSUM_VALID: u32 = 1 << 7;

/// `VIRTIO_NET_HDR_GSO_UDP_L4`: datagrams of one length in one packet (Linux 6.2).
const SEGMENTS_OF_UDP: u8 = 5;

/// A block, or a packet in it, contradicts itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a block of the packet ring contradicts itself at byte {at}")]
pub struct Damaged {
    /// The place in the block.
    pub at: usize,
}

/// Whether one packet stands for several of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segments {
    /// It is one packet.
    One,
    /// Datagrams of this many bytes of payload each; the last may be shorter.
    Udp(u16),
    /// It is to be divided in a way that does not concern UDP.
    Other,
}

/// A packet in a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingPacket {
    /// The place in the block of its bytes from the network header on, as far as they were captured.
    pub network: Range<usize>,
    /// True if the ring holds only its first bytes.
    pub is_cut: bool,
    /// The number of the interface that it came through.
    pub interface: u32,
    /// The time of its arrival, in nanoseconds of Unix time.
    pub unix_ns: i64,
    /// True if its checksum must be verified before it is believed.
    pub is_unchecked: bool,
    /// Whether it stands for several.
    pub segments: Segments,
}

/// The packets of a block, in the order of arrival.
#[derive(Clone, Debug)]
pub struct Packets<'a> {
    block: &'a [u8],
    at: usize,
    left: u32,
}

impl<'a> Packets<'a> {
    /// The packets of a block, given from its first byte on.
    pub fn of(block: &'a [u8]) -> Self {
        let at = u32_at(block, 16).map_or(block.len(), |at| at as usize);
        let left = u32_at(block, 12).unwrap_or(0);
        Self { block, at, left }
    }

    fn read(&self) -> Option<(RingPacket, usize)> {
        let header = self.block.get(self.at..)?;
        let word = |number: usize| u32_at(header, 4 * number);
        let (captured, length, status) = (word(3)? as usize, word(4)?, word(5)?);
        let (mac, network) = (usize::from(u16_at(header, 24)?), usize::from(u16_at(header, 26)?));
        let end = mac.checked_add(captured)?;
        // The header of the network may be behind the captured bytes only if nothing of it was captured.
        header.get(..end)?;
        let vnet = header.get(mac.checked_sub(VNET_HEADER)?..)?;
        let network = network.min(end);
        if network < mac || mac < PACKET_HEADER + VNET_HEADER {
            return None;
        }
        let segments = match vnet[1] {
            0 => Segments::One,
            SEGMENTS_OF_UDP => Segments::Udp(u16_at(vnet, 4)?),
            _ => Segments::Other,
        };
        let packet = RingPacket {
            network: self.at + network..self.at + end,
            is_cut: (captured as u32) < length,
            interface: word(13)?,
            unix_ns: i64::from(word(1)?) * 1_000_000_000 + i64::from(word(2)?),
            is_unchecked: status & (CHECKSUM_NOT_READY | CHECKSUM_VALID) == 0,
            segments,
        };
        Some((packet, word(0)? as usize))
    }
}

impl Iterator for Packets<'_> {
    type Item = Result<RingPacket, Damaged>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let Some((packet, next)) = self.read() else {
            self.left = 0;
            return Some(Err(Damaged { at: self.at }));
        };
        // Without a step forwards, the block could be read for ever. The last packet has none.
        match self.at.checked_add(next) {
            Some(at) if next >= PACKET_HEADER => self.at = at,
            _ => self.at = self.block.len(),
        }
        Some(Ok(packet))
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

/// A packet for [`compose`].
#[derive(Clone, Debug)]
pub struct Composed<'a> {
    /// Its bytes from the link header on.
    pub bytes: &'a [u8],
    /// Bytes of the link header.
    pub link_bytes: usize,
    /// The number of its interface.
    pub interface: u32,
    /// `tp_status`.
    pub status: u32,
    /// The bytes of each segment, if it stands for several datagrams.
    pub segment: Option<u16>,
}

/// Composes a block as the kernel does, for tests of what reads one.
pub fn compose(packets: &[Composed<'_>]) -> Vec<u8> {
    let mut block = vec![0; BLOCK_HEADER];
    block[12..16].copy_from_slice(&(packets.len() as u32).to_ne_bytes());
    block[16..20].copy_from_slice(&(BLOCK_HEADER as u32).to_ne_bytes());
    for (number, packet) in packets.iter().enumerate() {
        let start = block.len();
        let network = (PACKET_HEADER + 20 + packet.link_bytes.max(16)).next_multiple_of(16) + 16;
        let mac = network - packet.link_bytes;
        block.resize(start + mac, 0);
        block.extend(packet.bytes);
        block.resize(block.len().next_multiple_of(16), 0);
        let next = if number + 1 < packets.len() { block.len() - start } else { 0 };
        let length = packet.bytes.len() as u32;
        let words = [next as u32, 1_700_000_000, 5 + number as u32, length, length, packet.status];
        for (number, word) in words.iter().enumerate() {
            block[start + 4 * number..][..4].copy_from_slice(&word.to_ne_bytes());
        }
        block[start + 24..][..2].copy_from_slice(&(mac as u16).to_ne_bytes());
        block[start + 26..][..2].copy_from_slice(&(network as u16).to_ne_bytes());
        block[start + 52..][..4].copy_from_slice(&packet.interface.to_ne_bytes());
        if let Some(segment) = packet.segment {
            block[start + mac - VNET_HEADER + 1] = SEGMENTS_OF_UDP;
            block[start + mac - VNET_HEADER + 4..][..2].copy_from_slice(&segment.to_ne_bytes());
        }
    }
    let bytes = block.len() as u32;
    block[20..24].copy_from_slice(&bytes.to_ne_bytes());
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(bytes: &[u8]) -> Composed<'_> {
        Composed { bytes, link_bytes: 14, interface: 7, status: 1, segment: None }
    }

    #[test]
    fn packets_are_found_in_order_with_their_facts() {
        let [first, second] = [vec![1u8; 60], vec![2u8; 1500]];
        let merged = Composed { segment: Some(100), status: 1 | 1 << 7, ..plain(&second) };
        let block = compose(&[plain(&first), merged, plain(&first)]);
        let packets: Vec<RingPacket> = Packets::of(&block).map(Result::unwrap).collect();
        assert_eq!(packets.len(), 3);
        assert_eq!(block[packets[0].network.clone()], [1; 46]);
        assert_eq!(block[packets[1].network.clone()], [2; 1486]);
        assert_eq!((packets[0].interface, packets[0].is_unchecked), (7, true));
        assert_eq!((packets[0].segments, packets[1].segments), (Segments::One, Segments::Udp(100)));
        assert!(!packets[1].is_unchecked && !packets[1].is_cut);
        assert_eq!(packets[2].unix_ns, 1_700_000_000_000_000_007);
    }

    #[test]
    fn a_block_that_is_cut_anywhere_gives_whole_packets_and_ends() {
        let bytes = vec![9u8; 200];
        let block = compose(&[plain(&bytes), plain(&bytes), plain(&bytes)]);
        for length in 0..block.len() {
            let cut = &block[..length];
            let mut whole = 0;
            for packet in Packets::of(cut) {
                let Ok(packet) = packet else { break };
                assert_eq!(cut[packet.network].len(), 186);
                whole += 1;
            }
            assert!(whole <= 3);
        }
    }

    #[test]
    fn a_packet_that_points_at_itself_is_read_once() {
        let bytes = vec![9u8; 200];
        let mut block = compose(&[plain(&bytes), plain(&bytes)]);
        block[BLOCK_HEADER..][..4].copy_from_slice(&0u32.to_ne_bytes());
        block[12..16].copy_from_slice(&u32::MAX.to_ne_bytes());
        let read: Vec<_> = Packets::of(&block).collect();
        assert_eq!((read.len(), read[1].is_err()), (2, true));
    }
}
