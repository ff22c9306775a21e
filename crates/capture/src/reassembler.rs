//! Reassembly of an indexed stream: the frame index gives the slot, and frames received elsewhere are moved.
//!
//! ```text
//! predicted   the next messages go to the slots after the highest frame seen     (no copy but the kernel's)
//! checked     every header is read; a run of frames as predicted is counted at once
//! mended      from the first mismatch on, datagrams are copied out and indexed one by one
//! ```

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::window::{Arrival, ClosedPage, OpenPage, ScanTotals, Window};
use fullbore_core::frame_index::{FrameIndexer, IndexResult};
use fullbore_core::gap::{Cause, Gap};
use fullbore_core::manifest::{Fill, Format};
use fullbore_core::partial_block::BlockState;
use fullbore_linux::ring::{Block, Pool};
use fullbore_linux::sys::receive::{MOST_MESSAGES, Received};
use fullbore_time::Tai;

use super::input::DatagramInput;
use super::partial_block::OpenBlock;
use super::resync::{FarFrames, Resync};
use super::scan_stream::{
    FormatWarnings, ScanContext, ScanStream, StreamLayout, StreamMetrics, StreamTotals,
    SubStreamTotals, came_after_cut, filled,
};
use super::second_boundary::{self, SecondBoundary};
use super::sink_chain::SinkChain;
use super::staging::{StagedDatagram, StagingBuffer};
use super::unclaimed::{Handed, HandedBack};
use crate::checksum;

/// Pages that may be open behind the newest. Frames up to one page out of order are always put in place.
const DEPTH: usize = 2;

/// Frames of the same time arrive from all threads within this time, or within two frames.
const UNDER_WAY_NS: i64 = 20_000_000;

/// A longer gap in a count without time is taken for a restart of the sender.
pub const LONGEST_GAP: i64 = 1 << 31;

/// The method of a receive call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Up to [`MOST_MESSAGES`] messages, each expected to be one datagram.
    Batch,
    /// One message, expected to be many datagrams merged.
    Merged,
}

/// The resources of a capture thread that its streams share.
pub struct CaptureResources<'a> {
    /// The port's memory.
    pub pool: &'a mut Pool,
    /// The queues to the members.
    pub chain: &'a mut SinkChain,
    /// Copies of datagrams that were received in wrong slots.
    pub staging: &'a mut StagingBuffer,
    /// The time of this round.
    pub now: Tai,
}

/// An indexed stream: each frame has a slot, and reordering is repaired within the window.
pub struct Reassembler {
    shape: StreamLayout,
    count: FrameIndexer,
    window: Window<Block>,
    heads: Vec<[u8; Reassembler::LONGEST_HEAD]>,
    far_frames: FarFrames,
    second_boundary: SecondBoundary,
    /// Index of the first frame of the stream.
    began: i64,
    /// Index after the last page sent to a writer.
    handed: i64,
    /// Frames marked invalid, by page.
    invalid: VecDeque<(i64, u32)>,
    /// Checksums of pages, as far as they were filled in order.
    sums: VecDeque<Sum>,
    /// The arrival time of the first frame of each page.
    received_at: VecDeque<(i64, Tai)>,
    /// Scan streams that are not complete; the newest last.
    scan_streams: VecDeque<ScanStream>,
    /// Number of the first of them, in the window's count of cuts.
    oldest: u32,
    metrics: Arc<StreamMetrics>,
    /// The correction already counted in earlier scans.
    corrected: u64,
    /// Warnings already sent.
    doubt: FormatWarnings,
    handed_back: HandedBack,
}

impl Reassembler {
    /// The largest number of bytes before a frame that may be stripped.
    pub const LONGEST_HEAD: usize = fullbore_core::endpoint::LONGEST_STRIP as usize;

    /// A stream that begins with the frame at `first`.
    pub fn new(
        shape: StreamLayout,
        count: FrameIndexer,
        first: i64,
        context: Arc<ScanContext>,
    ) -> Self {
        let window = Window::new(shape.geometry.frames_per_block(), DEPTH, first);
        let scan_stream = ScanStream::new(context, &shape);
        Self {
            shape,
            count,
            window,
            heads: vec![[0; Self::LONGEST_HEAD]; MOST_MESSAGES.max(128)],
            far_frames: FarFrames::default(),
            second_boundary: SecondBoundary::default(),
            began: first,
            handed: first,
            invalid: VecDeque::new(),
            sums: VecDeque::new(),
            received_at: VecDeque::new(),
            scan_streams: VecDeque::from([scan_stream]),
            oldest: 0,
            metrics: Arc::default(),
            corrected: 0,
            doubt: FormatWarnings::default(),
            handed_back: HandedBack::default(),
        }
    }

    /// The layout.
    pub fn shape(&self) -> &StreamLayout {
        &self.shape
    }

