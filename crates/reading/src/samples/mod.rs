//! Samples as an array: a row for each moment, a column for each line.
//!
//! ```text
//! VDIF, Mark 5B   frame ── header: thread, second, number ──► place of its first sample ──┐
//! raw frames      frame ── its index ────────────────────────────────────────────────────┼──► rows
//! bytes           block ── its place in the stream; samples that cross blocks are joined ──┘
//! ```
//!
//! A *line* is a channel of a thread. Row 0 is the first sample of the first frame that was received, and a row has the
//! place that time gives it, whatever is absent before. Values of absent rows are NaN, or 0 as integers.

mod bytes;
mod describe;
mod rows;

use std::ops::Range;

use fullbore_analysis::frames::SampleFrames;
use fullbore_formats::framed::FrameCodec;
use fullbore_formats::samples::SampleLayout;
use fullbore_formats::samples::decode::Output;
use fullbore_time::Tai;

use self::bytes::Joiner;
use self::rows::Rows;
use crate::error::ReadError;
use crate::scan::StreamView;

/// A channel of a thread: one signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Line {
    /// The thread; 0 in streams without threads.
    pub thread: u16,
    /// The channel of the thread, from 0.
    pub channel: usize,
}

/// The samples of a stream.
#[derive(Clone, Debug)]
pub struct Samples {
    /// The samples of one thread.
    pub layout: SampleLayout,
    /// The lines: the channels of each thread, in the order of thread numbers.
    pub lines: Vec<Line>,
    /// The number of rows, absent ones too.
    pub count: u64,
    /// The time of row 0, by the clock of the stream.
    pub start: Option<Tai>,
    places: Places,
}

/// What the place of a sample follows from.
#[derive(Clone, Debug)]
enum Places {
    /// Frames that carry their time.
    Framed {
        /// Places frames relative to the first one that was received.
        frames: Box<SampleFrames>,
        codec: FrameCodec,
        /// The index of that frame.
        anchor: i64,
        /// Threads that alternate frame by frame.
        threads: i64,
        /// Samples of each frame.
        samples: u64,
        /// True if no frame can be placed without all before it: the rate is not known.
        in_order: bool,
    },
    /// Frames without time, or bytes, which have 1 byte a frame.
    Plain {
        /// Bytes of each frame.
        frame_bytes: u64,
    },
}

impl Samples {
    /// Returns the first row at or after a time, at most the number of rows.
    pub fn row_at(&self, stream: StreamView<'_>, time: Tai) -> Result<u64, ReadError> {
        let (Some(start), Some(rate)) = (self.start, self.layout.sample_rate) else {
            return Err(ReadError::Untimed { stream: stream.name(), what: "samples" });
        };
        let (above, below) = rate.ratio();
        let ns = u128::from(time.since(start).max(0).unsigned_abs());
        let row = (ns * u128::from(above)).div_ceil(u128::from(below) * 1_000_000_000);
        Ok(u64::try_from(row).unwrap_or(u64::MAX).min(self.count))
    }

    /// Reads rows of some lines. `values` has a place for each value, line after line of a row, a complex value as its
    /// two parts; `valid`, if wanted, one for each row of each line.
    ///
    /// # Panics
    ///
    /// If the memory has another length.
    pub fn read<T: Output>(
        &self,
        stream: StreamView<'_>,
        range: Range<u64>,
        columns: &[usize],
        values: &mut [T],
        valid: Option<&mut [bool]>,
    ) -> Result<(), ReadError> {
        if range.start > range.end || range.end > self.count {
            let (start, end, count) = (range.start, range.end, self.count);
            let stream = stream.name();
            return Err(ReadError::Range { stream, what: "samples", start, end, count });
        }
        let known = |line: &usize| {
            self.lines.get(*line).copied().ok_or_else(|| ReadError::NoLine {
                stream: stream.name(),
                line: *line,
                count: self.lines.len(),
            })
        };
        let lines = columns.iter().map(known).collect::<Result<Vec<_>, _>>()?;
        let rows = Rows::new(&self.layout, &lines, range.clone(), values, valid);
        let mut rows =
            rows.map_err(|source| ReadError::DoesNotFit { stream: stream.name(), source })?;
        match &self.places {
            Places::Plain { frame_bytes: 1 } => self.read_bytes(stream, range, &mut rows)?,
            Places::Plain { frame_bytes } => {
                self.read_plain(stream, *frame_bytes, range, &mut rows)?;
            }
            Places::Framed { .. } => self.read_frames(stream, range, &mut rows)?,
        }
        rows.finish();
        Ok(())
    }

