//! Any bytes as packets of SPEAD, RTP and GVSP, any packets as a stream, and any bytes as frames of a connection.
#![no_main]

use fullbore_formats::framing::Framing;
use fullbore_formats::packets::{PacketFormat, PacketIndexer, PacketReading};
use fullbore_formats::spead::{Divide, Packet};

const FORMATS: [PacketFormat; 5] = [
    PacketFormat::Spead(Divide::Not),
    PacketFormat::Spead(Divide::Item(0x1600)),
    PacketFormat::Spead(Divide::HeapCount(3)),
    PacketFormat::Rtp,
    PacketFormat::Gvsp,
];

libfuzzer_sys::fuzz_target!(|packets: Vec<&[u8]>| {
    FORMATS.into_iter().for_each(|format| check(format, &packets));
    packets.iter().for_each(|bytes| frame(bytes));
});

fn check(format: PacketFormat, packets: &[&[u8]]) {
    let mut indexer: Option<PacketIndexer> = None;
    for bytes in packets {
        let Some(stream) = format.stream_of(bytes) else { continue };
        assert!(stream.owns(bytes), "a packet belongs to its own stream");
        if let Ok(packet) = Packet::read(bytes) {
            assert_eq!(packet.head_bytes() as u64 + packet.length, bytes.len() as u64);
        }
        let counted = match &mut indexer {
            Some(indexer) => indexer,
            none => none.insert(stream.indexer(bytes).expect("it is a packet")),
        };
        match counted.read(bytes, bytes.len()) {
            PacketReading::Whole { index, .. } => {
                assert!(index.unsigned_abs() <= 1 << 60);
                counted.learn(bytes);
            }
            PacketReading::Damaged { .. } => panic!("a whole packet is not damaged"),
            PacketReading::Foreign => assert!(!counted.owns(bytes)),
        }
        // A packet that is received in part is damaged, or no packet.
        let _ = counted.read(bytes, bytes.len() + 1);
    }
}

fn frame(mut bytes: &[u8]) {
    let framing = Framing::prefixed("2:be").expect("it is a prefix");
    while let Ok(Some(frame)) = framing.next(bytes) {
        assert!(frame.start == 2 && frame.end <= bytes.len());
        bytes = &bytes[frame.end..];
    }
}
