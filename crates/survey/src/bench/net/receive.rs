//! The receiving end: the ports and the capture thread of a recording; blocks are discarded after the ring.

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use fullbore_capture::{
    Capture, CaptureCommand, CaptureEvent, Port, PortError, ScanContext, Settings, SinkChain,
    SinkQueues, StagingBuffer, StreamMetrics,
};
use fullbore_core::account::{Account, Layer, UnavailableCounter};
use fullbore_core::endpoint::UdpSource;
use fullbore_core::layout::CHUNK_BYTES;
use fullbore_core::name::ScanName;
use fullbore_engine::drop_counters;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::bench::memory::process_cpu_seconds;
use crate::bench::ring::{Way, spawn_taker};

/// The requested receive buffer, as in a recording.
const RECEIVE_BUFFER: usize = 64 << 20;

/// An error of setting up a receiver.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An error of the endpoint, which this module has composed.
    #[error(transparent)]
    Endpoint(#[from] fullbore_core::endpoint::Error),
    /// An error of a socket or its memory.
    #[error(transparent)]
    Port(#[from] PortError),
    /// An error of a thread or a descriptor.
    #[error("starting the capture: {0}")]
    Thread(#[source] io::Error),
    /// A thread did not end normally.
    #[error("the capture failed: {why}")]
    Broken {
        /// Its last message.
        why: String,
    },
}

/// The settings of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// The number of streams, each on its own port.
    pub streams: u16,
    /// Bytes of each datagram.
    pub frame_bytes: u32,
    /// Frames per second of each stream.
    pub frames_per_second: u64,
    /// Block memory for all of them.
    pub pool_bytes: u64,
}

/// The result of receiving.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Caught {
    /// Frames in their places.
    pub frames: u64,
    /// Frames that arrived while no block was free.
    pub overrun: u64,
    /// Frames with a wrong length or header.
    pub damaged: u64,
    /// Frames that arrived after their place was given up.
    pub late: u64,
    /// Datagrams that are no frames.
    pub foreign: u64,
    /// The high-water mark of blocks of any stream, and its number of blocks.
    pub high_water: (u64, u64),
    /// CPU seconds of the receiving process during the trial.
    pub cpu_seconds: f64,
    /// Kernel counters that moved: the places of loss.
    pub moved: Vec<Moved>,
    /// Kernel counters that could not be read.
    #[serde(default)]
    pub unavailable: Vec<UnavailableCounter>,
}

/// A counter that moved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Moved {
    /// The layer.
    pub layer: Layer,
    /// The kernel's name of the counter, and the object that it counts for.
    pub counter: String,
    /// The increase. With merged messages an increment may stand for several packets.
    pub by: u64,
}

/// Listening ports.
pub struct Receiving {
    capture: Capture,
    taker: JoinHandle<()>,
    notices: mpsc::Receiver<CaptureEvent>,
    ports: Vec<u16>,
    address: IpAddr,
    buffer_bytes: u64,
    before: drop_counters::CounterSnapshot,
    cpu_before: f64,
}

impl Receiving {
    /// Opens the ports on `address` from `first_port` on, at adjacent free numbers.
    pub fn arm(wanted: &Wanted, address: IpAddr, first_port: u16) -> Result<Self, Error> {
        let cpu_before = process_cpu_seconds();
        let first = free_ports(address, first_port, wanted.streams).map_err(Error::Thread)?;
        let numbers: Vec<u16> = (first..first + wanted.streams).collect();
        let mut ports = Vec::new();
        let next = Arc::new(AtomicU16::new(wanted.streams));
        for (number, port) in numbers.iter().enumerate() {
            let share = (wanted.pool_bytes / u64::from(wanted.streams.max(1))) as usize;
            let source = source(address, *port, wanted)?;
            let next = next.clone();
            ports.push(Port::open(
                source,
                number as u16,
                next,
                share,
                CHUNK_BYTES,
                RECEIVE_BUFFER,
            )?);
        }
        let mut scratch = StagingBuffer::new();
        for port in &mut ports {
            port.drain(&mut scratch).map_err(Error::Thread)?;
        }
        let buffer_bytes =
            ports.iter().map(|port| port.input().buffer_bytes() as u64).min().unwrap_or(0);
        let room = ports.iter().map(Port::most_blocks).sum::<usize>();
        let way = Way::new(room).map_err(Error::Thread)?;
        let taker = spawn_taker(way.taker, way.metrics, way.wake, |_| ()).map_err(Error::Thread)?;
        let (tell, notices) = mpsc::channel();
        let chain = SinkChain::new(vec![SinkQueues::plain(vec![way.feeder])]);
        let capture = Capture::start(0, ports, chain, tell, Settings::default());
        let capture = capture.map_err(Error::Thread)?;
        let scan: ScanName = "bench_net".parse().expect("a name that can be");
        let single = wanted.streams == 1;
        let context = ScanContext::new(Uuid::now_v7(), scan, single);
        capture.order(CaptureCommand::Begin(Arc::new(context)));
        let before = drop_counters::CounterSnapshot::take(Path::new("/"));
        Ok(Self {
            capture,
            taker,
            notices,
            ports: numbers,
            address,
            buffer_bytes,
            before,
            cpu_before,
        })
    }

    /// The ports, one for each stream.
    pub fn ports(&self) -> &[u16] {
        &self.ports
    }

    /// The smallest receive buffer that the kernel gave.
    pub fn buffer_bytes(&self) -> u64 {
        self.buffer_bytes
    }

