//! Events of a recording: one line of JSON each, or a screen.

use std::path::PathBuf;

use fullbore_core::account::{Account, Verdict};
use fullbore_core::affinity::Placement;
use fullbore_core::completeness::Completeness;
use fullbore_core::device::Span;
use fullbore_core::manifest::{Manifest, Pages};
use fullbore_core::memory_budget::MemoryBudget;
use fullbore_core::name::{Name, ScanName};
use fullbore_core::panda::SourceReport;
#[cfg(feature = "hdf5")]
use fullbore_hdf5 as hdf5;
use fullbore_linux::thread_config::ThreadStatus;
use fullbore_time::Tai;
use serde::Serialize;
use uuid::Uuid;

use crate::forward::ForwardCounts;
use crate::sink::device::DeviceResult;

/// A handler that is called with each event.
pub type EventHandler<'a> = dyn FnMut(&Event) + 'a;

/// An event of a recording.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// The size of block memory, before any of it is allocated.
    Memory(Memory),
    /// The recording is armed: memory is mapped and faulted in, and all sockets listen.
    Armed(Armed),
    /// The recording is armed and waits for the start time of its first scan. Sent several times a second.
    Awaiting {
        /// The scan.
        scan: ScanName,
        /// The start time.
        begins: Tai,
        /// Seconds until the start time, by the host's current clock.
        seconds: f64,
    },
    /// A planned scan whose end passed before it could begin. Nothing of it was recorded.
    Missed {
        /// The scan.
        scan: ScanName,
        /// The planned start time.
        start: Tai,
        /// The planned end time.
        end: Tai,
    },
    /// The first frames of a stream arrived.
    Opened {
        /// The scan.
        scan: ScanName,
        /// The stream.
        stream: Name,
        /// Bytes of a frame; 0 if the length varies.
        frame_bytes: u32,
        /// Frames per second of each thread, where known.
        frames_per_second: Option<u64>,
    },
    /// The state of the recording, several times a second.
    Progress(Progress),
    /// What has been sent on: once a second, and at the end.
    Forwarded {
        /// True at the end of the recording.
        over: bool,
        /// Each stream of each scan.
        streams: Vec<ForwardCounts>,
    },
    /// A warning. The recording continues.
    Warning {
        /// The text of the warning.
        text: String,
    },
    /// A note: the recorder did something, and all is well.
    Note {
        /// The text of the note.
        text: String,
    },
    /// A stream goes into another file, because the intended one cannot take it.
    Alternate {
        /// The scan.
        scan: ScanName,
        /// The stream.
        stream: Name,
        /// The intended file, which stays unchanged.
        meant: PathBuf,
        /// The file that takes it.
        file: PathBuf,
        /// The reason.
        why: String,
    },
    /// A scan is sealed.
    Sealed(Box<Sealed>),
    /// A scan is over, but no member accepted its manifest and accounts. This event carries them instead.
    Unsealed {
        /// The reason why the scan is not sealed.
        why: String,
        /// The manifest and accounts that could not be written.
        #[serde(flatten)]
        sealed: Box<Sealed>,
    },
    /// A report of a source with a connection, such as a PandA.
    #[serde(untagged)]
    Source(SourceReport),
}

/// The size of block memory, and the reason for it.
#[derive(Clone, Debug, Serialize)]
pub struct Memory {
    /// All block memory.
    pub bytes: u64,
    /// The share of sources that wait while no block is free: PandAs, patterns, files and pipes.
    pub of_waiting: u64,
    /// Memory beside it for the pieces of a circular recording.
    #[serde(skip_serializing_if = "is_zero")]
    pub pieces: u64,
    /// True if the operator requested this size.
    pub requested: bool,
    /// The longest stall that the memory covers, in milliseconds, if the rate is known beforehand.
    pub rides_out_ms: Option<u64>,
    /// The memory budget of the recording, if the rate is known beforehand.
    pub sum: Option<MemoryBudget>,
}

fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

