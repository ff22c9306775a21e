//! A PandA as a source. Its capture thread takes the supervisor's commands like any other.
//!
//! ```text
//! supervisor ──Begin(scan n)──► output ◄──acquisition n── capture thread ──blocks──► striper ──► members, or file
//!      ▲                          │
//!      └── Opened, Ended, Closed ─┘      an acquisition that has ended ends its scan
//! ```
//!
//! Samples go on in the order of arrival, without the headers of their frames, so chunk files are arrays of packed
//! structures of one length. Gaps between samples are in the account.
//!
//! A [`Dump`] of a data port is read like a PandA.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::time::{Duration, Instant};

use super::{CaptureLink, Ending, MemoryNeeds, OpenContext, OpenRequest, OpenSource};
use crate::error::RecordError;
use fullbore_capture::{
    Capture, CaptureCommand, CaptureEvent, ChainCursor, ScanContext, Settled, Share, SinkChain,
    SinkShare, StreamLayout, StreamMetrics, WrittenBlock,
};
use fullbore_core::account::{Account, CountedBy};
use fullbore_core::hint::{Hint, with_causes};
use fullbore_core::layout::{BLOCK_BYTES, Geometry};
use fullbore_core::manifest::{Fill, Format};
use fullbore_core::name::Name;
use fullbore_core::panda::{AcquisitionResult, PandaSource, SourceEvent, SourceReport};
use fullbore_core::partial_block::BlockState;
use fullbore_formats::panda::control::Settings as PandaSettings;
use fullbore_linux::clock::Clock;
use fullbore_linux::ring::{Block, FullBlock, Pool, StreamRef, TapFeed};
use fullbore_linux::sys::memory::Region;
use fullbore_panda::capture::{
    self, Acquisition, AcquisitionSink, Batch, Described, Device, Dump, Panda, Settings,
    SinkClosed, Source, SourceEnd, StopRequest,
};

/// The longest sleep of the thread while it waits. Commands and the replies of the writers end it; settings do not.
const LOOK: Duration = Duration::from_millis(10);

/// The longest wait for the settings of an acquisition that has ended.
const LAST_ANSWER: Duration = Duration::from_secs(2);

/// Default block memory of a PandA: two seconds at the rate of its link.
const POOL_BYTES: u64 = 256 << 20;

/// The least block memory of a PandA: the largest frame of today's servers, the frame before it, and the blocks being
/// written.
const LEAST_POOL_BYTES: u64 = 32 << 20;

/// The configuration of a PandA source.
#[derive(Clone, Debug)]
pub struct PandaConfig {
    /// The source.
    pub source: PandaSource,
    /// True if the recorder arms it at the beginning and after each acquisition.
    pub arm: bool,
    /// The time for which the recorder tries to restore a lost connection.
    pub reconnect: Duration,
    /// The stored bytes of a data port, which are read in place of the PandA.
    pub dump: Option<PathBuf>,
}

impl PandaConfig {
    /// True if the recorder arms it.
    pub fn arms(&self) -> bool {
        self.source.arm.unwrap_or(self.arm)
    }
}

impl super::Source for PandaConfig {
    fn name(&self) -> &Name {
        &self.source.name
    }

    fn endpoint(&self) -> String {
        self.source.to_string()
    }

    /// An acquisition brings its own format.
    fn has_varying_frames(&self) -> bool {
        true
    }

    fn format(&self) -> Format {
        format(String::new(), None, None)
    }

    /// An account without an acquisition counts nothing.
    fn counted_by(&self) -> CountedBy {
        CountedBy::Nothing
    }

    fn memory(&self) -> MemoryNeeds {
        MemoryNeeds::Fixed { default: POOL_BYTES, least: LEAST_POOL_BYTES }
    }

    fn ending(&self) -> Ending {
        Ending::Acquisition
    }

    fn identity(&self) -> Option<String> {
        let PandaSource { host, data_port, .. } = &self.source;
        self.dump.is_none().then(|| format!("{}:{data_port}", host.to_ascii_lowercase()))
    }
}

/// A PandA that answers, or the stored bytes of one.
enum PandaDevice {
    Panda(Box<Panda>),
    Dump(Dump),
}

