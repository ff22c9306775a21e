//! A port: one socket and its streams.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fullbore_core::account::{Account, CountedBy, DropCounter, Layer, UnavailableCounter};
use fullbore_core::endpoint::{Gro, SourceFormat, Threads, UdpSource};
use fullbore_core::frame_index::FrameIndexer;
use fullbore_core::layout::Geometry;
use fullbore_core::manifest::{Fill, Format};
use fullbore_core::name::Name;
use fullbore_core::units::ByteSize;
use fullbore_formats::framed::FrameKind;
use fullbore_formats::packets::PacketStream;
use fullbore_formats::vdif::Header;
use fullbore_formats::vita49::{Packet, difi};
use fullbore_linux::ring::{Block, Pool};
use fullbore_linux::sys::memory::Region;
use fullbore_linux::sys::receive::{Listen, MOST_MESSAGES, Receiver};
use uuid::Uuid;

use super::StreamNames;
use super::detect::{
    DatagramContents, Decision, DetectedFormat, Detector, LEAST_BLOCK_BYTES, Sifted, Upcoming,
    any_day, codec, geometry, stripped_bytes,
};
use super::drops::{DropReading, Drops};
use super::frame_parts::FrameParts;
use super::input::{CounterName, DatagramInput};
use super::packet_ring::RingError;
use super::reassembler::{CaptureResources, Method, Reassembler};
use super::scan_stream::{
    CaptureEvent, FOREIGN_TOLD, ScanContext, ScanStream, StreamLayout, StreamMetrics,
};
use super::sequential::{SequentialStream, SubStreams};
use super::sink_chain::{Settled, SinkChain, SinkReply, WrittenBlock};
use super::stream::CaptureStream;
use super::unclaimed::{Claim, Key, Unclaimed, excludes, tells_threads};
use super::xdp::XdpError;

/// The largest number of streams of one port.
const MOST_STREAMS: usize = 64;

/// The number of datagrams between two checks of how many arrive merged.
const MERGE_TRIAL: u64 = 4096;

/// The number of messages after which few merged datagrams are enough evidence: a slow stream would take too long
/// otherwise.
const ALONE_TRIAL: u64 = 512;

/// The longest wait of a cut for the stream to reach its next block.
pub const CUT_PATIENCE: Duration = Duration::from_millis(300);

/// A port that could not be armed.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// The socket could not be opened.
    #[error(transparent)]
    Listen(fullbore_linux::sys::receive::Error),
    /// The packet ring could not be opened.
    #[error(transparent)]
    Ring(RingError),
    /// XDP cannot be used.
    #[error(transparent)]
    Xdp(Box<XdpError>),
    /// The block memory could not be mapped.
    #[error("mapping {bytes} bytes of block memory for {source_name}")]
    Memory {
        /// The source.
        source_name: String,
        /// The requested size.
        bytes: usize,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The blocks are so large that too few fit the memory.
    #[error("{source_name}: {sum}")]
    FewBlocks {
        /// The source.
        source_name: String,
        /// The numbers of blocks.
        sum: TooFewBlocks,
    },
    /// The frame length or block size cannot be laid out.
    #[error("{source_name}")]
    Layout {
        /// The source.
        source_name: String,
        /// The cause.
        #[source]
        error: fullbore_core::layout::Error,
    },
}

impl From<RingError> for PortError {
    fn from(error: RingError) -> Self {
        match error {
            RingError::Listen(error) => Self::Listen(error),
            other => Self::Ring(other),
        }
    }
}

impl From<XdpError> for PortError {
    fn from(error: XdpError) -> Self {
        match error {
            XdpError::Listen(error) => *error,
            other => Self::Xdp(Box::new(other)),
        }
    }
}

/// A pool with too few blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooFewBlocks {
    /// The number of blocks that fit.
    pub blocks: usize,
    /// The number of blocks needed.
    pub needed: usize,
    /// Bytes of each.
    pub block_bytes: u32,
}

impl std::fmt::Display for TooFewBlocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { blocks, needed, block_bytes } = *self;
        let block = ByteSize(block_bytes.into());
        let buffer = ByteSize(needed as u64 * u64::from(block_bytes));
        write!(
            f,
            "its frames need blocks of {block}, of which the block memory holds {blocks}, and {needed} \
             are needed: give {buffer} for it with --buffer, or record with frame=varying"
        )
    }
}

/// The fewest blocks for recording a stream: three in the window, the rest with the writers.
pub const LEAST_BLOCKS: usize = 8;

/// With fewer blocks than this, a stream survives no stall of a disk.
pub const AMPLE_BLOCKS: usize = 16;

/// Blocks for the pages that a batch of an input that waits may open, beside those that it fills.
const IN_WINDOW: usize = 4;

/// Returns an error if the memory holds fewer blocks than needed.
fn few_blocks(block_bytes: u32, pool_bytes: usize, needed: usize) -> Option<TooFewBlocks> {
    let blocks = pool_bytes / (block_bytes as usize).next_multiple_of(4096).max(4096);
    (blocks < needed).then_some(TooFewBlocks { blocks, needed, block_bytes })
}

/// Metrics of a port, readable from any thread.
#[derive(Debug, Default)]
pub struct PortMetrics {
    /// Datagrams received.
    pub datagrams: AtomicU64,
    /// Messages that contained them.
    pub messages: AtomicU64,
}

/// The memory sizes of a port.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Block memory.
    pub pool_bytes: usize,
    /// Approximate size of a chunk file.
    pub chunk_bytes: u64,
    /// Requested receive buffer.
    pub buffer_bytes: usize,
}

/// The reason why no stream was opened for frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unopened {
    /// There are too many streams, or only one is possible.
    Streams,
    /// The frames are marked invalid.
    Invalid,
    /// The memory holds too few blocks of the size for these frames.
    Memory,
    /// No frame has an index at the given rate.
    Rate,
}

/// A socket and its streams.
pub struct Port {
    source: UdpSource,
    /// The place in the manifest, and that of the next stream to be discovered.
    number: u16,
    next_number: Arc<AtomicU16>,
    names: Arc<StreamNames>,
    input: Box<dyn DatagramInput>,
    region: Arc<Region>,
    pool: Option<Pool>,
    learning: Detector,
    /// Joins frames that are split over datagrams, if they are.
    frame_parts: Option<FrameParts>,
    streams: Vec<CaptureStream>,
    /// The last format of each stream that was reported to the supervisor.
    told: Vec<Format>,
    openings: VecDeque<Arc<ScanContext>>,
    /// Messages that the socket had dropped at the begin and end of each scan.
    drops: Drops,
    cut_at: Option<Instant>,
    method: Method,
    trial: (u64, u64),
    facts: Option<DetectedFormat>,
    /// The division of all streams of the port into blocks.
    geometry: Option<Geometry>,
    /// Counts of datagrams in the scan while there is no stream.
    early: Early,
    /// Whole frames that belong to no stream.
    unclaimed: Unclaimed,
    /// Keys for which a stream was opened late.
    late: BTreeSet<Key>,
    /// True if only one stream is possible, because the sink accepts no second one.
    alone: bool,
    /// Warnings already sent: datagrams that are no frames, frames that cannot be recorded, excluded frames, and frames
    /// in datagrams of another form.
    warned: (bool, bool, bool, bool),
    chunk_bytes: u64,
    /// The reason why received frames could not be laid out. It is reported at once, and breaks the port if no other
    /// frames arrive.
    refused: Option<String>,
    ended: bool,
    metrics: Arc<PortMetrics>,
}

