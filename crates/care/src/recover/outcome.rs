//! The result of `recover`.

use std::path::PathBuf;

use fullbore_core::account::{Terms, Verdict};
use fullbore_core::completeness::Completeness;
use fullbore_core::manifest::State;
use serde::Serialize;

/// The result for a scan.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// The scan was sealed already; nothing was done.
    AlreadySealed {
        /// The scan.
        scan: String,
        /// The state of the sealed scan.
        state: State,
        /// Former paths of members that are not given; their data was not checked.
        absent: Vec<PathBuf>,
        /// Indexes that are lost or damaged: their blocks cannot be read until the indexes are rebuilt.
        indexes: Vec<PathBuf>,
    },
    /// The recorder had sealed the scan and died before every member had the manifest; now they all have it.
    Completed {
        /// The scan.
        scan: String,
        /// The state of the sealed scan.
        state: State,
        /// The number of directories that were updated.
        directories: usize,
    },
    /// The scan was reconstructed and sealed.
    Recovered(Recovery),
}

/// The recovery of a scan.
#[derive(Clone, Debug, Serialize)]
pub struct Recovery {
    /// The scan.
    pub scan: String,
    /// The new state in its manifest.
    pub state: State,
    /// The completeness of the scan.
    #[serde(flatten)]
    pub completeness: Option<Completeness>,
    /// The recovery of each stream.
    pub streams: Vec<Recovered>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
    /// Duration in seconds.
    pub seconds: f64,
}

/// The recovery of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Recovered {
    /// The name.
    pub name: String,
    /// The number of blocks after the recovery.
    pub blocks: u64,
    /// The number of bytes after the recovery.
    pub bytes: u64,
    /// Blocks without a record that were kept.
    pub found: u64,
    /// Blocks with a record that were not whole on disk: cut off.
    pub cut: u64,
    /// Blocks that must have existed and cannot be found.
    pub lost: u64,
    /// Durable blocks that are damaged; they stay, and `verify` reports them.
    pub damaged: u64,
    /// Chunk files renamed into place.
    pub in_place: u64,
    /// Chunk files renamed away because another member holds them as well.
    pub superseded: u64,
    /// Partial blocks restored from the journal.
    pub tail: u64,
    /// Partial blocks in the journal that do not continue the stream, or are damaged.
    pub tails_ignored: u64,
    /// The terms of the new account.
    pub terms: Terms,
    /// The verdict of the new account.
    pub verdict: Option<Verdict>,
    /// True if the stream lost nothing and kept its former account.
    pub intact: bool,
}

impl Recovered {
    /// Combines this result with that of the second pass, after partial blocks were appended.
    pub(super) fn with_tail(self, now: Self) -> Self {
        let Self { found, cut, damaged, in_place, superseded, .. } = self;
        Self { found, cut, damaged, in_place, superseded, ..now }
    }
}
