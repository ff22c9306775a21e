//! Analyses a trace of completions: rate over time and position, stalls, worst windows.

use std::collections::BTreeMap;

use fullbore_linux::ring_sim::Turn;
use hdrhistogram::Histogram;

use super::Done;
use crate::bench::result::{Bin, Bucket, PerHour, Percentile, Stalls, Window};

const NS_PER_S: f64 = 1e9;
const NS_PER_MS: f64 = 1e6;

/// The approximate number of bins of a curve.
const BINS: u64 = 240;

/// The shortest bin of time.
const SHORTEST_BIN_S: f64 = 0.05;

/// Lengths of the windows whose worst rate is reported.
const WINDOWS_S: [f64; 7] = [0.01, 0.1, 1.0, 5.0, 10.0, 60.0, 600.0];

/// The percentiles reported, as far as there are enough writes.
const PERCENTILES: [f64; 7] = [50.0, 90.0, 99.0, 99.9, 99.99, 99.999, 99.9999];

/// Writes longer than these limits, in milliseconds, are counted.
const LONG_MS: [f64; 4] = [10.0, 50.0, 100.0, 500.0];

/// The longest time in the histogram, one hour in microseconds.
const LONGEST_US: u64 = 3_600_000_000;

/// The fewest blocks per bin of position: blocks that complete at once give no rate.
const BIN_BLOCKS: u64 = 8;

/// The shortest duration of a bin, as a share of the usual one: writes that complete at once in a shorter one show no
/// rate.
const LEAST_OF_USUAL: f64 = 0.25;

/// The first edge of the histogram in milliseconds; each following edge is √2 times higher.
const FIRST_EDGE_MS: f64 = 0.05;

/// The times at which each block was passed to the target and at which its memory was free again. A writer releases a
/// chunk's blocks only in order.
pub fn turns(trace: &[Done], in_order: bool) -> Vec<Turn> {
    let turn = |done: &Done, to_ns: u64| Turn {
        from_ns: done.at_ns.saturating_sub(done.took_ns),
        to_ns,
        bytes: done.bytes.into(),
    };
    if !in_order {
        return trace.iter().map(|done| turn(done, done.at_ns)).collect();
    }
    let mut chunks: BTreeMap<(usize, u32), Vec<&Done>> = BTreeMap::new();
    for done in trace {
        chunks.entry((done.member, done.chunk)).or_default().push(done);
    }
    let mut turns = Vec::with_capacity(trace.len());
    for mut blocks in chunks.into_values() {
        blocks.sort_by_key(|done| done.offset);
        let mut free_ns = 0;
        for done in blocks {
            free_ns = done.at_ns.max(free_ns);
            turns.push(turn(done, free_ns));
        }
    }
    turns
}

/// Rate over time, in bins of equal length. A rest that is too short for a bin of its own belongs to the last one.
pub fn over_time(trace: &[Done]) -> Vec<Bin> {
    let Some(last) = trace.last() else { return vec![] };
    let end_s = last.at_ns as f64 / NS_PER_S;
    let width_s = round_up(end_s / BINS as f64).max(SHORTEST_BIN_S);
    let count = (end_s / width_s - LEAST_OF_USUAL).ceil().max(1.0) as usize;
    let mut bins: Vec<Bin> = (0..count)
        .map(|n| Bin { at_s: n as f64 * width_s, seconds: width_s, ..Bin::default() })
        .collect();
    bins[count - 1].seconds = end_s - bins[count - 1].at_s;
    for done in trace {
        let n = (done.at_ns as f64 / NS_PER_S / width_s) as usize;
        let bin = &mut bins[n.min(count - 1)];
        bin.bytes += u64::from(done.bytes);
        bin.slowest_ms = bin.slowest_ms.max(done.took_ns as f64 / NS_PER_MS);
    }
    let mut position = 0;
    for bin in &mut bins {
        bin.position = position;
        bin.rate = bin.bytes as f64 / bin.seconds.max(1e-9);
        position += bin.bytes;
    }
    bins
}

