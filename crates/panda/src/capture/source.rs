//! The work of the capture thread: connect, receive, certify, pass on, rejoin, keep the account.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use fullbore_capture::StreamMetrics;
use fullbore_core::hint::with_causes;
use fullbore_core::panda::{AcquisitionAccount, SourceEvent};
use fullbore_formats::panda::{EndReason, Ending, Event, Header, SampleValidator, Triggers};
use fullbore_linux::clock::Clock;
use fullbore_linux::ring::Pool;
use fullbore_time::Tai;

use super::device::{Captured, Data, Device};
use super::receive_buffer::ReceiveBuffer;
use super::sink::{Acquisition, AcquisitionSink, Batch, SinkClosed, StopRequest};
use crate::{Error, Step};

/// Time between two checks of empty blocks, stop requests and counters.
const LOOK: Duration = Duration::from_millis(20);

/// The longest sleep of the thread while there is no block or no connection.
const NAP: Duration = Duration::from_millis(50);

/// Time without data after which the control port is asked whether the PandA is alive.
const QUIET: Duration = Duration::from_secs(5);

/// Time for which a stop waits for the bytes that certify the last frame. After a disarm: time without data after which
/// the rest of the acquisition is given up.
const LAST_WORD: Duration = Duration::from_secs(2);

/// Time without data on a new connection after which an acquisition that was left may be over.
const SILENT: Duration = Duration::from_millis(500);

/// The number of connections in a row without a sample after which the recorder gives up.
const FRUITLESS: u32 = 5;

/// The longest pause between two attempts to connect.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Size of the buffer into which repeated samples are read before they are dropped.
const SCRATCH_BYTES: usize = 64 << 10;

/// The settings of a recording of a PandA.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The number of acquisitions; `None`: until a stop request.
    pub acquisitions: Option<u64>,
    /// Arms at the beginning and after each acquisition.
    pub arm: bool,
    /// Time for which the recorder tries to restore a lost connection.
    pub reconnect: Duration,
}

/// The end of the capture thread.
#[derive(Debug)]
pub enum SourceEnd {
    /// All requested acquisitions were taken, or the recording was stopped.
    Done,
    /// The sink takes no more.
    Halted,
    /// The PandA cannot be reached, or refuses a command.
    Failed(Error),
}

/// The source of one PandA.
pub struct Source<D: Device, O: AcquisitionSink> {
    device: D,
    sink: O,
    intake: ReceiveBuffer,
    stride: usize,
    settings: Settings,
    metrics: Arc<StreamMetrics>,
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
    /// The time at which the data port accepted the current connection.
    accepted: Option<Instant>,
    /// The latest error in the received data.
    damage: Option<Error>,
    /// Since when there has been no connection, when the next attempt is due, and the pause after it.
    away: Option<(Instant, Instant, Duration)>,
    looked: Instant,
    heard: Instant,
    /// Time of the latest read, and time without data since the latest data. Time in which the thread did not read does
    /// not count as silence.
    sought: Instant,
    silence: Duration,
    /// Time of the stop request.
    stopping: Option<Instant>,
    /// True if the disarm command succeeded; `None` before it.
    disarmed: Option<bool>,
    /// The reason for an early end.
    failed: Option<SourceEnd>,
}

/// State of the acquisition that this recorder has armed: from ARM until its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arming {
    /// Not armed.
    Not,
    /// Armed.
    Armed,
    /// Armed before a connection was lost. Its header may arrive on the new connection. If it does not, the recorder
    /// asks the PandA, so that it never arms twice.
    Perhaps {
        /// Time of the latest query, or of the loss of the connection.
        stop_request: Instant,
        /// Since when the PandA has not answered.
        untold: Instant,
    },
}

impl Arming {
    /// The state after a connection was lost now.
    fn perhaps() -> Self {
        let now = Instant::now();
        Arming::Perhaps { stop_request: now, untold: now }
    }
}

/// The acquisition that is being received.
struct Running {
    acquisition: Arc<Acquisition>,
    account: AcquisitionAccount,
    /// The validator of this connection's data; `None` without a connection.
    certifier: Option<SampleValidator>,
    /// Since when no connection has delivered the acquisition.
    left: Option<Instant>,
    /// Bytes that an earlier connection has already delivered.
    skip_bytes: u64,
    /// Arrival of the first and of the latest sample.
    seen: Option<(Tai, Tai)>,
    /// Trigger times of the samples, if they are captured.
    triggers: Option<Triggers>,
}

