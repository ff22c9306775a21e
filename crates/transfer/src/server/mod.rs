//! The end that listens: lets known peers send scans to this store, or fetch shared ones.
//!
//! ```text
//! accept ──► TLS ──► Hello ──► known? ──► control connection: Offer, Request, List, Probe
//!                                    └──► data connection: the transfer of its token
//! ```
//!
//! A peer that is not known costs a thread for twenty seconds at most: ten for TLS, and ten for its first message.
//! `admission` limits the connections of all peers, of one peer, and of those that have not said who they are.

mod admission;

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fullbore_core::manifest::Manifest;
use fullbore_core::name::ScanName;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_store::catalogue;
use fullbore_store::landing::Origin;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use uuid::Uuid;

use crate::channel::{Channel, Closer, LinkSettings};
use crate::connect::MOST_CONNECTIONS;
use crate::error::TransferError;
use crate::governor::{Governor, Limits};
use crate::identity::{self, Fingerprint, Identity, IdentityError, Peer, Peers};
use crate::link;
use crate::open_connections::{OpenConnection, OpenConnections};
use crate::outgoing::Outgoing;
use crate::protocol::{Message, Refusal, Role, VERSIONS, common_version};
use crate::receive::{self, Arrival, Intake, Offered, Receiving, Taken, Terms};
use crate::send::{self, Sending, Work};
use crate::session::{GREETING, POLL, host_name, random_token, refuse};
use admission::{Admission, Stranger};

/// Time for the connections of an earlier transfer to end, when the same peer begins again.
const TAKE_OVER: Duration = Duration::from_secs(10);

/// A control connection without a request for this long is closed.
const IDLE: Duration = Duration::from_secs(60);

/// The settings of a server.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// The members of the disk set that takes scans, and from which they are fetched.
    pub members: Vec<PathBuf>,
    /// The directory of keys and peers.
    pub config: PathBuf,
    /// Data connections that one transfer may have.
    pub connections: u16,
    /// Limits for what peers fetch.
    pub limits: Limits,
    /// The settings of connections.
    pub link: LinkSettings,
}

/// An event of a server.
#[derive(Clone, Debug)]
pub enum ServerEvent {
    /// A peer connected.
    Connected {
        /// Its name.
        peer: String,
        /// Its key.
        key: Fingerprint,
        /// Its address.
        address: SocketAddr,
    },
    /// A connection was refused.
    Refused {
        /// Its address.
        address: SocketAddr,
        /// The reason.
        why: String,
    },
    /// A scan begins to arrive, or continues.
    Begun {
        /// The sender.
        peer: String,
        /// The scan.
        scan: ScanName,
        /// Its size.
        offered: Offered,
    },
    /// A scan arrives.
    Receiving {
        /// The sender.
        peer: String,
        /// The state.
        state: Receiving,
    },
    /// A scan is sealed here: every block is durable, and its checksum is right.
    Received {
        /// The sender.
        peer: String,
        /// The scan.
        scan: ScanName,
        /// Its bytes.
        bytes: u64,
        /// Bytes that arrived in this transfer.
        carried_bytes: u64,
        /// The time of this transfer.
        time: Duration,
    },
    /// A scan is sent.
    Sending {
        /// The receiver.
        peer: String,
        /// The state.
        state: Sending,
    },
    /// A scan is complete at a peer.
    Sent {
        /// The receiver.
        peer: String,
        /// The scan.
        scan: ScanName,
        /// Its bytes.
        bytes: u64,
    },
    /// A transfer ended early.
    Failed {
        /// The peer.
        peer: String,
        /// The scan, if it is known.
        scan: Option<ScanName>,
        /// The reason.
        why: String,
    },
}

/// A transfer of this server.
#[derive(Clone)]
enum Session {
    Arrival(Arc<Arrival>),
    Work(Arc<Work>),
}

impl Session {
    fn end(&self) {
        match self {
            Self::Arrival(arrival) => arrival.end(),
            Self::Work(work) => work.end(),
        }
    }
}

/// A session in the list, and what its end needs.
struct Entry {
    session: Session,
    scan: Uuid,
    peer: Fingerprint,
    /// Its control connection.
    control: Closer,
    /// Its data connections.
    open: OpenConnections,
}

