//! The configuration of a recording: sources, members, scans, limits and thread placement.

use std::path::PathBuf;
use std::time::Duration;

use fullbore_core::affinity::{AffinityPolicy, SchedulingPolicy};
use fullbore_core::clock_check;
use fullbore_core::completeness::Planned;
use fullbore_core::endpoint::Engine;
use fullbore_core::manifest::HostFinding;
use fullbore_core::name::ScanName;
use fullbore_core::units::ByteSize;
use fullbore_linux::ring::Taps;
use fullbore_time::Tai;

use crate::forward::ForwardTarget;
use crate::sink::{SinkConfig, StoreConfig};
use crate::source::{Ending, SourceConfig};

/// The configuration of a recording.
#[derive(Clone, Debug)]
pub struct RecordingConfig {
    /// The sources, in the order of their streams in the manifest.
    pub sources: Vec<SourceConfig>,
    /// The destinations of the recording: at least one. A block goes from one to the next, in this order.
    pub sinks: Vec<SinkConfig>,
    /// Names of the scans, which follow one another without a pause.
    pub scans: Vec<ScanName>,
    /// The number of scans after the listed ones, which have the name of the last one and a number; [`u64::MAX`]: until
    /// a stop.
    pub further_scans: u64,
    /// The start of the first scan; none: at once. Earlier packets are dropped.
    pub start: Option<Tai>,
    /// The end of each scan.
    pub limit: Limit,
    /// The planned begin and end of the scan, where given. A part that the streams do not cover is reported and makes
    /// the scan incomplete. In a series of scans, the begin is that of the first.
    pub planned: Planned,
    /// The time from the end of the recording until the next one of its session is armed: what waits for the disks is
    /// written in it. None: no recording follows.
    pub pause: Option<Duration>,
    /// Block memory for all sources together.
    pub buffer: Option<ByteSize>,
    /// Bytes of memory for the pieces of a circular recording, beside the block memory. Default: 0, they are on disks.
    pub pieces_in_memory: u64,
    /// The number of capture threads; by default as many as suit the machine.
    pub capture_threads: Option<usize>,
    /// The affinity policy of capture threads and writers.
    pub place: AffinityPolicy,
    /// The scheduling policy of these threads.
    pub priority: SchedulingPolicy,
    /// The longest time between two syncs of the data.
    pub sync_interval: Option<Duration>,
    /// Readers of the newest written blocks. A program keeps a clone, and opens taps whenever it wants.
    pub taps: Taps,
    /// Destinations to which the streams are sent on while they are recorded. Default: none.
    pub forward: Vec<ForwardTarget>,
    /// The socket at which other processes see live spectra. Default: none.
    pub spectra: Option<PathBuf>,
    /// The settings of the host that can cost frames, for the manifests. Default: none, because nobody looked.
    pub findings: Vec<HostFinding>,
    /// Clock limits: warn when frame timestamps deviate from the host clock by more than this.
    pub clock: clock_check::ClockLimits,
}

impl RecordingConfig {
    /// A recording with all defaults: it begins at once and ends when it is stopped.
    pub fn new(
        sources: impl IntoIterator<Item = impl Into<SourceConfig>>,
        sink: SinkConfig,
        scans: Vec<ScanName>,
    ) -> Self {
        Self {
            sources: sources.into_iter().map(Into::into).collect(),
            sinks: vec![sink],
            scans,
            further_scans: 0,
            start: None,
            limit: Limit::default(),
            planned: Planned::default(),
            pause: None,
            buffer: None,
            pieces_in_memory: 0,
            capture_threads: None,
            place: AffinityPolicy::Auto,
            priority: SchedulingPolicy::Auto,
            sync_interval: None,
            taps: Taps::default(),
            forward: Vec::new(),
            spectra: None,
            findings: Vec::new(),
            clock: clock_check::ClockLimits::default(),
        }
    }

