use std::net::UdpSocket;
use std::time::Duration;

use fullbore_formats::framed::FrameKind;
use fullbore_formats::vdif;
use fullbore_linux::stop_handle::StopHandle;

use super::*;

/// A receiver on loopback and the stream that is sent to it.
fn stream(form: Form, threads: &[u16], frames_per_second: u64) -> (UdpSocket, StreamPlan) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let port = socket.local_addr().unwrap().port();
    let target = UdpTarget { host: "127.0.0.1".into(), port, ttl: None, interface: None };
    let name = "test".to_owned();
    let threads = threads.to_vec();
    (socket, StreamPlan { name, target, form, frames_per_second, threads, first_number: 0 })
}

fn vdif_form(packet_number: bool) -> Form {
    let form = VdifForm {
        frame_bytes: 64,
        frames_per_second: 1000,
        bits: 2,
        channels: 1,
        complex: false,
        station: 0x777A,
        legacy: false,
        edv: 0,
    };
    Form::Frames { kind: FrameKind::Vdif, template: form.template().unwrap(), packet_number }
}

fn plan(streams: Vec<StreamPlan>, frames: u64, faults: Faults) -> Plan {
    Plan {
        streams,
        payload: PayloadSource::Pattern("counter".parse().unwrap()),
        start: Some("2026-11-21T18:00:00.5Z".parse().unwrap()),
        frames: Some(frames),
        pace: Pace::FlatOut,
        faults,
        timing: Default::default(),
    }
}

fn run(plan: Plan) -> Report {
    let generator = Generator::prepare(plan).unwrap();
    generator.run(&StopHandle::default(), &Progress::default()).unwrap()
}

/// All datagrams that a socket receives until it falls silent.
fn all_received(socket: &UdpSocket) -> Vec<Vec<u8>> {
    let mut datagrams = Vec::new();
    let mut datagram = [0; 4096];
    while let Ok(length) = socket.recv(&mut datagram) {
        datagrams.push(datagram[..length].to_vec());
    }
    datagrams
}

#[test]
fn what_arrives_is_what_the_truth_says() {
    let (socket, stream) = stream(vdif_form(false), &[0], 1000);
    let faults = Faults {
        seed: 3,
        drop: 0.1,
        drop_run: 2,
        duplicate: 0.1,
        reorder: 0.1,
        reorder_distance: 5,
        damage: 0.1,
        late: 0.05,
        late_distance: 40,
        ..Faults::default()
    };
    let report = run(plan(vec![stream], 200, faults));
    let tally = &report.truth.streams[0].port;
    assert!(tally.balances(), "{tally:?}");
    assert_eq!((tally.first, tally.last, tally.meant), (Some(500), Some(699), 200));
    let datagrams = all_received(&socket);
    assert_eq!(datagrams.len() as u64, tally.datagrams);
    assert_eq!(report.datagrams, tally.datagrams);

    let (mut good, mut highest, mut overtaken) = (Vec::new(), None, Vec::new());
    for datagram in &datagrams {
        if let Ok(header) = vdif::check(datagram, 64) {
            assert_eq!(header.second().start(), report.truth.streams[0].first_second);
            let frame = i64::from(header.frame_number());
            if !good.contains(&frame) && highest > Some(frame) {
                overtaken.push((frame, (highest.unwrap() - frame) as u64));
            }
            highest = highest.max(Some(frame));
            good.push(frame);
        } else if let Ok(header) = vdif::Header::read(datagram)
            && header.station() == 0x777A
        {
            // A damaged frame with a readable place overtakes others, too.
            highest = highest.max(Some(i64::from(header.frame_number())));
        }
    }
    assert_eq!(good.len() as u64, tally.sent + tally.duplicated.len() as u64);
    assert_eq!(overtaken, tally.reordered);
    for run in tally.dropped.0.iter() {
        assert!(run.into_iter().all(|frame| !good.contains(&frame)));
    }
    assert_eq!(datagrams.len() as u64 - good.len() as u64, tally.damaged_count() + tally.rubbish);
}

