//! Model test of capture. The environment chooses the datagrams and their order, the cuts between scans, the return of
//! blocks and the failing members. A real socket carries the datagrams.
//!
//! ```text
//! steps ─► wire ─► socket ─► port ─► striper ─► writers ─► pages ─┐
//!            └────────────── truth: what was sent ───────────────┴─► every byte, every term
//! ```

mod latecomers;
mod ring_blocks;
mod strays;
mod verified;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use fullbore_core::account::{Account, Verdict};
use fullbore_core::endpoint::{Engine, Gro, Threads, UdpSource};
use fullbore_core::gap::{Cause, Gap};
use fullbore_core::manifest::{Fill, Format};
use fullbore_core::units::ByteSize;
use fullbore_formats::vdif::{self, Header, Second};
use fullbore_linux::ring::{
    Block, FullBlock, Notifier, ReplySender, WriterCommand, WriterMetrics, WriterReply, reply_queue,
};
use fullbore_linux::sys::send::{Destination, Sender};
use fullbore_time::Tai;
use proptest::prelude::*;
use uuid::Uuid;

use self::ring_blocks::BlockInput;
use self::verified::verify_all;
use super::port::{Port, Sizes, ThreadResources};
use super::scan_stream::{CaptureEvent, ScanContext};
use super::sink_chain::SinkChain;
use super::staging::StagingBuffer;
use super::striping::{Striper, WriterQueue};

/// Bytes of every frame. Eight frames are a block.
const FRAME: usize = 512;

/// The format of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// VDIF frames counted by their time.
    Vdif,
    /// VDIF frames behind a packet number.
    Vtp,
    /// Datagrams with a counter of this many bytes at their start, which is stored.
    Field(usize),
}

/// The sender. Each of its frames has a unique number.
struct Wire {
    kind: Kind,
    threads: Vec<u16>,
    fps: u32,
    /// The numbers at which the sender's counter restarted, and the shift of the counter from then on.
    epochs: BTreeMap<u64, u64>,
    next: u64,
}

impl Wire {
    fn epoch_of(&self, number: u64) -> (u64, u64) {
        let (from, shift) = self.epochs.range(..=number).next_back().expect("one begins at 0");
        (*from, *shift)
    }

    /// Returns the number since which frames are counted like this one. A restart of the packet number shifts no frame.
    fn counted_from(&self, number: u64) -> u64 {
        if self.kind == Kind::Vtp { 0 } else { self.epoch_of(number).0 }
    }

    fn thread(&self, number: u64) -> u16 {
        self.threads[(number % self.threads.len() as u64) as usize]
    }

    /// Returns the frame as it is stored.
    fn frame(&self, number: u64) -> Vec<u8> {
        let counter = number.wrapping_add(self.epoch_of(number).1);
        let mut frame = vec![number as u8 ^ 0x5A; FRAME];
        let at = match self.kind {
            Kind::Vdif | Kind::Vtp => {
                let own = number / self.threads.len() as u64;
                let (seconds, of_second) =
                    (own / u64::from(self.fps), (own % u64::from(self.fps)) as u32);
                let shift =
                    if self.kind == Kind::Vdif { self.epoch_of(number).1 as i64 } else { 0 };
                let mut header = Header::default()
                    .with_reference_epoch(50)
                    .with_frame_bytes(FRAME as u32)
                    .with_thread(self.thread(number))
                    .with_station(0x4142)
                    .with_invalid(number % 13 == 5);
                let start = Second::of(50, 1_000_000).0 + seconds as i64 + shift;
                header.set_time(Second(start), of_second);
                header.write(&mut frame).unwrap();
                32
            }
            Kind::Field(width) => {
                frame[..width].copy_from_slice(&counter.to_le_bytes()[..width]);
                16
            }
        };
        frame[at..at + 8].copy_from_slice(&number.to_le_bytes());
        frame
    }

    fn datagram(&self, number: u64) -> Vec<u8> {
        let mut datagram = Vec::with_capacity(FRAME + 8);
        if self.kind == Kind::Vtp {
            let counter = number.wrapping_add(self.epoch_of(number).1);
            datagram.extend_from_slice(&counter.to_le_bytes());
        }
        datagram.extend_from_slice(&self.frame(number));
        datagram
    }

    /// Returns the number of this frame, if it is correct to the last byte.
    fn identify(&self, frame: &[u8]) -> Option<u64> {
        let at = if matches!(self.kind, Kind::Vdif | Kind::Vtp) { 32 } else { 16 };
        let number = u64::from_le_bytes(frame.get(at..at + 8)?.try_into().ok()?);
        (number < self.next && self.frame(number) == frame).then_some(number)
    }
}

/// The next action of the sender and the network.
#[derive(Clone, Debug)]
enum Item {
    /// Frames in order.
    Next(u8),
    /// Frames that are lost, or sent only later.
    Skip(u8),
    /// A frame from this far back: sent twice, or overtaken.
    Back(u16),
    /// A run of such frames, oldest first.
    Replay(u16, u8),
    /// The next frame, truncated.
    Short(u8),
    /// The next frame with extra bytes at its end.
    Long(u8),
    /// A datagram of this many meaningless bytes.
    Rubbish(u16),
    /// The sender's counter moves by this much.
    Restart(i64),
}

/// The next step.
#[derive(Clone, Debug)]
enum Step {
    /// Datagrams, sent at once.
    Burst(Vec<Item>),
    /// The capture thread reads once.
    Receive,
    /// The capture thread reads until the socket is empty.
    Drain,
    /// Writers reply for this many blocks.
    Answer(u8),
    /// The capture thread checks replies, cuts and scan streams.
    Look,
    /// A new scan begins.
    Cut,
    /// All timeouts expire.
    Hurry,
    /// This many blocks remain in the pool.
    Memory(u8),
    /// A member accepts no more data.
    Refuse(u8),
}

fn items(restarts: bool) -> impl Strategy<Value = Vec<Item>> {
    // No jump ends in a gap, where its frames could not be distinguished from late ones.
    let jump = prop_oneof![Just(-1_000_000i64), Just(-50_000), Just(1 << 33)];
    let item = prop_oneof![
        12 => (1u8..40).prop_map(Item::Next),
        3 => (1u8..30).prop_map(Item::Skip),
        4 => (0u16..12).prop_map(Item::Back),
        2 => (0u16..60).prop_map(Item::Back),
        1 => (0u16..600).prop_map(Item::Back),
        1 => (0u16..300, 1u8..20).prop_map(|(back, count)| Item::Replay(back, count)),
        1 => any::<u8>().prop_map(Item::Short),
        1 => any::<u8>().prop_map(Item::Long),
        1 => (0u16..700).prop_map(Item::Rubbish),
        u32::from(restarts) => jump.prop_map(Item::Restart),
    ];
    prop::collection::vec(item, 1..8)
}

