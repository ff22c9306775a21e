//! Diagnostics of a stored scan, with stream, member, file and frames.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use fullbore_core::completeness::counted;
use serde::Serialize;
use uuid::Uuid;

/// A problem found in a stored scan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// The stream's name, unless it concerns the scan.
    pub stream: Option<String>,
    /// The root of the member.
    pub member: Option<PathBuf>,
    /// The chunk, index, manifest or account file.
    pub file: Option<PathBuf>,
    /// The frames concerned, if known.
    pub frames: Option<FrameRange>,
    /// The kind of problem.
    #[serde(flatten)]
    pub what: DiagnosticKind,
}

/// A half-open range of frame indices: the end is not included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FrameRange {
    /// Index of the first frame.
    pub first: i64,
    /// Index behind the last frame.
    pub end: i64,
}

impl From<Range<i64>> for FrameRange {
    fn from(range: Range<i64>) -> Self {
        Self { first: range.start, end: range.end }
    }
}

impl fmt::Display for FrameRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.end.saturating_sub(self.first) {
            ..=1 => write!(f, "frame {}", self.first),
            count => write!(f, "frames {}–{} ({count})", self.first, self.end - 1),
        }
    }
}

/// The kind of problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "what", rename_all = "kebab-case", rename_all_fields = "kebab-case")]
pub enum DiagnosticKind {
    /// A member of the scan is not among the directories given.
    MemberAbsent {
        /// The identity.
        uuid: Uuid,
        /// The path of the member when the scan was recorded.
        was_at: PathBuf,
        /// True if that directory was given and holds nothing of a store: its disk is not mounted, or was replaced.
        bare: bool,
    },
    /// The member's identity file is invalid.
    MemberUnidentified {
        /// The reason.
        why: String,
    },
    /// The member has no identity file.
    MemberFileMissing {
        /// The identity in the manifest.
        uuid: Uuid,
    },
    /// The scan was never sealed.
    Unsealed,
    /// The scan is a copy that has not arrived completely.
    CopyIncomplete {
        /// The host that sends it.
        host: String,
    },
    /// A directory of the scan has no manifest.
    ManifestMissing,
    /// A manifest that cannot be read.
    ManifestUnreadable {
        /// The reason.
        why: String,
    },
    /// Two copies of the manifest differ.
    ManifestDiffers {
        /// The copy that is used.
        believed: PathBuf,
    },
    /// There is no account.
    AccountMissing,
    /// An account that cannot be read.
    AccountUnreadable {
        /// The reason.
        why: String,
    },
    /// Two copies of the account differ.
    AccountDiffers {
        /// The copy that is used.
        believed: PathBuf,
    },
    /// A directory with chunks has no index, or an empty one.
    IndexMissing,
    /// The index cannot be read.
    IndexUnreadable {
        /// The reason.
        why: String,
    },
    /// The index ends in bytes that are not a record of this scan.
    IndexCut {
        /// Records before those bytes.
        records: u64,
        /// The number of these bytes.
        bytes: u64,
    },
    /// The index was written for another member or stream.
    IndexForeign {
        /// The member or stream of the index.
        of: String,
    },
    /// The index lists a chunk whose file is missing.
    ChunkMissing {
        /// Blocks in it.
        blocks: u64,
        /// The number of bytes in it.
        bytes: u64,
    },
    /// A chunk file is shorter than the index says.
    ChunkTruncated {
        /// The size in bytes.
        is: u64,
        /// The expected size in bytes.
        should: u64,
        /// Blocks that are incomplete.
        blocks: u64,
    },
    /// A chunk file is longer than the index says.
    ChunkTooLong {
        /// The size in bytes.
        is: u64,
        /// The expected size in bytes.
        should: u64,
    },
    /// A chunk file without any index record.
    ChunkUnknown {
        /// The size in bytes.
        bytes: u64,
    },
    /// A chunk that was never completed and still has its working name.
    ChunkUnfinished {
        /// The size in bytes.
        bytes: u64,
    },
    /// A renumbering of chunk files is in progress or was interrupted.
    ChunksUnordered,
    /// Two files have the same chunk number; FlexBuff's readers refuse such a recording.
    ChunkTwice {
        /// The other file.
        other: PathBuf,
    },
    /// The file of receipts of copies cannot be read.
    CopiesUnreadable {
        /// The reason.
        why: String,
    },
    /// A file that does not belong among the chunks.
    Stranger,
    /// A file or directory that could not be read.
    Unreadable {
        /// The reason.
        why: String,
    },
    /// Blocks whose bytes do not match their checksum.
    BlocksDamaged {
        /// Sequence of the first block.
        first: u64,
        /// The number of consecutive blocks.
        count: u64,
        /// Offset of the first in its chunk.
        offset: u64,
    },
    /// Blocks that the disk could not read.
    BlocksUnreadable {
        /// Sequence of the first block.
        first: u64,
        /// The number of consecutive blocks.
        count: u64,
        /// Offset of the first in its chunk.
        offset: u64,
        /// The error from the system.
        why: String,
    },
    /// Blocks that hold the bytes of other blocks: files were swapped, or a write went to the wrong place.
    BlocksSwapped {
        /// Sequence of the first block.
        first: u64,
        /// The number of consecutive blocks.
        count: u64,
        /// Sequence of the block whose bytes are in the place of the first one.
        holds: u64,
    },
    /// Blocks that were recorded and cannot be found.
    BlocksAbsent {
        /// Sequence of the first block.
        first: u64,
        /// The number of blocks.
        count: u64,
    },
    /// Parity chunks are missing.
    ParityMissing {
        /// The number of parity chunks.
        chunks: u64,
    },
    /// A parity chunk differs from what was written.
    ParityDamaged {
        /// The number of damaged rows.
        rows: u64,
    },
    /// Data chunks without parity in a scan with redundancy.
    ChunksUnprotected {
        /// The number of data chunks.
        chunks: u64,
    },
    /// A directory that is no longer a member since the scan was rebuilt still holds its old files.
    LeftOver {
        /// The number of chunk files, data and parity.
        chunks: u64,
        /// Bytes in them.
        bytes: u64,
    },
    /// Two different records of one block.
    BlockTwice {
        /// The sequence.
        sequence: u64,
    },
    /// A record that is intact but impossible.
    BlockAbsurd {
        /// The block's sequence.
        sequence: u64,
        /// The reason.
        why: String,
    },
    /// Frames between two blocks that no gap record covers.
    FramesUnaccounted,
    /// Two blocks contain the same frames.
    FramesTwice,
    /// Frames whose header does not match the stream, although their block matches its checksum.
    FramesDamaged {
        /// The number of such frames in this block.
        count: u64,
        /// The problem of the first such frame.
        why: String,
    },
    /// Frames whose own time does not match their place.
    FramesMisplaced {
        /// The number of such frames in this block.
        count: u64,
        /// The problem of the first such frame.
        why: String,
    },
    /// Fill without the fill pattern.
    FillUnmarked {
        /// The number of such frames in this block.
        count: u64,
    },
    /// A term of the stored account differs from the data.
    AccountTerm {
        /// The name of the term.
        term: &'static str,
        /// The stored value.
        stored: String,
        /// The value counted now.
        counted: String,
    },
    /// The terms of the stored account do not add up.
    AccountUnbalanced {
        /// Expected frames.
        expected: u64,
        /// The sum of the other terms.
        sum: u64,
    },
    /// A term of the manifest differs from the index or account.
    ManifestTerm {
        /// The name of the term.
        term: &'static str,
        /// The stored value.
        stored: String,
        /// The value counted now.
        counted: String,
    },
}

