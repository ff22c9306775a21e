//! The writer of a device: one thread and one ring, for one stream of blocks.
//!
//! ```text
//! queue ──Write──► its place on the device ──completed──► released in order ──► WriterReply::Written
//!                                                             │
//!                                       round: records ──► sync ──► WriterEvent::Durable
//! ```
//!
//! Every capture thread has a queue to it, but only the one of its stream sends blocks. The address of a block is its
//! number times the block size. Blocks are released in order, so that the written data is contiguous from the beginning
//! after any failure.
//!
//! A round writes the records of the blocks released since the last round, then syncs the device. The number of a round
//! in a record proves to `recover` that all rounds before it were durable.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use fullbore_core::device::{
    BlockRecord, PAGE_BYTES, RECORD_BYTES, RECORDS_PER_PAGE, Span, Volume as Layout, checksum,
};
use fullbore_core::index;
use fullbore_core::layout::ALIGNMENT;
use fullbore_device::{BlockDevice, Error};
use fullbore_linux::ring::{
    Block, BlockMeta, FullBlock, Pool, StreamRef, WriterCommand, WriterEvent, WriterReply,
};
use fullbore_linux::sys::memory::Region;
use fullbore_linux::sys::uring::{Done, Ring};
use fullbore_linux::writer_thread::WriterThread;
use fullbore_store::{CaptureQueue, Farewell};
use uuid::Uuid;

use crate::sink::WriterLink;

/// The most records written at once by a round.
const ROUND_RECORDS: usize = 60 * RECORDS_PER_PAGE;

/// Memory for writing records: those of a round, and earlier ones in their first page.
const RECORD_BUFFER_BYTES: usize = ROUND_RECORDS * RECORD_BYTES + 2 * PAGE_BYTES;

/// The longest write: the most bytes that a completion can report.
const LONGEST_WRITE: u64 = 1 << 30;

/// Tokens of operations other than block writes.
const RECORDS: u64 = u64::MAX - 1;
const SYNC: u64 = u64::MAX;

/// A round of syncs starts after this number of bytes …
const ROUND_BYTES: u64 = 256 << 20;

/// … or after this time, if the recording sets no other.
const ROUND_INTERVAL: Duration = Duration::from_millis(250);

/// The settings of a writer.
pub struct Job {
    /// The place in the sink, which is also the number of its stream.
    pub target: usize,
    /// The device.
    pub block_device: Arc<BlockDevice>,
    /// The only chunks to which it writes blocks.
    pub span: Span,
    /// The place of records, if the device has an index.
    pub records: Option<Layout>,
    /// The number of concurrent writes.
    pub depth: u64,
    /// The data that its syncs have covered.
    pub durable: Arc<Durable>,
}

/// The data that syncs have covered.
#[derive(Debug, Default)]
pub struct Durable {
    /// Blocks, from the first one on.
    pub blocks: AtomicU64,
    /// Bytes of these blocks.
    pub bytes: AtomicU64,
}

/// Starts a writer. Blocks come from `memory`.
pub fn spawn(job: Job, link: WriterLink, memory: &[Arc<Region>]) -> Result<WriterThread, Error> {
    let (ready, answer) = mpsc::channel();
    let (notifier, memory) = (link.notifier.clone(), memory.to_vec());
    let run = move || {
        let status = link.thread_config.apply();
        // The ring belongs to the thread that creates it.
        match Engine::new(job, link) {
            Ok(mut engine) => {
                let unpinned = engine.ring.pin(&memory).err();
                drop(memory);
                if ready.send(Ok((status, unpinned))).is_ok() {
                    engine.run();
                }
            }
            Err(error) => drop(ready.send(Err(error))),
        }
    };
    let thread = std::thread::Builder::new().name("fb-device".into()).spawn(run);
    let thread = thread.map_err(|source| Error::Thread { source })?;
    match answer.recv() {
        Ok(started) => {
            started.map(|(status, unpinned)| WriterThread::new(thread, notifier, status, unpinned))
        }
        Err(_) => Err(Error::Broken),
    }
}

/// A block that was submitted and is not released yet.
struct Slot {
    /// The queue that it came from.
    queue: usize,
    label: BlockMeta,
    address: u64,
    /// Bytes to write: payload, and zeros up to a full page.
    bytes: u32,
    written: u32,
    since: Instant,
    /// The block after its completion, waiting for its turn.
    landed: Option<Block>,
    failed: bool,
}

