//! Sources: where the frames of a recording come from.
//!
//! A source has a *capture thread*, which fills blocks and sends them to the writers of the sink. One thread may serve
//! several sources, as it does for UDP ports. The recorder does everything else, in the same way for every source.
//!
//! ```text
//!  Source (facts) ──open──► OpenSource (memory, sockets) ──start──► capture thread
//!
//!      supervisor ──CaptureCommand: Begin(scan), Stop, Abort──► capture thread ──WriterCommand──► writers
//!                 ◄─CaptureEvent: Opened, Ended, Closed, Done──                ◄──WriterReply────
//! ```
//!
//! To add a source, implement two traits and add an arm to [`SourceConfig`]:
//!
//! - [`Source`] is what the recorder knows before it opens anything: name, streams, rate, memory, how it ends.
//! - `OpenSource` is the source with its memory and connections, as one capture thread serves it.
//!
//! The thread obeys [`CaptureCommand`](fullbore_capture::CaptureCommand)s and answers with [`CaptureEvent`]s:
//!
//! | command | the thread |
//! |---|---|
//! | `Begin(scan)` | opens its streams in this scan (`Opened`); ends those of the scan before (`Ended`, or `Silent` if nothing came, then `Closed`) |
//! | `Stop` | reads what has arrived, sends its last blocks, sends `Ended` and `Closed`, and ends |
//! | `Abort` | sends no more blocks, counts those it holds as overrun, sends `Ended` and `Closed`, and ends |
//!
//! - A stream has `Ended` only after each of its blocks is written or dropped, because the event carries its account.
//! - A source whose bytes are over sends `Exhausted`, and waits for the next command.
//! - The last event is `Done`, however the thread ends.
//!
//! The smallest example is [`bytes`]: a pattern, a file or a pipe. Its thread is a loop of five lines:
//!
//! ```text
//! while !self.is_over() {
//!     self.obey();             // Begin, Stop, Abort
//!     self.take_replies();     // blocks that the writers return
//!     let moved = self.fill(); // bytes into the block, the full block to a writer
//!     self.settle();           // Ended, once no block of a scan is with a writer
//!     if !moved { wait }
//! }
//! ```
//!
//! [`udp`] shows a thread with several sources, [`waiting`] the same ports fed from a file or a
//! connection, [`camera`] such a port whose sender is controlled, [`panda`] a source that ends scans itself.

pub mod bytes;
pub mod camera;
pub mod packet_file;
pub mod panda;
mod receive_engine;
pub mod udp;
pub mod waiting;

use std::any::Any;
use std::fmt::Debug;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicU16;
use std::sync::mpsc::Sender;
use std::time::Duration;

use fullbore_capture::{Capture, CaptureEvent, SinkChain, SinkQueues, StreamNames};
use fullbore_core::account::CountedBy;
use fullbore_core::device::BytesStream;
use fullbore_core::endpoint::UdpSource;
use fullbore_core::endpoint::samples_of_source;
use fullbore_core::layout::BLOCK_BYTES;
use fullbore_core::manifest::{Fill, Format, SourceEngine, Stream};
use fullbore_core::name::Name;
use fullbore_gige::CameraConfig;
use fullbore_linux::overlap::Range;
use fullbore_linux::sys::memory::Region;
use fullbore_linux::thread_config::ThreadConfig;

use crate::error::RecordError;

use crate::topology::NetworkPath;

pub use panda::PandaConfig;
pub use waiting::{WaitingInput, WaitingSource};

/// A source of a recording, as configured. It dereferences to its facts.
#[derive(Clone, Debug)]
pub enum SourceConfig {
    /// Datagrams.
    Udp(Box<UdpSource>),
    /// Datagrams in a packet capture, frames of a TCP connection, or those of a file of samples.
    Waiting(Box<WaitingSource>),
    /// The images of a camera.
    Camera(Box<CameraConfig>),
    /// The acquisitions of a PandA.
    Panda(PandaConfig),
    /// Bytes without frames.
    Bytes(BytesStream),
}

impl Deref for SourceConfig {
    type Target = dyn Source;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Udp(source) => source.as_ref(),
            Self::Waiting(source) => source.as_ref(),
            Self::Camera(source) => source.as_ref(),
            Self::Panda(source) => source,
            Self::Bytes(source) => source,
        }
    }
}

impl From<UdpSource> for SourceConfig {
    fn from(source: UdpSource) -> Self {
        Self::Udp(Box::new(source))
    }
}

