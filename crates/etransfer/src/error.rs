//! Why a file could not be sent or fetched, or the server could not start.

use std::borrow::Cow;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use fullbore_core::hint::Hint;
use fullbore_core::units::ByteSize;
use fullbore_transfer::files::FilesError;

/// A transfer by etransfer that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EtransferError {
    /// The address cannot be listened at.
    #[error("cannot listen at {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The reason.
        source: io::Error,
    },
    /// The server cannot be reached, or went away.
    #[error("{peer}: {source}")]
    Connection {
        /// The server.
        peer: String,
        /// The reason.
        source: io::Error,
    },
    /// The server sent something that it must not send.
    #[error("{peer} does not keep to the protocol: {why}")]
    Protocol {
        /// The server.
        peer: String,
        /// What it sent.
        why: String,
    },
    /// The server refuses a request.
    #[error("{peer} refuses: {why}")]
    Refused {
        /// The server.
        peer: String,
        /// The reason, in its words.
        why: String,
    },
    /// The server has no data channel over TCP.
    #[error("{peer} offers no data channel over TCP")]
    NoTcp {
        /// The server.
        peer: String,
    },
    /// The server closed the data connection before it had confirmed the file.
    #[error("{peer} has not confirmed {name}")]
    Unconfirmed {
        /// The server.
        peer: String,
        /// The file.
        name: String,
    },
    /// The file at the server cannot be the beginning of this one.
    #[error("{peer} has {there} bytes of {name}, which has only {here}")]
    Longer {
        /// The server.
        peer: String,
        /// The file.
        name: String,
        /// Its bytes there.
        there: u64,
        /// Its bytes here.
        here: u64,
    },
    /// The name cannot be the name of a file here.
    #[error("\"{0}\" is no name for a file here")]
    Name(String),
    /// The file exists.
    #[error("{} exists", .0.display())]
    Exists(PathBuf),
    /// Another transfer writes the file.
    #[error("{} is being written by another transfer", .0.display())]
    InUse(PathBuf),
    /// There is no room.
    #[error("{} has room for {}, and {name} needs {}", directory.display(), ByteSize(*free), ByteSize(*wanted))]
    NoRoom {
        /// The directory.
        directory: PathBuf,
        /// Its room.
        free: u64,
        /// The file.
        name: String,
        /// The bytes that are to come.
        wanted: u64,
    },
    /// A file here cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A stream of a scan cannot be sent.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// The user stopped it.
    #[error("stopped")]
    Stopped,
}

impl Hint for EtransferError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Listen { .. } => "give a free port of this host: --etransfer ADDRESS:PORT",
            Self::Connection { .. } => {
                "etd listens at TCP port 4004 unless told otherwise. The same command continues"
            }
            Self::NoTcp { .. } => "start etd with a TCP data channel: --data tcp://0.0.0.0:8008",
            Self::Unconfirmed { .. } => {
                "the log of the server says why: it may be out of room. The same command continues"
            }
            Self::Longer { .. } => "it is another file: remove it there, or send with --overwrite",
            Self::Name(_) => "give the name of a file, without directories and without a dot first",
            Self::Exists(_) => {
                "move it away, or fetch into another directory: nothing is overwritten"
            }
            Self::InUse(_) => "wait for the other transfer to end",
            Self::NoRoom { .. } => "use a directory on a larger disk",
            Self::Stopped => "the same command continues",
            Self::Files(error) => return error.hint(),
            Self::Protocol { .. } | Self::Refused { .. } | Self::File { .. } => return None,
        }))
    }
}