/// The state of a round.
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

/// The writer. The fields are dropped in this order.
struct Engine {
    farewell: Farewell,
    job: Job,
    link: WriterLink,
    ring: Ring,
    /// Replies for which their queue had no room.
    overflow: VecDeque<(usize, WriterReply)>,
    /// Blocks submitted and not released, in order.
    slots: VecDeque<Slot>,
    /// Number of the first slot.
    base: u64,
    under_way: u64,
    /// Blocks released, and not yet in a round.
    fresh: VecDeque<(BlockRecord, u64)>,
    fresh_bytes: u64,
    round: Round,
    round_interval: Duration,
    rounds: u32,
    tick: Instant,
    /// The page of the next record, with its current contents.
    page: [u8; PAGE_BYTES],
    records_written: u64,
    /// Bytes of the records being written.
    record_bytes: u32,
    buffer: Option<Block>,
    /// The stream of the blocks.
    stream_ref: Option<Arc<StreamRef>>,
    failure: Option<String>,
    /// True after a round has failed: a failed sync is never retried as if it could succeed.
    rounds_over: bool,
    /// The end of its stream, until all blocks are durable.
    finishing: Option<Arc<StreamRef>>,
    done: Vec<Done>,
}

impl Engine {
    fn new(job: Job, link: WriterLink) -> Result<Self, Error> {
        let memory = |source| Error::Memory { bytes: RECORD_BUFFER_BYTES as u64, source };
        let region = Arc::new(Region::new(RECORD_BUFFER_BYTES).map_err(memory)?);
        let buffer = Pool::new(region, RECORD_BUFFER_BYTES, 0).take();
        let (member, reports) = (job.target, link.events.clone());
        Ok(Self {
            farewell: Farewell { member, reports, in_time: false },
            ring: Ring::new(link.notifier.clone())?,
            overflow: VecDeque::new(),
            slots: VecDeque::new(),
            base: 0,
            under_way: 0,
            fresh: VecDeque::new(),
            fresh_bytes: 0,
            round: Round::Idle,
            round_interval: link.sync_interval.unwrap_or(ROUND_INTERVAL),
            rounds: 0,
            tick: Instant::now(),
            page: [0; PAGE_BYTES],
            records_written: 0,
            record_bytes: 0,
            buffer,
            stream_ref: None,
            failure: None,
            rounds_over: false,
            finishing: None,
            done: Vec::new(),
            job,
            link,
        })
    }

    fn run(mut self) {
        while self.turn() {}
    }

    /// Does one pass of the loop; `false` when the writer has finished.
    fn turn(&mut self) -> bool {
        self.flush_overflow();
        self.take_commands();
        self.start_round();
        self.finish();
        let gone = self.link.queues.iter().all(CaptureQueue::is_over);
        let idle = matches!(self.round, Round::Idle) && self.under_way == 0;
        if gone && idle && self.finishing.is_none() && (self.fresh.is_empty() || self.rounds_over) {
            self.farewell.in_time = true;
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
            (true, false) => self.round_interval.saturating_sub(elapsed),
            (true, true) => self.round_interval,
        };
        self.link.notifier.about_to_sleep();
        let room = self.under_way < self.job.depth;
        let busy = room && self.link.queues.iter().any(|queue| !queue.commands.is_empty());
        let timeout = if busy { Duration::ZERO } else { timeout };
        let waited = self.ring.wait(timeout, &mut self.done);
        self.link.notifier.awake();
        waited
    }

    fn take_commands(&mut self) {
        for queue in 0..self.link.queues.len() {
            while self.under_way < self.job.depth {
                match self.link.queues[queue].commands.pop() {
                    Ok(WriterCommand::Write(filled)) => self.write(queue, filled),
                    Ok(WriterCommand::Finish { stream_ref, .. }) => self.end_of(stream_ref),
                    Err(_) => break,
                }
            }
        }
    }

    /// A stream has ended. Only its own stream has data here.
    fn end_of(&mut self, stream_ref: Arc<StreamRef>) {
        match usize::from(stream_ref.number) == self.job.target {
            true => self.finishing = Some(stream_ref),
            false => self.report(WriterEvent::Finished { member: self.job.target, stream_ref }),
        }
    }

