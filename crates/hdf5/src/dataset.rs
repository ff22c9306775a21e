//! A dataset that grows by rows, one HDF5 chunk at a time.

use std::path::Path;
use std::time::{Duration, Instant};

use fullbore_linux::sys::driver::place_chunk;
use fullbore_linux::sys::hdf5::write_chunk;
use hdf5_metno::dataset::{Dataset, DatasetCreateBuilder, FillTime};
use hdf5_metno::types::TypeDescriptor;
use hdf5_metno::{Extent, Extents, Group, SimpleExtents};

use super::filter::{self, Filter};
use super::{Compression, Error};

/// A dataset and its write position.
#[derive(Debug)]
pub(super) struct RowDataset {
    dataset: Dataset,
    name: String,
    /// Elements of a row, if it has several.
    width: Option<usize>,
    chunk_rows: usize,
    /// Rows of all full HDF5 chunks.
    full: u64,
    /// Rows of the partly filled chunk that readers have seen.
    shown: usize,
    filter: Filter,
    /// True if the next chunk was filtered already.
    filtered: bool,
    /// True if the caller writes the chunks at their places.
    placed: bool,
    longest: Duration,
}

/// The row layout of a dataset.
#[derive(Clone, Debug)]
pub(super) struct Layout<'a> {
    pub name: &'a str,
    pub element: TypeDescriptor,
    /// Elements of a row, if it has several.
    pub width: Option<usize>,
    pub chunk_rows: usize,
    pub compression: Compression,
}

impl RowDataset {
    /// Creates an empty dataset.
    pub(super) fn create(group: &Group, layout: &Layout<'_>) -> hdf5_metno::Result<Self> {
        let filter = Filter::new(layout.compression, layout.element.size());
        let mut properties = DatasetCreateBuilder::default();
        properties.fill_time(FillTime::Never).obj_track_times(false);
        filter.declare(&mut properties);
        let width = layout.width.map(Extent::fixed);
        let extents =
            SimpleExtents::from_vec(std::iter::once(Extent::resizable(0)).chain(width).collect());
        let chunk: Vec<usize> = std::iter::once(layout.chunk_rows).chain(layout.width).collect();
        // The builder has a chunk size of its own that overrides that of the properties, and the properties accept no
        // filter without a chunk size.
        let properties = properties.chunk(chunk.clone()).finish()?;
        let builder = group.new_dataset_builder().set_create_plist(&properties).packed(true);
        let builder =
            builder.empty_as(&layout.element).shape(Extents::Simple(extents)).chunk(chunk);
        let dataset = builder.create(layout.name)?;
        assert_eq!(dataset.dtype()?.size(), layout.element.size(), "values lie packed in the file");
        Ok(RowDataset {
            dataset,
            name: layout.name.to_owned(),
            width: layout.width,
            chunk_rows: layout.chunk_rows,
            full: 0,
            shown: 0,
            filter,
            filtered: false,
            placed: false,
            longest: Duration::ZERO,
        })
    }

