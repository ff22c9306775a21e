//! The chunk map: the chunk files whose number differs from the chunk number in the index.
//!
//! ```text
//! index   | 0 | 1 … 4 | 5 … 44 |   45   |        45 is the rest of 4, whose member failed
//! files   | 0 | 1 … 4 | 6 … 45 |   5    |
//! ```
//!
//! The map stores runs of numbers: one cut chunk in a long recording costs two runs.

use serde::{Deserialize, Serialize};

/// The largest number with eight digits.
pub const LAST_NUMBER: u32 = 99_999_999;

/// A run of consecutive chunks in consecutive files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkRun {
    /// Number of the first chunk in the index.
    pub chunk: u32,
    /// Number of the first chunk's file.
    pub file: u32,
    /// The number of chunks.
    pub count: u32,
}

/// A map from chunk numbers to file numbers; a chunk that is not listed is in the file of its own number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ChunkMap {
    runs: Vec<ChunkRun>,
}

/// The progress of a renumbering. The manifest in each directory records it for that directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RenumberStage {
    /// Files are renamed to hidden names one by one; visible files have their previous numbers.
    SettingAside,
    /// All files were hidden, and get their new numbers one by one.
    Placing,
    /// All files have their new numbers.
    Done,
}

/// A renumbering of a stream's chunk files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renumbering {
    /// The number of this renumbering of the stream, from 1.
    pub round: u32,
    /// The stage that it has reached.
    pub stage: RenumberStage,
    /// The numbers of the files after the renumbering.
    pub files: ChunkMap,
    /// The numbers before it, if there was an earlier renumbering.
    #[serde(default, skip_serializing_if = "ChunkMap::is_empty")]
    pub before: ChunkMap,
}

impl ChunkMap {
    /// Builds a map from pairs of chunk and file, in any order. Pairs of equal numbers may be omitted.
    pub fn of_pairs(pairs: impl IntoIterator<Item = (u32, u32)>) -> Self {
        let mut pairs: Vec<(u32, u32)> = pairs.into_iter().filter(|(a, b)| a != b).collect();
        pairs.sort_unstable();
        let mut runs: Vec<ChunkRun> = Vec::new();
        for (chunk, file) in pairs {
            match runs.last_mut() {
                Some(run) if run.chunk + run.count == chunk && run.file + run.count == file => {
                    run.count += 1;
                }
                _ => runs.push(ChunkRun { chunk, file, count: 1 }),
            }
        }
        Self { runs }
    }

    /// True if every chunk is in the file of its own number.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns every chunk in a file of another number, with that number.
    pub fn pairs(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let of = |run: &ChunkRun| {
            let ChunkRun { chunk, file, count } = *run;
            (0..count).map(move |at| (chunk + at, file + at))
        };
        self.runs.iter().flat_map(of)
    }

    /// Returns the number of the file of a chunk.
    pub fn file_of(&self, chunk: u32) -> u32 {
        let at = self.runs.partition_point(|run| run.chunk <= chunk);
        let run = at.checked_sub(1).map(|at| self.runs[at]);
        match run.filter(|run| chunk - run.chunk < run.count) {
            Some(run) => run.file + (chunk - run.chunk),
            None => chunk,
        }
    }

    /// Returns the chunk in the file of this number, or `None` if no chunk has that number any more.
    pub fn chunk_of(&self, file: u32) -> Option<u32> {
        let holds = |run: &&ChunkRun| file >= run.file && file - run.file < run.count;
        match self.runs.iter().find(holds) {
            Some(run) => Some(run.chunk + (file - run.file)),
            None => (self.file_of(file) == file).then_some(file),
        }
    }

    /// Checks that a map is valid: no chunk and no file twice, no number with more than eight digits.
    pub fn check(&self) -> Result<(), String> {
        let told = |run: &ChunkRun| {
            format!("{} chunks from {} in files from {}", run.count, run.chunk, run.file)
        };
        let long = |first: u32, run: &ChunkRun| {
            u64::from(first) + u64::from(run.count) > u64::from(LAST_NUMBER) + 1
        };
        if let Some(run) = self
            .runs
            .iter()
            .find(|run| run.count == 0 || long(run.chunk, run) || long(run.file, run))
        {
            return Err(told(run));
        }
        let mut files: Vec<ChunkRun> = self.runs.clone();
        files.sort_unstable_by_key(|run| run.file);
        let chunks = self.runs.iter().zip(self.runs.iter().skip(1));
        let twice = chunks.clone().find(|(run, next)| run.chunk + run.count > next.chunk);
        let pairs = files.iter().zip(files.iter().skip(1));
        let twice =
            twice.or_else(|| pairs.clone().find(|(run, next)| run.file + run.count > next.file));
        match twice {
            Some((_, next)) => Err(format!("{}, some of them twice", told(next))),
            None => Ok(()),
        }
    }
}

impl Renumbering {
    /// Returns the map that applies to the visible files.
    pub fn in_sight(&self) -> &ChunkMap {
        match self.stage {
            RenumberStage::SettingAside => &self.before,
            RenumberStage::Placing | RenumberStage::Done => &self.files,
        }
    }

    /// Checks that a renumbering is valid.
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
        let numbers = ChunkMap::of_pairs((5..45).map(|chunk| (chunk, chunk + 1)).chain([(45, 5)]));
        let first = ChunkRun { chunk: 5, file: 6, count: 40 };
        assert_eq!(numbers.runs, [first, ChunkRun { chunk: 45, file: 5, count: 1 }]);
        assert_eq!(numbers.check(), Ok(()));
        for (chunk, file) in [(0, 0), (4, 4), (5, 6), (44, 45), (45, 5), (46, 46)] {
            assert_eq!((numbers.file_of(chunk), numbers.chunk_of(file)), (file, Some(chunk)));
        }
        let closed = ChunkMap::of_pairs([(8, 7)]);
        assert_eq!((closed.chunk_of(7), closed.chunk_of(8)), (Some(8), None));
    }

    #[test]
    fn numbers_that_cannot_be_are_refused() {
        let run = |chunk, file, count| ChunkRun { chunk, file, count };
        for runs in [
            vec![run(1, 2, 0)],
            vec![run(1, LAST_NUMBER, 2)],
            vec![run(u32::MAX, 0, u32::MAX)],
            vec![run(1, 2, 2), run(2, 9, 1)],
            vec![run(1, 2, 2), run(5, 3, 1)],
            vec![run(5, 3, 1), run(1, 9, 1)],
        ] {
            assert!(ChunkMap { runs: runs.clone() }.check().is_err(), "{runs:?}");
        }
    }
}
