//! Analyses of files and of stored streams.

use std::borrow::Cow;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fullbore_care::context;
use fullbore_core::manifest::{Format, State};
use fullbore_formats::framed::{FrameCodec, FrameKind};
use fullbore_formats::hint::Hint;
use fullbore_formats::packets::PacketKind;
use fullbore_formats::samples::{SampleLayout, SampleRate};
use fullbore_formats::vdif::Header;
use fullbore_formats::vita49::listing::ListedChange;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_replay::{FileError, FrameFile, FrameSource, SourceError, StoredError, StoredFrames};
use fullbore_store::read::Settings;
use fullbore_store::reader::{Scan, StoredStream};
use fullbore_time::Tai;

use crate::analysis::Analysis;
use crate::batch::Batcher;
use crate::frames::{SampleFrames, SamplesError};
use crate::parallel::{Dispatcher, Workers};
use crate::plan::{LineId, Plan, PlanError};

/// An analysis that failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The stream cannot be read.
    #[error(transparent)]
    Stored(#[from] StoredError),
    /// Reading failed.
    #[error("{name}: reading it")]
    Read {
        /// The file or stream.
        name: String,
        /// The error.
        source: SourceError,
    },
    /// The samples cannot be decoded.
    #[error("{name}: {source}")]
    Samples {
        /// The file or stream.
        name: String,
        /// The error.
        source: SamplesError,
    },
    /// The stream has no samples of the kind.
    #[error("{name}: {why}")]
    Refused {
        /// The file or stream.
        name: String,
        /// The reason.
        why: &'static str,
    },
    /// The plan cannot be carried out.
    #[error("{name}: {source}")]
    Plan {
        /// The file or stream.
        name: String,
        /// The error.
        source: PlanError,
    },
    /// Threads could not be started.
    #[error("starting threads that compute")]
    Threads(#[source] std::io::Error),
    /// There is no whole segment.
    #[error("{name}: it has no {samples} samples in a row in this range")]
    Nothing {
        /// The file or stream.
        name: String,
        /// Samples of a segment.
        samples: usize,
    },
}

impl Hint for Error {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Error::Samples { source: SamplesError::Undescribed, .. } => Some(
                "its endpoint can describe them when it is recorded: samples=ci16_le&channels=2&sample_rate=1MHz".into(),
            ),
            Error::Samples { source: SamplesError::Packets(_), .. } => Some(
                "its endpoint can describe them when it is recorded: samples=ci16_be&sample_rate=100MHz".into(),
            ),
            Error::Plan { source, .. } => source.hint(),
            Error::Nothing { .. } => Some("use fewer --channels, or another --start and --length".into()),
            _ => None,
        }
    }
}

/// The part of a stream to analyse. Whole frames are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// The start. `None`: the first frame.
    pub start: Option<Start>,
    /// The length. `None`: to the end.
    pub length: Option<Duration>,
}

/// The start of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// A time.
    At(Tai),
    /// This time after the first frame.
    After(Duration),
}

/// An input: frames, and what is known of them.
pub struct Input<'a> {
    /// Its name in messages.
    pub name: String,
    source: Box<dyn FrameSource + 'a>,
    described: Option<SampleLayout>,
    /// What context packets say of the samples, if frames are packets of VITA-49.
    context: Option<Vec<ListedChange>>,
    frames_per_second: Option<u64>,
    sample_rate: Option<SampleRate>,
    range: Range,
    only: Option<LineId>,
}

