use std::fs;

use proptest::prelude::*;

use super::*;

const HASH: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

/// A directory with a member, a schedule, and a program.
fn place() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir(place.path().join("disk0")).unwrap();
    fs::write(place.path().join("scans.csv"), "scan,start,duration\na,2099-01-01T00:00:00Z,40s\n")
        .unwrap();
    place
}

fn parse(place: &tempfile::TempDir, text: &str) -> Result<StationFile, Vec<Fault>> {
    StationFile::parse(&place.path().join("station.toml"), text)
}

fn whole() -> String {
    format!(
        r#"
[store]
members = "disk0"

[listen]
http = ["127.0.0.1:8480", "[::1]:8480"]
https = "0.0.0.0:8443"
names = ["station.example.org"]
unix = "station.sock"
unix-mode = "0600"
unix-role = "viewer"

[limits]
connections = 100
connections-per-address = 10
header-timeout = "5s"
body-timeout = "20s"
inputs-only = true

[[token]]
name = "field-system"
role = "operator"
sha256 = "{HASH}"

[[user]]
name = "root"
role = "admin"

[[user]]
name = "oper@observatory"
uid = 4000000
role = "operator"

[[input]]
name = "vlbi"
endpoints = ["udp://0.0.0.0:46220-46223?format=vdif", "udp://0.0.0.0:46230?format=vdif"]

[[schedule]]
name = "vgos"
file = "scans.csv"
input = "vlbi"
session = "r1234"
lead = "3s"

[receive]
listen = "0.0.0.0"
address = "Station.example.org"
rate = "2Gbit/s"
window = "22:00-06:00"
connections = 8
congestion = "bbr"

[transfers]
rate = "1Gbit/s"
parallel = 3

[[alert]]
name = "duty"
on = ["loss", "member"]
webhook = "https://alerts.example.org/hook?key=1"
repeat = "10m"

[[alert]]
name = "siren"
command = ["/bin/sh", "-c", "true"]
timeout = "2s"
"#
    )
}

#[test]
fn a_whole_file_is_read() {
    let place = place();
    let file = parse(&place, &whole()).unwrap();
    assert_eq!(file.members, [place.path().join("disk0")]);
    assert_eq!((file.listen.http.len(), file.listen.https.len()), (2, 1));
    let unix = file.listen.unix.clone().unwrap();
    assert_eq!((unix.path, unix.mode), (place.path().join("station.sock"), 0o600));
    let settings = &file.settings;
    assert_eq!((settings.limits.total, settings.limits.each), (100, 10));
    assert_eq!(settings.patience.head.as_secs(), 5);
    assert!(settings.inputs_only && settings.others == Some(Role::Viewer));
    assert_eq!(settings.tokens.find("secret").unwrap().role, Role::Operator);
    assert_eq!(settings.users.iter().map(|it| it.uid).collect::<Vec<_>>(), [0, 4_000_000]);
    assert_eq!(settings.inputs["vlbi"].len(), 2);
    let schedule = &file.schedules[0];
    assert_eq!(
        (schedule.options.source.as_slice(), schedule.options.lead.as_deref()),
        (["input:vlbi".to_owned()].as_slice(), Some("3s"))
    );
    assert_eq!(file.alerts.len(), 2);
    assert_eq!(file.alerts[1].on.len(), crate::alerts::Kind::ALL.len());
    let summary = file.summary();
    assert_eq!((summary.listeners, summary.identities), (5, 3));
    let receive = file.receive.unwrap();
    assert_eq!(receive.listen, "0.0.0.0:4780".parse().unwrap());
    assert_eq!(receive.address.as_deref(), Some("station.example.org:4780"));
    assert_eq!((receive.connections, receive.link.rate), (8, Some(250_000_000)));
    assert!(receive.link.window.is_some() && receive.link.congestion.as_deref() == Some("bbr"));
    assert_eq!((file.transfers.run, file.transfers.parallel), (true, 3));
    assert_eq!((file.transfers.per_destination, file.transfers.link.rate), (1, Some(125_000_000)));
}

