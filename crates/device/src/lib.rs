//! Drives without a file system: the overwrite guard, the scan index, and reading.
//!
//! ```text
//! guard ──Cleared──► BlockDevice ──► sink::device: chunks and records
//!                        │
//!                        ├──► Volume: the scan index
//!                        └──► DeviceReader: blocks in order, checked ──► cat, verify, convert, play, record
//! ```
//!
//! [`overwrite_guard`] decides whether a device may be written; no device opens for writing without it. [`Volume`] lists,
//! finds, recovers and removes scans. [`DeviceReader`] returns their bytes in order. Recording onto a device is a sink of
//! the recorder. The layout of a device is described in `docs/reference/device.md`; the reason
//! for a separate device writer in `docs/decisions/0010-device.md`.
//!
//! It may open block devices, and files in their place. It knows no file system and no recorder.

mod block_device;
pub mod diagnostics;
mod error;
mod loop_device;
pub mod overwrite_guard;
mod read;
pub mod reader;
mod recover;
mod signature;
pub mod verify;
mod volume;

pub use block_device::{BlockDevice, unmake};
pub use diagnostics::DeviceDiagnostic;
pub use error::Error;
pub use reader::DeviceReader;
pub use recover::{Recovered, Recovery, recover};
pub use volume::{Volume, check_blocks};
