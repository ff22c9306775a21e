//! Reserved disk space for the ending of a file, taken while there is some. On a full disk the file still gets its
//! ending, and its columns are still cut to one length.

use std::fs::File;
use std::path::Path;

use fullbore_linux::place::{self, folder_of};
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, open, statvfs};
use rustix::io::Errno;

use super::Error;

/// Space for attributes, the index of acquisitions, and metadata that libhdf5 has not written yet.
const ENDING_BYTES: u64 = 1 << 20;

/// Refuses a path without space for a file and its ending: a file without an ending could not be read.
pub fn check_room(path: &Path) -> Result<(), Error> {
    // If the file system does not report its free space, or has no size, it may have space.
    let Ok(status) = statvfs(folder_of(path)) else { return Ok(()) };
    let free = status.f_bavail.saturating_mul(status.f_frsize);
    if status.f_blocks > 0 && free < ENDING_BYTES {
        return Err(Error::Disk {
            path: path.to_owned(),
            doing: "there is not a megabyte free for it",
            source: Errno::NOSPC.into(),
        });
    }
    Ok(())
}

/// Refuses a path where no file can be created, or without space for one.
pub fn check_place(path: &Path) -> Result<(), Error> {
    place::check(path)?;
    check_room(path)
}

/// Reserves space for an ending and `more_bytes` more, in a file without a name beside this one. Dropping the returned
/// file, or the death of the program, frees the space. Returns `None` if the file system has no such files or no space.
pub(super) fn take(path: &Path, more_bytes: u64) -> Option<File> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = open(folder_of(path), flags, Mode::RUSR | Mode::WUSR).ok()?;
    fallocate(&file, FallocateFlags::empty(), 0, ENDING_BYTES.saturating_add(more_bytes)).ok()?;
    Some(file.into())
}