impl PandaDevice {
    /// Connects to the PandA. Refuses one that does not answer.
    fn reach(config: &PandaConfig) -> Result<Self, RecordError> {
        if let Some(path) = &config.dump {
            return Ok(Self::Dump(Dump::new(path.clone())));
        }
        let mut device = Panda::new(config.source.clone(), capture::PATIENCE);
        device.reach(config.arms())?;
        Ok(Self::Panda(Box::new(device)))
    }
}

/// A PandA with its connections and block memory.
pub(crate) struct OpenPanda {
    config: PandaConfig,
    device: PandaDevice,
    pool: Pool,
    /// The place of its stream in the manifest.
    number: u16,
    chunk_bytes: u64,
    /// The number of acquisitions; `None`: until a stop.
    acquisitions: Option<u64>,
    is_one_of_several: bool,
}

impl OpenPanda {
    /// Connects to the PandA, and allocates its block memory.
    pub fn open(
        config: PandaConfig,
        request: &OpenRequest<'_>,
        context: &OpenContext,
    ) -> Result<Self, RecordError> {
        Ok(Self {
            device: PandaDevice::reach(&config)?,
            pool: pool(request.pool_bytes, request.node).map_err(RecordError::Thread)?,
            number: request.number.expect("the stream of a PandA is known"),
            chunk_bytes: context.chunk_bytes,
            acquisitions: context.scans,
            is_one_of_several: context.acquisitions > 1,
            config,
        })
    }
}

impl OpenSource for OpenPanda {
    fn memory(&self) -> Vec<Arc<Region>> {
        vec![self.pool.region().clone()]
    }

    fn most_blocks(&self) -> usize {
        self.pool.blocks()
    }

    fn identity(&self) -> Option<String> {
        match &self.device {
            PandaDevice::Panda(device) => device.reached_at().map(|address| address.to_string()),
            PandaDevice::Dump(_) => None,
        }
    }

    fn start(self: Box<Self>, mut link: CaptureLink) -> Result<Capture, RecordError> {
        let Self { config, device, pool, number, chunk_bytes, acquisitions, is_one_of_several } =
            *self;
        let (orders, from_supervisor) = mpsc::channel();
        let metrics = Arc::new(StreamMetrics::default());
        let chain = link.chain();
        let settings = Settings { acquisitions, arm: config.arms(), reconnect: config.reconnect };
        let output = PandaOutput {
            number,
            orders: from_supervisor,
            notices: link.events,
            chain,
            source: config.source,
            is_one_of_several,
            chunk_bytes,
            hand_on_after: link.hand_on_after,
            metrics: metrics.clone(),
            clock: Clock::new(),
            stop_request: StopRequest::Go,
            context: None,
            open: None,
            free: VecDeque::new(),
            taps: None,
        };
        let stride = BLOCK_BYTES as usize;
        let work: Box<dyn FnOnce() + Send> = match device {
            PandaDevice::Panda(device) => {
                let source = Source::new(*device, output, pool, stride, settings, metrics);
                Box::new(move || capture(source))
            }
            PandaDevice::Dump(device) => {
                let source = Source::new(device, output, pool, stride, settings, metrics);
                Box::new(move || capture(source))
            }
        };
        Capture::spawn(format!("panda{}", link.number), orders, link.thread_config, work)
            .map_err(RecordError::Thread)
    }
}

/// Captures until the recording ends.
fn capture<D: Device>(source: Source<D, PandaOutput>) {
    let (mut output, ended) = source.run();
    if let SourceEnd::Failed(error) = ended {
        let hint = error.hint().map_or_else(String::new, |hint| format!(" ({hint})"));
        let why = with_causes(&error) + &hint;
        let why =
            if output.is_one_of_several { format!("{}: {why}", output.source.name) } else { why };
        output.tell(CaptureEvent::Broken { why });
    }
    output.farewell();
}

/// The output of a PandA's capture thread to the members.
struct PandaOutput {
    /// The stream's place in the manifest.
    number: u16,
    orders: Receiver<CaptureCommand>,
    notices: Sender<CaptureEvent>,
    chain: SinkChain,
    source: PandaSource,
    /// True if the recording has other PandAs, so that messages name this one.
    is_one_of_several: bool,
    chunk_bytes: u64,
    hand_on_after: Option<Duration>,
    metrics: Arc<StreamMetrics>,
    clock: Clock,
    stop_request: StopRequest,
    /// A scan that has begun, without an acquisition so far.
    context: Option<Arc<ScanContext>>,
    /// The stream of the scan being recorded.
    open: Option<OpenStream>,
    free: VecDeque<Block>,
    /// Keeps the newest written block for taps, from the first scan on.
    taps: Option<TapFeed>,
}

