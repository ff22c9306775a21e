//! The thread's work: connect, receive, certify, hand on, join again, keep the books.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use fullbore_core::format::panda::{Books, Certifier, EndReason, Ending, Event, Header, Triggers};
use fullbore_core::time::Tai;

use super::device::{Captured, Data, Device};
use super::intake::Intake;
use super::outlet::{Acquisition, Asked, Batch, Halted, Outlet};
use crate::clock::Clock;
use crate::panda::{Error, Step, with_cause};
use crate::ring::Pool;
use crate::source::StreamGauge;

/// Time between two looks at empty blocks, orders and counters.
const LOOK: Duration = Duration::from_millis(20);

/// How long the thread sleeps at most while there is no block or no connection.
const NAP: Duration = Duration::from_millis(50);

/// A data port that says nothing for so long has its control port asked whether it is alive.
const QUIET: Duration = Duration::from_secs(5);

/// How long a stop waits for what certifies the last frame; after a disarm, how long nothing at all may come
/// before what is left of the acquisition is given up.
const LAST_WORD: Duration = Duration::from_secs(2);

/// An acquisition that was left, and of which nothing comes on a new connection for so long, may be over.
const SILENT: Duration = Duration::from_millis(500);

/// Connections in a row that may bring no sample before it is given up.
const FRUITLESS: u32 = 5;

/// The longest pause between two attempts to connect.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Samples that come again are read into this, and dropped.
const SCRATCH_BYTES: usize = 64 << 10;

/// How a PandA is recorded.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Ends after so many acquisitions; else when asked to.
    pub acquisitions: Option<u64>,
    /// Arms at the beginning and after each acquisition.
    pub arm: bool,
    /// How long a connection that was lost is tried again.
    pub reconnect: Duration,
}

/// How the thread ended.
#[derive(Debug)]
pub enum Ended {
    /// All acquisitions that were asked for, or a stop.
    Done,
    /// The outlet takes no more.
    Halted,
    /// The PandA cannot be reached, or will not do what was asked.
    Failed(Error),
}

/// What the thread tells while it works.
#[derive(Debug)]
pub enum Happening {
    /// The data port has accepted us, for the so-manieth time.
    Connected(u64),
    /// The PandA is armed.
    Armed,
    /// An acquisition has begun.
    Began(Arc<Acquisition>),
    /// It was joined again after its connection was lost: samples that lie between.
    Rejoined {
        /// Which one.
        number: u64,
        /// Samples that nobody has.
        gap: u64,
    },
    /// The connection was lost.
    Lost {
        /// Why.
        why: String,
    },
    /// Nothing came of what was armed: it came and went while there was no connection, or was disarmed first.
    Unseen {
        /// Samples that the PandA took of it, if it could be asked.
        samples: Option<u64>,
    },
    /// What we have armed could not be disarmed.
    StaysArmed {
        /// Why not.
        why: String,
    },
    /// An acquisition has ended, by the thread's books.
    Over {
        /// Which one.
        number: u64,
    },
}

/// The source of one PandA.
pub struct Source<D: Device, O: Outlet> {
    device: D,
    outlet: O,
    intake: Intake,
    stride: usize,
    settings: Settings,
    gauge: Arc<StreamGauge>,
    tell: Sender<Happening>,
    clock: Clock,
    data: Option<D::Data>,
    running: Option<Running>,
    scratch: Vec<u8>,
    /// Acquisitions begun, and ended.
    begun: u64,
    ended: u64,
    connections: u64,
    /// Connections in a row that brought no sample.
    fruitless: u32,
    arming: Arming,
    /// When the data port accepted us, on the connection that stands.
    accepted: Option<Instant>,
    /// What came last and cannot be taken.
    damage: Option<Error>,
    /// Since when there has been no connection, and when the next attempt is due.
    away: Option<(Instant, Instant, Duration)>,
    looked: Instant,
    heard: Instant,
    /// When something was last looked for, and for how long nothing has come since something last did. Time in
    /// which nobody looked is no silence.
    sought: Instant,
    silence: Duration,
    /// Since when a stop is under way.
    stopping: Option<Instant>,
    /// Whether it could be disarmed, once it was to be.
    disarmed: Option<bool>,
    /// Why it ends before all was done.
    failed: Option<Ended>,
}

