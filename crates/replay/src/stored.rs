//! Plays a stream of a stored scan block by block, as blocks are read and checked.

use std::collections::VecDeque;
use std::io;

use fullbore_core::index::Block;
use fullbore_core::manifest::{Fill, Format, State};
use fullbore_store::read::{Settings, StartError};
use fullbore_store::reader::{
    BlockClock, BlockLocation, Delivered, Item, Scan, StoredStream, StreamReader,
};
use fullbore_time::Tai;

use super::{Frame, FrameSource, HeaderClock, SourceError};

/// The most losses that are listed; further ones are counted.
pub(super) const MOST_LOSSES: usize = 1000;

/// A stream that cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum StoredError {
    /// The reader could not start.
    #[error("starting to read stream {stream}")]
    Start {
        /// The stream.
        stream: String,
        /// The error.
        source: StartError,
    },
    /// The lengths of its frames could not be read.
    #[error("stream {stream}: reading the lengths of the frames of block {block}")]
    Lengths {
        /// The stream.
        stream: String,
        /// The block's number in the stream.
        block: u64,
        /// The system's error.
        source: io::Error,
    },
}

/// The frames of a stored stream. Blocks with a wrong checksum are not played.
pub struct StoredFrames<'a> {
    scan: &'a Scan,
    stream: &'a StoredStream,
    settings: Settings,
    /// Offset added to the stream's times.
    ahead_ns: i64,
    /// Positions of the blocks to play.
    first: usize,
    end: usize,
    /// Reads from the time on at which the first frames are wanted.
    reader: Option<StreamReader<'a>>,
    /// Position of the next block.
    position: usize,
    run: Run,
    losses: Vec<String>,
    lost_frames: u64,
}

/// The frames of the loaded block, and their positions.
#[derive(Debug, Default)]
pub(super) struct Run {
    /// The block; with frames of varying length the bytes are in `joined` instead.
    block: Option<Delivered>,
    joined: Joined,
    frames: Vec<FrameInfo>,
}

/// The size of a datagram of bytes without frames.
const PIECE_BYTES: usize = 8192;

/// Reads the lengths of the frames of a block.
pub(super) type Lengths<'a> = &'a dyn Fn(&BlockLocation) -> io::Result<Vec<u16>>;

/// The position of a frame in the run, and its properties.
#[derive(Clone, Copy, Debug)]
struct FrameInfo {
    start: usize,
    end: usize,
    time: Option<Tai>,
    fill: bool,
}

/// Frames of varying length can cross block borders, so the rest of the previous block precedes the next one. All
/// positions here count the stream's bytes from its first block on, including unreadable ones.
#[derive(Debug, Default)]
struct Joined {
    bytes: Vec<u8>,
    /// Position of the first byte of `bytes`.
    start: u64,
    /// Start of the next block.
    end: u64,
    /// The number of the next block.
    sequence: u64,
    /// Start of the next frame.
    frame: u64,
    /// Lengths of frames that have begun and are not listed yet.
    lengths: VecDeque<u16>,
}

impl<'a> StoredFrames<'a> {
    /// Plays the blocks between two times. Whole blocks are read, so frames just outside are included.
    pub fn open(
        scan: &'a Scan,
        stream: &'a StoredStream,
        from: Option<Tai>,
        to: Option<Tai>,
        settings: Settings,
    ) -> Result<Self, StoredError> {
        let ahead_ns = scan.ahead_ns(stream);
        let position = |time: Tai| stream.position_of(stream.index_at(time.plus_ns(-ahead_ns))?);
        let varying = stream.geometry.is_some_and(|geometry| geometry.frame_bytes == 0);
        // The first whole frame of a block can be located only with the blocks before it.
        let first = from.filter(|_| !varying).and_then(position).unwrap_or(0);
        let end = to.and_then(position).map_or(stream.blocks.len(), |last| last + 1);
        let end = end.min(stream.blocks.len());
        Ok(StoredFrames {
            scan,
            stream,
            settings,
            ahead_ns,
            first,
            end,
            reader: None,
            position: first,
            run: Run::default(),
            losses: Vec::new(),
            lost_frames: 0,
        })
    }

