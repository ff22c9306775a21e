//! Recovers and verifies scans with all kinds of damage, built byte by byte.

mod clock;
mod died;
mod lost;
mod tail;

use fullbore_core::gap::Cause;
use fullbore_core::manifest::Fill;
use fullbore_store::read::Settings;
use fullbore_store::reader::{Item, Scan};
use fullbore_store::testing::{Laid, Store, StreamPlan};

use super::*;
use crate::verify::verify;

fn recovered(store: &Store, laid: &Laid) -> Recovery {
    recovered_with(store, laid, Options::default())
}

fn recovered_with(store: &Store, laid: &Laid, options: Options) -> Recovery {
    match recover(&store.roots(), &laid.name, options, &|_| {}).unwrap() {
        Outcome::Recovered(recovery) => recovery,
        other => panic!("{other:?}"),
    }
}

fn opened(store: &Store, laid: &Laid) -> Scan {
    Scan::open(&store.roots(), &laid.name).unwrap()
}

fn assert_verifies(store: &Store, laid: &Laid) {
    let scan = opened(store, laid);
    assert_eq!(scan.manifest.state, State::Recovered);
    let verification = verify(&scan, Settings::default(), &|_, _| {}).unwrap();
    let found: Vec<String> = verification.findings.iter().map(ToString::to_string).collect();
    assert_eq!(found, Vec::<String>::new());
}

fn bytes(store: &Store, laid: &Laid, stream: usize) -> Vec<u8> {
    let scan = opened(store, laid);
    let reader = scan.streams[stream].read(0..usize::MAX, Settings::default()).unwrap();
    let mut bytes = Vec::new();
    for item in reader {
        match item {
            Item::Block(block) => bytes.extend_from_slice(block.bytes()),
            Item::Lost(finding) => panic!("{finding}"),
        }
    }
    bytes
}

fn plans() -> Vec<StreamPlan> {
    vec![
        StreamPlan::vdif("a")
            .threads(&[1, 3])
            .gap(40, 3, Cause::Missing)
            .gap(100, 1, Cause::Damaged)
            .skip_blocks(10..12)
            .invalid(&[7, 500]),
        StreamPlan::vdif("b").fill(Fill::Omit).gap(31, 2, Cause::Missing),
        StreamPlan::raw("c").fill(Fill::Pattern(0x5555_5555)).gap(5, 9, Cause::Missing),
        StreamPlan::varying("d").frames(700),
    ]
}

fn each(of: impl Fn(StreamPlan) -> StreamPlan) -> Vec<StreamPlan> {
    plans().into_iter().map(of).collect()
}
