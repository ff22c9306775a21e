//! The sending end of a transfer: one scan over a control connection and its data connections.
//!
//! ```text
//!            Offer ─────────►
//!                  ◄───────── Accept: the blocks that are durable there
//!            Block … ═══════► (data connections)
//!                  ◄───────── Durable, Rejected
//! live scan: Update ────────►
//!            Records, Account, Seal ──►
//!                  ◄───────── Receipt
//! ```

mod blocks;
mod rates;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fullbore_core::block_set::BlockSet;
use fullbore_core::manifest::Manifest;
use fullbore_core::name::ScanName;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_store::copies::{self, Digest, Receipt};
use fullbore_store::follow::{FollowState, LOOK};

use self::rates::Rates;
use crate::channel::{Channel, LinkStatus, Path};
use crate::error::TransferError;
use crate::governor::{Allowance, Governor};
use crate::outgoing::{News, Outgoing};
use crate::protocol::Message;
use crate::receive::refusal;
use crate::schedule::{BlockId, Progress, Schedule};
use crate::session::{ACCEPT_PATIENCE, Conversation, PING_INTERVAL, POLL, SEAL_PATIENCE};

pub(crate) use blocks::Memory;
pub use blocks::send_blocks;

/// Index records in one message.
const RECORDS_PER_MESSAGE: usize = 4096;

/// The most blocks of which a receiver may hold the beginning.
const MOST_HELD: usize = 4096;

/// Time in which something must go on while blocks are not durable, nothing holds this end back, and the receiver answers
/// pings: longer than any disk needs. Then the connections are made again.
const STALLED: Duration = Duration::from_secs(300);

/// Time after which the receiver of a scan that is being recorded is told again how much there is of it.
const UPDATE: Duration = Duration::from_secs(30);

/// The state of a transfer that is being sent.
#[derive(Clone, Debug)]
pub struct Sending {
    /// The scan.
    pub scan: ScanName,
    /// True while it is being recorded.
    pub live: bool,
    /// The progress.
    pub progress: Progress,
    /// What the governor allows.
    pub allowance: Allowance,
}

/// A scan that is being sent: what its control and data connections share.
#[derive(Debug)]
pub struct Work {
    scan: ScanName,
    outgoing: Outgoing,
    schedule: Mutex<Schedule>,
    /// Blocks to send, or the end.
    more: Condvar,
    over: AtomicBool,
    governor: Arc<Governor>,
    /// The number of the next data connection.
    connections: AtomicU32,
    /// Bytes of blocks that were given to connections.
    carried: AtomicU64,
    rates: Mutex<Rates>,
    path: Path,
    /// The number of first bytes of blocks that the receiver holds. Each is used once.
    held: Mutex<BTreeMap<BlockId, u32>>,
    /// Why no more blocks can be sent, found by a data connection.
    failed: Mutex<Option<TransferError>>,
}

impl Work {
    /// Takes a scan.
    pub fn new(outgoing: Outgoing, governor: Arc<Governor>) -> Self {
        Self {
            scan: outgoing.manifest().scan,
            outgoing,
            schedule: Mutex::default(),
            more: Condvar::new(),
            over: AtomicBool::new(false),
            governor,
            connections: AtomicU32::new(0),
            carried: AtomicU64::new(0),
            rates: Mutex::default(),
            path: Path::default(),
            held: Mutex::default(),
            failed: Mutex::default(),
        }
    }

    /// Bytes of blocks that were given to connections, repetitions included.
    pub fn carried_bytes(&self) -> u64 {
        self.carried.load(Ordering::Relaxed)
    }

    /// Ends the transfer: what a data connection found makes it impossible.
    fn fail(&self, error: TransferError) {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.end();
    }

    /// A number for a new data connection.
    pub fn connection(&self) -> u32 {
        self.connections.fetch_add(1, Ordering::SeqCst)
    }

