//! One thread's clock: from the time in VDIF headers to an index that counts frames, and back.
//!
//! ```text
//! second    s                      s + 1                  s + 2
//! frame     0   1   2  …  fps − 1  0    1    2   …        0
//! index     0   1   2  …  fps − 1  fps  fps+1  …          2·fps
//! ```
//!
//! Index 0 is frame 0 of the first second observed, whether or not that frame came. Where the number
//! of frames per second is neither given nor in the headers, it is learnt at the first boundary
//! between two seconds, from the highest frame number so far. The index that a second starts at is
//! fixed when its first frame is observed and never changes again, because by then frames have
//! been put where it says. So a rate found too small is raised for later seconds only, and what the
//! boundaries before lacked is told by [`Timeline::correction`].
//!
//! Frames with the *invalid* flag get an index like all others but teach nothing: their time may be
//! wrong.

use std::sync::LazyLock;

use super::{Extended, Header};
use crate::time::{Tai, frame_ns};

/// The index of a frame that has no place: its number lies beyond the end of its second, which is
/// either given or fixed since the next second began. Less than any other index.
pub const NOWHERE: i64 = i64::MIN / 2;

/// How far above the highest frame number a round rate may lie; as many frames as may be missing or
/// still to come when the second ends.
const SNAP: u64 = 64;

/// Rates chosen by people are multiples of this where they are not round in bits …
const HUNDRED: u64 = 100;

/// … so up to this many frames may be lost or overtaken just at the first boundary between seconds.
const BOUNDARY: u64 = 2;

/// So many frames in a row, and twice as many as would lack, end a second where it is seen to end.
const ROW: u64 = 16;

/// Where so many seconds in a row are seen to end, below what was taken for the rate, is the rate.
const FALLS: u32 = 2;

/// How often a rate can be raised. An honest stream needs one or two.
const SEGMENTS: usize = 64;

/// Frame numbers have 24 bits.
const HIGHEST_RATE: u64 = 1 << 24;

/// An absolute SI second, counted as TAI from 1970. The same instant is the same `Second` from
/// whatever reference epoch it was counted, so a change of epoch is seamless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Second(pub i64);

/// Where the half-years that 6 bits can tell begin.
static EPOCHS: LazyLock<[i64; 64]> = LazyLock::new(|| {
    std::array::from_fn(|epoch| Tai::of_half_year(epoch as u32).0 / 1_000_000_000)
});

impl Second {
    /// The second so many SI seconds after a reference epoch, of which the lower 6 bits count.
    #[inline]
    pub fn of(epoch: u32, seconds: u32) -> Self {
        Second(EPOCHS[(epoch & 63) as usize] + i64::from(seconds))
    }

    /// Reference epoch and seconds of this second, counted from `epoch` if it does not lie before
    /// it, else from the half-year it lies in. What a header cannot tell becomes the nearest it can.
    pub fn since_epoch(self, epoch: u32) -> (u32, u32) {
        let mut epoch = (epoch & 63) as usize;
        if self.0 < EPOCHS[epoch] {
            epoch = EPOCHS.partition_point(|&start| start <= self.0).saturating_sub(1);
        }
        let seconds = self.0.saturating_sub(EPOCHS[epoch]).clamp(0, 0x3FFF_FFFF);
        (epoch as u32, seconds as u32)
    }

    /// The instant at which it begins.
    pub fn start(self) -> Tai {
        Tai(self.0.saturating_mul(1_000_000_000))
    }

    /// Seconds from `earlier` to this one.
    fn after(self, earlier: Second) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// The clock of one flow of frames: one thread of one station from one sender.
#[derive(Clone, Debug)]
pub struct Timeline {
    given: Option<u64>,
    seen: Option<Seen>,
}

/// What the observed frames have shown.
#[derive(Clone, Debug)]
struct Seen {
    /// The second of index 0.
    first: Second,
    /// The earliest second of which a frame came; frames may overtake others at the very start.
    earliest: Second,
    /// The latest second. Its end is not fixed yet.
    newest: Second,
    /// Index of frame 0 of the newest second.
    newest_start: i64,
    /// Highest frame number of all seconds.
    highest: u32,
    /// Highest frame number of the newest second, and how many came in a row up to it.
    row: (u32, u64),
    /// How many seconds in a row were seen to end below what was taken for the rate.
    falls: u32,
    /// The rate that the first header tells, true or not.
    told: Option<u64>,
    /// Rates that are round lie this many frames apart.
    round: u64,
    /// Where the rate comes from.
    origin: Origin,
    /// Stretches of equal rate, in order; empty while no rate is known.
    segments: Vec<Segment>,
    /// Two seconds one after the other were found to have the same rate.
    agreed: bool,
    /// Nobody waits any longer for frames of the newest second that later ones have overtaken.
    settled: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// By the caller. Never changed.
    Given,
    /// From the extended data of the headers.
    Header,
    /// The same, but of a kind that some senders write as twice the true rate.
    PerhapsTwice,
    /// From frame numbers at a boundary between seconds.
    Derived,
}

/// From `second` on, at index `start`, seconds have `rate` frames.
#[derive(Clone, Copy, Debug)]
struct Segment {
    second: Second,
    start: i64,
    rate: u64,
}

impl Segment {
    /// Index of frame 0 of a second; before the segment too.
    fn start_of(&self, second: Second) -> i64 {
        self.start + second.after(self.second) * self.rate.cast_signed()
    }

