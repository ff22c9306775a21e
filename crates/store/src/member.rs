//! A member of a disk set: a directory, its identity, and the capabilities of its file system.

use std::borrow::Cow;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use fullbore_core::hint::Hint;
use fullbore_core::layout::ALIGNMENT;
use fullbore_core::manifest::SIDE_DIRECTORY;
use fullbore_core::units::ByteSize;
use fullbore_linux::ring::Pool;
use fullbore_linux::sys::memory::Region;
use fullbore_linux::sys::uring::DONTCACHE;
use rustix::io::ReadWriteFlags;
use uuid::Uuid;

use super::disk::{Access, Nameless, make_directories, no_cow, open_nameless, open_new};
use super::identity::{give_identity, identity_path, read_identity};

/// Bytes per write in the trial of a failed member: two such writes are a block.
const TRIAL_BYTES: usize = 2 << 20;

/// What to do about an error of the kernel.
const FAULT: &str =
    "look into the kernel's log for an error of its disk, or record without this member";

/// The error for a directory that held a member before.
const MISSED: &str = "the member that was at this path is missing: is its disk mounted?";

/// The reason why a directory cannot be a member.
#[derive(Debug, thiserror::Error)]
pub enum MemberError {
    /// The directory cannot be opened.
    #[error("{}: cannot be opened as a member: {source}", path.display())]
    Open {
        /// The directory.
        path: PathBuf,
        /// The error from the kernel.
        source: io::Error,
    },
    /// The path is not a directory.
    #[error("{}: not a directory", path.display())]
    NotADirectory {
        /// The path given.
        path: PathBuf,
    },
    /// The path is not UTF-8; manifests name members by path.
    #[error("{}: the path is not UTF-8, as manifests require", path.display())]
    NotText {
        /// The directory.
        path: PathBuf,
    },
    /// Files cannot be made in the directory.
    #[error("{}: cannot be written to: {source}", path.display())]
    NotWritable {
        /// The file or directory that could not be made.
        path: PathBuf,
        /// The error from the kernel.
        source: io::Error,
    },
    /// The identity file is invalid.
    #[error("{}: not a valid member file: {why}", path.display())]
    Identity {
        /// The file.
        path: PathBuf,
        /// The problem with the file.
        why: String,
    },
    /// The member failed and is not usable again yet.
    #[error("{}: not usable again yet: {why}", path.display())]
    NotBack {
        /// The member.
        path: PathBuf,
        /// The difference from its former state.
        why: String,
    },
    /// The store had another member at this path, which is missing now.
    #[error("{}: {MISSED}", path.display())]
    Missed {
        /// The directory.
        path: PathBuf,
    },
    /// The path leads elsewhere than when the member was opened.
    #[error("{}: {source}", path.display())]
    Gone {
        /// The directory.
        path: PathBuf,
        /// What is there now.
        source: io::Error,
    },
    /// A scan of that name exists.
    #[error("{}: a scan of this name exists already", path.display())]
    ScanExists {
        /// The scan's directory.
        path: PathBuf,
    },
}

impl MemberError {
    /// Returns the error without the path, for messages that show the path already.
    pub fn cause(&self) -> String {
        match self {
            Self::Open { source, .. } => format!("it cannot be opened as a member: {source}"),
            Self::NotADirectory { .. } => "it is not a directory".to_owned(),
            Self::NotText { .. } => "its path is not UTF-8".to_owned(),
            Self::NotWritable { source, .. } => format!("it cannot be written to: {source}"),
            Self::Identity { why, .. } => format!("its identity cannot be read: {why}"),
            Self::NotBack { why, .. } => why.clone(),
            Self::Missed { .. } => MISSED.to_owned(),
            Self::Gone { source, .. } => source.to_string(),
            Self::ScanExists { .. } => "a scan of this name exists there already".to_owned(),
        }
    }
}

