//! Copies of made-up scans: in any order, by several threads, ended at every step, and from hostile senders.

use std::collections::BTreeMap;

use fullbore_core::gap::Cause;
use fullbore_core::hint::Hint;
use fullbore_core::index::{Block as IndexBlock, Entry};
use fullbore_core::layout::chunk_file;
use fullbore_core::manifest::{Fill, INDEX_FILE, State as Stage};
use proptest::prelude::*;

use super::*;
use crate::inventory::{Index, PART_SUFFIX, side_file};
use crate::reader::{Item, Scan};
use crate::testing::{Laid, Store, StreamPlan};
use crate::{copies, crash_hooks, lock, read};

/// A block with its records, as it is sent.
struct Sent {
    stream: u16,
    block: IndexBlock,
    records: Vec<[u8; RECORD_BYTES]>,
    data: Vec<u8>,
}

/// A scan to send.
struct Source {
    laid: Laid,
    blocks: Vec<Sent>,
    /// Records of gaps.
    last: Vec<[u8; RECORD_BYTES]>,
    accounts: BTreeMap<u16, Account>,
    bytes: u64,
    _store: Store,
}

impl Source {
    fn of(plans: &[StreamPlan]) -> Self {
        let store = Store::in_memory(3);
        let laid = store.lay_down("r1_a", plans);
        let codec = Codec::of_scan(laid.manifest.uuid);
        let (mut blocks, mut last) = (Vec::<Sent>::new(), Vec::new());
        for stream in 0..plans.len() {
            for member in 0..3 {
                let index = std::fs::read(laid.index_path(stream, member)).unwrap();
                for record in index.chunks_exact(RECORD_BYTES) {
                    let record: [u8; RECORD_BYTES] = record.try_into().unwrap();
                    match codec.decode(&record).unwrap().1 {
                        Entry::Block(block) => {
                            let chunk =
                                std::fs::read(laid.chunk_path(stream, block.chunk)).unwrap();
                            let start = block.offset as usize;
                            let data = chunk[start..start + block.bytes as usize].to_vec();
                            let (stream, records) = (stream as u16, vec![record]);
                            blocks.push(Sent { stream, block, records, data });
                        }
                        Entry::Lengths { .. } => blocks.last_mut().unwrap().records.push(record),
                        Entry::Gap(_) => last.push(record),
                        _ => {}
                    }
                }
            }
        }
        let accounts = (0..).zip(laid.accounts.iter().cloned()).collect();
        let bytes = blocks.iter().map(|it| it.data.len() as u64).sum();
        Self { laid, blocks, last, accounts, bytes, _store: store }
    }

    fn two_streams() -> Self {
        let vdif = StreamPlan::vdif("a").frames(700).gap(40, 3, Cause::Missing);
        Self::of(&[vdif.gap(200, 9, Cause::Overrun), StreamPlan::varying("b").frames(150)])
    }

    fn begin(&self, members: &[Member]) -> Result<Landing, LandingError> {
        Landing::begin(members, &self.laid.manifest, &origin(), self.bytes)
    }

    fn seal(&self, landing: &Landing) -> Result<Sealed, LandingError> {
        landing.seal(&self.laid.manifest, &self.accounts, &self.last)
    }

    fn digest(&self) -> [u8; 32] {
        let mut all: Vec<(u16, &IndexBlock)> =
            self.blocks.iter().map(|it| (it.stream, &it.block)).collect();
        all.sort_by_key(|(stream, block)| (*stream, block.sequence));
        copies::digest(all.into_iter())
    }

    /// The blocks in an order that depends on the seed.
    fn shuffled(&self, seed: u32) -> Vec<&Sent> {
        let mut all: Vec<&Sent> = self.blocks.iter().collect();
        all.sort_by_key(|it| crc32c::crc32c_append(seed, &it.records[0]));
        all
    }

