//! A device as a source of bytes.

use std::io;

use fullbore_device::reader::Checked;
use fullbore_linux::overlap::Range;
use fullbore_linux::read_at::ReadAt;

use crate::source::bytes::{ByteSource, ReadOutcome};

/// The most bytes of one read, which limits the time of the read.
const MOST_AT_ONCE: u64 = 1 << 20;

/// The contents of another device. A block with a wrong checksum ends it.
#[derive(Debug)]
pub struct DeviceInput {
    contents: Checked,
    at: u64,
}

impl DeviceInput {
    /// Reads all of it from the beginning.
    pub fn new(contents: Checked) -> Self {
        Self { contents, at: 0 }
    }
}

impl ByteSource for DeviceInput {
    fn take(&mut self, into: &mut [u8]) -> io::Result<ReadOutcome> {
        let left = self.contents.bytes() - self.at;
        if left == 0 {
            return Ok(ReadOutcome::End);
        }
        let bytes = left.min(into.len() as u64).min(MOST_AT_ONCE) as usize;
        self.contents.read_exact_at(&mut into[..bytes], self.at)?;
        self.at += bytes as u64;
        Ok(ReadOutcome::Bytes(bytes))
    }

    fn bytes(&self) -> Option<u64> {
        Some(self.contents.bytes())
    }

    fn range(&self) -> Option<Range> {
        self.contents.range()
    }
}
