//! A stream on one member: its directories, its index, its open chunks, and their progress.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fullbore_core::gap::Gap;
use fullbore_core::index::{Codec, Entry};
use fullbore_core::layout::chunk_file;
use fullbore_core::manifest::{INDEX_FILE, SIDE_DIRECTORY};
use fullbore_linux::ring::{Block, StreamRef};
use uuid::Uuid;

use super::SPARE_FILE;
use super::chunk::{Chunk, Stage};
use super::inventory::PART_SUFFIX;
use super::journal::{Journal, SyncTarget};
use super::pages::Pages;

/// The step in which index space is reserved: 8192 records, 32 GiB of blocks of 4 MiB.
pub const INDEX_STEP_BYTES: u64 = 1 << 20;

/// The key of a stream: scan and number.
pub type Key = (Uuid, u16);

/// The phase of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The directories are being made.
    Making,
    /// This many of them, and the index, are still being opened.
    Opening(usize),
    /// The stream takes blocks.
    Open,
    /// The last rounds are in progress.
    Closing,
    /// This many files are still being truncated and renamed into place.
    Trimming(usize),
    /// This many last syncs are in progress.
    Syncing(usize),
    /// The stream could not be opened.
    Dead,
}

/// Reserved space for the next chunk.
#[derive(Debug)]
pub enum Spare<F> {
    /// None is needed yet.
    None,
    /// The space is being reserved.
    Making,
    /// The file is ready, with this many bytes of space.
    Ready(F, u64),
    /// The file is being renamed to a chunk's name.
    Leaving(F, u64),
}

/// A stream on this member.
#[derive(Debug)]
pub struct MemberStream<F> {
    /// The description of the stream.
    pub stream_ref: Arc<StreamRef>,
    /// The phase.
    pub phase: Phase,
    /// Directories and index, to be synced.
    pub parts: BTreeMap<SyncTarget, F>,
    /// The records.
    pub pages: Pages,
    /// Reserved bytes of the index file.
    pub index_space: u64,
    /// True if more is being reserved.
    pub index_growing: bool,
    /// The journal of sync rounds.
    pub journal: Journal,
    /// Chunks that are not closed.
    pub chunks: BTreeMap<u32, Chunk<F>>,
    /// Reserved space for the next chunk.
    pub spare: Spare<F>,
    /// True if a round is due.
    pub due: bool,
    /// The start of the current round.
    pub round_since: Duration,
    /// The number of file-system operations in progress.
    pub chores: usize,
    /// True if a write of records or a sync has failed; the stream is not synced again after that.
    pub unsyncable: bool,
    /// Set once no more blocks will arrive, with gaps that belong to no block.
    pub ending: Option<Vec<Gap>>,
    codec: Codec,
}

impl<F: Clone> MemberStream<F> {
    /// Returns a stream that has nothing on the member yet.
    pub fn new(stream_ref: Arc<StreamRef>, member: Uuid, buffer: Block) -> Self {
        let codec = Codec::of_scan(stream_ref.scan);
        let geometry = stream_ref.geometry;
        let mut stream = Self {
            stream_ref,
            phase: Phase::Making,
            parts: BTreeMap::new(),
            pages: Pages::new(buffer),
            index_space: INDEX_STEP_BYTES,
            index_growing: false,
            journal: Journal::default(),
            chunks: BTreeMap::new(),
            spare: Spare::None,
            due: false,
            round_since: Duration::ZERO,
            chores: 0,
            unsyncable: false,
            ending: None,
            codec,
        };
        stream.record(&Entry::Header {
            member,
            frame_bytes: geometry.frame_bytes,
            block_bytes: geometry.block_bytes,
            chunk_blocks: geometry.chunk_blocks,
        });
        stream
    }

    /// Appends an entry to the unwritten records.
    pub fn record(&mut self, entry: &Entry) {
        self.pages.push(self.codec.encode(self.stream_ref.number, entry));
    }

    /// The path of the index.
    pub fn index_path(&self) -> String {
        format!("{}/{SIDE_DIRECTORY}/{INDEX_FILE}", self.stream_ref.directory)
    }

    /// The path of the spare file for the next chunk.
    pub fn spare_path(&self) -> String {
        format!("{}/{SIDE_DIRECTORY}/{SPARE_FILE}", self.stream_ref.directory)
    }

    /// The working path of a chunk.
    pub fn filling_path(&self, chunk: u32) -> String {
        let directory = &self.stream_ref.directory;
        format!("{directory}/{SIDE_DIRECTORY}/{}{PART_SUFFIX}", chunk_file(directory, chunk))
    }

    /// The final path of a chunk.
    pub fn place_path(&self, chunk: u32) -> String {
        let directory = &self.stream_ref.directory;
        format!("{directory}/{}", chunk_file(directory, chunk))
    }

    /// The path of a part, for messages.
    pub fn path_of(&self, part: SyncTarget) -> String {
        match part {
            SyncTarget::Root => String::new(),
            SyncTarget::Directory => self.stream_ref.directory.clone(),
            SyncTarget::Side => format!("{}/{SIDE_DIRECTORY}", self.stream_ref.directory),
            SyncTarget::Index => self.index_path(),
            SyncTarget::Chunk(number) => match self.chunks.get(&number).map(|chunk| &chunk.stage) {
                Some(Stage::Placed(_)) => self.place_path(number),
                _ => self.filling_path(number),
            },
        }
    }

    /// The file of a part.
    pub fn file_of(&self, part: SyncTarget) -> Option<F> {
        match part {
            SyncTarget::Chunk(number) => self.chunks.get(&number)?.file(),
            other => self.parts.get(&other).cloned(),
        }
    }

    /// Returns true if the next chunk's space should be reserved now: a chunk is half full, and there is no spare
    /// file.
    pub fn wants_spare(&self, chunk: u32) -> bool {
        let half = self.stream_ref.geometry.chunk_bytes() / 2;
        let half_full = self.chunks.get(&chunk).is_some_and(|chunk| chunk.accepted() >= half);
        self.phase == Phase::Open
            && self.ending.is_none()
            && matches!(self.spare, Spare::None)
            && half_full
    }

    /// The number of files that will reserve space: open chunks, and the spare file for the next one.
    pub fn open_files(&self) -> u64 {
        let chunks = self.chunks.values().filter(|chunk| chunk.is_open()).count() as u64;
        chunks + u64::from(matches!(self.spare, Spare::Making | Spare::Ready(..)))
    }

    /// Returns true if nothing is waiting or in progress except the last rounds.
    pub fn is_drained(&self) -> bool {
        let settled = |chunk: &Chunk<F>| {
            let resting = matches!(chunk.stage, Stage::Open(_) | Stage::Placed(_) | Stage::Dead);
            chunk.is_idle() && resting
        };
        self.chores == 0 && self.chunks.values().all(settled)
    }

    /// Drops a chunk that is complete, in place and durable; this closes its file.
    pub fn retire(&mut self, number: u32) {
        let retired = self.chunks.get(&number).is_some_and(|chunk| {
            matches!(chunk.stage, Stage::Placed(_)) && chunk.is_idle() && chunk.unpublished == 0
        });
        if retired {
            self.chunks.remove(&number);
        }
    }
}
