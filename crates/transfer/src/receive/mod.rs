//! The receiving end of a transfer: one scan over a control connection and its data connections.
//!
//! ```text
//! data connections ──► Arrival ──► Landing::write ──► files
//!                                  Landing::sync   ──► Durable ──► control connection
//! ```

mod blocks;
mod held;
pub(crate) mod refusal;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel as queue};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use fullbore_core::account::Account;
use fullbore_core::manifest::Manifest;
use fullbore_core::name::ScanName;
use fullbore_linux::clock::Clock;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_store::landing::{self, Landing, LandingError, Origin, Sealed};
use fullbore_store::{Member, MemberError};
use uuid::Uuid;

use crate::channel::{Channel, LinkStatus};
use crate::error::TransferError;
use crate::protocol::{Message, Record, Refusal};
use crate::session::{Conversation, PING_INTERVAL, POLL};

pub use blocks::{Intake, receive_blocks};
use held::HeldBlocks;

/// Time between two sync rounds while more blocks are to come.
pub(crate) const ROUND: Duration = Duration::from_millis(250);

/// Bytes after which a sync round begins early.
pub(crate) const ROUND_BYTES: u64 = 256 << 20;

/// Time between two looks of the sync rounds. A disk wakes nobody when enough bytes have arrived.
const TICK: Duration = Duration::from_millis(5);

/// The wait for a message once all blocks have arrived: their acknowledgements are due at once.
const LAST_POLL: Duration = Duration::from_millis(2);

/// The most records of gaps and found blocks of a scan: 128 MiB of memory.
const MOST_RECORDS: usize = 1 << 20;

/// A scan that is being received: what its control and data connections share.
#[derive(Debug)]
pub struct Arrival {
    /// The scan.
    pub scan: ScanName,
    /// Its identity.
    pub uuid: Uuid,
    landing: Landing,
    held: HeldBlocks,
    over: AtomicBool,
    bytes: AtomicU64,
    /// Bytes of new blocks that arrived whole in this transfer.
    whole_bytes: AtomicU64,
    /// Bytes of a sealed scan. Once they have arrived, no sync round waits for more. A live scan has no such number.
    all_bytes: Option<u64>,
    /// Answers from data connections and the sync thread, for the control connection.
    answers: Sender<Answer>,
    answered: Mutex<Option<Receiver<Answer>>>,
}

/// An answer to the sender, or the failure of a thread.
#[derive(Debug)]
enum Answer {
    Message(Message),
    Failed(TransferError),
}

/// The state of a transfer that is being received.
#[derive(Clone, Debug)]
pub struct Receiving {
    /// The scan.
    pub scan: ScanName,
    /// Bytes that arrived.
    pub bytes: u64,
    /// Bytes of the whole scan as far as the sender knows it.
    pub expected: u64,
}

/// The terms of a transfer that this end accepts.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The token of its data connections.
    pub token: [u8; 16],
    /// The most data connections.
    pub connections: u16,
    /// Bytes of the scan as offered.
    pub expected: u64,
}

/// The size of an offered scan.
#[derive(Clone, Copy, Debug)]
pub struct Offered {
    /// Bytes of its blocks so far.
    pub bytes: u64,
    /// True while it is being recorded: more can come.
    pub live: bool,
}

/// The answer to an offer.
#[derive(Debug)]
pub enum Taken {
    /// The scan can be received.
    Arrival(Box<Arrival>),
    /// The scan is here already: it needs only its receipt.
    Complete(Box<Manifest>, Sealed),
}

