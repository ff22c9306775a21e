//! The recorder: `source ──► ring ──► sink`.
//!
//! - [`recorder`]: begins scans, cuts one from the next, stops, drains and seals, for every source and sink
//! - [`source`]: datagrams, PandAs, patterns, files, pipes and devices
//! - [`sink`]: the store, container files, plain files and drives without a file system
//! - [`lifecycle`]: the states of a recording
//! - [`topology`]: cores, memory nodes, network cards and disks, as the kernel reports them
//! - [`drop_counters`]: the kernel's counters of lost packets
//!
//! It may use every crate below it, and starts all threads of a recording: capture threads, one writer per member, and a
//! supervisor. There is no async runtime. It knows no screen and no argument of a command.

pub mod drop_counters;
mod error;
mod event;
pub mod forward;
pub mod lifecycle;
pub mod recorder;
pub mod sink;
pub mod source;
pub mod topology;
