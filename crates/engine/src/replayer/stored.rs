//! A stream of a stored scan, played block by block as it is read and checked.

use std::collections::VecDeque;
use std::io;

use fullbore_core::manifest::{Fill, Format, State};
use fullbore_core::time::{Tai, frame_ns};

use super::{Frame, FrameSource, SourceError};
use crate::store::read::{Settings, StartError};
use crate::store::reader::{Delivered, Item, Placed, Scan, Stream, StreamReader};

/// What could not be read is told in so many lines, and counted beyond.
const MOST_LOSSES: usize = 1000;

/// A stream that cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum StoredError {
    /// The reader could not start.
    #[error("starting to read stream {stream}")]
    Start {
        /// The stream.
        stream: String,
        /// What went wrong.
        source: StartError,
    },
    /// The lengths of its frames could not be read.
    #[error("stream {stream}: reading the lengths of the frames of block {block}")]
    Lengths {
        /// The stream.
        stream: String,
        /// The block's number in the stream.
        block: u64,
        /// What the system said.
        source: io::Error,
    },
}

/// The frames of a stored stream. Blocks that fail their checksum are not played.
pub struct StoredFrames<'a> {
    scan: &'a Scan,
    stream: &'a Stream,
    settings: Settings,
    /// Positions of the blocks to play.
    first: usize,
    end: usize,
    reader: StreamReader<'a>,
    /// The block that is loaded; with varying lengths its bytes are in `joined` instead.
    block: Option<Delivered<'a>>,
    joined: Joined,
    frames: Vec<Told>,
    losses: Vec<String>,
}

/// Where a frame lies in the run, and what is known of it.
#[derive(Clone, Copy, Debug)]
struct Told {
    start: usize,
    end: usize,
    time: Option<Tai>,
    fill: bool,
}

/// Frames of varying length straddle blocks, so what the last block left stands before the next. All
/// places here count the stream's bytes from its first block on, whether they could be read or not.
#[derive(Debug, Default)]
struct Joined {
    bytes: Vec<u8>,
    /// Where `bytes` begin.
    start: u64,
    /// Where the next block begins.
    end: u64,
    /// The number of the next block.
    sequence: u64,
    /// Where the next frame begins.
    frame: u64,
    /// Lengths of frames that have begun and were not listed yet.
    lengths: VecDeque<u16>,
}

impl<'a> StoredFrames<'a> {
    /// Plays the blocks that hold what was recorded between two times. Blocks are read whole, so
    /// frames just outside come too.
    pub fn open(
        scan: &'a Scan,
        stream: &'a Stream,
        from: Option<Tai>,
        to: Option<Tai>,
        settings: Settings,
    ) -> Result<Self, StoredError> {
        let position = |time: Tai| stream.position_of(stream.index_at(time)?);
        let varying = stream.geometry.is_some_and(|geometry| geometry.frame_bytes == 0);
        // Without the blocks before it, it is not known where a block's first whole frame begins.
        let first = from.filter(|_| !varying).and_then(position).unwrap_or(0);
        let end = to.and_then(position).map_or(stream.blocks.len(), |last| last + 1);
        Ok(StoredFrames {
            scan,
            stream,
            settings,
            first,
            end,
            reader: start(stream, first, end, settings)?,
            block: None,
            joined: Joined::default(),
            frames: Vec::new(),
            losses: Vec::new(),
        })
    }

    fn lost(&mut self, what: String) {
        if self.losses.len() < MOST_LOSSES {
            self.losses.push(what);
        }
    }

    /// Lists the frames of a block whose frames have one length.
    fn list_fixed(&mut self, block: &Delivered<'a>) {
        let clock = BlockClock::of(self.scan, self.stream, block.placed);
        let mut start = 0;
        for frame in self.stream.frames(&block.placed.block, block.bytes()) {
            let end = start + frame.bytes.len();
            let time = clock.time(frame.index, self.frames.len());
            self.frames.push(Told { start, end, time, fill: frame.fill });
            start = end;
        }
    }

