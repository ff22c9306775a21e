//! A scan that arrives from another site: blocks in any order, written where they were, continued after any end.
//!
//! ```text
//! begin ─► check, write … from many threads ─► sync, again and again ─► seal
//!   ▲                                             │
//!   └───────────── after any end ─────────────────┘
//! ```
//!
//! - `validate`: nothing from another host is believed
//! - `begin`: makes the directories of a copy, or finds an interrupted one
//! - `state`: the blocks: being written, written, durable
//! - `chunks`: the chunk files, on the member with the most room
//! - `rounds`: sync rounds, in the order of the recorder's writer
//! - `seal`: the end
//!
//! The copy has the layout of a recording, with an index of each stream on each member. Its manifest says `recording`,
//! with a `copied` that is not completed, until it is sealed.

mod begin;
mod chunks;
mod error;
mod rounds;
mod seal;
mod state;
#[cfg(test)]
mod tests;
mod validate;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use fullbore_core::account::Account;
use fullbore_core::block_set::BlockSet;
use fullbore_core::index::{Codec, RECORD_BYTES};
use fullbore_core::layout::ALIGNMENT;
use fullbore_core::manifest::Manifest;
use fullbore_core::name::ScanName;

use self::chunks::{Place, by_room, write_at};
pub use self::error::{BlockError, LandingError};
use self::rounds::Rounds;
use self::state::State;
use self::validate::Arrival;
use crate::Member;
use crate::inventory::side_file;
use crate::journal::SyncTarget;

/// The file, in the side directory of the first stream on the first member, in which a receiver keeps the beginnings of
/// blocks until they arrive whole.
pub const HELD_FILE: &str = "held";

/// Returns the path of [`HELD_FILE`] of a copy with this first member.
pub fn held_path(first: &Member, manifest: &Manifest) -> PathBuf {
    side_file(&first.root().join(&manifest.streams[0].directory), HELD_FILE)
}

/// The origin of a copy.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The name of the sending host.
    pub host: String,
    /// The fingerprint of its key, as hexadecimal digits.
    pub key: String,
}

/// A scan that arrives. All methods may be called from any thread.
///
/// [`write`](Self::write) may run in many threads at once; they wait for each other only for the bookkeeping.
#[derive(Debug)]
pub struct Landing {
    scan: ScanName,
    codec: Codec,
    places: Vec<Place>,
    state: Mutex<State>,
    rounds: Mutex<Rounds>,
    /// Bytes written since the last sync began.
    fresh: AtomicU64,
    /// The number of chunks begun, for the choice among equal members.
    turn: AtomicUsize,
}

/// What a block's records say, after they were checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The stream.
    pub stream: u16,
    /// The sequence.
    pub sequence: u64,
    /// Bytes of data that follow.
    pub bytes: u32,
    /// True if the block is durable or being written already, so that its data is to be skipped.
    pub known: bool,
}

/// A scan that was sealed at the end of its transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// Blocks of all streams.
    pub blocks: u64,
    /// Bytes of all streams.
    pub bytes: u64,
    /// See [`crate::copies::digest`].
    pub digest: [u8; 32],
}

impl Landing {
    /// Begins a copy of a scan with this manifest on these members, or continues the copy that is there. `bytes` is the
    /// size of all streams as far as it is known: the copy begins only if there is room for the rest of it.
    pub fn begin(
        members: &[Member],
        manifest: &Manifest,
        origin: &Origin,
        bytes: u64,
    ) -> Result<Self, LandingError> {
        begin::begin(members, manifest, origin, bytes)
    }

    /// The name of the scan.
    pub fn scan(&self) -> &ScanName {
        &self.scan
    }

    /// The roots of the members that the scan is on.
    pub fn roots(&self) -> Vec<PathBuf> {
        self.places.iter().map(|place| place.member.root().to_owned()).collect()
    }

    /// The path of [`HELD_FILE`], for the caller.
    pub fn held_path(&self) -> PathBuf {
        held_path(&self.places[0].member, &self.rounds().manifest)
    }

    /// The blocks that are durable.
    pub fn durable(&self) -> BTreeMap<u16, BlockSet> {
        let state = self.state();
        let streams = state.streams.iter().zip(0..).filter(|(it, _)| !it.durable.is_empty());
        streams.map(|(stream, number)| (number, stream.durable.clone())).collect()
    }

    /// Takes on a new manifest of a scan that is still being recorded: streams may have been added.
    pub fn update(&self, manifest: &Manifest) -> Result<(), LandingError> {
        self.take_manifest(&mut self.rounds(), manifest)
    }

