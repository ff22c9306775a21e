//! Derives the number of frames per second from the numbers of received frames.
//!
//! ```text
//! second  … ■ ■ ■ □ ■ ■ ■ ■ ■ ■ ■ ■ ■ ■ · · · ·│ a round rate       ■ came   □ did not
//!               └──── looked at ──────┘└ lack ┘
//! ```
//!
//! The length of a second is the number that its frames show, or the round rate above that, if the last frames may have
//! been lost. Loss is unlikely if the gap up to the round rate is far longer than any gap among the frames before. The
//! next seconds decide the cases that one second leaves open: random losses differ in each second, so a number at which
//! several seconds end is the end, once the frames of these seconds together show it as plainly.
//!
//! The sender of an invalid frame doubts its samples, and perhaps its time. The number of an invalid frame is trusted
//! if it directly follows the previous frame: then it counts as received, and as the end of its own second. The highest
//! number of all is taken from valid frames only.

/// The largest distance of a round rate above the highest frame number; this many frames may be missing or outstanding
/// when the second ends.
pub(super) const SNAP: u64 = 64;

/// Rates chosen by people are multiples of this if they are not round in bits …
const HUNDRED: u64 = 100;

/// … so up to this many frames may be lost or overtaken at the first boundary between seconds.
const BOUNDARY: u64 = 2;

/// The minimum number of frames, and twice the length of the final gap, that show the end of a second. A run of this
/// length also confirms the numbers of frames that are marked invalid.
pub(super) const ROW: u32 = 16;

/// This many frames without a loss since the start of the stream show the end of its first second, if the final gap
/// would be longer than a likely random loss.
const FEW: u64 = 4;

/// The number of latest frames that are remembered.
const LOOKED_AT: u64 = u128::BITS as u64;

/// If this many seconds have the same end, below the assumed rate, it is the rate …
const ALIKE: u32 = 2;

/// … or this many, if the final gap is no longer than a likely random loss.
const ALIKE_NEARBY: u32 = 3;

/// The final gap is at least this many times as long as any other gap …
const PLAINLY: u32 = 3;

/// … or, once this many seconds have had the same end, only longer than it: losses at the same position in every second
/// are not random, and their gaps do not measure random losses.
const ALIKE_PLAINLY: u32 = 4;

/// Frame numbers have 24 bits.
pub(super) const HIGHEST_RATE: u64 = 1 << 24;

/// The frame numbers of one thread.
#[derive(Clone, Debug)]
pub(super) struct Numbers {
    /// The distance between round rates, in frames.
    round: u64,
    /// The minimum number of frames per second: one more than the highest number of a valid frame.
    proven: u64,
    /// The highest number in the newest second.
    last: u32,
    /// The received frames of the newest second up to that one: the lowest bit is the last frame.
    came: u128,
    /// The ends of earlier seconds.
    ends: Ends,
    /// The lowest number of the second in which the stream began; 0 in all others. Frames before it were not lost.
    began: u32,
}

/// Seconds with the same end.
#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    /// The number of frames that they show.
    shown: u64,
    /// The number of such seconds.
    alike: u32,
    /// The number of seconds with an earlier end, since the first of them.
    earlier: u32,
    /// The frames up to that end that any of them received, as in `Numbers::came`.
    came: u128,
}

impl Numbers {
    /// Starts with a frame at the end of a run of `row` frames.
    pub fn new(payload_bytes: u32, frame: u32, row: u32, valid: bool) -> Self {
        Numbers {
            round: round_step(payload_bytes),
            proven: if valid { u64::from(frame) + 1 } else { 0 },
            last: frame,
            came: lowest(row.into()),
            ends: Ends::default(),
            began: frame.saturating_sub(row.saturating_sub(1)),
        }
    }

    /// Begins a second with a frame at the end of a run of `row` frames.
    pub fn begin_second(&mut self, frame: u32, row: u32, valid: bool) {
        self.ends = self.ends_now();
        (self.last, self.came, self.began) = (frame, lowest(row.into()), 0);
        if valid {
            self.prove(frame);
        }
    }

    /// Adds a valid frame of the newest second.
    #[inline]
    pub fn came(&mut self, frame: u32) {
        let further = u64::from(frame.saturating_sub(self.last));
        if further > 0 {
            self.came = if further < LOOKED_AT { self.came << further } else { 0 };
            self.last = frame;
        }
        self.began = self.began.min(frame);
        let back = u64::from(self.last - frame);
        if back < LOOKED_AT {
            self.came |= 1 << back;
        }
        self.prove(frame);
    }

