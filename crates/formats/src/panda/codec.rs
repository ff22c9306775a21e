//! Streaming decoder of the data port: bytes in, events out, without copies of payload.
//!
//! ```text
//! OK ──► header ──► BIN length ──► payload ──► BIN … ──► END samples reason ──► header …
//!  Ready   Start       Frame        FrameEnd                     End
//! ```
//!
//! The decoder takes all text through [`Decoder::feed`]. Payload bypasses it: the reader copies it from the socket
//! directly to its destination and reports the size with [`Decoder::payload_taken`]. The decoder looks for tags only at
//! frame starts, because payload may contain the same bytes. Any other bytes there are damage, after which no
//! resynchronisation is possible.

use std::borrow::Cow;
use std::fmt;

use super::header::{Header, MOST_SAMPLES};
use super::header_builder::{HeaderError, LONGEST_HEADER};
use super::text::FIRST_WORDS;
use crate::hint::Hint;

/// The largest valid frame, including its head. Frames of server 4.1 fit 4 MiB.
pub const LARGEST_FRAME: u32 = 64 << 20;

/// `BIN ` and the length, which includes these eight bytes.
pub const FRAME_HEAD_BYTES: u32 = 8;

/// The longest line other than a header: the answer to the options, and the end.
const LONGEST_LINE: usize = 1024;

/// The next input that the decoder needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Bytes for [`Decoder::feed`]. Payload may follow after `at_most` of them. More may be fed: the decoder takes as
    /// many as it needs and returns their number.
    Text {
        /// This many bytes cannot contain payload if the server is correct.
        at_most: usize,
    },
    /// This many bytes of payload, for [`Decoder::payload_taken`].
    Payload {
        /// The rest of the frame.
        bytes: u64,
    },
}

/// An event on the data port.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The server has accepted the options.
    Ready,
    /// An acquisition begins, or is joined.
    Start {
        /// The parsed header.
        header: Header,
        /// Its text, as received except for bytes that are not UTF-8.
        text: String,
    },
    /// A frame begins. Its payload follows, if there is any.
    Frame {
        /// Bytes of payload, a whole number of samples; 0 is legal.
        bytes: u64,
    },
    /// The payload of the frame was taken.
    FrameEnd,
    /// The acquisition is over; the connection waits for the next one.
    End {
        /// Samples that the server reports as sent on this connection.
        samples: u64,
        /// The reason for the end.
        reason: EndReason,
    },
}

/// The reason for the end of an acquisition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EndReason {
    /// The acquisition reached its configured end.
    Ok,
    /// A client disarmed the PandA.
    Disarmed,
    /// The server's ring lapped this reader, so its last raw frame may be corrupt.
    DataOverrun,
    /// The server saw the client close the connection.
    EarlyDisconnect,
    /// Triggers came faster than the fields can be captured.
    FramingError,
    /// The PandA's own processor was too slow.
    DriverDataOverrun,
    /// The PandA's memory was too slow.
    DmaDataError,
    /// The hardware ended it for a reason unknown to the server.
    UnexpectedCompletion,
    /// A reason that current servers do not use.
    Other(String),
}

impl EndReason {
    /// True if the data can be trusted to the end.
    pub fn is_good(&self) -> bool {
        matches!(self, EndReason::Ok | EndReason::Disarmed)
    }

    /// All reasons of current servers.
    pub const KNOWN: [EndReason; 8] = [
        EndReason::Ok,
        EndReason::Disarmed,
        EndReason::DataOverrun,
        EndReason::EarlyDisconnect,
        EndReason::FramingError,
        EndReason::DriverDataOverrun,
        EndReason::DmaDataError,
        EndReason::UnexpectedCompletion,
    ];
}

