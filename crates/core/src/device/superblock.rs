//! The superblock: the layout of a device and the list of its scans.
//!
//! A copy has a head, an entry for each scan, and then the facts about each scan (`extract`).
//!
//! There are two copies, at the start and at the end of the device. A change is written to the older copy, with the
//! next generation number, and synced, and then to the other in the same way. At any power failure one copy is whole,
//! and between changes both are equal.

use std::fmt;

use fullbore_formats::framed::{FrameCodec, FrameKind};
use fullbore_time::{Tai, frame_ns};
use serde::Serialize;
use uuid::Uuid;
use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::extract::{self, Extract, FACT_BYTES, MOST_FACTS, RawFact};
use super::volume::{self, Volume};
use crate::account::{CountedBy, Presence, Terms, Verdict};
use crate::completeness::{Completeness, OtherCounts, Planned, StreamCompleteness};
use crate::manifest::State;
use crate::name::ScanName;

/// The first eight bytes of a copy.
pub const MAGIC: [u8; 8] = *b"FBDEVICE";

/// The version of this format. Version 1 has no facts behind the entries, and is read too.
const VERSION: u32 = 2;

/// Bytes of a copy.
pub const COPY_BYTES: usize = 256 << 10;

/// Bytes before the first scan of a copy.
const HEAD_BYTES: usize = 4096;

/// Bytes of a scan in a copy.
const ENTRY_BYTES: usize = 512;

/// The most scans that an index can list, if none of them has facts behind the entries.
const MOST_SCANS: usize = (COPY_BYTES - HEAD_BYTES) / ENTRY_BYTES;

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
    /// Number of facts behind the entries.
    facts: U32,
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
    /// The balance, in frames, or in bytes if there are no frames.
    pub terms: Terms,
    /// The verdict of the account.
    pub verdict: Verdict,
    /// The endpoint of the recording, cut if it is very long.
    pub source: String,
    /// The planned start and end, if they were given.
    #[serde(skip)]
    pub planned: Option<Planned>,
    /// Further facts of the account; `None` in an index of an earlier version, or before the first frame.
    #[serde(skip)]
    pub extract: Option<Extract>,
}

impl StoredScan {
    /// Returns the completeness, if it is over and the index has the facts.
    pub fn completeness(&self) -> Option<Completeness> {
        let counted = self.frame_bytes > 0 || self.extract.is_some();
        (counted && self.state != State::Recording)
            .then(|| Completeness::judged(vec![self.part()], self.planned, self.state, &[]))
    }

    /// Returns the time of a frame by its own header; `None` if it has no time, or the rate is not known.
    pub fn time_of_frame(&self, frame: &[u8]) -> Option<Tai> {
        let rate = self.frames_per_second.filter(|_| self.kind == Kind::Vdif)?;
        let header = FrameCodec::new(FrameKind::Vdif, self.begun).check(frame, frame.len()).ok()?;
        Some(header.second().start().plus_ns(frame_ns(header.frame_number().into(), rate)))
    }

    /// Returns the facts about its only stream.
    fn part(&self) -> StreamCompleteness {
        let why_overrun = match self.ending {
            Ending::Full => Some(NO_CHUNK_LEFT.to_owned()),
            Ending::Failed => Some("the device failed".to_owned()),
            Ending::Unknown | Ending::Complete | Ending::Stopped | Ending::Aborted => None,
        };
        let Extract { counted_by, presence, unnamed_threads, beside } =
            self.extract.clone().unwrap_or_default();
        StreamCompleteness {
            counted_by,
            presence,
            unnamed_threads,
            beside: OtherCounts { why_overrun, ..beside },
            ..StreamCompleteness::of_terms(self.terms, self.verdict)
        }
    }

    /// Returns the number of its facts behind the entries.
    fn facts(&self) -> usize {
        extract::count(self.planned.as_ref(), self.extract.as_ref())
    }

    /// Returns the bytes of a copy that it needs. A scan that is not sealed may get as many facts as there can be.
    fn bytes_of_copy(&self) -> usize {
        let facts = if self.state == State::Recording { MOST_FACTS } else { 0 };
        ENTRY_BYTES + self.facts().max(facts) * FACT_BYTES
    }
}

