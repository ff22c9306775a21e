//! The limits of every length in the protocol.

use fullbore_core::index::{LENGTHS, RECORD_BYTES};
use fullbore_core::layout::LARGEST_BLOCK_BYTES;

use super::message::Kind;

/// Bytes of a frame before its body: the length and the kind.
pub(super) const HEAD_BYTES: usize = 5;

/// The largest frame, length included, before a version is agreed.
pub const LARGEST_OPENING_BYTES: usize = 1024;

/// The largest body of any message. Manifests need it: markers alone can have 8 MiB. So do accounts, which list up to
/// 100 000 gaps, and blocks whose frames vary in length.
pub const LARGEST_MESSAGE_BYTES: usize = 16 << 20;

/// The longest text for people, in bytes. A longer one is cut.
pub const LONGEST_TEXT: usize = 1000;

/// The longest name of a host or a scan, in bytes.
pub const LONGEST_NAME: usize = 255;

/// The largest number of records of a block: the lengths of 6.8 million frames. A block of 4 MiB never has more, and a
/// block of [`LARGEST_BLOCK_BYTES`] has more only if its frames have less than 10 bytes on average.
pub const MOST_BLOCK_RECORDS: usize = LARGEST_MESSAGE_BYTES / RECORD_BYTES - 1;

/// The most data that can follow a message.
pub const LARGEST_DATA_BYTES: u32 = LARGEST_BLOCK_BYTES as u32;

/// Bytes of a run in a set of blocks: the first, and their number.
pub(super) const RUN_BYTES: usize = 16;

// A block of 4 MiB with frames of one byte: its lengths, and the block record.
const _: () = assert!((4usize << 20).div_ceil(LENGTHS) < MOST_BLOCK_RECORDS);
// A refusal with the longest text fits before a version is agreed.
const _: () = assert!(HEAD_BYTES + 3 + LONGEST_TEXT <= LARGEST_OPENING_BYTES);

/// The smallest and the largest body of a message of this kind.
pub(super) const fn body_bytes(kind: Kind) -> (usize, usize) {
    const OPENING: usize = LARGEST_OPENING_BYTES - HEAD_BYTES;
    match kind {
        Kind::Hello => (47, OPENING),
        Kind::Welcome => (3, OPENING),
        Kind::Refuse => (3, OPENING),
        Kind::Offer => (9, LARGEST_MESSAGE_BYTES),
        Kind::Accept => (22, LARGEST_MESSAGE_BYTES),
        Kind::Update => (0, LARGEST_MESSAGE_BYTES),
        Kind::Block => (4 + RECORD_BYTES, 4 + MOST_BLOCK_RECORDS * RECORD_BYTES),
        Kind::Durable => (6, LARGEST_MESSAGE_BYTES),
        Kind::Rejected => (10, 10 + LONGEST_TEXT),
        Kind::Records => (0, LARGEST_MESSAGE_BYTES),
        Kind::Account => (2, LARGEST_MESSAGE_BYTES),
        Kind::Seal => (8, LARGEST_MESSAGE_BYTES),
        Kind::Receipt => (72, 72),
        Kind::Request => (0, LONGEST_NAME),
        Kind::List | Kind::Bye => (0, 0),
        Kind::Listing => (0, LARGEST_MESSAGE_BYTES),
        Kind::Ping | Kind::Pong => (8, 8),
        Kind::Probe => (4, 4),
        Kind::Received => (16, 16),
        Kind::Held => (14, 14),
    }
}
