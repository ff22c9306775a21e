//! Partly filled blocks of a stream, journalled beside the chunks.
//!
//! A block is written when it is full, which takes long for a slow stream. In the meantime its contents are copied to a
//! *partial-block file*. The file grows by entries, little-endian:
//!
//! ```text
//! entry    0 u32 CRC32C of the scan's UUID and bytes 4…end of the entry
//!          4 u8  kind     5 u8 version     6 u16 stream     8 u32 bytes of the body     12 … the body
//!
//! bytes    0 i64 index of the first frame of the block     8 u32 offset in the block    12 … the bytes
//! picture  0 u64 sequence of the first open block     8 i64 when (TAI ns)
//!         16 u32 frame bytes   20 u32 block bytes   24 u32 chunk blocks   28 u32 open blocks, each:
//!          0 i64 index of the first frame   8 u32 bytes  12 u32 frames, fill included  16 u32 true  20 u32 invalid
//!         24 i64 time of the first frame (i64::MIN = unknown)  32 i64 seen  40 u32 gaps  44 u32 lengths
//!         48 … gaps: i64 first, u64 count, u8 cause; lengths: u16
//! ```
//!
//! Bytes are valid only with a later snapshot (`picture`): it describes the stream's open blocks as they would be if
//! the stream ended there. The last whole snapshot counts; everything after it is ignored, torn or not. A frame that is
//! repaired later is copied again, over its earlier bytes.

use std::collections::BTreeMap;

use fullbore_time::Tai;
use uuid::Uuid;

use crate::gap::{Cause, Gap};
use crate::layout::{Geometry, LARGEST_BLOCK_BYTES};

/// The age at which the oldest frame of an open block is copied, and the interval between copies.
pub const EVERY_NS: i64 = 1_000_000_000;

/// The most data of a slow stream that is lost if the recorder dies, on members that keep up: a frame waits for the
/// next copy, and the copy for its sync.
pub const LOST_AT_MOST_NS: i64 = 2 * EVERY_NS;

/// The prefix of the name of a partial-block file; the sequence of its first block follows.
pub const PARTIAL_BLOCK_PREFIX: &str = "tail.";

/// An upper bound for the open blocks of a stream.
const MOST_PIECES: usize = 8;

/// The longest body of an entry.
pub const LONGEST_BODY: usize = 4 << 20;

/// The version written into every entry.
const VERSION: u8 = 1;

/// Bytes of an entry before its body.
const HEAD: usize = 12;

/// Bytes of the body of a snapshot before its blocks.
const PICTURE_HEAD: usize = 32;

/// Bytes of a block's state before its lists.
const PIECE_HEAD: usize = 48;

/// Bytes of a gap.
const GAP_BYTES: usize = 17;

/// Returns the name of the partial-block file whose first block has this sequence.
pub fn partial_block_file(sequence: u64) -> String {
    format!("{PARTIAL_BLOCK_PREFIX}{sequence:08}")
}

/// Suffix of a new partial-block file without a first snapshot.
pub const BEGUN_SUFFIX: &str = ".new";

/// Suffix of a partial-block file that `recover` is converting to a chunk.
pub const MAKING_SUFFIX: &str = ".chunk";

/// True if a file beside the chunks is a partial-block file, or a temporary form of one.
pub fn belongs_to_partial_block(name: &str) -> bool {
    let whole = name.strip_suffix(BEGUN_SUFFIX).or(name.strip_suffix(MAKING_SUFFIX));
    is_partial_block_file(whole.unwrap_or(name))
}

/// True if a file beside the chunks is a complete partial-block file.
pub fn is_partial_block_file(name: &str) -> bool {
    let digits = name.strip_prefix(PARTIAL_BLOCK_PREFIX).unwrap_or_default();
    digits.len() >= 8 && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// The state of an open block, as it would be dispatched if the stream ended now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockState {
    /// Index of its first frame.
    pub first: i64,
    /// Bytes of it.
    pub bytes: u32,
    /// Frames in it, fill included. With varying lengths: frames that begin in it.
    pub frames: u32,
    /// Number of received frames among them.
    pub present: u32,
    /// Number of received frames that the sender marked invalid.
    pub invalid: u32,
    /// Time of the first frame, if the format has one.
    pub time: Option<Tai>,
    /// Arrival time of its first frame.
    pub seen: Tai,
    /// Gaps among its frames, and before them.
    pub gaps: Vec<Gap>,
    /// Lengths of the frames that begin in it, if they vary.
    pub lengths: Vec<u16>,
}

