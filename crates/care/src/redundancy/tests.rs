//! Property tests: for any layout of stripes, any members lost and any chunk silently damaged, every byte can be read
//! and rebuilt.

mod any_harm;
mod leftover;
mod twice;
mod unsealed;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use fullbore_core::gap::Cause;
use fullbore_core::manifest::SIDE_DIRECTORY;
use fullbore_core::redundancy::{Followed, Redundancy, Scheme};
use fullbore_store::diagnostics::DiagnosticKind;
use fullbore_store::inventory::MEMBER_FILE;
use fullbore_store::read::Settings;
use fullbore_store::reader::{Item, Scan};
use fullbore_store::redundancy::StripeBuilder;
use fullbore_store::testing::{Laid, Store, StreamPlan};
use proptest::prelude::*;

use super::restore::{self, Options, Restored};
use crate::remove;
use crate::verify::{Verification, verify};

/// A scan with redundancy.
struct Made {
    store: Store,
    laid: Laid,
    followed: Followed,
    told: Vec<String>,
}

/// Makes a scan and this many rows of its parity.
fn make_rows(members: usize, scheme: Scheme, plans: &[StreamPlan], rows: usize) -> Made {
    let store = Store::in_memory(members);
    let mut laid = store.lay_down("r1_a", plans);
    laid.manifest.redundancy = Some(Redundancy::of(scheme));
    let mut builder = StripeBuilder::new(laid.manifest.uuid, scheme, store.roots());
    for (number, stream) in laid.manifest.streams.iter().enumerate() {
        builder.add(number as u16, &stream.directory, BTreeSet::new(), 0, None);
        for member in 0..members {
            std::fs::write(laid.manifest_path(number, member), laid.manifest.to_json()).unwrap();
        }
    }
    builder.look(true);
    let mut left = rows;
    builder.compose(true, &mut |_| {
        left = left.saturating_sub(1);
        left > 0
    });
    let (followed, told) = builder.end();
    Made { store, laid, followed, told }
}

fn make(members: usize, scheme: Scheme, plans: &[StreamPlan]) -> Made {
    make_rows(members, scheme, plans, usize::MAX)
}

/// Returns all bytes of each stream, and the number that could not be read.
fn read(roots: &[PathBuf], laid: &Laid) -> Vec<(Vec<u8>, usize)> {
    let scan = Scan::open(roots, &laid.name).unwrap();
    let settings = Settings { ahead_bytes: 0, reads_per_device: 1, ..Settings::default() };
    let of = |stream: &fullbore_store::reader::StoredStream| {
        let (mut bytes, mut lost) = (Vec::new(), 0);
        for item in stream.read(0..stream.blocks.len(), settings).unwrap() {
            match item {
                Item::Block(block) => bytes.extend_from_slice(block.bytes()),
                Item::Lost(_) => lost += 1,
            }
        }
        (bytes, lost)
    };
    scan.streams.iter().map(of).collect()
}

fn verified(roots: &[PathBuf], laid: &Laid) -> Verification {
    let scan = Scan::open(roots, &laid.name).unwrap();
    verify(&scan, Settings::default(), &|_, _| {}).unwrap()
}

fn restored(roots: &[PathBuf], laid: &Laid, onto: &[PathBuf]) -> Restored {
    let options = Options { onto: onto.to_vec(), progress: &|_, _| {}, stop: &|| false };
    restore::rebuild(roots, &laid.name, &options).unwrap()
}

/// Returns directories that have never been members.
fn fresh(count: usize) -> (Store, Vec<PathBuf>) {
    let store = Store::in_memory(count);
    let roots = store.roots();
    for root in &roots {
        std::fs::remove_file(root.join(SIDE_DIRECTORY).join(MEMBER_FILE)).unwrap();
    }
    (store, roots)
}

/// Makes a member's disk disappear.
fn lose(root: &Path) {
    std::fs::rename(root.join("r1_a"), root.join("away")).ok();
    for entry in std::fs::read_dir(root).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("r1_a") {
            std::fs::remove_dir_all(entry.path()).unwrap();
        }
    }
}

/// Makes it reappear.
fn find(root: &Path) {
    std::fs::rename(root.join("away"), root.join("r1_a")).unwrap();
}

/// Chunk and parity files below a root.
fn files(root: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(root).unwrap().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() {
            all.extend(files(&path));
        } else if name.contains(".parity") || name.contains(".0000") && !name.contains(".stripe") {
            all.push(path);
        }
    }
    all.sort();
    all
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    let at = at % bytes.len();
    bytes[at] ^= 0x10;
    std::fs::write(path, bytes).unwrap();
}

