//! A shell script in place of the recorder: it prints events, and obeys signals as the recorder does.

use std::os::unix::fs::PermissionsExt;

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);

/// It tells each signal by a warning, writes for a moment what it holds, and says how often it was asked to end.
const SCRIPT: &str = r#"#!/bin/bash
asked=0
trap 'asked=$((asked + 1)); echo "{\"event\":\"warning\",\"text\":\"asked $asked\"}"' INT TERM
trap '[ $asked = 0 ] && asked=1 && echo "{\"event\":\"warning\",\"text\":\"asked 1\"}"' USR1
case "$*" in
  *refused*) echo '{"error":"the port is taken","advice":"choose another"}' >&2; exit 2 ;;
esac
echo '{"event":"armed","scan":{"session":"s","scan":"a"},"begins":null}'
while [ $asked = 0 ]; do
  echo '{"event":"progress","phase":"recording","scan":{"session":"s","scan":"a"},"seconds":1,"bytes":80,"durable_bytes":40,"streams":[],"members":[],"free_bytes":1,"seconds_left":null,"seconds_until_full":null}' 2>/dev/null
  sleep 0.02
done
for rest in 1 2 3 4 5 6 7 8; do sleep 0.02; done
echo "{\"event\":\"sealed\",\"manifest\":{\"scan\":{\"session\":\"s\",\"scan\":\"a\"}},\"complete\":true,\"headline\":\"asked $asked\"}"
"#;

/// It stops on USR1 after a moment, however often that comes, and aborts on INT.
const PATIENT: &str = r#"#!/bin/bash
sealed() { echo "{\"event\":\"sealed\",\"manifest\":{\"scan\":{\"session\":\"s\",\"scan\":\"a\"}},\"complete\":true,\"headline\":\"$1\"}"; }
trap 'sealed ABORTED; exit 1' INT
trap 'stopping=yes' USR1
echo '{"event":"armed","scan":{"session":"s","scan":"a"},"begins":null}'
steps=0
while :; do
  [ -n "$stopping" ] && steps=$((steps + 1))
  [ "$steps" -gt 10 ] && { sealed COMPLETE; exit 0; }
  sleep 0.02
done
"#;

struct Station {
    place: tempfile::TempDir,
}

impl Station {
    fn new() -> Self {
        Self::with(SCRIPT)
    }

    fn with(text: &str) -> Self {
        let place = tempfile::tempdir().unwrap();
        let script = place.path().join("recorder");
        fs::write(&script, text).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        Self { place }
    }

    fn daemon(&self) -> Recorders {
        let path = |name: &str| self.place.path().join(name);
        Recorders::find(path("recorder"), "/m0".into(), path("recordings")).unwrap()
    }

    fn folders(&self) -> usize {
        Folder::all(&self.place.path().join("recordings")).unwrap().len()
    }
}

fn request(scan: &str) -> StartRequest {
    let source = vec!["udp://:1".to_owned()];
    StartRequest { source, session: "s".into(), scan: scan.into(), ..StartRequest::default() }
}

