//! One scan on a disk set, off the data path: its directories, manifests, accounts, locks and redundancy.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::Builder;
use std::time::Instant;

use fullbore_core::account::Account;
use fullbore_core::index::Block;
use fullbore_core::manifest::{ACCOUNT_FILE, MANIFEST_FILE, Manifest, State, Stream};
use fullbore_core::marker::{self, Marker};
use fullbore_core::redundancy::Scheme;
use fullbore_linux::ring::WriterMetrics;
use fullbore_store::inventory::side_file;
use fullbore_store::partial_blocks::PartialBlockJournal;
use fullbore_store::{markers, reader, stall_hooks};
use uuid::Uuid;

use super::disk_set::{by_cause, verb};
use super::metadata_writer::{
    MetadataFile, MetadataTask, MetadataWriters, PATIENCE, PendingReplies,
};
use super::parity_task::ParityTask;
use super::renumber;
use super::unreachable::find_unreachable;
use super::verify_unsynced::{UnsyncedBlocks, verify_unsynced};
use crate::error::RecordError;
use crate::sink::ScanSink;

/// A scan on the members that were writable when it was planned.
pub struct StoreScan {
    scan: Uuid,
    /// The members' places in the disk set, with their directories.
    members: Vec<(usize, PathBuf)>,
    /// Members that no longer respond.
    unresponsive: BTreeSet<usize>,
    /// True if the scan has begun, on the members that had created its directories by then.
    begun: Arc<AtomicBool>,
    /// Writes of manifests that are under way during the recording.
    manifest_writes: Option<PendingReplies>,
    /// Blocks that were written to a member whose sync failed later.
    unsynced: Vec<UnsyncedBlocks>,
    /// The task that makes its redundancy, if it has any.
    parity_task: Option<ParityTask>,
    /// The journal of its partial blocks.
    partial_blocks: Option<PartialBlockJournal>,
    /// Members that do not respond, on which journals of partial blocks may remain.
    late: Vec<usize>,
    metadata_writers: MetadataWriters,
}

impl StoreScan {
    /// A scan that is on no member yet. Without members its frames are counted, and not stored.
    pub(super) fn new(
        scan: Uuid,
        members: Vec<(usize, PathBuf)>,
        redundancy: Option<Scheme>,
        metadata_writers: MetadataWriters,
        partial_blocks: Option<PartialBlockJournal>,
    ) -> Self {
        let roots: Vec<PathBuf> = members.iter().map(|(_, root)| root.clone()).collect();
        Self {
            scan,
            members,
            unresponsive: BTreeSet::new(),
            begun: Arc::default(),
            manifest_writes: None,
            unsynced: Vec::new(),
            parity_task: redundancy.map(|scheme| ParityTask::new(scan, scheme, roots)),
            partial_blocks,
            late: Vec::new(),
            metadata_writers,
        }
    }

    fn ask(&self, task: &MetadataTask) -> PendingReplies {
        let members: Vec<usize> = self.members.iter().map(|(member, _)| *member).collect();
        self.metadata_writers.ask(&members, self.scan, task)
    }

    /// Directories of the members that respond.
    fn answering(&self) -> Vec<PathBuf> {
        let answers = self.members.iter().filter(|(it, _)| !self.unresponsive.contains(it));
        answers.map(|(_, root)| root.clone()).collect()
    }

    /// Starts to write the manifest beside every stream on every member.
    fn write_manifests(&self, manifest: &Manifest) -> PendingReplies {
        self.ask(&MetadataTask::Write(manifest_files(manifest)))
    }

    /// Writes the manifest to as many places as possible. Returns the places where it failed.
    fn put_manifests(&mut self, manifest: &Manifest) -> Vec<PathBuf> {
        let mut answers = self.write_manifests(manifest);
        answers.wait_for_enough(&mut self.unresponsive);
        let failed = answers.failed().iter().map(|(_, path, _)| path.clone());
        let silent = self.members.iter().filter(|(it, _)| self.unresponsive.contains(it));
        let unwritten = silent.flat_map(|(_, root)| {
            let streams = manifest.streams.iter();
            streams.map(move |stream| side_file(&root.join(&stream.directory), MANIFEST_FILE))
        });
        failed.chain(unwritten).collect()
    }

    /// Starts to write the account of a stream on every member.
    fn write_account(&self, stream: &Stream, account: &Account) -> PendingReplies {
        let directory = stream.directory.clone();
        let json = account.to_json().into();
        let file = MetadataFile { directory, name: ACCOUNT_FILE, json };
        self.ask(&MetadataTask::Write(vec![file]))
    }

