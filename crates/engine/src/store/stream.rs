//! A stream on one member: its directories, its index, its open chunks, and how far all of it is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fullbore_core::gap::Gap;
use fullbore_core::index::{Codec, Entry};
use fullbore_core::layout::chunk_file;
use fullbore_core::manifest::{INDEX_FILE, SIDE_DIRECTORY};
use uuid::Uuid;

use super::SPARE_FILE;
use super::chunk::{Chunk, Stage};
use super::inventory::PART_SUFFIX;
use super::journal::{Journal, Part};
use super::pages::Pages;
use crate::ring::{Block, Track};

/// Space that is taken for an index at a time: 8192 records, 32 GiB of blocks of 4 MiB.
pub const INDEX_STEP_BYTES: u64 = 1 << 20;

/// What tells one stream from another: scan and number.
pub type Key = (Uuid, u16);

/// How far a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Its directories are being made.
    Making,
    /// So many of them, and the index, are still being opened.
    Opening(usize),
    /// It takes blocks.
    Open,
    /// Its last rounds are under way.
    Closing,
    /// So many files are still being trimmed and put in place.
    Trimming(usize),
    /// So many last syncs are under way.
    Syncing(usize),
    /// It could not be opened.
    Dead,
}

/// Space for the next chunk.
#[derive(Debug)]
pub enum Spare<F> {
    /// None is needed yet.
    None,
    /// It is being taken.
    Making,
    /// It is there.
    Ready(F),
    /// It is being given the name of a chunk.
    Leaving(F),
}

/// A stream on this member.
#[derive(Debug)]
pub struct Stream<F> {
    /// What it is.
    pub track: Arc<Track>,
    /// How far it is.
    pub phase: Phase,
    /// Directories and index, to be synced.
    pub parts: BTreeMap<Part, F>,
    /// Its records.
    pub pages: Pages,
    /// Bytes of the index file for which space is taken.
    pub index_space: u64,
    /// Whether more is being taken.
    pub index_growing: bool,
    /// Its way to durability.
    pub journal: Journal,
    /// Chunks that are not closed.
    pub chunks: BTreeMap<u32, Chunk<F>>,
    /// Space for the next chunk.
    pub spare: Spare<F>,
    /// Whether a round is due.
    pub due: bool,
    /// When the round under way began.
    pub round_since: Duration,
    /// File-system chores under way.
    pub chores: usize,
    /// Whether a write of records or a sync has failed, after which it is not synced again.
    pub unsyncable: bool,
    /// Set once nothing more will come, with gaps that belong to no block.
    pub ending: Option<Vec<Gap>>,
    codec: Codec,
}

impl<F: Clone> Stream<F> {
    /// A stream of which nothing is on the member yet.
    pub fn new(track: Arc<Track>, member: Uuid, buffer: Block) -> Self {
        let codec = Codec::of_scan(track.scan);
        let geometry = track.geometry;
        let mut stream = Self {
            track,
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

    /// Appends an entry to the records that are not written yet.
    pub fn record(&mut self, entry: &Entry) {
        self.pages.push(self.codec.encode(self.track.number, entry));
    }

    /// Where the index is.
    pub fn index_path(&self) -> String {
        format!("{}/{SIDE_DIRECTORY}/{INDEX_FILE}", self.track.directory)
    }

    /// Where space for the next chunk is.
    pub fn spare_path(&self) -> String {
        format!("{}/{SIDE_DIRECTORY}/{SPARE_FILE}", self.track.directory)
    }

    /// Where a chunk is filled.
    pub fn filling_path(&self, chunk: u32) -> String {
        let directory = &self.track.directory;
        format!("{directory}/{SIDE_DIRECTORY}/{}{PART_SUFFIX}", chunk_file(directory, chunk))
    }

    /// Where a chunk is when it is complete.
    pub fn place_path(&self, chunk: u32) -> String {
        let directory = &self.track.directory;
        format!("{directory}/{}", chunk_file(directory, chunk))
    }

    /// The path of a part, for messages.
    pub fn path_of(&self, part: Part) -> String {
        match part {
            Part::Root => String::new(),
            Part::Directory => self.track.directory.clone(),
            Part::Side => format!("{}/{SIDE_DIRECTORY}", self.track.directory),
            Part::Index => self.index_path(),
            Part::Chunk(number) => match self.chunks.get(&number).map(|chunk| &chunk.stage) {
                Some(Stage::Placed(_)) => self.place_path(number),
                _ => self.filling_path(number),
            },
        }
    }

    /// The file of a part.
    pub fn file_of(&self, part: Part) -> Option<F> {
        match part {
            Part::Chunk(number) => self.chunks.get(&number)?.file(),
            other => self.parts.get(&other).cloned(),
        }
    }

    /// Whether the next chunk's space should be taken now: one chunk is half full, and none is there.
    pub fn wants_spare(&self, chunk: u32) -> bool {
        let half = self.track.geometry.chunk_bytes() / 2;
        let half_full = self.chunks.get(&chunk).is_some_and(|chunk| chunk.accepted() >= half);
        self.phase == Phase::Open
            && self.ending.is_none()
            && matches!(self.spare, Spare::None)
            && half_full
    }

    /// Whether nothing of it is waiting or under way but its last rounds.
    pub fn is_drained(&self) -> bool {
        let settled = |chunk: &Chunk<F>| {
            let resting = matches!(chunk.stage, Stage::Open(_) | Stage::Placed(_) | Stage::Dead);
            chunk.is_idle() && resting
        };
        self.chores == 0 && self.chunks.values().all(settled)
    }

    /// Forgets a chunk that is complete, in place and durable; its file is closed with it.
    pub fn retire(&mut self, number: u32) {
        let retired = self.chunks.get(&number).is_some_and(|chunk| {
            matches!(chunk.stage, Stage::Placed(_)) && chunk.is_idle() && chunk.unpublished == 0
        });
        if retired {
            self.chunks.remove(&number);
        }
    }
}
