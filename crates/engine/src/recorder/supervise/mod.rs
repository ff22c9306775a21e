//! The thread that decides: when scans end, when they are sealed, what is told.

mod listen;
mod marks;
#[cfg(test)]
mod model;
mod progress;
mod returning;
mod standstill;

use std::collections::{BTreeSet, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fullbore_core::name::ScanName;
use fullbore_core::time::Tai;

use self::marks::Marks;
use self::standstill::Standstill;
use super::arm::{Recorder, Running, undone};
use super::check::{device, known_rate};
use super::clocks::Clocks;
use super::error::RecordError;
use super::event::{Event, Progress, Tell};
use super::plan::Plan;
use super::scan::{DiskSet, Scan};
use super::scribe::{Answers, Scribes};
use super::sealing::{Basis, Done, Sealing, Unsealed};
use crate::clock::Clock;
use crate::lifecycle::Event as Step;
use crate::source::Order;
use crate::store::Member;
use crate::witness;

/// Time between two looks at everything.
const TICK: Duration = Duration::from_millis(20);

/// The same while the next scan is about to begin.
const SHORT_TICK: Duration = Duration::from_millis(2);

/// By then the next scan begins without members that have not made its directories.
const CLAIMED_BY: Duration = Duration::from_millis(250);

/// The most scans that are being sealed at once.
const MOST_SEALINGS: usize = 64;

/// By then every stream has gone on to the next scan, even one that is silent.
const CUT: Duration = Duration::from_millis(400);

/// Time between two progress events.
const PROGRESS: Duration = Duration::from_millis(250);

/// So often in a row has room to be too small before it is said: streams begin in bursts.
const SURE: u32 = 4;

/// Time between two writes of manifests while streams are still being discovered: each is synced.
const BETWEEN_MANIFESTS: Duration = Duration::from_millis(500);

/// So much before its time a scan begins: its first frame comes to a socket that is listened to, even if
/// this host's clock is a little late.
const EARLY_NS: i64 = 50_000_000;

/// Asked for so often, an end waits for nobody.
pub(crate) const LEAVE: u8 = 3;

/// How a recording is ended from outside: by a signal, say.
#[derive(Debug, Default)]
pub struct Control {
    asked: AtomicU8,
    /// When the last scan is to end, if that is sooner than its plan says.
    end_by: Mutex<Option<Instant>>,
}

impl Control {
    /// Finish what is held, then end. Asked a second time: abort. A third time: leave, though a member stands
    /// still; what is not sealed by then is for `recover`.
    pub fn stop(&self) {
        let more = |asked: u8| Some((asked + 1).min(LEAVE));
        let _ = self.asked.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more);
    }

    /// End now; what is held is counted and dropped.
    pub fn abort(&self) {
        self.asked.fetch_max(2, Ordering::SeqCst);
    }

    /// The last scan is to end by then, as if it had reached its limit; with `None`, when its plan says.
    pub fn end_by(&self, at: Option<Instant>) {
        *self.end_by.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }

    fn is_to_end(&self) -> bool {
        let end_by = *self.end_by.lock().unwrap_or_else(PoisonError::into_inner);
        end_by.is_some_and(|at| Instant::now() >= at)
    }

    /// How often an end was asked for: 0, 1 (stop), 2 (abort) or 3 (leave).
    pub fn asked(&self) -> u8 {
        self.asked.load(Ordering::SeqCst)
    }
}

/// Everything the supervisor knows.
pub struct Supervisor {
    plan: Plan,
    members: Vec<Member>,
    /// The file system of each.
    devices: Vec<Option<u64>>,
    failures: Vec<Option<String>>,
    /// Members that failed and are used again, until their writers have done with what was before.
    returning: Vec<bool>,
    /// How often each came back.
    returns: Vec<u32>,
    running: Running,
    scribes: Scribes,
    /// Scans that are not sealed; the newest is being recorded.
    scans: VecDeque<Scan>,
    /// The next one, while its directories are being made.
    next: Option<Next>,
    /// Scans that are being sealed.
    sealings: Vec<Sealing>,
    /// What was made of a scan that did not begin, while it is taken away.
    discarded: Option<Answers>,
    /// Scans begun so far.
    begun: usize,
    clock: Clock,
    since: Instant,
    /// When the first scan is to begin, until it has.
    start: Option<Tai>,
    /// When manifests were last written.
    written: Instant,
    stopping: u8,
    /// When it was last told how all stands.
    reported: Instant,
    standstill: Standstill,
    marks: Marks,
    clocks: Clocks,
    captures_left: usize,
    broken: Vec<String>,
    /// Whether a source can give nothing more, so that no further scan begins with it.
    source_broken: bool,
    told: Told,
    /// How often in a row there was too little room for what is left; `None` once that is said, or was before.
    short_of_room: Option<u32>,
}

