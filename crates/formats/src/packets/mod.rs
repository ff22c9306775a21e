//! Formats whose packets tell their stream, their count and their length.
//!
//! ```text
//! datagram ──► PacketFormat::stream_of    the stream of a recording that stores the packet
//!          ──► PacketIndexer              its index there: a count that wraps, extended by time or by heaps
//! ```
//!
//! Packets are stored whole, in order of arrival, and may differ in length.

pub mod count;

use std::fmt;

use fullbore_time::Tai;
use serde::{Deserialize, Serialize};

use crate::gvsp::index::GvspIndexer;
use crate::rtp::{self, RtpIndexer};
use crate::spead::{self, Divide, SpeadIndexer};
use crate::vdif::Found;
use crate::vita49;

/// A format of packets, as manifests name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PacketKind {
    /// VITA-49 and DIFI.
    Vita49,
    /// SPEAD.
    Spead,
    /// RTP.
    Rtp,
    /// The GigE Vision streaming protocol.
    Gvsp,
}

impl PacketKind {
    /// The name in messages.
    pub fn title(self) -> &'static str {
        match self {
            Self::Vita49 => "VITA-49",
            Self::Spead => "SPEAD",
            Self::Rtp => "RTP",
            Self::Gvsp => "GVSP",
        }
    }

    /// The name in manifests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Vita49 => "vita49",
            Self::Spead => "spead",
            Self::Rtp => "rtp",
            Self::Gvsp => "gvsp",
        }
    }
}

/// A format of packets with the rule that divides them into streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketFormat {
    /// VITA-49: by stream id.
    Vita49,
    /// SPEAD: by this rule.
    Spead(Divide),
    /// RTP: by synchronization source (SSRC).
    Rtp,
    /// GVSP: not divided, as a camera has a port for each of its streams.
    Gvsp,
}

impl PacketFormat {
    /// Returns the format of this name in `format=`.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "vita49" | "difi" => Some(Self::Vita49),
            "spead" => Some(Self::Spead(Divide::Not)),
            "rtp" => Some(Self::Rtp),
            "gvsp" => Some(Self::Gvsp),
            _ => None,
        }
    }

    /// Returns the format without the rule.
    pub fn kind(self) -> PacketKind {
        match self {
            Self::Vita49 => PacketKind::Vita49,
            Self::Spead(_) => PacketKind::Spead,
            Self::Rtp => PacketKind::Rtp,
            Self::Gvsp => PacketKind::Gvsp,
        }
    }

    /// Returns the stream of a whole packet; `None` if the bytes are none.
    pub fn stream_of(self, packet: &[u8]) -> Option<PacketStream> {
        match self {
            Self::Vita49 => {
                let packet = vita49::Packet::read(packet).ok()?;
                Some(PacketStream::Vita49(vita49::index::PacketStream::of(&packet.prologue)))
            }
            Self::Spead(divide) => {
                let packet = spead::Packet::read(packet).ok()?;
                Some(PacketStream::Spead(divide, divide.value(&packet)))
            }
            Self::Rtp => Some(PacketStream::Rtp(rtp::Header::read(packet).ok()?.source)),
            Self::Gvsp => GvspIndexer::header(packet).map(|_| PacketStream::Gvsp),
        }
    }
}

/// The stream of a recording to which a packet belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketStream {
    /// The data of a stream id, or context.
    Vita49(vita49::index::PacketStream),
    /// The heaps with this value of what divides them; `None`: those without a value.
    Spead(Divide, Option<u64>),
    /// The packets of a synchronization source.
    Rtp(u32),
    /// The packets of a camera.
    Gvsp,
}

impl PacketStream {
    /// Returns the format.
    pub fn kind(self) -> PacketKind {
        match self {
            Self::Vita49(_) => PacketKind::Vita49,
            Self::Spead(..) => PacketKind::Spead,
            Self::Rtp(_) => PacketKind::Rtp,
            Self::Gvsp => PacketKind::Gvsp,
        }
    }

    /// True if a packet belongs to the stream. It may be damaged.
    #[inline]
    pub fn owns(self, packet: &[u8]) -> bool {
        match self {
            Self::Vita49(stream) => stream.owns(packet),
            Self::Spead(divide, value) => {
                spead::Packet::read_head(packet).is_ok_and(|packet| divide.value(&packet) == value)
            }
            Self::Rtp(source) => rtp::Header::read(packet).is_ok_and(|it| it.source == source),
            Self::Gvsp => GvspIndexer::header(packet).is_some(),
        }
    }

    /// True if packets that repeat an index with other content are kept: a sender may not count its context, or may
    /// spread the items of a heap over packets without payload.
    pub fn keeps_repeats(self) -> bool {
        match self {
            Self::Vita49(stream) => stream == vita49::index::PacketStream::Context,
            Self::Spead(..) => true,
            Self::Rtp(_) | Self::Gvsp => false,
        }
    }

    /// True if senders may send a packet again that was lost, long after those that follow it.
    pub fn is_sent_again(self) -> bool {
        match self {
            Self::Vita49(_) | Self::Spead(..) | Self::Rtp(_) => false,
            Self::Gvsp => true,
        }
    }