impl<'a> Input<'a> {
    /// A file of VDIF frames. `sample_rate` is that of each channel, if the file does not show it.
    pub fn file(path: &Path, sample_rate: Option<SampleRate>, range: Range) -> Result<Self, Error> {
        let mut start = [0; Header::BYTES];
        let header = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut start));
        let header = header.ok().and_then(|()| Header::read(&start).ok());
        let file = FrameFile::open(path, header.and_then(|it| rate_of(&it, sample_rate)), None)?;
        let (name, described, context) = (path.display().to_string(), None, None);
        let frames_per_second = file.frames_per_second();
        let source = Box::new(file);
        let only = None;
        Ok(Self { name, source, described, context, frames_per_second, sample_rate, range, only })
    }

    /// The same, with the sums of the thread of this line alone, and with sums that take little memory.
    pub fn of_thread(self, line: LineId) -> Self {
        Self { only: Some(line), ..self }
    }

    /// A stream of a scan.
    pub fn stored(
        scan: &'a Scan,
        stream: &'a StoredStream,
        sample_rate: Option<SampleRate>,
        range: Range,
    ) -> Result<Self, Error> {
        let name = format!("{}/{}", scan.manifest.scan, stream.name);
        let refuse = |why| Err(Error::Refused { name: name.clone(), why });
        if scan.manifest.state == State::Recording {
            return refuse("it is not sealed: its recorder is at work, or has died");
        }
        let frames_per_second = match &stream.format {
            Format::Panda { .. } => {
                return refuse("samples of a PandA are columns; `convert` writes them to HDF5");
            }
            Format::Packets { kind: PacketKind::Spead | PacketKind::Rtp | PacketKind::Gvsp } => {
                return refuse("packets of SPEAD, RTP or GVSP are not decoded");
            }
            Format::Packets { kind: PacketKind::Vita49 } | Format::Raw => None,
            Format::Frames { frames_per_second, .. } => *frames_per_second,
        };
        let begin = stream.blocks.first().map(|first| stream.time_of_block(&first.block));
        let from = match range.start {
            Some(Start::At(time)) => Some(time),
            Some(Start::After(after)) => begin.map(|begin| begin.plus_ns(ns(after))),
            None => None,
        };
        let to = range.length.and_then(|length| Some(from.or(begin)?.plus_ns(ns(length))));
        let frames = StoredFrames::open(scan, stream, from, to, Settings::default())?;
        let told = scan.manifest.streams.iter().find(|it| it.name.as_str() == stream.name);
        let vdif = matches!(stream.format, Format::Frames { kind: FrameKind::Vdif, .. });
        let described = told.and_then(|told| told.samples.clone()).filter(|_| !vdif);
        let range = Range { start: from.map(Start::At), ..range };
        let source = Box::new(frames);
        let packets = matches!(stream.format, Format::Packets { .. });
        let context = packets.then(|| context::changes(scan));
        let only = None;
        Ok(Self { name, source, described, context, frames_per_second, sample_rate, range, only })
    }

    /// Analyses the input on this many threads, until its end or a stop request.
    pub fn analyse(
        self,
        plan: &Arc<Plan>,
        threads: usize,
        stop: &StopHandle,
    ) -> Result<Analysis, Error> {
        self.analyse_by(&|_| plan.clone(), threads, stop)
    }

    /// The same, by a plan that depends on what the samples are.
    pub fn analyse_by(
        mut self,
        plan: &dyn Fn(&SampleLayout) -> Arc<Plan>,
        threads: usize,
        stop: &StopHandle,
    ) -> Result<Analysis, Error> {
        let mut running: Option<Running> = None;
        let mut first_of_all = None;
        'runs: while !stop.is_requested() {
            let more = self.source.advance();
            let more = more.map_err(|source| Error::Read { name: self.name.clone(), source })?;
            if !more {
                break;
            }
            for number in 0..self.source.count() {
                let frame = self.source.frame(number);
                first_of_all = first_of_all.or(frame.time);
                let (start, end) = self.range.edges(first_of_all);
                match frame.time {
                    Some(time) if start.is_some_and(|start| time < start) => continue,
                    Some(time) if end.is_some_and(|end| time >= end) => break 'runs,
                    None if self.range != Range::default() => {
                        let why = "its frames have no time, so no range can be chosen: give --sample-rate";
                        return Err(Error::Refused { name: self.name.clone(), why });
                    }
                    _ => {}
                }
                let name = || self.name.clone();
                if running.is_none() {
                    // What the samples are is read from a frame that was received.
                    if frame.fill {
                        continue;
                    }
                    running = Some(self.begin(&frame, plan, threads)?);
                }
                let running = running.as_mut().expect("made above");
                let has_place = frame.dated.is_some() || self.context.is_some();
                if !has_place && !self.source.losses().is_empty() {
                    let why = "a block cannot be read, and the samples behind it have no place of their own";
                    return Err(Error::Refused { name: name(), why });
                }
                let taken = running.take(frame.bytes, frame.fill, frame.dated);
                taken.map_err(|source| Error::Samples { name: name(), source })?;
            }
        }
        let mut losses = self.source.losses().to_vec();
        if stop.is_requested() {
            losses.push("it was stopped before its end".to_owned());
        }
        let segment = running.as_ref().map_or(0, |running| running.segment);
        let nothing = Error::Nothing { name: self.name.clone(), samples: segment };
        let Some(running) = running else { return Err(nothing) };
        let analysis = running.finish(&self.name, losses)?;
        if analysis.segments == 0 {
            return Err(nothing);
        }
        Ok(analysis)
    }

    fn begin(
        &self,
        frame: &fullbore_replay::Frame<'_>,
        plan: &dyn Fn(&SampleLayout) -> Arc<Plan>,
        threads: usize,
    ) -> Result<Running, Error> {
        let codec = frame.dated;
        let described = self.described.clone();
        let frames = match &self.context {
            Some(context) => SampleFrames::of_packets(described.as_ref(), context, frame.bytes),
            None => SampleFrames::of(described, codec, self.frames_per_second, frame.bytes),
        };
        let frames = frames.map_err(|source| Error::Samples { name: self.name.clone(), source })?;
        let frames = frames.with_rate(self.sample_rate, frame.bytes, codec);
        let layout = Arc::new(frames.layout.clone());
        let plan = plan(&layout);
        let refused = |source| Error::Plan { name: self.name.clone(), source };
        plan.check(&layout).map_err(refused)?;
        if let Some(line) = self.only {
            plan.check_line(&layout, line).map_err(refused)?;
        }
        let workers = Workers::start(&plan, &layout, threads).map_err(Error::Threads)?;
        let segment = plan.segment(&layout);
        Ok(Running {
            batcher: Batcher::new(segment, layout.sample_bits()),
            dispatcher: Dispatcher::new(workers, plan.wanted.cross),
            plan,
            layout,
            segment,
            frames,
            start: frame.time,
            only: self.only,
        })
    }
}

