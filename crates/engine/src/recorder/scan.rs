//! One scan while it is recorded: its directories, its manifest, and what has been heard of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::Builder;
use std::time::{Duration, Instant};

use fullbore_core::account::Account;
use fullbore_core::completeness::Planned;
use fullbore_core::endpoint::{SourceFormat, Threads, UdpSource};
use fullbore_core::format::panda::PandaSource;
use fullbore_core::gap::Ranges;
use fullbore_core::manifest::{
    self, ACCOUNT_FILE, Away, Fill, Format, MANIFEST_FILE, Manifest, State, Stream, VERSION,
};
use fullbore_core::marker::{self, Marker};
use fullbore_core::name::{Name, ScanName};
use fullbore_core::redundancy::Redundancy;
use fullbore_core::tide::Tide;
use fullbore_core::time::Tai;
use uuid::Uuid;

use super::arm::manifest_member;
use super::error::RecordError;
use super::event::StreamState;
use super::following::Following;
use super::plan::Plan;
use super::read_back::Unsure;
use super::scribe::{Answers, PATIENCE, Scribes, SideFile, Task};
use super::set::{by_cause, verb};
use crate::lifecycle::Lifecycle;
use crate::ring::Gauge;
use crate::source::{Opening, Shape, StreamGauge, stripped_bytes};
use crate::store::inventory::side_file;
use crate::store::{Member, hanging, markers};
use crate::witness;

/// The disk set as a scan finds it.
#[derive(Clone, Copy)]
pub struct DiskSet<'a> {
    /// The members that were there when the recording was armed.
    pub members: &'a [Member],
    /// Why each takes no data, if it does not.
    pub failures: &'a [Option<String>],
    /// Those that were not there.
    pub away: &'a [Away],
}

/// A scan that is not sealed.
pub struct Scan {
    /// What capture threads know of it.
    pub opening: Arc<Opening>,
    /// Its manifest, as it stands.
    pub manifest: Manifest,
    /// Where it is in its life.
    pub life: Lifecycle,
    /// Accounts of streams that have ended.
    pub accounts: BTreeMap<u16, Account>,
    /// Counters of streams that run.
    pub gauges: BTreeMap<u16, Arc<StreamGauge>>,
    /// Those of ports that get datagrams and have no stream yet, by their endpoint.
    pub unrecognised: BTreeMap<String, Arc<StreamGauge>>,
    /// Sources whose streams are named as their threads come, and what came of those without any thread.
    splits: Vec<(UdpSource, Option<Account>)>,
    /// Durable blocks and bytes of each stream.
    pub durable: BTreeMap<u16, (Ranges, u64)>,
    /// The high-water mark of each stream's memory over time.
    pub tides: BTreeMap<u16, Tide>,
    /// Shared counters when it was armed.
    pub shared: witness::Reading,
    /// Shared counters when its last frame had been read.
    pub shared_after: Option<witness::Reading>,
    /// Roots of the members that took data when it was planned.
    pub roots: Vec<PathBuf>,
    /// Members that do not answer any more.
    pub silent: BTreeSet<usize>,
    /// Whether a limit ended it, and not somebody who saw that nothing came any more.
    pub limited: bool,
    /// Whether it goes on where another ended, and another where it ends: streams are cut at their next block.
    pub cut: (bool, bool),
    /// Whether more is known of its streams than its manifests on disk say.
    pub untold: bool,
    /// Blocks that were written to a member whose sync failed later.
    pub unsure: Vec<Unsure>,
    /// What makes its redundancy, if it has any.
    following: Option<Following>,
    /// Places of those members in the disk set.
    members: Vec<usize>,
    /// Whether it has begun, on those that had made its directories by then.
    begun: Arc<AtomicBool>,
    /// Manifests that are being written while it is recorded.
    telling: Option<Answers>,
    scribes: Scribes,
}