    /// Returns an indexer for packets like this one; `None` if the bytes are no packet.
    pub fn indexer(self, packet: &[u8]) -> Option<PacketIndexer> {
        match self {
            Self::Vita49(_) => {
                let indexer = vita49::index::PacketIndexer::of(packet)?;
                Some(PacketIndexer::Vita49(indexer))
            }
            Self::Spead(divide, value) => {
                Some(PacketIndexer::Spead(Box::new(SpeadIndexer::new(divide, value))))
            }
            Self::Rtp(source) => Some(PacketIndexer::Rtp(RtpIndexer::new(source))),
            Self::Gvsp => Some(PacketIndexer::Gvsp(Box::default())),
        }
    }
}

impl fmt::Display for PacketStream {
    /// Writes it as in names of streams.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vita49(stream) => stream.fmt(f),
            Self::Spead(_, Some(value)) => write!(f, "{value}"),
            Self::Spead(_, None) => write!(f, "heaps"),
            Self::Rtp(source) => write!(f, "{source:08x}"),
            Self::Gvsp => write!(f, "blocks"),
        }
    }
}

/// The reading of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketReading {
    /// A whole packet.
    Whole {
        /// Its index.
        index: i64,
        /// True if it says that its data are invalid.
        invalid: bool,
    },
    /// A packet of another length than its header says.
    Damaged {
        /// Its index.
        index: i64,
    },
    /// No packet of this stream.
    Foreign,
}

/// The way in which packets are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// By a count that shows all losses.
    Count,
    /// By a count of four bits, which shows no loss of 16, 32 … packets in a row.
    ShortCount,
    /// By a count that time extends.
    Time,
}

/// Counts the packets of one stream.
#[derive(Clone, Debug)]
pub enum PacketIndexer {
    /// Packets of VITA-49 of one kind and stream id.
    Vita49(vita49::index::PacketIndexer),
    /// Packets of SPEAD heaps.
    Spead(Box<SpeadIndexer>),
    /// Packets of one RTP source.
    Rtp(RtpIndexer),
    /// Packets of one camera.
    Gvsp(Box<GvspIndexer>),
}

impl PacketIndexer {
    /// Returns the way in which it counts.
    pub fn counting(&self) -> Counting {
        match self {
            Self::Vita49(packets) if !packets.is_data() => Counting::Count,
            Self::Vita49(packets) if packets.is_timed() => Counting::Time,
            Self::Vita49(_) => Counting::ShortCount,
            Self::Spead(_) | Self::Gvsp(_) => Counting::Count,
            Self::Rtp(packets) if packets.is_timed() => Counting::Time,
            Self::Rtp(_) => Counting::Count,
        }
    }

    /// Returns both halves of a number that names the stream.
    pub fn stream_halves(&self) -> (u16, u16) {
        match self {
            Self::Vita49(packets) => packets.stream_halves(),
            Self::Spead(packets) => halves(packets.value().unwrap_or_default() as u32),
            Self::Rtp(packets) => halves(packets.source()),
            Self::Gvsp(_) => (0, 0),
        }
    }

    /// True if it counts a packet.
    #[inline]
    pub fn owns(&self, packet: &[u8]) -> bool {
        match self {
            Self::Vita49(packets) => packets.owns(packet),
            Self::Spead(packets) => packets.owns(packet),
            Self::Rtp(packets) => packets.owns(packet),
            Self::Gvsp(packets) => packets.owns(packet),
        }
    }

    /// Reads a packet of `length` bytes, of which `packet` was received.
    #[inline]
    pub fn read(&self, packet: &[u8], length: usize) -> PacketReading {
        match self {
            Self::Vita49(packets) => packets.read(packet, length),
            Self::Spead(packets) => packets.read(packet, length),
            Self::Rtp(packets) => packets.read(packet, length),
            Self::Gvsp(packets) => packets.read(packet, length),
        }
    }

    /// Learns from a packet.
    #[inline]
    pub fn learn(&mut self, packet: &[u8]) {
        match self {
            Self::Vita49(packets) => packets.learn(packet),
            Self::Spead(packets) => packets.learn(packet),
            Self::Rtp(packets) => packets.learn(packet),
            Self::Gvsp(packets) => packets.learn(packet),
        }
    }

    /// Forgets what it knows of packets before a restart of the sender. Returns false if it needs that for those behind it.
    pub fn restart(&mut self) -> bool {
        match self {
            Self::Vita49(_) | Self::Spead(_) | Self::Rtp(_) => false,
            Self::Gvsp(packets) => {
                packets.restart();
                true
            }
        }
    }

    /// Returns the findings since the last call.
    pub fn found(&mut self) -> Found {
        match self {
            Self::Vita49(packets) => packets.found(),
            Self::Spead(packets) => packets.found(),
            Self::Rtp(packets) => packets.found(),
            Self::Gvsp(packets) => packets.found(),
        }
    }

    /// Returns the time of a packet, if it has one of UTC or GPS.
    pub fn stamp(&self, packet: &[u8]) -> Option<Tai> {
        match self {
            Self::Vita49(packets) => packets.stamp(packet),
            Self::Spead(_) | Self::Rtp(_) | Self::Gvsp(_) => None,
        }
    }
}

fn halves(number: u32) -> (u16, u16) {
    ((number >> 16) as u16, number as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_formats_are_those_of_manifests() {
        for kind in [PacketKind::Vita49, PacketKind::Spead, PacketKind::Rtp, PacketKind::Gvsp] {
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{}\"", kind.name()));
        }
    }
}
