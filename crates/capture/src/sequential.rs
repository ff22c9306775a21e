//! An unindexed stream: frames are stored in receive order (several threads, varying lengths, or no number).
//!
//! Frames are not moved, so there is no fill. Each sub-stream has a window of its own that detects missing, late and
//! duplicate frames; duplicate and late frames are not stored. With varying lengths a frame may span two blocks: its
//! rest is copied to the start of the next.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use crate::window::{Arrival, ScanTotals, Window};
use fullbore_core::account::{CountedBy, Edge};
use fullbore_core::frame_index::{FrameIndexer, IndexResult};
use fullbore_core::manifest::Format;
use fullbore_core::partial_block::BlockState;
use fullbore_formats::framed::FrameCodec;
use fullbore_formats::packets::PacketStream;
use fullbore_formats::sequence::Field;
use fullbore_formats::vdif::Header;
use fullbore_formats::vita49;
use fullbore_linux::ring::{Block, FullBlock, Pool};
use fullbore_time::Tai;

use super::detect::Detector;
use super::reassembler::{CaptureResources, LONGEST_GAP};
use super::resync::{FarFrames, Resync};
use super::scan_stream::{
    FormatWarnings, ScanContext, ScanStream, StreamLayout, StreamMetrics, StreamTotals,
    SubStreamTotals, came_after_cut,
};
use super::second_boundary::{self, SecondBoundary};
use super::unclaimed::{Handed, HandedBack, Key};
use crate::checksum;

/// Frames in a page of a sub-stream's window. The window repairs nothing, so it may be wide.
const FLOW_PAGE: u32 = 1024;

/// Packets in such a page, if a sender may send lost ones again: a fifth of a second at 10 Gbit/s in large packets.
const RESENT_PAGE: u32 = 1 << 15;

/// The time for which the counts of a scan stay open after a cut.
const GRACE_NS: i64 = 100_000_000;

/// The number of frames of each sub-stream whose checksums are remembered.
const LATELY: usize = 1024;

/// A sub-stream with fewer frames may be there by mistake.
const AGREE: u64 = 3;

/// The largest number of sub-streams of one stream.
const MOST_FLOWS: usize = 1024;

/// The sub-streams of a stream, and the way of counting their frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubStreams {
    /// One for each station and thread of frames with a time, counted by it.
    Threads {
        /// Reads the frames.
        codec: FrameCodec,
        /// Frames per second of each, if given.
        frames_per_second: Option<u64>,
        /// The field of a packet number before each frame, if there is one.
        packet_number: Option<Field>,
    },
    /// Those of packets that tell their stream: one, or one for each kind and stream id of VITA-49.
    Packets(PacketStream),
    /// All frames are one sub-stream.
    One,
    /// Frames cannot be counted.
    None,
}

impl SubStreams {
    /// Returns the codec of the frames, if they show station and thread.
    fn codec(self) -> Option<FrameCodec> {
        match self {
            SubStreams::Threads { codec, .. } => Some(codec),
            SubStreams::Packets(_) | SubStreams::One | SubStreams::None => None,
        }
    }
}

struct SubStream {
    station: u16,
    thread: u16,
    count: FrameIndexer,
    window: Window<()>,
    far_frames: FarFrames,
    finished: VecDeque<ScanTotals>,
    /// Frames recorded of it, in all scans.
    recorded: u64,
    /// Index and checksum of recently recorded frames, which tell a duplicate from another frame of the same time.
    lately: Vec<(i64, u32)>,
    /// The arrival times of its first and last frame in the scan.
    seen: Option<(Tai, Tai)>,
    /// The first and the last recorded frame of it in the scan.
    ends: Option<(FramePosition, FramePosition)>,
}

impl SubStream {
    fn new(station: u16, thread: u16, count: FrameIndexer, window: Window<()>) -> Self {
        Self {
            station,
            thread,
            count,
            window,
            far_frames: FarFrames::default(),
            finished: VecDeque::new(),
            recorded: 0,
            lately: Vec::new(),
            seen: None,
            ends: None,
        }
    }

    fn remember(&mut self, index: i64, frame: &[u8]) {
        if self.lately.is_empty() {
            self.lately = vec![(i64::MIN, 0); LATELY];
        }
        self.lately[index.rem_euclid(LATELY as i64) as usize] = (index, checksum::append(0, frame));
    }

