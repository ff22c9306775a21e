//! One packet: its prologue, its payload and its trailer.
//!
//! ```text
//! word 0   31-28 type · 27 class id present · 26 trailer present (data) · 23-22 TSI · 21-20 TSF
//!          19-16 packet count modulo 16 · 15-0 size in words, header and trailer included
//! then     stream id (1 word, except types 0 and 2) · class id (2) · integer time (1, if TSI is not 0)
//!          fractional time (2, if TSF is not 0) · payload · trailer (1, if present)
//! ```

/// Picoseconds in a second: the limit of a real-time fraction.
pub const PICOSECONDS: u64 = 1_000_000_000_000;

/// The type of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Signal data (types 0 and 1).
    Data,
    /// Extension data: the payload has a form of its own (types 2 and 3).
    ExtensionData,
    /// Context (type 4).
    Context,
    /// Extension context; DIFI's version packets (type 5).
    ExtensionContext,
    /// Command (type 6).
    Command,
    /// Extension command (type 7).
    ExtensionCommand,
}

impl Kind {
    /// True if its packets hold samples.
    pub fn is_data(self) -> bool {
        matches!(self, Kind::Data | Kind::ExtensionData)
    }
}

/// The fractional time of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fraction {
    /// None.
    None,
    /// Samples since the last whole second, or since any start if there is no integer time (TSF 1).
    Samples(u64),
    /// Picoseconds since the last whole second (TSF 2).
    Picoseconds(u64),
    /// A count that runs freely (TSF 3).
    Free(u64),
}

/// The origin of the integer time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Epoch {
    /// UTC seconds since 1970 (TSI 1).
    Utc,
    /// GPS seconds since 1980-01-06 (TSI 2).
    Gps,
    /// Seconds since another instant (TSI 3).
    Other,
}

/// The class of a packet: the standard of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassId {
    /// Unused bits at the end of the payload.
    pub pad_bits: u8,
    /// The organization that defines the classes (24 bits).
    pub oui: u32,
    /// The information class.
    pub information: u16,
    /// The packet class.
    pub packet: u16,
}

/// The indicators of a trailer; `None` where the sender does not set one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer(pub u32);

impl Trailer {
    /// The trailer of a packet whose data are valid, with these marks.
    pub fn of(valid: bool, over_range: bool, sample_loss: bool) -> Self {
        let indicator = |place: u32, on: bool| 1 << (place + 12) | u32::from(on) << place;
        Self(indicator(18, valid) | indicator(13, over_range) | indicator(12, sample_loss))
    }

    /// True if the data are valid.
    pub fn valid(self) -> Option<bool> {
        self.indicator(18)
    }

    /// True if samples exceeded the range of the converter.
    pub fn over_range(self) -> Option<bool> {
        self.indicator(13)
    }

    /// True if the sender lost samples within the packet or before it.
    pub fn sample_loss(self) -> Option<bool> {
        self.indicator(12)
    }

    /// The indicator at this bit; its enable is 12 bits above.
    fn indicator(self, place: u32) -> Option<bool> {
        (self.0 >> (place + 12) & 1 == 1).then_some(self.0 >> place & 1 == 1)
    }
}

/// The words before the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prologue {
    /// The type.
    pub kind: Kind,
    /// The stream id; `None` in data packets of types 0 and 2.
    pub stream: Option<u32>,
    /// The class, if given.
    pub class: Option<ClassId>,
    /// Seconds and their origin, if given.
    pub seconds: Option<(Epoch, u32)>,
    /// The time within the second.
    pub fraction: Fraction,
    /// True if the last word is a trailer.
    pub has_trailer: bool,
    /// The packet count modulo 16.
    pub count: u8,
    /// Words of the whole packet.
    pub words: u16,
}

/// The reason why bytes are no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// The bytes end within the prologue.
    #[error("{is} bytes are fewer than the {needs} bytes of the prologue")]
    Short {
        /// Bytes of the prologue.
        needs: usize,
        /// Bytes received.
        is: usize,
    },
    /// VITA-49 defines types 0 to 7.
    #[error("the packet type {0} is not defined")]
    Type(u8),
    /// The prologue and the trailer exceed the size.
    #[error("the header states {words} words, fewer than its prologue and trailer have")]
    Size {
        /// The size in the header.
        words: u16,
    },
    /// The packet has another length than its header says.
    #[error("the header states {says} bytes, but {is} were received")]
    Length {
        /// Bytes, by the header.
        says: usize,
        /// Bytes received.
        is: usize,
    },
    /// A fraction of a second has fewer than 10^12 picoseconds.
    #[error("the fractional time of {0} ps exceeds a second")]
    Fraction(u64),
}

