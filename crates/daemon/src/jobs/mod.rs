//! Long work as resources: each job has its progress, can be cancelled, and keeps its result for a while.
//!
//! Scans are verified and rebuilt on a thread. Benchmarks and self tests are processes (`measure`), and yield to recordings
//! (`docs/decisions/0046-benchmarks-yield.md`).

mod measure;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use fullbore_care::redundancy::restore;
use fullbore_care::verify;
use fullbore_core::hint::with_causes;
use fullbore_core::name::ScanName;
use fullbore_linux::clock::Clock;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_store::read::Settings;
use fullbore_store::reader::Scan;
use fullbore_time::Tai;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::recorder::Recording;
use crate::recorder::life::Phase;
use crate::schedules::NextScan;

/// Jobs that may run at once. Each reads as fast as the disks can.
pub const MOST_RUNNING: usize = 2;

/// Jobs that are remembered after their end.
pub const MOST_ENDED: usize = 50;

/// The time before a scan of a schedule from which on no disk is loaded.
pub const AHEAD: Duration = Duration::from_secs(60);

/// The jobs. Clones are handles of the same.
#[derive(Clone, Debug, Default)]
pub struct Jobs(Arc<Mutex<BTreeMap<Uuid, Arc<Running>>>>);

/// What a job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
#[schema(as = JobKind)]
pub enum Kind {
    /// Reads a scan, and checks it.
    Verify,
    /// Restores lost data of a scan with redundancy.
    Rebuild,
    /// Measures a member, as `fullbore bench disk --quick` does.
    Benchmark,
    /// Tests a member, as `fullbore selftest --quick` does.
    SelfTest,
}

impl Kind {
    /// True if recordings come first, because it loads a disk as far as it can.
    fn yields(self) -> bool {
        matches!(self, Self::Benchmark | Self::SelfTest)
    }
}

#[derive(Debug)]
struct Running {
    kind: Kind,
    scan: Option<String>,
    member: Option<String>,
    begun: Tai,
    done_bytes: AtomicU64,
    total_bytes: AtomicU64,
    stop: StopHandle,
    /// Why it was stopped, if nobody asked for it.
    yielded: Mutex<Option<String>>,
    end: Mutex<End>,
}

#[derive(Clone, Debug)]
enum End {
    NotYet,
    Done(Value),
    Failed(String),
    Cancelled,
}

impl End {
    fn done(result: &impl Serialize) -> Self {
        serde_json::to_value(result).map_or_else(|it| Self::Failed(with_causes(&it)), Self::Done)
    }
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
    /// What it does.
    pub kind: Kind,
    /// The scan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scan: Option<String>,
    /// The member of the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// When it began.
    #[schema(value_type = String)]
    pub begun: Tai,
    /// Its state.
    pub state: JobState,
    /// Bytes read so far. 0 for benchmarks and self tests.
    pub done_bytes: u64,
    /// Bytes to read. 0 if they are not known.
    pub total_bytes: u64,
    /// The result, as `fullbore verify`, `rebuild`, `bench disk` and `selftest` print it with `--json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub result: Option<Value>,
    /// Why it could not be finished, or was cancelled without being asked to.
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
    /// A recording comes first.
    #[error("{why}")]
    Recording {
        /// The recording that runs, or begins soon.
        why: String,
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
        let subject = (Some(scan.to_string()), None);
        self.start(Kind::Verify, subject, move |job| job.verify(&roots, &scan))
    }

    /// Restores lost data of a scan onto the members of the store.
    pub fn rebuild(&self, roots: Vec<PathBuf>, scan: ScanName) -> Result<Job, Error> {
        let subject = (Some(scan.to_string()), None);
        self.start(Kind::Rebuild, subject, move |job| job.rebuild(&roots, &scan))
    }

    /// Measures or tests a member with `program`, unless a recording is in the way.
    pub fn measure(
        &self,
        kind: Kind,
        program: PathBuf,
        member: PathBuf,
        in_the_way: Option<String>,
    ) -> Result<Job, Error> {
        if let Some(why) = in_the_way {
            return Err(Error::Recording { why });
        }
        let subject = (None, Some(member.display().to_string()));
        self.start(kind, subject, move |job| measure::run(&program, kind, &member, &job.stop))
    }

