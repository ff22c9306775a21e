//! Datagrams written onto a device: the capture thread of the recorder, with a device in the place of a disk set.
//!
//! The capture thread and its dealer see one member. What the supervisor of a store does for many scans of many
//! streams, this does for one.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU16;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use fullbore_core::account::{Account, Host, HostMember, judge_together};
use fullbore_core::device::{Direction, End, Event as Step, Session};
use fullbore_core::endpoint::{Threads, UdpSource};
use fullbore_core::manifest::Format;
use fullbore_core::name::ScanName;
use fullbore_core::time::Tai;
use uuid::Uuid;

use super::error::Error;
use super::record::{Durable, Limit, Progress, Stage};
use super::writer::Writer;
use crate::clock::Clock;
use crate::posting::Posting;
use crate::recorder::{Control, LEAVE, within_limits};
use crate::ring::{Gauge, Report};
use crate::source::{Capture, Lane, Notice, Opening, Order, Port, Scratch, Settings, StreamGauge};
use crate::witness;

/// Time between two looks at everything.
const TICK: Duration = Duration::from_millis(20);

/// Time between two reports of progress.
const PROGRESS: Duration = Duration::from_millis(250);

/// Receive buffer of the socket if nothing is said.
const RECEIVE_BUFFER: u64 = 64 << 20;

/// A chunk file of a store, which there is none of here: as large as a geometry allows.
const CHUNK_BYTES: u64 = 64 << 30;

/// Refuses what cannot be kept on a device, and opens the socket with its block memory.
pub(super) fn listen(source: &UdpSource, pool_bytes: u64) -> Result<Port, Error> {
    if source.varying {
        return Err(Error::Varying);
    }
    match &source.threads {
        Threads::Split => return Err(Error::Streams { streams: 2 }),
        Threads::Together | Threads::Listed(_) => {}
    }
    let buffer = source.receive_buffer.map_or(RECEIVE_BUFFER, |size| size.0);
    let next = Arc::new(AtomicU16::new(1));
    let mut port =
        Port::open(source.clone(), 0, next, pool_bytes as usize, CHUNK_BYTES, buffer as usize)?;
    // A session is one run of addresses.
    port.keep_to_one_stream();
    Ok(port)
}

/// What is known of a stream once its first frames came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub vdif: bool,
    pub frame_bytes: u32,
    pub block_bytes: u32,
    pub frames_per_second: Option<u64>,
}

/// What came of it.
pub(super) struct Captured {
    pub session: Session,
    pub known: Option<Known>,
    pub account: Option<Account>,
    pub blocks: u64,
    pub durable: Durable,
    pub failure: Option<String>,
    pub limited: bool,
    /// There was no more room.
    pub full: bool,
    pub seconds: f64,
}

/// The threads of it.
pub(super) struct Rig {
    pub lane: Lane,
    pub gauge: Arc<Gauge>,
    pub reports: Receiver<Report>,
    pub writer: Writer,
}

/// What is to be done.
pub(super) struct Setup<'a> {
    pub source: &'a UdpSource,
    pub scan: ScanName,
    pub uuid: Uuid,
    pub session: Session,
    pub limit: Limit,
    pub cpu: Option<usize>,
    pub path: &'a Path,
    /// Told once the scan has begun: whatever is sent from then on is recorded.
    pub armed: Stage,
}

struct Watch<'a> {
    setup: Setup<'a>,
    capture: Capture,
    gauge: Arc<Gauge>,
    stream: Option<Arc<StreamGauge>>,
    known: Option<Known>,
    account: Option<Account>,
    /// What other streams' losses show too, when the stream ended.
    shared: Option<witness::Reading>,
    clock: Clock,
    armed: Tai,
    stopped: Option<Tai>,
    written: (u64, u64),
    /// Whether there is a stream, which the writer then finishes.
    ended: bool,
    durable: Durable,
    failure: Option<String>,
    limited: bool,
    full: bool,
    asked: u8,
    captured: bool,
    finished: bool,
    broken: bool,
    begun: Instant,
    told: (Instant, u64),
}

