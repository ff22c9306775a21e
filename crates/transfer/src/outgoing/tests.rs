use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use fullbore_care::recover::{self, recover};
use fullbore_care::verify::verify;
use fullbore_core::gap::Cause;
use fullbore_core::index::RECORD_BYTES;
use fullbore_core::layout::chunk_file;
use fullbore_core::manifest::{INDEX_FILE, MANIFEST_FILE, Member, SIDE_DIRECTORY};
use fullbore_core::redundancy::{Redundancy, Scheme};
use fullbore_linux::ring::Block;
use fullbore_store::lock::ScanLock;
use fullbore_store::read::pool;
use fullbore_store::redundancy::StripeBuilder;
use fullbore_store::renumber;
use fullbore_store::testing::{Laid, Store, StreamPlan};
use fullbore_time::Tai;

use super::*;

fn open(store: &Store, laid: &Laid) -> Outgoing {
    Outgoing::open(&store.roots(), &laid.name).unwrap()
}

fn memory(outgoing: &Outgoing) -> Block {
    pool(1, outgoing.block_bytes()).unwrap().take().unwrap()
}

/// Returns the bytes of these blocks, in order.
fn fetch(outgoing: &Outgoing, blocks: &[(BlockId, u32)]) -> Vec<u8> {
    let mut memory = memory(outgoing);
    let mut all = Vec::new();
    for (block, bytes) in blocks {
        outgoing.fetch(*block, &mut memory).unwrap();
        all.extend_from_slice(&memory[..*bytes as usize]);
    }
    all
}

fn of_stream(blocks: &[(BlockId, u32)], stream: u16) -> Vec<(BlockId, u32)> {
    blocks.iter().filter(|((number, _), _)| *number == stream).copied().collect()
}

/// Returns the records of an index without header and marks.
fn index(laid: &Laid, stream: usize, member: usize) -> Vec<Record> {
    let codec = Codec::of_scan(laid.manifest.uuid);
    let bytes = fs::read(laid.index_path(stream, member)).unwrap();
    let records = bytes.chunks_exact(RECORD_BYTES).map(|it| it.try_into().unwrap());
    let is_of_block = |record: &Record| {
        matches!(codec.decode(record), Ok((_, Entry::Block(_) | Entry::Lengths { .. })))
    };
    records.filter(is_of_block).collect()
}

#[test]
fn a_sealed_scan_is_given_whole_and_its_records_are_those_of_the_indexes() {
    let store = Store::new(2);
    let plans = [StreamPlan::vdif("a").gap(40, 3, Cause::Missing), StreamPlan::varying("b")];
    let laid = store.lay_down("r1_a", &plans);
    let outgoing = open(&store, &laid);
    let news = outgoing.look().unwrap();
    assert_eq!((news.state, news.manifest), (FollowState::Sealed, false));
    assert!(outgoing.look().unwrap().blocks.is_empty());
    for stream in 0..2 {
        let blocks = of_stream(&news.blocks, stream);
        assert!(fetch(&outgoing, &blocks) == laid.bytes[usize::from(stream)]);
        let records = blocks.iter().flat_map(|(id, _)| outgoing.block(*id).unwrap().records);
        let mut records: Vec<Record> = records.collect();
        let mut written: Vec<Record> =
            (0..2).flat_map(|member| index(&laid, stream.into(), member)).collect();
        assert!(written.len() > blocks.len() || stream == 0, "lengths have records of their own");
        records.sort_unstable();
        written.sort_unstable();
        assert!(records == written);
    }
    let codec = Codec::of_scan(laid.manifest.uuid);
    let rest: Vec<Entry> =
        outgoing.records().iter().map(|record| codec.decode(record).unwrap().1).collect();
    assert!(matches!(rest[..], [Entry::Gap(gap)] if (gap.first, gap.count) == (40, 3)), "{rest:?}");
    let accounts: Vec<Account> = outgoing.accounts().into_values().collect();
    assert_eq!(accounts, laid.accounts);
    let blocks = laid.blocks.iter().enumerate();
    let blocks = blocks.flat_map(|(stream, all)| all.iter().map(move |it| (stream as u16, &it.1)));
    assert_eq!(outgoing.digest(&[]), copies::digest(blocks.clone()));
    let without = copies::digest(blocks.filter(|(stream, it)| (*stream, it.sequence) != (1, 2)));
    assert_eq!(outgoing.digest(&[(1, 2)]), without);
}

#[test]
fn the_manifest_goes_without_what_is_true_only_here() {
    let store = Store::new(2);
    let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
    let sent = open(&store, &laid).manifest();
    assert!(sent.members.is_empty() && sent.redundancy.is_none() && sent.host_setup.is_none());
    assert_eq!((sent.uuid, &sent.streams), (laid.manifest.uuid, &laid.manifest.streams));
}

