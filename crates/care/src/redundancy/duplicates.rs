//! Finds duplicate chunks, and leftover parity that was made again elsewhere.
//!
//! A rebuild that could not restore all of a scan removes no member from it. If an absent member comes back later, it
//! still holds chunks that have been restored onto other members. And parity whose records are unreadable is made again
//! where there is room, while its old file stays. Neither harms a reader, which uses one of the files. But a program
//! that reads chunk files in place finds a number twice, and the duplicates use disk space.
//!
//! ```text
//! disk0  chunk 4  (came back)          ◄── removed: no block of it is read from here
//! disk3  chunk 4  (was restored here)  ◄── kept: every block of it is read from here and is intact
//! ```
//!
//! So once a scan is whole, a file is removed if its duplicate exists and was read to its end just before.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use fullbore_core::manifest::State;
use fullbore_store::inventory::MemberFiles;
use fullbore_store::lock::sync_directory;
use fullbore_store::read::{ExtentReader, StartError, pool};
use fullbore_store::reader::{BlockLocation, Scan, StoredStream};
use fullbore_store::redundancy::stripe::Stripe;
use fullbore_store::redundancy::{is_parity, is_records, numbered, shard_of, stripes_of};

/// Returns the files of a scan that have a duplicate which was found to be good.
pub fn find(scan: &Scan) -> Result<Vec<PathBuf>, StartError> {
    if scan.manifest.state == State::Recording || !scan.inventory.absent_members().is_empty() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for stream in &scan.streams {
        found.extend(twins(scan, stream)?);
        found.extend(parity(scan, stream)?);
    }
    Ok(found)
}

/// Removes them. Returns the number removed, and the files that could not be removed, with the reasons.
pub fn remove(files: &[PathBuf]) -> (u64, Vec<String>) {
    let (mut removed, mut told) = (0, Vec::new());
    let mut changed: BTreeSet<&Path> = BTreeSet::new();
    for file in files {
        match std::fs::remove_file(file) {
            Ok(()) => {
                removed += 1;
                changed.extend(file.parent());
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => told
                .push(format!("{}: duplicate file, could not be removed: {error}", file.display())),
        }
    }
    for directory in changed {
        if let Err(error) = sync_directory(directory) {
            told.push(format!("{}: {error}", directory.display()));
        }
    }
    (removed, told)
}

/// Returns the chunk files from which no block is read.
fn twins(scan: &Scan, stream: &StoredStream) -> Result<Vec<PathBuf>, StartError> {
    let mut of_chunk: BTreeMap<u32, Vec<&BlockLocation>> = BTreeMap::new();
    for location in &stream.blocks {
        of_chunk.entry(location.block.chunk).or_default().push(location);
    }
    let mut found = Vec::new();
    for (at, holding) in holdings(scan, stream) {
        for (number, file) in &holding.chunks {
            let Some(blocks) = of_chunk.get(number) else { continue };
            let needless = blocks.iter().all(|it| it.holding != at && it.records.is_none());
            if needless && are_good(blocks)? {
                found.push(file.path.clone());
            }
        }
    }
    Ok(found)
}

/// Returns true if each of these blocks is intact at the place that it is read from.
fn are_good(blocks: &[&BlockLocation]) -> Result<bool, StartError> {
    let largest = blocks.iter().map(|it| it.block.bytes as usize).max().unwrap_or(0);
    let mut memory = pool(1, largest)?.take().expect("the pool has one");
    let mut reader = ExtentReader::default();
    Ok(blocks.iter().all(|it| {
        let extent = fullbore_store::read::BlockExtent { stripe: None, ..it.extent() };
        reader.read(&extent, &mut memory).is_ok()
    }))
}

/// Returns the parity chunks that do not count, and the metadata files without a parity chunk.
fn parity(scan: &Scan, stream: &StoredStream) -> Result<Vec<PathBuf>, StartError> {
    let stripes = stripes_of(&scan.inventory, stream.number);
    let counted: BTreeMap<u32, &Stripe> =
        stripes.iter().map(|told| (told.stripe.number, &*told.stripe)).collect();
    // In this case, parity of a stripe whose metadata is unreadable protects nothing.
    let protected = stream.blocks.iter().all(|it| it.stripe.is_some());
    let mut good: BTreeMap<(u32, usize), bool> = BTreeMap::new();
    let mut found = Vec::new();
    for (_, holding) in holdings(scan, stream) {
        for path in &holding.redundant {
            let Some((number, shard)) = named(holding, path) else { continue };
            let Some(stripe) = counted.get(&number) else {
                found.extend(protected.then(|| path.clone()));
                continue;
            };
            let chunk = stripe.parity.get(shard).and_then(Option::as_ref);
            if chunk.is_none_or(|it| it.path.parent() == path.parent()) {
                continue;
            }
            let is_good = match good.get(&(number, shard)) {
                Some(known) => *known,
                None => is_whole(stripe, shard)?,
            };
            good.insert((number, shard), is_good);
            if is_good {
                found.push(path.clone());
            }
        }
    }
    Ok(found)
}

/// Returns the stripe and the shard of a file in the side directory: a parity chunk, or its metadata.
fn named(holding: &MemberFiles, path: &Path) -> Option<(u32, usize)> {
    if !is_parity(&holding.name, path) {
        return is_records(holding, path);
    }
    let (stripe, rest) = numbered(&holding.name, path.file_name()?.to_str()?)?;
    Some((stripe, shard_of("parity", rest)?))
}

/// Returns true if all of a parity chunk is intact.
fn is_whole(stripe: &Stripe, shard: usize) -> Result<bool, StartError> {
    let mut memory = pool(1, stripe.row_bytes)?.take().expect("the pool has one");
    let mut reader = ExtentReader::default();
    let place = stripe.data.len() + shard;
    Ok((0..stripe.rows()).all(|row| stripe.read_row(place, row, &mut reader, &mut memory).is_ok()))
}

fn holdings<'a>(
    scan: &'a Scan,
    stream: &StoredStream,
) -> impl Iterator<Item = (usize, &'a MemberFiles)> + use<'a> {
    let directory = scan.manifest.streams[stream.number].directory.clone();
    let all = scan.inventory.holdings.iter().enumerate();
    all.filter(move |(_, it)| it.name == directory)
}
