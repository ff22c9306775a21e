//! The load of a recorder, published for other processes: the use of its memory, many times a second.
//!
//! A transfer on the same host gives way before the recorder loses data (`fullbore-transfer`). The file is in shared
//! memory, so that no disk can delay the recorder's supervisor:
//!
//! ```text
//! /dev/shm/fullbore-load-<pid>-<number>     96 bytes: version, pid, time, use, frames overrun, receive buffer; spaces; newline
//! 2 12345 86400123 437 0 134217728
//! ```
//!
//! The time is that of the monotonic clock, in milliseconds; the use is in thousandths. A file that was not written for
//! some time counts for nothing: its recorder is gone, or cannot tell.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::time::{ClockId, clock_gettime};

use crate::regular_file;

/// The directory of the files: memory that all users share.
pub const DIRECTORY: &str = "/dev/shm";

/// The least time between two writes.
pub const PERIOD: Duration = Duration::from_millis(40);

/// The age at which a file counts for nothing.
const FRESH_MS: u64 = 500;

/// The age at which a file is removed.
const STALE_MS: u64 = 60_000;

const PREFIX: &str = "fullbore-load-";
const BYTES: usize = 96;
const VERSION: &str = "2";

/// The load of a recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecorderLoad {
    /// Its process.
    pub pid: u32,
    /// The time, by the monotonic clock, in milliseconds.
    pub at_ms: u64,
    /// The use of the fullest stream's memory, in thousandths.
    pub used_permille: u32,
    /// Frames that arrived when no block was free, in all streams of the scan.
    pub overrun: u64,
    /// Bytes of the smallest receive buffer of its sockets; 0 if it has no socket.
    pub receive_buffer: u64,
}

/// The file of a recorder of this process. It is removed when dropped.
#[derive(Debug)]
pub struct LoadFile {
    file: File,
    path: PathBuf,
    receive_buffer: u64,
    written: Option<Instant>,
}

impl LoadFile {
    /// Makes a file in this directory, usually [`DIRECTORY`], for a recorder whose sockets have at least this receive buffer.
    pub fn create(directory: &Path, receive_buffer: u64) -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        remove_stale(directory);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!("{PREFIX}{}-{number}", std::process::id()));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o644);
        options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        let file = match options.open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // An earlier process had the same number.
                std::fs::remove_file(&path)?;
                options.open(&path)?
            }
            opened => opened?,
        };
        Ok(Self { file, path, receive_buffer, written: None })
    }

    /// True if the last write is long enough ago.
    pub fn is_due(&self) -> bool {
        self.written.is_none_or(|at| at.elapsed() >= PERIOD)
    }

    /// Writes the load. A failure costs other processes their knowledge, and nothing else.
    pub fn put(&mut self, used_permille: u32, overrun: u64) {
        let at_ms = now_ms();
        let (pid, receive_buffer) = (std::process::id(), self.receive_buffer);
        let load = RecorderLoad { pid, at_ms, used_permille, overrun, receive_buffer };
        let _ = self.file.write_all_at(load.line().as_bytes(), 0);
        self.written = Some(Instant::now());
    }
}

