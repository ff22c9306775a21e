//! Model test of the striper. The environment chooses the next step: blocks are filled; writers take commands, write,
//! fill up, die or are recalled; streams end; everything is aborted.
//!
//! ```text
//! pool ─► striper ─► queue of a member ─► its writer ─► file
//!   ▲        ▲                              │ │
//!   └────────┴────── written, refused ◄─────┘ └─► lost with its writer
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use fullbore_core::gap::{Cause, Gap};
use fullbore_core::redundancy::Scheme;
use fullbore_linux::ring::{FullBlock, Pool, WriterCommand, WriterReply};
use fullbore_time::Tai;
use proptest::prelude::*;

use super::{StripeCursor, Striper, WriterQueue};
use crate::model_writers::{
    BLOCK_BYTES, BLOCKS, CHUNK_BLOCKS, Step, Writer, WriterState, pool, steps, stream_ref,
};

/// A written block: its stream, sequence and place.
#[derive(Clone, Copy, Debug)]
struct Lying {
    stream: u16,
    sequence: u64,
    member: usize,
    chunk: u32,
    offset: u64,
}

struct World {
    pool: Pool,
    striper: Striper,
    courses: Vec<StripeCursor>,
    ended: Vec<bool>,
    told_to_finish: Vec<bool>,
    writers: Vec<Writer>,
    /// Streams that have ended for each writer, with the gaps reported.
    finished: Vec<BTreeMap<u16, Vec<Gap>>>,
    written: Vec<Lying>,
    /// Blocks that no member accepted, by stream.
    lost: BTreeSet<(u16, u64)>,
    aborted: bool,
}

fn gaps_of(stream: u16) -> Vec<Gap> {
    vec![Gap { first: i64::from(stream), count: 1, cause: Cause::Missing }]
}

impl World {
    fn new(members: usize, streams: usize, scheme: Option<Scheme>) -> Self {
        let (queues, writers): (Vec<WriterQueue>, Vec<Writer>) =
            (0..members).map(|_| Writer::new()).unzip();
        Self {
            pool: pool(),
            striper: Striper::new(queues).for_stripes(scheme),
            courses: (0..streams).map(|number| StripeCursor::new(stream_ref(number))).collect(),
            ended: vec![false; streams],
            told_to_finish: vec![false; streams],
            writers,
            finished: vec![BTreeMap::new(); members],
            written: Vec::new(),
            lost: BTreeSet::new(),
            aborted: false,
        }
    }

    fn play(&mut self, step: Step) {
        let (members, streams) = (self.writers.len(), self.courses.len());
        let (member, stream) = (
            |number: u8| usize::from(number) % members,
            |number: u8| usize::from(number) % streams,
        );
        match step {
            Step::Fill(number, count) => {
                (0..count).for_each(|_| self.fill(stream(number)));
            }
            Step::Take(number, count) => {
                (0..count).for_each(|_| self.take(member(number)));
            }
            Step::Write(number) => self.write(member(number)),
            Step::FillUp(number) => {
                self.writers[member(number)].fail(WriterState::Full);
            }
            Step::Die(number) => {
                self.writers[member(number)].fail(WriterState::Dead);
            }
            Step::Recall(number) => self.writers[member(number)].recall(),
            Step::Answer => self.answer(),
            Step::End(number) => self.ended[stream(number)] = true,
            Step::Abort => {
                self.striper.abort();
                self.aborted = true;
                self.ended.fill(true);
            }
        }
        self.finish_settled();
        self.check_places();
    }

    /// True if no member accepts another chunk.
    fn nobody_takes(&self) -> bool {
        let refuses = |it: &Writer| it.metrics.refusing.load(Ordering::Relaxed);
        self.aborted || self.writers.iter().all(refuses)
    }

