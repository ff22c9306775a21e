//! RTP packets (RFC 3550), with a payload of any kind.
//!
//! ```text
//! byte 0   version 2 (2 bits) · padding (1) · extension (1) · number of contributing sources (4)
//!      1   marker (1) · payload type (7)
//!      2   sequence number · 4 timestamp · 8 synchronization source (SSRC)
//!     12   contributing sources (4 bytes each) · extension (4 bytes, and words that it counts) · payload · padding
//! ────────────────────────────────────────────────────────────────────────────► big-endian
//! ```
//!
//! The sequence number has 16 bits. The timestamp extends it, if each packet has its own.

use crate::packets::PacketReading;
use crate::packets::count::{Clock, PacketCounter, Place};
use crate::vdif::Found;

/// Bytes of the header without contributing sources and extension.
pub const HEADER_BYTES: usize = 12;

/// The values of the sequence number.
const CYCLE: u32 = 1 << 16;

/// The second byte of RTCP packets, which may share the port of RTP (RFC 5761, section 4).
const RTCP: std::ops::RangeInclusive<u8> = 192..=223;

/// The reason why bytes are no RTP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RtpError {
    /// The bytes end within the header.
    #[error("{is} bytes are fewer than the {needs} bytes of the header")]
    TooShort {
        /// Bytes of the header.
        needs: usize,
        /// Bytes there.
        is: usize,
    },
    /// Another version.
    #[error("the version is {0} instead of 2")]
    Version(u8),
    /// A packet of RTCP, the control protocol.
    #[error("type {0} is of RTCP")]
    Control(u8),
    /// The padding is longer than the payload, or empty.
    #[error("{padding} bytes of padding do not fit a payload of {payload} bytes")]
    Padding {
        /// Bytes of padding.
        padding: usize,
        /// Bytes after the header.
        payload: usize,
    },
}

/// The header of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// True if the marker is set.
    pub marker: bool,
    /// The payload type.
    pub payload_type: u8,
    /// The sequence number.
    pub sequence: u16,
    /// The timestamp, in units of the payload's clock.
    pub timestamp: u32,
    /// The synchronization source (SSRC).
    pub source: u32,
    /// Bytes before the payload.
    pub header_bytes: usize,
    /// Bytes of the payload, without padding.
    pub payload_bytes: usize,
}

impl Header {
    /// Reads the header of a whole packet.
    #[inline]
    pub fn read(packet: &[u8]) -> Result<Self, RtpError> {
        let is = packet.len();
        let short = |needs| RtpError::TooShort { needs, is };
        let head: &[u8; HEADER_BYTES] = packet.first_chunk().ok_or(short(HEADER_BYTES))?;
        if head[0] >> 6 != 2 {
            return Err(RtpError::Version(head[0] >> 6));
        }
        if RTCP.contains(&head[1]) {
            return Err(RtpError::Control(head[1]));
        }
        let mut header_bytes = HEADER_BYTES + 4 * usize::from(head[0] & 0x0F);
        if head[0] & 0x10 != 0 {
            let at = header_bytes + 2;
            let words = packet.get(at..at + 2).ok_or(short(at + 2))?;
            header_bytes += 4 + 4 * usize::from(u16::from_be_bytes([words[0], words[1]]));
        }
        let rest = packet.get(header_bytes..).ok_or(short(header_bytes))?;
        let padding = match (head[0] & 0x20 != 0, rest.last()) {
            (false, _) => 0,
            (true, last) => {
                let padding = last.copied().unwrap_or_default().into();
                if padding == 0 || padding > rest.len() {
                    return Err(RtpError::Padding { padding, payload: rest.len() });
                }
                padding
            }
        };
        let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("four bytes"));
        Ok(Self {
            marker: head[1] & 0x80 != 0,
            payload_type: head[1] & 0x7F,
            sequence: u16::from_be_bytes([head[2], head[3]]),
            timestamp: word(4),
            source: word(8),
            header_bytes,
            payload_bytes: rest.len() - padding,
        })
    }

    /// Writes the header of 12 bytes, without contributing sources and extension; `None` if there is no room.
    pub fn write(&self, packet: &mut [u8]) -> Option<usize> {
        let head: &mut [u8; HEADER_BYTES] = packet.first_chunk_mut()?;
        head[0] = 2 << 6;
        head[1] = u8::from(self.marker) << 7 | self.payload_type & 0x7F;
        head[2..4].copy_from_slice(&self.sequence.to_be_bytes());
        head[4..8].copy_from_slice(&self.timestamp.to_be_bytes());
        head[8..12].copy_from_slice(&self.source.to_be_bytes());
        Some(HEADER_BYTES)
    }

    fn place(&self) -> Place {
        Place {
            count: self.sequence,
            seconds: None,
            clock: Clock::Wrapping(self.timestamp),
            payload_bytes: self.payload_bytes,
            is_timed: true,
        }
    }
}

/// Counts the packets of one source.
#[derive(Clone, Debug)]
pub struct RtpIndexer {
    source: u32,
    counter: PacketCounter,
    found: Found,
}

