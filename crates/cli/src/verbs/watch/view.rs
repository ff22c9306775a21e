//! What a block shows of its stream.

use std::collections::BTreeMap;

use fullbore_core::manifest::Format;
use fullbore_core::units::ByteRate;
use fullbore_formats::framed::FrameKind;
use fullbore_formats::panda;
use fullbore_formats::panda::columns::{Columns, Form, Values};
use fullbore_formats::vdif::{self, ChannelStatistics, SampleStatistics};
use fullbore_time::{Tai, frame_ns};
use serde::Serialize;

/// The most frames of a thread whose samples are counted: enough for a percent.
const FRAMES_COUNTED: u64 = 16;

/// The most threads and columns that are printed; JSON has all.
const PRINTED: usize = 16;

/// A stream, as its newest block shows it.
#[derive(Debug, Serialize)]
pub struct View {
    event: &'static str,
    stream: String,
    /// The number of the block, from 1.
    block: u64,
    /// Blocks that were written since the last look and not looked at.
    skipped: u64,
    bytes: usize,
    bytes_per_second: Option<u64>,
    #[serde(flatten)]
    content: Content,
}

/// The content of a block.
#[derive(Debug, Serialize)]
#[serde(tag = "format", rename_all = "kebab-case")]
enum Content {
    Vdif { frames: u64, frame_bytes: u32, threads: Vec<Thread> },
    Panda { samples: usize, columns: Vec<(String, f64)> },
    Raw { frame_bytes: u32, data: Statistics },
}

/// The frames of one thread.
#[derive(Debug, Serialize)]
struct Thread {
    station: String,
    thread: u16,
    channels: u32,
    bits_per_sample: u32,
    complex: bool,
    edv: u8,
    frames: u64,
    invalid: u64,
    /// The time in the newest frame; without the rate, its second.
    time: Tai,
    frame_number: u32,
    frames_per_second: Option<u64>,
    samples: Statistics,
    /// Samples at each level, lowest first; empty with more than four bits.
    levels: Vec<u64>,
    channel_deviations: Vec<f64>,
}

/// Statistics of samples, in levels.
#[derive(Debug, Serialize)]
struct Statistics {
    count: u64,
    mean: f64,
    deviation: f64,
    /// The fraction at the lowest or highest level.
    extreme: f64,
}

impl From<ChannelStatistics> for Statistics {
    fn from(all: ChannelStatistics) -> Self {
        Self {
            count: all.elements,
            mean: all.mean(),
            deviation: all.deviation(),
            extreme: all.extreme as f64 / all.elements.max(1) as f64,
        }
    }
}

impl View {
    /// The view of a block.
    pub fn of(stream: String, format: Option<&Format>, frame_bytes: u32, bytes: &[u8]) -> Self {
        let content = match format {
            Some(Format::Frames { kind: FrameKind::Vdif, frames_per_second, .. })
                if frame_bytes > 0 =>
            {
                vdif(*frames_per_second, frame_bytes, bytes)
            }
            Some(Format::Panda { header, .. }) => {
                panda(header, bytes).unwrap_or_else(|| raw(frame_bytes, bytes))
            }
            _ => raw(frame_bytes, bytes),
        };
        Self {
            event: "watch",
            stream,
            block: 0,
            skipped: 0,
            bytes: bytes.len(),
            bytes_per_second: None,
            content,
        }
    }

    /// The same, with the number of the block.
    pub fn at(self, block: u64, skipped: u64) -> Self {
        Self { block, skipped, ..self }
    }

    /// The same, with the rate since the last look.
    pub fn with_rate(self, bytes_per_second: Option<u64>) -> Self {
        Self { bytes_per_second, ..self }
    }

    /// The view as text.
    pub fn text(&self) -> String {
        let (what, lines): (String, Vec<String>) = match &self.content {
            Content::Vdif { frames, frame_bytes, threads } => {
                let lines = threads.iter().take(PRINTED).flat_map(Thread::lines);
                (format!("VDIF, {frames} frames of {frame_bytes} bytes"), lines.collect())
            }
            Content::Panda { samples, columns } => {
                let lines = columns.iter().take(PRINTED);
                let lines = lines.map(|(name, value)| format!("{name} = {value}"));
                (format!("PandA, {samples} samples, of which the newest is"), lines.collect())
            }
            Content::Raw { data, .. } => {
                let Statistics { mean, deviation, .. } = data;
                let line = format!("mean {:.1}, deviation {deviation:.1}", mean + 127.5);
                (format!("{} bytes", self.bytes), vec![line])
            }
        };
        let rate =
            self.bytes_per_second.map_or_else(String::new, |it| format!(", {}", ByteRate(it)));
        let skipped = match self.skipped {
            0 => String::new(),
            1 => ", 1 block skipped".to_owned(),
            blocks => format!(", {blocks} blocks skipped"),
        };
        let mut text = format!("{}  block {}: {what}{rate}{skipped}\n", self.stream, self.block);
        lines.iter().for_each(|line| text += &format!("  {line}\n"));
        text
    }
}

