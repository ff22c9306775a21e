//! Several sinks of one recording, as one.
//!
//! ```text
//! sinks     │ store           │ HDF5 │ standard output
//! writers   │ 0  1  2         │ 3    │ 4                  numbered through; each sink counts its own from 0
//! ```
//!
//! A block goes from one sink to the next (see `source::sink_chain`). Off the data path, each sink has its own view of
//! a scan: its members in the manifest, and the accounts of what it has itself. A sink that fails ends nothing but
//! itself, as long as another one takes the data.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use fullbore_core::account::Account;
use fullbore_core::index::Block;
use fullbore_core::manifest::{AbsentMember, Manifest, Stream};
use fullbore_core::redundancy::Redundancy;
use fullbore_core::units::ByteSize;

use super::store::metadata_writer::PendingReplies;
use super::{
    Needs, ScanSink, Sink, SinkConfig, Target, WriterLink, WriterThread, free_in_all, open,
};
use crate::error::RecordError;
use crate::event::EventHandler;
use fullbore_capture::{SinkShare, StreamMetrics, scan_in_store};
use fullbore_linux::overlap::Range as BytesRange;
use fullbore_linux::ring::WriterMetrics;
use fullbore_linux::sys::memory::Region;
use uuid::Uuid;

/// The open sinks of a recording.
pub struct Sinks {
    all: Vec<OpenSink>,
}

struct OpenSink {
    sink: Box<dyn Sink>,
    /// Its writers among those of all sinks.
    writers: Range<usize>,
    /// Its number among the stores. 0 also if it is none.
    store: u16,
}

impl Sinks {
    /// Opens the sinks. Refuses a recording for which sinks on one file system have too little space together.
    pub fn open(
        configs: &[SinkConfig],
        needs: &Needs,
        tell: &mut EventHandler<'_>,
    ) -> Result<Self, RecordError> {
        let sinks = configs.iter().map(|config| open(config, needs, tell));
        let mut sinks = Self::of(sinks.collect::<Result<_, _>>()?);
        let all = sinks.all.iter_mut().zip(configs);
        let stores = all.filter(|(_, config)| config.store().is_some());
        (0..).zip(stores).for_each(|(number, (sink, _))| sink.store = number);
        sinks.check_shared_space(needs)?;
        Ok(sinks)
    }

    /// These sinks.
    pub fn of(sinks: Vec<Box<dyn Sink>>) -> Self {
        let mut first = 0;
        let numbered = |sink: Box<dyn Sink>| {
            let writers = first..first + sink.targets().len();
            first = writers.end;
            OpenSink { sink, writers, store: 0 }
        };
        Self { all: sinks.into_iter().map(numbered).collect() }
    }

    /// Refuses a number of bytes that does not fit as often as sinks on a file system store it.
    fn check_shared_space(&self, needs: &Needs) -> Result<(), RecordError> {
        for number in 0..self.all.len() {
            let together = self.sharing_space(number);
            let copies = together.len() as u64;
            let free = self.free_of_sink(number);
            let needed = needs.bytes.saturating_mul(copies);
            if copies > 1 && needed > free {
                let writers = together.into_iter().flat_map(|it| self.writers_of(it));
                let members = writers.map(|it| self.target(it).path.clone()).collect();
                let (free, needed) = (ByteSize(free), ByteSize(needed));
                return Err(RecordError::NoRoom { members, free, needed });
            }
        }
        Ok(())
    }

    /// The sinks that have a file system in common with this one, and the sink itself.
    pub fn sharing_space(&self, sink: usize) -> Vec<usize> {
        let devices = |sink: usize| {
            let targets = self.all[sink].sink.targets().iter();
            targets.filter(|target| target.span.is_none()).filter_map(|target| target.device)
        };
        let shares = |other: usize| devices(other).any(|one| devices(sink).any(|it| it == one));
        (0..self.all.len()).filter(|&other| other == sink || shares(other)).collect()
    }

