//! The second count in some extended data, compared with the time of the frame.
//!
//! | EDV | second count | disagrees |
//! |---|---|---|
//! | 2 | packet number | if it does not go on as the frames do |
//! | 4 | mask of channels with data | if it says that a frame not marked invalid has none |
//! | 0xAB | day and second of the Mark 5B header | if it is another second |

use super::mark5b::time_code;
use super::{Extended, Header};

/// The second count of one thread.
#[derive(Clone, Debug, Default)]
pub struct SecondCount {
    /// The last frame whose packet number agreed.
    last: Option<Seen>,
    /// A frame after it whose packet number did not.
    other: Option<Seen>,
    /// The step of packet numbers from frame to frame: more than one if they count several threads together.
    stride: Option<i64>,
    /// The step from `last` to `other`: frames and numbers.
    turn: Option<(i64, i64)>,
    found: Found,
}

/// The findings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Frames whose second count does not match their time.
    pub disagreements: u64,
    /// The disagreements that were later found to be at the start or end of another thread that is counted together
    /// with this one.
    pub explained: u64,
    /// Frames with channels that have no data, by the mask of EDV 4.
    pub masked: u64,
    /// Packets in whose trailer the sender says that it lost samples.
    pub sample_loss: u64,
    /// Packets in whose trailer the sender says that samples exceeded the range.
    pub over_range: u64,
}

impl Found {
    /// Returns the remaining disagreements.
    pub fn unexplained(&self) -> u64 {
        self.disagreements.saturating_sub(self.explained)
    }

    /// Adds other findings.
    pub fn add(&mut self, more: Found) {
        self.disagreements += more.disagreements;
        self.explained += more.explained;
        self.masked += more.masked;
        self.sample_loss += more.sample_loss;
        self.over_range += more.over_range;
    }
}

/// A packet number, and its frame.
#[derive(Clone, Copy, Debug)]
struct Seen {
    header: Header,
    psn: i64,
}

/// The largest step of packet numbers from one frame to the next: one number for each of all threads.
const MOST_THREADS: i64 = 1024;

impl SecondCount {
    /// Takes a frame of the thread, in any order. Frames marked invalid are skipped, because their time may be wrong.
    #[inline]
    pub fn take(&mut self, header: &Header, frames_per_second: Option<u64>) {
        if matches!(header.edv(), 2 | 4 | 0xAB) && !header.invalid() {
            self.look(header, frames_per_second);
        }
    }

    /// Takes a frame with a packet number before it.
    #[inline]
    pub fn take_number(&mut self, header: &Header, psn: i64, frames_per_second: Option<u64>) {
        if !header.invalid() && !self.goes_on(Seen { header: *header, psn }, frames_per_second) {
            self.found.disagreements += 1;
        }
    }

    /// Returns the findings since the last call.
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
            // Some headers have no time.
            Extended::Mark5b { time, .. } => time != 0 && time != time_code(header),
            _ => false,
        };
        self.found.disagreements += u64::from(disagrees);
    }

    /// True if a packet number continues the count. A new count is accepted once two frames agree on it.
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
            (false, Some(stride)) => {
                self.found.explained += u64::from(self.is_turn_to(stride));
                (self.last, self.other, self.stride) = (Some(seen), None, anew);
            }
            (false, None) => {
                self.turn = self.last.and_then(|last| last.steps(seen, frames_per_second));
                self.other = Some(seen);
            }
        }
        agrees || anew.is_some()
    }
}

impl SecondCount {
    /// True if the number that disagreed is at the start or end of another thread of the same count: the step from the
    /// last agreeing number consists of the previous stride and this one.
    fn is_turn_to(&self, stride: i64) -> bool {
        let (Some(before), Some((frames, numbers))) = (self.stride, self.turn) else {
            return false;
        };
        let least = frames.saturating_mul(before.min(stride));
        let most = frames.saturating_mul(before.max(stride));
        frames > 0 && stride != before && (least..=most).contains(&numbers)
    }
}

/// The step of packet numbers.
enum Stride {
    /// This many from frame to frame.
    Of(i64),
    /// Inconsistent with the frames.
    No,
}

impl Seen {
    /// Returns the stride from this frame to another; `None` if the number of frames in between is unknown, or if the
    /// numbers are constant.
    fn stride(self, after: Seen, frames_per_second: Option<u64>) -> Option<Stride> {
        let (frames, numbers) = self.steps(after, frames_per_second)?;
        if frames == 0 || (numbers == 0 && after.psn == 0) {
            return None;
        }
        let stride = numbers.checked_div(frames).filter(|it| (1..=MOST_THREADS).contains(it));
        let whole = stride.filter(|it| it.checked_mul(frames) == Some(numbers));
        Some(whole.map_or(Stride::No, Stride::Of))
    }

    /// Returns the frames and numbers from this frame to another; `None` if the number of frames in between is unknown.
    fn steps(self, after: Seen, frames_per_second: Option<u64>) -> Option<(i64, i64)> {
        let seconds = after.header.second().after(self.header.second());
        let mut frames =
            i64::from(after.header.frame_number()) - i64::from(self.header.frame_number());
        if seconds != 0 {
            let rate = i64::try_from(frames_per_second?).ok()?;
            frames = frames.saturating_add(seconds.saturating_mul(rate));
        }
        Some((frames, after.psn.wrapping_sub(self.psn)))
    }
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
        count.found().unexplained()
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
    fn a_thread_that_begins_or_ends_beside_this_one_is_no_disagreement() {
        // Three threads are counted together from frame 20 to frame 40, and only this one before and after.
        let number = |index: u64| index + 2 * index.clamp(20, 40);
        assert_eq!(disagreements((0..60).map(|index| numbered(index, number(index)))), 0);
        let lossy = (0..60).filter(|index| !(18..24).contains(index) && index % 7 != 3);
        assert_eq!(disagreements(lossy.map(|index| numbered(index, number(index)))), 0);
        let jumps = |index: u64| number(index) + if index < 20 { 0 } else { 100 };
        assert_eq!(disagreements((0..60).map(|index| numbered(index, jumps(index)))), 1);
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
            let Found { disagreements, masked, .. } = count.found();
            (disagreements, masked)
        };
        assert_eq!(masked(0xFF, false), (0, 0));
        assert_eq!(masked(0xFE, false), (0, 1));
        assert_eq!(masked(0, false), (1, 1));
        assert_eq!(masked(0, true), (0, 0));
        assert_eq!(masked(0xFF00, false), (1, 1), "bits beyond the mask mean nothing");
    }
}
