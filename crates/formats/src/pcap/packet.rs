//! The UDP datagram in a packet.
//!
//! ```text
//! Ethernet     destination 6 · source 6 · any VLAN tags of 4 · type 2
//! Linux cooked version 1: 16 bytes, the type last; version 2: 20 bytes, the type first
//! loopback     address family 4, in the byte order of the capturing host or of the network
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{LinkType, Order};

/// The most VLAN tags of a packet, and the most extension headers of IPv6.
const MOST_HEADERS: usize = 8;

const UDP: u8 = 17;

/// Who sent a packet to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Addresses {
    /// The sender.
    pub source: IpAddr,
    /// The receiver, or a group.
    pub destination: IpAddr,
}

/// A UDP datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Sender and receiver.
    pub addresses: Addresses,
    /// The port of the sender.
    pub source_port: u16,
    /// The port of the receiver.
    pub port: u16,
    /// Its payload, as far as it was captured.
    pub payload: &'a [u8],
    /// The length of the payload on the network, in bytes.
    pub bytes: usize,
}

impl Datagram<'_> {
    /// True if the capture holds only the first bytes of the payload.
    pub fn is_cut(&self) -> bool {
        self.payload.len() < self.bytes
    }
}

/// A fragment of an IP packet that carries UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentPart<'a> {
    /// Sender and receiver.
    pub addresses: Addresses,
    /// The number that its packet's fragments share.
    pub identification: u32,
    /// The place of its bytes in the packet's payload.
    pub offset: usize,
    /// True if fragments follow it.
    pub more: bool,
    /// Its bytes; for the first fragment, they begin with the UDP header.
    pub data: &'a [u8],
}

/// What a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// A datagram, whole or cut.
    Datagram(Datagram<'a>),
    /// A fragment of one.
    Fragment(FragmentPart<'a>),
    /// A packet without UDP: ARP, TCP, ICMP …
    Other,
    /// Its headers are cut or contradict themselves.
    Damaged,
}

/// Finds the datagram in a packet.
pub fn parse(link: LinkType, packet: &[u8]) -> Content<'_> {
    let big = Order::Big;
    let at = |bytes: usize| packet.get(bytes..).unwrap_or_default();
    let of_type = |kind: Option<u16>, bytes: usize| match kind {
        Some(kind) => of_ether_type(kind, at(bytes)),
        None => Content::Damaged,
    };
    match link {
        LinkType::Ethernet => of_type(big.u16(packet, 12), 14),
        LinkType::Sll => of_type(big.u16(packet, 14), 16),
        LinkType::Sll2 => of_type(big.u16(packet, 0), 20),
        LinkType::RawIp => of_ip(packet),
        LinkType::Loopback if packet.len() < 4 => Content::Damaged,
        LinkType::Loopback => of_ip(at(4)),
        LinkType::Other(_) => Content::Other,
    }
}

fn of_ether_type(mut kind: u16, mut rest: &[u8]) -> Content<'_> {
    for _ in 0..MOST_HEADERS {
        match kind {
            0x0800 | 0x86dd => return of_ip(rest),
            0x8100 | 0x88a8 | 0x9100 => {
                let Some(next) = Order::Big.u16(rest, 2) else { return Content::Damaged };
                (kind, rest) = (next, &rest[4..]);
            }
            _ => return Content::Other,
        }
    }
    Content::Other
}

fn of_ip(packet: &[u8]) -> Content<'_> {
    match packet.first().map(|first| first >> 4) {
        Some(4) => of_ipv4(packet).unwrap_or(Content::Damaged),
        Some(6) => of_ipv6(packet).unwrap_or(Content::Damaged),
        Some(_) => Content::Other,
        None => Content::Damaged,
    }
}

/// Returns `None` if a header is cut or impossible.
fn of_ipv4(packet: &[u8]) -> Option<Content<'_>> {
    let header = packet.get(..20)?;
    let header_bytes = usize::from(header[0] & 15) * 4;
    let address = |at: usize| Ipv4Addr::from(Order::Big.u32(header, at).unwrap_or(0));
    let addresses = Addresses { source: address(12).into(), destination: address(16).into() };
    if header[9] != UDP {
        return Some(Content::Other);
    }
    // The length is 0 where the interface of the sender was to fill it in.
    let total = match usize::from(Order::Big.u16(header, 2)?) {
        0 => packet.len(),
        total => total,
    };
    if header_bytes < 20 || total < header_bytes {
        return None;
    }
    let data = &packet.get(header_bytes..)?;
    let data = &data[..data.len().min(total - header_bytes)];
    let flags = Order::Big.u16(header, 6)?;
    let (more, offset) = (flags & 0x2000 != 0, usize::from(flags & 0x1fff) * 8);
    if more || offset > 0 {
        let identification = Order::Big.u16(header, 4)?.into();
        // A part that is cut cannot be joined.
        let whole = data.len() == total - header_bytes;
        let part = FragmentPart { addresses, identification, offset, more, data };
        return whole.then_some(Content::Fragment(part));
    }
    datagram(addresses, data, total - header_bytes).map(Content::Datagram)
}

fn of_ipv6(packet: &[u8]) -> Option<Content<'_>> {
    let header = packet.get(..40)?;
    let address = |at: usize| -> Option<IpAddr> {
        let bytes: [u8; 16] = header.get(at..at + 16)?.try_into().ok()?;
        Some(Ipv6Addr::from(bytes).into())
    };
    let addresses = Addresses { source: address(8)?, destination: address(24)? };
    let rest = &packet[40..];
    let stated = match usize::from(Order::Big.u16(header, 4)?) {
        0 => rest.len(),
        stated => stated,
    };
    let (mut data, mut bytes) = (&rest[..rest.len().min(stated)], stated);
    let mut next = header[6];
    for _ in 0..MOST_HEADERS {
        let skip = match next {
            UDP => return datagram(addresses, data, bytes).map(Content::Datagram),
            // Hop-by-hop options, routing, destination options.
            0 | 43 | 60 => usize::from(*data.get(1)?) * 8 + 8,
            // Authentication.
            51 => usize::from(*data.get(1)?) * 4 + 8,
            44 => {
                let flags = Order::Big.u16(data, 2)?;
                let (more, offset) = (flags & 1 != 0, usize::from(flags & 0xfff8));
                if more || offset > 0 {
                    let identification = Order::Big.u32(data, 4)?;
                    if data[0] != UDP {
                        return Some(Content::Other);
                    }
                    let whole = data.len() == bytes;
                    let data = &data[8..];
                    let part = FragmentPart { addresses, identification, offset, more, data };
                    return whole.then_some(Content::Fragment(part));
                }
                8
            }
            _ => return Some(Content::Other),
        };
        next = *data.first()?;
        data = data.get(skip..)?;
        bytes = bytes.checked_sub(skip)?;
    }
    Some(Content::Other)
}

/// Reads a UDP header and its payload. `bytes` is the length on the network of which `data` is the captured part.
pub(super) fn datagram(addresses: Addresses, data: &[u8], bytes: usize) -> Option<Datagram<'_>> {
    let word = |number: usize| Order::Big.u16(data, 2 * number);
    let (source_port, port, stated) = (word(0)?, word(1)?, usize::from(word(2)?));
    word(3)?;
    // The length is 0 in packets longer than it can state.
    let whole = if stated == 0 { bytes } else { stated };
    if whole < 8 || whole > bytes {
        return None;
    }
    let payload = &data[8..data.len().min(whole)];
    Some(Datagram { addresses, source_port, port, payload, bytes: whole - 8 })
}