    /// True if this very frame was recorded, as far as that is remembered.
    fn is_recorded(&self, index: i64, frame: &[u8]) -> bool {
        let known = self.lately.get(index.rem_euclid(LATELY as i64) as usize);
        known.is_some_and(|known| *known == (index, checksum::append(0, frame)))
    }
}

/// The position of a frame: sub-stream and index. Its time may become known only after its second has ended.
#[derive(Clone, Copy)]
struct FramePosition {
    flow: usize,
    index: i64,
    /// The time, if the sub-stream has restarted since and no longer tells it.
    time: Option<Tai>,
}

impl FramePosition {
    fn time(&self, flows: &[SubStream]) -> Option<Tai> {
        self.time.or_else(|| flows[self.flow].count.time(self.index))
    }
}

/// A stream stored in receive order.
pub struct SequentialStream {
    shape: StreamLayout,
    kind: SubStreams,
    /// True if the user gave the length of frames.
    of_length: bool,
    /// The only threads of one station that belong to it, if others do not.
    only: Option<(u16, Vec<u16>)>,
    /// The indexer for a new sub-stream.
    pattern: FrameIndexer,
    flows: Vec<SubStream>,
    second_boundary: SecondBoundary,
    block: Option<Block>,
    /// Bytes in the block, and the number of frames that begin in it.
    used: usize,
    frames: u32,
    invalid: u32,
    lengths: Vec<u16>,
    /// Number of the first frame that begins in the block.
    first: i64,
    /// The position of that frame, if it is counted.
    mark: Option<FramePosition>,
    /// The arrival time of that frame.
    came: Option<Tai>,
    arrived: u64,
    /// The first and the last frame of the scan.
    ends: Option<(FramePosition, FramePosition)>,
    bytes: u64,
    /// The correction already counted in earlier scans.
    corrected: u64,
    uncounted: u64,
    overrun: u64,
    scan_streams: VecDeque<ScanStream>,
    /// The time of the cut between the newest scan and the previous one.
    cut_at: Option<Tai>,
    doubt: FormatWarnings,
    handed_back: HandedBack,
    metrics: Arc<StreamMetrics>,
}

impl SequentialStream {
    /// An empty stream. `pattern` is the indexer of a sub-stream that is not counted by VDIF time.
    pub fn new(
        shape: StreamLayout,
        kind: SubStreams,
        pattern: FrameIndexer,
        context: Arc<ScanContext>,
    ) -> Self {
        let scan_stream = ScanStream::new(context, &shape);
        Self {
            shape,
            kind,
            of_length: false,
            only: None,
            pattern,
            flows: Vec::new(),
            second_boundary: SecondBoundary::default(),
            block: None,
            used: 0,
            frames: 0,
            invalid: 0,
            lengths: Vec::new(),
            first: 0,
            mark: None,
            came: None,
            arrived: 0,
            ends: None,
            bytes: 0,
            corrected: 0,
            uncounted: 0,
            overrun: 0,
            scan_streams: VecDeque::from([scan_stream]),
            cut_at: None,
            doubt: FormatWarnings::default(),
            handed_back: HandedBack::default(),
            metrics: Arc::default(),
        }
    }

    /// Leaves all frames except those of these threads of one station to other streams or to the user's filter.
    pub fn keep_to(&mut self, station: u16, threads: Vec<u16>) {
        self.only = Some((station, threads));
    }

    /// Counts datagrams of a length other than the user's as excluded.
    pub fn exclude_other_lengths(&mut self) {
        self.of_length = true;
    }

    /// Begins each sub-stream of the first datagrams with its earliest frame, so that no
    /// overtaken frame is before the start.
    pub fn expect(&mut self, first: &Detector) {
        for datagram in first.datagrams() {
            let (head, frame) = self.shape.split(datagram);
            if self.owns(frame) {
                self.flow_of(head, frame, datagram.len(), Some(first));
            }
        }
    }

    /// True if a frame belongs to it.
    pub fn owns(&self, frame: &[u8]) -> bool {
        let of_length = frame.len() == self.shape.geometry.frame_bytes as usize;
        let codec = self.codec();
        match (self.kind, &self.only) {
            (SubStreams::Threads { .. }, None) => of_length,
            (SubStreams::Packets(packets), _) => packets.owns(frame),
            (_, None) => true,
            // A damaged frame belongs to it too. A whole one of another length belongs to another stream.
            (_, Some((station, threads))) => codec.is_some_and(|codec| {
                codec.read(frame).is_some_and(|header| {
                    header.station() == *station && threads.contains(&header.thread())
                }) && (of_length || Key::of(codec, frame, 0).is_none())
            }),
        }
    }

