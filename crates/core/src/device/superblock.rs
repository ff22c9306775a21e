//! The superblock: the layout of a device and the list of its scans.
//!
//! There are two copies, at the start and at the end of the device. A change is written to the older copy, with the
//! next generation number, and synced, and then to the other in the same way. At any power failure one copy is whole,
//! and between changes both are equal.

use std::fmt;

use fullbore_time::Tai;
use serde::Serialize;
use uuid::Uuid;
use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::volume::{self, Volume};
use crate::account::{Account, CountedBy, Presence, Terms, Verdict};
use crate::completeness::{Completeness, OtherCounts, StreamCompleteness};
use crate::manifest::State;
use crate::name::ScanName;

/// The first eight bytes of a copy.
pub const MAGIC: [u8; 8] = *b"FBDEVICE";

/// The version of this format.
const VERSION: u32 = 1;

/// Bytes of a copy.
pub const COPY_BYTES: usize = 256 << 10;

/// Bytes before the first scan of a copy.
const HEAD_BYTES: usize = 4096;

/// Bytes of a scan in a copy.
const ENTRY_BYTES: usize = 512;

/// The most scans on one device.
pub const MOST_SCANS: usize = (COPY_BYTES - HEAD_BYTES) / ENTRY_BYTES;

/// The longest text of a source that is stored.
const SOURCE_BYTES: usize = 192;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHead {
    magic: [u8; 8],
    version: U32,
    /// CRC32C of the whole copy, with zero here.
    crc: U32,
    generation: U64,
    uuid: [u8; 16],
    media_bytes: U64,
    chunk_bytes: U32,
    scans: U32,
    index_first: U64,
    index_bytes: U64,
    data_first: U64,
    data_last: U64,
    made: I64,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawScan {
    state: u8,
    kind: u8,
    ending: u8,
    verdict: u8,
    block_bytes: U32,
    uuid: [u8; 16],
    first: U64,
    limit: U64,
    bytes: U64,
    blocks: U64,
    begun: I64,
    ended: I64,
    frame_bytes: U32,
    reserved: U32,
    frames_per_second: U64,
    expected: U64,
    written: U64,
    missing: U64,
    overrun: U64,
    damaged: U64,
    late: U64,
    name: [u8; 128],
    source: [u8; SOURCE_BYTES],
    /// 0 in an index of an earlier version, which has zeros from here on; otherwise 1.
    extracted: u8,
    counted_by: u8,
    flags: u8,
    presence: u8,
    threads: U32,
    not_kept: U64,
    restarts: U64,
    disagreements: U64,
    explained: U64,
    datagrams: U64,
    rest: [u8; 8],
}

/// In [`RawScan::flags`]: a loss counter of the host moved, or could not be read.
const COUNTERS_MOVED: u8 = 1;

/// In [`RawScan::flags`]: the number of missing frames that counters explain is known.
const EXPLAINED: u8 = 2;

// Readers find scan n at 4096 + 512 n, so neither size may change.
const _: () = assert!(size_of::<RawHead>() == 96);
const _: () = assert!(size_of::<RawScan>() == ENTRY_BYTES);

/// The kind of a scan's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Arbitrary bytes.
    Raw,
    /// VDIF frames.
    Vdif,
}

/// The reason for the end of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// The scan has not ended, or the reason was lost.
    Unknown,
    /// The source ended, or a limit was reached.
    Complete,
    /// The scan was stopped.
    Stopped,
    /// The scan was aborted.
    Aborted,
    /// No space was left.
    Full,
    /// The device failed.
    Failed,
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Ending::Unknown => "not known",
            Ending::Complete => "complete",
            Ending::Stopped => "stopped",
            Ending::Aborted => "aborted",
            Ending::Full => "no space left",
            Ending::Failed => "the device failed",
        })
    }
}

