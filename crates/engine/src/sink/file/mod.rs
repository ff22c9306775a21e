//! A plain file, or standard output, as a sink: the bytes of one stream, in order.
//!
//! ```text
//! capture thread ──blocks──► writer ──write──► file:PATH, or standard output
//!                ◄─Written──   └────sync─────► Durable
//! ```
//!
//! A file is written with direct I/O as long as blocks are whole, and synced in the interval of a store. What a reader of
//! standard output has taken counts as durable. A slow reader is a slow disk: sources that can wait do, others count
//! *overrun*. If the file takes no more bytes, or the reader has gone, the recording ends, and what was not written is
//! counted.

mod thread;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fullbore_core::account::Account;
use fullbore_core::container::Existing;
use fullbore_core::endpoint::FileTarget;
use fullbore_core::manifest::{self, Manifest, State};
use fullbore_linux::overlap::{Identity, Range};
use fullbore_linux::place::{self, PlaceError, folder_of};
use fullbore_linux::sys::memory::Region;
use fullbore_linux::writer_thread::WriterThread;
use rustix::fs::OFlags;

use self::thread::{FileThread, Output};
use super::store::metadata_writer::PendingReplies;
use super::{ScanSink, Sink, Target, WriterLink, device_of};
use crate::error::RecordError;
use crate::event::EventHandler;

/// The path of standard output in events and manifests.
pub(crate) const STANDARD_OUTPUT: &str = "standard output";

/// The file has no chunks; this is the largest that a geometry allows.
const CHUNK_BYTES: u64 = 64 << 30;

/// The age at which a partly filled block is written, so that a reader does not wait for a slow stream.
const HAND_ON_AFTER: Duration = Duration::from_millis(250);

/// A plain file, or standard output, as the sink of a recording.
#[derive(Clone, Debug)]
pub struct FileConfig {
    /// The target.
    pub target: FileTarget,
}

/// An open file sink.
pub struct FileSink {
    config: FileConfig,
    targets: Vec<Target>,
    output: Option<Output>,
    /// The file that this recording has created.
    created: Option<PathBuf>,
}

impl FileSink {
    /// Checks the target. Nothing is created yet.
    pub(super) fn open(config: &FileConfig) -> Result<Self, RecordError> {
        let (path, device) = match &config.target {
            FileTarget::Standard => {
                if io::stdout().is_terminal() {
                    return Err(RecordError::Terminal);
                }
                (PathBuf::from(STANDARD_OUTPUT), None)
            }
            FileTarget::File { path, existing } => {
                check(path, *existing)?;
                (path.clone(), device_of(folder_of(path)))
            }
        };
        let targets = vec![Target { path, buffered: false, device, span: None }];
        Ok(Self { config: config.clone(), targets, output: None, created: None })
    }

    fn path(&self) -> &Path {
        &self.targets[0].path
    }

    fn failed(&self, source: io::Error) -> RecordError {
        match &self.config.target {
            FileTarget::Standard => RecordError::File { path: self.path().to_owned(), source },
            FileTarget::File { path, .. } => PlaceError::new(path, source).into(),
        }
    }

    fn open_file(&mut self, path: &Path, existing: Existing) -> io::Result<Output> {
        let found = path.exists();
        let mut options = OpenOptions::new();
        options.write(true).create_new(!found).truncate(existing == Existing::Overwrite);
        let direct = options.clone().custom_flags(OFlags::DIRECT.bits() as i32).open(path);
        self.created = (!found).then(|| path.to_owned());
        match direct {
            Ok(file) => Output::new(file, true),
            // The file system, or the device, takes no direct I/O.
            Err(_) => Output::new(options.create_new(!path.exists()).open(path)?, false),
        }
    }
}

/// Refuses a file that exists, or that is none.
fn check(path: &Path, existing: Existing) -> Result<(), RecordError> {
    let failed = |source| RecordError::File { path: path.to_owned(), source };
    match path.metadata() {
        Err(_) if path.symlink_metadata().is_err() => Ok(place::check(path)?),
        Err(error) => Err(failed(error)),
        Ok(found) if found.is_dir() => Ok(place::check(path)?),
        Ok(found) if found.file_type().is_block_device() => {
            Err(RecordError::NotPlain { path: path.to_owned() })
        }
        Ok(_) if existing == Existing::Refuse => {
            Err(RecordError::FileExists { path: path.to_owned() })
        }
        Ok(_) => Ok(()),
    }
}

