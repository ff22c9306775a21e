//! The TCP connection under TLS: congestion control, pacing, and what the kernel tells.
//!
//! The sizes of the socket buffers are left to the kernel, which adapts them to the path.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use fullbore_linux::sys::tcp;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

use super::losses::{Losses, Path};
use super::start::{self, Start};
use super::{ChannelError, LinkSettings, LinkStatus};

/// Round trips above this are those of a WAN.
pub const WAN: Duration = Duration::from_millis(2);
/// The fewest and the most bytes that may wait unsent in the kernel. The far end is silent 50 ms after a pause begins.
const NOT_SENT_BYTES: RangeInclusive<u64> = 256 << 10..=8 << 20;
/// The time that they last at the rate of the connection. A sender reads its next block meanwhile: if nothing waits, the
/// path idles, and the congestion control takes the sender for the limit.
const NOT_SENT_TIME: Duration = Duration::from_millis(20);
/// Time without an acknowledgement after which the kernel gives a connection up.
const DEAD: Duration = Duration::from_secs(60);
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(15))
    .with_interval(Duration::from_secs(5))
    .with_retries(6);

/// A connection, and what could not be set on it.
#[derive(Debug)]
pub(super) struct Link {
    pub stream: TcpStream,
    notice: Option<String>,
    /// The most bytes per second that the sender wants, and that the start of the connection allows.
    limits: [Option<u64>; 2],
    start: Start,
    /// Finds whether another congestion control is better; none if the user has chosen one.
    losses: Option<Losses>,
    path: Path,
    looked: Instant,
    /// Bytes acknowledged until then, and the time that they took.
    acknowledged: u64,
    busy: Duration,
}

impl Link {
    /// Connects to `host:port` within this time, trying each address of the host.
    pub fn connect(
        address: &str,
        settings: &LinkSettings,
        limit: Duration,
    ) -> Result<Self, ChannelError> {
        let deadline = Instant::now() + limit;
        let resolve = |source| ChannelError::Resolve { address: address.to_owned(), source };
        let mut failed = resolve(io::ErrorKind::NotFound.into());
        let addresses = addresses(address).map_err(resolve)?;
        for (number, &at) in addresses.iter().enumerate() {
            // An address that does not answer leaves time for the next ones.
            let left = deadline.saturating_duration_since(Instant::now());
            let share = left / (addresses.len() - number) as u32;
            if share.is_zero() {
                break;
            }
            match connect_to(at, settings, share) {
                Ok(link) => return Ok(link),
                Err(source) => failed = connect_error(address, source, limit),
            }
        }
        Err(failed)
    }

    /// Takes over a connection that was accepted.
    pub fn accepted(stream: TcpStream, settings: &LinkSettings) -> io::Result<Self> {
        let notice = settings.congestion.as_deref().and_then(|name| ask_for(&stream, name));
        let mut link = Self::new(stream, notice);
        link.prepare(settings)?;
        Ok(link)
    }

    fn new(stream: TcpStream, notice: Option<String>) -> Self {
        Self {
            stream,
            notice,
            limits: [None; 2],
            start: Start::default(),
            losses: None,
            path: Path::default(),
            looked: Instant::now(),
            acknowledged: 0,
            busy: Duration::ZERO,
        }
    }

    fn prepare(&mut self, settings: &LinkSettings) -> io::Result<()> {
        self.stream.set_nonblocking(true)?;
        self.stream.set_nodelay(true)?;
        let socket = SockRef::from(&self.stream);
        socket.set_tcp_keepalive(&KEEPALIVE)?;
        socket.set_tcp_user_timeout(Some(DEAD))?;
        socket.set_tcp_notsent_lowat(*NOT_SENT_BYTES.start() as u32)?;
        if settings.congestion.is_none() {
            self.choose_congestion();
        }
        if settings.rate.is_some() {
            self.limits[0] = settings.rate;
            tcp::set_pacing_rate(&self.stream, settings.rate)?;
        }
        Ok(())
    }

    /// Chooses CUBIC if the handshake of TCP took as long as on a WAN. The system may have another one for all.
    fn choose_congestion(&mut self) {
        self.losses = Some(Losses::default());
        let round_trip = tcp::connection(&self.stream).map_or(Duration::ZERO, |it| it.round_trip);
        if round_trip > WAN {
            // A kernel without it has a similar one for all.
            let _ = ask_for(&self.stream, "cubic");
        }
    }

    /// The connection is one of several on this path.
    pub fn join(&mut self, path: &Path) {
        self.path = path.clone();
        self.follow_path();
    }

    /// Looks whether losses hold this connection down.
    fn look_for_losses(&mut self, state: &tcp::Connection, rate: u64) {
        let Some(losses) = &mut self.losses else { return };
        let limit = self.limits.iter().flatten().min();
        let waits = state.not_sent > 0 && limit.is_none_or(|&limit| rate < limit / 10 * 9);
        let is_wan = state.least_round_trip > WAN;
        if is_wan && losses.step(state.round_trip, state.least_round_trip, waits) {
            self.path.set_lossy();
        }
        self.follow_path();
    }

