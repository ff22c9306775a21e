//! Reads a chunk file in parts for an upload, and checks each block on its way.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use fullbore_core::index::Block;
use fullbore_linux::stop_handle::StopHandle;
use rustix::fs::{Advice, fadvise};

use super::error::ObjectError;
use crate::governor::Governor;

/// The size of a part: S3 takes parts from 5 MiB on.
const PART: u64 = 16 << 20;

/// S3 takes at most 10 000 parts of an object.
const MOST_PARTS: u64 = 9_000;

/// Bytes that the governor is asked for at a time.
const PIECE: usize = 256 << 10;

/// The longest wait for the governor, after which the end is looked for.
const TICK: Duration = Duration::from_millis(50);

/// The size of the parts of an object of this size.
pub(super) fn part_bytes(bytes: u64) -> u64 {
    PART.max(bytes.div_ceil(MOST_PARTS).next_multiple_of(1 << 20))
}

/// A chunk file that is read in parts. No byte of a block is given away before all of the block was checked.
pub(super) struct ChunkFile<'a> {
    /// The file.
    pub path: &'a Path,
    /// Its size.
    pub bytes: u64,
    /// Its blocks, in their order and without holes.
    pub blocks: &'a [Block],
    /// The size of its parts; the last may be smaller.
    pub part_bytes: u64,
}

impl ChunkFile<'_> {
    /// The number of parts.
    pub(super) fn parts(&self) -> usize {
        self.bytes.div_ceil(self.part_bytes) as usize
    }

    /// The bytes of a part.
    pub(super) fn part(&self, number: usize) -> Range<u64> {
        let start = number as u64 * self.part_bytes;
        start..self.bytes.min(start + self.part_bytes)
    }

    /// Reads the parts that are wanted, as `granted` allows, and gives each to `take` with its number, until that returns
    /// false. The other parts are not read.
    pub(super) fn read(
        &self,
        wanted: impl Fn(usize) -> bool,
        mut granted: impl FnMut(usize) -> Result<usize, ObjectError>,
        mut take: impl FnMut(usize, Vec<u8>) -> bool,
    ) -> Result<(), ObjectError> {
        let file = File::open(self.path).map_err(|source| self.error(source))?;
        // Checked bytes in front of the next part: those of the block that ends in it.
        let (mut held, mut checked) = (Vec::new(), 0);
        for number in (0..self.parts()).filter(|&number| wanted(number)) {
            let part = self.part(number);
            let (start, blocks, end) = self.whole_blocks(part.start.max(checked)..part.end);
            if part.start >= checked {
                held.clear();
            }
            let before = held.len();
            held.resize(before + (end - start) as usize, 0);
            self.fill(&file, start, &mut held[before..], &mut granted)?;
            if let Some(block) = first_damaged(blocks, start, &held[before..]) {
                return Err(self.damaged(block));
            }
            // The first block may begin before the part, if the part before is not wanted.
            held.drain(..part.start.saturating_sub(start) as usize);
            checked = end.max(checked);
            let rest = held.split_off((part.end - part.start) as usize);
            // What was sent is not read again, and must not displace what is.
            let length = NonZeroU64::new(part.end - part.start);
            let _ = fadvise(&file, part.start, length, Advice::DontNeed);
            if !take(number, std::mem::replace(&mut held, rest)) {
                break;
            }
        }
        Ok(())
    }

    /// The blocks that have bytes of a range, and the range that they have.
    fn whole_blocks(&self, range: Range<u64>) -> (u64, &[Block], u64) {
        let end = |block: &Block| block.offset + u64::from(block.bytes);
        let first = self.blocks.partition_point(|block| end(block) <= range.start);
        let behind = self.blocks.partition_point(|block| block.offset < range.end);
        let blocks = &self.blocks[first..behind.max(first)];
        match (blocks.first(), blocks.last()) {
            (Some(first), Some(last)) => (first.offset, blocks, end(last)),
            _ => (range.start, blocks, range.start),
        }
    }

    fn fill(
        &self,
        file: &File,
        at: u64,
        data: &mut [u8],
        granted: &mut impl FnMut(usize) -> Result<usize, ObjectError>,
    ) -> Result<(), ObjectError> {
        let mut filled = 0;
        while filled < data.len() {
            let piece = granted((data.len() - filled).min(PIECE))?;
            let into = &mut data[filled..filled + piece];
            file.read_exact_at(into, at + filled as u64).map_err(|source| self.error(source))?;
            filled += piece;
        }
        Ok(())
    }

    fn error(&self, source: io::Error) -> ObjectError {
        ObjectError::Local { path: self.path.to_owned(), source }
    }

    fn damaged(&self, block: &Block) -> ObjectError {
        let why =
            format!("block {} is damaged here: its CRC32C differs from the index", block.sequence);
        self.error(io::Error::new(io::ErrorKind::InvalidData, why))
    }
}