fn same(roots: &[PathBuf], laid: &Laid) -> Result<(), TestCaseError> {
    for ((bytes, lost), whole) in read(roots, laid).into_iter().zip(&laid.bytes) {
        prop_assert_eq!(lost, 0);
        prop_assert!(bytes == *whole, "{} bytes of {}", bytes.len(), whole.len());
    }
    Ok(())
}

/// Returns the bytes of a stream by its chunk files, in the order of their names.
fn joined(roots: &[PathBuf], directory: &str) -> Vec<u8> {
    let mut chunks: Vec<PathBuf> = Vec::new();
    for root in roots {
        let Ok(entries) = std::fs::read_dir(root.join(directory)) else { continue };
        chunks.extend(entries.flatten().map(|it| it.path()).filter(|it| it.is_file()));
    }
    chunks.sort_by_key(|path| path.file_name().unwrap().to_owned());
    chunks.iter().flat_map(|path| std::fs::read(path).unwrap()).collect()
}

fn plans() -> impl Strategy<Value = Vec<StreamPlan>> {
    let kinds = (1..700u64, 0..4u8);
    let plan = kinds.prop_map(|(frames, kind)| match kind {
        0 => StreamPlan::vdif("a").frames(frames),
        1 => StreamPlan::raw("a").frames(frames),
        2 => StreamPlan::varying("a").frames(frames),
        _ => StreamPlan::vdif("a").frames(frames.max(40)).gap(7, 3, Cause::Missing),
    });
    prop::collection::vec(plan, 1..3).prop_map(|plans| {
        let named = |(number, plan): (usize, StreamPlan)| plan.named(&format!("s{number}"));
        plans.into_iter().enumerate().map(named).collect()
    })
}

/// The fate of a member.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Lost,
    /// One bit of each of its chunks is flipped.
    Damaged(usize),
}

