//! Tracks which bytes of a stream's partial blocks are in its journal, and which to copy next.
//!
//! ```text
//! open blocks   |████████████████|███████▒▒▒▒▒········|
//!                copied before ──────────┘    │    └ still empty
//!                                new ─────────┘
//! ```
//!
//! Nothing is copied before the oldest frame in a partial block is a second old. A block that fills up earlier is never
//! copied.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fullbore_core::partial_block::{BlockState, EVERY_NS, Snapshot};
use fullbore_linux::ring::{BlockPatch, CopyState, CopyStatus, PartialBlockUpdate};
use fullbore_store::partial_blocks::PartialBlockJournal;
use fullbore_time::Tai;

use super::striping::StripeCursor;

/// The most bytes copied in one step, because the thread has sockets to read.
const MOST_COPIED: u32 = 256 << 10;

/// After this time a copy is not waited for: its member is stalled.
const PATIENCE_NS: i64 = 10 * EVERY_NS;

/// The largest number of blocks in a journal, which repairs and lists of lengths fill; then a new journal begins.
const MOST_BLOCKS: u64 = 8;

/// … if it also has more than this many bytes, however small the blocks are.
const SMALL_BYTES: u64 = 1 << 20;

/// A partial block: index of its first frame, and its bytes so far.
pub type OpenBlock = (i64, u32);

/// The partial blocks of a stream.
#[derive(Debug, Default)]
pub struct PartialBlocks {
    file: Option<File>,
    /// The time when the journal was last complete, or nothing was new.
    told: Option<Tai>,
    /// Copies under way, by member.
    copy_statuses: BTreeMap<usize, Arc<CopyStatus>>,
    /// Members that could not write the journal.
    failed: BTreeSet<usize>,
}

/// The journal file that is being written.
#[derive(Debug)]
struct File {
    member: usize,
    sequence: u64,
    copied: Vec<OpenBlock>,
    /// The bytes.
    bytes: u64,
    /// True if bytes were copied that no snapshot covers yet.
    untold: bool,
    /// The time of the last update.
    sent: Tai,
}

impl File {
    fn copied(&mut self, first: i64) -> &mut u32 {
        if let Some(at) = self.copied.iter().position(|it| it.0 == first) {
            return &mut self.copied[at].1;
        }
        self.copied.push((first, 0));
        &mut self.copied.last_mut().expect("just pushed").1
    }
}

impl PartialBlocks {
    /// True if the blocks that are open since `oldest` should be copied now.
    pub fn is_due(&self, oldest: Tai, now: Tai) -> bool {
        now.since(oldest) >= EVERY_NS && self.told.is_none_or(|told| now.since(told) >= EVERY_NS)
    }

    /// Marks the bytes of a block from `offset` on as changed.
    #[inline]
    pub fn touch(&mut self, first: i64, offset: u32) {
        let Some(file) = &mut self.file else { return };
        for (_, copied) in file.copied.iter_mut().filter(|it| it.0 == first) {
            *copied = (*copied).min(offset);
        }
    }

    /// Returns a member that can write the journal and has no copy under way.
    fn choose(
        &mut self,
        taking: &dyn Fn(usize) -> bool,
        members: usize,
        number: usize,
        now: Tai,
    ) -> Option<usize> {
        if let Some(file) = &self.file {
            let state = self.copy_statuses.get(&file.member).map(|copy_status| copy_status.state());
            let is_stuck = state == Some(CopyState::Busy) && now.since(file.sent) > PATIENCE_NS;
            if state == Some(CopyState::Failed) || is_stuck {
                self.failed.insert(file.member);
            } else if state == Some(CopyState::Busy) {
                return None;
            } else if taking(file.member) {
                return Some(file.member);
            }
            self.file = None;
        }
        let idle = |member: &usize| {
            self.copy_statuses
                .get(member)
                .is_none_or(|copy_status| copy_status.state() == CopyState::Idle)
        };
        (0..members)
            .map(|n| (number + n) % members)
            .find(|member| taking(*member) && !self.failed.contains(member) && idle(member))
    }

    /// Copies the new bytes of the partial blocks, up to the limit of one step, and sends them to a member that accepts
    /// data. `copy` returns a range of a block as it would be written, and the start of that range. `describe` returns
    /// the state of each of them.
    #[expect(clippy::too_many_arguments, reason = "a call of one kind of stream each")]
    pub fn keep(
        cursor: &mut StripeCursor,
        journal: &PartialBlockJournal,
        members: usize,
        taking: &dyn Fn(usize) -> bool,
        now: Tai,
        open: &[OpenBlock],
        copy: &mut dyn FnMut(usize, std::ops::Range<u32>) -> (u32, Vec<u8>),
        describe: &mut dyn FnMut() -> Vec<BlockState>,
    ) {
        let (stream_ref, sequence) = (cursor.stream_ref().clone(), cursor.next_sequence());
        let partial_blocks = cursor.partial_blocks();
        let Some(member) = partial_blocks.choose(taking, members, stream_ref.number.into(), now)
        else {
            return;
        };
        let geometry = stream_ref.geometry;
        let limit = (MOST_BLOCKS * u64::from(geometry.block_bytes)).max(SMALL_BYTES);
        partial_blocks.file =
            partial_blocks.file.take().filter(|it| it.sequence == sequence && it.bytes < limit);
        let fresh = partial_blocks.file.is_none();
        let file = partial_blocks.file.get_or_insert_with(|| File {
            member,
            sequence,
            copied: Vec::new(),
            bytes: 0,
            untold: false,
            sent: now,
        });
        let (mut room, mut patches, mut whole) = (MOST_COPIED, Vec::new(), true);
        for (number, &(first, bytes)) in open.iter().enumerate() {
            let copied = file.copied(first);
            if *copied < bytes && room > 0 {
                let to = bytes.min(copied.saturating_add(room));
                let (offset, bytes) = copy(number, *copied..to);
                room = room.saturating_sub(bytes.len() as u32);
                *copied = (*copied).max(offset + bytes.len() as u32);
                file.bytes += bytes.len() as u64;
                patches.push(BlockPatch { first, offset, bytes });
            }
            whole &= *file.copied(first) >= bytes;
        }
        if patches.is_empty() && !file.untold {
            partial_blocks.told = Some(now);
            return;
        }
        let mut snapshot = None;
        if whole {
            let all = Snapshot { sequence, at: now, geometry, blocks: describe() };
            snapshot = Some(all).filter(Snapshot::fits);
        }
        file.bytes += snapshot.as_ref().map_or(0, |it| it.body_bytes() as u64);
        (file.untold, file.sent) = (snapshot.is_none(), now);
        let copy_status = partial_blocks.copy_statuses.entry(member).or_default().clone();
        if journal.keep(
            member,
            PartialBlockUpdate { stream_ref, sequence, fresh, patches, snapshot, copy_status },
        ) {
            partial_blocks.told = if whole { Some(now) } else { partial_blocks.told };
        } else {
            partial_blocks.file = None;
        }
    }
}
