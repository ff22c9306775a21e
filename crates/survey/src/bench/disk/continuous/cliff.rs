//! Finds permanent changes of the rate: steps in a noisy curve.
//!
//! ```text
//! ▔▔▔▔▔▔▔▔▔▔▔▔▔╲                     cache of the drive exhausted
//!               ▔▔▔▔▔▔▔▔▔▔▔╲▁▁▁▁▁    too warm
//! ```
//!
//! A curve is cut where two levels fit it far better than one, and each part again, as long as the steps exceed the
//! noise. A stall is no step, because levels are medians and must last. A step is a cliff only if all later levels are
//! lower than all earlier ones: rises and dips do not count.

use crate::bench::result::{Bin, Cliff, Temperature, Throttling};

/// The shortest level: at least `SHORTEST_BINS` bins, and at least 1/`SHORTEST_SHARE` of the curve.
const SHORTEST_BINS: usize = 3;
const SHORTEST_SHARE: usize = 30;

/// The fewest bins of a run with cliffs: in a shorter run a step is a stall or an effect of the scheduler.
const FEWEST_BINS: usize = 12;

/// The shortest run with cliffs, in seconds.
pub const SHORTEST_RUN_S: f64 = 8.0;

/// The shortest levels beside a cliff, in seconds and as a share of the run.
const SHORTEST_LEVEL_S: f64 = 3.0;
const SHORTEST_LEVEL_SHARE: f64 = 0.1;

/// The share of the curve, before and after a cut, that counts as near.
const NEAR_SHARE: usize = 20;

/// The least relative difference of two levels.
const LEAST_CHANGE: f64 = 0.15;

/// A device this close to its limit is reported as warm.
const WARM_WITHIN_C: f64 = 3.0;

/// The indices at which new levels begin.
pub fn steps(values: &[f64]) -> Vec<usize> {
    let values = &smoothed(values);
    let shortest = SHORTEST_BINS.max(values.len() / SHORTEST_SHARE);
    let mut found = vec![];
    divide(values, 0, shortest, noise(values), &mut found);
    found.sort_unstable();
    found
}

/// The median of each value and its neighbours, which removes a single bin with a stall.
fn smoothed(values: &[f64]) -> Vec<f64> {
    let last = values.len().saturating_sub(1);
    (0..values.len())
        .map(|n| median(&[values[n.saturating_sub(1)], values[n], values[(n + 1).min(last)]]))
        .collect()
}

/// The spread of the noise: most neighbours belong to the same level.
fn noise(values: &[f64]) -> f64 {
    let differences: Vec<f64> = values.windows(2).map(|pair| (pair[1] - pair[0]).abs()).collect();
    median(&differences) / 0.954
}

fn divide(values: &[f64], offset: usize, shortest: usize, noise: f64, found: &mut Vec<usize>) {
    let Some((at, gain)) = best_cut(values, shortest) else { return };
    let (before, after) = (median(&values[..at]), median(&values[at..]));
    let change = (before - after).abs() / before.max(after).max(f64::MIN_POSITIVE);
    let by_chance = 4.0 * noise * noise * (values.len() as f64).ln();
    if change < LEAST_CHANGE || gain <= by_chance {
        return;
    }
    found.push(offset + at);
    divide(&values[..at], offset, shortest, noise, found);
    divide(&values[at..], offset + at, shortest, noise, found);
}

