//! Any bytes as packets of a camera, as answers to commands, and as its description of itself.
#![no_main]

use std::time::Duration;

use fullbore_formats::gvcp::Answer;
use fullbore_formats::gvsp::resend::ResendTracker;
use fullbore_formats::gvsp::{Leader, Packet};
use fullbore_gige::archive::{self, MOST_BYTES, Place};
use fullbore_gige::genicam::Features;

libfuzzer_sys::fuzz_target!(|packets: Vec<(u16, &[u8])>| check(&packets));

fn check(packets: &[(u16, &[u8])]) {
    let mut tracker = ResendTracker::default();
    for (milliseconds, bytes) in packets {
        let now = Duration::from_millis((*milliseconds).into());
        read(bytes);
        let _ = Answer::read(bytes);
        describe(bytes);
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

/// A description is read or refused, and its size is bounded.
fn describe(bytes: &[u8]) {
    if let Ok(place) = Place::parse(&String::from_utf8_lossy(bytes)) {
        assert!(place.bytes > 0 && u64::from(place.bytes) <= MOST_BYTES);
    }
    let Ok(file) = archive::unpack(bytes.to_vec()) else { return };
    assert!(file.len() as u64 <= MOST_BYTES.max(bytes.len() as u64));
    if let Ok(features) = Features::read(&file) {
        let _ = (features.command("AcquisitionStart"), features.integer("TLParamsLocked", 1));
    }
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
