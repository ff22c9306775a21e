//! Sync rounds of a scan that arrives: records, syncs, marks, and the blocks that they make durable.
//!
//! ```text
//! block ─► record ┐
//! block ─► record ┴─► sync of their chunks, names and index ─► mark ─► sync of the index ─► durable
//! ```
//!
//! A block is reported as durable only after a mark that covers it is on the disk. So a begin that continues believes the
//! marks, and nothing that was reported is given up then. A chunk gets its final name after that, so a file in place is
//! covered by marks too.
//!
//! The record of a block is written with the block, not in the next round. So a process that is killed loses no block
//! that it wrote: a begin that continues reads the blocks behind the last mark back, and keeps those whose CRC32C is
//! right.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fullbore_core::block_set::BlockSet;
use fullbore_core::index::{Codec, Entry};
use fullbore_core::layout::Geometry;
use fullbore_core::manifest::{INDEX_FILE, Manifest, SIDE_DIRECTORY};
use fullbore_linux::clock::Clock;
use fullbore_linux::regular_file;
use rustix::fs::{FallocateFlags, OFlags, fallocate};
use uuid::Uuid;

use super::Landing;
use super::chunks::{ChunkFile, Place};
use super::error::LandingError;
use crate::crash_hooks;
use crate::inventory::side_file;
use crate::journal::{Action, Event, SyncTarget};
use crate::lock::{ScanLock, sync_directory};
use crate::stream::INDEX_STEP_BYTES;

/// The most chunk files that stay open after a round.
const MOST_OPEN_FILES: usize = 128;

/// What one thread at a time changes: indexes, manifests and locks.
#[derive(Debug)]
pub struct Rounds {
    /// The manifest of the copy.
    pub manifest: Manifest,
    /// The lock on each member.
    pub locks: Vec<ScanLock>,
    /// The result, once the scan is sealed.
    pub sealed: Option<super::Sealed>,
}

/// The index of a stream on a member, made with its first record.
#[derive(Debug)]
pub struct IndexFile {
    path: PathBuf,
    member: Uuid,
    file: Option<Arc<File>>,
    /// End of the records.
    end: u64,
    /// End of the space that was asked for.
    space: u64,
}

impl IndexFile {
    /// An index that has records up to here.
    pub fn new(path: PathBuf, member: Uuid, end: u64) -> Self {
        Self { path, member, file: None, end, space: end }
    }

    fn open(&mut self) -> io::Result<&Arc<File>> {
        let file = match self.file.take() {
            Some(file) => file,
            None => {
                let mut options = OpenOptions::new();
                options.write(true).create(true).truncate(false).mode(0o644);
                Arc::new(regular_file::open_with_flags(&options, OFlags::NOFOLLOW, &self.path)?)
            }
        };
        Ok(self.file.insert(file))
    }

    /// True if it has no records.
    pub fn is_new(&self) -> bool {
        self.end == 0
    }

    /// Appends entries.
    pub fn append(
        &mut self,
        codec: Codec,
        stream: u16,
        geometry: &Geometry,
        entries: &[Entry],
    ) -> Result<(), LandingError> {
        if entries.is_empty() {
            return Ok(());
        }
        let header = Entry::Header {
            member: self.member,
            frame_bytes: geometry.frame_bytes,
            block_bytes: geometry.block_bytes,
            chunk_blocks: geometry.chunk_blocks,
        };
        let header = (self.end == 0).then_some(&header);
        let records = header.into_iter().chain(entries);
        let bytes: Vec<u8> = records.flat_map(|entry| codec.encode(stream, entry)).collect();
        let end = self.end;
        let mut write = || -> io::Result<()> {
            crash_hooks::step()?;
            self.reserve(end + bytes.len() as u64)?;
            self.open()?.write_all_at(&bytes, end)
        };
        let written = write();
        written.map_err(LandingError::write(&self.path))?;
        self.end += bytes.len() as u64;
        Ok(())
    }

    /// Reserves space for the records up to `end` and more to come, so that chunks cannot take it.
    fn reserve(&mut self, end: u64) -> io::Result<()> {
        while self.space < end {
            let from = self.space;
            self.space += INDEX_STEP_BYTES;
            // Without the space, the write tells whether the disk is full.
            let _ = fallocate(self.open()?, FallocateFlags::KEEP_SIZE, from, INDEX_STEP_BYTES);
        }
        Ok(())
    }

