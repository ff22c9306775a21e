//! Which file holds which chunk, where chunk files were given other numbers than the index has.
//!
//! ```text
//! index   | 0 | 1 … 4 | 5 … 44 |   45   |        45 is the rest of 4, whose member failed
//! files   | 0 | 1 … 4 | 6 … 45 |   5    |
//! ```
//!
//! Numbers are told in runs, so that one cut chunk in a long recording costs two of them.

use serde::{Deserialize, Serialize};

/// The largest number that eight digits can say.
pub const LAST_NUMBER: u32 = 99_999_999;

/// Consecutive chunks that lie in consecutive files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Number of the first chunk, as the index has it.
    pub chunk: u32,
    /// Number of its file.
    pub file: u32,
    /// How many.
    pub count: u32,
}

/// Chunks that lie in files of other numbers; every other chunk lies in the file of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Numbers {
    runs: Vec<Run>,
}

/// How far files have been renamed. The manifest in each directory says it for that directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Files are taken out of sight one by one; those in sight have the number they had before.
    SettingAside,
    /// All were out of sight, and take their new numbers one by one.
    Placing,
    /// All have their new numbers.
    Done,
}

/// A renaming of a stream's chunk files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renamed {
    /// Which renaming of the stream it is, from 1.
    pub round: u32,
    /// How far it is.
    pub stage: Stage,
    /// The numbers of the files when all is done.
    pub files: Numbers,
    /// The numbers they had before, if there was a renaming before.
    #[serde(default, skip_serializing_if = "Numbers::is_empty")]
    pub before: Numbers,
}

impl Numbers {
    /// From pairs of chunk and file, in any order. Chunks in files of their own number need not be told.
    pub fn of_pairs(pairs: impl IntoIterator<Item = (u32, u32)>) -> Self {
        let mut pairs: Vec<(u32, u32)> = pairs.into_iter().filter(|(a, b)| a != b).collect();
        pairs.sort_unstable();
        let mut runs: Vec<Run> = Vec::new();
        for (chunk, file) in pairs {
            match runs.last_mut() {
                Some(run) if run.chunk + run.count == chunk && run.file + run.count == file => {
                    run.count += 1;
                }
                _ => runs.push(Run { chunk, file, count: 1 }),
            }
        }
        Self { runs }
    }

    /// Whether every chunk lies in the file of its own number.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Every chunk that lies in a file of another number, with that number.
    pub fn pairs(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let of = |run: &Run| {
            let Run { chunk, file, count } = *run;
            (0..count).map(move |at| (chunk + at, file + at))
        };
        self.runs.iter().flat_map(of)
    }

    /// The number of the file that a chunk lies in.
    pub fn file_of(&self, chunk: u32) -> u32 {
        let at = self.runs.partition_point(|run| run.chunk <= chunk);
        let run = at.checked_sub(1).map(|at| self.runs[at]);
        match run.filter(|run| chunk - run.chunk < run.count) {
            Some(run) => run.file + (chunk - run.chunk),
            None => chunk,
        }
    }

    /// The chunk in a file of this number. `None` if no chunk has that number any more.
    pub fn chunk_of(&self, file: u32) -> Option<u32> {
        let holds = |run: &&Run| file >= run.file && file - run.file < run.count;
        match self.runs.iter().find(holds) {
            Some(run) => Some(run.chunk + (file - run.file)),
            None => (self.file_of(file) == file).then_some(file),
        }
    }

    /// Whether what was read can be: no chunk and no file twice, no number with more than eight digits.
    pub fn check(&self) -> Result<(), String> {
        let told = |run: &Run| {
            format!("{} chunks from {} in files from {}", run.count, run.chunk, run.file)
        };
        let long = |first: u32, run: &Run| {
            u64::from(first) + u64::from(run.count) > u64::from(LAST_NUMBER) + 1
        };
        if let Some(run) = self
            .runs
            .iter()
            .find(|run| run.count == 0 || long(run.chunk, run) || long(run.file, run))
        {
            return Err(told(run));
        }
        let mut files: Vec<Run> = self.runs.clone();
        files.sort_unstable_by_key(|run| run.file);
        let chunks = self.runs.iter().zip(self.runs.iter().skip(1));
        let twice = chunks.clone().find(|(run, next)| run.chunk + run.count > next.chunk);
        let pairs = files.iter().zip(files.iter().skip(1));
        let twice =
            twice.or_else(|| pairs.clone().find(|(run, next)| run.file + run.count > next.file));
        match twice {
            Some((_, next)) => Err(format!("{}, of which some are told twice", told(next))),
            None => Ok(()),
        }
    }
}

impl Renamed {
    /// What is true of the files in sight.
    pub fn in_sight(&self) -> &Numbers {
        match self.stage {
            Stage::SettingAside => &self.before,
            Stage::Placing | Stage::Done => &self.files,
        }
    }

    /// Whether what was read can be.
    pub fn check(&self) -> Result<(), String> {
        self.files.check()?;
        self.before.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_that_was_cut_early_costs_two_runs() {
        let numbers = Numbers::of_pairs((5..45).map(|chunk| (chunk, chunk + 1)).chain([(45, 5)]));
        let first = Run { chunk: 5, file: 6, count: 40 };
        assert_eq!(numbers.runs, [first, Run { chunk: 45, file: 5, count: 1 }]);
        assert_eq!(numbers.check(), Ok(()));
        for (chunk, file) in [(0, 0), (4, 4), (5, 6), (44, 45), (45, 5), (46, 46)] {
            assert_eq!((numbers.file_of(chunk), numbers.chunk_of(file)), (file, Some(chunk)));
        }
        let closed = Numbers::of_pairs([(8, 7)]);
        assert_eq!((closed.chunk_of(7), closed.chunk_of(8)), (Some(8), None));
    }

    #[test]
    fn numbers_that_cannot_be_are_refused() {
        let run = |chunk, file, count| Run { chunk, file, count };
        for runs in [
            vec![run(1, 2, 0)],
            vec![run(1, LAST_NUMBER, 2)],
            vec![run(u32::MAX, 0, u32::MAX)],
            vec![run(1, 2, 2), run(2, 9, 1)],
            vec![run(1, 2, 2), run(5, 3, 1)],
            vec![run(5, 3, 1), run(1, 9, 1)],
        ] {
            assert!(Numbers { runs: runs.clone() }.check().is_err(), "{runs:?}");
        }
    }
}
