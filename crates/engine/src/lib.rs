//! The Linux data path of fullbore: `source ──► ring ──► sink`.
//!
//! - [`device`]: recording onto a drive without a file system, and the overwrite guard
//! - [`generate`]: test streams, with deliberate faults
//! - [`leap`]: the leap second table in use
//! - [`pace`]: packet pacing and release statistics
//! - [`panda`]: PandA position captures over TCP, and a simulated PandA
//! - [`thread_config`]: thread affinity and priority, requested and read back
//! - [`replayer`]: replay of recorded frames with their timing
//! - [`ring`]: the block pool and the queues of block handles between threads
//! - [`sink`]: containers for other programs
//! - [`store`]: members, their writers, chunk files and the index
//! - [`store`]: scans on a disk set: finding, reading, verifying, recovering and removing them
//! - [`sys`]: all system calls that need `unsafe`, and nothing else
//! - [`topology`]: cores, memory nodes, network cards and disks, as the kernel reports them
//!
//! The engine uses no async runtime: capture threads, one writer per member, and a supervisor.

pub mod checksum;
pub mod clock;
pub mod device;
pub mod drop_counters;
mod error;
mod event;
pub mod generate;
pub mod leap;
pub mod lifecycle;
pub mod pace;
pub mod panda;
pub mod place;
pub mod recorder;
pub mod replayer;
pub mod ring;
pub mod sink;
pub mod source;
pub mod store;
pub mod sys;
pub mod thread_config;
pub mod topology;