    fn position(&self, index: i64) -> (Second, u32) {
        let rate = self.rate.cast_signed();
        let from_start = index.saturating_sub(self.start);
        let second = self.second.0.saturating_add(from_start.div_euclid(rate));
        (Second(second), from_start.rem_euclid(rate) as u32)
    }
}

impl Timeline {
    /// A clock of so many frames per second, or one that finds out. A rate that a 24-bit frame
    /// number cannot count to (or zero) counts as not given.
    pub fn new(frames_per_second: Option<u64>) -> Self {
        let given = frames_per_second.filter(|rate| (1..=HIGHEST_RATE).contains(rate));
        Timeline { given, seen: None }
    }

    /// The index this frame would have, relative to frame 0 of the first second observed: negative
    /// in an earlier second, [`NOWHERE`] beyond the end of its own. Learns nothing.
    ///
    /// A frame that is nowhere is late where the rate is derived, and contradicts a rate that is given.
    #[inline]
    pub fn index(&self, header: &Header) -> i64 {
        let frame = header.frame_number();
        match &self.seen {
            Some(seen) => seen.index(header.second(), frame),
            None if self.given.is_some_and(|rate| u64::from(frame) >= rate) => NOWHERE,
            None => i64::from(frame),
        }
    }

    /// The same, and learns from it unless it is invalid or has no place. Call it only for frames that
    /// may well belong to this stream: time is not judged here.
    #[inline]
    pub fn observe(&mut self, header: &Header) -> i64 {
        let index = self.index(header);
        if !header.invalid() && index != NOWHERE {
            match &mut self.seen {
                Some(seen) => seen.learn(header),
                None => self.seen = Some(Seen::first(header, self.given)),
            }
        }
        index
    }

    /// Whether this frame begins a second before it is sure how long the one before is: that is learnt from
    /// its frames, they are no round number, no other second has confirmed it, and the last of them may have
    /// been overtaken. Whoever can wait observes what else comes, and then calls [`Timeline::settle`].
    #[inline]
    pub fn is_early(&self, header: &Header) -> bool {
        let ends = |seen: &Seen| header.second() > seen.newest && seen.is_unsure();
        self.seen.as_ref().is_some_and(ends)
    }

    /// The newest second is as long as its frames tell by now.
    pub fn settle(&mut self) {
        if let Some(seen) = &mut self.seen {
            seen.settled = true;
        }
    }

    /// Frames per second: given, from the extended data, or derived; nothing in the first second of
    /// a stream that does not say.
    ///
    /// It is what the first second is seen to end with. Where frames were lost shortly before that end, a rate
    /// just below a whole number of Mbit/s is taken for that number, and so is one that is one or two below a
    /// multiple of a hundred; if later seconds end there as well, it is lowered again, and the frames between
    /// look missing in two or three seconds only.
    pub fn frames_per_second(&self) -> Option<u64> {
        let seen = self.seen.as_ref().filter(|seen| !seen.segments.is_empty());
        seen.map(Seen::rate).or(self.given)
    }

    /// The rate was learnt from frame numbers rather than told.
    pub fn is_derived(&self) -> bool {
        let seen = self.seen.as_ref().filter(|seen| !seen.segments.is_empty());
        seen.is_some_and(|seen| seen.origin() == Origin::Derived)
    }

    /// Second and frame number of an index, also of one that never came. In the first second of a
    /// stream of unknown rate only that second's own frames have a position.
    pub fn position(&self, index: i64) -> Option<(Second, u32)> {
        if index <= NOWHERE {
            return None;
        }
        self.seen.as_ref()?.position(index)
    }

    /// The instant of an index's first sample, once the rate is known.
    pub fn time(&self, index: i64) -> Option<Tai> {
        let rate = self.frames_per_second()?;
        let (second, frame) = self.position(index)?;
        Some(second.start().plus_ns(frame_ns(u64::from(frame), rate)))
    }

    /// A rate told by the headers that frame numbers have refuted: what they tell, and at least how many
    /// frames a second there are.
    pub fn refuted(&self) -> Option<(u64, u64)> {
        let seen = self.seen.as_ref()?;
        let shown = u64::from(seen.highest) + 1;
        seen.told.filter(|&told| told < shown).map(|told| (told, shown))
    }

