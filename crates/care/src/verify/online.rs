//! Online verification: checks a scan while it is recorded and keeps the results until it is sealed.
//!
//! A block's checksum is final. Its frames are judged by what is known of the stream, and the account knows more at the
//! end. So results are kept only for blocks without any anomaly, together with the knowledge that they were judged by.
//! All other blocks are read again when the scan is sealed.

use std::collections::BTreeMap;

use fullbore_core::index::Block;
use fullbore_store::diagnostics::Diagnostic;
use fullbore_store::reader::{Item, Scan, StoredStream};

use super::walk::{Clock, Walk, walk_frames};
use super::{BlockResult, Results, StreamResult, Verification};

/// The results for each stream of a scan that is being recorded.
#[derive(Debug, Default)]
pub struct Checked {
    streams: BTreeMap<usize, OfStream>,
    findings: Vec<Diagnostic>,
}

#[derive(Debug, Default)]
struct OfStream {
    clock: Option<Clock>,
    kept: BTreeMap<u64, (Block, BlockResult)>,
    /// Blocks that were checked, and those of them that match their checksum.
    blocks: u64,
    good: u64,
    bytes: u64,
}

impl Checked {
    /// Takes the next item of a stream. Its problems are reported again at the end.
    pub fn take(&mut self, stream: &StoredStream, item: Item) -> Option<&Diagnostic> {
        let checked = self.streams.entry(stream.number).or_default();
        match item {
            Item::Lost(finding) => {
                checked.blocks += 1;
                self.findings.push(finding);
                self.findings.last()
            }
            Item::Block(delivered) => {
                let block = delivered.location.block;
                checked.blocks += 1;
                checked.good += 1;
                checked.bytes += u64::from(block.bytes);
                let walk = walk_frames(stream, &block, delivered.bytes());
                checked.keep(Clock::of(stream), block, walk);
                None
            }
        }
    }

    /// The problems found so far.
    pub fn findings(&self) -> &[Diagnostic] {
        &self.findings
    }

    /// Bytes that were read and are good.
    pub fn bytes(&self) -> u64 {
        self.streams.values().map(|it| it.bytes).sum()
    }

    /// Returns the result for a scan that is still being recorded.
    pub fn so_far(self, scan: &Scan, seconds: f64) -> Verification {
        let of = |stream: &StoredStream| {
            let (blocks, good) =
                self.streams.get(&stream.number).map_or((0, 0), |it| (it.blocks, it.good));
            let read = stream.blocks.get(..blocks as usize).unwrap_or(&stream.blocks);
            let absent = read.first().zip(read.last()).map_or(0, |(first, last)| {
                let frames = first.block.first..stream.end_of(&last.block);
                stream.gaps.clipped(frames).frames()
            });
            StreamResult {
                name: stream.name.clone(),
                good_blocks: good,
                blocks,
                good: good == blocks,
                lost: 0,
                written: read.iter().map(|it| u64::from(it.block.present)).sum(),
                absent: stream.is_filled().then_some(absent),
                stored: None,
                verdict: None,
                why_overrun: None,
                gaps_unlisted: 0,
                unit: if stream.is_of_bytes() { "byte" } else { "frame" },
            }
        };
        let streams: Vec<StreamResult> = scan.streams.iter().map(of).collect();
        let findings: Vec<Diagnostic> =
            scan.findings.iter().chain(&self.findings).cloned().collect();
        Verification {
            scan: scan.manifest.scan.to_string(),
            uuid: scan.manifest.uuid,
            state: scan.manifest.state,
            good: findings.is_empty(),
            completeness: None,
            blocks: streams.iter().map(|it| it.blocks).sum(),
            bytes: self.bytes(),
            seconds,
            streams,
            redundancy: None,
            findings,
        }
    }

    /// Returns the results that need not be read again, by stream and position.
    pub(super) fn known(mut self, scan: &Scan) -> Vec<Results> {
        let of = |stream: &StoredStream| {
            let checked = self.streams.remove(&stream.number).unwrap_or_default();
            checked.known(stream)
        };
        scan.streams.iter().map(of).collect()
    }
}

impl OfStream {
    fn keep(&mut self, clock: Clock, block: Block, walk: Walk) {
        if self.clock.is_some_and(|before| before != clock) {
            self.kept.clear();
        }
        self.clock = Some(clock);
        let is_odd = walk.bad.count + walk.misplaced.count + walk.unmarked > 0;
        if !is_odd {
            let result = BlockResult { fault: None, length: block.bytes, walk };
            self.kept.insert(block.sequence, (block, result));
        }
    }

    fn known(mut self, stream: &StoredStream) -> Results {
        if self.clock != Some(Clock::of(stream)) {
            return Results::new();
        }
        let of = |(position, location): (usize, &fullbore_store::reader::BlockLocation)| {
            let (block, result) = self.kept.remove(&location.block.sequence)?;
            let frames = block.first..stream.end_of(&block);
            let filled = !result.walk.walked
                || !stream.is_filled()
                || stream.gaps.clipped(frames).frames() == result.walk.fill;
            (block == location.block && filled).then_some((position, result))
        };
        stream.blocks.iter().enumerate().filter_map(of).collect()
    }
}
