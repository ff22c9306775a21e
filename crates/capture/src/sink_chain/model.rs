//! Model test of the chain of sinks. The environment chooses the next step: blocks are filled; writers of any sink take
//! commands, write, fill up, die or are recalled; streams end; everything is aborted.
//!
//! ```text
//! pool ─► sink 0: queues, writers ─► sink 1: queues, writers ─► … ─┐
//!   ▲                                                              │
//!   └──────────────── written in a sink, or lost in all ◄──────────┘
//! ```

use std::collections::{BTreeMap, BTreeSet};

use fullbore_core::gap::{Cause, Gap};
use fullbore_linux::ring::{FullBlock, Pool, WriterCommand};
use fullbore_time::Tai;
use proptest::prelude::*;
use uuid::Uuid;

use super::{ChainCursor, Settled, SinkChain, SinkQueues, scan_in_store};
use crate::model_writers::{
    BLOCK_BYTES, BLOCKS, Step, Writer, WriterState, pool, steps, stream_ref,
};
use crate::scan_stream::Lost;

/// The scan of the recording.
const SCAN: Uuid = Uuid::nil();

/// What a sink has of a stream.
#[derive(Debug, Default)]
struct Stored {
    /// Sequence numbers in the order of the writes.
    written: Vec<u64>,
    /// Gaps in its index.
    gaps: Vec<Gap>,
}

struct World {
    pool: Pool,
    chain: SinkChain,
    /// The number of members of each sink.
    members: Vec<usize>,
    cursors: Vec<ChainCursor>,
    /// The number of blocks that each stream has sent.
    sent: Vec<u64>,
    /// Gaps of each stream that wait for its next block.
    pending: Vec<Vec<Gap>>,
    ended: Vec<bool>,
    finished: Vec<bool>,
    /// Each with the number of its sink.
    writers: Vec<(usize, Writer)>,
    stored: BTreeMap<(usize, u16), Stored>,
    /// Blocks that came back as written, and as lost in all sinks.
    free: BTreeSet<(u16, u64)>,
    lost: BTreeSet<(u16, u64)>,
    /// Sinks of which a writer was recalled: stores, which take blocks in any order.
    recalled: BTreeSet<usize>,
    /// Sinks that may lack blocks: a writer refuses, or everything was aborted.
    excused: BTreeSet<usize>,
}

/// The index of a block's only frame.
fn first_of(sequence: u64) -> i64 {
    sequence as i64 * 10
}

/// A gap that every sink must list once: the block with this number carries it.
fn gap_before(sequence: u64) -> Gap {
    Gap { first: first_of(sequence) - 5, count: 3, cause: Cause::Missing }
}

impl World {
    fn new(members: &[usize], streams: usize) -> Self {
        let (mut sinks, mut writers) = (Vec::new(), Vec::new());
        for (sink, &count) in members.iter().enumerate() {
            let (queues, own): (Vec<_>, Vec<_>) = (0..count).map(|_| Writer::new()).unzip();
            writers.extend(own.into_iter().map(|writer| (sink, writer)));
            // Each is a store of its own.
            sinks.push(SinkQueues { store: sink as u16, ..SinkQueues::plain(queues) });
        }
        Self {
            pool: pool(),
            chain: SinkChain::new(sinks),
            members: members.to_vec(),
            cursors: (0..streams).map(|number| ChainCursor::new(stream_ref(number))).collect(),
            sent: vec![0; streams],
            pending: vec![Vec::new(); streams],
            ended: vec![false; streams],
            finished: vec![false; streams],
            writers,
            stored: BTreeMap::new(),
            free: BTreeSet::new(),
            lost: BTreeSet::new(),
            recalled: BTreeSet::new(),
            excused: BTreeSet::new(),
        }
    }

    fn play(&mut self, step: Step) {
        let (writers, streams) = (self.writers.len(), self.cursors.len());
        let writer = |number: u8| usize::from(number) % writers;
        let stream = |number: u8| usize::from(number) % streams;
        match step {
            Step::Fill(number, count) => (0..count).for_each(|_| self.fill(stream(number))),
            Step::Take(number, count) => (0..count).for_each(|_| self.take(writer(number))),
            Step::Write(number) => self.write(writer(number)),
            Step::FillUp(number) => self.fail(writer(number), WriterState::Full),
            Step::Die(number) => self.fail(writer(number), WriterState::Dead),
            Step::Recall(number) => {
                let (sink, writer) = &mut self.writers[writer(number)];
                self.recalled.insert(*sink);
                writer.recall();
            }
            Step::Answer => self.answer(),
            Step::End(number) => self.ended[stream(number)] = true,
            Step::Abort => {
                self.chain.abort();
                self.excused.extend(0..self.members.len());
                self.ended.fill(true);
            }
        }
        self.finish_settled();
    }

