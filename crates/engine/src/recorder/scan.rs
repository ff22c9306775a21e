//! One scan while it is recorded: its directories, its manifest, and what has been heard of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use fullbore_core::account::Account;
use fullbore_core::endpoint::{SourceFormat, Threads, UdpSource};
use fullbore_core::format::panda::PandaSource;
use fullbore_core::gap::Ranges;
use fullbore_core::manifest::{
    ACCOUNT_FILE, Fill, Format, MANIFEST_FILE, Manifest, SIDE_DIRECTORY, State, Stream, VERSION,
};
use fullbore_core::name::ScanName;
use fullbore_core::time::Tai;
use uuid::Uuid;

use super::arm::{Plan, RecordError, manifest_member};
use super::read_back::Unsure;
use super::scribe::{Scribe, one_is_enough};
use crate::lifecycle::Lifecycle;
use crate::source::{Opening, Shape, StreamGauge, stripped_bytes};
use crate::store::lock::put_file;
use crate::store::{Member, MemberError};
use crate::witness;

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
    /// Durable blocks and bytes of each stream.
    pub durable: BTreeMap<u16, (Ranges, u64)>,
    /// Shared counters when it was armed.
    pub shared: witness::Reading,
    /// Shared counters when its last frame had been read.
    pub shared_after: Option<witness::Reading>,
    /// Roots of the members that took data when it began.
    pub roots: Vec<PathBuf>,
    /// Whether a limit ended it, and not somebody who saw that nothing came any more.
    pub limited: bool,
    /// Whether more is known of its streams than its manifests on disk say.
    pub untold: bool,
    /// Blocks that were written to a member whose sync failed later.
    pub unsure: Vec<Unsure>,
    /// Directories that were made for it.
    claimed: Vec<PathBuf>,
    scribe: Scribe,
}

impl Scan {
    /// Makes the directories of a new scan on every member, with its manifest. If one cannot be made,
    /// none is left.
    pub fn open(
        name: ScanName,
        plan: &Plan,
        members: &[Member],
        failures: &[Option<String>],
        armed: Tai,
    ) -> Result<Self, RecordError> {
        let taking = |(member, failure): (&Member, &Option<String>)| {
            failure.is_none().then(|| member.clone())
        };
        let healthy: Vec<Member> = members.iter().zip(failures).filter_map(taking).collect();
        if healthy.is_empty() {
            return Err(RecordError::NoMemberLeft);
        }
        let known: Vec<&UdpSource> =
            plan.sources.iter().filter(|source| source.threads != Threads::Split).collect();
        let single =
            plan.sources.len() + plan.pandas.len() == 1 && known.len() == plan.sources.len();
        let opening = Arc::new(Opening { uuid: Uuid::now_v7(), scan: name.clone(), single });
        refuse_existing(&name, members)?;
        let mut streams: Vec<Stream> =
            known.iter().map(|source| stream(source, &opening)).collect();
        streams.extend(plan.pandas.iter().map(|panda| stream_of_panda(&panda.source, &opening)));
        let manifest = Manifest {
            version: VERSION,
            uuid: opening.uuid,
            scan: name,
            state: State::Recording,
            software: concat!("fullbore ", env!("CARGO_PKG_VERSION")).to_owned(),
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            armed,
            stopped: None,
            members: members
                .iter()
                .zip(failures)
                .map(|(member, failure)| manifest_member(member, failure.clone()))
                .collect(),
            streams,
        };
        let numbers = 0..manifest.streams.len() as u16;
        let mut scan = Self {
            opening,
            life: Lifecycle::new(numbers, members.len(), plan.captures()),
            manifest,
            accounts: BTreeMap::new(),
            gauges: BTreeMap::new(),
            durable: BTreeMap::new(),
            shared: witness::Reading::default(),
            shared_after: None,
            roots: healthy.iter().map(|member| member.root().to_owned()).collect(),
            limited: false,
            untold: false,
            unsure: Vec::new(),
            claimed: Vec::new(),
            scribe: Scribe::default(),
        };
        let made = scan.claim(&healthy);
        if made.is_err() {
            scan.discard();
        }
        made.map(|()| scan)
    }

    fn claim(&mut self, members: &[Member]) -> Result<(), RecordError> {
        for stream in &self.manifest.streams {
            for member in members {
                let made = member.claim(&stream.directory).map_err(|error| match error {
                    MemberError::ScanExists { path } => {
                        RecordError::ScanExists { scan: self.manifest.scan.clone(), path }
                    }
                    other => other.into(),
                })?;
                self.claimed.push(made);
            }
        }
        self.write_manifests()
    }

    /// Writes the manifest beside every stream on every member.
    pub fn write_manifests(&mut self) -> Result<(), RecordError> {
        let paths = self.manifest_paths();
        one_is_enough(paths.len(), self.scribe.write(&paths, &self.manifest.to_json()))
    }

    /// Writes the manifest wherever it can be written. Gives the places where it could not.
    pub fn put_manifests(&mut self) -> Vec<(PathBuf, RecordError)> {
        self.scribe.write(&self.manifest_paths(), &self.manifest.to_json())
    }