/// Returns the first damaged block of data that begins at `start`.
fn first_damaged<'a>(blocks: &'a [Block], start: u64, data: &[u8]) -> Option<&'a Block> {
    blocks.iter().find(|block| {
        let at = (block.offset - start) as usize;
        crc32c::crc32c(&data[at..at + block.bytes as usize]) != block.crc
    })
}

/// Waits until the governor grants bytes.
pub(super) fn wait(
    governor: &Governor,
    stop: &StopHandle,
    wanted: usize,
) -> Result<usize, ObjectError> {
    loop {
        if stop.is_requested() {
            return Err(ObjectError::Stopped);
        }
        match governor.grant(wanted as u64, TICK) {
            0 => {}
            granted => return Ok(granted as usize),
        }
    }
}

#[cfg(test)]
mod tests {
    use fullbore_time::Tai;
    use proptest::prelude::*;

    use super::*;

    fn blocks(data: &[u8], bytes: usize) -> Vec<Block> {
        let all = data.chunks(bytes).enumerate();
        all.map(|(number, data)| Block {
            sequence: number as u64,
            offset: (number * bytes) as u64,
            bytes: data.len() as u32,
            crc: crc32c::crc32c(data),
            chunk: 0,
            frames: 1,
            present: 1,
            invalid: 0,
            first: number as i64,
            time: None,
            seen: Tai::from_unix_ns(0),
        })
        .collect()
    }

    /// The parts that were read of a file with these bytes, and the damaged block, if one was found.
    fn read(
        data: &[u8],
        blocks: &[Block],
        part_bytes: u64,
        wanted: &[bool],
        piece: usize,
    ) -> (Vec<(usize, Vec<u8>)>, Option<ObjectError>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("chunk");
        std::fs::write(&path, data).unwrap();
        let file = ChunkFile { path: &path, bytes: data.len() as u64, blocks, part_bytes };
        let mut parts = Vec::new();
        let result = file.read(
            |number| wanted[number % wanted.len()],
            |length| Ok(length.min(piece)),
            |number, part| {
                parts.push((number, part));
                true
            },
        );
        (parts, result.err())
    }

    proptest! {
        #[test]
        fn wanted_parts_are_read_and_no_byte_of_a_damaged_block_is_given(
            bytes in 1_usize..600,
            block in 1_usize..200,
            part in 1_u64..200,
            wanted in prop::collection::vec(any::<bool>(), 1..8),
            piece in 1_usize..300,
            damage in prop::option::of(any::<prop::sample::Index>()),
        ) {
            let data: Vec<u8> = (0..bytes).map(|it| (it * 7) as u8).collect();
            let blocks = blocks(&data, block);
            let mut there = data.clone();
            let damage = damage.map(|it| it.index(bytes));
            if let Some(at) = damage {
                there[at] ^= 1;
            }
            let (parts, error) = read(&there, &blocks, part, &wanted, piece);
            let count = bytes.div_ceil(part as usize);
            let all: Vec<usize> = (0..count).filter(|it| wanted[it % wanted.len()]).collect();
            let of = |number: usize| number * part as usize..bytes.min((number + 1) * part as usize);
            for (number, read) in &parts {
                prop_assert_eq!(&read[..], &data[of(*number)]);
            }
            // The parts that have bytes of the damaged block.
            let meets = |number: &usize| damage.is_some_and(|at| {
                let (start, end) = (at / block * block, bytes.min((at / block + 1) * block));
                of(*number).start < end && of(*number).end > start
            });
            let whole: Vec<usize> = all.iter().copied().take_while(|it| !meets(it)).collect();
            prop_assert_eq!(parts.iter().map(|it| it.0).collect::<Vec<_>>(), whole.clone());
            prop_assert_eq!(error.is_some(), whole.len() < all.len());
        }
    }

    #[test]
    fn parts_are_few_enough_for_any_object() {
        for bytes in [0, 1, 256_000_000, 10_000_000_000, 5 << 40] {
            let part = part_bytes(bytes);
            assert!(part >= PART && bytes.div_ceil(part) <= 10_000, "{bytes}");
        }
    }
}
