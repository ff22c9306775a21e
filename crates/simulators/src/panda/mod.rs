//! A simulated PandA: both ports of server 4.1, any rate, and deliberate faults.
//!
//! ```text
//! control port ──► Settings ──► ARM ──► Acquisition (a writer that is only a number)
//!                                            │
//! data port ──► Reader: join, frames, look whether lapped, END ◄┘
//! ```
//!
//! Every 32-bit word of raw sample `i` is `i`, as in the recordings that the tests use, so that a recording can be
//! checked to the last word. The ring of 128 blocks has all its effects (late joining, overruns that spoil the frame
//! being sent), but no memory behind it.
//!
//! Instead of simulated samples, a recording can be served: with its header, at any rate, once for each ARM.

mod acquisition;
mod command;
mod fault;
mod model;
mod replay;
mod samples;
mod settings;
mod stream;

use std::borrow::Cow;
use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use fullbore_core::hint::Hint;
use fullbore_linux::clock::Clock;
use fullbore_time::Tai;
use serde::Serialize;

pub use fault::{Fault, FaultError, What};
pub use replay::{Replay, ReplayError};

use acquisition::Acquisition;
use settings::Settings;

/// The fields of the recordings: eleven columns, 60 bytes a sample.
pub const FIELDS: &str = "PCAP.BITS0 Value, COUNTER1.OUT Min Max Mean, COUNTER2.OUT Min Max Mean, \
     COUNTER3.OUT Value, PCAP.SAMPLES Value, PCAP.TS_START Value, PCAP.TS_CAPTURE Value";

/// Time between two checks whether the other side of a waiting connection has closed.
const LOOK: Duration = Duration::from_millis(100);

/// The most connections at once, both ports together.
const MOST_CONNECTIONS: usize = 256;

/// The settings of a simulated PandA.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The address of the control port; port 0: any free port.
    pub control: SocketAddr,
    /// The address of the data port; port 0: any free port.
    pub data: SocketAddr,
    /// The fields captured at first: `FIELD options, FIELD options`. Clients may change them.
    pub fields: String,
    /// Samples per second; `None`: as fast as readers take them, and none without a reader.
    pub samples_per_second: Option<f64>,
    /// Samples per acquisition; `None`: until it is disarmed.
    pub samples: Option<u64>,
    /// Bytes of the ring, which has 128 blocks.
    pub ring_bytes: u64,
    /// The faults; each occurs once in every acquisition.
    pub faults: Vec<Fault>,
    /// Sends everything in pieces of random sizes.
    pub split: bool,
    /// The seed of the random pieces and random bytes.
    pub seed: u64,
    /// A stored stream that is sent to every client of the data port, instead of simulated samples.
    pub dump: Option<Vec<u8>>,
    /// A recording whose samples are sent, instead of simulated ones.
    pub replay: Option<Arc<Replay>>,
}

/// An event of the server.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum ServerEvent {
    /// The ports are open.
    Listening {
        /// The control port.
        control: SocketAddr,
        /// The data port.
        data: SocketAddr,
    },
    /// An acquisition was armed.
    Begun {
        /// Counted from 1.
        number: u64,
    },
    /// An acquisition is over.
    Ended {
        /// Counted from 1.
        number: u64,
        /// Samples taken.
        captured: u64,
        /// The reason.
        reason: String,
    },
    /// A data connection has reached the end of an acquisition.
    Reader {
        /// The number of the acquisition.
        number: u64,
        /// Index of its first sample.
        missed: u64,
        /// Samples sent on it.
        samples: u64,
        /// The reason that its END gave, `died` or `gone`.
        ending: String,
    },
}

/// A PandA that cannot be simulated.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A port that cannot be opened.
    #[error("listening on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The reason.
        source: io::Error,
    },
    /// No field to capture, or an unknown one.
    #[error("`{field}` cannot be captured: {why}")]
    Field {
        /// The requested field.
        field: String,
        /// The reason.
        why: String,
    },
    /// A fault at a sample that no acquisition has.
    #[error("--fault {fault}: an acquisition has {samples} samples, 0 to {}", samples.saturating_sub(1))]
    Fault {
        /// The requested fault.
        fault: Fault,
        /// Samples per acquisition.
        samples: u64,
    },
    /// An invalid rate.
    #[error("{rate} samples a second is not a rate")]
    Rate {
        /// The requested rate.
        rate: f64,
    },
}

impl Hint for Error {
    fn hint(&self) -> Option<Cow<'static, str>> {
        matches!(self, Error::Listen { .. }).then_some(Cow::Borrowed(
            "another --control or --data can be given; port 0 takes any that is free",
        ))
    }
}

/// A simulated PandA that runs until it is dropped.
pub struct Server {
    shared: Arc<Shared>,
    control: SocketAddr,
    data: SocketAddr,
    listeners: Vec<JoinHandle<()>>,
}

