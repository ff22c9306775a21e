//! The listener, and a thread for each connection.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fullbore_linux::clock::Clock;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_time::Tai;
use fullbore_transfer::files::AllowList;
use fullbore_vsi::cplane::Cplane;
use fullbore_vsi::flexbuff::FlexBuff;
use fullbore_vsi::line::Lines;
use fullbore_vsi::reply::{self, Code};
use fullbore_vsi::{Dialect, Outcome};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;
use serde::Serialize;

use super::runs::Runs;
use super::scans::Index;
use super::station::DaemonStation;
use super::{Error, Settings};
use crate::http::audit::Audit;
use crate::recorder::Recorders;

/// Connections at one time.
pub const MOST_CONNECTIONS: usize = 48;

/// Connections at one time from addresses that may only ask, so that they cannot keep the Field System out.
pub const MOST_READERS: usize = 16;

/// How long an answer may wait for a scan that is being read. A client waits two seconds at least.
const PATIENCE: Duration = Duration::from_millis(1500);

/// Time between two looks at a scan that is being read.
const LOOK: Duration = Duration::from_millis(10);

/// The longest wait for bytes between two looks at the stop handle.
const READ: Duration = Duration::from_millis(200);

/// A client that takes no answer for so long is gone.
const WRITE: Duration = Duration::from_secs(5);

/// A silent client is asked whether it is there after this time, and then as often.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// The open port, and that for the dialect of a Mark6 if there is one. Both are closed when this is dropped; recordings go
/// on.
pub struct Port {
    door: Arc<Door>,
    address: SocketAddr,
    mark6: Option<SocketAddr>,
    listening: Vec<JoinHandle<()>>,
}

/// A port of one dialect. Its lock is taken before that of the station.
struct Shared<D> {
    dialect: Mutex<D>,
    door: Arc<Door>,
}

/// What the ports have in common.
struct Door {
    station: Mutex<DaemonStation>,
    allow: AllowList,
    audit: Audit,
    /// The log of commands from addresses that may only ask: they can fill this one, and displace no line of the other.
    refused: Audit,
    connections: AtomicUsize,
    readers: AtomicUsize,
    stop: StopHandle,
}

/// A line of the audit log.
#[derive(Serialize)]
struct Line<'a> {
    time: Tai,
    address: SocketAddr,
    line: &'a str,
    answer: &'a str,
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Port {
    /// Opens the port. `state` is the directory of the station.
    pub fn open(
        settings: &Settings,
        members: &[PathBuf],
        recorders: Recorders,
        state: &Path,
    ) -> Result<Self, Error> {
        if let Some(path) = settings.files.clone().filter(|it| !it.is_dir()) {
            return Err(Error::Files { path });
        }
        let (listener, address) = bind(settings.listen)?;
        let mark6 = settings.mark6.map(bind).transpose()?;
        let index = Index::open(members.to_vec()).map_err(Error::Start)?;
        let runs = Runs::open(recorders, index.clone(), state.join("vsi.json"));
        let runs = runs.map_err(Error::Start)?;
        let station = DaemonStation::new(members, settings.files.clone(), runs, index);
        let door = Arc::new(Door {
            station: Mutex::new(station.map_err(Error::Start)?),
            allow: settings.allow.clone(),
            audit: Audit::new(state.join("vsi.log")),
            refused: Audit::new(state.join("vsi-refused.log")),
            connections: AtomicUsize::new(0),
            readers: AtomicUsize::new(0),
            stop: StopHandle::default(),
        });
        let mut port = Self { door, address, mark6: None, listening: Vec::new() };
        port.listen::<FlexBuff>(listener).map_err(Error::Start)?;
        if let Some((listener, address)) = mark6 {
            port.mark6 = Some(address);
            port.listen::<Cplane>(listener).map_err(Error::Start)?;
        }
        Ok(port)
    }

    /// Listens in a dialect, on a thread.
    fn listen<D: Dialect + 'static>(&mut self, listener: TcpListener) -> io::Result<()> {
        let served =
            Arc::new(Shared { dialect: Mutex::new(D::default()), door: self.door.clone() });
        let thread = thread::Builder::new().name("vsi".into());
        self.listening.push(thread.spawn(move || served.accept(&listener))?);
        Ok(())
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it listens in the dialect of a Mark6.
    pub fn mark6(&self) -> Option<SocketAddr> {
        self.mark6
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.door.stop.stop();
        for listening in self.listening.drain(..) {
            // A panic of the thread was told by its own hook.
            let _ = listening.join();
        }
    }
}

fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), Error> {
    let listen = |source| Error::Listen { address, source };
    let listener = TcpListener::bind(address).map_err(listen)?;
    listener.set_nonblocking(true).map_err(listen)?;
    let bound = listener.local_addr().map_err(listen)?;
    Ok((listener, bound))
}

