//! Reads a chunk file in parts for an upload, and checks each block on its way.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use fullbore_core::index::Block;
use fullbore_linux::stop_handle::StopHandle;
use rustix::fs::{Advice, fadvise};

use super::error::ObjectError;
use crate::governor::{self, Governor};

/// The size of a part: S3 takes parts from 5 MiB on.
const PART: u64 = 16 << 20;

/// S3 takes at most 10 000 parts of an object.
const MOST_PARTS: u64 = 9_000;

/// Bytes that the governor is asked for at a time.
const PIECE: usize = 256 << 10;

/// The longest wait for the governor, after which the end is looked for.
const TICK: Duration = Duration::from_millis(50);

/// The size of the parts of an object of this size.
pub(super) fn part_bytes(bytes: u64) -> usize {
    PART.max(bytes.div_ceil(MOST_PARTS).next_multiple_of(1 << 20)) as usize
}

/// Checks blocks in bytes that come in pieces of any size.
pub(super) struct BlockCheck<'a> {
    blocks: std::slice::Iter<'a, Block>,
    /// The block that the next byte belongs to, its CRC32C so far, and the bytes of it that are still to come.
    current: Option<(&'a Block, u32, usize)>,
}

impl<'a> BlockCheck<'a> {
    pub(super) fn new(blocks: &'a [Block]) -> Self {
        let mut blocks = blocks.iter();
        let current = blocks.next().map(|block| (block, 0, block.bytes as usize));
        Self { blocks, current }
    }

    /// Takes the next bytes. The error is the first block that is damaged.
    pub(super) fn feed(&mut self, mut bytes: &[u8]) -> Result<(), Block> {
        while let (Some((block, crc, left)), false) = (self.current, bytes.is_empty()) {
            let (own, rest) = bytes.split_at(left.min(bytes.len()));
            let crc = crc32c::crc32c_append(crc, own);
            bytes = rest;
            self.current = Some((block, crc, left - own.len()));
            if own.len() == left {
                if crc != block.crc {
                    return Err(*block);
                }
                self.current = self.blocks.next().map(|next| (next, 0, next.bytes as usize));
            }
        }
        Ok(())
    }
}

/// Reads a chunk file of `bytes` in parts and gives each with its number to `take`, until that returns false. Parts that
/// are `known` to the store are read only to check the blocks that begin or end in them.
pub(super) fn read_parts(
    path: &Path,
    bytes: u64,
    blocks: &[Block],
    governor: &Governor,
    stop: &StopHandle,
    known: &dyn Fn(usize) -> bool,
    mut take: impl FnMut(usize, Vec<u8>) -> bool,
) -> Result<(), ObjectError> {
    let local = |source| ObjectError::Local { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(local)?;
    let (size, mut check, mut at) = (part_bytes(bytes), BlockCheck::new(blocks), 0);
    if governor.is_recording() {
        governor::beside();
    }
    for number in 0.. {
        if at >= bytes {
            break;
        }
        let known = known(number);
        let length = (bytes - at).min(size as u64) as usize;
        let mut part = vec![0; length];
        let mut filled = 0;
        while filled < length {
            let wanted = (length - filled).min(PIECE);
            // What is not sent needs no share of the rate, but it also waits while a recorder falls behind.
            let granted = match known {
                true => wait(governor, stop, 1).map(|_| wanted)?,
                false => wait(governor, stop, wanted)?,
            };
            file.read_exact(&mut part[filled..filled + granted]).map_err(local)?;
            filled += granted;
        }
        check.feed(&part).map_err(|block| damaged(path, &block))?;
        // What was sent is not read again, and must not displace what is.
        let length = std::num::NonZeroU64::new(length as u64);
        let _ = fadvise(&file, at, length, Advice::DontNeed);
        at += part.len() as u64;
        if !known && !take(number, part) {
            break;
        }
    }
    Ok(())
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

fn damaged(path: &Path, block: &Block) -> ObjectError {
    let why =
        format!("block {} is damaged here: its CRC32C differs from the index", block.sequence);
    let source = std::io::Error::new(std::io::ErrorKind::InvalidData, why);
    ObjectError::Local { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use fullbore_time::Tai;

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

    #[test]
    fn damage_is_found_however_the_bytes_are_split() {
        let data: Vec<u8> = (0..1000_u32).map(|it| (it * 7) as u8).collect();
        let blocks = blocks(&data, 96);
        for size in 1..=data.len() {
            let mut check = BlockCheck::new(&blocks);
            assert!(data.chunks(size).all(|it| check.feed(it).is_ok()), "split every {size}");
            let mut wrong = data.clone();
            wrong[500] ^= 1;
            let mut check = BlockCheck::new(&blocks);
            let found = wrong.chunks(size).find_map(|it| check.feed(it).err());
            assert_eq!(found.map(|it| it.sequence), Some(5), "split every {size}");
        }
    }

    #[test]
    fn parts_are_few_enough_for_any_object() {
        for bytes in [0, 1, 256_000_000, 10_000_000_000, 5 << 40] {
            let part = part_bytes(bytes) as u64;
            assert!(part >= PART && bytes.div_ceil(part) <= 10_000, "{bytes}");
        }
    }
}
