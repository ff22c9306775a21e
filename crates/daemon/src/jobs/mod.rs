//! Work on scans as resources: each job has its progress, can be cancelled, and keeps its result for a while.
//!
//! A job is a thread of the daemon that verifies a scan, or the process of a [`command`] of a client.

pub mod command;
pub mod process;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use fullbore_care::verify;
use fullbore_core::hint::with_causes;
use fullbore_core::name::ScanName;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_store::read::Settings;
use fullbore_store::reader::Scan;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use self::command::{Command, CommandRequest};
use self::process::{Ended, Interruptible, Program};
use crate::output_log::{Follower, OutputLog, Taken};

/// Jobs that read all of a scan and may run at once. Each reads as fast as the disks can.
pub const MOST_RUNNING: usize = 2;

/// Short commands that may run at once.
pub const MOST_SHORT: usize = 16;

/// Jobs that are remembered after their end.
pub const MOST_ENDED: usize = 50;

/// Ended jobs whose output is kept.
const MOST_OUTPUTS: usize = 8;

/// The jobs. Clones are handles of the same.
#[derive(Clone, Debug, Default)]
pub struct Jobs(Arc<Mutex<BTreeMap<Uuid, Arc<Running>>>>);

#[derive(Debug)]
struct Running {
    kind: &'static str,
    scan: String,
    is_long: bool,
    /// True if it ends when nobody follows it any more.
    is_tied: bool,
    log: OutputLog,
    process: Interruptible,
    done_bytes: AtomicU64,
    total_bytes: AtomicU64,
    stop: StopHandle,
    end: Mutex<End>,
}

#[derive(Clone, Debug)]
enum End {
    NotYet,
    Done(Value),
    /// A command that ran, with its exit code.
    Ran(i32),
    Failed(String),
    Cancelled,
}

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum JobState {
    /// It works.
    Running,
    /// It is finished: see `result`.
    Done,
    /// It could not be finished: see `problem`.
    Failed,
    /// It was cancelled.
    Cancelled,
}

/// A job.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Job {
    /// Its identity.
    #[schema(value_type = String, format = "uuid")]
    pub id: Uuid,
    /// What it does: `verify`, or another verb of a command.
    pub kind: &'static str,
    /// The scan, or the arguments of a command.
    pub scan: String,
    /// Its state.
    pub state: JobState,
    /// Bytes read so far. For `rm`: files.
    pub done_bytes: u64,
    /// Bytes to read. For `rm`: files.
    pub total_bytes: u64,
    /// The exit code of a command that has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The result, as `fullbore verify --json` prints it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub result: Option<Value>,
    /// Why it could not be finished.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A job could not be started or found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Too many run.
    #[error("{most} jobs run already, which is the most")]
    Many {
        /// The most.
        most: usize,
    },
    /// No such job.
    #[error("there is no job {id}")]
    Unknown {
        /// The identity.
        id: Uuid,
    },
    /// The thread could not be started.
    #[error("starting the thread of the job")]
    Thread(#[source] std::io::Error),
}

impl Jobs {
    /// Verifies a scan.
    pub fn verify(&self, roots: Vec<PathBuf>, scan: ScanName) -> Result<Job, Error> {
        let running = Running::new("verify", scan.to_string(), true, false);
        self.start(running, "verify", move |job| job.verify(&roots, &scan))
    }

    /// Runs a command.
    pub fn run(
        &self,
        program: Program,
        request: CommandRequest,
        command: Command,
    ) -> Result<Job, Error> {
        let verb = command.verb;
        let is_long = matches!(verb.name, "verify" | "rebuild" | "convert" | "play");
        let running = Running::new(verb.name, command.shown.clone(), is_long, !verb.stays);
        self.start(running, "command", move |job| job.run(&program, &request, &command))
    }

    fn start(
        &self,
        running: Running,
        name: &str,
        work: impl FnOnce(&Running) -> End + Send + 'static,
    ) -> Result<Job, Error> {
        let (id, running) = (Uuid::now_v7(), Arc::new(running));
        {
            let mut jobs = self.lock();
            let is_like = |job: &&Arc<Running>| job.is_active() && job.is_long == running.is_long;
            let most = if running.is_long { MOST_RUNNING } else { MOST_SHORT };
            if jobs.values().filter(is_like).count() >= most {
                return Err(Error::Many { most });
            }
            let is_ended = |job: &Running| !job.is_active() && job.is_long == running.is_long;
            let ended = jobs.iter().filter(|(_, job)| is_ended(job)).map(|(id, _)| *id);
            let ended: Vec<Uuid> = ended.collect();
            let kept = if running.is_long { MOST_ENDED } else { MOST_OUTPUTS };
            for old in ended.iter().take(ended.len().saturating_sub(kept - 1)) {
                jobs.remove(old);
            }
            // Outputs are kept for clients that are about to read them, not for later.
            for old in ended.iter().rev().skip(MOST_OUTPUTS) {
                jobs.get(old).inspect(|job| job.log.clear());
            }
            jobs.insert(id, running.clone());
        }
        let job = running.clone();
        let thread = thread::Builder::new().name(name.to_owned());
        let work = move || {
            let end = work(&job);
            job.finish(end);
        };
        if let Err(error) = thread.spawn(work) {
            self.lock().remove(&id);
            return Err(Error::Thread(error));
        }
        Ok(running.shown(id))
    }

