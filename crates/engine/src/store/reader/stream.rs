//! A stream as its blocks: which frames lie where, when each was, and what is nowhere.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use fullbore_core::account::Account;
use fullbore_core::index::Block;
use fullbore_core::layout::{ALIGNMENT, Geometry};
use fullbore_core::manifest::{self, Fill, Format};
use fullbore_core::time::{Tai, frame_ns};

use super::clock::{BlockClock, Clock};
use crate::store::finding::{Finding, What};
use crate::store::gaps::Gaps;
use crate::store::read::{Extent, Fault};
use crate::store::redundancy::{InStripe, Stripe};

/// One stream of a scan.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Its place in the manifest.
    pub number: usize,
    /// Its name.
    pub name: String,
    /// What its frames are.
    pub format: Format,
    /// What stands in the place of frames that are not there.
    pub fill: Fill,
    /// How its bytes are cut; `None` if no frame ever came.
    pub geometry: Option<Geometry>,
    /// All blocks that any index knows, in order, each once.
    pub blocks: Vec<Placed>,
    /// The gaps of all indexes; of the account as well where an index is not whole.
    pub gaps: Gaps,
    /// The stored account, if any copy can be read.
    pub account: Option<Account>,
    /// Blocks that were recorded and that no index knows, by the position they would stand before.
    pub absent: Vec<Absent>,
    /// Runs of blocks that `recover` found without a record: first sequence, count.
    pub found: Vec<(u64, u64)>,
    /// Whether every index is there, whole, and every member given.
    pub complete: bool,
    /// When its blocks were, once somebody has asked.
    pub(super) clock: OnceLock<Clock>,
}

/// A block, and where it lies.
#[derive(Clone, Debug)]
pub struct Placed {
    /// Its index record.
    pub block: Block,
    /// Which of the inventory's holdings.
    pub holding: usize,
    /// The chunk file.
    pub path: Arc<PathBuf>,
    /// The device it lies on.
    pub device: u64,
    /// Whether the file holds all of it.
    pub presence: Presence,
    /// Where its index tells the lengths of its frames.
    pub lengths: Option<(u64, u32)>,
    /// The records beside a parity chunk that tell of it, where its index does not.
    pub records: Option<Arc<PathBuf>>,
    /// What it can be made of again.
    pub stripe: Option<InStripe>,
}

/// Whether a block's bytes are there, judged by name and size of its chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// They are.
    Whole,
    /// The chunk ends before them.
    Truncated,
    /// There is no such chunk.
    Missing,
}

/// Blocks that were recorded and that no index knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absent {
    /// They would stand before the block at this position.
    pub position: usize,
    /// Sequence of the first.
    pub first: u64,
    /// How many.
    pub count: u64,
    /// Their frames, where those can be told.
    pub frames: Option<Range<i64>>,
}

impl Stream {
    /// A stream of which nothing has come yet.
    pub(in crate::store) fn beginning(number: usize, told: &manifest::Stream) -> Self {
        Self {
            number,
            name: told.name.to_string(),
            format: told.format.clone(),
            fill: told.fill,
            geometry: told.geometry,
            blocks: Vec::new(),
            gaps: Gaps::default(),
            account: None,
            absent: Vec::new(),
            found: Vec::new(),
            complete: true,
            clock: OnceLock::new(),
        }
    }

    /// Takes what has become known of it.
    pub(in crate::store) fn describe(&mut self, told: &manifest::Stream) {
        self.format = told.format.clone();
        self.fill = told.fill;
        self.geometry = told.geometry.or(self.geometry);
        self.forget_clock();
    }

    /// It has other blocks than before: when they were is found out anew.
    pub(crate) fn forget_clock(&mut self) {
        self.clock = OnceLock::new();
    }

    /// Whether frames have places, those that are not there too. Else they lie as they came, and an index
    /// counts arrivals.
    pub fn is_filled(&self) -> bool {
        self.fill != Fill::Omit
    }

    /// The first and the last index by the account, where indices are places.
    pub fn placed_edges(&self) -> Option<(i64, i64)> {
        let account = self.account.as_ref().filter(|_| self.is_filled())?;
        Some((account.first?.index, account.last?.index))
    }

    /// The index behind a block's last frame.
    pub fn end_of(&self, block: &Block) -> i64 {
        block.first.saturating_add(block.frames.into())
    }

    /// Bytes of all blocks known.
    pub fn bytes(&self) -> u64 {
        self.blocks.iter().map(|placed| u64::from(placed.block.bytes)).sum()
    }

