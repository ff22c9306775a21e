//! Writes index records in whole pages at the end of an index file.
//!
//! Direct I/O writes whole pages of 4096 bytes, 32 records. The last page is usually partial, so it is kept and written
//! again in place with the records that follow. Its first records are written with the same bytes, so a torn rewrite
//! damages none of them.
//!
//! ```text
//! file    | whole pages, done |  partial page  |
//! memory                      | partial + new records … |    one buffer, one write at a time
//! ```

use std::collections::VecDeque;

use fullbore_core::index::RECORD_BYTES;
use fullbore_core::layout::ALIGNMENT;
use fullbore_linux::ring::Block;

/// Size of the buffer of one index.
pub const BUFFER_BYTES: usize = 64 << 10;

const PAGE: usize = ALIGNMENT as usize;

/// A write of whole pages.
#[derive(Debug)]
pub struct PageWrite {
    /// The offset in the file.
    pub offset: u64,
    /// The memory.
    pub block: Block,
    /// The number of bytes.
    pub bytes: u32,
}

/// The unwritten records of one index, and its last page.
#[derive(Debug)]
pub struct Pages {
    /// `None` while a write uses it.
    buffer: Option<Block>,
    /// Bytes of the buffer that hold records.
    used: usize,
    /// Bytes of these that are written.
    written: usize,
    /// The offset of the buffer in the file.
    offset: u64,
    queue: VecDeque<[u8; RECORD_BYTES]>,
}

impl Pages {
    /// Returns an empty index that is written from `buffer`.
    pub fn new(buffer: Block) -> Self {
        assert!(buffer.len() >= BUFFER_BYTES, "a buffer of {} bytes", buffer.len());
        Self { buffer: Some(buffer), used: 0, written: 0, offset: 0, queue: VecDeque::new() }
    }

    /// Appends a record.
    pub fn push(&mut self, record: [u8; RECORD_BYTES]) {
        self.queue.push_back(record);
    }

    /// Returns the next write, if there is one and none is in flight.
    pub fn next_write(&mut self) -> Option<PageWrite> {
        let mut block = self.buffer.take()?;
        while self.used + RECORD_BYTES <= BUFFER_BYTES
            && let Some(record) = self.queue.pop_front()
        {
            block[self.used..self.used + RECORD_BYTES].copy_from_slice(&record);
            self.used += RECORD_BYTES;
        }
        if self.written == self.used {
            self.buffer = Some(block);
            return None;
        }
        let end = self.used.next_multiple_of(PAGE);
        block[self.used..end].fill(0);
        Some(PageWrite { offset: self.offset, block, bytes: end as u32 })
    }

    /// Ends the write in flight: it has completed in full.
    pub fn completed(&mut self, mut block: Block) {
        let partial = self.used / PAGE * PAGE;
        block.copy_within(partial..self.used, 0);
        self.offset += partial as u64;
        self.used -= partial;
        self.written = self.used;
        self.buffer = Some(block);
    }

    /// Ends the write in flight: it has failed, and nothing more is written.
    pub fn failed(&mut self, block: Block) {
        self.buffer = Some(block);
        self.queue.clear();
    }

    /// Bytes of records in the file when no write is in flight.
    pub fn length(&self) -> u64 {
        self.offset + self.written as u64
    }

    /// Returns the buffer, for another index.
    pub fn into_buffer(self) -> Option<Block> {
        self.buffer
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fullbore_linux::ring::Pool;
    use fullbore_linux::sys::memory::Region;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn records_lie_one_after_another_however_they_come(
            batches in prop::collection::vec(0..700usize, 1..12)
        ) {
            let mut pool = Pool::new(Arc::new(Region::new(1).unwrap()), BUFFER_BYTES, 0);
            let mut pages = Pages::new(pool.take().unwrap());
            let (mut file, mut expected) = (Vec::new(), Vec::new());
            for batch in batches {
                for _ in 0..batch {
                    let mut record = [1; RECORD_BYTES];
                    record[..8].copy_from_slice(&expected.len().to_le_bytes());
                    expected.extend_from_slice(&record);
                    pages.push(record);
                }
                while let Some(PageWrite { offset, block, bytes }) = pages.next_write() {
                    prop_assert!(offset.is_multiple_of(ALIGNMENT) && bytes > 0);
                    let end = offset as usize + bytes as usize;
                    file.resize(file.len().max(end), 9);
                    file[offset as usize..end].copy_from_slice(&block[..bytes as usize]);
                    pages.completed(block);
                }
                prop_assert_eq!(pages.length(), expected.len() as u64);
                prop_assert_eq!(&file[..expected.len()], &expected[..]);
            }
        }
    }
}
