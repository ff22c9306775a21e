//! Tests of duplicate chunks: a rebuild could not restore all and removed no member, or parity was made again
//! elsewhere.

use std::collections::BTreeMap;

use super::*;

/// Returns the names of chunk and parity files, with their members.
fn places(roots: &[PathBuf]) -> BTreeMap<String, Vec<usize>> {
    let mut all: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (member, root) in roots.iter().enumerate() {
        for path in files(root) {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            all.entry(name).or_default().push(member);
        }
    }
    all
}

fn twice(roots: &[PathBuf]) -> Vec<String> {
    let twice = places(roots).into_iter().filter(|(_, members)| members.len() > 1);
    twice.map(|(name, _)| name).collect()
}

#[test]
fn members_that_come_back_after_a_rebuild_that_was_not_whole_are_members_and_nothing_stays_twice() {
    let made = make(5, Scheme { data: 2, parity: 1 }, &[StreamPlan::vdif("a")]);
    let (all, laid) = (made.store.roots(), &made.laid);
    lose(&all[0]);
    lose(&all[1]);
    let done = restored(&all[2..], laid, &[]);
    assert!(!done.is_whole() && done.gone.is_empty() && done.removed == 0, "{done:?}");
    assert!(done.restored + done.parity > 0, "some stripes had lost one chunk only: {done:?}");
    find(&all[0]);
    find(&all[1]);
    let doubled = twice(&all);
    assert!(!doubled.is_empty());
    assert_eq!(read(&all, laid).remove(0), (laid.bytes[0].clone(), 0));
    let found = verified(&all, laid);
    let is_twin = |it: &&fullbore_store::diagnostics::Diagnostic| {
        matches!(it.what, DiagnosticKind::ChunkTwice { .. })
    };
    let data = doubled.iter().filter(|name| !name.contains("parity")).count();
    assert_eq!(found.findings.iter().filter(is_twin).count(), data, "{:?}", found.findings);

    // One of two duplicate files is damaged: the other one is kept.
    let name = doubled.iter().find(|name| !name.contains("parity"));
    if let Some(name) = name {
        let member = *places(&all)[name].last().unwrap();
        flip(&all[member].join("r1_a").join(name), 77);
    }
    let again = restored(&all, laid, &[]);
    assert!(again.is_whole() && again.gone.is_empty(), "{again:?}");
    assert!(again.removed as usize >= doubled.len(), "{again:?} {doubled:?}");
    assert_eq!(twice(&all), Vec::<String>::new());
    let found = verified(&all, laid);
    assert!(found.good, "{:?}", found.findings);
    assert_eq!(read(&all, laid).remove(0), (laid.bytes[0].clone(), 0));
    // The scan is fully redundant again, whichever member is lost.
    for lost in &all {
        lose(lost);
        let left: Vec<PathBuf> = all.iter().filter(|root| *root != lost).cloned().collect();
        assert_eq!(read(&left, laid).remove(0), (laid.bytes[0].clone(), 0));
        find(lost);
    }
    let quiet = restored(&all, laid, &[]);
    assert!(quiet.is_whole() && !quiet.is_something() && quiet.removed == 0, "{quiet:?}");
}

#[test]
fn nothing_of_parity_stays_where_its_records_could_not_be_read_any_more() {
    let made = make(4, Scheme { data: 2, parity: 1 }, &[StreamPlan::vdif("a")]);
    let (all, laid) = (made.store.roots(), &made.laid);
    let before = places(&all);
    let mut damaged = 0;
    for root in &all {
        let side = root.join("r1_a").join(SIDE_DIRECTORY);
        for entry in std::fs::read_dir(&side).unwrap().flatten() {
            if entry.file_name().to_string_lossy().contains(".stripe") {
                flip(&entry.path(), 9);
                damaged += 1;
            }
        }
    }
    assert!(damaged > 2);
    let done = restored(&all, laid, &[]);
    assert!(done.is_whole() && done.stripes > 0, "{done:?}");
    assert_eq!(twice(&all), Vec::<String>::new());
    let found = verified(&all, laid);
    assert!(found.good && found.redundancy.unwrap().may_lose == 1, "{:?}", found.findings);
    let data = |places: &BTreeMap<String, Vec<usize>>| {
        places.keys().filter(|name| !name.contains("parity")).cloned().collect::<Vec<_>>()
    };
    assert_eq!(data(&places(&all)), data(&before), "of the data nothing goes");
}