    /// Returns the codec of its frames, if they carry their own time.
    fn codec(&self) -> Option<FrameCodec> {
        self.kind.codec().or(self.pattern.codec())
    }

    fn header(&self, frame: &[u8]) -> Option<Header> {
        self.kind.codec()?.read(frame)
    }

    /// Counts a datagram whose length differs from the first ones, if each datagram is a frame.
    fn take_other_length(&mut self, bytes: usize) {
        let excluded = self.of_length;
        let newest = self.newest();
        if excluded {
            newest.excluded += 1;
        } else {
            newest.unrecorded += 1;
            newest.other_length = Some(bytes);
        }
    }

    /// Passes a datagram that is no frame of this stream back to the port: it may belong to another stream.
    fn hand_back(&mut self, datagram: &[u8]) {
        let (_, frame) = self.shape.split(datagram);
        if self.kind == SubStreams::None && !frame.is_empty() {
            self.take_other_length(datagram.len());
            return;
        }
        let handed = match self.kind.codec() {
            Some(codec) if !self.owns(frame) => {
                self.handed_back.push(codec, datagram, self.shape.stripped_bytes as usize)
            }
            // A whole frame that this stream could not accept, and that no other stream will: its thread exceeds the
            // number of sub-streams, or its time is impossible.
            Some(codec) if Key::of(codec, frame, 0).is_some() => Handed::NoRoom,
            _ => Handed::NoFrame,
        };
        match handed {
            Handed::Back => {}
            Handed::NoFrame => self.newest().foreign(datagram.len()),
            Handed::NoRoom => self.newest().unrecorded += 1,
        }
    }

    /// Returns the datagrams that may belong to other streams.
    pub fn take_handed_back(&mut self) -> Vec<Vec<u8>> {
        self.handed_back.take()
    }

    /// The layout.
    pub fn shape(&self) -> &StreamLayout {
        &self.shape
    }

    /// The metrics.
    pub fn metrics(&self) -> &Arc<StreamMetrics> {
        &self.metrics
    }

    /// The format of its frames.
    pub fn format(&self) -> Format {
        if let SubStreams::Packets(packets) = self.kind {
            return Format::Packets { kind: packets.kind() };
        }
        let Some(codec) = self.codec() else { return Format::Raw };
        let (frames_per_second, derived) = match (self.kind, self.flows.first()) {
            (SubStreams::Threads { .. }, Some(flow)) => {
                let rate = flow.count.frames_per_second();
                (rate.map(|(rate, _)| rate), rate.is_some_and(|(_, derived)| derived))
            }
            (SubStreams::Threads { frames_per_second, .. }, None) => (frames_per_second, false),
            (SubStreams::Packets(_) | SubStreams::One | SubStreams::None, _) => (None, false),
        };
        Format::Frames { kind: codec.kind(), frames_per_second, derived, threads: Vec::new() }
    }

    /// Processes one datagram.
    pub fn ingest(&mut self, datagram: &[u8], resources: &mut CaptureResources<'_>) {
        if self.second_boundary.is_held() {
            // Frames are stored in receive order, so all wait together.
            self.second_boundary.hold(datagram, resources.now);
            self.cross_border(false, resources);
        } else {
            self.take(datagram, resources);
        }
    }

    /// Releases the datagrams held at a second boundary, if the wait for overtaken frames is over, or at once.
    pub fn cross_border(&mut self, at_once: bool, resources: &mut CaptureResources<'_>) {
        while let Some(held) = self.second_boundary.take(at_once, resources.now) {
            held.iter().for_each(|datagram| self.learn_length(datagram));
            self.flows.iter_mut().for_each(|flow| flow.count.settle());
            held.iter().for_each(|datagram| self.ingest(datagram, resources));
        }
    }

    fn learn_length(&mut self, datagram: &[u8]) {
        let (head, frame) = self.shape.split(datagram);
        let Some(header) = self.header(frame) else { return };
        let own = (header.station(), header.thread());
        let flow = self.flows.iter_mut().find(|flow| (flow.station, flow.thread) == own);
        if let Some(flow) = flow {
            second_boundary::learn_length(&mut flow.count, &flow.window, (head, frame));
        }
    }

