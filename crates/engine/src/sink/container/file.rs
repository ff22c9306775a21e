//! The file of a stream, in any format of containers.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use fullbore_containers::{Ending, SampleBlock, SampleError, SampleFile};
use fullbore_core::gap::{Gap, Ranges};
use fullbore_core::hint::Hint;
use fullbore_formats::vita49::listing::ListedChange;
use fullbore_hdf5::{self as hdf5, Report, StreamFile};
use fullbore_linux::ring::FullBlock;
use fullbore_time::Tai;

use super::thread::EndOfFile;
use crate::error::RecordError;
use crate::event::SealedFile;

/// An error in writing a container.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ContainerError {
    /// An HDF5 file.
    #[error("{}", hdf5::in_full(.0))]
    Hdf5(hdf5::Error),
    /// A file of samples.
    #[error(transparent)]
    Samples(#[from] SampleError),
}

impl From<hdf5::Error> for ContainerError {
    fn from(error: hdf5::Error) -> Self {
        // The text above contains all causes, so the error is not a source itself.
        Self::Hdf5(error)
    }
}

impl From<ContainerError> for RecordError {
    fn from(error: ContainerError) -> Self {
        Arc::new(error).into()
    }
}

impl From<Arc<ContainerError>> for RecordError {
    fn from(error: Arc<ContainerError>) -> Self {
        Self::Container(error)
    }
}

impl ContainerError {
    /// Returns the reason why a file takes no more data, on one line. The words before ` (` are the headline's.
    pub(super) fn why_no_more(&self) -> String {
        match self {
            Self::Hdf5(error) => error.why_no_more(),
            Self::Samples(error) => match error.hint() {
                Some(hint) if error.is_disk_full() => format!("the disk is full ({error}); {hint}"),
                Some(hint) => format!("{error} ({hint})"),
                None => error.to_string(),
            },
        }
    }

    /// The cause, without the failed step.
    fn cause(&self) -> String {
        match self {
            Self::Hdf5(error) => hdf5::cause(error),
            Self::Samples(SampleError::Write { source, .. }) => source.to_string(),
            Self::Samples(error) => error.to_string(),
        }
    }
}

impl Hint for ContainerError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Hdf5(error) => error.hint(),
            Self::Samples(error) => error.hint(),
        }
    }
}

/// A file while it is written. A recording into it and a later conversion give the same file.
pub(super) trait ContainerFile: Send {
    /// Appends a block, with the time of its first frame, and of each frame by its place in the block.
    fn append(
        &mut self,
        block: &FullBlock,
        of_block: Tai,
        time_of: &mut dyn FnMut(usize) -> Tai,
    ) -> Result<(), ContainerError>;

    /// The path that it was created at.
    fn path(&self) -> &Path;

    /// Returns its current path, if it was renamed. Refuses a file whose last name was removed.
    fn moved_to(&self) -> Result<Option<PathBuf>, ContainerError> {
        Ok(None)
    }

    /// Notes a change in the context of the stream. Files without a place for it ignore it.
    fn tune(&mut self, _change: &ListedChange) {}

    /// The number of samples, frames, or bytes, so far.
    fn rows(&self) -> u64;

    /// Makes all rows visible to readers. They survive the death of this process.
    fn flush(&mut self) -> Result<(), ContainerError>;

    /// After a failed write: the rows that [`abandon`](Self::abandon) leaves, if they are to be counted.
    fn rescue(&mut self) -> Option<u64> {
        None
    }

    /// Ends a file that takes no more data, with the rows of the last flush or rescue.
    fn abandon(self: Box<Self>, end: &LastWords<'_>) -> Result<(), ContainerError>;

    /// Ends the file with its account.
    fn finish(self: Box<Self>, end: &EndOfFile) -> Result<SealedFile, ContainerError>;
}

/// The ending of a file that lacks a part of its recording.
pub(super) struct LastWords<'a> {
    /// The ending, as HDF5 files state it.
    pub ending: hdf5::Ending,
    /// The end that it would have had.
    pub meant: Option<&'a EndOfFile>,
}

impl<'a> LastWords<'a> {
    /// The ending of a file that accepted no more data.
    pub fn cut_short(end: &'a EndOfFile, error: &ContainerError) -> Self {
        Self { ending: end.ending.cut_short(&error.cause()), meant: Some(end) }
    }