    /// True if no block will be sent any more.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// Ends the data connections.
    pub fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
        drop(self.schedule());
        self.more.notify_all();
    }

    /// The progress.
    pub fn progress(&self) -> Progress {
        self.schedule().progress()
    }

    /// Blocks that this end recorded and cannot send: they cannot be read, or are in no index.
    pub fn missing_blocks(&self) -> u64 {
        let absent: u64 = self.outgoing.absent().iter().map(|it| it.count).sum();
        self.progress().missing_blocks + absent
    }

    /// What the governor allows now.
    pub fn allowance(&self) -> Allowance {
        self.governor.now()
    }

    /// Gives back what a lost connection had.
    pub fn lost(&self, connection: u32) {
        self.rates().remove(connection);
        self.schedule().lost(connection);
        self.more.notify_all();
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<BlockId, u32>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rates(&self) -> MutexGuard<'_, Rates> {
        self.rates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn schedule(&self) -> MutexGuard<'_, Schedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the next block for a connection, waiting this long for one.
    fn next(&self, connection: u32, most: Duration) -> Option<BlockId> {
        let mut schedule = self.schedule();
        if let Some(block) = self.take(&mut schedule, connection) {
            return Some(block);
        }
        if self.is_over() {
            return None;
        }
        let waited = self.more.wait_timeout(schedule, most);
        schedule = waited.unwrap_or_else(PoisonError::into_inner).0;
        self.take(&mut schedule, connection)
    }

    /// Takes a block, unless a slow connection should leave it to a faster one.
    fn take(&self, schedule: &mut Schedule, connection: u32) -> Option<BlockId> {
        let progress = schedule.progress();
        let gone = progress.taken_bytes + progress.had_bytes + progress.missing_bytes;
        let left = (progress.bytes + progress.again_bytes).saturating_sub(gone);
        let block = self.outgoing.block_bytes() as u64;
        let (mut rates, now) = (self.rates(), Instant::now());
        if rates.is_too_slow(connection, block, left, now) {
            return None;
        }
        let taken = schedule.take(connection).or_else(|| {
            let overdue = rates.overdue(connection, block, now)?;
            schedule.take_over(overdue, connection).then_some(overdue)
        })?;
        rates.began(connection, taken, now);
        Some(taken)
    }

    /// Waits, or until the transfer ends.
    fn rest(&self, most: Duration) {
        let schedule = self.schedule();
        let over = |_: &mut Schedule| !self.is_over();
        drop(self.more.wait_timeout_while(schedule, most, over));
    }

    fn look(&self) -> Result<News, TransferError> {
        let news = self.outgoing.look()?;
        let mut schedule = self.schedule();
        for &(block, bytes) in &news.blocks {
            schedule.add(block, bytes);
        }
        if !news.blocks.is_empty() {
            self.more.notify_all();
        }
        Ok(news)
    }

    /// Sends the scan over this control connection, up to the receipt. `tell` is called a few times per second. The
    /// caller serves the data connections, from the moment `accepted` is called with their token and number.
    pub fn control(
        &self,
        channel: &mut Channel,
        peer: &str,
        stop: &StopHandle,
        accepted: &mut dyn FnMut([u8; 16], u16),
        tell: &mut dyn FnMut(&Sending, Option<LinkStatus>),
    ) -> Result<Receipt, TransferError> {
        let result = self.converse(channel, peer, stop, accepted, tell);
        self.end();
        result
    }

    fn converse(
        &self,
        channel: &mut Channel,
        peer: &str,
        stop: &StopHandle,
        accepted: &mut dyn FnMut([u8; 16], u16),
        tell: &mut dyn FnMut(&Sending, Option<LinkStatus>),
    ) -> Result<Receipt, TransferError> {
        let mut talk = Conversation::new(channel, peer);
        let first = self.look()?;
        let mut state = first.state;
        talk.send(&self.offer(state))?;
        if let Some(receipt) = self.await_accept(&mut talk, accepted)? {
            return self.receipt(peer, receipt);
        }
        let is_early = state.is_over();
        if is_early {
            // A copy that stays incomplete shows the gaps of the scan, too.
            self.send_records(&mut talk)?;
        }
        // The caller opens the data connections when it is told.
        tell(&self.state(!state.is_over()), talk.link());
        let (mut looked, mut told, mut sealing) = (Instant::now(), Instant::now(), false);
        let mut advance = Advance::default();
        let mut updated = Instant::now();
        loop {
            if stop.is_requested() {
                let _ = talk.send(&Message::Bye);
                return Err(TransferError::Stopped);
            }
            if let Some(error) = self.failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
                let _ = talk.send(&refusal::of(&error));
                return Err(error);
            }
            let mut wait = POLL;
            while let Some(message) = talk.receive(wait)? {
                if let Some(receipt) = self.answer(&talk, message)? {
                    return self.receipt(peer, receipt);
                }
                wait = Duration::ZERO;
            }
            if !state.is_over() && looked.elapsed() >= LOOK {
                let news = self.look()?;
                state = news.state;
                let is_due = news.manifest || updated.elapsed() >= UPDATE;
                if is_due && !state.is_over() {
                    updated = Instant::now();
                    talk.send(&Message::Update { manifest: self.manifest().to_json() })?;
                }
                looked = Instant::now();
            }
            if told.elapsed() >= Duration::from_millis(200) {
                tell(&self.state(!state.is_over()), talk.link());
                told = Instant::now();
            }
            if state.is_over() && !sealing && self.schedule().is_complete() {
                if state == FollowState::Died {
                    let error = self.died();
                    let _ = talk.send(&refusal::of(&error));
                    return Err(error);
                }
                if !is_early {
                    self.send_records(&mut talk)?;
                }
                self.seal(&mut talk)?;
                sealing = true;
            }
            if advance.is_overdue(self) {
                let (peer, seconds) = (peer.to_owned(), STALLED.as_secs());
                return Err(TransferError::Stalled { peer, seconds });
            }
            talk.keep_alive(PING_INTERVAL, sealing.then_some(SEAL_PATIENCE))?;
        }
    }

    /// Why there is no seal to send.
    fn died(&self) -> TransferError {
        let scan = self.scan.clone();
        match self.outgoing.incomplete_from() {
            Some(host) => TransferError::Incomplete { scan, host },
            None => TransferError::Died { scan },
        }
    }

    fn state(&self, live: bool) -> Sending {
        let (scan, progress) = (self.scan.clone(), self.progress());
        Sending { scan, live, progress, allowance: self.allowance() }
    }

    /// The manifest as it goes to the receiver.
    pub fn manifest(&self) -> Manifest {
        self.outgoing.manifest()
    }

    fn offer(&self, state: FollowState) -> Message {
        let bytes = self.progress().bytes;
        Message::Offer { manifest: self.manifest().to_json(), live: !state.is_over(), bytes }
    }

    /// Waits for the answer to the offer. A receiver that has all of the scan answers with its receipt.
    fn await_accept(
        &self,
        talk: &mut Conversation<'_>,
        accepted: &mut dyn FnMut([u8; 16], u16),
    ) -> Result<Option<Receipt>, TransferError> {
        let until = Instant::now() + ACCEPT_PATIENCE;
        loop {
            match talk.receive(POLL)? {
                Some(Message::Accept { token, connections, durable }) => {
                    for (stream, blocks) in durable {
                        self.has(stream, &blocks);
                    }
                    accepted(token, connections);
                    return Ok(None);
                }
                Some(message) => {
                    if let Some(receipt) = self.answer(talk, message)? {
                        return Ok(Some(receipt));
                    }
                }
                None if Instant::now() > until => return Err(talk.silent()),
                None => talk.keep_alive(PING_INTERVAL, Some(ACCEPT_PATIENCE))?,
            }
        }
    }

    fn has(&self, stream: u16, blocks: &BlockSet) {
        self.schedule().has(stream, blocks);
    }

    /// Acts on a message of the receiver. Returns its receipt.
    fn answer(
        &self,
        talk: &Conversation<'_>,
        message: Message,
    ) -> Result<Option<Receipt>, TransferError> {
        match message {
            Message::Durable { stream, blocks } => {
                self.schedule().durable(stream, &blocks).map_err(|why| talk.broken(why))?;
            }
            Message::Held { stream, sequence, bytes } => {
                let mut held = self.held();
                if held.len() < MOST_HELD {
                    held.insert((stream, sequence), bytes);
                }
            }
            Message::Rejected { stream, sequence, text } => {
                tracing::warn!(stream, sequence, text, "block rejected");
                self.schedule().rejected((stream, sequence));
                self.more.notify_all();
            }
            Message::Receipt { scan, blocks, bytes, digest, at } => {
                return Ok(Some(Receipt {
                    host: talk.peer().to_owned(),
                    key: talk.key(),
                    scan,
                    blocks,
                    bytes,
                    digest: Digest(digest),
                    at,
                }));
            }
            other => return Err(talk.unexpected(&other)),
        }
        Ok(None)
    }

    /// Sends what belongs to no block: gaps and found blocks.
    fn send_records(&self, talk: &mut Conversation<'_>) -> Result<(), TransferError> {
        for records in self.outgoing.records().chunks(RECORDS_PER_MESSAGE) {
            talk.send(&Message::Records { records: records.to_vec() })?;
        }
        Ok(())
    }

    /// Sends the accounts and the end.
    fn seal(&self, talk: &mut Conversation<'_>) -> Result<(), TransferError> {
        let outgoing = &self.outgoing;
        for (stream, account) in outgoing.accounts() {
            talk.send(&Message::Account { stream, json: account.to_json() })?;
        }
        let missing = self.missing_blocks();
        talk.send(&Message::Seal { manifest: outgoing.manifest().to_json(), missing })
    }

    /// Checks the receipt against the scan.
    fn receipt(&self, peer: &str, receipt: Receipt) -> Result<Receipt, TransferError> {
        let outgoing = &self.outgoing;
        let missing = self.schedule().missing_blocks();
        let wrong = |why: &str| TransferError::WrongReceipt {
            peer: peer.to_owned(),
            scan: self.scan.clone(),
            why: why.to_owned(),
        };
        if receipt.scan != outgoing.manifest().uuid {
            return Err(wrong("its identity differs"));
        }
        if !outgoing.state().is_over() {
            return Err(wrong("the scan is not over"));
        }
        let all = self.progress();
        let sent = (all.blocks - all.missing_blocks, all.bytes - all.missing_bytes);
        if (receipt.blocks, receipt.bytes) != sent {
            let (there, here) = (receipt.blocks, sent.0);
            return Err(wrong(&format!("{there} blocks are there, and {here} here")));
        }
        if receipt.digest.0 != outgoing.digest(&missing) {
            return Err(wrong("the digest of the blocks differs"));
        }
        Ok(receipt)
    }
}

/// Tells when nothing has gone on for too long.
#[derive(Debug)]
struct Advance {
    since: Instant,
    seen: (u64, u64),
}

impl Default for Advance {
    fn default() -> Self {
        Self { since: Instant::now(), seen: (0, 0) }
    }
}

impl Advance {
    fn is_overdue(&mut self, work: &Work) -> bool {
        let seen = (work.carried_bytes(), work.progress().durable_bytes);
        let may_rest =
            work.schedule().is_complete() || !matches!(work.allowance(), Allowance::Go(_));
        if seen != self.seen || may_rest {
            (self.since, self.seen) = (Instant::now(), seen);
        }
        self.since.elapsed() > STALLED
    }
}

/// Keeps a receipt beside the scan.
pub fn keep_receipt(
    roots: &[PathBuf],
    scan: &ScanName,
    receipt: &Receipt,
) -> Result<(), TransferError> {
    for (member, why) in copies::add(roots, scan, receipt)? {
        tracing::warn!(member = %member.display(), why, "receipt not stored");
    }
    Ok(())
}