/// The state of a recording when it is armed.
#[derive(Clone, Debug, Serialize)]
pub struct Armed {
    /// The first scan.
    pub scan: ScanName,
    /// The time of arming.
    pub at: Tai,
    /// The start time of the first scan, if it has one.
    pub begins: Option<Tai>,
    /// Each source with the receive buffer that the kernel granted, in bytes.
    pub sources: Vec<(String, usize)>,
    /// Bytes of block memory.
    pub pool_bytes: u64,
    /// True if all block memory is locked.
    pub locked: bool,
    /// The pages of the block memory, if the kernel reports them.
    pub pages: Option<Pages>,
    /// The planned thread placement with its reasons.
    pub placement: Placement,
    /// The affinity and priority of each thread, as the kernel reports them: capture threads, then writers.
    pub threads: Vec<ThreadStatus>,
    /// The disk set.
    pub members: Vec<MemberState>,
}

/// The state of a member.
#[derive(Clone, Debug, Serialize)]
pub struct MemberState {
    /// The directory.
    pub path: PathBuf,
    /// True if writes go through the page cache.
    pub buffered: bool,
    /// Bytes written.
    pub written_bytes: u64,
    /// Bytes per second since the last progress event.
    pub rate: u64,
    /// Bytes queued to it and not yet written.
    pub backlog_bytes: u64,
    /// Bytes free on it.
    pub free_bytes: u64,
    /// The longest time for writing a block, in nanoseconds.
    pub longest_write_ns: u64,
    /// The reason why it takes no more data.
    pub failure: Option<String>,
    /// The chunks that may be written, if it is a device without a file system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub span: Option<Span>,
}

/// The state of a stream.
#[derive(Clone, Debug, Serialize)]
pub struct StreamState {
    /// The name.
    pub name: Name,
    /// True if no packet of it has arrived.
    pub silent: bool,
    /// Frames received and indexed.
    pub frames: u64,
    /// Bytes of these frames.
    pub bytes: u64,
    /// Bytes per second since the last progress event.
    pub rate: u64,
    /// Frames missing.
    pub missing: u64,
    /// Frames that arrived when no block was free.
    pub overrun: u64,
    /// Frames that failed their check.
    pub damaged: u64,
    /// Frames that arrived too late.
    pub late: u64,
    /// Datagrams that are no frames.
    pub foreign: u64,
    /// Whole frames that were dropped as out-of-window.
    pub out_of_window: u64,
    /// Whole frames of the format that are in no recording.
    pub unrecorded: u64,
    /// Datagrams that the endpoint's filter excluded.
    pub excluded: u64,
    /// The most blocks in use at once, and the number of all blocks.
    pub high_water: (u64, u64),
    /// Blocks in use.
    pub used_blocks: u64,
    /// Bytes from the start of the stream that are durable. In a container, readers can see them.
    pub durable_bytes: u64,
    /// Seconds for which the sender had to wait because no block was free, if it can be made to wait.
    pub held_seconds: f64,
}

/// The phase of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Frames are recorded.
    Recording,
    /// It ends: held data is written, and scans are sealed.
    Stopping,
    /// It was aborted: held data is counted and dropped.
    Aborting,
}

/// The state of a recording.
#[derive(Clone, Debug, Serialize)]
pub struct Progress {
    /// Its phase.
    pub phase: Phase,
    /// The scan being recorded.
    pub scan: ScanName,
    /// Seconds since the scan began.
    pub seconds: f64,
    /// Bytes received in the scan.
    pub bytes: u64,
    /// Bytes of the scan that are durable.
    pub durable_bytes: u64,
    /// The streams.
    pub streams: Vec<StreamState>,
    /// The disk set.
    pub members: Vec<MemberState>,
    /// Bytes free on all members that take data. Members on one file system share its free space, which counts once.
    pub free_bytes: u64,
    /// Seconds until the limit of the scan, if it has one.
    pub seconds_left: Option<f64>,
    /// Seconds until the disk set is full at this rate, including redundancy.
    pub seconds_until_full: Option<f64>,
}

