//! Files that are written, killed, read and put in order.

use std::fs;
use std::path::Path;

use fullbore_formats::samples::SampleLayout;
use fullbore_formats::tdms::{ObjectPath, Value};

use super::*;
use crate::{Ending, Opening, Origin, SampleWriter};

#[test]
fn raw_chunks_are_whole_units_of_the_disk() {
    for row_bytes in [1, 2, 3, 4, 6, 10, 1000, 1024, 4096, 12_288, 1 << 20, 65_535 * 16] {
        let bytes = rows_in_chunk(row_bytes) * row_bytes;
        assert!(bytes.is_multiple_of(4096), "{row_bytes}");
        assert!((1 << 20..1 << 33).contains(&bytes), "{row_bytes}: {bytes}");
    }
}

fn layout(encoding: &str, channels: u32) -> SampleLayout {
    SampleLayout::new(encoding.parse().unwrap(), channels)
}

fn writer(path: &Path, layout: &SampleLayout, order: TdmsLayout) -> Box<TdmsWriter> {
    let start = Some("2026-11-27T10:35:00.5Z".parse().unwrap());
    let origin = Origin::default();
    let opening = Opening { scan: "s_a", stream: "x", layout, start, origin };
    Box::new(TdmsWriter::create(path, &opening, order).unwrap())
}

/// All samples of the only group, and the file's number of segments.
fn read(path: &Path) -> (Vec<u8>, usize) {
    let file = TdmsFile::open(path).unwrap();
    let samples = GroupSamples::of(&file, None).unwrap();
    let mut reader = GroupReader::new(&file, &samples);
    let mut rows = Vec::new();
    while let Some(more) = reader.next_rows().unwrap() {
        rows.extend(more);
    }
    (rows, file.contents().segment_count())
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|it| ((it * 31) >> 3) as u8).collect()
}

#[test]
fn samples_are_read_as_they_were_written() {
    let place = tempfile::tempdir().unwrap();
    for (number, order) in [TdmsLayout::Contiguous, TdmsLayout::Interleaved].into_iter().enumerate()
    {
        for (encoding, channels) in [("ri16_le", 3), ("rf64_le", 1), ("ru8", 2), ("cf32_le", 2)] {
            let path = place.path().join(format!("{encoding}{number}.tdms"));
            let layout = layout(encoding, channels);
            let row = layout.sample_bits() as usize / 8;
            let count = 10_000_000 / row + 1;
            let rows = pattern(row * count);
            let mut file = writer(&path, &layout, order);
            for part in rows.chunks(row * (count / 4)) {
                file.append(part).unwrap();
            }
            let finished = file.finish(&Ending::default()).unwrap();
            assert_eq!(finished.samples, count as u64);
            let files = [path.clone(), index_of(&path)].map(|it| fs::metadata(it).unwrap().len());
            assert_eq!(finished.bytes, files.iter().sum::<u64>());
            let (found, segments) = read(&path);
            assert!(found == rows, "{encoding}");
            assert_eq!(segments, 2);
            fs::remove_file(path).unwrap();
        }
    }
}

#[test]
fn a_killed_file_has_what_was_synced_and_whole_raw_chunks() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("x.tdms");
    let layout = layout("ri32_le", 4);
    let rows = pattern(16 * 1_200_000);
    let chunk = rows_in_chunk(16) * 16;
    let mut file = writer(&path, &layout, TdmsLayout::Contiguous);
    file.sync().unwrap();
    assert!(TdmsFile::open(&path).is_ok(), "it is readable before the first sample");
    file.append(&rows[..1600]).unwrap();
    file.sync().unwrap();
    assert_eq!(read(&path).0, rows[..1600]);
    file.append(&rows[1600..]).unwrap();
    // Nobody closes it.
    drop(file);
    let found = TdmsFile::open(&path).unwrap();
    assert!(found.contents().is_cut());
    let whole = 1600 + (rows.len() - 1600) / chunk * chunk;
    assert!(read(&path).0 == rows[..whole]);
    let again = place.path().join("y.tdms");
    let copy = defragment(&found, &again, &mut |_| {}).unwrap();
    assert!(copy.was_cut && copy.left_out.is_empty());
    assert_eq!((copy.segments_before, copy.segments, copy.channels), (3, 2, 4));
    assert!(read(&again).0 == rows[..whole]);
    assert!(!TdmsFile::open(&again).unwrap().contents().is_cut());
    assert!(defragment(&found, &again, &mut |_| {}).is_err(), "it is there");
    assert!(again.exists());
}

