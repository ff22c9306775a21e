//! Any bytes as a block of a packet ring: its packets are inside the block, and reading it ends.
#![no_main]

use fullbore_formats::pcap::{Content, LinkType, parse, udp_checksum_holds};
use fullbore_formats::tpacket::Packets;

libfuzzer_sys::fuzz_target!(|block: &[u8]| check(block));

fn check(block: &[u8]) {
    let mut read = 0;
    for packet in Packets::of(block) {
        read += 1;
        let Ok(packet) = packet else { break };
        let network = &block[packet.network.clone()];
        if let Content::Datagram(datagram) = parse(LinkType::RawIp, network) {
            let start = datagram.payload.as_ptr() as usize - block.as_ptr() as usize;
            let udp = &block[start - 8..start + datagram.payload.len()];
            let _ = udp_checksum_holds(&datagram.addresses, udp);
        }
    }
    // A step has the length of a packet's header at least.
    assert!(read <= block.len() / 48 + 2);
}