    fn take(&mut self, datagram: &[u8], resources: &mut CaptureResources<'_>) {
        let (head, frame) = self.shape.split(datagram);
        let all = self.only.is_none() && !matches!(self.kind, SubStreams::Packets(_));
        let owned = all || self.owns(frame);
        let flow = owned.then(|| self.flow_of(head, frame, datagram.len(), None)).flatten();
        let Some(flow) = flow else {
            match owned && self.is_beyond(head, frame, datagram.len()) {
                true => self.newest().beyond(resources.now),
                false => self.hand_back(datagram),
            }
            return;
        };
        let reading = match flow {
            Some(number) => self.flows[number].count.read(head, frame, datagram.len()),
            None => self.pattern.read(head, frame, datagram.len()),
        };
        match (reading, flow) {
            (IndexResult::Frame { index, invalid }, Some(number)) => {
                self.take_counted(number, index, invalid, head, frame, resources);
            }
            (IndexResult::Early { .. }, Some(_)) => {
                self.second_boundary.hold(datagram, resources.now)
            }
            (IndexResult::Damaged { index }, Some(number)) => {
                match self.flows[number].window.arrive_damaged(index) {
                    Arrival::OutOfWindow | Arrival::BeforeScan | Arrival::Occupied => {
                        self.newest().foreign(datagram.len());
                    }
                    arrival => {
                        self.newest().damaged(arrival, resources.now);
                        self.seen(number, resources.now);
                    }
                }
            }
            (IndexResult::InvalidFrameNumber, Some(number)) => {
                self.newest().beyond(resources.now);
                self.seen(number, resources.now);
            }
            (IndexResult::Uncounted, None) => {
                if self.make_room(frame.len(), resources) {
                    self.append(frame, false, None, resources.now);
                    self.uncounted += 1;
                } else {
                    self.overrun += 1;
                }
                self.newest().seen(resources.now);
            }
            _ => self.hand_back(datagram),
        }
        self.publish_full(resources);
    }

    /// Returns the sub-stream of a datagram: `None` for no frame, `Some(None)` if frames are not counted. The datagram
    /// may be among the first of the stream.
    fn flow_of(
        &mut self,
        head: &[u8],
        frame: &[u8],
        bytes: usize,
        first: Option<&Detector>,
    ) -> Option<Option<usize>> {
        if frame.is_empty() {
            return None;
        }
        let (station, thread) = match self.kind {
            SubStreams::None => return Some(None),
            SubStreams::One => (0, 0),
            SubStreams::Packets(packets) => packets.indexer(frame)?.stream_halves(),
            SubStreams::Threads { codec, .. } => {
                let header = codec.read(frame)?;
                (header.station(), header.thread())
            }
        };
        let same = |flow: &SubStream| match self.kind {
            SubStreams::Packets(_) => flow.count.is_of_packets(frame),
            _ => (flow.station, flow.thread) == (station, thread),
        };
        if let Some(number) = self.flows.iter().position(same) {
            return Some(Some(number));
        }
        if self.flows.len() >= MOST_FLOWS {
            return None;
        }
        // A new thread: only a good frame may open a sub-stream.
        let mut count = match self.kind {
            SubStreams::Packets(packets) => {
                let strip = self.shape.stripped_bytes as usize;
                FrameIndexer::by_packet(packets.indexer(frame)?, strip)
            }
            _ => self.count_of(station, thread),
        };
        let IndexResult::Frame { .. } = count.read(head, frame, bytes) else { return None };
        let strip = self.shape.stripped_bytes as usize;
        let index = first.and_then(|first| first.earliest(&mut count, strip)).or_else(|| {
            count.learn(head, frame);
            match count.read(head, frame, bytes) {
                IndexResult::Frame { index, .. } => Some(index),
                _ => None,
            }
        })?;
        let page = match self.kind {
            SubStreams::Packets(packets) if packets.is_sent_again() => RESENT_PAGE,
            _ => FLOW_PAGE,
        };
        let window = Window::new(page, 2, index);
        self.flows.push(SubStream::new(station, thread, count, window));
        Some(Some(self.flows.len() - 1))
    }

    /// True if a frame of a thread without a sub-stream has no index either, by its number.
    fn is_beyond(&self, head: &[u8], frame: &[u8], bytes: usize) -> bool {
        self.header(frame).is_some_and(|header| {
            let count = self.count_of(header.station(), header.thread());
            count.read(head, frame, bytes) == IndexResult::InvalidFrameNumber
        })
    }

