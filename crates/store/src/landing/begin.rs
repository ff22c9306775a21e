//! Begins a copy, or finds the interrupted one and continues it.
//!
//! A directory of the copy gets its name with the manifest in it, by a rename that replaces nothing. So a directory
//! without a manifest is never ours, and another process never sees one that is half made.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
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
        source: Vec::new(),
        unreadable_blocks: 0,
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
    let mut rounds = Rounds { manifest, locks: Vec::new(), sealed: None };
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
            return Err(LandingError::Recovered { scan: sent.scan.clone() });
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
    let mut rounds = Rounds { manifest, locks, sealed: None };
    let mut state = State::default();
    let mut there = 0;
    for (number, stream) in rounds.manifest.streams.iter().enumerate() {
        let (stream, stored) =
            restore(&places, &rounds.manifest, number as u16, &stream.directory, stream.geometry)?;
        state.streams.push(stream);
        there += stored;
    }
    check_room(&places, bytes.saturating_sub(there))?;
    make_missing(&places, &mut rounds)?;
    put_manifests(&places, &mut rounds)?;
    let landing = landing(places, rounds, state);
    // Blocks that no mark covered are durable from here on, so that the sender does not send them.
    landing.sync()?;
    Ok(landing)
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
        of_device.insert(device, (place.member.free_bytes()?, place.member.all_bytes()?));
    }
    let sum = |of: fn(&(u64, u64)) -> u64| of_device.values().map(of).fold(0, u64::saturating_add);
    let (free, all) = (sum(|it| it.0), sum(|it| it.1));
    match needed {
        needed if needed > all => Err(LandingError::TooSmall { needed, all }),
        needed if needed > free => Err(LandingError::NoSpace { needed, free }),
        _ => Ok(()),
    }
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

