//! `.fullbore/member.json`: the identity of a member, independent of its mount point.
//!
//! ```json
//! {
//!   "uuid": "01a2099d-2fad-773d-b865-108af4ca9572",
//!   "crc32c": "5d3c0e1f"
//! }
//! ```
//!
//! The checksum covers the text of the UUID. The file is compared byte for byte, so that every change is detected.
//! Files of version 0.1.0 have no checksum.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use fullbore_core::manifest::SIDE_DIRECTORY;
use serde::Deserialize;
use uuid::Uuid;

use super::inventory::{MEMBER_FILE, read_bounded};

#[derive(Deserialize)]
struct Identity {
    uuid: Uuid,
}

/// Returns the path of the identity file of the member at `root`.
pub fn identity_path(root: &Path) -> PathBuf {
    root.join(SIDE_DIRECTORY).join(MEMBER_FILE)
}

/// Returns the identity of the member at `root`; `None` if there is no identity file. The error says why the file is
/// invalid.
pub fn read_identity(root: &Path) -> Result<Option<Uuid>, String> {
    let path = identity_path(root);
    if matches!(path.try_exists(), Ok(false)) {
        return Ok(None);
    }
    let bytes = read_bounded(&path).map_err(|error| error.to_string())?;
    let Identity { uuid } = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
    match bytes == text_of(uuid).as_bytes()
        || without_checksum(uuid).iter().any(|it| bytes == it.as_bytes())
    {
        true => Ok(Some(uuid)),
        false => Err("it is not as it was written".to_owned()),
    }
}

/// Gives the member with this side directory an identity. If another process is faster, its identity is kept.
pub fn give_identity(side: &Path) -> io::Result<()> {
    let (path, uuid) = (side.join(MEMBER_FILE), Uuid::now_v7());
    let draft = side.join(format!("{MEMBER_FILE}.{uuid}"));
    let mut file = File::create_new(&draft)?;
    let written = file
        .write_all(text_of(uuid).as_bytes())
        .and_then(|()| file.sync_all())
        .and_then(|()| match std::fs::hard_link(&draft, &path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            // File systems without hard links (exFAT): a copy is enough, and the later one wins.
            Err(_) => std::fs::copy(&draft, &path).map(drop),
            done => done,
        })
        .and_then(|()| File::open(side)?.sync_all());
    // A draft that remains does no harm; the earlier error is the one to report.
    let _ = std::fs::remove_file(&draft);
    written
}

/// Returns the full text of the identity file.
pub fn text_of(uuid: Uuid) -> String {
    let crc = crc32c::crc32c(uuid.to_string().as_bytes());
    format!("{{\n  \"uuid\": \"{uuid}\",\n  \"crc32c\": \"{crc:08x}\"\n}}\n")
}

/// Returns the texts of files written by version 0.1.0 or by hand.
fn without_checksum(uuid: Uuid) -> [String; 2] {
    [format!("{{\n  \"uuid\": \"{uuid}\"\n}}\n"), format!("{{\"uuid\":\"{uuid}\"}}\n")]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(bytes: &[u8]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join(SIDE_DIRECTORY)).unwrap();
        std::fs::write(identity_path(root.path()), bytes).unwrap();
        root
    }

    #[test]
    fn every_bit_that_flips_is_found() {
        let uuid = Uuid::now_v7();
        let text = text_of(uuid).into_bytes();
        assert_eq!(read_identity(member(&text).path()), Ok(Some(uuid)));
        let root = member(&text);
        for bit in 0..text.len() * 8 {
            let mut flipped = text.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(identity_path(root.path()), &flipped).unwrap();
            assert!(read_identity(root.path()).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn what_is_cut_short_or_longer_is_found_and_what_is_not_there_is_no_identity() {
        let text = text_of(Uuid::now_v7());
        for length in 0..text.len() {
            assert!(read_identity(member(&text.as_bytes()[..length]).path()).is_err(), "{length}");
        }
        assert!(read_identity(member(format!("{text}\n").as_bytes()).path()).is_err());
        let root = tempfile::tempdir().unwrap();
        assert_eq!(read_identity(root.path()), Ok(None));
    }

    #[test]
    fn a_file_without_a_checksum_is_read_and_all_but_its_uuid_is_checked() {
        let uuid = Uuid::now_v7();
        for text in without_checksum(uuid) {
            assert_eq!(read_identity(member(text.as_bytes()).path()), Ok(Some(uuid)));
            assert!(read_identity(member(text.replace("uuid", "uuie").as_bytes()).path()).is_err());
            assert!(read_identity(member(text.replace('\n', "\r").as_bytes()).path()).is_err());
        }
    }

    #[test]
    fn two_that_give_one_at_once_agree() {
        let root = tempfile::tempdir().unwrap();
        let side = root.path().join(SIDE_DIRECTORY);
        std::fs::create_dir(&side).unwrap();
        give_identity(&side).unwrap();
        let first = read_identity(root.path()).unwrap();
        give_identity(&side).unwrap();
        assert_eq!(read_identity(root.path()).unwrap(), first);
        assert!(first.is_some());
    }
}
