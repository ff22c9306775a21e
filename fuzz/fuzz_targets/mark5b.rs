//! Any bytes as a Mark 5B datagram.
#![no_main]

use fullbore_formats::framed::{FrameCodec, FrameKind};
use fullbore_time::Tai;

libfuzzer_sys::fuzz_target!(|input: (i64, &[u8])| check(input));

fn check((near, bytes): (i64, &[u8])) {
    let codec = FrameCodec::new(FrameKind::Mark5b, Tai(near));
    let whole = codec.check(bytes, bytes.len());
    let Some(header) = codec.read(bytes) else {
        assert!(whole.is_err(), "a frame without a header is not whole");
        return;
    };
    if whole.is_ok() {
        assert_eq!(codec.frame_bytes(&header) as usize, bytes.len());
    }
    let mut written = [0; 16];
    assert_eq!(codec.write(&header, &mut written), Some(16));
    assert_eq!(written[..8], bytes[..8], "sync word, user bits and number stay");
    let again = codec.read(&written).expect("it was just written");
    assert_eq!(again.frame_number(), header.frame_number());
    let fill = codec.fill_header(&header, header.second(), u32::MAX, Some(25_600));
    assert!(codec.write(&fill, &mut written).is_some());
    assert!(codec.read(&written).is_some());
}
