//! From the blocks of a tap to the messages for one client. It reads no socket and no tap.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fullbore_analysis::analysis::full_scale;
use fullbore_analysis::levels;
use fullbore_analysis::live::{Live, LiveBlock};
use fullbore_analysis::plan::{LineId, PlanError};
use fullbore_analysis::source::Error;
use fullbore_analysis::window::Window;
use fullbore_core::manifest::Format;
use fullbore_core::name::ScanName;
use fullbore_formats::samples::SampleLayout;
use fullbore_formats::vdif::Header;
use fullbore_linux::ring::TapBlock;
use fullbore_time::{Tai, frame_ns};
use serde::Serialize;

use super::message::Message;
use super::request::Checked;
use super::row::{self, Moment};

/// The interval of the headers that are shown.
const HEADERS: Duration = Duration::from_secs(1);

/// The bytes of a block that are analysed for a row, unless a transform needs more.
const USUAL_BYTES: u64 = 256 << 10;

/// The most names of channels that are told, and the most characters of each.
const MOST_NAMES: usize = 256;
const LONGEST_NAME: usize = 64;

/// What one client watches.
pub(super) struct Watcher {
    asked: Checked,
    described: Option<SampleLayout>,
    live: Live,
    /// What the client was told of the stream.
    told: Option<(ScanName, BTreeSet<u16>)>,
    header_told: Option<Instant>,
    /// The time of the first sample since the last row, and the blocks passed over.
    moment: Option<Moment>,
    skipped: u64,
}

/// The stream, as its client is told.
#[derive(Serialize)]
struct StreamJson<'a> {
    event: &'static str,
    stream: &'a str,
    scan: String,
    samples: String,
    bits: u32,
    complex: bool,
    channels: u32,
    channel_names: Vec<String>,
    threads: &'a BTreeSet<u16>,
    thread: u16,
    channel: usize,
    window: &'static str,
    /// The square of the largest level: 0 dB.
    full_scale: f64,
    /// The level of each state.
    levels: Vec<f64>,
}

/// The header of a packet.
#[derive(Serialize)]
struct HeaderJson {
    event: &'static str,
    format: &'static str,
    fields: Vec<(&'static str, String)>,
    bytes: String,
}

impl Watcher {
    /// A watcher of a stream, whose samples may be described.
    pub fn new(asked: Checked, described: Option<SampleLayout>) -> Self {
        let live = live(&asked, described.clone(), true);
        Self { asked, described, live, told: None, header_told: None, moment: None, skipped: 0 }
    }

    /// The bytes of a block that are enough for a row.
    pub fn block_bytes(&self) -> u32 {
        let enough = self.live.layout().map_or(USUAL_BYTES, |layout| {
            let segment = self.asked.plan.segment(layout) as u64 * layout.sample_bits() / 8;
            let threads = self.live.threads().count().max(1) as u64;
            // Four segments of each thread, wherever the block begins in one.
            USUAL_BYTES.max(segment.saturating_mul(5).saturating_mul(threads))
        });
        u32::try_from(enough).unwrap_or(u32::MAX)
    }

    /// Takes a block, and returns the messages that follow. `now` is the time of the host.
    pub fn take(&mut self, block: &TapBlock, now: Tai) -> Result<Vec<Message>, Error> {
        let Some(stream) = &block.stream else { return Ok(Vec::new()) };
        let geometry = block.stream_ref.geometry;
        let of_live = LiveBlock {
            format: &stream.format,
            frame_bytes: geometry.frame_bytes,
            position: (block.number - 1).saturating_mul(geometry.block_bytes.into()),
            bytes: &block.bytes,
        };
        match self.live.take(of_live, now) {
            Err(Error::Plan { source: PlanError::Levels { .. }, .. }) => {
                // Samples of more than 8 bits have too many states to be counted.
                self.live = live(&self.asked, self.described.clone(), false);
                self.live.take(of_live, now)?;
            }
            taken => taken?,
        }
        self.skipped = self.skipped.saturating_add(block.skipped);
        let first = first_header(&stream.format, geometry.frame_bytes, &block.bytes, now);
        let time = first.and_then(|header| time_of(&stream.format, &header));
        let (of_frames, skipped) = (time.is_some(), 0);
        self.moment.get_or_insert(Moment { time: time.unwrap_or(now), of_frames, skipped });
        let mut messages = Vec::new();
        messages.extend(self.stream(&stream.scan, stream.name.as_str()));
        if let Some(header) = first
            && self.header_told.is_none_or(|told| told.elapsed() >= HEADERS)
        {
            self.header_told = Some(Instant::now());
            messages.extend(header_json(&stream.format, &header, &block.bytes));
        }
        messages.extend(self.row());
        Ok(messages)
    }

    /// The row of what came since the last one.
    fn row(&mut self) -> Option<Message> {
        let line = self.line();
        let analysis = self.live.result()?;
        let moment = self.moment.take()?;
        let skipped = std::mem::take(&mut self.skipped);
        row::encode(&analysis, line, Moment { skipped, ..moment }).map(Message::Row)
    }

