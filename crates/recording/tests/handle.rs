//! Recordings owned by a program: one after the other, at the same time, watched, tapped, refused.

use std::net::UdpSocket;
use std::path::Path;
use std::time::{Duration, Instant};

use fullbore_core::account::Verdict;
use fullbore_core::device::BytesStream;
use fullbore_core::endpoint::UdpSource;
use fullbore_core::pattern::Pattern;
use fullbore_formats::vdif::Header;
use fullbore_recording::{
    Event, Events, Outcome, RecordError, Recording, RecordingConfig, RecordingState,
    RetentionThread, Sealed, SinkConfig, StoreConfig,
};

const FRAME: usize = 1056;

/// Frames of sixteen blocks of 64 KiB.
const PART: u32 = 16 * 62;

/// A stream on a free port, and the recording of it.
struct Stream {
    port: u16,
    sender: UdpSocket,
}

impl Stream {
    fn new() -> Self {
        let free = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        Self { port, sender: UdpSocket::bind("127.0.0.1:0").unwrap() }
    }

    fn config(&self, sink: SinkConfig, scan: &str) -> RecordingConfig {
        let port = self.port;
        let source =
            format!("udp://127.0.0.1:{port}?format=vdif&frame={FRAME}&fps=1000&block=64KiB");
        let sources = UdpSource::parse(&source).unwrap();
        let mut config = RecordingConfig::new(sources, sink, vec![scan.parse().unwrap()]);
        config.buffer = Some("16MiB".parse().unwrap());
        config
    }

    fn store(&self, place: &Path, scan: &str) -> RecordingConfig {
        self.config(SinkConfig::Store(StoreConfig::new(vec![place.to_owned()])), scan)
    }

