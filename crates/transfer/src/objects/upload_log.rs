//! The parts of an upload that a store has confirmed, kept beside the scan: a `send` that was killed continues with them.
//!
//! The file is lines of JSON. The first line has the object and the identifier of its upload, and each other line has a
//! confirmed part. A line without end is one whose write was interrupted, and counts as absent. A scan has one such file,
//! because `send` uploads one chunk after the other. The file only saves time: if it is lost, or cannot be written, the
//! chunk is sent from its beginning.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The largest file that is read: 10 000 parts with long names.
const LARGEST: u64 = 16 << 20;

/// The version of the file's format.
const VERSION: u32 = 1;

/// An object whose upload is kept. The same values mean the same bytes, in the same parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Target {
    /// The address.
    pub object: String,
    /// The identity of the scan.
    pub scan: Uuid,
    /// The size.
    pub bytes: u64,
    /// The CRC32C of all of it.
    pub crc32c: u32,
    /// The size of its parts.
    pub part_bytes: u64,
}

/// The first line.
#[derive(Serialize, Deserialize)]
struct Header {
    version: u32,
    #[serde(flatten)]
    target: Target,
    upload: String,
}

/// Any other line.
#[derive(Serialize, Deserialize)]
struct Confirmed {
    part: usize,
    name: String,
}

/// An upload that was interrupted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Interrupted {
    /// The identifier of the upload.
    pub upload: String,
    /// The names of the confirmed parts, by their numbers.
    pub parts: BTreeMap<usize, String>,
}

/// The file, opened. Without a file, every method does nothing.
#[derive(Debug, Default)]
pub(super) struct UploadLog {
    file: Option<(File, PathBuf)>,
}

impl UploadLog {
    /// Opens the file, and makes it if it does not exist. If another process has it, or it cannot be written, there is no
    /// log.
    pub(super) fn open(path: &Path) -> Self {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::open(path, flags, Mode::from_raw_mode(0o644)).map(File::from);
        let locked = opened.and_then(|file| {
            flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            Ok(file)
        });
        match locked {
            Ok(file) => Self { file: Some((file, path.to_owned())) },
            Err(error) => {
                let path = path.display();
                tracing::warn!(%path, %error, "an interrupted chunk will be sent from its beginning");
                Self::default()
            }
        }
    }

    /// True if parts are kept.
    pub(super) fn is_kept(&self) -> bool {
        self.file.is_some()
    }

    /// Returns the interrupted upload of an object.
    pub(super) fn interrupted(&mut self, target: &Target) -> Option<Interrupted> {
        let (file, _) = self.file.as_mut()?;
        let mut text = Vec::new();
        file.seek(SeekFrom::Start(0)).ok()?;
        file.take(LARGEST).read_to_end(&mut text).ok()?;
        let found = parse(&text, target)?;
        // A line without end would join the next one.
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at as u64 + 1);
        file.set_len(whole).and_then(|()| file.seek(SeekFrom::End(0))).ok()?;
        Some(found)
    }

    /// Begins the upload of an object. That of another is forgotten.
    pub(super) fn begin(&mut self, target: &Target, upload: &str) {
        let header =
            Header { version: VERSION, target: target.clone(), upload: upload.to_owned() };
        self.write(|file| {
            file.set_len(0)?;
            file.seek(SeekFrom::Start(0))?;
            put_line(file, &header)
        });
    }

    /// Adds a confirmed part.
    pub(super) fn confirm(&mut self, part: usize, name: &str) {
        let line = Confirmed { part, name: name.to_owned() };
        self.write(|file| put_line(file, &line));
    }

    /// Forgets the upload.
    pub(super) fn clear(&mut self) {
        self.write(|file| file.set_len(0));
    }

    /// Removes the file.
    pub(super) fn remove(self) {
        if let Some((_, path)) = self.file {
            // If it stays, it is found to be of no object that is to be sent.
            let _ = std::fs::remove_file(path);
        }
    }

    fn write(&mut self, put: impl FnOnce(&mut File) -> io::Result<()>) {
        let Some((file, path)) = &mut self.file else { return };
        if let Err(error) = put(file) {
            let shown = path.display();
            tracing::warn!(path = %shown, %error, "an interrupted chunk will be sent from its beginning");
            let _ = file.set_len(0);
            self.file = None;
        }
    }
}

