//! Selects the part of a run with a cliff from which rates are taken.
//!
//! ```text
//! rate ▔▔▔▔▔▔▔╲                        given capacity ends here: this stretch counts …
//!             ▔▔▔▔▔▔╲▁▁▁▁▁▁▁▁▁▁▁▁▁▁    … none given: the last one counts, the settled rate
//! ```
//!
//! The mean across a cliff is a rate at which the disk never settles, so it is not used. In a duty cycle, the part of a
//! run that does not fill a cycle is not used either.

use std::time::Duration;

use fullbore_core::duty::Duty;
use fullbore_core::units::ByteSize;
use fullbore_linux::ring_sim::Service;

use crate::bench::result::{Cliff, Settled};

const NS_PER_S: f64 = 1e9;

/// The part of a run that is judged.
pub struct Judged {
    /// The selected stretch, if the run has a cliff.
    pub settled: Option<Settled>,
    /// The service of the disk in that part.
    pub service: Service,
    /// Bytes of the run, up to the end of the last whole cycle.
    pub bytes: u64,
    /// Seconds of the run, up to there.
    pub seconds: f64,
    /// The number of whole cycles; `None` without a duty cycle. If there is none, the whole run is in `service`.
    pub cycles: Option<u64>,
}

/// Selects the part of a run of this length that is judged. In a duty cycle only whole cycles count: a scan without its
/// pause shows neither that the ring held it, nor that the pause drains the ring.
pub fn judged(
    whole: Service,
    cliffs: &[Cliff],
    capacity: Option<u64>,
    duty: Option<(Duty, Duration)>,
) -> Judged {
    let Some((duty, lasted)) = duty else { return judged_as_it_is(whole, cliffs, capacity, None) };
    let cycles = duty.whole_cycles(lasted);
    let end_ns = cycles.saturating_mul(duty.cycle_ns());
    let is_within = |cliff: &Cliff| cliff.at_s * NS_PER_S < end_ns as f64;
    let (within, beyond) = cliffs.split_at(cliffs.partition_point(is_within));
    // Behind this cliff the disk is slower, and there is no whole cycle.
    let is_hidden = |cliff: &Cliff| capacity.is_none_or(|capacity| capacity > cliff.position);
    if cycles == 0 || beyond.first().is_some_and(is_hidden) {
        return Judged { cycles: Some(0), ..judged_as_it_is(whole, cliffs, capacity, Some(duty)) };
    }
    let counted = if lasted.as_nanos() > u128::from(end_ns) { whole.before(end_ns) } else { whole };
    Judged { cycles: Some(cycles), ..judged_as_it_is(counted, within, capacity, Some(duty)) }
}

fn judged_as_it_is(
    whole: Service,
    cliffs: &[Cliff],
    capacity: Option<u64>,
    duty: Option<Duty>,
) -> Judged {
    let settled = stretch(cliffs, capacity, &whole, duty);
    let (bytes, seconds) = (whole.bytes(), whole.end_ns() as f64 / NS_PER_S);
    let service = service(whole, settled.as_ref());
    Judged { settled, service, bytes, seconds, cycles: None }
}

/// The stretch between cliffs in which the given capacity ends, or the last one. `None` if the run has no cliff.
///
/// In a duty cycle a stretch begins with a scan.
fn stretch(
    cliffs: &[Cliff],
    capacity: Option<u64>,
    whole: &Service,
    duty: Option<Duty>,
) -> Option<Settled> {
    let last = cliffs.last()?;
    let capacity = capacity.unwrap_or(u64::MAX);
    let next = cliffs.iter().position(|cliff| capacity <= cliff.position);
    let begin = match next {
        None => Some(last),
        Some(number) => number.checked_sub(1).map(|before| &cliffs[before]),
    };
    let end_ns = next.map(|number| (cliffs[number].at_s * NS_PER_S) as u64);
    let end_or_last_ns = end_ns.unwrap_or(whole.end_ns());
    let from_ns = begin.map_or(0, |cliff| (cliff.at_s * NS_PER_S) as u64);
    let from_ns = duty.map_or(from_ns, |duty| next_scan(from_ns, end_or_last_ns, duty));
    let counted = whole.between(from_ns, end_ns);
    Some(Settled {
        position: whole.between(0, Some(from_ns)).bytes(),
        at_s: from_ns as f64 / NS_PER_S,
        bytes: counted.bytes(),
        seconds: end_or_last_ns.saturating_sub(from_ns) as f64 / NS_PER_S,
        rate: counted.mean().0 as f64,
        before_cliff: next.is_some(),
    })
}