/// Whether an acquisition is to come that we have armed: from ARM until its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arming {
    /// None.
    Not,
    /// One is.
    Armed,
    /// One was, before a connection was lost. Its header may come on the new one; if it does not, the PandA is
    /// asked, so that it is never armed twice.
    Perhaps {
        /// When it was last asked, or the connection lost.
        asked: Instant,
        /// Since when it has not told.
        untold: Instant,
    },
}

impl Arming {
    /// One may have been until now.
    fn perhaps() -> Self {
        let now = Instant::now();
        Arming::Perhaps { asked: now, untold: now }
    }
}

/// The acquisition that is being received.
struct Running {
    acquisition: Arc<Acquisition>,
    books: Books,
    /// What of this connection can be trusted; none while there is no connection.
    certifier: Option<Certifier>,
    /// Since when there has been no connection that brings it.
    left: Option<Instant>,
    /// Bytes that were received on an earlier connection already.
    skip_bytes: u64,
    /// When the first and the latest sample came.
    seen: Option<(Tai, Tai)>,
    /// When samples were triggered, if that is captured.
    triggers: Option<Triggers>,
}

impl<D: Device, O: Outlet> Source<D, O> {
    /// A source that fills the blocks of `pool`, each of `stride` bytes.
    pub fn new(
        device: D,
        outlet: O,
        pool: Pool,
        stride: usize,
        settings: Settings,
        gauge: Arc<StreamGauge>,
        tell: Sender<Happening>,
    ) -> Self {
        let now = Instant::now();
        Source {
            device,
            outlet,
            intake: Intake::new(pool),
            stride,
            settings,
            gauge,
            tell,
            clock: Clock::new(),
            data: None,
            running: None,
            scratch: vec![0; SCRATCH_BYTES],
            begun: 0,
            ended: 0,
            connections: 0,
            fruitless: 0,
            arming: Arming::Not,
            accepted: None,
            damage: None,
            away: None,
            looked: now,
            heard: now,
            sought: now,
            silence: Duration::ZERO,
            stopping: None,
            disarmed: None,
            failed: None,
        }
    }

    /// Receives until all is done. Gives the outlet back with how it ended.
    pub fn run(mut self) -> (O, Ended) {
        while !self.is_done() {
            self.turn();
        }
        self.leave();
        self.look_at_counters();
        (self.outlet, self.failed.unwrap_or(Ended::Done))
    }

    fn is_done(&self) -> bool {
        let enough = self.settings.acquisitions.is_some_and(|wanted| self.ended >= wanted);
        let last = self.stopping.is_some() || self.outlet.wants_no_more();
        self.failed.is_some() || enough || (last && self.is_idle())
    }

    /// Whether nothing is being received, nor to come of what was armed.
    fn is_idle(&self) -> bool {
        self.running.is_none() && self.arming == Arming::Not
    }

    /// One step of whatever is due.
    fn turn(&mut self) {
        if self.looked.elapsed() >= LOOK {
            self.look();
        }
        if self.failed.is_some() {
            return;
        }
        match &self.data {
            None => self.connect(),
            Some(_) => self.receive(),
        }
    }

    /// Takes the next thing that comes.
    fn receive(&mut self) {
        let Some(data) = &mut self.data else { return };
        let skip = self.running.as_ref().map_or(0, |running| running.skip_bytes);
        let mut none = [];
        let room = match data.wants_payload() {
            0 => Some(&mut none[..]),
            _ if skip > 0 => {
                let most = self.scratch.len().min(usize::try_from(skip).unwrap_or(usize::MAX));
                Some(&mut self.scratch[..most])
            }
            _ => self.intake.room(),
        };
        let Some(room) = room else {
            self.wait_for_a_block();
            return;
        };
        self.sought = Instant::now();
        match data.next(room) {
            Ok(step) => self.took(step),
            Err(Error::Data(error)) => {
                let (ending, would_come_again) = (Ending::from(&error), error.would_come_again());
                self.damage = Some(Error::Data(error));
                self.lost(ending);
                if would_come_again && let Some(error) = self.damage.take() {
                    self.failed = Some(Ended::Failed(error));
                }
            }
            Err(error) => self.lost_because(Ending::ConnectionLost, with_cause(&error)),
        }
    }