fn fates() -> impl Strategy<Value = Vec<(prop::sample::Index, Fate)>> {
    let fate = prop_oneof![Just(Fate::Lost), any::<usize>().prop_map(Fate::Damaged)];
    prop::collection::vec((any::<prop::sample::Index>(), fate), 0..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_members_lost_or_damaged_up_to_the_parity_cost_no_byte_and_all_is_rebuilt(
        data in 1..4u16,
        parity in 1..3u16,
        spare in 0..2usize,
        plans in plans(),
        fates in fates(),
    ) {
        let scheme = Scheme { data, parity };
        let members = scheme.members() + spare;
        let Made { store, laid, followed, told } = make(members, scheme, &plans);
        prop_assert_eq!((told, followed.unprotected), (Vec::<String>::new(), 0));
        let all = store.roots();
        same(&all, &laid)?;
        let before = verified(&all, &laid);
        prop_assert!(before.good, "{:?}", before.findings);
        prop_assert_eq!(before.redundancy.unwrap().may_lose, usize::from(parity));

        let mut hit: Vec<usize> = Vec::new();
        let mut roots = all.clone();
        for (member, fate) in fates.iter().take(usize::from(parity)) {
            let member = member.index(members);
            if hit.contains(&member) {
                continue;
            }
            hit.push(member);
            match fate {
                Fate::Lost => {
                    lose(&all[member]);
                    roots.retain(|root| *root != all[member]);
                }
                Fate::Damaged(at) => {
                    for (number, path) in files(&all[member]).iter().enumerate() {
                        flip(path, at.wrapping_add(number * 7919));
                    }
                }
            }
        }
        let is_hit = hit.iter().any(|member| !roots.contains(&all[*member]) || !files(&all[*member]).is_empty());
        same(&roots, &laid)?;
        let after = verified(&roots, &laid);
        prop_assert_eq!(after.good, !is_hit, "{:?}", after.findings);
        prop_assert!(after.streams.iter().all(|stream| stream.lost == 0));
        let left = after.redundancy.unwrap();
        prop_assert_eq!(left.beyond, 0);
        // If all parity of a stripe is lost, all of its data exists, and no metadata mentions the stripe any more.
        prop_assert!(left.unprotected == 0 || hit.len() == usize::from(parity));
        prop_assert!(left.may_lose + hit.len() >= usize::from(parity));

        let (_others, onto) = fresh(all.len() - roots.len());
        let done = restored(&roots, &laid, &onto);
        prop_assert!(done.is_whole(), "{done:?}");
        prop_assert_eq!(done.gone.len(), all.len() - roots.len());
        let now: Vec<PathBuf> = roots.iter().chain(&onto).cloned().collect();
        same(&now, &laid)?;
        let whole = verified(&now, &laid);
        prop_assert!(whole.good, "{:?}", whole.findings);
        prop_assert_eq!(whole.redundancy.unwrap().may_lose, usize::from(parity));
        for (stream, bytes) in laid.manifest.streams.iter().zip(&laid.bytes) {
            prop_assert!(joined(&now, &stream.directory) == *bytes, "chunk files are not the stream");
        }
        prop_assert!(!restored(&now, &laid, &[]).is_something(), "there is nothing more to do");
    }
}

#[test]
fn one_member_too_many_is_told_with_what_is_lost_and_the_rest_is_still_read() {
    let scheme = Scheme { data: 2, parity: 1 };
    let Made { store, laid, .. } = make(3, scheme, &[StreamPlan::vdif("a")]);
    let roots = &store.roots()[..1];
    store.roots()[1..].iter().for_each(|root| lose(root));
    let (bytes, lost) = read(roots, &laid).remove(0);
    assert!(lost > 0 && bytes.len() < laid.bytes[0].len());
    let left = verified(roots, &laid).redundancy.unwrap();
    assert!(left.beyond > 0);
    assert_eq!(left.may_lose, 0);
    let done = restored(roots, &laid, &[]);
    assert!(!done.is_whole() && done.gone.is_empty());
    let told = done.left.join("\n");
    assert!(told.contains("parity makes up for 1") && told.contains("r1_a.0000"), "{told}");
    // Readable data is unchanged, and with the members back nothing is lost.
    assert_eq!(read(roots, &laid).remove(0).0, bytes);
    store.roots()[1..].iter().for_each(|root| find(root));
    assert_eq!(read(&store.roots(), &laid).remove(0), (laid.bytes[0].clone(), 0));
}

#[test]
fn without_a_member_that_holds_nothing_of_a_stripe_another_is_asked_for() {
    let scheme = Scheme { data: 2, parity: 1 };
    let Made { store, laid, .. } = make(3, scheme, &[StreamPlan::vdif("a")]);
    lose(&store.roots()[0]);
    let done = restored(&store.roots()[1..], &laid, &[]);
    assert!(done.left.iter().any(|text| text.contains("--onto")), "{:?}", done.left);
    assert!(done.gone.is_empty(), "what lay on it is still missed");
}

#[test]
fn a_stripe_with_every_chunk_damaged_in_another_row_may_lose_a_member() {
    let scheme = Scheme { data: 1, parity: 2 };
    let Made { store, laid, .. } = make(3, scheme, &[StreamPlan::vdif("a").frames(96)]);
    let inventory = fullbore_store::inventory::Inventory::take(&store.roots(), &laid.name).unwrap();
    let stripe = fullbore_store::redundancy::stripes_of(&inventory, 0).remove(0).stripe;
    assert!(stripe.rows() >= 3);
    let parity = stripe.parity.iter().map(|it| it.as_ref().unwrap().path.clone());
    let paths = stripe.data.iter().map(|it| it.path.clone()).chain(parity);
    paths.enumerate().for_each(|(row, path)| flip(&path, row * stripe.row_bytes + 700));
    let left = verified(&store.roots(), &laid).redundancy.unwrap();
    assert_eq!((left.lost, left.beyond, left.may_lose), (3, 0, 1));
}

#[test]
fn chunks_whose_recorder_died_before_their_parity_are_told_of_and_get_it() {
    let scheme = Scheme { data: 2, parity: 1 };
    let plans = [StreamPlan::vdif("a"), StreamPlan::raw("b")];
    let rows = make(3, scheme, &plans).followed.stripes as usize * 2;
    let Made { store, laid, .. } = make_rows(3, scheme, &plans, rows);
    let found = verified(&store.roots(), &laid);
    let left = found.redundancy.unwrap();
    assert!(left.unprotected > 0 && left.may_lose == 0, "{left:?}");
    let told = |what: &DiagnosticKind| matches!(what, DiagnosticKind::ChunksUnprotected { .. });
    assert!(found.findings.iter().any(|finding| told(&finding.what)));
    let done = restored(&store.roots(), &laid, &[]);
    assert!(done.is_whole() && done.stripes > 0, "{done:?}");
    assert!(verified(&store.roots(), &laid).good);
    assert_eq!(verified(&store.roots(), &laid).redundancy.unwrap().may_lose, 1);
}

#[test]
fn wherever_it_is_interrupted_nothing_is_half_made_and_it_goes_on() {
    let scheme = Scheme { data: 2, parity: 1 };
    for steps in 0..40 {
        let Made { store, laid, .. } = make(3, scheme, &[StreamPlan::vdif("a")]);
        let (_others, onto) = fresh(1);
        let roots = &store.roots()[1..];
        lose(&store.roots()[0]);
        let requested = AtomicUsize::new(0);
        let stop = || requested.fetch_add(1, Ordering::SeqCst) >= steps;
        let options = Options { onto: onto.clone(), progress: &|_, _| {}, stop: &stop };
        let first = restore::rebuild(roots, &laid.name, &options).unwrap();
        let now: Vec<PathBuf> = roots.iter().chain(&onto).cloned().collect();
        let making = |root: &PathBuf| {
            let side = root.join("r1_a").join(SIDE_DIRECTORY);
            let names = std::fs::read_dir(side).into_iter().flatten().flatten();
            names.map(|it| it.file_name()).any(|it| it.to_string_lossy().contains("making"))
        };
        assert!(!now.iter().any(making), "after {steps} steps");
        assert_eq!(read(&now, &laid).remove(0), (laid.bytes[0].clone(), 0), "after {steps} steps");
        let again = restored(&now, &laid, &[]);
        assert!(again.is_whole(), "{again:?}");
        assert!(verified(&now, &laid).good);
        if !first.interrupted {
            return;
        }
    }
    panic!("it never came to its end");
}

#[test]
fn while_chunks_come_stripes_are_made_of_those_that_are_complete_and_durable() {
    let scheme = Scheme { data: 2, parity: 1 };
    let store = Store::in_memory(3);
    let plans = [StreamPlan::vdif("a").unmarked(1)];
    let laid = store.lay_down("r1_a", &plans);
    let mut builder = StripeBuilder::new(laid.manifest.uuid, scheme, store.roots());
    builder.add(0, "r1_a", BTreeSet::new(), 0, None);
    builder.look(false);
    let rows = Cell::new(0);
    assert!(builder.compose(false, &mut |_| {
        rows.set(rows.get() + 1);
        true
    }));
    let (followed, told) = builder.end();
    assert!(told.is_empty(), "{told:?}");
    assert!(followed.stripes > 0 && rows.get() > 0);
    // The last chunk of each member is not fully durable, and waits.
    let chunks = laid.chunks(0).len() as u64;
    assert!(followed.chunks <= chunks - 3, "{followed:?} of {chunks}");
}

#[test]
fn a_scan_without_redundancy_is_refused_and_one_with_it_goes_whole() {
    let scheme = Scheme { data: 1, parity: 1 };
    let Made { store, laid, .. } = make(2, scheme, &[StreamPlan::vdif("a")]);
    remove::remove(&store.roots(), &laid.name).unwrap();
    assert!(store.roots().iter().all(|root| files(root).is_empty() && !root.join("r1_a").exists()));
    let plain = store.lay_down("r1_b", &[StreamPlan::vdif("a")]);
    let options = Options { onto: vec![], progress: &|_, _| {}, stop: &|| false };
    let error = restore::rebuild(&store.roots(), &plain.name, &options).unwrap_err();
    assert!(error.to_string().contains("without redundancy"), "{error}");
    assert!(verified(&store.roots(), &plain).redundancy.is_none());
}

#[test]
fn a_copy_in_a_mirror_is_the_plain_chunk() {
    let scheme = Scheme { data: 1, parity: 1 };
    let Made { store, laid, .. } = make(2, scheme, &[StreamPlan::vdif("a").frames(100)]);
    let copies: Vec<PathBuf> = store
        .roots()
        .iter()
        .flat_map(|it| files(it))
        .filter(|it| it.to_string_lossy().contains("parity"))
        .collect();
    let bytes: BTreeSet<Vec<u8>> = copies.iter().map(|path| std::fs::read(path).unwrap()).collect();
    let chunks = laid.chunks(0);
    let plain: BTreeSet<Vec<u8>> =
        chunks.iter().map(|chunk| std::fs::read(laid.chunk_path(0, *chunk)).unwrap()).collect();
    assert_eq!(bytes, plain);
}

#[test]
fn records_that_were_cut_or_changed_tell_of_nothing() {
    let scheme = Scheme { data: 2, parity: 1 };
    let Made { store, laid, .. } = make(3, scheme, &[StreamPlan::vdif("a").frames(150)]);
    let side = |root: &PathBuf| root.join("r1_a").join(SIDE_DIRECTORY);
    let entries = store
        .roots()
        .iter()
        .flat_map(|it| std::fs::read_dir(side(it)).unwrap().flatten())
        .collect::<Vec<_>>();
    let metadata = entries
        .iter()
        .map(|it| it.path())
        .find(|it| it.to_string_lossy().contains(".stripe"))
        .unwrap();
    let whole = std::fs::read(&metadata).unwrap();
    for length in (0..whole.len()).step_by(64) {
        std::fs::write(&metadata, &whole[..length]).unwrap();
        assert_eq!(verified(&store.roots(), &laid).redundancy.unwrap().stripes, 0, "{length}");
    }
    for bit in (0..8 * whole.len()).step_by(97) {
        let mut other = whole.clone();
        other[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&metadata, other).unwrap();
        assert_eq!(read(&store.roots(), &laid).remove(0), (laid.bytes[0].clone(), 0));
    }
}
