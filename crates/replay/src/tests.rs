use std::net::UdpSocket;
use std::path::Path;
use std::time::{Duration, Instant};

use fullbore_core::gap::Cause;
use fullbore_formats::FILL;
use fullbore_formats::vdif::{self, Header, Second};
use fullbore_linux::read_at::ReadAt;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_store::reader::Scan;
use fullbore_store::testing::{Store, StreamPlan};

use super::*;
use crate::pacer::Due;

mod turns;

/// All datagrams that a socket receives until it falls silent.
fn all_received(socket: &UdpSocket) -> Vec<Vec<u8>> {
    let mut datagrams = Vec::new();
    let mut datagram = [0; 4096];
    while let Ok(length) = socket.recv(&mut datagram) {
        datagrams.push(datagram[..length].to_vec());
    }
    datagrams
}

/// A receiver on loopback and the target address.
fn receiver() -> (UdpSocket, UdpTarget) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(1500))).unwrap();
    let port = socket.local_addr().unwrap().port();
    (socket, UdpTarget { host: "127.0.0.1".into(), port, ttl: None, interface: None })
}

/// VDIF frames of two seconds at 50 per second, some of them invalid.
fn file(threads: u16, invalid: &[usize]) -> (tempfile::NamedTempFile, Vec<Vec<u8>>) {
    let frames: Vec<Vec<u8>> = (0..100 * usize::from(threads))
        .map(|n| {
            let index = n / usize::from(threads);
            let mut header = Header::default()
                .with_frame_bytes(64)
                .with_thread(n as u16 % threads)
                .with_reference_epoch(53)
                .with_invalid(invalid.contains(&n));
            header.set_time(Second::of(53, 1000 + index as u32 / 50), index as u32 % 50);
            let payload =
                if header.invalid() { FILL.to_le_bytes().repeat(8) } else { vec![n as u8; 32] };
            [header.as_bytes(), &payload].concat()
        })
        .collect();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), frames.concat()).unwrap();
    (file, frames)
}

fn playback(path: &Path, target: UdpTarget) -> PlaybackStream<'static> {
    let source = FrameFile::open(path, None, None).unwrap();
    assert_eq!(source.frames_per_second(), Some(50));
    PlaybackStream { name: "file".into(), source: Box::new(source), target }
}

fn play(playbacks: Vec<PlaybackStream<'_>>, settings: Settings) -> Report {
    let replay = Replay::prepare(playbacks, settings).unwrap();
    replay.run(&StopHandle::default(), &Progress::default()).unwrap()
}

fn clock() -> crate::pace::Monotonic {
    crate::pace::Monotonic::start(Waiting::Exact)
}

fn fast() -> Settings {
    Settings { speed: Speed::FlatOut, ..Settings::default() }
}

#[test]
fn a_file_is_played_in_order_without_its_fill() {
    let (file, mut frames) = file(2, &[7, 8, 150]);
    let (socket, target) = receiver();
    let report = play(vec![playback(file.path(), target.clone())], fast());
    assert_eq!((report.frames, report.streams[0].fills_left_out), (197, 3));
    let fills = Settings { fills: true, packet_numbers: true, ..fast() };
    let first = all_received(&socket);
    play(vec![playback(file.path(), target)], fills);
    let second = all_received(&socket);
    assert_eq!(second.len(), 200);
    for (n, (datagram, frame)) in second.iter().zip(&frames).enumerate() {
        assert_eq!(datagram[..8], (n as u64).to_le_bytes());
        assert_eq!(datagram[8..], *frame);
    }
    for n in [150, 8, 7] {
        frames.remove(n);
    }
    assert_eq!(first, frames);
}

