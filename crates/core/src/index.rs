//! The index of a stream on one member: a description of each block, stored separately from it.
//!
//! Chunk files contain only the stream's bytes. All information that is needed to verify them is in this append-only
//! file of 128-byte records, little-endian:
//!
//! ```text
//! record  0 u32 CRC32C of the scan's UUID and bytes 4…128   a reused file never matches
//!         4 u8  kind     5 u8 version     6 u16 stream (place in the manifest)
//!         8 …   by kind, zero to the end
//!
//! header  8 member UUID (16)  24 u32 frame bytes  28 u32 block bytes  32 u32 chunk blocks
//! block   8 u64 sequence  16 u64 offset in chunk  24 u32 chunk  28 u32 bytes  32 u32 CRC32C of them
//!        36 u32 frames, fill included  40 u32 true frames  44 u32 invalid frames
//!        48 i64 index of the first frame  56 i64 its time (TAI ns; i64::MIN = unknown)  64 i64 seen (TAI ns)
//! lengths 8 u64 sequence of the block before  16 u32 number of the first frame  20 u32 count  24 u16 × count ≤ 52
//! gap     8 i64 first index  16 u64 count  24 u8 cause
//! mark    8 u64 blocks of this file made durable so far  16 i64 when (TAI ns)
//! found   8 u64 first sequence  16 u64 count: blocks that `recover` found without a record
//! stripe  8 u32 number  12 u32 row bytes  16 u16 data chunks  18 u16 parity chunks  20 u16 which of these  24 u64
//! bytes
//!        32 u64 number of records after this one
//! rows    8 u64 first row  16 u32 count  20 u32 CRC32C of each, count ≤ 27
//! ```
//!
//! The last two kinds do not occur in an index. They begin the record file of a parity chunk; the index records of its
//! data chunks follow them unchanged.
//!
//! A record follows the data that it describes. The index ends before the first record that does not verify.

use fullbore_time::Tai;
use uuid::Uuid;

use crate::gap::{Cause, Gap};

/// Bytes of every record.
pub const RECORD_BYTES: usize = 128;

/// The version written into every record.
pub const VERSION: u8 = 1;

/// The largest number of frame lengths in one record.
pub const LENGTHS: usize = (RECORD_BYTES - 24) / 2;

/// The largest number of row checksums in one record.
pub const ROWS: usize = (RECORD_BYTES - 20) / 4;

/// A block of a stream, as found in a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Number of the block within the stream, from 0.
    pub sequence: u64,
    /// Byte offset within its chunk.
    pub offset: u64,
    /// Number of the chunk within the stream.
    pub chunk: u32,
    /// Its length; shorter than the stream's block size only at the end.
    pub bytes: u32,
    /// CRC32C of those bytes.
    pub crc: u32,
    /// Frames in it, fill included. With varying lengths: frames that begin in it.
    pub frames: u32,
    /// Frames in it that were received.
    pub present: u32,
    /// Number of received frames that the sender marked invalid.
    pub invalid: u32,
    /// Index of the first frame.
    pub first: i64,
    /// Time of the first frame, if the format has one.
    pub time: Option<Tai>,
    /// Arrival time of its first frame, by the host's clock; for a PandA's samples, the time when the block was
    /// dispatched.
    pub seen: Tai,
}

/// The contents of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The start of the file.
    Header {
        /// UUID of the member.
        member: Uuid,
        /// Bytes of a frame; 0 if lengths vary.
        frame_bytes: u32,
        /// Bytes of a full block.
        block_bytes: u32,
        /// Blocks of a full chunk.
        chunk_blocks: u32,
    },
    /// A block was written.
    Block(Block),
    /// Lengths of frames of the block before, for streams whose lengths vary.
    Lengths {
        /// The block's sequence.
        sequence: u64,
        /// Number of the first of these frames within the block.
        first: u32,
        /// Bytes of each.
        lengths: Vec<u16>,
    },
    /// Missing frames. The part of them that is within blocks is fill.
    Gap(Gap),
    /// All data before this record was durable before the record was written.
    Mark {
        /// Number of durable blocks of this file.
        blocks: u64,
        /// The time.
        at: Tai,
    },
    /// Blocks that `recover` found without a record: their checksums cover the data found then, not the data received.
    Found {
        /// Sequence of the first.
        first: u64,
        /// The number of blocks.
        count: u64,
    },
    /// The start of the records of a parity chunk.
    Stripe(Stripe),
    /// Checksums of rows of a parity chunk.
    Rows {
        /// Number of the first.
        first: u64,
        /// CRC32C of each.
        crcs: Vec<u32>,
    },
}

