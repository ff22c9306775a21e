//! The supervisor against an environment that chooses what happens next.
//!
//! Capture threads and writers are the test's: they say what real ones may say, each in an order of its own, while what
//! others say comes in between. Scans reach their limit, members fail and are found again, threads die, an end is asked for,
//! at any time. Scribes and sealing are real, on directories in memory.
//!
//! ```text
//! capture 0 ─ Closed, Ended …, Done ─┐
//! capture 1 ─ Ended, Closed …, Done ─┼─ whoever is picked ──► Supervisor ──► orders, events
//! writer 0  ─ Finished, Failed, Back ┘
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fullbore_core::account::{Account, CountedBy};
use fullbore_core::endpoint::UdpSource;
use fullbore_core::layout::Geometry;
use fullbore_core::manifest::{Format, State};
use fullbore_core::place::{Urgency, Wish};
use fullbore_core::units::ByteSize;
use proptest::prelude::*;
use proptest::sample::Index;
use uuid::Uuid;

use super::Supervisor;
use crate::clock::Clock;
use crate::posting::Standing;
use crate::recorder::arm::Running;
use crate::recorder::event::Event;
use crate::recorder::plan::{Limit, Plan};
use crate::recorder::scan::{DiskSet, Scan};
use crate::recorder::scribe::Scribes;
use crate::ring::{Gauge, Report, Track};
use crate::source::{Capture, Notice, Opening, Order};
use crate::store::Member;
use crate::store::testing::Store;

/// By then whatever is waited for has come, also on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is made to happen next.
#[derive(Clone, Copy, Debug)]
enum Pick {
    /// A thread says what it has to say next.
    Speak(Index),
    /// A capture thread takes an order.
    Obey(Index),
    /// The scan has reached its limit.
    Limit,
    /// A member takes no more data.
    Fail(Index),
    /// A member that failed is found to be as it was.
    Find(Index),
    /// A writer ends before its time.
    Gone(Index),
    /// A capture thread ends before its time.
    Die(Index),
    /// An end is asked for.
    Stop,
    /// One that waits for nothing.
    Abort,
}

fn picks() -> impl Strategy<Value = Vec<Pick>> {
    let pick = prop_oneof![
        20 => any::<Index>().prop_map(Pick::Speak),
        10 => any::<Index>().prop_map(Pick::Obey),
        6 => Just(Pick::Limit),
        4 => any::<Index>().prop_map(Pick::Fail),
        3 => any::<Index>().prop_map(Pick::Find),
        1 => Just(Pick::Stop),
    ];
    let rare = prop_oneof![
        any::<Index>().prop_map(Pick::Gone),
        any::<Index>().prop_map(Pick::Die),
        Just(Pick::Abort),
    ];
    let rare = prop::option::weighted(0.3, (any::<Index>(), rare));
    (prop::collection::vec(pick, 0..60), rare).prop_map(|(mut picks, rare)| {
        if let Some((at, pick)) = rare {
            picks.insert(at.index(picks.len() + 1), pick);
        }
        picks
    })
}

/// Something said, and of which scan.
enum Word {
    Notice(Uuid, Notice),
    Report(Uuid, Report),
    Done,
    Back(usize),
}

impl Word {
    fn scan(&self) -> Option<Uuid> {
        match self {
            Word::Notice(scan, _) | Word::Report(scan, _) => Some(*scan),
            Word::Done | Word::Back(_) => None,
        }
    }
}

/// A capture thread, or a writer.
#[derive(Default)]
struct Speaker {
    words: VecDeque<Word>,
    gone: bool,
}

/// A scan as its environment knows it.
struct Known {
    name: String,
    /// Captures that were told to begin another, or to end.
    left_by: BTreeSet<usize>,
    /// Members whose failure must be in its manifest.
    failed: BTreeSet<usize>,
}

struct World {
    supervisor: Supervisor,
    notices: Sender<Notice>,
    reports: Sender<Report>,
    orders: Vec<Receiver<Order>>,
    /// What each capture thread is recording.
    current: Vec<Option<Arc<Opening>>>,
    captures: Vec<Speaker>,
    writers: Vec<Speaker>,
    streams: u16,
    scans: BTreeMap<Uuid, Known>,
    /// Members that failed and were not taken back.
    out: BTreeSet<usize>,
    /// Members that were taken back and have not said so.
    returning: BTreeSet<usize>,
    events: Arc<Mutex<Vec<Event>>>,
    thread_lost: bool,
    all_out: bool,
    aborted: bool,
}

