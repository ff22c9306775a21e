//! Recorded frames sent again: several streams in step with one another, by one thread.
//!
//! ```text
//! FrameSource (a run of frames in memory) ─┐
//! FrameSource ─────────────────────────────┼─► whichever frame is due next ─► its Sender
//! FrameSource ─────────────────────────────┘
//! ```
//!
//! The frames of a stream keep their order whatever their times say; between streams the recorded
//! times decide. Streams recorded together have frames of the same times, which no single wire can carry
//! at once: unless asked not to, stream *n* of *N* goes *n*/*N* of a frame later than the first, so that
//! they take turns evenly instead of in bursts of *N*. What was lost when recording has fill in its place, which is left out unless asked
//! for: what was lost is not sent.
//!
//! What is still being recorded is played as it becomes durable. A stream of which nothing more is durable yet is waited
//! for, and when it goes on all of them go on so much later: they stay in step.
//!
//! When all is played again, a receiver that goes by the times in the frames would see them jump back. So
//! from the second turn on VDIF times are moved on by the length of what is played, in whole seconds.
//! The next turn is read ahead like the rest of this one, so that nothing stops between the two.

mod file;
mod followed;
mod stored;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::IoSlice;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use fullbore_core::endpoint::UdpTarget;
use fullbore_core::format::vdif::{Header, Second};
use fullbore_core::time::Tai;
use fullbore_core::units::ByteRate;
use serde::Serialize;

pub use file::{FileError, ReadAt, VdifFile};
pub use followed::{FollowedFrames, Looking, wait_for_delay};
pub use stored::{StoredError, StoredFrames};

use crate::generate::{Progress, Sent, cpu_seconds};
use crate::pace::{Gate, Lateness, Monotonic, Period, Waiting, group_size};
use crate::sys::send::{self, Destination, MOST_PACKETS, Packet, Sender};

/// What went wrong in a source; it names the file or scan itself.
pub type SourceError = Box<dyn std::error::Error + Send + Sync>;

/// A frame of the run that is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// All of it.
    pub bytes: &'a [u8],
    /// When it was due, if that is known.
    pub time: Option<Tai>,
    /// It stands in the place of a frame that is not there.
    pub fill: bool,
    /// It begins with a VDIF header, whose time can be moved.
    pub dated: bool,
}

/// The frames of one stream in order, a run of them at a time.
pub trait FrameSource {
    /// Loads the next run of frames in the place of the one before; `false` at the end, or while it [`waits`](Self::waits).
    fn advance(&mut self) -> Result<bool, SourceError>;
    /// How many frames the run has.
    fn count(&self) -> usize;
    /// A frame of the run.
    fn frame(&self, n: usize) -> Frame<'_>;
    /// Goes back before the first run.
    fn rewind(&mut self) -> Result<(), SourceError>;
    /// All is to be played again after this turn: what comes first then is read while this turn lasts.
    fn again(&mut self) -> Result<(), SourceError> {
        Ok(())
    }
    /// What should have been there and could not be read, so far.
    fn losses(&self) -> &[String] {
        &[]
    }
    /// Whether more frames may come where there are none now.
    fn waits(&self) -> bool {
        false
    }
    /// Of a stream that grows: when its newest frames were.
    fn edge(&self) -> Option<Tai> {
        None
    }
}

/// A stream and where it goes.
pub struct Track<'a> {
    /// Name of the stream.
    pub name: String,
    /// Its frames.
    pub source: Box<dyn FrameSource + 'a>,
    /// Where they go.
    pub target: UdpTarget,
}

/// What the recorded speed can be multiplied by.
const FACTORS: RangeInclusive<f64> = 1e-3..=1e3;

/// From a frame in about a minute to a terabit per second.
const RATES: RangeInclusive<ByteRate> = ByteRate(125)..=ByteRate(125_000_000_000);

/// How fast frames go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Speed {
    /// As recorded, times a factor.
    Recorded {
        /// 2 is twice as fast.
        factor: f64,
    },
    /// At so many bytes per second, all streams together.
    Rate(ByteRate),
    /// As fast as possible.
    FlatOut,
}