    /// Writes the account of a stream on every member.
    pub fn write_account(&self, number: u16, account: &Account) -> Result<(), RecordError> {
        let directory = &self.manifest.streams[usize::from(number)].directory;
        let mut json =
            serde_json::to_vec_pretty(account).expect("an account has only plain fields");
        json.push(b'\n');
        let mut failed = None;
        let mut written = 0;
        for root in &self.roots {
            let path = root.join(directory).join(SIDE_DIRECTORY).join(ACCOUNT_FILE);
            if path.parent().is_some_and(std::path::Path::is_dir) {
                match put_file(&path, &json) {
                    Ok(()) => written += 1,
                    Err(source) => failed = Some(RecordError::File { path, source }),
                }
            }
        }
        match failed {
            Some(error) if written == 0 => Err(error),
            _ => Ok(()),
        }
    }

    /// A manifest beside every stream on every member.
    fn manifest_paths(&self) -> Vec<PathBuf> {
        let side =
            |root: &PathBuf, stream: &Stream| root.join(&stream.directory).join(SIDE_DIRECTORY);
        let paths = self.manifest.streams.iter().flat_map(|stream| {
            self.roots.iter().map(move |root| side(root, stream).join(MANIFEST_FILE))
        });
        paths.collect()
    }

    /// Takes a stream into the manifest, or what is now known of one that is there.
    pub fn stream_opened(&mut self, shape: &Shape, format: Format, gauge: Arc<StreamGauge>) {
        let number = usize::from(shape.number);
        if number >= self.manifest.streams.len() {
            // Threads are numbered as they are discovered, so none is ever skipped for long.
            while self.manifest.streams.len() <= number {
                self.manifest.streams.push(discovered(shape, &format, &self.opening));
            }
        }
        let stream = &mut self.manifest.streams[number];
        stream.name = shape.name.clone();
        stream.directory = self.opening.directory(&shape.name);
        stream.geometry = Some(shape.geometry);
        stream.fill = shape.fill;
        stream.stripped_bytes = shape.stripped_bytes;
        stream.format = format;
        self.gauges.insert(shape.number, gauge);
        self.untold = true;
    }

    /// Streams of the scan before go on in this one, with their numbers, names and counters.
    pub fn go_on_from(&mut self, before: &Scan) {
        self.manifest.streams = before.manifest.streams.clone();
        self.gauges = before.gauges.clone();
        for number in 0..self.manifest.streams.len() {
            let stream = &mut self.manifest.streams[number];
            stream.directory = self.opening.directory(&stream.name);
            (stream.blocks, stream.bytes, stream.account) = (0, 0, None);
            stream.renamed = None;
            if let Format::Panda { .. } = stream.format {
                // Each acquisition speaks for itself.
                stream.format = acquisition_to_come();
            }
        }
        self.untold = true;
    }

    /// Begins to write down what has become known of its streams, so that it outlives this process.
    pub fn tell_manifests(&mut self) -> Result<(), RecordError> {
        let directories = self.manifest.streams.iter().map(|stream| &stream.directory);
        let named: BTreeSet<&String> = directories.collect();
        // The notice of a stream with a lower number is still on its way.
        if !self.untold || named.len() < self.manifest.streams.len() {
            return Ok(());
        }
        let (paths, json) = (self.manifest_paths(), self.manifest.to_json());
        self.untold = !self.scribe.begin(paths, json)?;
        Ok(())
    }

    /// Takes note of durable blocks.
    pub fn blocks_durable(&mut self, number: u16, sequences: &[u64], bytes: u64) {
        let (ranges, total) = self.durable.entry(number).or_default();
        for &sequence in sequences {
            ranges.insert(sequence as i64..sequence as i64 + 1);
        }
        *total += bytes;
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

    /// Leaves it as it is, for `recover`.
    pub fn leave(&mut self) {
        self.scribe.release();
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
    pub fn discard(&mut self) {
        self.scribe.release();
        for directory in self.claimed.drain(..) {
            // What cannot be removed is left: the error that brought us here is the one to be told.
            let side = directory.join(SIDE_DIRECTORY);
            let _ = std::fs::remove_file(side.join(MANIFEST_FILE));
            let _ = std::fs::remove_dir(side);
            let _ = std::fs::remove_dir(directory);
        }
    }
}

/// Refuses a name of which any directory exists on any member.
fn refuse_existing(name: &ScanName, members: &[Member]) -> Result<(), RecordError> {
    for member in members {
        let Ok(entries) = std::fs::read_dir(member.root()) else { continue };
        for entry in entries.flatten() {
            let directory = entry.file_name();
            let taken = directory.to_str().and_then(ScanName::of_directory);
            if taken.is_some_and(|(scan, _)| scan == *name) {
                return Err(RecordError::ScanExists { scan: name.clone(), path: entry.path() });
            }
        }
    }
    Ok(())
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
        directory: opening.directory(&source.name),
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
        directory: opening.directory(&source.name),
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

fn discovered(shape: &Shape, format: &Format, opening: &Opening) -> Stream {
    Stream {
        name: shape.name.clone(),
        directory: opening.directory(&shape.name),
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
