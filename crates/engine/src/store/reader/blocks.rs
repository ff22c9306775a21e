//! The bytes of a stream's blocks, in order, read ahead and checked.

use std::ops::Range;

use super::stream::{Placed, Presence, Stream};
use crate::store::finding::{Finding, What};
use crate::store::read::{Ahead, Fault, Loan, Settings, StartError};

impl Stream {
    /// Reads the blocks at these positions of [`Stream::blocks`], in order.
    pub fn read(
        &self,
        positions: Range<usize>,
        settings: Settings,
    ) -> Result<StreamReader<'_>, StartError> {
        let positions =
            positions.start.min(self.blocks.len())..positions.end.min(self.blocks.len());
        let blocks = &self.blocks[positions.clone()];
        let whole = blocks.iter().filter(|placed| placed.is_readable());
        let extents = whole.map(Placed::extent).collect();
        let ahead = Ahead::start(extents, self.block_bytes(), settings)?;
        let absent = self.absent.partition_point(|it| it.position < positions.start);
        Ok(StreamReader {
            stream: self,
            ahead,
            position: positions.start,
            end: positions.end,
            absent,
        })
    }
}

/// The blocks of a stream in order, read ahead and checked.
#[derive(Debug)]
pub struct StreamReader<'a> {
    stream: &'a Stream,
    ahead: Ahead,
    position: usize,
    end: usize,
    absent: usize,
}

/// What comes next in a stream.
#[derive(Debug)]
pub enum Item<'a> {
    /// A block.
    Block(Delivered<'a>),
    /// Something that was recorded and cannot be given.
    Lost(Finding),
}

/// A block's bytes, on loan until dropped; at most one may be kept while the next is asked for.
#[derive(Debug)]
pub struct Delivered<'a> {
    /// Its record and place.
    pub placed: &'a Placed,
    /// What is wrong with it, if damaged blocks were asked for.
    pub damage: Option<Finding>,
    loan: Loan,
}

impl Delivered<'_> {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        self.loan.bytes()
    }
}

impl<'a> StreamReader<'a> {
    /// The stream that is read.
    pub fn stream(&self) -> &'a Stream {
        self.stream
    }
}

impl<'a> Iterator for StreamReader<'a> {
    type Item = Item<'a>;

    /// The next block, or the next loss.
    fn next(&mut self) -> Option<Item<'a>> {
        let stream = self.stream;
        if let Some(absent) = stream.absent.get(self.absent)
            && absent.position == self.position
        {
            self.absent += 1;
            return Some(Item::Lost(absent.finding(stream)));
        }
        if self.position == self.end {
            return None;
        }
        let placed = &stream.blocks[self.position];
        self.position += 1;
        let lost = |what| Some(Item::Lost(placed.finding(stream, None, what)));
        let block = &placed.block;
        let outcome = match placed.is_readable() {
            true => Some(self.ahead.next()?),
            false => None,
        };
        let (loan, fault) = match (placed.presence, outcome) {
            (_, Some((Some(loan), fault))) => (Some(loan), fault),
            (Presence::Missing, _) => {
                return lost(What::ChunkMissing { blocks: 1, bytes: block.bytes.into() });
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
