//! What is wrong with a stored scan, located: which stream, member and file, which frames.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use fullbore_core::completeness::counted;
use serde::Serialize;
use uuid::Uuid;

/// One thing that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The stream's name, unless it concerns the scan.
    pub stream: Option<String>,
    /// The root of the member.
    pub member: Option<PathBuf>,
    /// The chunk, index, manifest or account file.
    pub file: Option<PathBuf>,
    /// The frames that it concerns, where they are known.
    pub frames: Option<FrameRange>,
    /// What it is.
    #[serde(flatten)]
    pub what: What,
}

/// Frames by index: from the first up to, not including, the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FrameRange {
    /// Index of the first.
    pub first: i64,
    /// Index behind the last.
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

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "what", rename_all = "kebab-case", rename_all_fields = "kebab-case")]
pub enum What {
    /// A member of the scan is not among the directories given.
    MemberAbsent {
        /// Its identity.
        uuid: Uuid,
        /// Where it was when the scan was recorded.
        was_at: PathBuf,
    },
    /// A member's file that says who it is cannot be believed.
    MemberUnidentified {
        /// Why.
        why: String,
    },
    /// A member has no file that says who it is.
    MemberFileMissing {
        /// Its identity, by the manifest.
        uuid: Uuid,
    },
    /// The scan was never sealed.
    Unsealed,
    /// A directory of the scan has no manifest.
    ManifestMissing,
    /// A manifest that cannot be read.
    ManifestUnreadable {
        /// Why.
        why: String,
    },
    /// Two copies of the manifest say different things.
    ManifestDiffers {
        /// The copy that was believed.
        believed: PathBuf,
    },
    /// No account is there.
    AccountMissing,
    /// An account that cannot be read.
    AccountUnreadable {
        /// Why.
        why: String,
    },
    /// Two copies of the account say different things.
    AccountDiffers {
        /// The copy that was believed.
        believed: PathBuf,
    },
    /// A directory with chunks has no index, or an empty one.
    IndexMissing,
    /// The index cannot be read.
    IndexUnreadable {
        /// Why.
        why: String,
    },
    /// The index ends in something that is no record of this scan.
    IndexCut {
        /// Records before that.
        records: u64,
        /// Bytes behind them.
        bytes: u64,
    },
    /// The index was written for another member or stream.
    IndexForeign {
        /// Whose it is.
        of: String,
    },
    /// The index knows a chunk whose file is not there.
    ChunkMissing {
        /// Blocks in it.
        blocks: u64,
        /// Bytes in it.
        bytes: u64,
    },
    /// A chunk file is shorter than the index says.
    ChunkTruncated {
        /// Its bytes.
        is: u64,
        /// The bytes that it should have.
        should: u64,
        /// Blocks that are not whole.
        blocks: u64,
    },
    /// A chunk file is longer than the index says.
    ChunkTooLong {
        /// Its bytes.
        is: u64,
        /// The bytes that it should have.
        should: u64,
    },
    /// A chunk file of which no index record speaks.
    ChunkUnknown {
        /// Its bytes.
        bytes: u64,
    },
    /// A chunk was never completed: it lies under its working name.
    ChunkUnfinished {
        /// Its bytes.
        bytes: u64,
    },
    /// Chunk files are being given other numbers, or were when that ended.
    ChunksUnordered,
    /// Two files have the number of one chunk; FlexBuff's readers refuse such a recording.
    ChunkTwice {
        /// The other one.
        other: PathBuf,
    },
    /// A file among the chunks that does not belong there.
    Stranger,
    /// A file or directory that could not be read.
    Unreadable {
        /// Why.
        why: String,
    },
    /// Blocks whose bytes do not have their checksum.
    BlocksDamaged {
        /// Sequence of the first.
        first: u64,
        /// How many in a row.
        count: u64,
        /// Offset of the first in its chunk.
        offset: u64,
    },
    /// Blocks that the disk did not give.
    BlocksUnreadable {
        /// Sequence of the first.
        first: u64,
        /// How many in a row.
        count: u64,
        /// Offset of the first in its chunk.
        offset: u64,
        /// What the system said.
        why: String,
    },
    /// Blocks that hold the bytes of other blocks: files were swapped, or a write went astray.
    BlocksSwapped {
        /// Sequence of the first.
        first: u64,
        /// How many in a row.
        count: u64,
        /// Sequence of the block whose bytes lie in the first one's place.
        holds: u64,
    },
    /// Blocks that were recorded and are nowhere.
    BlocksAbsent {
        /// Sequence of the first.
        first: u64,
        /// How many.
        count: u64,
    },
    /// Parity chunks that are not there.
    ParityMissing {
        /// How many.
        chunks: u64,
    },
    /// A parity chunk that is not as it was written.
    ParityDamaged {
        /// How many rows of it.
        rows: u64,
    },
    /// Data chunks of a scan with redundancy that have no parity.
    ChunksUnprotected {
        /// How many.
        chunks: u64,
    },
    /// A member that the scan does without since it was rebuilt still holds what it had then.
    LeftOver {
        /// Chunk files, data and parity.
        chunks: u64,
        /// Bytes in them.
        bytes: u64,
    },
    /// Two records speak of one block, and differ.
    BlockTwice {
        /// Its sequence.
        sequence: u64,
    },
    /// A record that is whole and says what cannot be.
    BlockAbsurd {
        /// The block's sequence.
        sequence: u64,
        /// Why.
        why: String,
    },
    /// Frames between two blocks that no gap tells of.
    FramesUnaccounted,
    /// Two blocks claim the same frames.
    FramesTwice,
    /// Frames whose header does not fit the stream, though their block is as it was written.
    FramesDamaged {
        /// How many in this block.
        count: u64,
        /// What the first of them has.
        why: String,
    },
    /// Frames whose own time is not that of their place.
    FramesMisplaced {
        /// How many in this block.
        count: u64,
        /// What the first of them has.
        why: String,
    },
    /// Fill that does not look like fill.
    FillUnmarked {
        /// How many frames in this block.
        count: u64,
    },
    /// The stored account says one thing, and the data another.
    AccountTerm {
        /// Which term.
        term: &'static str,
        /// As stored.
        stored: String,
        /// As counted now.
        counted: String,
    },
    /// The stored account does not balance.
    AccountUnbalanced {
        /// Expected frames.
        expected: u64,
        /// What the other terms add up to.
        sum: u64,
    },
    /// The manifest says one thing, and index or account another.
    ManifestTerm {
        /// Which term.
        term: &'static str,
        /// As stored.
        stored: String,
        /// As counted now.
        counted: String,
    },
}

