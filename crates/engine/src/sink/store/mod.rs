//! The store as a sink: one writer for each member of a disk set.
//!
//! ```text
//! capture threads ──blocks──► writer of each member ──► chunk files, index
//! recorder ──ScanSink──► metadata writer of each member ──► directories, manifests, accounts, locks
//!                    └─► parity task, when the recording has redundancy
//! ```
//!
//! - `disk_set`: opens the members, and finds missing ones
//! - `room`: free space, chunk sizes, and the space for redundancy
//! - `metadata_writer`: a thread for each member that writes all files except chunks and index
//! - `scan`: one scan on the disk set
//! - `parity_task`, `renumber`, `verify_unsynced`: tasks of a scan around its seal

pub(crate) mod disk_set;
pub(crate) mod metadata_writer;
mod parity_task;
mod renumber;
pub(crate) mod room;
mod scan;
mod unreachable;
mod verify_unsynced;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use fullbore_core::manifest::{self, AbsentMember, Manifest};
use fullbore_core::memory_budget::{DiskRate, Stall};
use fullbore_core::redundancy::{Redundancy, Scheme};
use fullbore_core::units::ByteSize;
use fullbore_linux::sys::memory::Region;
use fullbore_linux::writer_thread::WriterThread;
use fullbore_store::partial_blocks::PartialBlockJournal;
use fullbore_store::{self as store, Member};
use uuid::Uuid;

pub use scan::StoreScan;

use self::metadata_writer::MetadataWriters;
use super::{Needs, ScanSink, Sink, Target, WriterLink, device_of};
use crate::error::RecordError;
use crate::event::{Event, EventHandler};

/// A store as the sink of a recording.
#[derive(Clone, Debug, Default)]
pub struct StoreConfig {
    /// Directories of the disk set.
    pub members: Vec<PathBuf>,
    /// The size of chunk files; by default a size that fits the free space.
    pub chunk: Option<ByteSize>,
    /// The redundancy scheme against lost members.
    pub redundancy: Option<Scheme>,
    /// The longest measured stall of a member.
    pub stall: Option<Stall>,
    /// The measured write rate of all members together.
    pub disk_rate: Option<DiskRate>,
    /// Unattended start: skip members that cannot be opened or whose identity differs from this one, as long as one
    /// member is usable.
    pub degraded_start: Option<BTreeMap<PathBuf, Uuid>>,
    /// Directories that become new members although the store had other members there before.
    pub new_members: Vec<PathBuf>,
}

impl StoreConfig {
    /// A store in these directories, with all defaults.
    pub fn new(members: Vec<PathBuf>) -> Self {
        Self { members, ..Self::default() }
    }
}

/// An open store.
pub struct StoreSink {
    config: StoreConfig,
    members: Vec<Member>,
    away: Vec<AbsentMember>,
    targets: Vec<Target>,
    chunk_bytes: u64,
    /// Bytes that were free on each member at first.
    free_at_first: Vec<u64>,
    metadata_writers: MetadataWriters,
    /// The journal of partial blocks, once the writers run.
    partial_blocks: Option<PartialBlockJournal>,
}

impl StoreSink {
    /// Opens the members. Refuses a recording that does not fit on them.
    pub fn open(
        config: &StoreConfig,
        needs: &Needs,
        tell: &mut EventHandler<'_>,
    ) -> Result<Self, RecordError> {
        room::check(config)?;
        let (members, away) = disk_set::open(config, tell)?;
        room::check_space(config, needs, &members)?;
        let chunk = room::fit_chunk(config, needs, &members, tell)?;
        room::judge_space(config, needs, &members, tell);
        room::judge_redundancy(config, &members, tell);
        let warnings = members.iter().flat_map(warnings_of);
        for (paths, what) in disk_set::by_cause(warnings) {
            let names: Vec<String> = paths.iter().map(|it| it.display().to_string()).collect();
            tell(&Event::Warning { text: format!("{}: {what}", names.join(", ")) });
        }
        Self::of_members(config.clone(), members, away, chunk)
    }

