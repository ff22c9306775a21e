//! Transcripts in the forms of a Mark6's reference, and a client that does anything.

use proptest::prelude::*;

use super::*;
use crate::station::{Phase, Traffic};
use crate::testing::MemoryStation;

struct Mark6 {
    dialect: Cplane,
    station: MemoryStation,
}

const STREAM: &str = "input_stream=add:ifa:vdif:8224:42:0:eth3:192.0.2.3:4001;";
const ON: &str = "record=on:40:10:no0001:r1234:Wz;";

impl Mark6 {
    fn new() -> Self {
        Self { dialect: Cplane::default(), station: MemoryStation::default() }
    }

    fn configured() -> Self {
        let mut mark6 = Self::new();
        assert_eq!(mark6.ask(STREAM), "!input_stream= 0 : 0 ;");
        assert_eq!(mark6.ask("input_stream=commit;"), "!input_stream= 0 : 0 ;");
        mark6
    }

    fn ask_as(&mut self, may_write: bool, line: &str) -> String {
        let mut session = Cplane::session(may_write);
        match self.dialect.line(&mut session, &mut self.station, line, false) {
            Outcome::Answer(answer) => answer,
            outcome @ Outcome::Wait { .. } => panic!("{outcome:?}"),
        }
    }

    fn ask(&mut self, line: &str) -> String {
        self.ask_as(true, line)
    }
}

fn fields(answer: &str) -> Vec<&str> {
    let (_, told) = answer.split_once(['=', '?']).unwrap();
    told.trim_end_matches(" ;").split(':').map(str::trim).collect()
}

#[test]
fn a_scan_is_recorded_from_the_set_up_to_its_check() {
    let mut mark6 = Mark6::configured();
    assert_eq!(mark6.ask("record?"), "!record? 0 : 0 : off : 1234 : 0 : ;");
    assert_eq!(mark6.ask(ON), "!record= 0 : 0 ;");
    let (runtime, plan) = mark6.station.started[0].clone();
    assert_eq!((runtime.as_str(), plan.scan.as_str()), (RUNTIME, "r1234_Wz_no0001"));
    assert_eq!(plan.sources, ["udp://192.0.2.3:4001?format=vdif&name=ifa"]);
    assert_eq!((plan.starts, plan.seconds), (None, Some(40)));
    assert_eq!(mark6.ask("record?"), "!record? 0 : 0 : pending : 1234 : 1 : r1234_Wz_no0001 ;");
    let traffic = Traffic { bytes: 8032, rate: 1_000_000_000, frames: 1, ..Traffic::default() };
    mark6.station.receive(RUNTIME, traffic);
    assert_eq!(mark6.ask("record?"), "!record? 0 : 0 : recording : 1234 : 1 : r1234_Wz_no0001 ;");
    assert_eq!(mark6.ask("status?"), "!status? 0 : 0 : 0x00000311 ;");
    assert_eq!(mark6.ask("rtime?"), "!rtime? 0 : 0 : 1234 : 8.000 : 95 : 95.881 : 101.105 ;");
    assert_eq!(fields(&mark6.ask("scan_check?"))[..2], ["6", "7"]);
    assert_eq!(mark6.ask("record=off;"), "!record= 0 : 0 ;");
    assert_eq!(fields(&mark6.ask("record?"))[2], "flushing");
    mark6.station.end(RUNTIME, None);
    assert_eq!(mark6.ask("record?"), "!record? 0 : 0 : off : 1234 : 1 : r1234_Wz_no0001 ;");
    assert_eq!(
        mark6.ask("scan_check?"),
        "!scan_check? 0 : 0 : r1234_Wz_no0001 : OK : VDIF : 2026y325d19h24m24.0000s : 2.00000 : 0.514 : 2.056 : 0 ;"
    );
    assert_eq!(mark6.ask("list?"), "!list? 0 : 0 : 1234 : 1 : 1 : r1234_Wz_no0001 : 0.000 ;");
}