    /// Bytes free for a sink.
    fn free_of_sink(&self, sink: usize) -> u64 {
        let OpenSink { sink, writers, .. } = &self.all[sink];
        let targets = sink.targets().iter().zip(0..writers.len());
        let shared = |target: &Target| target.device.filter(|_| target.span.is_none());
        free_in_all(targets.map(|(target, number)| (shared(target), sink.free_bytes(number))))
    }

    /// The number of a sink among the stores. 0 also if it is none.
    pub fn store_number(&self, sink: usize) -> u16 {
        self.all[sink].store
    }

    /// The sinks, in the order of their blocks.
    pub fn iter(&self) -> impl Iterator<Item = &dyn Sink> {
        self.all.iter().map(|it| it.sink.as_ref())
    }

    /// The number of sinks.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// The number of writers of all sinks.
    pub fn writers(&self) -> usize {
        self.all.last().map_or(0, |it| it.writers.end)
    }

    /// The writers of a sink.
    pub fn writers_of(&self, sink: usize) -> Range<usize> {
        self.all[sink].writers.clone()
    }

    /// The number of a writer's sink.
    pub fn sink_of(&self, writer: usize) -> usize {
        let sink = self.all.iter().position(|it| it.writers.contains(&writer));
        sink.expect("a writer belongs to a sink")
    }

    fn of_writer(&self, writer: usize) -> &OpenSink {
        &self.all[self.sink_of(writer)]
    }

    /// The targets of all writers, in their order.
    pub fn targets(&self) -> impl Iterator<Item = &Target> {
        self.all.iter().flat_map(|it| it.sink.targets())
    }

    /// The target of a writer.
    pub fn target(&self, writer: usize) -> &Target {
        let OpenSink { sink, writers, .. } = self.of_writer(writer);
        &sink.targets()[writer - writers.start]
    }

    /// Bytes of one file of a stream, if a sink cuts streams into files.
    pub fn chunk_bytes(&self) -> u64 {
        self.iter().map(Sink::chunk_bytes).min().unwrap_or(u64::MAX)
    }

    /// True if a sink accepts one stream only.
    pub fn takes_one_stream(&self) -> bool {
        self.iter().any(Sink::takes_one_stream)
    }

    /// The size of a stream's blocks, if a sink needs one. A multiple of a power of two suits smaller ones.
    pub fn block_bytes(&self, stream: u16) -> Option<u32> {
        self.iter().filter_map(|sink| sink.block_bytes(stream)).max()
    }

    /// The number of blocks that suffice for a source that waits while none is free, if all sinks know it.
    pub fn blocks_of_waiting(&self, stream: u16) -> Option<u64> {
        self.iter().map(|sink| sink.blocks_of_waiting(stream)).sum()
    }

    /// The most bytes of a stream that any sink has space for, if that is fixed in all sinks.
    pub fn capacity(&self, stream: u16) -> Option<u64> {
        let all: Option<Vec<u64>> = self.iter().map(|sink| sink.capacity(stream)).collect();
        all?.into_iter().max()
    }

    /// True if a recording continues, and counts frames, when every writer has failed.
    pub fn outlives_its_writers(&self) -> bool {
        self.iter().any(Sink::outlives_its_writers)
    }

    /// True if the last rows of an acquisition are waited for before the next one begins.
    pub fn waits_for_last_rows(&self) -> bool {
        self.iter().any(|sink| !sink.outlives_its_writers())
    }

    /// True if no sink takes more of a stream that has a target of its own. `failures` holds the reason why a writer
    /// takes no data.
    pub fn refuse_stream(&self, stream: usize, failures: &[Option<String>]) -> bool {
        let refused = |writer: usize| failures.get(writer).is_some_and(Option::is_some);
        self.all.iter().all(|OpenSink { sink, writers, .. }| {
            sink.gives_each_stream_a_target() && refused(writers.start + stream)
        })
    }

    /// True if each stream goes only to the target with its number, in every sink.
    pub fn give_each_stream_a_target(&self) -> bool {
        self.iter().all(Sink::gives_each_stream_a_target)
    }

    /// True if every sink keeps a scan in which no PandA began an acquisition, and which has no other stream.
    pub fn keep_empty_scans(&self) -> bool {
        self.iter().all(Sink::keeps_empty_scans)
    }

