//! Findings as text: a line each, or one line for many of a kind.
//!
//! A disk that is not attached holds thousands of blocks. They share one line.

use std::path::Path;

use fullbore_core::completeness::{counted, grouped};
use fullbore_store::diagnostics::{Diagnostic, DiagnosticKind, NOT_MOUNTED};

/// Findings of one kind that are listed; further ones are only counted.
const LISTED: usize = 3;

/// The kind of a finding: its stream and type.
type Kind<'a> = (Option<&'a str>, std::mem::Discriminant<DiagnosticKind>);

/// The lines; with `all`, one for each finding. `blocks` is the number of blocks of the scan, if known.
pub fn lines(findings: &[Diagnostic], blocks: Option<u64>, all: bool) -> Vec<String> {
    if all {
        return findings.iter().map(ToString::to_string).collect();
    }
    let absent: Vec<&Path> = findings.iter().filter_map(absent_member).collect();
    let bare: Vec<&Path> =
        findings.iter().filter(|it| is_bare(it)).filter_map(absent_member).collect();
    let (away, here): (Vec<&Diagnostic>, Vec<&Diagnostic>) =
        findings.iter().partition(|finding| is_away(finding, &absent));
    let mut lines = away_lines(&away, &absent, &bare, blocks);
    let mut kinds: Vec<(Kind<'_>, usize)> = Vec::new();
    for finding in here {
        let kind = (finding.stream.as_deref(), std::mem::discriminant(&finding.what));
        let at = kinds.iter().position(|(known, _)| *known == kind);
        let at = at.unwrap_or_else(|| {
            kinds.push((kind, 0));
            kinds.len() - 1
        });
        kinds[at].1 += 1;
        if kinds[at].1 <= LISTED {
            lines.push(finding.to_string());
        }
    }
    for ((stream, _), number) in kinds.into_iter().filter(|(_, number)| *number > LISTED) {
        let more = counted((number - LISTED) as u64, "more finding");
        let of = stream.map_or(String::new(), |stream| format!("stream {stream}: "));
        lines.push(format!("{of}{more} of this kind: --verbose lists them"));
    }
    lines
}

/// The former directory of the member that a finding reports as not attached.
fn absent_member(finding: &Diagnostic) -> Option<&Path> {
    match &finding.what {
        DiagnosticKind::MemberAbsent { was_at, .. } => Some(was_at),
        _ => None,
    }
}

/// True if the directory of a member is there and holds nothing of a store.
fn is_bare(finding: &Diagnostic) -> bool {
    matches!(finding.what, DiagnosticKind::MemberAbsent { bare: true, .. })
}

/// True if a finding only reports that a member is not attached, or that its data is not available.
fn is_away(finding: &Diagnostic, absent: &[&Path]) -> bool {
    let file = finding.file.as_deref();
    let lies_there = || file.is_some_and(|file| absent.iter().any(|root| file.starts_with(root)));
    match finding.what {
        DiagnosticKind::MemberAbsent { .. } => true,
        DiagnosticKind::BlocksAbsent { .. } => !absent.is_empty(),
        DiagnosticKind::ChunkMissing { .. } | DiagnosticKind::ParityMissing { .. } => lies_there(),
        _ => false,
    }
}

/// The data on members that are not attached.
#[derive(Default)]
struct There {
    blocks: u64,
    frames: u64,
    parity: u64,
}

impl There {
    fn add(&mut self, finding: &Diagnostic) {
        let frames = finding.frames.map_or(0, |it| it.end.saturating_sub(it.first).max(0));
        self.frames += frames.unsigned_abs();
        match finding.what {
            DiagnosticKind::BlocksAbsent { count, .. } => self.blocks += count,
            DiagnosticKind::ChunkMissing { blocks, .. } => self.blocks += blocks,
            DiagnosticKind::ParityMissing { chunks } => self.parity += chunks,
            _ => {}
        }
    }

    /// `25 of 100 blocks (12 504 frames) and 4 parity chunks`; nothing if there is nothing.
    fn text(&self, all: Option<u64>) -> Option<String> {
        let blocks = (self.blocks > 0).then(|| {
            let blocks = match all {
                Some(all) => format!("{} of {}", grouped(self.blocks), counted(all, "block")),
                None => counted(self.blocks, "block"),
            };
            match self.frames {
                0 => blocks,
                frames => format!("{blocks} ({})", counted(frames, "frame")),
            }
        });
        let parity = (self.parity > 0).then(|| counted(self.parity, "parity chunk"));
        let each: Vec<String> = blocks.into_iter().chain(parity).collect();
        (!each.is_empty()).then(|| each.join(" and "))
    }
}

/// A line for each member that is not attached. An index names the member of a block only if that member is attached.
/// With several members away, blocks that no index assigns to a member are on one of them.
fn away_lines(
    away: &[&Diagnostic],
    absent: &[&Path],
    bare: &[&Path],
    blocks: Option<u64>,
) -> Vec<String> {
    let mut on: Vec<There> = absent.iter().map(|_| There::default()).collect();
    let mut on_any = There::default();
    for finding in away {
        let file = finding.file.as_deref();
        let named = |root: &&Path| file.is_some_and(|file| file.starts_with(root));
        match (absent.iter().position(named), on.as_mut_slice()) {
            (_, [only]) => only.add(finding),
            (Some(member), on) => on[member].add(finding),
            (None, _) => on_any.add(finding),
        }
    }
    let line = |(root, there): (&&Path, &There)| {
        let why = if bare.contains(root) { NOT_MOUNTED } else { "" };
        match there.text(blocks) {
            Some(data) => format!("{data} are on {}, which is not attached{why}", root.display()),
            None => format!("{} is not attached{why}", root.display()),
        }
    };
    let mut lines: Vec<String> = absent.iter().zip(&on).map(line).collect();
    let any = on_any.text(blocks);
    lines.extend(any.map(|data| format!("{data} are on the members that are not attached")));
    if !lines.is_empty() && away.len() > absent.len() {
        lines.push("attach the members, or list each block with --verbose".to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use fullbore_store::diagnostics::FrameRange;

    use super::*;

    fn absent_block(stream: &str, first: u64) -> Diagnostic {
        let frames = FrameRange { first: first as i64 * 10, end: first as i64 * 10 + 10 };
        Diagnostic {
            stream: Some(stream.into()),
            member: None,
            file: None,
            frames: Some(frames),
            what: DiagnosticKind::BlocksAbsent { first, count: 1 },
        }
    }

    fn away(path: &str) -> Diagnostic {
        let uuid = "00000000-0000-0000-0000-000000000000".parse().unwrap();
        let what = DiagnosticKind::MemberAbsent { uuid, was_at: path.into(), bare: false };
        Diagnostic { stream: None, member: Some(path.into()), file: None, frames: None, what }
    }

    #[test]
    fn data_on_a_member_that_is_not_attached_is_one_line() {
        let mut findings = vec![away("/mnt/disk1")];
        findings.extend((0..40_000).map(|first| absent_block("a", first)));
        findings.push(absent_block("b", 7));
        let told = lines(&findings, Some(80_002), false);
        assert_eq!(
            told,
            [
                "40 001 of 80 002 blocks (400 010 frames) are on /mnt/disk1, which is not attached",
                "attach the members, or list each block with --verbose",
            ]
        );
        assert_eq!(lines(&findings, None, true).len(), findings.len());
    }

    #[test]
    fn member_whose_directory_is_empty_is_not_mounted_or_was_replaced() {
        let mut finding = away("/mnt/disk1");
        let DiagnosticKind::MemberAbsent { bare, .. } = &mut finding.what else { unreachable!() };
        *bare = true;
        let told = "/mnt/disk1 is not attached: its disk is not mounted there, or was replaced";
        assert_eq!(lines(&[finding], None, false), [told]);
    }

    #[test]
    fn blocks_of_several_members_that_are_not_attached_are_on_one_of_them() {
        let findings = [away("/mnt/disk1"), away("/mnt/disk2"), absent_block("a", 7)];
        assert_eq!(
            lines(&findings, Some(9), false),
            [
                "/mnt/disk1 is not attached",
                "/mnt/disk2 is not attached",
                "1 of 9 blocks (10 frames) are on the members that are not attached",
                "attach the members, or list each block with --verbose",
            ]
        );
    }

    #[test]
    fn blocks_that_are_nowhere_are_listed_up_to_a_few_and_counted() {
        let findings: Vec<Diagnostic> = (0..25).map(|first| absent_block("a", first)).collect();
        let told = lines(&findings, None, false);
        assert_eq!(told.len(), LISTED + 1, "{told:?}");
        assert_eq!(
            told[0],
            "stream a: block 0 is missing: none of the given members holds it; frames 0–9 (10)"
        );
        assert_eq!(told[3], "stream a: 22 more findings of this kind: --verbose lists them");
        assert_eq!(lines(&findings[..3], None, false).len(), 3);
    }
}
