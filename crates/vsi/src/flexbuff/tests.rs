//! Whole conversations with a station of memory, and commands in any order.

use proptest::prelude::*;

use super::*;
use crate::reply::LONGEST_REPLY;
use crate::station::{Activity, Facts, Phase, Problem, StoredScan, Traffic};
use crate::testing::MemoryStation;

struct Client {
    dialect: FlexBuff,
    session: Session,
    station: MemoryStation,
}

impl Client {
    fn new() -> Self {
        let (dialect, station) = (FlexBuff::default(), MemoryStation::default());
        Self { dialect, session: Session::new(true), station }
    }

    fn set_up() -> Self {
        let mut client = Self::new();
        assert_eq!(client.ask("mode=VDIF_8000-2048-16-2;"), "!mode= 0 ;");
        client
    }

    fn ask(&mut self, line: &str) -> String {
        match self.dialect.line(&mut self.session, &mut self.station, line, false) {
            Outcome::Answer(answer) => answer,
            Outcome::Wait { .. } => panic!("{line} waits"),
        }
    }

    /// Asks, as another connection.
    fn ask_as(&mut self, session: Session, line: &str) -> String {
        let own = std::mem::replace(&mut self.session, session);
        let answer = self.ask(line);
        self.session = own;
        answer
    }
}

const ON: &str = "record = on : r1_Wz_no1 ;";

#[test]
fn the_field_system_sets_up_records_and_checks_a_scan() {
    let mut fs = Client::new();
    for (line, answer) in [
        ("mode = VDIF_8000-2048-16-2 ;", "!mode= 0 ;"),
        ("mtu = 9000 ;", "!mtu= 0 ;"),
        ("net_protocol = udpsnor : 32000000 : 256000000 : 4 ;", "!net_protocol= 0 ;"),
        ("record = nthread : : 2 ;", "!record= 0 ;"),
        ("record?nthread", "!record? 0 : 1 : 2 ;"),
        ("record?\n", "!record? 0 : off ;"),
        ("status?", "!status? 0 : 0x00000001 ;"),
        (ON, "!record= 0 ;"),
        ("record?", "!record? 0 : on : 1 : r1_Wz_no1 : 0 ;"),
        ("status?", "!status? 0 : 0x00000059 ;"),
    ] {
        assert_eq!(fs.ask(line), answer, "{line}");
    }
    assert_eq!(fs.station.started[0].1.chunk_bytes, Some(256_000_000));
    let traffic = Traffic { bytes: 80_320, frames: 10, lost: 2, ..Traffic::default() };
    fs.station.receive(DEFAULT_RUNTIME, traffic);
    assert_eq!(fs.ask("record?"), "!record? 0 : on : 1 : r1_Wz_no1 : 80320 ;");
    let loss = "!evlbi? 0 : total : 12 : loss : 2 ( 16.67%) : out-of-order : ? : extent : ? ;";
    assert_eq!(fs.ask("evlbi?"), loss);
    assert_eq!(fs.ask("record = off : r1_Wz_no1 ;"), "!record= 1 ;");
    assert!(fs.ask("record?").starts_with("!record? 0 : on : 1 : r1_Wz_no1"));
    fs.station.end(DEFAULT_RUNTIME, None);
    for (line, answer) in [
        ("record?", "!record? 0 : off ;"),
        ("error?", "!error? 0 : : : : : ;"),
        ("scan_set?", "!scan_set? 0 : 1 : r1_Wz_no1 : 0 : 80320 ;"),
        ("scan_set=r1_Wz_no1 ;", "!scan_set= 0 ;"),
        (
            "scan_check?",
            "!scan_check? 0 : 1 : r1_Wz_no1 : VDIF : 32 : 2026y325d19h24m24.0000s : 2.00000s : 64Mbps : 0 : 8032 ;",
        ),
        (
            "rtime?",
            "!rtime? 0 : 373.045s : 95.8814GB : 94.8335% : VDIF : 32 : 0MHz : 2056.19Mbps ;",
        ),
        ("dir_info?", "!dir_info? 0 : 1 : 5223600000 : 101105000000 ;"),
    ] {
        assert_eq!(fs.ask(line), answer, "{line}");
    }
}

