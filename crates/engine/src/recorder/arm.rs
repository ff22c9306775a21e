//! Arming: all steps that can fail, before recording begins.

use std::path::Path;
use std::sync::atomic::AtomicU16;
use std::sync::{Arc, mpsc};

use fullbore_capture::SinkQueues;
use fullbore_capture::{Capture, CaptureEvent, StreamNames, WriterQueue};
use fullbore_core::manifest::{HostSetup, SourceEngine};
use fullbore_linux::clock::Clock;
use fullbore_linux::ring::{Notifier, WriterEvent, WriterMetrics, reply_queue};
use fullbore_linux::sys::memory::Region;
use fullbore_linux::writer_thread::WriterThread;
use fullbore_store as store;
use fullbore_time::Tai;

use super::check::{check, needs, refuse_twins};
use super::config::RecordingConfig;
use super::log::logged;
use super::memory::{for_blocks, pool_sizes, tell_of_it};
use super::scan::ActiveScan;
use super::supervisor::Supervisor;
use super::thread_placement::{ThreadPlacement, host_setup, judge_memory, raise_files, states};
use crate::drop_counters;
use crate::error::RecordError;
use crate::event::{Armed, Event, EventHandler, MemberState};
use crate::sink::{Sink, SinkReplies, Sinks, Target, WriterLink};
use crate::source::{self, CaptureLink, MemoryNeeds, OpenContext, OpenRequest, OpenSource};

/// A recording that is armed.
pub struct Recorder {
    pub(super) supervisor: Supervisor,
}

impl Recorder {
    /// Opens, maps and faults in everything, claims the first scan in the sink, and starts to listen.
    pub fn arm(config: RecordingConfig, tell: &mut EventHandler<'_>) -> Result<Self, RecordError> {
        let tell: &mut EventHandler<'_> = &mut logged(tell);
        check(&config)?;
        let mut sinks = Sinks::open(&config.sinks, &needs(&config), tell)?;
        tell_of_it(&config, for_blocks(&config), tell)?;
        raise_files(&config, sinks.writers(), tell);
        let places = ThreadPlacement::plan(&config, &targets_of(&sinks))?;
        let sources = open_sources(&config, &places, &sinks)?;
        sources.iter().filter_map(|it| it.reads()).try_for_each(|it| sinks.refuse_source(&it))?;
        for text in sources.iter().flat_map(|source| source.warnings()) {
            tell(&Event::Warning { text });
        }
        let engines: Vec<SourceEngine> = sources.iter().flat_map(|it| it.engines()).collect();
        for it in &engines {
            tell(&Event::Note { text: format!("{} is {it}", it.source) });
        }
        sinks.prepare(tell)?;
        let memory: Vec<Arc<Region>> = sources.iter().flat_map(|it| it.memory()).collect();
        let armed = armed(&config, &sinks, &sources, &memory, &places);
        let mut wires = Wires::new();
        let writers = wires.start_writers(&config, &places, &mut sinks, &sources, &memory)?;
        let clock = Clock::new();
        let mut scan = open_first(&config, &sinks, clock.now(), tell)?;
        let mut threads = wires
            .start_captures(&config, &places, &sinks, writers, sources)
            .inspect_err(|_| undone(scan.sinks.discard()))?;
        let mut armed = Armed { at: scan.manifest.armed, ..armed };
        armed.threads = states(&threads);
        places.judge(&armed.threads, tell);
        armed.pages = judge_memory(&memory, &threads, tell);
        drop(memory);
        let host_setup = host_setup(
            &armed.placement,
            &armed.threads,
            armed.pages,
            engines,
            config.findings.clone(),
        );
        scan.manifest.host_setup = Some(host_setup.clone());
        threads.host_setup = Some(host_setup);
        threads.receive_buffer = least_receive_buffer(&armed);
        scan.shared = drop_counters::CounterSnapshot::take(Path::new("/"));
        let supervisor = Supervisor::new(config, sinks, threads, scan, clock);
        supervisor.begin_unless_it_waits();
        tell(&Event::Armed(armed));
        Ok(Self { supervisor })
    }
}

/// Builds the event that reports the armed recording.
fn armed(
    config: &RecordingConfig,
    sinks: &Sinks,
    sources: &[Box<dyn OpenSource>],
    memory: &[Arc<Region>],
    places: &ThreadPlacement,
) -> Armed {
    // Each thread lists its sources in the order of the configuration.
    let mut buffers: Vec<_> = sources.iter().map(|it| it.receive_buffers().into_iter()).collect();
    let described = config.sources.iter().zip(&places.of_source);
    let sources =
        described.map(|(source, &thread)| (source.endpoint(), buffers[thread].next().unwrap_or(0)));
    let target = |(number, target)| target_state(target, None, sinks.free_bytes(number));
    Armed {
        scan: config.scans.first().expect("checked: there is a scan").clone(),
        at: Tai(0),
        begins: config.start,
        sources: sources.collect(),
        pool_bytes: memory.iter().map(|region| region.bytes() as u64).sum(),
        locked: memory.iter().all(|region| region.locked()),
        pages: None,
        placement: places.placement.clone(),
        threads: Vec::new(),
        members: sinks.targets().enumerate().map(target).collect(),
    }
}

