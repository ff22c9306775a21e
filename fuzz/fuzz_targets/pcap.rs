//! Any bytes as a capture file: nothing may panic, an item has at least one byte, and packets lie in their items.

#![no_main]

use fullbore_formats::pcap::{Content, Decoder, Fragments, Item, Step, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (mut decoder, mut fragments, mut rest) = (Decoder::new(), Fragments::default(), data);
    while let Ok(Step::Item { item, bytes }) = decoder.next(rest) {
        assert!(bytes > 0);
        if let Item::Packet(packet) = item {
            assert!(packet.data.end as u64 <= bytes);
            match parse(packet.link, &rest[packet.data.clone()]) {
                Content::Datagram(datagram) => assert!(datagram.payload.len() <= datagram.bytes),
                Content::Fragment(part) => {
                    let joined = fragments.take(&part);
                    let _ = joined.as_ref().map(|it| it.datagram());
                }
                Content::Other | Content::Damaged => {}
            }
        }
        let Some(next) = usize::try_from(bytes).ok().and_then(|bytes| rest.get(bytes..)) else { break };
        rest = next;
    }
});
