//! Moves sessions between a source of pattern and a medium, as a recorder does.
//!
//! ```text
//! Source ──fill──► held ──submit──► under way ──► written, in order
//!   │ left over        │ dropped by an abort
//!   └──► flushed       └──► counted
//! ```
//!
//! [`Session`] decides the steps; this module moves the blocks.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::Arc;

use fullbore_core::device::{Action, Direction, Event, Session};
use fullbore_core::pattern::Pattern;
use fullbore_linux::ring::{Block, Pool};
use fullbore_linux::stop_handle::StopHandle;
use fullbore_linux::sys::memory::Region;

use super::medium::{Medium, Moved, Transfer};

/// A failed session.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// A write failed.
    #[error("writing {bytes} bytes at {offset:#x}: {source}")]
    Write {
        /// The offset.
        offset: u64,
        /// The number of bytes.
        bytes: u32,
        /// The kernel's error.
        source: io::Error,
    },
    /// A read failed.
    #[error("reading {bytes} bytes at {offset:#x}: {source}")]
    Read {
        /// The offset.
        offset: u64,
        /// The number of bytes.
        bytes: u32,
        /// The kernel's error.
        source: io::Error,
    },
    /// A sync failed.
    #[error("syncing: {source}")]
    Sync {
        /// The kernel's error.
        source: io::Error,
    },
    /// Waiting for completions failed.
    #[error("waiting for the target: {source}")]
    Wait {
        /// The kernel's error.
        source: io::Error,
    },
    /// Block memory could not be allocated.
    #[error("allocating {bytes} bytes of memory for blocks: {source}")]
    Memory {
        /// The number of bytes.
        bytes: usize,
        /// The kernel's error.
        source: io::Error,
    },
    /// The user stopped the tests.
    #[error("interrupted")]
    Interrupted,
}

/// A source of the bytes of a session.
#[derive(Clone, Debug)]
pub struct Source {
    pattern: Pattern,
    next: u64,
    left: u64,
}

impl Source {
    /// The pattern from an offset on, with this number of bytes.
    pub fn new(pattern: Pattern, offset: u64, bytes: u64) -> Self {
        Self { pattern, next: offset, left: bytes }
    }

    /// True if all bytes were taken.
    pub fn is_done(&self) -> bool {
        self.left == 0
    }

    /// The remaining bytes.
    pub fn left(&self) -> u64 {
        self.left
    }

    fn fill(&mut self, out: &mut [u8]) {
        self.pattern.fill(out, self.next);
        self.next += out.len() as u64;
        self.left -= out.len() as u64;
    }
}

/// A planned end of a session.
#[derive(Clone, Copy, Debug)]
pub struct Ending {
    /// [`Event::Stop`] or [`Event::Abort`].
    pub event: Event,
    /// The number of submitted bytes at which it occurs.
    pub after_bytes: u64,
}

/// A block that waits for submission: its number of bytes, and its offset in the session.
struct Held {
    block: Block,
    at: u64,
    bytes: u64,
}

/// A completed block: its offset in the session, its memory, and the number of bytes moved.
type Returned = (u64, Block, Result<u64, Trouble>);

/// A medium, memory, and the number of blocks in circulation.
pub struct Rig<'a> {
    /// The target.
    pub medium: &'a mut dyn Medium,
    /// Called with the number of further bytes moved.
    pub moved: &'a mut dyn FnMut(u64),
    stop: &'a StopHandle,
    pool: Pool,
    block_bytes: u64,
    depth: usize,
    back: Vec<Moved>,
    parts: BTreeMap<u64, (u64, u32)>,
}

impl<'a> Rig<'a> {
    /// Allocates memory for `depth` concurrent blocks and as many held.
    pub fn new(
        medium: &'a mut dyn Medium,
        moved: &'a mut dyn FnMut(u64),
        stop: &'a StopHandle,
        block_bytes: u64,
        depth: usize,
    ) -> Result<Self, Trouble> {
        let bytes = 2 * depth * block_bytes as usize;
        let region = Region::new(bytes).map_err(|source| Trouble::Memory { bytes, source })?;
        let pool = Pool::new(Arc::new(region), block_bytes as usize, 0);
        let (back, parts) = (Vec::new(), BTreeMap::new());
        Ok(Self { medium, moved, stop, pool, block_bytes, depth, back, parts })
    }

