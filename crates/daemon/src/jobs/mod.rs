//! Long work as resources: each job has its progress, can be cancelled, and keeps its result for a while.
//!
//! Scans are verified and rebuilt on a thread. A [`command`] of a client is a process. Benchmarks and self tests are
//! processes too (`measure`), and yield to recordings (`docs/decisions/0046-benchmarks-yield.md`).

pub mod command;
mod measure;
pub mod process;

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

use self::command::{Command, CommandRequest};
use self::process::{Ended, Interruptible, Program};
use crate::output_log::{Follower, OutputLog, Taken};
use crate::recorder::Recording;
use crate::recorder::life::Phase;
use crate::schedules::NextScan;

/// Jobs that read all of a scan, or load a disk, and may run at once.
pub const MOST_RUNNING: usize = 2;

/// Short commands that may run at once.
pub const MOST_SHORT: usize = 16;

/// Of these, commands of one client, so that none keeps the others out.
pub const MOST_OF_ONE: usize = MOST_SHORT / 2;

/// Jobs that are remembered after their end.
pub const MOST_ENDED: usize = 50;

/// Short commands that are remembered after their end: those that may have run at once with one, so that its client still
/// finds it.
const MOST_SHORT_ENDED: usize = 2 * MOST_SHORT;

/// Ended jobs whose output is kept after a client has followed it.
const MOST_OUTPUTS: usize = 8;

/// The time before a scan of a schedule from which on no disk is loaded.
pub const AHEAD: Duration = Duration::from_secs(60);

/// The jobs. Clones are handles of the same.
#[derive(Clone, Debug, Default)]
pub struct Jobs(Arc<Mutex<BTreeMap<Uuid, Arc<Running>>>>);

/// What a job of the daemon itself does.
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
    fn name(self) -> &'static str {
        match self {
            Self::Verify => "verify",
            Self::Rebuild => "rebuild",
            Self::Benchmark => "benchmark",
            Self::SelfTest => "self-test",
        }
    }

    /// True if recordings come first, because it loads a disk as far as it can.
    fn yields(self) -> bool {
        matches!(self, Self::Benchmark | Self::SelfTest)
    }
}

