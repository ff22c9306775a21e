//! Tests of the writer. `tests/python/test_sigmf.py` has the readers of other people.

use std::path::Path;

use fullbore_formats::samples::{Finite, SampleRate};
use serde_json::Value;

use super::*;
use crate::Origin;

fn layout() -> SampleLayout {
    SampleLayout {
        sample_rate: SampleRate::new(1000, 3),
        frequency_hz: Finite::try_from(1.42e9).ok(),
        ..SampleLayout::new("ci16_be".parse().unwrap(), 2)
    }
}

fn create(base: &Path, layout: &SampleLayout, hash: bool) -> Box<SigmfWriter> {
    let start = Some("2016-12-31T23:59:59Z".parse().unwrap());
    let origin = Origin { software: "fullbore 1", host: "h", ..Origin::default() };
    let opening = Opening { scan: "s_a", stream: "x", layout, start, origin };
    Box::new(SigmfWriter::create(base, &opening, hash).unwrap())
}

fn meta(base: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(meta_of(base)).unwrap()).unwrap()
}

fn captures(base: &Path) -> Vec<(u64, u64)> {
    let number = |it: &Value, name: &str| it[name].as_u64().unwrap();
    let pair = |it: &Value| (number(it, "core:sample_start"), number(it, "core:global_index"));
    meta(base)["captures"].as_array().unwrap().iter().map(pair).collect()
}

