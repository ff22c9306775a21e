//! A set of blocks of a stream, as runs of consecutive sequence numbers.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of sequence numbers. Its size depends on the number of runs, not of blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockSet {
    /// End of each run, exclusive, by its start. Runs neither touch nor overlap.
    runs: BTreeMap<u64, u64>,
}

impl BlockSet {
    /// Adds a run of blocks.
    pub fn insert(&mut self, _run: Range<u64>) {
        todo!()
    }

    /// Returns true if the block is in the set.
    pub fn contains(&self, _sequence: u64) -> bool {
        todo!()
    }

    /// The number of blocks.
    pub fn len(&self) -> u64 {
        todo!()
    }

    /// Returns true if there is no block in the set.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The runs in order.
    pub fn runs(&self) -> impl Iterator<Item = Range<u64>> {
        self.runs.iter().map(|(&start, &end)| start..end)
    }
}