/// Returns the bytes of the smallest receive buffer; 0 without sockets.
fn least_receive_buffer(armed: &Armed) -> u64 {
    let bytes = armed.sources.iter().map(|(_, bytes)| *bytes as u64);
    bytes.filter(|bytes| *bytes > 0).min().unwrap_or(0)
}

/// Claims the first scan in the sink. If a member cannot claim it, everything made for it is removed.
fn open_first(
    config: &RecordingConfig,
    sinks: &Sinks,
    armed: Tai,
    tell: &mut EventHandler<'_>,
) -> Result<ActiveScan, RecordError> {
    let name = config.scans.first().expect("checked: there is a scan").clone();
    let failures = vec![None; sinks.writers()];
    let mut scan = ActiveScan::plan(name, config, sinks, &failures, armed);
    let mut claimed = scan.claim();
    claimed.wait_for_all();
    // A member on which the scan cannot begin is not usable.
    let begun = claimed.all_made().and_then(|claimed| scan.begin(claimed, true));
    match begun {
        Ok(warnings) => {
            warnings.into_iter().for_each(|text| tell(&Event::Warning { text }));
            Ok(scan)
        }
        Err(error) => {
            undone(scan.sinks.discard());
            Err(error)
        }
    }
}

/// Waits until the discarded scan is removed.
pub(super) fn undone(mut discarded: SinkReplies) {
    discarded.wait_for_all();
}

/// The handles and channels of the running threads.
pub(super) struct Running {
    /// The state of the threads, for manifests.
    pub host_setup: Option<HostSetup>,
    /// Bytes of the smallest receive buffer of the sockets; 0 without sockets.
    pub receive_buffer: u64,
    pub captures: Vec<Capture>,
    pub writers: Vec<WriterThread>,
    pub metrics: Vec<Arc<WriterMetrics>>,
    pub notices: mpsc::Receiver<CaptureEvent>,
    /// The events of the writers of each sink.
    pub reports: Vec<mpsc::Receiver<WriterEvent>>,
}

/// Opens the sources of each capture thread, with their share of the block memory.
fn open_sources(
    config: &RecordingConfig,
    places: &ThreadPlacement,
    sinks: &Sinks,
) -> Result<Vec<Box<dyn OpenSource>>, RecordError> {
    let (sizes, numbers) = (pool_sizes(config, for_blocks(config))?, config.numbers());
    let names = Arc::<StreamNames>::default();
    for source in &config.sources {
        // A stream that is discovered cannot take the name of another source.
        names.claim(source.name().as_str());
    }
    let context = OpenContext {
        chunk_bytes: sinks.chunk_bytes(),
        names,
        next_number: Arc::new(AtomicU16::new(numbers.iter().flatten().count() as u16)),
        one_stream: sinks.takes_one_stream(),
        scans: config.scan_count(),
        acquisitions: config.acquisitions(),
        scan_bytes: config.limit.bytes.filter(|_| config.sources.len() == 1),
        shared_threads: config.shared_threads(),
    };
    let requests_of = |thread: usize| -> Vec<OpenRequest<'_>> {
        let request = |place: usize| OpenRequest {
            source: &config.sources[place],
            number: numbers[place],
            pool_bytes: numbers[place]
                .and_then(|number| waiting_bytes(config, sinks, place, number))
                .unwrap_or(sizes[place]),
            node: places.node_of_source(place),
            block_bytes: numbers[place].and_then(|number| sinks.block_bytes(number)),
            most_bytes: most_bytes(config, numbers[place].and_then(|it| sinks.capacity(it))),
        };
        let served = |place: &usize| places.of_source[*place] == thread;
        (0..config.sources.len()).filter(served).map(request).collect()
    };
    // The threads of single sources come last. These sources are opened first, because a server that does not answer is
    // known sooner than the memory of datagrams is mapped.
    let mut opened = Vec::with_capacity(config.captures());
    for thread in (0..config.captures()).rev() {
        opened.push(source::open(&requests_of(thread), &context)?);
    }
    opened.reverse();
    let identities: Vec<_> = places.of_source.iter().map(|&it| opened[it].identity()).collect();
    refuse_twins(config, &identities)?;
    Ok(opened)
}

/// The block memory of a source that waits, if the sink knows how many blocks suffice and the user requested no size.
fn waiting_bytes(
    config: &RecordingConfig,
    sinks: &Sinks,
    place: usize,
    number: u16,
) -> Option<u64> {
    let waits = matches!(config.sources[place].memory(), MemoryNeeds::Fixed { .. });
    let blocks = sinks.blocks_of_waiting(number).filter(|_| waits && config.buffer.is_none())?;
    Some(blocks * u64::from(sinks.block_bytes(number)?))
}

