//! How far a scan is that is being recorded: what of each stream is durable, at which rate it comes, where it lies.

use std::path::PathBuf;

use fullbore_core::time::Tai;
use fullbore_core::units::ByteRate;
use serde::Serialize;

use super::Follower;
use crate::store::reader::{Placed, Stream};

/// The rate is that of so much of a stream, the newest.
const RECENT_NS: i64 = 5_000_000_000;

/// What of a stream is durable.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Durable {
    /// Its name.
    pub stream: String,
    /// Blocks that follow one another from the first on.
    pub blocks: u64,
    /// Bytes of them, fill included.
    pub bytes: u64,
    /// Frames in them that were received.
    pub frames: u64,
    /// Frames that are not there, so far; nothing where frames lie as they came.
    pub absent: Option<u64>,
    /// Durable blocks behind one that is still on its way to its member.
    pub ahead: u64,
    /// When the first block began to come, by the host's clock.
    pub first: Option<Tai>,
    /// When the last of them did.
    pub last: Option<Tai>,
    /// When the newest was made safe.
    pub marked: Option<Tai>,
    /// Bytes per second of the newest five seconds of them.
    pub rate: Option<ByteRate>,
}

/// What a member has got of a scan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Share {
    /// Its root.
    pub member: PathBuf,
    /// Durable blocks.
    pub blocks: u64,
    /// Bytes of them.
    pub bytes: u64,
}

impl Follower {
    /// What is durable of each stream, while the scan is recorded.
    pub fn durable(&self) -> Vec<Durable> {
        let of = |(number, stream): (usize, &Stream)| {
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

    /// What each member holds of it, while the scan is recorded.
    pub fn shares(&self) -> Vec<Share> {
        let of = |(number, root): (usize, &crate::store::inventory::Root)| {
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

fn blocks(stream: &Stream) -> impl Iterator<Item = &Placed> {
    stream.blocks.iter()
}

/// Frames between the first block's beginning and the last one's end that gaps tell of.
fn absent(stream: &Stream) -> u64 {
    match (stream.blocks.first(), stream.blocks.last()) {
        (Some(first), Some(last)) => {
            stream.gaps.clipped(first.block.first..stream.end_of(&last.block)).frames()
        }
        _ => 0,
    }
}

/// Bytes per second between the coming of the newest block and that of one some seconds before.
fn rate(stream: &Stream) -> Option<ByteRate> {
    let last = stream.blocks.last()?.block.seen;
    let from = last.plus_ns(-RECENT_NS);
    // When blocks came never goes back but with the host's clock.
    let begin = stream.blocks.partition_point(|it| it.block.seen < from);
    let recent = stream.blocks.get(begin..stream.blocks.len() - 1)?;
    let ns = u128::from(last.since(recent.first()?.block.seen).max(0).unsigned_abs());
    let bytes: u128 = recent.iter().map(|it| u128::from(it.block.bytes)).sum();
    let rate = (bytes * 1_000_000_000).checked_div(ns)?;
    u64::try_from(rate).ok().map(ByteRate)
}
