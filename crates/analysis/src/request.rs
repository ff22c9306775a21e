//! A request for results: what to compute of which part, and where it goes.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fullbore_care::context::is_context;
use fullbore_formats::hint::Hint;
use fullbore_formats::samples::SampleRate;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_replay::position::Position;
use fullbore_store::reader::{Scan, StoredStream};

use crate::plan::Plan;
use crate::report::{EndingError, FileFormat, Product, Report};
use crate::source::{self, Input, Range, Start};

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    /// What is shown.
    pub product: Product,
    /// What is computed.
    pub plan: Arc<Plan>,
    /// The part of the data.
    pub range: Range,
    /// Samples per second, if the data does not show it.
    pub sample_rate: Option<SampleRate>,
    /// Threads that compute. `None`: one for each core.
    pub threads: Option<u16>,
    /// The file of the result.
    pub to: Option<PathBuf>,
}

/// A request that failed.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The analysis failed.
    #[error(transparent)]
    Analysis(#[from] source::Error),
    /// The name of the result has no known ending.
    #[error(transparent)]
    Ending(#[from] EndingError),
    /// The file of the result could not be written.
    #[error("writing {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// No stream of the scan has data.
    #[error("{scan} has no data")]
    Empty {
        /// The scan.
        scan: String,
    },
    /// A range begins at the index of a frame.
    #[error("a range begins at a UTC time, or at an offset such as +2.5s")]
    Frame,
}

impl Hint for RequestError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            RequestError::Analysis(error) => error.hint(),
            RequestError::Write { source, .. } if source.kind() == io::ErrorKind::AlreadyExists => {
                Some("choose another name, or remove the file".into())
            }
            _ => None,
        }
    }
}

impl Range {
    /// The range from a position on.
    pub fn new(start: Option<Position>, length: Option<Duration>) -> Result<Self, RequestError> {
        let start = match start {
            Some(Position::Time(time)) => Some(Start::At(time)),
            Some(Position::After(after)) => Some(Start::After(after)),
            Some(Position::Frame(_)) => return Err(RequestError::Frame),
            None => None,
        };
        Ok(Self { start, length })
    }
}

impl Request {
    /// The result for a file of VDIF frames.
    pub fn of_file(&self, path: &Path, stop: &StopHandle) -> Result<Report, RequestError> {
        let format = self.to.as_deref().map(FileFormat::of).transpose()?;
        let input = Input::file(path, self.sample_rate, self.range)?;
        self.result(input, self.to.as_deref().zip(format), stop)
    }

    /// The results for the streams of a scan, or for one of them.
    pub fn of_scan(
        &self,
        scan: &Scan,
        only: Option<&StoredStream>,
        stop: &StopHandle,
    ) -> Result<Vec<Report>, RequestError> {
        let format = self.to.as_deref().map(FileFormat::of).transpose()?;
        let streams: Vec<&StoredStream> = match only {
            Some(stream) => vec![stream],
            None => scan
                .streams
                .iter()
                .filter(|stream| !stream.blocks.is_empty() && !is_context(stream))
                .collect(),
        };
        if streams.is_empty() {
            return Err(RequestError::Empty { scan: scan.manifest.scan.to_string() });
        }
        let result = |stream: &&StoredStream| {
            let input = Input::stored(scan, stream, self.sample_rate, self.range)?;
            let to = self.to.as_deref().map(|path| match streams.len() {
                1 => path.to_owned(),
                _ => beside(path, &stream.name),
            });
            self.result(input, to.as_deref().zip(format), stop)
        };
        streams.iter().map(result).collect()
    }

    fn result(
        &self,
        input: Input<'_>,
        to: Option<(&Path, FileFormat)>,
        stop: &StopHandle,
    ) -> Result<Report, RequestError> {
        let threads = self.threads.map_or_else(cores, usize::from);
        let report = Report::new(&input.analyse(&self.plan, threads, stop)?, self.product);
        if let Some((path, format)) = to {
            let written =
                report.file(format).and_then(|bytes| File::create_new(path)?.write_all(&bytes));
            written.map_err(|source| RequestError::Write { path: path.to_owned(), source })?;
        }
        Ok(report)
    }
}

/// The file of one stream of several: `out.png` becomes `out_NAME.png`.
fn beside(path: &Path, stream: &str) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let ending = path.extension().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{stem}_{stream}.{ending}"))
}

/// The number of cores that this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_several_streams_has_its_own_file() {
        assert_eq!(beside(Path::new("/a/out.png"), "46220"), Path::new("/a/out_46220.png"));
    }

    #[test]
    fn a_range_begins_at_a_time() {
        let after = Duration::from_secs(2);
        let range = Range::new(Some(Position::After(after)), None).unwrap();
        assert_eq!(range.start, Some(Start::After(after)));
        assert!(matches!(Range::new(Some(Position::Frame(7)), None), Err(RequestError::Frame)));
    }
}
