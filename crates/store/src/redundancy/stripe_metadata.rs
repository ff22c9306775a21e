//! Stripe metadata beside a parity chunk: its checksums, and the index records of the stripe's data chunks.
//!
//! ```text
//! stripe │ rows … │ header of member a's index │ its records of the first chunk … │ header of b's │ …
//! ```
//!
//! The records have the format of an index (`fullbore_core::index`); those of the chunks are copied unchanged. The
//! first record has the number of records that follow, so a truncated file can be detected.

use std::io::{self, BufReader, Read};
use std::path::Path;

use fullbore_core::gap::Gap;
use fullbore_core::index::{Block, Codec, Entry, RECORD_BYTES, ROWS, Stripe};
use fullbore_core::layout::{ALIGNMENT, LARGEST_BLOCK_BYTES};
use fullbore_core::redundancy::MOST_SHARDS;
use fullbore_linux::regular_file;
use uuid::Uuid;

use crate::inventory::BlockRecord;

/// The record limit: the largest block of the smallest frames has about 1300 records, and a stripe some thousand
/// blocks.
const MOST_RECORDS: u64 = 1 << 24;

/// The index records of one data chunk.
#[derive(Clone, Debug)]
pub struct ChunkRecords {
    /// The member that it was recorded on.
    pub member: Uuid,
    /// The number, as the index has it.
    pub chunk: u32,
    /// The blocks. The positions of lengths are numbers of records in this file.
    pub blocks: Vec<BlockRecord>,
    /// Gaps in the same records.
    pub gaps: Vec<Gap>,
    /// The header of the index and the records, as stored.
    pub raw: Vec<u8>,
}

impl ChunkRecords {
    /// Bytes of the chunk.
    pub fn bytes(&self) -> u64 {
        let ends = self.blocks.iter().map(|it| it.block.offset + u64::from(it.block.bytes));
        ends.max().unwrap_or(0)
    }
}

/// The metadata beside a parity chunk.
#[derive(Debug)]
pub struct StripeMetadata {
    /// The stripe, and the number of the parity chunk.
    pub stripe: Stripe,
    /// CRC32C of its rows.
    pub crcs: Vec<u32>,
    /// The data chunks, in their order.
    pub chunks: Vec<ChunkRecords>,
}