    /// Returns the indexer for a thread.
    fn count_of(&self, station: u16, thread: u16) -> FrameIndexer {
        match self.kind {
            SubStreams::Threads { codec, frames_per_second: rate, packet_number } => {
                let bytes = self.shape.geometry.frame_bytes as usize;
                let strip = self.shape.stripped_bytes as usize;
                let count = FrameIndexer::by_time(codec, station, vec![thread], bytes, rate);
                count.behind(strip).beside(packet_number)
            }
            SubStreams::Packets(_) | SubStreams::One | SubStreams::None => self.pattern.clone(),
        }
    }

    fn take_counted(
        &mut self,
        number: usize,
        index: i64,
        invalid: bool,
        head: &[u8],
        frame: &[u8],
        resources: &mut CaptureResources<'_>,
    ) {
        let room = self.make_room(frame.len(), resources);
        let flow = &mut self.flows[number];
        let arrival = match room {
            true => flow.window.arrive(index, || Some(())),
            false => flow.window.arrive_without_memory(index),
        };
        if arrival == Arrival::OutOfWindow && !invalid {
            self.hear_from_afar(number, index, [head, frame].concat(), resources);
            return;
        }
        // Pages of a sub-stream hold no memory; they are only counted.
        while flow.window.take_closed().is_some() {}
        match arrival {
            Arrival::Placed { .. } if room => {
                flow.count.learn(head, frame);
                flow.remember(index, frame);
                let found = flow.count.found();
                self.newest().second_count.add(found);
                let time = match self.kind {
                    SubStreams::Packets(_) => self.flows[number].count.stamp(frame),
                    _ => None,
                };
                let mark = FramePosition { flow: number, index, time };
                self.append(frame, invalid, Some(mark), resources.now);
                self.look_at_the_clock(number, frame, resources.now);
                self.near(number, resources);
            }
            Arrival::Duplicate => {
                let same = flow.is_recorded(index, frame);
                let keeps = matches!(self.kind, SubStreams::Packets(it) if it.keeps_repeats());
                if !same && room && keeps {
                    // A sender that does not count some of its packets is no reason to lose any of them.
                    self.append(frame, invalid, None, resources.now);
                    self.uncounted += 1;
                }
                self.newest().differing += u64::from(!same);
                self.near(number, resources);
            }
            Arrival::Placed { .. } | Arrival::NoBlock | Arrival::Late => {
                self.near(number, resources)
            }
            Arrival::BeforeScan if self.came_after_cut(number, index) => {}
            Arrival::Damaged | Arrival::Occupied | Arrival::BeforeScan | Arrival::OutOfWindow => {
                self.newest().out_of_window += 1;
            }
        }
    }

    /// Compares the time in a frame with the host's clock. All threads of a stream have one clock.
    fn look_at_the_clock(&mut self, number: usize, frame: &[u8], now: Tai) {
        let scan_stream = self.scan_streams.back_mut().expect("there is a newest part");
        if scan_stream.watch.wants(now)
            && let Some(stamp) = self.flows[number].count.stamp(frame)
        {
            scan_stream.watch.look(stamp, now);
            self.metrics.tell_wall(&scan_stream.watch);
        }
    }

    /// Counts a frame that was overtaken at the end of the last scan.
    fn came_after_cut(&mut self, number: usize, index: i64) -> bool {
        let SubStream { station, thread, .. } = self.flows[number];
        came_after_cut(&mut self.scan_streams, station, thread, index)
    }

    /// A frame near the sub-stream's window arrived, so the out-of-window frames before it did not belong to the
    /// sub-stream.
    fn near(&mut self, number: usize, resources: &mut CaptureResources<'_>) {
        self.give_up_far(number, resources);
        self.seen(number, resources.now);
    }

    /// Records the arrival of a frame of a sub-stream.
    fn seen(&mut self, number: usize, now: Tai) {
        self.newest().seen(now);
        let seen = &mut self.flows[number].seen;
        *seen = Some((seen.map_or(now, |(first, _)| first), now));
    }

    /// Drops the out-of-window frames of a sub-stream, except those that its window has since reached.
    fn give_up_far(&mut self, number: usize, resources: &mut CaptureResources<'_>) {
        for (index, datagram) in self.flows[number].far_frames.give_up() {
            let window = &mut self.flows[number].window;
            if !window.is_out_of_window(index) {
                self.take(&datagram, resources);
            } else if window.give_up(index) {
                self.newest().differing += 1;
            } else {
                self.newest().out_of_window += 1;
            }
        }
    }

