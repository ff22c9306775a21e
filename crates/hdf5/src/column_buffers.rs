//! Column buffers: each slab holds an HDF5 chunk of every column.
//!
//! ```text
//! slab │ TIME … │ POSITION … │ BITS … │        each begins on a page
//!          │          │          │
//! file │ TIME … │ POSITION … │ BITS … │        libhdf5 allocates consecutive places
//! ```
//!
//! If the file can be written [past the page cache](Direct), there are several slabs: one is filled while others are
//! written, mostly with one write each. Otherwise libhdf5 writes chunk by chunk, and there is one slab.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, io};

use fullbore_linux::ring::{Block, Pool};
use fullbore_linux::sys::driver::PAGE;
use fullbore_linux::sys::memory::Region;

use super::direct::{BufferPart, Direct};

/// Slabs of a file that is written past the page cache: one is filled, the others are being written.
const SEVERAL: usize = 3;

/// Slab sizes for which direct writes are worthwhile. Smaller slabs belong to streams that cost little, and would
/// occupy a disk with every flush; larger ones would need too much memory.
const WORTHWHILE: Range<usize> = 1 << 20..64 << 20;

/// The column buffers of a file.
pub(super) struct ColumnBuffers {
    pool: Pool,
    /// The range of each column's chunk in a slab.
    columns: Vec<Range<usize>>,
    /// The slab that is being filled; `None` until the first sample.
    filling: Option<Block>,
    direct: Option<Direct>,
    worthwhile: bool,
    /// The longest wait for a write.
    longest: Duration,
}

/// Returns the bytes of a slab with chunks of these sizes, and the range of each chunk.
fn lay_out(chunks: &[usize]) -> (usize, Vec<Range<usize>>) {
    let mut end = 0;
    let columns = chunks.iter().map(|bytes| {
        let from = usize::next_multiple_of(end, PAGE as usize);
        end = from + bytes;
        from..end
    });
    let columns = columns.collect();
    (end, columns)
}

/// True if chunks of these sizes should be written past the page cache, if possible.
fn are_worthwhile(chunks: &[usize]) -> bool {
    let pages = chunks.iter().all(|bytes| bytes.is_multiple_of(PAGE as usize));
    pages && WORTHWHILE.contains(&lay_out(chunks).0)
}

impl ColumnBuffers {
    /// Allocates memory for chunks of these sizes.
    pub(super) fn new(chunks: &[usize]) -> io::Result<Self> {
        let (bytes, columns) = lay_out(chunks);
        let worthwhile = are_worthwhile(chunks);
        let count = if worthwhile { SEVERAL } else { 1 };
        let stride = bytes.next_multiple_of(PAGE as usize);
        let pool = Pool::new(Arc::new(Region::new(count * stride)?), bytes, 0);
        let (filling, direct, longest) = (None, None, Duration::ZERO);
        Ok(ColumnBuffers { pool, columns, filling, direct, worthwhile, longest })
    }

    /// Switches to writes past the page cache, if they are worthwhile; `open` opens the file with memory for a trial
    /// write. Returns true if it switched.
    pub(super) fn go_direct(&mut self, open: impl FnOnce(&[u8]) -> Option<Direct>) -> bool {
        if self.worthwhile && self.columns_mut().is_ok() {
            self.direct = self.filling.as_deref().and_then(open);
        }
        self.direct.is_some()
    }

    /// True if slabs are written past the page cache.
    pub(super) fn are_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// Returns the longest wait for a write.
    pub(super) fn longest(&self) -> Duration {
        self.longest
    }

    /// Returns the chunks that are being filled. Waits until memory for them is free.
    pub(super) fn columns_mut(&mut self) -> io::Result<Vec<&mut [u8]>> {
        if self.filling.is_none() {
            self.filling = Some(self.take()?);
        }
        let mut rest: &mut [u8] = self.filling.as_mut().expect("it was taken just now");
        let mut begin = 0;
        let columns = self.columns.iter().map(|column| {
            let behind = std::mem::take(&mut rest).split_at_mut(column.start - begin).1;
            let (chunk, later) = behind.split_at_mut(column.len());
            (begin, rest) = (column.end, later);
            chunk
        });
        Ok(columns.collect())
    }