fn steps(restarts: bool) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        10 => items(restarts).prop_map(Step::Burst),
        8 => Just(Step::Receive),
        4 => Just(Step::Drain),
        6 => (1u8..20).prop_map(Step::Answer),
        4 => Just(Step::Look),
        1 => Just(Step::Cut),
        2 => Just(Step::Hurry),
        1 => (0u8..12).prop_map(Step::Memory),
        1 => (0u8..4).prop_map(Step::Refuse),
    ];
    prop::collection::vec(step, 1..60)
}

/// A block as its writer received it.
struct Page {
    scan: Uuid,
    stream: u16,
    filled: Filling,
    bytes: Vec<u8>,
}

/// The parts of its index record.
struct Filling {
    sequence: u64,
    first: i64,
    frames: u32,
    present: u32,
    invalid: u32,
    time: Option<Tai>,
    seen: Tai,
    gaps: Vec<Gap>,
    lengths: Vec<u16>,
}

struct Writer {
    commands: rtrb::Consumer<WriterCommand>,
    returned: ReplySender,
    metrics: Arc<WriterMetrics>,
    held: VecDeque<FullBlock>,
}

/// A port with its environment, and the results for all that was sent.
struct Bench {
    port: Port,
    chain: SinkChain,
    staging: StagingBuffer,
    notices: Vec<CaptureEvent>,
    writers: Vec<Writer>,
    hostages: Vec<Block>,
    sender: Sender,
    wire: Wire,
    /// Numbers sent whole, and numbers sent damaged.
    good: BTreeSet<u64>,
    bad: BTreeSet<u64>,
    datagrams: u64,
    now: Tai,
    openings: Vec<Arc<ScanContext>>,
    pages: Vec<Page>,
    /// Gaps reported without a block, by scan and stream.
    told: BTreeMap<(Uuid, u16), Vec<Gap>>,
    /// True if blocks ran out or a member failed.
    short: bool,
}

impl Bench {
    fn new(text: &str, wire: Wire, members: usize) -> Self {
        let mut source = UdpSource::parse(text).unwrap().remove(0);
        source.block = Some(ByteSize(4096));
        Self::of(source, wire, members, (2 << 20, 3 * 4096))
    }

    /// A bench with this many bytes of block memory and in each chunk.
    fn of(mut source: UdpSource, wire: Wire, members: usize, sizes: (usize, u64)) -> Self {
        source.address.set_port(0);
        // A port that is not split has the number 0 itself.
        let known = u16::from(source.threads != Threads::Split);
        let numbers = Arc::new(AtomicU16::new(known));
        let (pool_bytes, chunk_bytes) = sizes;
        let sizes = Sizes { pool_bytes, chunk_bytes, buffer_bytes: 8 << 20 };
        let port = match source.engine {
            Engine::Packet => {
                let input = Box::new(BlockInput::listen(&source));
                source.gro = Gro::Off;
                Port::with_input(input, None, source, 0, numbers, sizes)
            }
            Engine::Udp | Engine::Xdp | Engine::Auto => {
                Port::open_near(None, source, 0, numbers, sizes)
            }
        };
        let port = port.unwrap();
        let address = port.input().address().unwrap();
        let destination =
            Destination { address, ttl: None, interface: None, buffer_bytes: 4 << 20 };
        let (queues, writers) = (0..members).map(|_| queue()).unzip();
        let mut bench = Self {
            port,
            chain: SinkChain::of_stripers(vec![Striper::new(queues)]),
            staging: StagingBuffer::new(),
            notices: Vec::new(),
            writers,
            hostages: Vec::new(),
            sender: Sender::connect(&destination).unwrap(),
            wire,
            good: BTreeSet::new(),
            bad: BTreeSet::new(),
            datagrams: 0,
            now: Tai(0),
            openings: Vec::new(),
            pages: Vec::new(),
            told: BTreeMap::new(),
            short: false,
        };
        bench.begin();
        bench
    }

