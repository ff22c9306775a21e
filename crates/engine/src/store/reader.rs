//! A stored scan as its streams: blocks in order over all members, what is missing, and their bytes.
//!
//! [`Scan::open`] holds the manifests and indexes of all members against one another and against the
//! files that are there. What does not fit becomes a [`Finding`]; the rest can be read. No byte whose
//! checksum fails is returned unless it was asked for.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fullbore_core::account::Account;
use fullbore_core::gap::Gap;
use fullbore_core::index::Block;
use fullbore_core::layout::{ALIGNMENT, Geometry};
use fullbore_core::manifest::{
    ACCOUNT_FILE, Fill, Format, INDEX_FILE, MANIFEST_FILE, Manifest, State,
};
use fullbore_core::name::ScanName;
use fullbore_core::time::{Tai, frame_ns};

use super::finding::{Finding, What};
use super::gaps::Gaps;
use super::inventory::{self, BlockRecord, ChunkFile, Copy, Holding, Index, Inventory};
use super::read::{Ahead, Extent, Fault, Loan, Settings, StartError};

/// A scan that was opened.
#[derive(Debug)]
pub struct Scan {
    /// What the scan says of itself.
    pub manifest: Manifest,
    /// What files there are.
    pub inventory: Inventory,
    /// Its streams, in the manifest's order.
    pub streams: Vec<Stream>,
    /// What is not as it should be, as far as names, sizes and indexes tell.
    pub findings: Vec<Finding>,
}

/// One stream of a scan.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Its place in the manifest.
    pub number: usize,
    /// Its name.
    pub name: String,
    /// What its frames are.
    pub format: Format,
    /// What stands in the place of frames that are not there.
    pub fill: Fill,
    /// How its bytes are cut; `None` if no frame ever came.
    pub geometry: Option<Geometry>,
    /// All blocks that any index knows, in order, each once.
    pub blocks: Vec<Placed>,
    /// The gaps of all indexes; of the account as well where an index is not whole.
    pub gaps: Gaps,
    /// The stored account, if any copy can be read.
    pub account: Option<Account>,
    /// Blocks that were recorded and that no index knows, by the position they would stand before.
    pub absent: Vec<Absent>,
    /// Runs of blocks that `recover` found without a record: first sequence, count.
    pub found: Vec<(u64, u64)>,
    /// Whether every index is there, whole, and every member given.
    pub complete: bool,
}

/// A block, and where it lies.
#[derive(Clone, Debug)]
pub struct Placed {
    /// Its index record.
    pub block: Block,
    /// Which of the inventory's holdings.
    pub holding: usize,
    /// The chunk file.
    pub path: Arc<PathBuf>,
    /// The device it lies on.
    pub device: u64,
    /// Whether the file holds all of it.
    pub presence: Presence,
    /// Where its index tells the lengths of its frames.
    pub lengths: Option<(u64, u32)>,
}

/// Whether a block's bytes are there, judged by name and size of its chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// They are.
    Whole,
    /// The chunk ends before them.
    Truncated,
    /// There is no such chunk.
    Missing,
}

/// Blocks that were recorded and that no index knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absent {
    /// They would stand before the block at this position.
    pub position: usize,
    /// Sequence of the first.
    pub first: u64,
    /// How many.
    pub count: u64,
    /// Their frames, where those can be told.
    pub frames: Option<Range<i64>>,
}

impl Scan {
    /// Opens a scan that lies under `roots`.
    pub fn open(roots: &[PathBuf], scan: &ScanName) -> Result<Self, inventory::Error> {
        Ok(Self::of_inventory(Inventory::take(roots, scan)?))
    }

    /// A scan from what is known of its files.
    pub fn of_inventory(inventory: Inventory) -> Self {
        let manifest = inventory.manifest.clone();
        let mut findings = findings_of_members(&inventory);
        let members_given = findings.is_empty();
        findings.extend(findings_of_manifests(&inventory));
        let mut streams = Vec::new();
        for number in 0..manifest.streams.len() {
            let (stream, found) = Merge::new(&inventory, number, members_given).finish();
            streams.push(stream);
            findings.extend(found);
        }
        Self { manifest, inventory, streams, findings }
    }

    /// The stream of this name.
    pub fn stream(&self, name: &str) -> Option<&Stream> {
        self.streams.iter().find(|stream| stream.name == name)
    }

    /// The index file that knows a block.
    pub fn index_path(&self, placed: &Placed) -> PathBuf {
        self.inventory.holdings[placed.holding].side(INDEX_FILE)
    }

    /// The lengths of the frames that begin in a block of a stream whose lengths vary.
    pub fn lengths(&self, placed: &Placed) -> io::Result<Vec<u16>> {
        match placed.lengths {
            Some(at) => inventory::read_lengths(&self.index_path(placed), self.manifest.uuid, at),
            None => Ok(Vec::new()),
        }
    }

