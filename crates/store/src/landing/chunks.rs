//! The chunk files of a scan that arrives: made when their first block arrives, filled in any order.

use std::fs::OpenOptions;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use fullbore_core::layout::{ALIGNMENT, Geometry, chunk_file};
use fullbore_core::manifest::SIDE_DIRECTORY;
use fullbore_linux::regular_file;
use fullbore_linux::sys::uring::DONTCACHE;
use rustix::fs::OFlags;
use rustix::io::ReadWriteFlags;

use super::error::LandingError;
use crate::disk::{Access, create, put_in_place, reserve};
use crate::inventory::PART_SUFFIX;
use crate::reservation::SpaceRequest;
use crate::stream::INDEX_STEP_BYTES;
use crate::{Member, crash_hooks};

/// A member, and the space that chunks on it still need.
#[derive(Debug)]
pub struct Place {
    /// The member.
    pub member: Member,
    /// Bytes that open chunks will reserve later.
    promised: AtomicU64,
    /// The number of open chunks.
    open: AtomicUsize,
}

impl Place {
    /// A member without chunks.
    pub fn new(member: Member) -> Self {
        Self { member, promised: AtomicU64::new(0), open: AtomicUsize::new(0) }
    }

    fn free_for_chunks(&self) -> u64 {
        let free = self.member.free_bytes().unwrap_or(0);
        free.saturating_sub(self.promised.load(Ordering::Relaxed))
    }

    fn begin_chunk(&self, promised: u64) {
        self.promised.fetch_add(promised, Ordering::Relaxed);
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    fn take_promised(&self, bytes: u64) {
        // A file that exists may be longer than its chunk, if another program made it so.
        let _ = self.promised.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |it| {
            Some(it.saturating_sub(bytes))
        });
    }