    fn took(&mut self, step: Step) {
        if !matches!(step, Step::Quiet | Step::Closed) {
            self.heard = Instant::now();
            self.silence = Duration::ZERO;
        }
        match step {
            Step::Payload(bytes) => self.payload(bytes),
            Step::Event(Event::Ready) => self.ready(),
            Step::Event(Event::Start { header, text }) => self.started(header, text),
            Step::Event(Event::Frame { bytes }) => self.frame(bytes),
            Step::Event(Event::FrameEnd) => {
                self.with_certifier(Certifier::frame_end);
                self.hand_on();
            }
            Step::Event(Event::End { samples, reason }) => {
                self.end_of_data(samples, reason);
                self.arm_if_due();
            }
            Step::Quiet => {
                self.quiet();
                self.arm_if_due();
            }
            Step::Closed => {
                let why = "the PandA closed it".to_owned();
                self.lost_because(Ending::ConnectionLost, why);
            }
        }
    }

    fn payload(&mut self, bytes: usize) {
        let Some(running) = &mut self.running else { return };
        let now = self.clock.now();
        running.seen = Some((running.seen.map_or(now, |(first, _)| first), now));
        if running.skip_bytes > 0 {
            running.skip_bytes -= bytes as u64;
        } else {
            self.intake.advance(bytes);
        }
        self.gauge.bytes.fetch_add(bytes as u64, Relaxed);
    }

    fn frame(&mut self, bytes: u64) {
        self.with_certifier(|certifier| certifier.frame(bytes));
        self.hand_on();
        if self.stopping.is_some() && self.is_left_on_stop() {
            // The frame before this one is certified now: there is no better moment to go.
            self.leave();
            return;
        }
        let most = self.intake.most_frame_bytes();
        if bytes > most {
            let error = Error::LargeFrame { bytes, most };
            let what = error.to_string();
            self.damage = Some(error);
            self.lost(Ending::Damaged(what));
        }
    }

    /// Raw frames wait for the next one; where we did not arm, somebody else goes on with the
    /// acquisition, and we leave it.
    fn is_left_on_stop(&self) -> bool {
        !self.settings.arm
    }

    fn with_certifier(&mut self, step: impl FnOnce(&mut Certifier) -> u64) {
        if let Some(certifier) = self.running.as_mut().and_then(|r| r.certifier.as_mut()) {
            step(certifier);
        }
    }

    /// The first index that is not certified.
    fn certified(&self) -> Option<u64> {
        let running = self.running.as_ref()?;
        let here = running.certifier.as_ref().map(Certifier::next_index);
        Some(here.unwrap_or(0).max(running.books.next_index()))
    }

    /// Hands on samples that are certified.
    fn give(&mut self, batch: Batch) {
        let times = self.running.as_mut().and_then(|running| running.triggers.as_mut());
        if let Some(times) = times {
            times.look(&batch.block[..batch.bytes], batch.first);
        }
        self.outlet.filled(batch);
    }

    fn hand_on(&mut self) {
        let Some(certified) = self.certified() else { return };
        while let Some(batch) = self.intake.take_certified(certified) {
            self.give(batch);
        }
        self.count(certified);
    }

    /// All before `certified` is written or missing.
    fn count(&self, certified: u64) {
        let missing = self.gauge.missing.load(Relaxed);
        self.gauge.frames.store(certified.saturating_sub(missing), Relaxed);
    }