impl Prologue {
    /// Reads the prologue of a packet. The rest may be absent or longer.
    #[inline]
    pub fn read(bytes: &[u8]) -> Result<Self, PacketError> {
        let word = |at: usize| {
            let bytes = bytes.get(4 * at..)?.first_chunk()?;
            Some(u32::from_be_bytes(*bytes))
        };
        let first = word(0).ok_or(PacketError::Short { needs: 4, is: bytes.len() })?;
        let (kind, has_stream) = match first >> 28 {
            0 => (Kind::Data, false),
            1 => (Kind::Data, true),
            2 => (Kind::ExtensionData, false),
            3 => (Kind::ExtensionData, true),
            4 => (Kind::Context, true),
            5 => (Kind::ExtensionContext, true),
            6 => (Kind::Command, true),
            7 => (Kind::ExtensionCommand, true),
            other => return Err(PacketError::Type(other as u8)),
        };
        let has_class = first >> 27 & 1 == 1;
        let (tsi, tsf) = (first >> 22 & 3, first >> 20 & 3);
        let class_at = 1 + usize::from(has_stream);
        let seconds_at = class_at + 2 * usize::from(has_class);
        let fraction_at = seconds_at + usize::from(tsi != 0);
        let end = fraction_at + 2 * usize::from(tsf != 0);
        if bytes.len() < 4 * end {
            return Err(PacketError::Short { needs: 4 * end, is: bytes.len() });
        }
        let at = |place: usize| word(place).unwrap_or_default();
        let wide = |place: usize| u64::from(at(place)) << 32 | u64::from(at(place + 1));
        let class = has_class.then(|| ClassId {
            pad_bits: (at(class_at) >> 27) as u8,
            oui: at(class_at) & 0xFF_FFFF,
            information: (at(class_at + 1) >> 16) as u16,
            packet: at(class_at + 1) as u16,
        });
        let epoch = match tsi {
            0 => None,
            1 => Some(Epoch::Utc),
            2 => Some(Epoch::Gps),
            _ => Some(Epoch::Other),
        };
        let fraction = match tsf {
            0 => Fraction::None,
            1 => Fraction::Samples(wide(fraction_at)),
            2 => Fraction::Picoseconds(wide(fraction_at)),
            _ => Fraction::Free(wide(fraction_at)),
        };
        let prologue = Prologue {
            kind,
            stream: has_stream.then(|| at(1)),
            class,
            seconds: epoch.map(|epoch| (epoch, at(seconds_at))),
            fraction,
            has_trailer: kind.is_data() && first >> 26 & 1 == 1,
            count: (first >> 16 & 15) as u8,
            words: first as u16,
        };
        if usize::from(prologue.words) < end + usize::from(prologue.has_trailer) {
            return Err(PacketError::Size { words: prologue.words });
        }
        match fraction {
            Fraction::Picoseconds(ps) if ps >= PICOSECONDS => Err(PacketError::Fraction(ps)),
            _ => Ok(prologue),
        }
    }

    /// Bytes of the prologue.
    pub fn bytes(&self) -> usize {
        let words = 1
            + usize::from(self.stream.is_some())
            + 2 * usize::from(self.class.is_some())
            + usize::from(self.seconds.is_some())
            + 2 * usize::from(self.fraction != Fraction::None);
        4 * words
    }

    /// Bytes of the samples or fields.
    pub fn payload_bytes(&self) -> usize {
        let around = self.bytes() + 4 * usize::from(self.has_trailer);
        (4 * usize::from(self.words)).saturating_sub(around)
    }
}

/// A whole packet in a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The words before the payload.
    pub prologue: Prologue,
    /// Samples or fields.
    pub payload: &'a [u8],
    /// The trailer, if there is one.
    pub trailer: Option<Trailer>,
}

