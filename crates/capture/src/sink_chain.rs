//! Several sinks: a full block goes to the first sink, and from there to the next. After the last one it is free.
//!
//! ```text
//!                ┌─ written, or refused ─┐   ┌─ in the order of the stream
//! block ──► striper of sink 0 ──► gate 1 ──► striper of sink 1 ──► … ──► free, or lost in every sink
//! ```
//!
//! No block is copied, and one sink at a time has it: its writers need no reference counts. Writers of a sink with
//! several members complete blocks in any order. A *gate* before each sink restores the order of the stream.
//!
//! A block that a sink does not take goes on to the next one. That sink lacks the block: its account counts the frames
//! as overrun, and its index gets them as gaps. Only a block that no sink took is returned to the caller as lost.
//! A recording with one sink has one striper and no gate.
//!
//! Each store has a scan of its own ([`scan_in_store`]): two stores of one recording must never be read as one disk set.

#[cfg(test)]
mod model;

use std::collections::BTreeMap;
use std::sync::Arc;

use fullbore_core::gap::Gap;
use fullbore_core::partial_block::BlockState;
use fullbore_core::redundancy::Scheme;
use fullbore_time::Tai;
use uuid::Uuid;

use super::partial_block::OpenBlock;
use super::scan_stream::Lost;
use super::striping::{StripeCursor, Striper, WriterQueue};
use fullbore_linux::ring::{Block, BlockMeta, FullBlock, StreamRef, WriterReply};
use fullbore_store::partial_blocks::PartialBlockJournal;

/// The queues of a capture thread to one sink, and the sink's wishes.
pub struct SinkQueues {
    /// A pair of queues for each writer.
    pub queues: Vec<WriterQueue>,
    /// The journal of partial blocks, if the sink has one.
    pub journal: Option<PartialBlockJournal>,
    /// The redundancy scheme, if the sink has one.
    pub redundancy: Option<Scheme>,
    /// True if each stream goes only to the target with its number.
    pub own_targets: bool,
    /// The number of a store among the stores of the recording, from 0. 0 also for other sinks.
    pub store: u16,
}

/// The scan of a recording in the store with this number. In the first store, and in sinks that are no stores, it is the
/// scan of the recording. Applied to the result, it returns the scan of the recording.
pub fn scan_in_store(scan: Uuid, store: u16) -> Uuid {
    // The last bytes of these identities are random.
    Uuid::from_u128(scan.as_u128() ^ u128::from(store))
}

impl SinkQueues {
    /// The queues to a sink without wishes.
    pub fn plain(queues: Vec<WriterQueue>) -> Self {
        Self { queues, journal: None, redundancy: None, own_targets: false, store: 0 }
    }

    fn striper(self) -> Striper {
        Striper::new(self.queues)
            .with_journal(self.journal)
            .with_own_members(self.own_targets)
            .for_stripes(self.redundancy)
    }
}

/// The way of a capture thread's blocks through all sinks.
pub struct SinkChain {
    links: Vec<Striper>,
    /// The number of each sink among the stores.
    stores: Vec<u16>,
}

/// The state of a stream in each sink.
#[derive(Debug)]
pub struct ChainCursor {
    /// One for each sink, as soon as a block is sent.
    links: Vec<StripeCursor>,
    gates: Vec<Gate>,
    shares: Vec<Share>,
    /// Blocks with writers, by their place in memory. Empty if there is one sink.
    passing: BTreeMap<usize, Passing>,
    /// True if indexes of the stream list no gaps.
    without_gaps: bool,
    /// Blocks and bytes that at least one sink has written, if there are several.
    written: (u64, u64),
}

/// Blocks before a sink, which takes them in the order of the stream.
#[derive(Debug, Default)]
struct Gate {
    /// The sequence number of the next block.
    next: u64,
    waiting: BTreeMap<u64, Traveller>,
}

/// A block between two sinks.
#[derive(Debug)]
struct Traveller {
    filled: FullBlock,
    /// The sinks that have not taken it.
    missed: Vec<usize>,
}

/// What a block was before a writer got it.
#[derive(Debug)]
struct Passing {
    label: BlockMeta,
    crc: Option<u32>,
    missed: Vec<usize>,
}