impl<D: Device, O: AcquisitionSink> Source<D, O> {
    /// A source that fills the blocks of `pool`, each of `stride` bytes.
    pub fn new(
        device: D,
        sink: O,
        pool: Pool,
        stride: usize,
        settings: Settings,
        metrics: Arc<StreamMetrics>,
    ) -> Self {
        let now = Instant::now();
        Source {
            device,
            sink,
            intake: ReceiveBuffer::new(pool),
            stride,
            settings,
            metrics,
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

    /// Receives until all is done. Returns the sink and the reason of the end.
    pub fn run(mut self) -> (O, SourceEnd) {
        while !self.is_done() {
            self.turn();
        }
        self.leave();
        self.look_at_counters();
        (self.sink, self.failed.unwrap_or(SourceEnd::Done))
    }

    fn is_done(&self) -> bool {
        let enough = self.settings.acquisitions.is_some_and(|wanted| self.ended >= wanted);
        self.failed.is_some() || enough || (self.stopping.is_some() && self.is_idle())
    }

    /// True if no acquisition is running or expected.
    fn is_idle(&self) -> bool {
        self.running.is_none() && self.arming == Arming::Not
    }

    /// Does the next step that is due.
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

    /// Takes the next event of the data port.
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
                    self.failed = Some(SourceEnd::Failed(error));
                }
            }
            Err(error) => self.lost_because(Ending::ConnectionLost, with_causes(&error)),
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
                self.with_certifier(SampleValidator::frame_end);
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
        self.metrics.bytes.fetch_add(bytes as u64, Relaxed);
    }

    fn frame(&mut self, bytes: u64) {
        self.with_certifier(|certifier| certifier.frame(bytes));
        self.hand_on();
        if self.stopping.is_some() && self.is_left_on_stop() {
            // The frame before this one is certified now: the best moment to leave.
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

    /// True if a stop leaves the acquisition at once: raw frames are certified by the next one, and an acquisition that
    /// another client has armed continues without this recorder.
    fn is_left_on_stop(&self) -> bool {
        !self.settings.arm
    }

    fn with_certifier(&mut self, step: impl FnOnce(&mut SampleValidator) -> u64) {
        if let Some(certifier) = self.running.as_mut().and_then(|r| r.certifier.as_mut()) {
            step(certifier);
        }
    }

    /// The first index that is not certified.
    fn certified(&self) -> Option<u64> {
        let running = self.running.as_ref()?;
        let here = running.certifier.as_ref().map(SampleValidator::next_index);
        Some(here.unwrap_or(0).max(running.account.next_index()))
    }

    /// Passes certified samples to the sink.
    fn give(&mut self, batch: Batch) {
        let times = self.running.as_mut().and_then(|running| running.triggers.as_mut());
        if let Some(times) = times {
            times.look(&batch.block[..batch.bytes], batch.first);
        }
        self.sink.filled(batch);
    }

    fn hand_on(&mut self) {
        let Some(certified) = self.certified() else { return };
        while let Some(batch) = self.intake.take_certified(certified) {
            self.give(batch);
        }
        self.count(certified);
    }

    /// Counts all samples before `certified` as written or missing.
    fn count(&self, certified: u64) {
        let missing = self.metrics.missing.load(Relaxed);
        self.metrics.frames.store(certified.saturating_sub(missing), Relaxed);
    }

    /// Tries to connect.
    fn connect(&mut self) {
        let now = Instant::now();
        let (since, due, pause) = *self.away.get_or_insert((now, now, Duration::ZERO));
        if self.stopping.is_some() {
            self.leave();
            return;
        }
        if now < due {
            // The pause between two attempts. A command ends it, and the next look obeys.
            std::thread::park_timeout(NAP.min(due - now));
            return;
        }
        match self.device.connect() {
            Ok(data) => {
                (self.data, self.accepted) = (Some(data), None);
                self.heard = Instant::now();
            }
            // A user waits for the first connection.
            Err(error) if self.connections == 0 => self.failed = Some(SourceEnd::Failed(error)),
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

    /// Handles the acceptance of the data port.
    fn ready(&mut self) {
        self.away = None;
        self.connections += 1;
        self.accepted = Some(Instant::now());
        self.sink.report(SourceEvent::Connected { connection: self.connections });
        self.arm_if_due();
    }

    /// Arms if this recorder arms, a connection is open, and the sink is ready.
    fn arm_if_due(&mut self) {
        let idle = self.running.is_none() && self.stopping.is_none();
        let listening = self.data.is_some() && self.accepted.is_some();
        if !self.settings.arm || !idle || !listening || self.is_done() || !self.sink.is_ready() {
            return;
        }
        let may_arm = match self.arming {
            Arming::Not => true,
            Arming::Armed => false,
            Arming::Perhaps { stop_request, untold } => self.is_disarmed(stop_request, untold),
        };
        // A sink that could not take the last acquisition ends the recording here.
        self.take_emptied(Duration::ZERO);
        if !may_arm || self.failed.is_some() {
            return;
        }
        match self.device.arm() {
            Ok(()) => {
                self.arming = Arming::Armed;
                self.sink.report(SourceEvent::PandaArmed);
            }
            // The PandA may be armed although its answer was lost.
            Err(error) if error.is_of_connection() => {
                self.arming = Arming::perhaps();
                self.sink.report(SourceEvent::Lost { why: with_causes(&error) });
            }
            Err(error) => self.failed = Some(SourceEnd::Failed(error)),
        }
    }

    /// True if the acquisition that was armed before the connection was lost is over. The PandA is asked only after a
    /// silence on the new connection. A PandA that is armed may wait for any time; a PandA that does not answer is
    /// given up after a while.
    fn is_disarmed(&mut self, stop_request: Instant, untold: Instant) -> bool {
        if stop_request.max(self.heard).elapsed() < SILENT {
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
                self.arming = Arming::Perhaps { stop_request: Instant::now(), untold };
            }
            Captured::Unknown => {
                self.give_up(Error::Untold { timeouts: self.settings.reconnect });
            }
        }
        false
    }

    /// Reports the samples that were lost with an armed acquisition of which nothing more will arrive.
    fn settle(&mut self, captured: Captured) {
        if std::mem::replace(&mut self.arming, Arming::Not) == Arming::Not {
            return;
        }
        let samples = match captured {
            Captured::Over(0) => return,
            Captured::Over(samples) => Some(samples),
            Captured::Busy | Captured::Unknown => None,
        };
        self.sink.report(SourceEvent::Unseen { samples });
    }

    /// Handles a header: of a new acquisition, or of the one that was left.
    fn started(&mut self, header: Header, text: String) {
        if self.running.as_ref().is_some_and(|running| running.is_the_same(&header)) {
            self.arming = Arming::Not;
            self.rejoined(&header);
            return;
        }
        // The PandA no longer answers for the acquisition before.
        self.finish_with(None);
        let sample_bytes = header.sample_bytes as usize;
        let block_bytes = self.sink.block_bytes(sample_bytes, self.stride);
        self.begun += 1;
        let number = self.begun;
        let seen = self.clock.now();
        let (mut account, certifier) =
            (AcquisitionAccount::new(&header), Some(SampleValidator::new(&header)));
        if self.arming == Arming::Not {
            account.armed_by_others();
        }
        self.intake.begin(sample_bytes, block_bytes, header.missed);
        self.metrics.missing.store(header.missed, Relaxed);
        let triggers = Triggers::of(&header);
        let settings = self.device.describe();
        let acquisition = Arc::new(Acquisition { number, header, text, seen, settings });
        if self.sink.begin(&acquisition) == Err(SinkClosed) {
            self.failed = Some(SourceEnd::Halted);
            return;
        }
        self.arming = Arming::Not;
        self.running = Some(Running {
            acquisition,
            account,
            certifier,
            left: None,
            skip_bytes: 0,
            seen: None,
            triggers,
        });
    }

    fn rejoined(&mut self, header: &Header) {
        let Some(running) = &mut self.running else { return };
        let joined = running.account.joined(header);
        running.skip_bytes = joined.skip * u64::from(header.sample_bytes);
        (running.certifier, running.left) = (Some(SampleValidator::new(header)), None);
        if joined.gap > 0 {
            self.intake.go_on_at(header.missed);
            self.metrics.missing.fetch_add(joined.gap, Relaxed);
        }
        self.sink.report(SourceEvent::Rejoined { gap: joined.gap });
    }

    /// Handles END: the server has no more data for this connection.
    fn end_of_data(&mut self, samples: u64, reason: EndReason) {
        let overrun = reason == EndReason::DataOverrun;
        if let Some(running) = &mut self.running
            && let Some(certifier) = running.certifier.take()
        {
            running.account.left(certifier.end(samples, reason));
            running.left = Some(Instant::now());
        }
        self.drop_uncertified(false);
        let again = self.running.as_ref().is_some_and(Running::can_be_joined_again);
        if !(overrun && again) {
            self.finish();
            return;
        }
        // The server's ring has overrun. The acquisition may continue, and only a new connection can join it.
        match self.device.captured() {
            Captured::Busy if self.stopping.is_none() => {
                self.data = None;
                self.sink.report(SourceEvent::Lost { why: EndReason::DataOverrun.to_string() });
            }
            Captured::Over(samples) => self.finish_with(Some(samples)),
            Captured::Busy | Captured::Unknown => self.finish_with(None),
        }
    }

    fn lost(&mut self, ending: Ending) {
        let why = ending.to_string();
        self.lost_because(ending, why);
    }

    /// Closes a connection that is of no more use.
    fn lost_because(&mut self, ending: Ending, why: String) {
        self.data = None;
        let now = Instant::now();
        self.arming = match self.arming {
            Arming::Not => Arming::Not,
            Arming::Armed => Arming::perhaps(),
            // One lost connection after another gives no answer either.
            Arming::Perhaps { untold, .. } => Arming::Perhaps { stop_request: now, untold },
        };
        // A server that accepts and closes at once is not tried again at once.
        let again = if self.connections == 0 { now } else { now + NAP };
        // A server that accepts connections and sends nothing counts as unreachable.
        let in_vain = self.away.filter(|_| self.accepted.is_none());
        let since = self.away.map_or(now, |(since, ..)| since);
        self.away = Some((since, again, NAP));
        if self.connections == 0 {
            self.refused();
            return;
        }
        let text = why.clone();
        self.sink.report(SourceEvent::Lost { why });
        let before = self.running.as_ref().map(|running| running.account.next_index());
        if let Some(running) = &mut self.running
            && let Some(certifier) = running.certifier.take()
        {
            running.account.left(certifier.lost(ending));
            running.left = Some(Instant::now());
            self.drop_uncertified(false);
        }
        let after = self.running.as_ref().map(|running| running.account.next_index());
        // A connection that was open for a while had nothing to deliver.
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

    /// Handles a connection that ended before the server sent OK.
    fn refused(&mut self) {
        let text = "the data port closed the connection before it said OK".to_owned();
        self.give_up(Error::Refused { request: "the data connection".to_owned(), text });
    }

    /// Ends with the error in the received data if there was one, else with `error`.
    fn give_up(&mut self, error: Error) {
        let error = self.damage.take().unwrap_or(error);
        self.failed = Some(SourceEnd::Failed(error));
    }

    /// Drops uncertified samples and passes on the rest. If the sink takes only full blocks, the last block waits for
    /// data from another connection.
    fn drop_uncertified(&mut self, is_last: bool) {
        let Some(running) = &self.running else { return };
        let next = running.account.next_index();
        self.intake.cut(next);
        if !is_last && self.sink.hand_on_after().is_none() {
            self.intake.resume();
        }
        while let Some(batch) = self.intake.take_last() {
            self.give(batch);
        }
        self.count(next);
    }

    /// Ends the acquisition, and asks the PandA for its number of samples.
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
            running.account.times_fell(triggers.falls());
        }
        let closed = running.account.close(captured, running.seen);
        self.metrics.missing.store(closed.account.terms.missing, Relaxed);
        self.metrics.damaged.store(closed.account.terms.damaged, Relaxed);
        self.sink.end(closed);
        self.ended += 1;
        self.arming = Arming::Not;
    }

    /// Leaves an acquisition that has not ended. It is disarmed if this recorder has armed it; otherwise it continues.
    /// The PandA is asked for the number of samples, because there is no END.
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
            running.account.left(certifier.lost(Ending::Left));
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

    /// Disarms the acquisition that this recorder has armed. Returns true on success. The command is sent once.
    fn disarm(&mut self) -> bool {
        if let Some(disarmed) = self.disarmed {
            return disarmed;
        }
        let refused = self.device.disarm().err();
        self.silence = Duration::ZERO;
        if let Some(error) = &refused {
            self.sink.report(SourceEvent::StaysArmed { why: with_causes(error) });
        }
        *self.disarmed.insert(refused.is_none())
    }

    /// Handles a read without data.
    fn quiet(&mut self) {
        // Time in which this thread did not run does not count as silence.
        self.silence += self.sought.elapsed().min(NAP);
        if self.disarmed == Some(true) && self.silence >= LAST_WORD {
            self.leave();
            return;
        }
        let quiet = self.heard.elapsed();
        let left = self.running.as_ref().is_some_and(|running| running.certifier.is_none());
        if left && quiet >= SILENT {
            // The new connection is silent. If the acquisition is over, it will remain silent.
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
                // Regardless of how long it was open.
                self.accepted = None;
                let why = "the PandA does not answer any more".to_owned();
                self.lost_because(Ending::ConnectionLost, why);
            }
        }
    }

    /// Checks stop requests, empty blocks, blocks that have waited long, and counters.
    fn look(&mut self) {
        self.looked = Instant::now();
        self.take_emptied(Duration::ZERO);
        match self.sink.stop_request() {
            StopRequest::Go => {}
            StopRequest::Stop => self.stop(),
            StopRequest::Abort => {
                self.stopping.get_or_insert_with(Instant::now);
                self.leave();
            }
        }
        if let (Some(after), Some(certified)) = (self.sink.hand_on_after(), self.certified())
            && let Some(batch) = self.intake.take_early(certified, after)
        {
            self.give(batch);
        }
        if let Some(certified) = self.certified()
            && let Some((samples, old)) = self.intake.certified_part(certified)
        {
            self.sink.keep(samples, old);
        }
        self.look_at_counters();
    }

    fn look_at_counters(&self) {
        let (used, high, blocks) = self.intake.usage();
        self.metrics.used_blocks.store(used, Relaxed);
        self.metrics.peak_blocks.fetch_max(used, Relaxed);
        self.metrics.high_water.store(high, Relaxed);
        self.metrics.pool_blocks.store(blocks, Relaxed);
    }

    /// Handles a stop request. An acquisition that this recorder has armed is disarmed, and ends with END after the
    /// PandA has sent all samples it still holds. An acquisition that another client has armed is left at a certified
    /// frame.
    fn stop(&mut self) {
        let since = *self.stopping.get_or_insert_with(Instant::now);
        // Between ARM and the header the PandA waits for its enable signal: it is armed.
        if self.is_idle() || (self.settings.arm && self.disarm()) {
            return;
        }
        let held = self.running.as_ref().and_then(|running| running.certifier.as_ref());
        let waits = held.is_some_and(|certifier| certifier.held() > 0);
        if since.elapsed() >= LAST_WORD || !waits {
            self.leave();
        }
    }

    /// Stops reading until a block is free, which makes the server wait.
    fn wait_for_a_block(&mut self) {
        let since = Instant::now();
        self.take_emptied(NAP);
        let held = since.elapsed().as_nanos() as u64;
        self.metrics.held_ns.fetch_add(held, Relaxed);
    }

    fn take_emptied(&mut self, wait: Duration) {
        let mut wait = wait;
        loop {
            match self.sink.emptied(wait) {
                Ok(Some(block)) => self.intake.put(block),
                Ok(None) => return,
                Err(SinkClosed) => {
                    self.failed.get_or_insert(SourceEnd::Halted);
                    return;
                }
            }
            wait = Duration::ZERO;
        }
    }
}

impl Running {
    /// True if a header belongs to this acquisition. Servers that send no time cannot tell.
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
