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
//! Frames with the *invalid* flag get an index like all others, and teach less, because their time may be
//! wrong: those that fit among the frames before tell that they came (see [`rate`]), and a row of them is
//! believed where a second begins, or the stream.

mod rate;

use super::{Extended, Header, Second};
use crate::time::{Tai, frame_ns};
use rate::{HIGHEST_RATE, Numbers, ROW};

/// The index of a frame that has no place: its number lies beyond the end of its second, which is
/// either given or fixed since the next second began. Less than any other index.
pub const NOWHERE: i64 = i64::MIN / 2;

/// How often a rate can be raised. An honest stream needs one or two.
const SEGMENTS: usize = 64;

/// The clock of one flow of frames: one thread of one station from one sender.
#[derive(Clone, Debug)]
pub struct Timeline {
    given: Option<u64>,
    seen: Option<Seen>,
    run: Run,
}

/// How many frames came one directly after the other, invalid ones too.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    last: Option<(Second, u32)>,
    frames: u32,
}

impl Run {
    /// Counts a frame; another thread's of the same number is the same.
    #[inline]
    fn add(&mut self, second: Second, frame: u32) -> u32 {
        let before = self.last.replace((second, frame));
        self.frames = match before.filter(|before| before.0 == second) {
            Some((_, number)) if number + 1 == frame => self.frames.saturating_add(1),
            Some((_, number)) if number == frame => self.frames,
            _ => 1,
        };
        self.frames
    }
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
    /// What the numbers of its frames tell of how long a second is.
    numbers: Numbers,
    /// The rate that the first header tells, true or not.
    told: Option<u64>,
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
        Timeline { given, seen: None, run: Run::default() }
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

    /// The same, and learns from it unless it has no place; little if it is invalid. Call it only for frames
    /// that may well belong to this stream: time is not judged here.
    #[inline]
    pub fn observe(&mut self, header: &Header) -> i64 {
        let index = self.index(header);
        if index != NOWHERE {
            let row = self.run.add(header.second(), header.frame_number());
            match &mut self.seen {
                Some(seen) => seen.learn(header, row),
                None if is_believed(header, row) => {
                    self.seen = Some(Seen::first(header, row, self.given));
                }
                None => {}
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
    /// It is what the first second is seen to end with. Where so much was lost before that end that it is no
    /// certain one, a rate just below a whole number of Mbit/s is taken for that number, and so is one that is
    /// one or two below a multiple of a hundred; if later seconds end there as well, it is lowered again, and
    /// the frames between look missing in one or two seconds only.
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
        let shown = seen.numbers.proven();
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
    fn first(header: &Header, row: u32, given: Option<u64>) -> Self {
        let (second, frame) = (header.second(), header.frame_number());
        let mut seen = Seen {
            first: second,
            earliest: second,
            newest: second,
            newest_start: 0,
            numbers: Numbers::new(header.payload_bytes(), frame, row, !header.invalid()),
            told: header.frames_per_second().filter(|_| given.is_none()),
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
        let possible = self.numbers.shown()..=HIGHEST_RATE;
        if let Some(rate) = rate.filter(|rate| possible.contains(rate)) {
            self.told(rate, trust(header));
        }
    }

    /// Frames of the newest second, as they would be fixed if the next second began now.
    fn rate(&self) -> u64 {
        self.rate_if(self.numbers.shown())
    }

    /// The same, had frame numbers shown so many.
    fn rate_if(&self, shown: u64) -> u64 {
        let Some(last) = self.segments.last() else { return self.numbers.rate_of(shown) };
        if let Some(rate) = self.lowered(last.rate) {
            return rate;
        }
        let half = last.rate / 2;
        if self.may_be_half() && half >= shown && shown + rate::SNAP > half {
            return half;
        }
        if self.may_rise() && shown > last.rate { self.numbers.rate_of(shown) } else { last.rate }
    }

    /// What is to be taken for the rate instead of this one, where that is too high.
    fn lowered(&self, rate: u64) -> Option<u64> {
        let may_fall = self.origin == Origin::Derived && self.segments.len() < 2 * SEGMENTS;
        if may_fall { self.numbers.rate_below(rate) } else { None }
    }

    /// Until the first second ends, the header's rate may be read either way.
    fn may_be_half(&self) -> bool {
        let even = self.segments.last().is_some_and(|last| last.rate.is_multiple_of(2));
        self.origin == Origin::PerhapsTwice && self.earliest == self.newest && even
    }

    fn is_unsure(&self) -> bool {
        let rate = self.rate();
        let odd = self.numbers.is_odd(rate);
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
                let rate = self.rate_if(self.numbers.shown().max(u64::from(frame) + 1));
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

    /// Learns from a frame at the end of a row of so many.
    fn learn(&mut self, header: &Header, row: u32) {
        let (second, frame) = (header.second(), header.frame_number());
        let valid = !header.invalid();
        if second == self.newest {
            if valid { self.numbers.came(frame) } else { self.numbers.came_invalid(frame) }
        } else if second > self.newest && is_believed(header, row) {
            let start = self.start(second, frame);
            self.end_newest();
            (self.newest, self.newest_start) = (second, start);
            self.numbers.begin_second(frame, row, valid);
            self.settled = false;
        } else if second < self.newest && valid {
            self.overtaken(second, frame);
        }
        if valid && self.segments.is_empty() {
            self.read_rate(header);
        }
    }

    /// Learns from a valid frame of a second before the newest.
    fn overtaken(&mut self, second: Second, frame: u32) {
        if second < self.earliest {
            if self.segments.is_empty() {
                let rate = self.rate_if(self.numbers.shown().max(u64::from(frame) + 1));
                self.segments.push(Segment { second: self.first, start: 0, rate });
            }
            self.earliest = second;
        }
        self.numbers.prove(frame);
    }

    /// Fixes the length of the newest second, because a later one begins.
    fn end_newest(&mut self) {
        let rate = self.rate();
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

/// Whether its time is taken to be true: an invalid frame's at the end of a row of many.
fn is_believed(header: &Header, row: u32) -> bool {
    !header.invalid() || row >= ROW
}

/// EDV 1 leaves open whether real samples are counted singly.
fn trust(header: &Header) -> Origin {
    match header.extended() {
        Extended::Nict { .. } if !header.complex() => Origin::PerhapsTwice,
        _ => Origin::Header,
    }
}

#[cfg(test)]
mod tests;