#[test]
fn a_command_whose_answer_was_lost_begins_and_ends_nothing_twice() {
    let mut mark6 = Mark6::configured();
    for _ in 0..2 {
        assert_eq!(mark6.ask(ON), "!record= 0 : 0 ;");
    }
    assert_eq!(
        fields(&mark6.ask("record=on:40:10:no0002:r1234:Wz;")),
        ["6", "7", "a recording runs"]
    );
    assert_eq!(mark6.ask("record=off;"), "!record= 0 : 0 ;");
    mark6.station.end(RUNTIME, None);
    assert_eq!(mark6.ask("record=off;"), "!record= 0 : 0 ;");
    assert_eq!((mark6.station.started.len(), mark6.station.stopped.len()), (1, 1));
    // Much later it is no repetition.
    mark6.station.pass(60.0);
    assert_eq!(fields(&mark6.ask("record=off;")), ["6", "8", "no recording runs"]);
    // The same scan again, by intention, gets a letter.
    assert_eq!(mark6.ask(ON), "!record= 0 : 0 ;");
    assert_eq!(mark6.station.started[1].1.scan, "r1234_Wz_no0001a");
}

#[test]
fn another_start_of_the_same_scan_is_no_repetition() {
    let mut mark6 = Mark6::configured();
    let now = mark6.station.now;
    let at = |seconds: i64, length| {
        let start = crate::vex_time::to_text(now.plus_ns(seconds * 1_000_000_000));
        format!("record={start}:{length}:1:s:e:t;")
    };
    for _ in 0..2 {
        assert_eq!(mark6.ask(&at(60, 40)), "!record= 0 : 0 ;");
    }
    for other in [at(70, 40), at(60, 50)] {
        assert_eq!(fields(&mark6.ask(&other)), ["6", "7", "a recording runs"]);
    }
    assert_eq!(mark6.station.started.len(), 1);
    // One that began late keeps its end.
    mark6.ask("record=off;");
    mark6.station.end(RUNTIME, None);
    for _ in 0..2 {
        assert_eq!(mark6.ask(&at(-10, 40)), "!record= 0 : 0 ;");
        mark6.station.pass(1.0);
    }
    assert_eq!(mark6.station.started.len(), 2);
}

#[test]
fn a_recording_that_failed_is_told_and_not_begun_again() {
    let mut mark6 = Mark6::configured();
    mark6.ask(ON);
    mark6.station.end(RUNTIME, Some("the port is taken"));
    assert_eq!(fields(&mark6.ask(ON)), ["4", "12", "the port is taken"]);
    assert_eq!(mark6.station.started.len(), 1);
    mark6.station.pass(60.0);
    assert_eq!(mark6.ask(ON), "!record= 0 : 0 ;");
}

#[test]
fn text_that_is_no_statement_has_two_codes_too() {
    let mut mark6 = Mark6::configured();
    assert_eq!(mark6.ask("record"), "!syntax = 7 : 3 : Not a command or query ;");
    let long = format!("record={}", ":".repeat(64));
    assert_eq!(mark6.ask(&long), "!syntax = 3 : 5 : more than 64 fields ;");
    assert!(mark6.ask("group?; \u{7}=; msg?0").contains(" ; !syntax = 7 : 3 : "));
}