    /// Writes a session from a source until it has ended or is flushing.
    pub fn write(
        &mut self,
        session: &mut Session,
        source: &mut Source,
        mut ending: Option<Ending>,
    ) -> Result<(), Trouble> {
        let first = session.span().first();
        let request = self.request_bytes(session.span().bytes());
        let mut held: VecDeque<Held> = VecDeque::new();
        let (mut taken, mut sent, mut written) = (0, 0, 0);
        let mut done = BTreeMap::new();
        loop {
            while session.room() > 0 && source.left > 0 && held.len() < self.depth {
                let Some(block) = self.pool.take() else { break };
                let bytes = request.min(session.room()).min(source.left);
                held.push_back(self.filled(block, taken, bytes, source));
                taken += bytes;
                session.step(Event::Taken(bytes));
            }
            if source.left == 0 && session.room() > 0 {
                session.step(Event::SourceEnded);
            }
            if let Some(it) = ending.take_if(|ending| sent >= ending.after_bytes)
                && session.step(it.event) == Some(Action::Drop)
            {
                for held in held.drain(..) {
                    self.pool.put(held.block);
                    session.step(Event::Dropped(held.bytes));
                }
            }
            while self.parts.len() < self.depth
                && let Some(Held { block, at, bytes }) = held.pop_front()
            {
                let whole = bytes.next_multiple_of(self.medium.sector_bytes()) as u32;
                sent += bytes;
                done.insert(at, (bytes, false));
                self.submit(Direction::Write, first, at, block, (0, whole));
            }
            if self.parts.is_empty() && held.is_empty() && session.room() == 0 {
                return Ok(());
            }
            let mut trouble = None;
            for (at, block, result) in self.returned(Direction::Write, first)? {
                self.pool.put(block);
                match result {
                    Ok(_) => {
                        done.entry(at).and_modify(|(_, back)| *back = true);
                    }
                    Err(error) => {
                        trouble.get_or_insert(error);
                    }
                }
            }
            if let Some(trouble) = trouble {
                session.step(Event::Failed);
                held.drain(..).for_each(|held| self.pool.put(held.block));
                return Err(self.drained(trouble));
            }
            while let Some(entry) = done.first_entry()
                && entry.get().1
            {
                let (bytes, _) = entry.remove();
                written += bytes;
                (self.moved)(bytes);
                session.step(Event::Written(bytes));
            }
            debug_assert!(written <= taken);
        }
    }

    /// Drains the source and drops its bytes, as a flushing session requires.
    pub fn flush(&mut self, session: &mut Session, source: &mut Source) {
        let left = std::mem::take(&mut source.left);
        source.next += left;
        if left > 0 {
            session.step(Event::Flushed(left));
        }
        session.step(Event::Dry);
    }

    /// Reads a range of whole sectors, in order; returns the number of bytes before the end of the medium.
    pub fn read(
        &mut self,
        range: Range<u64>,
        take: &mut dyn FnMut(&[u8], u64),
    ) -> Result<u64, Trouble> {
        let (first, total) = (range.start, range.end - range.start);
        let request = self.request_bytes(total);
        let (mut requested, mut delivered) = (0, 0);
        let mut done: BTreeMap<u64, (Block, u64)> = BTreeMap::new();
        loop {
            while requested < total && self.parts.len() < self.depth {
                let Some(block) = self.pool.take() else { break };
                let bytes = request.min(total - requested);
                self.submit(Direction::Read, first, requested, block, (0, bytes as u32));
                requested += bytes;
            }
            let mut trouble = None;
            for (at, block, result) in self.returned(Direction::Read, first)? {
                match result {
                    Ok(bytes) => {
                        done.insert(at, (block, bytes));
                    }
                    Err(error) => {
                        self.pool.put(block);
                        trouble.get_or_insert(error);
                    }
                }
            }
            if let Some(trouble) = trouble {
                done.into_values().for_each(|(block, _)| self.pool.put(block));
                return Err(self.drained(trouble));
            }
            while let Some((block, bytes)) = done.remove(&delivered) {
                take(&block[..bytes as usize], first + delivered);
                self.pool.put(block);
                (self.moved)(bytes);
                let whole = request.min(total - delivered);
                delivered += bytes;
                if bytes < whole || delivered == total {
                    done.into_values().for_each(|(block, _)| self.pool.put(block));
                    self.wait_for_all()?;
                    return Ok(delivered);
                }
            }
        }
    }

