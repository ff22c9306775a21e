//! The server: a thread for each client, a TCP connection and a UDP socket each.

use std::io::{self, IoSlice, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use fullbore_linux::stop_handle::StopHandle;
use fullbore_linux::sys::send::{Destination, MOST_PACKETS, Sender};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::SILENCE;
use crate::codec::{
    CHALLENGE_BYTES, Feedback, FileHead, HEAD_BYTES, Kind, Parameters, encode_head,
};
use crate::error::TsunamiError;
use crate::pace::{Next, Pace};
use crate::session::{Action, Session};
use fullbore_transfer::files::{AllowList, ServedFile, ServedFiles};
use fullbore_transfer::governor::{self, Governor};
use fullbore_transfer::session::random_token;

/// Clients at one time.
const MOST_CLIENTS: usize = 8;

/// A client that asks for no file for this long is closed.
const IDLE: Duration = Duration::from_secs(600);

/// Bytes that are sent with one call, about.
const BATCH_BYTES: usize = 256 << 10;

/// The longest sleep between two looks at the control connection.
const LOOK: Duration = Duration::from_millis(1);

/// The settings of a server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The files.
    pub files: ServedFiles,
    /// Who may connect.
    pub allow: AllowList,
    /// The secret of the handshake.
    pub secret: Vec<u8>,
}

/// An event of a server.
#[derive(Clone, Debug)]
pub enum Event {
    /// A connection was refused or ended early.
    Refused {
        /// The client.
        address: SocketAddr,
        /// The reason.
        why: String,
    },
    /// A client has a file.
    Sent {
        /// The client.
        address: SocketAddr,
        /// The file.
        name: String,
        /// Its bytes.
        bytes: u64,
        /// Blocks that were sent again.
        resent: u64,
        /// The time it took.
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
    clients: AtomicUsize,
    stop: Arc<StopHandle>,
    tell: Box<EventHandler>,
}

impl Server {
    /// Listens at an address.
    pub fn bind(
        address: SocketAddr,
        settings: Settings,
        governor: Arc<Governor>,
        stop: Arc<StopHandle>,
        tell: Box<EventHandler>,
    ) -> Result<Arc<Self>, TsunamiError> {
        let listen = |source| TsunamiError::Listen { address, source };
        let listener = TcpListener::bind(address).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let clients = AtomicUsize::new(0);
        Ok(Arc::new(Self { listener, settings, governor, clients, stop, tell }))
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
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.rest(),
                Err(error) => {
                    tracing::warn!(%error, "accept");
                    self.stop.wait(Duration::from_millis(100));
                }
            }
        }
        let since = Instant::now();
        while self.clients.load(Ordering::SeqCst) > 0 && since.elapsed() < SILENCE {
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
        if self.clients.fetch_add(1, Ordering::SeqCst) >= MOST_CLIENTS {
            self.clients.fetch_sub(1, Ordering::SeqCst);
            return self.refuse(address, format!("{MOST_CLIENTS} clients are connected"));
        }
        let server = self.clone();
        let work = move || {
            governor::beside();
            if let Err(why) = Client::serve(&server, stream, address) {
                server.refuse(address, why);
            }
            server.clients.fetch_sub(1, Ordering::SeqCst);
        };
        if let Err(error) = std::thread::Builder::new().name("fb-tsunami".into()).spawn(work) {
            self.clients.fetch_sub(1, Ordering::SeqCst);
            self.refuse(address, format!("no thread: {error}"));
        }
    }
}

/// A file that is being sent.
struct Transfer {
    head: FileHead,
    pace: Pace,
    sender: Sender,
    begun: Instant,
    /// Bytes that may be sent.
    credit: u64,
}

/// A connected client.
struct Client<'a> {
    server: &'a Server,
    stream: TcpStream,
    address: SocketAddr,
    session: Session,
    file: Option<ServedFile>,
    transfer: Option<Transfer>,
    memory: Vec<u8>,
}

impl<'a> Client<'a> {
    /// Serves a client until it leaves. An error is the reason for closing the connection early.
    fn serve(server: &'a Server, stream: TcpStream, address: SocketAddr) -> Result<(), String> {
        let told = |error: io::Error| error.to_string();
        stream.set_nonblocking(false).map_err(told)?;
        stream.set_nodelay(true).map_err(told)?;
        stream.set_write_timeout(Some(SILENCE)).map_err(told)?;
        let mut challenge = [0; CHALLENGE_BYTES];
        challenge.chunks_mut(16).for_each(|part| part.copy_from_slice(&random_token()));
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let epoch = now.map_or(0, |it| it.as_secs() as u32);
        let (session, first) = Session::begin(challenge, &server.settings.secret, epoch);
        let (file, transfer, memory) = (None, None, Vec::new());
        let mut client = Self { server, stream, address, session, file, transfer, memory };
        client.send(&first)?;
        client.converse()
    }

    fn converse(&mut self) -> Result<(), String> {
        let mut heard = Instant::now();
        let mut bytes = [0; 4096];
        loop {
            if self.server.stop.is_requested() {
                return Err("the server ends".to_owned());
            }
            let wait = match self.transfer {
                Some(_) => self.go_on()?,
                None => Duration::from_millis(100),
            };
            if self.transfer.is_none() || self.is_heard(wait) {
                self.stream
                    .set_read_timeout(Some(wait.max(LOOK)))
                    .map_err(|error| error.to_string())?;
                match self.stream.read(&mut bytes) {
                    Ok(0) => return self.left(),
                    Ok(count) => {
                        heard = Instant::now();
                        let actions = self.session.step(&bytes[..count]);
                        self.act(actions)?;
                    }
                    Err(error) if is_silence(&error) => {}
                    Err(error) => return Err(error.to_string()),
                }
            }
            let patience = if self.session.is_between_files() { IDLE } else { SILENCE };
            if self.transfer.is_none() && heard.elapsed() >= patience {
                return Err("it is silent".to_owned());
            }
        }
    }

