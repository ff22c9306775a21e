//! The messages on a connection: bytes in, messages out, without I/O.
//!
//! `docs/reference/transfer.md` has the protocol byte by byte.

mod message;

pub use message::{Decoder, Message, ProtocolError, Record, Refusal, Role};
