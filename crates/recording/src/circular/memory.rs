//! Pieces in memory: the newest data of a circular recording is on a memory file system, and only what a trigger keeps is
//! written to the store.
//!
//! ```text
//! /dev/shm/fullbore-<store>/<recording>/0 …   pieces, as on disks: the rate is that of memory
//!          │ hard links, at once
//!          ▼ kept scan in memory ──► copied on a thread of its own ──► kept scan in the store
//! ```
//!
//! The directory follows from the members of the store and the name of the recording, so that other processes find it.
//! What it holds survives the recorder, but not the host.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use fullbore_core::hint::Hint;
use fullbore_core::name::ScanName;
use fullbore_core::units::ByteSize;

use super::RingName;

/// The variable that names another memory file system.
const VARIABLE: &str = "FULLBORE_RAM";

/// The usual one.
const USUAL: &str = "/dev/shm";

/// The smallest size of pieces and of what is kept.
const SMALLEST: ByteSize = ByteSize(64 << 20);

/// Chunks of a memory: each stream reserves two, so they are small.
const CHUNKS: u64 = 64;

/// The smallest chunk.
const SMALLEST_CHUNK: u64 = 8 << 20;

/// The largest chunk, as on disks.
const LARGEST_CHUNK: u64 = 256_000_000;

/// Pieces in memory, as an option says it: `ram:8GB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InMemory {
    /// The most bytes of pieces, and of kept parts until they are in the store.
    pub size: ByteSize,
}

/// A text is not a place of pieces.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not ram:SIZE with a size of at least {SMALLEST}, such as ram:8GB")]
pub struct InMemoryError {
    /// The text.
    text: String,
}

/// Pieces cannot be in memory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// There is not that much memory.
    #[error("{size} are to be in memory, and {} has {free} free", place.display())]
    Room {
        /// The size.
        size: ByteSize,
        /// The memory file system, or `/proc/meminfo`.
        place: PathBuf,
        /// Free bytes.
        free: ByteSize,
    },
    /// The directory is not in memory.
    #[error("{} is not on a memory file system (tmpfs)", place.display())]
    NotMemory {
        /// The directory.
        place: PathBuf,
    },
    /// A directory belongs to another user, or can be changed by others.
    #[error("{} belongs to another user, or others may write into it", path.display())]
    Foreign {
        /// The directory.
        path: PathBuf,
    },
    /// A directory cannot be made.
    #[error("{}: making the directory: {source}", path.display())]
    Make {
        /// The directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

impl Hint for MemoryError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Room { .. } => Some("give a smaller size, or free memory".into()),
            Self::NotMemory { .. } => {
                Some("mount a tmpfs, and name it in the variable FULLBORE_RAM".into())
            }
            Self::Foreign { .. } => Some("remove it, or name another tmpfs in FULLBORE_RAM".into()),
            Self::Make { .. } => None,
        }
    }
}

impl FromStr for InMemory {
    type Err = InMemoryError;

    fn from_str(text: &str) -> Result<Self, InMemoryError> {
        let size = text.strip_prefix("ram:").and_then(|size| size.parse::<ByteSize>().ok());
        let size = size.filter(|size| *size >= SMALLEST);
        let error = || InMemoryError { text: text.chars().take(40).collect() };
        Ok(Self { size: size.ok_or_else(error)? })
    }
}

impl fmt::Display for InMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ram:{}", self.size)
    }
}

impl InMemory {
    /// The size of chunk files: small, because each stream reserves two.
    pub fn chunk(self) -> ByteSize {
        ByteSize((self.size.0 / CHUNKS).clamp(SMALLEST_CHUNK, LARGEST_CHUNK))
    }

    /// Refuses a size for which there is no memory.
    ///
    /// # Errors
    ///
    /// The place is not in memory, or its free bytes are too few.
    pub fn check(self) -> Result<(), MemoryError> {
        let place = base();
        let status = rustix::fs::statfs(&place);
        let made = |source| MemoryError::Make { path: place.clone(), source };
        let status = status.map_err(|error| made(error.into()))?;
        const TMPFS: u64 = 0x0102_1994;
        if status.f_type as u64 != TMPFS {
            return Err(MemoryError::NotMemory { place });
        }
        let size = self.size;
        let refuse = |place: PathBuf, free: u64| match size.0 > free {
            true => Err(MemoryError::Room { size, place, free: ByteSize(free) }),
            false => Ok(()),
        };
        refuse(place, status.f_bavail.saturating_mul(status.f_bsize as u64))?;
        refuse("/proc/meminfo".into(), fullbore_engine::recorder::available_memory())
    }
}