#[test]
fn a_gap_is_a_jump_of_the_global_index_and_its_time_counts_the_leap_second() {
    let place = tempfile::tempdir().unwrap();
    let base = place.path().join("x");
    let mut file = create(&base, &layout(), false);
    file.append(&[1; 24]).unwrap();
    file.append_absent(300).unwrap();
    file.append_absent(697).unwrap();
    file.append(&[2; 8]).unwrap();
    file.append(&[3; 8]).unwrap();
    file.append_absent(5).unwrap();
    assert_eq!(file.samples(), 1007);
    let notes = [(0, 0), (2, 2), (500, 3), (1000, 3), (1001, 4), (9999, 5)];
    let note = |(sample, _): (u64, u64)| Note {
        sample,
        time: Tai(0),
        text: "a text of more than twenty characters".into(),
        uuid: "u".into(),
    };
    let all: Vec<Note> = notes.map(note).into();
    let finished = file.finish(&Ending { notes: &all, ..Ending::default() }).unwrap();
    assert_eq!(finished.samples, 1007);
    assert_eq!(std::fs::read(data_of(&base)).unwrap().len(), 40);
    assert_eq!(captures(&base), [(0, 0), (3, 1000)]);
    let told = meta(&base);
    let time = |at: usize| told["captures"][at]["core:datetime"].as_str().unwrap().to_owned();
    assert_eq!(time(0), "2016-12-31T23:59:59.000000000Z");
    assert_eq!(time(1), "2017-01-01T00:00:01.000000000Z", "1000 samples take 3 s");
    assert_eq!(told["captures"][1]["core:frequency"], 1.42e9);
    assert_eq!(told["global"]["fullbore:samples"], 1007);
    assert_eq!(told["global"]["fullbore:layout"]["sample_rate"], "1000/3");
    assert_eq!(told["global"]["core:datatype"], "ci16_be");
    let places: Vec<u64> = told["annotations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["core:sample_start"].as_u64().unwrap())
        .collect();
    assert_eq!(places, notes.map(|(_, place)| place));
    assert_eq!(told["annotations"][0]["core:label"], "a text of more than ");
}

#[test]
fn a_gap_before_the_first_sample_moves_the_first_capture() {
    let place = tempfile::tempdir().unwrap();
    let base = place.path().join("x");
    let mut file = create(&base, &layout(), false);
    file.append_absent(7).unwrap();
    file.append(&[0; 8]).unwrap();
    file.finish(&Ending::default()).unwrap();
    assert_eq!(captures(&base), [(0, 7)]);
}

#[test]
fn the_hash_is_that_of_the_file_however_it_was_written() {
    for piece in [8, 4096, (1 << 20) - 8, 3 << 20] {
        let place = tempfile::tempdir().unwrap();
        let base = place.path().join("x");
        let mut file = create(&base, &layout(), true);
        let bytes: Vec<u8> = (0..3 << 20).map(|at: u32| (at >> 3) as u8).collect();
        for piece in bytes.chunks(piece) {
            file.append(piece).unwrap();
        }
        file.finish(&Ending::default()).unwrap();
        use sha2::{Digest, Sha512};
        let expected = hash::hexadecimal(&Sha512::digest(&bytes));
        assert_eq!(meta(&base)["global"]["core:sha512"], expected.as_str(), "pieces of {piece}");
        assert_eq!(std::fs::read(data_of(&base)).unwrap(), bytes);
    }
}

#[test]
fn a_synced_file_has_its_samples_and_captures_and_no_hash() {
    let place = tempfile::tempdir().unwrap();
    let base = place.path().join("x");
    let mut file = create(&base, &layout(), true);
    assert_eq!(captures(&base), [(0, 0)]);
    file.append(&[1; 16]).unwrap();
    file.append_absent(4).unwrap();
    file.append(&[2; 16]).unwrap();
    file.sync().unwrap();
    drop(file);
    assert_eq!(std::fs::read(data_of(&base)).unwrap().len(), 32);
    assert_eq!(captures(&base), [(0, 0), (2, 6)]);
    assert!(meta(&base)["global"].get("core:sha512").is_none());
}

#[test]
fn an_abandoned_file_has_the_samples_and_captures_of_the_last_sync() {
    let place = tempfile::tempdir().unwrap();
    let ending = Ending { lacks: Some("the disk is full"), ..Ending::default() };
    for (name, synced) in [("x", true), ("y", false)] {
        let base = place.path().join(name);
        let mut file = create(&base, &layout(), true);
        file.append_absent(2).unwrap();
        file.append(&[1; 16]).unwrap();
        file.append_absent(4).unwrap();
        if synced {
            file.sync().unwrap();
        }
        file.append(&vec![2; 2 * BUFFER_BYTES]).unwrap();
        file.append_absent(9).unwrap();
        file.append(&[3; 8]).unwrap();
        file.abandon(&ending).unwrap();
        let (samples, runs, data) = match synced {
            true => (8, [(0, 2)], vec![1; 16]),
            false => (0, [(0, 0)], vec![]),
        };
        assert_eq!(std::fs::read(data_of(&base)).unwrap(), data);
        assert_eq!(captures(&base), runs);
        let told = meta(&base);
        assert_eq!(told["global"]["fullbore:samples"], samples);
        assert_eq!(told["global"]["fullbore:lacks"], "the disk is full");
    }
}

#[test]
fn gaps_after_the_last_capture_are_filled_so_that_samples_keep_their_place() {
    let place = tempfile::tempdir().unwrap();
    let base = place.path().join("x");
    let layout = SampleLayout::new("ri8".parse().unwrap(), 1);
    let mut file = create(&base, &layout, false);
    let gaps = MOST_CAPTURES as u64 + 5;
    for _ in 0..gaps {
        file.append(&[1]).unwrap();
        file.append_absent(2).unwrap();
    }
    file.append(&[1]).unwrap();
    assert_eq!(file.samples(), 3 * gaps + 1);
    file.finish(&Ending::default()).unwrap();
    let data = std::fs::read(data_of(&base)).unwrap();
    assert_eq!(data.len() as u64, gaps + 1 + 2 * 6);
    assert_eq!(captures(&base).len(), MOST_CAPTURES);
    assert_eq!(meta(&base)["global"]["fullbore:filled"]["gaps"].as_array().unwrap().len(), 6);
    assert!(data.ends_with(&[1, 0, 0, 1]));
}

#[test]
fn a_gap_beyond_what_sigmf_counts_is_refused_and_files_are_not_overwritten() {
    let place = tempfile::tempdir().unwrap();
    let base = place.path().join("x");
    let layout = layout();
    let mut file = create(&base, &layout, false);
    assert!(file.append_absent(u64::MAX).is_err());
    let origin = Origin::default();
    let opening = Opening { scan: "s_a", stream: "x", layout: &layout, start: None, origin };
    assert!(SigmfWriter::create(&base, &opening, false).is_err());
}

#[test]
fn a_change_of_the_frequency_begins_a_capture_unless_its_samples_are_not_there() {
    let place = tempfile::tempdir().unwrap();
    let base = place.path().join("x");
    let mut file = create(&base, &layout(), false);
    file.append(&[1; 80]).unwrap();
    file.tune(0, 1e9);
    file.tune(4, 2e9);
    file.tune(13, 3e9);
    file.append_absent(10).unwrap();
    file.append(&[2; 80]).unwrap();
    file.tune(30, 4e9);
    file.finish(&Ending::default()).unwrap();
    assert_eq!(captures(&base), [(0, 0), (4, 4), (10, 20)]);
    let told = meta(&base);
    let tuned = told["captures"].as_array().unwrap().iter();
    let tuned: Vec<f64> = tuned.map(|it| it["core:frequency"].as_f64().unwrap()).collect();
    assert_eq!(tuned, [1e9, 2e9, 3e9], "nothing follows the last change");
}
