//! The header of a VDIF frame: eight little-endian words, of which a legacy header has four.
//!
//! ```text
//! word  31     30      29 … 24            23 … 16          15 … 0
//! 0     invalid legacy seconds since the reference epoch ────────
//! 1     (zero) (zero)  reference epoch    frame within the second
//! 2     version ─ 29   log2 channels      frame bytes ÷ 8 ───────
//! 3     complex bits per sample − 1 ─ 26  thread ─ 16     station
//! 4     extended data version             its data ──────────────
//! 5–7   data of the extended data version, see `Extended`
//! ```

use std::fmt;

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Extended, Second};
use crate::Damage;

/// The header of one frame. A legacy one has zeros in words 4 to 7, which are never written out.
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Header {
    words: [U32; 8],
}

// Frames start at any byte of a datagram, so neither size nor alignment may change.
const _: () = assert!(size_of::<Header>() == Header::BYTES);
const _: () = assert!(align_of::<Header>() == 1);

/// The error for an incomplete header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a VDIF header has {needs} bytes, but only {is} are present")]
pub struct HeaderError {
    /// Bytes of this header: 32, or 16 for a legacy one.
    pub needs: usize,
    /// Bytes present.
    pub is: usize,
}

/// The error for a text that is not a station.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a station; write two letters such as Wz, or a number from 0 to 65535")]
pub struct StationError {
    /// The given text.
    pub text: String,
}