/// A snapshot of all open blocks of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Number of the first block within the stream; the others follow.
    pub sequence: u64,
    /// Time of the snapshot.
    pub at: Tai,
    /// The layout of the stream.
    pub geometry: Geometry,
    /// The blocks: all are full except the last.
    pub blocks: Vec<BlockState>,
}

impl Snapshot {
    /// True if a partial-block file can hold it: very long lists are not copied every second.
    pub fn fits(&self) -> bool {
        self.blocks.len() <= MOST_PIECES && self.body_bytes() <= LONGEST_BODY
    }

    /// Returns the bytes that it takes in the file.
    pub fn body_bytes(&self) -> usize {
        let lists = |piece: &BlockState| GAP_BYTES * piece.gaps.len() + 2 * piece.lengths.len();
        PICTURE_HEAD + self.blocks.iter().map(|it| PIECE_HEAD + lists(it)).sum::<usize>()
    }
}

/// An entry of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry<'a> {
    /// Bytes in an open block.
    Bytes {
        /// Index of the first frame of the block.
        first: i64,
        /// Offset in the block.
        offset: u32,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// The description of the bytes before it.
    Snapshot(Snapshot),
}

/// A writer and reader of the partial-block files of one stream of one scan.
#[derive(Clone, Copy, Debug)]
pub struct Codec {
    seed: u32,
    stream: u16,
}

impl Codec {
    /// Returns the codec of a stream, by its position in the manifest.
    pub fn of_stream(scan: Uuid, stream: u16) -> Self {
        Self { seed: crc32c::crc32c(scan.as_bytes()), stream }
    }

    /// Appends an entry.
    pub fn encode(&self, entry: &Entry<'_>, to: &mut Vec<u8>) {
        let start = to.len();
        to.extend([0; 4]);
        to.extend([if matches!(entry, Entry::Bytes { .. }) { 1 } else { 2 }, VERSION]);
        to.extend(self.stream.to_le_bytes());
        to.extend([0; 4]);
        match entry {
            Entry::Bytes { first, offset, bytes } => {
                to.extend(first.to_le_bytes());
                to.extend(offset.to_le_bytes());
                to.extend_from_slice(bytes);
            }
            Entry::Snapshot(snapshot) => encode_snapshot(snapshot, to),
        }
        let body = to.len() - start - HEAD;
        assert!(body <= LONGEST_BODY, "{body} bytes in one entry");
        to[start + 8..start + HEAD].copy_from_slice(&(body as u32).to_le_bytes());
        let crc = crc32c::crc32c_append(self.seed, &to[start + 4..]);
        to[start..start + 4].copy_from_slice(&crc.to_le_bytes());
    }

    /// Returns the next entry of a file, and its bytes; `None` if it is not whole.
    pub fn decode<'a>(&self, file: &'a [u8]) -> Option<(Entry<'a>, usize)> {
        let head: &[u8; HEAD] = file.get(..HEAD)?.try_into().ok()?;
        let mut take = Take(&head[4..]);
        let [kind, version] = take.bytes()?;
        let stream = u16::from_le_bytes(take.bytes()?);
        let body = take.u32()? as usize;
        if version != VERSION || stream != self.stream || body > LONGEST_BODY {
            return None;
        }
        let entry = file.get(..HEAD + body)?;
        let crc = crc32c::crc32c_append(self.seed, &entry[4..]);
        if head[..4] != crc.to_le_bytes() {
            return None;
        }
        let mut take = Take(&entry[HEAD..]);
        let said = match kind {
            1 => Entry::Bytes { first: take.i64()?, offset: take.u32()?, bytes: take.0 },
            2 => Entry::Snapshot(decode_picture(&mut take)?),
            _ => return None,
        };
        Some((said, entry.len()))
    }
}

