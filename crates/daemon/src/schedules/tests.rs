//! A shell script in place of the recorder: it reads its schedule as the recorder does, and obeys its signals.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);

/// It notes the number of lines of its schedule, at the start and at each SIGHUP.
const SCRIPT: &str = r#"#!/bin/bash
for word in "$@"; do case "$word" in --schedule=*) scans="${word#--schedule=}" ;; esac; done
note() { wc -l < "$scans" >> "$scans.seen"; }
trap note HUP
trap 'echo "{\"event\":\"session\",\"session\":\"s\"}"; exit 0' INT
note
while :; do
  echo '{"event":"waiting","scan":"a","start":"2099-01-01T00:00:00Z","seconds":5}' 2>/dev/null
  sleep 0.02
done
"#;

struct Station {
    place: tempfile::TempDir,
}

impl Station {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let script = place.path().join("recorder");
        fs::write(&script, SCRIPT).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        Self { place }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// A daemon, which looks after its schedules when it is told to.
    fn daemon(&self) -> Schedules {
        let (recorder, recordings) = (self.path("recorder"), self.path("recordings"));
        let recorders = Recorders::find(recorder, "/m0".into(), recordings).unwrap();
        Schedules::open(self.path("schedules"), recorders, Current::default()).unwrap()
    }

    fn seen(&self) -> Vec<String> {
        let seen = fs::read_to_string(self.path("schedules/vgos/scans.seen")).unwrap_or_default();
        seen.split_whitespace().map(str::to_owned).collect()
    }
}

fn options() -> Options {
    let (source, session) = (vec!["udp://:1".to_owned()], Some("s".to_owned()));
    Options { source, session, ..Options::default() }
}

fn scans(number: u32) -> String {
    let line = |scan: u32| format!("no{scan:04},2099-01-01T00:{scan:02}:00Z,40s\n");
    (0..number).map(line).fold("scan,start,duration\n".to_owned(), |text, line| text + &line)
}

fn until(what: &str, mut wanted: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !wanted() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

fn now() -> Tai {
    Clock::new().now()
}

fn state(schedules: &Schedules) -> State {
    schedules.get("vgos").unwrap().state
}

#[test]
fn a_schedule_is_started_replaced_and_cancelled() {
    let station = Station::new();
    let daemon = station.daemon();
    assert!(daemon.put("vgos", options(), &scans(3), false).unwrap());
    assert_eq!((state(&daemon), daemon.next().len()), (State::Starting, 3));
    daemon.look(now());
    until("it runs", || state(&daemon) == State::Running && station.seen().len() == 1);
    assert!(!daemon.put("vgos", options(), &scans(5), false).unwrap());
    until("it reads the new scans", || station.seen() == ["4", "6"]);
    let other = Options { lead: Some("9s".into()), ..options() };
    assert!(matches!(daemon.put("vgos", other, &scans(5), false), Err(Error::Differs { .. })));
    assert_eq!(daemon.cancel("vgos").unwrap().state, State::Running);
    until("it ends", || state(&daemon) == State::Cancelled);
    daemon.look(now());
    assert!(daemon.next().is_empty() && state(&daemon) == State::Cancelled);
    // It can be given again.
    daemon.put("vgos", options(), &scans(1), false).unwrap();
    daemon.look(now());
    until("it runs again", || state(&daemon) == State::Running);
    daemon.cancel("vgos").unwrap();
    until("it ends", || state(&daemon) == State::Cancelled);
}

#[test]
fn the_next_daemon_goes_on_with_the_recorder_that_runs_or_starts_another() {
    let station = Station::new();
    let first = station.daemon();
    first.put("vgos", options(), &scans(3), false).unwrap();
    first.look(now());
    until("it runs", || state(&first) == State::Running && station.seen().len() == 1);
    let second = station.daemon();
    assert_eq!(state(&second), State::Running);
    second.look(now());
    assert_eq!(second.0.recorders.all().len(), 1);
    // The recorder is killed, as if the power had gone.
    let recording = second.get("vgos").unwrap().recording.unwrap();
    second.0.recorders.signal(recording, Signal::KILL).unwrap();
    until("it is gone", || state(&second) == State::Starting);
    let third = station.daemon();
    until("it runs again", || {
        third.look(now());
        state(&third) == State::Running && station.seen().len() == 2
    });
    third.cancel("vgos").unwrap();
    until("it ends", || state(&third) == State::Cancelled);
    let fourth = station.daemon();
    fourth.look(now());
    assert_eq!(state(&fourth), State::Cancelled);
}

#[test]
fn a_finished_schedule_is_forgotten() {
    let station = Station::new();
    let daemon = station.daemon();
    daemon.put("vgos", options(), &scans(1), false).unwrap();
    daemon.look("2099-01-02T00:00:00Z".parse().unwrap());
    assert!(daemon.all().is_empty() && !station.path("schedules/vgos").exists());
}

#[test]
fn the_file_of_the_station_adds_and_removes_schedules() {
    let station = Station::new();
    let daemon = station.daemon();
    fs::write(station.path("scans.csv"), scans(2)).unwrap();
    let listed =
        [FileSchedule { name: "vgos".into(), file: station.path("scans.csv"), options: options() }];
    assert!(daemon.take_over(&listed).is_empty());
    daemon.look(now());
    until("it runs", || state(&daemon) == State::Running);
    daemon.cancel("vgos").unwrap();
    until("it ends", || state(&daemon) == State::Cancelled);
    // The same file does not start what an operator has cancelled. Another one does.
    assert!(daemon.take_over(&listed).is_empty());
    assert_eq!(state(&daemon), State::Cancelled);
    fs::write(station.path("scans.csv"), scans(3)).unwrap();
    assert!(daemon.take_over(&listed).is_empty());
    assert_eq!(state(&daemon), State::Starting);
    assert!(daemon.take_over(&[]).is_empty());
    assert_eq!(state(&daemon), State::Cancelled);
}

#[test]
fn a_wrong_schedule_is_refused() {
    let station = Station::new();
    let daemon = station.daemon();
    let put = |name: &str, options: Options, text: &str| daemon.put(name, options, text, false);
    assert!(matches!(put("../x", options(), &scans(1)), Err(Error::Name(_))));
    assert!(matches!(
        put("a", Options { source: vec![], ..options() }, &scans(1)),
        Err(Error::Request(_))
    ));
    let input = Options { source: vec!["input:x".into()], ..options() };
    assert!(matches!(put("a", input, &scans(1)), Err(Error::Input(_))));
    let file = Options { source: vec!["file:/etc/passwd".into()], ..options() };
    assert!(matches!(put("a", file, &scans(1)), Err(Error::Request(_))));
    assert!(matches!(put("a", options(), "nonsense"), Err(Error::Scans(_))));
    assert!(matches!(
        put("a", Options { session: None, ..options() }, &scans(1)),
        Err(Error::NoSession)
    ));
    let past = "scan,start,duration\na,2001-01-01T00:00:00Z,40s\n";
    assert!(matches!(put("a", options(), past), Err(Error::Past { .. })));
    assert!(daemon.all().is_empty() && daemon.get("a").is_err());
    for number in 0..MOST_SCHEDULES {
        put(&format!("s{number}"), options(), &scans(1)).unwrap();
    }
    assert!(matches!(put("more", options(), &scans(1)), Err(Error::Many)));
}