    /// The metrics.
    pub fn metrics(&self) -> &Arc<StreamMetrics> {
        &self.metrics
    }

    /// True if a datagram belongs to it.
    pub fn owns(&self, head: &[u8], frame: &[u8], bytes: usize) -> bool {
        self.count.read(head, frame, bytes) != IndexResult::Foreign
    }

    /// The format of its frames.
    pub fn format(&self) -> Format {
        let rate = self.count.frames_per_second();
        match self.count.codec() {
            Some(codec) => Format::Frames {
                kind: codec.kind(),
                frames_per_second: rate.map(|(rate, _)| rate),
                derived: rate.is_some_and(|(_, derived)| derived),
                threads: self.count.threads().to_vec(),
            },
            None => Format::Raw,
        }
    }

    /// Receives once, into the final slots where the prediction holds. Returns the number of datagrams and of the
    /// messages that contained them.
    pub fn receive(
        &mut self,
        input: &mut dyn DatagramInput,
        method: Method,
        resources: &mut CaptureResources<'_>,
    ) -> io::Result<(usize, usize)> {
        let (head, frame) = (self.shape.stripped_bytes as usize, self.frame_bytes());
        let wanted = match method {
            Method::Batch => MOST_MESSAGES,
            Method::Merged => (65_535 / (head + frame) + 1).min(self.heads.len()),
        };
        let slots = self.provide(wanted, resources.pool);
        if slots == 0 {
            // No block is free. The datagrams are read all the same, so that their loss is counted here.
            let received = resources.staging.receive(input, None)?;
            self.mend(resources);
            return Ok(received);
        }
        let mut received = [Received::default(); MOST_MESSAGES];
        let first = self.window.next();
        let mut layout = Layout::new(method, head, frame, slots);
        let messages = {
            let frames = slots_from(&mut self.window, first, slots, frame);
            let (overflow, kept) = resources.staging.parts();
            let mut slices = layout.slices(&mut self.heads, frames, overflow);
            let room = if method == Method::Batch { slots } else { 1 };
            let messages = input.receive(
                &mut slices,
                layout.per_message,
                &mut received[..room.min(MOST_MESSAGES)],
            )?;
            layout.keep_surprises(&slices, &received[..messages], kept);
            messages
        };
        if messages == 0 {
            return Ok((0, 0));
        }
        let in_place = layout.in_place;
        let run =
            if self.second_boundary.is_held() { 0 } else { self.run_as_predicted(first, in_place) };
        if run < in_place {
            self.copy_out(first, run, in_place, resources.staging);
        }
        if run > 0 {
            self.sum_up(first, run);
            self.note_came(first, run, resources.now);
            self.look_at_the_clock(first, resources.now);
            self.window.arrive_in_order(run as u32);
            self.near(first + run as i64 - 1, resources);
        }
        let taken = in_place + layout.surprises;
        self.mend(resources);
        self.hand_on(resources);
        Ok((taken, messages))
    }

    fn frame_bytes(&self) -> usize {
        self.shape.geometry.frame_bytes as usize
    }

    /// Returns how many of the next slots have memory, up to `wanted`.
    fn provide(&mut self, wanted: usize, pool: &mut Pool) -> usize {
        let mut ready = 0;
        while ready < wanted {
            let (page, slot) = self.window.page_of(self.window.next() + ready as i64);
            let bytes = self.shape.geometry.block_bytes as usize;
            if self.window.block(page, || pool.take_of(bytes)).is_none() {
                break;
            }
            ready += (self.shape.geometry.frames_per_block() - slot) as usize;
        }
        ready.min(wanted)
    }

    /// Returns how many of the frames received in place match the prediction.
    fn run_as_predicted(&mut self, first: i64, in_place: usize) -> usize {
        let (head, frame) = (self.shape.stripped_bytes as usize, self.frame_bytes());
        for number in 0..in_place {
            let expected = first + number as i64;
            let (page, slot) = self.window.page_of(expected);
            let block = self.window.block(page, || None).expect("it was received into");
            let bytes = &block[slot as usize * frame..][..frame];
            let before = &self.heads[number][..head];
            match self.count.read(before, bytes, head + frame) {
                IndexResult::Frame { index, invalid } if index == expected => {
                    self.count.learn(before, bytes);
                    if invalid {
                        note_invalid(&mut self.invalid, page);
                    }
                }
                _ => return number,
            }
        }
        in_place
    }

    /// Compares the time in a frame that was received in place with the host's clock.
    fn look_at_the_clock(&mut self, index: i64, now: Tai) {
        if !self.part_of(index).watch.wants(now) {
            return;
        }
        let frame = self.frame_bytes();
        let (page, slot) = self.window.page_of(index);
        let block = self.window.block(page, || None).expect("it was received into");
        let stamp = self.count.stamp(&block[slot as usize * frame..][..frame]);
        self.take_stamp(index, stamp, now);
    }