/// One row per field that the header stores directly: its meaning, its names, its type, then word, lowest bit and
/// number of bits. The setters refuse values that do not fit.
macro_rules! fields {
    ($($(#[$meaning:meta])* $get:ident $set:ident $with:ident: $type:ident = $word:literal, $low:literal, $width:literal;)*) => {
        impl Header {$(
            $(#[$meaning])*
            #[inline]
            pub fn $get(&self) -> $type {
                narrow::$type(self.field($word, $low, $width))
            }

            /// Sets the field, and panics if the value has more bits than the field.
            pub fn $set(&mut self, value: $type) {
                self.set_field($word, $low, $width, u32::from(value));
            }

            /// Returns this header with another value; panics if the value has more bits than the field.
            #[must_use]
            pub fn $with(mut self, value: $type) -> Self {
                self.$set(value);
                self
            }
        )*}
    };
}

fields! {
    /// The samples are not valid, and perhaps the header neither.
    invalid set_invalid with_invalid: bool = 0, 31, 1;
    /// SI seconds since the reference epoch, including leap seconds.
    seconds set_seconds with_seconds: u32 = 0, 0, 30;
    /// Half-years from 2000-01-01 00:00 UTC to the reference epoch; 6 bits, which end in 2031.
    reference_epoch set_reference_epoch with_reference_epoch: u32 = 1, 24, 6;
    /// Frame number of one thread within a second; frame 0 begins on the second.
    frame_number set_frame_number with_frame_number: u32 = 1, 0, 24;
    /// Version of the format; 0 and 1 are in use.
    version set_version with_version: u8 = 2, 29, 3;
    /// The number of channels is this power of two.
    log2_channels set_log2_channels with_log2_channels: u32 = 2, 24, 5;
    /// True if samples are pairs of a real and an imaginary part.
    complex set_complex with_complex: bool = 3, 31, 1;
    /// The thread, which distinguishes streams of one station, 0 to 1023.
    thread set_thread with_thread: u16 = 3, 16, 10;
    /// Two letters, the upper byte first, or a number.
    station set_station with_station: u16 = 3, 0, 16;
}

/// Conversion from a field's bits, already few enough for the type, to the field's type.
mod narrow {
    pub fn bool(bits: u32) -> bool {
        bits != 0
    }
    pub fn u8(bits: u32) -> u8 {
        bits as u8
    }
    pub fn u16(bits: u32) -> u16 {
        bits as u16
    }
    pub fn u32(bits: u32) -> u32 {
        bits
    }
}

impl Header {
    /// Bytes of a header that is not legacy.
    pub const BYTES: usize = 32;
    /// Bytes of a legacy header.
    pub const LEGACY_BYTES: usize = 16;
    /// The longest frame that the length field can express.
    pub const LONGEST_FRAME: u32 = 0xFF_FFFF * 8;

    /// Returns the header of eight words as in the frame, the first one lowest in memory.
    pub fn from_words(words: [u32; 8]) -> Self {
        let mut header = Header { words: words.map(U32::new) };
        if header.legacy() {
            header.words[4..].fill(U32::ZERO);
        }
        header
    }

    /// Returns the eight words; a legacy header has zeros in the last four.
    pub fn words(&self) -> [u32; 8] {
        self.words.map(U32::get)
    }

    /// Copies the header at the start of `bytes`: 32 of them, or 16 if it is a legacy header.
    #[inline]
    pub fn read(bytes: &[u8]) -> Result<Header, HeaderError> {
        if let Some(whole) = bytes.first_chunk::<{ Self::BYTES }>() {
            let mut header: Header = zerocopy::transmute!(*whole);
            if header.legacy() {
                header.words[4..].fill(U32::ZERO);
            }
            return Ok(header);
        }
        let is = bytes.len();
        let short = bytes.first_chunk::<{ Self::LEGACY_BYTES }>();
        let short = short.ok_or(HeaderError { needs: Self::LEGACY_BYTES, is })?;
        let mut header = Header { words: [U32::ZERO; 8] };
        header.words[..4].copy_from_slice(&zerocopy::transmute!(*short) as &[U32; 4]);
        if header.legacy() { Ok(header) } else { Err(HeaderError { needs: Self::BYTES, is }) }
    }

    /// Returns the bytes as in the frame, 16 or 32.
    pub fn as_bytes(&self) -> &[u8] {
        &IntoBytes::as_bytes(self)[..self.header_bytes()]
    }

    /// Returns all 32 bytes. Only the first 16 bytes of a legacy header belong into a frame.
    #[cfg(test)]
    pub(super) fn to_bytes(self) -> [u8; Self::BYTES] {
        zerocopy::transmute!(self)
    }

    /// Writes the 16 or 32 bytes to the start of `frame` and returns their number.
    pub fn write(&self, frame: &mut [u8]) -> Result<usize, HeaderError> {
        let bytes = self.as_bytes();
        let is = frame.len();
        let place = frame.get_mut(..bytes.len());
        place.ok_or(HeaderError { needs: bytes.len(), is })?.copy_from_slice(bytes);
        Ok(bytes.len())
    }

    /// True if the header ends after 16 bytes.
    #[inline]
    pub fn legacy(&self) -> bool {
        self.field(0, 30, 1) != 0
    }

    /// Ends the header after 16 bytes, which drops words 4 to 7, or extends it to 32 with zeros.
    pub fn set_legacy(&mut self, legacy: bool) {
        self.set_field(0, 30, 1, u32::from(legacy));
        if legacy {
            self.words[4..].fill(U32::ZERO);
        }
    }

    /// Returns this header as a legacy one or not, like [`Header::set_legacy`].
    #[must_use]
    pub fn with_legacy(mut self, legacy: bool) -> Self {
        self.set_legacy(legacy);
        self
    }

    /// Returns the bytes of the header: 32, or 16 for a legacy one.
    #[inline]
    pub fn header_bytes(&self) -> usize {
        if self.legacy() { Self::LEGACY_BYTES } else { Self::BYTES }
    }

    /// Returns the bytes of header and payload together.
    #[inline]
    pub fn frame_bytes(&self) -> u32 {
        self.field(2, 0, 24) * 8
    }

    /// Sets the bytes of header and payload together; panics unless it is a multiple of 8 up to
    /// [`Header::LONGEST_FRAME`].
    pub fn set_frame_bytes(&mut self, bytes: u32) {
        assert!(bytes.is_multiple_of(8), "frames are multiples of 8 bytes, not {bytes}");
        self.set_field(2, 0, 24, bytes / 8);
    }

    /// Returns this header for frames of another length; panics like [`Header::set_frame_bytes`].
    #[must_use]
    pub fn with_frame_bytes(mut self, bytes: u32) -> Self {
        self.set_frame_bytes(bytes);
        self
    }

    /// Returns the bytes of the frame without its header; 0 if the length field leaves no room for a payload.
    pub fn payload_bytes(&self) -> u32 {
        self.frame_bytes().saturating_sub(self.header_bytes() as u32)
    }

    /// Returns the number of channels in this thread.
    pub fn channels(&self) -> u32 {
        1 << self.log2_channels()
    }

    /// Returns the bits of one sample, or of each part of a complex one: 1 to 32.
    pub fn bits_per_sample(&self) -> u32 {
        self.field(3, 26, 5) + 1
    }

    /// Sets the bits of one sample (or part of a complex one); panics outside 1 to 32.
    pub fn set_bits_per_sample(&mut self, bits: u32) {
        assert!((1..=32).contains(&bits), "samples have 1 to 32 bits, not {bits}");
        self.set_field(3, 26, 5, bits - 1);
    }

    /// Returns this header with other samples; panics like [`Header::set_bits_per_sample`].
    #[must_use]
    pub fn with_bits_per_sample(mut self, bits: u32) -> Self {
        self.set_bits_per_sample(bits);
        self
    }

    /// Returns the station in its usual notation: two letters, or a number such as `0xFFFC`.
    pub fn station_text(&self) -> String {
        let letters = self.station().to_be_bytes();
        match letters {
            [b'0'..=b'~', second] if second.is_ascii_graphic() => {
                letters.map(char::from).iter().collect()
            }
            [first @ b'0'..=b'~', b' ' | 0] => char::from(first).to_string(),
            _ => format!("0x{:04X}", self.station()),
        }
    }

    /// Returns the extended data version; 0 for a legacy header.
    pub fn edv(&self) -> u8 {
        self.field(4, 24, 8) as u8
    }

    /// Returns words 4 to 7, decoded.
    pub fn extended(&self) -> Extended {
        if self.legacy() {
            return Extended::None;
        }
        let [.., four, five, six, seven] = self.words();
        Extended::decode([four, five, six, seven])
    }

    /// Sets words 4 to 7; [`Extended::None`] makes the header a legacy one, all others a full one.
    pub fn set_extended(&mut self, extended: Extended) {
        self.set_legacy(extended == Extended::None);
        self.words[4..].copy_from_slice(&extended.encode().map(U32::new));
    }

    /// Returns this header with other words 4 to 7.
    #[must_use]
    pub fn with_extended(mut self, extended: Extended) -> Self {
        self.set_extended(extended);
        self
    }

    /// Returns the second of this frame.
    #[inline]
    pub fn second(&self) -> Second {
        Second::of(self.reference_epoch(), self.seconds())
    }

    /// Moves the frame to another time. The reference epoch stays, as senders keep it, unless `second` is before it;
    /// then it becomes the half-year of `second`.
    pub fn set_time(&mut self, second: Second, frame: u32) {
        let (epoch, seconds) = second.since_epoch(self.reference_epoch());
        self.set_reference_epoch(epoch);
        self.set_seconds(seconds);
        self.set_frame_number(frame);
    }

    /// Returns the frames of this thread per second, if the extended data has the sample rate and the result is an
    /// integer. For real samples of EDV 1 half of it is possible too: some senders count real samples.
    pub fn frames_per_second(&self) -> Option<u64> {
        let hz = self.extended().sample_rate_hz()?;
        // The rate counts complex samples; two real ones replace a complex one.
        let sample_bits = u64::from(self.bits_per_sample()) * 2;
        let bits = u128::from(hz) * u128::from(sample_bits) * u128::from(self.channels());
        let frame_bits = u128::from(self.payload_bytes()) * 8;
        if bits == 0 || frame_bits == 0 || !bits.is_multiple_of(frame_bits) {
            return None;
        }
        u64::try_from(bits / frame_bits).ok()
    }

    /// Returns the header of a frame that never arrived: its neighbour's identity, its own time, marked invalid. A
    /// frame number beyond 24 bits becomes the last possible one.
    pub fn fill_like(neighbour: &Header, second: Second, frame: u32) -> Header {
        let mut header = neighbour.with_invalid(true);
        header.set_time(second, frame.min(0xFF_FFFF));
        header
    }

    #[inline]
    fn field(&self, word: usize, low: u32, width: u32) -> u32 {
        (self.words[word].get() >> low) & (u32::MAX >> (32 - width))
    }

    fn set_field(&mut self, word: usize, low: u32, width: u32, value: u32) {
        let mask = u32::MAX >> (32 - width);
        assert!(value <= mask, "{value} has more than the {width} bits of this field");
        let others = self.words[word].get() & !(mask << low);
        self.words[word].set(others | value << low);
    }
}

impl Default for Header {
    /// All zero: frame 0 of the first second of 2000, one channel of one bit, EDV 0.
    fn default() -> Self {
        Header::from_words([0; 8])
    }
}

impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Header")
            .field("invalid", &self.invalid())
            .field("legacy", &self.legacy())
            .field("reference_epoch", &self.reference_epoch())
            .field("seconds", &self.seconds())
            .field("frame_number", &self.frame_number())
            .field("version", &self.version())
            .field("channels", &self.channels())
            .field("frame_bytes", &self.frame_bytes())
            .field("complex", &self.complex())
            .field("bits_per_sample", &self.bits_per_sample())
            .field("thread", &self.thread())
            .field("station", &self.station_text())
            .field("extended", &self.extended())
            .finish()
    }
}

/// Parses a station in its usual notation: one or two letters, or a number of three digits and more (`65532`,
/// `0xFFFC`).
pub fn station_number(text: &str) -> Result<u16, StationError> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u16::from_str_radix(digits, 16).ok(),
        None if text.len() > 2 => text.parse().ok(),
        None => match *text.as_bytes() {
            [first @ b'0'..=b'~'] => Some(u16::from_be_bytes([first, b' '])),
            [first @ b'0'..=b'~', second] if second.is_ascii_graphic() => {
                Some(u16::from_be_bytes([first, second]))
            }
            _ => None,
        },
    };
    number.ok_or_else(|| StationError { text: text.chars().take(64).collect() })
}

