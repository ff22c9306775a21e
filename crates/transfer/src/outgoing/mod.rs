//! The blocks of a scan that is sealed or being recorded, with their index records.
//!
//! A [`Follower`] finds the durable blocks while the scan is recorded. Once the scan is over, it opens the scan like any
//! other: positions of blocks change, blocks behind a hole appear, and parity can restore lost ones. So blocks are known
//! by their sequence here, never by position.
//!
//! **Chunk numbers.** Records go out as the index has them: with the number of the chunk when it was written. Files get
//! other numbers only when the scan is sealed, after a member failed ([`fullbore_store::renumber`]). A transfer can begin
//! before that and end after it, or continue days later in another process, and all its blocks must agree on the meaning
//! of a number: otherwise two chunks would share a file at the receiver. The number in the index is the only one that
//! never changes. The copy therefore holds files by their index numbers until its own seal, and the manifest that goes
//! out says so: its `renamed` has the final numbers in the stage *setting-aside*, without numbers before it. That is the
//! true state of the copy: any reader understands it, and `recover` finishes it. The receiver puts the files in order at
//! its seal, by its own index, as a recorder does.

mod lanes;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use fullbore_core::account::Account;
use fullbore_core::chunk_map::{ChunkMap, RenumberStage, Renumbering};
use fullbore_core::gap::Ranges;
use fullbore_core::hint::Hint;
use fullbore_core::index::{Codec, Entry, LENGTHS};
use fullbore_core::manifest::{Manifest, State};
use fullbore_core::name::ScanName;
use fullbore_store::copies;
use fullbore_store::follow::{self, FollowState, Follower};
use fullbore_store::read::{BlockExtent, Fault, Settings};
use fullbore_store::reader::{BlockLocation, Scan, StoredStream};

use self::lanes::Lanes;
use crate::protocol::Record;
use crate::recordings::Recordings;
use crate::schedule::BlockId;

/// The age at which the answer to "is a scan being recorded here?" is found out again.
const RECHECK: Duration = Duration::from_millis(100);

/// A scan to send. Any thread may call its methods.
#[derive(Debug)]
pub struct Outgoing {
    follower: RwLock<Follower>,
    told: Mutex<Told>,
    lanes: Lanes,
    beside: Mutex<Beside>,
}

/// The part of the scan that [`Outgoing::look`] has reported.
#[derive(Debug)]
struct Told {
    streams: Vec<Sequences>,
    manifest: Manifest,
    /// True if the blocks of the whole scan were reported.
    whole: bool,
}

/// The reported blocks of a stream.
#[derive(Debug, Default)]
struct Sequences {
    /// The number of positions looked at.
    positions: usize,
    reported: Ranges,
}

/// Whether a scan is being recorded on the same members.
#[derive(Debug)]
struct Beside {
    recordings: Recordings,
    looked: Option<Instant>,
    recording: bool,
}

/// A scan that cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum OutgoingError {
    /// The scan cannot be opened, or not any more.
    #[error(transparent)]
    Follow(#[from] follow::Error),
}

impl Hint for OutgoingError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            OutgoingError::Follow(error) => error.hint(),
        }
    }
}

/// A block to send.
#[derive(Clone, Debug)]
pub struct SourceBlock {
    /// Its location on the disk, and its CRC32C.
    pub extent: BlockExtent,
    /// Its block record and its records of lengths, with chunk numbers as the index has them.
    pub records: Vec<Record>,
}

/// A block that was not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unread {
    /// It cannot be read while the scan is recorded or sealed; it must be tried again, at the latest once that is over.
    #[error("not readable at the moment: {0}")]
    Later(String),
    /// It is lost, and no parity restores it.
    #[error("{0}")]
    Lost(String),
    /// The scan was removed.
    #[error("the scan was removed")]
    Removed,
}

/// Recorded blocks that are in no index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbsentBlocks {
    /// The stream.
    pub stream: u16,
    /// Sequence of the first block.
    pub first: u64,
    /// The number of blocks.
    pub count: u64,
}

