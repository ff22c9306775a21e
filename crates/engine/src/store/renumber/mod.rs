//! Chunk files given the order of the stream.
//!
//! When a member dies within a chunk, the rest of it goes on elsewhere under the next free number, behind
//! chunks that are filled already. When the scan is sealed, files are renamed so that the plain
//! order of their numbers is the stream again; the indexes, which only grow, stay as they are, and the
//! manifest says which chunk lies in which file (`docs/decisions/0007-chunk-numbers.md`).
//!
//! ```text
//! manifest: setting-aside ─► every file into .fullbore/<scan-stream>.<chunk>.renaming
//! manifest: placing       ─► every file out of there, under its new number
//! manifest: done
//! ```
//!
//! Each manifest is synced before the next renames, and those before the next manifest. So what the manifest
//! in a directory says tells what a number in sight means there, whenever it ends, and
//! `recover` goes on from there. No two files ever have one name, and no file is ever replaced.

mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use fullbore_core::layout::chunk_file;
use fullbore_core::manifest::{
    ACCOUNT_FILE, INDEX_FILE, MANIFEST_FILE, Manifest, SIDE_DIRECTORY, Stream,
};
use fullbore_core::renamed::{LAST_NUMBER, Numbers, Renamed, Stage};

use self::plan::{Known, Order};
use super::dying;
use super::inventory::{self, Holding, Index, Inventory, RENAMING_SUFFIX};
use super::lock::sync_directory;

/// A renaming that could not be finished. `recover` does.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The scan could not be looked at.
    #[error(transparent)]
    Inventory(#[from] inventory::Error),
    /// A file would have to be replaced.
    #[error("{}: renaming {}: a file of this name is there", to.display(), path.display())]
    Occupied {
        /// The file.
        path: PathBuf,
        /// The name that it should have.
        to: PathBuf,
    },
    /// A file could not be renamed.
    #[error("{}: renaming it to {}: {source}", path.display(), to.display())]
    Rename {
        /// The file.
        path: PathBuf,
        /// The name that it should have.
        to: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Names could not be made durable.
    #[error("{}: syncing the directory: {source}", path.display())]
    Sync {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The manifest of a directory whose files are to be renamed could not be written.
    #[error("{}: writing the manifest{}", path.display(), why.as_ref().map(|why| format!(": {why}")).unwrap_or_default())]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// Why, if it is known.
        why: Option<String>,
    },
}

/// Writes a manifest to every directory of the scan, synced; gives the places where that failed.
pub type Put<'a> = dyn FnMut(&Manifest) -> Result<Vec<PathBuf>, Error> + 'a;

/// Whether a renaming has not been finished. A copy of the manifest that could not be told so, on a member
/// of which nothing was to be renamed, is of no account.
pub fn is_unfinished(inventory: &Inventory) -> bool {
    let manifest = &inventory.manifest;
    manifest.streams.iter().any(is_to_be_renamed)
        || inventory.holdings.iter().any(|holding| is_moving(holding, manifest))
}

/// Whether files of a stream wait for their numbers.
pub fn is_to_be_renamed(stream: &Stream) -> bool {
    stream.renamed.as_ref().is_some_and(|it| it.stage != Stage::Done)
}

/// Says in the manifest which files are to be renamed: none where they are in order. Tells of streams whose
/// files are not, and cannot be put in order.
pub fn plan(inventory: &Inventory, manifest: &mut Manifest) -> Vec<String> {
    let mut told = Vec::new();
    for number in 0..manifest.streams.len() {
        let stream = &manifest.streams[number];
        let before = stream.renamed.clone();
        if before.as_ref().is_some_and(|it| it.stage != Stage::Done) {
            continue;
        }
        match order_of(inventory, manifest, number) {
            Order::Right => {}
            Order::New(pairs) => {
                let round = before.as_ref().map_or(0, |it| it.round).saturating_add(1);
                let before = before.map(|it| it.files).unwrap_or_default();
                // What lies on a member that is not here stays as it is there.
                let told: BTreeSet<u32> = pairs.iter().map(|(chunk, _)| *chunk).collect();
                let others = before.pairs().filter(|(chunk, _)| !told.contains(chunk));
                let files = Numbers::of_pairs(others.chain(pairs.iter().copied()));
                let renamed = Renamed { round, stage: Stage::SettingAside, files, before };
                manifest.streams[number].renamed = Some(renamed);
            }
            Order::Stuck => told.push(format!(
                "the chunk files of {} are not in the order of the stream, and cannot be put in order: files on \
                 members that cannot be written to, or are not there, have the numbers between; \
                 `fullbore cat` gives the stream in order",
                stream.name,
            )),
        }
    }
    told
}

fn order_of(inventory: &Inventory, manifest: &Manifest, number: usize) -> Order {
    let directory = &manifest.streams[number].directory;
    let holdings = || inventory.holdings.iter().filter(|it| it.name == *directory);
    let mut all_seen = inventory.failed_roots.is_empty() && inventory.absent_members().is_empty();
    let mut chunks: BTreeMap<u32, Known> = BTreeMap::new();
    let mut holders: BTreeMap<u32, Vec<&Holding>> = BTreeMap::new();
    for holding in holdings() {
        all_seen &= holding.unlisted.is_empty();
        let Ok(firsts) = first_blocks(holding, manifest, number) else {
            all_seen = false;
            continue;
        };
        let files = holding.chunks.iter().map(|(chunk, _)| (*chunk, None));
        for (chunk, first) in files.chain(firsts.into_iter().map(|(chunk, it)| (chunk, Some(it)))) {
            let file = file_number(holding, chunk);
            let new = Known { chunk, file, first, free: true };
            let known = chunks.entry(chunk).or_insert(new);
            known.first = [known.first, first].into_iter().flatten().min();
            holders.entry(chunk).or_default().push(holding);
        }
    }
    let known = |chunks: &BTreeMap<u32, Known>| chunks.values().copied().collect::<Vec<Known>>();
    if plan::is_right(&known(&chunks)) {
        return Order::Right;
    }
    let renamable: BTreeSet<&Path> =
        holdings().filter(|it| can_be_changed(it)).map(|it| it.path.as_path()).collect();
    for (chunk, known) in &mut chunks {
        known.free = holders[chunk].iter().all(|it| renamable.contains(it.path.as_path()));
    }
    plan::order(&known(&chunks), all_seen)
}

/// The first block of every chunk that the index of a member knows.
fn first_blocks(
    holding: &Holding,
    manifest: &Manifest,
    number: usize,
) -> io::Result<BTreeMap<u32, u64>> {
    let index = match Index::read(&holding.side(INDEX_FILE), manifest.uuid, number as u16) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Index::default(),
        read => read?,
    };
    let mut firsts = BTreeMap::new();
    // No file can bear a longer number.
    for record in index.blocks.iter().filter(|it| it.block.chunk <= LAST_NUMBER) {
        let first = firsts.entry(record.block.chunk).or_insert(record.block.sequence);
        *first = record.block.sequence.min(*first);
    }
    Ok(firsts)
}