#[test]
fn a_command_that_comes_again_begins_and_ends_nothing() {
    let mut fs = Client::set_up();
    assert_eq!(fs.ask(ON), "!record= 0 ;");
    // It connected again.
    assert_eq!(fs.ask_as(Session::new(true), ON), "!record= 0 ;");
    assert_eq!(fs.station.started.len(), 1);
    assert_eq!(fs.ask("record=on:r1_Wz_no2"), "!record= 6 : Already doing vbsrecord ;");
    assert_eq!(fs.ask("record=off"), "!record= 1 ;");
    assert_eq!(fs.ask_as(Session::new(true), "record=off"), "!record= 1 ;");
    fs.station.end(DEFAULT_RUNTIME, None);
    assert_eq!(fs.ask("record=off"), "!record= 0 ;");
    assert_eq!(fs.station.stopped.len(), 1);
    fs.station.pass(31.0);
    assert_eq!(fs.ask("record=off"), "!record= 6 : Not doing record ;");
    // A command for the same label after the end is a new one.
    assert_eq!(fs.ask(ON), "!record= 0 : r1_Wz_no1a ;");
    assert_eq!(fs.ask(ON), "!record= 0 : r1_Wz_no1a ;");
    assert_eq!(fs.station.started.len(), 2);
}

#[test]
fn a_recording_that_fails_is_not_begun_again_by_the_repetition() {
    let mut fs = Client::set_up();
    fs.ask(ON);
    fs.station.end(DEFAULT_RUNTIME, Some("port 2630: address in use"));
    assert_eq!(fs.ask(ON), "!record= 4 : port 2630. address in use ;");
    assert_eq!(fs.ask("record=off"), "!record= 4 : port 2630. address in use ;");
    assert_eq!(fs.station.started.len(), 1);
    let status = fs.ask("status?");
    assert!(
        status.starts_with("!status? 0 : 0x00000003 : -1 : port 2630. address in use : 20"),
        "{status}"
    );
    let error = fs.ask("error?");
    assert!(
        error.contains(": -1 : port 2630. address in use : 20") && error.ends_with(": 1 ;"),
        "{error}"
    );
    assert_eq!(fs.ask("status?"), "!status? 0 : 0x00000001 ;");
    fs.station.pass(31.0);
    fs.station.scans.clear();
    assert_eq!(fs.ask(ON), "!record= 0 ;");
}

#[test]
fn what_cannot_be_recorded_is_refused_with_its_code() {
    let mut fs = Client::new();
    assert_eq!(fs.ask(ON), "!record= 6 : no mode is set ;");
    fs.ask("mode=VDIF_8000-2048-16-2");
    for (line, code) in [
        ("record=on", 6),
        ("record=on:no-session", 8),
        ("record=on:../etc_x", 8),
        (&*format!("record=on:r_{}", "x".repeat(63)), 8),
        ("record=sideways", 8),
        ("record=mk6:1", 2),
        ("record=off", 6),
        ("disk2net=connect:10.0.0.1", 2),
        ("net2file=open:/etc/passwd,w", 2),
        ("reset=erase", 2),
        ("file_check?", 8),
        ("file_check?::/etc/passwd", 8),
        ("file_check?::../x", 8),
        ("bank_set?", 7),
        ("net_protocol=udt", 2),
        ("scan_set=nothing", 4),
        ("set_disks=/nowhere*", 8),
        ("set_disks=null", 2),
        ("set_disks=/mnt/disk[01]", 6),
    ] {
        let answer = fs.ask(line);
        assert!(
            answer.contains(&format!("= {code} : ")) || answer.contains(&format!("? {code} : ")),
            "{line}: {answer}"
        );
    }
    assert_eq!(fs.ask("nonsense"), "!syntax = 7 : Not a command or query ;");
    assert_eq!(fs.ask("set_disks=/mnt/disk*"), "!set_disks= 0 : 4 ;");
    fs.station.refusal = Some("16 recordings run already".into());
    assert_eq!(fs.ask(ON), "!record= 4 : 16 recordings run already ;");
    assert!(fs.station.started.is_empty());
}

#[test]
fn a_client_that_may_only_ask_changes_nothing() {
    let mut fs = Client::set_up();
    fs.station.problems.push(Problem { at: fs.station.now, text: "x".into() });
    let reader = || Session::new(false);
    for command in [ON, "mode=none", "runtime=x", "scan_set=1", "record=off"] {
        let answer = fs.ask_as(reader(), command);
        assert!(answer.contains("= 4 : commands are not allowed from this address"), "{answer}");
    }
    assert!(fs.station.started.is_empty());
    assert!(fs.ask_as(reader(), "mode?").contains("VDIF_8000"));
    for _ in 0..2 {
        assert!(fs.ask_as(reader(), "error?").contains(" : x : "), "it stays in the queue");
    }
    assert!(fs.ask("error?").contains(" : x : "));
    assert_eq!(fs.ask("error?"), "!error? 0 : : : : : ;");
}