#[test]
fn recorded_times_are_kept_at_any_speed_and_between_streams() {
    let (file, _) = file(1, &[]);
    for waiting in [Waiting::Exact, Waiting::Gentle] {
        let (socket, target) = receiver();
        let playbacks = (0..2).map(|_| playback(file.path(), target.clone())).collect();
        let speed = Speed::Recorded { factor: 10.0 };
        let report = play(playbacks, Settings { speed, waiting, ..Settings::default() });
        assert!(
            (0.197..1.0).contains(&report.sent.seconds),
            "{waiting:?}: {}",
            report.sent.seconds
        );
        assert_eq!(report.sent.lateness.packets, 200);
        // Both streams go to one socket, so their frames arrive in pairs of equal time.
        let numbers: Vec<u32> = all_received(&socket)
            .iter()
            .map(|datagram| vdif::check(datagram, 64).unwrap().frame_number())
            .collect();
        assert_eq!(numbers.len(), 200);
        assert!(numbers.chunks(2).all(|pair| pair[0] == pair[1]), "{numbers:?}");
    }
}

#[test]
fn streams_take_turns_within_a_frame_unless_they_are_to_go_at_once() {
    let (file, _) = file(1, &[]);
    for (spread, ends_after) in [(true, 0.198 + 0.001), (false, 0.198)] {
        let playbacks = (0..2).map(|_| playback(file.path(), receiver().1)).collect();
        let speed = Speed::Recorded { factor: 10.0 };
        let mut replay =
            Replay::prepare(playbacks, Settings { speed, ..Settings::default() }).unwrap();
        replay.start(&StopHandle::default()).unwrap();
        if spread {
            replay.spread();
        }
        let turns: Vec<i64> = replay.playing.iter().map(|playing| playing.turn_ns).collect();
        // Fifty frames a second, at ten times the speed.
        assert_eq!(turns, [0, if spread { 10_000_000 } else { 0 }]);
        let due = Due {
            first: Second::of(53, 1000).start(),
            ..Pacer::start(&replay.playing, &replay.settings, false, clock()).due
        };
        let last = Second::of(53, 1001).start().plus_ns(980_000_000);
        let ns = due.ns(Some(last), turns[1], 0);
        assert_eq!(ns as f64 / 1e9, ends_after);
    }
}

#[test]
fn a_rate_can_be_given_and_the_loop_goes_on_at_it() {
    let (file, _) = file(1, &[]);
    let (socket, target) = receiver();
    let speed = Speed::Rate(ByteRate(64 * 1000));
    let settings = Settings { speed, times: Some(2), ..Settings::default() };
    let report = play(vec![playback(file.path(), target)], settings);
    assert_eq!((report.frames, report.times), (200, 2));
    assert!((0.198..1.0).contains(&report.sent.seconds), "{}", report.sent.seconds);
    assert_eq!(all_received(&socket).len(), 200);
}

#[test]
fn a_loop_at_recorded_speed_takes_its_time_each_turn() {
    let (file, _) = file(1, &[]);
    let (_socket, target) = receiver();
    let speed = Speed::Recorded { factor: 20.0 };
    let settings = Settings { speed, times: Some(3), ..Settings::default() };
    let report = play(vec![playback(file.path(), target)], settings);
    assert!((0.29..1.0).contains(&report.sent.seconds), "{}", report.sent.seconds);
}

/// A source that records the offsets that were read, in order.
#[derive(Debug)]
struct Watched(Vec<u8>, std::sync::Mutex<Vec<u64>>);

impl ReadAt for Watched {
    fn read_exact_at(&self, into: &mut [u8], offset: u64) -> std::io::Result<()> {
        let start = offset as usize;
        into.copy_from_slice(&self.0[start..start + into.len()]);
        self.1.lock().unwrap().push(offset);
        Ok(())
    }
}