fn encode_snapshot(snapshot: &Snapshot, to: &mut Vec<u8>) {
    to.extend(snapshot.sequence.to_le_bytes());
    to.extend(snapshot.at.0.to_le_bytes());
    let Geometry { frame_bytes, block_bytes, chunk_blocks } = snapshot.geometry;
    for word in [frame_bytes, block_bytes, chunk_blocks, snapshot.blocks.len() as u32] {
        to.extend(word.to_le_bytes());
    }
    for piece in &snapshot.blocks {
        to.extend(piece.first.to_le_bytes());
        for word in [piece.bytes, piece.frames, piece.present, piece.invalid] {
            to.extend(word.to_le_bytes());
        }
        to.extend(piece.time.map_or(i64::MIN, |time| time.0).to_le_bytes());
        to.extend(piece.seen.0.to_le_bytes());
        to.extend((piece.gaps.len() as u32).to_le_bytes());
        to.extend((piece.lengths.len() as u32).to_le_bytes());
        for gap in &piece.gaps {
            to.extend(gap.first.to_le_bytes());
            to.extend(gap.count.to_le_bytes());
            to.extend([gap.cause as u8]);
        }
        piece.lengths.iter().for_each(|length| to.extend(length.to_le_bytes()));
    }
}

fn decode_picture(take: &mut Take<'_>) -> Option<Snapshot> {
    let (sequence, at) = (take.u64()?, Tai(take.i64()?));
    let geometry =
        Geometry { frame_bytes: take.u32()?, block_bytes: take.u32()?, chunk_blocks: take.u32()? };
    let count = take.u32()? as usize;
    if count > MOST_PIECES {
        return None;
    }
    let mut pieces = Vec::with_capacity(count);
    for _ in 0..count {
        pieces.push(decode_piece(take)?);
    }
    take.0.is_empty().then_some(Snapshot { sequence, at, geometry, blocks: pieces })
}

fn decode_piece(take: &mut Take<'_>) -> Option<BlockState> {
    let first = take.i64()?;
    let (bytes, frames, present, invalid) = (take.u32()?, take.u32()?, take.u32()?, take.u32()?);
    let time = Some(take.i64()?).filter(|&ns| ns != i64::MIN).map(Tai);
    let seen = Tai(take.i64()?);
    let (gaps, lengths) = (take.u32()? as usize, take.u32()? as usize);
    // The announced items must be present before memory is allocated for them.
    if take.0.len() < gaps.checked_mul(GAP_BYTES)?.checked_add(lengths.checked_mul(2)?)? {
        return None;
    }
    let gaps: Option<Vec<Gap>> = (0..gaps).map(|_| decode_gap(take)).collect();
    let lengths: Option<Vec<u16>> =
        (0..lengths).map(|_| take.bytes().map(u16::from_le_bytes)).collect();
    let (gaps, lengths) = (gaps?, lengths?);
    Some(BlockState { first, bytes, frames, present, invalid, time, seen, gaps, lengths })
}

fn decode_gap(take: &mut Take<'_>) -> Option<Gap> {
    let (first, count) = (take.i64()?, take.u64()?);
    let causes = [Cause::Missing, Cause::Overrun, Cause::Damaged, Cause::Late];
    let [cause] = take.bytes::<1>()?;
    Some(Gap { first, count, cause: *causes.get(usize::from(cause))? })
}

struct Take<'a>(&'a [u8]);

impl Take<'_> {
    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_le_bytes)
    }

    fn i64(&mut self) -> Option<i64> {
        self.bytes().map(i64::from_le_bytes)
    }
}

/// The last whole snapshot of a partial-block file, with the bytes of each of its blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartialBlockFile {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// Bytes of each block.
    pub bytes: Vec<Vec<u8>>,
}

