//! A queue of transfers that outlives processes: jobs with priorities, and a runner that sends them.
//!
//! ```text
//!  commands ──► jobs, rules ──► runner ──► scheduler: which jobs run
//!     ▲                           │  └───► carrier: sends one scan to one destination
//!     └── records, status ◄───────┘
//! ```
//!
//! - [`files`]: the folder of the queue (`docs/decisions/0026-queue.md`)
//! - [`job`]: what its files hold
//! - [`scheduler`]: which jobs run, as a pure state machine
//! - [`carrier`]: sends one scan to one destination
//! - [`runner`]: runs them, under one governor
//! - [`listing`]: what a user sees

pub mod carrier;
pub mod error;
pub mod files;
pub mod job;
pub mod listing;
mod rules;
pub mod runner;
pub mod scheduler;

pub use error::QueueError;
pub use files::{Added, Queue, default_directory};