impl Scan {
    /// A new scan, of which nothing is on any member yet. With no member that takes data it will be accounted for,
    /// and kept nowhere.
    pub fn plan(
        name: ScanName,
        plan: &Plan,
        set: DiskSet<'_>,
        scribes: &Scribes,
        armed: Tai,
    ) -> Result<Self, RecordError> {
        let DiskSet { members, failures, away } = set;
        let healthy: Vec<usize> =
            (0..members.len()).filter(|&member| failures[member].is_none()).collect();
        let listed = members
            .iter()
            .zip(failures)
            .map(|(member, failure)| manifest_member(member, failure.clone()))
            .collect();
        let roots: Vec<PathBuf> =
            healthy.iter().map(|&member| members[member].root().to_owned()).collect();
        let mut bare = Self::bare(name, plan, listed, scribes, armed);
        bare.manifest.away = away.to_vec();
        let uuid = bare.opening.uuid;
        let following = plan.redundancy.map(|it| Following::new(uuid, it, roots.clone()));
        Ok(Self { roots, members: healthy, following, ..bare })
    }

    /// A scan that goes into a file, and lies on no member.
    #[cfg(feature = "hdf5")]
    pub fn in_a_file(
        name: ScanName,
        plan: &Plan,
        file: manifest::Member,
        scribes: &Scribes,
        armed: Tai,
    ) -> Self {
        Self::bare(name, plan, vec![file], scribes, armed)
    }

    fn bare(
        name: ScanName,
        plan: &Plan,
        members: Vec<manifest::Member>,
        scribes: &Scribes,
        armed: Tai,
    ) -> Self {
        let known: Vec<&UdpSource> =
            plan.sources.iter().filter(|source| source.threads != Threads::Split).collect();
        let single =
            plan.sources.len() + plan.pandas.len() == 1 && known.len() == plan.sources.len();
        let opening = Arc::new(Opening { uuid: Uuid::now_v7(), scan: name.clone(), single });
        let mut streams: Vec<Stream> =
            known.iter().map(|source| stream(source, &opening)).collect();
        streams.extend(plan.pandas.iter().map(|panda| stream_of_panda(&panda.source, &opening)));
        let splits = plan.sources.iter().filter(|source| source.threads == Threads::Split);
        let manifest = Manifest {
            version: VERSION,
            uuid: opening.uuid,
            scan: name,
            state: State::Recording,
            software: concat!("fullbore ", env!("CARGO_PKG_VERSION")).to_owned(),
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            planned: Some(plan.planned).filter(Planned::is_any),
            armed,
            stopped: None,
            times: None,
            rig: None,
            redundancy: plan.redundancy.map(Redundancy::of),
            members,
            away: Vec::new(),
            streams,
            markers: Vec::new(),
        };
        let numbers = 0..manifest.streams.len() as u16;
        Self {
            opening,
            life: Lifecycle::new(numbers, manifest.members.len(), plan.captures()),
            manifest,
            accounts: BTreeMap::new(),
            gauges: BTreeMap::new(),
            unrecognised: BTreeMap::new(),
            splits: splits.map(|source| (source.clone(), None)).collect(),
            durable: BTreeMap::new(),
            tides: BTreeMap::new(),
            shared: witness::Reading::default(),
            shared_after: None,
            roots: Vec::new(),
            silent: BTreeSet::new(),
            limited: false,
            cut: (false, false),
            untold: false,
            unsure: Vec::new(),
            following: None,
            members: Vec::new(),
            begun: Arc::default(),
            telling: None,
            scribes: scribes.clone(),
        }
    }

    fn ask(&self, task: &Task) -> Answers {
        self.scribes.ask(&self.members, self.opening.uuid, task)
    }

    /// Has its directories made on every member, with its manifest.
    pub fn claim(&self) -> Answers {
        let streams = &self.manifest.streams;
        self.ask(&Task::Claim {
            name: self.manifest.scan.clone(),
            directories: streams.iter().map(|stream| stream.directory.clone()).collect(),
            files: self.manifest_files(),
            begun: self.begun.clone(),
        })
    }

