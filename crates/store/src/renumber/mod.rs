//! Renumbers chunk files in the order of the stream.
//!
//! When a member dies within a chunk, the rest of the chunk is recorded on another member under the next free number,
//! behind chunks that are filled already. When the scan is sealed, files are renamed so that the plain order of their
//! numbers is the order of the stream. The indexes, which only grow, stay unchanged, and the manifest has the file
//! number of each chunk (`docs/decisions/0007-chunk-numbers.md`).
//!
//! ```text
//! manifest: setting-aside ─► every file to .fullbore/<scan-stream>.<chunk>.renaming
//! manifest: placing       ─► every file from there to its new number
//! manifest: done
//! ```
//!
//! Each manifest is synced before the next renames, and those before the next manifest. So the manifest in a directory
//! always tells the meaning of the file numbers there, even after a crash, and `recover` continues from there. No two
//! files ever have one name, and no file is ever replaced.

mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use fullbore_core::chunk_map::{ChunkMap, LAST_NUMBER, RenumberStage, Renumbering};
use fullbore_core::layout::chunk_file;
use fullbore_core::manifest::{
    ACCOUNT_FILE, INDEX_FILE, MANIFEST_FILE, Manifest, SIDE_DIRECTORY, Stream,
};

use self::plan::{Known, Order};
use super::crash_hooks;
use super::inventory::{self, Index, Inventory, MemberFiles, RENAMING_SUFFIX};
use super::lock::sync_directory;

