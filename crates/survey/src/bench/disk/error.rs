//! Errors of targets, with advice.

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;

use fullbore_core::hint::Hint;
use fullbore_core::units::ByteSize;
use fullbore_device::overwrite_guard::GuardError;
use fullbore_linux::sys::uring::RingError;
use fullbore_store::read::StartError;
use fullbore_store::{MemberError, WriterError};

/// An error of a target.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The directory cannot be used as a member.
    #[error(transparent)]
    Member(#[from] MemberError),
    /// The kernel's ring is not available.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// A file or device has content, or is in use.
    #[error(transparent)]
    Guard(#[from] GuardError),
    /// The writer of a member cannot start.
    #[error(transparent)]
    Writer(#[from] WriterError),
    /// The threads for reading back cannot start.
    #[error("reading back: {source}")]
    Read {
        /// The reason.
        source: StartError,
    },
    /// The target cannot be opened.
    #[error("{}: cannot be opened for measuring: {source}", path.display())]
    Open {
        /// The target.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The target is neither directory, nor file, nor block device.
    #[error("{}: neither a directory, nor a file, nor a block device", path.display())]
    NotATarget {
        /// The given path.
        path: PathBuf,
    },
    /// The target has content.
    #[error("{}: {what}, and measuring would overwrite it", path.display())]
    Holds {
        /// The target.
        path: PathBuf,
        /// The content.
        what: String,
    },
    /// A file of length zero.
    #[error("{}: the file is empty: its length limits the bytes to write", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// A file with holes for which there is no space.
    #[error(
        "{}: {holes} of its {bytes} are holes, and its file system has only {free} free",
        path.display()
    )]
    Holes {
        /// The file.
        path: PathBuf,
        /// The length of the file.
        bytes: ByteSize,
        /// Bytes that were never written.
        holes: ByteSize,
        /// The free space of the file system.
        free: ByteSize,
    },
    /// Files, devices and directories cannot be combined, because they are written in different ways.
    #[error("several targets must be directories, one for each disk of a set")]
    Mixed,
    /// One target given twice.
    #[error("{} and {} are one directory", first.display(), second.display())]
    Twice {
        /// As given.
        first: PathBuf,
        /// As given.
        second: PathBuf,
    },
    /// Not enough space.
    #[error(
        "{}: {} can be written there (with {reserve} left free), and {needed} are needed",
        path.display(),
        free
    )]
    TooSmall {
        /// The target.
        path: PathBuf,
        /// Bytes that can be written.
        free: ByteSize,
        /// Bytes that stay free.
        reserve: ByteSize,
        /// The needed bytes.
        needed: ByteSize,
    },
    /// Settings that cannot be met.
    #[error("{what}")]
    Settings {
        /// The problem.
        what: String,
    },
    /// Memory for blocks could not be allocated.
    #[error("allocating {bytes} bytes of memory for blocks: {source}")]
    Memory {
        /// The requested size.
        bytes: u64,
        /// The kernel's error.
        source: io::Error,
    },
    /// A transfer failed.
    #[error("{}: {what}: {source}", path.display())]
    Transfer {
        /// The target.
        path: PathBuf,
        /// The operation.
        what: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The writer of a member failed.
    #[error("{why}")]
    Failed {
        /// The writer's error.
        why: String,
    },
}

impl Hint for Error {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Member(error) => error.hint(),
            Self::Guard(error) => error.hint(),
            Self::Ring(error) => error.hint(),
            Self::Writer(error) => error.hint(),
            Self::Read { .. } => Some("leave the reading out with --skip read".into()),
            Self::Open { source, .. } => match source.kind() {
                io::ErrorKind::NotFound => {
                    Some("name a directory on the disk; no file will be left in it".into())
                }
                io::ErrorKind::PermissionDenied => {
                    Some("block devices and files of other users need their owner or root".into())
                }
                io::ErrorKind::ResourceBusy => {
                    Some("somebody uses it: unmount it, or end what has it open".into())
                }
                io::ErrorKind::ReadOnlyFilesystem => {
                    Some("it is mounted read-only: nothing can be recorded there".into())
                }
                _ => None,
            },
            Self::NotATarget { .. } | Self::Mixed => None,
            Self::Twice { .. } => {
                Some("name each directory once: one for each disk of a set".into())
            }
            Self::Holds { path, .. } => Some(Cow::Owned(format!(
                "if nothing of it is needed any more, type its name again: --overwrite {}; a \
                 directory is measured without overwriting anything",
                path.display()
            ))),
            Self::Empty { path } => {
                Some(Cow::Owned(format!("give it one: fallocate -l 10GiB {}", path.display())))
            }
            Self::Holes { path, .. } => Some(Cow::Owned(format!(
                "make it no larger than the free space: fallocate -l 10GiB {}",
                path.display()
            ))),
            Self::TooSmall { .. } => Some(
                "free some space, or ask for less with --reserve, --sessions or --block".into(),
            ),
            Self::Settings { .. } => None,
            Self::Memory { .. } => {
                Some("ask for fewer or smaller blocks, or a smaller --ring".into())
            }
            Self::Transfer { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                Some("something else filled the disk meanwhile: leave more with --reserve".into())
            }
            Self::Transfer { .. } | Self::Failed { .. } => {
                Some("check the kernel's log for errors of the disk".into())
            }
        }
    }
}
