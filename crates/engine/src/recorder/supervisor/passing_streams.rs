//! Streams that an undeclared sender opened in one scan of a series, and that no later scan expects.
//!
//! ```text
//! scan      1           2           3           4
//! stream A  heard       heard       silent      silent        expected in all
//! stream B  heard       silent      silent      silent        expected in scan 2, not in 3 and 4
//! ```

use std::collections::{BTreeMap, BTreeSet};

/// What was heard of the streams of a series, scan by scan.
#[derive(Debug, Default)]
pub struct PassingStreams {
    /// The number of scans with frames of each stream.
    heard: BTreeMap<u16, u32>,
    unexpected: BTreeSet<u16>,
}

/// A stream of the scan that ends.
pub struct StreamAtCut<'a> {
    /// The place in the manifest.
    pub number: u16,
    /// The endpoint it comes from.
    pub source: &'a str,
    /// Its frames in this scan.
    pub frames: u64,
    /// True if its endpoint declares it, so that it is always expected.
    pub declared: bool,
}

impl PassingStreams {
    /// Ends a scan. Returns the streams that are not expected from the next scan on and were until now.
    pub fn cut(&mut self, streams: &[StreamAtCut<'_>]) -> Vec<u16> {
        let mut speaking = BTreeSet::new();
        let mut silent = Vec::new();
        for stream in streams {
            let heard = self.heard.entry(stream.number).or_default();
            if stream.frames > 0 {
                *heard += 1;
                self.unexpected.remove(&stream.number);
                speaking.insert(stream.source);
            } else if !stream.declared && *heard == 1 {
                silent.push(stream);
            }
        }
        // An endpoint that is silent altogether has failed.
        let gone = silent.into_iter().filter(|stream| speaking.contains(stream.source));
        gone.map(|stream| stream.number).filter(|number| self.unexpected.insert(*number)).collect()
    }

    /// Returns the streams that the scan after the last cut does not expect.
    pub fn unexpected(&self) -> &BTreeSet<u16> {
        &self.unexpected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The streams that are not expected after each of these scans, given the frames of each stream in each scan.
    fn after_each(scans: &[&[u64]], declared: bool) -> Vec<Vec<u16>> {
        let mut passing = PassingStreams::default();
        let mut told = Vec::new();
        for scan in scans {
            let streams = scan.iter().zip(0..).map(|(&frames, number)| StreamAtCut {
                number,
                source: "udp://:1",
                frames,
                declared,
            });
            passing.cut(&streams.collect::<Vec<_>>());
            told.push(passing.unexpected().iter().copied().collect());
        }
        told
    }

    #[test]
    fn stream_of_one_scan_is_not_expected_after_a_silent_one() {
        let scans: [&[u64]; 4] = [&[100, 30], &[100, 0], &[100, 0], &[100, 7]];
        assert_eq!(after_each(&scans, false), [vec![], vec![1], vec![1], vec![]]);
    }

    #[test]
    fn stream_of_two_scans_and_a_declared_one_stay_expected() {
        let scans: [&[u64]; 4] = [&[100, 30], &[100, 30], &[100, 0], &[100, 0]];
        assert_eq!(after_each(&scans, false), [const { Vec::<u16>::new() }; 4]);
        let scans: [&[u64]; 3] = [&[100, 30], &[100, 0], &[100, 0]];
        assert_eq!(after_each(&scans, true), [const { Vec::<u16>::new() }; 3]);
    }

    #[test]
    fn endpoint_that_falls_silent_altogether_stays_expected() {
        let scans: [&[u64]; 3] = [&[100, 30], &[0, 0], &[0, 0]];
        assert_eq!(after_each(&scans, false), [const { Vec::<u16>::new() }; 3]);
    }
}
