//! One file per verb: its arguments, what they mean, and how its result is told.
//!
//! Each has `Args` (what was typed) and `run(Args, Output)`, which returns the exit code.

pub mod generate;
pub mod play;
pub mod record;
mod sending;
