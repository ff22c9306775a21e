//! Model test of the supervisor in a random environment.
//!
//! The test plays capture threads and writers. They send the events of real ones, each in its own order, interleaved
//! with those of the others. At any time scans reach their limit, members fail and return, threads die, or an end is
//! requested. Metadata writers and sealing are real, on directories in memory.
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

use fullbore_capture::{Capture, CaptureCommand, CaptureEvent, ScanContext};
use fullbore_core::account::{Account, CountedBy};
use fullbore_core::affinity::{AffinityPolicy, SchedulingPolicy};
use fullbore_core::endpoint::UdpSource;
use fullbore_core::layout::Geometry;
use fullbore_core::manifest::{Format, State};
use fullbore_core::units::ByteSize;
use fullbore_linux::clock::Clock;
use fullbore_linux::ring::{StreamRef, WriterEvent, WriterMetrics};
use fullbore_linux::thread_config::ThreadStatus;
use fullbore_store::Member;
use fullbore_store::testing::Store;
use proptest::prelude::*;
use proptest::sample::Index;
use uuid::Uuid;

use super::Supervisor;
use crate::event::Event;
use crate::recorder::arm::Running;
use crate::recorder::config::RecordingConfig;
use crate::recorder::scan::ActiveScan;
use crate::sink::store::StoreSink;
use crate::sink::store::metadata_writer::MetadataWriters;
use crate::sink::{SinkConfig, Sinks, StoreConfig};

