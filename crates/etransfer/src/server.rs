//! The server: a thread for each connection, which is a control or a data connection by its first byte.
//!
//! Both come to the same port, so a firewall needs one rule. An open file belongs to its control connection, and is
//! closed with it.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use data_encoding::BASE32_NOPAD;
use fullbore_core::hint;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_transfer::files::{AllowList, ServedFile, ServedFiles};
use fullbore_transfer::governor::{self, Governor};
use fullbore_transfer::session::random_token;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::carry::Carrier;
use crate::codec::{DataAddress, Header, LONGEST_HEADER, LONGEST_LINE, Mode};
use crate::error::EtransferError;
use crate::part::{Part, sent_name};
use crate::session::{self, Access, Action, Session};
use crate::wire::Wire;
use crate::{PAUSE, SILENCE};

/// Connections at one time. A client has one for control, and one for data.
pub const MOST_CONNECTIONS: usize = 32;

/// The most wildcards in a pattern: matching takes longer with each.
const MOST_STARS: usize = 8;

/// Characters of an id, with five random bits each.
const ID_LENGTH: usize = 20;

/// The settings of a server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The files to read.
    pub files: ServedFiles,
    /// Who may connect, and whom `send-file` may connect to.
    pub allow: AllowList,
    /// The directory for files that clients send. Without one, none are taken.
    pub incoming: Option<PathBuf>,
}

/// An event of a server.
#[derive(Clone, Debug)]
pub enum Event {
    /// A connection or a request was refused, or a transfer ended early.
    Refused {
        /// The client.
        address: SocketAddr,
        /// The reason.
        why: String,
    },
    /// A client has the rest of a file.
    Sent {
        /// The client.
        address: SocketAddr,
        /// The file.
        name: String,
        /// The bytes that were sent.
        bytes: u64,
        /// The time it took.
        seconds: f64,
    },
    /// A file of a client is here.
    Received {
        /// The client.
        address: SocketAddr,
        /// The file here.
        path: PathBuf,
        /// The bytes that came with the last transfer.
        bytes: u64,
        /// The time that it took.
        seconds: f64,
    },
}

/// Receives the events of a server, from any of its threads.
pub type EventHandler = dyn Fn(Event) + Send + Sync;

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    settings: Settings,
    governor: Arc<Governor>,
    connections: AtomicUsize,
    transfers: Mutex<HashMap<String, Arc<Transfer>>>,
    stop: Arc<StopHandle>,
    tell: Box<EventHandler>,
}

/// An open file.
struct Transfer {
    /// Locked while a data connection carries it.
    content: Mutex<Content>,
    over: AtomicBool,
}

enum Content {
    Reading { file: Box<ServedFile>, at: u64 },
    Writing(Part),
    Whole,
    Closed,
}