    /// Joins a block to what the last one left, and lists the frames that are whole.
    fn join(&mut self, block: &Delivered<'a>) -> Result<(), StoredError> {
        let placed = block.placed;
        if self.joined.lengths.is_empty() && self.joined.end == 0 {
            self.joined.sequence = self.stream.blocks.first().map_or(0, |it| it.block.sequence);
        }
        self.pass_over_lost(placed)?;
        let lengths = self.lengths(placed)?;
        let joined = &mut self.joined;
        let listed = joined.frame.saturating_sub(joined.start) as usize;
        joined.bytes.drain(..listed.min(joined.bytes.len()));
        joined.start = joined.end - joined.bytes.len() as u64;
        joined.bytes.extend_from_slice(block.bytes());
        joined.end += block.bytes().len() as u64;
        joined.sequence = placed.block.sequence + 1;
        joined.lengths.extend(lengths);
        let clock = BlockClock::of(self.scan, self.stream, placed);
        while let Some(&length) = joined.lengths.front()
            && joined.frame + u64::from(length) <= joined.end
        {
            joined.lengths.pop_front();
            let start = joined.frame;
            joined.frame += u64::from(length);
            // A frame that began in a block that could not be read is lost with it.
            if let Some(start) = start.checked_sub(joined.start) {
                let (start, end) = (start as usize, start as usize + usize::from(length));
                let time = clock.time(placed.block.first, self.frames.len());
                self.frames.push(Told { start, end, time, fill: false });
            }
        }
        Ok(())
    }

    /// Blocks that could not be read still say how long their frames were.
    fn pass_over_lost(&mut self, placed: &Placed) -> Result<(), StoredError> {
        let stream = self.stream;
        while self.joined.sequence < placed.block.sequence {
            let sequence = self.joined.sequence;
            if let Ok(at) = stream.blocks.binary_search_by_key(&sequence, |it| it.block.sequence) {
                let lost = &stream.blocks[at];
                let lengths = self.lengths(lost)?;
                self.joined.lengths.extend(lengths);
                self.joined.end += u64::from(lost.block.bytes);
            } else {
                self.joined.lengths.clear();
            }
            self.joined.bytes.clear();
            self.joined.start = self.joined.end;
            self.joined.sequence += 1;
        }
        Ok(())
    }

    fn lengths(&self, placed: &Placed) -> Result<Vec<u16>, StoredError> {
        self.scan.lengths(placed).map_err(|source| StoredError::Lengths {
            stream: self.stream.name.clone(),
            block: placed.block.sequence,
            source,
        })
    }
}

/// When the frames of a block are due.
enum BlockClock {
    /// By frame time: so many frames a second from the block's first.
    Rated { start: Tai, first: i64, rate: u64 },
    /// Evenly from the time of the block on.
    Even { start: Tai, ns_per_frame: i64 },
    /// Nothing tells.
    Unknown,
}

impl BlockClock {
    fn of(scan: &Scan, stream: &Stream, placed: &Placed) -> Self {
        let block = &placed.block;
        let start = stream.time_of_block(block);
        // Where frames lie as they came, their numbers count arrivals of all threads.
        let rate = stream.frames_per_second().filter(|_| stream.fill != Fill::Omit);
        if let Some(rate) = rate.filter(|_| block.time.is_some()) {
            return BlockClock::Rated { start, first: block.first, rate };
        }
        // A rate that was never learnt: the scan is so short that blocks tell little, and its ends more.
        let unlearnt =
            matches!(stream.format, Format::Vdif { .. }) && stream.frames_per_second().is_none();
        let by_blocks = if unlearnt { None } else { Self::by_neighbours(stream, placed, start) };
        by_blocks.or_else(|| Self::by_arrival(scan, stream, placed)).unwrap_or(BlockClock::Unknown)
    }

