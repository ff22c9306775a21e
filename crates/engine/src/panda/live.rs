//! A PandA's samples into HDF5 files while they come.
//!
//! ```text
//! capture thread ──Begin, Write, End──► file thread ──► one file for each acquisition, or one for all
//!                ◄──── Emptied ───────      │
//!                                           └─ flush about once a second: readers see it grow
//! ```
//!
//! libhdf5 lets one thread in at a time, so one thread owns the file. When a write fails it stops
//! writing, gives every block back, and the capture thread ends with books that say what no file took; the file ends
//! with what readers have seen.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use fullbore_core::container::Template;
use fullbore_core::format::panda::Closed;

use super::capture::{Acquisition, Asked, Batch, Halted, Outlet};
use super::several::Series;
use crate::recorder::Control;
use crate::ring::Block;
use crate::sink::hdf5::{self, Existing, Options, PandaFile, Report, is_there, numbered};

/// How long a file waits for the settings that it begins with: blocks and the server hold the samples.
const SETTINGS_COME: Duration = Duration::from_secs(2);

/// How files are named and written.
#[derive(Clone, Debug)]
pub struct Files {
    /// The file, or a [`Template`]: `%d` is the number of the acquisition.
    pub template: PathBuf,
    /// Layout, compression, and how often readers see what is new.
    pub options: Options,
    /// An acquisition whose file cannot take it goes into another one beside it: it comes only once.
    pub beside: bool,
}

/// Names that are tried beside one that is taken.
const BESIDE: u32 = 1000;

impl Files {
    /// The file of an acquisition.
    pub fn path(&self, number: u64) -> PathBuf {
        numbered(&self.template, number)
    }

    /// Whether all acquisitions go into one file.
    pub fn is_one(&self) -> bool {
        self.path(1) == self.path(2)
    }

    /// The files that are there already, of those that so many acquisitions would make; of any that could come, where
    /// their number is open. In the order of acquisitions.
    pub fn taken(&self, acquisitions: Option<u64>) -> Vec<PathBuf> {
        let (first, most) = (self.path(1), acquisitions.unwrap_or(u64::MAX));
        if self.is_one() || most == 1 {
            return Some(first).filter(|path| is_there(path)).into_iter().collect();
        }
        // What lies there is looked through, since any number of acquisitions may be asked for.
        let folder = first.parent().filter(|folder| !folder.as_os_str().is_empty());
        let entries = std::fs::read_dir(folder.unwrap_or(Path::new("."))).into_iter().flatten();
        let numbers = entries.filter_map(|entry| self.number_of(&entry.ok()?.file_name()));
        let mut numbers: Vec<u64> = numbers.filter(|number| (1..=most).contains(number)).collect();
        numbers.sort_unstable();
        numbers.into_iter().map(|number| self.path(number)).collect()
    }

    /// Which acquisition would have a file of this name.
    fn number_of(&self, name: &OsStr) -> Option<u64> {
        Template::of(&self.template).ok()?.number(name.to_str()?)
    }

    /// How the file of an acquisition is opened: a second one continues the file of the first.
    fn options_of(&self, path: &Path, number: u64, wanted: Option<u64>) -> Options {
        let mut options = self.options.clone();
        if self.is_one() && wanted != Some(1) {
            if number == 1 && options.existing == Existing::Overwrite {
                // What cannot be removed cannot be continued either, and then the file says so.
                let _ = hdf5::remove_old(path);
            }
            if number > 1 || !is_there(path) {
                options.existing = Existing::Append;
            }
        }
        options
    }
}

