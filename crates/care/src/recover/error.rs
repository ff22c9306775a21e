//! Errors of `recover`.

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;

use fullbore_core::hint::Hint;
use fullbore_store::read::StartError;
use fullbore_store::{inventory, lock, renumber};

/// The reason why a scan could not be recovered. The attempt lost nothing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The inventory could not be taken.
    #[error(transparent)]
    Inventory(#[from] inventory::Error),
    /// Another process is recording the scan, or its manifest cannot be written.
    #[error(transparent)]
    Lock(#[from] lock::Error),
    /// The manifest is of a later version of this program.
    #[error("{}: the manifest is of a later version of this program", path.display())]
    LaterVersion {
        /// The manifest.
        path: PathBuf,
    },
    /// A scan without a manifest, and without any other file.
    #[error("scan {scan}: no manifest, index, account or chunk exists")]
    NothingLeft {
        /// The scan.
        scan: String,
    },
    /// The scan is a copy that has not arrived completely.
    #[error("scan {scan}: it is an incomplete copy from {host}")]
    IncompleteCopy {
        /// The scan.
        scan: String,
        /// The host that sends it.
        host: String,
    },
    /// A member is missing.
    #[error("scan {scan}: members are missing: {}", listed(members))]
    MembersAbsent {
        /// The scan.
        scan: String,
        /// The former path of each member.
        members: Vec<PathBuf>,
    },
    /// Memory or threads are not available.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Chunk files could not be renumbered.
    #[error(transparent)]
    Renumber(#[from] renumber::Error),
    /// A file could not be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A file could not be changed.
    #[error("{}: {doing}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The operation that failed.
        doing: &'static str,
        /// The reason.
        source: io::Error,
    },
}

impl Hint for Error {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Error::Inventory(error) => return error.hint(),
            Error::Lock(error) => return error.hint(),
            Error::MembersAbsent { .. } => {
                "give them with --store; `fullbore rebuild` first, if the scan has redundancy; or give up their data \
                 (--without-absent-members)"
            }
            Error::IncompleteCopy { .. } => {
                "`fullbore send` on that host continues it; or keep what has arrived, as a scan that lost the rest \
                 (--incomplete-copy)"
            }
            Error::Write { .. } | Error::Renumber(_) => {
                "fix the cause, then recover the scan again"
            }
            Error::LaterVersion { .. } => "recover it with that version",
            Error::NothingLeft { .. } => "`fullbore rm` removes the empty directories",
            Error::Start(_) | Error::Read { .. } => return None,
        }))
    }
}

fn listed(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}
