//! Blocks of a stream one after the other, read ahead; of a scan that is being recorded too.

use std::sync::Arc;

use fullbore_linux::stop_handle::StopHandle;
use fullbore_store::follow::{FollowCursor, FollowState, Follower};
use fullbore_store::read::Settings;
use fullbore_store::reader::{BlockLocation, Item, StoredStream};
use fullbore_time::Tai;

use crate::error::ReadError;
use crate::frames;
use crate::scan::{OpenScan, settings};

/// Consecutive frames of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The first frame, counted from 0 at the first block of the stream.
    pub first: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Bytes of each frame; 0 if lengths vary.
    pub frame_bytes: usize,
    /// For each frame, whether it was received; empty if lengths vary.
    pub valid: Vec<bool>,
    /// The time of the first frame, by the clock of the stream.
    pub time: Option<Tai>,
}

/// The next thing of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// A block.
    Block(Block),
    /// There is none yet: the scan is being recorded or sealed.
    NotYet,
    /// There are no more.
    End,
}

/// The blocks of a stream from a frame on.
#[derive(Debug)]
pub enum Blocks {
    /// In a store.
    Stored(Box<Stored>),
    /// In an object store.
    Copied(Copied),
}

impl Blocks {
    /// Reads from the block that holds a frame on. With `follow`, the blocks of a scan that is being recorded are waited
    /// for.
    pub fn open(
        open: &Arc<OpenScan>,
        stream: &str,
        from: u64,
        follow: bool,
    ) -> Result<Self, ReadError> {
        let view = open.stream(stream)?;
        if open.roots().is_empty() {
            let position = position_of(view.stream(), view.first_index(), from);
            let (open, stream) = (open.clone(), stream.to_owned());
            return Ok(Self::Copied(Copied { open, stream, position }));
        }
        Ok(Self::Stored(Box::new(Stored::open(open, stream, from, follow)?)))
    }

    /// Returns the next block. Waits at most for one look at the indexes.
    pub fn next(&mut self, stop: &StopHandle) -> Result<Next, ReadError> {
        match self {
            Self::Stored(stored) => stored.next(stop),
            Self::Copied(copied) => copied.next(),
        }
    }
}

/// Blocks of a copy.
#[derive(Debug)]
pub struct Copied {
    open: Arc<OpenScan>,
    stream: String,
    /// The next block.
    position: usize,
}

impl Copied {
    fn next(&mut self) -> Result<Next, ReadError> {
        let view = self.open.stream(&self.stream)?;
        let (stream, base) = (view.stream(), view.first_index());
        let mut found = None;
        while found.is_none() && self.position < stream.blocks.len() {
            let block = &stream.blocks[self.position].block;
            let wanted = block.first..stream.end_of(block);
            view.read_blocks(self.position..self.position + 1, &wanted, &mut |location, bytes| {
                found = Some(made(stream, base, location, bytes));
                Ok(())
            })?;
            self.position += 1;
        }
        Ok(found.map_or(Next::End, Next::Block))
    }
}

/// The position of the block that holds a frame of a stream whose frame 0 has this index; the number of all blocks if the
/// frame is behind them.
fn position_of(stream: &StoredStream, base: i64, frame: u64) -> usize {
    let index = base.saturating_add_unsigned(frame);
    match stream.blocks.last() {
        Some(last) if index < stream.end_of(&last.block) => stream.position_of(index).unwrap_or(0),
        _ => stream.blocks.len(),
    }
}

/// A block of a stream whose frame 0 has this index.
fn made(stream: &StoredStream, base: i64, location: &BlockLocation, bytes: &[u8]) -> Block {
    let block = &location.block;
    let frame_bytes = stream.geometry.map_or(0, |it| it.frame_bytes) as usize;
    let held = bytes.len().checked_div(frame_bytes).unwrap_or(0);
    let mut valid = vec![false; held];
    let end = block.first.saturating_add_unsigned(held as u64);
    for run in frames::received(stream, block.first..end) {
        let place = |index: i64| (index - block.first) as usize;
        valid[place(run.start)..place(run.end)].fill(true);
    }
    let time = stream.is_timed().then(|| stream.time_of_block(block));
    let first = block.first.saturating_sub(base).max(0).unsigned_abs();
    Block { first, bytes: bytes.to_vec(), frame_bytes, valid, time }
}

/// Blocks of a scan in a store.
#[derive(Debug)]
pub struct Stored {
    follower: Follower,
    cursor: FollowCursor,
    follow: bool,
    skip_damaged: bool,
    /// The index of frame 0.
    base: Option<i64>,
}