/// What is to be done with the tracks.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How fast.
    pub speed: Speed,
    /// How to wait for due times.
    pub waiting: Waiting,
    /// How much faster it may be after a stall.
    pub catch_up: f64,
    /// How often all is played; `None`: until stopped.
    pub times: Option<u64>,
    /// Frames before this time are passed over.
    pub from: Option<Tai>,
    /// Frames at this time and later too.
    pub to: Option<Tai>,
    /// Fill is sent like frames.
    pub fills: bool,
    /// A 64-bit packet number, lowest byte first, goes before each frame (VTP).
    pub packet_numbers: bool,
    /// Streams take turns within the time of a frame.
    pub spread: bool,
    /// Each turn of a loop bears the times that were recorded, instead of times that go on.
    pub as_recorded: bool,
    /// When what is being recorded was caught up with, it is played so much later than it came.
    pub delay_ns: u64,
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
        }
    }
}

/// A replay that cannot be, or that did not reach its end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No stream at all.
    #[error("there is no stream to play")]
    NoTracks,
    /// No frame between the two times, or none at all.
    #[error("there is no frame to play")]
    NoFrames,
    /// No pace to keep.
    #[error("the frames of {name} carry no time to play them by")]
    NoTime {
        /// The stream.
        name: String,
    },
    /// A factor that is no speed, or an absurd one.
    #[error(
        "{factor} times the recorded speed cannot be played: it is {} to {} times",
        FACTORS.start(), FACTORS.end()
    )]
    Factor {
        /// What was asked for.
        factor: f64,
    },
    /// A rate at which nothing would come, or that nothing carries.
    #[error("a rate of {rate} cannot be played: it is {} to {}", RATES.start(), RATES.end())]
    Rate {
        /// What was asked for.
        rate: ByteRate,
    },
    /// A frame with which its head is too long for a datagram.
    #[error("{name} has a frame of {bytes} bytes, which fits no datagram")]
    Long {
        /// The stream.
        name: String,
        /// Its length.
        bytes: usize,
    },
    /// A source.
    #[error("reading {name}")]
    Source {
        /// The stream.
        name: String,
        /// What went wrong.
        source: SourceError,
    },
    /// A socket.
    #[error(transparent)]
    Send(#[from] send::Error),
}

impl Error {
    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Error::NoTime { .. } => Some("give a rate, such as --rate 2Gbit/s, or --flat-out"),
            Error::Factor { .. } | Error::Rate { .. } => Some("--flat-out goes as fast as it can"),
            Error::Send(error) => error.hint(),
            _ => None,
        }
    }
}

/// What was played of a stream.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TrackReport {
    /// Its name.
    pub name: String,
    /// Where it went.
    pub target: String,
    /// Frames that the kernel took.
    pub frames: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Fill that was left out.
    pub fills_left_out: u64,
    /// Frames outside the times asked for.
    pub passed_over: u64,
    /// Frames that the kernel refused.
    pub refused: u64,
    /// What could not be read.
    pub losses: Vec<String>,
    /// Of a stream that was being recorded: how far it was played behind what was durable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag: Option<Lag>,
}

/// How far the frames that were sent were behind the newest that were durable, in recorded time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Lag {
    /// When it was least.
    pub least_seconds: f64,
    /// When it was most.
    pub most_seconds: f64,
    /// Last.
    pub last_seconds: f64,
}

impl Lag {
    fn note(before: Option<Self>, now: f64) -> Self {
        let (least, most) = before.map_or((now, now), |it| (it.least_seconds, it.most_seconds));
        Self { least_seconds: least.min(now), most_seconds: most.max(now), last_seconds: now }
    }
}

