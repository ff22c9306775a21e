//! A PandA recorded into HDF5 files: the capture thread, the file thread, and who listens to both.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use fullbore_core::account::Verdict;
use fullbore_core::completeness::Completeness;
use fullbore_core::format::panda::{Field, PandaSource, Tally};
use fullbore_core::gap::Gap;
use fullbore_core::layout::BLOCK_BYTES;
use fullbore_core::name::Name;
use fullbore_core::time::Tai;
use fullbore_core::units::ByteSize;
use serde::Serialize;

use super::capture::{Device, Ended, Happening, PATIENCE, Panda, Settings, Source};
use super::live::{FileNews, FileOutlet, Files, Finished};
use super::several::Series;
use crate::recorder::Control;
use crate::ring::Pool;
use crate::sink::hdf5::{self, Existing};
use crate::source::StreamGauge;
use crate::store::file_system;
use crate::sys::memory::Region;

/// Block memory if nothing is said: two seconds at the rate of a PandA's link.
pub const POOL_BYTES: u64 = 256 << 20;

/// The least block memory: the largest frame of today's servers, the one before it, and what is written.
pub const LEAST_POOL_BYTES: u64 = 32 << 20;

/// Time between two progress events.
const PROGRESS: Duration = Duration::from_millis(250);

/// What is to be recorded.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Which PandA.
    pub source: PandaSource,
    /// Into which files.
    pub files: Files,
    /// So many acquisitions; `None`: until a stop.
    pub acquisitions: Option<u64>,
    /// Arm it at the beginning, and after each acquisition.
    pub arm: bool,
    /// How long a connection that was lost is tried again.
    pub reconnect: Duration,
    /// Block memory.
    pub buffer: Option<ByteSize>,
}

/// A recording that could not be made, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Less block memory than a frame needs.
    #[error("{given} of block memory were asked for; {least} are needed at least")]
    SmallBuffer {
        /// Asked for.
        given: ByteSize,
        /// The least.
        least: ByteSize,
    },
    /// The system gives no memory.
    #[error("mapping {wanted} of block memory: {source}")]
    Memory {
        /// How much.
        wanted: ByteSize,
        /// Why not.
        source: io::Error,
    },
    /// A file that was there before.
    #[error("{} is there already", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// A folder that is not there.
    #[error("{} is no directory, so no file can be made in it", path.display())]
    NoFolder {
        /// The folder.
        path: PathBuf,
    },
    /// Two PandAs of one name.
    #[error("two PandAs are named `{name}`")]
    SameName {
        /// The name.
        name: Name,
    },
    /// The PandA.
    #[error(transparent)]
    Panda(#[from] super::Error),
    /// The file: what was good is in it.
    #[error("{}", hdf5::in_full(error))]
    File {
        /// What happened.
        error: Arc<hdf5::Error>,
    },
    /// A thread.
    #[error("starting a thread: {0}")]
    Thread(#[source] io::Error),
}

impl RecordError {
    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            RecordError::SmallBuffer { .. } => Some("give more with --buffer"),
            RecordError::Memory { .. } => Some("ask for less with --buffer"),
            RecordError::Exists { .. } => {
                Some("give another name, or say --existing append or --existing overwrite")
            }
            RecordError::SameName { .. } => Some("tell them apart with name=… in the endpoint"),
            RecordError::Panda(error) => error.hint(),
            RecordError::File { error } => error.hint(),
            _ => None,
        }
    }
}

