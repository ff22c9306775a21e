//! The bytes of a stream's blocks, in order, read ahead and checked.

use std::ops::Range;

use super::stream::{Placed, Presence, Stream};
use crate::store::finding::{Finding, What};
use crate::store::read::{Ahead, Extent, Fault, Loan, Settings, StartError};

impl Stream {
    /// Reads the blocks at these positions of [`Stream::blocks`], in order.
    pub fn read(
        &self,
        positions: Range<usize>,
        settings: Settings,
    ) -> Result<StreamReader<'_>, StartError> {
        self.read_by(positions, settings, Ahead::start)
    }

    /// The same for what may be read several times, see [`StreamReader::again`].
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
        start: fn(Vec<Extent>, usize, Settings) -> Result<Ahead, StartError>,
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

    /// Those positions that there are.
    fn within(&self, positions: Range<usize>) -> Range<usize> {
        positions.start.min(self.blocks.len())..positions.end.min(self.blocks.len())
    }

    /// Where the blocks at these positions lie that can be read.
    fn extents(&self, positions: &Range<usize>) -> impl Iterator<Item = Extent> {
        let blocks = self.blocks[positions.clone()].iter();
        blocks.filter(|placed| placed.is_readable()).map(Placed::extent)
    }

    fn absent_before(&self, position: usize) -> usize {
        self.absent.partition_point(|it| it.position < position)
    }
}

/// The blocks of a stream in order, read ahead and checked.
#[derive(Debug)]
pub struct StreamReader<'a> {
    stream: &'a Stream,
    cursor: Cursor,
    /// What is read once more behind the blocks of this turn.
    next: Option<Range<usize>>,
}

/// A place in a stream, and what is read ahead of it. The stream may grow, and is always the same.
#[derive(Debug)]
pub struct Cursor {
    ahead: Ahead,
    position: usize,
    end: usize,
    absent: usize,
}

/// What comes next in a stream.
#[derive(Debug)]
pub enum Item {
    /// A block.
    Block(Delivered),
    /// Something that was recorded and cannot be given.
    Lost(Finding),
}

/// A block's bytes, on loan until dropped; at most one may be kept while the next is asked for.
#[derive(Debug)]
pub struct Delivered {
    /// Its record and place.
    pub placed: Placed,
    /// What is wrong with it, if damaged blocks were asked for.
    pub damage: Option<Finding>,
    loan: Loan,
}

impl Delivered {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        self.loan.bytes()
    }
}

impl Item {
    /// What is wrong with it.
    pub fn fault(&self) -> Option<&Finding> {
        match self {
            Item::Block(block) => block.damage.as_ref(),
            Item::Lost(finding) => Some(finding),
        }
    }
}

impl<'a> StreamReader<'a> {
    /// The stream that is read.
    pub fn stream(&self) -> &'a Stream {
        self.stream
    }

    /// Reads the blocks at these positions behind the last one of this turn, as far ahead as any.
    pub fn again(&mut self, positions: Range<usize>) -> Result<(), StartError> {
        if self.next.is_none() {
            let positions = self.stream.within(positions);
            self.cursor.ahead.extend(self.stream.extents(&positions))?;
            self.next = Some(positions);
        }
        Ok(())
    }

    /// Begins with what [`again`](Self::again) was asked for. `false` if it was not, or if this turn is
    /// not at its end.
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
    /// Before the block at a position of a stream that grows. So many of its absences have been told.
    pub fn growing(
        stream: &Stream,
        position: usize,
        absent: usize,
        settings: Settings,
    ) -> Result<Self, StartError> {
        let ahead = Ahead::growing(stream.block_bytes(), settings)?;
        Ok(Self { ahead, position, end: position, absent })
    }

    /// Takes on what the stream has got more.
    pub fn extend(&mut self, stream: &Stream) -> Result<(), StartError> {
        let more = stream.blocks.get(self.end..).unwrap_or_default();
        self.end += more.len();
        let readable = more.iter().filter(|placed| placed.is_readable());
        self.ahead.extend(readable.map(Placed::extent))
    }

    /// The position of the next block.
    pub fn position(&self) -> usize {
        self.position
    }

    /// How many absences have been told.
    pub fn absent(&self) -> usize {
        self.absent
    }

    /// The next block, or the next loss, if there is any yet.
    pub fn next(&mut self, stream: &Stream) -> Option<Item> {
        if let Some(absent) = stream.absent.get(self.absent)
            && absent.position == self.position
        {
            self.absent += 1;
            return Some(Item::Lost(absent.finding(stream)));
        }
        if self.position == self.end {
            return None;
        }
        let placed = stream.blocks[self.position].clone();
        self.position += 1;
        let lost = |what| Some(Item::Lost(placed.finding(stream, None, what)));
        let outcome = match placed.is_readable() {
            true => Some(self.ahead.next()?),
            false => None,
        };
        let (loan, fault) = match (placed.presence, outcome) {
            (_, Some((Some(loan), fault))) => (Some(loan), fault),
            (Presence::Missing, _) => {
                let bytes = placed.block.bytes.into();
                return lost(What::ChunkMissing { blocks: 1, bytes });
            }
            (Presence::Truncated, _) => {
                return lost(placed.fault(&Fault::Short { got: 0 }));
            }
            (Presence::Whole, outcome) => outcome?,
        };
        let damage = fault.map(|fault| placed.finding(stream, None, placed.fault(&fault)));
        match (loan, damage) {
            (Some(loan), damage) => Some(Item::Block(Delivered { placed, damage, loan })),
            (None, Some(damage)) => Some(Item::Lost(damage)),
            (None, None) => unreachable!("a block that was read without fault has its bytes"),
        }
    }
}
