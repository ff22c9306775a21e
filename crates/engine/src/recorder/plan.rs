//! What is to be recorded, from where, onto what, and for how long.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use fullbore_core::completeness::Planned;
use fullbore_core::demand::Stall;
use fullbore_core::endpoint::{Threads, UdpSource};
use fullbore_core::name::ScanName;
use fullbore_core::place::{Urgency, Wish};
use fullbore_core::redundancy::Scheme;
use fullbore_core::time::Tai;
use fullbore_core::units::ByteSize;
use fullbore_core::wall;
use uuid::Uuid;

/// What is to be recorded.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where frames come from.
    pub sources: Vec<UdpSource>,
    /// PandAs, alone or beside them: an acquisition of each is a scan.
    pub pandas: Vec<PandaPlan>,
    /// Directories of the disk set.
    pub members: Vec<PathBuf>,
    /// Names of the scans, one after the other without a pause.
    pub scans: Vec<ScanName>,
    /// When the first scan begins, if not at once: what comes before is thrown away.
    pub start: Option<Tai>,
    /// When each scan ends.
    pub limit: Limit,
    /// When the scan was to begin and to end, as far as that was said: what its streams do not cover of it is told, and
    /// speaks against it. Of several scans one after the other: when the first was to begin.
    pub planned: Planned,
    /// Block memory for all sources together.
    pub buffer: Option<ByteSize>,
    /// About how large chunk files are.
    pub chunk: Option<ByteSize>,
    /// Capture threads; by default as many as the machine carries.
    pub capture_threads: Option<usize>,
    /// Where capture threads and writers run.
    pub place: Wish,
    /// How urgently.
    pub priority: Urgency,
    /// How often data is made durable at least.
    pub sync_interval: Option<Duration>,
    /// What is to stand in for members that are lost.
    pub redundancy: Option<Scheme>,
    /// How long a member is known to stand still, if that was measured.
    pub stall: Option<Stall>,
    /// Beyond what the time in frames is warned about.
    pub clock: wall::Limits,
    /// With this, members that cannot be opened are left out as long as there is one, since nobody is there to be
    /// asked; and so are those that had this identity before and have another now, or none.
    pub goes_on_without: Option<BTreeMap<PathBuf, Uuid>>,
    /// Directories among the members that become new ones, though the store had others there before.
    pub new_members: Vec<PathBuf>,
}

/// A PandA that is to be recorded.
#[derive(Clone, Debug)]
pub struct PandaPlan {
    /// Which one.
    pub source: fullbore_core::format::panda::PandaSource,
    /// Arm it at the beginning, and after each acquisition.
    pub arm: bool,
    /// How long a connection that was lost is tried again.
    pub reconnect: Duration,
}

impl PandaPlan {
    /// Whether the recorder arms it.
    pub fn arms(&self) -> bool {
        self.source.arm.unwrap_or(self.arm)
    }
}

impl Plan {
    /// Capture threads of datagrams: never more than sources.
    pub fn threads(&self) -> usize {
        let sources = self.sources.len();
        self.capture_threads.unwrap_or_else(default_threads).clamp(sources.min(1), sources)
    }

    /// All capture threads: each PandA has one of its own.
    pub fn captures(&self) -> usize {
        self.threads() + self.pandas.len()
    }

    /// Places of the PandAs in the manifest: after the streams that are known beforehand.
    pub fn panda_numbers(&self) -> Range<u16> {
        let single = |source: &&UdpSource| source.threads != Threads::Split;
        let first = self.sources.iter().filter(single).count();
        first as u16..(first + self.pandas.len()) as u16
    }

    /// What each source gets of the block memory that was asked for.
    pub(super) fn share(&self) -> Option<u64> {
        let sources = self.sources.len() + self.pandas.len();
        self.buffer.map(|size| size.0 / sources.max(1) as u64)
    }

    /// How long all scans last together, where that is said.
    pub(super) fn lasts(&self, now: Tai) -> Option<Duration> {
        let scans = u32::try_from(self.scans.len()).unwrap_or(u32::MAX);
        let all = self.limit.duration.map(|duration| duration.saturating_mul(scans));
        let left = |until: Tai| Duration::from_nanos(until.since(now).max(0).unsigned_abs());
        [all, self.limit.until.map(left)].into_iter().flatten().min()
    }
}

/// When a scan ends by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    /// After this time from when it was armed.
    pub duration: Option<Duration>,
    /// After so many bytes received in all streams.
    pub bytes: Option<u64>,
    /// At this instant.
    pub until: Option<Tai>,
}

/// One capture thread serves many sockets; more pay on machines that have cores to spare.
fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| (cores.get() / 4).max(1))
}
