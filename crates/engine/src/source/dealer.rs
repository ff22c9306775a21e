//! Dealing blocks over the members: the next free member takes the next chunk. With redundancy it is one that holds
//! none of the stream's newest chunks, so that these make a full stripe.
//!
//! ```text
//! stream ─► chunk 0 on member 1 │ chunk 1 on member 0 │ chunk 2 on member 1 │ …
//! ```
//!
//! A chunk lies on one member. A member that refuses a block gives every later block of that chunk
//! back too, in order. The stream's new blocks wait here until all of its blocks have come to rest,
//! so that files keep the order of the stream. A chunk that was refused whole then moves with its
//! number; the rest of a chunk that was begun goes on in a new file under the next free number. Every file is
//! one piece of the stream; where numbers are not in its order, files are renamed when the scan is sealed.

#[cfg(test)]
mod model;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fullbore_core::gap::Gap;
use fullbore_core::redundancy::Scheme;
use fullbore_core::tail::Piece;
use fullbore_core::time::Tai;

use super::tail::{Extent, Tail};
use crate::ring::{Command, Filled, Gauge, Returned, Track, Wake};
use crate::store::tails::Tails;

/// The way to one member and back.
///
/// ```text
/// commands   | blocks: room for all there are | finishes: as many as fit beside them | … more wait here
/// ```
pub struct Lane {
    /// To its writer.
    commands: rtrb::Producer<Command>,
    /// From its writer.
    returned: rtrb::Consumer<Returned>,
    /// Its counters.
    gauge: Arc<Gauge>,
    /// Wakes its writer.
    wake: Arc<Wake>,
    /// The most blocks that can be with the writer: for these there is always room.
    most_blocks: usize,
    /// Blocks that are with it now.
    blocks: usize,
    /// Finishes for which there is no room yet: so many streams may end while a writer is stalled.
    waiting: VecDeque<Command>,
}

impl Lane {
    /// Room for finishes beside that for blocks; more of them wait.
    pub const FINISHES: usize = 256;

    /// A lane whose queues have room for so many blocks, and more for finishes.
    pub fn new(
        commands: rtrb::Producer<Command>,
        returned: rtrb::Consumer<Returned>,
        gauge: Arc<Gauge>,
        wake: Arc<Wake>,
        most_blocks: usize,
    ) -> Self {
        let waiting = VecDeque::new();
        Self { commands, returned, gauge, wake, most_blocks, blocks: 0, waiting }
    }

    /// Hands a block to the writer. No more may be with it at once than the lane was made for.
    pub fn write(&mut self, filled: Filled) {
        self.blocks += 1;
        self.gauge.backlog_bytes.fetch_add(filled.bytes.into(), Ordering::Relaxed);
        let sent = self.commands.push(Command::Write(filled));
        assert!(sent.is_ok(), "a lane has room for every block of the pools");
        self.wake.wake();
    }

    /// Says that nothing more comes of a stream.
    pub fn finish(&mut self, track: Arc<Track>, gaps: Vec<Gap>) {
        self.waiting.push_back(Command::Finish { track, gaps });
        self.send_waiting();
    }

