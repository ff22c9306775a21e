//! A lock on one byte of a file, far behind its end. Only programs that request that byte see it.
//!
//! The lock belongs to the open file, like `flock`, and is released when the last descriptor is closed or the program
//! dies. libhdf5 locks whole files with `flock`, which is independent of it.

use std::ffi::c_int;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// The byte: the last but one that a file can have.
const BYTE: i64 = i64::MAX - 1;

/// The kind of lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Shared with other holders. The file must be open for reading.
    Shared,
    /// Exclusive. The file must be open for writing.
    Alone,
}

/// Takes the lock, or changes its kind. Returns false if another holder's lock forbids it.
pub fn hold(file: &File, how: Hold) -> io::Result<bool> {
    let mut lock = on_the_byte(how);
    match control(file, libc::F_OFD_SETLK, &mut lock) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Returns true if another holder has the lock, of either kind. The file may be open in any mode.
pub fn is_held(file: &File) -> io::Result<bool> {
    let mut lock = on_the_byte(Hold::Alone);
    control(file, libc::F_OFD_GETLK, &mut lock)?;
    Ok(c_int::from(lock.l_type) != libc::F_UNLCK)
}

fn on_the_byte(how: Hold) -> libc::flock {
    let kind = match how {
        Hold::Shared => libc::F_RDLCK,
        Hold::Alone => libc::F_WRLCK,
    };
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: BYTE,
        l_len: 1,
        // The kernel requires 0 for locks of open files.
        l_pid: 0,
    }
}

fn control(file: &File, command: c_int, lock: &mut libc::flock) -> io::Result<()> {
    // SAFETY: the descriptor is open as long as `file` is borrowed; both commands read and write one `flock`, which
    // `lock` is and which lives until the call returns.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, std::ptr::from_mut(lock)) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_is_held_by_several_or_by_one_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("any");
        let open = || {
            File::options().read(true).write(true).create(true).truncate(false).open(&path).unwrap()
        };
        let (first, second) = (open(), open());
        assert!(!is_held(&first).unwrap());
        assert!(hold(&first, Hold::Shared).unwrap() && hold(&second, Hold::Shared).unwrap());
        assert!(!hold(&second, Hold::Alone).unwrap());
        drop(first);
        assert!(hold(&second, Hold::Alone).unwrap());
        // The holder does not see its own lock. Others see it, even with read-only access.
        assert!(!is_held(&second).unwrap());
        assert!(is_held(&File::open(&path).unwrap()).unwrap());
    }
}
