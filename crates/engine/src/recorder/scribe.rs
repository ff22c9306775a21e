//! Writes a scan's manifest on all of its members; while the scan is recorded on a thread of its own,
//! since a member that stands still must not hold up whoever decides.

use std::fs::create_dir;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::{Builder, JoinHandle};

use super::arm::RecordError;
use crate::store::lock::{ScanLock, put_file};

/// Who writes manifests, and holds the lock of the scan, which is a lock on the first of them.
#[derive(Default)]
pub struct Scribe {
    lock: Option<ScanLock>,
    writing: Option<JoinHandle<Written>>,
}

type Written = (Option<ScanLock>, Result<(), RecordError>);

impl Scribe {
    /// Writes now, after what is being written.
    pub fn write(&mut self, paths: Vec<PathBuf>, json: &[u8]) -> Result<(), RecordError> {
        // Had it failed, the manifest that comes now would say the same.
        let _ = self.wait();
        let (lock, written) = write(self.lock.take(), &paths, json);
        self.lock = lock;
        written
    }

    /// Begins to write, unless it still does. Whether it began.
    pub fn begin(&mut self, paths: Vec<PathBuf>, json: Vec<u8>) -> Result<bool, RecordError> {
        if self.writing.as_ref().is_some_and(|writing| !writing.is_finished()) {
            return Ok(false);
        }
        self.wait()?;
        // A thread that does not start takes the lock with it, which only says that somebody records.
        let lock = self.lock.take();
        let thread = Builder::new().name("scribe".into());
        let writing = thread.spawn(move || write(lock, &paths, &json));
        self.writing = Some(writing.map_err(RecordError::Thread)?);
        Ok(true)
    }

    /// Ends the last write that was begun.
    fn wait(&mut self) -> Result<(), RecordError> {
        let Some(writing) = self.writing.take() else { return Ok(()) };
        let Ok((lock, written)) = writing.join() else { return Ok(()) };
        self.lock = lock;
        written
    }

    /// Lets the lock go.
    pub fn release(&mut self) {
        let _ = self.wait();
        self.lock = None;
    }
}

fn write(mut lock: Option<ScanLock>, paths: &[PathBuf], json: &[u8]) -> Written {
    let mut failed = None;
    let mut written = 0;
    for path in paths {
        if path.parent().is_none_or(|side| make_side(side).is_err()) {
            continue;
        }
        let put = match &mut lock {
            Some(lock) if lock.path() == path => lock.replace(json).map_err(RecordError::from),
            Some(_) => put_file(path, json)
                .map_err(|source| RecordError::File { path: path.clone(), source }),
            None => ScanLock::create(path, json)
                .map(|made| lock = Some(made))
                .map_err(RecordError::from),
        };
        match put {
            Ok(()) => written += 1,
            Err(error) => failed = Some(error),
        }
    }
    // A member that fails now has been named, or will be by its writer; one copy is enough to read.
    match failed {
        Some(error) if written == 0 => (lock, Err(error)),
        _ => (lock, Ok(())),
    }
}

/// Makes the directory beside a stream, as its writer does too: whoever is second finds it there. The member
/// itself is never made: one that is gone must not come back as a directory on another disk.
fn make_side(side: &Path) -> io::Result<()> {
    if side.is_dir() {
        return Ok(());
    }
    for directory in [side.parent(), Some(side)].into_iter().flatten() {
        match create_dir(directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