/// The first scan that begins after a time, if it is over before the end; else the scan at that time.
fn next_scan(from_ns: u64, end_ns: u64, duty: Duty) -> u64 {
    let next_ns = from_ns.next_multiple_of(duty.cycle_ns());
    let is_whole = next_ns + duty.record().as_nanos() as u64 <= end_ns;
    if is_whole { next_ns } else { from_ns / duty.cycle_ns() * duty.cycle_ns() }
}

/// The service of the disk in the selected stretch.
fn service(whole: Service, settled: Option<&Settled>) -> Service {
    let Some(settled) = settled else { return whole };
    let ns = |seconds: f64| (seconds * NS_PER_S) as u64;
    let end = settled.before_cliff.then(|| ns(settled.at_s + settled.seconds));
    let counted = whole.between(ns(settled.at_s), end);
    // A stretch after a cliff cannot promise more than the whole run.
    if !settled.before_cliff && counted.mean() > whole.mean() { whole } else { counted }
}

/// The origin of the rates, as the end of a sentence. Empty without a cliff.
pub fn told(settled: Option<&Settled>) -> String {
    let Some(settled) = settled else { return String::new() };
    let position = ByteSize(settled.position);
    match (settled.before_cliff, settled.position) {
        (false, _) => format!(", after the cliff at {position} ({:.1} s)", settled.at_s),
        (true, 0) => {
            format!(", before the cliff at {}", ByteSize(settled.position + settled.bytes))
        }
        (true, _) => format!(
            ", between the cliffs at {position} and {}",
            ByteSize(settled.position + settled.bytes)
        ),
    }
}

#[cfg(test)]
mod tests {
    use fullbore_core::units::ByteRate;
    use fullbore_linux::ring_sim::Turn;
    use proptest::prelude::*;

    use super::*;
    use crate::bench::disk::continuous::{Done, analysis, cliff};

    const MB: u64 = 1_000_000;
    const FILLING: u64 = 12 * MB;

    /// The trace of a disk that writes 4 MB blocks sequentially, at each rate for its number of seconds.
    fn recorded(levels: &[(f64, f64)]) -> Vec<Done> {
        let (mut at_s, mut offset, mut trace) = (0.0, 0, vec![]);
        let mut end_s = 0.0;
        for &(seconds, rate) in levels {
            end_s += seconds;
            while at_s < end_s {
                let took_s = 4e6 / rate;
                at_s += took_s;
                let (at_ns, took_ns) = ((at_s * NS_PER_S) as u64, (took_s * NS_PER_S) as u64);
                let bytes = 4 * MB as u32;
                trace.push(Done { member: 0, chunk: 0, offset, bytes, at_ns, took_ns });
                offset += 4 * MB;
            }
        }
        trace
    }

    /// The whole run, its cliffs and the selected stretch.
    fn selected(
        levels: &[(f64, f64)],
        capacity: Option<u64>,
    ) -> (Service, Vec<Cliff>, Option<Settled>) {
        let trace = recorded(levels);
        let whole = Service::new(analysis::turns(&trace, false), FILLING);
        let cliffs = cliff::cliffs(&analysis::over_position(&trace), Default::default());
        let settled = stretch(&cliffs, capacity, &whole, None);
        (whole, cliffs, settled)
    }

    fn held(levels: &[(f64, f64)], capacity: Option<u64>) -> f64 {
        let (whole, _, settled) = selected(levels, capacity);
        service(whole, settled.as_ref()).rate_for(64 * MB).0 as f64 / 1e6
    }

    #[test]
    fn after_a_cliff_the_settled_rate_counts() {
        let levels = [(8.0, 140e6), (22.0, 45e6)];
        let (whole, cliffs, settled) = selected(&levels, None);
        assert_eq!(cliffs.len(), 1, "{cliffs:?}");
        assert!(whole.mean() > ByteRate(65 * MB), "the mean is {}", whole.mean());
        let rate = held(&levels, None);
        assert!((43.0..48.0).contains(&rate), "{rate} MB/s");
        let told = told(settled.as_ref());
        assert!(told.contains("after the cliff at 1.1"), "{told}");
    }

    #[test]
    fn a_capacity_that_ends_before_the_cliff_is_judged_by_the_rate_before_it() {
        let levels = [(10.0, 200e6), (20.0, 100e6), (30.0, 40e6)];
        let (_, cliffs, _) = selected(&levels, None);
        assert_eq!(cliffs.len(), 2, "{cliffs:?}");
        for (capacity, least, most) in [
            (Some(1_500 * MB), 190.0, 202.0),
            (Some(3_000 * MB), 95.0, 106.0),
            (Some(4_900 * MB), 38.0, 44.0),
            (None, 38.0, 44.0),
        ] {
            let rate = held(&levels, capacity);
            assert!((least..most).contains(&rate), "{rate} MB/s for {capacity:?}");
        }
    }

