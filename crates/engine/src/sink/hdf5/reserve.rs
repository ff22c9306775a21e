//! Room on the disk for the ending of a file, taken while there is some: a full disk must not keep a file from
//! saying how it ended, nor its columns from being cut to one length.

use std::fs::File;
use std::path::Path;

use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, open, statvfs};

use super::Error;

/// For attributes, the index of acquisitions, and what libhdf5 has not written yet of its own books.
const ENDING_BYTES: u64 = 1 << 20;

/// Refuses a place that has no room for a file and its ending: one that cannot be ended could not be read.
pub fn check_room(path: &Path) -> Result<(), Error> {
    // Whoever cannot be asked may have room; a file system without a size does not tell.
    let Ok(status) = statvfs(folder_of(path)) else { return Ok(()) };
    let free = status.f_bavail.saturating_mul(status.f_frsize);
    if status.f_blocks > 0 && free < ENDING_BYTES {
        return Err(Error::Disk {
            path: path.to_owned(),
            doing: "there is not a megabyte free for it",
            source: rustix::io::Errno::NOSPC.into(),
        });
    }
    Ok(())
}

fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// Takes room for an ending and so many bytes more, in a file without a name beside this one. It is free again when
/// what is returned is dropped, or its program dies. A file system that has no such files, or no room, gives none.
pub(super) fn take(path: &Path, more_bytes: u64) -> Option<File> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = open(folder_of(path), flags, Mode::RUSR | Mode::WUSR).ok()?;
    fallocate(&file, FallocateFlags::empty(), 0, ENDING_BYTES.saturating_add(more_bytes)).ok()?;
    Some(file.into())
}