/// Rate over position, in bins of about equal size. Bins with a very short duration are merged: blocks that complete at
/// once do not show the rate at which they were written.
pub fn over_position(trace: &[Done]) -> Vec<Bin> {
    let Some(last) = trace.last() else { return vec![] };
    let bytes: u64 = trace.iter().map(|done| u64::from(done.bytes)).sum();
    let block = trace.iter().map(|done| u64::from(done.bytes)).max().unwrap_or(0);
    let size = (bytes / BINS).max(BIN_BLOCKS * block);
    let usual_s = last.at_ns as f64 / NS_PER_S * size as f64 / bytes.max(1) as f64;
    let is_enough = |bin: &Bin| bin.bytes >= size && bin.seconds >= usual_s * LEAST_OF_USUAL;
    let (mut bins, mut bin, mut begun_ns) = (vec![], Bin::default(), 0u64);
    for done in trace {
        bin.bytes += u64::from(done.bytes);
        bin.slowest_ms = bin.slowest_ms.max(done.took_ns as f64 / NS_PER_MS);
        bin.seconds = (done.at_ns - begun_ns) as f64 / NS_PER_S;
        if is_enough(&bin) {
            let (position, at_s) = (bin.position + bin.bytes, done.at_ns as f64 / NS_PER_S);
            bins.push(bin);
            (bin, begun_ns) = (Bin { position, at_s, ..Bin::default() }, done.at_ns);
        }
    }
    match bins.last_mut() {
        // The rest is too small for a bin of its own.
        Some(before) if bin.bytes > 0 => {
            before.bytes += bin.bytes;
            before.seconds += bin.seconds;
            before.slowest_ms = before.slowest_ms.max(bin.slowest_ms);
        }
        Some(_) => {}
        None => bins.push(bin),
    }
    for bin in &mut bins {
        bin.rate = bin.bytes as f64 / bin.seconds.max(1e-9);
    }
    bins
}

/// 1, 2 or 5 times a power of ten.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 {
        return 0.0;
    }
    let power = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|step| step * power)
        .into_iter()
        .find(|&r| r >= value)
        .unwrap_or(value)
}

/// The worst rate in any window of each length that fits into the run twice.
pub fn worst_windows(trace: &[Done]) -> Vec<Window> {
    let end_ns = trace.last().map_or(0, |last| last.at_ns);
    let fits = |seconds: &f64| seconds * NS_PER_S * 2.0 <= end_ns as f64;
    WINDOWS_S.into_iter().filter(fits).map(|seconds| worst_window(trace, seconds, end_ns)).collect()
}

/// The window with the fewest bytes begins right after a completion, or at the start of the run.
fn worst_window(trace: &[Done], seconds: f64, end_ns: u64) -> Window {
    let length_ns = (seconds * NS_PER_S) as u64;
    let mut worst = Window { seconds, rate: f64::INFINITY, at_s: 0.0 };
    let (mut bytes, mut behind) = (0u64, 0);
    // Completions `first..behind` lie in the window that begins at `begin_ns`.
    for first in 0..=trace.len() {
        let begin_ns = if first == 0 { 0 } else { trace[first - 1].at_ns };
        if first > 0 && behind >= first {
            bytes -= u64::from(trace[first - 1].bytes);
        }
        behind = behind.max(first);
        if begin_ns + length_ns > end_ns {
            break;
        }
        while behind < trace.len() && trace[behind].at_ns <= begin_ns + length_ns {
            bytes += u64::from(trace[behind].bytes);
            behind += 1;
        }
        let rate = bytes as f64 / seconds;
        if rate < worst.rate {
            worst = Window { seconds, rate, at_s: begin_ns as f64 / NS_PER_S };
        }
    }
    worst
}

/// The durations of block writes, and the longest time without a completion.
pub fn stalls(trace: &[Done]) -> Stalls {
    let mut times = Histogram::<u64>::new_with_bounds(1, LONGEST_US, 3).expect("bounds in order");
    for done in trace {
        times.saturating_record((done.took_ns / 1000).max(1));
    }
    let ms = |done: &Done| done.took_ns as f64 / NS_PER_MS;
    let longest = trace.iter().max_by_key(|done| done.took_ns);
    let hours = trace.last().map_or(0.0, |last| last.at_ns as f64 / NS_PER_S / 3600.0);
    let (longest_silence_ms, longest_silence_at_s) = longest_silence(trace);
    // At least one write must lie above the percentile; a little less than 100, as 99.9 has no finite binary form.
    let enough = |percent: &f64| trace.len() as f64 * (100.0 - percent) > 99.0;
    Stalls {
        writes: trace.len() as u64,
        percentiles: PERCENTILES
            .into_iter()
            .filter(enough)
            .map(|percent| {
                let ms = times.value_at_quantile(percent / 100.0) as f64 / 1000.0;
                Percentile { percent, ms }
            })
            .collect(),
        longest_ms: longest.map_or(0.0, ms),
        longest_at_s: longest.map_or(0.0, |done| done.at_ns as f64 / NS_PER_S),
        histogram: histogram(trace),
        per_hour: LONG_MS
            .into_iter()
            .map(|over_ms| {
                let seen = trace.iter().filter(|done| ms(done) > over_ms).count() as u64;
                let per_hour = if hours > 0.0 { seen as f64 / hours } else { 0.0 };
                PerHour { over_ms, seen, per_hour }
            })
            .collect(),
        longest_silence_ms,
        longest_silence_at_s,
    }
}