#[test]
fn threads_take_turns_and_packet_numbers_count_them() {
    let (socket, stream) = stream(vdif_form(true), &[3, 1], 1000);
    let report = run(plan(vec![stream], 50, Faults::default()));
    let datagrams = all_received(&socket);
    assert_eq!(datagrams.len(), 100);
    for (n, datagram) in datagrams.iter().enumerate() {
        let header = vdif::check(&datagram[8..], 64).unwrap();
        assert_eq!(datagram[..8], (1000 + n as u64).to_le_bytes());
        assert_eq!(header.thread(), [3, 1][n % 2]);
        assert_eq!(header.frame_number() as usize, 500 + n / 2);
        assert_eq!(header.reference_epoch(), 53);
    }
    let truth = &report.truth.streams[0];
    assert_eq!(truth.by_thread.iter().map(|tally| tally.sent).collect::<Vec<_>>(), [50, 50]);
    assert_eq!(truth.by_thread[1].first, Some(500));
    assert_eq!(truth.vdif_second.unwrap().0, 53);
}

#[test]
fn frames_go_at_their_rate_and_the_second_turns_over() {
    for waiting in [Waiting::Exact, Waiting::Gentle] {
        let (socket, stream) = stream(vdif_form(false), &[0], 1000);
        let mut plan = plan(vec![stream], 200, Faults::default());
        plan.start = Some("2026-11-21T18:00:00.9Z".parse().unwrap());
        plan.pace = Pace::Nominal { waiting, catch_up: 1.05 };
        let report = run(plan);
        assert!(report.sent.seconds >= 0.199, "{waiting:?}: {}", report.sent.seconds);
        assert_eq!(report.sent.lateness.packets, 200);
        let numbers: Vec<u32> = all_received(&socket)
            .iter()
            .map(|datagram| vdif::check(datagram, 64).unwrap().frame_number())
            .collect();
        assert_eq!(numbers, (900..1000).chain(0..100).collect::<Vec<_>>());
    }
}

#[test]
fn a_stop_ends_a_run_without_an_end() {
    let (_socket, stream) = stream(vdif_form(false), &[0], 1000);
    let mut plan = plan(vec![stream], 0, Faults::default());
    plan.frames = None;
    let generator = Generator::prepare(plan).unwrap();
    let (stop, progress) = (StopHandle::default(), Progress::default());
    let report = std::thread::scope(|scope| {
        let running = scope.spawn(|| generator.run(&stop, &progress));
        while progress.frames() < 100 {
            std::thread::yield_now();
        }
        stop.stop();
        running.join().unwrap().unwrap()
    });
    let tally = &report.truth.streams[0].port;
    assert!(tally.balances() && tally.meant >= 100);
}

#[test]
fn a_sample_is_tiled_and_stamped_anew() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let Form::Frames { kind: FrameKind::Vdif, template, .. } = vdif_form(false) else {
        unreachable!()
    };
    let frame = |n: u8| [template.as_bytes(), &[n; 32]].concat();
    std::fs::write(file.path(), (0..5).flat_map(frame).collect::<Vec<u8>>()).unwrap();
    let (socket, stream) =
        stream(Form::Frames { kind: FrameKind::Vdif, template, packet_number: false }, &[0], 1000);
    let mut plan = plan(vec![stream], 12, Faults::default());
    plan.payload = PayloadSource::Sample(file.path().to_owned());
    run(plan);
    for (n, datagram) in all_received(&socket).iter().enumerate() {
        assert_eq!(datagram[32..], [((500 + n) % 5) as u8; 32]);
    }
}

#[test]
fn plans_that_cannot_be_are_refused_with_the_reason() {
    let refused = |form: Form, threads: &[u16], frames_per_second| {
        let (_socket, stream) = stream(form, threads, frames_per_second);
        Generator::prepare(plan(vec![stream], 1, Faults::default())).err().unwrap().to_string()
    };
    assert!(refused(vdif_form(false), &[], 1000).contains("no threads"));
    assert!(refused(vdif_form(false), &[1024], 1000).contains("1024"));
    assert!(refused(vdif_form(false), &[0], 0).contains("would come 0 times"));
    let raw = |frame_bytes, sequence: &str| Form::Raw {
        frame_bytes,
        sequence: Some(sequence.parse().unwrap()),
    };
    assert!(refused(raw(70_000, "0:8:le"), &[0], 10).contains("65507"));
    assert!(refused(raw(100, "60:8:le"), &[0], 10).contains("first 64 bytes"));
    assert!(refused(raw(10, "4:8:le"), &[0], 10).contains("first 10 bytes"));
    let none = plan(vec![], 1, Faults::default());
    assert!(matches!(Generator::prepare(none), Err(Error::NoStreams)));
}

