//! Chunk files in the order of the stream, after a recovery.

use std::fs;
use std::path::PathBuf;

use fullbore_core::chunk_map::{ChunkMap, RenumberStage, Renumbering};
use fullbore_core::hint::Hint;
use fullbore_core::layout::chunk_number;
use fullbore_core::manifest::State;
use fullbore_store::crash_hooks;
use fullbore_store::read::Settings;
use fullbore_store::reader::{Item, Scan};
use fullbore_store::renumber::{Error, is_unfinished};
use fullbore_store::testing::{Laid, Store, StreamPlan};
use proptest::prelude::*;

use crate::recover::{self, Options, Outcome, Recovery, recover};
use crate::verify::verify;

/// A thousand frames are 11 chunks. Here chunk 1 was cut, and its rest got the next free number.
const CUT: [u32; 11] = [0, 1, 8, 2, 3, 4, 5, 6, 7, 9, 10];

fn died_with(store: &Store, numbers: &[u32]) -> Laid {
    store.lay_down("r1_a", &[StreamPlan::vdif("a").unsealed().numbered(numbers)])
}

fn recovered(roots: &[PathBuf], laid: &Laid, options: Options) -> Result<Recovery, recover::Error> {
    match recover(roots, &laid.name, options, &|_| {})? {
        Outcome::Recovered(recovery) => Ok(recovery),
        other => panic!("{other:?}"),
    }
}

/// Returns the chunk files on all members, by number, as other programs read them.
fn plain(roots: &[PathBuf]) -> Vec<(u32, Vec<u8>)> {
    let mut all = Vec::new();
    for root in roots {
        for entry in fs::read_dir(root.join("r1_a")).unwrap().flatten() {
            let name = entry.file_name().into_string().unwrap();
            if let Some(number) = chunk_number("r1_a", &name) {
                all.push((number, fs::read(entry.path()).unwrap()));
            }
        }
    }
    all.sort_by_key(|(number, _)| *number);
    all
}

fn numbers_in_sight(roots: &[PathBuf]) -> Vec<u32> {
    plain(roots).into_iter().map(|(number, _)| number).collect()
}

fn bytes(store: &Store, laid: &Laid) -> Vec<u8> {
    let scan = Scan::open(&store.roots(), &laid.name).unwrap();
    let mut bytes = Vec::new();
    for item in scan.streams[0].read(0..usize::MAX, Settings::default()).unwrap() {
        match item {
            Item::Block(block) => bytes.extend_from_slice(block.bytes()),
            Item::Lost(finding) => panic!("{finding}"),
        }
    }
    bytes
}

fn assert_in_order(store: &Store, laid: &Laid) {
    let (numbers, files): (Vec<u32>, Vec<Vec<u8>>) = plain(&store.roots()).into_iter().unzip();
    assert_eq!(numbers, (0..11).collect::<Vec<u32>>());
    assert!(files.concat() == laid.bytes[0], "files in order are not the stream");
    assert!(bytes(store, laid) == laid.bytes[0], "the scan reads otherwise");
    let scan = Scan::open(&store.roots(), &laid.name).unwrap();
    let verification = verify(&scan, Settings::default(), &|_, _| {}).unwrap();
    assert!(verification.good, "{:?}", verification.findings);
    assert!(!is_unfinished(&scan.inventory));
}

#[test]
fn a_recovered_scan_has_its_files_in_the_order_of_the_stream_without_holes() {
    for members in 1..4 {
        let store = Store::new(members);
        let laid = died_with(&store, &CUT);
        let recovery = recovered(&store.roots(), &laid, Options::default()).unwrap();
        assert_eq!(recovery.warnings, Vec::<String>::new());
        assert_in_order(&store, &laid);
        let manifest = Scan::open(&store.roots(), &laid.name).unwrap().manifest;
        let renamed = manifest.streams[0].renamed.clone().unwrap();
        assert_eq!((renamed.round, renamed.stage), (1, RenumberStage::Done));
        assert_eq!((renamed.files.file_of(8), renamed.files.file_of(7)), (2, 8));
        assert!(renamed.before.is_empty());
        crate::remove::remove(&store.roots(), &laid.name).unwrap();
        assert!(!laid.directory(0, 0).exists());
    }
}

