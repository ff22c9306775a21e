//! What is known of the transfers of a station, read once a second, and less often while it takes long.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fullbore_core::hint::with_causes;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_recording::transfers::arrivals::ReceiveState;
use fullbore_transfer::queue::job::JobState;
use fullbore_transfer::queue::listing::{Listing, Row};
use serde::Serialize;
use utoipa::ToSchema;

use super::Transfers;

/// Time between two looks at the queue.
const LOOK: Duration = Duration::from_secs(1);

/// Looks at the queue take at most this part of the time.
const PART: u32 = 20;

/// Transfers of the queue in the document. `/api/v1/transfers` lists all.
pub const MOST_SHOWN: usize = 50;

/// Of these, transfers that failed.
const MOST_FAILED: usize = 20;

/// The queue, and transfers that began at other sites.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub struct TransferState {
    /// The process that runs the queue. Null if none does.
    pub runner: Option<u32>,
    /// The number of transfers of the queue in each state.
    #[schema(value_type = BTreeMap<String, usize>)]
    pub counts: BTreeMap<JobState, usize>,
    /// Transfers of the queue that are not done, as `fullbore transfers --json` lists them: those that run, then the last
    /// ones that failed, then the others; at most 50.
    #[schema(value_type = Vec<Object>)]
    pub queue: Vec<Row>,
    /// What of the queue cannot be used.
    pub problems: Vec<String>,
    /// The listener: its `address`, its `key`, the transfers that are `open`, and counts since it started. Null if there is
    /// none.
    #[schema(value_type = Option<Object>)]
    pub receive: Option<ReceiveState>,
}

impl TransferState {
    fn of(listing: Listing) -> Self {
        let Listing { runner, transfers, problems } = listing;
        let mut counts: BTreeMap<JobState, usize> = BTreeMap::new();
        for row in &transfers {
            *counts.entry(row.state).or_default() += 1;
        }
        let mut failed: Vec<&Row> =
            transfers.iter().filter(|row| row.state == JobState::Failed).collect();
        failed.sort_by_key(|row| std::cmp::Reverse((row.ended, row.id)));
        failed.truncate(MOST_FAILED);
        let of = |state| transfers.iter().filter(move |row| row.state == state);
        let queue = of(JobState::Running)
            .chain(failed)
            .chain(of(JobState::Queued))
            .chain(of(JobState::Waiting))
            .chain(of(JobState::Paused))
            .take(MOST_SHOWN)
            .cloned()
            .collect();
        Self { runner, counts, queue, problems, receive: None }
    }
}

/// Keeps the state current until it is stopped.
pub(super) fn keep(transfers: &Transfers, stop: Arc<StopHandle>) -> io::Result<JoinHandle<()>> {
    let transfers = transfers.clone();
    let look = move || {
        loop {
            let begun = Instant::now();
            let state = Arc::new(read(&transfers));
            *transfers.0.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
            if stop.wait(LOOK.max(begun.elapsed() * PART)) {
                return;
            }
        }
    };
    thread::Builder::new().name("queue".into()).spawn(look)
}

fn read(transfers: &Transfers) -> TransferState {
    let listing = transfers.queue().and_then(|queue| Listing::read(&queue));
    let mut state = match listing {
        Ok(listing) => TransferState::of(listing),
        Err(error) => {
            TransferState { problems: vec![with_causes(&error)], ..TransferState::default() }
        }
    };
    if let Some(problem) = transfers.problem().filter(|it| !state.problems.contains(it)) {
        state.problems.push(problem);
    }
    state.problems.truncate(MOST_SHOWN);
    state
}

/// What holds a transfer back, in one word for metrics. None if nothing does.
pub fn held_by(row: &Row) -> Option<&'static str> {
    let reason = row.reason.as_deref().unwrap_or_default();
    match row.state {
        JobState::Running if reason.is_empty() => None,
        JobState::Running | JobState::Waiting if reason.starts_with("outside window") => {
            Some("window")
        }
        JobState::Running if reason.starts_with("yielding to recording") => Some("recording"),
        JobState::Running => Some("other"),
        JobState::Waiting => Some("destination"),
        JobState::Queued if reason == "no runner runs" => Some("runner"),
        JobState::Queued => Some("turn"),
        JobState::Paused => Some("user"),
        JobState::Failed | JobState::Done => None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use fullbore_time::Tai;
    use fullbore_transfer::governor::{Reason, Signal};

    use super::*;

    pub(crate) fn row(id: u64, state: JobState) -> Row {
        Row {
            id,
            scan: format!("r1_{id}"),
            to: "fullbore://far:4780".into(),
            state,
            reason: None,
            priority: 0,
            done_bytes: 10,
            bytes: 40,
            rate: 5,
            eta_seconds: Some(6),
            attempts: 1,
            last_error: Some("the disk there is full".into()),
            missing_blocks: 0,
            rate_limit: None,
            window: None,
            rule: None,
            store: Vec::new(),
            added: Tai::from_unix_ns(0),
            ended: Some(Tai::from_unix_ns(id.into())),
        }
    }

    #[test]
    fn what_runs_and_what_failed_last_is_shown_first() {
        use JobState::{Done, Failed, Paused, Queued, Running};
        let mut transfers: Vec<Row> = (0..100).map(|id| row(id, Failed)).collect();
        transfers.extend((100..200).map(|id| row(id, Queued)));
        transfers.extend([row(200, Running), row(201, Done), row(202, Paused)]);
        let state = TransferState::of(Listing { runner: Some(7), transfers, problems: Vec::new() });
        assert_eq!(state.queue.len(), MOST_SHOWN);
        assert_eq!((state.queue[0].id, state.queue[1].id, state.queue[20].id), (200, 99, 80));
        assert_eq!(state.queue[21].state, Queued);
        assert_eq!(
            (state.counts[&Failed], state.counts[&Done], state.counts[&Queued]),
            (100, 1, 100)
        );
        let json = serde_json::to_value(&state).unwrap();
        assert_eq!(json["counts"]["running"], 1);
    }

    #[test]
    fn what_holds_a_transfer_back_is_one_word() {
        let held = |state, reason: Option<&str>| {
            held_by(&Row { reason: reason.map(str::to_owned), ..row(1, state) })
        };
        let yielding = Reason::Recording(Signal::Ring { permille: 900 }).to_string();
        assert_eq!(held(JobState::Running, Some(&yielding)), Some("recording"));
        let outside = Reason::OutsideWindow.to_string();
        assert_eq!(held(JobState::Running, Some(&outside)), Some("window"));
        assert_eq!(held(JobState::Waiting, Some("outside window 22:00-06:00 UTC")), Some("window"));
        assert_eq!(
            held(JobState::Waiting, Some("no route; next attempt in 3 s")),
            Some("destination")
        );
        assert_eq!(held(JobState::Queued, Some("no runner runs")), Some("runner"));
        assert_eq!(held(JobState::Queued, None), Some("turn"));
        assert_eq!(held(JobState::Running, None), None);
    }
}