    /// Begins, on the members that have made its directories; the others may follow. Tells of those. Refused if its
    /// name is taken anywhere, or no member has made them.
    pub fn begin(&mut self, claimed: Answers) -> Result<Vec<String>, RecordError> {
        let mut told = Vec::new();
        let name = &self.manifest.scan;
        let root = |member: usize| self.manifest.members[member].path.clone();
        for &member in claimed.awaited() {
            let root = root(member);
            told.push(format!("{} does not answer: {name} begins without it", root.display()));
        }
        let failed = || claimed.failed().iter();
        for (paths, why) in by_cause(failed().map(|(it, _, error)| (root(*it), error.cause()))) {
            let take_no_part = verb(&paths, "takes", "take") + " no part in";
            told.push(format!("{take_no_part} {name} as it begins: {why}"));
        }
        let failures: Vec<(usize, String)> =
            failed().map(|(member, _, error)| (*member, error.to_string())).collect();
        if !self.members.is_empty() {
            claimed.enough_made()?;
        }
        for (member, why) in failures {
            self.manifest.members[member].failure.get_or_insert(why);
        }
        self.begun.store(true, Ordering::SeqCst);
        Ok(told)
    }

    /// Whether there was no member for it when it began. A file in the place of members has no identity.
    pub fn is_kept_nowhere(&self) -> bool {
        let mut members = self.manifest.members.iter();
        self.members.is_empty() && members.all(|it| it.failure.is_some() && !it.uuid.is_nil())
    }

    /// Has the manifest written beside every stream on every member.
    pub fn write_manifests(&self) -> Answers {
        self.ask(&Task::Write(self.manifest_files()))
    }

    /// Says in the manifest which members do not answer any more. Gives whether there are any that it did not name.
    pub fn name_the_silent(&mut self) -> bool {
        let mut news = false;
        for &member in &self.silent {
            self.manifest.members[member].failure.get_or_insert_with(|| {
                news = true;
                "it did not answer when the scan was sealed".to_owned()
            });
        }
        news
    }

    /// Writes the manifest wherever it can be written. Gives the places where it could not.
    pub fn put_manifests(&mut self) -> Vec<PathBuf> {
        let mut answers = self.write_manifests();
        answers.wait_for_enough(&mut self.silent);
        let failed = answers.failed().iter().map(|(_, path, _)| path.clone());
        let silent = self.members.iter().zip(&self.roots);
        let silent = silent.filter(|(member, _)| self.silent.contains(*member));
        let unwritten = silent.flat_map(|(_, root)| {
            let streams = self.manifest.streams.iter();
            streams.map(move |stream| side_file(&root.join(&stream.directory), MANIFEST_FILE))
        });
        failed.chain(unwritten).collect()
    }

    /// Has the account of a stream written on every member.
    pub fn write_account(&self, number: u16, account: &Account) -> Answers {
        let directory = self.manifest.streams[usize::from(number)].directory.clone();
        let mut json =
            serde_json::to_vec_pretty(account).expect("an account has only plain fields");
        json.push(b'\n');
        self.ask(&Task::Write(vec![SideFile { directory, name: ACCOUNT_FILE, json: json.into() }]))
    }

    /// The manifest as it stands, for every stream.
    fn manifest_files(&self) -> Vec<SideFile> {
        let json: Arc<[u8]> = self.manifest.to_json().into();
        let file = |stream: &Stream| SideFile {
            directory: stream.directory.clone(),
            name: MANIFEST_FILE,
            json: json.clone(),
        };
        self.manifest.streams.iter().map(file).collect()
    }