    /// Gives the space behind the records back.
    pub fn settle(&mut self) -> Result<(), LandingError> {
        if self.end == 0 {
            return Ok(());
        }
        let end = self.end;
        let mut cut = || -> io::Result<()> {
            crash_hooks::step()?;
            let file = self.open()?;
            file.set_len(end)?;
            file.sync_all()
        };
        let done = cut();
        self.file = None;
        done.map_err(LandingError::write(&self.path))
    }

    /// The open file and its path, to sync it while others append; `None` while it has no records.
    fn opened(&mut self) -> Result<Option<(Arc<File>, PathBuf)>, LandingError> {
        if self.is_new() {
            return Ok(None);
        }
        let path = self.path.clone();
        let file = self.open().map_err(LandingError::write(&path))?.clone();
        Ok(Some((file, path)))
    }
}

/// What a round syncs of a part.
struct Job {
    stream: usize,
    member: usize,
    entries: Vec<Entry>,
    targets: Vec<SyncTarget>,
    chunks: Vec<Arc<ChunkFile>>,
    directories: Vec<PathBuf>,
    /// The index, once it has records.
    index: Option<(Arc<File>, PathBuf)>,
}

impl Landing {
    /// Carries out a round.
    pub(super) fn round(
        &self,
        _one_at_a_time: &mut Rounds,
    ) -> Result<BTreeMap<u16, BlockSet>, LandingError> {
        self.fresh.store(0, Ordering::Relaxed);
        let done = self.try_round();
        if done.is_err() {
            // What a failed sync covered may be lost, whatever a later sync says.
            self.state().closed = true;
        }
        done
    }

    fn try_round(&self) -> Result<BTreeMap<u16, BlockSet>, LandingError> {
        let mut jobs = self.due()?;
        for job in &mut jobs {
            self.state().note(self.codec, job.stream, job.member, &job.entries)?;
            self.recorded(job)?;
        }
        self.sync_all(&jobs, true)?;
        let (blocks, marks) = self.synced(&jobs);
        for (job, mark) in jobs.iter().zip(&marks) {
            self.state().note(self.codec, job.stream, job.member, mark.as_slice())?;
        }
        self.sync_all(&jobs, false)?;
        self.publish(&jobs, &blocks)
    }

    /// Begins the round of every part that has something new.
    fn due(&self) -> Result<Vec<Job>, LandingError> {
        let mut state = self.state();
        if state.closed {
            return Err(LandingError::Closed);
        }
        let mut jobs = Vec::new();
        for (number, stream) in state.streams.iter_mut().enumerate() {
            for (member, part) in stream.parts.iter_mut().enumerate() {
                if !part.journal.has_news() {
                    continue;
                }
                for action in part.journal.step(Event::Due) {
                    let Action::Record(entries) = action else { continue };
                    jobs.push(Job {
                        stream: number,
                        member,
                        entries,
                        targets: Vec::new(),
                        chunks: Vec::new(),
                        directories: Vec::new(),
                        index: None,
                    });
                }
            }
        }
        Ok(jobs)
    }

    /// Finds the files that the round syncs.
    fn recorded(&self, job: &mut Job) -> Result<(), LandingError> {
        let mut state = self.state();
        let stream = &mut state.streams[job.stream];
        for action in stream.parts[job.member].journal.step(Event::Recorded) {
            if let Action::Sync(targets) = action {
                job.targets = targets;
            }
        }
        job.index = stream.parts[job.member].index.opened()?;
        let root = self.places[job.member].member.root();
        let directory = root.join(&*stream.directory);
        for target in &job.targets {
            match target {
                SyncTarget::Root => job.directories.push(root.to_owned()),
                SyncTarget::Directory => job.directories.push(directory.clone()),
                SyncTarget::Side => job.directories.push(directory.join(SIDE_DIRECTORY)),
                SyncTarget::Chunk(number) => {
                    job.chunks.extend(stream.chunks.get(number).map(|chunk| chunk.file.clone()));
                }
                SyncTarget::Index => {}
            }
        }
        Ok(())
    }

