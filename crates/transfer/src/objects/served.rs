//! A scan of the store as a copy that nobody made: the files that a copy in an object store would have.
//!
//! A server that gives them by their names, chunk files by ranges, is a place of copies. Every program that reads copies
//! then reads scans of that store in place. Documents are made from the index; chunk files are those of the store.

use std::path::{Path, PathBuf};

use fullbore_core::name::ScanName;
use fullbore_store::reader::Scan;
use serde::Serialize;

use super::error::ObjectError;
use super::source::{Content, Source};
use super::tree::{COMPLETE_FILE, COPY_FILE};

/// A scan as a copy.
pub struct ServedCopy {
    list: Vec<u8>,
    complete: Vec<u8>,
    source: Source,
}

/// A file of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServedPart<'a> {
    /// These bytes.
    Small(&'a [u8]),
    /// A file of the store. Readers check its blocks: their checksums are in the index.
    Chunk {
        /// The file.
        path: &'a Path,
        /// The bytes of it that belong to the scan.
        bytes: u64,
    },
}

impl ServedCopy {
    /// Takes a sealed scan, all of whose blocks are on these members.
    pub fn of_scan(roots: &[PathBuf], name: &ScanName) -> Result<Self, ObjectError> {
        let scan = Scan::open(roots, name)?;
        let source = Source::of_scan(&scan, &name.to_string())?;
        let at = scan.manifest.stopped.unwrap_or(scan.manifest.armed);
        let complete = source.complete(&scan, at);
        Ok(Self { list: json(&source.list), complete: json(&complete), source })
    }

    /// Finds a file by its name. A name is compared with those of the copy, and is never a path.
    pub fn part(&self, name: &str) -> Option<ServedPart<'_>> {
        match name {
            COPY_FILE => return Some(ServedPart::Small(&self.list)),
            COMPLETE_FILE => return Some(ServedPart::Small(&self.complete)),
            _ => {}
        }
        let files = &self.source.list.files;
        let number = files.iter().position(|file| file.name == name)?;
        Some(match &self.source.contents[number] {
            Content::Small(data) => ServedPart::Small(data),
            Content::Chunk(path, _) => ServedPart::Chunk { path, bytes: files[number].bytes },
        })
    }
}

fn json(document: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec_pretty(document).expect("a document has only plain fields")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use fullbore_core::gap::Cause;
    use fullbore_store::testing::{Store, StreamPlan};

    use super::super::bucket::Bucket;
    use super::super::copy::RemoteScan;
    use super::super::tree::CopyList;
    use super::*;

    #[test]
    fn the_files_of_a_served_scan_are_a_complete_copy() {
        let store = Store::new(2);
        let plans = [StreamPlan::vdif("a").gap(40, 3, Cause::Missing), StreamPlan::varying("b")];
        let laid = store.lay_down("r1_a", &plans);
        let served = ServedCopy::of_scan(&store.roots(), &laid.name).unwrap();
        let place = tempfile::tempdir().unwrap();
        let ServedPart::Small(list) = served.part(COPY_FILE).unwrap() else { panic!() };
        let list: CopyList = serde_json::from_slice(list).unwrap();
        let names = list.files.iter().map(|file| file.name.as_str());
        for name in names.chain([COPY_FILE, COMPLETE_FILE]) {
            let data = match served.part(name).unwrap() {
                ServedPart::Small(data) => data.to_vec(),
                ServedPart::Chunk { path, bytes } => {
                    let data = fs::read(path).unwrap();
                    assert_eq!(data.len() as u64, bytes, "{name}");
                    data
                }
            };
            let path = place.path().join("r1_a").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, data).unwrap();
        }
        let address = format!("file://{}", place.path().display());
        let bucket = Bucket::open(address.parse().unwrap(), Duration::ZERO).unwrap();
        let copy = RemoteScan::open(&bucket, &laid.name).unwrap();
        assert_eq!(copy.check(&Default::default(), &mut |_| {}).unwrap(), []);
        assert_eq!(copy.bytes(), laid.bytes.iter().map(|it| it.len() as u64).sum::<u64>());
    }

    #[test]
    fn a_name_that_the_copy_has_not_is_no_path() {
        let store = Store::new(1);
        let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
        let served = ServedCopy::of_scan(&store.roots(), &laid.name).unwrap();
        for name in ["", "..", "r1_a/../../x", "/etc/passwd", "r1_a/.fullbore/copies.json", "index"]
        {
            assert_eq!(served.part(name), None, "{name}");
        }
    }
}
