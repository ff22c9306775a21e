//! TDMS 2.0, the file format of LabVIEW and DAQmx: bytes in, facts out.
//!
//! ```text
//! file ──► Scanner ──► segments │ lead-in │ metadata: objects, properties │ raw data │
//!                      └──► Contents ──► ChannelCursor ──► runs: where the next values of a channel are
//! properties, raw indexes ──► write ──► lead-in and metadata of a segment
//! ```
//!
//! Source: National Instruments, "TDMS File Format Internal Structure" (2024). It does not have the raw data of DAQmx,
//! which follows real files.
//!
//! | bytes | lead-in of a segment |
//! |---|---|
//! | 0–3 | `TDSm`; in an index file `TDSh` |
//! | 4–7 | flags: 2 metadata, 4 new object list, 8 raw data, 32 interleaved, 64 big-endian, 128 DAQmx raw data |
//! | 8–11 | version, 4713 |
//! | 12–19 | bytes of metadata and raw data; all ones while the segment is written |
//! | 20–27 | bytes of metadata, and of the padding after it |
//!
//! Flags are little-endian always. Everything after them is big-endian if the flag says so.

mod bytes;
mod contents;
mod cursor;
mod daqmx;
mod error;
mod lead_in;
mod metadata;
mod path;
mod raw;
mod scanner;
mod value;
mod write;

#[cfg(test)]
mod tests;

pub use self::contents::{Contents, Object, ObjectId};
pub use self::cursor::{ChannelCursor, Run};
pub use self::error::TdmsError;
pub use self::lead_in::{Flags, LEAD_IN_BYTES, LeadIn, UNKNOWN};
pub use self::path::ObjectPath;
pub use self::raw::RawKind;
pub use self::scanner::{Scanner, Step};
pub use self::value::{DataType, Timestamp, Value};
pub use self::write::{ObjectEntry, RawIndex, SegmentHeader};

/// The largest metadata of a segment, in bytes.
pub const MOST_METADATA: u64 = 64 << 20;

/// The largest number of objects of a file.
pub const MOST_OBJECTS: usize = 1 << 20;

/// The largest number of segments of a file.
pub const MOST_SEGMENTS: usize = 1 << 22;

/// The largest size of all properties and object lists of a file, in bytes as they are in the file.
pub const MOST_KEPT: u64 = 1 << 30;
