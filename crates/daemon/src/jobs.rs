//! Long work on scans as resources: each has its progress, can be cancelled, and keeps its result for a while.

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

/// Jobs that may run at once. Each reads as fast as the disks can.
pub const MOST_RUNNING: usize = 2;

/// Jobs that are remembered after their end.
pub const MOST_ENDED: usize = 50;

/// The jobs. Clones are handles of the same.
#[derive(Clone, Debug, Default)]
pub struct Jobs(Arc<Mutex<BTreeMap<Uuid, Arc<Running>>>>);

#[derive(Debug)]
struct Running {
    scan: String,
    done_bytes: AtomicU64,
    total_bytes: AtomicU64,
    stop: StopHandle,
    end: Mutex<End>,
}

#[derive(Clone, Debug)]
enum End {
    NotYet,
    Done(Value),
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
    /// What it does: `verify`.
    pub kind: &'static str,
    /// The scan.
    pub scan: String,
    /// Its state.
    pub state: JobState,
    /// Bytes read so far.
    pub done_bytes: u64,
    /// Bytes to read.
    pub total_bytes: u64,
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
    #[error("{MOST_RUNNING} jobs run already, which is the most")]
    Many,
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
        let id = Uuid::now_v7();
        let running = Arc::new(Running {
            scan: scan.to_string(),
            done_bytes: AtomicU64::new(0),
            total_bytes: AtomicU64::new(0),
            stop: StopHandle::default(),
            end: Mutex::new(End::NotYet),
        });
        {
            let mut jobs = self.lock();
            let active = jobs.values().filter(|job| job.is_active()).count();
            if active >= MOST_RUNNING {
                return Err(Error::Many);
            }
            let ended: Vec<Uuid> =
                jobs.iter().filter(|(_, job)| !job.is_active()).map(|(id, _)| *id).collect();
            for old in ended.iter().take(ended.len().saturating_sub(MOST_ENDED - 1)) {
                jobs.remove(old);
            }
            jobs.insert(id, running.clone());
        }
        let work = running.clone();
        let thread = thread::Builder::new().name("verify".into());
        if let Err(error) = thread.spawn(move || work.finish(work.verify(&roots, &scan))) {
            self.lock().remove(&id);
            return Err(Error::Thread(error));
        }
        Ok(running.shown(id))
    }

    /// Cancels a job. A job that has ended stays as it is.
    pub fn cancel(&self, id: Uuid) -> Result<Job, Error> {
        let job = self.lock().get(&id).cloned().ok_or(Error::Unknown { id })?;
        job.stop.stop();
        Ok(job.shown(id))
    }

    /// One job.
    pub fn get(&self, id: Uuid) -> Result<Job, Error> {
        self.lock().get(&id).map(|job| job.shown(id)).ok_or(Error::Unknown { id })
    }

    /// All jobs: the newest first.
    pub fn all(&self) -> Vec<Job> {
        self.lock().iter().rev().map(|(id, job)| job.shown(*id)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Uuid, Arc<Running>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Running {
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
    }

    fn is_active(&self) -> bool {
        matches!(*self.end.lock().unwrap_or_else(PoisonError::into_inner), End::NotYet)
    }

    fn shown(&self, id: Uuid) -> Job {
        let end = self.end.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (state, result, problem) = match end {
            End::NotYet => (JobState::Running, None, None),
            End::Done(result) => (JobState::Done, Some(result), None),
            End::Failed(problem) => (JobState::Failed, None, Some(problem)),
            End::Cancelled => (JobState::Cancelled, None, None),
        };
        let load = |bytes: &AtomicU64| bytes.load(Ordering::Relaxed);
        let (done_bytes, total_bytes) = (load(&self.done_bytes), load(&self.total_bytes));
        let (kind, scan) = ("verify", self.scan.clone());
        Job { id, kind, scan, state, done_bytes, total_bytes, result, problem }
    }
}