/// Counts of a port without a stream.
#[derive(Default)]
struct Early {
    foreign: u64,
    foreign_bytes: usize,
    /// The contents of the foreign datagrams.
    holds: Option<DatagramContents>,
    /// The number of these that hold whole frames, and the number of those frames.
    within: (u64, u64),
    unrecorded: u64,
    excluded: u64,
    /// The same counts for screens, and the scan in which they were reported.
    metrics: Arc<StreamMetrics>,
    told: Option<Uuid>,
}

impl Early {
    fn take_foreign(&mut self, bytes: usize) {
        (self.foreign, self.foreign_bytes) = (self.foreign + 1, bytes);
    }

    fn take(&mut self, sifted: Sifted) {
        self.unrecorded += sifted.unrecorded;
        self.excluded += sifted.excluded;
        if sifted.foreign > 0 {
            self.foreign += sifted.foreign;
            self.foreign_bytes = sifted.foreign_bytes;
            self.holds = sifted.holds.or(self.holds);
            self.within.0 += sifted.within.0;
            self.within.1 += sifted.within.1;
        }
    }

    /// Adds these counts to a scan stream's account. If there is a stream, whole frames in datagrams of another form
    /// count as frames that were not recorded.
    fn tell(self, part: &mut ScanStream) {
        let (datagrams, frames) = self.within;
        part.foreign += self.foreign - datagrams;
        part.foreign_bytes = self.foreign_bytes;
        part.unrecorded += self.unrecorded + frames;
        part.excluded += self.excluded;
    }
}

/// Opens the socket of a source.
pub fn listen(source: &UdpSource, buffer_bytes: usize) -> Result<Receiver, PortError> {
    let listen = Listen {
        address: source.address,
        interface: source.interface.clone(),
        buffer_bytes,
        holds_only: false,
    };
    Receiver::listen(&listen, source.sender.is_some()).map_err(PortError::Listen)
}

/// Returns an error if the memory holds too few blocks for frames of the stated length.
fn check_layout(source: &UdpSource, sizes: Sizes) -> Result<(), PortError> {
    let Sizes { pool_bytes, chunk_bytes, .. } = sizes;
    let Some(frame_bytes) = source.frame_bytes else { return Ok(()) };
    let name = || source.endpoint.to_string();
    let layout = geometry(source, frame_bytes, pool_bytes, chunk_bytes, None)
        .map_err(|error| PortError::Layout { source_name: name(), error })?;
    match few_blocks(layout.block_bytes, pool_bytes, LEAST_BLOCKS) {
        Some(sum) => Err(PortError::FewBlocks { source_name: name(), sum }),
        None => Ok(()),
    }
}

impl Port {
    /// Opens the socket and maps the memory. On return, every page is present.
    pub fn open(
        source: UdpSource,
        number: u16,
        next_number: Arc<AtomicU16>,
        pool_bytes: usize,
        chunk_bytes: u64,
        buffer_bytes: usize,
    ) -> Result<Self, PortError> {
        let sizes = Sizes { pool_bytes, chunk_bytes, buffer_bytes };
        Self::open_near(None, source, number, next_number, sizes)
    }

    /// The same, with the memory on a memory node.
    pub fn open_near(
        node: Option<u32>,
        source: UdpSource,
        number: u16,
        next_number: Arc<AtomicU16>,
        sizes: Sizes,
    ) -> Result<Self, PortError> {
        check_layout(&source, sizes)?;
        let receiver = listen(&source, sizes.buffer_bytes)?;
        let merges = source.gro != Gro::Off && receiver.merge(true);
        let method = if merges { Method::Merged } else { Method::Batch };
        Self::of_input(Box::new(receiver), method, node, source, number, next_number, sizes)
    }

    /// A port whose datagrams come one by one from an input that is no socket.
    pub fn with_input(
        input: Box<dyn DatagramInput>,
        node: Option<u32>,
        source: UdpSource,
        number: u16,
        next_number: Arc<AtomicU16>,
        sizes: Sizes,
    ) -> Result<Self, PortError> {
        check_layout(&source, sizes)?;
        Self::of_input(input, Method::Batch, node, source, number, next_number, sizes)
    }

    fn of_input(
        input: Box<dyn DatagramInput>,
        method: Method,
        node: Option<u32>,
        source: UdpSource,
        number: u16,
        next_number: Arc<AtomicU16>,
        sizes: Sizes,
    ) -> Result<Self, PortError> {
        let Sizes { pool_bytes, chunk_bytes, .. } = sizes;
        let source_name = source.endpoint.to_string();
        let region = Region::for_blocks(pool_bytes, node).map_err(|error| PortError::Memory {
            source_name,
            bytes: pool_bytes,
            source: error,
        })?;
        Ok(Self {
            source,
            number,
            next_number,
            names: Arc::default(),
            input,
            region: Arc::new(region),
            pool: None,
            learning: Detector::default(),
            frame_parts: None,
            streams: Vec::new(),
            told: Vec::new(),
            openings: VecDeque::new(),
            drops: Drops::default(),
            cut_at: None,
            method,
            trial: (0, 0),
            facts: None,
            geometry: None,
            early: Early::default(),
            unclaimed: Unclaimed::default(),
            late: BTreeSet::new(),
            alone: false,
            warned: (false, false, false, false),
            chunk_bytes,
            refused: None,
            ended: false,
            metrics: Arc::default(),
        })
    }

    /// Limits the port to one stream: frames of threads that begin later count as unrecorded.
    pub fn keep_to_one_stream(&mut self) {
        self.alone = true;
    }

    /// Shares the names of streams with the other ports of a recording, so that a late thread takes no name of a source
    /// or of another late thread.
    pub fn share_names(&mut self, names: &Arc<StreamNames>) {
        self.names = names.clone();
        self.names.claim(self.source.name.as_str());
    }

    /// The source of the port.
    pub fn source(&self) -> &UdpSource {
        &self.source
    }

    /// The place in the manifest; `None` if its streams are named as they appear.
    pub fn number(&self) -> Option<u16> {
        (!self.splits()).then_some(self.number)
    }

    /// Where its datagrams come from.
    pub fn input(&self) -> &dyn DatagramInput {
        self.input.as_ref()
    }

    /// The same, to read ahead.
    pub fn input_mut(&mut self) -> &mut dyn DatagramInput {
        self.input.as_mut()
    }

    /// True if blocks are free for the largest batch, or if no writer will return one. An input that waits is read only
    /// then.
    pub fn has_room(&mut self) -> bool {
        let (Some(pool), Some(geometry)) = (&self.pool, self.geometry) else { return true };
        let longest =
            if geometry.frame_bytes == 0 { 1 << 16 } else { geometry.frame_bytes as usize };
        let batch = (MOST_MESSAGES * longest).div_ceil(geometry.block_bytes as usize);
        let windows = IN_WINDOW * self.streams.len().max(1);
        if pool.free() >= (batch + windows).min(pool.blocks() / 2) {
            return true;
        }
        let scans: Vec<Uuid> = self.openings.iter().map(|context| context.uuid).collect();
        let mut parts = scans.into_iter().flat_map(|scan| {
            self.streams
                .iter_mut()
                .filter_map(move |stream| stream.part_mut(scan))
                .map(|part| part.cursor.settled())
                .collect::<Vec<_>>()
        });
        parts.all(|settled| settled)
    }

