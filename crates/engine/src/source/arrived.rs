//! A stream whose frames lie as they came: several threads together, varying lengths, no number.
//!
//! Nothing is moved, so nothing is filled; each thread has a window of its own that tells missing,
//! late and twice, and what came twice or late is left out. With varying lengths a frame may straddle
//! two blocks: its rest is copied to the head of the next.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use fullbore_core::account::{CountedBy, Edge};
use fullbore_core::count::{Count, Reading};
use fullbore_core::format::sequence::Field;
use fullbore_core::format::vdif::Header;
use fullbore_core::manifest::Format;
use fullbore_core::tail::Piece;
use fullbore_core::time::Tai;
use fullbore_core::window::{Arrival, Finished, Window};

use super::border::{self, Border};
use super::far::{Belief, Far};
use super::learn::Learning;
use super::part::{Doubt, FlowSums, Opening, Part, Shape, StreamGauge, Sums, came_after_cut};
use super::placed::{LONGEST_GAP, Lent};
use super::unclaimed::{Handed, HandedBack, Key};
use crate::checksum;
use crate::ring::{Block, Filled, Pool};

/// Frames of a page of a flow's window: it repairs nothing, so it may be wide.
const FLOW_PAGE: u32 = 1024;

/// How long the books of a scan stay open after a cut.
const GRACE_NS: i64 = 100_000_000;

/// So many frames of each flow are remembered by their checksums.
const LATELY: usize = 1024;

/// A flow of fewer frames than this may be there by mistake.
const AGREE: u64 = 3;

/// The most threads that are told apart in one stream.
const MOST_FLOWS: usize = 1024;

/// How flows are told apart and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flows {
    /// By station and thread of each VDIF frame, each by its own time.
    Vdif {
        /// Frames per second of each, if given.
        frames_per_second: Option<u64>,
        /// Where a packet number stands before each frame, if one does.
        packet_number: Option<Field>,
    },
    /// All frames are one flow.
    One,
    /// Nothing can be counted.
    None,
}

struct Flow {
    station: u16,
    thread: u16,
    count: Count,
    window: Window<()>,
    far: Far,
    finished: VecDeque<Finished>,
    /// Frames recorded of it, in all scans.
    recorded: u64,
    /// Index and checksum of those recorded lately, to tell one that came twice from another of the same time.
    lately: Vec<(i64, u32)>,
    /// When its first and its last frame of the scan were taken.
    seen: Option<(Tai, Tai)>,
    /// The first and the last frame recorded of it in the scan.
    ends: Option<(Mark, Mark)>,
}

