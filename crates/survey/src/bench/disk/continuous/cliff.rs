//! Where the rate changed for good: steps in a noisy curve.
//!
//! ```text
//! ▔▔▔▔▔▔▔▔▔▔▔▔▔╲                     cache of the drive exhausted
//!               ▔▔▔▔▔▔▔▔▔▔▔╲▁▁▁▁▁    too warm
//! ```
//!
//! A curve is cut where two levels explain it far better than one, then each part again, as long as
//! that says more than the noise does. A stall is no step: the levels are medians, and last.

use crate::bench::result::{Bin, Cliff, Temperature, Throttling};

/// A level lasts for so many bins at least, and for this share of the curve.
const SHORTEST_BINS: usize = 3;
const SHORTEST_SHARE: usize = 30;

/// Shorter runs have no cliffs: what looks like one is a stall, or a scheduler's whim.
const FEWEST_BINS: usize = 12;
const SHORTEST_RUN_S: f64 = 2.0;

/// Levels that differ by less are told as one.
const LEAST_CHANGE: f64 = 0.15;

/// Of a device that is this near to its limit it is said that it is warm.
const WARM_WITHIN_C: f64 = 3.0;

/// Indices at which a new level begins.
pub fn steps(values: &[f64]) -> Vec<usize> {
    let values = &smoothed(values);
    let shortest = SHORTEST_BINS.max(values.len() / SHORTEST_SHARE);
    let mut found = vec![];
    divide(values, 0, shortest, noise(values), &mut found);
    found.sort_unstable();
    found
}

/// The middle of each value and its neighbours: a single bin with a stall is gone.
fn smoothed(values: &[f64]) -> Vec<f64> {
    let last = values.len().saturating_sub(1);
    (0..values.len())
        .map(|n| median(&[values[n.saturating_sub(1)], values[n], values[(n + 1).min(last)]]))
        .collect()
}

/// The spread of the noise: most neighbours lie on one level.
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

/// The cut after which two means leave the smallest sum of squares, and how much smaller it is.
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

/// The cliffs of a curve over position, and what each coincides with.
pub fn cliffs(
    bins: &[Bin],
    rotational: bool,
    temperatures: &[Temperature],
    throttling: &[Throttling],
) -> Vec<Cliff> {
    // The end is less even than the rest: nothing is behind the last blocks.
    let whole = &bins[..bins.len().saturating_sub(1)];
    if whole.len() < FEWEST_BINS || whole.last().is_none_or(|bin| bin.at_s < SHORTEST_RUN_S) {
        return vec![];
    }
    let rates: Vec<f64> = whole.iter().map(|bin| bin.rate).collect();
    let steps = steps(&rates);
    let ends = steps.iter().skip(1).copied().chain([rates.len()]);
    let starts = std::iter::once(0).chain(steps.iter().copied());
    steps
        .iter()
        .zip(starts.zip(ends))
        .map(|(&at, (start, end))| {
            let (before, after) = (median(&rates[start..at]), median(&rates[at..end]));
            let bin = &whole[at];
            let likely = if after > before {
                "the rate rose".into()
            } else {
                likely(bin.at_s, rotational, temperatures, throttling)
            };
            Cliff { position: bin.position, at_s: bin.at_s, before, after, likely }
        })
        .collect()
}

fn likely(
    at_s: f64,
    rotational: bool,
    temperatures: &[Temperature],
    throttling: &[Throttling],
) -> String {
    let moved = throttling.iter().find(|counter| counter.after > counter.before);
    let warm = temperatures.iter().find_map(|sensor| {
        let limit = sensor.limit_c?;
        let near = |(time, _): &&(f64, f64)| (time - at_s).abs() < 5.0;
        let (_, celsius) = sensor.readings.iter().find(near)?;
        (*celsius > limit - WARM_WITHIN_C).then(|| {
            format!("{} was at {celsius:.0} °C, its limit is {limit:.0} °C", sensor.sensor)
        })
    });
    match (warm, moved) {
        (Some(warm), Some(counter)) => {
            format!("too warm: {warm}, and {} rose in this run", counter.counter)
        }
        (Some(warm), None) => format!("too warm: {warm}"),
        (None, Some(counter)) => format!("throttled: {} rose in this run", counter.counter),
        (None, None) if rotational => {
            "the device says that it turns: inner tracks are shorter".into()
        }
        (None, None) => {
            "a cache is exhausted: no temperature and no counter of throttling explains it".into()
        }
    }
}

#[cfg(test)]
mod tests {
    use fullbore_core::pattern::mixed;
    use proptest::prelude::*;

    use super::*;

    /// Levels with 5 % of noise and a stall now and then.
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
        assert_eq!(cliffs(&short, false, &[], &[]).len(), 1);
        short.iter_mut().for_each(|bin| bin.at_s /= 100.0);
        assert_eq!(cliffs(&short, false, &[], &[]), []);
    }

    #[test]
    fn a_cliff_has_levels_a_place_and_a_likely_cause() {
        let rates = curve(&[(80, 5e9), (60, 3.5e9), (100, 1.5e9)], 1);
        let told = cliffs(&bins(&rates), false, &[], &[]);
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
        let told = cliffs(&bins(&rates), false, &[warm], &[]);
        assert!(
            told[0].likely.contains("too warm") && told[1].likely.contains("cache"),
            "{told:?}"
        );
        assert!(cliffs(&bins(&rates), true, &[], &[])[0].likely.contains("inner"));
    }
}
