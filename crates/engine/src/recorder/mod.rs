//! The recorder: sources, ring and store under one supervisor thread.
//!
//! ```text
//!              ┌────────────── supervisor ──────────────┐
//!    CaptureCommand ▼ │ ▲ CaptureEvent   ▲ WriterEvent │  Event ──► screen, JSON
//!     capture threads ──── WriterCommand ───► writers   │
//!              └─ MetadataTask ──► metadata writers ────┘
//! ```
//!
//! [`Recorder::arm`] does everything that can fail before the recording begins: members, sockets, memory, directories.
//! [`Recorder::run`] then watches the threads and switches from one scan to the next. It seals a scan when the scan's
//! [`Lifecycle`](crate::lifecycle::Lifecycle) allows it, while the next is recorded. Other threads do the work that
//! waits for a member: a metadata writer for each member writes directories, manifests and accounts, and a thread for
//! each scan reads the files that sealing needs.

mod arm;
mod check;
mod clock_warnings;
mod config;
mod log;
mod memory;
mod preflight;
pub(crate) mod scan;
mod seal;
mod seal_task;
mod supervisor;
#[cfg(test)]
mod tests;
mod thread_placement;

pub use crate::error::RecordError;
pub use crate::event::{
    Armed, Event, EventHandler, MemberState, Memory, Phase, Progress, Sealed, SealedFile,
    SealedSink, StreamState, WriteReport,
};
pub use crate::source::packet_file;
pub use crate::source::{PandaConfig, SourceConfig, WaitingInput, WaitingSource};
pub use arm::Recorder;
pub use config::{Limit, RecordingConfig};
pub use memory::available_memory;
pub use preflight::{PreflightReport, free_bytes, planned_rate, preflight, slow_disks};
