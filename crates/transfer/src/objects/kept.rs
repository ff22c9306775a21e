//! What is known of an object that is being sent in parts, kept so that a later process continues it.
//!
//! The file is beside the chunk file: `STREAM/.fullbore/upload.jsonl`. Its first line names the upload. Each further line
//! is a part that the store has confirmed, with what the store wants to hear of it at the end: its ETag and checksum.
//! A process that was killed leaves a torn last line at most, and the part of that line is sent again. Nothing is synced:
//! after a power cut, parts that are not in the file are sent again.
//!
//! A process that uses the file holds a lock on it. Another process that sends the same chunk meanwhile keeps nothing.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use fullbore_linux::regular_file;
use fullbore_store::copies::UPLOAD_FILE;
use fullbore_store::inventory::side_file;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The version of the file.
const VERSION: u32 = 1;

/// The largest file that is read: 10 000 parts with long names.
const LARGEST: u64 = 8 << 20;

/// The most parts of an object.
const MOST_PARTS: usize = 10_000;

/// The upload of an object, as the first line says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Named {
    /// [`VERSION`].
    pub version: u32,
    /// The scan.
    pub scan: Uuid,
    /// The address of the object.
    pub object: String,
    /// Its size.
    pub bytes: u64,
    /// CRC32C of all of it.
    pub crc32c: u32,
    /// The size of each part but the last.
    pub part_bytes: u64,
    /// The name that the store has given the upload.
    pub upload: String,
}

impl Named {
    /// Names an upload.
    pub(super) fn new(
        scan: Uuid,
        object: String,
        bytes: u64,
        crc32c: u32,
        part_bytes: u64,
    ) -> Self {
        Self { version: VERSION, scan, object, bytes, crc32c, part_bytes, upload: String::new() }
    }

    /// True if the other upload sends the same bytes to the same object in the same parts.
    fn is_same(&self, other: &Self) -> bool {
        Self { upload: String::new(), ..self.clone() }
            == Self { upload: String::new(), ..other.clone() }
    }
}

/// A further line: a part that the store has.
#[derive(Serialize, Deserialize)]
struct Line {
    part: usize,
    id: String,
}

/// Parts that the store has confirmed, by their number.
pub(super) type Confirmed = BTreeMap<usize, String>;

/// The file.
#[derive(Debug)]
pub(super) struct Kept {
    path: PathBuf,
    /// `None` if it cannot be written, or another process uses it.
    file: Option<File>,
}

impl Kept {
    /// Opens the file beside a chunk file. Returns the upload in it, if it is that of this object.
    pub(super) fn open(chunk: &Path, wanted: &Named) -> (Self, Option<(Named, Confirmed)>) {
        let mut kept = Self { path: path_beside(chunk), file: None };
        let found = match locked(&kept.path) {
            Ok(mut file) => {
                let found = read(&mut file);
                kept.file = Some(file);
                kept.checked(found).flatten()
            }
            Err(error) => kept.checked(Err(error)).flatten(),
        };
        (kept, found.filter(|(named, _)| named.is_same(wanted)))
    }

    /// Removes a file beside a chunk file whose object is complete: its last process was killed before it could do that.
    pub(super) fn remove_beside(chunk: &Path) {
        let path = path_beside(chunk);
        if path.exists()
            && let Ok(file) = locked(&path)
        {
            Self { path, file: Some(file) }.remove();
        }
    }

    /// True if what is sent now can be continued later.
    pub(super) fn is_kept(&self) -> bool {
        self.file.is_some()
    }

    /// Forgets what the file has, and names a new upload.
    pub(super) fn begin(&mut self, named: &Named) {
        let begun = self.file.as_mut().map_or(Ok(()), |file| {
            file.set_len(0)?;
            file.rewind()?;
            append(file, named)
        });
        self.checked(begun);
    }

    /// Adds a part that the store has confirmed.
    pub(super) fn add(&mut self, part: usize, id: &str) {
        let line = Line { part, id: id.to_owned() };
        let added = self.file.as_mut().map_or(Ok(()), |file| append(file, &line));
        self.checked(added);
    }

    /// Removes the file: the upload is over.
    pub(super) fn remove(&mut self) {
        if self.file.take().is_some() {
            let removed = std::fs::remove_file(&self.path);
            self.checked(removed);
        }
    }

    /// Does without the file from a failure on: then parts are sent again, and no data is at stake.
    fn checked<T>(&mut self, result: io::Result<T>) -> Option<T> {
        match result {
            Ok(it) => Some(it),
            Err(error) => {
                let path = self.path.display();
                tracing::warn!(%path, %error, "an interrupted upload cannot be continued");
                self.file = None;
                None
            }
        }
    }
}

