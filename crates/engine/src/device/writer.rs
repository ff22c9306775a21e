//! The writer of a device: one thread and one ring, for one stream of blocks.
//!
//! ```text
//! lane ──Write──► its place on the device ──completed──► let go in order ──► Returned::Written
//!                                                             │
//!                                       round: records ──► sync ──► Report::Durable
//! ```
//!
//! It speaks with its source as the writer of a store's member does ([`Lane`]), so whatever fills blocks for a
//! store can fill them for a device. A block's place is arithmetic: its number times the size of a block.
//! Blocks are let go in their order, so that what is written is a run from the beginning, whatever fails.
//!
//! A round writes the records of what was let go since the last one, then syncs the device: the number of a
//! round in a record tells whoever recovers that all rounds before it were durable.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fullbore_core::device::{
    BlockRecord, PAGE_BYTES, RECORD_BYTES, RECORDS_PER_PAGE, Span, Volume as Layout, checksum,
};
use fullbore_core::index;
use fullbore_core::layout::ALIGNMENT;

use super::error::Error;
use super::medium::Medium;
use crate::ring::{Block, Command, Filled, Gauge, Label, Pool, Report, Returned, Track, Wake};
use crate::store::Lane;
use crate::sys::memory::Region;
use crate::sys::uring::{Done, Ring};

/// The most records that a round writes at once.
const ROUND_RECORDS: usize = 60 * RECORDS_PER_PAGE;

/// Memory that records are written from: those of a round, and what was in their first page already.
const RECORD_BUFFER_BYTES: usize = ROUND_RECORDS * RECORD_BYTES + 2 * PAGE_BYTES;

/// A write is never longer: what a completion can tell of.
const LONGEST_WRITE: u64 = 1 << 30;

/// Tokens of operations that are no writes of blocks.
const RECORDS: u64 = u64::MAX - 1;
const SYNC: u64 = u64::MAX;

/// What a writer is to do.
pub struct Job {
    /// The device.
    pub medium: Arc<Medium>,
    /// The only chunks that it writes blocks to.
    pub span: Span,
    /// Where records go, if the device has an index, and what they carry.
    pub records: Option<(Layout, u64)>,
    /// Writes under way at once.
    pub depth: u64,
    /// A round starts after so many bytes …
    pub round_bytes: u64,
    /// … or after this time.
    pub round_interval: Duration,
    /// The core to stay on.
    pub cpu: Option<usize>,
}

/// A running writer.
pub struct Writer {
    thread: JoinHandle<()>,
    wake: Arc<Wake>,
}

impl Writer {
    /// Waits for its end. The other end of its lane must have been dropped.
    pub fn join(self) -> Result<(), Error> {
        self.wake.wake();
        self.thread.join().map_err(|_| Error::Broken)
    }
}

/// Starts a writer.
pub fn spawn(
    job: Job,
    lane: Lane,
    gauge: Arc<Gauge>,
    reports: mpsc::Sender<Report>,
    wake: Arc<Wake>,
) -> Result<Writer, Error> {
    let (ready, answer) = mpsc::channel();
    let waker = wake.clone();
    let run = move || {
        // A refusal leaves the thread where the scheduler wants it.
        crate::posting::Posting::on(job.cpu).take_up();
        // The ring belongs to the thread that makes it.
        match Engine::new(job, lane, gauge, reports, waker) {
            Ok(engine) => {
                if ready.send(Ok(())).is_ok() {
                    engine.run();
                }
            }
            Err(error) => drop(ready.send(Err(error))),
        }
    };
    let thread = std::thread::Builder::new().name("fb-device".into()).spawn(run);
    let thread = thread.map_err(|source| Error::Thread { source })?;
    match answer.recv() {
        Ok(started) => started.map(|()| Writer { thread, wake }),
        Err(_) => Err(Error::Broken),
    }
}

