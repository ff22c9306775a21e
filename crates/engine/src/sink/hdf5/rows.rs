//! One dataset that grows by rows, an HDF5 chunk at a time.

use std::path::Path;
use std::time::{Duration, Instant};

use hdf5_metno::dataset::{Dataset, DatasetCreateBuilder, FillTime};
use hdf5_metno::types::TypeDescriptor;
use hdf5_metno::{Extent, Extents, Group, SimpleExtents};

use super::filter::{self, Filter};
use super::{Compression, Error};
use crate::sys::driver::place_chunk;
use crate::sys::hdf5::write_chunk;

/// A dataset and how far it has been written.
#[derive(Debug)]
pub(super) struct Rows {
    dataset: Dataset,
    name: String,
    /// Elements of a row, if a row has several.
    width: Option<usize>,
    chunk_rows: usize,
    /// Rows of all the HDF5 chunks that are full.
    full: u64,
    /// Rows of the chunk being filled that readers have seen.
    shown: usize,
    filter: Filter,
    /// Whether the filter has had the chunk that is written next.
    filtered: bool,
    /// Whether the caller writes chunks where they are to lie.
    placed: bool,
    longest: Duration,
}

/// What a dataset's rows are.
#[derive(Clone, Debug)]
pub(super) struct Layout<'a> {
    pub name: &'a str,
    pub element: TypeDescriptor,
    /// Elements of a row, if a row has several.
    pub width: Option<usize>,
    pub chunk_rows: usize,
    pub compression: Compression,
}

impl Rows {
    /// Makes an empty dataset.
    pub(super) fn create(group: &Group, layout: &Layout<'_>) -> hdf5_metno::Result<Self> {
        let filter = Filter::new(layout.compression, layout.element.size());
        let mut properties = DatasetCreateBuilder::default();
        properties.fill_time(FillTime::Never).obj_track_times(false);
        filter.declare(&mut properties);
        let width = layout.width.map(Extent::fixed);
        let extents =
            SimpleExtents::from_vec(std::iter::once(Extent::resizable(0)).chain(width).collect());
        let chunk: Vec<usize> = std::iter::once(layout.chunk_rows).chain(layout.width).collect();
        // The builder has a chunk of its own that goes before that of the properties, which in turn
        // take no filter without one.
        let properties = properties.chunk(chunk.clone()).finish()?;
        let builder = group.new_dataset_builder().set_create_plist(&properties).packed(true);
        let builder =
            builder.empty_as(&layout.element).shape(Extents::Simple(extents)).chunk(chunk);
        let dataset = builder.create(layout.name)?;
        assert_eq!(dataset.dtype()?.size(), layout.element.size(), "values lie packed in the file");
        Ok(Rows {
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

    /// Takes up a dataset that has rows, at the HDF5 chunk that is not full; says why it cannot, if so.
    ///
    /// Its filters were chosen when it was made: what is added goes through the same.
    pub(super) fn resume(dataset: Dataset, name: &str) -> Result<Self, &'static str> {
        let (shape, chunk) = (dataset.shape(), dataset.chunk().unwrap_or_default());
        let (Some(&rows), Some(&chunk_rows)) = (shape.first(), chunk.first()) else {
            return Err("cannot grow");
        };
        let compression =
            filter::of(&dataset).ok_or("has a compression that this program does not write")?;
        let element_bytes = dataset.dtype().map_err(|_| "has no type")?.size();
        Ok(Rows {
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

    /// Rows that were written.
    pub(super) fn length(&self) -> u64 {
        self.full + self.shown as u64
    }

    /// Room that a cut may take: a chunk that is made smaller is written anew, any other where it lies.
    pub(super) fn room_to_cut(&self) -> u64 {
        if !self.is_filtered() {
            return 0;
        }
        let element = self.dataset.dtype().map_or(0, |kind| kind.size());
        (self.chunk_rows * self.width.unwrap_or(1) * element) as u64
    }

    /// Where in the file the dataset is.
    pub(super) fn place(&self) -> String {
        self.dataset.name()
    }

    /// The longest that a write of an HDF5 chunk took.
    pub(super) fn longest(&self) -> Duration {
        self.longest
    }

    /// From now on chunks are only given their places, wherever that can be, and the caller writes them. They are
    /// filtered by nobody.
    pub(super) fn leave_chunks(&mut self) {
        assert!(!self.is_filtered(), "what is filtered is written here");
        self.placed = true;
    }

    /// Whether a chunk takes work before it is written.
    pub(super) fn is_filtered(&self) -> bool {
        self.filter.works()
    }

    /// Filters the chunk that has become full, ahead of [`Rows::put`]. No call to libhdf5 is in it, so that
    /// several datasets can do it at once.
    pub(super) fn filter(&mut self, chunk: &[u8]) {
        // What readers have seen lies there unfiltered, and stays so.
        if self.shown == 0 {
            self.filter.apply(chunk);
            self.filtered = true;
        }
    }

    /// Writes the chunk that has become full, or says where the caller is to.
    pub(super) fn put(&mut self, chunk: &[u8], path: &Path) -> Result<Option<u64>, Error> {
        let unseen = std::mem::take(&mut self.shown) == 0;
        if unseen && !std::mem::take(&mut self.filtered) {
            self.filter.apply(chunk);
        }
        let place = self.write(chunk, self.chunk_rows, unseen, path)?;
        self.full += self.chunk_rows as u64;
        Ok(place)
    }

    /// Writes the chunk that is being filled, of which `rows` are valid, for readers to see.
    ///
    /// It will be written again where it lies, so it must not be smaller than it will be then. Says where the caller is
    /// to write it, if he is.
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

    /// Makes what was written visible.
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
            // A length without its rows would be read as zeros. If this fails too, so will the flush
            // that alone could show it.
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
