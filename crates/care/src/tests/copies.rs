//! Copies from another site: whole ones verify, and incomplete ones are not taken for recordings that died.

use std::collections::BTreeMap;

use fullbore_core::gap::Cause;
use fullbore_core::hint::Hint;
use fullbore_core::index::{Codec, Entry, RECORD_BYTES};
use fullbore_core::manifest::State;
use fullbore_store::Member;
use fullbore_store::diagnostics::DiagnosticKind;
use fullbore_store::landing::{Landing, Origin};
use fullbore_store::read::{Settings, pool};
use fullbore_store::reader::Scan;
use fullbore_store::testing::{Laid, Store, StreamPlan};

use crate::recover::{self, Options, Outcome, recover};
use crate::verify::{Verification, verify};

fn plans() -> Vec<StreamPlan> {
    vec![
        StreamPlan::vdif("a")
            .gap(40, 3, Cause::Missing)
            .gap(100, 1, Cause::Damaged)
            .skip_blocks(10..12)
            .invalid(&[7, 500]),
        StreamPlan::varying("b").frames(300),
    ]
}

type Record = [u8; RECORD_BYTES];

/// The records of each block of a stream on a member, and those of gaps.
fn records(laid: &Laid, stream: usize, member: usize) -> (Vec<Vec<Record>>, Vec<Record>) {
    let codec = Codec::of_scan(laid.manifest.uuid);
    let index = std::fs::read(laid.index_path(stream, member)).unwrap();
    let (mut blocks, mut gaps) = (Vec::<Vec<Record>>::new(), Vec::new());
    for record in index.chunks_exact(RECORD_BYTES) {
        let record: Record = record.try_into().unwrap();
        match codec.decode(&record).unwrap().1 {
            Entry::Block(_) => blocks.push(vec![record]),
            Entry::Lengths { .. } => blocks.last_mut().unwrap().push(record),
            Entry::Gap(_) => gaps.push(record),
            _ => {}
        }
    }
    (blocks, gaps)
}

/// Copies a scan, the last blocks of each stream first. Returns the records of its gaps.
fn copy(landing: &Landing, laid: &Laid, but: usize) -> Vec<Record> {
    let codec = Codec::of_scan(laid.manifest.uuid);
    let (mut blocks, mut last) = (Vec::new(), Vec::new());
    for (stream, member) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let (of_member, gaps) = records(laid, stream, member);
        blocks.extend(of_member);
        last.extend(gaps);
    }
    let mut pool = pool(1, 16384).unwrap();
    let mut memory = pool.take().unwrap();
    for records in blocks.iter().rev().skip(but) {
        let Ok((stream, Entry::Block(block))) = codec.decode(&records[0]) else { panic!() };
        let chunk = std::fs::read(laid.chunk_path(stream.into(), block.chunk)).unwrap();
        let data = &chunk[block.offset as usize..][..block.bytes as usize];
        memory[..data.len()].copy_from_slice(data);
        landing.write(records, &mut memory[..]).unwrap();
    }
    landing.sync().unwrap();
    last
}

fn begun(laid: &Laid, store: &Store) -> Landing {
    let members: Vec<Member> =
        store.roots().iter().map(|root| Member::open(root).unwrap()).collect();
    let origin = Origin { host: "station-1".into(), key: "ab".into() };
    Landing::begin(&members, &laid.manifest, &origin, 0).unwrap()
}

fn verified(laid: &Laid, store: &Store) -> Verification {
    let scan = Scan::open(&store.roots(), &laid.name).unwrap();
    verify(&scan, Settings::default(), &|_, _| {}).unwrap()
}

#[test]
fn a_copy_verifies_like_its_recording() {
    let (there, here) = (Store::new(2), Store::new(3));
    let laid = there.lay_down("r1_a", &plans());
    let landing = begun(&laid, &here);
    let last = copy(&landing, &laid, 0);
    let accounts: BTreeMap<_, _> = (0..).zip(laid.accounts.iter().cloned()).collect();
    landing.seal(&laid.manifest, &accounts, &last).unwrap();
    let verification = verified(&laid, &here);
    assert_eq!(verification.findings, []);
    assert!(verification.good);
    let recording = verified(&laid, &there);
    assert_eq!(verification.completeness, recording.completeness);
    let recovered = recover(&here.roots(), &laid.name, Options::default(), &|_| {}).unwrap();
    assert!(matches!(recovered, Outcome::AlreadySealed { .. }), "{recovered:?}");
}

#[test]
fn an_incomplete_copy_is_not_recovered_unless_it_is_asked_for() {
    let (there, here) = (Store::new(2), Store::new(2));
    let laid = there.lay_down("r1_a", &plans());
    drop({
        let landing = begun(&laid, &here);
        copy(&landing, &laid, 5);
        landing
    });
    let host = "station-1".to_owned();
    let verification = verified(&laid, &here);
    let incomplete = DiagnosticKind::CopyIncomplete { host };
    assert!(verification.findings.iter().any(|it| it.what == incomplete));
    let refused = recover(&here.roots(), &laid.name, Options::default(), &|_| {}).unwrap_err();
    assert!(matches!(refused, recover::Error::IncompleteCopy { .. }), "{refused}");
    assert!(refused.hint().unwrap().contains("fullbore send"));
    // It can still be continued.
    drop(begun(&laid, &here));
    let options = Options { incomplete_copy: true, ..Options::default() };
    recover(&here.roots(), &laid.name, options, &|_| {}).unwrap();
    let scan = Scan::open(&here.roots(), &laid.name).unwrap();
    assert_eq!(scan.manifest.state, State::Recovered);
    let bytes: u64 = scan.streams.iter().map(|it| it.bytes()).sum();
    assert!(bytes > 0 && bytes < laid.manifest.bytes());
    let members: Vec<Member> =
        here.roots().iter().map(|root| Member::open(root).unwrap()).collect();
    let origin = Origin { host: "station-1".into(), key: "ab".into() };
    assert!(
        Landing::begin(&members, &laid.manifest, &origin, 0).is_err(),
        "it is another scan now"
    );
}
