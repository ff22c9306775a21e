//! The frame index of each datagram of a stream, and the fill for frames that never arrived.
//!
//! A datagram is `head
//!
//! frame`: the head is received and not kept (a VTP packet number), the frame is. A [`FrameIndexer`] reads both and
//! returns the index of the frame. It learns from a frame only after the capture has accepted it.

use fullbore_formats::framed::FrameCodec;
use fullbore_formats::packets::{Counting, PacketIndexer, PacketReading};
use fullbore_formats::sequence::{Field, Unwrapper};
use fullbore_formats::vdif::{Found, Header, NOWHERE, SecondCount, Timeline};
use fullbore_formats::{Damage, FILL};
use fullbore_time::{Tai, frame_ns};

use crate::account::CountedBy;
use crate::manifest::Fill;

/// The largest valid index; headers with greater ones are wrong. Sums of two valid indices still fit.
const FURTHEST: i64 = 1 << 60;

/// The classification of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexResult {
    /// A valid frame.
    Frame {
        /// Its index in the stream.
        index: i64,
        /// True if the sender marked it invalid.
        invalid: bool,
    },
    /// A valid frame that begins a second before the length of the previous one is certain.
    Early {
        /// Its index by the current state.
        index: i64,
    },
    /// A frame that failed its own check; its index can be read.
    Damaged {
        /// Its index in the stream.
        index: i64,
    },
    /// A valid frame of this stream without a position: its number is beyond the end of its second. It refutes a rate
    /// that was given; a rate that was learnt had been fixed before it arrived.
    InvalidFrameNumber,
    /// A valid frame without a number.
    Uncounted,
    /// Not a frame of this stream.
    Foreign,
}

/// The numbering of a stream.
#[derive(Clone, Debug)]
enum Numbering {
    /// By the time in frames. Several threads alternate frame by frame in the listed order.
    Time { codec: FrameCodec, station: u16, threads: Vec<u16>, timeline: Timeline },
    /// By a field of the datagram.
    Field { field: Field, unwrapper: Unwrapper },
    /// As packets say that tell their stream and their count.
    Packets(PacketIndexer),
    /// By order of arrival.
    Arrival,
}

/// The packet number before each VDIF frame (VTP): a second count, compared with the time in the frames.
#[derive(Clone, Debug)]
struct PacketNumber {
    field: Field,
    unwrapper: Unwrapper,
    /// The count of each thread.
    counts: Vec<SecondCount>,
}

/// Computes the frame index of each datagram of one stream.
#[derive(Clone, Debug)]
pub struct FrameIndexer {
    numbering: Numbering,
    /// Bytes before the frame.
    head_bytes: usize,
    /// Bytes of every frame; 0 if lengths vary.
    frame_bytes: usize,
    /// Added to every index, so that the index continues after a restart of the sender.
    offset: i64,
    /// Header of the last valid frame, for each thread of the stream.
    neighbours: Vec<Option<Header>>,
    /// The second count in the frames, for each thread.
    second_counts: Vec<SecondCount>,
    /// The packet number before the frames, if there is one.
    packet_number: Option<PacketNumber>,
}

impl FrameIndexer {
    /// Counts frames of `frame_bytes` by the time that they carry; the stream has `threads` in this order.
    pub fn by_time(
        codec: FrameCodec,
        station: u16,
        threads: Vec<u16>,
        frame_bytes: usize,
        frames_per_second: Option<u64>,
    ) -> Self {
        assert!(!threads.is_empty(), "a stream has at least one thread");
        let neighbours = vec![None; threads.len()];
        let second_counts = vec![SecondCount::default(); threads.len()];
        let timeline = Timeline::new(frames_per_second);
        let numbering = Numbering::Time { codec, station, threads, timeline };
        Self { neighbours, second_counts, ..Self::of(numbering, 0, frame_bytes) }
    }

    fn of(numbering: Numbering, head_bytes: usize, frame_bytes: usize) -> Self {
        Self {
            numbering,
            head_bytes,
            frame_bytes,
            offset: 0,
            neighbours: Vec::new(),
            second_counts: Vec::new(),
            packet_number: None,
        }
    }

    /// Adds `head_bytes` bytes before each frame that are not kept.
    pub fn behind(mut self, head_bytes: usize) -> Self {
        self.head_bytes = head_bytes;
        self
    }

