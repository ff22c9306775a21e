//! Runs the jobs of a queue until it is stopped, or until nothing is left to do.
//!
//! One thread decides, and one thread per transfer sends. Commands change files, which the runner reads again within a
//! second. After a `kill -9`, the next runner begins with the same files: what is durable at a destination, the
//! destination says.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Scope;
use std::time::{Duration, Instant, SystemTime};

use fullbore_linux::stop_handle::StopHandle;

use super::carrier::{Carried, Carrier, Delivered, Failure};
use super::error::QueueError;
use super::files::{Queue, now};
use super::job::{End, Job, JobState, Live, Record, Status, VERSION};
use super::rules;
use super::scheduler::{Action, Ended, Now, Scheduler, Slots, State, Task};
use crate::governor::Governor;

/// Time between two looks at the ends of transfers and at the user's wishes.
const TICK: Duration = Duration::from_millis(200);
/// Time between two statuses.
const STATUS: Duration = Duration::from_secs(1);
/// Time between two looks at the stores for sealed scans, if a look takes little.
const SCANS: Duration = Duration::from_secs(3);
/// Looks at the stores take at most this part of the time.
const SCANS_PART: u32 = 20;
/// The rate is an average over about this time.
const RATE_OVER: f64 = 5.0;

/// What a runner tells while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunnerEvent {
    /// A transfer starts, for the n-th time.
    Started(u64, Job, u32),
    /// A scan is at its destination.
    Done(u64, Job, Delivered),
    /// A transfer ended and continues later.
    Interrupted(u64, Job, String),
    /// A transfer failed for good.
    Failed(u64, Job, String),
    /// A rule made a job.
    Ruled(u64, Job),
    /// Something cannot be used.
    Problem(String),
}

/// The end of a runner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ran {
    /// Transfers that were done.
    pub done: u64,
    /// Transfers that failed for good, or lack blocks that could not be read.
    pub failed: u64,
}

/// The settings of a runner.
#[derive(Clone, Copy, Debug)]
pub struct RunnerSettings {
    /// How many transfers run at once.
    pub slots: Slots,
    /// True to end when no job can run any more.
    pub once: bool,
}

/// Runs the jobs of a queue.
pub fn run(
    queue: &Queue,
    settings: RunnerSettings,
    governor: &Governor,
    carrier: &dyn Carrier,
    stop: &StopHandle,
    tell: &mut dyn FnMut(RunnerEvent),
) -> Result<Ran, QueueError> {
    let _lock = queue.become_runner()?;
    std::thread::scope(|scope| {
        let (sender, ends) = channel();
        let mut runner = Runner {
            queue,
            governor,
            carrier,
            scope,
            sender,
            begun: Instant::now(),
            scheduler: Scheduler::new(settings.slots),
            jobs: BTreeMap::new(),
            records: BTreeMap::new(),
            active: BTreeMap::new(),
            changed: None,
            problems: BTreeSet::new(),
            ran: Ran::default(),
        };
        let result = runner.run(settings.once, &ends, stop, tell);
        // Without this, an error would wait for transfers that nobody stops.
        runner.stop_all();
        while !runner.active.is_empty() {
            let Ok((id, how)) = ends.recv() else { break };
            runner.take_end(id, how, tell)?;
        }
        result.map(|()| runner.ran)
    })
}

/// A transfer that runs.
struct Active {
    stop: StopHandle,
    governor: Arc<Governor>,
    carried: Mutex<Carried>,
    /// True once the attempt told its progress; before, it is that of the attempt before.
    told: AtomicBool,
}

/// The runner's side of a transfer.
struct Measured {
    active: Arc<Active>,
    /// The state at the last measurement of the rate, and what was there when it began.
    before: (Instant, Option<u64>),
    rate: f64,
}

/// The end of an attempt.
type Attempt = Result<Delivered, Failure>;

