//! Messages between capture threads, the writers of the members, and the supervisor.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use fullbore_core::gap::Gap;
use fullbore_core::index;
use fullbore_core::layout::Geometry;
use fullbore_time::Tai;
use uuid::Uuid;

use super::Block;

/// A reference to a stream of a scan: identity, directory and geometry.
#[derive(Debug)]
pub struct StreamRef {
    /// The scan's identity, which goes into every index record.
    pub scan: Uuid,
    /// The stream's place in the manifest.
    pub number: u16,
    /// The directory on every member.
    pub directory: String,
    /// The division of its bytes into blocks and chunks.
    pub geometry: Geometry,
}

/// A full block on its way to a member.
#[derive(Debug)]
pub struct FullBlock {
    /// The memory; its first `bytes` bytes are valid.
    pub block: Block,
    /// The stream.
    pub stream_ref: Arc<StreamRef>,
    /// Number of the block within the stream.
    pub sequence: u64,
    /// The chunk that it goes into.
    pub chunk: u32,
    /// Offset in the chunk, a multiple of 4096.
    pub offset: u64,
    /// The number of valid bytes; less than the geometry's block only at the end of the stream.
    pub bytes: u32,
    /// Frames in it, including fill; with varying lengths, the frames that begin in it.
    pub frames: u32,
    /// Received frames among these.
    pub present: u32,
    /// Frames among these that their sender marked invalid.
    pub invalid: u32,
    /// Index of its first frame.
    pub first: i64,
    /// Time of its first frame.
    pub time: Option<Tai>,
    /// The arrival time of the first frame that begins in it; for a PandA's samples, the time at which the block was
    /// sent to the writer.
    pub seen: Tai,
    /// Gaps that became certain with this block.
    pub gaps: Vec<Gap>,
    /// Lengths of the frames that begin in it, if they vary.
    pub lengths: Vec<u16>,
    /// CRC32C of its bytes, if it was computed while they were in the CPU cache; else the writer computes it.
    pub crc: Option<u32>,
}

impl FullBlock {
    /// Returns its index record with this checksum.
    fn record(&self, crc: u32) -> index::Block {
        let Self { sequence, chunk, offset, bytes, frames, present, invalid, .. } = *self;
        let Self { first, time, seen, .. } = *self;
        index::Block {
            sequence,
            offset,
            chunk,
            bytes,
            crc,
            frames,
            present,
            invalid,
            first,
            time,
            seen,
        }
    }
}

/// The metadata of a [`FullBlock`], while the kernel has its memory.
#[derive(Debug)]
pub struct BlockMeta {
    /// The stream.
    pub stream_ref: Arc<StreamRef>,
    /// The index record.
    pub block: index::Block,
    /// Gaps that became certain with it.
    pub gaps: Vec<Gap>,
    /// Lengths of the frames that begin in it, if they vary.
    pub lengths: Vec<u16>,
}

impl BlockMeta {
    /// Copies the metadata of a block whose checksum is computed by its writer.
    pub fn of(filled: &FullBlock) -> Self {
        let (gaps, lengths) = (filled.gaps.clone(), filled.lengths.clone());
        Self { stream_ref: filled.stream_ref.clone(), block: filled.record(0), gaps, lengths }
    }

    /// Splits a block with this checksum into metadata and memory.
    pub fn split(filled: FullBlock, crc: u32) -> (Self, Block) {
        let record = filled.record(crc);
        let FullBlock { block, stream_ref, gaps, lengths, .. } = filled;
        (Self { stream_ref, block: record, gaps, lengths }, block)
    }

    /// Joins metadata and memory again. The next writer computes the checksum anew.
    pub fn join(self, block: Block) -> FullBlock {
        let Self { stream_ref, block: record, gaps, lengths } = self;
        FullBlock {
            block,
            stream_ref,
            sequence: record.sequence,
            chunk: record.chunk,
            offset: record.offset,
            bytes: record.bytes,
            frames: record.frames,
            present: record.present,
            invalid: record.invalid,
            first: record.first,
            time: record.time,
            seen: record.seen,
            gaps,
            lengths,
            crc: None,
        }
    }
}

/// A command of a capture thread to a writer.
#[derive(Debug)]
pub enum WriterCommand {
    /// Write this block.
    Write(FullBlock),
    /// This thread sends no more blocks of this stream: sync, trim and close its files.
    Finish {
        /// The stream.
        stream_ref: Arc<StreamRef>,
        /// Gaps that belong to no block, for the index.
        gaps: Vec<Gap>,
    },
}

/// A writer's reply to the capture thread that sent the block.
#[derive(Debug)]
pub enum WriterReply {
    /// The block is on the member (not yet durable), and its memory is free.
    Written {
        /// The memory.
        block: Block,
        /// The stream.
        stream_ref: Arc<StreamRef>,
        /// The number of bytes written.
        bytes: u32,
    },
    /// The member cannot store the block: send it to another member.
    Refused(FullBlock),
}

/// An event that a writer sends to the supervisor.
#[derive(Debug)]
pub enum WriterEvent {
    /// Blocks of a stream are durable: data and index records synced.
    Durable {
        /// The stream.
        stream_ref: Arc<StreamRef>,
        /// Sequence numbers of the blocks.
        sequences: Vec<u64>,
        /// Bytes of them.
        bytes: u64,
    },
    /// The member takes no more data.
    Failed {
        /// The member's place in the disk set.
        member: usize,
        /// The cause, for the manifest and the screen.
        why: String,
        /// Index records of blocks that were written but are neither durable nor still in memory. They are read back at
        /// the end.
        suspect: Vec<(Arc<StreamRef>, Vec<index::Block>)>,
    },
    /// The target has no more space for its stream. All blocks before are written.
    Full {
        /// The target's place in the sink.
        member: usize,
    },
    /// A stream goes into another file, because the intended one cannot take it.
    Alternate {
        /// The scan.
        scan: Uuid,
        /// The stream's place in the manifest.
        number: u16,
        /// The intended file, which stays unchanged.
        meant: PathBuf,
        /// The file that takes it.
        file: PathBuf,
        /// The reason.
        why: String,
    },
    /// A re-added member has closed all of its old files. Later failures belong to scans that began after the return.
    Back {
        /// The member's place in the disk set.
        member: usize,
    },
    /// The one reply to `Finish`: all data of the stream on this member is durable, trimmed and closed, except for
    /// blocks that an earlier `Failed` named as suspect.
    Finished {
        /// The member's place in the disk set.
        member: usize,
        /// The stream.
        stream_ref: Arc<StreamRef>,
    },
    /// The member's writer ended early and dropped its blocks. It sends no more events.
    Gone {
        /// The member's place in the disk set.
        member: usize,
    },
}

/// Metrics of a member, readable from any thread.
#[derive(Debug, Default)]
pub struct WriterMetrics {
    /// Bytes queued to it and not yet written. Capture threads add, the writer subtracts.
    pub backlog_bytes: AtomicU64,
    /// Bytes written.
    pub written_bytes: AtomicU64,
    /// The longest time from submission to completion of a block, in nanoseconds.
    pub longest_write_ns: AtomicU64,
    /// The longest sync round, in nanoseconds.
    pub longest_sync_ns: AtomicU64,
    /// Set once the member takes no more data.
    pub refusing: AtomicBool,
    /// Set by the supervisor when a failed member is to be used again, and cleared by its writer.
    pub recalled: AtomicBool,
}
