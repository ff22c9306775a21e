//! Decides which block goes next on which connection, as a pure state machine.
//!
//! ```text
//!            take              durable
//! new ───────────► in flight ───────────► durable
//!                   │     ▲                  ▲
//!  rejected, lost   ▼     │ take             │ durable, has
//!                 returned                   │
//!                                            │
//! new, in flight, returned ── missing ──► missing
//! ```
//!
//! - A block that exists is in one of these five states. No block is forgotten, and none that is durable goes again.
//! - The receiver is right about what it has: a block in any state becomes durable when the receiver reports it. It can be
//!   one that went on a connection before this one, or in an earlier run of the sender.
//! - The size depends on runs of blocks and on the number of blocks in flight: 20 TB in 5 million blocks that go in
//!   order are a few runs. Lengths are kept for blocks that are not durable, equal ones together.

mod lengths;
#[cfg(test)]
mod model;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use fullbore_core::block_set::BlockSet;

use self::lengths::Lengths;

/// A block of a scan: stream and sequence.
pub type BlockId = (u16, u64);

/// The blocks of a transfer, from known to durable.
#[derive(Debug, Default)]
pub struct Schedule {
    streams: BTreeMap<u16, Stream>,
    /// The connection of each block in flight.
    in_flight: BTreeMap<BlockId, u32>,
    /// Blocks to send again.
    returned: BTreeSet<BlockId>,
    /// The stream whose turn it is, or the next one after it that exists.
    next_stream: u16,
    progress: Progress,
}

/// The blocks of a stream.
#[derive(Debug, Default)]
struct Stream {
    /// Blocks that exist at the source.
    known: BlockSet,
    /// Blocks that were never taken, and are neither durable nor missing.
    new: BlockSet,
    /// Blocks that were taken at least once.
    taken: BlockSet,
    /// Blocks that exist and are durable at the receiver.
    durable: BlockSet,
    /// Blocks that the source cannot read, and the receiver does not have.
    missing: BlockSet,
    /// Blocks that the receiver has, whether they exist at the source or not.
    has: BlockSet,
    /// Lengths of the known blocks that are not durable.
    lengths: Lengths,
}

impl Schedule {
    /// The receiver has these blocks.
    pub fn has(&mut self, stream: u16, blocks: &BlockSet) {
        let it = self.streams.entry(stream).or_default();
        it.has.extend(blocks.runs());
        let known: Vec<_> = blocks.runs().flat_map(|run| it.known.within(run)).collect();
        known.into_iter().for_each(|run| self.settle(stream, run));
    }

    /// The block exists at the source. A block that was added before stays as it is.
    pub fn add(&mut self, block: BlockId, bytes: u32) {
        let (number, sequence) = block;
        let run = sequence..sequence.saturating_add(1);
        let stream = self.streams.entry(number).or_default();
        if run.is_empty() || stream.known.contains(sequence) {
            return;
        }
        stream.known.insert(run.clone());
        stream.new.insert(run.clone());
        stream.lengths.insert(sequence, bytes);
        self.progress.blocks += 1;
        self.progress.bytes += u64::from(bytes);
        if stream.has.contains(sequence) {
            self.settle(number, run);
        }
    }

    /// Returns the next block for a connection, and counts it as in flight there: rejected and returned blocks first,
    /// then the streams in turn, each in order.
    pub fn take(&mut self, connection: u32) -> Option<BlockId> {
        let again = self.returned.pop_first();
        let block = again.or_else(|| self.take_new())?;
        let bytes = u64::from(self.bytes(block));
        self.progress.taken_bytes += bytes;
        if again.is_some() {
            self.progress.again_bytes += bytes;
        }
        self.in_flight.insert(block, connection);
        Some(block)
    }

    /// Takes a block that is in flight on a slower connection, which may still deliver it. False if it is in flight no more.
    pub fn take_over(&mut self, block: BlockId, connection: u32) -> bool {
        let Some(of) = self.in_flight.get_mut(&block) else { return false };
        *of = connection;
        let bytes = u64::from(self.bytes(block));
        self.progress.taken_bytes += bytes;
        self.progress.again_bytes += bytes;
        true
    }

    /// The source cannot read the block. It is not sent, unless the receiver turns out to have it.
    pub fn missing(&mut self, block: BlockId) {
        let Some(stream) = self.streams.get_mut(&block.0) else { return };
        let run = block.1..block.1.saturating_add(1);
        let is_over = stream.durable.contains(block.1) || stream.missing.contains(block.1);
        if is_over || !stream.known.contains(block.1) {
            return;
        }
        stream.new.remove(run.clone());
        stream.missing.insert(run);
        self.progress.missing_blocks += 1;
        self.progress.missing_bytes += u64::from(self.bytes(block));
        self.in_flight.remove(&block);
        self.returned.remove(&block);
    }