    /// The region of its blocks.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// The largest number of blocks that its memory can hold.
    pub fn most_blocks(&self) -> usize {
        // Blocks come close to their wanted size, and have at least half of it.
        let wanted = self.source.block.map_or(LEAST_BLOCK_BYTES, |size| size.0);
        let wanted = wanted.min(self.region.bytes() as u64 / 16).max(4096);
        2 * self.region.bytes() / wanted as usize + 1
    }

    /// Returns a warning if its memory is small.
    pub fn warning(&self) -> Option<String> {
        let (region, chunk) = (self.region.bytes(), self.chunk_bytes);
        let layout = geometry(&self.source, self.source.frame_bytes?, region, chunk, None).ok()?;
        let few = few_blocks(layout.block_bytes, region, AMPLE_BLOCKS)?;
        Some(format!("{}: {few}", self.source.endpoint))
    }

    /// The metrics.
    pub fn metrics(&self) -> &Arc<PortMetrics> {
        &self.metrics
    }

    /// Drops packets that arrived before the scan was armed.
    pub fn drain(&mut self, staging: &mut super::staging::StagingBuffer) -> io::Result<()> {
        if self.input.discard() {
            return Ok(());
        }
        let end = Instant::now() + Duration::from_millis(50);
        while staging.receive(self.input.as_mut(), None)?.1 > 0 && Instant::now() < end {
            let kept = staging.take();
            staging.give_back(kept);
        }
        let kept = staging.take();
        staging.give_back(kept);
        Ok(())
    }

    /// Begins a scan: the first, or, with a cut, the next one.
    pub fn begin(&mut self, context: Arc<ScanContext>, thread_resources: &mut ThreadResources<'_>) {
        if !self.openings.is_empty() {
            self.settle_unowned(Upcoming::NextScan, thread_resources);
        }
        let said = self.read_drops(thread_resources);
        self.drops.end(&said);
        self.drops.begin(context.uuid, said);
        self.openings.push_back(context.clone());
        if self.openings.len() == 1 {
            return;
        }
        if self.streams.is_empty() {
            let silent = self.openings.pop_front().expect("there are two");
            self.tell_silent(&silent, thread_resources);
            return;
        }
        self.cut_at = Some(Instant::now() + CUT_PATIENCE);
        let Some(pool) = &mut self.pool else { return };
        let mut resources = thread_resources.lend(pool);
        self.streams.iter_mut().for_each(|stream| stream.cut(context.clone(), &mut resources));
    }

    /// Assigns the frames that belong to no stream, since they arrived in the scan that ends here. Frames that cannot
    /// be assigned by now count as unrecorded in it.
    fn settle_unowned(&mut self, then: Upcoming, thread_resources: &mut ThreadResources<'_>) {
        self.expire_parts(then == Upcoming::Nothing, thread_resources);
        if self.streams.is_empty() {
            self.decide(then, thread_resources);
        }
        // Frames held at a second boundary come first: they may belong to other streams.
        self.cross_borders(true, thread_resources);
        self.take_back(thread_resources);
        let left = self.unclaimed.give_up();
        self.leave_unrecorded(left);
        if self.streams.is_empty() {
            self.tell_of_invalid(thread_resources);
            let held = std::mem::take(&mut self.learning);
            self.give_up(held);
        }
    }

    /// Counts first datagrams that opened no stream.
    fn give_up(&mut self, mut first: Detector) {
        let sifted = first.give_up(&self.source);
        self.early.take(sifted);
    }

    /// Returns the number of drops of the input by each counter, or the reasons why they are unknown. Without them nothing
    /// can be proven, so this is reported at once.
    fn read_drops(&self, thread_resources: &mut ThreadResources<'_>) -> Vec<DropReading> {
        let first = self.input.drops().map_err(|error| {
            if self.input.counter().is_some() {
                // The account says so; a file without counts is no surprise.
                return error.to_string();
            }
            let source = &self.source.endpoint;
            let text = format!("{source}: cannot read the socket's drop counter: {error}");
            thread_resources.notices.push(CaptureEvent::Warning { text });
            error.to_string()
        });
        let more = self.input.more_drops().into_iter();
        let more = more.map(|(_, reading)| reading.map_err(|error| error.to_string()));
        std::iter::once(first).chain(more).collect()
    }

    /// Forgets the counters of scans that are over and reported.
    fn forget_drops(&mut self) {
        let mut drops = std::mem::take(&mut self.drops);
        drops.forget(|scan| self.streams.iter_mut().any(|stream| stream.part_mut(scan).is_some()));
        self.drops = drops;
    }

    /// Returns the input's own drop counters for a scan, or the reasons why they could not be read.
    fn drop_counters(&self, scan: Uuid) -> (Vec<DropCounter>, Vec<UnavailableCounter>) {
        if !self.input.has_drops() {
            return (Vec::new(), Vec::new());
        }
        let datagrams = self.metrics.datagrams.load(Ordering::Relaxed);
        let of_socket = || CounterName {
            layer: Layer::Socket,
            counter: "drops",
            scope: self.source.address.to_string(),
            own: true,
            coarse: datagrams > self.metrics.messages.load(Ordering::Relaxed),
        };
        let first = self.input.counter().unwrap_or_else(of_socket);
        let more = self.input.more_drops().into_iter().map(|(name, _)| name);
        let mut names: Vec<CounterName> = std::iter::once(first).chain(more).collect();
        // Streams of split threads share their input.
        let own = self.streams.len() <= 1;
        names.iter_mut().for_each(|name| name.own &= own);
        self.drops.of_scan(scan, &names)
    }

    /// Receives once. Returns the number of datagrams taken; 0 only if the socket was empty: datagrams of
    /// excluded senders count too.
    pub fn receive(&mut self, thread_resources: &mut ThreadResources<'_>) -> io::Result<usize> {
        let direct = self.source.sender.is_none() && !self.splits() && self.frame_parts.is_none();
        let (datagrams, messages) = match (&mut self.streams[..], &mut self.pool) {
            ([CaptureStream::Indexed(indexed)], Some(pool)) if direct => indexed.receive(
                self.input.as_mut(),
                self.method,
                &mut thread_resources.lend(pool),
            )?,
            _ => {
                let received =
                    thread_resources.staging.receive(self.input.as_mut(), self.source.sender)?;
                self.sort_out(thread_resources);
                received
            }
        };
        self.take_back(thread_resources);
        self.count_excluded(thread_resources);
        if messages > 0 {
            self.metrics.datagrams.fetch_add(datagrams as u64, Ordering::Relaxed);
            self.metrics.messages.fetch_add(messages as u64, Ordering::Relaxed);
            self.judge_merging(datagrams as u64, messages as u64);
        }
        Ok(datagrams.max(messages))
    }

    fn splits(&self) -> bool {
        self.source.threads == Threads::Split
    }

