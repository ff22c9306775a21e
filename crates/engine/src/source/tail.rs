//! How far the open blocks of a stream were copied into its tail, and what is to be copied next.
//!
//! ```text
//! open blocks   |████████████████|███████▒▒▒▒▒········|
//!                copied before ──────────┘    │    └ to come
//!                                new ─────────┘
//! ```
//!
//! Nothing is copied before the oldest frame in an open block is a second old: a block that is full by then never is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fullbore_core::tail::{EVERY_NS, Picture, Piece};
use fullbore_core::time::Tai;

use super::dealer::Course;
use crate::ring::{Patch, Slip, Snapshot, Standing};
use crate::store::tails::Tails;

/// The most that is copied at one look: the thread has sockets to read.
const MOST_COPIED: u32 = 256 << 10;

/// A copy that has not arrived after so long is not waited for: its member stands still.
const PATIENCE_NS: i64 = 10 * EVERY_NS;

/// A tail of more than so many blocks, which repairs and lists of lengths make, is begun anew.
const MOST_BLOCKS: u64 = 8;

/// … and more than so many bytes, however small the blocks are.
const SMALL_BYTES: u64 = 1 << 20;

/// An open block: index of its first frame, and bytes of it so far.
pub type Extent = (i64, u32);

/// The tail of a stream.
#[derive(Debug, Default)]
pub struct Tail {
    file: Option<File>,
    /// When it was last all there, or nothing was new.
    told: Option<Tai>,
    /// Copies on their way, by member.
    slips: BTreeMap<usize, Arc<Slip>>,
    /// Members that could not keep it.
    failed: BTreeSet<usize>,
}

/// The file that is being written.
#[derive(Debug)]
struct File {
    member: usize,
    sequence: u64,
    copied: Vec<Extent>,
    /// Bytes of it.
    bytes: u64,
    /// Whether something was copied that no picture tells of.
    untold: bool,
    /// When something was last handed over.
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

impl Tail {
    /// Whether it is time for a look at what is open since `oldest`.
    pub fn is_due(&self, oldest: Tai, now: Tai) -> bool {
        now.since(oldest) >= EVERY_NS && self.told.is_none_or(|told| now.since(told) >= EVERY_NS)
    }

    /// Takes note that a block holds something else now from a place on.
    #[inline]
    pub fn touch(&mut self, first: i64, offset: u32) {
        let Some(file) = &mut self.file else { return };
        for (_, copied) in file.copied.iter_mut().filter(|it| it.0 == first) {
            *copied = (*copied).min(offset);
        }
    }

    /// A member that can keep it, and to which nothing is on its way.
    fn choose(
        &mut self,
        taking: &dyn Fn(usize) -> bool,
        members: usize,
        number: usize,
        now: Tai,
    ) -> Option<usize> {
        if let Some(file) = &self.file {
            let standing = self.slips.get(&file.member).map(|slip| slip.standing());
            let is_stuck = standing == Some(Standing::Busy) && now.since(file.sent) > PATIENCE_NS;
            if standing == Some(Standing::Failed) || is_stuck {
                self.failed.insert(file.member);
            } else if standing == Some(Standing::Busy) {
                return None;
            } else if taking(file.member) {
                return Some(file.member);
            }
            self.file = None;
        }
        let idle = |member: &usize| {
            self.slips.get(member).is_none_or(|slip| slip.standing() == Standing::Idle)
        };
        (0..members)
            .map(|n| (number + n) % members)
            .find(|member| taking(*member) && !self.failed.contains(member) && idle(member))
    }

    /// Copies what is new of the open blocks, as far as one look goes, and hands it to a member that takes data.
    /// `copy` gives what lies in a block from a place to another, as it would be handed on, and where that begins.
    /// `describe` says of all of them what they are.
    #[expect(clippy::too_many_arguments, reason = "a call of one kind of stream each")]
    pub fn keep(
        course: &mut Course,
        tails: &Tails,
        members: usize,
        taking: &dyn Fn(usize) -> bool,
        now: Tai,
        open: &[Extent],
        copy: &mut dyn FnMut(usize, std::ops::Range<u32>) -> (u32, Vec<u8>),
        describe: &mut dyn FnMut() -> Vec<Piece>,
    ) {
        let (track, sequence) = (course.track().clone(), course.next_sequence());
        let tail = course.tail();
        let Some(member) = tail.choose(taking, members, track.number.into(), now) else { return };
        let geometry = track.geometry;
        let limit = (MOST_BLOCKS * u64::from(geometry.block_bytes)).max(SMALL_BYTES);
        tail.file = tail.file.take().filter(|it| it.sequence == sequence && it.bytes < limit);
        let fresh = tail.file.is_none();
        let file = tail.file.get_or_insert_with(|| File {
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
                patches.push(Patch { first, offset, bytes });
            }
            whole &= *file.copied(first) >= bytes;
        }
        if patches.is_empty() && !file.untold {
            tail.told = Some(now);
            return;
        }
        let mut picture = None;
        if whole {
            let all = Picture { sequence, at: now, geometry, pieces: describe() };
            picture = Some(all).filter(Picture::fits);
        }
        file.bytes += picture.as_ref().map_or(0, |it| it.body_bytes() as u64);
        (file.untold, file.sent) = (picture.is_none(), now);
        let slip = tail.slips.entry(member).or_default().clone();
        if tails.keep(member, Snapshot { track, sequence, fresh, patches, picture, slip }) {
            tail.told = if whole { Some(now) } else { tail.told };
        } else {
            tail.file = None;
        }
    }
}