    fn fill(&mut self, stream: usize) {
        if self.ended[stream] {
            return;
        }
        let Some(block) = self.pool.take() else { return };
        let cursor = &mut self.cursors[stream];
        let sequence = cursor.take_sequence();
        let mut gaps = std::mem::take(&mut self.pending[stream]);
        gaps.push(gap_before(sequence));
        self.sent[stream] = sequence + 1;
        let filled = FullBlock {
            block,
            stream_ref: cursor.stream_ref().clone(),
            sequence,
            chunk: 0,
            offset: 0,
            bytes: BLOCK_BYTES,
            frames: 1,
            present: 1,
            invalid: 0,
            first: first_of(sequence),
            time: None,
            seen: Tai(0),
            gaps,
            lengths: vec![sequence as u16],
            crc: Some(sequence as u32),
        };
        let lost = self.chain.dispatch(&mut self.cursors[stream], filled);
        self.lose(lost);
    }

    fn lose(&mut self, lost: impl IntoIterator<Item = FullBlock>) {
        for filled in lost {
            let key = (filled.stream_ref.number, filled.sequence);
            assert_eq!(filled.stream_ref.scan, SCAN, "as it was");
            assert!(self.lost.insert(key), "given back twice");
            let (_, gaps) = Lost::of(&filled);
            self.pending[usize::from(key.0)].extend(gaps);
            self.pool.put(filled.block);
        }
    }

    fn take(&mut self, number: usize) {
        let (sink, writer) = &mut self.writers[number];
        let scan = scan_in_store(SCAN, *sink as u16);
        match writer.commands.pop() {
            Ok(WriterCommand::Write(filled)) => {
                assert_eq!(filled.stream_ref.scan, scan);
                writer.held.push_back(filled);
            }
            Ok(WriterCommand::Finish { stream_ref, gaps }) => {
                assert_eq!(stream_ref.scan, scan);
                let key = (*sink, stream_ref.number);
                self.stored.entry(key).or_default().gaps.extend(gaps);
            }
            Err(_) => {}
        }
    }

    fn write(&mut self, number: usize) {
        let (sink, writer) = &mut self.writers[number];
        let stored = &mut self.stored;
        writer.write(|filled| {
            assert_eq!(filled.lengths, [filled.sequence as u16], "each sink gets the metadata");
            assert_eq!(filled.crc, Some(filled.sequence as u32), "and the checksum");
            let stored = stored.entry((*sink, filled.stream_ref.number)).or_default();
            stored.written.push(filled.sequence);
            stored.gaps.extend(&filled.gaps);
        });
    }

    fn fail(&mut self, number: usize, how: WriterState) {
        let (sink, writer) = &mut self.writers[number];
        if writer.fail(how) {
            self.excused.insert(*sink);
        }
    }

    fn answer(&mut self) {
        let Some(reply) = self.chain.take_returned() else { return };
        let (scan, number) = reply.stream();
        assert_eq!(scan, SCAN);
        let stream = usize::from(number);
        let Settled { written, lost } = self.chain.settle(&mut self.cursors[stream], reply);
        for block in written {
            self.pool.put(block.block);
            self.free.insert((block.stream_ref.number, self.free.len() as u64));
        }
        self.lose(lost);
    }

    fn finish_settled(&mut self) {
        for (stream, cursor) in self.cursors.iter_mut().enumerate() {
            let is_due = self.ended[stream] && cursor.settled();
            if is_due && !std::mem::replace(&mut self.finished[stream], true) {
                self.chain.finish(cursor, std::mem::take(&mut self.pending[stream]));
            }
        }
    }

    /// Lets all participants act in turn until the end.
    fn come_to_an_end(&mut self) {
        self.ended.fill(true);
        for _ in 0..200 * BLOCKS {
            for writer in 0..self.writers.len() {
                self.take(writer);
                self.write(writer);
            }
            self.play(Step::Answer);
            let idle = |(_, writer): &(usize, Writer)| writer.is_idle();
            if self.finished.iter().all(|it| *it)
                && self.chain.all_sent()
                && self.writers.iter().all(idle)
            {
                return;
            }
        }
        panic!("something waits for ever");
    }
}