    /// Takes a stream into the manifest, or what is now known of one that is there.
    pub fn stream_opened(&mut self, shape: &Shape, format: Format, gauge: Arc<StreamGauge>) {
        let number = usize::from(shape.number);
        if number >= self.manifest.streams.len() {
            // Threads are numbered as they are discovered, so none is ever skipped for long.
            while self.manifest.streams.len() <= number {
                self.manifest.streams.push(discovered(
                    shape,
                    &format,
                    self.opening.directory(shape.number, &shape.name),
                ));
            }
        }
        let stream = &mut self.manifest.streams[number];
        stream.name = shape.name.clone();
        stream.directory = self.opening.directory(shape.number, &shape.name);
        stream.geometry = Some(shape.geometry);
        stream.fill = shape.fill;
        stream.stripped_bytes = shape.stripped_bytes;
        stream.format = format;
        self.gauges.insert(shape.number, gauge);
        self.untold = true;
    }

    /// Takes the account of a port that has no stream.
    pub fn port_silent(&mut self, number: Option<u16>, source: String, account: Account) {
        let split = |(it, _): &&mut (UdpSource, _)| it.endpoint.to_string() == source;
        match number {
            Some(number) => drop(self.accounts.insert(number, account)),
            None => {
                if let Some((_, told)) = self.splits.iter_mut().find(split) {
                    *told = Some(account);
                }
            }
        }
    }

    /// Sources of which no thread has come.
    fn unheard(&self) -> impl Iterator<Item = &UdpSource> {
        let named = |source: &UdpSource| {
            let endpoint = source.endpoint.to_string();
            self.manifest.streams.iter().any(|stream| stream.source == endpoint)
        };
        self.splits.iter().map(|(source, _)| source).filter(move |source| !named(source))
    }

    /// Names a stream for each source of which no thread has come, so that it is told of.
    pub fn name_the_unheard(&mut self) {
        let unheard: Vec<Stream> = self.unheard().map(|it| stream(it, &self.opening)).collect();
        for stream in unheard {
            let mut told = self.splits.iter_mut();
            let told = told.find(|(source, _)| source.endpoint.to_string() == stream.source);
            if let Some(account) = told.and_then(|(_, account)| account.take()) {
                self.accounts.insert(self.manifest.streams.len() as u16, account);
            }
            self.manifest.streams.push(stream);
        }
    }

    /// Streams of the scan before go on in this one, with their numbers, names and counters.
    pub fn go_on_from(&mut self, before: &Scan) {
        self.cut.0 = true;
        self.manifest.streams = before.manifest.streams.clone();
        self.gauges = before.gauges.clone();
        for number in 0..self.manifest.streams.len() {
            let stream = &mut self.manifest.streams[number];
            stream.directory = self.opening.directory(number as u16, &stream.name);
            (stream.blocks, stream.bytes, stream.account) = (0, 0, None);
            stream.renamed = None;
            if let Format::Panda { .. } = stream.format {
                // Each acquisition speaks for itself.
                stream.format = acquisition_to_come();
            }
        }
        self.untold = true;
    }

    /// Has written down what has become known of its streams, so that it outlives this process. An error is of the
    /// time before.
    pub fn tell_manifests(&mut self) -> Result<(), RecordError> {
        let directories = self.manifest.streams.iter().map(|stream| &stream.directory);
        let named: BTreeSet<&String> = directories.collect();
        // The notice of a stream with a lower number is still on its way.
        if !self.untold || named.len() < self.manifest.streams.len() || self.members.is_empty() {
            return Ok(());
        }
        self.untold = false;
        let now = self.write_manifests();
        match self.telling.replace(now) {
            Some(mut before) => {
                before.poll();
                before.one_is_enough()
            }
            None => Ok(()),
        }
    }

    /// Takes note of durable blocks.
    pub fn blocks_durable(&mut self, number: u16, sequences: &[u64], bytes: u64) {
        let (ranges, total) = self.durable.entry(number).or_default();
        for &sequence in sequences {
            ranges.insert(sequence as i64..sequence as i64 + 1);
        }
        *total += bytes;
    }