    /// The line, with its thread.
    fn line(&self) -> LineId {
        let LineId { thread, channel } = self.asked.line;
        LineId { thread: Some(thread.unwrap_or(self.live.first_thread())), channel }
    }

    /// What the client does not know yet of the stream.
    fn stream(&mut self, scan: &ScanName, stream: &str) -> Option<Message> {
        let layout = self.live.layout()?.clone();
        let threads: BTreeSet<u16> = self.live.threads().collect();
        let news = (scan.clone(), threads);
        if self.told.as_ref() == Some(&news) {
            return None;
        }
        let (line, window) = (self.line(), self.asked.plan.window);
        let threads = &news.1;
        let told =
            stream_message(&Described { scan, stream, layout: &layout, threads, line, window });
        self.told = Some(news);
        told
    }
}

/// What a client is told of a stream.
pub(super) struct Described<'a> {
    pub scan: &'a ScanName,
    pub stream: &'a str,
    pub layout: &'a SampleLayout,
    pub threads: &'a BTreeSet<u16>,
    pub line: LineId,
    pub window: Window,
}

/// The message that tells it.
pub(super) fn stream_message(of: &Described<'_>) -> Option<Message> {
    let Described { scan, stream, layout, threads, line, window } = of;
    let names = layout.channel_names.iter().take(MOST_NAMES);
    let told = StreamJson {
        event: "stream",
        stream,
        scan: scan.to_string(),
        samples: layout.to_string(),
        bits: layout.encoding.code.bits(),
        complex: layout.encoding.complex,
        channels: layout.channels,
        channel_names: names.map(|it| it.chars().take(LONGEST_NAME).collect()).collect(),
        threads,
        thread: line.thread.unwrap_or(0),
        channel: line.channel,
        window: window.name(),
        full_scale: full_scale(layout.encoding.code),
        levels: levels::values(layout.encoding),
    };
    serde_json::to_string(&told).ok().map(Message::Text)
}

fn live(asked: &Checked, described: Option<SampleLayout>, levels: bool) -> Live {
    let mut plan = asked.plan.clone();
    plan.wanted.levels = levels;
    Live::new(asked.stream.to_string(), Arc::new(plan), described).of_thread(asked.line)
}

/// The header of the first frame of a block.
fn first_header(format: &Format, frame_bytes: u32, bytes: &[u8], now: Tai) -> Option<Header> {
    let codec = format.codec(now)?;
    bytes.chunks_exact(frame_bytes.max(1) as usize).next().and_then(|frame| codec.read(frame))
}

/// The time of a frame, if its rate is known.
fn time_of(format: &Format, header: &Header) -> Option<Tai> {
    let Format::Frames { frames_per_second, .. } = format else { return None };
    let rate = frames_per_second.or_else(|| header.frames_per_second());
    let after = match header.frame_number() {
        0 => 0,
        number => frame_ns(number.into(), rate?),
    };
    Some(header.second().start().plus_ns(after))
}

fn header_json(format: &Format, header: &Header, bytes: &[u8]) -> Option<Message> {
    let Format::Frames { kind, .. } = format else { return None };
    let mut fields = vec![
        ("second", format!("{:.1}", header.second().start())),
        ("frame", header.frame_number().to_string()),
        ("thread", header.thread().to_string()),
        ("station", header.station_text()),
        ("valid", if header.invalid() { "no" } else { "yes" }.to_owned()),
    ];
    if kind.states_length() {
        fields.extend([
            ("frame bytes", header.frame_bytes().to_string()),
            ("channels", header.channels().to_string()),
            ("bits", header.bits_per_sample().to_string()),
            ("samples", if header.complex() { "complex" } else { "real" }.to_owned()),
            ("extension", if header.legacy() { "none".into() } else { header.edv().to_string() }),
        ]);
    }
    let shown = bytes.iter().take(kind.usual_header_bytes() as usize);
    let told = HeaderJson {
        event: "header",
        format: kind.title(),
        fields,
        bytes: shown.map(|byte| format!("{byte:02x}")).collect(),
    };
    serde_json::to_string(&told).ok().map(Message::Text)
}

#[cfg(test)]
mod tests {
    use fullbore_core::layout::Geometry;
    use fullbore_formats::framed::FrameKind;
    use fullbore_formats::vdif::Second;
    use fullbore_linux::ring::{StreamRef, TapStream};
    use serde_json::Value;
    use uuid::Uuid;

    use super::super::request::Request;
    use super::*;

    const FRAME: u32 = 1056;
    const SECOND: Second = Second(1_700_000_000);