    /// Makes the written data durable.
    pub fn sync(&mut self) -> Result<(), Trouble> {
        self.medium.sync().map_err(|source| Trouble::Sync { source })
    }

    /// Drops caches, so that later reads come from the medium.
    pub fn forget(&mut self) -> Result<(), Trouble> {
        self.medium.forget().map_err(|source| Trouble::Sync { source })
    }

    /// The request size: short sessions have smaller requests, so that they too have several at once.
    fn request_bytes(&self, total: u64) -> u64 {
        let least = self.block_bytes.min(128 << 10);
        (total / self.depth as u64).next_multiple_of(least).clamp(least, self.block_bytes)
    }

    fn filled(&self, mut block: Block, at: u64, bytes: u64, source: &mut Source) -> Held {
        let whole = bytes.next_multiple_of(self.medium.sector_bytes()) as usize;
        source.fill(&mut block[..bytes as usize]);
        block[bytes as usize..whole].fill(0);
        Held { block, at, bytes }
    }

    fn submit(
        &mut self,
        direction: Direction,
        first: u64,
        at: u64,
        block: Block,
        (from, bytes): (u32, u32),
    ) {
        self.parts.insert(at, (u64::from(from), bytes));
        let offset = first + at + u64::from(from);
        self.medium.submit(Transfer { token: at, direction, offset, block, part: (from, bytes) });
    }

    /// Returns completed blocks, complete or up to the end of the medium. Others are resubmitted for the rest.
    fn returned(&mut self, direction: Direction, first: u64) -> Result<Vec<Returned>, Trouble> {
        if self.stop.is_requested() {
            return Err(self.drained(Trouble::Interrupted));
        }
        let mut whole = Vec::new();
        if self.parts.is_empty() {
            return Ok(whole);
        }
        let mut back = std::mem::take(&mut self.back);
        self.medium.wait(&mut back).map_err(|source| Trouble::Wait { source })?;
        for Moved { token: at, result, block } in back.drain(..) {
            let (from, bytes) = self.parts.remove(&at).expect("each comes back once");
            let offset = first + at + from;
            let sector = self.medium.sector_bytes();
            match result {
                Ok(got) if got >= bytes => whole.push((at, block, Ok(from + u64::from(bytes)))),
                Ok(got) if got > 0 && u64::from(got).is_multiple_of(sector) => {
                    let rest = (from as u32 + got, bytes - got);
                    self.submit(direction, first, at, block, rest);
                }
                // A short read means the end of the medium.
                Ok(got) if direction == Direction::Read => {
                    whole.push((at, block, Ok(from + u64::from(got))));
                }
                Ok(_) => {
                    let source = io::ErrorKind::WriteZero.into();
                    whole.push((at, block, Err(Trouble::Write { offset, bytes, source })));
                }
                Err(source) => {
                    let trouble = match direction {
                        Direction::Write => Trouble::Write { offset, bytes, source },
                        Direction::Read => Trouble::Read { offset, bytes, source },
                    };
                    whole.push((at, block, Err(trouble)));
                }
            }
        }
        self.back = back;
        Ok(whole)
    }

    /// Waits for all requests, so that their memory is free for the next session.
    fn drained(&mut self, trouble: Trouble) -> Trouble {
        // The first error is the one to report.
        let _ = self.wait_for_all();
        trouble
    }

    fn wait_for_all(&mut self) -> Result<(), Trouble> {
        while !self.parts.is_empty() {
            let mut back = Vec::new();
            self.medium.wait(&mut back).map_err(|source| Trouble::Wait { source })?;
            for moved in back {
                self.parts.remove(&moved.token);
                self.pool.put(moved.block);
            }
        }
        Ok(())
    }
}
