//! A data connection of the sending end: takes blocks from the schedule, reads them, and sends them.

use std::time::Duration;

use fullbore_linux::ring::Block;
use fullbore_store::read;

use super::Work;
use crate::channel::Channel;
use crate::error::TransferError;
use crate::governor::Allowance;
use crate::protocol::Message;

/// The longest wait for a block or for permission, after which the end is looked for.
const TICK: Duration = Duration::from_millis(50);

/// Sends blocks over a data connection until the transfer ends; only while `number` is below the number of connections
/// that are wanted. If it fails, the caller calls [`Work::lost`].
pub fn send_blocks(
    work: &Work,
    connection: u32,
    channel: &mut Channel,
    number: u16,
    wanted: &dyn Fn() -> u16,
) -> Result<(), TransferError> {
    let mut reader = read::ExtentReader::default();
    let mut memory = Memory::default();
    let mut rate = None;
    while !work.is_over() {
        if number >= wanted() {
            work.rest(TICK);
            continue;
        }
        match work.governor.wait(TICK) {
            Allowance::Pause(_) => continue,
            Allowance::Go(all) => {
                let share = all.map(|all| all / u64::from(wanted().max(1)));
                if share != rate {
                    channel.set_rate(share);
                    rate = share;
                }
            }
        }
        let Some(id) = work.next(connection, TICK) else { continue };
        let Some(block) = work.outgoing().block(id) else {
            work.unreadable(id);
            continue;
        };
        let bytes = block.extent.bytes;
        let data = memory.of(bytes as usize)?;
        if let Err(fault) = reader.read(&block.extent, data) {
            tracing::warn!(stream = id.0, sequence = id.1, ?fault, "block unreadable");
            work.unreadable(id);
            continue;
        }
        let message = Message::Block { records: block.records, bytes };
        channel.send_data(&message, &data[..bytes as usize])?;
    }
    channel.send(&Message::Bye)?;
    Ok(())
}

/// Aligned memory of one block, made larger when a larger block comes.
#[derive(Debug, Default)]
pub(crate) struct Memory(Option<Block>);

impl Memory {
    /// Returns memory for at least this many bytes, in whole pages.
    pub(crate) fn of(&mut self, bytes: usize) -> Result<&mut [u8], TransferError> {
        if self.0.as_ref().is_none_or(|block| block.len() < read::aligned(bytes)) {
            self.0 = None;
            let mut pool = read::pool(1, bytes)
                .map_err(|error| TransferError::Resources(error.to_string()))?;
            self.0 = pool.take();
        }
        Ok(self.0.as_mut().expect("a pool of one block has one"))
    }
}