    /// Iterates over the chunks that are being filled; empty if they hold no data.
    pub(super) fn columns(&self) -> impl Iterator<Item = &[u8]> {
        let slab = self.filling.as_deref();
        self.columns.iter().map(move |column| slab.map_or(&[][..], |slab| &slab[column.clone()]))
    }

    /// Makes sure that the file has space for a slab, before its chunks are allocated.
    pub(super) fn make_room(&mut self) -> io::Result<()> {
        let bytes = self.columns.last().map_or(0, |column| column.end);
        self.direct.as_mut().map_or(Ok(()), |direct| direct.make_room(bytes as u64))
    }

    /// Writes a full slab whose chunks have these places. libhdf5 has written the chunks without a place.
    pub(super) fn put(&mut self, places: &[Option<u64>]) -> io::Result<()> {
        let parts = self.parts(places);
        if let Some(direct) = &mut self.direct
            && let Some(slab) = self.filling.take()
        {
            direct.write(slab, &parts);
            // The place is behind the reserved space; one slab never needs that much.
            direct.make_room(0)?;
        }
        Ok(())
    }

    /// Writes the slab as it is, and waits until all slabs are written. The slab can still be filled.
    pub(super) fn show(&mut self, places: &[Option<u64>]) -> io::Result<()> {
        let filling = self.filling.as_ref().map(Block::number);
        if places.iter().any(Option::is_some) {
            self.put(places)?;
        }
        let Some(direct) = &mut self.direct else { return Ok(()) };
        let started = Instant::now();
        while direct.is_busy() {
            for slab in direct.wait()? {
                match filling == Some(slab.number()) {
                    true => self.filling = Some(slab),
                    false => self.pool.put(slab),
                }
            }
        }
        self.longest = self.longest.max(started.elapsed());
        Ok(())
    }

    /// Waits for the writes under way. Returns true if all slabs are in the file.
    pub(super) fn settle(&mut self) -> bool {
        let Some(direct) = &mut self.direct else { return true };
        while direct.is_busy() {
            if direct.wait().is_err() {
                return false;
            }
        }
        direct.is_done()
    }

    /// Returns an unused slab; waits for one that is being written.
    fn take(&mut self) -> io::Result<Block> {
        let started = Instant::now();
        loop {
            if let Some(slab) = self.pool.take() {
                self.longest = self.longest.max(started.elapsed());
                return Ok(slab);
            }
            let direct = self.direct.as_mut().expect("only what is being written is missing");
            direct.wait()?.into_iter().for_each(|slab| self.pool.put(slab));
        }
    }

    fn parts(&self, places: &[Option<u64>]) -> Vec<BufferPart> {
        let placed = self.columns.iter().zip(places);
        let part = |(column, place): (&Range<usize>, &Option<u64>)| {
            let (from, bytes) = (column.start as u32, column.len() as u32);
            place.map(|at| BufferPart { from, bytes, at })
        };
        placed.filter_map(part).collect()
    }
}

impl fmt::Debug for ColumnBuffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ColumnBuffers { columns, direct, .. } = self;
        f.debug_struct("Slabs")
            .field("columns", columns)
            .field("direct", &direct.is_some())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_begins_on_a_page_of_its_own() {
        let chunks = [4004, 8192, 12];
        let (bytes, columns) = lay_out(&chunks);
        assert_eq!((bytes, columns), (12_300, vec![0..4004, 4096..12_288, 12_288..12_300]));
        let mut column_buffers = ColumnBuffers::new(&chunks).unwrap();
        for (n, chunk) in column_buffers.columns_mut().unwrap().into_iter().enumerate() {
            assert_eq!((chunk.len(), chunk.as_ptr() as usize % 4096), (chunks[n], 0));
            chunk.fill(n as u8 + 1);
        }
        let filled = |(n, chunk): (usize, &[u8])| chunk.iter().all(|byte| *byte == n as u8 + 1);
        assert!(column_buffers.columns().enumerate().all(filled));
        assert!(!are_worthwhile(&chunks) && are_worthwhile(&[1 << 20, 4096]));
        assert!(!are_worthwhile(&[1 << 20, 4098]) && !are_worthwhile(&[1 << 30]));
    }
}