    /// Frames that had no index because their second was taken to be shorter than it is: they are
    /// missing beside the gaps between indices. Those of them that did come got [`NOWHERE`], so
    /// whoever counts these as late counts them twice unless they are subtracted here.
    pub fn correction(&self) -> u64 {
        self.seen.as_ref().map_or(0, Seen::correction)
    }
}

impl Seen {
    fn first(header: &Header, given: Option<u64>) -> Self {
        let second = header.second();
        let mut seen = Seen {
            first: second,
            earliest: second,
            newest: second,
            newest_start: 0,
            highest: header.frame_number(),
            row: (header.frame_number(), 1),
            falls: 0,
            told: header.frames_per_second().filter(|_| given.is_none()),
            round: round_step(header.payload_bytes()),
            origin: Origin::Derived,
            segments: Vec::new(),
            agreed: false,
            settled: false,
        };
        match given {
            Some(rate) => seen.told(rate, Origin::Given),
            None => seen.read_rate(header),
        }
        seen
    }

    fn told(&mut self, rate: u64, origin: Origin) {
        self.segments.push(Segment { second: self.first, start: 0, rate });
        self.origin = origin;
    }

    /// Takes the rate from the extended data, if they tell one that has not passed already.
    fn read_rate(&mut self, header: &Header) {
        let rate = header.frames_per_second();
        let possible = u64::from(self.highest) + 1..=HIGHEST_RATE;
        if let Some(rate) = rate.filter(|rate| possible.contains(rate)) {
            self.told(rate, trust(header));
        }
    }

    /// Frames of the newest second, as they would be fixed if the next second began now.
    fn rate(&self) -> u64 {
        self.rate_if(self.highest)
    }

    /// The same, had `highest` been the highest frame number.
    fn rate_if(&self, highest: u32) -> u64 {
        let shown = u64::from(highest) + 1;
        let Some(last) = self.segments.last() else { return self.bridged(shown) };
        if self.falls + u32::from(self.ends_below()) >= FALLS {
            return shown;
        }
        let half = last.rate / 2;
        if self.may_be_half() && half >= shown && shown + SNAP > half {
            return half;
        }
        if self.may_rise() && shown > last.rate { self.bridged(shown) } else { last.rate }
    }

    /// What frame numbers up to `shown` tell: just that, if the last of them came in a row, or a round rate.
    fn bridged(&self, shown: u64) -> u64 {
        let round = snap(shown, self.round);
        if self.row.1 >= ROW.max(2 * (round - shown)) { shown } else { round }
    }

    /// Whether the newest second ends below what was taken for the rate, if it ends now.
    fn ends_below(&self) -> bool {
        let shown = u64::from(self.highest) + 1;
        let derived = self.origin == Origin::Derived && self.row.0 == self.highest;
        let last = self.segments.last().filter(|last| derived && shown < last.rate);
        last.is_some_and(|last| self.row.1 >= ROW.max(2 * (last.rate - shown)))
    }

    /// Until the first second ends, the header's rate may be read either way.
    fn may_be_half(&self) -> bool {
        let even = self.segments.last().is_some_and(|last| last.rate.is_multiple_of(2));
        self.origin == Origin::PerhapsTwice && self.earliest == self.newest && even
    }

    fn is_unsure(&self) -> bool {
        let rate = self.rate();
        let odd = !rate.is_multiple_of(self.round) && !rate.is_multiple_of(HUNDRED);
        odd && !self.settled && !self.agreed && self.origin() == Origin::Derived
    }

    fn may_rise(&self) -> bool {
        self.origin != Origin::Given && self.segments.len() < SEGMENTS
    }

    fn origin(&self) -> Origin {
        let told = self.segments.last().is_some_and(|last| last.rate >= self.rate());
        if told { self.origin } else { Origin::Derived }
    }

    #[inline]
    fn index(&self, second: Second, frame: u32) -> i64 {
        let start =
            if second == self.newest { self.newest_start } else { self.start(second, frame) };
        if self.has_place(second, frame) { start + i64::from(frame) } else { NOWHERE }
    }

    /// Index of frame 0 of a second, seen or to come.
    fn start(&self, second: Second, frame: u32) -> i64 {
        if second > self.newest {
            return self.newest_start + second.after(self.newest) * self.rate().cast_signed();
        }
        match self.segment_of(second) {
            Some(segment) => segment.start_of(second),
            // The stream began at the end of a second, and frames of the next one came first.
            None => {
                let rate = self.rate_if(self.highest.max(frame));
                second.after(self.newest) * rate.cast_signed()
            }
        }
    }

    /// Does the second have a frame of this number?
    #[inline]
    fn has_place(&self, second: Second, frame: u32) -> bool {
        if second >= self.newest {
            return self.may_rise() || u64::from(frame) < self.rate();
        }
        self.segment_of(second).is_none_or(|segment| u64::from(frame) < segment.rate)
    }

    /// The stretch that a second before the newest lies in.
    fn segment_of(&self, second: Second) -> Option<&Segment> {
        let until = self.segments.partition_point(|segment| segment.second <= second);
        self.segments.get(until.saturating_sub(1))
    }