#[test]
fn a_small_file_listens_on_loopback() {
    let file = parse(&place(), "[store]\nmembers = ['disk0']\n").unwrap();
    assert_eq!(file.listen.http, [crate::config::DEFAULT_ADDRESS]);
    assert_eq!(file.settings.limits, crate::settings::LIMITS);
    assert!(file.receive.is_none() && file.transfers == crate::transfers::QueueOptions::default());
}

/// Each mistake, its line, and a part of what is said.
const MISTAKES: &[(&str, &str, &str)] = &[
    ("members = \"disk0\"", "members = [\"disk0\", \"disk0\"]", "twice"),
    ("members = \"disk0\"", "members = 7", "is a text in quotes, or a list"),
    ("\"127.0.0.1:8480\"", "\"192.0.2.1:8480\"", "nothing is encrypted"),
    ("\"127.0.0.1:8480\"", "\"localhost\"", "is no address with a port"),
    ("\"0.0.0.0:8443\"", "\"0.0.0.0\"", "is no address with a port"),
    ("\"station.example.org\"", "\"https://x\"", "is no name of a host"),
    ("\"0600\"", "\"rw\"", "it is no file mode"),
    ("\"station.sock\"", "\"/nowhere/x.sock\"", "the directory of"),
    ("unix-role = \"viewer\"", "unix-role = \"god\"", "it is no role"),
    ("listen = \"0.0.0.0\"\n", "", "[receive] needs `listen`"),
    ("listen = \"0.0.0.0\"\n", "listen = \"here\"\n", "`here` is no address"),
    ("address = \"Station.example.org\"", "address = \"a b\"", "is not a host name"),
    ("rate = \"2Gbit/s\"", "rate = \"2\"", "`rate`: "),
    ("rate = \"1Gbit/s\"", "rate = \"1kbit/s\"", "too low for a transfer"),
    ("window = \"22:00-06:00\"", "window = \"night\"", "`window`: "),
    ("connections = 8", "connections = 33", "is a number from 1 to 32"),
    ("congestion = \"bbr\"", "congestion = \"../bbr\"", "no name of a congestion control"),
    ("parallel = 3", "parallel = 0", "is a number from 1 to 64"),
    ("parallel = 3", "run = \"no\"", "is true or false"),
    ("parallel = 3", "paralell = 3", "no key `paralell` in [transfers]"),
    ("names = [", "certificate = \"x\"\nnames = [", "belong together"),
    ("names = [", "certificate = \"x\"\nkey = \"y\"\nnames = [", "reading it"),
    ("connections = 100", "connections = 0", "is a number from 2"),
    ("\"5s\"", "\"5\"", "it is a time from 1s to 1h"),
    ("inputs-only = true", "inputs-only = \"yes\"", "is true or false"),
    ("inputs-only = true", "input-only = true", "no key `input-only` in [limits]"),
    ("role = \"operator\"\nsha256", "role = \"boss\"\nsha256", "it is no role"),
    ("name = \"field-system\"", "name = \"a b\"", "`name`: "),
    ("name = \"field-system\"\n", "", "[[token]] needs `name`"),
    ("name = \"root\"", "name = \"nobody-has-this-login\"", "this host has no user"),
    ("uid = 4000000", "uid = -4", "`uid` is a number"),
    ("name = \"vlbi\"", "name = \"v/l\"", "`name`: "),
    ("udp://0.0.0.0:46230?format=vdif", "udp://0.0.0.0:46230?format=vdiff", "vdiff"),
    ("input = \"vlbi\"", "input = \"other\"", "there is no input `other`"),
    ("file = \"scans.csv\"", "file = \"none.csv\"", "none.csv"),
    ("session = \"r1234\"\n", "", "names no session"),
    ("session = \"r1234\"", "session = \"../x\"", "session: "),
    ("\"loss\", ", "\"rain\", ", "there is no problem `rain`"),
    ("https://alerts", "ftp://alerts", "no address of http"),
    ("command = [\"/bin/sh\"", "command = [\"sh\"", "is no program"),
    ("timeout = \"2s\"", "timeout = \"2h\"", "it is a time from 1s to 1m"),
    ("timeout = \"2s\"", "webhook = \"https://x.example\"", "either `webhook` or `command`"),
    ("[limits]", "[limit]", "no table or key `limit`"),
    ("[limits]", "[[limits]]", "`limits` is a table"),
    ("[[user]]", "[user]", "duplicate"),
];