#[test]
fn the_start_of_a_file_is_read_again_before_its_last_frames_are_played() {
    let (file, frames) = file(1, &[]);
    // Several runs of 1 MB.
    let turn: Vec<u8> = std::fs::read(file.path()).unwrap().repeat(500);
    let bytes = turn.len() as u64;
    let watched = std::sync::Arc::new(Watched(turn, std::sync::Mutex::default()));
    let mut source =
        FrameFile::of_bytes(file.path(), watched.clone(), bytes, Some(50), Tai(0)).unwrap();
    let starts = || watched.1.lock().unwrap().iter().filter(|offset| **offset == 0).count();
    let before = starts();
    for turn in 1..4 {
        let mut played = 0;
        while source.advance().unwrap() {
            if played == 0 {
                source.again().unwrap();
            }
            assert_eq!(source.frame(0).bytes, frames[played % frames.len()], "{played}");
            played += source.count();
            // The last run is in memory, and the next one was not requested.
            if played as u64 * 64 == bytes {
                let patience = Instant::now() + Duration::from_secs(60);
                while starts() < before + turn + 1 {
                    assert!(Instant::now() < patience, "turn {turn}: nothing was read ahead");
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
        assert_eq!(played as u64 * 64, bytes, "turn {turn}");
        source.rewind().unwrap();
    }
}

/// Records the order of the calls.
struct Noting {
    frame: Vec<u8>,
    left: usize,
    loaded: bool,
    notes: std::rc::Rc<std::cell::RefCell<Vec<&'static str>>>,
}

impl FrameSource for Noting {
    fn advance(&mut self) -> Result<bool, SourceError> {
        let more = self.left > 0;
        self.notes.borrow_mut().push(if more { "run" } else { "end" });
        self.left = self.left.saturating_sub(1);
        self.loaded = more;
        Ok(more)
    }
    fn count(&self) -> usize {
        usize::from(self.loaded)
    }
    fn frame(&self, _: usize) -> Frame<'_> {
        Frame { bytes: &self.frame, time: Some(Tai(0)), fill: false, dated: None }
    }
    fn rewind(&mut self) -> Result<(), SourceError> {
        self.notes.borrow_mut().push("rewind");
        (self.left, self.loaded) = (2, false);
        Ok(())
    }
    fn again(&mut self) -> Result<(), SourceError> {
        self.notes.borrow_mut().push("again");
        Ok(())
    }
}

#[test]
fn a_source_knows_of_the_next_turn_when_this_one_begins_and_of_none_after_the_last() {
    let notes = std::rc::Rc::default();
    let source =
        Noting { frame: vec![0; 64], left: 2, loaded: false, notes: std::rc::Rc::clone(&notes) };
    let playback =
        PlaybackStream { name: "noting".into(), source: Box::new(source), target: receiver().1 };
    let report = play(vec![playback], Settings { times: Some(3), ..fast() });
    assert_eq!(report.times, 3);
    let told: Vec<_> = notes.borrow().iter().copied().filter(|note| *note != "end").collect();
    let turn = ["run", "again", "run", "rewind"];
    assert_eq!(told, [&["again"], &turn[..], &turn, &["run", "run"]].concat());
}

#[test]
fn only_what_lies_between_two_times_is_played() {
    let (file, frames) = file(1, &[]);
    let (socket, target) = receiver();
    let begin = Second::of(53, 1000).start();
    let settings = Settings {
        from: Some(begin.plus_ns(500_000_000)),
        to: Some(begin.plus_ns(1_000_000_000)),
        ..fast()
    };
    let report = play(vec![playback(file.path(), target.clone())], settings);
    assert_eq!((report.frames, report.streams[0].passed_over), (25, 75));
    assert_eq!(all_received(&socket), frames[25..50]);
    let nothing = Settings { from: Some(begin.plus_ns(1_000_000_000_000)), ..fast() };
    let replay = Replay::prepare(vec![playback(file.path(), target)], nothing).unwrap();
    let error = replay.run(&StopHandle::default(), &Progress::default()).unwrap_err();
    assert!(matches!(error, Error::NoFrames), "{error}");
}

#[test]
fn what_cannot_be_played_is_told_with_the_way_out() {
    let short = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(short.path(), [0; 100]).unwrap();
    assert!(matches!(FrameFile::open(short.path(), None, None), Err(FileError::Form { .. })));
    assert!(
        FrameFile::open(Path::new("/nowhere"), None, None)
            .unwrap_err()
            .to_string()
            .contains("/nowhere")
    );
    // Less than a second of frames: the frame rate is unknown.
    let (file, frames) = file(1, &[]);
    std::fs::write(file.path(), frames[..20].concat()).unwrap();
    let (_socket, target) = receiver();
    let source = FrameFile::open(file.path(), None, None).unwrap();
    assert_eq!(source.frames_per_second(), None);
    let playback = PlaybackStream { name: "short".into(), source: Box::new(source), target };
    let replay = Replay::prepare(vec![playback], Settings::default()).unwrap();
    let error = replay.run(&StopHandle::default(), &Progress::default()).unwrap_err();
    assert!(error.to_string().contains("short") && error.hint().unwrap().contains("--rate"));
    assert!(matches!(Replay::prepare(vec![], fast()), Err(Error::NoTracks)));
}

#[test]
fn a_stored_scan_is_played_without_its_fill() {
    let store = Store::new(2);
    let plans = [
        StreamPlan::vdif("a").gap(40, 5, Cause::Missing).gap(700, 1, Cause::Damaged),
        StreamPlan::varying("b").frames(300),
    ];
    let laid = store.lay_down("r1_no0001", &plans);
    let scan = Scan::open(&store.roots(), &laid.name).unwrap();
    let (sockets, targets): (Vec<_>, Vec<_>) = (0..2).map(|_| receiver()).unzip();
    let small = fullbore_store::read::Settings { ahead_bytes: 1 << 20, ..Default::default() };
    let playbacks = scan
        .streams
        .iter()
        .zip(targets)
        .map(|(stream, target)| PlaybackStream {
            name: stream.name.clone(),
            source: Box::new(StoredFrames::open(&scan, stream, None, None, small).unwrap()),
            target,
        })
        .collect();
    // Slow enough for receivers that are not read meanwhile: their buffers hold all frames.
    let report = std::thread::scope(|scope| {
        let readers: Vec<_> =
            sockets.iter().map(|socket| scope.spawn(|| all_received(socket))).collect();
        let settings = Settings { speed: Speed::Rate(ByteRate(5_000_000)), ..Settings::default() };
        let report = play(playbacks, settings);
        let received: Vec<_> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        assert_eq!(received[0].len(), 994);
        let fixed = &laid.bytes[0];
        let kept = fixed.chunks(512).enumerate();
        let kept = kept.filter(|(n, _)| !(40..45).contains(n) && *n != 700).map(|(_, f)| f);
        assert!(kept.eq(received[0].iter().map(Vec::as_slice)));
        assert_eq!(received[1].len(), 300);
        assert!(received[1].concat() == laid.bytes[1]);
        report
    });
    assert_eq!(report.streams[0].fills_left_out, 6);
    assert!(report.streams.iter().all(|stream| stream.losses.is_empty()));
}

#[test]
fn a_block_that_cannot_be_read_is_told_and_the_rest_is_played() {
    let store = Store::new(1);
    for plan in [StreamPlan::raw("a").frames(320), StreamPlan::varying("a").frames(320)] {
        let name = format!("r1_{}", uuid::Uuid::now_v7().simple());
        let laid = store.lay_down(&name, &[plan]);
        let path = laid.chunk_path(0, 1);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[10] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let scan = Scan::open(&store.roots(), &laid.name).unwrap();
        let (socket, target) = receiver();
        let small = fullbore_store::read::Settings { ahead_bytes: 1 << 20, ..Default::default() };
        let source = StoredFrames::open(&scan, &scan.streams[0], None, None, small).unwrap();
        let playback = PlaybackStream { name: "a".into(), source: Box::new(source), target };
        let settings = Settings { speed: Speed::Rate(ByteRate(5_000_000)), ..Settings::default() };
        let (report, received) = std::thread::scope(|scope| {
            let reader = scope.spawn(|| all_received(&socket));
            (play(vec![playback], settings), reader.join().unwrap())
        });
        let stream = &report.streams[0];
        assert_eq!(stream.losses.len(), 1, "{:?}", stream.losses);
        assert_eq!(received.len() as u64, stream.frames);
        assert!((250..320).contains(&received.len()), "{}", received.len());
        // Everything received is a piece of the recording.
        let mut rest = laid.bytes[0].as_slice();
        for frame in &received {
            let at = rest.windows(frame.len()).position(|piece| piece == frame).unwrap();
            rest = &rest[at + frame.len()..];
        }
    }
}

/// Second and frame number of every datagram; the header begins at `head` bytes.
fn times(datagrams: &[Vec<u8>], head: usize) -> Vec<(i64, u32)> {
    let header = |datagram: &Vec<u8>| Header::read(&datagram[head..]).unwrap();
    let all = datagrams.iter().map(header);
    all.map(|it| (it.second().0, it.frame_number())).collect()
}

#[test]
fn from_turn_to_turn_of_a_loop_the_times_go_on_unless_they_are_to_stay() {
    let (file, frames) = file(1, &[3]);
    let recorded = times(&frames, 0);
    let speed = Speed::Rate(ByteRate(64 * 2000));
    for (as_recorded, packet_numbers) in [(false, false), (false, true), (true, false)] {
        let (socket, target) = receiver();
        let settings = Settings {
            speed,
            times: Some(2),
            fills: true,
            as_recorded,
            packet_numbers,
            ..Settings::default()
        };
        play(vec![playback(file.path(), target)], settings);
        let head = if packet_numbers { 8 } else { 0 };
        let received = all_received(&socket);
        let expected: Vec<(i64, u32)> = (0..2)
            .flat_map(|turn| {
                let moved = if as_recorded { 0 } else { 2 * turn };
                recorded.iter().map(move |(second, number)| (second + moved, *number))
            })
            .collect();
        assert_eq!(times(&received, head), expected);
        // Only the time differs.
        for (datagram, frame) in received.iter().zip(frames.iter().cycle()) {
            assert_eq!(datagram[head + 8..], frame[8..]);
        }
    }
}

#[test]
fn a_loop_at_recorded_speed_leaves_a_frame_of_time_between_its_turns() {
    let (file, _) = file(1, &[]);
    let (_socket, target) = receiver();
    let speed = Speed::Recorded { factor: 20.0 };
    let settings = Settings { speed, times: Some(2), ..Settings::default() };
    let mut replay = Replay::prepare(vec![playback(file.path(), target)], settings).unwrap();
    let origin = replay.start(&StopHandle::default()).unwrap().unwrap();
    let mut pacer = Pacer::start(&replay.playing, &settings, true, clock());
    pacer.begin(origin);
    pacer.turn(&mut replay.playing, &settings);
    let stop = StopHandle::default();
    assert!(pacer.play(&mut replay.playing, &settings, &stop, &Progress::default()).unwrap());
    assert_eq!(pacer.end_ns, 99_000_000, "when the last frame was due");
    replay.playing[0].enter(0, (None, None)).unwrap();
    let first = replay.start(&StopHandle::default()).unwrap();
    pacer.turn(&mut replay.playing, &settings);
    assert_eq!(pacer.due.ns(first, 0, 0), 100_000_000);
}

#[test]
fn absurd_factors_and_rates_are_refused() {
    let (file, _) = file(1, &[]);
    let prepare = |speed| {
        let (_socket, target) = receiver();
        let settings = Settings { speed, ..Settings::default() };
        Replay::prepare(vec![playback(file.path(), target)], settings).map(drop)
    };
    for factor in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-9, 1e9] {
        let error = prepare(Speed::Recorded { factor }).unwrap_err();
        assert!(matches!(error, Error::Factor { .. }) && error.hint().is_some(), "{factor}");
    }
    for rate in [0, 1, u64::MAX] {
        let error = prepare(Speed::Rate(ByteRate(rate))).unwrap_err();
        assert!(matches!(error, Error::Rate { .. }), "{rate}");
    }
    assert!(prepare(Speed::Recorded { factor: 0.5 }).is_ok());
}

#[test]
fn a_stored_scan_of_unknown_rate_takes_the_time_in_which_it_came_or_asks_for_a_rate() {
    let store = Store::new(1);
    let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a").frames(40)]);
    let mut scan = Scan::open(&store.roots(), &laid.name).unwrap();
    let stream = &mut scan.streams[0];
    let fullbore_core::manifest::Format::Frames { frames_per_second, .. } = &mut stream.format
    else {
        unreachable!("the plan is VDIF")
    };
    *frames_per_second = None;
    for (n, placed) in stream.blocks.iter_mut().enumerate() {
        placed.block.time = None;
        placed.block.seen = placed.block.seen.plus_ns(n as i64 * 320_000_000);
    }
    let account = stream.account.as_mut().unwrap();
    let (Some(first), Some(last)) = (&mut account.first, &mut account.last) else {
        unreachable!("it has frames")
    };
    last.seen = first.seen.plus_ns(390_000_000);
    let open = |scan: &Scan| {
        let small = fullbore_store::read::Settings { ahead_bytes: 1 << 20, ..Default::default() };
        let mut source = StoredFrames::open(scan, &scan.streams[0], None, None, small).unwrap();
        let mut times = Vec::new();
        while source.advance().unwrap() {
            times.extend((0..source.count()).map(|n| source.frame(n).time));
        }
        times
    };
    let times = open(&scan);
    let ns = |n: usize| times[n].unwrap().since(times[0].unwrap());
    assert_eq!((ns(1), ns(39)), (10_000_000, 390_000_000));
    let mut scan = Scan::open(&store.roots(), &laid.name).unwrap();
    let stream = &mut scan.streams[0];
    stream.account = None;
    stream.blocks.iter_mut().for_each(|placed| placed.block.time = None);
    assert!(open(&scan).iter().all(Option::is_none), "nobody can tell");
}

#[test]
fn a_replay_that_is_stopped_says_so() {
    let (file, _) = file(1, &[]);
    let replay = Replay::prepare(vec![playback(file.path(), receiver().1)], Settings::default());
    let stop = StopHandle::default();
    stop.stop();
    let report = replay.unwrap().run(&stop, &Progress::default()).unwrap();
    assert!(report.stopped && report.times == 0 && report.in_time(), "{report:?}");
    assert!(!play(vec![playback(file.path(), receiver().1)], fast()).stopped);
}

#[test]
fn a_stored_stream_without_numbers_is_due_as_it_came() {
    let store = Store::new(1);
    let laid = store.lay_down("r1_raw", &[StreamPlan::raw("a").frames(320)]);
    let mut scan = Scan::open(&store.roots(), &laid.name).unwrap();
    let stream = &mut scan.streams[0];
    for (n, placed) in stream.blocks.iter_mut().enumerate() {
        placed.block.seen = placed.block.seen.plus_ns(n as i64 * 32_000_000);
    }
    let edge = stream.account.as_mut().unwrap().last.as_mut().unwrap();
    edge.seen = edge.seen.plus_ns(319_000_000);
    let small = fullbore_store::read::Settings { ahead_bytes: 1 << 20, ..Default::default() };
    let source = Box::new(StoredFrames::open(&scan, &scan.streams[0], None, None, small).unwrap());
    let (_socket, target) = receiver();
    let playback = PlaybackStream { name: "a".into(), source, target };
    let speed = Speed::Recorded { factor: 20.0 };
    let report = play(vec![playback], Settings { speed, ..Settings::default() });
    assert_eq!(report.frames, 320);
    assert!((report.due_seconds.unwrap() * 20.0 - 0.319).abs() < 1e-4, "{report:?}");
}

#[test]
fn a_replay_that_drags_behind_its_times_is_told_from_one_that_keeps_them() {
    let (file, _) = file(1, &[]);
    let settings = |factor| Settings { speed: Speed::Recorded { factor }, ..Settings::default() };
    let report = play(vec![playback(file.path(), receiver().1)], settings(100.0));
    assert!((report.due_seconds.unwrap() - 0.0198).abs() < 1e-6, "{report:?}");
    let with = |seconds: f64, late: u64| {
        let mut report = report.clone();
        (report.sent.seconds, report.sent.lateness.late) = (seconds, late);
        report.in_time()
    };
    assert!(with(0.02, 0) && with(0.02, 1));
    let stopped = Report { stopped: true, ..report.clone() };
    let mut late = stopped;
    (late.sent.seconds, late.sent.lateness.late) = (9.0, 0);
    assert!(late.in_time(), "it ended when it was told to");
    assert!(!with(0.02, 2), "2 of 100 frames went late");
    assert!(!with(0.04, 0), "all of it took twice as long");
    let report = play(vec![playback(file.path(), receiver().1)], fast());
    assert!(report.due_seconds.is_none() && report.in_time());
}
