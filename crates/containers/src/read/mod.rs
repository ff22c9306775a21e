//! Files of samples that other programs wrote: where the samples are, and what they are.
//!
//! ```text
//! x.sigmf-meta ──► sigmf.rs ─┐
//! x.npy        ──► numpy.rs ─┼─► SampleFile: a range of bytes of a file, a layout, and runs without gaps
//! x.wav        ──► wav.rs ───┘
//! ```
//!
//! The metadata comes from anybody. It is bounded, and it names no file outside of its folder.

pub mod numpy;
pub mod sigmf;
pub mod wav;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use fullbore_formats::samples::SampleLayout;
use fullbore_time::Tai;

/// The longest file of metadata, in bytes.
const LONGEST_META: u64 = 64 << 20;

/// Samples in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleFile {
    /// The file.
    pub path: PathBuf,
    /// Bytes before the first sample.
    pub skip: u64,
    /// Bytes of whole samples.
    pub bytes: u64,
    /// The samples.
    pub layout: SampleLayout,
    /// The runs of samples without a gap, in order. The first one begins with the first sample.
    pub runs: Vec<SampleRun>,
    /// What the file states and the samples do not show, in sentences.
    pub notes: Vec<String>,
}

/// A run of samples without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleRun {
    /// The number of its first sample in the file.
    pub in_file: u64,
    /// The same in the original stream, whose lost samples are counted.
    pub in_stream: u64,
    /// The time of that sample.
    pub time: Option<Tai>,
}

/// A file of samples cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file is no file of samples that can be recorded.
    #[error("{}: {why}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
}

impl SampleFile {
    /// Opens `x.sigmf-meta`, `x.sigmf-data` or a path without this ending, `x.npy`, or `x.wav`.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let ending = path.extension().map(|ending| ending.to_ascii_lowercase());
        match ending.as_ref().and_then(|ending| ending.to_str()) {
            Some("npy") => numpy::open(path),
            Some("wav" | "rf64" | "bw64") => wav::open(path),
            _ => sigmf::open(path),
        }
    }

    /// True if samples are absent between its runs.
    pub fn has_gaps(&self) -> bool {
        self.runs.len() > 1
    }

    /// Bytes of a sample of all channels.
    pub fn sample_bytes(&self) -> u64 {
        self.layout.sample_bits() / 8
    }

    /// The largest number of samples, at most `most`, of which each run and each gap is a whole multiple.
    pub fn common_length(&self, most: u64) -> u64 {
        let Some(first) = self.runs.first() else { return 0 };
        let all = self.bytes / self.sample_bytes().max(1);
        let marks = self.runs.iter().flat_map(|run| [run.in_file, run.in_stream - first.in_stream]);
        let common = marks.fold(all, common_divisor);
        let most = most.min(common);
        (1..=most).rev().find(|&length| common.is_multiple_of(length)).unwrap_or(0)
    }
}

fn common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The bytes of a file of metadata.
fn read_meta(path: &Path) -> Result<Vec<u8>, ReadError> {
    let failed = |source| ReadError::Io { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(LONGEST_META + 1).read_to_end(&mut bytes))
        .map_err(failed)?;
    match bytes.len() as u64 > LONGEST_META {
        true => Err(content(path, format!("it has more than {} MiB", LONGEST_META >> 20))),
        false => Ok(bytes),
    }
}

fn content(path: &Path, why: impl Into<String>) -> ReadError {
    ReadError::Content { path: path.to_owned(), why: why.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_fit_every_run_and_every_gap() {
        let run = |in_file, in_stream| SampleRun { in_file, in_stream, time: None };
        let mut file = SampleFile {
            path: "x".into(),
            skip: 0,
            bytes: 4000,
            layout: SampleLayout::new("ri16_le".parse().unwrap(), 2),
            runs: vec![run(0, 50), run(250, 800), run(500, 1050)],
            notes: Vec::new(),
        };
        assert_eq!(file.common_length(10_000), 250);
        assert_eq!(file.common_length(200), 125);
        file.runs.push(run(501, 2000));
        assert_eq!(file.common_length(200), 1);
    }
}