    /// Keeps receiving one message at a time only while messages carry several datagrams.
    fn judge_merging(&mut self, datagrams: u64, messages: u64) {
        self.trial = (self.trial.0 + datagrams, self.trial.1 + messages);
        let alone = self.trial.1 >= ALONE_TRIAL && self.trial.0 < 2 * self.trial.1;
        if self.trial.0 < MERGE_TRIAL && !alone {
            return;
        }
        let merged = self.trial.0 >= 2 * self.trial.1;
        self.trial = (0, 0);
        self.method = match self.source.gro {
            Gro::Off => Method::Batch,
            Gro::On => Method::Merged,
            Gro::Auto if merged => Method::Merged,
            Gro::Auto => Method::Batch,
        };
    }

    /// Passes every staged datagram to its stream.
    fn sort_out(&mut self, thread_resources: &mut ThreadResources<'_>) {
        let [early, kept] = thread_resources.staging.take();
        for datagram in early.iter().chain(kept.iter()) {
            self.join_parts(datagram, thread_resources);
        }
        thread_resources.staging.give_back([early, kept]);
    }

    /// Joins the parts of split frames before they are sorted. The first datagrams show whether frames are split.
    fn join_parts(&mut self, datagram: &[u8], thread_resources: &mut ThreadResources<'_>) {
        if self.frame_parts.is_none() && self.streams.is_empty() && self.source.packet_number {
            let codec = any_day(&self.source);
            self.frame_parts = codec.and_then(|codec| FrameParts::begin(codec, datagram));
        }
        match self.frame_parts.take() {
            None => self.sort(datagram, thread_resources),
            Some(mut parts) => {
                parts.take(datagram, thread_resources.now, |whole| {
                    self.sort(whole, thread_resources)
                });
                self.frame_parts = Some(parts);
            }
        }
    }

    /// Gives up waiting for the other parts of frames: for a while, or at all.
    fn expire_parts(&mut self, all: bool, thread_resources: &mut ThreadResources<'_>) {
        let Some(mut parts) = self.frame_parts.take() else { return };
        match all {
            true => parts.finish(|part| self.sort(part, thread_resources)),
            false => parts.expire(thread_resources.now, |part| self.sort(part, thread_resources)),
        }
        self.frame_parts = Some(parts);
    }

    fn sort(&mut self, datagram: &[u8], thread_resources: &mut ThreadResources<'_>) {
        if self.streams.is_empty() {
            self.learning.hold(datagram);
            if self.learning.is_time() {
                self.decide(Upcoming::More, thread_resources);
            }
            return;
        }
        let strip = stripped_bytes(&self.source) as usize;
        let (head, frame) = datagram.split_at(strip.min(datagram.len()));
        let several = self.streams.len() > 1 || self.splits();
        let owner = self
            .streams
            .iter()
            .position(|stream| !several || stream.owns(head, frame, datagram.len()));
        match owner {
            Some(owner) => self.give(owner, datagram, thread_resources),
            None => self.take_unowned(datagram, thread_resources),
        }
    }

    /// Passes a datagram to a stream.
    fn give(&mut self, stream: usize, datagram: &[u8], thread_resources: &mut ThreadResources<'_>) {
        let Some(pool) = &mut self.pool else { return };
        self.streams[stream].ingest(datagram, &mut thread_resources.lend(pool));
    }

    /// Takes back datagrams that streams received and that are not theirs.
    fn take_back(&mut self, thread_resources: &mut ThreadResources<'_>) {
        for from in 0..self.streams.len() {
            for datagram in self.streams[from].take_handed_back() {
                let strip = stripped_bytes(&self.source) as usize;
                let (head, frame) = datagram.split_at(strip.min(datagram.len()));
                let others = self.streams.iter().enumerate().filter(|(number, _)| *number != from);
                let owner = others
                    .filter(|(_, stream)| stream.owns(head, frame, datagram.len()))
                    .map(|(number, _)| number)
                    .next();
                match owner {
                    Some(owner) => self.give(owner, &datagram, thread_resources),
                    None => self.take_unowned(&datagram, thread_resources),
                }
            }
        }
    }

    /// Processes a datagram that belongs to no stream: a frame of a thread that begins late, or no frame at all.
    fn take_unowned(&mut self, datagram: &[u8], thread_resources: &mut ThreadResources<'_>) {
        match self.open_packets(datagram, thread_resources) {
            None => {}
            Some(Ok(owner)) => return self.give(owner, datagram, thread_resources),
            Some(Err(_)) => return self.leave_unrecorded(1),
        }
        let key = self.key_of(datagram).filter(|_| tells_threads(&self.source));
        let Some((key, header)) = key else {
            self.take_frameless(datagram, thread_resources);
            return;
        };
        match self.unclaimed.take(&self.source, key, !header.invalid(), datagram) {
            Claim::Held { given_up } => self.leave_unrecorded(given_up),
            Claim::Excluded => self.exclude(1),
            Claim::Open(key, frames) => self.open_late(key, &frames, thread_resources),
        }
    }

    /// Returns the key and header of a datagram with a whole frame.
    fn key_of(&self, datagram: &[u8]) -> Option<(Key, Header)> {
        Key::of(any_day(&self.source)?, datagram, stripped_bytes(&self.source) as usize)
    }

    /// Processes a datagram that is no frame. It may hold whole frames in another form, which are not recorded.
    fn take_frameless(&mut self, datagram: &[u8], thread_resources: &mut ThreadResources<'_>) {
        let holds = DatagramContents::of(&self.source, datagram);
        let Some(holds) = holds.filter(|_| tells_threads(&self.source)) else {
            // Its stream is unknown, so the first stream's account counts it.
            match self.streams.is_empty() {
                true => self.early.take_foreign(datagram.len()),
                false => self.give(0, datagram, thread_resources),
            }
            return;
        };
        match holds.wanted(&self.source, datagram) {
            0 => self.exclude(1),
            frames => self.leave_unrecorded(frames as u64),
        }
        if !std::mem::replace(&mut self.warned.3, true) {
            let text = format!(
                "{}: datagrams of {} bytes arrive that hold {} frames in another form than the others. They are not \
                 recorded, and are counted as unrecorded. {}",
                self.source.endpoint,
                datagram.len(),
                self.title(),
                self.frame_hint(Some(holds))
            );
            thread_resources.notices.push(CaptureEvent::Warning { text });
        }
    }

    /// Opens a stream for a thread that begins late, and passes it its first frames.
    fn open_late(
        &mut self,
        key: Key,
        frames: &[Vec<u8>],
        thread_resources: &mut ThreadResources<'_>,
    ) {
        let why = match self.open_for(key, frames, thread_resources) {
            Ok(owner) => {
                frames.iter().for_each(|frame| self.give(owner, frame, thread_resources));
                return;
            }
            Err(why) => why,
        };
        self.leave_unrecorded(frames.len() as u64);
        self.warn_of_unopened(key, why, thread_resources);
    }

    /// Warns once of frames for which no stream can be opened.
    fn warn_of_unopened(
        &mut self,
        key: Key,
        why: Unopened,
        thread_resources: &mut ThreadResources<'_>,
    ) {
        if !std::mem::replace(&mut self.warned.1, true) {
            let Key { station, thread, frame_bytes } = key;
            let text = format!(
                "{}: frames of {frame_bytes} bytes of station {station}, thread {thread} arrive and are not recorded: \
                 {}. They are counted as unrecorded",
                self.source.endpoint,
                self.say_unopened(why)
            );
            thread_resources.notices.push(CaptureEvent::Warning { text });
        }
    }

