//! Follows a growing index: the records of each chunk, until it is complete and durable.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;

use fullbore_core::index::{Block, Codec, Entry};
use fullbore_core::layout::Geometry;
use fullbore_linux::regular_file;
use uuid::Uuid;

use crate::inventory::{check_geometry, read_on};

/// A chunk and its index records.
#[derive(Clone, Debug)]
pub struct IndexedChunk {
    /// The number, as the index has it.
    pub chunk: u32,
    /// The blocks.
    pub blocks: Vec<Block>,
    /// The index's header and the chunk's records, as stored.
    pub raw: Vec<u8>,
    /// Number of its last block in the index.
    last: usize,
}

/// An index that is read while it grows.
#[derive(Debug)]
pub struct IndexTail {
    path: PathBuf,
    file: Option<File>,
    codec: Codec,
    stream: u16,
    /// Bytes read so far.
    at: u64,
    /// The header, and the geometry in it.
    header: Option<(Vec<u8>, Geometry)>,
    blocks: usize,
    durable: usize,
    open: BTreeMap<u32, IndexedChunk>,
    newest: Option<u32>,
}

impl IndexTail {
    /// Returns the index of a stream of a scan, at its beginning.
    pub fn new(path: PathBuf, scan: Uuid, stream: u16) -> Self {
        Self {
            path,
            file: None,
            codec: Codec::of_scan(scan),
            stream,
            at: 0,
            header: None,
            blocks: 0,
            durable: 0,
            open: BTreeMap::new(),
            newest: None,
        }
    }

    /// The geometry of its stream.
    pub fn geometry(&self) -> Option<Geometry> {
        Some(self.header.as_ref()?.1)
    }

    /// Reads on up to the first invalid record. A record that is being written is read the next time.
    pub fn look(&mut self) -> io::Result<()> {
        let file = match self.file.take() {
            Some(file) => file,
            None => match regular_file::open(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                file => file?,
            },
        };
        self.read(&file)?;
        self.file = Some(file);
        Ok(())
    }

    fn read(&mut self, file: &File) -> io::Result<()> {
        let (codec, stream, mut at) = (self.codec, self.stream, self.at);
        let read = read_on(file, &mut at, codec, stream, |entry, record| self.take(entry, record));
        self.at = at;
        read
    }

    fn take(&mut self, entry: Entry, record: &[u8]) {
        match entry {
            Entry::Header { frame_bytes, block_bytes, chunk_blocks, .. } => {
                let geometry = Geometry { frame_bytes, block_bytes, chunk_blocks };
                if check_geometry(&geometry).is_ok() {
                    self.header = Some((record.to_vec(), geometry));
                }
            }
            Entry::Block(block) => {
                let Some((header, _)) = &self.header else { return };
                let fresh = || IndexedChunk {
                    chunk: block.chunk,
                    blocks: Vec::new(),
                    raw: header.clone(),
                    last: 0,
                };
                let chunk = self.open.entry(block.chunk).or_insert_with(fresh);
                chunk.blocks.push(block);
                chunk.raw.extend(record);
                chunk.last = self.blocks;
                self.blocks += 1;
                self.newest = Some(block.chunk);
            }
            Entry::Lengths { .. } | Entry::Gap(_) => {
                if let Some(chunk) = self.newest.and_then(|chunk| self.open.get_mut(&chunk)) {
                    chunk.raw.extend(record);
                }
            }
            Entry::Mark { blocks, .. } => {
                self.durable = usize::try_from(blocks).unwrap_or(usize::MAX);
            }
            Entry::Found { .. } | Entry::Stripe(_) | Entry::Rows { .. } => {}
        }
    }

    /// Returns the chunks that are complete and durable; with `all`, all chunks.
    pub fn closed(&mut self, all: bool) -> Vec<IndexedChunk> {
        let Some(geometry) = self.geometry() else { return Vec::new() };
        let is_closed = |chunk: &IndexedChunk| {
            let end = chunk.blocks.last().map_or(0, |it| it.offset + u64::from(it.bytes));
            end == geometry.chunk_bytes() && chunk.last < self.durable
        };
        // A mark that covers a block comes after all of its records.
        let ready = self.open.values().filter(|chunk| all || is_closed(chunk));
        let ready: Vec<u32> = ready.map(|chunk| chunk.chunk).collect();
        ready.iter().filter_map(|chunk| self.open.remove(chunk)).collect()
    }
}