    /// Adds a packet number in the bytes before each frame, at `field`: a second count. A frame with an inconsistent
    /// number is still a valid frame.
    pub fn beside(mut self, field: Option<Field>) -> Self {
        self.packet_number = field.map(|field| {
            assert!(field.end() <= self.head_bytes, "a packet number lies before the frame");
            let counts = vec![SecondCount::default(); self.second_counts.len()];
            PacketNumber { field, unwrapper: Unwrapper::new(field.width), counts }
        });
        self
    }

    /// Counts datagrams by a field that is wholly in the head or wholly in the frame.
    pub fn by_field(field: Field, head_bytes: usize, frame_bytes: usize) -> Self {
        let unwrapper = Unwrapper::new(field.width);
        let numbering = Numbering::Field { field, unwrapper };
        Self::of(numbering, head_bytes, frame_bytes)
    }

    /// Counts packets behind `head_bytes` bytes as they say.
    pub fn by_packet(packets: PacketIndexer, head_bytes: usize) -> Self {
        Self::of(Numbering::Packets(packets), head_bytes, 0)
    }

    /// Counts frames in order of arrival.
    pub fn by_arrival(head_bytes: usize, frame_bytes: usize) -> Self {
        let numbering = Numbering::Arrival;
        Self::of(numbering, head_bytes, frame_bytes)
    }

    /// Returns the count as named in the account.
    pub fn counted_by(&self) -> CountedBy {
        match &self.numbering {
            Numbering::Time { .. } => CountedBy::FrameTime,
            Numbering::Field { .. } => CountedBy::SequenceField,
            Numbering::Packets(packets) => match packets.counting() {
                Counting::Count => CountedBy::SequenceField,
                Counting::Time => CountedBy::FrameTime,
                Counting::ShortCount => CountedBy::PacketCount,
            },
            Numbering::Arrival => CountedBy::Nothing,
        }
    }

    /// Returns the codec of its frames, if they carry their own time.
    pub fn codec(&self) -> Option<FrameCodec> {
        match self.numbering {
            Numbering::Time { codec, .. } => Some(codec),
            Numbering::Field { .. } | Numbering::Packets(_) | Numbering::Arrival => None,
        }
    }

    /// Classifies a datagram of `datagram_bytes`, of which `head` and `frame` were received.
    #[inline]
    pub fn read(&self, head: &[u8], frame: &[u8], datagram_bytes: usize) -> IndexResult {
        let Some(length) = datagram_bytes.checked_sub(self.head_bytes) else {
            return IndexResult::Foreign;
        };
        match &self.numbering {
            Numbering::Time { codec, station, threads, timeline } => {
                let (header, whole) = match self.check(*codec, frame, length) {
                    Ok(header) => (header, true),
                    // A whole frame of another length belongs to another stream.
                    Err(_) if length == frame.len() && codec.check(frame, length).is_ok() => {
                        return IndexResult::Foreign;
                    }
                    // Its length is wrong, but its header may still have the right index.
                    Err(_) => match codec.read(frame) {
                        Some(header) => (header, false),
                        None => return IndexResult::Foreign,
                    },
                };
                if header.station() != *station {
                    return IndexResult::Foreign;
                }
                let Some(rank) = rank(threads, header.thread()) else {
                    return IndexResult::Foreign;
                };
                let frames = timeline.index(&header);
                if frames == NOWHERE {
                    return if whole {
                        IndexResult::InvalidFrameNumber
                    } else {
                        IndexResult::Foreign
                    };
                }
                let index = frames.saturating_mul(threads.len() as i64).saturating_add(rank as i64);
                if index.abs() > FURTHEST {
                    return IndexResult::Foreign;
                }
                let index = index.saturating_add(self.offset);
                match whole {
                    true if timeline.is_early(&header) => IndexResult::Early { index },
                    true => IndexResult::Frame { index, invalid: header.invalid() },
                    false => IndexResult::Damaged { index },
                }
            }
            Numbering::Field { field, unwrapper } => {
                let Some(raw) = self.field_of(*field, head, frame) else {
                    return IndexResult::Foreign;
                };
                let index = unwrapper.index(raw).saturating_add(self.offset);
                if self.frame_bytes == 0 || length == self.frame_bytes {
                    IndexResult::Frame { index, invalid: false }
                } else {
                    IndexResult::Damaged { index }
                }
            }
            Numbering::Packets(packets) => match packets.read(frame, length) {
                PacketReading::Whole { index, invalid } => {
                    IndexResult::Frame { index: index.saturating_add(self.offset), invalid }
                }
                PacketReading::Damaged { index } => {
                    IndexResult::Damaged { index: index.saturating_add(self.offset) }
                }
                PacketReading::Foreign => IndexResult::Foreign,
            },
            Numbering::Arrival if self.frame_bytes == 0 || length == self.frame_bytes => {
                IndexResult::Uncounted
            }
            Numbering::Arrival => IndexResult::Foreign,
        }
    }

