//! Tests of whole recordings of a silent source, on members that stall.

use std::net::UdpSocket;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use fullbore_care::recover;
use fullbore_core::device::BytesStream;
use fullbore_core::endpoint::{FileTarget, UdpSource};
use fullbore_core::manifest::{MANIFEST_FILE, Manifest, State};
use fullbore_core::units::ByteSize;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_store::inventory::{self, Inventory, side_file};
use fullbore_store::lock::is_held;
use fullbore_store::reader::Scan;
use fullbore_store::stall_hooks::{Hung, hang, hang_writer, kill_writer};
use fullbore_store::testing::{Store, StreamPlan};
use tempfile::TempDir;

use super::{
    Event, Limit, RecordError, Recorder, RecordingConfig, Sealed, SourceConfig, preflight,
};
use crate::sink::file::FileConfig;
use crate::sink::store::disk_set;
use crate::sink::{SinkConfig, StoreConfig};

struct Members {
    roots: Vec<PathBuf>,
    _directories: Vec<TempDir>,
}

impl Members {
    fn new(count: usize) -> Self {
        let directories: Vec<TempDir> = (0..count).map(|_| tempfile::tempdir().unwrap()).collect();
        let roots = directories.iter().map(|it| it.path().canonicalize().unwrap()).collect();
        Self { roots, _directories: directories }
    }

    fn manifest_path(&self, member: usize, scan: &str) -> PathBuf {
        side_file(&self.roots[member].join(scan), MANIFEST_FILE)
    }

    fn state(&self, member: usize, scan: &str) -> Option<State> {
        let json = std::fs::read(self.manifest_path(member, scan)).ok()?;
        Some(Manifest::from_json(&json).unwrap().state)
    }

    /// The members of a store that was recorded on.
    fn of(store: &Store) -> Self {
        Self { roots: store.roots(), _directories: Vec::new() }
    }

    fn plan(&self, scans: &[&str], duration: Duration) -> RecordingConfig {
        let free = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        let sources = UdpSource::parse(&format!("udp://127.0.0.1:{port}?format=raw")).unwrap();
        let scans = scans.iter().map(|name| name.parse().unwrap()).collect();
        RecordingConfig {
            limit: Limit { duration: Some(duration), ..Limit::default() },
            buffer: Some(ByteSize(16 << 20)),
            ..RecordingConfig::new(sources, store(self.roots.clone()), scans)
        }
    }
}

/// The store on these members.
fn store(members: Vec<PathBuf>) -> SinkConfig {
    SinkConfig::Store(StoreConfig { members, ..StoreConfig::default() })
}

/// The store configuration of a plan.
fn store_of(plan: &mut RecordingConfig) -> &mut StoreConfig {
    let SinkConfig::Store(store) = &mut plan.sinks[0] else {
        unreachable!("tests record into a store")
    };
    store
}

/// The longest wait for a stalled member; after it the test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// A member that stalls until it is released, or for too long.
struct Still {
    go: mpsc::Sender<()>,
    ended: thread::JoinHandle<bool>,
}

impl Still {
    fn stand(hung: Hung) -> Self {
        let (go, told) = mpsc::channel();
        let ended = thread::spawn(move || {
            let in_time = told.recv_timeout(PATIENCE).is_ok();
            drop(hung);
            in_time
        });
        Self { go, ended }
    }

    fn let_go(&self) {
        // After too long a stall the receiver is gone.
        let _ = self.go.send(());
    }
}

/// Records while a member stalls, from arming until an event shows that the recorder went on without it.
fn record(
    members: &Members,
    plan: RecordingConfig,
    hung: usize,
    mut armed: impl FnMut(),
    mut is_it: impl FnMut(&Event) -> bool,
) -> Vec<Event> {
    let (mut events, mut still) = (Vec::new(), None);
    let mut tell = |event: &Event| {
        if matches!(event, Event::Armed(_)) {
            still = Some(Still::stand(hang(&members.roots[hung])));
            armed();
        }
        if is_it(event) {
            still.iter().for_each(Still::let_go);
        }
        events.push(event.clone());
    };
    let recorder = Recorder::arm(plan, &mut tell).unwrap();
    recorder.run(&Arc::new(StopHandle::default()), &mut tell).unwrap();
    let Still { go, ended } = still.expect("it was armed");
    drop(go);
    assert!(ended.join().unwrap(), "it waited for a member that stood still");
    events
}

