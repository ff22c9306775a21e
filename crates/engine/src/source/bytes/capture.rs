//! The capture thread of a byte source.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::{Duration, Instant};

use fullbore_capture::{
    CaptureCommand, CaptureEvent, ScanContext, ScanStream, StreamLayout, StreamMetrics,
    StreamTotals,
};
use fullbore_capture::{Settled, SinkChain, WrittenBlock};
use fullbore_core::account::{Account, CountedBy, Terms};
use fullbore_core::device::Flush;
use fullbore_core::manifest::Format;
use fullbore_core::partial_block::BlockState;
use fullbore_linux::clock::Clock;
use fullbore_linux::ring::{Block, FullBlock, Pool};
use fullbore_time::Tai;

use super::{ByteSource, ReadOutcome};

/// The longest time for which an abort drops the rest of a source.
const LONGEST_FLUSH: Duration = Duration::from_secs(2);

/// The size of the buffer for dropped bytes.
const FLUSH_BYTES: usize = 1 << 20;

/// Time between two updates of the metrics, and the longest sleep of the thread while it waits. Commands and the replies
/// of the writers end it.
const LOOK: Duration = Duration::from_millis(10);

/// A block that is being filled.
struct OpenBlock {
    block: Block,
    filled: usize,
    /// The arrival of its first byte.
    seen: Tai,
    since: Instant,
}

/// The stream in one scan.
struct ScanBytes {
    part: ScanStream,
    /// Bytes taken from the source.
    taken: u64,
    /// Bytes dropped before they were in a full block.
    dropped: u64,
    opened: bool,
}

/// The rest of a source that is read and dropped.
struct Flushing {
    /// The time by which it ends, after an abort.
    until: Option<Instant>,
    buffer: Vec<u8>,
}

impl Flushing {
    fn new(longest: Option<Duration>) -> Self {
        let until = longest.map(|longest| Instant::now() + longest);
        Self { until, buffer: vec![0; FLUSH_BYTES] }
    }

    fn is_late(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }
}

/// The state of the thread.
pub struct BytesCapture {
    input: Box<dyn ByteSource>,
    pool: Pool,
    layout: StreamLayout,
    chain: SinkChain,
    events: Sender<CaptureEvent>,
    metrics: Arc<StreamMetrics>,
    clock: Clock,
    /// The most bytes of a scan.
    scan_bytes: u64,
    /// The age at which a partly filled block is sent, if the sink takes short blocks.
    hand_on_after: Option<Duration>,
    /// The scan that is being filled.
    current: Option<ScanBytes>,
    /// Scans that are over, and whose blocks are not settled.
    ended: VecDeque<ScanBytes>,
    block: Option<OpenBlock>,
    /// The most bytes of all scans together.
    most_bytes: u64,
    /// Bytes taken in all scans.
    taken: u64,
    exhausted: bool,
    /// True if the source ends with the first block that no writer takes.
    ends_when_refused: bool,
    flush: Flush,
    /// The rest of the source that is being dropped.
    flushing: Option<Flushing>,
    stopping: bool,
    /// True if the user was told that the source was held up.
    held_up_told: bool,
    looked: Instant,
}

impl BytesCapture {
    /// A thread for this input, which fills the blocks of `pool`.
    pub fn new(
        input: Box<dyn ByteSource>,
        pool: Pool,
        layout: StreamLayout,
        chain: SinkChain,
        events: Sender<CaptureEvent>,
    ) -> Self {
        Self {
            input,
            pool,
            layout,
            chain,
            events,
            metrics: Arc::default(),
            clock: Clock::new(),
            scan_bytes: u64::MAX,
            hand_on_after: None,
            current: None,
            ended: VecDeque::new(),
            block: None,
            most_bytes: u64::MAX,
            taken: 0,
            exhausted: false,
            ends_when_refused: false,
            flush: Flush::Never,
            flushing: None,
            stopping: false,
            held_up_told: false,
            looked: Instant::now(),
        }
    }

    /// Ends each scan after exactly this many bytes.
    pub fn of_at_most(self, scan_bytes: Option<u64>) -> Self {
        Self { scan_bytes: scan_bytes.unwrap_or(u64::MAX), ..self }
    }

