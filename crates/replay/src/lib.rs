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
//! In a loop, a receiver that uses the times in the frames would see them jump back. From the second turn on, VDIF
//! times are therefore advanced by the length of the recording, in whole seconds. The next turn is read ahead during
//! the current one, so that there is no pause between the two.
//!
//! It may open sockets, plain files and stored scans. It changes none of them.

mod file;
mod followed;
pub mod pace;
pub mod position;
mod sent;
mod stored;

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::IoSlice;
use std::ops::RangeInclusive;
use std::time::Instant;

use fullbore_core::endpoint::UdpTarget;
use fullbore_core::hint::Hint;
use fullbore_core::units::ByteRate;
use fullbore_formats::framed::FrameCodec;
use fullbore_formats::vdif::Second;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_linux::sys::send::{self, Destination, MOST_PACKETS, Packet, Sender};
use fullbore_time::Tai;
use serde::Serialize;

pub use file::{FileError, FrameFile};
pub use followed::{FollowedFrames, Looking, wait_for_delay};
pub use sent::{Progress, Sent, cpu_seconds, rate};
pub use stored::{StoredError, StoredFrames};

use crate::pace::{Gate, Lateness, Monotonic, Period, Waiting, group_size};

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

/// The frames of one stream in order, one run at a time.
pub trait FrameSource {
    /// Loads the next run of frames, replacing the previous one; `false` at the end, or while it
    /// [`waits`](Self::waits).
    fn advance(&mut self) -> Result<bool, SourceError>;
    /// The number of frames in the run.
    fn count(&self) -> usize;
    /// A frame of the run.
    fn frame(&self, n: usize) -> Frame<'_>;
    /// Goes back to before the first run.
    fn rewind(&mut self) -> Result<(), SourceError>;
    /// Announces another turn after this one: its first runs are read during this turn.
    fn again(&mut self) -> Result<(), SourceError> {
        Ok(())
    }
    /// Notes on unreadable data so far.
    fn losses(&self) -> &[String] {
        &[]
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
    /// The number of turns; `None`: until stopped.
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

/// A replay that could not begin, or ended early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No stream.
    #[error("there is no stream to play")]
    NoTracks,
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
    /// The number of complete turns.
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

/// Tracks with open sockets, positioned at their first frames.
pub struct Replay<'a> {
    playing: Vec<Playing<'a>>,
    settings: Settings,
}

/// A track and its position.
struct Playing<'a> {
    source: Box<dyn FrameSource + 'a>,
    sender: Sender,
    /// The next frame of the run.
    at: usize,
    /// Packet number of the next frame.
    number: u64,
    /// Frames never go back before this time, which preserves their order.
    latest: Tai,
    /// The delay of its frames after their recorded times, so that streams take turns.
    turn_ns: i64,
    report: PlaybackReport,
}

impl<'a> Playing<'a> {
    fn open(playback: PlaybackStream<'a>) -> Result<Self, Error> {
        let PlaybackStream { name, source, target } = playback;
        let sender = Sender::connect(&Destination::of(&target)?)?;
        let report =
            PlaybackReport { name, target: target.to_string(), ..PlaybackReport::default() };
        Ok(Playing { source, sender, at: 0, number: 0, latest: Tai(i64::MIN), turn_ns: 0, report })
    }

    fn error(&self, source: SourceError) -> Error {
        Error::Source { name: self.report.name.clone(), source }
    }

    /// Moves to the next frame to send, and loads runs as needed; `false` at the end, or while it waits for more.
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

    /// Records the lag of the loaded run behind the newest frames.
    fn note_lag(&mut self) {
        let first = (self.source.count() > 0).then(|| self.source.frame(0).time).flatten();
        if let (Some(edge), Some(first)) = (self.source.edge(), first) {
            let seconds = edge.since(first).max(0) as f64 / 1e9;
            self.report.lag = Some(Lag::note(self.report.lag, seconds));
        }
    }

    /// The time of the next frame, not before any earlier one.
    fn time(&self) -> Option<Tai> {
        Some(self.source.frame(self.at).time?.max(self.latest))
    }

    /// The time between frames of the loaded run.
    fn period_ns(&self) -> Option<i64> {
        let last = self.source.count().checked_sub(1)?;
        let ns = self.source.frame(last).time?.since(self.source.frame(0).time?);
        ns.checked_div(i64::try_from(last).ok()?).filter(|ns| *ns > 0)
    }

