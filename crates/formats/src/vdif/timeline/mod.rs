//! The clock of one thread: converts the time in VDIF headers to an index that counts frames, and back.
//!
//! ```text
//! second    s                      s + 1                  s + 2
//! frame     0   1   2  …  fps − 1  0    1    2   …        0
//! index     0   1   2  …  fps − 1  fps  fps+1  …          2·fps
//! ```
//!
//! Index 0 is frame 0 of the first observed second, even if that frame never arrived. If the number of frames per
//! second is neither given nor in the headers, it is learnt at the first boundary between two seconds, from the highest
//! frame number so far. The first index of a second is fixed when its first frame is observed. It never changes,
//! because frames may already be stored by it. A rate that proves too small is therefore raised for later seconds only,
//! and [`Timeline::correction`] returns the frames that were missed at earlier boundaries.
//!
//! Frames with the *invalid* flag get an index like all others, but have less influence on the rate, because their time
//! may be wrong. An invalid frame that fits among the previous frames counts as received (see [`rate`]). A run of
//! invalid frames is trusted to begin a second, or the stream.

mod rate;

use super::{Extended, Header, Second};
use fullbore_time::{Tai, frame_ns};
use rate::{HIGHEST_RATE, Numbers, ROW};

/// The index of a frame without a position: its number is beyond the end of its second, which is either given or was
/// fixed at the start of the next second. Less than any other index.
pub const NOWHERE: i64 = i64::MIN / 2;

/// The largest number of times that a rate can be raised. A correct stream needs one or two.
const SEGMENTS: usize = 64;

/// The clock of one flow of frames: one thread of one station from one sender.
#[derive(Clone, Debug)]
pub struct Timeline {
    given: Option<u64>,
    seen: Option<Seen>,
    run: Run,
}

/// The number of frames that arrived in direct succession, including invalid ones.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    last: Option<(Second, u32)>,
    frames: u32,
}

impl Run {
    /// Counts a frame; the frame of another thread with the same number is not counted again.
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

/// The facts learnt from the observed frames.
#[derive(Clone, Debug)]
struct Seen {
    /// The second of index 0.
    first: Second,
    /// The earliest second of an observed frame; frames may overtake others at the very start.
    earliest: Second,
    /// The latest second. Its end is not fixed yet.
    newest: Second,
    /// Index of frame 0 of the newest second.
    newest_start: i64,
    /// The frame numbers, from which the length of a second is derived.
    numbers: Numbers,
    /// The rate in the first header, true or not.
    told: Option<u64>,
    /// The source of the rate.
    origin: Origin,
    /// Segments of equal rate, in order; empty while no rate is known.
    segments: Vec<Segment>,
    /// True if two consecutive seconds had the same rate.
    agreed: bool,
    /// True if the caller no longer waits for overtaken frames of the newest second.
    settled: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// From the caller. Never changed.
    Given,
    /// From the extended data of the headers.
    Header,
    /// From the headers too, but of a kind that some senders write as twice the true rate.
    PerhapsTwice,
    /// From frame numbers at a boundary between seconds.
    Derived,
}

/// A segment: from `second` on, at index `start`, seconds have `rate` frames.
#[derive(Clone, Copy, Debug)]
struct Segment {
    second: Second,
    start: i64,
    rate: u64,
}

impl Segment {
    /// Returns the index of frame 0 of a second; before the segment too.
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
    /// Returns a clock with this number of frames per second, or one that derives it. A rate beyond the range of a
    /// 24-bit frame number (or zero) counts as not given.
    pub fn new(frames_per_second: Option<u64>) -> Self {
        let given = frames_per_second.filter(|rate| (1..=HIGHEST_RATE).contains(rate));
        Timeline { given, seen: None, run: Run::default() }
    }

    /// Returns the index of this frame, relative to frame 0 of the first observed second: negative in an earlier
    /// second, [`NOWHERE`] beyond the end of its own. Learns nothing.
    ///
    /// A frame without a position is late if the rate is derived, and contradicts a rate that is given.
    #[inline]
    pub fn index(&self, header: &Header) -> i64 {
        let frame = header.frame_number();
        match &self.seen {
            Some(seen) => seen.index(header.second(), frame),
            None if self.given.is_some_and(|rate| u64::from(frame) >= rate) => NOWHERE,
            None => i64::from(frame),
        }
    }

    /// Returns the index of this frame, and learns from it unless it has no position; less if it is invalid. Call it
    /// only for frames that plausibly belong to this stream: time is not checked here.
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

    /// True if this frame begins a second before the length of the previous one is certain: that length is learnt from
    /// its frames, is not a round number, no other second has confirmed it, and its last frames may have been
    /// overtaken. A caller that can wait observes further frames, and then calls [`Timeline::settle`].
    #[inline]
    pub fn is_early(&self, header: &Header) -> bool {
        let ends = |seen: &Seen| header.second() > seen.newest && seen.is_unsure();
        self.seen.as_ref().is_some_and(ends)
    }

    /// Fixes the length of the newest second at the value that its frames show now.
    pub fn settle(&mut self) {
        if let Some(seen) = &mut self.seen {
            seen.settled = true;
        }
    }

