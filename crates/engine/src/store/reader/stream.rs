//! A stream as its blocks: which frames lie where, when each was, and what is nowhere.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fullbore_core::account::Account;
use fullbore_core::index::Block;
use fullbore_core::layout::{ALIGNMENT, Geometry};
use fullbore_core::manifest::{Fill, Format};
use fullbore_core::time::{Tai, frame_ns};

use crate::store::finding::{Finding, What};
use crate::store::gaps::Gaps;
use crate::store::read::{Extent, Fault};

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

    /// When a block begins: by its frames' own time, else when it was received.
    pub fn time_of_block(&self, block: &Block) -> Tai {
        block.time.or_else(|| self.time_of(block.first)).unwrap_or(block.seen)
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
        let (rate, threads) = self.rate_of_thread()?;
        let (block, time) = self.timed_near(index)?;
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

    /// The index of the first frame at or after an instant; the first of the block that holds it where
    /// time does not follow from the place.
    pub fn index_at(&self, time: Tai) -> Option<i64> {
        let after = self.blocks.partition_point(|it| self.time_of_block(&it.block) <= time);
        let Some(block) = after.checked_sub(1).map(|at| &self.blocks[at].block) else {
            return self.blocks.first().map(|placed| placed.block.first);
        };
        let ns = time.since(self.time_of_block(block)).max(0);
        match self.rate_of_thread() {
            Some((rate, threads)) if self.is_filled() && self.time_of(block.first).is_some() => {
                let slots = (i128::from(ns) * i128::from(rate) + 999_999_999) / 1_000_000_000;
                let slots = i64::try_from(slots).unwrap_or(i64::MAX);
                let slot = block.first.div_euclid(threads).saturating_add(slots);
                let index = slot.saturating_mul(threads);
                Some(if slots == 0 { block.first } else { index })
            }
            _ if after == self.blocks.len() && time > self.end_time() => Some(self.end_of(block)),
            _ => Some(block.first),
        }
    }

    /// The time of the last frame, or when the last block was received.
    fn end_time(&self) -> Tai {
        let told = self.account.as_ref().and_then(|account| account.last);
        let seen = self.blocks.last().map_or(Tai(i64::MIN), |placed| placed.block.seen);
        told.map_or(seen, |edge| edge.time.unwrap_or(edge.seen))
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
        }
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
