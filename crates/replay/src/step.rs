//! How far streams that are sent together are from being in step.
//!
//! A round is over when each stream has sent once more. Its spread is the largest lateness of a stream in it minus the
//! smallest. Streams that take turns within the time of a frame have due times that differ by as much, so this is not part
//! of the spread.

use hdrhistogram::Histogram;
use serde::Serialize;

/// The longest spread that the histogram resolves: one minute.
const WIDEST_NS: u64 = 60_000_000_000;

/// The spread of all rounds.
#[derive(Clone, Debug)]
pub struct InStep {
    /// The lateness of each stream in this round.
    late_ns: Vec<Option<u64>>,
    missing: usize,
    histogram: Histogram<u64>,
}

/// The statistics of the spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StepSummary {
    /// The number of rounds.
    pub rounds: u64,
    /// The median spread.
    pub median_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
    /// The largest spread.
    pub max_ns: u64,
}

impl InStep {
    /// Streams that have sent nothing yet.
    pub fn new(streams: usize) -> Self {
        let histogram = Histogram::new_with_bounds(1, WIDEST_NS, 2);
        InStep {
            late_ns: vec![None; streams],
            missing: streams,
            histogram: histogram.expect("the bounds are constants in order"),
        }
    }

    /// Records that a stream sent a packet `late_ns` after it was due. The first packet in a round counts.
    #[inline]
    pub fn sent(&mut self, stream: usize, late_ns: u64) {
        if self.late_ns[stream].is_some() {
            return;
        }
        self.late_ns[stream] = Some(late_ns);
        self.missing -= 1;
        if self.missing == 0 {
            let all = || self.late_ns.iter().flatten();
            let (least, most) = (all().min().unwrap_or(&0), all().max().unwrap_or(&0));
            self.histogram.saturating_record(most - least);
            self.missing = self.late_ns.len();
            self.late_ns.fill(None);
        }
    }

    /// Returns the statistics for the report.
    pub fn summary(&self) -> StepSummary {
        StepSummary {
            rounds: self.histogram.len(),
            median_ns: self.histogram.value_at_quantile(0.5),
            p99_ns: self.histogram.value_at_quantile(0.99),
            max_ns: self.histogram.max(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_of_a_round_is_the_largest_lateness_less_the_smallest() {
        let mut step = InStep::new(3);
        for (stream, late_ns) in [(0, 100), (1, 150), (0, 900), (2, 120)] {
            step.sent(stream, late_ns);
        }
        assert_eq!((step.summary().rounds, step.summary().max_ns), (1, 50));
        for stream in 0..2 {
            step.sent(stream, 7);
        }
        assert_eq!(step.summary().rounds, 1, "stream 2 has not sent yet");
        step.sent(2, 7);
        assert_eq!((step.summary().rounds, step.summary().median_ns), (2, 0));
    }
}
