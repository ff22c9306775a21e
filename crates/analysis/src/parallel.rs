//! Several threads that compute, each with sums of its own.
//!
//! The thread that reads gives batches to a queue of bounded length, and gets their memory back.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use fullbore_formats::samples::SampleLayout;

use crate::accumulate::{Accumulator, Sums};
use crate::batch::Batch;
use crate::plan::{LineId, Plan, PlanError};

/// Batches that wait for each thread.
const WAITING: usize = 4;
/// Batches of one line that wait for those of the other.
const MOST_UNPAIRED: usize = 64;

/// Work of one thread.
enum Job {
    /// Sums of a batch.
    Sums(Batch),
    /// Products of a line of the first batch and one of the second; of the first alone if there is no second.
    Cross(Batch, Option<Batch>),
}

/// Threads that compute.
pub struct Workers {
    jobs: SyncSender<Job>,
    spare: Receiver<Vec<u8>>,
    threads: Vec<JoinHandle<Result<Sums, PlanError>>>,
}

impl Workers {
    /// Starts threads for a plan that was checked.
    pub fn start(
        plan: &Arc<Plan>,
        layout: &Arc<SampleLayout>,
        threads: usize,
    ) -> std::io::Result<Self> {
        let threads = threads.clamp(1, 256);
        let (jobs, queue) = sync_channel(threads * WAITING);
        let (used, spare) = channel();
        let queue = Arc::new(Mutex::new(queue));
        let mut started = Vec::new();
        for number in 0..threads {
            let (queue, used) = (queue.clone(), used.clone());
            let (plan, layout) = (plan.clone(), layout.clone());
            let work = move || work(&plan, &layout, &queue, &used);
            let name = format!("spectrum-{number}");
            started.push(std::thread::Builder::new().name(name).spawn(work)?);
        }
        Ok(Self { jobs, spare, threads: started })
    }

    /// Memory of a batch that was computed.
    pub fn spare(&self) -> Vec<u8> {
        self.spare.try_recv().unwrap_or_default()
    }

    fn give(&self, job: Job) {
        // If all threads have ended, one of them has an error, which `finish` returns.
        let _ = self.jobs.send(job);
    }

    /// Waits until all is computed.
    pub fn finish(self) -> Result<Sums, PlanError> {
        drop(self.jobs);
        let mut sums = Sums::default();
        for thread in self.threads {
            match thread.join() {
                Ok(of_thread) => sums.add(of_thread?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(sums)
    }
}

fn work(
    plan: &Arc<Plan>,
    layout: &Arc<SampleLayout>,
    queue: &Mutex<Receiver<Job>>,
    used: &Sender<Vec<u8>>,
) -> Result<Sums, PlanError> {
    let mut accumulator = Accumulator::new(plan, layout);
    let channels = plan.wanted.cross.map(|lines| lines.map(|line| line.channel));
    loop {
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return Ok(accumulator.take()) };
        match (job, channels) {
            (Job::Sums(batch), _) => {
                accumulator.add(&batch)?;
                // The reading thread may have ended.
                let _ = used.send(batch.bytes);
            }
            (Job::Cross(first, second), Some([one, other])) => {
                accumulator.add_cross((&first, one), (second.as_ref().unwrap_or(&first), other));
                let _ = used.send(first.bytes);
            }
            (Job::Cross(..), None) => unreachable!("no cross-power is wanted"),
        }
    }
}

/// Gives batches to threads; for cross-power, in pairs.
pub struct Dispatcher {
    workers: Workers,
    cross: Option<[LineId; 2]>,
    /// Batches of the first and of the second line that wait for each other, by number.
    unpaired: [BTreeMap<u64, Batch>; 2],
}

impl Dispatcher {
    /// A dispatcher to these threads.
    pub fn new(workers: Workers, cross: Option<[LineId; 2]>) -> Self {
        Self { workers, cross, unpaired: Default::default() }
    }

    /// The threads.
    pub fn workers(&self) -> &Workers {
        &self.workers
    }

    /// Gives a batch away. `first_thread` is the one of lines that name none.
    pub fn give(&mut self, batch: Batch, first_thread: u16) {
        let Some(lines) = self.cross else { return self.workers.give(Job::Sums(batch)) };
        let [one, other] = lines.map(|line| line.thread.unwrap_or(first_thread));
        if batch.thread == one && one == other {
            return self.workers.give(Job::Cross(batch, None));
        }
        let side = match batch.thread {
            thread if thread == one => 0,
            thread if thread == other => 1,
            _ => return,
        };
        match (self.unpaired[1 - side].remove(&batch.first), side) {
            (Some(second), 0) => self.workers.give(Job::Cross(batch, Some(second))),
            (Some(first), _) => self.workers.give(Job::Cross(first, Some(batch))),
            (None, _) => {
                let waiting = &mut self.unpaired[side];
                waiting.insert(batch.first, batch);
                if waiting.len() > MOST_UNPAIRED {
                    waiting.pop_first();
                }
            }
        }
    }

    /// Waits until all is computed.
    pub fn finish(self) -> Result<Sums, PlanError> {
        self.workers.finish()
    }
}
