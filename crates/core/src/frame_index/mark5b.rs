//! Mark 5B frames by their index: what is filled, and what is damaged.

use fullbore_formats::FILL;
use fullbore_formats::framed::{FrameCodec, FrameKind};

use super::{FrameIndexer, IndexResult};
use crate::manifest::Fill;

/// Bytes of a header.
const HEADER_BYTES: usize = 16;

/// Bytes of a frame.
const FRAME_BYTES: usize = 10_016;

/// The headers of the four frames in baseband's `SAMPLE_MARK5B`: MJD 56821, 6400 frames a second.
const SAMPLE: [[u8; 16]; 4] = [
    *b"\xed\xde\xad\xab\x00\x00\xad\xbe\x01\x98\x11\x82\x5d\x97\x00\x00",
    *b"\xed\xde\xad\xab\x01\x00\xad\xbe\x01\x98\x11\x82\x58\x17\x01\x00",
    *b"\xed\xde\xad\xab\x02\x00\xad\xbe\x01\x98\x11\x82\x57\x97\x03\x00",
    *b"\xed\xde\xad\xab\x03\x00\xad\xbe\x01\x98\x11\x82\x46\x17\x04\x00",
];

fn codec(near: &str) -> FrameCodec {
    FrameCodec::new(FrameKind::Mark5b, near.parse().unwrap())
}

fn frame(head: [u8; 16]) -> Vec<u8> {
    let mut frame = vec![0x55; FRAME_BYTES];
    frame[..HEADER_BYTES].copy_from_slice(&head);
    frame
}

#[test]
fn a_filled_frame_has_the_header_that_was_lost() {
    let codec = codec("2014-01-01T00:00:00Z");
    let mut count = FrameIndexer::by_time(codec, 0, vec![0], FRAME_BYTES, Some(6400));
    let first = frame(SAMPLE[0]);
    count.learn(&[], &first);
    let reading = count.read(&[], &frame(SAMPLE[3]), FRAME_BYTES);
    assert_eq!(reading, IndexResult::Frame { index: 3, invalid: false });
    let mut made = vec![0; FRAME_BYTES];
    count.fill(2, Fill::Invalid, &mut made);
    assert_eq!(made[..HEADER_BYTES], SAMPLE[2]);
    assert!(made[HEADER_BYTES..].chunks(4).all(|word| word == FILL.to_le_bytes()));
    let header = codec.check(&made, FRAME_BYTES).unwrap();
    assert!(codec.is_fill(&header, &made));
    assert!(!codec.is_fill(&header, &first));
}

#[test]
fn half_a_frame_is_damaged_and_its_other_half_is_none() {
    let codec = codec("2014-01-01T00:00:00Z");
    let mut count = FrameIndexer::by_time(codec, 0, vec![0], FRAME_BYTES, Some(6400));
    let whole = frame(SAMPLE[1]);
    count.learn(&[], &whole);
    assert_eq!(count.read(&[], &whole[..5008], 5008), IndexResult::Damaged { index: 1 });
    assert_eq!(count.read(&[], &whole[5008..], 5008), IndexResult::Foreign);
}