    /// Ends after exactly this many bytes in all scans, and drops the rest of the source as asked for.
    pub fn with_end(self, most_bytes: Option<u64>, flush: Flush) -> Self {
        Self { most_bytes: most_bytes.unwrap_or(u64::MAX), flush, ..self }
    }

    /// Ends with the first block that no writer takes, because no other writer will take its stream.
    pub fn ending_when_refused(self, ends_when_refused: bool) -> Self {
        Self { ends_when_refused, ..self }
    }

    /// Sends a partly filled block after this time.
    pub fn handing_on_after(self, hand_on_after: Option<Duration>) -> Self {
        Self { hand_on_after, ..self }
    }

    /// Captures until an end is ordered. The last event is `Done`, however the thread ends.
    pub fn run(mut self, orders: &Receiver<CaptureCommand>) {
        let _farewell = Farewell(self.events.clone());
        while !self.is_over() {
            self.obey(orders);
            self.take_replies();
            let busy = self.fill() | self.flush();
            self.settle();
            self.hand_on();
            self.look();
            if !busy {
                std::thread::park_timeout(LOOK);
            }
        }
    }

    fn is_over(&self) -> bool {
        let flushed = self.flushing.is_none();
        let settled = self.stopping && flushed && self.ended.is_empty() && self.chain.all_sent();
        settled || self.chain.has_lost_a_writer()
    }

    fn obey(&mut self, orders: &Receiver<CaptureCommand>) {
        loop {
            match orders.try_recv() {
                Ok(CaptureCommand::Begin(context)) => self.begin(context),
                Ok(CaptureCommand::Stop) => self.stop(),
                Ok(CaptureCommand::Abort) => self.abort(),
                Err(TryRecvError::Disconnected) if !self.stopping => self.abort(),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return,
            }
        }
    }

    /// Begins a scan. The scan before ends here, with a short block if need be.
    fn begin(&mut self, context: Arc<ScanContext>) {
        self.end_scan();
        self.pool.feed(&context.taps);
        self.current = Some(ScanBytes {
            part: ScanStream::new(context, &self.layout),
            taken: 0,
            dropped: 0,
            opened: false,
        });
        self.update_metrics();
    }

    fn stop(&mut self) {
        self.end_scan();
        if !self.stopping && self.flush == Flush::Always {
            self.flushing = Some(Flushing::new(None));
        }
        self.stopping = true;
    }

    /// An abort while the rest is being dropped ends that.
    fn abort(&mut self) {
        self.chain.abort();
        if self.flushing.is_some() {
            self.flushed();
        } else if !self.stopping && self.flush != Flush::Never {
            self.flushing = Some(Flushing::new(Some(LONGEST_FLUSH)));
        }
        if let (Some(open), Some(scan)) = (self.block.take(), &mut self.current) {
            scan.dropped += open.filled as u64;
            self.pool.put(open.block);
        }
        self.end_scan();
        self.stopping = true;
    }

    /// Ends the scan that is being filled, if there is one.
    fn end_scan(&mut self) {
        self.send();
        let Some(mut scan) = self.current.take() else { return };
        let uuid = scan.part.context.uuid;
        if scan.opened {
            scan.part.sums = Some(StreamTotals {
                placed: false,
                flows: Vec::new(),
                uncounted: scan.taken - scan.dropped,
                uncounted_overrun: scan.dropped,
                correction: 0,
                bytes: scan.taken - scan.dropped,
                times: (None, None),
            });
            self.ended.push_back(scan);
        } else {
            let (number, source) = (Some(self.layout.number), self.layout.source.clone());
            let account = Box::new(Account::new(CountedBy::Bytes));
            self.tell(CaptureEvent::Silent { scan: uuid, number, source, account });
        }
        self.tell(CaptureEvent::Closed { scan: uuid });
    }

