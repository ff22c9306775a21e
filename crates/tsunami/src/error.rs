//! Why a file could not be fetched, or the server could not start.

use std::borrow::Cow;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use fullbore_core::hint::Hint;
use fullbore_core::units::ByteSize;
use fullbore_linux::sys::{receive, send};

/// A transfer by Tsunami that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TsunamiError {
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
    /// No socket for the blocks.
    #[error(transparent)]
    Receive(#[from] receive::Error),
    /// The blocks cannot be sent.
    #[error(transparent)]
    Send(#[from] send::Error),
    /// The server has another revision of the protocol, or speaks another protocol.
    #[error("{peer} has revision {revision:#x} of Tsunami, not 0x20061025")]
    Revision {
        /// The server.
        peer: String,
        /// Its revision.
        revision: u32,
    },
    /// The secrets differ.
    #[error("{peer} does not accept the secret")]
    Secret {
        /// The server.
        peer: String,
    },
    /// The server has no such file.
    #[error("{peer} has no readable file \"{name}\"")]
    NotReadable {
        /// The server.
        peer: String,
        /// The file.
        name: String,
    },
    /// The server sent something that it must not send.
    #[error("{peer} does not keep to the protocol: {why}")]
    Protocol {
        /// The server.
        peer: String,
        /// What it sent.
        why: String,
    },
    /// The server is silent.
    #[error("{peer} has been silent for 15 s, with {left} blocks to come")]
    Silent {
        /// The server.
        peer: String,
        /// Missing blocks.
        left: u32,
    },
    /// The name cannot be the name of a file here.
    #[error("\"{0}\" gives no name for a file here")]
    Name(String),
    /// The file exists.
    #[error("{} exists", .0.display())]
    Exists(PathBuf),
    /// There is no room.
    #[error("{} has room for {}, and {name} has {}", directory.display(), ByteSize(*free), ByteSize(*wanted))]
    NoRoom {
        /// The directory.
        directory: PathBuf,
        /// Its room.
        free: u64,
        /// The file.
        name: String,
        /// Its length.
        wanted: u64,
    },
    /// A file here cannot be written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The user stopped it.
    #[error("stopped")]
    Stopped,
}

impl Hint for TsunamiError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Listen { .. } => "give a free port of this host: --tsunami ADDRESS:PORT",
            Self::Connection { .. } | Self::Silent { .. } => {
                "the protocol cannot resume: the same command begins again. Check that UDP from the server passes"
            }
            Self::Revision { .. } => "a tsunamid of 2006 or later listens at TCP port 46224",
            Self::Secret { .. } => "give the secret of the server with --tsunami-secret-file",
            Self::NotReadable { .. } => "--list shows the names, if the server offers them",
            Self::Name(_) => "name a file, not a directory",
            Self::Exists(_) => {
                "move it away, or fetch into another directory: nothing is overwritten"
            }
            Self::NoRoom { .. } => "fetch into a directory on a larger disk",
            Self::Stopped => "the protocol cannot resume: the same command begins again",
            Self::Send(error) => return error.hint(),
            Self::Receive(_) | Self::Protocol { .. } | Self::File { .. } => return None,
        }))
    }
}