impl PartialBlockFile {
    /// Reads the valid part of a partial-block file. `None`: it has no valid snapshot.
    pub fn read(codec: Codec, file: &[u8]) -> Option<Self> {
        let (snapshot, end) = last_snapshot(codec, file)?;
        let most = snapshot.geometry.block_bytes as usize;
        let mut blocks: BTreeMap<i64, Vec<u8>> =
            snapshot.blocks.iter().map(|piece| (piece.first, Vec::new())).collect();
        let mut rest = &file[..end];
        while let Some((entry, taken)) = codec.decode(rest) {
            rest = &rest[taken..];
            let Entry::Bytes { first, offset, bytes } = entry else { continue };
            // Blocks that were dispatched since may be here too.
            let Some(block) = blocks.get_mut(&first) else { continue };
            let offset = offset as usize;
            let reach = offset + bytes.len();
            if offset > block.len() || reach > most {
                return None;
            }
            block.resize(block.len().max(reach), 0);
            block[offset..reach].copy_from_slice(bytes);
        }
        let bytes = snapshot.blocks.iter().map(|piece| {
            let mut block = blocks.remove(&piece.first)?;
            let is_whole = block.len() >= piece.bytes as usize;
            block.truncate(piece.bytes as usize);
            is_whole.then_some(block)
        });
        let bytes = bytes.collect::<Option<Vec<_>>>()?;
        Some(Self { snapshot, bytes })
    }
}

/// Returns the last whole valid snapshot, and the end of its part of the file.
fn last_snapshot(codec: Codec, file: &[u8]) -> Option<(Snapshot, usize)> {
    let (mut at, mut last) = (0, None);
    while let Some((entry, taken)) = codec.decode(&file[at..]) {
        at += taken;
        if let Entry::Snapshot(snapshot) = entry {
            last = Some((snapshot, at));
        }
    }
    last.filter(|(snapshot, _)| makes_sense(snapshot))
}

