//! A scan of the store as files of a copy.
//!
//! Chunk files go as they are. The index of each stream is made anew, because the scan is on several members and the copy
//! is one tree: the records of all members, in the order of the stream, as a member would have written them. All of it
//! follows from the scan alone, so a second attempt makes the same files.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use fullbore_core::chunk_map::RenumberStage;
use fullbore_core::index::{Block, Codec, Entry, LENGTHS};
use fullbore_core::layout::Geometry;
use fullbore_core::manifest::{
    ACCOUNT_FILE, INDEX_FILE, MANIFEST_FILE, Manifest, Member, SIDE_DIRECTORY, State,
};
use fullbore_core::name::ScanName;
use fullbore_store::copies::{self, Digest};
use fullbore_store::reader::{BlockLocation, Presence, Scan, StoredStream};
use fullbore_time::Tai;

use super::error::ObjectError;
use super::tree::{self, Complete, CopyList, Kind, Listed, VERSION};

/// A scan as files of a copy.
pub(super) struct Source {
    /// The list of files.
    pub list: CopyList,
    /// The contents, in the order of the list.
    pub contents: Vec<Content>,
    /// Blocks of all streams.
    pub blocks: u64,
    /// Bytes of all streams.
    pub bytes: u64,
    /// The digest of all blocks.
    pub digest: Digest,
}

/// The content of a file.
pub(super) enum Content {
    /// A chunk file here, and its blocks in their order.
    Chunk(Arc<PathBuf>, Vec<Block>),
    /// These bytes.
    Small(Vec<u8>),
}

impl Source {
    /// The statement that a copy of it is complete since then.
    pub(super) fn complete(&self, scan: &Scan, at: Tai) -> Complete {
        Complete {
            version: VERSION,
            scan: scan.manifest.scan.clone(),
            uuid: scan.manifest.uuid,
            blocks: self.blocks,
            bytes: self.bytes,
            digest: self.digest,
            at,
        }
    }

    /// Takes a sealed scan, all of whose blocks are here.
    pub(super) fn of_scan(scan: &Scan, address: &str) -> Result<Self, ObjectError> {
        let name = &scan.manifest.scan;
        check(scan)?;
        let mut files = Files { scan: name, list: Vec::new(), contents: Vec::new() };
        let uuid = scan.manifest.uuid;
        files.small(tree::member_file(), format!("{{\"uuid\":\"{uuid}\"}}\n").into_bytes());
        let manifest = manifest_of_copy(scan, address).to_json();
        for (stream, listed) in scan.streams.iter().zip(&scan.manifest.streams) {
            let side = format!("{}/{SIDE_DIRECTORY}", listed.directory);
            files.small(format!("{side}/{MANIFEST_FILE}"), manifest.clone());
            if let Some(account) = &stream.account {
                files.small(format!("{side}/{ACCOUNT_FILE}"), account.to_json());
            }
            files.small(format!("{side}/{INDEX_FILE}"), index(scan, stream)?);
            files.chunks(&listed.directory, stream)?;
        }
        let Files { list, contents, .. } = files;
        let streams = scan.streams.iter();
        let list = CopyList { version: VERSION, scan: name.clone(), uuid, files: list };
        Ok(Self {
            list,
            contents,
            blocks: streams.clone().map(|it| it.blocks.len() as u64).sum(),
            bytes: streams.map(StoredStream::bytes).sum(),
            digest: Digest(copies::digest_of(scan)),
        })
    }
}

/// Refuses a scan that is not whole here.
fn check(scan: &Scan) -> Result<(), ObjectError> {
    let name = || scan.manifest.scan.clone();
    let renaming =
        scan.manifest.streams.iter().any(|stream| {
            stream.renamed.as_ref().is_some_and(|it| it.stage != RenumberStage::Done)
        });
    if scan.manifest.state == State::Recording || renaming {
        return Err(ObjectError::Unsealed { scan: name() });
    }
    for stream in &scan.streams {
        let unreadable = |what: String| {
            let why = format!("stream {}: {what}", stream.name);
            Err(ObjectError::Unreadable { scan: name(), why })
        };
        let elsewhere = |it: &&BlockLocation| it.presence != Presence::Whole;
        if let Some(gone) = stream.blocks.iter().find(elsewhere) {
            let (sequence, path) = (gone.block.sequence, gone.path.display());
            return unreadable(format!("block {sequence} is not in {path}"));
        }
        if let Some(absent) = stream.absent.first() {
            return unreadable(format!("block {} is in no index that is here", absent.first));
        }
    }
    Ok(())
}