/// State that all connections share.
pub(crate) struct Shared {
    plan: Plan,
    state: Mutex<State>,
    changed: Condvar,
    closing: AtomicBool,
    clock: Clock,
    listen: Box<dyn Fn(ServerEvent) + Send + Sync>,
}

struct State {
    settings: Settings,
    latest: Option<Arc<Acquisition>>,
    /// The number of the latest acquisition whose end was reported.
    told: u64,
    readers: u32,
    active: u32,
    /// A handle of every connection, to close it when the server shuts down.
    connections: Vec<Connected>,
    connected: u64,
}

/// A connection to one of the ports.
struct Connected {
    number: u64,
    /// The time of the connection.
    since: Tai,
    /// The port: `config` or `data`.
    kind: &'static str,
    socket: TcpStream,
}

impl Server {
    /// Accepts connections from now on. Every thread of the server reports its events to `listen`.
    pub fn start(
        plan: Plan,
        listen: impl Fn(ServerEvent) + Send + Sync + 'static,
    ) -> Result<Server, Error> {
        if let Some(rate) = plan.samples_per_second.filter(|rate| !(*rate > 0.0 && *rate < 1e12)) {
            return Err(Error::Rate { rate });
        }
        check_faults(&plan)?;
        let settings = captured(&plan.fields)?;
        let bind = |address: SocketAddr| {
            let failed = |source| Error::Listen { address, source };
            let listener = TcpListener::bind(address).map_err(failed)?;
            let bound = listener.local_addr().map_err(failed)?;
            Ok((listener, bound))
        };
        let (control_listener, control) = bind(plan.control)?;
        let (data_listener, data) = bind(plan.data)?;
        let state = State {
            settings,
            latest: None,
            told: 0,
            readers: 0,
            active: 0,
            connections: Vec::new(),
            connected: 0,
        };
        let shared = Arc::new(Shared {
            plan,
            state: Mutex::new(state),
            changed: Condvar::new(),
            closing: AtomicBool::new(false),
            clock: Clock::new(),
            listen: Box::new(listen),
        });
        shared.tell(ServerEvent::Listening { control, data });
        let listeners = vec![
            accept(&shared, control_listener, "config", command::serve),
            accept(&shared, data_listener, "data", stream::serve),
        ];
        Ok(Server { shared, control, data, listeners })
    }

    /// The address of the control port.
    pub fn control(&self) -> SocketAddr {
        self.control
    }

    /// The address of the data port.
    pub fn data(&self) -> SocketAddr {
        self.data
    }

    /// Reports acquisitions that have ended since the last call. Call it periodically.
    pub fn look(&self) {
        self.shared.tell_of_end();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::SeqCst);
        {
            let state = self.shared.lock();
            state.latest.iter().for_each(|acquisition| acquisition.close());
            for connection in &state.connections {
                let _ = connection.socket.shutdown(Shutdown::Both);
            }
            self.shared.changed.notify_all();
        }
        // A connection wakes each listener, which then sees the stop flag and ends.
        for address in [self.control, self.data] {
            let _ = TcpStream::connect_timeout(&reachable(address), LOOK);
        }
        for listener in self.listeners.drain(..) {
            let _ = listener.join();
        }
    }
}

/// Refuses faults that would never happen.
fn check_faults(plan: &Plan) -> Result<(), Error> {
    let recorded = plan.replay.as_ref().map(|replay| replay.samples());
    let Some(samples) = plan.samples.into_iter().chain(recorded).min() else { return Ok(()) };
    let comes = |fault: &&Fault| match fault.what {
        What::Drop | What::Count => true,
        What::End(_) => fault.at <= samples,
        _ => fault.at < samples,
    };
    match plan.faults.iter().find(|fault| !comes(fault)) {
        Some(fault) => Err(Error::Fault { fault: fault.clone(), samples }),
        None => Ok(()),
    }
}

/// An address of this host at which a listener on `address` can be reached.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

/// Settings that capture `FIELD options, FIELD options`, scaled as in the recordings.
fn captured(fields: &str) -> Result<Settings, Error> {
    let mut settings = Settings::new();
    for (name, value) in [("SCALE", "0.5"), ("OFFSET", "3"), ("UNITS", "mm")] {
        let _ = settings.set(&format!("COUNTER2.OUT.{name}"), value);
    }
    for text in fields.split(',').map(str::trim).filter(|text| !text.is_empty()) {
        let (name, options) = text.split_once(' ').unwrap_or((text, "Value"));
        settings
            .set(&format!("{name}.CAPTURE"), options)
            .map_err(|why| Error::Field { field: text.to_owned(), why: why.to_owned() })?;
    }
    Ok(settings)
}

