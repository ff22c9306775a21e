//! Any place of a counter in any datagrams. The first three bytes say where it stands, the rest are
//! datagrams of twelve bytes.
#![no_main]

use fullbore_formats::sequence::{Field, Unwrapper};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check(bytes));

fn check(bytes: &[u8]) {
    if let Ok(field) = String::from_utf8_lossy(bytes).parse::<Field>() {
        assert_eq!(field.to_string().parse(), Ok(field));
        let _ = field.read(bytes);
    }
    let Some((&[offset, width, order], datagrams)) = bytes.split_first_chunk() else { return };
    let field = Field {
        offset: usize::from(offset % 8),
        width: usize::from(width % 10),
        big_endian: order % 2 == 1,
    };
    let mut counter = Unwrapper::new(field.width);
    for datagram in datagrams.chunks(12) {
        let Some(raw) = field.read(datagram) else { continue };
        let mut copy = datagram.to_vec();
        assert!(field.write(&mut copy, raw));
        assert_eq!(copy, datagram);
        let index = counter.index(raw);
        assert_eq!(counter.observe(raw), index);
        assert_eq!(counter.index(raw), index, "the nearest to itself");
        let next = counter.index(raw.wrapping_add(1));
        assert!(next == index + 1 || index == Unwrapper::FURTHEST);
        assert_eq!(counter.raw(index), raw, "and back");
    }
}
