//! A PandA recorded into the store: its capture thread obeys the supervisor's orders like any other.
//!
//! ```text
//! supervisor ──Begin(scan n)──► outlet ◄──acquisition n── capture thread ──blocks──► dealer ──► members
//!      ▲                          │
//!      └── Opened, Ended, Closed ─┘      an acquisition that has ended ends its scan
//! ```
//!
//! Samples lie one after the other as they came, without the heads of their frames, so chunk files are
//! packed structures of one length. What lies between two of them is in the account.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use fullbore_core::account::{Account, CountedBy};
use fullbore_core::format::panda::control::Settings as PandaSettings;
use fullbore_core::format::panda::{Closed, PandaSource};
use fullbore_core::layout::{BLOCK_BYTES, CHUNK_BYTES, Geometry};
use fullbore_core::manifest::{Fill, Format};
use fullbore_core::tail::Piece;

use super::error::RecordError;
use super::plan::{PandaPlan, Plan};
use crate::clock::Clock;
use crate::panda::capture::{
    self, Acquisition, Asked, Batch, Described, Ended, Halted, Outlet, Panda, Settings, Source,
};
use crate::panda::with_cause;
use crate::posting::Posting;
use crate::ring::{Block, Filled, Pool, Returned, Track};
use crate::source::{Capture, Course, Dealer, Lane, Notice, Opening, Order, Shape, StreamGauge};
use crate::store::tails::Tails;

/// Time between two looks at what the writers give back, while there is nothing else to do.
const LOOK: Duration = Duration::from_millis(1);

/// How long the settings of an acquisition that has ended are waited for.
const LAST_ANSWER: Duration = Duration::from_secs(2);

/// Connects to PandAs: one that is not there, or is given twice, is told before anything is begun.
pub(super) fn reach(plans: &[PandaPlan]) -> Result<Vec<Panda>, RecordError> {
    let pandas: Vec<(PandaSource, bool)> =
        plans.iter().map(|plan| (plan.source.clone(), plan.arms())).collect();
    Ok(capture::reach(&pandas)?)
}

/// The ways from a capture thread to the others.
pub(super) struct Ways {
    /// To the members.
    pub lanes: Vec<Lane>,
    /// To those who keep what is in blocks that are not full.
    pub tails: Tails,
    /// To the supervisor.
    pub notices: Sender<Notice>,
}

/// Starts the capture thread of the PandA at a place of the plan, which fills the blocks of `pool`.
pub(super) fn start(
    plan: &Plan,
    place: usize,
    device: Panda,
    pool: Pool,
    ways: Ways,
    posting: Posting,
) -> Result<Capture, RecordError> {
    let Ways { lanes, tails, notices } = ways;
    let (orders, from_supervisor) = mpsc::channel();
    let gauge = Arc::new(StreamGauge::default());
    let panda = &plan.pandas[place];
    let outlet = StoreOutlet {
        number: plan.panda_numbers().start + place as u16,
        orders: from_supervisor,
        notices: notices.clone(),
        dealer: Dealer::new(lanes).keeping_tails(Some(tails)).for_stripes(plan.redundancy),
        source: panda.source.clone(),
        chunk_bytes: plan.chunk.map_or(CHUNK_BYTES, |size| size.0),
        gauge: gauge.clone(),
        clock: Clock::new(),
        asked: Asked::Go,
        opening: None,
        open: None,
        free: VecDeque::new(),
    };
    let settings = Settings {
        acquisitions: Some(plan.scans.len() as u64),
        arm: panda.arms(),
        reconnect: panda.reconnect,
    };
    let thread = Builder::new().name(format!("panda{place}"));
    // What the source tells is in the account too.
    let (tell, _) = mpsc::channel();
    let source = Source::new(device, outlet, pool, BLOCK_BYTES as usize, settings, gauge, tell);
    let (ready, answer) = mpsc::channel();
    let thread = thread
        .spawn(move || {
            // Without anybody to tell, it stands as it stands.
            let _ = ready.send(posting.take_up());
            let (mut outlet, ended) = source.run();
            if let Ended::Failed(error) = ended {
                let hint = error.hint().map_or_else(String::new, |hint| format!(" ({hint})"));
                let _ = notices.send(Notice::Broken { why: with_cause(&error) + &hint });
            }
            outlet.farewell();
        })
        .map_err(RecordError::Thread)?;
    let died = |_| RecordError::Thread(io::Error::other("it died at once"));
    Ok(Capture::of_thread(orders, thread, answer.recv().map_err(died)?))
}

