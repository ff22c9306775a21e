//! Evaluates the measurements: rings and rates, recommendation, data sheet, endurance, verdict.

use fullbore_core::completeness::counted;
use fullbore_core::duty::Duty;
use fullbore_core::units::{ByteRate, ByteSize};
use fullbore_linux::ring_sim::Service;

use super::{Settings, settled};
use crate::bench::result::{
    BenchResult, Continuous, Direction, DutyRun, Endurance, Level, RateForRing, Recommendation,
    RingForRate, Settled, Spec, Verdict,
};
use crate::report::text;

/// Shares of the mean rate, in percent, for which the ring is reported: the steepest part of the curve.
const SHARES: [u64; 2] = [90, 100];

/// Usual rates: 1, 2, 4 … Gbit/s, and halves of that for slow disks.
const LOWEST_FIELD_RATE: u64 = 125_000_000 / 64;
const FIELD_RATES: u32 = 16;

/// The number of usual rates below the mean that are reported.
const FIELD_TOLD: usize = 6;

/// Ring sizes from 64 MiB to 16 GiB.
const RINGS: [u64; 9] = [64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384];

/// The safety factor for every stall.
const STALL_MARGIN: u64 = 2;

/// The highest recommended share of the sustained rate, in percent.
const RATE_MARGIN: u64 = 90;

const SECONDS_PER_DAY: f64 = 86_400.0;
const DAYS_PER_YEAR: f64 = 365.0;

/// For each rate, the smallest ring without loss.
pub fn rings(service: &Service, require: Option<ByteRate>) -> Vec<RingForRate> {
    let mean = service.mean().0;
    if mean == 0 {
        return vec![];
    }
    let shares = SHARES.map(|percent| (u128::from(mean) * u128::from(percent) / 100) as u64);
    let field = (0..FIELD_RATES).rev().map(|power| LOWEST_FIELD_RATE << power);
    let field = field.filter(|rate| *rate <= mean).take(FIELD_TOLD);
    let mut rates: Vec<u64> = shares.into_iter().chain(field).collect();
    rates.extend(require.map(|rate| rate.0));
    rates.sort_unstable();
    rates.dedup();
    let ring = |rate| RingForRate {
        rate: ByteRate(rate),
        ring: ByteSize(service.ring_for(ByteRate(rate))),
        unbounded: rate > mean,
    };
    rates.into_iter().map(ring).collect()
}

/// For each ring, the highest rate without loss.
pub fn rates(service: &Service, ring_bytes: u64) -> Vec<RateForRing> {
    let mut rings: Vec<u64> = RINGS.map(|mebibytes| mebibytes << 20).into();
    rings.push(ring_bytes);
    rings.sort_unstable();
    rings.dedup();
    rings.retain(|ring| *ring >= service.filling());
    let rate = |ring| RateForRing { ring: ByteSize(ring), rate: service.rate_for(ring) };
    rings.into_iter().map(rate).collect()
}

/// The result of the long run.
pub struct Run {
    /// The rate at which blocks were due; `None`: as fast as possible.
    pub pace: Option<ByteRate>,
    /// Bytes that were due while no block was free.
    pub overrun_bytes: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Duration in seconds, including the last sync.
    pub seconds: f64,
    /// The selected stretch, if the run has a cliff.
    pub settled: Option<Settled>,
    /// The scans and pauses in which blocks were due, if whole cycles of them are judged.
    pub duty: Option<Duty>,
}

/// The recommended rate for recordings on it.
pub fn recommend(service: &Service, ring_bytes: u64, run: &Run) -> Recommendation {
    let sustained = match run.pace {
        // A rate that the run sustained needs no calculation, except that the disk must have completed it by the end.
        Some(rate) if run.overrun_bytes == 0 => rate.min(service.mean()),
        _ => service.rate_for(ring_bytes),
    };
    let share = ByteRate((u128::from(sustained.0) * u128::from(RATE_MARGIN) / 100) as u64);
    let rate = match run.pace {
        Some(_) => share,
        None => share.min(service.rate_with_margin(ring_bytes, STALL_MARGIN)),
    };
    let margin = format!(
        "at most {RATE_MARGIN} % of the highest rate that a ring of {} would have held{}{}; seen over \
         {} and {}{}, and what did not happen in that time is not covered",
        ByteSize(ring_bytes),
        run.duty.map_or(String::new(), |duty| format!(" in a duty cycle of {duty}")),
        match run.pace {
            Some(_) => String::new(),
            None => format!(
                ", and no more than it would hold with every stall {STALL_MARGIN} times as bad"
            ),
        },
        seconds(run.settled.map_or(run.seconds, |it| it.seconds)),
        ByteSize(run.settled.map_or(run.bytes, |it| it.bytes)),
        settled::told(run.settled.as_ref()),
    );
    Recommendation { rate, ring: ByteSize(ring_bytes), sustained, margin }
}