/// Records until a limit is reached, the device is full, or an end is asked for.
pub(super) fn capture(
    setup: Setup<'_>,
    mut port: Port,
    rig: Rig,
    control: &Control,
    tell: &mut dyn FnMut(&Stage),
    opened: &mut dyn FnMut(Known) -> Result<(), Error>,
) -> Result<Captured, Error> {
    let Rig { lane, gauge, reports, writer } = rig;
    port.drain(&mut Scratch::new()).map_err(|source| Error::Thread { source })?;
    if let Some(text) = port.warning() {
        tell(&Stage::Warning { text });
    }
    let (notices, heard) = mpsc::channel();
    let settings =
        Settings { posting: Posting::on(setup.cpu), hold: false, tails: None, redundancy: None };
    let capture = Capture::start(0, vec![port], vec![lane], notices, settings)
        .map_err(|source| Error::Thread { source })?;
    let before = witness::Reading::take(Path::new("/"));
    let opening = Opening { uuid: setup.uuid, scan: setup.scan.clone(), single: true };
    capture.order(Order::Begin(Arc::new(opening)));
    tell(&setup.armed);
    let begun = Instant::now();
    let clock = Clock::new();
    let mut watch = Watch {
        setup,
        capture,
        gauge,
        stream: None,
        known: None,
        account: None,
        shared: None,
        armed: clock.now(),
        stopped: None,
        clock,
        written: (0, 0),
        ended: false,
        durable: Durable::default(),
        failure: None,
        limited: false,
        full: false,
        asked: 0,
        captured: false,
        finished: false,
        broken: false,
        begun,
        told: (begun, 0),
    };
    while !watch.is_over() {
        watch.listen(&heard, &reports, tell, opened)?;
        if control.asked() >= LEAVE {
            return Err(Error::Left { path: watch.setup.path.to_owned() });
        }
        watch.obey(control);
        watch.tell(tell);
    }
    let seconds = watch.begun.elapsed().as_secs_f64();
    watch.end(writer, &before, seconds)
}