    /// Sends finishes into the room that no block can come to need.
    fn send_waiting(&mut self) {
        if self.commands.is_abandoned() {
            // Its writer has gone, and will finish nothing.
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

    /// The next block that came back, if one did.
    pub fn take_returned(&mut self) -> Option<Returned> {
        if !self.waiting.is_empty() {
            self.send_waiting();
        }
        let returned = self.returned.pop().ok()?;
        self.blocks -= 1;
        Some(returned)
    }
}

/// The lanes of one capture thread.
pub struct Dealer {
    lanes: Vec<Lane>,
    /// Where a tie between members goes next.
    turn: usize,
    /// Nothing is sent any more: what is held is given back to be counted.
    aborted: bool,
    /// Who keeps the tails of slow streams, if anybody does.
    tails: Option<Tails>,
    /// A stream's next chunk goes to none of the members that hold so many of its newest.
    apart: usize,
}

/// Where the blocks of one stream of one scan go.
#[derive(Debug)]
pub struct Course {
    track: Arc<Track>,
    next_sequence: u64,
    /// Behind the newest block that was dealt.
    dealt: u64,
    next_chunk: u32,
    current: Option<Chunk>,
    /// Members that blocks were dealt to: only there is an index.
    holders: BTreeSet<usize>,
    /// Members that hold its newest chunks, the newest last.
    recent: VecDeque<usize>,
    /// Blocks with the writers.
    outstanding: u64,
    /// Blocks that came back, until all have come to rest.
    refused: Vec<Filled>,
    /// Newer blocks, which wait behind those.
    held: VecDeque<Filled>,
    blocks: u64,
    bytes: u64,
    /// What is kept of its open blocks.
    tail: Tail,
}

/// The chunk that a stream is filling.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    number: u32,
    member: usize,
    /// Blocks given to it.
    blocks: u32,
    bytes: u64,
}

impl Course {
    /// The course of a stream that has dealt nothing yet.
    pub fn new(track: Arc<Track>) -> Self {
        Self {
            track,
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
            tail: Tail::default(),
        }
    }

    /// Whose course this is.
    pub fn track(&self) -> &Arc<Track> {
        &self.track
    }

    /// The number of the next block.
    pub fn take_sequence(&mut self) -> u64 {
        self.next_sequence += 1;
        self.next_sequence - 1
    }

    /// The number that the next block will have.
    pub fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    /// What is kept of its open blocks.
    pub fn tail(&mut self) -> &mut Tail {
        &mut self.tail
    }

    /// Whether every block is written or was given up.
    pub fn settled(&self) -> bool {
        self.outstanding == 0 && self.held.is_empty() && self.refused.is_empty()
    }

    /// Blocks and bytes written.
    pub fn written(&self) -> (u64, u64) {
        (self.blocks, self.bytes)
    }
}

impl Dealer {
    /// Deals over these lanes, one per member.
    pub fn new(lanes: Vec<Lane>) -> Self {
        assert!(!lanes.is_empty(), "a disk set has at least one member");
        Self { lanes, turn: 0, aborted: false, tails: None, apart: 0 }
    }

    /// Keeps as many chunks of a stream on different members as a stripe takes, if stripes are made.
    pub fn for_stripes(self, redundancy: Option<Scheme>) -> Self {
        let widest = redundancy.map_or(1, |scheme| scheme.widest(self.lanes.len()));
        Self { apart: widest - 1, ..self }
    }

    /// Has open blocks of slow streams kept by these.
    pub fn keeping_tails(self, tails: Option<Tails>) -> Self {
        Self { tails, ..self }
    }

    /// Whether it is time to keep what is open of a stream since `oldest`.
    pub fn wants_tail(&self, course: &mut Course, oldest: Tai, now: Tai) -> bool {
        self.tails.is_some() && !self.aborted && course.tail.is_due(oldest, now)
    }

    /// Has what is new of a stream's open blocks kept, as [`Tail::keep`] does.
    pub fn keep_tail(
        &self,
        course: &mut Course,
        now: Tai,
        open: &[Extent],
        copy: &mut dyn FnMut(usize, std::ops::Range<u32>) -> (u32, Vec<u8>),
        describe: &mut dyn FnMut() -> Vec<Piece>,
    ) {
        let Some(tails) = &self.tails else { return };
        let taking = |member: usize| !self.lanes[member].gauge.refusing.load(Ordering::Relaxed);
        Tail::keep(course, tails, self.lanes.len(), &taking, now, open, copy, describe);
    }

    /// From now on no block is sent; those with the writers are still written.
    pub fn abort(&mut self) {
        self.aborted = true;
    }

