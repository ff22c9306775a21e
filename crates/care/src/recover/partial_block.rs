//! Recovers journalled partial blocks as the last blocks of their stream.
//!
//! ```text
//! index, chunks   block 0 │ … │ block n-1        examined, rebuilt and put in order before
//! journal                              │ n │ n+1 the snapshot that starts n blocks behind the start
//! ```
//!
//! The blocks go into a new chunk on the member of the journal, because a chunk begun before may be on a member that
//! accepts no writes any more. Chunk, records and name are written in an order that lets an interrupted recovery run
//! again with the same result. The journal files are removed before the manifest marks the scan as recovered.

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use fullbore_core::index::{self, Entry, LENGTHS};
use fullbore_core::layout::{LARGEST_BLOCK_BYTES, chunk_file};
use fullbore_core::manifest::{INDEX_FILE, SIDE_DIRECTORY, State};
use fullbore_core::partial_block::{BlockState, Codec, MAKING_SUFFIX, PartialBlockFile};
use fullbore_linux::regular_file;
use fullbore_store::inventory::{Inventory, MemberFiles};
use fullbore_store::lock::sync_directory;
use fullbore_store::partial_blocks::{litter_in, tails_in};

use super::Error;
use super::apply::{remove, rename, step, write_error};
use super::reconstruct::Reconstructed;

/// The size limit of a partial-block file: a recorder starts a new file long before.
const LONGEST: u64 = 16 * LARGEST_BLOCK_BYTES;

/// The blocks recovered from the journal of a stream.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecoveredBlocks {
    /// Blocks appended to the stream.
    pub blocks: u64,
    /// Partial-block files that do not continue the stream, or are damaged.
    pub ignored: u64,
}

/// The partial-block file that continues a stream.
struct Next {
    holding: usize,
    tail: PartialBlockFile,
    /// The number of its blocks that the stream has already.
    skip: usize,
}

/// Appends the journalled blocks of a stream. The stream must be examined again after that.
pub fn put_back(
    inventory: &Inventory,
    reconstructed: &Reconstructed,
) -> Result<RecoveredBlocks, Error> {
    let mut kept = RecoveredBlocks::default();
    if inventory.manifest.state != State::Recording {
        return Ok(kept);
    }
    let Some(next) = choose(inventory, reconstructed, &mut kept) else { return Ok(kept) };
    let Next { holding, tail, skip } = next;
    let holding = &inventory.holdings[holding];
    let behind: Vec<(&BlockState, &Vec<u8>)> =
        tail.snapshot.blocks.iter().zip(&tail.bytes).skip(skip).collect();
    kept.blocks = behind.len() as u64;
    let mut sequence = tail.snapshot.sequence + skip as u64;
    let first = next_chunk(inventory, reconstructed, sequence, &tail);
    let chunks = behind.chunks(tail.snapshot.geometry.chunk_blocks as usize);
    for (chunk, blocks) in (first..).zip(chunks) {
        let making = make_chunk(holding, chunk, blocks)?;
        append(inventory, holding, reconstructed, &tail, &records(chunk, sequence, blocks))?;
        rename(&making, &holding.chunk_path(chunk))?;
        sync(&holding.path)?;
        sequence += blocks.len() as u64;
    }
    Ok(kept)
}

/// Removes every partial-block file of a scan.
pub fn remove_all(inventory: &Inventory) -> Result<(), Error> {
    for path in inventory.holdings.iter().flat_map(|holding| litter_in(&holding.path)) {
        remove(&path)?;
    }
    Ok(())
}