    /// Adds an invalid frame of the newest second: it counts if it is among the last ones or follows directly.
    pub fn came_invalid(&mut self, frame: u32) {
        if frame <= self.last.saturating_add(1) {
            let proven = self.proven;
            self.came(frame);
            self.proven = proven;
        }
    }

    /// Notes that some second has a valid frame of this number.
    #[inline]
    pub fn prove(&mut self, frame: u32) {
        self.proven = self.proven.max(u64::from(frame) + 1);
    }

    /// Returns the minimum number of frames per second, by all valid frames.
    pub fn proven(&self) -> u64 {
        self.proven
    }

    /// Returns the minimum number by all frames, including invalid ones of the newest second.
    pub fn shown(&self) -> u64 {
        self.proven.max(u64::from(self.last) + 1)
    }

    /// Returns the rate for this number of frames: the number itself, if the received frames show the end, or a round
    /// one.
    pub fn rate_of(&self, shown: u64) -> u64 {
        let round = snap(shown, self.round);
        let is_last = shown == u64::from(self.last) + 1;
        let lack = round - shown;
        let ends = show_end(self.came, lack, PLAINLY) || self.shows_end_from_its_beginning(lack);
        if is_last && ends { shown } else { round }
    }

    /// True if the stream began within this second, every frame since then arrived, and the run is so long that a final
    /// gap of `lack` frames is implausible.
    fn shows_end_from_its_beginning(&self, lack: u64) -> bool {
        let known = u64::from(self.last - self.began) + 1;
        let enough = if lack > BOUNDARY { FEW } else { ROW.into() };
        let all = lowest(known.min(LOOKED_AT));
        self.began > 0 && known >= enough && self.came & all == all
    }

    /// Returns the true rate, if seconds with the same end refute a higher one. The newest second counts as if it ended
    /// now.
    pub fn rate_below(&self, rate: u64) -> Option<u64> {
        let ends = self.ends_now();
        let lack = rate.checked_sub(ends.shown).filter(|&lack| lack > 0)?;
        let enough = if lack > BOUNDARY { ALIKE } else { ALIKE_NEARBY };
        let times = if ends.alike < ALIKE_PLAINLY { PLAINLY } else { 1 };
        let refuted = ends.alike >= enough
            && ends.alike > ends.earlier
            && ends.shown >= self.proven
            && show_end(ends.came, lack, times);
        refuted.then_some(ends.shown)
    }

    /// Returns the end of the finished seconds, if it is plainly below a rate: two at least had it, and no frame is beyond
    /// it.
    pub fn end_below(&self, rate: u64) -> Option<u64> {
        let Ends { shown, alike, earlier, came } = self.ends;
        let lack = rate.checked_sub(shown).filter(|&lack| lack > BOUNDARY)?;
        let absent = !came & lowest(shown.min(LOOKED_AT));
        let plainly = u64::from(PLAINLY) * longest_run(absent) < lack;
        (alike >= ALIKE && alike > earlier && shown >= self.shown() && plainly).then_some(shown)
    }

    /// True if a rate is unlikely to be chosen.
    pub fn is_odd(&self, rate: u64) -> bool {
        !rate.is_multiple_of(self.round) && !rate.is_multiple_of(HUNDRED)
    }

    /// Returns the ends of seconds as if the newest ended now.
    fn ends_now(&self) -> Ends {
        let Ends { shown, alike, earlier, came } = self.ends;
        let now = u64::from(self.last) + 1;
        let anew = Ends { shown: now, alike: 1, earlier: 0, came: self.came };
        if now == shown {
            return Ends { alike: alike.saturating_add(1), came: came | self.came, ..self.ends };
        }
        // An end beyond all valid frames was shown by invalid ones: it is ignored if it does not occur again.
        let outdated = now > shown || (earlier >= alike && now >= self.proven);
        if outdated { anew } else { Ends { earlier: earlier.saturating_add(1), ..self.ends } }
    }
}