    fn with<T>(&mut self, what: impl FnOnce(&mut Port, &mut ThreadResources<'_>) -> T) -> T {
        let mut thread_resources = ThreadResources {
            chain: &mut self.chain,
            staging: &mut self.staging,
            notices: &mut self.notices,
            now: self.now,
        };
        what(&mut self.port, &mut thread_resources)
    }

    fn begin(&mut self) {
        let scan = format!("s_{}", self.openings.len()).parse().unwrap();
        let context = Arc::new(ScanContext::new(Uuid::now_v7(), scan, true));
        self.openings.push(context.clone());
        self.with(|port, thread_resources| port.begin(context, thread_resources));
    }

    fn play(&mut self, step: &Step) {
        match step {
            Step::Burst(items) => self.send(items),
            Step::Receive => {
                self.receive();
            }
            Step::Drain => while self.receive() > 0 {},
            Step::Answer(count) => self.answer(usize::from(*count)),
            Step::Look => self.with(Port::look),
            Step::Cut if self.openings.len() < 8 => self.begin(),
            Step::Cut => {}
            Step::Hurry => {
                // Old frames followed by silence would look like a restart of the sender. A frame marked invalid is no
                // evidence about the stream.
                let count = 1 + u8::from(self.wire.next % 13 == 5);
                self.send(&[Item::Next(count)]);
                while self.receive() > 0 {}
                self.now = self.now.plus_ns(1_000_000_000);
                self.port.hurry();
                self.with(Port::look);
            }
            Step::Memory(left) => self.leave(usize::from(*left)),
            Step::Refuse(member) => {
                if let Some(writer) = self.writers.get(usize::from(*member)) {
                    writer.metrics.refusing.store(true, Ordering::Relaxed);
                    self.short = true;
                }
            }
        }
    }

    fn receive(&mut self) -> usize {
        let received = self.with(|port, thread_resources| port.receive(thread_resources)).unwrap();
        if self.port.pool_mut().is_some_and(|pool| pool.free() == 0) {
            self.short = true;
        }
        received
    }

    fn leave(&mut self, left: usize) {
        let Some(pool) = self.port.pool_mut() else { return };
        while pool.free() > left {
            self.hostages.extend(pool.take());
        }
        while pool.free() < left
            && let Some(block) = self.hostages.pop()
        {
            pool.put(block);
        }
        self.short |= left < 8;
    }

    fn send(&mut self, items: &[Item]) {
        let mut datagrams = Vec::new();
        for item in items {
            let next = self.wire.next;
            match *item {
                Item::Next(count) => {
                    self.wire.next += u64::from(count);
                    self.good.extend(next..self.wire.next);
                    datagrams.extend((next..self.wire.next).map(|n| self.wire.datagram(n)));
                }
                Item::Skip(count) => self.wire.next += u64::from(count),
                Item::Back(back) => self.again(u64::from(back), 1, &mut datagrams),
                Item::Replay(back, count) => {
                    self.again(u64::from(back), count.into(), &mut datagrams);
                }
                Item::Short(less) => {
                    self.wire.next += 1;
                    let mut datagram = self.wire.datagram(next);
                    datagram.truncate(datagram.len() - 8 - usize::from(less));
                    datagrams.push(datagram);
                    self.bad.insert(next);
                }
                Item::Long(more) => {
                    self.wire.next += 1;
                    let mut datagram = self.wire.datagram(next);
                    datagram.extend(vec![7; 8 + usize::from(more)]);
                    datagrams.push(datagram);
                    self.bad.insert(next);
                }
                Item::Rubbish(bytes) => {
                    // With a frame's length it would be a frame, if only the length identifies frames.
                    let bytes = if usize::from(bytes) == FRAME { 511 } else { bytes };
                    datagrams.push(vec![0xA5; usize::from(bytes)]);
                }
                Item::Restart(jump) => {
                    let shift = self.wire.epoch_of(next).1.wrapping_add_signed(jump);
                    self.wire.epochs.insert(next, shift);
                }
            }
        }
        self.datagrams += datagrams.len() as u64;
        let slices: Vec<_> =
            datagrams.iter().map(|d| [IoSlice::new(&[]), IoSlice::new(d)]).collect();
        for group in slices.chunks(64) {
            self.sender.send(group).unwrap();
        }
    }

    /// Sends frames of the newest epoch again, or for the first time.
    fn again(&mut self, back: u64, count: u64, datagrams: &mut Vec<Vec<u8>>) {
        let (from, _) = self.wire.epoch_of(self.wire.next);
        let first = self.wire.next.saturating_sub(back + 1).max(from);
        for number in first..(first + count).min(self.wire.next) {
            datagrams.push(self.wire.datagram(number));
            self.good.insert(number);
        }
    }

    /// Makes the writers reply for `count` blocks.
    fn answer(&mut self, count: usize) {
        for writer in &mut self.writers {
            while let Ok(command) = writer.commands.pop() {
                match command {
                    WriterCommand::Write(filled) => writer.held.push_back(filled),
                    WriterCommand::Finish { stream_ref, gaps } => {
                        self.told
                            .entry((stream_ref.scan, stream_ref.number))
                            .or_default()
                            .extend(gaps);
                    }
                }
            }
            for filled in writer.held.drain(..count.min(writer.held.len())) {
                let answer = if writer.metrics.refusing.load(Ordering::Relaxed) {
                    WriterReply::Refused(filled)
                } else {
                    self.pages.push(page(&filled));
                    WriterReply::Written {
                        block: filled.block,
                        stream_ref: filled.stream_ref,
                        bytes: filled.bytes,
                    }
                };
                assert!(writer.returned.push(answer).is_ok());
            }
        }
        while let Some(returned) = self.chain.take_returned() {
            let stray = self.with(|port, thread_resources| port.answer(returned, thread_resources));
            assert!(stray.is_none(), "a block came back to a stream that does not know it");
        }
    }

    /// Stops, and waits until all blocks are settled.
    fn finish(&mut self) {
        while self.receive() > 0 {}
        self.with(Port::end);
        for _ in 0..100 {
            self.answer(usize::MAX);
            self.with(Port::look);
        }
        assert!(self.port.is_done(), "a part never became complete");
        self.answer(usize::MAX);
        assert_eq!(self.port.input().drops().unwrap(), 0, "the test lost datagrams itself");
        let hostages = std::mem::take(&mut self.hostages);
        let Some(pool) = self.port.pool_mut() else { return };
        hostages.into_iter().for_each(|block| pool.put(block));
        assert_eq!(pool.free(), pool.blocks(), "every block came home");
        let mut numbers: Vec<u32> =
            std::iter::from_fn(|| pool.take()).map(|block| block.number()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), pool.blocks(), "no block came home twice");
    }

    /// Returns the accounts of a stream, in the order of the scans.
    fn accounts(&self, stream: u16) -> Vec<(Uuid, &Account)> {
        let of_stream = |notice: &'_ CaptureEvent| matches!(notice, CaptureEvent::Ended { number, .. } if *number == stream);
        let ended: BTreeMap<Uuid, &Account> = self
            .notices
            .iter()
            .filter(|notice| of_stream(notice))
            .map(|notice| match notice {
                CaptureEvent::Ended { scan, account, .. } => (*scan, &**account),
                _ => unreachable!("filtered"),
            })
            .collect();
        let order = self.openings.iter().map(|context| context.uuid);
        order.filter_map(|scan| Some((scan, *ended.get(&scan)?))).collect()
    }

    /// Returns the number of datagrams that were no frames of a stream, or were dropped as out-of-window.
    fn foreign(&self) -> u64 {
        let of_notice = |notice: &CaptureEvent| match notice {
            CaptureEvent::Ended { account, .. } => {
                account.foreign + account.out_of_window + account.unrecorded + account.excluded
            }
            CaptureEvent::Silent { account, .. } => {
                account.foreign + account.unrecorded + account.excluded
            }
            _ => 0,
        };
        self.notices.iter().map(of_notice).sum()
    }
}

/// Returns the most frames that may belong to no stream because frames of the same time from other threads were under
/// way when it ended.
fn most_behind_the_end(bench: &Bench) -> u64 {
    let source = bench.port.source();
    if matches!(source.threads, Threads::Listed(_)) {
        2 * bench.wire.threads.len() as u64
    } else {
        0
    }
}

fn queue() -> (WriterQueue, Writer) {
    let (to, commands) = rtrb::RingBuffer::new(4096);
    let (returned, from) = reply_queue(4096);
    let metrics = Arc::new(WriterMetrics::default());
    let wake = Arc::new(Notifier::new().unwrap());
    let queue = WriterQueue::new(to, from, metrics.clone(), wake, 2048);
    (queue, Writer { commands, returned, metrics, held: VecDeque::new() })
}

fn page(filled: &FullBlock) -> Page {
    let bytes = filled.block[..filled.bytes as usize].to_vec();
    if let Some(crc) = filled.crc {
        assert_eq!(crc, crc32c::crc32c(&bytes), "a checksum taken too early");
    }
    Page {
        scan: filled.stream_ref.scan,
        stream: filled.stream_ref.number,
        filled: Filling {
            sequence: filled.sequence,
            first: filled.first,
            frames: filled.frames,
            present: filled.present,
            invalid: filled.invalid,
            time: filled.time,
            seen: filled.seen,
            gaps: filled.gaps.clone(),
            lengths: filled.lengths.clone(),
        },
        bytes,
    }
}

/// Returns the indices of gaps, each with its cause; no index occurs twice.
fn indices(gaps: &[Gap]) -> BTreeMap<i64, Cause> {
    let mut causes = BTreeMap::new();
    for gap in gaps {
        for index in gap.first..gap.first + gap.count as i64 {
            assert!(causes.insert(index, gap.cause).is_none(), "{index} is in two gaps: {gaps:?}");
        }
    }
    causes
}

/// The mapping from the numbers of a wire to the indices of one indexed stream.
struct Placing<'a> {
    /// The number's index up to a constant, if it belongs to the stream.
    place: &'a dyn Fn(u64) -> Option<i64>,
    fill: Fill,
}

