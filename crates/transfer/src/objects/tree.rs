//! The files of a copy: `copy.json`, `complete.json`, and the names that a copy may have.

use std::collections::BTreeSet;

use fullbore_core::layout::chunk_number;
use fullbore_core::manifest::{ACCOUNT_FILE, INDEX_FILE, MANIFEST_FILE, SIDE_DIRECTORY};
use fullbore_core::name::ScanName;
use fullbore_store::copies::Digest;
use fullbore_store::inventory::MEMBER_FILE;
use fullbore_time::Tai;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The list of files, written first.
pub(super) const COPY_FILE: &str = "copy.json";

/// The statement that the copy is complete, written last.
pub(super) const COMPLETE_FILE: &str = "complete.json";

/// The version of both documents.
pub(super) const VERSION: u32 = 1;

/// The largest document.
pub(super) const LARGEST: u64 = 256 << 20;

/// The list of files of a copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyList {
    /// [`VERSION`].
    pub version: u32,
    /// The scan.
    pub scan: ScanName,
    /// Its identity.
    pub uuid: Uuid,
    /// The files, but for the two documents.
    pub files: Vec<Listed>,
}

/// A file of a copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// The name, relative to the copy.
    pub name: String,
    /// The size.
    pub bytes: u64,
    /// CRC32C of the whole file.
    #[serde(with = "hexadecimal")]
    pub crc32c: u32,
}

/// The statement that a copy is complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Complete {
    /// [`VERSION`].
    pub version: u32,
    /// The scan.
    pub scan: ScanName,
    /// Its identity.
    pub uuid: Uuid,
    /// Blocks of all streams.
    pub blocks: u64,
    /// Bytes of all streams.
    pub bytes: u64,
    /// See `fullbore_store::copies::digest`.
    pub digest: Digest,
    /// The time of completion.
    pub at: Tai,
}

/// A file of a copy, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A chunk file.
    Chunk,
    /// A file beside the chunks.
    Small,
}

/// Returns the kind of a file of a copy of this scan; `None` for a name that no copy has. Names are never taken as paths
/// in any other way.
pub(super) fn kind_of(scan: &ScanName, name: &str) -> Option<Kind> {
    if name == member_file() {
        return Some(Kind::Small);
    }
    let (directory, file) = name.split_once('/')?;
    let scan = scan.to_string();
    let stream = directory == scan || directory.strip_prefix(&scan).is_some_and(is_stream_suffix);
    if !stream {
        return None;
    }
    let side = file.strip_prefix(SIDE_DIRECTORY).and_then(|rest| rest.strip_prefix('/'));
    match side {
        Some(MANIFEST_FILE | ACCOUNT_FILE | INDEX_FILE) => Some(Kind::Small),
        Some(_) => None,
        None => chunk_number(directory, file).map(|_| Kind::Chunk),
    }
}

fn is_stream_suffix(rest: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-+_".contains(c);
    rest.strip_prefix("_ds").is_some_and(|name| !name.is_empty() && name.chars().all(plain))
}

/// The name of the file that identifies the member.
pub(super) fn member_file() -> String {
    format!("{SIDE_DIRECTORY}/{MEMBER_FILE}")
}

impl CopyList {
    /// Checks all names. The error is the first that is wrong.
    pub(super) fn check(&self) -> Result<(), String> {
        let mut seen = BTreeSet::new();
        for file in &self.files {
            if kind_of(&self.scan, &file.name).is_none() || !seen.insert(&file.name) {
                return Err(file.name.clone());
            }
        }
        Ok(())
    }

    /// The chunk files.
    pub(super) fn chunks(&self) -> impl Iterator<Item = &Listed> {
        self.files.iter().filter(|it| kind_of(&self.scan, &it.name) == Some(Kind::Chunk))
    }

    /// The other files.
    pub(super) fn small(&self) -> impl Iterator<Item = &Listed> {
        self.files.iter().filter(|it| kind_of(&self.scan, &it.name) == Some(Kind::Small))
    }

    /// Bytes of all files.
    pub(super) fn bytes(&self) -> u64 {
        self.files.iter().fold(0, |sum, it| sum.saturating_add(it.bytes))
    }
}

/// A CRC32C as eight hexadecimal digits.
mod hexadecimal {
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub fn serialize<S: Serializer>(crc: &u32, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format!("{crc:08x}"))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
        let text = String::deserialize(from)?;
        u32::from_str_radix(&text, 16).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_the_layout_are_accepted() {
        let scan: ScanName = "r1_one".parse().unwrap();
        let good = [
            ("r1_one/r1_one.00000000", Kind::Chunk),
            ("r1_one_ds7/r1_one_ds7.00000012", Kind::Chunk),
            ("r1_one/.fullbore/index", Kind::Small),
            (".fullbore/member.json", Kind::Small),
        ];
        for (name, kind) in good {
            assert_eq!(kind_of(&scan, name), Some(kind), "{name}");
        }
        let bad = [
            "../r1_one/r1_one.00000000",
            "/etc/passwd",
            "r1_one/../../x",
            "r1_one/r1_one.00000000/..",
            "r1_one/.fullbore/copies.json",
            "r1_one/.fullbore/../index",
            "r1_one_ds../r1_one_ds...00000000",
            "r1_one_ds/r1_one_ds.00000000",
            "r1_two/r1_two.00000000",
            "r1_one/r1_one.0",
            "r1_one\\r1_one.00000000",
            "",
        ];
        for name in bad {
            assert_eq!(kind_of(&scan, name), None, "{name}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_name_leaves_the_copy(name in "[./a-z_r1one0-9]{0,40}") {
            let scan: ScanName = "r1_one".parse().unwrap();
            if kind_of(&scan, &name).is_some() {
                proptest::prop_assert!(!name.starts_with('/') && !name.split('/').any(|it| it == ".." || it.is_empty()));
            }
        }
    }
}
