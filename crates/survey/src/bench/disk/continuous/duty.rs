//! A run in scans with pauses: the result of each scan, and the run with the pauses cut out.

use std::time::Duration;

use fullbore_core::duty::Duty;

use super::{Done, Written};
use crate::bench::result::{Cliff, DutyRun, ScanRun};

const NS_PER_S: f64 = 1e9;

/// The cycle in which a block was passed to the target.
fn cycle(done: &Done, duty: Duty) -> usize {
    (done.at_ns.saturating_sub(done.took_ns) / duty.cycle_ns()) as usize
}

/// Every scan that began while blocks were passed to the target, and its pause. A block that is still queued at the end
/// belongs to the last scan, however late the disk completes it.
pub fn scans(trace: &[Done], duty: Duty, fed_for: Duration) -> Vec<ScanRun> {
    let start_ns = |number: usize| number as u64 * duty.cycle_ns();
    let begun = (fed_for.as_nanos() as u64).div_ceil(duty.cycle_ns()).max(1) as usize;
    let scan = |number| ScanRun { at_s: start_ns(number) as f64 / NS_PER_S, ..ScanRun::default() };
    let mut scans: Vec<ScanRun> = (0..begun).map(scan).collect();
    for done in trace {
        let number = cycle(done, duty).min(begun - 1);
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

/// The run in the form of the document, and the number of whole cycles by which it is judged.
pub fn told(written: &Written, duty: Duty, cycles: u64) -> DutyRun {
    DutyRun {
        record_s: duty.record().as_secs_f64(),
        pause_s: duty.pause().as_secs_f64(),
        lasted_s: written.lasted.as_secs_f64(),
        cycles: Some(cycles),
        scans: scans(&written.trace, duty, written.fed_for),
    }
}

/// The same trace without the pauses, and their total length.
pub fn without_rests(trace: &[Done], duty: Duty) -> (Vec<Done>, Duration) {
    let last = trace.iter().map(|done| cycle(done, duty)).max().unwrap_or(0);
    let mut busy_until_ns = vec![0; last + 1];
    for done in trace {
        let until = &mut busy_until_ns[cycle(done, duty)];
        *until = done.at_ns.max(*until);
    }
    // The time cut out before each cycle.
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

/// Converts the times of cliffs from the run without pauses to the whole run.
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
        let scans = scans(&trace(), "1s/1s".parse().unwrap(), Duration::from_millis(5500));
        assert_eq!(scans.len(), 3);
        for (number, scan) in scans.iter().enumerate() {
            assert_eq!((scan.bytes, scan.pause_bytes), (100_000_000, 50_000_000));
            assert_eq!((scan.at_s, scan.rate), (number as f64 * 2.0, 1e8));
            assert!((scan.drained_s - 0.5).abs() < 1e-9);
        }
    }

    #[test]
    fn a_disk_that_never_drains_has_as_many_scans_as_the_time_holds() {
        // Blocks of the ring that the disk completes in the second after the 24 s of six scans and pauses.
        let done = |n: u64| Done {
            member: 0,
            chunk: 0,
            offset: 0,
            bytes: 1_000_000,
            at_ns: (n + 1) * 10_000_000,
            took_ns: 9_000_000,
        };
        let trace: Vec<Done> = (0..2500).map(done).collect();
        let scans = scans(&trace, "3s/1s".parse().unwrap(), Duration::from_secs(24));
        assert_eq!(scans.len(), 6);
        assert!(scans.iter().all(|scan| scan.pause_bytes >= 99_000_000), "{scans:?}");
        let bytes: u64 = scans.iter().map(|scan| scan.bytes + scan.pause_bytes).sum();
        assert_eq!(bytes, 2500 * 1_000_000);
        assert!((scans[5].drained_s - 2.0).abs() < 1e-9, "{:?}", scans[5]);
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
