//! Packets that tell their stream: VITA-49 and DIFI, SPEAD, and RTP. Those of SPEAD and RTP are made from their number
//! in the stream.

use fullbore_formats::packets::PacketKind;
use fullbore_formats::rtp;
use fullbore_formats::spead::write::{Head, item};
use fullbore_formats::vita49::write::Stamp;

use super::datagram::HEAD_BYTES;
use super::fault::{Damage, RAW_DAMAGES, RUBBISH, VDIF_DAMAGES};
use super::vita49::Vita49Form;

/// Bytes before the payload of a SPEAD packet: the header and five items.
const SPEAD_HEAD: u32 = 48;

/// The item with the time of a heap: the samples before it. MeerKAT and HERA use this id.
const TIMESTAMP: u16 = 0x1600;

/// The first payload type without a fixed meaning (RFC 3551, section 6).
const DYNAMIC_TYPE: u8 = 96;

/// The synchronization source of the RTP packets.
const SOURCE: u32 = 0xFB;

/// The packets of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PacketForm {
    /// VITA-49 or DIFI packets of one stream id, with context beside them.
    Vita49(Vita49Form),
    /// Packets of SPEAD-64-48 heaps. Each has all items.
    Spead {
        /// Bytes of payload of each packet.
        payload: u32,
        /// Packets of each heap.
        heap_packets: u32,
    },
    /// RTP packets with a time stamp of one unit for each byte.
    Rtp {
        /// Bytes of payload of each packet.
        payload: u32,
    },
}

impl PacketForm {
    /// Packets of SPEAD or RTP with so many bytes; `None` if there is no room for a payload. Those of VITA-49 need more.
    pub fn of(kind: PacketKind, bytes: u32, heap_packets: u32) -> Option<Self> {
        let form = match kind {
            PacketKind::Spead => {
                Self::Spead { payload: bytes.checked_sub(SPEAD_HEAD)?, heap_packets }
            }
            PacketKind::Rtp => Self::Rtp { payload: bytes.checked_sub(rtp::HEADER_BYTES as u32)? },
            PacketKind::Vita49 | PacketKind::Gvsp => return None,
        };
        (form.payload_bytes() > 0 && heap_packets > 0).then_some(form)
    }

    /// The name of the format.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Vita49(form) => form.name(),
            Self::Spead { .. } => PacketKind::Spead.name(),
            Self::Rtp { .. } => PacketKind::Rtp.name(),
        }
    }

    /// The form of VITA-49 packets; `None` for others.
    pub fn vita49(&self) -> Option<&Vita49Form> {
        match self {
            Self::Vita49(form) => Some(form),
            Self::Spead { .. } | Self::Rtp { .. } => None,
        }
    }

    /// Bytes of payload of each packet.
    pub fn payload_bytes(&self) -> u32 {
        match self {
            Self::Vita49(form) => form.payload_bytes(),
            Self::Spead { payload, .. } | Self::Rtp { payload } => *payload,
        }
    }

    /// Bytes before the payload.
    pub fn head_bytes(&self) -> u32 {
        match self {
            Self::Vita49(form) => form.prologue_bytes() as u32,
            Self::Spead { .. } => SPEAD_HEAD,
            Self::Rtp { .. } => rtp::HEADER_BYTES as u32,
        }
    }

    /// Bytes of each packet.
    pub fn packet_bytes(&self) -> u32 {
        match self {
            Self::Vita49(form) => form.packet_bytes,
            Self::Spead { .. } | Self::Rtp { .. } => self.head_bytes() + self.payload_bytes(),
        }
    }

    /// The damage that a reader of these packets can see.
    pub(super) fn damages(&self) -> &'static [Option<Damage>] {
        match self {
            Self::Vita49(_) => VDIF_DAMAGES,
            Self::Spead { .. } => RAW_DAMAGES,
            Self::Rtp { .. } => RUBBISH,
        }
    }

    /// Changes the first byte so that a datagram is no packet.
    pub(super) fn make_foreign(&self, first: &mut u8) {
        match self {
            // VITA-49 defines types 0 to 7.
            Self::Vita49(_) => *first |= 0x80,
            // Neither format begins with a zero.
            Self::Spead { .. } | Self::Rtp { .. } => *first = 0,
        }
    }

    /// Writes what precedes the payload of packet `number`, and returns its bytes. `stamp` is the time of its first
    /// sample.
    #[inline]
    pub(super) fn write(
        &self,
        stamp: impl FnOnce() -> Stamp,
        number: u64,
        head: &mut [u8; HEAD_BYTES],
    ) -> usize {
        let written = match *self {
            Self::Vita49(ref form) => return form.write_prologue(stamp(), number, head),
            Self::Spead { payload, heap_packets } => {
                let (heap, place) =
                    (number / u64::from(heap_packets), number % u64::from(heap_packets));
                let heap_length = u64::from(heap_packets) * u64::from(payload);
                let (offset, length) = (place * u64::from(payload), payload.into());
                let time = item(TIMESTAMP, heap.wrapping_mul(heap_length));
                Head { heap, heap_length, offset, length }.write(&[time], head)
            }
            Self::Rtp { payload } => {
                let header = rtp::Header {
                    marker: false,
                    payload_type: DYNAMIC_TYPE,
                    sequence: number as u16,
                    timestamp: number.wrapping_mul(payload.into()) as u32,
                    source: SOURCE,
                    header_bytes: rtp::HEADER_BYTES,
                    payload_bytes: payload as usize,
                };
                header.write(head)
            }
        };
        written.expect("there is room for the longest head")
    }
}

#[cfg(test)]
mod tests {
    use fullbore_formats::packets::{PacketFormat, PacketReading};
    use fullbore_formats::spead::Divide;

    use super::*;

    #[test]
    fn packets_are_counted_by_their_number() {
        for (kind, format) in [
            (PacketKind::Spead, PacketFormat::Spead(Divide::Not)),
            (PacketKind::Rtp, PacketFormat::Rtp),
        ] {
            let form = PacketForm::of(kind, 148, 3).unwrap();
            let packet = |number| {
                let mut head = [0; HEAD_BYTES];
                let written = form.write(|| unreachable!("it has no time"), number, &mut head);
                assert_eq!(written, form.head_bytes() as usize);
                let mut bytes = head[..written].to_vec();
                bytes.resize(148, 0);
                bytes
            };
            let mut indexer = format.stream_of(&packet(0)).unwrap().indexer(&packet(0)).unwrap();
            for number in (0..10).chain(70_000..70_010) {
                let bytes = packet(number);
                let reading = PacketReading::Whole { index: number as i64, invalid: false };
                assert_eq!(indexer.read(&bytes, 148), reading, "{kind:?}");
                indexer.learn(&bytes);
            }
            assert_eq!(PacketForm::of(kind, form.head_bytes(), 3), None);
        }
    }
}
