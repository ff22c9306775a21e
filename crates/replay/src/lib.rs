//! Sends recorded frames again: one thread plays several streams in step.
//!
//! ```text
//! FrameSource (a run of frames in memory) ─┐
//! FrameSource ─────────────────────────────┼─► the frame that is due next ─► its Sender
//! FrameSource ─────────────────────────────┘
//! ```
//!
//! The frames of a stream keep their order regardless of their times; between streams the recorded times decide.
//! Streams recorded together have frames of equal times, which a single link cannot carry at once. By default, stream
//! *n* of *N* is therefore sent *n*/*N* of a frame later than the first, so that streams alternate evenly instead of in
//! bursts of *N*. Fill in place of lost frames is not sent by default.
//!
//! A scan that is still being recorded is played as it becomes durable. When a stream has no more durable frames, all
//! streams wait for it, so that they stay in step.
//!
//! In a loop or a playlist, a receiver that uses the times in the frames would see them jump. From the second turn on,
//! times are therefore moved by a whole number of frames, so that each turn goes on where the one before ended. The next
//! turn is read ahead during the current one, so that there is no pause between the two.
//!
//! The [account](underrun) says of each frame whether it was sent on time, and if not, why.
//!
//! It may open sockets, plain files, packet captures and stored scans. It changes none of them.

mod file;
mod followed;
mod head;
pub mod pace;
mod pacer;
mod packets;
mod playing;
pub mod playlist;
pub mod position;
mod sent;
mod sequence;
mod start;
mod step;
mod stored;
mod timeline;
pub mod underrun;

use std::borrow::Cow;
use std::ops::RangeInclusive;

use fullbore_core::endpoint::UdpTarget;
use fullbore_core::hint::Hint;
use fullbore_core::units::ByteRate;
use fullbore_formats::framed::FrameCodec;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_linux::sys::send;
use fullbore_time::Tai;
use serde::Serialize;

pub use file::{FileError, FrameFile};
pub use followed::{FollowedFrames, Looking, wait_for_delay};
pub use packets::{PacketFrames, PacketsError};
pub use sent::{Progress, Sent, cpu_seconds, rate};
pub use start::{Passed, StartAccount, Timing, start};
pub use step::{InStep, StepSummary};
pub use stored::{StoredError, StoredFrames};

use crate::pace::Waiting;
use crate::pacer::{ASK_AGAIN, Pacer};
use crate::playing::Playing;
use crate::sequence::Sequence;

/// An error of a source; it names the file or scan itself.
pub type SourceError = Box<dyn std::error::Error + Send + Sync>;

/// A frame of the loaded run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The bytes of the frame.
    pub bytes: &'a [u8],
    /// The due time, if known.
    pub time: Option<Tai>,
    /// True if it is fill in place of a lost frame.
    pub fill: bool,
    /// Reads and writes its header, if it has one whose time can be changed.
    pub dated: Option<FrameCodec>,
}

/// How the headers of a stream's frames tell the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderClock {
    /// They do not.
    None,
    /// By a second, and a frame number of unknown rate.
    Seconds,
    /// By a second, and a frame number at this many frames per second.
    Rate(u64),
}

impl HeaderClock {
    /// The clock of frames with a header at this rate, if it is known.
    pub fn of(rate: Option<u64>) -> Self {
        rate.filter(|rate| *rate > 0).map_or(HeaderClock::Seconds, HeaderClock::Rate)
    }

    /// The frames per second of headers that tell the time, if they are known.
    fn rate(self) -> Option<Option<u64>> {
        match self {
            HeaderClock::None => None,
            HeaderClock::Seconds => Some(None),
            HeaderClock::Rate(rate) => Some(Some(rate)),
        }
    }
}