fn until(recorders: &Recorders, id: Uuid, wanted: impl Fn(&Recording) -> bool) -> Recording {
    let end = Instant::now() + PATIENCE;
    loop {
        let recording = recorders.get(id).unwrap();
        if wanted(&recording) {
            return recording;
        }
        assert!(Instant::now() < end, "{recording:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_recording_is_started_followed_and_stopped() {
    let station = Station::new();
    let daemon = station.daemon();
    let begun = daemon.start(request("a"), PATIENCE).unwrap();
    assert!(begun.life.phase >= Phase::Armed && begun.pid.is_some() && !begun.found);
    until(&daemon, begun.id, |it| it.life.phase == Phase::Recording);
    assert_eq!(daemon.ask(begun.id, false).unwrap().life.phase, Phase::Stopping);
    let ended = until(&daemon, begun.id, |it| it.life.phase == Phase::Ended);
    assert_eq!((ended.life.exit_code, ended.pid), (Some(0), None));
    assert_eq!(ended.life.finished[0].headline, "asked 1");
    assert_eq!(station.folders(), 0);
    assert!(matches!(daemon.ask(begun.id, false), Err(Error::Ended { .. })));
}

#[test]
fn a_stop_that_is_repeated_also_by_the_next_daemon_aborts_nothing() {
    let station = Station::with(PATIENT);
    let first = station.daemon();
    let begun = first.start(request("a"), PATIENCE).unwrap();
    first.ask(begun.id, false).unwrap();
    first.ask(begun.id, false).unwrap();
    let second = station.daemon();
    second.ask(begun.id, false).unwrap();
    let ended = until(&first, begun.id, |it| it.life.phase == Phase::Ended);
    assert_eq!(ended.life.exit_code, Some(0), "{ended:?}");
    until(&second, begun.id, |it| it.life.phase == Phase::Ended);
}

#[test]
fn the_reason_of_a_refusal_is_returned_and_leaves_nothing() {
    let station = Station::new();
    let daemon = station.daemon();
    let Err(Error::Refused(complaint)) = daemon.start(request("refused"), PATIENCE) else {
        panic!()
    };
    assert_eq!(
        (complaint.error.as_str(), complaint.advice.as_deref()),
        ("the port is taken", Some("choose another"))
    );
    assert!(daemon.all().is_empty());
    assert_eq!(station.folders(), 0);
}

#[test]
fn the_next_daemon_finds_the_recorder_and_stops_it() {
    let station = Station::new();
    let first = station.daemon();
    let begun = first.start(request("a"), PATIENCE).unwrap();
    // Both follow it here. A daemon that dies does not: a test with the binary kills one.
    let second = station.daemon();
    let found = second.get(begun.id).unwrap();
    assert_eq!((found.pid, found.found, &found.request), (begun.pid, true, &request("a")));
    second.ask(begun.id, false).unwrap();
    until(&second, begun.id, |it| it.life.phase == Phase::Ended);
    until(&first, begun.id, |it| it.life.phase == Phase::Ended);
}

#[test]
fn a_recorder_that_ended_without_a_daemon_is_found_ended() {
    let station = Station::new();
    let folder = station.place.path().join("recordings");
    fs::create_dir_all(&folder).unwrap();
    let id = Uuid::now_v7();
    Folder::make(&folder, id, &request("a")).unwrap();
    let daemon = station.daemon();
    let found = until(&daemon, id, |it| it.life.phase == Phase::Ended);
    assert!(found.found && found.life.exit_code.is_none());
    assert_eq!(station.folders(), 0);
}

#[test]
fn no_more_than_the_most_recordings_run_at_once() {
    let station = Station::new();
    let daemon = station.daemon();
    let begun: Vec<Recording> =
        (0..MOST_ACTIVE).map(|_| daemon.start(request("a"), PATIENCE).unwrap()).collect();
    assert!(matches!(daemon.start(request("a"), PATIENCE), Err(Error::Many)));
    for recording in &begun {
        daemon.ask(recording.id, false).unwrap();
    }
    for recording in &begun {
        until(&daemon, recording.id, |it| it.life.phase == Phase::Ended);
    }
    assert!(daemon.start(request("refused"), PATIENCE).is_err());
}

/// Asks a recording to stop, and waits until its recorder knows it.
fn stopped(daemon: &Recorders) -> Uuid {
    let id = daemon.start(request("a"), PATIENCE).unwrap().id;
    daemon.ask(id, false).unwrap();
    until(daemon, id, |it| !it.life.warnings.is_empty());
    id
}

#[test]
fn a_stop_that_comes_again_does_not_abort_and_an_abort_does() {
    let station = Station::new();
    let daemon = station.daemon();
    let (again, aborted) = (stopped(&daemon), stopped(&daemon));
    assert_eq!(daemon.ask(again, false).unwrap().life.phase, Phase::Stopping);
    daemon.ask(aborted, true).unwrap();
    let headline = |id| {
        let ended = until(&daemon, id, |it| it.life.phase == Phase::Ended);
        ended.life.finished[0].headline.clone()
    };
    assert_eq!(headline(again), "asked 1");
    // The shell may miss an INT while it waits for a child.
    assert!(["asked 2", "asked 3"].contains(&&*headline(aborted)));
}

#[test]
fn the_next_daemon_knows_that_a_recording_was_stopped() {
    let station = Station::new();
    let first = station.daemon();
    let id = stopped(&first);
    let second = station.daemon();
    assert_eq!(second.get(id).unwrap().life.phase, Phase::Stopping);
    second.ask(id, false).unwrap();
    // Both read the pipe here, so either has the line of the seal.
    let ended = [&first, &second].map(|it| until(it, id, |it| it.life.phase == Phase::Ended));
    let headlines = ended.iter().flat_map(|it| &it.life.finished).map(|it| it.headline.as_str());
    assert_eq!(headlines.collect::<Vec<_>>(), ["asked 1"]);
}

#[test]
fn a_recorder_that_is_stopped_while_it_starts_has_no_complaint_and_one_that_is_killed_has() {
    let station = Station::with("#!/bin/sh\nexec sleep 60\n");
    let daemon = station.daemon();
    let [stopped, killed] = [(); 2].map(|()| daemon.start(request("a"), Duration::ZERO).unwrap());
    assert_eq!(stopped.life.phase, Phase::Starting);
    daemon.ask(stopped.id, false).unwrap();
    daemon.process(killed.id).unwrap().signal(Signal::INT).unwrap();
    let ended = |id| until(&daemon, id, |it| it.life.phase == Phase::Ended).life;
    assert_eq!((ended(stopped.id).complaint, ended(stopped.id).exit_code), (None, None));
    assert_eq!(ended(killed.id).complaint, Some(Complaint::of_signal(2)));
}

#[test]
fn the_directory_of_a_recorder_whose_pipe_cannot_be_opened_now_stays() {
    let station = Station::new();
    let recordings = station.place.path().join("recordings");
    let [unreadable, unmade] = [(); 2].map(|()| {
        let id = Uuid::now_v7();
        Folder::make(&recordings, id, &request("a")).unwrap();
        fs::remove_file(recordings.join(id.to_string()).join("events")).unwrap();
        id
    });
    let pipe = recordings.join(unreadable.to_string()).join("events");
    std::os::unix::fs::symlink("/dev/null", pipe).unwrap();
    assert!(station.daemon().all().is_empty());
    assert!(recordings.join(unreadable.to_string()).exists());
    assert!(!recordings.join(unmade.to_string()).exists());
}

#[test]
fn only_the_newest_ended_recordings_keep_what_they_printed() {
    let station = Station::new();
    let daemon = station.daemon();
    let ids: Vec<Uuid> = (0..=MOST_OUTPUTS).map(|_| Uuid::now_v7()).collect();
    for id in &ids {
        daemon.reserve(*id, &request("a")).unwrap();
        let log = daemon.lock()[id].log.clone();
        log.put_line("{}\n");
        daemon.take(*id, Input::Gone { code: Some(0), complaint: None });
        daemon.end_output(*id, Some(0), None);
        daemon.forget();
    }
    let lines = |id| match daemon.follow_output(id).unwrap().take() {
        crate::output_log::Taken::Lines(text) => text.lines().count(),
        other => panic!("{other:?}"),
    };
    // Of the first one, the line that says how it ended.
    assert_eq!((lines(ids[0]), lines(ids[1])), (1, 2));
}
