//! Why a recording could not be armed, or did not end well.

use std::io;
use std::path::PathBuf;

use fullbore_core::completeness::counted;
use fullbore_core::demand::Sum;
use fullbore_core::name::{Name, ScanName};
use fullbore_core::redundancy::Scheme;
use fullbore_core::time::Tai;
use fullbore_core::units::ByteSize;

use crate::source::PortError;
use crate::store::{self, MemberError, WriterError};

/// A recording that could not be armed.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Nothing to record from.
    #[error("no source was given")]
    NoSource,
    /// Nothing to record to.
    #[error("no member of the disk set was given")]
    NoMember,
    /// A stripe needs more members than there are.
    #[error(
        "{scheme} puts {} chunks on as many different members, and the disk set has {members}",
        scheme.members()
    )]
    Redundancy {
        /// What was asked for.
        scheme: Scheme,
        /// How many members there are.
        members: usize,
    },
    /// Two sources of one name.
    #[error("two sources are named `{name}`")]
    SameName {
        /// The name.
        name: Name,
    },
    /// Two members are one directory.
    #[error("{} is given twice", path.display())]
    SameMember {
        /// The directory.
        path: PathBuf,
    },
    /// Two directories of one identity.
    #[error("{} and {} are one member: {uuid}", first.display(), second.display())]
    SameIdentity {
        /// As given.
        first: PathBuf,
        /// As given.
        second: PathBuf,
        /// The identity of both.
        uuid: uuid::Uuid,
    },
    /// A core that threads cannot be kept on.
    #[error("core {cpu} is none that this process may run on; those are {allowed}")]
    Cpu {
        /// Asked for.
        cpu: usize,
        /// What the kernel allows.
        allowed: String,
    },
    /// Chunks that hold no block, or too many.
    #[error("chunk files of {chunk} cannot be: they are {least} to {most} here")]
    Chunk {
        /// Asked for.
        chunk: ByteSize,
        /// A block of the source.
        least: ByteSize,
        /// The largest that are allowed.
        most: ByteSize,
    },
    /// A time that has passed.
    #[error("the recording is to end at {until}, which has passed")]
    Past {
        /// The time asked for.
        until: Tai,
    },
    /// A member.
    #[error(transparent)]
    Member(#[from] MemberError),
    /// A scan of this name exists.
    #[error("{} exists: the scan {scan} has been recorded already", path.display())]
    ScanExists {
        /// The scan.
        scan: ScanName,
        /// What is there.
        path: PathBuf,
    },
    /// Not enough room on any member to begin.
    #[error("{}: {free} free, and {needed} are needed", path.display())]
    NoSpace {
        /// The roomiest member.
        path: PathBuf,
        /// What is free.
        free: ByteSize,
        /// What is needed at least.
        needed: ByteSize,
    },
    /// Not enough room on all members together for what is to be recorded.
    #[error("{}: {free} free in all, and {needed} are needed", listed(members))]
    NoRoom {
        /// The disk set.
        members: Vec<PathBuf>,
        /// What is free.
        free: ByteSize,
        /// What is needed, over all scans.
        needed: ByteSize,
    },
    /// A socket or its memory.
    #[error(transparent)]
    Port(#[from] PortError),
    /// More block memory than the machine has.
    #[error("{wanted} of block memory were asked for, and {available} are available")]
    Memory {
        /// Asked for.
        wanted: ByteSize,
        /// By the kernel's count.
        available: ByteSize,
    },
    /// The sum of what block memory is needed for is more than the machine has.
    #[error("the recording needs {sum}; {available} are available")]
    MemorySum {
        /// What is needed, and what for.
        sum: Sum,
        /// By the kernel's count.
        available: ByteSize,
    },
    /// Less block memory than the sources need.
    #[error(
        "{given} of block memory for {}; each needs {least} at least",
        counted(*sources as u64, "source")
    )]
    SmallBuffer {
        /// Asked for.
        given: ByteSize,
        /// How many sources.
        sources: usize,
        /// The least for each.
        least: ByteSize,
    },
    /// A PandA.
    #[error(transparent)]
    Panda(#[from] crate::panda::Error),
    /// A container.
    #[cfg(feature = "hdf5")]
    #[error("{}", crate::sink::hdf5::in_full(.0))]
    Container(crate::sink::hdf5::Error),
    /// A writer.
    #[error(transparent)]
    Writer(#[from] WriterError),
    /// Something that was to be recorded was not; what was is sealed.
    #[error("not everything was recorded: {why}")]
    Broken {
        /// What happened first.
        why: String,
    },
    /// It was left before all scans were sealed, because a member did not answer.
    #[error("{} not sealed: it was left while a member did not answer", in_a_row(scans))]
    Left {
        /// The scans.
        scans: Vec<ScanName>,
    },
    /// Every member of the disk set has failed.
    #[error("no member of the disk set takes data any more")]
    NoMemberLeft,
    /// A thread.
    #[error("starting a capture thread: {0}")]
    Thread(#[source] io::Error),
    /// The manifest of the new scan.
    #[error(transparent)]
    Manifest(#[from] store::lock::Error),
    /// Copies of the manifest, or directories.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

#[cfg(feature = "hdf5")]
impl From<crate::sink::hdf5::Error> for RecordError {
    fn from(error: crate::sink::hdf5::Error) -> Self {
        // With all its causes it is told in one line, so it is no cause itself.
        RecordError::Container(error)
    }
}

impl RecordError {
    /// What is wrong, without the path of the member that everybody sees beside it.
    pub(super) fn cause(&self) -> String {
        match self {
            RecordError::Member(error) => error.cause(),
            RecordError::File { source, .. } => source.to_string(),
            other => other.to_string(),
        }
    }

    /// Whether it lies in what was asked for, and so does not pass by itself.
    pub fn is_lasting(&self) -> bool {
        matches!(
            self,
            Self::NoSource
                | Self::NoMember
                | Self::Redundancy { .. }
                | Self::SameName { .. }
                | Self::SameMember { .. }
                | Self::Cpu { .. }
                | Self::Chunk { .. }
                | Self::SmallBuffer { .. }
        )
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            RecordError::NoSource => "give one, for example udp://0.0.0.0:46220?format=vdif".into(),
            RecordError::NoMember => "give a directory with --store".into(),
            RecordError::Redundancy { scheme, members } => {
                let data = members.saturating_sub(usize::from(scheme.parity));
                match data {
                    0 => "name more directories with --store, each on a disk of its own".into(),
                    data => format!(
                        "name more directories with --store, or take parity:{data}+{}",
                        scheme.parity
                    ),
                }
            }
            RecordError::SameName { .. } => "tell them apart with name=… in the endpoint".into(),
            RecordError::SameMember { .. } => "name each directory of the disk set once".into(),
            RecordError::SameIdentity { .. } => {
                "one directory mounted twice is given once; of a copied disk, remove \
                 .fullbore/member.json"
                    .into()
            }
            RecordError::Cpu { .. } => "`taskset -cp $$` shows them, and `lscpu -e` all".into(),
            RecordError::Chunk { .. } => {
                "smaller chunks need smaller blocks: block=64KiB in the source".into()
            }
            RecordError::Past { .. } => "give a time to come, in UTC".into(),
            RecordError::Member(error) => return error.hint(),
            RecordError::ScanExists { .. } => {
                "choose another --scan, or remove the old one with `fullbore rm`".into()
            }
            RecordError::NoSpace { .. } | RecordError::NoRoom { .. } => {
                "free some space (`fullbore ls` shows what is there), or record less".into()
            }
            RecordError::Port(PortError::Listen(error)) => match error.source.kind() {
                io::ErrorKind::AddrInUse => {
                    "another program listens there; `ss -ulnp` shows which".into()
                }
                io::ErrorKind::AddrNotAvailable => {
                    "no interface of this host has that address; `ip addr` lists them".into()
                }
                io::ErrorKind::PermissionDenied => {
                    "ports below 1024 need the right to bind them".into()
                }
                _ => return None,
            },
            RecordError::Memory { .. } | RecordError::Port(PortError::Memory { .. }) => {
                "ask for less with --buffer".into()
            }
            RecordError::MemorySum { .. } => {
                "ride out shorter stalls with --buffer, measure the stalls of these disks with \
                 `fullbore bench disk`, or record fewer sources"
                    .into()
            }
            RecordError::SmallBuffer { sources: 1, .. } => "give more with --buffer".into(),
            RecordError::SmallBuffer { .. } => "give more with --buffer, or fewer sources".into(),
            RecordError::Panda(error) => return error.hint().map(str::to_owned),
            #[cfg(feature = "hdf5")]
            RecordError::Container(error) => return error.hint().map(str::to_owned),
            RecordError::Writer(error) => error.hint().into(),
            RecordError::Left { .. } => {
                "once the member answers again, `fullbore recover --all` seals what was written"
                    .into()
            }
            _ => return None,
        })
    }
}

fn listed(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn in_a_row(scans: &[ScanName]) -> String {
    let names = scans.iter().map(ScanName::to_string).collect::<Vec<_>>().join(", ");
    names + if scans.len() == 1 { " is" } else { " are" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_source_is_told_in_the_singular() {
        let told = |sources| {
            let (given, least) = (ByteSize(1 << 20), ByteSize(8 << 20));
            let error = RecordError::SmallBuffer { given, sources, least };
            (error.to_string(), error.hint().unwrap())
        };
        let (one, hint) = told(1);
        assert!(one.contains("for 1 source;") && !hint.contains("fewer sources"), "{one}; {hint}");
        let (two, hint) = told(2);
        assert!(two.contains("for 2 sources;") && hint.contains("fewer sources"), "{two}; {hint}");
    }
}
