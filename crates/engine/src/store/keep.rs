//! Keeping a store within a size or an age, and protecting scans from it.
//!
//! A protected scan carries a file of that name beside each of its streams, on every member, so that it
//! stays protected wherever a member is taken. [`remove`] refuses it.

use std::path::{Path, PathBuf};

use fullbore_core::keep::{Held, Keep};
use fullbore_core::manifest::SIDE_DIRECTORY;
use fullbore_core::name::ScanName;
use fullbore_core::time::Tai;

use super::catalogue::{self, Standing};
use super::lock::put_file;
use super::remove::{self, Removed, holdings};

/// The file, under a stream's `.fullbore/`, that protects its scan.
pub const PROTECTED_FILE: &str = "protected";

/// Protects a scan from being removed, or lets it go again. Gives whether it was protected before.
///
/// # Errors
///
/// The scan is not there, or its directories cannot be written.
pub fn protect(roots: &[PathBuf], scan: &ScanName, on: bool) -> Result<bool, remove::Error> {
    let mut before = false;
    for holding in holdings(roots, &scan.to_string())? {
        let path = holding.side(PROTECTED_FILE);
        before |= path.exists();
        let done = match on {
            true => put_file(&path, b""),
            false => match std::fs::remove_file(&path) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
                other => other,
            },
        };
        done.map_err(|source| remove::Error::File { path, source })?;
    }
    Ok(before)
}

/// Whether a stream's directory carries the mark.
pub fn is_protected(directory: &Path) -> bool {
    directory.join(SIDE_DIRECTORY).join(PROTECTED_FILE).exists()
}

/// What became of the scans that were to go.
#[derive(Debug, Default)]
pub struct Kept {
    /// Those that went.
    pub removed: Vec<Removed>,
    /// Those that would not, and why.
    pub stayed: Vec<(String, remove::Error)>,
}

/// Removes the oldest finished scans, so that the rest is within `keep`.
///
/// # Errors
///
/// The store cannot be listed. A scan that will not go is told in the result, and holds up no other.
pub fn keep(roots: &[PathBuf], keep: Keep, now: Tai) -> Result<Kept, catalogue::Error> {
    let entries = catalogue::list(roots)?.entries;
    let held: Vec<Held> = entries
        .iter()
        .map(|entry| Held {
            bytes: entry.bytes,
            ended: entry.start.map(|start| start.plus_ns(entry.duration_ns.unwrap_or(0))),
            may_go: !entry.protected && is_finished(entry.state) && entry.absent.is_empty(),
        })
        .collect();
    let mut kept = Kept::default();
    for place in keep.let_go(&held, now) {
        let name = entries[place].name.clone();
        let Ok(scan) = name.parse::<ScanName>() else { continue };
        match remove::remove(roots, &scan) {
            Ok(removed) => kept.removed.push(removed),
            Err(error) => kept.stayed.push((name, error)),
        }
    }
    Ok(kept)
}

fn is_finished(state: Standing) -> bool {
    match state {
        Standing::Sealed | Standing::Aborted | Standing::Recovered => true,
        Standing::Recording | Standing::Unsealed | Standing::Broken => false,
    }
}

#[cfg(test)]
mod tests {
    use fullbore_core::units::ByteSize;

    use super::*;
    use crate::store::testing::{Store, StreamPlan};

    fn names(store: &Store) -> Vec<String> {
        let entries = catalogue::list(&store.roots()).unwrap().entries;
        entries.into_iter().map(|entry| entry.name).collect()
    }

    #[test]
    fn unsealed_and_protected_scans_stay_whatever_the_size() {
        let store = Store::new(2);
        for scan in ["r1_a", "r1_b", "r1_c"] {
            store.lay_down(scan, &[StreamPlan::vdif("a")]);
        }
        store.lay_down("r1_d", &[StreamPlan::vdif("a").unsealed()]);
        let protected: ScanName = "r1_b".parse().unwrap();
        assert!(!protect(&store.roots(), &protected, true).unwrap());
        assert!(protect(&store.roots(), &protected, true).unwrap(), "it was before");
        let error = remove::remove(&store.roots(), &protected).unwrap_err();
        assert!(matches!(error, remove::Error::Protected { .. }), "{error}");
        let kept = keep(&store.roots(), Keep::Size(ByteSize(1)), Tai(i64::MAX)).unwrap();
        assert_eq!(names(&store), ["r1_b", "r1_c", "r1_d"], "the newest stays too");
        assert_eq!(kept.removed.len(), 1);
        assert!(kept.stayed.is_empty());
        protect(&store.roots(), &protected, false).unwrap();
        keep(&store.roots(), Keep::Size(ByteSize(1)), Tai(i64::MAX)).unwrap();
        assert_eq!(names(&store), ["r1_c", "r1_d"]);
    }

    #[test]
    fn one_member_with_the_mark_is_enough() {
        let store = Store::new(2);
        let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
        protect(&store.roots(), &laid.name, true).unwrap();
        std::fs::remove_file(laid.directory(0, 0).join(".fullbore/protected")).unwrap();
        assert!(catalogue::list(&store.roots()).unwrap().entries[0].protected);
        assert!(remove::remove(&store.roots(), &laid.name).is_err());
    }
}