/// The manifest of the copy: on one member, which is the tree of objects.
fn manifest_of_copy(scan: &Scan, address: &str) -> Manifest {
    let mut manifest = scan.manifest.clone();
    let uuid = manifest.uuid;
    let path = PathBuf::from(address);
    manifest.members = vec![Member { uuid, path, failure: None, buffered: false }];
    manifest.away.clear();
    manifest.redundancy = None;
    manifest.host_setup = None;
    manifest
}

struct Files<'a> {
    scan: &'a ScanName,
    list: Vec<Listed>,
    contents: Vec<Content>,
}

impl Files<'_> {
    fn small(&mut self, name: String, data: Vec<u8>) {
        let crc32c = crc32c::crc32c(&data);
        self.list.push(Listed { name, bytes: data.len() as u64, crc32c });
        self.contents.push(Content::Small(data));
    }

    fn chunks(&mut self, directory: &str, stream: &StoredStream) -> Result<(), ObjectError> {
        let mut chunks: BTreeMap<&Arc<PathBuf>, Vec<Block>> = BTreeMap::new();
        for location in &stream.blocks {
            chunks.entry(&location.path).or_default().push(location.block);
        }
        // In the order of the stream, whichever members the files are on.
        let mut named = BTreeMap::new();
        for (path, mut blocks) in chunks {
            blocks.sort_by_key(|block| block.offset);
            let file = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let name = format!("{directory}/{file}");
            if tree::kind_of(self.scan, &name) != Some(Kind::Chunk) {
                let why = format!("{} is not the file of a complete chunk", path.display());
                return Err(ObjectError::Unreadable { scan: self.scan.clone(), why });
            }
            named.insert(name, (path.clone(), blocks));
        }
        for (name, (path, blocks)) in named {
            let (bytes, crc32c) = self.sum(&path, &blocks)?;
            self.list.push(Listed { name, bytes, crc32c });
            self.contents.push(Content::Chunk(path, blocks));
        }
        Ok(())
    }

    /// The size and CRC32C of a chunk file, from the index alone.
    fn sum(&self, path: &std::path::Path, blocks: &[Block]) -> Result<(u64, u32), ObjectError> {
        let (mut end, mut crc) = (0, 0);
        for block in blocks {
            if block.offset != end {
                let why = format!("{} has a hole at byte {end}", path.display());
                return Err(ObjectError::Unreadable { scan: self.scan.clone(), why });
            }
            crc = crc32c::crc32c_combine(crc, block.crc, block.bytes as usize);
            end += u64::from(block.bytes);
        }
        Ok((end, crc))
    }
}

/// The index of a stream with the records of all members.
fn index(scan: &Scan, stream: &StoredStream) -> Result<Vec<u8>, ObjectError> {
    let codec = Codec::of_scan(scan.manifest.uuid);
    let number = stream.number as u16;
    let mut bytes = Vec::new();
    let mut put = |entry: &Entry| bytes.extend_from_slice(&codec.encode(number, entry));
    if let Some(Geometry { frame_bytes, block_bytes, chunk_blocks }) = stream.geometry {
        put(&Entry::Header { member: scan.manifest.uuid, frame_bytes, block_bytes, chunk_blocks });
    }
    for location in &stream.blocks {
        put(&Entry::Block(location.block));
        let lengths = scan
            .lengths(location)
            .map_err(|source| ObjectError::Local { path: scan.index_path(location), source })?;
        for (part, lengths) in lengths.chunks(LENGTHS).enumerate() {
            let (sequence, first) = (location.block.sequence, (part * LENGTHS) as u32);
            put(&Entry::Lengths { sequence, first, lengths: lengths.to_vec() });
        }
    }
    for gap in stream.gaps.iter() {
        put(&Entry::Gap(gap));
    }
    for &(first, count) in &stream.found {
        put(&Entry::Found { first, count });
    }
    let at = scan.manifest.stopped.unwrap_or(scan.manifest.armed);
    put(&Entry::Mark { blocks: stream.blocks.len() as u64, at });
    Ok(bytes)
}