    /// Bytes that lie on the members.
    pub fn bytes(&self) -> u64 {
        let chunks = self.inventory.holdings.iter().flat_map(|holding| &holding.chunks);
        chunks.map(|(_, file)| file.bytes).sum()
    }
}

fn findings_of_members(inventory: &Inventory) -> Vec<Finding> {
    let absent = inventory.absent_members().into_iter().map(|member| Finding {
        stream: None,
        member: Some(member.path.clone()),
        file: None,
        frames: None,
        what: What::MemberAbsent { uuid: member.uuid, was_at: member.path.clone() },
    });
    let unreadable = inventory.failed_roots.iter().map(|error| Finding {
        stream: None,
        member: Some(error.path.clone()),
        file: None,
        frames: None,
        what: What::Unreadable { why: error.source.to_string() },
    });
    let holdings = inventory.holdings.iter();
    let unlisted =
        holdings.flat_map(|holding| holding.unlisted.iter().map(move |it| (holding, it)));
    let unlisted = unlisted.map(|(holding, (path, why))| Finding {
        file: Some(path.clone()),
        ..about(inventory, holding, None, What::Unreadable { why: why.clone() })
    });
    absent.chain(unreadable).chain(unlisted).collect()
}

fn findings_of_manifests(inventory: &Inventory) -> Vec<Finding> {
    let mut findings = Vec::new();
    for holding in &inventory.holdings {
        let what = match &holding.manifest {
            Copy::Read(copy) if *copy == inventory.manifest => None,
            Copy::Read(_) => {
                Some(What::ManifestDiffers { believed: inventory.manifest_path.clone() })
            }
            Copy::Missing => Some(What::ManifestMissing),
            Copy::Unreadable(why) => Some(What::ManifestUnreadable { why: why.clone() }),
        };
        findings.extend(what.map(|what| about(inventory, holding, Some(MANIFEST_FILE), what)));
    }
    findings
}

/// A finding about a file beside the chunks of a holding, or about the directory.
fn about(inventory: &Inventory, holding: &Holding, side: Option<&str>, what: What) -> Finding {
    let stream = inventory.manifest.streams.iter().find(|s| s.directory == holding.name);
    Finding {
        stream: stream.map(|stream| stream.name.to_string()),
        member: Some(inventory.roots[holding.root].path.clone()),
        file: Some(side.map_or_else(|| holding.path.clone(), |file| holding.side(file))),
        frames: None,
        what,
    }
}

/// The making of one stream out of what its members hold.
struct Merge<'a> {
    inventory: &'a Inventory,
    number: usize,
    findings: Vec<Finding>,
    complete: bool,
}

impl<'a> Merge<'a> {
    fn new(inventory: &'a Inventory, number: usize, members_given: bool) -> Self {
        Self { inventory, number, findings: Vec::new(), complete: members_given }
    }

    fn finish(mut self) -> (Stream, Vec<Finding>) {
        let told = &self.inventory.manifest.streams[self.number];
        let indexes = self.indexes();
        let geometry =
            told.geometry.or_else(|| indexes.iter().find_map(|(_, index)| index.geometry));
        let account = self.account();
        let records = indexes.iter().flat_map(|(_, index)| index.gaps.iter().copied());
        let listed = account.iter().flat_map(|account| account.gaps.iter().copied());
        // What stands in an index is what was done; the account helps out where that is not whole. Where
        // frames lie as they came, its gaps are counted by time, and blocks by arrival.
        let gaps: Gaps = if self.complete || told.fill == Fill::Omit {
            Gaps::paint(records)
        } else {
            Gaps::paint(records.chain(listed).collect::<Vec<Gap>>())
        };
        let found = indexes.iter().flat_map(|(_, index)| index.found.clone()).collect();
        let blocks = self.place(&indexes, geometry);
        let mut stream = Stream {
            number: self.number,
            name: told.name.to_string(),
            format: told.format.clone(),
            fill: told.fill,
            geometry,
            blocks,
            gaps,
            account,
            absent: Vec::new(),
            found,
            complete: self.complete,
        };
        self.find_lost_chunks(&stream);
        stream.absent = self.find_absent(&stream, told.blocks);
        (stream, self.findings)
    }

