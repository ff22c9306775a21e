//! The block memory of one source, of fixed size.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::{StreamRef, TapFeed, Taps};
use crate::sys::memory::Region;

/// A pool of blocks of one size, cut from one region. The thread that fills the blocks owns it. Blocks that other
/// threads have emptied come back through a queue and are returned with [`Pool::put`].
///
/// A larger block is a run of adjacent blocks. Single blocks are taken from the low end of the region and runs from the
/// high end, so that the free blocks between stay contiguous.
pub struct Pool {
    region: Arc<Region>,
    free: BTreeSet<u32>,
    blocks: u32,
    stride: usize,
    lowest: usize,
    /// Keeps the newest written blocks for taps.
    taps: Option<TapFeed>,
}

/// The one handle of a block's memory: one stride or a run of several, aligned to 4096.
pub struct Block {
    region: Arc<Region>,
    number: u32,
    stride: usize,
    run: u32,
}

impl Pool {
    /// Cuts `region` into as many blocks of at least `block_bytes` as it holds.
    ///
    /// Each block has `slack` more bytes behind it for a frame that crosses its end.
    pub fn new(region: Arc<Region>, block_bytes: usize, slack: usize) -> Self {
        let stride = (block_bytes + slack).next_multiple_of(4096);
        let blocks = u32::try_from(region.bytes() / stride).expect("fewer than 2^32 blocks");
        let free = (0..blocks).collect();
        Self { region, free, blocks, stride, lowest: blocks as usize, taps: None }
    }

    /// Keeps the newest written block of each stream for these taps. Later calls change nothing.
    pub fn feed(&mut self, taps: &Taps) {
        self.taps.get_or_insert_with(|| taps.feed());
    }

    /// Takes a free block, if there is one. A block that is kept for taps is free.
    pub fn take(&mut self) -> Option<Block> {
        if self.free.is_empty() {
            self.take_back();
        }
        let number = self.free.pop_first()?;
        Some(self.hand_out(number, 1))
    }

    /// Takes the blocks back that are kept for taps.
    fn take_back(&mut self) {
        while let Some(block) = self.taps.as_mut().and_then(TapFeed::take_back) {
            self.put(block);
        }
    }

    /// Takes a free block of at least `bytes` bytes, if there is one: a run of blocks if one is too small.
    pub fn take_of(&mut self, bytes: usize) -> Option<Block> {
        let run = u32::try_from(bytes.div_ceil(self.stride).max(1)).ok()?;
        if run == 1 {
            return self.take();
        }
        let first = self.highest_run(run).or_else(|| {
            self.take_back();
            self.highest_run(run)
        })?;
        for number in first..first + run {
            self.free.remove(&number);
        }
        Some(self.hand_out(first, run))
    }

    /// Returns the first block of the highest run of `run` free blocks.
    fn highest_run(&self, run: u32) -> Option<u32> {
        let mut found: Option<(u32, u32)> = None;
        for &number in self.free.iter().rev() {
            let length = match found {
                Some((above, length)) if number + 1 == above => length + 1,
                _ => 1,
            };
            if length == run {
                return Some(number);
            }
            found = Some((number, length));
        }
        None
    }

    fn hand_out(&mut self, number: u32, run: u32) -> Block {
        self.lowest = self.lowest.min(self.free.len());
        Block { region: self.region.clone(), number, stride: self.stride, run }
    }

    /// Returns a block to the pool.
    pub fn put(&mut self, block: Block) {
        assert!(Arc::ptr_eq(&self.region, &block.region), "a block of another pool");
        for number in block.number..block.number + block.run {
            assert!(self.free.insert(number), "block {number} was freed twice");
        }
    }

    /// Returns a block whose first `bytes` have been written. Taps see it while it is the newest of its stream.
    pub fn put_written(&mut self, block: Block, stream_ref: &Arc<StreamRef>, bytes: u32) {
        let Some(mut taps) = self.taps.take() else { return self.put(block) };
        taps.written(block, stream_ref, bytes, |free| self.put(free));
        self.taps = Some(taps);
    }

    /// True if its blocks are cut from this region.
    pub fn is_home_of(&self, region: &Arc<Region>) -> bool {
        Arc::ptr_eq(&self.region, region)
    }

    /// The region of its blocks.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// The number of all blocks.
    pub fn blocks(&self) -> usize {
        self.blocks as usize
    }

    /// The number of free blocks.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// The largest number of blocks in use at once so far.
    pub fn high_water(&self) -> usize {
        self.blocks as usize - self.lowest
    }
}

impl Block {
    /// Number of the block in its pool.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The region of the block and the block's offset in it, as a registered buffer needs them.
    pub fn place(&self) -> (&Arc<Region>, usize) {
        (&self.region, self.number as usize * self.stride)
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.region.slice(self)
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut [u8] {
        let region = self.region.clone();
        region.slice_mut(self)
    }
}

impl Block {
    /// Offset and length in the region.
    pub fn extent(&self) -> (usize, usize) {
        (self.number as usize * self.stride, self.run as usize * self.stride)
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block({})", self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_is_handed_out_once_and_the_high_water_mark_remembers() {
        let region = Arc::new(Region::new(8 << 20).unwrap());
        let mut pool = Pool::new(region, 1 << 20, 0);
        let blocks: Vec<Block> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(blocks.len(), pool.blocks());
        let mut numbers: Vec<u32> = blocks.iter().map(Block::number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), pool.blocks());
        for mut block in blocks {
            let number = block.number() as u8;
            block.fill(number);
            assert_eq!(block.as_ptr() as usize % 4096, 0);
            pool.put(block);
        }
        assert_eq!((pool.free(), pool.high_water()), (8, 8));
    }

    #[test]
    fn a_larger_block_is_a_run_of_free_ones_that_no_other_has() {
        let region = Arc::new(Region::new(2 << 20).unwrap());
        let mut pool = Pool::new(region, 128 << 10, 0);
        let small: Vec<Block> = (0..3).filter_map(|_| pool.take()).collect();
        let mut large: Vec<Block> = std::iter::from_fn(|| pool.take_of(300 << 10)).collect();
        assert_eq!((small.len(), large.len(), pool.free()), (3, 4, 1));
        large.iter_mut().enumerate().for_each(|(n, block)| block.fill(n as u8));
        for (n, block) in large.iter().enumerate() {
            assert_eq!(block.len(), 384 << 10);
            assert!(block.iter().all(|byte| *byte == n as u8), "another block lies in it");
        }
        assert!(pool.take_of(129 << 10).is_none(), "one free block is no run of two");
        small.into_iter().chain(large).for_each(|block| pool.put(block));
        assert_eq!(pool.free(), pool.blocks());
        assert_eq!(pool.take_of(2 << 20).map(|block| block.number()), Some(0), "all of it");
    }
}