/// The number with adequate precision.
fn seconds(seconds: f64) -> String {
    if seconds < 10.0 { format!("{seconds:.1} s") } else { format!("{seconds:.0} s") }
}

/// Compares the measurements with the data sheet and the requirement.
pub fn judge(result: &mut BenchResult, settings: &Settings) {
    result.spec = settings.spec.map(|rate| spec(result, rate, Direction::Write));
    result.spec_read = settings.spec_read.map(|rate| spec(result, rate, Direction::Read));
    let recommended = result.continuous.as_ref().map(|long| long.recommended.rate);
    if let Some(rate) = settings.require.or(recommended).filter(|rate| rate.0 > 0) {
        result.endurance = Some(endurance(result, rate, settings));
    }
    // An interrupted run neither meets nor misses the requirement.
    let required = settings.require.filter(|_| !result.interrupted);
    result.verdict = required.and_then(|required| verdict(result, required, settings.in_bits));
    if let Some(short) = result.continuous.as_ref().and_then(shorter_than_its_cycle) {
        result.note(Level::Warning, short);
    }
    if let Some(short) = shorter_than_its_capacity(result.continuous.as_ref(), settings.capacity) {
        result.note(Level::Warning, short);
    }
    if result.verdict.as_ref().is_some_and(|verdict| verdict.holds)
        && let Some(short) = result.continuous.as_ref().and_then(shorter_than_its_ring)
    {
        result.note(Level::Warning, short);
    }
}

/// A note that the run shows nothing of its duty cycle.
fn shorter_than_its_cycle(long: &Continuous) -> Option<String> {
    let needed = missing_cycle(long)?;
    Some(format!("the rates and rings are not those of a duty cycle: {needed}"))
}

/// Says that there is no whole cycle by which the run can be judged, and how long it has to be.
fn missing_cycle(long: &Continuous) -> Option<String> {
    let duty = long.duty.as_ref().filter(|duty| duty.cycles == Some(0))?;
    let cycle_s = duty.record_s + duty.pause_s;
    let before = (duty.lasted_s / cycle_s).floor();
    let needed = before + 1.0;
    let rate = long.paced.map_or(long.write.rate, |rate| rate.0 as f64);
    // At full speed each pause writes as much as the ring may hold.
    let drained = if long.paced.is_some() { 0.0 } else { long.recommended.ring.0 as f64 };
    let bytes = ByteSize((needed * (rate * duty.record_s + drained)) as u64);
    let why = match before > 0.0 {
        false => format!(
            "the run ended after {}, and one cycle of scan and pause lasts {cycle_s} s",
            seconds(duty.lasted_s)
        ),
        true => format!(
            "the rate fell after the last whole cycle, and the run ended after {}",
            seconds(duty.lasted_s)
        ),
    };
    Some(format!(
        "{why}; write for {} s at least, which is about {bytes} here (--bytes, --full or --wrap)",
        needed * cycle_s
    ))
}

/// A note that less was written than the recording will write: a cliff may follow.
fn shorter_than_its_capacity(long: Option<&Continuous>, capacity: Option<u64>) -> Option<String> {
    let (written, capacity) = (long?.write.bytes, capacity?);
    (written < capacity).then(|| {
        format!(
            "{} were written, and a recording of {} was asked for: a cliff behind that is not shown; \
             write as much with --bytes",
            ByteSize(written),
            ByteSize(capacity)
        )
    })
}

/// A note that so little was written that a ring alone would have held it.
fn shorter_than_its_ring(long: &Continuous) -> Option<String> {
    let ring = long.recommended.ring;
    (long.write.bytes < ring.0).then(|| {
        format!(
            "{} in {} were written, and a ring of {ring} would have held all of that: how long the \
             disk holds this rate is not shown; write for longer",
            ByteSize(long.write.bytes),
            seconds(long.write.seconds)
        )
    })
}

