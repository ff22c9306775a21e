//! The end that connects: sends scans to a server or fetches them from it, and goes on after any interruption.

use std::cell::Cell;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fullbore_core::name::ScanName;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_store::copies::Receipt;
use fullbore_store::landing::{Origin, Sealed};
use serde::{Serialize, Serializer};

use crate::channel::{Channel, Closer, LinkSettings, LinkStatus, Path};
use crate::connections::Connections;
pub use crate::connections::FIRST_ON_WAN;
use crate::error::TransferError;
use crate::governor::{Allowance, Governor, Limits, Reason};
use crate::identity::folder::Claim;
use crate::identity::{self, Destination, Fingerprint, Identity, Peer, Peers};
use crate::link::{self, Probed};
use crate::open_connections::{OpenConnection, OpenConnections};
use crate::outgoing::Outgoing;
use crate::protocol::{Message, Role};
use crate::receive::{self, Arrival, Intake, Offered, Receiving, Taken, Terms};
use crate::send::{self, Sending, Work};
use crate::session::{ACCEPT_PATIENCE, GREETING, greet, random_token, refuse, silent, unexpected};

/// The first pause after a failed attempt. Each further one is twice as long, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// Time between two decisions about the number of connections.
const PERIOD: Duration = Duration::from_secs(1);

/// Data that one connection carries as soon as two do: the handshake of a second one takes longer.
const OF_ONE_CONNECTION: u64 = 8 << 20;

/// Time for which a control connection is kept for the next transfer. The other end closes one after 60 s.
const KEPT: Duration = Duration::from_secs(20);

/// Control connections that are kept.
const MOST_KEPT: usize = 8;

/// Data connections of one transfer, at most.
pub const MOST_CONNECTIONS: u16 = 32;

/// The settings of the connecting end.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// The members of the disk set.
    pub members: Vec<PathBuf>,
    /// The directory of keys and peers.
    pub config: PathBuf,
    /// The number of data connections; otherwise as many as help.
    pub connections: Option<u16>,
    /// The user's limits.
    pub limits: Limits,
    /// The settings of connections.
    pub link: LinkSettings,
    /// Time without progress after which it gives up.
    pub patience: Duration,
}

/// The progress of a transfer.
#[derive(Clone, Debug)]
pub enum Event {
    /// A scan is being sent.
    Sending(Sending, Link),
    /// A scan is being received.
    Receiving(Receiving, Link),
    /// No attempt begins now.
    Waiting(Reason),
    /// An attempt failed, and the next one begins after a pause.
    Retry {
        /// The reason.
        why: String,
        /// The pause.
        pause: Duration,
    },
}

/// The link of a transfer.
#[derive(Clone, Debug, Default)]
pub struct Link {
    /// The number of data connections.
    pub connections: u16,
    /// The state of the control connection.
    pub status: Option<LinkStatus>,
}

/// The result of a transfer.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The receipt.
    pub receipt: Receipt,
    /// Bytes of blocks that were sent or received in all attempts, repetitions included.
    pub carried_bytes: u64,
    /// Blocks that the source could not read.
    pub missing_blocks: u64,
    /// The number of attempts.
    pub attempts: u32,
}

/// The result of a fetch.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// The scan.
    pub scan: ScanName,
    /// Its blocks, bytes and digest.
    pub sealed: Sealed,
    /// Bytes of blocks that arrived in all attempts, repetitions included.
    pub carried_bytes: u64,
    /// The number of attempts.
    pub attempts: u32,
}

/// The rate of a link with a number of connections.
#[derive(Clone, Debug, Serialize)]
pub struct LinkRate {
    /// The number of connections.
    pub connections: u16,
    /// Bytes per second that arrived.
    pub rate: u64,
    /// The smallest round trip.
    #[serde(serialize_with = "as_seconds")]
    pub round_trip: Duration,
    /// The share of segments that were sent again.
    pub resent_share: f64,
    /// The congestion control in force.
    pub congestion: String,
}

fn as_seconds<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(time.as_secs_f64())
}

/// A connecting end with its keys.
pub struct Client {
    identity: Identity,
    destination: Destination,
    settings: ClientSettings,
    governor: Arc<Governor>,
    /// Control connections without a transfer, the name of the other end, and the time since when.
    kept: Mutex<Vec<(Channel, String, Instant)>>,
}

impl Client {
    /// Prepares transfers with a server.
    pub fn new(destination: Destination, settings: ClientSettings) -> Result<Self, TransferError> {
        let governor = Arc::new(Governor::start_on(settings.limits.clone(), &settings.members));
        Self::with_governor(destination, settings, governor)
    }

