//! The store: scans as plain chunk files over a disk set, and all that is known of them beside.
//!
//! ```text
//! <member>/.fullbore/member.json                       who this member is
//! <member>/<scan-stream>/<scan-stream>.00000000 …      the stream's bytes, nothing else
//! <member>/<scan-stream>/.fullbore/manifest.json       the same on every member
//!                                  account.json        the same on every member
//!                                  index               of this member's blocks
//!                                  <scan-stream>.00000007.part    a chunk not complete yet
//! ```
//!
//! - [`inventory`]: what files of a scan lie where, and what each of them says
//! - [`catalogue`]: all scans of a store, and finding one by name
//! - [`reader`]: a scan's blocks in order, read ahead and checked
//! - [`verify`]: every block, chunk, index and account held against the others
//! - [`recover`]: an unsealed scan made a sealed one
//! - [`remove`]: a scan's files taken away, and no others
//! - [`lock`]: who records a scan

pub mod catalogue;
pub mod finding;
pub mod gaps;
pub mod inventory;
pub mod lock;
pub mod read;
pub mod reader;
pub mod recover;
pub mod remove;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod verify;
