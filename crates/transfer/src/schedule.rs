//! Decides which block goes next on which connection, as a pure state machine.

use fullbore_core::block_set::BlockSet;

/// A block of a scan: stream and sequence.
pub type BlockId = (u16, u64);

/// The blocks of a transfer, from known to durable.
#[derive(Debug, Default)]
pub struct Schedule {}

impl Schedule {
    /// The receiver has these blocks.
    pub fn has(&mut self, _stream: u16, _blocks: &BlockSet) {
        todo!()
    }

    /// The block exists at the source.
    pub fn add(&mut self, _block: BlockId, _bytes: u32) {
        todo!()
    }

    /// Returns the next block for a connection, and counts it as in flight there: rejected and returned blocks first,
    /// then the streams in turn, each in order.
    pub fn take(&mut self, _connection: u32) -> Option<BlockId> {
        todo!()
    }

    /// The source cannot read the block.
    pub fn missing(&mut self, _block: BlockId) {
        todo!()
    }

    /// The block arrived damaged: it goes again.
    pub fn rejected(&mut self, _block: BlockId) {
        todo!()
    }

    /// The connection is lost: its blocks that are not durable go again.
    pub fn lost(&mut self, _connection: u32) {
        todo!()
    }

    /// These blocks are durable at the receiver. Unknown blocks are an error of the peer.
    pub fn durable(&mut self, _stream: u16, _blocks: &BlockSet) -> Result<(), String> {
        todo!()
    }

    /// Returns true if every block that exists is durable or missing.
    pub fn is_complete(&self) -> bool {
        todo!()
    }

    /// The progress.
    pub fn progress(&self) -> Progress {
        todo!()
    }
}

/// The progress of a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Blocks known.
    pub blocks: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Blocks durable at the receiver, those included that it had before.
    pub durable_blocks: u64,
    /// Bytes of them.
    pub durable_bytes: u64,
    /// Bytes that the receiver had before.
    pub had_bytes: u64,
    /// Bytes taken for sending, repetitions included.
    pub taken_bytes: u64,
    /// Bytes taken again after a loss or a rejection.
    pub again_bytes: u64,
    /// Blocks that the source cannot read.
    pub missing_blocks: u64,
}