/// The stream of a scan while its acquisition runs.
struct OpenStream {
    context: Arc<ScanContext>,
    cursor: ChainCursor,
    header: String,
    settings: Described,
    /// True if the supervisor knows the settings, or that they will never come.
    described: bool,
    sample_bytes: u32,
    /// The number of samples sent to members, and of those that no member accepted.
    samples: u64,
    lost: u64,
}

impl OpenStream {
    /// The account of an acquisition of which these samples are recorded.
    fn account(&self, closed: &AcquisitionResult) -> Account {
        let mut account = closed.account.clone();
        account.bytes = account.terms.written * u64::from(self.sample_bytes);
        account
    }

    /// What each sink has of the acquisition, if there are several.
    fn shares(
        &self,
        closed: &AcquisitionResult,
        settings: Option<&PandaSettings>,
    ) -> Vec<SinkShare> {
        let share = |((blocks, bytes), share): ((u64, u64), &Share)| {
            let lacks: u64 = share.lost_frames();
            let lacking = (lacks > 0).then(|| {
                let mut closed = closed.clone();
                closed.keep(self.samples - self.lost - lacks, "the sink took no more");
                let account = self.account(&closed);
                Box::new((format(self.header.clone(), settings, Some(closed)), account))
            });
            SinkShare { blocks, bytes, lacking }
        };
        self.cursor.shares().map(share).collect()
    }
}

impl PandaOutput {
    fn obey(&mut self) {
        loop {
            match self.orders.try_recv() {
                Ok(order) => self.take(order),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    self.take(CaptureCommand::Abort);
                    return;
                }
            }
        }
    }

    fn take(&mut self, order: CaptureCommand) {
        match order {
            CaptureCommand::Begin(context) => {
                self.taps.get_or_insert_with(|| context.taps.feed());
                if let Some(unused) = self.context.replace(context) {
                    self.silent(&unused);
                }
            }
            CaptureCommand::Stop => self.stop_request = self.stop_request.max(StopRequest::Stop),
            CaptureCommand::Abort => {
                self.stop_request = StopRequest::Abort;
                self.chain.abort();
            }
        }
    }

    /// Reports a scan without an acquisition.
    fn silent(&self, context: &ScanContext) {
        let scan = context.uuid;
        let (number, source) = (Some(self.number), String::new());
        let account = Box::new(Account::new(CountedBy::Nothing));
        self.tell(CaptureEvent::Silent { scan, number, source, account });
        self.tell(CaptureEvent::Closed { scan });
    }

    /// Reports the end of the source in each scan that begins, until the supervisor orders the end.
    fn farewell(&mut self) {
        loop {
            self.obey();
            if let Some(unused) = self.context.take() {
                self.silent(&unused);
            }
            if self.stop_request > StopRequest::Go {
                break;
            }
            match self.orders.recv() {
                Ok(order) => self.take(order),
                Err(_) => break,
            }
        }
        while !self.chain.all_sent() {
            self.take_returned();
            std::thread::park_timeout(LOOK);
        }
        self.tell(CaptureEvent::Done);
    }

    fn tell(&self, notice: CaptureEvent) {
        // The supervisor is gone; ignore the error.
        let _ = self.notices.send(notice);
    }

    /// Takes blocks that the writers return.
    fn take_returned(&mut self) {
        while let Some(returned) = self.chain.take_returned() {
            let Some(open) = &mut self.open else {
                self.free.push_back(returned.into_block());
                continue;
            };
            let Settled { written, lost } = self.chain.settle(&mut open.cursor, returned);
            for WrittenBlock { block, stream_ref, bytes } in written {
                match &mut self.taps {
                    Some(taps) => {
                        let free = &mut self.free;
                        taps.written(block, &stream_ref, bytes, |block| free.push_back(block));
                    }
                    None => self.free.push_back(block),
                }
            }
            for filled in lost {
                open.lost += u64::from(filled.frames);
                self.free.push_back(filled.block);
            }
        }
    }

    /// Sends new settings to the manifest at once, so that they survive a crash. A file begins with them, so it is told
    /// too if they will never come.
    fn tell_settings(&mut self) {
        let waits = |open: &&mut OpenStream| !open.described && open.settings.is_settled();
        let Some(open) = self.open.as_mut().filter(waits) else { return };
        open.described = true;
        let settings = open.settings.wait(Duration::ZERO).and_then(Result::ok);
        let (scan, header) = (open.context.uuid, open.header.clone());
        let format = format(header, settings.as_deref(), None);
        self.tell(CaptureEvent::Described { scan, number: self.number, format });
    }

    /// Returns the division of the stream's samples into blocks.
    fn geometry(&self, sample_bytes: u32) -> Result<Geometry, String> {
        let geometry = Geometry::of_frames(sample_bytes, BLOCK_BYTES, self.chunk_bytes)
            .map_err(|error| error.to_string())?;
        match u64::from(geometry.block_bytes) > BLOCK_BYTES {
            true => Err(format!("samples of {sample_bytes} bytes need blocks that are too large")),
            false => Ok(geometry),
        }
    }

    /// Waits for the scan that the supervisor begins for this acquisition.
    fn wait_for_a_scan(&mut self) -> Option<Arc<ScanContext>> {
        loop {
            self.obey();
            let ended = self.stop_request > StopRequest::Go || self.chain.has_lost_a_writer();
            if self.context.is_some() || ended {
                return self.context.take();
            }
            self.take_returned();
            std::thread::park_timeout(LOOK);
        }
    }
}