/// What happens while a PandA is recorded.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case", tag = "event")]
pub enum Event {
    /// The data port has accepted us.
    Connected {
        /// The PandA.
        host: String,
        /// The so-manieth connection.
        connection: u64,
        /// Block memory.
        pool_bytes: u64,
    },
    /// Something that should be known before it begins.
    Warning {
        /// What.
        text: String,
    },
    /// The PandA is armed.
    Armed,
    /// An acquisition has begun, and its file.
    Began {
        /// Counted from 1.
        number: u64,
        /// The file.
        file: PathBuf,
        /// When it was armed, by the PandA.
        arm_time: Option<Tai>,
        /// Samples that went before.
        missed: u64,
        /// Bytes of a sample.
        sample_bytes: u32,
        /// Its columns.
        fields: Vec<Field>,
    },
    /// The acquisition goes on over a new connection.
    Rejoined {
        /// Which one.
        number: u64,
        /// Samples between.
        gap: u64,
    },
    /// How it stands.
    Progress(Progress),
    /// The connection was lost.
    Lost {
        /// Why.
        why: String,
    },
    /// Nothing came of what was armed: it began and ended while there was no connection, or was disarmed first.
    Unseen {
        /// Samples that the PandA took of it, if it could be asked.
        samples: Option<u64>,
    },
    /// What was armed could not be disarmed.
    StaysArmed {
        /// Why not.
        why: String,
    },
    /// An end was asked for before all acquisitions had come.
    Short {
        /// Those that did, whole or in part.
        acquisitions: u64,
        /// Those that were asked for, if there was to be an end to them.
        wanted: Option<u64>,
    },
    /// An acquisition goes into another file than was meant, because that one cannot take it.
    Beside {
        /// The acquisition.
        number: u64,
        /// The file that was meant, which stays as it is.
        meant: PathBuf,
        /// The file that takes it.
        file: PathBuf,
        /// Why.
        why: String,
    },
    /// An acquisition has ended.
    Ended(Box<Recorded>),
}

/// How a recording stands.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Progress {
    /// Which acquisition.
    pub number: u64,
    /// Samples certified in it.
    pub samples: u64,
    /// Of those, visible to readers.
    pub visible: u64,
    /// Samples a second.
    pub sample_rate: f64,
    /// Bytes a second.
    pub byte_rate: f64,
    /// Samples missing.
    pub missing: u64,
    /// Blocks in use, the most ever in use, and all.
    pub used_blocks: u64,
    /// The most ever in use.
    pub high_water: u64,
    /// All.
    pub pool_blocks: u64,
    /// How long the server was held for want of a block, in seconds.
    pub held_seconds: f64,
}

/// An acquisition that was recorded.
#[derive(Clone, Debug, Serialize)]
pub struct Recorded {
    /// Counted from 1.
    pub number: u64,
    /// Its file.
    pub file: PathBuf,
    /// Length of the file.
    pub file_bytes: Option<u64>,
    /// When it was armed, by the PandA.
    pub arm_time: Option<Tai>,
    /// Samples in the file.
    pub samples: u64,
    /// Bytes of them as they came.
    pub bytes: u64,
    /// How it ended.
    pub reason: String,
    /// Whether it is complete.
    #[serde(flatten)]
    pub completeness: Completeness,
    /// How sure the account is.
    pub verdict: Verdict,
    /// What the PandA says it took.
    pub captured: Option<u64>,
    /// The balance.
    pub terms: fullbore_core::account::Terms,
    /// Samples that came twice, over two connections.
    pub duplicates: u64,
    /// What is not in the file.
    pub gaps: Vec<Gap>,
    /// What each connection brought.
    pub connections: Vec<Tally>,
    /// What was lost or is in doubt.
    pub notes: Vec<String>,
    /// How long flushes took, in microseconds: half of them, 99 of 100, and the longest.
    pub flush_us: Option<[u64; 3]>,
    /// How many flushes took at most so many microseconds, by powers of two.
    pub flush_histogram: Vec<(u64, u64)>,
    /// The longest write of an HDF5 chunk, in microseconds.
    pub longest_write_us: Option<u64>,
    /// Whether samples were written past the page cache.
    pub past_page_cache: Option<bool>,
}