    /// The index of every member that has one.
    fn indexes(&mut self) -> Vec<(usize, Index)> {
        let mut indexes = Vec::new();
        for (at, holding) in self.holdings() {
            let path = holding.side(INDEX_FILE);
            let scan = self.inventory.manifest.uuid;
            match Index::read(&path, scan, self.number as u16) {
                Ok(index) => {
                    self.judge_index(holding, &index);
                    indexes.push((at, index));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    // A member that no block was dealt to has no index, and needs none.
                    if !holding.chunks.is_empty() {
                        self.index_finding(holding, What::IndexMissing);
                    }
                }
                Err(error) => {
                    self.index_finding(holding, What::IndexUnreadable { why: error.to_string() });
                }
            }
        }
        indexes
    }

    fn holdings(&self) -> Vec<(usize, &'a Holding)> {
        let directory = &self.inventory.manifest.streams[self.number].directory;
        let all = self.inventory.holdings.iter().enumerate();
        all.filter(|(_, holding)| holding.name == *directory).collect()
    }

    fn judge_index(&mut self, holding: &Holding, index: &Index) {
        let root = &self.inventory.roots[holding.root];
        if let Some(number) = index.foreign_stream {
            let of = self.inventory.manifest.streams.get(usize::from(number));
            let of =
                of.map_or_else(|| format!("stream {number}"), |s| format!("stream {}", s.name));
            self.index_finding(holding, What::IndexForeign { of });
        } else if index.records == 0 {
            if !holding.chunks.is_empty() || index.torn {
                self.index_finding(holding, What::IndexMissing);
            }
        } else if index.torn {
            let bytes = index.file_bytes.saturating_sub(index.trusted_bytes());
            self.index_finding(holding, What::IndexCut { records: index.records, bytes });
        }
        if let (Some(of), Some(here)) = (index.member, root.uuid)
            && of != here
        {
            self.index_finding(holding, What::IndexForeign { of: format!("member {of}") });
        }
    }

    fn index_finding(&mut self, holding: &Holding, what: What) {
        self.complete = false;
        self.findings.push(about(self.inventory, holding, Some(INDEX_FILE), what));
    }

    /// The account that the copies agree on.
    fn account(&mut self) -> Option<Account> {
        let mut believed: Option<(Account, PathBuf)> = None;
        for (_, holding) in self.holdings() {
            let what = match (holding.account(), &believed) {
                (Copy::Read(copy), Some((account, path))) => {
                    (copy != *account).then(|| What::AccountDiffers { believed: path.clone() })
                }
                (Copy::Read(copy), None) => {
                    believed = Some((copy, holding.side(ACCOUNT_FILE)));
                    None
                }
                // The account is written when the scan is sealed.
                (Copy::Missing, _) if self.inventory.manifest.state == State::Recording => None,
                (Copy::Missing, _) => Some(What::AccountMissing),
                (Copy::Unreadable(why), _) => Some(What::AccountUnreadable { why }),
            };
            let finding = what.map(|what| about(self.inventory, holding, Some(ACCOUNT_FILE), what));
            self.findings.extend(finding);
        }
        believed.map(|(account, _)| account)
    }

    /// Every block once, in order, with the file that it lies in.
    fn place(&mut self, indexes: &[(usize, Index)], geometry: Option<Geometry>) -> Vec<Placed> {
        let mut blocks = Vec::new();
        for (at, index) in indexes {
            let holding = &self.inventory.holdings[*at];
            let mut paths: BTreeMap<u32, (Arc<PathBuf>, Option<u64>)> = BTreeMap::new();
            for record in &index.blocks {
                if let Some(why) = geometry.and_then(|it| absurd(&record.block, &it)) {
                    let what = What::BlockAbsurd { sequence: record.block.sequence, why };
                    self.index_finding(holding, what);
                    continue;
                }
                let (path, bytes) = paths
                    .entry(record.block.chunk)
                    .or_insert_with(|| located(holding, record.block.chunk));
                let device = self.inventory.roots[holding.root].device;
                blocks.push(placed(record, *at, path.clone(), device, *bytes));
            }
        }
        blocks.sort_by_key(|placed| (placed.block.sequence, placed.presence as u8));
        self.drop_twins(blocks)
    }

    /// Of two records of one block the one stays whose bytes are there.
    fn drop_twins(&mut self, blocks: Vec<Placed>) -> Vec<Placed> {
        let mut kept: Vec<Placed> = Vec::with_capacity(blocks.len());
        for placed in blocks {
            match kept.last() {
                Some(last) if last.block.sequence == placed.block.sequence => {
                    if last.block.crc != placed.block.crc {
                        let holding = &self.inventory.holdings[placed.holding];
                        let what = What::BlockTwice { sequence: placed.block.sequence };
                        let finding = about(self.inventory, holding, Some(INDEX_FILE), what);
                        self.findings.push(finding);
                    }
                }
                _ => kept.push(placed),
            }
        }
        kept
    }

