//! Frames as an array: a row of bytes for each, fill included.

use std::ops::Range;

use fullbore_store::reader::StoredStream;

use crate::error::ReadError;
use crate::scan::StreamView;

impl StreamView<'_> {
    /// Bytes of each frame; 1 for bytes without frames.
    pub fn frame_bytes(self) -> Result<usize, ReadError> {
        match self.stream().geometry.map(|geometry| geometry.frame_bytes) {
            // No frame ever came.
            None => Ok(1),
            Some(0) => Err(ReadError::Varying { stream: self.name() }),
            Some(bytes) => Ok(bytes as usize),
        }
    }

    /// The index of the first frame in the stream's own count, which gaps and markers use.
    pub fn first_index(self) -> i64 {
        first_index(self.stream())
    }

    /// The index behind the last frame.
    pub(crate) fn end_index(self) -> i64 {
        let stream = self.stream();
        let of_blocks = stream.blocks.last().map(|it| stream.end_of(&it.block));
        let placed = stream.placed_edges().map(|(_, last)| last.saturating_add(1));
        placed.max(of_blocks).unwrap_or_else(|| self.first_index())
    }

    /// The number of frames, those that were not received too if they have places.
    pub fn count(self) -> u64 {
        self.end_index().saturating_sub(self.first_index()).max(0).unsigned_abs()
    }

    /// The indices of a range of frames that are counted from 0.
    pub(crate) fn indices(self, frames: &Range<u64>) -> Result<Range<i64>, ReadError> {
        let count = self.count();
        if frames.start > frames.end || frames.end > count {
            let (start, end) = (frames.start, frames.end);
            return Err(ReadError::Range {
                stream: self.name(),
                what: "frames",
                start,
                end,
                count,
            });
        }
        let first = self.first_index();
        Ok(first.saturating_add_unsigned(frames.start)..first.saturating_add_unsigned(frames.end))
    }

    /// Reads frames into memory of exactly their length, and says of each whether it was received, if `valid` is given.
    /// Fill is read as it is stored. Frames that no block holds, and those of skipped damage, become zeros.
    ///
    /// # Panics
    ///
    /// If the memory has another length.
    pub fn read_frames(
        self,
        frames: Range<u64>,
        bytes: &mut [u8],
        mut valid: Option<&mut [bool]>,
    ) -> Result<(), ReadError> {
        let frame_bytes = self.frame_bytes()?;
        let wanted = self.indices(&frames)?;
        let count = (frames.end - frames.start) as usize;
        let told = valid.as_ref().map_or(count, |valid| valid.len());
        assert_eq!((bytes.len(), told), (count * frame_bytes, count), "memory of the range");
        let place = |index: i64| (index - wanted.start) as usize;
        if let Some(valid) = &mut valid {
            valid.fill(false);
        }
        let mut next = wanted.start;
        let stream = self.stream();
        self.read_blocks(self.positions(&wanted), &wanted, &mut |location, block| {
            let (first, end) = (location.block.first, stream.end_of(&location.block));
            let held = block.len() / frame_bytes;
            let end = end.min(first.saturating_add_unsigned(held as u64));
            let part = first.max(wanted.start)..end.min(wanted.end);
            if part.is_empty() {
                return Ok(());
            }
            if part.start > next {
                bytes[place(next) * frame_bytes..place(part.start) * frame_bytes].fill(0);
            }
            next = next.max(part.end);
            let from = (part.start - first) as usize * frame_bytes;
            let into = &mut bytes[place(part.start) * frame_bytes..place(part.end) * frame_bytes];
            into.copy_from_slice(&block[from..from + into.len()]);
            if let Some(valid) = &mut valid {
                for run in self.received(part) {
                    valid[place(run.start)..place(run.end)].fill(true);
                }
            }
            Ok(())
        })?;
        bytes[place(next) * frame_bytes..].fill(0);
        Ok(())
    }

    /// The runs of frames that are stored, in order: what `cat` prints. Fill is stored, too.
    pub fn stored(self) -> Vec<Range<u64>> {
        let (stream, first) = (self.stream(), self.first_index());
        let mut runs: Vec<Range<u64>> = Vec::new();
        for location in stream.blocks.iter().filter(|it| it.is_readable()) {
            let place = |index: i64| index.saturating_sub(first).max(0).unsigned_abs();
            let run = place(location.block.first)..place(stream.end_of(&location.block));
            match runs.last_mut() {
                Some(last) if last.end >= run.start => last.end = last.end.max(run.end),
                _ => runs.push(run),
            }
        }
        runs
    }

    /// Says of each frame whether it was received and stored, from the index alone.
    ///
    /// # Panics
    ///
    /// If the memory has another length than the range.
    pub fn read_valid(self, frames: Range<u64>, valid: &mut [bool]) -> Result<(), ReadError> {
        let wanted = self.indices(&frames)?;
        assert_eq!(valid.len() as u64, frames.end - frames.start, "memory of the range");
        valid.fill(false);
        let stream = self.stream();
        for location in &stream.blocks[self.positions(&wanted)] {
            let first = location.block.first.max(wanted.start);
            let part = first..stream.end_of(&location.block).min(wanted.end);
            if part.is_empty() || !location.is_readable() {
                continue;
            }
            for run in self.received(part) {
                let place = |index: i64| (index - wanted.start) as usize;
                valid[place(run.start)..place(run.end)].fill(true);
            }
        }
        Ok(())
    }

    /// The parts of a range of stored frames that are no fill.
    pub(crate) fn received(self, part: Range<i64>) -> Vec<Range<i64>> {
        received(self.stream(), part)
    }
}

