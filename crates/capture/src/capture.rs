//! A capture thread: many ports in one loop that waits only for packets.

use std::collections::HashMap;
use std::io;
use std::sync::mpsc::{Receiver as Orders, Sender, TryRecvError};
use std::sync::{Arc, mpsc};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use fullbore_linux::clock::Clock;
use fullbore_linux::rights::drop_network_rights;
use fullbore_linux::thread_config::{ThreadConfig, ThreadStatus};

use fullbore_time::Tai;
use rustix::event::{Timespec, epoll};

use super::port::{Port, ThreadResources};
use super::scan_stream::{CaptureEvent, ScanContext};
use super::sink_chain::SinkChain;
use super::staging::StagingBuffer;

/// The number of calls to one socket before the next socket has its turn.
const TURN: usize = 16;

/// The number of datagrams in a round below which the thread pauses to let more arrive.
const FEW: usize = 1024;

/// The length of that pause: at 16 Gbit/s two megabytes arrive in it, and sockets hold 64.
const GATHER: Duration = Duration::from_millis(1);

/// A receive buffer that holds many milliseconds of the fastest stream.
const AMPLE: usize = 16 << 20;

/// The longest sleep while no packet arrives.
const IDLE: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// Time between two checks of replies, cuts and counters.
const LOOK: Duration = Duration::from_millis(2);

/// The least time for each port between two checks of all ports: with many slow ports, checks would cost more than the
/// data.
const LOOK_OF_PORT: Duration = Duration::from_micros(250);

/// Time between two drains before a scan begins. Sockets hold far more than arrives in this time.
const BETWEEN_DRAINS: Duration = Duration::from_millis(2);

/// The longest time for reading the rest of the sockets after a stop.
const LAST_READ: Duration = Duration::from_millis(500);

/// The settings of a capture thread.
#[derive(Clone, Default)]
pub struct Settings {
    /// The affinity and priority.
    pub thread_config: ThreadConfig,
    /// True if packets before the first scan are dropped. They belong to no scan and do not influence format detection.
    pub hold: bool,
}

/// A command of the supervisor to a capture thread.
#[derive(Debug)]
pub enum CaptureCommand {
    /// Begin this scan: the first, or the next one without a pause.
    Begin(Arc<ScanContext>),
    /// Read the rest of the sockets, send all blocks, and end.
    Stop,
    /// Send no more blocks, and end.
    Abort,
}

/// A running capture thread.
pub struct Capture {
    orders: Sender<CaptureCommand>,
    thread: JoinHandle<()>,
    status: ThreadStatus,
}

impl Capture {
    /// Starts thread `number` with these ports and the way to all sinks. The thread reports events to `notices`; the
    /// last one is `Done`, however the thread ends.
    pub fn start(
        number: usize,
        ports: Vec<Port>,
        chain: SinkChain,
        notices: Sender<CaptureEvent>,
        settings: Settings,
    ) -> io::Result<Self> {
        let (orders, receiver) = mpsc::channel();
        let thread_config = settings.thread_config.clone();
        Self::spawn(format!("capture{number}"), orders, thread_config, move || {
            let _farewell = Farewell(notices.clone());
            let mut work = match Work::new(ports, chain, receiver, notices.clone()) {
                Ok(work) => Work { holding: settings.hold, ..work },
                Err(error) => {
                    let why = format!("waiting on sockets: {error}");
                    let _ = notices.send(CaptureEvent::Broken { why });
                    return;
                }
            };
            work.run();
        })
    }

    /// Starts a thread that takes these commands, and sends `Done` at its end.
    pub fn spawn(
        name: String,
        orders: Sender<CaptureCommand>,
        thread_config: ThreadConfig,
        work: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let (ready, answer) = mpsc::channel();
        let thread = Builder::new().name(name).spawn(move || {
            // A kernel that refuses leaves the thread as it was.
            let _ = drop_network_rights();
            // The receiver is gone; ignore the error.
            let _ = ready.send(thread_config.apply());
            work();
        })?;
        let status = answer.recv().map_err(|_| io::Error::other("it died at once"))?;
        Ok(Self { orders, thread, status })
    }

