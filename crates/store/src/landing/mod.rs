//! A scan that arrives from another site: blocks in any order, written where they were, continued after any end.

use std::collections::BTreeMap;
use std::path::PathBuf;

use fullbore_core::account::Account;
use fullbore_core::block_set::BlockSet;
use fullbore_core::index::RECORD_BYTES;
use fullbore_core::manifest::Manifest;

use crate::Member;

/// The origin of a copy.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The name of the sending host.
    pub host: String,
    /// The fingerprint of its key, as hexadecimal digits.
    pub key: String,
}

/// A scan that arrives. All methods may be called from any thread.
#[derive(Debug)]
pub struct Landing {}

/// What a block's records say, after they were checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The stream.
    pub stream: u16,
    /// The sequence.
    pub sequence: u64,
    /// Bytes of data that follow.
    pub bytes: u32,
    /// True if the block is durable or being written already, so that its data is to be skipped.
    pub known: bool,
}

/// A scan that was sealed at the end of its transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// Blocks of all streams.
    pub blocks: u64,
    /// Bytes of all streams.
    pub bytes: u64,
    /// See [`crate::copies::digest`].
    pub digest: [u8; 32],
}

/// A copy that cannot be begun, continued or sealed.
#[derive(Debug, thiserror::Error)]
pub enum LandingError {
    /// A placeholder.
    #[error("{0}")]
    Todo(PathBuf),
}

/// A block that was not taken.
#[derive(Debug, thiserror::Error)]
pub enum BlockError {
    /// The CRC32C of the data is not that of its record: it must be sent again.
    #[error("the data is damaged")]
    Damaged,
    /// A record that no honest sender sends.
    #[error("{0}")]
    Invalid(String),
    /// It could not be written.
    #[error(transparent)]
    Landing(#[from] LandingError),
}

impl Landing {
    /// Begins a copy of a scan with this manifest on these members, or continues the copy that is there.
    pub fn begin(
        _members: &[Member],
        _manifest: &Manifest,
        _origin: &Origin,
    ) -> Result<Self, LandingError> {
        todo!()
    }

    /// The blocks that are durable.
    pub fn durable(&self) -> BTreeMap<u16, BlockSet> {
        todo!()
    }

    /// Takes on a new manifest of a scan that is still being recorded: streams may have been added.
    pub fn update(&self, _manifest: &Manifest) -> Result<(), LandingError> {
        todo!()
    }

    /// Checks the records of a block, before its data is read.
    pub fn check(&self, _records: &[[u8; RECORD_BYTES]]) -> Result<Expected, BlockError> {
        todo!()
    }

    /// Writes a block whose records were checked. `data` is the memory of a block: aligned, and long enough for whole
    /// pages. Returns when the data is written; a later [`sync`](Self::sync) makes it durable.
    pub fn write(
        &self,
        _records: &[[u8; RECORD_BYTES]],
        _data: &mut [u8],
    ) -> Result<(), BlockError> {
        todo!()
    }

    /// Bytes written since the last sync began.
    pub fn fresh_bytes(&self) -> u64 {
        todo!()
    }

    /// Carries out a sync round, and returns the blocks that became durable. One thread calls it every 250 ms, or sooner
    /// if [`fresh_bytes`](Self::fresh_bytes) is large.
    pub fn sync(&self) -> Result<BTreeMap<u16, BlockSet>, LandingError> {
        todo!()
    }

    /// Seals the scan with the sender's last manifest, accounts and records. Every block must be durable.
    pub fn seal(
        &self,
        _manifest: &Manifest,
        _accounts: &BTreeMap<u16, Account>,
        _records: &[[u8; RECORD_BYTES]],
    ) -> Result<Sealed, LandingError> {
        todo!()
    }
}
