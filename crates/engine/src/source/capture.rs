//! A capture thread: many ports, one loop, no waiting but for packets.

use std::collections::HashMap;
use std::io;
use std::sync::mpsc::{Receiver as Orders, Sender, TryRecvError};
use std::sync::{Arc, mpsc};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use fullbore_core::redundancy::Scheme;
use rustix::event::{Timespec, epoll};

use super::dealer::{Dealer, Lane};
use super::part::{Notice, Opening};
use super::port::{Lender, Port};
use super::scratch::Scratch;
use crate::clock::Clock;
use crate::posting::{Posting, Standing};
use crate::ring::Returned;
use crate::store::tails::Tails;

/// Calls to one socket before the next has its turn.
const TURN: usize = 16;

/// Datagrams in a round below which it pays to let more gather before the next.
const FEW: usize = 1024;

/// How long they are let gather: at 16 Gbit/s these are two megabytes, and sockets hold 64.
const GATHER: Duration = Duration::from_millis(1);

/// A receive buffer that holds a millisecond of the fastest stream many times over.
const AMPLE: usize = 16 << 20;

/// The longest sleep while nothing comes.
const IDLE: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// Time between two looks at answers, cuts and counters.
const LOOK: Duration = Duration::from_millis(2);

/// As much time at least for each port between two looks at all of them: of many slow ones, looking would cost more
/// than what they bring.
const LOOK_OF_PORT: Duration = Duration::from_micros(250);

/// Between two drains before a scan begins: sockets hold far more than comes in this time.
const BETWEEN_DRAINS: Duration = Duration::from_millis(2);

/// After a stop, what the sockets still hold is read for at most so long.
const LAST_READ: Duration = Duration::from_millis(500);

/// How a capture thread runs.
#[derive(Clone, Default)]
pub struct Settings {
    /// Where to run, and how urgently.
    pub posting: Posting,
    /// Whether what comes before the first scan begins is thrown away. It is part of no scan then, not even by
    /// having been looked at.
    pub hold: bool,
    /// Who keeps the tails of slow streams, if anybody does.
    pub tails: Option<Tails>,
    /// Which stripes are made of the chunks, if any are.
    pub redundancy: Option<Scheme>,
}

/// What the supervisor orders.
#[derive(Debug)]
pub enum Order {
    /// Begin this scan: the first, or the next one without a pause.
    Begin(Arc<Opening>),
    /// Read what the sockets hold, hand everything on, end.
    Stop,
    /// Hand nothing on any more, end.
    Abort,
}

/// A running capture thread.
pub struct Capture {
    orders: Sender<Order>,
    thread: JoinHandle<()>,
    standing: Standing,
}

impl Capture {
    /// Starts thread `number` with these ports and a lane to every member. What happens is told by
    /// `notices`, of which `Done` is the last, however the thread ends.
    pub fn start(
        number: usize,
        ports: Vec<Port>,
        lanes: Vec<Lane>,
        notices: Sender<Notice>,
        settings: Settings,
    ) -> io::Result<Self> {
        let (orders, receiver) = mpsc::channel();
        let (ready, answer) = mpsc::channel();
        let thread = Builder::new().name(format!("capture{number}")).spawn(move || {
            // Without anybody to tell, it stands as it stands.
            let _ = ready.send(settings.posting.take_up());
            let _farewell = Farewell(notices.clone());
            let mut work = match Work::new(ports, lanes, receiver, notices.clone()) {
                Ok(work) => Work {
                    holding: settings.hold,
                    dealer: work
                        .dealer
                        .keeping_tails(settings.tails)
                        .for_stripes(settings.redundancy),
                    ..work
                },
                Err(error) => {
                    let why = format!("waiting on sockets: {error}");
                    let _ = notices.send(Notice::Broken { why });
                    return;
                }
            };
            work.run();
        })?;
        let standing = answer.recv().map_err(|_| io::Error::other("it died at once"))?;
        Ok(Self { orders, thread, standing })
    }

    /// A thread that obeys these orders, and tells `Done` at its end.
    pub(crate) fn of_thread(
        orders: Sender<Order>,
        thread: JoinHandle<()>,
        standing: Standing,
    ) -> Self {
        Self { orders, thread, standing }
    }

    /// Where its thread runs, and how urgently.
    pub fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Gives an order. It is taken within a few milliseconds.
    pub fn order(&self, order: Order) {
        // A thread that has ended has nothing left to obey with.
        let _ = self.orders.send(order);
    }

    /// Waits for the thread to end.
    pub fn join(self) {
        if self.thread.join().is_err() {
            eprintln!("fullbore: a capture thread failed; what was written can be recovered");
        }
    }
}

/// Says that the thread has ended, however it ended.
struct Farewell(Sender<Notice>);

impl Drop for Farewell {
    fn drop(&mut self) {
        // Without a supervisor there is nobody to tell.
        let _ = self.0.send(Notice::Done);
    }
}

