//! Striping over the members: the least loaded member receives the next chunk. With redundancy that member holds none
//! of the stream's newest chunks, so that these form a full stripe.
//!
//! ```text
//! stream ─► chunk 0 on member 1 │ chunk 1 on member 0 │ chunk 2 on member 1 │ …
//! ```
//!
//! A chunk is on one member. A member that refuses a block also refuses every later block of that chunk, in order. The
//! stream's new blocks wait here until all of its blocks are settled, so that files keep the order of the stream. A
//! chunk that was refused as a whole then moves with its number. The rest of a chunk that was begun continues in a new
//! file under the next free number. Every file is one contiguous piece of the stream. If the numbers are not in stream
//! order, files are renamed when the scan is sealed.

#[cfg(test)]
mod model;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fullbore_core::gap::Gap;
use fullbore_core::partial_block::BlockState;
use fullbore_core::redundancy::Scheme;
use fullbore_linux::ring::{
    FullBlock, Notifier, ReplyReceiver, StreamRef, WriterCommand, WriterMetrics, WriterReply,
};
use fullbore_store::partial_blocks::PartialBlockJournal;
use fullbore_time::Tai;

use super::partial_block::{OpenBlock, PartialBlocks};

/// The queues to the writer of a member and back.
///
/// ```text
/// commands   | blocks: room for all blocks | finishes: as many as fit beside them | … more wait here
/// ```
pub struct WriterQueue {
    /// To its writer.
    commands: rtrb::Producer<WriterCommand>,
    /// From its writer.
    returned: ReplyReceiver,
    /// The metrics.
    metrics: Arc<WriterMetrics>,
    /// Wakes its writer.
    wake: Arc<Notifier>,
    /// The most blocks that can be with the writer; the queue has room for all of them.
    most_blocks: usize,
    /// Blocks that are with the writer now.
    blocks: usize,
    /// Finishes without room in the queue: many streams may end while a writer is stalled.
    waiting: VecDeque<WriterCommand>,
}

impl WriterQueue {
    /// Room for finishes besides blocks; further ones wait.
    pub const FINISHES: usize = 256;

    /// A pair of queues with room for `most_blocks` blocks, and for finishes.
    pub fn new(
        commands: rtrb::Producer<WriterCommand>,
        returned: ReplyReceiver,
        metrics: Arc<WriterMetrics>,
        wake: Arc<Notifier>,
        most_blocks: usize,
    ) -> Self {
        let waiting = VecDeque::new();
        Self { commands, returned, metrics, wake, most_blocks, blocks: 0, waiting }
    }

    /// Sends a block to the writer. At most the number of blocks given to `new` may be with it at once.
    pub fn write(&mut self, filled: FullBlock) {
        self.blocks += 1;
        self.metrics.backlog_bytes.fetch_add(filled.bytes.into(), Ordering::Relaxed);
        let sent = self.commands.push(WriterCommand::Write(filled));
        assert!(sent.is_ok(), "a queue has room for every block of the pools");
        self.wake.wake();
    }

    /// Tells the writer that a stream has ended.
    pub fn finish(&mut self, stream_ref: Arc<StreamRef>, gaps: Vec<Gap>) {
        self.waiting.push_back(WriterCommand::Finish { stream_ref, gaps });
        self.send_waiting();
    }

    /// Sends waiting finishes into the room that blocks cannot need.
    fn send_waiting(&mut self) {
        if self.commands.is_abandoned() {
            // The writer is gone and finishes nothing.
            self.waiting.clear();
        }
        let to_come = self.most_blocks.saturating_sub(self.blocks);
        while self.commands.slots() > to_come
            && let Some(finish) = self.waiting.pop_front()
        {
            let sent = self.commands.push(finish);
            assert!(sent.is_ok(), "a slot was free");
            self.wake.wake();
        }
    }

    /// Returns the next reply of the writer, if there is one.
    pub fn take_returned(&mut self) -> Option<WriterReply> {
        if !self.waiting.is_empty() {
            self.send_waiting();
        }
        let returned = self.returned.pop().ok()?;
        self.blocks -= 1;
        Some(returned)
    }
}