    fn take_stamp(&mut self, index: i64, stamp: Option<Tai>, now: Tai) {
        let metrics = self.metrics.clone();
        let watch = &mut self.part_of(index).watch;
        if let Some(stamp) = stamp.filter(|_| watch.wants(now)) {
            watch.look(stamp, now);
            metrics.tell_wall(watch);
        }
    }

    /// Adds frames that arrived in order to the checksum, while the kernel's copy of them is in the CPU cache.
    fn sum_up(&mut self, first: i64, run: usize) {
        let frame = self.frame_bytes();
        let (mut index, mut left) = (first, run);
        while left > 0 {
            let (page, slot) = self.window.page_of(index);
            let count = left.min((self.shape.geometry.frames_per_block() - slot) as usize);
            if slot == 0 {
                self.sums.push_back(Sum { page, slots: 0, crc: 0 });
            }
            if let Some(sum) = self.sums.back_mut()
                && (sum.page, sum.slots) == (page, slot)
            {
                let block = self.window.block(page, || None).expect("it was received into");
                let bytes = &block[slot as usize * frame..][..count * frame];
                sum.crc = checksum::append(sum.crc, bytes);
                sum.slots += count as u32;
            }
            index += count as i64;
            left -= count;
        }
    }

    /// Records the arrival time of pages whose first frame is among these.
    fn note_came(&mut self, first: i64, run: usize, now: Tai) {
        let (from, _) = self.window.page_of(first);
        let (to, _) = self.window.page_of(first + run as i64 - 1);
        for page in from..=to {
            let newest = self.received_at.back().is_none_or(|(newest, _)| *newest < page);
            if newest || self.received_at.iter().all(|(noted, _)| *noted != page) {
                self.received_at.push_back((page, now));
            }
        }
    }

    /// Returns the arrival time of the first frame of a closed page.
    fn take_came(&mut self, page: i64) -> Option<Tai> {
        let place = self.received_at.iter().position(|(noted, _)| *noted == page);
        let came = place.map(|place| self.received_at[place].1);
        self.received_at.retain(|(noted, _)| *noted > page);
        came
    }

    /// Returns the checksum of a closed page, if all of its frames arrived in order.
    fn take_sum(&mut self, closed: &ClosedPage<Block>) -> Option<u32> {
        while self.sums.front().is_some_and(|sum| sum.page < closed.page) {
            self.sums.pop_front();
        }
        let sum = self.sums.front().filter(|sum| sum.page == closed.page)?;
        (sum.slots == closed.slots && closed.present == closed.slots).then_some(sum.crc)
    }

    /// Copies frames that are in wrong slots to staging memory, to be indexed one by one.
    fn copy_out(&mut self, first: i64, from: usize, to: usize, staging: &mut StagingBuffer) {
        let (head, frame) = (self.shape.stripped_bytes as usize, self.frame_bytes());
        for number in from..to {
            let (page, slot) = self.window.page_of(first + number as i64);
            let block = self.window.block(page, || None).expect("it was received into");
            let bytes = &block[slot as usize * frame..][..frame];
            staging.early.push(&[&self.heads[number][..head], bytes]);
        }
    }

    /// Processes the staged datagrams one by one.
    pub fn mend(&mut self, resources: &mut CaptureResources<'_>) {
        let [early, kept] = resources.staging.take();
        for datagram in early.iter().chain(kept.iter()) {
            self.ingest(datagram, resources);
        }
        resources.staging.give_back([early, kept]);
    }

    /// Processes one datagram.
    pub fn ingest(&mut self, datagram: &[u8], resources: &mut CaptureResources<'_>) {
        if self.second_boundary.is_held() {
            // Only the receive order tells which frames were overtaken.
            self.second_boundary.hold(datagram, resources.now);
            self.cross_border(false, resources);
        } else {
            self.take(datagram, resources);
        }
    }

    /// Releases the datagrams held at a second boundary, if the wait for overtaken frames is over, or at once.
    pub fn cross_border(&mut self, at_once: bool, resources: &mut CaptureResources<'_>) {
        while let Some(held) = self.second_boundary.take(at_once, resources.now) {
            for datagram in &held {
                let scan_streams = self.shape.split(datagram);
                second_boundary::learn_length(&mut self.count, &self.window, scan_streams);
            }
            self.count.settle();
            held.iter().for_each(|datagram| self.ingest(datagram, resources));
        }
    }