/// How a replay went.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Frames that the kernel took.
    pub frames: u64,
    /// How they went.
    #[serde(flatten)]
    pub sent: Sent,
    /// When the last frame was due, in seconds from the start, if there was a pace to keep.
    pub due_seconds: Option<f64>,
    /// How often all was played to its end.
    pub times: u64,
    /// It was stopped before its end.
    pub stopped: bool,
    /// How often what was being recorded was caught up with, and waited for.
    pub waits: u64,
    /// For how long in all.
    pub waited_seconds: f64,
    /// Each stream.
    pub streams: Vec<TrackReport>,
}

impl Report {
    /// Whether the pace was kept: nearly all frames went within a millisecond of their due time, and the
    /// whole took as long as it should. What was stopped ended when it was told to.
    pub fn in_time(&self) -> bool {
        const MOST_LATE: f64 = 0.01;
        // Waking up and ending take a while, which is much of a replay that is short.
        const SLACK_SECONDS: f64 = 0.01;
        let lateness = &self.sent.lateness;
        let dragged = |due: f64| self.sent.seconds > due * (1.0 + MOST_LATE) + SLACK_SECONDS;
        lateness.late as f64 <= lateness.packets as f64 * MOST_LATE
            && (self.stopped || !self.due_seconds.is_some_and(dragged))
    }
}

/// Tracks with their sockets open, at their first frames.
pub struct Replay<'a> {
    playing: Vec<Playing<'a>>,
    settings: Settings,
}

/// A track and where it has come to.
struct Playing<'a> {
    source: Box<dyn FrameSource + 'a>,
    sender: Sender,
    /// The next frame of the run.
    at: usize,
    /// Number of the next frame, for those who want one.
    number: u64,
    /// Frames never go back before this time, so that their order stays.
    latest: Tai,
    /// How much later than recorded its frames are due, to take turns with other streams.
    turn_ns: i64,
    report: TrackReport,
}

impl<'a> Playing<'a> {
    fn open(track: Track<'a>) -> Result<Self, Error> {
        let Track { name, source, target } = track;
        let sender = Sender::connect(&Destination::of(&target)?)?;
        let report = TrackReport { name, target: target.to_string(), ..TrackReport::default() };
        Ok(Playing { source, sender, at: 0, number: 0, latest: Tai(i64::MIN), turn_ns: 0, report })
    }

    fn error(&self, source: SourceError) -> Error {
        Error::Source { name: self.report.name.clone(), source }
    }

    /// Comes to the next frame that is to be sent, loading runs as needed; `false` at the end, or while more is waited
    /// for.
    fn settle(&mut self, settings: &Settings) -> Result<bool, Error> {
        loop {
            while self.at < self.source.count() {
                match fate(&self.source.frame(self.at), settings) {
                    Fate::Send => return Ok(true),
                    Fate::LeaveOut => self.report.fills_left_out += 1,
                    Fate::PassOver => self.report.passed_over += 1,
                }
                self.at += 1;
            }
            self.at = 0;
            if !self.source.advance().map_err(|error| self.error(error))? {
                return Ok(false);
            }
            self.note_lag();
        }
    }

    /// How far behind the newest frames the run is that was loaded.
    fn note_lag(&mut self) {
        let first = (self.source.count() > 0).then(|| self.source.frame(0).time).flatten();
        if let (Some(edge), Some(first)) = (self.source.edge(), first) {
            let seconds = edge.since(first).max(0) as f64 / 1e9;
            self.report.lag = Some(Lag::note(self.report.lag, seconds));
        }
    }

    /// The time of the next frame, no earlier than any before it.
    fn time(&self) -> Option<Tai> {
        Some(self.source.frame(self.at).time?.max(self.latest))
    }

    /// From frame to frame of the run that is loaded, by its times.
    fn period_ns(&self) -> Option<i64> {
        let last = self.source.count().checked_sub(1)?;
        let ns = self.source.frame(last).time?.since(self.source.frame(0).time?);
        ns.checked_div(i64::try_from(last).ok()?).filter(|ns| *ns > 0)
    }