/// The way to the members.
struct StoreOutlet {
    /// Place in the manifest.
    number: u16,
    orders: Receiver<Order>,
    notices: Sender<Notice>,
    dealer: Dealer,
    source: PandaSource,
    chunk_bytes: u64,
    gauge: Arc<StreamGauge>,
    clock: Clock,
    asked: Asked,
    /// A scan that was begun, and of which no acquisition has come.
    opening: Option<Arc<Opening>>,
    /// The scan that is being recorded.
    open: Option<Open>,
    free: VecDeque<Block>,
}

/// The one stream of a scan while its acquisition comes.
struct Open {
    opening: Arc<Opening>,
    course: Course,
    header: String,
    settings: Described,
    /// Whether the settings are in the manifest, or will never be.
    described: bool,
    sample_bytes: u32,
    /// Samples handed on, and those that no member took.
    samples: u64,
    lost: u64,
}

impl StoreOutlet {
    fn obey(&mut self) {
        loop {
            match self.orders.try_recv() {
                Ok(order) => self.take(order),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    self.take(Order::Abort);
                    return;
                }
            }
        }
    }

    fn take(&mut self, order: Order) {
        match order {
            Order::Begin(opening) => {
                if let Some(unused) = self.opening.replace(opening) {
                    self.silent(&unused);
                }
            }
            Order::Stop => self.asked = self.asked.max(Asked::Stop),
            Order::Abort => {
                self.asked = Asked::Abort;
                self.dealer.abort();
            }
        }
    }

    /// Nothing came of a scan.
    fn silent(&self, opening: &Opening) {
        let scan = opening.uuid;
        let (number, source) = (Some(self.number), String::new());
        let account = Box::new(Account::new(CountedBy::Nothing));
        self.tell(Notice::Silent { scan, number, source, account });
        self.tell(Notice::Closed { scan });
    }

    /// Nothing more will come: says so of every scan that is begun, until told to end.
    fn farewell(&mut self) {
        loop {
            self.obey();
            if let Some(unused) = self.opening.take() {
                self.silent(&unused);
            }
            if self.asked > Asked::Go {
                break;
            }
            match self.orders.recv() {
                Ok(order) => self.take(order),
                Err(_) => break,
            }
        }
        while !self.dealer.all_sent() {
            self.take_returned();
            std::thread::sleep(LOOK);
        }
        self.tell(Notice::Done);
    }

    fn tell(&self, notice: Notice) {
        // Without a supervisor there is nobody to tell.
        let _ = self.notices.send(notice);
    }

    /// Takes what the writers give back.
    fn take_returned(&mut self) {
        while let Some(returned) = self.dealer.take_returned() {
            let Some(open) = &mut self.open else {
                if let Returned::Written { block, .. } = returned {
                    self.free.push_back(block);
                }
                continue;
            };
            let lost = match returned {
                Returned::Written { block, bytes, .. } => {
                    self.free.push_back(block);
                    self.dealer.written(&mut open.course, bytes)
                }
                Returned::Refused(filled) => self.dealer.refused(&mut open.course, filled),
            };
            for filled in lost {
                open.lost += u64::from(filled.frames);
                self.free.push_back(filled.block);
            }
        }
    }

    /// Settings that have come are written down at once: who dies later cannot ask again.
    fn tell_settings(&mut self) {
        let Some(open) = self.open.as_mut().filter(|open| !open.described) else { return };
        let Some(answer) = open.settings.wait(Duration::ZERO) else { return };
        open.described = true;
        if let Ok(settings) = answer {
            let (scan, header) = (open.opening.uuid, open.header.clone());
            let format = format(header, Some(&settings), None);
            self.tell(Notice::Described { scan, number: self.number, format });
        }
    }

    /// How the stream's samples are cut.
    fn geometry(&self, sample_bytes: u32) -> Result<Geometry, String> {
        let geometry = Geometry::of_frames(sample_bytes, BLOCK_BYTES, self.chunk_bytes)
            .map_err(|error| error.to_string())?;
        match u64::from(geometry.block_bytes) > BLOCK_BYTES {
            true => Err(format!("samples of {sample_bytes} bytes need blocks that are too large")),
            false => Ok(geometry),
        }
    }

    /// The scan that the supervisor begins for this acquisition.
    fn wait_for_a_scan(&mut self) -> Option<Arc<Opening>> {
        loop {
            self.obey();
            let ended = self.asked > Asked::Go || self.dealer.has_lost_a_writer();
            if self.opening.is_some() || ended {
                return self.opening.take();
            }
            self.take_returned();
            std::thread::sleep(LOOK);
        }
    }
}

