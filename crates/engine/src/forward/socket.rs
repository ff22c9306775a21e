//! The sockets of destinations: datagrams, or a connection, plain or with TLS 1.3.

use std::io::{self, IoSlice, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;

use fullbore_linux::sys::send::{Destination, Packet, Sender};
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::target::ForwardTarget;
use super::{ForwardError, LOOK, RETRY, Shared, tls};

/// Opens sockets to one destination.
#[derive(Clone)]
pub(super) struct Connector {
    pub target: ForwardTarget,
    tls: Option<Arc<ClientConfig>>,
}

/// A socket to a destination.
pub(super) enum Socket {
    Udp { sender: Box<Sender>, numbered: bool },
    Connection(Box<dyn Write + Send>),
}

/// The result of sending frames.
#[derive(Default)]
pub(super) struct Passed {
    pub sent: u64,
    pub refused: u64,
    pub unreachable: u64,
    /// The reason for which the destination must be reached anew.
    pub lost: Option<io::Error>,
}

impl Connector {
    /// Reads the certificates that the destination may have.
    pub fn new(target: ForwardTarget) -> Result<Self, ForwardError> {
        let tls = match &target {
            ForwardTarget::Tcp { tls: Some(trust), .. } => Some(tls::config(trust)?),
            _ => None,
        };
        Ok(Self { target, tls })
    }

    pub fn connect(&self) -> io::Result<Socket> {
        match &self.target {
            ForwardTarget::Udp { to, numbered } => {
                let sender = Destination::of(to).and_then(|it| Sender::connect(&it));
                let sender = sender.map_err(io::Error::other)?;
                Ok(Socket::Udp { sender: Box::new(sender), numbered: *numbered })
            }
            ForwardTarget::Tcp { host, port, .. } => {
                let stream = reach(host, *port)?;
                let connection: Box<dyn Write + Send> = match &self.tls {
                    Some(config) => Box::new(encrypted(stream, host, config)?),
                    None => Box::new(with_patience(stream)?),
                };
                Ok(Socket::Connection(connection))
            }
        }
    }
}

impl Socket {
    /// Sends some frames. `number` is the packet number of the first one.
    pub fn pass(&mut self, frames: &[&[u8]], number: u64, shared: &Shared) -> Passed {
        match self {
            Self::Udp { sender, numbered } => datagrams(sender, frames, number, *numbered),
            Self::Connection(stream) => {
                let mut passed = Passed::default();
                for frame in frames {
                    if let Err(error) = write(stream, frame, shared) {
                        passed.lost = Some(error);
                        break;
                    }
                    passed.sent += 1;
                }
                passed
            }
        }
    }
}

fn datagrams(sender: &mut Sender, frames: &[&[u8]], number: u64, numbered: bool) -> Passed {
    let numbers: Vec<[u8; 8]> = (number..).take(frames.len()).map(u64::to_le_bytes).collect();
    let head = if numbered { size_of::<u64>() } else { 0 };
    let packets: Vec<Packet<'_>> = numbers
        .iter()
        .zip(frames)
        .map(|(number, frame)| [IoSlice::new(&number[..head]), IoSlice::new(frame)])
        .collect();
    let before = sender.tally();
    let lost = sender.send(&packets).err().map(io::Error::other);
    let after = sender.tally();
    let sent = after.sent - before.sent;
    Passed {
        sent,
        // An error of the socket refuses what it did not take.
        refused: frames.len() as u64 - sent,
        unreachable: after.unreachable - before.unreachable,
        lost,
    }
}

/// Connects within a second.
fn reach(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = io::ErrorKind::NotFound.into();
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, RETRY) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn with_patience(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_write_timeout(Some(LOOK))?;
    Ok(stream)
}

/// Makes a TLS connection: each step of the handshake within a second.
fn encrypted(
    mut stream: TcpStream,
    host: &str,
    config: &Arc<ClientConfig>,
) -> io::Result<Encrypted> {
    let name = host.to_owned().try_into().map_err(io::Error::other)?;
    let mut tls = ClientConnection::new(config.clone(), name).map_err(io::Error::other)?;
    stream.set_read_timeout(Some(RETRY))?;
    stream.set_write_timeout(Some(RETRY))?;
    while tls.is_handshaking() {
        tls.complete_io(&mut stream)?;
    }
    Ok(Encrypted(StreamOwned::new(tls, with_patience(stream)?)))
}

/// A TLS connection that tells its other end when it is over.
struct Encrypted(StreamOwned<ClientConnection, TcpStream>);

impl Write for Encrypted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Drop for Encrypted {
    fn drop(&mut self) {
        self.0.conn.send_close_notify();
        // An end that takes nothing learns it from the end of the connection.
        let _ = self.0.flush();
    }
}

/// Writes a whole frame, however slowly it is taken, until everything is given up.
fn write(stream: &mut impl Write, mut frame: &[u8], shared: &Shared) -> io::Result<()> {
    while !frame.is_empty() {
        match patiently(shared, || stream.write(frame))? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            taken => frame = &frame[taken..],
        }
    }
    patiently(shared, || stream.flush())
}

fn patiently<T>(shared: &Shared, mut step: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match step() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error)
                if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
                    && !shared.is_over() => {}
            done => return done,
        }
    }
}
