//! A TLS connection that carries messages.
//!
//! ```text
//! Channel   messages, and the data that follows some of them
//! pipe      bytes over TLS; each wait has a limit
//! tls       who is at the other end: the keys
//! tcp       congestion control, pacing, state of the connection
//! ```

mod error;
mod losses;
mod pipe;
mod start;
mod tcp;
mod tls;

use std::fmt;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, ServerConnection};

pub use error::ChannelError;
pub use losses::Path;
pub use tcp::WAN;

use crate::identity::{Fingerprint, Identity};
use crate::protocol::{Decoder, Message};
use pipe::Pipe;
use tcp::Link;

/// Time for connecting, and again for the handshake of TLS.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Bytes that are decrypted at once.
const RECORD_BYTES: usize = 16 << 10;

/// The settings of connections.
#[derive(Clone, Debug, Default)]
pub struct LinkSettings {
    /// The congestion control asked for; otherwise the system's; on a WAN CUBIC, and BBR where losses hold that down.
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
    /// All segments sent.
    pub segments: u64,
    /// Bytes per second delivered lately.
    pub delivery_rate: u64,
    /// Why another congestion control is in force than the one that was asked for, or that suits the path.
    pub notice: Option<String>,
}

/// A connection after the handshake.
pub struct Channel {
    pipe: Pipe,
    peer: Fingerprint,
    remote: SocketAddr,
    closer: Closer,
    decoder: Decoder,
    /// The encoded message; kept for its memory.
    head: Vec<u8>,
    record: Box<[u8]>,
}

/// Closes a connection from another thread: a call that waits on it fails at once.
#[derive(Clone, Debug)]
pub struct Closer {
    stream: Arc<TcpStream>,
}

impl Closer {
    /// Closes this socket.
    pub(crate) fn of(stream: &TcpStream) -> std::io::Result<Self> {
        Ok(Self { stream: Arc::new(stream.try_clone()?) })
    }

