//! The lock of a scan that is being recorded: an exclusive `flock` on the manifest in its first directory.
//!
//! The kernel releases the lock when the process ends. So a scan whose manifest says *recording* and whose lock is free
//! was left by a recorder that died. A manifest is never written in place: the new file is locked before it replaces
//! the old one, so the scan is locked at every moment.

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fullbore_core::hint::Hint;
use fullbore_core::manifest::{MANIFEST_FILE, Manifest, SIDE_DIRECTORY};
use fullbore_linux::regular_file;
use rustix::fs::{FlockOperation, flock};

/// Time to wait for a dead owner's lock: the kernel holds it until it has torn down the ring.
pub const PATIENCE: Duration = Duration::from_millis(250);

/// The lock could not be taken, or the manifest could not be written under it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another process is recording this scan.
    #[error("{}: the scan is being recorded by another process", path.display())]
    Held {
        /// The manifest that is locked.
        path: PathBuf,
    },
    /// The manifest could not be opened or locked.
    #[error("{}: cannot lock the manifest: {source}", path.display())]
    Lock {
        /// The manifest.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The manifest could not be written.
    #[error("{}: cannot write the manifest: {source}", path.display())]
    Write {
        /// The manifest.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

impl Hint for Error {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Error::Held { .. } => Some(
                "stop the recording first; the lock of a dead process is released by itself".into(),
            ),
            Error::Lock { .. } | Error::Write { .. } => None,
        }
    }
}

/// The lock of one scan, held until it is dropped.
#[derive(Debug)]
pub struct ScanLock {
    path: PathBuf,
    file: File,
}

/// Returns the path of a scan's lock if `root` is its first member.
pub fn lock_path(root: &Path, manifest: &Manifest) -> Option<PathBuf> {
    let first = manifest.streams.first()?;
    Some(root.join(&first.directory).join(SIDE_DIRECTORY).join(MANIFEST_FILE))
}

impl ScanLock {
    /// Locks a manifest that exists, trying again for [`PATIENCE`].
    pub fn take(path: &Path) -> Result<Self, Error> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(lock) = Self::try_take(path)? {
                return Ok(lock);
            }
            if Instant::now() >= deadline {
                return Err(Error::Held { path: path.to_owned() });
            }
            // No lock can be waited for with a limit.
            std::thread::sleep(PATIENCE / 10);
        }
    }

    /// Locks a manifest that exists; `None` if another process holds the lock.
    pub fn try_take(path: &Path) -> Result<Option<Self>, Error> {
        Self::try_lock(path, FlockOperation::NonBlockingLockExclusive)
    }

    fn try_lock(path: &Path, operation: FlockOperation) -> Result<Option<Self>, Error> {
        let failed = |source| Error::Lock { path: path.to_owned(), source };
        loop {
            let file = regular_file::open(path).map_err(failed)?;
            match flock(&file, operation) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
                Err(errno) => return Err(failed(errno.into())),
            }
            // If the manifest was replaced in the meantime, this file is no longer the one that others lock.
            if is_at(&file, path).map_err(failed)? {
                return Ok(Some(Self { path: path.to_owned(), file }));
            }
        }
    }

    /// Writes the first manifest of a new scan and holds its lock.
    pub fn create(path: &Path, json: &[u8]) -> Result<Self, Error> {
        let file = put_locked(path, json)?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Replaces the locked manifest and holds the lock on the new one.
    pub fn replace(&mut self, json: &[u8]) -> Result<(), Error> {
        self.file = put_locked(&self.path, json)?;
        Ok(())
    }

    /// The same lock, after a directory above the manifest was renamed.
    pub fn moved_to(self, path: PathBuf) -> Self {
        Self { path, ..self }
    }

    /// The manifest that is locked.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Returns true if a process holds the lock of this manifest now. Two processes that call this do not disturb each
/// other.
pub fn is_held(path: &Path) -> bool {
    matches!(ScanLock::try_lock(path, FlockOperation::NonBlockingLockShared), Ok(None))
}

fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let held = file.metadata()?;
    match std::fs::metadata(path) {
        Ok(there) => Ok((held.dev(), held.ino()) == (there.dev(), there.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn put_locked(path: &Path, json: &[u8]) -> Result<File, Error> {
    let put = || {
        put_whole(path, json, |file| {
            flock(file, FlockOperation::NonBlockingLockExclusive).map_err(io::Error::from)
        })
    };
    put().map_err(|source| Error::Write { path: path.to_owned(), source })
}

/// Writes a small file atomically: to another name, synced, then renamed.
pub fn put_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    put_whole(path, bytes, |_| Ok(())).map(drop)
}

fn put_whole(
    path: &Path,
    bytes: &[u8],
    before_rename: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<File> {
    let aside = path.with_extension("new");
    // A file that a killed process left is useless.
    match std::fs::remove_file(&aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file =
        OpenOptions::new().read(true).write(true).create_new(true).mode(0o644).open(&aside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    before_rename(&file)?;
    std::fs::rename(&aside, path)?;
    sync_directory(path.parent().unwrap_or(Path::new(".")))?;
    Ok(file)
}

/// Makes names in a directory durable.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_manifest_stays_locked_and_a_dropped_lock_is_free() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("manifest.json");
        let mut lock = ScanLock::create(&path, b"one").unwrap();
        assert!(is_held(&path));
        lock.replace(b"two").unwrap();
        assert!(is_held(&path), "the new file took the name without its lock");
        let error = ScanLock::take(&path).unwrap_err();
        assert!(matches!(&error, Error::Held { path: held } if *held == path), "{error}");
        drop(lock);
        assert!(!is_held(&path));
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
    }

    #[test]
    fn a_lock_that_lingers_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("manifest.json");
        let held = ScanLock::create(&path, b"").unwrap();
        let (ready, wait) = std::sync::mpsc::channel();
        let taker = {
            let path = path.clone();
            std::thread::spawn(move || {
                assert!(is_held(&path));
                ready.send(()).unwrap();
                ScanLock::take(&path).is_ok()
            })
        };
        wait.recv().unwrap();
        drop(held);
        assert!(taker.join().unwrap());
    }
}
