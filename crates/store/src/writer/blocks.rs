//! Accepts blocks, sends them to the disk, and returns them.

use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use fullbore_core::layout::ALIGNMENT;
use fullbore_linux::ring::{Block, FullBlock, WriterCommand, WriterReply};

use super::failure::Failure;
use super::{Engine, MemberState, Purpose, Timing, key, progress, rest_of};
use crate::chunk::{Chunk, Flight, Job, Leaving, Stage};
use crate::disk::{Disk, Operation};
use crate::journal::{Event, SyncTarget};
use crate::stall_hooks;
use crate::stream::{Key, Phase, Spare};

impl<D: Disk> Engine<D> {
    pub(super) fn take_commands(&mut self) {
        for lane in 0..self.gates.len() {
            self.gates[lane].flush();
            while let Ok(command) = self.gates[lane].lane.commands.pop() {
                match command {
                    WriterCommand::Write(filled) => self.accept(lane, filled),
                    WriterCommand::Finish { stream_ref, gaps } => self.end(stream_ref, gaps),
                }
            }
        }
        if self.gates.iter().all(|gate| gate.lane.is_over()) {
            for stream in self.streams.values_mut() {
                stream.ending.get_or_insert_default();
            }
        }
    }

    pub(super) fn accept(&mut self, lane: usize, filled: FullBlock) {
        stall_hooks::before_a_block(&self.root);
        let key = key(&filled.stream_ref);
        let number = filled.chunk;
        if !self.takes(key, &filled) {
            return self.refuse(lane, filled);
        }
        if !self.streams.contains_key(&key) {
            self.begin(key, filled.stream_ref.clone());
        }
        let stream = self.streams.get_mut(&key).expect("begun above");
        let is_new = !stream.chunks.contains_key(&number);
        let chunk = stream.chunks.entry(number).or_insert_with(|| Chunk::new(number));
        if !chunk.takes(&filled) {
            return self.refuse(lane, filled);
        }
        chunk.push(lane, filled);
        if matches!(chunk.stage, Stage::Open(_)) {
            self.ready.extend(chunk.take_fitting().map(|ordinal| (key, number, ordinal)));
        }
        self.grow(key, number);
        if is_new {
            self.make_wanted(key);
        }
        self.make_spare(key, number);
    }

    /// Returns true if a block can be accepted in the current state of the member and its stream.
    pub(super) fn takes(&self, key: Key, filled: &FullBlock) -> bool {
        let stream = self.streams.get(&key);
        let willing = stream.is_none_or(|stream| {
            let closed = matches!(stream.phase, Phase::Trimming(_) | Phase::Syncing(_));
            let over = closed || matches!(stream.phase, Phase::Dead | Phase::Closing);
            !over && stream.ending.is_none() && !stream.journal.broken()
        });
        // A chunk is accepted from its first block on: if that was refused, so is the rest.
        let goes_on = stream.is_some_and(|it| it.chunks.contains_key(&filled.chunk));
        let begins = !goes_on && filled.offset == 0;
        let has_spare = stream.is_some_and(|it| matches!(it.spare, Spare::Ready(..)));
        let state = match self.state {
            MemberState::Taking => true,
            MemberState::Full => goes_on || has_spare,
            MemberState::Failed => false,
        };
        willing && state && (goes_on || begins) && filled.offset.is_multiple_of(ALIGNMENT)
    }

    /// Keeps the disk busy to its depth, and the next block checksummed.
    pub(super) fn send_ready(&mut self) {
        while let Some(&(key, number, ordinal)) = self.ready.front() {
            let chunk = self.streams.get_mut(&key).and_then(|s| s.chunks.get_mut(&number));
            let waiting = chunk.and_then(|chunk| Some((chunk.waiting_bytes(ordinal)?, chunk)));
            let Some((bytes, chunk)) = waiting else {
                // The block was refused while it waited.
                self.ready.pop_front();
                continue;
            };
            if self.flying_bytes > 0
                && self.flying_bytes + u64::from(bytes) > self.settings.depth_bytes
            {
                chunk.prepare(ordinal);
                return;
            }
            let file = chunk.file().expect("only blocks of open chunks are ready");
            let Job { block, offset, bytes } = chunk.send(ordinal).expect("looked at above");
            let since = self.desk.disk.now();
            let flight = Flight { ordinal, offset, bytes, written: 0, since };
            let write = Operation::Write { file, offset, block, part: (0, bytes) };
            self.desk.submit(Purpose::Write(key, number, flight), write);
            self.flying_bytes += u64::from(bytes);
            self.ready.pop_front();
        }
    }

    pub(super) fn refuse(&mut self, lane: usize, filled: FullBlock) {
        self.metrics.backlog_bytes.fetch_sub(filled.bytes.into(), Relaxed);
        self.gates[lane].give_back(WriterReply::Refused(filled));
    }

    /// Releases the written or refused blocks of a chunk, and renames it into place when it is complete.
    pub(super) fn release(&mut self, key: Key, number: u32) {
        let Some(stream) = self.streams.get_mut(&key) else { return };
        let owner = stream.stream_ref.clone();
        let Some(chunk) = stream.chunks.get_mut(&number) else { return };
        for leaving in chunk.release() {
            match leaving {
                Leaving::Refused { lane, filled } => self.refuse(lane, filled),
                Leaving::Written { lane, block, landed, entries } => {
                    let bytes = u64::from(landed.bytes);
                    self.metrics.backlog_bytes.fetch_sub(bytes, Relaxed);
                    self.metrics.written_bytes.fetch_add(bytes, Relaxed);
                    self.fresh_bytes += bytes;
                    let (stream_ref, bytes) = (owner.clone(), landed.bytes);
                    self.gates[lane].give_back(WriterReply::Written { block, stream_ref, bytes });
                    self.tell(key, Event::Landed(landed, entries));
                }
            }
        }
        self.place(key, number);
    }

    pub(super) fn block_written(
        &mut self,
        key: Key,
        number: u32,
        flight: Flight,
        result: io::Result<u32>,
        block: Block,
    ) {
        let stream = self.streams.get_mut(&key).expect("a stream stays while it has writes");
        let path = stream.path_of(SyncTarget::Chunk(number));
        let chunk = stream.chunks.get_mut(&number).expect("a chunk stays while it has writes");
        let outcome = progress(flight, result);
        if let Ok(Some(flight)) = outcome {
            let file = chunk.file().expect("it was written to");
            let write = rest_of(file, flight, block);
            return self.desk.submit(Purpose::Write(key, number, flight), write);
        }
        self.flying_bytes -= u64::from(flight.bytes);
        let took = self.desk.disk.now().saturating_sub(flight.since);
        self.metrics.longest_write_ns.fetch_max(took.as_nanos() as u64, Relaxed);
        if let Some(timings) = &self.settings.timings {
            let (offset, bytes) = (flight.offset, flight.bytes);
            let at = Instant::now();
            let timing =
                Timing { member: self.settings.member, chunk: number, offset, bytes, at, took };
            // The receiver may have stopped measuring.
            let _ = timings.send(timing);
        }
        match outcome {
            Err(source) => {
                chunk.fail(flight.ordinal, block);
                let (root, offset) = (self.root.clone(), flight.offset);
                let failure = Failure::Write { root, path, offset, bytes: flight.bytes, source };
                self.fail(&failure, vec![]);
            }
            Ok(_) => chunk.land(flight.ordinal, block),
        }
        self.release(key, number);
    }
}
