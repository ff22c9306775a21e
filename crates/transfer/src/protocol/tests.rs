use fullbore_core::block_set::BlockSet;
use fullbore_core::hint::Hint;
use fullbore_core::index::RECORD_BYTES;
use fullbore_time::Tai;
use proptest::prelude::*;
use uuid::Uuid;

use super::limits::{HEAD_BYTES, LARGEST_DATA_BYTES, LONGEST_NAME, LONGEST_TEXT, body_bytes};
use super::message::Kind;
use super::*;

/// A decoder on a connection whose version is agreed.
fn agreed() -> Decoder {
    let mut decoder = Decoder::default();
    decoder.agree(VERSIONS.1);
    decoder
}

fn encoded(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes).unwrap();
    bytes
}

/// A frame of this kind and body, whatever they are.
fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    [&(1 + body.len() as u32).to_le_bytes(), &[kind][..], body].concat()
}

fn decode_one(decoder: &mut Decoder, bytes: &[u8]) -> Result<Option<Message>, ProtocolError> {
    decoder.push(bytes);
    decoder.next()
}

/// A decoder in which this message is the next one that is due.
fn before(message: &Message) -> Decoder {
    match message {
        Message::Hello { .. } | Message::Welcome { .. } => Decoder::default(),
        _ => agreed(),
    }
}

fn text(most: usize) -> impl Strategy<Value = String> {
    prop::collection::vec(any::<char>(), 0..20).prop_map(move |signs| {
        let is_plain = |sign: &char| !fullbore_core::marker::moves_the_cursor(*sign);
        let mut text: String = signs.into_iter().filter(is_plain).collect();
        while text.len() > most {
            text.pop();
        }
        text
    })
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..100)
}

fn records(range: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Record>> {
    prop::collection::vec(any::<u8>().prop_map(|byte| [byte; RECORD_BYTES]), range)
}

fn blocks() -> impl Strategy<Value = BlockSet> {
    let run = (any::<u64>(), 1u64..1000, 0u32..60);
    prop::collection::vec(run, 0..8).prop_map(|runs| {
        let run = |(start, count, shift): (u64, u64, u32)| {
            let start = start >> shift;
            start..start.saturating_add(count)
        };
        runs.into_iter().map(run).collect()
    })
}

fn opening_message() -> impl Strategy<Value = Message> {
    let role = prop_oneof![Just(Role::Control), any::<[u8; 16]>().prop_map(Role::Data)];
    let versions = (1u16.., 0u16..4).prop_map(|(low, more)| (low, low.saturating_add(more)));
    prop_oneof![
        (versions, role, any::<Option<[u8; 16]>>(), text(LONGEST_NAME)).prop_map(
            |(versions, role, secret, name)| Message::Hello { versions, role, secret, name }
        ),
        text(LONGEST_NAME).prop_map(|name| Message::Welcome { version: VERSIONS.1, name }),
        (0..8usize, text(LONGEST_TEXT))
            .prop_map(|(at, text)| Message::Refuse { refusal: Refusal::ALL[at], text }),
    ]
}

fn control_message() -> impl Strategy<Value = Message> {
    let durable = prop::collection::btree_map(any::<u16>(), blocks(), 0..4);
    let receipt = (any::<[u8; 16]>(), any::<u64>(), any::<u64>(), any::<[u8; 32]>(), any::<i64>());
    prop_oneof![
        (bytes(), any::<bool>(), any::<u64>()).prop_map(|(manifest, live, bytes)| Message::Offer {
            manifest,
            live,
            bytes
        }),
        (any::<[u8; 16]>(), any::<u16>(), durable).prop_map(|(token, connections, durable)| {
            Message::Accept { token, connections, durable: durable.into_iter().collect() }
        }),
        bytes().prop_map(|manifest| Message::Update { manifest }),
        (any::<u16>(), blocks()).prop_map(|(stream, blocks)| Message::Durable { stream, blocks }),
        (any::<u16>(), any::<u64>(), text(LONGEST_TEXT))
            .prop_map(|(stream, sequence, text)| Message::Rejected { stream, sequence, text }),
        (any::<u16>(), any::<u64>(), 0..=LARGEST_DATA_BYTES)
            .prop_map(|(stream, sequence, bytes)| Message::Held { stream, sequence, bytes }),
        records(0..4).prop_map(|records| Message::Records { records }),
        (any::<u16>(), bytes()).prop_map(|(stream, json)| Message::Account { stream, json }),
        (bytes(), any::<u64>()).prop_map(|(manifest, missing)| Message::Seal { manifest, missing }),
        receipt.prop_map(|(scan, blocks, bytes, digest, at)| {
            let scan = Uuid::from_bytes(scan);
            Message::Receipt { scan, blocks, bytes, digest, at: Tai(at) }
        }),
        text(LONGEST_NAME).prop_map(|scan| Message::Request { scan }),
        Just(Message::List),
        bytes().prop_map(|json| Message::Listing { json }),
    ]
}

fn data_message() -> impl Strategy<Value = Message> {
    prop_oneof![
        (records(1..4), 0u32..600).prop_map(|(records, bytes)| Message::Block { records, bytes }),
        (0u32..600).prop_map(|bytes| Message::Probe { bytes }),
        any::<u64>().prop_map(|number| Message::Ping { number }),
        any::<u64>().prop_map(|number| Message::Pong { number }),
        any::<(u64, u64)>().prop_map(|(bytes, elapsed_ns)| Message::Received { bytes, elapsed_ns }),
        Just(Message::Bye),
    ]
}

fn any_message() -> impl Strategy<Value = Message> {
    prop_oneof![opening_message(), control_message(), data_message()]
}

/// The data of a message: bytes that differ from place to place.
fn data_of(message: &Message) -> Vec<u8> {
    (0..message.data_bytes()).map(|at| at as u8).collect()
}

/// Decodes a connection from pieces. Data is taken from the decoder in buffers of `room` bytes; when nothing of it has
/// arrived, the rest of the piece is "read directly".
fn decode<'a>(
    decoder: &mut Decoder,
    pieces: impl IntoIterator<Item = &'a [u8]>,
    room: usize,
) -> Result<Vec<(Message, Vec<u8>)>, ProtocolError> {
    let mut messages: Vec<(Message, Vec<u8>)> = Vec::new();
    for mut piece in pieces {
        if decoder.data_left() > 0 {
            let direct = (decoder.data_left() as usize).min(piece.len());
            messages.last_mut().unwrap().1.extend_from_slice(&piece[..direct]);
            decoder.data_read(direct as u32);
            piece = &piece[direct..];
        }
        decoder.push(piece);
        while decoder.data_left() == 0 {
            let Some(message) = decoder.next()? else { break };
            let mut data = Vec::new();
            let mut buffer = vec![0; room];
            loop {
                let length = decoder.take_data(&mut buffer);
                data.extend_from_slice(&buffer[..length]);
                if length == 0 {
                    break;
                }
            }
            messages.push((message, data));
        }
    }
    Ok(messages)
}

