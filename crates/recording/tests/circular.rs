//! A circular recording in this process, with triggers at random moments that overlap.

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use fullbore_care::verify::verify;
use fullbore_formats::vdif::Header;
use fullbore_linux::clock::Clock;
use fullbore_recording::circular::{RingName, Settled, Trigger, TriggerRequest, exists, settle};
use fullbore_recording::{Recording, RecordingOptions};
use fullbore_store::catalogue;
use fullbore_store::read::Settings;
use fullbore_store::reader::{Item, Scan};

const FRAME: usize = 1056;

/// Frames per second, and the seconds that are sent.
const RATE: u32 = 1000;
const SECONDS: u32 = 5;

fn options(place: PathBuf, port: u16) -> RecordingOptions {
    RecordingOptions {
        source: vec![format!(
            "udp://127.0.0.1:{port}?format=vdif&frame={FRAME}&fps={RATE}&block=64KiB"
        )],
        store: vec![place],
        session: Some("s".into()),
        scan: Some("sky".into()),
        circular: Some("2s".parse().unwrap()),
        buffer: Some("16MiB".parse().unwrap()),
        ..RecordingOptions::default()
    }
}

fn frame(number: u32) -> Vec<u8> {
    let mut frame = vec![0; FRAME];
    let header = Header::default().with_reference_epoch(53);
    let header = header.with_frame_bytes(FRAME as u32).with_seconds(number / RATE);
    header.with_frame_number(number % RATE).write(&mut frame).unwrap();
    frame
}

/// The numbers of all frames of a kept scan, which verifies.
fn kept(roots: &[PathBuf], trigger: &Trigger) -> Vec<u32> {
    let scan = Scan::open(roots, &trigger.keep_as).unwrap();
    let verified = verify(&scan, Settings::default(), &|_, _| {}).unwrap();
    let findings: Vec<String> = verified.findings.iter().map(|it| it.to_string()).collect();
    assert_eq!(findings, Vec::<String>::new(), "{}", trigger.keep_as);
    let [stream] = scan.streams.as_slice() else { panic!("one stream") };
    let account = stream.account.as_ref().unwrap();
    assert_eq!(account.terms.written, account.terms.expected);
    assert!(!scan.manifest.markers.is_empty() || trigger.at > account.last.unwrap().seen);
    let items = stream.read(0..stream.blocks.len(), Settings::default()).unwrap();
    let blocks = items.map(|item| match item {
        Item::Block(block) => block.bytes().to_vec(),
        Item::Lost(finding) => panic!("{finding}"),
    });
    let bytes: Vec<u8> = blocks.flatten().collect();
    assert_eq!(bytes.len() as u64, account.terms.written * FRAME as u64);
    let number = |frame: &[u8]| {
        let word = |at: usize| u32::from_le_bytes(frame[at..at + 4].try_into().unwrap());
        (word(0) & 0x3FFF_FFFF) * RATE + (word(4) & 0x00FF_FFFF)
    };
    bytes.chunks_exact(FRAME).map(number).collect()
}

fn pieces(roots: &[PathBuf]) -> Vec<String> {
    let entries = catalogue::list(roots).unwrap().entries;
    let is_piece =
        |name: &String| name.parse().is_ok_and(|scan| RingName::of_piece(&scan).is_some());
    entries.into_iter().map(|entry| entry.name).filter(is_piece).collect()
}

#[test]
fn triggers_at_random_moments_keep_all_frames_of_their_time() {
    let place = tempfile::tempdir().unwrap();
    let roots = vec![place.path().to_owned()];
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let options = options(roots[0].clone(), port);
    let retention = options.retention_thread(roots.clone()).unwrap();
    let config = options.resolve().unwrap();
    let recording = Recording::start_with(config, retention, Vec::new()).unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (clock, mut sent) = (Clock::new(), Vec::new());
    let (begun, mut triggers, mut all) = (Instant::now(), Vec::new(), BTreeSet::new());
    // Moments, and times before and after them, in milliseconds.
    let mut random = [(700, 300, 900), (1900, 1500, 200), (2100, 800, 1600), (2150, 10, 10)].iter();
    let mut due = random.next();
    for number in 0..SECONDS * RATE {
        sent.push(clock.now());
        sender.send_to(&frame(number), ("127.0.0.1", port)).unwrap();
        if let Some((_, before, after)) = due.filter(|it| it.0 == number) {
            let request = TriggerRequest {
                recording: "s_sky".into(),
                before: Some(Duration::from_millis(*before)),
                after: Some(Duration::from_millis(*after)),
                name: Some(format!("event{number}")),
                ..TriggerRequest::default()
            };
            triggers.push(request.set(&roots).unwrap());
            due = random.next();
        }
        if number % 100 == 0 {
            all.extend(pieces(&roots));
        }
        let next = begun + Duration::from_secs(1) / RATE * (number + 1);
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    assert!(exists(&roots, &triggers[0].keep_as).unwrap(), "it does not wait for the end");
    let ring = triggers[0].ring();
    assert!(matches!(settle(&roots, &ring).unwrap(), Settled::Recorder));
    recording.stop();
    recording.join().unwrap();
    let left = pieces(&roots);
    assert!(left.len() < all.len() && left.len() <= 4, "{left:?} of {all:?}");
    for trigger in triggers {
        let frames = kept(&roots, &trigger);
        let (first, last) = (frames[0], frames[frames.len() - 1]);
        assert!(frames.iter().copied().eq(first..=last), "frames {first} to {last} in a row");
        // A frame can be on its way to the recorder for a moment.
        let within = trigger.from..trigger.to.plus_ns(-100_000_000);
        let wanted = (0u32..).zip(&sent).filter(|(_, at)| within.contains(at));
        let missing: Vec<u32> =
            wanted.map(|it| it.0).filter(|it| !(first..=last).contains(it)).collect();
        assert!(missing.is_empty(), "{missing:?} of {first} to {last}");
    }
    assert!(matches!(settle(&roots, &ring).unwrap(), Settled::Here(told) if told.is_empty()));
}