    /// A handle for a thread that takes these commands, and sends `Done` at its end.
    pub fn of_thread(
        orders: Sender<CaptureCommand>,
        thread: JoinHandle<()>,
        status: ThreadStatus,
    ) -> Self {
        Self { orders, thread, status }
    }

    /// The affinity and priority of the thread.
    pub fn status(&self) -> &ThreadStatus {
        &self.status
    }

    /// Sends a command, and wakes the thread if it is parked. A thread that waits for sockets takes it within a few
    /// milliseconds.
    pub fn order(&self, order: CaptureCommand) {
        // A thread that has ended takes no more commands.
        let _ = self.orders.send(order);
        self.thread.thread().unpark();
    }

    /// Waits for the thread to end.
    pub fn join(self) {
        if self.thread.join().is_err() {
            eprintln!("fullbore: a capture thread failed; what was written can be recovered");
        }
    }
}

/// Sends `Done` when the thread ends, for any reason.
struct Farewell(Sender<CaptureEvent>);

impl Drop for Farewell {
    fn drop(&mut self) {
        // The supervisor is gone; ignore the error.
        let _ = self.0.send(CaptureEvent::Done);
    }
}

/// The result of one round over the sockets, or of one socket's turn in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Round {
    /// The number of datagrams.
    taken: usize,
    /// True if a socket's turn ended before the socket was empty.
    left: bool,
}

impl Round {
    fn add(&mut self, turn: Round) {
        self.taken += turn.taken;
        self.left |= turn.left;
    }

    /// True if few datagrams arrived and none waits: the next round is cheaper after a pause.
    fn may_rest(self) -> bool {
        !self.left && (1..FEW).contains(&self.taken)
    }
}

struct Work {
    ports: Vec<Port>,
    by_region: HashMap<usize, usize>,
    chain: SinkChain,
    staging: StagingBuffer,
    orders: Orders<CaptureCommand>,
    supervisor: Sender<CaptureEvent>,
    notices: Vec<CaptureEvent>,
    epoll: rustix::fd::OwnedFd,
    clock: Clock,
    /// The scan being received.
    scan: Option<Arc<ScanContext>>,
    /// True while packets are dropped because the first scan has not begun.
    holding: bool,
    /// The length of the pause: shorter if sockets have small buffers.
    gather: Duration,
    /// True if the ports read files, which wait for them.
    waits: bool,
    /// Ports whose file is over.
    over: Vec<bool>,
    /// For each port.
    failures: Vec<Failures>,
    stopping: bool,
}

