//! Channels and what is in their files.

use fullbore_formats::samples::SampleRate;
use fullbore_time::Tai;

use super::*;
use crate::Origin;

/// The start of all channels here: 0.3 s into a file.
const START: i128 = 1_700_000_000_300_000_000;

fn layout() -> SampleLayout {
    let layout = SampleLayout::new("ci16_le".parse().unwrap(), 2);
    SampleLayout { sample_rate: SampleRate::new(1000, 1), ..layout }
}

fn create(channel: &Path, options: DigitalRfOptions) -> Box<DigitalRfWriter> {
    let layout = layout();
    let start = Some(Tai::from_unix_ns(START));
    let opening =
        Opening { scan: "s_a", stream: "x", layout: &layout, start, origin: Origin::default() };
    Box::new(DigitalRfWriter::create(channel, &opening, options).unwrap())
}

/// Samples that count from `first`.
fn counted(first: u32, count: u32) -> Vec<u8> {
    (first..first + count).flat_map(|n| [n, !n].map(u32::to_le_bytes)).flatten().collect()
}

/// The files of a channel, with their rows and their index.
fn files(channel: &Path) -> Vec<(String, usize, Vec<u64>)> {
    let folder = channel.join("2023-11-14T22-00-00");
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let file = hdf5_metno::File::open(&path).unwrap();
        let rows = file.dataset("rf_data").unwrap().shape()[0];
        let index = file.dataset("rf_data_index").unwrap().read_raw().unwrap();
        (path.file_name().unwrap().to_string_lossy().into_owned(), rows, index)
    };
    paths.into_iter().map(read).collect()
}

const FIRST: u64 = 1_700_000_000_300;

#[test]
fn a_gapped_channel_has_a_row_for_each_run_and_no_file_for_a_gap() {
    let place = tempfile::tempdir().unwrap();
    let channel = place.path().join("ch");
    let mut writer = create(&channel, DigitalRfOptions::default());
    writer.append(&counted(0, 100)).unwrap();
    writer.append_absent(50).unwrap();
    writer.append(&counted(150, 700)).unwrap();
    writer.append_absent(2000).unwrap();
    writer.append(&counted(2850, 1)).unwrap();
    let finished = writer.finish(&Ending::default()).unwrap();
    assert_eq!(finished.samples, 2851);
    let file = |name: &str, rows, index: &[u64]| (name.to_owned(), rows, index.to_vec());
    assert_eq!(
        files(&channel),
        [
            file("rf@1700000000.000.h5", 650, &[FIRST, 0, FIRST + 150, 100]),
            file("rf@1700000001.000.h5", 150, &[FIRST + 700, 0]),
            file("rf@1700000003.000.h5", 1, &[FIRST + 2850, 0]),
        ]
    );
}

#[test]
fn a_continuous_channel_has_whole_files() {
    let place = tempfile::tempdir().unwrap();
    let channel = place.path().join("ch");
    let options = DigitalRfOptions { continuous: true, ..DigitalRfOptions::default() };
    let mut writer = create(&channel, options);
    writer.append(&counted(0, 100)).unwrap();
    writer.append_absent(2000).unwrap();
    writer.append(&counted(2100, 1)).unwrap();
    writer.finish(&Ending::default()).unwrap();
    let file = |name: &str, first| (name.to_owned(), 1000, vec![first, 0]);
    assert_eq!(
        files(&channel),
        [file("rf@1700000000.000.h5", FIRST - 300), file("rf@1700000002.000.h5", FIRST + 1700),]
    );
}

#[test]
fn an_abandoned_channel_ends_with_the_last_sync() {
    let place = tempfile::tempdir().unwrap();
    let channel = place.path().join("ch");
    let mut writer = create(&channel, DigitalRfOptions::default());
    writer.append(&counted(0, 100)).unwrap();
    writer.sync().unwrap();
    writer.append(&counted(100, 100)).unwrap();
    writer.abandon(&Ending { lacks: Some("the disk is full"), ..Ending::default() }).unwrap();
    let [(name, rows, index)] = &files(&channel)[..] else { panic!("one file") };
    assert_eq!((name.as_str(), *rows, &index[..]), ("rf@1700000000.000.h5", 100, &[FIRST, 0][..]));
}

#[test]
fn lengths_that_do_not_fit_are_refused() {
    let with = |file_ms, subdir_secs| {
        DigitalRfOptions { file_ms, subdir_secs, ..DigitalRfOptions::default() }.check()
    };
    assert!(with(1000, 3600).is_ok() && with(300, 3600).is_ok());
    assert!(with(7000, 3600).is_err() && with(0, 3600).is_err() && with(1000, 0).is_err());
}

#[test]
fn values_keep_their_type_or_get_the_smallest() {
    let of = |from: &str| encoding(from.parse().unwrap(), None).unwrap().to_string();
    assert_eq!(["ru8", "ci16_le", "rf64_le"].map(of), ["ru8", "ci16_le", "rf64_le"]);
    assert_eq!(["ro2", "ci16_be", "ru16_be"].map(of), ["ri8", "ci16_le", "ri32_le"]);
}