impl From<WaitingSource> for SourceConfig {
    fn from(source: WaitingSource) -> Self {
        Self::Waiting(Box::new(source))
    }
}

impl From<CameraConfig> for SourceConfig {
    fn from(source: CameraConfig) -> Self {
        Self::Camera(Box::new(source))
    }
}

impl From<BytesStream> for SourceConfig {
    fn from(source: BytesStream) -> Self {
        Self::Bytes(source)
    }
}

impl From<PandaConfig> for SourceConfig {
    fn from(source: PandaConfig) -> Self {
        Self::Panda(source)
    }
}

/// The facts of a source that the recorder uses before and after it opens the source.
pub trait Source: Debug + Send + Sync {
    /// The name of its stream; if it has several, the first part of their names.
    fn name(&self) -> &Name;

    /// The endpoint, as manifests and reports name it.
    fn endpoint(&self) -> String;

    /// The format of its frames, as known beforehand.
    fn format(&self) -> Format;

    /// The way of counting its frames, as known beforehand.
    fn counted_by(&self) -> CountedBy;

    /// The replacement for missing frames.
    fn fill(&self) -> Fill {
        Fill::Omit
    }

    /// Bytes before each frame that are not stored.
    fn stripped_bytes(&self) -> u32 {
        0
    }

    /// True if its frames vary in length.
    fn has_varying_frames(&self) -> bool {
        false
    }

    /// Frames per second, if the endpoint states them.
    fn frames_per_second(&self) -> Option<u64> {
        None
    }

    /// The streams that it has.
    fn streams(&self) -> Streams {
        Streams::One
    }

    /// The most bytes that it gives, if known.
    fn bytes(&self) -> Option<u64> {
        None
    }

    /// Bytes per second, if known.
    fn rate(&self) -> Option<u64> {
        None
    }

    /// The block memory that it needs.
    fn memory(&self) -> MemoryNeeds;

    /// The largest block that it fills.
    fn most_block_bytes(&self) -> u64 {
        BLOCK_BYTES
    }

    /// The smallest chunk that holds a block of it, if it has this much block memory.
    fn least_chunk_bytes(&self, _pool_bytes: u64) -> u64 {
        0
    }

    /// Where its packets enter this host, if a kernel counter on that way may drop some of them.
    fn network(&self) -> Option<NetworkPath<'_>> {
        None
    }

    /// What ends its scans.
    fn ending(&self) -> Ending;

    /// True if it waits as long as the sink needs, and loses nothing: its memory may be full.
    fn can_wait(&self) -> bool {
        false
    }

    /// True if one capture thread may serve several sources of this kind.
    fn shares_thread(&self) -> bool {
        false
    }

    /// What it is connected to, if that can be recorded only once.
    fn identity(&self) -> Option<String> {
        None
    }

    /// Takes what only one recording can have, such as a port, to show that it is free. The result holds it.
    fn preflight(&self) -> Result<Box<dyn Any>, RecordError> {
        Ok(Box::new(()))
    }
}

/// The streams of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streams {
    /// One stream, which is in the manifest from the beginning.
    One,
    /// Streams that are named as they appear, about this many.
    Discovered(u64),
}

/// What ends the scans of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Only a limit or a stop: more frames may always come.
    Never,
    /// Its last byte.
    LastByte,
    /// The end of an acquisition. An acquisition is a scan, and a limit must not cut it.
    Acquisition,
}

/// The block memory that a source needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryNeeds {
    /// Its sender does not wait: the memory must hold what arrives while the sink stalls.
    ForStall {
        /// The expected size of a block.
        block_bytes: u64,
        /// The least memory.
        least: u64,
    },
    /// Its sender waits while no block is free.
    Fixed {
        /// The memory, unless the user gives a size.
        default: u64,
        /// The least memory.
        least: u64,
    },
}

impl dyn Source + '_ {
    /// True if its stream is in the manifest from the beginning.
    pub fn is_known(&self) -> bool {
        self.streams() == Streams::One
    }

    /// Builds the manifest entry of its stream before the first frame.
    pub(crate) fn stream(&self, directory: String) -> Stream {
        Stream {
            name: self.name().clone(),
            directory,
            source: self.endpoint(),
            format: self.format(),
            stripped_bytes: self.stripped_bytes(),
            samples: samples_of_source(&self.endpoint()),
            geometry: None,
            fill: self.fill(),
            blocks: 0,
            bytes: 0,
            account: None,
            context: None,
            renamed: None,
        }
    }
}

