//! Sends a scan to an object store.
//!
//! ```text
//! chunk file ─► thread that reads, as the governor grants ─► parts ─► four requests at a time ─► object
//! ```
//!
//! An object appears only when all of it was received, so an object of the right size, in a copy whose list is the same,
//! is not sent again. An object that was interrupted is continued: `upload` sends the parts that the store has not
//! confirmed. Memory is that of seven parts.

use std::collections::BTreeMap;
use std::path::PathBuf;

use fullbore_core::manifest::State;
use fullbore_core::name::ScanName;
use fullbore_linux::clock::Clock;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_store::copies::{self, Digest, Receipt};
use fullbore_store::reader::Scan;
use object_store::PutPayload;
use sha2::{Digest as _, Sha256};

use super::bucket::Bucket;
use super::copy::RemoteScan;
use super::error::ObjectError;
use super::kept::Kept;
use super::source::{Content, Source};
use super::tree::{COMPLETE_FILE, COPY_FILE, Complete, CopyList};
use super::upload::Chunk;
use crate::governor::{Allowance, Governor};

/// The state of a scan that is being sent, or read.
#[derive(Clone, Debug)]
pub struct Progress {
    /// The scan.
    pub scan: ScanName,
    /// Bytes that are there.
    pub done: u64,
    /// Bytes of all files.
    pub all: u64,
    /// What the governor allows.
    pub allowance: Allowance,
}

/// A scan that is complete in the object store.
#[derive(Clone, Debug)]
pub struct Sent {
    /// The receipt that was kept beside the scan.
    pub receipt: Receipt,
    /// Bytes that were sent by this attempt.
    pub carried_bytes: u64,
    /// True if all of it was read back.
    pub read_back: bool,
}

/// Sends scans to a place in an object store.
#[derive(Debug)]
pub struct Sender<'a> {
    /// The place.
    pub bucket: &'a Bucket,
    /// What may be sent, and when.
    pub governor: &'a Governor,
    /// The end.
    pub stop: &'a StopHandle,
    /// Read everything back. Where the store checks no checksums, this is done in any case.
    pub read_back: bool,
}

