//! Follows a scan that is being recorded, and plays it.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use fullbore_core::gap::Cause;
use fullbore_core::index::{Block, Codec, Entry, RECORD_BYTES};
use fullbore_core::layout::chunk_file;
use fullbore_core::manifest::SIDE_DIRECTORY;
use fullbore_replay::{FrameSource, Looking, StoredFrames};
use fullbore_store::diagnostics::DiagnosticKind;
use fullbore_store::follow::{Error, FollowCursor, FollowState, Follower, LOOK, OVERDUE_NS};
use fullbore_store::inventory::PART_SUFFIX;
use fullbore_store::lock::ScanLock;
use fullbore_store::read::Settings;
use fullbore_store::reader::{Item, Scan};
use fullbore_store::testing::{Laid, Store, StreamPlan};
use fullbore_time::Tai;
use proptest::prelude::*;

/// A scan with a live recorder; the test controls how far its indexes are written.
struct Running {
    store: Store,
    laid: Laid,
    /// The final index records of each member, without marks.
    records: Vec<Vec<Vec<u8>>>,
    /// The number of records written on each member.
    written: Vec<usize>,
    locks: Vec<ScanLock>,
}

impl Running {
    /// Makes a scan of one stream on this many members.
    fn new(members: usize, plan: StreamPlan) -> Self {
        let store = Store::new(members);
        let laid = store.lay_down("r1_a", &[plan.unsealed()]);
        let codec = Codec::of_scan(laid.manifest.uuid);
        // The frames arrive at the rate of their time stamps.
        let as_it_comes = |record: &[u8]| match codec.decode(record.try_into().unwrap()) {
            Ok((_, Entry::Mark { .. })) | Err(_) => None,
            Ok((stream, Entry::Block(block))) => {
                let seen = block.time.unwrap_or(block.seen);
                Some(codec.encode(stream, &Entry::Block(Block { seen, ..block })).to_vec())
            }
            Ok(_) => Some(record.to_vec()),
        };
        let records: Vec<Vec<Vec<u8>>> = (0..members)
            .map(|member| {
                let index = fs::read(laid.index_path(0, member)).unwrap();
                index.chunks_exact(RECORD_BYTES).filter_map(as_it_comes).collect()
            })
            .collect();
        for member in 0..members {
            fs::write(laid.index_path(0, member), []).unwrap();
        }
        let lock = |member: usize| ScanLock::take(&laid.manifest_path(0, member)).unwrap();
        let locks = (0..members).map(lock).collect();
        Self { store, written: vec![0; members], laid, records, locks }
    }

    /// Writes this many more records on a member, and a mark that covers them.
    fn write(&mut self, member: usize, records: usize) {
        self.append(member, records);
        let blocks = self.blocks_written(member).len() as u64;
        let codec = Codec::of_scan(self.laid.manifest.uuid);
        let mark = codec.encode(0, &Entry::Mark { blocks, at: Tai(blocks as i64) });
        self.put(member, &mark);
    }

    fn append(&mut self, member: usize, records: usize) {
        let from = self.written[member];
        let to = (from + records).min(self.records[member].len());
        let bytes = self.records[member][from..to].concat();
        self.put(member, &bytes);
        self.written[member] = to;
    }

    fn put(&self, member: usize, bytes: &[u8]) {
        let path = self.laid.index_path(0, member);
        fs::OpenOptions::new().append(true).open(path).unwrap().write_all(bytes).unwrap();
    }

    fn write_all(&mut self) {
        (0..self.records.len()).for_each(|member| self.write(member, usize::MAX / 2));
    }

    fn blocks_written(&self, member: usize) -> Vec<u64> {
        let codec = Codec::of_scan(self.laid.manifest.uuid);
        let written = &self.records[member][..self.written[member]];
        let of = |record: &Vec<u8>| match codec.decode(record.as_slice().try_into().unwrap()) {
            Ok((_, Entry::Block(block))) => Some(block.sequence),
            _ => None,
        };
        written.iter().filter_map(of).collect()
    }