    /// Opens a stream for a thread that begins late, from its first valid frame on.
    fn open_for(
        &mut self,
        key: Key,
        frames: &[Vec<u8>],
        thread_resources: &mut ThreadResources<'_>,
    ) -> Result<usize, Unopened> {
        if !self.late.insert(key) || self.alone {
            return Err(Unopened::Streams);
        }
        let first = Detector::of_all(frames);
        let mut opened = Err(Unopened::Invalid);
        for frame in frames {
            opened = self.split_off(frame, &first, thread_resources);
            if opened != Err(Unopened::Invalid) {
                break;
            }
        }
        opened
    }

    fn say_unopened(&self, why: Unopened) -> String {
        match (why, self.source.frames_per_second) {
            (Unopened::Rate, Some(rate)) => format!(
                "they are numbered beyond the {rate} frames a second that fps= gives; leave out fps=, or give the true \
                 rate"
            ),
            (Unopened::Rate, None) => "their time cannot be true".into(),
            (Unopened::Memory, _) => {
                "the block memory holds too few blocks of the size that they need; give more with --buffer".into()
            }
            (Unopened::Streams | Unopened::Invalid, _) => {
                "no further stream can be opened for them here".into()
            }
        }
    }

    /// Counts datagrams of senders other than the one that the user named.
    fn count_excluded(&mut self, thread_resources: &mut ThreadResources<'_>) {
        let excluded = std::mem::take(&mut thread_resources.staging.excluded);
        self.exclude(excluded);
    }

    fn exclude(&mut self, datagrams: u64) {
        match self.streams.first_mut() {
            Some(first) => first.newest().excluded += datagrams,
            None => self.early.excluded += datagrams,
        }
    }

    fn leave_unrecorded(&mut self, frames: u64) {
        match self.streams.first_mut() {
            Some(first) => first.newest().unrecorded += frames,
            None => self.early.unrecorded += frames,
        }
    }

    /// Reports unrecorded datagrams while no stream has metrics for them.
    fn tell_of_foreign(&mut self, thread_resources: &mut ThreadResources<'_>) {
        let Early { foreign, foreign_bytes, excluded, unrecorded, .. } = self.early;
        if excluded >= FOREIGN_TOLD && self.streams.is_empty() && foreign == 0 {
            self.tell_of_excluded(thread_resources);
        }
        if foreign + excluded + unrecorded == 0 || !self.streams.is_empty() {
            return;
        }
        let metrics = &self.early.metrics;
        metrics.foreign.store(foreign, Ordering::Relaxed);
        metrics.excluded.store(excluded, Ordering::Relaxed);
        metrics.unrecorded.store(unrecorded, Ordering::Relaxed);
        if let Some(context) = self.openings.back()
            && self.early.told != Some(context.uuid)
        {
            self.early.told = Some(context.uuid);
            let (scan, metrics) = (context.uuid, self.early.metrics.clone());
            let source = self.source.endpoint.to_string();
            thread_resources.notices.push(CaptureEvent::Unrecognised { scan, source, metrics });
        }
        if foreign >= FOREIGN_TOLD && !std::mem::replace(&mut self.warned.0, true) {
            let (what, hint) = match self.source.format {
                SourceFormat::Frames(kind) => {
                    (format!("a {} frame", kind.title()), self.frame_hint(self.early.holds))
                }
                SourceFormat::Packets { format, .. } => {
                    let title = format.kind().title();
                    let hint = format!("If this is not {title}, use ?format=raw");
                    (format!("a packet of {title}"), hint)
                }
                SourceFormat::Raw => {
                    ("a frame as described".into(), "Check frame= and strip= of this source".into())
                }
            };
            let text = format!(
                "{}: datagrams of {foreign_bytes} bytes arrive, and none is {what}. Nothing is being recorded from \
                 this source. {hint}",
                self.source.endpoint
            );
            thread_resources.notices.push(CaptureEvent::Warning { text });
        }
    }