/// Receives the events of a server, from any of its threads.
pub type EventHandler = dyn Fn(ServerEvent) + Send + Sync;

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    identity: Identity,
    settings: ServerSettings,
    governor: Arc<Governor>,
    /// By token.
    sessions: Mutex<HashMap<[u8; 16], Entry>>,
    /// A session ended.
    ended: Condvar,
    admission: Arc<Admission>,
    stop: Arc<StopHandle>,
    tell: Box<EventHandler>,
}

impl Server {
    /// Listens at an address.
    pub fn bind(
        address: SocketAddr,
        settings: ServerSettings,
        stop: Arc<StopHandle>,
        tell: Box<EventHandler>,
    ) -> Result<Arc<Self>, TransferError> {
        let identity = Identity::load_or_create(&settings.config)?;
        let listener = TcpListener::bind(address)
            .map_err(|source| TransferError::Listen { address, source })?;
        let governor = Arc::new(Governor::start_on(settings.limits.clone(), &settings.members));
        Ok(Arc::new(Self {
            listener,
            identity,
            settings,
            governor,
            sessions: Mutex::default(),
            ended: Condvar::new(),
            admission: Arc::default(),
            stop,
            tell,
        }))
    }

    /// The address.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The governor of what it sends, for other servers of the same store.
    pub fn governor(&self) -> Arc<Governor> {
        self.governor.clone()
    }

    /// The key.
    pub fn fingerprint(&self) -> Fingerprint {
        self.identity.fingerprint()
    }

    /// Serves until `stop` is set, then ends all transfers. What has arrived by then is kept.
    pub fn run(self: &Arc<Self>) -> Result<(), TransferError> {
        let listen = |source| {
            let address = self.address().unwrap_or_else(|_| ([0, 0, 0, 0], 0).into());
            TransferError::Listen { address, source }
        };
        self.listener.set_nonblocking(true).map_err(listen)?;
        while !self.stop.is_requested() {
            match self.listener.accept() {
                Ok((stream, address)) => self.admit(stream, address),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.rest(),
                // The peer is gone already, or descriptors are short for the moment.
                Err(error) => {
                    tracing::warn!(%error, "accept");
                    self.stop.wait(POLL);
                }
            }
        }
        for entry in self.sessions().values() {
            entry.session.end();
        }
        self.wait_for(Duration::from_secs(10), |_, server| server.admission.is_empty());
        Ok(())
    }

    /// Sleeps until a connection arrives, for at most 100 ms.
    fn rest(&self) {
        let listener = PollFd::new(&self.listener, PollFlags::IN);
        let most = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        // A failed wait is only shorter.
        let _ = poll(&mut [listener], Some(&most));
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<[u8; 16], Entry>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, event: ServerEvent) {
        (self.tell)(event);
    }

    /// Gives a connection a thread, if there is room for it.
    fn admit(self: &Arc<Self>, stream: TcpStream, address: SocketAddr) {
        let admitted = Closer::of(&stream).ok().and_then(|it| self.admission.admit(address, it));
        let Some((connection, stranger)) = admitted else {
            // A word about it would cost a handshake.
            let why = "too many connections".to_owned();
            return self.tell(ServerEvent::Refused { address, why });
        };
        let server = self.clone();
        let thread = std::thread::Builder::new().name("fb-peer".into()).spawn(move || {
            server.serve(stream, address, stranger);
            drop(connection);
            server.ended.notify_all();
        });
        if let Err(error) = thread {
            self.tell(ServerEvent::Refused { address, why: format!("no thread: {error}") });
        }
    }

    fn serve(self: &Arc<Self>, stream: TcpStream, address: SocketAddr, stranger: Stranger) {
        let greeted = Channel::accept(stream, &self.identity, &self.settings.link)
            .map_err(TransferError::from)
            .and_then(|channel| self.greeted(channel));
        drop(stranger);
        let (mut channel, peer, role) = match greeted {
            Ok(greeted) => greeted,
            Err(error) => {
                let why = error.to_string();
                return self.tell(ServerEvent::Refused { address, why });
            }
        };
        let Some(_of_peer) = self.admission.admit_peer(peer.fingerprint) else {
            let why = format!("{} has too many connections", peer.name);
            refuse(&mut channel, Refusal::Busy, why.clone());
            return self.tell(ServerEvent::Refused { address, why });
        };
        match role {
            Role::Control => {
                let (name, key) = (peer.name.clone(), peer.fingerprint);
                self.tell(ServerEvent::Connected { peer: name, key, address });
                self.control(channel, &peer);
            }
            Role::Data(token) => self.data(&mut channel, &peer, token),
        }
    }

