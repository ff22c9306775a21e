//! Copies of scans in object stores: S3, Google Cloud Storage, Azure, WebDAV, and directories.
//!
//! ```text
//! prefix/SCAN/copy.json                                what the copy has: each file, its size and CRC32C; written first
//!             .fullbore/member.json                    so that the tree, fetched by any tool, is a member of a disk set
//!             STREAM/STREAM.00000000 …                 the chunk files, as they are in the store
//!             STREAM/.fullbore/{manifest.json,account.json,index}
//!             complete.json                            the digest of all blocks; written last
//! ```
//!
//! - [`address`]: `s3://bucket/prefix` and its like
//! - [`aws_profile`], [`http_login`]: keys and passwords from files
//! - [`bucket`]: requests to an object store; the only place with an async runtime (`docs/decisions/0025-object-stores.md`)
//! - `tree`: the two documents above, and the names that a copy may have
//! - `source`: a scan as files of a copy
//! - `reading`: chunk files in parts, each block checked on its way
//! - `upload`: a chunk file that is sent in parts, which a later process continues; `kept`: what it knows of that
//! - [`send`]: a scan to an object store
//! - [`copy`]: a copy that is opened in place; its small files are fetched, and its blocks are read by ranges
//! - [`served`]: the files of a copy that nobody made, for a server
//! - [`receive`]: a copy back into a store

pub mod address;
pub mod aws_profile;
pub mod bucket;
pub mod copy;
pub mod error;
pub mod http_login;
mod kept;
mod reading;
pub mod receive;
pub mod send;
pub mod served;
mod source;
mod tree;
mod upload;

pub use address::Address;
pub use bucket::Bucket;
pub use error::{ObjectError, Trouble};