    /// The clock of a block's frames, if known. The few frames of a scan that arrived within one read of the socket are
    /// sent at once. `recover` knows only the times at which blocks arrived, which is no clock for a single block.
    fn clock_of(&self, location: &BlockLocation) -> Option<BlockClock> {
        let sealed = self.stream.account.is_some() && self.scan.manifest.state != State::Recovered;
        (sealed || self.stream.is_timed()).then(|| self.stream.clock_of(&location.block))
    }

    /// Starts to read from the first block on, unless that has begun.
    fn reading(&mut self) -> Result<&mut StreamReader<'a>, StoredError> {
        let reader = match self.reader.take() {
            Some(reader) => reader,
            None => {
                self.position = self.first;
                start(self.stream, self.first, self.end, self.settings)?
            }
        };
        Ok(self.reader.insert(reader))
    }

    /// Counts the frames of the blocks that were skipped before a position.
    fn skip_to(&mut self, position: usize) {
        let skipped = self.stream.blocks.get(self.position..position).unwrap_or_default();
        let lost = skipped.iter().map(|it| datagrams_of(self.stream, &it.block));
        self.lost_frames += lost.sum::<u64>();
        self.position = self.position.max(position);
    }

    fn lost(&mut self, what: String) {
        if self.losses.len() < MOST_LOSSES {
            self.losses.push(what);
        }
    }
}

impl Run {
    /// Releases the block. Call before requesting the next one.
    pub(super) fn clear(&mut self) {
        self.frames.clear();
        self.block = None;
    }

    pub(super) fn count(&self) -> usize {
        self.frames.len()
    }