    /// Enters members that no longer respond into the manifest. Returns true if some were not in it before.
    fn name_the_unresponsive(&self, manifest: &mut Manifest) -> bool {
        let mut news = false;
        for &member in &self.unresponsive {
            manifest.members[member].failure.get_or_insert_with(|| {
                news = true;
                "it did not answer when the scan was sealed".to_owned()
            });
        }
        news
    }

    /// Returns the scan's markers, as far as its members reply within [`PATIENCE`]. Later markers are found beside the
    /// manifest.
    fn markers(&self, manifest: &Manifest) -> Vec<Marker> {
        let (tell, told) = mpsc::channel();
        let Some(first) = manifest.streams.first() else { return Vec::new() };
        for root in self.answering() {
            let tell = tell.clone();
            let file = markers::file_of(&root.join(&first.directory));
            // A member that does not respond blocks only this thread.
            let _ = Builder::new().name("markers".into()).spawn(move || {
                stall_hooks::at(&root);
                // The receiver may be gone; ignore the error.
                let _ = tell.send(markers::of_file(&file));
            });
        }
        drop(tell);
        let until = Instant::now() + PATIENCE;
        let next = || told.recv_timeout(until.saturating_duration_since(Instant::now())).ok();
        marker::joined(std::iter::from_fn(next).flatten().chain(manifest.markers.clone()))
    }

    /// Adds the stream positions of markers whose positions were not on disk when they were set.
    fn place_markers(&self, manifest: &mut Manifest) {
        let streams = manifest.streams.len();
        if manifest.markers.iter().all(|marker| marker.positions.len() >= streams) {
            return;
        }
        // Without the indexes the positions are unknown; `info` computes them later from the readable part.
        let Ok(stored) = reader::Scan::open(&self.answering(), &manifest.scan) else { return };
        for marker in &mut manifest.markers {
            markers::place(&stored, marker, false);
        }
    }

    /// Makes the missing parity of the sealed scan, and enters it into the manifests. Returns warnings.
    fn complete_redundancy(&mut self, manifest: &mut Manifest) -> Vec<String> {
        let Some(parity_task) = self.parity_task.take() else { return Vec::new() };
        let streams = manifest.streams.iter().zip(0..);
        let streams = streams
            .filter(|(stream, _)| stream.blocks > 0)
            .map(|(stream, number)| (number, stream.directory.clone(), stream.renamed.clone()))
            .collect();
        let (followed, mut warnings) = parity_task.finish(streams);
        if let Some(redundancy) = &mut manifest.redundancy {
            redundancy.followed = followed;
        }
        if followed.is_some() {
            let places = self.put_manifests(manifest);
            warnings.extend(places.iter().map(|path| {
                format!("{}: not written: it lacks the redundancy entry", path.display())
            }));
        }
        warnings
    }
}

impl ScanSink for StoreScan {
    fn claim(&self, manifest: &Manifest) -> PendingReplies {
        let streams = &manifest.streams;
        self.ask(&MetadataTask::Claim {
            name: manifest.scan.clone(),
            directories: streams.iter().map(|stream| stream.directory.clone()).collect(),
            files: manifest_files(manifest),
            begun: self.begun.clone(),
        })
    }

    fn begin(
        &mut self,
        manifest: &mut Manifest,
        claimed: PendingReplies,
    ) -> Result<Vec<String>, RecordError> {
        let mut warnings = Vec::new();
        let name = &manifest.scan;
        let root = |member: usize| manifest.members[member].path.clone();
        for &member in claimed.awaited() {
            let root = root(member);
            warnings.push(format!("{} does not answer: {name} begins without it", root.display()));
        }
        let failed = || claimed.failed().iter();
        for (paths, why) in by_cause(failed().map(|(it, _, error)| (root(*it), error.cause()))) {
            let take_no_part = verb(&paths, "takes", "take") + " no part in";
            warnings.push(format!("{take_no_part} {name} as it begins: {why}"));
        }
        let failures: Vec<(usize, String)> =
            failed().map(|(member, _, error)| (*member, error.to_string())).collect();
        if !self.members.is_empty() {
            claimed.enough_made()?;
        }
        for (member, why) in failures {
            manifest.members[member].failure.get_or_insert(why);
        }
        self.begun.store(true, Ordering::SeqCst);
        Ok(warnings)
    }

    fn update(&mut self, manifest: &Manifest) -> Result<(), RecordError> {
        if self.members.is_empty() {
            return Ok(());
        }
        let now = self.write_manifests(manifest);
        match self.manifest_writes.replace(now) {
            // An error belongs to the earlier write.
            Some(mut before) => {
                before.poll();
                before.one_is_enough()
            }
            None => Ok(()),
        }
    }

