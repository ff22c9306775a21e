//! The reasons why a file is not TDMS that can be read.

/// A file cannot be read as TDMS.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TdmsError {
    /// A segment does not begin as one.
    #[error("no TDMS segment begins at byte {at}: found {found:02x?} instead of `TDSm`")]
    NotASegment {
        /// Its offset in the file.
        at: u64,
        /// The first bytes there.
        found: [u8; 4],
    },
    /// The file is an index, which has no samples.
    #[error("this is a `.tdms_index` file, which has no samples")]
    IsIndex,
    /// The version of a segment is unknown.
    #[error("the segment at byte {at} has TDMS version {version}, and 4712 and 4713 are known")]
    Version {
        /// The segment's offset in the file.
        at: u64,
        /// Its version.
        version: u32,
    },
    /// The raw data of a segment begins after its end.
    #[error("the segment at byte {at} has {metadata} bytes of metadata in {all} bytes")]
    Offsets {
        /// The segment's offset in the file.
        at: u64,
        /// Bytes of metadata.
        metadata: u64,
        /// Bytes of metadata and raw data.
        all: u64,
    },
    /// Something is larger than this program reads.
    #[error("the file has more than {most} {what}")]
    TooMuch {
        /// The thing.
        what: &'static str,
        /// Its bound.
        most: u64,
    },
    /// The metadata ends before its content does.
    #[error("the metadata of the segment at byte {at} ends inside {what}")]
    Cut {
        /// The segment's offset in the file.
        at: u64,
        /// The field that is not whole.
        what: &'static str,
    },
    /// A type of values is unknown.
    #[error("{what} has type {code:#x}, which cannot be read")]
    DataType {
        /// The object or property.
        what: String,
        /// The code of the type.
        code: u32,
    },
    /// The path of an object is not a path.
    #[error("`{path}` is not the path of a TDMS object")]
    Path {
        /// Its text, at most 100 characters.
        path: String,
    },
    /// The raw index of an object has no meaning.
    #[error("the raw index of {path} in the segment at byte {at}: {why}")]
    Index {
        /// The object.
        path: String,
        /// The segment's offset in the file.
        at: u64,
        /// The reason.
        why: &'static str,
    },
    /// The raw data of a segment has no meaning.
    #[error("the raw data of the segment at byte {at}: {why}")]
    Raw {
        /// The segment's offset in the file.
        at: u64,
        /// The reason.
        why: &'static str,
    },
}
