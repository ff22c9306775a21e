//! The supervisor thread: it ends scans, seals them and reports events.

mod high_water;
mod listen;
mod load;
mod member_rejoin;
#[cfg(test)]
mod model;
mod passing_streams;
mod progress;
mod stall_watchdog;

use std::collections::{BTreeSet, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use fullbore_capture::CaptureCommand;
use fullbore_core::name::ScanName;
use fullbore_linux::clock::Clock;
use fullbore_linux::load_file::{self, LoadFile};
use fullbore_linux::stop_handle::{ABORT, LEAVE, StopHandle};
use fullbore_time::Tai;

use self::high_water::HighWaterMarks;
use self::passing_streams::{PassingStreams, StreamAtCut};
use self::stall_watchdog::StallWatchdog;
use super::arm::{Recorder, Running, undone};
use super::clock_warnings::ClockWarnings;
use super::config::RecordingConfig;
use super::log::logged;
use super::scan::ActiveScan;
use super::seal_task::{SealInputs, SealOutcome, SealTask, Unsealed};
use crate::drop_counters;
use crate::error::RecordError;
use crate::event::{Event, EventHandler, Progress};
use crate::lifecycle::Event as Step;
use crate::sink::{SinkReplies, Sinks};

/// Time between two passes of the loop, which looks at limits, progress and stalls by the clock. An event of a capture
/// thread begins a pass at once.
const TICK: Duration = Duration::from_millis(20);

/// The same while the next scan is about to begin.
const SHORT_TICK: Duration = Duration::from_millis(2);

/// After this time the next scan begins without members that have not made its directories.
const CLAIMED_BY: Duration = Duration::from_millis(250);

/// The most scans that are sealed at once.
const MOST_SEALINGS: usize = 64;

/// After this time every stream has switched to the next scan, even a silent one.
const CUT: Duration = Duration::from_millis(400);

/// Time between two progress events.
const PROGRESS: Duration = Duration::from_millis(250);

/// The number of successive shortages of free space before a warning: streams begin in bursts.
const SURE: u32 = 4;

/// Time between two writes of manifests while streams are still being discovered. Each write is synced.
const BETWEEN_MANIFESTS: Duration = Duration::from_millis(500);

/// A scan begins this much before its start time, so that the socket is ready for its first frame even if this host's
/// clock is a little late.
const EARLY_NS: i64 = 50_000_000;

/// The longest time of an abort. Members that respond have sealed their scans by then.
const LEFT_AFTER: Duration = Duration::from_secs(2);

/// The supervisor and its state.
pub struct Supervisor {
    plan: RecordingConfig,
    sinks: Sinks,
    /// The reason why each writer takes no data, if it does not.
    failures: Vec<Option<String>>,
    /// Writers that failed and are used again, until they have closed their old files.
    returning: Vec<bool>,
    /// The number of returns of each.
    returns: Vec<u32>,
    running: Running,
    /// Scans that are not sealed. The newest is being recorded.
    scans: VecDeque<ActiveScan>,
    /// The next scan, while its directories are made.
    next: Option<NextScan>,
    /// Scans that are being sealed.
    seal_tasks: Vec<SealTask>,
    /// A scan that did not begin, while its directories are removed.
    discarded: Option<SinkReplies>,
    /// The number of scans begun.
    begun: usize,
    clock: Clock,
    since: Instant,
    /// The start time of the first scan, until it has begun.
    start: Option<Tai>,
    /// The time of the last write of manifests.
    written: Instant,
    stopping: u8,
    /// The time of the last progress event.
    reported: Instant,
    standstill: StallWatchdog,
    marks: HighWaterMarks,
    /// Where other processes read the use of memory; `None` if the file could not be made.
    load: Option<LoadFile>,
    passing: PassingStreams,
    clocks: ClockWarnings,
    captures_left: usize,
    broken: Vec<String>,
    /// True if a source can deliver no more, so that no further scan begins with it.
    source_broken: bool,
    /// Streams whose source has no more bytes.
    exhausted: BTreeSet<u16>,
    /// Sources that have no more bytes.
    sources_over: usize,
    told: Told,
    /// The number of successive shortages of free space; `None` after a warning, during or before the recording.
    short_of_room: Option<u32>,
}

/// A scan that is about to begin.
struct NextScan {
    scan: ActiveScan,
    claimed: SinkReplies,
    since: Instant,
}

/// The values of the last progress event, for rates.
struct Told {
    at: Instant,
    progress: Option<Progress>,
    streams: Vec<u64>,
    members: Vec<u64>,
}

impl Supervisor {
    pub(super) fn new(
        plan: RecordingConfig,
        sinks: Sinks,
        running: Running,
        first: ActiveScan,
        clock: Clock,
    ) -> Self {
        let (now, writers) = (Instant::now(), sinks.writers());
        Self {
            failures: vec![None; writers],
            returning: vec![false; writers],
            returns: vec![0; writers],
            short_of_room: plan.sources.iter().any(|it| it.rate().is_none()).then_some(0),
            captures_left: running.captures.len(),
            told: Told { at: now, progress: None, streams: Vec::new(), members: vec![0; writers] },
            start: plan.start,
            clocks: ClockWarnings::new(plan.clock),
            plan,
            load: LoadFile::create(Path::new(load_file::DIRECTORY), running.receive_buffer).ok(),
            sinks,
            running,
            scans: VecDeque::from([first]),
            next: None,
            seal_tasks: Vec::new(),
            discarded: None,
            begun: 1,
            clock,
            since: now,
            written: now,
            stopping: 0,
            reported: now,
            standstill: StallWatchdog::new(now),
            marks: HighWaterMarks::default(),
            passing: PassingStreams::default(),
            broken: Vec::new(),
            source_broken: false,
            exhausted: BTreeSet::new(),
            sources_over: 0,
        }
    }

    /// Begins the first scan, unless it waits for its start time.
    pub(super) fn begin_unless_it_waits(&self) {
        if self.start.is_none() {
            self.begin_first();
        }
    }

    fn begin_first(&self) {
        let context = self.scans[0].context.clone();
        self.order(|| CaptureCommand::Begin(context.clone()));
    }

    /// Begins the first scan at its start time by the host's current clock, so that steps of that clock count.
    fn begin_when_due(&mut self) {
        self.clock = Clock::new();
        let now = self.clock.now();
        if self.start.is_some_and(|start| now >= start.plus_ns(-EARLY_NS)) {
            self.start = None;
            self.since = Instant::now();
            let scan = self.newest();
            scan.manifest.armed = now;
            scan.manifest_dirty = true;
            scan.shared = drop_counters::CounterSnapshot::take(Path::new("/"));
            self.begin_first();
        }
    }

    /// Ends a recording that has recorded nothing, and removes the scan that did not begin.
    fn give_up_waiting(&mut self) {
        self.order(|| CaptureCommand::Abort);
        self.scans.drain(..).for_each(|scan| undone(scan.sinks.discard()));
    }

    fn order(&self, order: impl Fn() -> CaptureCommand) {
        self.running.captures.iter().for_each(|capture| capture.order(order()));
    }

    fn newest(&mut self) -> &mut ActiveScan {
        self.scans.back_mut().expect("a scan is being recorded")
    }

    /// True if the scan being recorded has reached its limit.
    fn limit_reached(&mut self) -> bool {
        let limit = self.plan.limit;
        let now = self.clock.now();
        limit.duration.is_some_and(|duration| self.since.elapsed() >= duration)
            || limit.until.is_some_and(|until| now >= until)
            || limit.bytes.is_some_and(|bytes| self.counts_anew() && self.received_bytes() >= bytes)
    }

    /// True if the streams' metrics belong to the scan being recorded, and no longer to the previous one.
    fn counts_anew(&self) -> bool {
        self.begun == 1 || self.since.elapsed() > CUT
    }

    /// Returns the bytes received in the scan being recorded.
    fn received_bytes(&self) -> u64 {
        let scan = self.scans.back().expect("a scan is being recorded");
        scan.metrics.values().map(|metrics| metrics.bytes.load(Ordering::Relaxed)).sum()
    }

    /// Ends the scan being recorded: the next scan begins as soon as its directories are made, or the recording ends.
    fn end_scan(&mut self, tell: &mut EventHandler<'_>) {
        if self.next.is_some() {
            return;
        }
        let Some(name) = self.plan.scan_name(self.begun) else {
            self.stop(1);
            return;
        };
        let now = self.clock.now();
        self.take_back(&name, tell);
        if self.failures.iter().all(Option::is_some) {
            let text = format!("{name}: no writable member; frames are counted but not stored");
            tell(&Event::Warning { text });
        }
        let mut scan = ActiveScan::plan(name, &self.plan, &self.sinks, &self.failures, now);
        scan.manifest.host_setup.clone_from(&self.running.host_setup);
        let claimed = scan.claim();
        self.next = Some(NextScan { scan, claimed, since: Instant::now() });
    }

    fn cannot_begin(&mut self, error: &RecordError, tell: &mut EventHandler<'_>) {
        let text = format!("the next scan cannot begin: {error}");
        self.broken.push(text.clone());
        tell(&Event::Warning { text });
        self.stop(1);
    }

    /// Begins the next scan when every member has made its directories, or after [`CLAIMED_BY`].
    fn begin_next(&mut self, tell: &mut EventHandler<'_>) {
        let Some(mut next) = self.next.take() else { return };
        next.claimed.poll();
        let late = next.since.elapsed() >= CLAIMED_BY;
        let enough = next.claimed.any_taken() || (late && next.claimed.any_good());
        if !next.claimed.are_complete() && !enough {
            self.next = Some(next);
            return;
        }
        let NextScan { mut scan, claimed, .. } = next;
        match scan.begin(claimed, false) {
            Ok(warnings) => {
                warnings.into_iter().for_each(|text| tell(&Event::Warning { text }));
                self.cut(scan, tell);
            }
            Err(error) => {
                self.discarded = Some(scan.sinks.discard());
                self.cannot_begin(&error, tell);
            }
        }
    }

    /// Switches from the scan being recorded to the next one.
    fn cut(&mut self, mut next: ActiveScan, tell: &mut EventHandler<'_>) {
        next.manifest.armed = self.clock.now();
        if let Some(planned) = &mut next.manifest.planned {
            // The scan continues where the previous one ends.
            planned.begin = planned.begin.map(|_| next.manifest.armed);
        }
        next.shared = drop_counters::CounterSnapshot::take(Path::new("/"));
        // Failures of members while its directories were made.
        for (member, failure) in next.manifest.members.iter_mut().zip(&self.failures) {
            member.failure = member.failure.take().or_else(|| failure.clone());
        }
        let lasted = self.since.elapsed();
        self.drop_passing_streams(&mut next, tell);
        let before = self.newest();
        before.take_marks(lasted);
        next.go_on_from(before);
        (0..next.manifest.streams.len() as u16).for_each(|number| {
            next.lifecycle.step(Step::Opened(number));
        });
        before.manifest.stopped = Some(next.manifest.armed);
        before.cut.1 = true;
        let context = next.context.clone();
        self.close_newest();
        self.scans.push_back(next);
        self.begun += 1;
        self.since = Instant::now();
        self.order(|| CaptureCommand::Begin(context.clone()));
    }

    /// Finds the streams that the next scan does not expect, and warns of new ones.
    fn drop_passing_streams(&mut self, next: &mut ActiveScan, tell: &mut EventHandler<'_>) {
        let before = self.scans.back().expect("a scan is recorded");
        let declared = self.plan.numbers().iter().flatten().count() as u16;
        let streams = (0..).zip(&before.manifest.streams).map(|(number, stream)| StreamAtCut {
            number,
            source: &stream.source,
            frames: before.metrics.get(&number).map_or(0, |metrics| metrics.frames.load(Relaxed)),
            declared: number < declared,
        });
        for number in self.passing.cut(&streams.collect::<Vec<_>>()) {
            let name = &before.manifest.streams[usize::from(number)].name;
            let text = format!(
                "stream {name} was there in one scan and sent nothing in the whole scan {}: the next scans do not \
                 expect it (threads= keeps a thread expected)",
                before.manifest.scan
            );
            tell(&Event::Warning { text });
        }
        next.unexpected = self.passing.unexpected().clone();
    }

    fn close_newest(&mut self) {
        self.newest().lifecycle.step(Step::Close);
    }

    fn stop(&mut self, urgency: u8) {
        if self.stopping >= urgency {
            return;
        }
        if self.stopping == 0 && !self.scans.is_empty() {
            let now = self.clock.now();
            self.newest().manifest.stopped = Some(now);
            self.close_newest();
        }
        if let Some(next) = self.next.take() {
            self.discarded = Some(next.scan.sinks.discard());
        }
        self.stopping = urgency;
        self.scans.iter_mut().for_each(|scan| scan.sinks.ending());
        self.order(|| if urgency > 1 { CaptureCommand::Abort } else { CaptureCommand::Stop });
    }

    /// Starts to seal each scan that is ready, and reports sealed scans in their order. A scan that cannot be sealed is
    /// left for `recover`.
    fn seal_ready(&mut self, tell: &mut EventHandler<'_>) {
        while self.seal_tasks.len() < MOST_SEALINGS
            && let Some(at) = self.scans.iter().position(|scan| scan.lifecycle.is_sealed())
        {
            let mut scan = self.scans.remove(at).expect("just seen");
            if self.scans.is_empty() {
                scan.take_marks(self.since.elapsed());
            }
            let kept = self.sinks.keep_empty_scans() && !self.source_broken;
            if !kept && scan.is_empty() {
                self.discarded = Some(scan.sinks.discard());
            } else if scan.lifecycle.is_whole() {
                let basis = SealInputs {
                    sources: self.plan.sources.clone(),
                    writers: self.running.metrics.clone(),
                    aborted: self.stopping > 1,
                };
                self.seal_tasks.push(SealTask::begin(scan, basis));
            } else {
                scan.sinks.leave();
                self.not_sealed(&scan.manifest.scan, "a thread that recorded it failed", tell);
            }
        }
        // In the order of the scans: a later one that is sealed first waits.
        let over = self.seal_tasks.iter().take_while(|task| task.is_over()).count();
        for sealing in self.seal_tasks.drain(..over).collect::<Vec<_>>() {
            let SealOutcome { name, warnings, sealed } = sealing.end();
            warnings.into_iter().for_each(|text| tell(&Event::Warning { text }));
            match sealed {
                Ok(sealed) => tell(&Event::Sealed(Box::new(sealed))),
                Err(Unsealed { why, sealed }) => {
                    self.not_sealed(&name, &why, tell);
                    if let Some(sealed) = sealed {
                        tell(&Event::Unsealed { why, sealed });
                    }
                }
            }
        }
    }

    fn not_sealed(&mut self, name: &ScanName, why: &str, tell: &mut EventHandler<'_>) {
        let mut text = format!("{name} is not sealed: {why}");
        if self.plan.store().is_some() {
            text += &format!("; `fullbore recover {name}` seals what its members hold");
        }
        self.broken.push(text.clone());
        tell(&Event::Warning { text });
    }

    /// True if every scan is sealed or left.
    fn is_over(&self) -> bool {
        self.scans.is_empty() && self.seal_tasks.is_empty()
    }

    /// Begins and ends scans at their times. `due` is true if the end set by [`StopHandle::end_by`] has passed.
    fn keep_to_the_plan(&mut self, due: bool, tell: &mut EventHandler<'_>) {
        if let Some(start) = self.start {
            let past = self.plan.limit.until.filter(|until| Clock::new().now() >= *until);
            if let Some((scan, end)) =
                self.scans.back().map(|it| it.manifest.scan.clone()).zip(past)
            {
                tell(&Event::Missed { scan, start, end });
            }
            match self.captures_left == 0 || past.is_some() {
                true => self.give_up_waiting(),
                false => self.begin_when_due(),
            }
            return;
        }
        let limited = self.stopping == 0 && self.next.is_none();
        if limited && (due || self.limit_reached()) {
            // An acquisition is a scan, so a limit must not cut it.
            match self.plan.has_acquisitions() {
                true => self.stop(1),
                false => {
                    let now = self.clock.now();
                    // A limit in bytes, or in time in a series, is a planned end, although no instant was given.
                    let wanted = !due && self.plan.limit.until.is_none_or(|until| now < until);
                    let scan = self.newest();
                    scan.limited = true;
                    scan.sinks.limit_reached();
                    if let Some(planned) = scan.manifest.planned.as_mut().filter(|_| wanted) {
                        planned.end = Some(now);
                    }
                    self.end_scan(tell);
                }
            }
        }
        if self.captures_left == 0 && self.stopping == 0 {
            self.stop(1);
        }
    }

    /// Sends progress events a few times a second.
    fn tell_of_it(&mut self, tell: &mut EventHandler<'_>) {
        if self.reported.elapsed() < PROGRESS {
            return;
        }
        self.reported = Instant::now();
        if let Some(begins) = self.start {
            if let Some(scan) = self.scans.back() {
                let (scan, now) = (scan.manifest.scan.clone(), self.clock.now());
                tell(&Event::Awaiting { scan, begins, seconds: begins.since(now) as f64 / 1e9 });
            }
            return;
        }
        self.record_high_water(tell);
        if let Some(progress) = self.progress() {
            self.judge_room(&progress, tell);
            tell(&Event::Progress(progress));
        }
        if let Some(scan) = self.scans.back() {
            self.clocks.judge(scan, tell);
        }
        self.check_for_stall(tell);
    }

    /// Exits without waiting. Scans that are not sealed are left in the state of a crash.
    fn leave(self) -> RecordError {
        let sealings = self.seal_tasks.iter().map(SealTask::scan);
        let scans = self.scans.iter().map(|scan| &scan.manifest.scan).chain(sealings);
        RecordError::Left { scans: scans.cloned().collect() }
    }

    /// Waits for every thread. All scans are sealed or left.
    fn end(self, tell: &mut EventHandler<'_>) -> Result<(), RecordError> {
        let Supervisor { running, broken, discarded, sinks, .. } = self;
        if let Some(mut discarded) = discarded {
            discarded.wait_for_enough();
        }
        running.captures.into_iter().for_each(|capture| capture.join());
        // A writer may wait for what its sink has still to say.
        drop(sinks);
        for writer in running.writers {
            if writer.join().is_err() {
                let text = "a writer failed; what was written can be recovered".to_owned();
                tell(&Event::Warning { text });
            }
        }
        match broken.into_iter().next() {
            Some(why) => Err(RecordError::Broken { why }),
            None => Ok(()),
        }
    }
}

impl Recorder {
    /// Records until a limit is reached or an end is requested. Reports each scan when it is sealed.
    pub fn run(
        self,
        control: &Arc<StopHandle>,
        tell: &mut EventHandler<'_>,
    ) -> Result<(), RecordError> {
        let tell: &mut EventHandler<'_> = &mut logged(tell);
        let mut supervisor = self.supervisor;
        let mut asked_to_leave: Option<Instant> = None;
        while !supervisor.is_over() {
            supervisor.listen(tell);
            match control.stop_requests() {
                _ if supervisor.is_over() => break,
                LEAVE
                    if asked_to_leave.get_or_insert_with(Instant::now).elapsed() >= LEFT_AFTER =>
                {
                    return Err(supervisor.leave());
                }
                0 => {}
                _ if supervisor.start.is_some() => {
                    // No scan is left that could begin, even if it is due just now.
                    supervisor.give_up_waiting();
                    continue;
                }
                urgency => supervisor.stop(urgency.min(ABORT)),
            }
            supervisor.keep_to_the_plan(control.is_to_end(), tell);
            supervisor.publish_load();
            supervisor.tell_of_it(tell);
        }
        supervisor.end(tell)
    }
}