impl Outlet for StoreOutlet {
    fn asked(&mut self) -> Asked {
        self.obey();
        self.tell_settings();
        self.asked
    }

    fn block_bytes(&self, sample_bytes: usize, stride: usize) -> usize {
        let whole = stride / sample_bytes * sample_bytes;
        self.geometry(sample_bytes as u32).map_or(whole, |geometry| geometry.block_bytes as usize)
    }

    fn hand_on_after(&self) -> Option<Duration> {
        None
    }

    /// An acquisition that begins before the others have ended theirs would have to wait for its scan.
    fn is_ready(&mut self) -> bool {
        self.obey();
        self.opening.is_some()
    }

    fn begin(&mut self, acquisition: &Arc<Acquisition>) -> Result<(), Halted> {
        let sample_bytes = acquisition.header.sample_bytes;
        let geometry = self.geometry(sample_bytes).map_err(|why| {
            self.tell(Notice::Broken { why });
            Halted
        })?;
        let opening = self.wait_for_a_scan().ok_or(Halted)?;
        let scan = opening.uuid;
        let shape = Shape {
            number: self.number,
            name: self.source.name.clone(),
            source: self.source.to_string(),
            stripped_bytes: 0,
            geometry,
            fill: Fill::Omit,
        };
        let directory = opening.directory(shape.number, &shape.name);
        let track = Arc::new(Track { scan, number: self.number, directory, geometry });
        let header = acquisition.text.clone();
        let format = format(header.clone(), None, None);
        let gauge = self.gauge.clone();
        self.gauge.bytes.store(0, Relaxed);
        self.tell(Notice::Opened { scan, shape, format, gauge });
        let course = Course::new(track);
        self.open = Some(Open {
            opening,
            course,
            header,
            settings: acquisition.settings.clone(),
            described: false,
            sample_bytes,
            samples: 0,
            lost: 0,
        });
        Ok(())
    }

    fn filled(&mut self, batch: Batch) {
        let Some(open) = &mut self.open else {
            self.free.push_back(batch.block);
            return;
        };
        let frames = (batch.bytes / open.sample_bytes as usize) as u32;
        let filled = Filled {
            block: batch.block,
            track: open.course.track().clone(),
            sequence: open.course.take_sequence(),
            chunk: 0,
            offset: 0,
            bytes: batch.bytes as u32,
            frames,
            present: frames,
            invalid: 0,
            first: open.samples as i64,
            time: None,
            seen: self.clock.now(),
            gaps: Vec::new(),
            lengths: Vec::new(),
            crc: None,
        };
        open.samples += u64::from(frames);
        if let Some(lost) = self.dealer.deal(&mut open.course, filled) {
            open.lost += u64::from(lost.frames);
            self.free.push_back(lost.block);
        }
    }