    /// Syncs the data, the names and the indexes of the jobs, or the indexes only: the members at the same time.
    fn sync_all(&self, jobs: &[Job], data: bool) -> Result<(), LandingError> {
        let of_member = |member: usize| -> Result<(), LandingError> {
            for job in jobs.iter().filter(|job| job.member == member) {
                if data {
                    job.sync_data(&self.places)?;
                }
                if let Some((file, path)) = &job.index {
                    file.sync_data().map_err(LandingError::write(path))?;
                }
            }
            Ok(())
        };
        let members: Vec<usize> = (0..self.places.len())
            .filter(|member| jobs.iter().any(|job| job.member == *member))
            .collect();
        match members.as_slice() {
            [] => Ok(()),
            [only] => of_member(*only),
            several => std::thread::scope(|scope| {
                let of_member = &of_member;
                let threads: Vec<_> =
                    several.iter().map(|&member| scope.spawn(move || of_member(member))).collect();
                let results = threads.into_iter().map(|thread| {
                    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                });
                results.collect()
            }),
        }
    }

    /// Tells the journals. Returns the blocks that each job published, and the marks to write.
    fn synced(&self, jobs: &[Job]) -> (Vec<Vec<fullbore_core::index::Block>>, Vec<Option<Entry>>) {
        let at = Clock::new().now();
        let mut state = self.state();
        let (mut blocks, mut marks) = (Vec::new(), Vec::new());
        for job in jobs {
            let journal = &mut state.streams[job.stream].parts[job.member].journal;
            let mut published = Vec::new();
            for &target in &job.targets {
                for action in journal.step(Event::Synced(target, at)) {
                    if let Action::Publish(blocks) = action {
                        published.extend(blocks);
                    }
                }
            }
            blocks.push(published);
            marks.push(journal.take_mark());
        }
        (blocks, marks)
    }

    /// Reports blocks as durable, and renames full chunks into place.
    fn publish(
        &self,
        jobs: &[Job],
        blocks: &[Vec<fullbore_core::index::Block>],
    ) -> Result<BTreeMap<u16, BlockSet>, LandingError> {
        let mut durable: BTreeMap<u16, BlockSet> = BTreeMap::new();
        let mut full = Vec::new();
        {
            let mut state = self.state();
            for (job, blocks) in jobs.iter().zip(blocks) {
                for file in state.published(job.stream, job.member, blocks) {
                    full.push((job.stream, job.member, file));
                }
                for block in blocks {
                    let of_stream = durable.entry(job.stream as u16).or_default();
                    of_stream.insert(block.sequence..block.sequence + 1);
                }
            }
        }
        for (_, _, file) in &full {
            file.place(&self.places)?;
        }
        let mut state = self.state();
        for (stream, member, _) in &full {
            for target in [SyncTarget::Side, SyncTarget::Directory] {
                state.touched(*stream, *member, target);
            }
        }
        drop(state);
        self.rest_files();
        Ok(durable)
    }

    /// Closes files that no block needs now, if many are open.
    fn rest_files(&self) {
        let state = self.state();
        if state.streams.iter().map(|stream| stream.open_chunks).sum::<usize>() <= MOST_OPEN_FILES {
            return;
        }
        let chunks = state.streams.iter().flat_map(|stream| stream.chunks.values());
        // No thread uses the file of a chunk without unsettled blocks, so none is waited for.
        let idle = chunks.filter(|chunk| !chunk.full && chunk.unsettled == 0);
        let open: Vec<_> = idle.map(|chunk| &chunk.file).filter(|file| file.is_open()).collect();
        for file in open.iter().take(open.len().saturating_sub(MOST_OPEN_FILES)) {
            file.rest();
        }
    }
}

impl Job {
    fn sync_data(&self, places: &[Place]) -> Result<(), LandingError> {
        for chunk in &self.chunks {
            chunk.sync(places)?;
        }
        for directory in &self.directories {
            sync_directory(directory).map_err(LandingError::write(directory))?;
        }
        Ok(())
    }
}

/// The path of the index of a stream on a member.
pub fn index_path(place: &Place, directory: &str) -> PathBuf {
    side_file(&place.member.root().join(directory), INDEX_FILE)
}
