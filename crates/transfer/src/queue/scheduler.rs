//! Decides which transfers of a queue run, as a pure state machine.
//!
//! ```text
//!              start                     done, failed
//!   waiting ──────────► running ─────────────────────────► over
//!      ▲                  │  │
//!      │   interrupted    │  │ paused, removed, window closed, preempted
//!      ├──────────────────┘  ▼
//!      └───────────────── stopping
//! ```
//!
//! - The highest priority runs first; within a priority, the destination with the fewest running transfers, then the one
//!   that waited longest, then the oldest job. A waiting job of a higher priority stops a running one of a lower priority:
//!   an interrupted transfer continues where it was, so that costs little.
//! - After a failure that can pass, a job waits, each time twice as long. If its destination is away, all jobs to it wait,
//!   and then one of them alone tries.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use crate::governor::Window;

/// The pause after a first failure. Each further one is twice as long, up to [`LONGEST_PAUSE`].
pub const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The longest pause between two attempts.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// How many transfers run at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// In all.
    pub all: usize,
    /// To one destination.
    pub per_destination: usize,
}

/// A job, as far as the scheduler is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The destination.
    pub destination: String,
    /// A higher number goes first.
    pub priority: i32,
    /// True if the user paused it.
    pub paused: bool,
    /// The time of day in which it may run.
    pub window: Option<Window>,
}

/// The time of a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Time since any fixed moment.
    pub at: Duration,
    /// The second of the day, UTC.
    pub second_of_day: u32,
}

/// A decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Start this job.
    Start(u64),
    /// Stop this job. It has ended when [`Scheduler::ended`] is called.
    Stop(u64),
}

/// How a transfer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All of the scan is at the destination, with a receipt.
    Done,
    /// It cannot succeed without the user.
    Failed,
    /// It was stopped.
    Stopped,
    /// The destination is away.
    Away,
    /// It failed and can succeed later.
    Later,
}

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It runs, or is being stopped.
    Running,
    /// It waits for its turn.
    Queued,
    /// Its destination takes no further transfer at the same time.
    DestinationBusy,
    /// It waits for its time of day.
    OutsideWindow,
    /// The user paused it.
    Paused,
    /// It failed, and is tried again after this time.
    Retry(Duration),
    /// Its destination is away, and is tried again after this time.
    Away(Duration),
    /// It is at the destination.
    Done,
    /// It failed.
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Waiting,
    Running,
    Stopping,
    Over(Ended),
}

#[derive(Clone, Debug)]
struct Entry {
    task: Task,
    phase: Phase,
    /// The job is gone as soon as its transfer has ended.
    removed: bool,
    backoff: Backoff,
}

#[derive(Clone, Debug, Default)]
struct Destination {
    backoff: Backoff,
    /// The number of the last start to it.
    started: u64,
}

/// Failures in a row, and the end of the pause after them.
#[derive(Clone, Copy, Debug, Default)]
struct Backoff {
    failures: u32,
    until: Duration,
}

impl Backoff {
    fn fail(&mut self, at: Duration) {
        let doubled = FIRST_PAUSE.saturating_mul(1 << self.failures.min(16));
        self.failures += 1;
        self.until = at + doubled.min(LONGEST_PAUSE);
    }

    fn left(&self, at: Duration) -> Duration {
        if self.failures == 0 { Duration::ZERO } else { self.until.saturating_sub(at) }
    }
}

/// The jobs of a queue, and what they do.
#[derive(Clone, Debug)]
pub struct Scheduler {
    slots: Slots,
    jobs: BTreeMap<u64, Entry>,
    destinations: BTreeMap<String, Destination>,
    starts: u64,
}

impl Scheduler {
    /// A scheduler without jobs. There is room for at least one transfer.
    pub fn new(slots: Slots) -> Self {
        let slots = Slots { all: slots.all.max(1), per_destination: slots.per_destination.max(1) };
        Self { slots, jobs: BTreeMap::new(), destinations: BTreeMap::new(), starts: 0 }
    }

