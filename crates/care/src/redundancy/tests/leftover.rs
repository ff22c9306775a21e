//! Tests of members that come back after a rebuild has removed them.

use std::collections::BTreeMap;

use fullbore_core::hint::Hint;
use fullbore_store::catalogue;
use fullbore_store::inventory::Inventory;

use super::*;
use crate::redundancy::restore::Error;
use crate::remove::Error as NotRemoved;

/// Returns a scan whose member was lost, restored onto another, and came back; and the files that it was lost with.
fn come_back(lost: usize) -> (Made, Vec<PathBuf>) {
    let made = make(4, Scheme { data: 2, parity: 1 }, &[StreamPlan::vdif("a")]);
    let all = made.store.roots();
    lose(&all[lost]);
    let left: Vec<PathBuf> = all.iter().filter(|root| **root != all[lost]).cloned().collect();
    let done = restored(&left, &made.laid, &[]);
    assert!(done.is_whole() && done.gone == [all[lost].clone()], "{done:?}");
    find(&all[lost]);
    (made, all)
}

/// Returns every file below a root with its bytes.
fn contents(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(root).unwrap().flatten() {
        match entry.path().is_dir() {
            true => all.extend(contents(&entry.path())),
            false => drop(all.insert(entry.path(), std::fs::read(entry.path()).unwrap())),
        }
    }
    all
}

fn leftovers(verification: &Verification) -> Vec<PathBuf> {
    let is = |it: &&fullbore_store::diagnostics::Diagnostic| {
        matches!(it.what, DiagnosticKind::LeftOver { .. })
    };
    verification.findings.iter().filter(is).filter_map(|it| it.member.clone()).collect()
}

#[test]
fn whichever_member_comes_back_after_a_rebuild_is_named_and_neither_read_nor_used() {
    for lost in 0..4 {
        let (made, all) = come_back(lost);
        let laid = &made.laid;
        let before = contents(&all[lost]);
        let inventory = Inventory::take(&all, &laid.name).unwrap();
        assert_eq!(inventory.roots.len(), 3);
        assert!(inventory.absent_members().is_empty());
        let [leftover] = &inventory.leftovers[..] else { panic!("{:?}", inventory.leftovers) };
        assert_eq!(leftover.root.path, all[lost]);
        assert_eq!(leftover.chunks(), files(&all[lost]).len() as u64);
        let bytes = files(&all[lost]).iter().map(|it| before[it].len() as u64).sum::<u64>();
        assert_eq!(leftover.bytes(), bytes);

        let found = verified(&all, laid);
        assert_eq!(leftovers(&found), [all[lost].clone()]);
        assert_eq!(found.findings.len(), 1, "{:?}", found.findings);
        assert!(!found.good && found.streams.iter().all(|stream| stream.good));
        assert_eq!(found.redundancy.unwrap().may_lose, 1);
        assert_eq!(read(&all, laid).remove(0), (laid.bytes[0].clone(), 0));
        let entry = catalogue::list(&all).unwrap().entries.remove(0);
        assert_eq!((entry.leftover, entry.members.len()), (vec![all[lost].clone()], 3));
        assert!(entry.absent.is_empty());

        // Damage to leftover files is not a loss.
        files(&all[lost]).iter().for_each(|path| flip(path, 77));
        let before = contents(&all[lost]);
        assert_eq!(read(&all, laid).remove(0), (laid.bytes[0].clone(), 0));
        let again = restored(&all, laid, &[]);
        assert!(again.is_whole() && !again.is_something() && again.joined.is_empty(), "{again:?}");
        assert_eq!(again.leftover, [all[lost].clone()]);
        assert_eq!(contents(&all[lost]), before, "nobody asked for its removal");
    }
}

#[test]
fn what_is_left_over_goes_when_it_is_asked_for_and_then_the_disk_can_be_rebuilt_onto() {
    let (made, all) = come_back(1);
    let laid = &made.laid;
    let options = |onto: &PathBuf| Options {
        onto: vec![onto.clone()],
        progress: &|_, _| {},
        stop: &|| false,
    };
    let error = restore::rebuild(&all, &laid.name, &options(&all[1])).unwrap_err();
    assert!(matches!(&error, Error::LeftOver { path, .. } if *path == all[1]), "{error}");
    assert!(error.hint().unwrap().contains("rm --leftovers"), "{error}");

    // While a chunk is nowhere else, it may be the last copy.
    let chunk = files(&all[0]).into_iter().find(|it| it.extension().unwrap() != "parity0").unwrap();
    let bytes = std::fs::read(&chunk).unwrap();
    std::fs::remove_file(&chunk).unwrap();
    let nobody = &|_: u64, _: u64| {};
    let error = remove::remove_leftovers(&all, &laid.name, nobody).unwrap_err();
    assert!(matches!(error, NotRemoved::Needed { .. }), "{error}");
    let error = remove::remove_leftovers(&all[1..], &laid.name, nobody).unwrap_err();
    assert!(matches!(error, NotRemoved::Needed { .. }), "{error}");
    std::fs::write(&chunk, bytes).unwrap();

    let removed = remove::remove_leftovers(&all, &laid.name, nobody).unwrap();
    assert!(removed.files > 4 && removed.kept.is_empty(), "{removed:?}");
    assert!(!all[1].join("r1_a").exists());
    assert!(verified(&all, laid).good);
    assert_eq!(remove::remove_leftovers(&all, &laid.name, nobody).unwrap().files, 0);
    assert_eq!(read(&all, laid).remove(0), (laid.bytes[0].clone(), 0));

    lose(&all[2]);
    let left = [&all[0], &all[1], &all[3]].map(PathBuf::clone);
    let done = restored(&left, laid, &all[1..2]);
    assert!(done.is_whole() && done.leftover.is_empty(), "{done:?}");
    assert_eq!(done.joined, [all[1].clone()]);
    assert!(verified(&left, laid).good);
}

#[test]
fn a_scan_is_removed_with_what_is_left_over_of_it() {
    let (made, all) = come_back(0);
    // The manifest on the disk that came back names another member that is lost for ever.
    let other = &all[3];
    let left: Vec<PathBuf> = all[1..3].to_vec();
    let (_others, onto) = fresh(1);
    lose(other);
    let done = restored(&left, &made.laid, &onto);
    assert!(done.is_whole(), "{done:?}");
    let now: Vec<PathBuf> = all[..3].iter().chain(&onto).cloned().collect();
    let entry = catalogue::list(&now).unwrap().entries.remove(0);
    assert_eq!((entry.leftover, entry.absent), (vec![all[0].clone()], vec![]));
    remove::remove(&now, &made.laid.name).unwrap();
    assert!(now.iter().all(|root| files(root).is_empty() && !root.join("r1_a").exists()));
}

#[test]
fn a_member_that_comes_back_before_all_of_it_was_restored_is_still_a_member() {
    let made = make(4, Scheme { data: 2, parity: 1 }, &[StreamPlan::vdif("a")]);
    let all = made.store.roots();
    let laid = &made.laid;
    lose(&all[0]);
    lose(&all[1]);
    let done = restored(&all[2..], laid, &[]);
    assert!(!done.is_whole() && done.gone.is_empty(), "{done:?}");
    find(&all[0]);
    find(&all[1]);
    assert!(leftovers(&verified(&all, laid)).is_empty());
    assert_eq!(read(&all, laid).remove(0), (laid.bytes[0].clone(), 0));
}
