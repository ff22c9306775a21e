//! A drive that is recorded onto without a file system: addresses, the scan index, and status.
//!
//! ```text
//! 0         256K     1M          data first                     data last      copy B
//! ├─ copy A ─┼─ zero ─┼─ records ─┼─ scan │ scan │ … │ free ────────┼───────────┼──┤
//! ```
//!
//! A drive is written in *chunks*, and a place on it is named by the byte address of a chunk. A *bare*
//! session writes from a first to a last chunk, both counted in, and touches nothing else ([`Span`]). On a
//! drive with a scan index ([`Superblock`]) each scan is one run of chunks that lies plain, with a
//! [`BlockRecord`] for each of its blocks in a region of their own, whose place is arithmetic ([`Volume`]).
//! `docs/reference/device.md` has every byte.

mod address;
mod endpoint;
mod record;
mod session;
mod source;
mod superblock;
mod volume;

pub use address::{
    AddressError, CHUNK_BYTES, LARGEST_CHUNK_BYTES, LEAST_CHUNK_BYTES, Span, read_address,
};
pub use endpoint::DeviceEnd;
pub use record::{BlockRecord, RECORD_BYTES, RECORDS_PER_PAGE, checksum, tag_of};
pub use session::{Action, Direction, End, Event, Session, Status, Word};
pub use source::BytesSource;
pub use superblock::{COPY_BYTES, Ending, Error as SuperblockError, Kind, MOST_SCANS};
pub use superblock::{MAGIC, StoredScan, Superblock, find as find_index};
pub use volume::{Error as VolumeError, Gap, PAGE_BYTES, SCAN_CHUNKS, Volume};
