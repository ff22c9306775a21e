//! The messages, their encoding, and a decoder that takes bytes in any pieces.

use fullbore_core::block_set::BlockSet;
use fullbore_core::index::RECORD_BYTES;
use fullbore_time::Tai;
use uuid::Uuid;

/// An index record as it is on the disk.
pub type Record = [u8; RECORD_BYTES];

/// The purpose of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// The one connection for everything but blocks.
    Control,
    /// A connection for blocks of the transfer with this token.
    Data([u8; 16]),
}

/// The reason why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No common version.
    Version,
    /// The key is not known, or the invitation is not valid.
    NotAllowed,
    /// The name or manifest is not acceptable.
    Invalid,
    /// Another scan has the name.
    Exists,
    /// Not enough room.
    NoRoom,
    /// There is no such scan, or it is not shared.
    NoScan,
    /// Too many transfers, or the scan is being transferred already.
    Busy,
    /// A fault of this end: the text says more.
    Failed,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// First message of the connecting end. The secret is that of an invitation.
    Hello { versions: (u16, u16), role: Role, secret: Option<[u8; 16]>, name: String },
    /// Answer to it.
    Welcome { version: u16, name: String },
    /// A request is refused, or the transfer ends. The text is for people.
    Refuse { refusal: Refusal, text: String },
    /// Sender: here is a scan. The manifest is its JSON.
    Offer { manifest: Vec<u8>, live: bool, bytes: u64 },
    /// Receiver: send all blocks but these; blocks are accepted on this many data connections.
    Accept { token: [u8; 16], connections: u16, durable: Vec<(u16, BlockSet)> },
    /// Sender: the manifest has changed.
    Update { manifest: Vec<u8> },
    /// Sender, on a data connection: a block. First its block record, then its records of lengths. `bytes` of data follow
    /// this message directly.
    Block { records: Vec<Record>, bytes: u32 },
    /// Receiver: these blocks are durable.
    Durable { stream: u16, blocks: BlockSet },
    /// Receiver: this block arrived damaged; send it again.
    Rejected { stream: u16, sequence: u64, text: String },
    /// Sender: records of gaps and found blocks, which belong to no block.
    Records { records: Vec<Record> },
    /// Sender: the account of a stream, as JSON.
    Account { stream: u16, json: Vec<u8> },
    /// Sender: nothing follows; seal with this manifest. `missing` blocks could not be read at the source.
    Seal { manifest: Vec<u8>, missing: u64 },
    /// Receiver: the scan is sealed and durable.
    Receipt { scan: Uuid, blocks: u64, bytes: u64, digest: [u8; 32], at: Tai },
    /// Connecting end that pulls: send me this scan.
    Request { scan: String },
    /// Which scans are there?
    List,
    /// The names of scans, as JSON.
    Listing { json: Vec<u8> },
    /// Answer with a pong of the same number.
    Ping { number: u64 },
    /// The answer.
    Pong { number: u64 },
    /// For measuring the link: this many bytes follow, which are discarded.
    Probe { bytes: u32 },
    /// For measuring the link: bytes received so far on this connection, and the time since the first, in ns.
    Received { bytes: u64, elapsed_ns: u64 },
    /// This end sends nothing more.
    Bye,
}

/// An invalid message. The connection cannot continue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {}

impl Message {
    /// Appends the message to `out`.
    pub fn encode(&self, _out: &mut Vec<u8>) {
        todo!()
    }
}

/// Decodes messages from bytes that arrive in any pieces.
#[derive(Debug, Default)]
pub struct Decoder {}

impl Decoder {
    /// Adds bytes that arrived.
    pub fn push(&mut self, _bytes: &[u8]) {
        todo!()
    }

    /// Returns the next whole message. After [`Message::Block`] or [`Message::Probe`], all of the data must be taken
    /// with [`take_data`](Self::take_data), or read from the connection once that returns 0, before the next call.
    pub fn next(&mut self) -> Result<Option<Message>, ProtocolError> {
        todo!()
    }

    /// Moves data of the current block that has arrived into `into`; returns its length.
    pub fn take_data(&mut self, _into: &mut [u8]) -> usize {
        todo!()
    }

    /// Bytes of data that have not been taken yet.
    pub fn data_left(&self) -> u32 {
        todo!()
    }

    /// Tells the decoder that this many bytes of data were read from the connection directly.
    pub fn data_read(&mut self, _bytes: u32) {
        todo!()
    }
}