    /// Submits a block, or returns it if the device has no space for it.
    fn write(&mut self, queue: usize, mut filled: FullBlock) {
        let padded = filled.bytes.next_multiple_of(ALIGNMENT as u32);
        let next = self.base + self.slots.len() as u64;
        let block_bytes = filled.stream_ref.geometry.block_bytes;
        let offset = filled.sequence.checked_mul(block_bytes.into());
        let place = offset.and_then(|offset| self.job.span.place(offset, padded.into()));
        if self.job.records.is_some_and(|layout| block_bytes < layout.chunk_bytes) {
            self.fail(format!("blocks of {block_bytes} bytes are smaller than chunks"));
        }
        let refusing = self.link.metrics.refusing.load(Relaxed) || self.failure.is_some();
        let Some(address) = place.filter(|_| !refusing && filled.sequence == next) else {
            // After the first block without space, no later block may be written.
            if !refusing && place.is_none() {
                self.report(WriterEvent::Full { member: self.job.target });
            }
            self.link.metrics.refusing.store(true, Relaxed);
            return self.refuse(queue, filled);
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
        let (label, block) = BlockMeta::split(filled, crc);
        self.stream_ref.get_or_insert_with(|| label.stream_ref.clone());
        let token = label.block.sequence;
        let since = Instant::now();
        self.slots.push_back(Slot {
            queue,
            label,
            address,
            bytes: padded,
            written: 0,
            since,
            landed: None,
            failed: false,
        });
        self.under_way += 1;
        self.ring.write(token, self.job.block_device.descriptor(), address, block, (0, padded), 0);
    }

    fn refuse(&mut self, queue: usize, filled: FullBlock) {
        self.link.metrics.backlog_bytes.fetch_sub(filled.bytes.into(), Relaxed);
        self.give_back(queue, WriterReply::Refused(filled));
    }

    fn give_back(&mut self, queue: usize, reply: WriterReply) {
        self.overflow.push_back((queue, reply));
        self.flush_overflow();
    }

    fn flush_overflow(&mut self) {
        while let Some((queue, reply)) = self.overflow.pop_front() {
            let returned = &mut self.link.queues[queue].returned;
            // Nobody waits for the replies of a capture thread that has ended.
            if let Err(rtrb::PushError::Full(reply)) = returned.push(reply)
                && !returned.is_abandoned()
            {
                self.overflow.push_front((queue, reply));
                return;
            }
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
        let descriptor = self.job.block_device.descriptor();
        let slot = &mut self.slots[(sequence - self.base) as usize];
        let passing = |error: &io::Error| {
            matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
        };
        let more = match result {
            // A write of 0 bytes without an error counts as a failure.
            Ok(0) => return self.failed(sequence, block, &io::ErrorKind::WriteZero.into()),
            Ok(written) => written / ALIGNMENT as u32 * ALIGNMENT as u32,
            Err(error) if passing(&error) => 0,
            Err(error) => return self.failed(sequence, block, &error),
        };
        slot.written += more;
        if slot.written < slot.bytes {
            // The kernel wrote a part: the rest continues at a full page.
            let part = (slot.written, slot.bytes - slot.written);
            let address = slot.address + u64::from(slot.written);
            return self.ring.write(sequence, descriptor, address, block, part, 0);
        }
        let took = slot.since.elapsed().as_nanos() as u64;
        slot.landed = Some(block);
        self.under_way -= 1;
        self.link.metrics.longest_write_ns.fetch_max(took, Relaxed);
    }

    /// Handles a block that cannot be written.
    fn failed(&mut self, sequence: u64, block: Block, error: &io::Error) {
        let slot = &mut self.slots[(sequence - self.base) as usize];
        (slot.landed, slot.failed) = (Some(block), true);
        let (bytes, address) = (slot.bytes, slot.address);
        self.under_way -= 1;
        self.fail(format!("writing {bytes} bytes at address {address:#x}: {error}"));
    }

    /// Releases completed blocks in order. After a failed write, all blocks return as refused.
    fn let_go(&mut self) {
        while self.slots.front().is_some_and(|slot| slot.landed.is_some() && !slot.failed) {
            let Some(Slot { queue, label, landed: Some(block), .. }) = self.slots.pop_front()
            else {
                break;
            };
            let (sequence, bytes) = (label.block.sequence, label.block.bytes);
            let offset = sequence * u64::from(label.stream_ref.geometry.block_bytes);
            // The number of the round is known only when the record is written.
            self.fresh.push_back((record(&label.block, 0, offset), sequence));
            self.fresh_bytes += u64::from(bytes);
            self.base += 1;
            self.link.metrics.backlog_bytes.fetch_sub(bytes.into(), Relaxed);
            self.link.metrics.written_bytes.fetch_add(bytes.into(), Relaxed);
            let stream_ref = label.stream_ref;
            self.give_back(queue, WriterReply::Written { block, stream_ref, bytes });
        }
        // No block may be written after a hole, so all submitted blocks must complete before they are refused.
        if self.failure.is_some() && self.slots.iter().all(|slot| slot.landed.is_some()) {
            while let Some(Slot { queue, label, landed: Some(block), .. }) = self.slots.pop_front()
            {
                self.refuse(queue, label.join(block));
            }
        }
    }

    fn start_round(&mut self) {
        let due = self.fresh_bytes >= ROUND_BYTES
            || self.tick.elapsed() >= self.round_interval
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
        let Some(layout) = self.job.records else { return self.sync(blocks) };
        let stream_ref = self.stream_ref.as_ref().expect("a block of it was written");
        self.write_records(layout, stream_ref.scan, &records);
        self.round = Round::Recording(blocks);
    }

    /// Writes the pages that hold these records. The first page holds earlier records too.
    fn write_records(&mut self, layout: Layout, scan: Uuid, records: &[(BlockRecord, u64)]) {
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
            buffer[at..at + RECORD_BYTES].copy_from_slice(&record.encode(scan));
            at += RECORD_BYTES;
        }
        let bytes = at.next_multiple_of(PAGE_BYTES);
        buffer[at..bytes].fill(0);
        self.records_written += records.len() as u64;
        // The page of the next record begins with its current contents.
        self.page.fill(0);
        let last_page = at / PAGE_BYTES * PAGE_BYTES;
        self.page[..at - last_page].copy_from_slice(&buffer[last_page..at]);
        let descriptor = self.job.block_device.descriptor();
        self.record_bytes = bytes as u32;
        self.ring.write(RECORDS, descriptor, place, buffer, (0, self.record_bytes), 0);
    }

    fn recorded(&mut self, result: io::Result<u32>, block: Option<Block>) {
        self.buffer = block;
        let Round::Recording(blocks) = std::mem::replace(&mut self.round, Round::Idle) else {
            unreachable!("records are written by a round")
        };
        match result {
            // A short write of so few bytes means that the device is failing.
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
        self.ring.sync(SYNC, self.job.block_device.descriptor(), false);
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
        self.link.metrics.longest_sync_ns.fetch_max(took, Relaxed);
        let Blocks { sequences, bytes, .. } = blocks;
        self.job.durable.blocks.fetch_add(sequences.len() as u64, Relaxed);
        self.job.durable.bytes.fetch_add(bytes, Relaxed);
        if let Some(stream_ref) = self.stream_ref.clone() {
            self.report(WriterEvent::Durable { stream_ref, sequences, bytes });
        }
    }

    /// Answers `Finish` when all operations have completed.
    fn finish(&mut self) {
        let rest = self.slots.is_empty() && matches!(self.round, Round::Idle);
        let done = rest && (self.fresh.is_empty() || self.rounds_over);
        if done && let Some(stream_ref) = self.finishing.take() {
            self.report(WriterEvent::Finished { member: self.job.target, stream_ref });
        }
    }

    fn end_rounds(&mut self, why: String) {
        self.rounds_over = true;
        self.fail(why);
    }

    /// Refuses further blocks. Blocks released before are still made durable.
    fn fail(&mut self, why: String) {
        self.link.metrics.refusing.store(true, Relaxed);
        if self.failure.is_none() {
            self.failure = Some(why.clone());
            let member = self.job.target;
            self.report(WriterEvent::Failed { member, why, suspect: Vec::new() });
        }
    }

    fn report(&self, report: WriterEvent) {
        // If the recorder is gone, the report is not needed: the records hold the same information.
        let _ = self.link.events.send(report);
    }
}

/// The record of a block at this offset of the stream.
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
        seen: Some(block.seen),
        offset,
    }
}
