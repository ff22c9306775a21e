//! Packets of data, context and version, written word by word.

use super::difi;
use super::packet::{ClassId, Epoch, Fraction, Kind, Prologue, Trailer};

/// Bytes of the prologue of a DIFI packet.
pub const DIFI_PROLOGUE_BYTES: usize = 28;

/// Bytes of the prologue of a packet with a stream id, seconds and picoseconds, but without a class id.
pub const PLAIN_PROLOGUE_BYTES: usize = 20;

/// Writes a prologue to the start of a packet, and returns its bytes; `None` if the packet is shorter.
pub fn prologue(prologue: &Prologue, packet: &mut [u8]) -> Option<usize> {
    let kind = match (prologue.kind, prologue.stream) {
        (Kind::Data, None) => 0,
        (Kind::Data, Some(_)) => 1,
        (Kind::ExtensionData, None) => 2,
        (Kind::ExtensionData, Some(_)) => 3,
        (Kind::Context, _) => 4,
        (Kind::ExtensionContext, _) => 5,
        (Kind::Command, _) => 6,
        (Kind::ExtensionCommand, _) => 7,
    };
    let tsi = match prologue.seconds {
        None => 0,
        Some((Epoch::Utc, _)) => 1,
        Some((Epoch::Gps, _)) => 2,
        Some((Epoch::Other, _)) => 3,
    };
    let (tsf, fraction) = match prologue.fraction {
        Fraction::None => (0, None),
        Fraction::Samples(count) => (1, Some(count)),
        Fraction::Picoseconds(ps) => (2, Some(ps)),
        Fraction::Free(count) => (3, Some(count)),
    };
    let first = kind << 28
        | u32::from(prologue.class.is_some()) << 27
        | u32::from(prologue.has_trailer) << 26
        | tsi << 22
        | tsf << 20
        | u32::from(prologue.count & 15) << 16
        | u32::from(prologue.words);
    let class = prologue.class.map(|class| {
        let organization = u32::from(class.pad_bits & 31) << 27 | class.oui & 0xFF_FFFF;
        [organization, u32::from(class.information) << 16 | u32::from(class.packet)]
    });
    let words = std::iter::once(first)
        .chain(prologue.stream)
        .chain(class.into_iter().flatten())
        .chain(prologue.seconds.map(|(_, second)| second))
        .chain(fraction.into_iter().flat_map(|wide| [(wide >> 32) as u32, wide as u32]));
    let place = packet.get_mut(..prologue.bytes())?;
    for (place, word) in place.as_chunks_mut::<4>().0.iter_mut().zip(words) {
        *place = word.to_be_bytes();
    }
    Some(prologue.bytes())
}

/// The time of a packet: UTC seconds since 1970, and picoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Seconds.
    pub seconds: u32,
    /// Picoseconds of the second.
    pub picoseconds: u64,
}

/// Returns the prologue of a DIFI packet with a payload of this many words.
pub fn difi_prologue(kind: Kind, stream: u32, stamp: Stamp, count: u8, words: u16) -> Prologue {
    let (information, packet) = match kind {
        Kind::Context => (0, difi::CONTEXT),
        Kind::ExtensionContext => (1, difi::VERSION),
        _ => (0, difi::DATA),
    };
    let class = Some(ClassId { pad_bits: 0, oui: difi::OUI, information, packet });
    let plain = plain_prologue(kind, stream, stamp, count, words);
    Prologue { class, words: plain.words.saturating_add(2), ..plain }
}

/// Returns the prologue of a packet without a class id, with a payload of this many words.
pub fn plain_prologue(kind: Kind, stream: u32, stamp: Stamp, count: u8, words: u16) -> Prologue {
    Prologue {
        kind,
        stream: Some(stream),
        class: None,
        seconds: Some((Epoch::Utc, stamp.seconds)),
        fraction: Fraction::Picoseconds(stamp.picoseconds),
        has_trailer: false,
        count: count & 15,
        words: words.saturating_add(PLAIN_PROLOGUE_BYTES as u16 / 4),
    }
}

/// The values of a context packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Values {
    /// True if one of them has changed.
    pub changed: bool,
    /// Bandwidth, in hertz.
    pub bandwidth: u64,
    /// Reference frequency, in hertz.
    pub rf_frequency: i64,
    /// Reference level, in units of 2^-7 dBm.
    pub reference_level: i16,
    /// Gain of the first stage, in units of 2^-7 dB.
    pub gain: i16,
    /// Sample rate, in hertz.
    pub sample_rate: u64,
    /// The payload format of the data packets.
    pub payload_format: u64,
}

/// The payload format of complex samples of 16 bits.
pub const COMPLEX_16: u64 = 0xA000_03CF_0000_0000;

/// Returns the payload format of complex samples, each half of which has this many bits: signed integers, packed without
/// gaps.
pub fn complex_format(bits: u32) -> u64 {
    let size = u64::from(bits.saturating_sub(1) & 63);
    (0xA000_0000 | size << 6 | size) << 32
}

/// Returns a DIFI context packet of 27 words.
pub fn context(stream: u32, stamp: Stamp, count: u8, values: &Values) -> Vec<u8> {
    context_behind(difi_prologue(Kind::Context, stream, stamp, count, 0), values)
}