    /// The block arrived damaged: it goes again. A block that is not in flight stays as it is.
    pub fn rejected(&mut self, block: BlockId) {
        if self.in_flight.remove(&block).is_some() {
            self.returned.insert(block);
        }
    }

    /// The connection is lost: its blocks that are not durable go again.
    pub fn lost(&mut self, connection: u32) {
        let returned = &mut self.returned;
        self.in_flight.retain(|&block, of| {
            let is_lost = *of == connection;
            if is_lost {
                returned.insert(block);
            }
            !is_lost
        });
    }

    /// These blocks are durable at the receiver. Unknown blocks are an error of the peer, and then nothing is changed.
    pub fn durable(&mut self, stream: u16, blocks: &BlockSet) -> Result<(), String> {
        let known = self.streams.get(&stream).map(|it| &it.known);
        for run in blocks.runs() {
            let unknown = match known {
                Some(known) => known.missing_in(run).next(),
                None => Some(run),
            };
            if let Some(Range { start, .. }) = unknown {
                return Err(format!(
                    "the receiver reports block {start} of stream {stream} as durable, and there is no such block"
                ));
            }
        }
        blocks.runs().for_each(|run| self.settle(stream, run));
        Ok(())
    }

    /// Returns true if every block that exists is durable or missing.
    pub fn is_complete(&self) -> bool {
        self.progress.durable_blocks + self.progress.missing_blocks == self.progress.blocks
    }

    /// The blocks that the source cannot read, in order.
    pub fn missing_blocks(&self) -> Vec<BlockId> {
        let of_stream = |(&number, stream): (&u16, &Stream)| {
            let sequences: Vec<u64> = stream.missing.runs().flatten().collect();
            sequences.into_iter().map(move |sequence| (number, sequence))
        };
        self.streams.iter().flat_map(of_stream).collect()
    }

    /// The progress.
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// Takes the first new block of the next stream that has one.
    fn take_new(&mut self) -> Option<BlockId> {
        let has_new = |(number, stream): (&u16, &Stream)| Some((*number, stream.new.first()?));
        let (turn, streams) = (self.next_stream, &self.streams);
        let mut in_turn = streams.range(turn..).chain(streams.range(..turn));
        let block = in_turn.find_map(has_new)?;
        let stream = self.streams.get_mut(&block.0)?;
        stream.new.remove(block.1..block.1 + 1);
        stream.taken.insert(block.1..block.1 + 1);
        self.next_stream = block.0.wrapping_add(1);
        Some(block)
    }

    /// The length of a block that exists and is not durable.
    fn bytes(&self, block: BlockId) -> u32 {
        let stream = self.streams.get(&block.0);
        let bytes = stream.and_then(|stream| stream.lengths.get(block.1));
        bytes.expect("a block that is not durable has a length")
    }

    /// Makes known blocks durable, those that are not yet.
    fn settle(&mut self, number: u16, run: Range<u64>) {
        let stream = self.streams.get_mut(&number).expect("its blocks are known");
        let news: Vec<_> = stream.durable.missing_in(run).collect();
        for run in news {
            self.progress.durable_blocks += run.end - run.start;
            self.progress.durable_bytes += stream.lengths.sum(run.clone());
            for had in stream.taken.missing_in(run.clone()) {
                self.progress.had_bytes += stream.lengths.sum(had);
            }
            for missing in stream.missing.within(run.clone()) {
                self.progress.missing_blocks -= missing.end - missing.start;
                self.progress.missing_bytes -= stream.lengths.sum(missing);
            }
            stream.new.remove(run.clone());
            stream.missing.remove(run.clone());
            stream.lengths.remove(run.clone());
            stream.durable.insert(run.clone());
            let ids = (number, run.start)..(number, run.end);
            for block in self.in_flight.range(ids.clone()).map(|(id, _)| *id).collect::<Vec<_>>() {
                self.in_flight.remove(&block);
            }
            for block in self.returned.range(ids).copied().collect::<Vec<_>>() {
                self.returned.remove(&block);
            }
        }
    }
}

/// The progress of a transfer.
///
/// `durable + missing ≤ all`, with equality at the end, and `taken − again + had` is the sum of the blocks that went at least
/// once or that the receiver had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Blocks known.
    pub blocks: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Blocks durable at the receiver, those included that it had before.
    pub durable_blocks: u64,
    /// Bytes of them.
    pub durable_bytes: u64,
    /// Bytes that the receiver had before: of durable blocks that were never taken.
    pub had_bytes: u64,
    /// Bytes taken for sending, repetitions included.
    pub taken_bytes: u64,
    /// Bytes taken again after a loss or a rejection.
    pub again_bytes: u64,
    /// Blocks that the source cannot read.
    pub missing_blocks: u64,
    /// Bytes of them.
    pub missing_bytes: u64,
}
