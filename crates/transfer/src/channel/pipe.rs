//! Bytes over TLS on a socket that never blocks, with a time limit on each wait.
//!
//! While an end waits until it can send, it takes in what the other end sends, up to [`MOST_EARLY_BYTES`]. So two ends
//! that send at the same time do not wait for each other for ever.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::Connection;

use super::ChannelError;
use super::tcp::Link;
use super::tls::ALPN;

/// Bytes that are encrypted before they are given to the kernel. With more than 128 KiB, the allocator of glibc returns
/// the memory of each piece to the kernel and faults it in again: a fifth more CPU time.
const PIECE_BYTES: usize = 64 << 10;
/// Bytes that are taken in while sending.
const MOST_EARLY_BYTES: usize = 4 << 20;
/// Time without any progress in the middle of a message, after which the other end is given up. The disks of a receiver
/// may keep it from reading for some time.
pub(super) const STALL: Duration = Duration::from_secs(60);

/// A TLS connection that carries bytes.
pub(super) struct Pipe {
    pub link: Link,
    tls: Connection,
    address: String,
    /// Bytes that arrived while this end was sending; those before `early_at` are taken.
    early: Vec<u8>,
    early_at: usize,
    /// The other end has said that nothing follows, or it is gone.
    ended: bool,
    stall: Duration,
}

impl Pipe {
    /// Performs the handshake before the deadline.
    pub fn handshake(
        link: Link,
        tls: Connection,
        address: String,
        limit: Duration,
    ) -> Result<Self, ChannelError> {
        let (early, stall) = (Vec::new(), STALL);
        let mut pipe = Self { link, tls, address, early, early_at: 0, ended: false, stall };
        let deadline = Instant::now() + limit;
        while pipe.tls.is_handshaking() || pipe.tls.wants_write() {
            if Instant::now() >= deadline {
                return Err(pipe.no_answer(limit));
            }
            let wanted = match pipe.tls.wants_write() {
                true if pipe.write_once()? => continue,
                true => PollFlags::OUT,
                false if pipe.fill()? => continue,
                false => PollFlags::IN,
            };
            pipe.wait(wanted, deadline)?;
        }
        if pipe.tls.alpn_protocol() != Some(ALPN) {
            return Err(ChannelError::NotFullbore { address: pipe.address.clone() });
        }
        pipe.tls.set_buffer_limit(None);
        Ok(pipe)
    }