    pub(super) fn frame(&self, stream: &StoredStream, n: usize) -> Frame<'_> {
        let FrameInfo { start, end, time, fill } = self.frames[n];
        let bytes = self.block.as_ref().map_or(self.joined.bytes.as_slice(), Delivered::bytes);
        let pattern = fill && matches!(stream.fill, Fill::Pattern(_));
        let dated = stream.codec.filter(|_| !pattern);
        Frame { bytes: &bytes[start..end], time, fill, dated }
    }

    /// Lists the frames of a block, with their times if there is a clock.
    pub(super) fn take(
        &mut self,
        stream: &StoredStream,
        block: Delivered,
        clock: Option<BlockClock>,
        ahead_ns: i64,
        lengths: Lengths<'_>,
    ) -> Result<(), StoredError> {
        if stream.geometry.is_some_and(|geometry| geometry.frame_bytes == 0) {
            return self.join(stream, &block, clock, ahead_ns, lengths);
        }
        if stream.is_of_bytes() {
            self.take_bytes(block, clock, ahead_ns);
            return Ok(());
        }
        let mut start = 0;
        for frame in stream.frames(&block.location.block, block.bytes()) {
            let end = start + frame.bytes.len();
            let time = clock.map(|clock| clock.time(frame.index).plus_ns(ahead_ns));
            self.frames.push(FrameInfo { start, end, time, fill: frame.fill });
            start = end;
        }
        self.block = Some(block);
        Ok(())
    }

    /// Lists the pieces of a block of bytes without frames.
    fn take_bytes(&mut self, block: Delivered, clock: Option<BlockClock>, ahead_ns: i64) {
        let (bytes, first) = (block.bytes().len(), block.location.block.first);
        for start in (0..bytes).step_by(PIECE_BYTES) {
            let end = bytes.min(start + PIECE_BYTES);
            let time = clock.map(|clock| clock.time(first + start as i64).plus_ns(ahead_ns));
            self.frames.push(FrameInfo { start, end, time, fill: false });
        }
        self.block = Some(block);
    }

    /// Joins a block to the rest of the previous one, and lists the complete frames.
    fn join(
        &mut self,
        stream: &StoredStream,
        block: &Delivered,
        clock: Option<BlockClock>,
        ahead_ns: i64,
        lengths: Lengths<'_>,
    ) -> Result<(), StoredError> {
        let location = &block.location;
        if self.joined.lengths.is_empty() && self.joined.end == 0 {
            self.joined.sequence = stream.blocks.first().map_or(0, |it| it.block.sequence);
        }
        self.pass_over_lost(stream, location, lengths)?;
        let lengths = told(stream, location, lengths)?;
        let joined = &mut self.joined;
        let listed = joined.frame.saturating_sub(joined.start) as usize;
        joined.bytes.drain(..listed.min(joined.bytes.len()));
        joined.start = joined.end - joined.bytes.len() as u64;
        joined.bytes.extend_from_slice(block.bytes());
        joined.end += block.bytes().len() as u64;
        joined.sequence = location.block.sequence + 1;
        joined.lengths.extend(lengths);
        while let Some(&length) = joined.lengths.front()
            && joined.frame + u64::from(length) <= joined.end
        {
            joined.lengths.pop_front();
            let start = joined.frame;
            joined.frame += u64::from(length);
            // A frame that began in an unreadable block is lost.
            if let Some(start) = start.checked_sub(joined.start) {
                let (start, end) = (start as usize, start as usize + usize::from(length));
                let index = location.block.first.saturating_add(self.frames.len() as i64);
                let time = clock.map(|clock| clock.time(index).plus_ns(ahead_ns));
                self.frames.push(FrameInfo { start, end, time, fill: false });
            }
        }
        Ok(())
    }

    /// Skips unreadable blocks, whose frame lengths are still known.
    fn pass_over_lost(
        &mut self,
        stream: &StoredStream,
        location: &BlockLocation,
        lengths: Lengths<'_>,
    ) -> Result<(), StoredError> {
        while self.joined.sequence < location.block.sequence {
            let sequence = self.joined.sequence;
            if let Ok(at) = stream.blocks.binary_search_by_key(&sequence, |it| it.block.sequence) {
                let lost = &stream.blocks[at];
                let lengths = told(stream, lost, lengths)?;
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
}

/// The datagrams that a block is sent in, without fill.
pub(super) fn datagrams_of(stream: &StoredStream, block: &Block) -> u64 {
    match stream.is_of_bytes() {
        true => u64::from(block.bytes).div_ceil(PIECE_BYTES as u64),
        false => u64::from(block.present),
    }
}

fn told(
    stream: &StoredStream,
    location: &BlockLocation,
    lengths: Lengths<'_>,
) -> Result<Vec<u16>, StoredError> {
    lengths(location).map_err(|source| StoredError::Lengths {
        stream: stream.name.clone(),
        block: location.block.sequence,
        source,
    })
}

fn start(
    stream: &StoredStream,
    first: usize,
    end: usize,
    settings: Settings,
) -> Result<StreamReader<'_>, StoredError> {
    let error = |source| StoredError::Start { stream: stream.name.clone(), source };
    stream.read_in_turns(first..end, settings).map_err(error)
}

impl FrameSource for StoredFrames<'_> {
    fn advance(&mut self) -> Result<bool, SourceError> {
        // The block is returned before the next one is requested.
        self.run.clear();
        loop {
            match self.reading()?.next() {
                None => {
                    self.skip_to(self.end);
                    return Ok(false);
                }
                Some(Item::Lost(finding)) => self.lost(finding.to_string()),
                Some(Item::Block(block)) => {
                    let blocks = self.stream.blocks.as_slice();
                    let sequence = block.location.block.sequence;
                    if let Ok(at) = blocks.binary_search_by_key(&sequence, |it| it.block.sequence) {
                        self.skip_to(at);
                        self.position = at + 1;
                    }
                    let (clock, scan) = (self.clock_of(&block.location), self.scan);
                    let lengths = |location: &BlockLocation| scan.lengths(location);
                    self.run.take(self.stream, block, clock, self.ahead_ns, &lengths)?;
                    return Ok(true);
                }
            }
        }
    }

    fn count(&self) -> usize {
        self.run.count()
    }

    fn frame(&self, n: usize) -> Frame<'_> {
        self.run.frame(self.stream, n)
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        self.run = Run::default();
        self.position = self.first;
        if !self.reader.as_mut().is_some_and(StreamReader::turn) {
            self.reader = None;
        }
        Ok(())
    }

    fn again(&mut self) -> Result<(), SourceError> {
        let error = |source| StoredError::Start { stream: self.stream.name.clone(), source };
        let again = self.first..self.end;
        match &mut self.reader {
            Some(reader) => Ok(reader.again(again).map_err(error)?),
            None => Ok(self.reading().map(drop)?),
        }
    }

    fn header_clock(&self) -> HeaderClock {
        match (self.stream.codec, &self.stream.format) {
            (Some(_), Format::Frames { frames_per_second, .. }) => {
                HeaderClock::of(*frames_per_second)
            }
            _ => HeaderClock::None,
        }
    }

    fn losses(&self) -> &[String] {
        &self.losses
    }

    fn lost_frames(&self) -> u64 {
        self.lost_frames
    }
}
