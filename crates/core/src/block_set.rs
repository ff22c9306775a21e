//! A set of blocks of a stream, as runs of consecutive sequence numbers.
//!
//! ```text
//! blocks | 0 1 2 3 | . . | 6 7 | . | 9 |        runs: 0…4, 6…8, 9…10, ends exclusive
//! ```
//!
//! Blocks are recorded, sent and synced nearly in order, so a set of millions of blocks has few runs.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of sequence numbers. Its size depends on the number of runs, not of blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockSet {
    /// End of each run, exclusive, by its start. Runs are not empty, and neither touch nor overlap.
    runs: BTreeMap<u64, u64>,
    /// The number of blocks in all runs.
    blocks: u64,
}

impl BlockSet {
    /// Adds a run of blocks. Blocks that are in the set already stay there.
    pub fn insert(&mut self, run: Range<u64>) {
        if run.is_empty() {
            return;
        }
        let Range { mut start, mut end } = run;
        // The runs that touch the new one, the last first: they do not overlap, so their ends are in order too.
        while let Some((&other_start, &other_end)) = self.runs.range(..=end).next_back() {
            if other_end < start {
                break;
            }
            self.runs.remove(&other_start);
            self.blocks -= other_end - other_start;
            (start, end) = (start.min(other_start), end.max(other_end));
        }
        self.runs.insert(start, end);
        self.blocks += end - start;
    }

    /// Removes the blocks of a run, those that are in the set.
    pub fn remove(&mut self, run: Range<u64>) {
        if run.is_empty() {
            return;
        }
        while let Some((&start, &end)) = self.runs.range(..run.end).next_back() {
            if end <= run.start {
                break;
            }
            self.runs.remove(&start);
            if start < run.start {
                self.runs.insert(start, run.start);
            }
            if end > run.end {
                self.runs.insert(run.end, end);
            }
            self.blocks -= end.min(run.end) - start.max(run.start);
        }
    }

    /// Returns true if the block is in the set.
    pub fn contains(&self, sequence: u64) -> bool {
        self.runs.range(..=sequence).next_back().is_some_and(|(_, &end)| sequence < end)
    }

    /// Returns true if a block of the run is in the set.
    pub fn intersects(&self, run: Range<u64>) -> bool {
        self.within(run).next().is_some()
    }

    /// The number of blocks.
    pub fn len(&self) -> u64 {
        self.blocks
    }

    /// Returns true if there is no block in the set.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The block with the smallest sequence.
    pub fn first(&self) -> Option<u64> {
        self.runs.keys().next().copied()
    }

    /// The runs in order.
    pub fn runs(&self) -> impl Iterator<Item = Range<u64>> {
        self.runs.iter().map(|(&start, &end)| start..end)
    }

    /// The parts of a run that are in the set, in order.
    pub fn within(&self, run: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let before = self.runs.range(..run.start).next_back();
        // `BTreeMap::range` panics if a range ends before it starts.
        let after = self.runs.range(run.start..run.end.max(run.start));
        let parts = before.into_iter().chain(after);
        parts.filter_map(move |(&start, &end)| {
            let part = start.max(run.start)..end.min(run.end);
            (!part.is_empty()).then_some(part)
        })
    }

    /// The parts of a run that are not in the set, in order.
    pub fn missing_in(&self, run: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        // Each part ends where the next run of the set begins, and the last one at the end.
        let ends = self.within(run.clone()).chain(std::iter::once(run.end..run.end));
        ends.scan(run.start, |from, next| {
            let part = *from..next.start;
            *from = next.end;
            Some(part)
        })
        .filter(|part| !part.is_empty())
    }
}

impl Extend<Range<u64>> for BlockSet {
    fn extend<T: IntoIterator<Item = Range<u64>>>(&mut self, runs: T) {
        runs.into_iter().for_each(|run| self.insert(run));
    }
}

impl FromIterator<Range<u64>> for BlockSet {
    fn from_iter<T: IntoIterator<Item = Range<u64>>>(runs: T) -> Self {
        let mut set = Self::default();
        set.extend(runs);
        set
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// Blocks 0 to this are used by the property tests.
    const BLOCKS: u64 = 64;

    #[test]
    fn runs_that_touch_become_one() {
        let mut set: BlockSet = [0..4, 6..8, 9..10].into_iter().collect();
        assert_eq!(set.runs().collect::<Vec<_>>(), [0..4, 6..8, 9..10]);
        set.insert(8..9);
        assert_eq!(set.runs().collect::<Vec<_>>(), [0..4, 6..10]);
        set.insert(4..6);
        assert!(set.runs().eq(std::iter::once(0..10)));
        assert_eq!(set.len(), 10);
    }

    #[test]
    fn empty_and_reversed_runs_add_and_remove_nothing() {
        let reversed = Range { start: 7, end: 3 };
        let mut set = BlockSet::default();
        set.insert(5..5);
        set.insert(reversed.clone());
        assert_eq!((set.is_empty(), set.first()), (true, None));
        set.insert(0..10);
        set.remove(5..5);
        set.remove(reversed.clone());
        assert_eq!((set.len(), set.intersects(reversed.clone())), (10, false));
        assert_eq!(set.missing_in(reversed).count(), 0);
    }

    #[test]
    fn sets_reach_to_the_last_number() {
        let mut set = BlockSet::default();
        set.insert(0..u64::MAX);
        assert_eq!((set.len(), set.contains(u64::MAX - 1)), (u64::MAX, true));
        assert!(!set.contains(u64::MAX));
        set.remove(3..u64::MAX);
        assert!(set.missing_in(0..u64::MAX).eq(std::iter::once(3..u64::MAX)));
    }

    fn blocks(runs: impl IntoIterator<Item = Range<u64>>) -> BTreeSet<u64> {
        runs.into_iter().flatten().collect()
    }

    proptest! {
        #[test]
        fn set_equals_a_set_of_numbers(
            steps in prop::collection::vec((any::<bool>(), 0..BLOCKS, 0..BLOCKS / 4), 0..40),
            asked in (0..BLOCKS, 0..BLOCKS),
        ) {
            let (mut set, mut model) = (BlockSet::default(), BTreeSet::new());
            for (is_insert, start, length) in steps {
                let run = start..start + length;
                if is_insert {
                    set.insert(run.clone());
                    model.extend(run);
                } else {
                    set.remove(run.clone());
                    model.retain(|block| !run.contains(block));
                }
                let runs: Vec<_> = set.runs().collect();
                prop_assert!(runs.iter().all(|run| !run.is_empty()));
                prop_assert!(runs.windows(2).all(|pair| pair[0].end < pair[1].start), "{runs:?}");
                prop_assert_eq!(&blocks(runs), &model);
                prop_assert_eq!(set.len(), model.len() as u64);
            }
            prop_assert_eq!(set.first(), model.first().copied());
            for block in 0..2 * BLOCKS {
                prop_assert_eq!(set.contains(block), model.contains(&block));
            }
            let asked = asked.0..asked.1;
            let (inside, outside): (BTreeSet<u64>, BTreeSet<u64>) =
                asked.clone().partition(|block| model.contains(block));
            prop_assert_eq!(set.intersects(asked.clone()), !inside.is_empty());
            prop_assert_eq!(&blocks(set.within(asked.clone())), &inside);
            prop_assert_eq!(&blocks(set.missing_in(asked)), &outside);
            prop_assert_eq!(set.runs().collect::<BlockSet>(), set);
        }
    }
}