    fn take(&mut self, datagram: &[u8], resources: &mut CaptureResources<'_>) {
        let (head, frame) = self.shape.split(datagram);
        match self.count.read(head, frame, datagram.len()) {
            IndexResult::Frame { index, invalid } => {
                self.place(index, invalid, head, frame, resources)
            }
            IndexResult::Early { .. } => self.second_boundary.hold(datagram, resources.now),
            IndexResult::Damaged { index } => match self.window.arrive_damaged(index) {
                Arrival::OutOfWindow | Arrival::BeforeScan => {
                    self.part_of_new().foreign(datagram.len())
                }
                Arrival::Occupied => self.part_of(index).foreign(datagram.len()),
                arrival => self.part_of(index).damaged(arrival, resources.now),
            },
            IndexResult::InvalidFrameNumber => self.part_of_new().beyond(resources.now),
            IndexResult::Foreign | IndexResult::Uncounted => self.hand_back(datagram),
        }
        self.hand_on(resources);
    }

    /// Passes a datagram that is no frame of this stream back to the port: it may belong to another stream.
    fn hand_back(&mut self, datagram: &[u8]) {
        let strip = self.shape.stripped_bytes as usize;
        let handed = match self.count.codec() {
            Some(codec) => self.handed_back.push(codec, datagram, strip),
            None => Handed::NoFrame,
        };
        match handed {
            Handed::Back => {}
            Handed::NoFrame => self.part_of_new().foreign(datagram.len()),
            Handed::NoRoom => self.part_of_new().unrecorded += 1,
        }
    }

    /// Returns the datagrams that may belong to other streams.
    pub fn take_handed_back(&mut self) -> Vec<Vec<u8>> {
        self.handed_back.take()
    }

    fn place(
        &mut self,
        index: i64,
        invalid: bool,
        head: &[u8],
        frame: &[u8],
        resources: &mut CaptureResources<'_>,
    ) {
        let bytes = self.frame_bytes();
        let of_block = self.shape.geometry.block_bytes as usize;
        match self.window.arrive(index, || resources.pool.take_of(of_block)) {
            Arrival::Placed { page, slot } => {
                let block = self.window.block(page, || None).expect("the frame was placed in it");
                block[slot as usize * bytes..][..bytes].copy_from_slice(frame);
                let first = self.window.first_of(page);
                self.part_of(index).cursor.touch(first, slot * bytes as u32);
                self.count.learn(head, frame);
                if invalid {
                    note_invalid(&mut self.invalid, page);
                }
                self.note_came(index, 1, resources.now);
                if self.part_of(index).watch.wants(resources.now) {
                    self.take_stamp(index, self.count.stamp(frame), resources.now);
                }
                self.near(index, resources);
            }
            Arrival::Duplicate => {
                let same = self.is_recorded(index, frame);
                self.part_of(index).differing += u64::from(!same);
                self.near(index, resources);
            }
            Arrival::NoBlock | Arrival::Late | Arrival::Damaged | Arrival::Occupied => {
                self.near(index, resources);
            }
            Arrival::BeforeScan if came_after_cut(&mut self.scan_streams, 0, 0, index) => {}
            Arrival::BeforeScan => self.part_of_new().out_of_window += 1,
            // An invalid frame may carry any time, so it does not move the window.
            Arrival::OutOfWindow if invalid => self.discard_out_of_window(index),
            Arrival::OutOfWindow => self.hear_from_afar(index, [head, frame].concat(), resources),
        }
    }

    /// Returns true if this very frame is in its slot already, as far as that can still be checked.
    fn is_recorded(&mut self, index: i64, frame: &[u8]) -> bool {
        let (page, slot) = self.window.page_of(index);
        let block = self.window.block(page, || None);
        block.is_some_and(|block| block[slot as usize * frame.len()..].starts_with(frame))
    }

    /// A frame near the window arrived, so the out-of-window frames before it did not belong to the stream.
    fn near(&mut self, index: i64, resources: &mut CaptureResources<'_>) {
        if !self.far_frames.is_empty() {
            self.give_up_far(resources);
        }
        self.part_of(index).seen(resources.now);
    }

    /// Drops the out-of-window frames, except those that the window has since reached, for example after a damaged
    /// frame or a cut.
    fn give_up_far(&mut self, resources: &mut CaptureResources<'_>) {
        for (index, datagram) in self.far_frames.give_up() {
            match self.window.is_out_of_window(index) {
                true => self.discard_out_of_window(index),
                false => self.take(&datagram, resources),
            }
        }
    }

    /// Counts a dropped out-of-window frame. If its index was counted before, it may be a duplicate, which can no
    /// longer be checked.
    fn discard_out_of_window(&mut self, index: i64) {
        match self.window.give_up(index) {
            true => self.part_of_new().differing += 1,
            false => self.part_of_new().out_of_window += 1,
        }
    }

