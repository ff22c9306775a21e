//! A plain file of frames that carry their own time, played like a recording.
//!
//! A separate thread reads ahead, because a slow disk would disturb the pace of the sending thread.

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use fullbore_core::hint::with_causes;
use fullbore_formats::framed::{FrameCodec, FrameKind};
use fullbore_formats::vdif::{Header, Timeline};
use fullbore_linux::read_at::ReadAt;
use fullbore_time::{Tai, frame_ns};

use super::stored::MOST_LOSSES;
use super::{Frame, FrameSource, HeaderClock, SourceError};

/// The approximate size of one read.
const RUN_BYTES: usize = 1 << 20;

/// Runs in memory: the one being played, and those read ahead.
const RUNS: usize = 9;

/// The number of headers read to learn the frame rate: more than a second of any known stream.
const MOST_LOOKED_AT: u64 = 1 << 21;

/// A file that cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file cannot be read.
    #[error("{}: reading {length} bytes at offset {offset}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The offset.
        offset: u64,
        /// The number of bytes.
        length: usize,
        /// The system's error.
        source: io::Error,
    },
    /// The file cannot be opened.
    #[error("{}: opening it", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// No reading thread could be started.
    #[error("{}: starting a thread to read it", path.display())]
    Thread {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file does not begin with a frame.
    #[error("{}: it does not begin with a whole frame ({})", path.display(), names())]
    Form {
        /// The file.
        path: PathBuf,
    },
}

/// Returns the names of all formats.
fn names() -> String {
    let names: Vec<&str> = FrameKind::ALL.iter().map(|kind| kind.title()).collect();
    names.join(", ")
}

/// The frames of a file; all have the length of the first.
#[derive(Debug)]
pub struct FrameFile {
    path: PathBuf,
    file: Arc<dyn ReadAt>,
    codec: FrameCodec,
    frame_bytes: usize,
    /// Frames per second of each thread, if known.
    frames_per_second: Option<u64>,
    /// Whole frames in the file.
    frames: u64,
    /// The reading thread, once it is started.
    ahead: Option<Ahead>,
    run: Vec<u8>,
    told: Vec<FrameInfo>,
    /// The header of the first frame.
    first: Header,
    /// The time of the last trustworthy frame.
    latest: Option<Tai>,
    /// Notes on unreadable parts, and the number of their frames.
    losses: Vec<String>,
    lost_frames: u64,
}

/// The channels of the reading thread; it ends when they are dropped.
#[derive(Debug)]
struct Ahead {
    filled: Receiver<Result<Vec<u8>, FileError>>,
    empty: SyncSender<Vec<u8>>,
    /// Each message requests one more pass over the file.
    again: Sender<()>,
    /// Runs of this turn that have not been taken yet.
    left: u64,
    /// True if the next turn was requested.
    requested: bool,
}

/// The contents of a frame's header.
#[derive(Clone, Copy, Debug)]
struct FrameInfo {
    time: Option<Tai>,
    fill: bool,
}

impl FrameFile {
    /// Opens a file and learns its frame rate from its headers, unless it is given.
    ///
    /// Frames whose headers leave out the year are within 500 days of `near`; by default of the last change of the file.
    pub fn open(
        path: &Path,
        frames_per_second: Option<u64>,
        near: Option<Tai>,
    ) -> Result<Self, FileError> {
        let open = |source| FileError::Open { path: path.to_owned(), source };
        let file = File::open(path).map_err(open)?;
        let metadata = file.metadata().map_err(open)?;
        let changed = (metadata.mtime(), metadata.mtime_nsec());
        let near = near.unwrap_or_else(|| {
            let ns = i128::from(changed.0) * 1_000_000_000 + i128::from(changed.1);
            Tai::from_unix_ns(ns)
        });
        Self::of_bytes(path, Arc::new(file), metadata.len(), frames_per_second, near)
    }

