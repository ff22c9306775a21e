//! A PandA over TCP: clients of its two ports.
//!
//! - [`ControlPort`]: captured fields, arming, state of the acquisition
//! - [`DataStream`]: the samples, received directly into their destination
//! - [`capture`]: the capture thread of one PandA, with its account
//!
//! It may open TCP connections. It gives samples in blocks to a [`capture::AcquisitionSink`], and knows no store and no
//! file.

pub mod capture;
mod control;
mod data;

use std::borrow::Cow;
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use fullbore_core::hint::Hint;
use fullbore_formats::panda::{codec, control as lines};
use socket2::{SockRef, TcpKeepalive};

pub use control::ControlPort;
pub use data::{DataStream, Step};

/// Timeouts of requests to a PandA.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For a connection to be accepted.
    pub connect: Duration,
    /// For the answer to a command.
    pub answer: Duration,
    /// For one read of the data port.
    pub quiet: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            connect: Duration::from_secs(5),
            answer: Duration::from_secs(5),
            quiet: Duration::from_millis(100),
        }
    }
}

/// A failed request to a PandA.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The host does not accept the connection.
    #[error("connecting to the PandA at {host} port {port}")]
    Connect {
        /// Its address or name.
        host: String,
        /// The port.
        port: u16,
        /// The reason.
        source: io::Error,
    },
    /// A name without an address.
    #[error("{host} has no address")]
    NoAddress {
        /// The name.
        host: String,
    },
    /// The connection broke.
    #[error("{doing} the PandA at {host}")]
    Connection {
        /// The operation in progress.
        doing: &'static str,
        /// Its address or name.
        host: String,
        /// The reason.
        source: io::Error,
    },
    /// The other side closed the connection.
    #[error("the PandA at {host} closed the connection")]
    Closed {
        /// Its address or name.
        host: String,
    },
    /// No answer.
    #[error("the PandA at {host} did not answer `{request}` within {} s", timeouts.as_secs_f32())]
    Silent {
        /// Its address or name.
        host: String,
        /// The request.
        request: String,
        /// The time waited.
        timeouts: Duration,
    },
    /// Several connections in a row without data.
    #[error("{count} connections in a row to the data port brought no data; the last one: {why}")]
    Fruitless {
        /// The number of connections.
        count: u32,
        /// The end of the last connection.
        why: String,
    },
    /// A frame larger than the buffer that holds uncertified samples.
    #[error("a frame has {bytes} bytes, and block memory has room for frames of {most}")]
    LargeFrame {
        /// The frame's size.
        bytes: u64,
        /// The largest frame that fits.
        most: u64,
    },
    /// The PandA refused the request.
    #[error("the PandA refused `{request}`: {text}")]
    Refused {
        /// The request.
        request: String,
        /// The PandA's answer.
        text: String,
    },
    /// The PandA does not report whether the armed acquisition is over. It is not armed twice.
    #[error(
        "the PandA was armed and the connection was lost; for {} s, `*PCAP.COMPLETION?` and \
         `*PCAP.CAPTURED?` have not shown whether the acquisition is over",
        timeouts.as_secs_f32()
    )]
    Untold {
        /// The time waited.
        timeouts: Duration,
    },
    /// Malformed answers.
    #[error(transparent)]
    Control(#[from] lines::Error),
    /// Malformed data.
    #[error(transparent)]
    Data(#[from] codec::Error),
}

impl Error {
    /// True if an established connection broke, so that the result of the request is unknown.
    pub fn is_of_connection(&self) -> bool {
        matches!(self, Error::Connection { .. } | Error::Closed { .. } | Error::Silent { .. })
    }
}

impl Hint for Error {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Error::Connect { .. } | Error::NoAddress { .. } => {
                "a PandA listens on ports 8888 and 8889; try `ping`, and open its web page"
            }
            Error::Refused { request, .. } if request.contains("PCAP.ARM") => {
                "an acquisition is running, a reader still drains the last one, or no field is captured"
            }
            Error::Fruitless { .. } => {
                "check whether another program reads from it, and open its web page"
            }
            Error::Untold { .. } => {
                "disarm it (`*PCAP.DISARM=`), check its control port, and record again"
            }
            Error::LargeFrame { .. } => "give more block memory with --buffer",
            Error::Data(error) => return error.hint(),
            _ => return None,
        }))
    }
}

/// Connects to the first address of `host` that answers. Each address gets the whole timeout.
pub fn connect(host: &str, port: u16, timeouts: Duration) -> Result<TcpStream, Error> {
    let failed = |source| Error::Connect { host: host.to_owned(), port, source };
    let mut last = None;
    for address in (host, port).to_socket_addrs().map_err(failed)? {
        match TcpStream::connect_timeout(&address, timeouts) {
            Ok(socket) => {
                prepare(&socket).map_err(failed)?;
                return Ok(socket);
            }
            Err(error) => last = Some(error),
        }
    }
    Err(last.map_or_else(|| Error::NoAddress { host: host.to_owned() }, failed))
}

/// A silent PandA and a dead one look alike; keep-alive tells them apart within 30 seconds.
fn prepare(socket: &TcpStream) -> io::Result<()> {
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(10))
        .with_interval(Duration::from_secs(5))
        .with_retries(3);
    SockRef::from(socket).set_tcp_keepalive(&keepalive)?;
    socket.set_nodelay(true)
}

/// True if the read only timed out.
pub fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// The rest of `timeouts` since `begun`, never zero: a timeout of zero would wait for ever.
fn left(timeouts: Duration, begun: Instant) -> Option<Duration> {
    timeouts.checked_sub(begun.elapsed()).filter(|left| !left.is_zero())
}
