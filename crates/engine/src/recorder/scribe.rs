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

/// The lock, how many places there were, and those where nothing could be written.
type Written = (Option<ScanLock>, usize, Vec<(PathBuf, RecordError)>);

impl Scribe {
    /// Writes now, after what is being written. Gives the places where it could not.
    pub fn write(&mut self, paths: &[PathBuf], json: &[u8]) -> Vec<(PathBuf, RecordError)> {
        // Had it failed, the manifest that comes now would say the same.
        let _ = self.wait();
        let (lock, _, failed) = write(self.lock.take(), paths, json);
        self.lock = lock;
        failed
    }

    /// Begins to write, unless it still does. Whether it began. An error is of the time before.
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
        let Ok((lock, places, failed)) = writing.join() else { return Ok(()) };
        self.lock = lock;
        one_is_enough(places, failed)
    }

    /// Lets the lock go.
    pub fn release(&mut self) {
        let _ = self.wait();
        self.lock = None;
    }
}

/// A member that fails now has been named, or will be by its writer; one copy is enough to read.
pub fn one_is_enough(
    places: usize,
    mut failed: Vec<(PathBuf, RecordError)>,
) -> Result<(), RecordError> {
    if failed.len() < places {
        return Ok(());
    }
    failed.pop().map_or(Ok(()), |(_, error)| Err(error))
}

fn write(mut lock: Option<ScanLock>, paths: &[PathBuf], json: &[u8]) -> Written {
    let mut failed = Vec::new();
    for path in paths {
        let side = path.parent().expect("a manifest lies in a directory");
        let put = match (make_side(side), &mut lock) {
            (Err(source), _) => Err(RecordError::File { path: path.clone(), source }),
            (_, Some(lock)) if lock.path() == path => lock.replace(json).map_err(RecordError::from),
            (_, Some(_)) => put_file(path, json)
                .map_err(|source| RecordError::File { path: path.clone(), source }),
            (_, None) => ScanLock::create(path, json)
                .map(|made| lock = Some(made))
                .map_err(RecordError::from),
        };
        failed.extend(put.err().map(|error| (path.clone(), error)));
    }
    (lock, paths.len(), failed)
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
