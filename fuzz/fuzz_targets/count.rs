//! Any datagrams to every way of counting. The first byte chooses the way, the second the length of the
//! datagrams.
#![no_main]

use fullbore_core::frame_index::{FrameIndexer, IndexResult};
use fullbore_core::manifest::Fill;
use fullbore_formats::framed::FrameCodec;
use fullbore_formats::sequence::Field;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check(bytes));

fn check(bytes: &[u8]) {
    let Some((&[way, length], datagrams)) = bytes.split_first_chunk() else { return };
    let length = usize::from(length).max(1);
    let rate = (way >= 128).then_some(u64::from(way));
    let head = usize::from(way / 8 % 4) * 8;
    let frame_bytes = if way & 0x40 == 0 { length.saturating_sub(head) } else { 0 };
    let mut count = match way % 5 {
        0 => FrameIndexer::by_time(FrameCodec::VDIF, 0, vec![0], frame_bytes, rate).behind(head),
        1 => FrameIndexer::by_time(FrameCodec::VDIF, 0, vec![0, 3, 1], frame_bytes, rate)
            .behind(head),
        2 => {
            let field = Field::PACKET_NUMBERS[head / 8 % Field::PACKET_NUMBERS.len()];
            FrameIndexer::by_time(FrameCodec::VDIF, 0, vec![0], frame_bytes, rate)
                .behind(8)
                .beside(Some(field))
        }
        3 => {
            let field = Field { offset: head, width: 1 + head / 8, big_endian: way & 0x20 == 0 };
            FrameIndexer::by_field(field, head, frame_bytes)
        }
        _ => FrameIndexer::by_arrival(head, frame_bytes),
    };
    let head = if way % 5 == 2 { 8 } else { head };
    for (number, datagram) in datagrams.chunks(length).take(4000).enumerate() {
        let (head, frame) = datagram.split_at(head.min(datagram.len()));
        let reading = count.read(head, frame, datagram.len());
        assert_eq!(count.read(head, frame, datagram.len()), reading, "reading teaches nothing");
        let (IndexResult::Frame { index, .. } | IndexResult::Damaged { index }) = reading else {
            continue;
        };
        if matches!(reading, IndexResult::Frame { .. }) {
            count.learn(head, frame);
        }
        if number % 16 == 15 {
            count.rebase(index, index / 2 + 1);
        }
        let mut made = vec![0; frame.len()];
        count.fill(index, Fill::Invalid, &mut made);
        let _ = (count.time(index), count.correction(), count.frames_per_second());
    }
}
