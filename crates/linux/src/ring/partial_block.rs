//! Updates of partial blocks on their way to the journal of a member, and their status.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use fullbore_core::partial_block::Snapshot;

use super::StreamRef;

/// Bytes of a partial block that changed since the last copy.
#[derive(Debug)]
pub struct BlockPatch {
    /// Index of the first frame of the block.
    pub first: i64,
    /// Offset in the block.
    pub offset: u32,
    /// The bytes at that offset.
    pub bytes: Vec<u8>,
}

/// The changes of a stream's partial blocks since the last update.
#[derive(Debug)]
pub struct PartialBlockUpdate {
    /// The stream.
    pub stream_ref: Arc<StreamRef>,
    /// Number of the first partial block.
    pub sequence: u64,
    /// True if a new file begins with it: then it contains all of the partial blocks.
    pub fresh: bool,
    /// Copies of the new bytes.
    pub patches: Vec<BlockPatch>,
    /// The snapshot of all data copied so far; `None` as long as more data remains to be copied.
    pub snapshot: Option<Snapshot>,
    /// The status to update after the write.
    pub copy_status: Arc<CopyStatus>,
}

/// The status of a copy. The next copy to the same member waits until this one is written, so that at most one for each
/// stream is queued there, however slow the member is.
#[derive(Debug, Default)]
pub struct CopyStatus(AtomicU8);

/// The state of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyState {
    /// No copy is queued.
    Idle,
    /// A copy is queued.
    Busy,
    /// The last copy could not be written.
    Failed,
}

impl CopyStatus {
    /// Returns the state.
    pub fn state(&self) -> CopyState {
        match self.0.load(Ordering::Acquire) {
            0 => CopyState::Idle,
            1 => CopyState::Busy,
            _ => CopyState::Failed,
        }
    }

    /// Sets the state.
    pub fn put(&self, state: CopyState) {
        self.0.store(state as u8, Ordering::Release);
    }
}
