//! The ring: block handles and messages between threads.
//!
//! ```text
//! capture ──WriterCommand──► writer of member m ──WriterReply──► capture
//!    ▲                              │                              │
//!    │                              └──WriterEvent──► supervisor   │
//!    └───────────────────── Pool (free list) ◄─────────────────────┘
//! ```
//!
//! A [`Block`] is the only handle of its memory, so only its owner can read and write that memory. Handles travel
//! through wait-free single-producer queues. A reply wakes a parked capture thread. A pool never grows. [`Taps`] let other threads read the newest written
//! blocks.

#[cfg(test)]
mod interleavings;
mod messages;
mod notifier;
mod pages;
mod partial_block;
mod pool;
mod replies;
mod sleep_flag;
mod tap;

/// Atomics of the wake-up protocol (`sleep_flag`). The model test has a module of the same name with loom's atomics.
mod sync {
    pub use std::sync::atomic::{AtomicBool, Ordering, fence};
}

pub use messages::{
    BlockMeta, FullBlock, StreamRef, WriterCommand, WriterEvent, WriterMetrics, WriterReply,
};
pub use notifier::Notifier;
pub use pages::pages_of;
pub use partial_block::{BlockPatch, CopyState, CopyStatus, PartialBlockUpdate};
pub use pool::{Block, Pool};
pub use replies::{ReplyReceiver, ReplySender, reply_queue};
pub use tap::{Tap, TapBlock, TapFeed, TapStream, Taps};
