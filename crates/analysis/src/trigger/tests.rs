//! Bursts in frames, packets and bytes.

use fullbore_formats::framed::FrameKind;
use fullbore_formats::packets::PacketKind;
use fullbore_formats::vdif::{Header, Second};
use fullbore_formats::vita49::Kind;
use fullbore_formats::vita49::write::{Stamp, difi_prologue, prologue};

use super::*;

const MS: i64 = 1_000_000;
const TIMES: HoldTimes = HoldTimes { off_ns: 50 * MS, longest_ns: 1000 * MS };

/// 2 channels of 8 bits at 64 000 samples a second, 100 frames a second: 640 samples of 10 ms in a frame.
const FRAME: usize = 32 + 1280;

fn frame(number: u32, thread: u16, level: u8) -> Vec<u8> {
    let mut header = Header::default()
        .with_frame_bytes(FRAME as u32)
        .with_bits_per_sample(8)
        .with_log2_channels(1)
        .with_thread(thread);
    header.set_time(Second(1_700_000_000 + i64::from(number / 100)), number % 100);
    let mut frame = vec![0; FRAME];
    header.write(&mut frame).unwrap();
    // Channel 0 is quiet. Offset binary: 128 is zero.
    for sample in frame[32..].chunks_exact_mut(2) {
        sample.copy_from_slice(&[129, 128 + level]);
    }
    frame
}

fn detector(text: &str) -> Detector {
    Detector::new(Query::of_samples(text).unwrap(), TIMES)
}

/// Times of triggers in milliseconds of the stream, for blocks of 20 ms of frames. Every block is seen 5 ms after its end.
fn triggers(
    detector: &mut Detector,
    level: impl Fn(u32, u16) -> u8,
    lost: &[u32],
) -> Vec<(bool, i64)> {
    let format = Format::Frames {
        kind: FrameKind::Vdif,
        frames_per_second: Some(100),
        derived: false,
        threads: vec![0, 3],
    };
    let begin = Tai(1_000_000_000 * MS);
    let (mut found, mut skipped) = (Vec::new(), 0);
    for block in 0..100u32 {
        let frames = (0..2).flat_map(|n| [0, 3].map(|thread| (2 * block + n, thread)));
        let bytes: Vec<u8> =
            frames.flat_map(|(n, thread)| frame(n, thread, level(n, thread))).collect();
        if lost.contains(&block) {
            skipped += bytes.len() as u64;
            continue;
        }
        let seen = begin.plus_ns((i64::from(block) * 20 + 25) * MS);
        let frame_bytes = FRAME as u32;
        let block = Block { format: &format, described: None, frame_bytes, skipped, bytes: &bytes };
        skipped = 0;
        found.extend(detector.take(block, seen).unwrap());
    }
    found.extend(detector.finish());
    let ms = |it: &Detected| (it.begins, (it.at.since(begin) - 5 * MS) / MS);
    found.iter().map(ms).collect()
}

fn begins(found: &[(bool, i64)]) -> Vec<i64> {
    found.iter().filter(|it| it.0).map(|it| it.1).collect()
}

#[test]
fn a_burst_in_vdif_frames_is_found_at_its_time() {
    let burst = |number: u32, thread: u16| match (number, thread) {
        (50..55, 3) => 100,
        _ => 2,
    };
    let mut one = detector("power(ch3:1) > -20 dB for 10 ms");
    let found = triggers(&mut one, burst, &[]);
    // It begins at 500 ms, and the condition needs 10 ms.
    assert_eq!(begins(&found), [510]);
    assert_eq!(found.last(), Some(&(false, 550)));
    assert_eq!(one.looked(), Looked { bytes: 400 * FRAME as u64, skipped_bytes: 0 });
    for none in ["power(ch0:1) > -20 dB", "power(ch3:0) > -20 dB", "level(any) > 100"] {
        assert!(triggers(&mut detector(none), burst, &[]).is_empty(), "{none}");
    }
    assert_eq!(begins(&triggers(&mut detector("level(any) >= 100"), burst, &[])), [501]);
    let quiet = "power(any) < -60 dB";
    assert!(triggers(&mut detector(quiet), burst, &[]).is_empty(), "no sample is that quiet");
}

#[test]
fn blocks_that_are_skipped_are_counted_and_do_not_end_a_burst() {
    let burst = |number: u32, _: u16| if (50..60).contains(&number) { 100 } else { 2 };
    let mut one = detector("power(ch0:1) > -20 dB for 70 ms");
    let found = triggers(&mut one, burst, &[26, 27]);
    assert_eq!(begins(&found), [570]);
    let block = 4 * FRAME as u64;
    assert_eq!(one.looked(), Looked { bytes: 98 * block, skipped_bytes: 2 * block });
    let all_lost: Vec<u32> = (24..31).collect();
    assert!(triggers(&mut detector("power(any) > -20 dB"), burst, &all_lost).is_empty());
}