    /// Holds an out-of-window frame. Such frames are accepted once enough in a row agree.
    fn hear_from_afar(
        &mut self,
        index: i64,
        datagram: Vec<u8>,
        resources: &mut CaptureResources<'_>,
    ) {
        let reach = 4 * DEPTH as u64 * u64::from(self.shape.geometry.frames_per_block());
        if !self.far_frames.agrees(index, reach) {
            self.give_up_far(resources);
        }
        self.far_frames.hear(index, datagram, resources.now);
        let belief = self.far_frames.decide(self.window.next(), self.longest_gap(), resources.now);
        if let Some(belief) = belief {
            self.follow(belief, resources);
        }
    }

    fn longest_gap(&self) -> i64 {
        self.count.frames_of_stream_per_second().map_or(LONGEST_GAP, |rate| {
            i64::try_from(rate.saturating_mul(7 * 86_400)).unwrap_or(LONGEST_GAP)
        })
    }

    fn index_of(&self, datagram: &[u8]) -> Option<i64> {
        let (head, frame) = self.shape.split(datagram);
        match self.count.read(head, frame, datagram.len()) {
            IndexResult::Frame { index, .. } | IndexResult::Early { index } => Some(index),
            _ => None,
        }
    }

    /// Moves the window to the out-of-window frames, and indexes them.
    fn follow(&mut self, belief: Resync, resources: &mut CaptureResources<'_>) {
        let far_frames = self.far_frames.take();
        match belief {
            Resync::Jump(first) => self.window.jump_to(first),
            Resync::Restart(first) => {
                self.count.rebase(first, self.window.next());
                self.part_of_new().restarts += 1;
            }
        }
        // The count cannot move at the end of its range: then the frames have no index.
        if self.index_of(&far_frames[0]).is_none_or(|index| self.window.is_out_of_window(index)) {
            self.part_of_new().out_of_window += far_frames.len() as u64;
            return;
        }
        for datagram in far_frames {
            // Frames that agree may still be far from one another.
            let index = self.index_of(&datagram).filter(|&index| index >= self.window.next());
            if let Some(index) = index.filter(|&index| self.window.is_out_of_window(index)) {
                self.window.jump_to(index);
            }
            self.take(&datagram, resources);
        }
    }

    /// Returns the scan stream of new frames.
    pub fn part_of_new(&mut self) -> &mut ScanStream {
        self.part_of(self.window.next())
    }

    /// Returns the scan stream of the newest frames, or the previous one while a cut is pending.
    fn part_of(&mut self, index: i64) -> &mut ScanStream {
        let last = self.scan_streams.len() - 1;
        let waits = self.window.is_before_cut(index) && last > 0;
        &mut self.scan_streams[last - usize::from(waits)]
    }

    /// Begins the next scan with the next block.
    pub fn cut(&mut self, context: Arc<ScanContext>, resources: &mut CaptureResources<'_>) {
        self.cross_border(true, resources);
        if self.cutting() {
            self.cut_now(resources);
        }
        self.scan_streams.push_back(ScanStream::new(context, &self.shape));
        self.window.cut();
    }

    /// True if a cut waits for the stream to reach the next block.
    pub fn cutting(&self) -> bool {
        self.window.cutting()
    }

    /// Ends the wait for the next block.
    pub fn cut_now(&mut self, resources: &mut CaptureResources<'_>) {
        self.window.cut_short();
        self.hand_on(resources);
    }

    /// Ends the last scan: sends all blocks.
    pub fn end(&mut self, resources: &mut CaptureResources<'_>) {
        self.cross_border(true, resources);
        let likely = self.far_frames.likely(self.window.next(), self.longest_gap(), 1);
        if let Some(ahead @ Resync::Jump(_)) = likely {
            self.follow(ahead, resources);
            self.cross_border(true, resources);
        }
        self.give_up_far(resources);
        if self.window.cutting() {
            // The stream has not reached the cut and never will: the next scan is empty.
            self.window.cut_short();
        }
        if let Some(end) = self.last_whole_set(resources.now) {
            self.end_at(end);
        }
        self.window.cut_short();
        self.hand_on(resources);
    }

    /// Returns the end of the last frames that are present for all threads, if frames of the same time as later ones
    /// were still under way at the stop. Those later frames then do not belong to the recording, and the others are not
    /// missing. A sender that has ended, or a thread that is further behind, leaves gaps.
    fn last_whole_set(&self, now: Tai) -> Option<i64> {
        let several = self.count.threads().len() as i64;
        let (_, last) = self.scan_streams.back()?.seen?;
        let frame =
            self.count.frames_per_second().map_or(0, |(rate, _)| 1_000_000_000 / rate as i64);
        let under_way = UNDER_WAY_NS.max(2 * frame);
        if several < 2 || now.since(last) > under_way {
            return None;
        }
        let furthest = under_way.checked_div(frame).unwrap_or(1);
        let newest = self.count.first_of_set(self.window.next() - 1);
        let behind = |rank: i64| {
            let is_there = |sets: &i64| self.window.is_taken(newest + rank - sets * several);
            (0..=furthest)
                .find(|sets| is_there(sets) != Some(false))
                .filter(|it| is_there(it).is_some())
        };
        let mut furthest_behind = 0;
        for rank in 0..several {
            furthest_behind = furthest_behind.max(behind(rank)?);
        }
        let end = newest + (1 - furthest_behind) * several;
        let lacks =
            (end..self.window.next()).any(|index| self.window.is_taken(index) == Some(false));
        (lacks && end > self.began && end > self.window.low()).then_some(end)
    }

