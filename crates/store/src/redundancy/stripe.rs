//! A stripe on the members: its rows are read, checked, and restored if something is lost.

use std::path::PathBuf;
use std::sync::Arc;

use fullbore_core::index::Block as Record;
use fullbore_linux::ring::Block;

use super::reed_solomon::ReedSolomon;
use crate::read::{BlockExtent, ExtentReader, Fault, StartError, aligned, pool};

/// Chunks on different members, and their parity on others.
#[derive(Clone, Debug)]
pub struct Stripe {
    /// The number within the stream.
    pub number: u32,
    /// Bytes of each chunk that are coded together.
    pub row_bytes: usize,
    /// Data chunks.
    pub data: Vec<DataChunk>,
    /// Existing parity chunks, by their position.
    pub parity: Vec<Option<ParityChunk>>,
}

/// A data chunk of a stripe.
#[derive(Clone, Debug)]
pub struct DataChunk {
    /// The number, as the index has it.
    pub chunk: u32,
    /// The current or former path.
    pub path: Arc<PathBuf>,
    /// The root, if it is on any.
    pub root: Option<usize>,
    /// The device of the file.
    pub device: u64,
    /// The size in bytes.
    pub bytes: u64,
    /// The blocks, in order.
    pub blocks: Vec<Record>,
}

/// A parity chunk of a stripe.
#[derive(Clone, Debug)]
pub struct ParityChunk {
    /// The path.
    pub path: Arc<PathBuf>,
    /// The index of the root.
    pub root: usize,
    /// The device of the file.
    pub device: u64,
    /// CRC32C of its rows.
    pub crcs: Vec<u32>,
}

/// The position of a chunk in a stripe.
#[derive(Clone, Debug)]
pub struct InStripe {
    /// The stripe.
    pub stripe: Arc<Stripe>,
    /// The index among its data chunks.
    pub place: usize,
}

impl Stripe {
    /// The number of data and parity chunks.
    pub fn shards(&self) -> usize {
        self.data.len() + self.parity.len()
    }

    /// Bytes of the longest data chunk.
    fn longest(&self) -> u64 {
        self.data.iter().map(|it| it.bytes).max().unwrap_or(0)
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.longest().div_ceil(self.row_bytes as u64) as usize
    }

    /// Bytes of a chunk, data or parity.
    pub fn bytes_of(&self, shard: usize) -> u64 {
        match self.data.get(shard) {
            Some(chunk) => chunk.bytes,
            None => super::stripe_metadata::parity_bytes(self.data.len(), self.longest()),
        }
    }

    /// Bytes of a chunk in a row.
    pub fn length(&self, shard: usize, row: usize) -> usize {
        let left = self.bytes_of(shard).saturating_sub(row as u64 * self.row_bytes as u64);
        usize::try_from(left).unwrap_or(usize::MAX).min(self.row_bytes)
    }

    /// The root of a chunk, if it is on any.
    pub fn root_of(&self, shard: usize) -> Option<usize> {
        match self.data.get(shard) {
            Some(chunk) => chunk.root,
            None => Some(self.parity[shard - self.data.len()].as_ref()?.root),
        }
    }

    /// Reads a row of a chunk and checks it; the space behind the chunk's end counts as zeroes.
    pub fn read_row(
        &self,
        shard: usize,
        row: usize,
        reader: &mut ExtentReader,
        into: &mut [u8],
    ) -> Result<(), Fault> {
        let length = self.length(shard, row);
        let into = &mut into[..self.row_bytes];
        match self.data.get(shard) {
            _ if length == 0 => into.fill(0),
            Some(chunk) => self.read_data(chunk, row, reader, into)?,
            None => {
                let parity = self.parity[shard - self.data.len()].as_ref();
                let parity =
                    parity.ok_or_else(|| Fault::System("the parity chunk is missing".into()))?;
                let crc = parity.crcs.get(row).copied();
                let extent = BlockExtent {
                    path: parity.path.clone(),
                    device: parity.device,
                    offset: row as u64 * self.row_bytes as u64,
                    bytes: length as u32,
                    crc: crc.ok_or(Fault::Short { got: 0 })?,
                    stripe: None,
                };
                reader.read(&extent, into)?;
                into[length..].fill(0);
            }
        }
        Ok(())
    }

    fn read_data(
        &self,
        chunk: &DataChunk,
        row: usize,
        reader: &mut ExtentReader,
        into: &mut [u8],
    ) -> Result<(), Fault> {
        let start = row as u64 * self.row_bytes as u64;
        let end = start + self.row_bytes as u64;
        let first = chunk.blocks.partition_point(|it| it.offset + u64::from(it.bytes) <= start);
        let behind = chunk.blocks.partition_point(|it| it.offset < end);
        let blocks = &chunk.blocks[first..behind.max(first)];
        if let [only] = blocks
            && only.offset == start
            && only.bytes as usize <= self.row_bytes
        {
            reader.read(&extent(chunk, only), into)?;
            into[only.bytes as usize..].fill(0);
            return Ok(());
        }
        into.fill(0);
        for block in blocks {
            let memory = pool(1, block.bytes as usize).ok().and_then(|mut pool| pool.take());
            let mut memory =
                memory.ok_or_else(|| Fault::System("no memory to read into".into()))?;
            reader.read(&extent(chunk, block), &mut memory)?;
            let behind = block.offset + u64::from(block.bytes);
            let (from, to) = (block.offset.max(start), behind.min(end));
            let part = (from - block.offset) as usize..(to - block.offset) as usize;
            into[(from - start) as usize..(to - start) as usize].copy_from_slice(&memory[part]);
        }
        Ok(())
    }
}

