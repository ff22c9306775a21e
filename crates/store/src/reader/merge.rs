//! Merges the indexes of all members into one list of a stream's blocks, and checks it against the files.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use fullbore_core::account::Account;
use fullbore_core::gap::Cause;
use fullbore_core::index::Block;
use fullbore_core::layout::{ALIGNMENT, Geometry};
use fullbore_core::manifest::{ACCOUNT_FILE, Fill, INDEX_FILE, State};

use super::stream::{Absent, BlockLocation, Presence, StoredStream};
use super::{about, protected};
use crate::diagnostics::{Diagnostic, DiagnosticKind};
use crate::gaps::Gaps;
use crate::inventory::{BlockRecord, ChunkFile, Copy, Index, Inventory, MemberFiles};
use crate::redundancy::stripes_of;

/// The merge of one stream from the data of its members.
pub(super) struct Merge<'a> {
    inventory: &'a Inventory,
    number: usize,
    findings: Vec<Diagnostic>,
    complete: bool,
}

impl<'a> Merge<'a> {
    pub fn new(inventory: &'a Inventory, number: usize, members_given: bool) -> Self {
        Self { inventory, number, findings: Vec::new(), complete: members_given }
    }

    pub fn finish(mut self) -> (StoredStream, Vec<Diagnostic>) {
        let told = &self.inventory.manifest.streams[self.number];
        let indexes = self.indexes();
        let geometry =
            told.geometry.or_else(|| indexes.iter().find_map(|(_, index)| index.geometry));
        let account = self.account();
        let stripes = match self.inventory.manifest.redundancy {
            Some(_) => stripes_of(self.inventory, self.number),
            None => Vec::new(),
        };
        let told_by_stripes =
            stripes.iter().flat_map(|it| &it.chunks).flat_map(|it| it.gaps.iter().copied());
        let records = indexes.iter().flat_map(|(_, index)| index.gaps.iter().copied());
        let records = records.chain(told_by_stripes);
        let listed = account.iter().flat_map(|account| account.gaps.iter().copied());
        // The indexes are authoritative. The account supplements them if an index is not whole, and if a member failed:
        // the index of that member could not record its losses. In sequential streams, the account counts gaps by time,
        // and blocks by arrival.
        let failed = self.inventory.manifest.members.iter().any(|member| member.failure.is_some());
        let gaps: Gaps = match (told.fill, self.complete, failed) {
            (Fill::Omit, ..) | (_, true, false) => Gaps::paint(records),
            (_, true, true) => {
                Gaps::paint(records.chain(listed.filter(|gap| gap.cause == Cause::Overrun)))
            }
            (_, false, _) => Gaps::paint(records.chain(listed)),
        };
        let found = indexes.iter().flat_map(|(_, index)| index.found.clone()).collect();
        let blocks = self.place(&indexes, geometry);
        let blocks = match &stripes[..] {
            [] => blocks,
            stripes => protected::by(stripes, self.inventory, blocks, geometry),
        };
        let mut stream = StoredStream {
            number: self.number,
            name: told.name.to_string(),
            format: told.format.clone(),
            codec: told.format.codec(self.inventory.manifest.armed),
            fill: told.fill,
            geometry,
            blocks,
            gaps,
            account,
            absent: Vec::new(),
            found,
            complete: self.complete,
            clock: OnceLock::new(),
        };
        self.find_lost_chunks(&stream);
        stream.absent = self.find_absent(&stream, told.blocks);
        (stream, self.findings)
    }