/// The striper of a capture thread: it dispatches blocks to the queues of the members.
pub struct Striper {
    queues: Vec<WriterQueue>,
    /// The member that wins the next tie.
    turn: usize,
    /// True after an abort: nothing is sent any more, and held blocks are returned to be counted.
    aborted: bool,
    /// The journal of partial blocks, if there is one.
    journal: Option<PartialBlockJournal>,
    /// The number of a stream's newest chunks whose members are avoided for its next chunk.
    apart: usize,
    /// True if each stream has a member of its own, the one with its number.
    own_member: bool,
}

/// The striping state of a stream: current chunk, blocks with writers, refused blocks.
#[derive(Debug)]
pub struct StripeCursor {
    stream_ref: Arc<StreamRef>,
    next_sequence: u64,
    /// The sequence number after the newest block sent.
    dealt: u64,
    next_chunk: u32,
    current: Option<Chunk>,
    /// Members that received blocks: only these have an index.
    holders: BTreeSet<usize>,
    /// Members that hold its newest chunks, the newest last.
    recent: VecDeque<usize>,
    /// Blocks with the writers.
    outstanding: u64,
    /// Refused blocks, until all blocks are settled.
    refused: Vec<FullBlock>,
    /// Newer blocks, which wait behind the refused ones.
    held: VecDeque<FullBlock>,
    blocks: u64,
    bytes: u64,
    /// The journal state of its partial blocks.
    partial_blocks: PartialBlocks,
}

/// The chunk that a stream is filling.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    number: u32,
    member: usize,
    /// Blocks sent to it.
    blocks: u32,
    bytes: u64,
}

impl StripeCursor {
    /// The state of a stream that has sent no block.
    pub fn new(stream_ref: Arc<StreamRef>) -> Self {
        Self {
            stream_ref,
            next_sequence: 0,
            dealt: 0,
            next_chunk: 0,
            current: None,
            holders: BTreeSet::new(),
            recent: VecDeque::new(),
            outstanding: 0,
            refused: Vec::new(),
            held: VecDeque::new(),
            blocks: 0,
            bytes: 0,
            partial_blocks: PartialBlocks::default(),
        }
    }

    /// The state of the same stream in another sink that has got no block, where it is `stream_ref`.
    pub fn beside(&self, stream_ref: Arc<StreamRef>) -> Self {
        Self { next_sequence: self.next_sequence, ..Self::new(stream_ref) }
    }

    /// The stream.
    pub fn stream_ref(&self) -> &Arc<StreamRef> {
        &self.stream_ref
    }

    /// Takes the sequence number of the next block.
    pub fn take_sequence(&mut self) -> u64 {
        self.next_sequence += 1;
        self.next_sequence - 1
    }

    /// The sequence number that the next block will have.
    pub fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    /// The journal state of its partial blocks.
    pub fn partial_blocks(&mut self) -> &mut PartialBlocks {
        &mut self.partial_blocks
    }

    /// True if every block is written or dropped.
    pub fn settled(&self) -> bool {
        self.outstanding == 0 && self.held.is_empty() && self.refused.is_empty()
    }

    /// Blocks and bytes written.
    pub fn written(&self) -> (u64, u64) {
        (self.blocks, self.bytes)
    }
}

impl Striper {
    /// A striper over these queues, one per member.
    pub fn new(queues: Vec<WriterQueue>) -> Self {
        assert!(!queues.is_empty(), "a disk set has at least one member");
        Self { queues, turn: 0, aborted: false, journal: None, apart: 0, own_member: false }
    }

    /// Keeps a stream's newest chunks on different members, as many as a stripe needs, if there are stripes.
    pub fn for_stripes(self, redundancy: Option<Scheme>) -> Self {
        let widest = redundancy.map_or(1, |scheme| scheme.widest(self.queues.len()));
        Self { apart: widest - 1, ..self }
    }

    /// Sends each stream only to the member with its number, if `own` is set.
    pub fn with_own_members(self, own: bool) -> Self {
        Self { own_member: own, ..self }
    }

    /// Sets the journal of partial blocks.
    pub fn with_journal(self, journal: Option<PartialBlockJournal>) -> Self {
        Self { journal, ..self }
    }