/// The result of a look at a scan.
#[derive(Clone, Debug)]
pub struct News {
    /// New durable blocks, each with its length.
    pub blocks: Vec<(BlockId, u32)>,
    /// The state of the scan.
    pub state: FollowState,
    /// True if the manifest has changed.
    pub manifest: bool,
}

impl Outgoing {
    /// Opens a scan.
    pub fn open(roots: &[PathBuf], scan: &ScanName) -> Result<Self, OutgoingError> {
        let follower = Follower::open(roots, scan)?;
        let manifest = follower.scan().manifest.clone();
        Ok(Self {
            follower: RwLock::new(follower),
            told: Mutex::new(Told { streams: Vec::new(), manifest, whole: false }),
            lanes: Lanes::default(),
            beside: Mutex::new(Beside {
                recordings: Recordings::on(roots),
                looked: None,
                recording: false,
            }),
        })
    }

    /// The manifest as it goes to the receiver: without members, redundancy and placement of this host. While it is
    /// recorded, it has the blocks and bytes so far.
    pub fn manifest(&self) -> Manifest {
        let follower = self.read_follower();
        let scan = follower.scan();
        let mut sent = as_sent(&scan.manifest);
        if sent.state == State::Recording {
            for (stream, stored) in sent.streams.iter_mut().zip(&scan.streams) {
                (stream.blocks, stream.bytes) = (stored.blocks.len() as u64, stored.bytes());
            }
        }
        sent
    }

    /// The host that an incomplete copy comes from, if the scan is one.
    pub fn incomplete_from(&self) -> Option<String> {
        self.read_follower().scan().manifest.incomplete_copy().map(|copied| copied.host.clone())
    }

    /// The state of the scan at the last look.
    pub fn state(&self) -> FollowState {
        self.read_follower().status()
    }

    /// The size of its largest block so far: memory for [`read`](Self::read) must be as long, in whole pages.
    pub fn block_bytes(&self) -> usize {
        let follower = self.read_follower();
        follower.scan().streams.iter().map(StoredStream::block_bytes).max().unwrap_or(0)
    }

