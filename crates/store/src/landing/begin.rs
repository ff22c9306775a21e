//! Begins a copy, or finds the interrupted one and continues it.
//!
//! A directory of the copy gets its name with the manifest in it, by a rename that replaces nothing. So a directory
//! without a manifest is never ours, and another process never sees one that is half made.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};

use fullbore_core::index::{Block, Codec, Entry, RECORD_BYTES};
use fullbore_core::layout::{ALIGNMENT, Geometry};
use fullbore_core::manifest::{Copied, MANIFEST_FILE, Manifest, SIDE_DIRECTORY, State as Stage};
use fullbore_core::name::ScanName;
use fullbore_linux::clock::Clock;
use fullbore_linux::regular_file;

use super::chunks::{ChunkFile, Place};
use super::error::LandingError;
use super::rounds::{IndexFile, Rounds, index_path};
use super::state::{State, StreamState};
use super::{Landing, Origin, seal, validate};
use crate::disk::{make_directories, put_in_place};
use crate::inventory::{
    ChunkFile as Found, Copy, Inventory, MemberFiles, is_of_scan, read_manifest, read_on, side_file,
};
use crate::journal::{Journal, SyncTarget};
use crate::lock::{ScanLock, put_file, sync_directory};
use crate::{Member, crash_hooks};

/// Begins or continues a copy.
pub fn begin(
    members: &[Member],
    sent: &Manifest,
    origin: &Origin,
    bytes: u64,
) -> Result<Landing, LandingError> {
    validate::check_manifest(sent).map_err(LandingError::Manifest)?;
    if members.is_empty() {
        return Err(LandingError::NoMember);
    }
    for member in members {
        member.is_there().map_err(LandingError::write(member.root()))?;
    }
    let places: Vec<Place> = members.iter().cloned().map(Place::new).collect();
    let copied = Copied {
        host: validate::printable(&origin.host),
        key: validate::printable(&origin.key),
        begun: Clock::new().now(),
        completed: None,
    };
    let found = find(&places, sent)?;
    if found.is_empty() {
        return begin_new(places, sent, copied, bytes);
    }
    let locks = lock_all(&found)?;
    // The former owner of the lock may have changed the scan.
    let found = find(&places, sent)?;
    go_on(places, sent, copied, bytes, found, locks)
}

/// A directory of the copy on a member, with its manifest.
struct OwnDirectory {
    path: PathBuf,
    manifest: Manifest,
}

/// Finds the directories of the copy. Any other directory of this name is an error.
fn find(places: &[Place], sent: &Manifest) -> Result<Vec<OwnDirectory>, LandingError> {
    let scan = sent.scan.to_string();
    let mut found = Vec::new();
    for place in places {
        let root = place.member.root();
        for entry in std::fs::read_dir(root).map_err(LandingError::read(root))? {
            let name = entry.map_err(LandingError::read(root))?.file_name();
            let Some(name) = name.to_str().filter(|name| is_of_scan(name, &scan)) else { continue };
            let path = root.join(name);
            match read_manifest(&side_file(&path, MANIFEST_FILE)) {
                Copy::Read(manifest) if manifest.uuid == sent.uuid && manifest.copied.is_some() => {
                    found.push(OwnDirectory { path, manifest });
                }
                _ => return Err(LandingError::Exists { path }),
            }
        }
    }
    Ok(found)
}

/// Locks the copy on every member that has its first directory.
fn lock_all(found: &[OwnDirectory]) -> Result<Vec<ScanLock>, LandingError> {
    let is_first = |it: &&OwnDirectory| {
        let first = it.manifest.streams.first();
        first.is_some_and(|first| it.path.ends_with(&first.directory))
    };
    let paths = found.iter().filter(is_first).map(|it| side_file(&it.path, MANIFEST_FILE));
    paths.map(|path| Ok(ScanLock::take(&path)?)).collect()
}

