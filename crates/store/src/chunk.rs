//! One open chunk file: blocks enter as they arrive and are released in order.
//!
//! Writes complete in any order. A block counts as written only when every block before it in the chunk is written, so
//! the counted part of the file has no holes. When a write fails, that block and all after it are still in memory and
//! can be written elsewhere: the chunk is *cut* there.
//!
//! ```text
//! released as written │ landed │ in flight │ landed │ waiting …
//!                     └ first slot
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use fullbore_core::index::{Entry, LENGTHS};
use fullbore_core::layout::ALIGNMENT;
use fullbore_linux::ring::{Block, BlockMeta, FullBlock};

use super::journal::Landed;

/// The stage of a chunk's file.
#[derive(Debug)]
pub enum Stage<F> {
    /// The stream's directory or a spare file is still being made.
    Wanted,
    /// The file is being made.
    Making,
    /// The file takes blocks. A spare file takes them while it is still being renamed.
    Open(F),
    /// All blocks are written; the file is being renamed into place.
    Placing(F),
    /// The file is in place; it is closed once all of it is durable.
    Placed(F),
    /// The file could not be made and takes no blocks.
    Dead,
}

/// A chunk that is being filled.
#[derive(Debug)]
pub struct Chunk<F> {
    /// The number within the stream.
    pub number: u32,
    /// The stage of the file.
    pub stage: Stage<F>,
    /// True if the file name has its final number. No block counts as written before, because a reader could not find
    /// it.
    pub named: bool,
    /// End of the blocks accepted, padding included.
    accepted: u64,
    /// End of the blocks released as written, without padding.
    written: u64,
    /// Blocks released as written that are not durable yet.
    pub unpublished: usize,
    /// Reserved bytes of the file. Blocks behind them wait.
    pub space: u64,
    /// Bytes of the last reservation.
    pub step: u64,
    /// True if more space is being taken.
    pub growing: bool,
    slots: VecDeque<Slot>,
    /// Ordinal of the first slot.
    first: u64,
    /// Ordinal of the first block that [`Chunk::take_fitting`] has not returned.
    next_fitting: u64,
    /// Ordinal of the first block that must not be written any more.
    cut: Option<u64>,
}

#[derive(Debug)]
enum Slot {
    Waiting(usize, FullBlock, Option<u32>),
    Flying(usize, BlockMeta),
    Landed(usize, BlockMeta, Block),
    Refused,
}

/// A block that leaves the chunk, and the queue to return it to.
#[derive(Debug)]
pub enum Leaving {
    /// The block and all blocks before it are written.
    Written {
        /// The queue of the capture thread that sent the block.
        lane: usize,
        /// The memory of the block.
        block: Block,
        /// The block's data for the journal.
        landed: Landed,
        /// The block's records for the index.
        entries: Vec<Entry>,
    },
    /// The block must be written elsewhere.
    Refused {
        /// The queue of the capture thread that sent the block.
        lane: usize,
        /// The block as it was sent, with its label.
        filled: FullBlock,
    },
}

/// A write of a block.
#[derive(Debug)]
pub struct Job {
    /// The memory, padded with zeroes.
    pub block: Block,
    /// The offset in the file.
    pub offset: u64,
    /// The number of bytes, padding included.
    pub bytes: u32,
}

impl<F: Clone> Chunk<F> {
    /// Returns a chunk without a file.
    pub fn new(number: u32) -> Self {
        Self {
            number,
            stage: Stage::Wanted,
            named: false,
            accepted: 0,
            written: 0,
            unpublished: 0,
            space: 0,
            step: 0,
            growing: false,
            slots: VecDeque::new(),
            first: 0,
            next_fitting: 0,
            cut: None,
        }
    }

    /// Returns true if a block follows the last one, and the chunk is not cut.
    pub fn takes(&self, filled: &FullBlock) -> bool {
        let follows = filled.offset == self.accepted && self.accepted.is_multiple_of(ALIGNMENT);
        follows && self.cut.is_none()
    }