proptest! {
    #[test]
    fn messages_decode_alike_at_every_split(
        opening in opening_message().prop_filter("refusals have their own test", |message| {
            !matches!(message, Message::Refuse { .. })
        }),
        messages in prop::collection::vec(
            prop_oneof![control_message(), data_message()],
            0..6,
        ),
        room in 1usize..700,
    ) {
        let sent: Vec<_> = std::iter::once(opening).chain(messages).collect();
        let mut stream = Vec::new();
        for message in &sent {
            message.encode(&mut stream).unwrap();
            stream.extend(data_of(message));
        }
        let sent: Vec<_> = sent.into_iter().map(|it| (data_of(&it), it)).collect();
        let sent: Vec<_> = sent.into_iter().map(|(data, message)| (message, data)).collect();
        let start = encoded(&sent[0].0).len();
        for split in 0..=stream.len() - start {
            let mut decoder = Decoder::default();
            let mut decoded = decode(&mut decoder, [&stream[..start]], room).unwrap();
            decoder.agree(VERSIONS.1);
            let (first, second) = stream[start..].split_at(split);
            decoded.extend(decode(&mut decoder, [first, second], room).unwrap());
            prop_assert_eq!(&decoded, &sent, "split at {}", split);
        }
        for size in [1, 2, 3, 7, 128] {
            let mut decoder = Decoder::default();
            let mut decoded = decode(&mut decoder, stream[..start].chunks(size), room).unwrap();
            decoder.agree(VERSIONS.1);
            decoded.extend(decode(&mut decoder, stream[start..].chunks(size), room).unwrap());
            prop_assert_eq!(&decoded, &sent, "pieces of {}", size);
        }
    }

    #[test]
    fn truncated_messages_are_waited_for(message in any_message()) {
        let bytes = encoded(&message);
        for cut in 0..bytes.len() {
            let mut decoder = before(&message);
            prop_assert_eq!(decode_one(&mut decoder, &bytes[..cut]), Ok(None));
            decoder.push(&bytes[cut..]);
            prop_assert_eq!(decoder.next(), Ok(Some(message.clone())));
        }
    }

    #[test]
    fn shorter_bodies_are_errors_or_other_messages(message in any_message()) {
        let bytes = encoded(&message);
        for cut in HEAD_BYTES..bytes.len() {
            let short = frame(bytes[4], &bytes[HEAD_BYTES..cut]);
            match decode_one(&mut before(&message), &short) {
                Ok(Some(other)) => prop_assert_eq!(encoded(&other), short),
                Ok(None) => prop_assert!(false, "a whole frame"),
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }
    }

    #[test]
    fn messages_have_one_encoding(
        message in any_message(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut bytes = encoded(&message);
        let at = HEAD_BYTES + at.index(bytes.len());
        let Some(changed) = bytes.get_mut(at) else { return Ok(()) };
        *changed = byte;
        if let Ok(Some(other)) = decode_one(&mut before(&message), &bytes) {
            let again = encoded(&other);
            match other {
                // Codes of later versions are read as failures, and later versions may append.
                Message::Refuse { .. } | Message::Hello { .. } | Message::Welcome { .. } => {
                    let same = decode_one(&mut before(&other), &again);
                    prop_assert_eq!(same, Ok(Some(other)));
                }
                _ => prop_assert_eq!(again, bytes),
            }
        }
    }

    #[test]
    fn any_bytes_decode_or_fail_without_more_memory_than_them(
        stream in prop::collection::vec(prop_oneof![3 => 0u8..22, 1 => any::<u8>()], 0..600),
        size in 1usize..100,
        is_agreed in any::<bool>(),
    ) {
        let mut decoder = if is_agreed { agreed() } else { Decoder::default() };
        let result = decode(&mut decoder, stream.chunks(size), 50);
        prop_assert!(decoder.held_bytes() <= 2 * stream.len().max(8));
        if let Err(error) = result {
            prop_assert!(!error.to_string().is_empty());
            let _ = error.hint();
            decoder.push(&stream);
            prop_assert_eq!(decoder.next(), Err(error));
            prop_assert_eq!(decoder.held_bytes(), 0);
        }
    }
}

#[test]
fn hello_has_the_layout_of_the_reference() {
    let hello = Message::Hello {
        versions: (1, 3),
        role: Role::Data([0xAB; 16]),
        secret: Some([0xCD; 16]),
        name: "onsala".into(),
    };
    let mut expected = vec![54, 0, 0, 0, 1];
    expected.extend(b"fullbore\x01\0\x03\0\x01\x01");
    expected.extend([0xAB; 16]);
    expected.extend([0xCD; 16]);
    expected.extend(b"\x06onsala");
    assert_eq!(encoded(&hello), expected);
}

#[test]
fn block_has_the_layout_of_the_reference() {
    let block = Message::Block { records: vec![[7; 128], [8; 128]], bytes: 0x0102_0304 };
    let mut expected = vec![5, 1, 0, 0, 7, 4, 3, 2, 1];
    expected.extend([7; 128]);
    expected.extend([8; 128]);
    assert_eq!(encoded(&block)[..], expected);
    let mut decoder = agreed();
    decode_one(&mut decoder, &expected).unwrap();
    assert_eq!(decoder.data_left(), 0x0102_0304);
}

#[test]
fn durable_has_the_layout_of_the_reference() {
    let blocks = [5..8, 256..257].into_iter().collect();
    let mut expected = vec![39, 0, 0, 0, 8, 3, 0, 2, 0, 0, 0];
    for number in [5u64, 3, 256, 1] {
        expected.extend(number.to_le_bytes());
    }
    assert_eq!(encoded(&Message::Durable { stream: 3, blocks }), expected);
}

#[test]
fn hello_of_a_later_version_is_still_read() {
    let hello = Message::Hello {
        versions: (2, 9),
        role: Role::Control,
        secret: None,
        name: "effelsberg".into(),
    };
    let mut bytes = encoded(&hello);
    bytes.extend(b"fields of version 2");
    bytes[0] += 19;
    let mut decoder = Decoder::default();
    assert_eq!(decode_one(&mut decoder, &bytes), Ok(Some(hello)));
    assert_eq!(common_version((2, 9)), None);
    assert_eq!(common_version((1, 9)), Some(VERSIONS.1));
}

#[test]
fn refusal_of_a_later_version_is_still_read() {
    let mut decoder = Decoder::default();
    let bytes = frame(3, b"\x63\x05\0quota and more fields");
    let refuse = Message::Refuse { refusal: Refusal::Failed, text: "quota".into() };
    assert_eq!(decode_one(&mut decoder, &bytes), Ok(Some(refuse)));
}

#[test]
fn other_protocols_are_recognised_by_their_first_bytes() {
    let requests: [&[u8]; 3] =
        [b"GET / HTTP/1.1\r\n", b"SSH-2.0-OpenSSH_9.6\r\n", &frame(1, &[b'x'; 100])];
    for bytes in requests {
        let mut decoder = Decoder::default();
        assert_eq!(decode_one(&mut decoder, bytes), Err(ProtocolError::NotFullbore));
    }
}

#[test]
fn opening_accepts_only_small_messages_of_the_opening() {
    let hello =
        Message::Hello { versions: VERSIONS, role: Role::Control, secret: None, name: "a".into() };
    let bye = encoded(&Message::Bye);
    for number in 4..=22 {
        let mut decoder = Decoder::default();
        let head = [0xFF, 0xFF, 0, 0, number];
        assert_eq!(decode_one(&mut decoder, &head), Err(ProtocolError::NotFullbore));
        let mut decoder = Decoder::default();
        decode_one(&mut decoder, &encoded(&hello)).unwrap();
        let error = decode_one(&mut decoder, &head).unwrap_err();
        assert!(matches!(error, ProtocolError::Early { .. }), "{error}");
    }
    for number in 1..=3 {
        let mut decoder = Decoder::default();
        // One byte more than the opening allows.
        let [low, high, ..] = (LARGEST_OPENING_BYTES as u32 - 4 + 1).to_le_bytes();
        let error = decode_one(&mut decoder, &[low, high, 0, 0, number]).unwrap_err();
        assert!(matches!(error, ProtocolError::Length { .. }), "{error}");
    }
    let mut decoder = Decoder::default();
    decode_one(&mut decoder, &encoded(&hello)).unwrap();
    decoder.agree(1);
    assert_eq!(decode_one(&mut decoder, &bye), Ok(Some(Message::Bye)));
    let error = decode_one(&mut decoder, &encoded(&hello)).unwrap_err();
    assert_eq!(error, ProtocolError::Late { message: "hello" });
}

#[test]
fn welcome_agrees_on_a_version_that_both_speak() {
    let welcome = |version| encoded(&Message::Welcome { version, name: "wettzell".into() });
    let mut decoder = Decoder::default();
    decode_one(&mut decoder, &welcome(1)).unwrap();
    assert_eq!(decode_one(&mut decoder, &encoded(&Message::Bye)), Ok(Some(Message::Bye)));
    let mut decoder = Decoder::default();
    let error = decode_one(&mut decoder, &welcome(2)).unwrap_err();
    assert_eq!(error, ProtocolError::Version { version: 2 });
}

#[test]
fn announced_length_allocates_nothing() {
    let mut decoder = agreed();
    let mut head = (1 + LARGEST_MESSAGE_BYTES as u32).to_le_bytes().to_vec();
    head.push(Kind::Update as u8);
    assert_eq!(decode_one(&mut decoder, &head), Ok(None));
    assert!(decoder.held_bytes() < 100);
    // A count of runs and of streams, without them.
    for body in [&b"\0\0\xFF\xFF\xFF\xFF"[..], &[&[0; 18], &[0xFF; 4][..]].concat()] {
        let kind = if body.len() == 6 { Kind::Durable } else { Kind::Accept };
        let error = decode_one(&mut agreed(), &frame(kind as u8, body)).unwrap_err();
        assert!(matches!(error, ProtocolError::Content { .. }), "{error}");
    }
}

#[test]
fn largest_message_is_decoded_and_its_memory_returned() {
    let manifest = vec![b' '; LARGEST_MESSAGE_BYTES];
    let bytes = encoded(&Message::Update { manifest: manifest.clone() });
    let mut decoder = agreed();
    bytes.chunks(100_000).for_each(|piece| decoder.push(piece));
    assert_eq!(decoder.next(), Ok(Some(Message::Update { manifest })));
    assert_eq!(decoder.held_bytes(), 0);
}

#[test]
fn messages_that_are_too_large_are_not_encoded() {
    let manifest = vec![b' '; LARGEST_MESSAGE_BYTES + 1];
    let too_many = vec![[0; RECORD_BYTES]; MOST_BLOCK_RECORDS + 1];
    let messages =
        [Message::Update { manifest }, Message::Block { records: too_many.clone(), bytes: 1 }];
    for message in messages {
        let mut out = b"before".to_vec();
        let error = message.encode(&mut out).unwrap_err();
        assert!(matches!(error, ProtocolError::TooLarge { .. }), "{error}");
        assert!(error.hint().is_some());
        assert_eq!(out, b"before");
    }
    let records = too_many[1..].to_vec();
    let bytes = encoded(&Message::Block { records, bytes: 1 });
    assert!(matches!(decode_one(&mut agreed(), &bytes), Ok(Some(Message::Block { .. }))));
}

#[test]
fn lengths_that_no_message_has_are_refused_with_the_head() {
    let data = (LARGEST_DATA_BYTES + 1).to_le_bytes();
    let error = decode_one(&mut agreed(), &frame(Kind::Probe as u8, &data)).unwrap_err();
    assert!(matches!(error, ProtocolError::Content { .. }), "{error}");
    for number in 1..=22 {
        let kind = Kind::of_number(number).unwrap();
        assert_eq!((kind as u8, kind.name().is_empty()), (number, false));
        let (least, most) = body_bytes(kind);
        let mut lengths = vec![0, most as u32 + 2];
        lengths.extend((least > 0).then_some(least as u32));
        for length in lengths {
            let head = [&length.to_le_bytes()[..], &[number]].concat();
            let mut decoder = if number < 3 { Decoder::default() } else { agreed() };
            let error = decode_one(&mut decoder, &head).unwrap_err();
            assert!(matches!(error, ProtocolError::Length { .. }), "{kind:?} {length}: {error}");
        }
    }
    for number in [0, 23, 255] {
        let error = decode_one(&mut agreed(), &frame(number, &[])).unwrap_err();
        assert_eq!(error, ProtocolError::Kind { kind: number });
    }
}

#[test]
fn sets_with_another_encoding_are_refused() {
    let body = |runs: &[(u64, u64)]| {
        let mut body = vec![0, 0];
        body.extend((runs.len() as u32).to_le_bytes());
        for (start, count) in runs {
            body.extend([start.to_le_bytes(), count.to_le_bytes()].as_flattened());
        }
        frame(Kind::Durable as u8, &body)
    };
    let refused: [&[(u64, u64)]; 6] = [
        &[(5, 0)],
        &[(5, 2), (7, 1)],
        &[(5, 2), (6, 3)],
        &[(5, 2), (1, 2)],
        &[(5, 2), (5, 2)],
        &[(u64::MAX, 1)],
    ];
    for runs in refused {
        let error = decode_one(&mut agreed(), &body(runs)).unwrap_err();
        assert!(matches!(error, ProtocolError::Content { .. }), "{runs:?}: {error}");
    }
    let all = decode_one(&mut agreed(), &body(&[(0, u64::MAX)])).unwrap().unwrap();
    let Message::Durable { blocks, .. } = all else { unreachable!() };
    assert_eq!(blocks.len(), u64::MAX);
}

#[test]
fn streams_out_of_order_are_refused() {
    let mut body = vec![0; 18];
    body.extend(2u32.to_le_bytes());
    for stream in [4u16, 4] {
        body.extend(stream.to_le_bytes());
        body.extend([0; 4]);
    }
    let error = decode_one(&mut agreed(), &frame(Kind::Accept as u8, &body)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "received an invalid message `accept`: its streams are not in order"
    );
}

#[test]
fn texts_are_cut_and_never_move_the_cursor() {
    let long = "é".repeat(LONGEST_TEXT);
    let bytes = encoded(&Message::Refuse { refusal: Refusal::Busy, text: format!("a{long}") });
    let Ok(Some(Message::Refuse { text, .. })) = decode_one(&mut Decoder::default(), &bytes) else {
        panic!("a refusal");
    };
    assert_eq!(text.len(), LONGEST_TEXT - 1);
    let scan = "r1234\n\u{1b}[2J".into();
    let bytes = encoded(&Message::Request { scan });
    let request = decode_one(&mut agreed(), &bytes);
    assert_eq!(request, Ok(Some(Message::Request { scan: "r1234  [2J".into() })));
    let evil = frame(Kind::Request as u8, b"\x1b[2J");
    assert!(decode_one(&mut agreed(), &evil).is_err());
}

#[test]
#[should_panic(expected = "taken before the next message")]
fn data_that_is_not_taken_is_a_fault_of_the_driver() {
    let mut decoder = agreed();
    decode_one(&mut decoder, &encoded(&Message::Probe { bytes: 3 })).unwrap();
    let _ = decoder.next();
}