impl Hint for MemberError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Open { source, path } if source.kind() == io::ErrorKind::NotFound => {
                return Some(Cow::Owned(format!("make it first: mkdir -p {}", path.display())));
            }
            Self::Open { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                "check the permissions of the directories above it"
            }
            Self::Open { .. } => FAULT,
            Self::NotADirectory { .. } => "a member is a directory on a mounted disk",
            Self::NotText { .. } => "rename the directory, or mount its disk in another one",
            Self::NotWritable { source, .. } => match source.kind() {
                io::ErrorKind::ReadOnlyFilesystem => {
                    "it is mounted read-only: look into the kernel's log for an error of the disk, \
                     then mount it again for writing"
                }
                io::ErrorKind::StorageFull => {
                    "the file system is full: remove scans with `fullbore rm`"
                }
                io::ErrorKind::NotFound => {
                    "no file can be made there: it is not a file system for files"
                }
                io::ErrorKind::PermissionDenied => "check its owner and permissions",
                _ => FAULT,
            },
            Self::Identity { path, .. } => {
                return Some(Cow::Owned(format!(
                    "write {{\"uuid\":\"…\"}} and a line feed into it, with the uuid that manifest.json of any scan there \
                     lists for this member; if no recording on this disk is needed any more, remove {}",
                    path.display()
                )));
            }
            Self::NotBack { .. } => return None,
            Self::Missed { .. } => {
                "mount it; if a new disk takes its place, say so once with --new-member DIR"
            }
            Self::Gone { .. } => "mount its disk again, or record without this member",
            Self::ScanExists { .. } => {
                "choose another scan name, or remove that scan with `fullbore rm`"
            }
        }))
    }
}

/// A directory that streams can be written to.
#[derive(Clone, Debug)]
pub struct Member {
    root: PathBuf,
    uuid: Uuid,
    access: Access,
    file_system: String,
    warnings: Vec<String>,
    nameless: Option<Arc<Nameless>>,
    /// The current mount point, shared by all owners of the member.
    place: Arc<Mutex<Place>>,
}

/// The directory that a member's path led to when it was opened. After its file system is unmounted, the same path
/// leads to the mount point's own directory, which is on another disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    device: u64,
    inode: u64,
}

impl Place {
    fn of(root: &Path) -> io::Result<Self> {
        let metadata = root.metadata()?;
        Ok(Self { device: metadata.dev(), inode: metadata.ino() })
    }
}

impl Member {
    /// Opens a directory, gives it an identity if it has none, and probes how to write there.
    pub fn open(path: &Path) -> Result<Self, MemberError> {
        let open = |source| MemberError::Open { path: path.to_owned(), source };
        let root = path.canonicalize().map_err(open)?;
        if !root.metadata().map_err(open)?.is_dir() {
            return Err(MemberError::NotADirectory { path: root });
        }
        if root.to_str().is_none() {
            return Err(MemberError::NotText { path: root });
        }
        let file_system = file_system(&root).map_err(open)?;
        let side = root.join(SIDE_DIRECTORY);
        let not_writable = |source| MemberError::NotWritable { path: side.clone(), source };
        make_if_missing(&side).map_err(not_writable)?;
        let uuid = identity(&root)?;
        let (access, warnings) = probe(&side, &file_system).map_err(not_writable)?;
        let place = Arc::new(Mutex::new(Place::of(&root).map_err(open)?));
        Ok(Self { root, uuid, access, file_system, warnings, nameless: None, place })
    }

    /// Opens a known member only: if its file system is not mounted, nothing is created.
    pub fn open_again(path: &Path, uuid: Uuid) -> Result<Self, MemberError> {
        let not = |why: &str| MemberError::NotBack { path: path.to_owned(), why: why.to_owned() };
        if !identity_path(path).is_file() {
            return Err(not("it has lost its identity, or is not mounted"));
        }
        match identity(path)? == uuid {
            true => Self::open(path),
            false => Err(not("another member is mounted there")),
        }
    }

