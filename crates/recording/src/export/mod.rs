//! Exports: recordings as HDF5 files, afterwards or while they are recorded.
//!
//! ```text
//! Follower ── durable blocks of each stream ──► StreamExport ──► out.h5, or a file for each stream
//!                                                                and out.h5, which shows all of them
//! dump of a PandA ──► the same recorder and container as a live recording ──► a file for each acquisition
//! ```
//!
//! The caller gives a handler of [`ExportEvent`]s, and a flag that ends an export that follows a recording.

mod dump;
mod error;
mod losses;
mod packets;
mod samples;
mod stream;
mod tdms;

use std::path::{Path, PathBuf};
use std::time::Instant;

use fullbore_core::account::{Account, Verdict};
use fullbore_core::completeness::{Completeness, StreamCompleteness};
use fullbore_core::container::{Existing, Hdf5Target};
use fullbore_core::manifest::{Manifest, State};
use fullbore_core::name::{Name, ScanName};
use fullbore_hdf5 as hdf5;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_store::follow::{FollowState, Follower};
use fullbore_store::read::Settings;
use fullbore_store::reader::{Scan, StoredStream};
use serde::{Serialize, Serializer};

pub use self::dump::{Acquisition, export_dump};
pub use self::error::ExportError;
pub use self::packets::{ExportedPackets, PacketsOfStream, export_packets};
pub use self::samples::SampleExport;
use self::stream::{OnDamage, StreamExport};
pub use self::tdms::{ConvertedTdms, TdmsExport, TdmsPart};
use crate::options::target::container_options;
use crate::outcome::Outcome;

/// An export of a scan.
#[derive(Clone, Debug)]
pub struct ScanExport {
    /// Directories of the store.
    pub roots: Vec<PathBuf>,
    /// The scan.
    pub scan: ScanName,
    /// The only stream to export. `None`: all streams.
    pub stream: Option<Name>,
    /// The file. With several streams, each gets a file beside it.
    pub target: Hdf5Target,
    /// True to follow a scan that is being recorded until it is sealed.
    pub follow: bool,
    /// True to continue past unreadable data, and to include damaged data.
    pub allow_damaged: bool,
}

/// An event of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExportEvent {
    /// The rest of all streams is going to be written.
    Begun {
        /// Bytes of all streams.
        bytes: u64,
    },
    /// Data was written.
    Written {
        /// Its bytes.
        bytes: u64,
    },
    /// A block cannot be read, or is damaged.
    Damaged {
        /// What was found.
        what: String,
        /// True if the export of the stream ends there.
        ends: bool,
    },
    /// The end of a stream is not a whole sample, and is left out.
    Rest {
        /// What is left out.
        what: String,
    },
}

/// The handler of the events of an export.
pub type ExportEventHandler<'a> = dyn FnMut(ExportEvent) + 'a;

/// A stream that was exported.
#[derive(Clone, Debug, Serialize)]
pub struct ExportedStream {
    /// The stream.
    pub stream: String,
    /// Its file.
    pub file: PathBuf,
    /// Rows in the file.
    pub rows: u64,
    /// Bytes of the stream.
    pub bytes: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes at the end of the stream that are not a whole sample, and are not in the file.
    pub rest_bytes: u64,
    /// The verdict of the file's account.
    pub verdict: Option<Verdict>,
    /// The account of the file's content.
    #[serde(skip)]
    pub account: Option<Account>,
    /// True if all recorded data is in the file.
    pub whole: bool,
    /// True if the recording was complete, by state and account of the scan.
    pub recorded_whole: bool,
}

/// The result of an export.
#[derive(Clone, Debug, Serialize)]
pub struct ExportedScan {
    /// The scan.
    #[serde(serialize_with = "in_one_word")]
    pub scan: ScanName,
    /// The completeness of the files, if the scan is over and each stream has an account.
    #[serde(flatten)]
    pub completeness: Option<Completeness>,
    /// The streams.
    pub streams: Vec<ExportedStream>,
    /// The file that shows several streams side by side.
    pub joined: Option<PathBuf>,
    /// Seconds that it took.
    pub seconds: f64,
    /// True if the scan goes on, and more data comes.
    #[serde(skip)]
    pub is_recording: bool,
}

impl ExportedScan {
    /// True of an export whose files hold everything that was to be recorded.
    pub fn outcome(&self) -> Outcome {
        Outcome::of(self.streams.iter().all(|it| it.whole && it.recorded_whole))
    }

    /// Bytes of all streams.
    pub fn bytes(&self) -> u64 {
        self.streams.iter().map(|it| it.bytes).sum()
    }
}