    /// The certificate of the other end.
    pub fn certificate(&self) -> Option<&rustls::pki_types::CertificateDer<'static>> {
        self.tls.peer_certificates()?.first()
    }

    /// Host and port, for messages.
    pub fn address(&self) -> &str {
        &self.address
    }

    #[cfg(test)]
    pub fn set_stall(&mut self, stall: Duration) {
        self.stall = stall;
    }

    /// Sends a head and data: both are encrypted in pieces, each of which is given to the kernel at once.
    pub fn write(&mut self, head: &[u8], data: &[u8]) -> Result<(), ChannelError> {
        for part in [head, data] {
            for piece in part.chunks(PIECE_BYTES) {
                self.tls.writer().write_all(piece).map_err(|source| self.lost(source))?;
                if part.len() > PIECE_BYTES {
                    self.flush()?;
                }
            }
        }
        self.flush()
    }

    fn flush(&mut self) -> Result<(), ChannelError> {
        let mut deadline = Instant::now() + self.stall;
        while self.tls.wants_write() {
            if self.write_once()? {
                deadline = Instant::now() + self.stall;
                continue;
            }
            if Instant::now() >= deadline {
                return Err(self.stalled("takes"));
            }
            let held = self.early.len() - self.early_at;
            let room = held < MOST_EARLY_BYTES && !self.ended;
            let both = PollFlags::OUT | PollFlags::IN;
            let ready = self.wait(if room { both } else { PollFlags::OUT }, deadline)?;
            if room && ready.intersects(PollFlags::IN) {
                self.take_early()?;
            }
        }
        Ok(())
    }

    /// Gives the kernel what is encrypted; false if it takes nothing now.
    fn write_once(&mut self) -> Result<bool, ChannelError> {
        match self.tls.write_tls(&mut &self.link.stream) {
            Ok(0) => Err(self.lost(io::ErrorKind::WriteZero.into())),
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(error) => {
                // The other end may have said why it closed.
                let _ = self.take_early();
                Err(self.lost(error))
            }
        }
    }

    /// Takes in what has arrived.
    fn take_early(&mut self) -> Result<(), ChannelError> {
        self.fill()?;
        self.early.drain(..self.early_at);
        self.early_at = 0;
        // An end of the connection is reported by the next read.
        let read = self.tls.reader().read_to_end(&mut self.early);
        self.ended = !read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
        Ok(())
    }

    /// Reads bytes into the memory of the caller; 0 if none arrive before the deadline.
    pub fn read(&mut self, into: &mut [u8], deadline: Instant) -> Result<usize, ChannelError> {
        if self.early_at < self.early.len() {
            let length = into.len().min(self.early.len() - self.early_at);
            into[..length].copy_from_slice(&self.early[self.early_at..][..length]);
            self.early_at += length;
            if self.early_at == self.early.len() {
                (self.early, self.early_at) = (Vec::new(), 0);
            }
            return Ok(length);
        }
        let mut filled = false;
        loop {
            match self.tls.reader().read(into) {
                Ok(0) => return Err(ChannelError::Closed { address: self.address.clone() }),
                Ok(length) => return Ok(length),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(self.lost(error)),
            }
            // Records without data count as nothing.
            if filled && Instant::now() >= deadline {
                return Ok(0);
            }
            filled = self.fill()?;
            if filled {
                continue;
            }
            if Instant::now() >= deadline {
                return Ok(0);
            }
            self.wait(PollFlags::IN, deadline)?;
        }
    }

    /// Reads some bytes, as long as the other end does not stop sending.
    pub fn read_some(&mut self, into: &mut [u8]) -> Result<usize, ChannelError> {
        match self.read(into, Instant::now() + self.stall)? {
            0 => Err(self.stalled("sends")),
            length => Ok(length),
        }
    }

    /// Decrypts what has arrived; false if nothing has. The end of the connection counts as an arrival.
    fn fill(&mut self) -> Result<bool, ChannelError> {
        match self.tls.read_tls(&mut &self.link.stream) {
            Ok(0) if self.tls.is_handshaking() => {
                return Err(ChannelError::ClosedEarly { address: self.address.clone() });
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(true),
            Err(error) => return Err(self.lost(error)),
        }
        let processed = self.tls.process_new_packets();
        if processed.is_err() || self.tls.wants_write() && !self.tls.is_handshaking() {
            // An alert, or the answer to a change of keys. What the kernel does not take now goes with the next message.
            let _ = self.tls.write_tls(&mut &self.link.stream);
        }
        processed.map_err(|error| ChannelError::of_tls(&self.address, error))?;
        Ok(true)
    }

    /// Waits until the socket is ready, a signal arrives, or the deadline is reached.
    fn wait(&self, wanted: PollFlags, deadline: Instant) -> Result<PollFlags, ChannelError> {
        let left = deadline.saturating_duration_since(Instant::now());
        let most = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let mut sockets = [PollFd::new(&self.link.stream, wanted)];
        match poll(&mut sockets, Some(&most)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(sockets[0].revents()),
            Err(errno) => Err(self.lost(errno.into())),
        }
    }

    /// Says that nothing follows, then waits until the other end has taken everything and closes too. Whatever still
    /// arrives is discarded. Without this, data on its way may be lost when the socket is closed.
    pub fn finish(&mut self, within: Duration) {
        let deadline = Instant::now() + within;
        self.tls.send_close_notify();
        while self.tls.wants_write() && Instant::now() < deadline {
            match self.write_once() {
                Ok(true) => {}
                Ok(false) if self.wait(PollFlags::OUT, deadline).is_ok() => {}
                _ => return,
            }
        }
        let _ = self.link.stream.shutdown(Shutdown::Write);
        let mut discarded = vec![0; 16 << 10];
        while Instant::now() < deadline {
            if !matches!(self.read(&mut discarded, deadline), Ok(1..)) {
                return;
            }
        }
    }

    fn lost(&self, source: io::Error) -> ChannelError {
        ChannelError::Lost { address: self.address.clone(), source }
    }

    fn no_answer(&self, limit: Duration) -> ChannelError {
        ChannelError::NoAnswer { address: self.address.clone(), seconds: limit.as_secs() }
    }

    fn stalled(&self, what: &'static str) -> ChannelError {
        let seconds = self.stall.as_secs();
        ChannelError::Stalled { address: self.address.clone(), what, seconds }
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        // Half of a record cannot be followed by anything.
        if !self.tls.wants_write() && !self.tls.is_handshaking() {
            self.tls.send_close_notify();
            let _ = self.tls.write_tls(&mut &self.link.stream);
        }
    }
}
