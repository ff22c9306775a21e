//! Sockets in a directory, however long its path is.
//!
//! The address of a Unix socket has 108 bytes (`sun_path`, unix(7)), and the path of a recording's directory can be longer. So
//! a socket is named through the descriptor of its directory: `/proc/self/fd/N/NAME`.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The directory of a path, held open, and the path through it.
fn short(path: &Path) -> io::Result<(File, PathBuf)> {
    let no_name = || io::Error::new(io::ErrorKind::InvalidInput, "the path of a socket has a name");
    let name = path.file_name().ok_or_else(no_name)?;
    let parent = path.parent().filter(|parent| *parent != Path::new(""));
    let directory = File::open(parent.unwrap_or(Path::new(".")))?;
    let through = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd())).join(name);
    Ok((directory, through))
}

/// Listens at a path, which only this user can connect to. What was there, such as the socket of a program that died, is
/// replaced.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    let (_directory, through) = short(path)?;
    let mut part = through.file_name().unwrap_or_default().to_owned();
    part.push(OsStr::new(".part"));
    let part = through.with_file_name(part);
    match fs::remove_file(&part) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // Nobody knows the name until the mode is set.
    let listener = UnixListener::bind(&part)?;
    fs::set_permissions(&part, Permissions::from_mode(0o600))?;
    fs::rename(&part, &through)?;
    Ok(listener)
}

/// Connects to the socket at a path.
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    let (_directory, through) = short(path)?;
    UnixStream::connect(through)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn a_socket_in_a_deep_directory_takes_the_place_of_an_old_one_and_is_for_its_user_alone() {
        let place = tempfile::tempdir().unwrap();
        let deep = place.path().join("d".repeat(100)).join("e".repeat(100));
        fs::create_dir_all(&deep).unwrap();
        let path = deep.join("spectra");
        drop(listen(&path).unwrap());
        assert_eq!(connect(&path).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        let listener = listen(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(&deep).unwrap().count(), 1);
        connect(&path).unwrap().write_all(b"one").unwrap();
        let mut came = String::new();
        listener.accept().unwrap().0.read_to_string(&mut came).unwrap();
        assert_eq!(came, "one");
        assert!(listen(Path::new("/")).is_err() && connect(&deep.join("gone")).is_err());
    }
}
