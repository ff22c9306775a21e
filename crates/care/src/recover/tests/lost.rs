//! Tests of scans that lost an index, or every manifest.

use std::fs;
use std::time::{Duration, UNIX_EPOCH};

use fullbore_core::account::Verdict;
use fullbore_core::hint::Hint;
use fullbore_core::manifest::{Format, Times};
use fullbore_store::testing::start;
use fullbore_time::Tai;

use super::*;

#[test]
fn a_lost_index_is_rebuilt_from_the_frames() {
    for sealed in [false, true] {
        let store = Store::new(3);
        let plan = plans().remove(0);
        let plan = if sealed { plan } else { plan.unsealed() };
        let laid = store.lay_down("r1_a", &[plan]);
        for member in 0..3 {
            fs::remove_file(laid.index_path(0, member)).unwrap();
        }
        let options = Options { reindex: sealed, ..Options::default() };
        let recovery = recovered_with(&store, &laid, options);
        assert_verifies(&store, &laid);
        assert!(bytes(&store, &laid, 0) == laid.bytes[0]);
        let (terms, before) = (&recovery.streams[0].terms, &laid.accounts[0].terms);
        assert_eq!((terms.expected, terms.written), (before.expected, before.written));
        let scan = opened(&store, &laid);
        let account = scan.streams[0].account.clone().unwrap();
        assert_eq!(account.unverified, before.written);
        assert_eq!(account.invalid, 2);
    }
}

#[test]
fn a_sealed_scan_that_lost_an_index_says_which_and_has_it_back_when_asked() {
    let store = Store::new(3);
    let laid = store.lay_down("r1_a", &plans());
    let outcome = || recover(&store.roots(), &laid.name, Options::default(), &|_| {}).unwrap();
    let lost = laid.index_path(0, 1);
    fs::remove_file(&lost).unwrap();
    let Outcome::AlreadySealed { indexes, .. } = outcome() else { panic!("not left alone") };
    assert_eq!(indexes, [lost]);
    recovered_with(&store, &laid, Options { reindex: true, ..Options::default() });
    assert_verifies(&store, &laid);
    assert!(bytes(&store, &laid, 0) == laid.bytes[0]);
    let Outcome::AlreadySealed { indexes, .. } = outcome() else { panic!("not sealed") };
    assert_eq!(indexes, [] as [std::path::PathBuf; 0]);
}

#[test]
fn no_complete_chunk_loses_a_byte_when_an_index_is_built_anew() {
    for frames in [3, 700, 1000] {
        for plan in [StreamPlan::raw("a"), StreamPlan::varying("a"), StreamPlan::vdif("a")] {
            let store = Store::new(1);
            let laid = store.lay_down("r1_a", &[plan.frames(frames)]);
            fs::remove_file(laid.index_path(0, 0)).unwrap();
            recovered_with(&store, &laid, Options { reindex: true, ..Options::default() });
            assert!(bytes(&store, &laid, 0) == laid.bytes[0], "{frames} frames");
            assert_verifies(&store, &laid);
        }
    }
}

fn forget_manifests(laid: &Laid, members: usize) {
    for stream in 0..laid.manifest.streams.len() {
        for member in 0..members {
            fs::remove_file(laid.manifest_path(stream, member)).unwrap();
        }
    }
}

#[test]
fn a_scan_that_lost_every_manifest_has_its_account_back_as_it_was() {
    let store = Store::new(2);
    let laid = store.lay_down("r1_a", &plans());
    forget_manifests(&laid, 2);
    let recovery = recovered(&store, &laid);
    assert!(recovery.warnings.iter().any(|it| it.contains("not known")), "{recovery:?}");
    assert_verifies(&store, &laid);
    let scan = opened(&store, &laid);
    for (number, (stream, told)) in
        scan.manifest.streams.iter().zip(&laid.manifest.streams).enumerate()
    {
        assert_eq!((&stream.name, stream.fill), (&told.name, told.fill));
        if told.fill != Fill::Omit {
            assert_eq!(stream.format, derived(&told.format), "{}", stream.name);
        }
        let account = scan.streams[number].account.as_ref();
        assert_eq!(account, Some(&laid.accounts[number]), "{}", stream.name);
        assert!(bytes(&store, &laid, number) == laid.bytes[number], "{}", stream.name);
    }
}

#[test]
fn files_that_were_renamed_are_told_from_others_without_any_manifest() {
    for unsealed in [true, false] {
        let store = Store::new(2);
        let plan = StreamPlan::vdif("a").frames(288).numbered(&[0, 2, 1]);
        let plan = if unsealed { plan.unsealed() } else { plan };
        let laid = store.lay_down("r1_a", &[plan]);
        if unsealed {
            recovered(&store, &laid);
            let scan = opened(&store, &laid);
            assert!(scan.manifest.streams[0].renamed.is_some(), "they were put in order");
        }
        forget_manifests(&laid, 2);
        recovered(&store, &laid);
        assert_verifies(&store, &laid);
        assert!(bytes(&store, &laid, 0) == laid.bytes[0]);
        let renamed = opened(&store, &laid).manifest.streams[0].renamed.is_some();
        assert_eq!(renamed, unsealed);
    }
}

