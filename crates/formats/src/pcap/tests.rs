use std::net::SocketAddr;

use proptest::prelude::*;

use super::*;

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn sample(port: u16, payload: &[u8]) -> Vec<u8> {
    let to = SocketAddr::new("192.0.2.2".parse().unwrap(), port);
    udp_packet(address("192.0.2.1:1000"), to, &[payload]).unwrap()
}

/// Packets with their times, drop counts, and the bytes left.
type Decoded = (Vec<(i128, Vec<u8>)>, Vec<Item>, usize);

/// Decodes a file that comes in pieces of this size.
fn decode(file: &[u8], piece: usize) -> Result<Decoded, Error> {
    let (mut decoder, mut buffer, mut rest) = (Decoder::new(), Vec::new(), file);
    let (mut packets, mut drops) = (Vec::new(), Vec::new());
    loop {
        match decoder.next(&buffer)? {
            Step::Item { item, bytes } => {
                while (buffer.len() as u64) < bytes && !rest.is_empty() {
                    let (now, later) = rest.split_at(piece.min(rest.len()));
                    buffer.extend(now);
                    rest = later;
                }
                match item {
                    Item::Packet(packet) => {
                        let data = buffer[packet.data].to_vec();
                        packets.push((packet.unix_ns.unwrap_or(-1), data));
                    }
                    item @ Item::Drops { .. } => drops.push(item),
                    Item::Other => {}
                }
                if (buffer.len() as u64) < bytes {
                    return Ok((packets, drops, buffer.len()));
                }
                buffer.drain(..bytes as usize);
            }
            Step::More(_) if rest.is_empty() => return Ok((packets, drops, buffer.len())),
            Step::More(_) => {
                let (now, later) = rest.split_at(piece.min(rest.len()));
                buffer.extend(now);
                rest = later;
            }
        }
    }
}

fn pcap(big: bool, nanoseconds: bool, packets: &[(u32, u32, &[u8])]) -> Vec<u8> {
    let word = |value: u32| if big { value.to_be_bytes() } else { value.to_le_bytes() };
    let half = |value: u16| if big { value.to_be_bytes() } else { value.to_le_bytes() };
    let magic = if nanoseconds { 0xa1b2_3c4d } else { 0xa1b2_c3d4 };
    let mut file = word(magic).to_vec();
    file.extend([half(2), half(4)].concat());
    file.extend([word(0), word(0), word(65_535), word(1)].concat());
    for (seconds, fraction, data) in packets {
        let length = data.len() as u32;
        file.extend([word(*seconds), word(*fraction), word(length), word(length)].concat());
        file.extend(*data);
    }
    file
}

fn pcapng() -> Vec<u8> {
    let counts = Statistics { received: 2, dropped_by_interface: 3, dropped_by_system: 4 };
    let unknown =
        [&0x0bad_u32.to_le_bytes()[..], &16u32.to_le_bytes(), &[7; 4], &16u32.to_le_bytes()];
    [
        PcapngWriter::section("a test", "fullbore"),
        PcapngWriter::interface(&Interface { name: "udp", comment: "no address is stored" }),
        unknown.concat(),
        PcapngWriter::packet(0, 1_700_000_000_123_456_789, &sample(5000, b"first")),
        PcapngWriter::section("again", "fullbore"),
        PcapngWriter::interface(&Interface { name: "udp", comment: "" }),
        PcapngWriter::packet(0, 1_700_000_001_000_000_001, &sample(5001, b"second!")),
        PcapngWriter::statistics(0, 1_700_000_002_000_000_000, &counts),
    ]
    .concat()
}

#[test]
fn pcap_of_both_byte_orders_and_units_has_the_same_packets() {
    for big in [false, true] {
        let micro = pcap(big, false, &[(7, 123_456, b"abc"), (8, 0, b"")]);
        let nano = pcap(big, true, &[(7, 123_456_000, b"abc"), (8, 0, b"")]);
        let expected = vec![(7_123_456_000, b"abc".to_vec()), (8_000_000_000, Vec::new())];
        for piece in 1..micro.len() {
            assert_eq!(decode(&micro, piece).unwrap(), (expected.clone(), vec![], 0));
            assert_eq!(decode(&nano, piece).unwrap(), (expected.clone(), vec![], 0));
        }
    }
}

