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
mod rows;

use std::ops::Range;

use fullbore_analysis::frames::SampleFrames;
use fullbore_core::manifest::Format;
use fullbore_formats::framed::{FrameCodec, FrameKind};
use fullbore_formats::samples::decode::Output;
use fullbore_formats::samples::{SampleLayout, SampleRate};
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
        frames: SampleFrames,
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
    /// Finds out what the samples of a stream are. `rate` is that of each channel, if the stream does not state it.
    pub fn of(stream: StreamView<'_>, rate: Option<SampleRate>) -> Result<Self, ReadError> {
        let refuse = |why: &str| ReadError::Undecodable {
            stream: stream.stream().name.clone(),
            why: why.to_owned(),
        };
        let described = stream.described().and_then(|told| told.samples.clone());
        match &stream.stream().format {
            Format::Panda { .. } => Err(refuse(
                "samples of a PandA are columns, which `fullbore convert` writes to HDF5",
            )),
            Format::Packets { .. } => Err(refuse(
                "samples in packets are not read at any place; `fullbore convert` writes those of VITA-49 to arrays",
            )),
            Format::Frames { kind, frames_per_second, threads, .. } => {
                let described = described.filter(|_| *kind != FrameKind::Vdif);
                Self::of_frames(stream, described, *frames_per_second, threads, rate)
            }
            Format::Raw => Self::of_plain(stream, described, rate),
        }
    }

    fn of_plain(
        stream: StreamView<'_>,
        described: Option<SampleLayout>,
        rate: Option<SampleRate>,
    ) -> Result<Self, ReadError> {
        let undescribed = fullbore_analysis::frames::SamplesError::Undescribed;
        let name = || stream.stream().name.clone();
        let mut layout =
            described.ok_or_else(|| ReadError::Samples { stream: name(), source: undescribed })?;
        layout.sample_rate = rate.or(layout.sample_rate);
        let frame_bytes = stream.frame_bytes()? as u64;
        if frame_bytes > 1 && layout.samples_in(frame_bytes).is_none() {
            let why = format!("{frame_bytes} bytes of a frame are no whole samples of {layout}");
            return Err(ReadError::Undecodable { stream: name(), why });
        }
        let bits = u128::from(stream.count()) * u128::from(frame_bytes) * 8;
        let count = (bits / u128::from(layout.sample_bits().max(1))) as u64;
        let lines = lines(&[0], &layout);
        let start = start_of(stream, stream.first_index());
        Ok(Self { layout, lines, count, start, places: Places::Plain { frame_bytes } })
    }

    fn of_frames(
        stream: StreamView<'_>,
        described: Option<SampleLayout>,
        frames_per_second: Option<u64>,
        listed: &[u16],
        rate: Option<SampleRate>,
    ) -> Result<Self, ReadError> {
        let stored = stream.stream();
        let failed = |source| ReadError::Samples { stream: stored.name.clone(), source };
        let nothing =
            |why: &str| ReadError::Undecodable { stream: stored.name.clone(), why: why.to_owned() };
        stream.frame_bytes()?;
        let codec = stored.codec.ok_or_else(|| nothing("its frames carry no time"))?;
        let (anchor, frame) =
            first_received(stream, codec)?.ok_or_else(|| nothing("no frame of it was received"))?;
        let made = SampleFrames::of(described, Some(codec), frames_per_second, &frame);
        let mut frames = made.map_err(failed)?.with_rate(rate, &frame, Some(codec));
        let placed = frames.place(&frame, false, Some(codec)).map_err(failed)?;
        let placed = placed.ok_or_else(|| nothing("its first frame has no samples"))?;
        let samples = frames.layout.samples_in(placed.payload.len() as u64).unwrap_or(0).max(1);
        let layout = frames.layout.clone();
        let of_header = codec.read(&frame).and_then(|header| header.frames_per_second());
        let in_order = layout.sample_rate.is_none() && frames_per_second.or(of_header).is_none();
        let lines = lines(&threads_of(stream, listed, placed.thread), &layout);
        let mut made = Self {
            layout,
            lines,
            count: 0,
            start: start_of(stream, anchor),
            places: Places::Framed {
                frames,
                codec,
                anchor,
                threads: listed.len().max(1) as i64,
                samples,
                in_order,
            },
        };
        made.count = made.count_of(stream, anchor, samples);
        Ok(made)
    }

    /// The rows from the first frame that was received to the end of the stream.
    fn count_of(&self, stream: StreamView<'_>, anchor: i64, samples: u64) -> u64 {
        let Places::Framed { threads, .. } = &self.places else { return self.count };
        let last = stream.end_index() - 1;
        let slots = |from: i64, to: i64| {
            let slots = to.div_euclid(*threads) - from.div_euclid(*threads);
            (slots.max(0) as u64 + 1).saturating_mul(samples)
        };
        if stream.stream().is_filled() {
            return slots(anchor, last);
        }
        // Frames are in order of arrival: the time of the last one says how many belong before it.
        let told = stream.stream().account.as_ref();
        let time = told.and_then(|account| account.last?.time);
        match (time, self.start, self.layout.sample_rate) {
            (Some(last), Some(start), Some(rate)) => {
                let (above, below) = rate.ratio();
                let per_frame = i128::from(below) * i128::from(samples) * 1_000_000_000;
                let ns = i128::from(last.since(start).max(0)) * i128::from(above);
                let frames = (ns + per_frame / 2) / per_frame.max(1);
                (frames as u64).saturating_add(1).saturating_mul(samples)
            }
            _ => {
                let count = self.lines.len() as u64 / u64::from(self.layout.channels).max(1);
                (stream.count() / count.max(1)).saturating_mul(samples)
            }
        }
    }

    /// Returns the first row at or after a time, at most the number of rows.
    pub fn row_at(&self, stream: StreamView<'_>, time: Tai) -> Result<u64, ReadError> {
        let (Some(start), Some(rate)) = (self.start, self.layout.sample_rate) else {
            return Err(ReadError::Untimed { stream: stream.name(), what: "samples" });
        };
        let (above, below) = rate.ratio();
        let ns = i128::from(time.since(start).max(0));
        let below = i128::from(below) * 1_000_000_000;
        let row = (ns * i128::from(above) + below - 1) / below;
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
        let Places::Framed { frames, codec, anchor, .. } = &self.places else { return Ok(()) };
        let (mut frames, bits) = (frames.clone(), self.layout.sample_bits().max(1));
        let stored = stream.stream();
        let (positions, wanted) = self.blocks_of(stream, &range);
        stream.read_blocks(positions, &wanted, &mut |location, bytes| {
            for frame in stored.frames(&location.block, bytes) {
                // The anchor has its place already.
                if !wanted.contains(&frame.index) && frame.index != *anchor {
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

/// The channels of threads.
fn lines(threads: &[u16], layout: &SampleLayout) -> Vec<Line> {
    let channels = layout.channels as usize;
    let of_thread = |&thread: &u16| (0..channels).map(move |channel| Line { thread, channel });
    threads.iter().flat_map(of_thread).collect()
}

/// The threads of a stream in the order of their numbers: those in the manifest, else in the account.
fn threads_of(stream: StreamView<'_>, listed: &[u16], first: u16) -> Vec<u16> {
    let account = stream.stream().account.as_ref();
    let mut threads = match (listed, account) {
        ([], Some(account)) => account.flows.iter().map(|flow| flow.thread).collect(),
        (listed, _) => listed.to_vec(),
    };
    if !threads.contains(&first) {
        threads.push(first);
    }
    threads.sort_unstable();
    threads.dedup();
    threads
}

fn start_of(stream: StreamView<'_>, index: i64) -> Option<Tai> {
    let stored = stream.stream();
    if !stored.is_timed() {
        return None;
    }
    stored.time_of(index).or_else(|| stored.time_near(index))
}

/// The first frame that was received, and its index.
fn first_received(
    stream: StreamView<'_>,
    codec: FrameCodec,
) -> Result<Option<(i64, Vec<u8>)>, ReadError> {
    let stored = stream.stream();
    for position in 0..stored.blocks.len() {
        let block = &stored.blocks[position].block;
        let wanted = block.first..stored.end_of(block);
        let mut found = None;
        stream.read_blocks(position..position + 1, &wanted, &mut |location, bytes| {
            let mut frames = stored.frames(&location.block, bytes);
            let is_valid = |frame: &[u8]| codec.read(frame).is_some_and(|header| !header.invalid());
            found = frames
                .find(|frame| !frame.fill && is_valid(frame.bytes))
                .map(|frame| (frame.index, frame.bytes.to_vec()));
            Ok(())
        })?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