struct Runner<'scope, 'env> {
    queue: &'env Queue,
    governor: &'env Governor,
    carrier: &'env dyn Carrier,
    scope: &'scope Scope<'scope, 'env>,
    sender: Sender<(u64, Attempt)>,
    begun: Instant,
    scheduler: Scheduler,
    jobs: BTreeMap<u64, Job>,
    records: BTreeMap<u64, Record>,
    active: BTreeMap<u64, Measured>,
    changed: Option<[SystemTime; 2]>,
    problems: BTreeSet<String>,
    ran: Ran,
}

impl Runner<'_, '_> {
    fn run(
        &mut self,
        once: bool,
        ends: &Receiver<(u64, Attempt)>,
        stop: &StopHandle,
        tell: &mut dyn FnMut(RunnerEvent),
    ) -> Result<(), QueueError> {
        let (mut told, mut looked, mut pause) = (None::<Instant>, None::<Instant>, SCANS);
        while !stop.is_requested() {
            self.read(tell)?;
            if looked.is_none_or(|at| at.elapsed() >= pause) {
                let begun = Instant::now();
                self.apply_rules(tell)?;
                looked = Some(Instant::now());
                pause = SCANS.max(begun.elapsed() * SCANS_PART);
            }
            self.measure();
            self.decide(tell)?;
            if told.is_none_or(|at| at.elapsed() >= STATUS) {
                self.queue.put_status(&self.status())?;
                told = Some(Instant::now());
            }
            if once && self.scheduler.is_idle() {
                break;
            }
            match ends.recv_timeout(TICK) {
                Ok((id, how)) => self.take_end(id, how, tell)?,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
        }
        Ok(())
    }

    fn now(&self) -> Now {
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Now { at: self.begun.elapsed(), second_of_day: (unix.as_secs() % 86_400) as u32 }
    }

    /// Reads the jobs again if a command has changed them.
    fn read(&mut self, tell: &mut dyn FnMut(RunnerEvent)) -> Result<(), QueueError> {
        let changed = self.queue.changed();
        if changed.is_some() && changed == self.changed {
            return Ok(());
        }
        let listed = self.queue.jobs()?;
        let rules = self.queue.rules()?;
        let problems = listed.problems.iter().chain(&rules.problems).map(ToString::to_string);
        self.tell_problems(problems.collect(), tell);
        let mut jobs = listed.items;
        jobs.retain(|_, job| !job.removed);
        let gone: Vec<u64> =
            self.jobs.keys().filter(|id| !jobs.contains_key(id)).copied().collect();
        for id in gone {
            self.scheduler.remove(id);
            self.records.remove(&id);
        }
        for (id, job) in &jobs {
            if self.jobs.get(id) != Some(job) {
                self.put(*id, job)?;
            }
        }
        if self.changed.is_none() || jobs.len() < self.jobs.len() {
            self.queue.forget_records(&jobs)?;
        }
        (self.jobs, self.changed) = (jobs, changed);
        Ok(())
    }

    fn tell_problems(&mut self, problems: BTreeSet<String>, tell: &mut dyn FnMut(RunnerEvent)) {
        for problem in problems.difference(&self.problems) {
            tell(RunnerEvent::Problem(problem.clone()));
        }
        self.problems = problems;
    }

    /// Takes a job that is new or has changed.
    fn put(&mut self, id: u64, job: &Job) -> Result<(), QueueError> {
        if let std::collections::btree_map::Entry::Vacant(place) = self.records.entry(id) {
            place.insert(self.queue.record(id)?);
        }
        let Some(record) = self.records.get_mut(&id) else { return Ok(()) };
        if record.resumed != job.resumed {
            (record.resumed, record.end) = (job.resumed, End::None);
        }
        let (end, task) = (record.end, task(job));
        self.scheduler.put(id, task);
        match end {
            // Over before this runner began.
            End::Done => self.scheduler.ended(id, Ended::Done, Duration::ZERO),
            End::Failed => self.scheduler.ended(id, Ended::Failed, Duration::ZERO),
            End::None => {
                if self.jobs.get(&id).is_some_and(|known| known.resumed != job.resumed) {
                    self.scheduler.retry(id);
                }
            }
        }
        if let Some(running) = self.active.get(&id) {
            running.active.governor.set_rate(job.wishes.rate);
        }
        Ok(())
    }

    fn apply_rules(&mut self, tell: &mut dyn FnMut(RunnerEvent)) -> Result<(), QueueError> {
        for added in rules::apply(self.queue, self.carrier)? {
            self.changed = None;
            tell(RunnerEvent::Ruled(added.id, added.job));
        }
        if self.changed.is_none() {
            self.read(tell)?;
        }
        Ok(())
    }

    fn decide(&mut self, tell: &mut dyn FnMut(RunnerEvent)) -> Result<(), QueueError> {
        let now = self.now();
        while let Some(action) = self.scheduler.next(now) {
            match action {
                Action::Start(id) => self.start(id, tell)?,
                Action::Stop(id) => {
                    if let Some(running) = self.active.get(&id) {
                        running.active.stop.stop();
                    }
                }
            }
        }
        Ok(())
    }

    fn start(&mut self, id: u64, tell: &mut dyn FnMut(RunnerEvent)) -> Result<(), QueueError> {
        let (Some(job), Some(record)) = (self.jobs.get(&id), self.records.get_mut(&id)) else {
            return Ok(());
        };
        record.attempts += 1;
        let known = Carried { done_bytes: record.done_bytes, bytes: record.bytes, holding: None };
        self.queue.put_record(id, record)?;
        tell(RunnerEvent::Started(id, job.clone(), record.attempts));
        let active = Arc::new(Active {
            stop: StopHandle::default(),
            governor: Arc::new(self.governor.share(&job.target.to, job.wishes.rate)),
            carried: Mutex::new(known),
            told: AtomicBool::new(false),
        });
        let (sender, carrier, job) = (self.sender.clone(), self.carrier, job.clone());
        let (working, before) = (active.clone(), (Instant::now(), None));
        self.active.insert(id, Measured { active, before, rate: 0.0 });
        let work = move || {
            let result = carry(carrier, &job, &working);
            // The runner waits for the end of each transfer, so it is there.
            let _ = sender.send((id, result));
        };
        let thread = std::thread::Builder::new().name(format!("transfer {id}"));
        if let Err(error) = thread.spawn_scoped(self.scope, work) {
            let why = format!("cannot start a thread: {error}");
            self.take_end(id, Err(Failure { how: Ended::Later, why }), tell)?;
        }
        Ok(())
    }

    fn stop_all(&self) {
        self.active.values().for_each(|it| it.active.stop.stop());
    }

    fn take_end(
        &mut self,
        id: u64,
        result: Attempt,
        tell: &mut dyn FnMut(RunnerEvent),
    ) -> Result<(), QueueError> {
        let carried = self.active.remove(&id).map(|it| it.active.carried()).unwrap_or_default();
        let how = result.as_ref().map_or_else(|failure| failure.how, |_| Ended::Done);
        self.scheduler.ended(id, how, self.begun.elapsed());
        let (Some(job), Some(record)) = (self.jobs.get(&id), self.records.get_mut(&id)) else {
            // The job was removed.
            return Ok(());
        };
        (record.done_bytes, record.bytes) = (carried.done_bytes, carried.bytes);
        let job = job.clone();
        match result {
            Ok(delivered) => {
                self.ran.done += 1;
                self.ran.failed += u64::from(delivered.missing_blocks > 0);
                (record.end, record.ended) = (End::Done, Some(now()));
                (record.done_bytes, record.bytes) = (delivered.bytes, delivered.bytes);
                (record.missing_blocks, record.last_error) = (delivered.missing_blocks, None);
                tell(RunnerEvent::Done(id, job, delivered));
            }
            Err(Failure { how: Ended::Failed, why }) => {
                self.ran.failed += 1;
                (record.end, record.ended) = (End::Failed, Some(now()));
                record.last_error = Some(why.clone());
                tell(RunnerEvent::Failed(id, job, why));
            }
            Err(Failure { how: Ended::Stopped, .. }) => {}
            Err(Failure { why, .. }) => {
                record.last_error = Some(why.clone());
                tell(RunnerEvent::Interrupted(id, job, why));
            }
        }
        self.queue.put_record(id, record)
    }

    /// Measures the rates of the running transfers.
    fn measure(&mut self) {
        for (id, running) in &mut self.active {
            let (at, bytes) = (Instant::now(), running.active.carried().done_bytes);
            let (then, before) = running.before;
            // The first number is what was there before.
            let Some(before) = before else {
                running.before = (at, running.active.told.load(Ordering::SeqCst).then_some(bytes));
                continue;
            };
            let elapsed = at.duration_since(then).as_secs_f64();
            if elapsed < 0.5 {
                continue;
            }
            let rate = bytes.saturating_sub(before) as f64 / elapsed;
            let weight = if running.rate == 0.0 { 1.0 } else { (elapsed / RATE_OVER).min(1.0) };
            running.rate += (rate - running.rate) * weight;
            running.before = (at, Some(bytes));
            if bytes > before {
                self.scheduler.progressed(*id);
            }
        }
    }

    fn status(&self) -> Status {
        let now = self.now();
        let live = |(id, _): (&u64, &Job)| self.live(*id, now);
        Status {
            version: VERSION,
            pid: std::process::id(),
            jobs: self.jobs.iter().filter_map(live).collect(),
            problems: self.problems.iter().cloned().collect(),
        }
    }

    /// The state of a job that is not over.
    fn live(&self, id: u64, now: Now) -> Option<Live> {
        let record = self.records.get(&id)?;
        let seconds = |left: Duration| left.as_secs_f64().ceil() as u64;
        let error =
            || record.last_error.as_deref().unwrap_or("it failed").lines().next().unwrap_or("");
        let (state, reason) = match self.scheduler.state(id, now)? {
            State::Done | State::Failed => return None,
            State::Running => (JobState::Running, None),
            State::Queued => (JobState::Queued, None),
            State::DestinationBusy => {
                (JobState::Queued, Some("other transfers to this destination run".to_owned()))
            }
            State::Paused => (JobState::Paused, None),
            State::OutsideWindow => {
                let window = self.jobs.get(&id)?.wishes.window?;
                (JobState::Waiting, Some(format!("outside window {window} UTC")))
            }
            State::Retry(left) => (
                JobState::Waiting,
                Some(format!("{}; next attempt in {} s", error(), seconds(left))),
            ),
            State::Away(left) => {
                let why = record.last_error.is_some().then(error);
                let why = why.unwrap_or("the destination is away");
                (JobState::Waiting, Some(format!("{why}; next attempt in {} s", seconds(left))))
            }
        };
        let mut live =
            Live { id, state, reason, done_bytes: record.done_bytes, bytes: record.bytes, rate: 0 };
        if let Some(running) = self.active.get(&id) {
            let carried = running.active.carried();
            (live.done_bytes, live.bytes) = (carried.done_bytes, carried.bytes);
            (live.reason, live.rate) = (carried.holding, running.rate as u64);
        }
        Some(live)
    }
}

impl Active {
    fn carried(&self) -> Carried {
        self.carried.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn carry(carrier: &dyn Carrier, job: &Job, active: &Active) -> Attempt {
    let mut tell = |carried| {
        *active.carried.lock().unwrap_or_else(PoisonError::into_inner) = carried;
        active.told.store(true, Ordering::SeqCst);
    };
    let carry = || carrier.carry(job, &active.governor, &active.stop, &mut tell);
    // A panic has printed its message. The other transfers go on.
    catch_unwind(AssertUnwindSafe(carry)).unwrap_or_else(|_| {
        Err(Failure { how: Ended::Failed, why: "a fault of fullbore; see its log".into() })
    })
}

fn task(job: &Job) -> Task {
    Task {
        destination: job.target.to.clone(),
        priority: job.wishes.priority,
        paused: job.paused,
        window: job.wishes.window,
    }
}

#[cfg(test)]
mod tests;