    /// Bytes per second of the run that is loaded, by its times.
    fn rate(&self) -> Option<u64> {
        let count = self.source.count();
        let first = self.source.frame(0).time?;
        let last = self.source.frame(count.checked_sub(1)?).time?;
        let ns = u64::try_from(last.since(first)).ok().filter(|ns| *ns > 0)?;
        let bytes: u64 = (0..count).map(|n| self.source.frame(n).bytes.len() as u64).sum();
        u64::try_from(u128::from(bytes) * 1_000_000_000 / u128::from(ns)).ok()
    }
}

/// What becomes of a frame.
enum Fate {
    Send,
    LeaveOut,
    PassOver,
}

fn fate(frame: &Frame<'_>, settings: &Settings) -> Fate {
    let outside = |time: Tai| {
        settings.from.is_some_and(|from| time < from) || settings.to.is_some_and(|to| time >= to)
    };
    match frame.time {
        Some(time) if outside(time) => Fate::PassOver,
        _ if frame.fill && !settings.fills => Fate::LeaveOut,
        _ => Fate::Send,
    }
}

/// From recorded times to due times.
struct Due {
    speed: Speed,
    /// The earliest time of all streams.
    origin: Tai,
    /// When the present turn of the loop began.
    base_ns: u64,
    /// Time of one byte, at a given rate.
    byte: Period,
    bytes: u64,
}

impl Due {
    /// When a frame of that time is due, `turn_ns` after it, if `ahead` more bytes go before it.
    fn ns(&self, time: Option<Tai>, turn_ns: i64, ahead: u64) -> u64 {
        match (self.speed, time) {
            (Speed::Recorded { factor }, Some(time)) => {
                let after = time.plus_ns(turn_ns).since(self.origin).max(0);
                let after = if factor == 1.0 { after } else { (after as f64 / factor) as i64 };
                self.base_ns.saturating_add(after as u64)
            }
            (Speed::Rate(_), _) => self.byte.times_ns(self.bytes + ahead),
            (Speed::Recorded { .. }, None) | (Speed::FlatOut, _) => 0,
        }
    }
}

impl<'a> Replay<'a> {
    /// Opens the sockets and comes to the first frames.
    pub fn prepare(tracks: Vec<Track<'a>>, settings: Settings) -> Result<Self, Error> {
        if tracks.is_empty() {
            return Err(Error::NoTracks);
        }
        match settings.speed {
            Speed::Recorded { factor } if !FACTORS.contains(&factor) => {
                return Err(Error::Factor { factor });
            }
            Speed::Rate(rate) if !RATES.contains(&rate) => return Err(Error::Rate { rate }),
            Speed::Recorded { .. } | Speed::Rate(_) | Speed::FlatOut => {}
        }
        let playing = tracks.into_iter().map(Playing::open).collect::<Result<_, _>>()?;
        Ok(Replay { playing, settings })
    }

    /// Sends until all is sent or `stop` is set.
    pub fn run(mut self, stop: &AtomicBool, progress: &Progress) -> Result<Report, Error> {
        let (mut times, mut stopped, cpu_before) = (0, false, cpu_seconds());
        let mut pacer = None;
        while self.settings.times.is_none_or(|wanted| times < wanted) {
            if times > 0 {
                self.rewind()?;
            }
            let Some(start) = self.start(stop)? else { break };
            if self.settings.times.is_none_or(|wanted| times + 1 < wanted) {
                self.read_on()?;
            }
            if pacer.is_none() && self.settings.spread {
                self.spread();
            }
            let pacer = pacer.get_or_insert_with(|| Pacer::start(&self.playing, &self.settings));
            pacer.turn(start, &self.settings);
            if !pacer.play(&mut self.playing, &self.settings, stop, progress)? {
                stopped = true;
                break;
            }
            times += 1;
        }
        let Some(pacer) = pacer else { return Err(Error::NoFrames) };
        let report = self.report(times, &pacer, cpu_seconds() - cpu_before);
        Ok(Report { stopped, ..report })
    }

