//! The reason why something cannot be exported.

use std::borrow::Cow;
use std::path::PathBuf;

use fullbore_containers::SampleError;
use fullbore_containers::tdms::TdmsFileError;
use fullbore_core::hint::Hint;
use fullbore_core::name::ScanName;
use fullbore_engine::recorder::RecordError;
use fullbore_hdf5 as hdf5;
use fullbore_panda as panda;
use fullbore_store::follow;

/// A recording cannot be exported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The scan cannot be opened, or not be read on.
    #[error(transparent)]
    Scan(#[from] follow::Error),
    /// The scan has no streams.
    #[error("{scan} has no streams")]
    NoStreams {
        /// The scan.
        scan: ScanName,
    },
    /// The scan has no such stream.
    #[error("{scan} has no stream {stream}; it has {known}")]
    NoStream {
        /// The scan.
        scan: ScanName,
        /// The stream, as given.
        stream: String,
        /// The streams of the scan.
        known: String,
    },
    /// A block cannot be read, or is damaged, and the file was to be complete.
    #[error(
        "stream {stream}: the conversion stopped after {after} of {of}, and made no file: {why}"
    )]
    Unreadable {
        /// The stream.
        stream: String,
        /// Frames before the block.
        after: String,
        /// Frames recorded.
        of: String,
        /// What was found.
        why: String,
    },
    /// A stream did not come in datagrams.
    #[error("stream {stream} is no stream of datagrams, so it has no packets")]
    NoDatagrams {
        /// The stream.
        stream: String,
    },
    /// A frame cannot be read, or fits no packet.
    #[error(
        "stream {stream}: the conversion stopped after {after} of {of}, and made no file: {why}"
    )]
    NoPackets {
        /// The stream.
        stream: String,
        /// Packets written before.
        after: String,
        /// Frames recorded.
        of: String,
        /// The reason.
        why: String,
    },
    /// The frames of a stream cannot be read.
    #[error(transparent)]
    Frames(fullbore_replay::SourceError),
    /// The file of packets cannot be written.
    #[error("{}: writing packets", path.display())]
    Packets {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The file cannot be written.
    #[error(transparent)]
    File(#[from] hdf5::Error),
    /// The samples of a stream cannot be written.
    #[error("stream {stream}: {source}")]
    Samples {
        /// The stream.
        stream: String,
        /// The reason.
        source: SampleError,
    },
    /// A file of samples cannot be written.
    #[error(transparent)]
    SampleFile(#[from] SampleError),
    /// A TDMS file cannot be read.
    #[error(transparent)]
    Tdms(#[from] TdmsFileError),
    /// The dump does not exist.
    #[error("{}: there is no such file", path.display())]
    NoDump {
        /// The file.
        path: PathBuf,
    },
    /// The dump has no header.
    #[error("{}: it ends before a header has come, so nothing can be made of it", path.display())]
    NoHeader {
        /// The file.
        path: PathBuf,
    },
    /// The file is not a dump of a PandA.
    #[error(
        "{}: this is not what a PandA's data port sends: it does not begin with OK",
        path.display()
    )]
    NotADump {
        /// The file.
        path: PathBuf,
    },
    /// The dump cannot be read.
    #[error("{}: {source}", path.display())]
    Dump {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: panda::Error,
    },
    /// The acquisitions cannot be recorded from the dump.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The file has not taken everything, or was not ended.
    #[error("{why}")]
    Incomplete {
        /// The reason.
        why: String,
    },
}

impl Hint for ExportError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Scan(error) => error.hint(),
            Self::File(error) => error.hint(),
            Self::Dump { source, .. } => source.hint(),
            Self::Record(error) => error.hint(),
            Self::Unreadable { .. } => {
                Some("--allow-damaged continues past what cannot be read".into())
            }
            Self::Samples { source, .. } | Self::SampleFile(source) => source.hint(),
            Self::Tdms(_)
            | Self::NoStreams { .. }
            | Self::NoStream { .. }
            | Self::NoDump { .. }
            | Self::NoHeader { .. }
            | Self::NotADump { .. }
            | Self::NoDatagrams { .. }
            | Self::NoPackets { .. }
            | Self::Frames(_)
            | Self::Packets { .. }
            | Self::Incomplete { .. } => None,
        }
    }
}