/// Compares the results of an indexed stream with the frames sent.
fn check_placed(bench: &Bench, stream: u16, placing: &Placing<'_>) {
    let mut offsets: BTreeMap<u64, i64> = BTreeMap::new();
    let mut fates: BTreeMap<i64, Option<Cause>> = BTreeMap::new();
    let accounts = bench.accounts(stream);
    let mut written_numbers = BTreeSet::new();
    for (scan, account) in &accounts {
        assert!(account.terms.balance(), "{account:#?}");
        let gaps = indices(&account.gaps);
        let listed = gaps.len() as u64;
        assert_eq!(listed, account.terms.expected - account.terms.written, "{account:#?}");
        let (mut present, mut invalid, mut filled) = (0, 0, 0);
        let mut told = Vec::new();
        let mut pages: Vec<&Page> =
            bench.pages.iter().filter(|p| (p.scan, p.stream) == (*scan, stream)).collect();
        pages.sort_by_key(|page| page.filled.sequence);
        for page in pages {
            let Filling { first, frames, .. } = page.filled;
            assert_eq!(page.bytes.len(), frames as usize * FRAME);
            told.extend(page.filled.gaps.iter().copied());
            let mut of_page = (0, 0);
            for (slot, frame) in page.bytes.chunks(FRAME).enumerate() {
                let index = first + slot as i64;
                if gaps.contains_key(&index) {
                    check_fill(bench, placing, index, frame);
                    filled += 1;
                    continue;
                }
                let number = bench.wire.identify(frame);
                let number = number.unwrap_or_else(|| panic!("{index} holds what was never sent"));
                assert!(bench.good.contains(&number));
                assert!(written_numbers.insert(number), "{number} was written twice");
                let place = (placing.place)(number).expect("a frame of another stream");
                let offset =
                    *offsets.entry(bench.wire.counted_from(number)).or_insert(index - place);
                assert_eq!(index, place + offset, "number {number} lies in a wrong place");
                assert_eq!(fates.insert(index, None), None, "{index} is written twice");
                of_page.0 += 1;
                of_page.1 += u32::from(Header::read(frame).is_ok_and(|h| h.invalid()));
            }
            assert_eq!(of_page.0, page.filled.present);
            if bench.wire.kind == Kind::Vdif || bench.wire.kind == Kind::Vtp {
                assert_eq!(of_page.1, page.filled.invalid);
                invalid += u64::from(of_page.1);
            }
            present += u64::from(of_page.0);
        }
        assert_eq!(present, account.terms.written, "{account:#?}");
        assert_eq!(account.bytes, present * FRAME as u64);
        assert_eq!(filled, account.filled, "{account:#?}");
        assert_eq!(invalid, account.invalid, "{account:#?}");
        told.extend(bench.told.get(&(*scan, stream)).into_iter().flatten().copied());
        let told: BTreeSet<i64> = indices(&told).into_keys().collect();
        let known: BTreeSet<i64> = gaps.keys().copied().collect();
        assert_eq!(told, known, "what the index was told, and what the account lists");
        for (index, cause) in gaps {
            assert_eq!(fates.insert(index, Some(cause)), None, "{index} is in two scans");
        }
    }
    let edges: Vec<(i64, i64)> = accounts
        .iter()
        .filter(|(_, account)| account.terms.expected > 0)
        .map(|(_, account)| {
            let (Some(first), Some(last)) = (account.first, account.last) else {
                panic!("nothing was seen of {account:#?}");
            };
            (first.index, last.index)
        })
        .collect();
    for pair in edges.windows(2) {
        assert_eq!(pair[0].1 + 1, pair[1].0, "frames between two scans");
    }
    if let (Some(first), Some(last)) = (edges.first(), edges.last()) {
        let count = last.1 - first.0 + 1;
        assert_eq!(fates.len() as i64, count, "every index has one fate");
    }
    check_fates(bench, placing, &offsets, &fates);
}

/// Checks that a sent frame is not missing, and that each other index has a cause.
fn check_fates(
    bench: &Bench,
    placing: &Placing<'_>,
    offsets: &BTreeMap<u64, i64>,
    fates: &BTreeMap<i64, Option<Cause>>,
) {
    let place = |number: &u64| {
        let offset = offsets.get(&bench.wire.counted_from(*number))?;
        Some((placing.place)(*number)? + offset)
    };
    let good: BTreeSet<i64> = bench.good.iter().filter_map(place).collect();
    let bad: BTreeSet<i64> = bench.bad.iter().filter_map(place).collect();
    let mapped = bench.good.iter().chain(&bench.bad).all(|number| {
        (placing.place)(*number).is_none()
            || offsets.contains_key(&bench.wire.counted_from(*number))
    });
    let mut unseen = 0;
    for (index, fate) in fates {
        let (sent, hurt) = (good.contains(index), bad.contains(index));
        match fate {
            None => assert!(sent),
            Some(Cause::Missing) => unseen += u64::from(sent || hurt),
            Some(Cause::Damaged) => assert!(hurt || !mapped, "{index} was never damaged"),
            Some(Cause::Late | Cause::Overrun) => {
                assert!(sent || hurt || !mapped, "{index} was never sent and is {fate:?}");
            }
            Some(Cause::NotTransferred) => panic!("{index} was never to be transferred"),
        }
        if *fate == Some(Cause::Overrun) {
            assert!(bench.short, "{index} is overrun, and memory was there");
        }
    }
    let foreign = bench.foreign() + most_behind_the_end(bench);
    assert!(unseen <= foreign, "{unseen} frames came and are missing; {foreign} were foreign");
    for index in &good {
        if !fates.contains_key(index) {
            unseen += 1;
        }
    }
    assert!(unseen <= foreign, "{unseen} frames came and left no trace; {foreign} were foreign");
}

fn check_fill(bench: &Bench, placing: &Placing<'_>, index: i64, frame: &[u8]) {
    let word = 0x1122_3344u32.to_le_bytes();
    match placing.fill {
        Fill::Invalid => {
            if let Ok(header) = vdif::check(frame, FRAME) {
                assert!(header.invalid(), "the fill at {index} looks true");
            }
            assert!(frame[32..].chunks(4).all(|chunk| chunk == word), "fill at {index}");
        }
        _ => assert!(frame.chunks(4).all(|chunk| chunk == word), "fill at {index}"),
    }
    assert!(bench.wire.identify(frame).is_none());
}