/// What one round over the sockets, or one socket's turn in it, has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Round {
    /// Datagrams.
    taken: usize,
    /// A socket's turn was over before it was empty.
    left: bool,
}

impl Round {
    fn add(&mut self, turn: Round) {
        self.taken += turn.taken;
        self.left |= turn.left;
    }

    /// Little came and nothing waits: the next round is cheaper when more has gathered.
    fn may_rest(self) -> bool {
        !self.left && (1..FEW).contains(&self.taken)
    }
}

struct Work {
    ports: Vec<Port>,
    by_region: HashMap<usize, usize>,
    dealer: Dealer,
    scratch: Scratch,
    orders: Orders<Order>,
    supervisor: Sender<Notice>,
    notices: Vec<Notice>,
    epoll: rustix::fd::OwnedFd,
    clock: Clock,
    /// The scan being received.
    scan: Option<Arc<Opening>>,
    /// What comes is thrown away: the first scan has not begun.
    holding: bool,
    /// How long packets are let gather: less where sockets hold little.
    gather: Duration,
    /// Of each port.
    failures: Vec<Failures>,
    stopping: bool,
}

impl Work {
    fn new(
        ports: Vec<Port>,
        lanes: Vec<Lane>,
        orders: Orders<Order>,
        supervisor: Sender<Notice>,
    ) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (number, port) in ports.iter().enumerate() {
            let data = epoll::EventData::new_u64(number as u64);
            epoll::add(&epoll, port, data, epoll::EventFlags::IN)?;
        }
        let least = ports.iter().map(|port| port.receiver().buffer_bytes()).min().unwrap_or(0);
        let gather = GATHER.mul_f64((least as f64 / AMPLE as f64).min(1.0));
        let region = |port: &Port| Arc::as_ptr(port.region()) as usize;
        let by_region = ports.iter().enumerate().map(|(n, port)| (region(port), n)).collect();
        Ok(Self {
            failures: vec![Failures::default(); ports.len()],
            ports,
            by_region,
            dealer: Dealer::new(lanes),
            scratch: Scratch::new(),
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
                    self.each_port(|port, lender| port.look(lender));
                }
                self.tell();
                let done = self.ports.iter().all(Port::is_done) && self.dealer.all_sent();
                if (self.stopping && done) || self.dealer.has_lost_a_writer() {
                    break;
                }
            }
            if !self.stopping && round.may_rest() {
                std::thread::sleep(self.gather);
            }
        }
        self.tell();
    }

    fn obey(&mut self) {
        loop {
            match self.orders.try_recv() {
                Ok(Order::Begin(opening)) => {
                    self.holding = false;
                    self.each_port(|port, lender| port.begin(opening.clone(), lender));
                    let before = self.scan.replace(opening);
                    self.closed(before);
                }
                Ok(Order::Stop) => {
                    if self.scan.is_some() {
                        (0..self.ports.len()).for_each(|number| self.read_last(number));
                    }
                    self.end();
                    return;
                }
                Ok(Order::Abort) | Err(TryRecvError::Disconnected) => {
                    self.dealer.abort();
                    self.end();
                    return;
                }
                Err(TryRecvError::Empty) => return,
            }
        }
    }

    fn end(&mut self) {
        (self.stopping, self.holding) = (true, false);
        self.each_port(Port::end);
        let last = self.scan.take();
        self.closed(last);
    }

    /// All streams of a scan that is over have been named.
    fn closed(&mut self, scan: Option<Arc<Opening>>) {
        self.notices.extend(scan.map(|opening| Notice::Closed { scan: opening.uuid }));
    }

    /// Empties the sockets, so that a scan begins with what comes after it has begun.
    fn throw_away(&mut self) {
        for port in &mut self.ports {
            // An error stays with the socket, and is met again when the scan has begun.
            let _ = port.drain(&mut self.scratch);
        }
        std::thread::sleep(BETWEEN_DRAINS);
    }

    /// Receives from every socket that has something.
    fn round(&mut self) -> Round {
        if self.stopping {
            // Nothing more is taken: only the answers of the writers are awaited.
            std::thread::sleep(Duration::from_millis(1));
            return Round::default();
        }
        let mut events = [const { std::mem::MaybeUninit::<epoll::Event>::uninit() }; 64];
        let ready: Vec<usize> = match epoll::wait(&self.epoll, &mut events, Some(&IDLE)) {
            Ok((ready, _)) => ready.iter().map(|event| event.data.u64() as usize).collect(),
            // Interrupted by a signal: the next round is as good.
            Err(_) => return Round::default(),
        };
        // What was ordered while we waited comes before what has arrived: a first scan must have begun
        // before its first frame is read.
        self.obey();
        let mut round = Round::default();
        if self.scan.is_none() && !self.stopping {
            // It may take a while from the start of this thread to that. The sockets hold what comes meanwhile.
            std::thread::sleep(BETWEEN_DRAINS);
            return round;
        }
        if !self.stopping {
            ready.into_iter().for_each(|number| round.add(self.receive(number)));
        }
        round
    }

    /// Reads what a socket holds, up to the moment it is empty: what comes later is after the stop.
    fn read_last(&mut self, number: usize) {
        let since = Instant::now();
        while self.receive(number).taken > 0 && since.elapsed() < LAST_READ {}
    }

    /// One socket's turn.
    fn receive(&mut self, number: usize) -> Round {
        let now = self.clock.now();
        let port = &mut self.ports[number];
        let mut lender = Lender {
            dealer: &mut self.dealer,
            scratch: &mut self.scratch,
            notices: &mut self.notices,
            now,
        };
        let mut turn = Round { taken: 0, left: true };
        for _ in 0..TURN {
            match port.receive(&mut lender) {
                Ok(count) => {
                    self.failures[number] = Failures::default();
                    turn.taken += count;
                    // One more call, only to hear that nothing is left, is what slow streams would cost most by.
                    if count == 0 || port.receiver().emptied() {
                        turn.left = false;
                        break;
                    }
                }
                // An error that the socket held (an ICMP answer, say) is taken off it by the call.
                Err(error) => {
                    if self.failures[number].last_straw() {
                        let source = &port.source().endpoint;
                        let why = format!("receiving from {source} fails again and again: {error}");
                        lender.notices.push(Notice::Broken { why });
                    }
                    break;
                }
            }
        }
        turn
    }

    /// Takes answers of the writers.
    fn take_answers(&mut self) {
        while let Some(returned) = self.dealer.take_returned() {
            let region = match &returned {
                Returned::Written { block, .. } => block.place().0,
                Returned::Refused(filled) => filled.block.place().0,
            };
            let number = self.by_region[&(Arc::as_ptr(region) as usize)];
            let now = self.clock.now();
            let mut lender = Lender {
                dealer: &mut self.dealer,
                scratch: &mut self.scratch,
                notices: &mut self.notices,
                now,
            };
            let stray = self.ports[number].answer(returned, &mut lender);
            assert!(stray.is_none(), "a block came back to a stream that does not know it");
        }
    }

    fn each_port(&mut self, mut what: impl FnMut(&mut Port, &mut Lender<'_>)) {
        let now = self.clock.now();
        for port in &mut self.ports {
            let mut lender = Lender {
                dealer: &mut self.dealer,
                scratch: &mut self.scratch,
                notices: &mut self.notices,
                now,
            };
            what(port, &mut lender);
        }
    }

    fn tell(&mut self) {
        for notice in self.notices.drain(..) {
            // Without a supervisor there is nobody to tell, and the thread is about to end.
            let _ = self.supervisor.send(notice);
        }
    }
}