impl Watch<'_> {
    /// The capture thread has ended, and what it handed on is durable.
    fn is_over(&self) -> bool {
        // A stream of which nothing came is not finished by anyone.
        self.captured && (self.finished || !self.ended || self.broken)
    }

    fn listen(
        &mut self,
        heard: &Receiver<Notice>,
        reports: &Receiver<Report>,
        tell: &mut dyn FnMut(&Stage),
        opened: &mut dyn FnMut(Known) -> Result<(), Error>,
    ) -> Result<(), Error> {
        match heard.recv_timeout(TICK) {
            Ok(notice) => self.notice(notice, tell, opened)?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                self.captured = true;
                std::thread::sleep(TICK);
            }
        }
        while let Ok(notice) = heard.try_recv() {
            self.notice(notice, tell, opened)?;
        }
        loop {
            match reports.try_recv() {
                Ok(Report::Durable { sequences, bytes, .. }) => {
                    self.durable.grow(&sequences, bytes)
                }
                Ok(Report::Failed { why, .. }) => {
                    tell(&Stage::Warning { text: format!("the device takes no more data: {why}") });
                    self.failure.get_or_insert(why);
                }
                Ok(Report::Finished { .. }) => self.finished = true,
                // Nobody recalls a drive.
                Ok(Report::Back { .. }) => {}
                Err(TryRecvError::Empty) => return Ok(()),
                Ok(Report::Gone { .. }) | Err(TryRecvError::Disconnected) => {
                    self.broken |= !self.finished;
                    return Ok(());
                }
            }
        }
    }

    fn notice(
        &mut self,
        notice: Notice,
        tell: &mut dyn FnMut(&Stage),
        opened: &mut dyn FnMut(Known) -> Result<(), Error>,
    ) -> Result<(), Error> {
        match notice {
            Notice::Opened { shape, format, gauge, .. } => {
                let known = Known {
                    vdif: matches!(format, Format::Vdif { .. }),
                    frame_bytes: shape.geometry.frame_bytes,
                    block_bytes: shape.geometry.block_bytes,
                    frames_per_second: rate_of(&format),
                };
                (self.known, self.stream) = (Some(known), Some(gauge));
                opened(known)?;
            }
            Notice::Described { format, .. } => {
                if let Some(known) = &mut self.known {
                    known.frames_per_second = rate_of(&format);
                    opened(*known)?;
                }
            }
            Notice::Ended { format, blocks, bytes, account, .. } => {
                if let Some(known) = &mut self.known {
                    known.frames_per_second = rate_of(&format);
                }
                (self.written, self.ended) = ((blocks, bytes), true);
                self.shared = Some(witness::Reading::take(Path::new("/")));
                self.account = Some(*account);
            }
            Notice::Unrecognised { .. } => {}
            Notice::Silent { account, .. } => {
                self.shared = Some(witness::Reading::take(Path::new("/")));
                self.account = Some(*account);
            }
            Notice::Closed { .. } => {}
            Notice::Done => self.captured = true,
            Notice::Warning { text } => tell(&Stage::Warning { text }),
            Notice::Broken { why } => {
                tell(&Stage::Warning { text: why.clone() });
                self.failure.get_or_insert(why);
            }
        }
        Ok(())
    }

    fn obey(&mut self, control: &Control) {
        let Limit { duration, bytes } = self.setup.limit;
        let received = self.stream.as_ref().map_or(0, |gauge| gauge.bytes.load(Relaxed));
        let limited = duration.is_some_and(|duration| self.begun.elapsed() >= duration)
            || bytes.is_some_and(|bytes| received >= bytes);
        let refusing = self.gauge.refusing.load(Relaxed);
        let wanted = match control.asked() {
            0 if limited || refusing => 1,
            asked => asked,
        };
        if wanted > self.asked {
            if self.asked == 0 {
                self.stopped = Some(self.clock.now());
                self.limited = limited && control.asked() == 0;
                self.full = refusing && self.failure.is_none();
            }
            self.asked = wanted;
            self.capture.order(if wanted > 1 { Order::Abort } else { Order::Stop });
        }
    }

    fn tell(&mut self, tell: &mut dyn FnMut(&Stage)) {
        if self.told.0.elapsed() < PROGRESS {
            return;
        }
        let seconds = self.told.0.elapsed().as_secs_f64();
        let bytes = self.gauge.written_bytes.load(Relaxed);
        let counted = |counter: fn(&StreamGauge) -> u64| self.stream.as_deref().map_or(0, counter);
        let mut session = self.setup.session.clone();
        moved(&mut session, bytes);
        tell(&Stage::Progress(Progress {
            status: session.status(),
            seconds: self.begun.elapsed().as_secs_f64(),
            bytes,
            durable_bytes: self.durable.bytes,
            rate: (bytes.saturating_sub(self.told.1) as f64 / seconds) as u64,
            backlog_bytes: self.gauge.backlog_bytes.load(Relaxed),
            room_bytes: self.setup.session.span().bytes().saturating_sub(bytes),
            missing: counted(|gauge| gauge.missing.load(Relaxed)),
            overrun: counted(|gauge| gauge.overrun.load(Relaxed)),
        }));
        self.told = (Instant::now(), bytes);
    }

    fn end(
        mut self,
        writer: Writer,
        before: &witness::Reading,
        seconds: f64,
    ) -> Result<Captured, Error> {
        let host = self.host();
        self.capture.join();
        writer.join()?;
        if self.broken {
            return Err(Error::Broken);
        }
        if let Some(account) = &mut self.account {
            let (source, after) = (self.setup.source, self.shared.as_ref().unwrap_or(before));
            let (shared, unread) =
                before.until(after, source.address.ip(), source.interface.as_deref());
            account.witnesses.extend(shared);
            account.unread.extend(unread);
            account.host = host;
            match (account.first, account.last) {
                (Some(first), Some(last)) if self.limited => {
                    let (armed, stopped) = (self.armed, self.stopped);
                    account.presence.extend(within_limits(armed, stopped, first.seen, last.seen));
                }
                (Some(_), Some(_)) => {}
                _ => account.presence.push(account.absence()),
            }
            assert!(account.terms.balance(), "{:?}", account.terms);
            judge_together([account]);
        }
        let (blocks, bytes) = self.written;
        let mut session = self.setup.session;
        if self.full {
            // No further block fits, so these are all the bytes that there is room for.
            session = Session::new(Direction::Write, session.span(), Some(bytes), false);
        }
        moved(&mut session, bytes);
        session.step(match (&self.failure, self.asked) {
            (Some(_), _) => Step::Failed,
            (None, 2..) => Step::Abort,
            // A limit that was set is the end that was wanted.
            (None, _) => Step::Stop,
        });
        if session.end() != Some(End::Failed) {
            session.step(Step::Dry);
        }
        Ok(Captured {
            session,
            known: self.known,
            account: self.account,
            blocks,
            durable: self.durable,
            failure: self.failure,
            limited: self.limited,
            full: self.full,
            seconds,
        })
    }

    fn host(&self) -> Option<Host> {
        let stream = self.stream.as_ref()?;
        Some(Host {
            pool_blocks: stream.pool_blocks.load(Relaxed),
            high_water: stream.high_water.load(Relaxed),
            tide: None,
            members: vec![HostMember {
                path: self.setup.path.display().to_string(),
                longest_write_ns: self.gauge.longest_write_ns.load(Relaxed),
                failure: self.failure.clone(),
            }],
        })
    }
}

/// Tells a session what the capture thread has had written.
fn moved(session: &mut Session, bytes: u64) {
    let bytes = bytes.min(session.room());
    if bytes > 0 {
        session.step(Step::Taken(bytes));
        session.step(Step::Written(bytes));
    }
}

fn rate_of(format: &Format) -> Option<u64> {
    match format {
        Format::Vdif { frames_per_second, .. } => *frames_per_second,
        Format::Panda { .. } | Format::Raw => None,
    }
}
