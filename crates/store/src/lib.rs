//! The store: scans as plain chunk files over a disk set, with their metadata beside them.
//!
//! ```text
//! <member>/.fullbore/member.json                       identity of this member
//! <member>/.fullbore/sessions/<session>.<begun>.json   the account of a session by schedule, on one member
//! <member>/<scan-stream>/<scan-stream>.00000000 …      complete chunks, nothing else
//! <member>/<scan-stream>/.fullbore/manifest.json       the same on every member
//!                                  account.json        the same on every member
//!                                  index               of this member's blocks
//!                                  <scan-stream>.00000007.part    the chunk being filled, with its reserved space
//!                                  protected                      if the scan is protected from removal
//!                                  markers                        markers of the scan, beside its first stream only
//!                                  copies.json                    receipts of copies elsewhere, beside its first stream only
//!                                  upload.jsonl                   the upload of a chunk file to an object store, if it was interrupted
//!                                  spare               preallocated space for the next one
//!                                  <scan-stream>.00000003.parity0     parity of chunks on other members
//!                                  <scan-stream>.00000003.stripe0     their numbers and index records
//!                                  <scan-stream>.00000007.renaming    a chunk whose file is being renumbered
//! ```
//!
//! A chunk is filled in the side directory `.fullbore/`, where its space is reserved before blocks need it. It is renamed
//! into place when all of it is written (`docs/decisions/0001-chunk-files.md`). So a reader of a stream's directory sees
//! complete chunks and nothing else, and after a crash the index shows how much of the `.part` file counts.
//!
//! Writing: [`Member`], and [`spawn`] for the writer of each. Reading:
//!
//! - [`inventory`]: the location and content of the files of a scan
//! - [`catalogue`]: lists all scans of a store, and finds one by name
//! - [`reader`]: a scan's blocks in order, read ahead and checked
//! - [`follow`]: a scan that is being recorded, as far as it is durable
//! - [`renumber`]: renumbers chunk files in the order of the stream if a member died within a chunk
//! - [`landing`]: a scan that arrives from another site
//! - [`copies`]: what both ends of a transfer compute of a scan
//! - [`redundancy`]: parity of chunks on other members
//! - [`protection`]: the file that protects a scan from removal
//! - [`lock`]: the lock of a scan that is being recorded
//! - [`resume`]: finds earlier parts of a scan
//! - [`sessions`]: the accounts of whole sessions
//! - [`markers`]: marked moments of a scan
//! - [`copies`]: receipts of copies of a scan at other sites
//!
//! It may write and read files on the members, and take scan locks. It judges nothing and removes no scan: that is care
//! of the scans (`fullbore-care`).

pub mod catalogue;
mod chunk;
pub mod copies;
pub mod crash_hooks;
pub mod diagnostics;
mod disk;
pub mod follow;
pub mod gaps;
mod identity;
pub mod inventory;
mod journal;
pub mod landing;
pub mod lock;
pub mod markers;
mod member;
mod pages;
pub mod partial_blocks;
pub mod protection;
pub mod read;
pub mod reader;
pub mod redundancy;
pub mod renumber;
mod reservation;
pub mod resume;
pub mod sessions;
pub mod stall_hooks;
mod stream;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod writer;

#[cfg(test)]
mod faulty;

pub use disk::{Access, Nameless, open_nameless};
pub use member::{Member, MemberError, file_system, make_side};
pub use writer::{CaptureQueue, Farewell, Settings, Timing, WriterError, spawn};

/// The name, in a stream's side directory, of space preallocated for a chunk without a number yet.
pub const SPARE_FILE: &str = "spare";
