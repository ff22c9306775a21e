//! A data connection of the sending end: takes blocks from the schedule, reads them, and sends them.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fullbore_linux::ring::Block;
use fullbore_store::read;

use super::Work;
use crate::channel::Channel;
use crate::error::TransferError;
use crate::governor::{self, Allowance};
use crate::outgoing::{SourceBlock, Unread};
use crate::protocol::Message;
use crate::schedule::BlockId;
use crate::session::unexpected;

/// The longest wait for a block or for permission, after which the end is looked for.
const TICK: Duration = Duration::from_millis(50);

/// Bytes that are granted and sent at a time: few enough that a slow link takes them soon, and a pause is felt at once.
const PIECE: usize = 256 << 10;

/// Sends blocks over a data connection until the transfer ends; only while `number` is below the number of connections
/// that are wanted. If it fails, the caller calls [`Work::lost`].
pub fn send_blocks(
    work: &Work,
    connection: u32,
    channel: &mut Channel,
    number: u16,
    wanted: &dyn Fn() -> u16,
) -> Result<(), TransferError> {
    let (mut memory, mut pace, mut beside) = (Memory::default(), Pace::default(), false);
    channel.join(&work.path);
    while !work.is_over() {
        if !beside && work.governor.is_recording() {
            governor::beside();
            beside = true;
        }
        if number >= wanted() {
            work.rest(TICK);
            check_open(channel)?;
            continue;
        }
        let Allowance::Go(cap) = work.governor.wait(TICK) else {
            check_open(channel)?;
            continue;
        };
        if let Some(rate) = channel.tend() {
            work.rates().measured(connection, rate, Instant::now());
        }
        pace.follow(channel, cap, wanted());
        let Some(block) = work.next(connection, TICK) else {
            check_open(channel)?;
            continue;
        };
        let data = memory.of(work.outgoing.block_bytes())?;
        match work.outgoing.fetch(block, data) {
            Ok(source) => send_block(work, block, channel, source, data)?,
            Err(why) => unread(work, block, &why),
        }
        work.rates().ended(connection);
    }
    channel.send(&Message::Bye)?;
    Ok(())
}

/// Fails if the connection is lost: blocks that went on it may not have arrived, and must go on another one. A connection
/// on which nothing is sent would not tell otherwise.
fn check_open(channel: &mut Channel) -> Result<(), TransferError> {
    let Some(message) = channel.receive(Duration::ZERO)? else { return Ok(()) };
    let peer = channel.address().to_string();
    match message {
        Message::Refuse { refusal, text } => Err(TransferError::Refused { peer, refusal, text }),
        other => Err(unexpected(&peer, &other)),
    }
}

/// A block that cannot be read now is read again later, and one that is lost is missing. If the scan is gone, the
/// transfer ends.
fn unread(work: &Work, block: BlockId, why: &Unread) {
    let (stream, sequence) = block;
    tracing::warn!(stream, sequence, %why, "block not read");
    match why {
        Unread::Later(_) => {
            work.schedule().rejected(block);
            // It is the first block to be taken again, and the reason does not pass at once.
            work.rest(TICK);
        }
        Unread::Lost(_) => work.schedule().missing(block),
        Unread::Removed => work.fail(TransferError::Removed { scan: work.scan.clone() }),
    }
}

/// The rate at which TCP itself spreads the packets of a connection: without it, a capped transfer sends bursts that
/// fill the queue of a bottleneck.
#[derive(Default)]
struct Pace(Option<u64>);

impl Pace {
    /// Gives the connection its share of the cap, and a tenth more, so that the cap is reached.
    fn follow(&mut self, channel: &mut Channel, cap: Option<u64>, connections: u16) {
        let share = cap.map(|cap| cap / 10 * 11 / u64::from(connections.max(1)));
        if share != self.0 {
            channel.set_rate(share);
            self.0 = share;
        }
    }
}

/// Sends a block in pieces, each when the governor grants it; without the beginning, if the receiver holds that.
fn send_block(
    work: &Work,
    block: BlockId,
    channel: &mut Channel,
    source: SourceBlock,
    data: &[u8],
) -> Result<(), TransferError> {
    let held = work.held().remove(&block).filter(|held| *held <= source.extent.bytes);
    let mut rest = &data[held.unwrap_or(0) as usize..source.extent.bytes as usize];
    let bytes = rest.len() as u32;
    channel.begin_data(&Message::Block { records: source.records, bytes })?;
    while !rest.is_empty() {
        let granted = work.governor.grant(rest.len().min(PIECE) as u64, TICK);
        let (piece, behind) = rest.split_at(granted as usize);
        channel.send_piece(piece)?;
        work.carried.fetch_add(granted, Ordering::Relaxed);
        rest = behind;
        if granted == 0 && work.is_over() {
            // Half a block is no message: the connection ends here.
            return Err(TransferError::Stopped);
        }
    }
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
