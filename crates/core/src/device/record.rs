//! The record of one block of a scan in the record region.

use fullbore_time::Tai;
use uuid::Uuid;
use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a record.
pub const RECORD_BYTES: usize = 64;

/// Records in a page of 4096 bytes.
pub const RECORDS_PER_PAGE: usize = 4096 / RECORD_BYTES;

/// The first word of a record of an earlier version, which has a part of the scan's identity and no arrival time.
const WORD_1: u32 = u32::from_le_bytes(*b"FBbk");

/// The first word of a record with an arrival time. The scan's identity is in its checksum.
const WORD_2: u32 = u32::from_le_bytes(*b"FBbl");

/// The value of an unknown time.
const NO_TIME: i64 = i64::MIN;

/// The layout of a record on the device.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    word: U32,
    /// CRC32C of all bytes after it, and of the scan's identity before them if the record has an arrival time.
    crc: U32,
    /// Arrival time of the first frame; in a record of an earlier version a part of the scan's identity.
    seen: I64,
    number: U32,
    round: U32,
    bytes: U32,
    data_crc: U32,
    first: I64,
    frames: U32,
    present: U32,
    time: I64,
    offset: U64,
}

// A page is read as an array of records, so the size must not change.
const _: () = assert!(size_of::<Raw>() == RECORD_BYTES);

/// One block of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRecord {
    /// Number of the block within the scan.
    pub number: u32,
    /// The sync round that made the block durable: all rounds before the newest are known to have ended.
    pub round: u32,
    /// Bytes of the block that are valid.
    pub bytes: u32,
    /// CRC32C of those bytes.
    pub crc: u32,
    /// Index of its first frame; for bytes without frames, of its first byte.
    pub first: i64,
    /// Frames in it, fill included.
    pub frames: u32,
    /// Number of received frames among them.
    pub present: u32,
    /// Time of its first frame.
    pub time: Option<Tai>,
    /// Arrival time of its first frame, by the host's clock; `None` in a record of an earlier version.
    pub seen: Option<Tai>,
    /// Bytes of the scan before it.
    pub offset: u64,
}

/// The checksum of a block's bytes: CRC32C.
pub fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// Returns the part of a scan's identity that records of an earlier version carry. It distinguishes them from records of
/// an earlier scan in the same place.
fn tag_of(scan: Uuid) -> i64 {
    // The last eight bytes of a version 7 UUID are random; the first are the time.
    scan.as_u64_pair().1.cast_signed()
}

impl Raw {
    /// The checksum of the record, if it belongs to this scan.
    fn checksum(&self, scan: Uuid) -> u32 {
        let bytes = &self.as_bytes()[8..];
        match self.word.get() {
            WORD_2 => crc32c::crc32c_append(crc32c::crc32c(scan.as_bytes()), bytes),
            _ => crc32c::crc32c(bytes),
        }
    }

    /// True if the record is undamaged and belongs to this scan.
    fn is_of(&self, scan: Uuid) -> bool {
        let of_scan = match self.word.get() {
            WORD_1 => self.seen.get() == tag_of(scan),
            word => word == WORD_2,
        };
        of_scan && self.crc.get() == self.checksum(scan)
    }
}

impl BlockRecord {
    /// Returns the record in its layout on the device.
    pub fn encode(&self, scan: Uuid) -> [u8; RECORD_BYTES] {
        let mut raw = Raw {
            word: if self.seen.is_some() { WORD_2 } else { WORD_1 }.into(),
            crc: 0.into(),
            seen: self.seen.map_or(tag_of(scan), |seen| seen.0).into(),
            number: self.number.into(),
            round: self.round.into(),
            bytes: self.bytes.into(),
            data_crc: self.crc.into(),
            first: self.first.into(),
            frames: self.frames.into(),
            present: self.present.into(),
            time: self.time.map_or(NO_TIME, |time| time.0).into(),
            offset: self.offset.into(),
        };
        raw.crc = raw.checksum(scan).into();
        let mut bytes = [0; RECORD_BYTES];
        bytes.copy_from_slice(raw.as_bytes());
        bytes
    }

    /// Returns the record of block `number` of a scan; `None` if the bytes are invalid or belong to another scan.
    pub fn decode(bytes: &[u8], scan: Uuid, number: u32) -> Option<Self> {
        let raw = Raw::read_from_bytes(bytes.get(..RECORD_BYTES)?).ok()?;
        let sound = raw.is_of(scan) && raw.number.get() == number;
        sound.then(|| Self {
            number,
            round: raw.round.get(),
            bytes: raw.bytes.get(),
            crc: raw.data_crc.get(),
            first: raw.first.get(),
            frames: raw.frames.get(),
            present: raw.present.get(),
            time: Some(raw.time.get()).filter(|&time| time != NO_TIME).map(Tai),
            seen: (raw.word.get() == WORD_2).then(|| Tai(raw.seen.get())),
            offset: raw.offset.get(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCAN: Uuid = Uuid::from_u128(99);
    const OTHER: Uuid = Uuid::from_u128(98);

    fn record() -> BlockRecord {
        BlockRecord {
            number: 7,
            round: 3,
            bytes: 4 << 20,
            crc: 0x1234_5678,
            first: -5,
            frames: 512,
            present: 500,
            time: Some(Tai(1)),
            seen: Some(Tai(2)),
            offset: 28 << 20,
        }
    }

    #[test]
    fn a_record_reads_back_and_no_byte_of_it_can_change_unseen() {
        for record in [record(), BlockRecord { seen: None, ..record() }] {
            let bytes = record.encode(SCAN);
            assert_eq!(BlockRecord::decode(&bytes, SCAN, 7), Some(record));
            for place in 0..RECORD_BYTES {
                let mut damaged = bytes;
                damaged[place] ^= 1;
                assert_eq!(BlockRecord::decode(&damaged, SCAN, 7), None, "byte {place}");
            }
            let timeless = BlockRecord { time: None, ..record };
            assert_eq!(BlockRecord::decode(&timeless.encode(SCAN), SCAN, 7), Some(timeless));
        }
    }

    #[test]
    fn the_record_of_another_scan_or_place_is_none() {
        for record in [record(), BlockRecord { seen: None, ..record() }] {
            let bytes = record.encode(SCAN);
            assert_eq!(BlockRecord::decode(&bytes, OTHER, 7), None);
            assert_eq!(BlockRecord::decode(&bytes, SCAN, 8), None);
            assert_eq!(BlockRecord::decode(&bytes[..63], SCAN, 7), None);
        }
        assert_eq!(BlockRecord::decode(&[0; RECORD_BYTES], Uuid::nil(), 0), None);
    }

    #[test]
    fn a_record_of_an_earlier_version_reads_as_it_was_written() {
        let record = BlockRecord { seen: None, ..record() };
        let mut bytes = *b"FBbk\0\0\0\0\x63\0\0\0\0\0\0\0\x07\0\0\0\x03\0\0\0\0\0\x40\0\x78\x56\x34\x12\
            \xfb\xff\xff\xff\xff\xff\xff\xff\0\x02\0\0\xf4\x01\0\0\x01\0\0\0\0\0\0\0\0\0\xc0\x01\0\0\0\0";
        let crc = crc32c::crc32c(&bytes[8..]);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(BlockRecord::decode(&bytes, SCAN, 7), Some(record));
    }
}
