//! The frames of a TCP connection, as a port receives them.
//!
//! The connection is read only while blocks are free, so the sender waits when the sink is slow: nothing is lost on the
//! way. Losses within the sender show in the counter of its frames. When the connection ends, the source is over.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut, Read};
use std::net::{TcpStream, ToSocketAddrs};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use fullbore_formats::framing::{Framing, FramingError, LONGEST_FRAME};
use fullbore_linux::sys::receive::Received;

use super::input::DatagramInput;

/// Bytes of one read: they stay in the CPU's cache until they are copied to their slots.
const PIECE: usize = 1 << 20;

/// The longest wait for one address of the server.
const CONNECT: Duration = Duration::from_secs(5);

/// The longest wait for bytes. Commands wait as long.
const IDLE: Duration = Duration::from_millis(2);

/// A connection to a server that sends frames.
pub struct TcpInput {
    stream: TcpStream,
    server: String,
    framing: Framing,
    buffer: Vec<u8>,
    /// Bytes of the buffer that are valid.
    filled: usize,
    /// The frames in the buffer, in order.
    queue: VecDeque<Range<usize>>,
    /// The end of the last of them.
    framed: usize,
    frames: u64,
    /// A length after the last frame that no frame has.
    failed: Option<FramingError>,
    ended: bool,
    emptied: bool,
    told: bool,
}

impl TcpInput {
    /// Connects to `host:port`.
    pub fn connect(server: &str, framing: Framing) -> io::Result<Self> {
        let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in server.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, CONNECT) {
                Ok(stream) => return Self::of_stream(stream, server, framing),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    fn of_stream(stream: TcpStream, server: &str, framing: Framing) -> io::Result<Self> {
        stream.set_read_timeout(Some(IDLE))?;
        Ok(Self {
            stream,
            server: server.to_owned(),
            framing,
            buffer: vec![0; PIECE + LONGEST_FRAME + 8],
            filled: 0,
            queue: VecDeque::new(),
            framed: 0,
            frames: 0,
            failed: None,
            ended: false,
            emptied: false,
            told: false,
        })
    }

    /// Reads once. Keeps the part of a frame that is already there.
    fn read(&mut self) -> io::Result<()> {
        self.buffer.copy_within(self.framed..self.filled, 0);
        (self.filled, self.framed) = (self.filled - self.framed, 0);
        let end = self.buffer.len();
        match self.stream.read(&mut self.buffer[self.filled..end]) {
            Ok(0) => self.ended = true,
            Ok(read) => self.filled += read,
            Err(error) => match error.kind() {
                io::ErrorKind::Interrupted
                | io::ErrorKind::WouldBlock
                | io::ErrorKind::TimedOut => {}
                _ => return Err(error),
            },
        }
        Ok(())
    }
}

impl DatagramInput for TcpInput {
    fn receive(
        &mut self,
        slices: &mut [IoSliceMut<'_>],
        per_message: usize,
        received: &mut [Received],
    ) -> io::Result<usize> {
        let mut count = 0;
        for (message, parts) in received.iter_mut().zip(slices.chunks_exact_mut(per_message)) {
            let Some(frame) = self.queue.pop_front() else { break };
            let mut rest = &self.buffer[frame];
            *message = Received { bytes: rest.len(), segment: None, sender: None };
            for part in parts {
                let (now, later) = rest.split_at(rest.len().min(part.len()));
                part[..now.len()].copy_from_slice(now);
                rest = later;
            }
            count += 1;
        }
        self.frames += count as u64;
        self.emptied = self.queue.is_empty();
        Ok(count)
    }

    fn emptied(&self) -> bool {
        self.emptied
    }

    fn drops(&self) -> io::Result<u64> {
        Ok(0)
    }

    fn has_drops(&self) -> bool {
        false
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn read_ahead(&mut self) -> io::Result<()> {
        if !self.queue.is_empty() || self.ended {
            return Ok(());
        }
        // The frames before a wrong length have been received by now.
        if let Some(error) = self.failed {
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        self.read()?;
        self.failed = loop {
            let frame = match self.framing.next(&self.buffer[self.framed..self.filled]) {
                Ok(Some(frame)) => frame,
                Ok(None) => break None,
                Err(error) => break Some(error),
            };
            let start = self.framed;
            self.framed += frame.end;
            // A length of zero keeps the connection alive.
            if !frame.is_empty() {
                self.queue.push_back(start + frame.start..start + frame.end);
            }
        };
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.queue.is_empty() && self.ended
    }

    fn take_warnings(&mut self) -> Vec<String> {
        if !self.is_over() || std::mem::replace(&mut self.told, true) {
            return Vec::new();
        }
        let (server, frames, left) = (&self.server, self.frames, self.filled - self.framed);
        let within = match left {
            0 => String::new(),
            left => format!(", within a frame of which {left} bytes had come"),
        };
        vec![format!("{server} ended the connection after {frames} frames{within}")]
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use super::*;

    /// The frames that a port receives from a server that sends these pieces and ends the connection.
    fn received(framing: Framing, pieces: &[&[u8]]) -> (Vec<Vec<u8>>, io::Result<()>, Vec<String>) {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap().to_string();
        let mut input = TcpInput::connect(&address, framing).unwrap();
        let (sender, _) = server.accept().unwrap();
        sender.set_nodelay(true).unwrap();
        let mut frames = Vec::new();
        let mut result = Ok(());
        let mut pieces = pieces.iter();
        let mut sender = Some((sender, ()));
        while result.is_ok() && !input.is_over() {
            match pieces.next() {
                Some(piece) => sender.as_mut().unwrap().0.write_all(piece).unwrap(),
                None => drop(sender.take()),
            }
            result = input.read_ahead();
            let mut slots = [[0; 64], [0; 64]];
            loop {
                let [first, second] = &mut slots;
                let mut slices = [IoSliceMut::new(first), IoSliceMut::new(second)];
                let mut messages = [Received { bytes: 0, segment: None, sender: None }; 2];
                let count = input.receive(&mut slices, 1, &mut messages).unwrap();
                let taken = slots.iter().zip(&messages).take(count);
                frames.extend(taken.map(|(slot, message)| slot[..message.bytes].to_vec()));
                if count == 0 {
                    break;
                }
            }
        }
        (frames, result, input.take_warnings())
    }

    #[test]
    fn frames_in_pieces_are_received_and_the_end_is_told() {
        let (frames, result, warnings) =
            received(Framing::Fixed(3), &[b"a", b"aab", b"bbcccdddeee", b"f"]);
        assert_eq!(frames, [b"aaa", b"bbb", b"ccc", b"ddd", b"eee"]);
        assert!(result.is_ok());
        let told = "ended the connection after 5 frames, within a frame of which 1 bytes had come";
        assert!(warnings[0].contains(told), "{warnings:?}");
    }

    #[test]
    fn frames_behind_their_lengths_are_received_up_to_a_wrong_length() {
        let framing = Framing::prefixed("2:be").unwrap();
        let (frames, result, warnings) = received(framing, &[b"\0\x03abc\0\0\0", b"\x01d\xFF\xFF"]);
        assert_eq!(frames, [&b"abc"[..], b"d"]);
        assert!(result.unwrap_err().to_string().contains("65535 bytes"));
        assert!(warnings.is_empty());
    }
}
