//! Any text as an endpoint: it is read or refused, and what is read prints as the text that reads back.
#![no_main]

use fullbore_core::endpoint::{Endpoint, LARGEST_DATAGRAM, LONGEST_STRIP, UdpSource, UdpTarget};
use fullbore_core::hint::Hint;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check(bytes));

fn check(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let endpoint = match text.parse::<Endpoint>() {
        Ok(endpoint) => endpoint,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            let _ = error.hint();
            return;
        }
    };
    let printed = endpoint.to_string();
    // Escapes may make a text longer than any that is read.
    if printed.len() <= fullbore_core::endpoint::LONGEST {
        assert_eq!(printed.parse::<Endpoint>().as_ref(), Ok(&endpoint), "{printed}");
    }
    let ports = endpoint.authority.as_ref().and_then(|authority| authority.ports.clone());
    if ports.is_none_or(|ports| ports.count() > 32) {
        return;
    }
    for source in UdpSource::expand(&endpoint).unwrap_or_default() {
        assert!(source.strip <= LONGEST_STRIP);
        let bytes = source.frame_bytes.unwrap_or(0);
        assert!(bytes + source.strip <= LARGEST_DATAGRAM);
        let end = source.sequence.map_or(0, |field| field.end());
        assert!(bytes == 0 || end <= (bytes + source.strip) as usize, "a counter beyond the frame");
        let printed = source.to_string();
        if printed.len() <= fullbore_core::endpoint::LONGEST {
            assert_eq!(UdpSource::parse(&printed), Ok(vec![source]), "{printed}");
        }
    }
    for target in UdpTarget::expand(&endpoint).unwrap_or_default() {
        assert_eq!(UdpTarget::parse(&target.to_string()), Ok(vec![target]));
    }
}