/// A scan on the device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StoredScan {
    /// Its name.
    pub name: ScanName,
    /// Its UUID; records carry a part of it.
    pub uuid: Uuid,
    /// The state of the scan.
    pub state: State,
    /// The kind of its bytes.
    pub kind: Kind,
    /// The reason for its end.
    pub ending: Ending,
    /// Address of its first chunk.
    pub first: u64,
    /// Address of the last chunk that belongs to it; during recording, of the chunks that it may use.
    pub limit: u64,
    /// Bytes of data.
    pub bytes: u64,
    /// Blocks of data.
    pub blocks: u64,
    /// Bytes of every block but the last.
    pub block_bytes: u32,
    /// Start time of the scan.
    pub begun: Tai,
    /// Time when the scan was sealed.
    pub ended: Option<Tai>,
    /// Bytes of a frame; 0 if there are no frames.
    pub frame_bytes: u32,
    /// Frames per second of each thread, if known.
    pub frames_per_second: Option<u64>,
    /// The balance, in frames.
    pub terms: Terms,
    /// The verdict of the account.
    pub verdict: Verdict,
    /// The endpoint of the recording, cut if it is very long.
    pub source: String,
    /// Further facts of the account; `None` in an index of an earlier version, or if frames were not counted.
    #[serde(skip)]
    pub extract: Option<Extract>,
}

/// The facts of an account beside the balance that the index stores, so that it describes a scan as its recorder did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extract {
    /// The number by which frames were counted.
    pub counted_by: CountedBy,
    /// The absence of frames, and whether anything else arrived.
    pub absence: Option<Presence>,
    /// Number of threads that were not present all the time.
    pub threads: u32,
    /// Whole frames that arrived and were not kept.
    pub not_kept: u64,
    /// Number of restarts of the sender's count.
    pub restarts: u64,
    /// Frames whose second count does not match their time.
    pub disagreements: u64,
    /// True if a loss counter of the host moved, or could not be read.
    pub counters_moved: bool,
    /// The missing frames that counters of the host explain.
    pub explained: Option<u64>,
}

impl From<&Account> for Extract {
    fn from(account: &Account) -> Self {
        let OtherCounts {
            not_kept,
            restarts,
            disagreements,
            counters_moved,
            explained,
            threads,
            ..
        } = OtherCounts::from(account);
        Self {
            counted_by: account.counted_by,
            absence: account.never_came().then(|| account.absence()),
            threads: threads.len() as u32,
            not_kept,
            restarts,
            disagreements,
            counters_moved,
            explained,
        }
    }
}

impl StoredScan {
    /// Returns the completeness, if its frames were counted and it is over.
    pub fn completeness(&self) -> Option<Completeness> {
        let counted = self.frame_bytes > 0 || self.extract.is_some();
        (counted && self.state != State::Recording)
            .then(|| Completeness::judged(vec![self.part()], None, self.state, &[]))
    }

    /// Returns the facts about its only stream.
    fn part(&self) -> StreamCompleteness {
        let why_overrun = match self.ending {
            Ending::Full => Some(NO_CHUNK_LEFT.to_owned()),
            Ending::Failed => Some("the device failed".to_owned()),
            Ending::Unknown | Ending::Complete | Ending::Stopped | Ending::Aborted => None,
        };
        let part = StreamCompleteness::of_terms(self.terms, self.verdict);
        let Some(extract) = &self.extract else {
            return StreamCompleteness {
                beside: OtherCounts { why_overrun, ..part.beside },
                ..part
            };
        };
        StreamCompleteness {
            counted_by: Some(extract.counted_by),
            presence: extract.absence.into_iter().collect(),
            unnamed_threads: extract.threads,
            beside: OtherCounts {
                not_kept: extract.not_kept,
                restarts: extract.restarts,
                disagreements: extract.disagreements,
                counters_moved: extract.counters_moved,
                explained: extract.explained,
                why_overrun,
                ..OtherCounts::default()
            },
            ..part
        }
    }
}

/// The reason why received frames are not on a device that has not failed.
pub const NO_CHUNK_LEFT: &str = "the chunks that it may use are full";

