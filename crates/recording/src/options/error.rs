//! The reason why options cannot be recorded with.

use std::borrow::Cow;
use std::path::PathBuf;
use std::time::Duration;

use fullbore_containers::SampleError;
use fullbore_core::hint::Hint;
use fullbore_core::name::{self, Name};
use fullbore_core::{endpoint, name::ScanName};
use fullbore_time::Tai;

/// An option that is missing, invalid, or without an effect. The text names it as the command line does.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    /// Necessary options are missing.
    #[error("necessary and not given: {}", options.join(", "))]
    Missing {
        /// The options, with the kind of their values.
        options: Vec<&'static str>,
    },
    /// No store is given, and no other target.
    #[error(
        "no store is given, and no other target\n  give directories with --store, or a target with --to"
    )]
    NoStore,
    /// Two options exclude one another.
    #[error("{option} cannot be used with {with}")]
    Conflict {
        /// The option.
        option: &'static str,
        /// The option that excludes it.
        with: &'static str,
    },
    /// A store among the targets has no directory.
    #[error("{text}: give a directory, for example store:/data")]
    NoMember {
        /// The target, as given.
        text: String,
    },
    /// The target does not support the option.
    #[error("{option} cannot be used with {target} as --to")]
    OfOtherTarget {
        /// The option.
        option: &'static str,
        /// The kind of the target.
        target: &'static str,
    },
    /// The option would have no effect.
    #[error("{option}: {why}")]
    Idle {
        /// The option.
        option: &'static str,
        /// The reason.
        why: &'static str,
    },
    /// The value is zero.
    #[error("{option} is zero{}", why.map(|why| format!(": {why}")).unwrap_or_default())]
    Zero {
        /// The option.
        option: &'static str,
        /// The effect.
        why: Option<&'static str>,
    },
    /// The name is invalid.
    #[error("{option}: {source}")]
    Name {
        /// The option.
        option: &'static str,
        /// The reason.
        source: name::Error,
    },
    /// An endpoint is invalid.
    #[error("{text}: {source}")]
    Endpoint {
        /// The endpoint, as given.
        text: String,
        /// The reason.
        source: endpoint::Error,
    },
    /// The container is not one that can be written.
    #[error(transparent)]
    Container(endpoint::Error),
    /// A stream has no samples that the file can hold.
    #[error("--to {text}: stream {stream}: {source}")]
    Samples {
        /// The target, as given.
        text: String,
        /// The stream.
        stream: Name,
        /// The reason.
        source: SampleError,
    },
    /// Containers are left out of this build.
    #[error("--to: this program was built without HDF5")]
    WithoutHdf5,
    /// Syncs would never end, or never come.
    #[error("--sync {} cannot be: it is 1ms to 1h", humantime::format_duration(*sync))]
    Sync {
        /// The value.
        sync: Duration,
    },
    /// A series has too many scans.
    #[error("--scans {scans} are more than {most}")]
    TooManyScans {
        /// The value.
        scans: u32,
        /// The largest value.
        most: u32,
    },
    /// Nothing ends the scans of a series.
    #[error("--scans needs --duration or --bytes, to know where a scan ends")]
    EndlessScans,
    /// The end of the recording would cut a series.
    #[error("--until ends all scans: use --duration with --scans")]
    UntilOfSeries,
    /// The scans of a series are too short.
    #[error(
        "--duration {} is too short for scans one after the other: each lasts 400ms at least",
        humantime::format_duration(*duration)
    )]
    ShortScans {
        /// The value.
        duration: Duration,
    },
    /// The target takes one scan.
    #[error("--scans {scans}: {target}\n  record several into a store, and convert each")]
    OneScan {
        /// The value.
        scans: u32,
        /// The target, in a sentence.
        target: &'static str,
    },
    /// A device takes one scan.
    #[error("--scans is for a store: a device takes one scan at a time")]
    OneScanOfDevice,
    /// A start time was given for a PandA.
    #[error("--start: a PandA's acquisitions begin when it is armed")]
    StartOfPanda,
    /// The start is past.
    #[error("--start {start:.1} is past")]
    PastStart {
        /// The value.
        start: Tai,
    },
    /// The end is not after the start.
    #[error("--until is before --start: there would be nothing to record")]
    UntilBeforeStart,
    /// Sources have no rest that could be discarded.
    #[error("--flush: datagrams have no rest that could be read")]
    NothingToFlush,
    /// A device that may be overwritten is no target.
    #[error("--overwrite {}: no --to names it", path.display())]
    NotOverwritten {
        /// The value.
        path: PathBuf,
    },
    /// A directory that becomes a new member is no member.
    #[error("--new-member {} is not a member in --store", path.display())]
    NotAMember {
        /// The value.
        path: PathBuf,
    },
    /// The name of a scan on a device has two parts.
    #[error("--session and --scan go together: they name the scan on the device")]
    HalfAName,
    /// The options name another scan than the endpoint of the device.
    #[error("--session and --scan say {given}, and the endpoint another scan")]
    TwoNames {
        /// The scan in the options.
        given: ScanName,
    },
    /// The directories of the store cannot be used.
    #[error(transparent)]
    Store(#[from] crate::store::StoreError),
    /// A source of triggers cannot be used.
    #[error("--trigger: {0}")]
    Trigger(#[source] crate::circular::SourceError),
    /// A condition on samples cannot be used.
    #[error("--trigger-on: {0}")]
    TriggerOn(#[source] crate::circular::SourceError),
    /// A trigger would keep more than the recording holds.
    #[error(
        "`{text}` keeps more before a trigger than --circular {} holds",
        humantime::format_duration(*length)
    )]
    TriggerBeforeBegin {
        /// The source.
        text: String,
        /// The length of the recording.
        length: Duration,
    },
    /// The pieces of a circular recording cannot be in memory.
    #[error("--circular-in: {0}")]
    Memory(#[source] crate::circular::MemoryError),
    /// A member of the store cannot be used.
    #[error(transparent)]
    Member(#[from] fullbore_store::MemberError),
    /// The thread that removes old scans cannot start.
    #[error("starting the retention thread: {0}")]
    Retention(#[source] std::io::Error),
    /// A schedule is not a single recording.
    #[error("--schedule: its scans are recorded by a session")]
    Schedule,
    /// A PandA cannot be recorded by a schedule.
    #[error("a PandA's acquisitions begin when it is armed, and not by a schedule")]
    ScheduleOfPanda,
}

impl Hint for OptionError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Endpoint { source, .. } | Self::Container(source) => source.hint(),
            Self::Samples { source, .. } => source.hint(),
            Self::Store(error) => error.hint(),
            Self::Memory(error) => error.hint(),
            Self::Trigger(error) | Self::TriggerOn(error) => error.hint(),
            _ => None,
        }
    }
}
