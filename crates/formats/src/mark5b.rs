//! Mark 5B, an older frame format of VLBI: a header of 16 bytes, then 10 000 bytes of samples.
//!
//! ```text
//! word  31 … 16                        15             14 … 0
//! 0     sync word 0xABADDEED
//! 1     user bits                      test pattern   frame within the second
//! 2     day (3 BCD digits of the MJD) ─ 20            second of the day (5 BCD digits)
//! 3     fraction (4 BCD digits: 0.1 ms)               CRC of word 2 and the fraction
//! ```
//!
//! In memory, a frame has the header of the VDIF frame that would carry it (EDV 0xAB): station and thread are 0, and
//! words 4 to 7 are those above.
//!
//! - The day has three digits, so a codec knows a day within 500 days of the frames.
//! - No bit marks a frame as invalid. A fill frame has a header with its own time and the fill word as payload.
//! - The CRC is written and not checked: some formatters leave it out. A time code with a digit above 9 is damage.

use std::sync::LazyLock;

use fullbore_time::{Day, mjd_of_half_year};

use super::Damage;
use super::framed::FrameFormat;
use super::vdif::mark5b::{crc_of, fraction, of_bcd, time_code};
use super::vdif::{Extended, Header, Second};

/// Bytes of a header.
const HEADER_BYTES: usize = 16;

/// Bytes of a frame.
const FRAME_BYTES: usize = 10_016;

/// The first word of every frame.
const SYNC: u32 = 0xABAD_DEED;

/// Word 2 of the VDIF header around a frame: the length of the VDIF frame ÷ 8.
const AROUND: u32 = ((Header::BYTES + FRAME_BYTES - HEADER_BYTES) / 8) as u32;

/// The most frames in a second, by the bits of the frame number.
const MOST_FRAMES: u32 = 1 << 15;

/// The first days of the half-years that a VDIF header can express.
static HALF_YEARS: LazyLock<[u32; 64]> =
    LazyLock::new(|| std::array::from_fn(|epoch| mjd_of_half_year(epoch as u32)));

/// The format of Mark 5B frames.
pub struct Mark5b;

impl FrameFormat for Mark5b {
    const NAME: &'static str = "mark5b";
    const TITLE: &'static str = "Mark 5B";
    const HEAD_BYTES: usize = HEADER_BYTES;
    const FRAME_BYTES: Option<u32> = Some(FRAME_BYTES as u32);
    const HEADER_BYTES: u32 = HEADER_BYTES as u32;
    const TIME_BYTES: usize = HEADER_BYTES;
    const MARKS_INVALID: bool = false;
    const STATES_LENGTH: bool = false;
    const THREADS: u16 = 1;
    const MOST_FRAMES: u64 = MOST_FRAMES as u64;
    const PARTS: usize = 2;

    // Inlined, it makes reading VDIF 3 ns slower: callers would keep more registers.
    #[inline(never)]
    fn read(head: &[u8], near: Day) -> Option<Header> {
        header(words(head)?, near).ok()
    }

    #[inline(never)]
    fn check(frame: &[u8], expected_bytes: usize, near: Day) -> Result<Header, Damage> {
        let is = frame.len();
        let words = words(frame).ok_or(Damage::TooShort { needs: HEADER_BYTES, is })?;
        let header = header(words, near)?;
        if is != FRAME_BYTES || expected_bytes != FRAME_BYTES {
            return Err(Damage::WrongLength { expected: FRAME_BYTES, is });
        }
        Ok(header)
    }

    fn write(header: &Header, frame: &mut [u8]) -> Option<usize> {
        let place = frame.first_chunk_mut::<HEADER_BYTES>()?;
        let words = encode(header).encode();
        for (bytes, word) in place.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
        }
        Some(HEADER_BYTES)
    }

    fn header_bytes(_: &Header) -> usize {
        HEADER_BYTES
    }

    fn frame_bytes(_: &Header) -> u32 {
        FRAME_BYTES as u32
    }

    fn fill_header(neighbour: &Header, second: Second, frame: u32, rate: Option<u64>) -> Header {
        let mut header = *neighbour;
        header.set_time(second, frame.min(MOST_FRAMES - 1));
        let Extended::Mark5b { user, test_pattern, frame, time, crc, .. } = encode(&header) else {
            return header;
        };
        let fraction = fraction(&header, rate);
        header.with_extended(Extended::Mark5b { user, test_pattern, frame, time, fraction, crc })
    }

    fn refuse_length(bytes: u32) -> Option<String> {
        let why = || format!("Mark 5B frames have {FRAME_BYTES} bytes");
        (bytes as usize != FRAME_BYTES).then(why)
    }
}