/// The contents of the superblock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Superblock {
    /// The generation. It increases by one with every copy that is written, so by two with every change.
    pub generation: u64,
    /// UUID of the device's index.
    pub uuid: Uuid,
    /// Time when the index was made.
    pub made: Tai,
    /// The layout of the device.
    pub volume: Volume,
    /// The scans, in the order in which they were recorded.
    pub scans: Vec<StoredScan>,
}

/// Bytes that are not a superblock.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The magic number is missing.
    #[error("no scan index at this address")]
    Magic,
    /// The copy is truncated.
    #[error("{bytes} bytes are not a copy of a superblock, which has {COPY_BYTES} bytes")]
    Length {
        /// The number of bytes.
        bytes: usize,
    },
    /// The copy was made by a later version of the program.
    #[error("the scan index has version {version}, and this program reads version {VERSION}")]
    Version {
        /// The version found.
        version: u32,
    },
    /// The checksum is wrong.
    #[error("the copy is damaged: its checksum is wrong")]
    Checksum,
    /// The layout is invalid.
    #[error(transparent)]
    Volume(#[from] volume::Error),
    /// A scan is invalid, though the checksum is right.
    #[error("scan {number} of the index is invalid: {why}")]
    Scan {
        /// Its position in the list.
        number: usize,
        /// The error.
        why: &'static str,
    },
}

impl Superblock {
    /// Returns an index without scans for a device with this layout.
    pub fn new(uuid: Uuid, made: Tai, volume: Volume) -> Self {
        Self { generation: 0, uuid, made, volume, scans: Vec::new() }
    }

    /// Returns the copy that the current generation is written to: 0 at the start, 1 at the end.
    pub fn copy(&self) -> usize {
        (self.generation % 2) as usize
    }

    /// Returns the address of a copy.
    pub fn place_of_copy(&self, copy: usize) -> u64 {
        if copy == 0 { 0 } else { self.volume.second_copy() }
    }

    /// Returns the chunks of all scans, first and last address each.
    pub fn taken(&self) -> Vec<(u64, u64)> {
        self.scans.iter().map(|scan| (scan.first, scan.limit)).collect()
    }

    /// Returns the scan of this name.
    pub fn scan(&self, name: &ScanName) -> Option<&StoredScan> {
        self.scans.iter().find(|scan| scan.name == *name)
    }

