//! The blocks of a scan that arrives: known, being written, written, durable.
//!
//! ```text
//! unknown ──claim──► flying ──landed──► written ──published──► durable
//!    ▲                 │
//!    └─────failed──────┘
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fullbore_core::block_set::BlockSet;
use fullbore_core::index::{Block, Codec, Entry, RECORD_BYTES};
use fullbore_core::layout::Geometry;

use super::chunks::ChunkFile;
use super::error::{BlockError, LandingError};
use super::rounds::IndexFile;
use super::validate::{Arrival, check_block};
use crate::journal::{Action, Event, Journal, Landed, SyncTarget};

/// The most chunks that are begun and not full. An honest sender fills one after the other.
const MOST_OPEN_CHUNKS: usize = 1 << 16;

/// All streams.
#[derive(Debug, Default)]
pub struct State {
    /// The streams, by number.
    pub streams: Vec<StreamState>,
    /// True after a failed sync and after the seal: nothing is accepted any more.
    pub closed: bool,
    /// Records of gaps that were entered before the seal.
    pub noted: BTreeSet<[u8; RECORD_BYTES]>,
}

/// A stream.
#[derive(Debug)]
pub struct StreamState {
    /// Its directory on every member.
    pub directory: Arc<str>,
    /// The division of its bytes.
    pub geometry: Option<Geometry>,
    /// Durable blocks.
    pub durable: BlockSet,
    /// Written blocks, durable or not.
    written: BlockSet,
    /// Blocks that are being written.
    flying: BTreeSet<u64>,
    /// All chunks.
    pub chunks: BTreeMap<u32, Chunk>,
    /// The number of chunks that are not full.
    pub open_chunks: usize,
    /// Its part on each member.
    pub parts: Vec<Part>,
}

/// The part of a stream on a member.
#[derive(Debug)]
pub struct Part {
    /// The sync rounds.
    pub journal: Journal,
    /// Its durable blocks.
    pub blocks: BlockSet,
    /// Its index, made with its first record.
    pub index: IndexFile,
}

/// A chunk.
#[derive(Debug)]
pub struct Chunk {
    /// The file.
    pub file: Arc<ChunkFile>,
    /// Offset and bytes of its blocks, until it is full.
    places: BTreeMap<u64, u32>,
    /// Blocks being written, or written and not durable.
    pub unsettled: usize,
    /// Durable bytes.
    durable: u64,
    /// End of the last durable block.
    pub end: u64,
    /// True if it is full and durable.
    pub full: bool,
}

impl Chunk {
    /// A chunk without blocks.
    pub fn new(file: ChunkFile) -> Self {
        let file = Arc::new(file);
        Self { file, places: BTreeMap::new(), unsettled: 0, durable: 0, end: 0, full: false }
    }

    fn is_free(&self, offset: u64, bytes: u32) -> bool {
        let end = offset + u64::from(bytes);
        let before = self.places.range(..end).next_back();
        !self.full && before.is_none_or(|(&start, &length)| start + u64::from(length) <= offset)
    }

    fn settle(&mut self, block: &Block, geometry: &Geometry) {
        self.durable += u64::from(block.bytes);
        self.end = self.end.max(block.offset + u64::from(block.bytes));
        self.full = self.durable == geometry.chunk_bytes();
        if self.full {
            self.places.clear();
        }
    }
}

impl StreamState {
    /// A stream without blocks.
    pub fn new(
        directory: &str,
        geometry: Option<Geometry>,
        indexes: impl IntoIterator<Item = IndexFile>,
    ) -> Self {
        let part = |index| Part { journal: Journal::default(), blocks: BlockSet::default(), index };
        Self {
            directory: directory.into(),
            geometry,
            durable: BlockSet::default(),
            written: BlockSet::default(),
            flying: BTreeSet::new(),
            chunks: BTreeMap::new(),
            open_chunks: 0,
            parts: indexes.into_iter().map(part).collect(),
        }
    }

    /// Returns true if the data of this block is not needed.
    fn knows(&self, sequence: u64) -> bool {
        self.written.contains(sequence) || self.flying.contains(&sequence)
    }

    fn check(&self, block: &Block) -> Result<(), BlockError> {
        let invalid = |why: String| BlockError::Invalid(why);
        let Some(geometry) = self.geometry else {
            return Err(invalid(format!("{}: blocks before the first manifest", self.directory)));
        };
        check_block(block, &geometry).map_err(invalid)?;
        let Block { sequence, chunk, offset, bytes, .. } = *block;
        match self.chunks.get(&chunk) {
            Some(it) if !it.is_free(offset, bytes) => Err(invalid(format!(
                "block {sequence}: another block is at byte {offset} of chunk {chunk}"
            ))),
            None if self.open_chunks >= MOST_OPEN_CHUNKS => {
                Err(invalid(format!("{MOST_OPEN_CHUNKS} chunks are begun and none is full")))
            }
            _ => Ok(()),
        }
    }