/// What the file thread tells whoever watches.
#[derive(Debug)]
pub enum FileNews {
    /// A file was begun, or is continued.
    Begun {
        /// The file.
        path: PathBuf,
        /// The acquisition.
        acquisition: Arc<Acquisition>,
    },
    /// An acquisition goes into another file than was meant.
    Beside {
        /// Which one.
        number: u64,
        /// The file that was meant.
        meant: PathBuf,
        /// The file that takes it.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// Readers can see so many samples of the acquisition.
    Visible {
        /// How many.
        samples: u64,
    },
    /// An acquisition has ended.
    Ended(Box<Finished>),
    /// Nothing more can be written.
    Failed(Arc<hdf5::Error>),
}

/// What became of an acquisition.
#[derive(Clone, Debug)]
pub struct Finished {
    /// What the PandA said of it.
    pub acquisition: Arc<Acquisition>,
    /// The file.
    pub path: PathBuf,
    /// The books, with what the file could not take.
    pub closed: Closed,
    /// What was written, if the file could be finished.
    pub report: Option<Report>,
    /// What the file says of its end.
    pub reason: String,
}

/// What the file thread is told.
enum Told {
    Begin(Arc<Acquisition>),
    Write(Batch),
    End(Box<Closed>),
}

/// The way to the file thread.
pub struct FileOutlet {
    told: SyncSender<Told>,
    emptied: Receiver<Option<Block>>,
    control: Arc<Control>,
    flush: Duration,
    halted: bool,
    /// Acquisitions that were handed on to their end, and those of which the file thread has all in the file.
    ended: u64,
    settled: Arc<AtomicU64>,
    /// The PandAs that this one is recorded with.
    series: Option<Arc<Series>>,
}

/// The thread that owns the file.
pub struct FileThread {
    thread: JoinHandle<()>,
}

impl FileThread {
    /// Waits until all that was handed on is written.
    pub fn join(self) -> std::thread::Result<()> {
        self.thread.join()
    }
}

impl FileOutlet {
    /// Starts the file thread, with room on its way for every one of `blocks`.
    pub fn start(
        files: Files,
        blocks: usize,
        acquisitions: Option<u64>,
        control: Arc<Control>,
        series: Option<Arc<Series>>,
        news: Sender<FileNews>,
    ) -> std::io::Result<(Self, FileThread)> {
        let (told, from_capture) = sync_channel(blocks + 4);
        let (to_capture, emptied) = sync_channel(blocks + 1);
        let flush = files.options.flush;
        let settled = Arc::new(AtomicU64::new(0));
        series.iter().for_each(|series| series.join(settled.clone()));
        let work = Work {
            files,
            acquisitions,
            news,
            emptied: to_capture,
            current: None,
            beside: Vec::new(),
            failed: None,
            flushed: Instant::now(),
            settled: settled.clone(),
        };
        let thread = Builder::new().name("hdf5".into()).spawn(move || work.run(&from_capture))?;
        let (halted, ended) = (false, 0);
        let outlet = FileOutlet { told, emptied, control, flush, halted, ended, settled, series };
        Ok((outlet, FileThread { thread }))
    }

    fn tell(&mut self, what: Told) -> Result<(), Halted> {
        // The thread goes only when we have gone, or by a bug of its own.
        self.told.send(what).map_err(|_| {
            self.halted = true;
            Halted
        })
    }
}

impl Outlet for FileOutlet {
    fn asked(&mut self) -> Asked {
        match self.control.asked() {
            0 => Asked::Go,
            1 => Asked::Stop,
            _ => Asked::Abort,
        }
    }

    fn block_bytes(&self, sample_bytes: usize, stride: usize) -> usize {
        stride / sample_bytes * sample_bytes
    }

    fn hand_on_after(&self) -> Option<Duration> {
        Some((self.flush / 4).clamp(Duration::from_millis(20), Duration::from_millis(250)))
    }

    /// Not before the last acquisition is in its file: where that could not be made, there is no place for another.
    fn is_ready(&mut self) -> bool {
        let of_others = self.series.as_ref().is_none_or(|series| series.has_ended(self.ended));
        !self.halted && self.settled.load(Acquire) >= self.ended && of_others
    }

    fn wants_no_more(&self) -> bool {
        self.series.as_ref().is_some_and(|series| series.is_over())
    }

    fn begin(&mut self, acquisition: &Arc<Acquisition>) -> Result<(), Halted> {
        self.tell(Told::Begin(acquisition.clone()))
    }

    fn filled(&mut self, batch: Batch) {
        // Without the thread the block is gone, and the next look says that nothing more is taken.
        let _ = self.tell(Told::Write(batch));
    }