    /// Bytes per second of the loaded run, by its times.
    fn rate(&self) -> Option<u64> {
        let count = self.source.count();
        let first = self.source.frame(0).time?;
        let last = self.source.frame(count.checked_sub(1)?).time?;
        let ns = u64::try_from(last.since(first)).ok().filter(|ns| *ns > 0)?;
        let bytes: u64 = (0..count).map(|n| self.source.frame(n).bytes.len() as u64).sum();
        u64::try_from(u128::from(bytes) * 1_000_000_000 / u128::from(ns)).ok()
    }
}

/// The decision about a frame.
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

/// Converts recorded times to due times.
struct Due {
    speed: Speed,
    /// The earliest time of all streams.
    origin: Tai,
    /// Start of the current turn of the loop.
    base_ns: u64,
    /// The time per byte, at a given rate.
    byte: Period,
    bytes: u64,
}

impl Due {
    /// The due time of a frame with that recorded time, `turn_ns` later, if `ahead` more bytes precede it.
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
    /// Opens the sockets and loads the first frames.
    pub fn prepare(playbacks: Vec<PlaybackStream<'a>>, settings: Settings) -> Result<Self, Error> {
        if playbacks.is_empty() {
            return Err(Error::NoTracks);
        }
        match settings.speed {
            Speed::Recorded { factor } if !FACTORS.contains(&factor) => {
                return Err(Error::Factor { factor });
            }
            Speed::Rate(rate) if !RATES.contains(&rate) => return Err(Error::Rate { rate }),
            Speed::Recorded { .. } | Speed::Rate(_) | Speed::FlatOut => {}
        }
        let playing = playbacks.into_iter().map(Playing::open).collect::<Result<_, _>>()?;
        Ok(Replay { playing, settings })
    }

    /// Sends until all frames are sent or `stop` is set.
    pub fn run(mut self, stop: &StopHandle, progress: &Progress) -> Result<Report, Error> {
        let _span = tracing::info_span!("replay", streams = self.playing.len()).entered();
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
            tracing::info!(turn = times + 1, "sends");
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

    /// Starts reading the first frames of the next turn before the last ones of this turn are due.
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
            // The loaded run is over.
            playing.at = playing.source.count();
        }
        Ok(())
    }

    /// Moves to the first frame of each stream and returns the earliest time; `None` without any frame.
    fn start(&mut self, stop: &StopHandle) -> Result<Option<Tai>, Error> {
        loop {
            let earliest = self.start_now()?;
            let waits = || self.playing.iter().any(|playing| playing.source.waits());
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
                    PlaybackReport { losses, ..playing.report }
                })
                .collect(),
        }
    }
}

/// The pacing of all tracks.
struct Pacer {
    gate: Gate<Monotonic>,
    due: Due,
    lateness: Lateness,
    timed: bool,
    /// The number of frames that a group waits for, and the most frames of one group.
    group: usize,
    most: usize,
    /// Start of the next turn of a loop.
    end_ns: u64,
    /// Times of the first and last dated frame of this turn, if another turn may follow.
    span: Option<(Tai, Tai)>,
    /// The offset of the times in the frames of this turn, in seconds.
    moved: i64,
    /// The number and the total time of waits for tracks.
    waits: u64,
    waited_ns: u64,
}