/// Checks that every datagram is in the accounts once, or is one of the few that leave no trace.
fn check_datagrams(bench: &Bench) {
    let mut booked = 0;
    for notice in &bench.notices {
        match notice {
            CaptureEvent::Ended { account, .. } => {
                let terms = account.terms;
                booked += terms.written + terms.overrun + terms.damaged + terms.late;
                booked += account.duplicates + account.foreign + account.out_of_window;
                booked += account.unrecorded + account.excluded;
            }
            CaptureEvent::Silent { account, .. } => {
                booked += account.foreign + account.unrecorded + account.excluded;
            }
            CaptureEvent::Opened { .. }
            | CaptureEvent::Unrecognised { .. }
            | CaptureEvent::Source(_)
            | CaptureEvent::Described { .. }
            | CaptureEvent::Context { .. }
            | CaptureEvent::Closed { .. }
            | CaptureEvent::Exhausted { .. }
            | CaptureEvent::Done => {}
            CaptureEvent::Warning { text }
                if ["out of window", "arrive", "packet number", "is fps=37 right?"]
                    .iter()
                    .any(|it| text.contains(it)) => {}
            CaptureEvent::Warning { text } => panic!("{text}"),
            CaptureEvent::Broken { why } => panic!("{why}"),
        }
    }
    assert!(booked <= bench.datagrams, "{booked} booked of {}", bench.datagrams);
    if !bench.short {
        // With split threads there may be no stream that counts datagrams which open none.
        let split = bench.port.source().threads == Threads::Split;
        let unbooked = bench.datagrams - booked;
        assert!(split || unbooked <= most_behind_the_end(bench), "{unbooked} are not booked");
    }
}

/// Returns these steps without those that move time back, which is not a restart of a count.
fn forward(kind: Kind, steps: Vec<Step>) -> Vec<Step> {
    let restarts = |item: &Item| kind == Kind::Vdif && matches!(item, Item::Restart(_));
    let forward = |step: Step| match step {
        Step::Burst(items) => {
            Step::Burst(items.into_iter().filter(|item| !restarts(item)).collect())
        }
        other => other,
    };
    steps.into_iter().map(forward).collect()
}

fn wire(kind: Kind, threads: &[u16]) -> Wire {
    Wire { kind, threads: threads.to_vec(), fps: 37, epochs: BTreeMap::from([(0, 5)]), next: 0 }
}

fn run(text: &str, wire: Wire, members: usize, steps: &[Step]) -> Bench {
    let mut bench = Bench::new(text, wire, members);
    steps.iter().for_each(|step| bench.play(step));
    bench.finish();
    check_datagrams(&bench);
    bench
}

/// How datagrams come: merged or not, from a socket or in the blocks of a packet ring.
fn ways() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("on"), Just("off"), Just("on&engine=packet"), Just("off&engine=packet")]
}

fn placed_kind() -> impl Strategy<Value = (Kind, &'static str)> {
    prop_oneof![
        Just((Kind::Vdif, "format=vdif&frame=512&fps=37")),
        Just((Kind::Vtp, "format=vtp&frame=512&fps=37")),
        Just((Kind::Field(4), "format=raw&frame=512&seq=0:4:le")),
        Just((Kind::Field(8), "format=raw&frame=512&seq=0:8:le")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 4000, ..ProptestConfig::default() })]

    #[test]
    fn a_placed_stream_is_what_was_sent_whatever_happens(
        (kind, text) in placed_kind(),
        gro in ways(),
        members in 1usize..3,
        steps in any::<bool>().prop_flat_map(steps),
    ) {
        let steps = forward(kind, steps);
        let text = format!("udp://127.0.0.1:1?{text}&gro={gro}");
        let bench = run(&text, wire(kind, &[0]), members, &steps);
        let fill = if matches!(kind, Kind::Field(_)) { Fill::Pattern(0) } else { Fill::Invalid };
        let place = |number: u64| Some(number as i64);
        check_placed(&bench, 0, &Placing { place: &place, fill });
    }

    #[test]
    fn threads_listed_lie_in_their_order_whatever_happens(
        gro in ways(), steps in steps(false),
    ) {
        let text = format!("udp://127.0.0.1:1?frame=512&fps=37&threads=3,0,1&gro={gro}");
        let bench = run(&text, wire(Kind::Vdif, &[3, 0, 1]), 1, &steps);
        let place = |number: u64| Some(number as i64);
        check_placed(&bench, 0, &Placing { place: &place, fill: Fill::Invalid });
    }

    #[test]
    fn threads_split_are_each_what_was_sent_of_them(
        gro in ways(), omit in any::<bool>(), steps in steps(false),
    ) {
        let fill = if omit { "omit" } else { "invalid" };
        let text =
            format!("udp://127.0.0.1:1?frame=512&fps=37&threads=split&gro={gro}&fill={fill}");
        let threads = [3, 0, 1];
        let bench = run(&text, wire(Kind::Vdif, &threads), 1, &steps);
        for (rank, thread) in threads.into_iter().enumerate() {
            let Some(stream) = stream_of(&bench, thread) else { continue };
            let owns = |number: u64| number % 3 == rank as u64;
            let place = |number: u64| owns(number).then_some((number / 3) as i64);
            if omit {
                check_arrived(&bench, stream, &owns);
            } else {
                check_placed(&bench, stream, &Placing { place: &place, fill: Fill::Invalid });
            }
        }
    }

    #[test]
    fn threads_together_are_what_came(
        gro in ways(), members in 1usize..3, several in any::<bool>(),
        steps in steps(false),
    ) {
        let fill = if several { "invalid" } else { "omit" };
        let text = format!("udp://127.0.0.1:1?frame=512&fps=37&gro={gro}&fill={fill}");
        let threads: &[u16] = if several { &[3, 0, 1] } else { &[2] };
        let mut begun = vec![Step::Burst(vec![Item::Next(9)]), Step::Drain, Step::Hurry];
        begun.extend(steps);
        let bench = run(&text, wire(Kind::Vdif, threads), members, &begun);
        check_arrived(&bench, 0, &|_| true);
    }

    #[test]
    fn numbered_datagrams_with_nothing_filled_are_what_came(
        gro in ways(), steps in steps(true),
    ) {
        let text = format!("udp://127.0.0.1:1?format=raw&frame=512&seq=0:8:le&fill=omit&gro={gro}");
        let bench = run(&text, wire(Kind::Field(8), &[0]), 1, &steps);
        check_arrived(&bench, 0, &|_| true);
    }
}

