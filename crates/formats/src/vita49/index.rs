//! The packets of one kind and stream id: their index, and what their trailers say.

use std::fmt;

use fullbore_time::Tai;

use super::packet::{Epoch, Fraction, Kind, Packet, Prologue, Trailer};
use crate::packets::PacketReading;
use crate::packets::count::{Clock, PacketCounter, Place};
use crate::vdif::Found;

/// The values of a packet count.
const CYCLE: u32 = 16;

/// Seconds from 1970 to the origin of GPS time, 1980-01-06, by UTC.
const GPS_ORIGIN: i128 = 315_964_800;

/// True for the name of a stream of context: `rx-context`.
pub fn is_name_of_context(stream: &str) -> bool {
    stream.strip_suffix("context").is_some_and(|rest| rest.ends_with('-'))
}

/// The stream of a recording to which a packet belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketStream {
    /// The data of one stream id, or the data without one.
    Data(Option<u32>),
    /// Context and commands of all stream ids.
    Context,
}

impl PacketStream {
    /// Returns the stream of a packet.
    pub fn of(prologue: &Prologue) -> Self {
        match prologue.kind.is_data() {
            true => Self::Data(prologue.stream),
            false => Self::Context,
        }
    }

    /// True if a packet belongs to the stream. It may be damaged.
    #[inline]
    pub fn owns(self, packet: &[u8]) -> bool {
        Prologue::read(packet).is_ok_and(|prologue| Self::of(&prologue) == self)
    }
}

impl fmt::Display for PacketStream {
    /// Writes it as in names of streams.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Data(Some(id)) => write!(f, "{id:08x}"),
            Self::Data(None) => write!(f, "data"),
            Self::Context => write!(f, "context"),
        }
    }
}

/// Counts the packets of one kind and stream id.
#[derive(Clone, Debug)]
pub struct PacketIndexer {
    kind: Kind,
    stream: Option<u32>,
    counter: PacketCounter,
    found: Found,
}

impl PacketIndexer {
    /// Returns an indexer for packets like this one; `None` if the bytes are no packet.
    pub fn of(packet: &[u8]) -> Option<Self> {
        let prologue = Prologue::read(packet).ok()?;
        let (kind, stream) = (prologue.kind, prologue.stream);
        Some(Self { kind, stream, counter: PacketCounter::new(CYCLE), found: Found::default() })
    }

    /// True if the packets hold samples.
    pub fn is_data(&self) -> bool {
        self.kind.is_data()
    }

    /// True if the time of the packets shows losses that their count does not.
    pub fn is_timed(&self) -> bool {
        self.counter.has_step()
    }

    /// Returns both halves of the stream id.
    pub fn stream_halves(&self) -> (u16, u16) {
        let id = self.stream.unwrap_or_default();
        ((id >> 16) as u16, id as u16)
    }

    /// True if a packet is of this kind and stream id.
    #[inline]
    pub fn owns(&self, packet: &[u8]) -> bool {
        self.prologue(packet).is_some()
    }

    fn prologue(&self, packet: &[u8]) -> Option<Prologue> {
        let prologue = Prologue::read(packet).ok()?;
        ((prologue.kind, prologue.stream) == (self.kind, self.stream)).then_some(prologue)
    }

    /// Reads a packet of `length` bytes, of which `packet` was received.
    #[inline]
    pub fn read(&self, packet: &[u8], length: usize) -> PacketReading {
        let Some(prologue) = self.prologue(packet) else { return PacketReading::Foreign };
        let index = self.counter.index(&place(&prologue)).index;
        match Packet::read(packet) {
            Ok(whole) if length == packet.len() => {
                PacketReading::Whole { index, invalid: whole.is_invalid() }
            }
            _ => PacketReading::Damaged { index },
        }
    }