impl<'a> Packet<'a> {
    /// Reads bytes that are exactly one packet.
    #[inline]
    pub fn read(bytes: &'a [u8]) -> Result<Self, PacketError> {
        let prologue = Prologue::read(bytes)?;
        let says = 4 * usize::from(prologue.words);
        if bytes.len() != says {
            return Err(PacketError::Length { says, is: bytes.len() });
        }
        let (payload, rest) = bytes[prologue.bytes()..].split_at(prologue.payload_bytes());
        let trailer = rest.first_chunk().map(|bytes| Trailer(u32::from_be_bytes(*bytes)));
        Ok(Packet { prologue, payload, trailer })
    }

    /// True if the sender marks the data as invalid.
    pub fn is_invalid(&self) -> bool {
        self.trailer.and_then(Trailer::valid) == Some(false)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A data packet made by hand: stream 0xAB, class 6A621E/0/0, UTC 1700000000.25, count 9, two words, a trailer with
    /// valid data and sample loss.
    const DATA: [u8; 40] = *b"\x1c\x69\x00\x0a\x00\x00\x00\xab\x00\x6a\x62\x1e\x00\x00\x00\x00\
        \x65\x53\xf1\x00\x00\x00\x00\x3a\x35\x29\x44\x00\x01\x02\x03\x04\x05\x06\x07\x08\x41\x00\x10\x00";

    #[test]
    fn every_field_of_a_data_packet_is_read() {
        let packet = Packet::read(&DATA).unwrap();
        let prologue = packet.prologue;
        assert_eq!((prologue.kind, prologue.stream), (Kind::Data, Some(0xAB)));
        let class = ClassId { pad_bits: 0, oui: 0x6A_621E, information: 0, packet: 0 };
        assert_eq!(prologue.class, Some(class));
        assert_eq!(prologue.seconds, Some((Epoch::Utc, 1_700_000_000)));
        assert_eq!(prologue.fraction, Fraction::Picoseconds(250_000_000_000));
        assert_eq!((prologue.count, prologue.words, prologue.bytes()), (9, 10, 28));
        assert_eq!(packet.payload, [1, 2, 3, 4, 5, 6, 7, 8]);
        let trailer = packet.trailer.unwrap();
        assert_eq!(trailer.valid(), Some(false));
        assert_eq!((trailer.over_range(), trailer.sample_loss()), (None, Some(true)));
        assert!(packet.is_invalid());
    }

    #[test]
    fn a_packet_of_another_length_is_refused_with_the_reason() {
        for bytes in 0..DATA.len() {
            let error = Packet::read(&DATA[..bytes]).unwrap_err();
            let short = matches!(error, PacketError::Short { .. });
            assert_eq!(short, bytes < 28, "{bytes}: {error}");
            assert!(short || error == PacketError::Length { says: 40, is: bytes });
        }
        let longer = [&DATA[..], &[0]].concat();
        assert_eq!(Packet::read(&longer), Err(PacketError::Length { says: 40, is: 41 }));
        let mut small = DATA;
        small[3] = 7;
        assert_eq!(Packet::read(&small), Err(PacketError::Size { words: 7 }));
        assert_eq!(Packet::read(&[0x80, 0, 0, 1]), Err(PacketError::Type(8)));
        let mut late = DATA;
        late[20..28].fill(0xFF);
        assert_eq!(Packet::read(&late), Err(PacketError::Fraction(u64::MAX)));
    }

    #[test]
    fn the_smallest_packet_is_one_word() {
        let packet = Packet::read(&[0x00, 0x05, 0, 1]).unwrap();
        assert_eq!((packet.prologue.stream, packet.prologue.count), (None, 5));
        assert!(packet.payload.is_empty() && packet.trailer.is_none());
    }

    #[test]
    fn a_trailer_reads_back_as_made() {
        let trailer = Trailer::of(true, false, true);
        assert_eq!(trailer.valid(), Some(true));
        assert_eq!((trailer.over_range(), trailer.sample_loss()), (Some(false), Some(true)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(packet) = Packet::read(&bytes) {
                let trailer = 4 * usize::from(packet.trailer.is_some());
                prop_assert_eq!(packet.prologue.bytes() + packet.payload.len() + trailer, bytes.len());
            }
        }
    }
}