    /// Checks that the copy is the scan.
    fn assert_copied(&self, sealed: Sealed, members: &[Member]) {
        assert_eq!(sealed.digest, self.digest());
        assert_eq!((sealed.blocks, sealed.bytes), (self.blocks.len() as u64, self.bytes));
        let roots: Vec<PathBuf> = members.iter().map(|it| it.root().to_owned()).collect();
        let scan = Scan::open(&roots, &self.laid.name).unwrap();
        assert_eq!(scan.findings, []);
        let manifest = &scan.manifest;
        assert_eq!((manifest.state, manifest.uuid), (Stage::Sealed, self.laid.manifest.uuid));
        assert!(manifest.copied.as_ref().unwrap().completed.is_some());
        assert_eq!(manifest.members.len(), members.len());
        for (number, stream) in scan.streams.iter().enumerate() {
            assert_eq!(stream.account.as_ref(), Some(&self.laid.accounts[number]));
            let mut bytes = Vec::new();
            for item in stream.read(0..usize::MAX, read::Settings::default()).unwrap() {
                match item {
                    Item::Block(block) => bytes.extend_from_slice(block.bytes()),
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(bytes, self.laid.bytes[number], "stream {number}");
            assert_eq!(
                joined(&roots, &manifest.streams[number].directory),
                self.laid.bytes[number]
            );
        }
        for member in members {
            for stream in &manifest.streams {
                let directory = member.root().join(&stream.directory);
                let path = side_file(&directory, fullbore_core::manifest::MANIFEST_FILE);
                assert!(!lock::is_held(&path));
                assert_eq!(std::fs::read(&path).unwrap(), manifest.to_json());
                for entry in std::fs::read_dir(path.parent().unwrap()).unwrap() {
                    let name = entry.unwrap().file_name().into_string().unwrap();
                    assert!(
                        ["manifest.json", "account.json", "index"].contains(&name.as_str()),
                        "{name} is left"
                    );
                }
            }
        }
    }
}

/// The chunk files of a stream, joined in the order of their names.
fn joined(roots: &[PathBuf], directory: &str) -> Vec<u8> {
    let mut files: Vec<PathBuf> = roots
        .iter()
        .flat_map(|root| std::fs::read_dir(root.join(directory)).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .collect();
    files.sort_by_key(|path| path.file_name().unwrap().to_owned());
    files.iter().flat_map(|path| std::fs::read(path).unwrap()).collect()
}

fn origin() -> Origin {
    Origin { host: "there".into(), key: "ab12".into() }
}

fn members(store: &Store) -> Vec<Member> {
    store.roots().iter().map(|root| Member::open(root).unwrap()).collect()
}

fn write(landing: &Landing, sent: &Sent) -> Result<(), BlockError> {
    let mut pool = read::pool(1, 16384).unwrap();
    let mut memory = pool.take().unwrap();
    memory[..sent.data.len()].copy_from_slice(&sent.data);
    let expected = landing.check(&sent.records)?;
    assert_eq!((expected.stream, expected.sequence), (sent.stream, sent.block.sequence));
    landing.write(&sent.records, &mut memory[..])
}

fn contains(durable: &BTreeMap<u16, BlockSet>, sent: &Sent) -> bool {
    durable.get(&sent.stream).is_some_and(|it| it.contains(sent.block.sequence))
}

#[test]
fn blocks_in_any_order_from_several_threads_become_the_scan() {
    for seed in 0..8 {
        let source = Source::two_streams();
        let store = Store::in_memory(2);
        let members = members(&store);
        let landing = source.begin(&members).unwrap();
        let all = source.shuffled(seed);
        std::thread::scope(|scope| {
            let landing = &landing;
            for part in 0..4 {
                // Every block goes to two threads.
                let own: Vec<&Sent> = all
                    .iter()
                    .enumerate()
                    .filter(|(at, _)| at % 4 == part || at % 4 == (part + 1) % 4)
                    .map(|(_, it)| *it)
                    .collect();
                scope.spawn(move || own.iter().for_each(|it| write(landing, it).unwrap()));
            }
            scope.spawn(move || {
                for _ in 0..20 {
                    landing.sync().unwrap();
                }
            });
        });
        landing.sync().unwrap();
        assert_eq!(landing.fresh_bytes(), 0);
        let durable = landing.durable();
        assert!(source.blocks.iter().all(|it| contains(&durable, it)));
        assert!(source.blocks.iter().all(|it| landing.check(&it.records).unwrap().known));
        let sealed = source.seal(&landing).unwrap();
        assert_eq!(source.seal(&landing).unwrap(), sealed);
        source.assert_copied(sealed, &members);
        let again = source.begin(&members).unwrap_err();
        assert!(
            matches!(again, LandingError::Complete { sealed: it, .. } if it == sealed),
            "{again}"
        );
    }
}

/// Sends a scan in an order by the seed, with a sync after every few blocks. Adds what was reported as durable.
fn send(
    source: &Source,
    members: &[Member],
    seed: u32,
    reported: &mut Vec<(u16, u64)>,
) -> Result<Sealed, LandingError> {
    let landing = match source.begin(members) {
        Err(LandingError::Complete { sealed, .. }) => return Ok(sealed),
        landing => landing?,
    };
    let durable = landing.durable();
    for (stream, sequence) in reported.iter() {
        assert!(durable[stream].contains(*sequence), "{sequence} of {stream} was reported");
    }
    for (at, sent) in source.shuffled(seed).into_iter().enumerate() {
        if contains(&durable, sent) {
            continue;
        }
        match write(&landing, sent) {
            Err(BlockError::Landing(error)) => return Err(error),
            written => written.unwrap(),
        }
        if at % 5 == 4 {
            for (stream, blocks) in landing.sync()? {
                reported.extend(blocks.runs().flatten().map(|sequence| (stream, sequence)));
            }
        }
    }
    source.seal(&landing)
}

#[test]
fn a_copy_that_ends_at_any_step_is_continued() {
    let vdif = StreamPlan::vdif("a").frames(400).gap(40, 3, Cause::Missing);
    let source = Source::of(&[vdif, StreamPlan::varying("b").frames(150)]);
    let mut steps = 0;
    loop {
        let store = Store::in_memory(2);
        let members = members(&store);
        let mut reported = Vec::new();
        crash_hooks::after(steps);
        let first = send(&source, &members, 1, &mut reported);
        crash_hooks::after(u32::MAX);
        let done = first.is_ok();
        // Nobody takes an incomplete copy for a whole one.
        if let (false, Ok(scan)) = (done, Scan::open(&store.roots(), &source.laid.name)) {
            let incomplete = scan.manifest.incomplete_copy().is_some();
            assert!(incomplete || scan.manifest.state == Stage::Sealed);
        }
        let sealed = send(&source, &members, 2, &mut reported).unwrap();
        source.assert_copied(sealed, &members);
        if done {
            break;
        }
        steps += 1;
    }
    assert!(steps > 70, "{steps} steps");
}

/// Overwrites the data that no mark covers.
fn lose_power(source: &Source, members: &[Member]) {
    use std::os::unix::fs::FileExt;
    let manifest = &source.laid.manifest;
    for (member, stream) in members.iter().flat_map(|it| (0..).map(move |at| (it, at)).take(2)) {
        let name = &manifest.streams[usize::from(stream)].directory;
        let directory = member.root().join(name);
        let index = Index::read(&side_file(&directory, INDEX_FILE), manifest.uuid, stream);
        let durable = index.map(|it| it.blocks[..it.durable].to_vec()).unwrap_or_default();
        let is_durable = |it: &&Sent| durable.iter().any(|own| own.block == it.block);
        for sent in source.blocks.iter().filter(|it| it.stream == stream && !is_durable(it)) {
            let chunk = chunk_file(name, sent.block.chunk);
            let path = side_file(&directory, &format!("{chunk}{PART_SUFFIX}"));
            if let Ok(file) = std::fs::OpenOptions::new().write(true).open(path) {
                file.write_all_at(&vec![0; sent.data.len()], sent.block.offset).unwrap();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_copy_that_ends_many_times_is_complete_at_last(
        ends in proptest::collection::vec(0u32..90, 1..12),
        count in 1usize..4,
        seed: u32,
    ) {
        let source = Source::two_streams();
        let store = Store::in_memory(count);
        let members = members(&store);
        let mut reported = Vec::new();
        for (at, steps) in ends.into_iter().enumerate() {
            crash_hooks::after(steps);
            let _ = send(&source, &members, seed.wrapping_add(at as u32), &mut reported);
            lose_power(&source, &members);
        }
        crash_hooks::after(u32::MAX);
        let sealed = send(&source, &members, seed, &mut reported).unwrap();
        source.assert_copied(sealed, &members);
    }

    #[test]
    fn any_bytes_are_no_record(bytes in proptest::collection::vec(any::<u8>(), RECORD_BYTES..4 * RECORD_BYTES)) {
        let source = Source::of(&[StreamPlan::vdif("a").frames(100)]);
        let store = Store::in_memory(1);
        let landing = source.begin(&members(&store)).unwrap();
        let records: Vec<[u8; RECORD_BYTES]> =
            bytes.chunks_exact(RECORD_BYTES).map(|it| it.try_into().unwrap()).collect();
        prop_assert!(matches!(landing.check(&records), Err(BlockError::Invalid(_))));
    }

    #[test]
    fn no_block_of_a_hostile_sender_panics(
        (sequence, offset, chunk, bytes) in (any::<u64>(), any::<u64>(), any::<u32>(), any::<u32>()),
        (frames, present, stream) in (any::<u32>(), any::<u32>(), 0u16..3),
        small: bool,
    ) {
        let source = Source::of(&[StreamPlan::vdif("a").frames(100)]);
        let store = Store::in_memory(1);
        let landing = source.begin(&members(&store)).unwrap();
        let like = source.blocks[0].block;
        let mut block = IndexBlock { sequence, offset, chunk, bytes, frames, present, ..like };
        if small {
            (block.offset, block.chunk) = (offset % 12 * 4096, chunk % 100_000_000);
            (block.bytes, block.present) = (bytes % 20_000, block.present.min(frames));
        }
        let record = landing.codec.encode(stream, &Entry::Block(block));
        let mut memory = vec![0; 20_480];
        let checked = landing.check(&[record]);
        let written = landing.write(&[record], &mut memory);
        prop_assert!(written.is_err());
        if let Ok(expected) = checked {
            prop_assert!(!expected.known);
            prop_assert!(expected.bytes <= 16_384);
        }
        prop_assert!(landing.sync().unwrap().is_empty());
    }
}

#[test]
fn damaged_blocks_and_blocks_in_a_taken_place_are_refused() {
    let source = Source::two_streams();
    let store = Store::in_memory(1);
    let landing = source.begin(&members(&store)).unwrap();
    let sent = &source.blocks[0];
    let mut memory = vec![1; 16384];
    let damaged = landing.write(&sent.records, &mut memory);
    assert!(matches!(damaged, Err(BlockError::Damaged)));
    assert!(!landing.check(&sent.records).unwrap().known, "it is sent again");
    write(&landing, sent).unwrap();
    assert!(landing.check(&sent.records).unwrap().known);
    let elsewhere = |change: fn(&mut IndexBlock)| {
        let mut block = sent.block;
        change(&mut block);
        landing.check(&[landing.codec.encode(sent.stream, &Entry::Block(block))])
    };
    let taken = elsewhere(|block| block.sequence = 999).unwrap_err().to_string();
    assert!(taken.contains("another block is at byte 0 of chunk 0"), "{taken}");
    assert!(elsewhere(|block| (block.sequence, block.offset) = (999, 16384)).is_ok());
    assert!(elsewhere(|block| (block.sequence, block.offset) = (999, 4096)).is_err());
    assert!(elsewhere(|block| (block.sequence, block.offset) = (999, 16385)).is_err());
    assert!(elsewhere(|block| (block.sequence, block.offset) = (999, 49152)).is_err());
    assert!(elsewhere(|block| (block.sequence, block.chunk) = (u64::MAX, 7)).is_err());
    assert!(elsewhere(|block| (block.sequence, block.chunk) = (999, 100_000_000)).is_err());
    let none = landing.check(&[]).unwrap_err();
    assert!(matches!(none, BlockError::Invalid(_)));
    let varying = source.blocks.iter().find(|it| it.records.len() > 1).unwrap();
    let alone = landing.check(&varying.records[1..]);
    assert!(matches!(alone, Err(BlockError::Invalid(_))));
    let twice = [varying.records.clone(), varying.records[1..].to_vec()].concat();
    assert!(matches!(landing.check(&twice), Err(BlockError::Invalid(_))));
}

#[test]
fn hostile_manifests_are_refused() {
    let source = Source::two_streams();
    let store = Store::in_memory(1);
    let members = members(&store);
    let refused = |change: fn(&mut Manifest)| {
        let mut manifest = source.laid.manifest.clone();
        change(&mut manifest);
        let refused = Landing::begin(&members, &manifest, &origin(), 0).unwrap_err();
        assert!(matches!(refused, LandingError::Manifest(_)), "{refused}");
        let entries = std::fs::read_dir(members[0].root()).unwrap().count();
        assert_eq!(entries, 1, "only the identity is there");
    };
    refused(|it| it.streams[0].directory = "../r1_a_dsa".into());
    refused(|it| it.streams[0].directory = "/tmp/r1_a_dsa".into());
    refused(|it| it.streams[0].directory = "r1_b_dsa".into());
    refused(|it| it.streams[0].directory = "r1_a".into());
    refused(|it| it.streams[1] = it.streams[0].clone());
    refused(|it| it.streams.clear());
    refused(|it| it.streams = vec![it.streams[0].clone(); 5000]);
    refused(|it| it.streams[0].geometry.as_mut().unwrap().block_bytes = 5);
    refused(|it| it.streams[0].geometry.as_mut().unwrap().chunk_blocks = 0);
    refused(|it| it.scan.session = "a_b".parse().unwrap());
    refused(|it| it.version = 99);
    let much = Landing::begin(&members, &source.laid.manifest, &origin(), u64::MAX).unwrap_err();
    assert!(matches!(much, LandingError::TooSmall { .. }), "{much}");
    assert!(much.hint().is_some());
}

#[test]
fn begin_after_sigkill_finds_every_written_block() {
    for plan in [StreamPlan::vdif("46220").frames(300), StreamPlan::varying("46220").frames(150)] {
        let source = Source::of(&[plan]);
        let store = Store::in_memory(2);
        let members = members(&store);
        let (first, rest) = source.blocks.split_at(4);
        // Nothing was synced: the kernel has all of it.
        let landing = source.begin(&members).unwrap();
        first.iter().for_each(|it| write(&landing, it).unwrap());
        drop(landing);
        let landing = source.begin(&members).unwrap();
        assert!(first.iter().all(|it| contains(&landing.durable(), it)));
        assert!(!rest.iter().any(|it| contains(&landing.durable(), it)));
        rest.iter().for_each(|it| write(&landing, it).unwrap());
        drop(landing);
        let landing = source.begin(&members).unwrap();
        assert!(source.blocks.iter().all(|it| contains(&landing.durable(), it)));
        source.assert_copied(source.seal(&landing).unwrap(), &members);
    }
}

#[test]
fn begin_after_power_loss_drops_records_without_their_data() {
    for torn in [0, 1, 100] {
        let source = Source::of(&[StreamPlan::varying("46220").frames(150)]);
        let store = Store::in_memory(1);
        let members = members(&store);
        let landing = source.begin(&members).unwrap();
        let (first, rest) = source.blocks.split_at(4);
        first.iter().for_each(|it| write(&landing, it).unwrap());
        assert_eq!(landing.sync().unwrap()[&0].len(), 4);
        rest.iter().for_each(|it| write(&landing, it).unwrap());
        drop(landing);
        let directory = members[0].root().join("r1_a");
        let index = side_file(&directory, INDEX_FILE);
        let whole = std::fs::read(&index).unwrap();
        // The end of the index can be missing, and so can the data of a block in the middle.
        std::fs::write(&index, [&whole[..whole.len() - torn], &b"torn"[..torn.min(4)]].concat())
            .unwrap();
        let gone = &rest[rest.len() / 2];
        let chunk = chunk_file("r1_a", gone.block.chunk);
        let part = side_file(&directory, &format!("{chunk}{PART_SUFFIX}"));
        let file = std::fs::OpenOptions::new().write(true).open(part).unwrap();
        use std::os::unix::fs::FileExt;
        file.write_all_at(&vec![0; gone.data.len()], gone.block.offset).unwrap();
        let unused = side_file(&directory, &format!("r1_a.00000077{PART_SUFFIX}"));
        std::fs::write(&unused, b"").unwrap();
        for _ in 0..2 {
            let landing = source.begin(&members).unwrap();
            let kept = 4 + (rest.len() / 2) as u64;
            assert_eq!(landing.durable()[&0].len(), kept, "the blocks before the first bad one");
            assert!(!unused.exists());
        }
        let landing = source.begin(&members).unwrap();
        rest.iter().for_each(|it| write(&landing, it).unwrap());
        source.assert_copied(source.seal(&landing).unwrap(), &members);
    }
}

#[test]
fn damage_to_durable_data_is_found_and_other_scans_are_left_alone() {
    let source = Source::of(&[StreamPlan::vdif("46220").frames(300)]);
    let store = Store::in_memory(2);
    let members = members(&store);
    let landing = source.begin(&members).unwrap();
    let busy = source.begin(&members).unwrap_err();
    assert!(matches!(busy, LandingError::Busy { .. }), "{busy}");
    source.blocks.iter().take(5).for_each(|it| write(&landing, it).unwrap());
    landing.sync().unwrap();
    drop(landing);
    let absent = source.begin(&members[1..]).unwrap_err();
    assert!(matches!(&absent, LandingError::MembersAbsent { members, .. } if members.len() == 1));
    let mut other = source.laid.manifest.clone();
    other.uuid = uuid::Uuid::now_v7();
    let exists = Landing::begin(&members, &other, &origin(), 0).unwrap_err();
    assert!(matches!(exists, LandingError::Exists { .. }), "{exists}");
    let own = source._store.roots().iter().map(|it| Member::open(it).unwrap()).collect::<Vec<_>>();
    let itself = source.begin(&own).unwrap_err();
    assert!(
        matches!(itself, LandingError::Exists { .. }),
        "the scan is no copy of itself: {itself}"
    );
    // A new member takes part.
    let third = Store::in_memory(1);
    let more = Member::open(&third.roots()[0]).unwrap();
    // The store gives its members the same identities.
    assert_eq!(more.uuid(), members[0].uuid());
    let mut chunks = members.iter().map(|it| it.root().join("r1_a/r1_a.00000000"));
    let chunk = chunks.find(|it| it.exists()).unwrap();
    std::fs::OpenOptions::new().write(true).open(&chunk).unwrap().set_len(100).unwrap();
    let lost = source.begin(&members).unwrap_err();
    assert!(matches!(&lost, LandingError::Lost { path, .. } if *path == chunk), "{lost}");
    std::fs::remove_file(&chunk).unwrap();
    assert!(matches!(source.begin(&members), Err(LandingError::Lost { .. })));
}

#[test]
fn a_member_that_is_new_takes_new_chunks() {
    let source = Source::of(&[StreamPlan::vdif("46220").frames(600)]);
    let store = Store::in_memory(2);
    let both = members(&store);
    let landing = source.begin(&both[..1]).unwrap();
    source.blocks.iter().take(7).for_each(|it| write(&landing, it).unwrap());
    landing.sync().unwrap();
    drop(landing);
    let landing = source.begin(&both).unwrap();
    assert_eq!(landing.durable()[&0].len(), 7);
    source.blocks.iter().skip(7).for_each(|it| write(&landing, it).unwrap());
    let sealed = source.seal(&landing).unwrap();
    source.assert_copied(sealed, &both);
    let on_new = std::fs::read_dir(both[1].root().join("r1_a")).unwrap().count();
    assert!(on_new > 1, "chunks are on the new member");
}

#[test]
fn chunks_out_of_order_are_renumbered_at_the_seal() {
    let plan = StreamPlan::vdif("46220").frames(500).numbered(&[0, 1, 4, 2, 3, 5]);
    let source = Source::of(&[plan]);
    for steps in 0.. {
        let store = Store::in_memory(2);
        let members = members(&store);
        let landing = source.begin(&members).unwrap();
        source.shuffled(3).into_iter().for_each(|it| write(&landing, it).unwrap());
        crash_hooks::after(steps);
        let first = source.seal(&landing);
        crash_hooks::after(u32::MAX);
        drop(landing);
        let sealed = send(&source, &members, 2, &mut Vec::new()).unwrap();
        source.assert_copied(sealed, &members);
        if first.is_ok() {
            assert!(steps > 12, "{steps} steps");
            break;
        }
    }
}

#[test]
fn chunks_that_were_cut_short_stay_as_short_as_they_were() {
    // A member failed behind each second block: blocks 2, 3, then 4, 5, are in chunks of their own.
    let mut source = Source::of(&[StreamPlan::vdif("46220").frames(320)]);
    let codec = Codec::of_scan(source.laid.manifest.uuid);
    for sent in &mut source.blocks {
        let (sequence, bytes) = (sent.block.sequence, u64::from(sent.block.bytes));
        let chunk = (sequence / 2) as u32;
        sent.block = IndexBlock { chunk, offset: sequence % 2 * bytes, ..sent.block };
        sent.records[0] = codec.encode(0, &Entry::Block(sent.block));
    }
    let store = Store::new(2);
    let members = members(&store);
    let mut reported = Vec::new();
    crash_hooks::after(40);
    send(&source, &members, 1, &mut reported).unwrap_err();
    crash_hooks::after(u32::MAX);
    let sealed = send(&source, &members, 2, &mut reported).unwrap();
    source.assert_copied(sealed, &members);
}

#[test]
fn streams_are_added_while_a_scan_is_recorded() {
    let source = Source::two_streams();
    let store = Store::in_memory(2);
    let members = members(&store);
    let mut live = source.laid.manifest.clone();
    live.state = Stage::Recording;
    let second = live.streams.pop().unwrap();
    live.streams[0].geometry = None;
    let landing = Landing::begin(&members, &live, &origin(), 0).unwrap();
    let of = |stream: u16| source.blocks.iter().filter(move |it| it.stream == stream);
    let early = landing.check(&of(0).next().unwrap().records);
    assert!(matches!(early, Err(BlockError::Invalid(_))), "its geometry is not known yet");
    live.streams[0].geometry = source.laid.manifest.streams[0].geometry;
    landing.update(&live).unwrap();
    of(0).for_each(|it| write(&landing, it).unwrap());
    assert!(landing.check(&of(1).next().unwrap().records).is_err());
    live.streams.push(second);
    landing.update(&live).unwrap();
    landing.sync().unwrap();
    drop(landing);
    let landing = Landing::begin(&members, &live, &origin(), 0).unwrap();
    of(1).for_each(|it| write(&landing, it).unwrap());
    let unsealed = landing.seal(&live, &source.accounts, &source.last).unwrap_err();
    assert!(matches!(unsealed, LandingError::Manifest(_)), "{unsealed}");
    let mut fewer = live.clone();
    fewer.streams.pop();
    assert!(matches!(landing.update(&fewer), Err(LandingError::Manifest(_))));
    let mut other = live.clone();
    other.streams[0].geometry.as_mut().unwrap().chunk_blocks += 1;
    assert!(matches!(landing.update(&other), Err(LandingError::Manifest(_))));
    let sealed = source.seal(&landing).unwrap();
    source.assert_copied(sealed, &members);
}

#[test]
fn gaps_without_fill_and_missing_blocks_stay_as_they_are() {
    let raw = StreamPlan::raw("46220").frames(500).fill(Fill::Omit);
    let source = Source::of(&[raw]);
    let store = Store::new(2);
    let members = members(&store);
    let landing = source.begin(&members).unwrap();
    // The sender cannot read one of its blocks.
    source.blocks.iter().skip(1).for_each(|it| write(&landing, it).unwrap());
    // Its `recover` has found others.
    let found = landing.codec.encode(0, &Entry::Found { first: 4, count: 5 });
    let last = [source.last.clone(), vec![found, found]].concat();
    let wrong = [source.blocks[1].records[0]];
    let refused = landing.seal(&source.laid.manifest, &source.accounts, &wrong).unwrap_err();
    assert!(matches!(refused, LandingError::Records(_)), "{refused}");
    let none = landing.seal(&source.laid.manifest, &BTreeMap::new(), &last).unwrap_err();
    assert!(matches!(none, LandingError::Records(_)), "{none}");
    let sealed = landing.seal(&source.laid.manifest, &source.accounts, &last).unwrap();
    assert_eq!(sealed.blocks, source.blocks.len() as u64 - 1);
    let mut found = 0;
    for member in &members {
        let index = side_file(&member.root().join("r1_a"), INDEX_FILE);
        let index = Index::read(&index, source.laid.manifest.uuid, 0).unwrap();
        assert!(index.found.len() <= 1);
        found += index.blocks.iter().filter(|it| index.was_found(&it.block)).count();
    }
    assert_eq!(found, 5);
    let scan = Scan::open(&store.roots(), &source.laid.name).unwrap();
    assert_eq!(scan.streams[0].blocks.len() as u64, sealed.blocks);
}