/// A block that was submitted and is not let go.
struct Slot {
    label: Label,
    address: u64,
    /// Bytes to write: those that count, and zeros up to a page.
    bytes: u32,
    written: u32,
    since: Instant,
    /// Back from the kernel: what is left to do is its turn.
    landed: Option<Block>,
    failed: bool,
}

/// How far a round is.
enum Round {
    Idle,
    /// Its records are being written.
    Recording(Blocks),
    /// The device is being synced.
    Syncing(Blocks),
}

/// The blocks of a round.
struct Blocks {
    sequences: Vec<u64>,
    bytes: u64,
    since: Instant,
}

struct Engine {
    job: Job,
    ring: Ring,
    wake: Arc<Wake>,
    lane: Lane,
    /// What the lane had no room for.
    overflow: VecDeque<Returned>,
    gauge: Arc<Gauge>,
    reports: mpsc::Sender<Report>,
    /// Submitted and not let go, in their order.
    slots: VecDeque<Slot>,
    /// Number of the first of them.
    base: u64,
    under_way: u64,
    /// Let go, and not yet in a round.
    fresh: VecDeque<(BlockRecord, u64)>,
    fresh_bytes: u64,
    round: Round,
    rounds: u32,
    tick: Instant,
    /// The page of records that the next one goes to, as it stands.
    page: [u8; PAGE_BYTES],
    records_written: u64,
    /// Bytes of records that are being written.
    record_bytes: u32,
    buffer: Option<Block>,
    /// Whose blocks they are.
    track: Option<Arc<Track>>,
    failure: Option<String>,
    /// A round has failed: a sync that failed is never tried again as if it could succeed.
    rounds_over: bool,
    finishing: Option<Arc<Track>>,
    done: Vec<Done>,
}

impl Engine {
    fn new(
        job: Job,
        lane: Lane,
        gauge: Arc<Gauge>,
        reports: mpsc::Sender<Report>,
        wake: Arc<Wake>,
    ) -> Result<Self, Error> {
        let memory = |source| Error::Memory { bytes: RECORD_BUFFER_BYTES as u64, source };
        let region = Arc::new(Region::new(RECORD_BUFFER_BYTES).map_err(memory)?);
        let buffer = Pool::new(region, RECORD_BUFFER_BYTES, 0).take();
        Ok(Self {
            ring: Ring::new(wake.clone())?,
            wake,
            lane,
            overflow: VecDeque::new(),
            gauge,
            reports,
            slots: VecDeque::new(),
            base: 0,
            under_way: 0,
            fresh: VecDeque::new(),
            fresh_bytes: 0,
            round: Round::Idle,
            rounds: 0,
            tick: Instant::now(),
            page: [0; PAGE_BYTES],
            records_written: 0,
            record_bytes: 0,
            buffer,
            track: None,
            failure: None,
            rounds_over: false,
            finishing: None,
            done: Vec::new(),
            job,
        })
    }

    fn run(mut self) {
        while self.turn() {}
    }

    /// One pass of the loop; `false` when there is nothing left to do, ever.
    fn turn(&mut self) -> bool {
        self.flush_overflow();
        self.take_commands();
        self.start_round();
        self.finish();
        let gone = self.lane.commands.is_abandoned() && self.lane.commands.is_empty();
        let idle = matches!(self.round, Round::Idle) && self.under_way == 0;
        if gone && idle && self.finishing.is_none() && (self.fresh.is_empty() || self.rounds_over) {
            return false;
        }
        if let Err(error) = self.wait() {
            self.fail(format!("waiting for the device: {error}"));
            return false;
        }
        let mut done = std::mem::take(&mut self.done);
        for one in done.drain(..) {
            self.complete(one);
        }
        self.done = done;
        self.let_go();
        true
    }

