//! Containers as sinks. One thread owns the files, because libhdf5 allows only one thread at a time.
//!
//! ```text
//! capture threads ──blocks──► container thread ──► out.h5, or a file for each stream and one that shows all of them;
//!                                       │          out.npy, or another file of samples for each stream
//! recorder ──ScanSink──► Word: scan begun, stream opened, hurry, settle, end ─┘
//! ```
//!
//! The files equal those that `convert` makes of a scan. A stream of datagrams becomes frames or bytes, and a PandA
//! becomes a column for each of its fields. In files of samples, the payloads of frames are numbers without headers.
//!
//! - `file`: what every format of files can do
//! - `files`: names of the files, and what happens to files that exist already
//! - `output`: the streams of a scan, each with its file
//! - `thread`: the writer

mod file;
mod files;
mod output;
mod thread;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use fullbore_capture::StreamMetrics;
use fullbore_core::account::Account;
use fullbore_core::layout::Geometry;
use fullbore_core::manifest::{self, Format, Manifest, State, Stream};
use fullbore_core::panda::AcquisitionResult;
use fullbore_hdf5::Ending;
use fullbore_linux::ring::Notifier;
use fullbore_linux::sys::memory::Region;
use fullbore_linux::writer_thread::WriterThread;
use uuid::Uuid;

pub use self::file::ContainerError;
pub use self::files::{ContainerConfig, ContainerFormat};
use self::output::Description;
use self::thread::{ContainerThread, EndOfFile, EndOfScan, Settled, Word};
use super::store::metadata_writer::PendingReplies;
use super::{ScanSink, Sink, Target, WriterLink, device_of};
use crate::error::RecordError;
use crate::event::{Event, EventHandler, SealedFile};

/// At most one part in this many of the smallest pool may be held until a flush.
const HELD: u64 = 8;

/// Streams are not cut into files; this is the largest chunk that a geometry allows.
const CHUNK_BYTES: u64 = 64 << 30;

/// A block that is not full is passed on after a part of the flush interval, within these bounds.
const PASSED_ON: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(250));

/// An open container.
pub struct ContainerSink {
    config: ContainerConfig,
    targets: Vec<Target>,
    words: Option<Words>,
    /// The number of scans that were planned.
    scans: AtomicU64,
}

impl ContainerSink {
    /// Checks the paths of the files. Nothing is created yet.
    pub(super) fn open(
        config: &ContainerConfig,
        tell: &mut EventHandler<'_>,
    ) -> Result<Self, RecordError> {
        config.check()?;
        if let Some(text) = config.warning_of_place() {
            tell(&Event::Warning { text });
        }
        let device = device_of(config.folder());
        let targets =
            vec![Target { path: config.template.clone(), buffered: true, device, span: None }];
        Ok(Self { config: config.clone(), targets, words: None, scans: AtomicU64::new(0) })
    }
}

impl Sink for ContainerSink {
    fn targets(&self) -> &[Target] {
        &self.targets
    }

    fn chunk_bytes(&self) -> u64 {
        CHUNK_BYTES
    }

    fn takes_one_stream(&self) -> bool {
        // The file has the name that the user gave; there is no second file.
        self.config.single
    }

    fn keeps_empty_scans(&self) -> bool {
        false
    }

    fn takes_short_blocks_after(&self) -> Option<Duration> {
        Some((self.config.format.flush() / 4).clamp(PASSED_ON.0, PASSED_ON.1))
    }

    fn prepare(&mut self, tell: &mut EventHandler<'_>) -> Result<(), RecordError> {
        if self.config.has_rows {
            let why = match self.config.format {
                ContainerFormat::Hdf5(_) => "HDF5 lays out the data",
                ContainerFormat::Samples { .. } => "headers and payloads are taken apart",
            };
            let text = format!(
                "{} is written through the page cache, because {why}; recording into a store, and converting it \
                 later, takes less CPU time",
                self.config.template.display()
            );
            tell(&Event::Note { text });
        }
        Ok(())
    }

    fn start(
        &mut self,
        mut links: Vec<WriterLink>,
        _memory: &[Arc<Region>],
        pool_bytes: u64,
    ) -> Result<Vec<WriterThread>, RecordError> {
        let link = links.pop().expect("a container has one target");
        let (words, receiver) = mpsc::channel();
        self.words = Some(Words { words, notifier: link.notifier.clone() });
        let config = self.config.clone();
        let name = match config.format {
            ContainerFormat::Hdf5(_) => "hdf5",
            ContainerFormat::Samples { .. } => "samples",
        };
        link.spawn(name, move |link| {
            ContainerThread::new(link, receiver, config, pool_bytes / HELD).run();
        })
    }

    fn plan_scan(&self, manifest: &mut Manifest, failures: &[Option<String>]) -> Box<dyn ScanSink> {
        let number = self.scans.fetch_add(1, Ordering::Relaxed) + 1;
        manifest.members = vec![manifest::Member {
            uuid: Uuid::nil(),
            path: self.config.path(number),
            failure: failures[0].clone(),
            buffered: true,
        }];
        let words = self.words.clone().expect("its thread was started");
        Box::new(ContainerScan {
            config: self.config.clone(),
            number,
            uuid: manifest.uuid,
            scan: manifest.scan.to_string(),
            software: manifest.software.clone(),
            host: manifest.host.clone(),
            words,
            files: Vec::new(),
        })
    }

