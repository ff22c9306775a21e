//! What the samples of a stream are: by its description, its account and its first frame.

use fullbore_analysis::frames::{SampleFrames, SamplesError};
use fullbore_core::manifest::Format;
use fullbore_formats::framed::{FrameCodec, FrameKind};
use fullbore_formats::samples::{SampleLayout, SampleRate};
use fullbore_time::Tai;

use super::{Line, Places, Samples};
use crate::error::ReadError;
use crate::scan::StreamView;

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
        let undescribed = SamplesError::Undescribed;
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
                frames: Box::new(frames),
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