    /// Ends the benchmarks and self tests that run, because of a recording.
    pub fn yield_to(&self, why: &str) {
        for job in self.lock().values().filter(|it| it.kind.yields() && it.is_active()) {
            let mut yielded = job.yielded.lock().unwrap_or_else(PoisonError::into_inner);
            if yielded.is_none() {
                *yielded = Some(format!("it was ended, because {why}"));
                job.stop.stop();
            }
        }
    }

    fn start(
        &self,
        kind: Kind,
        (scan, member): (Option<String>, Option<String>),
        work: impl FnOnce(&Running) -> End + Send + 'static,
    ) -> Result<Job, Error> {
        let id = Uuid::now_v7();
        let running = Arc::new(Running {
            kind,
            scan,
            member,
            begun: Clock::new().now(),
            done_bytes: AtomicU64::new(0),
            total_bytes: AtomicU64::new(0),
            stop: StopHandle::default(),
            yielded: Mutex::new(None),
            end: Mutex::new(End::NotYet),
        });
        self.reserve(id, &running)?;
        let of_thread = running.clone();
        let finish = move || of_thread.finish(work(&of_thread));
        if let Err(error) = thread::Builder::new().name("job".into()).spawn(finish) {
            self.lock().remove(&id);
            return Err(Error::Thread(error));
        }
        Ok(running.shown(id))
    }

    /// Takes a place among those that run, and forgets the oldest ones that ended.
    fn reserve(&self, id: Uuid, running: &Arc<Running>) -> Result<(), Error> {
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
        Ok(())
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
    /// Several threads report, in any order.
    fn reach(&self, done: u64, total: u64) {
        self.done_bytes.fetch_max(done, Ordering::Relaxed);
        self.total_bytes.store(total, Ordering::Relaxed);
    }

    fn verify(&self, roots: &[PathBuf], scan: &ScanName) -> End {
        let progress = |done, total| self.reach(done, total);
        let scan = match Scan::open(roots, scan) {
            Ok(scan) => scan,
            Err(error) => return End::Failed(with_causes(&error)),
        };
        match verify::verify_until(&scan, Settings::default(), &progress, &self.stop) {
            Ok(Some(result)) => End::done(&result),
            Ok(None) => End::Cancelled,
            Err(error) => End::Failed(with_causes(&error)),
        }
    }

    fn rebuild(&self, roots: &[PathBuf], scan: &ScanName) -> End {
        let progress = |done, total| self.reach(done, total);
        let stop = || self.stop.is_requested();
        let options = restore::Options { onto: Vec::new(), progress: &progress, stop: &stop };
        match restore::rebuild(roots, scan, &options) {
            Ok(result) if result.interrupted => End::Cancelled,
            Ok(result) => End::done(&result),
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
        let yielded = || self.yielded.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (state, result, problem) = match end {
            End::NotYet => (JobState::Running, None, None),
            End::Done(result) => (JobState::Done, Some(result), None),
            End::Failed(problem) => (JobState::Failed, None, Some(problem)),
            End::Cancelled => (JobState::Cancelled, None, yielded()),
        };
        let load = |bytes: &AtomicU64| bytes.load(Ordering::Relaxed);
        Job {
            id,
            kind: self.kind,
            scan: self.scan.clone(),
            member: self.member.clone(),
            begun: self.begun,
            state,
            done_bytes: load(&self.done_bytes),
            total_bytes: load(&self.total_bytes),
            result,
            problem,
        }
    }
}

/// Why no disk may be loaded now: a recording runs, or a scan begins within [`AHEAD`]. `next` are the next scans of
/// schedules.
pub fn in_the_way(recordings: &[Recording], next: &[NextScan], now: Tai) -> Option<String> {
    let records = |it: &&Recording| it.life.is_active() && it.life.phase != Phase::Waiting;
    if let Some(recording) = recordings.iter().find(records) {
        return Some(match &recording.life.scan {
            Some(scan) => format!("{scan} is being recorded"),
            None => "a recording is starting".to_owned(),
        });
    }
    let soon = now.plus_ns(AHEAD.as_nanos() as i64);
    let begins = next.iter().find(|it| it.start < soon && it.end > now)?;
    Some(format!("{}_{} begins at {:.0}", begins.session, begins.scan, begins.start))
}

#[cfg(test)]
mod tests;
