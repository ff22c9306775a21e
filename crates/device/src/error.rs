//! Errors of devices.

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;

use fullbore_core::completeness::counted;
use fullbore_core::device::{AddressError, SuperblockError, VolumeError};
use fullbore_core::hint::Hint;
use fullbore_core::name::ScanName;
use fullbore_core::units::ByteSize;
use fullbore_linux::sys::uring::RingError;

use super::overwrite_guard::{GuardError, named_like_a_stream};

/// A failed operation on a device.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The overwrite guard refuses the device.
    #[error(transparent)]
    Guard(#[from] GuardError),
    /// The device has no such addresses.
    #[error("{}: {source}", path.display())]
    Address {
        /// The device.
        path: PathBuf,
        /// The addresses, and the reason.
        source: AddressError,
    },
    /// The device cannot be opened.
    #[error("{}: opening it: {source}", path.display())]
    Open {
        /// The device.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// Another process uses the device.
    #[error("{}: another process uses it exclusively", path.display())]
    Busy {
        /// The device.
        path: PathBuf,
    },
    /// A file to be used as a device cannot be created.
    #[error("{}: creating it with {bytes} bytes: {source}", path.display())]
    Make {
        /// The file.
        path: PathBuf,
        /// The size of the file.
        bytes: u64,
        /// The kernel's error.
        source: io::Error,
    },
    /// A read failed.
    #[error("{}: reading {bytes} bytes at address {address:#x}: {source}", path.display())]
    Read {
        /// The device.
        path: PathBuf,
        /// The address.
        address: u64,
        /// The number of bytes.
        bytes: u64,
        /// The kernel's error.
        source: io::Error,
    },
    /// A write failed.
    #[error("{}: writing {bytes} bytes at address {address:#x}: {source}", path.display())]
    Write {
        /// The device.
        path: PathBuf,
        /// The address.
        address: u64,
        /// The number of bytes.
        bytes: u64,
        /// The kernel's error.
        source: io::Error,
    },
    /// A sync failed: the state of all data written since the last sync is unknown.
    #[error("{}: syncing it: {source}", path.display())]
    Sync {
        /// The device.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The device has no scan index.
    #[error("{}: it has no scan index", path.display())]
    NoIndex {
        /// The device.
        path: PathBuf,
    },
    /// The device's scan index cannot be used.
    #[error("{}: its scan index cannot be used: {source}", path.display())]
    Index {
        /// The device.
        path: PathBuf,
        /// The reason.
        source: SuperblockError,
    },
    /// The device was larger when its index was created.
    #[error("{}: it has {is} bytes, and had {was} when its scan index was created", path.display())]
    Shrunk {
        /// The device.
        path: PathBuf,
        /// The size in the index.
        was: u64,
        /// The current size.
        is: u64,
    },
    /// The device is too small for a scan index.
    #[error("{}: {source}", path.display())]
    Divide {
        /// The device.
        path: PathBuf,
        /// The reason.
        source: VolumeError,
    },
    /// The device has no such scan.
    #[error("{}: there is no scan {scan}", path.display())]
    NoScan {
        /// The device.
        path: PathBuf,
        /// The scan.
        scan: ScanName,
        /// The existing scans.
        known: Vec<String>,
    },
    /// The scan exists already.
    #[error("{}: the scan {scan} is there already", path.display())]
    ScanExists {
        /// The device.
        path: PathBuf,
        /// The scan.
        scan: ScanName,
    },
    /// The scan's recorder died, or is still recording it.
    #[error("{}: the scan {scan} is not sealed", path.display())]
    Unsealed {
        /// The device.
        path: PathBuf,
        /// The scan.
        scan: ScanName,
    },
    /// The index has another chunk size.
    #[error("{}: its scan index has chunks of {there} bytes, not {requested}", path.display())]
    OtherChunk {
        /// The device.
        path: PathBuf,
        /// The chunk size of the index, in bytes.
        there: u32,
        /// The requested chunk size, in bytes.
        requested: u32,
    },
    /// No space for another scan.
    #[error("{}: {free} free, and {needed} are needed", path.display())]
    NoSpace {
        /// The device.
        path: PathBuf,
        /// The largest gap.
        free: ByteSize,
        /// The least space needed.
        needed: ByteSize,
    },
    /// The recording would overwrite its own source.
    #[error("{}: the source, {first:#x} to {:#x}, would be overwritten while it is read", path.display(), end - 1)]
    Overlap {
        /// The device.
        path: PathBuf,
        /// Address of the first byte that is read.
        first: u64,
        /// Address after the last byte.
        end: u64,
    },
    /// The index is full.
    #[error("{}: its index holds {scans} scans, and has no room for another", path.display())]
    IndexFull {
        /// The device.
        path: PathBuf,
        /// The number of scans in it.
        scans: usize,
    },
    /// Blocks smaller than the chunks, each of which has a record.
    #[error("blocks of {block_bytes} bytes are smaller than chunks of {chunk_bytes}")]
    SmallBlocks {
        /// Bytes per block.
        block_bytes: u32,
        /// Bytes per chunk.
        chunk_bytes: u32,
    },
    /// A stream whose frames vary in length, so that finding them needs a list of lengths.
    #[error("frames of varying length cannot be recorded onto a device")]
    Varying,
    /// A source of several streams.
    #[error("{streams} streams cannot share a scan on a device")]
    Streams {
        /// The number of streams.
        streams: usize,
    },
    /// The number of streams differs from the number of devices.
    #[error("{} for {}: each device takes one stream", counted(*streams as u64, "stream"), counted(*devices as u64, "device"))]
    NotPaired {
        /// The number of streams.
        streams: usize,
        /// The number of devices.
        devices: usize,
    },
    /// A series of scans.
    #[error("a device takes one scan at a time")]
    Series,
    /// The writer could not create its ring.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// Block memory could not be allocated.
    #[error("allocating {bytes} bytes of block memory: {source}")]
    Memory {
        /// The requested size.
        bytes: u64,
        /// The kernel's error.
        source: io::Error,
    },
    /// A thread could not be started.
    #[error("starting a thread: {source}")]
    Thread {
        /// The kernel's error.
        source: io::Error,
    },
    /// A thread ended without a report.
    #[error("a thread of the recording failed; `fullbore recover` recovers the written data")]
    Broken,
}

impl Hint for Error {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(match self {
            Error::Guard(error) => return error.hint(),
            Error::Address { source, .. } => return source.hint(),
            Error::Busy { .. } => {
                "end the other recording first; a dead process releases it by itself".into()
            }
            Error::Open { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                "run it as root, or as a member of the group that owns the device (`disk`)".into()
            }
            Error::Open { source, .. } | Error::Write { source, .. }
                if source.kind() == io::ErrorKind::ReadOnlyFilesystem =>
            {
                "it is mounted read-only: `findmnt` shows the mount".into()
            }
            Error::NoIndex { .. } => {
                "the first recording with --session and --scan creates one; select bare chunks with \
                 first=… and last=…"
                    .into()
            }
            Error::Index { .. } => {
                "both copies are damaged or of a later version; --overwrite creates a new index, and all \
                 scans are lost"
                    .into()
            }
            Error::Shrunk { .. } => {
                "data before its end can be read; to record, create a new index with --overwrite"
                    .into()
            }
            Error::Divide { .. } => "give smaller chunks, or a larger device".into(),
            Error::NoScan { known, .. } if known.is_empty() => "there are none on it".into(),
            Error::NoScan { known, .. } => format!("there are {}", known.join(", ")).into(),
            Error::ScanExists { .. } => {
                "choose another --scan, or remove the old one with `fullbore rm`".into()
            }
            Error::Unsealed { path, .. } => Cow::Owned(format!(
                "if it is no longer being recorded: fullbore recover device:{}",
                path.display()
            )),
            Error::OtherChunk { there, .. } => {
                format!("leave chunk= away, or write chunk={there}").into()
            }
            Error::NoSpace { .. } | Error::IndexFull { .. } => {
                "remove scans with `fullbore rm device:…?scan=…`, or record less".into()
            }
            Error::Overlap { .. } => {
                "record to other chunks, or copy it to another file or device first".into()
            }
            Error::SmallBlocks { .. } => "give larger blocks with block=… in the source".into(),
            Error::Varying => "record them into a store, which keeps their lengths".into(),
            Error::NotPaired { .. } => {
                "name as many devices as streams, with --to once for each, or record all streams into a store".into()
            }
            Error::Series => "record a series of scans into a store".into(),
            Error::Streams { .. } => {
                "record each into a scan of its own, or all of them into a store".into()
            }
            Error::Ring(error) => return error.hint(),
            Error::Memory { .. } => "ask for less with --buffer".into(),
            Error::Open { path, source } => return named_like_a_stream(path, source),
            Error::Make { .. }
            | Error::Read { .. }
            | Error::Write { .. }
            | Error::Sync { .. }
            | Error::Thread { .. }
            | Error::Broken => return None,
        })
    }
}