    /// True if the data of a stream that is open since `oldest` should be journaled now.
    pub fn is_journal_due(&self, cursor: &mut StripeCursor, oldest: Tai, now: Tai) -> bool {
        self.journal.is_some() && !self.aborted && cursor.partial_blocks.is_due(oldest, now)
    }

    /// Journals new data of a stream's partial blocks, as `PartialBlocks::keep` does.
    pub fn journal_partial_blocks(
        &self,
        cursor: &mut StripeCursor,
        now: Tai,
        open: &[OpenBlock],
        copy: &mut dyn FnMut(usize, std::ops::Range<u32>) -> (u32, Vec<u8>),
        describe: &mut dyn FnMut() -> Vec<BlockState>,
    ) {
        let Some(journal) = &self.journal else { return };
        let taking = |member: usize| !self.queues[member].metrics.refusing.load(Ordering::Relaxed);
        PartialBlocks::keep(cursor, journal, self.queues.len(), &taking, now, open, copy, describe);
    }

    /// From now on no block is sent. Blocks with writers are still written.
    pub fn abort(&mut self) {
        self.aborted = true;
    }

    /// Sends a block to a member. Returns blocks that no member accepts.
    pub fn dispatch(&mut self, cursor: &mut StripeCursor, filled: FullBlock) -> Option<FullBlock> {
        if !cursor.refused.is_empty() {
            cursor.held.push_back(filled);
            return None;
        }
        let full = cursor.stream_ref.geometry.chunk_blocks;
        if self.aborted {
            return Some(filled);
        }
        if cursor.current.is_none_or(|chunk| chunk.blocks >= full) {
            let Some(member) = self.next_member(cursor) else { return Some(filled) };
            cursor.current = Some(Chunk { number: cursor.next_chunk, member, blocks: 0, bytes: 0 });
            cursor.next_chunk += 1;
        }
        self.append(cursor, filled);
        None
    }

    /// Appends a block to the current chunk.
    fn append(&mut self, cursor: &mut StripeCursor, mut filled: FullBlock) {
        let chunk = cursor.current.as_mut().expect("a chunk is open");
        (filled.chunk, filled.offset) = (chunk.number, chunk.bytes);
        chunk.blocks += 1;
        chunk.bytes += u64::from(filled.bytes);
        cursor.outstanding += 1;
        cursor.dealt = cursor.dealt.max(filled.sequence + 1);
        cursor.holders.insert(chunk.member);
        self.queues[chunk.member].write(filled);
    }

    /// Returns the member for the next chunk of a stream.
    fn next_member(&mut self, cursor: &mut StripeCursor) -> Option<usize> {
        if self.aborted {
            return None;
        }
        if self.own_member {
            let own = usize::from(cursor.stream_ref.number);
            return self.least_loaded(|member| member == own);
        }
        let least = self.least_loaded(|_| true)?;
        // A full stripe is worth some memory but no frame, so members that have fallen behind are not chosen.
        let slack = self.queues[least].most_blocks as u64
            * u64::from(cursor.stream_ref.geometry.block_bytes)
            / 8;
        let chosen = self
            .least_loaded(|member| !cursor.recent.contains(&member))
            .filter(|&member| self.backlog(member) <= self.backlog(least) + slack)
            .unwrap_or(least);
        cursor.recent.push_back(chosen);
        while cursor.recent.len() > self.apart {
            cursor.recent.pop_front();
        }
        self.turn = (chosen + 1) % self.queues.len();
        Some(chosen)
    }

    /// Returns the member with the shortest backlog, of those that accept data and may be chosen.
    fn least_loaded(&self, may_be: impl Fn(usize) -> bool) -> Option<usize> {
        let count = self.queues.len();
        (0..count)
            .map(|n| (self.turn + n) % count)
            .filter(|&member| !self.queues[member].metrics.refusing.load(Ordering::Relaxed))
            .filter(|&member| may_be(member))
            .min_by_key(|&member| self.backlog(member))
    }

    fn backlog(&self, member: usize) -> u64 {
        self.queues[member].metrics.backlog_bytes.load(Ordering::Relaxed)
    }

    /// Returns the next reply of any writer. Sends waiting finishes as far as there is room.
    pub fn take_returned(&mut self) -> Option<WriterReply> {
        self.queues.iter_mut().find_map(WriterQueue::take_returned)
    }