/// The number that the file of a chunk has in sight.
fn file_number(holding: &Holding, chunk: u32) -> u32 {
    holding.renamed.as_ref().map_or(chunk, |it| it.in_sight().file_of(chunk))
}

/// Found out by trying: a disk that failed is often still there to be read.
fn can_be_changed(holding: &Holding) -> bool {
    // The name that a new account has before it is complete: whoever tidies up knows it.
    let trial = holding.side(ACCOUNT_FILE).with_extension("new");
    let tried = || -> io::Result<()> {
        File::create(&trial)?.sync_all()?;
        std::fs::remove_file(&trial)?;
        sync_directory(&holding.path.join(SIDE_DIRECTORY))
    };
    tried().is_ok()
}

/// Renames files as the manifest says, from wherever an earlier attempt ended, and says in it that it is done.
pub fn carry_out(
    roots: &[PathBuf],
    manifest: &mut Manifest,
    put: &mut Put<'_>,
) -> Result<(), Error> {
    let inventory = Inventory::take(roots, &manifest.scan)?;
    let moving: BTreeSet<PathBuf> = inventory
        .holdings
        .iter()
        .filter(|it| is_moving(it, manifest))
        .map(|it| it.side(MANIFEST_FILE))
        .collect();
    let mut tell = |manifest: &Manifest| {
        let failed = put(manifest)?.into_iter().find(|path| moving.contains(path));
        failed.map_or(Ok(()), |path| Err(Error::Manifest { path, why: None }))
    };
    let knows = |holding: &Holding| {
        holding.renamed.as_ref().map(|renamed| &renamed.files) == numbers(manifest, holding)
    };
    if inventory.holdings.iter().any(|it| is_moving(it, manifest) && !knows(it)) {
        tell(manifest)?;
    }
    for holding in &inventory.holdings {
        set_aside(holding, manifest)?;
    }
    go_on_to(manifest, Stage::Placing);
    tell(manifest)?;
    for holding in &Inventory::take(roots, &manifest.scan)?.holdings {
        place(holding, manifest)?;
    }
    go_on_to(manifest, Stage::Done);
    tell(manifest)
}

