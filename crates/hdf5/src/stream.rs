//! A file for a stream: a column for each field of a PandA, or frames, one a row, with the time of each, or bytes with
//! the time of each run.
//!
//! A recording into the file and a later conversion give the same file.

use std::path::{Path, PathBuf};

use fullbore_core::manifest::Format;
use fullbore_formats::panda::Header;
use fullbore_time::Tai;

use super::{BytesFile, Ending, Error, Options, PandaFile, Report, Shape};

/// The description of a stream in its file.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    /// The scan.
    pub scan: &'a str,
    /// The stream's name.
    pub stream: &'a str,
    /// The format of its frames.
    pub format: &'a Format,
    /// Bytes of a frame; 0 if they vary.
    pub frame_bytes: u32,
}

/// The file of a stream.
#[derive(Debug)]
pub struct StreamFile(Content);

#[derive(Debug)]
enum Content {
    Columns(Box<PandaFile>),
    Rows(Box<Rows>),
}

/// Frames or bytes.
#[derive(Debug)]
struct Rows {
    file: BytesFile,
    /// Bytes of a row of frames; `None` if the file has bytes.
    frame_bytes: Option<usize>,
    count: u64,
    times: Vec<Tai>,
}

impl StreamFile {
    /// Creates a file.
    pub fn create(path: &Path, about: &About<'_>, options: &Options) -> Result<Self, Error> {
        if let Format::Panda { header, settings, .. } = about.format {
            let header = Header::of_recording(header)
                .map_err(|source| Error::Header { path: path.to_owned(), source })?;
            let file = PandaFile::create_with(path, &header, settings.as_deref(), options)?;
            return Ok(StreamFile(Content::Columns(Box::new(file))));
        }
        let whole = about.frame_bytes > 0 && about.format.is_frames();
        let frame_bytes = whole.then_some(about.frame_bytes as usize);
        let shape = match frame_bytes {
            Some(frame_bytes) => Shape::Frames { frame_bytes },
            None => Shape::Bytes,
        };
        let format = as_json(about.format);
        let attributes =
            [("scan", about.scan), ("stream", about.stream), ("format", format.as_str())];
        let file = BytesFile::create(path, shape, &attributes, options)?;
        let rows = Rows { file, frame_bytes, count: 0, times: Vec::new() };
        Ok(StreamFile(Content::Rows(Box::new(rows))))
    }

    /// Appends a block: whole samples of a PandA, whole frames, each with a time by its place in the block, or bytes
    /// with one time.
    pub fn append(
        &mut self,
        bytes: &[u8],
        of_block: Tai,
        time_of: impl FnMut(usize) -> Tai,
    ) -> Result<(), Error> {
        match &mut self.0 {
            Content::Columns(file) => file.append(bytes),
            Content::Rows(rows) => {
                rows.times.clear();
                match rows.frame_bytes {
                    Some(length) => rows.times.extend((0..bytes.len() / length).map(time_of)),
                    None => rows.times.push(of_block),
                }
                rows.file.append(bytes, &rows.times)?;
                rows.count += (bytes.len() / rows.frame_bytes.unwrap_or(1)) as u64;
                Ok(())
            }
        }
    }

    /// The path that it was created at.
    pub fn path(&self) -> &Path {
        match &self.0 {
            Content::Columns(file) => file.path(),
            Content::Rows(rows) => rows.file.path(),
        }
    }

    /// Returns its current path, if it was renamed. Refuses a file whose last name was removed: its data is lost.
    pub fn moved_to(&self) -> Result<Option<PathBuf>, Error> {
        match &self.0 {
            Content::Columns(file) => file.moved_to(),
            Content::Rows(rows) => rows.file.moved_to(),
        }
    }

    /// The number of samples, frames, or bytes, so far.
    pub fn rows(&self) -> u64 {
        match &self.0 {
            Content::Columns(file) => file.rows(),
            Content::Rows(rows) => rows.count,
        }
    }

    /// Makes all rows visible to readers.
    pub fn flush(&mut self) -> Result<(), Error> {
        match &mut self.0 {
            Content::Columns(file) => file.flush(),
            Content::Rows(rows) => rows.file.flush(),
        }
    }

    /// After a failed write: makes the samples of a PandA visible that are whole in every column. Returns the number of
    /// rows that [`StreamFile::abandon`] leaves, if the file can tell.
    pub fn rescue(&mut self) -> Option<u64> {
        match &mut self.0 {
            Content::Columns(file) => Some(file.rescue()),
            Content::Rows(_) => None,
        }
    }

    /// Ends a recording to which no more data can be written, with the rows of the last flush or rescue.
    pub fn abandon(self, ending: &Ending) -> Result<u64, Error> {
        match self.0 {
            Content::Columns(file) => file.abandon(ending),
            Content::Rows(rows) => rows.file.abandon(ending),
        }
    }

    /// Ends the recording. `format` may be more complete than at the start.
    pub fn finish(self, ending: &Ending, format: &Format) -> Result<Report, Error> {
        match self.0 {
            Content::Columns(file) => file.finish(ending),
            Content::Rows(rows) => rows.file.finish_with(ending, &[("format", &as_json(format))]),
        }
    }
}

fn as_json(format: &Format) -> String {
    serde_json::to_string(format).expect("a format has only plain fields")
}