    fn fill(&mut self, stream: usize) {
        if self.ended[stream] {
            return;
        }
        let Some(block) = self.pool.take() else { return };
        let cursor = &mut self.courses[stream];
        let filled = FullBlock {
            block,
            stream_ref: cursor.stream_ref().clone(),
            sequence: cursor.take_sequence(),
            chunk: 0,
            offset: 0,
            bytes: BLOCK_BYTES,
            frames: 1,
            present: 1,
            invalid: 0,
            first: 0,
            time: None,
            seen: Tai(0),
            gaps: Vec::new(),
            lengths: Vec::new(),
            crc: None,
        };
        let backlogs: Vec<Option<u64>> = self
            .writers
            .iter()
            .map(|it| {
                let takes = !it.metrics.refusing.load(Ordering::Relaxed);
                takes.then(|| it.metrics.backlog_bytes.load(Ordering::Relaxed))
            })
            .collect();
        let waiting: Vec<usize> = self.writers.iter().map(|it| it.commands.slots()).collect();
        let cursor = &self.courses[stream];
        let is_full = |blocks: u32| blocks >= CHUNK_BLOCKS;
        let is_new =
            cursor.refused.is_empty() && cursor.current.is_none_or(|chunk| is_full(chunk.blocks));
        let recent = cursor.recent.clone();
        let lost = self.striper.dispatch(&mut self.courses[stream], filled);
        if is_new && !self.nobody_takes() {
            let count = |(it, before): (&Writer, &usize)| it.commands.slots() > *before;
            let chosen = self.writers.iter().zip(&waiting).position(count);
            let chosen = chosen.expect("a new chunk goes to a member at once");
            let least = backlogs.iter().flatten().min().copied().expect("one takes it");
            let apart = (0..).zip(&backlogs).filter(|(member, _)| !recent.contains(member));
            let apart = apart.filter_map(|(_, backlog)| *backlog).min();
            let slack = (BLOCKS as u64) * u64::from(BLOCK_BYTES) / 8;
            let apart = apart.filter(|&backlog| backlog <= least + slack);
            let told = format!("{chosen} of {backlogs:?}, recently {recent:?}");
            assert_eq!(backlogs[chosen], Some(apart.unwrap_or(least)), "{told}");
            assert!(apart.is_none() || !recent.contains(&chosen), "{told}");
        }
        self.lose(lost);
    }

    fn lose(&mut self, lost: impl IntoIterator<Item = FullBlock>) {
        for filled in lost {
            assert!(self.nobody_takes(), "a member would have taken it");
            let is_new = self.lost.insert((filled.stream_ref.number, filled.sequence));
            assert!(is_new, "given back twice");
            self.pool.put(filled.block);
        }
    }

    fn take(&mut self, member: usize) {
        let (writer, finished) = (&mut self.writers[member], &mut self.finished[member]);
        match writer.commands.pop() {
            Ok(WriterCommand::Write(filled)) => {
                let stream = filled.stream_ref.number;
                assert!(!finished.contains_key(&stream), "a block behind the last one");
                writer.held.push_back(filled);
            }
            Ok(WriterCommand::Finish { stream_ref, gaps }) => {
                let before = finished.insert(stream_ref.number, gaps);
                assert!(before.is_none(), "told twice that nothing more comes");
            }
            Err(_) => {}
        }
    }

    fn write(&mut self, member: usize) {
        let written = &mut self.written;
        self.writers[member].write(|filled| {
            let FullBlock { sequence, chunk, offset, .. } = *filled;
            let stream = filled.stream_ref.number;
            written.push(Lying { stream, sequence, member, chunk, offset });
        });
    }

    fn answer(&mut self) {
        let lost = match self.striper.take_returned() {
            None => return,
            Some(WriterReply::Written { block, stream_ref, bytes }) => {
                self.pool.put(block);
                self.striper.written(&mut self.courses[usize::from(stream_ref.number)], bytes)
            }
            Some(WriterReply::Refused(filled)) => {
                let stream = usize::from(filled.stream_ref.number);
                self.striper.refused(&mut self.courses[stream], filled)
            }
        };
        self.lose(lost);
    }

    /// Ends a stream when all of its blocks are settled.
    fn finish_settled(&mut self) {
        for (stream, cursor) in self.courses.iter().enumerate() {
            let is_due = self.ended[stream] && cursor.settled();
            if is_due && !std::mem::replace(&mut self.told_to_finish[stream], true) {
                self.striper.finish(cursor, gaps_of(stream as u16));
            }
        }
    }

