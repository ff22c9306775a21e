//! A lock on one byte of a file, far behind its end: seen by those who ask for that byte and by nobody else.
//!
//! It belongs to the open file, as `flock` does, and goes when the last descriptor of it is closed or its program dies.
//! libhdf5 locks whole files by `flock`, which knows nothing of it.

use std::ffi::c_int;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// The byte, the last but one that a file can have.
const BYTE: i64 = i64::MAX - 1;

/// How the byte is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// As others may hold it too. The file must be open for reading.
    Shared,
    /// By us alone. The file must be open for writing.
    Alone,
}

/// Holds the byte, or holds it otherwise than before. False where somebody else's hold forbids it.
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

/// Whether anybody else holds the byte, in whatever way. However the file is open.
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
        // The kernel wants it so for locks of open files.
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
        // Who holds it sees nobody else; others see it, even those who may only read.
        assert!(!is_held(&second).unwrap());
        assert!(is_held(&File::open(&path).unwrap()).unwrap());
    }
}