#[test]
fn pcapng_is_decoded_at_every_split_with_two_sections_and_unknown_blocks() {
    let file = pcapng();
    let drops = Item::Drops { section: 1, interface: 0, by_interface: Some(3), by_system: Some(4) };
    let expected = vec![
        (1_700_000_000_123_456_789, sample(5000, b"first")),
        (1_700_000_001_000_000_001, sample(5001, b"second!")),
    ];
    for piece in 1..=file.len() {
        let (packets, told, left) = decode(&file, piece).unwrap();
        assert_eq!((packets, told, left), (expected.clone(), vec![drops.clone()], 0));
    }
}

#[test]
fn a_cut_file_gives_the_packets_before_the_cut_and_the_bytes_that_are_left() {
    let whole = pcap(false, false, &[(1, 0, b"abcd"), (2, 0, b"efgh")]);
    for cut in 24..whole.len() {
        let (packets, _, left) = decode(&whole[..cut], 64).unwrap();
        assert_eq!((packets.len(), left), ((cut - 24) / 20, (cut - 24) % 20), "cut at {cut}");
    }
}

#[test]
fn obsolete_and_simple_packets_and_odd_resolutions_are_read() {
    let block = |kind: u32, body: &[u8]| {
        let bytes = (body.len() as u32 + 12).to_be_bytes();
        [&kind.to_be_bytes(), &bytes, body, &bytes].concat()
    };
    let words = |words: &[u32]| words.iter().flat_map(|it| it.to_be_bytes()).collect::<Vec<u8>>();
    let section = block(0x0a0d_0d0a, &words(&[0x1a2b_3c4d, 0x0001_0000, u32::MAX, u32::MAX]));
    // 2^10 ticks in a second, and an offset of 100 seconds.
    let options =
        [&[0, 9, 0, 1, 0x8a, 0, 0, 0][..], &[0, 14, 0, 8], &100u64.to_be_bytes(), &[0; 4]];
    let interface = block(1, &[&words(&[0x0065_0000, 0])[..], &options.concat()].concat());
    let obsolete = block(2, &words(&[0x0000_0005, 0, 1536, 4, 4, 0x4500_0000]));
    let simple = block(3, &words(&[3, 0x6162_6300]));
    let file = [section, interface, obsolete, simple].concat();
    let (packets, _, left) = decode(&file, 5).unwrap();
    assert_eq!(packets, [(101_500_000_000, vec![0x45, 0, 0, 0]), (-1, b"abc".to_vec())]);
    assert_eq!(left, 0);
}

#[test]
fn what_is_no_capture_or_contradicts_itself_is_refused() {
    let magic = decode(b"VDIF is no capture", 100).unwrap_err();
    assert!(matches!(magic, Error::Magic { .. }), "{magic}");
    let mut long = pcap(false, false, &[(1, 0, b"abcd")]);
    long[24 + 8..24 + 12].copy_from_slice(&(LONGEST_PACKET + 1).to_le_bytes());
    assert_eq!(decode(&long, 100), Err(Error::PacketLength { bytes: LONGEST_PACKET + 1 }));
    let mut torn = pcapng();
    let end = torn.len();
    torn[end - 4] ^= 4;
    assert!(matches!(decode(&torn, 4096), Err(Error::BlockLength { kind: 5, .. })));
    let stray = [PcapngWriter::section("", ""), PcapngWriter::packet(3, 0, b"x")].concat();
    assert_eq!(decode(&stray, 4096), Err(Error::Interface { interface: 3 }));
}

/// The same datagram as IPv4 or IPv6, with a link header of each kind before it.
#[test]
fn a_datagram_is_found_behind_every_link_header() {
    let ethernet = sample(5000, b"frame");
    let ip = &ethernet[14..];
    let tagged = |tags: &[u8]| [&ethernet[..12], tags, &ethernet[12..]].concat();
    let cooked = [&[0; 14][..], &[8, 0], ip].concat();
    let cooked2 = [&[8, 0][..], &[0; 18], ip].concat();
    for (link, packet) in [
        (1, ethernet.clone()),
        (1, tagged(&[0x81, 0, 0, 5])),
        (1, tagged(&[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6])),
        (101, ip.to_vec()),
        (0, [&[2, 0, 0, 0], ip].concat()),
        (113, cooked),
        (276, cooked2),
        // Padding of a short Ethernet frame is no payload.
        (1, [&ethernet[..], &[0; 20]].concat()),
    ] {
        let Content::Datagram(found) = parse(LinkType::of_number(link), &packet) else {
            panic!("link type {link}: {:?}", parse(LinkType::of_number(link), &packet))
        };
        assert_eq!((found.port, found.source_port, found.payload), (5000, 1000, &b"frame"[..]));
        assert_eq!((found.bytes, found.is_cut()), (5, false));
        for cut in 0..packet.len() {
            match parse(LinkType::of_number(link), &packet[..cut]) {
                Content::Datagram(cut) => {
                    assert!(cut.payload.len() <= 5 && cut.bytes == 5);
                    assert!(found.payload.starts_with(cut.payload));
                }
                content => assert!(matches!(content, Content::Damaged), "{content:?}"),
            }
        }
    }
    assert_eq!(parse(LinkType::Other(147), &ethernet), Content::Other);
}