    /// Seals the scan as a recorder that has no chunk to renumber.
    fn seal(&mut self) {
        (0..self.locks.len()).for_each(|member| self.seal_on(member));
    }

    fn seal_on(&mut self, member: usize) {
        let account = serde_json::to_vec(&self.laid.accounts[0]).unwrap();
        fs::write(self.laid.account_path(0, member), account).unwrap();
        self.locks[member].replace(&self.laid.manifest.to_json()).unwrap();
    }

    fn follower(&self) -> Follower {
        Follower::open(&self.store.roots(), &self.laid.name).unwrap()
    }
}

fn flow() -> FollowCursor {
    FollowCursor::new(0, Settings::beside_a_recorder())
}

/// Returns all bytes available now, and the losses reported.
fn taken(follower: &mut Follower, flow: &mut FollowCursor) -> (Vec<u8>, Vec<DiagnosticKind>) {
    let (mut bytes, mut lost) = (Vec::new(), Vec::new());
    while let Some(item) = follower.next(flow).unwrap() {
        match item {
            Item::Block(block) => bytes.extend_from_slice(block.bytes()),
            Item::Lost(finding) => lost.push(finding.what),
        }
    }
    (bytes, lost)
}

#[test]
fn what_is_marked_is_given_and_what_is_only_recorded_is_waited_for() {
    let mut running = Running::new(1, StreamPlan::vdif("a"));
    let mut follower = running.follower();
    let mut flow = flow();
    assert_eq!(follower.status(), FollowState::Recording);
    assert!(taken(&mut follower, &mut flow).0.is_empty(), "nothing has been written");
    running.write(0, 5);
    running.append(0, 3);
    follower.look().unwrap();
    let durable = running.laid.blocks[0][..4].iter().map(|it| it.1.bytes as usize).sum::<usize>();
    assert_eq!(taken(&mut follower, &mut flow).0, running.laid.bytes[0][..durable]);
    running.write_all();
    follower.look().unwrap();
    assert_eq!(taken(&mut follower, &mut flow).0, running.laid.bytes[0][durable..]);
}

#[test]
fn a_reader_goes_on_where_it_was_when_the_scan_is_sealed() {
    let mut running = Running::new(2, StreamPlan::vdif("a").gap(40, 3, Cause::Missing));
    let mut follower = running.follower();
    let mut flow = flow();
    running.write(0, 7);
    running.write(1, 4);
    follower.look().unwrap();
    let (mut bytes, _) = taken(&mut follower, &mut flow);
    assert!(!bytes.is_empty() && bytes.len() < running.laid.bytes[0].len());
    running.write_all();
    running.seal();
    assert_eq!(follower.look().unwrap(), FollowState::Sealed);
    let (rest, lost) = taken(&mut follower, &mut flow);
    bytes.extend(rest);
    assert!(bytes == running.laid.bytes[0] && lost.is_empty(), "{lost:?}");
    assert!(follower.scan().streams[0].account.is_some());
}

#[test]
fn of_a_recorder_that_died_all_that_it_recorded_is_given() {
    let mut running = Running::new(1, StreamPlan::vdif("a"));
    let mut follower = running.follower();
    let mut flow = flow();
    running.write(0, 4);
    running.append(0, 2);
    running.locks.clear();
    assert_eq!(follower.look().unwrap(), FollowState::Died);
    let recorded = running.laid.blocks[0][..5].iter().map(|it| it.1.bytes as usize).sum::<usize>();
    assert_eq!(taken(&mut follower, &mut flow).0, running.laid.bytes[0][..recorded]);
}

#[test]
fn blocks_that_were_never_made_are_not_waited_for() {
    let mut running = Running::new(2, StreamPlan::vdif("a").skip_blocks(4..9));
    running.write_all();
    let mut follower = running.follower();
    let (bytes, lost) = taken(&mut follower, &mut flow());
    assert!(bytes == running.laid.bytes[0] && lost.is_empty(), "{lost:?}");
}