    /// Lets redundancy follow a stream that has durable blocks.
    pub fn follow(&mut self, number: u16, gauges: &[Arc<Gauge>]) {
        if let Some(following) = &mut self.following {
            following.note(number, &self.manifest.streams[usize::from(number)].directory, gauges);
        }
    }

    /// Makes what its redundancy lacks once it is sealed, and says so in its manifests. Tells of what could not be made.
    pub fn complete_redundancy(&mut self) -> Vec<String> {
        let Some(following) = self.following.take() else { return Vec::new() };
        let streams = self.manifest.streams.iter().zip(0..);
        let streams = streams.filter(|(stream, _)| stream.blocks > 0);
        let streams = streams
            .map(|(stream, number)| (number, stream.directory.clone(), stream.renamed.clone()))
            .collect();
        let (followed, mut told) = following.finish(streams);
        if let Some(redundancy) = &mut self.manifest.redundancy {
            redundancy.followed = followed;
        }
        if followed.is_some() {
            let places = self.put_manifests();
            told.extend(places.iter().map(|path| {
                format!("{}: not written: it does not tell of the redundancy", path.display())
            }));
        }
        told
    }

    /// Enters into the high-water mark over time how full each stream's memory has been since this was asked last. Of
    /// each: the most blocks that were in use, and blocks in all.
    pub fn take_marks(&mut self, after: Duration) -> Vec<(u16, u64, u64)> {
        let after_ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        let mut marks = Vec::with_capacity(self.gauges.len());
        for (&number, gauge) in &self.gauges {
            let used = gauge.used_blocks.load(Ordering::Relaxed);
            let most = gauge.peak_blocks.swap(0, Ordering::Relaxed).max(used);
            self.tides.entry(number).or_default().rise(after_ms, most);
            marks.push((number, most, gauge.pool_blocks.load(Ordering::Relaxed)));
        }
        marks
    }

    /// How its streams stand, and what `seconds` have added to the bytes of `before`.
    pub fn stream_states(&self, before: &mut Vec<u64>, seconds: f64) -> Vec<StreamState> {
        before.resize(self.manifest.streams.len(), 0);
        let nothing = Arc::default();
        let mut states = Vec::with_capacity(before.len());
        for (number, (stream, before)) in (0..).zip(self.manifest.streams.iter().zip(before)) {
            // A stream of which nothing has come has no counters.
            let gauge = self.gauges.get(&number);
            let silent = gauge.is_none();
            let gauge = gauge.or_else(|| self.unrecognised.get(&stream.source)).unwrap_or(&nothing);
            let state = state_of(&stream.name, silent, gauge);
            let more = state.bytes.saturating_sub(std::mem::replace(before, state.bytes));
            let rate = (more as f64 / seconds) as u64;
            states.push(StreamState { rate, durable_bytes: self.durable_bytes(number), ..state });
        }
        for source in self.unheard() {
            let gauge = self.unrecognised.get(&source.endpoint.to_string()).unwrap_or(&nothing);
            states.push(state_of(&source.name, true, gauge));
        }
        states
    }

    /// Bytes from the start of a stream that are safe on disk.
    pub fn durable_bytes(&self, number: u16) -> u64 {
        let Some((ranges, total)) = self.durable.get(&number) else { return 0 };
        let blocks = ranges.end_of_run_from(0) as u64;
        if blocks == ranges.total() {
            return *total;
        }
        let geometry = self.manifest.streams[usize::from(number)].geometry;
        geometry.map_or(0, |geometry| blocks * u64::from(geometry.block_bytes))
    }

    /// Roots of the members that answer.
    pub fn answering(&self) -> Vec<PathBuf> {
        let all = self.members.iter().zip(&self.roots);
        all.filter(|(it, _)| !self.silent.contains(*it)).map(|(_, root)| root.clone()).collect()
    }