impl From<Finished> for Recorded {
    fn from(finished: Finished) -> Self {
        let Finished { acquisition, path, closed, report, reason } = finished;
        let account = closed.account;
        let flush = |report: &hdf5::Report| {
            let at = |quantile| report.flushes.value_at_quantile(quantile);
            [at(0.5), at(0.99), report.flushes.max()]
        };
        Recorded {
            number: acquisition.number,
            file: path,
            file_bytes: report.as_ref().map(|report| report.file_bytes),
            arm_time: acquisition.header.arm_time,
            samples: account.terms.written,
            bytes: account.bytes,
            reason,
            completeness: account.completeness(),
            verdict: account.verdict,
            captured: closed.captured,
            terms: account.terms,
            duplicates: account.duplicates,
            gaps: account.gaps,
            connections: closed.connections,
            notes: closed.notes,
            flush_us: report.as_ref().map(flush),
            flush_histogram: report.as_ref().map_or_else(Vec::new, hdf5::Report::flush_histogram),
            past_page_cache: report.as_ref().map(|report| report.direct),
            longest_write_us: report.map(|report| report.longest_write.as_micros() as u64),
        }
    }
}

/// A recording and why it ended before its time, if it did.
#[derive(Debug)]
pub struct Outcome {
    /// What was recorded.
    pub recorded: Vec<Recorded>,
    /// Acquisitions that were armed and of which nothing came, though the PandA took samples of them.
    pub unseen: u64,
    /// Whether it was ended before all acquisitions had come, or with `None` wanted before any had.
    pub short: bool,
    /// Why there is no more.
    pub error: Option<RecordError>,
}

impl Outcome {
    /// Nothing was recorded.
    pub(super) fn failed(error: RecordError) -> Self {
        Outcome { recorded: Vec::new(), unseen: 0, short: false, error: Some(error) }
    }
}

/// Records until all acquisitions have been taken or an end is asked for.
pub fn record(
    plan: Plan,
    control: &Arc<Control>,
    tell: &mut dyn FnMut(&Event),
) -> Result<Outcome, RecordError> {
    check(&plan)?;
    if let Some(text) = warning_of_place(&plan.files) {
        tell(&Event::Warning { text });
    }
    let device = Panda::new(plan.source.clone(), PATIENCE);
    record_from(device, plan, control, tell)
}

/// The same, of any PandA.
pub fn record_from<D: Device<Data: Send> + Send + 'static>(
    device: D,
    plan: Plan,
    control: &Arc<Control>,
    tell: &mut dyn FnMut(&Event),
) -> Result<Outcome, RecordError> {
    Prepared::new(device, plan, None)?.run(control, tell)
}

/// A recording that has its block memory.
pub(super) struct Prepared<D> {
    device: D,
    plan: Plan,
    pool: Pool,
    pool_bytes: u64,
    series: Option<Arc<Series>>,
}

impl<D: Device<Data: Send> + Send + 'static> Prepared<D> {
    /// Takes the block memory, all that can be refused before a PandA is armed. Where it is recorded with others, `series`
    /// keeps them in step.
    pub(super) fn new(
        device: D,
        plan: Plan,
        series: Option<Arc<Series>>,
    ) -> Result<Self, RecordError> {
        let pool_bytes = plan.buffer.map_or(POOL_BYTES, |size| size.0);
        let memory = |source| RecordError::Memory { wanted: ByteSize(pool_bytes), source };
        let region =
            Region::new(usize::try_from(pool_bytes).unwrap_or(usize::MAX)).map_err(memory)?;
        let pool = Pool::new(Arc::new(region), BLOCK_BYTES as usize, 0);
        Ok(Prepared { device, plan, pool, pool_bytes, series })
    }

    /// Records.
    pub(super) fn run(
        self,
        control: &Arc<Control>,
        tell: &mut dyn FnMut(&Event),
    ) -> Result<Outcome, RecordError> {
        let Prepared { device, plan, pool, pool_bytes, series } = self;
        let (news, file_news) = mpsc::channel();
        let (say, happenings) = mpsc::channel();
        let (blocks, control) = (pool.blocks(), control.clone());
        let (outlet, file) =
            FileOutlet::start(plan.files, blocks, plan.acquisitions, control, series, news)
                .map_err(RecordError::Thread)?;
        let gauge = Arc::new(StreamGauge::default());
        let settings =
            Settings { acquisitions: plan.acquisitions, arm: plan.arm, reconnect: plan.reconnect };
        let source =
            Source::new(device, outlet, pool, BLOCK_BYTES as usize, settings, gauge.clone(), say);
        let capture = std::thread::Builder::new()
            .name("capture0".into())
            // The way to the file thread closes with the source, so that it ends too.
            .spawn(move || source.run().1)
            .map_err(RecordError::Thread)?;
        let acquisitions_wanted = plan.acquisitions;
        let mut watch = Watch {
            host: plan.source.host,
            pool_bytes,
            gauge,
            progress: Progress::default(),
            told: Instant::now(),
            before: (0, 0),
            recorded: Vec::new(),
            unseen: 0,
            failed: None,
        };
        watch.listen(&happenings, &file_news, tell);
        let ended = capture.join();
        let _ = file.join();
        watch.read_rest(&happenings, &file_news, tell);
        let error = match (watch.failed, ended) {
            (Some(error), _) => Some(RecordError::File { error }),
            (None, Ok(Ended::Failed(error))) => Some(RecordError::Panda(error)),
            (None, Ok(Ended::Done | Ended::Halted)) => None,
            (None, Err(_)) => {
                let source = io::Error::other("the capture thread failed");
                Some(RecordError::Thread(source))
            }
        };
        let acquisitions = watch.recorded.len() as u64;
        let short = error.is_none() && acquisitions < acquisitions_wanted.unwrap_or(1);
        if short {
            tell(&Event::Short { acquisitions, wanted: acquisitions_wanted });
        }
        Ok(Outcome { recorded: watch.recorded, unseen: watch.unseen, short, error })
    }
}