/// Errors in a row of one socket.
#[derive(Clone, Default)]
struct Failures(u32);

impl Failures {
    /// So many in a row are no passing errors.
    const MANY: u32 = 100;

    /// Counts one more; `true` once, when they are too many.
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
    use std::time::Duration;

    use fullbore_core::endpoint::UdpSource;
    use uuid::Uuid;

    use super::super::port::Sizes;
    use super::{Capture, Failures, Lane, Notice, Opening, Order, Port, Round, Settings};
    use crate::ring::Wake;

    #[test]
    fn what_comes_before_the_first_scan_has_begun_waits_in_its_socket() {
        let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let source =
            UdpSource::parse(&format!("udp://127.0.0.1:{free}?format=raw")).unwrap().remove(0);
        let sizes = Sizes { pool_bytes: 64 << 20, chunk_bytes: 64 << 20, buffer_bytes: 1 << 20 };
        let port = Port::open_near(None, source, 0, Arc::new(AtomicU16::new(1)), sizes).unwrap();
        let (notices, told) = mpsc::channel();
        let ((commands, taken), (answers, returned)) =
            (rtrb::RingBuffer::new(256), rtrb::RingBuffer::new(256));
        let wake = Arc::new(Wake::new().unwrap());
        let lane = Lane::new(commands, returned, Arc::default(), wake, 256);
        let capture =
            Capture::start(0, vec![port], vec![lane], notices, Settings::default()).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..100 {
            sender.send_to(&[7; 1024], ("127.0.0.1", free)).unwrap();
        }
        let early = told.recv_timeout(Duration::from_millis(100));
        assert!(early.is_err(), "no scan was begun: {}", matches!(early, Ok(Notice::Done)));
        let opening = Opening { uuid: Uuid::nil(), scan: "a_b".parse().unwrap(), single: true };
        capture.order(Order::Begin(Arc::new(opening)));
        let opened = told.recv_timeout(Duration::from_secs(60)).unwrap();
        assert!(matches!(opened, Notice::Opened { .. }));
        // A writer that is gone is the end of the thread too.
        drop((taken, answers));
        assert!(told.iter().any(|notice| matches!(notice, Notice::Done)));
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
}
