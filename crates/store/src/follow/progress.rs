//! Progress of a scan that is being recorded: the durable part of each stream, its rate, and its distribution over
//! members.

use std::path::PathBuf;

use fullbore_core::units::ByteRate;
use fullbore_time::Tai;
use serde::Serialize;

use super::Follower;
use crate::reader::{BlockLocation, StoredStream};

/// The rate is measured over this newest part of a stream.
const RECENT_NS: i64 = 5_000_000_000;

/// The durable part of a stream.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Durable {
    /// The name.
    pub stream: String,
    /// Consecutive durable blocks from the first on.
    pub blocks: u64,
    /// Bytes of them, fill included.
    pub bytes: u64,
    /// Frames in them that were received.
    pub frames: u64,
    /// Frames absent so far; `None` in sequential streams.
    pub absent: Option<u64>,
    /// Durable blocks behind one that is not durable yet.
    pub ahead: u64,
    /// Arrival of the first block's first frame, by the host's clock.
    pub first: Option<Tai>,
    /// Arrival of the last of these blocks.
    pub last: Option<Tai>,
    /// Time when the newest block became durable.
    pub marked: Option<Tai>,
    /// Bytes per second of the newest five seconds of them.
    pub rate: Option<ByteRate>,
}

/// The part of a scan that a member holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Share {
    /// The root.
    pub member: PathBuf,
    /// Durable blocks.
    pub blocks: u64,
    /// Bytes of them.
    pub bytes: u64,
}

impl Follower {
    /// Returns the durable part of each stream, while the scan is recorded.
    pub fn durable(&self) -> Vec<Durable> {
        let of = |(number, stream): (usize, &StoredStream)| {
            let series = self.streams.get(number);
            let tails = || series.iter().flat_map(|it| &it.tails);
            Durable {
                stream: stream.name.clone(),
                blocks: stream.blocks.len() as u64,
                bytes: stream.bytes(),
                frames: blocks(stream).map(|it| u64::from(it.block.present)).sum(),
                absent: stream.is_filled().then(|| absent(stream)),
                ahead: series.map_or(0, |it| it.waiting.len() as u64),
                first: stream.blocks.first().map(|it| it.block.seen),
                last: stream.blocks.last().map(|it| it.block.seen),
                marked: tails().filter_map(|tail| tail.index.index().marked).max(),
                rate: rate(stream),
            }
        };
        self.scan.streams.iter().enumerate().map(of).collect()
    }

    /// Returns the part that each member holds, while the scan is recorded.
    pub fn shares(&self) -> Vec<Share> {
        let of = |(number, root): (usize, &crate::inventory::Root)| {
            let tails = || self.streams.iter().filter_map(|it| it.tails.get(number));
            Share {
                member: root.path.clone(),
                blocks: tails().map(|tail| tail.taken as u64).sum(),
                bytes: tails().map(|tail| tail.bytes).sum(),
            }
        };
        self.scan.inventory.roots.iter().enumerate().map(of).collect()
    }
}

fn blocks(stream: &StoredStream) -> impl Iterator<Item = &BlockLocation> {
    stream.blocks.iter()
}

/// Returns the frames in gaps between the start of the first block and the end of the last one.
fn absent(stream: &StoredStream) -> u64 {
    match (stream.blocks.first(), stream.blocks.last()) {
        (Some(first), Some(last)) => {
            stream.gaps.clipped(first.block.first..stream.end_of(&last.block)).frames()
        }
        _ => 0,
    }
}

/// Returns bytes per second between the arrivals of the newest block and of one some seconds before.
fn rate(stream: &StoredStream) -> Option<ByteRate> {
    let last = stream.blocks.last()?.block.seen;
    let from = last.plus_ns(-RECENT_NS);
    // Arrival times only go back if the host's clock is set back.
    let begin = stream.blocks.partition_point(|it| it.block.seen < from);
    let recent = stream.blocks.get(begin..stream.blocks.len() - 1)?;
    let ns = u128::from(last.since(recent.first()?.block.seen).max(0).unsigned_abs());
    let bytes: u128 = recent.iter().map(|it| u128::from(it.block.bytes)).sum();
    let rate = (bytes * 1_000_000_000).checked_div(ns)?;
    u64::try_from(rate).ok().map(ByteRate)
}
