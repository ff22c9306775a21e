//! A TLS connection that carries messages.
//!
//! - `tls`: which keys and versions are accepted
//! - `tcp`: the options of the socket
//!
//! Blocking I/O with time limits: a peer that is slow or silent costs a thread, and no longer than the limit.

mod error;
mod tcp;
mod tls;

#[cfg(test)]
mod tests;

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::{ClientConnection, Connection, ServerConnection};

pub use self::error::ChannelError;
pub use self::tcp::{LinkSettings, LinkStatus};
use crate::identity::{Fingerprint, Identity};
use crate::protocol::{Decoder, Message};

/// Time for the connection and the handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// A peer that takes or sends nothing for this long in the middle of a message is gone.
const STALL: Duration = Duration::from_secs(20);

/// Bytes read from the socket at once.
const INPUT_BYTES: usize = 256 << 10;

/// Bytes encrypted before they are written to the socket.
const OUTPUT_BYTES: usize = 256 << 10;

/// Decrypted bytes that are given to the decoder at once.
const PLAIN_BYTES: usize = 16 << 10;

/// A connection after the handshake.
pub struct Channel {
    stream: Arc<TcpStream>,
    tls: Connection,
    input: Input,
    plain: Box<[u8]>,
    decoder: Decoder,
    encoded: Vec<u8>,
    peer: Fingerprint,
    address: SocketAddr,
    congestion: String,
}

/// Bytes from the socket that are not decrypted yet.
struct Input {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel").field("address", &self.address).field("peer", &self.peer).finish()
    }
}

/// Closes a connection from another thread.
#[derive(Clone, Debug)]
pub struct Closer(Arc<TcpStream>);

impl Closer {
    /// Closes the connection: a thread that waits for it fails at once.
    pub fn close(&self) {
        // It may be closed already.
        let _ = self.0.shutdown(Shutdown::Both);
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
        let stream = tcp::connect(address, HANDSHAKE)?;
        let config = tls::client(identity, key)?;
        let tls = ClientConnection::new(config, tls::name())
            .map_err(|error| ChannelError::tls(address, key, error))?;
        let (host, key) = (address.to_owned(), Some(key));
        Self::shake_hands(stream, tls.into(), &host, key, settings)
    }

    /// Accepts a connection: any client key is accepted, [`peer`](Self::peer) says which.
    pub fn accept(
        stream: TcpStream,
        identity: &Identity,
        settings: &LinkSettings,
    ) -> Result<Self, ChannelError> {
        let host = stream.peer_addr().map(|it| it.to_string()).unwrap_or_default();
        stream.set_nonblocking(false).map_err(|source| ChannelError::io(&host, source))?;
        let tls = ServerConnection::new(tls::server(identity)?)
            .map_err(|error| ChannelError::Tls { address: host.clone(), error })?;
        Self::shake_hands(stream, tls.into(), &host, None, settings)
    }

    fn shake_hands(
        stream: TcpStream,
        tls: Connection,
        host: &str,
        key: Option<Fingerprint>,
        settings: &LinkSettings,
    ) -> Result<Self, ChannelError> {
        let io = |source| ChannelError::io(host, source);
        let address = stream.peer_addr().map_err(io)?;
        tcp::prepare(&stream, STALL).map_err(io)?;
        let mut channel = Self {
            stream: Arc::new(stream),
            tls,
            input: Input { bytes: vec![0; INPUT_BYTES].into(), start: 0, end: 0 },
            plain: vec![0; PLAIN_BYTES].into(),
            decoder: Decoder::default(),
            encoded: Vec::new(),
            peer: Fingerprint([0; 32]),
            address,
            congestion: String::new(),
        };
        channel.tls.set_buffer_limit(Some(OUTPUT_BYTES + OUTPUT_BYTES / 8));
        let until = Instant::now() + HANDSHAKE;
        while channel.tls.is_handshaking() {
            channel.flush()?;
            if channel.tls.is_handshaking() {
                let left = until.saturating_duration_since(Instant::now());
                if !channel.fill(left).map_err(|error| error.with_key(host, key))? {
                    return Err(ChannelError::Handshake { address: host.to_owned() });
                }
            }
        }
        channel.flush()?;
        channel.peer = channel.key_of_peer(host)?;
        channel.congestion = tcp::choose_congestion(&channel.stream, settings);
        channel.set_rate(settings.rate);
        Ok(channel)
    }

    fn key_of_peer(&self, host: &str) -> Result<Fingerprint, ChannelError> {
        let certificate = self.tls.peer_certificates().and_then(|all| all.first());
        let key = certificate.and_then(|it| Fingerprint::of_certificate(it).ok());
        key.ok_or_else(|| ChannelError::NoKey { address: host.to_owned() })
    }

    /// The key of the other end.
    pub fn peer(&self) -> Fingerprint {
        self.peer
    }

    /// The address of the other end.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What closes the connection from another thread.
    pub fn closer(&self) -> Closer {
        Closer(self.stream.clone())
    }

    /// Accepts messages of this version from now on.
    pub fn agree(&mut self, version: u16) {
        self.decoder.agree(version);
    }

    /// Sends a message.
    pub fn send(&mut self, message: &Message) -> Result<(), ChannelError> {
        self.begin_data(message)?;
        self.flush()
    }

