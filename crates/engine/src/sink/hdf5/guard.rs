//! Whether a file has a writer: its marks look the same whether that lives or not, so a living one holds a lock.
//!
//! libhdf5 locks a file with `flock`: exclusively while it alone has it, and not at all any more once readers are
//! let in (SWMR). From then on a writer holds a shared lock of its own. Readers come and go as they like, as
//! libhdf5 has them take a shared one; whoever wants to write, be it libhdf5 or a recovery, wants it exclusively and is
//! refused. The kernel takes the lock of a process that dies.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::time::Instant;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::Error;
use crate::store::lock::PATIENCE;

/// Shows others that the file has a writer, for as long as it is open here.
pub(super) fn show(file: &File) {
    // Refused: libhdf5 has the file to itself, and shows as much. A file system without locks shows nothing.
    let _ = flock(file, FlockOperation::NonBlockingLockShared);
}

/// Takes a file that nobody writes, and keeps writers from it for as long as what is returned lives.
pub(super) fn take(path: &Path) -> Result<File, Error> {
    let opened = OpenOptions::new().read(true).write(true).open(path);
    let file = opened.map_err(|source| Error::Disk {
        path: path.to_owned(),
        doing: "opening it",
        source,
    })?;
    let deadline = Instant::now() + PATIENCE;
    while flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
        if Instant::now() >= deadline {
            return Err(Error::InUse { path: path.to_owned() });
        }
        // One that was killed just now holds it until the kernel has cleared up.
        std::thread::sleep(PATIENCE / 10);
    }
    Ok(file)
}