    /// Learns from an accepted frame.
    #[inline]
    pub fn learn(&mut self, head: &[u8], frame: &[u8]) {
        match &mut self.numbering {
            Numbering::Time { codec, threads, timeline, .. } => {
                let Some(header) = codec.read(frame) else { return };
                timeline.observe(&header);
                if let Some(rank) = rank(threads, header.thread()) {
                    let rate = timeline.frames_per_second();
                    self.second_counts[rank].take(&header, rate);
                    if let Some(PacketNumber { field, unwrapper, counts }) = &mut self.packet_number
                        && let Some(raw) = field.read(head)
                    {
                        counts[rank].take_number(&header, unwrapper.observe(raw), rate);
                    }
                    self.neighbours[rank] = Some(header);
                }
            }
            Numbering::Field { field, unwrapper } => {
                let field = *field;
                let raw = if field.end() <= self.head_bytes {
                    field.read(head)
                } else {
                    let offset = field.offset - self.head_bytes;
                    Field { offset, ..field }.read(frame)
                };
                if let Some(raw) = raw {
                    unwrapper.observe(raw);
                }
            }
            Numbering::Packets(packets) => packets.learn(frame),
            Numbering::Arrival => {}
        }
    }

    /// Fixes the length of the newest second at the value that its frames show now: no frame of the next one is early
    /// after that.
    pub fn settle(&mut self) {
        if let Numbering::Time { timeline, .. } = &mut self.numbering {
            timeline.settle();
        }
    }

    /// Continues the count after a restart of the sender: the index `from` of this datagram, the first one after it, becomes
    /// `to`. Packets that may have other lengths after a restart are counted anew.
    pub fn restart(&mut self, datagram: &[u8], from: i64, to: i64) {
        let mut from = from;
        if let Numbering::Packets(packets) = &mut self.numbering
            && packets.restart()
            && let Some((head, frame)) = datagram.split_at_checked(self.head_bytes)
            && let IndexResult::Frame { index, .. } = self.read(head, frame, datagram.len())
        {
            from = index;
        }
        self.rebase(from, to);
    }

    /// Moves the count: its index `from` becomes `to`.
    pub fn rebase(&mut self, from: i64, to: i64) {
        let moved = self.offset.saturating_add(to.saturating_sub(from));
        self.offset = moved.clamp(-2 * FURTHEST, 2 * FURTHEST);
    }

    /// Returns the frames per second of each thread, if known, and whether the rate was derived from the frames.
    pub fn frames_per_second(&self) -> Option<(u64, bool)> {
        let timeline = self.timeline()?;
        Some((timeline.frames_per_second()?, timeline.is_derived()))
    }

    /// Returns the rate of the headers that frames have refuted, as [`Timeline::refuted`] does.
    pub fn refuted(&self) -> Option<(u64, u64)> {
        self.timeline()?.refuted()
    }

    /// Returns a given rate that is probably too high, as [`Timeline::exaggerated`] does.
    pub fn exaggerated(&self) -> Option<(u64, u64)> {
        self.timeline()?.exaggerated()
    }

    /// Returns the frames of the whole stream per second.
    pub fn frames_of_stream_per_second(&self) -> Option<u64> {
        let (rate, _) = self.frames_per_second()?;
        match &self.numbering {
            Numbering::Time { threads, .. } => Some(rate * threads.len() as u64),
            _ => None,
        }
    }

    /// Returns the frames that were lost at boundaries between seconds and noticed only later.
    pub fn correction(&self) -> u64 {
        match &self.numbering {
            Numbering::Time { threads, timeline, .. } => {
                timeline.correction() * threads.len() as u64
            }
            _ => 0,
        }
    }