    /// The age at which a partly filled block is sent, if every sink takes short blocks.
    pub fn take_short_blocks_after(&self) -> Option<Duration> {
        let all: Option<Vec<Duration>> = self.iter().map(Sink::takes_short_blocks_after).collect();
        all?.into_iter().max()
    }

    /// Refuses a source that reads what a sink writes.
    pub fn refuse_source(&self, reads: &BytesRange) -> Result<(), RecordError> {
        self.iter().try_for_each(|sink| sink.refuse_source(reads))
    }

    /// Does the last preparations before arming.
    pub fn prepare(&mut self, tell: &mut EventHandler<'_>) -> Result<(), RecordError> {
        self.all.iter_mut().try_for_each(|it| it.sink.prepare(tell))
    }

    /// Starts a writer for each target.
    pub fn start(
        &mut self,
        links: Vec<WriterLink>,
        memory: &[Arc<Region>],
        pool_bytes: u64,
    ) -> Result<Vec<WriterThread>, RecordError> {
        // What sinks may hold of the memory is divided among them.
        let pool_bytes = pool_bytes / self.all.len().max(1) as u64;
        let mut links = links.into_iter();
        let mut threads = Vec::with_capacity(self.writers());
        for OpenSink { sink, writers, .. } in &mut self.all {
            let links = links.by_ref().take(writers.len()).collect();
            threads.extend(sink.start(links, memory, pool_bytes)?);
        }
        Ok(threads)
    }

    /// Plans a scan, and enters the targets into its manifest. `failures` holds the reason why a writer takes no data.
    pub fn plan_scan(&self, manifest: &mut Manifest, failures: &[Option<String>]) -> ScanSinks {
        let plain = manifest.clone();
        let mut parts = Vec::with_capacity(self.all.len());
        for OpenSink { sink, writers, store } in &self.all {
            let mut own = Manifest { uuid: scan_in_store(plain.uuid, *store), ..plain.clone() };
            let scan = sink.plan_scan(&mut own, &failures[writers.clone()]);
            manifest.members.extend(own.members);
            manifest.away.extend(own.away.iter().cloned());
            manifest.redundancy = manifest.redundancy.or(own.redundancy);
            parts.push(ScanPart {
                scan,
                writers: writers.clone(),
                uuid: own.uuid,
                away: own.away,
                redundancy: own.redundancy,
                place: place_of(sink.as_ref()),
                shares: BTreeMap::new(),
            });
        }
        ScanSinks { parts }
    }

    /// Bytes free at a target, at the last check.
    pub fn free_bytes(&self, writer: usize) -> u64 {
        let OpenSink { sink, writers, .. } = self.of_writer(writer);
        sink.free_bytes(writer - writers.start)
    }

    /// Checks from time to time whether a failed writer can be used again for this many streams.
    pub fn watch(&self, writer: usize, streams: u64) {
        let OpenSink { sink, writers, .. } = self.of_writer(writer);
        sink.watch(writer - writers.start, streams);
    }

    /// True if a failed writer can be used again. Its sink stops watching it then.
    pub fn take_back(&mut self, writer: usize) -> bool {
        let number = self.sink_of(writer);
        let OpenSink { sink, writers, .. } = &mut self.all[number];
        sink.take_back(writer - writers.start)
    }
}

/// The name of a sink in messages: its targets.
fn place_of(sink: &dyn Sink) -> String {
    let paths = sink.targets().iter().map(|target| target.path.display().to_string());
    paths.collect::<Vec<_>>().join(", ")
}

/// The part of each sink that one scan uses, off the data path.
pub struct ScanSinks {
    parts: Vec<ScanPart>,
}

/// One sink of a scan.
pub struct ScanPart {
    /// The interface to the sink.
    pub scan: Box<dyn ScanSink>,
    /// Its writers among those of all sinks.
    pub writers: Range<usize>,
    /// The scan in this sink.
    uuid: Uuid,
    away: Vec<AbsentMember>,
    redundancy: Option<Redundancy>,
    /// The name of the sink in messages.
    pub place: String,
    /// What the sink has of each stream, if there are several sinks.
    shares: BTreeMap<u16, SinkShare>,
}