/// Returns the newest of the files that contain the block behind the last one.
fn choose(
    inventory: &Inventory,
    reconstructed: &Reconstructed,
    kept: &mut RecoveredBlocks,
) -> Option<Next> {
    let directory = &inventory.manifest.streams[reconstructed.number].directory;
    let codec = Codec::of_stream(inventory.manifest.uuid, reconstructed.number as u16);
    let (sequence, first) = reconstructed.blocks.last().map_or((0, None), |last| {
        let block = &last.block;
        (block.sequence + 1, Some(block.first.saturating_add(block.frames.into())))
    });
    let mut best: Option<Next> = None;
    let own = inventory.holdings.iter().enumerate().filter(|(_, it)| it.name == *directory);
    for (at, holding) in own {
        for path in tails_in(&holding.path) {
            let tail = read(&path).ok().and_then(|bytes| PartialBlockFile::read(codec, &bytes));
            let Some(tail) = tail
                .filter(|it| reconstructed.geometry.is_none_or(|is| is == it.snapshot.geometry))
            else {
                kept.ignored += 1;
                continue;
            };
            if tail.snapshot.sequence > sequence {
                kept.ignored += 1;
                continue;
            }
            let skip = usize::try_from(sequence - tail.snapshot.sequence).unwrap_or(usize::MAX);
            // A file written before the last block was complete is obsolete, which is normal.
            let Some(piece) = tail.snapshot.blocks.get(skip) else { continue };
            if first.is_some_and(|first| piece.first < first) {
                kept.ignored += 1;
                continue;
            }
            if best.as_ref().is_none_or(|best| best.tail.snapshot.at < tail.snapshot.at) {
                best = Some(Next { holding: at, tail, skip });
            }
        }
    }
    best
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    regular_file::open(path)?.take(LONGEST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns a number that no chunk of the stream has, and that no chunk on an absent member would have.
fn next_chunk(
    inventory: &Inventory,
    reconstructed: &Reconstructed,
    sequence: u64,
    tail: &PartialBlockFile,
) -> u32 {
    let files = inventory.of_stream(reconstructed.number).flat_map(|it| &it.chunks).map(|it| it.0);
    let recorded = reconstructed.blocks.iter().map(|whole| whole.block.chunk);
    let behind = files.chain(recorded).max().map_or(0, |highest| highest.saturating_add(1));
    let reckoned = sequence.div_ceil(u64::from(tail.snapshot.geometry.chunk_blocks));
    behind.max(u32::try_from(reckoned).unwrap_or(u32::MAX))
}

/// Writes blocks as a chunk under a temporary name.
fn make_chunk(
    holding: &MemberFiles,
    chunk: u32,
    blocks: &[(&BlockState, &Vec<u8>)],
) -> Result<std::path::PathBuf, Error> {
    step()?;
    let path = holding.side(&format!("tail.{chunk:08}{MAKING_SUFFIX}"));
    let write = || -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o644);
        let mut file = regular_file::open_with(&options, &path)?;
        blocks.iter().try_for_each(|(_, bytes)| file.write_all(bytes))?;
        file.sync_all()
    };
    write().map_err(|source| {
        write_error(
            &holding.side(&chunk_file(&holding.name, chunk)),
            "making a chunk of a tail",
            source,
        )
    })?;
    Ok(path)
}

/// Returns the index records of blocks.
fn records(chunk: u32, sequence: u64, blocks: &[(&BlockState, &Vec<u8>)]) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut offset = 0;
    for ((piece, bytes), sequence) in blocks.iter().zip(sequence..) {
        let block = index::Block {
            sequence,
            offset,
            chunk,
            bytes: piece.bytes,
            crc: crc32c::crc32c(bytes),
            frames: piece.frames,
            present: piece.present,
            invalid: piece.invalid,
            first: piece.first,
            time: piece.time,
            seen: piece.seen,
        };
        offset += u64::from(piece.bytes);
        entries.push(Entry::Block(block));
        entries.extend(piece.lengths.chunks(LENGTHS).zip(0..).map(|(lengths, run)| {
            Entry::Lengths { sequence, first: run * LENGTHS as u32, lengths: lengths.to_vec() }
        }));
        entries.extend(piece.gaps.iter().copied().map(Entry::Gap));
    }
    entries
}

/// Appends records to the index of a member, after its last valid record.
fn append(
    inventory: &Inventory,
    holding: &MemberFiles,
    reconstructed: &Reconstructed,
    tail: &PartialBlockFile,
    entries: &[Entry],
) -> Result<(), Error> {
    step()?;
    let path = holding.side(INDEX_FILE);
    let codec = index::Codec::of_scan(inventory.manifest.uuid);
    let write = || -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o644);
        let mut file = regular_file::open_with(&options, &path)?;
        let geometry = tail.snapshot.geometry;
        let header = (file.metadata()?.len() == 0).then(|| Entry::Header {
            member: inventory.roots[holding.root].uuid.unwrap_or_default(),
            frame_bytes: geometry.frame_bytes,
            block_bytes: geometry.block_bytes,
            chunk_blocks: geometry.chunk_blocks,
        });
        let all = header.iter().chain(entries);
        let records: Vec<u8> =
            all.flat_map(|entry| codec.encode(reconstructed.number as u16, entry)).collect();
        file.write_all(&records)?;
        file.sync_all()
    };
    write().map_err(|source| write_error(&path, "writing the index", source))?;
    sync(&holding.path.join(SIDE_DIRECTORY))
}

fn sync(directory: &Path) -> Result<(), Error> {
    sync_directory(directory)
        .map_err(|source| write_error(directory, "syncing the directory", source))
}
