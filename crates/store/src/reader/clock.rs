//! One clock for all blocks of a stream.
//!
//! Frames carry a time stamp, or only their arrival time is known. The clocks of sender and host may differ by years,
//! so a stream uses one of them, never both:
//!
//! ```text
//! block            0        1        2        3        last frame
//! its time         –        –     12.0 s   12.4 s                    until the rate was learnt, none
//! arrival       57.0 s   57.5 s   58.0 s   58.4 s
//! on the clock  11.0 s   11.5 s   12.0 s   12.4 s       12.8 s       the account has both ends
//! ```
//!
//! Within a block, frames count as evenly spaced in time unless their places tell more.

use fullbore_core::index::Block;
use fullbore_time::{Tai, frame_ns};

use super::stream::StoredStream;

/// The start times of a stream's blocks, and the end time of the stream.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    /// True if the clock is the frames' own time; false if it is the arrival time.
    pub by_frames: bool,
    /// The start time of each block, never earlier than the one before.
    pub starts: Vec<Tai>,
    /// The time of the last frame.
    pub end: Tai,
}

impl Clock {
    pub fn of(stream: &StoredStream) -> Self {
        let by_frames = stream.blocks.iter().any(|placed| placed.block.time.is_some());
        let mut starts = match by_frames {
            true => starts_by_frames(stream),
            false => stream.blocks.iter().map(|placed| placed.block.seen).collect(),
        };
        // If the clock was set back, the time stays constant until the clock has caught up.
        let mut latest = Tai(i64::MIN);
        for start in &mut starts {
            latest = latest.max(*start);
            *start = latest;
        }
        let end = end(stream, by_frames, &starts);
        Self { by_frames, starts, end }
    }
}

/// Returns each block's own time. A block without one gets a time relative to its neighbours, with the same spacing as
/// the arrivals.
fn starts_by_frames(stream: &StoredStream) -> Vec<Tai> {
    let block = |at: usize| &stream.blocks[at].block;
    let mut times: Vec<Option<Tai>> =
        stream.blocks.iter().map(|placed| placed.block.time).collect();
    anchor_first(stream, &mut times);
    let known: Vec<(usize, Tai)> =
        times.iter().enumerate().filter_map(|(at, time)| Some((at, (*time)?))).collect();
    let start = |(at, time): (usize, &Option<Tai>)| {
        if let Some(time) = *time {
            return time;
        }
        let next = known.partition_point(|(known, _)| *known < at);
        let before = next.checked_sub(1).map(|before| known[before]);
        let after = known.get(next).copied();
        let nearest = after.or(before).expect("some block has a time");
        let by_place = stream.time_by_place(block(nearest.0), nearest.1, block(at).first);
        by_place.unwrap_or_else(|| match (before, after) {
            (Some(before), Some(after)) => {
                let (from, to) = (block(before.0), block(after.0));
                let ns = i128::from(after.1.since(before.1).max(0));
                let (part, whole) = share(from, block(at), to);
                before.1.plus_ns((ns * part / whole) as i64)
            }
            (None, Some((after, time))) => time.plus_ns(-between(block(at), block(after))),
            (_, None) => nearest.1.plus_ns(between(block(nearest.0), block(at))),
        })
    };
    times.iter().enumerate().map(start).collect()
}

/// Takes the time of the first frame from the account, which has it once the rate was learnt.
fn anchor_first(stream: &StoredStream, times: &mut [Option<Tai>]) {
    let earliest = times.iter().flatten().next().copied();
    let told = stream.account.as_ref().and_then(|account| account.first?.time);
    let begins = stream.blocks.first().is_some_and(|placed| placed.block.sequence == 0);
    if let Some(first) = times.first_mut().filter(|_| begins && !stream.is_filled()) {
        *first = first.or(told.filter(|told| Some(*told) <= earliest));
    }
}

/// Nanoseconds between the arrivals of two blocks.
fn between(from: &Block, to: &Block) -> i64 {
    if from.seen.0 <= 0 { 0 } else { to.seen.since(from.seen).max(0) }
}