    /// Sends a block or probe message and its data.
    pub fn send_data(&mut self, message: &Message, data: &[u8]) -> Result<(), ChannelError> {
        self.begin_data(message)?;
        self.send_piece(data)
    }

    /// Begins a block or probe message. Its data follows with [`send_piece`](Self::send_piece).
    pub fn begin_data(&mut self, message: &Message) -> Result<(), ChannelError> {
        let mut encoded = std::mem::take(&mut self.encoded);
        encoded.clear();
        message.encode(&mut encoded);
        let result = self.write(&encoded);
        self.encoded = encoded;
        result
    }

    /// Sends the next piece of the data.
    pub fn send_piece(&mut self, data: &[u8]) -> Result<(), ChannelError> {
        self.write(data)?;
        self.flush()
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), ChannelError> {
        for piece in bytes.chunks(OUTPUT_BYTES) {
            let mut rest = piece;
            while !rest.is_empty() {
                let taken = self.tls.writer().write(rest).map_err(|it| self.failed(it))?;
                rest = &rest[taken..];
                if taken == 0 || !rest.is_empty() {
                    self.flush()?;
                }
            }
            if piece.len() == OUTPUT_BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Writes what is encrypted to the socket.
    fn flush(&mut self) -> Result<(), ChannelError> {
        while self.tls.wants_write() {
            let written = self.tls.write_tls(&mut &*self.stream).map_err(|it| self.failed(it))?;
            if written == 0 {
                return Err(self.closed());
            }
        }
        Ok(())
    }

    /// Returns the next message; `None` if none arrives within this time. Once it has begun to arrive, it must do so
    /// without a long stop.
    pub fn receive(&mut self, within: Duration) -> Result<Option<Message>, ChannelError> {
        let (until, mut heard) = (Instant::now() + within, Instant::now());
        loop {
            loop {
                if let Some(message) = self.decoder.next()? {
                    return Ok(Some(message));
                }
                match self.read_plain()? {
                    0 => break,
                    _ => heard = Instant::now(),
                }
            }
            let left = until.saturating_duration_since(Instant::now());
            if !self.fill(left)? {
                if self.decoder.is_within_message() && heard.elapsed() > STALL {
                    return Err(self.stalled());
                }
                return Ok(None);
            }
        }
    }

    /// Reads the data that follows a block or probe message: at most what is left of it.
    pub fn receive_data(&mut self, into: &mut [u8]) -> Result<(), ChannelError> {
        let mut filled = self.decoder.take_data(into);
        while filled < into.len() {
            match self.tls.reader().read(&mut into[filled..]) {
                Ok(0) => return Err(self.closed()),
                Ok(read) => {
                    self.decoder.data_read(read as u32);
                    filled += read;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !self.fill(STALL)? {
                        return Err(self.stalled());
                    }
                }
                Err(error) => return Err(self.failed(error)),
            }
        }
        Ok(())
    }

    /// Gives decrypted bytes to the decoder; returns how many.
    fn read_plain(&mut self) -> Result<usize, ChannelError> {
        match self.tls.reader().read(&mut self.plain) {
            Ok(0) => Err(self.closed()),
            Ok(read) => {
                self.decoder.push(&self.plain[..read]);
                Ok(read)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Reads from the socket, if something arrives within this time, and decrypts it. Returns false if nothing arrived.
    fn fill(&mut self, within: Duration) -> Result<bool, ChannelError> {
        if self.input.start == self.input.end {
            if !self.is_readable(within)? {
                return Ok(false);
            }
            let read = (&*self.stream).read(&mut self.input.bytes).map_err(|it| self.failed(it))?;
            (self.input.start, self.input.end) = (0, read);
            if read == 0 {
                return Err(self.closed());
            }
        }
        let mut bytes = &self.input.bytes[self.input.start..self.input.end];
        let taken = self.tls.read_tls(&mut bytes).map_err(|it| self.failed(it))?;
        self.input.start += taken;
        let processed = self.tls.process_new_packets();
        // An alert says why the handshake ends; the peer may be gone.
        let flushed = self.flush();
        processed.map_err(|error| ChannelError::Tls { address: self.address.to_string(), error })?;
        flushed?;
        Ok(true)
    }

    fn is_readable(&self, within: Duration) -> Result<bool, ChannelError> {
        let until = Instant::now() + within;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let (tv_sec, tv_nsec) = (left.as_secs() as i64, left.subsec_nanos().into());
            let fd = PollFd::new(&*self.stream, PollFlags::IN);
            match poll(&mut [fd], Some(&Timespec { tv_sec, tv_nsec })) {
                Ok(ready) => return Ok(ready > 0),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(self.failed(error.into())),
            }
        }
    }

    /// Sets the most bytes per second, on the live connection.
    pub fn set_rate(&self, rate: Option<u64>) {
        tcp::set_rate(&self.stream, rate);
    }

    /// Round trip, congestion control, retransmissions and delivery rate, by the kernel.
    pub fn link(&self) -> Option<LinkStatus> {
        tcp::status(&self.stream, &self.congestion)
    }

    fn failed(&self, source: io::Error) -> ChannelError {
        ChannelError::io(&self.address.to_string(), source)
    }

    fn closed(&self) -> ChannelError {
        ChannelError::Closed { address: self.address.to_string() }
    }

    fn stalled(&self) -> ChannelError {
        ChannelError::Stalled { address: self.address.to_string(), seconds: STALL.as_secs() }
    }
}
