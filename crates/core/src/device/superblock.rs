//! The superblock: how a device is divided, and which scans lie on it.
//!
//! Two copies, at the beginning and the end of the device. A change is written to the older copy, with the next
//! generation number, and synced, and then to the other in the same way: whenever the power fails, one copy is
//! whole, and between changes both say the same.

use std::fmt;

use serde::Serialize;
use uuid::Uuid;
use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::volume::{self, Volume};
use crate::account::{Terms, Verdict};
use crate::completeness::Completeness;
use crate::manifest::State;
use crate::name::ScanName;
use crate::time::Tai;

/// The first eight bytes of a copy.
pub const MAGIC: [u8; 8] = *b"FBDEVICE";

/// The version of this form.
const VERSION: u32 = 1;

/// Bytes of a copy.
pub const COPY_BYTES: usize = 256 << 10;

/// Bytes before the first scan of a copy.
const HEAD_BYTES: usize = 4096;

/// Bytes of a scan in a copy.
const ENTRY_BYTES: usize = 512;

/// The most scans on one device.
pub const MOST_SCANS: usize = (COPY_BYTES - HEAD_BYTES) / ENTRY_BYTES;

/// The longest text of a source that is kept.
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
    rest: [u8; 56],
}

// Readers find scan n at 4096 + 512 n, so neither may change.
const _: () = assert!(size_of::<RawHead>() == 96);
const _: () = assert!(size_of::<RawScan>() == ENTRY_BYTES);

/// What the bytes of a scan are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Anything.
    Raw,
    /// VDIF frames.
    Vdif,
}

/// Why a scan ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// It has not, or nobody is left to say.
    Unknown,
    /// The source came to its end, or a limit was reached.
    Complete,
    /// It was stopped.
    Stopped,
    /// It was aborted.
    Aborted,
    /// There was no more room.
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
            Ending::Full => "no more room",
            Ending::Failed => "the device failed",
        })
    }
}

/// A scan on the device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StoredScan {
    /// Its name.
    pub name: ScanName,
    /// Its identity; records carry a part of it.
    pub uuid: Uuid,
    /// How far it has come.
    pub state: State,
    /// What its bytes are.
    pub kind: Kind,
    /// Why it ended.
    pub ending: Ending,
    /// Address of its first chunk.
    pub first: u64,
    /// Address of the last chunk that is its own: while it is recorded, of the room it may take.
    pub limit: u64,
    /// Bytes of data.
    pub bytes: u64,
    /// Blocks of data.
    pub blocks: u64,
    /// Bytes of every block but the last.
    pub block_bytes: u32,
    /// When it was begun.
    pub begun: Tai,
    /// When it was sealed.
    pub ended: Option<Tai>,
    /// Bytes of a frame; 0 where there are none.
    pub frame_bytes: u32,
    /// Frames per second of each thread, where known.
    pub frames_per_second: Option<u64>,
    /// The balance, in frames.
    pub terms: Terms,
    /// The end of the account.
    pub verdict: Verdict,
    /// The endpoint it was recorded from, cut if it is very long.
    pub source: String,
}

impl StoredScan {
    /// Whether it is complete, if its frames were counted and it is over.
    pub fn completeness(&self) -> Option<Completeness> {
        let counted = self.frame_bytes > 0 && self.state != State::Recording;
        counted.then(|| Completeness::of_terms(self.terms, self.verdict, self.state))
    }
}

/// All that a device says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Superblock {
    /// Goes up by one with every copy that is written, so by two with every change.
    pub generation: u64,
    /// Identity of the device's index.
    pub uuid: Uuid,
    /// When the index was made.
    pub made: Tai,
    /// How the device is divided.
    pub volume: Volume,
    /// The scans, in the order in which they were recorded.
    pub scans: Vec<StoredScan>,
}