fn accept(
    shared: &Arc<Shared>,
    listener: TcpListener,
    kind: &'static str,
    serve: fn(&Arc<Shared>, TcpStream),
) -> JoinHandle<()> {
    let shared = shared.clone();
    let of = move || {
        let mut threads: Vec<JoinHandle<()>> = Vec::new();
        for socket in listener.incoming() {
            if shared.closing.load(Ordering::SeqCst) {
                break;
            }
            threads.retain(|thread| !thread.is_finished());
            let Ok(socket) = socket else { continue };
            let Some(number) = shared.enter(kind, &socket) else { continue };
            let shared = shared.clone();
            threads.push(std::thread::spawn(move || {
                serve(&shared, socket);
                shared.leave(number);
            }));
        }
        for thread in threads {
            let _ = thread.join();
        }
    };
    std::thread::spawn(of)
}

/// Decrements a counter when it is dropped.
struct Counted<'a> {
    shared: &'a Shared,
    what: fn(&mut State) -> &mut u32,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        *(self.what)(&mut self.shared.lock()) -= 1;
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, notice: ServerEvent) {
        (self.listen)(notice);
    }

    fn enter(&self, kind: &'static str, socket: &TcpStream) -> Option<u64> {
        let mut state = self.lock();
        if state.connections.len() >= MOST_CONNECTIONS {
            return None;
        }
        state.connected += 1;
        let number = state.connected;
        let (since, socket) = (self.clock.now(), socket.try_clone().ok()?);
        state.connections.push(Connected { number, since, kind, socket });
        Some(number)
    }

    fn leave(&self, number: u64) {
        self.lock().connections.retain(|connection| connection.number != number);
    }

    /// Counts a data connection until the result is dropped.
    fn reader(&self) -> Counted<'_> {
        let what: fn(&mut State) -> &mut u32 = |state| &mut state.readers;
        *what(&mut self.lock()) += 1;
        Counted { shared: self, what }
    }

    /// Counts a data connection that receives data until the result is dropped.
    fn active(&self) -> Counted<'_> {
        let what: fn(&mut State) -> &mut u32 = |state| &mut state.active;
        *what(&mut self.lock()) += 1;
        Counted { shared: self, what }
    }

    /// The latest acquisition that a new connection can no longer join.
    fn latest_over(&self) -> u64 {
        let state = self.lock();
        match &state.latest {
            Some(acquisition) if acquisition.end().is_some() => acquisition.number,
            Some(acquisition) => acquisition.number - 1,
            None => 0,
        }
    }

    /// Waits for an acquisition after number `last`; `None` if the other side closes or the server shuts down.
    fn next(&self, last: u64, socket: &TcpStream) -> Option<Arc<Acquisition>> {
        let mut state = self.lock();
        loop {
            if self.closing.load(Ordering::SeqCst) {
                return None;
            }
            if let Some(acquisition) = state.latest.clone().filter(|a| a.number > last) {
                return Some(acquisition);
            }
            // A client that closes wakes nobody.
            let woken = self.changed.wait_timeout(state, LOOK);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
            drop(state);
            if is_closed(socket) {
                return None;
            }
            state = self.lock();
        }
    }

    /// Waits until the other side closes, or the server shuts the connection down.
    fn wait_for_close(&self, mut socket: &TcpStream) {
        // The server shuts down the connections that it knew when it began to close.
        if !self.closing.load(Ordering::SeqCst) && socket.set_read_timeout(None).is_ok() {
            let _ = io::copy(&mut socket, &mut io::sink());
        }
    }

    /// `*PCAP.ARM=`
    fn arm(&self) -> Result<(), &'static str> {
        self.tell_of_end();
        let mut state = self.lock();
        if state.latest.as_ref().is_some_and(|acquisition| acquisition.end().is_none()) {
            return Err("Data capture already in progress");
        }
        if state.active > 0 {
            return Err("Unexpected error at 317");
        }
        let number = state.latest.as_ref().map_or(1, |acquisition| acquisition.number + 1);
        let acquisition = Acquisition::new(number, self.clock.now(), &state.settings, &self.plan)
            .ok_or("Nothing configured for capture")?;
        state.latest = Some(Arc::new(acquisition));
        self.changed.notify_all();
        drop(state);
        self.tell(ServerEvent::Begun { number });
        Ok(())
    }

    /// `*PCAP.DISARM=`
    fn disarm(&self) {
        if let Some(acquisition) = &self.lock().latest {
            acquisition.disarm();
        }
        self.tell_of_end();
    }

    fn tell_of_end(&self) {
        let mut state = self.lock();
        let Some(acquisition) = state.latest.clone().filter(|a| a.number > state.told) else {
            return;
        };
        if let Some((captured, reason)) = acquisition.end() {
            state.told = acquisition.number;
            drop(state);
            let (number, reason) = (acquisition.number, reason.to_string());
            self.tell(ServerEvent::Ended { number, captured, reason });
        }
    }
}

/// True if the other side has closed. Bytes that it sends after its options are ignored.
fn is_closed(mut socket: &TcpStream) -> bool {
    let mut ignored = [0; 256];
    if socket.set_read_timeout(Some(Duration::from_millis(1))).is_err() {
        return true;
    }
    loop {
        match socket.read(&mut ignored) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return !fullbore_panda::is_timeout(&error),
        }
    }
}

#[cfg(test)]
mod tests;