/// Returns the format with a rate that was learnt, not configured.
fn derived(format: &Format) -> Format {
    let mut format = format.clone();
    if let Format::Frames { derived, .. } = &mut format {
        *derived = true;
    }
    format
}

#[test]
fn a_scan_whose_recorder_died_and_that_lost_every_manifest_is_sealed_all_the_same() {
    for lost_indexes in [false, true] {
        let store = Store::new(3);
        let laid = store.lay_down("r1_a", &[plans().remove(0).unrecorded(1)]);
        forget_manifests(&laid, 3);
        if lost_indexes {
            fs::remove_file(laid.index_path(0, 1)).unwrap();
            fs::write(laid.manifest_path(0, 0), b"{\"version\":1,").unwrap();
        }
        let recovery = recovered(&store, &laid);
        assert_verifies(&store, &laid);
        let (terms, before) = (&recovery.streams[0].terms, &laid.accounts[0].terms);
        assert_eq!((terms.expected, terms.written), (before.expected, before.written));
        assert!(bytes(&store, &laid, 0) == laid.bytes[0]);
    }
}

#[test]
fn a_manifest_of_a_later_version_is_not_replaced_and_an_empty_directory_is_no_scan() {
    let store = Store::new(1);
    let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
    fs::write(laid.manifest_path(0, 0), b"{\"version\":99}").unwrap();
    let recover =
        |name: &str| recover(&store.roots(), &name.parse().unwrap(), Options::default(), &|_| {});
    let error = recover("r1_a").unwrap_err();
    assert!(matches!(error, Error::LaterVersion { .. }), "{error}");
    fs::create_dir_all(store.roots()[0].join("r1_b/.fullbore")).unwrap();
    let error = recover("r1_b").unwrap_err();
    assert!(matches!(error, Error::NothingLeft { .. }), "{error}");
    assert!(error.hint().is_some());
}

#[test]
fn streams_that_lost_nothing_keep_account_and_verdict_when_another_lost_its_index() {
    for forgotten in [false, true] {
        let store = Store::new(3);
        let whole = StreamPlan::vdif("e").threads(&[4]);
        let laid = store.lay_down("r1_a", &[plans(), vec![whole]].concat());
        assert_eq!(laid.accounts[4].verdict, Verdict::Proven);
        fs::remove_file(laid.index_path(0, 1)).unwrap();
        if forgotten {
            forget_manifests(&laid, 3);
        }
        let options = Options { reindex: !forgotten, ..Options::default() };
        let recovery = recovered_with(&store, &laid, options);
        assert_verifies(&store, &laid);
        let scan = opened(&store, &laid);
        let intact: Vec<bool> = recovery.streams.iter().map(|stream| stream.intact).collect();
        assert_eq!(intact, [false, true, true, true, true]);
        for number in 1..5 {
            let account = scan.streams[number].account.as_ref();
            assert_eq!(account, Some(&laid.accounts[number]), "{}", scan.streams[number].name);
        }
        let account = scan.streams[0].account.as_ref().unwrap();
        assert!(account.verdict > Verdict::Proven && account.unverified > 0, "{account:?}");
        assert_eq!(recovery.state, State::Recovered);
        // After another rebuild, unverified blocks are still unverified.
        let again = recovered_with(&store, &laid, Options { reindex: true, ..Options::default() });
        assert!(again.streams.iter().all(|stream| stream.intact));
        assert_eq!(opened(&store, &laid).streams[0].account.as_ref(), Some(account));
    }
}

#[test]
fn a_scan_that_lost_nothing_stays_sealed_whoever_asks_for_new_indexes() {
    let store = Store::new(2);
    let laid = store.lay_down("r1_a", &plans());
    let recovery = recovered_with(&store, &laid, Options { reindex: true, ..Options::default() });
    assert_eq!(recovery.state, State::Sealed);
    let scan = opened(&store, &laid);
    assert_eq!(scan.manifest, laid.manifest);
    for (stream, account) in scan.streams.iter().zip(&laid.accounts) {
        assert_eq!(stream.account.as_ref(), Some(account));
    }
}

#[test]
fn an_account_that_tells_more_than_the_index_is_made_anew() {
    let store = Store::new(1);
    let laid = store.lay_down("r1_a", &[plans().remove(0)]);
    let path = laid.account_path(0, 0);
    let mut account = laid.accounts[0].clone();
    (account.terms.written, account.terms.expected) = (1, 1);
    account.terms.missing = 0;
    fs::write(&path, serde_json::to_vec(&account).unwrap()).unwrap();
    let recovery = recovered_with(&store, &laid, Options { reindex: true, ..Options::default() });
    assert!(!recovery.streams[0].intact);
    assert_eq!(recovery.streams[0].terms, laid.accounts[0].terms);
    assert_verifies(&store, &laid);
}

