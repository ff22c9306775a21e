//! A stream as its blocks: the place and time of each frame, and the missing blocks.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use fullbore_core::account::Account;
use fullbore_core::index::Block;
use fullbore_core::layout::{ALIGNMENT, Geometry};
use fullbore_core::manifest::{self, Fill, Format};
use fullbore_formats::framed::FrameCodec;
use fullbore_time::{Tai, frame_ns};

use super::clock::{BlockClock, Clock};
use crate::diagnostics::{Diagnostic, DiagnosticKind};
use crate::gaps::Gaps;
use crate::read::{BlockExtent, Fault};
use crate::redundancy::{InStripe, Stripe};

/// One stream of a scan.
#[derive(Clone, Debug)]
pub struct StoredStream {
    /// The place in the manifest.
    pub number: usize,
    /// The name.
    pub name: String,
    /// The format of its frames.
    pub format: Format,
    /// Reads its frames, if they carry their own time.
    pub codec: Option<FrameCodec>,
    /// The fill in the place of absent frames.
    pub fill: Fill,
    /// The block geometry; `None` if no frame ever arrived.
    pub geometry: Option<Geometry>,
    /// All blocks in any index, in order, each once.
    pub blocks: Vec<BlockLocation>,
    /// The gaps of all indexes, and of the account if an index is not whole.
    pub gaps: Gaps,
    /// The stored account, if any copy can be read.
    pub account: Option<Account>,
    /// Recorded blocks that are in no index, by the position of the block that follows them.
    pub absent: Vec<Absent>,
    /// Runs of blocks that `recover` found without a record: first sequence, count.
    pub found: Vec<(u64, u64)>,
    /// True if every index exists and is whole, and every member is given.
    pub complete: bool,
    /// The clock of its blocks, computed at first use.
    pub(super) clock: OnceLock<Clock>,
}

/// A block and its location.
#[derive(Clone, Debug)]
pub struct BlockLocation {
    /// The index record.
    pub block: Block,
    /// The index of the inventory's holding.
    pub holding: usize,
    /// The chunk file.
    pub path: Arc<PathBuf>,
    /// The device of the file.
    pub device: u64,
    /// The presence of its bytes in the file.
    pub presence: Presence,
    /// The position of its frame lengths in the index.
    pub lengths: Option<(u64, u32)>,
    /// The stripe metadata file that lists the block, if its index does not.
    pub records: Option<Arc<PathBuf>>,
    /// The stripe that it can be restored from.
    pub stripe: Option<InStripe>,
}

/// The presence of a block's bytes, judged by the name and size of its chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// All bytes exist.
    Whole,
    /// The chunk ends before the end of the block.
    Truncated,
    /// The chunk is missing.
    Missing,
}

/// Recorded blocks that are in no index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absent {
    /// The position of the block that follows them.
    pub position: usize,
    /// Sequence of the first block.
    pub first: u64,
    /// The number of blocks.
    pub count: u64,
    /// The frames of these blocks, if known.
    pub frames: Option<Range<i64>>,
}

impl StoredStream {
    /// True if it is bytes without frames.
    pub fn is_of_bytes(&self) -> bool {
        let bytes = self.geometry.is_some_and(|geometry| geometry.frame_bytes == 1);
        bytes && self.format == Format::Raw
    }

    /// Recorded blocks: those in any index, and those in none.
    pub fn recorded_blocks(&self) -> u64 {
        self.blocks.len() as u64 + self.absent.iter().map(|it| it.count).sum::<u64>()
    }

    /// Recorded blocks that no index or no file has, and that no stripe restores.
    pub fn missing_blocks(&self) -> u64 {
        let gone = |it: &&BlockLocation| it.presence != Presence::Whole && it.stripe.is_none();
        let gone = self.blocks.iter().filter(gone).count() as u64;
        gone + self.absent.iter().map(|it| it.count).sum::<u64>()
    }

