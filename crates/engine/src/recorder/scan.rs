//! A scan that is being recorded: its manifest, its accounts, and the state of its streams.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fullbore_capture::{ScanContext, StreamLayout, StreamMetrics, discovered};
use fullbore_core::account::Account;
use fullbore_core::completeness::Planned;
use fullbore_core::gap::Ranges;
use fullbore_core::high_water::HighWaterHistory;
use fullbore_core::manifest::{Format, Manifest, State, Stream, VERSION};
use fullbore_core::name::{Name, ScanName};
use fullbore_time::Tai;
use uuid::Uuid;

use super::config::RecordingConfig;
use crate::drop_counters;
use crate::error::RecordError;
use crate::event::StreamState;
use crate::lifecycle::Lifecycle;
use crate::sink::{ScanSinks, SinkReplies, Sinks};
use crate::source::SourceConfig;

/// A scan that is being recorded and is not sealed yet.
pub struct ActiveScan {
    /// The part that capture threads share.
    pub context: Arc<ScanContext>,
    /// The manifest so far.
    pub manifest: Manifest,
    /// The state of its lifecycle.
    pub lifecycle: Lifecycle,
    /// Accounts of streams that have ended.
    pub accounts: BTreeMap<u16, Account>,
    /// Metrics of streams that run.
    pub metrics: BTreeMap<u16, Arc<StreamMetrics>>,
    /// Metrics of ports that receive datagrams and have no stream yet, by endpoint.
    pub unrecognised: BTreeMap<String, Arc<StreamMetrics>>,
    /// Sources whose streams are named as their threads appear, with the account of datagrams outside all threads.
    splits: Vec<(SourceConfig, Option<Account>)>,
    /// Durable blocks and bytes of each stream in each sink.
    pub durable: BTreeMap<(usize, u16), (Ranges, u64)>,
    /// The high-water mark of each stream's memory over time.
    pub high_water: BTreeMap<u16, HighWaterHistory>,
    /// Shared drop counters at arming.
    pub shared: drop_counters::CounterSnapshot,
    /// Shared drop counters after its last frame was read.
    pub shared_after: Option<drop_counters::CounterSnapshot>,
    /// True if a limit ended it, rather than an operator who saw that no more packets arrived.
    pub limited: bool,
    /// True if it continues the scan before, and if the next scan continues it. Streams are cut at their next block.
    pub cut: (bool, bool),
    /// Streams of senders that no endpoint declares, which were there in one earlier scan and then silent in a whole
    /// one: they are not expected any more.
    pub unexpected: BTreeSet<u16>,
    /// True if its streams have properties that its manifests on disk lack.
    pub manifest_dirty: bool,
    /// The interface to the sinks.
    pub sinks: ScanSinks,
}

impl ActiveScan {
    /// A new scan that is not in the sink yet. `failures` holds the reason why a writer takes no data.
    pub fn plan(
        name: ScanName,
        config: &RecordingConfig,
        sinks: &Sinks,
        failures: &[Option<String>],
        armed: Tai,
    ) -> Self {
        let single = matches!(config.sources.as_slice(), [only] if only.is_known());
        let context = ScanContext::new(Uuid::now_v7(), name.clone(), single);
        let context = Arc::new(context.with_taps(config.taps.clone()));
        let (known, splits): (Vec<_>, Vec<_>) =
            config.sources.iter().partition(|source| source.is_known());
        let streams = known.into_iter().map(|source| stream(source, &context)).collect();
        let mut manifest = Manifest {
            version: VERSION,
            uuid: context.uuid,
            scan: name,
            state: State::Recording,
            software: concat!("fullbore ", env!("CARGO_PKG_VERSION")).to_owned(),
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            planned: Some(config.planned).filter(Planned::is_any),
            armed,
            stopped: None,
            times: None,
            host_setup: None,
            redundancy: None,
            members: Vec::new(),
            away: Vec::new(),
            streams,
            markers: Vec::new(),
            forwarded: Vec::new(),
            copied: None,
        };
        let sinks = sinks.plan_scan(&mut manifest, failures);
        let numbers = 0..manifest.streams.len() as u16;
        Self {
            context,
            lifecycle: Lifecycle::new(numbers, manifest.members.len(), config.captures()),
            manifest,
            accounts: BTreeMap::new(),
            metrics: BTreeMap::new(),
            unrecognised: BTreeMap::new(),
            splits: splits.into_iter().map(|source| (source.clone(), None)).collect(),
            durable: BTreeMap::new(),
            high_water: BTreeMap::new(),
            shared: drop_counters::CounterSnapshot::default(),
            shared_after: None,
            limited: false,
            cut: (false, false),
            unexpected: BTreeSet::new(),
            manifest_dirty: false,
            sinks,
        }
    }

    /// Claims the scan in the sink, with its manifest.
    pub fn claim(&self) -> SinkReplies {
        self.sinks.claim(&self.manifest)
    }