/// The frames of one stream in order, one run at a time.
pub trait FrameSource {
    /// Loads the next run of frames, replacing the previous one; `false` at the end, or while it
    /// [`waits`](Self::waits).
    fn advance(&mut self) -> Result<bool, SourceError>;
    /// The number of frames in the run.
    fn count(&self) -> usize;
    /// A frame of the run.
    fn frame(&self, n: usize) -> Frame<'_>;
    /// The clock in the headers of its frames.
    fn header_clock(&self) -> HeaderClock {
        HeaderClock::None
    }
    /// Goes back to before the first run. Unless [`again`](Self::again) was called, nothing is read until then.
    fn rewind(&mut self) -> Result<(), SourceError>;
    /// Announces another turn after this one, or the first turn: its first runs are read meanwhile.
    fn again(&mut self) -> Result<(), SourceError> {
        Ok(())
    }
    /// Notes on unreadable data so far.
    fn losses(&self) -> &[String] {
        &[]
    }
    /// The number of frames in the unreadable data, in all turns so far.
    fn lost_frames(&self) -> u64 {
        0
    }
    /// True if more frames may follow later.
    fn waits(&self) -> bool {
        false
    }
    /// The time of the newest frames of a growing stream.
    fn edge(&self) -> Option<Tai> {
        None
    }
}

/// A stream and its destination.
pub struct PlaybackStream<'a> {
    /// Name of the stream.
    pub name: String,
    /// Its frames.
    pub source: Box<dyn FrameSource + 'a>,
    /// The destination.
    pub target: UdpTarget,
}

/// A part of a playlist: its streams are played in step, between two times, and the part a number of times in a row.
pub struct Segment<'a> {
    /// The frames of each stream, in the order of the destinations.
    pub sources: Vec<Box<dyn FrameSource + 'a>>,
    /// Frames before this time are skipped.
    pub from: Option<Tai>,
    /// Frames at this time and later are skipped.
    pub to: Option<Tai>,
    /// The number of turns.
    pub times: u64,
}

/// The allowed factors of the recorded speed.
const FACTORS: RangeInclusive<f64> = 1e-3..=1e3;

/// The allowed rates: from a frame per minute or so to a terabit per second.
const RATES: RangeInclusive<ByteRate> = ByteRate(125)..=ByteRate(125_000_000_000);

/// The speed of a replay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Speed {
    /// As recorded, times a factor.
    Recorded {
        /// 2 is twice as fast.
        factor: f64,
    },
    /// Bytes per second, for all streams together.
    Rate(ByteRate),
    /// As fast as possible.
    FlatOut,
}

/// The settings of a replay.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The speed.
    pub speed: Speed,
    /// The way to wait for due times.
    pub waiting: Waiting,
    /// The factor by which it may be faster after a stall.
    pub catch_up: f64,
    /// The number of turns, or of passes through a playlist; `None`: until stopped.
    pub times: Option<u64>,
    /// Frames before this time are skipped.
    pub from: Option<Tai>,
    /// Frames at this time and later are skipped.
    pub to: Option<Tai>,
    /// True if fill is sent like frames.
    pub fills: bool,
    /// True if a 64-bit packet number, lowest byte first, precedes each frame (VTP).
    pub packet_numbers: bool,
    /// True if streams take turns within the time of a frame.
    pub spread: bool,
    /// True if each turn of a loop has the recorded times instead of advancing ones.
    pub as_recorded: bool,
    /// The delay added after the replay has caught up with the recording.
    pub delay_ns: u64,
    /// When sending begins, and which frames count as late.
    pub timing: Timing,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            speed: Speed::Recorded { factor: 1.0 },
            waiting: Waiting::Exact,
            catch_up: crate::pace::CATCH_UP,
            times: Some(1),
            from: None,
            to: None,
            fills: false,
            packet_numbers: false,
            spread: true,
            as_recorded: false,
            delay_ns: 0,
            timing: Timing::default(),
        }
    }
}

