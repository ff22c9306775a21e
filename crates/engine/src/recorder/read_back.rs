//! Blocks that were written to a member and let go, and whose sync failed then: the kernel may have dropped
//! them, or not. When the scan is sealed they are read back. What has its record in the index and its
//! checksum is there; the rest is lost, and the account says so.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fullbore_core::account::{Account, CountedBy};
use fullbore_core::gap::{Cause, Gap};
use fullbore_core::index::Block;
use fullbore_core::layout::chunk_file;
use fullbore_core::manifest::{Fill, INDEX_FILE, Stream};
use uuid::Uuid;

use super::scan::Scan;
use crate::store::gaps::Gaps;
use crate::store::inventory::{Index, PART_SUFFIX, side_file};
use crate::store::read::{Extent, ExtentReader, pool};

/// Blocks of a stream that may not be on a member.
#[derive(Clone, Debug)]
pub struct Unsure {
    /// The member's directory.
    pub root: PathBuf,
    /// The stream's place in the manifest.
    pub stream: u16,
    /// What the index says of them, or should.
    pub blocks: Vec<Block>,
}

/// Reads back what is unsure of a scan and takes out of its accounts what is not there. Tells what was found.
pub fn read_back(scan: &mut Scan) -> Vec<String> {
    let mut told = Vec::new();
    for unsure in std::mem::take(&mut scan.unsure) {
        let stream = &mut scan.manifest.streams[usize::from(unsure.stream)];
        let lost = not_there(&unsure, stream, scan.opening.uuid);
        told.push(tell(&unsure, stream, lost.len()));
        let Some(account) = scan.accounts.get_mut(&unsure.stream) else { continue };
        for block in &lost {
            stream.blocks = stream.blocks.saturating_sub(1);
            stream.bytes = stream.bytes.saturating_sub(block.bytes.into());
            lose(account, block, stream);
        }
    }
    told
}

fn tell(unsure: &Unsure, stream: &Stream, lost: usize) -> String {
    let (all, root) = (unsure.blocks.len(), unsure.root.display());
    format!(
        "of {all} blocks of {} on {root} whose sync failed, {} were read back and are as they were \
         written{}",
        stream.name,
        all - lost,
        if lost > 0 { format!("; {lost} are lost, and counted as overrun") } else { String::new() }
    )
}

/// Those that no record tells of, or whose bytes are others.
fn not_there(unsure: &Unsure, stream: &Stream, scan: Uuid) -> Vec<Block> {
    let directory = unsure.root.join(&stream.directory);
    let index = Index::read(&side_file(&directory, INDEX_FILE), scan, unsure.stream);
    let known: BTreeMap<u64, u32> = index
        .map(|index| index.blocks.iter().map(|it| (it.block.sequence, it.block.crc)).collect())
        .unwrap_or_default();
    let largest = unsure.blocks.iter().map(|block| block.bytes).max().unwrap_or(0);
    // Without memory to read into nothing is known, and what is not known is not there.
    let Some(mut memory) = pool(1, largest as usize).ok().and_then(|mut pool| pool.take()) else {
        return unsure.blocks.clone();
    };
    let mut reader = ExtentReader::default();
    let mut is_there = |block: &Block| {
        let Some(path) = chunk_path(&directory, &stream.directory, block.chunk) else {
            return false;
        };
        let extent = Extent {
            path: Arc::new(path),
            device: 0,
            offset: block.offset,
            bytes: block.bytes,
            crc: block.crc,
            stripe: None,
        };
        known.get(&block.sequence) == Some(&block.crc) && reader.read(&extent, &mut memory).is_ok()
    };
    unsure.blocks.iter().filter(|block| !is_there(block)).copied().collect()
}

/// Where a chunk lies: in its place, or where it was being filled.
fn chunk_path(directory: &Path, name: &str, chunk: u32) -> Option<PathBuf> {
    let file = chunk_file(name, chunk);
    let part = side_file(directory, &format!("{file}{PART_SUFFIX}"));
    [directory.join(file), part].into_iter().find(|path| path.is_file())
}