/// A finished scan.
#[derive(Clone, Debug, Serialize)]
pub struct Sealed {
    /// The manifest.
    pub manifest: Manifest,
    /// The account of each of its streams.
    pub accounts: Vec<Account>,
    /// The completeness of the scan.
    #[serde(flatten)]
    pub completeness: Completeness,
    /// The result on each device, if the scan went onto devices without a file system.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceResult>,
    /// The container files that the scan has gone into.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<SealedFile>,
    /// What each sink has of the scan, in the order of the sinks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sinks: Vec<SealedSink>,
}

impl Sealed {
    /// Builds the finished scan from its manifest and the accounts of its streams.
    pub fn of(manifest: Manifest, accounts: Vec<Account>) -> Self {
        let completeness = Completeness::of_accounts(&manifest, &accounts);
        let (devices, files, sinks) = (Vec::new(), Vec::new(), Vec::new());
        Self { manifest, accounts, completeness, devices, files, sinks }
    }
}

/// What one sink has of a finished scan.
#[derive(Clone, Debug, Serialize)]
pub struct SealedSink {
    /// Its targets: directories, a file, a device, or standard output.
    pub place: String,
    /// The identity of the scan in it. Each store has one of its own.
    pub uuid: Uuid,
    /// The completeness of what it has, in a line.
    pub headline: String,
    /// The least certain verdict of its streams.
    pub verdict: Option<Verdict>,
    /// Bytes of frames in it.
    pub bytes: u64,
    /// Frames that another sink has, and this one lacks.
    pub lacking: u64,
    /// The account of each stream in this sink, if it lacks frames that another one has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub accounts: Vec<Account>,
    /// The reason why it took no more data, or why the scan is not sealed in it.
    pub failure: Option<String>,
}

impl SealedSink {
    /// True if it has all frames that any sink has, and did not fail.
    pub fn is_whole(&self) -> bool {
        self.lacking == 0 && self.failure.is_none()
    }
}

/// A container file that a scan has gone into.
#[derive(Clone, Debug, Serialize)]
pub struct SealedFile {
    /// The stream; none for the file that shows all streams.
    pub stream: Option<Name>,
    /// The file.
    pub path: PathBuf,
    /// The reason of the end, as the file states it.
    pub reason: String,
    /// How it was written. Unknown for a file that accepted no more data.
    #[serde(flatten)]
    pub written: Option<WriteReport>,
}

/// How a container file was written.
#[derive(Clone, Debug, Serialize)]
pub struct WriteReport {
    /// Length of the file.
    pub file_bytes: u64,
    /// Flush times in microseconds: median, 99th percentile, maximum.
    pub flush_us: [u64; 3],
    /// Histogram of flush times: upper limit in microseconds (powers of two), number of flushes.
    pub flush_histogram: Vec<(u64, u64)>,
    /// The longest write of a piece of the file, in microseconds.
    pub longest_write_us: u64,
    /// True if data bypassed the page cache.
    pub past_page_cache: bool,
}

#[cfg(feature = "hdf5")]
impl SealedFile {
    /// A file that has ended well.
    pub(crate) fn of(stream: Name, report: &hdf5::Report, ending: &hdf5::Ending) -> Self {
        let at = |quantile| report.flushes.value_at_quantile(quantile);
        let written = WriteReport {
            file_bytes: report.file_bytes,
            flush_us: [at(0.5), at(0.99), report.flushes.max()],
            flush_histogram: report.flush_histogram(),
            longest_write_us: report.longest_write.as_micros() as u64,
            past_page_cache: report.direct,
        };
        let (path, reason) = (report.path.clone(), ending.reason.clone());
        Self { stream: Some(stream), path, reason, written: Some(written) }
    }

    /// A file that accepted no more data.
    pub(crate) fn cut_short(stream: Name, path: PathBuf, ending: &hdf5::Ending) -> Self {
        Self { stream: Some(stream), path, reason: ending.reason.clone(), written: None }
    }

    /// The file that shows all streams.
    pub(crate) fn of_master(path: PathBuf) -> Self {
        Self { stream: None, path, reason: String::new(), written: None }
    }
}