/// True if the second ends after these frames and not `lack` frames later: `lack` is more than `times` the longest gap
/// among them.
fn show_end(came: u128, lack: u64, times: u32) -> bool {
    let looked_at = u64::from(ROW).max(2 * lack).min(LOOKED_AT);
    let absent = !came & lowest(looked_at);
    let few = 4 * u64::from(absent.count_ones()) <= looked_at;
    few && u64::from(times) * longest_run(absent) < lack
}

/// Returns the length of the longest run of set bits.
fn longest_run(mut bits: u128) -> u64 {
    let mut in_a_row = 0;
    while bits != 0 {
        bits &= bits >> 1;
        in_a_row += 1;
    }
    in_a_row
}

/// Returns a mask of the lowest `bits` bits.
fn lowest(bits: u64) -> u128 {
    if bits < LOOKED_AT { (1 << bits) - 1 } else { u128::MAX }
}

/// Returns the step between frame rates that make a whole number of Mbit/s.
fn round_step(payload_bytes: u32) -> u64 {
    let (mut step, mut rest) = (1_000_000, u64::from(payload_bytes) * 8);
    while rest != 0 {
        (step, rest) = (rest, step % rest);
    }
    1_000_000 / step
}

/// Returns the next round rate if it is near, else the next hundred if it is very near, else `shown` itself.
fn snap(shown: u64, round: u64) -> u64 {
    let near = |step: u64, reach: u64| {
        let up = shown.next_multiple_of(step);
        (up - shown <= reach && up <= HIGHEST_RATE).then_some(up)
    };
    near(round, SNAP.min(round / 4)).or_else(|| near(HUNDRED, BOUNDARY)).unwrap_or(shown)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the received frames among the last ones: all except those at these distances.
    fn all_but(back: &[u32]) -> u128 {
        back.iter().fold(u128::MAX, |came, &back| came & !(1 << back))
    }

    #[test]
    fn an_end_is_shown_by_frames_in_a_row_or_by_few_that_lack_among_many() {
        for (back, lack, shown) in [
            (vec![], 1, true),
            (vec![15], 1, false),
            (vec![16], 1, true),
            (vec![3], 3, false),
            (vec![3], 4, true),
            (vec![3, 4], 6, false),
            (vec![3, 4], 7, true),
            (vec![46, 3], 25, true),
            ((3..11).collect(), 25, true),
            ((3..12).collect(), 25, false),
            ((0..13).map(|n| 3 * n).collect(), 25, false),
            ((60..128).collect(), 25, true),
            ((60..128).collect(), 64, false),
        ] {
            assert_eq!(show_end(all_but(&back), lack, PLAINLY), shown, "{back:?} of {lack}");
        }
        assert!(!show_end(lowest(15), 1, PLAINLY), "there must be some frames");
        let run = all_but(&(10..20).collect::<Vec<_>>());
        assert!(show_end(run, 25, 1) && !show_end(run, 25, PLAINLY) && !show_end(run, 10, 1));
    }

    #[test]
    fn rates_are_round_in_megabits_or_in_hundreds() {
        assert_eq!(round_step(8000), 125);
        assert_eq!((snap(1599, 125), snap(1600, 125), snap(1625, 125)), (1625, 1625, 1625));
        assert_eq!((snap(1593, 125), snap(3998, 3125), snap(3997, 3125)), (1593, 4000, 3997));
    }

    proptest! {
        #[test]
        fn the_frames_that_came_are_kept_in_mind_in_whatever_order(
            numbers in prop::collection::vec((0u32..400, any::<bool>()), 1..200),
        ) {
            let (first, valid) = numbers[0];
            let mut known = Numbers::new(8000, first, 1, valid);
            let mut came = vec![first];
            for &(number, valid) in &numbers[1..] {
                if valid {
                    known.came(number);
                    came.push(number);
                } else {
                    if number <= known.last + 1 {
                        came.push(number);
                    }
                    known.came_invalid(number);
                }
            }
            let last = *came.iter().max().unwrap();
            prop_assert_eq!(known.last, last);
            // A frame outside the remembered range stays outside.
            for back in 0..LOOKED_AT as u32 {
                let told = known.came >> back & 1 == 1;
                prop_assert_eq!(told, last.checked_sub(back).is_some_and(|n| came.contains(&n)));
            }
            let highest = numbers.iter().filter(|it| it.1).map(|it| u64::from(it.0) + 1).max();
            prop_assert_eq!(known.proven(), highest.unwrap_or(0));
        }
    }
}
