//! A stream whose frames have places: received where they belong, repaired where they do not.
//!
//! ```text
//! predicted   the next messages go to the slots after the highest frame seen     (no copy but the kernel's)
//! checked     every header is read; the run that is as predicted is counted at once
//! mended      from the first surprise on, datagrams are copied out and placed one by one
//! ```

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use fullbore_core::count::{Count, Reading};
use fullbore_core::gap::{Cause, Gap};
use fullbore_core::manifest::{Fill, Format};
use fullbore_core::tail::Piece;
use fullbore_core::time::Tai;
use fullbore_core::window::{Arrival, Closed, Finished, OpenPage, Window};

use super::border::{self, Border};
use super::dealer::Dealer;
use super::far::{Belief, Far};
use super::part::{
    Doubt, FlowSums, Opening, Part, Shape, StreamGauge, Sums, came_after_cut, filled,
};
use super::scratch::{Kept, Scratch};
use super::tail::Extent;
use super::unclaimed::{Handed, HandedBack};
use crate::checksum;
use crate::ring::{Block, Pool};
use crate::sys::receive::{MOST_MESSAGES, Received, Receiver};

/// Pages that stay open behind the newest: how far a frame may be overtaken.
const DEPTH: usize = 2;

/// A gap longer than this many frames in a count without time is taken for a sender that started anew.
pub const LONGEST_GAP: i64 = 1 << 31;

/// How a call receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Up to [`MOST_MESSAGES`] messages, each expected to be one datagram.
    Batch,
    /// One message, expected to be many datagrams merged.
    Merged,
}

/// What a capture thread lends to its streams.
pub struct Lent<'a> {
    /// The port's memory.
    pub pool: &'a mut Pool,
    /// The ways to the members.
    pub dealer: &'a mut Dealer,
    /// Copies of datagrams that were not where they belong.
    pub scratch: &'a mut Scratch,
    /// The time of this round.
    pub now: Tai,
}

/// A placed stream.
pub struct Placed {
    shape: Shape,
    count: Count,
    window: Window<Block>,
    heads: Vec<[u8; Placed::LONGEST_HEAD]>,
    far: Far,
    border: Border,
    /// Index of the first frame of all.
    began: i64,
    /// Index after the last page handed on.
    handed: i64,
    /// Frames marked invalid, by page.
    invalid: VecDeque<(i64, u32)>,
    /// Checksums of pages as far as they were filled in order.
    sums: VecDeque<Sum>,
    /// When the first frame of each page came.
    came: VecDeque<(i64, Tai)>,
    /// Parts that are not complete; the newest last.
    parts: VecDeque<Part>,
    /// Number of the first of them, by the window's count of cuts.
    oldest: u32,
    gauge: Arc<StreamGauge>,
    /// Correction already booked to earlier scans.
    corrected: u64,
    /// Disagreements already booked.
    doubt: Doubt,
    handed_back: HandedBack,
}

impl Placed {
    /// The most bytes before a frame that may be left out.
    pub const LONGEST_HEAD: usize = fullbore_core::endpoint::LONGEST_STRIP as usize;

    /// A stream that begins with the frame at `first`.
    pub fn new(shape: Shape, count: Count, first: i64, opening: Arc<Opening>) -> Self {
        let window = Window::new(shape.geometry.frames_per_block(), DEPTH, first);
        let part = Part::new(opening, &shape);
        Self {
            shape,
            count,
            window,
            heads: vec![[0; Self::LONGEST_HEAD]; MOST_MESSAGES.max(128)],
            far: Far::default(),
            border: Border::default(),
            began: first,
            handed: first,
            invalid: VecDeque::new(),
            sums: VecDeque::new(),
            came: VecDeque::new(),
            parts: VecDeque::from([part]),
            oldest: 0,
            gauge: Arc::default(),
            corrected: 0,
            doubt: Doubt::default(),
            handed_back: HandedBack::default(),
        }
    }