    /// A connection is wanted.
    fn connect(&mut self) {
        let now = Instant::now();
        let (since, due, pause) = *self.away.get_or_insert((now, now, Duration::ZERO));
        if self.stopping.is_some() {
            self.leave();
            return;
        }
        if now < due {
            std::thread::sleep(NAP.min(due - now));
            return;
        }
        match self.device.connect() {
            Ok(data) => {
                (self.data, self.accepted) = (Some(data), None);
                self.heard = Instant::now();
            }
            // The first connection is made by somebody who waits for it.
            Err(error) if self.connections == 0 => self.failed = Some(Ended::Failed(error)),
            Err(error) if since.elapsed() >= self.settings.reconnect => {
                self.finish();
                self.give_up(error);
            }
            Err(_) => {
                let pause = (pause * 2).clamp(NAP, LONGEST_PAUSE);
                self.away = Some((since, Instant::now() + pause, pause));
            }
        }
    }

    /// The data port has accepted us.
    fn ready(&mut self) {
        self.away = None;
        self.connections += 1;
        self.accepted = Some(Instant::now());
        self.say(Happening::Connected(self.connections));
        self.arm_if_due();
    }

    /// Arms, if that is ours to do, somebody listens, and what comes has a place.
    fn arm_if_due(&mut self) {
        let idle = self.running.is_none() && self.stopping.is_none();
        let listening = self.data.is_some() && self.accepted.is_some();
        if !self.settings.arm || !idle || !listening || self.is_done() || !self.outlet.is_ready() {
            return;
        }
        let may_arm = match self.arming {
            Arming::Not => true,
            Arming::Armed => false,
            Arming::Perhaps { asked, untold } => self.is_disarmed(asked, untold),
        };
        // What the outlet could not take of the last one ends it here.
        self.take_emptied(Duration::ZERO);
        if !may_arm || self.failed.is_some() {
            return;
        }
        match self.device.arm() {
            Ok(()) => {
                self.arming = Arming::Armed;
                self.say(Happening::Armed);
            }
            // It may have been armed, and only its answer lost.
            Err(error) if error.is_of_connection() => {
                self.arming = Arming::perhaps();
                self.say(Happening::Lost { why: with_cause(&error) });
            }
            Err(error) => self.failed = Some(Ended::Failed(error)),
        }
    }

    /// Whether what we armed before the connection was lost is over. While it may still come, that is asked only
    /// where nothing has come of it for a while. A PandA that is armed waits as long as it likes; one that does not
    /// tell is given up after a time.
    fn is_disarmed(&mut self, asked: Instant, untold: Instant) -> bool {
        if asked.max(self.heard).elapsed() < SILENT {
            return false;
        }
        self.arming = Arming::perhaps();
        match self.device.captured_by_now() {
            Captured::Over(samples) => {
                self.settle(Captured::Over(samples));
                return true;
            }
            Captured::Busy => {}
            Captured::Unknown if untold.elapsed() < self.settings.reconnect => {
                self.arming = Arming::Perhaps { asked: Instant::now(), untold };
            }
            Captured::Unknown => {
                self.give_up(Error::Untold { patience: self.settings.reconnect });
            }
        }
        false
    }

    /// Nothing will come any more of what was armed: says what is lost with it.
    fn settle(&mut self, captured: Captured) {
        if std::mem::replace(&mut self.arming, Arming::Not) == Arming::Not {
            return;
        }
        let (samples, what) = match captured {
            Captured::Over(0) => return,
            Captured::Over(samples) => {
                (Some(samples), format!("the PandA took {samples} samples of it"))
            }
            Captured::Busy | Captured::Unknown => {
                (None, "how many samples the PandA took of it is not known".to_owned())
            }
        };
        self.outlet.warn(&format!("nothing has come of what was armed, and {what}"));
        self.say(Happening::Unseen { samples });
    }