#[test]
fn m5copy_finds_what_it_looks_for() {
    let mut m5copy = Client::new();
    // It cuts at the first `=` or `?`, then at `:`.
    let fields = |answer: &str| -> Vec<String> {
        let rest = answer.split_once('=').or(answer.split_once('?')).unwrap().1;
        rest.trim_end_matches(';').split(':').map(|it| it.trim().to_owned()).collect()
    };
    let version = fields(&m5copy.ask("version?;"));
    assert!(version[0] == "0" && version[1].starts_with("jive5") && version[2] == "3.1.0");
    assert_eq!(version.get(9).map(String::as_str), Some(""), "no etransfer");
    assert_eq!(fields(&m5copy.ask("dts_id?;"))[1], "-");
    assert_eq!(fields(&m5copy.ask("runtime?;"))[1], "default");
    assert_eq!(m5copy.ask("runtime=m5c1:transient;"), "!runtime= 0 : m5c1 ;");
    for line in [
        "mode=none;",
        "mtu=1500;",
        "ipd=20000ns;",
        "net_port=2630;",
        "echo=on;",
        "record=mk6:0;",
        "net_protocol=udps:4M:2M;",
        "net_protocol=::256M:8;",
        "record=nthread:1:2;",
    ] {
        assert_eq!(fields(&m5copy.ask(line))[0], "0", "{line}");
    }
    m5copy.station.scans.push(StoredScan { name: "r1_Wz_no1".into(), bytes: 514_048_000 });
    assert_eq!(fields(&m5copy.ask("scan_set=r1_Wz_no1;")), ["0"]);
    let check = fields(&m5copy.ask("scan_check?;"));
    assert_eq!(
        check[2..],
        ["r1_Wz_no1", "VDIF", "32", "2026y325d19h24m24.0000s", "2.00000s", "64Mbps", "0", "8032"]
    );
    assert_eq!(fields(&m5copy.ask("disk2net=connect:192.0.2.1;"))[0], "2");
    assert_eq!(fields(&m5copy.ask("disk2file=no1.vdif:0:8032:n;")), ["1"]);
    assert_eq!(
        fields(&m5copy.ask("disk2file?;")),
        ["0", "active", "no1.vdif", "0", "0", "8032", "n"]
    );
    assert_eq!(fields(&m5copy.ask("disk2file=no1.vdif:0:8032:n;")), ["1"]);
    assert_eq!(fields(&m5copy.ask("status?;"))[1], "0x00001019");
    assert_eq!(fields(&m5copy.ask("file_check?::no1.vdif;"))[1..], check[3..]);
    m5copy.dialect.end(&m5copy.session, &m5copy.station);
    assert_eq!(fields(&m5copy.ask_as(Session::new(true), "runtime?;")), ["0", "default", "1"]);
}

#[test]
fn each_runtime_has_its_own_set_up_and_recording() {
    let mut client = Client::set_up();
    client.ask(ON);
    assert_eq!(client.ask("runtime=second"), "!runtime= 0 : second ;");
    assert_eq!(client.ask("runtime?"), "!runtime? 0 : second : 2 : default ;");
    assert_eq!(client.ask("record?"), "!record? 0 : off ;");
    assert!(client.ask("mode?").contains("<unknown>"));
    client.ask("mode=VDIF_8000-64-1-2");
    assert_eq!(client.ask(ON), "!record= 0 : r1_Wz_no1a ;", "a name is used once");
    assert_eq!(client.station.running(), 2);
    assert_eq!(client.ask("runtime=second:delete"), "!runtime= 6 : the runtime records ;");
    assert_eq!(client.ask("mode=none"), "!mode= 6 : not whilst vbsrecord is in progress ;");
    client.ask("record=off");
    client.station.end("second", None);
    assert_eq!(client.ask("runtime=second:delete"), "!runtime= 0 : default ;");
    for number in 0..20 {
        client.ask(&format!("runtime=r{number}"));
    }
    assert!(client.ask("runtime?").contains(": 16 :"));
}

#[test]
fn a_rate_is_told_from_the_second_question_on() {
    let mut client = Client::set_up();
    assert_eq!(client.ask("tstat?"), "!tstat? 0 : 0.0 : no_transfer ;");
    client.ask(ON);
    assert_eq!(client.ask("tstat?"), "!tstat? 1 : Retry - we're initialized now : vbsrecord ;");
    let traffic = Traffic { bytes: 250_000_000, fill: 0.25, ..Traffic::default() };
    client.station.receive(DEFAULT_RUNTIME, traffic);
    client.station.pass(2.0);
    assert_eq!(
        client.ask("tstat?"),
        "!tstat? 0 : 2.00s : vbsrecord : UdpsReadBH 1000.00Mbps : F 25.0% ;"
    );
    let state = client.ask("tstat=");
    assert!(state.ends_with(" : vbsrecord : UdpsReadBH : 250000000 : FIFOLength : 0 ;"), "{state}");
    assert_eq!(client.ask("evlbi=%t:%l"), "!evlbi= 0 ;");
    assert_eq!(client.ask("evlbi?"), "!evlbi? 0 : 0 : 0 ;");
    assert!(client.ask("evlbi=%x").starts_with("!evlbi= 8 : "));
    let overrun = Traffic { overrun: 1, ..traffic };
    client.station.receive(DEFAULT_RUNTIME, overrun);
    assert_eq!(client.ask("status?"), "!status? 0 : 0x00000459 ;");
}

