//! Index records of the pieces, with the numbers that they have in the new scan.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;

use fullbore_core::index::{Codec, Entry};
use fullbore_core::layout::chunk_number;
use fullbore_core::manifest::{INDEX_FILE, Manifest};
use fullbore_linux::regular_file;
use fullbore_store::inventory::{Inventory, MemberFiles, read_on};

use super::Error;

/// The end of a stream in the pieces so far, and so the beginning of the next piece.
#[derive(Clone, Copy, Debug, Default)]
pub struct Offset {
    /// Blocks: the next sequence.
    pub blocks: u64,
    /// Chunk files: the next number.
    pub chunks: u32,
    /// Bytes.
    pub bytes: u64,
    /// Frames before the piece, if each piece counts its frames from 0; else 0.
    pub frames_before: i64,
    /// Index behind the last frame, in the new scan.
    end: Option<i64>,
}

/// The part of a stream that one member has.
#[derive(Debug, Default)]
pub struct Part {
    /// The records of the index.
    pub records: Vec<u8>,
    /// Blocks among them.
    pub blocks: u64,
    /// Chunk files of the pieces, with their numbers in the new scan.
    pub chunks: Vec<(PathBuf, u32)>,
}

/// The parts of all streams, by stream and by the path of the member.
pub type Parts = BTreeMap<(usize, PathBuf), Part>;

/// Adds a stream of a piece. With `shift_frames`, its frames are counted from 0 in each piece.
pub fn add(
    parts: &mut Parts,
    event: &Manifest,
    piece: &Inventory,
    number: usize,
    offset: &mut Offset,
    shift_frames: bool,
) -> Result<(), Error> {
    let begin = *offset;
    let mut end = Offset { frames_before: 0, ..begin };
    let shift = if shift_frames { begin.end.unwrap_or(0) } else { 0 };
    for holding in piece.of_stream(number) {
        let root = piece.roots[holding.root].path.clone();
        let part = parts.entry((number, root)).or_default();
        link_chunks(part, piece, holding, &begin, &mut end)?;
        let mut adding = Adding { part, event, piece, holding, number, begin, shift };
        adding.records(&mut end)?;
    }
    if let Some((before, first)) = begin.end.zip(first_frame(piece, number))
        && !shift_frames
        && first < before
    {
        let why = format!("the frames of stream {} are counted anew", event.streams[number].name);
        let scan = piece.manifest.scan.clone();
        return Err(Error::Piece { scan, why });
    }
    end.blocks = end.blocks.max(begin.blocks + piece.manifest.streams[number].blocks);
    end.frames_before = if shift_frames { end.end.unwrap_or(0) } else { 0 };
    *offset = end;
    Ok(())
}

/// The index of the first frame of a stream of a piece.
fn first_frame(piece: &Inventory, number: usize) -> Option<i64> {
    let account = piece.of_stream(number).find_map(|it| it.account().get().cloned());
    account.and_then(|account| account.first).map(|edge| edge.index)
}

/// Lists the chunk files of a piece on a member.
fn link_chunks(
    part: &mut Part,
    piece: &Inventory,
    holding: &MemberFiles,
    begin: &Offset,
    end: &mut Offset,
) -> Result<(), Error> {
    for (_, file) in &holding.chunks {
        let name = file.path.file_name().unwrap_or_default().to_string_lossy();
        let visible = chunk_number(&holding.name, &name).filter(|_| !file.unfinished);
        let number = visible.and_then(|it| begin.chunks.checked_add(it)).ok_or_else(|| {
            let why = format!("{} is not a complete chunk", file.path.display());
            Error::Piece { scan: piece.manifest.scan.clone(), why }
        })?;
        part.chunks.push((file.path.clone(), number));
        end.chunks = end.chunks.max(number.saturating_add(1));
    }
    Ok(())
}

/// One index file that is added to a part.
struct Adding<'a> {
    part: &'a mut Part,
    event: &'a Manifest,
    piece: &'a Inventory,
    holding: &'a MemberFiles,
    number: usize,
    begin: Offset,
    shift: i64,
}

impl Adding<'_> {
    fn records(&mut self, end: &mut Offset) -> Result<(), Error> {
        let path = self.holding.side(INDEX_FILE);
        let failed =
            |source| Error::File { path: path.clone(), doing: "reading the index", source };
        let file = match regular_file::open(&path) {
            // A member that took no block of the stream has no index.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            file => file.map_err(failed)?,
        };
        self.take(&file, end).map_err(failed)
    }

    fn take(&mut self, file: &File, end: &mut Offset) -> std::io::Result<()> {
        let (number, scan) = (self.number as u16, self.piece.manifest.uuid);
        let codec = Codec::of_scan(self.event.uuid);
        let mut at = 0;
        read_on(file, &mut at, Codec::of_scan(scan), number, |entry, _| {
            if let Some(entry) = self.moved(entry, end) {
                self.part.blocks += u64::from(matches!(entry, Entry::Block(_)));
                self.part.records.extend_from_slice(&codec.encode(number, &entry));
            }
        })
    }

    /// Gives a record the numbers that it has in the new scan. One header is enough, and one mark follows at the end.
    fn moved(&self, entry: Entry, end: &mut Offset) -> Option<Entry> {
        let Offset { blocks, chunks, .. } = self.begin;
        Some(match entry {
            Entry::Header { .. } if !self.part.records.is_empty() => return None,
            Entry::Mark { .. } | Entry::Stripe(_) | Entry::Rows { .. } => return None,
            header @ Entry::Header { .. } => header,
            Entry::Block(mut block) => {
                let renamed = self.holding.renamed.as_ref();
                let file = renamed.map_or(block.chunk, |it| it.in_sight().file_of(block.chunk));
                block.chunk = chunks.saturating_add(file);
                block.sequence = block.sequence.saturating_add(blocks);
                block.first = block.first.saturating_add(self.shift);
                end.blocks = end.blocks.max(block.sequence.saturating_add(1));
                end.bytes = end.bytes.saturating_add(u64::from(block.bytes));
                let behind = block.first.saturating_add(i64::from(block.frames));
                end.end = end.end.max(Some(behind));
                Entry::Block(block)
            }
            Entry::Lengths { sequence, first, lengths } => {
                Entry::Lengths { sequence: sequence.saturating_add(blocks), first, lengths }
            }
            Entry::Gap(mut gap) => {
                gap.first = gap.first.saturating_add(self.shift);
                Entry::Gap(gap)
            }
            Entry::Found { first, count } => {
                Entry::Found { first: first.saturating_add(blocks), count }
            }
        })
    }
}
