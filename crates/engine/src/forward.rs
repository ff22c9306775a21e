//! Sends what is recorded on to another host, live: best effort, and counted.
//!
//! ```text
//! ring ──► tap ──► reader ──► queue of each stream ──► its sender (paced) ──► udp or tcp
//!           │ skipped           │ full: skipped           │ refused by the network
//! ```
//!
//! The recording never waits for it: the tap copies written blocks, and a queue that is full loses the new block. Each
//! stream has a thread and a socket of its own. Frames of a block are spread over the time in which the stream fills a
//! block, and faster while blocks wait.

use std::collections::BTreeMap;
use std::io::{self, IoSlice, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fullbore_core::endpoint::{self, Endpoint, UdpTarget};
use fullbore_core::manifest::Format;
use fullbore_formats::FILL;
use fullbore_linux::ring::{Tap, TapBlock, Taps};
use fullbore_linux::sys::send::{Destination, Packet, Sender};
use serde::Serialize;
use uuid::Uuid;

use crate::event::Sealed;

/// Blocks of a stream that wait for its sender.
const QUEUE_BLOCKS: usize = 8;

/// The time to send the rest after the end of the recording.
const REST: Duration = Duration::from_secs(5);

/// The pause between two attempts to reach a destination.
const RETRY: Duration = Duration::from_secs(1);

/// Frames that leave together take at most this time at the rate of the stream.
const GROUP: Duration = Duration::from_micros(500);

/// The most frames that leave together.
const MOST_TOGETHER: usize = 16;

/// The time in which the first block of a stream of unknown rate is sent.
const FIRST_SPAN: Duration = Duration::from_millis(100);

/// The most streams that are sent on.
const MOST_STREAMS: usize = 256;

/// The interval in which a blocked connection looks for the end.
const LOOK: Duration = Duration::from_millis(100);

/// A destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForwardTarget {
    /// A datagram for each frame.
    Udp {
        /// The address.
        to: UdpTarget,
        /// True if a packet number precedes each frame (VTP).
        numbered: bool,
    },
    /// A connection with the frames of a stream one after the other.
    Tcp {
        /// The address or host name.
        host: String,
        /// The port.
        port: u16,
    },
}

impl std::fmt::Display for ForwardTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Udp { to, .. } => to.fmt(f),
            Self::Tcp { host, port } if host.contains(':') => write!(f, "tcp://[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "tcp://{host}:{port}"),
        }
    }
}

impl ForwardTarget {
    /// Reads one endpoint, and makes a destination of each of its ports.
    pub fn parse(text: &str) -> Result<Vec<Self>, endpoint::Error> {
        let mut endpoint: Endpoint = text.parse()?;
        if endpoint.scheme == "tcp" && endpoint.parameters.is_empty() {
            endpoint.scheme = "udp".to_owned();
            let ports = UdpTarget::expand(&endpoint)?.into_iter();
            return Ok(ports.map(|it| Self::Tcp { host: it.host, port: it.port }).collect());
        }
        let numbered = ("format".to_owned(), "vtp".to_owned());
        let before = endpoint.parameters.len();
        endpoint.parameters.retain(|parameter| *parameter != numbered);
        let numbered = endpoint.parameters.len() < before;
        let targets = UdpTarget::expand(&endpoint)?.into_iter();
        Ok(targets.map(|to| Self::Udp { to, numbered }).collect())
    }
}

/// What has been sent of a stream of a scan. Once the scan is sealed, `recorded = sent + skipped + refused`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ForwardCounts {
    /// The scan; empty before it is known.
    pub scan: String,
    /// The stream.
    pub stream: String,
    /// The destination.
    pub to: String,
    /// Frames in the recording, once the scan is sealed.
    pub recorded: Option<u64>,
    /// Frames that the kernel took.
    pub sent: u64,
    /// Bytes of these frames.
    pub bytes: u64,
    /// Frames that were not sent, because the sender or the destination was behind or not there.
    pub skipped: u64,
    /// Frames that the network refused.
    pub refused: u64,
    /// Reports of the destination that nothing listens there. The frames count as sent.
    pub unreachable: u64,
}

/// A stream of a scan: the part of its identity that all stores share, and its number.
type Key = (u128, u16);

fn key(scan: Uuid, stream: u16) -> Key {
    // Stores of one recording differ in the last bytes.
    (scan.as_u128() >> 16, stream)
}

