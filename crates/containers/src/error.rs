//! Errors of files of samples.

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;

use fullbore_core::hint::Hint;
use fullbore_formats::samples::decode::DoesNotFit;
use fullbore_formats::vita49::samples::SamplesError;

/// An error in writing a file of samples.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SampleError {
    /// The stream has no samples that can be written as numbers.
    #[error("{why}")]
    Payload {
        /// The reason.
        why: String,
    },
    /// Packets of VITA-49 have no samples that can be decoded.
    #[error(transparent)]
    Packets(#[from] SamplesError),
    /// The samples do not fit the type of the values.
    #[error(transparent)]
    DoesNotFit(#[from] DoesNotFit),
    /// A file exists and would be overwritten.
    #[error("{} is there already", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// A file cannot be written.
    #[error("{}: writing samples: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

impl SampleError {
    /// True if the file system has no space for more data, or allows no more.
    pub fn is_disk_full(&self) -> bool {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        let Self::Write { source, .. } = self else { return false };
        matches!(source.kind(), StorageFull | QuotaExceeded | FileTooLarge)
    }
}

impl Hint for SampleError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Payload { .. } => {
                "record VDIF threads with threads=split, and describe other samples in the endpoint, for example \
                 samples=ci16_le&channels=2"
            }
            Self::Packets(SamplesError::NoData) => "convert the streams of data",
            Self::Packets(_) => {
                "record with samples= in the endpoint, for example samples=ci16_be&sample_rate=100MHz, or convert the \
                 packets whole with `pcapng:`"
            }
            Self::DoesNotFit(_) => "the type f32 takes every encoding",
            Self::Exists { .. } => "give another name",
            full if full.is_disk_full() => "make room, or give a file on another disk",
            Self::Write { .. } => return None,
        }))
    }
}