#[test]
fn a_member_that_is_not_given_is_waited_for_only_so_long() {
    let mut running = Running::new(2, StreamPlan::vdif("a").frames(4000));
    running.write(0, 8);
    running.write(1, 8);
    let only = [running.store.roots()[0].clone()];
    let mut follower = Follower::open(&only, &running.laid.name).unwrap();
    let mut flow = flow();
    let (first, lost) = taken(&mut follower, &mut flow);
    assert!(lost.is_empty() && running.laid.bytes[0].starts_with(&first));
    running.write_all();
    follower.look().unwrap();
    let (_, lost) = taken(&mut follower, &mut flow);
    let absent = |what: &DiagnosticKind| matches!(what, DiagnosticKind::BlocksAbsent { .. });
    assert!(!lost.is_empty() && lost.iter().all(absent), "{lost:?}");
}

#[test]
fn a_block_that_is_recorded_and_not_safe_is_read_once_much_lies_behind_it() {
    // At 100 frames a second, the blocks behind it finally arrive 20 seconds later.
    let mut running = Running::new(2, StreamPlan::vdif("a").frames(6000));
    running.write(0, usize::MAX / 2);
    running.append(1, usize::MAX / 2);
    let mut follower = running.follower();
    let mut flow = flow();
    let (bytes, lost) = taken(&mut follower, &mut flow);
    assert!(lost.is_empty() && running.laid.bytes[0].starts_with(&bytes));
    let last = follower.scan().streams[0].blocks.last().unwrap().block.seen;
    let newest = running.laid.blocks[0].last().unwrap().1.time.unwrap();
    let chunk_ns = 3 * 320_000_000;
    assert!(newest.since(last) <= OVERDUE_NS + chunk_ns, "no more is waited for than so long");
}

#[test]
fn a_chunk_that_is_put_in_its_place_is_read_on() {
    let mut running = Running::new(1, StreamPlan::vdif("a"));
    let directory = running.laid.directory(0, 0);
    let name = directory.file_name().unwrap().to_str().unwrap().to_owned();
    let last = *running.laid.chunks(0).last().unwrap();
    running.write_all();
    let mut follower = running.follower();
    let part = format!("{}{PART_SUFFIX}", chunk_file(&name, last));
    let part = directory.join(SIDE_DIRECTORY).join(part);
    assert!(part.is_file(), "the last chunk is being filled");
    fs::rename(part, directory.join(chunk_file(&name, last))).unwrap();
    assert!(taken(&mut follower, &mut flow()).0 == running.laid.bytes[0]);
}

#[test]
fn damage_is_told_while_the_scan_is_recorded_and_the_rest_is_given() {
    let mut running = Running::new(1, StreamPlan::vdif("a"));
    running.write_all();
    let (_, block) = running.laid.blocks[0][4];
    damage(&running.laid.chunk_path(0, block.chunk), block.offset);
    let mut follower = running.follower();
    let (bytes, lost) = taken(&mut follower, &mut flow());
    assert!(
        matches!(lost[..], [DiagnosticKind::BlocksDamaged { first: 4, count: 1, .. }]),
        "{lost:?}"
    );
    assert_eq!(bytes.len(), running.laid.bytes[0].len() - block.bytes as usize);
}

fn damage(path: &Path, at: u64) {
    use std::os::unix::fs::FileExt;
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&[0xEE; 16], at).unwrap();
}