impl Thread {
    fn lines(&self) -> Vec<String> {
        let Self { station, thread, channels, bits_per_sample, time, frame_number, .. } = self;
        let kind = if self.complex { "complex" } else { "real" };
        let rate = self.frames_per_second.map_or_else(String::new, |it| format!(", {it} frames/s"));
        let invalid = match self.invalid {
            0 => String::new(),
            frames => format!(", {frames} of {} frames marked invalid", self.frames),
        };
        let Statistics { mean, deviation, extreme, .. } = &self.samples;
        let all: u64 = self.levels.iter().sum();
        let percent = |count: &u64| format!("{:.0}", 100.0 * *count as f64 / all.max(1) as f64);
        let levels = match self.levels.as_slice() {
            [] => format!(", {:.1} % at the ends", 100.0 * extreme),
            levels => {
                let levels: Vec<String> = levels.iter().map(percent).collect();
                format!(", levels {} %", levels.join(" "))
            }
        };
        vec![
            format!(
                "station {station}, thread {thread}: {channels} × {bits_per_sample} bits, {kind}{rate}"
            ),
            format!("  frame {frame_number} at {time:.6}{invalid}"),
            format!("  samples: mean {mean:+.3}, deviation {deviation:.3}{levels}"),
        ]
    }
}

fn vdif(told: Option<u64>, frame_bytes: u32, bytes: &[u8]) -> Content {
    /// The newest header, the number of frames, the invalid ones, the samples.
    type Seen = (vdif::Header, u64, u64, SampleStatistics);
    let mut threads: BTreeMap<(u16, u16), Seen> = BTreeMap::new();
    let mut frames = 0;
    for frame in bytes.chunks_exact(frame_bytes as usize) {
        let Ok(header) = vdif::check(frame, frame.len()) else { continue };
        frames += 1;
        let seen = threads
            .entry((header.station(), header.thread()))
            .or_insert_with(|| (header, 0, 0, SampleStatistics::default()));
        seen.0 = header;
        seen.1 += 1;
        if header.invalid() {
            seen.2 += 1;
        } else if seen.1 - seen.2 <= FRAMES_COUNTED {
            seen.3.take(&header, &frame[header.header_bytes()..]);
        }
    }
    let thread = |(header, frames, invalid, samples): Seen| {
        let rate = told.or_else(|| header.frames_per_second());
        let number = header.frame_number();
        let after = rate.filter(|rate| u64::from(number) < *rate);
        let after = after.map_or(0, |rate| frame_ns(number.into(), rate));
        Thread {
            station: header.station_text(),
            thread: header.thread(),
            channels: header.channels(),
            bits_per_sample: header.bits_per_sample(),
            complex: header.complex(),
            edv: header.edv(),
            frames,
            invalid,
            time: header.second().start().plus_ns(after),
            frame_number: number,
            frames_per_second: rate,
            levels: samples.levels.clone(),
            channel_deviations: samples.channels.iter().map(|it| it.deviation()).collect(),
            samples: samples.all().into(),
        }
    };
    Content::Vdif { frames, frame_bytes, threads: threads.into_values().map(thread).collect() }
}

/// The newest sample of a PandA; `None` if the header cannot be understood.
fn panda(header: &str, bytes: &[u8]) -> Option<Content> {
    let header = panda::Header::of_recording(header).ok()?;
    let plan = Columns::new(&header, Form::Scaled).ok()?;
    let samples = bytes.len() / plan.sample_bytes().max(1);
    let newest = bytes.get((samples.checked_sub(1)?) * plan.sample_bytes()..)?;
    let mut values = plan.buffers(1);
    plan.convert(&newest[..plan.sample_bytes()], 0, &mut values);
    let value = |values: &Values| match values {
        Values::Uint32(values) => f64::from(values[0]),
        Values::Int32(values) => f64::from(values[0]),
        Values::Int64(values) => values[0] as f64,
        Values::Int96(values) => {
            let [low, middle, high] = values[0].map(f64::from);
            low + (middle + high * 4_294_967_296.0) * 4_294_967_296.0
        }
        Values::Double(values) => values[0],
    };
    let named = plan.list().iter().zip(&values);
    let columns = named.map(|(column, values)| (column.name.clone(), value(values)));
    Some(Content::Panda { samples, columns: columns.collect() })
}

fn raw(frame_bytes: u32, bytes: &[u8]) -> Content {
    let mut statistics = SampleStatistics::default();
    // Bytes are samples of one channel with eight bits.
    let most = bytes.len().min(1 << 20);
    statistics.take(&vdif::Header::default().with_bits_per_sample(8), &bytes[..most]);
    Content::Raw { frame_bytes, data: statistics.all().into() }
}