    fn read_frames<T: Output>(
        &self,
        stream: StreamView<'_>,
        range: Range<u64>,
        rows: &mut Rows<'_, T>,
    ) -> Result<(), ReadError> {
        let Places::Framed { frames, codec, .. } = &self.places else { return Ok(()) };
        let (mut frames, bits) = (frames.clone(), self.layout.sample_bits().max(1));
        let stored = stream.stream();
        let (positions, wanted) = self.blocks_of(stream, &range);
        stream.read_blocks(positions, &wanted, &mut |location, bytes| {
            for frame in stored.frames(&location.block, bytes) {
                if !wanted.contains(&frame.index) {
                    continue;
                }
                let placed = frames.place(frame.bytes, frame.fill, Some(*codec));
                let placed = placed
                    .map_err(|source| ReadError::Samples { stream: stream.name(), source })?;
                if let Some(placed) = placed {
                    let sample = (u128::from(placed.at) * 8 / u128::from(bits)) as u64;
                    rows.put(placed.thread, sample, &frame.bytes[placed.payload]);
                }
            }
            Ok(())
        })
    }

    /// The blocks that hold the frames of a range of rows, and the indices of these frames.
    fn blocks_of(&self, stream: StreamView<'_>, range: &Range<u64>) -> (Range<usize>, Range<i64>) {
        let stored = stream.stream();
        let all = stream.first_index()..stream.end_index();
        let Places::Framed { anchor, threads, samples, in_order, .. } = &self.places else {
            return (0..stored.blocks.len(), all);
        };
        let (first, end) = (range.start / samples, range.end.div_ceil(*samples));
        if *in_order {
            return (0..stored.blocks.len(), all);
        }
        if stored.is_filled() {
            let slot = anchor.div_euclid(*threads);
            let index = |frame: u64| slot.saturating_add_unsigned(frame).saturating_mul(*threads);
            let wanted = index(first).max(all.start)..index(end).min(all.end);
            return (stream.positions(&wanted), wanted);
        }
        // Frames in order of arrival may come a little before or after their time.
        let time = |row: u64| Some(self.start?.plus_ns(self.ns_of(row)?));
        let position = |row| stored.position_of(stored.index_at(time(row)?)?);
        let from = position(range.start).unwrap_or(0).saturating_sub(1);
        let to = position(range.end).map_or(stored.blocks.len(), |last| last.saturating_add(2));
        (from..to.min(stored.blocks.len()), all)
    }

    /// Nanoseconds from row 0 to another.
    fn ns_of(&self, row: u64) -> Option<i64> {
        let (above, below) = self.layout.sample_rate?.ratio();
        let ns = u128::from(row) * u128::from(below) * 1_000_000_000 / u128::from(above);
        i64::try_from(ns).ok()
    }

    fn read_plain<T: Output>(
        &self,
        stream: StreamView<'_>,
        frame_bytes: u64,
        range: Range<u64>,
        rows: &mut Rows<'_, T>,
    ) -> Result<(), ReadError> {
        let stored = stream.stream();
        let frame_samples = self.layout.samples_in(frame_bytes).unwrap_or(1).max(1);
        let frames = range.start / frame_samples..range.end.div_ceil(frame_samples);
        let frames = frames.start.min(stream.count())..frames.end.min(stream.count());
        let wanted = stream.indices(&frames)?;
        let first = stream.first_index();
        stream.read_blocks(stream.positions(&wanted), &wanted, &mut |location, bytes| {
            let (begin, end) = (location.block.first, stored.end_of(&location.block));
            let part = begin.max(wanted.start)..end.min(wanted.end);
            for run in stream.received(part) {
                let byte = |index: i64| (index - begin).max(0) as usize * frame_bytes as usize;
                let Some(bytes) = bytes.get(byte(run.start)..byte(run.end)) else { continue };
                let sample = run.start.abs_diff(first).saturating_mul(frame_samples);
                rows.put(0, sample, bytes);
            }
            Ok(())
        })
    }

    fn read_bytes<T: Output>(
        &self,
        stream: StreamView<'_>,
        range: Range<u64>,
        rows: &mut Rows<'_, T>,
    ) -> Result<(), ReadError> {
        let mut joiner = Joiner::new(self.layout.sample_bits());
        let wanted = stream.indices(&joiner.bytes_of(&range, stream.count()))?;
        let first = stream.first_index();
        stream.read_blocks(stream.positions(&wanted), &wanted, &mut |location, bytes| {
            let begin = location.block.first;
            let part = begin.max(wanted.start)..(begin + bytes.len() as i64).min(wanted.end);
            if !part.is_empty() {
                let bytes = &bytes[(part.start - begin) as usize..(part.end - begin) as usize];
                joiner.take(part.start.abs_diff(first), bytes, &mut |sample, bytes| {
                    rows.put(0, sample, bytes);
                });
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests;
