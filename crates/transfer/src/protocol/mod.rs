//! The messages on a connection: bytes in, messages out, without I/O.
//!
//! ```text
//! u32 length ─ u8 kind ─ body        length counts kind and body; all numbers are little-endian
//! u32 length ─ u8 7 ─ u32 bytes ─ records ─ data of the block, in no frame: the driver reads it into aligned memory
//! ```
//!
//! Invariants:
//!
//! - A message has exactly one encoding, so whatever decodes is encoded to the same bytes. Exceptions are the three
//!   messages before a version is agreed ([`Message::Hello`], [`Message::Welcome`], [`Message::Refuse`]): later versions
//!   may append to them.
//! - A frame whose kind or length is not allowed is refused once its first five bytes are there ([`limits`]).
//! - Before a version is agreed, frames have at most [`LARGEST_OPENING_BYTES`]. So a peer that is not known cannot make
//!   this end hold more than that.
//! - The decoder allocates for bytes that have arrived, never for a length that is announced.
//!
//! Versions add kinds and fields. An end sends only what the agreed version has, so an unknown kind is an error.
//! `docs/reference/transfer.md` has the protocol byte by byte.

mod decode;
mod decoder;
mod encode;
mod error;
pub mod limits;
mod message;
#[cfg(test)]
mod tests;

pub use decoder::Decoder;
pub use error::ProtocolError;
pub use limits::{LARGEST_MESSAGE_BYTES, LARGEST_OPENING_BYTES, MOST_BLOCK_RECORDS};
pub use message::{Message, Record, Refusal, Role};

/// The oldest and the newest version of the protocol that this end speaks.
pub const VERSIONS: (u16, u16) = (1, 1);

/// The bytes at the start of every [`Message::Hello`], for ever.
pub const MAGIC: [u8; 8] = *b"fullbore";

/// Returns the newest version that both this end and one with these versions speak.
pub fn common_version(theirs: (u16, u16)) -> Option<u16> {
    let newest = theirs.1.min(VERSIONS.1);
    (newest >= theirs.0.max(VERSIONS.0)).then_some(newest)
}
