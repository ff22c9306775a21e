//! Sessions owned by a program: recorded, restarted, changed while they wait, stopped, refused.

use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fullbore_core::hint::Hint;
use fullbore_core::memory_budget::MeasuredDisks;
use fullbore_linux::clock::Clock;
use fullbore_recording::session::ScanOutcome;
use fullbore_recording::{
    Outcome, RecordingOptions, Session, SessionError, SessionEvent, SessionOutcome,
};
use fullbore_time::Tai;

const SECOND: i64 = 1_000_000_000;

/// A place with a schedule, a store, and a port.
struct Site {
    place: tempfile::TempDir,
    port: u16,
}

impl Site {
    fn new() -> Self {
        let free = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir(place.path().join("store")).unwrap();
        Self { place, port }
    }

    fn schedule(&self) -> PathBuf {
        self.place.path().join("day.csv")
    }

    fn plan(&self, scans: &[(&str, Tai)]) {
        let line = |(name, start): &(&str, Tai)| format!("{name},{start:.3},1s\n");
        let lines: String = scans.iter().map(line).collect();
        std::fs::write(self.schedule(), format!("scan,start,duration\n{lines}")).unwrap();
    }

    fn options(&self) -> RecordingOptions {
        RecordingOptions {
            source: vec![format!("udp://127.0.0.1:{}?format=raw&block=64KiB", self.port)],
            store: vec![self.place.path().join("store")],
            schedule: Some(self.schedule()),
            session: Some("day".to_owned()),
            lead: Some(Duration::from_millis(500)),
            buffer: Some("16MiB".parse().unwrap()),
            ..RecordingOptions::default()
        }
    }

    fn open(&self) -> Session {
        Session::open(self.options(), MeasuredDisks::default()).unwrap()
    }