    /// Holds an out-of-window frame. Such frames are accepted once enough in a row agree.
    fn hear_from_afar(
        &mut self,
        number: usize,
        index: i64,
        datagram: Vec<u8>,
        resources: &mut CaptureResources<'_>,
    ) {
        if !self.flows[number].far_frames.agrees(index, u64::from(4 * FLOW_PAGE)) {
            self.give_up_far(number, resources);
        }
        let flow = &mut self.flows[number];
        flow.far_frames.hear(index, datagram, resources.now);
        let belief = flow.far_frames.decide(flow.window.next(), LONGEST_GAP, resources.now);
        if let Some(belief) = belief {
            self.follow(number, belief, resources);
        }
    }

    /// Moves a sub-stream's window to its out-of-window frames, and stores them.
    fn follow(&mut self, number: usize, belief: Resync, resources: &mut CaptureResources<'_>) {
        if let Resync::Restart(_) = belief {
            self.fix_times(number);
        }
        let flow = &mut self.flows[number];
        let far_frames = flow.far_frames.take();
        match belief {
            Resync::Jump(first) => flow.window.jump_to(first),
            Resync::Restart(first) => {
                let next = flow.window.next();
                flow.count.restart(far_frames.first().map_or(&[][..], Vec::as_slice), first, next);
                self.newest().restarts += 1;
            }
        }
        far_frames.iter().for_each(|datagram| self.take(datagram, resources));
    }

    /// Fixes the times of a sub-stream's positions, because its count restarts.
    fn fix_times(&mut self, number: usize) {
        let mut of_flow = self.flows[number].ends.take();
        let ends = self.ends.iter_mut().chain(&mut of_flow);
        let ends = ends.flat_map(|(first, last)| [first, last]);
        for mark in self.mark.iter_mut().chain(ends).filter(|mark| mark.flow == number) {
            mark.time = mark.time(&self.flows);
        }
        self.flows[number].ends = of_flow;
    }

    /// Returns true if there is memory for a frame of this many bytes.
    fn make_room(&mut self, bytes: usize, resources: &mut CaptureResources<'_>) -> bool {
        if self.block.is_none() {
            self.block = resources.pool.take_of(self.shape.geometry.block_bytes as usize);
        }
        let limit = self.shape.geometry.block_bytes as usize;
        match &self.block {
            None => false,
            // A frame that spans two blocks needs the next block too.
            Some(_) if self.used + bytes > limit => resources.pool.free() > 0,
            Some(block) => self.used + bytes <= block.len(),
        }
    }

    fn append(&mut self, frame: &[u8], invalid: bool, mark: Option<FramePosition>, now: Tai) {
        let block = self.block.as_mut().expect("room was made");
        block[self.used..][..frame.len()].copy_from_slice(frame);
        if self.frames == 0 {
            (self.first, self.mark, self.came) = (self.arrived as i64, mark, Some(now));
        }
        self.used += frame.len();
        self.frames += 1;
        self.arrived += 1;
        self.bytes += frame.len() as u64;
        self.invalid += u32::from(invalid);
        if self.kind
            == SubStreams::Packets(PacketStream::Vita49(vita49::index::PacketStream::Context))
        {
            self.newest().history.take(frame);
        }
        if self.shape.geometry.frame_bytes == 0 {
            self.lengths.push(frame.len() as u16);
        }
        if let Some(mark) = mark {
            let flow = &mut self.flows[mark.flow];
            flow.recorded += 1;
            for ends in [&mut self.ends, &mut flow.ends] {
                *ends = Some((ends.map_or(mark, |(first, _)| first), mark));
            }
        }
    }

    /// Sends the block to a writer once it is full.
    fn publish_full(&mut self, resources: &mut CaptureResources<'_>) {
        let limit = self.shape.geometry.block_bytes as usize;
        if self.used < limit {
            return;
        }
        let rest = self.used - limit;
        let mut next = None;
        if rest > 0 {
            let mut block =
                resources.pool.take().expect("a straddling frame was taken with a block free");
            let full = self.block.as_ref().expect("it is full");
            block[..rest].copy_from_slice(&full[limit..limit + rest]);
            next = Some(block);
        }
        self.publish(limit, resources);
        (self.block, self.used) = (next, rest);
    }

