//! Any times at which a disk completed any number of bytes: the smallest ring loses nothing, one byte less
//! does, and ring and rate lead to one another. Records of ten bytes: how long after the last, and how many.
#![no_main]

use fullbore_core::budget::{Completion, Service};
use fullbore_core::units::ByteRate;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check(bytes));

/// The longest trace that is worth a look.
const MOST: usize = 200;

fn check(bytes: &[u8]) {
    let Some((head, records)) = bytes.split_first_chunk::<10>() else { return };
    let rate = ByteRate(u64::from(u32::from_le_bytes(head[..4].try_into().expect("four bytes"))));
    let in_hand = u64::from(u32::from_le_bytes(head[4..8].try_into().expect("four bytes")));
    let mut at_ns = 0;
    let completions = records.chunks_exact(10).take(MOST).map(|record| {
        at_ns += u64::from(u32::from_le_bytes(record[..4].try_into().expect("four bytes")));
        let bytes = u64::from(u32::from_le_bytes(record[4..8].try_into().expect("four bytes")));
        Completion { at_ns, bytes }
    });
    let service = Service::new(completions.collect(), in_hand);
    let ring = service.ring_for(rate);
    assert_eq!(service.overrun(rate, ring), 0, "the ring that is asked for is enough");
    if ring > in_hand {
        assert!(service.overrun(rate, ring - 1) > 0, "and no smaller one is");
    }
    let held = service.rate_for(ring);
    assert!(held >= rate.min(service.mean()) && held <= service.mean());
    assert!(held.0 == 0 || service.ring_for(held) <= ring);
    assert!(service.ring_with_margin(rate, 2) >= ring);
    assert!(service.rate_with_margin(ring, 2) <= held);
}
