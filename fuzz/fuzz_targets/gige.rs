//! Any bytes as packets of a camera, as answers to commands, and as its description of itself.
#![no_main]

use std::time::Duration;

use fullbore_formats::gvcp::Answer;
use fullbore_formats::gvsp::resend::ResendTracker;
use fullbore_formats::gvsp::{Leader, Packet};

libfuzzer_sys::fuzz_target!(|packets: Vec<(u16, &[u8])>| check(&packets));

fn check(packets: &[(u16, &[u8])]) {
    let mut tracker = ResendTracker::default();
    for (milliseconds, bytes) in packets {
        let now = Duration::from_millis((*milliseconds).into());
        read(bytes);
        let _ = Answer::read(bytes);
        tracker.take(bytes, bytes.len(), now);
        let mut requests = 0;
        while let Some(request) = tracker.request(now) {
            assert!(request.first <= request.last, "a request is for packets");
            requests += 1;
            assert!(requests <= 8 * 256, "the gaps are bounded");
        }
    }
    let resends = tracker.resends();
    assert!(resends.unavailable <= resends.given_up);
}

/// What is read as a header is written back.
fn read(bytes: &[u8]) {
    let Ok(packet) = Packet::read(bytes) else {
        assert_eq!(Leader::read(bytes), None, "a leader is a packet");
        return;
    };
    let mut written = vec![0; packet.header_bytes()];
    assert_eq!(packet.write(&mut written), Some(packet.header_bytes()));
    assert_eq!(Packet::read(&[&written[..], &[0; 4]].concat()), Ok(packet));
}
