//! Any bytes as a VITA-49 packet, and any packets as a stream.
#![no_main]

use fullbore_formats::packets::PacketReading;
use fullbore_formats::samples::SampleLayout;
use fullbore_formats::vita49::index::PacketIndexer;
use fullbore_formats::vita49::samples::PacketPlaces;
use fullbore_formats::vita49::{Context, Packet, Prologue, payload_format, write};

libfuzzer_sys::fuzz_target!(|packets: Vec<&[u8]>| check(&packets));

fn check(packets: &[&[u8]]) {
    let mut indexer: Option<PacketIndexer> = None;
    let layout = SampleLayout::new("ci16_be".parse().expect("it is an encoding"), 1);
    let mut places: Option<PacketPlaces> = None;
    for bytes in packets {
        let Ok(prologue) = Prologue::read(bytes) else {
            assert!(Packet::read(bytes).is_err(), "a packet without a prologue is not whole");
            continue;
        };
        let mut written = vec![0; prologue.bytes()];
        assert_eq!(write::prologue(&prologue, &mut written), Some(prologue.bytes()));
        if let Ok(packet) = Packet::read(bytes) {
            let trailer = 4 * usize::from(packet.trailer.is_some());
            assert_eq!(prologue.bytes() + packet.payload.len() + trailer, bytes.len());
            let format = Context::read(&packet).ok().and_then(|context| context.payload_format);
            let _ = format.map(payload_format::layout);
        }
        places = places.or_else(|| PacketPlaces::new(layout.clone(), bytes).ok());
        if let Some(Ok(Some(placed))) = places.as_mut().map(|places| places.place(bytes)) {
            assert_eq!(placed.payload.len() as u64, 4 * placed.samples);
            assert!(placed.payload.end <= bytes.len());
        }
        let counted = indexer.get_or_insert_with(|| PacketIndexer::of(bytes).expect("it has a prologue"));
        if let PacketReading::Whole { .. } = counted.read(bytes, bytes.len()) {
            counted.learn(bytes);
        }
        let _ = counted.stamp(bytes);
    }
}