/// The reason why a member is not attached although its directory is there.
pub const NOT_MOUNTED: &str = ": its disk is not mounted there, or was replaced";

/// A run of blocks, printed as `block 7` or `blocks 7–9`.
struct Blocks(u64, u64);

impl fmt::Display for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            0 | 1 => write!(f, "block {}", self.0),
            count => write!(f, "blocks {}–{}", self.0, self.0.saturating_add(count - 1)),
        }
    }
}

impl fmt::Display for DiagnosticKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use DiagnosticKind::*;
        match self {
            MemberAbsent { uuid, was_at, bare } => {
                let why = if *bare { NOT_MOUNTED } else { "" };
                write!(f, "member {uuid} (then at {}) is not attached{why}", was_at.display())
            }
            MemberUnidentified { why } => write!(
                f,
                "the member file is invalid: {why}; scans here are identified by the path of the member"
            ),
            MemberFileMissing { uuid } => write!(
                f,
                "the member file is missing (member {uuid} was recorded here); scans here are identified by the path of the \
                 member"
            ),
            Unsealed => write!(f, "the scan was never sealed; run `fullbore recover`"),
            CopyIncomplete { host } => write!(
                f,
                "it is an incomplete copy from {host}: `fullbore send` there continues it"
            ),
            ManifestMissing => write!(f, "the manifest is missing"),
            ManifestUnreadable { why } => write!(f, "the manifest cannot be read: {why}"),
            ManifestDiffers { believed } => {
                write!(f, "the manifest differs from {}", believed.display())
            }
            AccountMissing => write!(f, "the account is missing"),
            AccountUnreadable { why } => write!(f, "the account cannot be read: {why}"),
            AccountDiffers { believed } => {
                write!(f, "the account differs from {}", believed.display())
            }
            IndexMissing => write!(f, "the index is missing"),
            IndexUnreadable { why } => write!(f, "the index cannot be read: {why}"),
            IndexCut { records, bytes } => {
                write!(
                    f,
                    "after {} the index has {} that are not a valid record",
                    counted(*records, "record"),
                    counted(*bytes, "byte")
                )
            }
            IndexForeign { of } => write!(f, "the index belongs to {of}"),
            ChunkMissing { blocks, bytes } => {
                write!(
                    f,
                    "the chunk file is missing ({}, {})",
                    counted(*blocks, "block"),
                    counted(*bytes, "byte")
                )
            }
            ChunkTruncated { is, should, blocks } => {
                let are = if *blocks == 1 { "is" } else { "are" };
                let blocks = counted(*blocks, "block");
                write!(f, "the chunk has {is} bytes of {should}: {blocks} {are} incomplete")
            }
            ChunkTooLong { is, should } => {
                write!(f, "the chunk has {is} bytes, and {should} by the index")
            }
            ChunkUnknown { bytes } => {
                write!(f, "no index record mentions this chunk ({bytes} bytes)")
            }
            ChunksUnordered => {
                write!(f, "the chunk files are not all renumbered; run `fullbore recover`")
            }
            ChunkUnfinished { bytes } => write!(f, "the chunk was never completed ({bytes} bytes)"),
            ChunkTwice { other } => {
                write!(f, "{} has the same chunk number", other.display())
            }
            CopiesUnreadable { why } => write!(f, "the receipts of copies cannot be read: {why}"),
            Stranger => write!(f, "a file that does not belong to the scan"),
            Unreadable { why } => write!(f, "cannot be read: {why}"),
            BlocksDamaged { first, count, offset } => {
                let blocks = Blocks(*first, *count);
                write!(f, "{blocks} from offset {offset}: the checksum is wrong")
            }
            BlocksUnreadable { first, count, offset, why } => {
                let blocks = Blocks(*first, *count);
                write!(f, "{blocks} from offset {offset}: {why}")
            }
            BlocksSwapped { first, count, holds } => {
                let (blocks, others) = (Blocks(*first, *count), Blocks(*holds, *count));
                write!(f, "the place of {blocks} holds the bytes of {others}")
            }
            BlocksAbsent { first, count } => {
                let (are, them) = if *count > 1 { ("are", "them") } else { ("is", "it") };
                let blocks = Blocks(*first, *count);
                write!(f, "{blocks} {are} missing: none of the given members holds {them}")
            }
            ParityMissing { chunks } => {
                let are = if *chunks == 1 { "is" } else { "are" };
                write!(f, "{} {are} missing", counted(*chunks, "parity chunk"))
            }
            ParityDamaged { rows } => {
                let are = if *rows == 1 { "is" } else { "are" };
                write!(f, "{} of this parity chunk {are} not as written", counted(*rows, "row"))
            }
            ChunksUnprotected { chunks } => {
                let have = if *chunks == 1 { "has" } else { "have" };
                write!(f, "{} {have} no parity", counted(*chunks, "chunk"))
            }
            LeftOver { chunks, bytes } => write!(
                f,
                "{} ({}) left over from before the scan was rebuilt without this member, and not part of it any more; \
                 `fullbore rm --leftovers` removes them",
                counted(*chunks, "chunk"),
                counted(*bytes, "byte"),
            ),
            BlockTwice { sequence } => write!(f, "two records differ about block {sequence}"),
            BlockAbsurd { sequence, why } => write!(f, "the record of block {sequence}: {why}"),
            FramesUnaccounted => write!(f, "no block and no gap record contains them"),
            FramesTwice => write!(f, "two blocks contain them"),
            FramesDamaged { count, why } => {
                let have = if *count == 1 { "has" } else { "have" };
                write!(f, "{} {have} a bad header: {why}", counted(*count, "frame"))
            }
            FramesMisplaced { count, why } => {
                let have = if *count == 1 { "has" } else { "have" };
                write!(
                    f,
                    "{} {have} a time that does not match the place: {why}",
                    counted(*count, "frame")
                )
            }
            FillUnmarked { count } => {
                let are = if *count == 1 { "is" } else { "are" };
                write!(f, "{} {are} not marked as fill", counted(*count, "fill frame"))
            }
            AccountTerm { term, stored, counted } => {
                write!(f, "the account says {term} {stored}, and the recording {counted}")
            }
            AccountUnbalanced { expected, sum } => {
                write!(
                    f,
                    "the account expects {}, but its terms add up to {sum}",
                    counted(*expected, "frame")
                )
            }
            ManifestTerm { term, stored, counted } => {
                write!(f, "the manifest says {term} {stored}, and the recording {counted}")
            }
        }
    }
}