    /// Reads into the block. Returns true if the source was read: a source without bytes has waited for some.
    fn fill(&mut self) -> bool {
        let room = self.current.as_ref().map_or(0, |scan| self.scan_bytes - scan.taken);
        let room = room.min(self.most_bytes - self.taken);
        if room == 0 || self.exhausted {
            return false;
        }
        if self.block.is_none() {
            let Some(block) = self.pool.take() else { return false };
            let (seen, since) = (self.clock.now(), Instant::now());
            self.block = Some(OpenBlock { block, filled: 0, seen, since });
        }
        let Some(open) = &mut self.block else { return false };
        let end = (open.filled as u64).saturating_add(room);
        let end = end.min(u64::from(self.layout.geometry.block_bytes)) as usize;
        match self.input.take(&mut open.block[open.filled..end]) {
            Ok(ReadOutcome::Bytes(bytes)) => self.took(bytes),
            Ok(ReadOutcome::NotYet) => {}
            Ok(ReadOutcome::End) => self.exhaust(),
            Err(error) => {
                let why = format!("{} cannot be read: {error}", self.layout.source);
                self.metrics.end.failure.get_or_init(|| why.clone());
                self.tell(CaptureEvent::Broken { why });
                self.exhaust();
            }
        }
        true
    }

    fn took(&mut self, bytes: usize) {
        let now = self.clock.now();
        let (Some(open), Some(scan)) = (&mut self.block, &mut self.current) else { return };
        if open.filled == 0 {
            (open.seen, open.since) = (now, Instant::now());
        }
        open.filled += bytes;
        scan.taken += bytes as u64;
        self.taken += bytes as u64;
        scan.part.seen(now);
        let is_full = open.filled == self.layout.geometry.block_bytes as usize;
        if !std::mem::replace(&mut scan.opened, true) {
            let (scan, shape) = (scan.part.context.uuid, self.layout.clone());
            let (format, metrics) = (Format::Raw, self.metrics.clone());
            self.update_metrics();
            self.tell(CaptureEvent::Opened { scan, shape, format, metrics });
        }
        if is_full {
            self.send();
        }
        if self.taken == self.most_bytes {
            self.exhaust();
        }
    }

    /// The source is over: all of its bytes are in blocks.
    fn exhaust(&mut self) {
        if std::mem::replace(&mut self.exhausted, true) {
            return;
        }
        self.send();
        self.tell(CaptureEvent::Exhausted { number: Some(self.layout.number) });
    }

    /// Sends the block to a writer.
    fn send(&mut self) {
        let Some(open) = self.block.take() else { return };
        let Some(scan) = self.current.as_mut().filter(|_| open.filled > 0) else {
            return self.pool.put(open.block);
        };
        let (bytes, cursor) = (open.filled as u32, &mut scan.part.cursor);
        let filled = FullBlock {
            block: open.block,
            stream_ref: cursor.stream_ref().clone(),
            sequence: cursor.take_sequence(),
            chunk: 0,
            offset: 0,
            bytes,
            frames: bytes,
            present: bytes,
            invalid: 0,
            first: (scan.taken - u64::from(bytes)) as i64,
            time: None,
            seen: open.seen,
            gaps: std::mem::take(&mut scan.part.pending),
            lengths: Vec::new(),
            crc: None,
        };
        if let Some(lost) = self.chain.dispatch(&mut scan.part.cursor, filled) {
            self.pool.put(scan.part.lose(lost));
            self.refused();
        }
    }

    /// No writer takes a block.
    fn refused(&mut self) {
        if self.ends_when_refused {
            self.exhaust();
        }
    }

    /// Reads and drops the rest of the source, after its end. Returns true if the source was read.
    fn flush(&mut self) -> bool {
        let Some(flushing) = &mut self.flushing else { return false };
        if !self.input.ends() || flushing.is_late() {
            self.flushed();
            return true;
        }
        match self.input.take(&mut flushing.buffer) {
            Ok(ReadOutcome::Bytes(bytes)) => {
                self.metrics.end.flushed_bytes.fetch_add(bytes as u64, Relaxed);
            }
            // After an abort, a silent source is not waited for.
            Ok(ReadOutcome::NotYet) if flushing.until.is_none() => {}
            Ok(ReadOutcome::NotYet | ReadOutcome::End) | Err(_) => self.flushed(),
        }
        true
    }

    fn flushed(&mut self) {
        self.flushing = None;
        self.metrics.end.is_flushed.store(true, Relaxed);
    }

