//! Senders with known truth, for tests, self tests and demonstrations.
//!
//! - [`generate`]: test streams of datagrams, with deliberate faults
//! - [`instrument`]: a simulated receiver, for demonstrations
//! - [`panda`]: a simulated PandA
//!
//! It may open sockets, and read stored scans to send their samples again. It records nothing.

pub mod generate;
pub mod instrument;
pub mod panda;
