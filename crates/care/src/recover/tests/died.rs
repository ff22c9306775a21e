//! Tests of scans whose recorder died or was interrupted.

use std::fs;
use std::path::Path;

use fullbore_core::account::{Account, Unreachable, Verdict};
use fullbore_core::hint::Hint;
use fullbore_core::manifest::{Format, Manifest, Summary};
use fullbore_store::lock::{self, ScanLock};
use fullbore_store::testing::RATE;

use super::*;

#[test]
fn a_scan_whose_recorder_died_is_sealed_with_every_block_and_its_account() {
    for members in [1, 2, 4] {
        let store = Store::new(members);
        let laid = store.lay_down("r1_a", &each(StreamPlan::unsealed));
        let recovery = recovered(&store, &laid);
        assert_verifies(&store, &laid);
        for (number, stream) in recovery.streams.iter().enumerate() {
            assert_eq!(stream.terms, laid.accounts[number].terms, "{}", stream.name);
            assert_eq!((stream.cut, stream.lost, stream.found), (0, 0, 0));
            assert!(stream.verdict > Some(Verdict::Proven), "its counters are lost");
            assert!(bytes(&store, &laid, number) == laid.bytes[number], "{}", stream.name);
        }
        let again = recover(&store.roots(), &laid.name, Options::default(), &|_| {});
        let again = again.unwrap();
        assert!(matches!(again, Outcome::AlreadySealed { state: State::Recovered, .. }));
    }
}

#[test]
fn blocks_that_were_written_and_not_recorded_are_kept_and_marked_unverified() {
    let store = Store::new(2);
    // The last block of a headerless stream cannot be distinguished from space that was never written.
    let headerless = StreamPlan::raw("c").frames(992).fill(Fill::Pattern(0x5555_5555));
    let plans = [plans().remove(0), plans().remove(1), headerless].map(|it| it.unrecorded(2));
    let laid = store.lay_down("r1_a", &plans);
    let recovery = recovered(&store, &laid);
    assert_verifies(&store, &laid);
    let scan = opened(&store, &laid);
    for (number, stream) in recovery.streams.iter().enumerate() {
        assert_eq!(stream.found, 4, "{}", stream.name);
        assert!(bytes(&store, &laid, number) == laid.bytes[number], "{}", stream.name);
        let account = scan.streams[number].account.clone().unwrap();
        assert_eq!(account.terms, laid.accounts[number].terms, "{}", stream.name);
        assert!(account.unverified > 0);
    }
}

#[test]
fn blocks_of_varying_frames_without_a_record_are_counted_by_the_next_that_has_one() {
    let store = Store::new(2);
    let laid = store.lay_down("r1_a", &[StreamPlan::varying("a").frames(700).unsealed()]);
    fs::remove_file(laid.index_path(0, 1)).unwrap();
    let recovery = recovered(&store, &laid);
    assert_verifies(&store, &laid);
    let stream = &recovery.streams[0];
    let whole = laid.bytes[0].len() / 16384 * 16384;
    assert!(bytes(&store, &laid, 0).starts_with(&laid.bytes[0][..whole]));
    assert_eq!(stream.terms.expected, stream.terms.written, "nothing is told as missing");
    assert!(stream.terms.written > 600);
}

#[test]
fn a_rate_that_no_manifest_had_yet_is_learnt_from_the_index() {
    let store = Store::new(2);
    let plan = plans().remove(0).unrecorded(2);
    let laid = store.lay_down("r1_a", &[plan]);
    for member in 0..2 {
        let path = laid.manifest_path(0, member);
        let mut manifest = Manifest::from_json(&fs::read(&path).unwrap()).unwrap();
        let Format::Frames { frames_per_second, .. } = &mut manifest.streams[0].format else {
            unreachable!("the plan is VDIF")
        };
        *frames_per_second = None;
        fs::write(&path, manifest.to_json()).unwrap();
    }
    recovered(&store, &laid);
    assert_verifies(&store, &laid);
    let scan = opened(&store, &laid);
    assert_eq!(scan.streams[0].frames_per_second(), Some(2 * RATE));
    let account = scan.streams[0].account.as_ref().unwrap();
    assert_eq!(account.first.unwrap().time, laid.accounts[0].first.unwrap().time);
    assert_eq!(account.last.unwrap().time, laid.accounts[0].last.unwrap().time);
}