/// True if the blocks of a snapshot are possible: whole frames, all full except the last, consecutive.
fn makes_sense(snapshot: &Snapshot) -> bool {
    let Geometry { frame_bytes, block_bytes, chunk_blocks } = snapshot.geometry;
    if u64::from(block_bytes) > LARGEST_BLOCK_BYTES || block_bytes == 0 || chunk_blocks == 0 {
        return false;
    }
    let sound = |piece: &BlockState| {
        let of_frames = u64::from(piece.frames) * u64::from(frame_bytes) == u64::from(piece.bytes);
        let of_lengths = piece.lengths.len() == piece.frames as usize;
        piece.bytes > 0
            && piece.bytes <= block_bytes
            && piece.present <= piece.frames
            && if frame_bytes > 0 { of_frames } else { of_lengths }
    };
    let in_order = |pair: &[BlockState]| {
        let end = pair[0].first.checked_add(pair[0].frames.into());
        pair[0].bytes == block_bytes && end.is_some_and(|end| end <= pair[1].first)
    };
    snapshot.blocks.iter().all(sound) && snapshot.blocks.windows(2).all(in_order)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FRAME: u32 = 8;
    const FRAMES: u32 = 32;

    fn codec() -> Codec {
        Codec::of_stream(Uuid::from_u128(7), 3)
    }

    /// Returns a stream whose frames come in runs, some repaired later, copied after each; and the expected result
    /// after each snapshot.
    fn recording(runs: &[(u32, bool)]) -> (Vec<u8>, Vec<(usize, PartialBlockFile)>) {
        let geometry =
            Geometry { frame_bytes: FRAME, block_bytes: FRAME * FRAMES, chunk_blocks: 4 };
        let (mut file, mut found) = (Vec::new(), Vec::new());
        let mut block = Vec::new();
        for (number, &(frames, repaired)) in runs.iter().enumerate() {
            let from = block.len();
            let frames = frames.min(FRAMES - block.len() as u32 / FRAME);
            block.extend((0..frames * FRAME).map(|byte| (number as u32 * 31 + byte) as u8));
            let from = if repaired && from >= FRAME as usize {
                block[from - FRAME as usize] ^= 0xFF;
                from - FRAME as usize
            } else {
                from
            };
            let entry = Entry::Bytes { first: 5, offset: from as u32, bytes: &block[from..] };
            codec().encode(&entry, &mut file);
            let count = block.len() as u32 / FRAME;
            if count == 0 {
                continue;
            }
            let piece = BlockState {
                first: 5,
                bytes: block.len() as u32,
                frames: count,
                present: count - 1,
                invalid: 0,
                time: Some(Tai(number as i64)),
                seen: Tai(9),
                gaps: vec![Gap { first: 5, count: 1, cause: Cause::Damaged }],
                lengths: Vec::new(),
            };
            let at = Tai(number as i64);
            let snapshot = Snapshot { sequence: 12, at, geometry, blocks: vec![piece] };
            codec().encode(&Entry::Snapshot(snapshot.clone()), &mut file);
            found.push((file.len(), PartialBlockFile { snapshot, bytes: vec![block.clone()] }));
        }
        (file, found)
    }

    proptest! {
        #[test]
        fn a_tail_cut_off_anywhere_is_what_it_was_at_its_last_whole_picture(
            runs in prop::collection::vec((1..8_u32, any::<bool>()), 1..6)
        ) {
            let (file, found) = recording(&runs);
            for cut in 0..=file.len() {
                let expected = found.iter().rev().find(|(end, _)| *end <= cut).map(|(_, it)| it);
                let read = PartialBlockFile::read(codec(), &file[..cut]);
                prop_assert_eq!(read.as_ref(), expected);
            }
        }

        #[test]
        fn a_flipped_bit_gives_what_was_before_it_or_nothing(
            runs in prop::collection::vec((1..8_u32, any::<bool>()), 1..5),
            at in any::<prop::sample::Index>(), bit in 0..8_u8
        ) {
            let (mut file, found) = recording(&runs);
            let at = at.index(file.len());
            file[at] ^= 1 << bit;
            let expected = found.iter().rev().find(|(end, _)| *end <= at).map(|(_, it)| it);
            let read = PartialBlockFile::read(codec(), &file);
            prop_assert_eq!(read.as_ref(), expected);
        }

        #[test]
        fn any_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(PartialBlockFile::read(codec(), &bytes), None);
        }

        #[test]
        fn a_picture_reads_back(
            words in any::<[u32; 4]>(), first in any::<i64>(), time in any::<Option<i64>>(),
            gaps in prop::collection::vec((any::<i64>(), any::<u64>()), 0..5),
            lengths in prop::collection::vec(any::<u16>(), 0..9), count in 0..=MOST_PIECES,
        ) {
            let [bytes, frames, present, invalid] = words;
            let gaps = gaps.into_iter().map(|(first, count)| Gap { first, count, cause: Cause::Late });
            let piece = BlockState {
                first, bytes, frames, present, invalid, lengths, seen: Tai(3), gaps: gaps.collect(),
                time: time.filter(|&ns| ns != i64::MIN).map(Tai),
            };
            let geometry = Geometry { frame_bytes: 1, block_bytes: 2, chunk_blocks: 3 };
            let blocks = vec![piece; count];
            let snapshot = Snapshot { sequence: 1, at: Tai(2), geometry, blocks };
            let mut file = Vec::new();
            codec().encode(&Entry::Snapshot(snapshot.clone()), &mut file);
            prop_assert_eq!(file.len(), HEAD + snapshot.body_bytes());
            prop_assert_eq!(codec().decode(&file), Some((Entry::Snapshot(snapshot), file.len())));
        }
    }

    #[test]
    fn the_tail_of_another_scan_or_stream_is_none() {
        let (file, _) = recording(&[(4, false)]);
        assert!(PartialBlockFile::read(Codec::of_stream(Uuid::from_u128(8), 3), &file).is_none());
        assert!(PartialBlockFile::read(Codec::of_stream(Uuid::from_u128(7), 4), &file).is_none());
        assert!(PartialBlockFile::read(codec(), &file).is_some());
    }

    #[test]
    fn bytes_with_a_hole_before_them_are_no_block() {
        let (mut file, _) = recording(&[(4, false)]);
        let entry = Entry::Bytes { first: 5, offset: 200, bytes: &[1; 8] };
        codec().encode(&entry, &mut file);
        let (again, _) = recording(&[(4, false)]);
        file.extend(again);
        assert_eq!(PartialBlockFile::read(codec(), &file), None);
    }

    #[test]
    fn the_names_of_tails_are_known() {
        assert!(
            is_partial_block_file(&partial_block_file(0))
                && is_partial_block_file(&partial_block_file(u64::MAX))
        );
        assert!(
            belongs_to_partial_block("tail.00000012")
                && belongs_to_partial_block("tail.00000012.new")
        );
        assert!(
            !is_partial_block_file("tail.00000012.new") && !belongs_to_partial_block("tail.new")
        );
        assert!(
            !is_partial_block_file("tail.")
                && !is_partial_block_file("tail.0000000x")
                && !is_partial_block_file("index")
        );
    }
}
