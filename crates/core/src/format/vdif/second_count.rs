//! What some extended data count beside the time of the frame, and whether the two agree.
//!
//! | EDV | second count | disagrees |
//! |---|---|---|
//! | 2 | packet number | if it does not go on as the frames do |
//! | 4 | mask of channels with data | if it says that a frame not marked invalid has none |
//! | 0xAB | day and second of the Mark 5B header | if it is another second |

use super::{Extended, Header};

/// The second count of one thread.
#[derive(Clone, Debug, Default)]
pub struct SecondCount {
    /// The last frame whose packet number agreed.
    last: Option<Seen>,
    /// A frame after it whose packet number did not.
    other: Option<Seen>,
    /// Packet numbers from frame to frame: more than one if they count several threads together.
    stride: Option<i64>,
    found: Found,
}

/// What was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Frames whose second count is not that of their time.
    pub disagreements: u64,
    /// Frames of which channels have no data, by the mask of EDV 4.
    pub masked: u64,
}

impl Found {
    /// Adds what else was found.
    pub fn add(&mut self, more: Found) {
        self.disagreements += more.disagreements;
        self.masked += more.masked;
    }
}

/// A packet number, and the frame that carries it.
#[derive(Clone, Copy, Debug)]
struct Seen {
    header: Header,
    psn: i64,
}

/// The most packet numbers from one frame to the next: a number for each of all threads.
const MOST_THREADS: i64 = 1024;

impl SecondCount {
    /// Takes a frame of the thread, in any order. The time of frames marked invalid may be wrong, so they
    /// are passed over.
    #[inline]
    pub fn take(&mut self, header: &Header, frames_per_second: Option<u64>) {
        if matches!(header.edv(), 2 | 4 | 0xAB) && !header.invalid() {
            self.look(header, frames_per_second);
        }
    }

    /// The same for a number that stands before the frame.
    #[inline]
    pub fn take_number(&mut self, header: &Header, psn: i64, frames_per_second: Option<u64>) {
        if !header.invalid() && !self.goes_on(Seen { header: *header, psn }, frames_per_second) {
            self.found.disagreements += 1;
        }
    }

    /// Gives what was found since it was last asked.
    pub fn found(&mut self) -> Found {
        std::mem::take(&mut self.found)
    }

    fn look(&mut self, header: &Header, frames_per_second: Option<u64>) {
        let disagrees = match header.extended() {
            Extended::AlmaR2dbe { psn, .. } => {
                let seen = Seen { header: *header, psn: psn.cast_signed() };
                !self.goes_on(seen, frames_per_second)
            }
            Extended::Mask { length, validity, .. } => {
                let all = u64::MAX.checked_shr(64 - u32::from(length.min(64))).unwrap_or(0);
                self.found.masked += u64::from(validity & all != all);
                length > 0 && validity & all == 0
            }
            // Some headers leave the time out.
            Extended::Mark5b { time, .. } => time != 0 && time != mark5b_time(header),
            _ => false,
        };
        self.found.disagreements += u64::from(disagrees);
    }

    /// Whether a packet number goes on from the last one. A new count is believed once two frames agree on it.
    fn goes_on(&mut self, seen: Seen, frames_per_second: Option<u64>) -> bool {
        let stride = |before: Option<Seen>| before?.stride(seen, frames_per_second);
        let agrees = match stride(self.last) {
            None => true,
            Some(Stride::Of(stride)) => *self.stride.get_or_insert(stride) == stride,
            Some(Stride::No) => false,
        };
        let anew = match stride(self.other) {
            Some(Stride::Of(stride)) => Some(stride),
            _ => None,
        };
        match (agrees, anew) {
            (true, _) => (self.last, self.other) = (Some(seen), None),
            (false, Some(_)) => {
                (self.last, self.other, self.stride) = (Some(seen), None, anew);
            }
            (false, None) => self.other = Some(seen),
        }
        agrees || anew.is_some()
    }
}

/// How packet numbers went on.
enum Stride {
    /// By so much from frame to frame.
    Of(i64),
    /// Not as the frames did.
    No,
}

impl Seen {
    /// From this frame to another; `None` if it is not known how many frames lie between, or if nothing is counted.
    fn stride(self, after: Seen, frames_per_second: Option<u64>) -> Option<Stride> {
        let seconds = after.header.second().after(self.header.second());
        let mut frames =
            i64::from(after.header.frame_number()) - i64::from(self.header.frame_number());
        if seconds != 0 {
            let rate = i64::try_from(frames_per_second?).ok()?;
            frames = frames.saturating_add(seconds.saturating_mul(rate));
        }
        let numbers = after.psn.wrapping_sub(self.psn);
        if frames == 0 || (numbers == 0 && after.psn == 0) {
            return None;
        }
        let stride = numbers.checked_div(frames).filter(|it| (1..=MOST_THREADS).contains(it));
        let whole = stride.filter(|it| it.checked_mul(frames) == Some(numbers));
        Some(whole.map_or(Stride::No, Stride::Of))
    }
}

