//! Bytes to messages: the body of one frame, whose kind and length were checked.

use fullbore_core::block_set::BlockSet;
use fullbore_core::index::RECORD_BYTES;
use fullbore_core::marker::moves_the_cursor;
use fullbore_time::Tai;
use uuid::Uuid;

use super::limits::{LARGEST_DATA_BYTES, LONGEST_NAME, LONGEST_TEXT, RUN_BYTES};
use super::message::{Kind, Message, Record, Refusal, Role};
use super::{MAGIC, ProtocolError};

/// The reason why the contents of a message are invalid.
type Reason = &'static str;

/// Too few bytes for the fields.
const SHORT: Reason = "it ends too early";

/// Decodes the body of a message of this kind.
pub(super) fn decode_body(kind: Kind, body: &[u8]) -> Result<Message, ProtocolError> {
    if kind == Kind::Hello && !body.starts_with(&MAGIC) {
        return Err(ProtocolError::NotFullbore);
    }
    let mut take = Take { rest: body };
    let content = |reason| ProtocolError::Content { message: kind.name(), reason };
    let message = message_of(kind, &mut take).map_err(content)?;
    // Later versions may append to the messages by which a version is agreed.
    let is_open_ended = matches!(kind, Kind::Hello | Kind::Welcome | Kind::Refuse);
    if !is_open_ended && !take.rest.is_empty() {
        return Err(content("bytes follow its end"));
    }
    Ok(message)
}

fn message_of(kind: Kind, take: &mut Take<'_>) -> Result<Message, Reason> {
    Ok(match kind {
        Kind::Hello => hello(take)?,
        Kind::Welcome => Message::Welcome { version: take.u16()?, name: take.name()? },
        Kind::Refuse => {
            let [code] = take.array()?;
            let length = usize::from(take.u16()?);
            let text = text_of(take.bytes(length)?, LONGEST_TEXT)?;
            Message::Refuse { refusal: Refusal::of_code(code), text }
        }
        Kind::Offer => {
            let (live, bytes) = (take.flag()?, take.u64()?);
            Message::Offer { manifest: take.rest(), live, bytes }
        }
        Kind::Accept => {
            let (token, connections) = (take.array()?, take.u16()?);
            Message::Accept { token, connections, durable: durable(take)? }
        }
        Kind::Update => Message::Update { manifest: take.rest() },
        Kind::Block => Message::Block { bytes: take.data_bytes()?, records: take.records()? },
        Kind::Durable => Message::Durable { stream: take.u16()?, blocks: take.set()? },
        Kind::Rejected => {
            let (stream, sequence) = (take.u16()?, take.u64()?);
            Message::Rejected { stream, sequence, text: text_of(&take.rest(), LONGEST_TEXT)? }
        }
        Kind::Records => Message::Records { records: take.records()? },
        Kind::Account => Message::Account { stream: take.u16()?, json: take.rest() },
        Kind::Seal => Message::Seal { missing: take.u64()?, manifest: take.rest() },
        Kind::Receipt => Message::Receipt {
            scan: Uuid::from_bytes(take.array()?),
            blocks: take.u64()?,
            bytes: take.u64()?,
            digest: take.array()?,
            at: Tai(take.u64()? as i64),
        },
        Kind::Request => Message::Request { scan: text_of(&take.rest(), LONGEST_NAME)? },
        Kind::List => Message::List,
        Kind::Listing => Message::Listing { json: take.rest() },
        Kind::Ping => Message::Ping { number: take.u64()? },
        Kind::Pong => Message::Pong { number: take.u64()? },
        Kind::Probe => Message::Probe { bytes: take.data_bytes()? },
        Kind::Received => Message::Received { bytes: take.u64()?, elapsed_ns: take.u64()? },
        Kind::Bye => Message::Bye,
        Kind::Held => {
            Message::Held { stream: take.u16()?, sequence: take.u64()?, bytes: take.data_bytes()? }
        }
    })
}

