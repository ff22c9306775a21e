//! The result of a recording on one device.

use std::path::PathBuf;

use fullbore_core::device::{Status, StoredScan, Word};
use fullbore_core::units::ByteRate;
use serde::Serialize;

/// The result of a recording on one device.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceResult {
    /// The device.
    pub device: PathBuf,
    /// The write status.
    pub status: Status,
    /// The scan as it is now in the index.
    pub scan: Option<StoredScan>,
    /// Bytes written.
    pub bytes: u64,
    /// Bytes of those that a sync has covered.
    pub durable_bytes: u64,
    /// Seconds from the begin of the scan to its last durable byte.
    pub seconds: f64,
    /// Bytes per second.
    pub rate: u64,
    /// The longest write of a block, in nanoseconds.
    pub longest_write_ns: u64,
    /// The longest round of syncs, in nanoseconds.
    pub longest_sync_ns: u64,
    /// The reason why the device or the source failed.
    pub failure: Option<String>,
    /// True if the device had no more space.
    pub full: bool,
    /// The rate of a paced source that was slowed down by the device.
    pub held_up: Option<ByteRate>,
    /// True if the source ended before the requested address or number of bytes.
    pub early: bool,
}

impl DeviceResult {
    /// True if all requested data arrived and is on the device: no failure, no early end, no abort, and enough space for
    /// the scan.
    pub fn is_whole(&self) -> bool {
        self.failure.is_none()
            && !self.early
            && self.bytes > 0
            && !(self.scan.is_some() && self.full)
            && !self.status.has(Word::Aborted)
    }
}