/// The Mark 5B header that belongs to the time in a VDIF header (EDV 0xAB). `None` leaves the part of the
/// second out.
pub fn mark5b(header: &Header, frames_per_second: Option<u64>) -> Extended {
    let tenths_of_ms = frames_per_second
        .filter(|rate| *rate > 0)
        .map_or(0, |rate| (u64::from(header.frame_number()) * 10_000 / rate).min(9999));
    let (time, fraction) = (mark5b_time(header), bcd(tenths_of_ms as u32) as u16);
    Extended::Mark5b {
        user: 0,
        test_pattern: false,
        frame: (header.frame_number() & 0x7FFF) as u16,
        time,
        fraction,
        crc: crc16(u64::from(time) << 16 | u64::from(fraction)),
    }
}

/// Three digits of the modified Julian date and five of the second of the day.
fn mark5b_time(header: &Header) -> u32 {
    const DAY: u32 = 86_400;
    let first = crate::time::mjd_of_half_year(header.reference_epoch());
    let day = (first + header.seconds() / DAY) % 1000;
    bcd(day) << 20 | bcd(header.seconds() % DAY)
}

/// Decimal digits, four bits each.
fn bcd(mut number: u32) -> u32 {
    let (mut digits, mut shift) = (0, 0);
    while number > 0 && shift < 32 {
        digits |= (number % 10) << shift;
        (number, shift) = (number / 10, shift + 4);
    }
    digits
}

/// The check of the 48 bits of a Mark 5B time: x¹⁶ + x¹⁵ + x² + 1, from 0.
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
    use proptest::prelude::*;

    use super::super::{Backend, Second};
    use super::*;

    const RATE: u64 = 100;

    fn numbered(index: u64, psn: u64) -> Header {
        let mut header = Header::default().with_reference_epoch(53);
        header.set_time(Second::of(53, (index / RATE) as u32), (index % RATE) as u32);
        let backend = Backend::Alma {
            version: 0xA5EA5,
            polarisation: 0,
            quadrant: 0,
            correlator: 0,
            status: 0,
        };
        header.with_extended(Extended::AlmaR2dbe { backend, psn })
    }

    fn disagreements(headers: impl IntoIterator<Item = Header>) -> u64 {
        let mut count = SecondCount::default();
        headers.into_iter().for_each(|header| count.take(&header, Some(RATE)));
        count.found().disagreements
    }

    proptest! {
        #[test]
        fn numbers_that_go_on_agree_in_any_order_with_any_loss(
            mut frames in prop::collection::vec(0u64..1000, 1..60),
            start in any::<u64>(),
            threads in 1u64..9,
        ) {
            frames.sort_unstable();
            frames.dedup();
            let mut swapped = frames.clone();
            swapped.chunks_exact_mut(2).for_each(|pair| pair.swap(0, 1));
            for frames in [frames, swapped] {
                let headers = frames.iter().map(|index| {
                    numbered(*index, start.wrapping_add(index * threads))
                });
                prop_assert_eq!(disagreements(headers), 0);
            }
        }

        #[test]
        fn each_wrong_number_is_counted_once(wrong in prop::collection::btree_set(1u64..300, 0..20)) {
            let alone: Vec<u64> =
                wrong.iter().copied().filter(|it| !wrong.contains(&(it + 1))).collect();
            let headers = (0..302).map(|index| {
                let off = if alone.contains(&index) { 1 << 40 } else { 0 };
                numbered(index, 7 + index + off)
            });
            prop_assert_eq!(disagreements(headers), alone.len() as u64);
        }
    }

    #[test]
    fn a_count_that_jumps_and_goes_on_disagrees_once() {
        let headers =
            (0..50).map(|index| numbered(index, if index < 20 { index } else { index + 5 }));
        assert_eq!(disagreements(headers), 1);
        let restarted =
            (0..50).map(|index| numbered(index, if index < 20 { 900 + index } else { index - 20 }));
        assert_eq!(disagreements(restarted), 1);
    }

    #[test]
    fn a_number_that_is_always_zero_counts_nothing() {
        assert_eq!(disagreements((0..50).map(|index| numbered(index, 0))), 0);
    }

    #[test]
    fn a_mask_without_a_channel_contradicts_a_valid_frame() {
        let masked = |validity, invalid| {
            let extended = Extended::Mask { length: 8, unassigned: 0, validity };
            let mut count = SecondCount::default();
            count.take(&Header::default().with_extended(extended).with_invalid(invalid), None);
            let Found { disagreements, masked } = count.found();
            (disagreements, masked)
        };
        assert_eq!(masked(0xFF, false), (0, 0));
        assert_eq!(masked(0xFE, false), (0, 1));
        assert_eq!(masked(0, false), (1, 1));
        assert_eq!(masked(0, true), (0, 0));
        assert_eq!(masked(0xFF00, false), (1, 1), "bits beyond the mask mean nothing");
    }

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
}
