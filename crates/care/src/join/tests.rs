//! Made-up pieces, joined and then read and verified.

use std::fs;

use fullbore_core::manifest::Manifest;
use fullbore_core::name::ScanName;
use fullbore_store::read::Settings;
use fullbore_store::reader::{Item, Scan};
use fullbore_store::testing::{Laid, Store, StreamPlan};
use uuid::Uuid;

use super::{Error, join};
use crate::remove;
use crate::verify::verify;

/// Streams whose frames are counted from 0 in each piece, and whose last blocks are short.
fn plans(frames: u64) -> Vec<StreamPlan> {
    vec![StreamPlan::raw("c").frames(frames), StreamPlan::varying("d").frames(frames + 7)]
}

/// Lays down pieces that follow one another, ten seconds each.
fn lay_down(store: &Store, streams: impl Fn(u64) -> Vec<StreamPlan>) -> Vec<Laid> {
    let lay = |(number, frames)| {
        let laid = store.lay_down(&format!("r1_p{number}"), &streams(frames));
        edit(store, &laid, |manifest| {
            let shift_ns = number * 10_000_000_000;
            manifest.armed = manifest.armed.plus_ns(shift_ns);
            manifest.stopped = manifest.stopped.map(|time| time.plus_ns(shift_ns));
        });
        laid
    };
    (0i64..).zip([333, 64, 700]).map(lay).collect()
}

/// Changes every copy of a manifest.
fn edit(store: &Store, laid: &Laid, change: impl Fn(&mut Manifest)) {
    for stream in 0..laid.manifest.streams.len() {
        for member in 0..store.roots().len() {
            let path = laid.manifest_path(stream, member);
            let mut manifest = Manifest::from_json(&fs::read(&path).unwrap()).unwrap();
            change(&mut manifest);
            fs::write(path, manifest.to_json()).unwrap();
        }
    }
}

fn names(pieces: &[Laid]) -> Vec<ScanName> {
    pieces.iter().map(|piece| piece.name.clone()).collect()
}

fn event() -> ScanName {
    "r1_event".parse().unwrap()
}

/// Expects the bytes of these pieces in the scan, and no finding.
fn expect_joined(store: &Store, pieces: &[Laid]) {
    let scan = Scan::open(&store.roots(), &event()).unwrap();
    let verified = verify(&scan, Settings::default(), &|_, _| {}).unwrap();
    let findings: Vec<String> = verified.findings.iter().map(|it| it.to_string()).collect();
    assert_eq!(findings, Vec::<String>::new());
    for (number, stream) in scan.streams.iter().enumerate() {
        let items = stream.read(0..stream.blocks.len(), Settings::default());
        let bytes = items.unwrap().flat_map(|item| match item {
            Item::Block(block) => block.bytes().to_vec(),
            Item::Lost(finding) => panic!("{finding}"),
        });
        let wanted: Vec<u8> = pieces.iter().flat_map(|it| it.bytes[number].clone()).collect();
        assert!(bytes.collect::<Vec<u8>>() == wanted, "stream {number}");
        let of_pieces = pieces.iter().map(|piece| piece.accounts[number].terms.written);
        assert_eq!(stream.account.as_ref().unwrap().terms.written, of_pieces.sum::<u64>());
    }
}

#[test]
fn joined_scan_has_all_data_and_outlives_its_pieces() {
    let store = Store::new(2);
    let pieces = lay_down(&store, plans);
    let manifest = join(&store.roots(), &names(&pieces), &event(), Uuid::now_v7()).unwrap();
    let (armed, stopped) = (manifest.armed, manifest.stopped.unwrap());
    assert_eq!(stopped.since(armed), 30_000_000_000);
    expect_joined(&store, &pieces);
    let other: ScanName = "r1_other".parse().unwrap();
    join(&store.roots(), &names(&pieces[1..]), &other, Uuid::now_v7()).unwrap();
    for name in names(&pieces).iter().chain([&other]) {
        remove::remove(&store.roots(), name).unwrap();
    }
    expect_joined(&store, &pieces);
}

#[test]
fn interrupted_join_is_finished_by_the_next_one() {
    let store = Store::new(2);
    let (pieces, uuid) = (lay_down(&store, plans), Uuid::now_v7());
    let roots = store.roots();
    join(&roots, &names(&pieces), &event(), uuid).unwrap();
    // As if the process had ended before it renamed one of four directories, and within the making of it.
    let shown = roots[1].join("r1_event_dsd");
    let aside = roots[1].join(format!(".fullbore/joining-{uuid}"));
    fs::create_dir_all(&aside).unwrap();
    fs::rename(&shown, aside.join("r1_event_dsd")).unwrap();
    fs::remove_file(aside.join("r1_event_dsd/.fullbore/index")).unwrap();
    join(&roots, &names(&pieces), &event(), uuid).unwrap();
    expect_joined(&store, &pieces);
    assert!(!aside.exists());
    let error = join(&roots, &names(&pieces), &event(), Uuid::now_v7()).unwrap_err();
    assert!(matches!(error, Error::Taken { .. }), "{error}");
}

#[test]
fn scans_that_do_not_follow_one_another_are_not_joined() {
    let store = Store::new(1);
    let pieces = lay_down(&store, plans);
    let join_these = |names: &[ScanName]| join(&store.roots(), names, &event(), Uuid::now_v7());
    let skipping = [pieces[0].name.clone(), pieces[2].name.clone()];
    assert!(matches!(join_these(&skipping), Err(Error::Apart { .. })));
    assert!(matches!(join_these(&[]), Err(Error::Nothing)));
    edit(&store, &pieces[1], |it| it.state = fullbore_core::manifest::State::Recording);
    assert!(matches!(join_these(&names(&pieces)), Err(Error::Piece { .. })));
    assert!(!store.roots()[0].join("r1_event_dsc").exists());
}

#[test]
fn stream_whose_frames_are_counted_anew_is_not_joined() {
    let store = Store::new(1);
    let pieces = lay_down(&store, |frames| vec![StreamPlan::vdif("a").frames(frames)]);
    let error = join(&store.roots(), &names(&pieces), &event(), Uuid::now_v7()).unwrap_err();
    assert!(error.to_string().contains("counted anew"), "{error}");
}