/// The index of the first frame of a stream.
pub(crate) fn first_index(stream: &StoredStream) -> i64 {
    let of_blocks = stream.blocks.first().map(|it| it.block.first);
    match (stream.placed_edges().map(|(first, _)| first), of_blocks) {
        (Some(placed), Some(of_blocks)) => placed.min(of_blocks),
        (placed, of_blocks) => placed.or(of_blocks).unwrap_or(0),
    }
}

/// The parts of a range of stored frames that are no fill.
pub(crate) fn received(stream: &StoredStream, part: Range<i64>) -> Vec<Range<i64>> {
    if stream.is_filled() { stream.gaps.uncovered(part) } else { vec![part] }
}

#[cfg(test)]
mod tests {
    use fullbore_core::gap::Cause;
    use fullbore_store::testing::{BLOCK_FRAMES, FRAME_BYTES, Laid, Store, StreamPlan};
    use proptest::prelude::*;

    use crate::{ErrorKind, OpenScan};

    const FRAMES: u64 = 5 * BLOCK_FRAMES + 7;

    fn laid() -> (Store, Laid) {
        let store = Store::in_memory(2);
        let gapped = StreamPlan::vdif("a").frames(FRAMES).gap(3, 2, Cause::Missing);
        let laid = store.lay_down("s_one", &[gapped.skip_blocks(2..3)]);
        (store, laid)
    }

    #[test]
    fn every_range_is_the_bytes_that_were_recorded_and_gaps_are_not_valid() {
        let (store, laid) = laid();
        let open = OpenScan::open(&store.roots(), &laid.name, false).unwrap();
        let stream = open.stream("a").unwrap();
        assert_eq!((stream.count(), stream.frame_bytes().unwrap()), (FRAMES, 512));
        let skipped = 2 * BLOCK_FRAMES..3 * BLOCK_FRAMES;
        let is_there = |frame: u64| !(3..5).contains(&frame) && !skipped.contains(&frame);
        // The bytes of the blocks, with zeros in place of the one that was never written.
        let mut whole = laid.bytes[0].clone();
        let hole = vec![0; (BLOCK_FRAMES * u64::from(FRAME_BYTES)) as usize];
        let at = 2 * hole.len();
        whole.splice(at..at, hole);
        proptest!(ProptestConfig::with_cases(64), |(a in 0..=FRAMES, b in 0..=FRAMES)| {
            let range = a.min(b)..a.max(b);
            let count = (range.end - range.start) as usize;
            let (mut bytes, mut valid) = (vec![0xEE; count * 512], vec![true; count]);
            stream.read_frames(range.clone(), &mut bytes, Some(&mut valid)).unwrap();
            prop_assert_eq!(&bytes, &whole[range.start as usize * 512..range.end as usize * 512]);
            let expected: Vec<bool> = range.clone().map(is_there).collect();
            prop_assert_eq!(&valid, &expected);
            let mut by_index = vec![true; count];
            stream.read_valid(range, &mut by_index).unwrap();
            prop_assert_eq!(&by_index, &expected);
        });
        assert_eq!(stream.stored(), [0..skipped.start, skipped.end..FRAMES]);
        let error = stream.read_frames(0..FRAMES + 1, &mut [], None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Range);
    }

    #[test]
    fn damage_is_an_error_where_it_is_and_can_be_skipped() {
        let (store, laid) = laid();
        let path = laid.chunk_path(0, 0);
        let mut chunk = std::fs::read(&path).unwrap();
        chunk[10] ^= 1;
        std::fs::write(&path, chunk).unwrap();
        let frames = BLOCK_FRAMES as usize;
        let (mut bytes, mut valid) = (vec![1; 2 * frames * 512], vec![true; 2 * frames]);
        let open = OpenScan::open(&store.roots(), &laid.name, false).unwrap();
        let stream = open.stream("a").unwrap();
        let error =
            stream.read_frames(0..2 * BLOCK_FRAMES, &mut bytes, Some(&mut valid)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
        let elsewhere = BLOCK_FRAMES..2 * BLOCK_FRAMES;
        stream
            .read_frames(elsewhere, &mut bytes[..frames * 512], Some(&mut valid[..frames]))
            .unwrap();
        assert!(valid[..frames].iter().all(|valid| *valid));
        let open = OpenScan::open(&store.roots(), &laid.name, true).unwrap();
        let stream = open.stream("a").unwrap();
        stream.read_frames(0..2 * BLOCK_FRAMES, &mut bytes, Some(&mut valid)).unwrap();
        assert!(bytes[..frames * 512].iter().all(|byte| *byte == 0));
        assert!(valid[..frames].iter().all(|valid| !valid) && valid[frames..].iter().all(|it| *it));
    }

    #[test]
    fn packets_of_varying_length_are_no_array() {
        let store = Store::in_memory(1);
        let laid = store.lay_down("s_one", &[StreamPlan::varying("a").frames(40)]);
        let open = OpenScan::open(&store.roots(), &laid.name, false).unwrap();
        let error = open.stream("a").unwrap().frame_bytes().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(open.stream("b").unwrap_err().to_string().contains("it has a"));
    }
}