    /// Checks that every block is in one place: free, with a writer, or waiting at the striper.
    fn check_places(&self) {
        let waiting: usize = self.courses.iter().map(|it| it.refused.len() + it.held.len()).sum();
        let with_writers: u64 = self.courses.iter().map(|it| it.outstanding).sum();
        assert_eq!(self.pool.free() + waiting + with_writers as usize, BLOCKS);
        let on_the_way: usize = self.striper.queues.iter().map(|queue| queue.blocks).sum();
        assert_eq!(on_the_way as u64, with_writers);
    }

    /// Lets all participants act in turn until the end. Returns the number of rounds.
    fn come_to_an_end(&mut self) -> usize {
        self.ended.fill(true);
        for round in 0..100 * BLOCKS {
            for member in 0..self.writers.len() {
                self.take(member);
                self.write(member);
            }
            self.play(Step::Answer);
            let settled = self.courses.iter().all(StripeCursor::settled);
            if settled && self.striper.all_sent() && self.writers.iter().all(Writer::is_idle) {
                return round;
            }
        }
        panic!("something waits for ever");
    }
}

/// Checks the properties that the files must have in every case.
fn check_files(world: &World) -> Result<(), TestCaseError> {
    for (number, cursor) in world.courses.iter().enumerate() {
        let stream = number as u16;
        let own: Vec<&Lying> = world.written.iter().filter(|it| it.stream == stream).collect();
        let mut fates: Vec<u64> = own.iter().map(|it| it.sequence).collect();
        fates.extend(world.lost.iter().filter(|(of, _)| *of == stream).map(|(_, it)| *it));
        fates.sort_unstable();
        let all: Vec<u64> = (0..cursor.next_sequence).collect();
        prop_assert_eq!(&fates, &all, "every block is written once, or counted once");
        prop_assert_eq!(cursor.written(), (own.len() as u64, own.len() as u64 * 4096));

        let mut files: BTreeMap<u32, Vec<&Lying>> = BTreeMap::new();
        own.iter().for_each(|it| files.entry(it.chunk).or_default().push(it));
        for (chunk, blocks) in &files {
            prop_assert!(blocks.len() <= CHUNK_BLOCKS as usize, "chunk {}", chunk);
            for (place, block) in blocks.iter().enumerate() {
                prop_assert_eq!(block.member, blocks[0].member, "chunk {} on two members", chunk);
                prop_assert_eq!(block.offset, place as u64 * 4096, "a hole in chunk {}", chunk);
                // Between two blocks of a file there is no block of another file: at most blocks that no member
                // accepted.
                let before =
                    place.checked_sub(1).map_or(block.sequence, |it| blocks[it].sequence + 1);
                prop_assert!(before <= block.sequence, "chunk {} is out of order", chunk);
                let between = (before..block.sequence).all(|it| world.lost.contains(&(stream, it)));
                prop_assert!(between, "chunk {} is no piece of the stream", chunk);
            }
        }
        for (member, finished) in world.finished.iter().enumerate() {
            let told = finished.get(&stream);
            prop_assert!(told.is_some(), "{} waits for the end of {}", member, stream);
        }
        let told: Vec<Gap> =
            world.finished.iter().flat_map(|it| it[&stream].iter().copied()).collect();
        prop_assert_eq!(told, gaps_of(stream), "the last gaps are told once");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn every_block_is_written_once_or_counted_once_whatever_members_do(
        members in 1..6usize,
        streams in 1..4usize,
        scheme in prop::option::of((1..4u16, 1..3u16)),
        steps in steps(),
    ) {
        let scheme = scheme.map(|(data, parity)| Scheme { data, parity });
        let mut world = World::new(members, streams, scheme);
        steps.iter().for_each(|step| world.play(*step));
        world.come_to_an_end();
        check_files(&world)?;
        prop_assert_eq!(world.pool.free(), BLOCKS, "every block came home");
        if world.lost.is_empty() {
            // If nothing is lost, chunk numbers do not skip.
            for stream in 0..streams as u16 {
                let own = world.written.iter().filter(|it| it.stream == stream);
                let chunks: BTreeSet<u32> = own.map(|it| it.chunk).collect();
                let count = chunks.len() as u32;
                prop_assert_eq!(chunks, (0..count).collect::<BTreeSet<u32>>());
            }
        }
    }
}
