//! How long the members of a disk set are known to stand still: what the benchmarks of before have seen.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fullbore_core::demand::{ASSUMED_STALL_MS, Stall};
use fullbore_survey::bench::history;
use fullbore_survey::bench::result::BenchResult;

/// So many results are looked through, the newest first.
const MOST_RESULTS: usize = 64;

/// The worst stall that the newest benchmark of each member saw. Of a member that nobody has measured the default is
/// reckoned with, and of a set the worst.
pub fn measured(members: &[PathBuf]) -> Option<Stall> {
    let results: Vec<BenchResult> = newest();
    let of = |member: &PathBuf| results.iter().find_map(|result| of_result(result, member));
    worst(members.iter().map(of))
}

/// A history that cannot be read is none: nothing depends on it but a default.
fn newest() -> Vec<BenchResult> {
    let paths = history::directory().and_then(|place| history::list(&place)).unwrap_or_default();
    let latest = paths.iter().rev().take(MOST_RESULTS);
    latest.filter_map(|path| history::read(path).ok()).collect()
}

/// What a benchmark saw of the disk that a member lies on.
fn of_result(result: &BenchResult, member: &Path) -> Option<Stall> {
    let continuous = result.continuous.as_ref().filter(|it| it.stalls.writes > 0)?;
    let device = |path: &Path| path.metadata().ok().map(|metadata| metadata.dev());
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
    use fullbore_survey::bench::result::{Kind, Target};

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
    }

    fn pass() -> serde_json::Value {
        serde_json::json!({
            "bytes": 0, "seconds": 0.0, "rate": 0.0, "cpu_s_per_gb": 0.0, "over_time": [], "over_position": [],
        })
    }
}