    /// Returns the findings of the second count since the last call: a packet number before the frames, or a count in
    /// their extended data.
    pub fn found(&mut self) -> Found {
        let numbers = self.packet_number.iter_mut().flat_map(|it| &mut it.counts);
        let mut sum = Found::default();
        if let Numbering::Packets(packets) = &mut self.numbering {
            sum.add(packets.found());
        }
        for found in self.second_counts.iter_mut().chain(numbers).map(SecondCount::found) {
            sum.add(found);
        }
        sum
    }

    /// Returns the index of the first frame, over all threads, with the time of this one.
    pub fn first_of_set(&self, index: i64) -> i64 {
        let threads = self.threads().len().max(1) as i64;
        index - (index - self.offset).rem_euclid(threads)
    }

    /// Returns the threads of the stream, in order.
    pub fn threads(&self) -> &[u16] {
        match &self.numbering {
            Numbering::Time { threads, .. } => threads,
            _ => &[],
        }
    }

    /// Returns the time of an index, if frames carry time and the index follows from it.
    pub fn time(&self, index: i64) -> Option<Tai> {
        match &self.numbering {
            Numbering::Time { threads, timeline, .. } => {
                timeline.time((index - self.offset).div_euclid(threads.len() as i64))
            }
            _ => None,
        }
    }

    /// True if a frame belongs to the packets that it counts.
    pub fn is_of_packets(&self, frame: &[u8]) -> bool {
        matches!(&self.numbering, Numbering::Packets(packets) if packets.owns(frame))
    }

    /// Returns the time in a frame itself, if it is plausible.
    pub fn stamp(&self, frame: &[u8]) -> Option<Tai> {
        if let Numbering::Packets(packets) = &self.numbering {
            return packets.stamp(frame);
        }
        let rate = self.timeline()?.frames_per_second()?;
        let header = self.codec()?.read(frame).filter(|header| !header.invalid())?;
        let number = u64::from(header.frame_number());
        (number < rate).then(|| header.second().start().plus_ns(frame_ns(number, rate)))
    }

    /// Makes up the frame at `index`: an invalid frame that keeps its identity, or a pattern.
    pub fn fill(&self, index: i64, fill: Fill, frame: &mut [u8]) {
        let word = match fill {
            Fill::Pattern(word) => word,
            Fill::Invalid | Fill::Omit => FILL,
        };
        for chunk in frame.chunks_mut(4) {
            chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
        }
        if fill == Fill::Invalid
            && let Some((codec, header)) = self.header_of_fill(index)
        {
            // A frame too short for its header has only the pattern.
            let _ = codec.write(&header, frame);
        }
    }

    fn header_of_fill(&self, index: i64) -> Option<(FrameCodec, Header)> {
        match &self.numbering {
            Numbering::Time { codec, threads, timeline, .. } => {
                let count = threads.len() as i64;
                let rank = (index - self.offset).rem_euclid(count) as usize;
                let neighbour = self.neighbours[rank].or_else(|| {
                    let any = self.neighbours.iter().flatten().next()?;
                    Some(any.with_thread(threads[rank]))
                })?;
                let (second, frame) = timeline.position((index - self.offset).div_euclid(count))?;
                let rate = timeline.frames_per_second();
                Some((*codec, codec.fill_header(&neighbour, second, frame, rate)))
            }
            Numbering::Field { .. } | Numbering::Packets(_) | Numbering::Arrival => None,
        }
    }

    fn check(&self, codec: FrameCodec, frame: &[u8], length: usize) -> Result<Header, Damage> {
        if length != frame.len() {
            return Err(Damage::WrongLength { expected: self.frame_bytes, is: length });
        }
        let expected = if self.frame_bytes == 0 { length } else { self.frame_bytes };
        codec.check(frame, expected)
    }

    fn timeline(&self) -> Option<&Timeline> {
        match &self.numbering {
            Numbering::Time { timeline, .. } => Some(timeline),
            Numbering::Field { .. } | Numbering::Packets(_) | Numbering::Arrival => None,
        }
    }

    fn field_of(&self, field: Field, head: &[u8], frame: &[u8]) -> Option<u64> {
        if field.end() <= self.head_bytes {
            field.read(head)
        } else {
            let offset = field.offset.checked_sub(self.head_bytes)?;
            Field { offset, ..field }.read(frame)
        }
    }
}