    /// Checks that the path still leads to the directory that was opened. Returns an error if its file system was
    /// unmounted, so that nothing is written to the disk below.
    pub fn is_there(&self) -> io::Result<()> {
        let now = Place::of(&self.root)?;
        if now == *self.place.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) {
            return Ok(());
        }
        let why = "its file system is not mounted there any more";
        Err(io::Error::new(io::ErrorKind::NotFound, why))
    }

    /// Probes a member that failed: it must be the same member, have this much room, and accept a block and its sync.
    /// On success the member is usable again at its current mount point.
    pub fn look_again(&self, room: u64) -> Result<(), MemberError> {
        let again = Self::open_again(&self.root, self.uuid)?;
        let not = |why: String| MemberError::NotBack { path: self.root.clone(), why };
        if again.access.direct != self.access.direct {
            return Err(not("its files are to be written in another way".to_owned()));
        }
        let free = again.free_bytes()?;
        if free < room {
            return Err(not(format!("{} are free of {} needed", ByteSize(free), ByteSize(room))));
        }
        let side = self.root.join(SIDE_DIRECTORY);
        try_block(&side, self.access)
            .map_err(|source| MemberError::NotWritable { path: side, source })?;
        let now = *again.place.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        *self.place.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = now;
        Ok(())
    }

    /// Opens a directory that is written to like a member but keeps nothing: neither identity nor files, whose handles
    /// are in [`Member::nameless_files`]. For measurements.
    pub fn nameless(path: &Path) -> Result<Self, MemberError> {
        let open = |source| MemberError::Open { path: path.to_owned(), source };
        let root = path.canonicalize().map_err(open)?;
        if !root.metadata().map_err(open)?.is_dir() {
            return Err(MemberError::NotADirectory { path: root });
        }
        let file_system = file_system(&root).map_err(open)?;
        let not_writable = |source| MemberError::NotWritable { path: root.clone(), source };
        let trial = |direct| Access { direct, uncached: false, no_cow: false };
        let buffered = open_nameless(&root, trial(false)).map_err(not_writable)?;
        // A trial shows if the flag is supported.
        let no_cow = file_system == "btrfs"
            && open_nameless(&root, Access { no_cow: true, ..trial(false) }).is_ok();
        let direct = open_nameless(&root, trial(true)).and_then(|file| takes(&file, NO_FLAGS));
        takes(&buffered, NO_FLAGS).map_err(not_writable)?;
        let uncached = takes(&buffered, ReadWriteFlags::from_bits_retain(DONTCACHE)).is_ok();
        let warnings = warnings(&file_system, no_cow, &direct, uncached);
        let access = Access { direct: direct.is_ok(), uncached, no_cow };
        let nameless = Some(Arc::default());
        let place = Arc::new(Mutex::new(Place::of(&root).map_err(open)?));
        Ok(Self { root, uuid: Uuid::now_v7(), access, file_system, warnings, nameless, place })
    }

    /// Returns the unnamed files of a member.
    pub fn nameless_files(&self) -> Option<Arc<Nameless>> {
        self.nameless.clone()
    }

    /// Returns the same member, written through the page cache whatever its file system supports.
    pub fn through_the_cache(mut self) -> Self {
        self.access.direct = false;
        self
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The identity.
    pub fn uuid(&self) -> Uuid {
        self.uuid
    }

    /// True if writes go through the page cache because the file system does not support direct I/O.
    pub fn buffered(&self) -> bool {
        !self.access.direct
    }

    /// The way in which its files are written.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Name of its file system's type.
    pub fn file_system(&self) -> &str {
        &self.file_system
    }

    /// Warnings for the user before recording on it.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Bytes that this user can still write.
    pub fn free_bytes(&self) -> Result<u64, MemberError> {
        let status = rustix::fs::statvfs(&self.root)
            .map_err(|error| MemberError::Open { path: self.root.clone(), source: error.into() })?;
        Ok(status.f_bavail.saturating_mul(status.f_frsize))
    }

    /// Bytes of its file system, those in use included.
    pub fn all_bytes(&self) -> Result<u64, MemberError> {
        let status = rustix::fs::statvfs(&self.root)
            .map_err(|error| MemberError::Open { path: self.root.clone(), source: error.into() })?;
        Ok(status.f_blocks.saturating_mul(status.f_frsize))
    }

    /// Makes a stream's directory, which must not exist: the process that makes it owns the scan.
    pub fn claim(&self, directory: &str) -> Result<PathBuf, MemberError> {
        let path = self.root.join(directory);
        make_directories(&self.root, directory, self.access, true).map_err(
            |source| match source.kind() {
                io::ErrorKind::AlreadyExists => MemberError::ScanExists { path: path.clone() },
                _ => MemberError::NotWritable { path: path.clone(), source },
            },
        )?;
        Ok(path)
    }
}