/// The longest wait for an event, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The next step.
#[derive(Clone, Copy, Debug)]
enum Pick {
    /// A thread sends its next event.
    Speak(Index),
    /// A capture thread takes a command.
    Obey(Index),
    /// The scan has reached its limit.
    Limit,
    /// A member takes no more data.
    Fail(Index),
    /// A failed member is found unchanged.
    Find(Index),
    /// A writer ends early.
    Gone(Index),
    /// A capture thread ends early.
    Die(Index),
    /// An end is requested.
    Stop,
    /// An abort is requested.
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

/// An event and its scan.
enum Word {
    Notice(Uuid, CaptureEvent),
    Report(Uuid, WriterEvent),
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

/// A capture thread or a writer.
#[derive(Default)]
struct Speaker {
    words: VecDeque<Word>,
    gone: bool,
}

/// The environment's knowledge of a scan.
struct Known {
    name: String,
    /// Capture threads with an order to begin another scan, or to end.
    left_by: BTreeSet<usize>,
    /// Members whose failure must be in its manifest.
    failed: BTreeSet<usize>,
}

struct World {
    supervisor: Supervisor,
    metadata_writers: MetadataWriters,
    notices: Sender<CaptureEvent>,
    reports: Sender<WriterEvent>,
    orders: Vec<Receiver<CaptureCommand>>,
    /// The scan that each capture thread records.
    current: Vec<Option<Arc<ScanContext>>>,
    captures: Vec<Speaker>,
    writers: Vec<Speaker>,
    streams: u16,
    scans: BTreeMap<Uuid, Known>,
    /// Members that failed and were not re-added.
    out: BTreeSet<usize>,
    /// Members that were re-added and have not reported it.
    returning: BTreeSet<usize>,
    events: Arc<Mutex<Vec<Event>>>,
    thread_lost: bool,
    all_out: bool,
    aborted: bool,
}

fn plan(
    roots: Vec<std::path::PathBuf>,
    streams: u16,
    captures: usize,
    scans: usize,
) -> RecordingConfig {
    let source = |n: u16| UdpSource::parse(&format!("udp://127.0.0.1:{}?format=raw", 1 + n));
    let sources = (0..streams).flat_map(|n| source(n).unwrap());
    let chunk = Some(ByteSize(1 << 20));
    let sink = SinkConfig::Store(StoreConfig { members: roots, chunk, ..StoreConfig::default() });
    let scans = (0..scans).map(|n| format!("s_a{n}").parse().unwrap()).collect();
    RecordingConfig {
        buffer: Some(ByteSize(16 << 20)),
        capture_threads: Some(captures),
        place: AffinityPolicy::Off,
        priority: SchedulingPolicy::Off,
        ..RecordingConfig::new(sources, sink, scans)
    }
}

impl World {
    fn new(store: &Store, streams: u16, captures: usize, scans: usize) -> Self {
        let plan = plan(store.roots(), streams, captures, scans);
        let captures = plan.captures();
        let members: Vec<Member> =
            plan.members().iter().map(|root| Member::open(root).unwrap()).collect();
        let failures = vec![None; members.len()];
        let metrics = members.iter().map(|_| Arc::new(WriterMetrics::default())).collect();
        let writers = members.iter().map(|_| Speaker::default()).collect();
        let config = plan.store().unwrap().clone();
        let chunk = ByteSize(1 << 20);
        let sink = StoreSink::of_members(config, members, Vec::new(), chunk).unwrap();
        let metadata_writers = sink.metadata_writers().clone();
        let (clock, name) = (Clock::new(), plan.scans[0].clone());
        let sinks = Sinks::of(vec![Box::new(sink)]);
        let mut first = ActiveScan::plan(name, &plan, &sinks, &failures, clock.now());
        let mut claimed = first.claim();
        claimed.wait_for_all();
        first.begin(claimed, true).unwrap();
        let (notices, notice_receiver) = mpsc::channel();
        let (reports, report_receiver) = mpsc::channel();
        let (mut orders, mut threads) = (Vec::new(), Vec::new());
        for _ in 0..captures {
            let (order, receiver) = mpsc::channel();
            orders.push(receiver);
            let thread = std::thread::spawn(|| ());
            threads.push(Capture::of_thread(order, thread, ThreadStatus::default()));
        }
        let running = Running {
            host_setup: None,
            receive_buffer: 0,
            captures: threads,
            writers: Vec::new(),
            metrics,
            notices: notice_receiver,
            reports: vec![report_receiver],
        };
        let supervisor = Supervisor::new(plan, sinks, running, first, clock);
        supervisor.begin_unless_it_waits();
        Self {
            supervisor,
            metadata_writers,
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

    /// Calls the supervisor and keeps its events.
    fn with(&mut self, act: impl FnOnce(&mut Supervisor, &mut dyn FnMut(&Event))) {
        let events = self.events.clone();
        let mut tell = move |event: &Event| events.lock().unwrap().push(event.clone());
        act(&mut self.supervisor, &mut tell);
    }

    /// Runs one pass of the loop in [`super::Recorder::run`], without the reports for people.
    fn turn(&mut self) {
        // Keeps the supervisor from waiting.
        let _ = self.notices.send(CaptureEvent::Warning { text: "tick".into() });
        self.with(|supervisor, tell| {
            supervisor.listen(tell);
            if !supervisor.is_over() {
                supervisor.keep_to_the_plan(false, tell);
            }
        });
        self.see_recalls();
    }

    /// Writers read the order to take data again. They report it after they have closed their old files.
    fn see_recalls(&mut self) {
        for member in 0..self.writers.len() {
            if self.supervisor.running.metrics[member].recalled.swap(false, Relaxed) {
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
                    self.metadata_writers.find_again(member);
                }
            }
            Pick::Gone(index) => {
                let member = index.index(self.writers.len());
                self.thread_lost = true;
                self.writers[member] = Speaker { words: VecDeque::new(), gone: true };
                self.reports.send(WriterEvent::Gone { member }).unwrap();
            }
            Pick::Die(index) => {
                let capture = index.index(self.captures.len());
                if !self.captures[capture].gone {
                    self.thread_lost = true;
                    self.captures[capture] = Speaker { words: VecDeque::new(), gone: true };
                    self.notices.send(CaptureEvent::Done).unwrap();
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
                self.notices.send(CaptureEvent::Done).unwrap();
            }
            Some(Word::Back(member)) => {
                self.returning.remove(&member);
                self.reports.send(WriterEvent::Back { member }).unwrap();
            }
            None => unreachable!("it had something to say"),
        }
    }

    /// A capture thread takes its next command. Its current scan is over, and it sends its events in its own order.
    fn obey(&mut self, capture: usize) {
        if self.captures[capture].gone {
            return;
        }
        let Ok(order) = self.orders[capture].try_recv() else { return };
        if let Some(before) = self.current[capture].take() {
            self.end(capture, &before);
        }
        match order {
            CaptureCommand::Begin(context) => {
                let failed = self.out.clone();
                self.scans.entry(context.uuid).or_insert_with(|| Known {
                    name: context.scan.to_string(),
                    left_by: BTreeSet::new(),
                    failed,
                });
                self.current[capture] = Some(context);
            }
            CaptureCommand::Stop | CaptureCommand::Abort => {
                // After two stop requests, the event is already queued.
                let says = |word: &Word| matches!(word, Word::Done);
                if !self.captures[capture].words.iter().any(says) {
                    self.captures[capture].words.push_back(Word::Done);
                }
            }
        }
    }

    fn end(&mut self, capture: usize, context: &ScanContext) {
        let (scan, captures) = (context.uuid, self.captures.len());
        if let Some(known) = self.scans.get_mut(&scan) {
            known.left_by.insert(capture);
        }
        let words = &mut self.captures[capture].words;
        words.push_back(Word::Notice(scan, CaptureEvent::Closed { scan }));
        for number in (0..self.streams).filter(|number| usize::from(*number) % captures == capture)
        {
            // The last stream had no packets. The others sent their data.
            if number > 0 && number + 1 == self.streams {
                let account = Box::new(Account::new(CountedBy::Nothing));
                let (number, source) = (Some(number), String::new());
                let silent = CaptureEvent::Silent { scan, number, source, account };
                words.push_back(Word::Notice(scan, silent));
                continue;
            }
            let account = Box::new(Account::new(CountedBy::Nothing));
            let (format, blocks, bytes) = (Format::Raw, 0, 0);
            let ended = CaptureEvent::Ended {
                scan,
                number,
                format,
                blocks,
                bytes,
                account,
                shares: Vec::new(),
            };
            words.push_back(Word::Notice(scan, ended));
            let geometry = Geometry { frame_bytes: 64, block_bytes: 4096, chunk_blocks: 4 };
            let directory = String::new();
            let stream_ref = Arc::new(StreamRef { scan, number, directory, geometry });
            for (member, writer) in self.writers.iter_mut().enumerate().filter(|(_, it)| !it.gone) {
                let finished = WriterEvent::Finished { member, stream_ref: stream_ref.clone() };
                writer.words.push_back(Word::Report(scan, finished));
            }
        }
    }

    /// A member fails. Every scan that still awaits events must contain the failure afterwards.
    fn fail(&mut self, member: usize) {
        if self.writers[member].gone {
            return;
        }
        let why = format!("failed after {} events", self.events.lock().unwrap().len());
        self.reports.send(WriterEvent::Failed { member, why, suspect: vec![] }).unwrap();
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

    /// All threads send their remaining events, and an end is requested.
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
            // Gives other threads time to work.
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
        // A thread sends no event before a command to begin.
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