impl AcquisitionSink for PandaOutput {
    fn stop_request(&mut self) -> StopRequest {
        self.obey();
        self.tell_settings();
        self.stop_request
    }

    fn block_bytes(&self, sample_bytes: usize, stride: usize) -> usize {
        let whole = stride / sample_bytes * sample_bytes;
        self.geometry(sample_bytes as u32).map_or(whole, |geometry| geometry.block_bytes as usize)
    }

    fn hand_on_after(&self) -> Option<Duration> {
        self.hand_on_after
    }

    /// True if a scan has begun. An acquisition that begins before the others have ended theirs must wait for its scan.
    fn is_ready(&mut self) -> bool {
        self.obey();
        self.context.is_some()
    }

    fn begin(&mut self, acquisition: &Arc<Acquisition>) -> Result<(), SinkClosed> {
        let sample_bytes = acquisition.header.sample_bytes;
        let geometry = self.geometry(sample_bytes).map_err(|why| {
            self.tell(CaptureEvent::Broken { why });
            SinkClosed
        })?;
        let context = self.wait_for_a_scan().ok_or(SinkClosed)?;
        let scan = context.uuid;
        let shape = StreamLayout {
            number: self.number,
            name: self.source.name.clone(),
            source: self.source.to_string(),
            stripped_bytes: 0,
            geometry,
            fill: Fill::Omit,
        };
        let directory = context.directory(shape.number, &shape.name);
        let stream_ref = Arc::new(StreamRef { scan, number: self.number, directory, geometry });
        let header = acquisition.text.clone();
        let format = format(header.clone(), None, None);
        let metrics = self.metrics.clone();
        self.metrics.bytes.store(0, Relaxed);
        self.metrics.frames_per_second.store(0, Relaxed);
        self.tell(CaptureEvent::Opened { scan, shape, format, metrics });
        let cursor = ChainCursor::new(stream_ref).without_gaps();
        self.open = Some(OpenStream {
            context,
            cursor,
            header,
            settings: acquisition.settings.clone(),
            described: false,
            sample_bytes,
            samples: 0,
            lost: 0,
        });
        self.tell_settings();
        Ok(())
    }

    fn filled(&mut self, batch: Batch) {
        let Some(open) = &mut self.open else {
            self.free.push_back(batch.block);
            return;
        };
        let frames = (batch.bytes / open.sample_bytes as usize) as u32;
        if open.samples == 0 {
            let rate = f64::from(frames) / batch.over.as_secs_f64();
            self.metrics.frames_per_second.store(rate as u64, Relaxed);
        }
        let filled = FullBlock {
            block: batch.block,
            stream_ref: open.cursor.stream_ref().clone(),
            sequence: open.cursor.take_sequence(),
            chunk: 0,
            offset: 0,
            bytes: batch.bytes as u32,
            frames,
            present: frames,
            invalid: 0,
            first: open.samples as i64,
            time: None,
            seen: self.clock.now(),
            gaps: Vec::new(),
            lengths: Vec::new(),
            crc: None,
        };
        open.samples += u64::from(frames);
        if let Some(lost) = self.chain.dispatch(&mut open.cursor, filled) {
            open.lost += u64::from(lost.frames);
            self.free.push_back(lost.block);
        }
    }