    /// Ends the stream before frames that have arrived.
    fn end_at(&mut self, end: i64) {
        let (frame, codec) = (self.frame_bytes(), self.count.codec());
        for index in end..self.window.next() {
            let (page, slot) = self.window.page_of(index);
            let taken = self.window.is_taken(index) == Some(true);
            let block = self.window.block(page, || None).filter(|_| taken);
            let header = block.zip(codec).and_then(|(block, codec)| {
                let frame = &block[slot as usize * frame..];
                codec.read(frame)
            });
            if header.is_some_and(|header| header.invalid()) {
                forget_invalid(&mut self.invalid, page);
            }
        }
        self.window.end_at(end);
    }

    /// Fills every page that has left the window, and sends it to a writer.
    fn hand_on(&mut self, resources: &mut CaptureResources<'_>) {
        while let Some(closed) = self.window.take_closed() {
            while closed.scan > self.counted() {
                self.settle_books();
            }
            self.hand_on_page(closed, resources);
        }
        while self.window.has_finished() {
            self.settle_books();
        }
    }

    /// Returns the number of the oldest scan whose counts are still open.
    fn counted(&self) -> u32 {
        let done =
            self.scan_streams.iter().take_while(|scan_stream| scan_stream.sums.is_some()).count();
        self.oldest + done as u32
    }

    fn hand_on_page(
        &mut self,
        mut closed: ClosedPage<Block>,
        resources: &mut CaptureResources<'_>,
    ) {
        let place = (closed.scan - self.oldest) as usize;
        let end = closed.first + i64::from(closed.slots);
        if closed.slots > 0 && closed.first > self.handed {
            let count = (closed.first - self.handed) as u64;
            let gap = Gap { first: self.handed, count, cause: Cause::Missing };
            self.scan_streams[place].pending.push(gap);
        }
        // A page that was ahead when a scan was cut has no slots, and does not show what was sent.
        if closed.slots > 0 {
            self.handed = self.handed.max(end);
        }
        let invalid = take_invalid(&mut self.invalid, closed.page);
        let crc = self.take_sum(&closed);
        let came = self.take_came(closed.page).unwrap_or(resources.now);
        let scan_stream = &mut self.scan_streams[place];
        if closed.present == 0 {
            scan_stream.pending.append(&mut closed.gaps);
            if let Some(block) = closed.block {
                resources.pool.put(block);
            }
            return;
        }
        fill_gaps(
            &self.count,
            self.shape.fill,
            self.shape.geometry.frame_bytes as usize,
            &mut closed,
        );
        scan_stream.invalid += u64::from(invalid);
        scan_stream.filled += u64::from(closed.slots - closed.present);
        let time = self.count.time(closed.first);
        let frame_bytes = self.shape.geometry.frame_bytes;
        let filled = filled(closed, scan_stream, frame_bytes, invalid, time, came, crc)
            .expect("frames are present, so there is memory");
        if let Some(lost) = resources.chain.dispatch(&mut scan_stream.cursor, filled) {
            resources.pool.put(scan_stream.lose(lost));
        }
    }

