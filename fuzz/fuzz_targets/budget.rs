//! Any times at which a disk was given any number of bytes and had them written: the smallest ring loses nothing, one byte
//! less does, and ring and rate lead to one another. Records of ten bytes: how long after the last, how many, and how
//! long they took.
#![no_main]

use fullbore_linux::ring_sim::{Service, Turn};
use fullbore_core::units::ByteRate;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check(bytes));

/// The longest trace that is worth a look.
const MOST: usize = 200;

/// The unit of what a write took: up to six and a half seconds.
const TOOK_NS: u64 = 100_000;

fn check(bytes: &[u8]) {
    let Some((head, records)) = bytes.split_first_chunk::<10>() else { return };
    let rate = ByteRate(u64::from(u32::from_le_bytes(head[..4].try_into().expect("four bytes"))));
    let in_hand = u64::from(u32::from_le_bytes(head[4..8].try_into().expect("four bytes")));
    let mut to_ns = 0;
    let turns = records.chunks_exact(10).take(MOST).map(|record| {
        to_ns += u64::from(u32::from_le_bytes(record[..4].try_into().expect("four bytes")));
        let bytes = u64::from(u32::from_le_bytes(record[4..8].try_into().expect("four bytes")));
        let took = u16::from_le_bytes(record[8..].try_into().expect("two bytes"));
        Turn { from_ns: to_ns.saturating_sub(u64::from(took) * TOOK_NS), to_ns, bytes }
    });
    let service = Service::new(turns.collect(), in_hand);
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