/// The cut that minimises the sum of squares around two means, and the reduction.
fn best_cut(values: &[f64], shortest: usize) -> Option<(usize, f64)> {
    let total: f64 = values.iter().sum();
    let (mut left, mut best) = (0.0, None);
    for at in 1..values.len() {
        left += values[at - 1];
        if at < shortest || values.len() - at < shortest {
            continue;
        }
        let (n, m) = (at as f64, (values.len() - at) as f64);
        let gain = (left / n - (total - left) / m).powi(2) * n * m / (n + m);
        if best.is_none_or(|(_, most)| gain > most) {
            best = Some((at, gain));
        }
    }
    best
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

/// Information about a run other than its rates.
#[derive(Clone, Copy, Debug, Default)]
pub struct Circumstances<'a> {
    /// True if a rotating disk, not that of a virtual machine, was written over a large part of its tracks.
    pub crosses_tracks: bool,
    /// True if the disk may be shared with others: that of a virtual machine.
    pub shared: bool,
    /// Temperatures during the run.
    pub temperatures: &'a [Temperature],
    /// Throttling counters before and after the run.
    pub throttling: &'a [Throttling],
}

/// The cliffs of a curve over position, and the coinciding causes.
pub fn cliffs(bins: &[Bin], known: Circumstances) -> Vec<Cliff> {
    // The end of a curve is less even, because no blocks follow the last ones.
    let whole = &bins[..bins.len().saturating_sub(1)];
    if whole.len() < FEWEST_BINS || whole.last().is_none_or(|bin| bin.at_s < SHORTEST_RUN_S) {
        return vec![];
    }
    let rates: Vec<f64> = whole.iter().map(|bin| bin.rate).collect();
    let falls = falls(&rates, lasting(whole, steps(&rates)));
    let ends = falls.iter().skip(1).copied().chain([rates.len()]);
    let starts = std::iter::once(0).chain(falls.iter().copied());
    falls
        .iter()
        .zip(starts.zip(ends))
        .map(|(&at, (start, end))| {
            let (before, after) = (median(&rates[start..at]), median(&rates[at..end]));
            // Most blocks of the bin in which the rate falls may be of the level before.
            let is_mixed = rates[at] > f64::midpoint(before, after) && at + 1 < end;
            let bin = &whole[at + usize::from(is_mixed)];
            let likely = likely(bin.at_s, is_slow(&rates, at, before - after), known);
            Cliff { position: bin.position, at_s: bin.at_s, before, after, likely }
        })
        .collect()
}

/// The steps between lasting levels. The shortest level is merged across the smaller of its two steps, until none is
/// too short.
fn lasting(bins: &[Bin], mut steps: Vec<usize>) -> Vec<usize> {
    let seconds = |range: &[Bin]| range.iter().map(|bin| bin.seconds).sum::<f64>();
    let rate = |range: &[Bin]| median(&range.iter().map(|bin| bin.rate).collect::<Vec<_>>());
    let shortest_s = SHORTEST_LEVEL_S.max(seconds(bins) * SHORTEST_LEVEL_SHARE);
    while !steps.is_empty() {
        let edges: Vec<usize> =
            [0].into_iter().chain(steps.iter().copied()).chain([bins.len()]).collect();
        let levels: Vec<&[Bin]> = edges.windows(2).map(|edge| &bins[edge[0]..edge[1]]).collect();
        let lengths = levels.iter().map(|level| seconds(level)).enumerate();
        let Some((number, length)) = lengths.min_by(|a, b| a.1.total_cmp(&b.1)) else { break };
        if length >= shortest_s {
            break;
        }
        let change = |step: usize| (rate(levels[step]) - rate(levels[step + 1])).abs();
        let sides = [number.checked_sub(1), (number < steps.len()).then_some(number)];
        let smaller = sides.into_iter().flatten().min_by(|a, b| change(*a).total_cmp(&change(*b)));
        steps.remove(smaller.expect("a level has a step on one side at least"));
    }
    steps
}

/// The steps that are permanent falls: every earlier level is higher than every later one.
fn falls(rates: &[f64], steps: Vec<usize>) -> Vec<usize> {
    let edges: Vec<usize> =
        [0].into_iter().chain(steps.iter().copied()).chain([rates.len()]).collect();
    let levels: Vec<f64> = edges.windows(2).map(|edge| median(&rates[edge[0]..edge[1]])).collect();
    let is_fall = |number: usize| {
        let before = levels[..=number].iter().copied().fold(f64::INFINITY, f64::min);
        let behind = levels[number + 1..].iter().copied().fold(0.0, f64::max);
        behind < before * (1.0 - LEAST_CHANGE)
    };
    steps.iter().enumerate().filter(|(number, _)| is_fall(*number)).map(|(_, &at)| at).collect()
}