    /// Begins the scan in all sinks, or in those that can. Returns warnings.
    pub fn begin(&mut self, claimed: SinkReplies, all: bool) -> Result<Vec<String>, RecordError> {
        self.sinks.begin(&mut self.manifest, claimed, all)
    }

    /// Sends new properties of its streams to the sink, so that they survive this process.
    pub fn update_sink(&mut self) -> Result<(), RecordError> {
        let directories = self.manifest.streams.iter().map(|stream| &stream.directory);
        let named: BTreeSet<&String> = directories.collect();
        // The event of a stream with a lower number has not arrived yet.
        if !self.manifest_dirty || named.len() < self.manifest.streams.len() {
            return Ok(());
        }
        self.manifest_dirty = false;
        self.sinks.update(&self.manifest)
    }

    /// Adds a stream to the manifest, or updates it with its new properties.
    pub fn stream_opened(
        &mut self,
        shape: &StreamLayout,
        format: Format,
        metrics: Arc<StreamMetrics>,
    ) {
        let number = usize::from(shape.number);
        if number >= self.manifest.streams.len() {
            // Threads are numbered as they are discovered, so each gap is filled soon.
            while self.manifest.streams.len() <= number {
                self.manifest.streams.push(discovered(
                    shape,
                    &format,
                    self.context.directory(shape.number, &shape.name),
                ));
            }
        }
        let stream = &mut self.manifest.streams[number];
        stream.name = shape.name.clone();
        stream.directory = self.context.directory(shape.number, &shape.name);
        stream.geometry = Some(shape.geometry);
        stream.fill = shape.fill;
        stream.stripped_bytes = shape.stripped_bytes;
        stream.format = format;
        self.sinks.stream_opened(shape.number, stream, &metrics);
        self.metrics.insert(shape.number, metrics);
        self.manifest_dirty = true;
    }

    /// Updates the format of a stream that is known more completely.
    pub fn stream_described(&mut self, number: u16, format: Format) {
        let stream = &mut self.manifest.streams[usize::from(number)];
        stream.format = format;
        if let Format::Panda { .. } = stream.format {
            self.sinks.stream_described(number, stream);
        }
        self.manifest_dirty = true;
    }

    /// Stores the account of a port that has no stream.
    pub fn port_silent(&mut self, number: Option<u16>, source: String, account: Account) {
        let split = |(it, _): &&mut (SourceConfig, _)| it.endpoint() == source;
        match number {
            Some(number) => drop(self.accounts.insert(number, account)),
            None => {
                if let Some((_, told)) = self.splits.iter_mut().find(split) {
                    *told = Some(account);
                }
            }
        }
    }

    /// Returns the sources of which no thread has appeared.
    fn unheard(&self) -> impl Iterator<Item = &SourceConfig> {
        let named = |source: &SourceConfig| {
            let endpoint = source.endpoint();
            self.manifest.streams.iter().any(|stream| stream.source == endpoint)
        };
        self.splits.iter().map(|(source, _)| source).filter(move |source| !named(source))
    }

    /// Adds a stream for each source of which no thread has appeared, so that the manifest lists the source.
    pub fn name_the_unheard(&mut self) {
        let unheard: Vec<Stream> = self.unheard().map(|it| stream(it, &self.context)).collect();
        for stream in unheard {
            let mut told = self.splits.iter();
            let told = told.find(|(source, _)| source.endpoint() == stream.source);
            if let Some(account) = told.and_then(|(_, account)| account.clone()) {
                self.accounts.insert(self.manifest.streams.len() as u16, account);
            }
            self.manifest.streams.push(stream);
        }
    }

    /// Continues the streams of the previous scan in this one, with their numbers, names and metrics.
    pub fn go_on_from(&mut self, before: &ActiveScan) {
        self.cut.0 = true;
        self.manifest.streams = before.manifest.streams.clone();
        self.metrics = before.metrics.clone();
        for number in 0..self.manifest.streams.len() {
            let stream = &mut self.manifest.streams[number];
            stream.directory = self.context.directory(number as u16, &stream.name);
            (stream.blocks, stream.bytes, stream.account) = (0, 0, None);
            stream.renamed = None;
            if let Format::Panda { .. } = stream.format {
                // Each acquisition brings its own format, and is opened by it.
                stream.format = acquisition_to_come();
            } else if let Some(metrics) = self.metrics.get(&(number as u16)) {
                self.sinks.stream_opened(number as u16, stream, metrics);
            }
        }
        self.manifest_dirty = true;
    }

    /// Records blocks that are durable in a sink.
    pub fn blocks_durable(&mut self, sink: usize, number: u16, sequences: &[u64], bytes: u64) {
        let (ranges, total) = self.durable.entry((sink, number)).or_default();
        for &sequence in sequences {
            ranges.insert(sequence as i64..sequence as i64 + 1);
        }
        *total += bytes;
    }