/// Reads the member's identity, or makes one. Two recorders that do so at once get the same one.
fn identity(root: &Path) -> Result<Uuid, MemberError> {
    let path = identity_path(root);
    let wrong = |why: String| MemberError::Identity { path: path.clone(), why };
    if let Some(uuid) = read_identity(root).map_err(wrong)? {
        return Ok(uuid);
    }
    give_identity(&root.join(SIDE_DIRECTORY))
        .map_err(|source| MemberError::NotWritable { path: path.clone(), source })?;
    read_identity(root).map_err(wrong)?.ok_or_else(|| wrong("it is gone again".to_owned()))
}

fn make_if_missing(path: &Path) -> io::Result<()> {
    match std::fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made,
    }
}

const NO_FLAGS: ReadWriteFlags = ReadWriteFlags::empty();

/// Probes the capabilities by trying: the documented and the actual behaviour of a file system can differ.
fn probe(side: &Path, file_system: &str) -> io::Result<(Access, Vec<String>)> {
    let place = side.join(format!("probe-{}", Uuid::now_v7()));
    std::fs::create_dir(&place)?;
    let no_cow = file_system == "btrfs" && no_cow(&place).is_ok();
    let trial = |name, direct, flags| {
        open_new(&place.join(name), direct).and_then(|file| takes(&file, flags))
    };
    let direct = trial("direct", true, NO_FLAGS);
    let buffered = trial("buffered", false, NO_FLAGS);
    let uncached = trial("uncached", false, ReadWriteFlags::from_bits_retain(DONTCACHE)).is_ok();
    // The directory remains only if the file system failed in between, and then the error below reports it.
    let _ = std::fs::remove_dir_all(&place);
    buffered?;
    let warnings = warnings(file_system, no_cow, &direct, uncached);
    Ok((Access { direct: direct.is_ok(), uncached, no_cow }, warnings))
}

/// Returns the warnings for the user about the probed capabilities.
fn warnings(
    file_system: &str,
    no_cow: bool,
    direct: &io::Result<()>,
    uncached: bool,
) -> Vec<String> {
    let mut warnings = Vec::new();
    if file_system == "btrfs" && !no_cow {
        warnings.push(
            "copy-on-write could not be switched off on btrfs: expect a tenth of the disk's rate"
                .into(),
        );
    }
    if file_system == "zfs" {
        warnings
            .push("ZFS copies on write and checksums again: measure before relying on it".into());
    }
    if file_system == "tmpfs" {
        warnings.push("tmpfs is memory: recordings here are lost at a reboot".into());
    }
    if let Err(error) = direct {
        let way = if uncached { "uncached" } else { "ordinary buffered" };
        warnings.push(format!(
            "{file_system} supports no direct I/O ({error}): {way} writes cost 25 to 100 times the CPU"
        ));
    }
    warnings
}

