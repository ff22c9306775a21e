//! The stall times and the write rate of members, as seen by earlier benchmarks.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fullbore_core::memory_budget::{ASSUMED_STALL_MS, DiskRate, MeasuredDisks, Stall};
use fullbore_core::units::ByteRate;

use super::history;
use super::result::BenchResult;

/// The most results that are searched, the newest first.
const MOST_RESULTS: usize = 64;

/// Reads what the history says of the members.
///
/// The stall is the worst one in the newest benchmark of each member; the worst member counts, and a member without a
/// benchmark has the default. The write rate is from the newest benchmark of exactly these disks at full speed.
pub fn measured(members: &[PathBuf]) -> MeasuredDisks {
    let results: Vec<BenchResult> = newest();
    let of = |member: &PathBuf| results.iter().find_map(|result| of_result(result, member));
    MeasuredDisks {
        stall: worst(members.iter().map(of)),
        disk_rate: results.iter().find_map(|result| disk_rate(result, members)),
    }
}

/// The write rate that a benchmark at full speed measured on exactly the disks of these members.
fn disk_rate(result: &BenchResult, members: &[PathBuf]) -> Option<DiskRate> {
    let long = result.continuous.as_ref().filter(|it| it.paced.is_none() && !result.interrupted)?;
    let devices = |paths: &mut dyn Iterator<Item = &Path>| {
        paths.map(device).collect::<Option<BTreeSet<u64>>>().filter(|devices| !devices.is_empty())
    };
    let here = devices(&mut members.iter().map(PathBuf::as_path))?;
    let there = devices(&mut result.targets.iter().map(|target| Path::new(&target.path)))?;
    // In a duty cycle the rate of the settled part is told per second of a scan, while the disks write in pauses too.
    let share =
        long.duty.as_ref().map_or(1.0, |duty| duty.record_s / (duty.record_s + duty.pause_s));
    let settled = long.settled.map(|settled| settled.rate * share);
    let rate = settled.map_or(long.write.rate, |settled| settled.min(long.write.rate));
    (here == there && rate >= 1.0).then(|| DiskRate {
        rate: ByteRate(rate as u64),
        by: format!("the benchmark of {}", result.started),
    })
}

/// The number of the device that holds a path.
fn device(path: &Path) -> Option<u64> {
    path.metadata().ok().map(|metadata| metadata.dev())
}

/// The results in the history. An unreadable history counts as empty, because only a default depends on it.
pub fn newest() -> Vec<BenchResult> {
    let paths = history::directory().and_then(|place| history::list(&place)).unwrap_or_default();
    let latest = paths.iter().rev().take(MOST_RESULTS);
    latest.filter_map(|path| history::read(path).ok()).collect()
}

/// The stall that a benchmark measured on a member's disk.
fn of_result(result: &BenchResult, member: &Path) -> Option<Stall> {
    let continuous = result.continuous.as_ref().filter(|it| it.stalls.writes > 0)?;
    let here = device(member)?;
    let same = |path: &String| device(Path::new(path)) == Some(here);
    result.targets.iter().any(|target| same(&target.path)).then(|| {
        let by = format!("the benchmark of {}", result.started);
        Stall::measured(continuous.stalls.longest_ms, by)
    })
}

fn worst(stalls: impl Iterator<Item = Option<Stall>>) -> Option<Stall> {
    let all: Vec<Option<Stall>> = stalls.collect();
    let worst = all.iter().flatten().max_by_key(|stall| stall.ms)?.clone();
    let known = all.iter().all(Option::is_some) || worst.ms >= ASSUMED_STALL_MS;
    known.then_some(worst)
}

#[cfg(test)]
mod tests {
    use super::super::result::{Kind, Target};
    use super::*;

    fn stall(ms: u64) -> Option<Stall> {
        Some(Stall { ms, measured: Some(ms.to_string()) })
    }

    #[test]
    fn the_worst_member_counts_and_one_that_is_not_known_may_be_worse() {
        assert_eq!(worst([stall(20), stall(90)].into_iter()), stall(90));
        assert_eq!(worst([stall(20), None].into_iter()), None);
        assert_eq!(worst([stall(4000), None].into_iter()), stall(4000));
        assert_eq!(worst([].into_iter()), None);
    }

    #[test]
    fn a_benchmark_speaks_of_the_disk_that_it_was_made_on() {
        let place = tempfile::tempdir().unwrap();
        let target = |path: &Path| Target { path: path.display().to_string(), ..Target::default() };
        let mut result = BenchResult::new(Kind::Disk, Default::default());
        result.targets = vec![target(place.path())];
        assert_eq!(of_result(&result, place.path()), None, "nothing was written for long");
        let json = serde_json::json!({
            "block_bytes": 1, "depth_bytes": 1, "pattern": "", "overrun_bytes": 0,
            "write": pass(), "ring": 0, "worst_windows": [], "ring_for_rate": [], "rate_for_ring": [],
            "stalls": { "writes": 10, "percentiles": [], "longest_ms": 40.2, "longest_at_s": 0.0,
                "histogram": [], "per_hour": [], "longest_silence_ms": 0.0, "longest_silence_at_s": 0.0 },
            "recommended": { "rate": 0, "ring": 0, "sustained": 0, "margin": "" },
        });
        result.continuous = Some(serde_json::from_value(json).unwrap());
        assert_eq!(of_result(&result, place.path()).map(|stall| stall.ms), Some(82));
        assert_eq!(of_result(&result, Path::new("/proc")), None, "another file system");
        assert_eq!(disk_rate(&result, &[place.path().to_owned()]), None, "it has no rate");
        let long = result.continuous.as_mut().unwrap();
        long.write.rate = 140e6;
        let members = [place.path().to_owned()];
        let rate = |result: &BenchResult| disk_rate(result, &members).map(|disks| disks.rate.0);
        assert_eq!(rate(&result), Some(140_000_000));
        assert_eq!(disk_rate(&result, &["/proc".into()]), None, "another file system");
        let both = [members[0].clone(), "/proc".into()];
        assert_eq!(disk_rate(&result, &both), None, "more disks than were measured");
        let long = result.continuous.as_mut().unwrap();
        long.paced = Some(ByteRate(100_000_000));
        assert_eq!(rate(&result), None, "it was not at full speed");
    }

    fn pass() -> serde_json::Value {
        serde_json::json!({
            "bytes": 0, "seconds": 0.0, "rate": 0.0, "cpu_s_per_gb": 0.0, "over_time": [], "over_position": [],
        })
    }
}