/// A parity chunk, and its stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stripe {
    /// Number of the stripe within its stream.
    pub number: u32,
    /// Bytes of each chunk that are computed and checked together.
    pub row_bytes: u32,
    /// Number of data chunks.
    pub data: u16,
    /// Number of parity chunks.
    pub parity: u16,
    /// The number of this parity chunk.
    pub shard: u16,
    /// Its length in bytes.
    pub bytes: u64,
    /// Number of records after this one, to detect a truncated file.
    pub records: u64,
}

/// An invalid record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Its checksum is wrong: torn, stale, or of another scan.
    #[error("the record's checksum does not match this scan")]
    Checksum,
    /// Its checksum is right but its kind or version is unknown.
    #[error("unknown record: kind {kind}, version {version}")]
    Unknown {
        /// The kind byte.
        kind: u8,
        /// The version byte.
        version: u8,
    },
}

/// A reader or writer of the records of one scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Codec {
    seed: u32,
}

impl Codec {
    /// The codec of the scan with this UUID.
    pub fn of_scan(scan: Uuid) -> Self {
        Self { seed: crc32c::crc32c(scan.as_bytes()) }
    }

    /// Returns the codec that wrote this record, for a scan whose UUID is lost. A checksum can be inverted, so any
    /// bytes are a valid record for some codec.
    pub fn of_record(record: &[u8; RECORD_BYTES]) -> Self {
        let stored = u32::from_le_bytes(record[..4].try_into().expect("four bytes"));
        let behind = stored ^ crc32c::crc32c_append(!0, &record[4..]);
        Self { seed: !before_zeroes(behind, RECORD_BYTES - 4) }
    }

    /// Returns a UUID that has this codec: `like` with other last bytes.
    pub fn scan_like(&self, like: Uuid) -> Uuid {
        let mut bytes = *like.as_bytes();
        let last = !crc32c::crc32c(&bytes[..12]) ^ before_zeroes(!self.seed, 4);
        bytes[12..].copy_from_slice(&last.to_le_bytes());
        Uuid::from_bytes(bytes)
    }

    /// One record as bytes.
    pub fn encode(&self, stream: u16, entry: &Entry) -> [u8; RECORD_BYTES] {
        let mut record = [0; RECORD_BYTES];
        record[4] = kind(entry);
        record[5] = VERSION;
        record[6..8].copy_from_slice(&stream.to_le_bytes());
        encode_body(entry, &mut Put { at: 8, record: &mut record });
        let crc = crc32c::crc32c_append(self.seed, &record[4..]);
        record[..4].copy_from_slice(&crc.to_le_bytes());
        record
    }

    /// Returns the contents of one record, and its stream.
    pub fn decode(&self, record: &[u8; RECORD_BYTES]) -> Result<(u16, Entry), Error> {
        let stored = u32::from_le_bytes(record[..4].try_into().expect("four bytes"));
        if stored != crc32c::crc32c_append(self.seed, &record[4..]) {
            return Err(Error::Checksum);
        }
        let (kind, version) = (record[4], record[5]);
        let unknown = Error::Unknown { kind, version };
        if version != VERSION {
            return Err(unknown);
        }
        let stream = u16::from_le_bytes([record[6], record[7]]);
        let entry = decode_body(kind, &mut Take { at: 8, record }).ok_or(unknown)?;
        Ok((stream, entry))
    }

    /// Returns the entries of an index file up to the first invalid record, and their bytes.
    pub fn decode_file(&self, bytes: &[u8]) -> (Vec<(u16, Entry)>, usize) {
        let mut entries = Vec::new();
        for record in bytes.chunks_exact(RECORD_BYTES) {
            match self.decode(record.try_into().expect("chunks of the record's size")) {
                Ok(entry) => entries.push(entry),
                Err(_) => break,
            }
        }
        let length = entries.len() * RECORD_BYTES;
        (entries, length)
    }
}

/// Returns the register of a CRC32C before `bytes` zero bytes.
fn before_zeroes(behind: u32, bytes: usize) -> u32 {
    /// Highest power last, as in the register.
    const POLYNOMIAL: u32 = 0x82F6_3B78;
    (0..8 * bytes).fold(behind, |register, _| match register >> 31 {
        0 => register << 1,
        _ => ((register ^ POLYNOMIAL) << 1) | 1,
    })
}

fn kind(entry: &Entry) -> u8 {
    match entry {
        Entry::Header { .. } => 1,
        Entry::Block(_) => 2,
        Entry::Lengths { .. } => 3,
        Entry::Gap(_) => 4,
        Entry::Mark { .. } => 5,
        Entry::Found { .. } => 6,
        Entry::Stripe(_) => 7,
        Entry::Rows { .. } => 8,
    }
}