    fn keep(&mut self, samples: &[u8], old: Duration) {
        let Some(open) = &mut self.open else { return };
        let now = self.clock.now();
        let oldest = now.plus_ns(-i64::try_from(old.as_nanos()).unwrap_or(i64::MAX));
        if !self.chain.is_journal_due(&mut open.cursor, oldest, now) {
            return;
        }
        let frames = samples.len() as u32 / open.sample_bytes;
        let first = open.samples as i64;
        let piece = BlockState {
            first,
            bytes: samples.len() as u32,
            frames,
            present: frames,
            invalid: 0,
            time: None,
            seen: now,
            gaps: Vec::new(),
            lengths: Vec::new(),
        };
        let mut copy = |_, range: Range<u32>| {
            (range.start, samples[range.start as usize..range.end as usize].to_vec())
        };
        let open_blocks = [(first, piece.bytes)];
        let mut describe = || vec![piece.clone()];
        self.chain.journal_partial_blocks(
            &mut open.cursor,
            now,
            &open_blocks,
            &mut copy,
            &mut describe,
        );
    }

    fn emptied(&mut self, wait: Duration) -> Result<Option<Block>, SinkClosed> {
        let since = Instant::now();
        loop {
            self.take_returned();
            let block = self.free.pop_front().or_else(|| self.taps.as_mut()?.take_back());
            if self.chain.has_lost_a_writer() {
                return Err(SinkClosed);
            }
            let left = wait.saturating_sub(since.elapsed());
            if block.is_some() || left.is_zero() {
                return Ok(block);
            }
            std::thread::park_timeout(left.min(LOOK));
        }
    }

    fn report(&mut self, event: SourceEvent) {
        self.tell(CaptureEvent::Source(SourceReport { stream: self.source.name.clone(), event }));
    }

    fn end(&mut self, mut closed: AcquisitionResult) {
        // All blocks of the stream are written or dropped before its account is sent.
        while self.open.as_ref().is_some_and(|open| !open.cursor.settled()) {
            self.obey();
            self.tell_settings();
            self.take_returned();
            if self.chain.has_lost_a_writer() {
                // The supervisor leaves the scan for `recover`.
                return;
            }
            std::thread::park_timeout(LOOK);
        }
        if let Some(open) = &self.open {
            // The manifest gets them with the end, unless they take too long.
            open.settings.wait(LAST_ANSWER);
        }
        self.tell_settings();
        let Some(mut open) = self.open.take() else { return };
        let scan = open.context.uuid;
        closed.notes.extend(open.settings.note());
        let settings = open.settings.wait(Duration::ZERO).and_then(Result::ok);
        let shares = open.shares(&closed, settings.as_deref());
        closed.keep(open.samples - open.lost, "no member took them");
        self.metrics.overrun.store(closed.account.terms.overrun, Relaxed);
        let account = open.account(&closed);
        self.chain.finish(&mut open.cursor, Vec::new());
        let (blocks, bytes) = open.cursor.written();
        self.tell(CaptureEvent::Ended {
            scan,
            number: self.number,
            format: format(open.header, settings.as_deref(), Some(closed)),
            blocks,
            bytes,
            account: Box::new(account),
            shares,
        });
        self.tell(CaptureEvent::Closed { scan });
    }
}

/// Returns the manifest's description of the samples.
fn format(
    header: String,
    settings: Option<&PandaSettings>,
    closed: Option<AcquisitionResult>,
) -> Format {
    let settings = settings.cloned().map(Box::new);
    match closed {
        None => Format::Panda {
            header,
            ending: None,
            captured: None,
            connections: Vec::new(),
            notes: Vec::new(),
            settings,
        },
        Some(closed) => Format::Panda {
            header,
            ending: Some(closed.ending),
            captured: closed.captured,
            connections: closed.connections,
            notes: closed.notes,
            settings,
        },
    }
}

/// Allocates block memory for a PandA.
fn pool(bytes: u64, node: Option<u32>) -> io::Result<Pool> {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    let region = Region::for_blocks(bytes, node)?;
    Ok(Pool::new(Arc::new(region), BLOCK_BYTES as usize, 0))
}