    /// Accepts such a block and returns its ordinal.
    pub fn push(&mut self, lane: usize, filled: FullBlock) -> u64 {
        assert!(self.takes(&filled), "a block at {} after {}", filled.offset, self.accepted);
        self.accepted += u64::from(padded(filled.bytes));
        let crc = filled.crc;
        self.slots.push_back(Slot::Waiting(lane, filled, crc));
        self.first + self.slots.len() as u64 - 1
    }

    /// Returns the number of bytes to write for a waiting block; `None` if the block is not waiting any more.
    pub fn waiting_bytes(&self, ordinal: u64) -> Option<u32> {
        match self.slots.get(self.place(ordinal)?) {
            Some(Slot::Waiting(_, filled, _)) => Some(padded(filled.bytes)),
            _ => None,
        }
    }

    /// Computes the checksum of a waiting block, so that it can be sent as soon as the disk has room.
    pub fn prepare(&mut self, ordinal: u64) {
        let Some(place) = self.place(ordinal) else { return };
        if let Some(Slot::Waiting(_, filled, crc)) = self.slots.get_mut(place) {
            crc.get_or_insert_with(|| crc32c::crc32c(&filled.block[..filled.bytes as usize]));
        }
    }

    /// Adds reserved space.
    pub fn add_space(&mut self, bytes: u64) {
        self.space += bytes;
        self.step = bytes;
    }