    /// Chunk files that are not there, or too short for what the index says.
    fn find_lost_chunks(&mut self, stream: &Stream) {
        let mut by_file: BTreeMap<(usize, u32), Vec<&Placed>> = BTreeMap::new();
        for placed in &stream.blocks {
            by_file.entry((placed.holding, placed.block.chunk)).or_default().push(placed);
        }
        for ((holding, chunk), blocks) in by_file {
            let lost: Vec<&&Placed> =
                blocks.iter().filter(|placed| placed.presence != Presence::Whole).collect();
            let (Some(first), Some(last)) = (lost.first(), lost.last()) else { continue };
            let frames = first.block.first..stream.end_of(&last.block);
            let should = blocks.iter().map(|it| it.block.offset + u64::from(it.block.bytes)).max();
            let should = should.unwrap_or(0);
            let what = match self.inventory.holdings[holding].chunk(chunk) {
                Some(file) => {
                    What::ChunkTruncated { is: file.bytes, should, blocks: lost.len() as u64 }
                }
                None => What::ChunkMissing { blocks: lost.len() as u64, bytes: should },
            };
            let holding = &self.inventory.holdings[holding];
            self.findings.push(Finding {
                file: Some(first.path.to_path_buf()),
                frames: Some(frames.into()),
                ..about(self.inventory, holding, None, what)
            });
        }
    }

    /// Holes in the sequence whose frames no gap tells of.
    fn find_absent(&mut self, stream: &Stream, blocks_told: u64) -> Vec<Absent> {
        let mut absent = holes(stream);
        let known = stream.blocks.len() as u64 + absent.iter().map(|it| it.count).sum::<u64>();
        let unseen = blocks_told.saturating_sub(known);
        if unseen > 0 {
            let last = stream.blocks.last().map(|placed| &placed.block);
            let edge = stream.placed_edges().map(|(_, last)| last);
            let end = last.map(|block| stream.end_of(block));
            absent.push(Absent {
                position: stream.blocks.len(),
                first: last.map_or(0, |block| block.sequence + 1),
                count: unseen,
                frames: end.zip(edge).map(|(end, edge)| end..edge.saturating_add(1).max(end)),
            });
        }
        self.findings.extend(absent.iter().map(|it| it.finding(stream)));
        absent
    }
}

impl Absent {
    fn finding(&self, stream: &Stream) -> Finding {
        Finding {
            stream: Some(stream.name.clone()),
            member: None,
            file: None,
            frames: self.frames.clone().map(Into::into),
            what: What::BlocksAbsent { first: self.first, count: self.count },
        }
    }
}

/// Where a chunk lies, or would.
fn located(holding: &Holding, chunk: u32) -> (Arc<PathBuf>, Option<u64>) {
    match holding.chunk(chunk) {
        Some(ChunkFile { path, bytes, .. }) => (Arc::new(path.clone()), Some(*bytes)),
        None => (Arc::new(holding.chunk_path(chunk)), None),
    }
}

fn placed(
    record: &BlockRecord,
    holding: usize,
    path: Arc<PathBuf>,
    device: u64,
    file_bytes: Option<u64>,
) -> Placed {
    let end = record.block.offset + u64::from(record.block.bytes);
    let presence = match file_bytes {
        Some(bytes) if end <= bytes => Presence::Whole,
        Some(_) => Presence::Truncated,
        None => Presence::Missing,
    };
    Placed { block: record.block, holding, path, device, presence, lengths: record.lengths }
}

/// Why a record that is whole cannot be true.
fn absurd(block: &Block, geometry: &Geometry) -> Option<String> {
    let end = block.offset.checked_add(block.bytes.into());
    let frames_bytes = u64::from(block.frames) * u64::from(geometry.frame_bytes);
    if block.bytes == 0 || block.bytes > geometry.block_bytes {
        Some(format!("{} bytes in blocks of {}", block.bytes, geometry.block_bytes))
    } else if !block.offset.is_multiple_of(ALIGNMENT)
        || end.is_none_or(|end| end > geometry.chunk_bytes())
    {
        Some(format!("offset {} in chunks of {}", block.offset, geometry.chunk_bytes()))
    } else if geometry.frame_bytes > 0 && frames_bytes != u64::from(block.bytes) {
        Some(format!("{} frames in {} bytes", block.frames, block.bytes))
    } else if block.present > block.frames || block.invalid > block.present {
        Some(format!(
            "{} frames, {} present, {} invalid",
            block.frames, block.present, block.invalid
        ))
    } else {
        None
    }
}

