//! The types and algorithms of fullbore, without I/O, clocks or threads.
//!
//! Formats are sans-IO (bytes in, facts out) and state machines are pure, so everything here is tested without a
//! network or a disk.

#![forbid(unsafe_code)]

pub mod account;
pub mod affinity;
pub mod chunk_map;
pub mod clock_check;
pub mod completeness;
pub mod container;
pub mod device;
pub mod duty;
pub mod endpoint;
pub mod frame_index;
pub mod gap;
pub mod high_water;
pub mod index;
pub mod layout;
pub mod manifest;
pub mod marker;
pub mod memory_budget;
pub mod name;
pub mod panda;
pub mod partial_block;
pub mod pattern;
pub mod redundancy;
pub mod retention;
pub mod ring_sim;
pub mod schedule;
pub mod units;
