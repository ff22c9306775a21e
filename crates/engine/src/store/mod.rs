//! The store: scans as plain chunk files over a disk set, and all that is known of them beside.
//!
//! ```text
//! <member>/.fullbore/member.json                       who this member is
//! <member>/.fullbore/sessions/<session>.<begun>.json   the account of a session by schedule, on one member
//! <member>/<scan-stream>/<scan-stream>.00000000 …      chunks that are complete, nothing else
//! <member>/<scan-stream>/.fullbore/manifest.json       the same on every member
//!                                  account.json        the same on every member
//!                                  index               of this member's blocks
//!                                  <scan-stream>.00000007.part    the chunk being filled, at full size
//!                                  protected                      if the scan is not to be removed
//!                                  markers                        what was marked, of the scan's first stream only
//!                                  spare               space for the next one
//!                                  <scan-stream>.00000003.parity0     parity of chunks on other members
//!                                  <scan-stream>.00000003.stripe0     which those are, and all that their indexes say of them
//!                                  <scan-stream>.00000007.renaming    a chunk whose file is given another number
//! ```
//!
//! A chunk is filled under `.fullbore/`, where its space is taken beforehand at its full size, and
//! renamed into place when all of it is written (`docs/decisions/0001-chunk-files.md`). So whoever
//! reads a stream's directory sees whole chunks and nothing else, and after a crash the index says
//! how much of the `.part` file counts.
//!
//! Writing: [`Member`], and [`spawn`] for the writer of each. Reading:
//!
//! - [`inventory`]: what files of a scan lie where, and what each of them says
//! - [`catalogue`]: all scans of a store, and finding one by name
//! - [`reader`]: a scan's blocks in order, read ahead and checked
//! - [`follow`]: a scan that is being recorded, as far as it is durable
//! - [`verify`]: every block, chunk, index and account held against the others
//! - [`recover`]: an unsealed scan made a sealed one
//! - [`renumber`]: chunk files given the order of the stream where a member died within a chunk
//! - [`redundancy`]: parity of chunks on other members, and what was lost made of it again
//! - [`remove`]: a scan's files taken away, and no others
//! - [`keep`]: the oldest scans let go of, and scans protected from that
//! - [`lock`]: who records a scan
//! - [`earlier`]: what there is already of a scan that is to be recorded
//! - [`sessions`]: the accounts of whole sessions
//! - [`markers`]: what somebody wanted to be remembered of a scan

pub mod catalogue;
mod chunk;
mod disk;
mod dying;
pub mod earlier;
pub mod finding;
pub mod follow;
pub mod gaps;
pub(crate) mod hanging;
mod identity;
pub mod inventory;
mod journal;
pub mod keep;
pub mod lock;
pub mod markers;
mod member;
mod pages;
pub mod read;
pub mod reader;
pub mod recover;
pub mod redundancy;
pub mod remove;
pub mod renumber;
pub mod sessions;
mod stream;
pub(crate) mod tails;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod verify;
mod writer;

#[cfg(test)]
mod faulty;

pub use disk::{Access, Nameless, open_nameless};
#[cfg(feature = "hdf5")]
pub(crate) use member::file_system;
pub(crate) use member::make_side;
pub use member::{Member, MemberError};
pub use writer::{Lane, Settings, Timing, Writer, WriterError, spawn};

/// The name, under a stream's `.fullbore/`, of space taken for a chunk without a number yet.
pub const SPARE_FILE: &str = "spare";