    /// Returns the frames per second: given, from the extended data, or derived. `None` in the first second of a stream
    /// without a rate.
    ///
    /// A derived rate is the observed length of the first second. If the end is uncertain because of losses, a rate
    /// just below a whole number of Mbit/s is rounded up to it, and so is one that is one or two below a multiple of a
    /// hundred. If later seconds end at the lower number as well, the rate is lowered again, and the frames in between
    /// appear missing in one or two seconds only.
    pub fn frames_per_second(&self) -> Option<u64> {
        let seen = self.seen.as_ref().filter(|seen| !seen.segments.is_empty());
        seen.map(Seen::rate).or(self.given)
    }

    /// True if the rate was learnt from frame numbers.
    pub fn is_derived(&self) -> bool {
        let seen = self.seen.as_ref().filter(|seen| !seen.segments.is_empty());
        seen.is_some_and(|seen| seen.origin() == Origin::Derived)
    }

    /// Returns second and frame number of an index, received or not. In the first second of a stream of unknown rate
    /// only that second's own frames have a position.
    pub fn position(&self, index: i64) -> Option<(Second, u32)> {
        if index <= NOWHERE {
            return None;
        }
        self.seen.as_ref()?.position(index)
    }

    /// Returns the instant of an index's first sample, once the rate is known.
    pub fn time(&self, index: i64) -> Option<Tai> {
        let rate = self.frames_per_second()?;
        let (second, frame) = self.position(index)?;
        Some(second.start().plus_ns(frame_ns(u64::from(frame), rate)))
    }

    /// Returns a rate of the headers that frame numbers have refuted, and the minimum rate by the frames.
    pub fn refuted(&self) -> Option<(u64, u64)> {
        let seen = self.seen.as_ref()?;
        let shown = seen.numbers.proven();
        seen.told.filter(|&told| told < shown).map(|told| (told, shown))
    }

    /// Returns a given rate that is probably too high, and the number of frames that seconds show: several seconds ended
    /// there, and none had a frame beyond it.
    pub fn exaggerated(&self) -> Option<(u64, u64)> {
        let given = self.given?;
        let shown = self.seen.as_ref()?.numbers.end_below(given)?;
        Some((given, shown))
    }

    /// Returns the number of frames without an index because their second was assumed to be too short: they are missing
    /// in addition to the gaps between indices. Received frames among them got [`NOWHERE`]. A caller that counts these
    /// as late must subtract them here.
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

    /// Takes the rate from the extended data, if it has one that is not exceeded already.
    fn read_rate(&mut self, header: &Header) {
        let rate = header.frames_per_second();
        let possible = self.numbers.shown()..=HIGHEST_RATE;
        if let Some(rate) = rate.filter(|rate| possible.contains(rate)) {
            self.told(rate, trust(header));
        }
    }

    /// Returns the frames of the newest second, as they would be fixed if the next second began now.
    fn rate(&self) -> u64 {
        self.rate_if(self.numbers.shown())
    }

    /// Returns the same, for this highest number of frames.
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

    /// Returns the rate to use in place of this one, if this one is too high.
    fn lowered(&self, rate: u64) -> Option<u64> {
        let may_fall = self.origin == Origin::Derived && self.segments.len() < 2 * SEGMENTS;
        if may_fall { self.numbers.rate_below(rate) } else { None }
    }

    /// True until the first second ends, if the header's rate may be twice the true one.
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

    /// Returns the index of frame 0 of a second, past or future.
    fn start(&self, second: Second, frame: u32) -> i64 {
        if second > self.newest {
            return self.newest_start + second.after(self.newest) * self.rate().cast_signed();
        }
        match self.segment_of(second) {
            Some(segment) => segment.start_of(second),
            // The stream began at the end of a second, and frames of the next one arrived first.
            None => {
                let rate = self.rate_if(self.numbers.shown().max(u64::from(frame) + 1));
                second.after(self.newest) * rate.cast_signed()
            }
        }
    }

    /// True if the second has a frame of this number.
    #[inline]
    fn has_place(&self, second: Second, frame: u32) -> bool {
        if second >= self.newest {
            return self.may_rise() || u64::from(frame) < self.rate();
        }
        self.segment_of(second).is_none_or(|segment| u64::from(frame) < segment.rate)
    }

    /// Returns the segment of a second before the newest.
    fn segment_of(&self, second: Second) -> Option<&Segment> {
        let until = self.segments.partition_point(|segment| segment.second <= second);
        self.segments.get(until.saturating_sub(1))
    }

    /// Learns from a frame at the end of a run of `row` frames.
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

    /// Fixes the length of the newest second when a later one begins.
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

/// True if the time of a frame is trusted: an invalid frame's only at the end of a long run.
fn is_believed(header: &Header, row: u32) -> bool {
    !header.invalid() || row >= ROW
}

/// EDV 1 does not define if real samples are counted singly.
fn trust(header: &Header) -> Origin {
    match header.extended() {
        Extended::Nict { .. } if !header.complex() => Origin::PerhapsTwice,
        _ => Origin::Header,
    }
}

#[cfg(test)]
mod tests;