#[test]
fn an_abandoned_file_has_the_samples_and_gaps_of_the_last_sync() {
    let place = tempfile::tempdir().unwrap();
    let layout = layout("ri32_le", 4);
    let rows = pattern(16 * 1_200_000);
    let ending = Ending { lacks: Some("the disk is full"), ..Ending::default() };
    for (name, synced) in [("x.tdms", true), ("y.tdms", false)] {
        let path = place.path().join(name);
        let mut file = writer(&path, &layout, TdmsLayout::Contiguous);
        if synced {
            file.append(&rows[..1600]).unwrap();
            file.append_absent(3).unwrap();
            file.sync().unwrap();
        }
        file.append_absent(5).unwrap();
        file.append(&rows).unwrap();
        file.abandon(&ending).unwrap();
        let found = TdmsFile::open(&path).unwrap();
        assert!(!found.contents().is_cut() && index_of(&path).exists());
        let root = found.contents().object(found.contents().find(&ObjectPath::File).unwrap());
        let text = |name| root.property(name).and_then(Value::as_text);
        assert_eq!(text("fullbore_lacks"), Some("the disk is full"));
        let (bytes, gaps) = match synced {
            true => (103 * 16, r#"[{"first":100,"count":3}]"#),
            false => (0, "[]"),
        };
        assert_eq!(text("fullbore_gaps"), Some(gaps));
        if synced {
            let (samples, _) = read(&path);
            assert_eq!((&samples[..1600], samples.len()), (&rows[..1600], bytes));
        } else {
            assert!(GroupSamples::of(&found, None).is_err(), "there are no values");
        }
    }
}

#[test]
fn big_endian_samples_and_gaps_become_little_endian_values() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("x.tdms");
    let mut file = writer(&path, &layout("rf32_be", 2), TdmsLayout::Contiguous);
    file.append(&[1f32, 2.0].map(f32::to_be_bytes).concat()).unwrap();
    file.append_absent(3_000_000).unwrap();
    assert!(file.append_absent(u64::MAX / 8).is_err());
    file.finish(&Ending::default()).unwrap();
    let rows = read(&path).0;
    let value = |number: usize| f32::from_le_bytes(rows[4 * number..][..4].try_into().unwrap());
    assert_eq!((value(0), value(1)), (1.0, 2.0));
    assert!((2..6_000_002).all(|number| value(number).is_nan()));
    let file = TdmsFile::open(&path).unwrap();
    let root = file.contents().object(file.contents().find(&ObjectPath::File).unwrap());
    let gaps = root.property("fullbore_gaps").and_then(Value::as_text);
    assert_eq!(gaps, Some(r#"[{"first":1,"count":3000000}]"#));
}

#[test]
fn the_layout_comes_back() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("x.tdms");
    let layout = SampleLayout {
        sample_rate: Some("200/3".parse().unwrap()),
        slope: Some(0.25.try_into().unwrap()),
        intercept: Some(1.0.try_into().unwrap()),
        unit: Some("µm/s".into()),
        frequency_hz: Some(1e9.try_into().unwrap()),
        channel_names: vec!["it's".into(), "b".into()],
        ..layout("ru16_le", 2)
    };
    let mut file = writer(&path, &layout, TdmsLayout::Contiguous);
    file.append(&[0; 40]).unwrap();
    file.finish(&Ending::default()).unwrap();
    let file = TdmsFile::open(&path).unwrap();
    let samples = GroupSamples::of(&file, Some("x")).unwrap();
    assert_eq!((samples.layout, samples.samples), (layout, 10));
    assert_eq!(samples.start, Some("2026-11-27T10:35:00.5Z".parse().unwrap()));
    assert!(samples.lacks.is_empty());
    let other = GroupSamples::of(&file, Some("y")).unwrap_err().to_string();
    assert!(other.contains("no group `y`: choose one of x"), "{other}");
}