impl Flow {
    fn new(station: u16, thread: u16, count: Count, window: Window<()>) -> Self {
        Self {
            station,
            thread,
            count,
            window,
            far: Far::default(),
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

    /// Whether this very frame was recorded, as far as that is still known.
    fn is_recorded(&self, index: i64, frame: &[u8]) -> bool {
        let known = self.lately.get(index.rem_euclid(LATELY as i64) as usize);
        known.is_some_and(|known| *known == (index, checksum::append(0, frame)))
    }
}

/// Which frame of which flow: its time may be known only later, once its second has ended.
#[derive(Clone, Copy)]
struct Mark {
    flow: usize,
    index: i64,
    /// Its time, where the flow is counted anew since and so cannot tell it any more.
    time: Option<Tai>,
}

impl Mark {
    fn time(&self, flows: &[Flow]) -> Option<Tai> {
        self.time.or_else(|| flows[self.flow].count.time(self.index))
    }
}

/// An arrived stream.
pub struct Arrived {
    shape: Shape,
    kind: Flows,
    /// The only threads of one station that belong to it, if others do not.
    only: Option<(u16, Vec<u16>)>,
    /// How a flow of its own is counted.
    pattern: Count,
    flows: Vec<Flow>,
    border: Border,
    block: Option<Block>,
    /// Bytes in the block, and frames that begin in it.
    used: usize,
    frames: u32,
    invalid: u32,
    lengths: Vec<u16>,
    /// Number of the first frame that begins in the block.
    first: i64,
    /// That frame, where it is counted.
    mark: Option<Mark>,
    /// When it came.
    came: Option<Tai>,
    arrived: u64,
    /// The first and the last frame of the scan.
    ends: Option<(Mark, Mark)>,
    bytes: u64,
    /// Correction already booked to earlier scans.
    corrected: u64,
    uncounted: u64,
    overrun: u64,
    parts: VecDeque<Part>,
    /// When the newest scan was cut from the one before.
    cut_at: Option<Tai>,
    doubt: Doubt,
    handed_back: HandedBack,
    gauge: Arc<StreamGauge>,
}

impl Arrived {
    /// A stream that holds nothing yet. `pattern` is how a flow is counted that is not VDIF by time.
    pub fn new(shape: Shape, kind: Flows, pattern: Count, opening: Arc<Opening>) -> Self {
        let part = Part::new(opening, &shape);
        Self {
            shape,
            kind,
            only: None,
            pattern,
            flows: Vec::new(),
            border: Border::default(),
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
            parts: VecDeque::from([part]),
            cut_at: None,
            doubt: Doubt::default(),
            handed_back: HandedBack::default(),
            gauge: Arc::default(),
        }
    }

    /// Leaves all but these threads of one station to other streams, or to the user's filter.
    pub fn keep_to(&mut self, station: u16, threads: Vec<u16>) {
        self.only = Some((station, threads));
    }

    /// Begins each flow that the first datagrams speak of with the earliest of its frames: none of them was
    /// overtaken by the first.
    pub fn expect(&mut self, first: &Learning) {
        for datagram in first.datagrams() {
            let (head, frame) = self.shape.split(datagram);
            if self.owns(frame) {
                self.flow_of(head, frame, datagram.len(), Some(first));
            }
        }
    }

    /// Whether a frame belongs to it.
    pub fn owns(&self, frame: &[u8]) -> bool {
        let of_length = frame.len() == self.shape.geometry.frame_bytes as usize;
        match (self.kind, &self.only) {
            (Flows::Vdif { .. }, None) => of_length,
            (_, None) => true,
            // A damaged frame is its own, too; a whole one of another length is another stream's.
            (_, Some((station, threads))) => {
                Header::read(frame).is_ok_and(|header| {
                    header.station() == *station && threads.contains(&header.thread())
                }) && (of_length || Key::of(frame, 0).is_none())
            }
        }
    }

    /// A datagram that is no frame of this stream may be one of another.
    fn hand_back(&mut self, datagram: &[u8]) {
        let (_, frame) = self.shape.split(datagram);
        let vdif = matches!(self.kind, Flows::Vdif { .. });
        let handed = match vdif && !self.owns(frame) {
            true => self.handed_back.push(datagram, self.shape.stripped_bytes as usize),
            // A whole frame that it could not take, though nobody else will: of a thread beyond the most that it tells
            // apart, or of a time that cannot be.
            false if vdif && Key::of(frame, 0).is_some() => Handed::NoRoom,
            false => Handed::NoFrame,
        };
        match handed {
            Handed::Back => {}
            Handed::NoFrame => self.newest().foreign(datagram.len()),
            Handed::NoRoom => self.newest().unrecorded += 1,
        }
    }

    /// Datagrams that were given to it and may belong to other streams.
    pub fn take_handed_back(&mut self) -> Vec<Vec<u8>> {
        self.handed_back.take()
    }

    /// What is fixed of it.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Its counters.
    pub fn gauge(&self) -> &Arc<StreamGauge> {
        &self.gauge
    }

    /// What its frames are.
    pub fn format(&self) -> Format {
        match (self.kind, self.flows.first()) {
            (Flows::Vdif { .. }, Some(flow)) => Format::Vdif {
                frames_per_second: flow.count.frames_per_second().map(|(rate, _)| rate),
                derived: flow.count.frames_per_second().is_some_and(|(_, derived)| derived),
                threads: Vec::new(),
            },
            (Flows::Vdif { frames_per_second, .. }, None) => {
                Format::Vdif { frames_per_second, derived: false, threads: Vec::new() }
            }
            _ if self.pattern.is_vdif() => {
                Format::Vdif { frames_per_second: None, derived: false, threads: Vec::new() }
            }
            _ => Format::Raw,
        }
    }

    /// Takes one datagram.
    pub fn ingest(&mut self, datagram: &[u8], lent: &mut Lent<'_>) {
        if self.border.is_held() {
            // Frames lie as they came, so all wait together.
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
            held.iter().for_each(|datagram| self.learn_length(datagram));
            self.flows.iter_mut().for_each(|flow| flow.count.settle());
            held.iter().for_each(|datagram| self.ingest(datagram, lent));
        }
    }

    fn learn_length(&mut self, datagram: &[u8]) {
        let (head, frame) = self.shape.split(datagram);
        let Ok(header) = Header::read(frame) else { return };
        let own = (header.station(), header.thread());
        let flow = self.flows.iter_mut().find(|flow| (flow.station, flow.thread) == own);
        if let Some(flow) = flow {
            border::learn_length(&mut flow.count, &flow.window, (head, frame));
        }
    }

    fn take(&mut self, datagram: &[u8], lent: &mut Lent<'_>) {
        let (head, frame) = self.shape.split(datagram);
        let owned = self.only.is_none() || self.owns(frame);
        let flow = owned.then(|| self.flow_of(head, frame, datagram.len(), None)).flatten();
        let Some(flow) = flow else {
            self.hand_back(datagram);
            return;
        };
        let reading = match flow {
            Some(number) => self.flows[number].count.read(head, frame, datagram.len()),
            None => self.pattern.read(head, frame, datagram.len()),
        };
        match (reading, flow) {
            (Reading::Frame { index, invalid }, Some(number)) => {
                self.take_counted(number, index, invalid, head, frame, lent);
            }
            (Reading::Early { .. }, Some(_)) => self.border.hold(datagram, lent.now),
            (Reading::Damaged { index }, Some(number)) => {
                match self.flows[number].window.arrive_damaged(index) {
                    Arrival::Far | Arrival::BeforeScan => self.newest().foreign(datagram.len()),
                    _ => self.seen(number, lent.now),
                }
            }
            (Reading::Beyond, Some(number)) => {
                self.newest().beyond(lent.now);
                self.seen(number, lent.now);
            }
            (Reading::Uncounted, None) => {
                if self.make_room(frame.len(), lent) {
                    self.append(frame, false, None, lent.now);
                    self.uncounted += 1;
                } else {
                    self.overrun += 1;
                }
                self.newest().seen(lent.now);
            }
            _ => self.hand_back(datagram),
        }
        self.publish_full(lent);
    }

    /// The flow of a datagram: `None` for rubbish, `Some(None)` where nothing is counted. It may be among the
    /// first datagrams of all.
    fn flow_of(
        &mut self,
        head: &[u8],
        frame: &[u8],
        bytes: usize,
        first: Option<&Learning>,
    ) -> Option<Option<usize>> {
        if frame.is_empty() {
            return None;
        }
        let (station, thread) = match self.kind {
            Flows::None => return Some(None),
            Flows::One => (0, 0),
            Flows::Vdif { .. } => {
                let header = Header::read(frame).ok()?;
                (header.station(), header.thread())
            }
        };
        let same = |flow: &Flow| (flow.station, flow.thread) == (station, thread);
        if let Some(number) = self.flows.iter().position(same) {
            return Some(Some(number));
        }
        if self.flows.len() >= MOST_FLOWS {
            return None;
        }
        // A thread heard of for the first time: only a good frame may open a flow.
        let mut count = self.count_of(station, thread);
        let Reading::Frame { .. } = count.read(head, frame, bytes) else { return None };
        let strip = self.shape.stripped_bytes as usize;
        let index = first.and_then(|first| first.earliest(&mut count, strip)).or_else(|| {
            count.learn(head, frame);
            match count.read(head, frame, bytes) {
                Reading::Frame { index, .. } => Some(index),
                _ => None,
            }
        })?;
        let window = Window::new(FLOW_PAGE, 2, index);
        self.flows.push(Flow::new(station, thread, count, window));
        Some(Some(self.flows.len() - 1))
    }

    /// How the frames of a thread are counted.
    fn count_of(&self, station: u16, thread: u16) -> Count {
        match self.kind {
            Flows::Vdif { frames_per_second: rate, packet_number } => {
                let frame_bytes = self.shape.geometry.frame_bytes as usize;
                let strip = self.shape.stripped_bytes as usize;
                let count = Count::by_time(station, vec![thread], frame_bytes, rate);
                count.behind(strip).beside(packet_number)
            }
            Flows::One | Flows::None => self.pattern.clone(),
        }
    }

    fn take_counted(
        &mut self,
        number: usize,
        index: i64,
        invalid: bool,
        head: &[u8],
        frame: &[u8],
        lent: &mut Lent<'_>,
    ) {
        let room = self.make_room(frame.len(), lent);
        let flow = &mut self.flows[number];
        let arrival = match room {
            true => flow.window.arrive(index, || Some(())),
            false => flow.window.arrive_without_memory(index),
        };
        if arrival == Arrival::Far && !invalid {
            self.hear_from_afar(number, index, [head, frame].concat(), lent);
            return;
        }
        // Pages of a flow hold no memory; they are only counted.
        while flow.window.take_closed().is_some() {}
        match arrival {
            Arrival::Placed { .. } if room => {
                flow.count.learn(head, frame);
                flow.remember(index, frame);
                let found = flow.count.found();
                self.newest().second_count.add(found);
                let mark = Mark { flow: number, index, time: None };
                self.append(frame, invalid, Some(mark), lent.now);
                self.look_at_the_clock(number, frame, lent.now);
                self.near(number, lent);
            }
            Arrival::Duplicate => {
                let same = flow.is_recorded(index, frame);
                self.newest().differing += u64::from(!same);
                self.near(number, lent);
            }
            Arrival::Placed { .. } | Arrival::NoBlock | Arrival::Late => self.near(number, lent),
            Arrival::BeforeScan if self.came_after_cut(number, index) => {}
            Arrival::Damaged | Arrival::BeforeScan | Arrival::Far => self.newest().astray += 1,
        }
    }

    /// Compares the time in a frame with the host's clock. All threads of a stream have one clock.
    fn look_at_the_clock(&mut self, number: usize, frame: &[u8], now: Tai) {
        let part = self.parts.back_mut().expect("there is a newest part");
        if part.watch.wants(now)
            && let Some(stamp) = self.flows[number].count.stamp(frame)
        {
            part.watch.look(stamp, now);
            self.gauge.tell_wall(&part.watch);
        }
    }

    /// Books a frame that was overtaken where the last scan was cut off.
    fn came_after_cut(&mut self, number: usize, index: i64) -> bool {
        let Flow { station, thread, .. } = self.flows[number];
        came_after_cut(&mut self.parts, station, thread, index)
    }

    /// A frame near the flow's window came, so the far ones before it were not the flow.
    fn near(&mut self, number: usize, lent: &mut Lent<'_>) {
        self.give_up_far(number, lent);
        self.seen(number, lent.now);
    }

    /// Takes note that a frame of a flow was taken now.
    fn seen(&mut self, number: usize, now: Tai) {
        self.newest().seen(now);
        let seen = &mut self.flows[number].seen;
        *seen = Some((seen.map_or(now, |(first, _)| first), now));
    }

    /// Believes none of a flow's far frames. Those that its window has come near meanwhile are taken.
    fn give_up_far(&mut self, number: usize, lent: &mut Lent<'_>) {
        for (index, datagram) in self.flows[number].far.give_up() {
            let window = &mut self.flows[number].window;
            if !window.is_far(index) {
                self.take(&datagram, lent);
            } else if window.give_up(index) {
                self.newest().differing += 1;
            } else {
                self.newest().astray += 1;
            }
        }
    }

    /// A far-off frame: believed once enough in a row agree.
    fn hear_from_afar(
        &mut self,
        number: usize,
        index: i64,
        datagram: Vec<u8>,
        lent: &mut Lent<'_>,
    ) {
        if !self.flows[number].far.agrees(index, u64::from(4 * FLOW_PAGE)) {
            self.give_up_far(number, lent);
        }
        let flow = &mut self.flows[number];
        flow.far.hear(index, datagram, lent.now);
        let belief = flow.far.belief(flow.window.next(), LONGEST_GAP, lent.now);
        if let Some(belief) = belief {
            self.follow(number, belief, lent);
        }
    }

    /// Moves a flow's window to where its far-off frames are, and takes them.
    fn follow(&mut self, number: usize, belief: Belief, lent: &mut Lent<'_>) {
        if let Belief::Anew(_) = belief {
            self.fix_times(number);
        }
        let flow = &mut self.flows[number];
        let far = flow.far.take();
        match belief {
            Belief::Ahead(first) => flow.window.jump_to(first),
            Belief::Anew(first) => {
                flow.count.rebase(first, flow.window.next());
                self.newest().restarts += 1;
            }
        }
        far.iter().for_each(|datagram| self.take(datagram, lent));
    }

    /// Fixes the times of a flow's marks, because its count starts anew.
    fn fix_times(&mut self, number: usize) {
        let mut of_flow = self.flows[number].ends.take();
        let ends = self.ends.iter_mut().chain(&mut of_flow);
        let ends = ends.flat_map(|(first, last)| [first, last]);
        for mark in self.mark.iter_mut().chain(ends).filter(|mark| mark.flow == number) {
            mark.time = mark.time(&self.flows);
        }
        self.flows[number].ends = of_flow;
    }

    /// Whether a frame of so many bytes finds memory.
    fn make_room(&mut self, bytes: usize, lent: &mut Lent<'_>) -> bool {
        if self.block.is_none() {
            self.block = lent.pool.take();
        }
        let limit = self.shape.geometry.block_bytes as usize;
        match &self.block {
            None => false,
            // A frame that straddles needs the next block too.
            Some(_) if self.used + bytes > limit => lent.pool.free() > 0,
            Some(block) => self.used + bytes <= block.len(),
        }
    }

    fn append(&mut self, frame: &[u8], invalid: bool, mark: Option<Mark>, now: Tai) {
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

    /// Hands on the block once it is full.
    fn publish_full(&mut self, lent: &mut Lent<'_>) {
        let limit = self.shape.geometry.block_bytes as usize;
        if self.used < limit {
            return;
        }
        let rest = self.used - limit;
        let mut next = None;
        if rest > 0 {
            let mut block =
                lent.pool.take().expect("a straddling frame was taken with a block free");
            let full = self.block.as_ref().expect("it is full");
            block[..rest].copy_from_slice(&full[limit..limit + rest]);
            next = Some(block);
        }
        self.publish(limit, lent);
        (self.block, self.used) = (next, rest);
    }

    fn publish(&mut self, bytes: usize, lent: &mut Lent<'_>) {
        let Some(block) = self.block.take() else { return };
        // Of a block in which the first second ended, the time is known by now.
        let time = self.mark.take().and_then(|mark| mark.time(&self.flows));
        let part = self.parts.back_mut().expect("there is a newest part");
        let filled = Filled {
            block,
            track: part.course.track().clone(),
            sequence: part.course.take_sequence(),
            chunk: 0,
            offset: 0,
            bytes: bytes as u32,
            frames: self.frames,
            present: self.frames,
            invalid: self.invalid,
            first: self.first,
            time,
            seen: self.came.take().unwrap_or(lent.now),
            gaps: std::mem::take(&mut part.pending),
            lengths: std::mem::take(&mut self.lengths),
            crc: None,
        };
        part.invalid += u64::from(self.invalid);
        (self.frames, self.invalid, self.used) = (0, 0, 0);
        self.first = self.arrived as i64;
        if let Some(lost) = lent.dealer.deal(&mut part.course, filled) {
            lent.pool.put(part.lose(lost));
        }
    }

    /// Has kept what is in the block that is being filled, once that is old. What has come is not moved any more.
    pub fn keep_tail(&mut self, lent: &mut Lent<'_>) {
        let (Some(block), Some(came)) = (&self.block, self.came) else { return };
        let part = self.parts.back_mut().expect("there is a newest part");
        if self.frames == 0 || part.sums.is_some() {
            return;
        }
        if !lent.dealer.wants_tail(&mut part.course, came, lent.now) {
            return;
        }
        let bytes = self.used.min(self.shape.geometry.block_bytes as usize) as u32;
        let piece = Piece {
            first: self.first,
            bytes,
            frames: self.frames,
            present: self.frames,
            invalid: self.invalid,
            time: self.mark.and_then(|mark| mark.time(&self.flows)),
            seen: came,
            gaps: part.pending.clone(),
            lengths: Vec::new(),
        };
        let lengths = &self.lengths;
        let mut copy = |_, range: Range<u32>| {
            (range.start, block[range.start as usize..range.end as usize].to_vec())
        };
        let mut describe = || vec![Piece { lengths: lengths.clone(), ..piece.clone() }];
        let open = [(self.first, bytes)];
        lent.dealer.keep_tail(&mut part.course, lent.now, &open, &mut copy, &mut describe);
    }

    /// The part that new frames belong to.
    pub fn newest(&mut self) -> &mut Part {
        self.parts.back_mut().expect("there is a newest part")
    }

    /// Ends the scan here and begins the next.
    pub fn cut(&mut self, opening: Arc<Opening>, lent: &mut Lent<'_>) {
        self.end(lent);
        self.cut_at = Some(lent.now);
        self.parts.push_back(Part::new(opening, &self.shape));
    }

    /// Frames that were lost at boundaries between seconds and noticed since the last scan.
    fn newly_corrected(&mut self) -> u64 {
        let all: u64 = self.flows.iter().map(|flow| flow.count.correction()).sum();
        // A rate that is lowered again takes back what another scan was told of: nothing is told twice.
        let new = all.saturating_sub(self.corrected);
        self.corrected += new;
        new
    }

    /// Ends the scan: hands on what is held and closes the books.
    pub fn end(&mut self, lent: &mut Lent<'_>) {
        self.cross_border(true, lent);
        self.cut_at = None;
        for number in 0..self.flows.len() {
            let flow = &mut self.flows[number];
            let likely = flow.far.likely(flow.window.next(), LONGEST_GAP, 2);
            if let Some(ahead @ Belief::Ahead(_)) = likely {
                self.follow(number, ahead, lent);
                self.cross_border(true, lent);
            }
            self.give_up_far(number, lent);
        }
        if self.used > 0 {
            self.publish(self.used, lent);
        }
        if let Some(block) = self.block.take() {
            lent.pool.put(block);
        }
        let time = |mark: Mark| mark.time(&self.flows);
        let times = self.ends.take().map(|(first, last)| (time(first), time(last)));
        let mut sums = Sums {
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
            // A few frames of a thread may have been there by mistake: nobody waits for more of them in the next scan.
            if ends.is_some() || flow.recorded >= AGREE {
                sums.flows.push(FlowSums { station, thread, finished, ends });
            }
        }
        self.arrived = 0;
        self.first = 0;
        self.newest().sums = Some(sums);
    }

    /// The first and the last frame of a flow in the scan that ends, as the recording has them.
    fn take_ends(&mut self, number: usize) -> Option<(Edge, Edge)> {
        let ends = self.flows[number].ends.take();
        let (first, last) = self.flows[number].seen.take()?;
        let edge = |mark: Option<Mark>, seen| Edge {
            index: mark.map_or(0, |mark| mark.index),
            time: mark.and_then(|mark| mark.time(&self.flows)),
            seen,
        };
        Some((edge(ends.map(|it| it.0), first), edge(ends.map(|it| it.1), last)))
    }

    /// The part that a track belongs to.
    pub fn part_mut(&mut self, scan: uuid::Uuid) -> Option<&mut Part> {
        self.parts.iter_mut().find(|part| part.opening.uuid == scan)
    }

    /// Takes the oldest part if it is complete.
    ///
    /// For a moment after a cut its books stay here: frames that were overtaken just there still come.
    pub fn take_complete(&mut self, now: Tai) -> Option<(Part, CountedBy)> {
        if self.cut_at.is_some_and(|at| now.since(at) < GRACE_NS) {
            return None;
        }
        if !self.parts.front()?.complete() {
            return None;
        }
        let counted_by = match self.kind {
            Flows::None => CountedBy::Nothing,
            Flows::Vdif { .. } => CountedBy::FrameTime,
            Flows::One => self.pattern.counted_by(),
        };
        Some((self.parts.pop_front()?, counted_by))
    }

    /// Whether every part has been taken.
    pub fn is_done(&self) -> bool {
        self.parts.is_empty()
    }

    /// What is wrong with the rate of its frames, once.
    pub fn complaint(&mut self) -> Option<String> {
        let mut counts = self.flows.iter().map(|flow| &flow.count);
        let refuted = counts.clone().find(|count| count.refuted().is_some()).or(counts.next());
        self.doubt.say(&self.shape, refuted?, self.parts.back()?)
    }

    /// Brings the counters for screens up to date.
    pub fn tell(&self, pool: &Pool) {
        let mut terms = fullbore_core::account::Terms::default();
        for flow in &self.flows {
            terms.add(&flow.window.so_far());
        }
        terms.written += self.uncounted;
        terms.overrun += self.overrun;
        terms.damaged += self.parts.back().map_or(0, |part| part.beyond);
        let foreign = self.parts.back().map_or(0, |part| part.foreign);
        self.gauge.tell(&terms, self.bytes, foreign, pool);
    }
}
