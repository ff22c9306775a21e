//! The port on loopback, with a shell script in place of the recorder.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::{Duration, Instant};

use fullbore_core::hint::Hint;
use fullbore_store::testing::{Store, StreamPlan};

use super::*;
use crate::recorder::Recorders;
use crate::recorder::request::StartRequest;

const PATIENCE: Duration = Duration::from_secs(20);

/// It takes a moment to start, and then records until SIGINT. It has the ports alone.
const SCRIPT: &str = r#"#!/bin/bash
for word in "$@"; do case "$word" in --session=*) session="${word#*=}" ;; --scan=*) scan="${word#*=}" ;; esac; done
case "$*" in
  *refused*) echo '{"error":"the port is taken","advice":"choose another"}' >&2; exit 2 ;;
esac
case "$*" in *--start=*) begins='"2100-01-01T00:00:00Z"' ;; *) begins=null ;; esac
mkdir "$0.ports" || { echo '{"error":"the ports are taken"}' >&2; exit 2; }
name="{\"session\":\"$session\",\"scan\":\"$scan\"}"
trap 'rmdir "$0.ports"; echo "{\"event\":\"sealed\",\"manifest\":{\"scan\":$name},\"complete\":false,\"headline\":\"7 frames missing\"}"; exit 1' INT
case "$scan" in late) sleep 1.5 ;; *) sleep 0.3 ;; esac
armed="{\"event\":\"armed\",\"scan\":$name,\"begins\":$begins}"
echo "$armed"
[ "$begins" = null ] || while :; do echo "$armed" 2>/dev/null; sleep 0.02; done
while :; do
  echo "{\"event\":\"progress\",\"phase\":\"recording\",\"scan\":$name,\"seconds\":1,\"bytes\":80,\"durable_bytes\":40,\"streams\":[],\"members\":[],\"free_bytes\":1,\"seconds_left\":null,\"seconds_until_full\":null}" 2>/dev/null
  sleep 0.02