    /// Returns a stream without any data yet.
    pub(crate) fn beginning(number: usize, told: &manifest::Stream, armed: Tai) -> Self {
        Self {
            number,
            name: told.name.to_string(),
            format: told.format.clone(),
            codec: told.format.codec(armed),
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

    /// Takes the description of the stream from the manifest.
    pub(crate) fn describe(&mut self, told: &manifest::Stream, armed: Tai) {
        self.format = told.format.clone();
        self.codec = told.format.codec(armed);
        self.fill = told.fill;
        self.geometry = told.geometry.or(self.geometry);
        self.forget_clock();
    }

    /// Drops the clock after the list of blocks has changed; the next use computes it again.
    pub(crate) fn forget_clock(&mut self) {
        self.clock = OnceLock::new();
    }

    /// Returns true if the stream is indexed: frames have places, absent ones too. In a sequential stream, an index
    /// counts arrivals.
    pub fn is_filled(&self) -> bool {
        self.fill != Fill::Omit
    }

    /// Returns the first and the last index by the account, if indices are places.
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
        self.blocks.iter().map(|location| u64::from(location.block.bytes)).sum()
    }

    /// The maximum size of a block.
    pub fn block_bytes(&self) -> usize {
        self.geometry.map_or(ALIGNMENT as usize, |geometry| geometry.block_bytes as usize)
    }

    /// Returns the stripes of its blocks, each once.
    pub fn stripes(&self) -> Vec<Arc<Stripe>> {
        let mut all: Vec<Arc<Stripe>> =
            self.blocks.iter().filter_map(|it| Some(it.stripe.as_ref()?.stripe.clone())).collect();
        all.sort_by_key(|stripe| stripe.number);
        all.dedup_by_key(|stripe| stripe.number);
        all
    }

    /// Returns the frames of a block, for streams whose frames have one length.
    pub fn frames<'a>(&'a self, block: &Block, bytes: &'a [u8]) -> Frames<'a> {
        let frame_bytes = self.geometry.map_or(0, |geometry| geometry.frame_bytes) as usize;
        let frames = bytes.len().checked_div(frame_bytes).unwrap_or(0);
        let next = block.first;
        Frames { stream: self, next, bytes, frame_bytes: frame_bytes.max(1), frames }
    }

    /// Frames of the stream per second, all threads together, if the format has a rate.
    pub fn frames_per_second(&self) -> Option<u64> {
        let (rate, threads) = self.rate_of_thread()?;
        Some(rate.saturating_mul(threads.unsigned_abs()))
    }

    /// Returns the start time of a block, by the clock of the stream: its frames' own, else the host's.
    pub fn time_of_block(&self, block: &Block) -> Tai {
        let known = self.position(block).and_then(|at| self.clock().starts.get(at).copied());
        known.or(block.time).unwrap_or(block.seen)
    }

    /// Returns the clock of the frames of a block.
    pub fn clock_of(&self, block: &Block) -> BlockClock {
        let start = self.time_of_block(block);
        // In sequential streams, frame numbers count arrivals of all threads.
        let rate = self.frames_per_second().filter(|_| self.is_filled() && self.goes_by_frames());
        if let Some(rate) = rate {
            return BlockClock::rated(start, block.first, rate);
        }
        let clock = self.clock();
        let next = self.position(block).map_or(usize::MAX, |at| at.saturating_add(1));
        match (self.blocks.get(next), clock.starts.get(next)) {
            (Some(location), Some(begins)) => {
                let frames = location.block.first.saturating_sub(block.first);
                BlockClock::even(start, block.first, begins.since(start), frames)
            }
            _ => {
                let steps = i64::from(block.frames) - 1;
                BlockClock::even(start, block.first, clock.end.since(start), steps)
            }
        }
    }

    /// Returns the approximate time of a frame, by the same clock.
    pub fn time_near(&self, index: i64) -> Option<Tai> {
        let last = self.blocks.last()?;
        let time = self.clock_of(&self.blocks[self.position_of(index)?].block).time(index);
        // An index behind the last frame is later than that frame, even if no rate is known.
        let behind = index >= self.end_of(&last.block);
        Some(if behind { time.max(self.clock().end.plus_ns(1)) } else { time })
    }

    /// Returns the next frame to arrive at an instant of the host's clock, and its first byte as `cat` prints it.
    /// Within a block, frames count as arriving evenly. For a scan that is still being recorded (`live`), nothing is
    /// known behind the start of its last block. Without the index of a member, nothing is known behind the first of
    /// its blocks.
    pub fn received_by(&self, time: Tai, live: bool) -> Option<(i64, u64)> {
        let first = self.blocks.first()?;
        let Some(at) = self.blocks.iter().rposition(|location| location.block.seen <= time) else {
            return self.is_whole_to(0).then_some((first.block.first, 0));
        };
        if !self.is_whole_to(at + 1) {
            return None;
        }
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

    /// True if no block up to this position can be in an index that is absent or damaged.
    fn is_whole_to(&self, at: usize) -> bool {
        let in_order =
            |(number, location): (usize, &BlockLocation)| location.block.sequence == number as u64;
        let first = self.blocks.get(..=at);
        self.complete || first.is_some_and(|blocks| blocks.iter().enumerate().all(in_order))
    }

    /// Returns the arrival of its last frame; if unknown, the start of the last block.
    fn last_seen(&self) -> Tai {
        let told = self.account.as_ref().and_then(|account| account.last);
        let last = self.blocks.last().map_or(Tai(0), |location| location.block.seen);
        told.map_or(last, |edge| edge.seen.max(last))
    }

    /// Returns the block that contains a byte of the stream, and the offset of the byte in it.
    fn block_at_byte(&self, byte: u64) -> Option<(usize, u64)> {
        let mut before = 0;
        for (at, location) in self.blocks.iter().enumerate() {
            let end = before + u64::from(location.block.bytes);
            if byte < end {
                return self.is_whole_to(at).then_some((at, byte - before));
            }
            before = end;
        }
        None
    }

    /// Returns the frame that contains a byte of the stream; approximate if lengths vary.
    pub fn frame_at_byte(&self, byte: u64) -> Option<i64> {
        let (at, into) = self.block_at_byte(byte)?;
        let block = &self.blocks[at].block;
        let frames = match self.geometry.map_or(0, |geometry| geometry.frame_bytes) {
            0 => into * u64::from(block.frames) / u64::from(block.bytes.max(1)),
            bytes => into / u64::from(bytes),
        };
        Some(block.first.saturating_add_unsigned(frames))
    }

    /// Returns the arrival time of a byte of the stream, by the host's clock, consistent with [`Self::received_by`].
    pub fn received_when(&self, byte: u64) -> Option<Tai> {
        let (at, into) = self.block_at_byte(byte).filter(|(at, _)| self.is_whole_to(at + 1))?;
        let block = &self.blocks[at].block;
        let end = self.blocks.get(at + 1).map_or_else(|| self.last_seen(), |it| it.block.seen);
        let ns = i128::from(end.since(block.seen).max(0)) * i128::from(into);
        // Rounded up, so that the data received by then includes the byte.
        let ns = (ns + i128::from(block.bytes) - 1) / i128::from(block.bytes.max(1));
        Some(block.seen.plus_ns(ns as i64))
    }

    /// Returns true if its first and last frame differ in time. If not, time cannot select frames.
    pub fn is_timed(&self) -> bool {
        let frames =
            || self.blocks.iter().map(|location| u64::from(location.block.frames)).sum::<u64>();
        let clock = self.clock();
        clock.starts.first().is_some_and(|first| clock.end > *first || frames() == 1)
    }

    /// Returns true if the clock is its frames' own time.
    pub fn goes_by_frames(&self) -> bool {
        self.clock().by_frames
    }

    /// Returns the offset of the frames' clock against the host's.
    pub(super) fn ahead_ns(&self) -> Option<i64> {
        let mut blocks = self.blocks.iter().map(|location| &location.block);
        blocks.find_map(|block| Some(block.time?.since(block.seen)))
    }

    fn clock(&self) -> &Clock {
        self.clock.get_or_init(|| Clock::of(self))
    }

    /// Returns the position of a block among the known ones.
    fn position(&self, block: &Block) -> Option<usize> {
        self.blocks.binary_search_by_key(&block.sequence, |location| location.block.sequence).ok()
    }

    /// Returns the nearest block to a frame that has a time: until the rate was learnt, none has.
    fn timed_near(&self, index: i64) -> Option<(&Block, Tai)> {
        let at = self.position_of(index)?;
        let timed = |location: &'_ BlockLocation| location.block.time.is_some();
        let location = match self.blocks[at..].iter().find(|location| timed(location)) {
            Some(location) => location,
            None => self.blocks[..at].iter().rev().find(|location| timed(location))?,
        };
        Some((&location.block, location.block.time?))
    }

    /// Returns the time of a frame, if it follows from the frame's place. (If not, the frame itself may carry a time.)
    pub fn time_of(&self, index: i64) -> Option<Tai> {
        if !self.is_filled() {
            return None;
        }
        let (block, time) = self.timed_near(index)?;
        self.time_by_place(block, time, index)
    }

    /// Returns the time of a frame relative to a block of known time, if frames have places and a rate.
    pub(super) fn time_by_place(&self, block: &Block, time: Tai, index: i64) -> Option<Tai> {
        let (rate, threads) = self.rate_of_thread().filter(|_| self.is_filled())?;
        let slots = index.div_euclid(threads).saturating_sub(block.first.div_euclid(threads));
        let ns = frame_ns(slots.unsigned_abs(), rate);
        Some(time.plus_ns(if slots < 0 { -ns } else { ns }))
    }

    /// Returns the frames of each thread per second, and the number of threads that alternate frame by frame.
    fn rate_of_thread(&self) -> Option<(u64, i64)> {
        match &self.format {
            Format::Frames { frames_per_second: Some(rate), threads, .. } if *rate > 0 => {
                Some((*rate, threads.len().max(1) as i64))
            }
            Format::Frames { .. } | Format::Panda { .. } | Format::Packets { .. } | Format::Raw => {
                None
            }
        }
    }

    /// Returns the index of the first frame at or after an instant, as exactly as the frame times are known.
    pub fn index_at(&self, time: Tai) -> Option<i64> {
        let clock = self.clock();
        let after = clock.starts.partition_point(|start| *start < time);
        if clock.starts.get(after) == Some(&time) || after == 0 {
            return self.blocks.get(after).map(|location| location.block.first);
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
                let behind = self.blocks.get(after).map(|location| location.block.first);
                let behind = behind.unwrap_or_else(|| self.end_of(block));
                Some(self.clock_of(block).index_at(time).min(behind))
            }
        }
    }

    /// Returns the position of the block that holds a frame: the last one that begins at or before it.
    pub fn position_of(&self, index: i64) -> Option<usize> {
        if self.blocks.is_empty() {
            return None;
        }
        let after = self.blocks.partition_point(|location| location.block.first <= index);
        Some(after.saturating_sub(1))
    }
}

impl BlockLocation {
    /// Returns the extent to read.
    pub fn extent(&self) -> BlockExtent {
        BlockExtent {
            path: self.path.clone(),
            device: self.device,
            offset: self.block.offset,
            bytes: self.block.bytes,
            crc: self.block.crc,
            stripe: self.stripe.clone(),
        }
    }

