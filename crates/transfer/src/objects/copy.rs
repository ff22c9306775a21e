//! A copy in an object store, opened in place.
//!
//! Its small files are fetched into a temporary folder. Beside them, each chunk file is a hole of the right size. So the
//! folder is a member that every reader of indexes understands. Blocks are read from the store, by ranges.

use std::fmt;
use std::fs::{self, File};
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};

use fullbore_core::manifest::Manifest;
use fullbore_core::name::ScanName;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_store::copies::{self, Digest};
use fullbore_store::inventory;
use fullbore_store::reader::{BlockLocation, Scan};
use serde::Serialize;
use tempfile::TempDir;

use super::address::Address;
use super::bucket::Bucket;
use super::error::ObjectError;
use super::tree::{COMPLETE_FILE, COPY_FILE, Complete, CopyList, Listed, VERSION};

/// Bytes of one request.
const RANGE: u64 = 16 << 20;

/// The largest index that is fetched: it is in memory.
const LARGEST_INDEX: u64 = 4 << 30;

/// A copy as a list shows it.
#[derive(Clone, Debug, Serialize)]
pub struct ListedCopy {
    /// The name.
    pub scan: String,
    /// True if it is complete.
    pub complete: bool,
    /// Bytes of all streams, if it is complete.
    pub bytes: Option<u64>,
    /// Why it cannot be read, if it cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A block of a copy that is damaged or missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WrongBlock {
    /// The object.
    pub object: String,
    /// The name of the stream.
    pub stream: String,
    /// The sequence of the block.
    pub sequence: u64,
    /// Its offset in the object.
    pub offset: u64,
    /// What is wrong.
    pub why: String,
}

impl fmt::Display for WrongBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { object, stream, sequence, offset, why } = self;
        write!(f, "{object}: stream {stream}, block {sequence} at byte {offset}: {why}")
    }
}

/// A block that was read, or not.
pub struct ReadBlock<'a> {
    /// The number of its stream.
    pub stream: usize,
    /// Its location in the opened scan.
    pub location: &'a BlockLocation,
    /// Its bytes, if there are any.
    pub data: &'a [u8],
    /// What is wrong with it.
    pub wrong: Option<WrongBlock>,
}

/// Lists the copies at a place.
pub fn list(bucket: &Bucket) -> Result<Vec<ListedCopy>, ObjectError> {
    let mut copies = Vec::new();
    for name in bucket.folders()? {
        let Ok(scan) = name.parse::<ScanName>() else { continue };
        let copy = match documents(bucket, &scan) {
            Ok((_, Some(complete))) => ListedCopy {
                scan: name,
                complete: true,
                bytes: Some(complete.bytes),
                problem: None,
            },
            Ok((_, None)) => ListedCopy { scan: name, complete: false, bytes: None, problem: None },
            Err(ObjectError::NoCopy { .. }) => continue,
            Err(error) if error.is_about_the_store() => return Err(error),
            Err(error) => {
                let problem = Some(error.to_string());
                ListedCopy { scan: name, complete: false, bytes: None, problem }
            }
        };
        copies.push(copy);
    }
    Ok(copies)
}

fn documents(
    bucket: &Bucket,
    scan: &ScanName,
) -> Result<(CopyList, Option<Complete>), ObjectError> {
    let read = |file: &str| bucket.document(&format!("{scan}/{file}"));
    let invalid = |file: &str, why: String| ObjectError::Invalid {
        address: bucket.address_of(&format!("{scan}/{file}")),
        why,
    };
    let address = || bucket.address_of(&scan.to_string());
    let json = read(COPY_FILE)?.ok_or_else(|| ObjectError::NoCopy { address: address() })?;
    let list: CopyList =
        serde_json::from_slice(&json).map_err(|error| invalid(COPY_FILE, error.to_string()))?;
    if list.version > VERSION {
        let why = format!("it has version {}, and this program reads {VERSION}", list.version);
        return Err(invalid(COPY_FILE, why));
    }
    if list.scan != *scan {
        return Err(invalid(COPY_FILE, format!("it is of {}", list.scan)));
    }
    list.check().map_err(|name| ObjectError::Name { address: address(), name })?;
    let Some(json) = read(COMPLETE_FILE)? else { return Ok((list, None)) };
    let complete: Complete =
        serde_json::from_slice(&json).map_err(|error| invalid(COMPLETE_FILE, error.to_string()))?;
    if complete.uuid != list.uuid || complete.scan != list.scan {
        return Err(invalid(COMPLETE_FILE, "it is of another scan".to_owned()));
    }
    Ok((list, Some(complete)))
}

/// The place of a copy: one that is lent, or the copy's own.
#[derive(Debug)]
enum Place<'a> {
    Lent(&'a Bucket),
    Own(Box<Bucket>),
}