    /// Adds a job, or changes it. The destination of a job does not change.
    pub fn put(&mut self, id: u64, task: Task) {
        self.destinations.entry(task.destination.clone()).or_default();
        match self.jobs.get_mut(&id) {
            Some(entry) => {
                entry.task = Task { destination: entry.task.destination.clone(), ..task }
            }
            None => {
                let (phase, backoff) = (Phase::Waiting, Backoff::default());
                self.jobs.insert(id, Entry { task, phase, removed: false, backoff });
            }
        }
    }

    /// Removes a job. One that runs is stopped first.
    pub fn remove(&mut self, id: u64) {
        match self.jobs.get_mut(&id) {
            Some(entry) if entry.is_active() => entry.removed = true,
            _ => self.forget(id),
        }
    }

    fn forget(&mut self, id: u64) {
        let Some(gone) = self.jobs.remove(&id) else { return };
        let name = gone.task.destination;
        if !self.jobs.values().any(|it| it.task.destination == name) {
            self.destinations.remove(&name);
        }
    }

    /// Makes a job that is over, or waits after a failure, run again as soon as it can.
    pub fn retry(&mut self, id: u64) {
        let Some(entry) = self.jobs.get_mut(&id) else { return };
        entry.backoff = Backoff::default();
        if let Phase::Over(_) = entry.phase {
            entry.phase = Phase::Waiting;
        }
        if let Some(destination) = self.destinations.get_mut(&entry.task.destination) {
            destination.backoff.until = Duration::ZERO;
        }
    }

    /// Blocks of a running job became durable: failures before this one do not count any more.
    pub fn progressed(&mut self, id: u64) {
        let Some(entry) = self.jobs.get_mut(&id) else { return };
        entry.backoff = Backoff::default();
        if let Some(destination) = self.destinations.get_mut(&entry.task.destination) {
            destination.backoff = Backoff::default();
        }
    }

    /// A transfer has ended.
    pub fn ended(&mut self, id: u64, how: Ended, at: Duration) {
        let Some(entry) = self.jobs.get_mut(&id) else { return };
        entry.phase = match how {
            Ended::Done | Ended::Failed => Phase::Over(how),
            Ended::Stopped | Ended::Away | Ended::Later => Phase::Waiting,
        };
        let destination = self.destinations.get_mut(&entry.task.destination);
        match (how, destination) {
            (Ended::Away, Some(destination)) => destination.backoff.fail(at),
            (Ended::Later, _) => entry.backoff.fail(at),
            (Ended::Done, Some(destination)) => destination.backoff = Backoff::default(),
            (Ended::Failed | Ended::Stopped, _) | (Ended::Away | Ended::Done, None) => {}
        }
        if entry.removed {
            self.forget(id);
        }
    }

    /// The next decision; none if everything is as it should be at this time.
    pub fn next(&mut self, now: Now) -> Option<Action> {
        if let Some(id) = self.to_be_stopped(now) {
            return Some(self.stop(id));
        }
        let mut waiting: Vec<u64> = self.jobs.keys().copied().collect();
        waiting.retain(|id| self.state(*id, now).is_some_and(State::is_ready));
        waiting.sort_by_key(|id| self.rank(*id));
        for id in waiting {
            let entry = &self.jobs[&id];
            let blockers = self.blockers(&entry.task.destination);
            if blockers.is_empty() {
                return Some(self.start(id));
            }
            // One slot is enough: it is waited for if it is being made free already.
            if blockers.iter().any(|it| self.jobs[it].phase == Phase::Stopping) {
                continue;
            }
            let lowest =
                blockers.iter().min_by_key(|it| (self.jobs[it].task.priority, Reverse(**it)));
            let lower = lowest.filter(|it| self.jobs[it].task.priority < entry.task.priority);
            if let Some(victim) = lower.copied() {
                return Some(self.stop(victim));
            }
        }
        None
    }

