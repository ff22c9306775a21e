//! Any other stream: its bytes as they came, with the time of each frame beside them.

use std::path::Path;
use std::time::Duration;

use fullbore_core::time::Tai;
use hdf5_metno::types::{IntSize, TypeDescriptor};
use hdf5_metno::{File, Group};
use zerocopy::IntoBytes;

use super::attributes;
use super::container::{Begun, Container, refused};
use super::rows::{Layout, Rows};
use super::{Compression, Ending, Error, Options, Report};

/// Bytes of an HDF5 chunk of frames, about.
const CHUNK_BYTES: usize = 1 << 20;

/// The group of what is known of runs of bytes.
pub(super) const BLOCKS: &str = "blocks";

/// Frames beyond this length are no frames.
const MOST_FRAME_BYTES: usize = 64 << 20;

/// How a stream's bytes are laid down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// `data`, one byte a row; in the group `blocks` the `row` at which each run of bytes begins that was taken
    /// together, and the `time` of it.
    Bytes,
    /// `frames`, one frame a row, and `time`, nanoseconds of TAI since 1970-01-01 TAI, one for each.
    Frames {
        /// Bytes of a frame.
        frame_bytes: usize,
    },
}

/// An HDF5 file that takes a stream's bytes.
#[derive(Debug)]
pub struct BytesFile {
    container: Container,
    frames: Filling,
    times: Axis,
    unit: usize,
    written: u64,
}

/// When rows were.
#[derive(Debug)]
struct Axis {
    /// The time of each row, or of each run of them.
    times: Filling,
    /// At which row each run begins, where it is runs.
    rows: Option<Filling>,
}

/// A dataset and the HDF5 chunk of it that is being filled.
#[derive(Debug)]
struct Filling {
    rows: Rows,
    chunk: Vec<u8>,
    row_bytes: usize,
    filled: usize,
}

impl BytesFile {
    /// Begins a file. The attributes, name and text, go to the root: what the frames are, where they
    /// come from.
    pub fn create(
        path: &Path,
        shape: Shape,
        attributes: &[(&str, &str)],
        options: &Options,
    ) -> Result<Self, Error> {
        let unit = match shape {
            Shape::Bytes => 1,
            Shape::Frames { frame_bytes } => frame_bytes,
        };
        if unit == 0 || unit > MOST_FRAME_BYTES {
            return Err(Error::Ragged { path: path.to_owned(), length: unit, unit });
        }
        let (container, (frames, times)) =
            Container::create(path, options, |file, begun| match begun {
                Begun::New => begin(file, shape, unit, attributes, options, path),
                Begun::Continued => {
                    let what = "frames are not added to a file that is there".to_owned();
                    Err(Error::Differs { path: path.to_owned(), what })
                }
            })?;
        Ok(BytesFile { container, frames, times, unit, written: 0 })
    }

    /// Takes whole frames and the time of each, or bytes and the one time of all of them.
    pub fn append(&mut self, frames: &[u8], times: &[Tai]) -> Result<(), Error> {
        let (length, unit) = (frames.len(), self.unit);
        let wanted = if self.times.rows.is_some() { 1 } else { length / unit };
        if !length.is_multiple_of(unit) || times.len() != wanted {
            return Err(Error::Ragged { path: self.container.path.clone(), length, unit });
        }
        let BytesFile { container, frames: filling, times: axis, written, .. } = self;
        container.guard(|path| {
            filling.append(frames, path)?;
            if let Some(rows) = &mut axis.rows {
                rows.append(written.as_bytes(), path)?;
            }
            times.iter().try_for_each(|time| axis.times.append(time.0.as_bytes(), path))
        })?;
        self.written += (length / unit) as u64;
        Ok(())
    }

    /// Makes all frames visible to readers.
    pub fn flush(&mut self) -> Result<(), Error> {
        let BytesFile { container, frames, times, .. } = self;
        container.flush(|path| {
            frames.flush(path)?;
            if let Some(rows) = &mut times.rows {
                rows.flush(path)?;
            }
            times.times.flush(path)
        })
    }

    /// Brings what was flushed to the disk.
    pub fn sync(&self) -> Result<(), Error> {
        self.container.sync()
    }

    /// Ends the recording: the last frames, and what is known now.
    pub fn finish(self, ending: &Ending) -> Result<Report, Error> {
        self.finish_with(ending, &[])
    }