/// A scan that is about to begin.
struct Next {
    scan: Scan,
    claimed: Answers,
    since: Instant,
}

/// What the last progress said, for rates.
struct Told {
    at: Instant,
    progress: Option<Progress>,
    streams: Vec<u64>,
    members: Vec<u64>,
}

impl Supervisor {
    pub(super) fn new(
        plan: Plan,
        members: Vec<Member>,
        running: Running,
        scribes: Scribes,
        first: Scan,
        clock: Clock,
    ) -> Self {
        let now = Instant::now();
        Self {
            failures: vec![None; members.len()],
            returning: vec![false; members.len()],
            returns: vec![0; members.len()],
            devices: members.iter().map(device).collect(),
            short_of_room: plan.sources.iter().any(|it| known_rate(it).is_none()).then_some(0),
            captures_left: running.captures.len(),
            told: Told {
                at: now,
                progress: None,
                streams: Vec::new(),
                members: vec![0; members.len()],
            },
            start: plan.start,
            clocks: Clocks::new(plan.clock),
            plan,
            members,
            running,
            scribes,
            scans: VecDeque::from([first]),
            next: None,
            sealings: Vec::new(),
            discarded: None,
            begun: 1,
            clock,
            since: now,
            written: now,
            stopping: 0,
            reported: now,
            standstill: Standstill::new(now),
            marks: Marks::default(),
            broken: Vec::new(),
            source_broken: false,
        }
    }

    /// Begins the first scan, unless that is to wait for its time.
    pub(super) fn begin_unless_it_waits(&self) {
        if self.start.is_none() {
            self.begin_first();
        }
    }

    fn begin_first(&self) {
        let opening = self.scans[0].opening.clone();
        self.order(|| Order::Begin(opening.clone()));
    }

    /// Begins the first scan if its time has come, by the host's clock as it goes now: until then a step of it counts.
    fn begin_when_due(&mut self) {
        self.clock = Clock::new();
        let now = self.clock.now();
        if self.start.is_some_and(|start| now >= start.plus_ns(-EARLY_NS)) {
            self.start = None;
            self.since = Instant::now();
            let scan = self.newest();
            scan.manifest.armed = now;
            scan.untold = true;
            scan.shared = witness::Reading::take(Path::new("/"));
            self.begin_first();
        }
    }

    /// Nothing was recorded, and nothing is left of the scan that did not begin.
    fn give_up_waiting(&mut self) {
        self.order(|| Order::Abort);
        self.scans.drain(..).for_each(|scan| undone(scan.discard()));
    }

    fn order(&self, order: impl Fn() -> Order) {
        self.running.captures.iter().for_each(|capture| capture.order(order()));
    }

    fn newest(&mut self) -> &mut Scan {
        self.scans.back_mut().expect("a scan is being recorded")
    }

    /// Whether the scan being recorded has reached its limit.
    fn limit_reached(&mut self) -> bool {
        let limit = self.plan.limit;
        let now = self.clock.now();
        limit.duration.is_some_and(|duration| self.since.elapsed() >= duration)
            || limit.until.is_some_and(|until| now >= until)
            || limit.bytes.is_some_and(|bytes| self.counts_anew() && self.received_bytes() >= bytes)
    }

    /// Whether the streams' counters speak of the scan being recorded, and no longer of the one before.
    fn counts_anew(&self) -> bool {
        self.begun == 1 || self.since.elapsed() > CUT
    }

    /// Bytes received in the scan being recorded.
    fn received_bytes(&self) -> u64 {
        let scan = self.scans.back().expect("a scan is being recorded");
        scan.gauges.values().map(|gauge| gauge.bytes.load(Ordering::Relaxed)).sum()
    }