    /// Spread until the next block; in the last one as in the one before.
    fn by_neighbours(stream: &Stream, placed: &Placed, start: Tai) -> Option<Self> {
        let block = &placed.block;
        let find = |sequence: u64| {
            let at = stream.blocks.binary_search_by_key(&sequence, |it| it.block.sequence).ok()?;
            Some(&stream.blocks[at].block)
        };
        let (ns, frames) = match (find(block.sequence + 1), block.sequence.checked_sub(1)) {
            (Some(next), _) => (stream.time_of_block(next).since(start), block.frames),
            (None, before) => {
                let before = find(before?)?;
                (start.since(stream.time_of_block(before)), before.frames)
            }
        };
        Some(BlockClock::Even { start, ns_per_frame: ns.max(0) / i64::from(frames.max(1)) })
    }

    /// By when the first and the last frame of the stream came. Those few that came within one look at the
    /// socket go at once, too; `recover` knows no such times, only those of blocks.
    fn by_arrival(scan: &Scan, stream: &Stream, placed: &Placed) -> Option<Self> {
        let account = stream.account.as_ref()?;
        let (first, last) = (account.first?, account.last?);
        let ns = last.seen.since(first.seen);
        let frames = last.index.checked_sub(first.index)?.max(1);
        let seen = ns > 0 || (ns == 0 && scan.manifest.state != State::Recovered);
        let ns_per_frame = seen.then_some(ns / frames)?;
        let before = placed.block.first.saturating_sub(first.index);
        let start = first.seen.plus_ns(before.saturating_mul(ns_per_frame));
        Some(BlockClock::Even { start, ns_per_frame })
    }

    /// The time of a frame of this index, the `n`th in the block.
    fn time(&self, index: i64, n: usize) -> Option<Tai> {
        match *self {
            BlockClock::Rated { start, first, rate } => {
                let after = index.saturating_sub(first).max(0).unsigned_abs();
                Some(start.plus_ns(frame_ns(after, rate)))
            }
            BlockClock::Even { start, ns_per_frame } => {
                Some(start.plus_ns(ns_per_frame.saturating_mul(n as i64)))
            }
            BlockClock::Unknown => None,
        }
    }
}

fn start(
    stream: &Stream,
    first: usize,
    end: usize,
    settings: Settings,
) -> Result<StreamReader<'_>, StoredError> {
    let error = |source| StoredError::Start { stream: stream.name.clone(), source };
    stream.read(first..end, settings).map_err(error)
}

impl FrameSource for StoredFrames<'_> {
    fn advance(&mut self) -> Result<bool, SourceError> {
        let varying = self.stream.geometry.is_some_and(|geometry| geometry.frame_bytes == 0);
        self.frames.clear();
        loop {
            // The block is given back before the next is asked for.
            self.block = None;
            match self.reader.next() {
                None => return Ok(false),
                Some(Item::Lost(finding)) => self.lost(finding.to_string()),
                Some(Item::Block(block)) if varying => {
                    self.join(&block)?;
                    return Ok(true);
                }
                Some(Item::Block(block)) => {
                    self.list_fixed(&block);
                    self.block = Some(block);
                    return Ok(true);
                }
            }
        }
    }

    fn count(&self) -> usize {
        self.frames.len()
    }

    fn frame(&self, n: usize) -> Frame<'_> {
        let Told { start, end, time, fill } = self.frames[n];
        let bytes = self.block.as_ref().map_or(self.joined.bytes.as_slice(), Delivered::bytes);
        let pattern = fill && matches!(self.stream.fill, Fill::Pattern(_));
        let dated = matches!(self.stream.format, Format::Vdif { .. }) && !pattern;
        Frame { bytes: &bytes[start..end], time, fill, dated }
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        self.block = None;
        self.joined = Joined::default();
        self.frames.clear();
        self.reader = start(self.stream, self.first, self.end, self.settings)?;
        Ok(())
    }

    fn losses(&self) -> &[String] {
        &self.losses
    }
}
