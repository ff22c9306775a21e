//! What can go wrong with a device.

use std::io;
use std::path::PathBuf;

use fullbore_core::device::{AddressError, MOST_SCANS, SuperblockError, VolumeError};
use fullbore_core::name::ScanName;
use fullbore_core::units::ByteSize;

use super::guard::GuardError;
use crate::source::PortError;
use crate::sys::uring::RingError;

/// Something that cannot be done with a device.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It may not be written.
    #[error(transparent)]
    Guard(#[from] GuardError),
    /// Addresses that it does not have.
    #[error("{}: {source}", path.display())]
    Address {
        /// The device.
        path: PathBuf,
        /// Which, and why.
        source: AddressError,
    },
    /// It cannot be opened.
    #[error("{}: opening it: {source}", path.display())]
    Open {
        /// The device.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Another device of the same recording cannot be recorded onto.
    #[error("it was not begun, as another device of the recording could not be made ready")]
    Companion,
    /// Somebody else has it.
    #[error("{}: another process has it for itself", path.display())]
    Busy {
        /// The device.
        path: PathBuf,
    },
    /// A file in the place of a device that cannot be made.
    #[error("{}: making it with {bytes} bytes: {source}", path.display())]
    Make {
        /// The file.
        path: PathBuf,
        /// How large.
        bytes: u64,
        /// What the kernel said.
        source: io::Error,
    },
    /// A read failed.
    #[error("{}: reading {bytes} bytes at address {address:#x}: {source}", path.display())]
    Read {
        /// The device.
        path: PathBuf,
        /// Where.
        address: u64,
        /// How much.
        bytes: u64,
        /// What the kernel said.
        source: io::Error,
    },
    /// A write failed.
    #[error("{}: writing {bytes} bytes at address {address:#x}: {source}", path.display())]
    Write {
        /// The device.
        path: PathBuf,
        /// Where.
        address: u64,
        /// How much.
        bytes: u64,
        /// What the kernel said.
        source: io::Error,
    },
    /// A sync failed: nothing is known of what was written since the last one.
    #[error("{}: syncing it: {source}", path.display())]
    Sync {
        /// The device.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// It has no scan index.
    #[error("{}: there is no scan index on it", path.display())]
    NoIndex {
        /// The device.
        path: PathBuf,
    },
    /// It has a scan index that cannot be used.
    #[error("{}: its scan index cannot be used: {source}", path.display())]
    Index {
        /// The device.
        path: PathBuf,
        /// Why.
        source: SuperblockError,
    },
    /// It was larger when its index was made.
    #[error("{}: it has {is} bytes, and had {was} when its scan index was made", path.display())]
    Shrunk {
        /// The device.
        path: PathBuf,
        /// Bytes by the index.
        was: u64,
        /// Bytes now.
        is: u64,
    },
    /// No scan index fits on it.
    #[error("{}: {source}", path.display())]
    Divide {
        /// The device.
        path: PathBuf,
        /// Why.
        source: VolumeError,
    },
    /// No such scan.
    #[error("{}: there is no scan {scan}", path.display())]
    NoScan {
        /// The device.
        path: PathBuf,
        /// The scan.
        scan: ScanName,
        /// Those that are there.
        known: Vec<String>,
    },
    /// A scan of that name is there.
    #[error("{}: the scan {scan} is there already", path.display())]
    ScanExists {
        /// The device.
        path: PathBuf,
        /// The scan.
        scan: ScanName,
    },
    /// Its recorder died, or it is still being recorded.
    #[error("{}: the scan {scan} is not sealed", path.display())]
    Unsealed {
        /// The device.
        path: PathBuf,
        /// The scan.
        scan: ScanName,
    },
    /// Other chunks than the index has.
    #[error("{}: its scan index has chunks of {there}, and {asked} were asked for", path.display())]
    OtherChunk {
        /// The device.
        path: PathBuf,
        /// Bytes of a chunk there.
        there: u32,
        /// Bytes of a chunk asked for.
        asked: u32,
    },
    /// No room for another scan.
    #[error("{}: {free} free, and {needed} are needed", path.display())]
    NoSpace {
        /// The device.
        path: PathBuf,
        /// The largest gap.
        free: ByteSize,
        /// What is needed at least.
        needed: ByteSize,
    },
    /// What is to be read is what would be written.
    #[error("{}: what is read of it, {first:#x} to {:#x}, would be written over meanwhile", path.display(), end - 1)]
    Overlap {
        /// The device.
        path: PathBuf,
        /// Address of the first byte that is read.
        first: u64,
        /// Address behind the last one.
        end: u64,
    },
    /// The index is full.
    #[error("{}: its index holds {MOST_SCANS} scans, and has no room for another", path.display())]
    IndexFull {
        /// The device.
        path: PathBuf,
    },
    /// Blocks smaller than the chunks that each has a record for.
    #[error("blocks of {block_bytes} bytes are smaller than chunks of {chunk_bytes}")]
    SmallBlocks {
        /// Bytes of a block.
        block_bytes: u32,
        /// Bytes of a chunk.
        chunk_bytes: u32,
    },
    /// A stream whose frames cannot be found without a list of their lengths.
    #[error("frames of varying length cannot be recorded onto a device")]
    Varying,
    /// A source of several streams.
    #[error("{streams} streams cannot share a scan on a device")]
    Streams {
        /// How many.
        streams: usize,
    },
    /// The source cannot be read.
    #[error("{what}: {source}")]
    Source {
        /// The source.
        what: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A socket.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The writer has no ring.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// Block memory.
    #[error("{bytes} bytes of block memory cannot be had: {source}")]
    Memory {
        /// How much.
        bytes: u64,
        /// What the kernel said.
        source: io::Error,
    },
    /// A thread.
    #[error("starting a thread: {source}")]
    Thread {
        /// What the kernel said.
        source: io::Error,
    },
    /// An end was asked for so often that nobody waits for the device any more.
    #[error("{}: it was left while it did not answer", path.display())]
    Left {
        /// The device.
        path: PathBuf,
    },
    /// A thread ended without a word.
    #[error("a thread of the recording failed; `fullbore recover` finds what was written")]
    Broken,
}

impl Error {
    /// Whether it comes before anything was written.
    pub(super) fn is_before_the_first_byte(&self) -> bool {
        matches!(
            self,
            Error::Port(_)
                | Error::Memory { .. }
                | Error::Ring(_)
                | Error::Varying
                | Error::Streams { .. }
                | Error::Companion
        )
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Error::Guard(error) => return error.hint(),
            Error::Address { source, .. } => source.hint(),
            Error::Companion => {
                "mend what is said of the other device; the recording begins on all of them or on none"
                    .into()
            }
            Error::Busy { .. } => {
                "end the other recording first; a process that died lets it go by itself".into()
            }
            Error::Open { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                "run it as root, or as a member of the group that owns the device (`disk`)".into()
            }
            Error::Open { source, .. } | Error::Write { source, .. }
                if source.kind() == io::ErrorKind::ReadOnlyFilesystem =>
            {
                "it is mounted read-only: `findmnt` tells by whom and how".into()
            }
            Error::NoIndex { .. } => {
                "the first recording with --session and --scan makes one; bare chunks are named by \
                 first=… and last=…"
                    .into()
            }
            Error::Index { .. } => {
                "both copies are damaged or of a later version; --overwrite makes a new one, and all \
                 scans are lost"
                    .into()
            }
            Error::Shrunk { .. } => {
                "what lies before its end can be read; to record, make the index anew with --overwrite"
                    .into()
            }
            Error::Divide { .. } => "give smaller chunks, or a larger device".into(),
            Error::NoScan { known, .. } if known.is_empty() => "there are none on it".into(),
            Error::NoScan { known, .. } => format!("there are {}", known.join(", ")),
            Error::ScanExists { .. } => {
                "choose another --scan, or remove the old one with `fullbore rm`".into()
            }
            Error::Unsealed { path, .. } => format!(
                "if nobody records it any more: fullbore recover device:{}",
                path.display()
            ),
            Error::OtherChunk { there, .. } => format!("leave chunk= away, or write chunk={there}"),
            Error::NoSpace { .. } | Error::IndexFull { .. } => {
                "remove scans with `fullbore rm device:…?scan=…`, or record less".into()
            }
            Error::Overlap { .. } => {
                "record to other chunks, or copy it to another file or device first".into()
            }
            Error::SmallBlocks { .. } => "give larger blocks with block=… in the source".into(),
            Error::Varying => "record them into a store, which keeps their lengths".into(),
            Error::Streams { .. } => {
                "record each into a scan of its own, or all of them into a store".into()
            }
            Error::Ring(error) => error.hint().into(),
            Error::Left { path } => format!(
                "once it answers again, `fullbore recover device:{}` keeps what was written of a scan",
                path.display()
            ),
            Error::Memory { .. } => "ask for less with --buffer".into(),
            Error::Open { .. }
            | Error::Make { .. }
            | Error::Read { .. }
            | Error::Write { .. }
            | Error::Sync { .. }
            | Error::Source { .. }
            | Error::Port(_)
            | Error::Thread { .. }
            | Error::Broken => return None,
        })
    }
}