/// True if the event reports progress of this scan.
fn is_recording(event: &Event, scan: &str) -> bool {
    matches!(event, Event::Progress(told) if told.scan.to_string() == scan)
}

fn warnings(events: &[Event]) -> Vec<&str> {
    events
        .iter()
        .filter_map(|event| match event {
            Event::Warning { text } => Some(text.as_str()),
            _ => None,
        })
        .collect()
}

#[test]
fn a_member_that_stands_still_holds_up_neither_the_next_scan_nor_the_screen() {
    let members = Members::new(2);
    let scans = ["s_a1", "s_a2", "s_a3"];
    let plan = members.plan(&scans, Duration::from_millis(500));
    let held = || {
        for member in 0..2 {
            assert!(is_held(&members.manifest_path(member, "s_a1")), "member {member}");
        }
    };
    // The member stalls until the third scan reports progress: no thread waited for the member.
    let events = record(&members, plan, 1, held, |event| is_recording(event, "s_a3"));
    let sealed = events.iter().filter(|event| matches!(event, Event::Sealed(_))).count();
    assert_eq!(sealed, 3);
    for scan in scans {
        assert!(events.iter().any(|event| is_recording(event, scan)), "nothing was told of {scan}");
    }
    let waited_for = warnings(&events).iter().filter(|it| it.contains("does not answer")).count();
    assert_eq!(waited_for, 2, "{:?}", warnings(&events));
    for scan in scans {
        for member in 0..2 {
            assert_eq!(members.state(member, scan), Some(State::Sealed), "{scan} on {member}");
            assert!(!is_held(&members.manifest_path(member, scan)));
        }
    }
}