    /// Returns a copy in its layout on the device.
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.scans.len() <= MOST_SCANS, "whoever adds a scan looks for room first");
        let mut copy = vec![0; COPY_BYTES];
        let Volume { media_bytes, chunk_bytes, .. } = self.volume;
        let mut head = RawHead {
            magic: MAGIC,
            version: VERSION.into(),
            crc: 0.into(),
            generation: self.generation.into(),
            uuid: self.uuid.into_bytes(),
            media_bytes: media_bytes.into(),
            chunk_bytes: chunk_bytes.into(),
            scans: (self.scans.len() as u32).into(),
            index_first: self.volume.index_first.into(),
            index_bytes: self.volume.index_bytes.into(),
            data_first: self.volume.data_first.into(),
            data_last: self.volume.data_last.into(),
            made: self.made.0.into(),
        };
        copy[..size_of::<RawHead>()].copy_from_slice(head.as_bytes());
        for (scan, place) in self.scans.iter().zip(copy[HEAD_BYTES..].chunks_exact_mut(ENTRY_BYTES))
        {
            place.copy_from_slice(scan.raw().as_bytes());
        }
        head.crc = crc32c::crc32c(&copy).into();
        copy[..size_of::<RawHead>()].copy_from_slice(head.as_bytes());
        copy
    }

    /// Reads a copy.
    pub fn decode(copy: &[u8]) -> Result<Self, Error> {
        let (mut head, _) =
            RawHead::read_from_prefix(copy).map_err(|_| Error::Length { bytes: copy.len() })?;
        if head.magic != MAGIC {
            return Err(Error::Magic);
        }
        if head.version.get() != VERSION {
            return Err(Error::Version { version: head.version.get() });
        }
        if copy.len() != COPY_BYTES {
            return Err(Error::Length { bytes: copy.len() });
        }
        let told = head.crc.get();
        head.crc = 0.into();
        let crc = crc32c::crc32c(head.as_bytes());
        if crc32c::crc32c_append(crc, &copy[size_of::<RawHead>()..]) != told {
            return Err(Error::Checksum);
        }
        let volume = Volume {
            media_bytes: head.media_bytes.get(),
            chunk_bytes: head.chunk_bytes.get(),
            index_first: head.index_first.get(),
            index_bytes: head.index_bytes.get(),
            data_first: head.data_first.get(),
            data_last: head.data_last.get(),
        };
        let volume = volume.checked()?;
        let count = head.scans.get() as usize;
        if count > MOST_SCANS {
            return Err(Error::Scan { number: count, why: "there is no room for so many" });
        }
        let entries = copy[HEAD_BYTES..].chunks_exact(ENTRY_BYTES).take(count);
        let mut scans: Vec<StoredScan> = Vec::with_capacity(count);
        for (number, bytes) in entries.enumerate() {
            let wrong = |why| Error::Scan { number, why };
            let raw = RawScan::read_from_bytes(bytes).map_err(|_| wrong("it is truncated"))?;
            let scan = StoredScan::of_raw(&raw).map_err(wrong)?;
            let span = volume
                .span(scan.first, scan.limit)
                .ok_or(wrong("it is outside the data region"))?;
            if scan.bytes > span.bytes() {
                return Err(wrong("it is longer than its chunks"));
            }
            if scan.block_bytes < volume.chunk_bytes {
                return Err(wrong("its blocks are smaller than chunks"));
            }
            scans.push(scan);
        }
        Ok(Self {
            generation: head.generation.get(),
            uuid: Uuid::from_bytes(head.uuid),
            made: Tai(head.made.get()),
            volume,
            scans,
        })
    }
}

/// Reads both copies of the index of a device by calling `read`. Returns the newer whole copy, and the error of the
/// other.
pub fn find<E>(
    media_bytes: u64,
    mut read: impl FnMut(u64) -> Result<Result<Superblock, Error>, E>,
) -> Result<Result<(Superblock, Option<Error>), Error>, E> {
    let mut copy = |place: Option<u64>| {
        let fits = |place: &u64| place.saturating_add(COPY_BYTES as u64) <= media_bytes;
        place.filter(fits).map_or(Ok(Err(Error::Magic)), &mut read)
    };
    let first = copy(Some(0))?;
    // The device may have grown since: then the first copy has its previous size.
    let place = match &first {
        Ok(first) => Some(first.volume.second_copy()),
        Err(_) => volume::second_copy(media_bytes),
    };
    let second = copy(place)?;
    Ok(newest(first, second))
}

/// Returns the newer of two copies, and the error of the other, if any.
fn newest(
    first: Result<Superblock, Error>,
    second: Result<Superblock, Error>,
) -> Result<(Superblock, Option<Error>), Error> {
    match (first, second) {
        (Ok(first), Ok(second)) if first.generation >= second.generation => Ok((first, None)),
        (Ok(_), Ok(second)) => Ok((second, None)),
        (Ok(whole), Err(error)) | (Err(error), Ok(whole)) => Ok((whole, Some(error))),
        (Err(Error::Magic), Err(error)) | (Err(error), Err(_)) => Err(error),
    }
}

impl StoredScan {
    /// Returns the address of the last chunk with data of the scan.
    pub fn last(&self, chunk_bytes: u32) -> Option<u64> {
        let chunk = u64::from(chunk_bytes);
        self.bytes.checked_sub(1).map(|last| self.first + last / chunk * chunk)
    }

