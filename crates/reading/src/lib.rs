//! Recordings as arrays: any range of the frames or of the samples of a stream, in memory of the caller.
//!
//! ```text
//! a path, a name ──► Place ──► OpenScan ──► StreamView ──► read_frames   bytes of frames, and which were received
//!                                                │
//!                                                └───────► Samples ──► read: values of lines, absent ones as NaN
//!                      └─► Blocks ──► one block after the other, while the scan is recorded too
//! ```
//!
//! This is what a program needs to compute with a recording that does not fit into memory; the Python package is its
//! first user (`docs/decisions/0042-python.md`). It reads no file itself: blocks come from
//! [`StoredStream::read`](fullbore_store::reader::StoredStream::read), checked and read ahead, and their samples through
//! the decoders of [`fullbore_formats::samples`]. Memory beyond the result is the read-ahead: at most five blocks for
//! each device: two that are read, two on loan, and one between them.
//!
//! Data that cannot be read is an error, unless the scan was opened to skip it. Then it counts as not received.

mod blocks;
mod error;
mod frames;
mod place;
mod samples;
mod scan;
mod times;

pub use self::blocks::{Block, Blocks, Next};
pub use self::error::{ErrorKind, ReadError};
pub use self::place::Place;
pub use self::samples::{Line, Samples};
pub use self::scan::{OpenScan, StreamView};
