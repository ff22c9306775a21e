//! A run in scans with pauses between them: what each scan wrote, and the same run with the pauses cut out.

use std::time::Duration;

use fullbore_core::duty::Duty;

use super::Done;
use crate::bench::result::{Cliff, DutyRun, ScanRun};

const NS_PER_S: f64 = 1e9;

/// The cycle in which a block was given to the target.
fn cycle(done: &Done, duty: Duty) -> usize {
    (done.at_ns.saturating_sub(done.took_ns) / duty.cycle_ns()) as usize
}

/// Every scan that was begun, and its pause.
pub fn scans(trace: &[Done], duty: Duty) -> Vec<ScanRun> {
    let mut scans: Vec<ScanRun> = vec![];
    for done in trace {
        let number = cycle(done, duty);
        let start_ns = |number: usize| number as u64 * duty.cycle_ns();
        while scans.len() <= number {
            let at_s = start_ns(scans.len()) as f64 / NS_PER_S;
            scans.push(ScanRun { at_s, ..ScanRun::default() });
        }
        let scan = &mut scans[number];
        let behind_ns =
            done.at_ns.saturating_sub(start_ns(number) + duty.record().as_nanos() as u64);
        if behind_ns == 0 {
            scan.bytes += u64::from(done.bytes);
        } else {
            scan.pause_bytes += u64::from(done.bytes);
            scan.drained_s = scan.drained_s.max(behind_ns as f64 / NS_PER_S);
        }
    }
    let last_ns = trace.last().map_or(0, |last| last.at_ns) as f64;
    for scan in &mut scans {
        let lasted_s = (last_ns / NS_PER_S - scan.at_s).min(duty.record().as_secs_f64());
        scan.rate = scan.bytes as f64 / lasted_s.max(1e-9);
    }
    scans
}

/// The run as its document tells it.
pub fn told(trace: &[Done], duty: Duty) -> DutyRun {
    DutyRun {
        record_s: duty.record().as_secs_f64(),
        pause_s: duty.pause().as_secs_f64(),
        scans: scans(trace, duty),
    }
}

/// The same trace without the time in which there was nothing to write, and how long that was.
pub fn without_rests(trace: &[Done], duty: Duty) -> (Vec<Done>, Duration) {
    let last = trace.iter().map(|done| cycle(done, duty)).max().unwrap_or(0);
    let mut busy_until_ns = vec![0; last + 1];
    for done in trace {
        let until = &mut busy_until_ns[cycle(done, duty)];
        *until = done.at_ns.max(*until);
    }
    // What was cut out before each cycle.
    let mut cut_ns = vec![0; last + 1];
    for number in 1..=last {
        let start_ns = number as u64 * duty.cycle_ns();
        let before = busy_until_ns[..number].iter().max().copied().unwrap_or(0);
        let rest_ns = start_ns.saturating_sub(before.max(start_ns - duty.cycle_ns()));
        cut_ns[number] = cut_ns[number - 1] + rest_ns;
    }
    let moved = |done: &Done| Done { at_ns: done.at_ns - cut_ns[cycle(done, duty)], ..*done };
    let mut active: Vec<Done> = trace.iter().map(moved).collect();
    active.sort_by_key(|done| done.at_ns);
    (active, Duration::from_nanos(cut_ns[last]))
}

/// Gives cliffs of a run without its rests the times that they had in the whole run.
pub fn place_in_time(cliffs: &mut [Cliff], trace: &[Done]) {
    for cliff in cliffs {
        let mut bytes = 0;
        let at = trace.iter().find(|done| {
            bytes += u64::from(done.bytes);
            bytes > cliff.position
        });
        cliff.at_s = at.map_or(cliff.at_s, |done| done.at_ns as f64 / NS_PER_S);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scans of 1 s at 100 blocks a second, half a second more for the ring, and half a second of rest.
    fn trace() -> Vec<Done> {
        let done = |cycle: u64, n: u64| Done {
            member: 0,
            chunk: 0,
            offset: 0,
            bytes: 1_000_000,
            at_ns: (cycle * 2000 + (n + 1) * 10) * 1_000_000,
            took_ns: 9_000_000,
        };
        (0..3).flat_map(|cycle| (0..150).map(move |n| done(cycle, n))).collect()
    }

    #[test]
    fn each_scan_has_its_bytes_and_those_of_its_pause() {
        let scans = scans(&trace(), "1s/1s".parse().unwrap());
        assert_eq!(scans.len(), 3);
        for (number, scan) in scans.iter().enumerate() {
            assert_eq!((scan.bytes, scan.pause_bytes), (100_000_000, 50_000_000));
            assert_eq!((scan.at_s, scan.rate), (number as f64 * 2.0, 1e8));
            assert!((scan.drained_s - 0.5).abs() < 1e-9);
        }
    }

    #[test]
    fn rests_are_cut_out_and_nothing_else() {
        let (active, cut) = without_rests(&trace(), "1s/1s".parse().unwrap());
        assert_eq!(cut, Duration::from_secs(1));
        let gap = active.windows(2).map(|pair| pair[1].at_ns - pair[0].at_ns).max().unwrap();
        assert_eq!((active.len(), gap), (450, 10_000_000));
        let (same, cut) = without_rests(&trace(), "6s/0s".parse().unwrap());
        assert_eq!((same, cut), (trace(), Duration::ZERO));
    }
}
