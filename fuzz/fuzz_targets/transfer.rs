//! Any bytes on a connection of a transfer: they are decoded alike in any pieces, and a message is encoded to the bytes
//! that it was decoded from. The first byte chooses the pieces, and whether a version is agreed.
#![no_main]

use fullbore_core::hint::Hint;
use fullbore_transfer::protocol::{
    Decoder, LARGEST_OPENING_BYTES, Message, ProtocolError, VERSIONS,
};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check(bytes));

/// Bytes of a frame before its body.
const HEAD: usize = 5;

fn check(bytes: &[u8]) {
    let Some((&first, rest)) = bytes.split_first() else { return };
    let (is_agreed, size) = (first & 1 == 0, usize::from(first / 2) + 1);
    // Few inputs have right lengths, so each frame is given one: a byte for its kind, two for the length of its body.
    for stream in [rest.to_vec(), framed(rest)] {
        let once = read([&stream[..]], is_agreed);
        assert_eq!(read(stream.chunks(size), is_agreed), once, "pieces of {size}");
        for (message, _) in &once.0 {
            check_message(message);
        }
        let cut = read([&stream[..stream.len() / 2]], is_agreed);
        assert!(once.0.iter().map(|it| &it.0).zip(&cut.0).all(|(all, (cut, _))| all == cut));
    }
}

fn framed(mut bytes: &[u8]) -> Vec<u8> {
    let mut stream = Vec::new();
    while let Some((&[kind, low, high], rest)) = bytes.split_first_chunk() {
        let length = usize::from(u16::from_le_bytes([low, high])).min(rest.len());
        let (body, next) = rest.split_at(length);
        stream.extend_from_slice(&(1 + length as u32).to_le_bytes());
        stream.push(1 + kind % 22);
        stream.extend_from_slice(body);
        bytes = next;
    }
    stream
}

/// The way back: the encoding of a message is decoded to the message.
fn check_message(message: &Message) {
    let mut bytes = Vec::new();
    message.encode(&mut bytes).expect("it was received, so it can be sent");
    assert!(bytes.len() >= HEAD);
    let mut decoder = Decoder::default();
    if matches!(message, Message::Hello { .. } | Message::Welcome { .. } | Message::Refuse { .. }) {
        assert!(bytes.len() <= LARGEST_OPENING_BYTES);
    } else {
        decoder.agree(VERSIONS.1);
    }
    decoder.push(&bytes);
    assert_eq!(decoder.next(), Ok(Some(message.clone())));
    assert_eq!(decoder.data_left(), message.data_bytes());
}

/// Messages with their data, and the error if there was one.
fn read<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    is_agreed: bool,
) -> (Vec<(Message, Vec<u8>)>, Option<ProtocolError>) {
    let mut messages: Vec<(Message, Vec<u8>)> = Vec::new();
    let mut decoder = Decoder::default();
    if is_agreed {
        decoder.agree(VERSIONS.1);
    }
    for mut piece in pieces {
        let direct = (decoder.data_left() as usize).min(piece.len());
        if direct > 0 {
            let (data, rest) = piece.split_at(direct);
            messages.last_mut().expect("data follows a message").1.extend_from_slice(data);
            decoder.data_read(direct as u32);
            piece = rest;
        }
        decoder.push(piece);
        while decoder.data_left() == 0 {
            let message = match decoder.next() {
                Ok(Some(message)) => message,
                Ok(None) => break,
                Err(error) => {
                    assert!(!error.to_string().is_empty());
                    let _ = error.hint();
                    return (messages, Some(error));
                }
            };
            // No more data is there than bytes are left.
            let mut data = vec![0; (decoder.data_left() as usize).min(piece.len())];
            let length = decoder.take_data(&mut data);
            data.truncate(length);
            messages.push((message, data));
        }
    }
    (messages, None)
}