impl ScanPart {
    /// The manifest and the accounts of what this sink has.
    pub fn own_record(
        &self,
        manifest: &Manifest,
        accounts: &BTreeMap<u16, Account>,
    ) -> (Manifest, BTreeMap<u16, Account>) {
        let (mut manifest, mut accounts) = (self.view(manifest), accounts.clone());
        for (&number, share) in &self.shares {
            let stream = &mut manifest.streams[usize::from(number)];
            (stream.blocks, stream.bytes) = (share.blocks, share.bytes);
            if let Some(lacking) = &share.lacking {
                let (format, account) = lacking.as_ref().clone();
                stream.format = format;
                accounts.insert(number, account);
            }
        }
        (manifest, accounts)
    }

    /// The manifest with the members of this sink alone.
    fn view(&self, manifest: &Manifest) -> Manifest {
        Manifest {
            uuid: self.uuid,
            members: manifest.members[self.writers.clone()].to_vec(),
            away: self.away.clone(),
            redundancy: self.redundancy,
            ..manifest.clone()
        }
    }

    /// The reason why the sink takes no data, if none of its writers does.
    pub fn failure(&self, manifest: &Manifest) -> Option<String> {
        let members = manifest.members.get(self.writers.clone())?;
        let failures: Option<Vec<&String>> = members.iter().map(|it| it.failure.as_ref()).collect();
        failures?.first().map(|why| (*why).clone())
    }
}

impl ScanSinks {
    /// The manifest as a sink sees it.
    fn view<'a>(&self, part: &ScanPart, manifest: &'a Manifest) -> Cow<'a, Manifest> {
        match self.parts.len() {
            1 => Cow::Borrowed(manifest),
            _ => Cow::Owned(part.view(manifest)),
        }
    }

    /// Claims the scan's names at every target.
    pub fn claim(&self, manifest: &Manifest) -> SinkReplies {
        let claim = |part: &ScanPart| part.scan.claim(&self.view(part, manifest));
        SinkReplies(self.parts.iter().map(claim).collect())
    }

    /// Begins the scan in the sinks. Returns warnings. A sink that cannot begin is an error if `all` have to begin, or
    /// if none can.
    pub fn begin(
        &mut self,
        manifest: &mut Manifest,
        claimed: SinkReplies,
        all: bool,
    ) -> Result<Vec<String>, RecordError> {
        if let ([only], [_]) = (self.parts.as_mut_slice(), claimed.0.as_slice()) {
            let claimed = claimed.0.into_iter().next().expect("just seen");
            return only.scan.begin(manifest, claimed);
        }
        let (mut warnings, mut failed) = (Vec::new(), Vec::new());
        let sinks = self.parts.len();
        for (part, claimed) in self.parts.iter_mut().zip(claimed.0) {
            let mut own = part.view(manifest);
            match part.scan.begin(&mut own, claimed) {
                Ok(more) => warnings.extend(more),
                Err(error) => {
                    let why = error.to_string();
                    warnings.push(format!("{} takes no part in {}: {why}", part.place, own.scan));
                    own.members.iter_mut().for_each(|it| {
                        it.failure.get_or_insert_with(|| why.clone());
                    });
                    failed.push(error);
                }
            }
            manifest.members[part.writers.clone()].clone_from_slice(&own.members);
        }
        let count = failed.len();
        match failed.into_iter().next() {
            Some(error) if all || count == sinks => Err(error),
            _ => Ok(warnings),
        }
    }

    /// The first frames of a stream arrived.
    pub fn stream_opened(&mut self, number: u16, stream: &Stream, metrics: &Arc<StreamMetrics>) {
        self.each(|sink| sink.stream_opened(number, stream, metrics));
    }

    /// The settings of a PandA are in the format of its stream, or will never be.
    pub fn stream_described(&mut self, number: u16, stream: &Stream) {
        self.each(|sink| sink.stream_described(number, stream));
    }

    /// The streams have new properties, which would be lost in a crash.
    pub fn update(&mut self, manifest: &Manifest) -> Result<(), RecordError> {
        let mut updated = Ok(());
        let single = self.parts.len() == 1;
        for part in &mut self.parts {
            let own =
                if single { Cow::Borrowed(manifest) } else { Cow::Owned(part.view(manifest)) };
            updated = updated.and(part.scan.update(&own));
        }
        updated
    }

    /// A stream has durable blocks in a sink. `writers` are the metrics of all writers.
    pub fn durable(
        &mut self,
        sink: usize,
        number: u16,
        stream: &Stream,
        writers: &[Arc<WriterMetrics>],
    ) {
        if let Some(part) = self.parts.get_mut(sink) {
            part.scan.durable(number, stream, &writers[part.writers.clone()]);
        }
    }

    /// Blocks of a stream were written before a sync failed, and are no longer in memory.
    pub fn unsynced(&mut self, writer: usize, stream: u16, blocks: Vec<Block>) {
        if let Some(part) = self.parts.iter_mut().find(|it| it.writers.contains(&writer)) {
            part.scan.unsynced(writer - part.writers.start, stream, blocks);
        }
    }

    /// The source of a stream has given all of its bytes, or all that were requested.
    pub fn exhausted(&mut self, number: u16) {
        self.each(|sink| sink.exhausted(number));
    }

    /// A limit of the recording has ended the scan.
    pub fn limit_reached(&mut self) {
        self.each(|sink| sink.limit_reached());
    }

    /// The recording ends.
    pub fn ending(&mut self) {
        self.each(|sink| sink.ending());
    }

    /// Leaves the scan as it is, for `recover`.
    pub fn leave(&self) {
        self.parts.iter().for_each(|part| part.scan.leave());
    }

    /// Removes everything made for a scan that does not begin.
    pub fn discard(&self) -> SinkReplies {
        SinkReplies(self.parts.iter().map(|part| part.scan.discard()).collect())
    }

    /// Stores what each sink has of a stream that has ended.
    pub fn stream_ended(&mut self, number: u16, shares: Vec<SinkShare>) {
        for (part, share) in self.parts.iter_mut().zip(shares) {
            part.shares.insert(number, share);
        }
    }

    /// The sinks of the scan.
    pub fn parts(&self) -> &[ScanPart] {
        &self.parts
    }

    /// Takes the sinks, to seal the scan in each.
    pub fn take_parts(&mut self) -> Vec<ScanPart> {
        std::mem::take(&mut self.parts)
    }

    fn each(&mut self, what: impl FnMut(&mut dyn ScanSink)) {
        let mut what = what;
        self.parts.iter_mut().for_each(|part| what(part.scan.as_mut()));
    }
}