/// The most bytes to take of a stream: its space in the sink, and its share of the limit if there is one scan.
fn most_bytes(config: &RecordingConfig, capacity: Option<u64>) -> Option<u64> {
    let several = config.sources.len() > 1 && config.scans.len() == 1;
    let share = config.limit.bytes_of_each(config.sources.len()).filter(|_| several);
    [share, capacity].into_iter().flatten().min()
}

/// The queues between threads while the threads are started.
struct Wires {
    /// The channel of each sink.
    events: Vec<(mpsc::Sender<WriterEvent>, mpsc::Receiver<WriterEvent>)>,
    notices: (mpsc::Sender<CaptureEvent>, mpsc::Receiver<CaptureEvent>),
    /// The queues of each capture thread, one for each writer.
    queues: Vec<Vec<WriterQueue>>,
    metrics: Vec<Arc<WriterMetrics>>,
}

impl Wires {
    fn new() -> Self {
        Self {
            events: Vec::new(),
            notices: mpsc::channel(),
            queues: Vec::new(),
            metrics: Vec::new(),
        }
    }

    /// Starts the writers of the sinks, each with a queue from each capture thread.
    fn start_writers(
        &mut self,
        config: &RecordingConfig,
        places: &ThreadPlacement,
        sinks: &mut Sinks,
        sources: &[Box<dyn OpenSource>],
        memory: &[Arc<Region>],
    ) -> Result<Vec<WriterThread>, RecordError> {
        let blocks: Vec<usize> = sources.iter().map(|source| source.most_blocks()).collect();
        self.queues = blocks.iter().map(|_| Vec::new()).collect();
        let mut links = Vec::new();
        self.events = (0..sinks.count()).map(|_| mpsc::channel()).collect();
        for number in 0..sinks.writers() {
            let events = self.events[sinks.sink_of(number)].0.clone();
            let metrics = Arc::new(WriterMetrics::default());
            let notifier = Arc::new(Notifier::new().map_err(RecordError::Thread)?);
            let mut sides = Vec::new();
            for (&most_blocks, queues) in blocks.iter().zip(&mut self.queues) {
                let room = most_blocks + WriterQueue::FINISHES;
                let (commands, from_capture) = rtrb::RingBuffer::new(room);
                let (to_capture, returned) = reply_queue(room);
                sides.push(store::CaptureQueue { commands: from_capture, returned: to_capture });
                let (metrics, notifier) = (metrics.clone(), notifier.clone());
                queues.push(WriterQueue::new(commands, returned, metrics, notifier, most_blocks));
            }
            links.push(WriterLink {
                queues: sides,
                metrics: metrics.clone(),
                events,
                notifier,
                thread_config: places.writer(number),
                sync_interval: config.sync_interval,
            });
            self.metrics.push(metrics);
        }
        let least = memory.iter().map(|region| region.bytes() as u64).min().unwrap_or(0);
        sinks.start(links, memory, least)
    }

    /// Starts the capture threads.
    fn start_captures(
        self,
        config: &RecordingConfig,
        places: &ThreadPlacement,
        sinks: &Sinks,
        writers: Vec<WriterThread>,
        sources: Vec<Box<dyn OpenSource>>,
    ) -> Result<Running, RecordError> {
        let Self { events, notices, queues, metrics } = self;
        let mut captures = Vec::with_capacity(sources.len());
        for (number, (source, queues)) in sources.into_iter().zip(queues).enumerate() {
            captures.push(source.start(CaptureLink {
                number,
                sinks: sink_queues(sinks, queues),
                events: notices.0.clone(),
                thread_config: places.capture(number),
                hold: config.start.is_some(),
                hand_on_after: sinks.take_short_blocks_after(),
            })?);
        }
        Ok(Running {
            host_setup: None,
            receive_buffer: 0,
            captures,
            writers,
            metrics,
            notices: notices.1,
            reports: events.into_iter().map(|(_, reports)| reports).collect(),
        })
    }
}

/// Divides the queues of a capture thread among the sinks.
fn sink_queues(sinks: &Sinks, queues: Vec<WriterQueue>) -> Vec<SinkQueues> {
    let mut queues = queues.into_iter();
    let of_sink = |(number, sink): (usize, &dyn Sink)| SinkQueues {
        queues: queues.by_ref().take(sink.targets().len()).collect(),
        journal: sink.partial_blocks(),
        redundancy: sink.redundancy(),
        own_targets: sink.gives_each_stream_a_target(),
        store: sinks.store_number(number),
    };
    sinks.iter().enumerate().map(of_sink).collect()
}

/// The targets of all writers.
fn targets_of(sinks: &Sinks) -> Vec<Target> {
    sinks.targets().cloned().collect()
}

/// The state of a target before the first write.
pub(super) fn target_state(target: &Target, failure: Option<&str>, free_bytes: u64) -> MemberState {
    MemberState {
        path: target.path.clone(),
        buffered: target.buffered,
        written_bytes: 0,
        rate: 0,
        backlog_bytes: 0,
        free_bytes,
        longest_write_ns: 0,
        failure: failure.map(str::to_owned),
        span: target.span,
    }
}