/// A replay that could not begin, or ended early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No stream.
    #[error("there is no stream to play")]
    NoTracks,
    /// Segments with different numbers of streams.
    #[error("segment {number} has {streams} streams, and there are {targets} destinations")]
    Segment {
        /// The segment, counted from 1.
        number: usize,
        /// Its streams.
        streams: usize,
        /// The destinations.
        targets: usize,
    },
    /// A segment without a frame between its times.
    #[error("segment {number} has no frame to play")]
    EmptySegment {
        /// The segment, counted from 1.
        number: usize,
    },
    /// No frame between the two times, or no frame at all.
    #[error("there is no frame to play")]
    NoFrames,
    /// A stream without times, so without a pace.
    #[error("the frames of {name} have no times, which playing needs")]
    NoTime {
        /// The stream.
        name: String,
    },
    /// A factor out of range.
    #[error(
        "{factor} times the recorded speed is out of range ({} to {} times)",
        FACTORS.start(), FACTORS.end()
    )]
    Factor {
        /// The requested factor.
        factor: f64,
    },
    /// A rate out of range.
    #[error("a rate of {rate} is out of range ({} to {})", RATES.start(), RATES.end())]
    Rate {
        /// The requested rate.
        rate: ByteRate,
    },
    /// A frame that is too long for a datagram with its header.
    #[error("{name} has a frame of {bytes} bytes, which fits no datagram")]
    Long {
        /// The stream.
        name: String,
        /// Its length.
        bytes: usize,
    },
    /// An error of a source.
    #[error("reading {name}")]
    Source {
        /// The stream.
        name: String,
        /// The error.
        source: SourceError,
    },
    /// A start in the past.
    #[error(transparent)]
    Passed(#[from] Passed),
    /// A socket error.
    #[error(transparent)]
    Send(#[from] send::Error),
}

impl Hint for Error {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Error::NoTime { .. } => "give a rate, such as --rate 2Gbit/s, or --flat-out",
            Error::Factor { .. } | Error::Rate { .. } => {
                "use --flat-out to send as fast as possible"
            }
            Error::Passed(_) => "give an instant a few seconds from now, in UTC",
            Error::Send(error) => return error.hint(),
            _ => return None,
        }))
    }
}

/// The result of a stream.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PlaybackReport {
    /// Its name.
    pub name: String,
    /// The destination.
    pub target: String,
    /// Frames that the kernel took.
    pub frames: u64,
    /// Bytes of those frames.
    pub bytes: u64,
    /// Fill frames that were left out.
    pub fills_left_out: u64,
    /// Frames outside the requested times.
    pub passed_over: u64,
    /// Frames that the kernel refused.
    pub refused: u64,
    /// Notes on unreadable data.
    pub losses: Vec<String>,
    /// The lag behind the durable frames, for a stream that was being recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag: Option<Lag>,
}

/// The lag of the frames sent behind the newest durable ones, in recorded time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Lag {
    /// The smallest lag.
    pub least_seconds: f64,
    /// The largest lag.
    pub most_seconds: f64,
    /// The last lag.
    pub last_seconds: f64,
}

impl Lag {
    fn note(before: Option<Self>, now: f64) -> Self {
        let (least, most) = before.map_or((now, now), |it| (it.least_seconds, it.most_seconds));
        Self { least_seconds: least.min(now), most_seconds: most.max(now), last_seconds: now }
    }
}

/// The result of a replay.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Frames that the kernel took.
    pub frames: u64,
    /// The counts and times of sending.
    #[serde(flatten)]
    pub sent: Sent,
    /// The due time of the last frame in seconds from the start, if there was a pace.
    pub due_seconds: Option<f64>,
    /// The start, if it was to be at an instant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<StartAccount>,
    /// How far streams were from being in step, if there were several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<StepSummary>,
    /// The number of complete turns, or of complete passes through a playlist.
    pub times: u64,
    /// True if it was stopped before its end.
    pub stopped: bool,
    /// The number of times that the replay waited for the recording.
    pub waits: u64,
    /// The total time of these waits.
    pub waited_seconds: f64,
    /// The result of each stream.
    pub streams: Vec<PlaybackReport>,
}