    /// The same, with attributes in place of those it began with.
    pub fn finish_with(
        mut self,
        ending: &Ending,
        attributes: &[(&str, &str)],
    ) -> Result<Report, Error> {
        let flushed = self.flush();
        let (path, rows) = (self.container.path.clone(), self.written);
        let Axis { times, rows: of_runs } = self.times;
        let fillings = [self.frames, times].into_iter().chain(of_runs);
        let datasets: Vec<Rows> = fillings.map(|filling| filling.rows).collect();
        let longest_write = datasets.iter().map(Rows::longest).max().unwrap_or(Duration::ZERO);
        let closed = self.container.close(datasets, |file| {
            for (name, text) in attributes {
                attributes::text(file, name, text, &path)?;
            }
            attributes::end(file, ending, rows, &path)
        });
        flushed?;
        Ok(Report {
            rows,
            bytes_in: rows * self.unit as u64,
            file_bytes: std::fs::metadata(&path).map_or(0, |file| file.len()),
            path,
            flushes: closed?,
            longest_write,
        })
    }
}

impl Filling {
    fn new(rows: Rows, row_bytes: usize) -> Self {
        let chunk = vec![0; rows.chunk_rows() * row_bytes];
        Filling { rows, chunk, row_bytes, filled: 0 }
    }

    fn append(&mut self, mut bytes: &[u8], path: &Path) -> Result<(), Error> {
        while !bytes.is_empty() {
            // A chunk that is whole in the caller's memory need not be copied.
            if self.filled == 0 && bytes.len() >= self.chunk.len() {
                let (whole, rest) = bytes.split_at(self.chunk.len());
                self.rows.put(whole, path)?;
                bytes = rest;
                continue;
            }
            let (now, rest) = bytes.split_at(bytes.len().min(self.chunk.len() - self.filled));
            self.chunk[self.filled..self.filled + now.len()].copy_from_slice(now);
            self.filled += now.len();
            if self.filled == self.chunk.len() {
                self.rows.put(&self.chunk, path)?;
                self.filled = 0;
            }
            bytes = rest;
        }
        Ok(())
    }

    fn flush(&mut self, path: &Path) -> Result<(), Error> {
        self.chunk[self.filled..].fill(0);
        self.rows.show(&self.chunk, self.filled / self.row_bytes, path)?;
        self.rows.flush(path)
    }
}

fn begin(
    file: &File,
    shape: Shape,
    unit: usize,
    attributes: &[(&str, &str)],
    options: &Options,
    path: &Path,
) -> Result<(Filling, Axis), Error> {
    let (name, width) = match shape {
        Shape::Bytes => ("data", None),
        Shape::Frames { frame_bytes } => ("frames", Some(frame_bytes)),
    };
    let chunk_rows = (CHUNK_BYTES / unit).max(1);
    let frames = Layout {
        name,
        element: TypeDescriptor::Unsigned(IntSize::U1),
        width,
        chunk_rows,
        compression: options.compression,
    };
    let frames = Rows::create(file, &frames).map_err(refused(path, "making its datasets"))?;
    let times = match shape {
        Shape::Frames { .. } => {
            Axis { times: time_axis(file, options.compression, path)?, rows: None }
        }
        Shape::Bytes => {
            // Not at the root, where all datasets are of one length.
            let group = file.create_group(BLOCKS).map_err(refused(path, "making its groups"))?;
            let rows = axis(&group, "row", options.compression, path)?;
            Axis { times: time_axis(&group, options.compression, path)?, rows: Some(rows) }
        }
    };
    for (name, text) in attributes {
        attributes::text(file, name, text, path)?;
    }
    attributes::reserve(file, 0, path)?;
    Ok((Filling::new(frames, unit), times))
}

fn time_axis(group: &Group, compression: Compression, path: &Path) -> Result<Filling, Error> {
    let times = axis(group, "time", compression, path)?;
    let set = times.rows.dataset();
    attributes::text(set, "units", "ns", path)?;
    attributes::text(set, "time_scale", "TAI", path)?;
    attributes::text(set, "epoch", "1970-01-01T00:00:00 TAI", path)?;
    Ok(times)
}

fn axis(
    group: &Group,
    name: &str,
    compression: Compression,
    path: &Path,
) -> Result<Filling, Error> {
    let layout = Layout {
        name,
        element: TypeDescriptor::Integer(IntSize::U8),
        width: None,
        chunk_rows: 1024,
        compression,
    };
    let rows = Rows::create(group, &layout).map_err(refused(path, "making its datasets"))?;
    Ok(Filling::new(rows, 8))
}
