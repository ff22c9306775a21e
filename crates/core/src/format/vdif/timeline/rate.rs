//! How many frames a second has, told by the numbers of the frames that came.
//!
//! ```text
//! second  … ■ ■ ■ □ ■ ■ ■ ■ ■ ■ ■ ■ ■ ■ · · · ·│ a round rate       ■ came   □ did not
//!               └──── looked at ──────┘└ lack ┘
//! ```
//!
//! A second is as long as its frames show, or as long as the round rate above, if the last ones may have been
//! lost. They were hardly lost if far more of them would lack in a row than ever lacks among those that came
//! before. What one second leaves open the next ones decide: frames lost by chance are others in each
//! second, so one number at which several seconds end is the end, once the frames of these seconds, taken
//! together, show it as plainly.
//!
//! Who marks a frame invalid doubts its samples, and perhaps its time. One that follows directly on the frame
//! before tells the truth about its number: it is taken for one that came, and for the end of its own second.
//! The highest number of all is told by valid frames alone.

/// How far above the highest frame number a round rate may lie; as many frames as may be missing or
/// still to come when the second ends.
pub(super) const SNAP: u64 = 64;

/// Rates chosen by people are multiples of this where they are not round in bits …
const HUNDRED: u64 = 100;

/// … so up to this many frames may be lost or overtaken just at the first boundary between seconds.
const BOUNDARY: u64 = 2;

/// The least number of frames, and twice as many as would lack, that show where a second ends. So many in
/// a row also tell the truth where they are marked invalid.
pub(super) const ROW: u32 = 16;

/// So many frames are kept in mind.
const LOOKED_AT: u64 = u128::BITS as u64;

/// Where so many seconds end alike, below what was taken for the rate, is the rate …
const ALIKE: u32 = 2;

/// … or so many, where what would lack is no more than chance takes now and then.
const ALIKE_NEARBY: u32 = 3;

/// Frames that lack at the end lack in a row at least this many times as long as any row that lacks elsewhere …
const PLAINLY: u32 = 3;

/// … or, once so many seconds have ended alike, only longer than it: what is lost at the same place in every
/// second is no chance, and its rows are no measure for what chance takes.
const ALIKE_PLAINLY: u32 = 4;

/// Frame numbers have 24 bits.
pub(super) const HIGHEST_RATE: u64 = 1 << 24;

/// The frame numbers of one thread.
#[derive(Clone, Debug)]
pub(super) struct Numbers {
    /// Rates that are round lie this many frames apart.
    round: u64,
    /// A second has at least so many frames: one more than the highest number of a valid frame.
    proven: u64,
    /// Highest number in the newest second.
    last: u32,
    /// Which of the frames up to that one came in the newest second: the lowest bit is the last frame.
    came: u128,
    /// How the seconds before ended.
    ends: Ends,
}

/// Seconds that ended alike.
#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    /// Frames that they showed themselves to have.
    shown: u64,
    /// How many there were.
    alike: u32,
    /// How many ended earlier, since the first of them.
    earlier: u32,
    /// The frames up to that end that came in any of them, as in [`Numbers::came`].
    came: u128,
}

impl Numbers {
    /// Begins with a frame that came at the end of a row of so many.
    pub fn new(payload_bytes: u32, frame: u32, row: u32, valid: bool) -> Self {
        Numbers {
            round: round_step(payload_bytes),
            proven: if valid { u64::from(frame) + 1 } else { 0 },
            last: frame,
            came: lowest(row.into()),
            ends: Ends::default(),
        }
    }

    /// A second begins with a frame at the end of a row of so many.
    pub fn begin_second(&mut self, frame: u32, row: u32, valid: bool) {
        self.ends = self.ends_now();
        (self.last, self.came) = (frame, lowest(row.into()));
        if valid {
            self.prove(frame);
        }
    }

    /// A valid frame of the newest second came.
    #[inline]
    pub fn came(&mut self, frame: u32) {
        let further = u64::from(frame.saturating_sub(self.last));
        if further > 0 {
            self.came = if further < LOOKED_AT { self.came << further } else { 0 };
            self.last = frame;
        }
        let back = u64::from(self.last - frame);
        if back < LOOKED_AT {
            self.came |= 1 << back;
        }
        self.prove(frame);
    }