    fn wait(&mut self) -> io::Result<()> {
        let elapsed = self.tick.elapsed();
        let timeout = match (self.overflow.is_empty(), self.fresh.is_empty()) {
            (false, _) => Duration::from_millis(1),
            (true, false) => self.job.round_interval.saturating_sub(elapsed),
            (true, true) => self.job.round_interval,
        };
        self.wake.about_to_sleep();
        let room = self.under_way < self.job.depth;
        let busy = room && !self.lane.commands.is_empty();
        let timeout = if busy { Duration::ZERO } else { timeout };
        let waited = self.ring.wait(timeout, &mut self.done);
        self.wake.awake();
        waited
    }

    fn take_commands(&mut self) {
        while self.under_way < self.job.depth {
            match self.lane.commands.pop() {
                Ok(Command::Write(filled)) => self.write(filled),
                Ok(Command::Finish { track, .. }) => self.finishing = Some(track),
                Err(_) => return,
            }
        }
    }

    /// Sends a block to its place, or back if it has none.
    fn write(&mut self, mut filled: Filled) {
        let padded = filled.bytes.next_multiple_of(ALIGNMENT as u32);
        let next = self.base + self.slots.len() as u64;
        let block_bytes = filled.track.geometry.block_bytes;
        let offset = filled.sequence.checked_mul(block_bytes.into());
        let place = offset.and_then(|offset| self.job.span.place(offset, padded.into()));
        if self.job.records.is_some_and(|(layout, _)| block_bytes < layout.chunk_bytes) {
            self.fail(format!("blocks of {block_bytes} bytes are smaller than chunks"));
        }
        let refusing = self.gauge.refusing.load(Relaxed) || self.failure.is_some();
        let Some(address) = place.filter(|_| !refusing && filled.sequence == next) else {
            // The first that finds no place ends the run: none behind it may be written.
            self.gauge.refusing.store(true, Relaxed);
            return self.refuse(filled);
        };
        let span = self.job.span;
        assert!(
            address >= span.first() && address + u64::from(padded) <= span.end(),
            "{padded} bytes at {address:#x} leave the chunks {:#x} to {:#x}",
            span.first(),
            span.last()
        );
        assert!(u64::from(padded) <= LONGEST_WRITE, "no block is larger");
        let bytes = filled.bytes as usize;
        let crc = filled.crc.unwrap_or_else(|| match self.job.records {
            Some(_) => checksum(&filled.block[..bytes]),
            None => 0,
        });
        filled.block[bytes..padded as usize].fill(0);
        let (label, block) = Label::split(filled, crc);
        self.track.get_or_insert_with(|| label.track.clone());
        let token = label.block.sequence;
        let since = Instant::now();
        self.slots.push_back(Slot {
            label,
            address,
            bytes: padded,
            written: 0,
            since,
            landed: None,
            failed: false,
        });
        self.under_way += 1;
        self.ring.write(token, self.job.medium.descriptor(), address, block, (0, padded), 0);
    }

    fn refuse(&mut self, filled: Filled) {
        self.gauge.backlog_bytes.fetch_sub(filled.bytes.into(), Relaxed);
        self.give_back(Returned::Refused(filled));
    }

    fn give_back(&mut self, returned: Returned) {
        self.overflow.push_back(returned);
        self.flush_overflow();
    }

    fn flush_overflow(&mut self) {
        while let Some(returned) = self.overflow.pop_front() {
            if let Err(rtrb::PushError::Full(returned)) = self.lane.returned.push(returned) {
                self.overflow.push_front(returned);
                break;
            }
        }
        if self.lane.returned.is_abandoned() {
            self.overflow.clear();
        }
    }

    fn complete(&mut self, Done { token, result, block }: Done) {
        match token {
            SYNC => self.synced(result),
            RECORDS => self.recorded(result, block),
            sequence => {
                let block = block.expect("a write brings its block back");
                self.landed(sequence, result, block);
            }
        }
    }

