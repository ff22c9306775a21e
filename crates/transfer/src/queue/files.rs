//! The folder of a queue.
//!
//! ```text
//! ~/.local/state/fullbore/transfers/   0700
//!   lock               held while a command writes
//!   queue.json         the next number
//!   jobs/17.json       a job: written by commands
//!   rules/3.json       a rule: written by commands
//!   records/17.json    what became of the job: written by the runner
//!   runner/lock        held while a runner runs
//!   runner/status.json what the runner does now
//! ```
//!
//! Each file has one kind of writer, so that a runner and a command never overwrite each other. Files are replaced whole
//! and are durable when the command ends, except for the status, which counts only while its runner runs. Names of files
//! are numbers that the queue gives.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use fullbore_linux::clock::Clock;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::error::QueueError;
use super::job::{End, Job, Record, Rule, Status, VERSION};
use crate::identity::IdentityError;
use crate::identity::folder::{Folder, FolderLock};

/// The most jobs.
pub const MOST_JOBS: usize = 10_000;
/// The most rules.
pub const MOST_RULES: usize = 100;

const NEXT_FILE: &str = "queue.json";
const STATUS_FILE: &str = "status.json";
/// The time in which a runner that starts waits for a command that looks whether one runs.
const LOOK: Duration = Duration::from_secs(1);
/// Times of directories have steps: a change this long ago may have been followed by another at the same time.
const STEP: Duration = Duration::from_secs(2);

/// The files of a queue.
#[derive(Debug)]
pub struct Queue {
    folder: Folder,
    jobs: Folder,
    rules: Folder,
    records: Folder,
    runner: Folder,
}

/// Files by their numbers, and those that cannot be used.
#[derive(Debug)]
pub struct Listed<T> {
    /// The usable ones.
    pub items: BTreeMap<u64, T>,
    /// The others.
    pub problems: Vec<QueueError>,
}

/// The right to run the jobs of a queue, until it is dropped or the process ends.
#[derive(Debug)]
pub struct RunnerLock {
    _lock: FolderLock,
}

/// A job that was added, or that was there already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Added {
    /// Its number.
    pub id: u64,
    /// The job.
    pub job: Job,
    /// False if it was there already.
    pub new: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Next {
    version: u32,
    next: u64,
}

#[derive(Deserialize)]
struct Versioned {
    version: u64,
}

/// The user's queue: `transfers/` in `FULLBORE_STATE`, else in `fullbore` in `XDG_STATE_HOME` or in `~/.local/state`.
pub fn default_directory() -> Result<PathBuf, QueueError> {
    directory_of(|variable| std::env::var_os(variable).filter(|value| !value.is_empty()))
        .ok_or(QueueError::NoDirectory)
}