/// A block that was counted as written is not there: its true frames are overrun.
fn lose(account: &mut Account, block: &Block, stream: &Stream) {
    let (frames, present) = (u64::from(block.frames), u64::from(block.present));
    let terms = &mut account.terms;
    let taken = present.min(terms.written);
    (terms.written, terms.overrun) = (terms.written - taken, terms.overrun + taken);
    account.filled = account.filled.saturating_sub(frames - present);
    account.invalid = account.invalid.saturating_sub(block.invalid.into());
    let frame_bytes = stream.geometry.map_or(0, |geometry| u64::from(geometry.frame_bytes));
    let bytes = if frame_bytes > 0 { present * frame_bytes } else { block.bytes.into() };
    account.bytes = account.bytes.saturating_sub(bytes);
    // Where frames lie as they came, nobody knows which ones they were.
    if stream.fill == Fill::Omit {
        let written = i64::try_from(account.terms.written).unwrap_or(i64::MAX);
        // Those of several threads, and those that nothing counts, have the numbers in which they came.
        let by_arrival = !account.flows.is_empty() || account.counted_by == CountedBy::Nothing;
        if let Some(last) = account.last.as_mut().filter(|_| by_arrival) {
            last.index = (written - 1).max(0);
        }
        return;
    }
    let end = block.first.saturating_add(block.frames.into());
    let gaps = std::mem::take(&mut account.gaps);
    let mut all: Vec<Gap> = Gaps::paint(gaps.iter().copied())
        .uncovered(block.first..end)
        .into_iter()
        .map(|hole| Gap {
            first: hole.start,
            count: hole.end.abs_diff(hole.start),
            cause: Cause::Overrun,
        })
        .chain(gaps)
        .collect();
    all.sort_unstable_by_key(|gap| gap.first);
    all.into_iter().for_each(|gap| account.push_gap(gap));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::reader::Scan as Stored;
    use crate::store::testing::{FRAME_BYTES, Store, StreamPlan};

    #[test]
    fn what_reads_back_as_written_stays_and_the_rest_is_counted_with_its_place() {
        let store = Store::new(1);
        let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a").gap(40, 3, Cause::Missing)]);
        let scan = Stored::open(&store.roots(), &laid.name).unwrap();
        let all: Vec<Block> = scan.streams[0].blocks.iter().map(|it| it.block).collect();
        let unsure =
            Unsure { root: store.roots()[0].clone(), stream: 0, blocks: all[..4].to_vec() };
        let mut stream = scan.manifest.streams[0].clone();
        let uuid = scan.manifest.uuid;
        assert_eq!(not_there(&unsure, &stream, uuid), [], "all is as it was written");
        let path = laid.chunk_path(0, all[1].chunk);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[all[1].offset as usize] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let lost = not_there(&unsure, &stream, uuid);
        assert_eq!(lost, all[1..2]);
        let mut account = laid.accounts[0].clone();
        let before = account.clone();
        lose(&mut account, &lost[0], &stream);
        let present = u64::from(all[1].present);
        assert!(account.terms.balance());
        assert_eq!(account.terms.written, before.terms.written - present);
        assert_eq!((account.terms.overrun, account.terms.missing), (present, 3));
        assert_eq!(account.listed(Cause::Overrun), present);
        assert_eq!(account.listed(Cause::Missing), 3);
        assert_eq!(account.bytes, before.bytes - present * u64::from(FRAME_BYTES));
        assert!(account.gaps.is_sorted_by_key(|gap| gap.first), "{:?}", account.gaps);
        // A block without a record cannot be found by any reader.
        std::fs::remove_file(laid.index_path(0, 0)).unwrap();
        assert_eq!(not_there(&unsure, &stream, uuid).len(), 4);
        stream.fill = Fill::Omit;
        lose(&mut account, &all[2], &stream);
        assert!(account.terms.balance());
    }

    #[test]
    fn frames_that_are_counted_as_they_came_have_fewer_numbers() {
        let store = Store::new(1);
        for plan in [
            StreamPlan::vdif("a").threads(&[1, 3]).fill(Fill::Omit),
            StreamPlan::vdif("a").fill(Fill::Omit),
            StreamPlan::raw("a"),
        ] {
            let laid = store.lay_down("r1_a", std::slice::from_ref(&plan));
            let mut account = laid.accounts[0].clone();
            let block = &laid.blocks[0][2].1;
            lose(&mut account, block, &laid.manifest.streams[0]);
            let by_arrival = !account.flows.is_empty() || account.counted_by == CountedBy::Nothing;
            let lost = if by_arrival { i64::from(block.present) } else { 0 };
            assert_eq!(account.last.unwrap().index, 999 - lost, "{plan:?}");
        }
    }
}
