//! Whether a file has a writer: its marks look the same whether that lives or not, so a living one holds locks.
//!
//! libhdf5 locks a file with `flock`: exclusively while it alone has it, and not at all any more once readers are
//! let in (SWMR). Readers take a shared one, and some keep a file open for days. So a writer of ours holds two:
//!
//! - a shared `flock`, which keeps out whoever wants the file to itself: another program's libhdf5, a recovery;
//! - a [byte](mark) that no reader asks for, which tells writers of ours from readers. Whoever continues a file or puts
//!   another in its place looks at that, and lets readers be.
//!
//! The kernel takes the locks of a process that dies.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Instant;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::Error;
use crate::store::lock::PATIENCE;
use crate::sys::mark::{self, Hold};

/// Shows others that the file has a writer, for as long as it is open here.
pub(super) fn show(file: &File) {
    // Refused: libhdf5 has the file to itself, and shows as much. A file system without locks shows nothing.
    let _ = flock(file, FlockOperation::NonBlockingLockShared);
    let _ = mark::hold(file, Hold::Shared);
}

/// Takes a file that nobody else has open through libhdf5, and keeps everybody from it for as long as what is returned
/// lives.
pub(super) fn take(path: &Path) -> Result<File, Error> {
    let file = open(path)?;
    let alone = FlockOperation::NonBlockingLockExclusive;
    patiently(path, || is_locked(&file, alone) && is_ours(&file))?;
    Ok(file)
}

/// Takes a file that nobody writes, and keeps writers from it for as long as what is returned lives. Readers may be
/// there, and may come.
pub(super) fn take_beside_readers(path: &Path) -> Result<File, Error> {
    let file = open(path)?;
    let shared = FlockOperation::NonBlockingLockShared;
    patiently(path, || is_locked(&file, shared) && is_ours(&file))?;
    Ok(file)
}

/// Refuses a file that somebody writes: nothing may take its place.
pub fn check_replaceable(path: &Path) -> Result<(), Error> {
    let plainly = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let file = match plainly {
        Ok(file) => file,
        // A link that leads nowhere, or what we may not read: whoever writes it cannot be seen.
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

/// Removes a file that nobody writes, so that another can take its place. Those who read it keep it.
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

/// False while somebody else's lock forbids this one. A file system without locks forbids nothing.
fn is_locked(file: &File, how: FlockOperation) -> bool {
    flock(file, how) != Err(Errno::WOULDBLOCK)
}

fn is_ours(file: &File) -> bool {
    mark::hold(file, Hold::Alone).unwrap_or(true)
}

/// Tries for a while: one that was killed just now holds its locks until the kernel has cleared up.
fn patiently(path: &Path, is_free: impl Fn() -> bool) -> Result<(), Error> {
    let deadline = Instant::now() + PATIENCE;
    while !is_free() {
        if Instant::now() >= deadline {
            return Err(Error::InUse { path: path.to_owned() });
        }
        std::thread::sleep(PATIENCE / 10);
    }
    Ok(())
}
