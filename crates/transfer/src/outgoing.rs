//! The blocks of a scan that is sealed or being recorded, with their index records.

use std::collections::BTreeMap;
use std::path::PathBuf;

use fullbore_core::account::Account;
use fullbore_core::manifest::Manifest;
use fullbore_core::name::ScanName;
use fullbore_store::follow::FollowState;
use fullbore_store::read::BlockExtent;

use crate::protocol::Record;
use crate::schedule::BlockId;

/// A scan to send.
#[derive(Debug)]
pub struct Outgoing {}

/// A scan that cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum OutgoingError {}

/// A block to send.
#[derive(Clone, Debug)]
pub struct SourceBlock {
    /// Its location on the disk, and its CRC32C.
    pub extent: BlockExtent,
    /// Its block record and its records of lengths, as for the final chunk numbers.
    pub records: Vec<Record>,
}

/// The result of a look at a scan.
#[derive(Clone, Debug)]
pub struct News {
    /// New durable blocks, each with its length.
    pub blocks: Vec<(BlockId, u32)>,
    /// The state of the scan.
    pub state: FollowState,
    /// True if the manifest has changed.
    pub manifest: bool,
}

impl Outgoing {
    /// Opens a scan.
    pub fn open(_roots: &[PathBuf], _scan: &ScanName) -> Result<Self, OutgoingError> {
        todo!()
    }

    /// The manifest as it goes to the receiver: without members, redundancy and placement of this host.
    pub fn manifest(&self) -> Manifest {
        todo!()
    }

    /// Finds new durable blocks.
    pub fn look(&mut self) -> Result<News, OutgoingError> {
        todo!()
    }

    /// Returns a block; `None` if its file or member is gone.
    pub fn block(&self, _block: BlockId) -> Option<SourceBlock> {
        todo!()
    }

    /// Records of gaps and found blocks of a scan that is over.
    pub fn records(&self) -> Vec<Record> {
        todo!()
    }

    /// The accounts of a scan that is over.
    pub fn accounts(&self) -> BTreeMap<u16, Account> {
        todo!()
    }

    /// The digest of the blocks but these, see `fullbore_store::copies::digest`.
    pub fn digest(&self, _without: &[BlockId]) -> [u8; 32] {
        todo!()
    }
}