    /// Follows the output of a command. One that is tied to its client ends with the last follower.
    pub fn follow(&self, id: Uuid) -> Result<Following, Error> {
        let job = self.lock().get(&id).cloned().ok_or(Error::Unknown { id })?;
        let follower = job.log.follow();
        Ok(Following { follower: Some(follower), job })
    }

    /// Cancels a job. A job that has ended stays as it is.
    pub fn cancel(&self, id: Uuid) -> Result<Job, Error> {
        let job = self.lock().get(&id).cloned().ok_or(Error::Unknown { id })?;
        job.cancel();
        Ok(job.shown(id))
    }

    /// One job.
    pub fn get(&self, id: Uuid) -> Result<Job, Error> {
        self.lock().get(&id).map(|job| job.shown(id)).ok_or(Error::Unknown { id })
    }

    /// All jobs but short commands: the newest first.
    pub fn all(&self) -> Vec<Job> {
        let jobs = self.lock();
        jobs.iter().rev().filter(|(_, job)| job.is_long).map(|(id, job)| job.shown(*id)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Uuid, Arc<Running>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Running {
    fn new(kind: &'static str, scan: String, is_long: bool, is_tied: bool) -> Self {
        Self {
            kind,
            scan,
            is_long,
            is_tied,
            log: OutputLog::new(true),
            process: Interruptible::default(),
            done_bytes: AtomicU64::new(0),
            total_bytes: AtomicU64::new(0),
            stop: StopHandle::default(),
            end: Mutex::new(End::NotYet),
        }
    }

    fn run(&self, program: &Program, request: &CommandRequest, command: &Command) -> End {
        let progress = |done, total| {
            self.done_bytes.store(done, Ordering::Relaxed);
            self.total_bytes.store(total, Ordering::Relaxed);
        };
        let (process, log) = (&self.process, &self.log);
        match process::run(&program.path, request, command, process, log, &progress) {
            Ok(_) if self.stop.is_requested() => End::Cancelled,
            Ok(Ended { code: 2, said: Some(said) }) => End::Failed(said),
            Ok(Ended { code, .. }) => End::Ran(code),
            Err(error) => End::Failed(format!("the command was not run: {error}")),
        }
    }

    fn cancel(&self) {
        self.stop.stop();
        self.process.interrupt();
    }

    fn verify(&self, roots: &[PathBuf], scan: &ScanName) -> End {
        let progress = |done, total| {
            // Several threads report, in any order.
            self.done_bytes.fetch_max(done, Ordering::Relaxed);
            self.total_bytes.store(total, Ordering::Relaxed);
        };
        let scan = match Scan::open(roots, scan) {
            Ok(scan) => scan,
            Err(error) => return End::Failed(with_causes(&error)),
        };
        match verify::verify_until(&scan, Settings::default(), &progress, &self.stop) {
            Ok(Some(result)) => match serde_json::to_value(result) {
                Ok(result) => End::Done(result),
                Err(error) => End::Failed(with_causes(&error)),
            },
            Ok(None) => End::Cancelled,
            Err(error) => End::Failed(with_causes(&error)),
        }
    }

    fn finish(&self, end: End) {
        *self.end.lock().unwrap_or_else(PoisonError::into_inner) = end;
        self.log.end();
    }

    fn is_active(&self) -> bool {
        matches!(*self.end.lock().unwrap_or_else(PoisonError::into_inner), End::NotYet)
    }

    fn shown(&self, id: Uuid) -> Job {
        let end = self.end.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (state, result, problem, exit_code) = match end {
            End::NotYet => (JobState::Running, None, None, None),
            End::Done(result) => (JobState::Done, Some(result), None, None),
            End::Ran(code) => (JobState::Done, None, None, Some(code)),
            End::Failed(problem) => (JobState::Failed, None, Some(problem), None),
            End::Cancelled => (JobState::Cancelled, None, None, None),
        };
        let load = |bytes: &AtomicU64| bytes.load(Ordering::Relaxed);
        let (done_bytes, total_bytes) = (load(&self.done_bytes), load(&self.total_bytes));
        let (kind, scan) = (self.kind, self.scan.clone());
        Job { id, kind, scan, state, done_bytes, total_bytes, exit_code, result, problem }
    }
}

/// A client that follows the output of a job.
#[derive(Debug)]
pub struct Following {
    follower: Option<Follower>,
    job: Arc<Running>,
}

impl Following {
    /// Takes what is new.
    pub fn take(&mut self) -> Taken {
        self.follower.as_mut().map_or(Taken::Over, Follower::take)
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        drop(self.follower.take());
        if self.job.is_tied && self.job.log.is_left() {
            self.job.cancel();
        }
    }
}
