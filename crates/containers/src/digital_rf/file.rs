//! One file of a channel: `rf_data`, and `rf_data_index` with the sample number of each run of rows.
//!
//! It has the name `tmp.rf@…` while it is written, and is renamed when it is complete. Chunks are written whole, past
//! HDF5's filters and cache: the filter for checksums would read and write a chunk again for each append.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use fullbore_linux::sys::hdf5::write_chunk;
use hdf5_metno::dataset::{DatasetCreateBuilder, FillTime};
use hdf5_metno::types::TypeDescriptor;
use hdf5_metno::{Dataset, Extent, Extents, File, SimpleExtents};

use super::cadence::Span;
use super::fletcher::{self, fletcher32};

/// The most bytes of a chunk: a reader's cache of HDF5 has 1 MiB.
const CHUNK_BYTES: usize = 512 << 10;

/// Rows of the index in one chunk, as digital_rf has it.
const INDEX_CHUNK: usize = 100;

/// The rows of all files of a channel.
#[derive(Clone, Debug)]
pub struct Rows {
    /// The type of an element.
    pub element: TypeDescriptor,
    /// Elements of a row.
    pub channels: usize,
    /// Bytes of a row.
    pub bytes: usize,
    /// True if each chunk has a checksum.
    pub checksum: bool,
}

/// A file that is being written.
pub struct RfFile {
    file: File,
    data: Dataset,
    index: Dataset,
    temporary: PathBuf,
    path: PathBuf,
    /// Its interval.
    pub span: Span,
    rows: Rows,
    chunk_rows: usize,
    /// The chunk that is not full.
    chunk: Vec<u8>,
    /// Rows of all full chunks.
    full: u64,
    /// Sample number and row of each run.
    runs: Vec<[u64; 2]>,
    /// The sample behind the last row.
    next: u64,
}

/// Describes an error of libhdf5, with the kernel's error if that is the cause.
pub fn failed(error: hdf5_metno::Error) -> io::Error {
    let stack = error.stack();
    let frames = stack.iter().flat_map(|stack| stack.iter()).map(|frame| frame.desc().to_owned());
    let text: Vec<String> = std::iter::once(error.to_string()).chain(frames).collect();
    let text = text.join("; ");
    let number = text.split_once("errno = ").map(|(_, rest)| {
        rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse::<i32>()
    });
    match number {
        Some(Ok(number)) => io::Error::from_raw_os_error(number),
        _ => io::Error::other(text),
    }
}