    /// Bytes that a block can have.
    pub fn block_bytes(&self) -> usize {
        self.geometry.map_or(ALIGNMENT as usize, |geometry| geometry.block_bytes as usize)
    }

    /// The stripes that its blocks are in, each once.
    pub fn stripes(&self) -> Vec<Arc<Stripe>> {
        let mut all: Vec<Arc<Stripe>> =
            self.blocks.iter().filter_map(|it| Some(it.stripe.as_ref()?.stripe.clone())).collect();
        all.sort_by_key(|stripe| stripe.number);
        all.dedup_by_key(|stripe| stripe.number);
        all
    }

    /// The frames of a block, for streams whose frames have one length.
    pub fn frames<'a>(&'a self, block: &Block, bytes: &'a [u8]) -> Frames<'a> {
        let frame_bytes = self.geometry.map_or(0, |geometry| geometry.frame_bytes) as usize;
        let frames = bytes.len().checked_div(frame_bytes).unwrap_or(0);
        let next = block.first;
        Frames { stream: self, next, bytes, frame_bytes: frame_bytes.max(1), frames }
    }

    /// Frames of the stream per second, all threads together, where the format tells.
    pub fn frames_per_second(&self) -> Option<u64> {
        let (rate, threads) = self.rate_of_thread()?;
        Some(rate.saturating_mul(threads.unsigned_abs()))
    }

    /// When a block begins, by the one clock that the stream goes by: its frames' own, else the host's.
    pub fn time_of_block(&self, block: &Block) -> Tai {
        let known = self.position(block).and_then(|at| self.clock().starts.get(at).copied());
        known.or(block.time).unwrap_or(block.seen)
    }

    /// When the frames of a block were.
    pub fn clock_of(&self, block: &Block) -> BlockClock {
        let start = self.time_of_block(block);
        // Where frames lie as they came, their numbers count arrivals of all threads.
        let rate = self.frames_per_second().filter(|_| self.is_filled() && self.goes_by_frames());
        if let Some(rate) = rate {
            return BlockClock::rated(start, block.first, rate);
        }
        let clock = self.clock();
        let next = self.position(block).map_or(usize::MAX, |at| at.saturating_add(1));
        match (self.blocks.get(next), clock.starts.get(next)) {
            (Some(placed), Some(begins)) => {
                let frames = placed.block.first.saturating_sub(block.first);
                BlockClock::even(start, block.first, begins.since(start), frames)
            }
            _ => {
                let steps = i64::from(block.frames) - 1;
                BlockClock::even(start, block.first, clock.end.since(start), steps)
            }
        }
    }

    /// The time of a frame as near as it is known, by the same clock.
    pub fn time_near(&self, index: i64) -> Option<Tai> {
        let last = self.blocks.last()?;
        let time = self.clock_of(&self.blocks[self.position_of(index)?].block).time(index);
        // What lies behind the last frame comes after it, even if nothing tells how long.
        let behind = index >= self.end_of(&last.block);
        Some(if behind { time.max(self.clock().end.plus_ns(1)) } else { time })
    }

    /// The next frame to come at an instant of the host's clock, and its first byte as `cat` gives it: within a block
    /// frames are taken to have come evenly. Of a stream that goes on being recorded (`live`) nothing is known from its
    /// last block on.
    pub fn received_by(&self, time: Tai, live: bool) -> Option<(i64, u64)> {
        let first = self.blocks.first()?;
        let Some(at) = self.blocks.iter().rposition(|placed| placed.block.seen <= time) else {
            return Some((first.block.first, 0));
        };
        let block = &self.blocks[at].block;
        let before: u64 = self.blocks[..at].iter().map(|it| u64::from(it.block.bytes)).sum();
        let end = match self.blocks.get(at + 1) {
            Some(next) => next.block.seen,
            None if live => return None,
            None => self.last_seen(),
        };
        let (part, whole) = (time.since(block.seen), end.since(block.seen));
        let share = |of: u32| match whole > 0 && part < whole {
            true => (u128::from(of) * part.unsigned_abs() as u128 / whole as u128) as u64,
            false => u64::from(of),
        };
        let frames = share(block.frames);
        let byte = match self.geometry.map_or(0, |geometry| geometry.frame_bytes) {
            0 => share(block.bytes),
            bytes => (frames * u64::from(bytes)).min(block.bytes.into()),
        };
        Some((block.first.saturating_add_unsigned(frames), before + byte))
    }

