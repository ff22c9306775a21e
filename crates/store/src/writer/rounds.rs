//! Sync rounds: records, syncs, and the blocks that they make durable.

use std::io;
use std::sync::atomic::Ordering::Relaxed;

use fullbore_core::index::Entry;
use fullbore_linux::ring::{Block, WriterEvent};

use super::failure::Failure;
use super::{Engine, MemberState, Purpose, progress, rest_of};
use crate::chunk::Flight;
use crate::disk::{Disk, Operation};
use crate::journal::{Action, Event, Landed, SyncTarget};
use crate::pages::PageWrite;
use crate::reservation::SpaceRequest;
use crate::stream::{INDEX_STEP_BYTES, Key, MemberStream};

impl<D: Disk> Engine<D> {
    pub(super) fn start_rounds(&mut self) {
        let now = self.desk.disk.now();
        let waited = now.saturating_sub(self.tick) >= self.settings.round_interval;
        if waited || self.fresh_bytes >= self.settings.round_bytes {
            (self.tick, self.fresh_bytes) = (now, 0);
            for stream in self.streams.values_mut() {
                stream.due |= stream.journal.has_news();
            }
        }
        let startable = |(key, stream): (&Key, &MemberStream<_>)| {
            (stream.due && !stream.journal.in_round()).then_some(*key)
        };
        let keys: Vec<Key> = self.streams.iter().filter_map(startable).collect();
        for key in keys {
            if let Some(stream) = self.streams.get_mut(&key) {
                stream.due = false;
            }
            self.tell(key, Event::Due);
        }
    }

    pub(super) fn tell(&mut self, key: Key, event: Event) {
        let Some(stream) = self.streams.get_mut(&key) else { return };
        for action in stream.journal.step(event) {
            match action {
                Action::Record(entries) => self.record(key, &entries),
                Action::Sync(parts) => self.sync(key, parts),
                Action::Publish(blocks) => self.publish(key, &blocks),
                // The failure that caused it reports them.
                Action::Suspect(_) => unreachable!("only `break_journal` tells of failures"),
                Action::Closed => self.trim(key),
            }
        }
    }

    pub(super) fn record(&mut self, key: Key, entries: &[Entry]) {
        let now = self.desk.disk.now();
        let Some(stream) = self.streams.get_mut(&key) else { return };
        stream.round_since = now;
        for entry in entries {
            stream.record(entry);
        }
        self.write_pages(key);
    }

    pub(super) fn write_pages(&mut self, key: Key) {
        let Some(stream) = self.streams.get_mut(&key) else { return };
        let Some(PageWrite { offset, block, bytes }) = stream.pages.next_write() else {
            return self.tell(key, Event::Recorded);
        };
        let file = stream
            .file_of(SyncTarget::Index)
            .expect("records are of blocks, and those of an open stream");
        let (ordinal, since) = (0, self.desk.disk.now());
        let flight = Flight { ordinal, offset, bytes, written: 0, since };
        let grow = (!stream.index_growing
            && self.state == MemberState::Taking
            && offset + u64::from(bytes) + INDEX_STEP_BYTES / 2 > stream.index_space)
            .then(|| Operation::Extend {
                file: file.clone(),
                offset: stream.index_space,
                space: SpaceRequest::exactly(INDEX_STEP_BYTES),
            });
        let write = Operation::Write { file, offset, block, part: (0, bytes) };
        if let Some(grow) = grow {
            stream.index_growing = true;
            self.chore(key, Purpose::Grow(key), grow);
        }
        self.desk.submit(Purpose::Records(key, flight), write);
    }

    pub(super) fn records_written(
        &mut self,
        key: Key,
        flight: Flight,
        result: io::Result<u32>,
        block: Block,
    ) {
        let stream = self.streams.get_mut(&key).expect("a stream stays while it has writes");
        match progress(flight, result) {
            Ok(Some(flight)) => {
                let file = stream.file_of(SyncTarget::Index).expect("it was written to");
                let write = rest_of(file, flight, block);
                self.desk.submit(Purpose::Records(key, flight), write);
            }
            Ok(None) => {
                stream.pages.completed(block);
                self.write_pages(key);
            }
            Err(source) => {
                stream.pages.failed(block);
                let (root, path) = (self.root.clone(), stream.index_path());
                let (offset, bytes) = (flight.offset, flight.bytes);
                self.break_journal(key, &Failure::Write { root, path, offset, bytes, source });
            }
        }
    }

    pub(super) fn sync(&mut self, key: Key, parts: Vec<SyncTarget>) {
        let Some(stream) = self.streams.get(&key) else { return };
        let file = |part| {
            let file = stream.file_of(part);
            (part, file.unwrap_or_else(|| unreachable!("{part:?} is synced and not open")))
        };
        let files: Vec<_> = parts.into_iter().map(file).collect();
        for (part, file) in files {
            let metadata = !matches!(part, SyncTarget::Index | SyncTarget::Chunk(_));
            self.desk.submit(Purpose::Sync(key, part), Operation::Sync { file, metadata });
        }
    }

    pub(super) fn synced(&mut self, key: Key, part: SyncTarget, result: io::Result<u32>) {
        match result {
            Ok(_) => {
                let at = self.desk.disk.clock();
                self.tell(key, Event::Synced(part, at));
            }
            Err(source) => {
                let path = self.streams.get(&key).map(|s| s.path_of(part)).unwrap_or_default();
                let root = self.root.clone();
                self.break_journal(key, &Failure::Sync { root, path, source });
            }
        }
    }

    pub(super) fn publish(&mut self, key: Key, blocks: &[Landed]) {
        let Some(stream) = self.streams.get_mut(&key) else { return };
        let took = self.desk.disk.now().saturating_sub(stream.round_since);
        self.metrics.longest_sync_ns.fetch_max(took.as_nanos() as u64, Relaxed);
        for block in blocks {
            if let Some(chunk) = stream.chunks.get_mut(&block.chunk) {
                chunk.unpublished -= 1;
            }
            stream.retire(block.chunk);
        }
        tracing::trace!(
            directory = stream.stream_ref.directory,
            blocks = blocks.len(),
            took_us = took.as_micros() as u64,
            "blocks are durable"
        );
        let report = WriterEvent::Durable {
            stream_ref: stream.stream_ref.clone(),
            sequences: blocks.iter().map(|block| block.sequence).collect(),
            bytes: blocks.iter().map(|block| u64::from(block.bytes)).sum(),
        };
        self.report(report);
    }

    pub(super) fn report(&self, report: WriterEvent) {
        // If the supervisor is gone, the report is not needed; the index has the same information.
        let _ = self.reports.send(report);
    }
}