    /// Sends a block on its way. Given back: a block that no member takes.
    pub fn deal(&mut self, course: &mut Course, filled: Filled) -> Option<Filled> {
        if !course.refused.is_empty() {
            course.held.push_back(filled);
            return None;
        }
        let full = course.track.geometry.chunk_blocks;
        if self.aborted {
            return Some(filled);
        }
        if course.current.is_none_or(|chunk| chunk.blocks >= full) {
            let Some(member) = self.next_member(course) else { return Some(filled) };
            course.current = Some(Chunk { number: course.next_chunk, member, blocks: 0, bytes: 0 });
            course.next_chunk += 1;
        }
        self.append(course, filled);
        None
    }

    /// Appends a block to the current chunk.
    fn append(&mut self, course: &mut Course, mut filled: Filled) {
        let chunk = course.current.as_mut().expect("a chunk is open");
        (filled.chunk, filled.offset) = (chunk.number, chunk.bytes);
        chunk.blocks += 1;
        chunk.bytes += u64::from(filled.bytes);
        course.outstanding += 1;
        course.dealt = course.dealt.max(filled.sequence + 1);
        course.holders.insert(chunk.member);
        self.lanes[chunk.member].write(filled);
    }

    /// Where the next chunk of a stream goes.
    fn next_member(&mut self, course: &mut Course) -> Option<usize> {
        if self.aborted {
            return None;
        }
        let least = self.freest(|_| true)?;
        // A full stripe is worth some of the memory, and no frame: members that have fallen behind are left out.
        let slack =
            self.lanes[least].most_blocks as u64 * u64::from(course.track.geometry.block_bytes) / 8;
        let chosen = self
            .freest(|member| !course.recent.contains(&member))
            .filter(|&member| self.backlog(member) <= self.backlog(least) + slack)
            .unwrap_or(least);
        course.recent.push_back(chosen);
        while course.recent.len() > self.apart {
            course.recent.pop_front();
        }
        self.turn = (chosen + 1) % self.lanes.len();
        Some(chosen)
    }

    /// The member with the shortest backlog of those that take data and may be chosen.
    fn freest(&self, may_be: impl Fn(usize) -> bool) -> Option<usize> {
        let count = self.lanes.len();
        (0..count)
            .map(|n| (self.turn + n) % count)
            .filter(|&member| !self.lanes[member].gauge.refusing.load(Ordering::Relaxed))
            .filter(|&member| may_be(member))
            .min_by_key(|&member| self.backlog(member))
    }

    fn backlog(&self, member: usize) -> u64 {
        self.lanes[member].gauge.backlog_bytes.load(Ordering::Relaxed)
    }

    /// The next answer of any writer. What waits for room is sent, as far as there is some now.
    pub fn take_returned(&mut self) -> Option<Returned> {
        self.lanes.iter_mut().find_map(Lane::take_returned)
    }

    /// Whether a writer has ended though blocks may still come. Those with it are neither written nor given back.
    pub fn has_lost_a_writer(&self) -> bool {
        self.lanes.iter().any(|lane| lane.commands.is_abandoned())
    }

    /// Whether nothing waits for room any more.
    pub fn all_sent(&self) -> bool {
        self.lanes.iter().all(|lane| lane.waiting.is_empty())
    }

    /// Takes note that a block is written. Given back: blocks that no member takes.
    pub fn written(&mut self, course: &mut Course, bytes: u32) -> Vec<Filled> {
        course.outstanding -= 1;
        course.blocks += 1;
        course.bytes += u64::from(bytes);
        self.redeal(course)
    }

    /// Takes a refused block back. Given back: blocks that no member takes.
    pub fn refused(&mut self, course: &mut Course, filled: Filled) -> Vec<Filled> {
        course.outstanding -= 1;
        course.refused.push(filled);
        self.redeal(course)
    }