    fn learn(&mut self, header: &Header) {
        let (second, frame) = (header.second(), header.frame_number());
        if second > self.newest {
            let start = self.start(second, frame);
            self.end_newest();
            (self.newest, self.newest_start) = (second, start);
            self.row = (frame, 1);
            self.settled = false;
        } else if second == self.newest && frame > self.row.0 {
            let in_row = frame == self.row.0 + 1;
            self.row = (frame, if in_row { self.row.1 + 1 } else { 1 });
        } else if second < self.earliest {
            if self.segments.is_empty() {
                let rate = self.rate_if(self.highest.max(frame));
                self.segments.push(Segment { second: self.first, start: 0, rate });
            }
            self.earliest = second;
        }
        self.highest = self.highest.max(frame);
        if self.segments.is_empty() {
            self.read_rate(header);
        }
    }

    /// Fixes the length of the newest second, because a later one begins.
    fn end_newest(&mut self) {
        let rate = self.rate();
        self.falls = if self.ends_below() { self.falls + 1 } else { 0 };
        let known = self.segments.last().map(|last| last.rate);
        if known == Some(rate) {
            self.agreed = true;
            return;
        }
        if self.may_be_half() && known == Some(rate * 2) {
            self.origin = Origin::Header;
            self.segments.clear();
        } else {
            self.origin = Origin::Derived;
        }
        self.segments.push(Segment { second: self.newest, start: self.newest_start, rate });
    }

    fn position(&self, index: i64) -> Option<(Second, u32)> {
        if index >= self.newest_start {
            let newest =
                Segment { second: self.newest, start: self.newest_start, rate: self.rate() };
            let only = self.segments.is_empty() && index >= newest.rate.cast_signed();
            return (!only).then(|| newest.position(index));
        }
        let until = self.segments.partition_point(|segment| segment.start <= index);
        Some(self.segments.get(until.saturating_sub(1))?.position(index))
    }