/// `block 7`, or `blocks 7–9`.
struct Blocks(u64, u64);

impl fmt::Display for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            0 | 1 => write!(f, "block {}", self.0),
            count => write!(f, "blocks {}–{}", self.0, self.0.saturating_add(count - 1)),
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use What::*;
        match self {
            MemberAbsent { uuid, was_at } => {
                write!(f, "member {uuid} (then at {}) is not attached", was_at.display())
            }
            MemberUnidentified { why } => write!(
                f,
                "the file that says which member this is cannot be believed: {why}; its scans are found by its place"
            ),
            MemberFileMissing { uuid } => write!(
                f,
                "the file that says which member this is, is not there (member {uuid} was recorded here); what lies here \
                 is found by its place"
            ),
            Unsealed => write!(f, "the scan was never sealed; run `fullbore recover`"),
            ManifestMissing => write!(f, "the manifest is not there"),
            ManifestUnreadable { why } => write!(f, "the manifest cannot be read: {why}"),
            ManifestDiffers { believed } => {
                write!(f, "the manifest differs from {}", believed.display())
            }
            AccountMissing => write!(f, "the account is not there"),
            AccountUnreadable { why } => write!(f, "the account cannot be read: {why}"),
            AccountDiffers { believed } => {
                write!(f, "the account differs from {}", believed.display())
            }
            IndexMissing => write!(f, "the index is not there"),
            IndexUnreadable { why } => write!(f, "the index cannot be read: {why}"),
            IndexCut { records, bytes } => {
                write!(
                    f,
                    "behind {} the index has {} that are no record",
                    counted(*records, "record"),
                    counted(*bytes, "byte")
                )
            }
            IndexForeign { of } => write!(f, "the index is that of {of}"),
            ChunkMissing { blocks, bytes } => {
                write!(
                    f,
                    "the chunk file is not there ({}, {})",
                    counted(*blocks, "block"),
                    counted(*bytes, "byte")
                )
            }
            ChunkTruncated { is, should, blocks } => {
                let are = if *blocks == 1 { "is" } else { "are" };
                let blocks = counted(*blocks, "block");
                write!(f, "the chunk has {is} bytes of {should}: {blocks} {are} not whole")
            }
            ChunkTooLong { is, should } => {
                write!(f, "the chunk has {is} bytes where the index knows {should}")
            }
            ChunkUnknown { bytes } => write!(f, "no index record knows this chunk ({bytes} bytes)"),
            ChunksUnordered => write!(
                f,
                "chunk files were not all put in the order of the stream; `fullbore recover` finishes that"
            ),
            ChunkUnfinished { bytes } => write!(f, "the chunk was never completed ({bytes} bytes)"),
            ChunkTwice { other } => {
                write!(f, "{} has the same chunk number", other.display())
            }
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
                write!(f, "in the place of {blocks} lies what belongs to {others}")
            }
            BlocksAbsent { first, count } => {
                let (are, them) = if *count > 1 { ("are", "them") } else { ("is", "it") };
                let blocks = Blocks(*first, *count);
                write!(f, "{blocks} {are} missing: none of the given members holds {them}")
            }
            ParityMissing { chunks } => {
                let are = if *chunks == 1 { "is" } else { "are" };
                write!(f, "{} {are} not there", counted(*chunks, "parity chunk"))
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
                "{} ({}) left over from before the scan was rebuilt without this member: no part of it any more; \
                 `fullbore rm --leftovers` removes what is left over",
                counted(*chunks, "chunk"),
                counted(*bytes, "byte"),
            ),
            BlockTwice { sequence } => write!(f, "two records differ about block {sequence}"),
            BlockAbsurd { sequence, why } => write!(f, "the record of block {sequence}: {why}"),
            FramesUnaccounted => write!(f, "no block holds them and no gap tells of them"),
            FramesTwice => write!(f, "two blocks claim them"),
            FramesDamaged { count, why } => {
                let have = if *count == 1 { "has" } else { "have" };
                write!(f, "{} {have} a bad header: {why}", counted(*count, "frame"))
            }
            FramesMisplaced { count, why } => {
                let have = if *count == 1 { "has" } else { "have" };
                write!(
                    f,
                    "{} {have} another time than their place: {why}",
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
                write!(f, "the account expects {} and tells of {sum}", counted(*expected, "frame"))
            }
            ManifestTerm { term, stored, counted } => {
                write!(f, "the manifest says {term} {stored}, and the recording {counted}")
            }
        }
    }
}

