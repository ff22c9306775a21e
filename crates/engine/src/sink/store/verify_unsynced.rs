//! Verifies blocks that were written and released before a sync failed: the kernel may have dropped them. When the scan
//! is sealed they are read back. A block with its index record and its checksum is present. The others are lost, and
//! the account reports them.
//!
//! The read bypasses the page cache, which proves nothing about the disk. Data that a disk returns may still be in its
//! own memory, or in a place without a synced record in the file system: only a successful sync after the read proves
//! it durable. Without such a sync, or if the page cache cannot be bypassed, the blocks are *unverified*.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fullbore_core::account::Account;
use fullbore_core::completeness::counted;
use fullbore_core::gap::{Cause, Gap};
use fullbore_core::index::{Block, Codec};
use fullbore_core::layout::chunk_file;
use fullbore_core::manifest::{Fill, INDEX_FILE, Manifest, SIDE_DIRECTORY, Stream};
use fullbore_store::gaps::Gaps;
use fullbore_store::inventory::{Index, PART_SUFFIX, side_file};
use fullbore_store::read::{BlockExtent, ExtentReader, WholeFile, pool};
use uuid::Uuid;

/// Blocks of a stream that were written before a failed sync.
#[derive(Clone, Debug)]
pub struct UnsyncedBlocks {
    /// The member's directory.
    pub root: PathBuf,
    /// The stream's place in the manifest.
    pub stream: u16,
    /// Their index records, on disk or not.
    pub blocks: Vec<Block>,
}

/// The result of the read.
#[derive(Debug, PartialEq, Eq)]
struct VerifyResult {
    /// Blocks without an index record, or with other bytes.
    lost: Vec<Block>,
    /// True if the other blocks are certainly on the disk.
    sure: bool,
}

/// Reads these blocks back, and removes missing ones from manifest and accounts. Returns a report.
pub fn verify_unsynced(
    all: Vec<UnsyncedBlocks>,
    manifest: &mut Manifest,
    accounts: &mut BTreeMap<u16, Account>,
) -> Vec<String> {
    let mut told = Vec::new();
    for unsynced in all {
        let stream = &mut manifest.streams[usize::from(unsynced.stream)];
        let found = look(&unsynced, stream, manifest.uuid, sync);
        told.push(tell(&unsynced, stream, &found));
        let Some(account) = accounts.get_mut(&unsynced.stream) else { continue };
        count_unverified(account, &unsynced, &found);
        for block in &found.lost {
            stream.blocks = stream.blocks.saturating_sub(1);
            stream.bytes = stream.bytes.saturating_sub(block.bytes.into());
            lose(account, block, stream);
        }
    }
    told
}

fn tell(unsynced: &UnsyncedBlocks, stream: &Stream, found: &VerifyResult) -> String {
    let (all, root, lost) = (unsynced.blocks.len(), unsynced.root.display(), found.lost.len());
    let mut text = format!(
        "stream {}: a sync on {root} failed after {} had been written; {} of them read back as written",
        stream.name,
        counted(all as u64, "block"),
        all - lost
    );
    if lost < all && !found.sure {
        text += ", but no sync has succeeded there since: they count as unverified, and a loss of power may take them";
    }
    if lost > 0 {
        text += &format!("; {} lost, counted as overrun", counted(lost as u64, "block"));
    }
    text
}

/// Counts frames that are present but unverified.
fn count_unverified(account: &mut Account, unsynced: &UnsyncedBlocks, found: &VerifyResult) {
    if found.sure {
        return;
    }
    let present = |blocks: &[Block]| blocks.iter().map(|it| u64::from(it.present)).sum::<u64>();
    let doubtful = present(&unsynced.blocks).saturating_sub(present(&found.lost));
    account.unverified = account.unverified.saturating_add(doubtful);
}

/// The least memory for a read.
const PIECE: usize = 64 << 10;

/// Reads all blocks back, and then syncs the files that they are found by.
fn look(
    unsynced: &UnsyncedBlocks,
    stream: &Stream,
    scan: Uuid,
    sync: impl Fn(&Path) -> io::Result<()>,
) -> VerifyResult {
    let directory = unsynced.root.join(&stream.directory);
    let largest = unsynced.blocks.iter().map(|block| block.bytes as usize).max().unwrap_or(0);
    // Without memory for the read nothing is known, and the blocks count as missing.
    let Some(mut memory) = pool(1, largest.max(PIECE)).ok().and_then(|mut pool| pool.take()) else {
        return VerifyResult { lost: unsynced.blocks.clone(), sure: false };
    };
    let mut reader = ExtentReader::default();
    let records = Arc::new(side_file(&directory, INDEX_FILE));
    let index = WholeFile::new(&mut reader, records.clone(), &mut memory);
    let known: BTreeMap<u64, u32> = Index::read_from(index, Codec::of_scan(scan), unsynced.stream)
        .map(|index| index.blocks.iter().map(|it| (it.block.sequence, it.block.crc)).collect())
        .unwrap_or_default();
    let (mut direct, mut files) = (reader.is_direct(), BTreeSet::from([records.to_path_buf()]));
    let mut is_there = |block: &Block| {
        let Some(path) = chunk_path(&directory, &stream.directory, block.chunk) else {
            return false;
        };
        let extent = BlockExtent {
            path: Arc::new(path.clone()),
            device: 0,
            offset: block.offset,
            bytes: block.bytes,
            crc: block.crc,
            stripe: None,
        };
        let there = known.get(&block.sequence) == Some(&block.crc)
            && reader.read(&extent, &mut memory).is_ok();
        if there {
            direct &= reader.is_direct();
            files.insert(path);
        }
        there
    };
    let lost: Vec<Block> =
        unsynced.blocks.iter().filter(|block| !is_there(block)).copied().collect();
    files.extend([directory.join(SIDE_DIRECTORY), directory, unsynced.root.clone()]);
    let sure = direct && files.iter().all(|path| sync(path).is_ok());
    VerifyResult { lost, sure }
}

fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// The path of a chunk: its final one, or the one used during filling.
fn chunk_path(directory: &Path, name: &str, chunk: u32) -> Option<PathBuf> {
    let file = chunk_file(name, chunk);
    let part = side_file(directory, &format!("{file}{PART_SUFFIX}"));
    [directory.join(file), part].into_iter().find(|path| path.is_file())
}

/// Counts the frames of a lost block, which was counted as written, as overrun.
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
    // In a stream stored in order of arrival, the lost frames cannot be identified.
    if stream.fill == Fill::Omit {
        let written = i64::try_from(account.terms.written).unwrap_or(i64::MAX);
        // Frames of several threads, and uncounted frames, are numbered in order of arrival.
        let by_arrival = !account.flows.is_empty() || account.counted_by.is_blind();
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
    use std::cell::RefCell;
    use std::fs::OpenOptions;
    use std::os::unix::fs::OpenOptionsExt;

    use fullbore_core::account::Verdict;
    use fullbore_store::reader::Scan as Stored;
    use fullbore_store::testing::{FRAME_BYTES, Store, StreamPlan};

    use super::*;

    #[test]
    fn what_reads_back_as_written_stays_and_the_rest_is_counted_with_its_place() {
        let store = Store::new(1);
        let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a").gap(40, 3, Cause::Missing)]);
        let scan = Stored::open(&store.roots(), &laid.name).unwrap();
        let all: Vec<Block> = scan.streams[0].blocks.iter().map(|it| it.block).collect();
        let unsynced =
            UnsyncedBlocks { root: store.roots()[0].clone(), stream: 0, blocks: all[..4].to_vec() };
        let mut stream = scan.manifest.streams[0].clone();
        let uuid = scan.manifest.uuid;
        assert_eq!(look(&unsynced, &stream, uuid, sync).lost, [], "all is as it was written");
        let path = laid.chunk_path(0, all[1].chunk);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[all[1].offset as usize] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let lost = look(&unsynced, &stream, uuid, sync).lost;
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
        // Readers cannot find a block without a record.
        std::fs::remove_file(laid.index_path(0, 0)).unwrap();
        assert_eq!(look(&unsynced, &stream, uuid, sync).lost.len(), 4);
        stream.fill = Fill::Omit;
        lose(&mut account, &all[2], &stream);
        assert!(account.terms.balance());
    }

    #[test]
    fn what_nothing_was_synced_after_stays_in_the_balance_and_is_unverified() {
        let store = Store::new(1);
        let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
        let scan = Stored::open(&store.roots(), &laid.name).unwrap();
        let blocks: Vec<Block> = scan.streams[0].blocks.iter().map(|it| it.block).take(3).collect();
        let unsynced =
            UnsyncedBlocks { root: store.roots()[0].clone(), stream: 0, blocks: blocks.clone() };
        let stream = &scan.manifest.streams[0];
        let dead = |_: &Path| Err(io::ErrorKind::ReadOnlyFilesystem.into());
        let found = look(&unsynced, stream, scan.manifest.uuid, dead);
        assert_eq!(found, VerifyResult { lost: vec![], sure: false });
        assert!(tell(&unsynced, stream, &found).contains("unverified"));
        let mut account = laid.accounts[0].clone();
        assert_eq!(account.judge(), Verdict::Proven, "{account:?}");
        count_unverified(
            &mut account,
            &unsynced,
            &VerifyResult { lost: blocks[..1].to_vec(), sure: false },
        );
        let present = |blocks: &[Block]| blocks.iter().map(|it| u64::from(it.present)).sum::<u64>();
        assert_eq!(account.unverified, present(&blocks[1..]));
        assert!(account.terms.balance() && account.judge() > Verdict::Proven);
        // Blocks that were read past the page cache and then synced, with all files that they are found by, are
        // present.
        let synced = RefCell::new(Vec::new());
        let alive = |path: &Path| {
            synced.borrow_mut().push(path.strip_prefix(&unsynced.root).unwrap().to_owned());
            Ok(())
        };
        let found = look(&unsynced, stream, scan.manifest.uuid, alive);
        let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
        let takes_it =
            OpenOptions::new().read(true).custom_flags(direct).open(laid.index_path(0, 0));
        assert_eq!(found, VerifyResult { lost: vec![], sure: takes_it.is_ok() });
        if found.sure {
            for part in ["", "r1_a", "r1_a/.fullbore", "r1_a/.fullbore/index"] {
                assert!(synced.borrow().contains(&PathBuf::from(part)), "{part}: {synced:?}");
            }
            assert!(!tell(&unsynced, stream, &found).contains("unverified"));
        }
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
            let by_arrival = !account.flows.is_empty() || account.counted_by.is_blind();
            let lost = if by_arrival { i64::from(block.present) } else { 0 };
            assert_eq!(account.last.unwrap().index, 999 - lost, "{plan:?}");
        }
    }
}
