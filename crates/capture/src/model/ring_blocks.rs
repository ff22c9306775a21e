//! An input that puts the datagrams of a socket into blocks, as the kernel puts packets into those of a packet ring.
//!
//! So the model sends as ever, and its datagrams pass the sorter, merged or not.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use fullbore_core::endpoint::{Gro, UdpSource};
use fullbore_formats::pcap::udp_packet;
use fullbore_formats::tpacket::{Composed, compose};
use fullbore_linux::sys::receive::{MOST_MESSAGES, Received, Receiver};

use crate::input::DatagramInput;
use crate::packet_filter::PortRule;
use crate::packet_ring::{Sorter, scatter};
use crate::port::listen;

/// The most datagrams in one packet.
const MOST_MERGED: usize = 8;

/// A bound on the length of a datagram.
const LONGEST: usize = 1 << 16;

/// A socket whose datagrams come in blocks.
pub struct BlockInput {
    socket: Receiver,
    sorter: Sorter,
    block: Vec<u8>,
    merges: bool,
    memory: Vec<u8>,
    emptied: bool,
}

impl BlockInput {
    /// The input of this source. With `gro=on`, datagrams of one length are merged.
    pub fn listen(source: &UdpSource) -> Self {
        let socket = listen(source, 8 << 20).unwrap();
        let address = socket.address().unwrap();
        Self {
            socket,
            sorter: Sorter::new(vec![PortRule { address, interface: None }]),
            block: Vec::new(),
            merges: source.gro == Gro::On,
            memory: vec![0; MOST_MESSAGES * LONGEST],
            emptied: false,
        }
    }

    /// Sorts a block of what has arrived.
    fn sort_next(&mut self) -> io::Result<()> {
        let mut received = [Received::default(); MOST_MESSAGES];
        let mut slices: Vec<IoSliceMut<'_>> =
            self.memory.chunks_exact_mut(LONGEST).map(IoSliceMut::new).collect();
        let count = self.socket.receive(&mut slices, 1, &mut received)?;
        let payloads: Vec<&[u8]> =
            slices.iter().zip(&received[..count]).map(|(it, told)| &it[..told.bytes]).collect();
        let alike = |one: &&[u8], next: &&[u8]| one.len() == next.len() && !one.is_empty();
        let most = if self.merges { MOST_MERGED } else { 1 };
        let groups = payloads.chunk_by(alike).flat_map(|alike| alike.chunks(most));
        let to = self.socket.address().unwrap();
        let from: SocketAddr = "127.0.0.1:9".parse().unwrap();
        let packets: Vec<(Vec<u8>, Option<u16>)> = groups
            .flat_map(|group| match udp_packet(from, to, group) {
                Some(packet) => {
                    let segment = (group.len() > 1).then_some(group[0].len() as u16);
                    vec![(packet, segment)]
                }
                // Together they are longer than a packet.
                None => {
                    group.iter().map(|it| (udp_packet(from, to, &[it]).unwrap(), None)).collect()
                }
            })
            .collect();
        let composed: Vec<Composed<'_>> = packets
            .iter()
            .map(|(bytes, segment)| Composed {
                bytes,
                link_bytes: 14,
                interface: 1,
                status: 1,
                segment: *segment,
            })
            .collect();
        self.block = compose(&composed);
        self.sorter.sort(&self.block, 0);
        Ok(())
    }
}

impl DatagramInput for BlockInput {
    fn receive(
        &mut self,
        slices: &mut [IoSliceMut<'_>],
        per_message: usize,
        received: &mut [Received],
    ) -> io::Result<usize> {
        if self.sorter.is_empty(0) {
            self.sort_next()?;
        }
        let mut count = 0;
        for (message, parts) in received.iter_mut().zip(slices.chunks_exact_mut(per_message)) {
            let Some(next) = self.sorter.take(0) else { break };
            let payload = next.payload(&self.block);
            scatter(payload, parts);
            *message = Received { bytes: payload.len(), segment: None, sender: Some(next.sender) };
            count += 1;
        }
        self.emptied = count == 0;
        Ok(count)
    }

    fn emptied(&self) -> bool {
        self.emptied
    }

    fn drops(&self) -> io::Result<u64> {
        self.socket.drops()
    }

    fn address(&self) -> Option<SocketAddr> {
        self.socket.address()
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }
}
