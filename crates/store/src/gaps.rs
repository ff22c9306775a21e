//! Merges the gap records of a stream into one list.
//!
//! A frame is first recorded as *missing*; if it arrives later, it is recorded again as *late* or *damaged*. A gap may
//! also be in the indexes of two members if its block was written twice. So records are painted over one another: the
//! more specific cause wins, and nothing counts twice.

use std::ops::Range;

use fullbore_core::gap::{Cause, Gap};

/// Causes from the least to the most specific; later ones paint over earlier ones.
const LAYERS: [Cause; 5] =
    [Cause::NotTransferred, Cause::Missing, Cause::Overrun, Cause::Late, Cause::Damaged];

/// Disjoint gaps in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    runs: Vec<Run>,
}

/// A gap as a half-open range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    start: i64,
    end: i64,
    cause: Cause,
}

impl Gaps {
    /// Merges the records, in any order, into one list.
    pub fn paint(records: impl IntoIterator<Item = Gap>) -> Self {
        let mut layers: [Vec<Run>; 5] = Default::default();
        for gap in records.into_iter().filter(|gap| gap.count > 0) {
            let end = gap.first.saturating_add_unsigned(gap.count);
            layers[gap.cause as usize].push(Run { start: gap.first, end, cause: gap.cause });
        }
        let mut runs = Vec::new();
        for cause in LAYERS {
            let over = joined(std::mem::take(&mut layers[cause as usize]));
            runs = painted_over(&runs, &over);
        }
        Self { runs }
    }

    /// The gaps in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Gap> + '_ {
        self.runs.iter().map(|run| Gap {
            first: run.start,
            count: run.end.abs_diff(run.start),
            cause: run.cause,
        })
    }

    /// The number of gaps.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Returns true if there are no gaps.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Frames in the gaps of one cause.
    pub fn total(&self, cause: Cause) -> u64 {
        self.iter().filter(|gap| gap.cause == cause).map(|gap| gap.count).sum()
    }

    /// Frames in all gaps.
    pub fn frames(&self) -> u64 {
        self.iter().map(|gap| gap.count).sum()
    }

    /// The index behind the last gap.
    pub fn end(&self) -> Option<i64> {
        self.runs.last().map(|run| run.end)
    }

    /// The index of the first gap's first frame.
    pub fn start(&self) -> Option<i64> {
        self.runs.first().map(|run| run.start)
    }

    /// Returns true if a frame is in a gap.
    pub fn contains(&self, index: i64) -> bool {
        self.from(index).first().is_some_and(|run| run.start <= index)
    }

    /// The parts of a range that no gap covers.
    pub fn uncovered(&self, range: Range<i64>) -> Vec<Range<i64>> {
        let mut parts = Vec::new();
        let mut at = range.start;
        for run in self.from(range.start).iter().take_while(|run| run.start < range.end) {
            if run.start > at {
                parts.push(at..run.start);
            }
            at = at.max(run.end);
        }
        if at < range.end {
            parts.push(at..range.end);
        }
        parts
    }

    /// Returns the parts of the gaps within a range.
    pub fn clipped(&self, range: Range<i64>) -> Self {
        let inside = self.from(range.start).iter().take_while(|run| run.start < range.end);
        let clip = |run: &Run| Run {
            start: run.start.max(range.start),
            end: run.end.min(range.end),
            cause: run.cause,
        };
        Self { runs: inside.map(clip).filter(|run| run.start < run.end).collect() }
    }

    /// Returns the frames regardless of cause: touching runs are merged.
    pub fn without_causes(&self) -> Vec<Range<i64>> {
        let mut all: Vec<Range<i64>> = Vec::new();
        for run in &self.runs {
            match all.last_mut() {
                Some(last) if last.end == run.start => last.end = run.end,
                _ => all.push(run.start..run.end),
            }
        }
        all
    }

    /// The runs that end behind `index`.
    fn from(&self, index: i64) -> &[Run] {
        &self.runs[self.runs.partition_point(|run| run.end <= index)..]
    }
}

/// Returns the runs sorted, with touching and overlapping runs merged.
fn joined(mut runs: Vec<Run>) -> Vec<Run> {
    runs.sort_unstable_by_key(|run| run.start);
    let mut list: Vec<Run> = Vec::with_capacity(runs.len());
    for run in runs {
        match list.last_mut() {
            Some(last) if run.start <= last.end => last.end = last.end.max(run.end),
            _ => list.push(run),
        }
    }
    list
}

/// Returns all of `over`, and the parts of `under` that it does not cover.
fn painted_over(under: &[Run], over: &[Run]) -> Vec<Run> {
    let mut list = Vec::with_capacity(under.len() + over.len());
    let mut next = 0;
    for run in under {
        let mut at = run.start;
        while next < over.len() && over[next].end <= at {
            next += 1;
        }
        let mut look = next;
        while at < run.end && look < over.len() && over[look].start < run.end {
            if over[look].start > at {
                list.push(Run { start: at, end: over[look].start, cause: run.cause });
            }
            at = at.max(over[look].end);
            look += 1;
        }
        if at < run.end {
            list.push(Run { start: at, end: run.end, cause: run.cause });
        }
    }
    list.extend_from_slice(over);
    list.sort_unstable_by_key(|run| run.start);
    list
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn records() -> impl Strategy<Value = Vec<Gap>> {
        let gap = (0i64..80, 0u64..12, 0usize..4);
        prop::collection::vec(gap, 0..25).prop_map(|list| {
            list.into_iter()
                .map(|(first, count, cause)| Gap { first, count, cause: LAYERS[cause] })
                .collect()
        })
    }

    proptest! {
        #[test]
        fn painting_agrees_with_a_map_of_single_frames(records in records(), probe in 0i64..90) {
            let mut oracle: BTreeMap<i64, usize> = BTreeMap::new();
            for gap in &records {
                let rank = LAYERS.iter().position(|&cause| cause == gap.cause).unwrap();
                for index in gap.first..gap.first + gap.count as i64 {
                    let known = oracle.entry(index).or_insert(rank);
                    *known = rank.max(*known);
                }
            }
            let gaps = Gaps::paint(records);
            let all: BTreeMap<i64, usize> = gaps
                .iter()
                .flat_map(|g| (g.first..g.first + g.count as i64).map(move |i| (i, g.cause)))
                .map(|(i, cause)| (i, LAYERS.iter().position(|&c| c == cause).unwrap()))
                .collect();
            prop_assert_eq!(&all, &oracle);
            prop_assert_eq!(gaps.frames(), oracle.len() as u64, "a frame stands in two gaps");
            prop_assert_eq!(gaps.contains(probe), oracle.contains_key(&probe));
            let range = probe / 2..probe;
            let inside = range.clone().filter(|i| oracle.contains_key(i)).count();
            let free: Vec<i64> = gaps.uncovered(range.clone()).into_iter().flatten().collect();
            let expected: Vec<i64> = range.clone().filter(|i| !oracle.contains_key(i)).collect();
            prop_assert_eq!(free, expected);
            let clipped = gaps.clipped(range.clone());
            prop_assert_eq!(clipped.frames(), inside as u64);
            let joined: Vec<i64> = clipped.without_causes().into_iter().flatten().collect();
            prop_assert_eq!(joined.len(), inside);
        }
    }

    #[test]
    fn absurd_records_saturate() {
        let gaps = Gaps::paint([Gap { first: 5, count: u64::MAX, cause: Cause::Missing }]);
        assert_eq!(gaps.end(), Some(i64::MAX));
        assert!(gaps.contains(6));
    }
}