    /// True if a writer has ended while blocks may still arrive. Blocks with it are neither written nor returned.
    pub fn has_lost_a_writer(&self) -> bool {
        self.queues.iter().any(|queue| queue.commands.is_abandoned())
    }

    /// True if no finish waits for room.
    pub fn all_sent(&self) -> bool {
        self.queues.iter().all(|queue| queue.waiting.is_empty())
    }

    /// Records a written block. Returns blocks that no member accepts.
    pub fn written(&mut self, cursor: &mut StripeCursor, bytes: u32) -> Vec<FullBlock> {
        cursor.outstanding -= 1;
        cursor.blocks += 1;
        cursor.bytes += u64::from(bytes);
        self.redispatch(cursor)
    }

    /// Takes a refused block back. Returns blocks that no member accepts.
    pub fn refused(&mut self, cursor: &mut StripeCursor, filled: FullBlock) -> Vec<FullBlock> {
        cursor.outstanding -= 1;
        cursor.refused.push(filled);
        self.redispatch(cursor)
    }

    /// Sends the refused blocks again when all blocks are settled, then those that waited.
    fn redispatch(&mut self, cursor: &mut StripeCursor) -> Vec<FullBlock> {
        let mut lost = Vec::new();
        if cursor.refused.is_empty() || cursor.outstanding > 0 {
            return lost;
        }
        let mut refused = std::mem::take(&mut cursor.refused);
        refused.sort_by_key(|filled| filled.sequence);
        cursor.current = None;
        let mut last = None;
        let mut end = 0;
        for filled in refused {
            end = filled.sequence + 1;
            // Blocks of one chunk stay together. A chunk that was never begun keeps its number.
            let number = filled.chunk;
            if last != Some(number) {
                cursor.current = self.next_member(cursor).map(|member| {
                    let kept = filled.offset == 0;
                    let number = if kept { number } else { cursor.next_chunk };
                    cursor.next_chunk += u32::from(!kept);
                    Chunk { number, member, blocks: 0, bytes: 0 }
                });
                last = Some(number);
            }
            match cursor.current {
                Some(_) => self.append(cursor, filled),
                None => lost.push(filled),
            }
        }
        // A chunk may be continued only after the newest block: a file is one contiguous piece of the stream.
        cursor.current = cursor.current.filter(|_| end == cursor.dealt);
        for filled in std::mem::take(&mut cursor.held) {
            lost.extend(self.dispatch(cursor, filled));
        }
        lost
    }

    /// Tells every member that the stream has ended.
    pub fn finish(&mut self, cursor: &StripeCursor, gaps: Vec<Gap>) {
        // One member with an index of the stream receives the gaps. It must still be able to write; a full one has room
        // for that.
        let taking =
            |member: &usize| !self.queues[*member].metrics.refusing.load(Ordering::Relaxed);
        let holders = || cursor.holders.iter().copied();
        let teller = holders().find(taking).or_else(|| holders().next()).unwrap_or(0);
        let mut gaps = Some(gaps);
        for (number, queue) in self.queues.iter_mut().enumerate() {
            let gaps = if number == teller { gaps.take().unwrap_or_default() } else { Vec::new() };
            queue.finish(cursor.stream_ref.clone(), gaps);
        }
    }
}

#[cfg(test)]
mod tests {
    use fullbore_core::layout::Geometry;
    use fullbore_linux::ring::{Pool, ReplySender, reply_queue};
    use fullbore_linux::sys::memory::Region;
    use fullbore_time::Tai;
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    struct Writer {
        commands: rtrb::Consumer<WriterCommand>,
        returned: ReplySender,
        metrics: Arc<WriterMetrics>,
    }

    fn disk_set(members: usize) -> (Striper, Vec<Writer>) {
        let sides = (0..members).map(|_| {
            let (to, commands) = rtrb::RingBuffer::new(64);
            let (returned, from) = reply_queue(64);
            let metrics = Arc::new(WriterMetrics::default());
            let wake = Arc::new(Notifier::new().unwrap());
            let queue = WriterQueue::new(to, from, metrics.clone(), wake, 60);
            (queue, Writer { commands, returned, metrics })
        });
        let (queues, writers): (Vec<_>, Vec<_>) = sides.unzip();
        (Striper::new(queues), writers)
    }

