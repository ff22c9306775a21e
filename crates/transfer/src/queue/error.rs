//! Why a queue cannot be used.

use std::borrow::Cow;
use std::path::PathBuf;

use fullbore_core::hint::Hint;

use super::job::VERSION;
use crate::identity::IdentityError;

/// A queue that cannot be used, or one of its files.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// No environment variable says where the directory is.
    #[error("no directory for the queue: FULLBORE_STATE, XDG_STATE_HOME and HOME are not set")]
    NoDirectory,
    /// A file cannot be read, written or locked.
    #[error(transparent)]
    File(#[from] IdentityError),
    /// A file of another version.
    #[error("{}: its version is {version}, and this fullbore knows version {VERSION}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u64,
    },
    /// A file that was written by something else.
    #[error("{}: not a file of the queue: {why}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// There is no such job.
    #[error("there is no transfer {id}")]
    NoJob {
        /// Its number.
        id: u64,
    },
    /// There is no such rule.
    #[error("there is no rule {id}")]
    NoRule {
        /// Its number.
        id: u64,
    },
    /// Too many files.
    #[error("the queue has {most} {what}, which is the maximum")]
    Full {
        /// Jobs or rules.
        what: &'static str,
        /// The maximum.
        most: usize,
    },
    /// The pattern of a rule.
    #[error("`{pattern}` is no pattern for names of sessions: {why}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// The reason.
        why: String,
    },
    /// A second runner.
    #[error("another runner has this queue{}", pid.map(|pid| format!(": process {pid}")).unwrap_or_default())]
    RunnerRuns {
        /// Its process, if it is known.
        pid: Option<u32>,
    },
}

impl Hint for QueueError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::NoDirectory => Some("set FULLBORE_STATE to a directory of your own".into()),
            Self::File(error) => error.hint(),
            Self::Version { .. } => Some("use the fullbore that wrote it, or a newer one".into()),
            Self::Content { path, .. } => {
                Some(format!("move {} away, and add the transfer again", path.display()).into())
            }
            Self::NoJob { .. } => Some("`fullbore transfers` lists them".into()),
            Self::NoRule { .. } => Some("`fullbore transfers rules ls` lists them".into()),
            Self::Full { .. } => Some("`fullbore transfers rm --done` removes what is done".into()),
            Self::Pattern { .. } => Some("write a name, or `r*` for all that begin with r".into()),
            Self::RunnerRuns { .. } => {
                Some("a user has one runner, also if it is a station; `fullbore transfers` shows what it does".into())
            }
        }
    }
}
