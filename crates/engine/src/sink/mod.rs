//! Sinks: destinations of a recording.
//!
//! A sink has one *writer* (a thread) for each of its targets: a store has one for each member of its disk set, a file
//! or a device has one. Capture threads send blocks to writers through queues, and get them back. The recorder does
//! everything else, in the same way for every sink.
//!
//! ```text
//!                      ┌──────────────── recorder ───────────────┐
//!        Sink::plan_scan, ScanSink::claim … seal          WriterEvent: durable, failed, finished
//!                      ▼                                         │
//! capture thread ──WriterCommand──► queue ──► writer of target t ┘
//!                ◄──WriterReply─────
//! ```
//!
//! To add a sink, implement two traits:
//!
//! - [`Sink`] is opened before the recording is armed. It starts the writers and outlives all scans.
//! - [`ScanSink`] is the part of the sink for one scan, off the data path: [`claim`](ScanSink::claim) its names,
//!   [`begin`](ScanSink::begin), learn of streams, [`seal`](ScanSink::seal), or [`discard`](ScanSink::discard).
//!
//! A writer answers every [`WriterCommand::Write`](fullbore_linux::ring::WriterCommand) with one reply, and every
//! `Finish` with one [`WriterEvent::Finished`](fullbore_linux::ring::WriterEvent). It never blocks a capture thread.

#[cfg(feature = "hdf5")]
pub mod container;
pub mod device;
pub mod discard;
pub mod file;
pub mod sinks;
pub mod store;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use fullbore_capture::StreamMetrics;
use fullbore_core::account::Account;
use fullbore_core::device::Span;
use fullbore_core::endpoint::FileTarget;
use fullbore_core::manifest::{Manifest, State, Stream};
use fullbore_core::redundancy::Scheme;
use fullbore_linux::overlap::Range;
use fullbore_linux::ring::{FullBlock, Notifier, WriterEvent, WriterMetrics, WriterReply};
use fullbore_linux::sys::memory::Region;
use fullbore_linux::thread_config::ThreadConfig;
use fullbore_linux::writer_thread::WriterThread;
use fullbore_store::CaptureQueue;
use fullbore_store::partial_blocks::PartialBlockJournal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::error::RecordError;
use crate::event::{EventHandler, SealedFile};

pub use sinks::{ScanPart, ScanSinks, SinkReplies, Sinks};
pub use store::StoreConfig;
pub use store::metadata_writer::PendingReplies;

/// The destination of a recording.
#[derive(Clone, Debug)]
pub enum SinkConfig {
    /// Scans on a disk set.
    Store(StoreConfig),
    /// A container file, and with several streams one file beside it for each.
    #[cfg(feature = "hdf5")]
    Container(container::ContainerConfig),
    /// Nowhere: blocks are seen by taps alone.
    Discard,
    /// Drives without a file system, one for each stream.
    Device(device::DeviceConfig),
    /// A plain file, or standard output.
    File(file::FileConfig),
}

impl SinkConfig {
    /// The paths that the sink writes to, as far as they are known beforehand.
    pub(crate) fn places(&self) -> Vec<PathBuf> {
        match self {
            Self::Store(store) => store.members.clone(),
            #[cfg(feature = "hdf5")]
            Self::Container(container) => vec![container.template.clone()],
            Self::Discard => vec![PathBuf::from(discard::NOWHERE)],
            Self::Device(to) => to.devices.iter().map(|device| device.end.path.clone()).collect(),
            Self::File(file) => vec![match &file.target {
                FileTarget::Standard => PathBuf::from(file::STANDARD_OUTPUT),
                FileTarget::File { path, .. } => path.clone(),
            }],
        }
    }

    /// The store, if the recording goes into one.
    pub fn store(&self) -> Option<&StoreConfig> {
        match self {
            Self::Store(store) => Some(store),
            #[cfg(feature = "hdf5")]
            Self::Container(_) => None,
            Self::Discard => None,
            Self::Device(_) => None,
            Self::File(_) => None,
        }
    }
}