impl Stored {
    fn open(open: &OpenScan, stream: &str, from: u64, follow: bool) -> Result<Self, ReadError> {
        let scan = &open.scan().manifest.scan;
        let follower = Follower::open(open.roots(), scan)?;
        let number = open.stream(stream)?.stream().number;
        let settings = match follower.status() {
            FollowState::Recording => Settings::beside_a_recorder(),
            _ => settings(),
        };
        let mut cursor = FollowCursor::new(number, settings);
        let stream = &follower.scan().streams[number];
        let base = (!stream.blocks.is_empty()).then(|| frames::first_index(stream));
        if from > 0
            && let Some(base) = base
        {
            cursor.skip_to(stream, position_of(stream, base, from));
        }
        let skip_damaged = open.skips_damaged();
        Ok(Self { follower, cursor, follow, skip_damaged, base })
    }

    fn next(&mut self, stop: &StopHandle) -> Result<Next, ReadError> {
        loop {
            match self.follower.next(&mut self.cursor)? {
                Some(Item::Block(delivered)) => {
                    let stream = &self.follower.scan().streams[self.cursor.number];
                    let base = *self.base.get_or_insert_with(|| frames::first_index(stream));
                    let block = made(stream, base, &delivered.location, delivered.bytes());
                    return Ok(Next::Block(block));
                }
                Some(Item::Lost(_)) if self.skip_damaged => {}
                Some(Item::Lost(finding)) => {
                    return Err(ReadError::Damaged { what: finding.to_string() });
                }
                None => return self.look(stop),
            }
        }
    }

    /// Looks for new blocks, after the time of a look.
    fn look(&mut self, stop: &StopHandle) -> Result<Next, ReadError> {
        let before = self.follower.status();
        let is_waited_for = match before {
            FollowState::Recording => self.follow,
            // What was recorded is readable again once it is sealed.
            FollowState::Sealing => true,
            FollowState::Sealed | FollowState::Died => false,
        };
        if !is_waited_for {
            return Ok(Next::End);
        }
        self.follower.wait(stop);
        self.follower.look()?;
        Ok(Next::NotYet)
    }
}

#[cfg(test)]
mod tests {
    use fullbore_core::gap::Cause;
    use fullbore_store::testing::{BLOCK_FRAMES, Store, StreamPlan};

    use super::*;

    #[test]
    fn blocks_are_the_stream_from_a_frame_on() {
        let store = Store::in_memory(2);
        let plan = StreamPlan::vdif("a").frames(300).gap(70, 3, Cause::Missing);
        let laid = store.lay_down("s_one", &[plan]);
        let never = StopHandle::default();
        let open = Arc::new(OpenScan::open(&store.roots(), &laid.name, false).unwrap());
        for (from, begin) in [(0, 0), (BLOCK_FRAMES + 3, BLOCK_FRAMES), (299, 9 * BLOCK_FRAMES)] {
            let mut blocks = Blocks::open(&open, "a", from, true).unwrap();
            let (mut bytes, mut next) = (Vec::new(), begin);
            loop {
                match blocks.next(&never).unwrap() {
                    Next::Block(block) => {
                        assert_eq!((block.first, block.frame_bytes), (next, 512));
                        assert!(block.time.is_some());
                        for (frame, valid) in (block.first..).zip(&block.valid) {
                            assert_eq!(*valid, !(70..73).contains(&frame), "{frame}");
                        }
                        next += block.valid.len() as u64;
                        bytes.extend(block.bytes);
                    }
                    Next::NotYet => panic!("the scan is sealed"),
                    Next::End => break,
                }
            }
            assert_eq!((next, bytes), (300, laid.bytes[0][begin as usize * 512..].to_vec()));
        }
        let mut behind = Blocks::open(&open, "a", 300, true).unwrap();
        assert_eq!(behind.next(&never).unwrap(), Next::End);
        let error = Blocks::open(&open, "b", 0, false).unwrap_err();
        assert!(error.to_string().contains("no stream `b`"), "{error}");
    }

    #[test]
    fn a_lost_block_is_an_error_unless_damage_is_skipped() {
        let store = Store::in_memory(1);
        let laid = store.lay_down("s_one", &[StreamPlan::vdif("a").frames(300)]);
        std::fs::remove_file(laid.chunk_path(0, 1)).unwrap();
        let never = StopHandle::default();
        let read = |skip| {
            let open = Arc::new(OpenScan::open(&store.roots(), &laid.name, skip).unwrap());
            let mut blocks = Blocks::open(&open, "a", 0, false).unwrap();
            let mut frames = 0;
            loop {
                match blocks.next(&never)? {
                    Next::Block(block) => frames += block.valid.len() as u64,
                    Next::NotYet | Next::End => return Ok::<u64, ReadError>(frames),
                }
            }
        };
        assert!(matches!(read(false), Err(ReadError::Damaged { .. })));
        assert_eq!(read(true).unwrap(), 300 - 3 * BLOCK_FRAMES);
    }
}
