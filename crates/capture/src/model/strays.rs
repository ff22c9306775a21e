//! Unexpected datagrams at a port: marked invalid, of another length, of another format, or at a boundary between
//! scans. Each is recorded or counted, in the scan in which it arrived.

use super::*;

/// Frames per second of every thread in this module.
const FPS: u64 = 37;

/// Returns the header of a frame of the instrument.
fn header(thread: u16, bytes: usize, number: u64) -> Header {
    let mut header = Header::default()
        .with_reference_epoch(50)
        .with_frame_bytes(bytes as u32)
        .with_thread(thread)
        .with_station(0x4142);
    let second = Second::of(50, 1_000_000).0 + (number / FPS) as i64;
    header.set_time(Second(second), (number % FPS) as u32);
    header
}

fn whole(header: Header) -> Vec<u8> {
    let mut frame = vec![0x5A; header.frame_bytes() as usize];
    header.write(&mut frame).unwrap();
    frame
}

fn frames(thread: u16, bytes: usize, numbers: std::ops::Range<u64>) -> Vec<Vec<u8>> {
    numbers.map(|number| whole(header(thread, bytes, number))).collect()
}

fn numbered(numbers: std::ops::Range<u64>, bytes: usize) -> Vec<Vec<u8>> {
    let datagram = |number: u64| [&number.to_le_bytes()[..], &vec![7; bytes - 8]].concat();
    numbers.map(datagram).collect()
}

fn bench(query: &str) -> Bench {
    Bench::new(&format!("udp://127.0.0.1:1?{query}"), wire(Kind::Vdif, &[0]), 1)
}

/// Sends datagrams, and receives all of them.
fn put(bench: &mut Bench, datagrams: &[Vec<u8>]) {
    for group in datagrams.chunks(16) {
        let slices: Vec<_> = group.iter().map(|d| [IoSlice::new(&[]), IoSlice::new(d)]).collect();
        bench.sender.send(&slices).unwrap();
        bench.datagrams += group.len() as u64;
        while bench.receive() > 0 {}
        bench.answer(usize::MAX);
        bench.with(Port::look);
    }
}

/// Lets all timeouts expire.
fn wait(bench: &mut Bench) {
    bench.now = bench.now.plus_ns(1_000_000_000);
    bench.port.hurry();
    bench.with(Port::look);
}

/// Returns every account of a scan, including those of silent ports.
fn accounts_of(bench: &Bench, scan: usize) -> Vec<&Account> {
    let uuid = bench.openings[scan].uuid;
    let of_scan = bench.notices.iter().filter_map(|notice| match notice {
        CaptureEvent::Ended { scan, account, .. } | CaptureEvent::Silent { scan, account, .. }
            if *scan == uuid =>
        {
            Some(&**account)
        }
        _ => None,
    });
    of_scan.collect()
}

/// Returns the sum over all accounts of a scan.
fn sum(bench: &Bench, scan: usize, of: fn(&Account) -> u64) -> u64 {
    accounts_of(bench, scan).into_iter().map(of).sum()
}

fn opened(bench: &Bench) -> usize {
    let opened = |notice: &&CaptureEvent| matches!(notice, CaptureEvent::Opened { .. });
    bench.notices.iter().filter(opened).count()
}

fn warnings(bench: &Bench) -> String {
    let text = |notice: &CaptureEvent| match notice {
        CaptureEvent::Warning { text } => Some(text.clone()),
        _ => None,
    };
    bench.notices.iter().filter_map(text).collect::<Vec<_>>().join("\n")
}

#[test]
fn frames_marked_invalid_open_no_stream_of_a_split_port_and_are_counted() {
    for fill in ["", "&fill=omit"] {
        let mut bench = bench(&format!("fps=37&threads=split{fill}"));
        let invalid = |n: u64| whole(header(3, 512, n).with_invalid(true));
        put(&mut bench, &(0..200).map(invalid).collect::<Vec<_>>());
        assert_eq!(opened(&bench), 0);
        put(&mut bench, &frames(0, 512, 0..40));
        bench.finish();
        let written = sum(&bench, 0, |it| it.terms.written);
        assert_eq!((written, sum(&bench, 0, |it| it.unrecorded)), (40, 200), "{fill}");
        assert_eq!(sum(&bench, 0, |it| it.foreign), 0, "they are frames");
    }
}

#[test]
fn frames_marked_invalid_alone_are_not_told_as_foreign() {
    let mut bench = bench("fps=37&threads=split");
    let invalid: Vec<_> = (0..10).map(|n| whole(header(3, 512, n).with_invalid(true))).collect();
    put(&mut bench, &invalid);
    wait(&mut bench);
    bench.finish();
    assert_eq!(sum(&bench, 0, |it| it.unrecorded), 10);
    assert_eq!(sum(&bench, 0, |it| it.foreign), 0);
    let told = warnings(&bench);
    assert!(!told.contains("none is") && told.contains("marked invalid"), "{told}");
}

