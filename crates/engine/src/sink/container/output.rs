//! The outputs of a scan: blocks that wait for a property of their stream, and the file that they go into.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use fullbore_capture::StreamMetrics;
use fullbore_containers::{Framing, Origin, Purpose, SampleFile, SampleOptions};
use fullbore_core::layout::Geometry;
use fullbore_core::manifest::{Fill, Format};
use fullbore_core::name::Name;
use fullbore_formats::packets::PacketKind;
use fullbore_formats::samples::SampleLayout;
use fullbore_formats::vita49::Prologue;
use fullbore_formats::vita49::history::History;
use fullbore_formats::vita49::index::is_name_of_context;
use fullbore_formats::vita49::listing::ListedChange;
use fullbore_hdf5::{self as hdf5, About, Existing, Options, StreamFile, is_there};
use fullbore_linux::ring::{FullBlock, StreamRef};
use fullbore_time::{Tai, frame_ns};
use uuid::Uuid;

use super::file::{ContainerError, ContainerFile, Samples, fill_of, samples_of};
use super::files::{ContainerConfig, ContainerFormat};
use super::thread::{EndOfScan, Ended, Settled};

/// The longest time that a block waits for the frame rate, from which the times of its frames follow, or for the
/// settings of a PandA, with which its file begins.
const PROPERTIES_COME: Duration = Duration::from_secs(2);

/// The longest time that a block of packets waits for the context that tells what its samples are.
const CONTEXT_COMES: Duration = Duration::from_secs(10);

/// The same once the recording ends.
const CONTEXT_COMES_AT_END: Duration = Duration::from_secs(1);

/// The number of alternative names that are tried.
const ALTERNATIVES: u32 = 1000;

/// The description that a file begins with.
#[derive(Debug)]
pub struct Description {
    /// The place in the manifest.
    pub number: u16,
    /// The file.
    pub path: PathBuf,
    /// The scan's name.
    pub scan: String,
    /// The stream's name.
    pub name: Name,
    /// The format of its frames.
    pub format: Format,
    /// The division of its bytes.
    pub geometry: Geometry,
    /// The replacement for missing frames.
    pub fill: Fill,
    /// The samples, as its endpoint describes them.
    pub samples: Option<SampleLayout>,
    /// Program and version that record.
    pub software: String,
    /// The host of the recording.
    pub host: String,
    /// The endpoint.
    pub source: String,
    /// The file that will show or list all streams, if there is one.
    pub list: Option<PathBuf>,
    /// The metrics.
    pub metrics: Arc<StreamMetrics>,
    /// True if the settings of the PandA are in the format, or will never be.
    pub has_settings: bool,
}

/// A stream that is in another file than intended.
#[derive(Clone, Debug)]
pub struct Alternate {
    /// The intended file.
    pub meant: PathBuf,
    /// The file that takes it.
    pub file: PathBuf,
    /// The reason.
    pub why: String,
}

/// The outputs of a scan, and what the recorder has asked for.
pub(super) struct ScanOutput {
    pub uuid: Uuid,
    /// The number of the scan, counted from 1.
    pub number: u64,
    pub streams: BTreeMap<u16, StreamOutput>,
    /// What context packets have said of the samples.
    pub context: History,
    /// Since when blocks no longer wait for a time.
    pub hurried: Option<Instant>,
    pub settle: Option<Sender<BTreeMap<u16, Settled>>>,
    pub end: Option<(EndOfScan, Sender<Ended>)>,
}

/// A stream and its output file.
#[derive(Default)]
pub(super) struct StreamOutput {
    pub description: Option<Description>,
    pub file: Option<Box<dyn ContainerFile>>,
    /// Blocks that cannot be written yet, each with its queue and its arrival time.
    pub waiting: VecDeque<(usize, FullBlock, Instant)>,
    pub waiting_bytes: u64,
    /// Blocks that are written but not visible to readers.
    pub unseen: Vec<Unseen>,
    /// The end of the stream, while it waits for the writes before it.
    pub finishing: Option<(Arc<StreamRef>, Instant)>,
    /// The latest block with a time.
    timed: Option<(i64, Tai)>,
    /// Set if the stream is in another file than intended.
    pub alternate: Option<Alternate>,
}