/// Takes an offered scan onto these members.
pub fn take(
    members: &[Member],
    manifest: &[u8],
    offered: Offered,
    origin: &Origin,
) -> Result<Taken, (Refusal, TransferError)> {
    let invalid = |why: String| {
        (Refusal::Invalid, TransferError::Protocol { peer: origin.host.clone(), why })
    };
    let manifest = Manifest::from_json(manifest).map_err(|error| invalid(error.to_string()))?;
    let landing = match Landing::begin(members, &manifest, origin, offered.bytes) {
        Ok(landing) => landing,
        Err(LandingError::Complete { sealed, .. }) => {
            held::remove(&landing::held_path(&members[0], &manifest));
            return Ok(Taken::Complete(Box::new(manifest), sealed));
        }
        Err(error) => return Err((refusal_of(&error), error.into())),
    };
    let held = HeldBlocks::open(landing.held_path(), |record, bytes| {
        let block = landing.check(std::slice::from_ref(record));
        block.is_ok_and(|block| !block.known && bytes <= block.bytes)
    });
    let (answers, answered) = queue();
    Ok(Taken::Arrival(Box::new(Arrival {
        scan: manifest.scan,
        uuid: manifest.uuid,
        landing,
        held,
        over: AtomicBool::new(false),
        bytes: AtomicU64::new(0),
        whole_bytes: AtomicU64::new(0),
        all_bytes: (!offered.live).then_some(offered.bytes),
        answers,
        answered: Mutex::new(Some(answered)),
    })))
}

pub(crate) fn refusal_of(error: &LandingError) -> Refusal {
    match error {
        LandingError::Exists { .. } | LandingError::Recovered { .. } => Refusal::Exists,
        LandingError::Unreadable { .. } => Refusal::Incomplete,
        LandingError::Busy { .. } => Refusal::Busy,
        LandingError::NoSpace { .. } => Refusal::NoRoom,
        LandingError::TooSmall { .. } => Refusal::Unable,
        LandingError::Manifest(_) | LandingError::Records(_) => Refusal::Invalid,
        error => refusal::of_system(error),
    }
}

/// Opens the members of a disk set.
pub fn open_members(paths: &[std::path::PathBuf]) -> Result<Vec<Member>, MemberError> {
    paths.iter().map(|path| Member::open(path)).collect()
}

/// The receipt of a sealed copy.
pub fn receipt(uuid: Uuid, sealed: &Sealed) -> Message {
    let Sealed { blocks, bytes, digest } = *sealed;
    Message::Receipt { scan: uuid, blocks, bytes, digest, at: Clock::new().now() }
}

impl Arrival {
    /// True if no block will be taken any more.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// Ends the data connections and the sync rounds.
    pub fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    /// Makes what has arrived durable when the transfer ends early, so that it is not sent again. It waits until no data
    /// connection writes any more, which the caller provides for.
    pub fn keep(&self) {
        // Blocks that are not durable are sent again.
        if let Err(error) = self.landing.sync() {
            tracing::debug!(%error, "last round of an interrupted transfer");
        }
    }

    /// Bytes of the blocks that arrived.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// True if all blocks have arrived in this transfer, so that no more are to come.
    fn has_all(&self) -> bool {
        self.all_bytes.is_some_and(|all| self.whole_bytes.load(Ordering::SeqCst) >= all)
    }

    fn fail(&self, error: TransferError) {
        // The control connection is gone, and with it the transfer.
        let _ = self.answers.send(Answer::Failed(error));
    }

    fn reply(&self, message: Message) {
        let _ = self.answers.send(Answer::Message(message));
    }