#[test]
fn frames_longer_than_those_that_came_first_have_room() {
    for (early, late) in [(544, 8032), (1032, 5032), (544, 9000), (1032, 9032)] {
        for query in ["", "&threads=split", "&fill=omit"] {
            let text = format!("udp://127.0.0.1:1?fps=37{query}");
            let source = UdpSource::parse(&text).unwrap().remove(0);
            let sizes = (64 << 20, 256_000_000);
            let mut bench = Bench::of(source, wire(Kind::Vdif, &[0]), 1, sizes);
            let intruder = |n: u64| whole(header(0, early, n).with_station(0x1111));
            put(&mut bench, &(0..4).map(intruder).collect::<Vec<_>>());
            wait(&mut bench);
            put(&mut bench, &frames(0, late, 0..600));
            bench.finish();
            let unrecorded = sum(&bench, 0, |it| it.unrecorded);
            let written = sum(&bench, 0, |it| it.terms.written);
            assert_eq!((written, unrecorded), (604, 0), "{early} then {late} {query}");
        }
    }
}

#[test]
fn thread_that_begins_late_takes_no_name_that_another_source_has() {
    let threads = [("", 0..3, ["1", "1s16706t1"]), ("&threads=split", 0..3, ["1t0", "1s16706t1"])];
    for (query, range, names) in threads {
        let mut bench = bench(&format!("fps=37{query}"));
        let taken = Arc::<crate::StreamNames>::default();
        assert!(taken.claim("1t1"), "the name of another port");
        bench.port.share_names(&taken);
        put(&mut bench, &frames(0, 512, range.clone()));
        wait(&mut bench);
        put(&mut bench, &frames(1, 512, range));
        bench.finish();
        let of = |notice: &CaptureEvent| match notice {
            CaptureEvent::Opened { shape, .. } => Some(shape.name.as_str().to_owned()),
            _ => None,
        };
        assert_eq!(bench.notices.iter().filter_map(of).collect::<Vec<_>>(), names);
        assert!(!taken.claim("1s16706t1"), "no other port takes it either");
    }
}

#[test]
fn datagrams_of_another_length_than_the_first_are_counted_where_nothing_numbers_them() {
    let long = vec![vec![8; 1280]; 20];
    let mut loose = bench("format=raw");
    put(&mut loose, &vec![vec![7; 1024]; 20]);
    wait(&mut loose);
    put(&mut loose, &long);
    loose.finish();
    let account = accounts_of(&loose, 0)[0];
    assert_eq!((account.terms.written, account.unrecorded, account.foreign), (20, 20, 0));
    let told = warnings(&loose);
    assert!(told.contains("1280 bytes") && told.contains("frame=varying"), "{told}");
    // If the user gave the length, the filter excludes other lengths.
    for first in [true, false] {
        let mut given = bench("format=raw&frame=1024");
        if first {
            put(&mut given, &long);
            wait(&mut given);
        }
        put(&mut given, &vec![vec![7; 1024]; 20]);
        wait(&mut given);
        put(&mut given, &long);
        given.finish();
        let account = accounts_of(&given, 0)[0];
        let excluded = if first { 40 } else { 20 };
        assert_eq!((account.terms.written, account.excluded), (20, excluded));
        assert_eq!((account.unrecorded, account.foreign), (0, 0));
    }
}

#[test]
fn damaged_datagrams_with_the_numbers_of_recorded_ones_are_counted() {
    for fill in ["", "&fill=omit"] {
        let mut bench = bench(&format!("format=raw&frame=512&seq=0:8:le{fill}"));
        put(&mut bench, &numbered(0..300, 512));
        put(&mut bench, &numbered(290..300, 600));
        put(&mut bench, &numbered(180..280, 600));
        bench.finish();
        let account = accounts_of(&bench, 0)[0];
        assert_eq!(account.terms.written, 300, "{fill}");
        let counted = account.foreign + account.out_of_window + account.duplicates;
        assert_eq!((counted, account.duplicates), (110, 0), "{fill} {account:#?}");
    }
}

#[test]
fn frames_of_a_thread_too_few_for_a_stream_are_counted_in_their_own_scan() {
    let mut bench = bench("fps=37");
    put(&mut bench, &frames(0, 512, 0..40));
    wait(&mut bench);
    put(&mut bench, &frames(5, 512, 40..42));
    bench.begin();
    put(&mut bench, &frames(0, 512, 40..80));
    wait(&mut bench);
    bench.begin();
    put(&mut bench, &frames(0, 512, 80..120));
    bench.finish();
    let unrecorded = [0, 1, 2].map(|scan| sum(&bench, scan, |it| it.unrecorded));
    assert_eq!(unrecorded, [2, 0, 0]);
}

#[test]
fn frames_too_few_to_show_what_a_port_sends_are_counted_in_their_own_scan() {
    let mut bench = bench("fps=37");
    put(&mut bench, &frames(0, 512, 0..2));
    bench.begin();
    bench.finish();
    assert_eq!(sum(&bench, 0, |it| it.unrecorded), 2);
    assert_eq!(sum(&bench, 1, |it| it.unrecorded + it.terms.written), 0);
}