fn plan(roots: Vec<std::path::PathBuf>, streams: u16, captures: usize, scans: usize) -> Plan {
    let source = |n: u16| UdpSource::parse(&format!("udp://127.0.0.1:{}?format=raw", 1 + n));
    Plan {
        sources: (0..streams).flat_map(|n| source(n).unwrap()).collect(),
        pandas: Vec::new(),
        members: roots,
        scans: (0..scans).map(|n| format!("s_a{n}").parse().unwrap()).collect(),
        start: None,
        limit: Limit::default(),
        buffer: Some(ByteSize(16 << 20)),
        chunk: Some(ByteSize(1 << 20)),
        capture_threads: Some(captures),
        place: Wish::Off,
        priority: Urgency::Off,
        sync_interval: None,
        redundancy: None,
        stall: None,
        clock: Default::default(),
        planned: fullbore_core::completeness::Planned::default(),
        goes_on_without: None,
        new_members: Vec::new(),
    }
}

impl World {
    fn new(store: &Store, streams: u16, captures: usize, scans: usize) -> Self {
        let plan = plan(store.roots(), streams, captures, scans);
        let captures = plan.captures();
        let members: Vec<Member> =
            plan.members.iter().map(|root| Member::open(root).unwrap()).collect();
        let scribes = Scribes::start(&members).unwrap();
        let failures = vec![None; members.len()];
        let set = DiskSet { members: &members, failures: &failures, away: &[] };
        let (clock, name) = (Clock::new(), plan.scans[0].clone());
        let mut first = Scan::plan(name, &plan, set, &scribes, clock.now()).unwrap();
        let mut claimed = first.claim();
        claimed.wait_for_all();
        first.begin(claimed).unwrap();
        let (notices, notice_receiver) = mpsc::channel();
        let (reports, report_receiver) = mpsc::channel();
        let (mut orders, mut threads) = (Vec::new(), Vec::new());
        for _ in 0..captures {
            let (order, receiver) = mpsc::channel();
            orders.push(receiver);
            let thread = std::thread::spawn(|| ());
            threads.push(Capture::of_thread(order, thread, Standing::default()));
        }
        let gauges = members.iter().map(|_| Arc::new(Gauge::default())).collect();
        let steps = members.iter().map(|_| 64 << 20).collect();
        let running = Running {
            autogroup: None,
            rig: None,
            captures: threads,
            writers: Vec::new(),
            tails: None,
            gauges,
            steps,
            notices: notice_receiver,
            reports: report_receiver,
        };
        let writers = members.iter().map(|_| Speaker::default()).collect();
        let supervisor = Supervisor::new(plan, members, running, scribes, first, clock);
        supervisor.begin_unless_it_waits();
        Self {
            supervisor,
            notices,
            reports,
            orders,
            current: vec![None; captures],
            captures: (0..captures).map(|_| Speaker::default()).collect(),
            writers,
            streams,
            scans: BTreeMap::new(),
            out: BTreeSet::new(),
            returning: BTreeSet::new(),
            events: Arc::default(),
            thread_lost: false,
            all_out: false,
            aborted: false,
        }
    }

    /// Does something with the supervisor, whose events are kept.
    fn with(&mut self, act: impl FnOnce(&mut Supervisor, &mut dyn FnMut(&Event))) {
        let events = self.events.clone();
        let mut tell = move |event: &Event| events.lock().unwrap().push(event.clone());
        act(&mut self.supervisor, &mut tell);
    }

    /// One pass of the loop in [`super::Recorder::run`], without what is told for people.
    fn turn(&mut self) {
        // So that it waits for nothing.
        let _ = self.notices.send(Notice::Warning { text: "tick".into() });
        self.with(|supervisor, tell| {
            supervisor.listen(tell);
            if !supervisor.is_over() {
                supervisor.keep_to_the_plan(false, tell);
            }
        });
        self.see_recalls();
    }

