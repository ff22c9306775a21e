//! All block memory of one source, fixed at start.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::sys::memory::Region;

/// Blocks of one size, cut from one region. It is owned by the thread that fills them; blocks that
/// were emptied elsewhere come back through a queue and are given back with [`Pool::put`].
pub struct Pool {
    region: Arc<Region>,
    free: Vec<u32>,
    blocks: u32,
    stride: usize,
    lowest: usize,
}

/// The one handle of a block's memory: `stride` bytes, aligned to 4096.
pub struct Block {
    region: Arc<Region>,
    number: u32,
    stride: usize,
}

impl Pool {
    /// Cuts `region` into as many blocks of at least `block_bytes` as it holds.
    ///
    /// `slack` bytes more are kept behind each block for a frame that straddles its end.
    pub fn new(region: Arc<Region>, block_bytes: usize, slack: usize) -> Self {
        let stride = (block_bytes + slack).next_multiple_of(4096);
        let blocks = u32::try_from(region.bytes() / stride).expect("fewer than 2^32 blocks");
        let free = (0..blocks).rev().collect();
        Self { region, free, blocks, stride, lowest: blocks as usize }
    }

    /// A free block, if there is one.
    pub fn take(&mut self) -> Option<Block> {
        let number = self.free.pop()?;
        self.lowest = self.lowest.min(self.free.len());
        Some(Block { region: self.region.clone(), number, stride: self.stride })
    }

    /// Gives a block back.
    pub fn put(&mut self, block: Block) {
        assert!(Arc::ptr_eq(&self.region, &block.region), "a block of another pool");
        self.free.push(block.number);
        assert!(self.free.len() <= self.blocks as usize, "block {} was freed twice", block.number);
    }

    /// Whether its blocks are cut from this region.
    pub fn is_home_of(&self, region: &Arc<Region>) -> bool {
        Arc::ptr_eq(&self.region, region)
    }

    /// The memory that its blocks are cut from.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Blocks in all.
    pub fn blocks(&self) -> usize {
        self.blocks as usize
    }

    /// Blocks that are free now.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// The most blocks that were ever in use at once.
    pub fn high_water(&self) -> usize {
        self.blocks as usize - self.lowest
    }
}

impl Block {
    /// Number of the block in its pool.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The region it is cut from, and where in it the block begins: what a registered buffer needs.
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
    pub(crate) fn extent(&self) -> (usize, usize) {
        (self.number as usize * self.stride, self.stride)
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
}