impl Report {
    /// True if the pace was kept: nearly all frames were sent within a millisecond of their due time, and the total
    /// time was right. A replay that was stopped has the time of the stop.
    pub fn in_time(&self) -> bool {
        const MOST_LATE: f64 = 0.01;
        // Waking up and ending take a while, which is a large part of a short replay.
        const SLACK_SECONDS: f64 = 0.01;
        let lateness = &self.sent.lateness;
        let dragged = |due: f64| self.sent.seconds > due * (1.0 + MOST_LATE) + SLACK_SECONDS;
        lateness.late as f64 <= lateness.packets as f64 * MOST_LATE
            && (self.stopped || !self.due_seconds.is_some_and(dragged))
    }
}

/// Streams with open sockets.
pub struct Replay<'a> {
    playing: Vec<Playing<'a>>,
    /// The times between which each segment is played, and the order of the segments.
    ranges: Vec<(Option<Tai>, Option<Tai>)>,
    sequence: Sequence,
    settings: Settings,
}

impl<'a> Replay<'a> {
    /// Opens the sockets for streams that are played in step.
    pub fn prepare(playbacks: Vec<PlaybackStream<'a>>, settings: Settings) -> Result<Self, Error> {
        let (mut outputs, mut sources) = (Vec::new(), Vec::new());
        for PlaybackStream { name, source, target } in playbacks {
            outputs.push((name, target));
            sources.push(source);
        }
        let segment = Segment { sources, from: settings.from, to: settings.to, times: 1 };
        Self::playlist(outputs, vec![segment], settings)
    }

    /// Opens a socket for each destination, to play segments one after the other.
    pub fn playlist(
        outputs: Vec<(String, UdpTarget)>,
        segments: Vec<Segment<'a>>,
        settings: Settings,
    ) -> Result<Self, Error> {
        if outputs.is_empty() || segments.is_empty() {
            return Err(Error::NoTracks);
        }
        match settings.speed {
            Speed::Recorded { factor } if !FACTORS.contains(&factor) => {
                return Err(Error::Factor { factor });
            }
            Speed::Rate(rate) if !RATES.contains(&rate) => return Err(Error::Rate { rate }),
            Speed::Recorded { .. } | Speed::Rate(_) | Speed::FlatOut => {}
        }
        let targets = outputs.len();
        let mut sources: Vec<Vec<_>> = outputs.iter().map(|_| Vec::new()).collect();
        let (mut ranges, mut times) = (Vec::new(), Vec::new());
        for (n, segment) in segments.into_iter().enumerate() {
            if segment.sources.len() != targets {
                let streams = segment.sources.len();
                return Err(Error::Segment { number: n + 1, streams, targets });
            }
            ranges.push((segment.from, segment.to));
            times.push(segment.times);
            sources.iter_mut().zip(segment.sources).for_each(|(all, it)| all.push(it));
        }
        let sequence = Sequence::new(times, settings.times);
        let open = |((name, target), sources)| Playing::open(name, &target, sources);
        let playing = outputs.into_iter().zip(sources).map(open).collect::<Result<_, _>>()?;
        Ok(Replay { playing, ranges, sequence, settings })
    }