fn begin_new(
    places: Vec<Place>,
    sent: &Manifest,
    copied: Copied,
    bytes: u64,
) -> Result<Landing, LandingError> {
    check_room(&places, bytes)?;
    let members = places.iter().map(|place| validate::listed(&place.member)).collect();
    let manifest = validate::arriving(sent, members, copied);
    let mut rounds = Rounds { manifest, locks: Vec::new(), indexes: Vec::new(), sealed: None };
    if let Err(error) = make_missing(&places, &mut rounds) {
        // Another scan took the name on a member in the meantime. The first error is the one to report.
        let _ = discard(&places, &rounds);
        return Err(error);
    }
    Ok(landing(places, rounds, State::default()))
}

/// Removes the directories of a copy that did not begin: they hold nothing.
fn discard(places: &[Place], rounds: &Rounds) -> io::Result<()> {
    for (place, stream) in places
        .iter()
        .flat_map(|place| rounds.manifest.streams.iter().map(move |stream| (place, stream)))
    {
        let path = place.member.root().join(&stream.directory);
        let copy = read_manifest(&side_file(&path, MANIFEST_FILE));
        if copy.get() == Some(&rounds.manifest) {
            crash_hooks::step()?;
            std::fs::remove_dir_all(&path)?;
        }
    }
    Ok(())
}

/// Makes the directories that are missing, each with the manifest, and locks the copy on each member.
fn make_missing(places: &[Place], rounds: &mut Rounds) -> Result<(), LandingError> {
    let json = rounds.manifest.to_json();
    for place in places {
        let mut is_first = true;
        for stream in &rounds.manifest.streams {
            let directory = &stream.directory;
            if !place.member.root().join(directory).exists() {
                let lock = make_directory(&place.member, rounds.manifest.uuid, directory, &json)?;
                if is_first {
                    rounds.locks.push(lock);
                }
            }
            is_first = false;
        }
    }
    Ok(())
}

/// Makes a directory with its manifest under another name, and renames it.
fn make_directory(
    member: &Member,
    scan: uuid::Uuid,
    directory: &str,
    json: &[u8],
) -> Result<ScanLock, LandingError> {
    let (root, access) = (member.root(), member.access());
    let aside = format!("{SIDE_DIRECTORY}/arriving-{scan}");
    let (from, to) = (root.join(&aside), root.join(directory));
    let make = || -> io::Result<()> {
        match std::fs::remove_dir_all(&from) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        crash_hooks::step()?;
        make_directories(root, &aside, access, true)
    };
    make().map_err(LandingError::write(&from))?;
    crash_hooks::step().map_err(LandingError::write(&from))?;
    let lock = ScanLock::create(&side_file(&from, MANIFEST_FILE), json)?;
    let name = || -> io::Result<()> {
        sync_directory(&from)?;
        crash_hooks::step()?;
        put_in_place(&from, &to)?;
        sync_directory(root)
    };
    match name() {
        Ok(()) => Ok(lock.moved_to(side_file(&to, MANIFEST_FILE))),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // The directory aside is removed by the next attempt, at the latest.
            let _ = std::fs::remove_dir_all(&from);
            Err(LandingError::Exists { path: to })
        }
        Err(source) => Err(LandingError::Write { path: to, source }),
    }
}