/// What one sink lacks of a stream, and another sink has.
#[derive(Debug, Default)]
pub struct Share {
    /// Blocks that the sink has not taken.
    pub(super) lost: Vec<Lost>,
    /// Gaps that its index does not contain yet.
    pending: Vec<Gap>,
}

impl Share {
    /// The number of frames in the blocks that the sink has not taken.
    pub fn lost_frames(&self) -> u64 {
        self.lost.iter().map(|lost| u64::from(lost.frames)).sum()
    }
}

/// A reply of a writer of one sink.
#[derive(Debug)]
pub struct SinkReply {
    sink: usize,
    store: u16,
    reply: WriterReply,
}

impl SinkReply {
    /// The scan and the number of the block's stream.
    pub fn stream(&self) -> (Uuid, u16) {
        let stream_ref = match &self.reply {
            WriterReply::Written { stream_ref, .. } => stream_ref,
            WriterReply::Refused(filled) => &filled.stream_ref,
        };
        (scan_in_store(stream_ref.scan, self.store), stream_ref.number)
    }

    /// The memory of the block.
    pub fn block(&self) -> &Block {
        match &self.reply {
            WriterReply::Written { block, .. } => block,
            WriterReply::Refused(filled) => &filled.block,
        }
    }

    /// Takes the memory of the block out of the reply.
    pub fn into_block(self) -> Block {
        match self.reply {
            WriterReply::Written { block, .. } => block,
            WriterReply::Refused(filled) => filled.block,
        }
    }
}

/// A block that a sink has written, and that no sink needs any more.
#[derive(Debug)]
pub struct WrittenBlock {
    /// The memory.
    pub block: Block,
    /// The stream.
    pub stream_ref: Arc<StreamRef>,
    /// The number of bytes written.
    pub bytes: u32,
}

/// Blocks whose way through the sinks is over.
#[derive(Debug, Default)]
pub struct Settled {
    /// Blocks that at least one sink has written.
    pub written: Vec<WrittenBlock>,
    /// Blocks that no sink has written.
    pub lost: Vec<FullBlock>,
}

impl ChainCursor {
    /// The state of a stream that has sent no block.
    pub fn new(stream_ref: Arc<StreamRef>) -> Self {
        Self {
            links: vec![StripeCursor::new(stream_ref)],
            gates: Vec::new(),
            shares: Vec::new(),
            passing: BTreeMap::new(),
            without_gaps: false,
            written: (0, 0),
        }
    }

    /// Lists no lost frames in the indexes of the stream, because its samples have no index of their own.
    pub fn without_gaps(self) -> Self {
        Self { without_gaps: true, ..self }
    }

    /// The stream.
    pub fn stream_ref(&self) -> &Arc<StreamRef> {
        self.links[0].stream_ref()
    }

    /// Takes the sequence number of the next block, which must then be dispatched.
    pub fn take_sequence(&mut self) -> u64 {
        let [first, others @ ..] = self.links.as_mut_slice() else {
            unreachable!("there is a sink")
        };
        for other in others {
            other.take_sequence();
        }
        first.take_sequence()
    }

    /// Marks the bytes of a partial block from `offset` on as changed.
    #[inline]
    pub fn touch(&mut self, first: i64, offset: u32) {
        for link in &mut self.links {
            link.partial_blocks().touch(first, offset);
        }
    }

    /// True if every block is written or dropped.
    pub fn settled(&self) -> bool {
        self.links.iter().all(StripeCursor::settled)
            && self.gates.iter().all(|gate| gate.waiting.is_empty())
    }

    /// Blocks and bytes that at least one sink has written.
    pub fn written(&self) -> (u64, u64) {
        match self.links.as_slice() {
            [only] => only.written(),
            _ => self.written,
        }
    }

    /// Blocks and bytes that each sink has written, and what it lacks. Empty if there is one sink.
    pub fn shares(&self) -> impl Iterator<Item = ((u64, u64), &Share)> {
        self.links.iter().map(StripeCursor::written).zip(&self.shares)
    }