    fn free_bytes(&self, _writer: usize) -> u64 {
        let found = rustix::fs::statvfs(self.config.folder());
        found.map_or(0, |found| found.f_bavail.saturating_mul(found.f_frsize))
    }
}

/// The way to the container thread.
#[derive(Clone)]
struct Words {
    words: Sender<(Uuid, Word)>,
    notifier: Arc<Notifier>,
}

impl Words {
    fn tell(&self, scan: Uuid, word: Word) {
        // If the container thread is gone, it has failed and has reported its end.
        let _ = self.words.send((scan, word));
        self.notifier.wake();
    }
}

/// A scan that goes into a container.
struct ContainerScan {
    config: ContainerConfig,
    /// Counted from 1.
    number: u64,
    uuid: Uuid,
    scan: String,
    software: String,
    host: String,
    words: Words,
    /// Its files, once they have ended.
    files: Vec<SealedFile>,
}

impl ContainerScan {
    fn tell(&self, word: Word) {
        self.words.tell(self.uuid, word);
    }

    fn end_of(&self, stream: &Stream, account: Option<&Account>, state: State) -> EndOfFile {
        EndOfFile {
            path: self.config.path_of(self.number, stream.name.as_str()),
            stream: stream.name.clone(),
            format: stream.format.clone(),
            frame_bytes: stream.geometry.map_or(0, |geometry: Geometry| geometry.frame_bytes),
            ending: Ending::of_stream(state, &stream.format, account, None),
            account: account.cloned(),
        }
    }
}

impl ScanSink for ContainerScan {
    fn begin(
        &mut self,
        _manifest: &mut Manifest,
        _claimed: PendingReplies,
    ) -> Result<Vec<String>, RecordError> {
        self.tell(Word::Begun(self.number));
        Ok(Vec::new())
    }

    fn stream_opened(&mut self, number: u16, stream: &Stream, metrics: &Arc<StreamMetrics>) {
        let Some(geometry) = stream.geometry else { return };
        self.tell(Word::Opened(Box::new(Description {
            number,
            path: self.config.path_of(self.number, stream.name.as_str()),
            scan: self.scan.clone(),
            name: stream.name.clone(),
            format: stream.format.clone(),
            geometry,
            fill: stream.fill,
            samples: stream.samples.clone(),
            software: self.software.clone(),
            host: self.host.clone(),
            source: stream.source.clone(),
            list: self.config.master(self.number),
            metrics: metrics.clone(),
            has_settings: false,
        })));
    }

    fn stream_described(&mut self, number: u16, stream: &Stream) {
        self.tell(Word::Described(number, Box::new(stream.format.clone())));
    }

    fn ending(&mut self) {
        self.tell(Word::Hurry);
    }

    /// Counts the samples of a PandA that its file does not hold after a failed write.
    fn settle(
        &mut self,
        manifest: &mut Manifest,
        accounts: &mut BTreeMap<u16, Account>,
    ) -> Vec<String> {
        let (answer, settled) = mpsc::channel();
        self.tell(Word::Settle(answer));
        for (number, settled) in settled.recv().unwrap_or_default() {
            let stream = &mut manifest.streams[usize::from(number)];
            if let Some(account) = accounts.get_mut(&number) {
                correct(&mut stream.format, account, settled);
                stream.bytes = account.bytes;
            }
        }
        Vec::new()
    }

    fn seal(
        &mut self,
        manifest: &mut Manifest,
        accounts: &BTreeMap<u16, Account>,
        state: State,
    ) -> Result<(), RecordError> {
        let streams = (0..).zip(&manifest.streams);
        let files = streams
            .map(|(number, stream)| (number, self.end_of(stream, accounts.get(&number), state)));
        let end = EndOfScan { scan: self.scan.clone(), files: files.collect() };
        let (answer, ended) = mpsc::channel();
        self.tell(Word::End(end, answer));
        manifest.state = state;
        match ended.recv() {
            Ok(ended) => self.files = ended?,
            Err(_) => {
                let why = "the thread that writes the file failed; `fullbore recover` repairs it";
                return Err(RecordError::Broken { why: why.into() });
            }
        }
        Ok(())
    }

    fn files(&mut self) -> Vec<SealedFile> {
        std::mem::take(&mut self.files)
    }
}

/// A scan that has not ended by now never will, and the next one may be written.
impl Drop for ContainerScan {
    fn drop(&mut self) {
        self.tell(Word::Leave);
    }
}

/// Corrects the account of an acquisition by the contents of its file.
fn correct(format: &mut Format, account: &mut Account, settled: Settled) {
    let Format::Panda { ending: Some(ending), captured, connections, notes, .. } = format else {
        return;
    };
    notes.extend(settled.notes);
    let Some(rows) = settled.rows else { return };
    let (connections, before) = (connections.clone(), std::mem::take(notes));
    let sample_bytes = account.bytes.checked_div(account.terms.written).unwrap_or(0);
    let mut result = AcquisitionResult::restored(
        account.clone(),
        ending.clone(),
        *captured,
        connections,
        before,
    );
    result.keep(rows, "the file took no more");
    (*account, *notes) = (result.account, result.notes);
    account.bytes = account.terms.written * sample_bytes;
}