    /// Opens a dataset with rows for appending, at its partly filled HDF5 chunk; or returns the reason why that is
    /// impossible.
    ///
    /// The filters were chosen at its creation. New rows use the same filters.
    pub(super) fn resume(dataset: Dataset, name: &str) -> Result<Self, &'static str> {
        let (shape, chunk) = (dataset.shape(), dataset.chunk().unwrap_or_default());
        let (Some(&rows), Some(&chunk_rows)) = (shape.first(), chunk.first()) else {
            return Err("cannot grow");
        };
        let compression =
            filter::of(&dataset).ok_or("has a compression that this program does not write")?;
        let element_bytes = dataset.dtype().map_err(|_| "has no type")?.size();
        Ok(RowDataset {
            name: name.to_owned(),
            width: shape.get(1).copied(),
            chunk_rows,
            full: (rows / chunk_rows * chunk_rows) as u64,
            shown: rows % chunk_rows,
            filter: Filter::new(compression, element_bytes),
            filtered: false,
            placed: false,
            longest: Duration::ZERO,
            dataset,
        })
    }

    pub(super) fn dataset(&self) -> &Dataset {
        &self.dataset
    }

    pub(super) fn chunk_rows(&self) -> usize {
        self.chunk_rows
    }

    /// The number of rows written.
    pub(super) fn length(&self) -> u64 {
        self.full + self.shown as u64
    }

    /// The disk space that a cut may need: a shrunken chunk is written anew if it is filtered, else in place.
    pub(super) fn room_to_cut(&self) -> u64 {
        if !self.is_filtered() {
            return 0;
        }
        let element = self.dataset.dtype().map_or(0, |kind| kind.size());
        (self.chunk_rows * self.width.unwrap_or(1) * element) as u64
    }

    /// The dataset's name in the file.
    pub(super) fn place(&self) -> String {
        self.dataset.name()
    }

    /// Returns the longest time for writing an HDF5 chunk.
    pub(super) fn longest(&self) -> Duration {
        self.longest
    }

    /// From now on the dataset only allocates chunks where possible, and the caller writes them without filters.
    pub(super) fn leave_chunks(&mut self) {
        assert!(!self.is_filtered(), "what is filtered is written here");
        self.placed = true;
    }

    /// True if chunks are filtered before they are written.
    pub(super) fn is_filtered(&self) -> bool {
        self.filter.works()
    }

    /// Filters a full chunk ahead of [`RowDataset::put`]. This makes no call to libhdf5, so several datasets can do it
    /// at once.
    pub(super) fn filter(&mut self, chunk: &[u8]) {
        // A chunk that readers have seen is unfiltered and stays unfiltered.
        if self.shown == 0 {
            self.filter.apply(chunk);
            self.filtered = true;
        }
    }

    /// Writes a full chunk, or returns the place where the caller must write it.
    pub(super) fn put(&mut self, chunk: &[u8], path: &Path) -> Result<Option<u64>, Error> {
        let unseen = std::mem::take(&mut self.shown) == 0;
        if unseen && !std::mem::take(&mut self.filtered) {
            self.filter.apply(chunk);
        }
        let place = self.write(chunk, self.chunk_rows, unseen, path)?;
        self.full += self.chunk_rows as u64;
        Ok(place)
    }

    /// Writes the partly filled chunk, with `rows` valid rows, for readers.
    ///
    /// The full chunk is later written at the same place, so this one must not be smaller. Returns the place if the
    /// caller must write it.
    pub(super) fn show(
        &mut self,
        chunk: &[u8],
        rows: usize,
        path: &Path,
    ) -> Result<Option<u64>, Error> {
        if rows == self.shown {
            return Ok(None);
        }
        let place = self.write(chunk, rows, false, path)?;
        self.shown = rows;
        Ok(place)
    }

    /// Makes written rows visible.
    pub(super) fn flush(&self, path: &Path) -> Result<(), Error> {
        self.dataset.flush().map_err(|source| Error::Flush {
            path: path.to_owned(),
            dataset: self.name.clone(),
            source,
        })
    }

    fn write(
        &mut self,
        chunk: &[u8],
        rows: usize,
        pack: bool,
        path: &Path,
    ) -> Result<Option<u64>, Error> {
        let started = Instant::now();
        let before = self.dataset.shape().first().copied().unwrap_or(0);
        let written = self.extend_and_write(chunk, rows, pack);
        self.longest = self.longest.max(started.elapsed());
        written.map_err(|source| {
            // Readers would see a length without its rows as zeros. If this fails too, so does the flush that would
            // show it.
            let _ = self.resize(before);
            Error::Write {
                path: path.to_owned(),
                dataset: self.name.clone(),
                row: self.full,
                source,
            }
        })
    }

    fn extend_and_write(
        &mut self,
        chunk: &[u8],
        rows: usize,
        pack: bool,
    ) -> hdf5_metno::Result<Option<u64>> {
        self.resize(self.full as usize + rows)?;
        let offset = [self.full, 0];
        let offset = &offset[..1 + usize::from(self.width.is_some())];
        if self.placed {
            return place_chunk(&self.dataset, offset, chunk);
        }
        let plain = self.filter.none_applied();
        match if pack { self.filter.packed() } else { None } {
            Some(packed) => write_chunk(&self.dataset, offset, 0, packed),
            None => write_chunk(&self.dataset, offset, plain, chunk),
        }?;
        Ok(None)
    }

    fn resize(&self, rows: usize) -> hdf5_metno::Result<()> {
        match self.width {
            None => self.dataset.resize(rows),
            Some(width) => self.dataset.resize((rows, width)),
        }
    }
}
