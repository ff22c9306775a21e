//! The options of a socket: congestion control, pacing, limits.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use fullbore_linux::sys::tcp;
use socket2::{SockRef, TcpKeepalive};

use super::ChannelError;
use crate::connections::WAN;

/// Bytes that may wait unsent in the kernel. A larger buffer would go on sending for half a second after a pause.
const NOT_SENT: u32 = 256 << 10;

/// Time without an answer after which the kernel asks whether the other end is there.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// The settings of connections.
#[derive(Clone, Debug, Default)]
pub struct LinkSettings {
    /// The congestion control asked for; otherwise BBR on a WAN and the system's on a LAN.
    pub congestion: Option<String>,
    /// The most bytes per second of one connection.
    pub rate: Option<u64>,
}

/// The state of a connection, by `TCP_INFO`.
#[derive(Clone, Debug, Default)]
pub struct LinkStatus {
    /// Smoothed round trip.
    pub round_trip: Duration,
    /// Smallest round trip seen.
    pub least_round_trip: Duration,
    /// Congestion control in force.
    pub congestion: String,
    /// Segments sent again.
    pub retransmitted: u64,
    /// All segments of data sent.
    pub segments: u64,
    /// Bytes per second delivered lately.
    pub delivery_rate: u64,
}

/// Connects to the first address of a host that answers.
pub(super) fn connect(address: &str, within: Duration) -> Result<TcpStream, ChannelError> {
    let host = address.to_owned();
    let addresses = match address.to_socket_addrs() {
        Ok(addresses) => addresses,
        Err(source) => return Err(ChannelError::Resolve { address: host, source }),
    };
    let until = Instant::now() + within;
    let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for candidate in addresses {
        let left = until.saturating_duration_since(Instant::now());
        match TcpStream::connect_timeout(&candidate, left.max(Duration::from_millis(1))) {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = error,
        }
    }
    Err(ChannelError::Connect { address: host, source: failure })
}

/// Sets the options that every connection has. The buffers are left to the kernel, which tunes them.
pub(super) fn prepare(stream: &TcpStream, stall: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(stall))?;
    let socket = SockRef::from(stream);
    let probes = TcpKeepalive::new().with_time(KEEP_ALIVE).with_interval(KEEP_ALIVE);
    socket.set_tcp_keepalive(&probes)?;
    socket.set_tcp_user_timeout(Some(2 * stall))?;
    tcp::set_not_sent_low_water(&socket, NOT_SENT)
}

/// Chooses the congestion control by the round trip of the handshake; returns what is in force.
pub(super) fn choose_congestion(stream: &TcpStream, settings: &LinkSettings) -> String {
    let socket = SockRef::from(stream);
    let round_trip = tcp::connection(stream).map(|it| it.round_trip).unwrap_or_default();
    let wanted = match &settings.congestion {
        Some(name) => Some(name.as_str()),
        None => (round_trip > WAN).then_some("bbr"),
    };
    if let Some(name) = wanted
        && let Err(error) = socket.set_tcp_congestion(name.as_bytes())
    {
        tracing::warn!(name, %error, "congestion control not available; the system's is used");
    }
    let name = socket.tcp_congestion().unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned()
}

/// Sets the most bytes per second.
pub(super) fn set_rate(stream: &TcpStream, rate: Option<u64>) {
    if let Err(error) = tcp::set_pacing_rate(stream, rate) {
        tracing::warn!(%error, "rate not set");
    }
}

/// The state of a connection; `None` if the kernel does not tell.
pub(super) fn status(stream: &TcpStream, congestion: &str) -> Option<LinkStatus> {
    let state = tcp::connection(stream).ok()?;
    Some(LinkStatus {
        round_trip: state.round_trip,
        least_round_trip: state.least_round_trip,
        congestion: congestion.to_owned(),
        retransmitted: state.retransmitted,
        segments: state.segments,
        delivery_rate: state.delivery_rate,
    })
}