    fn publish(&mut self, bytes: usize, resources: &mut CaptureResources<'_>) {
        let Some(block) = self.block.take() else { return };
        // The time of a block in which the first second ended is known by now.
        let time = self.mark.take().and_then(|mark| mark.time(&self.flows));
        let scan_stream = self.scan_streams.back_mut().expect("there is a newest part");
        let filled = FullBlock {
            block,
            stream_ref: scan_stream.cursor.stream_ref().clone(),
            sequence: scan_stream.cursor.take_sequence(),
            chunk: 0,
            offset: 0,
            bytes: bytes as u32,
            frames: self.frames,
            present: self.frames,
            invalid: self.invalid,
            first: self.first,
            time,
            seen: self.came.take().unwrap_or(resources.now),
            gaps: std::mem::take(&mut scan_stream.pending),
            lengths: std::mem::take(&mut self.lengths),
            crc: None,
        };
        scan_stream.invalid += u64::from(self.invalid);
        (self.frames, self.invalid, self.used) = (0, 0, 0);
        self.first = self.arrived as i64;
        if let Some(lost) = resources.chain.dispatch(&mut scan_stream.cursor, filled) {
            resources.pool.put(scan_stream.lose(lost));
        }
    }

    /// Journals old data of the partial block. Frames in it are not moved any more.
    pub fn journal_partial_blocks(&mut self, resources: &mut CaptureResources<'_>) {
        let (Some(block), Some(came)) = (&self.block, self.came) else { return };
        let scan_stream = self.scan_streams.back_mut().expect("there is a newest part");
        if self.frames == 0 || scan_stream.sums.is_some() {
            return;
        }
        if !resources.chain.is_journal_due(&mut scan_stream.cursor, came, resources.now) {
            return;
        }
        let bytes = self.used.min(self.shape.geometry.block_bytes as usize) as u32;
        let piece = BlockState {
            first: self.first,
            bytes,
            frames: self.frames,
            present: self.frames,
            invalid: self.invalid,
            time: self.mark.and_then(|mark| mark.time(&self.flows)),
            seen: came,
            gaps: scan_stream.pending.clone(),
            lengths: Vec::new(),
        };
        let lengths = &self.lengths;
        let mut copy = |_, range: Range<u32>| {
            (range.start, block[range.start as usize..range.end as usize].to_vec())
        };
        let mut describe = || vec![BlockState { lengths: lengths.clone(), ..piece.clone() }];
        let open = [(self.first, bytes)];
        resources.chain.journal_partial_blocks(
            &mut scan_stream.cursor,
            resources.now,
            &open,
            &mut copy,
            &mut describe,
        );
    }

    /// Returns the scan stream of new frames.
    pub fn newest(&mut self) -> &mut ScanStream {
        self.scan_streams.back_mut().expect("there is a newest part")
    }

    /// Ends the scan here and begins the next.
    pub fn cut(&mut self, context: Arc<ScanContext>, resources: &mut CaptureResources<'_>) {
        self.end(resources);
        self.cut_at = Some(resources.now);
        let mut next = ScanStream::new(context, &self.shape);
        next.history = self.newest().history.continued();
        self.scan_streams.push_back(next);
    }

    /// Returns the number of frames lost at second boundaries that were detected since the last scan.
    fn newly_corrected(&mut self) -> u64 {
        let all: u64 = self.flows.iter().map(|flow| flow.count.correction()).sum();
        // A rate that is lowered again reduces the correction, but earlier scans have reported theirs: nothing is
        // reported twice.
        let new = all.saturating_sub(self.corrected);
        self.corrected += new;
        new
    }