    /// Adds the state in each sink. `stores` has the number of each sink among the stores.
    fn fit(&mut self, stores: &[u16]) {
        let sinks = stores.len();
        while self.links.len() < sinks {
            let stream_ref = self.stream_in_store(stores[self.links.len()]);
            self.links.push(self.links[0].beside(stream_ref));
        }
        if sinks > 1 {
            self.gates.resize_with(sinks, Gate::default);
            self.shares.resize_with(sinks, Share::default);
        }
    }

    /// The stream in a store.
    fn stream_in_store(&self, store: u16) -> Arc<StreamRef> {
        let stream_ref = self.stream_ref();
        match store {
            0 => stream_ref.clone(),
            _ => Arc::new(StreamRef {
                scan: scan_in_store(stream_ref.scan, store),
                directory: stream_ref.directory.clone(),
                ..**stream_ref
            }),
        }
    }

    /// Gives a block back that a sink has not taken, as it was before. The gaps of the sink alone stay with the sink.
    fn missed(&mut self, sink: usize, mut filled: FullBlock, passing: Passing) -> Traveller {
        let Passing { label, crc, mut missed } = passing;
        let own = filled.gaps.len() - label.gaps.len();
        self.shares[sink].pending.splice(0..0, filled.gaps.drain(..own));
        filled.crc = crc;
        filled.stream_ref = label.stream_ref;
        missed.push(sink);
        Traveller { filled, missed }
    }

    /// The way of a block is over.
    fn leave(&mut self, traveller: Traveller, settled: &mut Settled) {
        let Traveller { filled, missed } = traveller;
        if missed.len() == self.links.len() {
            return settled.lost.push(filled);
        }
        for sink in missed {
            let (lost, gaps) = Lost::of(&filled);
            let share = &mut self.shares[sink];
            share.lost.push(lost);
            if !self.without_gaps {
                share.pending.extend(gaps);
            }
        }
        let FullBlock { block, stream_ref, bytes, .. } = filled;
        self.written.0 += 1;
        self.written.1 += u64::from(bytes);
        settled.written.push(WrittenBlock { block, stream_ref, bytes });
    }
}

impl SinkChain {
    /// A chain of sinks, each with its queues.
    pub fn new(sinks: Vec<SinkQueues>) -> Self {
        let stores = sinks.iter().map(|sink| sink.store).collect();
        Self { stores, ..Self::of_stripers(sinks.into_iter().map(SinkQueues::striper).collect()) }
    }

    /// A chain of these stripers, one for each sink.
    pub fn of_stripers(links: Vec<Striper>) -> Self {
        assert!(!links.is_empty(), "a recording has at least one sink");
        Self { stores: vec![0; links.len()], links }
    }

    /// Sends a block on its way. Returns it if no sink accepts it.
    pub fn dispatch(&mut self, cursor: &mut ChainCursor, filled: FullBlock) -> Option<FullBlock> {
        if let [only] = self.links.as_mut_slice() {
            return only.dispatch(&mut cursor.links[0], filled);
        }
        cursor.fit(&self.stores);
        let mut settled = Settled::default();
        self.arrive(cursor, 0, Traveller { filled, missed: Vec::new() }, &mut settled);
        settled.lost.pop()
    }

    /// Returns the next reply of any writer. Sends waiting finishes as far as there is room.
    pub fn take_returned(&mut self) -> Option<SinkReply> {
        let mut links = self.links.iter_mut().zip(&self.stores).enumerate();
        links.find_map(|(sink, (link, &store))| {
            Some(SinkReply { sink, store, reply: link.take_returned()? })
        })
    }

    /// Processes a reply for a block of this stream. Returns the blocks whose way is over.
    pub fn settle(&mut self, cursor: &mut ChainCursor, reply: SinkReply) -> Settled {
        let SinkReply { sink, reply, .. } = reply;
        let mut settled = Settled::default();
        let link = &mut self.links[sink];
        let lost = match reply {
            WriterReply::Written { block, stream_ref, bytes } => {
                let lost = link.written(&mut cursor.links[sink], bytes);
                if self.links.len() == 1 {
                    settled.written.push(WrittenBlock { block, stream_ref, bytes });
                } else {
                    let passing = cursor.passing.remove(&block.place().1);
                    let Passing { label, crc, missed } = passing.expect("the writer had it");
                    let filled = FullBlock { crc, ..label.join(block) };
                    let traveller = Traveller { filled, missed };
                    self.arrive(cursor, sink + 1, traveller, &mut settled);
                }
                lost
            }
            WriterReply::Refused(filled) => link.refused(&mut cursor.links[sink], filled),
        };
        if self.links.len() == 1 {
            return Settled { lost, ..settled };
        }
        for filled in lost {
            let passing = cursor.passing.remove(&filled.block.place().1);
            let traveller = cursor.missed(sink, filled, passing.expect("the striper had it"));
            self.arrive(cursor, sink + 1, traveller, &mut settled);
        }
        settled
    }