/// What should be known of the place of the files: one on another machine may be slower than a PandA.
pub(super) fn warning_of_place(files: &Files) -> Option<String> {
    let path = files.path(1);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    warning_of(&file_system(folder).ok()?, folder)
}

fn warning_of(file_system: &str, folder: &Path) -> Option<String> {
    matches!(file_system, "nfs" | "smb").then(|| {
        format!(
            "{} is on a network file system ({file_system}): it may be slower than the PandA, whose ring then \
             overruns, and readers may not see the file grow; record onto a local disk, and copy",
            folder.display()
        )
    })
}

/// Refuses at once what would be refused when an acquisition begins.
pub(super) fn check(plan: &Plan) -> Result<(), RecordError> {
    let path = plan.files.path(1);
    if let Some(folder) = path.parent()
        && !folder.as_os_str().is_empty()
        && !folder.is_dir()
    {
        return Err(RecordError::NoFolder { path: folder.to_owned() });
    }
    check_names(&plan.files, plan.acquisitions)?;
    match plan.buffer {
        Some(given) if given.0 < LEAST_POOL_BYTES => {
            Err(RecordError::SmallBuffer { given, least: ByteSize(LEAST_POOL_BYTES) })
        }
        _ => Ok(()),
    }
}

/// Refuses a place that takes no file, and names that are taken: of every acquisition there will be, or could be where
/// their number is open. What is to be continued must be a file that can be, and what is to be replaced one that nobody
/// writes.
pub fn check_names(files: &Files, acquisitions: Option<u64>) -> Result<(), RecordError> {
    let of_file = |error| RecordError::File { error: Arc::new(error) };
    hdf5::check_place(&files.path(1)).map_err(of_file)?;
    let taken = files.taken(acquisitions);
    match files.options.existing {
        Existing::Refuse => match taken.into_iter().next() {
            Some(path) => Err(RecordError::Exists { path }),
            None => Ok(()),
        },
        Existing::Append => {
            let check = |path| hdf5::check_continuable(path, files.options.compression);
            taken.iter().map(PathBuf::as_path).try_for_each(check).map_err(of_file)
        }
        Existing::Overwrite => {
            taken.iter().try_for_each(|path| hdf5::check_replaceable(path)).map_err(of_file)
        }
    }
}

/// Listens to both threads.
struct Watch {
    host: String,
    pool_bytes: u64,
    gauge: Arc<StreamGauge>,
    progress: Progress,
    told: Instant,
    /// Samples and bytes at the last progress.
    before: (u64, u64),
    recorded: Vec<Recorded>,
    unseen: u64,
    failed: Option<Arc<hdf5::Error>>,
}