impl ScanExport {
    /// Exports the scan. A set `stop` ends an export that follows a recording, with the data that is durable then.
    pub fn run(
        &self,
        stop: &StopHandle,
        tell: &mut ExportEventHandler<'_>,
    ) -> Result<ExportedScan, ExportError> {
        let begun = Instant::now();
        check_place(&self.target)?;
        let mut follower = Follower::open(&self.roots, &self.scan)?;
        settle(&mut follower)?;
        let mut exports = Vec::new();
        if self.follow {
            self.check_known(follower.scan())?;
            self.follow(&mut follower, stop, &mut exports, tell)?;
        }
        let streams = select(follower.scan(), self.stream.as_ref())?;
        let single = self.is_single(follower.scan(), streams.len());
        self.check_files(&streams, single, &exports)?;
        tell(ExportEvent::Begun { bytes: streams.iter().map(|stream| stream.bytes()).sum() });
        let numbers: Vec<usize> = streams.iter().map(|stream| stream.number).collect();
        let mut exported = Vec::new();
        for number in numbers {
            let stream = &follower.scan().streams[number];
            let mut export = self.taken(&mut exports, stream, single);
            if let Err(error) = export.pour(&mut follower, tell) {
                if matches!(error, ExportError::Unreadable { .. }) {
                    remove_files(&exported);
                }
                return Err(error);
            }
            exported.push(export.finish(follower.scan(), number)?);
        }
        let is_recording = follower.status() == FollowState::Recording && !self.follow;
        let manifest = &follower.scan().manifest;
        Ok(ExportedScan {
            scan: manifest.scan.clone(),
            completeness: completeness(manifest, &exported),
            joined: if single { None } else { Some(self.join(&exported)?) },
            streams: exported,
            seconds: begun.elapsed().as_secs_f64(),
            is_recording,
        })
    }

    /// Exports a scan while it is recorded, until it has been sealed, or a stop is requested.
    fn follow(
        &self,
        follower: &mut Follower,
        stop: &StopHandle,
        exports: &mut Vec<StreamExport>,
        tell: &mut ExportEventHandler<'_>,
    ) -> Result<(), ExportError> {
        let mut flushed = Instant::now();
        while !follower.status().is_over() && !stop.is_requested() {
            let due = flushed.elapsed() >= self.target.flush;
            if follower.status() == FollowState::Recording && due {
                flushed = Instant::now();
                self.pour_so_far(follower, exports, tell)?;
            }
            follower.wait(stop);
            follower.look()?;
        }
        settle(follower)
    }

    fn pour_so_far(
        &self,
        follower: &mut Follower,
        exports: &mut Vec<StreamExport>,
        tell: &mut ExportEventHandler<'_>,
    ) -> Result<(), ExportError> {
        let scan = follower.scan();
        let single = self.is_single(scan, scan.streams.len());
        let wanted = |stream: &&StoredStream| {
            self.stream.as_ref().is_none_or(|name| stream.name == name.as_str())
        };
        let numbers: Vec<usize> =
            scan.streams.iter().filter(wanted).map(|stream| stream.number).collect();
        for number in numbers {
            let stream = &follower.scan().streams[number];
            let mut export = self.taken(exports, stream, single);
            export.pour_so_far(follower, tell)?;
            exports.push(export);
        }
        Ok(())
    }

    /// True if there is a single file, and no master file. While a scan is followed, more streams may appear; its
    /// directories show them.
    fn is_single(&self, scan: &Scan, streams: usize) -> bool {
        let name = scan.manifest.scan.to_string();
        match self.follow {
            true => {
                self.stream.is_some() || scan.manifest.streams.iter().any(|it| it.directory == name)
            }
            false => streams == 1,
        }
    }

    /// The export of a stream so far.
    fn taken(
        &self,
        exports: &mut Vec<StreamExport>,
        stream: &StoredStream,
        single: bool,
    ) -> StreamExport {
        if let Some(at) = exports.iter().position(|export| export.stream == stream.name) {
            return exports.swap_remove(at);
        }
        let settings = match self.follow {
            true => Settings::beside_a_recorder(),
            false => Settings::default(),
        };
        let settings = Settings { allow_damaged: self.allow_damaged, ..settings };
        let options = container_options(&self.target);
        let path = self.file_of(stream, single);
        StreamExport::new(stream, settings, self.on_damage(), path, options)
    }

    /// A file that others may have read, or that has earlier scans, is kept.
    fn on_damage(&self) -> OnDamage {
        match (self.allow_damaged, self.follow || self.target.existing == Existing::Append) {
            (true, _) => OnDamage::Continue,
            (false, true) => OnDamage::End,
            (false, false) => OnDamage::Fail,
        }
    }

    /// The file of a stream.
    fn file_of(&self, stream: &StoredStream, single: bool) -> PathBuf {
        let path = self.master();
        if single { path } else { hdf5::beside(&path, &stream.name) }
    }