fn encode_body(entry: &Entry, put: &mut Put<'_>) {
    match entry {
        Entry::Header { member, frame_bytes, block_bytes, chunk_blocks } => {
            put.bytes(member.as_bytes());
            put.bytes(&frame_bytes.to_le_bytes());
            put.bytes(&block_bytes.to_le_bytes());
            put.bytes(&chunk_blocks.to_le_bytes());
        }
        Entry::Block(block) => {
            put.bytes(&block.sequence.to_le_bytes());
            put.bytes(&block.offset.to_le_bytes());
            for word in
                [block.chunk, block.bytes, block.crc, block.frames, block.present, block.invalid]
            {
                put.bytes(&word.to_le_bytes());
            }
            put.bytes(&block.first.to_le_bytes());
            put.bytes(&block.time.map_or(i64::MIN, |time| time.0).to_le_bytes());
            put.bytes(&block.seen.0.to_le_bytes());
        }
        Entry::Lengths { sequence, first, lengths } => {
            assert!(lengths.len() <= LENGTHS, "{} lengths in one record", lengths.len());
            put.bytes(&sequence.to_le_bytes());
            put.bytes(&first.to_le_bytes());
            put.bytes(&(lengths.len() as u32).to_le_bytes());
            for length in lengths {
                put.bytes(&length.to_le_bytes());
            }
        }
        Entry::Gap(gap) => {
            put.bytes(&gap.first.to_le_bytes());
            put.bytes(&gap.count.to_le_bytes());
            put.bytes(&[gap.cause as u8]);
        }
        Entry::Mark { blocks, at } => {
            put.bytes(&blocks.to_le_bytes());
            put.bytes(&at.0.to_le_bytes());
        }
        Entry::Found { first, count } => {
            put.bytes(&first.to_le_bytes());
            put.bytes(&count.to_le_bytes());
        }
        Entry::Stripe(stripe) => {
            put.bytes(&stripe.number.to_le_bytes());
            put.bytes(&stripe.row_bytes.to_le_bytes());
            for half in [stripe.data, stripe.parity, stripe.shard, 0] {
                put.bytes(&half.to_le_bytes());
            }
            put.bytes(&stripe.bytes.to_le_bytes());
            put.bytes(&stripe.records.to_le_bytes());
        }
        Entry::Rows { first, crcs } => {
            assert!(crcs.len() <= ROWS, "{} rows in one record", crcs.len());
            put.bytes(&first.to_le_bytes());
            put.bytes(&(crcs.len() as u32).to_le_bytes());
            for crc in crcs {
                put.bytes(&crc.to_le_bytes());
            }
        }
    }
}

fn decode_body(kind: u8, take: &mut Take<'_>) -> Option<Entry> {
    Some(match kind {
        1 => Entry::Header {
            member: Uuid::from_bytes(take.bytes()),
            frame_bytes: take.u32(),
            block_bytes: take.u32(),
            chunk_blocks: take.u32(),
        },
        2 => Entry::Block(Block {
            sequence: take.u64(),
            offset: take.u64(),
            chunk: take.u32(),
            bytes: take.u32(),
            crc: take.u32(),
            frames: take.u32(),
            present: take.u32(),
            invalid: take.u32(),
            first: take.i64(),
            time: Some(take.i64()).filter(|&ns| ns != i64::MIN).map(Tai),
            seen: Tai(take.i64()),
        }),
        3 => {
            let (sequence, first, count) = (take.u64(), take.u32(), take.u32() as usize);
            if count > LENGTHS {
                return None;
            }
            let lengths = (0..count).map(|_| u16::from_le_bytes(take.bytes())).collect();
            Entry::Lengths { sequence, first, lengths }
        }
        4 => {
            let (first, count) = (take.i64(), take.u64());
            let [cause] = take.bytes::<1>();
            Entry::Gap(Gap { first, count, cause: *Cause::ALL.get(usize::from(cause))? })
        }
        5 => Entry::Mark { blocks: take.u64(), at: Tai(take.i64()) },
        6 => Entry::Found { first: take.u64(), count: take.u64() },
        7 => {
            let (number, row_bytes) = (take.u32(), take.u32());
            let [data, parity, shard, _] =
                std::array::from_fn(|_| u16::from_le_bytes(take.bytes()));
            let (bytes, records) = (take.u64(), take.u64());
            Entry::Stripe(Stripe { number, row_bytes, data, parity, shard, bytes, records })
        }
        8 => {
            let (first, count) = (take.u64(), take.u32() as usize);
            if count > ROWS {
                return None;
            }
            Entry::Rows { first, crcs: (0..count).map(|_| take.u32()).collect() }
        }
        _ => return None,
    })
}

struct Put<'a> {
    at: usize,
    record: &'a mut [u8; RECORD_BYTES],
}