impl Watch {
    /// Until both threads have ended.
    fn listen(
        &mut self,
        happenings: &Receiver<Happening>,
        news: &Receiver<FileNews>,
        tell: &mut dyn FnMut(&Event),
    ) {
        loop {
            let left = PROGRESS.saturating_sub(self.told.elapsed());
            match happenings.recv_timeout(left.min(Duration::from_millis(50))) {
                Ok(happening) => self.happening(happening, tell),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            }
            self.read_rest(happenings, news, tell);
            if self.told.elapsed() >= PROGRESS {
                self.tell_progress(tell);
            }
        }
    }

    fn read_rest(
        &mut self,
        happenings: &Receiver<Happening>,
        news: &Receiver<FileNews>,
        tell: &mut dyn FnMut(&Event),
    ) {
        while let Ok(happening) = happenings.try_recv() {
            self.happening(happening, tell);
        }
        while let Ok(news) = news.try_recv() {
            self.news(news, tell);
        }
    }

    fn happening(&mut self, happening: Happening, tell: &mut dyn FnMut(&Event)) {
        match happening {
            Happening::Connected(connection) => {
                let (host, pool_bytes) = (self.host.clone(), self.pool_bytes);
                tell(&Event::Connected { host, connection, pool_bytes });
            }
            Happening::Armed => tell(&Event::Armed),
            Happening::Rejoined { number, gap } => tell(&Event::Rejoined { number, gap }),
            Happening::Lost { why } => tell(&Event::Lost { why }),
            Happening::Unseen { samples } => {
                self.unseen += 1;
                tell(&Event::Unseen { samples });
            }
            Happening::StaysArmed { why } => tell(&Event::StaysArmed { why }),
            // The file thread tells of these, once its file is there or finished.
            Happening::Began(_) | Happening::Over { .. } => {}
        }
    }

    fn news(&mut self, news: FileNews, tell: &mut dyn FnMut(&Event)) {
        match news {
            FileNews::Begun { path, acquisition } => {
                self.progress = Progress { number: acquisition.number, ..Progress::default() };
                self.before.0 = 0;
                tell(&Event::Began {
                    number: acquisition.number,
                    file: path,
                    arm_time: acquisition.header.arm_time,
                    missed: acquisition.header.missed,
                    sample_bytes: acquisition.header.sample_bytes,
                    fields: acquisition.header.fields.clone(),
                });
            }
            FileNews::Beside { number, meant, path, why } => {
                tell(&Event::Beside { number, meant, file: path, why });
            }
            FileNews::Visible { samples } => self.progress.visible = samples,
            FileNews::Ended(finished) => {
                let recorded = Recorded::from(*finished);
                tell(&Event::Ended(Box::new(recorded.clone())));
                self.recorded.push(recorded);
            }
            FileNews::Failed(error) => {
                self.failed.get_or_insert(error);
            }
        }
    }

    fn tell_progress(&mut self, tell: &mut dyn FnMut(&Event)) {
        let seconds = self.told.elapsed().as_secs_f64().max(1e-3);
        let (samples, bytes) = (self.gauge.frames.load(Relaxed), self.gauge.bytes.load(Relaxed));
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        self.progress = Progress {
            samples,
            sample_rate: rate(samples, self.before.0),
            byte_rate: rate(bytes, self.before.1),
            missing: self.gauge.missing.load(Relaxed),
            used_blocks: self.gauge.used_blocks.load(Relaxed),
            high_water: self.gauge.high_water.load(Relaxed),
            pool_blocks: self.gauge.pool_blocks.load(Relaxed),
            held_seconds: self.gauge.held_ns.load(Relaxed) as f64 / 1e9,
            ..self.progress
        };
        self.before = (samples, bytes);
        self.told = Instant::now();
        if self.progress.number > 0 {
            tell(&Event::Progress(self.progress));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_on_another_machine_is_warned_of_before_anything_is_armed() {
        let folder = Path::new("/scratch");
        for kind in ["nfs", "smb"] {
            let text = warning_of(kind, folder).unwrap();
            assert!(
                text.contains("/scratch") && text.contains(kind) && text.contains("local disk")
            );
        }
        assert_eq!(warning_of("ext4", folder), None);
    }
}