    /// The same under a governor that other transfers may share. The limits of the settings do not count.
    pub fn with_governor(
        destination: Destination,
        settings: ClientSettings,
        governor: Arc<Governor>,
    ) -> Result<Self, TransferError> {
        let identity = Identity::load_or_create(&settings.config)?;
        Ok(Self { identity, destination, settings, governor, kept: Mutex::default() })
    }

    /// Connects and greets. The server becomes known by an invitation.
    fn connect(&self, role: Role) -> Result<(Channel, String), TransferError> {
        let invitation = self.destination.invitation.as_ref();
        let (address, key) = match invitation {
            Some(invitation) => (invitation.address.clone(), invitation.key),
            None => self.known()?,
        };
        let mut channel = Channel::connect(&address, &self.identity, key, &self.settings.link)?;
        let secret = invitation.map(|invitation| invitation.secret);
        let name = greet(&mut channel, role, secret, &address)?;
        if secret.is_some() {
            identity::remember(&self.settings.config, key, &name, &address)?;
        }
        // People here know it by the name that it has here.
        let peers = Peers::load(&self.settings.config)?;
        let name = peers.find(&key).map_or(name, |peer| peer.name.clone());
        Ok((channel, name))
    }

    /// A control connection: one that is kept, or a new one.
    fn control(&self) -> Result<(Channel, String), TransferError> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(_, _, since)| since.elapsed() < KEPT);
        let newest = kept.pop();
        drop(kept);
        match newest {
            Some((channel, peer, _)) => Ok((channel, peer)),
            None => self.connect(Role::Control),
        }
    }

    /// Keeps the control connection of a transfer that is complete.
    fn keep(&self, channel: Channel, peer: String) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < MOST_KEPT {
            kept.push((channel, peer, Instant::now()));
        }
    }

    /// Uses the invitation: the server becomes known here, under this name if one is given, and this host there.
    pub fn accept(&self, name: Option<&str>) -> Result<Peer, TransferError> {
        let directory = &self.settings.config;
        // A name that cannot be used must not cost the invitation.
        let name = name.map(|name| identity::check_new_name(directory, name)).transpose()?;
        let (channel, known) = self.connect(Role::Control)?;
        if let Some(name) = name {
            return Ok(identity::rename(directory, &channel.peer().to_string(), &name)?);
        }
        let peers = Peers::load(directory)?;
        peers.find(&channel.peer()).cloned().ok_or(TransferError::UnknownSite { address: known })
    }

    /// Makes this process the one that sends a scan there.
    fn claim(&self, scan: &ScanName) -> Result<Claim, TransferError> {
        let key = match &self.destination.invitation {
            Some(invitation) => invitation.key,
            None => self.known()?.1,
        };
        let place = self.settings.config.join("sending").join(format!("{scan}@{}", key.hex()));
        Claim::take(&place)?.ok_or_else(|| TransferError::AlreadySending { scan: scan.clone() })
    }

    /// The address and the key of a known server, by its address or its name.
    fn known(&self) -> Result<(String, Fingerprint), TransferError> {
        let address = &self.destination.address;
        let peers = Peers::load(&self.settings.config)?;
        let Some(peer) = peers.of(address) else {
            return Err(TransferError::UnknownSite { address: address.clone() });
        };
        Ok((peer.address.clone().unwrap_or_else(|| address.clone()), peer.fingerprint))
    }

    /// Sends a scan, and keeps the receipt beside it.
    pub fn send(
        &self,
        scan: &ScanName,
        stop: &StopHandle,
        tell: &mut dyn FnMut(&Event),
    ) -> Result<Outcome, TransferError> {
        let _claim = self.claim(scan)?;
        let mut carried = 0;
        self.again_and_again(stop, tell, |attempts, tell| {
            let opened = Outgoing::open(&self.settings.members, scan);
            let outgoing = opened.map_err(|error| (error.into(), 0))?;
            let work = Work::new(outgoing, self.governor.clone());
            let result = self.send_once(&work, stop, tell);
            let progress = work.progress();
            carried += work.carried_bytes();
            let missing_blocks = work.missing_blocks();
            match result {
                Ok(receipt) => {
                    Ok(Outcome { receipt, carried_bytes: carried, missing_blocks, attempts })
                }
                Err(error) => Err((error, progress.durable_bytes)),
            }
        })
    }

    fn send_once(
        &self,
        work: &Work,
        stop: &StopHandle,
        tell: &mut dyn FnMut(&Event),
    ) -> Result<Receipt, TransferError> {
        let (mut channel, peer) = self.control()?;
        let pool = DataConnections::new(self.settings.connections, channel.is_wan());
        let receipt = std::thread::scope(|scope| {
            let (token, mut growth) = (Cell::new(None), Growth::default());
            let mut accepted = |given, most| {
                token.set(Some(given));
                pool.limit(most);
            };
            let result =
                work.control(&mut channel, &peer, stop, &mut accepted, &mut |sending, status| {
                    let Some(token) = token.get() else { return };
                    if !sending.live && sending.progress.bytes <= OF_ONE_CONNECTION {
                        pool.limit(1);
                    }
                    if growth.observe(sending.progress.taken_bytes, is_free(sending)) {
                        pool.step(growth.rate);
                    }
                    for number in pool.missing() {
                        let pool = &pool;
                        scope.spawn(move || self.keep_sending(work, token, number, pool));
                    }
                    let link = Link { connections: pool.wanted(), status };
                    tell(&Event::Sending(sending.clone(), link));
                });
            pool.close();
            result
        })?;
        self.keep(channel, peer);
        send::keep_receipt(&self.settings.members, &work.manifest().scan, &receipt)?;
        Ok(receipt)
    }

    /// Keeps one data connection busy, and makes it again if it is lost.
    fn keep_sending(&self, work: &Work, token: [u8; 16], number: u16, pool: &DataConnections) {
        let mut pause = FIRST_PAUSE;
        while !work.is_over() {
            let connection = work.connection();
            let sent = self.connect(Role::Data(token)).and_then(|(mut channel, _)| {
                pause = FIRST_PAUSE;
                let _open = pool.add(channel.closer());
                send::send_blocks(work, connection, &mut channel, number, &|| pool.wanted())
            });
            work.lost(connection);
            if let Err(error) = sent {
                tracing::info!(number, %error, "data connection");
                pool.rest(pause);
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }

    /// Fetches a scan of the server: its name, or an unambiguous beginning of it.
    pub fn fetch(
        &self,
        scan: &str,
        stop: &StopHandle,
        tell: &mut dyn FnMut(&Event),
    ) -> Result<Fetched, TransferError> {
        let mut carried = 0;
        self.again_and_again(stop, tell, |attempts, tell| {
            let mut arrived = 0;
            let result = self.fetch_once(scan, stop, &mut |event| {
                if let Event::Receiving(state, _) = event {
                    arrived = state.bytes;
                }
                tell(event);
            });
            carried += arrived;
            match result {
                Ok((scan, sealed)) => {
                    Ok(Fetched { scan, sealed, carried_bytes: carried, attempts })
                }
                Err(error) => Err((error, carried)),
            }
        })
    }

    fn fetch_once(
        &self,
        scan: &str,
        stop: &StopHandle,
        tell: &mut dyn FnMut(&Event),
    ) -> Result<(ScanName, Sealed), TransferError> {
        while self.governor.now() == Allowance::Pause(Reason::OutsideWindow) {
            tell(&Event::Waiting(Reason::OutsideWindow));
            if stop.wait(Duration::from_secs(1)) {
                return Err(TransferError::Stopped);
            }
        }
        let (mut channel, peer) = self.control()?;
        let (manifest, offered) = self.request(&mut channel, &peer, scan)?;
        let members = receive::open_members(&self.settings.members)?;
        let origin = Origin { host: peer.clone(), key: channel.peer().hex() };
        let arrival = match receive::take(&members, &manifest, offered, &origin) {
            Ok(Taken::Arrival(arrival)) => arrival,
            Ok(Taken::Complete(manifest, sealed)) => {
                channel.send(&receive::receipt(manifest.uuid, &sealed))?;
                self.keep(channel, peer);
                return Ok((manifest.scan, sealed));
            }
            Err((refusal, error)) => {
                refuse(&mut channel, refusal, receive::refusal::text(&error));
                return Err(error);
            }
        };
        let pool = DataConnections::new(self.settings.connections, channel.is_wan());
        if !offered.live && offered.bytes <= OF_ONE_CONNECTION {
            pool.limit(1);
        }
        let token = random_token();
        let sealed = std::thread::scope(|scope| {
            let (mut growth, arrival) = (Growth::default(), &*arrival);
            let mut told = |state: &Receiving, status| {
                if growth.observe(state.bytes, true) {
                    pool.step(growth.rate);
                }
                for number in pool.missing() {
                    let (pool, peer) = (&pool, peer.as_str());
                    scope.spawn(move || self.keep_receiving(arrival, token, peer, number, pool));
                }
                let link = Link { connections: pool.wanted(), status };
                tell(&Event::Receiving(state.clone(), link));
            };
            let connections = self.settings.connections.unwrap_or(MOST_CONNECTIONS);
            let terms = Terms { token, connections, expected: offered.bytes };
            let result = arrival.control(&mut channel, &peer, terms, stop, &mut told);
            pool.close();
            result
        });
        match &sealed {
            Ok(_) => self.keep(channel, peer),
            Err(_) => arrival.keep(),
        }
        Ok((arrival.scan.clone(), sealed?))
    }

    /// Asks for a scan, and returns the manifest and the size that are offered.
    fn request(
        &self,
        channel: &mut Channel,
        peer: &str,
        scan: &str,
    ) -> Result<(Vec<u8>, Offered), TransferError> {
        channel.send(&Message::Request { scan: scan.to_owned() })?;
        let mut answer = channel.receive(ACCEPT_PATIENCE)?;
        // What was on its way at the end of the transfer before.
        while let Some(Message::Ping { .. } | Message::Pong { .. }) = answer {
            answer = channel.receive(ACCEPT_PATIENCE)?;
        }
        match answer {
            Some(Message::Offer { manifest, bytes, live }) => {
                Ok((manifest, Offered { bytes, live }))
            }
            Some(Message::Refuse { refusal, text }) => {
                Err(TransferError::Refused { peer: peer.to_owned(), refusal, text })
            }
            Some(other) => Err(unexpected(peer, &other)),
            None => Err(silent(peer, ACCEPT_PATIENCE)),
        }
    }

    fn keep_receiving(
        &self,
        arrival: &Arrival,
        token: [u8; 16],
        peer: &str,
        number: u16,
        pool: &DataConnections,
    ) {
        let mut pause = FIRST_PAUSE / 5;
        while !arrival.is_over() {
            let received = self.connect(Role::Data(token)).and_then(|(mut channel, _)| {
                let _open = pool.add(channel.closer());
                let intake = Intake { governor: &self.governor, limited: true };
                receive::receive_blocks(arrival, &mut channel, peer, intake)
            });
            if let Err(error) = received {
                tracing::info!(number, %error, "data connection");
                pool.rest(pause);
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }

    /// The names of the scans that the server lets this end fetch.
    pub fn list(&self) -> Result<Vec<String>, TransferError> {
        let (mut channel, peer) = self.control()?;
        channel.send(&Message::List)?;
        match channel.receive(GREETING)? {
            Some(Message::Listing { json }) => {
                let names = serde_json::from_slice(&json).map_err(|error| {
                    let (peer, why) = (peer.clone(), error.to_string());
                    TransferError::Protocol { peer, why }
                });
                self.keep(channel, peer);
                names
            }
            Some(Message::Refuse { refusal, text }) => {
                Err(TransferError::Refused { peer, refusal, text })
            }
            Some(other) => Err(unexpected(&peer, &other)),
            None => Err(silent(&peer, GREETING)),
        }
    }

    /// Measures the link with this many connections at once: data from memory, which the other end discards.
    pub fn measure(
        &self,
        connections: u16,
        time: Duration,
        path: &Path,
    ) -> Result<LinkRate, TransferError> {
        let mut channels = Vec::new();
        for _ in 0..connections {
            let (mut channel, peer) = self.connect(Role::Control)?;
            channel.join(path);
            channels.push((channel, peer));
        }
        let begun = Instant::now();
        let probed: Vec<Result<Probed, TransferError>> = std::thread::scope(|scope| {
            let probes: Vec<_> = channels
                .iter_mut()
                .map(|(channel, peer)| scope.spawn(|| link::probe(channel, time, peer)))
                .collect();
            // A panic of the thread is a fault of the program.
            probes.into_iter().map(|it| it.join().expect("a probe does not panic")).collect()
        });
        let probed = probed.into_iter().collect::<Result<Vec<Probed>, _>>()?;
        let longest = probed.iter().map(|it| it.time).max().unwrap_or_else(|| begun.elapsed());
        let bytes: u64 = probed.iter().map(|it| it.bytes).sum();
        let status = probed.iter().filter_map(|it| it.status.as_ref());
        let (resent, segments) = status.clone().fold((0, 0), |(resent, segments), it| {
            (resent + it.retransmitted, segments + it.segments)
        });
        Ok(LinkRate {
            connections,
            rate: (bytes as f64 / longest.as_secs_f64().max(1e-9)) as u64,
            round_trip: status.clone().map(|it| it.least_round_trip).min().unwrap_or_default(),
            resent_share: resent as f64 / segments.max(1) as f64,
            congestion: status.map(|it| it.congestion.clone()).next().unwrap_or_default(),
        })
    }

    /// Makes attempts until one succeeds, fails for good, or nothing has come forward for too long.
    fn again_and_again<T>(
        &self,
        stop: &StopHandle,
        tell: &mut dyn FnMut(&Event),
        mut attempt: impl FnMut(u32, &mut dyn FnMut(&Event)) -> Result<T, (TransferError, u64)>,
    ) -> Result<T, TransferError> {
        let (mut pause, mut farthest, mut since) = (FIRST_PAUSE, 0, Instant::now());
        for attempts in 1.. {
            let (error, reached) = match attempt(attempts, tell) {
                Ok(done) => return Ok(done),
                Err(failed) => failed,
            };
            if reached > farthest {
                (farthest, since, pause) = (reached, Instant::now(), FIRST_PAUSE);
            }
            if !error.is_passing() || since.elapsed() > self.settings.patience {
                return Err(error);
            }
            tell(&Event::Retry { why: error.to_string(), pause });
            if stop.wait(pause) {
                return Err(TransferError::Stopped);
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        unreachable!("attempts are endless")
    }
}

/// True if the link alone limits the rate: the number of connections can be judged by it.
fn is_free(sending: &Sending) -> bool {
    let progress = &sending.progress;
    let waiting = progress.bytes.saturating_sub(progress.had_bytes + progress.taken_bytes);
    sending.allowance == Allowance::Go(None) && waiting > 64 << 20
}

/// The data connections of one attempt.
struct DataConnections {
    number: Mutex<Connections>,
    most: AtomicU16,
    /// The number of threads so far.
    threads: AtomicU16,
    open: OpenConnections,
    closed: StopHandle,
}

impl DataConnections {
    fn new(chosen: Option<u16>, is_wan: bool) -> Self {
        let number = match chosen {
            Some(number) => Connections::fixed(number),
            None => Connections::new(MOST_CONNECTIONS, is_wan),
        };
        Self {
            number: Mutex::new(number),
            most: AtomicU16::new(MOST_CONNECTIONS),
            threads: AtomicU16::new(0),
            open: OpenConnections::default(),
            closed: StopHandle::default(),
        }
    }

    /// The other end takes this many.
    fn limit(&self, most: u16) {
        self.most.store(most.max(1), Ordering::SeqCst);
    }

    /// The number that should send.
    fn wanted(&self) -> u16 {
        let number = self.number.lock().unwrap_or_else(PoisonError::into_inner).number();
        number.min(self.most.load(Ordering::SeqCst))
    }

    fn step(&self, rate: f64) {
        self.number.lock().unwrap_or_else(PoisonError::into_inner).step(rate);
    }

    /// The numbers of the connections that have no thread yet.
    fn missing(&self) -> Range<u16> {
        let wanted = self.wanted();
        let threads = self.threads.fetch_max(wanted, Ordering::SeqCst);
        threads..wanted.max(threads)
    }

    /// Keeps a connection closable until the result is dropped, which closes it.
    fn add(&self, closer: Closer) -> OpenConnection {
        let open = self.open.add(closer.clone());
        if self.closed.is_requested() {
            closer.close();
        }
        open
    }

    /// Waits before the next attempt, unless the transfer is over.
    fn rest(&self, pause: Duration) {
        self.closed.wait(pause);
    }

    /// Closes all connections: threads that wait for a dead peer go on.
    fn close(&self) {
        self.closed.stop();
        self.open.close();
    }
}

/// Measures the rate over periods in which only the link is the limit.
#[derive(Debug)]
struct Growth {
    since: Instant,
    bytes: u64,
    rate: f64,
}

impl Default for Growth {
    fn default() -> Self {
        Self { since: Instant::now(), bytes: 0, rate: 0.0 }
    }
}

impl Growth {
    /// Takes the number of bytes so far. Returns true if a period is over, with its rate.
    fn observe(&mut self, bytes: u64, free: bool) -> bool {
        let elapsed = self.since.elapsed();
        if free && elapsed < PERIOD {
            return false;
        }
        self.rate = bytes.saturating_sub(self.bytes) as f64 / elapsed.as_secs_f64().max(1e-9);
        (self.since, self.bytes) = (Instant::now(), bytes);
        free
    }
}