    fn raw(&self) -> RawScan {
        let mut raw = RawScan::new_zeroed();
        raw.state = code(&STATES, &self.state);
        raw.kind = code(&KINDS, &self.kind);
        raw.ending = code(&ENDINGS, &self.ending);
        raw.verdict = code(&VERDICTS, &self.verdict);
        raw.block_bytes = self.block_bytes.into();
        raw.uuid = self.uuid.into_bytes();
        raw.first = self.first.into();
        raw.limit = self.limit.into();
        raw.bytes = self.bytes.into();
        raw.blocks = self.blocks.into();
        raw.begun = self.begun.0.into();
        raw.ended = self.ended.map_or(i64::MIN, |ended| ended.0).into();
        raw.frame_bytes = self.frame_bytes.into();
        raw.frames_per_second = self.frames_per_second.unwrap_or(0).into();
        raw.expected = self.terms.expected.into();
        raw.written = self.terms.written.into();
        raw.missing = self.terms.missing.into();
        raw.overrun = self.terms.overrun.into();
        raw.damaged = self.terms.damaged.into();
        raw.late = self.terms.late.into();
        put_text(&mut raw.name, &self.name.to_string());
        put_text(&mut raw.source, &self.source);
        if let Some(extract) = &self.extract {
            extract.put(&mut raw);
        }
        raw
    }

    fn of_raw(raw: &RawScan) -> Result<Self, &'static str> {
        Ok(Self {
            name: text(&raw.name).parse().map_err(|_| "its name is invalid")?,
            uuid: Uuid::from_bytes(raw.uuid),
            state: decoded(&STATES, raw.state).ok_or("its state is invalid")?,
            kind: decoded(&KINDS, raw.kind).ok_or("its kind is invalid")?,
            ending: decoded(&ENDINGS, raw.ending).ok_or("its ending is invalid")?,
            first: raw.first.get(),
            limit: raw.limit.get(),
            bytes: raw.bytes.get(),
            blocks: raw.blocks.get(),
            block_bytes: raw.block_bytes.get(),
            begun: Tai(raw.begun.get()),
            ended: Some(raw.ended.get()).filter(|&ended| ended != i64::MIN).map(Tai),
            frame_bytes: raw.frame_bytes.get(),
            frames_per_second: Some(raw.frames_per_second.get()).filter(|&rate| rate > 0),
            terms: Terms {
                expected: raw.expected.get(),
                written: raw.written.get(),
                missing: raw.missing.get(),
                overrun: raw.overrun.get(),
                damaged: raw.damaged.get(),
                late: raw.late.get(),
            },
            verdict: decoded(&VERDICTS, raw.verdict).ok_or("its verdict is invalid")?,
            source: text(&raw.source),
            extract: Extract::of_raw(raw)?,
        })
    }
}

impl Extract {
    fn put(&self, raw: &mut RawScan) {
        raw.extracted = 1;
        raw.counted_by = code(&COUNTED_BY, &self.counted_by);
        (raw.presence, raw.datagrams) = match self.absence {
            Some(Presence::NeverCame) => (NEVER_CAME, 0.into()),
            Some(Presence::OnlyForeign { datagrams }) => (ONLY_FOREIGN, datagrams.into()),
            Some(Presence::OnlyExcluded { datagrams }) => (ONLY_EXCLUDED, datagrams.into()),
            Some(_) | None => (0, 0.into()),
        };
        raw.threads = self.threads.into();
        raw.not_kept = self.not_kept.into();
        raw.restarts = self.restarts.into();
        raw.disagreements = self.disagreements.into();
        raw.explained = self.explained.unwrap_or(0).into();
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        raw.flags =
            flag(self.counters_moved, COUNTERS_MOVED) | flag(self.explained.is_some(), EXPLAINED);
    }