fn extent(chunk: &DataChunk, block: &Record) -> BlockExtent {
    BlockExtent {
        path: chunk.path.clone(),
        device: chunk.device,
        offset: block.offset,
        bytes: block.bytes,
        crc: block.crc,
        stripe: None,
    }
}

/// Memory for one row of a stripe, with its reader and its code.
#[derive(Debug)]
pub struct Rows {
    shape: (usize, usize, usize),
    /// Data rows, then parity rows.
    pub rows: Vec<Block>,
    readers: Vec<ExtentReader>,
    code: ReedSolomon,
}

impl Rows {
    /// Makes the memory for stripes of the same shape as this one.
    pub fn of(stripe: &Stripe) -> Result<Self, StartError> {
        let shards = stripe.shards();
        let mut pool = pool(shards, stripe.row_bytes)?;
        let rows = std::iter::from_fn(|| pool.take()).take(shards).collect();
        Ok(Self {
            shape: shape(stripe),
            rows,
            readers: (0..shards).map(|_| ExtentReader::default()).collect(),
            code: ReedSolomon::new(stripe.data.len(), stripe.parity.len()),
        })
    }

    /// Returns true if it can be used for this stripe's shape.
    pub fn fits(&self, stripe: &Stripe) -> bool {
        self.shape == shape(stripe)
    }

    /// Reads a row of all data chunks except those that are `known` to be bad, and restores the unreadable ones from
    /// parity. The error lists the read faults by chunk, if there were too many.
    pub fn complete(
        &mut self,
        stripe: &Stripe,
        row: usize,
        known_bad: &[usize],
    ) -> Result<(), Vec<(usize, Fault)>> {
        let (data, shards) = (stripe.data.len(), stripe.shards());
        let mut present = vec![false; shards];
        let mut faults = Vec::new();
        // The content behind a chunk's end is known, even if the chunk is missing.
        let wanted = |shard: &usize| !known_bad.contains(shard) || stripe.length(*shard, row) == 0;
        let mut next: Vec<usize> = (0..data).filter(wanted).collect();
        let mut others = (data..shards).filter(|shard| !known_bad.contains(shard));
        loop {
            let read = self.read(stripe, row, &next);
            for (shard, fault) in next.drain(..).zip(read) {
                present[shard] = fault.is_none();
                faults.extend(fault.map(|fault| (shard, fault)));
            }
            let have = present.iter().filter(|present| **present).count();
            next.extend(others.by_ref().take(data.saturating_sub(have)));
            if next.is_empty() {
                break;
            }
        }
        match self.code.complete(&mut self.rows, &present, aligned_row(stripe, row)) {
            true => Ok(()),
            false => Err(faults),
        }
    }

    /// Computes the parity of complete data rows.
    pub fn encode(&mut self, stripe: &Stripe, row: usize) {
        self.code.encode(&mut self.rows, aligned_row(stripe, row));
    }

    /// Reads a row of these chunks in parallel: each is on a member of its own.
    fn read(&mut self, stripe: &Stripe, row: usize, shards: &[usize]) -> Vec<Option<Fault>> {
        let all = self.rows.iter_mut().zip(self.readers.iter_mut()).enumerate();
        let chosen = all.filter(|(shard, _)| shards.contains(shard));
        std::thread::scope(|scope| {
            let running: Vec<_> = chosen
                .map(|(shard, (into, reader))| {
                    scope.spawn(move || stripe.read_row(shard, row, reader, into).err())
                })
                .collect();
            let failed = || Some(Fault::System("the thread that read it failed".into()));
            running.into_iter().map(|it| it.join().unwrap_or_else(|_| failed())).collect()
        })
    }
}

fn shape(stripe: &Stripe) -> (usize, usize, usize) {
    (stripe.data.len(), stripe.parity.len(), stripe.row_bytes)
}

/// Bytes of a row that are coded.
fn aligned_row(stripe: &Stripe, row: usize) -> usize {
    aligned(stripe.length(stripe.data.len(), row)).min(stripe.row_bytes)
}

/// Reconstructs damaged blocks from the rest of their stripes.
#[derive(Debug, Default)]
pub struct RowReconstructor {
    rows: Option<Rows>,
}

impl RowReconstructor {
    /// Fills `block` with the content of an extent, if its stripe has enough intact chunks.
    pub fn mend(&mut self, extent: &BlockExtent, block: &mut [u8]) -> bool {
        let Some(InStripe { stripe, place }) = &extent.stripe else { return false };
        if self.rows.as_ref().is_none_or(|rows| !rows.fits(stripe)) {
            let Ok(rows) = Rows::of(stripe) else { return false };
            self.rows = Some(rows);
        }
        let Some(rows) = self.rows.as_mut() else { return false };
        let row_bytes = stripe.row_bytes as u64;
        let end = extent.offset + u64::from(extent.bytes);
        for row in extent.offset / row_bytes..end.div_ceil(row_bytes) {
            if rows.complete(stripe, row as usize, &[*place]).is_err() {
                return false;
            }
            let start = row * row_bytes;
            let (from, to) = (extent.offset.max(start), end.min(start + row_bytes));
            let part = &rows.rows[*place][(from - start) as usize..(to - start) as usize];
            let at = (from - extent.offset) as usize;
            block[at..at + part.len()].copy_from_slice(part);
        }
        crc32c::crc32c(&block[..extent.bytes as usize]) == extent.crc
    }
}
