use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use fullbore_capture::{CaptureCommand, CaptureEvent, ScanContext, Striper, WriterQueue};
use fullbore_core::account::Account;
use fullbore_core::pattern::Pattern;
use fullbore_linux::ring::{
    FullBlock, Notifier, ReplySender, StreamRef, WriterCommand, WriterReply, reply_queue,
};
use uuid::Uuid;

use super::super::SinkChain;
use super::*;

/// The longest wait for an event, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A capture thread, and the writer that the test plays.
struct Bench {
    orders: Sender<CaptureCommand>,
    events: Receiver<CaptureEvent>,
    /// Events that no test has asked for so far.
    told: Vec<CaptureEvent>,
    commands: rtrb::Consumer<WriterCommand>,
    returned: ReplySender,
    /// The number of blocks.
    blocks: usize,
    /// The bytes of each scan, in the order of arrival.
    written: Vec<(Uuid, Vec<u8>)>,
    finished: Vec<Arc<StreamRef>>,
}

impl Bench {
    /// A thread with a few blocks of 4096 bytes.
    fn new(input: impl ByteSource + 'static, scan_bytes: Option<u64>) -> Self {
        let region = Arc::new(Region::new(4 * 4096).unwrap());
        let geometry = Geometry::of_frames(1, 4096, 1 << 20).unwrap();
        let layout = StreamLayout {
            number: 0,
            name: "a".parse().unwrap(),
            source: "pattern:counter".to_owned(),
            stripped_bytes: 0,
            geometry,
            fill: Fill::Omit,
        };
        let pool = Pool::new(region, 4096, 0);
        let blocks = pool.blocks();
        let (to_writer, commands) = rtrb::RingBuffer::new(blocks + WriterQueue::FINISHES);
        let (returned, from_writer) = reply_queue(blocks + WriterQueue::FINISHES);
        let notifier = Arc::new(Notifier::new().unwrap());
        let queue = WriterQueue::new(to_writer, from_writer, Arc::default(), notifier, blocks);
        let (event, events) = mpsc::channel();
        let (orders, receiver) = mpsc::channel();
        let chain = SinkChain::of_stripers(vec![Striper::new(vec![queue])]);
        let capture =
            BytesCapture::new(Box::new(input), pool, layout, chain, event).of_at_most(scan_bytes);
        std::thread::spawn(move || capture.run(&receiver));
        let (told, written, finished) = (Vec::new(), Vec::new(), Vec::new());
        Self { orders, events, told, commands, returned, blocks, written, finished }
    }

    fn begin(&self) -> Uuid {
        let uuid = Uuid::now_v7();
        let context = ScanContext::new(uuid, "s_a".parse().unwrap(), true);
        self.orders.send(CaptureCommand::Begin(Arc::new(context))).unwrap();
        uuid
    }

    /// Writes everything that has arrived.
    fn write(&mut self) {
        while let Ok(command) = self.commands.pop() {
            match command {
                WriterCommand::Write(FullBlock { block, stream_ref, bytes, first, .. }) => {
                    if self.written.last().is_none_or(|(scan, _)| *scan != stream_ref.scan) {
                        self.written.push((stream_ref.scan, Vec::new()));
                    }
                    let (_, all) = self.written.last_mut().unwrap();
                    assert_eq!(first as usize, all.len(), "blocks count bytes");
                    all.extend_from_slice(&block[..bytes as usize]);
                    let reply = WriterReply::Written { block, stream_ref, bytes };
                    assert!(self.returned.push(reply).is_ok());
                }
                WriterCommand::Finish { stream_ref, .. } => self.finished.push(stream_ref),
            }
        }
    }

    /// Writes until an event of this kind comes.
    fn wait<T>(&mut self, mut is: impl FnMut(&CaptureEvent) -> Option<T>) -> T {
        let since = Instant::now();
        loop {
            self.write();
            assert!(since.elapsed() < PATIENCE, "it waits for something for ever");
            if let Some(found) = self.told.iter().position(|event| is(event).is_some()) {
                return is(&self.told.remove(found)).expect("just seen");
            }
            self.told.extend(self.events.recv_timeout(Duration::from_millis(1)));
        }
    }

    /// Waits until so many bytes are taken from the source, and writes the full blocks.
    fn taken(&mut self, bytes: u64) {
        let metrics = self.wait(|event| match event {
            CaptureEvent::Opened { metrics, .. } => Some(metrics.clone()),
            _ => None,
        });
        let since = Instant::now();
        while metrics.bytes.load(Relaxed) < bytes {
            self.write();
            assert!(since.elapsed() < PATIENCE, "it stops before its limit");
        }
        self.write();
    }