impl Work {
    fn new(
        ports: Vec<Port>,
        chain: SinkChain,
        orders: Orders<CaptureCommand>,
        supervisor: Sender<CaptureEvent>,
    ) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (number, port) in ports.iter().enumerate() {
            let data = epoll::EventData::new_u64(number as u64);
            if let Some(ready) = port.input().readiness() {
                epoll::add(&epoll, ready, data, epoll::EventFlags::IN)?;
            }
        }
        let least = ports.iter().map(|port| port.input().buffer_bytes()).min().unwrap_or(0);
        let gather = GATHER.mul_f64((least as f64 / AMPLE as f64).min(1.0));
        let region = |port: &Port| Arc::as_ptr(port.region()) as usize;
        let by_region = ports.iter().enumerate().map(|(n, port)| (region(port), n)).collect();
        Ok(Self {
            waits: ports.iter().all(|port| port.input().readiness().is_none()),
            over: vec![false; ports.len()],
            failures: vec![Failures::default(); ports.len()],
            ports,
            by_region,
            chain,
            staging: StagingBuffer::new(),
            orders,
            supervisor,
            notices: Vec::new(),
            epoll,
            clock: Clock::new(),
            scan: None,
            holding: false,
            gather,
            stopping: false,
        })
    }

    fn run(&mut self) {
        let mut looked = Instant::now();
        let mut each = Instant::now();
        let due = LOOK.max(LOOK_OF_PORT * self.ports.len() as u32);
        loop {
            self.obey();
            if self.holding {
                self.throw_away();
                continue;
            }
            let round = self.round();
            if looked.elapsed() >= LOOK || round.taken == 0 {
                looked = Instant::now();
                self.take_answers();
                if self.stopping || each.elapsed() >= due {
                    each = Instant::now();
                    self.each_port(|port, thread_resources| port.look(thread_resources));
                }
                self.tell();
                let done = self.ports.iter().all(Port::is_done) && self.chain.all_sent();
                if (self.stopping && done) || self.chain.has_lost_a_writer() {
                    break;
                }
            }
            if !self.stopping && !self.waits && round.may_rest() {
                // The pause is the purpose: more datagrams gather for one call.
                std::thread::sleep(self.gather);
            }
        }
        self.tell();
    }

    fn obey(&mut self) {
        loop {
            match self.orders.try_recv() {
                Ok(CaptureCommand::Begin(context)) => {
                    self.holding = false;
                    self.each_port(|port, thread_resources| {
                        port.begin(context.clone(), thread_resources)
                    });
                    let before = self.scan.replace(context);
                    self.closed(before);
                }
                Ok(CaptureCommand::Stop) => {
                    if self.scan.is_some() && !self.waits {
                        self.read_last();
                    }
                    self.end();
                    return;
                }
                Ok(CaptureCommand::Abort) | Err(TryRecvError::Disconnected) => {
                    self.chain.abort();
                    self.end();
                    return;
                }
                Err(TryRecvError::Empty) => return,
            }
        }
    }

    fn end(&mut self) {
        (self.stopping, self.holding) = (true, false);
        for port in &mut self.ports {
            let warnings = port.input_mut().take_warnings().into_iter();
            self.notices.extend(warnings.map(|text| CaptureEvent::Warning { text }));
        }
        self.each_port(Port::end);
        let last = self.scan.take();
        self.closed(last);
    }

    /// Reports that all streams of a finished scan have been named.
    fn closed(&mut self, scan: Option<Arc<ScanContext>>) {
        self.notices.extend(scan.map(|context| CaptureEvent::Closed { scan: context.uuid }));
    }

    /// Empties the sockets, so that a scan begins with packets that arrive after its begin.
    fn throw_away(&mut self) {
        for port in self.ports.iter_mut().filter(|port| port.input().readiness().is_some()) {
            // The socket keeps an error, and reports it again after the scan has begun.
            let _ = port.drain(&mut self.staging);
        }
        // A command ends the pause.
        std::thread::park_timeout(BETWEEN_DRAINS);
    }

    /// Receives from every socket that has packets.
    fn round(&mut self) -> Round {
        if self.stopping {
            // The thread receives no more, and waits only for the writers' replies, which wake it.
            std::thread::park_timeout(LOOK);
            return Round::default();
        }
        if self.waits {
            return self.read_files();
        }
        let mut events = [const { std::mem::MaybeUninit::<epoll::Event>::uninit() }; 64];
        let ready: Vec<usize> = match epoll::wait(&self.epoll, &mut events, Some(&IDLE)) {
            Ok((ready, _)) => ready.iter().map(|event| event.data.u64() as usize).collect(),
            // A signal interrupted the wait. The next round follows at once.
            Err(_) => return Round::default(),
        };
        // Commands that arrived during the wait come before the packets: a first scan must begin before its first frame
        // is read.
        self.obey();
        let mut round = Round::default();
        if self.scan.is_none() && !self.stopping {
            // The first scan may begin long after this thread starts. The sockets hold packets that arrive meanwhile.
            std::thread::park_timeout(BETWEEN_DRAINS);
            return round;
        }
        if !self.stopping {
            ready.into_iter().for_each(|number| round.add(self.receive(number)));
        }
        round
    }

    /// Reads the next batches of files, as far as blocks are free for them.
    fn read_files(&mut self) -> Round {
        let mut round = Round::default();
        if self.scan.is_none() {
            std::thread::park_timeout(BETWEEN_DRAINS);
            return round;
        }
        for _ in 0..TURN {
            for number in 0..self.ports.len() {
                if !self.over[number] && self.ports[number].has_room() {
                    round.add(self.read_file(number));
                }
            }
        }
        if round.taken == 0 && !round.left {
            // The reply of a writer, which frees a block, and a command end the pause.
            std::thread::park_timeout(LOOK);
        }
        round
    }

    /// Reads the next batch of a file.
    fn read_file(&mut self, number: usize) -> Round {
        if let Err(error) = self.ports[number].input_mut().read_ahead() {
            let source = &self.ports[number].source().endpoint;
            let why = format!("{source} cannot be read further: {error}");
            self.notices.push(CaptureEvent::Broken { why });
            self.exhaust(number);
            return Round::default();
        }
        let turn = self.receive(number);
        if turn.taken == 0 && self.ports[number].input().is_over() {
            self.exhaust(number);
        }
        Round { taken: turn.taken, left: true }
    }

    /// A file is over. It is told of once.
    fn exhaust(&mut self, number: usize) {
        if std::mem::replace(&mut self.over[number], true) {
            return;
        }
        let port = &mut self.ports[number];
        let warnings = port.input_mut().take_warnings().into_iter();
        self.notices.extend(warnings.map(|text| CaptureEvent::Warning { text }));
        self.notices.push(CaptureEvent::Exhausted { number: port.number() });
    }

    /// The time of what a port receives now.
    fn now(&self, number: usize) -> Tai {
        self.ports[number].input().arrival().unwrap_or_else(|| self.clock.now())
    }

    /// Reads the sockets until all are empty: later packets arrived after the stop.
    fn read_last(&mut self) {
        let since = Instant::now();
        let latency = self.ports.iter().map(|port| port.input().latency()).max();
        loop {
            let mut round = Round::default();
            (0..self.ports.len()).for_each(|number| round.add(self.receive(number)));
            let elapsed = since.elapsed();
            if elapsed >= LAST_READ || round.taken == 0 && latency.is_none_or(|it| elapsed >= it) {
                return;
            }
            if round.taken == 0 {
                std::thread::sleep(LOOK);
            }
        }
    }

    /// Receives in one socket's turn.
    fn receive(&mut self, number: usize) -> Round {
        let now = self.now(number);
        let port = &mut self.ports[number];
        let mut thread_resources = ThreadResources {
            chain: &mut self.chain,
            staging: &mut self.staging,
            notices: &mut self.notices,
            now,
        };
        let mut turn = Round { taken: 0, left: true };
        // Each batch of a file has a time of its own.
        for _ in 0..if self.waits { 1 } else { TURN } {
            match port.receive(&mut thread_resources) {
                Ok(count) => {
                    self.failures[number] = Failures::default();
                    turn.taken += count;
                    // For slow streams, one more call that returns no packet would be the largest cost.
                    if count == 0 || port.input().emptied() {
                        turn.left = false;
                        break;
                    }
                }
                // The call removes the error from the socket, for example an ICMP error.
                Err(error) => {
                    if self.failures[number].last_straw() {
                        let source = &port.source().endpoint;
                        let why = format!("receiving from {source} fails again and again: {error}");
                        thread_resources.notices.push(CaptureEvent::Broken { why });
                    }
                    break;
                }
            }
        }
        turn
    }

    /// Processes the writers' replies.
    fn take_answers(&mut self) {
        while let Some(returned) = self.chain.take_returned() {
            let region = returned.block().place().0;
            let number = self.by_region[&(Arc::as_ptr(region) as usize)];
            let now = self.now(number);
            let mut thread_resources = ThreadResources {
                chain: &mut self.chain,
                staging: &mut self.staging,
                notices: &mut self.notices,
                now,
            };
            let stray = self.ports[number].answer(returned, &mut thread_resources);
            assert!(stray.is_none(), "a block came back to a stream that does not know it");
        }
    }

    fn each_port(&mut self, mut what: impl FnMut(&mut Port, &mut ThreadResources<'_>)) {
        for number in 0..self.ports.len() {
            let now = self.now(number);
            let port = &mut self.ports[number];
            let mut thread_resources = ThreadResources {
                chain: &mut self.chain,
                staging: &mut self.staging,
                notices: &mut self.notices,
                now,
            };
            what(port, &mut thread_resources);
        }
    }

    fn tell(&mut self) {
        for notice in self.notices.drain(..) {
            // The supervisor is gone, and the thread is about to end.
            let _ = self.supervisor.send(notice);
        }
    }
}

