//! Any bytes as a VDIF datagram.
#![no_main]

use fullbore_formats::vdif::{self, Header, Second};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check(bytes));

fn check(bytes: &[u8]) {
    let whole = vdif::check(bytes, bytes.len());
    let Ok(header) = Header::read(bytes) else {
        assert!(whole.is_err(), "a frame without a header is not whole");
        return;
    };
    let length = header.header_bytes();
    assert_eq!(header.as_bytes(), &bytes[..length]);
    assert_eq!(header.with_extended(header.extended()), header);
    assert_ne!(header.frames_per_second(), Some(0));
    if whole.is_ok() {
        assert_eq!(header.frame_bytes() as usize, bytes.len());
        assert!(bytes.len() > length, "a whole frame has a payload");
    }
    let later = Second(header.second().0.saturating_add(1).min(Second::of(63, 0).0));
    let fill = Header::fill_like(&header, later, u32::MAX);
    assert!(fill.invalid());
    assert_eq!(fill.words()[2..], header.words()[2..]);
    assert!(!header.station_text().contains(char::is_control));
    let _ = format!("{header:?}");
}