impl Finding {
    /// Whether an index is at fault, which can be built anew.
    pub fn is_of_index(&self) -> bool {
        use What::{IndexCut, IndexForeign, IndexMissing, IndexUnreadable};
        matches!(
            self.what,
            IndexMissing | IndexUnreadable { .. } | IndexCut { .. } | IndexForeign { .. }
        )
    }
}

impl Finding {
    /// Whether the account or the manifest tells something else than the data.
    fn is_of_books(&self) -> bool {
        use What::{AccountTerm, AccountUnbalanced, ManifestTerm};
        matches!(self.what, AccountTerm { .. } | AccountUnbalanced { .. } | ManifestTerm { .. })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.file, &self.member, &self.stream) {
            (Some(file), _, _) => write!(f, "{}: ", file.display())?,
            (None, Some(member), _) => write!(f, "{}: ", member.display())?,
            (None, None, Some(stream)) => write!(f, "stream {stream}: ")?,
            (None, None, None) => {}
        }
        // The path of a stream that is alone in its scan does not bear its name.
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
        let finding = Finding {
            stream: Some("46220".into()),
            member: Some("/mnt/disk0".into()),
            file: Some("/mnt/disk0/a_b/a_b.00000003".into()),
            frames: Some((512..1024).into()),
            what: What::BlocksDamaged { first: 3, count: 1, offset: 4096 },
        };
        assert_eq!(
            finding.to_string(),
            "/mnt/disk0/a_b/a_b.00000003: block 3 from offset 4096: the checksum is wrong; \
             frames 512–1023 (512)"
        );
        let (stored, counted) = ("40".into(), "41".into());
        let what = What::AccountTerm { term: "missing", stored, counted };
        let file = Some("/mnt/disk0/a_b/.fullbore/account.json".into());
        let term = Finding { file, frames: None, what, ..finding.clone() };
        assert_eq!(
            term.to_string(),
            "/mnt/disk0/a_b/.fullbore/account.json: stream 46220: the account says missing 40, and the recording 41"
        );
        let json = serde_json::to_value(&finding).unwrap();
        assert_eq!(json["what"], "blocks-damaged");
        assert_eq!(json["frames"]["first"], 512);
    }
}