    fn end_chunk(&self, promised: u64) {
        self.take_promised(promised);
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The members, in the order in which a new chunk tries them: the one with the most free space first, in turn when equal.
pub fn by_room(places: &[Place], chunk_bytes: u64, turn: usize) -> Vec<usize> {
    let count = places.len();
    let mut order: Vec<usize> = (0..count).collect();
    let rooms: Vec<u64> =
        places.iter().map(|it| it.free_for_chunks() / chunk_bytes.max(1)).collect();
    order.sort_by_key(|&at| (std::cmp::Reverse(rooms[at]), (at + count - turn % count) % count));
    order
}

/// A chunk file.
#[derive(Debug)]
pub struct ChunkFile {
    directory: Arc<str>,
    number: u32,
    geometry: Geometry,
    slot: Mutex<Slot>,
    /// True if the file was made and no block in it has landed: its name is to be synced.
    new_name: AtomicBool,
}

/// The state of the file.
#[derive(Debug, Default)]
struct Slot {
    /// The member, once the file exists.
    member: Option<usize>,
    /// The open file.
    file: Option<Arc<OwnedFd>>,
    /// Reserved bytes.
    space: u64,
    /// True if it has its final name.
    placed: bool,
    /// True if it takes no more blocks.
    closed: bool,
}

/// An open chunk file.
pub struct Opened {
    /// The member.
    pub member: usize,
    /// The file.
    pub file: Arc<OwnedFd>,
}

impl ChunkFile {
    /// A chunk without a file.
    pub fn new(directory: Arc<str>, number: u32, geometry: Geometry) -> Self {
        let new_name = AtomicBool::new(false);
        Self { directory, number, geometry, slot: Mutex::default(), new_name }
    }

    /// A chunk whose file exists on a member, with this many reserved bytes.
    pub fn existing(
        directory: Arc<str>,
        number: u32,
        geometry: Geometry,
        member: usize,
        space: u64,
        placed: bool,
    ) -> Self {
        let slot = Slot { member: Some(member), file: None, space, placed, closed: false };
        Self { slot: Mutex::new(slot), ..Self::new(directory, number, geometry) }
    }

    /// Counts the space that an existing file still needs.
    pub fn promise(&self, places: &[Place]) {
        let slot = self.slot();
        if let Some(member) = slot.member {
            places[member].begin_chunk(self.geometry.chunk_bytes().saturating_sub(slot.space));
        }
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Bytes of the chunk when it is full.
    pub fn chunk_bytes(&self) -> u64 {
        self.geometry.chunk_bytes()
    }

    /// Returns true, once, after the file was made.
    pub fn take_new_name(&self) -> bool {
        self.new_name.swap(false, Ordering::SeqCst)
    }

    /// The member that the file is on.
    pub fn member(&self) -> Option<usize> {
        self.slot().member
    }

    /// The path of the file, for messages.
    pub fn path_of(&self, places: &[Place]) -> PathBuf {
        let slot = self.slot();
        let root = slot.member.map(|member| places[member].member.root());
        root.map_or_else(PathBuf::new, |root| self.path(root, slot.placed))
    }

    fn part_path(&self, root: &Path) -> PathBuf {
        let name = chunk_file(&self.directory, self.number);
        root.join(&*self.directory).join(SIDE_DIRECTORY).join(format!("{name}{PART_SUFFIX}"))
    }

    fn final_path(&self, root: &Path) -> PathBuf {
        root.join(&*self.directory).join(chunk_file(&self.directory, self.number))
    }

    fn path(&self, root: &Path, placed: bool) -> PathBuf {
        if placed { self.final_path(root) } else { self.part_path(root) }
    }

    /// Returns the open file, with space up to `end`. The file is made on the first of these members that has room.
    pub fn open(
        &self,
        places: &[Place],
        order: impl FnOnce() -> Vec<usize>,
        end: u64,
    ) -> Result<Opened, LandingError> {
        let mut slot = self.slot();
        if slot.closed {
            return Err(LandingError::Closed);
        }
        let member = match slot.member {
            Some(member) => member,
            None => return self.make(&mut slot, places, &order(), end),
        };
        let root = places[member].member.root();
        let path = self.path(root, slot.placed);
        let file = match &slot.file {
            Some(file) => file.clone(),
            None => {
                let file = open_again(&path, places[member].member.access())
                    .map_err(LandingError::write(&path))?;
                slot.file.insert(Arc::new(file)).clone()
            }
        };
        if end > slot.space {
            let request = self.request(slot.space, end, &places[member]);
            let step = crash_hooks::step()
                .and_then(|()| reserve(&file, slot.space, request))
                .map_err(LandingError::write(&path))?;
            slot.space += step;
            places[member].take_promised(step);
        }
        Ok(Opened { member, file })
    }

    /// Makes the file: whole on the first member with room for it, else in steps. A chunk cannot move to another member, so
    /// a member that is full must not hold the beginning of one.
    fn make(
        &self,
        slot: &mut Slot,
        places: &[Place],
        order: &[usize],
        end: u64,
    ) -> Result<Opened, LandingError> {
        let chunk = self.geometry.chunk_bytes();
        let whole = order
            .iter()
            .filter(|member| places[**member].free_for_chunks() >= chunk + INDEX_STEP_BYTES);
        let whole = whole.map(|member| (*member, SpaceRequest::exactly(chunk)));
        let steps = order.iter().map(|member| (*member, self.request(0, end, &places[*member])));
        let mut failed = LandingError::NoMember;
        for (member, request) in whole.chain(steps) {
            let place = &places[member];
            let path = self.part_path(place.member.root());
            let made = crash_hooks::step()
                .and_then(|()| place.member.is_there())
                .and_then(|()| create(&path, place.member.access().direct, request));
            match made {
                Ok((file, space)) => {
                    let file = Arc::new(file);
                    place.begin_chunk(chunk.saturating_sub(space));
                    (slot.member, slot.space) = (Some(member), space);
                    slot.file = Some(file.clone());
                    self.new_name.store(true, Ordering::SeqCst);
                    return Ok(Opened { member, file });
                }
                Err(source) if is_full(&source) => failed = LandingError::Write { path, source },
                Err(source) => return Err(LandingError::Write { path, source }),
            }
        }
        Err(failed)
    }

    fn request(&self, space: u64, end: u64, place: &Place) -> SpaceRequest {
        let most = self.geometry.chunk_bytes().saturating_sub(space);
        let least = end.saturating_sub(space);
        let sharing = place.open.load(Ordering::Relaxed) as u64 + 1;
        SpaceRequest { least, most: most.max(least), sharing }
    }

    /// Syncs the data of the file.
    pub fn sync(&self, places: &[Place]) -> Result<(), LandingError> {
        let (file, path) = {
            let mut slot = self.slot();
            let Some(member) = slot.member else { return Ok(()) };
            let place = &places[member].member;
            let path = self.path(place.root(), slot.placed);
            let file = match &slot.file {
                Some(file) => file.clone(),
                None => {
                    let file =
                        open_again(&path, place.access()).map_err(LandingError::write(&path))?;
                    slot.file.insert(Arc::new(file)).clone()
                }
            };
            (file, path)
        };
        rustix::fs::fdatasync(&*file).map_err(|error| LandingError::write(&path)(error.into()))
    }

    /// Renames a complete and durable file into place, and closes it.
    pub fn place(&self, places: &[Place]) -> Result<(), LandingError> {
        let mut slot = self.slot();
        let Some(member) = slot.member else { return Ok(()) };
        let root = places[member].member.root();
        if !slot.placed {
            let path = self.part_path(root);
            crash_hooks::step()
                .and_then(|()| put_in_place(&path, &self.final_path(root)))
                .map_err(LandingError::write(&path))?;
            slot.placed = true;
        }
        slot.file = None;
        if !std::mem::replace(&mut slot.closed, true) {
            places[member].end_chunk(self.geometry.chunk_bytes().saturating_sub(slot.space));
        }
        Ok(())
    }

    /// Truncates a file to its final length, syncs it, and renames it into place. A file without data is removed.
    pub fn settle(&self, places: &[Place], bytes: u64) -> Result<(), LandingError> {
        {
            let mut slot = self.slot();
            let Some(member) = slot.member else { return Ok(()) };
            let path = self.path(places[member].member.root(), slot.placed);
            if bytes == 0 {
                slot.closed = true;
                slot.member = None;
                return crash_hooks::step()
                    .and_then(|()| std::fs::remove_file(&path))
                    .map_err(LandingError::write(&path));
            }
            let cut = || -> io::Result<()> {
                let file = regular_file::open_with(OpenOptions::new().write(true), &path)?;
                if file.metadata()?.len() != bytes {
                    crash_hooks::step()?;
                    file.set_len(bytes)?;
                }
                file.sync_all()
            };
            cut().map_err(LandingError::write(&path))?;
        }
        self.place(places)
    }

    /// Closes the file for now; the next block opens it again.
    pub fn rest(&self) {
        self.slot().file = None;
    }

    /// Returns true if the file is open.
    pub fn is_open(&self) -> bool {
        self.slot().file.is_some()
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Opens a chunk file that exists, for writing.
fn open_again(path: &Path, access: Access) -> io::Result<OwnedFd> {
    let direct = if access.direct { OFlags::DIRECT } else { OFlags::empty() };
    let flags = direct | OFlags::NOFOLLOW;
    let file = regular_file::open_with_flags(OpenOptions::new().write(true), flags, path)?;
    Ok(file.into())
}

/// Writes a block: whole pages of aligned memory.
pub fn write_at(
    file: &OwnedFd,
    access: Access,
    mut offset: u64,
    mut data: &[u8],
) -> io::Result<()> {
    crash_hooks::step()?;
    let flags = match access.uncached && !access.direct {
        true => ReadWriteFlags::from_bits_retain(DONTCACHE),
        false => ReadWriteFlags::empty(),
    };
    while !data.is_empty() {
        let written = match rustix::io::pwritev2(file, &[IoSlice::new(data)], offset, flags) {
            Ok(written) => written,
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        // Direct I/O can continue only from a whole page.
        let whole = written / ALIGNMENT as usize * ALIGNMENT as usize;
        if whole == 0 {
            return Err(io::Error::new(
                io::ErrorKind::WriteZero,
                format!("{written} of {} bytes were written", data.len()),
            ));
        }
        data = &data[whole..];
        offset += whole as u64;
    }
    Ok(())
}
