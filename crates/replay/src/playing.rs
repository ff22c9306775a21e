//! A stream that is played: its sources, its socket, and its position.

use fullbore_core::endpoint::UdpTarget;
use fullbore_linux::sys::send::{Destination, Sender};
use fullbore_time::{Tai, frame_ns};

use crate::{Error, Frame, FrameSource, HeaderClock, Lag, PlaybackReport, Settings, SourceError};

/// A stream and its position.
pub(super) struct Playing<'a> {
    /// The source in each segment.
    pub sources: Vec<Box<dyn FrameSource + 'a>>,
    /// The present segment, and the times between which its frames are played.
    pub segment: usize,
    range: (Option<Tai>, Option<Tai>),
    pub sender: Sender,
    /// The next frame of the run.
    pub at: usize,
    /// Packet number of the next frame.
    pub number: u64,
    /// Frames never go back before this time, which preserves their order.
    pub latest: Tai,
    /// The delay of its frames after their recorded times, so that streams take turns.
    pub turn_ns: i64,
    /// The offset of the times in its frames: frames, or seconds if their rate is unknown.
    pub moved: i64,
    /// The time between frames without a clock in their headers.
    spacing_ns: i64,
    /// Unreadable frames that were counted.
    lost_counted: u64,
    pub report: PlaybackReport,
}

impl<'a> Playing<'a> {
    /// Connects a socket. There is a source for each segment.
    pub fn open(
        name: String,
        target: &UdpTarget,
        sources: Vec<Box<dyn FrameSource + 'a>>,
    ) -> Result<Self, Error> {
        let sender = Sender::connect(&Destination::of(target)?)?;
        let report =
            PlaybackReport { name, target: target.to_string(), ..PlaybackReport::default() };
        Ok(Playing {
            sources,
            segment: 0,
            range: (None, None),
            sender,
            at: 0,
            number: 0,
            latest: Tai(i64::MIN),
            turn_ns: 0,
            moved: 0,
            spacing_ns: 0,
            lost_counted: 0,
            report,
        })
    }

    /// The source of this segment.
    pub fn source(&self) -> &(dyn FrameSource + 'a) {
        &*self.sources[self.segment]
    }

    /// The clocks in the headers of all segments.
    pub fn clocks(&self) -> impl Iterator<Item = HeaderClock> {
        self.sources.iter().map(|source| source.header_clock())
    }

    pub fn error(&self, source: SourceError) -> Error {
        Error::Source { name: self.report.name.clone(), source }
    }

    /// Goes back to the start of this segment's source, and to the start of another segment.
    pub fn enter(
        &mut self,
        segment: usize,
        range: (Option<Tai>, Option<Tai>),
    ) -> Result<(), Error> {
        let left = self.segment;
        self.sources[left].rewind().map_err(|error| self.error(error))?;
        (self.segment, self.range) = (segment, range);
        self.latest = Tai(i64::MIN);
        // The loaded run is over.
        self.at = self.source().count();
        Ok(())
    }

    /// Chooses the segment to begin with, and starts to read it.
    pub fn begin(
        &mut self,
        segment: usize,
        range: (Option<Tai>, Option<Tai>),
    ) -> Result<(), Error> {
        (self.segment, self.range) = (segment, range);
        self.read_on(segment)
    }

    /// Starts to read the first frames of a segment.
    pub fn read_on(&mut self, segment: usize) -> Result<(), Error> {
        self.sources[segment].again().map_err(|error| self.error(error))
    }

    /// Moves to the next frame to send, and loads runs as needed; `false` at the end, or while it waits for more.
    pub fn settle(&mut self, settings: &Settings) -> Result<bool, Error> {
        loop {
            while self.at < self.source().count() {
                match self.fate(&self.source().frame(self.at), settings) {
                    Fate::Send => return Ok(true),
                    Fate::LeaveOut => self.report.fills_left_out += 1,
                    Fate::PassOver => self.report.passed_over += 1,
                }
                self.at += 1;
            }
            self.at = 0;
            let segment = self.segment;
            if !self.sources[segment].advance().map_err(|error| self.error(error))? {
                return Ok(false);
            }
            self.spacing_ns = self.period_ns().unwrap_or(self.spacing_ns);
            self.note_lag();
        }
    }