done
"#;

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let script = place.path().join("recorder");
        fs::write(&script, SCRIPT).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        for directory in ["m0", "state"] {
            fs::create_dir(place.path().join(directory)).unwrap();
        }
        Self(place)
    }

    fn open(&self, allow: &str) -> Port {
        self.open_on(&[self.0.path().join("m0")], allow, None)
    }

    fn open_on(&self, members: &[PathBuf], allow: &str, files: Option<PathBuf>) -> Port {
        let path = |name: &str| self.0.path().join(name);
        let folder = path("state/recordings");
        let recorders = Recorders::find(path("recorder"), "/m0".into(), folder).unwrap();
        let settings = Settings {
            listen: "127.0.0.1:0".parse().unwrap(),
            mark6: Some("127.0.0.1:0".parse().unwrap()),
            allow: allow.parse().unwrap(),
            files,
        };
        Port::open(&settings, members, recorders, &path("state")).unwrap()
    }

    fn log(&self, name: &str) -> String {
        fs::read_to_string(self.0.path().join("state").join(name)).unwrap_or_default()
    }
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn of(port: &Port) -> Self {
        Self::at(port.address())
    }

    fn at(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(BufReader::new(stream))
    }

    fn ask(&mut self, line: &str) -> String {
        self.0.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        self.0.read_line(&mut answer).unwrap();
        answer.trim_end().to_owned()
    }

    fn until(&mut self, line: &str, wanted: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let answer = self.ask(line);
            if wanted(&answer) {
                return answer;
            }
            assert!(Instant::now() < end, "{answer}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

const MODE: &str = "mode=VDIF_8000-64-1-2";

#[test]
fn a_recording_is_started_told_and_ended() {
    let place = Place::new();
    let port = place.open("127.0.0.1");
    let mut client = Client::of(&port);
    assert_eq!(client.ask(MODE), "!mode= 0 ;");
    let before = Instant::now();
    assert_eq!(client.ask("record=on:r1_Wz_no1"), "!record= 0 ;");
    assert!(before.elapsed() < Duration::from_millis(260), "{:?}", before.elapsed());
    assert!(client.ask("record?").starts_with("!record? 0 : on : 1 : r1_Wz_no1 : "));
    assert_eq!(client.ask("status?"), "!status? 0 : 0x00000059 ;");
    client.until("record?", |it| it == "!record? 0 : on : 1 : r1_Wz_no1 : 80 ;");
    // It connected again, and sends its command once more.
    assert_eq!(Client::of(&port).ask("record=on:r1_Wz_no1"), "!record= 0 ;");
    assert_eq!(client.ask("record=off"), "!record= 1 ;");
    client.until("record?", |it| it == "!record? 0 : off ;");
    assert!(client.ask("error?").contains(" : r1_Wz_no1 is not complete, 7 frames missing : "));
    assert_eq!(client.ask("scan_set?"), "!scan_set? 0 : 1 : r1_Wz_no1 : 0 : 80 ;");
    let log = place.log("vsi.log");
    assert!(log.contains(r#""line":"record=on:r1_Wz_no1","answer":"!record= 0 ;""#), "{log}");
    assert!(!log.contains("record?"));
}

#[test]
fn a_recording_may_end_before_its_recorder_is_armed_and_the_next_one_waits_for_it() {
    let place = Place::new();
    let port = place.open("127.0.0.1");
    let mut client = Client::of(&port);
    let line = format!("{MODE}; record=on:r1_a; record=off; record=on:r1_b; record?");
    let answer = client.ask(&line);
    assert_eq!(
        answer,
        "!mode= 0 ; !record= 0 ; !record= 1 ; !record= 0 ; !record? 0 : on : 2 : r1_b : 0 ;"
    );
    client.until("record?", |it| it.ends_with(" : r1_b : 80 ;"));
    client.ask("record=off");
    client.until("record?", |it| it == "!record? 0 : off ;");
    assert!(client.ask("dir_info?").starts_with("!dir_info? 0 : 2 : "));
}

#[test]
fn a_recorder_that_refuses_is_an_error_and_not_a_recording() {
    let place = Place::new();
    let port = place.open("127.0.0.1");
    let mut client = Client::of(&port);
    client.ask(MODE);
    assert_eq!(client.ask("record=on:r1_refused"), "!record= 0 ;");
    client.until("record?", |it| it == "!record? 0 : off ;");
    let status = client.ask("status?");
    assert!(
        status.starts_with("!status? 0 : 0x00000003 : -1 : the port is taken, choose another : "),
        "{status}"
    );
    assert_eq!(
        client.ask("record=on:r1_refused"),
        "!record= 4 : the port is taken, choose another ;"
    );
}

#[test]
fn the_next_daemon_knows_the_recording_and_ends_it() {
    let place = Place::new();
    let first = place.open("127.0.0.1");
    let mut client = Client::of(&first);
    client.ask(MODE);
    client.ask("record=on:r1_a");
    client.until("record?", |it| it.ends_with(" : 80 ;"));
    drop(first);
    let second = place.open("127.0.0.1");
    let mut client = Client::of(&second);
    assert!(client.ask("record?").starts_with("!record? 0 : on : 1 : r1_a : "));
    assert_eq!(client.ask("record=on:r1_a"), "!record= 0 ;");
    assert_eq!(client.ask("record=off"), "!record= 1 ;");
    client.until("record?", |it| it == "!record? 0 : off ;");
}

#[test]
fn a_recording_that_was_stopped_before_it_began_leaves_the_ports_to_the_one_before() {
    let place = Place::new();
    let port = place.open("127.0.0.1");
    let mut client = Client::of(&port);
    client.ask(&format!("{MODE}; record=on:r1_late; record=off; record=on:r1_b; record=off"));
    assert_eq!(client.ask("record=on:r1_c"), "!record= 0 ;");
    // The next daemon would know all three.
    let end = Instant::now() + PATIENCE;
    let noted = || fs::read_to_string(place.0.path().join("state/vsi.json")).unwrap_or_default();
    let wanted = [r#""scan":"r1_c""#, r#""ending":[{"asked":"r1_late""#, r#"{"asked":"r1_b""#];
    while !wanted.iter().all(|it| noted().contains(it)) {
        assert!(Instant::now() < end, "{}", noted());
        std::thread::sleep(Duration::from_millis(5));
    }
    client.until("record?", |it| it.ends_with(" : r1_c : 80 ;"));
    let mut error = String::new();
    while !error.ends_with(": : : : : ;") {
        error = client.ask("error?");
        assert!(!error.contains("taken"), "{error}");
    }
    client.ask("record=off");
    client.until("record?", |it| it == "!record? 0 : off ;");
}

#[test]
fn a_recorder_whose_daemon_was_killed_before_it_noted_it_is_known_by_its_scan() {
    let place = Place::new();
    let first = place.open("127.0.0.1");
    let mut client = Client::of(&first);
    client.ask(MODE);
    client.ask("record=on:r1_a");
    client.until("record?", |it| it.ends_with(" : 80 ;"));
    drop(first);
    let run = r#"{"asked":"r1_a","scan":"r1_a","number":4,"id":null,"is_stop_asked":false}"#;
    let other = run.replace("r1_a", "r1_b");
    let noted = format!(r#"{{"count":5,"runs":{{"default":{run},"other":{other}}}}}"#);
    fs::write(place.0.path().join("state/vsi.json"), noted).unwrap();
    let second = place.open("127.0.0.1");
    let mut client = Client::of(&second);
    assert!(client.ask("record?").starts_with("!record? 0 : on : 4 : r1_a : "));
    assert!(client.ask("error?").contains(" : r1_b was not begun, the daemon ended before : "));
    assert_eq!(client.ask("record=off"), "!record= 1 ;");
    client.until("record?", |it| it == "!record? 0 : off ;");
}

#[test]
fn the_next_daemon_ends_a_recording_that_its_runtime_has_left() {
    let place = Place::new();
    let path = |name: &str| place.0.path().join(name);
    let folder = path("state/recordings");
    let recorders = Recorders::find(path("recorder"), "/m0".into(), folder).unwrap();
    let (source, session) = (vec!["udp://:1".to_owned()], "r1".to_owned());
    let request = StartRequest { source, session, scan: "a".into(), ..StartRequest::default() };
    let id = recorders.start(request, PATIENCE).unwrap().id;
    let noted = format!(
        r#"{{"count":2,"runs":{{}},"ending":[{{"asked":"r1_a","scan":"r1_a","number":1,"id":"{id}","is_stop_asked":true}}]}}"#
    );
    fs::write(path("state/vsi.json"), noted).unwrap();
    let _port = place.open("127.0.0.1");
    let end = Instant::now() + PATIENCE;
    while recorders.get(id).unwrap().life.is_active() {
        assert!(Instant::now() < end);
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_next_daemon_knows_that_a_recording_awaits_its_start() {
    let place = Place::new();
    let first = place.open("127.0.0.1");
    let mut client = Client::at(first.mark6().unwrap());
    let stream = "input_stream=add:ifa:vdif:8224:42:0:lo:127.0.0.1:4001; input_stream=commit";
    assert_eq!(client.ask(stream), "!input_stream= 0 : 0 ; !input_stream= 0 : 0 ;");
    assert_eq!(client.ask("record=2100y001d:40:0:s:e:t"), "!record= 0 : 0 ;");
    let pending = "!record? 0 : 0 : pending : 1 : 1 : e_t_s ;";
    let recorders = || fs::read_dir(place.0.path().join("state/recordings")).unwrap().count();
    client.until("record?", |it| it == pending && recorders() == 1);
    drop(first);
    let second = place.open("127.0.0.1");
    let mut client = Client::at(second.mark6().unwrap());
    assert_eq!(client.ask("record?"), pending);
    // It is still the case once the recorder has told that it is armed.
    std::thread::sleep(Duration::from_millis(600));
    assert_eq!(client.ask("record?"), pending);
    assert_eq!(client.ask("record=off"), "!record= 0 : 0 ;");
    client.until("record?", |it| it.starts_with("!record? 0 : 0 : off : "));
}

#[test]
fn a_copy_that_is_asked_for_again_after_its_end_is_no_error() {
    let (place, store) = (Place::new(), Store::new(1));
    store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
    let files = place.0.path().join("files");
    fs::create_dir(&files).unwrap();
    let port = place.open_on(&store.roots(), "127.0.0.1", Some(files.clone()));
    let mut client = Client::of(&port);
    client.until("scan_set=r1_a", |it| it == "!scan_set= 0 ;");
    let copy = |client: &mut Client, line: &str| {
        client.until(line, |it| it == "!disk2file= 1 ;");
        client.until("disk2file?", |it| it == "!disk2file? 0 : inactive : a.vdif ;");
        client.ask("error?")
    };
    let none = "!error? 0 : : : : : ;";
    assert_eq!(copy(&mut client, "disk2file=a.vdif"), none);
    let file = || fs::metadata(files.join("a.vdif")).unwrap();
    let written = file().ino();
    assert_eq!(copy(&mut client, "disk2file=a.vdif"), none);
    assert_eq!(file().ino(), written);
    // Another part of the scan is another file, and replaces none.
    let other = "disk2file=a.vdif:0:1000";
    assert!(copy(&mut client, other).contains("File exists"));
    fs::remove_file(files.join("a.vdif")).unwrap();
    assert_eq!(copy(&mut client, other), none);
    assert_eq!(file().len(), 1000);
}

#[test]
fn other_addresses_may_only_ask_and_cannot_keep_others_out() {
    let place = Place::new();
    let port = place.open("192.0.2.1");
    let mut clients: Vec<Client> = (0..MOST_READERS).map(|_| Client::of(&port)).collect();
    for client in &mut clients {
        assert_eq!(client.ask("record?"), "!record? 0 : off ;");
    }
    assert!(clients[0].ask(MODE).starts_with("!mode= 4 : commands are not allowed"));
    // The log is written after the answer, and before the next one.
    clients[0].ask("record?");
    assert!(place.log("vsi-refused.log").contains("commands are not allowed"));
    assert_eq!(place.log("vsi.log"), "");
    let mut more = BufReader::new(TcpStream::connect(port.address()).unwrap());
    let mut answer = String::new();
    assert_eq!(more.read_line(&mut answer).unwrap_or(0), 0, "{answer}");
    drop(clients);
    let end = Instant::now() + PATIENCE;
    let is_free = || {
        let mut client = Client::of(&port);
        let sent = client.0.get_mut().write_all(b"record?\n");
        let mut answer = String::new();
        sent.is_ok() && client.0.read_line(&mut answer).is_ok_and(|count| count > 0)
    };
    while !is_free() {
        assert!(Instant::now() < end);
    }
}

#[test]
fn a_line_without_end_ends_the_connection() {
    let place = Place::new();
    let port = place.open("127.0.0.1");
    let mut client = Client::of(&port);
    client.0.get_mut().write_all(&vec![b'x'; 5000]).unwrap();
    let mut answer = String::new();
    client.0.read_line(&mut answer).unwrap();
    assert!(answer.starts_with("!syntax = 3 : a line is longer than 4096 bytes"), "{answer}");
}

#[test]
fn a_port_that_is_taken_is_refused_with_advice() {
    let place = Place::new();
    let port = place.open("127.0.0.1");
    let path = |name: &str| place.0.path().join(name);
    let recorders = Recorders::find(path("recorder"), "/m0".into(), path("other")).unwrap();
    let allow = AllowList::this_host();
    let mut settings = Settings { listen: port.address(), mark6: None, allow, files: None };
    let error =
        Port::open(&settings, &[path("m0")], recorders.clone(), &path("state")).unwrap_err();
    assert!(matches!(error, Error::Listen { .. }) && error.hint().is_some(), "{error}");
    settings.files = Some(path("nowhere"));
    let error = Port::open(&settings, &[path("m0")], recorders, &path("state")).unwrap_err();
    assert!(matches!(error, Error::Files { .. }), "{error}");
}

#[test]
fn an_address_needs_no_port() {
    for (text, read) in [
        ("127.0.0.1", "127.0.0.1:2620"),
        ("192.0.2.5:1", "192.0.2.5:1"),
        ("::1", "[::1]:2620"),
        ("[::1]", "[::1]:2620"),
        ("[::1]:5", "[::1]:5"),
    ] {
        assert_eq!(address(text), Ok(read.parse().unwrap()), "{text}");
    }
    assert!(address("station").is_err() && address("").is_err());
}