/// Holes in the sequence, at the start and between blocks, that gaps do not explain.
fn holes(stream: &Stream) -> Vec<Absent> {
    let mut absent = Vec::new();
    let mut next = 0;
    let mut end = match stream.is_filled() {
        true => stream.placed_edges().map(|(first, _)| first),
        false => Some(0),
    };
    for (position, placed) in stream.blocks.iter().enumerate() {
        let block = &placed.block;
        if block.sequence > next {
            let frames = end.filter(|&end| end <= block.first).map(|end| end..block.first);
            let explained =
                frames.clone().is_some_and(|frames| stream.gaps.uncovered(frames).is_empty());
            if !explained {
                let count = block.sequence - next;
                absent.push(Absent { position, first: next, count, frames });
            }
        }
        next = block.sequence + 1;
        end = Some(stream.end_of(block));
    }
    absent
}

/// One frame of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Its index in the stream.
    pub index: i64,
    /// Whether it stands in the place of a frame that is not there.
    pub fill: bool,
    /// All of it.
    pub bytes: &'a [u8],
}

impl Stream {
    /// Whether frames have places, those that are not there too. Else they lie as they came, and an index
    /// counts arrivals.
    pub fn is_filled(&self) -> bool {
        self.fill != Fill::Omit
    }

    /// The first and the last index by the account, where indices are places.
    pub fn placed_edges(&self) -> Option<(i64, i64)> {
        let account = self.account.as_ref().filter(|_| self.is_filled())?;
        Some((account.first?.index, account.last?.index))
    }

    /// The index behind a block's last frame.
    pub fn end_of(&self, block: &Block) -> i64 {
        block.first.saturating_add(block.frames.into())
    }

    /// Bytes of all blocks known.
    pub fn bytes(&self) -> u64 {
        self.blocks.iter().map(|placed| u64::from(placed.block.bytes)).sum()
    }

    /// Bytes that a block can have.
    pub fn block_bytes(&self) -> usize {
        self.geometry.map_or(ALIGNMENT as usize, |geometry| geometry.block_bytes as usize)
    }

    /// The frames of a block, for streams whose frames have one length.
    pub fn frames<'a>(&'a self, block: &Block, bytes: &'a [u8]) -> Frames<'a> {
        let frame_bytes = self.geometry.map_or(0, |geometry| geometry.frame_bytes) as usize;
        let frames = bytes.len().checked_div(frame_bytes).unwrap_or(0);
        let next = block.first;
        Frames { stream: self, next, bytes, frame_bytes: frame_bytes.max(1), frames }
    }

    /// Frames of the stream per second, all threads together, where the format tells.
    pub fn frames_per_second(&self) -> Option<u64> {
        let (rate, threads) = self.rate_of_thread()?;
        Some(rate.saturating_mul(threads.unsigned_abs()))
    }

    /// When a block begins: by its frames' own time, else when it was received.
    pub fn time_of_block(&self, block: &Block) -> Tai {
        block.time.or_else(|| self.time_of(block.first)).unwrap_or(block.seen)
    }

    /// The block nearest to a frame that tells its time: until the rate was learnt, none does.
    fn timed_near(&self, index: i64) -> Option<(&Block, Tai)> {
        let at = self.position_of(index)?;
        let timed = |placed: &'_ Placed| placed.block.time.is_some();
        let placed = match self.blocks[at..].iter().find(|placed| timed(placed)) {
            Some(placed) => placed,
            None => self.blocks[..at].iter().rev().find(|placed| timed(placed))?,
        };
        Some((&placed.block, placed.block.time?))
    }

    /// The time of a frame, where it follows from its place. (Else the frame itself tells it, if any.)
    pub fn time_of(&self, index: i64) -> Option<Tai> {
        if !self.is_filled() {
            return None;
        }
        let (rate, threads) = self.rate_of_thread()?;
        let (block, time) = self.timed_near(index)?;
        let slots = index.div_euclid(threads).saturating_sub(block.first.div_euclid(threads));
        let ns = frame_ns(slots.unsigned_abs(), rate);
        Some(time.plus_ns(if slots < 0 { -ns } else { ns }))
    }

    /// Frames of each thread per second, and how many threads lie frame by frame.
    fn rate_of_thread(&self) -> Option<(u64, i64)> {
        match &self.format {
            Format::Vdif { frames_per_second: Some(rate), threads, .. } if *rate > 0 => {
                Some((*rate, threads.len().max(1) as i64))
            }
            Format::Vdif { .. } | Format::Panda { .. } | Format::Raw => None,
        }
    }

