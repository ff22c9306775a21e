//! A client of a station: what programs of this workspace ask a running daemon for, over REST.
//!
//! ```text
//! address, token ──► Client ──► GET, PUT, POST, DELETE ──► JSON, or an error with advice
//!                       └─────► follow ──► lines of JSON as they come: a command, a recording
//! ```
//!
//! Calls block. The runtime that they run in is inside, and a caller that follows gets a turn several times a second, in
//! which it may ask for something else.

pub mod address;
pub mod error;
mod http;
pub mod output;
pub mod status;
mod token;
mod trust;

pub use address::Address;
pub use error::Error;
pub use http::{Client, Method};