    fn left(&self) -> Result<(), String> {
        match &self.file {
            Some(file) => Err(format!("it left before it had {}", file.name())),
            None if !self.session.is_known() => Err("it left without a proof".to_owned()),
            None => Ok(()),
        }
    }

    /// True if the client has said something, or does within this time.
    fn is_heard(&self, wait: Duration) -> bool {
        let mut stream = [PollFd::new(&self.stream, PollFlags::IN)];
        let most = Timespec { tv_sec: 0, tv_nsec: wait.min(LOOK).as_nanos() as i64 };
        matches!(poll(&mut stream, Some(&most)), Ok(ready) if ready > 0)
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.stream.write_all(bytes).map_err(|error| error.to_string())
    }

    fn act(&mut self, actions: Vec<Action>) -> Result<(), String> {
        for action in actions {
            let more = match action {
                Action::Send(bytes) => {
                    self.send(&bytes)?;
                    Vec::new()
                }
                Action::List => {
                    let mut files = self.server.settings.files.list().unwrap_or_else(|error| {
                        tracing::warn!(%error, "listing");
                        Vec::new()
                    });
                    files.retain(|it| it.bytes > 0);
                    self.session.listed(&files)
                }
                Action::Open(name) => {
                    let opened = self.server.settings.files.open(&name);
                    if let Err(error) = &opened {
                        self.server.refuse(self.address, error.to_string());
                    }
                    self.file = opened.ok().filter(|file| file.length() > 0);
                    self.session.opened(self.file.as_ref().map(ServedFile::length))
                }
                Action::Begin { head, parameters, port } => {
                    self.begin(head, parameters, port)?;
                    Vec::new()
                }
                Action::Feedback(feedback) => {
                    self.hear(feedback);
                    Vec::new()
                }
                Action::Close(why) => return Err(why),
            };
            self.act(more)?;
        }
        Ok(())
    }

    fn begin(&mut self, head: FileHead, parameters: Parameters, port: u16) -> Result<(), String> {
        // Blocks go to the host that asked, and to no other.
        let ip: IpAddr = self.address.ip().to_canonical();
        let address = SocketAddr::new(ip, port);
        let destination =
            Destination { address, ttl: None, interface: None, buffer_bytes: 4 << 20 };
        let sender = Sender::connect(&destination).map_err(|error| error.to_string())?;
        let pace = Pace::new(head.blocks, parameters);
        self.transfer = Some(Transfer { head, pace, sender, begun: Instant::now(), credit: 0 });
        Ok(())
    }

    fn hear(&mut self, feedback: Feedback) {
        let Some(transfer) = &mut self.transfer else { return };
        let at = transfer.begun.elapsed();
        transfer.pace.hear(at, feedback);
        transfer.pace.hurry(at);
        if feedback != Feedback::Stop {
            return;
        }
        let (seconds, resent) = (at.as_secs_f64(), transfer.pace.resent());
        let (address, bytes) = (self.address, transfer.head.length);
        let name = self.file.take().map_or_else(String::new, |file| file.name().to_owned());
        self.transfer = None;
        (self.server.tell)(Event::Sent { address, name, bytes, resent, seconds });
    }

    /// Sends the blocks that are due. Returns the time until the next.
    fn go_on(&mut self) -> Result<Duration, String> {
        let (Some(transfer), Some(file)) = (&mut self.transfer, &mut self.file) else {
            return Ok(LOOK);
        };
        let block = transfer.head.block as usize;
        let wanted = ((HEAD_BYTES + block) as u64).max(BATCH_BYTES as u64);
        if transfer.credit < wanted {
            transfer.credit += self.server.governor.grant(wanted - transfer.credit, LOOK);
        }
        let most = (transfer.credit as usize / (HEAD_BYTES + block))
            .min((BATCH_BYTES / block).max(1))
            .min(MOST_PACKETS);
        let mut heads = Vec::with_capacity(most);
        let mut numbers = Vec::with_capacity(most);
        let mut wait = Duration::ZERO;
        while heads.len() < most {
            match transfer.pace.next(transfer.begun.elapsed()) {
                Next::Send(number, kind) => {
                    heads.push(encode_head(number, kind));
                    numbers.push(number);
                    if kind == Kind::Last {
                        break;
                    }
                }
                Next::Wait(time) => {
                    wait = time;
                    break;
                }
                Next::Stopped => break,
                Next::Silent => return Err("it is silent".to_owned()),
            }
        }
        self.memory.resize(heads.len().max(1) * block, 0);
        let mut packets = Vec::with_capacity(heads.len());
        for ((number, part), head) in numbers.iter().zip(self.memory.chunks_mut(block)).zip(&heads)
        {
            let (offset, count) = transfer.head.place(*number).ok_or("a block outside the file")?;
            file.read_at(offset, &mut part[..count]).map_err(|error| error.to_string())?;
            // The last block is padded.
            part[count..].fill(0);
            packets.push([IoSlice::new(head), IoSlice::new(part)]);
        }
        transfer.credit -= (packets.len() * (HEAD_BYTES + block)) as u64;
        transfer.sender.send(&packets).map_err(|error| error.to_string())?;
        Ok(wait)
    }
}

fn is_silence(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}
