//! The types and algorithms of fullbore, without I/O, clocks or threads.
//!
//! It has the names, units, gaps and accounts; the layout, index and manifest of a scan; the endpoints; and the pure
//! arithmetic of memory, placement and schedules. State machines are pure, so everything here is tested without a
//! network or a disk. Packet formats are in `fullbore-formats`.

#![forbid(unsafe_code)]

pub mod account;
pub mod affinity;
pub mod block_set;
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
pub mod schedule;
pub mod units;

#[doc(inline)]
pub use fullbore_formats::hint;