    /// Gives each stream its turn within the time of the shortest frame.
    fn spread(&mut self) {
        let streams = self.playing.len() as i64;
        let period_ns = self.playing.iter().filter_map(Playing::period_ns).min().unwrap_or(0);
        for (number, playing) in self.playing.iter_mut().enumerate() {
            playing.turn_ns = period_ns * number as i64 / streams;
        }
    }

    /// Has the first frames of the next turn read before the last of this one are due.
    fn read_on(&mut self) -> Result<(), Error> {
        for playing in &mut self.playing {
            playing.source.again().map_err(|error| playing.error(error))?;
        }
        Ok(())
    }

    fn rewind(&mut self) -> Result<(), Error> {
        for playing in &mut self.playing {
            playing.source.rewind().map_err(|error| playing.error(error))?;
            (playing.at, playing.latest) = (0, Tai(i64::MIN));
            // The run that was loaded is over.
            playing.at = playing.source.count();
        }
        Ok(())
    }

    /// Comes to the first frame of each stream and gives the earliest time; `None` without any frame.
    fn start(&mut self, stop: &AtomicBool) -> Result<Option<Tai>, Error> {
        loop {
            let earliest = self.start_now()?;
            let waits = || self.playing.iter().any(|playing| playing.source.waits());
            if earliest.is_some() || !waits() || stop.load(Ordering::Relaxed) {
                return Ok(earliest);
            }
            std::thread::sleep(ASK_AGAIN);
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

    fn report(self, times: u64, pacer: &Pacer, cpu_seconds: f64) -> Report {
        let tallies: Vec<send::Tally> =
            self.playing.iter().map(|playing| playing.sender.tally()).collect();
        let seconds = pacer.gate.now_ns() as f64 / 1e9;
        let bytes = self.playing.iter().map(|playing| playing.report.bytes).sum();
        Report {
            frames: tallies.iter().map(|tally| tally.sent).sum(),
            sent: Sent::of(&tallies, bytes, seconds, cpu_seconds, pacer.lateness.summary()),
            due_seconds: pacer.timed.then_some(pacer.end_ns as f64 / 1e9),
            times,
            stopped: false,
            waits: pacer.waits,
            waited_seconds: pacer.waited_ns as f64 / 1e9,
            streams: self
                .playing
                .into_iter()
                .map(|playing| {
                    let losses = playing.source.losses().to_vec();
                    TrackReport { losses, ..playing.report }
                })
                .collect(),
        }
    }
}

/// Keeps the pace of all tracks.
struct Pacer {
    gate: Gate<Monotonic>,
    due: Due,
    lateness: Lateness,
    timed: bool,
    /// Frames to wait for before a group goes, and the most of one group.
    group: usize,
    most: usize,
    /// When the next turn of a loop begins.
    end_ns: u64,
    /// Times of the first and last dated frame of this turn, where another may follow.
    span: Option<(Tai, Tai)>,
    /// How far the times in the frames of this turn are moved on, in seconds.
    moved: i64,
    /// How often tracks were waited for, and how long.
    waits: u64,
    waited_ns: u64,
}

/// Tells how far the replay is behind what is durable, by the stream that is furthest behind, once one of them has come
/// to its next run.
fn tell_lag(playing: &[Playing<'_>], settled: usize, progress: &Progress) {
    if playing[settled].at > 0 {
        return;
    }
    let lags = playing.iter().filter_map(|track| track.report.lag);
    if let Some(most) = lags.map(|lag| lag.last_seconds).reduce(f64::max) {
        progress.lags(std::time::Duration::from_secs_f64(most));
    }
}

/// Time between two questions whether a track that waits has more.
const ASK_AGAIN: std::time::Duration = std::time::Duration::from_millis(5);

impl Pacer {
    fn start(playing: &[Playing<'_>], settings: &Settings) -> Self {
        let recorded = playing.iter().filter_map(Playing::rate).sum::<u64>();
        let rate = match settings.speed {
            Speed::Recorded { factor } => (recorded as f64 * factor) as u64,
            Speed::Rate(rate) => rate.0,
            Speed::FlatOut => u64::MAX,
        };
        let (group, most) = match settings.waiting {
            Waiting::Exact => (group_size(rate), group_size(rate)),
            Waiting::Gentle => (1, MOST_PACKETS),
        };
        let byte = match settings.speed {
            Speed::Rate(rate) => Period::of_rate(1, rate.0),
            Speed::Recorded { .. } | Speed::FlatOut => Period::of_rate(1, u64::MAX),
        };
        Pacer {
            gate: Gate::new(
                Monotonic::start(settings.waiting),
                settings.waiting,
                settings.catch_up,
            ),
            due: Due { speed: settings.speed, origin: Tai(0), base_ns: 0, byte, bytes: 0 },
            lateness: Lateness::default(),
            timed: settings.speed != Speed::FlatOut,
            group,
            most,
            end_ns: 0,
            span: None,
            moved: 0,
            waits: 0,
            waited_ns: 0,
        }
    }

    /// Begins a turn of the loop whose earliest frame has this time.
    fn turn(&mut self, origin: Tai, settings: &Settings) {
        (self.due.origin, self.due.base_ns) = (origin, self.end_ns);
        let Some((first, last)) = self.span.take().filter(|_| !settings.as_recorded) else {
            return;
        };
        self.moved += last.since(first).max(0) / SECOND_NS + 1;
        // Frames are due when their new times say so.
        if let Speed::Recorded { factor } = settings.speed {
            let moved_ns = (self.moved.saturating_mul(SECOND_NS) as f64 / factor) as u64;
            self.due.base_ns = self.end_ns.max(moved_ns);
        }
    }

    /// Takes note of when a frame is from, so that the next turn can go on from there.
    fn note(&mut self, frame: &Frame<'_>, settings: &Settings) {
        if settings.times == Some(1) || !frame.dated {
            return;
        }
        let own = || Some(Header::read(frame.bytes).ok()?.second().start());
        let Some(time) = frame.time.or_else(own) else { return };
        let (first, last) = self.span.unwrap_or((time, time));
        self.span = Some((first.min(time), last.max(time)));
    }

    /// Plays all tracks to their ends; `false` if stopped before.
    fn play(
        &mut self,
        playing: &mut [Playing<'_>],
        settings: &Settings,
        stop: &AtomicBool,
        progress: &Progress,
    ) -> Result<bool, Error> {
        let mut turns = BinaryHeap::new();
        let mut waiting: Vec<usize> = Vec::new();
        for (number, track) in playing.iter().enumerate() {
            if track.at < track.source.count() {
                turns.push(Reverse((self.order(track, settings), number)));
            } else if track.source.waits() {
                waiting.push(number);
            }
        }
        let mut asked = Instant::now();
        loop {
            if stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            if !waiting.is_empty() && asked.elapsed() >= ASK_AGAIN {
                asked = Instant::now();
                for number in std::mem::take(&mut waiting) {
                    let track = &mut playing[number];
                    if track.settle(settings)? {
                        tell_lag(playing, number, progress);
                        let track = &playing[number];
                        self.hold_up(track, settings);
                        turns.push(Reverse((self.order(track, settings), number)));
                    } else if track.source.waits() {
                        waiting.push(number);
                    }
                }
            }
            let Some(Reverse((order, number))) = turns.pop() else {
                if waiting.is_empty() {
                    return Ok(true);
                }
                std::thread::sleep(ASK_AGAIN);
                continue;
            };
            let track = &mut playing[number];
            if !waiting.is_empty() && self.is_far(track, settings) {
                turns.push(Reverse((order, number)));
                std::thread::sleep(ASK_AGAIN);
                continue;
            }
            if !self.comes_near(track, settings, stop) {
                return Ok(false);
            }
            let (until_ns, now_ns) = self.wait(track, settings);
            self.send(track, settings, until_ns, now_ns, progress)?;
            if track.settle(settings)? {
                tell_lag(playing, number, progress);
                turns.push(Reverse((self.order(&playing[number], settings), number)));
            } else if track.source.waits() {
                waiting.push(number);
            }
        }
    }

    /// A track goes on that had nothing to send: what should have gone by now goes now, and all that follows so much later.
    fn hold_up(&mut self, track: &Playing<'_>, settings: &Settings) {
        if !self.timed {
            return;
        }
        let late_ns = self.gate.now_ns().saturating_sub(self.group_due_ns(track, settings));
        if late_ns > HELD_UP_NS {
            let held_ns = late_ns.saturating_add(settings.delay_ns);
            self.due.base_ns = self.due.base_ns.saturating_add(held_ns);
            self.waits += 1;
            self.waited_ns += held_ns;
        }
    }

    /// Whether a track's next frames are due so much later that others can be asked before.
    fn is_far(&self, track: &Playing<'_>, settings: &Settings) -> bool {
        let left_ns = self.group_due_ns(track, settings).saturating_sub(self.gate.now_ns());
        self.timed && left_ns > 2 * ASK_AGAIN.as_nanos() as u64
    }

    /// Whose turn it is: by due time, where a rate is given by recorded time, else by frames sent.
    fn order(&self, track: &Playing<'_>, settings: &Settings) -> u64 {
        match (settings.speed, track.time()) {
            (Speed::Recorded { .. }, _) => self.group_due_ns(track, settings),
            (_, Some(time)) => time.since(self.due.origin).max(0) as u64,
            (_, None) => track.report.frames,
        }
    }

    /// When the last frame of a track's next group is due.
    fn group_due_ns(&self, track: &Playing<'_>, settings: &Settings) -> u64 {
        let (mut ahead, mut due_ns, mut frames) = (0, 0, 0);
        for n in track.at..track.source.count() {
            let frame = track.source.frame(n);
            if !matches!(fate(&frame, settings), Fate::Send) {
                continue;
            }
            let time = frame.time.map(|time| time.max(track.latest));
            due_ns = self.due.ns(time, track.turn_ns, ahead).max(due_ns);
            ahead += frame.bytes.len() as u64;
            frames += 1;
            if frames == self.group {
                break;
            }
        }
        due_ns
    }

    /// Sleeps until a far-off time is near. `false`: an end was asked for meanwhile.
    fn comes_near(&self, track: &Playing<'_>, settings: &Settings, stop: &AtomicBool) -> bool {
        const NEAR_NS: u64 = 200_000_000;
        let left = || self.group_due_ns(track, settings).saturating_sub(self.gate.now_ns());
        while self.timed && left() > NEAR_NS {
            if stop.load(Ordering::Relaxed) {
                return false;
            }
            std::thread::sleep(std::time::Duration::from_nanos(NEAR_NS / 4));
        }
        true
    }

    /// Waits for the track's turn; gives up to which due time frames may go, and what the clock says.
    fn wait(&mut self, track: &Playing<'_>, settings: &Settings) -> (u64, u64) {
        if !self.timed {
            return (u64::MAX, 0);
        }
        self.gate.pass(self.group_due_ns(track, settings))
    }

    /// Sends the frames of a track's run that are due, at least one.
    fn send(
        &mut self,
        track: &mut Playing<'_>,
        settings: &Settings,
        until_ns: u64,
        now_ns: u64,
        progress: &Progress,
    ) -> Result<(), Error> {
        let mut chosen = [0; MOST_PACKETS];
        let (mut count, mut bytes, mut left_out, mut passed_over) = (0, 0, 0, 0);
        let (mut at, mut latest) = (track.at, track.latest);
        while at < track.source.count() && count < self.most {
            let frame = track.source.frame(at);
            match fate(&frame, settings) {
                Fate::Send => {
                    let time = frame.time.map(|time| time.max(latest));
                    let due_ns = self.due.ns(time, track.turn_ns, bytes);
                    if count > 0 && due_ns > until_ns {
                        break;
                    }
                    if self.timed {
                        self.lateness.record(now_ns.saturating_sub(due_ns));
                        self.end_ns = self.end_ns.max(due_ns);
                    }
                    self.note(&frame, settings);
                    latest = time.unwrap_or(latest);
                    chosen[count] = at;
                    bytes += frame.bytes.len() as u64;
                    count += 1;
                }
                Fate::LeaveOut => left_out += 1,
                Fate::PassOver => passed_over += 1,
            }
            at += 1;
        }
        let chosen = &chosen[..count];
        let mut heads = [Head::default(); MOST_PACKETS];
        if settings.packet_numbers || self.moved > 0 {
            for (n, (head, at)) in heads.iter_mut().zip(chosen).enumerate() {
                let number = track.number.wrapping_add(n as u64);
                let number = settings.packet_numbers.then_some(number);
                *head = Head::of(number, &track.source.frame(*at), self.moved);
            }
        }
        let mut packets: [Packet<'_>; MOST_PACKETS] = [[IoSlice::new(&[]); 2]; MOST_PACKETS];
        for ((packet, head), at) in packets.iter_mut().zip(&heads).zip(chosen) {
            let frame = track.source.frame(*at);
            *packet = [IoSlice::new(head.bytes()), IoSlice::new(&frame.bytes[head.replaces..])];
        }
        let longest = packets[..count].iter().map(|packet| packet[0].len() + packet[1].len()).max();
        if let Some(bytes) = longest.filter(|bytes| *bytes > LARGEST_DATAGRAM) {
            return Err(Error::Long { name: track.report.name.clone(), bytes });
        }
        let refused = track.sender.send(&packets[..count])?;
        let length = |at: usize| track.source.frame(at).bytes.len() as u64;
        let refused_bytes: u64 =
            (0..count).filter(|n| refused >> n & 1 == 1).map(|n| length(chosen[n])).sum();
        self.due.bytes += bytes;
        (track.at, track.latest) = (at, latest);
        track.number = track.number.wrapping_add(count as u64);
        let report = &mut track.report;
        report.fills_left_out += left_out;
        report.passed_over += passed_over;
        report.refused += u64::from(refused.count_ones());
        report.frames += count as u64 - u64::from(refused.count_ones());
        report.bytes += bytes - refused_bytes;
        progress.add(count as u64, bytes);
        Ok(())
    }
}

/// Frames that are late by no more have not been waited for.
const HELD_UP_NS: u64 = 1_000_000;

/// What goes before the rest of a frame: a packet number, and the words of its time where it is moved.
#[derive(Clone, Copy, Debug, Default)]
struct Head {
    words: [u8; 16],
    length: usize,
    /// So many bytes of the frame are left out for it.
    replaces: usize,
}

impl Head {
    /// Bytes of a VDIF header that tell its time: seconds, reference epoch, frame number.
    const TIME_BYTES: usize = 8;

    fn of(number: Option<u64>, frame: &Frame<'_>, moved: i64) -> Self {
        let mut head = Head::default();
        if let Some(number) = number {
            head.push(number.to_le_bytes());
        }
        if moved > 0
            && frame.dated
            && let Ok(mut header) = Header::read(frame.bytes)
        {
            let second = Second(header.second().0.saturating_add(moved));
            header.set_time(second, header.frame_number());
            let mut words = [0; Self::TIME_BYTES];
            words.copy_from_slice(&header.as_bytes()[..Self::TIME_BYTES]);
            head.push(words);
            head.replaces = Self::TIME_BYTES;
        }
        head
    }

    fn push(&mut self, words: [u8; 8]) {
        self.words[self.length..][..words.len()].copy_from_slice(&words);
        self.length += words.len();
    }

    fn bytes(&self) -> &[u8] {
        &self.words[..self.length]
    }
}

const SECOND_NS: i64 = 1_000_000_000;

/// The largest payload of a UDP datagram over IPv4.
const LARGEST_DATAGRAM: usize = fullbore_core::endpoint::LARGEST_DATAGRAM as usize;

#[cfg(test)]
mod tests;