    fn durable(&mut self, number: u16, stream: &Stream, writers: &[Arc<WriterMetrics>]) {
        if let Some(parity_task) = &mut self.parity_task {
            parity_task.note(number, &stream.directory, writers);
        }
    }

    fn unsynced(&mut self, writer: usize, stream: u16, blocks: Vec<Block>) {
        if let Some((_, root)) = self.members.iter().find(|(member, _)| *member == writer) {
            self.unsynced.push(UnsyncedBlocks { root: root.clone(), stream, blocks });
        }
    }

    fn settle(
        &mut self,
        manifest: &mut Manifest,
        accounts: &mut BTreeMap<u16, Account>,
    ) -> Vec<String> {
        let unsynced = std::mem::take(&mut self.unsynced);
        let mut warnings = verify_unsynced(unsynced, manifest, accounts);
        let roots: Vec<PathBuf> = self.members.iter().map(|(_, root)| root.clone()).collect();
        if manifest.members.iter().any(|member| member.failure.is_some()) {
            // The streams are found by the manifest.
            self.put_manifests(manifest);
            find_unreachable(&roots, manifest, accounts);
        }
        warnings.extend(renumber::plan(&roots, manifest));
        // All blocks are written by now, and a sealed scan has no partial blocks.
        if let Some(journals) = &self.partial_blocks {
            self.late = journals.forget(self.scan, PATIENCE);
        }
        warnings
    }

    fn seal(
        &mut self,
        manifest: &mut Manifest,
        accounts: &BTreeMap<u16, Account>,
        state: State,
    ) -> Result<(), RecordError> {
        if self.members.is_empty() && manifest.members.iter().all(|it| it.failure.is_some()) {
            return Err(RecordError::NoMemberLeft);
        }
        let streams = &manifest.streams;
        let written: Vec<PendingReplies> = accounts
            .iter()
            .map(|(number, it)| self.write_account(&streams[usize::from(*number)], it))
            .collect();
        for mut answers in written {
            answers.wait_for_enough(&mut self.unresponsive);
            answers.one_is_enough()?;
        }
        // Only the manifests mark the scan as sealed, so they are written last.
        manifest.state = state;
        manifest.markers = self.markers(manifest);
        self.place_markers(manifest);
        self.name_the_unresponsive(manifest);
        let mut manifests = self.write_manifests(manifest);
        manifests.wait_for_enough(&mut self.unresponsive);
        if self.name_the_unresponsive(manifest) {
            manifests = self.write_manifests(manifest);
            manifests.wait_for_enough(&mut self.unresponsive);
        }
        manifests.one_is_enough()
    }

    fn finish(&mut self, manifest: &mut Manifest, sealed: bool) -> Vec<String> {
        let mut warnings = Vec::new();
        if sealed {
            let roots: Vec<PathBuf> = self.members.iter().map(|(_, root)| root.clone()).collect();
            warnings.extend(renumber::carry_out(&roots, manifest, |manifest| {
                self.put_manifests(manifest)
            }));
            warnings.extend(self.complete_redundancy(manifest));
        }
        // Releases the locks, so that the scan can be read as soon as it is reported as sealed.
        self.ask(&MetadataTask::Release).wait_for_enough(&mut self.unresponsive);
        self.name_the_unresponsive(manifest);
        let name = &manifest.scan;
        let path = |member: usize| manifest.members[member].path.display();
        warnings.extend(self.unresponsive.iter().map(|&member| {
            format!(
                "{} does not answer: {name} is sealed without it; once it does, `fullbore recover {name}` \
                 completes what it holds",
                path(member)
            )
        }));
        let late = self.late.iter().filter(|member| !self.unresponsive.contains(member));
        warnings.extend(late.map(|&member| {
            format!(
                "{} does not answer: the journals of partial blocks of {name} stay there until it does",
                path(member)
            )
        }));
        warnings
    }

    fn leave(&self) {
        drop(self.ask(&MetadataTask::Release));
    }

    fn discard(&self) -> PendingReplies {
        self.ask(&MetadataTask::Discard)
    }
}

/// The manifest in its present state, for every stream.
fn manifest_files(manifest: &Manifest) -> Vec<MetadataFile> {
    let json: Arc<[u8]> = manifest.to_json().into();
    let file = |stream: &Stream| MetadataFile {
        directory: stream.directory.clone(),
        name: MANIFEST_FILE,
        json: json.clone(),
    };
    manifest.streams.iter().map(file).collect()
}