    /// Adds the memory use of each stream since the last call to its high-water history. Returns for each stream the
    /// most blocks in use and the number of all blocks.
    pub fn take_marks(&mut self, after: Duration) -> Vec<(u16, u64, u64)> {
        let after_ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        let mut marks = Vec::with_capacity(self.metrics.len());
        for (&number, metrics) in &self.metrics {
            let used = metrics.used_blocks.load(Ordering::Relaxed);
            let most = metrics.peak_blocks.swap(0, Ordering::Relaxed).max(used);
            self.high_water.entry(number).or_default().record(after_ms, most);
            marks.push((number, most, metrics.pool_blocks.load(Ordering::Relaxed)));
        }
        marks
    }

    /// Returns the state of its streams. Rates are the growth over `before` in `seconds`.
    pub fn stream_states(&self, before: &mut Vec<u64>, seconds: f64) -> Vec<StreamState> {
        before.resize(self.manifest.streams.len(), 0);
        let nothing = Arc::default();
        let mut states = Vec::with_capacity(before.len());
        for (number, (stream, before)) in (0..).zip(self.manifest.streams.iter().zip(before)) {
            // A stream without packets has no metrics.
            let metrics = self.metrics.get(&number);
            let silent = metrics.is_none();
            let metrics =
                metrics.or_else(|| self.unrecognised.get(&stream.source)).unwrap_or(&nothing);
            let state = state_of(&stream.name, silent, metrics);
            let more = state.bytes.saturating_sub(std::mem::replace(before, state.bytes));
            let rate = (more as f64 / seconds) as u64;
            states.push(StreamState { rate, durable_bytes: self.durable_bytes(number), ..state });
        }
        for source in self.unheard() {
            let metrics = self.unrecognised.get(&source.endpoint()).unwrap_or(&nothing);
            states.push(state_of(source.name(), true, metrics));
        }
        states
    }

    /// Returns the bytes from the start of a stream that are durable in every sink that takes data; if none does, in
    /// any.
    pub fn durable_bytes(&self, number: u16) -> u64 {
        let parts = self.sinks.parts().iter().enumerate();
        let all = parts.map(|(sink, part)| {
            (part.failure(&self.manifest).is_some(), self.durable_in(sink, number))
        });
        let (failed, taking): (Vec<_>, Vec<_>) = all.partition(|(failed, _)| *failed);
        let least = taking.iter().map(|(_, bytes)| *bytes).min();
        least.or(failed.iter().map(|(_, bytes)| *bytes).max()).unwrap_or(0)
    }

    /// Returns the bytes from the start of a stream that are durable in a sink.
    fn durable_in(&self, sink: usize, number: u16) -> u64 {
        let Some((ranges, total)) = self.durable.get(&(sink, number)) else { return 0 };
        let blocks = ranges.end_of_run_from(0) as u64;
        if blocks == ranges.total() {
            return *total;
        }
        let geometry = self.manifest.streams[usize::from(number)].geometry;
        geometry.map_or(0, |geometry| blocks * u64::from(geometry.block_bytes))
    }

    /// True if the scan was meant for an acquisition of PandAs, and none of them has begun one.
    pub fn is_empty(&self) -> bool {
        let unbegun = |stream: &Stream| match &stream.format {
            Format::Panda { header, .. } => header.is_empty(),
            Format::Frames { .. } | Format::Packets { .. } | Format::Raw => false,
        };
        !self.manifest.streams.is_empty() && self.manifest.streams.iter().all(unbegun)
    }
}

/// Builds the state of a stream from its metrics, without the durable bytes.
fn state_of(name: &Name, silent: bool, metrics: &StreamMetrics) -> StreamState {
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    StreamState {
        name: name.clone(),
        silent,
        frames: read(&metrics.frames),
        bytes: read(&metrics.bytes),
        rate: 0,
        missing: read(&metrics.missing),
        overrun: read(&metrics.overrun),
        damaged: read(&metrics.damaged),
        late: read(&metrics.late),
        foreign: read(&metrics.foreign),
        out_of_window: read(&metrics.out_of_window),
        unrecorded: read(&metrics.unrecorded),
        excluded: read(&metrics.excluded),
        high_water: (read(&metrics.high_water), read(&metrics.pool_blocks)),
        used_blocks: read(&metrics.used_blocks),
        durable_bytes: 0,
        held_seconds: read(&metrics.held_ns) as f64 / 1e9,
    }
}

fn stream(source: &SourceConfig, context: &ScanContext) -> Stream {
    source.stream(context.directory(0, source.name()))
}

fn acquisition_to_come() -> Format {
    Format::Panda {
        header: String::new(),
        ending: None,
        captured: None,
        connections: Vec::new(),
        notes: Vec::new(),
        settings: None,
    }
}