impl RtpIndexer {
    /// Returns an indexer for the packets of a synchronization source.
    pub fn new(source: u32) -> Self {
        Self { source, counter: PacketCounter::new(CYCLE), found: Found::default() }
    }

    /// The synchronization source.
    pub fn source(&self) -> u32 {
        self.source
    }

    /// True if the timestamps extend the sequence number.
    pub fn is_timed(&self) -> bool {
        self.counter.has_step()
    }

    fn header(&self, packet: &[u8]) -> Option<Header> {
        Header::read(packet).ok().filter(|header| header.source == self.source)
    }

    /// True if a packet is of the source.
    #[inline]
    pub fn owns(&self, packet: &[u8]) -> bool {
        self.header(packet).is_some()
    }

    /// Reads a packet of `length` bytes, of which `packet` was received.
    #[inline]
    pub fn read(&self, packet: &[u8], length: usize) -> PacketReading {
        let Some(header) = self.header(packet) else { return PacketReading::Foreign };
        let index = self.counter.index(&header.place()).index;
        match length == packet.len() {
            true => PacketReading::Whole { index, invalid: false },
            false => PacketReading::Damaged { index },
        }
    }

    /// Learns from a packet.
    #[inline]
    pub fn learn(&mut self, packet: &[u8]) {
        let Some(header) = self.header(packet) else { return };
        let counted = self.counter.observe(&header.place());
        self.found.disagreements += u64::from(counted.disagrees);
    }

    /// Returns the findings since the last call.
    pub fn found(&mut self) -> Found {
        std::mem::take(&mut self.found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packet `number` of a source, with 160 units of time for each.
    fn packet(source: u32, number: u64) -> Vec<u8> {
        let mut bytes = vec![7; HEADER_BYTES + 160];
        let header = Header {
            marker: false,
            payload_type: 96,
            sequence: number as u16,
            timestamp: (160 * number) as u32,
            source,
            header_bytes: HEADER_BYTES,
            payload_bytes: 160,
        };
        assert_eq!(header.write(&mut bytes), Some(HEADER_BYTES));
        assert_eq!(Header::read(&bytes), Ok(header));
        bytes
    }

    /// Learns packets in this order, and returns their indices.
    fn indices(packets: impl IntoIterator<Item = Vec<u8>>) -> Vec<i64> {
        let mut indexer = RtpIndexer::new(9);
        let counted = packets.into_iter().map(|packet| {
            let reading = indexer.read(&packet, packet.len());
            indexer.learn(&packet);
            assert_eq!(indexer.found(), Found::default());
            match reading {
                PacketReading::Whole { index, .. } => index,
                other => panic!("{other:?}"),
            }
        });
        counted.collect()
    }

    #[test]
    fn timestamps_show_losses_of_whole_cycles() {
        for lost in [1, 40_000, 65_535, 65_536, 65_537, 1_000_000] {
            let numbers = [65_530, 65_531, 65_532, 65_533, 65_534 + lost, 65_535 + lost];
            let expected = numbers.map(|number| number as i64);
            assert_eq!(indices(numbers.map(|number| packet(9, number))), expected, "{lost}");
        }
    }

    #[test]
    fn packets_with_one_timestamp_are_counted_by_sequence_number() {
        let of_frame = |number: u64| {
            let mut bytes = packet(9, number);
            bytes[4..8].copy_from_slice(&(3000 * (number as u32 / 10)).to_be_bytes());
            bytes
        };
        let numbers = (0..50).chain(30_000..30_050);
        let expected: Vec<i64> = numbers.clone().map(|number| number as i64).collect();
        assert_eq!(indices(numbers.map(of_frame)), expected);
    }

    #[test]
    fn header_with_sources_extension_and_padding_is_read() {
        let mut bytes = packet(9, 3);
        bytes[0] = 2 << 6 | 0x20 | 0x10 | 2;
        bytes[22..24].copy_from_slice(&3u16.to_be_bytes());
        *bytes.last_mut().unwrap() = 8;
        let header = Header::read(&bytes).unwrap();
        assert_eq!((header.header_bytes, header.payload_bytes), (36, 136 - 8));
        for length in 0..36 {
            assert!(Header::read(&bytes[..length]).is_err(), "{length}");
        }
        *bytes.last_mut().unwrap() = 137;
        assert_eq!(Header::read(&bytes), Err(RtpError::Padding { padding: 137, payload: 136 }));
    }

    #[test]
    fn other_sources_control_packets_and_cut_packets_are_told_apart() {
        let indexer = RtpIndexer::new(9);
        let own = packet(9, 5);
        assert_eq!(indexer.read(&own, own.len() + 1), PacketReading::Damaged { index: 5 });
        assert!(!indexer.owns(&packet(8, 5)));
        let mut control = own.clone();
        control[1] = 200;
        assert_eq!(Header::read(&control), Err(RtpError::Control(200)));
        control[0] = 0;
        assert_eq!(Header::read(&control), Err(RtpError::Version(0)));
    }
}
