//! What passes between threads: block handles, and the words that go with them.
//!
//! ```text
//! capture ──Command──► writer of member m ──Returned──► capture
//!    ▲                        │                           │
//!    │                        └──Report──► supervisor     │
//!    └────────────── Pool (free list) ◄───────────────────┘
//! ```
//!
//! A [`Block`] is the only handle of its memory, so whoever holds it may read and write it and nobody
//! else can. Handles travel through wait-free single-producer queues; a pool never grows.

mod handoff;
#[cfg(test)]
mod interleavings;
mod pages;
mod pool;
mod sleeper;
mod tail;
mod wake;

/// The atomics that the word between sleeper and waker is written against. Its test has a module of this name with those
/// of a model that runs every interleaving.
mod sync {
    pub use std::sync::atomic::{AtomicBool, Ordering, fence};
}

pub use handoff::{Command, Filled, Gauge, Label, Report, Returned, Track};
pub use pages::pages_of;
pub use pool::{Block, Pool};
pub use tail::{Patch, Slip, Snapshot, Standing};
pub use wake::Wake;
