//! Names and sizes of chunk files against the index, and block against block.

use std::collections::HashMap;

use fullbore_core::manifest::State;

use crate::store::finding::{Finding, What};
use crate::store::inventory::{Holding, chunks_by_number};
use crate::store::reader::{Placed, Scan, Stream};

/// Chunk files too many, too long, twice, or unfinished.
pub(super) fn files(scan: &Scan, stream: &Stream) -> Vec<Finding> {
    // Where the blocks of each chunk end.
    let mut known: HashMap<(usize, u32), u64> = HashMap::new();
    for placed in &stream.blocks {
        let end = placed.block.offset + u64::from(placed.block.bytes);
        let known_end = known.entry((placed.holding, placed.block.chunk)).or_insert(end);
        *known_end = end.max(*known_end);
    }
    let mut findings = Vec::new();
    let unsealed = scan.manifest.state == State::Recording;
    let all = scan.inventory.holdings.iter().enumerate();
    for (at, holding) in all.filter(|(_, it)| it.name == directory(scan, stream)) {
        let mut tell = |path: &std::path::Path, what| {
            findings.push(finding(scan, stream, holding, path, what));
        };
        for stranger in &holding.strangers {
            tell(stranger, What::Stranger);
        }
        for (number, file) in &holding.chunks {
            let is = file.bytes;
            match known.get(&(at, *number)) {
                _ if file.unfinished && !unsealed => {
                    tell(&file.path, What::ChunkUnfinished { bytes: is });
                }
                None if !unsealed => tell(&file.path, What::ChunkUnknown { bytes: is }),
                Some(&should) if is > should && !unsealed => {
                    tell(&file.path, What::ChunkTooLong { is, should });
                }
                _ => {}
            }
        }
    }
    for files in chunks_by_number(scan.inventory.of_stream(stream.number)).into_values() {
        for ((_, first), (holding, twin)) in files.iter().zip(files.iter().skip(1)) {
            let what = What::ChunkTwice { other: first.path.clone() };
            findings.push(finding(scan, stream, holding, &twin.path, what));
        }
    }
    findings
}

fn directory<'a>(scan: &'a Scan, stream: &Stream) -> &'a str {
    &scan.manifest.streams[stream.number].directory
}

fn finding(
    scan: &Scan,
    stream: &Stream,
    holding: &Holding,
    path: &std::path::Path,
    what: What,
) -> Finding {
    Finding {
        stream: Some(stream.name.clone()),
        member: Some(scan.inventory.roots[holding.root].path.clone()),
        file: Some(path.to_owned()),
        frames: None,
        what,
    }
}

/// Frames between neighbouring blocks that are in none, or in two.
pub(super) fn continuity(stream: &Stream) -> Vec<Finding> {
    let mut findings = Vec::new();
    let begin = |placed: &&Placed| placed.block.frames > 0;
    let blocks: Vec<&Placed> = stream.blocks.iter().filter(begin).collect();
    for (placed, next) in blocks.iter().zip(blocks.iter().skip(1)) {
        if next.block.sequence != placed.block.sequence + 1 {
            // What lies between is absent, or explained by a gap, and told of already.
            continue;
        }
        let (end, first) = (stream.end_of(&placed.block), next.block.first);
        let mut tell = |frames: std::ops::Range<i64>, what| {
            let finding = next.finding(stream, None, what);
            findings.push(Finding { frames: Some(frames.into()), ..finding });
        };
        if first < end {
            tell(first..end, What::FramesTwice);
        } else {
            for frames in stream.gaps.uncovered(end..first) {
                tell(frames, What::FramesUnaccounted);
            }
        }
    }
    findings
}