impl<D: Dialect + 'static> Shared<D> {
    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        while !self.door.stop.is_requested() {
            match listener.accept() {
                Ok((stream, address)) => self.admit(stream, address),
                Err(error) if error.kind() == ErrorKind::WouldBlock => rest(listener),
                Err(error) => {
                    tracing::warn!(%error, "accepting a connection of VSI-S");
                    let _is_stopped = self.door.stop.wait(READ);
                }
            }
        }
    }

    fn admit(self: &Arc<Self>, stream: TcpStream, address: SocketAddr) {
        let may_write = self.door.allow.allows(address.ip());
        let admitted = Admitted::new(self.door.clone(), may_write);
        let Some(admitted) = admitted else {
            tracing::warn!(%address, "a connection of VSI-S is refused: too many are open");
            return;
        };
        let shared = self.clone();
        let work = move || {
            let _admitted = admitted;
            if let Err(error) = shared.serve(&stream, address, may_write) {
                tracing::info!(%address, %error, "a connection of VSI-S has ended");
            }
        };
        if let Err(error) = thread::Builder::new().name("vsi-client".into()).spawn(work) {
            tracing::error!(%address, %error, "no thread for a connection of VSI-S");
        }
    }

    fn serve(&self, stream: &TcpStream, address: SocketAddr, may_write: bool) -> io::Result<()> {
        prepare(stream)?;
        let mut session = D::session(may_write);
        let served = self.converse(stream, address, &mut session);
        let mut dialect = self.dialect.lock().unwrap_or_else(PoisonError::into_inner);
        let station = self.door.station.lock().unwrap_or_else(PoisonError::into_inner);
        dialect.end(&session, &*station);
        served
    }

    fn converse(
        &self,
        mut stream: &TcpStream,
        address: SocketAddr,
        session: &mut D::Session,
    ) -> io::Result<()> {
        let (mut lines, mut buffer) = (Lines::default(), [0; 4096]);
        while !self.door.stop.is_requested() {
            let count = match stream.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => count,
                Err(error) if is_patience(&error) => continue,
                Err(error) => return Err(error),
            };
            lines.feed(&buffer[..count]);
            loop {
                let line = match lines.next_line() {
                    Ok(None) => break,
                    Ok(Some(line)) => line,
                    Err(error) => {
                        let refused = D::refuse(Code::Syntax, &error.to_string());
                        let answer = reply::without_keyword(&refused) + "\n";
                        stream.write_all(answer.as_bytes())?;
                        return Err(io::Error::new(ErrorKind::InvalidData, error));
                    }
                };
                let answer = self.answer(session, &line.text);
                let end = if line.has_return { "\r\n" } else { "\n" };
                // One segment, because m5copy takes a pause for the end of the answer.
                let sent = stream.write_all(format!("{answer}{end}").as_bytes());
                self.door.note(address, &line.text, &answer);
                sent?;
            }
        }
        Ok(())
    }

    /// Answers a line. It waits a moment for a scan that is being read, without the lock.
    fn answer(&self, session: &mut D::Session, line: &str) -> String {
        let until = Instant::now() + PATIENCE;
        let (mut answered, mut rest) = (Vec::new(), line.to_owned());
        loop {
            let may_wait = Instant::now() < until && !self.door.stop.is_requested();
            let outcome = {
                let mut dialect = self.dialect.lock().unwrap_or_else(PoisonError::into_inner);
                let mut station = self.door.station.lock().unwrap_or_else(PoisonError::into_inner);
                station.refresh();
                dialect.line(session, &mut *station, &rest, may_wait)
            };
            match outcome {
                Outcome::Answer(answer) => {
                    answered.push(answer);
                    return answered.join(" ");
                }
                Outcome::Wait { answered: some, rest: later } => {
                    answered.extend(Some(some).filter(|it| !it.is_empty()));
                    rest = later;
                    thread::sleep(LOOK);
                }
            }
        }
    }
}

impl Door {
    /// Notes a line with a command in the audit log, after its answer is sent: the disk of the log may be slow.
    fn note(&self, address: SocketAddr, line: &str, answer: &str) {
        if !line.contains('=') {
            tracing::debug!(%address, line, answer, "VSI-S");
            return;
        }
        tracing::info!(%address, line, answer, "VSI-S");
        let line = Line { time: Clock::new().now(), address, line, answer };
        let log = if self.allow.allows(address.ip()) { &self.audit } else { &self.refused };
        if let Err(error) = log.append(&line) {
            tracing::error!(%error, "the audit log of VSI-S lacks a line");
        }
    }
}

/// A place among the connections, which is free again when it is dropped.
struct Admitted {
    door: Arc<Door>,
    is_reader: bool,
}

impl Admitted {
    fn new(door: Arc<Door>, may_write: bool) -> Option<Self> {
        let take = |count: &AtomicUsize, most| {
            let more = |now: usize| (now < most).then_some(now + 1);
            count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
        };
        if !may_write && !take(&door.readers, MOST_READERS) {
            return None;
        }
        if !take(&door.connections, MOST_CONNECTIONS) {
            if !may_write {
                door.readers.fetch_sub(1, Ordering::SeqCst);
            }
            return None;
        }
        Some(Self { door, is_reader: !may_write })
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.door.connections.fetch_sub(1, Ordering::SeqCst);
        if self.is_reader {
            self.door.readers.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Sleeps until a client connects, for at most 200 ms.
fn rest(listener: &TcpListener) {
    let most = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
    // A failed wait is only shorter.
    let _ = poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&most));
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(READ))?;
    stream.set_write_timeout(Some(WRITE))?;
    // A client that lost its power does not keep its place.
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEP_ALIVE)?;
    sockopt::set_tcp_keepintvl(stream, KEEP_ALIVE)?;
    sockopt::set_tcp_keepcnt(stream, 3)?;
    Ok(())
}

fn is_patience(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