    /// Learns from a packet.
    #[inline]
    pub fn learn(&mut self, packet: &[u8]) {
        let Ok(packet) = Packet::read(packet) else { return };
        let says = |of: fn(Trailer) -> Option<bool>| {
            u64::from(packet.trailer.and_then(of).unwrap_or_default())
        };
        self.found.sample_loss += says(Trailer::sample_loss);
        self.found.over_range += says(Trailer::over_range);
        let counted = self.counter.observe(&place(&packet.prologue));
        self.found.disagreements += u64::from(counted.disagrees);
    }

    /// Returns the findings since the last call.
    pub fn found(&mut self) -> Found {
        std::mem::take(&mut self.found)
    }

    /// Returns the time of a packet, if it has one of UTC or GPS.
    pub fn stamp(&self, packet: &[u8]) -> Option<Tai> {
        let prologue = self.prologue(packet)?;
        let (epoch, seconds) = prologue.seconds?;
        let Fraction::Picoseconds(ps) = prologue.fraction else { return None };
        let part = (ps / 1000) as i64;
        let seconds = i128::from(seconds);
        match epoch {
            Epoch::Utc => Some(Tai::from_unix_ns(seconds * 1_000_000_000).plus_ns(part)),
            Epoch::Gps => {
                let origin = Tai::from_unix_ns(GPS_ORIGIN * 1_000_000_000);
                Some(origin.plus_ns((seconds * 1_000_000_000) as i64).plus_ns(part))
            }
            Epoch::Other => None,
        }
    }
}

/// What a packet says about its place in its stream.
fn place(prologue: &Prologue) -> Place {
    Place {
        count: prologue.count.into(),
        seconds: prologue.seconds,
        clock: Clock::from(prologue.fraction),
        payload_bytes: prologue.payload_bytes(),
        is_timed: prologue.kind.is_data(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vita49::write::{Stamp, difi_prologue, prologue, trailer};

    fn packet(id: u32, number: u64, marks: Option<Trailer>) -> Vec<u8> {
        let stamp = Stamp { seconds: 1_700_000_000, picoseconds: number * 360_000_000 };
        let words = 4 + u16::from(marks.is_some());
        let mut start = difi_prologue(Kind::Data, id, stamp, (number % 16) as u8, words);
        start.has_trailer = marks.is_some();
        let mut packet = vec![0; 4 * usize::from(start.words)];
        prologue(&start, &mut packet).unwrap();
        if let Some(marks) = marks {
            assert!(trailer(marks, &mut packet));
        }
        packet
    }

    #[test]
    fn packets_of_a_stream_are_counted_and_their_trailers_are_read() {
        let mut indexer = PacketIndexer::of(&packet(1, 0, None)).unwrap();
        for number in 0..4 {
            let marks = Trailer::of(number != 2, number == 1, number == 3);
            let bytes = packet(1, number, Some(marks));
            let whole = PacketReading::Whole { index: number as i64, invalid: number == 2 };
            assert_eq!(indexer.read(&bytes, bytes.len()), whole);
            indexer.learn(&bytes);
        }
        let far = packet(1, 4 + 32, None);
        let reading = PacketReading::Whole { index: 36, invalid: false };
        assert_eq!(indexer.read(&far, far.len()), reading);
        assert_eq!(indexer.read(&far[..40], 40), PacketReading::Damaged { index: 36 });
        assert_eq!(indexer.read(&packet(2, 4, None), 44), PacketReading::Foreign);
        let found = indexer.found();
        assert_eq!((found.sample_loss, found.over_range, found.disagreements), (1, 1, 0));
        assert_eq!(indexer.stamp(&far).unwrap().to_string(), "2023-11-14T22:13:20.012960Z");
    }

    #[test]
    fn names_of_streams_tell_the_stream_id() {
        let stream = PacketStream::of(&Prologue::read(&packet(0xAB, 0, None)).unwrap());
        assert_eq!(stream.to_string(), "000000ab");
        assert!(stream.owns(&packet(0xAB, 9, None)) && !stream.owns(&packet(1, 9, None)));
        let names = ["rx-context", "my-context-000000ab", "mycontext"];
        assert_eq!(names.map(is_name_of_context), [true, false, false]);
    }
}