#[test]
fn a_start_that_is_past_records_the_rest_from_a_whole_second() {
    let mut mark6 = Mark6::configured();
    let now = mark6.station.now;
    let at = |seconds: f64| crate::vex_time::to_text(now.plus_ns((seconds * 1e9) as i64));
    let command = |start: String, seconds| format!("record={start}:{seconds}:1:s:e:t;");
    assert_eq!(fields(&mark6.ask(&command(at(-30.0), 20))), ["4", "9", "the time is past"]);
    assert_eq!(mark6.ask(&command(at(-10.5), 40)), "!record= 0 : 0 ;");
    let plan = mark6.station.started[0].1.clone();
    assert_eq!((plan.starts, plan.seconds), (Some(now.plus_ns(500_000_000)), Some(29)));
    mark6.ask("record=off;");
    mark6.station.end(RUNTIME, None);
    assert_eq!(mark6.ask(&command(at(60.0), 40)), "!record= 0 : 0 ;");
    let plan = mark6.station.started[1].1.clone();
    assert_eq!((plan.starts, plan.seconds), (Some(now.plus_ns(60_000_000_000)), Some(40)));
    mark6.station.receive(RUNTIME, Traffic::default());
    assert_eq!(fields(&mark6.ask("record?"))[2], "pending");
    mark6.station.pass(60.0);
    assert_eq!(fields(&mark6.ask("record?"))[2], "recording");
}

#[test]
fn what_cannot_be_recorded_is_refused_with_its_message() {
    let mut mark6 = Mark6::new();
    assert_eq!(fields(&mark6.ask(ON)), ["6", "6", "no input stream is committed"]);
    assert_eq!(fields(&mark6.ask("input_stream=commit;"))[..2], ["6", "6"]);
    let mut mark6 = Mark6::configured();
    for (command, code, message) in [
        ("record=on:40:96:s:e:t;", "4", "10"),
        ("record=on:0:1:s:e:t;", "8", "5"),
        ("record=on:40:x:s:e:t;", "8", "5"),
        ("record=on:40:1::e:t;", "8", "5"),
        ("record=on:40:1:s:experiment:t;", "8", "5"),
        ("record=on:40:1:../s:e:t;", "8", "5"),
        ("record=soon:40:1:s:e:t;", "8", "5"),
        ("record=off;", "6", "8"),
        ("mod_init=1:8:AB-00001;", "2", "15"),
        ("group=erase:1;", "2", "15"),
        ("group=new:12;", "2", "15"),
        ("nonsense?", "7", "3"),
        ("msg?99", "8", "5"),
        ("scan_check?", "4", "13"),
    ] {
        assert_eq!(fields(&mark6.ask(command))[..2], [code, message], "{command}");
    }
    assert!(mark6.station.started.is_empty());
    assert_eq!(
        mark6.ask("group=open:1234; msg?10"),
        "!group= 0 : 0 ; !msg? 0 : 0 : 10 : there is not enough space ;"
    );
}

#[test]
fn an_input_stream_is_checked_and_listed() {
    let mut mark6 = Mark6::configured();
    assert_eq!(
        mark6.ask("input_stream?"),
        "!input_stream? 0 : 0 : ifa : vdif : 8224 : 42 : 0 : eth3 : 192.0.2.3 : 4001 ;"
    );
    for wrong in [
        "ifa:vdif:8224:42:0:eth3:192.0.2.3:4001",
        "a_label_of_many_letters:vdif:8224:42:0:eth3:192.0.2.3:4001",
        "../b:vdif:8224:42:0:eth3:192.0.2.3:4001",
        "ifb:vdiff:8224:42:0:eth3:192.0.2.3:4001",
        "ifb:vdif:64:42:0:eth3:192.0.2.3:4001",
        "ifb:vdif:9000:42:0:eth3:192.0.2.3:4001",
        "ifb:vdif:8224:43:0:eth3:192.0.2.3:4001",
        "ifb:vdif:8224:42:42:eth3:192.0.2.3:4001",
        "ifb:vdif:8224:42:0:eth 3:192.0.2.3:4001",
        "ifb:vdif:8224:42:0:an_interface_xyz:192.0.2.3:4001",
        "ifb:vdif:8224:42:0:eth3:00-11-22-33-44-55:4001",
        "ifb:vdif:8224:42:0:eth3:192.0.2.3",
        "ifb:vdif:8224:42:0:eth3:192.0.2.3:0",
    ] {
        let answer = mark6.ask(&format!("input_stream=add:{wrong};"));
        assert_eq!(fields(&answer)[..2], ["8", "5"], "{wrong}: {answer}");
    }
    // A Mark 5B stream with a packet number before each frame.
    assert_eq!(
        mark6.ask("input_stream=add:ifb:m5b:8224:50:42:eth5:239.1.2.3:4002;"),
        "!input_stream= 0 : 0 ;"
    );
    assert_eq!(mark6.ask("input_stream=delete:ifa;"), "!input_stream= 0 : 0 ;");
    assert_eq!(fields(&mark6.ask("input_stream=delete:ifa;"))[0], "8");
    // It counts when it is committed.
    assert_eq!(mark6.ask(ON), "!record= 0 : 0 ;");
    assert_eq!(mark6.station.started[0].1.sources, ["udp://192.0.2.3:4001?format=vdif&name=ifa"]);
    assert_eq!(fields(&mark6.ask("input_stream=commit;"))[..2], ["6", "7"]);
    mark6.ask("record=off;");
    mark6.station.end(RUNTIME, None);
    mark6.ask("input_stream=commit;");
    assert_eq!(mark6.ask("record=on:40:1:s:e:t;"), "!record= 0 : 0 ;");
    let sources = &mark6.station.started[1].1.sources;
    assert_eq!(*sources, ["udp://239.1.2.3:4002?format=mark5b&psn=true&interface=eth5&name=ifb"]);
}