#[inline]
fn words(bytes: &[u8]) -> Option<[u32; 4]> {
    let chunks = bytes.first_chunk::<HEADER_BYTES>()?.as_chunks::<4>().0;
    Some(std::array::from_fn(|at| u32::from_le_bytes(chunks[at])))
}

/// Returns the header of the VDIF frame around a frame with these words.
#[inline]
fn header(words: [u32; 4], near: Day) -> Result<Header, Damage> {
    let [sync, number, time, last] = words;
    if sync != SYNC {
        return Err(Damage::NoSync { expected: SYNC, is: sync });
    }
    let code = || Damage::TimeCode { is: time };
    let day = of_bcd(time >> 20).ok_or_else(code)?;
    // A leap second is second 86 400 of its day.
    let second = of_bcd(time & 0xF_FFFF).filter(|second| *second <= 86_400).ok_or_else(code)?;
    let day = nearest(day, near);
    let epoch = HALF_YEARS.partition_point(|start| *start <= day).saturating_sub(1);
    let seconds = (day - HALF_YEARS[epoch]) * 86_400 + second;
    let place = (epoch as u32) << 24 | number & (MOST_FRAMES - 1);
    Ok(Header::from_words([seconds & 0x3FFF_FFFF, place, AROUND, 0, sync, number, time, last]))
}

/// Returns the day nearest to another one whose last three digits are these, within the years that VDIF can express.
#[inline]
fn nearest(digits: u32, near: Day) -> u32 {
    let first = near.0.saturating_sub(500).clamp(HALF_YEARS[0], HALF_YEARS[63]);
    first + (digits + 1000 - first % 1000) % 1000
}

/// Returns the Mark 5B words for a header: user bits and fraction as they are, the rest from its time.
fn encode(header: &Header) -> Extended {
    let (user, test_pattern, fraction) = match header.extended() {
        Extended::Mark5b { user, test_pattern, fraction, .. } => (user, test_pattern, fraction),
        _ => (0, false, 0),
    };
    let frame = (header.frame_number() & (MOST_FRAMES - 1)) as u16;
    let time = time_code(header);
    let crc = crc_of(time, fraction);
    Extended::Mark5b { user, test_pattern, frame, time, fraction, crc }
}

#[cfg(test)]
mod tests {
    use fullbore_time::Tai;
    use proptest::prelude::*;

    use super::*;
    use crate::framed::{FrameCodec, FrameKind};

    /// The headers of the four frames in baseband's `SAMPLE_MARK5B`: MJD 56821, 6400 frames a second.
    const SAMPLE: [[u8; 16]; 4] = [
        *b"\xed\xde\xad\xab\x00\x00\xad\xbe\x01\x98\x11\x82\x5d\x97\x00\x00",
        *b"\xed\xde\xad\xab\x01\x00\xad\xbe\x01\x98\x11\x82\x58\x17\x01\x00",
        *b"\xed\xde\xad\xab\x02\x00\xad\xbe\x01\x98\x11\x82\x57\x97\x03\x00",
        *b"\xed\xde\xad\xab\x03\x00\xad\xbe\x01\x98\x11\x82\x46\x17\x04\x00",
    ];

    fn codec(near: &str) -> FrameCodec {
        FrameCodec::new(FrameKind::Mark5b, near.parse().unwrap())
    }

    fn frame(head: [u8; 16]) -> Vec<u8> {
        let mut frame = vec![0x55; FRAME_BYTES];
        frame[..HEADER_BYTES].copy_from_slice(&head);
        frame
    }