    fn landed(&mut self, sequence: u64, result: io::Result<u32>, block: Block) {
        let descriptor = self.job.medium.descriptor();
        let slot = &mut self.slots[(sequence - self.base) as usize];
        let passing = |error: &io::Error| {
            matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
        };
        let more = match result {
            // A drive that takes nothing and does not say why never will.
            Ok(0) => return self.failed(sequence, block, &io::ErrorKind::WriteZero.into()),
            Ok(written) => written / ALIGNMENT as u32 * ALIGNMENT as u32,
            Err(error) if passing(&error) => 0,
            Err(error) => return self.failed(sequence, block, &error),
        };
        slot.written += more;
        if slot.written < slot.bytes {
            // The kernel wrote a part: what is left goes on from a whole page.
            let part = (slot.written, slot.bytes - slot.written);
            let address = slot.address + u64::from(slot.written);
            return self.ring.write(sequence, descriptor, address, block, part, 0);
        }
        let took = slot.since.elapsed().as_nanos() as u64;
        slot.landed = Some(block);
        self.under_way -= 1;
        self.gauge.longest_write_ns.fetch_max(took, Relaxed);
    }

    /// A block that cannot be written.
    fn failed(&mut self, sequence: u64, block: Block, error: &io::Error) {
        let slot = &mut self.slots[(sequence - self.base) as usize];
        (slot.landed, slot.failed) = (Some(block), true);
        let (bytes, address) = (slot.bytes, slot.address);
        self.under_way -= 1;
        self.fail(format!("writing {bytes} bytes at address {address:#x}: {error}"));
    }

    /// Lets go of what has landed, in order. Behind a write that failed, everything goes back.
    fn let_go(&mut self) {
        while self.slots.front().is_some_and(|slot| slot.landed.is_some() && !slot.failed) {
            let Some(Slot { label, landed: Some(block), .. }) = self.slots.pop_front() else {
                break;
            };
            let (sequence, bytes) = (label.block.sequence, label.block.bytes);
            let offset = sequence * u64::from(label.track.geometry.block_bytes);
            // The round is known when the record is written.
            self.fresh.push_back((record(&label.block, 0, offset), sequence));
            self.fresh_bytes += u64::from(bytes);
            self.base += 1;
            self.gauge.backlog_bytes.fetch_sub(bytes.into(), Relaxed);
            self.gauge.written_bytes.fetch_add(bytes.into(), Relaxed);
            self.give_back(Returned::Written { block, track: label.track, bytes });
        }
        // Nothing may be written behind a hole, so all that has been submitted must land before it is refused.
        if self.failure.is_some() && self.slots.iter().all(|slot| slot.landed.is_some()) {
            while let Some(Slot { label, landed: Some(block), .. }) = self.slots.pop_front() {
                self.refuse(label.join(block));
            }
        }
    }

    fn start_round(&mut self) {
        let due = self.fresh_bytes >= self.job.round_bytes
            || self.tick.elapsed() >= self.job.round_interval
            || (self.finishing.is_some() && self.slots.is_empty());
        if !due || self.fresh.is_empty() || !matches!(self.round, Round::Idle) || self.rounds_over {
            return;
        }
        self.tick = Instant::now();
        self.fresh_bytes = 0;
        let count = self.fresh.len().min(ROUND_RECORDS);
        let records: Vec<(BlockRecord, u64)> = self.fresh.drain(..count).collect();
        let blocks = Blocks {
            sequences: records.iter().map(|(_, sequence)| *sequence).collect(),
            bytes: records.iter().map(|(record, _)| u64::from(record.bytes)).sum(),
            since: self.tick,
        };
        let Some((layout, tag)) = self.job.records else { return self.sync(blocks) };
        self.write_records(layout, tag, &records);
        self.round = Round::Recording(blocks);
    }