#[test]
fn lost_frames_of_one_thread_do_not_end_a_burst() {
    let format = Format::Frames {
        kind: FrameKind::Vdif,
        frames_per_second: Some(100),
        derived: false,
        threads: vec![0, 3],
    };
    let sent = |number: u32, thread: u16| match (number, thread) {
        (53 | 57, 3) => None,
        (50..60, 3) => Some(frame(number, 3, 100)),
        _ => Some(frame(number, thread, 2)),
    };
    for (text, count) in [
        ("power(ch3:1) > -20 dB for 90 ms", 1),
        ("power(any) > -20 dB for 90 ms", 1),
        ("power(ch3:1) > -20 dB for 110 ms", 0),
        ("not power(ch3:1) < 0 dB", 0),
    ] {
        let mut one = detector(text);
        let mut found = Vec::new();
        for block in 0..100u32 {
            let frames = (0..2).flat_map(|n| [0, 3].map(|thread| sent(2 * block + n, thread)));
            let bytes: Vec<u8> = frames.flatten().flatten().collect();
            let (frame_bytes, skipped) = (FRAME as u32, 0);
            let of_block =
                Block { format: &format, described: None, frame_bytes, skipped, bytes: &bytes };
            found.extend(one.take(of_block, Tai(i64::from(block + 1) * 20 * MS)).unwrap());
        }
        found.extend(one.finish());
        assert_eq!(found.iter().filter(|it| it.begins).count(), count, "{text}: {found:?}");
    }
}

#[test]
fn a_thread_may_be_behind_the_others_and_what_is_too_late_is_counted() {
    let format = Format::Frames {
        kind: FrameKind::Vdif,
        frames_per_second: Some(100),
        derived: false,
        threads: vec![0, 3],
    };
    // Thread 3 is so many frames of 10 ms behind thread 0.
    let looked = |behind: u32| {
        let mut one = detector("power(ch3:1) > -20 dB");
        let mut begins = 0;
        for block in 0..100u32 {
            let number = 100 + block - behind;
            let level = if (150..155).contains(&number) { 100 } else { 2 };
            let bytes = [frame(100 + block, 0, 2), frame(number, 3, level)].concat();
            let frame_bytes = FRAME as u32;
            let of_block =
                Block { format: &format, described: None, frame_bytes, skipped: 0, bytes: &bytes };
            let found = one.take(of_block, Tai(i64::from(block + 1) * 10 * MS)).unwrap();
            begins += found.iter().filter(|it| it.begins).count();
        }
        begins += one.finish().iter().filter(|it| it.begins).count();
        (begins, one.looked().skipped_bytes)
    };
    assert_eq!(looked(0), (1, 0));
    assert_eq!(looked(8).0, 1);
    let (begins, skipped) = looked(30);
    assert_eq!(begins, 0);
    // Its frames before the first frame of the stream have no place, and all but the first ones are too late.
    assert!((65 * 1280..=70 * 1280).contains(&skipped), "{skipped}");
}

#[test]
fn events_of_a_sender_that_is_silent_between_them_are_triggers_each() {
    let format = Format::Frames {
        kind: FrameKind::Vdif,
        frames_per_second: Some(100),
        derived: false,
        threads: vec![0],
    };
    let mut one = detector("power(any) > -20 dB");
    let mut found = Vec::new();
    for number in [0..10, 300..310, 900..910].into_iter().flatten() {
        let bytes = frame(number, 0, 100);
        let frame_bytes = FRAME as u32;
        let of_block =
            Block { format: &format, described: None, frame_bytes, skipped: 0, bytes: &bytes };
        found.extend(one.take(of_block, Tai(i64::from(number + 1) * 10 * MS)).unwrap());
    }
    found.extend(one.finish());
    let begins: Vec<i64> = found.iter().filter(|it| it.begins).map(|it| it.at.0 / MS).collect();
    assert_eq!(begins, [1, 3001, 9001]);
}

#[test]
fn a_sender_that_begins_anew_at_an_earlier_time_is_looked_at_again() {
    let format = Format::Frames {
        kind: FrameKind::Vdif,
        frames_per_second: Some(100),
        derived: false,
        threads: vec![0],
    };
    for first in [0, 500] {
        let mut one = detector("power(any) > -20 dB");
        let mut found = Vec::new();
        for (block, number) in (1..).zip((first..first + 400).chain(0..300)) {
            let is_burst = block > 400 && (250..255).contains(&number);
            let bytes = frame(number, 0, if is_burst { 100 } else { 2 });
            let frame_bytes = FRAME as u32;
            let of_block =
                Block { format: &format, described: None, frame_bytes, skipped: 0, bytes: &bytes };
            found.extend(one.take(of_block, Tai(block * 10 * MS)).unwrap());
        }
        let begins: Vec<i64> = found.iter().filter(|it| it.begins).map(|it| it.at.0 / MS).collect();
        assert_eq!(begins, [6501], "from frame {first}");
    }
}