#[test]
fn a_scan_is_sealed_on_the_members_that_answer_and_the_other_follows() {
    let members = Members::new(2);
    let plan = members.plan(&["s_a"], Duration::from_millis(200));
    let states = std::cell::Cell::new(None);
    let events = record(
        &members,
        plan,
        0,
        || (),
        |event| {
            let sealed = matches!(event, Event::Sealed(_));
            if sealed {
                states.set(Some([0, 1].map(|member| members.state(member, "s_a"))));
            }
            sealed
        },
    );
    assert_eq!(states.get(), Some([Some(State::Recording), Some(State::Sealed)]));
    let told = warnings(&events).join("; ");
    assert!(told.contains("s_a is sealed without it"), "{told}");
    assert!(told.contains("s_a is degraded: "), "{told}");
    let sealed = events.iter().find_map(|event| match event {
        Event::Sealed(sealed) => Some(&sealed.manifest),
        _ => None,
    });
    let named = sealed.unwrap().members.iter().map(|member| member.failure.is_some());
    assert!(named.eq([true, false]), "{sealed:?}");
    let since = Instant::now();
    while members.state(0, "s_a") != Some(State::Sealed) {
        assert!(since.elapsed() < Duration::from_secs(20), "it never followed");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn another_scan_of_that_name_on_a_member_that_answers_late_is_left_as_it_is() {
    let members = Members::new(2);
    let plan = members.plan(&["s_a1", "s_a2"], Duration::from_millis(500));
    let path = members.manifest_path(1, "s_a2");
    let mut other = Vec::new();
    let prepare = || {
        let json = std::fs::read(members.manifest_path(1, "s_a1")).unwrap();
        let mut manifest = Manifest::from_json(&json).unwrap();
        manifest.uuid = uuid::Uuid::from_u128(9);
        other = manifest.to_json();
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &other).unwrap();
    };
    let events = record(&members, plan, 1, prepare, |event| is_recording(event, "s_a2"));
    assert_eq!(members.state(0, "s_a2"), Some(State::Sealed), "{:?}", warnings(&events));
    assert_eq!(std::fs::read(&path).unwrap(), other);
    assert!(!is_held(&path));
}

/// Records from a sender of datagrams, and runs an action after the first of them have arrived.
fn record_something(
    members: &Members,
    control: &Arc<StopHandle>,
    scan: &str,
    mut once: impl FnMut(&Event),
) -> (Result<(), RecordError>, Vec<Event>) {
    let mut plan = members.plan(&[scan], Duration::from_secs(60));
    let block = "block=64KiB&frame=4096";
    let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let sources = UdpSource::parse(&format!("udp://127.0.0.1:{free}?format=raw&{block}")).unwrap();
    plan.sources = sources.into_iter().map(Into::into).collect();
    let over = Arc::new(AtomicBool::new(false));
    let ended = over.clone();
    let sender = thread::spawn(move || {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        while !ended.load(Ordering::Relaxed) {
            // The receiver may not listen yet, or no longer.
            let _ = socket.send_to(&[7; 4096], ("127.0.0.1", free));
            thread::sleep(Duration::from_micros(200));
        }
    });
    let mut events = Vec::new();
    let mut tell = |event: &Event| {
        once(event);
        events.push(event.clone());
    };
    let recorder = Recorder::arm(plan, &mut tell).unwrap();
    let ended = recorder.run(control, &mut tell);
    over.store(true, Ordering::Relaxed);
    sender.join().unwrap();
    (ended, events)
}

#[test]
fn a_writer_that_dies_ends_the_recording_and_leaves_the_scan_to_recover() {
    let members = Members::new(2);
    let mut killed = false;
    let (ended, events) =
        record_something(&members, &Arc::new(StopHandle::default()), "s_died", |event| {
            let some = matches!(event, Event::Progress(told) if told.durable_bytes > 0);
            if some && !std::mem::replace(&mut killed, true) {
                kill_writer(&members.roots[1]);
            }
        });
    let Err(RecordError::Broken { why }) = ended else { panic!("{ended:?}") };
    assert!(why.contains(&format!("the writer of {}", members.roots[1].display())), "{why}");
    assert!(warnings(&events).iter().any(|text| text.contains("fullbore recover s_died")));
    let (scan, how) = ("s_died".parse().unwrap(), recover::Options::default());
    let outcome = recover::recover(&members.roots, &scan, how, &|_| {}).unwrap();
    let recover::Outcome::Recovered(recovery) = outcome else { panic!("{outcome:?}") };
    let [stream] = recovery.streams.as_slice() else { panic!("{recovery:?}") };
    assert!(stream.blocks > 0 && stream.damaged == 0 && stream.lost == 0, "{stream:?}");
    assert_eq!(members.state(0, "s_died"), Some(State::Recovered));
}

#[test]
fn a_recording_can_be_left_though_a_member_does_not_answer() {
    let members = Members::new(1);
    let control = Arc::new(StopHandle::default());
    let (mut hung, mut told) = (None, 0);
    let (ended, events) = record_something(&members, &control, "s_left", |event| match event {
        Event::Progress(it) if it.durable_bytes > 0 && hung.is_none() => {
            hung = Some(hang_writer(&members.roots[0]));
        }
        Event::Progress(it) if hung.is_some() && it.members[0].backlog_bytes > 0 && told == 0 => {
            told = 1;
            control.stop();
        }
        Event::Warning { text } if text.contains("has not answered") => {
            assert!(text.contains(&members.roots[0].display().to_string()), "{text}");
            told += 1;
            control.stop();
        }
        _ => {}
    });
    assert!(matches!(&ended, Err(RecordError::Left { scans }) if scans.len() == 1), "{ended:?}");
    assert_eq!(told, 3, "told once for the stop and once for the abort: {:?}", warnings(&events));
    drop(hung);
}

#[test]
fn a_recording_whose_members_answer_is_aborted_however_often_an_end_is_asked_for() {
    let members = Members::new(1);
    let control = Arc::new(StopHandle::default());
    let (ended, events) = record_something(&members, &control, "s_three", |event| {
        if matches!(event, Event::Progress(it) if it.durable_bytes > 0) {
            (0..3).for_each(|_| control.stop());
        }
    });
    assert!(ended.is_ok(), "{ended:?}");
    assert!(events.iter().any(|event| matches!(event, Event::Sealed(_))));
    assert_eq!(members.state(0, "s_three"), Some(State::Aborted));
}

/// The number of members that a plan finds, the paths of missing members, and the warnings.
fn opened(plan: &RecordingConfig) -> (usize, Vec<PathBuf>, Vec<String>) {
    let mut told = Vec::new();
    let mut tell = |event: &Event| {
        told.extend(warnings(std::slice::from_ref(event)).into_iter().map(str::to_owned))
    };
    let (members, away) = disk_set::open(plan.store().unwrap(), &mut tell).unwrap();
    (members.len(), away.into_iter().map(|it| it.path).collect(), told)
}

#[test]
fn nothing_is_made_where_the_disk_of_a_member_is_not_mounted_unless_that_is_meant() {
    let store = Store::new(3);
    store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
    let mut plan = Members::of(&store).plan(&["r1_b"], Duration::from_secs(1));
    let unmounted = store.roots()[1].clone();
    std::fs::remove_dir_all(&unmounted).unwrap();
    for made in [false, true] {
        if made {
            std::fs::create_dir(&unmounted).unwrap();
        }
        let (there, away, told) = opened(&plan);
        assert_eq!((there, away), (2, vec![unmounted.clone()]));
        let [told] = told.as_slice() else { panic!("{told:?}") };
        assert!(told.contains("is its disk mounted?") && told.contains("--new-member"), "{told}");
    }
    assert_eq!(std::fs::read_dir(&unmounted).unwrap().count(), 0);
    store_of(&mut plan).new_members = vec![unmounted.clone()];
    assert_eq!(opened(&plan), (3, vec![], vec![]));
    // After this confirmation it is a member like any other.
    store_of(&mut plan).new_members.clear();
    assert_eq!(opened(&plan), (3, vec![], vec![]));
}

#[test]
fn a_directory_that_was_no_member_becomes_one_and_so_does_one_whose_member_is_elsewhere_now() {
    let fresh = Members::new(3);
    let plan = fresh.plan(&["r1_a"], Duration::from_secs(1));
    assert_eq!(opened(&plan), (3, vec![], vec![]), "first of all nobody is asked anything");
    let store = Store::new(2);
    store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
    let mut plan = Members::of(&store).plan(&["r1_b"], Duration::from_secs(1));
    let another = tempfile::tempdir().unwrap();
    store_of(&mut plan).members.push(another.path().to_owned());
    assert_eq!(opened(&plan), (3, vec![], vec![]));
    let (was, is) = (store.roots()[1].clone(), another.path().join("moved"));
    std::fs::rename(&was, &is).unwrap();
    std::fs::create_dir(&was).unwrap();
    store_of(&mut plan).members[2] = is;
    assert_eq!(opened(&plan), (3, vec![], vec![]));
}

#[test]
fn with_no_member_there_a_recording_is_refused_and_several_that_are_away_are_told_of_at_once() {
    let store = Store::new(3);
    store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
    let mut plan = Members::of(&store).plan(&["r1_b"], Duration::from_secs(1));
    for root in &store.roots()[1..] {
        std::fs::remove_dir_all(root).unwrap();
        std::fs::create_dir(root).unwrap();
    }
    let (there, away, told) = opened(&plan);
    assert_eq!((there, away, told.len()), (1, store.roots()[1..].to_vec(), 1), "{told:?}");
    // The remaining member has a different identity.
    let others = std::collections::BTreeMap::from([(store.roots()[0].clone(), uuid::Uuid::nil())]);
    store_of(&mut plan).degraded_start = Some(others);
    assert!(matches!(
        disk_set::open(plan.store().unwrap(), &mut |_| ()),
        Err(RecordError::Member(_))
    ));
}

#[test]
fn a_rehearsal_tells_all_that_is_in_the_way_at_once_and_holds_nothing() {
    let members = Members::new(1);
    let plan = members.plan(&["s_one"], Duration::from_secs(1));
    let mut tell = |_: &Event| {};
    assert!(preflight(&plan, &mut tell).problems.is_empty());
    let SourceConfig::Udp(source) = &plan.sources[0] else { panic!("{plan:?}") };
    let taken = UdpSocket::bind(source.address).expect("it holds no port");
    let plan = RecordingConfig {
        sinks: vec![store(vec![members.roots[0].join("none")])],
        buffer: Some(ByteSize(1 << 20)),
        ..plan
    };
    let problems = preflight(&plan, &mut tell).problems;
    let lasting: Vec<bool> = problems.iter().map(RecordError::is_lasting).collect();
    assert!(
        matches!(
            problems[..],
            [RecordError::Member(_), RecordError::SmallBuffer { .. }, RecordError::Port(_)]
        ),
        "{problems:?}"
    );
    assert_eq!(lasting, [false, true, false]);
    drop(taken);
    assert!(std::fs::read_dir(&members.roots[0]).unwrap().flatten().all(|entry| {
        // The identity of the member, and no part of a scan.
        entry.file_name() == ".fullbore"
    }));
}

#[test]
fn an_end_that_is_set_while_a_scan_runs_is_kept_like_its_limit() {
    let members = Members::new(1);
    let plan = members.plan(&["s_one"], Duration::from_secs(3600));
    let control = Arc::new(StopHandle::default());
    let mut sealed = None;
    let mut tell = |event: &Event| match event {
        Event::Progress(_) => control.end_by(Some(Instant::now())),
        Event::Sealed(scan) => sealed = Some(scan.clone()),
        _ => {}
    };
    let recorder = Recorder::arm(plan, &mut tell).unwrap();
    recorder.run(&control, &mut tell).unwrap();
    assert_eq!(control.stop_requests(), 0, "nobody has asked for the end of all");
    assert_eq!(sealed.expect("it was sealed").manifest.state, State::Sealed);
}

#[test]
fn a_sink_that_fails_is_told_with_its_own_account_and_the_other_is_whole() {
    let (members, folder) = (Members::new(1), tempfile::tempdir().unwrap());
    let file = |path: &str| {
        let target = FileTarget::parse(&format!("file:{path}")).unwrap();
        SinkConfig::File(FileConfig { target })
    };
    let whole = folder.path().join("whole");
    // Every write to this device fails for lack of space.
    let sinks = vec![
        file("/dev/full?existing=append"),
        file(whole.to_str().unwrap()),
        store(members.roots.clone()),
    ];
    let source = BytesStream::parse("pattern:counter?bytes=3MiB").unwrap();
    let scans = vec!["s_a".parse().unwrap()];
    let mut plan = RecordingConfig::new([source], SinkConfig::Discard, scans);
    plan.sinks = sinks;
    let mut sealed: Vec<Sealed> = Vec::new();
    let mut tell = |event: &Event| {
        if let Event::Sealed(it) = event {
            sealed.push((**it).clone());
        }
    };
    let recorder = Recorder::arm(plan, &mut tell).unwrap();
    recorder.run(&Arc::new(StopHandle::default()), &mut tell).unwrap();
    let [sealed] = sealed.as_slice() else { panic!("{sealed:?}") };
    assert_eq!(sealed.accounts[0].terms.written, 3 << 20, "two sinks have everything");
    let [full, whole_file, kept] = sealed.sinks.as_slice() else { panic!("{:?}", sealed.sinks) };
    assert!(whole_file.is_whole() && kept.is_whole() && !full.is_whole(), "{:?}", sealed.sinks);
    assert_eq!((full.bytes, full.lacking), (0, 3 << 20));
    assert_eq!(full.failure.as_deref(), Some("the file system is full"));
    assert_eq!((full.accounts[0].terms.written, full.accounts[0].terms.overrun), (0, 3 << 20));
    assert_eq!(std::fs::read(whole).unwrap().len(), 3 << 20);
    assert_eq!(members.state(0, "s_a"), Some(State::Sealed));
}

#[test]
fn a_place_is_not_two_sinks_of_one_recording() {
    let members = Members::new(2);
    let plan = members.plan(&["s_a"], Duration::from_secs(1));
    let twice = plan.clone().with_sink(store(members.roots[1..].to_vec()));
    let error = Recorder::arm(twice, &mut |_| ()).err().unwrap();
    assert!(
        matches!(&error, RecordError::SamePlace { path } if *path == members.roots[1]),
        "{error}"
    );
    let none = RecordingConfig { sinks: Vec::new(), ..plan };
    let error = Recorder::arm(none, &mut |_| ()).err().unwrap();
    assert!(matches!(error, RecordError::NoSink), "{error}");
}

#[test]
fn two_stores_of_a_recording_are_two_scans_and_never_one_disk_set() {
    let members = Members::new(2);
    let source = BytesStream::parse("pattern:counter?bytes=3MiB").unwrap();
    let scans = vec!["s_a".parse().unwrap()];
    let [one, other] = [0, 1].map(|number| vec![members.roots[number].clone()]);
    let plan = RecordingConfig::new([source], store(one.clone()), scans);
    let recorder = Recorder::arm(plan.with_sink(store(other.clone())), &mut |_| ()).unwrap();
    recorder.run(&Arc::new(StopHandle::default()), &mut |_| ()).unwrap();
    let scan = "s_a".parse().unwrap();
    let [first, second] =
        [&one, &other].map(|roots| Inventory::take(roots, &scan).unwrap().manifest);
    assert_ne!(first.uuid, second.uuid);
    assert_eq!((first.members.len(), second.members.len()), (1, 1));
    for roots in [&one, &other] {
        // The checksum of an index record contains the identity of its scan.
        let blocks = &Scan::open(roots, &scan).unwrap().streams[0].blocks;
        assert_eq!(blocks.iter().map(|it| u64::from(it.block.bytes)).sum::<u64>(), 3 << 20);
    }
    let Err(both) = Inventory::take(&members.roots, &scan) else { panic!("they are not one scan") };
    assert!(matches!(both, inventory::Error::TwoScans { .. }), "{both}");
}

#[test]
fn a_writer_that_dies_leaves_what_the_other_store_has_to_recover() {
    let members = Members::new(2);
    let source = BytesStream::parse("pattern:counter?rate=20MB/s").unwrap();
    let scans = vec!["s_died".parse().unwrap()];
    let plan = RecordingConfig::new([source], store(vec![members.roots[0].clone()]), scans);
    let plan = plan.with_sink(store(vec![members.roots[1].clone()]));
    let mut killed = false;
    let mut tell = |event: &Event| {
        let some = matches!(event, Event::Progress(told) if told.durable_bytes > 0);
        if some && !std::mem::replace(&mut killed, true) {
            kill_writer(&members.roots[1]);
        }
    };
    let recorder = Recorder::arm(plan, &mut tell).unwrap();
    let ended = recorder.run(&Arc::new(StopHandle::default()), &mut tell);
    assert!(matches!(ended, Err(RecordError::Broken { .. })), "{ended:?}");
    for root in &members.roots {
        let (scan, how) = ("s_died".parse().unwrap(), recover::Options::default());
        let outcome = recover::recover(std::slice::from_ref(root), &scan, how, &|_| {}).unwrap();
        let recover::Outcome::Recovered(recovery) = outcome else { panic!("{outcome:?}") };
        let [stream] = recovery.streams.as_slice() else { panic!("{recovery:?}") };
        assert!(stream.blocks > 0 && stream.damaged == 0 && stream.lost == 0, "{stream:?}");
    }
}