impl Range {
    /// The first and the last time, if the first frame has this time.
    fn edges(&self, first: Option<Tai>) -> (Option<Tai>, Option<Tai>) {
        let start = match self.start {
            Some(Start::At(time)) => Some(time),
            Some(Start::After(after)) => first.map(|first| first.plus_ns(ns(after))),
            None => None,
        };
        let end = self.length.and_then(|length| Some(start.or(first)?.plus_ns(ns(length))));
        (start, end)
    }
}

fn ns(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX / 4)
}

/// An analysis that runs.
struct Running {
    plan: Arc<Plan>,
    layout: Arc<SampleLayout>,
    segment: usize,
    frames: SampleFrames,
    batcher: Batcher,
    dispatcher: Dispatcher,
    start: Option<Tai>,
    only: Option<LineId>,
}

impl Running {
    fn take(
        &mut self,
        frame: &[u8],
        fill: bool,
        codec: Option<FrameCodec>,
    ) -> Result<(), SamplesError> {
        let Some(placed) = self.frames.place(frame, fill, codec)? else { return Ok(()) };
        let first = self.frames.first_thread();
        let only = self.only.map(|line| line.thread.unwrap_or(first));
        if only.is_some_and(|only| only != placed.thread) {
            return Ok(());
        }
        let mut complete = Vec::new();
        let workers = self.dispatcher.workers();
        let payload = &frame[placed.payload];
        self.batcher.take(placed.thread, placed.at, payload, &mut || workers.spare(), &mut |it| {
            complete.push(it);
        });
        complete.into_iter().for_each(|batch| self.dispatcher.give(batch, first));
        Ok(())
    }

    fn finish(mut self, name: &str, losses: Vec<String>) -> Result<Analysis, Error> {
        let first = self.frames.first_thread();
        let mut rest = Vec::new();
        self.batcher.finish(&mut |batch| rest.push(batch));
        rest.into_iter().for_each(|batch| self.dispatcher.give(batch, first));
        let sums = self.dispatcher.finish();
        let sums = sums.map_err(|source| Error::Plan { name: name.to_owned(), source })?;
        let extent = self.frames.extent() / self.batcher.segment_bytes().max(1) as u64;
        let (plan, layout) = (self.plan, self.layout);
        let frames_left_out = self.frames.left_out();
        Ok(Analysis::new(name, plan, layout, self.start, sums, extent)
            .with_losses(frames_left_out, losses))
    }
}

/// Frames per second of each thread, by the rate of samples or by the header.
fn rate_of(header: &Header, sample_rate: Option<SampleRate>) -> Option<u64> {
    let samples = SampleLayout::of_vdif(header, None)?.samples_in(header.payload_bytes().into())?;
    let given = sample_rate.map(|rate| (rate.hertz() / samples.max(1) as f64).round() as u64);
    given.filter(|rate| *rate > 0).or_else(|| header.frames_per_second())
}

/// A file that may be a path on the command line.
pub fn is_file(text: &str) -> Option<PathBuf> {
    let path = PathBuf::from(text.strip_prefix("file:").unwrap_or(text));
    (text.starts_with("file:") || path.is_file()).then_some(path)
}
