//! Turns of a loop and segments of a playlist follow each other without a gap.

use super::*;
use crate::underrun::{Cause, Kind};

/// A file of VDIF frames from one index to another, at 50 per second; its payloads tell the index.
fn part(first: u32, end: u32) -> tempfile::NamedTempFile {
    let frame = |index: u32| {
        let mut header = Header::default().with_frame_bytes(64).with_reference_epoch(53);
        header.set_time(Second::of(53, 1000 + index / 50), index % 50);
        [header.as_bytes(), index.to_le_bytes().repeat(8).as_slice()].concat()
    };
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), (first..end).flat_map(frame).collect::<Vec<u8>>()).unwrap();
    file
}

fn source(file: &tempfile::NamedTempFile) -> Box<dyn FrameSource> {
    Box::new(FrameFile::open(file.path(), Some(50), None).unwrap())
}

/// The index of each datagram by its header, and by its payload.
fn indexes(datagrams: &[Vec<u8>]) -> Vec<(i64, i64)> {
    let by_header = times(datagrams, 0);
    let by_header = by_header
        .iter()
        .map(|(second, number)| (second - Second::of(53, 1000).0) * 50 + i64::from(*number));
    let payload = |datagram: &Vec<u8>| u32::from_le_bytes(datagram[32..36].try_into().unwrap());
    by_header.zip(datagrams.iter().map(|datagram| i64::from(payload(datagram)))).collect()
}

/// A file, the number of its turns, and the indexes between which it is played.
type Part<'a> = (&'a tempfile::NamedTempFile, u64, Option<(u32, u32)>);

fn playlist(segments: Vec<Part<'_>>, settings: Settings) -> (Report, Vec<Vec<u8>>) {
    let (socket, target) = receiver();
    let at = |index: u32| Second::of(53, 1000).start().plus_ns(i64::from(index) * 20_000_000);
    let segments = segments.into_iter().map(|(file, times, range)| Segment {
        sources: vec![source(file)],
        from: range.map(|(from, _)| at(from)),
        to: range.map(|(_, to)| at(to)),
        times,
    });
    let outputs = vec![("a".to_owned(), target)];
    let replay = Replay::playlist(outputs, segments.collect(), settings).unwrap();
    let report = replay.run(&StopHandle::default(), &Progress::default()).unwrap();
    (report, all_received(&socket))
}

/// The due time of the last frame in frames after the first, at 50 times the speed.
fn due_frames(report: &Report) -> u64 {
    (report.due_seconds.unwrap() * 50.0 / 0.02).round() as u64
}

#[test]
fn a_loop_of_part_of_a_second_goes_on_at_the_next_frame() {
    let file = part(7, 80);
    let speed = Speed::Recorded { factor: 50.0 };
    let settings = Settings { speed, times: Some(3), ..Settings::default() };
    let (report, received) = playlist(vec![(&file, 1, None)], settings);
    let expected: Vec<(i64, i64)> = (0..219).map(|n| (7 + n, 7 + n % 73)).collect();
    assert_eq!(indexes(&received), expected);
    assert_eq!((report.times, report.frames), (3, 219));
    // The last frame is due where it would be in one recording of 219 frames.
    assert_eq!(due_frames(&report), 218);
}

#[test]
fn segments_are_played_as_often_as_they_say_and_their_times_go_on() {
    let (early, late) = (part(7, 40), part(90, 130));
    let speed = Speed::Recorded { factor: 50.0 };
    let segments = vec![(&late, 2, Some((100, 120))), (&early, 3, Some((0, 30)))];
    let settings = Settings { speed, times: Some(2), ..Settings::default() };
    let (report, received) = playlist(segments, settings);
    let pass = (100..120).chain(100..120).chain(7..30).chain(7..30).chain(7..30);
    let payloads: Vec<i64> = pass.clone().chain(pass).collect();
    let expected: Vec<(i64, i64)> = (100..).zip(payloads).collect();
    assert_eq!(indexes(&received), expected);
    assert_eq!((report.times, report.frames), (2, 218));
    assert_eq!(due_frames(&report), 217);
    assert_eq!(report.sent.underruns.counts.planned, 218);
}

#[test]
fn recorded_times_are_kept_on_request_without_a_gap_in_the_pace() {
    let file = part(7, 80);
    let speed = Speed::Recorded { factor: 50.0 };
    let settings = Settings { speed, times: Some(2), as_recorded: true, ..Settings::default() };
    let (report, received) = playlist(vec![(&file, 1, None)], settings);
    let expected: Vec<(i64, i64)> = (7..80).chain(7..80).map(|n| (n, n)).collect();
    assert_eq!(indexes(&received), expected);
    assert_eq!(due_frames(&report), 145);
}

#[test]
fn a_segment_with_another_number_of_streams_is_refused() {
    let file = part(0, 50);
    let segment = |streams: usize| Segment {
        sources: (0..streams).map(|_| source(&file)).collect(),
        from: None,
        to: None,
        times: 1,
    };
    let outputs = vec![("a".to_owned(), receiver().1)];
    let error = Replay::playlist(outputs, vec![segment(1), segment(2)], fast()).err().unwrap();
    assert!(matches!(error, Error::Segment { number: 2, streams: 2, targets: 1 }), "{error}");
}

#[test]
fn frames_that_cannot_be_read_are_in_the_account_as_not_sent() {
    let store = Store::new(1);
    let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a").frames(320)]);
    let path = laid.chunk_path(0, 1);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[10] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let scan = Scan::open(&store.roots(), &laid.name).unwrap();
    let small = fullbore_store::read::Settings { ahead_bytes: 1 << 20, ..Default::default() };
    let source = StoredFrames::open(&scan, &scan.streams[0], None, None, small).unwrap();
    let (_socket, target) = receiver();
    let playback = PlaybackStream { name: "a".into(), source: Box::new(source), target };
    let report = play(vec![playback], Settings { times: Some(2), ..fast() });
    let account = report.sent.underruns;
    assert_eq!((account.counts.planned, account.counts.on_time), (640, report.frames));
    assert!(
        account.counts.not_sent > 0 && account.counts.not_sent.is_multiple_of(2),
        "{account:?}"
    );
    for gap in &account.gaps {
        assert_eq!((gap.kind, gap.cause), (Kind::NotSent, Cause::Unreadable));
        assert_eq!(gap.packets, account.counts.not_sent / 2);
    }
}
