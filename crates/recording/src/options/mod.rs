//! The options of a recording, as a user gives them: on a command line, in a configuration file, in a request.
//!
//! ```text
//! command line ─┐
//!               ├─ or ──► RecordingOptions ── resolve ──► RecordingConfig ──► Recording::start
//! TOML, JSON  ──┘                        └─ Session ────► a RecordingConfig for each scan of a schedule
//! ```
//!
//! There is one struct for all of them (`docs/decisions/0021-options-are-one-struct.md`).
//! Everything in it is optional. [`RecordingOptions::or`] lays one set over another, and [`RecordingOptions::resolve`]
//! checks the result. An [`OptionError`] names the option that is to be changed.

mod circular;
mod clock;
mod error;
mod file;
mod layers;
pub mod packet_files;
mod resolve;
mod sample_files;
mod sources;
pub mod target;
mod tcp;
#[cfg(test)]
mod tests;
pub mod value;

use std::path::PathBuf;
use std::time::Duration;

use fullbore_core::affinity::{AffinityPolicy, SchedulingPolicy};
use fullbore_core::redundancy::Scheme;
use fullbore_core::retention::{Retention, RetentionRule};
use fullbore_core::units::ByteSize;
use fullbore_time::Tai;
use serde::Deserialize;

use crate::circular::InMemory;
pub use clock::{ClockDrift, ClockOffset};
pub use error::OptionError;
pub use file::{FileError, OptionsFile};
pub use sources::{sources_of, told_apart};

