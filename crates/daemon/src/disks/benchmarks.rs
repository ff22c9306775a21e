//! The last benchmarks of members, from the history that `fullbore bench disk` keeps.

use std::path::{Path, PathBuf};

use fullbore_survey::bench::history;
use fullbore_survey::bench::measured;
use fullbore_survey::bench::result::{BenchResult, Kind};
use serde::Serialize;
use utoipa::ToSchema;

/// Benchmarks that are shown.
const SHOWN: usize = 20;

/// A benchmark. `fullbore bench report` shows all of it.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Benchmark {
    /// Its identity, which is in the name of its file.
    pub id: String,
    /// When it began, in UTC.
    pub started: String,
    /// The directories that were measured together.
    pub targets: Vec<String>,
    /// True if it was ended early.
    pub interrupted: bool,
    /// Bytes per second of the long write.
    pub write_rate: Option<f64>,
    /// Bytes per second of reading back.
    pub read_rate: Option<f64>,
    /// The longest write of a block in milliseconds.
    pub longest_write_ms: Option<f64>,
    /// Bytes per second that are recommended for recordings.
    pub recommended_rate: Option<u64>,
}

/// The benchmarks of some members, read again when the history has another file.
#[derive(Default)]
pub(super) struct Cache {
    files: Vec<PathBuf>,
    found: Vec<Benchmark>,
}

impl Cache {
    pub(super) fn of(&mut self, members: &[PathBuf]) -> Vec<Benchmark> {
        let files = history::directory().and_then(|it| history::list(&it)).unwrap_or_default();
        if files != self.files {
            let wanted = measured::newest().into_iter().filter(|it| concerns(it, members));
            self.found = wanted.take(SHOWN).map(|it| shown(&it)).collect();
            self.files = files;
        }
        self.found.clone()
    }
}

/// True if it measured one of the members.
fn concerns(result: &BenchResult, members: &[PathBuf]) -> bool {
    let whole = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let members: Vec<PathBuf> = members.iter().map(|it| whole(it)).collect();
    let mut targets = result.targets.iter().map(|it| whole(Path::new(&it.path)));
    result.kind == Kind::Disk && targets.any(|it| members.contains(&it))
}

fn shown(result: &BenchResult) -> Benchmark {
    let long = result.continuous.as_ref();
    Benchmark {
        id: result.id.to_string(),
        started: result.started.clone(),
        targets: result.targets.iter().map(|it| it.path.clone()).collect(),
        interrupted: result.interrupted,
        write_rate: long.map(|it| it.write.rate),
        read_rate: long.and_then(|it| it.read.as_ref()).map(|it| it.rate),
        longest_write_ms: long.filter(|it| it.stalls.writes > 0).map(|it| it.stalls.longest_ms),
        recommended_rate: long.map(|it| it.recommended.rate.0),
    }
}

#[cfg(test)]
mod tests {
    use fullbore_survey::bench::result::Target;

    use super::*;

    #[test]
    fn a_benchmark_concerns_the_members_that_it_measured() {
        let place = tempfile::tempdir().unwrap();
        let mut result = BenchResult::new(Kind::Disk, Default::default());
        let path = place.path().display().to_string();
        result.targets = vec![Target { path: path.clone(), ..Target::default() }];
        assert!(concerns(&result, &[place.path().to_owned()]));
        assert!(!concerns(&result, &["/proc".into()]));
        let shown = shown(&result);
        assert_eq!(
            (shown.targets, shown.write_rate, shown.longest_write_ms),
            (vec![path], None, None)
        );
        result.kind = Kind::Memory;
        assert!(!concerns(&result, &[place.path().to_owned()]));
    }
}