    #[test]
    fn a_run_without_a_cliff_counts_whole() {
        let (whole, _, settled) = selected(&[(20.0, 100e6)], None);
        assert_eq!((settled, told(None)), (None, String::new()));
        let mean = whole.mean();
        assert_eq!(service(whole, None).mean(), mean);
    }

    #[test]
    fn in_a_duty_cycle_the_settled_part_begins_with_a_scan() {
        let duty: Duty = "10s/5s".parse().unwrap();
        let s = 1_000_000_000;
        assert_eq!(next_scan(12 * s, 60 * s, duty), 15 * s);
        assert_eq!(next_scan(15 * s, 60 * s, duty), 15 * s);
        assert_eq!(next_scan(32 * s, 50 * s, duty), 30 * s, "no whole scan is behind it");
    }

    /// The judged part of a run in a duty cycle of 40 s / 20 s on this disk.
    fn in_cycles(levels: &[(f64, f64)], capacity: Option<u64>) -> Judged {
        let duty = "40s/20s".parse().unwrap();
        let trace = recorded(levels);
        let whole = Service::new(analysis::turns(&trace, false), FILLING).in_duty(Some(duty));
        let cliffs = cliff::cliffs(&analysis::over_position(&trace), Default::default());
        let lasted = Duration::from_secs_f64(levels.iter().map(|(seconds, _)| seconds).sum());
        judged(whole, &cliffs, capacity, Some((duty, lasted)))
    }

    #[test]
    fn only_whole_cycles_of_a_run_are_judged() {
        for (seconds, cycles, judged_s) in
            [(30.0, 0, 30), (59.0, 0, 59), (60.0, 1, 60), (119.0, 1, 60), (150.0, 2, 120)]
        {
            let judged = in_cycles(&[(seconds, 100e6)], None);
            assert_eq!(judged.cycles, Some(cycles), "{seconds} s");
            let bytes = judged.service.bytes() / MB;
            assert!(bytes.abs_diff(100 * judged_s) <= 4, "{seconds} s: {bytes} MB");
            assert!((judged.seconds - judged_s as f64).abs() < 0.1, "{seconds} s");
        }
    }

    #[test]
    fn cliff_without_a_whole_cycle_behind_it_leaves_nothing_to_judge_by() {
        let falling = [(130.0, 100e6), (40.0, 30e6)];
        assert_eq!(in_cycles(&falling, None).cycles, Some(0));
        let before = in_cycles(&falling, Some(10_000 * MB));
        assert_eq!((before.cycles, before.settled), (Some(2), None));
        let longer = in_cycles(&[(130.0, 100e6), (110.0, 30e6)], None);
        assert_eq!(longer.cycles, Some(4));
        assert_eq!(
            longer.settled.map(|it| it.at_s),
            Some(180.0),
            "the first scan behind the cliff"
        );
    }

    proptest! {
        #[test]
        fn no_rate_above_the_settled_one_is_held(
            before_s in 5.0..15.0f64,
            after_s in 5.0..40.0f64,
            fast in 100e6..900e6f64,
            drop in 0.15..0.6f64,
        ) {
            let levels = [(before_s, fast), (after_s, fast * drop)];
            let (_, cliffs, _) = selected(&levels, None);
            prop_assume!(cliffs.len() == 1);
            let rate = held(&levels, None);
            // One bin of the curve may hold blocks of both levels.
            prop_assert!(rate <= fast * drop / 1e6 * 1.2, "{} after {:?}", rate, cliffs);
            prop_assert!(rate >= fast * drop / 1e6 * 0.8, "{} after {:?}", rate, cliffs);
        }

        #[test]
        fn a_smaller_capacity_never_lowers_the_rate(
            first in 1u64..6_000,
            second in 1u64..6_000,
        ) {
            let levels = [(10.0, 200e6), (20.0, 100e6), (30.0, 40e6)];
            let (less, more) = (first.min(second) * MB, first.max(second) * MB);
            prop_assert!(held(&levels, Some(less)) >= held(&levels, Some(more)));
        }

        #[test]
        fn stretches_divide_what_was_written(
            turns in prop::collection::vec((1u64..40_000_000, 1u64..8 * MB), 1..60),
            cut in 0.0..1.0f64,
        ) {
            let mut to_ns = 0;
            let turns = turns.into_iter().map(|(wait, bytes)| {
                to_ns += wait;
                Turn { from_ns: to_ns - wait, to_ns, bytes }
            });
            let whole = Service::new(turns.collect(), 0);
            let at = (whole.end_ns() as f64 * cut) as u64;
            let (before, behind) = (whole.between(0, Some(at)), whole.between(at, None));
            prop_assert_eq!(before.bytes() + behind.bytes(), whole.bytes());
            prop_assert_eq!(before.end_ns() + behind.end_ns(), whole.end_ns());
        }
    }
}