/// The memory file system.
fn base() -> PathBuf {
    std::env::var_os(VARIABLE).filter(|it| !it.is_empty()).map_or(USUAL.into(), PathBuf::from)
}

/// The directory of all circular recordings of a store in memory.
fn of_store(members: &[PathBuf]) -> PathBuf {
    let place = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
    let mut members: Vec<PathBuf> = members.iter().map(place).collect();
    members.sort();
    let text = members.iter().map(|it| it.to_string_lossy()).collect::<Vec<_>>().join("\n");
    base().join(format!("fullbore-{:016x}", fnv(text.as_bytes())))
}

/// FNV-1a of 64 bits (Fowler, Noll and Vo): the same in every version of the program.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// The members in memory of a recording: one for each member of the store.
pub fn roots(members: &[PathBuf], ring: &RingName) -> Vec<PathBuf> {
    let directory = of_store(members).join(ring.to_string());
    (0..members.len()).map(|number| directory.join(number.to_string())).collect()
}

/// The members in memory of a recording, if they are there.
pub fn existing(members: &[PathBuf], ring: &RingName) -> Option<Vec<PathBuf>> {
    let roots = roots(members, ring);
    let is_there = |root: &PathBuf| own(root).is_ok_and(|own| own);
    (!roots.is_empty() && roots.iter().all(is_there)).then_some(roots)
}

/// The recordings of a store that are in memory.
pub fn rings(members: &[PathBuf]) -> Vec<RingName> {
    let Ok(entries) = std::fs::read_dir(of_store(members)) else { return Vec::new() };
    let names = entries.flatten().filter_map(|it| it.file_name().into_string().ok());
    let rings = names.filter_map(|name| name.parse::<ScanName>().ok()).map(RingName);
    rings.filter(|ring| existing(members, ring).is_some()).collect()
}

/// Makes the members in memory of a recording. Those of a recorder that died are used again.
///
/// # Errors
///
/// A directory cannot be made, or belongs to somebody else.
pub fn make(members: &[PathBuf], ring: &RingName) -> Result<Vec<PathBuf>, MemoryError> {
    let roots = roots(members, ring);
    let directory = of_store(members);
    let all = [directory.clone(), directory.join(ring.to_string())];
    for path in all.iter().chain(&roots) {
        let failed = |source| MemoryError::Make { path: path.clone(), source };
        match std::fs::DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(failed(error)),
            _ if own(path).map_err(failed)? => {}
            _ => return Err(MemoryError::Foreign { path: path.clone() }),
        }
    }
    Ok(roots)
}

/// True if a path is a directory of this user that nobody else can write into.
fn own(path: &Path) -> io::Result<bool> {
    let metadata = path.symlink_metadata()?;
    let user = rustix::process::geteuid().as_raw();
    Ok(metadata.is_dir() && metadata.uid() == user && metadata.mode() & 0o022 == 0)
}

/// Removes a recording from memory.
pub fn remove(members: &[PathBuf], ring: &RingName) -> io::Result<()> {
    let directory = of_store(members);
    std::fs::remove_dir_all(directory.join(ring.to_string()))?;
    // Another recording of the store may be there.
    let _ = std::fs::remove_dir(directory);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_in_memory_has_a_size() {
        let place: InMemory = "ram:8GB".parse().unwrap();
        assert_eq!((place.size.0, place.chunk().0), (8_000_000_000, 125_000_000));
        assert_eq!("ram:64MiB".parse::<InMemory>().unwrap().chunk().0, SMALLEST_CHUNK);
        for wrong in ["ram", "ram:", "ram:1MB", "8GB", "disk:8GB", "ram:-8GB"] {
            assert!(wrong.parse::<InMemory>().is_err(), "{wrong}");
        }
        let all = InMemory { size: ByteSize(u64::MAX) };
        assert!(all.check().is_err());
    }

    #[test]
    fn the_order_of_members_does_not_matter_for_the_place() {
        let ring = RingName("s_a".parse().unwrap());
        let (one, other) = (PathBuf::from("/a"), PathBuf::from("/b"));
        let of = |members: &[&PathBuf]| {
            roots(&members.iter().map(|it| it.to_path_buf()).collect::<Vec<_>>(), &ring)
        };
        assert_eq!(of(&[&one, &other]), of(&[&other, &one]));
        assert_ne!(of(&[&one]), of(&[&other]));
        assert_eq!(fnv(b"a"), 0xaf63_dc4c_8601_ec8c);
    }
}
