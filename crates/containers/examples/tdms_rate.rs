//! Measures how fast one core writes and reads TDMS, in GB/s of samples, beside a plain write of the same bytes.
//!
//! `cargo run --release -p fullbore-containers --example tdms_rate DIRECTORY [GB]`
//!
//! `benches/tdms.py` runs it, and npTDMS with the same files.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use fullbore_containers::tdms::{GroupReader, GroupSamples, TdmsFile, TdmsLayout, defragment};
use fullbore_containers::{Ending, Opening, Origin, SampleFormat};
use fullbore_formats::samples::SampleLayout;

/// Bytes that are appended at once: a block of a recording.
const BLOCK: usize = 4 << 20;

fn main() {
    let mut words = std::env::args().skip(1);
    let directory = PathBuf::from(words.next().expect("the first word is a directory"));
    let bytes =
        (words.next().map_or(1.0, |it| it.parse::<f64>().expect("it is a number")) * 1e9) as u64;
    let blocks = bytes.div_ceil(BLOCK as u64);
    let block: Vec<u8> = (0..BLOCK).map(|it| ((it * 37) >> 4) as u8).collect();
    plain(&directory.join("plain.bin"), &block, blocks);
    for (encoding, channels) in [
        ("ri16_le", 1),
        ("ri16_le", 2),
        ("ri16_le", 16),
        ("ri16_be", 2),
        ("rf32_le", 4),
        ("cf32_le", 2),
        ("ri32_le", 256),
    ] {
        let layout = SampleLayout {
            sample_rate: Some("204.8kHz".parse().expect("it is a rate")),
            ..SampleLayout::new(encoding.parse().expect("it is an encoding"), channels)
        };
        for order in [TdmsLayout::Contiguous, TdmsLayout::Interleaved] {
            measure(&directory, &layout, order, &block, blocks);
        }
    }
}

fn rate(what: &str, begun: Instant, bytes: u64) {
    println!("{what:<42} {:6.2} GB/s", bytes as f64 / begun.elapsed().as_secs_f64() / 1e9);
}

/// Writes and reads the same bytes without a format.
fn plain(path: &Path, block: &[u8], blocks: u64) {
    let bytes = blocks * block.len() as u64;
    let begun = Instant::now();
    let mut file = File::create(path).expect("it can be created");
    (0..blocks).for_each(|_| file.write_all(block).expect("it is written"));
    file.sync_all().expect("it is synced");
    rate("plain write, synced", begun, bytes);
    let (begun, mut read) = (Instant::now(), vec![0; BLOCK]);
    let mut file = File::open(path).expect("it is there");
    (0..blocks).for_each(|_| file.read_exact(&mut read).expect("it is read"));
    rate("plain read", begun, bytes);
    std::fs::remove_file(path).expect("it is removed");
}

fn measure(directory: &Path, layout: &SampleLayout, order: TdmsLayout, block: &[u8], blocks: u64) {
    let name = format!("{} × {} {order:?}", layout.channels, layout.encoding);
    let path = directory.join(format!("{}_{}_{order:?}.tdms", layout.channels, layout.encoding));
    let copy = directory.join("copy.tdms");
    for file in [&path, &copy].into_iter().flat_map(|it| SampleFormat::Tdms(order).files(it)) {
        let _ = std::fs::remove_file(file);
    }
    let bytes = blocks * block.len() as u64;
    let begun = Instant::now();
    let origin = Origin::default();
    let opening = Opening { scan: "s_a", stream: "x", layout, start: None, origin };
    let format = SampleFormat::Tdms(order);
    let mut writer = format.create(&path, &opening).expect("it can be created");
    (0..blocks).for_each(|_| writer.append(block).expect("it is written"));
    writer.finish(&Ending::default()).expect("it is finished");
    rate(&format!("{name}: write, synced"), begun, bytes);

    let begun = Instant::now();
    let file = TdmsFile::open(&path).expect("it is TDMS");
    let samples = GroupSamples::of(&file, None).expect("it has samples");
    let mut reader = GroupReader::new(&file, &samples);
    let mut read = 0;
    while let Some(rows) = reader.next_rows().expect("it is read") {
        read += rows.len() as u64;
    }
    assert_eq!(read, bytes);
    rate(&format!("{name}: read"), begun, bytes);

    let begun = Instant::now();
    defragment(&file, &copy, &mut |_| {}).expect("it is copied");
    rate(&format!("{name}: defragment, synced"), begun, bytes);
    for file in format.files(&copy) {
        std::fs::remove_file(file).expect("it is removed");
    }
}