    /// The same for bytes that are no file of their own; `path` is their name.
    pub fn of_bytes(
        path: &Path,
        file: Arc<dyn ReadAt>,
        bytes: u64,
        frames_per_second: Option<u64>,
        near: Tai,
    ) -> Result<Self, FileError> {
        let form = || FileError::Form { path: path.to_owned() };
        let mut start = vec![0; Header::BYTES.min(bytes as usize)];
        read_at(&*file, path, &mut start, 0)?;
        let kind = FrameKind::of_start(&start).ok_or_else(form)?;
        let codec = FrameCodec::new(kind, near);
        let header = codec.read(&start).ok_or_else(form)?;
        let frame_bytes = codec.frame_bytes(&header) as usize;
        if frame_bytes <= codec.header_bytes(&header) || frame_bytes as u64 > bytes {
            return Err(form());
        }
        let mut this = FrameFile {
            path: path.to_owned(),
            file,
            codec,
            frame_bytes,
            frames_per_second,
            frames: bytes / frame_bytes as u64,
            ahead: None,
            run: Vec::new(),
            told: Vec::new(),
            first: header,
            latest: None,
            losses: Vec::new(),
            lost_frames: 0,
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

    /// The time of the first frame.
    pub fn first(&self) -> Option<Tai> {
        let rate = self.frames_per_second?;
        let after = frame_ns(u64::from(self.first.frame_number()), rate);
        Some(self.first.second().start().plus_ns(after))
    }

    /// Follows the thread of the first frame across the first change of seconds.
    fn learn_rate(&self, first: Header) -> Result<Option<u64>, FileError> {
        let mut timeline = Timeline::new(None);
        let mut bytes = vec![0; self.codec.kind().head_bytes().min(self.frame_bytes)];
        for frame in 0..self.frames.min(MOST_LOOKED_AT) {
            read_at(&*self.file, &self.path, &mut bytes, frame * self.frame_bytes as u64)?;
            let Some(header) = self.codec.read(&bytes) else { continue };
            let frame_bytes = self.codec.frame_bytes(&header) as usize;
            if header.thread() != first.thread() || frame_bytes != self.frame_bytes {
                continue;
            }
            timeline.observe(&header);
            if timeline.frames_per_second().is_some() {
                break;
            }
        }
        Ok(timeline.frames_per_second())
    }

    /// Reads the header of a frame. Frames marked invalid may have wrong times, so their times count only within a
    /// second of the last good one.
    fn told(&mut self, frame: &[u8]) -> FrameInfo {
        let Some(header) = self.codec.read(frame) else {
            return FrameInfo { time: self.latest, fill: false };
        };
        let time = self.frames_per_second.map(|rate| {
            let after = frame_ns(u64::from(header.frame_number()), rate);
            header.second().start().plus_ns(after)
        });
        let whole = self.codec.frame_bytes(&header) as usize == self.frame_bytes;
        let fill = self.codec.is_fill(&header, frame);
        if whole && !header.invalid() && !fill {
            self.latest = time;
            return FrameInfo { time, fill: false };
        }
        let near = |time: Tai, latest: Tai| time.since(latest).abs() < 1_000_000_000;
        let time = match (time, self.latest) {
            (Some(time), Some(latest)) if !near(time, latest) => Some(latest),
            (time, latest) => time.or(latest),
        };
        FrameInfo { time, fill }
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

/// Starts a thread that reads the whole frames of a file from its start, once for each request.
fn read_ahead(
    path: &Path,
    file: &Arc<dyn ReadAt>,
    frame_bytes: usize,
    frames: u64,
) -> Result<Ahead, FileError> {
    let (fill, filled) = sync_channel(RUNS);
    let (empty, emptied) = sync_channel::<Vec<u8>>(RUNS);
    for _ in 1..RUNS {
        // The queue has room for all of them.
        let _ = empty.try_send(Vec::new());
    }
    let each = frames_of_run(frame_bytes);
    let (own_path, file) = (path.to_owned(), file.clone());
    let (again, requested) = channel();
    let read = move || loop {
        for first in (0..frames).step_by(each as usize) {
            let Ok(mut run) = emptied.recv() else { return };
            run.resize(each.min(frames - first) as usize * frame_bytes, 0);
            let read = read_at(&*file, &own_path, &mut run, first * frame_bytes as u64);
            if fill.send(read.map(|()| run)).is_err() {
                return;
            }
        }
        if requested.recv().is_err() {
            return;
        }
    };
    let thread = std::thread::Builder::new().name("read-ahead".into()).spawn(read);
    thread.map_err(|source| FileError::Thread { path: path.to_owned(), source })?;
    Ok(Ahead { filled, empty, again, left: frames.div_ceil(each), requested: false })
}

/// The number of whole frames in one read.
fn frames_of_run(frame_bytes: usize) -> u64 {
    (RUN_BYTES / frame_bytes).max(1) as u64
}

impl FrameSource for FrameFile {
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
                // The memory is kept for the first run of the next turn.
                self.run = memory;
                return Ok(false);
            }
            // A thread that has ended takes no more.
            let _ = ahead.empty.send(memory);
            ahead.left -= 1;
            match ahead.filled.recv() {
                Ok(Ok(run)) => break run,
                Ok(Err(error)) => {
                    // Reading continues after the unreadable part, with new memory in place of that which the error
                    // took.
                    memory = Vec::new();
                    let each = frames_of_run(self.frame_bytes);
                    let last = self.frames - self.frames.saturating_sub(1) / each * each;
                    self.lost_frames += if ahead.left == 0 { last } else { each };
                    if self.losses.len() < MOST_LOSSES {
                        self.losses.push(with_causes(&error));
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
        let FrameInfo { time, fill } = self.told[n];
        let bytes = &self.run[n * self.frame_bytes..(n + 1) * self.frame_bytes];
        Frame { bytes, time, fill, dated: Some(self.codec) }
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        match &mut self.ahead {
            Some(ahead) if ahead.requested && ahead.left == 0 => {
                ahead.left = self.frames.div_ceil(frames_of_run(self.frame_bytes));
                ahead.requested = false;
            }
            _ => (self.ahead, self.run) = (None, Vec::new()),
        }
        self.latest = None;
        self.told.clear();
        Ok(())
    }

    fn again(&mut self) -> Result<(), SourceError> {
        match &mut self.ahead {
            None => {
                let (bytes, frames) = (self.frame_bytes, self.frames);
                self.ahead = Some(read_ahead(&self.path, &self.file, bytes, frames)?);
            }
            // A thread that has ended cannot read again, so a new one is started.
            Some(ahead) if !ahead.requested => ahead.requested = ahead.again.send(()).is_ok(),
            Some(_) => {}
        }
        Ok(())
    }

    fn header_clock(&self) -> HeaderClock {
        HeaderClock::of(self.frames_per_second)
    }

    fn losses(&self) -> &[String] {
        &self.losses
    }

    fn lost_frames(&self) -> u64 {
        self.lost_frames
    }
}