fn go_on(
    places: Vec<Place>,
    sent: &Manifest,
    mut copied: Copied,
    bytes: u64,
    found: Vec<OwnDirectory>,
    mut locks: Vec<ScanLock>,
) -> Result<Landing, LandingError> {
    let is_sealed = |it: &&OwnDirectory| it.manifest.state != Stage::Recording;
    if let Some(sealed) = found.iter().find(is_sealed) {
        if sealed.manifest.copied.as_ref().is_none_or(|it| it.completed.is_none()) {
            // `recover` made a scan of its own of what had arrived.
            return Err(LandingError::Exists { path: sealed.path.clone() });
        }
        let sealed = seal::complete(&places, &sent.scan, &mut locks)?;
        return Err(LandingError::Complete { scan: sent.scan.clone(), sealed });
    }
    let manifests = || found.iter().map(|it| &it.manifest);
    let Some(before) = manifests().max_by_key(|it| it.streams.len()) else {
        return Err(LandingError::NoMember);
    };
    validate::check_continues(sent, before).map_err(LandingError::Manifest)?;
    check_members(&places, &sent.scan, manifests())?;
    copied.begun = manifests()
        .filter_map(|it| it.copied.as_ref())
        .map(|it| it.begun)
        .min()
        .unwrap_or(copied.begun);
    let members = places.iter().map(|place| validate::listed(&place.member)).collect();
    let manifest = validate::arriving(sent, members, copied);
    let mut rounds = Rounds { manifest, locks, indexes: Vec::new(), sealed: None };
    let mut state = State::default();
    let mut durable = 0;
    for (number, stream) in rounds.manifest.streams.iter().enumerate() {
        let (stream, indexes, stored) =
            restore(&places, &rounds.manifest, number as u16, &stream.directory, stream.geometry)?;
        state.streams.push(stream);
        rounds.indexes.push(indexes);
        durable += stored;
    }
    check_room(&places, bytes.saturating_sub(durable))?;
    make_missing(&places, &mut rounds)?;
    put_manifests(&places, &mut rounds)?;
    Ok(landing(places, rounds, state))
}

/// Checks that every member of the interrupted copy is given.
fn check_members<'a>(
    places: &[Place],
    scan: &ScanName,
    manifests: impl Iterator<Item = &'a Manifest>,
) -> Result<(), LandingError> {
    let given: BTreeSet<_> = places.iter().map(|place| place.member.uuid()).collect();
    let listed = manifests.flat_map(|it| &it.members).filter(|it| !given.contains(&it.uuid));
    let absent: BTreeSet<PathBuf> = listed.map(|it| it.path.clone()).collect();
    match absent.is_empty() {
        true => Ok(()),
        false => Err(LandingError::MembersAbsent {
            scan: scan.clone(),
            members: absent.into_iter().collect(),
        }),
    }
}

/// Checks that this many bytes fit on the members. Members on one file system share its space.
fn check_room(places: &[Place], needed: u64) -> Result<(), LandingError> {
    let mut of_device = BTreeMap::new();
    for place in places {
        let root = place.member.root();
        let device = root.metadata().map_err(LandingError::read(root))?.dev();
        of_device.insert(device, place.member.free_bytes()?);
    }
    let free = of_device.values().fold(0u64, |sum, free| sum.saturating_add(*free));
    if needed > free { Err(LandingError::NoSpace { needed, free }) } else { Ok(()) }
}

/// Writes the manifest to every directory of the copy.
pub fn put_manifests(places: &[Place], rounds: &mut Rounds) -> Result<(), LandingError> {
    let roots: Vec<&Path> = places.iter().map(|place| place.member.root()).collect();
    put_manifest(&roots, &rounds.manifest, &mut rounds.locks)
}

/// Writes a manifest to every directory of a scan on these roots: those with a lock last.
pub fn put_manifest(
    roots: &[&Path],
    manifest: &Manifest,
    locks: &mut [ScanLock],
) -> Result<(), LandingError> {
    let json = manifest.to_json();
    for stream in manifest.streams.iter().rev() {
        for root in roots {
            let path = side_file(&root.join(&stream.directory), MANIFEST_FILE);
            if !path.parent().is_some_and(Path::is_dir) {
                continue;
            }
            crash_hooks::step().map_err(LandingError::write(&path))?;
            match locks.iter_mut().find(|lock| lock.path() == path) {
                Some(lock) => lock.replace(&json)?,
                None => put_file(&path, &json).map_err(LandingError::write(&path))?,
            }
        }
    }
    Ok(())
}