/// Opens a sink.
pub(crate) fn open(
    config: &SinkConfig,
    needs: &Needs,
    tell: &mut EventHandler<'_>,
) -> Result<Box<dyn Sink>, RecordError> {
    Ok(match config {
        SinkConfig::Store(config) => Box::new(store::StoreSink::open(config, needs, tell)?),
        #[cfg(feature = "hdf5")]
        SinkConfig::Container(config) => Box::new(container::ContainerSink::open(config, tell)?),
        SinkConfig::Discard => Box::new(discard::DiscardSink::new()),
        SinkConfig::Device(config) => Box::new(device::DeviceSink::open(config, needs, tell)?),
        SinkConfig::File(config) => Box::new(file::FileSink::open(config)?),
    })
}

/// The destination of one writer.
#[derive(Clone, Debug)]
pub struct Target {
    /// A directory, a file or a device.
    pub path: PathBuf,
    /// True if writes go through the page cache.
    pub buffered: bool,
    /// The file system, so that shared free space counts once.
    pub device: Option<u64>,
    /// The chunks that may be written, if it is a device without a file system.
    pub span: Option<Span>,
}

/// The demands of a recording on its sink, as known before it begins.
#[derive(Clone, Debug, Default)]
pub struct Needs {
    /// The number of streams, as far as known.
    pub streams: u64,
    /// The largest block of any source, in bytes.
    pub block_bytes: u64,
    /// The smallest of the largest blocks of each source of frames, in bytes.
    pub least_block_bytes: Option<u64>,
    /// Bytes per second of the sources whose rate is known.
    pub rate: u64,
    /// Bytes of all scans together, if they are limited.
    pub bytes: u64,
    /// The length of all scans together, if it is limited.
    pub lasts: Option<Duration>,
    /// Bytes of each stream, if they are limited.
    pub bytes_of_each: Option<u64>,
    /// The most bytes that each source gives, if known.
    pub source_bytes: Vec<Option<u64>>,
}

/// The writer's end of its queues and channels.
pub struct WriterLink {
    /// A pair of queues for each capture thread.
    pub queues: Vec<CaptureQueue>,
    /// The metrics.
    pub metrics: Arc<WriterMetrics>,
    /// The channel for its events.
    pub events: mpsc::Sender<WriterEvent>,
    /// The notifier that wakes it.
    pub notifier: Arc<Notifier>,
    /// The affinity and priority of its thread.
    pub thread_config: ThreadConfig,
    /// The longest time between two syncs of the data.
    pub sync_interval: Option<Duration>,
}

impl WriterLink {
    /// Starts the writer of a sink that has one target.
    pub(crate) fn spawn(
        self,
        name: &str,
        work: impl FnOnce(Self) + Send + 'static,
    ) -> Result<Vec<WriterThread>, RecordError> {
        let (notifier, config) = (self.notifier.clone(), self.thread_config.clone());
        let thread = WriterThread::spawn(name, notifier, config, move || work(self));
        Ok(vec![thread.map_err(RecordError::Thread)?])
    }

    /// True if no capture thread can send another command, and none waits.
    pub fn is_over(&self) -> bool {
        let over =
            |queue: &CaptureQueue| queue.commands.is_abandoned() && queue.commands.is_empty();
        self.queues.iter().all(over)
    }

    /// Sleeps until a command arrives, for at most this time.
    pub fn rest(&self, most: Duration) {
        self.notifier.about_to_sleep();
        self.sleep(most);
        self.notifier.awake();
    }

    /// Sleeps if no command waits. The thread has said that it is about to sleep.
    pub fn sleep(&self, most: Duration) {
        if self.queues.iter().all(|queue| queue.commands.is_empty()) {
            let most = Timespec { tv_sec: 0, tv_nsec: most.subsec_nanos().max(1_000_000).into() };
            // A failed wait is only shorter.
            let _ = poll(&mut [PollFd::new(&*self.notifier, PollFlags::IN)], Some(&most));
        }
    }