fn go_on_to(manifest: &mut Manifest, stage: Stage) {
    for renamed in manifest.streams.iter_mut().filter_map(|stream| stream.renamed.as_mut()) {
        renamed.stage = stage;
        if stage == Stage::Done {
            renamed.before = Numbers::default();
        }
    }
}

fn numbers<'a>(manifest: &'a Manifest, holding: &Holding) -> Option<&'a Numbers> {
    let stream = manifest.streams.iter().find(|stream| stream.directory == holding.name)?;
    stream.renamed.as_ref().map(|renamed| &renamed.files)
}

fn in_sight(holding: &Holding) -> impl Iterator<Item = (u32, &Path)> {
    let all = holding.chunks.iter().map(|(chunk, file)| (*chunk, file.path.as_path()));
    all.filter(|(_, path)| path.parent() == Some(&holding.path))
}

/// Files that were set aside, with the chunk of each.
fn aside(holding: &Holding) -> impl Iterator<Item = (u32, &Path)> {
    let all = holding.chunks.iter().map(|(chunk, file)| (*chunk, file.path.as_path()));
    all.filter(|(chunk, path)| *path == aside_path(holding, *chunk))
}

fn aside_path(holding: &Holding, chunk: u32) -> PathBuf {
    holding.side(&format!("{}{RENAMING_SUFFIX}", chunk_file(&holding.name, chunk)))
}

/// Files in sight whose number is not the one that they should have.
fn misnamed<'a>(
    holding: &'a Holding,
    numbers: &'a Numbers,
) -> impl Iterator<Item = (u32, &'a Path)> {
    in_sight(holding).filter(|(chunk, _)| file_number(holding, *chunk) != numbers.file_of(*chunk))
}

fn is_moving(holding: &Holding, manifest: &Manifest) -> bool {
    let Some(numbers) = numbers(manifest, holding) else { return false };
    aside(holding).next().is_some() || misnamed(holding, numbers).next().is_some()
}

/// Takes files out of sight, unless all of this directory are, or have come back already.
fn set_aside(holding: &Holding, manifest: &Manifest) -> Result<(), Error> {
    let Some(numbers) = numbers(manifest, holding) else { return Ok(()) };
    let mut moved = false;
    for (chunk, path) in misnamed(holding, numbers) {
        rename(path, &aside_path(holding, chunk))?;
        moved = true;
    }
    if moved || aside(holding).next().is_some() { sync(holding) } else { Ok(()) }
}

/// Gives files their new numbers.
fn place(holding: &Holding, manifest: &Manifest) -> Result<(), Error> {
    let Some(numbers) = numbers(manifest, holding) else { return Ok(()) };
    for (chunk, path) in aside(holding) {
        let name = chunk_file(&holding.name, numbers.file_of(chunk));
        rename(path, &holding.path.join(name))?;
    }
    // An attempt that ended may have left names that are not durable.
    let has_new = holding.chunks.iter().any(|(chunk, _)| numbers.file_of(*chunk) != *chunk);
    if has_new { sync(holding) } else { Ok(()) }
}

fn sync(holding: &Holding) -> Result<(), Error> {
    for path in [holding.path.clone(), holding.path.join(SIDE_DIRECTORY)] {
        sync_directory(&path).map_err(|source| Error::Sync { path, source })?;
    }
    Ok(())
}

/// Renames a file to a name that nothing has.
fn rename(path: &Path, to: &Path) -> Result<(), Error> {
    let failed = |source| Error::Rename { path: path.to_owned(), to: to.to_owned(), source };
    dying::step().map_err(failed)?;
    match std::fs::symlink_metadata(to) {
        Ok(_) => return Err(Error::Occupied { path: path.to_owned(), to: to.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    std::fs::rename(path, to).map_err(failed)
}

#[cfg(test)]
mod tests;