/// The reason why received frames are not on a device that has not failed.
pub const NO_CHUNK_LEFT: &str = "the device is full";

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
    #[error("the scan index has version {version}, and this program reads up to version {VERSION}")]
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

    /// True if another scan fits, with all facts that it can have.
    pub fn has_room(&self) -> bool {
        let new = ENTRY_BYTES + MOST_FACTS * FACT_BYTES;
        HEAD_BYTES + self.scans.iter().map(StoredScan::bytes_of_copy).sum::<usize>() + new
            <= COPY_BYTES
    }

    /// Replaces the scan with the same identity. In an index of an earlier version that is almost full, facts of `scan`
    /// may lack room, and are dropped from it: names of threads first.
    pub fn replace(&mut self, scan: &mut StoredScan) {
        let others = self.scans.iter().filter(|other| other.uuid != scan.uuid);
        let taken = HEAD_BYTES + others.map(StoredScan::bytes_of_copy).sum::<usize>() + ENTRY_BYTES;
        let most = MOST_FACTS.min(COPY_BYTES.saturating_sub(taken) / FACT_BYTES);
        extract::trim(&mut scan.planned, &mut scan.extract, most);
        let place = self.scans.iter_mut().find(|other| other.uuid == scan.uuid);
        place.expect("only scans of the index are replaced").clone_from(scan);
    }

    /// Returns a copy in its layout on the device.
    pub fn encode(&self) -> Vec<u8> {
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
        let mut at = HEAD_BYTES;
        let mut put = |bytes: &[u8]| {
            // Whoever adds a scan looks for room first, and facts are only added if they fit.
            copy[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        self.scans.iter().for_each(|scan| put(scan.raw().as_bytes()));
        for scan in &self.scans {
            put(extract::encode(scan.planned.as_ref(), scan.extract.as_ref()).as_bytes());
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
        if !(1..=VERSION).contains(&head.version.get()) {
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
        let (entries, facts) = copy[HEAD_BYTES..].split_at(count * ENTRY_BYTES);
        let (facts, _) = facts.as_chunks::<FACT_BYTES>();
        let mut facts = facts.iter().map(|fact| zerocopy::transmute!(*fact));
        let mut scans: Vec<StoredScan> = Vec::with_capacity(count);
        for (number, bytes) in entries.chunks_exact(ENTRY_BYTES).enumerate() {
            let wrong = |why| Error::Scan { number, why };
            let raw = RawScan::read_from_bytes(bytes).map_err(|_| wrong("it is truncated"))?;
            let its: Vec<RawFact> = facts.by_ref().take(raw.facts.get() as usize).collect();
            if its.len() < raw.facts.get() as usize {
                return Err(wrong("there is no room for so many facts"));
            }
            let scan = StoredScan::of_raw(&raw, &its).map_err(wrong)?;
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
        raw.facts = (self.facts() as u32).into();
        if let Some(extract) = &self.extract {
            put_extract(extract, &mut raw);
        }
        raw
    }

    fn of_raw(raw: &RawScan, facts: &[RawFact]) -> Result<Self, &'static str> {
        let (mut planned, mut extract) = (None, extract_of(raw)?);
        extract::decode(facts, &mut planned, &mut extract)?;
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
                not_transferred: 0,
            },
            verdict: decoded(&VERDICTS, raw.verdict).ok_or("its verdict is invalid")?,
            source: text(&raw.source),
            planned,
            extract,
        })
    }
}

/// Writes the numbers of an extract into its scan's entry. The rest of it is in the facts behind the entries.
fn put_extract(extract: &Extract, raw: &mut RawScan) {
    let OtherCounts { not_kept, restarts, disagreements, counters_moved, explained, .. } =
        &extract.beside;
    raw.extracted = 1;
    raw.counted_by = extract.counted_by.map_or(NOT_COUNTED, |it| code(&COUNTED_BY, &it));
    raw.threads = extract.unnamed_threads.into();
    raw.not_kept = (*not_kept).into();
    raw.restarts = (*restarts).into();
    raw.disagreements = (*disagreements).into();
    raw.explained = explained.unwrap_or(0).into();
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    raw.flags = flag(*counters_moved, COUNTERS_MOVED) | flag(explained.is_some(), EXPLAINED);
}

