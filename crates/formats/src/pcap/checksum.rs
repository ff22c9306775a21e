//! The Internet checksum (RFC 1071) of IPv4 headers and of UDP.

use std::net::IpAddr;

use super::packet::Addresses;

/// The sum of 16-bit words in ones' complement.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum(u64);

impl Sum {
    /// Adds bytes that begin at an even place.
    pub fn add(&mut self, bytes: &[u8]) {
        // Two words at once: the upper one comes back to its place when the sum is folded.
        let (fours, rest) = bytes.as_chunks::<4>();
        let sum: u64 = fours.iter().map(|four| u64::from(u32::from_be_bytes(*four))).sum();
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        // At most 2^16 · 2^32 for an IP packet, so that the folded sums of several calls fit.
        self.0 += folded(sum) + folded(u64::from(u32::from_be_bytes(last)));
    }

    /// Adds the pseudo header of UDP (RFC 768, RFC 8200).
    pub fn add_pseudo_header(&mut self, source: IpAddr, to: IpAddr, length: u32) {
        for address in [source, to] {
            match address {
                IpAddr::V4(address) => self.add(&address.octets()),
                IpAddr::V6(address) => self.add(&address.octets()),
            }
        }
        self.add(&17u32.to_be_bytes());
        self.add(&length.to_be_bytes());
    }

    /// The checksum.
    pub fn value(self) -> u16 {
        !(folded(self.0) as u16)
    }
}

fn folded(mut sum: u64) -> u64 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

/// True if the checksum of a UDP datagram holds, or if the sender left it out, which IPv4 allows. `udp` is the UDP header
/// with its payload.
pub fn udp_checksum_holds(addresses: &Addresses, udp: &[u8]) -> bool {
    if udp.len() < 8 {
        return false;
    }
    if udp[6..8] == [0, 0] {
        return addresses.source.is_ipv4();
    }
    let mut sum = Sum::default();
    sum.add_pseudo_header(addresses.source, addresses.destination, udp.len() as u32);
    sum.add(udp);
    sum.value() == 0
}

/// What the checksum of a datagram says that no interface has looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UdpChecksum {
    /// It holds, or IPv4 has none.
    Holds,
    /// A sender on this host has left it to its interface: the field has the sum of the pseudo header alone.
    LeftToInterface,
    /// It does not hold.
    Wrong,
}

/// Verifies the checksum of a datagram whose bytes are in several parts. `bytes` is the length of the UDP header and the
/// payload together, and `field` the checksum in the header.
pub fn udp_checksum_of_parts<'a>(
    addresses: &Addresses,
    field: u16,
    bytes: u32,
    parts: impl Iterator<Item = &'a [u8]>,
) -> UdpChecksum {
    if field == 0 && addresses.source.is_ipv4() {
        return UdpChecksum::Holds;
    }
    let mut sum = Sum::default();
    sum.add_pseudo_header(addresses.source, addresses.destination, bytes);
    if field == !sum.value() {
        return UdpChecksum::LeftToInterface;
    }
    let mut is_even = true;
    for part in parts {
        match is_even {
            true => sum.add(part),
            // The bytes of a part that begins at an odd place have the other half of their words.
            false => {
                let mut shifted = Sum::default();
                shifted.add(part);
                sum.add(&(!shifted.value()).swap_bytes().to_be_bytes());
            }
        }
        is_even ^= part.len() % 2 == 1;
    }
    if field != 0 && sum.value() == 0 { UdpChecksum::Holds } else { UdpChecksum::Wrong }
}

/// True if the packet is not IPv4, or the checksum of its IPv4 header holds.
pub fn ipv4_header_holds(packet: &[u8]) -> bool {
    match packet.first() {
        Some(first) if first >> 4 == 4 => {
            let Some(header) = packet.get(..usize::from(first & 15) * 4) else { return false };
            let mut sum = Sum::default();
            sum.add(header);
            sum.value() == 0
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::super::{Content, LinkType, parse, udp_packet};
    use super::*;

    #[test]
    fn a_flipped_bit_anywhere_in_a_datagram_breaks_a_checksum() {
        for (from, to) in [("10.0.0.1:5", "10.0.0.2:6"), ("[fd00::1]:5", "[fd00::2]:6")] {
            let [from, to]: [SocketAddr; 2] = [from, to].map(|text| text.parse().unwrap());
            for length in [0, 1, 2, 3, 4, 5, 7, 1312] {
                let packet = udp_packet(from, to, &[&vec![0xE7; length]]).unwrap();
                let holds = |packet: &[u8]| {
                    let network = &packet[14..];
                    let Content::Datagram(datagram) = parse(LinkType::RawIp, network) else {
                        return false;
                    };
                    let end = network.len();
                    let udp = &network[end - datagram.payload.len() - 8..];
                    ipv4_header_holds(network) && udp_checksum_holds(&datagram.addresses, udp)
                };
                assert!(holds(&packet), "{from} {length}");
                let headers = packet.len() - length - 8;
                for at in headers..packet.len().min(headers + 64) {
                    let mut damaged = packet.clone();
                    damaged[at] ^= 0x10;
                    assert!(!holds(&damaged), "{from} {length}: byte {at}");
                }
            }
        }
    }

    #[test]
    fn a_checksum_holds_wherever_the_datagram_is_divided() {
        for to in ["10.0.0.2:6", "[fd00::2]:6"] {
            let to: SocketAddr = to.parse().unwrap();
            let payload: Vec<u8> = (0..99u8).map(|n| n.wrapping_mul(37)).collect();
            let packet = udp_packet(to, to, &[&payload]).unwrap();
            let udp = &packet[packet.len() - 107..];
            let addresses = Addresses { source: to.ip(), destination: to.ip() };
            let field = u16::from_be_bytes([udp[6], udp[7]]);
            let of = |udp: &[u8], field, [one, two]: [usize; 2]| {
                let parts = [&udp[..one], &udp[one..two], &udp[two..]];
                udp_checksum_of_parts(&addresses, field, 107, parts.into_iter())
            };
            for one in 0..=107 {
                for two in one..=107 {
                    assert_eq!(of(udp, field, [one, two]), UdpChecksum::Holds, "{one} {two}");
                }
                let mut damaged = udp.to_vec();
                damaged[one.min(106)] ^= 1;
                assert_eq!(of(&damaged, field, [one, 107]), UdpChecksum::Wrong);
            }
            let mut pseudo = Sum::default();
            pseudo.add_pseudo_header(to.ip(), to.ip(), 107);
            assert_eq!(of(udp, !pseudo.value(), [8, 50]), UdpChecksum::LeftToInterface);
            let absent = if to.is_ipv4() { UdpChecksum::Holds } else { UdpChecksum::Wrong };
            assert_eq!(of(udp, 0, [8, 50]), absent);
        }
    }

    #[test]
    fn only_ipv4_lets_the_checksum_be_left_out() {
        let addresses = |address: &str| {
            let address = address.parse().unwrap();
            Addresses { source: address, destination: address }
        };
        let udp = [0, 5, 0, 6, 0, 9, 0, 0, 77];
        assert!(udp_checksum_holds(&addresses("10.0.0.1"), &udp));
        assert!(!udp_checksum_holds(&addresses("fd00::1"), &udp));
        assert!(!udp_checksum_holds(&addresses("10.0.0.1"), &udp[..7]));
    }
}
