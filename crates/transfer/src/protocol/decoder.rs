//! The decoder of a connection.

use super::decode::decode_body;
use super::limits::{HEAD_BYTES, LARGEST_OPENING_BYTES, body_bytes};
use super::message::{Kind, Message};
use super::{ProtocolError, VERSIONS};

/// The memory that the decoder keeps when it holds no bytes.
const KEPT_BYTES: usize = 256 << 10;

/// Decodes messages from bytes that arrive in any pieces.
///
/// It accepts only the messages by which a version is agreed until [`agree`](Self::agree) is called. The end that
/// connects need not call it: the decoder learns the version from [`Message::Welcome`].
#[derive(Debug, Default)]
pub struct Decoder {
    /// Bytes that arrived, those before `at` are decoded or taken.
    held: Vec<u8>,
    at: usize,
    phase: Phase,
    /// Bytes of data of the last message that have not been taken.
    data_left: u32,
}

#[derive(Debug, Default)]
enum Phase {
    /// No message has arrived.
    #[default]
    Opening,
    /// The other end has connected, and no version is agreed.
    Greeted,
    /// A version is agreed.
    Agreed,
    /// An invalid message arrived.
    Failed(ProtocolError),
}

impl Decoder {
    /// Accepts all messages of this version from now on. The end that accepts a connection calls it when it sends
    /// [`Message::Welcome`].
    ///
    /// # Panics
    ///
    /// Panics if this end does not speak the version.
    pub fn agree(&mut self, version: u16) {
        assert!(is_spoken(version), "version {version} is agreed, and this end does not speak it");
        if !matches!(self.phase, Phase::Failed(_)) {
            self.phase = Phase::Agreed;
        }
    }

    /// Adds bytes that arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        if matches!(self.phase, Phase::Failed(_)) {
            return;
        }
        // Moved when half of the bytes are used, each byte is moved once on average.
        if self.at > self.held.len() / 2 {
            self.held.drain(..self.at);
            self.at = 0;
        }
        self.held.extend_from_slice(bytes);
    }

    /// Returns the next whole message. After [`Message::Block`] or [`Message::Probe`], all of the data must be taken
    /// with [`take_data`](Self::take_data), or read from the connection once that returns 0, before the next call.
    ///
    /// After an error, every call returns the same error.
    ///
    /// # Panics
    ///
    /// Panics if data has not been taken.
    #[expect(clippy::should_implement_trait, reason = "more bytes may follow the last message")]
    pub fn next(&mut self) -> Result<Option<Message>, ProtocolError> {
        assert_eq!(self.data_left, 0, "the data of a message is taken before the next message");
        if let Phase::Failed(error) = &self.phase {
            return Err(error.clone());
        }
        let next = self.decode();
        if let Err(error) = &next {
            self.phase = Phase::Failed(error.clone());
            (self.held, self.at) = (Vec::new(), 0);
        }
        next
    }

    /// Moves data of the current block that has arrived into `into`; returns its length.
    pub fn take_data(&mut self, into: &mut [u8]) -> usize {
        let arrived = &self.held[self.at..];
        let length = into.len().min(arrived.len()).min(self.data_left as usize);
        into[..length].copy_from_slice(&arrived[..length]);
        self.data_left -= length as u32;
        self.advance(length);
        length
    }

    /// Bytes of data that have not been taken yet.
    pub fn data_left(&self) -> u32 {
        self.data_left
    }

    /// Tells the decoder that this many bytes of data were read from the connection directly.
    ///
    /// # Panics
    ///
    /// Panics if data that arrived before has not been taken, or if the message has less data.
    pub fn data_read(&mut self, bytes: u32) {
        assert_eq!(self.at, self.held.len(), "data that arrived before is taken first");
        let left = self.data_left.checked_sub(bytes);
        self.data_left = left.expect("no more than the data of the message is read directly");
    }

    /// Bytes of memory that the decoder holds.
    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> usize {
        self.held.capacity()
    }

    /// True if the beginning of a message has arrived, and not its end.
    pub fn is_within_message(&self) -> bool {
        self.at < self.held.len() || self.data_left > 0
    }

    fn decode(&mut self) -> Result<Option<Message>, ProtocolError> {
        let arrived = &self.held[self.at..];
        let Some((&[a, b, c, d, number], rest)) = arrived.split_first_chunk::<HEAD_BYTES>() else {
            return Ok(None);
        };
        // A connection of another protocol is recognised by its first bytes.
        if matches!(self.phase, Phase::Opening) && !matches!(number, 1..=3) {
            return Err(ProtocolError::NotFullbore);
        }
        let kind = Kind::of_number(number).ok_or(ProtocolError::Kind { kind: number })?;
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        self.check_head(kind, length)?;
        let Some(body) = rest.get(..length - 1) else { return Ok(None) };
        let message = decode_body(kind, body)?;
        self.follow(&message)?;
        self.data_left = message.data_bytes();
        self.advance(HEAD_BYTES - 1 + length);
        Ok(Some(message))
    }

    /// Checks whether a message of this kind and length may arrive now.
    fn check_head(&self, kind: Kind, length: usize) -> Result<(), ProtocolError> {
        let message = kind.name();
        match (&self.phase, kind) {
            (_, Kind::Refuse) | (Phase::Opening, Kind::Hello | Kind::Welcome) => {}
            (Phase::Agreed, Kind::Hello | Kind::Welcome) => {
                return Err(ProtocolError::Late { message });
            }
            (Phase::Agreed, _) => {}
            (Phase::Opening | Phase::Greeted | Phase::Failed(_), _) => {
                return Err(ProtocolError::Early { message });
            }
        }
        let (least, most) = body_bytes(kind);
        match length.checked_sub(1) {
            Some(bytes) if (least..=most).contains(&bytes) => Ok(()),
            bytes => {
                let bytes = bytes.unwrap_or(0);
                Err(ProtocolError::Length { message, bytes, least, most })
            }
        }
    }

    fn follow(&mut self, message: &Message) -> Result<(), ProtocolError> {
        match message {
            Message::Hello { .. } => self.phase = Phase::Greeted,
            Message::Welcome { version, .. } if is_spoken(*version) => self.phase = Phase::Agreed,
            Message::Welcome { version, .. } => {
                return Err(ProtocolError::Version { version: *version });
            }
            _ => {}
        }
        Ok(())
    }

    fn advance(&mut self, bytes: usize) {
        self.at += bytes;
        if self.at < self.held.len() {
            return;
        }
        self.held.clear();
        self.at = 0;
        if self.held.capacity() > KEPT_BYTES {
            self.held = Vec::new();
        }
    }
}

fn is_spoken(version: u16) -> bool {
    (VERSIONS.0..=VERSIONS.1).contains(&version)
}

// The messages of the opening are never larger than the opening allows.
const _: () = {
    let (mut number, kinds) = (0, [Kind::Hello, Kind::Welcome, Kind::Refuse]);
    while number < kinds.len() {
        assert!(HEAD_BYTES + body_bytes(kinds[number]).1 <= LARGEST_OPENING_BYTES);
        number += 1;
    }
};