    /// Writes the pages that hold these records; the first of them holds earlier ones too.
    fn write_records(&mut self, layout: Layout, tag: u64, records: &[(BlockRecord, u64)]) {
        let mut buffer = self.buffer.take().expect("one round writes records at a time");
        let within = self.records_written as usize % RECORDS_PER_PAGE;
        let first_page = self.records_written - within as u64;
        let place = layout.record_place(self.job.span.first(), first_page as u32);
        let place =
            place.expect("blocks are chunks at least, and there is a record for each chunk");
        buffer[..PAGE_BYTES].copy_from_slice(&self.page);
        let mut at = within * RECORD_BYTES;
        for (record, _) in records {
            let record = BlockRecord { round: self.rounds, ..*record };
            buffer[at..at + RECORD_BYTES].copy_from_slice(&record.encode(tag));
            at += RECORD_BYTES;
        }
        let bytes = at.next_multiple_of(PAGE_BYTES);
        buffer[at..bytes].fill(0);
        self.records_written += records.len() as u64;
        // The page that the next record goes to begins with what it holds now.
        self.page.fill(0);
        let last_page = at / PAGE_BYTES * PAGE_BYTES;
        self.page[..at - last_page].copy_from_slice(&buffer[last_page..at]);
        let descriptor = self.job.medium.descriptor();
        self.record_bytes = bytes as u32;
        self.ring.write(RECORDS, descriptor, place, buffer, (0, self.record_bytes), 0);
    }

    fn recorded(&mut self, result: io::Result<u32>, block: Option<Block>) {
        self.buffer = block;
        let Round::Recording(blocks) = std::mem::replace(&mut self.round, Round::Idle) else {
            unreachable!("records are written by a round")
        };
        match result {
            // A part of so little is a device that is breaking.
            Ok(written) if written < self.record_bytes => {
                self.end_rounds(format!(
                    "{written} of {} bytes of records were written",
                    self.record_bytes
                ));
            }
            Ok(_) => self.sync(blocks),
            Err(error) => self.end_rounds(format!("writing records: {error}")),
        }
    }

    fn sync(&mut self, blocks: Blocks) {
        self.round = Round::Syncing(blocks);
        self.ring.sync(SYNC, self.job.medium.descriptor(), false);
    }

    fn synced(&mut self, result: io::Result<u32>) {
        let Round::Syncing(blocks) = std::mem::replace(&mut self.round, Round::Idle) else {
            unreachable!("the device is synced by a round")
        };
        if let Err(error) = result {
            return self.end_rounds(format!("syncing it: {error}"));
        }
        self.rounds += 1;
        let took = blocks.since.elapsed().as_nanos() as u64;
        self.gauge.longest_sync_ns.fetch_max(took, Relaxed);
        let Blocks { sequences, bytes, .. } = blocks;
        if let Some(track) = self.track.clone() {
            self.report(Report::Durable { track, sequences, bytes });
        }
    }

    /// Answers `Finish` once everything has come to rest.
    fn finish(&mut self) {
        let rest = self.slots.is_empty() && matches!(self.round, Round::Idle);
        let done = rest && (self.fresh.is_empty() || self.rounds_over);
        if done && let Some(track) = self.finishing.take() {
            self.report(Report::Finished { member: 0, track });
        }
    }

    fn end_rounds(&mut self, why: String) {
        self.rounds_over = true;
        self.fail(why);
    }

    /// No more blocks are taken. What was let go before is still made durable.
    fn fail(&mut self, why: String) {
        self.gauge.refusing.store(true, Relaxed);
        if self.failure.is_none() {
            self.failure = Some(why.clone());
            self.report(Report::Failed { member: 0, why, suspect: Vec::new() });
        }
    }

    fn report(&self, report: Report) {
        // A supervisor that is gone has no use for reports; the records say the same.
        let _ = self.reports.send(report);
    }
}

/// The record of a block that lies at this offset of the stream.
fn record(block: &index::Block, round: u32, offset: u64) -> BlockRecord {
    BlockRecord {
        number: block.sequence as u32,
        round,
        bytes: block.bytes,
        crc: block.crc,
        first: block.first,
        frames: block.frames,
        present: block.present,
        time: block.time,
        offset,
    }
}