    /// A header came: of a new acquisition, or of the one that was left.
    fn started(&mut self, header: Header, text: String) {
        if self.running.as_ref().is_some_and(|running| running.is_the_same(&header)) {
            self.arming = Arming::Not;
            self.rejoined(&header);
            return;
        }
        // What the PandA took of the one before cannot be asked any more.
        self.finish_with(None);
        let sample_bytes = header.sample_bytes as usize;
        let block_bytes = self.outlet.block_bytes(sample_bytes, self.stride);
        self.begun += 1;
        let number = self.begun;
        let seen = self.clock.now();
        let (mut books, certifier) = (Books::new(&header), Some(Certifier::new(&header)));
        if self.arming == Arming::Not {
            books.armed_by_others();
        }
        self.intake.begin(sample_bytes, block_bytes, header.missed);
        self.gauge.missing.store(header.missed, Relaxed);
        let triggers = Triggers::of(&header);
        let settings = self.device.describe();
        let acquisition = Arc::new(Acquisition { number, header, text, seen, settings });
        if self.outlet.begin(&acquisition) == Err(Halted) {
            self.failed = Some(Ended::Halted);
            return;
        }
        self.arming = Arming::Not;
        self.say(Happening::Began(acquisition.clone()));
        self.running = Some(Running {
            acquisition,
            books,
            certifier,
            left: None,
            skip_bytes: 0,
            seen: None,
            triggers,
        });
    }

    fn rejoined(&mut self, header: &Header) {
        let Some(running) = &mut self.running else { return };
        let joined = running.books.joined(header);
        running.skip_bytes = joined.skip * u64::from(header.sample_bytes);
        (running.certifier, running.left) = (Some(Certifier::new(header)), None);
        let number = running.acquisition.number;
        if joined.gap > 0 {
            self.intake.go_on_at(header.missed);
            self.gauge.missing.fetch_add(joined.gap, Relaxed);
        }
        self.say(Happening::Rejoined { number, gap: joined.gap });
    }

    /// The server has no more for this connection.
    fn end_of_data(&mut self, samples: u64, reason: EndReason) {
        let overrun = reason == EndReason::DataOverrun;
        if let Some(running) = &mut self.running
            && let Some(certifier) = running.certifier.take()
        {
            running.books.left(certifier.end(samples, reason));
            running.left = Some(Instant::now());
        }
        self.drop_uncertified(false);
        let again = self.running.as_ref().is_some_and(Running::can_be_joined_again);
        if !(overrun && again) {
            self.finish();
            return;
        }
        // The server's ring has lapped us. The acquisition may go on, and only a new connection joins it.
        match self.device.captured() {
            Captured::Busy if self.stopping.is_none() => {
                self.data = None;
                self.say(Happening::Lost { why: EndReason::DataOverrun.to_string() });
            }
            Captured::Over(samples) => self.finish_with(Some(samples)),
            Captured::Busy | Captured::Unknown => self.finish_with(None),
        }
    }

    fn lost(&mut self, ending: Ending) {
        let why = ending.to_string();
        self.lost_because(ending, why);
    }

    /// The connection is of no use any more.
    fn lost_because(&mut self, ending: Ending, why: String) {
        self.data = None;
        let now = Instant::now();
        self.arming = match self.arming {
            Arming::Not => Arming::Not,
            Arming::Armed => Arming::perhaps(),
            // One connection lost after the other tells nothing either.
            Arming::Perhaps { untold, .. } => Arming::Perhaps { asked: now, untold },
        };
        // A server that accepts and closes at once is not asked again at once.
        let again = if self.connections == 0 { now } else { now + NAP };
        // One that accepts connections and says nothing on them is as far away as one that refuses them.
        let in_vain = self.away.filter(|_| self.accepted.is_none());
        let since = self.away.map_or(now, |(since, ..)| since);
        self.away = Some((since, again, NAP));
        if self.connections == 0 {
            self.refused();
            return;
        }
        let text = why.clone();
        self.say(Happening::Lost { why });
        let before = self.running.as_ref().map(|running| running.books.next_index());
        if let Some(running) = &mut self.running
            && let Some(certifier) = running.certifier.take()
        {
            running.books.left(certifier.lost(ending));
            running.left = Some(Instant::now());
            self.drop_uncertified(false);
        }
        let after = self.running.as_ref().map(|running| running.books.next_index());
        // One that stood for a while had nothing to bring.
        let stood = self.accepted.take().is_some_and(|since| since.elapsed() >= QUIET);
        self.fruitless = if before < after || stood { 0 } else { self.fruitless + 1 };
        if before < after {
            self.damage = None;
        }
        if self.running.as_ref().is_some_and(|running| !running.can_be_joined_again()) {
            self.finish();
        }
        let too_long =
            in_vain.is_some_and(|(since, ..)| since.elapsed() >= self.settings.reconnect);
        if self.fruitless >= FRUITLESS || too_long {
            self.finish();
            self.give_up(Error::Fruitless { count: self.fruitless.max(1), why: text });
        }
    }