/// Checks that a page can be written with these flags.
fn takes(file: &OwnedFd, flags: ReadWriteFlags) -> io::Result<()> {
    let mut pool = Pool::new(Arc::new(Region::new(1)?), ALIGNMENT as usize, 0);
    let page = pool.take().expect("a region holds a page");
    let bytes = [io::IoSlice::new(&page)];
    match rustix::io::pwritev2(file, &bytes, ALIGNMENT, flags)? {
        written if written == page.len() => Ok(()),
        written => Err(io::Error::other(format!("{written} of {} bytes written", page.len()))),
    }
}

/// Writes and syncs as many bytes as a block has, to an unnamed file.
fn try_block(side: &Path, access: Access) -> io::Result<()> {
    let file = open_nameless(side, Access { no_cow: false, ..access })?;
    let mut pool = Pool::new(Arc::new(Region::new(1)?), TRIAL_BYTES, 0);
    let block = pool.take().expect("a region holds 2 MiB");
    for offset in [0, TRIAL_BYTES] {
        let bytes = [io::IoSlice::new(&block)];
        match rustix::io::pwritev2(&file, &bytes, offset as u64, NO_FLAGS)? {
            written if written == block.len() => {}
            written => {
                return Err(io::Error::other(format!(
                    "{written} of {} bytes written",
                    block.len()
                )));
            }
        }
    }
    Ok(rustix::fs::fdatasync(&file)?)
}

/// Returns the file system type of a directory or file.
pub fn file_system(root: &Path) -> io::Result<String> {
    let magic = rustix::fs::statfs(root)?.f_type as u32;
    Ok(match magic {
        0xEF53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683E => "btrfs",
        0x0102_1994 => "tmpfs",
        0x2FC1_2FC1 => "zfs",
        0xF2F5_2010 => "f2fs",
        0x6969 => "nfs",
        0xFF53_4D42 | 0xFE53_4D42 => "smb",
        0x6573_5546 => "fuse",
        0x794C_7630 => "overlayfs",
        0x2011_BAB0 => "exfat",
        0x4D44 => "vfat",
        0x7366_746E => "ntfs3",
        0x0BD0_0BD0 => "lustre",
        0xCA45_1A4E => "bcachefs",
        other => return Ok(format!("{other:#x}")),
    }
    .to_owned())
}