    fn keep(&mut self, samples: &[u8], old: Duration) {
        let Some(open) = &mut self.open else { return };
        let now = self.clock.now();
        let oldest = now.plus_ns(-i64::try_from(old.as_nanos()).unwrap_or(i64::MAX));
        if !self.dealer.wants_tail(&mut open.course, oldest, now) {
            return;
        }
        let frames = samples.len() as u32 / open.sample_bytes;
        let first = open.samples as i64;
        let piece = Piece {
            first,
            bytes: samples.len() as u32,
            frames,
            present: frames,
            invalid: 0,
            time: None,
            seen: now,
            gaps: Vec::new(),
            lengths: Vec::new(),
        };
        let mut copy = |_, range: Range<u32>| {
            (range.start, samples[range.start as usize..range.end as usize].to_vec())
        };
        let open_blocks = [(first, piece.bytes)];
        let mut describe = || vec![piece.clone()];
        self.dealer.keep_tail(&mut open.course, now, &open_blocks, &mut copy, &mut describe);
    }

    fn emptied(&mut self, wait: Duration) -> Result<Option<Block>, Halted> {
        let since = Instant::now();
        loop {
            self.take_returned();
            let block = self.free.pop_front();
            if self.dealer.has_lost_a_writer() {
                return Err(Halted);
            }
            if block.is_some() || since.elapsed() >= wait {
                return Ok(block);
            }
            std::thread::sleep(LOOK);
        }
    }

    fn warn(&mut self, text: &str) {
        self.tell(Notice::Warning { text: text.to_owned() });
    }

    fn end(&mut self, mut closed: Closed) {
        // All of its blocks come to rest before its books are told.
        while self.open.as_ref().is_some_and(|open| !open.course.settled()) {
            self.obey();
            self.take_returned();
            if self.dealer.has_lost_a_writer() {
                // The supervisor leaves the scan for `recover`.
                return;
            }
            std::thread::sleep(LOOK);
        }
        let Some(open) = self.open.take() else { return };
        let scan = open.opening.uuid;
        closed.keep(open.samples - open.lost, "no member took them");
        self.gauge.overrun.store(closed.account.terms.overrun, Relaxed);
        let mut account = closed.account.clone();
        account.bytes = account.terms.written * u64::from(open.sample_bytes);
        self.dealer.finish(&open.course, Vec::new());
        let settings = open.settings.wait(LAST_ANSWER).and_then(Result::ok);
        closed.notes.extend(open.settings.note());
        let (blocks, bytes) = open.course.written();
        self.tell(Notice::Ended {
            scan,
            number: self.number,
            format: format(open.header, settings.as_deref(), Some(closed)),
            blocks,
            bytes,
            account: Box::new(account),
        });
        self.tell(Notice::Closed { scan });
    }
}

/// What the manifest says of the samples.
fn format(header: String, settings: Option<&PandaSettings>, closed: Option<Closed>) -> Format {
    let settings = settings.cloned().map(Box::new);
    match closed {
        None => Format::Panda {
            header,
            ending: None,
            captured: None,
            connections: Vec::new(),
            notes: Vec::new(),
            settings,
        },
        Some(closed) => Format::Panda {
            header,
            ending: Some(closed.ending),
            captured: closed.captured,
            connections: closed.connections,
            notes: closed.notes,
            settings,
        },
    }
}

/// Block memory for a PandA.
pub(super) fn pool(bytes: u64, node: Option<u32>) -> io::Result<Pool> {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    let region = crate::sys::memory::Region::for_blocks(bytes, node)?;
    Ok(Pool::new(Arc::new(region), BLOCK_BYTES as usize, 0))
}
