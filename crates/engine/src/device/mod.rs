//! A drive recorded onto without a file system.
//!
//! ```text
//! guard ──Cleared──► Medium ──► writer (one thread, one ring) ◄── blocks ── feed:    pattern, file, pipe
//!                       │                                       └── capture: datagrams
//!                       ├──► volume: the scan index
//!                       └──► contents: blocks in order, checked ──► cat, verify, convert, play
//! ```
//!
//! [`guard`] says whether a device may be written, and is for everyone who writes to devices. [`record`](fn@record)
//! writes bare chunks or a scan, [`record_together`] several streams onto as many devices; [`Volume`] lists scans, finds, recovers and removes them; [`Contents`] gives their
//! bytes in order. What is where on a device is told in `docs/reference/device.md`, and why a device has a writer
//! of its own in `docs/decisions/0010-device.md`.

mod capture;
pub mod contents;
mod error;
mod feed;
pub mod finding;
pub mod guard;
mod input;
mod loops;
mod medium;
mod overlap;
mod read;
mod record;
mod recover;
mod signature;
#[cfg(test)]
mod tests;
mod together;
pub mod verify;
mod volume;
mod writer;

pub use contents::Contents;
pub use error::Error;
pub use finding::Finding;
pub use input::{DeviceInput, FileInput, Input, PatternInput, Taken};
pub use medium::Medium;
pub use record::{Limit, Plan, Progress, Recorded, Source, Stage, record};
pub use recover::{Recovered, recover};
pub use together::{Sum, Together, record_together};
pub use volume::Volume;
