//! Copies of a scan at other sites: the receipts beside it, and the digest that both ends compute.

use fullbore_core::index::Block;
use sha2::{Digest, Sha256};

/// The digest of a scan's blocks: SHA-256 over stream (u16), sequence (u64), length (u32) and CRC32C (u32), little-endian, of
/// each block in the order of streams and sequences.
pub fn digest<'a>(blocks: impl Iterator<Item = (u16, &'a Block)>) -> [u8; 32] {
    let mut hash = Sha256::new();
    for (stream, block) in blocks {
        hash.update(stream.to_le_bytes());
        hash.update(block.sequence.to_le_bytes());
        hash.update(block.bytes.to_le_bytes());
        hash.update(block.crc.to_le_bytes());
    }
    hash.finalize().into()
}