    #[test]
    fn sample_headers_have_the_times_that_baseband_reads() {
        // `baseband.mark5b.open(SAMPLE_MARK5B, 'rb', kday=56000, nchan=8, bps=2)`.
        let codec = codec("2014-01-01T00:00:00Z");
        let second: Tai = "2014-06-13T05:30:01Z".parse().unwrap();
        for (number, head) in SAMPLE.into_iter().enumerate() {
            let header = codec.check(&frame(head), FRAME_BYTES).unwrap();
            assert_eq!(header.second().start(), second);
            assert_eq!(header.frame_number(), number as u32);
            assert_eq!((header.station(), header.thread(), header.invalid()), (0, 0, false));
            assert_eq!((codec.frame_bytes(&header), header.payload_bytes()), (10_016, 10_000));
            let mut written = [0; HEADER_BYTES];
            assert_eq!(codec.write(&header, &mut written), Some(HEADER_BYTES));
            assert_eq!(written, head);
        }
    }

    #[test]
    fn the_day_is_the_one_near_the_reference() {
        let day = |near: &str| {
            codec(near).read(&SAMPLE[0]).unwrap().second().start().to_string()[..10].to_owned()
        };
        assert_eq!(day("2013-02-01T00:00:00Z"), "2014-06-13");
        assert_eq!(day("2015-10-01T00:00:00Z"), "2014-06-13");
        assert_eq!(day("2026-11-24T00:00:00Z"), "2028-02-20");
        assert_eq!(day("1990-01-01T00:00:00Z"), "2000-10-04");
    }

    #[test]
    fn damage_is_told() {
        let codec = codec("2014-01-01T00:00:00Z");
        let damage = |at: usize, byte: u8| {
            let mut broken = frame(SAMPLE[1]);
            broken[at] = byte;
            codec.check(&broken, FRAME_BYTES).unwrap_err().to_string()
        };
        assert_eq!(damage(0, 0), "the sync word is 0xABADDE00 instead of 0xABADDEED");
        assert_eq!(damage(11, 0xA2), "the time code 0xA2119801 is no day and second");
        assert_eq!(damage(10, 0x19), "the time code 0x82199801 is no day and second");
        let whole = frame(SAMPLE[1]);
        assert!(matches!(codec.check(&whole[..10_000], 10_000), Err(Damage::WrongLength { .. })));
        assert!(matches!(codec.check(&whole[..15], 15), Err(Damage::TooShort { .. })));
    }

    #[test]
    fn a_leap_second_is_the_last_of_its_day() {
        // 2016-12-31 is MJD 57753.
        let mut head = SAMPLE[0];
        head[8..12].copy_from_slice(&0x7538_6400u32.to_le_bytes());
        let header = codec("2016-06-01T00:00:00Z").read(&head).unwrap();
        assert_eq!(header.second().start().to_string(), "2016-12-31T23:59:60.000000Z");
    }

    proptest! {
        #[test]
        fn any_header_reads_back_as_written(
            day in 51_600u32..63_000, second in 0u32..86_400, number in 0u32..32_768, user: u16,
            off in -490i32..490, tenths in 0u16..10,
        ) {
            let near = Day(day.saturating_add_signed(off).max(52_100));
            let (epoch, mut around) = (HALF_YEARS.partition_point(|it| *it <= day) - 1, Header::default());
            around.set_reference_epoch(epoch as u32);
            around.set_seconds((day - HALF_YEARS[epoch]) * 86_400 + second);
            around.set_frame_number(number);
            around.set_frame_bytes(10_032);
            let extended = Extended::Mark5b {
                user, test_pattern: false, frame: 0, time: 0, fraction: tenths, crc: 0,
            };
            around.set_extended(extended);
            let mut head = [0; HEADER_BYTES];
            Mark5b::write(&around, &mut head).unwrap();
            let read = Mark5b::read(&head, near).unwrap();
            if near.0.abs_diff(day) < 500 {
                prop_assert_eq!(read.second(), around.second());
            }
            prop_assert_eq!(read.frame_number(), number);
            let mut again = [0; HEADER_BYTES];
            Mark5b::write(&read, &mut again).unwrap();
            prop_assert_eq!(again, head);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..40), near in 0u32..100_000) {
            let mut bytes = bytes;
            let _ = Mark5b::read(&bytes, Day(near));
            if bytes.len() >= 4 {
                bytes[..4].copy_from_slice(&SYNC.to_le_bytes());
            }
            let _ = Mark5b::check(&bytes, bytes.len(), Day(near));
        }
    }
}