    /// Ends the scan being recorded: with the next one, once its directories are made, or for good.
    fn end_scan(&mut self, tell: &mut Tell<'_>) {
        if self.next.is_some() {
            return;
        }
        if self.begun >= self.plan.scans.len() {
            self.stop(1);
            return;
        }
        let (name, now) = (self.plan.scans[self.begun].clone(), self.clock.now());
        self.take_back(&name, tell);
        if self.failures.iter().all(Option::is_some) {
            let text = format!("no member takes data: {name} is counted, and kept nowhere");
            tell(&Event::Warning { text });
        }
        let away = self.newest().manifest.away.clone();
        let set = DiskSet { members: &self.members, failures: &self.failures, away: &away };
        match Scan::plan(name, &self.plan, set, &self.scribes, now) {
            Ok(mut scan) => {
                scan.manifest.rig.clone_from(&self.running.rig);
                let claimed = scan.claim();
                self.next = Some(Next { scan, claimed, since: Instant::now() });
            }
            Err(error) => self.cannot_begin(&error, tell),
        }
    }

    fn cannot_begin(&mut self, error: &RecordError, tell: &mut Tell<'_>) {
        let text = format!("the next scan cannot begin: {error}");
        self.broken.push(text.clone());
        tell(&Event::Warning { text });
        self.stop(1);
    }

    /// Begins the next scan when every member has made its directories. One that stands still is not waited for
    /// longer than [`CLAIMED_BY`].
    fn begin_next(&mut self, tell: &mut Tell<'_>) {
        let Some(mut next) = self.next.take() else { return };
        next.claimed.poll();
        let late = next.since.elapsed() >= CLAIMED_BY;
        let enough = next.claimed.any_taken() || (late && next.claimed.any_good());
        if !next.claimed.are_complete() && !enough {
            self.next = Some(next);
            return;
        }
        let Next { mut scan, claimed, .. } = next;
        match scan.begin(claimed) {
            Ok(warnings) => {
                warnings.into_iter().for_each(|text| tell(&Event::Warning { text }));
                self.cut(scan);
            }
            Err(error) => {
                self.discarded = Some(scan.discard());
                self.cannot_begin(&error, tell);
            }
        }
    }

    /// Cuts the next scan from the one being recorded.
    fn cut(&mut self, mut next: Scan) {
        next.manifest.armed = self.clock.now();
        if let Some(planned) = &mut next.manifest.planned {
            // It goes on where the one before ends.
            planned.begin = planned.begin.map(|_| next.manifest.armed);
        }
        next.shared = witness::Reading::take(Path::new("/"));
        // Of members that failed while its directories were made.
        for (member, failure) in next.manifest.members.iter_mut().zip(&self.failures) {
            member.failure = member.failure.take().or_else(|| failure.clone());
        }
        let lasted = self.since.elapsed();
        let before = self.newest();
        before.take_marks(lasted);
        next.go_on_from(before);
        (0..next.manifest.streams.len() as u16).for_each(|number| {
            next.life.step(Step::Opened(number));
        });
        before.manifest.stopped = Some(next.manifest.armed);
        before.cut.1 = true;
        let opening = next.opening.clone();
        self.close_newest();
        self.scans.push_back(next);
        self.begun += 1;
        self.since = Instant::now();
        self.order(|| Order::Begin(opening.clone()));
    }