    fn emptied(&mut self, wait: Duration) -> Result<Option<Block>, Halted> {
        if self.halted {
            return Err(Halted);
        }
        let got = if wait.is_zero() {
            self.emptied.try_recv().map_err(|error| match error {
                std::sync::mpsc::TryRecvError::Empty => RecvTimeoutError::Timeout,
                std::sync::mpsc::TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
            })
        } else {
            self.emptied.recv_timeout(wait)
        };
        match got {
            Ok(Some(block)) => Ok(Some(block)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Ok(None) | Err(RecvTimeoutError::Disconnected) => {
                self.halted = true;
                Err(Halted)
            }
        }
    }

    fn end(&mut self, closed: Closed) {
        self.ended += 1;
        let _ = self.tell(Told::End(Box::new(closed)));
    }
}

/// The file thread's state.
struct Work {
    files: Files,
    acquisitions: Option<u64>,
    news: Sender<FileNews>,
    emptied: SyncSender<Option<Block>>,
    current: Option<Current>,
    /// What the account says of an acquisition that is not in the file that was meant.
    beside: Vec<String>,
    failed: Option<Arc<hdf5::Error>>,
    flushed: Instant,
    settled: Arc<AtomicU64>,
}

/// The acquisition that is being written.
struct Current {
    acquisition: Arc<Acquisition>,
    path: PathBuf,
    /// Nothing until the first samples have come.
    file: Option<PandaFile>,
    /// Samples that readers can see, and that a failure leaves.
    visible: u64,
}

impl Work {
    fn run(mut self, told: &Receiver<Told>) {
        let period = self.files.options.flush;
        loop {
            let wait = period.saturating_sub(self.flushed.elapsed());
            match told.recv_timeout(wait) {
                Ok(Told::Begin(acquisition)) => self.begin(acquisition),
                Ok(Told::Write(batch)) => self.write(batch),
                Ok(Told::End(closed)) => self.end(*closed),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if self.flushed.elapsed() >= period {
                self.flush();
            }
        }
    }

    fn begin(&mut self, acquisition: Arc<Acquisition>) {
        let path = self.files.path(acquisition.number);
        self.flushed = Instant::now();
        self.current = Some(Current { acquisition, path, file: None, visible: 0 });
    }

    /// Makes the acquisition's file, unless it is there, now that its first samples have come, or none: where nobody
    /// has said how fast they come, these show it, and HDF5 chunks are sized by it.
    fn make(&mut self, first: Option<&Batch>) {
        let Some(current) = self.current.as_mut().filter(|it| it.file.is_none()) else { return };
        if self.failed.is_some() {
            return;
        }
        let (acquisition, path) = (current.acquisition.clone(), current.path.clone());
        let mut options = self.files.options_of(&path, acquisition.number, self.acquisitions);
        if let Some(batch) = first {
            let samples = batch.bytes / (acquisition.header.sample_bytes as usize).max(1);
            // What comes at once may be all there is: then one chunk holds it.
            let seconds = batch.over.max(options.flush / 8).as_secs_f64();
            options.rows_per_second.get_or_insert(samples as f64 / seconds);
        }
        let settings = acquisition.settings.wait(SETTINGS_COME).and_then(Result::ok);
        let (header, settings) = (&acquisition.header, settings.as_deref());
        let create = |path: &Path, options: &Options| {
            PandaFile::create_with(path, header, settings, options)
        };
        let made = match create(&path, &options) {
            // What is there stays; a file that could not be begun leaves nothing behind.
            Err(error) if self.files.beside && is_there(&path) => {
                options.existing = Existing::Refuse;
                match make_beside(&path, |path| create(path, &options)) {
                    Some(made) => Ok((made, Some(hdf5::in_full(&error)))),
                    None => Err(error),
                }
            }
            made => made.map(|made| (made, None)),
        };
        match made {
            Ok((made, why)) => self.begun(made, why),
            Err(error) => self.fail(error),
        }
    }

    /// The acquisition has its file; another one than was meant, if that is said why.
    fn begun(&mut self, file: PandaFile, why: Option<String>) {
        let Some(current) = &mut self.current else { return };
        let (path, acquisition) = (file.path().to_owned(), current.acquisition.clone());
        current.file = Some(file);
        let meant = std::mem::replace(&mut current.path, path.clone());
        if let Some(why) = why {
            let number = acquisition.number;
            self.beside.push(format!("it is in {} instead: {why}", path.display()));
            self.say(FileNews::Beside { number, meant, path: path.clone(), why });
        }
        self.say(FileNews::Begun { path, acquisition });
    }

    fn write(&mut self, batch: Batch) {
        self.make(Some(&batch));
        let file = self.current.as_mut().and_then(|current| current.file.as_mut());
        if let Some(file) = file
            && self.failed.is_none()
            && let Err(error) = file.append(&batch.block[..batch.bytes])
        {
            self.fail(error);
        }
        // The way back has room for every block, so this waits for nobody.
        let _ = self.emptied.send(Some(batch.block));
    }

    fn flush(&mut self) {
        self.flushed = Instant::now();
        let Some(current) = &mut self.current else { return };
        let Some(file) = &mut current.file else { return };
        if self.failed.is_some() || file.rows() == current.visible {
            return;
        }
        match file.flush() {
            Ok(()) => {
                current.visible = file.rows();
                let samples = current.visible;
                self.say(FileNews::Visible { samples });
            }
            Err(error) => self.fail(error),
        }
    }

    fn end(&mut self, mut closed: Closed) {
        self.make(None);
        // What cannot be made visible now is no part of the account that the file ends with.
        self.flush();
        self.settled.fetch_add(1, Release);
        let Some(current) = self.current.take() else { return };
        let Current { acquisition, path, mut file, visible, .. } = current;
        let sample_bytes = u64::from(acquisition.header.sample_bytes);
        closed.account.bytes = closed.account.terms.written * sample_bytes;
        closed.notes.extend(acquisition.settings.note());
        closed.notes.append(&mut self.beside);
        if let Some(now) = file.as_ref().and_then(PandaFile::moved_to) {
            closed.notes.push(format!("the file was given another name: {}", now.display()));
        }
        let mut report = None;
        if self.failed.is_none()
            && let Some(file) = file
        {
            match file.finish(&ending(&closed)) {
                Ok(done) => report = Some(done),
                Err(error) => self.fail(error),
            }
            if report.is_none() {
                self.keep(&mut closed, visible, sample_bytes);
            }
        } else {
            let visible = file.as_mut().map_or(visible, PandaFile::rescue);
            self.keep(&mut closed, visible, sample_bytes);
            // Where there is no room for an ending either, `recover` makes one.
            let _ = file.map(|file| file.abandon(&self.cut_short(&closed)));
        }
        let reason = self.cut_short(&closed).reason;
        self.say(FileNews::Ended(Box::new(Finished { acquisition, path, closed, report, reason })));
    }

    /// The file has so many of the samples, and will never have more.
    fn keep(&self, closed: &mut Closed, visible: u64, sample_bytes: u64) {
        let Some(failed) = &self.failed else { return };
        let visible = if matches!(**failed, hdf5::Error::Removed { .. }) { 0 } else { visible };
        closed.keep(visible, "the file took no more");
        closed.account.bytes = closed.account.terms.written * sample_bytes;
    }

    /// What the file says of its end, which may be a failure of its own.
    fn cut_short(&self, closed: &Closed) -> hdf5::Ending {
        let ending = ending(closed);
        self.failed.as_ref().map_or_else(|| ending.clone(), |error| ending.cut_short(error))
    }

    fn fail(&mut self, error: hdf5::Error) {
        let error = Arc::new(error);
        self.failed = Some(error.clone());
        self.say(FileNews::Failed(error));
        let _ = self.emptied.send(None);
    }

    fn say(&self, news: FileNews) {
        // Without a listener there is nobody to tell.
        let _ = self.news.send(news);
    }
}

/// Makes the first file beside `path` whose name is free: `a-7.h5` gives `a-7.1.h5`.
fn make_beside<T>(path: &Path, make: impl Fn(&Path) -> Result<T, hdf5::Error>) -> Option<T> {
    let stem = path.file_stem()?.to_string_lossy();
    let ending = path.extension().map_or(String::new(), |it| format!(".{}", it.to_string_lossy()));
    for number in 1..=BESIDE {
        let name = path.with_file_name(format!("{stem}.{number}{ending}"));
        match make(&name) {
            Err(hdf5::Error::Exists { .. }) => {}
            other => return other.ok(),
        }
    }
    None
}

/// What the file says of its end.
pub fn ending(closed: &Closed) -> hdf5::Ending {
    hdf5::Ending {
        reason: closed.ending.to_string(),
        missing: closed.account.terms.missing,
        verdict: Some(closed.account.verdict),
        account: serde_json::to_string(closed).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(folder: &Path, name: &str) -> Files {
        Files { template: folder.join(name), options: Options::default(), beside: true }
    }

    #[test]
    fn every_name_there_will_be_is_looked_for_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let there = |name: &str| std::fs::write(folder.path().join(name), b"").unwrap();
        let taken = |name: &str, most| {
            let path = files(folder.path(), name).taken(most).into_iter().next()?;
            Some(path.file_name().unwrap().to_string_lossy().into_owned())
        };
        there("a-7.h5");
        there("a-12.h5");
        there("a-03.h5");
        there("b.h5");
        assert_eq!(taken("a-%d.h5", Some(6)), None);
        assert_eq!(taken("a-%d.h5", Some(7)), Some("a-7.h5".into()));
        assert_eq!(taken("a-%d.h5", None), Some("a-7.h5".into()));
        assert_eq!(taken("a-%d.h5", Some(u64::MAX)), Some("a-7.h5".into()));
        assert_eq!(taken("c-%d.h5", None), None);
        assert_eq!(taken("a-%02d.h5", Some(3)), Some("a-03.h5".into()));
        // A link that leads nowhere is a name that is taken too.
        std::os::unix::fs::symlink("nowhere", folder.path().join("d.h5")).unwrap();
        assert_eq!(taken("d.h5", Some(1)), Some("d.h5".into()));
        assert_eq!(taken("b.h5", Some(3)), Some("b.h5".into()));
    }
}
