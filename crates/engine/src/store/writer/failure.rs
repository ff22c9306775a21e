//! What goes wrong on a member, and what becomes of its blocks then.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::{Engine, Standing};
use crate::ring::{Report, Track};
use crate::store::chunk::Stage;
use crate::store::disk::Disk;
use crate::store::journal::{Action, Event, Landed};
use crate::store::stream::{Key, Phase, Spare};

/// What went wrong on a member.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("making {path} in {}: {source}", root.display())]
    Make { root: PathBuf, path: String, source: io::Error },
    #[error("the disk is full (making {path} in {}: {source})", root.display())]
    Full { root: PathBuf, path: String, source: io::Error },
    #[error("putting {path} in its place in {}: {source}", root.display())]
    Settle { root: PathBuf, path: String, source: io::Error },
    #[error("writing {bytes} bytes at {offset} of {path} in {}: {source}", root.display())]
    Write { root: PathBuf, path: String, offset: u64, bytes: u32, source: io::Error },
    #[error("syncing {path} in {}: {source}", root.display())]
    Sync { root: PathBuf, path: String, source: io::Error },
    #[error("the ring of {} failed: {source}", root.display())]
    Ring { root: PathBuf, source: io::Error },
}

impl<D: Disk> Engine<D> {
    /// The member takes nothing any more. What it has not begun to write goes back.
    pub(super) fn fail(&mut self, failure: &Failure, suspect: Vec<(Arc<Track>, Vec<Landed>)>) {
        let news = self.standing != Standing::Failed || !suspect.is_empty();
        self.standing = Standing::Failed;
        self.gauge.refusing.store(true, Relaxed);
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
            self.report(Report::Failed { member, why, suspect });
        }
    }

    /// The member has no room for another chunk. Chunks that have their space go on.
    pub(super) fn fill_up(&mut self, failure: &Failure) {
        if self.standing != Standing::Taking {
            return;
        }
        self.standing = Standing::Full;
        self.gauge.refusing.store(true, Relaxed);
        let (member, why) = (self.settings.member, failure.to_string());
        self.report(Report::Failed { member, why, suspect: vec![] });
    }

    /// Takes data again if the member was recalled, once nothing is left of the streams that it failed: what still
    /// goes wrong with those has nothing to do with what comes.
    pub(super) fn come_back(&mut self) {
        if self.streams.is_empty() && self.gauge.recalled.swap(false, Relaxed) {
            self.standing = Standing::Taking;
            self.gauge.refusing.store(false, Relaxed);
            self.report(Report::Back { member: self.settings.member });
        }
    }

    /// A file could not be made: for want of space, or because the member is broken.
    pub(super) fn not_made(&mut self, path: String, source: io::Error) {
        let root = self.root.clone();
        match is_full(&source) {
            true => self.fill_up(&Failure::Full { root, path, source }),
            false => self.fail(&Failure::Make { root, path, source }, vec![]),
        }
    }

    /// A chunk could not be given its name. It stays where it is and takes no more.
    pub(super) fn not_settled(&mut self, key: Key, number: u32, path: String, source: io::Error) {
        let Some(stream) = self.streams.get_mut(&key) else { return };
        let Some(chunk) = stream.chunks.get_mut(&number) else { return };
        match (chunk.file(), chunk.named) {
            (Some(file), true) => chunk.stage = Stage::Open(file),
            (_, _) => {
                // It was to get the spare, which is still where it was.
                if let Spare::Leaving(file) = &stream.spare {
                    stream.spare = Spare::Ready(file.clone());
                }
                chunk.cut_all();
                self.release(key, number);
            }
        }
        let root = self.root.clone();
        self.fail(&Failure::Settle { root, path, source }, vec![]);
    }

    /// A stream's directories or index could not be made.
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

    /// Records or a sync failed: nothing of the stream becomes durable any more, and it is never
    /// tried again. What is still held goes back; what is not is suspect.
    pub(super) fn break_journal(&mut self, key: Key, failure: &Failure) {
        let Some(stream) = self.streams.get_mut(&key) else { return };
        stream.unsyncable = true;
        let actions = stream.journal.step(Event::Failed);
        let mut cut = Vec::new();
        for (number, chunk) in &mut stream.chunks {
            chunk.cut_all();
            cut.push((key, *number));
        }
        let track = stream.track.clone();
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
        let suspect = if unsure.is_empty() { vec![] } else { vec![(track, unsure)] };
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

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
