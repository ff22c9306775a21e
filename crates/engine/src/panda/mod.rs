//! A PandA over TCP: its two ports as this side uses them, and a simulated one to use them on.
//!
//! - [`Control`]: what is captured, arming, and what became of it
//! - [`DataStream`]: the samples, received straight to where they shall lie
//! - [`capture`]: the thread that records one, with its books
//! - [`live`]: its samples into HDF5 files while they come
//! - [`record`]: both joined
//! - [`several`]: several of them in step
//! - [`server`]: a PandA that is made up, for tests, demonstrations and those who have none

pub mod capture;
mod control;
mod data;
#[cfg(feature = "hdf5")]
pub mod live;
#[cfg(feature = "hdf5")]
pub mod record;
pub mod server;
#[cfg(feature = "hdf5")]
pub mod several;

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use fullbore_core::format::panda::{codec, control as lines};
use socket2::{SockRef, TcpKeepalive};

pub use control::Control;
pub use data::{DataStream, Step};

/// How long the other side may take.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// To accept a connection.
    pub connect: Duration,
    /// To answer a command.
    pub answer: Duration,
    /// The longest that a look for data waits before it says that all is quiet.
    pub quiet: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Patience {
            connect: Duration::from_secs(5),
            answer: Duration::from_secs(5),
            quiet: Duration::from_millis(100),
        }
    }
}

/// Something that a PandA did not do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody there.
    #[error("connecting to the PandA at {host} port {port}")]
    Connect {
        /// Its address or name.
        host: String,
        /// The port.
        port: u16,
        /// Why not.
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
        /// What was being done.
        doing: &'static str,
        /// Its address or name.
        host: String,
        /// What happened.
        source: io::Error,
    },
    /// The other side closed.
    #[error("the PandA at {host} closed the connection")]
    Closed {
        /// Its address or name.
        host: String,
    },
    /// No answer.
    #[error("the PandA at {host} did not answer `{request}` within {} s", patience.as_secs_f32())]
    Silent {
        /// Its address or name.
        host: String,
        /// What was asked.
        request: String,
        /// How long was waited.
        patience: Duration,
    },
    /// Connections that bring nothing, one after the other.
    #[error(
        "nothing came over {count} connections to the data port, one after the other; of the last: {why}"
    )]
    Fruitless {
        /// How many.
        count: u32,
        /// What became of the last one.
        why: String,
    },
    /// More at once than can be held until it is certified.
    #[error("a frame of {bytes} bytes came, and block memory holds {most} of one frame")]
    LargeFrame {
        /// How large it is.
        bytes: u64,
        /// The largest that there is room for.
        most: u64,
    },
    /// It will not do it.
    #[error("the PandA refused `{request}`: {text}")]
    Refused {
        /// What was asked.
        request: String,
        /// What it said.
        text: String,
    },
    /// It does not tell whether what we armed is over, and it is not armed twice.
    #[error(
        "the PandA was armed, the connection was lost, and for {} s it has not told by `*PCAP.COMPLETION?` and \
         `*PCAP.CAPTURED?` whether that is over",
        patience.as_secs_f32()
    )]
    Untold {
        /// How long was waited.
        patience: Duration,
    },
    /// One PandA given twice: an acquisition is recorded once.
    #[error("{first} and {second} are one PandA")]
    Same {
        /// As given.
        first: String,
        /// As given.
        second: String,
    },
    /// Answers that make no sense.
    #[error(transparent)]
    Control(#[from] lines::Error),
    /// Data that makes no sense.
    #[error(transparent)]
    Data(#[from] codec::Error),
}

impl Error {
    /// Whether a connection that stood broke, so that nobody knows whether what was asked was done.
    pub fn is_of_connection(&self) -> bool {
        matches!(self, Error::Connection { .. } | Error::Closed { .. } | Error::Silent { .. })
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Error::Connect { .. } | Error::NoAddress { .. } => {
                Some("a PandA listens on ports 8888 and 8889; try `ping`, and look at its web page")
            }
            Error::Refused { request, .. } if request.contains("PCAP.ARM") => Some(
                "an acquisition is still going on, a reader still drains the last one, or nothing is captured",
            ),
            Error::Fruitless { .. } => {
                Some("see whether another program reads from it, and how it is by its web page")
            }
            Error::Untold { .. } => {
                Some("disarm it (`*PCAP.DISARM=`), look at its control port, and record again")
            }
            Error::Same { .. } => {
                Some("give each PandA once; its samples can go into one stream of a recording")
            }
            Error::LargeFrame { .. } => Some("give more block memory with --buffer"),
            Error::Data(error) => error.hint(),
            _ => None,
        }
    }
}

/// Connects to the first address of `host` that answers, each given the whole patience.
fn connect(host: &str, port: u16, patience: Duration) -> Result<TcpStream, Error> {
    let failed = |source| Error::Connect { host: host.to_owned(), port, source };
    let mut last = None;
    for address in (host, port).to_socket_addrs().map_err(failed)? {
        match TcpStream::connect_timeout(&address, patience) {
            Ok(socket) => {
                prepare(&socket).map_err(failed)?;
                return Ok(socket);
            }
            Err(error) => last = Some(error),
        }
    }
    Err(last.map_or_else(|| Error::NoAddress { host: host.to_owned() }, failed))
}

/// A quiet PandA and a dead one look alike; keep-alive tells them apart within half a minute.
fn prepare(socket: &TcpStream) -> io::Result<()> {
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(10))
        .with_interval(Duration::from_secs(5))
        .with_retries(3);
    SockRef::from(socket).set_tcp_keepalive(&keepalive)?;
    socket.set_nodelay(true)
}

/// Whether a look for data only came too early.
fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// An error with its causes, in one line.
pub(crate) fn with_cause(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", with_cause(source)),
        None => error.to_string(),
    }
}

/// What is left of `patience` since `begun`, never nothing: a timeout of zero would wait for ever.
fn left(patience: Duration, begun: Instant) -> Option<Duration> {
    patience.checked_sub(begun.elapsed()).filter(|left| !left.is_zero())
}

#[cfg(test)]
mod tests;