/// Checks what each sink has of a stream.
fn check_stream(world: &World, number: usize) -> Result<(), TestCaseError> {
    let (stream, cursor) = (number as u16, &world.cursors[number]);
    let all: BTreeSet<u64> = (0..world.sent[number]).collect();
    let lost: BTreeSet<u64> =
        world.lost.iter().filter(|(of, _)| *of == stream).map(|(_, it)| *it).collect();
    let none = Stored::default();
    let stored = |sink: usize| world.stored.get(&(sink, stream)).unwrap_or(&none);
    let mut written: BTreeSet<u64> = BTreeSet::new();
    for sink in 0..world.members.len() {
        let own: BTreeSet<u64> = stored(sink).written.iter().copied().collect();
        prop_assert_eq!(own.len(), stored(sink).written.len(), "written twice in {}", sink);
        if world.members[sink] == 1 && !world.recalled.contains(&sink) {
            prop_assert!(stored(sink).written.is_sorted(), "{} is out of order", sink);
        }
        let lacks: BTreeSet<u64> = all.difference(&own).copied().collect();
        prop_assert!(lacks.is_empty() || world.excused.contains(&sink), "{} was able", sink);
        // The index of each sink lists all gaps before blocks once, and each of its own losses once.
        let mut gaps = stored(sink).gaps.clone();
        let mut expected: Vec<Gap> = all.iter().map(|it| gap_before(*it)).collect();
        let gap = |it: &u64| Gap { first: first_of(*it), count: 1, cause: Cause::Overrun };
        expected.extend(lacks.iter().map(gap));
        gaps.sort_unstable_by_key(|gap| gap.first);
        expected.sort_unstable_by_key(|gap| gap.first);
        prop_assert_eq!(gaps, expected, "the gaps of sink {}", sink);
        written.extend(own);
    }
    prop_assert!(written.is_disjoint(&lost), "lost although a sink has it");
    prop_assert_eq!(written.union(&lost).copied().collect::<BTreeSet<u64>>(), all);
    let bytes = |blocks: usize| (blocks as u64, blocks as u64 * u64::from(BLOCK_BYTES));
    prop_assert_eq!(cursor.written(), bytes(written.len()));
    for (sink, (share, lacking)) in cursor.shares().enumerate() {
        let own = stored(sink).written.len();
        prop_assert_eq!(share, bytes(own));
        prop_assert_eq!(lacking.lost.len(), written.len() - own, "what sink {} lacks", sink);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn every_sink_gets_every_block_in_order_or_counts_it_whatever_writers_do(
        members in prop::collection::vec(1..4usize, 1..4),
        streams in 1..4usize,
        steps in steps(),
    ) {
        let mut world = World::new(&members, streams);
        steps.iter().for_each(|step| world.play(*step));
        world.come_to_an_end();
        for stream in 0..streams {
            check_stream(&world, stream)?;
        }
        prop_assert_eq!(world.pool.free(), BLOCKS, "every block came home");
        prop_assert_eq!(world.free.len() + world.lost.len(), world.sent.iter().sum::<u64>() as usize);
    }
}

#[test]
fn a_block_is_free_only_after_the_last_sink() {
    let mut world = World::new(&[1, 1], 1);
    world.fill(0);
    world.take(1);
    assert!(world.writers[1].1.held.is_empty(), "the first sink has it");
    world.take(0);
    world.write(0);
    world.answer();
    assert_eq!(world.pool.free(), BLOCKS - 1, "the second sink has it now");
    world.take(1);
    world.write(1);
    world.answer();
    assert_eq!(world.pool.free(), BLOCKS);
}

#[test]
fn a_sink_that_fails_lacks_blocks_that_the_other_has() {
    let mut world = World::new(&[1, 1], 1);
    world.fail(0, WriterState::Dead);
    (0..5).for_each(|_| world.fill(0));
    world.come_to_an_end();
    assert_eq!(world.stored[&(1, 0)].written, [0, 1, 2, 3, 4]);
    assert!(world.lost.is_empty());
    let shares: Vec<(u64, usize)> =
        world.cursors[0].shares().map(|((blocks, _), share)| (blocks, share.lost.len())).collect();
    assert_eq!(shares, [(0, 5), (5, 0)]);
}
