//! The memory that columns are filled in: a slab holds an HDF5 chunk of every column.
//!
//! ```text
//! slab │ TIME … │ POSITION … │ BITS … │        each from a page on
//!          │          │          │
//! file │ TIME … │ POSITION … │ BITS … │        libhdf5 gives them places one after another
//! ```
//!
//! Where the file can be written [past the page cache](Direct), there are several slabs: one is filled while others are
//! written, mostly by one write each. Where it cannot, libhdf5 writes chunk by chunk, and there is one.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::direct::{Direct, Part};
use crate::ring::{Block, Pool};
use crate::sys::driver::PAGE;
use crate::sys::memory::Region;

/// Slabs of a file that is written past the page cache: one is filled, the others are under way.
const SEVERAL: usize = 3;

/// Slabs of so many bytes are worth to be written so. Smaller ones are of streams that cost next to nothing, and would
/// keep a disk busy with every flush; greater ones would take too much memory.
const WORTHWHILE: Range<usize> = 1 << 20..64 << 20;

/// All slabs of a file.
pub(super) struct Slabs {
    pool: Pool,
    /// Where in a slab each column's chunk is.
    columns: Vec<Range<usize>>,
    /// The one that is being filled; nothing until something comes.
    filling: Option<Block>,
    direct: Option<Direct>,
    worthwhile: bool,
    /// The longest that somebody waited for a write.
    longest: Duration,
}

/// Bytes of a slab with chunks of so many bytes, and where in it each is.
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

/// Whether chunks of so many bytes are written past the page cache, if that can be.
fn are_worthwhile(chunks: &[usize]) -> bool {
    let pages = chunks.iter().all(|bytes| bytes.is_multiple_of(PAGE as usize));
    pages && WORTHWHILE.contains(&lay_out(chunks).0)
}

impl Slabs {
    /// Memory for chunks of so many bytes each.
    pub(super) fn new(chunks: &[usize]) -> io::Result<Self> {
        let (bytes, columns) = lay_out(chunks);
        let worthwhile = are_worthwhile(chunks);
        let count = if worthwhile { SEVERAL } else { 1 };
        let stride = bytes.next_multiple_of(PAGE as usize);
        let pool = Pool::new(Arc::new(Region::new(count * stride)?), bytes, 0);
        let (filling, direct, longest) = (None, None, Duration::ZERO);
        Ok(Slabs { pool, columns, filling, direct, worthwhile, longest })
    }

    /// Has slabs written past the page cache from now on, if they are worth it, by what is opened with memory to try it
    /// with. Says whether.
    pub(super) fn go_direct(&mut self, open: impl FnOnce(&[u8]) -> Option<Direct>) -> bool {
        if self.worthwhile && self.columns_mut().is_ok() {
            self.direct = self.filling.as_deref().and_then(open);
        }
        self.direct.is_some()
    }

    /// Whether slabs are written past the page cache.
    pub(super) fn are_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// The longest that somebody waited for a write.
    pub(super) fn longest(&self) -> Duration {
        self.longest
    }

    /// The chunks that are being filled; waits until there is memory for them.
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

    /// The chunks that are being filled; without anything in them, nothing.
    pub(super) fn columns(&self) -> impl Iterator<Item = &[u8]> {
        let slab = self.filling.as_deref();
        self.columns.iter().map(move |column| slab.map_or(&[][..], |slab| &slab[column.clone()]))
    }

    /// Sees to it that the file has room for a slab, before chunks of it are given their places.
    pub(super) fn make_room(&mut self) -> io::Result<()> {
        let bytes = self.columns.last().map_or(0, |column| column.end);
        self.direct.as_mut().map_or(Ok(()), |direct| direct.make_room(bytes as u64))
    }

    /// The slab is full, and its chunks have these places; those without one libhdf5 has written.
    pub(super) fn put(&mut self, places: &[Option<u64>]) -> io::Result<()> {
        let parts = self.parts(places);
        if let Some(direct) = &mut self.direct
            && let Some(slab) = self.filling.take()
        {
            direct.write(slab, &parts);
            // A place behind the room that was made; so much is never between two.
            direct.make_room(0)?;
        }
        Ok(())
    }

    /// Writes the slab as it is, and waits until all that was put is written. It can be filled on.
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

    /// Waits for what is under way; says whether all that was put is in the file.
    pub(super) fn settle(&mut self) -> bool {
        let Some(direct) = &mut self.direct else { return true };
        while direct.is_busy() {
            if direct.wait().is_err() {
                return false;
            }
        }
        direct.is_done()
    }

    /// A slab that nobody uses; waits for one that is being written.
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

    fn parts(&self, places: &[Option<u64>]) -> Vec<Part> {
        let placed = self.columns.iter().zip(places);
        let part = |(column, place): (&Range<usize>, &Option<u64>)| {
            let (from, bytes) = (column.start as u32, column.len() as u32);
            place.map(|at| Part { from, bytes, at })
        };
        placed.filter_map(part).collect()
    }
}

impl fmt::Debug for Slabs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Slabs { columns, direct, .. } = self;
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
        let mut slabs = Slabs::new(&chunks).unwrap();
        for (n, chunk) in slabs.columns_mut().unwrap().into_iter().enumerate() {
            assert_eq!((chunk.len(), chunk.as_ptr() as usize % 4096), (chunks[n], 0));
            chunk.fill(n as u8 + 1);
        }
        let filled = |(n, chunk): (usize, &[u8])| chunk.iter().all(|byte| *byte == n as u8 + 1);
        assert!(slabs.columns().enumerate().all(filled));
        assert!(!are_worthwhile(&chunks) && are_worthwhile(&[1 << 20, 4096]));
        assert!(!are_worthwhile(&[1 << 20, 4098]) && !are_worthwhile(&[1 << 30]));
    }
}