#[test]
fn while_files_are_put_in_order_nothing_is_believed_of_them() {
    let mut running = Running::new(1, StreamPlan::vdif("a"));
    running.write_all();
    let mut follower = running.follower();
    let mut flow = flow();
    // The recorder is sealing and has just renamed a file away.
    let mut manifest = running.laid.manifest.clone();
    manifest.streams[0].renamed = Some(fullbore_core::chunk_map::Renumbering {
        round: 1,
        stage: fullbore_core::chunk_map::RenumberStage::SettingAside,
        files: fullbore_core::chunk_map::ChunkMap::default(),
        before: fullbore_core::chunk_map::ChunkMap::default(),
    });
    running.locks[0].replace(&manifest.to_json()).unwrap();
    let first = running.laid.chunk_path(0, 0);
    let aside = first.with_extension("aside");
    fs::rename(&first, &aside).unwrap();
    let (bytes, lost) = taken(&mut follower, &mut flow);
    assert_eq!((bytes.len(), lost.len(), follower.status()), (0, 0, FollowState::Sealing));
    assert_eq!(follower.look().unwrap(), FollowState::Sealing);
    fs::rename(&aside, &first).unwrap();
    running.seal();
    assert_eq!(follower.look().unwrap(), FollowState::Sealed);
    assert!(taken(&mut follower, &mut flow).0 == running.laid.bytes[0]);
}

#[test]
fn a_scan_is_not_over_before_every_member_has_its_last_manifest() {
    let mut running = Running::new(2, StreamPlan::vdif("a"));
    running.write_all();
    let mut follower = running.follower();
    running.seal_on(0);
    assert_eq!(follower.look().unwrap(), FollowState::Sealing);
    assert_eq!(running.follower().status(), FollowState::Sealing, "opened just then");
    running.seal_on(1);
    assert_eq!(follower.look().unwrap(), FollowState::Sealed);
    // A member that never received the manifest does not delay the follower once the recorder is gone.
    let mut running = Running::new(2, StreamPlan::vdif("a"));
    let mut follower = running.follower();
    running.seal_on(0);
    running.locks.clear();
    assert_eq!(follower.look().unwrap(), FollowState::Sealed);
}

#[test]
fn a_scan_that_is_removed_is_said_to_be() {
    let mut running = Running::new(1, StreamPlan::vdif("a"));
    running.write(0, 4);
    let mut follower = running.follower();
    running.seal();
    running.locks.clear();
    fullbore_care::remove::remove(&running.store.roots(), &running.laid.name).unwrap();
    let error = follower.look().unwrap_err();
    assert!(matches!(error, Error::Removed { .. }), "{error}");
}

#[test]
fn what_is_durable_is_summed_up_while_it_grows() {
    let mut running = Running::new(2, StreamPlan::vdif("a").gap(40, 3, Cause::Missing));
    running.write_all();
    let follower = running.follower();
    let [durable] = &follower.durable()[..] else { panic!("one stream") };
    let blocks = &running.laid.blocks[0];
    assert_eq!((durable.blocks, durable.ahead), (blocks.len() as u64, 0));
    assert_eq!(durable.bytes, running.laid.bytes[0].len() as u64);
    assert_eq!((durable.frames, durable.absent), (997, Some(3)));
    assert_eq!(durable.last, blocks.last().unwrap().1.time);
    let shares: Vec<u64> = follower.shares().iter().map(|it| it.blocks).collect();
    assert_eq!(shares.iter().sum::<u64>(), blocks.len() as u64);
    // 100 frames of 512 bytes a second.
    let rate = durable.rate.unwrap().0;
    assert!((50_000..53_000).contains(&rate), "{rate}");
}

/// Returns all frames of a source, with their times, until no more arrive.
fn played(source: &mut dyn FrameSource) -> Vec<(Vec<u8>, Option<Tai>, bool)> {
    let mut all = Vec::new();
    loop {
        if source.advance().unwrap() {
            let frames = (0..source.count()).map(|n| source.frame(n));
            all.extend(frames.map(|frame| (frame.bytes.to_vec(), frame.time, frame.fill)));
        } else if source.waits() {
            std::thread::yield_now();
        } else {
            return all;
        }
    }
}