    fn send(&self, numbers: std::ops::Range<u32>) {
        for number in numbers {
            let mut frame = vec![0; FRAME];
            let header = Header::default().with_reference_epoch(53);
            let header = header.with_frame_bytes(FRAME as u32).with_seconds(number / 1000);
            header.with_frame_number(number % 1000).write(&mut frame).unwrap();
            self.sender.send_to(&frame, ("127.0.0.1", self.port)).unwrap();
            if number % 50 == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

fn check(sealed: &[Sealed], frames: u64) {
    let [sealed] = sealed else { panic!("one scan is sealed: {}", sealed.len()) };
    let account = &sealed.accounts[0];
    assert_eq!((account.terms.written, account.terms.sum()), (frames, frames));
    assert_eq!(account.verdict, Verdict::Proven);
}

/// Waits until a recording has taken this number of frames.
fn recorded(recording: &Recording, frames: u64) {
    let begun = Instant::now();
    while recording.status().progress.is_none_or(|it| it.bytes < frames * FRAME as u64) {
        assert!(begun.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn recordings_follow_one_another_in_one_process() {
    let (place, stream) = (tempfile::tempdir().unwrap(), Stream::new());
    for scan in ["s_a", "s_b", "s_c"] {
        let recording = Recording::start(stream.store(place.path(), scan)).unwrap();
        stream.send(0..500);
        recording.stop();
        check(&recording.join().unwrap(), 500);
    }
}

#[test]
fn recordings_run_at_the_same_time_and_do_not_know_of_one_another() {
    let places = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let streams = [Stream::new(), Stream::new()];
    let start = |n: usize| Recording::start(streams[n].store(places[n].path(), "s_same")).unwrap();
    let [first, second] = [start(0), start(1)];
    streams[0].send(0..300);
    streams[1].send(0..700);
    first.stop();
    check(&first.join().unwrap(), 300);
    assert!(!second.has_ended());
    streams[1].send(700..900);
    second.stop();
    check(&second.join().unwrap(), 900);
}

#[test]
fn a_tap_that_hangs_loses_and_slows_nothing() {
    let (place, stream) = (tempfile::tempdir().unwrap(), Stream::new());
    let recording = Recording::start(stream.store(place.path(), "s_tap")).unwrap();
    let (mut reads, hangs) = (recording.tap(), recording.tap());
    let (hang, hung) = std::sync::mpsc::channel::<()>();
    let hanging = std::thread::spawn(move || {
        let mut tap = hangs;
        let block = tap.next(Duration::from_secs(30));
        let _ = hung.recv();
        block.is_some()
    });
    // Twice the block memory, in parts of whole blocks that fit into the socket: a busy machine may not run the recorder
    // for a while.
    for part in 0..33 {
        stream.send(part * PART..(part + 1) * PART);
        recorded(&recording, u64::from((part + 1) * PART));
    }
    let block = reads.next(Duration::from_secs(10)).expect("a block was written");
    assert!(block.bytes.len().is_multiple_of(FRAME) && block.skipped > 0);
    recording.stop();
    check(&recording.join().unwrap(), u64::from(33 * PART));
    drop(hang);
    assert!(hanging.join().unwrap(), "it got a block, and hung");
}

#[test]
fn a_subscriber_gets_the_events_and_the_end() {
    let (place, stream) = (tempfile::tempdir().unwrap(), Stream::new());
    let recording = Recording::start(stream.store(place.path(), "s_events")).unwrap();
    assert_eq!(recording.status().state, RecordingState::Running);
    assert!(recording.status().armed.is_some());
    let events = recording.subscribe();
    stream.send(0..600);
    recorded(&recording, 600);
    recording.stop();
    let mut names = Vec::new();
    while let Some((news, _)) = events.take() {
        names.extend(news.iter().map(|event| match event {
            Event::Opened { .. } => "opened",
            Event::Progress(_) => "progress",
            Event::Sealed(_) => "sealed",
            _ => "other",
        }));
    }
    names.retain(|name| *name != "other");
    names.dedup();
    assert_eq!(names, ["opened", "progress", "sealed"]);
    let status = recording.status();
    assert_eq!(status.state, RecordingState::Ended);
    assert_eq!((status.outcome.outcome, status.outcome.sealed), (Outcome::Good, 1));
    assert_eq!(status.outcome.verdict, Some(Verdict::Proven));
    check(&recording.join().unwrap(), 600);
}

#[test]
fn a_recording_with_retention_removes_older_scans() {
    let (place, stream) = (tempfile::tempdir().unwrap(), Stream::new());
    for (scan, frames) in [("s_old", 0..500), ("s_new", 500..1000)] {
        let members = vec![place.path().to_owned()];
        let retention = RetentionThread::start(members, "1kB".parse().unwrap()).unwrap();
        let config = stream.store(place.path(), scan);
        let events = Events::new();
        let recording =
            Recording::start_with(config, Some(retention), vec![events.clone()]).unwrap();
        stream.send(frames);
        recording.stop();
        check(&recording.join().unwrap(), 500);
        let told: Vec<Event> =
            std::iter::from_fn(|| events.take()).flat_map(|(events, _)| events).collect();
        let removed = told.iter().filter(
            |event| matches!(event, Event::Note { text } if text.contains("s_old removed")),
        );
        assert_eq!(removed.count(), usize::from(scan == "s_new"), "{told:?}");
    }
    assert!(!place.path().join("s_old").exists() && place.path().join("s_new").exists());
}

#[test]
fn a_recording_that_cannot_be_made_says_why_and_leaves_nothing() {
    let (place, stream) = (tempfile::tempdir().unwrap(), Stream::new());
    let first = Recording::start(stream.store(place.path(), "s_first")).unwrap();
    let error = Recording::start(stream.store(place.path(), "s_second")).unwrap_err();
    assert!(error.to_string().contains("binding the port"), "{error}");
    drop(first);
    let taken = Recording::start(stream.store(place.path(), "s_first")).unwrap_err();
    assert!(matches!(taken, RecordError::ScanExists { .. }), "{taken}");
}

#[test]
fn a_tap_sees_the_bytes_of_a_pattern_with_its_stream() {
    let place = tempfile::tempdir().unwrap();
    let pattern = BytesStream::parse("pattern:counter?rate=50MB/s").unwrap();
    let sink = SinkConfig::Store(StoreConfig::new(vec![place.path().to_owned()]));
    let config = RecordingConfig::new([pattern], sink, vec!["s_pattern".parse().unwrap()]);
    let recording = Recording::start(config).unwrap();
    let mut tap = recording.tap();
    let block = tap.next(Duration::from_secs(10)).expect("a block was written");
    let mut own = vec![0; block.bytes.len()];
    let before = (block.number - 1) * u64::from(block.stream_ref.geometry.block_bytes);
    Pattern::Counter.fill(&mut own, before);
    assert_eq!(block.bytes, own);
    assert_eq!(block.stream.unwrap().name.as_str(), "pattern");
    recording.stop();
    assert!(recording.join().unwrap()[0].accounts[0].bytes > 0);
}

#[test]
fn a_source_can_be_looked_at_without_a_recording() {
    let stream = Stream::new();
    let recording = Recording::start(stream.config(SinkConfig::Discard, "s_look")).unwrap();
    let mut tap = recording.tap();
    stream.send(0..600);
    let block = tap.next(Duration::from_secs(10)).expect("a block came");
    assert_eq!(Header::read(&block.bytes).unwrap().frame_bytes() as usize, FRAME);
    recording.stop();
    check(&recording.join().unwrap(), 600);
}
