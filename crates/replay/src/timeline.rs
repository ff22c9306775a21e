//! Where the turns of a loop and the segments of a playlist lie in time, so that one follows the other without a gap.
//!
//! ```text
//! recorded   |0 1 2 3|               |0 1 2 3|            |7 8|
//! played     |0 1 2 3|4 5 6 7|8 9|
//!                     └ +4 frames ┴ segment 2: +1 frame
//! ```
//!
//! Each turn is moved by a whole number of steps. A step is the longest time of which every frame rate is a multiple: the
//! time of a frame if all streams have one rate, and a second if a rate is unknown. A turn begins at the first step that
//! is not before the end of the last frame of the turn before.

use fullbore_time::Tai;

const SECOND_NS: i128 = 1_000_000_000;

/// Times of frames are rounded to nanoseconds, so the end of one frame and the start of the next can differ by this.
const ROUNDING_NS: i128 = 4;

/// The times at which turns begin.
#[derive(Clone, Copy, Debug)]
pub struct Timeline {
    /// Steps in a second.
    per_second: u64,
    /// The offset of this turn, in steps.
    moved: i64,
    /// The end of the last frame that was played, with its offset.
    end: Option<Tai>,
}

impl Timeline {
    /// A timeline of streams with these numbers of frames per second; `None` is a rate that is unknown. Without any
    /// stream, the step is a nanosecond.
    pub fn new(rates: impl IntoIterator<Item = Option<u64>>) -> Self {
        let rates = rates.into_iter().map(|rate| rate.filter(|rate| *rate > 0).unwrap_or(1));
        let per_second = rates.reduce(greatest_common_divisor).unwrap_or(SECOND_NS as u64);
        Timeline { per_second, moved: 0, end: None }
    }

    /// Begins a turn whose first frame has this recorded time.
    pub fn begin(&mut self, first: Tai) {
        if let Some(end) = self.end {
            // At a step of a few nanoseconds, there is no rounding between frames.
            let rounding = ROUNDING_NS.min((SECOND_NS / i128::from(self.per_second)) / 4);
            let ns = i128::from(end.0) - i128::from(first.0) - rounding;
            let steps = (ns * i128::from(self.per_second)).div_euclid(SECOND_NS);
            let whole = (ns * i128::from(self.per_second)).rem_euclid(SECOND_NS) == 0;
            self.moved = saturated(if whole { steps } else { steps + 1 });
        }
    }

    /// Records a frame of this turn by its recorded time, and the time from it to the next one.
    pub fn note(&mut self, time: Tai, length_ns: i64) {
        let end = time.plus_ns(length_ns).plus_ns(self.moved_ns());
        self.end = Some(self.end.map_or(end, |before| before.max(end)));
    }

    /// The offset of this turn, in nanoseconds.
    pub fn moved_ns(&self) -> i64 {
        saturated((i128::from(self.moved) * SECOND_NS).div_euclid(i128::from(self.per_second)))
    }

    /// The offset of this turn in frames of a stream with this rate; in seconds, if the rate is unknown.
    pub fn moved_frames(&self, rate: Option<u64>) -> i64 {
        let rate = i128::from(rate.filter(|rate| *rate > 0).unwrap_or(1));
        saturated(i128::from(self.moved) * rate / i128::from(self.per_second))
    }
}

/// The second and the frame number that are `frames` later, at a rate; without one, `frames` counts seconds.
pub fn moved(second: i64, number: u32, frames: i64, rate: Option<u64>) -> (i64, u32) {
    match rate.and_then(|rate| i64::try_from(rate).ok()).filter(|rate| *rate > 0) {
        Some(rate) => {
            // A number beyond the rate is kept as far beyond it.
            let beyond = i64::from(number) - i64::from(number) % rate;
            let at = (i64::from(number) % rate).saturating_add(frames);
            let number = u32::try_from(at.rem_euclid(rate) + beyond).unwrap_or(u32::MAX);
            (second.saturating_add(at.div_euclid(rate)), number)
        }
        None => (second.saturating_add(frames), number),
    }
}

fn saturated(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use fullbore_time::frame_ns;
    use proptest::prelude::*;

    use super::*;

    const START: i64 = 1_700_000_000;

    fn frame(index: u64, rate: u64) -> Tai {
        Tai(START * 1_000_000_000).plus_ns(frame_ns(index, rate))
    }

    #[test]
    fn two_rates_are_moved_by_whole_frames_of_both() {
        let mut timeline = Timeline::new([Some(100), Some(40)]);
        timeline.begin(frame(0, 100));
        // 120 ms of frames: the step is 50 ms.
        timeline.note(frame(11, 100), frame_ns(1, 100));
        timeline.begin(frame(0, 100));
        assert_eq!(timeline.moved_ns(), 150_000_000);
        assert_eq!((timeline.moved_frames(Some(100)), timeline.moved_frames(Some(40))), (15, 6));
    }

    #[test]
    fn an_unknown_rate_moves_by_seconds_and_no_frames_by_nanoseconds() {
        for (rates, ns) in [(vec![None], 1_000_000_000), (vec![], 300_000_007)] {
            let mut timeline = Timeline::new(rates);
            timeline.begin(Tai(5));
            timeline.note(Tai(5), 300_000_007);
            timeline.begin(Tai(5));
            assert_eq!(timeline.moved_ns(), ns);
        }
    }

    #[test]
    fn a_number_beyond_its_rate_stays_beyond_it() {
        assert_eq!(moved(7, 99, 1, Some(100)), (8, 0));
        assert_eq!(moved(7, 0, -1, Some(100)), (6, 99));
        assert_eq!(moved(7, 103, 250, Some(100)), (9, 153));
        assert_eq!(moved(7, 3, 2, None), (9, 3));
    }

    proptest! {
        /// Any turns of any segments, at any rate: the frames that come out are numbered without a gap.
        #[test]
        fn frames_go_on_from_segment_to_segment(
            rate in 1u64..1_000_000,
            turns in prop::collection::vec((0u64..3_000_000, 1u64..5000), 1..20),
        ) {
            let mut timeline = Timeline::new([Some(rate), Some(rate)]);
            let mut next: Option<i64> = None;
            for (first, count) in turns {
                timeline.begin(frame(first, rate));
                timeline.note(frame(first, rate), frame_ns(1, rate));
                timeline.note(frame(first + count - 1, rate), frame_ns(1, rate));
                let (second, number) = (START + (first / rate) as i64, (first % rate) as u32);
                let (second, number) =
                    moved(second, number, timeline.moved_frames(Some(rate)), Some(rate));
                let index = (second - START) * rate as i64 + i64::from(number);
                prop_assert_eq!(index, next.unwrap_or(first as i64));
                next = Some(index + count as i64);
            }
        }
    }
}
