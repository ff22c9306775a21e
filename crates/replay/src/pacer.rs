//! Decides which stream sends next, waits for its due time, and sends.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::IoSlice;
use std::time::Instant;

use fullbore_linux::stop_handle::StopHandle;
use fullbore_linux::sys::send::{MOST_PACKETS, Packet};
use fullbore_time::Tai;

use crate::head::Head;
use crate::pace::{Gate, Lateness, Monotonic, Period, Waiting, group_size};
use crate::playing::{Fate, Playing};
use crate::timeline::Timeline;
use crate::underrun::{Cause, Underruns};
use crate::{Error, HeaderClock, InStep, Progress, Settings, Speed, StartAccount};

/// Converts recorded times to due times.
pub(super) struct Due {
    pub speed: Speed,
    /// The earliest time of the first turn.
    pub first: Tai,
    /// The offset of this turn of a loop.
    pub moved_ns: i64,
    /// The delay of streams that were waited for.
    pub held_ns: u64,
    /// The time per byte, at a given rate.
    pub byte: Period,
    pub bytes: u64,
}

impl Due {
    /// The due time of a frame with that recorded time, `turn_ns` later, if `ahead` more bytes precede it.
    pub fn ns(&self, time: Option<Tai>, turn_ns: i64, ahead: u64) -> u64 {
        match (self.speed, time) {
            (Speed::Recorded { factor }, Some(time)) => {
                let after = self.after_ns(time.plus_ns(turn_ns));
                let after = if factor == 1.0 { after } else { (after as f64 / factor) as u64 };
                self.held_ns.saturating_add(after)
            }
            (Speed::Rate(_), _) => self.byte.times_ns(self.bytes + ahead),
            (Speed::Recorded { .. }, None) | (Speed::FlatOut, _) => 0,
        }
    }

    /// The time from the first frame to a recorded time of this turn, at the recorded speed.
    fn after_ns(&self, time: Tai) -> u64 {
        time.plus_ns(self.moved_ns).since(self.first).max(0).unsigned_abs()
    }
}