impl Diagnostic {
    /// Returns true if the problem is in an index, which can be rebuilt.
    pub fn is_of_index(&self) -> bool {
        use DiagnosticKind::{IndexCut, IndexForeign, IndexMissing, IndexUnreadable};
        matches!(
            self.what,
            IndexMissing | IndexUnreadable { .. } | IndexCut { .. } | IndexForeign { .. }
        )
    }
}

impl Diagnostic {
    /// Returns true if the account or the manifest differs from the data.
    fn is_of_books(&self) -> bool {
        use DiagnosticKind::{AccountTerm, AccountUnbalanced, ManifestTerm};
        matches!(self.what, AccountTerm { .. } | AccountUnbalanced { .. } | ManifestTerm { .. })
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.file, &self.member, &self.stream) {
            (Some(file), _, _) => write!(f, "{}: ", file.display())?,
            (None, Some(member), _) => write!(f, "{}: ", member.display())?,
            (None, None, Some(stream)) => write!(f, "stream {stream}: ")?,
            (None, None, None) => {}
        }
        // The path of a scan's only stream does not contain the name of the stream.
        if let (true, true, Some(stream)) =
            (self.is_of_books(), self.file.is_some() || self.member.is_some(), &self.stream)
        {
            write!(f, "stream {stream}: ")?;
        }
        write!(f, "{}", self.what)?;
        match &self.frames {
            Some(frames) => write!(f, "; {frames}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_names_file_and_frames() {
        let finding = Diagnostic {
            stream: Some("46220".into()),
            member: Some("/mnt/disk0".into()),
            file: Some("/mnt/disk0/a_b/a_b.00000003".into()),
            frames: Some((512..1024).into()),
            what: DiagnosticKind::BlocksDamaged { first: 3, count: 1, offset: 4096 },
        };
        assert_eq!(
            finding.to_string(),
            "/mnt/disk0/a_b/a_b.00000003: block 3 from offset 4096: the checksum is wrong; \
             frames 512–1023 (512)"
        );
        let (stored, counted) = ("40".into(), "41".into());
        let what = DiagnosticKind::AccountTerm { term: "missing", stored, counted };
        let file = Some("/mnt/disk0/a_b/.fullbore/account.json".into());
        let term = Diagnostic { file, frames: None, what, ..finding.clone() };
        assert_eq!(
            term.to_string(),
            "/mnt/disk0/a_b/.fullbore/account.json: stream 46220: the account says missing 40, and the recording 41"
        );
        let json = serde_json::to_value(&finding).unwrap();
        assert_eq!(json["what"], "blocks-damaged");
        assert_eq!(json["frames"]["first"], 512);
    }
}
