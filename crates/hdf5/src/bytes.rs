//! Files of streams other than a PandA's: their bytes in order of arrival, and the time of each frame.

use std::path::{Path, PathBuf};
use std::time::Duration;

use fullbore_time::Tai;
use hdf5_metno::types::{IntSize, TypeDescriptor};
use hdf5_metno::{Dataset, File, Group};
use zerocopy::IntoBytes;

use super::attributes::{self, PreviousRecordings};
use super::dataset::{Layout, RowDataset};
use super::file::{Begun, Hdf5File, check_ended, refused};
use super::index::{self, Acquisition};
use super::{Compression, Ending, Error, Existing, Options, Report};

/// Approximate bytes of an HDF5 chunk of frames.
const CHUNK_BYTES: usize = 1 << 20;

/// The group that describes runs of bytes.
pub(super) const BLOCKS: &str = "blocks";

/// The longest valid frame.
const MOST_FRAME_BYTES: usize = 64 << 20;

/// The layout of a stream's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Dataset `data`, one byte a row. The group `blocks` has the first `row` and the `time` of each run of bytes that
    /// were received together.
    Bytes,
    /// Dataset `frames`, one frame a row, and `time`, nanoseconds of TAI since 1970-01-01 TAI, one for each.
    Frames {
        /// Bytes of a frame.
        frame_bytes: usize,
    },
}

/// An HDF5 file for a stream's bytes.
#[derive(Debug)]
pub struct BytesFile {
    container: Hdf5File,
    frames: Filling,
    times: Axis,
    unit: usize,
    /// Frames, or bytes, of this recording.
    written: u64,
    /// Rows of frames and of times that the last flush has shown, including those of earlier recordings.
    seen: (u64, u64),
    about: About,
}

/// The attributes of the recording that are written at the end.
#[derive(Debug)]
struct About {
    /// Rows of earlier recordings in the file, and their attributes.
    first: u64,
    earlier: PreviousRecordings,
    /// The scan, for a file with several scans.
    scan: String,
    indexed: bool,
}

/// The time axis of the rows.
#[derive(Debug)]
struct Axis {
    /// The time of each row, or of each run of rows.
    times: Filling,
    /// The first row of each run, if the axis has runs.
    rows: Option<Filling>,
}

/// A dataset and its HDF5 chunk that is being filled.
#[derive(Debug)]
struct Filling {
    rows: RowDataset,
    chunk: Vec<u8>,
    row_bytes: usize,
    filled: usize,
}