    /// Takes up a block of an interrupted copy: one that is durable, or one for the next round. Returns false if another
    /// block is there.
    pub fn restore(
        &mut self,
        member: usize,
        block: &Block,
        durable: bool,
        file: impl FnOnce() -> ChunkFile,
    ) -> bool {
        if self.written.contains(block.sequence) || self.check(block).is_err() {
            return false;
        }
        let Some(geometry) = self.geometry else { return false };
        let chunk = self.chunks.entry(block.chunk).or_insert_with(|| {
            self.open_chunks += 1;
            Chunk::new(file())
        });
        chunk.places.insert(block.offset, block.bytes);
        let sequences = block.sequence..block.sequence + 1;
        self.written.insert(sequences.clone());
        if !durable {
            chunk.unsettled += 1;
            // Its record is there already.
            self.parts[member].journal.step(Event::Landed(*block, Vec::new()));
            return true;
        }
        chunk.settle(block, &geometry);
        self.open_chunks -= usize::from(chunk.full);
        self.durable.insert(sequences.clone());
        self.parts[member].blocks.insert(sequences);
        true
    }
}

impl State {
    fn stream(&self, number: u16) -> Result<&StreamState, BlockError> {
        let stream = self.streams.get(usize::from(number));
        stream.ok_or_else(|| BlockError::Invalid(format!("there is no stream {number}")))
    }

    /// Checks a block. Returns true if its data is not needed.
    pub fn check(&self, arrival: &Arrival) -> Result<bool, BlockError> {
        if self.closed {
            return Err(LandingError::Closed.into());
        }
        let stream = self.stream(arrival.stream)?;
        if stream.knows(arrival.block.sequence) {
            return Ok(true);
        }
        stream.check(&arrival.block).map(|()| false)
    }

    /// Claims a block for writing, and returns the file of its chunk; `None` if its data is not needed.
    pub fn claim(&mut self, arrival: &Arrival) -> Result<Option<Arc<ChunkFile>>, BlockError> {
        if self.check(arrival)? {
            return Ok(None);
        }
        let block = &arrival.block;
        let stream = &mut self.streams[usize::from(arrival.stream)];
        let Some(geometry) = stream.geometry else { return Ok(None) };
        let chunk = stream.chunks.entry(block.chunk).or_insert_with(|| {
            stream.open_chunks += 1;
            Chunk::new(ChunkFile::new(stream.directory.clone(), block.chunk, geometry))
        });
        chunk.places.insert(block.offset, block.bytes);
        chunk.unsettled += 1;
        stream.flying.insert(block.sequence);
        Ok(Some(chunk.file.clone()))
    }

    /// Gives a claimed block up: it was not written.
    pub fn give_up(&mut self, arrival: &Arrival) {
        let stream = &mut self.streams[usize::from(arrival.stream)];
        stream.flying.remove(&arrival.block.sequence);
        if let Some(chunk) = stream.chunks.get_mut(&arrival.block.chunk) {
            chunk.places.remove(&arrival.block.offset);
            chunk.unsettled -= 1;
        }
    }

    /// Notes that a claimed block is written, to a file on this member, and writes its records.
    pub fn landed(
        &mut self,
        codec: Codec,
        arrival: Arrival,
        member: usize,
    ) -> Result<(), LandingError> {
        let number = usize::from(arrival.stream);
        let noted = match self.closed {
            true => Err(LandingError::Closed),
            false => self.note(codec, number, member, &arrival.entries),
        };
        if noted.is_err() {
            self.give_up(&arrival);
            return noted;
        }
        let stream = &mut self.streams[number];
        let sequence = arrival.block.sequence;
        stream.flying.remove(&sequence);
        stream.written.insert(sequence..sequence + 1);
        // The index has the records in the order of the journal, so that a mark covers the first ones. Landing begins no
        // round, so there is no action.
        let journal = &mut stream.parts[member].journal;
        let actions = journal.step(Event::Landed(arrival.block, Vec::new()));
        debug_assert!(actions.is_empty(), "{actions:?} for a block that landed");
        Ok(())
    }

    /// Appends entries to an index.
    pub fn note(
        &mut self,
        codec: Codec,
        stream: usize,
        member: usize,
        entries: &[Entry],
    ) -> Result<(), LandingError> {
        let Some(geometry) = self.streams[stream].geometry else { return Ok(()) };
        let part = &mut self.streams[stream].parts[member];
        if part.index.is_new() && !entries.is_empty() {
            part.journal.step(Event::Touched(SyncTarget::Side));
        }
        part.index.append(codec, stream as u16, &geometry, entries)
    }

    /// Notes that names were made or changed in a directory of a stream.
    pub fn touched(&mut self, stream: usize, member: usize, target: SyncTarget) -> Vec<Action> {
        self.streams[stream].parts[member].journal.step(Event::Touched(target))
    }

    /// Notes that blocks are durable. Returns the chunks that became full.
    pub fn published(
        &mut self,
        stream: usize,
        member: usize,
        blocks: &[Landed],
    ) -> Vec<Arc<ChunkFile>> {
        let stream = &mut self.streams[stream];
        let Some(geometry) = stream.geometry else { return Vec::new() };
        let mut full = Vec::new();
        for block in blocks {
            let sequences = block.sequence..block.sequence + 1;
            stream.durable.insert(sequences.clone());
            stream.parts[member].blocks.insert(sequences);
            let Some(chunk) = stream.chunks.get_mut(&block.chunk) else { continue };
            chunk.unsettled -= 1;
            chunk.settle(block, &geometry);
            if chunk.full {
                stream.open_chunks -= 1;
                full.push(chunk.file.clone());
            }
        }
        full
    }
}
