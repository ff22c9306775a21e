//! A plain file of VDIF frames, played like a recording.
//!
//! A thread of its own reads ahead, as a disk that keeps the sending thread waiting would show in the pace.

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use fullbore_core::format::FILL;
use fullbore_core::format::vdif::{Header, Timeline};
use fullbore_core::time::{Tai, frame_ns};

use super::stored::MOST_LOSSES;
use super::{Frame, FrameSource, SourceError};

/// About how much is read at once.
const RUN_BYTES: usize = 1 << 20;

/// Runs in memory: the one being played and those read ahead.
const RUNS: usize = 9;

/// Headers looked at to learn the frame rate: more than a second of any stream known.
const MOST_LOOKED_AT: u64 = 1 << 21;

/// A file that cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("{}: reading {length} bytes at offset {offset}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// How much.
        length: usize,
        /// What the system said.
        source: io::Error,
    },
    /// It cannot be opened.
    #[error("{}: opening it", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// No thread could be started for it.
    #[error("{}: starting a thread to read it", path.display())]
    Thread {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It does not begin with a VDIF frame.
    #[error("{}: it does not begin with a whole VDIF frame", path.display())]
    Form {
        /// The file.
        path: PathBuf,
    },
}

/// Bytes of which any piece can be read: those of a file, or what lies on a device.
pub trait ReadAt: Debug + Send + Sync {
    /// Reads all of `into` from `offset` on.
    fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()>;
}

impl ReadAt for File {
    fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, into, offset)
    }
}

/// The frames of a file; all have the length of the first.
#[derive(Debug)]
pub struct VdifFile {
    path: PathBuf,
    file: Arc<dyn ReadAt>,
    frame_bytes: usize,
    /// Frames per second of each thread, if known.
    frames_per_second: Option<u64>,
    /// Whole frames in the file.
    frames: u64,
    /// The thread that reads, once it has been started.
    ahead: Option<Ahead>,
    run: Vec<u8>,
    told: Vec<Told>,
    /// What the first frame says of itself.
    first: Header,
    /// The time of the last frame that is to be trusted.
    latest: Option<Tai>,
    /// What could not be read.
    losses: Vec<String>,
}

/// The reading thread's ends; it ends when they are dropped.
#[derive(Debug)]
struct Ahead {
    filled: Receiver<Result<Vec<u8>, FileError>>,
    empty: SyncSender<Vec<u8>>,
    /// Each word has the file read once more behind what was read before.
    again: Sender<()>,
    /// Runs of this turn that have not been taken yet.
    left: u64,
    /// The next turn was asked for.
    asked: bool,
}

/// What the header of a frame says.
#[derive(Clone, Copy, Debug)]
struct Told {
    time: Option<Tai>,
    fill: bool,
}

impl VdifFile {
    /// Opens a file and learns its frame rate from its headers, unless it is given.
    pub fn open(path: &Path, frames_per_second: Option<u64>) -> Result<Self, FileError> {
        let open = |source| FileError::Open { path: path.to_owned(), source };
        let file = File::open(path).map_err(open)?;
        let bytes = file.metadata().map_err(open)?.len();
        Self::of_bytes(path, Arc::new(file), bytes, frames_per_second)
    }

    /// The same for bytes that are no file of their own, and are called `path`.
    pub fn of_bytes(
        path: &Path,
        file: Arc<dyn ReadAt>,
        bytes: u64,
        frames_per_second: Option<u64>,
    ) -> Result<Self, FileError> {
        let form = || FileError::Form { path: path.to_owned() };
        let mut start = [0; Header::BYTES];
        if bytes < start.len() as u64 {
            return Err(form());
        }
        read_at(&*file, path, &mut start, 0)?;
        let header = Header::read(&start).map_err(|_| form())?;
        let frame_bytes = header.frame_bytes() as usize;
        if header.payload_bytes() == 0 || frame_bytes as u64 > bytes {
            return Err(form());
        }
        let mut this = VdifFile {
            path: path.to_owned(),
            file,
            frame_bytes,
            frames_per_second,
            frames: bytes / frame_bytes as u64,
            ahead: None,
            run: Vec::new(),
            told: Vec::new(),
            first: header,
            latest: None,
            losses: Vec::new(),
        };
        if this.frames_per_second.is_none() {
            this.frames_per_second = this.learn_rate(header)?;
        }
        Ok(this)
    }

    /// Frames per second of each thread, given or learned.
    pub fn frames_per_second(&self) -> Option<u64> {
        self.frames_per_second
    }

    /// When the first frame is from.
    pub fn first(&self) -> Option<Tai> {
        let rate = self.frames_per_second?;
        let after = frame_ns(u64::from(self.first.frame_number()), rate);
        Some(self.first.second().start().plus_ns(after))
    }

    /// Follows the thread of the first frame over the first change of seconds.
    fn learn_rate(&self, first: Header) -> Result<Option<u64>, FileError> {
        let mut timeline = Timeline::new(None);
        let mut bytes = [0; Header::BYTES];
        for frame in 0..self.frames.min(MOST_LOOKED_AT) {
            read_at(&*self.file, &self.path, &mut bytes, frame * self.frame_bytes as u64)?;
            let Ok(header) = Header::read(&bytes) else { continue };
            if header.thread() != first.thread() || header.frame_bytes() != first.frame_bytes() {
                continue;
            }
            timeline.observe(&header);
            if timeline.frames_per_second().is_some() {
                break;
            }
        }
        Ok(timeline.frames_per_second())
    }

