//! The messages.

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
#[repr(u8)]
pub enum Refusal {
    /// No common version.
    Version = 1,
    /// The key is not known, or the invitation is not valid.
    NotAllowed = 2,
    /// The name or manifest is not acceptable.
    Invalid = 3,
    /// Another scan has the name.
    Exists = 4,
    /// Not enough room.
    NoRoom = 5,
    /// There is no such scan, or it is not shared.
    NoScan = 6,
    /// Too many transfers, or the scan is being transferred already.
    Busy = 7,
    /// A fault of this end: the text says more.
    Failed = 8,
    /// Blocks could not be read at the source, so the copy stays incomplete.
    Incomplete = 9,
    /// A fault of this end that lasts: its disks are too small, read-only, or closed to it.
    Unable = 10,
}

impl Refusal {
    /// All reasons.
    pub const ALL: [Refusal; 10] = [
        Refusal::Version,
        Refusal::NotAllowed,
        Refusal::Invalid,
        Refusal::Exists,
        Refusal::NoRoom,
        Refusal::NoScan,
        Refusal::Busy,
        Refusal::Failed,
        Refusal::Incomplete,
        Refusal::Unable,
    ];

    /// Returns the reason with this code. A code of a later version is a failure, which the text explains.
    pub(super) fn of_code(code: u8) -> Self {
        let known = Self::ALL.into_iter().find(|it| *it as u8 == code);
        known.unwrap_or(Refusal::Failed)
    }
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// First message of the connecting end.
    Hello {
        /// The oldest and the newest version that it speaks.
        versions: (u16, u16),
        /// The purpose of the connection.
        role: Role,
        /// The secret of an invitation.
        secret: Option<[u8; 16]>,
        /// The name of its host.
        name: String,
    },
    /// Answer to it.
    Welcome {
        /// The version of all later messages.
        version: u16,
        /// The name of the host that answers.
        name: String,
    },
    /// A request is refused, or the transfer ends.
    Refuse {
        /// The reason, for programs.
        refusal: Refusal,
        /// The reason, for people.
        text: String,
    },
    /// Sender: here is a scan.
    Offer {
        /// Its manifest, as JSON.
        manifest: Vec<u8>,
        /// True if it is still being recorded.
        live: bool,
        /// Bytes of it so far.
        bytes: u64,
    },
    /// Receiver: send all blocks but these.
    Accept {
        /// The token that data connections of this transfer present.
        token: [u8; 16],
        /// The largest number of data connections.
        connections: u16,
        /// The blocks that are durable at the receiver, in the order of streams.
        durable: Vec<(u16, BlockSet)>,
    },
    /// Sender: the manifest has changed.
    Update {
        /// The whole manifest, as JSON.
        manifest: Vec<u8>,
    },
    /// Sender, on a data connection: a block. Its data follows this message directly.
    Block {
        /// First its block record, then its records of lengths.
        records: Vec<Record>,
        /// Bytes of data that follow: all of the block, or its end if the receiver holds the beginning.
        bytes: u32,
    },
    /// Receiver: the beginning of this block is here, from a connection that was lost.
    Held {
        /// The stream.
        stream: u16,
        /// The block.
        sequence: u64,
        /// The number of its first bytes that are here.
        bytes: u32,
    },
    /// Receiver: these blocks are durable.
    Durable {
        /// The stream.
        stream: u16,
        /// Blocks that became durable.
        blocks: BlockSet,
    },
    /// Receiver: this block arrived damaged; send it again.
    Rejected {
        /// The stream.
        stream: u16,
        /// The block.
        sequence: u64,
        /// The damage, for people.
        text: String,
    },
    /// Sender: records of gaps and found blocks, which belong to no block.
    Records {
        /// The records.
        records: Vec<Record>,
    },
    /// Sender: the account of a stream.
    Account {
        /// The stream.
        stream: u16,
        /// The account, as JSON.
        json: Vec<u8>,
    },
    /// Sender: nothing follows; seal with this manifest.
    Seal {
        /// The manifest, as JSON.
        manifest: Vec<u8>,
        /// The number of blocks that could not be read at the source.
        missing: u64,
    },
    /// Receiver: the scan is sealed and durable.
    Receipt {
        /// The UUID of the scan.
        scan: Uuid,
        /// Blocks of all streams.
        blocks: u64,
        /// Bytes of all streams.
        bytes: u64,
        /// The digest of all blocks, see `fullbore_store::copies::digest`.
        digest: [u8; 32],
        /// The time of the seal, by the clock of the receiver.
        at: Tai,
    },
    /// Connecting end that pulls: send me this scan.
    Request {
        /// The name, `<session>_<scan>`.
        scan: String,
    },
    /// Which scans are there?
    List,
    /// The scans that may be requested.
    Listing {
        /// Their names, as JSON.
        json: Vec<u8>,
    },
    /// Answer with a pong of the same number.
    Ping {
        /// Any number.
        number: u64,
    },
    /// The answer.
    Pong {
        /// The number of the ping.
        number: u64,
    },
    /// For measuring the link: data follows, which is discarded.
    Probe {
        /// Bytes of data that follow.
        bytes: u32,
    },
    /// For measuring the link: the data of probes that was received so far on this connection.
    Received {
        /// Its bytes.
        bytes: u64,
        /// The time since the first of them, in ns.
        elapsed_ns: u64,
    },
    /// This end sends nothing more.
    Bye,
}