    /// Journals old data of partial blocks as it would be written if the stream ended now. Later repairs in them are
    /// copied again.
    pub fn journal_partial_blocks(&mut self, resources: &mut CaptureResources<'_>) {
        let Some(oldest) = self.received_at.iter().map(|(_, came)| *came).min() else { return };
        let scan_stream = self.scan_streams.back_mut().expect("there is a newest part");
        // While a cut is pending, partial blocks belong to two scans. That ends soon.
        if self.window.cutting() || scan_stream.sums.is_some() {
            return;
        }
        if !resources.chain.is_journal_due(&mut scan_stream.cursor, oldest, resources.now) {
            return;
        }
        let frame = self.shape.geometry.frame_bytes;
        let pages: Vec<OpenPage<'_, Block>> = self.window.open_pages().collect();
        let filled: Vec<&OpenPage<'_, Block>> =
            pages.iter().filter(|page| page.present > 0).collect();
        let open: Vec<OpenBlock> =
            filled.iter().map(|page| (page.first, page.slots() * frame)).collect();
        let (count, fill) = (&self.count, self.shape.fill);
        let mut copy = |number: usize, range: Range<u32>| {
            let slots = range.start / frame..(range.end / frame).max(range.start / frame + 1);
            copy_of(count, fill, frame as usize, filled[number], slots)
        };
        let (pending, handed) = (&scan_stream.pending, self.handed);
        let (invalid, came) = (&self.invalid, &self.received_at);
        let mut describe = || {
            let mut gaps = pending.clone();
            let mut end = handed;
            let mut pieces = Vec::with_capacity(filled.len());
            for page in &pages {
                if page.first > end {
                    let count = page.first.abs_diff(end);
                    gaps.push(Gap { first: end, count, cause: Cause::Missing });
                }
                end = end.max(page.first + i64::from(page.slots()));
                gaps.extend(page.gaps());
                if page.present == 0 {
                    continue;
                }
                let of_page = |list: &VecDeque<(i64, u32)>| {
                    list.iter().find(|(number, _)| *number == page.page).map_or(0, |it| it.1)
                };
                let seen = came.iter().find(|(number, _)| *number == page.page);
                pieces.push(BlockState {
                    first: page.first,
                    bytes: page.slots() * frame,
                    frames: page.slots(),
                    present: page.present,
                    invalid: of_page(invalid),
                    time: count.time(page.first),
                    seen: seen.map_or(resources.now, |(_, came)| *came),
                    gaps: std::mem::take(&mut gaps),
                    lengths: Vec::new(),
                });
            }
            pieces
        };
        resources.chain.journal_partial_blocks(
            &mut scan_stream.cursor,
            resources.now,
            &open,
            &mut copy,
            &mut describe,
        );
    }

    fn settle_books(&mut self) {
        let finished: ScanTotals =
            self.window.take_finished().expect("its pages have all been handed on");
        let place = (finished.scan - self.oldest) as usize;
        let scan_stream = &mut self.scan_streams[place];
        scan_stream.second_count = self.count.found();
        if let Some(high) = finished.tally.high
            && high >= self.handed
        {
            let count = (high + 1 - self.handed) as u64;
            scan_stream.pending.push(Gap { first: self.handed, count, cause: Cause::Missing });
            self.handed = high + 1;
        }
        // Frames that arrived only after others had begun the stream are before every block.
        let before = finished.gaps.iter().take_while(|gap| gap.first < self.began).map(|gap| {
            let count = gap.count.min(self.began.abs_diff(gap.first));
            Gap { count, ..*gap }
        });
        scan_stream.pending.extend(before);
        let time = |index: Option<i64>| index.and_then(|index| self.count.time(index));
        // A rate that is lowered again reduces the correction, but earlier scans have reported theirs: nothing is
        // reported twice.
        let correction = self.count.correction().saturating_sub(self.corrected);
        self.corrected += correction;
        scan_stream.sums = Some(StreamTotals {
            placed: true,
            uncounted: 0,
            uncounted_overrun: 0,
            correction,
            bytes: finished.tally.terms.written * u64::from(self.shape.geometry.frame_bytes),
            times: (time(finished.tally.low), time(finished.tally.high)),
            flows: vec![SubStreamTotals::only(finished)],
        });
    }

    /// Returns the scan stream of a scan.
    pub fn part_mut(&mut self, scan: uuid::Uuid) -> Option<&mut ScanStream> {
        self.scan_streams.iter_mut().find(|scan_stream| scan_stream.context.uuid == scan)
    }

    /// Returns the oldest scan stream if it is complete.
    pub fn take_complete(&mut self) -> Option<(ScanStream, fullbore_core::account::CountedBy)> {
        if !self.scan_streams.front()?.complete() {
            return None;
        }
        self.oldest += 1;
        Some((self.scan_streams.pop_front()?, self.count.counted_by()))
    }

    /// True if every scan stream has been taken.
    pub fn is_done(&self) -> bool {
        self.scan_streams.is_empty()
    }

    /// Returns a warning about the rate of its frames, once.
    pub fn complaint(&mut self) -> Option<String> {
        self.doubt.say(&self.shape, Some(&self.count), self.scan_streams.back()?)
    }

    /// Updates the metrics for screens.
    pub fn tell(&self, pool: &Pool) {
        let mut terms = self.window.so_far();
        terms.damaged += self.scan_streams.back().map_or(0, |scan_stream| scan_stream.beyond);
        let bytes = terms.written * u64::from(self.shape.geometry.frame_bytes);
        self.metrics.tell(&terms, bytes, self.scan_streams.back(), pool);
        let rate = self.count.frames_per_second().map_or(0, |(rate, _)| rate);
        self.metrics.frames_per_second.store(rate, Relaxed);
    }
}

/// The checksum of the first slots of a page.
struct Sum {
    page: i64,
    slots: u32,
    crc: u32,
}

/// Returns the memory of the next `slots` frames, in order.
fn slots_from(
    window: &mut Window<Block>,
    first: i64,
    slots: usize,
    frame_bytes: usize,
) -> impl Iterator<Item = &mut [u8]> {
    window
        .blocks_from(first)
        .flat_map(move |(slot, block)| block.chunks_exact_mut(frame_bytes).skip(slot as usize))
        .take(slots)
}