fn path_beside(chunk: &Path) -> PathBuf {
    side_file(chunk.parent().unwrap_or(Path::new(".")), UPLOAD_FILE)
}

fn locked(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file = regular_file::open_with(options.read(true).write(true).create(true), path)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

/// Reads the file, and leaves its end at the end of the last whole line.
fn read(file: &mut File) -> io::Result<Option<(Named, Confirmed)>> {
    let mut bytes = Vec::new();
    file.take(LARGEST).read_to_end(&mut bytes)?;
    let Some((named, confirmed, end)) = parse(&bytes) else { return Ok(None) };
    file.set_len(end as u64)?;
    file.seek(io::SeekFrom::End(0))?;
    Ok(Some((named, confirmed)))
}

/// Returns the upload, its parts, and the end of the last line that is whole.
fn parse(bytes: &[u8]) -> Option<(Named, Confirmed, usize)> {
    let mut lines = bytes.split_inclusive(|&byte| byte == b'\n').filter(|it| it.ends_with(b"\n"));
    let first = lines.next()?;
    let named: Named = serde_json::from_slice(first).ok()?;
    if named.version != VERSION {
        return None;
    }
    let (mut confirmed, mut end) = (Confirmed::new(), first.len());
    for line in lines {
        match serde_json::from_slice::<Line>(line) {
            Ok(Line { part, id }) if part < MOST_PARTS => confirmed.insert(part, id),
            _ => break,
        };
        end += line.len();
    }
    Some((named, confirmed, end))
}

fn append<T: Serialize>(file: &mut File, it: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(it)?;
    line.push(b'\n');
    file.write_all(&line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named() -> Named {
        let object = "s3://bucket/r1_one/r1_one/r1_one.00000000".to_owned();
        Named::new(Uuid::from_u128(1), object, 100, 7, 10)
    }

    /// A directory of a stream, and the path of a chunk file in it.
    fn stream() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join(".fullbore")).unwrap();
        let chunk = directory.path().join("r1_one.00000000");
        (directory, chunk)
    }

    #[test]
    fn a_file_torn_at_any_byte_has_the_parts_of_its_whole_lines() {
        let (_directory, chunk) = stream();
        let (mut kept, found) = Kept::open(&chunk, &named());
        assert!(kept.is_kept() && found.is_none());
        let upload = Named { upload: "abc".into(), ..named() };
        kept.begin(&upload);
        for part in [2, 0, 1] {
            kept.add(part, &format!("<ETag>{part}</ETag>"));
        }
        let (path, whole) = (kept.path.clone(), std::fs::read(&kept.path).unwrap());
        drop(kept);
        for cut in 0..=whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let lines = whole[..cut].iter().filter(|&&byte| byte == b'\n').count();
            let (mut kept, found) = Kept::open(&chunk, &named());
            assert_eq!(found.is_some(), lines > 0, "cut at {cut}");
            let Some((there, confirmed)) = found else { continue };
            assert_eq!((there, confirmed.len()), (upload.clone(), lines - 1), "cut at {cut}");
            // A line that is added then is not joined to the torn one.
            kept.add(9, "nine");
            drop(kept);
            let (_, found) = Kept::open(&chunk, &named());
            assert_eq!(found.unwrap().1.len(), lines, "cut at {cut}");
        }
    }

    #[test]
    fn the_upload_of_other_bytes_is_not_continued() {
        let (_directory, chunk) = stream();
        let (mut kept, _) = Kept::open(&chunk, &named());
        kept.begin(&Named { upload: "abc".into(), ..named() });
        drop(kept);
        let others = [
            Named { bytes: 99, ..named() },
            Named { crc32c: 8, ..named() },
            Named { scan: Uuid::from_u128(2), ..named() },
            Named { object: "s3://other/x".into(), ..named() },
            Named { part_bytes: 11, ..named() },
        ];
        for other in others {
            assert!(Kept::open(&chunk, &other).1.is_none(), "{other:?}");
        }
        assert!(Kept::open(&chunk, &named()).1.is_some());
    }

    #[test]
    fn a_second_process_keeps_nothing() {
        let (_directory, chunk) = stream();
        let (mut kept, _) = Kept::open(&chunk, &named());
        kept.begin(&named());
        let (mut second, found) = Kept::open(&chunk, &named());
        assert!(!second.is_kept() && found.is_none());
        second.add(0, "zero");
        second.remove();
        assert!(kept.path.exists());
        Kept::remove_beside(&chunk);
        assert!(kept.path.exists());
        kept.remove();
        assert!(!kept.path.exists());
    }
}