impl Deref for Place<'_> {
    type Target = Bucket;

    fn deref(&self) -> &Bucket {
        match self {
            Self::Lent(bucket) => bucket,
            Self::Own(bucket) => bucket,
        }
    }
}

/// An opened copy.
#[derive(Debug)]
pub struct RemoteScan<'a> {
    bucket: Place<'a>,
    name: ScanName,
    complete: Complete,
    folder: TempDir,
    scan: Scan,
}

impl RemoteScan<'static> {
    /// Opens a complete copy that keeps its place, for programs that keep the copy open.
    pub fn open_own(bucket: Bucket, name: &ScanName) -> Result<Self, ObjectError> {
        Self::open_at(Place::Own(Box::new(bucket)), name)
    }
}

impl<'a> RemoteScan<'a> {
    /// Opens a complete copy.
    pub fn open(bucket: &'a Bucket, name: &ScanName) -> Result<Self, ObjectError> {
        Self::open_at(Place::Lent(bucket), name)
    }

    fn open_at(bucket: Place<'a>, name: &ScanName) -> Result<Self, ObjectError> {
        let (list, complete) = documents(&bucket, name)?;
        let incomplete = |why: String| ObjectError::Incomplete {
            address: bucket.address_of(&name.to_string()),
            why,
        };
        let Some(complete) = complete else {
            return Err(incomplete(format!("it has no {COMPLETE_FILE} yet")));
        };
        Self::of_documents(bucket, list, complete)
    }

    /// Opens a copy by its documents.
    pub(super) fn of_list(
        bucket: &'a Bucket,
        list: CopyList,
        complete: Complete,
    ) -> Result<Self, ObjectError> {
        Self::of_documents(Place::Lent(bucket), list, complete)
    }

    fn of_documents(
        bucket: Place<'a>,
        list: CopyList,
        complete: Complete,
    ) -> Result<Self, ObjectError> {
        let name = list.scan.clone();
        let folder = tempfile::Builder::new().prefix("fullbore-copy-").tempdir();
        let folder =
            folder.map_err(|source| ObjectError::Local { path: std::env::temp_dir(), source })?;
        for file in list.small() {
            let data = fetch(&bucket, &list, file)?;
            write(&folder.path().join(&file.name), |path| fs::write(path, &data))?;
        }
        for file in list.chunks() {
            write(&folder.path().join(&file.name), |path| {
                File::create_new(path)?.set_len(file.bytes)
            })?;
        }
        let scan = Scan::open(&[folder.path().to_owned()], &name)?;
        let opened = Self { bucket, name, complete, folder, scan };
        opened.check_documents()?;
        Ok(opened)
    }

    /// Checks that the index is the one that was sent.
    fn check_documents(&self) -> Result<(), ObjectError> {
        let address = self.address();
        let invalid = |why: &str| ObjectError::Invalid { address, why: why.to_owned() };
        let Manifest { uuid, streams, .. } = &self.scan.manifest;
        let scan = self.name.to_string();
        if *uuid != self.complete.uuid {
            return Err(invalid("its manifest is of another scan"));
        }
        if streams.iter().any(|it| !inventory::is_of_scan(&it.directory, &scan)) {
            return Err(invalid("its manifest names directories of another scan"));
        }
        if copies::digest_of(&self.scan) != self.complete.digest.0 {
            return Err(invalid("its index differs from the digest of the scan"));
        }
        Ok(())
    }

    /// The name.
    pub fn name(&self) -> &ScanName {
        &self.name
    }

    /// The address.
    pub fn address(&self) -> String {
        self.bucket.address_of(&self.name.to_string())
    }

    /// The place that the copy is at.
    pub fn place(&self) -> &Address {
        self.bucket.address()
    }

    /// The folder with its small files, as a member of a store.
    pub fn roots(&self) -> Vec<PathBuf> {
        vec![self.folder.path().to_owned()]
    }

    /// The scan: all but the data of its blocks.
    pub fn scan(&self) -> &Scan {
        &self.scan
    }

    /// The digest of its blocks.
    pub fn digest(&self) -> Digest {
        self.complete.digest
    }

    /// Bytes of all streams.
    pub fn bytes(&self) -> u64 {
        self.complete.bytes
    }

    /// Reads every block. Returns those that are wrong.
    pub fn check(
        &self,
        stop: &StopHandle,
        tell: &mut dyn FnMut(u64),
    ) -> Result<Vec<WrongBlock>, ObjectError> {
        let (mut wrong, mut done) = (Vec::new(), 0);
        let streams = self.scan.streams.iter();
        let all = streams.map(|it| (it.number, 0..it.blocks.len())).collect::<Vec<_>>();
        self.read(all, &|_| true, &mut |block| {
            if stop.is_requested() {
                return Err(ObjectError::Stopped);
            }
            done += u64::from(block.location.block.bytes);
            wrong.extend(block.wrong);
            tell(done);
            Ok(true)
        })?;
        Ok(wrong)
    }