    /// A store with these members.
    pub(crate) fn of_members(
        config: StoreConfig,
        members: Vec<Member>,
        away: Vec<AbsentMember>,
        chunk: ByteSize,
    ) -> Result<Self, RecordError> {
        let free_at_first = members
            .iter()
            .map(|member| Ok(member.free_bytes()?))
            .collect::<Result<_, RecordError>>()?;
        Ok(Self {
            metadata_writers: MetadataWriters::start(&members).map_err(RecordError::Thread)?,
            targets: members.iter().map(target).collect(),
            chunk_bytes: chunk.0,
            partial_blocks: None,
            config,
            members,
            away,
            free_at_first,
        })
    }

    /// The metadata writers of the members.
    #[cfg(test)]
    pub(crate) fn metadata_writers(&self) -> &MetadataWriters {
        &self.metadata_writers
    }
}

impl Sink for StoreSink {
    fn targets(&self) -> &[Target] {
        &self.targets
    }

    fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes
    }

    fn outlives_its_writers(&self) -> bool {
        true
    }

    fn redundancy(&self) -> Option<Scheme> {
        self.config.redundancy
    }

    fn partial_blocks(&self) -> Option<PartialBlockJournal> {
        self.partial_blocks.clone()
    }

    fn start(
        &mut self,
        links: Vec<WriterLink>,
        memory: &[Arc<Region>],
        _pool_bytes: u64,
    ) -> Result<Vec<WriterThread>, RecordError> {
        let mut writers = Vec::with_capacity(links.len());
        for (number, (link, member)) in links.into_iter().zip(&self.members).enumerate() {
            let mut settings = store::Settings::of_member(number);
            settings.thread_config = link.thread_config;
            settings.memory = memory.to_vec();
            if let Some(interval) = link.sync_interval {
                settings.round_interval = interval;
            }
            let WriterLink { queues, metrics, events, notifier, .. } = link;
            writers.push(store::spawn(member, queues, metrics, events, notifier, settings)?);
        }
        self.partial_blocks =
            Some(PartialBlockJournal::start(&self.members).map_err(RecordError::Thread)?);
        Ok(writers)
    }

    fn plan_scan(&self, manifest: &mut Manifest, failures: &[Option<String>]) -> Box<dyn ScanSink> {
        let listed = self.members.iter().zip(failures);
        manifest.members =
            listed.map(|(member, failure)| manifest_member(member, failure.clone())).collect();
        manifest.away.clone_from(&self.away);
        manifest.redundancy = self.config.redundancy.map(Redundancy::of);
        let healthy = (0..self.members.len()).filter(|&member| failures[member].is_none());
        let members = healthy.map(|member| (member, self.members[member].root().to_owned()));
        Box::new(StoreScan::new(
            manifest.uuid,
            members.collect(),
            self.config.redundancy,
            self.metadata_writers.clone(),
            self.partial_blocks.clone(),
        ))
    }

    fn free_bytes(&self, writer: usize) -> u64 {
        self.metadata_writers.free_bytes(writer)
    }

    fn watch(&self, writer: usize, sources: u64) {
        let at_first = self.free_at_first[writer];
        self.metadata_writers
            .watch(writer, room::room_to_return(sources, self.chunk_bytes, at_first));
    }

    fn take_back(&mut self, writer: usize) -> bool {
        let back = self.metadata_writers.takes_back(writer);
        if back {
            self.targets[writer].device = device_of(self.members[writer].root());
        }
        back
    }
}

/// Warnings about a member, each with its directory.
fn warnings_of(member: &Member) -> impl Iterator<Item = (PathBuf, String)> {
    member.warnings().iter().map(|text| (member.root().to_owned(), text.clone()))
}

fn target(member: &Member) -> Target {
    let path = member.root().to_owned();
    Target { device: device_of(&path), buffered: member.buffered(), span: None, path }
}

fn manifest_member(member: &Member, failure: Option<String>) -> manifest::Member {
    manifest::Member {
        uuid: member.uuid(),
        path: member.root().to_owned(),
        failure,
        buffered: member.buffered(),
    }
}
