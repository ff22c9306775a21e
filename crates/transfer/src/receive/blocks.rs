//! A data connection of the receiving end: takes blocks, checks them, and writes them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use fullbore_store::landing::BlockError;

use super::Arrival;
use crate::channel::Channel;
use crate::error::TransferError;
use crate::protocol::{Message, Record};
use crate::send::Memory;

/// The wait for a block, after which the end is looked for.
const TICK: Duration = Duration::from_millis(200);

/// Receives blocks from a data connection until the transfer or the connection ends. What makes the transfer
/// impossible also ends the control connection.
pub fn receive_blocks(
    arrival: &Arrival,
    channel: &mut Channel,
    peer: &str,
) -> Result<(), TransferError> {
    let mut memory = Memory::default();
    while !arrival.is_over() {
        match channel.receive(TICK)? {
            None => {}
            Some(Message::Block { records, bytes }) => {
                let taken = take_block(arrival, channel, &mut memory, &records, bytes, peer);
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
) -> Result<(), TransferError> {
    let broken = |why: String| TransferError::Protocol { peer: peer.to_owned(), why };
    let expected = arrival.landing.check(records).map_err(|error| fault(error, broken))?;
    if expected.bytes != bytes {
        let why = format!("a block of {} bytes is announced with {bytes}", expected.bytes);
        return Err(broken(why));
    }
    let data = memory.of(bytes as usize)?;
    channel.receive_data(&mut data[..bytes as usize])?;
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