    fn of_raw(raw: &RawScan) -> Result<Option<Self>, &'static str> {
        if raw.extracted == 0 {
            return Ok(None);
        }
        let datagrams = raw.datagrams.get();
        Ok(Some(Self {
            counted_by: decoded(&COUNTED_BY, raw.counted_by).ok_or("its numbering is invalid")?,
            absence: match raw.presence {
                0 => None,
                NEVER_CAME => Some(Presence::NeverCame),
                ONLY_FOREIGN => Some(Presence::OnlyForeign { datagrams }),
                ONLY_EXCLUDED => Some(Presence::OnlyExcluded { datagrams }),
                _ => return Err("its presence is invalid"),
            },
            threads: raw.threads.get(),
            not_kept: raw.not_kept.get(),
            restarts: raw.restarts.get(),
            disagreements: raw.disagreements.get(),
            counters_moved: raw.flags & COUNTERS_MOVED != 0,
            explained: (raw.flags & EXPLAINED != 0).then(|| raw.explained.get()),
        }))
    }
}

const NEVER_CAME: u8 = 1;
const ONLY_FOREIGN: u8 = 2;
const ONLY_EXCLUDED: u8 = 3;

/// The position in a list is the number on the device: lists may only grow at the end.
const STATES: [State; 4] = [State::Recording, State::Sealed, State::Aborted, State::Recovered];
const KINDS: [Kind; 2] = [Kind::Raw, Kind::Vdif];
const ENDINGS: [Ending; 6] = [
    Ending::Unknown,
    Ending::Complete,
    Ending::Stopped,
    Ending::Aborted,
    Ending::Full,
    Ending::Failed,
];
const COUNTED_BY: [CountedBy; 5] = [
    CountedBy::FrameTime,
    CountedBy::PacketNumber,
    CountedBy::SequenceField,
    CountedBy::ServerCount,
    CountedBy::Nothing,
];
const VERDICTS: [Verdict; 4] =
    [Verdict::Unproven, Verdict::Proven, Verdict::Consistent, Verdict::Unexplained];

fn code<T: PartialEq>(list: &[T], it: &T) -> u8 {
    list.iter().position(|other| other == it).expect("every variant is in its list") as u8
}

fn decoded<T: Copy>(list: &[T], code: u8) -> Option<T> {
    list.get(usize::from(code)).copied()
}