    /// What the header of a frame says. Frames marked invalid may tell wrong times, so theirs is
    /// believed only if it comes within a second of the last good one.
    fn told(&mut self, frame: &[u8]) -> Told {
        let Ok(header) = Header::read(frame) else {
            return Told { time: self.latest, fill: false };
        };
        let time = self.frames_per_second.map(|rate| {
            let after = frame_ns(u64::from(header.frame_number()), rate);
            header.second().start().plus_ns(after)
        });
        let whole = header.frame_bytes() as usize == self.frame_bytes;
        if whole && !header.invalid() {
            self.latest = time;
            return Told { time, fill: false };
        }
        let near = |time: Tai, latest: Tai| time.since(latest).abs() < 1_000_000_000;
        let time = match (time, self.latest) {
            (Some(time), Some(latest)) if !near(time, latest) => Some(latest),
            (time, latest) => time.or(latest),
        };
        let mut words = frame[header.header_bytes()..].chunks_exact(4);
        let fill = header.invalid() && words.all(|word| word == FILL.to_le_bytes());
        Told { time, fill }
    }
}

fn read_at(
    file: &dyn ReadAt,
    path: &Path,
    buffer: &mut [u8],
    offset: u64,
) -> Result<(), FileError> {
    let length = buffer.len();
    file.read_exact_at(buffer, offset).map_err(|source| FileError::Read {
        path: path.to_owned(),
        offset,
        length,
        source,
    })
}

/// An error with its cause.
fn in_full(error: &FileError) -> String {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
    format!("{error}{}", cause.unwrap_or_default())
}

/// Starts a thread that reads the whole frames of a file from its start on, and again as often as asked.
fn read_ahead(
    path: &Path,
    file: &Arc<dyn ReadAt>,
    frame_bytes: usize,
    frames: u64,
) -> Result<Ahead, FileError> {
    let (fill, filled) = sync_channel(RUNS);
    let (empty, emptied) = sync_channel::<Vec<u8>>(RUNS);
    for _ in 1..RUNS {
        // The queue was made to hold them all.
        let _ = empty.try_send(Vec::new());
    }
    let each = frames_of_run(frame_bytes);
    let (own_path, file) = (path.to_owned(), file.clone());
    let (again, asked) = channel();
    let read = move || loop {
        for first in (0..frames).step_by(each as usize) {
            let Ok(mut run) = emptied.recv() else { return };
            run.resize(each.min(frames - first) as usize * frame_bytes, 0);
            let read = read_at(&*file, &own_path, &mut run, first * frame_bytes as u64);
            if fill.send(read.map(|()| run)).is_err() {
                return;
            }
        }
        if asked.recv().is_err() {
            return;
        }
    };
    let thread = std::thread::Builder::new().name("read-ahead".into()).spawn(read);
    thread.map_err(|source| FileError::Thread { path: path.to_owned(), source })?;
    Ok(Ahead { filled, empty, again, left: frames.div_ceil(each), asked: false })
}

/// Whole frames that are read at once.
fn frames_of_run(frame_bytes: usize) -> u64 {
    (RUN_BYTES / frame_bytes).max(1) as u64
}

impl FrameSource for VdifFile {
    fn advance(&mut self) -> Result<bool, SourceError> {
        self.told.clear();
        let ahead = match &mut self.ahead {
            Some(ahead) => ahead,
            None => self.ahead.insert(read_ahead(
                &self.path,
                &self.file,
                self.frame_bytes,
                self.frames,
            )?),
        };
        let mut memory = std::mem::take(&mut self.run);
        let run = loop {
            if ahead.left == 0 {
                // The memory is for the first run of the next turn.
                self.run = memory;
                return Ok(false);
            }
            // A thread that has ended takes no more.
            let _ = ahead.empty.send(memory);
            ahead.left -= 1;
            match ahead.filled.recv() {
                Ok(Ok(run)) => break run,
                Ok(Err(error)) => {
                    // It goes on behind what cannot be read, with memory for that which the error took.
                    memory = Vec::new();
                    if self.losses.len() < MOST_LOSSES {
                        self.losses.push(in_full(&error));
                    }
                }
                Err(_) => return Ok(false),
            }
        };
        for frame in run.chunks_exact(self.frame_bytes) {
            let told = self.told(frame);
            self.told.push(told);
        }
        self.run = run;
        Ok(true)
    }

    fn count(&self) -> usize {
        self.told.len()
    }

    fn frame(&self, n: usize) -> Frame<'_> {
        let Told { time, fill } = self.told[n];
        let bytes = &self.run[n * self.frame_bytes..(n + 1) * self.frame_bytes];
        Frame { bytes, time, fill, dated: bytes.len() >= Header::BYTES }
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        match &mut self.ahead {
            Some(ahead) if ahead.asked && ahead.left == 0 => {
                ahead.left = self.frames.div_ceil(frames_of_run(self.frame_bytes));
                ahead.asked = false;
            }
            _ => (self.ahead, self.run) = (None, Vec::new()),
        }
        self.latest = None;
        self.told.clear();
        Ok(())
    }

    fn again(&mut self) -> Result<(), SourceError> {
        if let Some(ahead) = self.ahead.as_mut().filter(|ahead| !ahead.asked) {
            // A thread that has ended reads nothing any more, and is started anew.
            ahead.asked = ahead.again.send(()).is_ok();
        }
        Ok(())
    }

    fn losses(&self) -> &[String] {
        &self.losses
    }
}
