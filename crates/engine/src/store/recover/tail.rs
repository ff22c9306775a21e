//! What was kept of blocks that were not full when their recorder died, made the last blocks of their stream.
//!
//! ```text
//! index, chunks   block 0 │ … │ block n-1        examined, rebuilt and put in order before
//! tail                                 │ n │ n+1 the picture that is n blocks behind the start
//! ```
//!
//! The blocks go into a chunk of their own, beside the tail that they come from: a chunk that was begun before may lie on
//! a member that takes nothing any more. Chunk, records and name come in an order in which a recovery that dies is
//! carried out again with the same result, and the tails go before the manifest says that the scan is recovered.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use fullbore_core::index::{self, Entry, LENGTHS};
use fullbore_core::layout::{LARGEST_BLOCK_BYTES, chunk_file};
use fullbore_core::manifest::{INDEX_FILE, SIDE_DIRECTORY, State};
use fullbore_core::tail::{Codec, MAKING_SUFFIX, Piece, Tail};

use super::Error;
use super::apply::{remove, rename, step, write_error};
use super::rebuild::Rebuilt;
use crate::store::inventory::{Holding, Inventory};
use crate::store::lock::sync_directory;
use crate::store::tails::{litter_in, tails_in};

/// The longest tail that is read: a recorder begins it anew long before.
const LONGEST: u64 = 16 * LARGEST_BLOCK_BYTES;

/// What the tails of a stream came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kept {
    /// Blocks put behind the last one.
    pub blocks: u64,
    /// Tails that do not go on where the stream ends, or are damaged.
    pub ignored: u64,
}

/// The tail that a stream goes on with.
struct Next {
    holding: usize,
    tail: Tail,
    /// Its first blocks that the stream has already.
    skip: usize,
}

/// Puts what the tails of a stream have behind its last block. The stream has to be examined anew then.
pub fn put_back(inventory: &Inventory, rebuilt: &Rebuilt) -> Result<Kept, Error> {
    let mut kept = Kept::default();
    if inventory.manifest.state != State::Recording {
        return Ok(kept);
    }
    let Some(next) = choose(inventory, rebuilt, &mut kept) else { return Ok(kept) };
    let Next { holding, tail, skip } = next;
    let holding = &inventory.holdings[holding];
    let behind: Vec<(&Piece, &Vec<u8>)> =
        tail.picture.pieces.iter().zip(&tail.bytes).skip(skip).collect();
    kept.blocks = behind.len() as u64;
    let mut sequence = tail.picture.sequence + skip as u64;
    let first = next_chunk(inventory, rebuilt, sequence, &tail);
    let chunks = behind.chunks(tail.picture.geometry.chunk_blocks as usize);
    for (chunk, blocks) in (first..).zip(chunks) {
        let making = make_chunk(holding, chunk, blocks)?;
        append(inventory, holding, rebuilt, &tail, &records(chunk, sequence, blocks))?;
        rename(&making, &holding.chunk_path(chunk))?;
        sync(&holding.path)?;
        sequence += blocks.len() as u64;
    }
    Ok(kept)
}

/// Removes every tail of a scan.
pub fn remove_all(inventory: &Inventory) -> Result<(), Error> {
    for path in inventory.holdings.iter().flat_map(|holding| litter_in(&holding.path)) {
        remove(&path)?;
    }
    Ok(())
}

/// Of the tails that have the block behind the last one, the newest.
fn choose(inventory: &Inventory, rebuilt: &Rebuilt, kept: &mut Kept) -> Option<Next> {
    let directory = &inventory.manifest.streams[rebuilt.number].directory;
    let codec = Codec::of_stream(inventory.manifest.uuid, rebuilt.number as u16);
    let (sequence, first) = rebuilt.blocks.last().map_or((0, None), |last| {
        let block = &last.block;
        (block.sequence + 1, Some(block.first.saturating_add(block.frames.into())))
    });
    let mut best: Option<Next> = None;
    let own = inventory.holdings.iter().enumerate().filter(|(_, it)| it.name == *directory);
    for (at, holding) in own {
        for path in tails_in(&holding.path) {
            let tail = read(&path).ok().and_then(|bytes| Tail::read(codec, &bytes));
            let Some(tail) =
                tail.filter(|it| rebuilt.geometry.is_none_or(|is| is == it.picture.geometry))
            else {
                kept.ignored += 1;
                continue;
            };
            if tail.picture.sequence > sequence {
                kept.ignored += 1;
                continue;
            }
            let skip = usize::try_from(sequence - tail.picture.sequence).unwrap_or(usize::MAX);
            // One that was made before the last block was written is of no use any more, as is to be expected.
            let Some(piece) = tail.picture.pieces.get(skip) else { continue };
            if first.is_some_and(|first| piece.first < first) {
                kept.ignored += 1;
                continue;
            }
            if best.as_ref().is_none_or(|best| best.tail.picture.at < tail.picture.at) {
                best = Some(Next { holding: at, tail, skip });
            }
        }
    }
    best
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(LONGEST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A number that no chunk of the stream has, nor one that would lie on a member that is not here.
fn next_chunk(inventory: &Inventory, rebuilt: &Rebuilt, sequence: u64, tail: &Tail) -> u32 {
    let files = inventory.of_stream(rebuilt.number).flat_map(|it| &it.chunks).map(|it| it.0);
    let recorded = rebuilt.blocks.iter().map(|whole| whole.block.chunk);
    let behind = files.chain(recorded).max().map_or(0, |highest| highest.saturating_add(1));
    let reckoned = sequence.div_ceil(u64::from(tail.picture.geometry.chunk_blocks));
    behind.max(u32::try_from(reckoned).unwrap_or(u32::MAX))
}

/// Writes blocks as a chunk under a name that says nothing.
fn make_chunk(
    holding: &Holding,
    chunk: u32,
    blocks: &[(&Piece, &Vec<u8>)],
) -> Result<std::path::PathBuf, Error> {
    step()?;
    let path = holding.side(&format!("tail.{chunk:08}{MAKING_SUFFIX}"));
    let write = || -> io::Result<()> {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o644).open(&path)?;
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

/// What the index says of blocks.
fn records(chunk: u32, sequence: u64, blocks: &[(&Piece, &Vec<u8>)]) -> Vec<Entry> {
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

/// Appends records to the index of a member, which ends with the last that can be trusted.
fn append(
    inventory: &Inventory,
    holding: &Holding,
    rebuilt: &Rebuilt,
    tail: &Tail,
    entries: &[Entry],
) -> Result<(), Error> {
    step()?;
    let path = holding.side(INDEX_FILE);
    let codec = index::Codec::of_scan(inventory.manifest.uuid);
    let write = || -> io::Result<()> {
        let mut file = OpenOptions::new().append(true).create(true).mode(0o644).open(&path)?;
        let geometry = tail.picture.geometry;
        let header = (file.metadata()?.len() == 0).then(|| Entry::Header {
            member: inventory.roots[holding.root].uuid.unwrap_or_default(),
            frame_bytes: geometry.frame_bytes,
            block_bytes: geometry.block_bytes,
            chunk_blocks: geometry.chunk_blocks,
        });
        let all = header.iter().chain(entries);
        let records: Vec<u8> =
            all.flat_map(|entry| codec.encode(rebuilt.number as u16, entry)).collect();
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
