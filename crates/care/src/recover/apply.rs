//! Applies the result of the examination to the files of a stream.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use fullbore_core::gap::Gap;
use fullbore_core::index::{Codec, Entry, RECORD_BYTES};
use fullbore_core::layout::chunk_file;
use fullbore_core::manifest::{INDEX_FILE, SIDE_DIRECTORY};
use fullbore_linux::clock::Clock;
use fullbore_linux::regular_file;
use fullbore_store::inventory::{Inventory, MemberFiles, SUPERSEDED_SUFFIX};
use fullbore_store::lock::sync_directory;
use fullbore_store::{SPARE_FILE, crash_hooks};

use super::Error;
use super::reconstruct::Reconstructed;
use super::scan_chunks::{Chunk, MemberPart};

/// Called before every change of a file: a test crashes at each of them in turn.
pub(super) fn step() -> Result<(), Error> {
    crash_hooks::step().map_err(|died| write_error(Path::new("anything"), "dying", died))
}

/// Cuts the chunks of every member and renames them into place, then replaces the indexes that are wrong.
pub fn apply(inventory: &Inventory, reconstructed: &Reconstructed) -> Result<(), Error> {
    for part in &reconstructed.parts {
        let holding = &inventory.holdings[part.holding];
        place_chunks(holding, part)?;
    }
    // The first member that has an index gets the gaps that are in no index.
    let mut new_gaps = reconstructed.new_gaps.as_slice();
    for (at, part) in reconstructed.parts.iter().enumerate() {
        let holding = &inventory.holdings[part.holding];
        let additions = Additions::of(reconstructed, at, std::mem::take(&mut new_gaps));
        write_index(inventory, holding, reconstructed, part, &additions)?;
    }
    Ok(())
}

fn place_chunks(holding: &MemberFiles, part: &MemberPart) -> Result<(), Error> {
    for chunk in &part.chunks {
        place_chunk(holding, chunk)?;
    }
    remove(&holding.side(SPARE_FILE))?;
    for directory in [holding.path.join(SIDE_DIRECTORY), holding.path.clone()] {
        sync_directory(&directory)
            .map_err(|source| write_error(&directory, "syncing the directory", source))?;
    }
    Ok(())
}

fn place_chunk(holding: &MemberFiles, chunk: &Chunk) -> Result<(), Error> {
    let Some(file) = &chunk.file else { return Ok(()) };
    let name = chunk_file(&holding.name, chunk.number);
    // A complete chunk may hold the user's data, even if none of it matches its records.
    if chunk.superseded || (chunk.end == 0 && !file.unfinished && file.bytes > 0) {
        let aside = holding.side(&format!("{name}{SUPERSEDED_SUFFIX}"));
        return rename(&file.path, &aside);
    }
    if chunk.end == 0 {
        return remove(&file.path);
    }
    if file.bytes > chunk.end {
        cut(&file.path, chunk.end)?;
    }
    if file.unfinished {
        rename(&file.path, &holding.chunk_path(chunk.number))?;
    }
    Ok(())
}

fn cut(path: &Path, bytes: u64) -> Result<(), Error> {
    step()?;
    let cut = || -> io::Result<()> {
        let file = regular_file::open_with(OpenOptions::new().write(true), path)?;
        file.set_len(bytes)?;
        file.sync_all()
    };
    cut().map_err(|source| write_error(path, "cutting it to its true size", source))
}

pub(super) fn rename(from: &Path, to: &Path) -> Result<(), Error> {
    step()?;
    std::fs::rename(from, to).map_err(|source| write_error(from, "putting it in place", source))
}

pub(super) fn remove(path: &Path) -> Result<(), Error> {
    step()?;
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result.map_err(|source| write_error(path, "removing it", source)),
    }
}

pub(super) fn write_error(path: &Path, doing: &'static str, source: io::Error) -> Error {
    Error::Write { path: path.to_owned(), doing, source }
}

/// Records that a member's index lacks.
struct Additions {
    entries: Vec<Entry>,
    /// The number of blocks that the index will have.
    blocks: u64,
}