/// An open file, until its control connection closes it.
struct Open<'a> {
    server: &'a Server,
    id: String,
    transfer: Arc<Transfer>,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        lock(&self.server.transfers).remove(&self.id);
        self.transfer.over.store(true, Ordering::SeqCst);
        // A data connection lets go soon, and then the name is free.
        *lock(&self.transfer.content) = Content::Closed;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    /// Listens at an address.
    pub fn bind(
        address: SocketAddr,
        settings: Settings,
        governor: Arc<Governor>,
        stop: Arc<StopHandle>,
        tell: Box<EventHandler>,
    ) -> Result<Arc<Self>, EtransferError> {
        let listen = |source| EtransferError::Listen { address, source };
        let listener = TcpListener::bind(address).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let (connections, transfers) = (AtomicUsize::new(0), Mutex::default());
        Ok(Arc::new(Self { listener, settings, governor, connections, transfers, stop, tell }))
    }

    /// The address.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` is set, then ends all transfers.
    pub fn run(self: &Arc<Self>) {
        while !self.stop.is_requested() {
            match self.listener.accept() {
                Ok((stream, address)) => self.admit(stream, address),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.rest(),
                Err(error) => {
                    tracing::warn!(%error, "accept");
                    self.stop.wait(Duration::from_millis(100));
                }
            }
        }
        let since = Instant::now();
        while self.connections.load(Ordering::SeqCst) > 0 && since.elapsed() < SILENCE {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sleeps until a connection arrives, for at most 100 ms.
    fn rest(&self) {
        let listener = PollFd::new(&self.listener, PollFlags::IN);
        let most = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        // A failed wait is only shorter.
        let _ = poll(&mut [listener], Some(&most));
    }

    fn refuse(&self, address: SocketAddr, why: impl Into<String>) {
        (self.tell)(Event::Refused { address, why: why.into() });
    }

    fn admit(self: &Arc<Self>, stream: TcpStream, address: SocketAddr) {
        if !self.settings.allow.allows(address.ip()) {
            return self.refuse(address, "it is not in --allow");
        }
        if self.connections.fetch_add(1, Ordering::SeqCst) >= MOST_CONNECTIONS {
            self.connections.fetch_sub(1, Ordering::SeqCst);
            return self.refuse(address, format!("{MOST_CONNECTIONS} connections are open"));
        }
        let server = self.clone();
        let work = move || {
            governor::beside();
            let served = stream.set_nonblocking(false).map_err(|error| error.to_string());
            if let Err(why) = served.and_then(|()| server.serve(&stream, address)) {
                server.refuse(address, why);
            }
            server.connections.fetch_sub(1, Ordering::SeqCst);
        };
        if let Err(error) = std::thread::Builder::new().name("fb-etransfer".into()).spawn(work) {
            self.connections.fetch_sub(1, Ordering::SeqCst);
            self.refuse(address, format!("no thread: {error}"));
        }
    }

    /// Serves a connection until it ends. An error is the reason for closing it early.
    fn serve(&self, stream: &TcpStream, address: SocketAddr) -> Result<(), String> {
        let is_over = || self.stop.is_requested();
        let wire = Wire::new(stream, &is_over).map_err(|error| error.to_string())?;
        let mut first = vec![0; LONGEST_LINE];
        let count = wire.read(&mut first, SILENCE).map_err(|error| error.to_string())?;
        first.truncate(count);
        match first.first() {
            None => Ok(()),
            Some(b'{') => self.carry(stream, address, first),
            Some(_) => self.converse(stream, &wire, address, &first),
        }
    }

    /// Serves a control connection.
    fn converse(
        &self,
        stream: &TcpStream,
        wire: &Wire<'_>,
        address: SocketAddr,
        first: &[u8],
    ) -> Result<(), String> {
        let (said, sent) = (Mutex::new(()), AtomicBool::new(false));
        let say = |text: &str| {
            let _turn = lock(&said);
            wire_say(stream, &self.stop, text)
        };
        let mut session = Session::default();
        session.feed(first);
        let mut bytes = [0; LONGEST_LINE];
        std::thread::scope(|scope| {
            let mut open: Option<Open<'_>> = None;
            loop {
                while let Some(action) = session.next_action() {
                    match action {
                        Action::Reply(text) => say(&text)?,
                        Action::List(pattern) => say(&self.list(&pattern))?,
                        Action::DataAddresses => {
                            let local = stream.local_addr().map_err(|error| error.to_string())?;
                            let here = DataAddress::tcp(local.ip().to_canonical(), local.port());
                            say(&session::data_addresses(&here))?;
                        }
                        Action::Open(access, path) => {
                            let opened = self
                                .open(access, &path)
                                .inspect_err(|why| self.refuse(address, why.as_str()));
                            let outcome = opened.map(|(opened, bytes)| {
                                let id = opened.id.clone();
                                open = Some(opened);
                                (id, bytes)
                            });
                            say(&session.opened(outcome))?;
                        }
                        Action::Send { to, bytes, addresses } => {
                            let Some(transfer) = open.as_ref().map(|it| it.transfer.clone()) else {
                                continue;
                            };
                            let (say, sent) = (&say, &sent);
                            scope.spawn(move || {
                                governor::beside();
                                let line = self.send(&transfer, &to, bytes, &addresses, address);
                                sent.store(true, Ordering::SeqCst);
                                // A client that has left needs no answer.
                                let _ = say(&line);
                            });
                        }
                        Action::Cancel => {
                            if let Some(open) = &open {
                                open.transfer.over.store(true, Ordering::SeqCst);
                            }
                        }
                        Action::Close(reply) => {
                            open = None;
                            say(&reply)?;
                        }
                        Action::Hangup(why) => return Err(why),
                    }
                }
                match wire.read(&mut bytes, PAUSE) {
                    Ok(0) => return Ok(()),
                    Ok(count) => session.feed(&bytes[..count]),
                    Err(error) if error.kind() == ErrorKind::TimedOut && is_busy(&open) => {}
                    Err(error) => return Err(error.to_string()),
                }
                if sent.swap(false, Ordering::SeqCst) {
                    session.sent();
                }
            }
        })
    }

    fn list(&self, pattern: &str) -> String {
        let mut pattern = pattern.trim_start_matches('/').to_owned();
        if pattern.is_empty() || pattern.ends_with('/') {
            pattern.push('*');
        }
        let parsed = glob::Pattern::new(&pattern).ok();
        let few = pattern.matches('*').count() <= MOST_STARS;
        let Some(parsed) = parsed.filter(|_| few) else {
            return session::refusal("this is no pattern of names");
        };
        match self.settings.files.list() {
            Ok(files) => {
                let names = files.iter().map(|it| it.name.as_str());
                session::listed(names.filter(|it| parsed.matches(it)))
            }
            Err(error) => session::refusal(&error.to_string()),
        }
    }

    fn open(&self, access: Access, path: &str) -> Result<(Open<'_>, u64), String> {
        let (content, bytes) = match access {
            Access::Read(at) => {
                let file = self.settings.files.open(path.trim_start_matches('/'));
                let file = Box::new(file.map_err(|error| error.to_string())?);
                let left = file.length().checked_sub(at);
                let left = left.ok_or_else(|| format!("{} is shorter", file.name()))?;
                (Content::Reading { file, at }, left)
            }
            Access::Write(mode) => self.open_part(mode, path)?,
        };
        let mut id = BASE32_NOPAD.encode(&random_token());
        id.truncate(ID_LENGTH);
        let (content, over) = (Mutex::new(content), AtomicBool::new(false));
        let transfer = Arc::new(Transfer { content, over });
        lock(&self.transfers).insert(id.clone(), transfer.clone());
        Ok((Open { server: self, id, transfer }, bytes))
    }

    /// Opens a file that a client sends. A file that is whole is never changed.
    fn open_part(&self, mode: Mode, path: &str) -> Result<(Content, u64), String> {
        let Some(directory) = &self.settings.incoming else {
            return Err("this server takes no files".to_owned());
        };
        let name = sent_name(path).map_err(|error| hint::explained(&error))?;
        match Part::open(directory, name, mode == Mode::Resume) {
            Ok(part) => {
                let bytes = part.bytes();
                Ok((Content::Writing(part), bytes))
            }
            Err(EtransferError::Exists(path)) => match (mode, path.symlink_metadata()) {
                (Mode::Resume | Mode::SkipExisting, Ok(whole)) if whole.is_file() => {
                    Ok((Content::Whole, whole.len()))
                }
                // Clients know these two words.
                _ => Err("File exists: nothing is overwritten here".to_owned()),
            },
            Err(EtransferError::File { path, source }) => {
                tracing::warn!(path = %path.display(), %source, "incoming");
                Err(format!("{name} cannot be written: {}", source.kind()))
            }
            Err(error @ EtransferError::InUse(_)) => {
                tracing::debug!(%error, "incoming");
                Err(format!("{name} is being written by another transfer"))
            }
            Err(error) => Err(error.to_string()),
        }
    }

    /// Serves a data connection, which carries one transfer after the other.
    fn carry(
        &self,
        stream: &TcpStream,
        address: SocketAddr,
        mut pending: Vec<u8>,
    ) -> Result<(), String> {
        while let Some(header) = self.header(stream, &mut pending)? {
            let transfer = lock(&self.transfers).get(&header.id).cloned();
            let transfer = transfer.ok_or("no file is open with this uuid")?;
            let mut content =
                transfer.content.try_lock().map_err(|_| "another connection carries this file")?;
            let is_over = || self.stop.is_requested() || transfer.over.load(Ordering::SeqCst);
            let carrier = self.carrier(stream, &is_over)?;
            let begun = Instant::now();
            let done = match &mut *content {
                Content::Reading { file, at } if header.push => {
                    give(&carrier, file, at, header.bytes).map(|()| {
                        let (name, bytes) = (file.name().to_owned(), header.bytes);
                        Event::Sent { address, name, bytes, seconds: begun.elapsed().as_secs_f64() }
                    })
                }
                Content::Writing(part) if !header.push => {
                    let bytes = header.bytes;
                    let taken = carrier.take(part, &mut pending, bytes, &mut |_| {});
                    taken.and_then(|()| part.finish()).map(|()| {
                        let (path, seconds) =
                            (part.path().to_owned(), begun.elapsed().as_secs_f64());
                        Event::Received { address, path, bytes, seconds }
                    })
                }
                Content::Whole if !header.push && header.bytes == 0 => {
                    carrier.say(b"y").map_err(|error| error.to_string())?;
                    continue;
                }
                _ => return Err("the file is whole, or not open for that".to_owned()),
            };
            let done = done.map_err(|error| hint::explained(&error))?;
            if !header.push {
                *content = Content::Whole;
                carrier.say(b"y").map_err(|error| error.to_string())?;
            }
            (self.tell)(done);
        }
        Ok(())
    }

    /// Reads the next header; `None` at the end.
    fn header(&self, stream: &TcpStream, pending: &mut Vec<u8>) -> Result<Option<Header>, String> {
        let is_over = || self.stop.is_requested();
        let wire = Wire::new(stream, &is_over).map_err(|error| error.to_string())?;
        let mut bytes = [0; LONGEST_HEADER];
        loop {
            if let Some((header, length)) =
                Header::parse(pending).map_err(|error| error.to_string())?
            {
                pending.drain(..length);
                return Ok(Some(header));
            }
            let room = LONGEST_HEADER - pending.len();
            match wire.read(&mut bytes[..room], SILENCE) {
                Ok(0) if pending.is_empty() => return Ok(None),
                Ok(0) => return Err("it left within a header".to_owned()),
                Ok(count) => pending.extend_from_slice(&bytes[..count]),
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    fn carrier<'a>(
        &'a self,
        stream: &'a TcpStream,
        is_over: &'a dyn Fn() -> bool,
    ) -> Result<Carrier<'a>, String> {
        let wire = Wire::new(stream, is_over).map_err(|error| error.to_string())?;
        Ok(Carrier { wire, governor: &self.governor, peer: "the other end", patience: PAUSE })
    }

    /// Pushes an open file to another server. Returns the answer for the client.
    fn send(
        &self,
        transfer: &Transfer,
        to: &str,
        bytes: u64,
        addresses: &[DataAddress],
        client: SocketAddr,
    ) -> String {
        let begun = Instant::now();
        let pushed = self.push(transfer, to, bytes, addresses);
        let seconds = begun.elapsed().as_secs_f64();
        match pushed {
            Ok((name, address)) => {
                (self.tell)(Event::Sent { address, name, bytes, seconds });
                session::sent_line(bytes, seconds, None)
            }
            Err(why) => {
                self.refuse(client, &why);
                session::sent_line(0, seconds, Some(&why))
            }
        }
    }

    fn push(
        &self,
        transfer: &Transfer,
        to: &str,
        bytes: u64,
        addresses: &[DataAddress],
    ) -> Result<(String, SocketAddr), String> {
        let tcp = addresses.iter().filter(|it| it.is_tcp());
        let found = tcp.filter_map(|it| (it.host.as_str(), it.port).to_socket_addrs().ok());
        // Otherwise a client could have this host connect to anything that it can reach.
        let allowed = found.flatten().filter(|it| self.settings.allow.allows(it.ip()));
        let mut connected =
            allowed.filter_map(|it| Some((TcpStream::connect_timeout(&it, SILENCE).ok()?, it)));
        let (stream, address) =
            connected.next().ok_or("none of the addresses is in --allow and answers")?;
        let mut content =
            transfer.content.try_lock().map_err(|_| "another connection carries this file")?;
        let Content::Reading { file, at } = &mut *content else {
            return Err("the file is not open for reading".to_owned());
        };
        let is_over = || self.stop.is_requested() || transfer.over.load(Ordering::SeqCst);
        let carrier = self.carrier(&stream, &is_over)?;
        let header = Header { id: to.to_owned(), bytes, push: false };
        let told = |error: EtransferError| error.to_string();
        carrier.say(header.to_string().as_bytes()).map_err(told)?;
        give(&carrier, file, at, bytes).map_err(told)?;
        Ok((file.name().to_owned(), address))
    }
}

fn give(
    carrier: &Carrier<'_>,
    file: &mut ServedFile,
    at: &mut u64,
    bytes: u64,
) -> Result<(), EtransferError> {
    // The file refuses what is outside it before anything is sent.
    if at.checked_add(bytes).is_none_or(|end| end > file.length()) {
        file.read_at(file.length(), &mut [0])?;
    }
    carrier.give(file, *at, bytes, &mut |_| {})?;
    *at += bytes;
    Ok(())
}

fn is_busy(open: &Option<Open<'_>>) -> bool {
    open.as_ref().is_some_and(|it| it.transfer.content.try_lock().is_err())
}

fn wire_say(stream: &TcpStream, stop: &StopHandle, text: &str) -> Result<(), String> {
    let is_over = || stop.is_requested();
    let wire = Wire::new(stream, &is_over).map_err(|error| error.to_string())?;
    wire.write_all(text.as_bytes(), SILENCE).map_err(|error| error.to_string())
}