/// What all threads share.
#[derive(Default)]
struct Shared {
    counts: Mutex<BTreeMap<Key, ForwardCounts>>,
    /// True after the end of the recording.
    ending: AtomicBool,
    /// The time at which everything is given up.
    until: Mutex<Option<Instant>>,
}

impl Shared {
    fn count(&self, key: Key, change: impl FnOnce(&mut ForwardCounts)) {
        change(locked(&self.counts).entry(key).or_default());
    }

    fn is_over(&self) -> bool {
        self.ending.load(Relaxed)
            && locked(&self.until).is_some_and(|until| Instant::now() >= until)
    }
}

/// The threads that send a recording on.
pub struct Forwarder {
    shared: Arc<Shared>,
    reader: JoinHandle<Vec<JoinHandle<()>>>,
}

impl Forwarder {
    /// Starts to send what these taps show. Stream *n* goes to destination *n*, and around again if there are fewer.
    pub fn start(taps: &Taps, targets: Vec<ForwardTarget>) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let (tap, of_reader) = (taps.open_for_every(), shared.clone());
        let read = move || read(tap, &targets, &of_reader);
        let reader = std::thread::Builder::new().name("forward".into()).spawn(read)?;
        Ok(Self { shared, reader })
    }

    /// The counts so far.
    pub fn counts(&self) -> Vec<ForwardCounts> {
        locked(&self.shared.counts).values().cloned().collect()
    }

    /// Learns what a scan contains.
    pub fn sealed(&self, sealed: &Sealed) {
        let streams = sealed.manifest.streams.iter().zip(&sealed.accounts);
        for (number, (stream, account)) in (0..).zip(streams) {
            self.shared.count(key(sealed.manifest.uuid, number), |counts| {
                counts.scan = sealed.manifest.scan.to_string();
                counts.stream = stream.name.to_string();
                counts.recorded = Some(account.terms.written);
            });
        }
    }

    /// Sends the rest, for a few seconds at most. Returns the final counts.
    pub fn finish(self) -> Vec<ForwardCounts> {
        let until = Instant::now() + REST;
        *locked(&self.shared.until) = Some(until);
        self.shared.ending.store(true, Relaxed);
        // A thread that hangs in a name lookup is left alone. All others end soon after `until`, and count until then.
        let patient = |thread: &JoinHandle<()>| {
            while !thread.is_finished() && Instant::now() < until + REST {
                std::thread::sleep(Duration::from_millis(2));
            }
        };
        let senders = self.reader.join().unwrap_or_default();
        senders.iter().for_each(patient);
        let mut counts: Vec<_> = locked(&self.shared.counts).values().cloned().collect();
        for it in &mut counts {
            if let Some(recorded) = it.recorded {
                it.skipped = recorded.saturating_sub(it.sent + it.refused);
            }
        }
        counts
    }
}

/// A block for a sender.
struct Job {
    block: TapBlock,
    came: Instant,
}

/// The queue to the sender of a stream.
struct Queue {
    jobs: SyncSender<Job>,
    waiting: Arc<AtomicUsize>,
}

/// Reads the tap until the recording has ended. Returns the senders.
fn read(mut tap: Tap, targets: &[ForwardTarget], shared: &Arc<Shared>) -> Vec<JoinHandle<()>> {
    let (mut queues, mut senders) = (BTreeMap::<u16, Queue>::new(), Vec::new());
    loop {
        let ending = shared.ending.load(Relaxed);
        let Some(block) = tap.next(if ending { Duration::ZERO } else { LOOK }) else {
            if ending {
                return senders;
            }
            continue;
        };
        let number = block.stream_ref.number;
        let target = &targets[usize::from(number) % targets.len()];
        let frames = frames_of(&block);
        shared.count(key(block.stream_ref.scan, number), |counts| {
            counts.to = target.to_string();
            // Skipped blocks were full, except the last one of a scan.
            counts.skipped += block.skipped * frames;
            if let Some(stream) = &block.stream {
                (counts.scan, counts.stream) = (stream.scan.to_string(), stream.name.to_string());
            }
        });
        if !queues.contains_key(&number) && queues.len() < MOST_STREAMS {
            let (jobs, come) = sync_channel(QUEUE_BLOCKS);
            let waiting = Arc::new(AtomicUsize::new(0));
            let mut line = Line::new(target.clone(), shared.clone(), waiting.clone());
            let send = move || line.run(&come);
            if let Ok(sender) = std::thread::Builder::new().name("forward".into()).spawn(send) {
                senders.push(sender);
                queues.insert(number, Queue { jobs, waiting });
            }
        }
        let id = key(block.stream_ref.scan, number);
        let Some(queue) = queues.get(&number) else {
            shared.count(id, |counts| counts.skipped += frames);
            continue;
        };
        queue.waiting.fetch_add(1, Relaxed);
        if queue.jobs.try_send(Job { block, came: Instant::now() }).is_err() {
            queue.waiting.fetch_sub(1, Relaxed);
            shared.count(id, |counts| counts.skipped += frames);
        }
    }
}

