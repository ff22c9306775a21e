//! The reason why a session cannot begin.

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;

use fullbore_core::hint::Hint;
use fullbore_core::schedule;
use fullbore_engine::recorder::RecordError;

use crate::options::OptionError;

/// A session cannot begin. Errors of single scans are events, and do not end a session.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// No schedule is given.
    #[error("--schedule is necessary for a session")]
    NoSchedule,
    /// The schedule cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file is too large to be a schedule.
    #[error("{} has {bytes} bytes; a schedule has {} at most", path.display(), schedule::LARGEST)]
    Size {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// The file is not a schedule.
    #[error("{}: {source}", path.display())]
    Schedule {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: schedule::Error,
    },
    /// The schedule's name of the session is invalid.
    #[error(transparent)]
    Name(schedule::Error),
    /// Nothing names the session.
    #[error("the schedule names no session")]
    NoSession,
    /// An option is wrong.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// No scan could ever be armed.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The retention thread cannot start.
    #[error("starting the retention thread: {0}")]
    Retention(#[source] io::Error),
}

impl Hint for SessionError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Schedule { source, .. } | Self::Name(source) => source.hint(),
            Self::NoSession => Some("give one with --session".into()),
            Self::Option(error) => error.hint(),
            Self::Record(error) => error.hint(),
            Self::NoSchedule | Self::Read { .. } | Self::Size { .. } | Self::Retention(_) => None,
        }
    }
}