    fn close_newest(&mut self) {
        self.newest().life.step(Step::Close);
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
            self.discarded = Some(next.scan.discard());
        }
        self.stopping = urgency;
        self.order(|| if urgency > 1 { Order::Abort } else { Order::Stop });
    }

    /// Begins to seal every scan that is ready, and tells of those that are sealed. One that cannot be is left for
    /// `recover`.
    fn seal_ready(&mut self, tell: &mut Tell<'_>) {
        while self.sealings.len() < MOST_SEALINGS
            && let Some(at) = self.scans.iter().position(|scan| scan.life.is_sealed())
        {
            let mut scan = self.scans.remove(at).expect("just seen");
            if self.scans.is_empty() {
                scan.take_marks(self.since.elapsed());
            }
            if self.source_broken && scan.came_to_nothing() {
                self.discarded = Some(scan.discard());
            } else if scan.life.is_whole() {
                let basis = Basis {
                    sources: self.plan.sources.clone(),
                    writers: self.running.gauges.clone(),
                    aborted: self.stopping > 1,
                    tails: self.running.tails.clone(),
                };
                self.sealings.push(Sealing::begin(scan, basis));
            } else {
                scan.leave();
                self.not_sealed(&scan.manifest.scan, "a thread that recorded it failed", tell);
            }
        }
        let all = std::mem::take(&mut self.sealings);
        let (over, under_way): (Vec<_>, Vec<_>) = all.into_iter().partition(Sealing::is_over);
        self.sealings = under_way;
        for sealing in over {
            let Done { name, warnings, sealed } = sealing.end();
            warnings.into_iter().for_each(|text| tell(&Event::Warning { text }));
            match sealed {
                Ok(sealed) => tell(&Event::Sealed(Box::new(sealed))),
                Err(Unsealed { why, books }) => {
                    self.not_sealed(&name, &why, tell);
                    if let Some(books) = books {
                        tell(&Event::Unsealed { why, books: Box::new(books) });
                    }
                }
            }
        }
    }

    fn not_sealed(&mut self, name: &ScanName, why: &str, tell: &mut Tell<'_>) {
        let text = format!(
            "{name} is not sealed: {why}; `fullbore recover {name}` seals what its members hold"
        );
        self.broken.push(text.clone());
        tell(&Event::Warning { text });
    }

    /// Whether every scan is sealed, or left.
    fn is_over(&self) -> bool {
        self.scans.is_empty() && self.sealings.is_empty()
    }

    /// Begins and ends scans when it is time; `due` if an end was set beside the plan, and it has come.
    fn keep_to_the_plan(&mut self, due: bool, tell: &mut Tell<'_>) {
        if self.start.is_some() {
            let is_past = self.plan.limit.until.is_some_and(|until| Clock::new().now() >= until);
            match self.captures_left == 0 || is_past {
                true => self.give_up_waiting(),
                false => self.begin_when_due(),
            }
            return;
        }
        let limited = self.stopping == 0 && self.next.is_none();
        if limited && (due || self.limit_reached()) {
            // A PandA's scan is an acquisition, which a limit cannot cut in two.
            match self.plan.pandas.is_empty() {
                false => self.stop(1),
                true => {
                    let now = self.clock.now();
                    // A limit of bytes, or of time in a series, is an end that was wanted, though no instant was given.
                    let wanted = !due && self.plan.limit.until.is_none_or(|until| now < until);
                    let scan = self.newest();
                    scan.limited = true;
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

    /// Tells a few times a second how it stands.
    fn tell_of_it(&mut self, tell: &mut Tell<'_>) {
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
        self.take_marks(tell);
        if let Some(progress) = self.progress() {
            self.judge_room(&progress, tell);
            tell(&Event::Progress(progress));
        }
        if let Some(scan) = self.scans.back() {
            self.clocks.judge(scan, tell);
        }
        self.judge_standstill(tell);
    }

    /// Waits for nobody any more: scans that are not sealed are as a crash would leave them.
    fn leave(self) -> RecordError {
        let sealings = self.sealings.iter().map(Sealing::scan);
        let scans = self.scans.iter().map(|scan| &scan.manifest.scan).chain(sealings);
        RecordError::Left { scans: scans.cloned().collect() }
    }

    /// Waits for every thread; all scans are sealed, or left.
    fn end(self, tell: &mut Tell<'_>) -> Result<(), RecordError> {
        let Supervisor { running, broken, discarded, .. } = self;
        if let Some(mut discarded) = discarded {
            discarded.wait_for_enough(&mut BTreeSet::new());
        }
        running.captures.into_iter().for_each(|capture| capture.join());
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
    /// Records until a limit is reached or an end is asked for. Every scan is told of when it is sealed.
    pub fn run(self, control: &Arc<Control>, tell: &mut Tell<'_>) -> Result<(), RecordError> {
        let mut supervisor = self.supervisor;
        while !supervisor.is_over() {
            supervisor.listen(tell);
            match control.asked() {
                _ if supervisor.is_over() => break,
                LEAVE => return Err(supervisor.leave()),
                0 => {}
                _ if supervisor.start.is_some() => supervisor.give_up_waiting(),
                urgency => supervisor.stop(urgency),
            }
            supervisor.keep_to_the_plan(control.is_to_end(), tell);
            supervisor.tell_of_it(tell);
        }
        supervisor.end(tell)
    }
}