    /// A block comes to the gate of a sink. Blocks whose turn it is go on.
    fn arrive(
        &mut self,
        cursor: &mut ChainCursor,
        sink: usize,
        traveller: Traveller,
        settled: &mut Settled,
    ) {
        if sink == self.links.len() {
            return cursor.leave(traveller, settled);
        }
        cursor.gates[sink].waiting.insert(traveller.filled.sequence, traveller);
        loop {
            let gate = &mut cursor.gates[sink];
            let Some(traveller) = gate.waiting.remove(&gate.next) else { return };
            gate.next += 1;
            if let Some(traveller) = self.send(cursor, sink, traveller) {
                self.arrive(cursor, sink + 1, traveller, settled);
            }
        }
    }

    /// Sends a block to a sink, with the gaps of that sink. Returns it if the sink does not take it.
    fn send(
        &mut self,
        cursor: &mut ChainCursor,
        sink: usize,
        traveller: Traveller,
    ) -> Option<Traveller> {
        let Traveller { mut filled, missed } = traveller;
        let passing = Passing { label: BlockMeta::of(&filled), crc: filled.crc, missed };
        let own = std::mem::take(&mut cursor.shares[sink].pending);
        filled.gaps.splice(0..0, own);
        filled.stream_ref = cursor.links[sink].stream_ref().clone();
        let place = filled.block.place().1;
        match self.links[sink].dispatch(&mut cursor.links[sink], filled) {
            None => {
                cursor.passing.insert(place, passing);
                None
            }
            Some(filled) => Some(cursor.missed(sink, filled, passing)),
        }
    }

    /// Tells every writer that the stream has ended.
    pub fn finish(&mut self, cursor: &mut ChainCursor, gaps: Vec<Gap>) {
        if let [only] = self.links.as_mut_slice() {
            return only.finish(&cursor.links[0], gaps);
        }
        cursor.fit(&self.stores);
        for (sink, link) in self.links.iter_mut().enumerate() {
            let mut own = std::mem::take(&mut cursor.shares[sink].pending);
            own.extend_from_slice(&gaps);
            link.finish(&cursor.links[sink], own);
        }
    }

    /// From now on no block is sent. Blocks with writers are still written.
    pub fn abort(&mut self) {
        self.links.iter_mut().for_each(Striper::abort);
    }

    /// True if a writer has ended while blocks may still arrive. Blocks with it are neither written nor returned.
    pub fn has_lost_a_writer(&self) -> bool {
        self.links.iter().any(Striper::has_lost_a_writer)
    }

    /// True if no finish waits for room.
    pub fn all_sent(&self) -> bool {
        self.links.iter().all(Striper::all_sent)
    }

    /// True if the data of a stream that is open since `oldest` should be journaled now.
    pub fn is_journal_due(&self, cursor: &mut ChainCursor, oldest: Tai, now: Tai) -> bool {
        cursor.fit(&self.stores);
        let mut links = self.links.iter().zip(&mut cursor.links);
        links.any(|(link, cursor)| link.is_journal_due(cursor, oldest, now))
    }

    /// Journals new data of a stream's partial blocks in each sink that has a journal.
    pub fn journal_partial_blocks(
        &self,
        cursor: &mut ChainCursor,
        now: Tai,
        open: &[OpenBlock],
        copy: &mut dyn FnMut(usize, std::ops::Range<u32>) -> (u32, Vec<u8>),
        describe: &mut dyn FnMut() -> Vec<BlockState>,
    ) {
        for (link, cursor) in self.links.iter().zip(&mut cursor.links) {
            link.journal_partial_blocks(cursor, now, open, copy, describe);
        }
    }
}
