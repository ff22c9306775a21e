//! Why a target cannot be measured, and what to do about it.

use std::io;
use std::path::PathBuf;

use fullbore_core::units::ByteSize;
use fullbore_engine::device::guard::GuardError;
use fullbore_engine::store::read::StartError;
use fullbore_engine::store::{MemberError, WriterError};
use fullbore_engine::sys::uring::RingError;

/// Why a target cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The directory cannot be written to as a member.
    #[error(transparent)]
    Member(#[from] MemberError),
    /// The ring of the kernel.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// A file or device that carries something, or is in use.
    #[error(transparent)]
    Guard(#[from] GuardError),
    /// The writer of a member.
    #[error(transparent)]
    Writer(#[from] WriterError),
    /// The threads that read back.
    #[error("reading back: {source}")]
    Read {
        /// What is missing.
        source: StartError,
    },
    /// It cannot be opened.
    #[error("{}: cannot be opened to be measured: {source}", path.display())]
    Open {
        /// The target.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// It is neither directory, nor file, nor block device.
    #[error("{}: neither a directory, nor a file, nor a block device", path.display())]
    NotATarget {
        /// What was given.
        path: PathBuf,
    },
    /// It holds something.
    #[error("{}: {what}, and measuring would overwrite it", path.display())]
    Holds {
        /// The target.
        path: PathBuf,
        /// What it holds.
        what: String,
    },
    /// A file without a length.
    #[error("{}: an empty file: its length says how much of it may be written", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// A file with holes that there is no room for.
    #[error(
        "{}: {holes} of its {bytes} are holes, and its file system has {free} free",
        path.display()
    )]
    Holes {
        /// The file.
        path: PathBuf,
        /// How long it is.
        bytes: ByteSize,
        /// What of it was never written.
        holes: ByteSize,
        /// What its file system has.
        free: ByteSize,
    },
    /// Files, devices and directories are written in different ways.
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
    /// Not enough room.
    #[error(
        "{}: {} can be written there (with {reserve} left free), and {needed} are needed",
        path.display(),
        free
    )]
    TooSmall {
        /// The target.
        path: PathBuf,
        /// What can be written.
        free: ByteSize,
        /// What stays free.
        reserve: ByteSize,
        /// What is needed.
        needed: ByteSize,
    },
    /// An option that cannot be met.
    #[error("{what}")]
    Settings {
        /// What is wrong.
        what: String,
    },
    /// Memory for blocks.
    #[error("taking {bytes} bytes of memory for blocks: {source}")]
    Memory {
        /// How much.
        bytes: u64,
        /// What the kernel said.
        source: io::Error,
    },
    /// A transfer failed.
    #[error("{}: {what}: {source}", path.display())]
    Transfer {
        /// The target.
        path: PathBuf,
        /// What was being done.
        what: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The writer of a member gave up.
    #[error("{why}")]
    Failed {
        /// Its words.
        why: String,
    },
}

impl Error {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Member(error) => error.hint(),
            Self::Guard(error) => error.hint(),
            Self::Ring(error) => Some(error.hint().into()),
            Self::Writer(error) => Some(error.hint().into()),
            Self::Read { .. } => Some("leave the reading out with --skip read".into()),
            Self::Open { source, .. } => match source.kind() {
                io::ErrorKind::NotFound => {
                    Some("name a directory on the disk, and nothing will be left in it".into())
                }
                io::ErrorKind::PermissionDenied => {
                    Some("block devices and the files of others need their owner or root".into())
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
            Self::Holds { path, .. } => Some(format!(
                "if nothing of it is needed any more, type its name again: --overwrite {}; a \
                 directory is measured without overwriting anything",
                path.display()
            )),
            Self::Empty { path } => {
                Some(format!("give it one: fallocate -l 10GiB {}", path.display()))
            }
            Self::Holes { path, .. } => Some(format!(
                "give it no more bytes than there is room for: fallocate -l 10GiB {}",
                path.display()
            )),
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
                Some("look into the kernel's log for what the disk said".into())
            }
        }
    }
}
