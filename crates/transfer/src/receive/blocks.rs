//! A data connection of the receiving end: takes blocks, checks them, and writes them.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fullbore_store::landing::BlockError;

use super::Arrival;
use super::held::Holding;
use crate::channel::{Channel, ChannelError};
use crate::error::TransferError;
use crate::governor::{self, Allowance, Governor};
use crate::protocol::{Message, Record};
use crate::send::Memory;

/// The wait for a block, after which the end is looked for.
const TICK: Duration = Duration::from_millis(200);

/// Bytes of a block that are taken at a time, each when a recorder on this host does not need the machine.
const PIECE: usize = 256 << 10;

/// A block that takes longer is kept as it comes, so that the end of this process does not cost it. Faster ones are not
/// worth the copy: at most so much of the rate is lost.
const SLOW: Duration = Duration::from_millis(50);

/// Bytes that are kept at a time.
const KEPT_AT_ONCE: usize = 64 << 10;

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
///
/// When the transfer is over, blocks that have arrived in the meantime still count: a sender that was killed does not send
/// them again.
pub fn receive_blocks(
    arrival: &Arrival,
    channel: &mut Channel,
    peer: &str,
    intake: Intake<'_>,
) -> Result<(), TransferError> {
    let (mut memory, mut beside) = (Memory::default(), false);
    loop {
        let is_over = arrival.is_over();
        if !beside && intake.governor.is_recording() {
            governor::beside();
            beside = true;
        }
        // The sender waits in turn, when the connection is full.
        if !intake.wait() {
            match is_over {
                true => return Ok(()),
                false => continue,
            }
        }
        match channel.receive(if is_over { Duration::ZERO } else { TICK })? {
            None if is_over => return Ok(()),
            None => {}
            Some(Message::Block { records, bytes }) => {
                let block = Announced { records: &records, bytes };
                let taken = take_block(arrival, channel, &mut memory, block, peer, intake);
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
}

/// A block whose data follows.
#[derive(Clone, Copy)]
struct Announced<'a> {
    records: &'a [Record],
    bytes: u32,
}

fn take_block(
    arrival: &Arrival,
    channel: &mut Channel,
    memory: &mut Memory,
    Announced { records, bytes }: Announced<'_>,
    peer: &str,
    intake: Intake<'_>,
) -> Result<(), TransferError> {
    let broken = |why: String| TransferError::Protocol { peer: peer.to_owned(), why };
    let expected = arrival.landing.check(records).map_err(|error| fault(error, broken))?;
    let Some(left_out) = expected.bytes.checked_sub(bytes) else {
        let why = format!("a block of {} bytes is announced with {bytes}", expected.bytes);
        return Err(broken(why));
    };
    let (left_out, whole) = (left_out as usize, expected.bytes as usize);
    let memory = memory.of(whole)?;
    let mut holding = match expected.known {
        true => None,
        false => arrival.held.begin(&records[0]),
    };
    let is_here = |it: &Holding<'_>| it.load(&mut memory[..left_out]);
    let begins_here = left_out == 0 || holding.as_ref().is_some_and(is_here);
    if !begins_here && let Some(useless) = holding.take() {
        useless.done();
    }
    let rest = receive_rest(arrival, channel, &mut memory[..whole], left_out, &mut holding, intake);
    let (stream, sequence) = (expected.stream, expected.sequence);
    if let Err(error) = rest {
        if let Some(bytes) = holding.map(|it| it.bytes()).filter(|bytes| *bytes > 0) {
            arrival.reply(Message::Held { stream, sequence, bytes });
        }
        return Err(error);
    }
    arrival.bytes.fetch_add(bytes.into(), Ordering::Relaxed);
    if expected.known {
        return Ok(());
    }
    let written = match begins_here {
        true => arrival.landing.write(records, memory),
        false => Err(BlockError::Damaged),
    };
    match written {
        Err(error @ BlockError::Landing(_)) => return Err(fault(error, broken)),
        Err(BlockError::Damaged) => {
            let text = "its CRC32C does not match".to_owned();
            arrival.reply(Message::Rejected { stream, sequence, text });
        }
        Err(error) => return Err(fault(error, broken)),
        Ok(()) => {
            arrival.whole_bytes.fetch_add(whole as u64, Ordering::SeqCst);
        }
    }
    if let Some(holding) = holding {
        holding.done();
    }
    Ok(())
}

/// Receives the data of a block from `from` on. The beginning of a block that does not arrive whole, or arrives slowly, is
/// kept.
fn receive_rest(
    arrival: &Arrival,
    channel: &mut Channel,
    data: &mut [u8],
    from: usize,
    holding: &mut Option<Holding<'_>>,
    intake: Intake<'_>,
) -> Result<(), TransferError> {
    let (begun, mut at, mut granted) = (Instant::now(), from, 0);
    while at < data.len() {
        let received = match granted {
            0 => {
                granted = intake.grant((data.len() - at).min(PIECE) as u64) as usize;
                let address = || channel.address().to_string();
                match granted == 0 && arrival.is_over() {
                    true => Err(ChannelError::Closed { address: address() }),
                    false => continue,
                }
            }
            _ => channel.receive_some(&mut data[at..at + granted]),
        };
        if let Ok(bytes) = received {
            (at, granted) = (at + bytes, granted - bytes);
        }
        if let Some(holding) = holding {
            let new = at.saturating_sub(holding.bytes() as usize);
            if received.is_err() || new >= KEPT_AT_ONCE && begun.elapsed() >= SLOW {
                holding.keep(&data[..at]);
            }
        }
        received?;
    }
    Ok(())
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
        let mut load = LoadFile::create(root.path(), 0).unwrap();
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
