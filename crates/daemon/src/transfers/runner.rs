//! The runner of the queue, on a thread of its own. If another process runs the queue, it waits for its place.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fullbore_core::hint::with_causes;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_recording::transfers::carrier::ByScheme;
use fullbore_transfer::governor::Governor;
use fullbore_transfer::queue::QueueError;
use fullbore_transfer::queue::carrier::ToFullbore;
use fullbore_transfer::queue::runner::{self, RunnerEvent, RunnerSettings};
use fullbore_transfer::queue::scheduler::Slots;

use super::{QueueOptions, Transfers};

/// The pause before the queue is tried again: another runner has it, or its folder cannot be used.
const AGAIN: Duration = Duration::from_secs(2);

/// Runs the queue until it is stopped.
pub(super) fn start(
    transfers: &Transfers,
    options: &QueueOptions,
    stop: Arc<StopHandle>,
) -> io::Result<JoinHandle<()>> {
    let (transfers, options) = (transfers.clone(), options.clone());
    let run = move || {
        while !stop.is_requested() {
            match run(&transfers, &options, &stop) {
                // Another runner is no problem: the queue runs.
                Ok(()) | Err(QueueError::RunnerRuns { .. }) => transfers.set_problem(None),
                Err(error) => {
                    let why = with_causes(&error);
                    if transfers.problem().as_ref() != Some(&why) {
                        tracing::error!(error = why, "the queue of transfers does not run");
                    }
                    transfers.set_problem(Some(why));
                }
            }
            stop.wait(AGAIN);
        }
    };
    thread::Builder::new().name("transfers".into()).spawn(run)
}

fn run(transfers: &Transfers, options: &QueueOptions, stop: &StopHandle) -> Result<(), QueueError> {
    let queue = transfers.queue()?;
    if queue.runner()?.is_some() {
        return Ok(());
    }
    transfers.set_problem(None);
    let fullbore = ToFullbore { config: transfers.0.keys.clone(), link: options.link.settings() };
    let slots = Slots { all: options.parallel, per_destination: options.per_destination };
    let settings = RunnerSettings { slots, once: false };
    let governor = Governor::start_on(options.link.limits(), transfers.store());
    let carrier = ByScheme { fullbore };
    runner::run(&queue, settings, &governor, &carrier, stop, &mut note).map(drop)
}

/// Writes an event into the log.
fn note(event: RunnerEvent) {
    match event {
        RunnerEvent::Started(id, job, attempt) => {
            tracing::info!(id, scan = %job.scan, to = job.target.to, attempt, "a transfer starts");
        }
        RunnerEvent::Done(id, job, delivered) => {
            let (bytes, missing) = (delivered.bytes, delivered.missing_blocks);
            tracing::info!(id, scan = %job.scan, to = job.target.to, bytes, missing, "a transfer is complete");
        }
        RunnerEvent::Interrupted(id, job, why) => {
            tracing::warn!(id, scan = %job.scan, to = job.target.to, why, "a transfer waits");
        }
        RunnerEvent::Failed(id, job, why) => {
            tracing::error!(id, scan = %job.scan, to = job.target.to, why, "a transfer failed");
        }
        RunnerEvent::Ruled(id, job) => {
            tracing::info!(id, scan = %job.scan, to = job.target.to, "a rule adds a transfer");
        }
        RunnerEvent::Problem(why) => tracing::warn!(why, "a file of the queue cannot be used"),
    }
}