    /// An invalid frame of the newest second came: it counts if it lies among the last or follows directly.
    pub fn came_invalid(&mut self, frame: u32) {
        if frame <= self.last.saturating_add(1) {
            let proven = self.proven;
            self.came(frame);
            self.proven = proven;
        }
    }

    /// Some second has a valid frame of this number.
    #[inline]
    pub fn prove(&mut self, frame: u32) {
        self.proven = self.proven.max(u64::from(frame) + 1);
    }

    /// A second has at least so many frames, by all valid ones.
    pub fn proven(&self) -> u64 {
        self.proven
    }

    /// The same by all frames, also those of the newest second that are invalid.
    pub fn shown(&self) -> u64 {
        self.proven.max(u64::from(self.last) + 1)
    }

    /// The rate, if the frames that came show so many: just that, where they show the end, or a round one.
    pub fn rate_of(&self, shown: u64) -> u64 {
        let round = snap(shown, self.round);
        let is_last = shown == u64::from(self.last) + 1;
        if is_last && show_end(self.came, round - shown, PLAINLY) { shown } else { round }
    }

    /// The true rate, where seconds that ended alike refute a higher one. The newest second counts as if it
    /// ended now.
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

    /// Whether nobody would choose this rate.
    pub fn is_odd(&self, rate: u64) -> bool {
        !rate.is_multiple_of(self.round) && !rate.is_multiple_of(HUNDRED)
    }

    /// How seconds ended, if the newest ends now.
    fn ends_now(&self) -> Ends {
        let Ends { shown, alike, earlier, came } = self.ends;
        let now = u64::from(self.last) + 1;
        let anew = Ends { shown: now, alike: 1, earlier: 0, came: self.came };
        if now == shown {
            return Ends { alike: alike.saturating_add(1), came: came | self.came, ..self.ends };
        }
        // An end beyond all valid frames was shown by invalid ones: nobody heeds it that comes no more.
        let outdated = now > shown || (earlier >= alike && now >= self.proven);
        if outdated { anew } else { Ends { earlier: earlier.saturating_add(1), ..self.ends } }
    }
}

/// Whether a second ends behind frames of which these came, rather than so many frames later: those are more than
/// so many times the longest row that did not come.
fn show_end(came: u128, lack: u64, times: u32) -> bool {
    let looked_at = u64::from(ROW).max(2 * lack).min(LOOKED_AT);
    let mut absent = !came & lowest(looked_at);
    let few = 4 * u64::from(absent.count_ones()) <= looked_at;
    let mut in_a_row = 0;
    while absent != 0 {
        absent &= absent >> 1;
        in_a_row += 1;
    }
    few && u64::from(times) * in_a_row < lack
}

/// So many of the lowest bits.
fn lowest(bits: u64) -> u128 {
    if bits < LOOKED_AT { (1 << bits) - 1 } else { u128::MAX }
}

/// Frames per second that make a whole number of Mbit/s are multiples of this.
fn round_step(payload_bytes: u32) -> u64 {
    let (mut step, mut rest) = (1_000_000, u64::from(payload_bytes) * 8);
    while rest != 0 {
        (step, rest) = (rest, step % rest);
    }
    1_000_000 / step
}

/// The next round rate if it is near, else the next hundred if it is very near, else `shown` itself.
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

    /// What of the last frames came: `true` for all but those so far back.
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
            // One that came when it was too far behind to be looked at is so for ever.
            for back in 0..LOOKED_AT as u32 {
                let told = known.came >> back & 1 == 1;
                prop_assert_eq!(told, last.checked_sub(back).is_some_and(|n| came.contains(&n)));
            }
            let highest = numbers.iter().filter(|it| it.1).map(|it| u64::from(it.0) + 1).max();
            prop_assert_eq!(known.proven(), highest.unwrap_or(0));
        }
    }
}
