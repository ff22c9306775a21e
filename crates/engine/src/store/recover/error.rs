//! Why a scan could not be recovered.

use std::io;
use std::path::PathBuf;

use crate::store::inventory;
use crate::store::lock;
use crate::store::read::StartError;
use crate::store::renumber;

/// A scan that could not be recovered. Nothing was lost by trying.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It could not be looked at.
    #[error(transparent)]
    Inventory(#[from] inventory::Error),
    /// Somebody records it, or its manifest cannot be written.
    #[error(transparent)]
    Lock(#[from] lock::Error),
    /// Its manifest is of a later version of this program.
    #[error("{}: the manifest is of a later version of this program", path.display())]
    LaterVersion {
        /// The manifest.
        path: PathBuf,
    },
    /// Of a scan without a manifest nothing else is there.
    #[error("scan {scan}: there is neither a manifest of it, nor an index, an account or a chunk")]
    NothingLeft {
        /// The scan.
        scan: String,
    },
    /// A member is not there.
    #[error("scan {scan}: members are missing: {}", listed(members))]
    MembersAbsent {
        /// The scan.
        scan: String,
        /// Where each was.
        members: Vec<PathBuf>,
    },
    /// No memory or threads.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Chunk files could not be put in order.
    #[error(transparent)]
    Renumber(#[from] renumber::Error),
    /// A file could not be read.
    #[error("{}: reading it: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file could not be changed.
    #[error("{}: {doing}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// Why.
        source: io::Error,
    },
}

impl Error {
    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Error::Inventory(error) => error.hint(),
            Error::Lock(error) => error.hint(),
            Error::MembersAbsent { .. } => Some(
                "give them with --store; `fullbore rebuild` first, if the scan has redundancy; or do without what they hold \
                 (--without-absent-members)",
            ),
            Error::Write { .. } | Error::Renumber(_) => {
                Some("mend that, and recover the scan again")
            }
            Error::LaterVersion { .. } => Some("recover it with that version"),
            Error::NothingLeft { .. } => Some("`fullbore rm` takes the empty directories away"),
            Error::Start(_) | Error::Read { .. } => None,
        }
    }
}

fn listed(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}
