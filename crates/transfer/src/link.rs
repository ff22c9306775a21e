//! Measures a link: data that the other end discards, over several connections.

use std::time::{Duration, Instant};

use crate::channel::{Channel, LinkStatus};
use crate::error::TransferError;
use crate::protocol::Message;
use crate::session::{GREETING, silent, unexpected};

/// Bytes of one probe.
const PROBE_BYTES: u32 = 1 << 20;

/// Serves the probes of a peer, from the first one on, until it sends an empty one. Answers with what arrived.
pub(crate) fn answer(channel: &mut Channel, first: u32) -> Result<(), TransferError> {
    let (begun, mut bytes, mut probe) = (Instant::now(), 0, first);
    let mut memory = vec![0; PROBE_BYTES as usize];
    loop {
        let mut left = probe as usize;
        while left > 0 {
            let piece = left.min(memory.len());
            channel.receive_data(&mut memory[..piece])?;
            left -= piece;
        }
        bytes += u64::from(probe);
        if probe == 0 {
            let elapsed_ns = begun.elapsed().as_nanos() as u64;
            return Ok(channel.send(&Message::Received { bytes, elapsed_ns })?);
        }
        probe = match channel.receive(GREETING)? {
            Some(Message::Probe { bytes }) => bytes,
            Some(other) => return Err(unexpected("the peer", &other)),
            None => return Err(silent("the peer", GREETING)),
        };
    }
}

/// What one connection carried.
pub(crate) struct Probed {
    /// Bytes that arrived.
    pub bytes: u64,
    /// The time that they took at the other end.
    pub time: Duration,
    /// The state of the connection at the end.
    pub status: Option<LinkStatus>,
}

/// Sends probes for this long.
pub(crate) fn probe(
    channel: &mut Channel,
    time: Duration,
    peer: &str,
) -> Result<Probed, TransferError> {
    let (begun, data) = (Instant::now(), vec![0x5a; PROBE_BYTES as usize]);
    while begun.elapsed() < time {
        channel.tend();
        channel.send_data(&Message::Probe { bytes: PROBE_BYTES }, &data)?;
    }
    let status = channel.link();
    channel.send(&Message::Probe { bytes: 0 })?;
    match channel.receive(GREETING)? {
        Some(Message::Received { bytes, elapsed_ns }) => {
            Ok(Probed { bytes, time: Duration::from_nanos(elapsed_ns), status })
        }
        Some(other) => Err(unexpected(peer, &other)),
        None => Err(silent(peer, GREETING)),
    }
}
