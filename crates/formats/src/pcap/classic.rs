//! The records of a pcap file.
//!
//! ```text
//! file header   magic 4 · version 2 + 2 · zone 4 · accuracy 4 · snapshot length 4 · link type 4
//! record        seconds 4 · micro- or nanoseconds 4 · captured bytes 4 · original bytes 4 · packet
//! ```

use super::decoder::{Item, Packet, Step, version};
use super::{Error, LONGEST_PACKET, LinkType, Order};

/// The header of a pcap file.
#[derive(Clone, Debug)]
pub(super) struct Classic {
    order: Order,
    nanoseconds: bool,
    link: LinkType,
}

impl Classic {
    /// Bytes of the header of the file.
    pub const HEADER: usize = 24;

    /// Bytes before each packet.
    const RECORD: usize = 16;

    /// The byte order of a file that begins with these bytes, and whether it counts nanoseconds.
    pub fn order(first: [u8; 4]) -> Option<(Order, bool)> {
        match u32::from_be_bytes(first) {
            0xa1b2_c3d4 => Some((Order::Big, false)),
            0xd4c3_b2a1 => Some((Order::Little, false)),
            0xa1b2_3c4d => Some((Order::Big, true)),
            0x4d3c_b2a1 => Some((Order::Little, true)),
            _ => None,
        }
    }

    pub fn new(
        order: Order,
        nanoseconds: bool,
        header: &[u8; Self::HEADER],
    ) -> Result<Self, Error> {
        version(order, header, 4, 2)?;
        // The upper bits tell of a frame check sequence, which lies behind the IP packet.
        let link = order.u32(header, 20).unwrap_or(0) & 0x03ff_ffff;
        Ok(Self { order, nanoseconds, link: LinkType::of_number(link) })
    }

    pub fn next(&self, buffer: &[u8]) -> Result<Step, Error> {
        let word = |number: usize| self.order.u32(buffer, 4 * number);
        let (Some(seconds), Some(fraction), Some(captured), Some(original)) =
            (word(0), word(1), word(2), word(3))
        else {
            return Ok(Step::More(Self::RECORD));
        };
        if captured > LONGEST_PACKET {
            return Err(Error::PacketLength { bytes: captured });
        }
        let end = Self::RECORD + captured as usize;
        if buffer.len() < end {
            return Ok(Step::More(end));
        }
        let unit = if self.nanoseconds { 1 } else { 1000 };
        let unix_ns = i128::from(seconds) * 1_000_000_000 + i128::from(fraction) * unit;
        let packet = Packet {
            link: self.link,
            unix_ns: Some(unix_ns),
            interface: 0,
            data: Self::RECORD..end,
            original,
            dropped: None,
        };
        Ok(Step::Item { item: Item::Packet(packet), bytes: end as u64 })
    }
}
