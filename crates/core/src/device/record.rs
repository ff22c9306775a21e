//! The record of one block of a scan in the record region.

use fullbore_time::Tai;
use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a record.
pub const RECORD_BYTES: usize = 64;

/// Records in a page of 4096 bytes.
pub const RECORDS_PER_PAGE: usize = 4096 / RECORD_BYTES;

/// The first word of every record: `FBbk`.
const WORD: u32 = u32::from_le_bytes(*b"FBbk");

/// The value of an unknown time.
const NO_TIME: i64 = i64::MIN;

/// The layout of a record on the device.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    word: U32,
    /// CRC32C of all bytes after it.
    crc: U32,
    tag: U64,
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
    /// Bytes of the scan before it.
    pub offset: u64,
}

/// The checksum of a block's bytes: CRC32C.
pub fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// Returns the part of a scan's identity that its records carry. It distinguishes them from records of an earlier scan
/// in the same place.
pub fn tag_of(uuid: uuid::Uuid) -> u64 {
    // The last eight bytes of a version 7 UUID are random; the first are the time.
    uuid.as_u64_pair().1
}

impl BlockRecord {
    /// Returns the record in its layout on the device.
    pub fn encode(&self, tag: u64) -> [u8; RECORD_BYTES] {
        let mut raw = Raw {
            word: WORD.into(),
            crc: 0.into(),
            tag: tag.into(),
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
        raw.crc = crc32c::crc32c(&raw.as_bytes()[8..]).into();
        let mut bytes = [0; RECORD_BYTES];
        bytes.copy_from_slice(raw.as_bytes());
        bytes
    }

    /// Returns the record of block `number` of the scan with this tag; `None` if the bytes are invalid or belong to
    /// another scan.
    pub fn decode(bytes: &[u8], tag: u64, number: u32) -> Option<Self> {
        let raw = Raw::read_from_bytes(bytes.get(..RECORD_BYTES)?).ok()?;
        let sound = raw.word.get() == WORD
            && raw.crc.get() == crc32c::crc32c(&raw.as_bytes()[8..])
            && raw.tag.get() == tag
            && raw.number.get() == number;
        sound.then(|| Self {
            number,
            round: raw.round.get(),
            bytes: raw.bytes.get(),
            crc: raw.data_crc.get(),
            first: raw.first.get(),
            frames: raw.frames.get(),
            present: raw.present.get(),
            time: Some(raw.time.get()).filter(|&time| time != NO_TIME).map(Tai),
            offset: raw.offset.get(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            offset: 28 << 20,
        }
    }

    #[test]
    fn a_record_reads_back_and_no_byte_of_it_can_change_unseen() {
        let bytes = record().encode(99);
        assert_eq!(BlockRecord::decode(&bytes, 99, 7), Some(record()));
        for place in 0..RECORD_BYTES {
            let mut damaged = bytes;
            damaged[place] ^= 1;
            assert_eq!(BlockRecord::decode(&damaged, 99, 7), None, "byte {place}");
        }
        let timeless = BlockRecord { time: None, ..record() };
        assert_eq!(BlockRecord::decode(&timeless.encode(1), 1, 7), Some(timeless));
    }

    #[test]
    fn the_record_of_another_scan_or_place_is_none() {
        let bytes = record().encode(99);
        assert_eq!(BlockRecord::decode(&bytes, 98, 7), None);
        assert_eq!(BlockRecord::decode(&bytes, 99, 8), None);
        assert_eq!(BlockRecord::decode(&[0; RECORD_BYTES], 0, 0), None);
        assert_eq!(BlockRecord::decode(&bytes[..63], 99, 7), None);
    }
}
