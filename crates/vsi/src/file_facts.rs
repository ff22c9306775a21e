//! What the two ends of a VDIF file tell of it, for `file_check?`.

use std::collections::BTreeSet;

use fullbore_formats::vdif::{Header, check};
use fullbore_time::Tai;

use crate::station::ScanFacts;

/// Bytes that are read at each end of a file.
pub const END_BYTES: usize = 4 << 20;

/// A frame with its place.
struct Seen {
    second: i64,
    number: u32,
    thread: u16,
}

/// Reads the first and the last bytes of a file. If the file is short, both are all of it. `None`: it is no VDIF with
/// frames of one length.
pub fn of_ends(head: &[u8], tail: &[u8], length: u64) -> Option<ScanFacts> {
    let first = Header::read(head).ok()?;
    let frame_bytes = first.frame_bytes() as usize;
    if frame_bytes == 0 || !length.is_multiple_of(frame_bytes as u64) {
        return None;
    }
    let head = frames(head.chunks_exact(frame_bytes), frame_bytes)?;
    let behind = tail.len() % frame_bytes;
    let tail = frames(tail[behind..].chunks_exact(frame_bytes), frame_bytes)?;
    let threads: BTreeSet<u16> = head.iter().chain(&tail).map(|it| it.thread).collect();
    let rate = first.frames_per_second().or_else(|| rate_of(&head)).or_else(|| rate_of(&tail));
    let rate = rate.filter(|it| *it > 0);
    let time = |seen: &Seen, rate: u64| {
        let ns = u64::from(seen.number) * 1_000_000_000 / rate;
        Tai(seen.second.saturating_mul(1_000_000_000)).plus_ns(ns as i64)
    };
    let (start, end) = (head.first()?, tail.last()?);
    let known = rate
        .map(|rate| (time(start, rate), time(end, rate).plus_ns((1_000_000_000 / rate) as i64)));
    let seconds = known.map(|(start, end)| end.since(start) as f64 / 1e9).filter(|it| *it > 0.0);
    let bits = first.channels().saturating_mul(first.bits_per_sample());
    let bits = bits.saturating_mul(if first.complex() { 2 } else { 1 });
    let count = threads.len() as u32;
    let whole_second = (start.number == 0).then(|| time(start, 1));
    let expected = rate.zip(seconds).map(|(rate, seconds)| {
        let frames = ((seconds * rate as f64).round() as u64).saturating_mul(count.into());
        frames.saturating_mul(frame_bytes as u64)
    });
    Some(ScanFacts {
        format: Some("VDIF".to_owned()),
        tracks: Some(bits.saturating_mul(count)),
        start: known.map(|it| it.0).or(whole_second),
        seconds,
        bit_rate: rate
            .map(|it| it as f64 * f64::from(first.payload_bytes()) * 8.0 * f64::from(count)),
        missing_bytes: expected.map(|it| it.saturating_sub(length)),
        frame_bytes: Some(first.frame_bytes()),
        bytes: length,
    })
}

/// The headers of frames that are valid; `None` if there is none, or if one is no frame.
fn frames<'a>(all: impl Iterator<Item = &'a [u8]>, frame_bytes: usize) -> Option<Vec<Seen>> {
    let mut seen = Vec::new();
    for frame in all {
        let header = check(frame, frame_bytes).ok()?;
        if !header.invalid() {
            let (second, number) = (header.second().0, header.frame_number());
            seen.push(Seen { second, number, thread: header.thread() });
        }
    }
    Some(seen).filter(|it| !it.is_empty())
}

/// Frames per second of a thread: one more than the largest number before the next second begins.
fn rate_of(frames: &[Seen]) -> Option<u64> {
    let last = frames.iter().map(|it| it.second).max()?;
    let largest = frames.iter().filter(|it| it.second < last).map(|it| it.number).max()?;
    Some(u64::from(largest) + 1)
}

#[cfg(test)]
mod tests {
    use fullbore_formats::vdif::Second;
    use proptest::prelude::*;

    use super::*;

    /// Frames of two threads, 100 a second each, from a frame on.
    fn file(first: u32, count: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        for at in first..first + count {
            for thread in 0..2 {
                let header = Header::from_words([0; 8]).with_frame_bytes(1032);
                let mut header = header.with_bits_per_sample(2).with_thread(thread);
                header.set_time(Second::of(53, 1000 + at / 100), at % 100);
                let mut frame = vec![0; 1032];
                header.write(&mut frame).unwrap();
                bytes.extend(frame);
            }
        }
        bytes
    }

    #[test]
    fn a_file_with_a_full_second_is_known() {
        let bytes = file(50, 200);
        let facts = of_ends(&bytes, &bytes, bytes.len() as u64).unwrap();
        assert_eq!(
            (facts.tracks, facts.frame_bytes, facts.missing_bytes),
            (Some(4), Some(1032), Some(0))
        );
        assert_eq!((facts.seconds, facts.bit_rate), (Some(2.0), Some(1_600_000.0)));
        let start = Second::of(53, 1000).start().plus_ns(500_000_000);
        assert_eq!(facts.start, Some(start));
        // Twenty frames of both threads are missing between the ends.
        let cut = bytes.len() - 40 * 1032;
        let (head, tail) = (&bytes[..cut / 2], &bytes[bytes.len() - cut / 2..]);
        let facts = of_ends(head, tail, cut as u64).unwrap();
        assert_eq!(facts.missing_bytes, Some(40 * 1032));
    }

    #[test]
    fn a_part_of_a_second_has_no_rate_and_other_files_are_no_vdif() {
        let bytes = file(0, 20);
        let facts = of_ends(&bytes, &bytes, bytes.len() as u64).unwrap();
        assert_eq!((facts.seconds, facts.bit_rate, facts.missing_bytes), (None, None, None));
        assert_eq!(facts.start, Some(Second::of(53, 1000).start()));
        assert_eq!(of_ends(&bytes[..1000], &bytes[..1000], 1000), None);
        assert_eq!(of_ends(b"a text", b"a text", 6), None);
        assert_eq!(of_ends(&[], &[], 0), None);
        let mut damaged = bytes.clone();
        damaged[1032 + 8] ^= 1;
        assert_eq!(of_ends(&damaged, &damaged, damaged.len() as u64), None);
    }

    #[test]
    fn ends_that_are_as_far_apart_as_headers_can_tell_are_judged() {
        let frame = |second, number, thread| {
            let header = Header::from_words([0; 8]).with_frame_bytes(1032);
            let mut header = header.with_bits_per_sample(2).with_thread(thread);
            header.set_time(Second::of(0, second), number);
            let mut frame = vec![0; 1032];
            header.write(&mut frame).unwrap();
            frame
        };
        let (last_second, last_frame) = ((1 << 30) - 1, (1 << 24) - 1);
        let bytes = [frame(0, last_frame, 0), frame(last_second, last_frame, 1)].concat();
        let facts = of_ends(&bytes, &bytes, bytes.len() as u64).unwrap();
        assert!(facts.missing_bytes > Some(1 << 60), "{facts:?}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_judged(bytes in prop::collection::vec(any::<u8>(), 0..200), length in any::<u64>()) {
            let _ = of_ends(&bytes, &bytes, length);
        }
    }
}
