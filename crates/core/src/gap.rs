//! Gaps of missing frames: single ones and sets.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

/// The reason why an expected frame is not in the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cause {
    /// The frame never reached this host.
    Missing,
    /// The frame arrived while no block was free.
    Overrun,
    /// The frame failed its own check.
    Damaged,
    /// The frame arrived after its position was written.
    Late,
    /// The frame is in the recording that this copy was made from, and has not arrived here.
    #[serde(rename = "not-transferred")]
    NotTransferred,
}

impl Cause {
    /// All causes, by their number in an index record.
    pub const ALL: [Self; 5] =
        [Self::Missing, Self::Overrun, Self::Damaged, Self::Late, Self::NotTransferred];
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Cause::Missing => "missing",
            Cause::Overrun => "overrun",
            Cause::Damaged => "damaged",
            Cause::Late => "late",
            Cause::NotTransferred => "not transferred",
        })
    }
}

/// A run of frames that are not in the recording, with one cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Gap {
    /// Index of the first missing frame.
    pub first: i64,
    /// The number of frames.
    pub count: u64,
    /// The cause.
    pub cause: Cause,
}

/// A set of indices, kept as disjoint, non-touching half-open ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    /// start → end
    ranges: BTreeMap<i64, i64>,
    total: u64,
}

impl Ranges {
    /// Returns the number of indices in the set.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the number of runs.
    pub fn runs(&self) -> usize {
        self.ranges.len()
    }

    /// Returns the runs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Range<i64>> + '_ {
        self.ranges.iter().map(|(&start, &end)| start..end)
    }

    /// True if `index` is in the set.
    pub fn contains(&self, index: i64) -> bool {
        self.ranges.range(..=index).next_back().is_some_and(|(_, &end)| index < end)
    }

    /// Adds a run; indices already in the set are not counted twice.
    pub fn insert(&mut self, run: Range<i64>) {
        if run.is_empty() {
            return;
        }
        let (mut start, mut end) = (run.start, run.end);
        while let Some((&low, &high)) = self.ranges.range(..=end).next_back() {
            if high < start {
                break;
            }
            self.ranges.remove(&low);
            self.total -= (high - low) as u64;
            (start, end) = (start.min(low), end.max(high));
        }
        self.ranges.insert(start, end);
        self.total += (end - start) as u64;
    }

    /// Removes one index; returns true if it was in the set.
    pub fn remove(&mut self, index: i64) -> bool {
        let Some((&start, &end)) = self.ranges.range(..=index).next_back() else { return false };
        if index >= end {
            return false;
        }
        self.ranges.remove(&start);
        if start < index {
            self.ranges.insert(start, index);
        }
        if index + 1 < end {
            self.ranges.insert(index + 1, end);
        }
        self.total -= 1;
        true
    }

    /// Removes and returns the highest run.
    pub fn pop_last(&mut self) -> Option<Range<i64>> {
        let (start, end) = self.ranges.pop_last()?;
        self.total -= (end - start) as u64;
        Some(start..end)
    }

    /// Returns the end of the run that begins at `start`, or `start` if there is none.
    pub fn end_of_run_from(&self, start: i64) -> i64 {
        match self.ranges.range(..=start).next_back() {
            Some((_, &end)) if end > start => end,
            _ => start,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ranges_behave_like_a_set_of_integers(
            steps in prop::collection::vec((any::<bool>(), 0i64..60, 0i64..9), 0..80)
        ) {
            let mut ranges = Ranges::default();
            let mut oracle = BTreeSet::new();
            for (insert, start, length) in steps {
                if insert {
                    ranges.insert(start..start + length);
                    oracle.extend(start..start + length);
                } else {
                    prop_assert_eq!(ranges.remove(start), oracle.remove(&start));
                }
                prop_assert_eq!(ranges.total(), oracle.len() as u64);
                let listed: Vec<i64> = ranges.iter().flatten().collect();
                prop_assert_eq!(listed, oracle.iter().copied().collect::<Vec<_>>());
                for pair in ranges.iter().collect::<Vec<_>>().windows(2) {
                    prop_assert!(pair[0].end < pair[1].start, "touching runs were not joined");
                }
            }
            while let Some(run) = ranges.pop_last() {
                prop_assert_eq!(oracle.split_off(&run.start).into_iter().collect::<Vec<_>>(), run.collect::<Vec<_>>());
                prop_assert_eq!(ranges.total(), oracle.len() as u64);
            }
        }
    }
}