fn version_form(edv: u8) -> VdifForm {
    VdifForm {
        frame_bytes: 5032,
        frames_per_second: 32_000,
        bits: 2,
        channels: 16,
        complex: false,
        station: 0,
        legacy: false,
        edv,
    }
}

#[test]
fn frames_that_a_version_does_not_have_are_refused() {
    let refused = |form: VdifForm| form.template().unwrap_err();
    let alma = version_form(2);
    assert!(alma.template().is_ok());
    for other in [
        VdifForm { frame_bytes: 1032, ..alma.clone() },
        VdifForm { bits: 1, ..alma.clone() },
        VdifForm { complex: true, ..alma.clone() },
    ] {
        assert!(refused(other).contains("5032 or 8032 bytes with real samples of 2 bits"));
    }
    let vlba = version_form(3);
    assert!(
        refused(VdifForm { frame_bytes: 8032, ..vlba }).contains("1032 or 5032 bytes, not 8032")
    );
    let mark5b = version_form(0xAB);
    assert!(refused(mark5b.clone()).contains("10032 bytes"));
    assert!(refused(VdifForm { legacy: true, ..mark5b }).contains("no room for EDV 0xAB"));
}

#[test]
fn headers_tell_the_rate_where_they_can() {
    let mut form = version_form(3);
    for (edv, frame_bytes) in [(3, 5032), (3, 1032), (1, 1032), (1, 8032)] {
        (form.edv, form.frame_bytes) = (edv, frame_bytes);
        let header = form.template().unwrap();
        assert_eq!((header.edv(), header.frames_per_second()), (edv, Some(32_000)));
    }
    (form.frames_per_second, form.channels) = (1, 64);
    assert!(form.template().is_err());
    (form.legacy, form.edv) = (true, 0);
    assert_eq!(form.template().unwrap().header_bytes(), 16);
    form.edv = 1;
    assert!(form.template().unwrap_err().contains("legacy"));
}

#[test]
fn frames_without_a_given_start_carry_the_time_at_which_they_go() {
    for frames_per_second in [3, 1000] {
        let (socket, stream) = stream(vdif_form(false), &[0], frames_per_second);
        let pace = Pace::Nominal { waiting: Waiting::Gentle, catch_up: 1.01 };
        let before = Clock::new().now();
        run(Plan { start: None, pace, ..plan(vec![stream], 2, Faults::default()) });
        let after = Clock::new().now();
        let stamps: Vec<Tai> = all_received(&socket)
            .iter()
            .map(|frame| {
                let header = vdif::check(frame, 64).unwrap();
                let ns =
                    i64::from(header.frame_number()) * 1_000_000_000 / frames_per_second as i64;
                header.second().start().plus_ns(ns)
            })
            .collect();
        assert_eq!(stamps.len(), 2);
        // Each has its frame's place in the second, and was sent neither before its time nor after the end.
        assert!(before <= stamps[0] && stamps[1] <= after, "{before} {stamps:?} {after}");
    }
}

#[test]
fn what_carries_no_time_begins_with_its_first_number_whenever_it_is_sent() {
    let sequence = Some("0:8:le".parse().unwrap());
    let (socket, stream) = stream(Form::Raw { frame_bytes: 64, sequence }, &[0], 1000);
    run(Plan { start: None, ..plan(vec![stream], 3, Faults::default()) });
    let numbers: Vec<[u8; 8]> =
        all_received(&socket).iter().map(|datagram| datagram[..8].try_into().unwrap()).collect();
    assert_eq!(numbers, [0u64, 1, 2].map(u64::to_le_bytes));
}