#[test]
fn blocks_that_are_gone_or_damaged_are_lost_and_the_reason_is_told() {
    let store = Store::new(2);
    let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
    fs::remove_file(laid.chunk_path(0, 1)).unwrap();
    let damaged = laid.chunk_path(0, 2);
    let mut bytes = fs::read(&damaged).unwrap();
    bytes[5] ^= 1;
    fs::write(&damaged, bytes).unwrap();
    let outgoing = open(&store, &laid);
    let blocks = outgoing.look().unwrap().blocks;
    assert_eq!(blocks.len(), laid.blocks[0].len(), "the index tells of all blocks");
    let mut memory = memory(&outgoing);
    let mut lost = BTreeMap::new();
    for (block, _) in blocks {
        match outgoing.fetch(block, &mut memory) {
            Ok(_) => {}
            Err(Unread::Lost(why)) => drop(lost.insert(block.1, why)),
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(lost.keys().copied().collect::<Vec<_>>(), [3, 4, 5, 6]);
    assert!(outgoing.block((0, 3)).is_none() && outgoing.block((0, 6)).is_some());
    assert!(lost[&3].contains("stream a: block 3"), "{}", lost[&3]);
    assert!(lost[&6].contains("r1_a.00000002"), "{}", lost[&6]);
}

#[test]
fn blocks_of_a_lost_member_come_from_parity() {
    let store = Store::new(3);
    let plans = [StreamPlan::vdif("a"), StreamPlan::varying("b")];
    let mut laid = store.lay_down("r1_a", &plans);
    let scheme: Scheme = "parity:2+1".parse().unwrap();
    laid.manifest.redundancy = Some(Redundancy::of(scheme));
    let mut builder = StripeBuilder::new(laid.manifest.uuid, scheme, store.roots());
    for (number, stream) in laid.manifest.streams.iter().enumerate() {
        builder.add(number as u16, &stream.directory, BTreeSet::new(), 0, None);
        for member in 0..3 {
            fs::write(laid.manifest_path(number, member), laid.manifest.to_json()).unwrap();
        }
    }
    builder.look(true);
    builder.compose(true, &mut |_| true);
    builder.end();
    for stream in 0..2 {
        fs::remove_dir_all(laid.directory(stream, 1)).unwrap();
    }
    let outgoing = open(&store, &laid);
    let blocks = outgoing.look().unwrap().blocks;
    for stream in 0..2 {
        let bytes = fetch(&outgoing, &of_stream(&blocks, stream));
        assert!(bytes == laid.bytes[usize::from(stream)], "stream {stream}");
    }
    assert!(outgoing.manifest().redundancy.is_none());
    assert_eq!(outgoing.absent(), []);
}

#[test]
fn recorded_blocks_that_are_in_no_index_are_told() {
    let store = Store::new(2);
    let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
    fs::remove_dir_all(laid.directory(0, 1)).unwrap();
    let outgoing = open(&store, &laid);
    let there = outgoing.look().unwrap().blocks.len() as u64;
    let absent: u64 = outgoing.absent().iter().map(|it| it.count).sum();
    assert_eq!(there + absent, laid.blocks[0].len() as u64);
    assert_eq!(outgoing.absent()[0], AbsentBlocks { stream: 0, first: 3, count: 3 });
}

#[test]
fn a_scan_that_was_removed_is_not_a_scan_with_lost_blocks() {
    let store = Store::new(1);
    let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
    let outgoing = open(&store, &laid);
    outgoing.look().unwrap();
    let mut memory = memory(&outgoing);
    // Chunks go first.
    fs::remove_file(laid.chunk_path(0, 1)).unwrap();
    let removed = outgoing.fetch((0, 4), &mut memory);
    assert!(matches!(removed, Err(Unread::Removed)), "{removed:?}");
    fs::remove_dir_all(laid.directory(0, 0)).unwrap();
    let removed = outgoing.fetch((0, 0), &mut memory);
    assert!(matches!(removed, Err(Unread::Removed)), "{removed:?}");
}

/// A scan with a live recorder; the test writes its indexes.
struct Running {
    store: Store,
    laid: Laid,
    records: Vec<Vec<u8>>,
    locks: Vec<ScanLock>,
}

impl Running {
    fn new(members: usize, plan: StreamPlan) -> Self {
        let store = Store::new(members);
        let laid = store.lay_down("r1_a", &[plan.unsealed()]);
        let records: Vec<Vec<u8>> = (0..members).map(|it| index(&laid, 0, it).concat()).collect();
        let lock = |member: usize| ScanLock::take(&laid.manifest_path(0, member)).unwrap();
        let locks = (0..members).map(lock).collect();
        for member in 0..members {
            let header = fs::read(laid.index_path(0, member)).unwrap()[..RECORD_BYTES].to_vec();
            fs::write(laid.index_path(0, member), header).unwrap();
        }
        Self { store, laid, records, locks }
    }

    /// Writes this many more blocks of a member, and a mark that covers them and all before.
    fn write(&mut self, member: usize, blocks: usize, durable: u64) {
        let bytes = (blocks * RECORD_BYTES).min(self.records[member].len());
        let mut new: Vec<u8> = self.records[member].drain(..bytes).collect();
        let codec = Codec::of_scan(self.laid.manifest.uuid);
        new.extend(codec.encode(0, &Entry::Mark { blocks: durable, at: Tai(1) }));
        let path = self.laid.index_path(0, member);
        fs::OpenOptions::new().append(true).open(path).unwrap().write_all(&new).unwrap();
    }

    fn put(&mut self, manifest: &Manifest) {
        for lock in &mut self.locks {
            lock.replace(&manifest.to_json()).unwrap();
        }
    }

    /// Seals the scan; its locks are released then.
    fn seal(&mut self, manifest: &Manifest) {
        for member in 0..self.locks.len() {
            fs::write(self.laid.account_path(0, member), self.laid.accounts[0].to_json()).unwrap();
        }
        self.put(manifest);
        self.locks.clear();
    }
}

fn sequences(news: &News) -> Vec<u64> {
    news.blocks.iter().map(|((_, sequence), _)| *sequence).collect()
}

#[test]
fn a_scan_that_is_being_recorded_is_given_as_it_becomes_durable() {
    let mut running = Running::new(2, StreamPlan::vdif("a"));
    let outgoing = open(&running.store, &running.laid);
    assert!(outgoing.look().unwrap().blocks.is_empty());
    assert!(outgoing.is_beside_a_recorder());
    running.write(0, 5, 4);
    let first = outgoing.look().unwrap();
    assert_eq!((sequences(&first), first.state), (vec![0, 1, 2], FollowState::Recording));
    running.write(1, 3, 3);
    let second = outgoing.look().unwrap();
    assert_eq!(sequences(&second), [3, 4, 5, 6]);
    let mut bytes = fetch(&outgoing, &[first.blocks, second.blocks].concat());
    running.write(0, 99, 17);
    running.write(1, 99, 15);
    let sealed = running.laid.manifest.clone();
    running.seal(&sealed);
    let rest = outgoing.look().unwrap();
    assert_eq!((rest.state, rest.manifest), (FollowState::Sealed, true));
    bytes.extend(fetch(&outgoing, &rest.blocks));
    assert!(bytes == running.laid.bytes[0], "some block came twice or not at all");
    let again = outgoing.look().unwrap();
    assert!(again.blocks.is_empty() && !again.manifest);
}

#[test]
fn a_block_that_cannot_be_read_during_the_recording_is_put_off() {
    let mut running = Running::new(1, StreamPlan::vdif("a"));
    running.write(0, 6, 6);
    let outgoing = open(&running.store, &running.laid);
    assert_eq!(outgoing.look().unwrap().blocks.len(), 6);
    let chunk = running.laid.chunk_path(0, 1);
    let aside = chunk.with_extension("aside");
    fs::rename(&chunk, &aside).unwrap();
    let mut memory = memory(&outgoing);
    let read = outgoing.fetch((0, 4), &mut memory);
    assert!(matches!(read, Err(Unread::Later(_))), "{read:?}");
    fs::rename(&aside, &chunk).unwrap();
    running.write(0, 99, 32);
    let mut sealing = running.laid.manifest.clone();
    let files = ChunkMap::of_pairs([(1, 2), (2, 1)]);
    let before = ChunkMap::default();
    let renamed = Renumbering { round: 1, stage: RenumberStage::SettingAside, files, before };
    sealing.streams[0].renamed = Some(renamed);
    running.put(&sealing);
    let news = outgoing.look().unwrap();
    assert_eq!((news.state, news.manifest), (FollowState::Sealing, false));
    let read = outgoing.fetch((0, 1), &mut memory);
    assert!(matches!(read, Err(Unread::Later(_))), "files are being renamed: {read:?}");
    let sealed = running.laid.manifest.clone();
    running.seal(&sealed);
    outgoing.look().unwrap();
    outgoing.fetch((0, 4), &mut memory).unwrap();
}

/// A thousand frames are 11 chunks. Here chunk 1 was cut, and its rest got the next free number.
const CUT: [u32; 11] = [0, 1, 8, 2, 3, 4, 5, 6, 7, 9, 10];

/// Writes a copy with these blocks as a receiver does: files by the numbers in the records.
fn write_copy(root: &Path, outgoing: &Outgoing, blocks: &[(BlockId, u32)]) {
    let mut manifest = outgoing.manifest();
    let uuid = fs::read(root.join(".fullbore/member.json")).unwrap();
    let uuid: serde_json::Value = serde_json::from_slice(&uuid).unwrap();
    let uuid = uuid["uuid"].as_str().unwrap().parse().unwrap();
    let member = Member { uuid, path: root.into(), failure: None, buffered: false };
    manifest.members = vec![member];
    let directory = root.join(&manifest.streams[0].directory);
    let side = directory.join(SIDE_DIRECTORY);
    fs::create_dir_all(&side).unwrap();
    let codec = Codec::of_scan(manifest.uuid);
    let geometry = manifest.streams[0].geometry.unwrap();
    let header = Entry::Header {
        member: uuid,
        frame_bytes: geometry.frame_bytes,
        block_bytes: geometry.block_bytes,
        chunk_blocks: geometry.chunk_blocks,
    };
    let mut index = codec.encode(0, &header).to_vec();
    let mut memory = memory(outgoing);
    for (block, bytes) in blocks {
        let records = outgoing.fetch(*block, &mut memory).unwrap().records;
        let Ok((_, Entry::Block(record))) = codec.decode(&records[0]) else { panic!() };
        let path = directory.join(chunk_file(&manifest.streams[0].directory, record.chunk));
        let file = fs::OpenOptions::new().create(true).write(true).truncate(false).open(path);
        let data = &memory[..*bytes as usize];
        std::os::unix::fs::FileExt::write_all_at(&file.unwrap(), data, record.offset).unwrap();
        index.extend(records.concat());
    }
    fs::write(side.join(INDEX_FILE), index).unwrap();
    fs::write(side.join("account.json"), outgoing.accounts()[&0].to_json()).unwrap();
    fs::write(side.join(MANIFEST_FILE), manifest.to_json()).unwrap();
}

fn chunk_names(root: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(root.join("r1_a")).unwrap().flatten();
    let names = entries.map(|entry| entry.file_name().into_string().unwrap());
    names.filter(|name| !name.starts_with('.')).collect()
}

#[test]
fn a_copy_of_a_renumbered_scan_is_renumbered_at_its_own_seal() {
    let store = Store::new(1);
    let plan = StreamPlan::vdif("a").unsealed().numbered(&CUT);
    let laid = store.lay_down("r1_a", &[plan]);
    // A first part of the transfer, while the files have the numbers of the index.
    let before = open(&store, &laid);
    let early = before.look().unwrap().blocks;
    let numbers = |outgoing: &Outgoing| -> Vec<Vec<Record>> {
        early.iter().map(|(id, _)| outgoing.block(*id).unwrap().records).collect()
    };
    let records = numbers(&before);
    recover(&store.roots(), &laid.name, recover::Options::default(), &|_| {}).unwrap();
    let after = open(&store, &laid);
    let blocks = after.look().unwrap().blocks;
    assert!(numbers(&after) == records, "a number means another chunk after the seal");
    let copy = Store::new(1);
    let roots: Vec<PathBuf> = copy.roots();
    write_copy(&roots[0], &after, &blocks);
    let read = |roots: &[PathBuf]| {
        let there = Outgoing::open(roots, &laid.name).unwrap();
        let blocks = there.look().unwrap().blocks;
        fetch(&there, &blocks)
    };
    assert!(read(&roots) == laid.bytes[0], "a copy that was not sealed reads wrongly");
    let mut manifest = Scan::open(&roots, &laid.name).unwrap().manifest;
    assert!(renumber::is_to_be_renamed(&manifest.streams[0]));
    let path = roots[0].join("r1_a").join(SIDE_DIRECTORY).join(MANIFEST_FILE);
    let mut put = |manifest: &Manifest| {
        fs::write(&path, manifest.to_json()).unwrap();
        Ok(Vec::new())
    };
    renumber::carry_out(&roots, &mut manifest, &mut put).unwrap();
    assert_eq!(chunk_names(&roots[0]), chunk_names(&store.roots()[0]));
    let file = |root: &Path, name: &String| fs::read(root.join("r1_a").join(name)).unwrap();
    for name in chunk_names(&roots[0]) {
        assert!(file(&roots[0], &name) == file(&store.roots()[0], &name), "{name}");
    }
    let verification =
        verify(&Scan::open(&roots, &laid.name).unwrap(), Settings::default(), &|_, _| {}).unwrap();
    assert!(verification.good, "{:?}", verification.findings);
}

#[test]
fn many_threads_read_at_once() {
    let store = Store::new(3);
    let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
    let outgoing = open(&store, &laid);
    let blocks = outgoing.look().unwrap().blocks;
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| assert!(fetch(&outgoing, &blocks) == laid.bytes[0]));
        }
    });
}