fn longest_silence(trace: &[Done]) -> (f64, f64) {
    let (mut longest_ns, mut since_ns, mut last_ns) = (0, 0, 0);
    for done in trace {
        if done.at_ns - last_ns > longest_ns {
            (longest_ns, since_ns) = (done.at_ns - last_ns, last_ns);
        }
        last_ns = done.at_ns;
    }
    (longest_ns as f64 / NS_PER_MS, since_ns as f64 / NS_PER_S)
}

/// Counts by ranges, from the first non-empty one to the last.
fn histogram(trace: &[Done]) -> Vec<Bucket> {
    let edge = |n: i32| FIRST_EDGE_MS * 2f64.powf(f64::from(n) / 2.0);
    let place = |done: &Done| {
        let ms = done.took_ns as f64 / NS_PER_MS;
        ((ms / FIRST_EDGE_MS).log2() * 2.0).floor().max(-1.0) as i32
    };
    let mut counts: BTreeMap<i32, u64> = BTreeMap::new();
    for done in trace {
        *counts.entry(place(done)).or_default() += 1;
    }
    let (Some(&first), Some(&last)) = (counts.keys().next(), counts.keys().next_back()) else {
        return vec![];
    };
    let from_ms = |n: i32| if n < 0 { 0.0 } else { edge(n) };
    (first..=last)
        .map(|n| Bucket {
            from_ms: from_ms(n),
            to_ms: edge(n + 1),
            writes: counts.get(&n).copied().unwrap_or(0),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// One 1 MB block per millisecond, and none from 500 ms to 800 ms.
    fn stalling() -> Vec<Done> {
        (0..1000u64)
            .map(|n| {
                let at_ms = n + 1 + if n >= 500 { 300 } else { 0 };
                let took_ms = if (500..508).contains(&n) { 308 } else { 8 };
                Done {
                    member: 0,
                    chunk: (n / 100) as u32,
                    offset: n % 100 * 1_000_000,
                    bytes: 1_000_000,
                    at_ns: at_ms * 1_000_000,
                    took_ns: took_ms * 1_000_000,
                }
            })
            .collect()
    }

    #[test]
    fn a_stall_shows_in_every_figure() {
        let trace = stalling();
        let stalls = stalls(&trace);
        assert_eq!((stalls.writes, stalls.longest_ms), (1000, 308.0));
        assert!(
            (stalls.longest_silence_ms - 301.0).abs() < 1e-9 && stalls.longest_silence_at_s == 0.5
        );
        let percentiles: Vec<f64> = stalls.percentiles.iter().map(|p| p.percent).collect();
        assert_eq!(percentiles, [50.0, 90.0, 99.0, 99.9]);
        assert!((stalls.percentiles[0].ms - 8.0).abs() < 0.1, "{:?}", stalls.percentiles);
        assert!((stalls.percentiles[3].ms - 308.0).abs() < 1.0);
        assert_eq!(stalls.per_hour[2].seen, 8);
        let counted: u64 = stalls.histogram.iter().map(|bucket| bucket.writes).sum();
        assert_eq!(counted, 1000);
        for bucket in &stalls.histogram {
            assert!(bucket.from_ms < bucket.to_ms);
        }
        let windows = worst_windows(&trace);
        assert_eq!(windows[0].rate, 0.0, "10 ms of the stall");
        assert_eq!(windows[1].rate, 0.0, "100 ms of it");
        assert_eq!(windows.len(), 2, "a second does not fit twice");
        let time = over_time(&trace);
        assert!(time.iter().any(|bin| bin.bytes == 0), "a bin within the stall");
    }

    #[test]
    fn blocks_are_let_go_in_the_order_of_their_chunk() {
        let mut trace = stalling();
        trace.truncate(3);
        trace[0].at_ns = 9_000_000;
        trace.sort_by_key(|done| done.at_ns);
        trace.iter_mut().for_each(|done| done.took_ns = 1_500_000);
        let times = |in_order| -> Vec<(u64, u64)> {
            let mut turns = turns(&trace, in_order);
            turns.sort_by_key(|turn| turn.from_ns);
            turns.iter().map(|turn| (turn.from_ns / 100_000, turn.to_ns / 100_000)).collect()
        };
        assert_eq!(times(true), [(5, 90), (15, 90), (75, 90)]);
        assert_eq!(times(false), [(5, 20), (15, 30), (75, 90)]);
    }

    #[test]
    fn nothing_written_has_no_figures() {
        assert_eq!(stalls(&[]).writes, 0);
        assert!(over_time(&[]).is_empty() && over_position(&[]).is_empty());
        assert!(worst_windows(&[]).is_empty());
    }

    #[test]
    fn blocks_that_complete_at_once_make_no_peak() {
        let done = |n: u64| {
            // One block per millisecond; the last eight all at once.
            let at_ns = n.min(992) * 1_000_000 + n;
            Done { member: 0, chunk: 0, offset: n << 22, bytes: 4 << 20, at_ns, took_ns: 1_000_000 }
        };
        let trace: Vec<Done> = (1..=1000).map(done).collect();
        let bins = over_position(&trace);
        let fastest = bins.iter().map(|bin| bin.rate).fold(0.0, f64::max);
        let usual = f64::from(4 << 20) / 1e-3;
        assert!(bins.len() > 100 && fastest <= usual / LEAST_OF_USUAL, "{fastest} of {usual}");
    }

    #[test]
    fn blocks_that_complete_at_once_at_the_end_make_no_peak_over_time() {
        let done = |n: u64| {
            // One block per millisecond; the last eight all at once, just after a bin ends.
            let at_ns = if n > 992 { 1_000_000_000 + n } else { n * 1_000_000 };
            Done { member: 0, chunk: 0, offset: n << 22, bytes: 4 << 20, at_ns, took_ns: 1_000_000 }
        };
        let bins = over_time(&(1..=1000).map(done).collect::<Vec<_>>());
        let fastest = bins.iter().map(|bin| bin.rate).fold(0.0, f64::max);
        assert!(fastest <= f64::from(4 << 20) / 1e-3 * 1.05, "{fastest} in {:?}", bins.last());
        let seconds: f64 = bins.iter().map(|bin| bin.seconds).sum();
        assert!((seconds - 1.000_001).abs() < 1e-6, "{seconds}");
    }

    fn any_trace() -> impl Strategy<Value = Vec<Done>> {
        prop::collection::vec((0u64..50_000_000, 1u32..9_000_000, 1u64..1_000_000_000), 1..300)
            .prop_map(|steps| {
                let mut at_ns = 0;
                let done = steps.into_iter().map(|(wait, bytes, took_ns)| {
                    at_ns += wait;
                    Done { member: 0, chunk: 0, offset: at_ns, bytes, at_ns, took_ns }
                });
                done.collect()
            })
    }

    proptest! {
        #[test]
        fn bins_hold_every_byte_once(trace in any_trace()) {
            let bytes: u64 = trace.iter().map(|done| u64::from(done.bytes)).sum();
            for bins in [over_time(&trace), over_position(&trace)] {
                prop_assert_eq!(bins.iter().map(|bin| bin.bytes).sum::<u64>(), bytes);
                let mut position = 0;
                for bin in bins {
                    prop_assert_eq!(bin.position, position);
                    position += bin.bytes;
                }
            }
        }

        #[test]
        fn no_window_is_worse_than_the_worst(trace in any_trace(), seconds in 0.01..0.5f64) {
            let end_ns = trace.last().unwrap().at_ns;
            prop_assume!(seconds * NS_PER_S <= end_ns as f64);
            let worst = worst_window(&trace, seconds, end_ns);
            let length_ns = (seconds * NS_PER_S) as u64;
            for step in 0..50 {
                let begin = (end_ns - length_ns) * step / 50;
                let inside = trace.iter().filter(|d| d.at_ns > begin && d.at_ns <= begin + length_ns);
                let bytes: u64 = inside.map(|done| u64::from(done.bytes)).sum();
                prop_assert!(bytes as f64 / seconds >= worst.rate - 1e-6);
            }
        }
    }
}
