//! The ledger: the known content of a target, as written by this run.

use std::collections::BTreeMap;
use std::ops::Range;

/// The content of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// The pattern with this seed; the byte at an address is the pattern's at the same offset.
    Seed(u64),
    /// Zeros, up to the end of a sector.
    Zeros,
}

/// Ranges and their content; they do not overlap.
#[derive(Debug, Default)]
pub struct Ledger {
    /// By the start of the range: its end, and the content.
    ranges: BTreeMap<u64, (u64, Content)>,
}

impl Ledger {
    /// Records a write.
    pub fn write(&mut self, range: Range<u64>, content: Content) {
        if range.is_empty() {
            return;
        }
        let touched: Vec<u64> = self
            .ranges
            .range(..range.end)
            .rev()
            .take_while(|&(_, &(end, _))| end > range.start)
            .map(|(&begin, _)| begin)
            .collect();
        for begin in touched {
            let Some((end, old)) = self.ranges.remove(&begin) else { continue };
            if begin < range.start {
                self.ranges.insert(begin, (range.start, old));
            }
            if end > range.end {
                self.ranges.insert(range.end, (end, old));
            }
        }
        self.ranges.insert(range.start, (range.end, content));
    }

    /// The known parts of a range, in order.
    pub fn pieces(&self, range: Range<u64>) -> Vec<(Range<u64>, Content)> {
        if range.is_empty() {
            return Vec::new();
        }
        let mut pieces: Vec<_> = self
            .ranges
            .range(..range.end)
            .rev()
            .take_while(|&(_, &(end, _))| end > range.start)
            .map(|(&begin, &(end, it))| (begin.max(range.start)..end.min(range.end), it))
            .collect();
        pieces.reverse();
        pieces
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_says_what_a_plain_list_says(
            writes in proptest::collection::vec((0u64..60, 0u64..20, 0u64..5), 0..40),
            from in 0u64..80, length in 0u64..40,
        ) {
            let (mut ledger, mut plain) = (Ledger::default(), [None; 80]);
            for (begin, length, seed) in writes {
                ledger.write(begin..begin + length, Content::Seed(seed));
                plain[begin as usize..(begin + length) as usize].fill(Some(Content::Seed(seed)));
            }
            let range = from..(from + length).min(80);
            let mut told = [None; 80];
            let mut before = 0;
            for (piece, content) in ledger.pieces(range.clone()) {
                prop_assert!(piece.start >= before && !piece.is_empty());
                before = piece.end;
                told[piece.start as usize..piece.end as usize].fill(Some(content));
            }
            let range = from as usize..(range.end as usize).max(from as usize);
            if !range.is_empty() {
                prop_assert_eq!(&told[range.clone()], &plain[range.clone()]);
                prop_assert!(told[..range.start].iter().chain(&told[range.end..]).all(Option::is_none));
            }
        }
    }
}