#[test]
fn blocks_without_a_record_tell_the_rate_by_their_frames_where_nothing_else_does() {
    for (members, unrecorded) in [(1, 1000), (1, 31), (1, 30), (2, 1000)] {
        let store = Store::new(members);
        let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a").unrecorded(unrecorded)]);
        for member in 0..members {
            let path = laid.manifest_path(0, member);
            let mut manifest = Manifest::from_json(&fs::read(&path).unwrap()).unwrap();
            let Format::Frames { frames_per_second, .. } = &mut manifest.streams[0].format else {
                unreachable!("the plan is VDIF")
            };
            *frames_per_second = None;
            fs::write(&path, manifest.to_json()).unwrap();
        }
        recovered(&store, &laid);
        let scan = opened(&store, &laid);
        assert_eq!(scan.streams[0].frames_per_second(), Some(RATE), "{members} {unrecorded}");
        let account = scan.streams[0].account.as_ref().unwrap();
        let times = |account: &Account| (account.first.unwrap().time, account.last.unwrap().time);
        assert_eq!(times(account), times(&laid.accounts[0]), "{members} {unrecorded}");
        let (armed, stopped) = (scan.manifest.armed, scan.manifest.stopped);
        let lasted = stopped.map(|stopped| stopped.since(armed));
        assert!(lasted.is_none_or(|ns| ns < 60_000_000_000), "{stopped:?}");
    }
}

#[test]
fn a_chunk_is_cut_at_the_first_block_after_the_mark_that_is_not_whole() {
    let store = Store::new(2);
    let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a").unmarked(4)]);
    let scan = opened(&store, &laid);
    // Members hold 16 blocks each, distributed by threes; 29 is the last but one of its chunk.
    let in_place = &scan.streams[0].blocks[28];
    assert_eq!(in_place.block.offset, 16384);
    let mut chunk = fs::read(in_place.path.as_path()).unwrap();
    chunk[16384 + 5000] ^= 1;
    fs::write(in_place.path.as_path(), &chunk).unwrap();
    let recovery = recovered(&store, &laid);
    let stream = &recovery.streams[0];
    assert_eq!((stream.cut, stream.lost, stream.blocks), (2, 2, 30));
    assert_eq!((stream.terms.overrun, stream.terms.missing), (64, 0));
    assert_verifies(&store, &laid);
    let kept = [&laid.bytes[0][..28 * 16384], &laid.bytes[0][30 * 16384..]].concat();
    assert!(bytes(&store, &laid, 0) == kept);
}

#[test]
fn a_durable_block_that_is_damaged_is_never_cut_off() {
    let store = Store::new(1);
    let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a").unsealed()]);
    let path = laid.chunk_path(0, 2);
    let mut chunk = fs::read(&path).unwrap();
    chunk[100] ^= 1;
    fs::write(&path, &chunk).unwrap();
    let options = Options { deep: true, ..Options::default() };
    let recovery = recovered_with(&store, &laid, options);
    assert_eq!((recovery.streams[0].damaged, recovery.streams[0].cut), (1, 0));
    let scan = opened(&store, &laid);
    let verification = verify(&scan, Settings::default(), &|_, _| {}).unwrap();
    assert_eq!(verification.findings.len(), 1, "{:?}", verification.findings);
    assert_eq!(verification.findings[0].file, Some(path));
}

#[test]
fn an_index_cut_anywhere_is_mended_from_the_chunks() {
    let whole = {
        let store = Store::new(2);
        let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a").unsealed()]);
        fs::read(laid.index_path(0, 1)).unwrap()
    };
    for cut in (0..whole.len().min(2600)).step_by(64) {
        let store = Store::new(2);
        let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a").unsealed()]);
        fs::write(laid.index_path(0, 1), &whole[..cut]).unwrap();
        recovered(&store, &laid);
        assert_verifies(&store, &laid);
        assert!(bytes(&store, &laid, 0) == laid.bytes[0], "cut at {cut}");
    }
}

#[test]
fn a_recovery_that_dies_at_any_step_can_be_run_again_with_the_same_result() {
    let damaged = || {
        let store = Store::new(2);
        let plans = [plans().remove(0).unrecorded(1), plans().remove(1).unmarked(3)];
        let laid = store.lay_down("r1_a", &plans);
        let scan = opened(&store, &laid);
        let in_place = scan.streams[1].blocks.last().unwrap();
        let mut chunk = fs::read(in_place.path.as_path()).unwrap();
        chunk[in_place.block.offset as usize + 9] ^= 1;
        fs::write(in_place.path.as_path(), &chunk).unwrap();
        (store, laid)
    };
    let result = |store: &Store, laid: &Laid| {
        assert_verifies(store, laid);
        let scan = opened(store, laid);
        let terms = scan.streams.iter().map(|it| it.account.as_ref().unwrap().terms);
        let all: Vec<_> = terms.collect();
        (all, bytes(store, laid, 0), bytes(store, laid, 1))
    };
    let (store, laid) = damaged();
    recovered(&store, &laid);
    let expected = result(&store, &laid);
    for steps in 0.. {
        let (store, laid) = damaged();
        fullbore_store::crash_hooks::after(steps);
        let died = recover(&store.roots(), &laid.name, Options::default(), &|_| {}).is_err();
        fullbore_store::crash_hooks::after(u32::MAX);
        if !died {
            assert!(steps > 15, "only {steps} steps were seen");
            break;
        }
        recovered(&store, &laid);
        assert!(result(&store, &laid) == expected, "died after {steps} steps");
    }
}

