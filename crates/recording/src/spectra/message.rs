//! Messages of the socket of live spectra: a kind, a length, and the bytes.
//!
//! ```text
//! offset  bytes
//!      0      1  kind: `T`, JSON text; `B`, a row (see `row`)
//!      1      4  length in bytes, little-endian: at most MOST_BYTES
//!      5      n  the message
//! ```
//!
//! The client sends one line of JSON first, its [`Request`](super::Request). After that it sends nothing.

/// The most bytes of a message.
pub const MOST_BYTES: usize = 64 << 10;

/// The bytes before each message.
pub const HEAD_BYTES: usize = 5;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// JSON.
    Text(String),
    /// A row.
    Row(Vec<u8>),
}

/// Bytes are not messages of this socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The kind is not known.
    #[error("a message of the unknown kind {kind}")]
    Kind {
        /// The byte.
        kind: u8,
    },
    /// The message is too long.
    #[error("a message of {bytes} bytes: the most are {MOST_BYTES}")]
    Long {
        /// Its length.
        bytes: u32,
    },
    /// A text is not UTF-8.
    #[error("a text that is not UTF-8")]
    Text,
}

impl Message {
    /// The bytes of the message with its head. `None` if it is longer than [`MOST_BYTES`].
    pub fn encode(&self) -> Option<Vec<u8>> {
        let (kind, bytes) = match self {
            Message::Text(text) => (b'T', text.as_bytes()),
            Message::Row(row) => (b'B', row.as_slice()),
        };
        if bytes.len() > MOST_BYTES {
            return None;
        }
        let mut all = Vec::with_capacity(HEAD_BYTES + bytes.len());
        all.push(kind);
        all.extend((bytes.len() as u32).to_le_bytes());
        all.extend(bytes);
        Some(all)
    }
}

/// Reads messages from bytes that come in any pieces. After an error it reads no more.
#[derive(Debug, Default)]
pub struct Decoder {
    held: Vec<u8>,
    failed: Option<MessageError>,
}

impl Decoder {
    /// Adds bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.failed.is_none() {
            self.held.extend(bytes);
        }
    }

    /// The next whole message, if it is there.
    pub fn next_message(&mut self) -> Result<Option<Message>, MessageError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let read = self.read();
        if let Err(error) = read {
            self.failed = Some(error);
            self.held = Vec::new();
        }
        read
    }

    fn read(&mut self) -> Result<Option<Message>, MessageError> {
        let Some((&[kind, ref length @ ..], rest)) = self.held.split_first_chunk::<HEAD_BYTES>()
        else {
            return Ok(None);
        };
        let bytes = u32::from_le_bytes(*length);
        if !matches!(kind, b'T' | b'B') {
            return Err(MessageError::Kind { kind });
        }
        if bytes as usize > MOST_BYTES {
            return Err(MessageError::Long { bytes });
        }
        let Some(body) = rest.get(..bytes as usize) else { return Ok(None) };
        let message = match kind {
            b'T' => {
                let text = std::str::from_utf8(body).map_err(|_| MessageError::Text)?;
                Message::Text(text.to_owned())
            }
            _ => Message::Row(body.to_vec()),
        };
        self.held.drain(..HEAD_BYTES + bytes as usize);
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(pieces: impl Iterator<Item = Vec<u8>>) -> Result<Vec<Message>, MessageError> {
        let (mut decoder, mut all) = (Decoder::default(), Vec::new());
        for piece in pieces {
            decoder.feed(&piece);
            while let Some(message) = decoder.next_message()? {
                all.push(message);
            }
        }
        Ok(all)
    }

    #[test]
    fn every_way_of_splitting_the_messages_decodes_alike() {
        let messages = vec![
            Message::Text("{\"stream\":\"é\"}".into()),
            Message::Row(vec![]),
            Message::Row((0..=255).collect()),
        ];
        let bytes: Vec<u8> = messages.iter().flat_map(|it| it.encode().unwrap()).collect();
        for size in 1..=bytes.len() {
            let pieces = bytes.chunks(size).map(<[u8]>::to_vec);
            assert_eq!(decode(pieces), Ok(messages.clone()), "split every {size}");
        }
    }

    #[test]
    fn what_is_no_message_is_refused_before_it_is_held_and_for_ever() {
        let long = (MOST_BYTES as u32 + 1).to_le_bytes();
        for (bytes, error) in [
            (vec![b'X', 0, 0, 0, 0], MessageError::Kind { kind: b'X' }),
            ([&[b'B'][..], &long].concat(), MessageError::Long { bytes: MOST_BYTES as u32 + 1 }),
            (vec![b'T', 1, 0, 0, 0, 0xFF], MessageError::Text),
        ] {
            let mut decoder = Decoder::default();
            decoder.feed(&bytes);
            assert_eq!(decoder.next_message(), Err(error));
            decoder.feed(&Message::Row(vec![]).encode().unwrap());
            assert_eq!(decoder.next_message(), Err(error));
            assert!(decoder.held.is_empty());
        }
        assert_eq!(Message::Row(vec![0; MOST_BYTES + 1]).encode(), None);
        assert!(Message::Row(vec![0; MOST_BYTES]).encode().is_some());
    }
}