    /// Takes BBR on a lossy path, unless the user has chosen a congestion control.
    fn follow_path(&mut self) {
        if self.path.is_lossy() && self.losses.take().is_some() {
            self.notice = ask_for(&self.stream, "bbr");
        }
    }

    /// Sets the most bytes per second.
    pub fn set_rate(&mut self, rate: Option<u64>) {
        self.limits[0] = rate;
        self.limit();
    }

    /// Measures the rate twice a second, and sets the limits that follow from it. Returns the bytes per second of the time
    /// in which there was something to send; none after a time with little to send, which says nothing of the path.
    pub fn tend(&mut self) -> Option<u64> {
        let elapsed = self.looked.elapsed();
        if elapsed < start::PERIOD {
            return None;
        }
        self.looked = Instant::now();
        let state = tcp::connection(&self.stream).ok()?;
        let bytes = state.acknowledged.saturating_sub(self.acknowledged);
        let busy = state.busy.saturating_sub(self.busy);
        (self.acknowledged, self.busy) = (state.acknowledged, state.busy);
        let rate = (busy > elapsed / 10).then(|| (bytes as f64 / busy.as_secs_f64()) as u64);
        let _ = SockRef::from(&self.stream).set_tcp_notsent_lowat(not_sent(rate.unwrap_or(0)));
        self.look_for_losses(&state, rate.unwrap_or(0));
        let limit = self.start.step(rate, tcp::is_bbr_starting(&self.stream));
        if limit != self.limits[1] {
            self.limits[1] = limit;
            self.limit();
        }
        rate
    }

    fn limit(&self) {
        let rate = self.limits.iter().flatten().copied().min();
        // It was possible before, or the kernel has no pacing: then the rate stays what it is.
        if let Err(error) = tcp::set_pacing_rate(&self.stream, rate) {
            tracing::warn!(%error, "SO_MAX_PACING_RATE");
        }
    }

    /// The state of the connection.
    pub fn status(&self) -> Option<LinkStatus> {
        let state = tcp::connection(&self.stream).ok()?;
        let congestion = SockRef::from(&self.stream).tcp_congestion().unwrap_or_default();
        let name: Vec<u8> = congestion.into_iter().take_while(|byte| *byte != 0).collect();
        Some(LinkStatus {
            round_trip: state.round_trip,
            least_round_trip: state.least_round_trip,
            congestion: String::from_utf8_lossy(&name).into_owned(),
            retransmitted: state.retransmitted,
            segments: state.segments,
            delivery_rate: state.delivery_rate,
            notice: self.notice.clone(),
        })
    }
}

/// Bytes that may wait unsent, at a rate in bytes per second.
fn not_sent(rate: u64) -> u32 {
    let bytes = (rate as f64 * NOT_SENT_TIME.as_secs_f64()) as u64;
    bytes.clamp(*NOT_SENT_BYTES.start(), *NOT_SENT_BYTES.end()) as u32
}

fn connect_to(at: SocketAddr, settings: &LinkSettings, limit: Duration) -> io::Result<Link> {
    let socket = Socket::new(Domain::for_address(at), Type::STREAM, Some(Protocol::TCP))?;
    let notice = settings.congestion.as_deref().and_then(|name| ask_for(&socket, name));
    socket.connect_timeout(&at.into(), limit)?;
    let mut link = Link::new(socket.into(), notice);
    link.prepare(settings)?;
    Ok(link)
}

/// Asks for a congestion control. Without it the connection works too, and the result says why it is not in force.
fn ask_for(socket: &impl std::os::fd::AsFd, name: &str) -> Option<String> {
    let error = SockRef::from(socket).set_tcp_congestion(name.as_bytes()).err()?;
    let reason = match error.kind() {
        io::ErrorKind::NotFound => {
            format!("the kernel does not have it: load the module tcp_{name}")
        }
        io::ErrorKind::PermissionDenied => {
            "it is not in net.ipv4.tcp_allowed_congestion_control".to_owned()
        }
        _ => error.to_string(),
    };
    Some(format!("congestion control {name} is not used: {reason}"))
}

fn addresses(address: &str) -> io::Result<Vec<SocketAddr>> {
    let (host, port) = address.rsplit_once(':').ok_or(io::ErrorKind::InvalidInput)?;
    let port: u16 = port.parse().map_err(|_| io::ErrorKind::InvalidInput)?;
    // The resolver knows IPv6 addresses, and the zones of link-local ones, without brackets.
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    Ok((host, port).to_socket_addrs()?.collect())
}

fn connect_error(address: &str, source: io::Error, limit: Duration) -> ChannelError {
    let address = address.to_owned();
    match source.kind() {
        io::ErrorKind::ConnectionRefused => ChannelError::Refused { address },
        io::ErrorKind::TimedOut => ChannelError::NoAnswer { address, seconds: limit.as_secs() },
        _ => ChannelError::Connect { address, source },
    }
}