/// The layout of the slices of one call, and the results.
struct Layout {
    method: Method,
    head: usize,
    frame: usize,
    slots: usize,
    per_message: usize,
    /// Datagrams in their predicted slots, in a row from the first.
    in_place: usize,
    /// Datagrams copied to staging memory.
    surprises: usize,
}

impl Layout {
    fn new(method: Method, head: usize, frame: usize, slots: usize) -> Self {
        let per_frame = if head > 0 { 2 } else { 1 };
        let per_message = match method {
            Method::Batch => per_frame + 1,
            Method::Merged => per_frame * slots + 1,
        };
        Self { method, head, frame, slots, per_message, in_place: 0, surprises: 0 }
    }

    /// Returns slices for the kernel: headers apart, frames in their slots, and behind each message enough staging
    /// memory for the longest message.
    fn slices<'a>(
        &self,
        heads: &'a mut [[u8; Reassembler::LONGEST_HEAD]],
        frames: impl Iterator<Item = &'a mut [u8]>,
        mut overflow: impl Iterator<Item = &'a mut [u8]>,
    ) -> Vec<IoSliceMut<'a>> {
        let mut slices = Vec::with_capacity(3 * self.slots + 1);
        for (frame, head) in frames.zip(heads.iter_mut()) {
            if self.head > 0 {
                slices.push(IoSliceMut::new(&mut head[..self.head]));
            }
            slices.push(IoSliceMut::new(frame));
            if self.method == Method::Batch {
                slices.push(IoSliceMut::new(overflow.next().expect("one for each message")));
            }
        }
        if self.method == Method::Merged {
            slices.push(IoSliceMut::new(overflow.next().expect("one at least")));
        }
        slices
    }

    /// Counts the datagrams that fill their slots exactly. Copies all from the first other one on.
    fn keep_surprises(
        &mut self,
        slices: &[IoSliceMut<'_>],
        received: &[Received],
        kept: &mut StagedDatagram,
    ) {
        let whole = self.head + self.frame;
        for (message, told) in slices.chunks(self.per_message).zip(received) {
            let segment = told.segment.unwrap_or(told.bytes);
            let fits = match self.method {
                Method::Batch => told.bytes == whole && segment == whole,
                Method::Merged => segment == whole && told.bytes <= whole * self.slots,
            };
            let mut from = 0;
            if fits && self.surprises == 0 {
                let count = told.bytes / whole;
                self.in_place += count;
                from = count * whole;
            }
            self.surprises += kept.gather(message, from..told.bytes, segment);
        }
    }
}

/// Fills the slots of missing frames.
fn fill_gaps(count: &FrameIndexer, fill: Fill, frame_bytes: usize, closed: &mut ClosedPage<Block>) {
    if closed.present == closed.slots {
        return;
    }
    let Some(block) = &mut closed.block else { return };
    for gap in &closed.gaps {
        for index in gap.first..gap.first + gap.count as i64 {
            let at = (index - closed.first) as usize * frame_bytes;
            count.fill(index, fill, &mut block[at..][..frame_bytes]);
        }
    }
}

/// Returns a copy of the frames of an open page, with absent frames filled, and their offset in the block.
fn copy_of(
    count: &FrameIndexer,
    fill: Fill,
    frame_bytes: usize,
    page: &OpenPage<'_, Block>,
    slots: Range<u32>,
) -> (u32, Vec<u8>) {
    let block = page.block.expect("frames are present, so there is memory");
    let (from, to) = (slots.start, slots.end.min(page.slots()));
    let mut copy = block[from as usize * frame_bytes..to as usize * frame_bytes].to_vec();
    for slot in (from..to).filter(|&slot| !page.is_present(slot)) {
        let at = (slot - from) as usize * frame_bytes;
        count.fill(page.first + i64::from(slot), fill, &mut copy[at..][..frame_bytes]);
    }
    (from * frame_bytes as u32, copy)
}

fn note_invalid(list: &mut VecDeque<(i64, u32)>, page: i64) {
    match list.iter_mut().find(|(number, _)| *number == page) {
        Some((_, count)) => *count += 1,
        None => list.push_back((page, 1)),
    }
}

fn forget_invalid(list: &mut VecDeque<(i64, u32)>, page: i64) {
    if let Some((_, count)) = list.iter_mut().find(|(number, _)| *number == page) {
        *count = count.saturating_sub(1);
    }
}

fn take_invalid(list: &mut VecDeque<(i64, u32)>, page: i64) -> u32 {
    let place = list.iter().position(|(number, _)| *number == page);
    place.and_then(|place| list.remove(place)).map_or(0, |(_, count)| count)
}