/// The number of successive errors of one socket.
#[derive(Clone, Default)]
struct Failures(u32);

impl Failures {
    /// More successive errors than this are not transient.
    const MANY: u32 = 100;

    /// Counts an error. Returns `true` once, when there are too many.
    fn last_straw(&mut self) -> bool {
        self.0 = self.0.saturating_add(1);
        self.0 == Self::MANY
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::sync::atomic::AtomicU16;
    use std::sync::{Arc, mpsc};
    use std::time::{Duration, Instant};

    use fullbore_core::endpoint::UdpSource;
    use fullbore_linux::ring::{Notifier, reply_queue};
    use fullbore_linux::thread_config::ThreadConfig;
    use uuid::Uuid;

    use super::super::port::Sizes;
    use super::super::striping::{Striper, WriterQueue};
    use super::{
        Capture, CaptureCommand, CaptureEvent, Failures, Port, Round, ScanContext, Settings,
        SinkChain,
    };

    #[test]
    fn what_comes_before_the_first_scan_has_begun_waits_in_its_socket() {
        let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let source =
            UdpSource::parse(&format!("udp://127.0.0.1:{free}?format=raw")).unwrap().remove(0);
        let sizes = Sizes { pool_bytes: 64 << 20, chunk_bytes: 64 << 20, buffer_bytes: 1 << 20 };
        let port = Port::open_near(None, source, 0, Arc::new(AtomicU16::new(1)), sizes).unwrap();
        let (notices, told) = mpsc::channel();
        let ((commands, taken), (answers, returned)) =
            (rtrb::RingBuffer::new(256), reply_queue(256));
        let wake = Arc::new(Notifier::new().unwrap());
        let queue = WriterQueue::new(commands, returned, Arc::default(), wake, 256);
        let chain = SinkChain::of_stripers(vec![Striper::new(vec![queue])]);
        let capture = Capture::start(0, vec![port], chain, notices, Settings::default()).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..100 {
            sender.send_to(&[7; 1024], ("127.0.0.1", free)).unwrap();
        }
        let early = told.recv_timeout(Duration::from_millis(100));
        assert!(early.is_err(), "no scan was begun: {}", matches!(early, Ok(CaptureEvent::Done)));
        let context = ScanContext::new(Uuid::nil(), "a_b".parse().unwrap(), true);
        capture.order(CaptureCommand::Begin(Arc::new(context)));
        let opened = told.recv_timeout(Duration::from_secs(60)).unwrap();
        assert!(matches!(opened, CaptureEvent::Opened { .. }));
        // The thread also ends if a writer is gone.
        drop((taken, answers));
        assert!(told.iter().any(|notice| matches!(notice, CaptureEvent::Done)));
        capture.join();
    }

    #[test]
    fn a_socket_that_fails_for_ever_is_told_of_once() {
        let mut failures = Failures::default();
        let told = (0..10_000).filter(|_| failures.last_straw()).count();
        assert_eq!(told, 1);
    }
    #[test]
    fn nobody_rests_while_a_socket_still_holds_something() {
        let drained = Round { taken: 16, left: false };
        let mut round = drained;
        assert!(round.may_rest());
        round.add(Round { taken: 16, left: true });
        round.add(drained);
        assert_eq!(round, Round { taken: 48, left: true });
        assert!(!round.may_rest());
        assert!(!Round::default().may_rest(), "nothing came: the wait for it is rest enough");
    }

    #[test]
    fn a_command_wakes_a_parked_capture_thread() {
        let (orders, commands) = mpsc::channel();
        let (parked, parks) = mpsc::channel();
        let since = Instant::now();
        let work = move || {
            while !matches!(commands.try_recv(), Ok(CaptureCommand::Stop)) {
                parked.send(()).unwrap();
                std::thread::park_timeout(Duration::from_secs(60));
            }
        };
        let capture = Capture::spawn("test".into(), orders, ThreadConfig::default(), work).unwrap();
        parks.recv().unwrap();
        capture.order(CaptureCommand::Stop);
        capture.join();
        assert!(since.elapsed() < Duration::from_secs(30), "it slept for {:?}", since.elapsed());
    }
}
