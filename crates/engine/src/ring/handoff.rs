//! The words between a capture thread, the writers of the members, and the supervisor.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use fullbore_core::gap::Gap;
use fullbore_core::index;
use fullbore_core::layout::Geometry;
use fullbore_core::time::Tai;
use uuid::Uuid;

use super::Block;

/// A stream of a scan, as writers know it.
#[derive(Debug)]
pub struct Track {
    /// The scan's identity, which goes into every index record.
    pub scan: Uuid,
    /// The stream's place in the manifest.
    pub number: u16,
    /// Its directory on every member.
    pub directory: String,
    /// How its bytes are cut.
    pub geometry: Geometry,
}

/// A block on its way to a member.
#[derive(Debug)]
pub struct Filled {
    /// The memory; its first `bytes` bytes count.
    pub block: Block,
    /// Whose it is.
    pub track: Arc<Track>,
    /// Number of the block within the stream.
    pub sequence: u64,
    /// Chunk that it goes into.
    pub chunk: u32,
    /// Where in the chunk, a multiple of 4096.
    pub offset: u64,
    /// How much of it; less than the geometry's block only at the end of the stream.
    pub bytes: u32,
    /// Frames in it, fill included (those that begin in it, with varying lengths).
    pub frames: u32,
    /// Of those, received.
    pub present: u32,
    /// Of those, marked invalid by their sender.
    pub invalid: u32,
    /// Index of its first frame.
    pub first: i64,
    /// Time of its first frame.
    pub time: Option<Tai>,
    /// When the first frame came that begins in it; of a PandA's samples, when the block was handed on.
    pub seen: Tai,
    /// Gaps that became certain with this block.
    pub gaps: Vec<Gap>,
    /// Lengths of the frames that begin in it, where they vary.
    pub lengths: Vec<u16>,
    /// CRC32C of its bytes, if it was taken while they were in the cache; else the writer takes it.
    pub crc: Option<u32>,
}

/// A [`Filled`] without its memory, which the kernel has.
#[derive(Debug)]
pub struct Label {
    /// Whose it is.
    pub track: Arc<Track>,
    /// What the index says of it.
    pub block: index::Block,
    /// Gaps that became certain with it.
    pub gaps: Vec<Gap>,
    /// Lengths of the frames that begin in it, where they vary.
    pub lengths: Vec<u16>,
}

impl Label {
    /// Takes the memory out of a block of this checksum.
    pub fn split(filled: Filled, crc: u32) -> (Self, Block) {
        let Filled { block, track, sequence, chunk, offset, bytes, .. } = filled;
        let Filled { frames, present, invalid, first, time, seen, gaps, lengths, .. } = filled;
        let record = index::Block {
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
        };
        (Self { track, block: record, gaps, lengths }, block)
    }

    /// Puts it together again; whoever writes it next takes its checksum anew.
    pub fn join(self, block: Block) -> Filled {
        let Self { track, block: record, gaps, lengths } = self;
        Filled {
            block,
            track,
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

/// What a capture thread asks of a writer.
#[derive(Debug)]
pub enum Command {
    /// Write this block.
    Write(Filled),
    /// No more blocks of this stream will come from this thread: sync, trim and close its files.
    Finish {
        /// The stream.
        track: Arc<Track>,
        /// Gaps that belong to no block, for the index.
        gaps: Vec<Gap>,
    },
}

/// What a writer gives back to the capture thread that sent it.
#[derive(Debug)]
pub enum Returned {
    /// The block is on the member (not yet durable) and its memory free.
    Written {
        /// The memory.
        block: Block,
        /// Whose it was.
        track: Arc<Track>,
        /// How much of it was written.
        bytes: u32,
    },
    /// The member cannot take it: deal it elsewhere.
    Refused(Filled),
}

/// What a writer tells the supervisor.
#[derive(Debug)]
pub enum Report {
    /// These blocks of a stream are durable: data and index records synced.
    Durable {
        /// The stream.
        track: Arc<Track>,
        /// Sequence numbers of the blocks.
        sequences: Vec<u64>,
        /// Bytes of them.
        bytes: u64,
    },
    /// The member takes no more data.
    Failed {
        /// Which member of the disk set.
        member: usize,
        /// What happened, for the manifest and the screen.
        why: String,
        /// Blocks of a stream that were written, not durable, and are no longer held, as the index would
        /// say: at the end they are read back.
        suspect: Vec<(Arc<Track>, Vec<index::Block>)>,
    },
    /// A member that failed, and was to be used again, has closed all that was left of before: what fails from now
    /// on is of the scans that were begun since.
    Back {
        /// Which member of the disk set.
        member: usize,
    },
    /// The one answer to `Finish`: all that a stream has on this member is durable, trimmed and closed,
    /// but for blocks that a `Failed` named as suspect before.
    Finished {
        /// Which member of the disk set.
        member: usize,
        /// The stream.
        track: Arc<Track>,
    },
    /// Its writer has ended before its time, and blocks with it: nothing more will be heard of either.
    Gone {
        /// Which member of the disk set.
        member: usize,
    },
}

/// Counters of a member that anybody may read while it works.
#[derive(Debug, Default)]
pub struct Gauge {
    /// Bytes handed to it and not yet written. Capture threads add, the writer subtracts.
    pub backlog_bytes: AtomicU64,
    /// Bytes written.
    pub written_bytes: AtomicU64,
    /// The longest time from submission to completion of a block, in nanoseconds.
    pub longest_write_ns: AtomicU64,
    /// The longest sync round, in nanoseconds.
    pub longest_sync_ns: AtomicU64,
    /// Set once the member takes no more data.
    pub refusing: AtomicBool,
    /// Set by the supervisor when a member that failed is to be used again, and cleared by its writer.
    pub recalled: AtomicBool,
}
