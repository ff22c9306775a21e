//! Diagnostics of a device.

use std::fmt;

use fullbore_core::pattern::Diagnosis;
use serde::Serialize;

/// A problem found on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum DeviceDiagnostic {
    /// The checksum of a block differs from its record.
    Block {
        /// The block's number.
        number: u64,
        /// The block's address.
        address: u64,
        /// The block's length.
        bytes: u32,
    },
    /// The record of a block is damaged, so the block cannot be checked.
    Record {
        /// The block's number.
        number: u64,
    },
    /// A record gives another offset than the records before it imply.
    Place {
        /// The block's number.
        number: u64,
        /// The offset in the record, from the beginning of the scan.
        offset: u64,
        /// The expected offset.
        expected: u64,
    },
    /// A range cannot be read.
    Unreadable {
        /// The address of the range.
        address: u64,
        /// The kernel's error.
        why: String,
    },
    /// Consecutive chunks differ from the pattern in the same way.
    Pattern {
        /// Address of the first wrong byte.
        address: u64,
        /// The same, relative to the beginning of the session.
        offset: u64,
        /// Address of its chunk.
        chunk: u64,
        /// The number of chunks.
        chunks: u64,
        /// Wrong bytes in all of these chunks.
        wrong_bytes: u64,
        /// Wrong bits in all of these chunks.
        wrong_bits: u64,
        /// The diagnosis of the first chunk.
        diagnosis: Diagnosis,
    },
    /// The total length of the blocks differs from the length in the index.
    Length {
        /// The total length of the blocks.
        found: u64,
        /// The length in the index.
        expected: u64,
    },
}

impl fmt::Display for DeviceDiagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceDiagnostic::Block { number, address, bytes } => {
                write!(f, "block {number} is damaged: {bytes} bytes at address {address:#x}")
            }
            DeviceDiagnostic::Record { number } => {
                write!(f, "the record of block {number} is damaged: the block cannot be checked")
            }
            DeviceDiagnostic::Place { number, offset, expected } => {
                write!(
                    f,
                    "block {number} is recorded at {offset} of the scan, and {expected} was expected"
                )
            }
            DeviceDiagnostic::Unreadable { address, why } => {
                write!(f, "what lies at address {address:#x} cannot be read: {why}")
            }
            DeviceDiagnostic::Pattern {
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
            DeviceDiagnostic::Length { found, expected } => {
                write!(f, "the blocks have {found} bytes, and the index says {expected}")
            }
        }
    }
}