/// True if most of a fall is not near the cut: then it is a slope.
fn is_slow(rates: &[f64], at: usize, fall: f64) -> bool {
    let near = (rates.len() / NEAR_SHARE).max(SHORTEST_BINS);
    let (before, after) = (&rates[at.saturating_sub(near)..at], &rates[at..]);
    let there = median(before) - median(&after[..near.min(after.len())]);
    there < fall / 2.0
}

fn likely(at_s: f64, slow: bool, known: Circumstances) -> String {
    let moved = known.throttling.iter().find(|counter| counter.after > counter.before);
    let warm = known.temperatures.iter().find_map(|sensor| {
        let limit = sensor.limit_c?;
        let near = |(time, _): &&(f64, f64)| (time - at_s).abs() < 5.0;
        let (_, celsius) = sensor.readings.iter().find(near)?;
        (*celsius > limit - WARM_WITHIN_C).then(|| {
            format!("{} was at {celsius:.0} °C, its limit is {limit:.0} °C", sensor.sensor)
        })
    });
    let unexplained = "no temperature and no counter of throttling explains it";
    match (warm, moved) {
        (Some(warm), Some(counter)) => {
            format!("too warm: {warm}, and {} rose in this run", counter.counter)
        }
        (Some(warm), None) => format!("too warm: {warm}"),
        (None, Some(counter)) => format!("throttled: {} rose in this run", counter.counter),
        (None, None) if slow && known.crosses_tracks => {
            "the disk turns, and the rate fell slowly: inner tracks are shorter".into()
        }
        (None, None) if known.shared => format!(
            "a cache is exhausted, or others use the disk of this virtual machine too: {unexplained}"
        ),
        (None, None) if slow => format!("not known: the rate fell slowly, and {unexplained}"),
        (None, None) => format!("a cache is exhausted: {unexplained}"),
    }
}

#[cfg(test)]
mod tests {
    use fullbore_core::pattern::mixed;
    use proptest::prelude::*;

    use super::*;

    const NOTHING: Circumstances =
        Circumstances { crosses_tracks: false, shared: false, temperatures: &[], throttling: &[] };

    /// Levels with 5 % noise and occasional stalls.
    fn curve(levels: &[(usize, f64)], seed: u64) -> Vec<f64> {
        let bins = levels.iter().flat_map(|&(count, level)| std::iter::repeat_n(level, count));
        bins.enumerate()
            .map(|(n, level)| {
                let noise = (mixed(seed, n as u64) % 1000) as f64 / 1000.0 - 0.5;
                let stall = if n % 37 == 20 { 0.3 } else { 1.0 };
                level * (1.0 + 0.1 * noise) * stall
            })
            .collect()
    }

    fn bins(rates: &[f64]) -> Vec<Bin> {
        let bin = |(n, &rate): (usize, &f64)| Bin {
            at_s: n as f64,
            seconds: 1.0,
            position: n as u64 * 1_000_000_000,
            bytes: 1_000_000_000,
            rate,
            slowest_ms: 1.0,
        };
        rates.iter().enumerate().map(bin).collect()
    }

    proptest! {
        #[test]
        fn a_level_curve_has_no_steps(level in 1e8..7e9f64, seed: u64, count in 1usize..240) {
            prop_assert_eq!(steps(&curve(&[(count, level)], seed)), Vec::<usize>::new());
        }

        #[test]
        fn a_step_is_found_where_it_is(
            first in 30usize..120,
            second in 30usize..120,
            drop in 0.2..0.7f64,
            seed: u64,
        ) {
            let found = steps(&curve(&[(first, 5e9), (second, 5e9 * drop)], seed));
            prop_assert_eq!(found.len(), 1, "{:?} for {}", &found, first);
            prop_assert!(found[0].abs_diff(first) <= 2, "{:?} for {}", &found, first);
        }
    }