fn frames_of(block: &TapBlock) -> u64 {
    let frame_bytes = u64::from(block.stream_ref.geometry.frame_bytes);
    (block.bytes.len() as u64).checked_div(frame_bytes).unwrap_or(0)
}

/// The socket of a line.
enum Socket {
    Udp(Box<Sender>),
    Tcp(TcpStream),
}

/// The result of sending frames.
#[derive(Default)]
struct Passed {
    sent: u64,
    refused: u64,
    unreachable: u64,
    /// True if the destination must be reached anew.
    is_lost: bool,
}

/// The way of a stream to its destination.
struct Line {
    target: ForwardTarget,
    shared: Arc<Shared>,
    /// Blocks in the queue.
    waiting: Arc<AtomicUsize>,
    socket: Option<Socket>,
    tried: Option<Instant>,
    /// Packet number of the next frame.
    number: u64,
    /// The arrival of the first block, and frames since then.
    since: Option<(Instant, u64)>,
}

impl Line {
    fn new(target: ForwardTarget, shared: Arc<Shared>, waiting: Arc<AtomicUsize>) -> Self {
        Self { target, shared, waiting, socket: None, tried: None, number: 0, since: None }
    }

    /// Sends blocks until no more can come.
    fn run(&mut self, come: &Receiver<Job>) {
        while let Ok(job) = come.recv() {
            self.waiting.fetch_sub(1, Relaxed);
            self.send(&job);
        }
    }

    fn send(&mut self, Job { block, came }: &Job) {
        let frame_bytes = block.stream_ref.geometry.frame_bytes as usize;
        let id = key(block.stream_ref.scan, block.stream_ref.number);
        let codec = block.stream.as_ref().is_some_and(|stream| stream.format.is_frames());
        if frame_bytes == 0 {
            return;
        }
        let frames: Vec<&[u8]> = block.bytes.chunks_exact(frame_bytes).collect();
        let period = self.period(block, *came, frames.len());
        let frames: Vec<&[u8]> =
            frames.into_iter().filter(|frame| !(codec && is_fill(frame))).collect();
        let mut due = Instant::now();
        let mut rest = frames.as_slice();
        while !rest.is_empty() {
            if self.shared.is_over() || !self.connect() {
                self.shared.count(id, |counts| counts.skipped += rest.len() as u64);
                return;
            }
            let hurry = 1 + self.waiting.load(Relaxed) as u32;
            let period = period / (hurry * hurry);
            let group = GROUP.as_nanos() / period.as_nanos().max(1);
            let group = (group as usize).clamp(1, MOST_TOGETHER).min(rest.len());
            let (now, after) = rest.split_at(group);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let passed = self.pass(now);
            let sent = passed.sent + passed.refused;
            self.shared.count(id, |counts| {
                counts.sent += passed.sent;
                counts.bytes += passed.sent * frame_bytes as u64;
                counts.refused += passed.refused;
                counts.unreachable += passed.unreachable;
                counts.skipped += group as u64 - sent;
            });
            if passed.is_lost {
                self.socket = None;
            }
            due = (due + period * group as u32).max(Instant::now() - FIRST_SPAN);
            rest = after;
        }
    }

    /// The time between two frames of the stream.
    fn period(&mut self, block: &TapBlock, came: Instant, frames: usize) -> Duration {
        let stream = block.stream.as_ref().map(|stream| &stream.format);
        if let Some(Format::Frames { frames_per_second: Some(rate), threads, .. }) = stream
            && !threads.is_empty()
        {
            let rate = rate.saturating_mul(threads.len() as u64).max(1);
            return Duration::from_nanos(950_000_000 / rate);
        }
        let frames = frames.max(1) as u64;
        match &mut self.since {
            None => {
                self.since = Some((came, 0));
                FIRST_SPAN / frames as u32
            }
            Some((since, count)) => {
                *count += frames + block.skipped * frames;
                came.duration_since(*since).mul_f64(0.95 / *count as f64)
            }
        }
    }

