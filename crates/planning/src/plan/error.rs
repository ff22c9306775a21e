//! The reasons why no plan can be made.

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;

use fullbore_core::hint::Hint;

/// No plan can be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No stream was given.
    #[error("no stream is given, so there is nothing to plan")]
    NoStream,
    /// The text of a stream.
    #[error("`{text}` is no stream: {why}")]
    Stream {
        /// The text.
        text: String,
        /// The problem.
        why: String,
    },
    /// A description, or an example of one.
    #[error("{name}: {why}")]
    Description {
        /// The file.
        name: String,
        /// The problem.
        why: String,
    },
    /// A name that the machine does not have.
    #[error("{used}: this machine has no {what} `{name}`; it has {known}")]
    Unknown {
        /// The part of the plan that uses the name.
        used: String,
        /// The kind of thing.
        what: &'static str,
        /// The name.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// A file that cannot be read.
    #[error("{}: reading it: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// A file that is longer than any description.
    #[error("{}: {bytes} bytes are too long for a description of a machine", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
    },
    /// A file that is no topology of hwloc.
    #[error("{}: no topology of hwloc: {why}", path.display())]
    NoTopology {
        /// The file.
        path: PathBuf,
        /// The problem.
        why: String,
    },
    /// A directory without the files of a kernel.
    #[error("{}: there are no PCI devices below it (bus/pci/devices)", path.display())]
    NoSysfs {
        /// The directory.
        path: PathBuf,
    },
    /// An example that does not exist.
    #[error("there is no example `{name}`; the examples are {known}")]
    NoExample {
        /// The name.
        name: String,
        /// The names that exist.
        known: String,
    },
}

impl Hint for Error {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::NoStream => {
                "give one, such as --stream 8x2Gbit/s, or a description with [[stream]]"
            }
            Self::Stream { .. } => {
                "write [NAME=][Nx]RATE[@PLACE], such as 8x2Gbit/s@ens1, an instrument such as 2xPXIe-5122, or an endpoint"
            }
            Self::Description { .. } => {
                "`fullbore plan --example station --toml` prints a description to begin with"
            }
            Self::NoTopology { .. } => "`lstopo --of xml FILE` writes one",
            Self::NoSysfs { .. } => "give a copy of /sys, or a directory that contains one as sys",
            Self::Unknown { .. } | Self::NoExample { .. } => return None,
            Self::Read { .. } | Self::TooLong { .. } => return None,
        }))
    }
}