    /// Returns the unreadable frames since the last call.
    pub fn take_lost(&mut self) -> u64 {
        let lost = self.sources.iter().map(|source| source.lost_frames()).sum::<u64>();
        lost.saturating_sub(std::mem::replace(&mut self.lost_counted, lost))
    }

    /// The notes on unreadable data of all sources.
    pub fn losses(&self) -> Vec<String> {
        self.sources.iter().flat_map(|source| source.losses().iter().cloned()).collect()
    }

    /// Records the lag of the loaded run behind the newest frames.
    fn note_lag(&mut self) {
        let first = (self.source().count() > 0).then(|| self.source().frame(0).time).flatten();
        if let (Some(edge), Some(first)) = (self.source().edge(), first) {
            let seconds = edge.since(first).max(0) as f64 / 1e9;
            self.report.lag = Some(Lag::note(self.report.lag, seconds));
        }
    }

    /// The time of the next frame, not before any earlier one.
    pub fn time(&self) -> Option<Tai> {
        Some(self.source().frame(self.at).time?.max(self.latest))
    }

    /// The place of a frame in time, and the time from it to the next one. It is the time in the header, which is exact,
    /// unless a damaged header disagrees with the recording.
    pub fn place(&self, frame: &Frame<'_>) -> Option<(Tai, i64)> {
        let clock = self.source().header_clock();
        let header = frame.dated.and_then(|codec| codec.read(frame.bytes));
        match (clock, header) {
            (HeaderClock::Rate(rate), Some(header)) => {
                let after = frame_ns(u64::from(header.frame_number()), rate);
                let own = header.second().start().plus_ns(after);
                Some((trusted(own, frame.time), frame_ns(1, rate).max(1)))
            }
            (HeaderClock::Seconds, Some(header)) => {
                Some((trusted(header.second().start(), frame.time), SECOND_NS))
            }
            _ => Some((frame.time?, self.spacing_ns)),
        }
    }

    /// The time between frames of the loaded run.
    pub fn period_ns(&self) -> Option<i64> {
        let source = self.source();
        let last = source.count().checked_sub(1)?;
        let ns = source.frame(last).time?.since(source.frame(0).time?);
        ns.checked_div(i64::try_from(last).ok()?).filter(|ns| *ns > 0)
    }

    /// Bytes per second of the loaded run, by its times.
    pub fn rate(&self) -> Option<u64> {
        let source = self.source();
        let count = source.count();
        let last = source.frame(count.checked_sub(1)?).time?;
        let ns = last.since(source.frame(0).time?);
        let ns = u64::try_from(ns).ok().filter(|ns| *ns > 0)?;
        let bytes: u64 = (0..count).map(|n| source.frame(n).bytes.len() as u64).sum();
        u64::try_from(u128::from(bytes) * 1_000_000_000 / u128::from(ns)).ok()
    }

    /// Decides about a frame.
    pub fn fate(&self, frame: &Frame<'_>, settings: &Settings) -> Fate {
        let (from, to) = self.range;
        let outside =
            |time: Tai| from.is_some_and(|from| time < from) || to.is_some_and(|to| time >= to);
        match frame.time {
            Some(time) if outside(time) => Fate::PassOver,
            _ if frame.fill && !settings.fills => Fate::LeaveOut,
            _ => Fate::Send,
        }
    }
}

const SECOND_NS: i64 = 1_000_000_000;

/// The time in a header, unless it is more than a second from the recorded one.
fn trusted(own: Tai, recorded: Option<Tai>) -> Tai {
    recorded.filter(|time| own.since(*time).abs() > SECOND_NS).unwrap_or(own)
}

/// The decision about a frame.
pub(super) enum Fate {
    Send,
    LeaveOut,
    PassOver,
}
