//! Checks names and sizes of chunk files against the index, and blocks against each other.

use std::collections::HashMap;

use fullbore_core::manifest::State;
use fullbore_store::diagnostics::{Diagnostic, DiagnosticKind};
use fullbore_store::inventory::{MemberFiles, chunks_by_number};
use fullbore_store::reader::{BlockLocation, Scan, StoredStream};

/// Returns surplus, overlong, duplicate and unfinished chunk files.
pub(super) fn files(scan: &Scan, stream: &StoredStream) -> Vec<Diagnostic> {
    // The end of the blocks of each chunk.
    let mut known: HashMap<(usize, u32), u64> = HashMap::new();
    for location in &stream.blocks {
        let end = location.block.offset + u64::from(location.block.bytes);
        let known_end = known.entry((location.holding, location.block.chunk)).or_insert(end);
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
            tell(stranger, DiagnosticKind::Stranger);
        }
        for (number, file) in &holding.chunks {
            let is = file.bytes;
            match known.get(&(at, *number)) {
                _ if file.unfinished && !unsealed => {
                    tell(&file.path, DiagnosticKind::ChunkUnfinished { bytes: is });
                }
                None if !unsealed => tell(&file.path, DiagnosticKind::ChunkUnknown { bytes: is }),
                Some(&should) if is > should && !unsealed => {
                    tell(&file.path, DiagnosticKind::ChunkTooLong { is, should });
                }
                _ => {}
            }
        }
    }
    for files in chunks_by_number(scan.inventory.of_stream(stream.number)).into_values() {
        for ((_, first), (holding, twin)) in files.iter().zip(files.iter().skip(1)) {
            let what = DiagnosticKind::ChunkTwice { other: first.path.clone() };
            findings.push(finding(scan, stream, holding, &twin.path, what));
        }
    }
    findings
}

fn directory<'a>(scan: &'a Scan, stream: &StoredStream) -> &'a str {
    &scan.manifest.streams[stream.number].directory
}

fn finding(
    scan: &Scan,
    stream: &StoredStream,
    holding: &MemberFiles,
    path: &std::path::Path,
    what: DiagnosticKind,
) -> Diagnostic {
    Diagnostic {
        stream: Some(stream.name.clone()),
        member: Some(scan.inventory.roots[holding.root].path.clone()),
        file: Some(path.to_owned()),
        frames: None,
        what,
    }
}

/// Returns the frames between adjacent blocks that are in none, or in two.
pub(super) fn continuity(stream: &StoredStream) -> Vec<Diagnostic> {
    let mut findings = Vec::new();
    let begin = |location: &&BlockLocation| location.block.frames > 0;
    let blocks: Vec<&BlockLocation> = stream.blocks.iter().filter(begin).collect();
    for (location, next) in blocks.iter().zip(blocks.iter().skip(1)) {
        if next.block.sequence != location.block.sequence + 1 {
            // The frames in between are absent, or explained by a gap, and reported already.
            continue;
        }
        let (end, first) = (stream.end_of(&location.block), next.block.first);
        let mut tell = |frames: std::ops::Range<i64>, what| {
            let finding = next.finding(stream, None, what);
            findings.push(Diagnostic { frames: Some(frames.into()), ..finding });
        };
        if first < end {
            tell(first..end, DiagnosticKind::FramesTwice);
        } else {
            for frames in stream.gaps.uncovered(end..first) {
                tell(frames, DiagnosticKind::FramesUnaccounted);
            }
        }
    }
    findings
}