impl Put<'_> {
    fn bytes(&mut self, bytes: &[u8]) {
        self.record[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }
}

struct Take<'a> {
    at: usize,
    record: &'a [u8; RECORD_BYTES],
}

impl Take<'_> {
    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let bytes = self.record[self.at..self.at + N].try_into().expect("a slice of N bytes");
        self.at += N;
        bytes
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.bytes())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.bytes())
    }

    fn i64(&mut self) -> i64 {
        i64::from_le_bytes(self.bytes())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entries() -> impl Strategy<Value = Entry> {
        let block = (any::<[u64; 2]>(), any::<[u32; 6]>(), any::<[i64; 2]>(), any::<Option<i64>>());
        prop_oneof![
            (any::<u128>(), any::<[u32; 3]>()).prop_map(|(member, words)| Entry::Header {
                member: Uuid::from_u128(member),
                frame_bytes: words[0],
                block_bytes: words[1],
                chunk_blocks: words[2],
            }),
            block.prop_map(|(longs, words, signed, time)| Entry::Block(Block {
                sequence: longs[0],
                offset: longs[1],
                chunk: words[0],
                bytes: words[1],
                crc: words[2],
                frames: words[3],
                present: words[4],
                invalid: words[5],
                first: signed[0],
                time: time.filter(|&ns| ns != i64::MIN).map(Tai),
                seen: Tai(signed[1]),
            })),
            (any::<u64>(), any::<u32>(), prop::collection::vec(any::<u16>(), 0..=LENGTHS))
                .prop_map(|(sequence, first, lengths)| Entry::Lengths { sequence, first, lengths }),
            (any::<i64>(), any::<u64>()).prop_map(|(first, count)| Entry::Gap(Gap {
                first,
                count,
                cause: Cause::Damaged
            })),
            (any::<u64>(), any::<i64>())
                .prop_map(|(blocks, at)| Entry::Mark { blocks, at: Tai(at) }),
            any::<[u64; 2]>().prop_map(|[first, count]| Entry::Found { first, count }),
            (any::<[u32; 2]>(), any::<[u16; 3]>(), any::<[u64; 2]>()).prop_map(|(a, b, c)| {
                Entry::Stripe(Stripe {
                    number: a[0],
                    row_bytes: a[1],
                    data: b[0],
                    parity: b[1],
                    shard: b[2],
                    bytes: c[0],
                    records: c[1],
                })
            }),
            (any::<u64>(), prop::collection::vec(any::<u32>(), 0..=ROWS))
                .prop_map(|(first, crcs)| Entry::Rows { first, crcs }),
        ]
    }

    proptest! {
        #[test]
        fn every_entry_reads_back(stream in any::<u16>(), entry in entries()) {
            let codec = Codec::of_scan(Uuid::from_u128(1));
            prop_assert_eq!(codec.decode(&codec.encode(stream, &entry)), Ok((stream, entry)));
        }

        #[test]
        fn a_flipped_bit_or_another_scan_is_found(entry in entries(), bit in 0..8 * RECORD_BYTES) {
            let codec = Codec::of_scan(Uuid::from_u128(1));
            let mut record = codec.encode(3, &entry);
            let other = Codec::of_scan(Uuid::from_u128(2));
            prop_assert_eq!(other.decode(&record), Err(Error::Checksum));
            record[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(codec.decode(&record), Err(Error::Checksum));
        }

        #[test]
        fn a_record_tells_by_which_codec_it_was_written(
            scan in any::<u128>(), like in any::<u128>(), entry in entries()
        ) {
            let codec = Codec::of_scan(Uuid::from_u128(scan));
            prop_assert_eq!(Codec::of_record(&codec.encode(9, &entry)), codec);
            let another = codec.scan_like(Uuid::from_u128(like));
            prop_assert_eq!(Codec::of_scan(another), codec);
            prop_assert_eq!(another.as_u128() >> 32, like >> 32);
        }

        #[test]
        fn a_file_ends_at_the_first_bad_record(
            list in prop::collection::vec(entries(), 1..20), cut in any::<prop::sample::Index>()
        ) {
            let codec = Codec::of_scan(Uuid::from_u128(7));
            let mut file: Vec<u8> = list.iter().flat_map(|e| codec.encode(0, e)).collect();
            let bad = cut.index(list.len());
            file[bad * RECORD_BYTES + 9] ^= 0x40;
            let (read, bytes) = codec.decode_file(&file);
            prop_assert_eq!(bytes, bad * RECORD_BYTES);
            prop_assert_eq!(read.into_iter().map(|(_, e)| e).collect::<Vec<_>>(), &list[..bad]);
        }
    }
}