    /// It ended before the server said OK.
    fn refused(&mut self) {
        let text = "the data port closed the connection before it said OK".to_owned();
        self.give_up(Error::Refused { request: "the data connection".to_owned(), text });
    }

    /// Ends with what was wrong with what came, if it was, else with this.
    fn give_up(&mut self, error: Error) {
        let error = self.damage.take().unwrap_or(error);
        self.failed = Some(Ended::Failed(error));
    }

    /// What was received and cannot be trusted is dropped; the rest goes on its way. Where blocks are
    /// only handed on full, the last one waits for what may follow over another connection.
    fn drop_uncertified(&mut self, is_last: bool) {
        let Some(running) = &self.running else { return };
        let next = running.books.next_index();
        self.intake.cut(next);
        if !is_last && self.outlet.hand_on_after().is_none() {
            self.intake.resume();
        }
        while let Some(batch) = self.intake.take_last() {
            self.give(batch);
        }
        self.count(next);
    }

    /// The acquisition is over: the PandA is asked how many samples it took.
    fn finish(&mut self) {
        if self.running.is_none() {
            return;
        }
        let captured = match self.device.captured() {
            Captured::Over(samples) => Some(samples),
            Captured::Busy | Captured::Unknown => None,
        };
        self.finish_with(captured);
    }

    fn finish_with(&mut self, captured: Option<u64>) {
        self.drop_uncertified(true);
        let Some(mut running) = self.running.take() else { return };
        if let Some(triggers) = &running.triggers {
            running.books.times_fell(triggers.falls());
        }
        let closed = running.books.close(captured, running.seen);
        self.gauge.missing.store(closed.account.terms.missing, Relaxed);
        self.gauge.damaged.store(closed.account.terms.damaged, Relaxed);
        self.outlet.end(closed);
        self.ended += 1;
        self.arming = Arming::Not;
        self.say(Happening::Over { number: running.acquisition.number });
    }

    /// Goes away from an acquisition that has not ended: what we armed is disarmed, and what others armed goes on.
    /// The PandA is asked how many samples it took, for nobody else says so any more.
    fn leave(&mut self) {
        self.data = None;
        if self.is_idle() {
            return;
        }
        if self.settings.arm {
            self.disarm();
        }
        if let Some(running) = &mut self.running
            && let Some(certifier) = running.certifier.take()
        {
            running.books.left(certifier.lost(Ending::Left));
        }
        let captured = match self.disarmed {
            Some(true) => self.device.captured(),
            Some(false) => Captured::Unknown,
            None => self.device.captured_by_now(),
        };
        self.settle(captured);
        self.finish_with(match captured {
            Captured::Over(samples) => Some(samples),
            Captured::Busy | Captured::Unknown => None,
        });
    }

    /// Ends what we have armed, and says whether it did. It is asked for once.
    fn disarm(&mut self) -> bool {
        if let Some(disarmed) = self.disarmed {
            return disarmed;
        }
        let refused = self.device.disarm().err();
        self.silence = Duration::ZERO;
        if let Some(error) = &refused {
            let why = with_cause(error);
            self.outlet.warn(&format!("the PandA could not be disarmed: {why}"));
            self.say(Happening::StaysArmed { why });
        }
        *self.disarmed.insert(refused.is_none())
    }