    /// A block of VDIF frames of 8 bits whose samples are `sample(n)`.
    fn block(number: u64, frames: u32, sample: impl Fn(u64) -> u8) -> TapBlock {
        let geometry = Geometry::of_frames(FRAME, 1 << 20, 1 << 28).unwrap();
        let directory = String::new();
        let stream_ref = Arc::new(StreamRef { scan: Uuid::nil(), number: 1, directory, geometry });
        let kind = FrameKind::Vdif;
        let (frames_per_second, derived, threads) = (Some(1000), false, vec![]);
        let format = Format::Frames { kind, frames_per_second, derived, threads };
        let (scan, name) = ("s_a".parse().unwrap(), "46220".parse().unwrap());
        let mut bytes = Vec::new();
        for frame in 0..frames {
            let place = (number as u32 - 1) * frames + frame;
            let mut header = Header::default().with_frame_bytes(FRAME).with_bits_per_sample(8);
            header.set_time(SECOND, place);
            let mut one = vec![0; 32];
            header.write(&mut one).unwrap();
            let first = u64::from(place) * 1024;
            one.extend((0..1024).map(|n| sample(first + n)));
            bytes.extend(one);
        }
        let stream = Some(Arc::new(TapStream { scan, name, format, samples: None }));
        TapBlock { stream_ref, stream, number, skipped: number - 1, bytes }
    }

    fn watcher(request: &str) -> Watcher {
        Watcher::new(Request::read(request.as_bytes()).unwrap(), None)
    }

    /// A tone of a sixteenth of the sample rate, around the middle of the range.
    fn tone(n: u64) -> u8 {
        (128.0 + 100.0 * (std::f64::consts::TAU * n as f64 / 16.0).cos()).round() as u8
    }

    fn texts(messages: &[Message]) -> Vec<Value> {
        let text = |it: &Message| match it {
            Message::Text(text) => Some(serde_json::from_str(text).unwrap()),
            Message::Row(_) => None,
        };
        messages.iter().filter_map(text).collect()
    }

    #[test]
    fn a_tone_is_in_its_channel_at_its_level_and_at_the_time_of_the_frames() {
        let mut watcher = watcher(r#"{"stream":"46220","channels":64}"#);
        let messages = watcher.take(&block(2, 100, tone), Tai(0)).unwrap();
        let told = texts(&messages);
        assert_eq!((&told[0]["event"], &told[1]["event"]), (&"stream".into(), &"header".into()));
        assert_eq!(told[0]["threads"], serde_json::json!([0]));
        assert_eq!(told[0]["levels"].as_array().unwrap().len(), 256);
        assert_eq!(told[1]["fields"][1], serde_json::json!(["frame", "100"]));
        let Some(Message::Row(row)) = messages.last() else { panic!("{messages:?}") };
        let float = |at: usize| f64::from(f32::from_le_bytes(row[at..at + 4].try_into().unwrap()));
        let word = |at: usize| u32::from_le_bytes(row[at..at + 4].try_into().unwrap());
        let double = |at: usize| f64::from_le_bytes(row[at..at + 8].try_into().unwrap());
        assert_eq!((&row[..4], word(4)), (b"FBS1".as_slice(), 64));
        let time = i64::from_le_bytes(row[8..16].try_into().unwrap());
        let expected = SECOND.start().plus_ns(100_000_000).unix_ns();
        assert_eq!(i128::from(time), expected);
        assert_eq!((double(16), double(24)), (0.0, 8000.0), "1024 kHz, 64 channels");
        assert_eq!((word(52), row[62]), (1, 1 | 4), "a block was skipped; rate and time are known");
        let states = usize::from(u16::from_le_bytes([row[60], row[61]]));
        assert_eq!((states, row.len()), (256, HEAD + 2 * 4 * 256 + 64));
        let sum: f64 = (0..256).map(|state| float(64 + 4 * state)).sum();
        assert!((sum - 1.0).abs() < 1e-5);
        let values = &row[row.len() - 64..];
        assert_eq!(values.iter().position(|value| *value == 255), Some(8), "{values:?}");
        // The window spreads a tone over three channels: 2/3 of its power is in the middle one.
        let level = float(32) + 255.0 * float(36);
        let power = 10.0 * (100f64.powi(2) / 2.0 / 128f64.powi(2)).log10();
        assert!((level - (power + 10.0 * (2f64 / 3.0).log10())).abs() < 0.05, "{level} {power}");
        assert!((float(40) - power).abs() < 0.05);
        // The stream is described once.
        let again = watcher.take(&block(3, 100, tone), Tai(0)).unwrap();
        assert!(matches!(again[..], [Message::Row(_)]));
    }

    const HEAD: usize = row::HEAD_BYTES;

    #[test]
    fn a_stream_that_cannot_be_analysed_says_why() {
        let mut watcher = watcher(r#"{"stream":"46220","channel":1}"#);
        let error = watcher.take(&block(1, 10, tone), Tai(0)).unwrap_err();
        assert!(error.to_string().contains("there is no channel 1"), "{error}");
    }

    #[test]
    fn a_row_needs_no_more_of_a_block_than_a_few_transforms_of_each_thread() {
        let mut watcher = watcher(r#"{"stream":"46220","channels":8192}"#);
        assert_eq!(u64::from(watcher.block_bytes()), USUAL_BYTES);
        watcher.take(&block(1, 10, tone), Tai(0)).unwrap();
        assert_eq!(u64::from(watcher.block_bytes()), USUAL_BYTES);
        watcher.asked.plan.channels = 65_536;
        assert_eq!(watcher.block_bytes(), 5 * 131_072);
    }
}