#[derive(Debug)]
struct Running {
    kind: &'static str,
    /// True if recordings come first.
    yields: bool,
    /// True if it reads all of a scan, or loads a disk.
    is_long: bool,
    /// True if it ends when nobody follows it any more.
    is_tied: bool,
    /// The client that began it, if it is a command.
    client: Option<Arc<str>>,
    scan: Option<String>,
    member: Option<String>,
    begun: Tai,
    log: OutputLog,
    process: Interruptible,
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
    /// A command that ran, with its exit code.
    Ran(i32),
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
    /// What it does: `verify`, `rebuild`, `benchmark`, `self-test`, or the verb of a command.
    pub kind: &'static str,
    /// The scan, or the arguments of a command.
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
    /// Bytes read so far. For `rm`: files. 0 for benchmarks and self tests.
    pub done_bytes: u64,
    /// Bytes to read. For `rm`: files. 0 if they are not known.
    pub total_bytes: u64,
    /// The exit code of a command that has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
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
    #[error("{most} jobs run already, which is the most")]
    Many {
        /// The most.
        most: usize,
    },
    /// Too many of this client run.
    #[error("{MOST_OF_ONE} commands of {client} run already, which is the most of one client")]
    ManyOfOne {
        /// The client.
        client: Arc<str>,
    },
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
        let running = Running::of_daemon(Kind::Verify, Some(scan.to_string()), None);
        self.start(running, move |job| job.verify(&roots, &scan))
    }

    /// Restores lost data of a scan onto the members of the store.
    pub fn rebuild(&self, roots: Vec<PathBuf>, scan: ScanName) -> Result<Job, Error> {
        let running = Running::of_daemon(Kind::Rebuild, Some(scan.to_string()), None);
        self.start(running, move |job| job.rebuild(&roots, &scan))
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
        let running = Running::of_daemon(kind, None, Some(member.display().to_string()));
        self.start(running, move |job| measure::run(&program, kind, &member, &job.stop))
    }

    /// Runs a command of a client.
    pub fn run(
        &self,
        client: Arc<str>,
        program: Program,
        request: CommandRequest,
        command: Command,
    ) -> Result<Job, Error> {
        let verb = command.verb;
        let is_long = matches!(verb.name, "verify" | "rebuild" | "convert" | "play");
        let running = Running {
            is_long,
            is_tied: !verb.stays,
            client: Some(client),
            ..Running::new(verb.name, Some(command.shown.clone()), None)
        };
        self.start(running, move |job| job.run(&program, &request, &command))
    }

    /// Ends the benchmarks and self tests that run, because of a recording.
    pub fn yield_to(&self, why: &str) {
        for job in self.lock().values().filter(|it| it.yields && it.is_active()) {
            let mut yielded = job.yielded.lock().unwrap_or_else(PoisonError::into_inner);
            if yielded.is_none() {
                *yielded = Some(format!("it was ended, because {why}"));
                job.stop.stop();
            }
        }
    }

    /// Ends commands that end with their client, and that no client has ever followed.
    pub fn end_ignored(&self) {
        let jobs = self.lock();
        let tied = jobs.values().filter(|it| it.is_tied && !it.stop.is_requested());
        tied.filter(|it| it.log.is_ignored()).for_each(|it| it.cancel());
    }

    fn start(
        &self,
        running: Running,
        work: impl FnOnce(&Running) -> End + Send + 'static,
    ) -> Result<Job, Error> {
        let (id, running) = (Uuid::now_v7(), Arc::new(running));
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
        let (most, kept) = match running.is_long {
            true => (MOST_RUNNING, MOST_ENDED),
            false => (MOST_SHORT, MOST_SHORT_ENDED),
        };
        let alike = jobs.iter().filter(|(_, job)| job.is_long == running.is_long);
        let (active, ended): (Vec<_>, Vec<_>) = alike.partition(|(_, job)| job.is_active());
        if active.len() >= most {
            return Err(Error::Many { most });
        }
        if let Some(client) = running.client.clone().filter(|_| !running.is_long)
            && active.iter().filter(|it| it.1.client.as_ref() == Some(&client)).count()
                >= MOST_OF_ONE
        {
            return Err(Error::ManyOfOne { client });
        }
        let ended: Vec<Uuid> = ended.into_iter().map(|(id, _)| *id).collect();
        for old in ended.iter().take(ended.len().saturating_sub(kept - 1)) {
            jobs.remove(old);
        }
        // Outputs are kept for clients that are about to read them, not for later.
        for job in ended.iter().rev().skip(MOST_OUTPUTS).filter_map(|old| jobs.get(old)) {
            if job.is_long || job.log.was_followed() {
                job.log.keep_last();
            }
        }
        jobs.insert(id, running.clone());
        Ok(())
    }

    /// Follows the output of a command. One that is tied to its client ends with the last follower.
    pub fn follow(&self, id: Uuid) -> Result<Following, Error> {
        let job = self.lock().get(&id).cloned().ok_or(Error::Unknown { id })?;
        let follower = job.log.follow();
        Ok(Following { follower: Some(follower), job })
    }

    /// True if this client has begun the job.
    pub fn is_of(&self, id: Uuid, client: &str) -> bool {
        self.lock().get(&id).is_some_and(|job| job.client.as_deref() == Some(client))
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

    /// The same without their results, which can be large.
    pub fn states(&self) -> Vec<Job> {
        let jobs = self.lock();
        jobs.iter().rev().filter(|(_, job)| job.is_long).map(|(id, job)| job.state(*id)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Uuid, Arc<Running>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Running {
    fn new(kind: &'static str, scan: Option<String>, member: Option<String>) -> Self {
        Self {
            kind,
            yields: false,
            is_long: true,
            is_tied: false,
            client: None,
            scan,
            member,
            begun: Clock::new().now(),
            log: OutputLog::new(true),
            process: Interruptible::default(),
            done_bytes: AtomicU64::new(0),
            total_bytes: AtomicU64::new(0),
            stop: StopHandle::default(),
            yielded: Mutex::new(None),
            end: Mutex::new(End::NotYet),
        }
    }

    fn of_daemon(kind: Kind, scan: Option<String>, member: Option<String>) -> Self {
        Self { yields: kind.yields(), ..Self::new(kind.name(), scan, member) }
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
        // A process that waits for a client which reads nothing would not end.
        self.log.wait_no_more();
    }

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
        self.log.end();
    }

    fn is_active(&self) -> bool {
        matches!(*self.end.lock().unwrap_or_else(PoisonError::into_inner), End::NotYet)
    }

    fn shown(&self, id: Uuid) -> Job {
        let job = self.state(id);
        // A job that is done stays as it is.
        let result = match &*self.end.lock().unwrap_or_else(PoisonError::into_inner) {
            End::Done(result) if job.state == JobState::Done => Some(result.clone()),
            _ => None,
        };
        Job { result, ..job }
    }

    /// Without its result.
    fn state(&self, id: Uuid) -> Job {
        let yielded = || self.yielded.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (state, problem, exit_code) =
            match &*self.end.lock().unwrap_or_else(PoisonError::into_inner) {
                End::NotYet => (JobState::Running, None, None),
                End::Done(_) => (JobState::Done, None, None),
                End::Ran(code) => (JobState::Done, None, Some(*code)),
                End::Failed(problem) => (JobState::Failed, Some(problem.clone()), None),
                End::Cancelled => (JobState::Cancelled, yielded(), None),
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
            exit_code,
            result: None,
            problem,
        }
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