/// Bytes that are no superblock.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Something else lies there.
    #[error("no scan index begins there")]
    Magic,
    /// Cut off.
    #[error("{bytes} bytes are no copy of a superblock: it has {COPY_BYTES}")]
    Length {
        /// How many there are.
        bytes: usize,
    },
    /// Made by a later program.
    #[error("the scan index has version {version}, and this program reads version {VERSION}")]
    Version {
        /// The version found.
        version: u32,
    },
    /// Not as it was written.
    #[error("the copy is damaged: its checksum is wrong")]
    Checksum,
    /// Places that cannot be.
    #[error(transparent)]
    Volume(#[from] volume::Error),
    /// A scan that cannot be, though the checksum is right.
    #[error("scan {number} of the index cannot be: {why}")]
    Scan {
        /// Its place.
        number: usize,
        /// What is wrong.
        why: &'static str,
    },
}

impl Superblock {
    /// An index without scans for a device of so many bytes.
    pub fn new(uuid: Uuid, made: Tai, volume: Volume) -> Self {
        Self { generation: 0, uuid, made, volume, scans: Vec::new() }
    }

    /// Which copy the present generation is written to: 0 at the beginning, 1 at the end.
    pub fn copy(&self) -> usize {
        (self.generation % 2) as usize
    }

    /// Where a copy lies.
    pub fn place_of_copy(&self, copy: usize) -> u64 {
        if copy == 0 { 0 } else { self.volume.second_copy() }
    }

    /// Chunks that scans have, first and last address each.
    pub fn taken(&self) -> Vec<(u64, u64)> {
        self.scans.iter().map(|scan| (scan.first, scan.limit)).collect()
    }

    /// The scan of this name.
    pub fn scan(&self, name: &ScanName) -> Option<&StoredScan> {
        self.scans.iter().find(|scan| scan.name == *name)
    }

    /// A copy, as it lies on the device.
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
            let raw = RawScan::read_from_bytes(bytes).map_err(|_| wrong("it is cut off"))?;
            let scan = StoredScan::of_raw(&raw).map_err(wrong)?;
            let span =
                volume.span(scan.first, scan.limit).ok_or(wrong("it lies outside the data"))?;
            if scan.bytes > span.bytes() {
                return Err(wrong("it is longer than its place"));
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

/// Reads both copies of the index of a device, by way of `read`, and takes the newer whole one, with what is wrong
/// with the other.
pub fn find<E>(
    media_bytes: u64,
    mut read: impl FnMut(u64) -> Result<Result<Superblock, Error>, E>,
) -> Result<Result<(Superblock, Option<Error>), Error>, E> {
    let mut copy = |place: Option<u64>| {
        let fits = |place: &u64| place.saturating_add(COPY_BYTES as u64) <= media_bytes;
        place.filter(fits).map_or(Ok(Err(Error::Magic)), &mut read)
    };
    let first = copy(Some(0))?;
    // A device may have become larger since: then the first copy knows where its end was.
    let place = match &first {
        Ok(first) => Some(first.volume.second_copy()),
        Err(_) => volume::second_copy(media_bytes),
    };
    let second = copy(place)?;
    Ok(newest(first, second))
}

/// The newer of two copies that were read, and the error of the other, if it has one.
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
    /// Address of the last chunk that holds data of it.
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
        raw
    }

    fn of_raw(raw: &RawScan) -> Result<Self, &'static str> {
        Ok(Self {
            name: text(&raw.name).parse().map_err(|_| "its name is none")?,
            uuid: Uuid::from_bytes(raw.uuid),
            state: decoded(&STATES, raw.state).ok_or("its state is none")?,
            kind: decoded(&KINDS, raw.kind).ok_or("its kind is none")?,
            ending: decoded(&ENDINGS, raw.ending).ok_or("its ending is none")?,
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
            verdict: decoded(&VERDICTS, raw.verdict).ok_or("its verdict is none")?,
            source: text(&raw.source),
        })
    }
}

/// The place in a list is the number on the device: lists only grow at the end.
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
const VERDICTS: [Verdict; 4] =
    [Verdict::Unproven, Verdict::Proven, Verdict::Consistent, Verdict::Unexplained];

fn code<T: PartialEq>(list: &[T], it: &T) -> u8 {
    list.iter().position(|other| other == it).expect("every variant is in its list") as u8
}

fn decoded<T: Copy>(list: &[T], code: u8) -> Option<T> {
    list.get(usize::from(code)).copied()
}

/// As much of a text as fits, ended by a zero if it does not fill the place.
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
            });
        }
        superblock.generation = scans as u64;
        superblock
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
