//! Writers as seen by a capture thread, for model tests of the striper and of the chain of sinks. The environment chooses
//! the next step: blocks are filled; writers take commands, write, fill up, die or are recalled; streams end; everything
//! is aborted.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fullbore_core::layout::Geometry;
use fullbore_linux::ring::{
    FullBlock, Notifier, Pool, ReplySender, StreamRef, WriterCommand, WriterMetrics, WriterReply,
    reply_queue,
};
use fullbore_linux::sys::memory::Region;
use proptest::prelude::*;
use uuid::Uuid;

use super::striping::WriterQueue;

/// The number of blocks: few, so that they run out.
pub const BLOCKS: usize = 12;

/// Bytes of a block.
pub const BLOCK_BYTES: u32 = 4096;

/// Blocks of a chunk.
pub const CHUNK_BLOCKS: u32 = 3;

/// The smallest region that can be mapped.
const REGION_BYTES: usize = 2 << 20;

/// The next step. Writers and streams are taken modulo their number.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// A stream fills this many blocks, as far as blocks are free.
    Fill(u8, u8),
    /// A writer takes this many commands.
    Take(u8, u8),
    /// A writer writes its oldest block.
    Write(u8),
    /// A writer has no room for another chunk. It still fills chunks that it has begun, as far as it can.
    FillUp(u8),
    /// A writer writes no more.
    Die(u8),
    /// A writer is recalled, and accepts data again if it holds no block.
    Recall(u8),
    /// The capture thread takes a reply.
    Answer,
    /// A stream ends.
    End(u8),
    /// All streams end, and nothing is sent any more.
    Abort,
}

/// Steps in any order.
pub fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => (any::<u8>(), 1u8..8).prop_map(|(stream, count)| Step::Fill(stream, count)),
        12 => (any::<u8>(), 1u8..6).prop_map(|(writer, count)| Step::Take(writer, count)),
        16 => any::<u8>().prop_map(Step::Write),
        2 => any::<u8>().prop_map(Step::FillUp),
        1 => any::<u8>().prop_map(Step::Die),
        3 => any::<u8>().prop_map(Step::Recall),
        18 => Just(Step::Answer),
        1 => any::<u8>().prop_map(Step::End),
    ];
    let end = prop::option::weighted(0.2, (any::<prop::sample::Index>(), Just(Step::Abort)));
    (prop::collection::vec(step, 1..200), end).prop_map(|(mut steps, end)| {
        if let Some((at, abort)) = end {
            steps.insert(at.index(steps.len() + 1), abort);
        }
        steps
    })
}

/// A pool of [`BLOCKS`].
pub fn pool() -> Pool {
    let region = Region::new(REGION_BYTES).unwrap();
    // There is more memory than the blocks fill, so that their number is the limit.
    let pool = Pool::new(Arc::new(region), REGION_BYTES / (BLOCKS + 1) + 4096, 0);
    assert_eq!(pool.blocks(), BLOCKS);
    pool
}

/// A stream of the only scan.
pub fn stream_ref(number: usize) -> Arc<StreamRef> {
    let (frame_bytes, block_bytes) = (BLOCK_BYTES, BLOCK_BYTES);
    let geometry = Geometry { frame_bytes, block_bytes, chunk_blocks: CHUNK_BLOCKS };
    let (scan, directory) = (Uuid::nil(), format!("s_a_ds{number}"));
    Arc::new(StreamRef { scan, number: number as u16, directory, geometry })
}

/// The state of a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriterState {
    Taking,
    /// Chunks that it has begun are filled, as long as it can.
    Full,
    Dead,
}

/// A writer.
pub struct Writer {
    pub commands: rtrb::Consumer<WriterCommand>,
    returned: ReplySender,
    pub metrics: Arc<WriterMetrics>,
    state: WriterState,
    pub held: VecDeque<FullBlock>,
    /// Chunks of which it accepted the first block. It accepts no later block of other chunks, so that after a refused
    /// block the rest of its chunk is refused too.
    begun: BTreeSet<(u16, u32)>,
}

impl Writer {
    /// A writer, and its queue in the capture thread.
    pub fn new() -> (WriterQueue, Self) {
        let (to, commands) = rtrb::RingBuffer::new(BLOCKS + 2);
        let (returned, from) = reply_queue(BLOCKS);
        let metrics = Arc::new(WriterMetrics::default());
        let wake = Arc::new(Notifier::new().unwrap());
        let queue = WriterQueue::new(to, from, metrics.clone(), wake, BLOCKS);
        let (state, held, begun) = (WriterState::Taking, VecDeque::new(), BTreeSet::new());
        (queue, Self { commands, returned, metrics, state, held, begun })
    }

    /// Ends the write of its oldest block: the block is written and seen by `written`, or refused.
    pub fn write(&mut self, written: impl FnOnce(&FullBlock)) {
        let Some(filled) = self.held.pop_front() else { return };
        let place = (filled.stream_ref.number, filled.chunk);
        let goes_on = self.begun.contains(&place);
        let can = match self.state {
            WriterState::Taking => goes_on || filled.offset == 0,
            WriterState::Full => goes_on,
            WriterState::Dead => false,
        };
        self.metrics.backlog_bytes.fetch_sub(filled.bytes.into(), Ordering::Relaxed);
        let reply = if can {
            self.begun.insert(place);
            written(&filled);
            let FullBlock { block, stream_ref, bytes, .. } = filled;
            WriterReply::Written { block, stream_ref, bytes }
        } else {
            WriterReply::Refused(filled)
        };
        assert!(self.returned.push(reply).is_ok(), "there is room for every block");
    }

    /// Fills up or dies. Returns true if it had not died before.
    pub fn fail(&mut self, how: WriterState) -> bool {
        let was_alive = self.state != WriterState::Dead;
        if was_alive {
            self.state = how;
            self.metrics.refusing.store(true, Ordering::Relaxed);
        }
        was_alive
    }

    pub fn recall(&mut self) {
        if self.is_idle() {
            self.state = WriterState::Taking;
            self.begun.clear();
            self.metrics.refusing.store(false, Ordering::Relaxed);
        }
    }

    /// True if it holds no block, and none is on the way to it.
    pub fn is_idle(&self) -> bool {
        self.commands.is_empty() && self.held.is_empty()
    }
}