    /// What was marked of it, as far as its members tell within [`PATIENCE`]. What is marked from now on is found beside
    /// the manifest.
    pub fn markers(&self) -> Vec<Marker> {
        let (tell, told) = mpsc::channel();
        let Some(first) = self.manifest.streams.first() else { return Vec::new() };
        for root in self.answering() {
            let tell = tell.clone();
            let file = markers::file_of(&root.join(&first.directory));
            // A member that stands still keeps its thread, and nobody else.
            let _ = Builder::new().name("markers".into()).spawn(move || {
                hanging::at(&root);
                // Whoever asked may have gone on.
                let _ = tell.send(markers::of_file(&file));
            });
        }
        drop(tell);
        let until = Instant::now() + PATIENCE;
        let next = || told.recv_timeout(until.saturating_duration_since(Instant::now())).ok();
        marker::joined(std::iter::from_fn(next).flatten().chain(self.manifest.markers.clone()))
    }

    /// Lets its locks go, so that it can be read once it is told of as sealed.
    pub fn release(&mut self) {
        self.ask(&Task::Release).wait_for_enough(&mut self.silent);
    }

    /// Leaves it as it is, for `recover`.
    pub fn leave(&self) {
        drop(self.ask(&Task::Release));
    }

    /// Whether it was to be an acquisition of PandAs, and none of them has begun one.
    pub fn came_to_nothing(&self) -> bool {
        let unbegun = |stream: &Stream| match &stream.format {
            Format::Panda { header, .. } => header.is_empty(),
            Format::Vdif { .. } | Format::Raw => false,
        };
        !self.manifest.streams.is_empty() && self.manifest.streams.iter().all(unbegun)
    }

    /// Removes what was made of a scan that does not begin after all.
    pub fn discard(&self) -> Answers {
        self.ask(&Task::Discard)
    }
}

/// What the counters of a stream say, without what is durable of it.
fn state_of(name: &Name, silent: bool, gauge: &StreamGauge) -> StreamState {
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    StreamState {
        name: name.clone(),
        silent,
        frames: read(&gauge.frames),
        bytes: read(&gauge.bytes),
        rate: 0,
        missing: read(&gauge.missing),
        overrun: read(&gauge.overrun),
        damaged: read(&gauge.damaged),
        late: read(&gauge.late),
        foreign: read(&gauge.foreign),
        high_water: (read(&gauge.high_water), read(&gauge.pool_blocks)),
        used_blocks: read(&gauge.used_blocks),
        durable_bytes: 0,
    }
}

fn stream(source: &UdpSource, opening: &Opening) -> Stream {
    let format = match source.format {
        SourceFormat::Vdif => Format::Vdif {
            frames_per_second: source.frames_per_second,
            derived: false,
            threads: Vec::new(),
        },
        SourceFormat::Raw => Format::Raw,
    };
    Stream {
        name: source.name.clone(),
        directory: opening.directory(0, &source.name),
        source: source.endpoint.to_string(),
        format,
        stripped_bytes: stripped_bytes(source),
        geometry: None,
        fill: source.fill,
        blocks: 0,
        bytes: 0,
        account: None,
        renamed: None,
    }
}

fn stream_of_panda(source: &PandaSource, opening: &Opening) -> Stream {
    Stream {
        name: source.name.clone(),
        directory: opening.directory(0, &source.name),
        source: source.to_string(),
        format: acquisition_to_come(),
        stripped_bytes: 0,
        geometry: None,
        fill: Fill::Omit,
        blocks: 0,
        bytes: 0,
        account: None,
        renamed: None,
    }
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

/// What a manifest says of a stream that capture has opened.
pub(crate) fn discovered(shape: &Shape, format: &Format, directory: String) -> Stream {
    Stream {
        name: shape.name.clone(),
        directory,
        source: shape.source.clone(),
        format: format.clone(),
        stripped_bytes: shape.stripped_bytes,
        geometry: Some(shape.geometry),
        fill: shape.fill,
        blocks: 0,
        bytes: 0,
        account: None,
        renamed: None,
    }
}