/// Reads them.
fn extract_of(raw: &RawScan) -> Result<Option<Extract>, &'static str> {
    if raw.extracted == 0 {
        return Ok(None);
    }
    let datagrams = raw.datagrams.get();
    // Version 1 has the absence of frames here, and no other presence.
    let absence = match raw.presence {
        0 => None,
        NEVER_CAME => Some(Presence::NeverCame),
        ONLY_FOREIGN => Some(Presence::OnlyForeign { datagrams }),
        ONLY_EXCLUDED => Some(Presence::OnlyExcluded { datagrams }),
        _ => return Err("its presence is invalid"),
    };
    let counted_by = match raw.counted_by {
        NOT_COUNTED => None,
        other => Some(decoded(&COUNTED_BY, other).ok_or("its numbering is invalid")?),
    };
    Ok(Some(Extract {
        counted_by,
        presence: absence.into_iter().collect(),
        unnamed_threads: raw.threads.get(),
        beside: OtherCounts {
            not_kept: raw.not_kept.get(),
            restarts: raw.restarts.get(),
            disagreements: raw.disagreements.get(),
            counters_moved: raw.flags & COUNTERS_MOVED != 0,
            explained: (raw.flags & EXPLAINED != 0).then(|| raw.explained.get()),
            ..OtherCounts::default()
        },
    }))
}

const NEVER_CAME: u8 = 1;
const ONLY_FOREIGN: u8 = 2;
const ONLY_EXCLUDED: u8 = 3;

