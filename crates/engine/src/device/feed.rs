//! A source of bytes written as they come: this thread fills blocks, and decides.
//!
//! What is decided is [`Session`]'s; here it is carried out. A source that comes faster than the device is made to
//! wait: no block is free, so nothing is taken.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use fullbore_core::device::{Action, Event, Session};
use fullbore_core::layout::Geometry;
use uuid::Uuid;

use super::error::Error;
use super::input::{Input, Taken};
use super::record::{Durable, Progress, Stage};
use super::writer::Writer;
use crate::clock::Clock;
use crate::recorder::{Control, LEAVE};
use crate::ring::{Block, Command, Filled, Gauge, Pool, Report, Returned, Track, Wake};

/// Time between two reports of progress.
const PROGRESS: Duration = Duration::from_millis(250);

/// A wait for the device to give a block back.
const NAP: Duration = Duration::from_micros(200);

/// Between two looks at whether an end is still waited for.
const PATIENCE: Duration = Duration::from_millis(100);

/// How long an abort goes on dropping what the source has, if it never ends.
const LONGEST_FLUSH: Duration = Duration::from_secs(2);

/// Memory that leftovers are dropped into.
const FLUSH_BYTES: usize = 1 << 20;

/// The way to the writer and back.
pub(super) struct Line {
    /// To the writer.
    pub commands: rtrb::Producer<Command>,
    /// From the writer.
    pub returned: rtrb::Consumer<Returned>,
    /// Its counters.
    pub gauge: Arc<Gauge>,
    /// Wakes it.
    pub wake: Arc<Wake>,
    /// What it reports.
    pub reports: Receiver<Report>,
    /// Itself.
    pub writer: Writer,
}

/// What came of it.
pub(super) struct Fed {
    pub session: Session,
    pub blocks: u64,
    pub durable: Durable,
    pub failure: Option<String>,
    /// Whether a limit of time ended it.
    pub limited: bool,
    pub seconds: f64,
}

struct Feed<'a> {
    path: PathBuf,
    line: Line,
    input: &'a mut dyn Input,
    session: Session,
    pool: Pool,
    track: Arc<Track>,
    /// The block being filled, and how far it is.
    current: Option<(Block, usize)>,
    sequence: u64,
    blocks: u64,
    durable: Durable,
    failure: Option<String>,
    limited: bool,
    flushing: Option<Instant>,
    closed: bool,
    finished: bool,
    /// How often an end was asked for when it was last looked at.
    asked: u8,
    begun: Instant,
    clock: Clock,
}

/// What is to be done.
pub(super) struct Setup {
    pub path: PathBuf,
    pub line: Line,
    pub pool: Pool,
    pub block_bytes: u32,
    pub session: Session,
    pub duration: Option<Duration>,
}

/// Writes what a source gives, until the session is over.
pub(super) fn feed(
    setup: Setup,
    input: &mut dyn Input,
    control: &Control,
    tell: &mut dyn FnMut(&Stage),
) -> Result<Fed, Error> {
    let Setup { path, line, pool, block_bytes, session, duration } = setup;
    let geometry = Geometry { frame_bytes: 0, block_bytes, chunk_blocks: u32::MAX };
    let track = Track { scan: Uuid::nil(), number: 0, directory: String::new(), geometry };
    let mut feed = Feed {
        path,
        line,
        input,
        session,
        pool,
        track: Arc::new(track),
        current: None,
        sequence: 0,
        blocks: 0,
        durable: Durable::default(),
        failure: None,
        limited: false,
        flushing: None,
        closed: false,
        finished: false,
        asked: 0,
        begun: Instant::now(),
        clock: Clock::new(),
    };
    let mut told = (Instant::now(), 0);
    while !feed.closed {
        feed.listen()?;
        feed.wait_no_longer_than(control)?;
        feed.obey(control, duration);
        let moved = feed.fill() || feed.flush();
        if !moved && !feed.closed {
            std::thread::sleep(NAP);
        }
        if told.0.elapsed() >= PROGRESS {
            let progress = feed.progress(told);
            tell(&Stage::Progress(progress));
            told = (Instant::now(), feed.session.written());
        }
    }
    let seconds = feed.begun.elapsed().as_secs_f64();
    feed.finish(control, seconds)
}

