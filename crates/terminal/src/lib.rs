//! What a command shows: results as text or JSON ([`output`]), accounts ([`glance`], [`account_table`]), and the screen of
//! a running recording ([`screen`]). It reads the events and the status of a recording, and changes nothing.

// These macros panic if printing fails, which must not end the program: see `output`.
#![deny(clippy::print_stderr, clippy::print_stdout)]

pub mod account_table;
pub mod glance;
pub mod output;
pub mod screen;
