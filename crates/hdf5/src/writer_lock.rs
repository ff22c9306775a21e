//! The writer lock of a file. HDF5's own marks outlive a dead writer, so a living writer holds locks.
//!
//! libhdf5 locks a file with `flock`: exclusively while it has the file alone, and not at all once readers have access
//! (SWMR). Readers take a shared lock, and some keep a file open for days. So a writer of this program holds two locks:
//!
//! - a shared `flock`, which excludes programs that need the file alone: another program's libhdf5, a recovery;
//! - a [byte lock](mark) that no reader requests, which tells writers from readers. A program that continues or
//!   replaces a file checks this lock and ignores readers.
//!
//! The kernel releases the locks of a dead process.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Instant;

use fullbore_linux::sys::mark::{self, Hold};
use fullbore_store::lock::PATIENCE;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::Error;

/// Takes the locks that show a writer, for as long as the file is open here.
pub(super) fn show(file: &File) {
    // A refusal means that libhdf5 has the file alone, which shows a writer too. A file system without locks shows
    // nothing.
    let _ = flock(file, FlockOperation::NonBlockingLockShared);
    let _ = mark::hold(file, Hold::Shared);
}

/// Locks a file that no other program has open through libhdf5. All others are excluded until the returned file is
/// dropped.
pub(super) fn take(path: &Path) -> Result<File, Error> {
    let file = open(path)?;
    let alone = FlockOperation::NonBlockingLockExclusive;
    patiently(path, || is_locked(&file, alone) && is_ours(&file))?;
    Ok(file)
}

/// Locks a file that has no writer. Other writers are excluded until the returned file is dropped. Readers are allowed.
pub(super) fn take_beside_readers(path: &Path) -> Result<File, Error> {
    let file = open(path)?;
    let shared = FlockOperation::NonBlockingLockShared;
    patiently(path, || is_locked(&file, shared) && is_ours(&file))?;
    Ok(file)
}

/// Refuses a file that has a writer: it must not be replaced.
pub fn check_replaceable(path: &Path) -> Result<(), Error> {
    let plainly = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let file = match plainly {
        Ok(file) => file,
        // For a dangling link or an unreadable file, the writer cannot be detected.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {
            return Ok(());
        }
        Err(source) => {
            return Err(Error::Disk { path: path.to_owned(), doing: "opening it", source });
        }
    };
    let shared = FlockOperation::NonBlockingLockShared;
    patiently(path, || is_locked(&file, shared) && !mark::is_held(&file).unwrap_or(false))
}

/// Removes a file that has no writer, so that another can replace it. Its readers keep it.
pub fn remove_old(path: &Path) -> Result<(), Error> {
    check_replaceable(path)?;
    std::fs::remove_file(path).map_err(|source| Error::Disk {
        path: path.to_owned(),
        doing: "removing the old one",
        source,
    })
}

fn open(path: &Path) -> Result<File, Error> {
    OpenOptions::new().read(true).write(true).open(path).map_err(|source| Error::Disk {
        path: path.to_owned(),
        doing: "opening it",
        source,
    })
}

/// False if another process's lock forbids this one. A file system without locks forbids nothing.
fn is_locked(file: &File, how: FlockOperation) -> bool {
    flock(file, how) != Err(Errno::WOULDBLOCK)
}

fn is_ours(file: &File) -> bool {
    mark::hold(file, Hold::Alone).unwrap_or(true)
}

/// Retries for a while: a process that was killed just now holds its locks until the kernel has cleaned up.
fn patiently(path: &Path, is_free: impl Fn() -> bool) -> Result<(), Error> {
    let deadline = Instant::now() + PATIENCE;
    while !is_free() {
        if Instant::now() >= deadline {
            return Err(Error::InUse { path: path.to_owned() });
        }
        // No lock can be waited for with a limit.
        std::thread::sleep(PATIENCE / 10);
    }
    Ok(())
}
