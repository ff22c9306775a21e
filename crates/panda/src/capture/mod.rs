//! The capture thread of a PandA: receives payload directly into blocks, and passes only certified samples to the sink.
//!
//! ```text
//! data port ──► blocks being filled ──certified──► the recorder's striper ──► sink
//!                    ▲                                │
//!                    └───────── emptied ──────────────┘
//! control port: arming, whether it is alive, how many samples it took
//! ```
//!
//! - [`Device`]: the interface to a PandA; tests use one made of bytes
//! - [`Described`]: the PandA's settings, requested while samples arrive
//! - [`AcquisitionSink`]: takes blocks of certified samples
//! - [`Source`]: the thread's work: connects, receives, rejoins, keeps the account
//!
//! A full pool loses nothing here, because TCP makes the sender wait. The thread stops reading until a block is free
//! and counts the time. If this takes too long, the server's ring overruns.

mod described;
mod device;
mod dump;
mod receive_buffer;
mod sink;
mod source;
#[cfg(test)]
mod tests;

pub use described::{Answer, Described};
pub use device::{Captured, Data, Device, PATIENCE, Panda};
pub use dump::Dump;
pub use sink::{Acquisition, AcquisitionSink, Batch, SinkClosed, StopRequest};
pub use source::{Settings, Source, SourceEnd};
