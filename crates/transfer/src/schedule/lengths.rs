//! The lengths of the blocks of a stream: one entry for each run of equal lengths.

use std::collections::BTreeMap;
use std::ops::Range;

/// The length of each block of a set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Lengths {
    /// By the first block of each run.
    runs: BTreeMap<u64, Run>,
}

/// Blocks of one length. A run does not touch another one of the same length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    /// The first block that is not in the run.
    end: u64,
    /// The length of each block.
    bytes: u32,
}

impl Lengths {
    /// Adds a block that is not in the set.
    pub(super) fn insert(&mut self, sequence: u64, bytes: u32) {
        let (mut start, mut end) = (sequence, sequence + 1);
        if let Some((&before, run)) = self.runs.range(..sequence).next_back()
            && (run.end, run.bytes) == (start, bytes)
        {
            start = before;
        }
        if let Some(after) = self.runs.get(&end).filter(|after| after.bytes == bytes).copied() {
            self.runs.remove(&end);
            end = after.end;
        }
        self.runs.insert(start, Run { end, bytes });
    }

    /// Returns the length of a block.
    pub(super) fn get(&self, sequence: u64) -> Option<u32> {
        let (_, run) = self.runs.range(..=sequence).next_back()?;
        (sequence < run.end).then_some(run.bytes)
    }

    /// Returns the bytes of the blocks of a run, those that are in the set.
    pub(super) fn sum(&self, run: Range<u64>) -> u64 {
        let mut sum = 0;
        for (&start, part) in self.runs.range(..run.end).rev() {
            if part.end <= run.start {
                break;
            }
            let blocks = part.end.min(run.end) - start.max(run.start);
            sum += blocks * u64::from(part.bytes);
        }
        sum
    }

    /// Removes the blocks of a run, those that are in the set.
    pub(super) fn remove(&mut self, run: Range<u64>) {
        while let Some((&start, &part)) = self.runs.range(..run.end).next_back() {
            if part.end <= run.start {
                break;
            }
            self.runs.remove(&start);
            if start < run.start {
                self.runs.insert(start, Run { end: run.start, ..part });
            }
            if part.end > run.end {
                self.runs.insert(run.end, part);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::btree_map::Entry;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn equal_lengths_are_one_entry() {
        let mut lengths = Lengths::default();
        for sequence in (0..1000).step_by(2).chain((1..1000).step_by(2)) {
            lengths.insert(sequence, 4096);
        }
        lengths.insert(1000, 17);
        assert_eq!(lengths.runs.len(), 2);
        assert_eq!(lengths.sum(0..2000), 4_096_017);
        lengths.remove(10..20);
        assert_eq!((lengths.runs.len(), lengths.get(15)), (3, None));
    }

    proptest! {
        #[test]
        fn lengths_equal_a_map(
            steps in prop::collection::vec((0u64..30, 0u64..10, 0u32..3, any::<bool>()), 0..60),
            asked in (0u64..30, 0u64..15),
        ) {
            let (mut lengths, mut model) = (Lengths::default(), BTreeMap::new());
            for (start, count, bytes, is_insert) in steps {
                if !is_insert {
                    lengths.remove(start..start + count);
                    model.retain(|block, _| !(start..start + count).contains(block));
                } else if let Entry::Vacant(vacant) = model.entry(start) {
                    lengths.insert(start, bytes);
                    vacant.insert(bytes);
                }
                for block in 0..45 {
                    prop_assert_eq!(lengths.get(block), model.get(&block).copied());
                }
            }
            let asked = asked.0..asked.0 + asked.1;
            let sum = model.range(asked.clone()).map(|(_, bytes)| u64::from(*bytes)).sum::<u64>();
            prop_assert_eq!(lengths.sum(asked), sum);
        }
    }
}
