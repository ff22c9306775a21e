//! A whole recording of a source that nothing comes from, on members that stand still.

use std::net::UdpSocket;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use fullbore_core::endpoint::UdpSource;
use fullbore_core::manifest::{MANIFEST_FILE, Manifest, State};
use fullbore_core::place::{Urgency, Wish};
use fullbore_core::units::ByteSize;
use tempfile::TempDir;

use super::{Control, Event, Limit, Plan, RecordError, Recorder, rehearse, set};
use crate::store::hanging::{Hung, hang, hang_writer, kill_writer};
use crate::store::inventory::side_file;
use crate::store::lock::is_held;
use crate::store::recover;
use crate::store::testing::{Store, StreamPlan};

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

    /// Those of a store that was recorded on.
    fn of(store: &Store) -> Self {
        Self { roots: store.roots(), _directories: Vec::new() }
    }

    fn plan(&self, scans: &[&str], duration: Duration) -> Plan {
        let free = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        Plan {
            sources: UdpSource::parse(&format!("udp://127.0.0.1:{port}?format=raw")).unwrap(),
            pandas: Vec::new(),
            members: self.roots.clone(),
            scans: scans.iter().map(|name| name.parse().unwrap()).collect(),
            start: None,
            limit: Limit { duration: Some(duration), ..Limit::default() },
            buffer: Some(ByteSize(16 << 20)),
            chunk: None,
            capture_threads: None,
            place: Wish::Auto,
            priority: Urgency::Auto,
            sync_interval: None,
            redundancy: None,
            stall: None,
            clock: Default::default(),
            planned: fullbore_core::completeness::Planned::default(),
            goes_on_without: None,
            new_members: Vec::new(),
        }
    }
}

/// Whoever waits for a member that stands still waits no longer than this: then the test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// A member that stands still until it is let go, or for too long.
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
        // Whoever has stood still for too long listens no more.
        let _ = self.go.send(());
    }
}

/// Records, and lets a member stand still from when it is armed until something has happened without it.
fn record(
    members: &Members,
    plan: Plan,
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
    recorder.run(&Arc::new(Control::default()), &mut tell).unwrap();
    let Still { go, ended } = still.expect("it was armed");
    drop(go);
    assert!(ended.join().unwrap(), "it waited for a member that stood still");
    events
}

/// Whether the recorder tells how this scan stands while it is recorded.
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
    // It stands still until the third scan is being recorded, and that is told: nobody has waited for it.
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
    assert!(told.contains("s_a is less safe than was asked for: "), "{told}");
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

/// Records what a sender of datagrams has, and does something once some of it has come.
fn record_something(
    members: &Members,
    control: &Arc<Control>,
    scan: &str,
    mut once: impl FnMut(&Event),
) -> (Result<(), RecordError>, Vec<Event>) {
    let mut plan = members.plan(&[scan], Duration::from_secs(60));
    let block = "block=64KiB&frame=4096";
    let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    plan.sources = UdpSource::parse(&format!("udp://127.0.0.1:{free}?format=raw&{block}")).unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let ended = over.clone();
    let sender = thread::spawn(move || {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        while !ended.load(Ordering::Relaxed) {
            // Nobody may listen yet, or any more.
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
        record_something(&members, &Arc::new(Control::default()), "s_died", |event| {
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
    let control = Arc::new(Control::default());
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

/// How many members a plan finds, where those are that are away, and what it says of them.
fn opened(plan: &Plan) -> (usize, Vec<PathBuf>, Vec<String>) {
    let mut told = Vec::new();
    let mut tell = |event: &Event| {
        told.extend(warnings(std::slice::from_ref(event)).into_iter().map(str::to_owned))
    };
    let (members, away) = set::open(plan, &mut tell).unwrap();
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
    plan.new_members = vec![unmounted.clone()];
    assert_eq!(opened(&plan), (3, vec![], vec![]));
    // Once it has been said, it is a member as any other.
    plan.new_members.clear();
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
    plan.members.push(another.path().to_owned());
    assert_eq!(opened(&plan), (3, vec![], vec![]));
    let (was, is) = (store.roots()[1].clone(), another.path().join("moved"));
    std::fs::rename(&was, &is).unwrap();
    std::fs::create_dir(&was).unwrap();
    plan.members[2] = is;
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
    // The one that is left is another than it was.
    let others = std::collections::BTreeMap::from([(store.roots()[0].clone(), uuid::Uuid::nil())]);
    plan.goes_on_without = Some(others);
    assert!(matches!(set::open(&plan, &mut |_| ()), Err(RecordError::Member(_))));
}

#[test]
fn a_rehearsal_tells_all_that_is_in_the_way_at_once_and_holds_nothing() {
    let members = Members::new(1);
    let plan = members.plan(&["s_one"], Duration::from_secs(1));
    let mut tell = |_: &Event| {};
    assert!(rehearse(&plan, &mut tell).problems.is_empty());
    let taken = UdpSocket::bind(plan.sources[0].address).expect("it holds no port");
    let plan = Plan {
        members: vec![members.roots[0].join("none")],
        buffer: Some(ByteSize(1 << 20)),
        ..plan
    };
    let problems = rehearse(&plan, &mut tell).problems;
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
        // Who it is, and nothing of a scan.
        entry.file_name() == ".fullbore"
    }));
}

#[test]
fn an_end_that_is_set_while_a_scan_runs_is_kept_like_its_limit() {
    let members = Members::new(1);
    let plan = members.plan(&["s_one"], Duration::from_secs(3600));
    let control = Arc::new(Control::default());
    let mut sealed = None;
    let mut tell = |event: &Event| match event {
        Event::Progress(_) => control.end_by(Some(Instant::now())),
        Event::Sealed(scan) => sealed = Some(scan.clone()),
        _ => {}
    };
    let recorder = Recorder::arm(plan, &mut tell).unwrap();
    recorder.run(&control, &mut tell).unwrap();
    assert_eq!(control.asked(), 0, "nobody has asked for the end of all");
    assert_eq!(sealed.expect("it was sealed").manifest.state, State::Sealed);
}