    /// The ending of a file whose recording was given up without an account.
    pub fn given_up(why: String) -> Self {
        Self { ending: hdf5::Ending::given_up(why), meant: None }
    }
}

impl ContainerFile for StreamFile {
    fn append(
        &mut self,
        block: &FullBlock,
        of_block: Tai,
        time_of: &mut dyn FnMut(usize) -> Tai,
    ) -> Result<(), ContainerError> {
        Ok(self.append(&block.block[..block.bytes as usize], of_block, time_of)?)
    }

    fn path(&self) -> &Path {
        self.path()
    }

    fn moved_to(&self) -> Result<Option<PathBuf>, ContainerError> {
        Ok(self.moved_to()?)
    }

    fn rows(&self) -> u64 {
        self.rows()
    }

    fn flush(&mut self) -> Result<(), ContainerError> {
        Ok(self.flush()?)
    }

    fn rescue(&mut self) -> Option<u64> {
        self.rescue()
    }

    fn abandon(self: Box<Self>, end: &LastWords<'_>) -> Result<(), ContainerError> {
        (*self).abandon(&end.ending)?;
        Ok(())
    }

    fn finish(self: Box<Self>, end: &EndOfFile) -> Result<SealedFile, ContainerError> {
        let report = (*self).finish(&end.ending, &end.format)?;
        Ok(SealedFile::of(end.stream.clone(), &report, &end.ending))
    }
}

/// Files of samples, and how they were written.
pub(super) struct Samples {
    file: SampleFile,
    report: Report,
}

impl Samples {
    /// Takes a file that was created.
    pub fn new(file: SampleFile) -> Self {
        let report = Report::of(file.path().to_owned());
        Self { file, report }
    }
}

/// The fill of a block. Its gaps became certain with it, and some may lie before it.
pub(super) fn fill_of(block: &FullBlock) -> Ranges {
    let mut fill = Ranges::default();
    for Gap { first, count, .. } in &block.gaps {
        fill.insert(*first..first.saturating_add_unsigned(*count));
    }
    fill
}

/// The samples of a block.
pub(super) fn samples_of<'a>(
    block: &'a FullBlock,
    is_fill: &'a dyn Fn(i64) -> bool,
) -> SampleBlock<'a> {
    SampleBlock { first: block.first, bytes: &block.block[..block.bytes as usize], is_fill }
}

impl ContainerFile for Samples {
    fn append(
        &mut self,
        block: &FullBlock,
        _of_block: Tai,
        _time_of: &mut dyn FnMut(usize) -> Tai,
    ) -> Result<(), ContainerError> {
        let begun = Instant::now();
        let fill = fill_of(block);
        self.file.append(&samples_of(block, &|index| fill.contains(index)))?;
        self.report.longest_write = self.report.longest_write.max(begun.elapsed());
        Ok(())
    }

    fn path(&self) -> &Path {
        self.file.path()
    }

    fn tune(&mut self, change: &ListedChange) {
        self.file.tune(change);
    }

    fn rows(&self) -> u64 {
        self.file.samples()
    }

    fn flush(&mut self) -> Result<(), ContainerError> {
        let begun = Instant::now();
        self.file.sync()?;
        self.report.flushed(begun.elapsed());
        Ok(())
    }

    fn abandon(self: Box<Self>, end: &LastWords<'_>) -> Result<(), ContainerError> {
        let account = end.meant.and_then(|end| end.account.as_ref());
        let lacks = Some(end.ending.reason.as_str());
        Ok(self.file.abandon(&Ending { account, lacks, ..Ending::default() })?)
    }

    fn finish(mut self: Box<Self>, end: &EndOfFile) -> Result<SealedFile, ContainerError> {
        let ending = Ending { account: end.account.as_ref(), ..Ending::default() };
        let last = end.account.as_ref().and_then(|account| account.last);
        self.file.append_behind(last.map(|last| last.index))?;
        self.report.bytes_in = self.file.bytes();
        let finished = self.file.finish(&ending)?;
        (self.report.rows, self.report.file_bytes) = (finished.samples, finished.bytes);
        Ok(SealedFile::of(end.stream.clone(), &self.report, &end.ending))
    }
}
