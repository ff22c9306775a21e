//! The file that lists the recordings of several streams: `x.sigmf-collection`.

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use sha2::{Digest, Sha512};

use super::hash::hexadecimal;
use super::metadata::VERSION;
use super::{collection_of, meta_of, put};

#[derive(Serialize)]
struct Document {
    collection: Collection,
}

#[derive(Serialize)]
struct Collection {
    #[serde(rename = "core:version")]
    version: &'static str,
    #[serde(rename = "core:streams")]
    streams: Vec<Stream>,
}

/// A recording beside the file.
#[derive(Serialize)]
struct Stream {
    name: String,
    /// The SHA-512 of its metadata.
    hash: String,
}

/// Writes the file for the recordings at these paths, which are finished and in its folder.
pub fn write_collection(base: &Path, recordings: &[PathBuf]) -> io::Result<()> {
    let stream = |path: &PathBuf| {
        let hash = hexadecimal(&Sha512::digest(std::fs::read(meta_of(path))?));
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Stream { name, hash })
    };
    let streams = recordings.iter().map(stream).collect::<io::Result<_>>()?;
    let document = Document { collection: Collection { version: VERSION, streams } };
    let mut text = serde_json::to_vec_pretty(&document)?;
    text.push(b'\n');
    put(&collection_of(base), &text)
}