impl RfFile {
    /// Creates the file of an interval. `describe` adds the attributes of the data.
    pub fn create(
        folder: &Path,
        name: &str,
        span: Span,
        rows: &Rows,
        describe: impl FnOnce(&Dataset) -> hdf5_metno::Result<()>,
    ) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let (temporary, path) = (folder.join(format!("tmp.{name}")), folder.join(name));
        let most = usize::try_from(span.samples.end - span.samples.start).unwrap_or(usize::MAX);
        let chunk_rows = (CHUNK_BYTES / rows.bytes).clamp(1, most.max(1));
        let create = || {
            let file = File::create_excl(&temporary)?;
            let data = rows.create(&file, most, chunk_rows)?;
            describe(&data)?;
            let extents = vec![Extent::resizable(0), Extent::fixed(2)];
            let extents = Extents::Simple(SimpleExtents::from_vec(extents));
            let index = file.new_dataset_builder().empty::<u64>().shape(extents);
            let index = index.chunk((INDEX_CHUNK, 2)).create("rf_data_index")?;
            Ok((file, data, index))
        };
        let (file, data, index) = create().map_err(failed)?;
        let chunk = Vec::with_capacity(chunk_rows * rows.bytes + fletcher::BYTES);
        let (next, rows) = (span.samples.start, rows.clone());
        let (full, runs) = (0, Vec::new());
        Ok(Self {
            file,
            data,
            index,
            temporary,
            path,
            span,
            rows,
            chunk_rows,
            chunk,
            full,
            runs,
            next,
        })
    }

    /// Rows so far.
    fn length(&self) -> u64 {
        self.full + (self.chunk.len() / self.rows.bytes) as u64
    }

    /// The sample behind the last row; before the first row, the first one of the interval.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Appends whole rows, of which the first is this sample.
    pub fn append(&mut self, sample: u64, mut bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let rows = (bytes.len() / self.rows.bytes) as u64;
        assert!(sample >= self.next && sample + rows <= self.span.samples.end, "in its interval");
        if sample != self.next || self.runs.is_empty() {
            self.runs.push([sample, self.length()]);
        }
        self.next = sample + rows;
        let whole = self.chunk_rows * self.rows.bytes;
        while !bytes.is_empty() {
            let (some, rest) = bytes.split_at(bytes.len().min(whole - self.chunk.len()));
            self.chunk.extend_from_slice(some);
            bytes = rest;
            if self.chunk.len() == whole {
                self.write_chunk(self.full + self.chunk_rows as u64)?;
                self.full += self.chunk_rows as u64;
                self.chunk.clear();
            }
        }
        Ok(())
    }

    /// Writes the chunk, filled up with zeros, in a dataset of `rows` rows.
    fn write_chunk(&mut self, rows: u64) -> io::Result<()> {
        let length = self.chunk.len();
        self.chunk.resize(self.chunk_rows * self.rows.bytes, 0);
        if self.rows.checksum {
            let sum = fletcher32(&self.chunk);
            self.chunk.extend_from_slice(&sum);
        }
        let write = || {
            self.data.resize((rows as usize, self.rows.channels))?;
            write_chunk(&self.data, &[self.full, 0], 0, &self.chunk)
        };
        let written = write().map_err(failed);
        self.chunk.truncate(length);
        written
    }

    /// Puts all rows and their index into the file.
    fn complete(&mut self) -> io::Result<()> {
        if !self.chunk.is_empty() {
            self.write_chunk(self.length())?;
        }
        let write = || {
            self.data.resize((self.length() as usize, self.rows.channels))?;
            self.index.resize((self.runs.len(), 2))?;
            self.index.write_raw(self.runs.as_flattened())
        };
        write().map_err(failed)
    }

    /// Makes all rows durable under the temporary name.
    pub fn sync(&mut self) -> io::Result<()> {
        self.complete()?;
        self.file.flush().map_err(failed)?;
        fs::File::open(&self.temporary)?.sync_data()
    }

    /// Removes the rows from a sample on. The chunk that it is in was not cleared.
    pub fn cut(&mut self, end: u64) {
        self.runs.retain(|run| run[0] < end);
        let rows = self.runs.last().map_or(0, |[sample, row]| row + (end.min(self.next) - sample));
        self.full = self.full.min(rows);
        // Rows before the chunk are in the file already.
        self.chunk.truncate((rows - self.full) as usize * self.rows.bytes);
        self.next = self.next.min(end);
    }

    /// Ends the file, and gives it its name. Returns it with its length.
    pub fn finish(mut self) -> io::Result<(PathBuf, u64)> {
        self.complete()?;
        let Self { file, data, index, temporary, path, .. } = self;
        drop((data, index));
        file.close().map_err(failed)?;
        fs::rename(temporary, &path)?;
        let length = path.metadata()?.len();
        Ok((path, length))
    }

    /// Removes a file that was given up.
    pub fn discard(self) {
        let Self { file, data, index, temporary, .. } = self;
        drop((data, index, file));
        // A file that stays has a name that readers pass over.
        let _ = fs::remove_file(temporary);
    }
}

impl Rows {
    fn create(&self, file: &File, most: usize, chunk_rows: usize) -> hdf5_metno::Result<Dataset> {
        let mut properties = DatasetCreateBuilder::default();
        properties.fill_time(FillTime::Never).obj_track_times(false);
        if self.checksum {
            properties.fletcher32();
        }
        let chunk = vec![chunk_rows, self.channels];
        // As in the crate `hdf5`: the builder has a chunk size of its own, and the properties need one for a filter.
        let properties = properties.chunk(chunk.clone()).finish()?;
        let extents = vec![Extent::new(0, Some(most)), Extent::fixed(self.channels)];
        let extents = Extents::Simple(SimpleExtents::from_vec(extents));
        let builder = file.new_dataset_builder().set_create_plist(&properties).packed(true);
        builder.empty_as(&self.element).shape(extents).chunk(chunk).create("rf_data")
    }
}