    /// Closes the connection, both ways. What is on its way may be lost.
    pub fn close(&self) {
        // It may be closed already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

impl Channel {
    /// Connects to a peer that must have this key.
    pub fn connect(
        address: &str,
        identity: &Identity,
        key: Fingerprint,
        settings: &LinkSettings,
    ) -> Result<Self, ChannelError> {
        let own = |source| ChannelError::OwnKey { source };
        let (config, verifier) = tls::client(identity, key).map_err(own)?;
        let link = Link::connect(address, settings, HANDSHAKE)?;
        let lost = |source| ChannelError::Lost { address: address.to_owned(), source };
        let name = ServerName::from(link.stream.peer_addr().map_err(lost)?.ip());
        let tls = ClientConnection::new(Arc::new(config), name).map_err(own)?;
        let pipe = Pipe::handshake(link, tls.into(), address.to_owned(), HANDSHAKE);
        match (verifier.other(), pipe) {
            (Some(found), _) => {
                Err(ChannelError::WrongKey { address: address.to_owned(), known: key, found })
            }
            (None, pipe) => Self::over(pipe?),
        }
    }

    /// Accepts a connection: any client key is accepted, [`peer`](Self::peer) says which. It takes up to ten seconds, so
    /// each connection needs a thread of its own.
    pub fn accept(
        stream: TcpStream,
        identity: &Identity,
        settings: &LinkSettings,
    ) -> Result<Self, ChannelError> {
        Self::accept_within(stream, identity, settings, HANDSHAKE)
    }

    fn accept_within(
        stream: TcpStream,
        identity: &Identity,
        settings: &LinkSettings,
        limit: Duration,
    ) -> Result<Self, ChannelError> {
        let own = |source| ChannelError::OwnKey { source };
        let address =
            stream.peer_addr().map_or_else(|_| "a client".to_owned(), |it| it.to_string());
        let lost = |source| ChannelError::Lost { address: address.clone(), source };
        let link = Link::accepted(stream, settings).map_err(lost)?;
        let config = tls::server(identity).map_err(own)?;
        let tls = ServerConnection::new(Arc::new(config)).map_err(own)?;
        Self::over(Pipe::handshake(link, tls.into(), address, limit)?)
    }

    fn over(pipe: Pipe) -> Result<Self, ChannelError> {
        let address = pipe.address().to_owned();
        let certificate = pipe.certificate();
        let certificate = certificate.ok_or(ChannelError::NoKey { address: address.clone() })?;
        let peer = Fingerprint::of_certificate(certificate)
            .map_err(|source| ChannelError::Tls { address: address.clone(), source })?;
        let lost = |source| ChannelError::Lost { address, source };
        let remote = pipe.link.stream.peer_addr();
        let closer = Closer::of(&pipe.link.stream);
        let (remote, closer) = remote.and_then(|it| Ok((it, closer?))).map_err(lost)?;
        let (decoder, head) = (Decoder::default(), Vec::new());
        let record = vec![0; RECORD_BYTES].into();
        Ok(Self { pipe, peer, remote, closer, decoder, head, record })
    }

    /// The key of the other end.
    pub fn peer(&self) -> Fingerprint {
        self.peer
    }

    /// The address of the other end.
    pub fn address(&self) -> SocketAddr {
        self.remote
    }

    /// Closes the connection from another thread.
    pub fn closer(&self) -> Closer {
        self.closer.clone()
    }

    /// Sends a message.
    pub fn send(&mut self, message: &Message) -> Result<(), ChannelError> {
        self.send_data(message, &[])
    }

    /// Sends a block or probe message and its data.
    ///
    /// It returns when the kernel has all of it. It fails if the other end takes nothing for a minute.
    pub fn send_data(&mut self, message: &Message, data: &[u8]) -> Result<(), ChannelError> {
        assert_eq!(message.data_bytes() as usize, data.len(), "a message states its data");
        self.encode(message)?;
        self.pipe.write(&self.head, data)
    }

    /// Sends a block or probe message without its data, which must follow with [`send_piece`](Self::send_piece).
    pub fn begin_data(&mut self, message: &Message) -> Result<(), ChannelError> {
        self.encode(message)?;
        self.pipe.write(&self.head, &[])
    }

    /// Sends the next piece of the data.
    pub fn send_piece(&mut self, data: &[u8]) -> Result<(), ChannelError> {
        self.pipe.write(&[], data)
    }

    fn encode(&mut self, message: &Message) -> Result<(), ChannelError> {
        self.head.clear();
        let encoded = message.encode(&mut self.head);
        encoded.map_err(|source| self.bad_message(source))?;
        // The answer to a greeting: from now on, all messages may arrive.
        if let Message::Welcome { version, .. } = message {
            self.decoder.agree(*version);
        }
        Ok(())
    }

    /// Returns the next message; `None` if none arrives within this time.
    ///
    /// A part of a message that has arrived is kept for the next call.
    pub fn receive(&mut self, within: Duration) -> Result<Option<Message>, ChannelError> {
        let deadline = Instant::now() + within;
        loop {
            let next = self.decoder.next();
            if let Some(message) = next.map_err(|source| self.bad_message(source))? {
                return Ok(Some(message));
            }
            match self.pipe.read(&mut self.record, deadline)? {
                0 => return Ok(None),
                length => self.decoder.push(&self.record[..length]),
            }
        }
    }

    /// Reads the data that follows a block or probe message, or the next part of it. It fails if the other end sends
    /// nothing for a minute.
    ///
    /// # Panics
    ///
    /// Panics if the message has less data left.
    pub fn receive_data(&mut self, into: &mut [u8]) -> Result<(), ChannelError> {
        let mut at = 0;
        while at < into.len() {
            at += self.receive_some(&mut into[at..])?;
        }
        Ok(())
    }

    /// Reads what has arrived of that data, and waits for some if there is none. Returns the number of bytes.
    ///
    /// # Panics
    ///
    /// Panics if the message has less data left.
    pub fn receive_some(&mut self, into: &mut [u8]) -> Result<usize, ChannelError> {
        let left = self.decoder.data_left() as usize;
        assert!(into.len() <= left, "{} bytes of data are asked for, {left} are left", into.len());
        let arrived = self.decoder.take_data(into);
        if arrived > 0 || into.is_empty() {
            return Ok(arrived);
        }
        let read = self.pipe.read_some(into)?;
        self.decoder.data_read(read as u32);
        Ok(read)
    }

    /// Ends the connection in order: the other end gets all that was sent. Waits for it up to this time.
    pub fn finish(mut self, within: Duration) {
        self.pipe.finish(within);
    }

    /// Sets the most bytes per second, on the live connection.
    pub fn set_rate(&mut self, rate: Option<u64>) {
        self.pipe.link.set_rate(rate);
    }

    /// The connection is one of several on this path. What one of them finds of it, all act on.
    pub fn join(&mut self, path: &Path) {
        self.pipe.link.join(path);
    }

    /// True if the round trip is that of a WAN.
    pub fn is_wan(&self) -> bool {
        self.link().is_some_and(|it| it.least_round_trip > tcp::WAN)
    }

    /// Looks at the connection twice a second, so that its congestion control finds the rate of the path. A sender calls
    /// it before each block. Returns the bytes per second since the last look.
    pub fn tend(&mut self) -> Option<u64> {
        self.pipe.link.tend()
    }

    /// Round trip, congestion control, retransmissions and delivery rate, by the kernel.
    pub fn link(&self) -> Option<LinkStatus> {
        self.pipe.link.status()
    }

    fn bad_message(&self, source: crate::protocol::ProtocolError) -> ChannelError {
        ChannelError::Message { address: self.pipe.address().to_owned(), source }
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel")
            .field("peer", &self.peer)
            .field("remote", &self.remote)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod tests;
