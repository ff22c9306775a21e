//! A file that arrives: `NAME.part` until all of it is there, then `NAME`. A name from outside is never a path.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};

use crate::error::EtransferError;

/// The ending of files that are not whole.
const ENDING: &str = ".part";

/// The longest name: with its ending, it is shorter than file systems allow.
const LONGEST_NAME: usize = 200;

/// The name for a file that a peer sends: `x.vdif` or `/x.vdif`. Anything with a directory is refused.
pub fn sent_name(path: &str) -> Result<&str, EtransferError> {
    let name = path.trim_start_matches('/');
    let right = !name.is_empty()
        && name.len() <= LONGEST_NAME
        && !name.starts_with(['.', '~'])
        && !name.ends_with(ENDING)
        && !name.contains(|it: char| it == '/' || it.is_control() || it == '\u{fffd}');
    right.then_some(name).ok_or_else(|| EtransferError::Name(path.chars().take(80).collect()))
}

/// The name here for a file of a peer: `SCAN/STREAM.vdif` becomes `SCAN_STREAM.vdif`, and of other paths the last part
/// counts.
pub fn fetched_name(path: &str) -> Result<String, EtransferError> {
    let parts: Vec<&str> = path.split('/').collect();
    let name = match parts[..] {
        [scan, stream] if !scan.is_empty() && !scan.starts_with('.') => format!("{scan}_{stream}"),
        _ => parts.last().map_or_else(String::new, ToString::to_string),
    };
    match parts.last() {
        Some(last) if sent_name(last).is_ok() && sent_name(&name).is_ok() => Ok(name),
        _ => Err(EtransferError::Name(path.chars().take(80).collect())),
    }
}

/// A file that arrives. Its lock ends with it.
#[derive(Debug)]
pub struct Part {
    path: PathBuf,
    part: PathBuf,
    file: File,
    bytes: u64,
}

impl Part {
    /// Opens the part of a file that does not exist yet. Without `resume`, it begins again.
    pub fn open(directory: &Path, name: &str, resume: bool) -> Result<Self, EtransferError> {
        let path = directory.join(name);
        if path.symlink_metadata().is_ok() {
            return Err(EtransferError::Exists(path));
        }
        let part = directory.join(format!("{name}{ENDING}"));
        let fault = |source| EtransferError::File { path: part.clone(), source };
        // Whoever can write into the directory could lead a link elsewhere, and a FIFO would block.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o644).custom_flags(flags);
        let mut file = options.open(&part).map_err(fault)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(EtransferError::InUse(path));
        }
        // Another transfer may have finished it before the lock was free.
        if path.symlink_metadata().is_ok() {
            return Err(EtransferError::Exists(path));
        }
        if !resume {
            file.set_len(0).map_err(fault)?;
        }
        let bytes = file.seek(SeekFrom::End(0)).map_err(fault)?;
        Ok(Self { path, part, file, bytes })
    }

    /// Its bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The file that it becomes.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Refuses what would fill the file system.
    pub fn check_room(&self, wanted: u64) -> Result<(), EtransferError> {
        let room = rustix::fs::fstatvfs(&self.file).map_err(|error| self.fault(error.into()))?;
        let free = room.f_bavail.saturating_mul(room.f_frsize);
        if wanted <= free {
            return Ok(());
        }
        let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into();
        let directory = self.path.parent().unwrap_or(&self.path).to_owned();
        Err(EtransferError::NoRoom { directory, free, name: name(&self.path), wanted })
    }

    /// Writes the next bytes.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), EtransferError> {
        self.file.write_all(bytes).map_err(|source| self.fault(source))?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Gives the file its name, once it is on the disk.
    pub fn finish(&self) -> Result<(), EtransferError> {
        self.file.sync_all().map_err(|source| self.fault(source))?;
        // Unlike a rename, a link never replaces a file that has appeared in the meantime.
        std::fs::hard_link(&self.part, &self.path).map_err(|source| self.fault(source))?;
        std::fs::remove_file(&self.part).map_err(|source| self.fault(source))?;
        let directory = self.path.parent().unwrap_or(&self.path);
        File::open(directory).and_then(|it| it.sync_all()).map_err(|source| self.fault(source))
    }

    fn fault(&self, source: std::io::Error) -> EtransferError {
        EtransferError::File { path: self.part.clone(), source }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if self.bytes == 0 {
            // An empty part is of no use to a transfer that resumes. One that stays does no harm.
            let _ = std::fs::remove_file(&self.part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_peers_are_never_paths() {
        for (path, name) in [("x.vdif", "x.vdif"), ("/x.vdif", "x.vdif"), ("//a b", "a b")] {
            assert_eq!(sent_name(path).unwrap(), name);
        }
        let long = "a".repeat(LONGEST_NAME + 1);
        let wrong = ["", "/", "..", "../x", "a/../../x", "/etc/passwd", "a/b", ".bashrc", "~/x"];
        for path in wrong.into_iter().chain(["x.part", "a\0b", "a\x1bb", "\u{fffd}", &long]) {
            assert!(matches!(sent_name(path), Err(EtransferError::Name(_))), "{path}");
        }
        for (path, name) in [("r1_a/1.vdif", "r1_a_1.vdif"), ("/d/x", "x"), ("../x", "x")] {
            assert_eq!(fetched_name(path).unwrap(), name);
        }
        for path in ["", "a/", "..", "a/..", "a/.x", "/d/~x", "a/b/c.part"] {
            assert!(fetched_name(path).is_err(), "{path}");
        }
    }

    #[test]
    fn a_part_resumes_and_becomes_the_file_once() {
        let root = tempfile::tempdir().unwrap();
        let open = |resume| Part::open(root.path(), "x", resume);
        let names = || std::fs::read_dir(root.path()).unwrap().count();
        drop(open(true).unwrap());
        assert_eq!(names(), 0, "an empty part is removed");
        let mut part = open(true).unwrap();
        part.append(b"abc").unwrap();
        assert!(matches!(open(true), Err(EtransferError::InUse(_))));
        assert!(matches!(part.check_room(u64::MAX), Err(EtransferError::NoRoom { .. })));
        drop(part);
        assert_eq!(open(true).unwrap().bytes(), 3);
        assert_eq!(open(false).unwrap().bytes(), 0);
        let mut part = open(true).unwrap();
        part.append(b"defg").unwrap();
        part.finish().unwrap();
        drop(part);
        assert_eq!((std::fs::read(root.path().join("x")).unwrap(), names()), (b"defg".into(), 1));
        assert!(matches!(open(false), Err(EtransferError::Exists(_))));
    }

    #[test]
    fn a_link_in_the_directory_leads_nowhere() {
        let (root, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let secret = other.path().join("secret");
        std::fs::write(&secret, b"secret").unwrap();
        std::os::unix::fs::symlink(&secret, root.path().join("x.part")).unwrap();
        std::os::unix::fs::symlink(&secret, root.path().join("y")).unwrap();
        assert!(matches!(Part::open(root.path(), "x", false), Err(EtransferError::File { .. })));
        assert!(matches!(Part::open(root.path(), "y", false), Err(EtransferError::Exists(_))));
        assert_eq!(std::fs::read(&secret).unwrap(), b"secret");
    }
}