fn landing(places: Vec<Place>, mut rounds: Rounds, mut state: State) -> Landing {
    add_streams(&places, &mut rounds, &mut state);
    Landing {
        scan: rounds.manifest.scan.clone(),
        codec: Codec::of_scan(rounds.manifest.uuid),
        places,
        state: Mutex::new(state),
        rounds: Mutex::new(rounds),
        fresh: AtomicU64::new(0),
        turn: AtomicUsize::new(0),
    }
}

/// Adds the streams of the manifest that are new, and what is new of the others.
fn add_streams(places: &[Place], rounds: &mut Rounds, state: &mut State) {
    for (number, stream) in rounds.manifest.streams.iter().enumerate() {
        match state.streams.get_mut(number) {
            Some(known) => known.geometry = stream.geometry,
            None => {
                let new = StreamState::new(&stream.directory, stream.geometry, places.len());
                state.streams.push(new);
                let index = |place: &Place| {
                    IndexFile::new(index_path(place, &stream.directory), place.member.uuid(), 0)
                };
                rounds.indexes.push(places.iter().map(index).collect());
            }
        }
    }
}

impl Landing {
    /// Takes on a newer manifest of the sender.
    pub(super) fn take_manifest(
        &self,
        rounds: &mut Rounds,
        sent: &Manifest,
    ) -> Result<(), LandingError> {
        validate::check_manifest(sent).map_err(LandingError::Manifest)?;
        validate::check_continues(sent, &rounds.manifest).map_err(LandingError::Manifest)?;
        if rounds.sealed.is_some() || self.state().closed {
            return Err(LandingError::Closed);
        }
        let before = rounds.manifest.clone();
        let Some(copied) = before.copied.clone() else { return Ok(()) };
        let newer = validate::arriving(sent, before.members.clone(), copied);
        if newer == before {
            return Ok(());
        }
        rounds.manifest = newer;
        let put =
            make_missing(&self.places, rounds).and_then(|()| put_manifests(&self.places, rounds));
        if put.is_err() {
            // The next one is compared with what this copy knows.
            rounds.manifest = before;
            return put;
        }
        add_streams(&self.places, rounds, &mut self.state());
        Ok(())
    }
}

/// The durable part of an index.
#[derive(Default)]
struct Trusted {
    member: Option<uuid::Uuid>,
    blocks: Vec<Block>,
    /// End of the last mark.
    end: u64,
}

/// Restores a stream of an interrupted copy: the blocks that marks cover. Returns its indexes and durable bytes too.
fn restore(
    places: &[Place],
    manifest: &Manifest,
    number: u16,
    directory: &str,
    geometry: Option<Geometry>,
) -> Result<(StreamState, Vec<IndexFile>, u64), LandingError> {
    let mut stream = StreamState::new(directory, geometry, places.len());
    let (mut indexes, mut bytes) = (Vec::new(), 0);
    for (member, place) in places.iter().enumerate() {
        let path = index_path(place, directory);
        let trusted = read_index(&path, Codec::of_scan(manifest.uuid), number)?;
        let lost = |why: String| LandingError::Lost { path: path.clone(), why };
        if trusted.end > 0 && trusted.member != Some(place.member.uuid()) {
            return Err(lost("it is the index of another member".into()));
        }
        let mut files = files_of(place, directory);
        for block in &trusted.blocks {
            let file = || {
                let found = files.get(&block.chunk);
                let space = found.map_or(0, |it| it.bytes / ALIGNMENT * ALIGNMENT);
                let placed = found.is_some_and(|it| !it.unfinished);
                let name: Arc<str> = directory.into();
                let geometry = geometry.unwrap_or(Geometry {
                    frame_bytes: 0,
                    block_bytes: 0,
                    chunk_blocks: 0,
                });
                ChunkFile::existing(name, block.chunk, geometry, member, space, placed)
            };
            if !stream.restore(member, block, file) {
                return Err(lost(format!("block {} cannot be where it says", block.sequence)));
            }
            bytes += u64::from(block.bytes);
        }
        check_files(places, member, &stream, &trusted, &mut files)?;
        let part = &mut stream.parts[member];
        part.journal = Journal::continued(trusted.blocks.len() as u64);
        // Names that were made may not be durable yet.
        for target in [SyncTarget::Root, SyncTarget::Directory, SyncTarget::Side] {
            part.journal.step(crate::journal::Event::Touched(target));
        }
        indexes.push(IndexFile::new(path, place.member.uuid(), trusted.end));
    }
    for chunk in stream.chunks.values() {
        chunk.file.promise(places);
        if chunk.full {
            chunk.file.place(places)?;
        }
    }
    Ok((stream, indexes, bytes))
}