    /// The same recording, with one more sink.
    pub fn with_sink(mut self, sink: SinkConfig) -> Self {
        self.sinks.push(sink);
        self
    }

    /// The first store that the recording goes into, if any.
    pub fn store(&self) -> Option<&StoreConfig> {
        self.sinks.iter().find_map(SinkConfig::store)
    }

    /// Directories of the disk set, if the recording goes into a store.
    pub fn members(&self) -> &[PathBuf] {
        self.store().map_or(&[], |store| &store.members)
    }

    /// The number of scans; `None`: until a stop.
    pub fn scan_count(&self) -> Option<u64> {
        (self.scans.len() as u64).checked_add(self.further_scans)
    }

    /// The name of a scan, counted from 0.
    pub(super) fn scan_name(&self, index: usize) -> Option<ScanName> {
        let further = || {
            let last = self.scans.last()?;
            let scan = format!("{}-{}", last.scan, index + 1).parse().ok()?;
            Some(ScanName { session: last.session.clone(), scan })
        };
        let within = self.scan_count().is_none_or(|count| (index as u64) < count);
        self.scans.get(index).cloned().or_else(|| further().filter(|_| within))
    }

    /// The number of capture threads that several sources share: at most the number of these sources. Sources with XDP
    /// share one: a queue of an interface has one socket.
    pub fn shared_threads(&self) -> usize {
        let sources = self.sources.iter().filter(|source| source.shares_thread()).count();
        let by_xdp =
            |it: &SourceConfig| matches!(it, SourceConfig::Udp(it) if it.engine == Engine::Xdp);
        if self.sources.iter().any(by_xdp) {
            return 1;
        }
        self.capture_threads.unwrap_or_else(default_threads).clamp(sources.min(1), sources)
    }

    /// The number of all capture threads: each source that shares none has one of its own.
    pub fn captures(&self) -> usize {
        let alone = self.sources.iter().filter(|source| !source.shares_thread()).count();
        self.shared_threads() + alone
    }

    /// The place of each source's stream in the manifest, if the stream is known. Streams that are named as they appear
    /// follow.
    pub fn numbers(&self) -> Vec<Option<u16>> {
        let mut next = 0..;
        let mut number = |source: &SourceConfig| source.is_known().then(|| next.next()).flatten();
        self.sources.iter().map(&mut number).collect()
    }

    /// True if a source ends scans itself, so that no limit may cut them.
    pub fn has_acquisitions(&self) -> bool {
        self.acquisitions() > 0
    }

    /// The number of sources that end scans themselves.
    pub(super) fn acquisitions(&self) -> usize {
        self.sources.iter().filter(|source| source.ending() == Ending::Acquisition).count()
    }

    /// The share of each source in the requested block memory.
    pub(super) fn share(&self) -> Option<u64> {
        self.buffer.map(|size| size.0 / self.sources.len().max(1) as u64)
    }

    /// The length of all scans together, if it is limited.
    pub(super) fn lasts(&self, now: Tai) -> Option<Duration> {
        let scans = u32::try_from(self.scans.len()).unwrap_or(u32::MAX);
        let all = self.limit.duration.map(|duration| duration.saturating_mul(scans));
        let left = |until: Tai| Duration::from_nanos(until.since(now).max(0).unsigned_abs());
        [all, self.limit.until.map(left)].into_iter().flatten().min()
    }
}

/// The limits of a scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    /// A time since arming.
    pub duration: Option<Duration>,
    /// A number of bytes received in all streams.
    pub bytes: Option<u64>,
    /// An instant.
    pub until: Option<Tai>,
}

impl Limit {
    /// The share of each of several streams in the number of bytes.
    pub(super) fn bytes_of_each(&self, streams: usize) -> Option<u64> {
        self.bytes.map(|bytes| bytes / streams.max(1) as u64)
    }
}

/// The default number of capture threads. One thread serves many sockets; more help on machines with cores to spare.
fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| (cores.get() / 4).max(1))
}
