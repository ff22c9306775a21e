//! The samples that are not there, as a list with a bound.

use serde::Serialize;

/// The largest number of gaps in a list.
const MOST_GAPS: usize = 100_000;

/// A run of samples that are not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SampleGap {
    /// The number of its first sample in the file, counted from 0.
    pub first: u64,
    /// Samples of each channel.
    pub count: u64,
}

/// The gaps of a stream, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampleGaps {
    /// The first 100 000 gaps.
    pub listed: Vec<SampleGap>,
    /// The number of gaps after them.
    pub unlisted: u64,
    /// The sample behind the latest gap.
    end: u64,
}

impl SampleGaps {
    /// Adds samples. They continue the gap before them if none was appended in between.
    pub fn add(&mut self, first: u64, count: u64) {
        let continues = self.end == first && !self.listed.is_empty();
        self.end = first.saturating_add(count);
        let is_full = self.listed.len() == MOST_GAPS;
        match self.listed.last_mut() {
            Some(_) if continues && self.unlisted > 0 => {}
            Some(gap) if continues => gap.count = gap.count.saturating_add(count),
            _ if is_full => self.unlisted += 1,
            _ => self.listed.push(SampleGap { first, count }),
        }
    }

    /// Leaves what is before a sample. Unlisted gaps stay counted.
    pub fn cut(&mut self, end: u64) {
        self.listed.retain(|gap| gap.first < end);
        if let Some(gap) = self.listed.last_mut() {
            gap.count = gap.count.min(end - gap.first);
        }
        self.end = self.end.min(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_runs_are_one_gap_and_the_list_has_a_bound() {
        let mut gaps = SampleGaps::default();
        gaps.add(0, 2);
        gaps.add(2, 3);
        gaps.add(6, 1);
        let gap = |first, count| SampleGap { first, count };
        assert_eq!(gaps.listed, [gap(0, 5), gap(6, 1)]);
        let mut cut = gaps.clone();
        cut.cut(4);
        assert_eq!(cut.listed, [gap(0, 4)]);
        for number in 0..MOST_GAPS as u64 {
            gaps.add(10 + 2 * number, 1);
        }
        assert_eq!((gaps.listed.len(), gaps.unlisted), (MOST_GAPS, 2));
        gaps.add(10 + 2 * MOST_GAPS as u64 - 1, 1);
        assert_eq!(gaps.unlisted, 2, "it continues a gap that is not listed");
    }
}