/// Returns the position of a thread in the order of the stream.
#[inline]
fn rank(threads: &[u16], thread: u16) -> Option<usize> {
    threads.iter().position(|&listed| listed == thread)
}

#[cfg(test)]
mod mark5b;

#[cfg(test)]
mod tests {
    use fullbore_formats::gvsp::write::{Images, LONGEST_HEAD};
    use fullbore_formats::packets::PacketStream;

    use super::*;

    const BYTES: usize = 1032;

    /// A datagram of a camera behind two other bytes: packet `number` of images with so many payload packets.
    fn image_packet(payload_packets: u32, number: u64) -> Vec<u8> {
        let images = Images { payload_packets, payload_bytes: 50, extended: true };
        let mut bytes = vec![0; 2 + LONGEST_HEAD + 50];
        let (head, payload) = images.write(number, &mut bytes[2..]).unwrap();
        bytes.truncate(2 + head + payload);
        bytes
    }

    #[test]
    fn images_of_another_length_follow_a_restart() {
        let first = image_packet(3, 500);
        let packets = PacketStream::Gvsp.indexer(&first[2..]).unwrap();
        let mut count = FrameIndexer::by_packet(packets, 2);
        let read = |count: &FrameIndexer, datagram: &[u8]| match count.read(
            &datagram[..2],
            &datagram[2..],
            datagram.len(),
        ) {
            IndexResult::Frame { index, .. } => index,
            other => panic!("{other:?}"),
        };
        for (index, number) in (0..).zip(500..520) {
            let datagram = image_packet(3, number);
            assert_eq!(read(&count, &datagram), index);
            count.learn(&datagram[..2], &datagram[2..]);
        }
        let again = image_packet(9, 0);
        let from = read(&count, &again);
        count.restart(&again, from, 20);
        for (index, number) in (20..).zip(0..300) {
            let datagram = image_packet(9, number);
            assert_eq!(read(&count, &datagram), index);
            count.learn(&datagram[..2], &datagram[2..]);
        }
    }

    fn frame(second: u32, number: u32, thread: u16) -> Vec<u8> {
        let header = Header::default()
            .with_reference_epoch(53)
            .with_seconds(second)
            .with_frame_number(number)
            .with_thread(thread)
            .with_frame_bytes(BYTES as u32);
        let mut frame = vec![0x55; BYTES];
        header.write(&mut frame).unwrap();
        frame
    }

    fn index(count: &FrameIndexer, frame: &[u8]) -> Option<i64> {
        match count.read(&[], frame, frame.len()) {
            IndexResult::Frame { index, .. } => Some(index),
            _ => None,
        }
    }

    #[test]
    fn a_frame_numbered_beyond_a_given_rate_is_one_of_the_stream_without_a_place() {
        let mut count = FrameIndexer::by_time(FrameCodec::VDIF, 0, vec![0], BYTES, Some(100));
        let first = frame(1000, 99, 0);
        count.learn(&[], &first);
        assert_eq!(index(&count, &first), Some(99));
        let beyond = frame(1000, 100, 0);
        assert_eq!(count.read(&[], &beyond, BYTES), IndexResult::InvalidFrameNumber);
        assert_eq!(count.read(&[], &beyond, BYTES - 8), IndexResult::Foreign);
        assert_eq!(count.read(&[], &frame(1000, 100, 1), BYTES), IndexResult::Foreign);
    }

    #[test]
    fn threads_of_one_stream_lie_in_the_order_listed() {
        let mut count = FrameIndexer::by_time(FrameCodec::VDIF, 0, vec![1, 3, 0], BYTES, Some(100));
        count.learn(&[], &frame(10, 0, 1));
        assert_eq!(index(&count, &frame(10, 0, 1)), Some(0));
        assert_eq!(index(&count, &frame(10, 0, 0)), Some(2));
        assert_eq!(index(&count, &frame(11, 0, 3)), Some(301));
        assert_eq!(index(&count, &frame(10, 0, 7)), None, "a thread that was not listed");
    }