    /// Returns true if the file will reserve space, or waits for it.
    pub fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Wanted | Stage::Making | Stage::Open(_))
    }

    /// Returns a waiting block, with checksum, for writing.
    pub fn send(&mut self, ordinal: u64) -> Option<Job> {
        self.prepare(ordinal);
        let slot = self.slots.get_mut(usize::try_from(ordinal.checked_sub(self.first)?).ok()?)?;
        match std::mem::replace(slot, Slot::Refused) {
            Slot::Waiting(lane, filled, Some(crc)) => {
                let (label, mut block) = BlockMeta::split(filled, crc);
                let (offset, bytes) = (label.block.offset, padded(label.block.bytes));
                block[label.block.bytes as usize..bytes as usize].fill(0);
                *slot = Slot::Flying(lane, label);
                Some(Job { block, offset, bytes })
            }
            other => {
                *slot = other;
                None
            }
        }
    }

    /// Marks a block as landed: its write has completed.
    pub fn land(&mut self, ordinal: u64, block: Block) {
        let place = self.place(ordinal).expect("a block that flies has a slot");
        let slot = std::mem::replace(&mut self.slots[place], Slot::Refused);
        let Slot::Flying(lane, label) = slot else { unreachable!("landed without flying") };
        self.slots[place] = Slot::Landed(lane, label, block);
    }

    /// Marks a block as failed: neither it nor any block behind it counts as written.
    pub fn fail(&mut self, ordinal: u64, block: Block) {
        self.land(ordinal, block);
        self.cut_at(ordinal);
    }

    /// Cuts the chunk before the first block that has not been sent.
    pub fn cut_waiting(&mut self) {
        let waiting = self.slots.iter().position(|slot| matches!(slot, Slot::Waiting(..)));
        let end = self.slots.len();
        self.cut_at(self.first + waiting.unwrap_or(end) as u64);
    }

    /// Cuts the chunk before the first waiting block that ends behind the reserved space.
    pub fn cut_beyond_space(&mut self) {
        let space = self.space;
        let beyond =
            |slot: &Slot| matches!(slot, Slot::Waiting(_, filled, _) if end(filled) > space);
        if let Some(place) = self.slots.iter().position(beyond) {
            self.cut_at(self.first + place as u64);
        }
    }

    /// Cuts the chunk after the last block released as written.
    pub fn cut_all(&mut self) {
        self.cut_at(self.first);
    }

    fn cut_at(&mut self, ordinal: u64) {
        self.cut = Some(self.cut.map_or(ordinal, |cut| cut.min(ordinal)));
    }

    /// Releases every block whose result is known.
    pub fn release(&mut self) -> Vec<Leaving> {
        let mut leaving = self.release_written();
        if let Some(cut) = self.cut {
            let from = cut.saturating_sub(self.first) as usize;
            for slot in self.slots.iter_mut().skip(from) {
                leaving.extend(refuse(slot));
            }
            // Blocks in flight refer to their slots by ordinal, so slots leave from the front only.
            while from == 0 && matches!(self.slots.front(), Some(Slot::Refused)) {
                self.slots.pop_front();
                self.first += 1;
            }
        }
        leaving
    }

    fn release_written(&mut self) -> Vec<Leaving> {
        let mut leaving = vec![];
        while self.named
            && self.cut.is_none_or(|cut| self.first < cut)
            && matches!(self.slots.front(), Some(Slot::Landed(..)))
        {
            let Some(Slot::Landed(lane, label, block)) = self.slots.pop_front() else {
                unreachable!("looked at above");
            };
            self.first += 1;
            let landed = label.block;
            self.written = landed.offset + u64::from(landed.bytes);
            self.unpublished += 1;
            leaving.push(Leaving::Written { lane, block, landed, entries: entries(label) });
        }
        leaving
    }

    /// Returns true if no block is left in it.
    pub fn is_idle(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns the ordinals of waiting blocks that fit into the reserved space. Each ordinal is returned once.
    pub fn take_fitting(&mut self) -> std::ops::Range<u64> {
        let from = self.next_fitting.max(self.first);
        let skipped = (from - self.first) as usize;
        let fits =
            |slot: &&Slot| matches!(slot, Slot::Waiting(_, filled, _) if end(filled) <= self.space);
        let count = self.slots.iter().skip(skipped).take_while(fits).count() as u64;
        self.next_fitting = from + count;
        from..self.next_fitting
    }

    /// End of the blocks accepted.
    pub fn accepted(&self) -> u64 {
        self.accepted
    }

    /// End of the blocks written, which is the file's true length.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Returns true if anything is in it.
    pub fn holds_data(&self) -> bool {
        self.written > 0
    }

    /// The file, if there is one.
    pub fn file(&self) -> Option<F> {
        match &self.stage {
            Stage::Open(file) | Stage::Placing(file) | Stage::Placed(file) => Some(file.clone()),
            Stage::Wanted | Stage::Making | Stage::Dead => None,
        }
    }

    fn place(&self, ordinal: u64) -> Option<usize> {
        usize::try_from(ordinal.checked_sub(self.first)?).ok()
    }
}

/// Takes a block out of a slot, unless a write is using its memory.
fn refuse(slot: &mut Slot) -> Option<Leaving> {
    if matches!(slot, Slot::Flying(..)) {
        return None;
    }
    match std::mem::replace(slot, Slot::Refused) {
        Slot::Waiting(lane, filled, _) => Some(Leaving::Refused { lane, filled }),
        Slot::Landed(lane, label, block) => {
            Some(Leaving::Refused { lane, filled: label.join(block) })
        }
        Slot::Refused => None,
        Slot::Flying(..) => unreachable!("looked at above"),
    }
}

/// The end of a block in its chunk, padding included.
fn end(filled: &FullBlock) -> u64 {
    filled.offset + u64::from(padded(filled.bytes))
}

/// Returns a length rounded up to the alignment of direct I/O.
fn padded(bytes: u32) -> u32 {
    bytes.next_multiple_of(ALIGNMENT as u32)
}

/// A write in flight: the time it was sent, and its progress.
#[derive(Clone, Copy, Debug)]
pub struct Flight {
    /// The place in the chunk.
    pub ordinal: u64,
    /// The offset in the file.
    pub offset: u64,
    /// Bytes of it, padding included.
    pub bytes: u32,
    /// Bytes written so far.
    pub written: u32,
    /// The time it was sent.
    pub since: Duration,
}