    /// When its last frame came; if nobody has said it, when the last block began.
    fn last_seen(&self) -> Tai {
        let told = self.account.as_ref().and_then(|account| account.last);
        let last = self.blocks.last().map_or(Tai(0), |placed| placed.block.seen);
        told.map_or(last, |edge| edge.seen.max(last))
    }

    /// The block with a byte of the stream, and how far into it that lies.
    fn block_at_byte(&self, byte: u64) -> Option<(usize, u64)> {
        let mut before = 0;
        for (at, placed) in self.blocks.iter().enumerate() {
            let end = before + u64::from(placed.block.bytes);
            if byte < end {
                return Some((at, byte - before));
            }
            before = end;
        }
        None
    }

    /// The frame with a byte of the stream; with varying lengths, about that frame.
    pub fn frame_at_byte(&self, byte: u64) -> Option<i64> {
        let (at, into) = self.block_at_byte(byte)?;
        let block = &self.blocks[at].block;
        let frames = match self.geometry.map_or(0, |geometry| geometry.frame_bytes) {
            0 => into * u64::from(block.frames) / u64::from(block.bytes.max(1)),
            bytes => into / u64::from(bytes),
        };
        Some(block.first.saturating_add_unsigned(frames))
    }

    /// When a byte of the stream had come, by the host's clock, as [`Self::received_by`] tells it.
    pub fn received_when(&self, byte: u64) -> Option<Tai> {
        let (at, into) = self.block_at_byte(byte)?;
        let block = &self.blocks[at].block;
        let end = self.blocks.get(at + 1).map_or_else(|| self.last_seen(), |it| it.block.seen);
        let ns = i128::from(end.since(block.seen).max(0)) * i128::from(into);
        // Up, so that what had come by then reaches the byte.
        let ns = (ns + i128::from(block.bytes) - 1) / i128::from(block.bytes.max(1));
        Some(block.seen.plus_ns(ns as i64))
    }

    /// Whether there is any time between its first frame and its last: else one cannot be told from another by it.
    pub fn is_timed(&self) -> bool {
        let frames =
            || self.blocks.iter().map(|placed| u64::from(placed.block.frames)).sum::<u64>();
        let clock = self.clock();
        clock.starts.first().is_some_and(|first| clock.end > *first || frames() == 1)
    }

    /// Whether it goes by its frames' own time.
    pub fn goes_by_frames(&self) -> bool {
        self.clock().by_frames
    }

    /// How far the clock of its frames is ahead of the host's.
    pub(super) fn ahead_ns(&self) -> Option<i64> {
        let mut blocks = self.blocks.iter().map(|placed| &placed.block);
        blocks.find_map(|block| Some(block.time?.since(block.seen)))
    }

    fn clock(&self) -> &Clock {
        self.clock.get_or_init(|| Clock::of(self))
    }

    /// The place of a block among those that are known.
    fn position(&self, block: &Block) -> Option<usize> {
        self.blocks.binary_search_by_key(&block.sequence, |placed| placed.block.sequence).ok()
    }

    /// The block nearest to a frame that tells its time: until the rate was learnt, none does.
    fn timed_near(&self, index: i64) -> Option<(&Block, Tai)> {
        let at = self.position_of(index)?;
        let timed = |placed: &'_ Placed| placed.block.time.is_some();
        let placed = match self.blocks[at..].iter().find(|placed| timed(placed)) {
            Some(placed) => placed,
            None => self.blocks[..at].iter().rev().find(|placed| timed(placed))?,
        };
        Some((&placed.block, placed.block.time?))
    }

    /// The time of a frame, where it follows from its place. (Else the frame itself tells it, if any.)
    pub fn time_of(&self, index: i64) -> Option<Tai> {
        if !self.is_filled() {
            return None;
        }
        let (block, time) = self.timed_near(index)?;
        self.time_by_place(block, time, index)
    }

    /// The time of a frame, counted from a block whose time is known, if frames have places and a rate.
    pub(super) fn time_by_place(&self, block: &Block, time: Tai, index: i64) -> Option<Tai> {
        let (rate, threads) = self.rate_of_thread().filter(|_| self.is_filled())?;
        let slots = index.div_euclid(threads).saturating_sub(block.first.div_euclid(threads));
        let ns = frame_ns(slots.unsigned_abs(), rate);
        Some(time.plus_ns(if slots < 0 { -ns } else { ns }))
    }