    /// What is fixed of it.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Its counters.
    pub fn gauge(&self) -> &Arc<StreamGauge> {
        &self.gauge
    }

    /// Whether a datagram belongs to it.
    pub fn owns(&self, head: &[u8], frame: &[u8], bytes: usize) -> bool {
        self.count.read(head, frame, bytes) != Reading::Foreign
    }

    /// What its frames are.
    pub fn format(&self) -> Format {
        match self.count.frames_per_second() {
            _ if self.count.is_vdif() => Format::Vdif {
                frames_per_second: self.count.frames_per_second().map(|(rate, _)| rate),
                derived: self.count.frames_per_second().is_some_and(|(_, derived)| derived),
                threads: self.count.threads().to_vec(),
            },
            _ => Format::Raw,
        }
    }

    /// Receives once, straight into place where things are as predicted. Gives the datagrams taken
    /// and the messages they came in.
    pub fn receive(
        &mut self,
        receiver: &mut Receiver,
        method: Method,
        lent: &mut Lent<'_>,
    ) -> io::Result<(usize, usize)> {
        let (head, frame) = (self.shape.stripped_bytes as usize, self.frame_bytes());
        let wanted = match method {
            Method::Batch => MOST_MESSAGES,
            Method::Merged => (65_535 / (head + frame) + 1).min(self.heads.len()),
        };
        let slots = self.provide(wanted, lent.pool);
        if slots == 0 {
            // No block is free. What comes is read all the same, so that its loss is counted here.
            let received = lent.scratch.receive(receiver, None)?;
            self.mend(lent);
            return Ok(received);
        }
        let mut received = [Received::default(); MOST_MESSAGES];
        let first = self.window.next();
        let mut layout = Layout::new(method, head, frame, slots);
        let messages = {
            let frames = slots_from(&mut self.window, first, slots, frame);
            let (overflow, kept) = lent.scratch.parts();
            let mut slices = layout.slices(&mut self.heads, frames, overflow);
            let room = if method == Method::Batch { slots } else { 1 };
            let messages = receiver.receive(
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
        let run = if self.border.is_held() { 0 } else { self.run_as_predicted(first, in_place) };
        if run < in_place {
            self.copy_out(first, run, in_place, lent.scratch);
        }
        if run > 0 {
            self.sum_up(first, run);
            self.note_came(first, run, lent.now);
            self.look_at_the_clock(first, lent.now);
            self.window.arrive_in_order(run as u32);
            self.near(first + run as i64 - 1, lent);
        }
        let taken = in_place + layout.surprises;
        self.mend(lent);
        self.hand_on(lent);
        Ok((taken, messages))
    }

    fn frame_bytes(&self) -> usize {
        self.shape.geometry.frame_bytes as usize
    }

    /// How many of the next slots have memory, up to `wanted`.
    fn provide(&mut self, wanted: usize, pool: &mut Pool) -> usize {
        let mut ready = 0;
        while ready < wanted {
            let (page, slot) = self.window.page_of(self.window.next() + ready as i64);
            if self.window.block(page, || pool.take()).is_none() {
                break;
            }
            ready += (self.shape.geometry.frames_per_block() - slot) as usize;
        }
        ready.min(wanted)
    }

    /// How many of the frames received in place are the ones that were predicted.
    fn run_as_predicted(&mut self, first: i64, in_place: usize) -> usize {
        let (head, frame) = (self.shape.stripped_bytes as usize, self.frame_bytes());
        for number in 0..in_place {
            let expected = first + number as i64;
            let (page, slot) = self.window.page_of(expected);
            let block = self.window.block(page, || None).expect("it was received into");
            let bytes = &block[slot as usize * frame..][..frame];
            let before = &self.heads[number][..head];
            match self.count.read(before, bytes, head + frame) {
                Reading::Frame { index, invalid } if index == expected => {
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
        let gauge = self.gauge.clone();
        let watch = &mut self.part_of(index).watch;
        if let Some(stamp) = stamp.filter(|_| watch.wants(now)) {
            watch.look(stamp, now);
            gauge.tell_wall(watch);
        }
    }

    /// Takes the checksum of frames that came in order, while the kernel's copy of them is in the cache.
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

    /// Takes note of the pages whose first frame is among these.
    fn note_came(&mut self, first: i64, run: usize, now: Tai) {
        let (from, _) = self.window.page_of(first);
        let (to, _) = self.window.page_of(first + run as i64 - 1);
        for page in from..=to {
            let newest = self.came.back().is_none_or(|(newest, _)| *newest < page);
            if newest || self.came.iter().all(|(noted, _)| *noted != page) {
                self.came.push_back((page, now));
            }
        }
    }

    /// When the first frame of a closed page came.
    fn take_came(&mut self, page: i64) -> Option<Tai> {
        let place = self.came.iter().position(|(noted, _)| *noted == page);
        let came = place.map(|place| self.came[place].1);
        self.came.retain(|(noted, _)| *noted > page);
        came
    }

    /// The checksum of a closed page, if every frame of it came in order.
    fn take_sum(&mut self, closed: &Closed<Block>) -> Option<u32> {
        while self.sums.front().is_some_and(|sum| sum.page < closed.page) {
            self.sums.pop_front();
        }
        let sum = self.sums.front().filter(|sum| sum.page == closed.page)?;
        (sum.slots == closed.slots && closed.present == closed.slots).then_some(sum.crc)
    }

    /// Copies frames that lie where they were predicted, and do not belong there, to be placed singly.
    fn copy_out(&mut self, first: i64, from: usize, to: usize, scratch: &mut Scratch) {
        let (head, frame) = (self.shape.stripped_bytes as usize, self.frame_bytes());
        for number in from..to {
            let (page, slot) = self.window.page_of(first + number as i64);
            let block = self.window.block(page, || None).expect("it was received into");
            let bytes = &block[slot as usize * frame..][..frame];
            scratch.early.push(&[&self.heads[number][..head], bytes]);
        }
    }

    /// Places what lies in the scratch memory, one datagram at a time.
    pub fn mend(&mut self, lent: &mut Lent<'_>) {
        let [early, kept] = lent.scratch.take();
        for datagram in early.iter().chain(kept.iter()) {
            self.ingest(datagram, lent);
        }
        lent.scratch.give_back([early, kept]);
    }

    /// Takes one datagram, wherever it belongs.
    pub fn ingest(&mut self, datagram: &[u8], lent: &mut Lent<'_>) {
        if self.border.is_held() {
            // Only in the order in which they came can it be told who overtook whom.
            self.border.hold(datagram, lent.now);
            self.cross_border(false, lent);
        } else {
            self.take(datagram, lent);
        }
    }

    /// Takes the datagrams held at a border between seconds, if what was overtaken there has had its time, or
    /// gets none.
    pub fn cross_border(&mut self, at_once: bool, lent: &mut Lent<'_>) {
        while let Some(held) = self.border.take(at_once, lent.now) {
            for datagram in &held {
                let parts = self.shape.split(datagram);
                border::learn_length(&mut self.count, &self.window, parts);
            }
            self.count.settle();
            held.iter().for_each(|datagram| self.ingest(datagram, lent));
        }
    }

    fn take(&mut self, datagram: &[u8], lent: &mut Lent<'_>) {
        let (head, frame) = self.shape.split(datagram);
        match self.count.read(head, frame, datagram.len()) {
            Reading::Frame { index, invalid } => self.place(index, invalid, head, frame, lent),
            Reading::Early { .. } => self.border.hold(datagram, lent.now),
            Reading::Damaged { index } => match self.window.arrive_damaged(index) {
                Arrival::Far | Arrival::BeforeScan => self.part_of_new().foreign(datagram.len()),
                _ => self.part_of(index).seen(lent.now),
            },
            Reading::Beyond => self.part_of_new().beyond(lent.now),
            Reading::Foreign | Reading::Uncounted => self.hand_back(datagram),
        }
        self.hand_on(lent);
    }

    /// A datagram that is no frame of this stream may be one of another.
    fn hand_back(&mut self, datagram: &[u8]) {
        let strip = self.shape.stripped_bytes as usize;
        let handed = match self.count.is_vdif() {
            true => self.handed_back.push(datagram, strip),
            false => Handed::NoFrame,
        };
        match handed {
            Handed::Back => {}
            Handed::NoFrame => self.part_of_new().foreign(datagram.len()),
            Handed::NoRoom => self.part_of_new().unrecorded += 1,
        }
    }

    /// Datagrams that were given to it and may belong to other streams.
    pub fn take_handed_back(&mut self) -> Vec<Vec<u8>> {
        self.handed_back.take()
    }

    fn place(&mut self, index: i64, invalid: bool, head: &[u8], frame: &[u8], lent: &mut Lent<'_>) {
        let bytes = self.frame_bytes();
        match self.window.arrive(index, || lent.pool.take()) {
            Arrival::Placed { page, slot } => {
                let block = self.window.block(page, || None).expect("the frame was placed in it");
                block[slot as usize * bytes..][..bytes].copy_from_slice(frame);
                let first = self.window.first_of(page);
                self.part_of(index).course.tail().touch(first, slot * bytes as u32);
                self.count.learn(head, frame);
                if invalid {
                    note_invalid(&mut self.invalid, page);
                }
                self.note_came(index, 1, lent.now);
                if self.part_of(index).watch.wants(lent.now) {
                    self.take_stamp(index, self.count.stamp(frame), lent.now);
                }
                self.near(index, lent);
            }
            Arrival::Duplicate => {
                let same = self.is_recorded(index, frame);
                self.part_of(index).differing += u64::from(!same);
                self.near(index, lent);
            }
            Arrival::NoBlock | Arrival::Late | Arrival::Damaged => self.near(index, lent),
            Arrival::BeforeScan if came_after_cut(&mut self.parts, 0, 0, index) => {}
            Arrival::BeforeScan => self.part_of_new().astray += 1,
            // An invalid frame may carry any time; it does not move the window.
            Arrival::Far if invalid => self.go_astray(index),
            Arrival::Far => self.hear_from_afar(index, [head, frame].concat(), lent),
        }
    }

    /// Whether this very frame lies in its place already, as far as that can still be seen.
    fn is_recorded(&mut self, index: i64, frame: &[u8]) -> bool {
        let (page, slot) = self.window.page_of(index);
        let block = self.window.block(page, || None);
        block.is_some_and(|block| block[slot as usize * frame.len()..].starts_with(frame))
    }

    /// A frame near the window came, so the far ones before it were not the stream.
    fn near(&mut self, index: i64, lent: &mut Lent<'_>) {
        if !self.far.is_empty() {
            self.give_up_far(lent);
        }
        self.part_of(index).seen(lent.now);
    }

    /// Believes none of the far frames. To those that the window has come near meanwhile, as it does behind a
    /// damaged frame or a cut, their places are given.
    fn give_up_far(&mut self, lent: &mut Lent<'_>) {
        for (index, datagram) in self.far.give_up() {
            match self.window.is_far(index) {
                true => self.go_astray(index),
                false => self.take(&datagram, lent),
            }
        }
    }

    /// A far frame was not believed. If its place had been counted it may have come twice, which cannot be seen any more.
    fn go_astray(&mut self, index: i64) {
        match self.window.give_up(index) {
            true => self.part_of_new().differing += 1,
            false => self.part_of_new().astray += 1,
        }
    }

    /// A far-off frame: believed once enough in a row agree.
    fn hear_from_afar(&mut self, index: i64, datagram: Vec<u8>, lent: &mut Lent<'_>) {
        let reach = 4 * DEPTH as u64 * u64::from(self.shape.geometry.frames_per_block());
        if !self.far.agrees(index, reach) {
            self.give_up_far(lent);
        }
        self.far.hear(index, datagram, lent.now);
        let belief = self.far.belief(self.window.next(), self.longest_gap(), lent.now);
        if let Some(belief) = belief {
            self.follow(belief, lent);
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
            Reading::Frame { index, .. } | Reading::Early { index } => Some(index),
            _ => None,
        }
    }

    /// Moves the window to where the far-off frames are, and places them.
    fn follow(&mut self, belief: Belief, lent: &mut Lent<'_>) {
        let far = self.far.take();
        match belief {
            Belief::Ahead(first) => self.window.jump_to(first),
            Belief::Anew(first) => {
                self.count.rebase(first, self.window.next());
                self.part_of_new().restarts += 1;
            }
        }
        // A count at the end of its range cannot be moved: then they find no place.
        if self.index_of(&far[0]).is_none_or(|index| self.window.is_far(index)) {
            self.part_of_new().astray += far.len() as u64;
            return;
        }
        for datagram in far {
            // Frames that agree may still lie far from one another.
            let index = self.index_of(&datagram).filter(|&index| index >= self.window.next());
            if let Some(index) = index.filter(|&index| self.window.is_far(index)) {
                self.window.jump_to(index);
            }
            self.take(&datagram, lent);
        }
    }

    /// The part that new frames belong to.
    pub fn part_of_new(&mut self) -> &mut Part {
        self.part_of(self.window.next())
    }

    /// The part that the newest frames belong to, or the one before while a cut is waited for.
    fn part_of(&mut self, index: i64) -> &mut Part {
        let last = self.parts.len() - 1;
        let waits = self.window.is_before_cut(index) && last > 0;
        &mut self.parts[last - usize::from(waits)]
    }

    /// Begins the next scan with the next block.
    pub fn cut(&mut self, opening: Arc<Opening>, lent: &mut Lent<'_>) {
        self.cross_border(true, lent);
        if self.cutting() {
            self.cut_now(lent);
        }
        self.parts.push_back(Part::new(opening, &self.shape));
        self.window.cut();
    }

    /// Whether a cut waits for the stream to reach the next block.
    pub fn cutting(&self) -> bool {
        self.window.cutting()
    }

    /// Does not wait for the next block any longer.
    pub fn cut_now(&mut self, lent: &mut Lent<'_>) {
        self.window.cut_short();
        self.hand_on(lent);
    }

    /// Ends the last scan: everything held is handed on.
    pub fn end(&mut self, lent: &mut Lent<'_>) {
        self.cross_border(true, lent);
        let likely = self.far.likely(self.window.next(), self.longest_gap(), 1);
        if let Some(ahead @ Belief::Ahead(_)) = likely {
            self.follow(ahead, lent);
            self.cross_border(true, lent);
        }
        self.give_up_far(lent);
        if self.window.cutting() {
            // The cut has not been reached, and now never will be: the scan after it is empty.
            self.window.cut_short();
        }
        self.window.cut_short();
        self.hand_on(lent);
    }

    /// Fills and hands on every page that has left the window.
    fn hand_on(&mut self, lent: &mut Lent<'_>) {
        while let Some(closed) = self.window.take_closed() {
            while closed.scan > self.counted() {
                self.settle_books();
            }
            self.hand_on_page(closed, lent);
        }
        while self.window.has_finished() {
            self.settle_books();
        }
    }

    /// Number of the oldest scan whose books are still open.
    fn counted(&self) -> u32 {
        let done = self.parts.iter().take_while(|part| part.sums.is_some()).count();
        self.oldest + done as u32
    }

    fn hand_on_page(&mut self, mut closed: Closed<Block>, lent: &mut Lent<'_>) {
        let place = (closed.scan - self.oldest) as usize;
        let end = closed.first + i64::from(closed.slots);
        if closed.slots > 0 && closed.first > self.handed {
            let count = (closed.first - self.handed) as u64;
            let gap = Gap { first: self.handed, count, cause: Cause::Missing };
            self.parts[place].pending.push(gap);
        }
        // A page that lay ahead when a scan was cut has no slots, and says nothing of what is handed on.
        if closed.slots > 0 {
            self.handed = self.handed.max(end);
        }
        let invalid = take_invalid(&mut self.invalid, closed.page);
        let crc = self.take_sum(&closed);
        let came = self.take_came(closed.page).unwrap_or(lent.now);
        let part = &mut self.parts[place];
        if closed.present == 0 {
            part.pending.append(&mut closed.gaps);
            if let Some(block) = closed.block {
                lent.pool.put(block);
            }
            return;
        }
        fill_gaps(
            &self.count,
            self.shape.fill,
            self.shape.geometry.frame_bytes as usize,
            &mut closed,
        );
        part.invalid += u64::from(invalid);
        part.filled += u64::from(closed.slots - closed.present);
        let time = self.count.time(closed.first);
        let frame_bytes = self.shape.geometry.frame_bytes;
        let filled = filled(closed, part, frame_bytes, invalid, time, came, crc)
            .expect("frames are present, so there is memory");
        if let Some(lost) = lent.dealer.deal(&mut part.course, filled) {
            lent.pool.put(part.lose(lost));
        }
    }

    /// Has kept what is in open blocks, once that is old, as they would be handed on if the stream ended now. What is
    /// repaired in them later is copied again.
    pub fn keep_tail(&mut self, lent: &mut Lent<'_>) {
        let Some(oldest) = self.came.iter().map(|(_, came)| *came).min() else { return };
        let part = self.parts.back_mut().expect("there is a newest part");
        // While a cut waits, open blocks are of two scans. That is soon over.
        if self.window.cutting() || part.sums.is_some() {
            return;
        }
        if !lent.dealer.wants_tail(&mut part.course, oldest, lent.now) {
            return;
        }
        let frame = self.shape.geometry.frame_bytes;
        let pages: Vec<OpenPage<'_, Block>> = self.window.open_pages().collect();
        let filled: Vec<&OpenPage<'_, Block>> =
            pages.iter().filter(|page| page.present > 0).collect();
        let open: Vec<Extent> =
            filled.iter().map(|page| (page.first, page.slots() * frame)).collect();
        let (count, fill) = (&self.count, self.shape.fill);
        let mut copy = |number: usize, range: Range<u32>| {
            let slots = range.start / frame..(range.end / frame).max(range.start / frame + 1);
            copy_of(count, fill, frame as usize, filled[number], slots)
        };
        let (pending, handed) = (&part.pending, self.handed);
        let (invalid, came) = (&self.invalid, &self.came);
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
                pieces.push(Piece {
                    first: page.first,
                    bytes: page.slots() * frame,
                    frames: page.slots(),
                    present: page.present,
                    invalid: of_page(invalid),
                    time: count.time(page.first),
                    seen: seen.map_or(lent.now, |(_, came)| *came),
                    gaps: std::mem::take(&mut gaps),
                    lengths: Vec::new(),
                });
            }
            pieces
        };
        lent.dealer.keep_tail(&mut part.course, lent.now, &open, &mut copy, &mut describe);
    }

    fn settle_books(&mut self) {
        let finished: Finished =
            self.window.take_finished().expect("its pages have all been handed on");
        let place = (finished.scan - self.oldest) as usize;
        let part = &mut self.parts[place];
        part.second_count = self.count.found();
        if let Some(high) = finished.tally.high
            && high >= self.handed
        {
            let count = (high + 1 - self.handed) as u64;
            part.pending.push(Gap { first: self.handed, count, cause: Cause::Missing });
            self.handed = high + 1;
        }
        // Frames that came only after others had begun the stream lie before every block.
        let before = finished.gaps.iter().take_while(|gap| gap.first < self.began).map(|gap| {
            let count = gap.count.min(self.began.abs_diff(gap.first));
            Gap { count, ..*gap }
        });
        part.pending.extend(before);
        let time = |index: Option<i64>| index.and_then(|index| self.count.time(index));
        // A rate that is lowered again takes back what another scan was told of: nothing is told twice.
        let correction = self.count.correction().saturating_sub(self.corrected);
        self.corrected += correction;
        part.sums = Some(Sums {
            placed: true,
            uncounted: 0,
            uncounted_overrun: 0,
            correction,
            bytes: finished.tally.terms.written * u64::from(self.shape.geometry.frame_bytes),
            times: (time(finished.tally.low), time(finished.tally.high)),
            flows: vec![FlowSums::only(finished)],
        });
    }

    /// The part that a track belongs to.
    pub fn part_mut(&mut self, scan: uuid::Uuid) -> Option<&mut Part> {
        self.parts.iter_mut().find(|part| part.opening.uuid == scan)
    }

    /// Takes the oldest part if it is complete.
    pub fn take_complete(&mut self) -> Option<(Part, fullbore_core::account::CountedBy)> {
        if !self.parts.front()?.complete() {
            return None;
        }
        self.oldest += 1;
        Some((self.parts.pop_front()?, self.count.counted_by()))
    }

    /// Whether every part has been taken.
    pub fn is_done(&self) -> bool {
        self.parts.is_empty()
    }

    /// What is wrong with the rate of its frames, once.
    pub fn complaint(&mut self) -> Option<String> {
        self.doubt.say(&self.shape, &self.count, self.parts.back()?)
    }

    /// Brings the counters for screens up to date.
    pub fn tell(&self, pool: &Pool) {
        let mut terms = self.window.so_far();
        terms.damaged += self.parts.back().map_or(0, |part| part.beyond);
        let bytes = terms.written * u64::from(self.shape.geometry.frame_bytes);
        let foreign = self.parts.back().map_or(0, |part| part.foreign);
        self.gauge.tell(&terms, bytes, foreign, pool);
        let rate = self.count.frames_per_second().map_or(0, |(rate, _)| rate);
        self.gauge.frames_per_second.store(rate, Relaxed);
    }
}

/// The checksum of the first slots of a page.
struct Sum {
    page: i64,
    slots: u32,
    crc: u32,
}

/// The memory of the next `slots` frames, in order.
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

/// How the slices of one call are laid out, and what came where.
struct Layout {
    method: Method,
    head: usize,
    frame: usize,
    slots: usize,
    per_message: usize,
    /// Datagrams that lie in the slots predicted for them, in a row from the first.
    in_place: usize,
    /// Datagrams copied to the scratch memory.
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

    /// Slices for the kernel: heads beside, frames in their slots, and behind each message enough
    /// scratch memory for the longest there is.
    fn slices<'a>(
        &self,
        heads: &'a mut [[u8; Placed::LONGEST_HEAD]],
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

    /// Counts the datagrams that fill their slots exactly; copies all from the first other one on.
    fn keep_surprises(
        &mut self,
        slices: &[IoSliceMut<'_>],
        received: &[Received],
        kept: &mut Kept,
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

/// Makes up the frames that are not there.
fn fill_gaps(count: &Count, fill: Fill, frame_bytes: usize, closed: &mut Closed<Block>) {
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

/// Frames of a page that is still open, filled where they are absent, and where in its block they lie.
fn copy_of(
    count: &Count,
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

fn take_invalid(list: &mut VecDeque<(i64, u32)>, page: i64) -> u32 {
    let place = list.iter().position(|(number, _)| *number == page);
    place.and_then(|place| list.remove(place)).map_or(0, |(_, count)| count)
}