/// Returns a context packet with the fields of DIFI behind a prologue, whose size is set.
pub fn context_behind(start: Prologue, values: &Values) -> Vec<u8> {
    let wide = |value: u64| [(value >> 32) as u32, value as u32];
    let [bandwidth, rate] = [values.bandwidth, values.sample_rate].map(|hz| wide(hz << 20));
    let frequency = wide((values.rf_frequency << 20).cast_unsigned());
    let level = |value: i16| u32::from(value.cast_unsigned());
    let format = wide(values.payload_format);
    let calibrated = start.seconds.map_or(0, |(_, seconds)| seconds);
    let cif0 = if values.changed { 0xFBB9_8000 } else { 0x7BB9_8000 };
    let words = [
        [cif0, 100].as_slice(),
        &bandwidth,
        &[0, 0],
        &frequency,
        &[0, 0],
        &[level(values.reference_level), level(values.gain)],
        &rate,
        &[0, 0, calibrated, 0xA00A_0000],
        &format,
    ]
    .concat();
    let size = (start.bytes() / 4 + words.len()) as u16;
    whole(&Prologue { words: size, ..start }, &words)
}

/// Returns a DIFI version packet of 11 words. `date` is year since 2000 (7 bits), day of the year (9), revision and
/// type of the software (6 and 10 bits).
pub fn version(stream: u32, stamp: Stamp, count: u8, date: u32) -> Vec<u8> {
    let words = [0x8000_0002, 0x0000_000C, 4, date];
    whole(&difi_prologue(Kind::ExtensionContext, stream, stamp, count, 4), &words)
}

fn whole(start: &Prologue, words: &[u32]) -> Vec<u8> {
    let mut packet = vec![0; start.bytes()];
    prologue(start, &mut packet).expect("it has the bytes of the prologue");
    packet.extend(words.iter().flat_map(|word| word.to_be_bytes()));
    packet
}

/// Writes a trailer to the end of a packet; false if the packet is shorter.
pub fn trailer(trailer: Trailer, packet: &mut [u8]) -> bool {
    let place = packet.last_chunk_mut::<4>();
    place.map(|place| *place = trailer.0.to_be_bytes()).is_some()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::vita49::{Context, Packet};

    const STAMP: Stamp = Stamp { seconds: 1_700_000_000, picoseconds: 250_000_000_000 };

    const VALUES: Values = Values {
        changed: true,
        bandwidth: 6_000_000,
        rf_frequency: 1_575_420_000,
        reference_level: -512,
        gain: 768,
        sample_rate: 8_000_000,
        payload_format: COMPLEX_16,
    };

    #[test]
    fn context_reads_back_and_keeps_the_rules_of_difi() {
        let bytes = context(7, STAMP, 3, &VALUES);
        assert_eq!(bytes.len(), 108);
        let packet = Packet::read(&bytes).unwrap();
        assert_eq!(difi::check(&packet.prologue), Ok(()));
        let read = Context::read(&packet).unwrap();
        assert_eq!((read.bandwidth, read.sample_rate), (Some(6e6), Some(8e6)));
        assert_eq!((read.rf_frequency, read.reference_level), (Some(1_575_420_000.0), Some(-4.0)));
        assert_eq!((read.gain, read.payload_format), (Some((6.0, 0.0)), Some(COMPLEX_16)));
    }

    #[test]
    fn context_without_a_class_has_the_same_fields() {
        let start = plain_prologue(Kind::Context, 7, STAMP, 3, 0);
        let bytes = context_behind(start, &VALUES);
        let (plain, difi) = (Packet::read(&bytes).unwrap(), context(7, STAMP, 3, &VALUES));
        assert_eq!((bytes.len(), plain.prologue.class), (100, None));
        assert_eq!(plain.payload, Packet::read(&difi).unwrap().payload);
        assert_eq!(
            [4, 8, 12, 16].map(complex_format),
            [0xA000_00C3_0000_0000, 0xA000_01C7_0000_0000, 0xA000_02CB_0000_0000, COMPLEX_16]
        );
    }

    #[test]
    fn version_has_the_words_of_the_standard() {
        let bytes = version(7, STAMP, 15, 0x3529_0001);
        let head = *b"\x58\x6f\x00\x0b\x00\x00\x00\x07\x00\x6a\x62\x1e\x00\x01\x00\x04";
        assert_eq!(bytes[..16], head);
        assert_eq!(bytes[28..36], *b"\x80\x00\x00\x02\x00\x00\x00\x0c");
        assert_eq!(
            (bytes.len(), difi::check(&Packet::read(&bytes).unwrap().prologue)),
            (44, Ok(()))
        );
    }

    #[test]
    fn packets_that_break_a_rule_of_difi_are_told() {
        let good = difi_prologue(Kind::Data, 1, STAMP, 0, 10);
        assert_eq!(difi::check(&good), Ok(()));
        let broken = |change: fn(&mut Prologue)| {
            let mut other = good;
            change(&mut other);
            difi::check(&other).unwrap_err()
        };
        assert_eq!(broken(|it| it.class = None), difi::Broken::Class);
        assert_eq!(broken(|it| it.stream = None), difi::Broken::Type);
        assert_eq!(broken(|it| it.seconds = None), difi::Broken::Time);
        assert_eq!(broken(|it| it.has_trailer = true), difi::Broken::Trailer);
        let context = difi_prologue(Kind::Context, 1, STAMP, 0, 10);
        assert_eq!(difi::check(&context), Err(difi::Broken::Size { words: 17 }));
    }

    proptest! {
        #[test]
        fn any_prologue_reads_back_as_written(
            first: u32, words in prop::collection::vec(any::<u32>(), 6), more in 0u16..20,
        ) {
            // Bits 25 and 24 have a meaning that no prologue keeps.
            let first = first & 0x7CFF_0000 | u32::from(8 + more);
            let bytes: Vec<u8> = std::iter::once(first).chain(words).flat_map(u32::to_be_bytes).collect();
            if let Ok(read) = Prologue::read(&bytes) {
                let mut written = vec![0; bytes.len()];
                let length = prologue(&read, &mut written).unwrap();
                let again = Prologue::read(&written).unwrap();
                prop_assert_eq!(again, read);
                prop_assert_eq!(length, read.bytes());
            }
        }
    }
}