    /// Checks the records of a block, before its data is read.
    pub fn check(&self, records: &[[u8; RECORD_BYTES]]) -> Result<Expected, BlockError> {
        let arrival = self.arrival(records)?;
        let known = self.state().check(&arrival)?;
        let (stream, sequence) = (arrival.stream, arrival.block.sequence);
        Ok(Expected { stream, sequence, bytes: arrival.block.bytes, known })
    }

    /// Writes a block whose records were checked. `data` is the memory of a block: aligned, and long enough for whole
    /// pages. Returns when the data is written; a later [`sync`](Self::sync) makes it durable. A block that another thread
    /// is writing, or has written, is not written again.
    pub fn write(&self, records: &[[u8; RECORD_BYTES]], data: &mut [u8]) -> Result<(), BlockError> {
        let arrival = self.arrival(records)?;
        let bytes = arrival.block.bytes as usize;
        let padded = bytes.next_multiple_of(ALIGNMENT as usize);
        if data.len() < padded {
            return Err(BlockError::Invalid(format!(
                "block {} does not fit into {} bytes of memory",
                arrival.block.sequence,
                data.len()
            )));
        }
        if crc32c::crc32c(&data[..bytes]) != arrival.block.crc {
            return Err(BlockError::Damaged);
        }
        data[bytes..padded].fill(0);
        self.put(arrival, &data[..padded])
    }

    /// Writes the whole pages of a block whose checksum is right.
    fn put(&self, arrival: Arrival, data: &[u8]) -> Result<(), BlockError> {
        let Some(file) = self.state().claim(&arrival)? else { return Ok(()) };
        let offset = arrival.block.offset;
        let order = || {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed);
            by_room(&self.places, file.chunk_bytes(), turn)
        };
        let opened = file.open(&self.places, order, offset + data.len() as u64);
        let written = opened.and_then(|opened| {
            let access = self.places[opened.member].member.access();
            match write_at(&opened.file, access, offset, data) {
                Ok(()) => Ok(opened.member),
                Err(source) => {
                    Err(LandingError::Write { path: file.path_of(&self.places), source })
                }
            }
        });
        let mut state = self.state();
        let member = match written {
            Ok(member) => member,
            Err(error) => {
                state.give_up(&arrival);
                return Err(error.into());
            }
        };
        if file.take_new_name() {
            state.touched(usize::from(arrival.stream), member, SyncTarget::Side);
        }
        self.fresh.fetch_add(arrival.block.bytes.into(), Ordering::Relaxed);
        Ok(state.landed(self.codec, arrival, member)?)
    }

    /// Bytes written since the last sync began.
    pub fn fresh_bytes(&self) -> u64 {
        self.fresh.load(Ordering::Relaxed)
    }

    /// Carries out a sync round, and returns the blocks that became durable. One thread calls it every 250 ms, or sooner
    /// if [`fresh_bytes`](Self::fresh_bytes) is large.
    pub fn sync(&self) -> Result<BTreeMap<u16, BlockSet>, LandingError> {
        self.round(&mut self.rounds())
    }

    /// Enters records of gaps that arrive before the seal. A copy that is never sealed shows them too.
    pub fn note(&self, records: &[[u8; RECORD_BYTES]]) -> Result<(), LandingError> {
        seal::note_early(self, records)
    }

    /// Makes what has arrived durable, and notes in the manifest that the source could not read this many blocks. The
    /// copy stays incomplete.
    pub fn lacks(&self, blocks: u64) -> Result<(), LandingError> {
        let mut rounds = self.rounds();
        self.round(&mut rounds)?;
        if let Some(copied) = &mut rounds.manifest.copied {
            copied.unreadable_blocks = blocks;
        }
        begin::put_manifests(&self.places, &mut rounds)
    }

    /// Seals the scan with the sender's last manifest, accounts and records of gaps and found blocks. Every block that was
    /// written becomes durable before. Can be repeated.
    pub fn seal(
        &self,
        manifest: &Manifest,
        accounts: &BTreeMap<u16, Account>,
        records: &[[u8; RECORD_BYTES]],
    ) -> Result<Sealed, LandingError> {
        seal::seal(self, &mut self.rounds(), manifest, accounts, records)
    }

    fn arrival(&self, records: &[[u8; RECORD_BYTES]]) -> Result<Arrival, BlockError> {
        validate::arrival(self.codec, records).map_err(BlockError::Invalid)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn rounds(&self) -> MutexGuard<'_, Rounds> {
        self.rounds.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