fn directory_of(variable: impl Fn(&str) -> Option<std::ffi::OsString>) -> Option<PathBuf> {
    if let Some(directory) = variable("FULLBORE_STATE") {
        return Some(PathBuf::from(directory).join("transfers"));
    }
    // By the XDG specification, a relative path is ignored.
    let state = variable("XDG_STATE_HOME").map(PathBuf::from).filter(|it| it.is_absolute());
    let home = || variable("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    Some(state.or_else(home)?.join("fullbore/transfers"))
}

impl Queue {
    /// Opens the queue in a directory, which is made if it is missing.
    pub fn open(directory: &Path) -> Result<Self, QueueError> {
        let part = |name: &str| Folder::open_or_create(&directory.join(name));
        Ok(Self {
            folder: Folder::open_or_create(directory)?,
            jobs: part("jobs")?,
            rules: part("rules")?,
            records: part("records")?,
            runner: part("runner")?,
        })
    }

    /// Adds jobs. A scan that is on its way to the same destination already is not added again.
    pub fn add(&self, jobs: Vec<Job>) -> Result<Vec<Added>, QueueError> {
        let _lock = self.folder.lock()?;
        let mut known = self.jobs()?.items;
        let mut all = Vec::new();
        for job in jobs {
            if let Some((id, there)) = self.find(&known, &job)? {
                all.push(Added { id, job: there, new: false });
                continue;
            }
            if known.len() >= MOST_JOBS {
                return Err(QueueError::Full { what: "transfers", most: MOST_JOBS });
            }
            let id = self.number()?;
            write(&self.jobs, id, &job)?;
            known.insert(id, job.clone());
            all.push(Added { id, job, new: true });
        }
        Ok(all)
    }

    /// A job for the same scan and destination. For a user it counts only if it is not over, for a rule always.
    fn find(
        &self,
        known: &BTreeMap<u64, Job>,
        job: &Job,
    ) -> Result<Option<(u64, Job)>, QueueError> {
        for (id, other) in known {
            let same = other.scan == job.scan
                && other.target.to == job.target.to
                && other.store == job.store;
            if same && (job.rule.is_some() || (!other.removed && !self.is_over(*id, other)?)) {
                return Ok(Some((*id, other.clone())));
            }
        }
        Ok(None)
    }

    fn is_over(&self, id: u64, job: &Job) -> Result<bool, QueueError> {
        let record = self.record(id)?;
        Ok(record.end != End::None && record.resumed == job.resumed)
    }

    /// The next number. It is used once, even if its job is removed.
    fn number(&self) -> Result<u64, QueueError> {
        let path = self.folder.file(NEXT_FILE);
        let next = match self.folder.read(NEXT_FILE)? {
            Some(bytes) => parse::<Next>(&path, &bytes)?.next,
            None => 1,
        };
        let stored = Next { version: VERSION, next: next + 1 };
        self.folder.write(NEXT_FILE, &json(&stored))?;
        Ok(next)
    }

    /// All jobs, those included that only keep a rule from making them again.
    pub fn jobs(&self) -> Result<Listed<Job>, QueueError> {
        list(&self.jobs)
    }

    /// Changes a job.
    pub fn edit(&self, id: u64, change: impl FnOnce(&mut Job)) -> Result<Job, QueueError> {
        let _lock = self.folder.lock()?;
        let mut job = self.job(id)?;
        change(&mut job);
        write(&self.jobs, id, &job)?;
        Ok(job)
    }

    fn job(&self, id: u64) -> Result<Job, QueueError> {
        let job = read::<Job>(&self.jobs, id)?.filter(|job| !job.removed);
        job.ok_or(QueueError::NoJob { id })
    }

    /// Removes a job. A runner stops its transfer. The rule that made it does not make it again.
    pub fn remove(&self, id: u64) -> Result<Job, QueueError> {
        let _lock = self.folder.lock()?;
        let mut job = self.job(id)?;
        if job.rule.is_some() {
            job.removed = true;
            write(&self.jobs, id, &job)?;
        } else {
            self.jobs.remove(&name(id))?;
        }
        Ok(job)
    }

    /// Removes the file of a job whose scan or rule is gone.
    pub fn forget(&self, id: u64) -> Result<(), QueueError> {
        let _lock = self.folder.lock()?;
        Ok(self.jobs.remove(&name(id))?)
    }

    /// Adds a rule.
    pub fn add_rule(&self, rule: &Rule) -> Result<u64, QueueError> {
        sessions(&rule.sessions)?;
        let _lock = self.folder.lock()?;
        if self.rules()?.items.len() >= MOST_RULES {
            return Err(QueueError::Full { what: "rules", most: MOST_RULES });
        }
        let id = self.number()?;
        write(&self.rules, id, rule)?;
        Ok(id)
    }

    /// All rules.
    pub fn rules(&self) -> Result<Listed<Rule>, QueueError> {
        list(&self.rules)
    }

    /// Removes a rule. Its jobs stay.
    pub fn remove_rule(&self, id: u64) -> Result<Rule, QueueError> {
        let _lock = self.folder.lock()?;
        let rule = read::<Rule>(&self.rules, id)?.ok_or(QueueError::NoRule { id })?;
        self.rules.remove(&name(id))?;
        Ok(rule)
    }

    /// What became of a job so far.
    pub fn record(&self, id: u64) -> Result<Record, QueueError> {
        let new = || Record { version: VERSION, ..Record::default() };
        Ok(read(&self.records, id)?.unwrap_or_else(new))
    }

    /// Stores what became of a job, durably. Only the runner does.
    pub fn put_record(&self, id: u64, record: &Record) -> Result<(), QueueError> {
        write(&self.records, id, record)
    }

    /// Removes the records of jobs that are gone.
    pub fn forget_records(&self, known: &BTreeMap<u64, Job>) -> Result<(), QueueError> {
        for id in numbers(&self.records)?.into_iter().filter(|id| !known.contains_key(id)) {
            // A job that could not be read is not gone.
            if self.jobs.read(&name(id))?.is_none() {
                self.records.remove(&name(id))?;
            }
        }
        Ok(())
    }

    /// Takes the right to run the jobs.
    pub fn become_runner(&self) -> Result<RunnerLock, QueueError> {
        match self.runner.try_lock(LOOK)? {
            Some(lock) => Ok(RunnerLock { _lock: lock }),
            None => Err(QueueError::RunnerRuns { pid: self.status().map(|it| it.pid) }),
        }
    }

    /// What the runner does; none if no runner runs.
    pub fn runner(&self) -> Result<Option<Status>, QueueError> {
        if self.runner.try_lock(Duration::ZERO)?.is_some() {
            return Ok(None);
        }
        Ok(Some(self.status().unwrap_or_default()))
    }

    fn status(&self) -> Option<Status> {
        let bytes = self.runner.read(STATUS_FILE).ok()??;
        parse(&self.runner.file(STATUS_FILE), &bytes).ok()
    }

    /// Tells what the runner does.
    pub fn put_status(&self, status: &Status) -> Result<(), QueueError> {
        Ok(self.runner.write_for_now(STATUS_FILE, &json(status))?)
    }

    /// The times of the last change of jobs and rules; none if another change may follow at the same time.
    pub fn changed(&self) -> Option<[SystemTime; 2]> {
        let time = |folder: &Folder| {
            let time = std::fs::metadata(folder.path()).and_then(|it| it.modified()).ok()?;
            time.elapsed().is_ok_and(|age| age > STEP).then_some(time)
        };
        Some([time(&self.jobs)?, time(&self.rules)?])
    }
}

/// The sessions of a rule.
pub fn sessions(pattern: &str) -> Result<glob::Pattern, QueueError> {
    let bad = |why: String| QueueError::Pattern { pattern: pattern.to_owned(), why };
    if pattern.is_empty() {
        return Err(bad("it is empty".into()));
    }
    glob::Pattern::new(pattern).map_err(|error| bad(error.msg.to_owned()))
}

/// The time now, for files.
pub fn now() -> fullbore_time::Tai {
    Clock::new().now()
}

fn name(id: u64) -> String {
    format!("{id}.json")
}

fn json<T: Serialize>(value: &T) -> Vec<u8> {
    // Paths that are not UTF-8 are refused before they come here.
    let mut bytes = serde_json::to_vec_pretty(value).expect("the files have only plain fields");
    bytes.push(b'\n');
    bytes
}

fn write<T: Serialize>(folder: &Folder, id: u64, value: &T) -> Result<(), QueueError> {
    Ok(folder.write(&name(id), &json(value))?)
}

fn read<T: DeserializeOwned>(folder: &Folder, id: u64) -> Result<Option<T>, QueueError> {
    let Some(bytes) = folder.read(&name(id))? else { return Ok(None) };
    parse(&folder.file(&name(id)), &bytes).map(Some)
}

fn parse<T: DeserializeOwned>(path: &Path, bytes: &[u8]) -> Result<T, QueueError> {
    let content = |error: serde_json::Error| QueueError::Content {
        path: path.to_owned(),
        why: error.to_string(),
    };
    let Versioned { version } = serde_json::from_slice(bytes).map_err(content)?;
    if version != u64::from(VERSION) {
        return Err(QueueError::Version { path: path.to_owned(), version });
    }
    serde_json::from_slice(bytes).map_err(content)
}

/// The numbers of the files of a folder. Others, such as those of a write that was interrupted, are passed over.
fn numbers(folder: &Folder) -> Result<Vec<u64>, QueueError> {
    let path = folder.path();
    let failed = |source| IdentityError::Read { path: path.to_owned(), source };
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let file = entry.map_err(failed)?.file_name();
        let id = file.to_str().and_then(|it| it.strip_suffix(".json")?.parse::<u64>().ok());
        numbers.extend(id.filter(|id| file.to_str() == Some(name(*id).as_str())));
    }
    numbers.sort_unstable();
    numbers.truncate(2 * MOST_JOBS);
    Ok(numbers)
}

fn list<T: DeserializeOwned>(folder: &Folder) -> Result<Listed<T>, QueueError> {
    let (mut items, mut problems) = (BTreeMap::new(), Vec::new());
    for id in numbers(folder)? {
        match read(folder, id) {
            Ok(Some(item)) => {
                items.insert(id, item);
            }
            // It was removed meanwhile.
            Ok(None) => {}
            Err(error) => problems.push(error),
        }
    }
    Ok(Listed { items, problems })
}

#[cfg(test)]
mod tests;