    /// Sends a partly filled block that is old to a sink that takes it, or its copy to the journal of one that does not.
    fn hand_on(&mut self) {
        let Some(open) = self.block.as_ref().filter(|open| open.filled > 0) else { return };
        if self.hand_on_after.is_some_and(|age| open.since.elapsed() >= age) {
            return self.send();
        }
        let Some(scan) = &mut self.current else { return };
        let (now, seen) = (self.clock.now(), open.seen);
        if !self.chain.is_journal_due(&mut scan.part.cursor, seen, now) {
            return;
        }
        let bytes = open.filled as u32;
        let first = (scan.taken - u64::from(bytes)) as i64;
        let (frames, present) = (bytes, bytes);
        let gaps = scan.part.pending.clone();
        let (invalid, time, lengths) = (0, None, Vec::new());
        let state =
            BlockState { first, bytes, frames, present, invalid, time, seen, gaps, lengths };
        let mut copy = |_, range: Range<u32>| {
            (range.start, open.block[range.start as usize..range.end as usize].to_vec())
        };
        let mut describe = || vec![state.clone()];
        self.chain.journal_partial_blocks(
            &mut scan.part.cursor,
            now,
            &[(first, bytes)],
            &mut copy,
            &mut describe,
        );
    }

    /// Takes blocks that the writers return.
    fn take_replies(&mut self) {
        while let Some(returned) = self.chain.take_returned() {
            let uuid = returned.stream().0;
            let mut scans = self.ended.iter_mut().chain(&mut self.current);
            let scan = scans.find(|scan| scan.part.context.uuid == uuid);
            let scan = scan.expect("a scan waits for its blocks");
            let Settled { written, lost } = self.chain.settle(&mut scan.part.cursor, returned);
            for WrittenBlock { block, stream_ref, bytes } in written {
                self.pool.put_written(block, &stream_ref, bytes);
            }
            let any_lost = !lost.is_empty();
            for filled in lost {
                self.pool.put(scan.part.lose(filled));
            }
            if any_lost {
                self.refused();
            }
        }
    }

    /// Closes the scans whose blocks are all settled, once the rest of the source is dropped.
    fn settle(&mut self) {
        while self.flushing.is_none() && self.ended.front().is_some_and(|scan| scan.part.complete())
        {
            let Some(ScanBytes { mut part, .. }) = self.ended.pop_front() else { return };
            let gaps = std::mem::take(&mut part.pending);
            self.chain.finish(&mut part.cursor, gaps);
            let ((blocks, bytes), scan) = (part.cursor.written(), part.context.uuid);
            let (number, format) = (self.layout.number, Format::Raw);
            let (account, shares) = part.accounts(CountedBy::Bytes, &format, |_| ());
            let account = Box::new(account);
            let ended =
                CaptureEvent::Ended { scan, number, format, blocks, bytes, account, shares };
            self.tell(ended);
        }
    }

    /// Updates the metrics, and tells of a paced source that was held up.
    fn look(&mut self) {
        if self.looked.elapsed() < LOOK {
            return;
        }
        self.looked = Instant::now();
        self.update_metrics();
        if let Some(rate) = self.input.held_up().filter(|_| !self.held_up_told) {
            self.held_up_told = true;
            self.metrics.end.held_up.store(rate.0, Relaxed);
            let text = format!(
                "{} was held up: the sink does not sustain the requested {rate}; nothing is lost, because the source \
                 waits",
                self.layout.name
            );
            self.tell(CaptureEvent::Warning { text });
        }
    }

    fn update_metrics(&self) {
        let Some(scan) = &self.current else { return };
        let (written, overrun) = (scan.taken - scan.dropped, scan.dropped);
        let terms = Terms { expected: scan.taken, written, overrun, ..Terms::default() };
        self.metrics.tell(&terms, scan.taken, Some(&scan.part), &self.pool);
    }

    fn tell(&self, event: CaptureEvent) {
        // The supervisor is gone; ignore the error.
        let _ = self.events.send(event);
    }
}

/// Sends `Done` when the thread ends, for any reason.
struct Farewell(Sender<CaptureEvent>);

impl Drop for Farewell {
    fn drop(&mut self) {
        // The supervisor is gone; ignore the error.
        let _ = self.0.send(CaptureEvent::Done);
    }
}