/// Returns the index entries of a block: the block, the gaps that became certain, and the lengths of its frames.
fn entries(label: BlockMeta) -> Vec<Entry> {
    let sequence = label.block.sequence;
    let lengths = label.lengths.chunks(LENGTHS).enumerate().map(|(n, lengths)| Entry::Lengths {
        sequence,
        first: (n * LENGTHS) as u32,
        lengths: lengths.to_vec(),
    });
    let gaps = label.gaps.into_iter().map(Entry::Gap);
    [Entry::Block(label.block)].into_iter().chain(lengths).chain(gaps).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fullbore_core::layout::Geometry;
    use fullbore_linux::ring::{Pool, StreamRef};
    use fullbore_linux::sys::memory::Region;
    use fullbore_time::Tai;
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    fn filled(pool: &mut Pool, stream_ref: &Arc<StreamRef>, sequence: u64) -> FullBlock {
        FullBlock {
            block: pool.take().unwrap(),
            stream_ref: stream_ref.clone(),
            sequence,
            chunk: 0,
            offset: sequence * 4096,
            bytes: 4096,
            frames: 1,
            present: 1,
            invalid: 0,
            first: 0,
            time: None,
            seen: Tai(0),
            gaps: vec![],
            lengths: vec![],
            crc: None,
        }
    }

    proptest! {
        #[test]
        fn blocks_are_let_go_once_in_order_and_none_after_a_failed_one_is_written(
            order in Just((0..12u64).collect::<Vec<_>>()).prop_shuffle(),
            failing in prop::option::of(0..12u64),
            cut_after in prop::option::of(0..12usize),
            sent in 0..=12u64,
        ) {
            let mut pool = Pool::new(Arc::new(Region::new(1).unwrap()), 4096, 0);
            let geometry = Geometry { frame_bytes: 4096, block_bytes: 4096, chunk_blocks: 12 };
            let directory = "s_a".to_owned();
            let stream_ref = Arc::new(StreamRef { scan: Uuid::nil(), number: 0, directory, geometry });
            let mut chunk = Chunk::<()>::new(0);
            chunk.named = true;
            let mut flying = std::collections::BTreeMap::new();
            for sequence in 0..12 {
                let ordinal = chunk.push(0, filled(&mut pool, &stream_ref, sequence));
                prop_assert_eq!(ordinal, sequence);
            }
            for ordinal in 0..sent {
                flying.insert(ordinal, chunk.send(ordinal).unwrap().block);
            }
            let (mut written, mut refused) = (vec![], vec![]);
            for (turn, ordinal) in order.into_iter().enumerate() {
                if cut_after == Some(turn) {
                    chunk.cut_waiting();
                }
                let Some(block) = flying.remove(&ordinal) else { continue };
                if failing == Some(ordinal) {
                    chunk.fail(ordinal, block);
                } else {
                    chunk.land(ordinal, block);
                }
                for leaving in chunk.release() {
                    match leaving {
                        Leaving::Written { landed, .. } => written.push(landed.sequence),
                        Leaving::Refused { filled, .. } => refused.push(filled.sequence),
                    }
                }
            }
            chunk.cut_waiting();
            for leaving in chunk.release() {
                match leaving {
                    Leaving::Written { landed, .. } => written.push(landed.sequence),
                    Leaving::Refused { filled, .. } => refused.push(filled.sequence),
                }
            }
            prop_assert!(chunk.is_idle());
            let prefix: Vec<u64> = (0..failing.unwrap_or(12).min(sent)).collect();
            prop_assert_eq!(chunk.written(), prefix.len() as u64 * 4096);
            prop_assert_eq!(&written, &prefix);
            refused.sort_unstable();
            let rest: Vec<u64> = (prefix.len() as u64..12).collect();
            prop_assert_eq!(refused, rest);
        }
    }
}