fn spec(result: &BenchResult, rate: ByteRate, direction: Direction) -> Spec {
    let over = |measured: f64| measured / rate.0.max(1) as f64;
    let points = result.sweep.iter().filter(|point| point.direction == direction);
    let peak = points.map(|point| point.rate.mean).reduce(f64::max);
    let continuous = result.continuous.as_ref().and_then(|long| match direction {
        Direction::Write => Some(long.write.rate),
        Direction::Read => long.read.as_ref().map(|read| read.rate),
    });
    let others = result.comparisons.iter().filter(|it| it.direction == direction);
    let system = others.filter_map(|it| it.rate).reduce(f64::max);
    Spec {
        rate,
        peak_ratio: peak.map(over),
        continuous_ratio: continuous.map(over),
        system_ratio: system.map(over),
        continuous_over_system: continuous.zip(system).map(|(ours, theirs)| ours / theirs.max(1.0)),
    }
}

fn endurance(result: &BenchResult, rate: ByteRate, settings: &Settings) -> Endurance {
    let duty = settings.continuous.as_ref().and_then(|long| long.duty);
    let share = duty.map(|duty| duty.share());
    let tb_per_day = rate.0 as f64 * share.unwrap_or(1.0) * SECONDS_PER_DAY / 1e12;
    // Directories of one file system wear out one drive.
    let drives = result.targets.iter().filter(|target| target.shares_with.is_none());
    let capacity_tb: f64 = drives.map(|target| target.capacity.0 as f64 / 1e12).sum();
    let warranted =
        settings.drive_writes.map(|(writes, years)| writes * capacity_tb * DAYS_PER_YEAR * years);
    let tbw = settings.tbw.or(warranted);
    Endurance {
        rate,
        recording_share: share,
        tb_per_day,
        tbw,
        days: tbw.map(|tbw| tbw / tb_per_day),
        drive_writes_per_day: (capacity_tb > 0.0).then(|| tb_per_day / capacity_tb),
    }
}

/// ` at 40 s / 20 s`, in a duty cycle.
fn at(duty: Option<&DutyRun>) -> String {
    duty.map_or(String::new(), |duty| format!(" at {} s / {} s", duty.record_s, duty.pause_s))
}