#[test]
fn each_mistake_is_told_with_its_line() {
    let place = place();
    for (right, wrong, what) in MISTAKES {
        let text = whole();
        let at = text.find(right).unwrap_or_else(|| panic!("{right}"));
        let faults = parse(&place, &text.replacen(right, wrong, 1)).unwrap_err();
        let fault = faults.iter().find(|it| it.what.contains(what));
        let fault = fault.unwrap_or_else(|| panic!("{wrong}: {faults:?}"));
        let line = text[..at].matches('\n').count() + 1;
        // A key that is missing is told at its table, a few lines before.
        assert!(fault.line.abs_diff(line) <= 7, "{wrong}: {fault:?}, not in line {line}");
    }
}

#[test]
fn a_disk_that_is_not_there_is_a_warning() {
    let file = parse(&place(), &whole().replace("\"disk0\"", "[\"disk0\", \"disk9\"]")).unwrap();
    let [warning] = file.warnings.as_slice() else { panic!("{:?}", file.warnings) };
    assert!(warning.warning && warning.line == 3 && warning.what.contains("disk9"));
    assert_eq!(file.members.len(), 2);
}

#[test]
fn all_mistakes_are_told_at_once() {
    let text = whole()
        .replace("disk0", "disk9")
        .replace("0.0.0.0:46230?format=vdif", "0.0.0.0:46230?format=nonsense")
        .replace("\"loss\"", "\"rain\"")
        .replace("inputs-only", "input-only");
    let faults = parse(&place(), &text).unwrap_err();
    assert!(faults.len() >= 4, "{faults:?}");
    assert!(faults.windows(2).all(|two| two[0].line <= two[1].line));
    let shown = shown(Path::new("station.toml"), &faults);
    assert!(
        shown.starts_with("station.toml, line 3: ") && shown.contains("\n  there are "),
        "{shown}"
    );
}

#[test]
fn an_open_address_needs_a_token() {
    let text = "[store]\nmembers = 'disk0'\n[listen]\nhttps = ['[::]:8443', '127.0.0.1:8444']\n";
    let faults = parse(&place(), text).unwrap_err();
    assert!(faults.len() == 1 && faults[0].line == 3, "{faults:?}");
    assert!(faults[0].what.contains("the file has no token"), "{faults:?}");
    assert!(parse(&place(), &text.replace("[::]", "[::1]")).is_ok());
}

#[test]
fn what_needs_a_restart_is_named() {
    let place = place();
    let before = parse(&place, &whole()).unwrap();
    let after = parse(&place, &whole().replace("8443", "8444").replace("5s", "6s")).unwrap();
    assert_eq!(before.needs_restart(&after), ["[listen] http, https, unix"]);
    assert!(before.needs_restart(&before).is_empty());
    let changed = whole().replace("2Gbit/s", "3Gbit/s").replace("parallel = 3", "parallel = 4");
    assert_eq!(
        before.needs_restart(&parse(&place, &changed).unwrap()),
        ["[receive]", "[transfers]"]
    );
}

#[test]
fn the_example_is_right_but_for_its_paths() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/station.toml");
    let faults = StationFile::parse(&example, &fs::read_to_string(&example).unwrap()).unwrap_err();
    for fault in &faults {
        let is_of_host =
            ["/mnt/", "/etc/", "/run/", "/usr/"].iter().any(|it| fault.what.contains(it))
                || fault.what.contains("this host has no user");
        assert!(is_of_host, "{fault:?}");
    }
}

proptest! {
    #[test]
    fn no_text_panics_and_faults_are_in_the_text(
        start in 0_usize..1500, length in 0_usize..40, put in "[\\[\\]\"=a-z0-9 \n.{},]{0,12}"
    ) {
        let mut text = whole();
        let start = start.min(text.len());
        let end = (start + length).min(text.len());
        text.replace_range(start..end, &put);
        if let Err(faults) = parse(&place(), &text) {
            let lines = text.matches('\n').count() + 1;
            prop_assert!(!faults.is_empty());
            prop_assert!(faults.iter().all(|it| (1..=lines + 1).contains(&it.line)));
        }
    }
}