fn landing(places: Vec<Place>, rounds: Rounds, mut state: State) -> Landing {
    add_streams(&places, &rounds, &mut state);
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
fn add_streams(places: &[Place], rounds: &Rounds, state: &mut State) {
    for (number, stream) in rounds.manifest.streams.iter().enumerate() {
        match state.streams.get_mut(number) {
            Some(known) => known.geometry = stream.geometry,
            None => {
                let indexes = new_indexes(places, &stream.directory);
                state.streams.push(StreamState::new(&stream.directory, stream.geometry, indexes));
            }
        }
    }
}

fn new_indexes(places: &[Place], directory: &str) -> impl Iterator<Item = IndexFile> {
    places
        .iter()
        .map(move |place| IndexFile::new(index_path(place, directory), place.member.uuid(), 0))
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

/// The part of an index that can be believed.
#[derive(Default)]
struct Trusted {
    member: Option<uuid::Uuid>,
    /// The blocks, each with the end of what belongs to it.
    blocks: Vec<(Block, u64)>,
    /// The number of the first ones that a mark covers.
    durable: usize,
}

/// Restores a stream of an interrupted copy: the blocks that marks cover, and those behind them whose data is right.
/// Returns its bytes too.
fn restore(
    places: &[Place],
    manifest: &Manifest,
    number: u16,
    directory: &str,
    geometry: Option<Geometry>,
) -> Result<(StreamState, u64), LandingError> {
    let mut stream = StreamState::new(directory, geometry, new_indexes(places, directory));
    let mut bytes = 0;
    let codec = Codec::of_scan(manifest.uuid);
    for (member, place) in places.iter().enumerate() {
        let path = index_path(place, directory);
        let trusted = read_index(&path, codec, number, geometry)?;
        let lost = |why: String| LandingError::Lost { path: path.clone(), why };
        let is_own = trusted.member == Some(place.member.uuid());
        if trusted.durable > 0 && !is_own {
            return Err(lost("it is the index of another member".into()));
        }
        stream.parts[member].journal = Journal::continued(trusted.durable as u64);
        let mut files = files_of(place, directory);
        let (mut end, mut kept) = (0, 0);
        for (at, (block, its_end)) in trusted.blocks.iter().enumerate() {
            let durable = at < trusted.durable;
            let usable = durable || (is_own && is_whole(block, geometry.as_ref(), &files));
            if !usable {
                break;
            }
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
            match stream.restore(member, block, durable, file) {
                true => (bytes, end, kept) = (bytes + u64::from(block.bytes), *its_end, at + 1),
                false if durable => {
                    return Err(lost(format!("block {} cannot be where it says", block.sequence)));
                }
                false => break,
            }
        }
        check_files(places, member, &stream, &trusted.blocks[..kept], &mut files)?;
        let part = &mut stream.parts[member];
        // Names that were made may not be durable yet.
        for target in [SyncTarget::Root, SyncTarget::Directory, SyncTarget::Side] {
            part.journal.step(crate::journal::Event::Touched(target));
        }
        part.index = IndexFile::new(path.clone(), place.member.uuid(), end);
        if truncate_index(&path, end)? && trusted.durable > 0 {
            // The last mark can be among what was cut off.
            let mark = Entry::Mark { blocks: trusted.durable as u64, at: Clock::new().now() };
            let geometry = geometry.unwrap_or_else(|| unreachable!("it has blocks"));
            part.index.append(codec, number, &geometry, &[mark])?;
        }
    }
    for chunk in stream.chunks.values() {
        chunk.file.promise(places);
        if chunk.full {
            chunk.file.place(places)?;
        }
    }
    Ok((stream, bytes))
}

/// True if the data of a block is in its chunk.
fn is_whole(block: &Block, geometry: Option<&Geometry>, files: &BTreeMap<u32, Found>) -> bool {
    let is_possible = geometry.is_some_and(|it| validate::check_block(block, it).is_ok());
    let Some(file) = files.get(&block.chunk).filter(|_| is_possible) else { return false };
    let read = || -> io::Result<Vec<u8>> {
        let mut data = vec![0; block.bytes as usize];
        regular_file::open(&file.path)?.read_exact_at(&mut data, block.offset)?;
        Ok(data)
    };
    read().is_ok_and(|data| crc32c::crc32c(&data) == block.crc)
}

/// The chunk files of a stream on a member.
fn files_of(place: &Place, directory: &str) -> BTreeMap<u32, Found> {
    let files = MemberFiles::look(0, place.member.root(), directory);
    files.map(|it| it.chunks).unwrap_or_default().into_iter().collect()
}

/// Checks that the files hold the durable blocks. Removes files without any block: they were begun and not synced.
fn check_files(
    places: &[Place],
    member: usize,
    stream: &StreamState,
    blocks: &[(Block, u64)],
    files: &mut BTreeMap<u32, Found>,
) -> Result<(), LandingError> {
    let chunks: BTreeSet<u32> = blocks.iter().map(|(block, _)| block.chunk).collect();
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

/// Reads an index up to the notes of an interrupted seal.
fn read_index(
    path: &Path,
    codec: Codec,
    stream: u16,
    geometry: Option<Geometry>,
) -> Result<Trusted, LandingError> {
    let mut trusted = Trusted::default();
    let file = match regular_file::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(trusted),
        file => file.map_err(LandingError::read(path))?,
    };
    let (mut at, mut records, mut lengths, mut noted) = (0, 0u64, 0, false);
    read_on(&file, &mut at, codec, stream, |entry, _| {
        records += 1;
        let end = records * RECORD_BYTES as u64;
        match entry {
            Entry::Header { member, .. } if records == 1 => trusted.member = Some(member),
            Entry::Block(block) if !noted => {
                trusted.blocks.push((block, end));
                lengths = 0;
            }
            Entry::Lengths { lengths: more, .. } if !noted => lengths += more.len(),
            Entry::Mark { blocks, .. } if !noted => {
                let blocks = usize::try_from(blocks).unwrap_or(usize::MAX);
                trusted.durable = trusted.durable.max(blocks.min(trusted.blocks.len()));
            }
            _ => noted = true,
        }
        if let Some(last) = trusted.blocks.last_mut().filter(|_| !noted) {
            last.1 = end;
        }
    })
    .map_err(LandingError::read(path))?;
    // The process can have ended while it wrote the last lengths.
    let vary = geometry.is_some_and(|it| it.frame_bytes == 0);
    let is_torn = |(block, _): &(Block, u64)| vary && lengths != block.frames as usize;
    if trusted.blocks.len() > trusted.durable && trusted.blocks.last().is_some_and(is_torn) {
        trusted.blocks.pop();
    }
    Ok(trusted)
}

/// Cuts an index off at `end`. Returns true if it was longer.
fn truncate_index(path: &Path, end: u64) -> Result<bool, LandingError> {
    let cut = || -> io::Result<bool> {
        let file = match regular_file::open_with(OpenOptions::new().write(true), path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            file => file?,
        };
        if file.metadata()?.len() == end {
            return Ok(false);
        }
        crash_hooks::step()?;
        file.set_len(end)?;
        file.sync_all()?;
        Ok(true)
    };
    cut().map_err(LandingError::write(path))
}

/// The manifest in use of a scan on these members.
pub fn inventory(places: &[Place], scan: &ScanName) -> Result<Inventory, LandingError> {
    let roots: Vec<PathBuf> = places.iter().map(|it| it.member.root().to_owned()).collect();
    Ok(Inventory::take(&roots, scan)?)
}