    fn exhausted(&mut self) {
        self.wait(|event| matches!(event, CaptureEvent::Exhausted { .. }).then_some(()));
    }

    fn ended(&mut self) -> Account {
        self.wait(|event| match event {
            CaptureEvent::Ended { account, .. } => Some((**account).clone()),
            _ => None,
        })
    }

    fn done(&mut self) {
        self.wait(|event| matches!(event, CaptureEvent::Done).then_some(()));
    }
}

fn counter(bytes: u64) -> (PatternInput, Vec<u8>) {
    let mut truth = vec![0; bytes as usize];
    Pattern::Counter.fill(&mut truth, 0);
    (PatternInput::new(Pattern::Counter, Some(bytes), None), truth)
}

#[test]
fn a_source_that_is_over_says_so_and_ends_with_all_of_its_bytes() {
    let (input, truth) = counter(50_001);
    let mut bench = Bench::new(input, None);
    let scan = bench.begin();
    bench.exhausted();
    bench.orders.send(CaptureCommand::Stop).unwrap();
    let account = bench.ended();
    assert_eq!((account.terms.written, account.terms.expected), (50_001, 50_001));
    assert_eq!((account.bytes, account.counted_by), (50_001, CountedBy::Bytes));
    assert!(account.terms.balance());
    bench.done();
    assert_eq!(bench.written, [(scan, truth)]);
    assert_eq!(bench.finished.len(), 1);
}

#[test]
fn nothing_is_read_while_no_block_is_free_and_nothing_is_lost() {
    // More than all blocks of the smallest region.
    let (input, truth) = counter(3 << 20);
    let mut bench = Bench::new(input, None);
    bench.begin();
    std::thread::sleep(Duration::from_millis(50));
    assert!(bench.commands.slots() <= bench.blocks && bench.blocks < 768);
    bench.exhausted();
    bench.orders.send(CaptureCommand::Stop).unwrap();
    assert_eq!(bench.ended().terms.overrun, 0);
    bench.done();
    assert_eq!(bench.written[0].1, truth);
}

#[test]
fn scans_of_a_limited_length_follow_each_other_without_a_hole() {
    let (input, truth) = counter(10_000);
    let mut bench = Bench::new(input, Some(6000));
    let first = bench.begin();
    bench.taken(6000);
    let second = bench.begin();
    assert_eq!(bench.ended().terms.written, 6000);
    bench.exhausted();
    bench.orders.send(CaptureCommand::Stop).unwrap();
    assert_eq!(bench.ended().terms.written, 4000);
    bench.done();
    assert_eq!(bench.written, [(first, truth[..6000].to_vec()), (second, truth[6000..].to_vec())]);
}

#[test]
fn an_abort_counts_the_bytes_that_it_drops() {
    // Two bytes are in an open block.
    let (input, _) = counter(4098);
    let mut bench = Bench::new(input, Some(4098));
    bench.begin();
    bench.taken(4098);
    bench.orders.send(CaptureCommand::Abort).unwrap();
    let terms = bench.ended().terms;
    assert_eq!((terms.expected, terms.written, terms.overrun), (4098, 4096, 2));
    bench.done();
}

#[test]
fn a_scan_without_a_byte_is_silent() {
    let (input, _) = counter(0);
    let mut bench = Bench::new(input, None);
    let scan = bench.begin();
    bench.exhausted();
    bench.orders.send(CaptureCommand::Stop).unwrap();
    let silent = bench.wait(|event| match event {
        CaptureEvent::Silent { scan, .. } => Some(*scan),
        _ => None,
    });
    assert_eq!(silent, scan);
    bench.done();
    assert!(bench.finished.is_empty());
}

#[test]
fn blocks_of_a_slow_source_are_small_and_of_a_chunk_at_most() {
    let block = |rate, pool, chunk| geometry(rate, pool, chunk).block_bytes;
    assert_eq!(block(None, POOL_BYTES, 256_000_000), 4 << 20);
    assert_eq!(block(Some(1_000_000), POOL_BYTES, 256_000_000), 499_712);
    assert_eq!(block(Some(10), POOL_BYTES, 256_000_000), 64 << 10);
    assert_eq!(block(None, 1 << 20, 256_000_000), 128 << 10);
    assert_eq!(block(None, POOL_BYTES, 4096), 4096);
}