    /// Once all blocks have come to rest, deals those that came back, then those that waited.
    fn redeal(&mut self, course: &mut Course) -> Vec<Filled> {
        let mut lost = Vec::new();
        if course.refused.is_empty() || course.outstanding > 0 {
            return lost;
        }
        let mut refused = std::mem::take(&mut course.refused);
        refused.sort_by_key(|filled| filled.sequence);
        course.current = None;
        let mut last = None;
        let mut end = 0;
        for filled in refused {
            end = filled.sequence + 1;
            // Blocks of one chunk stay together; one that was never begun keeps its number.
            let number = filled.chunk;
            if last != Some(number) {
                course.current = self.next_member(course).map(|member| {
                    let kept = filled.offset == 0;
                    let number = if kept { number } else { course.next_chunk };
                    course.next_chunk += u32::from(!kept);
                    Chunk { number, member, blocks: 0, bytes: 0 }
                });
                last = Some(number);
            }
            match course.current {
                Some(_) => self.append(course, filled),
                None => lost.push(filled),
            }
        }
        // Only behind the newest block may a chunk be filled further: a file is one piece of the stream.
        course.current = course.current.filter(|_| end == course.dealt);
        for filled in std::mem::take(&mut course.held) {
            lost.extend(self.deal(course, filled));
        }
        lost
    }

    /// Tells every member that no more of this stream will come.
    pub fn finish(&mut self, course: &Course, gaps: Vec<Gap>) {
        // The gaps are told to one member that has an index of the stream, and can still write them down; a full
        // one has room for that.
        let taking = |member: &usize| !self.lanes[*member].gauge.refusing.load(Ordering::Relaxed);
        let holders = || course.holders.iter().copied();
        let teller = holders().find(taking).or_else(|| holders().next()).unwrap_or(0);
        let mut gaps = Some(gaps);
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            let gaps = if number == teller { gaps.take().unwrap_or_default() } else { Vec::new() };
            lane.finish(course.track.clone(), gaps);
        }
    }
}

#[cfg(test)]
mod tests {
    use fullbore_core::layout::Geometry;
    use fullbore_core::time::Tai;
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;
    use crate::ring::Pool;
    use crate::sys::memory::Region;

    struct Writer {
        commands: rtrb::Consumer<Command>,
        returned: rtrb::Producer<Returned>,
        gauge: Arc<Gauge>,
    }

    fn disk_set(members: usize) -> (Dealer, Vec<Writer>) {
        let sides = (0..members).map(|_| {
            let (to, commands) = rtrb::RingBuffer::new(64);
            let (returned, from) = rtrb::RingBuffer::new(64);
            let gauge = Arc::new(Gauge::default());
            let wake = Arc::new(Wake::new().unwrap());
            let lane = Lane::new(to, from, gauge.clone(), wake, 60);
            (lane, Writer { commands, returned, gauge })
        });
        let (lanes, writers): (Vec<_>, Vec<_>) = sides.unzip();
        (Dealer::new(lanes), writers)
    }

    fn course() -> Course {
        let geometry = Geometry { frame_bytes: 4096, block_bytes: 4096, chunk_blocks: 3 };
        let directory = "s_a".to_owned();
        Course::new(Arc::new(Track { scan: Uuid::nil(), number: 0, directory, geometry }))
    }