impl BytesFile {
    /// Creates a file. The attributes, name and text, go to the root: the format of the frames and their source.
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
        let (mut container, (frames, times, earlier)) =
            Hdf5File::create(path, options, |file, begun| match begun {
                Begun::New => begin(file, shape, unit, attributes, options, path),
                Begun::Continued => resume(file, shape, unit, path),
            })?;
        container.keep_room([&frames, &times.times].map(|it| it.rows.room_to_cut()).iter().sum());
        let first = frames.rows.length();
        let scan = attributes.iter().find(|(name, _)| *name == "scan");
        let scan = scan.map_or_else(String::new, |(_, scan)| (*scan).to_owned());
        let indexed = options.existing == Existing::Append;
        let seen = (first, times.times.rows.length());
        let about = About { first, earlier, scan, indexed };
        Ok(BytesFile { container, frames, times, unit, written: 0, seen, about })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.container.path
    }

    /// Returns the file's current path, if it was renamed. Refuses a file whose last name was removed.
    pub fn moved_to(&self) -> Result<Option<PathBuf>, Error> {
        self.container.moved_to()
    }

    /// Appends whole frames with a time for each, or bytes with one time for all of them.
    pub fn append(&mut self, frames: &[u8], times: &[Tai]) -> Result<(), Error> {
        let (length, unit) = (frames.len(), self.unit);
        let wanted = if self.times.rows.is_some() { 1 } else { length / unit };
        if !length.is_multiple_of(unit) || times.len() != wanted {
            return Err(Error::Ragged { path: self.container.path.clone(), length, unit });
        }
        let BytesFile { container, frames: filling, times: axis, written, about, .. } = self;
        let row = about.first + *written;
        container.guard(|path| {
            filling.append(frames, path)?;
            if let Some(rows) = &mut axis.rows {
                rows.append(row.as_bytes(), path)?;
            }
            times.iter().try_for_each(|time| axis.times.append(time.0.as_bytes(), path))
        })?;
        self.written += (length / unit) as u64;
        Ok(())
    }

    /// Makes all frames visible to readers.
    pub fn flush(&mut self) -> Result<(), Error> {
        let BytesFile { container, frames, times, seen, .. } = self;
        container.flush(|path| {
            frames.flush(path)?;
            if let Some(rows) = &mut times.rows {
                rows.flush(path)?;
            }
            times.times.flush(path)
        })?;
        *seen = (frames.rows.length(), times.times.rows.length());
        Ok(())
    }

    /// Syncs flushed data to the disk.
    pub fn sync(&self) -> Result<(), Error> {
        self.container.sync()
    }

    /// Ends the recording: writes the last frames and the ending.
    pub fn finish(self, ending: &Ending) -> Result<Report, Error> {
        self.finish_with(ending, &[])
    }

    /// The same, with replacements for the attributes written at the start.
    pub fn finish_with(
        mut self,
        ending: &Ending,
        attributes: &[(&str, &str)],
    ) -> Result<Report, Error> {
        if let Err(error) = self.flush() {
            // The first error is more informative than later ones.
            let ending = ending.cut_short(&crate::cause(&error));
            let _ = self.abandon(&Ending { verdict: None, account: None, ..ending });
            return Err(error);
        }
        let (path, rows, about) = (self.container.path.clone(), self.written, self.about);
        let Axis { times, rows: of_runs } = self.times;
        let fillings = [self.frames, times].into_iter().chain(of_runs);
        let datasets: Vec<RowDataset> = fillings.map(|filling| filling.rows).collect();
        let longest_write =
            datasets.iter().map(RowDataset::longest).max().unwrap_or(Duration::ZERO);
        let (flushes, file_bytes) = self.container.close(datasets, |file| {
            for (name, text) in attributes {
                attributes::text(file, name, text, &path)?;
            }
            about.end(file, ending, rows, &path)
        })?;
        Ok(Report {
            rows,
            bytes_in: rows * self.unit as u64,
            file_bytes,
            path,
            flushes,
            longest_write,
            direct: false,
        })
    }

    /// Ends a recording to which no more data can be written: cuts every dataset to the last flush, and writes the
    /// ending if there is room. Returns the number of rows of the recording.
    pub fn abandon(self, ending: &Ending) -> Result<u64, Error> {
        let (path, (rows, runs), about) = (self.container.path.clone(), self.seen, self.about);
        let Axis { times, rows: of_runs } = self.times;
        let axis = [times].into_iter().chain(of_runs).map(|filling| (filling.rows, runs));
        let datasets = [(self.frames.rows, rows)].into_iter().chain(axis).collect();
        let rows = rows - about.first;
        self.container.abandon(datasets, |file| about.end(file, ending, rows, &path))?;
        Ok(rows)
    }
}

impl About {
    /// Writes the ending, with this number of rows.
    fn end(&self, file: &File, ending: &Ending, rows: u64, path: &Path) -> Result<(), Error> {
        attributes::end(file, ending, &self.earlier, self.first + rows, path)?;
        if !self.indexed {
            return Ok(());
        }
        let recording = Acquisition::new(ending, self.first, rows).of_scan(self.scan.clone());
        index::add(file, &recording).map_err(refused(path, "adding to its index"))
    }
}

impl Filling {
    fn new(rows: RowDataset, row_bytes: usize) -> Self {
        let chunk = vec![0; rows.chunk_rows() * row_bytes];
        Filling { rows, chunk, row_bytes, filled: 0 }
    }

    /// Opens a dataset for appending; `row_bytes` is the size of a row. Reads its last, partly filled chunk.
    fn resume(rows: RowDataset, row_bytes: usize) -> hdf5_metno::Result<Self> {
        let mut filling = Filling::new(rows, row_bytes);
        let length = filling.rows.length() as usize;
        let filled = length % filling.rows.chunk_rows();
        let last = length - filled..length;
        let set = filling.rows.dataset();
        let bytes: Vec<u8> = match (set.ndim(), row_bytes) {
            _ if filled == 0 => Vec::new(),
            (1, 8) => {
                let values = set.read_slice_1d::<i64, _>(last)?;
                values.iter().flat_map(|it| it.to_le_bytes()).collect()
            }
            (1, _) => set.read_slice_1d::<u8, _>(last)?.into_iter().collect(),
            _ => set.read_slice_2d::<u8, _>((last, ..))?.into_iter().collect(),
        };
        filling.chunk[..bytes.len()].copy_from_slice(&bytes);
        filling.filled = bytes.len();
        Ok(filling)
    }