impl Sink for FileSink {
    fn targets(&self) -> &[Target] {
        &self.targets
    }

    fn chunk_bytes(&self) -> u64 {
        CHUNK_BYTES
    }

    fn takes_one_stream(&self) -> bool {
        true
    }

    fn takes_short_blocks_after(&self) -> Option<Duration> {
        Some(HAND_ON_AFTER)
    }

    fn refuse_source(&self, reads: &Range) -> Result<(), RecordError> {
        let written = match &self.config.target {
            FileTarget::Standard => io::stdout().as_fd().try_clone_to_owned().ok().map(File::from),
            FileTarget::File { path, .. } => File::open(path).ok(),
        };
        match written.and_then(|file| Identity::of(&file)) == Some(reads.of) {
            true => Err(RecordError::Overwritten { path: self.path().to_owned() }),
            false => Ok(()),
        }
    }

    /// Creates the file, since all checks have passed.
    fn prepare(&mut self, _tell: &mut EventHandler<'_>) -> Result<(), RecordError> {
        let output = match self.config.target.clone() {
            FileTarget::Standard => {
                let standard = io::stdout().as_fd().try_clone_to_owned();
                standard.and_then(|file| Output::new(file.into(), false))
            }
            FileTarget::File { path, existing } => self.open_file(&path, existing),
        };
        let output = output.map_err(|error| self.failed(error))?;
        self.targets[0].buffered = !output.is_direct();
        self.output = Some(output);
        Ok(())
    }

    fn start(
        &mut self,
        mut links: Vec<WriterLink>,
        _memory: &[Arc<Region>],
        _pool_bytes: u64,
    ) -> Result<Vec<WriterThread>, RecordError> {
        let link = links.pop().expect("a file has one writer");
        let output = self.output.take().expect("the file was opened");
        link.spawn("file", move |link| FileThread::new(link, output).run())
    }

    fn plan_scan(&self, manifest: &mut Manifest, failures: &[Option<String>]) -> Box<dyn ScanSink> {
        manifest.members = vec![manifest::Member {
            uuid: manifest::Member::PLAIN,
            path: self.path().to_owned(),
            failure: failures[0].clone(),
            buffered: self.targets[0].buffered,
        }];
        let file = match &self.config.target {
            FileTarget::Standard => None,
            FileTarget::File { path, .. } => Some(path.clone()),
        };
        Box::new(FileScan { file, created: self.created.clone() })
    }

    /// Standard output has no end of its own.
    fn free_bytes(&self, _writer: usize) -> u64 {
        let FileTarget::File { path, .. } = &self.config.target else { return u64::MAX };
        let found = rustix::fs::statvfs(folder_of(path));
        found.map_or(0, |found| found.f_bavail.saturating_mul(found.f_frsize))
    }
}

/// A scan that goes into a file.
struct FileScan {
    file: Option<PathBuf>,
    /// The file, if this recording has created it.
    created: Option<PathBuf>,
}

impl ScanSink for FileScan {
    /// The writer has synced the file. Its name is synced here.
    fn seal(
        &mut self,
        manifest: &mut Manifest,
        _accounts: &BTreeMap<u16, Account>,
        state: State,
    ) -> Result<(), RecordError> {
        manifest.state = state;
        let Some(file) = &self.file else { return Ok(()) };
        let folder = folder_of(file);
        File::open(folder)
            .and_then(|folder| folder.sync_all())
            .map_err(|source| RecordError::File { path: folder.to_owned(), source })
    }

    /// Nothing was recorded: an empty file that this recording has created is removed.
    fn discard(&self) -> PendingReplies {
        if let Some(path) = &self.created
            && path.metadata().is_ok_and(|found| found.len() == 0)
        {
            // If it stays, it is an empty file.
            let _ = std::fs::remove_file(path);
        }
        PendingReplies::none()
    }
}