/// Makes the side directory of a stream; the stream's writer may do the same first. The member's root is never made: a
/// member that is gone must not come back as a directory on another disk.
pub fn make_side(side: &Path) -> io::Result<()> {
    if side.is_dir() {
        return Ok(());
    }
    for directory in [side.parent(), Some(side)].into_iter().flatten() {
        match std::fs::create_dir(directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn a_member_keeps_its_identity() {
        let directory = tempfile::tempdir().unwrap();
        let first = Member::open(directory.path()).unwrap();
        let again = Member::open(&directory.path().join(".")).unwrap();
        assert_eq!(first.uuid(), again.uuid());
        assert_eq!(first.root(), again.root());
        assert!(first.free_bytes().unwrap() > 0);
        let left: Vec<_> = std::fs::read_dir(first.root().join(SIDE_DIRECTORY))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(left, ["member.json"], "nothing but the identity is left behind");
    }

    #[test]
    fn another_directory_in_its_place_is_not_the_member() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("member");
        std::fs::create_dir(&path).unwrap();
        let member = Member::open(&path).unwrap();
        assert!(member.is_there().is_ok());
        let aside = directory.path().join("aside");
        std::fs::rename(&path, &aside).unwrap();
        assert!(member.is_there().is_err());
        // As a mount point without its disk.
        std::fs::create_dir(&path).unwrap();
        assert!(member.is_there().is_err());
        assert!(matches!(member.look_again(1), Err(MemberError::NotBack { .. })));
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0, "nothing is made there");
        // Another member.
        let other = Member::open(&path).unwrap();
        assert!(matches!(member.look_again(1), Err(MemberError::NotBack { .. })));
        assert!(other.is_there().is_ok() && member.is_there().is_err());
    }

    #[test]
    fn a_member_is_back_when_it_is_the_same_and_has_room() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("member");
        std::fs::create_dir(&path).unwrap();
        let member = Member::open(&path).unwrap();
        let writers = member.clone();
        // A copy is another directory of the same identity, like a disk that is mounted again.
        let copy = directory.path().join("copy");
        std::fs::create_dir_all(copy.join(SIDE_DIRECTORY)).unwrap();
        let identity = Path::new(SIDE_DIRECTORY).join("member.json");
        std::fs::copy(path.join(&identity), copy.join(&identity)).unwrap();
        std::fs::rename(&path, directory.path().join("aside")).unwrap();
        std::fs::rename(&copy, &path).unwrap();
        assert!(writers.is_there().is_err());
        assert!(matches!(member.look_again(u64::MAX), Err(MemberError::NotBack { .. })));
        assert!(writers.is_there().is_err());
        member.look_again(1).unwrap();
        assert!(writers.is_there().is_ok(), "all who have it know");
    }

    #[test]
    fn a_nameless_member_writes_alike_and_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let nameless = Member::nameless(directory.path()).unwrap();
        let file = open_nameless(nameless.root(), nameless.access()).unwrap();
        takes(&file, NO_FLAGS).unwrap();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        let named = Member::open(directory.path()).unwrap();
        assert_eq!(nameless.access(), named.access());
        assert_eq!(nameless.warnings(), named.warnings());
    }

    #[test]
    fn what_is_not_a_member_is_told_apart() {
        let directory = tempfile::tempdir().unwrap();
        let odd = directory.path().join(std::ffi::OsStr::from_bytes(b"n\xffu"));
        std::fs::create_dir(&odd).unwrap();
        assert!(matches!(Member::open(&odd), Err(MemberError::NotText { .. })));
        assert_eq!(std::fs::read_dir(&odd).unwrap().count(), 0, "nothing is left behind");
        let missing = Member::open(&directory.path().join("none")).unwrap_err();
        assert!(matches!(missing, MemberError::Open { .. }));
        assert!(missing.hint().unwrap().starts_with("make it first"));
        let file = directory.path().join("file");
        std::fs::write(&file, "x").unwrap();
        assert!(matches!(Member::open(&file), Err(MemberError::NotADirectory { .. })));
        std::fs::create_dir(directory.path().join(SIDE_DIRECTORY)).unwrap();
        std::fs::write(directory.path().join(SIDE_DIRECTORY).join("member.json"), "{}").unwrap();
        assert!(matches!(Member::open(directory.path()), Err(MemberError::Identity { .. })));
    }

    #[test]
    fn a_scan_is_claimed_once() {
        let directory = tempfile::tempdir().unwrap();
        let member = Member::open(directory.path()).unwrap();
        assert!(member.claim("s_a").unwrap().join(SIDE_DIRECTORY).is_dir());
        assert!(matches!(member.claim("s_a"), Err(MemberError::ScanExists { .. })));
    }

    #[test]
    fn advice_follows_the_error_of_the_kernel() {
        let of = |errno| io::Error::from_raw_os_error(errno);
        for (errno, advice) in [
            (libc::EACCES, "permissions"),
            (libc::EIO, "kernel's log"),
            (libc::EROFS, "mounted read-only"),
        ] {
            let error = MemberError::NotWritable { path: "/m".into(), source: of(errno) };
            assert!(error.hint().unwrap().contains(advice), "{error}");
        }
        let open = |errno| MemberError::Open { path: "/m".into(), source: of(errno) };
        assert!(open(libc::EIO).hint().unwrap().contains("kernel's log"));
        assert!(open(libc::EACCES).hint().unwrap().contains("permissions"));
        assert!(open(libc::ENOENT).hint().unwrap().contains("mkdir"));
    }
}