impl Drop for LoadFile {
    fn drop(&mut self) {
        // Whoever reads it ignores it soon.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl RecorderLoad {
    fn line(&self) -> String {
        let Self { pid, at_ms, used_permille, overrun, receive_buffer } = self;
        let text = format!("{VERSION} {pid} {at_ms} {used_permille} {overrun} {receive_buffer}");
        format!("{text:<width$}\n", width = BYTES - 1)
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.strip_suffix('\n')?.split_ascii_whitespace();
        let mut next = || words.next();
        (next()? == VERSION).then_some(())?;
        let load = Self {
            pid: next()?.parse().ok()?,
            at_ms: next()?.parse().ok()?,
            used_permille: next()?.parse().ok()?,
            overrun: next()?.parse().ok()?,
            receive_buffer: next()?.parse().ok()?,
        };
        next().is_none().then_some(load)
    }

    fn age_ms(&self) -> u64 {
        now_ms().saturating_sub(self.at_ms)
    }
}

/// Returns the load of every recorder with a fresh file in this directory.
pub fn read_all(directory: &Path) -> Vec<RecorderLoad> {
    let loads = files(directory).filter_map(|path| read(&path));
    loads.filter(|load| load.age_ms() <= FRESH_MS).collect()
}

fn remove_stale(directory: &Path) {
    for path in files(directory) {
        if read(&path).is_some_and(|load| load.age_ms() > STALE_MS) {
            // Another user's file stays.
            let _ = std::fs::remove_file(&path);
        }
    }
}

fn files(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let is_ours =
        |path: &PathBuf| path.file_name().and_then(|it| it.to_str()).is_some_and(is_load_file);
    entries.map(|entry| entry.path()).filter(is_ours)
}

fn is_load_file(name: &str) -> bool {
    name.starts_with(PREFIX)
}

fn read(path: &Path) -> Option<RecorderLoad> {
    let mut bytes = [0; BYTES];
    regular_file::open(path).ok()?.read_exact(&mut bytes).ok()?;
    RecorderLoad::parse(std::str::from_utf8(&bytes).ok()?)
}

fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1000 + now.tv_nsec.unsigned_abs() / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_read_as_it_was_written_until_its_recorder_ends() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = LoadFile::create(directory.path(), 1 << 27).unwrap();
        assert!(file.is_due() && read_all(directory.path()).is_empty());
        file.put(437, u64::MAX);
        assert!(!file.is_due());
        let loads = read_all(directory.path());
        let [load] = loads[..] else { panic!("{loads:?}") };
        assert_eq!(
            (load.pid, load.used_permille, load.overrun, load.receive_buffer),
            (std::process::id(), 437, u64::MAX, 1 << 27)
        );
        let other = LoadFile::create(directory.path(), 0).unwrap();
        assert_ne!(other.path, file.path, "a process can have several recorders");
        drop((file, other));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_longest_line_has_room() {
        let (pid, at_ms) = (4_194_304, 100 * 366 * 86_400_000);
        let (overrun, receive_buffer) = (u64::MAX, u64::MAX);
        let load = RecorderLoad { pid, at_ms, used_permille: 1000, overrun, receive_buffer };
        assert_eq!(load.line().len(), BYTES);
        assert_eq!(RecorderLoad::parse(&load.line()), Some(load));
    }

    #[test]
    fn old_files_and_other_files_count_for_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            std::fs::write(directory.path().join(name), text).unwrap();
        };
        let old =
            RecorderLoad { pid: 1, at_ms: 0, used_permille: 900, overrun: 0, receive_buffer: 0 };
        put("fullbore-load-1-0", &old.line());
        put("fullbore-load-2-0", "");
        put("fullbore-load-3-0", &"x".repeat(BYTES));
        put("fullbore-load-4-0", &format!("{:<95}\n", "1 4 5 6 7 8"));
        std::os::unix::fs::symlink("nowhere", directory.path().join("fullbore-load-5-0")).unwrap();
        assert_eq!(read_all(directory.path()), []);
        remove_stale(directory.path());
        assert_eq!(directory.path().join("fullbore-load-1-0").exists(), now_ms() <= STALE_MS);
    }

    #[test]
    fn a_link_in_the_place_of_the_file_is_not_written_through() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("precious");
        std::fs::write(&target, "precious").unwrap();
        for number in 0..64 {
            let name = format!("{PREFIX}{}-{number}", std::process::id());
            let _ = std::os::unix::fs::symlink(&target, directory.path().join(name));
        }
        if let Ok(mut file) = LoadFile::create(directory.path(), 0) {
            file.put(1, 2);
        }
        assert_eq!(std::fs::read(&target).unwrap(), b"precious");
    }
}
