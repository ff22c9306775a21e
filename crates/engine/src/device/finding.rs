//! What is not on a device as it should be.

use std::fmt;

use fullbore_core::pattern::Diagnosis;
use serde::Serialize;

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum Finding {
    /// A block has another checksum than when it was written.
    Block {
        /// Its number.
        number: u64,
        /// Where it lies.
        address: u64,
        /// Its length.
        bytes: u32,
    },
    /// The record of a block is damaged, so that the block cannot be checked.
    Record {
        /// The block's number.
        number: u64,
    },
    /// A record speaks of another place than follows from those before it.
    Place {
        /// The block's number.
        number: u64,
        /// What the record says, from the beginning of the scan.
        offset: u64,
        /// What was expected.
        expected: u64,
    },
    /// Something cannot be read.
    Unreadable {
        /// Where it lies.
        address: u64,
        /// What the kernel said.
        why: String,
    },
    /// Chunks in a row are wrong in the same way: their bytes are not those of the pattern.
    Pattern {
        /// Address of the first wrong byte.
        address: u64,
        /// The same, from the beginning of the session.
        offset: u64,
        /// Address of its chunk.
        chunk: u64,
        /// How many chunks.
        chunks: u64,
        /// Wrong bytes in all of them.
        wrong_bytes: u64,
        /// Wrong bits in all of them.
        wrong_bits: u64,
        /// What the first of them is.
        diagnosis: Diagnosis,
    },
    /// The blocks add up to another length than the index says.
    Length {
        /// What the blocks add up to.
        found: u64,
        /// What the index says.
        expected: u64,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Block { number, address, bytes } => {
                write!(f, "block {number} is damaged: {bytes} bytes at address {address:#x}")
            }
            Finding::Record { number } => {
                write!(f, "the record of block {number} is damaged: the block cannot be checked")
            }
            Finding::Place { number, offset, expected } => {
                write!(
                    f,
                    "block {number} is recorded at {offset} of the scan, and {expected} was expected"
                )
            }
            Finding::Unreadable { address, why } => {
                write!(f, "what lies at address {address:#x} cannot be read: {why}")
            }
            Finding::Pattern {
                address,
                offset,
                chunk,
                chunks,
                wrong_bytes,
                wrong_bits,
                diagnosis,
            } => {
                let chunks = match chunks {
                    1 => String::new(),
                    chunks => format!(" in {chunks} chunks"),
                };
                write!(
                    f,
                    "the first wrong byte lies at address {address:#x} (byte {offset} of the session, chunk {chunk:#x}); \
                     {wrong_bytes} bytes, {wrong_bits} bits are wrong{chunks}: {diagnosis}"
                )
            }
            Finding::Length { found, expected } => {
                write!(f, "the blocks have {found} bytes, and the index says {expected}")
            }
        }
    }
}
