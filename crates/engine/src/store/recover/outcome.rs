//! What recovering came to.

use std::path::PathBuf;

use fullbore_core::account::{Terms, Verdict};
use fullbore_core::completeness::Completeness;
use fullbore_core::manifest::State;
use serde::Serialize;

/// What became of a scan.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// It was sealed, and nothing was done.
    AlreadySealed {
        /// The scan.
        scan: String,
        /// How it was sealed.
        state: State,
        /// Where the members were that are not given: nothing is known of what lies there.
        absent: Vec<PathBuf>,
        /// Indexes that are lost or damaged: what they spoke of cannot be read until they are built anew.
        indexes: Vec<PathBuf>,
    },
    /// Its recorder had sealed it and died before every member said so; now they do.
    Completed {
        /// The scan.
        scan: String,
        /// How it was sealed.
        state: State,
        /// Directories that were brought up to date.
        directories: usize,
    },
    /// It was put together and sealed.
    Recovered(Recovery),
}

/// What recovering a scan did.
#[derive(Clone, Debug, Serialize)]
pub struct Recovery {
    /// The scan.
    pub scan: String,
    /// What its manifest says of it now.
    pub state: State,
    /// Whether it is complete.
    #[serde(flatten)]
    pub completeness: Option<Completeness>,
    /// Each stream.
    pub streams: Vec<Recovered>,
    /// What a user should know of it.
    pub warnings: Vec<String>,
    /// How long it took.
    pub seconds: f64,
}

/// What recovering a stream did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Recovered {
    /// Its name.
    pub name: String,
    /// Blocks it has now.
    pub blocks: u64,
    /// Bytes it has now.
    pub bytes: u64,
    /// Blocks that had no record and were kept.
    pub found: u64,
    /// Blocks that had a record and were not whole on disk: cut off.
    pub cut: u64,
    /// Blocks that must have been there and are nowhere.
    pub lost: u64,
    /// Durable blocks that are damaged; they stay, and `verify` names them.
    pub damaged: u64,
    /// Chunk files put in their place.
    pub placed: u64,
    /// Chunk files that another member holds as well, moved out of sight.
    pub superseded: u64,
    /// Blocks that were not full yet, and were kept beside the chunks.
    pub tail: u64,
    /// What was kept beside the chunks and does not go on where the stream ends, or is damaged.
    pub tails_ignored: u64,
    /// The terms of the account made from it.
    pub terms: Terms,
    /// And its verdict.
    pub verdict: Option<Verdict>,
    /// Nothing of it was lost: its account is the one that was there before.
    pub intact: bool,
}

impl Recovered {
    /// What was done to a stream, with what it is now that blocks were put behind it.
    pub(super) fn with_tail(self, now: Self) -> Self {
        let Self { found, cut, damaged, placed, superseded, .. } = self;
        Self { found, cut, damaged, placed, superseded, ..now }
    }
}
