//! The data port of a PandA: text goes to the decoder, payload directly to its destination.

use std::io::{self, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use fullbore_core::panda::PandaSource;
use fullbore_formats::panda::{Decoder, Event, Want};

use super::{Error, Timeouts, connect, is_timeout, left};

/// Buffer size for text: a header, or the head of the next frame.
const STAGING_BYTES: usize = 4096;

/// The result of one read of the data port.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// A decoded event.
    Event(Event),
    /// The number of payload bytes that were written to the beginning of the buffer.
    Payload(usize),
    /// No data arrived within the timeout.
    Quiet,
    /// The other side has closed.
    Closed,
}

/// A connection to the data port.
#[derive(Debug)]
pub struct DataStream {
    host: String,
    options: &'static str,
    socket: TcpStream,
    decoder: Decoder,
    /// Bytes received and not yet decoded.
    staging: Vec<u8>,
    from: usize,
    /// The end of a frame, reported after its last bytes.
    pending: Option<Event>,
}

impl DataStream {
    /// Connects and requests the stream that `source` describes. The first event is `Ready`.
    pub fn connect(source: &PandaSource, timeouts: Timeouts) -> Result<Self, Error> {
        let mut socket = connect(&source.host, source.data_port, timeouts.connect)?;
        let host = source.host.clone();
        socket
            .set_read_timeout(Some(timeouts.quiet))
            .and_then(|()| socket.write_all(source.options().as_bytes()))
            .map_err(|source| Error::Connection {
                doing: "greeting",
                host: host.clone(),
                source,
            })?;
        Ok(DataStream {
            host,
            options: source.options().trim_end(),
            socket,
            decoder: Decoder::new(),
            staging: Vec::with_capacity(STAGING_BYTES),
            from: 0,
            pending: None,
        })
    }

    /// Bytes left of the current frame's payload; 0 while text is expected.
    pub fn wants_payload(&self) -> u64 {
        match self.decoder.want() {
            Want::Payload { bytes } if self.pending.is_none() => bytes,
            _ => 0,
        }
    }

    /// Waits until the server has accepted the options. The next event repeats this.
    pub fn wait_until_ready(&mut self, timeouts: Duration) -> Result<(), Error> {
        let begun = Instant::now();
        loop {
            // Only text precedes the first header, so no room for payload is needed.
            match self.next(&mut [])? {
                Step::Event(event) => {
                    self.pending = Some(event);
                    return Ok(());
                }
                Step::Closed => return Err(Error::Closed { host: self.host.clone() }),
                Step::Quiet | Step::Payload(_) => {}
            }
            if left(timeouts, begun).is_none() {
                let (host, request) = (self.host.clone(), self.options.to_owned());
                return Err(Error::Silent { host, request, timeouts });
            }
        }
    }

    /// Waits for the next event. Payload is written to the beginning of `room`, which must not be empty while payload
    /// is expected.
    pub fn next(&mut self, room: &mut [u8]) -> Result<Step, Error> {
        loop {
            if let Some(event) = self.pending.take() {
                return Ok(Step::Event(event));
            }
            match self.decoder.want() {
                Want::Payload { bytes } => return self.payload(bytes, room),
                Want::Text { at_most } => {
                    let (taken, event) = self.decoder.feed(&self.staging[self.from..])?;
                    self.from += taken;
                    if let Some(event) = event {
                        return Ok(Step::Event(event));
                    }
                    if let Want::Text { .. } = self.decoder.want()
                        && let Some(step) = self.receive_text(at_most)?
                    {
                        return Ok(step);
                    }
                }
            }
        }
    }

    /// True during an acquisition.
    pub fn in_acquisition(&self) -> bool {
        self.decoder.in_acquisition()
    }

    /// The address of the other side.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.socket.peer_addr().ok()
    }

    /// Closes the connection for its reader.
    pub fn close(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    fn receive_text(&mut self, at_most: usize) -> Result<Option<Step>, Error> {
        self.staging.resize(at_most.clamp(1, STAGING_BYTES), 0);
        self.from = 0;
        let received = self.socket.read(&mut self.staging);
        self.staging.truncate(*received.as_ref().unwrap_or(&0));
        self.step(received, |_| None)
    }

    fn payload(&mut self, wanted: u64, room: &mut [u8]) -> Result<Step, Error> {
        assert!(!room.is_empty(), "payload is wanted, and there is no room for it");
        let most = room.len().min(usize::try_from(wanted).unwrap_or(usize::MAX));
        let staged = &self.staging[self.from..];
        if !staged.is_empty() {
            let taken = staged.len().min(most);
            room[..taken].copy_from_slice(&staged[..taken]);
            self.from += taken;
            return Ok(self.taken(taken));
        }
        // The last bytes of a frame are read together with the head of the next one, if it has arrived.
        let head = if most as u64 == wanted { 8 } else { 0 };
        self.staging.resize(head, 0);
        self.from = 0;
        let received = self.socket.read_vectored(&mut [
            IoSliceMut::new(&mut room[..most]),
            IoSliceMut::new(&mut self.staging),
        ]);
        let bytes = *received.as_ref().unwrap_or(&0);
        self.staging.truncate(bytes.saturating_sub(most));
        let step = self.step(received, |stream| Some(stream.taken(bytes.min(most))))?;
        Ok(step.unwrap_or(Step::Quiet))
    }

    fn taken(&mut self, bytes: usize) -> Step {
        self.pending = self.decoder.payload_taken(bytes as u64);
        Step::Payload(bytes)
    }

    fn step(
        &mut self,
        received: io::Result<usize>,
        came: impl FnOnce(&mut Self) -> Option<Step>,
    ) -> Result<Option<Step>, Error> {
        match received {
            Ok(0) => Ok(Some(Step::Closed)),
            Ok(_) => Ok(came(self)),
            Err(error) if is_timeout(&error) => Ok(Some(Step::Quiet)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Some(Step::Quiet)),
            Err(source) => {
                Err(Error::Connection { doing: "listening to", host: self.host.clone(), source })
            }
        }
    }
}

impl AsFd for DataStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
