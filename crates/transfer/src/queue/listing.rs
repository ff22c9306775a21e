//! The transfers of a queue as a user sees them, whether a runner runs or not.

use std::path::PathBuf;

use fullbore_core::name::ScanName;
use fullbore_time::Tai;
use serde::Serialize;

use super::error::QueueError;
use super::files::Queue;
use super::job::{End, Job, JobState, Live, Record, Status};

/// The transfers of a queue.
#[derive(Debug, Serialize)]
pub struct Listing {
    /// The process of the runner, if one runs.
    pub runner: Option<u32>,
    /// The transfers, in the order of their numbers.
    pub transfers: Vec<Row>,
    /// Files that cannot be used.
    pub problems: Vec<String>,
}

/// A transfer.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its number.
    pub id: u64,
    /// The scan.
    pub scan: String,
    /// The destination.
    pub to: String,
    /// Its state.
    pub state: JobState,
    /// Why it does not run, or sends nothing now.
    pub reason: Option<String>,
    /// A higher number goes first.
    pub priority: i32,
    /// Bytes that are durable at the destination.
    pub done_bytes: u64,
    /// Bytes of the scan, as far as they are known.
    pub bytes: u64,
    /// Bytes per second that became durable.
    pub rate: u64,
    /// Seconds until it is done at this rate.
    pub eta_seconds: Option<u64>,
    /// The number of starts.
    pub attempts: u32,
    /// The last failure.
    pub last_error: Option<String>,
    /// Blocks that could not be read here.
    pub missing_blocks: u64,
    /// The most bytes per second.
    pub rate_limit: Option<u64>,
    /// The time of day in which it sends, UTC.
    pub window: Option<String>,
    /// The rule that made it.
    pub rule: Option<u64>,
    /// The members of the store.
    pub store: Vec<PathBuf>,
    /// The time at which it was added.
    pub added: Tai,
    /// The time at which it was done or failed.
    pub ended: Option<Tai>,
}

impl Listing {
    /// Reads the queue.
    pub fn read(queue: &Queue) -> Result<Self, QueueError> {
        let listed = queue.jobs()?;
        let runner = queue.runner()?;
        let mut problems: Vec<String> = listed.problems.iter().map(ToString::to_string).collect();
        problems.extend(queue.rules()?.problems.iter().map(ToString::to_string));
        let mut transfers = Vec::new();
        for (id, job) in listed.items.into_iter().filter(|(_, job)| !job.removed) {
            match queue.record(id) {
                Ok(record) => transfers.push(row(id, &job, &record, runner.as_ref())),
                Err(error) => problems.push(error.to_string()),
            }
        }
        Ok(Self { runner: runner.map(|it| it.pid), transfers, problems })
    }

    /// True if some transfer needs a runner, and none runs.
    pub fn lacks_runner(&self) -> bool {
        let waits = |row: &Row| matches!(row.state, JobState::Queued | JobState::Waiting);
        self.runner.is_none() && self.transfers.iter().any(waits)
    }
}

fn row(id: u64, job: &Job, record: &Record, runner: Option<&Status>) -> Row {
    let live = runner.and_then(|it| it.jobs.iter().find(|live| live.id == id));
    let over = if record.resumed == job.resumed { record.end } else { End::None };
    let (state, reason) = state(job, over, live, runner.is_some());
    let live = live.filter(|_| over == End::None);
    let (done_bytes, bytes) =
        live.map_or((record.done_bytes, record.bytes), |it| (it.done_bytes, it.bytes));
    let rate = live.filter(|_| state == JobState::Running).map_or(0, |it| it.rate);
    Row {
        id,
        scan: ScanName::to_string(&job.scan),
        to: job.target.to.clone(),
        state,
        reason,
        priority: job.wishes.priority,
        done_bytes,
        bytes,
        rate,
        eta_seconds: bytes.saturating_sub(done_bytes).checked_div(rate),
        attempts: record.attempts,
        last_error: record.last_error.clone(),
        missing_blocks: record.missing_blocks,
        rate_limit: job.wishes.rate,
        window: job.wishes.window.map(|it| it.to_string()),
        rule: job.rule,
        store: job.store.clone(),
        added: job.added,
        ended: record.ended.filter(|_| over != End::None),
    }
}

fn state(job: &Job, over: End, live: Option<&Live>, runner: bool) -> (JobState, Option<String>) {
    match (over, live) {
        (End::Done, _) => (JobState::Done, None),
        (End::Failed, _) => (JobState::Failed, None),
        // A command is newer than the status of a runner, which follows within a second.
        (End::None, _) if job.paused => (JobState::Paused, None),
        (End::None, Some(live)) if live.state != JobState::Paused => {
            (live.state, live.reason.clone())
        }
        (End::None, _) if runner => (JobState::Queued, None),
        (End::None, _) => (JobState::Queued, Some("no runner runs".to_owned())),
    }
}