    /// Finds new durable blocks. The first look at a scan that is over finds all blocks that are in any index, those
    /// included that cannot be read.
    pub fn look(&self) -> Result<News, OutgoingError> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let mut follower = self.write_follower();
        let was_over = follower.status().is_over();
        let state = follower.look()?;
        if state.is_over() && !was_over {
            // The seal may have given files the names of others.
            self.lanes.close_files();
        }
        let scan = follower.scan();
        let blocks = if told.whole { Vec::new() } else { told.report(scan, state.is_over()) };
        // The last manifest follows when its files are settled.
        let manifest = state != FollowState::Sealing && told.manifest != scan.manifest && {
            let before = std::mem::replace(&mut told.manifest, scan.manifest.clone());
            as_sent(&before) != as_sent(&told.manifest)
        };
        Ok(News { blocks, state, manifest })
    }

    /// Returns a block; `None` if its file or member is gone, or its records cannot be read.
    pub fn block(&self, block: BlockId) -> Option<SourceBlock> {
        self.find(block).ok()
    }

    /// Reads a block's bytes to the start of `into`, which is aligned and long enough for whole pages, from parity if
    /// there is no other way. Beside a recorder, one thread at a time reads from each member.
    pub fn read(&self, block: &SourceBlock, into: &mut [u8]) -> Result<(), Fault> {
        self.lanes.read(&block.extent, || self.settings(), into)
    }

    /// Finds and reads a block. It tries again where that may help.
    pub fn fetch(&self, block: BlockId, into: &mut [u8]) -> Result<SourceBlock, Unread> {
        let unread = match self.fetch_once(block, into) {
            Err(Unread::Lost(_)) => {
                self.look_again(block.0);
                self.fetch_once(block, into)
            }
            result => result,
        };
        match unread {
            Err(Unread::Lost(why)) => Err(self.judge(block, why)),
            result => result,
        }
    }

    /// Records of gaps and found blocks of a scan that is over.
    pub fn records(&self) -> Vec<Record> {
        let follower = self.read_follower();
        let codec = Codec::of_scan(follower.scan().manifest.uuid);
        let mut records = Vec::new();
        for stream in &follower.scan().streams {
            let gaps = stream.gaps.iter().map(Entry::Gap);
            let found = stream.found.iter().map(|&(first, count)| Entry::Found { first, count });
            let number = stream.number as u16;
            records.extend(gaps.chain(found).map(|entry| codec.encode(number, &entry)));
        }
        records
    }

    /// The accounts of a scan that is over.
    pub fn accounts(&self) -> BTreeMap<u16, Account> {
        let follower = self.read_follower();
        let streams = follower.scan().streams.iter();
        streams.filter_map(|it| Some((it.number as u16, it.account.clone()?))).collect()
    }

    /// Recorded blocks of a scan that is over that are in no index: nobody can send them.
    pub fn absent(&self) -> Vec<AbsentBlocks> {
        let follower = self.read_follower();
        let of = |stream: &StoredStream| {
            let number = stream.number as u16;
            let all = stream.absent.iter();
            all.map(|it| AbsentBlocks { stream: number, first: it.first, count: it.count })
                .collect::<Vec<_>>()
        };
        follower.scan().streams.iter().flat_map(of).collect()
    }

    /// The digest of the blocks but these, see `fullbore_store::copies::digest`.
    pub fn digest(&self, without: &[BlockId]) -> [u8; 32] {
        let without: BTreeSet<&BlockId> = without.iter().collect();
        let follower = self.read_follower();
        let streams = follower.scan().streams.iter();
        let blocks = streams.flat_map(|stream| {
            let number = stream.number as u16;
            stream.blocks.iter().map(move |it| (number, &it.block))
        });
        copies::digest(blocks.filter(|(stream, it)| !without.contains(&(*stream, it.sequence))))
    }

    /// True if the disks are to be left to a recorder: of this scan, or of another one on the same members.
    pub fn is_beside_a_recorder(&self) -> bool {
        let mut beside = self.beside.lock().unwrap_or_else(PoisonError::into_inner);
        if beside.looked.is_none_or(|at| at.elapsed() >= RECHECK) {
            beside.recording = beside.recordings.look().is_some();
            beside.looked = Some(Instant::now());
        }
        beside.recording
    }

    fn settings(&self) -> Settings {
        match self.is_beside_a_recorder() {
            true => Settings::beside_a_recorder(),
            false => Settings::default(),
        }
    }

    fn fetch_once(&self, block: BlockId, into: &mut [u8]) -> Result<SourceBlock, Unread> {
        let source = self.find(block)?;
        match self.read(&source, into) {
            Ok(()) => Ok(source),
            Err(fault) => Err(Unread::Lost(self.describe(block, &fault))),
        }
    }

    fn find(&self, block: BlockId) -> Result<SourceBlock, Unread> {
        let follower = self.read_follower();
        if follower.status() == FollowState::Sealing {
            return Err(Unread::Later("the scan is being sealed".into()));
        }
        let scan = follower.scan();
        let found = location(scan, block).filter(|(_, it)| it.is_readable());
        let Some((stream, location)) = found else {
            return Err(Unread::Lost(missing(scan, block)));
        };
        let records = records_of(scan, stream, location)
            .map_err(|error| Unread::Lost(index_unreadable(scan, location, &error)))?;
        Ok(SourceBlock { extent: location.extent(), records })
    }

    fn describe(&self, block: BlockId, fault: &Fault) -> String {
        let follower = self.read_follower();
        match location(follower.scan(), block) {
            Some((stream, it)) => it.finding(stream, None, it.fault(fault)).to_string(),
            None => missing(follower.scan(), block),
        }
    }

    /// Finds out again where the blocks of a stream are: files move while a scan is recorded.
    fn look_again(&self, stream: u16) {
        let mut follower = self.write_follower();
        if follower.status() == FollowState::Recording {
            // What fails here fails again at the next look, which reports it.
            let _ = follower.look_again(stream.into());
        }
    }

    /// Decides whether a block that cannot be read is lost.
    fn judge(&self, block: BlockId, why: String) -> Unread {
        let follower = self.read_follower();
        if !follower.status().is_over() {
            return Unread::Later(why);
        }
        let scan = follower.scan();
        // The manifest is removed last. A file that was there when the scan was opened is not lost but being removed: the
        // copy must not be sealed without it.
        let found = location(scan, block).map(|(_, it)| it).filter(|it| it.is_readable());
        let mut files = vec![scan.inventory.manifest_path.clone()];
        files.extend(found.map(|it| scan.index_path(it)));
        files.extend(found.map(|it| it.extent().path.to_path_buf()));
        match files.iter().all(|path| path.exists()) {
            true => Unread::Lost(why),
            false => Unread::Removed,
        }
    }

    fn read_follower(&self) -> RwLockReadGuard<'_, Follower> {
        self.follower.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_follower(&self) -> RwLockWriteGuard<'_, Follower> {
        self.follower.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Told {
    /// Returns the blocks that were not reported yet.
    fn report(&mut self, scan: &Scan, whole: bool) -> Vec<(BlockId, u32)> {
        let mut new = Vec::new();
        self.streams.resize_with(scan.streams.len().max(self.streams.len()), Sequences::default);
        for (stream, told) in scan.streams.iter().zip(&mut self.streams) {
            // A scan that was opened again has its blocks at other positions.
            let first = if whole { 0 } else { told.positions };
            for location in stream.blocks.get(first..).unwrap_or_default() {
                let sequence = location.block.sequence;
                if !told.reported.contains(sequence as i64) {
                    told.reported.insert(sequence as i64..sequence as i64 + 1);
                    new.push(((stream.number as u16, sequence), location.block.bytes));
                }
            }
            told.positions = stream.blocks.len();
        }
        self.whole = whole;
        new
    }
}