    /// The index of the first frame at or after an instant; the first of the block that holds it where
    /// time does not follow from the place.
    pub fn index_at(&self, time: Tai) -> Option<i64> {
        let after = self.blocks.partition_point(|it| self.time_of_block(&it.block) <= time);
        let Some(block) = after.checked_sub(1).map(|at| &self.blocks[at].block) else {
            return self.blocks.first().map(|placed| placed.block.first);
        };
        let ns = time.since(self.time_of_block(block)).max(0);
        match self.rate_of_thread() {
            Some((rate, threads)) if self.is_filled() && self.time_of(block.first).is_some() => {
                let slots = (i128::from(ns) * i128::from(rate) + 999_999_999) / 1_000_000_000;
                let slots = i64::try_from(slots).unwrap_or(i64::MAX);
                let slot = block.first.div_euclid(threads).saturating_add(slots);
                let index = slot.saturating_mul(threads);
                Some(if slots == 0 { block.first } else { index })
            }
            _ if after == self.blocks.len() && time > self.end_time() => Some(self.end_of(block)),
            _ => Some(block.first),
        }
    }

    /// The time of the last frame, or when the last block was received.
    fn end_time(&self) -> Tai {
        let told = self.account.as_ref().and_then(|account| account.last);
        let seen = self.blocks.last().map_or(Tai(i64::MIN), |placed| placed.block.seen);
        told.map_or(seen, |edge| edge.time.unwrap_or(edge.seen))
    }

    /// The position of the block that holds a frame: the last one that begins at or before it.
    pub fn position_of(&self, index: i64) -> Option<usize> {
        if self.blocks.is_empty() {
            return None;
        }
        let after = self.blocks.partition_point(|placed| placed.block.first <= index);
        Some(after.saturating_sub(1))
    }

    /// Reads the blocks at these positions of [`Stream::blocks`], in order.
    pub fn read(
        &self,
        positions: Range<usize>,
        settings: Settings,
    ) -> Result<StreamReader<'_>, StartError> {
        let positions =
            positions.start.min(self.blocks.len())..positions.end.min(self.blocks.len());
        let blocks = &self.blocks[positions.clone()];
        let whole = blocks.iter().filter(|placed| placed.presence == Presence::Whole);
        let extents = whole.map(Placed::extent).collect();
        let ahead = Ahead::start(extents, self.block_bytes(), settings)?;
        let absent = self.absent.partition_point(|it| it.position < positions.start);
        Ok(StreamReader {
            stream: self,
            ahead,
            position: positions.start,
            end: positions.end,
            absent,
        })
    }
}

impl Placed {
    /// What is to be read.
    pub fn extent(&self) -> Extent {
        Extent {
            path: self.path.clone(),
            device: self.device,
            offset: self.block.offset,
            bytes: self.block.bytes,
            crc: self.block.crc,
        }
    }

    /// A finding about this block.
    pub fn finding(&self, stream: &Stream, root: Option<&Path>, what: What) -> Finding {
        Finding {
            stream: Some(stream.name.clone()),
            member: root.map(Path::to_owned),
            file: Some(self.path.to_path_buf()),
            frames: Some((self.block.first..stream.end_of(&self.block)).into()),
            what,
        }
    }

    /// What a fault of reading is, as a finding.
    pub fn fault(&self, fault: &Fault) -> What {
        let (first, count, offset) = (self.block.sequence, 1, self.block.offset);
        match fault {
            Fault::Checksum { .. } => What::BlocksDamaged { first, count, offset },
            Fault::Short { got } => {
                let why = format!("the file ends {got} bytes into it");
                What::BlocksUnreadable { first, count, offset, why }
            }
            Fault::System(why) => What::BlocksUnreadable { first, count, offset, why: why.clone() },
        }
    }
}

/// The frames of one block, in order.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    stream: &'a Stream,
    next: i64,
    bytes: &'a [u8],
    frame_bytes: usize,
    frames: usize,
}

impl<'a> Iterator for Frames<'a> {
    type Item = Frame<'a>;

    fn next(&mut self) -> Option<Frame<'a>> {
        self.frames = self.frames.checked_sub(1)?;
        let (bytes, rest) = self.bytes.split_at(self.frame_bytes);
        self.bytes = rest;
        let index = self.next;
        self.next = index.saturating_add(1);
        let fill = self.stream.is_filled() && self.stream.gaps.contains(index);
        Some(Frame { index, fill, bytes })
    }
}

/// The blocks of a stream in order, read ahead and checked.
#[derive(Debug)]
pub struct StreamReader<'a> {
    stream: &'a Stream,
    ahead: Ahead,
    position: usize,
    end: usize,
    absent: usize,
}

/// What comes next in a stream.
#[derive(Debug)]
pub enum Item<'a> {
    /// A block.
    Block(Delivered<'a>),
    /// Something that was recorded and cannot be given.
    Lost(Finding),
}

/// A block's bytes, on loan until dropped; at most one may be kept while the next is asked for.
#[derive(Debug)]
pub struct Delivered<'a> {
    /// Its record and place.
    pub placed: &'a Placed,
    /// What is wrong with it, if damaged blocks were asked for.
    pub damage: Option<Finding>,
    loan: Loan,
}

