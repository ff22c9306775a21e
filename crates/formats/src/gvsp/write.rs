//! Packets as a camera sends them.

use super::leader::{Layout, Leader};
use super::packet::{Content, EXTENDED_HEADER_BYTES, Packet};

/// Eight bits of grey, by the Pixel Format Naming Convention.
pub const MONO_8: u32 = 0x0108_0001;

/// The largest header with the leader of an image.
pub const LONGEST_HEAD: usize = EXTENDED_HEADER_BYTES + super::leader::IMAGE_BYTES;

impl Packet {
    /// Writes the header; `None` if there is no room.
    pub fn write(&self, bytes: &mut [u8]) -> Option<usize> {
        let head = bytes.get_mut(..self.header_bytes())?;
        head[..2].copy_from_slice(&self.status.to_be_bytes());
        head[4] = self.content.number() | u8::from(self.extended) << 7;
        if self.extended {
            head[2..4].fill(0);
            head[5..8].fill(0);
            head[8..16].copy_from_slice(&self.block.to_be_bytes());
            head[16..20].copy_from_slice(&self.packet.to_be_bytes());
        } else {
            head[2..4].copy_from_slice(&(self.block as u16).to_be_bytes());
            head[5..8].copy_from_slice(&self.packet.to_be_bytes()[1..]);
        }
        Some(self.header_bytes())
    }
}

/// A stream of images of one size, as packets that are numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Images {
    /// Payload packets of each image.
    pub payload_packets: u32,
    /// Bytes of the payload of each of them.
    pub payload_bytes: u32,
    /// True if ids are extended.
    pub extended: bool,
}

impl Images {
    /// The packets of each block.
    pub fn packets(&self) -> u64 {
        u64::from(self.payload_packets) + 2
    }

    /// Writes all of packet `number` except a payload. Returns the bytes written, and the bytes of payload that follow;
    /// `None` if there is no room.
    pub fn write(&self, number: u64, bytes: &mut [u8]) -> Option<(usize, usize)> {
        let (image, place) = (number / self.packets(), (number % self.packets()) as u32);
        // A block id of 16 bits is never 0.
        let block = if self.extended { image + 1 } else { image % 0xFFFF + 1 };
        let content = match place {
            0 => Content::Leader,
            place if place <= self.payload_packets => Content::Payload(3),
            _ => Content::Trailer,
        };
        let packet = Packet { status: 0, block, packet: place, extended: self.extended, content };
        let head = packet.write(bytes)?;
        match content {
            Content::Leader => {
                let (width, height) = (self.payload_bytes, self.payload_packets);
                let layout = Layout {
                    pixel_format: MONO_8,
                    width,
                    height,
                    x_offset: 0,
                    y_offset: 0,
                    x_padding: 0,
                    y_padding: 0,
                };
                let leader = Leader { payload_type: 1, ticks: image, layout: Some(layout) };
                Some((head + leader.write(&mut bytes[head..])?, 0))
            }
            Content::Trailer => {
                let rest = bytes.get_mut(head..head + 8)?;
                rest[..4].copy_from_slice(&1u32.to_be_bytes());
                rest[4..].copy_from_slice(&self.payload_packets.to_be_bytes());
                Some((head + 8, 0))
            }
            Content::Payload(_) | Content::AllIn => Some((head, self.payload_bytes as usize)),
        }
    }
}
