//! Packet captures: pcap and pcapng files, and the UDP datagrams in their packets.
//!
//! ```text
//! bytes of a file ──► Decoder   packets with link type and time; drop counts       pcap, pcapng
//! packet          ──► parse     Ethernet, VLAN, Linux cooked, loopback, IPv4, IPv6 ──► UDP datagram or fragment
//! fragment        ──► Fragments the whole datagram, within bounds
//! ```
//!
//! The formats are those of the Internet-Drafts `draft-ietf-opsawg-pcap` and `draft-ietf-opsawg-pcapng`. Readers of
//! files do not verify checksums: a capture on the sending host holds packets whose checksums the interface computes
//! later.

mod checksum;
mod classic;
mod decoder;
mod fragments;
mod ng;
mod packet;
#[cfg(test)]
mod tests;
mod write;

pub use checksum::{UdpChecksum, ipv4_header_holds, udp_checksum_holds, udp_checksum_of_parts};
pub use decoder::{Decoder, Item, Packet, Step};
pub use fragments::{Fragments, Joined};
pub use packet::{Addresses, Content, Datagram, FragmentPart, parse};
pub use write::{Interface, PcapngWriter, Statistics, udp_packet};

/// The most bytes that a packet may have in a file: the largest that tcpdump and Wireshark take.
pub const LONGEST_PACKET: u32 = 262_144;

/// The most bytes of a pcapng block that is read as a whole. Longer blocks of unknown type are skipped.
pub const LONGEST_BLOCK: u32 = 1 << 20;

/// The most interfaces of a pcapng section.
pub const MOST_INTERFACES: usize = 4096;

/// The form of the first bytes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkType {
    /// Ethernet, with any VLAN tags.
    Ethernet,
    /// An IPv4 or IPv6 header at once.
    RawIp,
    /// Four bytes of address family (BSD loopback).
    Loopback,
    /// Linux "cooked" capture, version 1.
    Sll,
    /// Linux "cooked" capture, version 2.
    Sll2,
    /// A link type in which no datagrams are looked for.
    Other(u32),
}

impl LinkType {
    /// The link type with this number of the registry of link types.
    pub fn of_number(number: u32) -> Self {
        match number {
            1 => Self::Ethernet,
            12 | 14 | 101 | 228 | 229 => Self::RawIp,
            0 | 108 => Self::Loopback,
            113 => Self::Sll,
            276 => Self::Sll2,
            other => Self::Other(other),
        }
    }
}

/// The file is not a capture, or is damaged here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The first bytes are those of no capture.
    #[error("the file begins as neither pcap nor pcapng does ({magic:#010x})")]
    Magic {
        /// The first four bytes, as a big-endian number.
        magic: u32,
    },
    /// The version of the format is unknown.
    #[error("the capture has version {major}.{minor}, which is not known")]
    Version {
        /// The first number of the version.
        major: u16,
        /// The second number.
        minor: u16,
    },
    /// A packet is longer than any capture program makes.
    #[error("a packet of {bytes} bytes; the maximum is {LONGEST_PACKET}")]
    PacketLength {
        /// The stated length.
        bytes: u32,
    },
    /// The length of a block is impossible.
    #[error("a block of type {kind:#x} states a length of {bytes} bytes")]
    BlockLength {
        /// The type of the block.
        kind: u32,
        /// The stated length.
        bytes: u32,
    },
    /// A field of a block does not fit its length.
    #[error("a block of type {kind:#x} ends within its {field}")]
    BlockField {
        /// The type of the block.
        kind: u32,
        /// The field.
        field: &'static str,
    },
    /// A packet names an interface that no block describes.
    #[error("a packet of interface {interface}, which is not described")]
    Interface {
        /// The number of the interface.
        interface: u32,
    },
    /// There are more interfaces than [`MOST_INTERFACES`].
    #[error("more than {MOST_INTERFACES} interfaces")]
    Interfaces,
    /// The unit of an interface's time stamps is finer than any clock.
    #[error("an interface has time stamps of resolution {code:#04x}")]
    Resolution {
        /// The option `if_tsresol`.
        code: u8,
    },
}

/// Reads big-endian or little-endian numbers at fixed places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Big,
    Little,
}

impl Order {
    fn u16(self, bytes: &[u8], at: usize) -> Option<u16> {
        let bytes = bytes.get(at..at + 2)?.try_into().ok()?;
        Some(match self {
            Self::Big => u16::from_be_bytes(bytes),
            Self::Little => u16::from_le_bytes(bytes),
        })
    }

    fn u32(self, bytes: &[u8], at: usize) -> Option<u32> {
        let bytes = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(match self {
            Self::Big => u32::from_be_bytes(bytes),
            Self::Little => u32::from_le_bytes(bytes),
        })
    }

    /// Reads eight bytes as one number.
    fn u64(self, bytes: &[u8], at: usize) -> Option<u64> {
        let bytes = bytes.get(at..at + 8)?.try_into().ok()?;
        Some(match self {
            Self::Big => u64::from_be_bytes(bytes),
            Self::Little => u64::from_le_bytes(bytes),
        })
    }
}