impl From<&str> for EndReason {
    fn from(text: &str) -> Self {
        let known = Self::KNOWN.into_iter().find(|reason| reason.to_string() == text);
        known.unwrap_or_else(|| EndReason::Other(text.to_owned()))
    }
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EndReason::Ok => "Ok",
            EndReason::Disarmed => "Disarmed",
            EndReason::DataOverrun => "Data overrun",
            EndReason::EarlyDisconnect => "Early disconnect",
            EndReason::FramingError => "Framing error",
            EndReason::DriverDataOverrun => "Driver data overrun",
            EndReason::DmaDataError => "DMA data error",
            EndReason::UnexpectedCompletion => "Unexpected completion error",
            EndReason::Other(text) => text,
        })
    }
}

impl serde::Serialize for EndReason {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for EndReason {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| EndReason::from(text.as_str()))
    }
}

/// Input that no PandA server sends. All later bytes of this connection are invalid.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// The server refuses the options.
    #[error("the server refused the connection: {text}")]
    Refused {
        /// The server's answer.
        text: String,
    },
    /// The answer is not `OK`: this is not a data port.
    #[error("the server answered `{text}` instead of OK: not a PandA's data port")]
    NoPanda {
        /// The server's answer.
        text: String,
    },
    /// A line has no end.
    #[error("received a line of more than {limit} bytes instead of {what}")]
    LongLine {
        /// The expected line.
        what: &'static str,
        /// The maximum length of that line.
        limit: usize,
    },
    /// The input contains no header.
    #[error("{limit} bytes between acquisitions contain no header")]
    NoHeader {
        /// The maximum number of bytes that are skipped.
        limit: usize,
    },
    /// The header is invalid.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The tag is neither a frame nor the end.
    #[error("byte {at} of the stream: `{}` is neither a frame nor the end", tag.escape_ascii())]
    Tag {
        /// The received bytes.
        tag: [u8; 4],
        /// The position, counted from the first byte of the connection.
        at: u64,
    },
    /// The frame has an invalid length.
    #[error("byte {at} of the stream: a frame of {length} bytes, {why}")]
    Length {
        /// The length in the frame.
        length: u32,
        /// The reason.
        why: &'static str,
        /// The position, counted from the first byte of the connection.
        at: u64,
    },
    /// The end lacks the number or the reason.
    #[error("byte {at} of the stream: `{text}` is not the end of an acquisition")]
    End {
        /// The received line.
        text: String,
        /// The position, counted from the first byte of the connection.
        at: u64,
    },
}

impl Error {
    /// True if another connection to the same PandA would deliver the same: see [`HeaderError::would_come_again`].
    pub fn would_come_again(&self) -> bool {
        matches!(self, Error::Header(error) if error.would_come_again())
    }
}

impl Hint for Error {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Error::Refused { .. } => {
                "PandABlocks servers support `XML FRAMED RAW` from version 3.0 on"
            }
            Error::NoPanda { .. } => "the data port of a PandA is 8889, its control port 8888",
            Error::Tag { .. } | Error::Length { .. } => {
                "samples certified before it are good; reconnect to continue"
            }
            _ => return None,
        }))
    }
}

/// Decodes the bytes of one connection to a data port.
#[derive(Clone, Debug)]
pub struct Decoder {
    state: State,
    /// The incomplete part of a line, a header or a head.
    held: Vec<u8>,
    sample_bytes: u32,
    /// Bytes taken since the connection was opened.
    at: u64,
    /// Position of the latest tag.
    tag_at: u64,
}

#[derive(Clone, Debug)]
enum State {
    /// The answer to the options.
    Greeting,
    /// Lines before a header, and the number of skipped bytes.
    Waiting(usize),
    Xml,
    Text,
    /// The line feed after an XML header.
    HeaderEnd,
    /// The tag of a frame or of the end.
    Boundary,
    Payload(u64),
    /// The line after `END `.
    End,
    Failed(Error),
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// Returns a decoder for a new connection, which begins with the answer to the options.
    pub fn new() -> Self {
        Decoder { state: State::Greeting, held: Vec::new(), sample_bytes: 1, at: 0, tag_at: 0 }
    }