    fn cursor() -> StripeCursor {
        let geometry = Geometry { frame_bytes: 4096, block_bytes: 4096, chunk_blocks: 3 };
        let directory = "s_a".to_owned();
        StripeCursor::new(Arc::new(StreamRef { scan: Uuid::nil(), number: 0, directory, geometry }))
    }

    fn filled(pool: &mut Pool, cursor: &mut StripeCursor) -> FullBlock {
        FullBlock {
            block: pool.take().unwrap(),
            stream_ref: cursor.stream_ref().clone(),
            sequence: cursor.take_sequence(),
            chunk: 0,
            offset: 0,
            bytes: 4096,
            frames: 1,
            present: 1,
            invalid: 0,
            first: 0,
            time: None,
            seen: Tai(0),
            gaps: Vec::new(),
            lengths: Vec::new(),
            crc: None,
        }
    }

    /// Returns everything a writer was sent: (sequence, chunk, offset).
    fn sent(writer: &mut Writer) -> Vec<FullBlock> {
        std::iter::from_fn(|| writer.commands.pop().ok())
            .map(|command| match command {
                WriterCommand::Write(filled) => filled,
                WriterCommand::Finish { .. } => panic!("no finish was asked for"),
            })
            .collect()
    }

    fn places(list: &[FullBlock]) -> Vec<(u64, u32, u64)> {
        list.iter().map(|f| (f.sequence, f.chunk, f.offset / 4096)).collect()
    }

    #[test]
    fn a_full_member_gives_its_chunk_to_the_next_and_nothing_is_lost() {
        let mut pool = Pool::new(Arc::new(Region::new(1 << 20).unwrap()), 4096, 0);
        let (mut striper, mut writers) = disk_set(2);
        let mut cursor = cursor();
        for _ in 0..2 {
            let block = filled(&mut pool, &mut cursor);
            assert!(striper.dispatch(&mut cursor, block).is_none());
        }
        writers[0].metrics.refusing.store(true, Ordering::Relaxed);
        for block in sent(&mut writers[0]) {
            writers[0].returned.push(WriterReply::Refused(block)).unwrap();
        }
        while let Some(WriterReply::Refused(block)) = striper.take_returned() {
            assert!(striper.refused(&mut cursor, block).is_empty());
            if !cursor.refused.is_empty() {
                let newer = filled(&mut pool, &mut cursor);
                assert!(
                    striper.dispatch(&mut cursor, newer).is_none(),
                    "waits behind the refused one"
                );
            }
        }
        let moved = places(&sent(&mut writers[1]));
        assert_eq!(moved, [(0, 0, 0), (1, 0, 1), (2, 0, 2)], "the same chunk, in order");
    }

    #[test]
    fn a_stream_with_a_member_of_its_own_goes_nowhere_else() {
        let mut pool = Pool::new(Arc::new(Region::new(1 << 20).unwrap()), 4096, 0);
        let (striper, mut writers) = disk_set(3);
        let mut striper = striper.with_own_members(true);
        let geometry = cursor().stream_ref().geometry;
        let own = |number| StreamRef { scan: Uuid::nil(), number, directory: "s".into(), geometry };
        let mut cursors = [2, 0].map(|number| StripeCursor::new(Arc::new(own(number))));
        for _ in 0..7 {
            for cursor in &mut cursors {
                let block = filled(&mut pool, cursor);
                assert!(striper.dispatch(cursor, block).is_none());
            }
        }
        let numbers = |writer: &mut Writer| -> Vec<(u16, u64)> {
            sent(writer).iter().map(|it| (it.stream_ref.number, it.sequence)).collect()
        };
        let sevenfold = |number| (0..7).map(|sequence| (number, sequence)).collect::<Vec<_>>();
        assert_eq!(
            writers.iter_mut().map(numbers).collect::<Vec<_>>(),
            [sevenfold(0), vec![], sevenfold(2)]
        );
        writers[2].metrics.refusing.store(true, Ordering::Relaxed);
        cursors[0].current = None;
        let block = filled(&mut pool, &mut cursors[0]);
        assert!(striper.dispatch(&mut cursors[0], block).is_some(), "no other member takes it");
    }