impl Delivered<'_> {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        self.loan.bytes()
    }
}

impl<'a> StreamReader<'a> {
    /// The stream that is read.
    pub fn stream(&self) -> &'a Stream {
        self.stream
    }
}

impl<'a> Iterator for StreamReader<'a> {
    type Item = Item<'a>;

    /// The next block, or the next loss.
    fn next(&mut self) -> Option<Item<'a>> {
        let stream = self.stream;
        if let Some(absent) = stream.absent.get(self.absent)
            && absent.position == self.position
        {
            self.absent += 1;
            return Some(Item::Lost(absent.finding(stream)));
        }
        if self.position == self.end {
            return None;
        }
        let placed = &stream.blocks[self.position];
        self.position += 1;
        let lost = |what| Some(Item::Lost(placed.finding(stream, None, what)));
        let block = &placed.block;
        match placed.presence {
            Presence::Missing => {
                return lost(What::ChunkMissing { blocks: 1, bytes: block.bytes.into() });
            }
            Presence::Truncated => {
                return lost(placed.fault(&Fault::Short { got: 0 }));
            }
            Presence::Whole => {}
        }
        let (loan, fault) = self.ahead.next()?;
        let damage = fault.map(|fault| placed.finding(stream, None, placed.fault(&fault)));
        match (loan, damage) {
            (Some(loan), damage) => Some(Item::Block(Delivered { placed, damage, loan })),
            (None, Some(damage)) => Some(Item::Lost(damage)),
            (None, None) => unreachable!("a block that was read without fault has its bytes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use fullbore_core::gap::Cause;

    use super::*;
    use crate::store::testing::{Laid, RATE, Store, StreamPlan, start};

    fn opened(store: &Store, laid: &Laid) -> Scan {
        Scan::open(&store.roots(), &laid.name).unwrap()
    }

    fn all(stream: &Stream, positions: Range<usize>, settings: Settings) -> (Vec<u8>, Vec<What>) {
        let reader = stream.read(positions, settings).unwrap();
        let (mut bytes, mut losses) = (Vec::new(), Vec::new());
        for item in reader {
            match item {
                Item::Block(block) => {
                    bytes.extend_from_slice(block.bytes());
                    losses.extend(block.damage.clone().map(|damage| damage.what));
                }
                Item::Lost(finding) => losses.push(finding.what),
            }
        }
        (bytes, losses)
    }

    #[test]
    fn the_bytes_come_in_order_over_all_members() {
        for members in [1, 2, 5] {
            let store = Store::new(members);
            let plans =
                [StreamPlan::vdif("a"), StreamPlan::varying("b"), StreamPlan::raw("c").frames(1)];
            let laid = store.lay_down("r1_a", &plans);
            let scan = opened(&store, &laid);
            assert_eq!(scan.findings, []);
            for (stream, bytes) in scan.streams.iter().zip(&laid.bytes) {
                let read = all(stream, 0..usize::MAX, Settings::default());
                assert_eq!(read, (bytes.clone(), vec![]), "stream {}", stream.name);
            }
        }
    }

    #[test]
    fn a_lost_chunk_is_told_in_its_place_and_the_rest_is_read() {
        let store = Store::new(2);
        let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
        std::fs::remove_file(laid.chunk_path(0, 1)).unwrap();
        let scan = opened(&store, &laid);
        let (bytes, losses) = all(&scan.streams[0], 0..usize::MAX, Settings::default());
        let chunk = 3 * 16384;
        assert_eq!(bytes, [&laid.bytes[0][..chunk], &laid.bytes[0][2 * chunk..]].concat());
        assert_eq!(losses, vec![What::ChunkMissing { blocks: 1, bytes: 16384 }; 3]);
        let [finding] = scan.findings.as_slice() else { panic!("{:?}", scan.findings) };
        assert_eq!(finding.frames, Some((96..192).into()));
    }

    #[test]
    fn a_lost_index_is_told_where_its_blocks_would_stand() {
        let store = Store::new(2);
        let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
        std::fs::remove_file(laid.index_path(0, 1)).unwrap();
        let scan = opened(&store, &laid);
        let (_, losses) = all(&scan.streams[0], 0..usize::MAX, Settings::default());
        let firsts: Vec<u64> = losses
            .iter()
            .map(|what| match what {
                What::BlocksAbsent { first, count: 3 } => *first,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(firsts, [3, 9, 15, 21, 27]);
    }

    #[test]
    fn frames_are_found_by_index_and_by_time() {
        let store = Store::new(2);
        let plan = StreamPlan::vdif("a").threads(&[0, 1]).gap(64, 40, Cause::Missing);
        let laid = store.lay_down("r1_a", &[plan]);
        let scan = opened(&store, &laid);
        let stream = &scan.streams[0];
        assert_eq!(stream.frames_per_second(), Some(2 * RATE));
        for index in [0, 2, 62, 64, 104, 500, 998] {
            let at = stream.position_of(index).unwrap();
            let block = &stream.blocks[at].block;
            assert!((block.first..stream.end_of(block)).contains(&index), "{index}");
            let time = stream.time_of(index).unwrap();
            assert_eq!(time, start().plus_ns(index / 2 * 10_000_000), "{index}");
            assert_eq!(stream.index_at(time), Some(index));
        }
        assert_eq!(stream.time_of(501), stream.time_of(500), "threads of one instant");
        assert_eq!(stream.index_at(Tai(0)), Some(0));
        assert!(stream.index_at(start().plus_ns(1 << 60)).unwrap() >= 1000);
    }

    #[test]
    fn blocks_from_before_the_rate_was_known_have_their_time_from_later_ones() {
        let store = Store::new(1);
        let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
        let mut scan = opened(&store, &laid);
        let stream = &mut scan.streams[0];
        for placed in &mut stream.blocks[..5] {
            placed.block.time = None;
            placed.block.seen = Tai(0);
        }
        for index in [0, 40, 159, 160, 900] {
            let time = start().plus_ns(index * 10_000_000);
            assert_eq!(stream.time_of(index), Some(time));
            assert_eq!(stream.index_at(time), Some(index));
        }
    }

    #[test]
    fn where_frames_lie_as_they_came_a_time_finds_their_block() {
        let store = Store::new(2);
        let plan = StreamPlan::vdif("a").fill(Fill::Omit).gap(64, 40, Cause::Missing);
        let laid = store.lay_down("r1_a", &[plan]);
        let scan = opened(&store, &laid);
        let stream = &scan.streams[0];
        for placed in &stream.blocks {
            let time = placed.block.time.unwrap();
            assert_eq!(stream.index_at(time), Some(placed.block.first));
            assert_eq!(stream.index_at(time.plus_ns(1)), Some(placed.block.first));
        }
        let after = start().plus_ns(1 << 60);
        assert_eq!(stream.index_at(after), Some(960));
    }

    #[test]
    fn frames_tell_their_index_and_whether_they_are_fill() {
        let store = Store::new(1);
        let gap = |plan: StreamPlan| plan.frames(100).gap(10, 5, Cause::Missing);
        let plans = [gap(StreamPlan::vdif("a")), gap(StreamPlan::vdif("b").fill(Fill::Omit))];
        let laid = store.lay_down("r1_a", &plans);
        let scan = opened(&store, &laid);
        for (stream, bytes) in scan.streams.iter().zip(&laid.bytes) {
            let block = &stream.blocks[0].block;
            let fill: Vec<i64> = stream
                .frames(block, &bytes[..block.bytes as usize])
                .filter(|frame| frame.fill)
                .map(|frame| frame.index)
                .collect();
            let expected = if stream.is_filled() { 10..15 } else { 0..0 };
            assert_eq!(fill, expected.collect::<Vec<i64>>());
        }
    }

    #[test]
    fn lengths_that_vary_are_found_again() {
        let store = Store::new(2);
        let laid = store.lay_down("r1_a", &[StreamPlan::varying("a").frames(300)]);
        let scan = opened(&store, &laid);
        let stream = &scan.streams[0];
        let lengths = stream.blocks.iter().flat_map(|placed| scan.lengths(placed).unwrap());
        let expected = (0..300).map(|index| 64 + (index * 37) % 900);
        assert_eq!(lengths.collect::<Vec<u16>>(), expected.collect::<Vec<u16>>());
    }

    #[test]
    fn two_scans_of_one_name_are_not_mixed() {
        let store = Store::new(2);
        let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
        let mut other = laid.manifest.clone();
        other.uuid = uuid::Uuid::from_u128(9);
        std::fs::write(laid.manifest_path(0, 1), other.to_json()).unwrap();
        let error = Scan::open(&store.roots(), &laid.name).unwrap_err();
        assert!(matches!(error, inventory::Error::TwoScans { .. }), "{error}");
    }

    #[test]
    fn a_manifest_that_leads_out_of_the_store_is_not_believed() {
        let store = Store::new(1);
        let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
        let mut manifest = laid.manifest.clone();
        manifest.streams[0].directory = "../elsewhere".into();
        std::fs::write(laid.manifest_path(0, 0), manifest.to_json()).unwrap();
        let error = Scan::open(&store.roots(), &laid.name).unwrap_err();
        assert!(error.to_string().contains("../elsewhere"), "{error}");
    }
}
