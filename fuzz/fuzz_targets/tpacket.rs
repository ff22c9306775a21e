//! Any bytes as a block of a packet ring: its packets are inside the block, reading it ends, and a checksum holds however
//! its datagram is divided.
#![no_main]

use fullbore_formats::pcap::{
    Content, LinkType, UdpChecksum, parse, udp_checksum_holds, udp_checksum_of_parts,
};
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
            let holds = udp_checksum_holds(&datagram.addresses, udp);
            let field = u16::from_be_bytes([udp[6], udp[7]]);
            let parts = [&udp[..udp.len() / 3], &udp[udp.len() / 3..]].into_iter();
            let of_parts =
                udp_checksum_of_parts(&datagram.addresses, field, udp.len() as u32, parts);
            match of_parts {
                UdpChecksum::LeftToInterface => {}
                other => assert_eq!(other == UdpChecksum::Holds, holds),
            }
        }
    }
    // A step has the length of a packet's header at least.
    assert!(read <= block.len() / 48 + 2);
}
