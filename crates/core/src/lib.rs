//! What things are: the vocabulary of fullbore, without I/O, clocks or threads.
//!
//! Formats are sans-IO (bytes in, facts out) and state machines are pure, so everything here is
//! tested without a network or a disk.

#![forbid(unsafe_code)]

pub mod account;
pub mod budget;
pub mod completeness;
pub mod container;
pub mod count;
pub mod demand;
pub mod device;
pub mod duty;
pub mod endpoint;
pub mod format;
pub mod gap;
pub mod index;
pub mod keep;
pub mod layout;
pub mod manifest;
pub mod marker;
pub mod name;
pub mod pattern;
pub mod place;
pub mod redundancy;
pub mod renamed;
pub mod schedule;
pub mod tail;
pub mod tide;
pub mod time;
pub mod units;
pub mod wall;
pub mod window;