impl Sender<'_> {
    /// Sends a sealed scan of these members, and keeps the receipt beside it. `tell` is called a few times per second.
    pub fn send(
        &self,
        roots: &[PathBuf],
        name: &ScanName,
        tell: &mut dyn FnMut(&Progress),
    ) -> Result<Sent, ObjectError> {
        self.bucket.refuse_signed()?;
        let scan = Scan::open(roots, name)?;
        if scan.manifest.state == State::Recording {
            return Err(ObjectError::Unsealed { scan: name.clone() });
        }
        let address = self.bucket.address_of(&name.to_string());
        let source = Source::of_scan(&scan, &address)?;
        let mut there = self.begin(name, &source.list)?;
        let mut done = 0;
        let mut carried = 0;
        for (file, content) in source.list.files.iter().zip(&source.contents) {
            let object = format!("{name}/{}", file.name);
            let already = there.get(&file.name) == Some(&file.bytes);
            let sent = match content {
                Content::Chunk(..) if already => 0,
                Content::Small(data) => {
                    self.bucket.put(&object, PutPayload::from(data.clone()))?;
                    file.bytes
                }
                Content::Chunk(path, blocks) => {
                    let mut told = |bytes| tell(&self.progress(name, done + bytes, &source));
                    let chunk = Chunk {
                        scan: source.list.uuid,
                        object: &object,
                        path,
                        blocks,
                        bytes: file.bytes,
                        crc32c: file.crc32c,
                    };
                    self.chunk(&chunk, &mut told)?
                }
            };
            carried += sent;
            done += file.bytes;
            tell(&self.progress(name, done, &source));
        }
        there = self.sizes(name)?;
        for file in &source.list.files {
            let found = there.get(&file.name).copied();
            if found != Some(file.bytes) {
                let found = found.map_or("missing".to_owned(), |bytes| format!("{bytes} bytes"));
                return Err(ObjectError::Invalid {
                    address: self.bucket.address_of(&format!("{name}/{}", file.name)),
                    why: format!("it was sent with {} bytes, and is {found}", file.bytes),
                });
            }
        }
        let receipt = self.complete(&scan, &source, tell)?;
        for (member, why) in copies::add(roots, name, &receipt)? {
            tracing::warn!(member = %member.display(), why, "receipt not stored");
        }
        for content in &source.contents {
            if let Content::Chunk(path, _) = content {
                Kept::remove_beside(path);
            }
        }
        Ok(Sent { receipt, carried_bytes: carried, read_back: self.reads_back() })
    }

    fn reads_back(&self) -> bool {
        self.read_back || !self.bucket.checks_uploads()
    }

    fn progress(&self, scan: &ScanName, done: u64, source: &Source) -> Progress {
        let (scan, all) = (scan.clone(), source.list.bytes());
        Progress { scan, done, all, allowance: self.governor.now() }
    }

    /// Writes the list of files, unless the copy of another scan is there. Returns the sizes of the objects that are there.
    fn begin(
        &self,
        name: &ScanName,
        list: &CopyList,
    ) -> Result<BTreeMap<String, u64>, ObjectError> {
        let copy = format!("{name}/{COPY_FILE}");
        let before = self.bucket.document(&copy)?;
        let there = self.sizes(name)?;
        let exists = || ObjectError::Exists { address: self.bucket.address_of(&name.to_string()) };
        match before {
            Some(json) => {
                let before: CopyList = serde_json::from_slice(&json).map_err(|_| exists())?;
                if before.uuid != list.uuid || !before.chunks().eq(list.chunks()) {
                    return Err(exists());
                }
                if before == *list {
                    return Ok(there);
                }
                // It is not complete while its small files are replaced.
                self.bucket.remove(&format!("{name}/{COMPLETE_FILE}"))?;
            }
            None if there.is_empty() => {}
            None => return Err(exists()),
        }
        self.put_document(&copy, list)?;
        Ok(there)
    }

    fn put_document<T: serde::Serialize>(&self, name: &str, it: &T) -> Result<(), ObjectError> {
        let mut json = serde_json::to_vec_pretty(it).expect("a document has only plain fields");
        json.push(b'\n');
        self.bucket.put(name, PutPayload::from(json))
    }

    fn sizes(&self, name: &ScanName) -> Result<BTreeMap<String, u64>, ObjectError> {
        let found = self.bucket.list(&name.to_string())?;
        Ok(found.into_iter().map(|it| (it.name, it.bytes)).collect())
    }

    /// Checks what was sent, and writes that the copy is complete.
    fn complete(
        &self,
        scan: &Scan,
        source: &Source,
        tell: &mut dyn FnMut(&Progress),
    ) -> Result<Receipt, ObjectError> {
        let name = &scan.manifest.scan;
        let complete = source.complete(scan, Clock::new().now());
        if self.reads_back() {
            let list = source.list.clone();
            let remote = RemoteScan::of_list(self.bucket, list, complete.clone())?;
            let mut all = remote.check(self.stop, &mut |done| {
                tell(&Progress {
                    scan: name.clone(),
                    done,
                    all: source.bytes,
                    allowance: self.governor.now(),
                });
            })?;
            if !all.is_empty() {
                let blocks = all.len() as u64;
                let first = all.swap_remove(0).to_string();
                return Err(ObjectError::Damaged { address: remote.address(), blocks, first });
            }
        }
        self.put_document(&format!("{name}/{COMPLETE_FILE}"), &complete)?;
        let place = self.bucket.address().to_string();
        let key = Digest(Sha256::digest(place.as_bytes()).into()).to_string();
        let Complete { uuid, blocks, bytes, digest, at, .. } = complete;
        Ok(Receipt { host: place, key, scan: uuid, blocks, bytes, digest, at })
    }
}