/// A block that is not visible to readers.
pub(super) struct Unseen {
    pub stream_ref: Arc<StreamRef>,
    pub sequence: u64,
    pub bytes: u32,
    /// The block and its queue, unless it was returned when its samples had been copied.
    pub held: Option<(usize, FullBlock)>,
}

impl ScanOutput {
    pub fn new(uuid: Uuid, number: u64) -> Self {
        let (streams, hurried, settle, end) = (BTreeMap::new(), None, None, None);
        let context = History::default();
        ScanOutput { uuid, number, streams, context, hurried, settle, end }
    }

    /// From now on, blocks no longer wait for a time.
    pub fn hurry(&mut self) {
        self.hurried.get_or_insert_with(Instant::now);
    }

    /// The numbers of its streams; those of context come before others, which need them.
    pub fn numbers(&self) -> Vec<u16> {
        let of_kind = |context| {
            let streams = self.streams.iter().filter(move |(_, out)| out.is_context() == context);
            streams.map(|(number, _)| *number)
        };
        of_kind(true).chain(of_kind(false)).collect()
    }

    /// Takes a block of context packets, and notes their changes in the files.
    pub fn take_context(&mut self, filled: &FullBlock) {
        let known = self.context.changes().len();
        self.context.feed(&filled.block[..filled.bytes as usize]);
        for change in self.context.changes()[known..].iter().map(ListedChange::from) {
            let files = self.streams.values_mut().filter_map(|out| out.file.as_mut());
            files.for_each(|file| file.tune(&change));
        }
    }
}