    /// Sends until all frames are sent or `stop` is set.
    pub fn run(mut self, stop: &StopHandle, progress: &Progress) -> Result<Report, Error> {
        let _span = tracing::info_span!("replay", streams = self.playing.len()).entered();
        let (mut stopped, cpu_before) = (false, cpu_seconds());
        let mut pacer: Option<Pacer> = None;
        while let Some(segment) = self.sequence.segment() {
            let after = self.sequence.after();
            let began_ns = pacer.as_ref().map(|pacer| pacer.gate.now_ns());
            for playing in &mut self.playing {
                match began_ns {
                    Some(_) => playing.enter(segment, self.ranges[segment])?,
                    None => playing.begin(segment, self.ranges[segment])?,
                }
            }
            let Some(first) = self.start(stop)? else {
                if stop.is_requested() || self.ranges.len() == 1 {
                    break;
                }
                return Err(Error::EmptySegment { number: segment + 1 });
            };
            if pacer.is_none() && self.settings.spread {
                self.spread();
            }
            if let Some(after) = after {
                self.playing.iter_mut().try_for_each(|playing| playing.read_on(after))?;
            }
            tracing::info!(segment = segment + 1, "sends");
            let pacer = match &mut pacer {
                Some(pacer) => pacer,
                None => {
                    let (waiting, at) = (self.settings.waiting, self.settings.timing.at);
                    let clock = start::start(waiting, at, stop)?;
                    let several_turns = after.is_some();
                    let begun = Pacer::start(&self.playing, &self.settings, several_turns, clock);
                    let pacer = pacer.insert(begun);
                    pacer.begin(first);
                    pacer
                }
            };
            if let Some(began_ns) = began_ns {
                pacer.account.waited_for_frames(pacer.gate.now_ns().saturating_sub(began_ns));
            }
            pacer.turn(&mut self.playing, &self.settings);
            if !pacer.play(&mut self.playing, &self.settings, stop, progress)? {
                stopped = true;
                break;
            }
            self.sequence.step();
        }
        let Some(mut pacer) = pacer else { return Err(Error::NoFrames) };
        for (number, playing) in self.playing.iter_mut().enumerate() {
            pacer.count_lost(playing, number);
        }
        let cpu_seconds = cpu_seconds() - cpu_before;
        Ok(Report { stopped, ..self.report(pacer, cpu_seconds) })
    }

    /// Gives each stream its turn within the time of the shortest frame.
    fn spread(&mut self) {
        let streams = self.playing.len() as i64;
        let period_ns = self.playing.iter().filter_map(Playing::period_ns).min().unwrap_or(0);
        for (number, playing) in self.playing.iter_mut().enumerate() {
            playing.turn_ns = period_ns * number as i64 / streams;
        }
    }

    /// Moves to the first frame of each stream and returns the earliest time; `None` without any frame.
    fn start(&mut self, stop: &StopHandle) -> Result<Option<Tai>, Error> {
        loop {
            let earliest = self.start_now()?;
            let waits = || self.playing.iter().any(|playing| playing.source().waits());
            if earliest.is_some() || !waits() || stop.is_requested() {
                return Ok(earliest);
            }
            stop.wait(ASK_AGAIN);
        }
    }

    fn start_now(&mut self) -> Result<Option<Tai>, Error> {
        let (mut any, mut earliest) = (false, None);
        for playing in &mut self.playing {
            if !playing.settle(&self.settings)? {
                continue;
            }
            any = true;
            let time = playing.time();
            if time.is_none() && matches!(self.settings.speed, Speed::Recorded { .. }) {
                return Err(Error::NoTime { name: playing.report.name.clone() });
            }
            earliest = match (earliest, time) {
                (Some(earliest), Some(time)) => Some(std::cmp::min(earliest, time)),
                (earliest, time) => earliest.or(time),
            };
        }
        Ok(any.then(|| earliest.unwrap_or(Tai(0))))
    }

    fn report(self, pacer: Pacer, cpu_seconds: f64) -> Report {
        let tallies: Vec<send::Tally> =
            self.playing.iter().map(|playing| playing.sender.tally()).collect();
        let seconds = pacer.gate.now_ns() as f64 / 1e9;
        let bytes = self.playing.iter().map(|playing| playing.report.bytes).sum();
        let lateness = pacer.lateness.summary();
        Report {
            frames: tallies.iter().map(|tally| tally.sent).sum(),
            sent: Sent::of(&tallies, bytes, seconds, cpu_seconds, lateness, pacer.account.finish()),
            due_seconds: pacer.timed.then_some(pacer.end_ns as f64 / 1e9),
            start: pacer.first_sent,
            step: pacer.in_step.map(|step| step.summary()),
            times: self.sequence.passes(),
            stopped: false,
            waits: pacer.waits,
            waited_seconds: pacer.waited_ns as f64 / 1e9,
            streams: self
                .playing
                .into_iter()
                .map(|playing| PlaybackReport { losses: playing.losses(), ..playing.report })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests;