    /// The file of a single stream, or that shows several side by side.
    fn master(&self) -> PathBuf {
        hdf5::numbered(&self.target.path, 1)
    }

    /// Writes the file that shows all streams.
    fn join(&self, exported: &[ExportedStream]) -> Result<PathBuf, hdf5::Error> {
        let files: Vec<(&str, &Path)> =
            exported.iter().map(|it| (it.stream.as_str(), it.file.as_path())).collect();
        let master = self.master();
        match self.target.existing {
            Existing::Refuse => hdf5::join(&master, &files)?,
            Existing::Append | Existing::Overwrite => hdf5::join_anew(&master, &files)?,
        };
        Ok(master)
    }

    /// Checks the files of the streams that are known before the scan is followed.
    fn check_known(&self, scan: &Scan) -> Result<(), hdf5::Error> {
        let wanted = |stream: &&StoredStream| {
            self.stream.as_ref().is_none_or(|name| stream.name == name.as_str())
        };
        let streams: Vec<&StoredStream> = scan.streams.iter().filter(wanted).collect();
        self.check_files(&streams, self.is_single(scan, streams.len()), &[])
    }

    /// Refuses files that cannot be created or continued before any export begins, so that all streams are exported or
    /// none.
    fn check_files(
        &self,
        streams: &[&StoredStream],
        single: bool,
        begun: &[StreamExport],
    ) -> Result<(), hdf5::Error> {
        let new = |stream: &&&StoredStream| !begun.iter().any(|it| it.stream == stream.name);
        let files = streams.iter().filter(new).map(|stream| self.file_of(stream, single));
        let files: Vec<PathBuf> = files.filter(|path| hdf5::is_there(path)).collect();
        let master = (!single).then(|| self.master()).filter(|it| hdf5::is_there(it));
        if self.target.existing == Existing::Refuse {
            return match files.into_iter().chain(master).next() {
                Some(path) => Err(hdf5::Error::Exists { path }),
                None => Ok(()),
            };
        }
        if let Some(master) = &master {
            hdf5::check_master(master)?;
        }
        let requested = container_options(&self.target).compression;
        files.iter().try_for_each(|path| match self.target.existing {
            Existing::Append => hdf5::check_continuable(path, requested),
            _ => hdf5::check_replaceable(path),
        })
    }
}

/// The selected streams, at least one.
fn select<'a>(
    scan: &'a Scan,
    selected: Option<&Name>,
) -> Result<Vec<&'a StoredStream>, ExportError> {
    let name = || scan.manifest.scan.clone();
    let streams: Vec<&StoredStream> = match selected {
        None => scan.streams.iter().collect(),
        Some(stream) => vec![scan.stream(stream.as_str()).ok_or_else(|| {
            let known: Vec<&str> = scan.streams.iter().map(|it| it.name.as_str()).collect();
            let stream = stream.to_string();
            ExportError::NoStream { scan: name(), stream, known: known.join(", ") }
        })?],
    };
    if streams.is_empty() {
        return Err(ExportError::NoStreams { scan: name() });
    }
    Ok(streams)
}

/// Removes the files of the streams before one that could not be exported: all streams are exported or none.
fn remove_files(exported: &[ExportedStream]) {
    for stream in exported {
        // If it stays, the next export says so.
        let _ = std::fs::remove_file(&stream.file);
    }
}

/// Refuses a place where no file can be made, before the recording is read. A file that is continued needs none.
fn check_place(target: &Hdf5Target) -> Result<(), hdf5::Error> {
    let path = hdf5::numbered(&target.path, 1);
    match target.existing == Existing::Append && path.is_file() {
        true => Ok(()),
        false => hdf5::check_place(&path),
    }
}

/// `session_scan`, as the commands name it.
fn in_one_word<S: Serializer>(scan: &ScanName, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(scan)
}

/// Updates the scan until its files are in order.
fn settle(follower: &mut Follower) -> Result<(), ExportError> {
    while follower.status() == FollowState::Sealing {
        follower.wait(&StopHandle::default());
        follower.look()?;
    }
    Ok(())
}

/// The completeness of the files, by their accounts.
fn completeness(manifest: &Manifest, exported: &[ExportedStream]) -> Option<Completeness> {
    let part = |it: &ExportedStream| {
        Some(StreamCompleteness::of_account(&it.stream, it.account.as_ref()?))
    };
    let parts = exported.iter().map(part).collect::<Option<Vec<_>>>()?;
    let is_over = manifest.state != State::Recording;
    is_over
        .then(|| Completeness::judged(parts, manifest.planned, manifest.state, &manifest.wanting()))
}
