//! The receive buffer: blocks between socket and sink. They are filled in order, and passed on up to the last certified
//! sample.
//!
//! ```text
//!             ┌ certified up to here
//! held     │AAAAAAAA│AA      │     full, and not yet wholly certified
//! filling            │AAAA····│    the socket writes behind the last A
//! ```

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use fullbore_linux::ring::{Block, Pool};

use super::sink::Batch;

/// The blocks of one source.
pub(super) struct ReceiveBuffer {
    pool: Pool,
    held: VecDeque<Partial>,
    filling: Option<Partial>,
    sample_bytes: usize,
    block_bytes: usize,
    /// Index of the sample that the next block begins with.
    next: i64,
}

/// A block with samples in it. The last sample may be incomplete.
struct Partial {
    block: Block,
    bytes: usize,
    /// Index of the first sample, counted as if there were no hole before it since the latest one.
    first: i64,
    /// Arrival of the first byte; until then, the time since there has been room for it.
    since: Instant,
}

impl ReceiveBuffer {
    pub(super) fn new(pool: Pool) -> Self {
        let (held, filling) = (VecDeque::new(), None);
        ReceiveBuffer { pool, held, filling, sample_bytes: 1, block_bytes: 1, next: 0 }
    }

    /// Starts at index `first` with samples of this length. The buffer must be empty.
    pub(super) fn begin(&mut self, sample_bytes: usize, block_bytes: usize, first: u64) {
        assert!(self.held.is_empty() && self.filling.is_none(), "samples were left behind");
        assert!(block_bytes > 0 && block_bytes.is_multiple_of(sample_bytes), "whole samples");
        (self.sample_bytes, self.block_bytes) = (sample_bytes, block_bytes);
        self.next = first as i64;
    }

    /// The largest frame that can be taken: uncertified bytes must fit into the blocks.
    pub(super) fn most_frame_bytes(&self) -> u64 {
        self.pool.blocks().saturating_sub(2) as u64 * self.block_bytes as u64
    }

    /// The place for the next bytes; `None` if no block is free.
    pub(super) fn room(&mut self) -> Option<&mut [u8]> {
        if self.filling.is_none() {
            let (block, first) = (self.pool.take()?, self.next);
            self.filling = Some(Partial { block, bytes: 0, first, since: Instant::now() });
        }
        let end = self.block_bytes;
        self.filling.as_mut().map(|partial| &mut partial.block[partial.bytes..end])
    }

    /// Records that `bytes` bytes were written to the beginning of the room.
    pub(super) fn advance(&mut self, bytes: usize) {
        let Some(partial) = &mut self.filling else {
            assert_eq!(bytes, 0, "bytes came where there is no block");
            return;
        };
        if partial.bytes == 0 {
            partial.since = Instant::now();
        }
        partial.bytes += bytes;
        assert!(partial.bytes <= self.block_bytes, "more came than there was room for");
        if partial.bytes == self.block_bytes {
            self.next = partial.first + (self.block_bytes / self.sample_bytes) as i64;
            self.held.extend(self.filling.take());
        }
    }

    /// The next full block whose samples all lie before `certified`, in order.
    pub(super) fn take_certified(&mut self, certified: u64) -> Option<Batch> {
        let front = self.held.front()?;
        let whole = self.certified_bytes(front, certified) == front.bytes;
        let partial = if whole { self.held.pop_front() } else { None };
        partial.map(|partial| self.batch(partial))
    }

    /// The certified part of a block that has waited for `after`. Uncertified bytes move to another block.
    pub(super) fn take_early(&mut self, certified: u64, after: Duration) -> Option<Batch> {
        let oldest = self.held.front().or(self.filling.as_ref())?;
        let good = self.certified_bytes(oldest, certified);
        if good == 0 || oldest.since.elapsed() < after {
            return None;
        }
        let rest = oldest.bytes - good;
        let mut moved = None;
        if rest > 0 {
            let mut block = self.pool.take()?;
            block[..rest].copy_from_slice(&oldest.block[good..good + rest]);
            let first = oldest.first + (good / self.sample_bytes) as i64;
            moved = Some(Partial { block, bytes: rest, first, since: Instant::now() });
        }
        let mut taken = match self.held.pop_front() {
            Some(partial) => {
                // This block was full, so it stays in front of the one being filled.
                moved.into_iter().for_each(|partial| self.held.push_front(partial));
                partial
            }
            None => std::mem::replace(&mut self.filling, moved)?,
        };
        taken.bytes = good;
        if self.filling.is_none() && self.held.is_empty() {
            self.next = taken.first + (good / self.sample_bytes) as i64;
        }
        Some(self.batch(taken))
    }

    /// The certified part of the oldest block, and its age.
    pub(super) fn certified_part(&self, certified: u64) -> Option<(&[u8], Duration)> {
        let oldest = self.held.front().or(self.filling.as_ref())?;
        let good = self.certified_bytes(oldest, certified);
        (good > 0).then(|| (&oldest.block[..good], oldest.since.elapsed()))
    }

    /// Drops every sample from `certified` on. The rest can be taken with [`ReceiveBuffer::take_last`].
    pub(super) fn cut(&mut self, certified: u64) {
        let held = std::mem::take(&mut self.held);
        for mut partial in held.into_iter().chain(self.filling.take()) {
            partial.bytes = self.certified_bytes(&partial, certified);
            match partial.bytes {
                0 => self.pool.put(partial.block),
                _ => self.held.push_back(partial),
            }
        }
        self.next = certified as i64;
    }

    /// Takes the blocks that are left after a cut, in order.
    pub(super) fn take_last(&mut self) -> Option<Batch> {
        let partial = self.held.pop_front()?;
        Some(self.batch(partial))
    }

    /// After a cut, continues to fill a last block that has room, instead of passing it on.
    pub(super) fn resume(&mut self) {
        if self.held.back().is_some_and(|last| last.bytes < self.block_bytes) {
            self.filling = self.held.pop_back();
        }
    }

    /// Sets the index of the next sample.
    pub(super) fn go_on_at(&mut self, index: u64) {
        assert!(self.held.is_empty(), "samples were left behind");
        self.next = index as i64;
        if let Some(partial) = &mut self.filling {
            partial.first = self.next - (partial.bytes / self.sample_bytes) as i64;
        }
    }

    /// Takes back a free block.
    pub(super) fn put(&mut self, block: Block) {
        self.pool.put(block);
    }

    /// The number of blocks in use, the most ever in use, and the total.
    pub(super) fn usage(&self) -> (u64, u64, u64) {
        let (blocks, free) = (self.pool.blocks(), self.pool.free());
        ((blocks - free) as u64, self.pool.high_water() as u64, blocks as u64)
    }

    /// The number of bytes of a block that lie before `certified`.
    fn certified_bytes(&self, partial: &Partial, certified: u64) -> usize {
        let samples = (partial.bytes / self.sample_bytes) as i64;
        (certified as i64 - partial.first).clamp(0, samples) as usize * self.sample_bytes
    }

    fn batch(&self, partial: Partial) -> Batch {
        assert!(partial.bytes.is_multiple_of(self.sample_bytes), "whole samples are handed on");
        let (first, over) = (partial.first.max(0) as u64, partial.since.elapsed());
        Batch { block: partial.block, bytes: partial.bytes, first, over }
    }
}
