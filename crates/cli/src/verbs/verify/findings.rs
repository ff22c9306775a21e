//! Findings for people: a line each, and one line for many of a kind.
//!
//! A disk that is not attached holds thousands of blocks. They are one fact, and are told as one.

use std::collections::BTreeMap;
use std::path::Path;

use fullbore_core::completeness::counted;
use fullbore_engine::store::finding::{Finding, What};

/// So many findings of one kind are listed before the others are only counted.
const LISTED: usize = 3;

/// What a finding has in common with others: the stream, and what it is.
type Kind<'a> = (Option<&'a str>, std::mem::Discriminant<What>);

/// The lines. With `all`, one for each finding.
pub fn lines(findings: &[Finding], all: bool) -> Vec<String> {
    if all {
        return findings.iter().map(ToString::to_string).collect();
    }
    let absent: Vec<&Path> = findings.iter().filter_map(absent_member).collect();
    let (away, here): (Vec<&Finding>, Vec<&Finding>) =
        findings.iter().partition(|finding| is_away(finding, &absent));
    let mut lines: Vec<String> = Vec::new();
    let mut kinds: Vec<(Kind<'_>, usize)> = Vec::new();
    for finding in here {
        let kind = (finding.stream.as_deref(), std::mem::discriminant(&finding.what));
        let at = kinds.iter().position(|(known, _)| *known == kind);
        let at = at.unwrap_or_else(|| {
            kinds.push((kind, 0));
            kinds.len() - 1
        });
        kinds[at].1 += 1;
        if kinds[at].1 <= LISTED || absent_member(finding).is_some() {
            lines.push(finding.to_string());
        }
    }
    let missing = away_lines(&away);
    // Below the members that they lie on, which come first.
    let at = lines.len().min(absent.len());
    lines.splice(at..at, missing);
    for ((stream, _), number) in kinds.into_iter().filter(|(_, number)| *number > LISTED) {
        if let Some(stream) = stream {
            let more = counted((number - LISTED) as u64, "more finding");
            lines.push(format!("stream {stream}: {more} of this kind: --verbose lists them"));
        }
    }
    lines
}

/// Where the member was that a finding says is not attached.
fn absent_member(finding: &Finding) -> Option<&Path> {
    match &finding.what {
        What::MemberAbsent { was_at, .. } => Some(was_at),
        _ => None,
    }
}

/// Whether a finding only says that what lies on an absent member is not there.
fn is_away(finding: &Finding, absent: &[&Path]) -> bool {
    let file = finding.file.as_deref();
    let lies_there = || file.is_some_and(|file| absent.iter().any(|root| file.starts_with(root)));
    match finding.what {
        What::BlocksAbsent { .. } => !absent.is_empty(),
        What::ChunkMissing { .. } | What::ParityMissing { .. } => lies_there(),
        _ => false,
    }
}

/// What lies on members that are not attached, a line for each stream.
fn away_lines(away: &[&Finding]) -> Vec<String> {
    let mut streams: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    let mut parity = 0;
    for finding in away {
        let entry = streams.entry(finding.stream.as_deref().unwrap_or("")).or_default();
        let frames = finding.frames.map_or(0, |it| it.end.saturating_sub(it.first).max(0));
        entry.1 += frames.unsigned_abs();
        match finding.what {
            What::BlocksAbsent { count, .. } => entry.0 += count,
            What::ChunkMissing { blocks, .. } => entry.0 += blocks,
            What::ParityMissing { chunks } => parity += chunks,
            _ => {}
        }
    }
    let told = streams.into_iter().filter(|(_, (blocks, _))| *blocks > 0);
    let told = told.map(|(stream, (blocks, frames))| {
        let is = if blocks == 1 { "is" } else { "are" };
        let (blocks, frames) = (counted(blocks, "block"), counted(frames, "frame"));
        format!("stream {stream}: {blocks} ({frames}) {is} on members that are not attached")
    });
    let parity = (parity > 0).then(|| {
        let is = if parity == 1 { "is" } else { "are" };
        format!("{} {is} on members that are not attached", counted(parity, "parity chunk"))
    });
    told.chain(parity).collect()
}

#[cfg(test)]
mod tests {
    use fullbore_engine::store::finding::FrameRange;

    use super::*;

    fn absent_block(stream: &str, first: u64) -> Finding {
        let frames = FrameRange { first: first as i64 * 10, end: first as i64 * 10 + 10 };
        Finding {
            stream: Some(stream.into()),
            member: None,
            file: None,
            frames: Some(frames),
            what: What::BlocksAbsent { first, count: 1 },
        }
    }

    fn away(path: &str) -> Finding {
        let uuid = "00000000-0000-0000-0000-000000000000".parse().unwrap();
        let what = What::MemberAbsent { uuid, was_at: path.into() };
        Finding { stream: None, member: Some(path.into()), file: None, frames: None, what }
    }

    #[test]
    fn what_lies_on_a_member_that_is_not_attached_is_one_line_for_each_stream() {
        let mut findings = vec![away("/mnt/disk1")];
        findings.extend((0..40_000).map(|first| absent_block("a", first)));
        findings.push(absent_block("b", 7));
        let told = lines(&findings, false);
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(told[0].contains("/mnt/disk1") && told[0].contains("not attached"), "{told:?}");
        assert_eq!(
            told[1],
            "stream a: 40 000 blocks (400 000 frames) are on members that are not attached"
        );
        assert_eq!(told[2], "stream b: 1 block (10 frames) is on members that are not attached");
        assert_eq!(lines(&findings, true).len(), findings.len());
    }

    #[test]
    fn blocks_that_are_nowhere_are_listed_up_to_a_few_and_counted() {
        let findings: Vec<Finding> = (0..25).map(|first| absent_block("a", first)).collect();
        let told = lines(&findings, false);
        assert_eq!(told.len(), LISTED + 1, "{told:?}");
        assert_eq!(
            told[0],
            "stream a: block 0 is missing: none of the given members holds it; frames 0–9 (10)"
        );
        assert_eq!(told[3], "stream a: 22 more findings of this kind: --verbose lists them");
        assert_eq!(lines(&findings[..3], false).len(), 3);
    }
}
