//! Handles failures of a member, and the blocks concerned.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use fullbore_linux::ring::{StreamRef, WriterEvent};

use super::{Engine, MemberState};
use crate::chunk::Stage;
use crate::disk::Disk;
use crate::journal::{Action, Event, Landed};
use crate::stream::{Key, Phase, Spare};

/// A failure of a member.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("cannot make {path} in {}: {source}", root.display())]
    Make { root: PathBuf, path: String, source: io::Error },
    #[error("the disk is full")]
    Full,
    #[error("the disk quota is exceeded")]
    QuotaUsedUp,
    #[error("cannot rename {path} in {}: {source}", root.display())]
    Settle { root: PathBuf, path: String, source: io::Error },
    #[error("writing {bytes} bytes at {offset} of {path} in {}: {source}", root.display())]
    Write { root: PathBuf, path: String, offset: u64, bytes: u32, source: io::Error },
    #[error("syncing {path} in {}: {source}", root.display())]
    Sync { root: PathBuf, path: String, source: io::Error },
    #[error("the ring of {} failed: {source}", root.display())]
    Ring { root: PathBuf, source: io::Error },
}

impl<D: Disk> Engine<D> {
    /// Stops the member from accepting data. Blocks that are not being written are refused.
    pub(super) fn fail(&mut self, failure: &Failure, suspect: Vec<(Arc<StreamRef>, Vec<Landed>)>) {
        let news = self.state != MemberState::Failed || !suspect.is_empty();
        self.state = MemberState::Failed;
        self.metrics.refusing.store(true, Relaxed);
        let mut cut = Vec::new();
        for (key, stream) in &mut self.streams {
            for (number, chunk) in &mut stream.chunks {
                chunk.cut_waiting();
                cut.push((*key, *number));
            }
        }
        self.release_all(cut);
        if news {
            let (member, why) = (self.settings.member, failure.to_string());
            tracing::warn!(member = %self.root.display(), "takes no more data: {why}");
            self.report(WriterEvent::Failed { member, why, suspect });
        }
    }

    /// Marks the member as full: there is no room for another chunk. Chunks with reserved space continue.
    pub(super) fn fill_up(&mut self, failure: &Failure) {
        if self.state != MemberState::Taking {
            return;
        }
        self.state = MemberState::Full;
        self.metrics.refusing.store(true, Relaxed);
        let (member, why) = (self.settings.member, failure.to_string());
        tracing::warn!(member = %self.root.display(), "is full: {why}");
        self.report(WriterEvent::Failed { member, why, suspect: vec![] });
    }

    /// Accepts data again if the member was recalled, once nothing is left of the streams that it failed: later errors
    /// of those streams do not concern new ones.
    pub(super) fn come_back(&mut self) {
        if self.streams.is_empty() && self.metrics.recalled.swap(false, Relaxed) {
            self.state = MemberState::Taking;
            self.metrics.refusing.store(false, Relaxed);
            tracing::info!(member = %self.root.display(), "takes data again");
            self.report(WriterEvent::Back { member: self.settings.member });
        }
    }

    /// Handles a file that could not be made: the disk is full, or the member is broken.
    pub(super) fn not_made(&mut self, path: String, source: io::Error) {
        match source.kind() {
            io::ErrorKind::StorageFull => self.fill_up(&Failure::Full),
            io::ErrorKind::QuotaExceeded => self.fill_up(&Failure::QuotaUsedUp),
            _ => self.fail(&Failure::Make { root: self.root.clone(), path, source }, vec![]),
        }
    }

    /// Handles a chunk that could not be renamed. The chunk keeps its place and accepts no more blocks.
    pub(super) fn not_settled(&mut self, key: Key, number: u32, path: String, source: io::Error) {
        let Some(stream) = self.streams.get_mut(&key) else { return };
        let Some(chunk) = stream.chunks.get_mut(&number) else { return };
        match (chunk.file(), chunk.named) {
            (Some(file), true) => chunk.stage = Stage::Open(file),
            (_, _) => {
                // The chunk was to get the spare file, which still has its old name.
                if let Spare::Leaving(file, bytes) = &stream.spare {
                    stream.spare = Spare::Ready(file.clone(), *bytes);
                }
                chunk.cut_all();
                self.release(key, number);
            }
        }
        let root = self.root.clone();
        self.fail(&Failure::Settle { root, path, source }, vec![]);
    }

    /// Handles a stream whose directories or index could not be made.
    pub(super) fn lose_stream(&mut self, key: Key, path: String, source: io::Error) {
        if let Some(stream) = self.streams.get_mut(&key) {
            stream.phase = Phase::Dead;
            let numbers: Vec<u32> = stream.chunks.keys().copied().collect();
            for number in numbers {
                self.lose_chunk(key, number);
            }
        }
        self.not_made(path, source);
    }

    /// Handles a failure of records or a sync: no more of the stream becomes durable, and the sync is never repeated.
    /// Blocks still held are refused; the others are suspect.
    pub(super) fn break_journal(&mut self, key: Key, failure: &Failure) {
        let Some(stream) = self.streams.get_mut(&key) else { return };
        stream.unsyncable = true;
        let actions = stream.journal.step(Event::Failed);
        let mut cut = Vec::new();
        for (number, chunk) in &mut stream.chunks {
            chunk.cut_all();
            cut.push((key, *number));
        }
        let stream_ref = stream.stream_ref.clone();
        let mut unsure = Vec::new();
        let mut closed = false;
        for action in actions {
            match action {
                Action::Suspect(blocks) => unsure.extend(blocks),
                Action::Closed => closed = true,
                other => unreachable!("{other:?} after a failure"),
            }
        }
        self.release_all(cut);
        let suspect = if unsure.is_empty() { vec![] } else { vec![(stream_ref, unsure)] };
        self.fail(failure, suspect);
        if closed {
            self.trim(key);
        }
    }

    pub(super) fn release_all(&mut self, chunks: Vec<(Key, u32)>) {
        for (key, number) in chunks {
            self.release(key, number);
        }
    }
}