/// The pacing of all streams.
pub(super) struct Pacer {
    pub gate: Gate<Monotonic>,
    pub due: Due,
    pub lateness: Lateness,
    pub account: Underruns,
    /// The start, if it was to be at an instant and the first frame was sent.
    pub first_sent: Option<StartAccount>,
    /// The lateness of several streams, compared.
    pub in_step: Option<InStep>,
    pub timed: bool,
    /// The number of frames that a group waits for, and the most frames of one group.
    group: usize,
    most: usize,
    /// The latest due time so far.
    pub end_ns: u64,
    /// The times of turns, if there are several.
    timeline: Option<Timeline>,
    /// The number and the total time of waits for tracks.
    pub waits: u64,
    pub waited_ns: u64,
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
pub(super) const ASK_AGAIN: std::time::Duration = std::time::Duration::from_millis(5);

impl Pacer {
    pub fn start(
        playing: &[Playing<'_>],
        settings: &Settings,
        several_turns: bool,
        clock: Monotonic,
    ) -> Self {
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
        // Turns at their recorded times need not begin at a frame's time.
        let clocks = playing.iter().filter(|_| !settings.as_recorded).flat_map(Playing::clocks);
        let rates = clocks.filter_map(HeaderClock::rate);
        Pacer {
            gate: Gate::new(clock, settings.waiting, settings.catch_up),
            due: Due {
                speed: settings.speed,
                first: Tai(0),
                moved_ns: 0,
                held_ns: 0,
                byte,
                bytes: 0,
            },
            lateness: Lateness::default(),
            account: Underruns::new(
                playing.iter().map(|playing| playing.report.name.clone()),
                settings.timing.late_after_ns,
            ),
            first_sent: None,
            in_step: (playing.len() > 1).then(|| InStep::new(playing.len())),
            timed: settings.speed != Speed::FlatOut,
            group,
            most,
            end_ns: 0,
            timeline: several_turns.then(|| Timeline::new(rates)),
            waits: 0,
            waited_ns: 0,
        }
    }

    /// Begins the first turn. `first` is the time of the earliest frame.
    pub fn begin(&mut self, first: Tai) {
        self.due.first = first;
    }

    /// Begins a turn, and states the offset of each stream.
    pub fn turn(&mut self, playing: &mut [Playing<'_>], settings: &Settings) {
        let Some(timeline) = &mut self.timeline else { return };
        let places = playing.iter().filter(|it| it.at < it.source().count());
        let first = places.filter_map(|it| it.place(&it.source().frame(it.at))).min();
        if let Some((first, _)) = first {
            timeline.begin(first);
        }
        self.due.moved_ns = timeline.moved_ns();
        for playing in playing.iter_mut().filter(|_| !settings.as_recorded) {
            let clock = playing.source().header_clock();
            playing.moved = clock.rate().map_or(0, |rate| timeline.moved_frames(rate));
        }
    }

    /// Plays all tracks to their ends; `false` if stopped before.
    pub fn play(
        &mut self,
        playing: &mut [Playing<'_>],
        settings: &Settings,
        stop: &StopHandle,
        progress: &Progress,
    ) -> Result<bool, Error> {
        let mut turns = BinaryHeap::new();
        let mut waiting: Vec<usize> = Vec::new();
        for (number, playback) in playing.iter().enumerate() {
            if playback.at < playback.source().count() {
                turns.push(Reverse((self.order(playback, settings), number)));
            } else if playback.source().waits() {
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
                    } else if playback.source().waits() {
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
            self.send(playback, number, settings, (until_ns, now_ns), progress)?;
            let sent_ns = self.gate.now_ns();
            let more = playback.settle(settings)?;
            if playback.at == 0 {
                self.account.waited_for_frames(self.gate.now_ns().saturating_sub(sent_ns));
                self.count_lost(playback, number);
            }
            if more {
                tell_lag(playing, number, progress);
                turns.push(Reverse((self.order(&playing[number], settings), number)));
            } else if playback.source().waits() {
                waiting.push(number);
            }
        }
    }

    /// Counts the frames of a stream that could not be read.
    pub fn count_lost(&mut self, playback: &mut Playing<'_>, number: usize) {
        self.account.not_sent(number, None, playback.take_lost(), Cause::Unreadable);
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
            self.due.held_ns = self.due.held_ns.saturating_add(held_ns);
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
            (_, Some(time)) => self.due.after_ns(time),
            (_, None) => playback.report.frames,
        }
    }

    /// The due time of the last frame of a track's next group.
    fn group_due_ns(&self, playback: &Playing<'_>, settings: &Settings) -> u64 {
        let (mut ahead, mut due_ns, mut frames) = (0, 0, 0);
        for n in playback.at..playback.source().count() {
            let frame = playback.source().frame(n);
            if !matches!(playback.fate(&frame, settings), Fate::Send) {
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
        stream: usize,
        settings: &Settings,
        (until_ns, now_ns): (u64, u64),
        progress: &Progress,
    ) -> Result<(), Error> {
        let (mut chosen, mut due) = ([0; MOST_PACKETS], [0; MOST_PACKETS]);
        let (mut count, mut bytes, mut left_out, mut passed_over) = (0, 0, 0, 0);
        let (mut at, mut latest) = (playback.at, playback.latest);
        while at < playback.source().count() && count < self.most {
            let frame = playback.source().frame(at);
            match playback.fate(&frame, settings) {
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
                    if let (Some(timeline), Some((time, length_ns))) =
                        (&mut self.timeline, playback.place(&frame))
                    {
                        timeline.note(time, length_ns);
                    }
                    latest = time.unwrap_or(latest);
                    (chosen[count], due[count]) = (at, due_ns);
                    bytes += frame.bytes.len() as u64;
                    count += 1;
                }
                Fate::LeaveOut => left_out += 1,
                Fate::PassOver => passed_over += 1,
            }
            at += 1;
        }
        let chosen = &chosen[..count];
        let source = &*playback.sources[playback.segment];
        let mut heads = [Head::NONE; MOST_PACKETS];
        if settings.packet_numbers || playback.moved != 0 {
            let rate = source.header_clock().rate().flatten();
            for (n, (head, at)) in heads.iter_mut().zip(chosen).enumerate() {
                let number = playback.number.wrapping_add(n as u64);
                let number = settings.packet_numbers.then_some(number);
                *head = Head::of(number, &source.frame(*at), playback.moved, rate);
            }
        }
        let mut packets: [Packet<'_>; MOST_PACKETS] = [[IoSlice::new(&[]); 2]; MOST_PACKETS];
        for ((packet, head), at) in packets.iter_mut().zip(&heads).zip(chosen) {
            let frame = source.frame(*at);
            *packet = [IoSlice::new(head.bytes()), IoSlice::new(&frame.bytes[head.replaces..])];
        }
        let longest = packets[..count].iter().map(|packet| packet[0].len() + packet[1].len()).max();
        if let Some(bytes) = longest.filter(|bytes| *bytes > LARGEST_DATAGRAM) {
            return Err(Error::Long { name: playback.report.name.clone(), bytes });
        }
        let stalls = playback.sender.tally().stalls;
        let refused = playback.sender.send(&packets[..count])?;
        if let (Some(at), None) = (settings.timing.at, &self.first_sent) {
            self.first_sent = Some(StartAccount::read(at));
        }
        let mut sent_ns = now_ns;
        if playback.sender.tally().stalls != stalls {
            // The packets waited for room in the socket.
            sent_ns = self.gate.now_ns();
            self.account.waited_for_socket(sent_ns.saturating_sub(now_ns));
        }
        for (n, due_ns) in due[..count].iter().enumerate() {
            let due_ns = self.timed.then_some(*due_ns);
            if refused >> n & 1 == 1 {
                self.account.not_sent(stream, due_ns, 1, Cause::Refused);
            } else {
                let late_ns = due_ns.map_or(0, |due_ns| sent_ns.saturating_sub(due_ns));
                self.account.sent(stream, due_ns, late_ns);
                if let Some(in_step) = &mut self.in_step {
                    in_step.sent(stream, late_ns);
                }
            }
        }
        let length = |at: usize| source.frame(at).bytes.len() as u64;
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

/// The largest payload of a UDP datagram over IPv4.
const LARGEST_DATAGRAM: usize = fullbore_core::endpoint::LARGEST_DATAGRAM as usize;