/// Compares the results of a sequential stream with the frames sent.
fn check_arrived(bench: &Bench, stream: u16, owns: &dyn Fn(u64) -> bool) {
    let mut numbers = BTreeSet::new();
    let (mut elsewhere, mut missing) = (0, 0);
    for (scan, account) in bench.accounts(stream) {
        assert!(account.terms.balance(), "{account:#?}");
        let mut sum = fullbore_core::account::Terms::default();
        for flow in &account.flows {
            assert!(flow.terms.balance(), "{flow:?}");
            sum.add(&flow.terms);
        }
        assert!(account.flows.is_empty() || bench.short || sum == account.terms, "{account:#?}");
        let mut pages: Vec<&Page> =
            bench.pages.iter().filter(|p| (p.scan, p.stream) == (scan, stream)).collect();
        pages.sort_by_key(|page| page.filled.sequence);
        let mut written = 0;
        for frame in pages.iter().flat_map(|page| page.bytes.chunks(FRAME)) {
            let number = bench.wire.identify(frame).expect("what was never sent");
            assert!(owns(number) && bench.good.contains(&number));
            assert!(numbers.insert(number), "{number} was written twice");
            written += 1;
        }
        assert_eq!(written, account.terms.written, "{account:#?}");
        assert_eq!(account.bytes, written * FRAME as u64);
        elsewhere += account.terms.late + account.terms.overrun + account.terms.damaged;
        if bench.wire.epochs.len() > 1 {
            // A frame that was overtaken at a restart has the number of an older frame.
            elsewhere += account.duplicates;
        }
        missing += account.terms.missing;
    }
    let foreign = bench.foreign();
    let sent = bench.good.iter().filter(|&&number| owns(number)).count() as u64;
    let lost = sent - numbers.len() as u64;
    assert!(lost <= elsewhere + foreign, "{lost} came and left no trace");
    // Frames of each thread between its first and last written one that were not sent are missing.
    let threads = bench.wire.threads.len() as u64;
    let mut absent = 0;
    for thread in 0..threads {
        let own = || numbers.iter().filter(|&&number| number % threads == thread);
        let (Some(&first), Some(&last)) = (own().next(), own().next_back()) else { continue };
        let sent = |number: &u64| bench.good.contains(number) || bench.bad.contains(number);
        absent += (first..=last).step_by(threads as usize).filter(|n| !sent(n)).count() as u64;
    }
    // Frames lost just before a restart cannot be known.
    let known = bench.wire.epochs.len() == 1;
    assert!(!known || missing >= absent, "{missing} of {absent} are missing");
    if known && bench.bad.is_empty() && foreign == 0 && !bench.short {
        assert!(
            elsewhere > 0 || missing == absent || lost > 0,
            "{missing} of {absent} are missing"
        );
    }
}

/// Returns the number of a thread's stream.
fn stream_of(bench: &Bench, thread: u16) -> Option<u16> {
    let name = format!("1t{thread}");
    bench.notices.iter().find_map(|notice| match notice {
        CaptureEvent::Opened { shape, .. } if shape.name.as_str() == name => Some(shape.number),
        _ => None,
    })
}

/// Returns the number of test cases; an environment variable can raise it.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(150)
}

#[test]
fn a_silence_up_to_a_page_without_memory_is_told_to_the_index() {
    let steps = [
        Step::Hurry,
        Step::Cut,
        Step::Receive,
        Step::Cut,
        Step::Burst(vec![Item::Skip(24), Item::Next(1)]),
        Step::Memory(0),
    ];
    let text = "udp://127.0.0.1:1?format=vtp&frame=512&fps=37";
    let bench = run(text, wire(Kind::Vtp, &[0]), 1, &steps);
    let place = |number: u64| Some(number as i64);
    check_placed(&bench, 0, &Placing { place: &place, fill: Fill::Invalid });
}

#[test]
fn what_a_split_port_was_sent_before_any_stream_is_told_by_the_first_that_opens() {
    let steps = [
        Step::Burst(vec![Item::Skip(6), Item::Rubbish(300)]),
        Step::Receive,
        Step::Burst(vec![Item::Next(1)]),
        Step::Cut,
        Step::Burst(vec![Item::Next(3)]),
    ];
    let text = "udp://127.0.0.1:1?frame=512&fps=37&threads=split";
    let bench = run(text, wire(Kind::Vdif, &[3, 0, 1]), 1, &steps);
    assert_eq!(bench.foreign(), 1);
}

/// Sends these datagrams, then a hundred frames, and returns the only account.
fn account_behind(text: &str, wire: Wire, strays: &[Vec<u8>], waits: bool) -> Account {
    let mut bench = Bench::new(text, wire, 1);
    for stray in strays {
        bench.sender.send(&[[IoSlice::new(&[]), IoSlice::new(stray)]]).unwrap();
        bench.datagrams += 1;
        bench.play(&Step::Drain);
        if waits {
            bench.port.hurry();
            bench.with(Port::look);
        }
    }
    [Step::Burst(vec![Item::Next(100)]), Step::Drain].iter().for_each(|step| bench.play(step));
    bench.finish();
    check_datagrams(&bench);
    let place = |number: u64| Some(number as i64);
    let fill = if bench.wire.kind == Kind::Vdif { Fill::Invalid } else { Fill::Pattern(0) };
    check_placed(&bench, 0, &Placing { place: &place, fill });
    let accounts = bench.accounts(0);
    assert_eq!(accounts.len(), 1);
    accounts[0].1.clone()
}

#[test]
fn frames_out_of_window_before_a_stream_do_not_become_the_stream() {
    let mut long = wire(Kind::Vdif, &[0]).datagram(6);
    let header = Header::read(&long).unwrap().with_frame_bytes(1024).with_station(0x7777);
    long.resize(1024, 0);
    header.write(&mut long).unwrap();
    let mut elsewhen = wire(Kind::Vdif, &[0]).datagram(6);
    Header::read(&elsewhen).unwrap().with_seconds(9).write(&mut elsewhen).unwrap();
    for waits in [false, true] {
        let vdif = || wire(Kind::Vdif, &[0]);
        let text = "udp://127.0.0.1:1?fps=37";
        let account = account_behind(text, vdif(), std::slice::from_ref(&long), waits);
        let (terms, verdict) = (account.terms, account.judge());
        assert_eq!((terms.expected, terms.written, account.unrecorded), (100, 100, 1), "{waits}");
        assert_eq!(verdict, Verdict::Consistent);
        let twice = [long.clone(), b"who is there?".to_vec(), long.clone()];
        let account = account_behind(text, vdif(), &twice, waits);
        assert_eq!((account.terms.written, account.foreign, account.unrecorded), (100, 1, 2));
        // A frame of another time: it cannot be distinguished from the stream, and must not become its beginning.
        let account = account_behind(text, vdif(), std::slice::from_ref(&elsewhen), waits);
        let (terms, verdict) = (account.terms, account.judge());
        assert_eq!(
            (terms.expected, terms.written, account.out_of_window),
            (100, 100, 1),
            "{waits}"
        );
        assert_eq!(verdict, Verdict::Consistent);
        let text = "udp://127.0.0.1:1?format=raw&seq=0:8:le";
        let account = account_behind(text, wire(Kind::Field(8), &[0]), &[vec![9; 77]], waits);
        assert_eq!((account.terms.written, account.foreign), (100, 1));
    }
}

#[test]
fn a_single_frame_is_a_stream_once_nothing_else_can_come() {
    let steps = [Step::Cut, Step::Burst(vec![Item::Next(1)]), Step::Drain, Step::Look];
    let text = "udp://127.0.0.1:1?format=vdif&fps=37";
    let bench = run(text, wire(Kind::Vdif, &[0]), 1, &steps);
    let accounts = bench.accounts(0);
    assert_eq!(accounts.len(), 1, "nothing came in the first scan");
    assert_eq!((accounts[0].0, accounts[0].1.terms.written), (bench.openings[1].uuid, 1));
}