    fn filled(pool: &mut Pool, course: &mut Course) -> Filled {
        Filled {
            block: pool.take().unwrap(),
            track: course.track().clone(),
            sequence: course.take_sequence(),
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

    /// Takes everything a writer was sent: (sequence, chunk, offset).
    fn sent(writer: &mut Writer) -> Vec<Filled> {
        std::iter::from_fn(|| writer.commands.pop().ok())
            .map(|command| match command {
                Command::Write(filled) => filled,
                Command::Finish { .. } => panic!("no finish was asked for"),
            })
            .collect()
    }

    fn places(list: &[Filled]) -> Vec<(u64, u32, u64)> {
        list.iter().map(|f| (f.sequence, f.chunk, f.offset / 4096)).collect()
    }

    #[test]
    fn a_full_member_gives_its_chunk_to_the_next_and_nothing_is_lost() {
        let mut pool = Pool::new(Arc::new(Region::new(1 << 20).unwrap()), 4096, 0);
        let (mut dealer, mut writers) = disk_set(2);
        let mut course = course();
        for _ in 0..2 {
            let block = filled(&mut pool, &mut course);
            assert!(dealer.deal(&mut course, block).is_none());
        }
        writers[0].gauge.refusing.store(true, Ordering::Relaxed);
        for block in sent(&mut writers[0]) {
            writers[0].returned.push(Returned::Refused(block)).unwrap();
        }
        while let Some(Returned::Refused(block)) = dealer.take_returned() {
            assert!(dealer.refused(&mut course, block).is_empty());
            if !course.refused.is_empty() {
                let newer = filled(&mut pool, &mut course);
                assert!(dealer.deal(&mut course, newer).is_none(), "waits behind the refused one");
            }
        }
        let moved = places(&sent(&mut writers[1]));
        assert_eq!(moved, [(0, 0, 0), (1, 0, 1), (2, 0, 2)], "the same chunk, in order");
    }

    #[test]
    fn the_rest_of_a_begun_chunk_goes_on_in_a_new_one() {
        let mut pool = Pool::new(Arc::new(Region::new(1 << 20).unwrap()), 4096, 0);
        let (mut dealer, mut writers) = disk_set(2);
        let mut course = course();
        for _ in 0..3 {
            let block = filled(&mut pool, &mut course);
            dealer.deal(&mut course, block);
        }
        writers[0].gauge.refusing.store(true, Ordering::Relaxed);
        let mut blocks = sent(&mut writers[0]).into_iter();
        blocks.next().unwrap();
        assert!(dealer.written(&mut course, 4096).is_empty());
        for block in blocks {
            assert!(dealer.refused(&mut course, block).is_empty());
        }
        assert_eq!(places(&sent(&mut writers[1])), [(1, 1, 0), (2, 1, 1)]);
    }

    #[test]
    fn the_rest_of_a_begun_chunk_is_a_piece_of_its_own_under_the_next_number() {
        let mut pool = Pool::new(Arc::new(Region::new(1 << 20).unwrap()), 4096, 0);
        let (mut dealer, mut writers) = disk_set(3);
        let mut course = course();
        // Two whole chunks on the first two members, and the beginning of a third.
        for _ in 0..7 {
            let block = filled(&mut pool, &mut course);
            assert!(dealer.deal(&mut course, block).is_none());
        }
        let mut places: Vec<(u32, u64)> = Vec::new();
        let mut fail = |dealer: &mut Dealer, course: &mut Course, member: usize, good: usize| {
            writers[member].gauge.refusing.store(true, Ordering::Relaxed);
            let mut blocks = sent(&mut writers[member]).into_iter();
            for block in blocks.by_ref().take(good) {
                places.push((block.chunk, block.sequence));
                assert!(dealer.written(course, 4096).is_empty());
            }
            for block in blocks {
                assert!(dealer.refused(course, block).is_empty());
            }
        };
        // The first dies within its chunk when the others have long written theirs.
        fail(&mut dealer, &mut course, 1, 3);
        fail(&mut dealer, &mut course, 0, 1);
        writers[1].gauge.refusing.store(false, Ordering::Relaxed);
        // Once the third member's have come to rest, what came back is dealt again, and is written, too.
        loop {
            let rest: Vec<Filled> = writers.iter_mut().flat_map(sent).collect();
            if rest.is_empty() {
                break;
            }
            for block in &rest {
                places.push((block.chunk, block.sequence));
                assert!(dealer.written(&mut course, 4096).is_empty());
            }
        }
        assert!(course.settled());
        let newer = filled(&mut pool, &mut course);
        assert!(dealer.deal(&mut course, newer).is_none());
        let newer = writers.iter_mut().flat_map(sent).next().unwrap();
        places.push((newer.chunk, newer.sequence));
        places.sort_unstable_by_key(|(_, sequence)| *sequence);
        let order: Vec<u64> = places.iter().map(|(_, sequence)| *sequence).collect();
        assert_eq!(order, [0, 1, 2, 3, 4, 5, 6, 7]);
        // In the order of the stream no chunk comes twice, and no number is left out.
        let mut chunks: Vec<u32> = places.iter().map(|(chunk, _)| *chunk).collect();
        chunks.dedup();
        assert_eq!(chunks, [0, 3, 1, 2, 4], "{places:?}");
        chunks.sort_unstable();
        assert_eq!(chunks, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_new_chunk_goes_to_the_member_with_the_shortest_backlog_of_those_that_take_data() {
        let mut pool = Pool::new(Arc::new(Region::new(1 << 20).unwrap()), 4096, 0);
        let (mut dealer, mut writers) = disk_set(3);
        let mut course = course();
        let chunk_blocks = course.track.geometry.chunk_blocks;
        for (writer, backlog) in writers.iter().zip([900_000, 0, 200_000]) {
            writer.gauge.backlog_bytes.store(backlog, Ordering::Relaxed);
        }
        let mut deal_chunk = |dealer: &mut Dealer, writers: &mut [Writer]| {
            for _ in 0..chunk_blocks {
                let block = filled(&mut pool, &mut course);
                assert!(dealer.deal(&mut course, block).is_none());
            }
            writers.iter_mut().map(|writer| sent(writer).len() as u32).collect::<Vec<_>>()
        };
        assert_eq!(deal_chunk(&mut dealer, &mut writers), [0, chunk_blocks, 0]);
        writers[1].gauge.refusing.store(true, Ordering::Relaxed);
        assert_eq!(deal_chunk(&mut dealer, &mut writers), [0, 0, chunk_blocks]);
        writers[2].gauge.refusing.store(true, Ordering::Relaxed);
        assert_eq!(deal_chunk(&mut dealer, &mut writers), [chunk_blocks, 0, 0]);
        writers[1].gauge.refusing.store(false, Ordering::Relaxed);
        writers[1].gauge.backlog_bytes.store(2_000_000, Ordering::Relaxed);
        assert_eq!(deal_chunk(&mut dealer, &mut writers), [chunk_blocks, 0, 0], "the shorter one");
    }

    proptest! {
        #[test]
        fn the_newest_chunks_of_each_stream_make_a_full_stripe_though_streams_go_in_step(
            streams in 1..17usize,
            (data, parity, spare) in (1..9u16, 1..4u16, 0..3usize),
            backlogs in prop::collection::vec(0..30_000u64, 1..200),
        ) {
            let scheme = Scheme { data, parity };
            let (dealer, mut writers) = disk_set(scheme.members() + spare);
            let mut dealer = dealer.for_stripes(Some(scheme));
            let mut pool = Pool::new(Arc::new(Region::new(1 << 20).unwrap()), 4096, 0);
            let mut courses: Vec<Course> = (0..streams).map(|_| course()).collect();
            let mut lying: Vec<Vec<usize>> = vec![Vec::new(); streams];
            let mut backlogs = backlogs.iter().cycle();
            for _ in 0..20 {
                for (course, lying) in courses.iter_mut().zip(&mut lying) {
                    // What is still to be written differs from member to member, within the slack.
                    for (writer, backlog) in writers.iter().zip(&mut backlogs) {
                        writer.gauge.backlog_bytes.store(*backlog, Ordering::Relaxed);
                    }
                    for _ in 0..course.track.geometry.chunk_blocks {
                        let block = filled(&mut pool, course);
                        prop_assert!(dealer.deal(course, block).is_none());
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
        let (dealer, mut writers) = disk_set(3);
        let mut dealer = dealer.for_stripes(Some("parity:2+1".parse().unwrap()));
        let mut course = course();
        // 60 blocks may be with a writer: one that is more than an eighth of them behind gets nothing.
        for (writer, blocks) in writers.iter().zip([0, 8, 9]) {
            writer.gauge.backlog_bytes.store(blocks * 4096, Ordering::Relaxed);
        }
        for _ in 0..12 {
            let block = filled(&mut pool, &mut course);
            assert!(dealer.deal(&mut course, block).is_none());
            let blocks = sent(&mut writers[0]);
            assert_eq!(blocks.len(), 1);
            writers[0].gauge.backlog_bytes.store(0, Ordering::Relaxed);
        }
        assert!(sent(&mut writers[1]).is_empty() && sent(&mut writers[2]).is_empty());
    }

    #[test]
    fn without_any_member_left_blocks_are_given_back_to_be_counted() {
        let mut pool = Pool::new(Arc::new(Region::new(1 << 20).unwrap()), 4096, 0);
        let (mut dealer, mut writers) = disk_set(1);
        let mut course = course();
        let block = filled(&mut pool, &mut course);
        dealer.deal(&mut course, block);
        writers[0].gauge.refusing.store(true, Ordering::Relaxed);
        let block = sent(&mut writers[0]).pop().unwrap();
        assert_eq!(dealer.refused(&mut course, block).len(), 1);
        let block = filled(&mut pool, &mut course);
        assert!(dealer.deal(&mut course, block).is_some());
        assert!(course.settled());
    }

    #[test]
    fn streams_that_end_while_a_writer_is_stalled_leave_room_for_every_block() {
        let mut pool = Pool::new(Arc::new(Region::new(1 << 20).unwrap()), 4096, 0);
        let (mut dealer, mut writers) = disk_set(1);
        let mut course = course();
        for number in 0..100 {
            let (directory, geometry) = ("s_a".to_owned(), course.track().geometry);
            let track = Track { scan: Uuid::nil(), number, directory, geometry };
            dealer.finish(&Course::new(Arc::new(track)), Vec::new());
        }
        assert!(!dealer.all_sent(), "64 places, of which 60 are for blocks");
        for _ in 0..60 {
            let block = filled(&mut pool, &mut course);
            assert!(dealer.deal(&mut course, block).is_none());
        }
        let (mut blocks, mut finished) = (0, Vec::new());
        while blocks < 60 || finished.len() < 100 {
            let command = writers[0].commands.pop().expect("whatever waits comes in its turn");
            match command {
                Command::Write(Filled { block, track, bytes, .. }) => {
                    blocks += 1;
                    let written = Returned::Written { block, track, bytes };
                    assert!(writers[0].returned.push(written).is_ok());
                }
                Command::Finish { track, .. } => finished.push(track.number),
            }
            while dealer.take_returned().is_some() {
                dealer.written(&mut course, 4096);
            }
        }
        assert!(dealer.all_sent());
        assert_eq!(finished, (0..100).collect::<Vec<u16>>());
    }

    #[test]
    fn the_last_gaps_are_told_to_a_member_that_holds_blocks_of_the_stream() {
        use fullbore_core::gap::Cause;

        let mut pool = Pool::new(Arc::new(Region::new(1 << 20).unwrap()), 4096, 0);
        let gaps = || vec![Gap { first: 8, count: 3, cause: Cause::Missing }];
        for (refusing, teller) in [(None, 1), (Some(0), 1), (Some(1), 1)] {
            let (mut dealer, mut writers) = disk_set(2);
            // Another stream has had the first turn.
            let mut other = course();
            let block = filled(&mut pool, &mut other);
            dealer.deal(&mut other, block);
            let mut course = course();
            let block = filled(&mut pool, &mut course);
            dealer.deal(&mut course, block);
            if let Some(member) = refusing {
                writers[member].gauge.refusing.store(true, Ordering::Relaxed);
            }
            dealer.finish(&course, gaps());
            for (member, writer) in writers.iter_mut().enumerate() {
                let told =
                    std::iter::from_fn(|| writer.commands.pop().ok()).find_map(|it| match it {
                        Command::Finish { gaps, .. } => Some(gaps),
                        Command::Write(_) => None,
                    });
                let expected = if member == teller { gaps() } else { Vec::new() };
                assert_eq!(told, Some(expected), "{member} of {refusing:?}");
            }
        }
    }

    #[test]
    fn a_writer_that_has_gone_keeps_nobody_waiting() {
        let (mut dealer, writers) = disk_set(1);
        let course = course();
        (0..100).for_each(|_| dealer.finish(&course, Vec::new()));
        drop(writers);
        assert!(dealer.take_returned().is_none());
        assert!(dealer.all_sent() && dealer.has_lost_a_writer());
    }
}
