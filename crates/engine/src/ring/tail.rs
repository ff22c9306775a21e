//! What a capture thread hands to those who keep the tails of slow streams, and how it hears of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use fullbore_core::tail::Picture;

use super::Track;

/// Bytes of an open block that are new since the last copy, or are others now.
#[derive(Debug)]
pub struct Patch {
    /// Index of the first frame of the block.
    pub first: i64,
    /// Where in the block.
    pub offset: u32,
    /// What lies there.
    pub bytes: Vec<u8>,
}

/// What is new of a stream's open blocks.
#[derive(Debug)]
pub struct Snapshot {
    /// The stream.
    pub track: Arc<Track>,
    /// Number of the first open block.
    pub sequence: u64,
    /// Whether a new file begins with it: all of the open blocks follow.
    pub fresh: bool,
    /// Copies of what is new.
    pub patches: Vec<Patch>,
    /// What all copied so far is; nothing as long as there is more to copy.
    pub picture: Option<Picture>,
    /// Where it is said that it was written.
    pub slip: Arc<Slip>,
}

/// Whether a copy is on its way. No other goes to the same member before it has arrived, so that however slow a member
/// is, no more than one for each stream waits there.
#[derive(Debug, Default)]
pub struct Slip(AtomicU8);

/// How it stands with a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// None is on its way.
    Idle,
    /// One is.
    Busy,
    /// The last could not be written.
    Failed,
}

impl Slip {
    /// How it stands.
    pub fn standing(&self) -> Standing {
        match self.0.load(Ordering::Acquire) {
            0 => Standing::Idle,
            1 => Standing::Busy,
            _ => Standing::Failed,
        }
    }

    /// Says how it stands.
    pub fn put(&self, standing: Standing) {
        self.0.store(standing as u8, Ordering::Release);
    }
}