/// The chunk files of a stream on a member.
fn files_of(place: &Place, directory: &str) -> BTreeMap<u32, Found> {
    let files = MemberFiles::look(0, place.member.root(), directory);
    files.map(|it| it.chunks).unwrap_or_default().into_iter().collect()
}

/// Checks that the files hold the durable blocks. Removes files without any: they were begun and not synced.
fn check_files(
    places: &[Place],
    member: usize,
    stream: &StreamState,
    trusted: &Trusted,
    files: &mut BTreeMap<u32, Found>,
) -> Result<(), LandingError> {
    let chunks: BTreeSet<u32> = trusted.blocks.iter().map(|block| block.chunk).collect();
    for number in &chunks {
        let chunk = &stream.chunks[number];
        let path = chunk.file.path_of(places);
        let lost = |why: String| LandingError::Lost { path: path.clone(), why };
        if chunk.file.member() != Some(member) {
            return Err(lost("two members hold blocks of one chunk".into()));
        }
        match files.remove(number) {
            None => return Err(lost("the file is gone".into())),
            Some(file) if file.bytes < chunk.end => {
                return Err(lost(format!("it has {} bytes of {}", file.bytes, chunk.end)));
            }
            Some(_) => {}
        }
    }
    for file in files.values() {
        if !file.unfinished {
            let why = "its index has no durable block of it".to_owned();
            return Err(LandingError::Lost { path: file.path.clone(), why });
        }
        crash_hooks::step()
            .and_then(|()| std::fs::remove_file(&file.path))
            .map_err(LandingError::write(&file.path))?;
    }
    Ok(())
}

/// Reads an index up to its last mark, and truncates it there: what follows was never reported as durable.
fn read_index(path: &Path, codec: Codec, stream: u16) -> Result<Trusted, LandingError> {
    let file = match regular_file::open_with(OpenOptions::new().read(true).write(true), path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Trusted::default()),
        file => file.map_err(LandingError::read(path))?,
    };
    let mut trusted = Trusted::default();
    let (mut at, mut records, mut durable) = (0, 0u64, 0);
    read_on(&file, &mut at, codec, stream, |entry, _| {
        records += 1;
        match entry {
            Entry::Header { member, .. } if records == 1 => trusted.member = Some(member),
            Entry::Block(block) => trusted.blocks.push(block),
            Entry::Mark { blocks, .. } if blocks == trusted.blocks.len() as u64 => {
                (trusted.end, durable) = (records * RECORD_BYTES as u64, trusted.blocks.len());
            }
            _ => {}
        }
    })
    .map_err(LandingError::read(path))?;
    trusted.blocks.truncate(durable);
    let cut = || -> io::Result<()> {
        if file.metadata()?.len() == trusted.end {
            return Ok(());
        }
        crash_hooks::step()?;
        file.set_len(trusted.end)?;
        file.sync_all()
    };
    cut().map_err(LandingError::write(path))?;
    Ok(trusted)
}

/// The manifest in use of a scan on these members.
pub fn inventory(places: &[Place], scan: &ScanName) -> Result<Inventory, LandingError> {
    let roots: Vec<PathBuf> = places.iter().map(|it| it.member.root().to_owned()).collect();
    Ok(Inventory::take(&roots, scan)?)
}