#[test]
fn no_block_is_told_as_lost_where_all_frames_were_found() {
    for plan in [StreamPlan::raw("a"), StreamPlan::varying("a"), StreamPlan::vdif("a")] {
        let store = Store::new(2);
        let laid = store.lay_down("r1_a", &[plan]);
        // Neither the block size nor the number of blocks in a chunk is known.
        forget_manifests(&laid, 2);
        (0..2).for_each(|member| fs::remove_file(laid.index_path(0, member)).unwrap());
        let recovery = recovered(&store, &laid);
        let stream = &recovery.streams[0];
        assert_eq!((stream.lost, stream.cut), (0, 0), "{stream:?}");
        assert!(bytes(&store, &laid, 0) == laid.bytes[0]);
        assert_verifies(&store, &laid);
    }
}

#[test]
fn a_chunk_that_is_gone_is_told_as_lost_blocks() {
    for plan in [StreamPlan::raw("a"), StreamPlan::vdif("a")] {
        let store = Store::new(2);
        let laid = store.lay_down("r1_a", &[plan]);
        fs::remove_file(laid.chunk_path(0, 4)).unwrap();
        (0..2).for_each(|member| fs::remove_file(laid.index_path(0, member)).unwrap());
        let recovery =
            recovered_with(&store, &laid, Options { reindex: true, ..Options::default() });
        assert_eq!(recovery.streams[0].lost, 3, "{recovery:?}");
    }
}

#[test]
fn a_manifest_made_anew_tells_from_when_until_when_and_what_tells_so() {
    let times = |plan: StreamPlan| {
        let store = Store::new(2);
        let laid = store.lay_down("r1_a", &[plan]);
        forget_manifests(&laid, 2);
        // Chunks were written a second after one another, long before this copy of them was made.
        for chunk in laid.chunks(0) {
            let file = fs::File::options().write(true).open(laid.chunk_path(0, chunk));
            let written = UNIX_EPOCH + Duration::from_secs(1_700_000_000 + u64::from(chunk));
            // A chunk that was still being filled is not there, and does not matter here.
            if let Ok(file) = file {
                file.set_modified(written).unwrap();
            }
        }
        recovered(&store, &laid);
        let manifest = opened(&store, &laid).manifest;
        (manifest.armed, manifest.stopped.unwrap(), manifest.times)
    };
    // All blocks of these scans have the same arrival time.
    let last = start().plus_ns(999 * 10_000_000);
    let by_frames = (start(), last, Some(Times::Frames));
    assert_eq!(times(StreamPlan::vdif("a")), by_frames);
    assert_eq!(times(StreamPlan::vdif("a").unrecorded(1)), by_frames);
    assert_eq!(times(StreamPlan::vdif("a").fill(Fill::Omit).unsealed()), by_frames);
    let unix = |seconds: i128| Tai::from_unix_ns(seconds * 1_000_000_000);
    let chunks = 11; // of 96 frames each
    let by_files = (unix(1_700_000_000), unix(1_700_000_000 + chunks - 1), Some(Times::Files));
    assert_eq!(times(StreamPlan::raw("a")), by_files);
}

#[test]
fn the_hosts_clock_tells_more_than_the_frames() {
    let tai = |seconds: i64| start().plus_ns(seconds * 1_000_000_000);
    let span = |seen: (i64, i64), frames: (i64, i64)| times::Span {
        received: Some((tai(seen.0), tai(seen.1))),
        frames: Some((tai(frames.0), tai(frames.1))),
    };
    let laid = Store::new(1).lay_down("r1_a", &[StreamPlan::vdif("a")]);
    let told = |spans: &[times::Span]| -> (Tai, Option<Tai>, Option<Times>) {
        let mut manifest = laid.manifest.clone();
        times::tell(&mut manifest, spans, []);
        (manifest.armed, manifest.stopped, manifest.times)
    };
    let both = [span((5, 7), (900, 950)), span((6, 9), (901, 951))];
    assert_eq!(told(&both), (tai(5), Some(tai(9)), Some(Times::Received)));
    assert_eq!(told(&[span((5, 5), (900, 950))]), (tai(900), Some(tai(950)), Some(Times::Frames)));
}

#[test]
fn the_rest_of_a_cut_chunk_whose_index_is_lost_goes_where_its_frames_say() {
    for sealed in [false, true] {
        for member in 0..2 {
            let store = Store::new(2);
            let plan = StreamPlan::vdif("a").frames(480).numbered(&[0, 2, 1, 4, 3]);
            let plan = if sealed { plan } else { plan.unsealed() };
            let laid = store.lay_down("r1_a", &[plan]);
            fs::remove_file(laid.index_path(0, member)).unwrap();
            let options = Options { reindex: sealed, ..Options::default() };
            let recovery = recovered_with(&store, &laid, options);
            let stream = &recovery.streams[0];
            assert_eq!((stream.lost, stream.terms), (0, laid.accounts[0].terms), "{stream:?}");
            assert!(bytes(&store, &laid, 0) == laid.bytes[0]);
            assert_verifies(&store, &laid);
        }
    }
}