/// Reports the largest lag of all streams behind the durable frames, after one of them has moved to its next run.
fn tell_lag(playing: &[Playing<'_>], settled: usize, progress: &Progress) {
    if playing[settled].at > 0 {
        return;
    }
    let lags = playing.iter().filter_map(|playback| playback.report.lag);
    if let Some(most) = lags.map(|lag| lag.last_seconds).reduce(f64::max) {
        progress.lags(std::time::Duration::from_secs_f64(most));
    }
}

/// Time between two checks whether a waiting track has more frames. The scan itself is looked at less often, and the
/// frames of other tracks are due meanwhile.
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

    /// Begins a turn of the loop. `origin` is the time of its earliest frame.
    fn turn(&mut self, origin: Tai, settings: &Settings) {
        (self.due.origin, self.due.base_ns) = (origin, self.end_ns);
        let Some((first, last)) = self.span.take().filter(|_| !settings.as_recorded) else {
            return;
        };
        self.moved += last.since(first).max(0) / SECOND_NS + 1;
        // Frames are due at their new times.
        if let Speed::Recorded { factor } = settings.speed {
            let moved_ns = (self.moved.saturating_mul(SECOND_NS) as f64 / factor) as u64;
            self.due.base_ns = self.end_ns.max(moved_ns);
        }
    }

    /// Records the time of a frame, so that the next turn can continue from there.
    fn note(&mut self, frame: &Frame<'_>, settings: &Settings) {
        let Some(codec) = frame.dated.filter(|_| settings.times != Some(1)) else { return };
        let own = || Some(codec.read(frame.bytes)?.second().start());
        let Some(time) = frame.time.or_else(own) else { return };
        let (first, last) = self.span.unwrap_or((time, time));
        self.span = Some((first.min(time), last.max(time)));
    }

    /// Plays all tracks to their ends; `false` if stopped before.
    fn play(
        &mut self,
        playing: &mut [Playing<'_>],
        settings: &Settings,
        stop: &StopHandle,
        progress: &Progress,
    ) -> Result<bool, Error> {
        let mut turns = BinaryHeap::new();
        let mut waiting: Vec<usize> = Vec::new();
        for (number, playback) in playing.iter().enumerate() {
            if playback.at < playback.source.count() {
                turns.push(Reverse((self.order(playback, settings), number)));
            } else if playback.source.waits() {
                waiting.push(number);
            }
        }
        let mut requested = Instant::now();
        loop {
            if stop.is_requested() {
                return Ok(false);
            }
            if !waiting.is_empty() && requested.elapsed() >= ASK_AGAIN {
                requested = Instant::now();
                for number in std::mem::take(&mut waiting) {
                    let playback = &mut playing[number];
                    if playback.settle(settings)? {
                        tell_lag(playing, number, progress);
                        let playback = &playing[number];
                        self.hold_up(playback, settings);
                        turns.push(Reverse((self.order(playback, settings), number)));
                    } else if playback.source.waits() {
                        waiting.push(number);
                    }
                }
            }
            let Some(Reverse((order, number))) = turns.pop() else {
                if waiting.is_empty() {
                    return Ok(true);
                }
                stop.wait(ASK_AGAIN);
                continue;
            };
            let playback = &mut playing[number];
            if !waiting.is_empty() && self.is_far(playback, settings) {
                turns.push(Reverse((order, number)));
                stop.wait(ASK_AGAIN);
                continue;
            }
            if !self.comes_near(playback, settings, stop) {
                return Ok(false);
            }
            let (until_ns, now_ns) = self.wait(playback, settings);
            self.send(playback, settings, until_ns, now_ns, progress)?;
            if playback.settle(settings)? {
                tell_lag(playing, number, progress);
                turns.push(Reverse((self.order(&playing[number], settings), number)));
            } else if playback.source.waits() {
                waiting.push(number);
            }
        }
    }

    /// Resumes a track that had to wait: overdue frames are sent now, and all later frames are delayed by the same
    /// time.
    fn hold_up(&mut self, playback: &Playing<'_>, settings: &Settings) {
        if !self.timed {
            return;
        }
        let late_ns = self.gate.now_ns().saturating_sub(self.group_due_ns(playback, settings));
        if late_ns > HELD_UP_NS {
            let held_ns = late_ns.saturating_add(settings.delay_ns);
            self.due.base_ns = self.due.base_ns.saturating_add(held_ns);
            self.waits += 1;
            self.waited_ns += held_ns;
        }
    }

    /// True if a track's next frames are due so late that others can be checked before.
    fn is_far(&self, playback: &Playing<'_>, settings: &Settings) -> bool {
        let left_ns = self.group_due_ns(playback, settings).saturating_sub(self.gate.now_ns());
        self.timed && left_ns > 2 * ASK_AGAIN.as_nanos() as u64
    }

    /// The sort key of a track's turn: the due time; with a given rate the recorded time; else the frames sent.
    fn order(&self, playback: &Playing<'_>, settings: &Settings) -> u64 {
        match (settings.speed, playback.time()) {
            (Speed::Recorded { .. }, _) => self.group_due_ns(playback, settings),
            (_, Some(time)) => time.since(self.due.origin).max(0) as u64,
            (_, None) => playback.report.frames,
        }
    }

    /// The due time of the last frame of a track's next group.
    fn group_due_ns(&self, playback: &Playing<'_>, settings: &Settings) -> u64 {
        let (mut ahead, mut due_ns, mut frames) = (0, 0, 0);
        for n in playback.at..playback.source.count() {
            let frame = playback.source.frame(n);
            if !matches!(fate(&frame, settings), Fate::Send) {
                continue;
            }
            let time = frame.time.map(|time| time.max(playback.latest));
            due_ns = self.due.ns(time, playback.turn_ns, ahead).max(due_ns);
            ahead += frame.bytes.len() as u64;
            frames += 1;
            if frames == self.group {
                break;
            }
        }
        due_ns
    }

    /// Sleeps until a distant due time is near. `false`: a stop was requested.
    fn comes_near(&self, playback: &Playing<'_>, settings: &Settings, stop: &StopHandle) -> bool {
        const NEAR_NS: u64 = 200_000_000;
        let left = self.group_due_ns(playback, settings).saturating_sub(self.gate.now_ns());
        let far = left.saturating_sub(NEAR_NS);
        !(self.timed && far > 0 && stop.wait(std::time::Duration::from_nanos(far)))
    }

    /// Waits for the track's turn; returns the due time up to which frames may be sent, and the current time.
    fn wait(&mut self, playback: &Playing<'_>, settings: &Settings) -> (u64, u64) {
        if !self.timed {
            return (u64::MAX, 0);
        }
        self.gate.pass(self.group_due_ns(playback, settings))
    }

    /// Sends the due frames of a track's run, at least one.
    fn send(
        &mut self,
        playback: &mut Playing<'_>,
        settings: &Settings,
        until_ns: u64,
        now_ns: u64,
        progress: &Progress,
    ) -> Result<(), Error> {
        let mut chosen = [0; MOST_PACKETS];
        let (mut count, mut bytes, mut left_out, mut passed_over) = (0, 0, 0, 0);
        let (mut at, mut latest) = (playback.at, playback.latest);
        while at < playback.source.count() && count < self.most {
            let frame = playback.source.frame(at);
            match fate(&frame, settings) {
                Fate::Send => {
                    let time = frame.time.map(|time| time.max(latest));
                    let due_ns = self.due.ns(time, playback.turn_ns, bytes);
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
        let mut heads = [Head::NONE; MOST_PACKETS];
        if settings.packet_numbers || self.moved > 0 {
            for (n, (head, at)) in heads.iter_mut().zip(chosen).enumerate() {
                let number = playback.number.wrapping_add(n as u64);
                let number = settings.packet_numbers.then_some(number);
                *head = Head::of(number, &playback.source.frame(*at), self.moved);
            }
        }
        let mut packets: [Packet<'_>; MOST_PACKETS] = [[IoSlice::new(&[]); 2]; MOST_PACKETS];
        for ((packet, head), at) in packets.iter_mut().zip(&heads).zip(chosen) {
            let frame = playback.source.frame(*at);
            *packet = [IoSlice::new(head.bytes()), IoSlice::new(&frame.bytes[head.replaces..])];
        }
        let longest = packets[..count].iter().map(|packet| packet[0].len() + packet[1].len()).max();
        if let Some(bytes) = longest.filter(|bytes| *bytes > LARGEST_DATAGRAM) {
            return Err(Error::Long { name: playback.report.name.clone(), bytes });
        }
        let refused = playback.sender.send(&packets[..count])?;
        let length = |at: usize| playback.source.frame(at).bytes.len() as u64;
        let refused_bytes: u64 =
            (0..count).filter(|n| refused >> n & 1 == 1).map(|n| length(chosen[n])).sum();
        self.due.bytes += bytes;
        (playback.at, playback.latest) = (at, latest);
        playback.number = playback.number.wrapping_add(count as u64);
        let report = &mut playback.report;
        report.fills_left_out += left_out;
        report.passed_over += passed_over;
        report.refused += u64::from(refused.count_ones());
        report.frames += count as u64 - u64::from(refused.count_ones());
        report.bytes += bytes - refused_bytes;
        progress.add(count as u64, bytes);
        Ok(())
    }
}

/// The lateness up to which a frame does not count as having been waited for.
const HELD_UP_NS: u64 = 1_000_000;

/// The bytes that precede the rest of a frame: a packet number, and the changed time words.
#[derive(Clone, Copy, Debug)]
struct Head {
    bytes: [u8; 8 + Head::LONGEST_HEADER],
    length: usize,
    /// The number of bytes of the frame that the head replaces.
    replaces: usize,
}

impl Head {
    /// Bytes of the longest header of any format.
    const LONGEST_HEADER: usize = 32;

    const NONE: Head = Head { bytes: [0; 8 + Self::LONGEST_HEADER], length: 0, replaces: 0 };

    fn of(number: Option<u64>, frame: &Frame<'_>, moved: i64) -> Self {
        let mut head = Head::NONE;
        if let Some(number) = number {
            head.push(&number.to_le_bytes());
        }
        if moved > 0
            && let Some(codec) = frame.dated
            && let Some(mut header) = codec.read(frame.bytes)
        {
            let second = Second(header.second().0.saturating_add(moved));
            header.set_time(second, header.frame_number());
            let mut bytes = [0; Self::LONGEST_HEADER];
            if codec.write(&header, &mut bytes).is_some() {
                head.replaces = codec.kind().time_bytes();
                head.push(&bytes[..head.replaces]);
            }
        }
        head
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.length..][..bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

const SECOND_NS: i64 = 1_000_000_000;

/// The largest payload of a UDP datagram over IPv4.
const LARGEST_DATAGRAM: usize = fullbore_core::endpoint::LARGEST_DATAGRAM as usize;

#[cfg(test)]
mod tests;