    /// Hears who it is, and whether it is known.
    fn greeted(&self, mut channel: Channel) -> Result<(Channel, Peer, Role), TransferError> {
        let address = channel.address().to_string();
        let protocol =
            |why: &str| TransferError::Protocol { peer: address.clone(), why: why.into() };
        let Some(hello) = channel.receive(GREETING)? else {
            return Err(TransferError::Silent { peer: address, seconds: GREETING.as_secs() });
        };
        let Message::Hello { versions, role, secret, name } = hello else {
            return Err(protocol("no hello"));
        };
        let Some(version) = common_version(versions) else {
            let text = format!("this end speaks versions {} to {}", VERSIONS.0, VERSIONS.1);
            refuse(&mut channel, Refusal::Version, text.clone());
            return Err(protocol(&text));
        };
        let peer = match self.known(&channel, secret, &name)? {
            Ok(peer) => peer,
            Err(text) => {
                refuse(&mut channel, Refusal::NotAllowed, text);
                let key = channel.peer();
                return Err(TransferError::Stranger { peer: address, name, key });
            }
        };
        channel.send(&Message::Welcome { version, name: host_name() })?;
        Ok((channel, peer, role))
    }

    /// Looks the peer up, or makes it known by its invitation. A known peer with an invitation gets its rights too.
    /// Otherwise returns the reason.
    fn known(
        &self,
        channel: &Channel,
        secret: Option<[u8; 16]>,
        name: &str,
    ) -> Result<Result<Peer, String>, TransferError> {
        let (directory, key) = (&self.settings.config, channel.peer());
        let mut why = "this key is not known there".to_owned();
        if let Some(secret) = secret {
            match identity::redeem(directory, &secret, key, name) {
                Ok(peer) => return Ok(Ok(peer)),
                Err(error @ (IdentityError::NotInvited | IdentityError::Expired { .. })) => {
                    why = error.to_string();
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Peers::load(directory)?.find(&key).cloned().ok_or(why))
    }

    /// Serves the requests of a control connection, one after the other.
    fn control(self: &Arc<Self>, mut channel: Channel, peer: &Peer) {
        loop {
            let idle = Instant::now();
            let message = loop {
                match channel.receive(Duration::from_millis(200)) {
                    Ok(Some(message)) => break message,
                    Ok(None) if self.stop.is_requested() || idle.elapsed() > IDLE => return,
                    Ok(None) => {}
                    Err(_) => return,
                }
            };
            let result = match message {
                Message::Offer { manifest, bytes, live } if peer.may.send => {
                    self.receive(&mut channel, peer, &manifest, Offered { bytes, live })
                }
                Message::Request { scan } if peer.may.fetch => self.send(&mut channel, peer, &scan),
                Message::List if peer.may.fetch => self.list(&mut channel),
                Message::Probe { bytes } if peer.may.send || peer.may.fetch => {
                    link::answer(&mut channel, bytes)
                }
                ref refused @ (Message::Offer { .. }
                | Message::Request { .. }
                | Message::List
                | Message::Probe { .. }) => {
                    let (address, text) = (channel.address(), not_allowed(refused));
                    let why = format!("{} asks for what it may not do", peer.name);
                    self.tell(ServerEvent::Refused { address, why });
                    return refuse(&mut channel, Refusal::NotAllowed, text);
                }
                Message::Ping { number } => {
                    channel.send(&Message::Pong { number }).map_err(Into::into)
                }
                // The answer to a ping of the transfer before.
                Message::Pong { .. } => Ok(()),
                Message::Bye => return,
                _ => return refuse(&mut channel, Refusal::Failed, "an unexpected message"),
            };
            if result.is_err() {
                return;
            }
        }
    }

    /// Receives an offered scan.
    fn receive(
        self: &Arc<Self>,
        channel: &mut Channel,
        peer: &Peer,
        manifest: &[u8],
        offered: Offered,
    ) -> Result<(), TransferError> {
        let begun = Instant::now();
        let failed = |scan: Option<ScanName>, error: &TransferError| {
            let (peer, why) = (peer.name.clone(), error.to_string());
            self.tell(ServerEvent::Failed { peer, scan, why });
        };
        let taken = self.take(peer, manifest, offered);
        let arrival = match taken {
            Ok(Taken::Arrival(arrival)) => Arc::new(*arrival),
            Ok(Taken::Complete(manifest, sealed)) => {
                channel.send(&receive::receipt(manifest.uuid, &sealed))?;
                return Ok(());
            }
            Err((refusal, error)) => {
                failed(None, &error);
                refuse(channel, refusal, receive::refusal::text(&error));
                return Err(error);
            }
        };
        let (name, scan) = (peer.name.clone(), arrival.scan.clone());
        self.tell(ServerEvent::Begun { peer: name, scan, offered });
        let token = random_token();
        let entered =
            self.enter(token, Session::Arrival(arrival.clone()), arrival.uuid, peer, channel);
        let mut tell = |state: &Receiving, _| {
            self.tell(ServerEvent::Receiving { peer: peer.name.clone(), state: state.clone() });
        };
        let terms =
            Terms { token, connections: self.settings.connections, expected: offered.bytes };
        let result = arrival.control(channel, &peer.name, terms, &self.stop, &mut tell);
        let (scan, carried_bytes) = (arrival.scan.clone(), arrival.bytes());
        drop(arrival);
        drop(entered);
        match result {
            Ok(sealed) => {
                let (peer, bytes, time) = (peer.name.clone(), sealed.bytes, begun.elapsed());
                self.tell(ServerEvent::Received { peer, scan, bytes, carried_bytes, time });
                Ok(())
            }
            Err(error) => {
                failed(Some(scan), &error);
                Err(error)
            }
        }
    }

    /// Takes a scan, and ends an earlier transfer of it by the same peer, whose connections may be dead.
    fn take(
        &self,
        peer: &Peer,
        manifest: &[u8],
        offered: Offered,
    ) -> Result<Taken, (Refusal, TransferError)> {
        if let Ok(manifest) = Manifest::from_json(manifest) {
            self.end_earlier(manifest.uuid, peer.fingerprint);
        }
        let members = receive::open_members(&self.settings.members)
            .map_err(TransferError::from)
            .map_err(|error| (receive::refusal::code(&error), error))?;
        let origin = Origin { host: peer.name.clone(), key: peer.fingerprint.hex() };
        receive::take(&members, manifest, offered, &origin)
    }

    fn end_earlier(&self, scan: Uuid, peer: Fingerprint) {
        let is_it = |entry: &Entry| entry.scan == scan && entry.peer == peer;
        let mut earlier = false;
        for entry in self.sessions().values().filter(|entry| is_it(entry)) {
            entry.session.end();
            entry.control.close();
            entry.open.close();
            earlier = true;
        }
        if earlier {
            self.wait_for(TAKE_OVER, |sessions, _| !sessions.values().any(is_it));
        }
    }

    /// Waits until a condition on the sessions holds.
    fn wait_for(&self, most: Duration, holds: impl Fn(&HashMap<[u8; 16], Entry>, &Self) -> bool) {
        let until = Instant::now() + most;
        let mut sessions = self.sessions();
        while !holds(&sessions, self) && Instant::now() < until {
            let waited = self.ended.wait_timeout(sessions, POLL);
            sessions = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Sends a scan that a peer asks for.
    fn send(
        self: &Arc<Self>,
        channel: &mut Channel,
        peer: &Peer,
        scan: &str,
    ) -> Result<(), TransferError> {
        let opened = catalogue::find(&self.settings.members, scan)
            .map_err(|error| error.to_string())
            .and_then(|selected| {
                let opened = Outgoing::open(&self.settings.members, &selected.scan);
                opened.map_err(|error| error.to_string())
            });
        let outgoing = match opened {
            Ok(outgoing) => outgoing,
            Err(why) => {
                let text = format!("there is no scan {scan} that can be read");
                refuse(channel, Refusal::NoScan, text);
                return Err(TransferError::Protocol { peer: peer.name.clone(), why });
            }
        };
        let manifest = outgoing.manifest();
        let work = Arc::new(Work::new(outgoing, self.governor.clone()));
        let mut entered = None;
        let closer = channel.closer();
        let shared = Arc::downgrade(&work);
        let mut accepted = |token, _connections| {
            let session = Session::Work(shared.upgrade().expect("the control connection holds it"));
            entered = Some(self.enter_with(token, session, manifest.uuid, peer, closer.clone()));
        };
        let mut tell = |state: &Sending, _| {
            self.tell(ServerEvent::Sending { peer: peer.name.clone(), state: state.clone() });
        };
        let result = work.control(channel, &peer.name, &self.stop, &mut accepted, &mut tell);
        drop(work);
        drop(entered);
        match result {
            Ok(receipt) => {
                send::keep_receipt(&self.settings.members, &manifest.scan, &receipt)?;
                let (peer, scan, bytes) = (peer.name.clone(), manifest.scan, receipt.bytes);
                self.tell(ServerEvent::Sent { peer, scan, bytes });
                Ok(())
            }
            Err(error) => {
                let _ = channel.send(&receive::refusal::of(&error));
                let (peer, why) = (peer.name.clone(), error.to_string());
                self.tell(ServerEvent::Failed { peer, scan: Some(manifest.scan), why });
                Err(error)
            }
        }
    }

    /// Lists the scans of the store.
    fn list(&self, channel: &mut Channel) -> Result<(), TransferError> {
        let listed = catalogue::list(&self.settings.members);
        let scans = listed.map(|listed| listed.entries).unwrap_or_default();
        let names: Vec<String> = scans.into_iter().map(|entry| entry.name).collect();
        let json = serde_json::to_vec(&names).expect("names are plain text");
        Ok(channel.send(&Message::Listing { json })?)
    }

    /// Enters a session, until the result is dropped.
    fn enter(
        self: &Arc<Self>,
        token: [u8; 16],
        session: Session,
        scan: Uuid,
        peer: &Peer,
        channel: &Channel,
    ) -> Entered {
        self.enter_with(token, session, scan, peer, channel.closer())
    }

    fn enter_with(
        self: &Arc<Self>,
        token: [u8; 16],
        session: Session,
        scan: Uuid,
        peer: &Peer,
        closer: Closer,
    ) -> Entered {
        let (peer, open) = (peer.fingerprint, OpenConnections::default());
        let entry = Entry { session, scan, peer, control: closer, open };
        self.sessions().insert(token, entry);
        Entered { server: self.clone(), token }
    }

    /// Enters a data connection into the session of its token. The oldest one makes room for it.
    fn join(
        &self,
        peer: &Peer,
        token: [u8; 16],
        closer: Closer,
    ) -> Option<(Session, OpenConnection)> {
        let sessions = self.sessions();
        let entry = sessions.get(&token).filter(|entry| entry.peer == peer.fingerprint)?;
        let open = entry.open.add(closer);
        entry.open.close_beyond(MOST_CONNECTIONS.into());
        Some((entry.session.clone(), open))
    }

    /// Serves a data connection of a session.
    fn data(&self, channel: &mut Channel, peer: &Peer, token: [u8; 16]) {
        let session = self.join(peer, token, channel.closer());
        let result = match session {
            None => return refuse(channel, Refusal::NotAllowed, "there is no such transfer"),
            Some((Session::Arrival(arrival), _open)) => {
                let intake = Intake { governor: &self.governor, limited: false };
                receive::receive_blocks(&arrival, channel, &peer.name, intake)
            }
            Some((Session::Work(work), _open)) => {
                let connection = work.connection();
                let result = send::send_blocks(&work, connection, channel, 0, &|| 1);
                work.lost(connection);
                result
            }
        };
        if let Err(error) = result {
            tracing::info!(peer = peer.name, %error, "data connection");
        }
        self.ended.notify_all();
    }
}

/// A session in the list; dropping it removes the session and closes its connections.
struct Entered {
    server: Arc<Server>,
    token: [u8; 16],
}

impl Drop for Entered {
    fn drop(&mut self) {
        let session = self.server.sessions().get(&self.token).map(|entry| {
            entry.session.end();
            // The control connection goes on. A data connection may wait for a peer that is gone.
            entry.open.close();
            entry.session.clone()
        });
        // The landing holds the lock of the scan until the last data connection has let go of it.
        self.server.wait_for(TAKE_OVER, |_, _| match &session {
            Some(Session::Arrival(arrival)) => Arc::strong_count(arrival) <= 2,
            Some(Session::Work(work)) => Arc::strong_count(work) <= 2,
            None => true,
        });
        if let Some(Session::Arrival(arrival)) = &session {
            arrival.keep();
        }
        drop(session);
        self.server.sessions().remove(&self.token);
        self.server.ended.notify_all();
    }
}

/// The right that a request needs and the peer lacks.
fn not_allowed(request: &Message) -> String {
    let (right, option) = match request {
        Message::Offer { .. } => ("to send scans", "--send"),
        Message::Request { .. } | Message::List => ("to fetch scans", "--fetch"),
        _ => ("to send or to fetch scans", "--send or --fetch"),
    };
    format!(
        "the right {right} is missing there: ask for an invitation made with {option}, and use it once"
    )
}