    /// Returns true if reading it may succeed: its file holds it, or parity may restore it.
    pub fn is_readable(&self) -> bool {
        self.presence == Presence::Whole || self.stripe.is_some()
    }

    /// Makes a diagnostic about this block.
    pub fn finding(
        &self,
        stream: &StoredStream,
        root: Option<&Path>,
        what: DiagnosticKind,
    ) -> Diagnostic {
        Diagnostic {
            stream: Some(stream.name.clone()),
            member: root.map(Path::to_owned),
            file: Some(self.path.to_path_buf()),
            frames: Some((self.block.first..stream.end_of(&self.block)).into()),
            what,
        }
    }

    /// Converts a read fault into a diagnostic.
    pub fn fault(&self, fault: &Fault) -> DiagnosticKind {
        let (first, count, offset) = (self.block.sequence, 1, self.block.offset);
        match fault {
            Fault::Checksum { .. } => DiagnosticKind::BlocksDamaged { first, count, offset },
            Fault::Short { got } => {
                let why = format!("the file ends {got} bytes into it");
                DiagnosticKind::BlocksUnreadable { first, count, offset, why }
            }
            Fault::System(why) => {
                DiagnosticKind::BlocksUnreadable { first, count, offset, why: why.clone() }
            }
        }
    }
}

impl Absent {
    /// Makes the diagnostic about these blocks.
    pub fn finding(&self, stream: &StoredStream) -> Diagnostic {
        Diagnostic {
            stream: Some(stream.name.clone()),
            member: None,
            file: None,
            frames: self.frames.clone().map(Into::into),
            what: DiagnosticKind::BlocksAbsent { first: self.first, count: self.count },
        }
    }
}

/// One frame of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The index in the stream.
    pub index: i64,
    /// True if it is fill in the place of an absent frame.
    pub fill: bool,
    /// The bytes of the frame.
    pub bytes: &'a [u8],
}

/// The frames of one block, in order.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    stream: &'a StoredStream,
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