#[test]
fn extension_headers_of_ipv6_are_skipped() {
    let plain = udp_packet(address("[::1]:7"), address("[::1]:9"), &[b"payload"]).unwrap();
    let (header, udp) = plain.split_at(14 + 40);
    let mut extended = header.to_vec();
    (extended[14 + 6], extended[14 + 5]) = (0, udp.len() as u8 + 24);
    extended.extend([60, 0, 1, 4, 0, 0, 0, 0]);
    extended.extend([17, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    extended.extend(udp);
    let Content::Datagram(found) = parse(LinkType::Ethernet, &extended) else { panic!() };
    assert_eq!((found.port, found.payload), (9, &b"payload"[..]));
}

fn fragment(data: &[u8], offset: usize, more: bool, identification: u32) -> FragmentPart<'_> {
    let addresses = Addresses {
        source: "192.0.2.1".parse().unwrap(),
        destination: "192.0.2.2".parse().unwrap(),
    };
    FragmentPart { addresses, identification, offset, more, data }
}

#[test]
fn the_datagrams_that_wait_for_fragments_are_bounded() {
    let mut fragments = Fragments::default();
    for identification in 0..1000 {
        assert_eq!(fragments.take(&fragment(&[1; 8], 0, true, identification)), None);
    }
    assert_eq!(fragments.unjoined(), 1000);
    assert_eq!(fragments.take(&fragment(&[1; 8], 65_535, false, 0)), None);
    assert_eq!(fragments.unjoined(), 1001, "it ends beyond the longest packet");
    let mut tiny = Fragments::default();
    for number in 0..257 {
        assert_eq!(tiny.take(&fragment(&[1; 8], 8 * number, true, 0)), None);
    }
    assert_eq!(tiny.unjoined(), 1, "it has more fragments than any sender makes");
}

proptest! {
    #[test]
    fn fragments_in_any_order_and_twice_join_to_the_datagram(
        payload in proptest::collection::vec(any::<u8>(), 1..3000),
        step in 2usize..50,
        order in any::<proptest::sample::Index>(),
    ) {
        let packet = udp_packet(address("192.0.2.1:1000"), address("192.0.2.2:5000"), &[&payload]);
        let packet = packet.unwrap();
        let udp = &packet[34..];
        let step = step * 8;
        let mut parts: Vec<FragmentPart<'_>> = udp
            .chunks(step)
            .enumerate()
            .map(|(n, data)| fragment(data, n * step, (n + 1) * step < udp.len(), 7))
            .collect();
        let turn = order.index(parts.len());
        parts.rotate_left(turn);
        let mut fragments = Fragments::default();
        let mut joined = None;
        for part in &parts {
            prop_assert!(joined.is_none());
            if parts.len() > 1 && part.more {
                let twice = fragments.take(part);
                joined = joined.or(twice);
                if joined.is_some() { continue }
            }
            joined = fragments.take(part);
        }
        let joined = joined.expect("all parts came");
        let datagram = joined.datagram().unwrap();
        prop_assert_eq!((datagram.port, datagram.payload), (5000, &payload[..]));
        prop_assert_eq!(fragments.unjoined(), 0);
    }

    #[test]
    fn any_bytes_are_decoded_or_refused_without_end(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
        flip in 0usize..400,
        value in any::<u8>(),
    ) {
        let _ = decode(&bytes, 64);
        let mut file = pcapng();
        let place = flip % file.len();
        file[place] = value;
        let _ = decode(&file, 64);
        for link in [0, 1, 101, 113, 276] {
            let _ = parse(LinkType::of_number(link), &bytes);
        }
    }
}
