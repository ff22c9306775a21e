//! Triggers as files: `<member>/.fullbore/triggers/<recording>.<uuid>.json`, on every member that accepts them.
//!
//! A trigger is durable before it counts, and its file stays until the scan that it keeps is sealed. So neither a recorder
//! nor a host that dies in between loses it.

use std::borrow::Cow;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use fullbore_core::hint::Hint;
use fullbore_core::manifest::SIDE_DIRECTORY;
use fullbore_core::marker::Text;
use fullbore_core::name::ScanName;
use fullbore_linux::regular_file;
use fullbore_store::inventory::MEMBER_FILE;
use fullbore_store::lock::put_file;
use fullbore_time::Tai;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::RingName;
use super::plan::Window;

/// The directory of these files, in [`SIDE_DIRECTORY`] at a member's root.
const DIRECTORY: &str = "triggers";

/// The version of the files.
const VERSION: u32 = 1;

/// The largest file that is read.
const LARGEST: u64 = 16 << 10;

/// The most triggers of a recording that wait at once.
const MOST: usize = 1000;

/// A part of a circular recording that is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trigger {
    pub(super) version: u32,
    /// Its identity, and that of the scan that it keeps.
    pub uuid: Uuid,
    /// The circular recording.
    pub(super) ring: ScanName,
    /// The moment of the trigger, by the host's clock.
    pub at: Tai,
    /// The begin of the part.
    pub from: Tai,
    /// Its end.
    pub to: Tai,
    /// The name of the scan that it keeps.
    pub keep_as: ScanName,
    /// A note, which becomes a marker of the scan.
    pub text: Text,
}

/// A trigger cannot be set.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TriggerError {
    /// No member accepts the file.
    #[error("no member of the store accepts the trigger; {}: {source}", path.display())]
    Write {
        /// The file on the last member.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Too many triggers wait.
    #[error("{ring} has {MOST} triggers that wait already")]
    Full {
        /// The recording.
        ring: RingName,
    },
}

impl Hint for TriggerError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Write { .. } => Some("is the member full, or read-only?".into()),
            Self::Full { .. } => Some("is its recorder alive? `fullbore ls` shows it".into()),
        }
    }
}

impl Trigger {
    /// A trigger that keeps a part of a recording as the scan `keep_as`.
    pub fn new(
        ring: &RingName,
        at: Tai,
        (from, to): (Tai, Tai),
        keep_as: ScanName,
        text: Text,
    ) -> Self {
        let (version, uuid, ring) = (VERSION, Uuid::now_v7(), ring.0.clone());
        Self { version, uuid, ring, at, from, to, keep_as, text }
    }

    /// The recording.
    pub fn ring(&self) -> RingName {
        RingName(self.ring.clone())
    }

    pub(super) fn window(&self) -> Window {
        Window { from: self.from, to: self.to }
    }

    /// Sets the trigger, or replaces it: it is durable when this returns.
    ///
    /// # Errors
    ///
    /// No member accepts it, or 1000 triggers wait.
    pub fn put(&self, roots: &[PathBuf]) -> Result<(), TriggerError> {
        let waiting = list(roots, &self.ring());
        if waiting.len() >= MOST && waiting.iter().all(|it| it.uuid != self.uuid) {
            return Err(TriggerError::Full { ring: self.ring() });
        }
        let json = serde_json::to_vec_pretty(self).expect("it has only plain fields");
        let mut failed = None;
        let mut taken = false;
        for root in roots {
            match directory_of(root).and_then(|it| put_file(&it.join(self.file()), &json)) {
                Ok(()) => taken = true,
                Err(source) => failed = Some((root.join(self.file()), source)),
            }
        }
        match failed.filter(|_| !taken) {
            Some((path, source)) => Err(TriggerError::Write { path, source }),
            None => Ok(()),
        }
    }

    /// Removes the trigger from all members.
    pub(super) fn remove(&self, roots: &[PathBuf]) {
        for root in roots {
            // What cannot be removed is found again, and does no harm: its scan is there.
            let _ = std::fs::remove_file(path_in(root).join(self.file()));
        }
    }

    fn file(&self) -> String {
        format!("{}.{}.json", self.ring, self.uuid)
    }
}

fn path_in(root: &Path) -> PathBuf {
    root.join(SIDE_DIRECTORY).join(DIRECTORY)
}

/// Makes the directory of triggers on a member. On a mount point without its disk nothing is made.
pub(super) fn directory_of(root: &Path) -> io::Result<PathBuf> {
    std::fs::metadata(root.join(SIDE_DIRECTORY).join(MEMBER_FILE))?;
    let path = path_in(root);
    match std::fs::create_dir(&path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => Ok(path),
    }
}

/// The triggers of a recording that wait, by the time at which they were set. A file that is damaged does not count.
pub(super) fn list(roots: &[PathBuf], ring: &RingName) -> Vec<Trigger> {
    let mut found: Vec<Trigger> = Vec::new();
    let prefix = format!("{ring}.");
    for root in roots {
        let Ok(entries) = std::fs::read_dir(path_in(root)) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if !name.starts_with(&prefix) || !name.ends_with(".json") {
                continue;
            }
            let read = read(&entry.path()).filter(|it| it.ring == ring.0 && it.file() == name);
            found.extend(read.filter(|it| it.version == VERSION && it.from <= it.to));
        }
    }
    // A file that could not be replaced on one member has an earlier end.
    found.sort_by_key(|it| (it.uuid, std::cmp::Reverse(it.to)));
    found.dedup_by_key(|it| it.uuid);
    found
}

fn read(path: &Path) -> Option<Trigger> {
    let mut bytes = Vec::new();
    regular_file::open(path).ok()?.take(LARGEST).read_to_end(&mut bytes).ok()?;
    serde_json::from_slice(&bytes).ok()
}

#[cfg(test)]
mod tests {
    use fullbore_store::Member;

    use super::*;

    #[test]
    fn trigger_is_on_every_member_and_read_once() {
        let members = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let bare = tempfile::tempdir().unwrap();
        members.iter().for_each(|it| drop(Member::open(it.path()).unwrap()));
        let roots: Vec<PathBuf> =
            members.iter().chain([&bare]).map(|it| it.path().to_owned()).collect();
        let ring = RingName("s_a".parse().unwrap());
        let text = Text::typed("burst").unwrap();
        let at = "2026-11-27T09:00:00.123456789Z".parse::<Tai>().unwrap();
        let window = (at.plus_ns(-5), at.plus_ns(5));
        let mut trigger = Trigger::new(&ring, at, window, "s_b".parse().unwrap(), text);
        trigger.put(&roots).unwrap();
        assert_eq!(list(&roots[1..], &ring), [trigger.clone()], "to the nanosecond");
        assert!(!bare.path().join(SIDE_DIRECTORY).exists(), "no member is there");
        trigger.to = at.plus_ns(9);
        trigger.put(&roots[..1]).unwrap();
        assert_eq!(list(&roots, &ring), [trigger.clone()], "the later end counts");
        assert!(list(&roots, &RingName("s_ab".parse().unwrap())).is_empty());
        let damaged = path_in(&roots[0]).join(format!("{ring}.{}.json", Uuid::now_v7()));
        std::fs::write(damaged, b"{").unwrap();
        assert_eq!(list(&roots, &ring).len(), 1);
        trigger.remove(&roots);
        assert!(list(&roots, &ring).is_empty());
        assert!(matches!(trigger.put(&roots[2..]), Err(TriggerError::Write { .. })));
    }
}