fn hello(take: &mut Take<'_>) -> Result<Message, Reason> {
    take.array::<{ MAGIC.len() }>()?;
    let versions = (take.u16()?, take.u16()?);
    let ([role], has_secret) = (take.array()?, take.flag()?);
    let (token, secret) = (take.array()?, take.array()?);
    let name = take.name()?;
    if versions.0 == 0 || versions.0 > versions.1 {
        return Err("its versions are not a range");
    }
    let role = match role {
        0 if token == [0; 16] => Role::Control,
        0 => return Err("a control connection has no token"),
        1 => Role::Data(token),
        _ => return Err("the purpose of the connection is unknown"),
    };
    if !has_secret && secret != [0; 16] {
        return Err("its unused bytes are not zero");
    }
    Ok(Message::Hello { versions, role, secret: has_secret.then_some(secret), name })
}

fn durable(take: &mut Take<'_>) -> Result<Vec<(u16, BlockSet)>, Reason> {
    let mut streams: Vec<(u16, BlockSet)> = Vec::new();
    for _ in 0..take.u32()? {
        let stream = take.u16()?;
        if streams.last().is_some_and(|(last, _)| *last >= stream) {
            return Err("its streams are not in order");
        }
        streams.push((stream, take.set()?));
    }
    Ok(streams)
}

fn text_of(bytes: &[u8], most: usize) -> Result<String, Reason> {
    let text = std::str::from_utf8(bytes).map_err(|_| "its text is not UTF-8")?;
    if text.len() > most {
        return Err("its text is too long");
    }
    if text.chars().any(moves_the_cursor) {
        return Err("its text has control characters");
    }
    Ok(text.to_owned())
}

/// The part of a body that has not been decoded.
struct Take<'a> {
    rest: &'a [u8],
}

impl<'a> Take<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Reason> {
        let (array, rest) = self.rest.split_first_chunk().ok_or(SHORT)?;
        self.rest = rest;
        Ok(*array)
    }

    fn bytes(&mut self, length: usize) -> Result<&'a [u8], Reason> {
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(SHORT)?;
        self.rest = rest;
        Ok(bytes)
    }

    fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.rest).to_vec()
    }

    fn u16(&mut self) -> Result<u16, Reason> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, Reason> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Reason> {
        self.array().map(u64::from_le_bytes)
    }

    fn flag(&mut self) -> Result<bool, Reason> {
        match self.array()? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err("a flag is neither 0 nor 1"),
        }
    }

    fn name(&mut self) -> Result<String, Reason> {
        let [length] = self.array()?;
        text_of(self.bytes(length.into())?, LONGEST_NAME)
    }

    fn data_bytes(&mut self) -> Result<u32, Reason> {
        let bytes = self.u32()?;
        if bytes > LARGEST_DATA_BYTES {
            return Err("more data follows it than a block can have");
        }
        Ok(bytes)
    }

    fn records(&mut self) -> Result<Vec<Record>, Reason> {
        let (records, rest) = self.rest.as_chunks::<RECORD_BYTES>();
        if !rest.is_empty() {
            return Err("its records are not whole");
        }
        self.rest = rest;
        Ok(records.to_vec())
    }

    /// A set of blocks: its runs are in order, apart, and not empty, so each set has one encoding.
    fn set(&mut self) -> Result<BlockSet, Reason> {
        let mut blocks = BlockSet::default();
        let mut last_end = None;
        let runs = self.u32()? as usize;
        let runs = self.bytes(runs.checked_mul(RUN_BYTES).ok_or(SHORT)?)?;
        for run in runs.as_chunks::<RUN_BYTES>().0 {
            let mut take = Take { rest: run };
            let (start, count) = (take.u64()?, take.u64()?);
            let end = start.checked_add(count).ok_or("a run of blocks is too long")?;
            if count == 0 {
                return Err("a run of blocks is empty");
            }
            if last_end.is_some_and(|last_end| start <= last_end) {
                return Err("its runs of blocks are not in order and apart");
            }
            blocks.insert(start..end);
            last_end = Some(end);
        }
        Ok(blocks)
    }
}