/// Returns the relative position of a block between two others: by arrival, else by frames.
fn share(from: &Block, block: &Block, to: &Block) -> (i128, i128) {
    let (whole, part) = (between(from, to), between(from, block));
    if whole > 0 && part <= whole {
        return (part.into(), whole.into());
    }
    let whole = to.first.saturating_sub(from.first).max(1);
    (block.first.saturating_sub(from.first).clamp(0, whole).into(), whole.into())
}

/// Returns the time of the last frame: by its place, by the account, else from the content of its block at the rate
/// before it.
fn end(stream: &StoredStream, by_frames: bool, starts: &[Tai]) -> Tai {
    let (Some(placed), Some(&start)) = (stream.blocks.last(), starts.last()) else {
        return Tai(0);
    };
    let last = stream.end_of(&placed.block).saturating_sub(1);
    if let Some(time) = stream.time_of(last) {
        return time.max(start);
    }
    let whole = !stream.absent.iter().any(|absent| absent.position == stream.blocks.len());
    let edge = stream.account.as_ref().and_then(|account| account.last).filter(|_| whole);
    let told = edge.and_then(|edge| if by_frames { edge.time } else { Some(edge.seen) });
    told.filter(|told| *told > start)
        .unwrap_or_else(|| start.plus_ns(length_by_rate(stream, starts)))
}

/// Nanoseconds from the first to the last frame of the last block, at the rate of all before it.
fn length_by_rate(stream: &StoredStream, starts: &[Tai]) -> i64 {
    let ([before @ .., last], [first, .., start]) = (stream.blocks.as_slice(), starts) else {
        return 0;
    };
    let bytes: i128 = before.iter().map(|placed| i128::from(placed.block.bytes)).sum();
    let ns = i128::from(start.since(*first)) * i128::from(last.block.bytes) / bytes.max(1);
    let frames = i128::from(last.block.frames.max(1));
    (ns * (frames - 1) / frames) as i64
}

/// The clock of the frames of one block.
#[derive(Clone, Copy, Debug)]
pub struct BlockClock {
    start: Tai,
    first: i64,
    pace: Pace,
}

#[derive(Clone, Copy, Debug)]
enum Pace {
    /// Frames per second: the time follows from the place.
    Rated(u64),
    /// Evenly spaced: this many nanoseconds for this many frames.
    Even { ns: i64, frames: i64 },
}

impl BlockClock {
    /// A clock of frames at a whole rate.
    pub fn rated(start: Tai, first: i64, frames_per_second: u64) -> Self {
        Self { start, first, pace: Pace::Rated(frames_per_second) }
    }

    /// A clock of frames that divide a time evenly.
    pub fn even(start: Tai, first: i64, ns: i64, frames: i64) -> Self {
        Self { start, first, pace: Pace::Even { ns: ns.max(0), frames: frames.max(1) } }
    }

    /// The time of a frame.
    pub fn time(&self, index: i64) -> Tai {
        let after = index.saturating_sub(self.first).max(0);
        self.start.plus_ns(match self.pace {
            Pace::Rated(rate) => frame_ns(after.unsigned_abs(), rate),
            Pace::Even { ns, frames } => {
                let ns = i128::from(ns) * i128::from(after) / i128::from(frames);
                i64::try_from(ns).unwrap_or(i64::MAX)
            }
        })
    }

    /// The first frame at or after an instant.
    pub(super) fn index_at(&self, time: Tai) -> i64 {
        let ns = i128::from(time.since(self.start).max(0));
        let (frames, of) = match self.pace {
            Pace::Rated(rate) => (i128::from(rate), 1_000_000_000),
            Pace::Even { ns, frames } => (i128::from(frames), i128::from(ns)),
        };
        if of == 0 {
            // All frames have the same time.
            return if ns == 0 { self.first } else { i64::MAX };
        }
        let after = i64::try_from((ns * frames + of - 1) / of).unwrap_or(i64::MAX);
        self.first.saturating_add(after)
    }
}