#[test]
fn bursts_in_bytes_are_found_behind_a_skipped_block_too() {
    let layout = SampleLayout {
        sample_rate: "1000".parse().ok(),
        ..SampleLayout::new("ri16_le".parse().unwrap(), 3)
    };
    // Channel 2 is loud in the samples 600 to 699.
    let sample = |n: usize| [10i16, 10, if (600..700).contains(&n) { -20_000 } else { 10 }];
    let stream: Vec<u8> =
        (0..1000).flat_map(|n| sample(n).into_iter().flat_map(i16::to_le_bytes)).collect();
    let mut one = detector("level(ch2) > 15000");
    let (mut found, mut skipped) = (Vec::new(), 0);
    for (number, bytes) in stream.chunks(500).enumerate() {
        if number == 2 {
            skipped = 500;
            continue;
        }
        let described = Some(&layout);
        let block = Block { format: &Format::Raw, described, frame_bytes: 1, skipped, bytes };
        skipped = 0;
        let end = (number as i64 + 1) * 500 / 6;
        found.extend(one.take(block, Tai(end * MS)).unwrap());
    }
    found.extend(one.finish());
    let begins: Vec<i64> = found.iter().filter(|it| it.begins).map(|it| it.at.0 / MS).collect();
    assert_eq!(begins.len(), 1);
    assert!((600..=608).contains(&begins[0]), "{begins:?}");
    assert_eq!(found[0].reason.unwrap().to_string(), "20000.0 in ch0:2");
}

#[test]
fn a_tone_in_vita49_packets_is_found_in_its_band() {
    // 360 complex samples in a packet, a millisecond at 360 kHz; a tone at 45 kHz in the packets 500 to 519.
    let packet = |number: u64| {
        let stamp = Stamp { seconds: 1_700_000_000, picoseconds: number * 1_000_000_000 };
        let start = difi_prologue(Kind::Data, 7, stamp, (number % 16) as u8, 360);
        let mut packet = vec![0; 28 + 360 * 4];
        prologue(&start, &mut packet).unwrap();
        for (n, sample) in packet[28..].chunks_exact_mut(4).enumerate() {
            let angle = std::f64::consts::TAU * (n % 8) as f64 / 8.0;
            let amplitude = if (500..520).contains(&number) { 8000.0 } else { 8.0 };
            let part = |value: f64| ((value * amplitude) as i16).to_be_bytes();
            sample[..2].copy_from_slice(&part(angle.cos()));
            sample[2..].copy_from_slice(&part(angle.sin()));
        }
        packet
    };
    let layout = SampleLayout {
        sample_rate: "360kHz".parse().ok(),
        ..SampleLayout::new("ci16_be".parse().unwrap(), 1)
    };
    let format = Format::Packets { kind: PacketKind::Vita49 };
    let stream: Vec<u8> = (0..1000).flat_map(packet).collect();
    let found = |text: &str, lost: usize| {
        let mut one = detector(text);
        let (mut found, mut skipped) = (Vec::new(), 0);
        for (number, bytes) in stream.chunks(10_000).enumerate() {
            if number == lost {
                skipped = 10_000;
                continue;
            }
            let described = Some(&layout);
            let block = Block { format: &format, described, frame_bytes: 0, skipped, bytes };
            skipped = 0;
            let seen = Tai((number as i64 + 1) * 10_000 * MS / (28 + 360 * 4));
            found.extend(one.take(block, seen).unwrap());
        }
        found.extend(one.finish());
        found.into_iter().filter(|it| it.begins).map(|it| it.at.0 / MS).collect::<Vec<_>>()
    };
    for lost in [1000, 3, 40] {
        let at = found("power(ch0, 40kHz..50kHz) > -20 dB", lost);
        assert_eq!(at.len(), 1, "without block {lost}");
        assert!((500..=503).contains(&at[0]), "{at:?} without block {lost}");
    }
    assert!(found("power(ch0, -50kHz..-40kHz) > -20 dB", 1000).is_empty());
}

#[test]
fn streams_that_cannot_be_compared_are_refused() {
    let refused = |format: Format, described: Option<SampleLayout>, text: &str| {
        let described = described.as_ref();
        let block =
            Block { format: &format, described, frame_bytes: 1, skipped: 0, bytes: &[0; 64] };
        detector(text).take(block, Tai(0)).unwrap_err().to_string()
    };
    let layout = SampleLayout::new("ri8".parse().unwrap(), 2);
    let rated = SampleLayout { sample_rate: "1000".parse().ok(), ..layout.clone() };
    let level = "level(ch2) > 1";
    assert!(refused(Format::Raw, None, level).contains("not described"));
    assert!(refused(Format::Raw, Some(layout), level).contains("rate is not known"));
    assert!(refused(Format::Raw, Some(rated.clone()), level).contains("no channel ch2"));
    let band = "power(ch0, 600..700) > 0";
    assert!(refused(Format::Raw, Some(rated), band).contains("0 Hz to 500 Hz"));
    let packets = Format::Packets { kind: PacketKind::Rtp };
    assert!(refused(packets, None, level).contains("not decoded"));
}