    #[test]
    fn a_fill_frame_keeps_time_thread_and_station() {
        let mut count = FrameIndexer::by_time(FrameCodec::VDIF, 0, vec![1, 3], BYTES, Some(100));
        count.learn(&[], &frame(10, 98, 1));
        count.learn(&[], &frame(10, 98, 3));
        let mut made = vec![0; BYTES];
        let after = index(&count, &frame(11, 0, 3)).unwrap();
        count.fill(after, Fill::Invalid, &mut made);
        let header = FrameCodec::VDIF.check(&made, BYTES).unwrap();
        assert!(header.invalid());
        assert_eq!((header.seconds(), header.frame_number(), header.thread()), (11, 0, 3));
        assert_eq!(&made[32..36], &FILL.to_le_bytes());
    }

    #[test]
    fn frames_behind_bytes_that_are_stripped_are_whole() {
        let count =
            FrameIndexer::by_time(FrameCodec::VDIF, 0, vec![0], BYTES, Some(100)).behind(28);
        let reading = count.read(&[9; 28], &frame(10, 5, 0), BYTES + 28);
        assert_eq!(reading, IndexResult::Frame { index: 5, invalid: false });
    }

    #[test]
    fn wrong_lengths_are_damaged_where_the_header_can_be_read() {
        let mut count = FrameIndexer::by_time(FrameCodec::VDIF, 0, vec![0], BYTES, Some(100));
        let whole = frame(10, 5, 0);
        count.learn(&[], &whole);
        assert_eq!(count.read(&[], &whole[..500], 500), IndexResult::Damaged { index: 5 });
        assert_eq!(count.read(&[], &whole, 9000), IndexResult::Damaged { index: 5 });
        assert_eq!(count.read(&[], &whole[..5], 5), IndexResult::Foreign);
    }

    #[test]
    fn a_frame_tells_its_time_once_the_rate_is_known_and_only_if_it_is_to_be_believed() {
        let at = |count: &FrameIndexer, frame: &[u8]| count.stamp(frame);
        let count = FrameIndexer::by_time(FrameCodec::VDIF, 0, vec![0], BYTES, Some(100));
        let second = Tai::of_half_year(53).plus_ns(10_000_000_000);
        assert_eq!(at(&count, &frame(10, 25, 0)), Some(second.plus_ns(250_000_000)));
        assert_eq!(at(&count, &frame(10, 100, 0)), None, "beyond the end of its second");
        let header = Header::read(&frame(10, 25, 0)).unwrap().with_invalid(true);
        let mut invalid = frame(10, 25, 0);
        header.write(&mut invalid).unwrap();
        assert_eq!(at(&count, &invalid), None);
        assert_eq!(
            at(
                &FrameIndexer::by_time(FrameCodec::VDIF, 0, vec![0], BYTES, None),
                &frame(10, 25, 0)
            ),
            None
        );
        assert_eq!(at(&count, &[1, 2]), None);
    }

    #[test]
    fn a_packet_number_is_held_against_the_time_and_loses_no_frame() {
        let disagreements = |number: fn(u64) -> u64| {
            let count =
                FrameIndexer::by_time(FrameCodec::VDIF, 0, vec![0], BYTES, Some(100)).behind(8);
            let mut count = count.beside(Some(Field::PSN));
            for n in 0..50u32 {
                let (head, whole) = (number(n.into()).to_le_bytes(), frame(10, n, 0));
                let reading = count.read(&head, &whole, BYTES + 8);
                assert_eq!(reading, IndexResult::Frame { index: n.into(), invalid: false });
                count.learn(&head, &whole);
            }
            count.found().disagreements
        };
        assert_eq!(disagreements(|n| 7 + n), 0);
        assert_eq!(disagreements(|n| 4 * n), 0, "it counts four threads");
        assert_eq!(disagreements(|n| if n < 30 { 1000 + n } else { n }), 1, "it began anew");
        assert!(disagreements(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15)) > 40);
    }

    #[test]
    fn a_described_field_counts_an_unknown_format() {
        let field: Field = "2:2:be".parse().unwrap();
        let mut count = FrameIndexer::by_field(field, 0, 6);
        count.learn(&[], &[9, 9, 0xFF, 0xFF, 1, 2]);
        let reading = count.read(&[], &[9, 9, 0, 1, 1, 2], 6);
        assert_eq!(reading, IndexResult::Frame { index: 0x1_0001, invalid: false });
        assert_eq!(count.read(&[], &[9, 9], 2), IndexResult::Foreign);
    }
}