#[test]
fn a_scan_that_is_being_read_puts_the_rest_of_the_line_off() {
    let mut client = Client::set_up();
    client.station.scans.push(StoredScan { name: "r1_a".into(), bytes: 1000 });
    client.station.facts = Facts::Reading;
    let line = "scan_set=r1_a; scan_check?; mode?";
    let Outcome::Wait { answered, rest } =
        client.dialect.line(&mut client.session, &mut client.station, line, true)
    else {
        panic!()
    };
    assert_eq!(answered, "!scan_set= 0 ;");
    assert_eq!(rest.trim(), "scan_check?; mode?");
    assert!(
        client.ask(&rest).starts_with("!scan_check? 1 : Retry - the scan is being read ; !mode? 0")
    );
    assert!(client.ask("disk2file=").starts_with("!disk2file= 5 : the scan is being read"));
    assert!(client.station.copies.is_empty());
    client.station.facts = Facts::Failed("it is broken".into());
    assert_eq!(client.ask("scan_check?"), "!scan_check? 4 : it is broken ;");
}

fn any_line() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "record=on:r1_a",
        "record=on:r1_b",
        "record=on:r1_a:e:s",
        "record=off",
        "record?",
        "status?",
        "error?",
        "tstat?",
        "tstat=",
        "evlbi?",
        "mode?",
        "mode=none",
        "mode=VDIF_8000-64-1-2",
        "net_port=1=A:2=B",
        "net_port=5",
        "set_disks?",
        "scan_set=",
        "scan_set=next:c",
        "scan_set?",
        "scan_check?",
        "rtime?",
        "dir_info?",
        "runtime=x",
        "runtime=default",
        "runtime=y:transient",
        "runtime=x:delete",
        "disk2file=",
        "disk2file?",
        "datastream=add:{thread}:*",
        "version?",
    ]);
    let keyword = prop::sample::select(vec![
        "record",
        "scan_set",
        "net_port",
        "mode",
        "runtime",
        "disk2file",
        "evlbi",
    ]);
    prop_oneof![
        6 => known.prop_map(str::to_owned),
        2 => (keyword, "[=?]", ".{0,60}").prop_map(|(keyword, sign, rest)| format!("{keyword}{sign}{rest}")),
        1 => ".{0,80}",
    ]
}

/// What happens between two lines.
#[derive(Clone, Copy, Debug)]
enum Event {
    Nothing,
    End(bool),
    Receive,
    Pass,
}

proptest! {
    #[test]
    fn any_commands_in_any_order_get_one_short_answer_each_and_repetitions_do_nothing(
        steps in prop::collection::vec(
            (any_line(), prop::sample::select(vec![
                Event::Nothing, Event::Nothing, Event::End(true), Event::End(false), Event::Receive, Event::Pass,
            ]), any::<bool>()),
            1..60,
        )
    ) {
        let mut client = Client::set_up();
        for (line, event, may_write) in steps {
            client.session.may_write = may_write;
            let counts = |client: &Client| (client.station.started.len(), client.station.stopped.len());
            let before = counts(&client);
            let runtime = client.session.runtime.clone();
            let answer = client.ask(&line);
            let after = counts(&client);
            prop_assert!(!answer.contains('\n') && answer.ends_with(';'), "{}", answer);
            prop_assert!(answer.len() <= (LONGEST_REPLY + 1) * (line.matches(';').count() + 1));
            prop_assert!(may_write || before == after, "{} of a reader", line);
            let is_single = !line.contains(';');
            if after.0 > before.0 {
                // Only an accepted command began it, and the state says so.
                let runs = matches!(client.station.activity(&client.session.runtime), Activity::Running(_));
                prop_assert!(runs || !is_single);
            }
            if is_single && client.session.runtime == runtime {
                client.ask(&line);
                prop_assert_eq!(counts(&client), after, "{} again", line);
            }
            let runtime = client.session.runtime.clone();
            match event {
                Event::Nothing => {}
                Event::End(well) => client.station.end(&runtime, (!well).then_some("it failed")),
                Event::Receive => {
                    let traffic = Traffic { bytes: 8032, frames: 1, ..Traffic::default() };
                    client.station.receive(&runtime, traffic);
                }
                Event::Pass => client.station.pass(20.0),
            }
            if let Activity::Running(running) = client.station.activity(&runtime) {
                prop_assert!(running.phase != Phase::Stopping || !client.station.stopped.is_empty());
            }
        }
    }
}