/// Stores as much of a text as fits, with a terminating zero if there is room.
fn put_text(place: &mut [u8], text: &str) {
    let mut end = text.len().min(place.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    place[..end].copy_from_slice(&text.as_bytes()[..end]);
}

fn text(place: &[u8]) -> String {
    let end = place.iter().position(|&byte| byte == 0).unwrap_or(place.len());
    String::from_utf8_lossy(&place[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::account::Flow;

    fn superblock(scans: usize) -> Superblock {
        let volume = Volume::of_media(8 << 30, 128 << 10).unwrap();
        let mut superblock = Superblock::new(Uuid::from_u128(7), Tai(1), volume);
        for number in 0..scans {
            let gap = volume.largest_gap(&superblock.taken()).unwrap();
            superblock.scans.push(StoredScan {
                name: format!("r1_no{number}").parse().unwrap(),
                uuid: Uuid::from_u128(number as u128),
                state: STATES[number % 4],
                kind: KINDS[number % 2],
                ending: ENDINGS[number % 6],
                first: gap.first,
                limit: gap.first + (128 << 10),
                bytes: 130_000,
                blocks: 1,
                block_bytes: 4 << 20,
                begun: Tai(5),
                ended: (number % 2 == 0).then_some(Tai(6)),
                frame_bytes: 8032,
                frames_per_second: (number % 3 == 0).then_some(32_000),
                terms: Terms { expected: 16, written: 15, missing: 1, ..Terms::default() },
                verdict: VERDICTS[number % 4],
                source: "udp://0.0.0.0:46220?format=vdif".into(),
                extract: (number % 5 > 0).then(|| extract(number as u64)),
            });
        }
        superblock.generation = scans as u64;
        superblock
    }

    fn extract(number: u64) -> Extract {
        Extract {
            counted_by: COUNTED_BY[number as usize % 5],
            absence: match number % 4 {
                0 => None,
                1 => Some(Presence::NeverCame),
                2 => Some(Presence::OnlyForeign { datagrams: number }),
                _ => Some(Presence::OnlyExcluded { datagrams: number }),
            },
            threads: number as u32 % 3,
            not_kept: number,
            restarts: number + 1,
            disagreements: number + 2,
            counters_moved: !number.is_multiple_of(2),
            explained: (!number.is_multiple_of(3)).then_some(number),
        }
    }

    /// Returns a sealed scan with the extract of this account.
    fn sealed(account: &Account) -> StoredScan {
        let mut scan = superblock(2).scans.remove(1);
        (scan.state, scan.ending) = (State::Sealed, Ending::Complete);
        (scan.terms, scan.verdict) = (account.terms, account.verdict);
        scan.extract = Some(Extract::from(account));
        StoredScan::of_raw(&scan.raw()).unwrap()
    }

    #[test]
    fn the_index_says_of_a_scan_what_its_recorder_said() {
        let account = || {
            let mut account = Account::new(CountedBy::FrameTime);
            account.terms = Terms { expected: 400, written: 400, ..Terms::default() };
            account.verdict = account.judge();
            account
        };
        let same = |account: &mut Account| {
            crate::account::judge_together([&mut *account]);
            let (live, stored) = (account.completeness(), sealed(account).completeness().unwrap());
            assert_eq!((&stored.headline, stored.status), (&live.headline, live.status));
            assert_eq!(
                (&stored.explanation, stored.is_good()),
                (&live.explanation, live.is_good())
            );
            stored
        };
        assert!(same(&mut account()).headline.starts_with("COMPLETE: all 400 frames"));
        let mut late = account();
        late.unrecorded = 300;
        let told = same(&mut late);
        assert_eq!(
            told.headline,
            "INCOMPLETE: 400 frames recorded, no loss among them; 300 frames came and were not kept"
        );
        assert_eq!(told.not_kept, 300);
        let mut missing = account();
        missing.terms = Terms { expected: 420, written: 400, missing: 20, ..Terms::default() };
        same(&mut missing);
        let mut anew = account();
        (anew.restarts, anew.disagreements) = (1, 2);
        same(&mut anew);
        let mut uncounted = account();
        uncounted.counted_by = CountedBy::Nothing;
        same(&mut uncounted);
        for (foreign, excluded) in [(0, 0), (100, 0), (0, 7)] {
            let mut silent = Account::new(CountedBy::FrameTime);
            (silent.foreign, silent.excluded) = (foreign, excluded);
            silent.presence = vec![silent.absence()];
            same(&mut silent);
        }
    }

    #[test]
    fn a_thread_that_was_not_there_is_told_by_the_index_though_it_has_no_room_for_its_name() {
        let mut account = Account::new(CountedBy::FrameTime);
        account.terms = Terms { expected: 400, written: 400, ..Terms::default() };
        let absent = Flow { thread: 1, presence: vec![Presence::NeverCame], ..Flow::default() };
        account.flows = vec![Flow { terms: account.terms, ..Flow::default() }, absent];
        account.verdict = account.judge();
        let told = sealed(&account).completeness().unwrap();
        assert_eq!(
            told.headline,
            "INCOMPLETE: 400 frames recorded, no loss among them; 1 thread was not there all the time"
        );
        assert!(!told.is_good());
    }

    #[test]
    fn an_index_of_before_reads_as_it_was() {
        let mut scan = superblock(2).scans.remove(1);
        (scan.extract, scan.state) = (None, State::Sealed);
        let raw = scan.raw();
        assert!(raw.as_bytes()[456..].iter().all(|&byte| byte == 0), "zeros are no extract");
        assert_eq!(StoredScan::of_raw(&raw).unwrap().completeness(), scan.completeness());
        assert!(scan.completeness().unwrap().headline.starts_with("LOST 1 of 16 frames"));
    }

    #[test]
    fn a_device_that_is_full_is_the_cause_and_not_the_memory() {
        let mut full = superblock(2).scans.remove(1);
        full.extract = None;
        (full.state, full.ending, full.verdict) =
            (State::Sealed, Ending::Full, Verdict::Consistent);
        full.terms = Terms { expected: 16, written: 10, overrun: 6, ..Terms::default() };
        let told = full.completeness().unwrap().headline;
        assert_eq!(told, "LOST 6 of 16 frames (38 %): the chunks that it may use are full");
    }

    #[test]
    fn a_copy_reads_back_with_as_many_scans_as_it_holds() {
        for scans in [0, 1, 12, MOST_SCANS] {
            let superblock = superblock(scans);
            assert_eq!(Superblock::decode(&superblock.encode()), Ok(superblock), "{scans}");
        }
    }

    #[test]
    fn changes_go_to_the_two_copies_in_turn_and_the_newer_whole_one_counts() {
        let (old, new) = (superblock(1), superblock(2));
        assert_ne!(old.copy(), new.copy());
        assert_ne!(old.place_of_copy(old.copy()), new.place_of_copy(new.copy()));
        assert_eq!(newest(Ok(old.clone()), Ok(new.clone())), Ok((new.clone(), None)));
        assert_eq!(newest(Ok(new.clone()), Ok(old.clone())), Ok((new, None)));
        let torn = Err(Error::Checksum);
        assert_eq!(newest(torn.clone(), Ok(old.clone())), Ok((old, Some(Error::Checksum))));
        assert_eq!(newest(Err(Error::Magic), torn), Err(Error::Checksum));
        assert_eq!(newest(Err(Error::Magic), Err(Error::Magic)), Err(Error::Magic));
    }

    #[test]
    fn what_is_no_copy_is_told_apart() {
        let copy = superblock(3).encode();
        assert_eq!(Superblock::decode(&[0; COPY_BYTES]), Err(Error::Magic));
        assert_eq!(Superblock::decode(&copy[..50]), Err(Error::Length { bytes: 50 }));
        assert!(matches!(Superblock::decode(&copy[..5000]), Err(Error::Length { .. })));
        let mut later = copy.clone();
        later[8] = 2;
        assert_eq!(Superblock::decode(&later), Err(Error::Version { version: 2 }));
        for place in [12, 16, 100, 4096, 5000, COPY_BYTES - 1] {
            let mut damaged = copy.clone();
            damaged[place] ^= 1;
            assert_eq!(Superblock::decode(&damaged), Err(Error::Checksum), "byte {place}");
        }
    }

    #[test]
    fn a_scan_outside_the_data_is_refused_though_its_checksum_is_right() {
        let mut wrong = superblock(1);
        wrong.scans[0].first = 0;
        assert!(matches!(Superblock::decode(&wrong.encode()), Err(Error::Scan { .. })));
        let mut long = superblock(1);
        long.scans[0].bytes = 1 << 40;
        assert!(matches!(Superblock::decode(&long.encode()), Err(Error::Scan { .. })));
    }

    #[test]
    fn a_source_that_is_too_long_is_cut_at_a_letter() {
        let mut long = superblock(1);
        long.scans[0].source = "ä".repeat(200);
        let read = Superblock::decode(&long.encode()).unwrap();
        assert_eq!(read.scans[0].source, "ä".repeat(96));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let mut copy = superblock(2).encode();
            copy[..bytes.len()].copy_from_slice(&bytes);
            let _ = Superblock::decode(&copy);
            let _ = Superblock::decode(&bytes);
        }

        #[test]
        fn a_scan_of_any_bytes_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 512)) {
            let raw = RawScan::read_from_bytes(&bytes[..]).unwrap();
            if let Ok(scan) = StoredScan::of_raw(&raw) {
                prop_assert!(usize::from(raw.state) < STATES.len());
                prop_assert!(!scan.name.to_string().is_empty());
            }
        }
    }
}