    /// Reads blocks of streams, in order, those that are wanted, until `take` returns false.
    pub fn read(
        &self,
        positions: Vec<(usize, Range<usize>)>,
        wanted: &dyn Fn((usize, u64)) -> bool,
        take: &mut dyn FnMut(ReadBlock<'_>) -> Result<bool, ObjectError>,
    ) -> Result<(), ObjectError> {
        let mut blocks = Vec::new();
        for (stream, range) in positions {
            let all = self.scan.streams[stream].blocks.get(range).unwrap_or_default();
            let all = all.iter().filter(|it| wanted((stream, it.block.sequence)));
            blocks.extend(all.map(|it| (stream, it)));
        }
        let runs: Vec<Run<'_>> = runs(&blocks, |path| self.object(path));
        let ranges = runs.iter().map(|run| (run.object.as_str(), run.range.clone()));
        let mut next = runs.iter();
        self.bucket.read(ranges, &mut |answer| {
            let run = next.next().expect("there is one answer to each request");
            for &(stream, location) in run.blocks {
                let read = self.judge(run, stream, location, &answer);
                if !take(read)? {
                    return Ok(false);
                }
            }
            match answer {
                // What the network does is not a fault of the copy.
                Err(error @ ObjectError::Resources(_)) => Err(error),
                _ => Ok(true),
            }
        })
    }

    fn judge<'b>(
        &self,
        run: &Run<'_>,
        stream: usize,
        location: &'b BlockLocation,
        answer: &'b Result<&[u8], ObjectError>,
    ) -> ReadBlock<'b> {
        let block = &location.block;
        let start = (block.offset - run.range.start) as usize;
        let end = start + block.bytes as usize;
        let (data, why) = match answer {
            Ok(data) => match data.get(start..end) {
                Some(data) if crc32c::crc32c(data) == block.crc => (data, None),
                Some(data) => (data, Some("its CRC32C differs from the index".to_owned())),
                None => (&[][..], Some("the object is too short".to_owned())),
            },
            Err(error) => (&[][..], Some(error.to_string())),
        };
        let wrong = why.map(|why| WrongBlock {
            object: self.bucket.address_of(&run.object),
            stream: self.scan.streams[stream].name.clone(),
            sequence: block.sequence,
            offset: block.offset,
            why,
        });
        ReadBlock { stream, location, data, wrong }
    }

    /// The name of the object of a chunk file of the folder.
    fn object(&self, path: &Path) -> String {
        let name = path.strip_prefix(self.folder.path()).unwrap_or(path);
        format!("{}/{}", self.name, name.display())
    }
}

/// Consecutive blocks of an object, for one request.
struct Run<'a> {
    object: String,
    range: Range<u64>,
    blocks: &'a [(usize, &'a BlockLocation)],
}

/// Joins blocks to requests.
fn runs<'a>(
    blocks: &'a [(usize, &'a BlockLocation)],
    object: impl Fn(&Path) -> String,
) -> Vec<Run<'a>> {
    let end = |it: &BlockLocation| it.block.offset.saturating_add(it.block.bytes.into());
    let mut runs = Vec::new();
    let mut rest = blocks;
    while let Some(&(_, first)) = rest.first() {
        let mut count = 1;
        while let Some(&(_, next)) = rest.get(count) {
            let before = rest[count - 1].1;
            let joins = next.path == first.path && next.block.offset == end(before);
            if !joins || end(next) - first.block.offset > RANGE {
                break;
            }
            count += 1;
        }
        let (own, behind) = rest.split_at(count);
        let range = first.block.offset..end(own[count - 1].1);
        runs.push(Run { object: object(&first.path), range, blocks: own });
        rest = behind;
    }
    runs
}

/// Fetches a small file, and checks it.
fn fetch(bucket: &Bucket, list: &CopyList, file: &Listed) -> Result<Vec<u8>, ObjectError> {
    let object = format!("{}/{}", list.scan, file.name);
    let invalid = |why: &str| ObjectError::Invalid {
        address: bucket.address_of(&object),
        why: why.to_owned(),
    };
    let data = bucket.small(&object, file.bytes.min(LARGEST_INDEX))?;
    let data = data.ok_or_else(|| invalid("it is missing"))?;
    if data.len() as u64 != file.bytes || crc32c::crc32c(&data) != file.crc32c {
        return Err(invalid("it differs from what was sent: its size or CRC32C is wrong"));
    }
    Ok(data)
}

/// Makes a file of the folder. Its name was checked.
fn write(path: &Path, make: impl FnOnce(&Path) -> std::io::Result<()>) -> Result<(), ObjectError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let made = fs::create_dir_all(folder).and_then(|()| make(path));
    made.map_err(|source| ObjectError::Local { path: path.to_owned(), source })
}