#[test]
fn a_scan_that_is_being_recorded_is_left_alone() {
    let store = Store::new(2);
    let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a").unsealed()]);
    let lock = ScanLock::take(&laid.manifest_path(0, 0)).unwrap();
    let error = recover(&store.roots(), &laid.name, Options::default(), &|_| {}).unwrap_err();
    assert!(matches!(error, Error::Lock(lock::Error::Held { .. })), "{error}");
    assert!(error.hint().is_some());
    drop(lock);
    recovered(&store, &laid);
}

#[test]
fn a_sealed_scan_is_left_alone_and_one_half_sealed_is_completed() {
    let store = Store::new(2);
    let laid = store.lay_down("r1_a", &plans());
    let again = || recover(&store.roots(), &laid.name, Options::default(), &|_| {}).unwrap();
    assert!(matches!(again(), Outcome::AlreadySealed { state: State::Sealed, .. }));
    let mut manifest = laid.manifest.clone();
    manifest.state = State::Recording;
    fs::write(laid.manifest_path(2, 1), manifest.to_json()).unwrap();
    fs::remove_file(laid.account_path(2, 1)).unwrap();
    let outcome = again();
    let completed =
        matches!(outcome, Outcome::Completed { state: State::Sealed, directories: 1, .. });
    assert!(completed, "{outcome:?}");
    let verification = verify(&opened(&store, &laid), Settings::default(), &|_, _| {}).unwrap();
    assert!(verification.good, "{:?}", verification.findings);
}

#[test]
fn frames_on_a_member_that_came_back_are_no_longer_out_of_reach() {
    let store = Store::new(2);
    let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
    let mut account = laid.accounts[0].clone();
    account.unreachable = Some(Unreachable { frames: 32, members: vec!["m1".into()] });
    account.verdict = account.judge();
    let mut manifest = laid.manifest.clone();
    manifest.streams[0].account = Some(Summary::from(&account));
    fs::write(laid.manifest_path(0, 0), manifest.to_json()).unwrap();
    fs::write(laid.account_path(0, 0), serde_json::to_vec(&account).unwrap()).unwrap();
    // The member left before the scan was sealed.
    manifest.state = State::Recording;
    fs::write(laid.manifest_path(0, 1), manifest.to_json()).unwrap();
    fs::remove_file(laid.account_path(0, 1)).unwrap();
    let outcome = recover(&store.roots(), &laid.name, Options::default(), &|_| {}).unwrap();
    assert!(matches!(outcome, Outcome::Completed { state: State::Sealed, .. }), "{outcome:?}");
    let scan = opened(&store, &laid);
    assert_eq!(scan.streams[0].account.as_ref(), Some(&laid.accounts[0]));
    let completeness = Completeness::of_manifest(&scan.manifest).unwrap();
    assert_eq!(completeness.complete, Some(true), "{}", completeness.headline);
}

#[test]
fn an_absent_member_is_named_and_can_be_done_without() {
    let store = Store::new(3);
    let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a").unsealed()]);
    let roots = &store.roots()[..2];
    let error = recover(roots, &laid.name, Options::default(), &|_| {}).unwrap_err();
    assert!(error.to_string().contains(&store.roots()[2].display().to_string()), "{error}");
    let options = Options { without_absent_members: true, ..Options::default() };
    let outcome = recover(roots, &laid.name, options, &|_| {}).unwrap();
    let Outcome::Recovered(recovery) = outcome else { panic!("{outcome:?}") };
    let stream = &recovery.streams[0];
    assert_eq!((stream.blocks, stream.lost), (23, 9));
    assert_eq!(stream.terms.expected, 1000, "what lay there is told as lost");
}

#[test]
fn a_member_that_came_back_with_the_beginning_of_a_chunk_gives_way() {
    let store = Store::new(2);
    let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a").unsealed()]);
    let path = laid.chunk_path(0, 1);
    let name = path.file_name().unwrap().to_str().unwrap();
    let began = laid.directory(0, 0).join(format!(".fullbore/{name}.part"));
    fs::write(&began, &fs::read(&path).unwrap()[..20_000]).unwrap();
    let recovery = recovered(&store, &laid);
    assert_eq!(recovery.streams[0].superseded, 1);
    assert!(!Path::new(&began).exists());
    assert_verifies(&store, &laid);
    assert!(bytes(&store, &laid, 0) == laid.bytes[0]);
    crate::remove::remove(&store.roots(), &laid.name).unwrap();
    assert!(!laid.directory(0, 0).exists());
}