fn verdict(result: &BenchResult, required: ByteRate, in_bits: bool) -> Option<Verdict> {
    let long = result.continuous.as_ref()?;
    let told = |rate: ByteRate| match in_bits {
        true => rate.to_string(),
        false => text::rate(rate.0 as f64),
    };
    let requested = format!("{}{}", told(required), at(long.duty.as_ref()));
    let sustained = long.recommended.sustained;
    let margin = sustained.0 as f64 / required.0.max(1) as f64 - 1.0;
    let told_as = |holds, not_shown, sentence| {
        Some(Verdict { required, in_bits, sustained, holds, not_shown, margin, sentence })
    };
    // What was lost at this rate or a lower one is lost in a longer run too.
    let is_lost = long.overrun_bytes > 0 && long.paced.is_some_and(|rate| rate <= required);
    if let Some(needed) = missing_cycle(long).filter(|_| !is_lost) {
        return told_as(false, true, format!("{requested} is not shown to be held: {needed}"));
    }
    let holds = sustained >= required && (long.paced.is_none() || long.overrun_bytes == 0);
    let needed = long.ring_for_rate.iter().find(|row| row.rate == required);
    let (ring, sustains) = (long.recommended.ring, told(sustained));
    let after = settled::told(long.settled.as_ref());
    let cycles = long.duty.as_ref().and_then(|duty| Some((duty, duty.cycles?)));
    let over = match (long.settled, cycles) {
        (Some(settled), _) => seconds(settled.seconds),
        (None, None) => seconds(long.write.seconds),
        (None, Some((duty, cycles))) => format!(
            "{} ({})",
            counted(cycles, "whole cycle"),
            seconds(cycles as f64 * (duty.record_s + duty.pause_s))
        ),
    };
    let is_paced_above = long.paced.is_some_and(|rate| rate >= required);
    let not_shown = !holds && is_paced_above && long.overrun_bytes == 0;
    let sentence = match (holds, needed) {
        (true, Some(row)) if long.paced.is_none() => format!(
            "{requested} is held: {} of a ring of {ring} were needed over {}{after}",
            row.ring, over
        ),
        (true, _) => format!("{requested} is held: nothing was lost in {over}{after}"),
        (false, _) if not_shown => format!(
            "{requested} is not shown to be held: nothing was lost, but with the last sync it was \
             {sustains}; write for longer, or at a --rate somewhat above what is required"
        ),
        (false, Some(row)) if !row.unbounded => format!(
            "{requested} is not held: it needs a ring of {}, and a ring of {ring} holds {sustains}{after}",
            row.ring
        ),
        (false, _) => {
            format!("{requested} is not held by any ring: the target sustains {sustains}{after}")
        }
    };
    told_as(holds, not_shown, sentence)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fullbore_linux::ring_sim::Turn;
    use proptest::prelude::*;

    use super::*;
    use crate::bench::result::{
        Comparison, Curve, Kind, Mode, Pass, Spread, Stalls, SweepPoint, Target,
    };

    const MB: u64 = 1_000_000;

    fn at_once(at_ns: u64, bytes: u64) -> Turn {
        Turn { from_ns: at_ns, to_ns: at_ns, bytes }
    }

    /// 2 GB/s for 10 s, with a stall of half a second in the middle.
    fn service() -> Service {
        let at = |n: u64| 2_000_000 * (n + 1) + if n >= 2500 { 500_000_000 } else { 0 };
        let turns = (0..5000).map(|n| at_once(at(n), 4_000_000));
        Service::new(turns.collect(), 36_000_000)
    }

    /// A long run as the rest of the benchmark returns it.
    fn long(service: &Service, ring: u64, run: &Run) -> Continuous {
        let recommended = recommend(service, ring, run);
        Continuous {
            block_bytes: 4 * MB,
            depth_bytes: 32 * MB,
            pattern: "prbs31".into(),
            paced: run.pace,
            overrun_bytes: run.overrun_bytes,
            write: Pass {
                bytes: run.bytes,
                seconds: run.seconds,
                rate: run.bytes as f64 / run.seconds,
                ..Pass::default()
            },
            read: None,
            verification: None,
            ring: ByteSize(ring),
            cliffs: vec![],
            settled: run.settled,
            wrap: None,
            duty: None,
            worst_windows: vec![],
            stalls: Stalls::default(),
            ring_for_rate: rings(service, Some(ByteRate(300 * MB))),
            rate_for_ring: rates(service, ring),
            recommended,
            temperatures: vec![],
            throttling: vec![],
            members: vec![],
        }
    }

    fn result(long: Option<Continuous>) -> BenchResult {
        BenchResult { continuous: long, ..BenchResult::new(Kind::Disk, Default::default()) }
    }

    #[test]
    fn rings_are_told_for_the_rates_of_the_field() {
        let told = |mean: u64| {
            let turns = (1..=1000).map(|n| at_once(n * 1_000_000, mean / 1000));
            let rings = rings(&Service::new(turns.collect(), 0), None);
            rings.iter().map(|row| row.rate.to_string()).collect::<Vec<_>>()
        };
        let fast = told(5_000 * MB);
        let rates = ["1.00", "2.00", "4.00", "8.00", "16.0", "32.0", "36.0", "40.0"];
        assert_eq!(fast, rates.map(|rate| format!("{rate} Gbit/s")));
        let slow = told(100 * MB);
        assert_eq!((slow.len(), slow[5].as_str()), (8, "500 Mbit/s"), "{slow:?}");
    }

    #[test]
    fn rings_grow_with_the_rate_and_rates_with_the_ring() {
        let service = service();
        let rings = rings(&service, Some(ByteRate(3_000_000_000)));
        assert!(rings.is_sorted_by_key(|row| (row.rate, row.ring)), "{rings:?}");
        let beyond = rings.last().unwrap();
        assert!(beyond.unbounded && rings.iter().filter(|row| row.unbounded).count() == 1);
        let one = rings.iter().find(|row| row.rate == ByteRate(1_000_000_000)).unwrap();
        // 1 GB/s for the 502 ms without a completion, and the block being filled.
        assert_eq!(one.ring, ByteSize(502_000_000 + 36_000_000));
        let rates = rates(&service, 538_000_000);
        assert!(rates.is_sorted_by_key(|row| (row.ring, row.rate)), "{rates:?}");
        let same = rates.iter().find(|row| row.ring == ByteSize(538_000_000)).unwrap();
        assert!(same.rate.0.abs_diff(1_000_000_000) < 10, "{same:?}");
        assert_eq!(rates.last().unwrap().rate, service.mean());
    }

    #[test]
    fn a_cache_that_takes_all_at_once_and_syncs_for_long_does_not_hold_what_it_took() {
        // An observed case: 400 MB taken at 323 MB/s, and completed at 174 MB/s.
        let turns = (1..=100).map(|n| at_once(n * 12_383_900, 4 * MB));
        let service = Service::new(turns.collect(), 36 * MB).synced_at(2_298_850_574);
        let run = Run {
            pace: None,
            overrun_bytes: 0,
            bytes: 400 * MB,
            seconds: 2.298_850_574,
            settled: None,
            duty: None,
        };
        let long = long(&service, 2 << 30, &run);
        assert_eq!((long.recommended.sustained.0 / MB, long.write.rate as u64 / MB), (174, 174));
        assert!(long.recommended.rate.0 <= long.recommended.sustained.0 * 9 / 10);
        let told = verdict(&result(Some(long)), ByteRate(300 * MB), true).unwrap();
        assert!(!told.holds && told.margin < 0.0, "{told:?}");
        assert!(told.sentence.contains("not held by any ring"), "{}", told.sentence);
    }

    #[test]
    fn a_rate_that_came_without_loss_is_held_only_if_the_disk_was_done_with_it() {
        let turns: Vec<Turn> = (1..=500).map(|n| at_once(n * 10_000_000, 4 * MB)).collect();
        let paced = |seconds: f64, required: u64| {
            let end_ns = (seconds * 1e9) as u64;
            let service = Service::new(turns.clone(), 36 * MB).synced_at(end_ns);
            let pace = Some(ByteRate(400 * MB));
            let run = Run {
                pace,
                overrun_bytes: 0,
                bytes: 2000 * MB,
                seconds,
                settled: None,
                duty: None,
            };
            verdict(&result(Some(long(&service, 1 << 30, &run))), ByteRate(required), true).unwrap()
        };
        assert!(paced(5.0, 400 * MB).holds);
        assert!(paced(5.05, 390 * MB).holds, "somewhat more came than was required");
        let late = paced(8.0, 400 * MB);
        assert!(!late.holds && late.sustained == ByteRate(250 * MB), "{late:?}");
        assert!(late.sentence.contains("last sync"), "{}", late.sentence);
        assert_eq!(late.word(), "NOT SHOWN");
    }

    #[test]
    fn a_run_that_its_ring_would_have_held_without_a_disk_is_told_beside_the_verdict() {
        let notes = |bytes: u64| {
            let turns: Vec<Turn> =
                (1..=500).map(|n| at_once(n * 10_000_000, bytes / 500)).collect();
            let service = Service::new(turns, 0).synced_at(5_000_000_000);
            let run = Run {
                pace: None,
                overrun_bytes: 0,
                bytes,
                seconds: 5.0,
                settled: None,
                duty: None,
            };
            let mut result = result(Some(long(&service, 1000 * MB, &run)));
            let require = Some(ByteRate(MB));
            judge(&mut result, &Settings { require, ..settings() });
            assert!(result.verdict.is_some_and(|verdict| verdict.holds));
            result.notes
        };
        assert_eq!(notes(2000 * MB), []);
        let [note] = &notes(500 * MB)[..] else { panic!("one note") };
        assert!(note.text.starts_with("500 MB in 5.0 s were written"), "{}", note.text);
    }

    /// The result of a run of this many seconds in a duty cycle of 40 s / 20 s, on a disk of 100 MB/s that is never idle.
    fn in_cycles(run_s: u64, pace: Option<u64>, overrun_bytes: u64) -> BenchResult {
        let duty: Duty = "40s/20s".parse().unwrap();
        let lasted = Duration::from_secs(run_s);
        let turns = (1..=25 * run_s).map(|n| at_once(n * 40_000_000, 4 * MB));
        let service = Service::new(turns.collect(), 36 * MB).in_duty(Some(duty));
        let judged = settled::judged(service, &[], None, Some((duty, lasted)));
        let settled::Judged { service, bytes, seconds, cycles, .. } = judged;
        let pace = pace.map(|rate| ByteRate(rate * MB));
        let run = Run { pace, overrun_bytes, bytes, seconds, settled: None, duty: Some(duty) };
        let lasted_s = lasted.as_secs_f64();
        let told = DutyRun { record_s: 40.0, pause_s: 20.0, lasted_s, cycles, scans: vec![] };
        let ring_for_rate = rings(&service, Some(ByteRate(140 * MB)));
        let long = long(&service, 2000 * MB, &run);
        result(Some(Continuous { duty: Some(told), ring_for_rate, ..long }))
    }

    fn required(result: &BenchResult, rate: u64) -> Verdict {
        verdict(result, ByteRate(rate * MB), false).unwrap()
    }

    #[test]
    fn run_shorter_than_a_cycle_shows_no_rate_of_a_duty_cycle() {
        for run_s in [10, 40, 59] {
            let result = in_cycles(run_s, None, 0);
            for rate in [1, 140, 1000] {
                let told = required(&result, rate);
                assert_eq!(
                    (told.holds, told.word()),
                    (false, "NOT SHOWN"),
                    "{run_s} s, {rate} MB/s"
                );
                assert!(told.sentence.contains("one cycle of scan and pause lasts 60 s"));
                assert!(told.sentence.contains("write for 60 s at least"), "{}", told.sentence);
            }
        }
        let mut result = in_cycles(40, None, 0);
        judge(&mut result, &Settings { require: None, ..settings() });
        let [note] = &result.notes[..] else { panic!("{:?}", result.notes) };
        assert!(note.text.starts_with("the rates and rings are not those of a duty cycle: "));
    }

    #[test]
    fn run_of_whole_cycles_is_judged_by_them_alone() {
        for (run_s, cycles) in [(60, "1 whole cycle (60 s)"), (150, "2 whole cycles (120 s)")] {
            let result = in_cycles(run_s, None, 0);
            // A scan leaves 1600 MB in the ring, and the pause writes 2000 MB.
            let held = required(&result, 140);
            assert_eq!(held.word(), "HOLDS", "{}", held.sentence);
            let over = format!("were needed over {cycles}");
            assert!(held.sentence.contains(&over), "{}", held.sentence);
            let missed = required(&result, 151);
            assert_eq!((missed.word(), missed.not_shown), ("DOES NOT HOLD", false));
        }
    }

    #[test]
    fn what_was_lost_in_a_part_of_a_cycle_is_not_held_in_a_whole_one() {
        let of_pace =
            |overrun_bytes, rate| required(&in_cycles(30, Some(140), overrun_bytes), rate);
        assert_eq!(of_pace(0, 140).word(), "NOT SHOWN");
        assert_eq!(of_pace(4 * MB, 140).word(), "DOES NOT HOLD");
        assert_eq!(of_pace(4 * MB, 100).word(), "NOT SHOWN", "a lower rate may lose nothing");
    }

    proptest! {
        #[test]
        fn nothing_is_sustained_or_recommended_beyond_what_was_written_in_the_whole_time(
            steps in prop::collection::vec((0u64..40_000_000, 1u64..8_000_000), 1..80),
            sync_ns in 0u64..3_000_000_000,
            ring in 0u64..1_000_000_000,
            pace in prop::option::of(1u64..4_000_000_000),
            overrun_bytes in 0u64..2,
            required in 1u64..4_000_000_000,
        ) {
            let (mut at_ns, mut bytes) = (1, 0);
            let turns: Vec<Turn> = steps
                .into_iter()
                .map(|(wait, more)| {
                    (at_ns, bytes) = (at_ns + wait, bytes + more);
                    at_once(at_ns, more)
                })
                .collect();
            let end_ns = at_ns + sync_ns;
            let service = Service::new(turns, 0).synced_at(end_ns);
            let pace = pace.map(ByteRate);
            let run = Run { pace, overrun_bytes, bytes, seconds: end_ns as f64 / 1e9, settled: None, duty: None };
            let long = long(&service, ring, &run);
            let most = long.write.rate * (1.0 + 1e-9);
            let Recommendation { rate, sustained, .. } = long.recommended;
            prop_assert!(sustained.0 as f64 <= most && rate <= sustained);
            prop_assert!(long.rate_for_ring.iter().all(|row| row.rate.0 as f64 <= most));
            let told = verdict(&result(Some(long)), ByteRate(required), true).unwrap();
            prop_assert!(!told.holds || required as f64 <= most, "{}", told.sentence);
        }
    }

    fn settings() -> Settings {
        Settings {
            targets: vec![],
            overwrite: None,
            roots: Default::default(),
            reserve: None,
            sweep: None,
            continuous: None,
            fio: None,
            spec: None,
            spec_read: None,
            require: Some(ByteRate(100 * MB)),
            in_bits: false,
            capacity: None,
            tbw: None,
            drive_writes: None,
        }
    }

    fn drive(terabytes: f64, shares_with: Option<&str>) -> Target {
        let capacity = ByteSize((terabytes * 1e12) as u64);
        Target { capacity, shares_with: shares_with.map(str::to_owned), ..Target::default() }
    }

    #[test]
    fn a_drive_lives_as_long_as_what_is_warranted_lasts() {
        let mut result = result(None);
        result.targets = vec![drive(1.0, None), drive(3.0, None), drive(3.0, Some("/b"))];
        // 100 MB/s are 8.64 TB in a day of 86400 s; the two drives hold 4 TB.
        judge(&mut result, &settings());
        let bare = result.endurance.unwrap();
        assert_eq!((bare.tb_per_day, bare.tbw, bare.days), (8.64, None, None));
        assert_eq!(bare.drive_writes_per_day, Some(8.64 / 4.0));
        // Half a drive write per day for five years: 0.5 × 4 TB × 365 × 5.
        judge(&mut result, &Settings { drive_writes: Some((0.5, 5.0)), ..settings() });
        let warranted = result.endurance.unwrap();
        assert_eq!(warranted.tbw, Some(3650.0));
        assert!((warranted.days.unwrap() - 3650.0 / 8.64).abs() < 1e-9, "{warranted:?}");
        // A warranty in terabytes is used unchanged.
        judge(&mut result, &Settings { tbw: Some(864.0), ..settings() });
        assert!((result.endurance.unwrap().days.unwrap() - 100.0).abs() < 1e-9);
    }

    #[test]
    fn the_data_sheet_is_held_against_the_fastest_write_and_the_whole_run() {
        let point = |direction, rate: f64| SweepPoint {
            curves: vec![Curve::Block],
            direction,
            mode: Mode::Direct,
            session_bytes: 1 << 20,
            block_bytes: 1 << 20,
            depth: 8,
            files: 1,
            moved_bytes: 1 << 20,
            rate: Spread::of(&[rate]),
            iterations: vec![],
            cpu_s_per_gb: 0.0,
            slowest_ms: 0.0,
            read_modify_write: None,
            cut_by_time: false,
        };
        let service = service();
        let run = Run {
            pace: None,
            overrun_bytes: 0,
            bytes: 20_000 * MB,
            seconds: 12.5,
            settled: None,
            duty: None,
        };
        let mut result = result(Some(long(&service, 1 << 30, &run)));
        let write = |rate| point(Direction::Write, rate);
        result.sweep =
            vec![write(1.0e9), write(3.0e9), write(2.0e9), point(Direction::Read, 9.0e9)];
        judge(&mut result, &Settings { spec: Some(ByteRate(4_000 * MB)), ..settings() });
        let spec = result.spec.unwrap();
        assert_eq!((spec.peak_ratio, spec.continuous_ratio), (Some(0.75), Some(0.4)));
        assert_eq!((spec.system_ratio, result.spec_read), (None, None), "fio was not run");
        let fio = |direction, rate| Comparison {
            program: "fio".into(),
            direction,
            huge_pages: false,
            block_bytes: 4 * MB,
            depth: 8,
            rate: Some(rate),
            cpu_s_per_gb: None,
            longest_ms: None,
            ours: 0.0,
            ours_cpu_s_per_gb: 0.0,
            ratio: None,
            command: String::new(),
            skipped: None,
        };
        result.comparisons = vec![fio(Direction::Write, 3.2e9), fio(Direction::Read, 4.5e9)];
        let both = Settings {
            spec: Some(ByteRate(4_000 * MB)),
            spec_read: Some(ByteRate(9_000 * MB)),
            ..settings()
        };
        judge(&mut result, &both);
        let (write, read) = (result.spec.unwrap(), result.spec_read.unwrap());
        assert_eq!((write.system_ratio, write.continuous_over_system), (Some(0.8), Some(0.5)));
        assert_eq!((read.peak_ratio, read.system_ratio), (Some(1.0), Some(0.5)));
        assert_eq!(read.continuous_ratio, None, "it was not read back");
        result.comparisons.clear();
        result.sweep.clear();
        judge(&mut result, &Settings { spec: Some(ByteRate(4_000 * MB)), ..settings() });
        assert_eq!(result.spec.unwrap().peak_ratio, None, "what was not measured has no ratio");
    }
}