    #[test]
    fn a_moment_has_no_cliffs() {
        let mut short = bins(&curve(&[(30, 5e9), (30, 1e9)], 1));
        assert_eq!(cliffs(&short, NOTHING).len(), 1);
        for bin in &mut short {
            (bin.at_s, bin.seconds) = (bin.at_s / 10.0, bin.seconds / 10.0);
        }
        assert_eq!(cliffs(&short, NOTHING), [], "six seconds");
    }

    #[test]
    fn what_rises_goes_back_or_does_not_last_is_no_cliff() {
        let (high, low) = (5e9, 2e9);
        for (name, levels) in [
            ("a rise", vec![(60, low), (60, high)]),
            ("a dip", vec![(60, high), (60, low), (60, high)]),
            ("a hump", vec![(60, low), (60, high), (60, low)]),
            ("a short end", vec![(200, high), (6, low)]),
            ("a quick beginning", vec![(6, high), (200, low)]),
            ("to and fro", vec![(40, high), (40, low), (40, high), (40, low), (40, high)]),
        ] {
            assert_eq!(cliffs(&bins(&curve(&levels, 3)), NOTHING), [], "{name}");
        }
        let with_a_dip = curve(&[(60, high), (5, 1e9), (60, high), (60, low)], 3);
        let told = cliffs(&bins(&with_a_dip), NOTHING);
        assert!(told.len() == 1 && told[0].position.abs_diff(125_000_000_000) <= 3_000_000_000);
    }

    #[test]
    fn tracks_are_named_only_for_a_slow_fall_of_a_disk_that_was_crossed() {
        let slope: Vec<f64> = (0..200).map(|n| 250e6 - 130e6 * f64::from(n) / 200.0).collect();
        let step = curve(&[(100, 250e6), (100, 120e6)], 1);
        let causes = |rates: &[f64], known| -> Vec<bool> {
            let told = cliffs(&bins(rates), known);
            assert!(!told.is_empty());
            told.iter().map(|cliff| cliff.likely.contains("inner tracks")).collect()
        };
        let crossed = Circumstances { crosses_tracks: true, ..NOTHING };
        assert!(causes(&slope, crossed).iter().all(|inner| *inner));
        assert!(causes(&step, crossed).iter().all(|inner| !inner));
        assert!(causes(&slope, NOTHING).iter().all(|inner| !inner));
        let shared = Circumstances { shared: true, ..NOTHING };
        assert!(cliffs(&bins(&step), shared)[0].likely.contains("virtual machine"));
    }

    #[test]
    fn a_cliff_has_levels_a_place_and_a_likely_cause() {
        let rates = curve(&[(80, 5e9), (60, 3.5e9), (100, 1.5e9)], 1);
        let told = cliffs(&bins(&rates), NOTHING);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(
            (told[0].before / 5e9 - 1.0).abs() < 0.05 && (told[0].after / 3.5e9 - 1.0).abs() < 0.05
        );
        assert!((told[1].after / 1.5e9 - 1.0).abs() < 0.05);
        assert!(told[0].position.abs_diff(80_000_000_000) <= 2_000_000_000);
        assert!(told[0].likely.contains("cache"));
        let warm = Temperature {
            sensor: "nvme0n1 Composite".into(),
            limit_c: Some(80.0),
            readings: vec![(79.0, 79.5), (141.0, 60.0)],
        };
        let told = cliffs(&bins(&rates), Circumstances { temperatures: &[warm], ..NOTHING });
        assert!(
            told[0].likely.contains("too warm") && told[1].likely.contains("cache"),
            "{told:?}"
        );
    }
}