impl Feed<'_> {
    /// Takes what the writer gives back, and what it reports.
    fn listen(&mut self) -> Result<(), Error> {
        while let Ok(returned) = self.line.returned.pop() {
            let event = match returned {
                Returned::Written { block, bytes, .. } => {
                    self.pool.put(block);
                    self.blocks += 1;
                    Event::Written(bytes.into())
                }
                Returned::Refused(filled) => {
                    self.pool.put(filled.block);
                    Event::Dropped(filled.bytes.into())
                }
            };
            self.step(event);
        }
        loop {
            match self.line.reports.try_recv() {
                Ok(report) => self.report(report)?,
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Disconnected) => return Err(Error::Broken),
            }
        }
    }

    fn report(&mut self, report: Report) -> Result<(), Error> {
        match report {
            Report::Durable { sequences, bytes, .. } => self.durable.grow(&sequences, bytes),
            Report::Failed { why, .. } => {
                self.failure.get_or_insert(why);
                self.step(Event::Failed);
            }
            Report::Finished { .. } => self.finished = true,
            Report::Gone { .. } => return Err(Error::Broken),
            // Nobody recalls a drive.
            Report::Back { .. } => {}
        }
        Ok(())
    }

    /// Nobody is waited for any more when an end was asked for so often.
    fn wait_no_longer_than(&self, control: &Control) -> Result<(), Error> {
        match control.asked() >= LEAVE {
            true => Err(Error::Left { path: self.path.clone() }),
            false => Ok(()),
        }
    }

    /// Ends when it is asked to, or its time is over.
    fn obey(&mut self, control: &Control, duration: Option<Duration>) {
        let asked = control.asked();
        if asked > self.asked {
            self.asked = asked;
            self.step(if asked > 1 { Event::Abort } else { Event::Stop });
        }
        if !self.limited && duration.is_some_and(|duration| self.begun.elapsed() >= duration) {
            self.limited = self.session.room() > 0;
            self.step(Event::Stop);
        }
    }

    /// Takes from the source into the block being filled. Whether something moved.
    fn fill(&mut self) -> bool {
        let room = self.session.room();
        if room == 0 {
            return false;
        }
        let Some((mut block, filled)) =
            self.current.take().or_else(|| self.pool.take().map(|block| (block, 0)))
        else {
            return false;
        };
        let block_bytes = self.track.geometry.block_bytes as usize;
        let end =
            block_bytes.min(filled.saturating_add(usize::try_from(room).unwrap_or(usize::MAX)));
        let taken = self.input.take(&mut block[filled..end]);
        match taken {
            Ok(Taken::Bytes(bytes)) => {
                let filled = filled + bytes;
                self.current = Some((block, filled));
                if filled == block_bytes {
                    self.send();
                }
                self.step(Event::Taken(bytes as u64));
                true
            }
            Ok(Taken::NotYet) => {
                self.current = Some((block, filled));
                false
            }
            Ok(Taken::End) => {
                self.current = Some((block, filled));
                self.step(Event::SourceEnded);
                true
            }
            Err(error) => {
                self.current = Some((block, filled));
                self.failure.get_or_insert(format!("the source cannot be read: {error}"));
                self.step(Event::SourceEnded);
                true
            }
        }
    }

    /// Drops what the source still has, if that is what is being done. Whether something moved.
    fn flush(&mut self) -> bool {
        let Some(since) = self.flushing else { return false };
        if !self.input.ends() {
            self.step(Event::Dry);
            return true;
        }
        let aborted = self.session.status().has(fullbore_core::device::Word::Aborted);
        let mut leftover = vec![0; FLUSH_BYTES];
        match self.input.take(&mut leftover) {
            Ok(Taken::Bytes(bytes)) => self.step(Event::Flushed(bytes as u64)),
            // Nobody waits for a source that is silent after an abort.
            Ok(Taken::NotYet) if !aborted => return false,
            Ok(Taken::NotYet | Taken::End) | Err(_) => self.step(Event::Dry),
        }
        if aborted && since.elapsed() > LONGEST_FLUSH && self.flushing.is_some() {
            self.step(Event::Dry);
        }
        true
    }

    fn step(&mut self, event: Event) {
        match self.session.step(event) {
            None => {}
            Some(Action::Drain) => self.send(),
            Some(Action::Drop) => {
                // What has not been submitted comes back refused.
                self.line.gauge.refusing.store(true, Relaxed);
                self.line.wake.wake();
                if let Some((block, filled)) = self.current.take() {
                    self.pool.put(block);
                    if filled > 0 {
                        self.step(Event::Dropped(filled as u64));
                    }
                }
            }
            Some(Action::Flush) => self.flushing = Some(Instant::now()),
            Some(Action::Close) => (self.flushing, self.closed) = (None, true),
        }
    }

    /// Gives the block being filled to the writer.
    fn send(&mut self) {
        let Some((block, filled)) = self.current.take() else { return };
        if filled == 0 {
            return self.pool.put(block);
        }
        let block_bytes = u64::from(self.track.geometry.block_bytes);
        let filled = Filled {
            block,
            track: self.track.clone(),
            sequence: self.sequence,
            chunk: 0,
            offset: 0,
            bytes: filled as u32,
            frames: 0,
            present: 0,
            invalid: 0,
            first: (self.sequence * block_bytes) as i64,
            time: None,
            seen: self.clock.now(),
            gaps: Vec::new(),
            lengths: Vec::new(),
            crc: None,
        };
        self.sequence += 1;
        self.line.gauge.backlog_bytes.fetch_add(filled.bytes.into(), Relaxed);
        let sent = self.line.commands.push(Command::Write(filled));
        assert!(sent.is_ok(), "a lane has room for every block of the pool");
        self.line.wake.wake();
    }

    fn progress(&self, (since, before): (Instant, u64)) -> Progress {
        let bytes = self.session.written();
        let seconds = since.elapsed().as_secs_f64().max(1e-3);
        Progress {
            status: self.session.status(),
            seconds: self.begun.elapsed().as_secs_f64(),
            bytes,
            durable_bytes: self.durable.bytes,
            rate: ((bytes - before) as f64 / seconds) as u64,
            backlog_bytes: self.line.gauge.backlog_bytes.load(Relaxed),
            room_bytes: self.session.span().bytes() - bytes,
            missing: 0,
            overrun: 0,
        }
    }

    /// Waits until all that was written is durable, and ends the writer.
    fn finish(mut self, control: &Control, seconds: f64) -> Result<Fed, Error> {
        let finish = Command::Finish { track: self.track.clone(), gaps: Vec::new() };
        let sent = self.line.commands.push(finish);
        assert!(sent.is_ok(), "a lane has room for one finish of every stream");
        self.line.wake.wake();
        while !self.finished {
            match self.line.reports.recv_timeout(PATIENCE) {
                Ok(report) => self.report(report)?,
                Err(RecvTimeoutError::Timeout) => self.wait_no_longer_than(control)?,
                Err(RecvTimeoutError::Disconnected) => return Err(Error::Broken),
            }
        }
        let Line { commands, returned, writer, .. } = self.line;
        drop((commands, returned));
        writer.join()?;
        Ok(Fed {
            session: self.session,
            blocks: self.blocks,
            durable: self.durable,
            failure: self.failure,
            limited: self.limited,
            seconds,
        })
    }
}