#[test]
fn a_host_that_may_only_ask_changes_nothing() {
    let mut mark6 = Mark6::configured();
    for command in [ON, "record=off;", "input_stream=delete:ifa;", "group=open:1;"] {
        assert_eq!(fields(&mark6.ask_as(false, command))[..2], ["4", "1"], "{command}");
    }
    assert!(mark6.station.started.is_empty());
    assert_eq!(fields(&mark6.ask_as(false, "record?"))[2], "off");
}

fn any_command() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec![
        "",
        "on",
        "off",
        "add",
        "delete",
        "commit",
        "40",
        "0",
        "s",
        "e",
        "t",
        "ifa",
        "vdif",
        "42",
        "8224",
        "eth3",
        "192.0.2.3",
        "4001",
        "2026y325d19h51m48s",
        "-1",
        "x y",
    ]);
    let keyword =
        prop::sample::select(vec!["record", "input_stream", "group", "scan_check", "msg", "rtime"]);
    let sign = prop::sample::select(vec!["=", "?"]);
    let parts = prop::collection::vec(part, 0..10);
    (keyword, sign, parts)
        .prop_map(|(keyword, sign, parts)| format!("{keyword}{sign}{}", parts.join(":")))
}

proptest! {
    /// A client says anything, and recordings begin and end at any moment: every answer has two codes, and one recording runs
    /// at most.
    #[test]
    fn every_answer_has_two_codes(steps in prop::collection::vec((any_command(), 0_u8..6), 1..60)) {
        let mut mark6 = Mark6::configured();
        for (command, what) in steps {
            match what {
                0 => mark6.station.end(RUNTIME, None),
                1 => mark6.station.end(RUNTIME, Some("the disk is gone")),
                2 => mark6.station.receive(RUNTIME, Traffic::default()),
                3 => drop(mark6.ask(ON)),
                _ => mark6.station.pass(1.0),
            }
            let answer = mark6.ask(&command);
            let told = fields(&answer);
            let codes = (told[0].parse::<u8>().unwrap(), told[1].parse::<u16>().unwrap());
            prop_assert_eq!(codes.0 == 0, codes.1 == 0, "{}: {}", command, answer);
            prop_assert!(MESSAGES.iter().any(|it| it.0 == codes.1));
            prop_assert!(mark6.station.running() <= 1);
            let is_stopping = matches!(
                mark6.station.activity(RUNTIME),
                Activity::Running(running) if running.phase == Phase::Stopping
            );
            prop_assert!(!is_stopping || fields(&mark6.ask("record?"))[2] == "flushing");
        }
    }
}