/// Returns a manifest as the receiver gets it.
fn as_sent(manifest: &Manifest) -> Manifest {
    let mut sent = manifest.clone();
    sent.members.clear();
    sent.away.clear();
    sent.redundancy = None;
    sent.host_setup = None;
    for stream in &mut sent.streams {
        let renamed = stream.renamed.take().filter(|it| !it.files.is_empty());
        stream.renamed = renamed.map(|it| Renumbering {
            stage: RenumberStage::SettingAside,
            before: ChunkMap::default(),
            ..it
        });
    }
    sent
}

fn location(scan: &Scan, (stream, sequence): BlockId) -> Option<(&StoredStream, &BlockLocation)> {
    let stream = scan.streams.get(usize::from(stream))?;
    let at = stream.blocks.binary_search_by_key(&sequence, |it| it.block.sequence).ok()?;
    Some((stream, &stream.blocks[at]))
}

fn records_of(
    scan: &Scan,
    stream: &StoredStream,
    location: &BlockLocation,
) -> std::io::Result<Vec<Record>> {
    let codec = Codec::of_scan(scan.manifest.uuid);
    let number = stream.number as u16;
    let mut records = vec![codec.encode(number, &Entry::Block(location.block))];
    for (part, lengths) in scan.lengths(location)?.chunks(LENGTHS).enumerate() {
        let first = (part * LENGTHS) as u32;
        let (sequence, lengths) = (location.block.sequence, lengths.to_vec());
        records.push(codec.encode(number, &Entry::Lengths { sequence, first, lengths }));
    }
    Ok(records)
}

fn missing(scan: &Scan, (stream, sequence): BlockId) -> String {
    let told = scan.manifest.streams.get(usize::from(stream));
    let name = told.map_or_else(|| stream.to_string(), |it| it.name.to_string());
    format!("stream {name}: block {sequence}: its chunk file or member is not there")
}

fn index_unreadable(scan: &Scan, location: &BlockLocation, error: &std::io::Error) -> String {
    let (path, sequence) = (scan.index_path(location), location.block.sequence);
    format!("{}: the frame lengths of block {sequence}: {error}", path.display())
}

#[cfg(test)]
mod tests;