    fn append(&mut self, mut bytes: &[u8], path: &Path) -> Result<(), Error> {
        while !bytes.is_empty() {
            // A whole chunk in the caller's memory need not be copied.
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
) -> Result<(Filling, Axis, PreviousRecordings), Error> {
    let (name, width) = match shape {
        Shape::Bytes => ("data", None),
        Shape::Frames { frame_bytes } => ("frames", Some(frame_bytes)),
    };
    let chunk_rows = (CHUNK_BYTES / unit).max(1);
    let compression = options.compression.unwrap_or_default();
    let frames = Layout {
        name,
        element: TypeDescriptor::Unsigned(IntSize::U1),
        width,
        chunk_rows,
        compression,
    };
    let frames = RowDataset::create(file, &frames).map_err(refused(path, "making its datasets"))?;
    let times = match shape {
        Shape::Frames { .. } => Axis { times: time_axis(file, compression, path)?, rows: None },
        Shape::Bytes => {
            // These are not at the root, because all datasets there have the same length.
            let group = file.create_group(BLOCKS).map_err(refused(path, "making its groups"))?;
            let rows = axis(&group, "row", compression, path)?;
            Axis { times: time_axis(&group, compression, path)?, rows: Some(rows) }
        }
    };
    for (name, text) in attributes {
        attributes::text(file, name, text, path)?;
    }
    attributes::reserve(file, 0, path)?;
    Ok((Filling::new(frames, unit), times, PreviousRecordings::default()))
}

/// Opens the datasets of a file that is continued, each at its partly filled HDF5 chunk.
fn resume(
    file: &File,
    shape: Shape,
    unit: usize,
    path: &Path,
) -> Result<(Filling, Axis, PreviousRecordings), Error> {
    let differs = |what: &str| Error::Differs { path: path.to_owned(), what: what.to_owned() };
    check_ended(file, path)?;
    let found = |group: &Group, name: &'static str, row_bytes| {
        let set = group.dataset(name).map_err(|_| differs("it holds another kind of stream"))?;
        if bytes_of_row(&set) != Some(row_bytes) {
            return Err(differs("its frames are of another length"));
        }
        let rows = RowDataset::resume(set, name)
            .map_err(|what| differs(&format!("its dataset {name} {what}")))?;
        Filling::resume(rows, row_bytes).map_err(refused(path, "reading its last rows"))
    };
    let (frames, axis) = match shape {
        Shape::Frames { .. } => {
            let axis = Axis { times: found(file, "time", 8)?, rows: None };
            (found(file, "frames", unit)?, axis)
        }
        Shape::Bytes => {
            let group =
                file.group(BLOCKS).map_err(|_| differs("it holds another kind of stream"))?;
            let axis =
                Axis { times: found(&group, "time", 8)?, rows: Some(found(&group, "row", 8)?) };
            (found(file, "data", unit)?, axis)
        }
    };
    let (rows, times) = (frames.rows.length(), axis.times.rows.length());
    let fits = axis.rows.as_ref().map_or(rows == times, |runs| runs.rows.length() == times);
    if !fits {
        return Err(Error::Unended { path: path.to_owned() });
    }
    let earlier = PreviousRecordings::of(file);
    // From here on the root describes the new recording.
    index::complete(file, rows, path)?;
    attributes::go_on(file, &earlier, 0, path)?;
    Ok((frames, axis, earlier))
}

/// Returns the bytes of a row of a dataset.
fn bytes_of_row(set: &Dataset) -> Option<usize> {
    let element = set.dtype().ok()?.size();
    match set.shape().as_slice() {
        [_] => Some(element),
        [_, width] => Some(width * element),
        _ => None,
    }
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
    let rows = RowDataset::create(group, &layout).map_err(refused(path, "making its datasets"))?;
    Ok(Filling::new(rows, 8))
}