    /// Writers find that they are to take data again, and will say so once what was before is closed.
    fn see_recalls(&mut self) {
        for member in 0..self.writers.len() {
            if self.supervisor.running.gauges[member].recalled.swap(false, Relaxed) {
                self.out.remove(&member);
                if !self.writers[member].gone {
                    self.returning.insert(member);
                    self.writers[member].words.push_back(Word::Back(member));
                }
            }
        }
    }

    fn carry_out(&mut self, pick: Pick) {
        match pick {
            Pick::Speak(index) => self.speak(index),
            Pick::Obey(index) => self.obey(index.index(self.orders.len())),
            Pick::Limit => self.with(|supervisor, tell| {
                if supervisor.stopping == 0 && supervisor.next.is_none() {
                    supervisor.end_scan(tell);
                }
            }),
            Pick::Fail(index) => self.fail(index.index(self.writers.len())),
            Pick::Find(index) => {
                let member = index.index(self.writers.len());
                if self.out.contains(&member) {
                    self.supervisor.scribes.find_again(member);
                }
            }
            Pick::Gone(index) => {
                let member = index.index(self.writers.len());
                self.thread_lost = true;
                self.writers[member] = Speaker { words: VecDeque::new(), gone: true };
                self.reports.send(Report::Gone { member }).unwrap();
            }
            Pick::Die(index) => {
                let capture = index.index(self.captures.len());
                if !self.captures[capture].gone {
                    self.thread_lost = true;
                    self.captures[capture] = Speaker { words: VecDeque::new(), gone: true };
                    self.notices.send(Notice::Done).unwrap();
                }
            }
            Pick::Stop => self.supervisor.stop(1),
            Pick::Abort => {
                self.aborted = true;
                self.supervisor.stop(2);
            }
        }
        self.see_recalls();
        self.turn();
    }

    fn speak(&mut self, index: Index) {
        let all = self.captures.iter_mut().chain(&mut self.writers);
        let mut ready: Vec<&mut Speaker> = all.filter(|it| !it.words.is_empty()).collect();
        if ready.is_empty() {
            return;
        }
        let at = index.index(ready.len());
        match ready[at].words.pop_front() {
            Some(Word::Notice(_, notice)) => self.notices.send(notice).unwrap(),
            Some(Word::Report(_, report)) => self.reports.send(report).unwrap(),
            Some(Word::Done) => {
                ready[at].gone = true;
                self.notices.send(Notice::Done).unwrap();
            }
            Some(Word::Back(member)) => {
                self.returning.remove(&member);
                self.reports.send(Report::Back { member }).unwrap();
            }
            None => unreachable!("it had something to say"),
        }
    }

    /// A capture thread takes its next order: what it records is over, and it says so in an order of its own.
    fn obey(&mut self, capture: usize) {
        if self.captures[capture].gone {
            return;
        }
        let Ok(order) = self.orders[capture].try_recv() else { return };
        if let Some(before) = self.current[capture].take() {
            self.end(capture, &before);
        }
        match order {
            Order::Begin(opening) => {
                let failed = self.out.clone();
                self.scans.entry(opening.uuid).or_insert_with(|| Known {
                    name: opening.scan.to_string(),
                    left_by: BTreeSet::new(),
                    failed,
                });
                self.current[capture] = Some(opening);
            }
            Order::Stop | Order::Abort => {
                // Asked twice, it is on its way.
                let says = |word: &Word| matches!(word, Word::Done);
                if !self.captures[capture].words.iter().any(says) {
                    self.captures[capture].words.push_back(Word::Done);
                }
            }
        }
    }