#[test]
fn frames_of_the_stream_that_are_thrown_away_are_named_and_nothing_is_proven_by_the_rest() {
    let far = Item::Restart(1 << 33);
    let steps = [
        Step::Burst(vec![Item::Next(50)]),
        Step::Drain,
        Step::Hurry,
        Step::Burst(vec![far, Item::Next(3)]),
        Step::Drain,
        Step::Burst(vec![Item::Restart(-(1 << 33)), Item::Next(50)]),
        Step::Drain,
        Step::Look,
    ];
    for fill in ["", "&fill=omit"] {
        let text = format!("udp://127.0.0.1:1?format=raw&frame=512&seq=0:8:le{fill}");
        let bench = run(&text, wire(Kind::Field(8), &[0]), 1, &steps);
        let account = bench.accounts(0)[0].1;
        assert_eq!((account.out_of_window, account.foreign, account.restarts), (3, 0, 0), "{fill}");
        assert_ne!(account.judge(), Verdict::Proven);
        let warned = |notice: &CaptureEvent| matches!(notice, CaptureEvent::Warning { text } if text.contains("out of window"));
        assert_eq!(bench.notices.iter().filter(|notice| warned(notice)).count(), 1, "{fill}");
    }
}

#[test]
fn a_socket_that_does_not_say_what_it_dropped_proves_nothing() {
    let text = "udp://127.0.0.1:1?format=vdif&fps=37";
    let mut bench = Bench::new(text, wire(Kind::Vdif, &[0]), 1);
    bench.port.blind();
    [Step::Burst(vec![Item::Next(40)]), Step::Drain].iter().for_each(|step| bench.play(step));
    bench.finish();
    let account = bench.accounts(0)[0].1;
    assert!(account.drop_counters.is_empty());
    assert_eq!(account.unavailable_counters.len(), 1, "{account:?}");
    assert_eq!(account.judge(), Verdict::Consistent);
}

#[test]
fn the_last_frame_of_the_first_second_may_be_overtaken_though_nobody_told_the_rate() {
    for (query, threads) in [
        ("", vec![0]),
        ("&fill=omit", vec![0]),
        ("&fill=omit", vec![3, 0]),
        ("&threads=3,0", vec![3, 0]),
    ] {
        // Each thread has 37 frames a second. The last frames of the first two seconds arrive after two of the next.
        let several = threads.len() as u8;
        let next = |count: u8| (0..several).map(move |_| Item::Next(count));
        let overtaken = || {
            let back = u16::from(3 * several) - 1;
            [Item::Skip(several), Item::Next(2 * several), Item::Replay(back, several)]
        };
        let mut burst: Vec<Item> = next(36).chain(overtaken()).collect();
        burst.extend(next(34).chain(overtaken()).chain(next(60)));
        let steps = [Step::Burst(burst), Step::Drain, Step::Look];
        let text = format!("udp://127.0.0.1:1?frame=512{query}");
        let bench = run(&text, wire(Kind::Vdif, &threads), 1, &steps);
        let accounts = bench.accounts(0);
        let (terms, reordered) = (accounts[0].1.terms, accounts[0].1.reordered);
        assert_eq!((terms.expected, terms.written), (bench.wire.next, bench.wire.next), "{text}");
        assert!(reordered > 0, "{text}");
        assert_eq!(bench.foreign(), 0, "{text}");
    }
}

#[test]
fn a_far_frame_that_another_has_brought_near_has_its_place() {
    let steps = [
        Step::Burst(vec![Item::Next(4)]),
        Step::Drain,
        Step::Hurry,
        Step::Burst(vec![Item::Skip(12), Item::Next(1)]),
        Step::Drain,
        Step::Burst(vec![Item::Back(5)]),
        Step::Drain,
    ];
    for fill in ["", "&fill=omit"] {
        let text = format!("udp://127.0.0.1:1?format=raw&frame=512&seq=0:8:le{fill}");
        let bench = run(&text, wire(Kind::Field(8), &[0]), 1, &steps);
        let account = bench.accounts(0)[0].1;
        assert_eq!((account.duplicates, account.out_of_window), (0, 0), "{account:#?}");
        assert_eq!((account.terms.written, account.terms.late), (7, 0), "{account:#?}");
    }
}

#[test]
fn frames_overtaken_at_the_very_start_have_their_places() {
    let start = Item::Skip(9);
    for text in [
        "udp://127.0.0.1:1?frame=512&fps=37&threads=split",
        "udp://127.0.0.1:1?frame=512&fps=37&threads=split&fill=omit",
        "udp://127.0.0.1:1?frame=512&fps=37&fill=omit",
    ] {
        // Nine frames, three of each thread, and then the nine before them.
        let steps = [
            Step::Burst(vec![start.clone(), Item::Next(9), Item::Replay(17, 9), Item::Next(30)]),
            Step::Drain,
        ];
        let bench = run(text, wire(Kind::Vdif, &[3, 0, 1]), 1, &steps);
        let ended = bench.notices.iter().filter_map(|notice| match notice {
            CaptureEvent::Ended { account, .. } => Some(account),
            _ => None,
        });
        let sums = ended.fold((0, 0, 0), |sums, account| {
            let terms = account.terms;
            (sums.0 + terms.expected, sums.1 + terms.written, sums.2 + account.reordered)
        });
        assert_eq!(sums, (48, 48, 9), "{text}");
    }
}

#[test]
fn the_counters_of_scans_that_are_over_are_forgotten() {
    let mut steps = Vec::new();
    for _ in 0..6 {
        let next = Step::Burst(vec![Item::Next(40)]);
        steps.extend([next, Step::Drain, Step::Hurry, Step::Answer(20), Step::Look, Step::Cut]);
    }
    steps.push(Step::Burst(vec![Item::Next(40)]));
    let text = "udp://127.0.0.1:1?format=vdif&frame=512&fps=37";
    let bench = run(text, wire(Kind::Vdif, &[0]), 1, &steps);
    assert!(bench.port.drops_held() <= 1);
    let accounts = bench.accounts(0);
    assert_eq!(accounts.len(), 7);
    assert!(accounts.iter().all(|(_, account)| account.drop_counters.len() == 1), "{accounts:?}");
}

#[test]
fn old_frames_one_by_one_among_new_ones_are_no_restart() {
    let mut steps = vec![Step::Burst(vec![Item::Next(200)]), Step::Drain, Step::Hurry];
    for _ in 0..10 {
        steps.push(Step::Burst(vec![Item::Next(1)]));
        steps.push(Step::Drain);
        steps.push(Step::Burst(vec![Item::Back(190), Item::Next(5)]));
        steps.extend([Step::Drain, Step::Look, Step::Hurry]);
    }
    let text = "udp://127.0.0.1:1?format=vdif&frame=512&fps=37";
    let bench = run(text, wire(Kind::Vdif, &[0]), 1, &steps);
    let accounts = bench.accounts(0);
    let Account { restarts, duplicates, out_of_window, .. } = *accounts[0].1;
    // The blocks of these frames have left the window, so the frames can no longer be compared.
    assert_eq!((restarts, duplicates, out_of_window), (0, 0, 10), "{accounts:?}");
    let place = |number: u64| Some(number as i64);
    check_placed(&bench, 0, &Placing { place: &place, fill: Fill::Invalid });
}