    /// Returns the name of the format of its frames.
    fn title(&self) -> &'static str {
        any_day(&self.source).map_or("raw", |codec| codec.kind().title())
    }

    fn frame_hint(&self, holds: Option<DatagramContents>) -> String {
        let title = self.title();
        let vdif = self.source.format == SourceFormat::Frames(FrameKind::Vdif);
        match holds {
            None => format!("If this is not {title}, use ?format=raw"),
            Some(DatagramContents::BehindNumber) if vdif => {
                "A VDIF frame lies behind their first 8 bytes: use ?format=vtp, or ?strip=8".into()
            }
            Some(DatagramContents::BehindNumber) => {
                format!(
                    "A {title} frame lies behind their first 8 bytes: use ?psn=true, or ?strip=8"
                )
            }
            Some(DatagramContents::Plain) if self.source.packet_number && vdif => {
                "They are VDIF frames without a packet number before them: use ?format=vdif".into()
            }
            Some(DatagramContents::Plain) if self.source.packet_number => {
                format!(
                    "They are {title} frames without a packet number before them: leave out psn="
                )
            }
            Some(DatagramContents::Plain) => format!(
                "They are {title} frames with nothing before them: leave out strip=, or use ?strip=0"
            ),
            Some(DatagramContents::Several { frames, frame_bytes }) => format!(
                "They hold {frames} {title} frames of {frame_bytes} bytes each: let the sender put one frame in each \
                 datagram, or use ?format=raw to record the datagrams as they are"
            ),
        }
    }

    /// Warns once that the user's filter excludes all datagrams.
    fn tell_of_excluded(&mut self, thread_resources: &mut ThreadResources<'_>) {
        if !std::mem::replace(&mut self.warned.2, true) {
            let text = format!(
                "{}: all datagrams that arrive are excluded by threads=, source= or frame= of this endpoint. Nothing \
                 is being recorded from it",
                self.source.endpoint
            );
            thread_resources.notices.push(CaptureEvent::Warning { text });
        }
    }

    /// Warns that all frames of a port without a stream are marked invalid.
    fn tell_of_invalid(&mut self, thread_resources: &mut ThreadResources<'_>) {
        let held = self.learning.datagrams().count();
        if held == 0 || !self.splits() || !self.learning.all_invalid(&self.source) {
            return;
        }
        let text = format!(
            "{}: all frames that arrive are marked invalid by their sender. They open no stream with threads=split, are \
             not recorded, and are counted as unrecorded",
            self.source.endpoint
        );
        thread_resources.notices.push(CaptureEvent::Warning { text });
    }

    /// Does checks that depend on time, for ports with few datagrams.
    pub fn look(&mut self, thread_resources: &mut ThreadResources<'_>) {
        self.expire_parts(false, thread_resources);
        if self.streams.is_empty() && self.learning.is_time() {
            self.decide(Upcoming::More, thread_resources);
        }
        self.cross_borders(false, thread_resources);
        self.take_back(thread_resources);
        self.tell_of_foreign(thread_resources);
        if self.cut_at.is_some_and(|at| Instant::now() >= at) {
            self.cut_at = None;
            if let Some(pool) = &mut self.pool {
                let mut resources = thread_resources.lend(pool);
                self.streams.iter_mut().for_each(|stream| stream.cut_now(&mut resources));
            }
        }
        if let Some(pool) = &mut self.pool {
            let mut resources = thread_resources.lend(pool);
            self.streams
                .iter_mut()
                .for_each(|stream| stream.journal_partial_blocks(&mut resources));
            self.streams.iter().for_each(|stream| stream.tell(pool));
        }
        let news = self.input.take_news().into_iter();
        let complaints = self.streams.iter_mut().filter_map(CaptureStream::complaint).chain(news);
        thread_resources.notices.extend(complaints.map(|text| CaptureEvent::Warning { text }));
        self.describe(thread_resources);
        self.take_complete(thread_resources);
    }

    /// Releases frames held at second boundaries that have waited long enough, or all of them.
    fn cross_borders(&mut self, at_once: bool, thread_resources: &mut ThreadResources<'_>) {
        if let Some(pool) = &mut self.pool {
            let mut resources = thread_resources.lend(pool);
            self.streams.iter_mut().for_each(|stream| stream.cross_border(at_once, &mut resources));
        }
    }

    /// Reports new properties of the frames of its streams to the manifest at once, since a recorder may die before it
    /// seals.
    fn describe(&mut self, thread_resources: &mut ThreadResources<'_>) {
        for (stream, told) in self.streams.iter_mut().zip(&mut self.told) {
            let format = stream.format();
            if format == *told {
                continue;
            }
            told.clone_from(&format);
            let number = stream.shape().number;
            let scans = self.openings.iter().map(|context| context.uuid);
            for scan in scans.filter(|scan| stream.part_mut(*scan).is_some()) {
                let format = format.clone();
                thread_resources.notices.push(CaptureEvent::Described { scan, number, format });
            }
        }
    }

    /// Opens the streams of the first datagrams, if these agree.
    fn decide(&mut self, then: Upcoming, thread_resources: &mut ThreadResources<'_>) {
        let Some(mut facts) = self.learning.facts(&self.source, then) else {
            let sifted = self.learning.sift(&self.source);
            self.early.take(sifted);
            return;
        };
        let strip = stripped_bytes(&self.source);
        let rate = self.learning.rate(&self.source, &facts);
        let pool_bytes = self.region.bytes();
        let lay = |frame_bytes| {
            let layout = geometry(&self.source, frame_bytes, pool_bytes, self.chunk_bytes, rate)
                .map_err(|error| error.to_string())?;
            match few_blocks(layout.block_bytes, pool_bytes, LEAST_BLOCKS) {
                Some(few) => Err(few.to_string()),
                None => Ok(layout),
            }
        };
        let mut layout = lay(facts.frame_bytes);
        let uncounted = self.source.format == SourceFormat::Raw && self.source.sequence.is_none();
        if layout.is_err() && uncounted {
            // Frames of such an odd length are recorded like frames of varying length.
            facts.frame_bytes = 0;
            layout = lay(0);
        }
        let cut = match layout {
            Ok(cut) => cut,
            Err(error) => {
                if self.refused.is_none() {
                    let text = format!("{}: {error}", self.source.endpoint);
                    self.refused = Some(text.clone());
                    thread_resources.notices.push(CaptureEvent::Warning { text });
                }
                let held = std::mem::take(&mut self.learning);
                self.give_up(held);
                return;
            }
        };
        tracing::debug!(
            source = %self.source.endpoint,
            frame_bytes = facts.frame_bytes,
            flows = facts.flows.len(),
            frames_per_second = facts.frames_per_second,
            "the first datagrams agree"
        );
        let slack = if facts.frame_bytes == 0 { 1 << 16 } else { 0 };
        let context = self.openings.back().expect("a scan was begun").clone();
        let mut pool = Pool::new(self.region.clone(), cut.block_bytes as usize, slack);
        pool.feed(&context.taps);
        self.pool = Some(pool);
        self.geometry = Some(cut);
        let shape = StreamLayout {
            number: self.number,
            name: self.source.name.clone(),
            source: self.source.endpoint.to_string(),
            stripped_bytes: strip,
            geometry: cut,
            fill: self.source.fill,
        };
        let decision = self.learning.decide(&self.source, &facts, thread_resources.now);
        if self.source.packet_number && facts.packet_number.is_none() {
            let text = format!(
                "{}: the 8 bytes before its frames hold no packet number that counts them. The frames are recorded, \
                 and are counted by their time alone",
                self.source.endpoint
            );
            thread_resources.notices.push(CaptureEvent::Warning { text });
        }
        match decision {
            Decision::Indexed(count, first) => {
                let indexed = Reassembler::new(shape, count, first, context);
                self.open_stream(CaptureStream::Indexed(Box::new(indexed)), thread_resources);
            }
            Decision::Unindexed(flows, pattern) => {
                let shape = StreamLayout { fill: Fill::Omit, ..shape };
                let mut unindexed = SequentialStream::new(shape, flows, pattern, context);
                if let Threads::Listed(list) = &self.source.threads {
                    unindexed.keep_to(facts.flows[0].0, list.clone());
                }
                if self.source.frame_bytes.is_some() {
                    unindexed.exclude_other_lengths();
                }
                unindexed.expect(&self.learning);
                self.open_stream(CaptureStream::Unindexed(Box::new(unindexed)), thread_resources);
            }
            Decision::Split => {}
        }
        self.facts = Some(facts);
        let first = std::mem::take(&mut self.learning);
        if matches!(self.source.format, SourceFormat::Packets { .. }) {
            for datagram in first.datagrams() {
                let _ = self.open_packets(datagram, thread_resources);
            }
        } else if self.splits() {
            self.split_first(&first, thread_resources);
        }
        if self.streams.is_empty() {
            // None of them opened a stream. Sorting them now would decide anew.
            self.give_up(first);
            return;
        }
        for datagram in first.datagrams() {
            self.sort(datagram, thread_resources);
        }
    }

    /// Opens the streams of all threads among the first datagrams.
    fn split_first(&mut self, first: &Detector, thread_resources: &mut ThreadResources<'_>) {
        let strip = stripped_bytes(&self.source) as usize;
        for datagram in first.datagrams() {
            let (head, frame) = datagram.split_at(strip.min(datagram.len()));
            let bytes = datagram.len();
            let owned = self.streams.iter().any(|stream| stream.owns(head, frame, bytes));
            let unwanted = self.key_of(datagram).is_none_or(|(key, _)| excludes(&self.source, key));
            if !owned && !unwanted {
                let why = self.split_off(datagram, first, thread_resources).err();
                if let Some(why) = why.filter(|why| *why != Unopened::Invalid) {
                    let key = self.key_of(datagram).map(|(key, _)| key);
                    key.into_iter()
                        .for_each(|key| self.warn_of_unopened(key, why, thread_resources));
                }
            }
        }
    }

    /// Opens a stream for a new thread, from the earliest of the first datagrams on.
    fn split_off(
        &mut self,
        datagram: &[u8],
        first: &Detector,
        thread_resources: &mut ThreadResources<'_>,
    ) -> Result<usize, Unopened> {
        if self.streams.len() >= MOST_STREAMS {
            return Err(Unopened::Streams);
        }
        let strip = stripped_bytes(&self.source);
        let codec = codec(&self.source, thread_resources.now).ok_or(Unopened::Invalid)?;
        let (key, header) = self.key_of(datagram).ok_or(Unopened::Invalid)?;
        if header.invalid() {
            return Err(Unopened::Invalid);
        }
        let bytes = key.frame_bytes as usize;
        let rate = self.source.frames_per_second;
        let packet_number = self.facts.as_ref().and_then(|facts| facts.packet_number);
        let mut shape = StreamLayout {
            number: 0,
            name: self.source.name.clone(),
            source: self.source.endpoint.to_string(),
            stripped_bytes: strip,
            geometry: self.geometry_of(key.frame_bytes).ok_or(Unopened::Memory)?,
            fill: self.source.fill,
        };
        let context = self.openings.back().expect("a scan was begun").clone();
        let (station, threads) = (header.station(), vec![header.thread()]);
        let count = FrameIndexer::by_time(codec, station, threads, bytes, rate);
        let mut count = count.behind(strip as usize).beside(packet_number);
        let stream = if self.source.fill == Fill::Omit {
            first.earliest(&mut count, strip as usize).ok_or(Unopened::Rate)?;
            let flows = SubStreams::Threads { codec, frames_per_second: rate, packet_number };
            let pattern = FrameIndexer::by_arrival(strip as usize, bytes);
            (shape.number, shape.name) = self.next_stream(key)?;
            let mut unindexed = SequentialStream::new(shape, flows, pattern, context);
            unindexed.keep_to(header.station(), vec![header.thread()]);
            unindexed.expect(first);
            CaptureStream::Unindexed(Box::new(unindexed))
        } else {
            let first = first.earliest(&mut count, strip as usize).ok_or(Unopened::Rate)?;
            (shape.number, shape.name) = self.next_stream(key)?;
            CaptureStream::Indexed(Box::new(Reassembler::new(shape, count, first, context)))
        };
        self.open_stream(stream, thread_resources);
        Ok(self.streams.len() - 1)
    }

    /// Opens a stream for a packet that belongs to none and tells its own. Returns `None` if the datagram is no such
    /// packet.
    fn open_packets(
        &mut self,
        datagram: &[u8],
        thread_resources: &mut ThreadResources<'_>,
    ) -> Option<Result<usize, Unopened>> {
        let SourceFormat::Packets { format, difi } = self.source.format else { return None };
        let strip = stripped_bytes(&self.source) as usize;
        let packets = format.stream_of(datagram.get(strip..)?)?;
        let (head, frame) = datagram.split_at(strip);
        let owner = |stream: &CaptureStream| stream.owns(head, frame, datagram.len());
        if let Some(owner) = self.streams.iter().position(owner) {
            return Some(Ok(owner));
        }
        if difi
            && let Ok(packet) = Packet::read(frame)
            && let Err(broken) = difi::check(&packet.prologue)
            && !std::mem::replace(&mut self.warned.3, true)
        {
            let text = format!(
                "{}: a stream begins with a packet that breaks the rules of DIFI: {broken}. It is recorded as VITA-49",
                self.source.endpoint
            );
            thread_resources.notices.push(CaptureEvent::Warning { text });
        }
        if self.streams.len() >= MOST_STREAMS || (self.alone && !self.streams.is_empty()) {
            return Some(Err(Unopened::Streams));
        }
        let (Some(name), Some(geometry)) = (self.name_of_packets(packets), self.geometry) else {
            return Some(Err(Unopened::Streams));
        };
        let shape = StreamLayout {
            number: self.next_number.fetch_add(1, Ordering::Relaxed),
            name,
            source: self.source.endpoint.to_string(),
            stripped_bytes: strip as u32,
            geometry,
            fill: Fill::Omit,
        };
        let context = self.openings.back().expect("a scan was begun").clone();
        let pattern = FrameIndexer::by_arrival(strip, 0);
        let kind = SubStreams::Packets(packets);
        let stream = SequentialStream::new(shape, kind, pattern, context);
        self.open_stream(CaptureStream::Unindexed(Box::new(stream)), thread_resources);
        Some(Ok(self.streams.len() - 1))
    }

    /// Returns a name for packets that no stream of the recording has: `4991-000000ab`, `4991-context`.
    fn name_of_packets(&self, packets: PacketStream) -> Option<Name> {
        let name = format!("{}-{packets}", self.source.name);
        let more = (2..=MOST_STREAMS).map(|number| format!("{name}n{number}"));
        std::iter::once(name.clone()).chain(more).find(|name| self.names.claim(name))?.parse().ok()
    }

    /// Returns number and name for the stream of a thread.
    fn next_stream(&self, key: Key) -> Result<(u16, Name), Unopened> {
        let name = self.name_of(key).ok_or(Unopened::Streams)?;
        Ok((self.next_number.fetch_add(1, Ordering::Relaxed), name))
    }

    /// Returns a name for a thread's stream that no stream of the recording has. Two stations may have threads of the
    /// same number, one thread may have frames of two lengths, and another source may have any name.
    fn name_of(&self, key: Key) -> Option<Name> {
        let Key { station, thread, frame_bytes } = key;
        let source = &self.source.name;
        let stranger = !self.splits()
            && self
                .facts
                .as_ref()
                .is_some_and(|facts| facts.flows.iter().all(|it| it.0 != station));
        let names = [
            (!stranger).then(|| format!("{source}t{thread}")),
            Some(format!("{source}s{station}t{thread}")),
            Some(format!("{source}s{station}t{thread}b{frame_bytes}")),
        ];
        let more = (2..=MOST_STREAMS)
            .map(|number| Some(format!("{source}s{station}t{thread}b{frame_bytes}n{number}")));
        names.into_iter().chain(more).flatten().find(|name| self.names.claim(name))?.parse().ok()
    }

    /// Returns the division of frames of this length into blocks, with blocks about as large as those of the first
    /// frames. Frames that need larger blocks use runs of blocks, unless the memory holds too few.
    fn geometry_of(&self, frame_bytes: u32) -> Option<Geometry> {
        let first = self.geometry?;
        if first.frame_bytes == frame_bytes {
            return Some(first);
        }
        let wanted = first.block_bytes.into();
        let cut = Geometry::of_frames(frame_bytes, wanted, self.chunk_bytes).ok()?;
        let few = few_blocks(cut.block_bytes, self.region.bytes(), LEAST_BLOCKS);
        few.is_none().then_some(cut)
    }

    fn open_stream(
        &mut self,
        mut stream: CaptureStream,
        thread_resources: &mut ThreadResources<'_>,
    ) {
        let context = self.openings.back().expect("a scan was begun").clone();
        // The earlier scans ended without the stream.
        while self.openings.len() > 1 {
            self.openings.pop_front();
        }
        let part = stream.part_mut(context.uuid).expect("just begun");
        std::mem::take(&mut self.early).tell(part);
        let (shape, format, metrics) =
            (stream.shape().clone(), stream.format(), stream.metrics().clone());
        self.told.push(format.clone());
        thread_resources.notices.push(CaptureEvent::Opened {
            scan: context.uuid,
            shape,
            format,
            metrics,
        });
        self.streams.push(stream);
    }

    /// For tests: lets all timeouts expire.
    #[cfg(test)]
    pub(super) fn hurry(&mut self) {
        self.learning.hurry();
        self.cut_at = self.cut_at.map(|_| Instant::now());
    }

    /// For tests: makes the drop counter unreadable for the newest scan.
    #[cfg(test)]
    pub(super) fn blind(&mut self) {
        self.drops.blind();
    }

    /// For tests: the number of scans with remembered counters.
    #[cfg(test)]
    pub(super) fn drops_held(&self) -> usize {
        self.drops.held()
    }

    /// The pool, for tests that take blocks away.
    #[cfg(test)]
    pub(super) fn pool_mut(&mut self) -> Option<&mut Pool> {
        self.pool.as_mut()
    }

    /// Processes a reply of a writer, if it belongs to a stream of this port.
    pub fn answer(
        &mut self,
        returned: SinkReply,
        thread_resources: &mut ThreadResources<'_>,
    ) -> Option<SinkReply> {
        let (scan, number) = returned.stream();
        let Some(part) = self.part_mut(number, scan) else {
            return Some(returned);
        };
        let Settled { written, lost } = thread_resources.chain.settle(&mut part.cursor, returned);
        let lost: Vec<Block> = lost.into_iter().map(|filled| part.lose(filled)).collect();
        let pool = self.pool.as_mut().expect("a stream has a pool");
        lost.into_iter().for_each(|block| pool.put(block));
        for WrittenBlock { block, stream_ref, bytes } in written {
            pool.put_written(block, &stream_ref, bytes);
        }
        None
    }

    fn part_mut(&mut self, number: u16, scan: Uuid) -> Option<&mut ScanStream> {
        let mut streams = self.streams.iter_mut();
        streams.find(|stream| stream.shape().number == number)?.part_mut(scan)
    }

    /// Closes the scan streams whose blocks are all settled.
    fn take_complete(&mut self, thread_resources: &mut ThreadResources<'_>) {
        for place in 0..self.streams.len() {
            while let Some((part, counted_by)) =
                self.streams[place].take_complete(thread_resources.now)
            {
                let stream = &self.streams[place];
                let (format, number) = (stream.format(), stream.shape().number);
                let drop_counters = self.drop_counters(part.context.uuid);
                close(part, counted_by, drop_counters, format, number, thread_resources);
            }
        }
        self.forget_drops();
    }

    /// Ends the last scan.
    pub fn end(&mut self, thread_resources: &mut ThreadResources<'_>) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let said = self.read_drops(thread_resources);
        self.drops.end(&said);
        self.settle_unowned(Upcoming::Nothing, thread_resources);
        if let Some(pool) = &mut self.pool {
            let mut resources = thread_resources.lend(pool);
            self.streams.iter_mut().for_each(|stream| stream.end(&mut resources));
        }
        if self.streams.is_empty()
            && let Some(context) = self.openings.pop_back()
        {
            self.tell_silent(&context, thread_resources);
            let why = self.refused.take();
            thread_resources.notices.extend(why.map(|why| CaptureEvent::Broken { why }));
        }
    }

    fn tell_silent(&mut self, context: &ScanContext, thread_resources: &mut ThreadResources<'_>) {
        let Early { foreign, excluded, unrecorded, .. } = std::mem::take(&mut self.early);
        let mut account = Box::new(Account::new(self.source.counted_by()));
        (account.foreign, account.excluded, account.unrecorded) = (foreign, excluded, unrecorded);
        (account.drop_counters, account.unavailable_counters) = self.drop_counters(context.uuid);
        let number = self.number();
        let (scan, source) = (context.uuid, self.source.endpoint.to_string());
        thread_resources.notices.push(CaptureEvent::Silent { scan, number, source, account });
    }

    /// True if every scan stream of every stream is closed.
    pub fn is_done(&self) -> bool {
        self.ended && self.streams.iter().all(CaptureStream::is_done)
    }
}