/// Checks that a datagram is one whole VDIF frame of `expected_bytes`, header included, with a consistent header.
///
/// Time, thread and station are not checked: the valid values depend on the stream.
#[inline]
pub fn check(datagram: &[u8], expected_bytes: usize) -> Result<Header, Damage> {
    let is = datagram.len();
    let header = Header::read(datagram)
        .map_err(|HeaderError { needs, is }| Damage::TooShort { needs, is })?;
    if is != expected_bytes {
        return Err(Damage::WrongLength { expected: expected_bytes, is });
    }
    if header.frame_bytes() as usize != is {
        return Err(Damage::LengthField { says: header.frame_bytes(), is });
    }
    if is == header.header_bytes() {
        return Err(Damage::NoPayload { header_bytes: is });
    }
    if header.edv() == 0xAB && !header.invalid() {
        same_frame_numbers(&header)?;
    }
    Ok(header)
}

/// A Mark 5B header counts to 15 bits, so only these are compared.
fn same_frame_numbers(header: &Header) -> Result<(), Damage> {
    let vdif = header.frame_number();
    match header.extended() {
        Extended::Mark5b { frame, .. } if u32::from(frame) != vdif & 0x7FFF => {
            Err(Damage::FrameNumbers { vdif, mark5b: frame })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_header() -> impl Strategy<Value = Header> {
        any::<[u32; 8]>().prop_map(Header::from_words)
    }

    proptest! {
        #[test]
        fn any_bytes_read_and_written_are_the_same(bytes in prop::array::uniform32(any::<u8>())) {
            let header = Header::read(&bytes).unwrap();
            prop_assert_eq!(header.as_bytes(), &bytes[..header.header_bytes()]);
            let mut copy = bytes;
            prop_assert_eq!(header.write(&mut copy), Ok(header.header_bytes()));
            prop_assert_eq!(copy, bytes);
            prop_assert_eq!(header.with_extended(header.extended()), header);
        }

        #[test]
        fn every_field_set_to_its_own_value_changes_nothing(header in any_header()) {
            let same = header
                .with_invalid(header.invalid())
                .with_legacy(header.legacy())
                .with_seconds(header.seconds())
                .with_reference_epoch(header.reference_epoch())
                .with_frame_number(header.frame_number())
                .with_version(header.version())
                .with_log2_channels(header.log2_channels())
                .with_frame_bytes(header.frame_bytes())
                .with_complex(header.complex())
                .with_bits_per_sample(header.bits_per_sample())
                .with_thread(header.thread())
                .with_station(header.station());
            prop_assert_eq!(same, header);
        }

        #[test]
        fn a_fill_frame_is_its_neighbour_at_another_time(
            neighbour in any_header(),
            epoch in 0u32..64,
            seconds in 0u32..20_000_000,
            frame in 0u32..1 << 24,
        ) {
            let second = Second::of(epoch, seconds);
            let fill = Header::fill_like(&neighbour, second, frame);
            prop_assert!(fill.invalid());
            prop_assert_eq!(fill.second(), second);
            prop_assert_eq!(fill.frame_number(), frame);
            prop_assert_eq!(&fill.words()[2..], &neighbour.words()[2..]);
            prop_assert_eq!(fill.legacy(), neighbour.legacy());
        }
    }

    #[test]
    fn a_header_that_is_cut_short_says_how_long_it_would_be() {
        let whole = Header::default().to_bytes();
        assert_eq!(Header::read(&whole[..31]), Err(HeaderError { needs: 32, is: 31 }));
        assert_eq!(Header::read(&whole[..15]), Err(HeaderError { needs: 16, is: 15 }));
        let legacy = Header::default().with_extended(Extended::None);
        assert_eq!(Header::read(legacy.as_bytes()), Ok(legacy));
        assert_eq!(legacy.as_bytes().len(), 16);
    }

    #[test]
    fn stations_read_as_people_write_them() {
        for (text, number) in [("wz", 0x777A), ("Wz", 0x577A), ("0xFFFC", 0xFFFC), ("65532", 65532)]
        {
            assert_eq!(station_number(text), Ok(number), "{text}");
        }
        let text = |station| Header::default().with_station(station).station_text();
        assert_eq!(text(0x777A), "wz");
        assert_eq!(text(0xFFFC), "0xFFFC");
        assert_eq!(text(0x4100), "A");
        assert_eq!(text(0x410A), "0x410A", "no control character reaches a screen");
        for text in ["", "é", "70000", "0x10000", "station"] {
            assert!(station_number(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_datagram_must_be_as_long_as_the_stream_and_the_header_say() {
        let header = Header::default().with_frame_bytes(1032);
        let mut frame = vec![0; 1032];
        header.write(&mut frame).unwrap();
        assert_eq!(check(&frame, 1032), Ok(header));
        assert_eq!(check(&[], 1032), Err(Damage::TooShort { needs: 16, is: 0 }));
        assert_eq!(check(&frame[..20], 1032), Err(Damage::TooShort { needs: 32, is: 20 }));
        assert_eq!(
            check(&frame[..1024], 1032),
            Err(Damage::WrongLength { expected: 1032, is: 1024 })
        );
        header.with_frame_bytes(8032).write(&mut frame).unwrap();
        assert_eq!(check(&frame, 1032), Err(Damage::LengthField { says: 8032, is: 1032 }));
        let empty = header.with_frame_bytes(32).to_bytes();
        assert_eq!(check(&empty, 32), Err(Damage::NoPayload { header_bytes: 32 }));
    }

    #[test]
    fn a_mark_5b_header_inside_counts_the_same_frame() {
        let inside = |frame| Extended::Mark5b {
            user: 0,
            test_pattern: false,
            frame,
            time: 0,
            fraction: 0,
            crc: 0,
        };
        let header = Header::default().with_frame_bytes(10_032).with_frame_number(7);
        let mut frame = vec![0; 10_032];
        header.with_extended(inside(7)).write(&mut frame).unwrap();
        assert!(check(&frame, 10_032).is_ok());
        header.with_extended(inside(8)).write(&mut frame).unwrap();
        assert_eq!(check(&frame, 10_032), Err(Damage::FrameNumbers { vdif: 7, mark5b: 8 }));
    }

    #[test]
    fn a_fill_frame_before_an_epoch_change_gets_the_epoch_before() {
        let neighbour = Header::default().with_reference_epoch(34).with_seconds(0);
        let leap_second = Second(neighbour.second().0 - 1);
        let fill = Header::fill_like(&neighbour, leap_second, 5);
        assert_eq!((fill.reference_epoch(), fill.seconds()), (33, 184 * 86_400));
        assert_eq!(fill.second(), leap_second);
    }
}