impl StreamOutput {
    /// True if it waits neither for a write nor for a flush.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.unseen.is_empty() && self.finishing.is_none()
    }

    /// True for the samples of a PandA. They are copied into columns, so that their blocks are free at once, and the
    /// sender is not held up until the next flush.
    pub fn is_of_panda(&self) -> bool {
        let format = self.description.as_ref().map(|description| &description.format);
        matches!(format, Some(Format::Panda { .. }))
    }

    /// True for a stream of context packets, which have no samples.
    pub fn is_context(&self) -> bool {
        self.description.as_ref().is_some_and(|description| {
            description.is_of_vita49() && is_name_of_context(description.name.as_str())
        })
    }

    /// True for a stream that is known to have frames or bytes.
    pub fn is_of_frames(&self) -> bool {
        self.description.is_some() && !self.is_of_panda()
    }

    /// True if its first waiting block can be written, or its end be carried out: the properties that its file begins
    /// with, and the times of its frames, are known.
    pub fn is_ready(
        &self,
        hurried: Option<Instant>,
        most_waiting: u64,
        context: Option<&History>,
    ) -> bool {
        let Some(description) = &self.description else { return false };
        let block = self.waiting.front().map(|(_, filled, since)| (Some(filled), since));
        let end = self.finishing.as_ref().map(|(_, since)| (None, since));
        let Some((block, since)) = block.or(end) else { return false };
        let late = since.elapsed() >= PROPERTIES_COME;
        if self.is_of_panda() {
            return self.file.is_some() || description.has_settings || late;
        }
        if let (Some(context), Some(block)) = (context, block)
            && self.file.is_none()
            && description.is_of_vita49()
        {
            // The last context may come behind the last data: at the end, the wait begins anew.
            let waits = description.waits_for_context(block, context, hurried.is_some());
            let waited = hurried.unwrap_or(*since).elapsed();
            return waited >= waits || self.waiting_bytes >= most_waiting;
        }
        let told = !description.follows_a_rate()
            || (description.rate().is_some()
                && (block.is_some_and(|filled| filled.time.is_some())
                    || self.timed_next().is_some()));
        told || hurried.is_some() || late || self.waiting_bytes >= most_waiting
    }

    /// Takes all blocks that are not visible to readers, each with its queue.
    pub fn take_blocks(&mut self) -> Vec<(usize, FullBlock)> {
        self.waiting_bytes = 0;
        let held = self.unseen.drain(..).filter_map(|it| it.held);
        held.chain(self.waiting.drain(..).map(|(queue, filled, _)| (queue, filled))).collect()
    }

    /// Returns the next waiting block with a time.
    fn timed_next(&self) -> Option<(i64, Tai)> {
        self.waiting.iter().find_map(|(_, filled, _)| Some((filled.first, filled.time?)))
    }

    /// Creates the file of a PandA, or, with its first block, of any stream, unless it exists. Returns where it is if it
    /// is not the intended one.
    pub fn make(
        &mut self,
        config: &ContainerConfig,
        scan: u64,
        first: Option<&FullBlock>,
        context: &History,
    ) -> Result<Option<Alternate>, ContainerError> {
        if self.file.is_some() {
            return Ok(None);
        }
        match &config.format {
            ContainerFormat::Hdf5(options) => self.make_hdf5(config, options, scan, first),
            ContainerFormat::Samples { options, .. } => {
                let Some(description) = self.description.as_ref() else { return Ok(None) };
                let Some(first) = first else { return Ok(None) };
                let clock = self.clock_of(description, first);
                self.file =
                    Some(Box::new(description.create_samples(options, first, &clock, context)?));
                Ok(None)
            }
        }
    }

    fn make_hdf5(
        &mut self,
        config: &ContainerConfig,
        options: &Options,
        scan: u64,
        first: Option<&FullBlock>,
    ) -> Result<Option<Alternate>, ContainerError> {
        let wanted = first.is_some() || self.is_of_panda();
        let Some(description) = self.description.as_ref().filter(|_| wanted) else {
            return Ok(None);
        };
        let mut options = config.options_of(options, &description.path, scan);
        if let Some(rate) = first.and_then(|block| description.sample_rate(block, options.flush)) {
            options.rows_per_second.get_or_insert(rate);
        }
        let error = match description.create(&description.path, &options) {
            Ok(file) => {
                self.file = Some(Box::new(file));
                return Ok(None);
            }
            Err(error) => error,
        };
        // An existing file remains; a file that could not be created is removed.
        options.existing = Existing::Refuse;
        let may = config.alternate_path && self.is_of_panda() && is_there(&description.path);
        let made = may
            .then(|| alternative(&description.path, |path| description.create(path, &options)))
            .flatten();
        let Some(file) = made else { return Err(error.into()) };
        let (meant, path) = (description.path.clone(), file.path().to_owned());
        self.alternate = Some(Alternate { meant, file: path, why: hdf5::in_full(&error) });
        self.file = Some(Box::new(file));
        Ok(self.alternate.clone())
    }

    /// Writes a block into the file.
    pub fn write(&mut self, filled: &FullBlock) -> Result<(), ContainerError> {
        let Some(description) = &self.description else { return Ok(()) };
        let clock = self.clock_of(description, filled);
        self.timed = filled.time.map(|time| (filled.first, time)).or(self.timed);
        let Some(file) = &mut self.file else { return Ok(()) };
        file.append(filled, clock.of_block, &mut |number| {
            clock.time_of(filled.first + number as i64).unwrap_or(clock.of_block)
        })
    }

    /// The clock of a block: its own time, or that of the next or the last block which has one.
    fn clock_of(&self, description: &Description, filled: &FullBlock) -> BlockClock {
        let own = filled.time.map(|time| (filled.first, time));
        let base = own.or_else(|| self.timed_next()).or(self.timed);
        let placed = base.zip(description.rate().filter(|_| description.follows_a_rate()));
        let mut clock = BlockClock { placed, of_block: filled.seen };
        clock.of_block = filled.time.or_else(|| clock.time_of(filled.first)).unwrap_or(filled.seen);
        clock
    }
}

/// The times of the frames of a block.
struct BlockClock {
    /// A frame with its time, the rate of its thread and the number of threads, if times follow from them.
    placed: Option<((i64, Tai), (u64, i64))>,
    /// The time of the first frame.
    of_block: Tai,
}

impl BlockClock {
    fn time_of(&self, index: i64) -> Option<Tai> {
        self.placed.map(|(base, rate)| time_of(index, base, rate))
    }
}

