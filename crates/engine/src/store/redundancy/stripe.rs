//! A stripe as it lies on the members: its rows read, checked, and completed where something is lost.

use std::path::PathBuf;
use std::sync::Arc;

use fullbore_core::index::Block as Record;

use super::code::Code;
use crate::ring::Block;
use crate::store::read::{Extent, ExtentReader, Fault, StartError, aligned, pool};

/// Chunks on different members, and parity of them on others.
#[derive(Clone, Debug)]
pub struct Stripe {
    /// Its number within the stream.
    pub number: u32,
    /// Bytes of each chunk that are coded together.
    pub row_bytes: usize,
    /// Data chunks.
    pub data: Vec<DataChunk>,
    /// Parity chunks that are there, by their place.
    pub parity: Vec<Option<ParityChunk>>,
}

/// A data chunk of a stripe.
#[derive(Clone, Debug)]
pub struct DataChunk {
    /// Its number, as the index has it.
    pub chunk: u32,
    /// Where it lies, or lay.
    pub path: Arc<PathBuf>,
    /// On which root, if on any.
    pub root: Option<usize>,
    /// The device it lies on.
    pub device: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Its blocks, in order.
    pub blocks: Vec<Record>,
}

/// A parity chunk of a stripe.
#[derive(Clone, Debug)]
pub struct ParityChunk {
    /// Where it lies.
    pub path: Arc<PathBuf>,
    /// On which root.
    pub root: usize,
    /// The device it lies on.
    pub device: u64,
    /// CRC32C of its rows.
    pub crcs: Vec<u32>,
}

/// A chunk's place in a stripe.
#[derive(Clone, Debug)]
pub struct InStripe {
    /// The stripe.
    pub stripe: Arc<Stripe>,
    /// Which of its data chunks.
    pub place: usize,
}

impl Stripe {
    /// Data and parity chunks.
    pub fn shards(&self) -> usize {
        self.data.len() + self.parity.len()
    }

    /// Bytes of the longest data chunk.
    fn longest(&self) -> u64 {
        self.data.iter().map(|it| it.bytes).max().unwrap_or(0)
    }

    /// Rows of it.
    pub fn rows(&self) -> usize {
        self.longest().div_ceil(self.row_bytes as u64) as usize
    }

    /// Bytes of a chunk, data or parity.
    pub fn bytes_of(&self, shard: usize) -> u64 {
        match self.data.get(shard) {
            Some(chunk) => chunk.bytes,
            None => super::records::parity_bytes(self.data.len(), self.longest()),
        }
    }

    /// Bytes of a chunk that lie in a row.
    pub fn length(&self, shard: usize, row: usize) -> usize {
        let left = self.bytes_of(shard).saturating_sub(row as u64 * self.row_bytes as u64);
        usize::try_from(left).unwrap_or(usize::MAX).min(self.row_bytes)
    }

    /// On which root a chunk lies, if on any.
    pub fn root_of(&self, shard: usize) -> Option<usize> {
        match self.data.get(shard) {
            Some(chunk) => chunk.root,
            None => Some(self.parity[shard - self.data.len()].as_ref()?.root),
        }
    }

    /// Reads a row of a chunk and checks it; behind the chunk's end lie zeroes.
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
                let parity = parity.ok_or_else(|| Fault::System("it is not there".into()))?;
                let crc = parity.crcs.get(row).copied();
                let extent = Extent {
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

fn extent(chunk: &DataChunk, block: &Record) -> Extent {
    Extent {
        path: chunk.path.clone(),
        device: chunk.device,
        offset: block.offset,
        bytes: block.bytes,
        crc: block.crc,
        stripe: None,
    }
}

/// Memory for one row of a stripe, and what reads and codes it.
#[derive(Debug)]
pub struct Rows {
    shape: (usize, usize, usize),
    /// Data rows, then parity rows.
    pub rows: Vec<Block>,
    readers: Vec<ExtentReader>,
    code: Code,
}

impl Rows {
    /// For stripes of this one's shape.
    pub fn of(stripe: &Stripe) -> Result<Self, StartError> {
        let shards = stripe.shards();
        let mut pool = pool(shards, stripe.row_bytes)?;
        let rows = std::iter::from_fn(|| pool.take()).take(shards).collect();
        Ok(Self {
            shape: shape(stripe),
            rows,
            readers: (0..shards).map(|_| ExtentReader::default()).collect(),
            code: Code::new(stripe.data.len(), stripe.parity.len()),
        })
    }

    /// Whether it serves stripes of this one's shape.
    pub fn fits(&self, stripe: &Stripe) -> bool {
        self.shape == shape(stripe)
    }

    /// Reads a row of all data chunks but those that are `known` to be bad, and makes what could not be read of parity.
    /// An error says what of which chunk could not be read, if that was too much.
    pub fn complete(
        &mut self,
        stripe: &Stripe,
        row: usize,
        known_bad: &[usize],
    ) -> Result<(), Vec<(usize, Fault)>> {
        let (data, shards) = (stripe.data.len(), stripe.shards());
        let mut present = vec![false; shards];
        let mut faults = Vec::new();
        // What lies behind a chunk's end is known, whether the chunk is there or not.
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

    /// Makes the parity of data rows that are complete.
    pub fn encode(&mut self, stripe: &Stripe, row: usize) {
        self.code.encode(&mut self.rows, aligned_row(stripe, row));
    }

    /// Reads a row of these chunks side by side: each lies on a member of its own.
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

/// Makes blocks that are not as they were written of what is left of their stripes.
#[derive(Debug, Default)]
pub struct Mender {
    rows: Option<Rows>,
}

impl Mender {
    /// Fills `block` with what an extent held, if it is in a stripe of which enough is left.
    pub fn mend(&mut self, extent: &Extent, block: &mut [u8]) -> bool {
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