/// Closes a scan stream: tells the members, and sends the account to the supervisor.
fn close(
    mut part: ScanStream,
    counted_by: CountedBy,
    (drop_counters, unavailable): (Vec<DropCounter>, Vec<UnavailableCounter>),
    format: Format,
    number: u16,
    thread_resources: &mut ThreadResources<'_>,
) {
    let gaps = std::mem::take(&mut part.pending);
    thread_resources.chain.finish(&mut part.cursor, gaps);
    let (blocks, bytes) = part.cursor.written();
    let scan = part.context.uuid;
    let listing = Box::new(part.history.listing());
    if !listing.changes.is_empty() {
        thread_resources.notices.push(CaptureEvent::Context { scan, number, listing });
    }
    let (account, shares) = part.accounts(counted_by, &format, |account| {
        account.drop_counters.clone_from(&drop_counters);
        account.unavailable_counters.clone_from(&unavailable);
    });
    let account = Box::new(account);
    let ended = CaptureEvent::Ended { scan, number, format, blocks, bytes, account, shares };
    thread_resources.notices.push(ended);
}

/// The resources of a capture thread that its ports share.
pub struct ThreadResources<'a> {
    /// The queues to the members.
    pub chain: &'a mut SinkChain,
    /// Copies of datagrams.
    pub staging: &'a mut super::staging::StagingBuffer,
    /// Events for the supervisor.
    pub notices: &'a mut Vec<CaptureEvent>,
    /// The time of this round.
    pub now: fullbore_time::Tai,
}