    /// Nothing came for a moment.
    fn quiet(&mut self) {
        // A thread that was not let run heard nothing either.
        self.silence += self.sought.elapsed().min(NAP);
        if self.disarmed == Some(true) && self.silence >= LAST_WORD {
            self.leave();
            return;
        }
        let quiet = self.heard.elapsed();
        let left = self.running.as_ref().is_some_and(|running| running.certifier.is_none());
        if left && quiet >= SILENT {
            // Connected anew, and nothing comes of it: if it is over, nothing ever will.
            self.heard = Instant::now();
            let since = self.running.as_ref().and_then(|running| running.left);
            match self.device.captured() {
                Captured::Over(samples) => self.finish_with(Some(samples)),
                _ if since.is_none_or(|left| left.elapsed() >= self.settings.reconnect) => {
                    self.finish_with(None);
                }
                _ => {}
            }
        } else if quiet >= QUIET {
            self.heard = Instant::now();
            if !self.device.is_alive() {
                // However long it stood.
                self.accepted = None;
                let why = "the PandA does not answer any more".to_owned();
                self.lost_because(Ending::ConnectionLost, why);
            }
        }
    }

    /// Orders, empty blocks, blocks that wait for long, counters.
    fn look(&mut self) {
        self.looked = Instant::now();
        self.take_emptied(Duration::ZERO);
        match self.outlet.asked() {
            Asked::Go => {}
            Asked::Stop => self.stop(),
            Asked::Abort => {
                self.stopping.get_or_insert_with(Instant::now);
                self.leave();
            }
        }
        if let (Some(after), Some(certified)) = (self.outlet.hand_on_after(), self.certified())
            && let Some(batch) = self.intake.take_early(certified, after)
        {
            self.give(batch);
        }
        if let Some(certified) = self.certified()
            && let Some((samples, old)) = self.intake.certified_part(certified)
        {
            self.outlet.keep(samples, old);
        }
        self.look_at_counters();
    }

    fn look_at_counters(&self) {
        let (used, high, blocks) = self.intake.usage();
        self.gauge.used_blocks.store(used, Relaxed);
        self.gauge.peak_blocks.fetch_max(used, Relaxed);
        self.gauge.high_water.store(high, Relaxed);
        self.gauge.pool_blocks.store(blocks, Relaxed);
    }

    /// Somebody asked for an end: what we armed is disarmed, and ends with an END once all has come that the
    /// PandA still holds; what others armed is left where a frame is certified.
    fn stop(&mut self) {
        let since = *self.stopping.get_or_insert_with(Instant::now);
        // Between ARM and the header it waits for its enable: it is armed all the same.
        if self.is_idle() || (self.settings.arm && self.disarm()) {
            return;
        }
        let held = self.running.as_ref().and_then(|running| running.certifier.as_ref());
        let waits = held.is_some_and(|certifier| certifier.held() > 0);
        if since.elapsed() >= LAST_WORD || !waits {
            self.leave();
        }
    }

    /// Holds the server until a block is free.
    fn wait_for_a_block(&mut self) {
        let since = Instant::now();
        self.take_emptied(NAP);
        let held = since.elapsed().as_nanos() as u64;
        self.gauge.held_ns.fetch_add(held, Relaxed);
    }

    fn take_emptied(&mut self, wait: Duration) {
        let mut wait = wait;
        loop {
            match self.outlet.emptied(wait) {
                Ok(Some(block)) => self.intake.put(block),
                Ok(None) => return,
                Err(Halted) => {
                    self.failed.get_or_insert(Ended::Halted);
                    return;
                }
            }
            wait = Duration::ZERO;
        }
    }

    fn say(&self, what: Happening) {
        // Without a listener there is nobody to tell.
        let _ = self.tell.send(what);
    }
}

impl Running {
    /// Whether a header speaks of this acquisition: servers that tell no time cannot say so.
    fn is_the_same(&self, header: &Header) -> bool {
        let ours = &self.acquisition.header;
        self.can_be_joined_again()
            && ours.arm_time == header.arm_time
            && ours.sample_bytes == header.sample_bytes
            && ours.process == header.process
            && ours.fields == header.fields
    }

    fn can_be_joined_again(&self) -> bool {
        self.acquisition.header.arm_time.is_some()
    }
}
