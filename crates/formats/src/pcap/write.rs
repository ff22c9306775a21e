//! Packets and blocks of a pcapng file that this program writes.

use std::net::{IpAddr, SocketAddr};

use super::checksum::Sum;

/// An interface, as its description names it.
#[derive(Clone, Copy, Debug)]
pub struct Interface<'a> {
    /// The name.
    pub name: &'a str,
    /// The comment.
    pub comment: &'a str,
}

/// The counts of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets received.
    pub received: u64,
    /// Packets dropped by the interface (`isb_ifdrop`).
    pub dropped_by_interface: u64,
    /// Packets dropped by the operating system (`isb_osdrop`).
    pub dropped_by_system: u64,
}

/// A writer of pcapng: it makes the bytes of one block at a time, in little-endian order.
#[derive(Clone, Copy, Debug, Default)]
pub struct PcapngWriter;

impl PcapngWriter {
    /// The Section Header Block, with a comment and the name of the application.
    pub fn section(comment: &str, application: &str) -> Vec<u8> {
        let mut body = 0x1a2b_3c4du32.to_le_bytes().to_vec();
        body.extend([1, 0, 0, 0]);
        body.extend(u64::MAX.to_le_bytes());
        option(&mut body, 1, comment.as_bytes());
        option(&mut body, 4, application.as_bytes());
        end_options(&mut body);
        block(0x0a0d_0d0a, &body)
    }

    /// The Interface Description Block of an Ethernet interface with nanoseconds.
    pub fn interface(interface: &Interface<'_>) -> Vec<u8> {
        let Interface { name, comment } = interface;
        let mut body = vec![1, 0, 0, 0];
        body.extend(super::LONGEST_PACKET.to_le_bytes());
        option(&mut body, 1, comment.as_bytes());
        option(&mut body, 2, name.as_bytes());
        option(&mut body, 9, &[9]);
        end_options(&mut body);
        block(1, &body)
    }

    /// An Enhanced Packet Block. `unix_ns` before 1970 counts as 0.
    pub fn packet(interface: u32, unix_ns: i128, packet: &[u8]) -> Vec<u8> {
        let ticks = u64::try_from(unix_ns).unwrap_or(0);
        let mut body = Vec::with_capacity(packet.len() + 24);
        body.extend(interface.to_le_bytes());
        body.extend(((ticks >> 32) as u32).to_le_bytes());
        body.extend((ticks as u32).to_le_bytes());
        body.extend((packet.len() as u32).to_le_bytes());
        body.extend((packet.len() as u32).to_le_bytes());
        body.extend(packet);
        body.resize(body.len().next_multiple_of(4), 0);
        block(6, &body)
    }

    /// The Interface Statistics Block of the counts at `unix_ns`.
    pub fn statistics(interface: u32, unix_ns: i128, counts: &Statistics) -> Vec<u8> {
        let ticks = u64::try_from(unix_ns).unwrap_or(0);
        let mut body = interface.to_le_bytes().to_vec();
        body.extend(((ticks >> 32) as u32).to_le_bytes());
        body.extend((ticks as u32).to_le_bytes());
        option(&mut body, 4, &counts.received.to_le_bytes());
        option(&mut body, 5, &counts.dropped_by_interface.to_le_bytes());
        option(&mut body, 7, &counts.dropped_by_system.to_le_bytes());
        end_options(&mut body);
        block(5, &body)
    }
}

fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let bytes = (body.len() as u32 + 12).to_le_bytes();
    [&kind.to_le_bytes(), &bytes, body, &bytes].concat()
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    let mut length = value.len().min(usize::from(u16::MAX) - 3);
    // A character is not cut.
    while length < value.len() && value[length] & 0xc0 == 0x80 {
        length -= 1;
    }
    body.extend(code.to_le_bytes());
    body.extend((length as u16).to_le_bytes());
    body.extend(&value[..length]);
    body.resize(body.len().next_multiple_of(4), 0);
}

fn end_options(body: &mut Vec<u8>) {
    body.extend([0; 4]);
}

/// An Ethernet packet with a UDP datagram of this payload, given in pieces. Both addresses must be of one family; the
/// checksums of IPv4 and UDP are valid. Returns `None` if the payload is longer than a UDP datagram.
pub fn udp_packet(source: SocketAddr, to: SocketAddr, payload: &[&[u8]]) -> Option<Vec<u8>> {
    let bytes = payload.iter().map(|piece| piece.len()).sum::<usize>() + 8;
    let mut packet = ethernet(to.ip());
    let length = u16::try_from(bytes).ok()?;
    let mut sum = Sum::default();
    match (source.ip(), to.ip()) {
        (IpAddr::V4(source), IpAddr::V4(to)) => {
            let total = length.checked_add(20)?;
            packet.extend([0x08, 0x00]);
            let start = packet.len();
            packet.extend([0x45, 0]);
            packet.extend(total.to_be_bytes());
            // Identification 0, do not fragment, 64 hops, UDP.
            packet.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
            packet.extend(source.octets());
            packet.extend(to.octets());
            let mut header = Sum::default();
            header.add(&packet[start..]);
            packet[start + 10..start + 12].copy_from_slice(&header.value().to_be_bytes());
        }
        (IpAddr::V6(source), IpAddr::V6(to)) => {
            packet.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            packet.extend(length.to_be_bytes());
            packet.extend([17, 64]);
            packet.extend(source.octets());
            packet.extend(to.octets());
        }
        _ => return None,
    }
    sum.add_pseudo_header(source.ip(), to.ip(), length.into());
    let start = packet.len();
    packet.extend(source.port().to_be_bytes());
    packet.extend(to.port().to_be_bytes());
    packet.extend(length.to_be_bytes());
    packet.extend([0, 0]);
    payload.iter().for_each(|piece| packet.extend(*piece));
    sum.add(&packet[start..]);
    // 0 would mean that there is no checksum.
    let value = if sum.value() == 0 { 0xffff } else { sum.value() };
    packet[start + 6..start + 8].copy_from_slice(&value.to_be_bytes());
    Some(packet)
}

/// Destination and source of an Ethernet header: for a group, its own address (RFC 1112, RFC 2464); else addresses that
/// are administered locally.
fn ethernet(to: IpAddr) -> Vec<u8> {
    let mut header = match to {
        IpAddr::V4(group) if group.is_multicast() => {
            let [_, b, c, d] = group.octets();
            vec![0x01, 0x00, 0x5e, b & 0x7f, c, d]
        }
        IpAddr::V6(group) if group.is_multicast() => {
            [&[0x33, 0x33], &group.octets()[12..]].concat()
        }
        _ => vec![0x02, 0, 0, 0, 0, 2],
    };
    header.extend([0x02, 0, 0, 0, 0, 1]);
    header
}
