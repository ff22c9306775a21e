//! Any frames in any order on one clock. Every three bytes are one frame: how the second moves, and
//! the frame number within it; the first byte chooses what is known of the rate.
#![no_main]

use std::collections::HashMap;

use fullbore_formats::vdif::{Header, NOWHERE, Second, Timeline};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check(bytes));

fn check(bytes: &[u8]) {
    let Some((&first, rest)) = bytes.split_first() else { return };
    let mut timeline = Timeline::new((first >= 128).then(|| u64::from(first) * 8));
    let mut second = Second::of(33, 184 * 86_400);
    let mut header = Header::default().with_frame_bytes(8 * u32::from(first) + 64);
    let mut placed: HashMap<i64, (Second, u32)> = HashMap::new();
    for step in rest.chunks_exact(3).take(2000) {
        second.0 += i64::from((step[0] & 0x0F).cast_signed()) - 7;
        header.set_time(second, u32::from(u16::from_le_bytes([step[1], step[2]])));
        header.set_invalid(step[0] >= 0xE0);
        let index = timeline.index(&header);
        assert_eq!(timeline.observe(&header), index);
        if !header.invalid() && index != NOWHERE {
            let frame = (header.second(), header.frame_number());
            assert_eq!(*placed.entry(index).or_insert(frame), frame, "two frames at {index}");
        }
        second = header.second();
    }
    let mut by_index: Vec<_> = placed.iter().collect();
    by_index.sort();
    assert!(by_index.is_sorted_by_key(|(_, frame)| *frame), "order of indices is order of time");
    for (&index, &frame) in placed.iter() {
        assert_eq!(timeline.position(index), Some(frame), "the way back");
        let _ = (timeline.time(index), timeline.correction());
    }
}