/// The options of a recording. In a file, the keys are the names of the fields with `-` in place of `_`.
///
/// Values are texts in the notation of the command line (`"40s"`, `"10GB"`). A number, and a date and time of TOML, count
/// as such a text. A list may be a single text.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct RecordingOptions {
    /// The endpoints of the sources, in the order of their streams. At least one is necessary.
    #[serde(deserialize_with = "value::list")]
    pub source: Vec<String>,
    /// Directories of the disk set, one on each disk. Default: none, unless the program has a default store (see
    /// [`store`](crate::store)).
    #[serde(deserialize_with = "value::commas")]
    pub store: Vec<PathBuf>,
    /// Targets beside a store, or in place of one: devices, containers, files, `-`, further stores. A block goes from
    /// one to the next. Default: none.
    #[serde(deserialize_with = "value::list")]
    pub to: Vec<String>,
    /// Destinations to which the streams are sent on while they are recorded, best effort. Stream n goes to the n-th
    /// port. Default: none.
    #[serde(deserialize_with = "value::list")]
    pub forward: Vec<String>,
    /// A socket at which other processes of this user see live spectra. It is made, in a directory that exists. Default:
    /// none.
    #[serde(deserialize_with = "value::one")]
    pub spectra: Option<PathBuf>,
    /// Devices whose data may be overwritten, each as its target names it. Default: none.
    #[serde(deserialize_with = "value::list")]
    pub overwrite: Vec<PathBuf>,
    /// For a device: read and discard the rest of the source after the last chunk, or after a stop. Default: false.
    pub flush: bool,
    /// Name of the session. Necessary for a store; default otherwise: `live`.
    #[serde(deserialize_with = "value::one")]
    pub session: Option<String>,
    /// Name of the scan. Necessary for a store; default otherwise: the name of the file.
    #[serde(deserialize_with = "value::one")]
    pub scan: Option<String>,
    /// A schedule, whose scans are recorded by a [`Session`](crate::Session). Default: none.
    #[serde(deserialize_with = "value::one")]
    pub schedule: Option<PathBuf>,
    /// For a VEX schedule: the station whose scans are recorded. Default: the only one.
    #[serde(deserialize_with = "value::one")]
    pub station: Option<String>,
    /// For a schedule: the time before its start at which a scan is armed. Default: 5 s.
    #[serde(deserialize_with = "value::duration")]
    pub lead: Option<Duration>,
    /// The number of scans that follow one another without a pause. Default: 1.
    #[serde(deserialize_with = "value::one")]
    pub scans: Option<u32>,
    /// The planned start, in UTC. Default: at once.
    #[serde(deserialize_with = "value::one")]
    pub start: Option<Tai>,
    /// The length of each scan. Default: until a stop.
    #[serde(deserialize_with = "value::duration")]
    pub duration: Option<Duration>,
    /// The bytes of all streams together after which a scan ends; of each device, for devices. Default: no limit.
    #[serde(deserialize_with = "value::one")]
    pub bytes: Option<ByteSize>,
    /// The planned end, in UTC. Default: none.
    #[serde(deserialize_with = "value::one")]
    pub until: Option<Tai>,
    /// Block memory of all sources together. Default: by the rate of the sources and the stalls of the disks.
    #[serde(deserialize_with = "value::one")]
    pub buffer: Option<ByteSize>,
    /// The size of chunk files of a store. Default: 256 MB.
    #[serde(deserialize_with = "value::one")]
    pub chunk: Option<ByteSize>,
    /// The number of capture threads that several sources share. Default: one for every four cores.
    #[serde(deserialize_with = "value::one")]
    pub capture_threads: Option<usize>,
    /// Cores to run on, first those of capture threads, then those of writers. Default: as `place` says.
    #[serde(deserialize_with = "value::commas")]
    pub cpus: Vec<usize>,
    /// Cores of capture threads and of writers: `auto`, `off`, or lists. Default: `auto`.
    #[serde(deserialize_with = "value::one")]
    pub place: Option<AffinityPolicy>,
    /// Priority of these threads: `auto`, `off`, or `fifo:N`. Default: `auto`.
    #[serde(deserialize_with = "value::one")]
    pub priority: Option<SchedulingPolicy>,
    /// The longest time until written data is durable, from 1 ms to 1 h. Default: 250 ms.
    #[serde(deserialize_with = "value::duration")]
    pub sync: Option<Duration>,
    /// For a PandA: arm it when all is ready, and again after each acquisition. Default: false.
    pub arm: bool,
    /// For a PandA: the time to retry a lost connection. Default: 30 s.
    #[serde(deserialize_with = "value::duration")]
    pub reconnect: Option<Duration>,
    /// The size or the age of the scans that a store keeps, and `,copied` to remove only scans that are proven elsewhere.
    /// Default: all scans stay.
    #[serde(deserialize_with = "value::one")]
    pub keep: Option<RetentionRule>,
    /// The time or the size of a circular recording: older data is removed while it goes on. Default: all data stays.
    #[serde(deserialize_with = "value::one")]
    pub circular: Option<Retention>,
    /// The place of the pieces of a circular recording: `ram:SIZE`. Default: the store.
    #[serde(deserialize_with = "value::one")]
    pub circular_in: Option<InMemory>,
    /// The sources of triggers of a circular recording: `udp://HOST:PORT`, `marker:`. A trigger set as a file always
    /// counts. Default: none.
    #[serde(deserialize_with = "value::list")]
    pub trigger: Vec<String>,
    /// Conditions on samples that trigger in a circular recording: `power(ch3) > -20 dB for 10 ms`. Default: none.
    #[serde(deserialize_with = "value::list")]
    pub trigger_on: Vec<String>,
    /// The time before a trigger that is kept, of sources of triggers that do not state it. Default: 10 s.
    #[serde(deserialize_with = "value::duration")]
    pub before: Option<Duration>,
    /// The time after a trigger that is kept, of sources of triggers that do not state it. Default: 5 s.
    #[serde(deserialize_with = "value::duration")]
    pub after: Option<Duration>,
    /// The time without a condition of `trigger_on` after which it can trigger again. Default: 1 s.
    #[serde(deserialize_with = "value::duration")]
    pub hold_off: Option<Duration>,
    /// The redundancy of a store: `mirror` or `parity:K+M`. Default: none.
    #[serde(deserialize_with = "value::one")]
    pub redundancy: Option<Scheme>,
    /// Directories of the store that become new members. Default: none.
    #[serde(deserialize_with = "value::commas")]
    pub new_member: Vec<PathBuf>,
    /// The offset of time stamps from the host's clock beyond which there is a warning, or `off`. Default: 100 ms.
    #[serde(deserialize_with = "value::one")]
    pub clock_offset: Option<ClockOffset>,
    /// The drift beyond which there is a warning, in parts per million, or `off`. Default: 100.
    #[serde(deserialize_with = "value::one")]
    pub clock_drift: Option<ClockDrift>,
}

impl RecordingOptions {
    /// The time before its start at which a scan of a schedule is armed.
    pub fn lead(&self) -> Duration {
        self.lead.unwrap_or(Duration::from_secs(5))
    }

    /// The time to retry a lost connection to a PandA.
    pub fn reconnect(&self) -> Duration {
        self.reconnect.unwrap_or(Duration::from_secs(30))
    }

    /// True if a PandA is a source.
    fn has_pandas(&self) -> bool {
        self.source.iter().any(|text| sources::is_panda(text))
    }
}