#[test]
fn frames_of_another_length_than_asked_for_open_no_stream_of_a_split_port() {
    let mut bench = bench("fps=37&frame=512&threads=split");
    let pairs = frames(0, 512, 0..40).into_iter().zip(frames(0, 1024, 0..40));
    put(&mut bench, &pairs.flat_map(|(a, b)| [b, a]).collect::<Vec<_>>());
    bench.finish();
    assert_eq!(opened(&bench), 1);
    let excluded = sum(&bench, 0, |it| it.excluded);
    assert_eq!((sum(&bench, 0, |it| it.terms.written), excluded), (40, 40));
}

#[test]
fn plain_frames_where_a_packet_number_is_expected_are_told_with_their_remedy() {
    let mut bench = bench("format=vtp&fps=37");
    put(&mut bench, &frames(0, 512, 0..100));
    wait(&mut bench);
    bench.finish();
    let told = warnings(&bench);
    assert!(told.contains("use ?format=vdif") && !told.contains("format=raw"), "{told}");
}

#[test]
fn thread_numbered_beyond_the_rate_that_was_given_is_told_as_such() {
    for query in ["fps=20", "fps=20&threads=split", "fps=20&fill=omit"] {
        let mut bench = bench(query);
        put(&mut bench, &frames(0, 512, 0..15));
        wait(&mut bench);
        put(&mut bench, &frames(1, 512, 25..35));
        bench.finish();
        let told = warnings(&bench);
        assert!(told.contains("fps") && !told.contains("no further stream"), "{query}: {told}");
        let kept = sum(&bench, 0, |it| it.unrecorded + it.terms.damaged);
        assert_eq!(kept, 10, "{query}");
    }
}

#[test]
fn a_rate_that_no_second_reaches_is_asked_about_while_frames_arrive() {
    for (query, asked) in [("fps=74", true), ("fps=74&fill=omit", true), ("fps=37", false)] {
        let mut bench = bench(query);
        put(&mut bench, &frames(0, 512, 0..5 * FPS));
        wait(&mut bench);
        bench.finish();
        let told = warnings(&bench);
        assert_eq!(told.contains("above 36: is fps=74 right?"), asked, "{query}: {told}");
    }
}

#[test]
fn whole_frames_in_datagrams_of_another_form_count_as_unrecorded() {
    let vtp = |range: std::ops::Range<u64>| -> Vec<Vec<u8>> {
        let with = |n: u64| [&n.to_le_bytes()[..], &whole(header(0, 512, n))].concat();
        range.map(with).collect()
    };
    let packed: Vec<_> = frames(1, 512, 40..80).chunks(2).map(<[_]>::concat).collect();
    for query in ["", "&threads=split", "&fill=omit"] {
        let cases = [
            ("format=vdif", frames(0, 512, 0..40), vtp(40..70), 30),
            ("format=vdif", frames(0, 512, 0..40), packed.clone(), 40),
            ("format=vtp", vtp(0..40), frames(0, 512, 40..70), 30),
        ];
        for (format, early, late, unrecorded) in cases {
            let mut bench = bench(&format!("{format}&fps=37{query}"));
            put(&mut bench, &early);
            wait(&mut bench);
            put(&mut bench, &late);
            bench.finish();
            assert_eq!(sum(&bench, 0, |it| it.unrecorded), unrecorded, "{format}{query}");
            assert_eq!(sum(&bench, 0, |it| it.foreign), 0, "{format}{query}");
            assert!(warnings(&bench).contains("use ?"), "{format}{query}: {}", warnings(&bench));
        }
    }
}

#[test]
fn siblings_still_under_way_when_a_recording_is_stopped_are_not_missing() {
    for (query, threads) in [("threads=0,1", vec![0, 1]), ("threads=2,0,1", vec![2, 0, 1])] {
        for late in [false, true] {
            let mut bench = bench(&format!("fps=37&{query}"));
            let set = |n: u64| threads.iter().map(move |&thread| whole(header(thread, 512, n)));
            put(&mut bench, &(0..45).flat_map(set).collect::<Vec<_>>());
            // Of the newest frames only the one of the last thread has arrived.
            put(&mut bench, &set(45).skip(threads.len() - 1).collect::<Vec<_>>());
            if late {
                // After the sender has ended, the other frames were never sent.
                bench.now = bench.now.plus_ns(1_000_000_000);
            }
            bench.finish();
            let terms = accounts_of(&bench, 0)[0].terms;
            let (sets, several) = (45, threads.len() as u64);
            let (written, missing) =
                if late { (sets * several + 1, several - 1) } else { (sets * several, 0) };
            assert_eq!((terms.written, terms.missing), (written, missing), "{query} {late}");
            assert!(terms.balance());
            verify_all(&bench).unwrap();
        }
    }
}