/// What the sources of a recording share when they are opened.
pub(crate) struct OpenContext {
    /// Bytes of one file of a stream, if the sink cuts streams into files.
    pub chunk_bytes: u64,
    /// The names of all streams.
    pub names: Arc<StreamNames>,
    /// The place in the manifest of the next stream that is discovered.
    pub next_number: Arc<AtomicU16>,
    /// True if the sink takes one stream only.
    pub one_stream: bool,
    /// The number of scans; `None`: until a stop.
    pub scans: Option<u64>,
    /// The number of sources that end scans themselves.
    pub acquisitions: usize,
    /// The most bytes of a scan, if one source alone has to keep to it.
    pub scan_bytes: Option<u64>,
    /// The number of capture threads that several sources share.
    pub shared_threads: usize,
}

/// A source that is to be opened.
pub(crate) struct OpenRequest<'a> {
    /// The source.
    pub source: &'a SourceConfig,
    /// The place of its stream in the manifest, if the stream is known.
    pub number: Option<u16>,
    /// Its block memory.
    pub pool_bytes: u64,
    /// The memory node of its capture thread.
    pub node: Option<u32>,
    /// The size of a block, if the sink needs one.
    pub block_bytes: Option<u32>,
    /// The most bytes to take of it: its limit, and the space that the sink has for it.
    pub most_bytes: Option<u64>,
}

/// Opens the sources of one capture thread. They are of one kind, and several only if they share a thread.
pub(crate) fn open(
    requests: &[OpenRequest<'_>],
    context: &OpenContext,
) -> Result<Box<dyn OpenSource>, RecordError> {
    let first = requests.first().expect("a capture thread has a source");
    Ok(match first.source {
        SourceConfig::Udp(_) => Box::new(udp::UdpPorts::open(requests, context)?),
        SourceConfig::Camera(config) => Box::new(camera::OpenCamera::open(config, first, context)?),
        SourceConfig::Panda(config) => {
            Box::new(panda::OpenPanda::open(config.clone(), first, context)?)
        }
        SourceConfig::Waiting(config) => {
            Box::new(waiting::OpenWaiting::open(config, first, context)?)
        }
        SourceConfig::Bytes(config) => Box::new(bytes::OpenBytes::open(config, first, context)?),
    })
}

/// The sources of one capture thread, open: all steps that can fail before a recording have been tried.
pub(crate) trait OpenSource: Send {
    /// The regions of their block memory.
    fn memory(&self) -> Vec<Arc<Region>>;

    /// The most blocks that can be in use at once.
    fn most_blocks(&self) -> usize;

    /// The receive buffer of each source, in bytes; 0 if it has none.
    fn receive_buffers(&self) -> Vec<usize> {
        vec![0]
    }

    /// What they are connected to, if that can be recorded only once: two names may stand for one sender.
    fn identity(&self) -> Option<String> {
        None
    }

    /// The range of a file or device that it reads, so that no sink overwrites it.
    fn reads(&self) -> Option<Range> {
        None
    }

    /// Warnings for the user before the recording is armed.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// The engines of sources that may have another than their socket.
    fn engines(&self) -> Vec<SourceEngine> {
        Vec::new()
    }

    /// Starts the capture thread.
    fn start(self: Box<Self>, link: CaptureLink) -> Result<Capture, RecordError>;
}

/// The capture thread's end of its queues and channels.
pub(crate) struct CaptureLink {
    /// The number of the thread.
    pub number: usize,
    /// The queues to each sink.
    pub sinks: Vec<SinkQueues>,
    /// The channel for its events.
    pub events: Sender<CaptureEvent>,
    /// The affinity and priority of the thread.
    pub thread_config: ThreadConfig,
    /// True if everything that comes before the first scan is dropped.
    pub hold: bool,
    /// The age at which a partly filled block may be sent, if the sink takes short blocks.
    pub hand_on_after: Option<Duration>,
}

impl CaptureLink {
    /// Makes the way of a thread's blocks through all sinks.
    pub fn chain(&mut self) -> SinkChain {
        SinkChain::new(std::mem::take(&mut self.sinks))
    }

    /// True if each stream goes only to the target with its number, in every sink.
    pub fn own_targets(&self) -> bool {
        self.sinks.iter().all(|sink| sink.own_targets)
    }
}
