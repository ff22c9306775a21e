//! Copies of manifests and accounts on the members: read, missing or unreadable.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::path::Path;

use fullbore_core::account::Account;
use fullbore_core::chunk_map::Renumbering;
use fullbore_core::layout::{ALIGNMENT, Geometry, LARGEST_BLOCK_BYTES, LONGEST_DATAGRAM};
use fullbore_core::manifest::{self, Manifest};
use fullbore_core::name::ScanName;
use fullbore_core::redundancy::Redundancy;
use fullbore_linux::regular_file;

/// Upper limit for manifests and member files; an account of 100 000 gaps has about 8 MB.
const LARGEST_JSON: u64 = 64 << 20;

/// Reads a whole file, if it is within the limit.
pub(crate) fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = regular_file::open(path)?.take(LARGEST_JSON + 1).read_to_end(&mut bytes)?;
    if read as u64 > LARGEST_JSON {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "larger than 64 MiB"));
    }
    Ok(bytes)
}

/// A copy of a file that should exist.
#[derive(Clone, Debug)]
pub enum Copy<T> {
    /// The copy exists; the value is its content.
    Read(T),
    /// The copy does not exist.
    Missing,
    /// The copy exists but is unreadable; the text is the reason.
    Unreadable(String),
}

impl<T> Copy<T> {
    /// Returns the content, if the copy is readable.
    pub fn get(&self) -> Option<&T> {
        match self {
            Copy::Read(value) => Some(value),
            Copy::Missing | Copy::Unreadable(_) => None,
        }
    }
}

fn read_copy<T>(path: &Path, parse: impl FnOnce(&[u8]) -> Result<T, String>) -> Copy<T> {
    match read_bounded(path) {
        Ok(bytes) => match parse(&bytes) {
            Ok(value) => Copy::Read(value),
            Err(why) => Copy::Unreadable(why),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Copy::Missing,
        Err(error) => Copy::Unreadable(error.to_string()),
    }
}

/// Reads a manifest. A manifest with paths outside of its scan's directories, or with impossible block sizes, counts as
/// unreadable, so that no caller has to check again.
pub fn read_manifest(path: &Path) -> Copy<Manifest> {
    read_copy(path, |json| {
        let manifest = Manifest::from_json(json).map_err(|error| error.to_string())?;
        check_directories(&manifest)?;
        manifest.redundancy.as_ref().map_or(Ok(()), Redundancy::check)?;
        for stream in &manifest.streams {
            stream.geometry.as_ref().map_or(Ok(()), check_geometry)?;
            stream.renamed.as_ref().map_or(Ok(()), Renumbering::check)?;
        }
        Ok(manifest)
    })
}

/// Returns true if the file is a manifest of a later version of this program.
pub fn is_of_later_version(path: &Path) -> bool {
    let read = read_bounded(path).map(|json| Manifest::from_json(&json));
    matches!(read, Ok(Err(manifest::Error::Version { .. })))
}

fn check_directories(manifest: &Manifest) -> Result<(), String> {
    let scan = &manifest.scan;
    let mut seen = BTreeSet::new();
    for stream in &manifest.streams {
        let directory = &stream.directory;
        if ScanName::of_directory(directory).is_none_or(|(of, _)| of != *scan) {
            return Err(format!("`{directory}` is no directory of scan {scan}"));
        }
        if !seen.insert(directory) {
            return Err(format!("two streams have the directory `{directory}`"));
        }
    }
    if manifest.streams.is_empty() || manifest.streams.len() > usize::from(u16::MAX) {
        return Err(format!("a scan of {} streams", manifest.streams.len()));
    }
    Ok(())
}

/// Checks that a block geometry is possible.
pub fn check_geometry(geometry: &Geometry) -> Result<(), String> {
    let Geometry { frame_bytes, block_bytes, chunk_blocks } = *geometry;
    let block = u64::from(block_bytes);
    if block == 0 || block > LARGEST_BLOCK_BYTES || !block.is_multiple_of(ALIGNMENT) {
        return Err(format!("blocks of {block_bytes} bytes"));
    }
    if chunk_blocks == 0 {
        return Err("chunks of no block".into());
    }
    if frame_bytes > LONGEST_DATAGRAM
        || (frame_bytes > 0 && !block_bytes.is_multiple_of(frame_bytes))
    {
        return Err(format!("frames of {frame_bytes} bytes in blocks of {block_bytes}"));
    }
    Ok(())
}

/// Reads an account.
pub fn read_account(path: &Path) -> Copy<Account> {
    read_copy(path, |json| Account::from_json(json).map_err(|error| error.to_string()))
}