#[test]
fn a_scan_in_order_is_not_touched() {
    let store = Store::new(2);
    let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a").unsealed()]);
    recovered(&store.roots(), &laid, Options::default()).unwrap();
    assert_in_order(&store, &laid);
    let manifest = Scan::open(&store.roots(), &laid.name).unwrap().manifest;
    assert_eq!(manifest.streams[0].renamed, None);
}

#[test]
fn a_number_on_a_member_that_is_not_here_is_given_to_nobody_and_it_can_come_back() {
    let store = Store::new(11);
    let laid = died_with(&store, &CUT);
    let roots = store.roots();
    let options = Options { without_absent_members: true, ..Options::default() };
    // The member that was cut, with chunk 1.
    let present = [&roots[..1], &roots[2..]].concat();
    let recovery = recovered(&present, &laid, options).unwrap();
    assert_eq!(recovery.warnings, Vec::<String>::new());
    assert_eq!(numbers_in_sight(&present), [0, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    // The manifest of that member has the state of an unsealed scan, so with it the scan is reconstructed.
    recovered(&roots, &laid, Options { reindex: true, ..Options::default() }).unwrap();
    let (numbers, files): (Vec<u32>, Vec<Vec<u8>>) = plain(&roots).into_iter().unzip();
    assert_eq!(numbers, (0..11).collect::<Vec<u32>>());
    assert!(files.concat() == laid.bytes[0]);
    assert!(bytes(&store, &laid) == laid.bytes[0]);
}

#[test]
fn files_stay_as_they_are_where_numbers_of_an_absent_member_are_in_the_way_and_that_is_said() {
    let store = Store::new(3);
    let laid = died_with(&store, &CUT);
    let roots = store.roots();
    let options = Options { without_absent_members: true, ..Options::default() };
    let recovery = recovered(&roots[1..], &laid, options).unwrap();
    assert_eq!(recovery.warnings.len(), 1);
    assert_eq!(numbers_in_sight(&roots[1..]), [1, 3, 4, 6, 7, 8, 10]);
    recovered(&roots, &laid, Options { reindex: true, ..Options::default() }).unwrap();
    let (numbers, files): (Vec<u32>, Vec<Vec<u8>>) = plain(&roots).into_iter().unzip();
    assert_eq!(numbers, (0..11).collect::<Vec<u32>>());
    assert!(files.concat() == laid.bytes[0]);
}

#[test]
fn a_lost_index_does_not_undo_the_order() {
    let store = Store::new(2);
    let laid = died_with(&store, &CUT);
    recovered(&store.roots(), &laid, Options::default()).unwrap();
    fs::remove_file(laid.index_path(0, 1)).unwrap();
    let options = Options { reindex: true, ..Options::default() };
    recovered(&store.roots(), &laid, options).unwrap();
    assert_in_order(&store, &laid);
}

#[test]
fn a_death_between_two_copies_that_tell_of_the_end_leaves_the_second_to_recover() {
    let store = Store::new(2);
    let laid = died_with(&store, &CUT);
    recovered(&store.roots(), &laid, Options::default()).unwrap();
    let mut manifest = Scan::open(&store.roots(), &laid.name).unwrap().manifest;
    manifest.streams[0].renamed.as_mut().unwrap().stage = RenumberStage::Placing;
    fs::write(laid.manifest_path(0, 1), manifest.to_json()).unwrap();
    let outcome = recover(&store.roots(), &laid.name, Options::default(), &|_| {}).unwrap();
    assert!(matches!(outcome, Outcome::Completed { directories: 1, .. }), "{outcome:?}");
    assert_in_order(&store, &laid);
    let outcome = recover(&store.roots(), &laid.name, Options::default(), &|_| {}).unwrap();
    assert!(matches!(outcome, Outcome::AlreadySealed { .. }), "{outcome:?}");
}

#[test]
fn a_file_that_has_a_name_already_is_never_replaced() {
    let store = Store::new(1);
    let laid = died_with(&store, &CUT);
    // A foreign file that is in the way.
    let stranger = laid.directory(0, 0).join(".fullbore/r1_a.00000002.renaming");
    fs::create_dir(&stranger).unwrap();
    let error = recovered(&store.roots(), &laid, Options::default()).unwrap_err();
    assert!(matches!(error, recover::Error::Renumber(Error::Occupied { .. })), "{error}");
    assert!(error.hint().is_some());
    assert!(bytes(&store, &laid) == laid.bytes[0], "and all can still be read");
    fs::remove_dir(&stranger).unwrap();
    recover(&store.roots(), &laid.name, Options::default(), &|_| {}).unwrap();
    assert_in_order(&store, &laid);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_table_after_any_other_is_carried_out_from_wherever_it_died(
        tables in prop::collection::vec(Just((0..11u32).collect::<Vec<_>>()).prop_shuffle(), 1..4),
        members in 1..4usize,
        steps in 0..50u32,
    ) {
        let store = Store::in_memory(members);
        let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
        let chunks: Vec<Vec<u8>> = plain(&store.roots()).into_iter().map(|(_, it)| it).collect();
        let mut before = ChunkMap::default();
        for (round, table) in tables.iter().enumerate() {
            let files = ChunkMap::of_pairs((0..).zip(table.iter().copied()));
            let mut manifest = laid.manifest.clone();
            manifest.streams[0].renamed = Some(Renumbering {
                round: round as u32 + 1,
                stage: RenumberStage::SettingAside,
                files: files.clone(),
                before: std::mem::replace(&mut before, files),
            });
            for member in 0..members {
                fs::write(laid.manifest_path(0, member), manifest.to_json()).unwrap();
            }
            for steps in [steps, u32::MAX] {
                crash_hooks::after(steps);
                let ended = recover(&store.roots(), &laid.name, Options::default(), &|_| {});
                crash_hooks::after(u32::MAX);
                prop_assert!(ended.is_ok() || steps < u32::MAX);
                prop_assert!(bytes(&store, &laid) == laid.bytes[0], "round {}", round);
            }
            for (file, content) in plain(&store.roots()) {
                let chunk = table.iter().position(|it| *it == file).unwrap();
                prop_assert!(content == chunks[chunk], "file {} is not chunk {}", file, chunk);
            }
            prop_assert_eq!(numbers_in_sight(&store.roots()).len(), 11);
        }
    }

    #[test]
    fn a_renaming_that_dies_anywhere_reads_as_before_and_ends_the_same(
        numbers in Just((0..11u32).collect::<Vec<_>>()).prop_shuffle(),
        members in 1..4usize,
        deaths in prop::collection::vec(0..40u32, 1..4),
    ) {
        let store = Store::in_memory(members);
        let laid = died_with(&store, &numbers);
        for steps in deaths {
            crash_hooks::after(steps);
            let ended = recover(&store.roots(), &laid.name, Options::default(), &|_| {});
            crash_hooks::after(u32::MAX);
            prop_assert!(ended.is_ok() || ended.is_err_and(|error| error.to_string().contains("died")));
            prop_assert!(bytes(&store, &laid) == laid.bytes[0], "died after {} steps", steps);
            let numbers = numbers_in_sight(&store.roots());
            prop_assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "{:?}", numbers);
        }
        recover(&store.roots(), &laid.name, Options::default(), &|_| {}).unwrap();
        assert_in_order(&store, &laid);
        let manifest = Scan::open(&store.roots(), &laid.name).unwrap().manifest;
        prop_assert_eq!(manifest.state, State::Recovered);
    }
}