    #[test]
    fn the_rest_of_a_begun_chunk_goes_on_in_a_new_one() {
        let mut pool = Pool::new(Arc::new(Region::new(1 << 20).unwrap()), 4096, 0);
        let (mut striper, mut writers) = disk_set(2);
        let mut cursor = cursor();
        for _ in 0..3 {
            let block = filled(&mut pool, &mut cursor);
            striper.dispatch(&mut cursor, block);
        }
        writers[0].metrics.refusing.store(true, Ordering::Relaxed);
        let mut blocks = sent(&mut writers[0]).into_iter();
        blocks.next().unwrap();
        assert!(striper.written(&mut cursor, 4096).is_empty());
        for block in blocks {
            assert!(striper.refused(&mut cursor, block).is_empty());
        }
        assert_eq!(places(&sent(&mut writers[1])), [(1, 1, 0), (2, 1, 1)]);
    }

    #[test]
    fn the_rest_of_a_begun_chunk_is_a_piece_of_its_own_under_the_next_number() {
        let mut pool = Pool::new(Arc::new(Region::new(1 << 20).unwrap()), 4096, 0);
        let (mut striper, mut writers) = disk_set(3);
        let mut cursor = cursor();
        // Two whole chunks on the first two members, and the beginning of a third.
        for _ in 0..7 {
            let block = filled(&mut pool, &mut cursor);
            assert!(striper.dispatch(&mut cursor, block).is_none());
        }
        let mut places: Vec<(u32, u64)> = Vec::new();
        let mut fail =
            |striper: &mut Striper, cursor: &mut StripeCursor, member: usize, good: usize| {
                writers[member].metrics.refusing.store(true, Ordering::Relaxed);
                let mut blocks = sent(&mut writers[member]).into_iter();
                for block in blocks.by_ref().take(good) {
                    places.push((block.chunk, block.sequence));
                    assert!(striper.written(cursor, 4096).is_empty());
                }
                for block in blocks {
                    assert!(striper.refused(cursor, block).is_empty());
                }
            };
        // The first member fails within its chunk, long after the others have written theirs.
        fail(&mut striper, &mut cursor, 1, 3);
        fail(&mut striper, &mut cursor, 0, 1);
        writers[1].metrics.refusing.store(false, Ordering::Relaxed);
        // When the third member's blocks are settled, the refused blocks are sent again, and are written too.
        loop {
            let rest: Vec<FullBlock> = writers.iter_mut().flat_map(sent).collect();
            if rest.is_empty() {
                break;
            }
            for block in &rest {
                places.push((block.chunk, block.sequence));
                assert!(striper.written(&mut cursor, 4096).is_empty());
            }
        }
        assert!(cursor.settled());
        let newer = filled(&mut pool, &mut cursor);
        assert!(striper.dispatch(&mut cursor, newer).is_none());
        let newer = writers.iter_mut().flat_map(sent).next().unwrap();
        places.push((newer.chunk, newer.sequence));
        places.sort_unstable_by_key(|(_, sequence)| *sequence);
        let order: Vec<u64> = places.iter().map(|(_, sequence)| *sequence).collect();
        assert_eq!(order, [0, 1, 2, 3, 4, 5, 6, 7]);
        // In the order of the stream, chunk numbers neither repeat nor skip.
        let mut chunks: Vec<u32> = places.iter().map(|(chunk, _)| *chunk).collect();
        chunks.dedup();
        assert_eq!(chunks, [0, 3, 1, 2, 4], "{places:?}");
        chunks.sort_unstable();
        assert_eq!(chunks, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_new_chunk_goes_to_the_member_with_the_shortest_backlog_of_those_that_take_data() {
        let mut pool = Pool::new(Arc::new(Region::new(1 << 20).unwrap()), 4096, 0);
        let (mut striper, mut writers) = disk_set(3);
        let mut cursor = cursor();
        let chunk_blocks = cursor.stream_ref.geometry.chunk_blocks;
        for (writer, backlog) in writers.iter().zip([900_000, 0, 200_000]) {
            writer.metrics.backlog_bytes.store(backlog, Ordering::Relaxed);
        }
        let mut deal_chunk = |striper: &mut Striper, writers: &mut [Writer]| {
            for _ in 0..chunk_blocks {
                let block = filled(&mut pool, &mut cursor);
                assert!(striper.dispatch(&mut cursor, block).is_none());
            }
            writers.iter_mut().map(|writer| sent(writer).len() as u32).collect::<Vec<_>>()
        };
        assert_eq!(deal_chunk(&mut striper, &mut writers), [0, chunk_blocks, 0]);
        writers[1].metrics.refusing.store(true, Ordering::Relaxed);
        assert_eq!(deal_chunk(&mut striper, &mut writers), [0, 0, chunk_blocks]);
        writers[2].metrics.refusing.store(true, Ordering::Relaxed);
        assert_eq!(deal_chunk(&mut striper, &mut writers), [chunk_blocks, 0, 0]);
        writers[1].metrics.refusing.store(false, Ordering::Relaxed);
        writers[1].metrics.backlog_bytes.store(2_000_000, Ordering::Relaxed);
        assert_eq!(deal_chunk(&mut striper, &mut writers), [chunk_blocks, 0, 0], "the shorter one");
    }

    proptest! {
        #[test]
        fn the_newest_chunks_of_each_stream_make_a_full_stripe_though_streams_go_in_step(
            streams in 1..17usize,
            (data, parity, spare) in (1..9u16, 1..4u16, 0..3usize),
            backlogs in prop::collection::vec(0..30_000u64, 1..200),
        ) {
            let scheme = Scheme { data, parity };
            let (striper, mut writers) = disk_set(scheme.members() + spare);
            let mut striper = striper.for_stripes(Some(scheme));
            let mut pool = Pool::new(Arc::new(Region::new(1 << 20).unwrap()), 4096, 0);
            let mut courses: Vec<StripeCursor> = (0..streams).map(|_| cursor()).collect();
            let mut lying: Vec<Vec<usize>> = vec![Vec::new(); streams];
            let mut backlogs = backlogs.iter().cycle();
            for _ in 0..20 {
                for (cursor, lying) in courses.iter_mut().zip(&mut lying) {
                    // The backlog differs from member to member, within the slack.
                    for (writer, backlog) in writers.iter().zip(&mut backlogs) {
                        writer.metrics.backlog_bytes.store(*backlog, Ordering::Relaxed);
                    }
                    for _ in 0..cursor.stream_ref.geometry.chunk_blocks {
                        let block = filled(&mut pool, cursor);
                        prop_assert!(striper.dispatch(cursor, block).is_none());
                    }
                    for (member, writer) in writers.iter_mut().enumerate() {
                        for block in sent(writer) {
                            lying.extend((block.offset == 0).then_some(member));
                            pool.put(block.block);
                        }
                    }
                }
            }
            for lying in lying {
                for stripe in lying.windows(data.into()) {
                    let members: BTreeSet<&usize> = stripe.iter().collect();
                    prop_assert_eq!(members.len(), stripe.len(), "{:?} of {:?}", stripe, lying);
                }
            }
        }
    }

    #[test]
    fn no_frame_waits_for_a_full_stripe_on_a_member_that_has_fallen_behind() {
        let mut pool = Pool::new(Arc::new(Region::new(1 << 20).unwrap()), 4096, 0);
        let (striper, mut writers) = disk_set(3);
        let mut striper = striper.for_stripes(Some("parity:2+1".parse().unwrap()));
        let mut cursor = cursor();
        // 60 blocks may be with a writer: a member that is more than an eighth of them behind gets nothing.
        for (writer, blocks) in writers.iter().zip([0, 8, 9]) {
            writer.metrics.backlog_bytes.store(blocks * 4096, Ordering::Relaxed);
        }
        for _ in 0..12 {
            let block = filled(&mut pool, &mut cursor);
            assert!(striper.dispatch(&mut cursor, block).is_none());
            let blocks = sent(&mut writers[0]);
            assert_eq!(blocks.len(), 1);
            writers[0].metrics.backlog_bytes.store(0, Ordering::Relaxed);
        }
        assert!(sent(&mut writers[1]).is_empty() && sent(&mut writers[2]).is_empty());
    }

    #[test]
    fn without_any_member_left_blocks_are_given_back_to_be_counted() {
        let mut pool = Pool::new(Arc::new(Region::new(1 << 20).unwrap()), 4096, 0);
        let (mut striper, mut writers) = disk_set(1);
        let mut cursor = cursor();
        let block = filled(&mut pool, &mut cursor);
        striper.dispatch(&mut cursor, block);
        writers[0].metrics.refusing.store(true, Ordering::Relaxed);
        let block = sent(&mut writers[0]).pop().unwrap();
        assert_eq!(striper.refused(&mut cursor, block).len(), 1);
        let block = filled(&mut pool, &mut cursor);
        assert!(striper.dispatch(&mut cursor, block).is_some());
        assert!(cursor.settled());
    }

    #[test]
    fn streams_that_end_while_a_writer_is_stalled_leave_room_for_every_block() {
        let mut pool = Pool::new(Arc::new(Region::new(1 << 20).unwrap()), 4096, 0);
        let (mut striper, mut writers) = disk_set(1);
        let mut cursor = cursor();
        for number in 0..100 {
            let (directory, geometry) = ("s_a".to_owned(), cursor.stream_ref().geometry);
            let stream_ref = StreamRef { scan: Uuid::nil(), number, directory, geometry };
            striper.finish(&StripeCursor::new(Arc::new(stream_ref)), Vec::new());
        }
        assert!(!striper.all_sent(), "64 places, of which 60 are for blocks");
        for _ in 0..60 {
            let block = filled(&mut pool, &mut cursor);
            assert!(striper.dispatch(&mut cursor, block).is_none());
        }
        let (mut blocks, mut finished) = (0, Vec::new());
        while blocks < 60 || finished.len() < 100 {
            let command = writers[0].commands.pop().expect("whatever waits comes in its turn");
            match command {
                WriterCommand::Write(FullBlock { block, stream_ref, bytes, .. }) => {
                    blocks += 1;
                    let written = WriterReply::Written { block, stream_ref, bytes };
                    assert!(writers[0].returned.push(written).is_ok());
                }
                WriterCommand::Finish { stream_ref, .. } => finished.push(stream_ref.number),
            }
            while striper.take_returned().is_some() {
                striper.written(&mut cursor, 4096);
            }
        }
        assert!(striper.all_sent());
        assert_eq!(finished, (0..100).collect::<Vec<u16>>());
    }

    #[test]
    fn the_last_gaps_are_told_to_a_member_that_holds_blocks_of_the_stream() {
        use fullbore_core::gap::Cause;

        let mut pool = Pool::new(Arc::new(Region::new(1 << 20).unwrap()), 4096, 0);
        let gaps = || vec![Gap { first: 8, count: 3, cause: Cause::Missing }];
        for (refusing, teller) in [(None, 1), (Some(0), 1), (Some(1), 1)] {
            let (mut striper, mut writers) = disk_set(2);
            // Another stream has had the first turn.
            let mut other = cursor();
            let block = filled(&mut pool, &mut other);
            striper.dispatch(&mut other, block);
            let mut cursor = cursor();
            let block = filled(&mut pool, &mut cursor);
            striper.dispatch(&mut cursor, block);
            if let Some(member) = refusing {
                writers[member].metrics.refusing.store(true, Ordering::Relaxed);
            }
            striper.finish(&cursor, gaps());
            for (member, writer) in writers.iter_mut().enumerate() {
                let told =
                    std::iter::from_fn(|| writer.commands.pop().ok()).find_map(|it| match it {
                        WriterCommand::Finish { gaps, .. } => Some(gaps),
                        WriterCommand::Write(_) => None,
                    });
                let expected = if member == teller { gaps() } else { Vec::new() };
                assert_eq!(told, Some(expected), "{member} of {refusing:?}");
            }
        }
    }

    #[test]
    fn a_writer_that_has_gone_keeps_nobody_waiting() {
        let (mut striper, writers) = disk_set(1);
        let cursor = cursor();
        (0..100).for_each(|_| striper.finish(&cursor, Vec::new()));
        drop(writers);
        assert!(striper.take_returned().is_none());
        assert!(striper.all_sent() && striper.has_lost_a_writer());
    }
}