    /// Frames of each thread per second, and how many threads lie frame by frame.
    fn rate_of_thread(&self) -> Option<(u64, i64)> {
        match &self.format {
            Format::Vdif { frames_per_second: Some(rate), threads, .. } if *rate > 0 => {
                Some((*rate, threads.len().max(1) as i64))
            }
            Format::Vdif { .. } | Format::Panda { .. } | Format::Raw => None,
        }
    }

    /// The index of the first frame at or after an instant, as near as the time of frames is known.
    pub fn index_at(&self, time: Tai) -> Option<i64> {
        let clock = self.clock();
        let after = clock.starts.partition_point(|start| *start < time);
        if clock.starts.get(after) == Some(&time) || after == 0 {
            return self.blocks.get(after).map(|placed| placed.block.first);
        }
        let block = &self.blocks[after - 1].block;
        match self.rate_of_thread() {
            Some((rate, threads)) if self.is_filled() && clock.by_frames => {
                let ns = time.since(clock.starts[after - 1]);
                let slots = (i128::from(ns) * i128::from(rate) + 999_999_999) / 1_000_000_000;
                let slots = i64::try_from(slots).unwrap_or(i64::MAX);
                Some(block.first.div_euclid(threads).saturating_add(slots).saturating_mul(threads))
            }
            _ if after == self.blocks.len() && time > clock.end => Some(self.end_of(block)),
            _ => {
                let behind = self.blocks.get(after).map(|placed| placed.block.first);
                let behind = behind.unwrap_or_else(|| self.end_of(block));
                Some(self.clock_of(block).index_at(time).min(behind))
            }
        }
    }

    /// The position of the block that holds a frame: the last one that begins at or before it.
    pub fn position_of(&self, index: i64) -> Option<usize> {
        if self.blocks.is_empty() {
            return None;
        }
        let after = self.blocks.partition_point(|placed| placed.block.first <= index);
        Some(after.saturating_sub(1))
    }
}

impl Placed {
    /// What is to be read.
    pub fn extent(&self) -> Extent {
        Extent {
            path: self.path.clone(),
            device: self.device,
            offset: self.block.offset,
            bytes: self.block.bytes,
            crc: self.block.crc,
            stripe: self.stripe.clone(),
        }
    }

    /// Whether it may be read: its file holds it, or parity may.
    pub fn is_readable(&self) -> bool {
        self.presence == Presence::Whole || self.stripe.is_some()
    }

    /// A finding about this block.
    pub fn finding(&self, stream: &Stream, root: Option<&Path>, what: What) -> Finding {
        Finding {
            stream: Some(stream.name.clone()),
            member: root.map(Path::to_owned),
            file: Some(self.path.to_path_buf()),
            frames: Some((self.block.first..stream.end_of(&self.block)).into()),
            what,
        }
    }

    /// What a fault of reading is, as a finding.
    pub fn fault(&self, fault: &Fault) -> What {
        let (first, count, offset) = (self.block.sequence, 1, self.block.offset);
        match fault {
            Fault::Checksum { .. } => What::BlocksDamaged { first, count, offset },
            Fault::Short { got } => {
                let why = format!("the file ends {got} bytes into it");
                What::BlocksUnreadable { first, count, offset, why }
            }
            Fault::System(why) => What::BlocksUnreadable { first, count, offset, why: why.clone() },
        }
    }
}

impl Absent {
    /// What is to be told of them.
    pub fn finding(&self, stream: &Stream) -> Finding {
        Finding {
            stream: Some(stream.name.clone()),
            member: None,
            file: None,
            frames: self.frames.clone().map(Into::into),
            what: What::BlocksAbsent { first: self.first, count: self.count },
        }
    }
}

/// One frame of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Its index in the stream.
    pub index: i64,
    /// Whether it stands in the place of a frame that is not there.
    pub fill: bool,
    /// All of it.
    pub bytes: &'a [u8],
}

/// The frames of one block, in order.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    stream: &'a Stream,
    next: i64,
    bytes: &'a [u8],
    frame_bytes: usize,
    frames: usize,
}

impl<'a> Iterator for Frames<'a> {
    type Item = Frame<'a>;

    fn next(&mut self) -> Option<Frame<'a>> {
        self.frames = self.frames.checked_sub(1)?;
        let (bytes, rest) = self.bytes.split_at(self.frame_bytes);
        self.bytes = rest;
        let index = self.next;
        self.next = index.saturating_add(1);
        let fill = self.stream.is_filled() && self.stream.gaps.contains(index);
        Some(Frame { index, fill, bytes })
    }
}