/// A renaming that could not be finished. `recover` finishes it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The inventory could not be taken.
    #[error(transparent)]
    Inventory(#[from] inventory::Error),
    /// A file would have to be replaced.
    #[error("{}: cannot rename {}: a file of this name exists", to.display(), path.display())]
    Occupied {
        /// The file.
        path: PathBuf,
        /// The new name.
        to: PathBuf,
    },
    /// A file could not be renamed.
    #[error("{}: cannot be renamed to {}: {source}", path.display(), to.display())]
    Rename {
        /// The file.
        path: PathBuf,
        /// The new name.
        to: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Names could not be made durable.
    #[error("{}: syncing the directory: {source}", path.display())]
    Sync {
        /// The directory.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The manifest of a directory whose files are to be renamed could not be written.
    #[error("{}: writing the manifest{}", path.display(), why.as_ref().map(|why| format!(": {why}")).unwrap_or_default())]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// The reason, if known.
        why: Option<String>,
    },
}

/// Writes a manifest to every directory of the scan and syncs it; returns the paths where that failed.
pub type Put<'a> = dyn FnMut(&Manifest) -> Result<Vec<PathBuf>, Error> + 'a;

/// Returns true if a renaming is unfinished. An outdated copy of the manifest on a member without files to rename does
/// not count.
pub fn is_unfinished(inventory: &Inventory) -> bool {
    let manifest = &inventory.manifest;
    manifest.streams.iter().any(is_to_be_renamed)
        || inventory.holdings.iter().any(|holding| is_moving(holding, manifest))
}

/// Returns true if files of a stream wait for their numbers.
pub fn is_to_be_renamed(stream: &Stream) -> bool {
    stream.renamed.as_ref().is_some_and(|it| it.stage != RenumberStage::Done)
}

/// Enters the files to be renamed into the manifest: none if they are in order. Returns warnings about streams whose
/// files are out of order and cannot be renamed.
pub fn plan(inventory: &Inventory, manifest: &mut Manifest) -> Vec<String> {
    let mut told = Vec::new();
    for number in 0..manifest.streams.len() {
        let stream = &manifest.streams[number];
        let before = stream.renamed.clone();
        if before.as_ref().is_some_and(|it| it.stage != RenumberStage::Done) {
            continue;
        }
        match order_of(inventory, manifest, number) {
            Order::Right => {}
            Order::New(pairs) => {
                let round = before.as_ref().map_or(0, |it| it.round).saturating_add(1);
                let before = before.map(|it| it.files).unwrap_or_default();
                // Files on an absent member are not renamed.
                let told: BTreeSet<u32> = pairs.iter().map(|(chunk, _)| *chunk).collect();
                let others = before.pairs().filter(|(chunk, _)| !told.contains(chunk));
                let files = ChunkMap::of_pairs(others.chain(pairs.iter().copied()));
                let renamed = Renumbering { round, stage: RenumberStage::SettingAside, files, before };
                manifest.streams[number].renamed = Some(renamed);
            }
            Order::Stuck => told.push(format!(
                "the chunk files of {} are not in the order of the stream, and cannot be put in order: files on \
                 members that are read-only or absent have the numbers between; `fullbore cat` writes \
                 the stream in order",
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
    let mut holders: BTreeMap<u32, Vec<&MemberFiles>> = BTreeMap::new();
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

/// Returns the first block of every chunk in the index of a member.
fn first_blocks(
    holding: &MemberFiles,
    manifest: &Manifest,
    number: usize,
) -> io::Result<BTreeMap<u32, u64>> {
    let index = match Index::read(&holding.side(INDEX_FILE), manifest.uuid, number as u16) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Index::default(),
        read => read?,
    };
    let mut firsts = BTreeMap::new();
    // No file name has room for a longer number.
    for record in index.blocks.iter().filter(|it| it.block.chunk <= LAST_NUMBER) {
        let first = firsts.entry(record.block.chunk).or_insert(record.block.sequence);
        *first = record.block.sequence.min(*first);
    }
    Ok(firsts)
}

/// Returns the number of a chunk's file.
fn file_number(holding: &MemberFiles, chunk: u32) -> u32 {
    holding.renamed.as_ref().map_or(chunk, |it| it.in_sight().file_of(chunk))
}

/// Returns true if the directory is writable, by a trial: a failed disk can often still be read.
fn can_be_changed(holding: &MemberFiles) -> bool {
    // The temporary name of a new account: every cleanup removes it.
    let trial = holding.side(ACCOUNT_FILE).with_extension("new");
    let tried = || -> io::Result<()> {
        File::create(&trial)?.sync_all()?;
        std::fs::remove_file(&trial)?;
        sync_directory(&holding.path.join(SIDE_DIRECTORY))
    };
    tried().is_ok()
}

/// Renames files as the manifest says, continuing an earlier attempt, and marks the renaming as done in the manifest.
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
    let knows = |holding: &MemberFiles| {
        holding.renamed.as_ref().map(|renamed| &renamed.files) == numbers(manifest, holding)
    };
    if inventory.holdings.iter().any(|it| is_moving(it, manifest) && !knows(it)) {
        tell(manifest)?;
    }
    for holding in &inventory.holdings {
        set_aside(holding, manifest)?;
    }
    go_on_to(manifest, RenumberStage::Placing);
    tell(manifest)?;
    for holding in &Inventory::take(roots, &manifest.scan)?.holdings {
        place(holding, manifest)?;
    }
    go_on_to(manifest, RenumberStage::Done);
    tell(manifest)
}

fn go_on_to(manifest: &mut Manifest, stage: RenumberStage) {
    for renamed in manifest.streams.iter_mut().filter_map(|stream| stream.renamed.as_mut()) {
        renamed.stage = stage;
        if stage == RenumberStage::Done {
            renamed.before = ChunkMap::default();
        }
    }
}

fn numbers<'a>(manifest: &'a Manifest, holding: &MemberFiles) -> Option<&'a ChunkMap> {
    let stream = manifest.streams.iter().find(|stream| stream.directory == holding.name)?;
    stream.renamed.as_ref().map(|renamed| &renamed.files)
}

fn in_sight(holding: &MemberFiles) -> impl Iterator<Item = (u32, &Path)> {
    let all = holding.chunks.iter().map(|(chunk, file)| (*chunk, file.path.as_path()));
    all.filter(|(_, path)| path.parent() == Some(&holding.path))
}

/// Returns files that were set aside, with the chunk of each.
fn aside(holding: &MemberFiles) -> impl Iterator<Item = (u32, &Path)> {
    let all = holding.chunks.iter().map(|(chunk, file)| (*chunk, file.path.as_path()));
    all.filter(|(chunk, path)| *path == aside_path(holding, *chunk))
}

fn aside_path(holding: &MemberFiles, chunk: u32) -> PathBuf {
    holding.side(&format!("{}{RENAMING_SUFFIX}", chunk_file(&holding.name, chunk)))
}

/// Returns files in place whose number differs from the one that they should have.
fn misnamed<'a>(
    holding: &'a MemberFiles,
    numbers: &'a ChunkMap,
) -> impl Iterator<Item = (u32, &'a Path)> {
    in_sight(holding).filter(|(chunk, _)| file_number(holding, *chunk) != numbers.file_of(*chunk))
}

fn is_moving(holding: &MemberFiles, manifest: &Manifest) -> bool {
    let Some(numbers) = numbers(manifest, holding) else { return false };
    aside(holding).next().is_some() || misnamed(holding, numbers).next().is_some()
}

/// Sets files aside, unless all files of this directory are set aside already, or have been renamed back.
fn set_aside(holding: &MemberFiles, manifest: &Manifest) -> Result<(), Error> {
    let Some(numbers) = numbers(manifest, holding) else { return Ok(()) };
    let mut moved = false;
    for (chunk, path) in misnamed(holding, numbers) {
        rename(path, &aside_path(holding, chunk))?;
        moved = true;
    }
    if moved || aside(holding).next().is_some() { sync(holding) } else { Ok(()) }
}

/// Renames files to their new numbers.
fn place(holding: &MemberFiles, manifest: &Manifest) -> Result<(), Error> {
    let Some(numbers) = numbers(manifest, holding) else { return Ok(()) };
    for (chunk, path) in aside(holding) {
        let name = chunk_file(&holding.name, numbers.file_of(chunk));
        rename(path, &holding.path.join(name))?;
    }
    // An interrupted attempt may have left names that are not durable.
    let has_new = holding.chunks.iter().any(|(chunk, _)| numbers.file_of(*chunk) != *chunk);
    if has_new { sync(holding) } else { Ok(()) }
}

fn sync(holding: &MemberFiles) -> Result<(), Error> {
    for path in [holding.path.clone(), holding.path.join(SIDE_DIRECTORY)] {
        sync_directory(&path).map_err(|source| Error::Sync { path, source })?;
    }
    Ok(())
}

/// Renames a file to an unused name.
fn rename(path: &Path, to: &Path) -> Result<(), Error> {
    let failed = |source| Error::Rename { path: path.to_owned(), to: to.to_owned(), source };
    crash_hooks::step().map_err(failed)?;
    match std::fs::symlink_metadata(to) {
        Ok(_) => return Err(Error::Occupied { path: path.to_owned(), to: to.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    std::fs::rename(path, to).map_err(failed)
}