    /// Returns the index of every member that has one.
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
                    // A member that received no block has no index, and needs none.
                    if !holding.chunks.is_empty() {
                        self.index_finding(holding, DiagnosticKind::IndexMissing);
                    }
                }
                Err(error) => {
                    self.index_finding(
                        holding,
                        DiagnosticKind::IndexUnreadable { why: error.to_string() },
                    );
                }
            }
        }
        indexes
    }

    fn holdings(&self) -> Vec<(usize, &'a MemberFiles)> {
        let directory = &self.inventory.manifest.streams[self.number].directory;
        let all = self.inventory.holdings.iter().enumerate();
        all.filter(|(_, holding)| holding.name == *directory).collect()
    }

    fn judge_index(&mut self, holding: &MemberFiles, index: &Index) {
        let root = &self.inventory.roots[holding.root];
        if let Some(number) = index.foreign_stream {
            let of = self.inventory.manifest.streams.get(usize::from(number));
            let of =
                of.map_or_else(|| format!("stream {number}"), |s| format!("stream {}", s.name));
            self.index_finding(holding, DiagnosticKind::IndexForeign { of });
        } else if index.records == 0 {
            if !holding.chunks.is_empty() || index.torn {
                self.index_finding(holding, DiagnosticKind::IndexMissing);
            }
        } else if index.torn {
            let bytes = index.file_bytes.saturating_sub(index.trusted_bytes());
            self.index_finding(holding, DiagnosticKind::IndexCut { records: index.records, bytes });
        }
        if let (Some(of), Some(here)) = (index.member, root.uuid)
            && of != here
        {
            self.index_finding(
                holding,
                DiagnosticKind::IndexForeign { of: format!("member {of}") },
            );
        }
    }

    fn index_finding(&mut self, holding: &MemberFiles, what: DiagnosticKind) {
        self.complete = false;
        self.findings.push(about(self.inventory, holding, Some(INDEX_FILE), what));
    }

    /// Returns the account that the copies agree on.
    fn account(&mut self) -> Option<Account> {
        let mut believed: Option<(Account, PathBuf)> = None;
        for (_, holding) in self.holdings() {
            let what = match (holding.account(), &believed) {
                (Copy::Read(copy), Some((account, path))) => (copy != *account)
                    .then(|| DiagnosticKind::AccountDiffers { believed: path.clone() }),
                (Copy::Read(copy), None) => {
                    believed = Some((copy, holding.side(ACCOUNT_FILE)));
                    None
                }
                // The account is written when the scan is sealed.
                (Copy::Missing, _) if self.inventory.manifest.state == State::Recording => None,
                (Copy::Missing, _) => Some(DiagnosticKind::AccountMissing),
                (Copy::Unreadable(why), _) => Some(DiagnosticKind::AccountUnreadable { why }),
            };
            let finding = what.map(|what| about(self.inventory, holding, Some(ACCOUNT_FILE), what));
            self.findings.extend(finding);
        }
        believed.map(|(account, _)| account)
    }

    /// Returns every block once, in order, with its file.
    fn place(
        &mut self,
        indexes: &[(usize, Index)],
        geometry: Option<Geometry>,
    ) -> Vec<BlockLocation> {
        let mut blocks = Vec::new();
        for (at, index) in indexes {
            let holding = &self.inventory.holdings[*at];
            let mut paths: BTreeMap<u32, (Arc<PathBuf>, Option<u64>)> = BTreeMap::new();
            for record in &index.blocks {
                if let Some(why) = geometry.and_then(|it| absurd(&record.block, &it)) {
                    let what = DiagnosticKind::BlockAbsurd { sequence: record.block.sequence, why };
                    self.index_finding(holding, what);
                    continue;
                }
                let (path, bytes) = paths
                    .entry(record.block.chunk)
                    .or_insert_with(|| located(holding, record.block.chunk));
                let device = self.inventory.roots[holding.root].device;
                blocks.push(location(record, *at, path.clone(), device, *bytes));
            }
        }
        blocks.sort_by_key(|location| (location.block.sequence, location.presence as u8));
        self.drop_twins(blocks)
    }

    /// Of two records of one block, keeps the one whose bytes exist.
    fn drop_twins(&mut self, blocks: Vec<BlockLocation>) -> Vec<BlockLocation> {
        let mut kept: Vec<BlockLocation> = Vec::with_capacity(blocks.len());
        for location in blocks {
            match kept.last() {
                Some(last) if last.block.sequence == location.block.sequence => {
                    if last.block.crc != location.block.crc {
                        let holding = &self.inventory.holdings[location.holding];
                        let what = DiagnosticKind::BlockTwice { sequence: location.block.sequence };
                        let finding = about(self.inventory, holding, Some(INDEX_FILE), what);
                        self.findings.push(finding);
                    }
                }
                _ => kept.push(location),
            }
        }
        kept
    }

    /// Finds chunk files that are missing, or shorter than the index says.
    fn find_lost_chunks(&mut self, stream: &StoredStream) {
        let mut by_file: BTreeMap<(usize, u32), Vec<&BlockLocation>> = BTreeMap::new();
        for location in &stream.blocks {
            by_file.entry((location.holding, location.block.chunk)).or_default().push(location);
        }
        for ((holding, chunk), blocks) in by_file {
            let lost: Vec<&&BlockLocation> =
                blocks.iter().filter(|location| location.presence != Presence::Whole).collect();
            let (Some(first), Some(last)) = (lost.first(), lost.last()) else { continue };
            let frames = first.block.first..stream.end_of(&last.block);
            let should = blocks.iter().map(|it| it.block.offset + u64::from(it.block.bytes)).max();
            let should = should.unwrap_or(0);
            let what = match self.inventory.holdings[holding].chunk(chunk) {
                Some(file) => DiagnosticKind::ChunkTruncated {
                    is: file.bytes,
                    should,
                    blocks: lost.len() as u64,
                },
                None => DiagnosticKind::ChunkMissing { blocks: lost.len() as u64, bytes: should },
            };
            let holding = &self.inventory.holdings[holding];
            // If the member is not among the roots, the records are on another member.
            let elsewhere = first.records.as_ref().and_then(|_| first.path.parent()?.parent());
            let about = about(self.inventory, holding, None, what);
            self.findings.push(Diagnostic {
                file: Some(first.path.to_path_buf()),
                frames: Some(frames.into()),
                member: elsewhere.map(std::path::Path::to_owned).or(about.member.clone()),
                ..about
            });
        }
    }

    /// Finds holes in the sequence whose frames no gap record covers.
    fn find_absent(&mut self, stream: &StoredStream, blocks_told: u64) -> Vec<Absent> {
        let mut absent = holes(stream);
        let known = stream.blocks.len() as u64 + absent.iter().map(|it| it.count).sum::<u64>();
        let unseen = blocks_told.saturating_sub(known);
        if unseen > 0 {
            let last = stream.blocks.last().map(|location| &location.block);
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

/// Returns the path of a chunk, existing or not.
fn located(holding: &MemberFiles, chunk: u32) -> (Arc<PathBuf>, Option<u64>) {
    match holding.chunk(chunk) {
        Some(ChunkFile { path, bytes, .. }) => (Arc::new(path.clone()), Some(*bytes)),
        None => (Arc::new(holding.chunk_path(chunk)), None),
    }
}

fn location(
    record: &BlockRecord,
    holding: usize,
    path: Arc<PathBuf>,
    device: u64,
    file_bytes: Option<u64>,
) -> BlockLocation {
    let end = record.block.offset + u64::from(record.block.bytes);
    let presence = match file_bytes {
        Some(bytes) if end <= bytes => Presence::Whole,
        Some(_) => Presence::Truncated,
        None => Presence::Missing,
    };
    let (block, lengths) = (record.block, record.lengths);
    BlockLocation { block, holding, path, device, presence, lengths, records: None, stripe: None }
}

/// Returns the reason why an intact record is impossible.
pub(super) fn absurd(block: &Block, geometry: &Geometry) -> Option<String> {
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

/// Returns the holes in the sequence, at the start and between blocks, that no gap explains.
fn holes(stream: &StoredStream) -> Vec<Absent> {
    let mut absent = Vec::new();
    let mut next = 0;
    let mut end = match stream.is_filled() {
        true => stream.placed_edges().map(|(first, _)| first),
        false => Some(0),
    };
    for (position, location) in stream.blocks.iter().enumerate() {
        let block = &location.block;
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
