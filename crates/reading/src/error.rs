//! Errors of reading.

use std::borrow::Cow;

use fullbore_analysis::frames::SamplesError;
use fullbore_core::hint::Hint;
use fullbore_formats::samples::decode::DoesNotFit;
use fullbore_store::read::StartError;
use fullbore_store::{catalogue, follow, inventory};
use fullbore_transfer::objects::ObjectError;
use fullbore_transfer::objects::address::AddressError;

/// A recording, or a part of it, that cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// There is nothing at a place.
    #[error("`{place}` is neither a scan nor a directory of a store")]
    NoPlace {
        /// The place.
        place: String,
    },
    /// The scan cannot be found.
    #[error(transparent)]
    Find(#[from] catalogue::Error),
    /// The scan cannot be opened.
    #[error(transparent)]
    Open(#[from] inventory::Error),
    /// The scan is being recorded, and cannot be followed.
    #[error(transparent)]
    Follow(#[from] follow::Error),
    /// A text is not the address of a copy.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// A copy in an object store cannot be read.
    #[error(transparent)]
    Copy(#[from] Box<ObjectError>),
    /// The scan has no such stream.
    #[error("{scan} has no stream `{stream}`; it has {known}")]
    NoStream {
        /// The scan.
        scan: String,
        /// The stream.
        stream: String,
        /// The names of its streams.
        known: String,
    },
    /// The frames of a stream have no common length.
    #[error("stream {stream}: its packets differ in length, so they are not an array")]
    Varying {
        /// The stream.
        stream: String,
    },
    /// A range is not inside the stream.
    #[error("stream {stream}: {what} {start} to {end} are not inside its {count}")]
    Range {
        /// The stream.
        stream: String,
        /// `frames` or `samples`.
        what: &'static str,
        /// The first.
        start: u64,
        /// The one behind the last.
        end: u64,
        /// The number of all.
        count: u64,
    },
    /// Memory or threads for reading are not available.
    #[error("stream {stream}")]
    Start {
        /// The stream.
        stream: String,
        /// The error.
        source: StartError,
    },
    /// Recorded data cannot be read, or its checksum is wrong.
    #[error("{what}")]
    Damaged {
        /// The diagnostic.
        what: String,
    },
    /// The stream has no samples that can be decoded.
    #[error("stream {stream}: {why}")]
    Undecodable {
        /// The stream.
        stream: String,
        /// The reason.
        why: String,
    },
    /// Its samples cannot be decoded.
    #[error("stream {stream}: {source}")]
    Samples {
        /// The stream.
        stream: String,
        /// The error.
        source: SamplesError,
    },
    /// Its samples do not fit the type of the result.
    #[error("stream {stream}: {source}")]
    DoesNotFit {
        /// The stream.
        stream: String,
        /// The error.
        source: DoesNotFit,
    },
    /// A line does not exist.
    #[error("stream {stream}: there is no channel {line}: it has {count}, numbered from 0")]
    NoLine {
        /// The stream.
        stream: String,
        /// The number asked for.
        line: usize,
        /// The number of lines.
        count: usize,
    },
    /// Time does not select anything.
    #[error("stream {stream}: its {what} have no time")]
    Untimed {
        /// The stream.
        stream: String,
        /// `frames` or `samples`.
        what: &'static str,
    },
}

impl From<ObjectError> for ReadError {
    fn from(error: ObjectError) -> Self {
        Self::Copy(Box::new(error))
    }
}

/// What a program does about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// There is no such recording or stream.
    NotFound,
    /// Recorded data is damaged.
    Damaged,
    /// The stream is of a kind that is not read in this way.
    Unsupported,
    /// A value that was asked for does not exist.
    Range,
    /// Anything else.
    Other,
}

impl ReadError {
    /// Its kind.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NoPlace { .. } | Self::Find(_) | Self::NoStream { .. } => ErrorKind::NotFound,
            Self::Open(inventory::Error::NoScan { .. }) => ErrorKind::NotFound,
            Self::Address(_) => ErrorKind::NotFound,
            Self::Copy(error) => match **error {
                ObjectError::NoCopy { .. } => ErrorKind::NotFound,
                ObjectError::Incomplete { .. } | ObjectError::Invalid { .. } => ErrorKind::Damaged,
                _ => ErrorKind::Other,
            },
            Self::Damaged { .. } | Self::Open(inventory::Error::NoManifest { .. }) => {
                ErrorKind::Damaged
            }
            Self::Varying { .. }
            | Self::Undecodable { .. }
            | Self::Samples { .. }
            | Self::DoesNotFit { .. }
            | Self::Untimed { .. } => ErrorKind::Unsupported,
            Self::Range { .. } | Self::NoLine { .. } => ErrorKind::Range,
            Self::Open(_) | Self::Follow(_) | Self::Start { .. } => ErrorKind::Other,
        }
    }
}

impl Hint for ReadError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::NoPlace { .. } => {
                "name a directory of the store, or the scan below it: DIRECTORY/SESSION_SCAN"
            }
            Self::Find(error) => return error.hint(),
            Self::Open(error) => return error.hint(),
            Self::Follow(error) => return error.hint(),
            Self::Copy(error) => return error.hint(),
            Self::Varying { .. } => "`fullbore cat` writes the packets one after the other",
            Self::Damaged { .. } => {
                "`fullbore verify` lists all damage; skip_damaged=True reads the rest"
            }
            Self::Samples { source: SamplesError::Undescribed, .. } => {
                "its endpoint can describe them when it is recorded: samples=ci16_le&channels=2&sample_rate=1MHz"
            }
            Self::DoesNotFit { .. } => "floats of 4 bytes hold samples of every encoding",
            Self::Untimed { .. } => "give a range of numbers, or the sample rate",
            Self::Address(_)
            | Self::NoStream { .. }
            | Self::Range { .. }
            | Self::Start { .. }
            | Self::Undecodable { .. }
            | Self::Samples { .. }
            | Self::NoLine { .. } => return None,
        }))
    }
}