    /// Reads the rest from the sockets, ends, and returns the result.
    pub fn finish(self) -> Result<Caught, Error> {
        self.capture.order(CaptureCommand::Stop);
        let mut caught = Caught::default();
        let mut streams: Vec<Arc<StreamMetrics>> = Vec::new();
        let mut broken = None;
        loop {
            match self.notices.recv() {
                Ok(CaptureEvent::Ended { account, .. }) => caught.add(&account),
                Ok(CaptureEvent::Silent { account, .. }) => caught.foreign += account.foreign,
                Ok(CaptureEvent::Opened { metrics, .. }) => streams.push(metrics),
                Ok(CaptureEvent::Broken { why }) => broken = Some(why),
                Ok(CaptureEvent::Done) | Err(mpsc::RecvError) => break,
                Ok(
                    CaptureEvent::Closed { .. }
                    | CaptureEvent::Exhausted { .. }
                    | CaptureEvent::Described { .. }
                    | CaptureEvent::Context { .. }
                    | CaptureEvent::Unrecognised { .. }
                    | CaptureEvent::Source(_)
                    | CaptureEvent::Warning { .. },
                ) => {}
            }
        }
        self.capture.join();
        if self.taker.join().is_err() {
            broken = Some("the thread that empties blocks failed".into());
        }
        if let Some(why) = broken {
            return Err(Error::Broken { why });
        }
        let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Relaxed);
        let marks =
            streams.iter().map(|metrics| (load(&metrics.high_water), load(&metrics.pool_blocks)));
        caught.high_water = marks.max().unwrap_or((0, 0));
        let after = drop_counters::CounterSnapshot::take(Path::new("/"));
        let (shared, unavailable) = self.before.until(&after, self.address, None);
        caught.unavailable.extend(unavailable);
        for counter in shared.into_iter().filter(|counter| counter.moved() > 0) {
            caught.moved(
                counter.layer,
                format!("{} {}", counter.scope, counter.counter),
                counter.moved(),
            );
        }
        caught.cpu_seconds = process_cpu_seconds() - self.cpu_before;
        Ok(caught)
    }
}

impl Caught {
    /// Adds the account of a stream.
    pub fn add(&mut self, account: &Account) {
        self.frames += account.terms.written;
        self.overrun += account.terms.overrun;
        self.damaged += account.terms.damaged;
        self.late += account.terms.late;
        self.foreign += account.foreign;
        self.unavailable.extend(account.unavailable_counters.iter().cloned());
        for counter in account.drop_counters.iter().filter(|counter| counter.moved() > 0) {
            self.moved(
                counter.layer,
                format!("socket {} {}", counter.scope, counter.counter),
                counter.moved(),
            );
        }
    }

    fn moved(&mut self, layer: Layer, counter: String, by: u64) {
        self.moved.push(Moved { layer, counter, by });
    }

    /// The places where `lost` packets were lost, in words.
    pub fn where_lost(&self, lost: u64) -> String {
        let mut told: Vec<String> = Vec::new();
        for (number, what) in [
            (self.overrun, "found no block free (the ring was full)"),
            (self.damaged, "came damaged"),
            (self.late, "came too late for their place"),
            (self.foreign, "were no frames of the stream"),
        ] {
            if number > 0 {
                told.push(format!("{number} {what}"));
            }
        }
        for moved in &self.moved {
            let layer = match moved.layer {
                Layer::Device => "the network interface",
                Layer::Backlog => "the kernel's backlog of a CPU",
                Layer::Udp => "UDP checksums",
                Layer::Socket => "the receive buffer",
                Layer::PacketRing => "the packet ring",
                Layer::Xdp => "the XDP sockets",
            };
            told.push(format!("{layer} dropped {} ({})", moved.by, moved.counter));
        }
        told.extend(self.unavailable.iter().map(UnavailableCounter::to_string));
        match told.is_empty() {
            true if lost > 0 => "no counter of the receiving host moved: lost before it".into(),
            true => String::new(),
            false => told.join("; "),
        }
    }
}

/// The source of one port, as a recording would define it.
pub fn source(address: IpAddr, port: u16, wanted: &Wanted) -> Result<UdpSource, Error> {
    let host = match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    };
    let Wanted { frame_bytes, frames_per_second, .. } = wanted;
    let text =
        format!("udp://{host}:{port}?format=vdif&frame={frame_bytes}&fps={frames_per_second}");
    let mut sources = UdpSource::parse(&text)?;
    Ok(sources.remove(0))
}

/// The number of port searches.
static LOOKED: AtomicU16 = AtomicU16::new(0);

/// The number of ports at which a search over loopback may begin.
const LOOPBACK_PORTS: u32 = 4096;

/// The first of `count` adjacent ports without a listener. Over loopback other processes may search at the same time,
/// so each begins elsewhere.
pub fn free_ports(address: IpAddr, from: u16, count: u16) -> io::Result<u16> {
    let looked = u32::from(LOOKED.fetch_add(1, Relaxed)).wrapping_mul(211);
    let elsewhere = (std::process::id().wrapping_mul(61).wrapping_add(looked)) % LOOPBACK_PORTS;
    let from = from.saturating_add(if address.is_loopback() { elsewhere as u16 } else { 0 });
    let last = u16::MAX - count;
    let free = |first: &u16| {
        (*first..*first + count).all(|port| std::net::UdpSocket::bind((address, port)).is_ok())
    };
    let step = usize::from(count.max(1));
    let found = (from.min(last)..=last).step_by(step).take(4096).find(free);
    found.ok_or_else(|| io::Error::new(io::ErrorKind::AddrInUse, "no neighbouring ports are free"))
}
