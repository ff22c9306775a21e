//! What the files of a queue hold: jobs, rules, what became of a job, and what the runner does now.

use std::fmt;
use std::path::PathBuf;

use fullbore_core::name::ScanName;
use fullbore_time::Tai;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::governor::Window;

/// The version of the files.
pub const VERSION: u32 = 1;

/// A destination, and a secret that makes this end known there the first time.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// The destination as people may see it.
    pub to: String,
    /// The destination with its secret, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

impl Target {
    /// The whole destination, as it was given.
    pub fn url(&self) -> &str {
        self.secret.as_deref().unwrap_or(&self.to)
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target").field("to", &self.to).finish_non_exhaustive()
    }
}

/// How a job is to run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wishes {
    /// A higher number goes first.
    pub priority: i32,
    /// The most bytes per second.
    pub rate: Option<u64>,
    /// The time of day in which it sends, UTC.
    #[serde(serialize_with = "window_as_text", deserialize_with = "window_of_text")]
    pub window: Option<Window>,
}

fn window_as_text<S: Serializer>(window: &Option<Window>, to: S) -> Result<S::Ok, S::Error> {
    window.map(|it| it.to_string()).serialize(to)
}

fn window_of_text<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Window>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    text.map(|it| it.parse().map_err(serde::de::Error::custom)).transpose()
}

/// A scan to be sent. Commands write it; the runner does not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// [`VERSION`].
    pub version: u32,
    /// The scan.
    pub scan: ScanName,
    /// The members of its store.
    pub store: Vec<PathBuf>,
    /// The destination.
    pub target: Target,
    /// How it is to run.
    pub wishes: Wishes,
    /// True if the user paused it.
    pub paused: bool,
    /// True if the user removed it, and its rule must not make it again.
    pub removed: bool,
    /// The number of times that the user resumed it. A failure counts only for the time in which it happened.
    pub resumed: u32,
    /// The rule that made it.
    pub rule: Option<u64>,
    /// The time at which it was made.
    pub added: Tai,
}

/// Makes a job of every sealed scan of some sessions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// [`VERSION`].
    pub version: u32,
    /// The names of sessions, with `*`, `?` and `[…]`.
    pub sessions: String,
    /// The members of the store.
    pub store: Vec<PathBuf>,
    /// The destination.
    pub target: Target,
    /// How its jobs are to run.
    pub wishes: Wishes,
    /// The time at which it was made.
    pub added: Tai,
}

/// The end of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum End {
    /// It is not over.
    #[default]
    None,
    /// All of the scan is at the destination, with a receipt.
    Done,
    /// It failed for good.
    Failed,
}

/// What became of a job so far. The runner writes it; commands do not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// [`VERSION`].
    pub version: u32,
    /// See [`Job::resumed`].
    pub resumed: u32,
    /// Its end.
    pub end: End,
    /// The number of starts.
    pub attempts: u32,
    /// Bytes that were durable at the destination at the end of the last attempt.
    pub done_bytes: u64,
    /// Bytes of the scan.
    pub bytes: u64,
    /// Blocks that could not be read here.
    pub missing_blocks: u64,
    /// The last failure.
    pub last_error: Option<String>,
    /// The time of the end.
    pub ended: Option<Tai>,
}

/// The runner of a queue, as it was a second ago.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Status {
    /// [`VERSION`].
    pub version: u32,
    /// The process.
    pub pid: u32,
    /// The jobs that are not over.
    pub jobs: Vec<Live>,
    /// What cannot be used: files, rules.
    pub problems: Vec<String>,
}

/// A job under a runner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Live {
    /// Its number.
    pub id: u64,
    /// Its state.
    pub state: JobState,
    /// Why it does not run, or sends nothing now.
    pub reason: Option<String>,
    /// Bytes that are durable at the destination.
    pub done_bytes: u64,
    /// Bytes of the scan so far.
    pub bytes: u64,
    /// Bytes per second that became durable.
    pub rate: u64,
}

/// The state of a job, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// It is being sent.
    Running,
    /// It waits for its turn.
    Queued,
    /// It waits for something else: its destination, its time of day.
    Waiting,
    /// The user paused it.
    Paused,
    /// It failed for good.
    Failed,
    /// It is at the destination.
    Done,
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            JobState::Running => "running",
            JobState::Queued => "queued",
            JobState::Waiting => "waiting",
            JobState::Paused => "paused",
            JobState::Failed => "failed",
            JobState::Done => "done",
        })
    }
}