    /// Sends an event to the recorder.
    pub fn report(&self, event: WriterEvent) {
        // The recorder is gone; ignore the error.
        let _ = self.events.send(event);
    }

    /// Returns a block of a queue that was written.
    pub fn written(&mut self, queue: usize, filled: FullBlock) {
        let FullBlock { block, stream_ref, bytes, .. } = filled;
        self.metrics.written_bytes.fetch_add(bytes.into(), Relaxed);
        self.give_back(queue, bytes, WriterReply::Written { block, stream_ref, bytes });
    }

    /// Returns a block of a queue that cannot be written.
    pub fn refused(&mut self, queue: usize, filled: FullBlock) {
        self.give_back(queue, filled.bytes, WriterReply::Refused(filled));
    }

    fn give_back(&mut self, queue: usize, bytes: u32, reply: WriterReply) {
        self.metrics.backlog_bytes.fetch_sub(bytes.into(), Relaxed);
        // The return queue has room for all blocks. If the capture thread is gone, the memory is freed with the queue.
        let _ = self.queues[queue].returned.push(reply);
    }
}

/// An open sink: all steps that can fail before a recording have been tried.
pub trait Sink: Send {
    /// The targets of its writers, in their order.
    fn targets(&self) -> &[Target];

    /// Bytes of one file of a stream, if the sink cuts streams into files.
    fn chunk_bytes(&self) -> u64;

    /// True if the sink accepts one stream only, so that no other may be discovered.
    fn takes_one_stream(&self) -> bool {
        false
    }

    /// The size of a stream's blocks, if the sink needs one.
    fn block_bytes(&self, _stream: u16) -> Option<u32> {
        None
    }

    /// The number of blocks that suffice for a source that waits while none is free, if the sink knows it.
    fn blocks_of_waiting(&self, _stream: u16) -> Option<u64> {
        None
    }

    /// The most bytes of a stream that the sink has space for, if that is fixed.
    fn capacity(&self, _stream: u16) -> Option<u64> {
        None
    }

    /// True if a recording continues, and counts frames, when every writer has failed.
    fn outlives_its_writers(&self) -> bool {
        false
    }

    /// True if each stream goes only to the target with its number.
    fn gives_each_stream_a_target(&self) -> bool {
        false
    }

    /// True if a scan is kept in which no PandA began an acquisition, and which has no other stream.
    fn keeps_empty_scans(&self) -> bool {
        true
    }

    /// The age at which a partly filled block is sent. `None`: only the last block of a scan may be short.
    fn takes_short_blocks_after(&self) -> Option<Duration> {
        None
    }

    /// Refuses a source that reads what this sink writes.
    fn refuse_source(&self, _reads: &Range) -> Result<(), RecordError> {
        Ok(())
    }

    /// The redundancy scheme, for which capture threads distribute chunks over different members.
    fn redundancy(&self) -> Option<Scheme> {
        None
    }

    /// The journal of partial blocks.
    fn partial_blocks(&self) -> Option<PartialBlockJournal> {
        None
    }

    /// Does the last preparations before arming, such as removing files that are to be replaced.
    fn prepare(&mut self, _tell: &mut EventHandler<'_>) -> Result<(), RecordError> {
        Ok(())
    }

    /// Starts a writer for each target. Blocks come from `memory`, whose smallest pool has `pool_bytes`.
    fn start(
        &mut self,
        links: Vec<WriterLink>,
        memory: &[Arc<Region>],
        pool_bytes: u64,
    ) -> Result<Vec<WriterThread>, RecordError>;

    /// Plans a scan, and enters the targets into its manifest. `failures` holds the reason why a writer takes no data.
    fn plan_scan(&self, manifest: &mut Manifest, failures: &[Option<String>]) -> Box<dyn ScanSink>;

    /// Bytes free at a target, at the last check.
    fn free_bytes(&self, writer: usize) -> u64;

    /// Checks from time to time whether a failed writer can be used again for this many sources.
    fn watch(&self, _writer: usize, _sources: u64) {}