impl Additions {
    fn of(reconstructed: &Reconstructed, part: usize, gaps: &[Gap]) -> Self {
        let own = || reconstructed.blocks.iter().filter(|whole| whole.part == part);
        let found = || own().filter(|whole| whole.found).map(|whole| whole.block);
        let mut entries: Vec<Entry> = runs(found().map(|block| block.sequence))
            .into_iter()
            .map(|(first, count)| Entry::Found { first, count })
            .collect();
        entries.extend(found().map(Entry::Block));
        entries.extend(gaps.iter().copied().map(Entry::Gap));
        Self { entries, blocks: own().count() as u64 }
    }
}

/// Returns consecutive numbers as pairs of first number and count.
fn runs(sequences: impl Iterator<Item = u64>) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for sequence in sequences {
        match runs.last_mut() {
            Some((first, count)) if *first + *count == sequence => *count += 1,
            _ => runs.push((sequence, 1)),
        }
    }
    runs
}

/// Replaces an index by its valid records and the missing ones; leaves a correct index alone.
fn write_index(
    inventory: &Inventory,
    holding: &MemberFiles,
    reconstructed: &Reconstructed,
    part: &MemberPart,
    additions: &Additions,
) -> Result<(), Error> {
    let path = holding.side(INDEX_FILE);
    let clean = part.index.file_bytes == part.index.trusted_bytes();
    if clean && part.dropped.is_empty() && additions.entries.is_empty() {
        return Ok(());
    }
    step()?;
    let aside = path.with_extension("new");
    let write = || -> io::Result<()> {
        remove_quietly(&aside)?;
        let file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&aside)?;
        let mut to = BufWriter::with_capacity(1 << 20, file);
        let codec = Codec::of_scan(inventory.manifest.uuid);
        copy_records(&path, part, codec, &mut to)?;
        for entry in
            header(inventory, holding, reconstructed, part).iter().chain(&additions.entries)
        {
            to.write_all(&codec.encode(reconstructed.number as u16, entry))?;
        }
        let mark = Entry::Mark { blocks: additions.blocks, at: Clock::new().now() };
        to.write_all(&codec.encode(reconstructed.number as u16, &mark))?;
        to.into_inner()?.sync_all()?;
        std::fs::rename(&aside, &path)?;
        sync_directory(&holding.path.join(SIDE_DIRECTORY))
    };
    write().map_err(|source| write_error(&path, "writing the index", source))
}

fn remove_quietly(path: &PathBuf) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Returns the header record for an index that has none.
fn header(
    inventory: &Inventory,
    holding: &MemberFiles,
    reconstructed: &Reconstructed,
    part: &MemberPart,
) -> Option<Entry> {
    let geometry = reconstructed.geometry.filter(|_| part.index.records == 0)?;
    Some(Entry::Header {
        member: inventory.roots[holding.root].uuid.unwrap_or_default(),
        frame_bytes: geometry.frame_bytes,
        block_bytes: geometry.block_bytes,
        chunk_blocks: geometry.chunk_blocks,
    })
}

/// Copies the valid records, without those of dropped blocks.
fn copy_records(
    path: &Path,
    part: &MemberPart,
    codec: Codec,
    to: &mut impl Write,
) -> io::Result<()> {
    if part.index.records == 0 {
        return Ok(());
    }
    let mut from = BufReader::with_capacity(1 << 20, regular_file::open(path)?);
    let mut record = [0; RECORD_BYTES];
    for _ in 0..part.index.records {
        from.read_exact(&mut record)?;
        let (_, entry) = codec
            .decode(&record)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        if stays(&entry, &part.dropped) {
            to.write_all(&record)?;
        }
    }
    Ok(())
}

fn stays(entry: &Entry, dropped: &BTreeSet<u64>) -> bool {
    match entry {
        Entry::Block(block) => !dropped.contains(&block.sequence),
        Entry::Lengths { sequence, .. } => !dropped.contains(sequence),
        Entry::Header { .. } | Entry::Gap(_) | Entry::Mark { .. } | Entry::Found { .. } => true,
        Entry::Stripe(_) | Entry::Rows { .. } => true,
    }
}