    /// A running job that may not run any more.
    fn to_be_stopped(&self, now: Now) -> Option<u64> {
        let may_run = |it: &Entry| !it.removed && !it.task.paused && it.is_in_window(now);
        let running = self.jobs.iter().filter(|(_, it)| it.phase == Phase::Running);
        running.filter(|(_, it)| !may_run(it)).map(|(id, _)| *id).next()
    }

    fn start(&mut self, id: u64) -> Action {
        self.starts += 1;
        if let Some(entry) = self.jobs.get_mut(&id) {
            entry.phase = Phase::Running;
            if let Some(destination) = self.destinations.get_mut(&entry.task.destination) {
                destination.started = self.starts;
            }
        }
        Action::Start(id)
    }

    fn stop(&mut self, id: u64) -> Action {
        if let Some(entry) = self.jobs.get_mut(&id) {
            entry.phase = Phase::Stopping;
        }
        Action::Stop(id)
    }

    /// The transfers of which one has to end before another can start to this destination.
    fn blockers(&self, name: &str) -> Vec<u64> {
        let active = |it: &&u64| self.jobs[it].is_active();
        let all: Vec<u64> = self.jobs.keys().filter(active).copied().collect();
        let same = |it: &u64| self.jobs[it].task.destination == name;
        let there: Vec<u64> = all.iter().filter(|it| same(it)).copied().collect();
        if there.len() >= self.most_to(name) {
            there
        } else if all.len() >= self.slots.all {
            all
        } else {
            Vec::new()
        }
    }

    /// A destination that was away is tried by one transfer.
    fn most_to(&self, name: &str) -> usize {
        let failing = self.destinations.get(name).is_some_and(|it| it.backoff.failures > 0);
        if failing { 1 } else { self.slots.per_destination }
    }

    fn rank(&self, id: u64) -> (Reverse<i32>, usize, u64, u32, u64) {
        let entry = &self.jobs[&id];
        let name = &entry.task.destination;
        let there = self.jobs.values().filter(|it| it.is_active() && it.task.destination == *name);
        let started = self.destinations.get(name).map_or(0, |it| it.started);
        (Reverse(entry.task.priority), there.count(), started, entry.backoff.failures, id)
    }

    /// The state of a job; none if there is no such job.
    pub fn state(&self, id: u64, now: Now) -> Option<State> {
        let entry = self.jobs.get(&id)?;
        match entry.phase {
            Phase::Running | Phase::Stopping => return Some(State::Running),
            Phase::Over(Ended::Done) => return Some(State::Done),
            Phase::Over(_) => return Some(State::Failed),
            Phase::Waiting => {}
        }
        let name = &entry.task.destination;
        let away = self.destinations.get(name).map_or(Duration::ZERO, |it| it.backoff.left(now.at));
        let retry = entry.backoff.left(now.at);
        let there = self.jobs.values().filter(|it| it.is_active() && it.task.destination == *name);
        Some(if entry.task.paused {
            State::Paused
        } else if !entry.is_in_window(now) {
            State::OutsideWindow
        } else if !away.is_zero() {
            State::Away(away)
        } else if !retry.is_zero() {
            State::Retry(retry)
        } else if there.count() >= self.most_to(name) {
            State::DestinationBusy
        } else {
            State::Queued
        })
    }

    /// True if no job will run unless the user changes something.
    pub fn is_idle(&self) -> bool {
        self.jobs.values().all(|it| match it.phase {
            Phase::Over(_) => true,
            Phase::Waiting => it.task.paused,
            Phase::Running | Phase::Stopping => false,
        })
    }
}

impl Entry {
    fn is_active(&self) -> bool {
        matches!(self.phase, Phase::Running | Phase::Stopping)
    }

    fn is_in_window(&self, now: Now) -> bool {
        self.task.window.is_none_or(|window| window.contains(now.second_of_day))
    }
}

impl State {
    /// True if only slots are missing.
    fn is_ready(self) -> bool {
        matches!(self, State::Queued | State::DestinationBusy)
    }
}

#[cfg(test)]
mod tests;
