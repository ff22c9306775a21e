//! Measures several disk sets in sequence, with the same settings, in one result.
//!
//! The document contains the unchanged result of each set (`docs/reference/bench.schema.json`), with its name. The sets
//! are comparable, because the settings, the machine and the program are the same for all.

use std::collections::BTreeSet;
use std::str::FromStr;

use fullbore_core::units::ByteRate;
use serde::{Deserialize, Serialize};

use super::result::BenchResult;

/// The version of the document; a reader refuses later ones.
pub const VERSION: u32 = 1;

/// The most sets that one command measures.
pub const MOST_SETS: usize = 64;

/// A set as typed: `A=/mnt/a,/mnt/b`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedTargets {
    /// The name.
    pub name: String,
    /// The directories, or the one file or block device.
    pub targets: Vec<std::path::PathBuf>,
}

/// A text that is no set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text} is not a disk set: write a name and its targets, for example A=/mnt/a,/mnt/b")]
pub struct NoSet {
    text: String,
}

impl FromStr for NamedTargets {
    type Err = NoSet;

    fn from_str(text: &str) -> Result<Self, NoSet> {
        let wrong = || NoSet { text: text.to_owned() };
        let (name, targets) = text.split_once('=').ok_or_else(wrong)?;
        let targets: Vec<&str> = targets.split(',').collect();
        if name.trim().is_empty() || name.contains('/') || targets.iter().any(|it| it.is_empty()) {
            return Err(wrong());
        }
        let targets = targets.into_iter().map(Into::into).collect();
        Ok(Self { name: name.trim().to_owned(), targets })
    }
}

/// The first name that two sets share.
pub fn named_twice(sets: &[NamedTargets]) -> Option<&str> {
    let mut known = BTreeSet::new();
    sets.iter().map(|set| set.name.as_str()).find(|name| !known.insert(*name))
}

/// The results of several disk sets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SetsResult {
    /// [`VERSION`] at the time of writing.
    pub fullbore_bench_sets: u32,
    /// The command of the benchmark as typed.
    pub command: Vec<String>,
    /// The rate required of each set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required: Option<ByteRate>,
    /// The sets, in the order of measurement.
    pub sets: Vec<SetResult>,
    /// Sets that could not be measured, or were not because the benchmark was stopped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmeasured: Vec<Unmeasured>,
    /// True if every set was measured completely, and all hold the required rate, if any.
    pub passed: bool,
}

/// The result of one set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SetResult {
    /// The name.
    pub name: String,
    /// The result.
    pub result: BenchResult,
}

/// A set that was not measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unmeasured {
    /// The name.
    pub name: String,
    /// The reason.
    pub why: String,
}

impl SetsResult {
    /// Judges measured and unmeasured sets together.
    pub fn new(
        required: Option<ByteRate>,
        sets: Vec<SetResult>,
        unmeasured: Vec<Unmeasured>,
    ) -> Self {
        let good = |set: &SetResult| {
            let holds = set.result.verdict.as_ref().map_or(required.is_none(), |it| it.holds);
            holds && !set.result.interrupted && !has_wrong_data(&set.result)
        };
        Self {
            fullbore_bench_sets: VERSION,
            command: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
            required,
            passed: unmeasured.is_empty() && sets.iter().all(good),
            sets,
            unmeasured,
        }
    }
}

/// True if data read back differed from data written.
pub fn has_wrong_data(result: &BenchResult) -> bool {
    let verification = result.continuous.as_ref().and_then(|long| long.verification.as_ref());
    verification.is_some_and(|found| found.wrong_blocks > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::result::{Kind, Verdict};

    #[test]
    fn set_that_does_not_show_the_rate_has_not_passed() {
        let required = ByteRate(1);
        let all = |holds, not_shown| {
            let (sustained, margin, sentence) = (required, 0.0, String::new());
            let in_bits = false;
            let verdict =
                Verdict { required, in_bits, sustained, holds, not_shown, margin, sentence };
            let result = BenchResult::new(Kind::Disk, Default::default());
            let result = BenchResult { verdict: Some(verdict), ..result };
            SetsResult::new(Some(required), vec![SetResult { name: "A".into(), result }], vec![])
        };
        assert!(all(true, false).passed);
        assert!(!all(false, true).passed && !all(false, false).passed);
    }

    #[test]
    fn a_set_is_a_name_and_its_targets() {
        let set: NamedTargets = "four disks=/mnt/a,/mnt/b=c".parse().unwrap();
        assert_eq!(set.name, "four disks");
        assert_eq!(set.targets, ["/mnt/a".as_ref(), "/mnt/b=c".as_ref()] as [&std::path::Path; 2]);
        for text in ["", "/mnt/a", "=/mnt/a", "A=", "A=/mnt/a,", "/mnt/a=b"] {
            assert!(text.parse::<NamedTargets>().is_err(), "{text}");
        }
        let [a, b]: [NamedTargets; 2] = ["A=/x".parse().unwrap(), "B=/y".parse().unwrap()];
        assert_eq!(named_twice(&[a.clone(), b.clone()]), None);
        assert_eq!(named_twice(&[a.clone(), b, a]), Some("A"));
    }
}
