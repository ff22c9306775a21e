//! A stream that is no PandA's as a file: its frames, one a row, with the time of each, or its bytes with the
//! time of each run of them.
//!
//! The same file comes of a stream that is recorded into it and of one that is converted later.

use std::path::Path;

use fullbore_core::manifest::Format;
use fullbore_core::time::Tai;

use super::{BytesFile, Ending, Error, Options, Report, Shape};

/// What a file says of its stream.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    /// The scan it is of.
    pub scan: &'a str,
    /// Its name.
    pub stream: &'a str,
    /// What its frames are.
    pub format: &'a Format,
    /// Bytes of a frame; 0 when they vary.
    pub frame_bytes: u32,
}

/// The file of a stream.
#[derive(Debug)]
pub struct StreamFile {
    file: BytesFile,
    /// Bytes of a row of frames; nothing where the file has bytes.
    frame_bytes: Option<usize>,
    rows: u64,
    times: Vec<Tai>,
}

impl StreamFile {
    /// Begins a file.
    pub fn create(path: &Path, about: &About<'_>, options: &Options) -> Result<Self, Error> {
        let whole = about.frame_bytes > 0 && matches!(about.format, Format::Vdif { .. });
        let frame_bytes = whole.then_some(about.frame_bytes as usize);
        let shape = match frame_bytes {
            Some(frame_bytes) => Shape::Frames { frame_bytes },
            None => Shape::Bytes,
        };
        let format = as_json(about.format);
        let attributes =
            [("scan", about.scan), ("stream", about.stream), ("format", format.as_str())];
        let file = BytesFile::create(path, shape, &attributes, options)?;
        Ok(StreamFile { file, frame_bytes, rows: 0, times: Vec::new() })
    }

    /// Takes a block: whole frames and the time of each by its place in the block, or bytes that came at one
    /// time.
    pub fn append(
        &mut self,
        bytes: &[u8],
        of_block: Tai,
        time_of: impl FnMut(usize) -> Tai,
    ) -> Result<(), Error> {
        self.times.clear();
        match self.frame_bytes {
            Some(frame_bytes) => self.times.extend((0..bytes.len() / frame_bytes).map(time_of)),
            None => self.times.push(of_block),
        }
        self.file.append(bytes, &self.times)?;
        self.rows += (bytes.len() / self.frame_bytes.unwrap_or(1)) as u64;
        Ok(())
    }

    /// Frames, or bytes, so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Makes all rows visible to readers.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.file.flush()
    }

    /// Ends a recording of which no more can be written, with what the last flush has shown.
    pub fn abandon(self, ending: &Ending) -> Result<u64, Error> {
        self.file.abandon(ending)
    }

    /// Ends the recording. What its frames are may have been learnt since it began.
    pub fn finish(self, ending: &Ending, format: &Format) -> Result<Report, Error> {
        self.file.finish_with(ending, &[("format", &as_json(format))])
    }
}

fn as_json(format: &Format) -> String {
    serde_json::to_string(format).expect("a format has only plain fields")
}
