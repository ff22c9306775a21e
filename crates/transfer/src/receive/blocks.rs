//! A data connection of the receiving end: takes blocks, checks them, and writes them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use fullbore_store::landing::BlockError;

use super::Arrival;
use crate::channel::{Channel, ChannelError};
use crate::error::TransferError;
use crate::governor::{self, Allowance, Governor};
use crate::protocol::{Message, Record};
use crate::send::Memory;

/// The wait for a block, after which the end is looked for.
const TICK: Duration = Duration::from_millis(200);

/// Bytes of a block that are taken at a time, each when a recorder on this host does not need the machine.
const PIECE: usize = 256 << 10;

/// How a receiving end treats its host.
#[derive(Clone, Copy, Debug)]
pub struct Intake<'a> {
    /// The governor of this host.
    pub governor: &'a Governor,
    /// True if the limits of the user count too: this end asked for the scan.
    pub limited: bool,
}

impl Intake<'_> {
    /// Waits until a block may be taken, a short time at most.
    fn wait(self) -> bool {
        match self.limited {
            true => matches!(self.governor.wait(TICK), Allowance::Go(_)),
            false => self.governor.wait_for_recorder(TICK),
        }
    }

    /// Returns how many of these bytes may be taken now, waiting a short time for some.
    fn grant(self, wanted: u64) -> u64 {
        match self.limited {
            true => self.governor.grant(wanted, TICK),
            false if self.governor.wait_for_recorder(TICK) => wanted,
            false => 0,
        }
    }
}

/// Receives blocks from a data connection until the transfer or the connection ends. What makes the transfer
/// impossible also ends the control connection.
pub fn receive_blocks(
    arrival: &Arrival,
    channel: &mut Channel,
    peer: &str,
    intake: Intake<'_>,
) -> Result<(), TransferError> {
    let (mut memory, mut beside) = (Memory::default(), false);
    while !arrival.is_over() {
        if !beside && intake.governor.is_recording() {
            governor::beside();
            beside = true;
        }
        // The sender waits in turn, when the connection is full.
        if !intake.wait() {
            continue;
        }
        match channel.receive(TICK)? {
            None => {}
            Some(Message::Block { records, bytes }) => {
                let taken =
                    take_block(arrival, channel, &mut memory, &records, bytes, peer, intake);
                if let Err(error) = taken {
                    let ends_all = !matches!(error, TransferError::Channel(_));
                    if ends_all {
                        arrival.fail(error);
                        return Ok(());
                    }
                    return Err(error);
                }
            }
            Some(Message::Bye) => return Ok(()),
            Some(_) => {
                let why = "only blocks belong on a data connection".to_owned();
                return Err(TransferError::Protocol { peer: peer.to_owned(), why });
            }
        }
    }
    Ok(())
}

fn take_block(
    arrival: &Arrival,
    channel: &mut Channel,
    memory: &mut Memory,
    records: &[Record],
    bytes: u32,
    peer: &str,
    intake: Intake<'_>,
) -> Result<(), TransferError> {
    let broken = |why: String| TransferError::Protocol { peer: peer.to_owned(), why };
    let expected = arrival.landing.check(records).map_err(|error| fault(error, broken))?;
    if expected.bytes != bytes {
        let why = format!("a block of {} bytes is announced with {bytes}", expected.bytes);
        return Err(broken(why));
    }
    let data = memory.of(bytes as usize)?;
    let mut rest = &mut data[..bytes as usize];
    while !rest.is_empty() {
        let granted = intake.grant(rest.len().min(PIECE) as u64);
        let (piece, behind) = rest.split_at_mut(granted as usize);
        channel.receive_data(piece)?;
        rest = behind;
        if granted == 0 && arrival.is_over() {
            return Err(TransferError::Channel(ChannelError::Closed {
                address: channel.address().to_string(),
            }));
        }
    }
    arrival.bytes.fetch_add(bytes.into(), Ordering::Relaxed);
    if expected.known {
        return Ok(());
    }
    match arrival.landing.write(records, data) {
        Ok(()) => Ok(()),
        Err(BlockError::Damaged) => {
            let (stream, sequence) = (expected.stream, expected.sequence);
            let text = "its CRC32C does not match".to_owned();
            arrival.reply(Message::Rejected { stream, sequence, text });
            Ok(())
        }
        Err(error) => Err(fault(error, broken)),
    }
}

fn fault(error: BlockError, broken: impl Fn(String) -> TransferError) -> TransferError {
    match error {
        BlockError::Landing(error) => error.into(),
        other => broken(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use fullbore_linux::load_file::LoadFile;

    use super::*;
    use crate::governor::{Host, Limits};

    #[test]
    fn a_receiving_end_waits_while_the_ring_of_its_recorder_is_full() {
        let root = tempfile::tempdir().unwrap();
        let mut load = LoadFile::create(root.path()).unwrap();
        let host = Host::under(root.path(), root.path(), &[]);
        let governor = Governor::watching(Limits::default(), host);
        for limited in [false, true] {
            let intake = Intake { governor: &governor, limited };
            load.put(100, 0);
            wait_until(|| intake.wait() && intake.grant(10) == 10);
            load.put(900, 0);
            wait_until(|| !intake.wait() && intake.grant(10) == 0);
        }
    }

    #[test]
    fn the_cap_of_the_user_counts_only_for_what_this_end_asked_for() {
        let root = tempfile::tempdir().unwrap();
        let host = Host::under(root.path(), root.path(), &[]);
        let limits = Limits { rate: Some(1_000_000), ..Limits::default() };
        let governor = Governor::watching(limits, host);
        let asked = Intake { governor: &governor, limited: true };
        assert!(asked.grant(100_000_000) < 1_000_000);
        let offered = Intake { limited: false, ..asked };
        assert_eq!(offered.grant(100_000_000), 100_000_000);
    }

    fn wait_until(mut holds: impl FnMut() -> bool) {
        let since = Instant::now();
        while !holds() {
            assert!(since.elapsed() < Duration::from_secs(10));
        }
    }
}
