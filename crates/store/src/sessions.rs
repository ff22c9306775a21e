//! Accounts of whole sessions: one file for each recording of a session, on the first member that accepts it.

use std::io;
use std::path::{Path, PathBuf};

use fullbore_core::manifest::SIDE_DIRECTORY;
use fullbore_core::name::Name;
use fullbore_time::Tai;

use super::inventory::MEMBER_FILE;
use super::lock::put_file;

/// The directory of these files, in [`SIDE_DIRECTORY`] at a member's root.
pub const SESSIONS_DIRECTORY: &str = "sessions";

/// Writes the account of a session that began at `begun`, replacing an earlier version. Returns the path.
///
/// # Errors
///
/// The error of the last member, if none accepts the file.
pub fn put(members: &[PathBuf], session: &Name, begun: Tai, json: &[u8]) -> io::Result<PathBuf> {
    let name = format!("{session}.{}.json", stamp(begun));
    let mut failed = io::Error::from(io::ErrorKind::NotFound);
    for root in members {
        match put_on(root, &name, json) {
            Ok(path) => return Ok(path),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn put_on(root: &Path, name: &str, json: &[u8]) -> io::Result<PathBuf> {
    let side = root.join(SIDE_DIRECTORY);
    // If no member is mounted, nothing is made.
    std::fs::metadata(side.join(MEMBER_FILE))?;
    let sessions = side.join(SESSIONS_DIRECTORY);
    match std::fs::create_dir(&sessions) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let path = sessions.join(name);
    put_file(&path, json)?;
    Ok(path)
}

/// Formats a time as `20261122T180000Z`.
fn stamp(time: Tai) -> String {
    let text = format!("{time:.1}");
    let whole = text.split('.').next().unwrap_or("");
    whole.chars().filter(|sign| !matches!(sign, '-' | ':')).chain(['Z']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Member;

    #[test]
    fn the_first_member_that_takes_it_holds_the_account_of_each_time() {
        let (bare, one) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        Member::open(one.path()).unwrap();
        let members = [bare.path().to_owned(), one.path().to_owned()];
        let session = Name::session("day").unwrap();
        let at: Tai = "2026-11-22T18:00:00.5Z".parse().unwrap();
        let put = |at: Tai, json: &[u8]| put(&members, &session, at, json).unwrap();
        let path = put(at, b"one");
        let side = one.path().join(SIDE_DIRECTORY).join("sessions");
        assert_eq!(path, side.join("day.20261122T180000Z.json"));
        assert_eq!(put(at, b"two"), path);
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert_ne!(put(at.plus_ns(1_000_000_000), b"three"), path);
        assert!(!bare.path().join(SIDE_DIRECTORY).exists(), "no member is there");
        assert!(super::put(&members[..1], &session, at, b"").is_err());
    }
}
