//! A drive that is recorded onto without a file system: addresses, the scan index, and status.
//!
//! ```text
//! 0         256K     1M          data first                     data last      copy B
//! ├─ copy A ─┼─ zero ─┼─ records ─┼─ scan │ scan │ … │ free ────────┼───────────┼──┤
//! ```
//!
//! A drive is written in *chunks*; the byte address of a chunk identifies it. A *bare* session writes from a first to
//! a last chunk, both included, and touches nothing else ([`Span`]). On a drive with a scan index ([`Superblock`]) each
//! scan is one contiguous run of chunks. The [`BlockRecord`]s of its blocks are in a separate region, at computed
//! addresses ([`Volume`]). `docs/reference/device.md` describes every byte.

mod address;
mod endpoint;
mod extract;
mod record;
mod session;
mod source;
mod superblock;
mod volume;

pub use address::{
    AddressError, CHUNK_BYTES, LARGEST_CHUNK_BYTES, LEAST_CHUNK_BYTES, Span, read_address,
};
pub use endpoint::DeviceEnd;
pub use extract::Extract;
pub use record::{BlockRecord, RECORD_BYTES, RECORDS_PER_PAGE, checksum};
pub use session::{Action, Direction, End, Event, Session, Status, Word};
pub use source::{BytesSource, BytesStream, Flush};
pub use superblock::{COPY_BYTES, Ending, Error as SuperblockError, Kind, MAGIC, NO_CHUNK_LEFT};
pub use superblock::{StoredScan, Superblock, find as find_index};
pub use volume::{Error as VolumeError, Gap, PAGE_BYTES, SCAN_CHUNKS, Volume};