    /// Runs the session while datagrams are sent.
    fn record(&self) -> (Vec<SessionEvent>, SessionOutcome) {
        let over = Arc::new(AtomicBool::new(false));
        let (ended, port) = (over.clone(), self.port);
        let sending = std::thread::spawn(move || {
            let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
            while !ended.load(Ordering::Relaxed) {
                // Nobody may listen yet.
                let _ = sender.send_to(&[7; 1000], ("127.0.0.1", port));
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let mut events = Vec::new();
        let outcome = self.open().run(&mut |event| events.push(event.clone())).unwrap();
        over.store(true, Ordering::Relaxed);
        sending.join().unwrap();
        (events, outcome)
    }
}

fn in_seconds(seconds: i64) -> Tai {
    Clock::new().now().plus_ns(seconds * SECOND)
}

/// The names of events, without those of the recorder.
fn names(events: &[SessionEvent]) -> Vec<&'static str> {
    let name = |event: &SessionEvent| match event {
        SessionEvent::Waiting { .. } => Some("waiting"),
        SessionEvent::Arming { .. } => Some("arming"),
        SessionEvent::Over { .. } => Some("over"),
        SessionEvent::Missed { .. } => Some("missed"),
        SessionEvent::RecordedBefore { .. } => Some("recorded before"),
        SessionEvent::Schedule { .. } => Some("schedule"),
        SessionEvent::Room { .. } | SessionEvent::Recording(_) => None,
    };
    events.iter().filter_map(name).collect()
}

fn account_in(store: &Path) -> serde_json::Value {
    let sessions = store.join(".fullbore/sessions");
    let entry = std::fs::read_dir(&sessions).unwrap().flatten().next().expect("it has an account");
    serde_json::from_slice(&std::fs::read(entry.path()).unwrap()).unwrap()
}

#[test]
fn a_session_records_its_scans_and_a_second_one_finds_them() {
    let site = Site::new();
    site.plan(&[("no1", in_seconds(2)), ("no2", in_seconds(4)), ("no0", in_seconds(-60))]);
    let (events, ended) = site.record();
    assert_eq!(
        names(&events),
        ["missed", "waiting", "arming", "over", "waiting", "arming", "over"],
        "{events:?}"
    );
    let scans = &ended.account.scans;
    assert!(matches!(scans[0].came, ScanOutcome::Missed));
    for scan in &scans[1..] {
        assert!(matches!(scan.came, ScanOutcome::Recorded { bytes: 1000.., .. }), "{scan:?}");
    }
    assert_eq!(ended.outcome, Outcome::Problem, "a scan was missed");
    assert_eq!(serde_json::to_value(&ended.account).unwrap()["scans"][0]["outcome"], "missed");

    let (events, again) = site.record();
    assert_eq!(names(&events), ["missed", "recorded before", "recorded before"]);
    assert!(matches!(again.account.scans[1].came, ScanOutcome::RecordedBefore { .. }));
    assert!(account_in(&site.place.path().join("store"))["scans"].is_array());
}

#[test]
fn a_session_that_waits_is_changed_and_stopped_through_its_handle() {
    let site = Site::new();
    let far = in_seconds(3000);
    site.plan(&[("far", far)]);
    let session = site.open();
    let handle = session.handle();
    let mut events = Vec::new();
    let outcome = session.run(&mut |event| {
        match event {
            SessionEvent::Waiting { scan, .. } if scan.as_str() == "far" => {
                site.plan(&[("near", in_seconds(2000)), ("far", far)]);
                handle.reload();
            }
            SessionEvent::Waiting { .. } => handle.stop(),
            _ => {}
        }
        events.push(event.clone());
    });
    let ended = outcome.unwrap();
    assert_eq!(names(&events), ["waiting", "schedule", "waiting"]);
    let added = events.iter().find_map(|event| match event {
        SessionEvent::Schedule { added, .. } => Some(added.clone()),
        _ => None,
    });
    assert_eq!(added.unwrap(), ["near".parse().unwrap()]);
    let left: Vec<&str> = ended.account.left.iter().map(|name| name.as_str()).collect();
    assert_eq!((left, ended.outcome), (vec!["near", "far"], Outcome::Problem));
}

#[test]
fn a_schedule_that_is_broken_while_a_session_waits_changes_nothing() {
    let site = Site::new();
    site.plan(&[("far", in_seconds(3000))]);
    let session = site.open();
    let handle = session.handle();
    let mut told = Vec::new();
    let ended = session.run(&mut |event| match event {
        SessionEvent::Waiting { .. } => {
            std::fs::write(site.schedule(), "nonsense").unwrap();
            handle.reload();
        }
        SessionEvent::Recording(fullbore_recording::Event::Warning { text }) => {
            told.push(text.clone());
            handle.stop();
        }
        _ => {}
    });
    assert!(told[0].starts_with("the schedule stays as it was: "), "{told:?}");
    assert_eq!(ended.unwrap().account.left.len(), 1);
}

#[test]
fn a_session_that_cannot_begin_says_why() {
    let site = Site::new();
    let refused = |options: RecordingOptions| {
        let error = Session::open(options, MeasuredDisks::default()).err().expect("it is refused");
        (error.to_string(), error.hint().unwrap_or_default(), error)
    };
    let (told, _, error) = refused(site.options());
    assert!(matches!(error, SessionError::Read { .. }) && told.contains("day.csv"), "{told}");
    std::fs::write(site.schedule(), "nonsense").unwrap();
    let (told, hint, _) = refused(site.options());
    assert!(told.contains("day.csv") && hint.contains("VEX"), "{told} {hint}");
    std::fs::write(site.schedule(), vec![b'#'; 17 << 20]).unwrap();
    assert!(matches!(refused(site.options()).2, SessionError::Size { .. }));
    site.plan(&[("far", in_seconds(3000))]);
    let none = RecordingOptions { session: None, ..site.options() };
    let (told, hint, _) = refused(none);
    assert!(told.contains("names no session") && hint.contains("--session"));
    let invalid = RecordingOptions { session: Some("a_b".into()), ..site.options() };
    assert!(refused(invalid).0.starts_with("--session: "));
    let both = RecordingOptions { duration: Some(Duration::from_secs(1)), ..site.options() };
    assert!(refused(both).0.contains("--duration cannot be used with --schedule"));
    let panda = RecordingOptions { source: vec!["panda://a".into()], ..site.options() };
    assert!(refused(panda).0.contains("not by a schedule"));
    let no_file =
        RecordingOptions { schedule: None, scan: Some("a".into()), lead: None, ..site.options() };
    assert!(matches!(refused(no_file).2, SessionError::NoSchedule));
}

#[test]
fn a_lasting_problem_ends_a_session_before_it_waits() {
    let site = Site::new();
    site.plan(&[("far", in_seconds(3000))]);
    let twice = vec![site.options().source[0].clone(); 2];
    let options = RecordingOptions { source: twice, ..site.options() };
    let session = Session::open(options, MeasuredDisks::default()).unwrap();
    let error = session.run(&mut |_| ()).unwrap_err();
    assert!(matches!(error, SessionError::Record(_)), "{error}");
}
