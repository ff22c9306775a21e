//! The Mark 5B header inside a VDIF header (EDV 0xAB): its time code and checksum.
//!
//! ```text
//! word  31 … 16                        15             14 … 0
//! 0     sync word 0xABADDEED
//! 1     user bits                      test pattern   frame within the second
//! 2     day (3 BCD digits of the MJD) ─ 20            second of the day (5 BCD digits)
//! 3     fraction (4 BCD digits: 0.1 ms)               CRC of word 2 and the fraction
//! ```

use super::{Extended, Header};

/// Returns the Mark 5B header for the time in a VDIF header (EDV 0xAB). With `None` the fraction of the second is left
/// out.
pub fn mark5b(header: &Header, frames_per_second: Option<u64>) -> Extended {
    let (time, fraction) = (time_code(header), fraction(header, frames_per_second));
    Extended::Mark5b {
        user: 0,
        test_pattern: false,
        frame: (header.frame_number() & 0x7FFF) as u16,
        time,
        fraction,
        crc: crc_of(time, fraction),
    }
}

/// Returns the CRC of time and fraction.
pub fn crc_of(time: u32, fraction: u16) -> u16 {
    crc16(u64::from(time) << 16 | u64::from(fraction))
}

/// Returns the four digits after the second's decimal point; 0 if the rate is not known.
pub fn fraction(header: &Header, frames_per_second: Option<u64>) -> u16 {
    let tenths_of_ms = frames_per_second
        .filter(|rate| *rate > 0)
        .map_or(0, |rate| (u64::from(header.frame_number()) * 10_000 / rate).min(9999));
    bcd(tenths_of_ms as u32) as u16
}

/// Returns three digits of the modified Julian date and five of the second of the day.
pub fn time_code(header: &Header) -> u32 {
    const DAY: u32 = 86_400;
    let first = fullbore_time::mjd_of_half_year(header.reference_epoch());
    let day = (first + header.seconds() / DAY) % 1000;
    bcd(day) << 20 | bcd(header.seconds() % DAY)
}

/// Returns decimal digits, four bits each.
pub fn bcd(mut number: u32) -> u32 {
    let (mut digits, mut shift) = (0, 0);
    while number > 0 && shift < 32 {
        digits |= (number % 10) << shift;
        (number, shift) = (number / 10, shift + 4);
    }
    digits
}

/// Returns the number that these decimal digits of four bits each stand for; `None` if one of them is above 9.
#[inline]
pub fn of_bcd(digits: u32) -> Option<u32> {
    let mut number = 0;
    for at in (0..8).rev() {
        let digit = digits >> (4 * at) & 0xF;
        if digit > 9 {
            return None;
        }
        number = number * 10 + digit;
    }
    Some(number)
}

/// The CRC of the 48 bits of a Mark 5B time: x¹⁶ + x¹⁵ + x² + 1, from 0.
fn crc16(bits: u64) -> u16 {
    let mut crc = 0u16;
    for at in (0..48).rev() {
        let feed = (crc >> 15 == 1) != (bits >> at & 1 == 1);
        crc = crc << 1 ^ if feed { 0x8005 } else { 0 };
    }
    crc
}

#[cfg(test)]
mod tests {
    use super::super::{Second, SecondCount};
    use super::*;

    #[test]
    fn a_mark_5b_time_is_day_and_second_of_the_vdif_time() {
        let mut header = Header::default().with_reference_epoch(28);
        header.set_time(Second::of(28, 86_400 * 2 + 12_345), 250);
        let Extended::Mark5b { time, fraction, crc, frame, .. } = mark5b(&header, Some(1000))
        else {
            panic!("it is a Mark 5B header")
        };
        // 2014-01-01 is MJD 56658.
        assert_eq!((time, fraction, frame), (0x6601_2345, 0x2500, 250));
        assert_eq!(crc, crc16(0x6601_2345_2500));
        let disagrees = |header: Header| {
            let mut count = SecondCount::default();
            count.take(&header, None);
            count.found().disagreements
        };
        let whole = header.with_extended(mark5b(&header, None));
        assert_eq!(disagrees(whole), 0);
        assert_eq!(disagrees(whole.with_seconds(86_400 * 2 + 12_346)), 1);
        let Extended::Mark5b { user, test_pattern, frame, fraction, crc, .. } = whole.extended()
        else {
            panic!("it is a Mark 5B header")
        };
        let none = Extended::Mark5b { user, test_pattern, frame, time: 0, fraction, crc };
        assert_eq!(disagrees(header.with_extended(none)), 0, "some leave it out");
    }

    #[test]
    fn digits_of_a_number_read_back() {
        for number in [0, 7, 10, 86_400, 99_999_999] {
            assert_eq!(of_bcd(bcd(number)), Some(number));
        }
        assert_eq!(of_bcd(0xA), None);
    }
}