/// The value of [`RawScan::counted_by`] if frames were not counted.
const NOT_COUNTED: u8 = u8::MAX;

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
const COUNTED_BY: [CountedBy; 7] = [
    CountedBy::FrameTime,
    CountedBy::PacketNumber,
    CountedBy::SequenceField,
    CountedBy::ServerCount,
    CountedBy::Nothing,
    CountedBy::Bytes,
    CountedBy::PacketCount,
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
mod golden;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::account::{Account, Edge, Flow};
    use crate::completeness::Status;

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
                planned: (number % 3 == 1).then(|| plan(10)),
                extract: (number % 5 > 0).then(|| extract(number as u64)),
            });
        }
        superblock.generation = scans as u64;
        superblock
    }

    /// A plan of this many seconds.
    fn plan(seconds: i64) -> Planned {
        let begin = Tai(1_000_000_000_000);
        Planned { begin: Some(begin), end: Some(begin.plus_ns(seconds * 1_000_000_000)) }
    }

    fn extract(number: u64) -> Extract {
        let presence = match number % 4 {
            0 => vec![],
            1 => vec![Presence::NeverCame, Presence::LacksBeginning { ns: 5, frames: None }],
            2 => vec![Presence::OnlyForeign { datagrams: number }],
            _ => vec![Presence::StartedLate { ns: 7 }],
        };
        Extract {
            counted_by: COUNTED_BY.get(number as usize % 7).copied(),
            presence,
            unnamed_threads: number as u32 % 3,
            beside: OtherCounts {
                not_kept: number,
                restarts: number + 1,
                disagreements: number + 2,
                counters_moved: !number.is_multiple_of(2),
                explained: (!number.is_multiple_of(3)).then_some(number),
                ..OtherCounts::default()
            },
        }
    }

    /// Returns the scan as it reads from the device.
    fn read_back(scan: &StoredScan) -> StoredScan {
        let facts = extract::encode(scan.planned.as_ref(), scan.extract.as_ref());
        StoredScan::of_raw(&scan.raw(), &facts).unwrap()
    }

    /// Returns a sealed scan with the extract of this account.
    fn sealed(account: &Account, planned: Option<Planned>) -> StoredScan {
        let mut scan = superblock(2).scans.remove(1);
        (scan.state, scan.ending) = (State::Sealed, Ending::Complete);
        (scan.terms, scan.verdict) = (account.terms, account.verdict);
        (scan.planned, scan.extract) = (planned, Some(Extract::from(account)));
        read_back(&scan)
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
            let live = account.completeness();
            let stored = sealed(account, None).completeness().unwrap();
            assert_eq!(stored, live);
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
        for counted_by in [CountedBy::Nothing, CountedBy::Bytes] {
            let mut uncounted = account();
            uncounted.counted_by = counted_by;
            same(&mut uncounted);
        }
        let mut brief = account();
        brief.presence =
            vec![Presence::CameLate { ns: 1 }, Presence::DiedEarly { ns: 2_000_000_000 }];
        assert!(same(&mut brief).headline.ends_with("it ended 2.0 s before the last one"));
        for (foreign, excluded) in [(0, 0), (100, 0), (0, 7)] {
            let mut silent = Account::new(CountedBy::FrameTime);
            (silent.foreign, silent.excluded) = (foreign, excluded);
            silent.presence = vec![silent.absence()];
            same(&mut silent);
        }
    }

    /// The account of four seconds of frames, 100 a second, from the begin of the plan on.
    fn of_four_seconds() -> Account {
        let mut account = Account::new(CountedBy::FrameTime);
        account.terms = Terms { expected: 400, written: 400, ..Terms::default() };
        let begin = plan(0).begin.unwrap();
        let edge = |index: i64| {
            let time = begin.plus_ns(index * 10_000_000);
            Some(Edge { index, time: Some(time), seen: time.plus_ns(1000) })
        };
        (account.first, account.last) = (edge(0), edge(399));
        account
    }

    #[test]
    fn the_index_keeps_the_plan_and_what_of_it_is_not_covered() {
        for (seconds, status, told) in [
            (4, Status::Complete, "COMPLETE: all 400 frames, the 4.0 s planned"),
            (
                10,
                Status::Incomplete,
                "INCOMPLETE: 400 frames recorded, no loss among them; 6.0 s of the 10.0 s planned \
                 are not covered (600 frames): it ended 6.0 s early",
            ),
        ] {
            let (planned, mut account) = (plan(seconds), of_four_seconds());
            account.presence = planned.lacking(&account, Some(100), Tai(0), None);
            account.verdict = account.judge();
            let stored = sealed(&account, Some(planned)).completeness().unwrap();
            let live = StreamCompleteness::of_account("", &account);
            let live = Completeness::judged(vec![live], Some(planned), State::Sealed, &[]);
            assert_eq!((stored.status, stored.headline.as_str()), (status, told));
            assert_eq!(stored, live, "what is covered, and the plan, are the same too");
        }
    }

    #[test]
    fn a_thread_that_was_not_there_is_named_by_the_index() {
        let mut account = Account::new(CountedBy::FrameTime);
        account.terms = Terms { expected: 400, written: 400, ..Terms::default() };
        let absent = Flow { thread: 1, presence: vec![Presence::NeverCame], ..Flow::default() };
        account.flows = vec![Flow { terms: account.terms, ..Flow::default() }, absent];
        account.verdict = account.judge();
        let told = sealed(&account, None).completeness().unwrap();
        assert_eq!(
            told.headline,
            "INCOMPLETE: 400 frames recorded, no loss among them; station 0, thread 1: sent nothing \
             in this scan"
        );
        assert_eq!(told, account.completeness());
    }

    #[test]
    fn an_index_of_version_1_reads_as_it_was_and_is_written_as_version_2() {
        let read = Superblock::decode(&golden::version_1()).unwrap();
        let same = superblock(3);
        assert_eq!((read.uuid, read.volume, read.scans.len()), (same.uuid, same.volume, 3));
        for (number, scan) in read.scans.iter().enumerate() {
            let StoredScan { planned, extract, .. } = &same.scans[number];
            let now = StoredScan { planned: *planned, extract: extract.clone(), ..scan.clone() };
            assert_eq!((&now, scan.planned), (&same.scans[number], None), "scan {number}");
        }
        let absence =
            |number: usize| read.scans[number].extract.as_ref().map(|it| &it.presence[..]);
        assert_eq!(absence(0), None);
        assert_eq!(absence(1), Some(&[Presence::NeverCame][..]));
        assert_eq!(absence(2), Some(&[Presence::OnlyForeign { datagrams: 2 }][..]));
        let headline = |number: usize| read.scans[number].completeness().unwrap().headline;
        assert!(headline(1).starts_with("LOST 1 of 16 frames"), "{}", headline(1));
        let written = read.encode();
        assert_eq!(written[8], 2);
        assert_eq!(Superblock::decode(&written), Ok(read));
    }

    #[test]
    fn an_index_takes_scans_while_it_has_room_for_all_of_their_facts() {
        let mut full = superblock(0);
        let mut next = superblock(200).scans.into_iter().cycle();
        while full.has_room() {
            let mut scan = next.next().unwrap();
            scan.uuid = Uuid::from_u128(full.scans.len() as u128);
            scan.state = State::Recording;
            full.scans.push(scan.clone());
            let threads: Vec<_> = (0..MOST_FACTS as u16).collect();
            let flow =
                |thread| Flow { thread, presence: vec![Presence::NeverCame], ..Flow::default() };
            let account =
                Account { flows: threads.into_iter().map(flow).collect(), ..of_four_seconds() };
            let many = full.scans.len().is_multiple_of(2);
            (scan.state, scan.planned) = (State::Sealed, Some(plan(4)));
            scan.extract = many.then(|| Extract::from(&account));
            full.replace(&mut scan);
            assert_eq!(full.scans.last(), Some(&scan));
            let unnamed = scan.extract.map_or(0, |it| it.unnamed_threads);
            // The plan and two time ranges take the place of three of the names.
            assert_eq!(unnamed, if many { 3 } else { 0 });
        }
        assert!(full.scans.len() > 150, "{}", full.scans.len());
        assert_eq!(Superblock::decode(&full.encode()), Ok(full));
    }

    #[test]
    fn a_full_index_of_version_1_keeps_its_scans_though_their_facts_lack_room() {
        let mut full = superblock(0);
        let old = |number: u128| {
            let mut scan = superblock(1).scans.remove(0);
            (scan.uuid, scan.state) = (Uuid::from_u128(number), State::Recording);
            (scan.planned, scan.extract) = (None, None);
            scan
        };
        full.scans = (0..MOST_SCANS as u128).map(old).collect();
        assert!(!full.has_room());
        let mut recovered = full.scans[7].clone();
        recovered.state = State::Recovered;
        recovered.extract =
            Some(Extract { presence: vec![Presence::NotKnown], ..Extract::default() });
        full.replace(&mut recovered);
        assert_eq!(recovered.extract, Some(Extract::default()));
        assert_eq!(Superblock::decode(&full.encode()), Ok(full));
    }

    #[test]
    fn a_device_that_is_full_is_the_cause_and_not_the_memory() {
        let mut full = superblock(2).scans.remove(1);
        full.extract = None;
        (full.state, full.ending, full.verdict) =
            (State::Sealed, Ending::Full, Verdict::Consistent);
        full.terms = Terms { expected: 16, written: 10, overrun: 6, ..Terms::default() };
        let told = full.completeness().unwrap().headline;
        assert_eq!(told, "LOST 6 of 16 frames (38 %): the device is full");
    }

    #[test]
    fn a_copy_reads_back_with_as_many_scans_as_it_holds() {
        for scans in [0, 1, 12, 400] {
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
        for version in [0, 3] {
            later[8] = version;
            let version = version.into();
            assert_eq!(Superblock::decode(&later), Err(Error::Version { version }));
        }
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
        let mut facts = superblock(1).encode();
        facts[4096 + 76..4096 + 80].copy_from_slice(&u32::MAX.to_le_bytes());
        facts[12..16].fill(0);
        let crc = crc32c::crc32c(&facts);
        facts[12..16].copy_from_slice(&crc.to_le_bytes());
        let refused = Superblock::decode(&facts).unwrap_err();
        assert!(refused.to_string().contains("so many facts"), "{refused}");
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
            if let Ok(scan) = StoredScan::of_raw(&raw, &[]) {
                prop_assert!(usize::from(raw.state) < STATES.len());
                prop_assert!(!scan.name.to_string().is_empty());
            }
        }
    }
}
