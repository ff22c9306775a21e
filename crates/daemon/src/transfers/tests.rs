use std::fs;
use std::os::unix::fs::PermissionsExt;

use fullbore_recording::transfers::carrier;
use fullbore_store::testing::{Store, StreamPlan};
use fullbore_transfer::queue::files;
use fullbore_transfer::queue::job::{JobState, Rule, VERSION, Wishes};

use super::*;

/// How long a transfer may take on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// A station with a store, a queue and keys of its own.
struct Site {
    store: Store,
    place: tempfile::TempDir,
}

impl Site {
    fn new() -> Self {
        Self { store: Store::new(2), place: tempfile::tempdir().unwrap() }
    }

    fn transfers(&self) -> Transfers {
        let (queue, keys) = (self.place.path().join("queue"), self.place.path().join("keys"));
        Transfers::in_folders(&self.store.roots(), queue, keys, None)
    }
}

fn here() -> ReceiveOptions {
    let listen = "127.0.0.1:0".parse().unwrap();
    ReceiveOptions { listen, address: None, connections: 4, link: LinkOptions::default() }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_sealed_scan_goes_from_one_station_to_another_by_a_rule() {
    let (near, far) = (Site::new(), Site::new());
    near.store.lay_down("r1_a", &[StreamPlan::vdif("a"), StreamPlan::varying("b")]);
    near.store.lay_down("other_a", &[StreamPlan::vdif("a")]);
    let (sender, receiver) = (near.transfers(), far.transfers());
    let idle = QueueOptions { run: false, ..QueueOptions::default() };
    let there = receiver.start(Some(&here()), &idle).unwrap();
    let address = there.listening.as_ref().unwrap().address.to_string();
    let may = Permissions { send: true, fetch: false };
    let made = receiver.invite(&address, may, Duration::from_secs(60), Some("near")).unwrap();
    let rule = Rule {
        version: VERSION,
        sessions: "r1".into(),
        store: sender.store().to_vec(),
        target: carrier::target(&made.invitation).unwrap(),
        wishes: Wishes::default(),
        added: files::now(),
    };
    sender.queue().unwrap().add_rule(&rule).unwrap();
    let _here = sender.start(None, &QueueOptions::default()).unwrap();
    until("the scan lands", || receiver.current().receive.unwrap().counts.landed_scans == 1);
    let receive = receiver.current().receive.unwrap();
    assert!(receive.open.is_empty() && receive.counts.received_bytes > 0, "{receive:?}");
    until("the queue says so", || sender.state().counts.get(&JobState::Done) == Some(&1));
    assert_eq!(sender.state().runner, Some(std::process::id()));
    assert!(sender.current().receive.is_none());
    let sites = receiver.sites().unwrap();
    assert_eq!((sites.peers[0].name.as_str(), sites.invitations.len()), ("near", 0));
    receiver.forget("near").unwrap();
    assert!(receiver.sites().unwrap().peers.is_empty());
}

#[test]
fn a_queue_that_others_can_read_is_a_problem_and_no_end() {
    let site = Site::new();
    let (transfers, folder) = (site.transfers(), site.place.path().join("queue"));
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    let _running = transfers.start(None, &QueueOptions::default()).unwrap();
    until("it is told", || !transfers.state().problems.is_empty());
    assert!(transfers.state().problems[0].contains("other users can access it"));
}

#[test]
fn an_address_in_use_is_refused_with_advice() {
    let sites = [Site::new(), Site::new()];
    let [one, other] = sites.each_ref().map(Site::transfers);
    let idle = QueueOptions { run: false, ..QueueOptions::default() };
    let running = one.start(Some(&here()), &idle).unwrap();
    let listen = running.listening.as_ref().unwrap().address;
    let error = other.start(Some(&ReceiveOptions { listen, ..here() }), &idle).unwrap_err();
    assert!(error.hint().unwrap().contains("fullbore receive"), "{error}");
}
