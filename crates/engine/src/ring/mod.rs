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
mod pages;
mod pool;
mod wake;

pub use handoff::{Command, Filled, Gauge, Label, Report, Returned, Track};
pub use pages::pages_of;
pub use pool::{Block, Pool};
pub use wake::Wake;
