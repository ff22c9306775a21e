//! Reads the bytes of a stream's blocks, in order, ahead of the consumer and checked.

use std::ops::Range;

use super::stream::{BlockLocation, Presence, StoredStream};
use crate::diagnostics::{Diagnostic, DiagnosticKind};
use crate::read::{Ahead, BlockExtent, Fault, Loan, Settings, StartError};

impl StoredStream {
    /// Reads the blocks at these positions of [`super::StoredStream::blocks`], in order.
    pub fn read(
        &self,
        positions: Range<usize>,
        settings: Settings,
    ) -> Result<StreamReader<'_>, StartError> {
        self.read_by(positions, settings, Ahead::start)
    }

    /// The same for blocks that may be read several times, see [`StreamReader::again`].
    pub fn read_in_turns(
        &self,
        positions: Range<usize>,
        settings: Settings,
    ) -> Result<StreamReader<'_>, StartError> {
        self.read_by(positions, settings, Ahead::start_in_turns)
    }

    fn read_by(
        &self,
        positions: Range<usize>,
        settings: Settings,
        start: fn(Vec<BlockExtent>, usize, Settings) -> Result<Ahead, StartError>,
    ) -> Result<StreamReader<'_>, StartError> {
        let positions = self.within(positions);
        let cursor = Cursor {
            ahead: start(self.extents(&positions).collect(), self.block_bytes(), settings)?,
            position: positions.start,
            end: positions.end,
            absent: self.absent_before(positions.start),
        };
        Ok(StreamReader { stream: self, cursor, next: None })
    }

    /// Returns the positions that exist.
    fn within(&self, positions: Range<usize>) -> Range<usize> {
        positions.start.min(self.blocks.len())..positions.end.min(self.blocks.len())
    }

    /// Returns the extents of the readable blocks at these positions.
    fn extents(&self, positions: &Range<usize>) -> impl Iterator<Item = BlockExtent> {
        let blocks = self.blocks[positions.clone()].iter();
        blocks.filter(|location| location.is_readable()).map(BlockLocation::extent)
    }

    fn absent_before(&self, position: usize) -> usize {
        self.absent.partition_point(|it| it.position < position)
    }
}

/// The blocks of a stream in order, read ahead and checked.
#[derive(Debug)]
pub struct StreamReader<'a> {
    stream: &'a StoredStream,
    cursor: Cursor,
    /// The blocks to read again after this turn.
    next: Option<Range<usize>>,
}

/// A position in a stream, with read-ahead. The stream may grow; every call must pass the same stream.
#[derive(Debug)]
pub struct Cursor {
    ahead: Ahead,
    position: usize,
    end: usize,
    absent: usize,
}

/// The next item of a stream.
#[derive(Debug)]
pub enum Item {
    /// A block.
    Block(Delivered),
    /// A recorded block that cannot be delivered.
    Lost(Diagnostic),
}

/// A block's bytes, on loan until dropped; the consumer may keep at most one while it requests the next.
#[derive(Debug)]
pub struct Delivered {
    /// The record and location.
    pub location: BlockLocation,
    /// The damage, if damaged blocks were requested.
    pub damage: Option<Diagnostic>,
    loan: Loan,
}

impl Delivered {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        self.loan.bytes()
    }
}

impl Item {
    /// The damage, if any.
    pub fn fault(&self) -> Option<&Diagnostic> {
        match self {
            Item::Block(block) => block.damage.as_ref(),
            Item::Lost(finding) => Some(finding),
        }
    }
}

impl<'a> StreamReader<'a> {
    /// The stream.
    pub fn stream(&self) -> &'a StoredStream {
        self.stream
    }

    /// Reads the blocks at these positions after the last one of this turn, with the usual read-ahead.
    pub fn again(&mut self, positions: Range<usize>) -> Result<(), StartError> {
        if self.next.is_none() {
            let positions = self.stream.within(positions);
            self.cursor.ahead.extend(self.stream.extents(&positions))?;
            self.next = Some(positions);
        }
        Ok(())
    }

    /// Begins the turn that [`again`](Self::again) requested. Returns `false` if there is none, or if this turn is not
    /// at its end.
    pub fn turn(&mut self) -> bool {
        if self.cursor.position != self.cursor.end {
            return false;
        }
        let Some(next) = self.next.take() else { return false };
        self.cursor.absent = self.stream.absent_before(next.start);
        (self.cursor.position, self.cursor.end) = (next.start, next.end);
        true
    }
}

impl Iterator for StreamReader<'_> {
    type Item = Item;

    /// The next block, or the next loss.
    fn next(&mut self) -> Option<Item> {
        self.cursor.next(self.stream)
    }
}

impl Cursor {
    /// Returns a cursor before the block at a position of a growing stream. `absent` absences have been reported
    /// already.
    pub fn growing(
        stream: &StoredStream,
        position: usize,
        absent: usize,
        settings: Settings,
    ) -> Result<Self, StartError> {
        let ahead = Ahead::growing(stream.block_bytes(), settings)?;
        Ok(Self { ahead, position, end: position, absent })
    }

    /// Adds the new blocks of the stream.
    pub fn extend(&mut self, stream: &StoredStream) -> Result<(), StartError> {
        let more = stream.blocks.get(self.end..).unwrap_or_default();
        self.end += more.len();
        let readable = more.iter().filter(|location| location.is_readable());
        self.ahead.extend(readable.map(BlockLocation::extent))
    }

    /// The position of the next block.
    pub fn position(&self) -> usize {
        self.position
    }

    /// The number of absences reported.
    pub fn absent(&self) -> usize {
        self.absent
    }

    /// Returns the next block or the next loss, if there is one yet.
    pub fn next(&mut self, stream: &StoredStream) -> Option<Item> {
        if let Some(absent) = stream.absent.get(self.absent)
            && absent.position == self.position
        {
            self.absent += 1;
            return Some(Item::Lost(absent.finding(stream)));
        }
        if self.position == self.end {
            return None;
        }
        let location = stream.blocks[self.position].clone();
        self.position += 1;
        let lost = |what| Some(Item::Lost(location.finding(stream, None, what)));
        let outcome = match location.is_readable() {
            true => Some(self.ahead.next()?),
            false => None,
        };
        let (loan, fault) = match (location.presence, outcome) {
            (_, Some((Some(loan), fault))) => (Some(loan), fault),
            (Presence::Missing, _) => {
                let bytes = location.block.bytes.into();
                return lost(DiagnosticKind::ChunkMissing { blocks: 1, bytes });
            }
            (Presence::Truncated, _) => {
                return lost(location.fault(&Fault::Short { got: 0 }));
            }
            (Presence::Whole, outcome) => outcome?,
        };
        let damage = fault.map(|fault| location.finding(stream, None, location.fault(&fault)));
        match (loan, damage) {
            (Some(loan), damage) => Some(Item::Block(Delivered { location, damage, loan })),
            (None, Some(damage)) => Some(Item::Lost(damage)),
            (None, None) => unreachable!("a block that was read without fault has its bytes"),
        }
    }
}
