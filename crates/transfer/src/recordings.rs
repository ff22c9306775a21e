//! Finds out whether a scan is being recorded on the members of a store, often and at little cost.
//!
//! A recorder holds a lock in a directory of its scan ([`fullbore_store::lock`]). So does a transfer in a copy that arrives,
//! which is no recording. A scan is recorded once, so a
//! directory whose lock was free for some seconds needs no second look. New directories change the time of the root.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use fullbore_core::manifest::{MANIFEST_FILE, Manifest, SIDE_DIRECTORY};
use fullbore_linux::regular_file;
use fullbore_store::lock::is_held;

/// Time in which the recorder locks the manifest in a directory that it made.
const YOUTH: Duration = Duration::from_secs(10);

/// The times of directories have steps; a root that changed less than this before it was listed is listed again.
const STEP: Duration = Duration::from_secs(2);

/// Bytes of a manifest that are read: a larger one counts as that of a recorder.
const LARGEST_MANIFEST: u64 = 32 << 20;

/// The members of a store, and the directories on them whose locks may be held.
#[derive(Debug)]
pub struct Recordings {
    roots: Vec<Root>,
}

#[derive(Debug)]
struct Root {
    path: PathBuf,
    /// The time of the listing that counts; `None` if the root must be listed.
    listed: Option<SystemTime>,
    directories: BTreeMap<OsString, Directory>,
}

#[derive(Clone, Copy, Debug)]
enum Directory {
    /// The lock was held at the last look, by a recorder.
    Held,
    /// The lock was held at the last look, for a copy that arrives.
    Arriving,
    /// The lock may still be taken.
    Young(Instant),
    /// The scan is over.
    Over,
}

impl Recordings {
    /// Watches the members with these roots.
    pub fn on(roots: &[PathBuf]) -> Self {
        let root = |path: &PathBuf| Root {
            path: path.clone(),
            listed: None,
            directories: BTreeMap::new(),
        };
        Self { roots: roots.iter().map(root).collect() }
    }

    /// Returns the directory of a scan that is being recorded now, if there is one.
    pub fn look(&mut self) -> Option<PathBuf> {
        self.roots.iter_mut().filter_map(Root::look).next()
    }
}

impl Root {
    fn look(&mut self) -> Option<PathBuf> {
        self.list();
        let mut found = None;
        for (name, directory) in &mut self.directories {
            if matches!(directory, Directory::Over) {
                continue;
            }
            let path = self.path.join(name);
            *directory = match (is_held(&lock_of(&path)), *directory) {
                (true, known @ (Directory::Held | Directory::Arriving)) => known,
                (true, _) if is_copy(&lock_of(&path)) => Directory::Arriving,
                (true, _) => Directory::Held,
                (false, Directory::Young(since)) if since.elapsed() < YOUTH => {
                    Directory::Young(since)
                }
                (false, _) => Directory::Over,
            };
            if matches!(directory, Directory::Held) {
                found.get_or_insert(path);
            }
        }
        found
    }

    /// Lists the root again if it has changed.
    fn list(&mut self) {
        let changed = std::fs::metadata(&self.path).and_then(|it| it.modified()).ok();
        if changed.is_some() && changed == self.listed {
            return;
        }
        let Ok(entries) = std::fs::read_dir(&self.path) else { return };
        let mut before = std::mem::take(&mut self.directories);
        for entry in entries.flatten() {
            if !entry.file_type().is_ok_and(|it| it.is_dir()) {
                continue;
            }
            let name = entry.file_name();
            let known = before.remove(&name);
            let directory = known.unwrap_or_else(|| Directory::Young(Instant::now()));
            self.directories.insert(name, directory);
        }
        let settled = |at: &SystemTime| at.elapsed().is_ok_and(|age| age > STEP);
        self.listed = changed.filter(settled);
    }
}

fn lock_of(directory: &Path) -> PathBuf {
    directory.join(SIDE_DIRECTORY).join(MANIFEST_FILE)
}

/// True if this is the manifest of a copy. It says so from the beginning.
fn is_copy(manifest: &Path) -> bool {
    let mut json = Vec::new();
    let read = regular_file::open(manifest)
        .and_then(|file| file.take(LARGEST_MANIFEST).read_to_end(&mut json));
    read.is_ok() && Manifest::from_json(&json).is_ok_and(|manifest| manifest.copied.is_some())
}

#[cfg(test)]
mod tests {
    use fullbore_core::manifest::Copied;
    use fullbore_store::lock::ScanLock;
    use fullbore_store::testing::{Store, StreamPlan};

    use super::*;

    fn scan(root: &Path, name: &str) -> PathBuf {
        let path = root.join(name);
        std::fs::create_dir_all(path.join(SIDE_DIRECTORY)).unwrap();
        path
    }

    #[test]
    fn a_recording_is_found_while_its_lock_is_held() {
        let root = tempfile::tempdir().unwrap();
        for number in 0..20 {
            let path = scan(root.path(), &format!("r1_old{number}"));
            std::fs::write(lock_of(&path), b"{}").unwrap();
        }
        let mut recordings = Recordings::on(&[root.path().to_owned()]);
        assert_eq!(recordings.look(), None);
        let path = scan(root.path(), "r1_new");
        assert_eq!(recordings.look(), None, "its recorder has not locked it yet");
        let mut lock = ScanLock::create(&lock_of(&path), b"{}").unwrap();
        assert_eq!(recordings.look().as_ref(), Some(&path));
        lock.replace(b"{ }").unwrap();
        assert_eq!(recordings.look().as_ref(), Some(&path));
        drop(lock);
        assert_eq!(recordings.look(), None);
        std::fs::remove_dir_all(&path).unwrap();
        assert_eq!(recordings.look(), None);
    }

    #[test]
    fn a_copy_that_arrives_is_no_recording() {
        let store = Store::new(1);
        let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
        let root = store.roots().remove(0);
        let mut recordings = Recordings::on(&[root]);
        let mut lock = ScanLock::take(&laid.manifest_path(0, 0)).unwrap();
        let copied = Copied {
            host: "far".into(),
            key: String::new(),
            begun: laid.manifest.armed,
            completed: None,
            source: Vec::new(),
            unreadable_blocks: 0,
        };
        let copy = Manifest { copied: Some(copied), ..laid.manifest.clone() };
        lock.replace(&copy.to_json()).unwrap();
        assert_eq!(recordings.look(), None);
        drop(lock);
        let mut lock = ScanLock::take(&laid.manifest_path(0, 0)).unwrap();
        lock.replace(&laid.manifest.to_json()).unwrap();
        let mut recordings = Recordings::on(&store.roots());
        assert!(recordings.look().is_some());
    }

    #[test]
    fn a_root_that_is_gone_has_no_recordings() {
        assert_eq!(Recordings::on(&["/nowhere/at/all".into()]).look(), None);
    }
}