/// The kind byte of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Hello = 1,
    Welcome = 2,
    Refuse = 3,
    Offer = 4,
    Accept = 5,
    Update = 6,
    Block = 7,
    Durable = 8,
    Rejected = 9,
    Records = 10,
    Account = 11,
    Seal = 12,
    Receipt = 13,
    Request = 14,
    List = 15,
    Listing = 16,
    Ping = 17,
    Pong = 18,
    Probe = 19,
    Received = 20,
    Bye = 21,
    Held = 22,
}

impl Kind {
    /// Kinds in the order of their numbers, from 1, each with its name.
    const ALL: [(Kind, &str); 22] = [
        (Kind::Hello, "hello"),
        (Kind::Welcome, "welcome"),
        (Kind::Refuse, "refuse"),
        (Kind::Offer, "offer"),
        (Kind::Accept, "accept"),
        (Kind::Update, "update"),
        (Kind::Block, "block"),
        (Kind::Durable, "durable"),
        (Kind::Rejected, "rejected"),
        (Kind::Records, "records"),
        (Kind::Account, "account"),
        (Kind::Seal, "seal"),
        (Kind::Receipt, "receipt"),
        (Kind::Request, "request"),
        (Kind::List, "list"),
        (Kind::Listing, "listing"),
        (Kind::Ping, "ping"),
        (Kind::Pong, "pong"),
        (Kind::Probe, "probe"),
        (Kind::Received, "received"),
        (Kind::Bye, "bye"),
        (Kind::Held, "held"),
    ];

    /// Returns the kind with this number.
    pub(super) fn of_number(number: u8) -> Option<Self> {
        let at = usize::from(number).checked_sub(1)?;
        Self::ALL.get(at).map(|(kind, _)| *kind)
    }

    /// Its name, in the reference and in errors.
    pub(super) fn name(self) -> &'static str {
        Self::ALL[self as usize - 1].1
    }
}

impl Message {
    pub(super) fn kind(&self) -> Kind {
        match self {
            Message::Hello { .. } => Kind::Hello,
            Message::Welcome { .. } => Kind::Welcome,
            Message::Refuse { .. } => Kind::Refuse,
            Message::Offer { .. } => Kind::Offer,
            Message::Accept { .. } => Kind::Accept,
            Message::Update { .. } => Kind::Update,
            Message::Block { .. } => Kind::Block,
            Message::Durable { .. } => Kind::Durable,
            Message::Rejected { .. } => Kind::Rejected,
            Message::Records { .. } => Kind::Records,
            Message::Account { .. } => Kind::Account,
            Message::Seal { .. } => Kind::Seal,
            Message::Receipt { .. } => Kind::Receipt,
            Message::Request { .. } => Kind::Request,
            Message::List => Kind::List,
            Message::Listing { .. } => Kind::Listing,
            Message::Ping { .. } => Kind::Ping,
            Message::Pong { .. } => Kind::Pong,
            Message::Probe { .. } => Kind::Probe,
            Message::Received { .. } => Kind::Received,
            Message::Bye => Kind::Bye,
            Message::Held { .. } => Kind::Held,
        }
    }

    /// The name of the message, in the reference and in errors.
    pub fn name(&self) -> &'static str {
        self.kind().name()
    }

    /// Bytes of data that follow the message.
    pub fn data_bytes(&self) -> u32 {
        match self {
            Message::Block { bytes, .. } | Message::Probe { bytes } => *bytes,
            _ => 0,
        }
    }
}
