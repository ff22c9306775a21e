//! What this machine can really do, measured with the code that records.
//!
//! - [`mod@bench`]: rates, stalls and the ring they ask for, stage by stage and as a whole
//! - [`report`]: the same for people, on a screen and as a page
//! - [`selftest`]: twelve tests of a target, each of which can fail
//!
//! Nothing here judges by a data sheet: every figure was measured, and says by which command.

pub mod bench;
pub mod report;
pub mod selftest;
