//! Opens files that must be regular files.
//!
//! Opening a named pipe blocks until another process opens its other end, and opening a device node can act on the
//! device. A stored file is neither, so anything else in its place is refused, and no command waits for it.

use std::fs::{File, FileType, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a regular file for reading.
pub fn open(path: &Path) -> io::Result<File> {
    open_with(OpenOptions::new().read(true), path)
}

/// Reads a whole regular file.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens a regular file with these options.
pub fn open_with(options: &OpenOptions, path: &Path) -> io::Result<File> {
    open_with_flags(options, OFlags::empty(), path)
}

/// Opens a regular file with these options and flags, in place of the flags of the options.
pub fn open_with_flags(options: &OpenOptions, flags: OFlags, path: &Path) -> io::Result<File> {
    open_checked(options, flags, path, check)
}

/// Opens a regular file, or a block device: the data of a drive without a file system is on one.
pub fn open_file_or_drive(options: &OpenOptions, flags: OFlags, path: &Path) -> io::Result<File> {
    open_checked(options, flags, path, |kind| match kind.is_block_device() {
        true => Ok(()),
        false => check(kind),
    })
}

fn open_checked(
    options: &OpenOptions,
    flags: OFlags,
    path: &Path,
    check: impl Fn(FileType) -> io::Result<()>,
) -> io::Result<File> {
    match std::fs::metadata(path) {
        Ok(metadata) => check(metadata.file_type())?,
        // The options say if the file is created.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    // If another file takes its place now, opening that does not block. Regular files ignore the flag.
    let flags = (flags | OFlags::NONBLOCK).bits().cast_signed();
    let file = options.clone().custom_flags(flags).open(path)?;
    check(file.metadata()?.file_type())?;
    Ok(file)
}

fn check(kind: FileType) -> io::Result<()> {
    let is = match kind {
        kind if kind.is_file() => return Ok(()),
        kind if kind.is_dir() => "a directory",
        kind if kind.is_fifo() => "a named pipe",
        kind if kind.is_socket() => "a socket",
        kind if kind.is_block_device() || kind.is_char_device() => "a device",
        _ => "something else",
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{is} is in the place of the file")))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn only_regular_files_are_opened_and_nothing_else_blocks() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::write(at("file"), "text").unwrap();
        assert_eq!(read(&at("file")).unwrap(), b"text");
        std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
        assert!(open(&at("link")).is_ok());
        mknodat(CWD, at("pipe"), FileType::Fifo, Mode::from(0o600), 0).unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        let others = [
            (at("pipe"), "a named pipe is in the place of the file"),
            (at("socket"), "a socket is in the place of the file"),
            (directory.path().to_owned(), "a directory is in the place of the file"),
            ("/dev/null".into(), "a device is in the place of the file"),
        ];
        for (path, why) in others {
            let mut append = OpenOptions::new();
            append.append(true).create(true);
            for opened in [open(&path), open_with(&append, &path)] {
                assert_eq!(opened.unwrap_err().to_string(), why);
            }
        }
    }

    #[test]
    fn missing_file_is_not_found_or_created() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new");
        assert_eq!(open(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        let mut options = OpenOptions::new();
        open_with_flags(options.append(true).create(true), OFlags::NOFOLLOW, &path).unwrap();
        assert!(open(&path).is_ok());
    }
}
