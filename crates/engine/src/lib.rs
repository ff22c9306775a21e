//! The Linux data path of fullbore: `source ──► ring ──► sink`.
//!
//! - [`ring`]: the block pool and the queues of block handles between threads
//! - [`store`]: scans on a disk set: finding, reading, verifying, recovering and removing them
//! - [`sys`]: every system call that needs `unsafe`, and nothing else
//!
//! No async runtime: capture threads, one writer per member, and a supervisor.

pub mod ring;
pub mod store;
pub mod sys;