/// The replies of the targets of each sink to a task.
pub struct SinkReplies(Vec<PendingReplies>);

impl SinkReplies {
    /// Takes the replies that have arrived.
    pub fn poll(&mut self) {
        self.0.iter_mut().for_each(PendingReplies::poll);
    }

    /// True if every target has replied.
    pub fn are_complete(&self) -> bool {
        self.0.iter().all(PendingReplies::are_complete)
    }

    /// True if at least one target of each sink that is asked has done at least a part of the task.
    pub fn any_good(&self) -> bool {
        self.0.iter().any(PendingReplies::any_good)
            && self.0.iter().all(|it| it.are_complete() || it.any_good())
    }

    /// True if a directory that was to be new exists already.
    pub fn any_taken(&self) -> bool {
        self.0.iter().any(PendingReplies::any_taken)
    }

    /// For claims: returns an error if the directories could not be created at some target.
    pub fn all_made(self) -> Result<Self, RecordError> {
        self.0.into_iter().map(PendingReplies::all_made).collect::<Result<_, _>>().map(Self)
    }

    /// Waits until all targets have replied, without a limit.
    pub fn wait_for_all(&mut self) {
        self.0.iter_mut().for_each(PendingReplies::wait_for_all);
    }

    /// Waits for all targets, for those of each sink at most for five seconds after the first success.
    pub fn wait_for_enough(&mut self) {
        self.0.iter_mut().for_each(|it| it.wait_for_enough(&mut Default::default()));
    }
}