fn put_line<T: Serialize>(file: &mut File, line: &T) -> io::Result<()> {
    let mut json = serde_json::to_vec(line)?;
    json.push(b'\n');
    file.write_all(&json)
}

/// Reads the file. Anything unexpected in it ends what is known.
fn parse(text: &[u8], target: &Target) -> Option<Interrupted> {
    let mut lines = text.split_inclusive(|&byte| byte == b'\n').filter(|it| it.ends_with(b"\n"));
    let header: Header = serde_json::from_slice(lines.next()?).ok()?;
    if header.version != VERSION || header.target != *target {
        return None;
    }
    let count = target.bytes.div_ceil(target.part_bytes.max(1));
    let parts = lines.map_while(|line| serde_json::from_slice::<Confirmed>(line).ok());
    let parts = parts.take_while(|it| (it.part as u64) < count).map(|it| (it.part, it.name));
    Some(Interrupted { upload: header.upload, parts: parts.collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> Target {
        let object = "s3://b/r1_one/r1_one/r1_one.00000000".to_owned();
        Target { object, scan: Uuid::from_u128(1), bytes: 100, crc32c: 7, part_bytes: 16 }
    }

    fn interrupted(parts: &[usize]) -> Interrupted {
        let parts = parts.iter().map(|&it| (it, format!("name{it}"))).collect();
        Interrupted { upload: "id".to_owned(), parts }
    }

    #[test]
    fn a_file_cut_at_any_byte_keeps_the_lines_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("upload");
        let mut log = UploadLog::open(&path);
        log.begin(&target(), "id");
        for part in [0, 2, 1] {
            log.confirm(part, &format!("name{part}"));
        }
        drop(log);
        let whole = std::fs::read(&path).unwrap();
        let ends: Vec<usize> = (0..whole.len()).filter(|&at| whole[at] == b'\n').collect();
        for cut in 0..=whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let mut log = UploadLog::open(&path);
            let known = ends.iter().filter(|&&end| end < cut).count();
            let expected = known.checked_sub(1).map(|count| interrupted(&[0, 2, 1][..count]));
            assert_eq!(log.interrupted(&target()), expected, "cut at {cut}");
            // What is added after the cut is found.
            if expected.is_some() {
                log.confirm(5, "name5");
                drop(log);
                let parts = UploadLog::open(&path).interrupted(&target()).unwrap().parts;
                assert_eq!(parts.get(&5).map(String::as_str), Some("name5"), "cut at {cut}");
            }
        }
    }

    #[test]
    fn another_object_or_other_bytes_are_not_continued() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = UploadLog::open(&folder.path().join("upload"));
        log.begin(&target(), "id");
        assert_eq!(log.interrupted(&target()), Some(interrupted(&[])));
        for other in [
            Target { object: "s3://c/r1".to_owned(), ..target() },
            Target { scan: Uuid::from_u128(2), ..target() },
            Target { bytes: 101, ..target() },
            Target { crc32c: 8, ..target() },
            Target { part_bytes: 17, ..target() },
        ] {
            assert_eq!(log.interrupted(&other), None);
        }
        log.clear();
        assert_eq!(log.interrupted(&target()), None);
    }

    #[test]
    fn a_part_beyond_the_object_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = UploadLog::open(&folder.path().join("upload"));
        log.begin(&target(), "id");
        log.confirm(6, "name6");
        log.confirm(7, "name7");
        assert_eq!(log.interrupted(&target()), Some(interrupted(&[6])));
    }

    #[test]
    fn one_process_at_a_time_keeps_parts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("upload");
        let mut first = UploadLog::open(&path);
        first.begin(&target(), "id");
        let mut second = UploadLog::open(&path);
        assert!(first.is_kept() && !second.is_kept());
        second.begin(&target(), "other");
        assert_eq!(first.interrupted(&target()), Some(interrupted(&[])));
        first.remove();
        assert!(!path.exists());
    }
}
