//! Errors: a recording could not be armed, or did not end well.

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;

use fullbore_capture::PortError;
use fullbore_core::completeness::counted;
use fullbore_core::hint::Hint;
use fullbore_core::memory_budget::MemoryBudget;
use fullbore_core::name::{Name, ScanName};
use fullbore_core::redundancy::Scheme;
use fullbore_core::units::ByteSize;
use fullbore_linux::place::PlaceError;
use fullbore_store::{self as store, MemberError, WriterError};
use fullbore_time::Tai;

use crate::forward::ForwardError;

/// An error of a recording.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// No source was given.
    #[error("no source was given")]
    NoSource,
    /// No sink was given.
    #[error("no sink was given")]
    NoSink,
    /// Two sinks write to one place.
    #[error("{} is given as two sinks of one recording", path.display())]
    SamePlace {
        /// The place, as given the second time.
        path: PathBuf,
    },
    /// No member was given.
    #[error("no member of the disk set was given")]
    NoMember,
    /// A stripe needs more members than the disk set has.
    #[error(
        "{scheme} puts {} chunks on different members; the disk set has only {members}",
        scheme.members()
    )]
    Redundancy {
        /// The requested scheme.
        scheme: Scheme,
        /// The number of members.
        members: usize,
    },
    /// Two sources have the same name.
    #[error("two sources are named `{name}`")]
    SameName {
        /// The name.
        name: Name,
    },
    /// Two sources are one sender, which can be recorded only once.
    #[error("{first} and {second} are one source")]
    SameSource {
        /// The first source, as given.
        first: String,
        /// The second source, as given.
        second: String,
    },
    /// Two sources would listen on the same port.
    #[error("port {port} is given twice: {first} and {second}")]
    SamePort {
        /// The port.
        port: u16,
        /// The first source, as given.
        first: String,
        /// The second source, as given.
        second: String,
    },
    /// The same directory is given twice.
    #[error("{} is given twice", path.display())]
    SameMember {
        /// The directory.
        path: PathBuf,
    },
    /// Two directories have the same member identity.
    #[error("{} and {} are one member: {uuid}", first.display(), second.display())]
    SameIdentity {
        /// The first directory, as given.
        first: PathBuf,
        /// The second directory, as given.
        second: PathBuf,
        /// The identity of both.
        uuid: uuid::Uuid,
    },
    /// Threads cannot be pinned to this core.
    #[error("core {cpu} is not available to this process; available: {allowed}")]
    Cpu {
        /// The requested core.
        cpu: usize,
        /// The cores that the kernel allows.
        allowed: String,
    },
    /// A chunk file would hold no block, or is too large.
    #[error("chunk size {chunk} is out of range ({least} to {most})")]
    Chunk {
        /// The requested chunk size.
        chunk: ByteSize,
        /// The size of a block of the source.
        least: ByteSize,
        /// The largest chunk size.
        most: ByteSize,
    },
    /// The requested end has passed.
    #[error("the end of the recording, {until}, has passed")]
    Past {
        /// The requested end.
        until: Tai,
    },
    /// A member cannot be used.
    #[error(transparent)]
    Member(#[from] MemberError),
    /// A scan of this name exists already.
    #[error(
        "{} exists: scan {scan} {}",
        path.display(),
        if *recording { "is being recorded right now" } else { "was recorded before" }
    )]
    ScanExists {
        /// The scan.
        scan: ScanName,
        /// The path that exists.
        path: PathBuf,
        /// True if a running recorder holds its lock.
        recording: bool,
    },
    /// No member has enough free space to begin.
    #[error("{}: {free} free, {needed} needed", path.display())]
    NoSpace {
        /// The member with the most free space.
        path: PathBuf,
        /// The free space.
        free: ByteSize,
        /// The least free space needed.
        needed: ByteSize,
    },
    /// All members together lack the space for the recording.
    #[error("{}: {free} free in all, {needed} needed", listed(members))]
    NoRoom {
        /// The disk set.
        members: Vec<PathBuf>,
        /// The free space of all members.
        free: ByteSize,
        /// The space needed, over all scans.
        needed: ByteSize,
    },
    /// A socket, or its memory, cannot be set up.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The requested block memory exceeds the machine's available memory.
    #[error("{wanted} of block memory requested, {available} available")]
    Memory {
        /// The requested block memory.
        wanted: ByteSize,
        /// The available memory, as the kernel reports it.
        available: ByteSize,
    },
    /// The memory budget of the recording exceeds the machine's available memory.
    #[error("the recording needs {sum}; {available} are available")]
    MemorySum {
        /// The memory budget with its items.
        sum: Box<MemoryBudget>,
        /// The available memory, as the kernel reports it.
        available: ByteSize,
    },
    /// The sources need more block memory than was given.
    #[error(
        "{given} of block memory for {}; each needs {least} at least",
        counted(*sources as u64, "source")
    )]
    SmallBuffer {
        /// The given block memory.
        given: ByteSize,
        /// The number of sources.
        sources: usize,
        /// The least block memory for each source.
        least: ByteSize,
    },
    /// No file can be made at the target.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The target file exists.
    #[error("{} exists", path.display())]
    FileExists {
        /// The file.
        path: PathBuf,
    },
    /// The target is a block device.
    #[error("{} is a block device, and not a plain file", path.display())]
    NotPlain {
        /// The device.
        path: PathBuf,
    },
    /// Standard output is a terminal.
    #[error("standard output is a terminal, which takes no data")]
    Terminal,
    /// The sink takes the bytes of one stream only.
    #[error("a plain file takes one stream, and there are {sources} sources")]
    OneStream {
        /// The number of sources.
        sources: usize,
    },
    /// A device that is read failed.
    #[error(transparent)]
    Device(Box<fullbore_device::Error>),
    /// The source would be overwritten.
    #[error("{} is the source, and recording into it would overwrite it", path.display())]
    Overwritten {
        /// The target.
        path: PathBuf,
    },
    /// A PandA failed.
    #[error(transparent)]
    Panda(#[from] fullbore_panda::Error),
    /// A camera failed.
    #[error(transparent)]
    Camera(Box<fullbore_gige::CameraError>),
    /// A container failed.
    #[cfg(feature = "hdf5")]
    #[error("{0}")]
    Container(std::sync::Arc<crate::sink::container::ContainerError>),
    /// A writer failed.
    #[error(transparent)]
    Writer(#[from] WriterError),
    /// A part of the recording is missing. The recorded data is sealed.
    #[error("not everything was recorded: {why}")]
    Broken {
        /// The first failure.
        why: String,
    },
    /// The recorder ended before all scans were sealed, because a member did not respond.
    #[error("{} not sealed: the recorder exited while a member did not respond", in_a_row(scans))]
    Left {
        /// The scans that are not sealed.
        scans: Vec<ScanName>,
    },
    /// Every member of the disk set has failed.
    #[error("every member of the disk set has failed")]
    NoMemberLeft,
    /// A capture thread could not start.
    #[error("starting a capture thread: {0}")]
    Thread(#[source] io::Error),
    /// Frames cannot be sent on to a destination.
    #[error(transparent)]
    Forward(#[from] ForwardError),
    /// The manifest of the new scan could not be locked or written.
    #[error(transparent)]
    Manifest(#[from] store::lock::Error),
    /// A server did not take the connection.
    #[error("connecting to {server}: {source}")]
    Connect {
        /// The server, as `host:port`.
        server: String,
        /// The cause.
        source: io::Error,
    },
    /// A copy of the manifest, or a directory, could not be written.
    #[error("{}: {source}", path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

impl From<fullbore_gige::CameraError> for RecordError {
    fn from(error: fullbore_gige::CameraError) -> Self {
        RecordError::Camera(Box::new(error))
    }
}

impl From<fullbore_device::Error> for RecordError {
    fn from(error: fullbore_device::Error) -> Self {
        RecordError::Device(Box::new(error))
    }
}

#[cfg(feature = "hdf5")]
impl From<fullbore_hdf5::Error> for RecordError {
    fn from(error: fullbore_hdf5::Error) -> Self {
        crate::sink::container::ContainerError::from(error).into()
    }
}

impl RecordError {
    /// Returns the cause without the member's path, for output that names the member already.
    pub(crate) fn cause(&self) -> String {
        match self {
            RecordError::Member(error) => error.cause(),
            RecordError::File { source, .. } => source.to_string(),
            other => other.to_string(),
        }
    }

    /// True if the error lies in the configuration and does not pass by itself.
    pub fn is_lasting(&self) -> bool {
        matches!(
            self,
            Self::NoSource
                | Self::NoSink
                | Self::SamePlace { .. }
                | Self::NoMember
                | Self::Redundancy { .. }
                | Self::SameName { .. }
                | Self::SameSource { .. }
                | Self::SamePort { .. }
                | Self::SameMember { .. }
                | Self::Cpu { .. }
                | Self::Chunk { .. }
                | Self::SmallBuffer { .. }
        )
    }
}

impl Hint for RecordError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            RecordError::NoSource => "give one, for example udp://0.0.0.0:46220?format=vdif",
            RecordError::NoSink => "give a directory with --store, or a file with --to",
            RecordError::SamePlace { .. } => {
                "give each place once: a second copy goes to another file, disk or directory"
            }
            RecordError::NoMember => "give a directory with --store",
            RecordError::Redundancy { scheme, members } => {
                match members.saturating_sub(usize::from(scheme.parity)) {
                    0 => "name more directories with --store, each on a disk of its own",
                    data => {
                        return Some(Cow::Owned(format!(
                            "name more directories with --store, or take parity:{data}+{}",
                            scheme.parity
                        )));
                    }
                }
            }
            RecordError::SameName { .. } => "tell them apart with name=… in the endpoint",
            RecordError::SameSource { .. } => {
                "give each source once; it can be one stream of a recording"
            }
            RecordError::SamePort { .. } => {
                "give each port once: all streams that come to it are recorded"
            }
            RecordError::SameMember { .. } => "name each directory of the disk set once",
            RecordError::SameIdentity { .. } => {
                "one directory mounted twice is given once; of a copied disk, remove \
                 .fullbore/member.json"
            }
            RecordError::Cpu { .. } => "`taskset -cp $$` shows them, and `lscpu -e` all",
            RecordError::Chunk { .. } => {
                "smaller chunks need smaller blocks: block=64KiB in the source"
            }
            RecordError::Past { .. } => "give a future time, in UTC",
            RecordError::Member(error) => return error.hint(),
            RecordError::Forward(error) => return error.hint(),
            RecordError::ScanExists { recording: true, .. } => {
                "choose another --scan, or stop that recording first"
            }
            RecordError::ScanExists { .. } => {
                "choose another --scan; `fullbore ls` shows the state of this one, and `fullbore rm` removes a \
                 finished one"
            }
            RecordError::NoSpace { .. } | RecordError::NoRoom { .. } => {
                "free some space (`fullbore ls` shows what is there), or record less"
            }
            RecordError::Port(PortError::Listen(error)) => match error.source.kind() {
                io::ErrorKind::AddrInUse => "another program listens there; `ss -ulnp` shows which",
                io::ErrorKind::AddrNotAvailable => {
                    "no interface of this host has that address; `ip addr` lists them"
                }
                io::ErrorKind::PermissionDenied => "ports below 1024 need the right to bind them",
                _ => return None,
            },
            RecordError::Port(PortError::Ring(error)) => return error.hint(),
            RecordError::Port(PortError::Xdp(error)) => return error.hint(),
            RecordError::Memory { .. } | RecordError::Port(PortError::Memory { .. }) => {
                "ask for less with --buffer"
            }
            RecordError::MemorySum { .. } => {
                "ride out shorter stalls with --buffer, measure the stalls of these disks with \
                 `fullbore bench disk`, or record fewer sources"
            }
            RecordError::SmallBuffer { sources: 1, .. } => "give more with --buffer",
            RecordError::SmallBuffer { .. } => "give more with --buffer, or fewer sources",
            RecordError::Device(error) => return error.hint(),
            RecordError::Place(error) => return error.hint(),
            RecordError::FileExists { .. } => {
                "give ?existing=overwrite to replace it, or ?existing=append to continue it"
            }
            RecordError::NotPlain { .. } => "record with --to device:PATH",
            RecordError::Terminal => "send it into a pipe or a file, or record with --to file:PATH",
            RecordError::OneStream { .. } => {
                "record one source at a time, or all of them into a store"
            }
            RecordError::Overwritten { .. } => "record into another file",
            RecordError::Panda(error) => return error.hint(),
            RecordError::Camera(error) => return error.hint(),
            #[cfg(feature = "hdf5")]
            RecordError::Container(error) => return error.hint(),
            RecordError::Writer(error) => return error.hint(),
            RecordError::Left { .. } => {
                "once the member answers again, `fullbore recover --all` seals what was written"
            }
            _ => return None,
        }))
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