#[test]
fn what_is_played_while_it_is_recorded_is_what_is_played_afterwards() {
    let vdif = StreamPlan::vdif("a").gap(40, 3, Cause::Missing).skip_blocks(10..12);
    let plans = [vdif, StreamPlan::raw("a"), StreamPlan::varying("a")];
    // The player either fetches new data at once, or finds the scan sealed before it has fetched the earlier data.
    let late = [Duration::ZERO, 3 * LOOK];
    for (plan, late) in plans.iter().flat_map(|plan| late.map(|late| (plan.clone(), late))) {
        let (mut running, settings) = (Running::new(2, plan), Settings::beside_a_recorder());
        running.write(0, 5);
        running.write(1, 3);
        let (_looking, mut frames) =
            Looking::begin(running.follower(), &[(0, 0)], None, settings).unwrap();
        let begun = frames[0].advance().unwrap();
        let first = (0..frames[0].count()).map(|n| frames[0].frame(n));
        let mut all: Vec<_> =
            first.map(|frame| (frame.bytes.to_vec(), frame.time, frame.fill)).collect();
        assert!(begun && !all.is_empty());
        running.write_all();
        std::thread::sleep(late);
        running.seal();
        std::thread::sleep(late);
        all.extend(played(&mut frames[0]));
        let scan = Scan::open(&running.store.roots(), &running.laid.name).unwrap();
        let stream = &scan.streams[0];
        let stored = played(&mut StoredFrames::open(&scan, stream, None, None, settings).unwrap());
        assert_eq!(all.len(), stored.len());
        for (live, stored) in all.iter().zip(&stored) {
            assert!(live.0 == stored.0 && live.2 == stored.2);
            let off_ns = live.1.unwrap().since(stored.1.unwrap()).abs();
            // If frames have no rate, the length of the last block is only an estimate.
            let most_ns = if stream.is_filled() { 0 } else { 320_000_000 };
            assert!(off_ns <= most_ns, "{off_ns} ns off");
        }
    }
}

#[test]
fn a_manifest_that_was_replaced_while_the_scan_was_opened_is_read() {
    let running = Running::new(2, StreamPlan::vdif("a"));
    let mut follower = running.follower();
    // As if it had been replaced between the read and the first stamp: the stamp shows no change.
    let mut manifest = running.laid.manifest.clone();
    manifest.software = manifest.software.chars().rev().collect();
    for member in 0..2 {
        let path = running.laid.manifest_path(0, member);
        let written = fs::metadata(&path).unwrap().modified().unwrap();
        fs::write(&path, manifest.to_json()).unwrap();
        fs::File::open(&path).unwrap().set_modified(written).unwrap();
    }
    follower.look().unwrap();
    assert_eq!(follower.scan().manifest.software, manifest.software);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn blocks_come_once_in_order_and_never_before_they_are_safe(
        steps in prop::collection::vec((0..3usize, 0..9usize, any::<bool>()), 0..40),
        gap in 0..900i64,
    ) {
        let plan = StreamPlan::vdif("a").gap(gap, 5, Cause::Missing).skip_blocks(12..14);
        let mut running = Running::new(3, plan);
        let mut follower = running.follower();
        let mut flow = flow();
        let mut got = Vec::new();
        let mut safe: Vec<u64> = Vec::new();
        for (member, records, marked) in steps {
            if marked {
                running.write(member, records);
                safe.extend(running.blocks_written(member));
            } else {
                running.append(member, records);
            }
            follower.look().unwrap();
            while let Some(item) = follower.next(&mut flow).unwrap() {
                let Item::Block(block) = item else { panic!("nothing is lost") };
                prop_assert!(safe.contains(&block.location.block.sequence));
                got.extend_from_slice(block.bytes());
            }
            prop_assert!(running.laid.bytes[0].starts_with(&got));
        }
        running.write_all();
        running.seal();
        follower.look().unwrap();
        let (rest, lost) = taken(&mut follower, &mut flow);
        got.extend(rest);
        prop_assert!(lost.is_empty() && got == running.laid.bytes[0]);
    }
}
