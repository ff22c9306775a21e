//! The messages of live spectra in parts of any size, and requests for them.
#![no_main]

use fullbore_recording::spectra::Request;
use fullbore_recording::spectra::message::{Decoder, MOST_BYTES, Message, MessageError};

libfuzzer_sys::fuzz_target!(|input: (u8, &[u8])| check(input));

fn check((size, bytes): (u8, &[u8])) {
    let whole = read(bytes.chunks(bytes.len().max(1)));
    assert_eq!(read(bytes.chunks(usize::from(size) + 1)), whole);
    for message in &whole.0 {
        let encoded = message.encode().expect("it was short enough to be read");
        assert!(encoded.len() <= MOST_BYTES + 5);
        assert_eq!(read([&encoded[..]].into_iter()), (vec![message.clone()], None));
    }
    if let Ok(request) = serde_json::from_slice::<Request>(bytes)
        && request.check().is_ok()
    {
        let again = serde_json::to_vec(&request).expect("it is only text");
        assert_eq!(serde_json::from_slice::<Request>(&again).ok(), Some(request));
    }
}

fn read<'a>(parts: impl Iterator<Item = &'a [u8]>) -> (Vec<Message>, Option<MessageError>) {
    let (mut decoder, mut all) = (Decoder::default(), Vec::new());
    for part in parts {
        decoder.feed(part);
        loop {
            match decoder.next_message() {
                Ok(Some(message)) => all.push(message),
                Ok(None) => break,
                Err(error) => return (all, Some(error)),
            }
        }
    }
    (all, None)
}