    /// Returns the next input that the decoder needs.
    pub fn want(&self) -> Want {
        match self.state {
            State::Payload(bytes) if bytes > 0 => Want::Payload { bytes },
            State::Boundary => {
                Want::Text { at_most: FRAME_HEAD_BYTES as usize - self.held.len().min(7) }
            }
            State::HeaderEnd => Want::Text { at_most: 1 + FRAME_HEAD_BYTES as usize },
            _ => Want::Text { at_most: 4096 },
        }
    }

    /// Returns the bytes taken since the connection was opened.
    pub fn position(&self) -> u64 {
        self.at
    }

    /// True while an acquisition is running: between a header and its end.
    pub fn in_acquisition(&self) -> bool {
        matches!(self.state, State::HeaderEnd | State::Boundary | State::Payload(_) | State::End)
    }

    /// Takes text up to the next event and returns the number of bytes. It takes none while payload is expected. Call
    /// it until it has taken all bytes without an event.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(usize, Option<Event>), Error> {
        let mut taken = 0;
        loop {
            let rest = &bytes[taken..];
            let step = match &mut self.state {
                State::Failed(error) => return Err(error.clone()),
                State::Payload(0) => {
                    self.state = State::Boundary;
                    return Ok((taken, Some(Event::FrameEnd)));
                }
                State::Payload(_) => return Ok((taken, None)),
                _ if rest.is_empty() => return Ok((taken, None)),
                State::Boundary => self.boundary(rest),
                State::HeaderEnd => self.header_end(rest),
                _ => self.line(rest),
            };
            match step {
                Ok((n, event)) => {
                    taken += n;
                    self.at += n as u64;
                    if event.is_some() {
                        return Ok((taken, event));
                    }
                }
                Err(error) => {
                    self.held = Vec::new();
                    self.state = State::Failed(error.clone());
                    return Err(error);
                }
            }
        }
    }

    /// Notes that this many bytes of payload were taken; at most the requested number.
    pub fn payload_taken(&mut self, bytes: u64) -> Option<Event> {
        let State::Payload(left) = &mut self.state else {
            assert_eq!(bytes, 0, "payload was taken where there is none");
            return None;
        };
        assert!(bytes <= *left, "{bytes} bytes of payload were taken where {left} were left");
        *left -= bytes;
        self.at += bytes;
        if *left > 0 {
            return None;
        }
        self.state = State::Boundary;
        Some(Event::FrameEnd)
    }

    /// Collects a line in `held` and processes it once it is whole.
    fn line(&mut self, bytes: &[u8]) -> Result<(usize, Option<Event>), Error> {
        let (what, limit) = match self.state {
            State::Greeting => ("OK", LONGEST_LINE),
            State::End => ("the end", LONGEST_LINE),
            State::Waiting(skipped) => ("a header", LONGEST_HEADER.saturating_sub(skipped)),
            _ => ("a header", LONGEST_HEADER),
        };
        let end = bytes.iter().position(|&byte| byte == b'\n').map(|at| at + 1);
        let taken = end.unwrap_or(bytes.len());
        if self.held.len() + taken > limit {
            return Err(match self.state {
                State::Waiting(_) => Error::NoHeader { limit: LONGEST_HEADER },
                State::Xml | State::Text => HeaderError::TooLong.into(),
                _ => Error::LongLine { what, limit },
            });
        }
        self.held.extend_from_slice(&bytes[..taken]);
        let event = if end.is_some() { self.whole_line()? } else { None };
        Ok((taken, event))
    }

    fn whole_line(&mut self) -> Result<Option<Event>, Error> {
        match self.state {
            State::Greeting => {
                let text = readable(&std::mem::take(&mut self.held));
                match text.split_once(' ').unwrap_or((&text, "")) {
                    ("OK", "") => self.state = State::Waiting(0),
                    ("ERR", why) => return Err(Error::Refused { text: why.to_owned() }),
                    _ => return Err(Error::NoPanda { text }),
                }
                Ok(Some(Event::Ready))
            }
            State::Waiting(skipped) => {
                if self.held.trim_ascii() == b"<header>" {
                    self.state = State::Xml;
                } else if FIRST_WORDS.iter().any(|word| self.held.starts_with(word)) {
                    self.state = State::Text;
                } else {
                    self.state = State::Waiting(skipped + self.held.len());
                    self.held.clear();
                }
                Ok(None)
            }
            State::Xml if last_line(&self.held).trim_ascii() == b"</header>" => {
                let header = Header::from_xml(&self.held)?;
                Ok(Some(self.begin(header, State::HeaderEnd)))
            }
            State::Text if last_line(&self.held).is_empty() => {
                let header = Header::from_text(&self.held)?;
                Ok(Some(self.begin(header, State::Boundary)))
            }
            State::End => self.end().map(Some),
            _ => Ok(None),
        }
    }

    fn begin(&mut self, header: Header, next: State) -> Event {
        let text = String::from_utf8_lossy(&std::mem::take(&mut self.held)).into_owned();
        self.sample_bytes = header.sample_bytes;
        self.state = next;
        Event::Start { header, text }
    }

    fn header_end(&mut self, bytes: &[u8]) -> Result<(usize, Option<Event>), Error> {
        self.state = State::Boundary;
        match bytes {
            [b'\n', ..] => Ok((1, None)),
            _ => self.boundary(bytes),
        }
    }

    fn boundary(&mut self, bytes: &[u8]) -> Result<(usize, Option<Event>), Error> {
        if self.held.is_empty() {
            self.tag_at = self.at;
        }
        let begin = self.tag_at;
        let needed = FRAME_HEAD_BYTES as usize - self.held.len();
        let taken = needed.min(bytes.len());
        self.held.extend_from_slice(&bytes[..taken]);
        let Some((&tag, length)) = self.held.split_first_chunk::<4>() else {
            return Ok((taken, None));
        };
        match &tag {
            b"BIN " => {
                let Ok(length) = length.try_into().map(u32::from_le_bytes) else {
                    return Ok((taken, None));
                };
                self.held.clear();
                let bytes = self.payload_of(length, begin)?;
                self.state = State::Payload(bytes);
                Ok((taken, Some(Event::Frame { bytes })))
            }
            // An end has at least as many bytes as the head of a frame, but its line may end here.
            b"END " => {
                let back = length.len();
                self.held.truncate(4);
                self.state = State::End;
                Ok((taken - back, None))
            }
            _ => Err(Error::Tag { tag, at: begin }),
        }
    }

    fn payload_of(&self, length: u32, at: u64) -> Result<u64, Error> {
        let bad = |why| Err(Error::Length { length, why, at });
        match length.checked_sub(FRAME_HEAD_BYTES) {
            None => bad("which is less than its head has"),
            Some(_) if length > LARGEST_FRAME => bad("which is more than any server sends"),
            Some(bytes) if !bytes.is_multiple_of(self.sample_bytes) => {
                bad("which is not a whole number of samples")
            }
            Some(bytes) => Ok(u64::from(bytes)),
        }
    }

    fn end(&mut self) -> Result<Event, Error> {
        let line = readable(&std::mem::take(&mut self.held));
        let words = line.strip_prefix("END ").and_then(|line| line.split_once(' '));
        let parsed = words.and_then(|(samples, reason)| {
            let plain = samples.bytes().all(|byte| byte.is_ascii_digit());
            let samples = samples.parse().ok().filter(|&samples| samples <= MOST_SAMPLES);
            samples.filter(|_| plain && !reason.is_empty()).map(|samples| (samples, reason))
        });
        let Some((samples, reason)) = parsed else {
            return Err(Error::End { text: line, at: self.tag_at });
        };
        self.state = State::Waiting(0);
        Ok(Event::End { samples, reason: EndReason::from(reason) })
    }
}

/// Returns the last line of the input, which ends with a line feed.
fn last_line(bytes: &[u8]) -> &[u8] {
    let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    &line[line.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1)..]
}

/// Returns a line for people: UTF-8, without control characters.
fn readable(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    text.trim_end().chars().filter(|c| !c.is_control()).collect()
}
