//! Errors of a scan that arrives.

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};

use fullbore_core::hint::Hint;
use fullbore_core::name::ScanName;
use fullbore_core::units::ByteSize;

use super::Sealed;
use crate::{MemberError, inventory, lock, renumber};

/// A copy that cannot be begun, continued or sealed. What is durable stays, and a later begin continues it.
#[derive(Debug, thiserror::Error)]
pub enum LandingError {
    /// The manifest of the sender cannot be used.
    #[error("the sender's manifest cannot be used: {0}")]
    Manifest(String),
    /// The sender's last records or accounts cannot be used.
    #[error("the sender's last records cannot be used: {0}")]
    Records(String),
    /// No member was given.
    #[error("there is no member to write to")]
    NoMember,
    /// Another scan has the name.
    #[error("{}: another scan of this name exists", path.display())]
    Exists {
        /// Its directory.
        path: PathBuf,
    },
    /// `recover` made a scan of its own of what had arrived of the copy.
    #[error("{scan} was recovered here from an incomplete copy, so it takes no more blocks")]
    Recovered {
        /// The scan.
        scan: ScanName,
    },
    /// The source could not read some blocks, so the copy cannot be complete.
    #[error("{blocks} blocks could not be read at the source: the copy stays incomplete")]
    Unreadable {
        /// The number of blocks.
        blocks: u64,
    },
    /// The copy is complete.
    #[error("the copy of {scan} is complete already")]
    Complete {
        /// The scan.
        scan: ScanName,
        /// What was sealed.
        sealed: Sealed,
    },
    /// Another process holds the lock of the scan.
    #[error("{}: another process is receiving or changing this scan", path.display())]
    Busy {
        /// The manifest that is locked.
        path: PathBuf,
    },
    /// Members that hold a part of the interrupted copy are not given.
    #[error(
        "members that hold a part of the interrupted copy of {scan} are missing: {}",
        listed(members)
    )]
    MembersAbsent {
        /// The scan.
        scan: ScanName,
        /// The former path of each member.
        members: Vec<PathBuf>,
    },
    /// Data of the interrupted copy that was durable is not there.
    #[error("{}: the interrupted copy is damaged: {why}", path.display())]
    Lost {
        /// The file.
        path: PathBuf,
        /// The difference.
        why: String,
    },
    /// The scan does not fit.
    #[error("{} are needed, and {} are free", ByteSize(*needed), ByteSize(*free))]
    NoSpace {
        /// Bytes that are still to come.
        needed: u64,
        /// Bytes free on all members.
        free: u64,
    },
    /// The scan is larger than the disks.
    #[error("{} are needed, and the disks have {} in all", ByteSize(*needed), ByteSize(*all))]
    TooSmall {
        /// Bytes that are still to come.
        needed: u64,
        /// Bytes of the file systems of all members.
        all: u64,
    },
    /// A member cannot be used.
    #[error(transparent)]
    Member(#[from] MemberError),
    /// A manifest could not be locked or written.
    #[error(transparent)]
    Lock(lock::Error),
    /// The files of the copy could not be listed.
    #[error(transparent)]
    Inventory(#[from] inventory::Error),
    /// Chunk files could not be renamed into the order of the stream.
    #[error(transparent)]
    Renumber(renumber::Error),
    /// A file could not be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A file could not be written, renamed or synced.
    #[error("{}: cannot be written: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Blocks are still being written at the seal.
    #[error("{blocks} blocks are still being written")]
    Unfinished {
        /// The number of blocks.
        blocks: usize,
    },
    /// An earlier sync has failed, or the scan is sealed.
    #[error("this copy takes no more blocks: it is sealed, or an earlier sync has failed")]
    Closed,
}

impl LandingError {
    /// An error of a change to a file.
    pub(super) fn write(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Write { path: path.to_owned(), source }
    }

    /// An error of reading a file.
    pub(super) fn read(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Read { path: path.to_owned(), source }
    }
}

impl Hint for LandingError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Manifest(_) | Self::Records(_) => {
                Some("update fullbore on both hosts to the same version".into())
            }
            Self::NoMember => Some("give the members with --store DIR[,DIR…]".into()),
            Self::Exists { .. } => Some(
                "rename or remove that scan (`fullbore rm`), or receive into another store".into(),
            ),
            Self::Recovered { scan } => Some(
                format!(
                    "remove it there with `fullbore rm {scan}`, then send the whole scan again; or keep it as it is"
                )
                .into(),
            ),
            Self::Unreadable { .. } => Some(
                "find the blocks at the source with `fullbore verify`, and send again once they can be read; or keep \
                 what has arrived: `fullbore recover --incomplete-copy` where the copy is"
                    .into(),
            ),
            Self::Complete { .. } => None,
            Self::Busy { .. } => Some(
                "wait until that transfer ends; the lock of a dead process is released by itself"
                    .into(),
            ),
            Self::MembersAbsent { .. } => {
                Some("mount them, and give them with --store; then send the scan again".into())
            }
            Self::Lost { .. } => Some(
                "remove the incomplete copy with `fullbore rm`, then send the whole scan again"
                    .into(),
            ),
            Self::NoSpace { .. } => {
                Some("remove scans with `fullbore rm`, or add a member with --store".into())
            }
            Self::TooSmall { .. } => {
                Some("add members with --store, or send the scan to another site".into())
            }
            Self::Member(error) => error.hint(),
            Self::Lock(error) => error.hint(),
            Self::Inventory(error) => error.hint(),
            Self::Write { source, .. } => Some(match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    "free space on this disk with `fullbore rm`, or add a member with --store for the \
                     chunks to come; then send the scan again: it continues"
                        .into()
                }
                _ => "look into the kernel's log for an error of the disk; then send the scan again: \
                      it continues"
                    .into(),
            }),
            Self::Read { .. } => Some("look into the kernel's log for an error of the disk".into()),
            Self::Renumber(_) => Some("send the scan again: it continues".into()),
            Self::Unfinished { .. } => None,
            Self::Closed => Some("send the scan again: it continues".into()),
        }
    }
}

impl From<lock::Error> for LandingError {
    fn from(error: lock::Error) -> Self {
        match error {
            lock::Error::Held { path } => Self::Busy { path },
            error => Self::Lock(error),
        }
    }
}

fn listed(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// A block that was not taken.
#[derive(Debug, thiserror::Error)]
pub enum BlockError {
    /// The CRC32C of the data is not that of its record: it must be sent again.
    #[error("the data is damaged")]
    Damaged,
    /// A record that no honest sender sends.
    #[error("{0}")]
    Invalid(String),
    /// It could not be written.
    #[error(transparent)]
    Landing(#[from] LandingError),
}

impl Hint for BlockError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Damaged => None,
            Self::Invalid(_) => Some("update fullbore on both hosts to the same version".into()),
            Self::Landing(error) => error.hint(),
        }
    }
}