    /// True if a failed writer can be used again. The sink stops watching it then.
    fn take_back(&mut self, _writer: usize) -> bool {
        false
    }
}

/// The part of a sink that one scan uses, off the data path.
pub trait ScanSink: Send {
    /// Claims the scan's names at every target, with its manifest: directories, files.
    fn claim(&self, _manifest: &Manifest) -> PendingReplies {
        PendingReplies::none()
    }

    /// Begins the scan at the targets that have claimed it. Returns warnings.
    fn begin(
        &mut self,
        _manifest: &mut Manifest,
        _claimed: PendingReplies,
    ) -> Result<Vec<String>, RecordError> {
        Ok(Vec::new())
    }

    /// The first frames of a stream arrived.
    fn stream_opened(&mut self, _number: u16, _stream: &Stream, _metrics: &Arc<StreamMetrics>) {}

    /// The settings of a PandA are in the format of its stream, or will never be.
    fn stream_described(&mut self, _number: u16, _stream: &Stream) {}

    /// The streams have new properties, which would be lost in a crash.
    fn update(&mut self, _manifest: &Manifest) -> Result<(), RecordError> {
        Ok(())
    }

    /// A stream has durable blocks.
    fn durable(&mut self, _number: u16, _stream: &Stream, _writers: &[Arc<WriterMetrics>]) {}

    /// Blocks of a stream were written before a sync failed, and are no longer in memory.
    fn unsynced(
        &mut self,
        _writer: usize,
        _stream: u16,
        _blocks: Vec<fullbore_core::index::Block>,
    ) {
    }

    /// The source of a stream has given all of its bytes, or all that were requested.
    fn exhausted(&mut self, _number: u16) {}

    /// A limit of the recording has ended the scan.
    fn limit_reached(&mut self) {}

    /// The recording ends: the sink no longer waits for properties that may still become known.
    fn ending(&mut self) {}

    /// All writes have ended: corrects manifest and accounts by the data on disk. Returns warnings.
    fn settle(
        &mut self,
        _manifest: &mut Manifest,
        _accounts: &mut BTreeMap<u16, Account>,
    ) -> Vec<String> {
        Vec::new()
    }

    /// Writes accounts and manifest, which has this state from now on.
    fn seal(
        &mut self,
        manifest: &mut Manifest,
        accounts: &BTreeMap<u16, Account>,
        state: State,
    ) -> Result<(), RecordError>;

    /// Does the work after the seal, or gives the scan up if it could not be sealed. Returns warnings.
    fn finish(&mut self, _manifest: &mut Manifest, _sealed: bool) -> Vec<String> {
        Vec::new()
    }

    /// The result at each target, if targets have one besides the accounts of their streams.
    fn results(&mut self) -> Vec<device::DeviceResult> {
        Vec::new()
    }

    /// The files that the scan has gone into, if each is a container. Called once, after the seal.
    fn files(&mut self) -> Vec<SealedFile> {
        Vec::new()
    }

    /// Leaves the scan as it is, for `recover`.
    fn leave(&self) {}

    /// Removes everything made for a scan that does not begin.
    fn discard(&self) -> PendingReplies {
        PendingReplies::none()
    }
}

/// The file system of a path.
pub(crate) fn device_of(path: &Path) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).ok().map(|metadata| metadata.dev())
}

/// Bytes free on all targets together. Targets on one file system share its free space.
pub(crate) fn free_in_all(free: impl IntoIterator<Item = (Option<u64>, u64)>) -> u64 {
    let mut devices: BTreeMap<u64, u64> = BTreeMap::new();
    let mut alone = 0u64;
    for (device, bytes) in free {
        match device {
            Some(device) => {
                let most = devices.entry(device).or_default();
                *most = bytes.max(*most);
            }
            None => alone = alone.saturating_add(bytes),
        }
    }
    devices.into_values().fold(alone, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_on_one_file_system_share_its_room() {
        assert_eq!(free_in_all([(Some(1), 5), (Some(1), 5), (Some(2), 3), (None, 2)]), 10);
    }
}