impl ThreadResources<'_> {
    fn lend<'b>(&'b mut self, pool: &'b mut Pool) -> CaptureResources<'b> {
        CaptureResources { pool, chain: self.chain, staging: self.staging, now: self.now }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use fullbore_linux::ring::{Notifier, WriterMetrics, reply_queue};
    use fullbore_time::Tai;

    use super::*;
    use crate::staging::StagingBuffer;
    use crate::striping::{Striper, WriterQueue};

    #[test]
    fn a_batch_of_strangers_is_no_empty_socket() {
        let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let endpoint = format!("udp://{free}?format=raw&source=127.0.0.2");
        let source = UdpSource::parse(&endpoint).unwrap().remove(0);
        let numbers = Arc::new(AtomicU16::new(1));
        let mut port = Port::open(source, 0, numbers, 1 << 20, 1 << 20, 1 << 20).unwrap();
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..5 {
            stranger.send_to(&[1; 100], free).unwrap();
        }
        let (commands, _writer) = rtrb::RingBuffer::new(1);
        let (_back, returned) = reply_queue(1);
        let (metrics, wake) =
            (Arc::new(WriterMetrics::default()), Arc::new(Notifier::new().unwrap()));
        let queue = WriterQueue::new(commands, returned, metrics, wake, 1);
        let mut chain = SinkChain::of_stripers(vec![Striper::new(vec![queue])]);
        let (mut staging, mut notices) = (StagingBuffer::new(), Vec::new());
        let (chain, staging, notices) = (&mut chain, &mut staging, &mut notices);
        let mut thread_resources = ThreadResources { chain, staging, notices, now: Tai(0) };
        assert!(
            port.receive(&mut thread_resources).unwrap() > 0,
            "what waits behind them would not be read"
        );
        while port.receive(&mut thread_resources).unwrap() > 0 {}
    }
}
