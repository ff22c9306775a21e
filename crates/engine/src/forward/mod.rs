//! Sends what is recorded on to another host, live: best effort, and counted.
//!
//! ```text
//! ring ──► tap ──► reader ──► queue of each stream ──► its sender (paced) ──► udp, tcp or tls
//!           │ skipped           │ full: skipped           │ refused by the network
//! ```
//!
//! The recording never waits for it: the tap copies written blocks, and a queue that is full loses the new block. Each
//! stream has a thread and a socket of its own. Frames of a block are spread over the time in which the stream fills a
//! block, and faster while blocks wait.

mod socket;
mod target;
mod tls;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fullbore_core::hint::Hint;
use fullbore_core::manifest::Format;
use fullbore_formats::FILL;
use fullbore_linux::ring::{Tap, TapBlock, Taps};
use serde::Serialize;
use uuid::Uuid;

use self::socket::{Connector, Socket};
pub use self::target::{ForwardTarget, TlsTrust};
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
    /// Connections that were made again after one was lost.
    pub reconnects: u64,
    /// Reports of the destination that nothing listens there. The frames count as sent.
    pub unreachable: u64,
    /// The last reason for which the destination was not reached, if it is not.
    pub problem: Option<String>,
}

/// A destination that cannot be sent to, whatever the network does.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// The file has no usable certificates.
    #[error("{}: {why}", path.display())]
    Authority {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// TLS cannot be used on this host.
    #[error("TLS cannot be used")]
    Tls {
        /// The reason.
        source: rustls::Error,
    },
    /// A thread could not be started.
    #[error("a thread that sends frames on could not be started")]
    Thread(#[source] io::Error),
}

impl Hint for ForwardError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Authority { .. } => Some(Cow::Borrowed(
                "`ca=` names a PEM file with the certificate of the authority; `pin=` takes one certificate without an authority",
            )),
            Self::Tls { .. } | Self::Thread(_) => None,
        }
    }
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
    /// Checks what can be checked of destinations without reaching them.
    pub fn check(targets: &[ForwardTarget]) -> Result<(), ForwardError> {
        targets.iter().cloned().try_for_each(|target| Connector::new(target).map(drop))
    }

    /// Starts to send what these taps show. Stream *n* goes to destination *n*, and around again if there are fewer.
    pub fn start(taps: &Taps, targets: &[ForwardTarget]) -> Result<Self, ForwardError> {
        let connectors: Vec<_> =
            targets.iter().cloned().map(Connector::new).collect::<Result<_, _>>()?;
        let shared = Arc::new(Shared::default());
        let (tap, of_reader) = (taps.open_for_every(), shared.clone());
        let read = move || read(tap, &connectors, &of_reader);
        let reader = std::thread::Builder::new().name("forward".into()).spawn(read);
        Ok(Self { shared, reader: reader.map_err(ForwardError::Thread)? })
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
fn read(mut tap: Tap, connectors: &[Connector], shared: &Arc<Shared>) -> Vec<JoinHandle<()>> {
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
        let connector = &connectors[usize::from(number) % connectors.len()];
        let frames = frames_of(&block);
        shared.count(key(block.stream_ref.scan, number), |counts| {
            counts.to = connector.target.to_string();
            // Skipped blocks were full, except the last one of a scan.
            counts.skipped += block.skipped * frames;
            if let Some(stream) = &block.stream {
                (counts.scan, counts.stream) = (stream.scan.to_string(), stream.name.to_string());
            }
        });
        if !queues.contains_key(&number) && queues.len() < MOST_STREAMS {
            let (jobs, come) = sync_channel(QUEUE_BLOCKS);
            let waiting = Arc::new(AtomicUsize::new(0));
            let mut line = Line::new(connector.clone(), shared.clone(), waiting.clone());
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

/// The way of a stream to its destination.
struct Line {
    connector: Connector,
    shared: Arc<Shared>,
    /// Blocks in the queue.
    waiting: Arc<AtomicUsize>,
    socket: Option<Socket>,
    tried: Option<Instant>,
    /// True once there has been a socket.
    connected: bool,
    /// Packet number of the next frame.
    number: u64,
    /// The arrival of the first block, and frames since then.
    since: Option<(Instant, u64)>,
}

impl Line {
    fn new(connector: Connector, shared: Arc<Shared>, waiting: Arc<AtomicUsize>) -> Self {
        Self {
            connector,
            shared,
            waiting,
            socket: None,
            tried: None,
            connected: false,
            number: 0,
            since: None,
        }
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
            self.connect(id);
            let Some(socket) = &mut self.socket else {
                self.shared.count(id, |counts| counts.skipped += rest.len() as u64);
                return;
            };
            let hurry = 1 + self.waiting.load(Relaxed) as u32;
            let period = period / (hurry * hurry);
            let group = GROUP.as_nanos() / period.as_nanos().max(1);
            let group = (group as usize).clamp(1, MOST_TOGETHER).min(rest.len());
            let (now, after) = rest.split_at(group);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let passed = socket.pass(now, self.number, &self.shared);
            self.number += group as u64;
            let sent = passed.sent + passed.refused;
            let problem = passed.lost.as_ref().map(explained_by);
            if passed.lost.is_some() {
                self.socket = None;
            }
            self.shared.count(id, |counts| {
                counts.sent += passed.sent;
                counts.bytes += passed.sent * frame_bytes as u64;
                counts.refused += passed.refused;
                counts.unreachable += passed.unreachable;
                counts.skipped += group as u64 - sent;
                counts.problem = problem;
            });
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

    /// Tries to make a socket if there is none, once a second. Drops it when everything is given up.
    fn connect(&mut self, id: Key) {
        if self.shared.is_over() {
            self.socket = None;
        } else if self.socket.is_none() && self.tried.is_none_or(|it| it.elapsed() >= RETRY) {
            self.tried = Some(Instant::now());
            match self.connector.connect() {
                Ok(socket) => {
                    self.socket = Some(socket);
                    let again = std::mem::replace(&mut self.connected, true);
                    self.shared.count(id, |counts| counts.reconnects += u64::from(again));
                }
                Err(error) => {
                    self.shared.count(id, |counts| counts.problem = Some(explained_by(&error)));
                }
            }
        }
    }
}

/// The text of a network's error, for people.
fn explained_by(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "it takes nothing".to_owned(),
        _ => error.to_string(),
    }
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
    fn a_frame_of_the_fill_pattern_is_no_data() {
        let mut frame = [0; 64];
        frame[32..].chunks_mut(4).for_each(|word| word.copy_from_slice(&FILL.to_le_bytes()));
        assert!(is_fill(&frame));
        frame[63] ^= 1;
        assert!(!is_fill(&frame) && !is_fill(&frame[..32]));
    }
}
