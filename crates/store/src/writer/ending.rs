//! Ends a stream: last rounds, final lengths, last syncs.

use std::io;
use std::sync::Arc;

use fullbore_core::gap::Gap;
use fullbore_core::index::Entry;
use fullbore_linux::ring::{StreamRef, WriterEvent};

use super::failure::Failure;
use super::{Engine, Purpose, key};
use crate::chunk::Stage;
use crate::disk::{Disk, Operation};
use crate::journal::{Event, SyncTarget};
use crate::stream::{Key, MemberStream, Phase, Spare};

impl<D: Disk> Engine<D> {
    pub(super) fn end(&mut self, stream_ref: Arc<StreamRef>, gaps: Vec<Gap>) {
        match self.streams.get_mut(&key(&stream_ref)) {
            Some(stream) => stream.ending = Some(gaps),
            // No block of it came to this member: there is nothing to close.
            None => self.report(WriterEvent::Finished { member: self.settings.member, stream_ref }),
        }
    }

    /// Begins the last rounds of streams that have nothing waiting or in progress any more.
    pub(super) fn finish_drained(&mut self) {
        let drained = |(key, stream): (&Key, &MemberStream<_>)| {
            let open = matches!(stream.phase, Phase::Open | Phase::Dead);
            (open && stream.ending.is_some() && stream.is_drained()).then_some(*key)
        };
        let keys: Vec<Key> = self.streams.iter().filter_map(drained).collect();
        for key in keys {
            let Some(stream) = self.streams.get_mut(&key) else { continue };
            if stream.phase == Phase::Dead {
                self.close(key);
                continue;
            }
            stream.phase = Phase::Closing;
            for gap in stream.ending.iter_mut().flat_map(std::mem::take) {
                // A note begins no round, so there is no action yet.
                let actions = stream.journal.step(Event::Noted(Entry::Gap(gap)));
                assert!(actions.is_empty(), "{actions:?} for a note");
            }
            self.tell(key, Event::Finish);
        }
    }

    /// After the last round: truncates every file to its final length and renames it into place.
    pub(super) fn trim(&mut self, key: Key) {
        let Some(stream) = self.streams.get_mut(&key) else { return };
        let end = stream.stream_ref.geometry.chunk_bytes();
        let mut jobs = Vec::new();
        for chunk in stream.chunks.values() {
            let number = chunk.number;
            let (from, to) = (stream.filling_path(number), stream.place_path(number));
            let Stage::Open(file) = &chunk.stage else { continue };
            if !chunk.named {
                // The file of the chunk is still the spare.
                continue;
            }
            let operation = if chunk.holds_data() {
                let bytes = (chunk.written() < end).then_some(chunk.written());
                Operation::Settle { file: file.clone(), bytes, rename: Some((from, to)) }
            } else {
                Operation::Remove { path: from }
            };
            jobs.push((SyncTarget::Chunk(number), operation));
        }
        if let Spare::Ready(..) = stream.spare {
            jobs.push((SyncTarget::Side, Operation::Remove { path: stream.spare_path() }));
        }
        if let Some(file) = stream.file_of(SyncTarget::Index) {
            let bytes = Some(stream.pages.length());
            jobs.push((SyncTarget::Index, Operation::Settle { file, bytes, rename: None }));
        }
        stream.phase = Phase::Trimming(jobs.len());
        for (part, operation) in jobs {
            self.desk.submit(Purpose::Trim(key, part), operation);
        }
        self.sync_last(key);
    }

    pub(super) fn trimmed(&mut self, key: Key, part: SyncTarget, result: io::Result<u32>) {
        let stream = self.streams.get_mut(&key).expect("a stream stays until it is closed");
        let path = stream.path_of(part);
        if let Phase::Trimming(left) = &mut stream.phase {
            *left -= 1;
        }
        if let Err(source) = result {
            let root = self.root.clone();
            self.fail(&Failure::Settle { root, path, source }, vec![]);
        }
        self.sync_last(key);
    }

    /// After all truncations: syncs lengths and names. A stream whose sync has failed is not synced again.
    pub(super) fn sync_last(&mut self, key: Key) {
        let Some(stream) = self.streams.get_mut(&key) else { return };
        if stream.phase != Phase::Trimming(0) {
            return;
        }
        let chunks = stream.chunks.values().filter(|chunk| chunk.holds_data());
        let chunks = chunks.map(|chunk| SyncTarget::Chunk(chunk.number));
        let parts = [SyncTarget::Index, SyncTarget::Side, SyncTarget::Directory, SyncTarget::Root]
            .into_iter();
        let file = |part| Some((part, stream.file_of(part)?));
        let files: Vec<_> = chunks.chain(parts).filter_map(file).collect();
        if stream.unsyncable {
            return self.close(key);
        }
        stream.phase = Phase::Syncing(files.len());
        for (part, file) in files {
            let sync = Operation::Sync { file, metadata: true };
            self.desk.submit(Purpose::LastSync(key, part), sync);
        }
    }

    pub(super) fn last_synced(&mut self, key: Key, part: SyncTarget, result: io::Result<u32>) {
        let stream = self.streams.get_mut(&key).expect("a stream stays until it is closed");
        let path = stream.path_of(part);
        let mut left = 0;
        if let Phase::Syncing(syncs) = &mut stream.phase {
            *syncs -= 1;
            left = *syncs;
        }
        if let Err(source) = result {
            let root = self.root.clone();
            self.fail(&Failure::Sync { root, path, source }, vec![]);
        }
        if left == 0 {
            self.close(key);
        }
    }

    pub(super) fn close(&mut self, key: Key) {
        let Some(stream) = self.streams.remove(&key) else { return };
        let member = self.settings.member;
        let stream_ref = stream.stream_ref.clone();
        if let Some(buffer) = stream.pages.into_buffer() {
            let (region, _) = buffer.place();
            let home = self.buffers.iter_mut().find(|pool| pool.is_home_of(region));
            if let Some(pool) = home {
                pool.put(buffer);
            }
        }
        self.desk.disk.tidy();
        self.report(WriterEvent::Finished { member, stream_ref });
    }
}