/// Returns the size of a parity chunk, if the longest data chunk has this size.
pub fn parity_bytes(data: usize, longest: u64) -> u64 {
    // The copy of a single chunk has its length; coded parity is aligned.
    if data == 1 { longest } else { longest.next_multiple_of(ALIGNMENT) }
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

impl StripeMetadata {
    /// Reads the metadata beside a parity chunk; an error unless it is complete and possible.
    pub fn read(path: &Path, codec: Codec, stream: u16) -> io::Result<Self> {
        let mut reader = BufReader::with_capacity(1 << 18, regular_file::open(path)?);
        let mut next = || -> io::Result<(Entry, [u8; RECORD_BYTES])> {
            let mut record = [0; RECORD_BYTES];
            reader.read_exact(&mut record)?;
            match codec.decode(&record) {
                Ok((number, entry)) if number == stream => Ok((entry, record)),
                Ok(_) => Err(invalid("a record of another stream")),
                Err(_) => Err(invalid("a record that is none of this scan")),
            }
        };
        let (Entry::Stripe(stripe), _) = next()? else {
            return Err(invalid("it does not open with a stripe"));
        };
        check(&stripe).map_err(invalid)?;
        let mut metadata = Self { stripe, crcs: Vec::new(), chunks: Vec::new() };
        for number in 1..=stripe.records {
            let (entry, record) = next()?;
            metadata.take(entry, &record, number)?;
        }
        metadata.judge().map_err(invalid)?;
        Ok(metadata)
    }

    fn take(&mut self, entry: Entry, record: &[u8], number: u64) -> io::Result<()> {
        match (entry, self.chunks.last_mut()) {
            (Entry::Rows { first, crcs }, None) if first == self.crcs.len() as u64 => {
                self.crcs.extend(crcs);
            }
            (Entry::Header { member, .. }, _) => self.chunks.push(ChunkRecords {
                member,
                chunk: 0,
                blocks: Vec::new(),
                gaps: Vec::new(),
                raw: record.to_vec(),
            }),
            (entry @ (Entry::Block(_) | Entry::Lengths { .. } | Entry::Gap(_)), Some(chunk)) => {
                chunk.raw.extend(record);
                match entry {
                    Entry::Block(block) => {
                        chunk.chunk = block.chunk;
                        chunk.blocks.push(BlockRecord { block, lengths: None });
                    }
                    Entry::Gap(gap) => chunk.gaps.push(gap),
                    _ => {
                        if let Some(last) = chunk.blocks.last_mut() {
                            last.lengths.get_or_insert((number, 0)).1 += 1;
                        }
                    }
                }
            }
            _ => return Err(invalid("a record that does not belong there")),
        }
        Ok(())
    }

    /// Checks that the metadata is possible: every length that readers use is bounded here.
    fn judge(&self) -> Result<(), &'static str> {
        let row = u64::from(self.stripe.row_bytes);
        if self.chunks.len() != usize::from(self.stripe.data) {
            return Err("another number of chunks");
        }
        for chunk in &self.chunks {
            let mut end = 0;
            for Block { offset, bytes, chunk: number, .. } in
                chunk.blocks.iter().map(|it| &it.block)
            {
                let fits = *offset >= end && offset.is_multiple_of(ALIGNMENT);
                if !fits
                    || *bytes == 0
                    || u64::from(*bytes) > LARGEST_BLOCK_BYTES
                    || *number != chunk.chunk
                {
                    return Err("impossible blocks");
                }
                end = offset.checked_add(u64::from(*bytes)).ok_or("impossible blocks")?;
            }
        }
        let longest = self.chunks.iter().map(ChunkRecords::bytes).max().unwrap_or(0);
        let bytes = parity_bytes(self.chunks.len(), longest);
        if longest == 0
            || self.stripe.bytes != bytes
            || self.crcs.len() as u64 != bytes.div_ceil(row)
        {
            return Err("another length than its chunks ask for");
        }
        Ok(())
    }

    /// Returns the properties that all metadata files of a stripe have in common.
    pub fn layout(&self) -> (u32, u16, u16, Vec<u32>) {
        let chunks = self.chunks.iter().map(|it| it.chunk).collect();
        (self.stripe.row_bytes, self.stripe.data, self.stripe.parity, chunks)
    }
}

fn check(stripe: &Stripe) -> Result<(), &'static str> {
    let row = u64::from(stripe.row_bytes);
    let shards = usize::from(stripe.data) + usize::from(stripe.parity);
    if row == 0 || row > LARGEST_BLOCK_BYTES || !row.is_multiple_of(ALIGNMENT) {
        return Err("impossible rows");
    }
    if stripe.data == 0 || stripe.shard >= stripe.parity || shards > MOST_SHARDS {
        return Err("an impossible stripe");
    }
    if stripe.records > MOST_RECORDS {
        return Err("more records than can be");
    }
    Ok(())
}

/// Returns the metadata of a parity chunk as bytes. Each of `chunks` is an index's header and its records.
pub fn metadata(
    codec: Codec,
    stream: u16,
    stripe: Stripe,
    crcs: &[u32],
    chunks: &[&[u8]],
) -> Vec<u8> {
    let rows = crcs.chunks(ROWS).enumerate().map(|(number, crcs)| {
        let first = (number * ROWS) as u64;
        codec.encode(stream, &Entry::Rows { first, crcs: crcs.to_vec() })
    });
    let mut behind: Vec<u8> = rows.flatten().collect();
    chunks.iter().for_each(|records| behind.extend(*records));
    let stripe = Stripe { records: (behind.len() / RECORD_BYTES) as u64, ..stripe };
    let mut bytes = codec.encode(stream, &Entry::Stripe(stripe)).to_vec();
    bytes.append(&mut behind);
    bytes
}