#[test]
fn frames_overtaken_where_an_arrived_stream_is_cut_are_late_in_their_own_scan() {
    let steps = [
        Step::Burst(vec![Item::Next(15), Item::Skip(2), Item::Next(3)]),
        Step::Drain,
        Step::Hurry,
        Step::Cut,
        Step::Burst(vec![Item::Back(5), Item::Next(4), Item::Back(0)]),
        Step::Drain,
        Step::Look,
        Step::Answer(20),
        Step::Look,
        Step::Hurry,
    ];
    let text = "udp://127.0.0.1:1?format=raw&frame=512&seq=0:8:le&fill=omit";
    let bench = run(text, wire(Kind::Field(8), &[0]), 1, &steps);
    check_arrived(&bench, 0, &|_| true);
    let accounts = bench.accounts(0);
    let terms = accounts[0].1.terms;
    assert_eq!((terms.written, terms.missing, terms.late), (19, 1, 1), "{accounts:#?}");
    assert_eq!(accounts[0].1.listed(Cause::Late), 1);
    let after = accounts[1].1;
    assert_eq!((after.terms.written, after.foreign, after.duplicates), (5, 0, 1));
    assert!(after.terms.balance());
}

#[test]
fn a_rate_that_is_raised_and_lowered_again_tells_of_no_frame_twice() {
    // An indexed stream ends its scan with a whole block: two more of its frames look missing.
    for (fill, missing) in [("&fill=omit", 41), ("", 43)] {
        let text = &format!("udp://127.0.0.1:1?frame=512{fill}");
        let mut bench = Bench::new(text, wire(Kind::Vdif, &[0]), 1);
        let template = Header::read(&bench.wire.frame(0)).unwrap();
        // In the second one a frame is lost just before its end, so that it looks like a second of a hundred frames.
        for (second, frames) in [60, 98, 98, 98, 98, 10].into_iter().enumerate() {
            if second == 2 {
                bench.play(&Step::Cut);
            }
            for number in (0..frames).filter(|&number| (second, number) != (1, 95)) {
                let mut frame = vec![0x5A; FRAME];
                let mut header = template;
                header.set_time(Second(template.second().0 + second as i64), number);
                header.write(&mut frame).unwrap();
                bench.sender.send(&[[IoSlice::new(&[]), IoSlice::new(&frame)]]).unwrap();
            }
            bench.play(&Step::Drain);
            bench.now = bench.now.plus_ns(1_000_000_000);
            bench.with(Port::look);
            bench.play(&Step::Answer(40));
        }
        bench.finish();
        let accounts = bench.accounts(0);
        let [first, second] = [0, 1].map(|at| accounts[at].1);
        assert_eq!((first.terms.missing, first.gaps_unlisted), (missing, 1), "{text}: {first:#?}");
        assert!(second.terms.missing < 10, "{text}: {second:#?}");
        verify_all(&bench).unwrap();
    }
}

/// Returns the time in a frame's header.
fn time_told(wire: &Wire, number: u64) -> Tai {
    let header = Header::read(&wire.frame(number)).unwrap();
    let ns = fullbore_time::frame_ns(header.frame_number().into(), wire.fps.into());
    header.second().start().plus_ns(ns)
}

#[test]
fn blocks_tell_when_their_first_frame_came_and_its_time_once_the_rate_is_known() {
    let (vdif, raw) = (Kind::Vdif, Kind::Field(8));
    let cases: [(&str, Kind, &[u16]); 5] = [
        ("udp://127.0.0.1:1?format=vdif&frame=512", vdif, &[0, 1]),
        ("udp://127.0.0.1:1?format=vdif&frame=512&fill=omit", vdif, &[0]),
        ("udp://127.0.0.1:1?format=vdif&frame=512", vdif, &[0]),
        ("udp://127.0.0.1:1?format=raw&frame=512", raw, &[0]),
        ("udp://127.0.0.1:1?format=raw&frame=512&seq=0:8:le", raw, &[0]),
    ];
    for (text, kind, threads) in cases {
        let mut bench = Bench::new(text, wire(kind, threads), 1);
        // None of them ends with a block of eight.
        let bursts = [84u64, 51, 30, 61];
        for (n, burst) in bursts.iter().enumerate() {
            bench.now = Tai(1_000_000_000 * (n as i64 + 1));
            bench.play(&Step::Burst(vec![Item::Next(*burst as u8)]));
            bench.play(&Step::Drain);
            // Two seconds may end in a burst, and capture waits for each.
            for _ in 0..3 {
                bench.now = bench.now.plus_ns(30_000_000);
                bench.play(&Step::Look);
            }
            bench.play(&Step::Answer(20));
        }
        bench.finish();
        let came = |number: u64| {
            let ends = bursts.iter().scan(0, |end, burst| {
                *end += burst;
                Some(*end)
            });
            1_000_000_000 * (1 + ends.take_while(|end| *end <= number).count() as i64)
        };
        let last = bench.pages.iter().map(|page| page.filled.sequence).max().unwrap();
        for page in &bench.pages {
            let number = bench.wire.identify(&page.bytes[..FRAME]).unwrap();
            // At a boundary of a second of unknown length, frames wait for a moment.
            let late = page.filled.seen.since(Tai(came(number)));
            assert!((0..=90_000_000).contains(&late), "{text}: frame {number} {late} ns late");
            let (told, is) = (page.filled.time, time_told(&bench.wire, number));
            assert!(told.is_none_or(|told| told == is), "{text}: frame {number}");
            let sure = page.filled.sequence == last && kind == vdif;
            assert!(told.is_some() || !sure, "{text}: its rate is known by then");
        }
        let (_, account) = bench.accounts(0)[0];
        let edges = [account.first.unwrap().time, account.last.unwrap().time];
        let is = [0, 225].map(|number| (kind == vdif).then(|| time_told(&bench.wire, number)));
        assert_eq!(edges, is, "{text}");
        let told = bench.notices.iter().position(|notice| {
            let CaptureEvent::Described {
                format: Format::Frames { frames_per_second, .. }, ..
            } = notice
            else {
                return false;
            };
            *frames_per_second == Some(37)
        });
        let ended = |notice: &CaptureEvent| matches!(notice, CaptureEvent::Ended { .. });
        assert_eq!(told.is_some(), kind == vdif, "{text}: the manifest has it at once");
        assert!(told < bench.notices.iter().position(ended), "{text}");
    }
}

#[test]
fn memory_for_too_few_blocks_is_refused_with_the_sum() {
    let text = "udp://127.0.0.1:1?format=raw&frame=8031&seq=0:8:le";
    let source = UdpSource::parse(text).unwrap().remove(0);
    let opened = Port::open(source, 0, Arc::default(), 64 << 20, 256_000_000, 4096);
    let told = opened.err().expect("two blocks are too few").to_string();
    assert!(told.contains("holds 2, and 8 are needed") && told.contains("--buffer"), "{told}");
}