    fn correction(&self) -> u64 {
        let rate = self.rate();
        let mut begins = self.earliest;
        let ends = self.segments.iter().skip(1).map(|next| next.second).chain([self.newest]);
        let mut lacking = 0;
        for (segment, end) in self.segments.iter().zip(ends) {
            let seconds = u64::try_from(end.after(begins)).unwrap_or(0);
            lacking += seconds * rate.saturating_sub(segment.rate);
            begins = end;
        }
        lacking
    }
}

/// EDV 1 leaves open whether real samples are counted singly.
fn trust(header: &Header) -> Origin {
    match header.extended() {
        Extended::Nict { .. } if !header.complex() => Origin::PerhapsTwice,
        _ => Origin::Header,
    }
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
    use std::collections::HashSet;

    use super::super::SampleRate;
    use super::*;
    use proptest::prelude::*;

    const MIDNIGHT: u32 = 86_400;

    /// A header of one thread of 8032-byte frames.
    fn header(second: Second, frame: u32) -> Header {
        let mut header = Header::default().with_frame_bytes(8032).with_reference_epoch(53);
        header.set_time(second, frame);
        header
    }

    fn at(seconds: u32) -> Second {
        Second::of(53, seconds)
    }

    fn at_second(n: usize) -> Second {
        at(n as u32)
    }

    /// What the thread sends: `count` frames from frame `from` of second `start`.
    fn sent(
        start: Second,
        from: u32,
        count: u32,
        rate: u32,
    ) -> impl Iterator<Item = (Second, u32)> {
        (from..from + count).map(move |n| (Second(start.0 + i64::from(n / rate)), n % rate))
    }

    #[test]
    fn the_usual_stream_counts_on_across_seconds() {
        let mut timeline = Timeline::new(None);
        for (n, (second, frame)) in sent(at(100), 0, 12_000, 4000).enumerate() {
            assert_eq!(timeline.observe(&header(second, frame)), n as i64);
        }
        assert_eq!(timeline.frames_per_second(), Some(4000));
        assert!(timeline.is_derived());
        assert_eq!(timeline.position(8001), Some((at(102), 1)));
        assert_eq!(timeline.position(-1), Some((at(99), 3999)));
        assert_eq!(timeline.time(8001), Some(at(102).start().plus_ns(250_000)));
        assert_eq!(timeline.correction(), 0);
    }

    #[test]
    fn a_first_second_of_unknown_rate_has_positions_and_no_times() {
        let mut timeline = Timeline::new(None);
        assert_eq!(timeline.position(0), None);
        assert_eq!(timeline.observe(&header(at(5), 1000)), 1000);
        assert_eq!(timeline.frames_per_second(), None);
        assert!(!timeline.is_derived());
        assert_eq!(timeline.position(3), Some((at(5), 3)));
        assert_eq!(timeline.position(70_000), None);
        assert_eq!(timeline.position(-1), None);
        assert_eq!(timeline.time(3), None);
    }

    #[test]
    fn a_rate_that_is_given_holds_from_the_first_frame() {
        let mut timeline = Timeline::new(Some(4000));
        assert_eq!(timeline.observe(&header(at(7), 3998)), 3998);
        assert_eq!(timeline.index(&header(at(8), 2)), 4002);
        assert_eq!(timeline.index(&header(at(6), 3999)), -1);
        assert_eq!(timeline.observe(&header(at(7), 4000)), NOWHERE);
        assert_eq!(timeline.frames_per_second(), Some(4000));
        assert!(!timeline.is_derived());
        assert_eq!(Timeline::new(Some(4000)).observe(&header(at(7), 4000)), NOWHERE);
    }

    #[test]
    fn rates_that_cannot_be_count_as_not_given() {
        for rate in [0, (1 << 24) + 1, u64::MAX] {
            assert_eq!(Timeline::new(Some(rate)).frames_per_second(), None);
        }
    }

    #[test]
    fn a_loss_at_the_first_boundary_is_bridged_by_a_round_rate() {
        for lost in 0..=31 {
            let mut timeline = Timeline::new(None);
            timeline.observe(&header(at(0), 3999 - lost));
            assert_eq!(timeline.observe(&header(at(1), 0)), 4000, "{lost} lost");
            assert_eq!(timeline.frames_per_second(), Some(4000));
        }
    }

    #[test]
    fn a_frame_lost_or_overtaken_just_at_the_first_boundary_has_its_place() {
        let small = |second, frame| header(second, frame).with_frame_bytes(1056);
        for lost in 0..=2 {
            let mut timeline = Timeline::new(None);
            timeline.observe(&small(at(0), 999 - lost));
            assert_eq!(timeline.observe(&small(at(1), 0)), 1000, "{lost} overtaken");
            for overtaken in 1000 - lost..1000 {
                assert_eq!(timeline.observe(&small(at(0), overtaken)), i64::from(overtaken));
            }
            assert_eq!(timeline.observe(&small(at(1), 999)), 1999);
            assert_eq!(timeline.observe(&small(at(2), 0)), 2000);
            assert_eq!((timeline.frames_per_second(), timeline.correction()), (Some(1000), 0));
        }
    }

    #[test]
    fn a_second_of_an_odd_rate_is_early_until_one_before_it_has_confirmed_the_rate() {
        let mut timeline = Timeline::new(None);
        let mut early = Vec::new();
        for (second, frame) in sent(at(0), 0, 4 * 3907, 3907) {
            let header = header(second, frame);
            if timeline.is_early(&header) {
                early.push(second.0 - at(0).0);
                timeline.settle();
                assert!(!timeline.is_early(&header), "nobody waits any longer");
            }
            timeline.observe(&header);
        }
        assert_eq!(early, [1, 2], "the second border confirms what the first one showed");
        // Told by anybody, or round, there is nothing to wait for.
        for (given, last) in [(Some(3907), 3906), (None, 3999), (None, 3998)] {
            let mut timeline = Timeline::new(given);
            timeline.observe(&header(at(0), last));
            assert!(!timeline.is_early(&header(at(1), 0)), "{given:?} {last}");
        }
        let mut waiting = Timeline::new(None);
        waiting.observe(&header(at(0), 3905));
        assert!(waiting.is_early(&header(at(1), 0)));
        waiting.observe(&header(at(0), 3906));
        waiting.settle();
        assert_eq!(waiting.observe(&header(at(1), 0)), 3907);
        assert_eq!((waiting.frames_per_second(), waiting.correction()), (Some(3907), 0));
    }

    #[test]
    fn a_rate_that_headers_tell_and_frames_refute_is_learnt_anew_and_costs_no_place() {
        let rate = SampleRate { in_mhz: true, count: 16 };
        let template = header(at(0), 0)
            .with_frame_bytes(5032)
            .with_bits_per_sample(2)
            .with_extended(Extended::Nict { rate, das: *b"test\0\0\0\0" });
        let template = template.with_complex(true);
        assert_eq!(template.frames_per_second(), Some(1600));
        let mut timeline = Timeline::new(None);
        for (n, (second, frame)) in sent(at(0), 0, 20_000, 5000).enumerate() {
            let mut header = template;
            header.set_time(second, frame);
            assert_eq!(timeline.observe(&header), n as i64);
            assert_eq!(timeline.refuted().is_some(), n >= 1600, "{n}");
        }
        assert_eq!(timeline.frames_per_second(), Some(5000));
        assert!(timeline.is_derived());
        assert_eq!((timeline.refuted(), timeline.correction()), (Some((1600, 5000)), 0));
    }

    proptest! {
        #[test]
        fn whatever_the_rate_it_is_found_and_no_frame_is_invented(
            rate in prop::sample::select(vec![20u32, 64, 98, 99, 100, 469, 600, 1000, 3936, 3999, 4000]),
            words in 4u32..1100, from in any::<prop::sample::Index>(),
        ) {
            // At the end of a second too few come before the border to show where it lies.
            let from = from.index(rate as usize - 16) as u32 / 2;
            let mut timeline = Timeline::new(None);
            for (n, (second, frame)) in sent(at(0), from, 5 * rate, rate).enumerate() {
                let header = header(second, frame).with_frame_bytes(words * 8);
                prop_assert_eq!(timeline.observe(&header), n as i64 + i64::from(from));
            }
            prop_assert_eq!(timeline.frames_per_second(), Some(u64::from(rate)));
        }

        #[test]
        fn no_two_frames_share_a_place_while_rates_rise_and_fall(
            ends in prop::collection::vec((60u32..70, 0u32..4, 0u32..6), 2..12),
            words in 4u32..1100, from in 0u32..50, swapped in any::<bool>(),
        ) {
            let mut timeline = Timeline::new(None);
            let mut sent: Vec<(Second, u32)> = Vec::new();
            for (n, (end, lost, at)) in ends.iter().enumerate() {
                let begin = if n == 0 { from } else { 0 };
                let gone = end.saturating_sub(lost + at)..end.saturating_sub(*at);
                let frames = (begin..*end).filter(|frame| !gone.contains(frame));
                sent.extend(frames.map(|frame| (at_second(n), frame)));
            }
            if swapped {
                // The last of each second comes behind the first of the next.
                for k in 1..sent.len() {
                    if sent[k].1 == 0 {
                        sent.swap(k - 1, k);
                    }
                }
            }
            let mut placed = std::collections::BTreeMap::new();
            for (second, frame) in sent {
                let header = header(second, frame).with_frame_bytes(words * 8);
                let index = timeline.index(&header);
                prop_assert_eq!(timeline.observe(&header), index);
                if index != NOWHERE {
                    prop_assert_eq!(placed.insert(index, (second, frame)), None);
                }
            }
            prop_assert!(placed.values().is_sorted());
            for (index, frame) in placed {
                prop_assert_eq!(timeline.position(index), Some(frame));
            }
        }

        #[test]
        fn a_rate_taken_too_high_is_lowered_after_three_seconds(
            shown in 200u32..4000, lost in 1u32..16, words in 4u32..1100
        ) {
            let mut timeline = Timeline::new(None);
            for (second, frame) in sent(at(0), 0, 6 * shown, shown) {
                // Of the first second frames shortly before its end are lost, so it may be longer.
                let gone = second == at(0) && (shown - 2 - lost..shown - 2).contains(&frame);
                if !gone {
                    timeline.observe(&header(second, frame).with_frame_bytes(words * 8));
                }
            }
            prop_assert_eq!(timeline.frames_per_second(), Some(u64::from(shown)));
        }
    }

    #[test]
    fn a_rate_that_is_not_round_is_taken_as_it_is() {
        let mut timeline = Timeline::new(None);
        for (n, (second, frame)) in sent(at(0), 0, 9000, 3900).enumerate() {
            assert_eq!(timeline.observe(&header(second, frame)), n as i64);
        }
        assert_eq!(timeline.frames_per_second(), Some(3900));
    }

    #[test]
    fn a_rate_found_too_small_is_raised_for_later_seconds_and_the_rest_is_a_correction() {
        let mut timeline = Timeline::new(None);
        timeline.observe(&header(at(0), 3899)); // a hundred are lost
        assert_eq!(timeline.observe(&header(at(3), 0)), 3 * 3900);
        assert_eq!(timeline.frames_per_second(), Some(3900));
        assert_eq!(timeline.observe(&header(at(3), 3999)), 3 * 3900 + 3999);
        assert_eq!(timeline.frames_per_second(), Some(4000));
        assert_eq!(timeline.observe(&header(at(4), 0)), 3 * 3900 + 4000);
        assert_eq!(timeline.correction(), 3 * 100);
        assert_eq!(timeline.index(&header(at(2), 5)), 2 * 3900 + 5, "earlier starts stay");
        assert_eq!(timeline.index(&header(at(2), 3900)), NOWHERE);
        assert_eq!(timeline.position(2 * 3900 + 5), Some((at(2), 5)));
    }

    #[test]
    fn a_rate_raised_twice_corrects_each_boundary_once() {
        let mut timeline = Timeline::new(None);
        for (second, last) in [(0, 3799), (1, 3899), (2, 3999)] {
            timeline.observe(&header(at(second), last));
        }
        assert_eq!(timeline.observe(&header(at(3), 0)), 3800 + 3900 + 4000);
        assert_eq!(timeline.correction(), 200 + 100);
    }

    #[test]
    fn frames_of_the_second_before_may_come_after_the_first() {
        let mut timeline = Timeline::new(None);
        assert_eq!(timeline.observe(&header(at(1), 1)), 1);
        assert_eq!(timeline.observe(&header(at(0), 3998)), -2);
        assert_eq!(timeline.observe(&header(at(0), 3999)), -1);
        assert_eq!(timeline.observe(&header(at(1), 0)), 0);
        assert_eq!(timeline.position(-2), Some((at(0), 3998)));
        assert_eq!(timeline.frames_per_second(), Some(4000));
    }

    #[test]
    fn invalid_frames_have_an_index_and_teach_nothing() {
        let mut timeline = Timeline::new(None);
        let strange = header(at(900), 12_000_000).with_invalid(true);
        assert_eq!(timeline.observe(&strange), 12_000_000);
        assert_eq!(timeline.observe(&header(at(0), 0)), 0);
        timeline.observe(&strange);
        assert_eq!(timeline.observe(&header(at(0), 3999)), 3999);
        assert_eq!(timeline.observe(&header(at(1), 0)), 4000);
    }

    fn with_rate(header: Header, rate: Extended) -> Header {
        header.with_frame_bytes(5032).with_bits_per_sample(2).with_extended(rate)
    }

    #[test]
    fn the_extended_data_tell_the_rate_before_any_boundary() {
        let rate = SampleRate { in_mhz: true, count: 16 };
        let vlba = Extended::Vlba {
            rate,
            lo_tuning: 0,
            unassigned: 0,
            dbe: 0,
            intermediate: 0,
            subband: 0,
            upper_sideband: true,
            major: 0,
            minor: 0,
            personality: 0,
        };
        let mut timeline = Timeline::new(None);
        timeline.observe(&with_rate(header(at(0), 7), Extended::Zero { words: [0; 4] }));
        assert_eq!(timeline.frames_per_second(), None);
        timeline.observe(&with_rate(header(at(0), 8), vlba));
        assert_eq!(timeline.frames_per_second(), Some(1600));
        assert!(!timeline.is_derived());
        assert_eq!(timeline.observe(&with_rate(header(at(2), 0), vlba)), 3200);
    }

    #[test]
    fn a_sender_that_counts_real_samples_in_version_1_is_understood() {
        let rate = SampleRate { in_mhz: true, count: 32 };
        let nict = Extended::Nict { rate, das: *b"counting" };
        let mut timeline = Timeline::new(None);
        for (n, (second, frame)) in sent(at(0), 900, 4000, 1600).enumerate() {
            let index = timeline.observe(&with_rate(header(second, frame), nict));
            assert_eq!(index, 900 + n as i64);
        }
        assert_eq!(timeline.frames_per_second(), Some(1600));
        assert!(!timeline.is_derived());
        assert_eq!(timeline.correction(), 0);
    }

    #[test]
    fn an_epoch_change_is_seamless_with_and_without_a_leap_second() {
        // The half-year 33 had 184 days and ended with a leap second; 35 had 184 days and none.
        for (epoch, last) in [(33, 184 * MIDNIGHT), (35, 184 * MIDNIGHT - 1)] {
            let mut timeline = Timeline::new(Some(4000));
            let before = header(at(0), 3999).with_reference_epoch(epoch).with_seconds(last);
            let after = header(at(0), 0).with_reference_epoch(epoch + 1).with_seconds(0);
            assert_eq!(timeline.observe(&before), 3999);
            assert_eq!(timeline.observe(&after), 4000);
            assert_eq!(before.second().0 + 1, after.second().0);
            let still_counted = before.with_seconds(last + 1).with_frame_number(0);
            assert_eq!(timeline.index(&still_counted), 4000, "the old epoch may go on");
        }
    }

    #[test]
    fn the_leap_second_itself_has_its_own_time() {
        let second = Second::of(33, 184 * MIDNIGHT);
        let before = "2016-12-31T23:59:59Z".parse().unwrap();
        let after: Tai = "2017-01-01T00:00:00Z".parse().unwrap();
        assert_eq!(second.start().since(before), 1_000_000_000);
        assert_eq!(after.since(second.start()), 1_000_000_000);
    }

    #[test]
    fn midnight_is_a_second_like_any_other() {
        let mut timeline = Timeline::new(None);
        let start = at(3 * MIDNIGHT - 1);
        for (n, (second, frame)) in sent(start, 0, 8000, 4000).enumerate() {
            assert_eq!(timeline.observe(&header(second, frame)), n as i64);
        }
    }

    #[test]
    fn seconds_that_no_header_can_tell_become_the_nearest() {
        assert_eq!(Second(i64::MIN).since_epoch(53), (0, 0));
        assert_eq!(Second(i64::MAX).since_epoch(53), (53, 0x3FFF_FFFF));
        assert_eq!(Second(i64::MAX).since_epoch(u32::MAX).0, 63);
    }

    #[test]
    fn a_sender_that_raises_its_rate_for_ever_is_not_followed_for_ever() {
        let mut timeline = Timeline::new(None);
        for n in 0..1000 {
            timeline.observe(&header(at(n), 1000 * n));
        }
        let segments = &timeline.seen.as_ref().unwrap().segments;
        assert!(segments.len() <= SEGMENTS);
        assert_eq!(timeline.observe(&header(at(1000), 1_000_000)), NOWHERE);
    }

    /// A stream, what is lost of it, and how much the rest overtakes one another.
    #[derive(Clone, Debug)]
    struct Course {
        rate: u32,
        told: bool,
        from: u32,
        count: u32,
        lost: Vec<(u32, u32)>,
        skipped: Option<u32>,
        shuffle: Vec<u32>,
    }

    fn course() -> impl Strategy<Value = Course> {
        // Round rates, and others too far below the next round one to be taken for it.
        let rate =
            prop_oneof![(1u32..6).prop_map(|n| 125 * n), (4u32..9).prop_map(|n| 125 * n - 60)];
        (rate, any::<bool>()).prop_flat_map(|(rate, told)| {
            (
                0..rate,
                1..rate * 6,
                prop::collection::vec((0..rate * 6, 1u32..90), 0..6),
                prop::option::of(0u32..5),
                prop::collection::vec(0u32..64, 64),
            )
                .prop_map(move |(from, count, lost, skipped, shuffle)| Course {
                    rate,
                    told,
                    from,
                    count,
                    lost,
                    skipped,
                    shuffle,
                })
        })
    }

    impl Course {
        /// Frames in the order of arrival, each with its number since frame 0 of the first second.
        fn arrivals(&self) -> Vec<(u32, Header)> {
            let lost = |n: u32| self.lost.iter().any(|&(at, count)| (at..at + count).contains(&n));
            let skipped = |n: u32| self.skipped == Some(n / self.rate);
            // The leap second and the epoch's end lie in the midst of it.
            let start = Second::of(33, 184 * MIDNIGHT - 2);
            let mut arrivals: Vec<_> = sent(start, self.from, self.count, self.rate)
                .zip(self.from..)
                .filter(|&(_, n)| !lost(n) && !skipped(n))
                .map(|((second, frame), n)| {
                    let epoch = if second < Second::of(34, 0) { 33 } else { 34 };
                    let mut header = header(at(0), 0).with_reference_epoch(epoch);
                    header.set_time(second, frame);
                    (n, header)
                })
                .collect();
            arrivals.sort_by_key(|&(n, _)| n + self.shuffle[(n % 64) as usize]);
            arrivals
        }
    }

    proptest! {
        #[test]
        fn whatever_is_lost_and_however_frames_overtake_every_place_is_its_own(course in course()) {
            let arrivals = course.arrivals();
            let mut timeline = Timeline::new(course.told.then_some(u64::from(course.rate)));
            let mut placed = Vec::new();
            for &(n, header) in &arrivals {
                let index = timeline.index(&header);
                prop_assert_eq!(timeline.observe(&header), index, "asking and observing agree");
                prop_assert!(index != NOWHERE || !course.told, "a true rate leaves nobody out");
                if index != NOWHERE {
                    placed.push((n, index, header));
                }
            }
            let places: HashSet<i64> = placed.iter().map(|&(_, index, _)| index).collect();
            prop_assert_eq!(places.len(), placed.len(), "no two frames share a place");
            placed.sort_by_key(|&(n, ..)| n);
            prop_assert!(placed.is_sorted_by_key(|&(_, index, _)| index), "order is kept");
            for &(_, index, header) in &placed {
                let position = Some((header.second(), header.frame_number()));
                prop_assert_eq!(timeline.position(index), position, "and the way back is known");
                prop_assert_eq!(timeline.index(&header), index, "for ever");
            }
        }

        #[test]
        fn once_the_rate_has_shown_indices_and_correction_add_up_to_the_truth(course in course()) {
            let mut timeline = Timeline::new(course.told.then_some(u64::from(course.rate)));
            let placed: Vec<_> = course
                .arrivals()
                .into_iter()
                .map(|(n, header)| (i64::from(n), timeline.observe(&header)))
                .filter(|&(_, index)| index != NOWHERE)
                .collect();
            let (Some(first), Some(last)) = (placed.iter().min(), placed.iter().max()) else {
                return Ok(());
            };
            let spans_seconds = first.0 / i64::from(course.rate) != last.0 / i64::from(course.rate);
            if timeline.frames_per_second() == Some(u64::from(course.rate)) || !spans_seconds {
                let counted = last.1 - first.1 + timeline.correction().cast_signed();
                prop_assert_eq!(counted, last.0 - first.0);
            }
        }

        #[test]
        fn any_frames_in_any_order_leave_the_clock_consistent(
            given in prop::option::of(0u64..1 << 25),
            frames in prop::collection::vec((0u32..64, 0u32..1 << 30, 0u32..1 << 24, any::<bool>()), 0..100),
        ) {
            let mut timeline = Timeline::new(given);
            for (epoch, seconds, frame, invalid) in frames {
                let header = header(Second::of(epoch, seconds), frame)
                    .with_reference_epoch(epoch)
                    .with_seconds(seconds)
                    .with_invalid(invalid);
                let index = timeline.index(&header);
                prop_assert_eq!(timeline.observe(&header), index);
                prop_assert_eq!(timeline.index(&header), index);
                if index != NOWHERE && !invalid {
                    prop_assert_eq!(timeline.position(index), Some((header.second(), frame)));
                }
                timeline.time(index);
                timeline.correction();
            }
        }
    }

    #[test]
    fn no_index_however_strange_makes_the_way_back_fail() {
        let mut timeline = Timeline::new(None);
        timeline.observe(&header(at(0), 3999));
        timeline.observe(&header(at(1), 0));
        for index in [i64::MIN, NOWHERE, NOWHERE + 1, -1, i64::MAX] {
            timeline.position(index);
            timeline.time(index);
        }
        assert_eq!(timeline.position(NOWHERE), None);
    }
}