    /// Receives the scan over this control connection, up to the seal. The caller serves the data connections.
    pub fn control(
        &self,
        channel: &mut Channel,
        peer: &str,
        terms: Terms,
        stop: &StopHandle,
        tell: &mut dyn FnMut(&Receiving, Option<LinkStatus>),
    ) -> Result<Sealed, TransferError> {
        let answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner).take();
        let answered = answered.expect("an arrival has one control connection");
        let durable = self.landing.durable().into_iter().collect();
        let Terms { token, connections, expected } = terms;
        std::thread::scope(|scope| {
            let rounds = scope.spawn(|| self.sync_rounds());
            let mut talk = Conversation::new(channel, peer);
            let result = self
                .tell_held(&mut talk)
                .and_then(|()| talk.send(&Message::Accept { token, connections, durable }))
                .and_then(|()| self.converse(&mut talk, &answered, expected, stop, tell));
            self.end();
            // A panic of the thread is a fault of the program.
            rounds.join().expect("the sync rounds do not panic");
            if let Err(error) = &result {
                // The peer may be gone.
                let _ = talk.send(&refusal::of(error));
            }
            result
        })
    }

    /// Tells the sender of which blocks the beginning is here.
    fn tell_held(&self, talk: &mut Conversation<'_>) -> Result<(), TransferError> {
        for (record, bytes) in self.held.all() {
            let Ok(block) = self.landing.check(&[record]) else { continue };
            let (stream, sequence) = (block.stream, block.sequence);
            talk.send(&Message::Held { stream, sequence, bytes })?;
        }
        Ok(())
    }

    fn converse(
        &self,
        talk: &mut Conversation<'_>,
        answered: &Receiver<Answer>,
        expected: u64,
        stop: &StopHandle,
        tell: &mut dyn FnMut(&Receiving, Option<LinkStatus>),
    ) -> Result<Sealed, TransferError> {
        let mut last = Last::default();
        let state = || Receiving { scan: self.scan.clone(), bytes: self.bytes(), expected };
        // The caller opens the data connections when it is told.
        tell(&state(), talk.link());
        let mut told = Instant::now();
        loop {
            if stop.is_requested() {
                return Err(TransferError::Stopped);
            }
            for answer in answered.try_iter() {
                match answer {
                    Answer::Message(message) => talk.send(&message)?,
                    Answer::Failed(error) => return Err(error),
                }
            }
            let wait = if self.has_all() { LAST_POLL } else { POLL };
            while let Some(message) = talk.receive(wait)? {
                if let Some(manifest) = self.hear(talk, message, &mut last)? {
                    return self.seal(talk, &manifest, last);
                }
            }
            if told.elapsed() >= Duration::from_millis(200) {
                tell(&state(), talk.link());
                told = Instant::now();
            }
            talk.keep_alive(PING_INTERVAL, None)?;
        }
    }

    /// Acts on a message of the sender. Returns the manifest to seal with.
    fn hear(
        &self,
        talk: &Conversation<'_>,
        message: Message,
        last: &mut Last,
    ) -> Result<Option<Manifest>, TransferError> {
        let manifest = |json: &[u8]| {
            let manifest = Manifest::from_json(json);
            manifest.map_err(|error| talk.broken(error.to_string()))
        };
        match message {
            Message::Update { manifest: json } => self.landing.update(&manifest(&json)?)?,
            Message::Records { records } => {
                if last.records.len() + records.len() > MOST_RECORDS {
                    return Err(talk.broken("too many records of gaps".to_owned()));
                }
                self.landing.note(&records)?;
                last.records.extend(records);
            }
            Message::Account { stream, json } => {
                let account = serde_json::from_slice(&json);
                let account = account.map_err(|error| talk.broken(error.to_string()))?;
                last.accounts.insert(stream, account);
            }
            Message::Seal { manifest: json, missing } => {
                if missing > 0 {
                    self.landing.update(&manifest(&json)?)?;
                    self.landing.lacks(missing)?;
                    return Err(LandingError::Unreadable { blocks: missing }.into());
                }
                return Ok(Some(manifest(&json)?));
            }
            other => return Err(talk.unexpected(&other)),
        }
        Ok(None)
    }

    fn seal(
        &self,
        talk: &mut Conversation<'_>,
        manifest: &Manifest,
        last: Last,
    ) -> Result<Sealed, TransferError> {
        self.end();
        let sealed = self.landing.seal(manifest, &last.accounts, &last.records)?;
        self.held.remove();
        talk.send(&receipt(self.uuid, &sealed))?;
        Ok(sealed)
    }

    /// Makes blocks durable, again and again, and tells the sender.
    fn sync_rounds(&self) {
        let mut begun = Instant::now();
        while !self.is_over() {
            std::thread::sleep(TICK);
            let is_due = begun.elapsed() >= ROUND || self.has_all();
            let fresh = self.landing.fresh_bytes();
            if fresh < ROUND_BYTES && !is_due || fresh == 0 && begun.elapsed() < ROUND {
                continue;
            }
            begun = Instant::now();
            match self.landing.sync() {
                Ok(durable) => {
                    for (stream, blocks) in durable {
                        self.reply(Message::Durable { stream, blocks });
                    }
                }
                Err(error) => return self.fail(error.into()),
            }
        }
    }
}

/// What the sender says at the end.
#[derive(Debug, Default)]
struct Last {
    records: Vec<Record>,
    accounts: BTreeMap<u16, Account>,
}
