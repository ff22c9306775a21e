//! Measures the real performance of this machine with the recorder's code.
//!
//! - [`mod@bench`]: rates, stalls and the ring that they need, for each stage and for the whole path
//! - [`report`]: the results as text on a screen and as a page
//! - [`selftest`]: twelve tests of a target, each of which can fail
//!
//! No result relies on a data sheet: every figure is measured, and names its command. It may write on the targets that
//! it is given, through the sinks that record, and nowhere else.

pub mod bench;
pub mod report;
pub mod selftest;