    fn end(&mut self, capture: usize, opening: &Opening) {
        let (scan, captures) = (opening.uuid, self.captures.len());
        if let Some(known) = self.scans.get_mut(&scan) {
            known.left_by.insert(capture);
        }
        let words = &mut self.captures[capture].words;
        words.push_back(Word::Notice(scan, Notice::Closed { scan }));
        for number in (0..self.streams).filter(|number| usize::from(*number) % captures == capture)
        {
            // Nothing came of the last stream; the others handed on what they had.
            if number > 0 && number + 1 == self.streams {
                let account = Box::new(Account::new(CountedBy::Nothing));
                let (number, source) = (Some(number), String::new());
                let silent = Notice::Silent { scan, number, source, account };
                words.push_back(Word::Notice(scan, silent));
                continue;
            }
            let account = Box::new(Account::new(CountedBy::Nothing));
            let (format, blocks, bytes) = (Format::Raw, 0, 0);
            let ended = Notice::Ended { scan, number, format, blocks, bytes, account };
            words.push_back(Word::Notice(scan, ended));
            let geometry = Geometry { frame_bytes: 64, block_bytes: 4096, chunk_blocks: 4 };
            let directory = String::new();
            let track = Arc::new(Track { scan, number, directory, geometry });
            for (member, writer) in self.writers.iter_mut().enumerate().filter(|(_, it)| !it.gone) {
                let finished = Report::Finished { member, track: track.clone() };
                writer.words.push_back(Word::Report(scan, finished));
            }
        }
    }

    /// A member fails: every scan of which something is still to be said must know it afterwards.
    fn fail(&mut self, member: usize) {
        if self.writers[member].gone {
            return;
        }
        let why = format!("failed after {} events", self.events.lock().unwrap().len());
        self.reports.send(Report::Failed { member, why, suspect: vec![] }).unwrap();
        if self.returning.contains(&member) {
            return;
        }
        let captures = self.captures.len();
        let unsaid: BTreeSet<Uuid> = self
            .captures
            .iter()
            .chain(&self.writers)
            .flat_map(|it| it.words.iter().filter_map(Word::scan))
            .collect();
        for (scan, known) in &mut self.scans {
            if unsaid.contains(scan) || (known.left_by.len() < captures && !self.thread_lost) {
                known.failed.insert(member);
            }
        }
        self.out.insert(member);
        self.all_out |= self.out.len() == self.writers.len();
    }

    /// Everybody says what he has to say, and an end is asked for.
    fn finish(&mut self, order: &[Index]) {
        self.supervisor.stop(1);
        let since = Instant::now();
        for index in order.iter().cycle() {
            if self.supervisor.is_over() {
                return;
            }
            assert!(since.elapsed() < PATIENCE, "it waits for something for ever");
            (0..self.orders.len()).for_each(|capture| self.obey(capture));
            self.speak(*index);
            self.turn();
            // What is left to others than us takes its time.
            std::thread::yield_now();
        }
    }

    fn check(self) {
        let events = self.events.lock().unwrap();
        for known in self.scans.values() {
            let sealed: Vec<_> = events
                .iter()
                .filter_map(|event| match event {
                    Event::Sealed(it) if it.manifest.scan.to_string() == known.name => Some(it),
                    _ => None,
                })
                .collect();
            let unsealed = format!("{} is not sealed", known.name);
            let is = |event: &&Event| matches!(event, Event::Warning { text } if text.starts_with(&unsealed));
            let unsealed = events.iter().filter(is).count();
            assert_eq!(sealed.len() + unsealed, 1, "{} of {events:?}", known.name);
            assert!(unsealed == 0 || self.thread_lost || self.all_out, "{events:?}");
            let Some(sealed) = sealed.first() else { continue };
            let state = sealed.manifest.state;
            assert!(
                state == State::Sealed || (state == State::Aborted && self.aborted),
                "{state:?}"
            );
            assert_eq!(sealed.accounts.len(), usize::from(self.streams));
            for &member in &known.failed {
                let told = &sealed.manifest.members[member];
                assert!(told.failure.is_some(), "{}: member {member} failed in it", known.name);
            }
        }
        assert!(!self.scans.is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 64, ..ProptestConfig::default() })]

    #[test]
    fn every_scan_is_sealed_or_left_once_with_every_failure_in_it_whatever_comes_in_which_order(
        members in 1usize..4, streams in 1u16..4, captures in 1usize..3, scans in 1usize..5,
        picks in picks(), order in prop::collection::vec(any::<Index>(), 16),
    ) {
        let store = Store::in_memory(members);
        let mut world = World::new(&store, streams, captures, scans);
        // Without having been told to begin nobody says anything.
        (0..world.orders.len()).for_each(|capture| world.obey(capture));
        for pick in picks {
            world.carry_out(pick);
            if world.supervisor.is_over() {
                break;
            }
        }
        world.finish(&order);
        world.check();
    }
}
