//! Bursts: runs of bins whose power is above a multiple of the median.

use serde::{Deserialize, Serialize};

/// The most bursts that an index lists: the first ones. All are counted.
pub const MOST_BURSTS: usize = 10_000;

/// A run of bins with high power.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Burst {
    /// The thread.
    pub thread: u16,
    /// The channel of the thread.
    pub channel: usize,
    /// Seconds from the start of the stream.
    pub begins_s: f64,
    /// The duration.
    pub seconds: f64,
    /// The highest power, as a multiple of the median.
    pub ratio: f64,
}

/// Finds runs in powers of numbered bins: first bin, number of bins, highest power by median.
pub fn find(powers: &[(u64, f64)], threshold: f64) -> Vec<(u64, u64, f64)> {
    let mut sorted: Vec<f64> = powers.iter().map(|(_, power)| *power).collect();
    sorted.sort_by(f64::total_cmp);
    let Some(&median) = sorted.get(sorted.len() / 2) else { return Vec::new() };
    let mut found: Vec<(u64, u64, f64)> = Vec::new();
    // Of a silent channel, nothing is a multiple.
    for (bin, power) in
        powers.iter().filter(|(_, power)| median > 0.0 && *power > threshold * median)
    {
        match found.last_mut() {
            Some((first, count, ratio)) if *first + *count == *bin => {
                *count += 1;
                *ratio = ratio.max(power / median);
            }
            _ => found.push((*bin, 1, power / median)),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_above_the_threshold_are_found_with_their_peak() {
        let mut powers: Vec<(u64, f64)> = (0..100).map(|bin| (bin, 2.0)).collect();
        for (bin, power) in [(10, 9.0), (11, 30.0), (13, 8.5), (40, 8.0)] {
            powers[bin].1 = power;
        }
        powers.remove(12);
        assert_eq!(find(&powers, 4.0), [(10, 2, 15.0), (13, 1, 4.25)]);
        assert_eq!(find(&[], 4.0), []);
        assert_eq!(find(&[(0, 0.0), (1, 0.0), (2, 5.0)], 4.0), []);
    }
}