    /// Ends the scan: sends all blocks and closes the counts.
    pub fn end(&mut self, resources: &mut CaptureResources<'_>) {
        self.cross_border(true, resources);
        self.cut_at = None;
        for number in 0..self.flows.len() {
            let flow = &mut self.flows[number];
            let likely = flow.far_frames.likely(flow.window.next(), LONGEST_GAP, 2);
            if let Some(ahead @ Resync::Jump(_)) = likely {
                self.follow(number, ahead, resources);
                self.cross_border(true, resources);
            }
            self.give_up_far(number, resources);
        }
        if self.used > 0 {
            self.publish(self.used, resources);
        }
        if let Some(block) = self.block.take() {
            resources.pool.put(block);
        }
        let time = |mark: FramePosition| mark.time(&self.flows);
        let times = self.ends.take().map(|(first, last)| (time(first), time(last)));
        let mut sums = StreamTotals {
            placed: false,
            flows: Vec::new(),
            uncounted: std::mem::take(&mut self.uncounted),
            uncounted_overrun: std::mem::take(&mut self.overrun),
            correction: self.newly_corrected(),
            bytes: std::mem::take(&mut self.bytes),
            times: times.unwrap_or_default(),
        };
        for number in 0..self.flows.len() {
            let ends = self.take_ends(number);
            let flow = &mut self.flows[number];
            flow.window.cut_short();
            while flow.window.take_closed().is_some() {}
            flow.finished.extend(std::iter::from_fn(|| flow.window.take_finished()));
            let finished = flow.finished.pop_front().expect("the scan was just cut");
            let (station, thread) = (flow.station, flow.thread);
            // A few frames of a thread may be there by mistake: the next scan does not expect more of them.
            if ends.is_some() || flow.recorded >= AGREE {
                sums.flows.push(SubStreamTotals { station, thread, finished, ends });
            }
        }
        self.add_absent(&mut sums.flows);
        self.arrived = 0;
        self.first = 0;
        self.newest().sums = Some(sums);
    }

    /// Adds sub-streams for threads that the user listed and that sent no frame.
    fn add_absent(&self, flows: &mut Vec<SubStreamTotals>) {
        let Some((station, threads)) = self.only.as_ref().filter(|_| !flows.is_empty()) else {
            return;
        };
        for thread in threads {
            if !flows.iter().any(|flow| flow.thread == *thread) {
                flows.push(SubStreamTotals::absent(*station, *thread));
            }
        }
    }

    /// Returns the first and the last frame of a sub-stream in the scan that ends, as recorded.
    fn take_ends(&mut self, number: usize) -> Option<(Edge, Edge)> {
        let ends = self.flows[number].ends.take();
        let (first, last) = self.flows[number].seen.take()?;
        let edge = |mark: Option<FramePosition>, seen| Edge {
            index: mark.map_or(0, |mark| mark.index),
            time: mark.and_then(|mark| mark.time(&self.flows)),
            seen,
        };
        Some((edge(ends.map(|it| it.0), first), edge(ends.map(|it| it.1), last)))
    }

    /// Returns the scan stream of a scan.
    pub fn part_mut(&mut self, scan: uuid::Uuid) -> Option<&mut ScanStream> {
        self.scan_streams.iter_mut().find(|scan_stream| scan_stream.context.uuid == scan)
    }

    /// Returns the oldest scan stream if it is complete.
    ///
    /// For a moment after a cut its counts stay open: frames that were overtaken at the cut still arrive.
    pub fn take_complete(&mut self, now: Tai) -> Option<(ScanStream, CountedBy)> {
        if self.cut_at.is_some_and(|at| now.since(at) < GRACE_NS) {
            return None;
        }
        if !self.scan_streams.front()?.complete() {
            return None;
        }
        let counted_by = match self.kind {
            SubStreams::None => CountedBy::Nothing,
            SubStreams::Threads { .. } => CountedBy::FrameTime,
            SubStreams::Packets(_) => {
                let first = self.flows.first().map(|flow| flow.count.counted_by());
                first.unwrap_or(CountedBy::FrameTime)
            }
            SubStreams::One => self.pattern.counted_by(),
        };
        Some((self.scan_streams.pop_front()?, counted_by))
    }

    /// True if every scan stream has been taken.
    pub fn is_done(&self) -> bool {
        self.scan_streams.is_empty()
    }

    /// Returns a warning about the rate of its frames, once.
    pub fn complaint(&mut self) -> Option<String> {
        let mut counts = self.flows.iter().map(|flow| &flow.count);
        let refuted = counts.clone().find(|count| count.refuted().is_some()).or(counts.next());
        self.doubt.say(&self.shape, refuted, self.scan_streams.back()?)
    }

    /// Updates the metrics for screens.
    pub fn tell(&self, pool: &Pool) {
        let mut terms = fullbore_core::account::Terms::default();
        for flow in &self.flows {
            terms.add(&flow.window.so_far());
        }
        terms.written += self.uncounted;
        terms.overrun += self.overrun;
        terms.damaged += self.scan_streams.back().map_or(0, |scan_stream| scan_stream.beyond);
        self.metrics.tell(&terms, self.bytes, self.scan_streams.back(), pool);
    }
}