    /// True if there is a socket. Tries to make one once a second.
    fn connect(&mut self) -> bool {
        if self.socket.is_none() && self.tried.is_none_or(|tried| tried.elapsed() >= RETRY) {
            self.tried = Some(Instant::now());
            self.socket = match &self.target {
                ForwardTarget::Udp { to, .. } => Destination::of(to)
                    .and_then(|to| Sender::connect(&to))
                    .map(|sender| Socket::Udp(Box::new(sender)))
                    .ok(),
                ForwardTarget::Tcp { host, port } => reach(host, *port).map(Socket::Tcp).ok(),
            };
        }
        self.socket.is_some()
    }

    /// Sends some frames.
    fn pass(&mut self, frames: &[&[u8]]) -> Passed {
        match &mut self.socket {
            Some(Socket::Udp(sender)) => {
                let numbered = matches!(self.target, ForwardTarget::Udp { numbered: true, .. });
                let numbers: Vec<[u8; 8]> =
                    (self.number..).take(frames.len()).map(u64::to_le_bytes).collect();
                self.number += frames.len() as u64;
                let head = if numbered { size_of::<u64>() } else { 0 };
                let packets: Vec<Packet<'_>> = numbers
                    .iter()
                    .zip(frames)
                    .map(|(number, frame)| [IoSlice::new(&number[..head]), IoSlice::new(frame)])
                    .collect();
                let before = sender.tally();
                let failed = sender.send(&packets).is_err();
                let after = sender.tally();
                let sent = after.sent - before.sent;
                Passed {
                    sent,
                    // An error of the socket refuses what it did not take.
                    refused: frames.len() as u64 - sent,
                    unreachable: after.unreachable - before.unreachable,
                    is_lost: failed,
                }
            }
            Some(Socket::Tcp(stream)) => {
                let mut passed = Passed::default();
                for frame in frames {
                    if write(stream, frame, &self.shared).is_err() {
                        passed.is_lost = true;
                        break;
                    }
                    passed.sent += 1;
                }
                passed
            }
            None => Passed::default(),
        }
    }
}

/// Connects within a second.
fn reach(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = io::ErrorKind::NotFound.into();
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, RETRY) {
            Ok(stream) => {
                stream.set_write_timeout(Some(LOOK))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Writes a whole frame, however slowly it is taken, until everything is given up.
fn write(stream: &mut TcpStream, mut frame: &[u8], shared: &Shared) -> io::Result<()> {
    while !frame.is_empty() {
        match stream.write(frame) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(taken) => frame = &frame[taken..],
            Err(error) => match error.kind() {
                io::ErrorKind::Interrupted => {}
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut if !shared.is_over() => {}
                _ => return Err(error),
            },
        }
    }
    Ok(())
}

/// True if a frame that carries its time stands in place of a lost one: its payload is the fill pattern.
fn is_fill(frame: &[u8]) -> bool {
    // The headers of all formats have at most 32 bytes.
    let payload = frame.get(32..).unwrap_or_default();
    !payload.is_empty() && payload.chunks(4).all(|word| *word == FILL.to_le_bytes()[..word.len()])
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_is_read_with_its_ports_and_its_framing() {
        let texts = |text: &str| -> Vec<String> {
            ForwardTarget::parse(text).unwrap().iter().map(ToString::to_string).collect()
        };
        assert_eq!(texts("tcp://h:5000-5001"), ["tcp://h:5000", "tcp://h:5001"]);
        assert_eq!(texts("udp://h:5000?ttl=3"), ["udp://h:5000?ttl=3"]);
        let numbered = ForwardTarget::parse("udp://h:1?format=vtp").unwrap();
        assert!(matches!(numbered[..], [ForwardTarget::Udp { numbered: true, .. }]));
        for wrong in ["file:x", "tcp://h:1?ttl=3", "udp://h:1?format=raw", "udp://h", "tcp://:1"] {
            assert!(ForwardTarget::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_frame_of_the_fill_pattern_is_no_data() {
        let mut frame = [0; 64];
        frame[32..].chunks_mut(4).for_each(|word| word.copy_from_slice(&FILL.to_le_bytes()));
        assert!(is_fill(&frame));
        frame[63] ^= 1;
        assert!(!is_fill(&frame) && !is_fill(&frame[..32]));
    }
}