impl Description {
    fn create_samples(
        &self,
        options: &SampleOptions,
        first: &FullBlock,
        clock: &BlockClock,
        context: &History,
    ) -> Result<Samples, ContainerError> {
        let context = context.listing().changes;
        let mut format = self.format.clone();
        if let Format::Frames { frames_per_second, .. } = &mut format {
            *frames_per_second = self.rate().map(|(rate, _)| rate);
        }
        // Gaps of blocks that were lost before this one came with it.
        let begins = first.gaps.iter().map(|gap| gap.first).fold(first.first, i64::min);
        let has_places = self.fill != Fill::Omit;
        let purpose = Purpose {
            scan: &self.scan,
            stream: self.name.as_str(),
            framing: Framing {
                format: &format,
                frame_bytes: self.geometry.frame_bytes,
                has_places,
                samples: self.samples.as_ref(),
                context: &context,
                first: has_places.then_some(begins),
            },
            start: clock.time_of(begins).unwrap_or(clock.of_block),
            origin: Origin {
                software: &self.software,
                host: &self.host,
                source: &self.source,
                list: self.list.as_deref(),
            },
        };
        let fill = fill_of(first);
        let is_fill = |index| fill.contains(index);
        let first = samples_of(first, &is_fill);
        Ok(Samples::new(SampleFile::create(&self.path, options, &purpose, &first)?))
    }

    fn create(&self, path: &Path, options: &Options) -> Result<StreamFile, hdf5::Error> {
        let about = About {
            scan: &self.scan,
            stream: self.name.as_str(),
            format: &self.format,
            frame_bytes: self.geometry.frame_bytes,
        };
        StreamFile::create(path, &about, options)
    }

    fn is_of_vita49(&self) -> bool {
        self.format == Format::Packets { kind: PacketKind::Vita49 }
    }

    /// The time that the first block of packets waits for the context that its file begins with.
    fn waits_for_context(&self, first: &FullBlock, context: &History, hurried: bool) -> Duration {
        let id = Prologue::read(&first.block[..first.bytes as usize]).ok().and_then(|it| it.stream);
        let mut own = context.changes().iter().filter(|change| Some(change.stream) == id);
        let is_known = match &self.samples {
            Some(samples) => {
                samples.sample_rate.is_some() || own.any(|it| it.context.sample_rate.is_some())
            }
            None => own.any(|it| it.context.payload_format.is_some()),
        };
        match (is_known || is_name_of_context(self.name.as_str()), hurried) {
            (true, _) => Duration::ZERO,
            (false, true) => CONTEXT_COMES_AT_END,
            (false, false) if self.samples.is_some() => PROPERTIES_COME,
            (false, false) => CONTEXT_COMES,
        }
    }

    /// True if frames are indexed, so that their times follow from the rate.
    fn follows_a_rate(&self) -> bool {
        self.fill != Fill::Omit && self.format.is_frames()
    }

    /// Returns the frames per second of each thread, as far as known, and the number of threads interleaved by frame.
    fn rate(&self) -> Option<(u64, i64)> {
        let Format::Frames { frames_per_second, threads, .. } = &self.format else { return None };
        let learnt = self.metrics.frames_per_second.load(Relaxed);
        let rate = frames_per_second.or((learnt > 0).then_some(learnt)).filter(|&rate| rate > 0)?;
        Some((rate, threads.len().max(1) as i64))
    }

    /// Returns the rate at which the first samples of a PandA came. It determines the size of HDF5 chunks. Samples that
    /// arrive at once may be all there are: one chunk then holds them.
    fn sample_rate(&self, first: &FullBlock, flush: Duration) -> Option<f64> {
        let Format::Panda { .. } = self.format else { return None };
        let came = self.metrics.frames_per_second.load(Relaxed) as f64;
        let at_most = f64::from(first.frames) / (flush / 8).as_secs_f64();
        Some(if came > 0.0 { came.min(at_most) } else { at_most })
    }
}

/// Computes the time of a frame from that of another one.
fn time_of(index: i64, (first, time): (i64, Tai), (rate, threads): (u64, i64)) -> Tai {
    let slots = index.div_euclid(threads).saturating_sub(first.div_euclid(threads));
    let ns = frame_ns(slots.unsigned_abs(), rate);
    time.plus_ns(if slots < 0 { -ns } else { ns })
}

/// Creates the first file beside `path` whose name is free: `a-7.h5` gives `a-7.1.h5`.
fn alternative<T>(path: &Path, make: impl Fn(&Path) -> Result<T, hdf5::Error>) -> Option<T> {
    let stem = path.file_stem()?.to_string_lossy();
    let ending = path.extension().map_or(String::new(), |it| format!(".{}", it.to_string_lossy()));
    for number in 1..=ALTERNATIVES {
        match make(&path.with_file_name(format!("{stem}.{number}{ending}"))) {
            Err(hdf5::Error::Exists { .. }) => {}
            other => return other.ok(),
        }
    }
    None
}
