//! A directory that only its owner may read, whose files are replaced whole and under one lock.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fullbore_linux::regular_file;
use rustix::fs::{FlockOperation, OFlags, flock};

use super::IdentityError;

/// The most bytes of a file.
const LARGEST: u64 = 4 << 20;
/// Time to wait for the lock. It is held for milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);
const LOCK_FILE: &str = "lock";

/// The directory of keys and lists.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
}

/// The lock of the directory, held until it is dropped.
#[derive(Debug)]
pub(crate) struct FolderLock {
    _file: File,
}

/// A folder that is there, and locked, as long as something is done by one process.
#[derive(Debug)]
pub(crate) struct Claim {
    path: PathBuf,
    _lock: FolderLock,
}

impl Claim {
    /// Takes the lock of the folder. Returns none if another process or thread has it.
    pub fn take(path: &Path) -> Result<Option<Self>, IdentityError> {
        let lock = Folder::open_or_create(path)?.try_lock(Duration::ZERO)?;
        Ok(lock.map(|lock| Self { path: path.to_owned(), _lock: lock }))
    }
}

impl Drop for Claim {
    /// Removes the folder. One that stays locks nothing.
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

impl Folder {
    /// Makes the directory with mode 0700 if it is missing. One that others may access is refused.
    pub fn open_or_create(path: &Path) -> Result<Self, IdentityError> {
        let write = |source| IdentityError::Write { path: path.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(write)?;
        let read = |source| IdentityError::Read { path: path.to_owned(), source };
        check_private(path, &std::fs::metadata(path).map_err(read)?, 0o700)?;
        Ok(Self { path: path.to_owned() })
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Reads a file; `None` if it is missing.
    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>, IdentityError> {
        let path = self.file(name);
        let failed = |source| IdentityError::Read { path: path.clone(), source };
        let file = match regular_file::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        check_private(&path, &file.metadata().map_err(failed)?, 0o600)?;
        let mut bytes = Vec::new();
        file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > LARGEST {
            return Err(IdentityError::Large { path, most: LARGEST });
        }
        Ok(Some(bytes))
    }

    /// Replaces a file whole and durably. The caller holds the lock, so one temporary name suffices.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), IdentityError> {
        self.replace(name, bytes, true)
    }

    /// The same for a file that need not survive a loss of power.
    pub fn write_for_now(&self, name: &str, bytes: &[u8]) -> Result<(), IdentityError> {
        self.replace(name, bytes, false)
    }

    fn replace(&self, name: &str, bytes: &[u8], durable: bool) -> Result<(), IdentityError> {
        let (path, new) = (self.file(name), self.file(&format!("{name}.new")));
        let write = || -> io::Result<()> {
            if let Err(error) = std::fs::remove_file(&new)
                && error.kind() != io::ErrorKind::NotFound
            {
                return Err(error);
            }
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
            file.write_all(bytes)?;
            if durable {
                file.sync_all()?;
            }
            std::fs::rename(&new, &path)?;
            if durable { File::open(&self.path)?.sync_all() } else { Ok(()) }
        };
        write().map_err(|source| IdentityError::Write { path: path.clone(), source })
    }

    /// Removes a file durably. A missing file is no error.
    pub fn remove(&self, name: &str) -> Result<(), IdentityError> {
        let path = self.file(name);
        let remove = || match std::fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
            Ok(()) => File::open(&self.path)?.sync_all(),
        };
        remove().map_err(|source| IdentityError::Write { path: path.clone(), source })
    }

    /// Takes the lock, waiting for other processes and threads.
    pub fn lock(&self) -> Result<FolderLock, IdentityError> {
        let locked = self.try_lock(PATIENCE)?;
        let path = self.file(LOCK_FILE);
        locked.ok_or(IdentityError::Locked { path, seconds: PATIENCE.as_secs() })
    }

    /// Takes the lock, waiting for this long. Returns none if another process or thread has it.
    pub fn try_lock(&self, patience: Duration) -> Result<Option<FolderLock>, IdentityError> {
        let path = self.file(LOCK_FILE);
        let failed = |source| IdentityError::Write { path: path.clone(), source };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file =
            regular_file::open_with_flags(&options, OFlags::NOFOLLOW, &path).map_err(failed)?;
        let deadline = Instant::now() + patience;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Some(FolderLock { _file: file })),
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
                Err(errno) => return Err(failed(errno.into())),
            }
        }
    }
}

fn check_private(
    path: &Path,
    metadata: &std::fs::Metadata,
    should_be: u32,
) -> Result<(), IdentityError> {
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 == 0 {
        return Ok(());
    }
    Err(IdentityError::Open { path: path.to_owned(), mode, should_be })
}
